// fpga_xdma with a record at its masters, the signals of m_axi for a slave of cocotbext-axi, the protocol checker and a register block.

`timescale 1ps / 1ps

module replay_bench #(
    parameter int DATA_WIDTH = 256,
    parameter int CHANNELS = 2
);
    localparam int ADDR_WIDTH = 64;
    localparam int ID_WIDTH = 4;
    localparam int USER_INTERRUPTS = 4;

    wire axi_aclk, axi_aresetn;
    wire [USER_INTERRUPTS-1:0] usr_irq_req, usr_irq_ack;
    wire [ID_WIDTH-1:0] m_axi_awid, m_axi_arid;
    wire [ADDR_WIDTH-1:0] m_axi_awaddr, m_axi_araddr;
    wire [7:0] m_axi_awlen, m_axi_arlen;
    wire [2:0] m_axi_awsize, m_axi_arsize;
    wire [1:0] m_axi_awburst, m_axi_arburst;
    wire m_axi_awvalid, m_axi_wvalid, m_axi_wlast, m_axi_bready, m_axi_arvalid, m_axi_rready;
    wire [DATA_WIDTH-1:0] m_axi_wdata;
    wire [DATA_WIDTH/8-1:0] m_axi_wstrb;
    // Driven by the test bench.
    logic [ID_WIDTH-1:0] m_axi_bid, m_axi_rid;
    logic [1:0] m_axi_bresp, m_axi_rresp;
    logic m_axi_awready, m_axi_wready, m_axi_bvalid, m_axi_arready, m_axi_rvalid, m_axi_rlast;
    logic [DATA_WIDTH-1:0] m_axi_rdata;

    wire [31:0] lite_awaddr, lite_wdata, lite_araddr, lite_rdata;
    wire [3:0] lite_wstrb;
    wire [1:0] lite_bresp, lite_rresp;
    wire lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid, lite_bready;
    wire lite_arvalid, lite_arready, lite_rvalid, lite_rready;

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH), .CHANNELS(CHANNELS), .USER_INTERRUPTS(USER_INTERRUPTS)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk, .axi_aresetn, .usr_irq_req, .usr_irq_ack,
        .m_axi_awid, .m_axi_awaddr, .m_axi_awlen, .m_axi_awsize, .m_axi_awburst, .m_axi_awvalid, .m_axi_awready,
        .m_axi_wdata, .m_axi_wstrb, .m_axi_wlast, .m_axi_wvalid, .m_axi_wready, .m_axi_bid, .m_axi_bresp, .m_axi_bvalid, .m_axi_bready,
        .m_axi_arid, .m_axi_araddr, .m_axi_arlen, .m_axi_arsize, .m_axi_arburst, .m_axi_arvalid, .m_axi_arready,
        .m_axi_rid, .m_axi_rdata, .m_axi_rresp, .m_axi_rlast, .m_axi_rvalid, .m_axi_rready,
        .m_axil_awaddr(lite_awaddr), .m_axil_awvalid(lite_awvalid), .m_axil_awready(lite_awready),
        .m_axil_wdata(lite_wdata), .m_axil_wstrb(lite_wstrb), .m_axil_wvalid(lite_wvalid), .m_axil_wready(lite_wready),
        .m_axil_bvalid(lite_bvalid), .m_axil_bresp(lite_bresp), .m_axil_bready(lite_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arvalid(lite_arvalid), .m_axil_arready(lite_arready),
        .m_axil_rdata(lite_rdata), .m_axil_rresp(lite_rresp), .m_axil_rvalid(lite_rvalid), .m_axil_rready(lite_rready)
    );

    reference_registers #(.USER_INTERRUPTS(USER_INTERRUPTS)) registers (
        .clk(axi_aclk), .rst_n(axi_aresetn),
        .s_awaddr(lite_awaddr), .s_awvalid(lite_awvalid), .s_awready(lite_awready),
        .s_wdata(lite_wdata), .s_wstrb(lite_wstrb), .s_wvalid(lite_wvalid), .s_wready(lite_wready),
        .s_bvalid(lite_bvalid), .s_bresp(lite_bresp), .s_bready(lite_bready),
        .s_araddr(lite_araddr), .s_arvalid(lite_arvalid), .s_arready(lite_arready),
        .s_rdata(lite_rdata), .s_rresp(lite_rresp), .s_rvalid(lite_rvalid), .s_rready(lite_rready),
        .usr_irq_req, .usr_irq_ack
    );

    axi_checker #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH)) checker_i (
        .clk(axi_aclk), .rst_n(axi_aresetn),
        .awid(m_axi_awid), .awaddr(m_axi_awaddr), .awlen(m_axi_awlen), .awsize(m_axi_awsize), .awburst(m_axi_awburst),
        .awvalid(m_axi_awvalid), .awready(m_axi_awready), .wdata(m_axi_wdata), .wstrb(m_axi_wstrb), .wlast(m_axi_wlast),
        .wvalid(m_axi_wvalid), .wready(m_axi_wready), .bid(m_axi_bid), .bresp(m_axi_bresp), .bvalid(m_axi_bvalid), .bready(m_axi_bready),
        .arid(m_axi_arid), .araddr(m_axi_araddr), .arlen(m_axi_arlen), .arsize(m_axi_arsize), .arburst(m_axi_arburst),
        .arvalid(m_axi_arvalid), .arready(m_axi_arready), .rid(m_axi_rid), .rdata(m_axi_rdata), .rresp(m_axi_rresp), .rlast(m_axi_rlast),
        .rvalid(m_axi_rvalid), .rready(m_axi_rready)
    );
endmodule
