// fpga_xdma with a record at its masters and a RAM, one of whose signals becomes X after the first write: +unknown=SIGNAL.

`timescale 1ps / 1ps

module unknown_bench;
    localparam int DATA_WIDTH = 256;
    localparam int ADDR_WIDTH = 64;
    localparam int ID_WIDTH = 4;

    wire axi_aclk, axi_aresetn;
    wire [ID_WIDTH-1:0] m_axi_awid, m_axi_arid, m_axi_bid, m_axi_rid;
    wire [ADDR_WIDTH-1:0] m_axi_awaddr, m_axi_araddr;
    wire [7:0] m_axi_awlen, m_axi_arlen;
    wire [2:0] m_axi_awsize, m_axi_arsize;
    wire [1:0] m_axi_awburst, m_axi_arburst;
    wire m_axi_awvalid, m_axi_wvalid, m_axi_wlast, m_axi_bready, m_axi_arvalid, m_axi_rready, m_axi_rlast, m_axi_wready, m_axi_bvalid;
    wire [DATA_WIDTH-1:0] m_axi_wdata, m_axi_rdata;
    wire [DATA_WIDTH/8-1:0] m_axi_wstrb;
    wire [1:0] m_axi_bresp;
    wire ram_awready, ram_rvalid;
    wire [1:0] ram_rresp;

    string signal;
    logic is_armed = 1'b0;
    logic [2:0] unknown = '0;
    initial begin
        if (!$value$plusargs("unknown=%s", signal)) signal = "";
        if (signal == "awready") unknown = 3'b001;
        if (signal == "rvalid") unknown = 3'b010;
        if (signal == "rresp") unknown = 3'b100;
    end
    always @(posedge axi_aclk) if (m_axi_bvalid && m_axi_bready) is_armed <= 1'b1;
    wire m_axi_awready = unknown[0] && is_armed ? 1'bx : ram_awready;
    wire m_axi_rvalid = unknown[1] && is_armed && ram_rvalid ? 1'bx : ram_rvalid;
    wire [1:0] m_axi_rresp = unknown[2] && is_armed ? 2'bxx : ram_rresp;

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH), .CHANNELS(2)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk, .axi_aresetn, .usr_irq_req(1'b0),
        .m_axi_awid, .m_axi_awaddr, .m_axi_awlen, .m_axi_awsize, .m_axi_awburst, .m_axi_awvalid, .m_axi_awready,
        .m_axi_wdata, .m_axi_wstrb, .m_axi_wlast, .m_axi_wvalid, .m_axi_wready, .m_axi_bid, .m_axi_bresp, .m_axi_bvalid, .m_axi_bready,
        .m_axi_arid, .m_axi_araddr, .m_axi_arlen, .m_axi_arsize, .m_axi_arburst, .m_axi_arvalid, .m_axi_arready,
        .m_axi_rid, .m_axi_rdata, .m_axi_rresp, .m_axi_rlast, .m_axi_rvalid, .m_axi_rready
    );

    axi_ram #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH)) ram (
        .clk(axi_aclk), .rst_n(axi_aresetn), .hold(5'b0),
        .s_awid(m_axi_awid), .s_awaddr(m_axi_awaddr), .s_awlen(m_axi_awlen), .s_awburst(m_axi_awburst), .s_awsize(m_axi_awsize),
        .s_awvalid(m_axi_awvalid), .s_awready(ram_awready),
        .s_wdata(m_axi_wdata), .s_wstrb(m_axi_wstrb), .s_wlast(m_axi_wlast), .s_wvalid(m_axi_wvalid), .s_wready(m_axi_wready),
        .s_bid(m_axi_bid), .s_bresp(m_axi_bresp), .s_bvalid(m_axi_bvalid), .s_bready(m_axi_bready),
        .s_arid(m_axi_arid), .s_araddr(m_axi_araddr), .s_arlen(m_axi_arlen), .s_arburst(m_axi_arburst), .s_arsize(m_axi_arsize),
        .s_arvalid(m_axi_arvalid), .s_arready(m_axi_arready),
        .s_rid(m_axi_rid), .s_rdata(m_axi_rdata), .s_rresp(ram_rresp), .s_rlast(m_axi_rlast), .s_rvalid(ram_rvalid), .s_rready(m_axi_rready)
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
