// Reference top level: RAM at the AXI master, a register block at the AXI-Lite master, user interrupts, the protocol checker.
//
// Plusargs: +pressure=SEED for random back-pressure of the RAM (0: none); +reset_at=BEAT: sys_rst_n is low for 20 cycles after that number
// of write data beats.

`timescale 1ps / 1ps

module reference_top #(
    parameter int DATA_WIDTH = 256,
    parameter int CHANNELS = 2,
    // Bytes of the RAM, a power of two.
    parameter int RAM_SIZE = 1048576,
    // The protocol checker; 0 for measurements.
    parameter bit CHECKER = 1
);
    localparam int ADDR_WIDTH = 64;
    localparam int ID_WIDTH = 4;
    localparam int USER_INTERRUPTS = 4;

    wire axi_aclk, axi_aresetn;
    wire [USER_INTERRUPTS-1:0] usr_irq_req, usr_irq_ack;

    wire [ID_WIDTH-1:0] awid, bid, arid, rid;
    wire [ADDR_WIDTH-1:0] awaddr, araddr;
    wire [7:0] awlen, arlen;
    wire [2:0] awsize, arsize;
    wire [1:0] awburst, arburst, bresp, rresp;
    wire awvalid, awready, wvalid, wready, wlast, bvalid, bready, arvalid, arready, rvalid, rready, rlast;
    wire [DATA_WIDTH-1:0] wdata, rdata;
    wire [DATA_WIDTH/8-1:0] wstrb;

    wire [31:0] lite_awaddr, lite_wdata, lite_araddr, lite_rdata;
    wire [3:0] lite_wstrb;
    wire [1:0] lite_bresp, lite_rresp;
    wire lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid, lite_bready;
    wire lite_arvalid, lite_arready, lite_rvalid, lite_rready;

    // Reset in the middle of a transfer.
    logic sys_rst_n = 1'b1;
    int reset_at = 0;
    int beats = 0;
    int low = 0;
    initial if (!$value$plusargs("reset_at=%d", reset_at)) reset_at = 0;
    always_ff @(posedge axi_aclk) begin
        if (wvalid && wready) beats <= beats + 1;
        if (reset_at != 0 && beats == reset_at && low < 20) low <= low + 1;
        sys_rst_n <= !(reset_at != 0 && beats == reset_at && low < 20);
    end

    fpga_xdma #(
        .DATA_WIDTH(DATA_WIDTH),
        .ADDR_WIDTH(ADDR_WIDTH),
        .ID_WIDTH(ID_WIDTH),
        .CHANNELS(CHANNELS),
        .USER_INTERRUPTS(USER_INTERRUPTS)
    ) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n,
        .pci_exp_txp(), .pci_exp_txn(), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1), .user_lnk_up(),
        .axi_aclk, .axi_aresetn, .usr_irq_req, .usr_irq_ack, .msi_enable(), .msi_vector_width(),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
        .m_axi_awprot(), .m_axi_awlock(), .m_axi_awcache(), .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready),
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
        .m_axi_arprot(), .m_axi_arlock(), .m_axi_arcache(), .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
        .m_axil_awaddr(lite_awaddr), .m_axil_awprot(), .m_axil_awvalid(lite_awvalid), .m_axil_awready(lite_awready),
        .m_axil_wdata(lite_wdata), .m_axil_wstrb(lite_wstrb), .m_axil_wvalid(lite_wvalid), .m_axil_wready(lite_wready),
        .m_axil_bvalid(lite_bvalid), .m_axil_bresp(lite_bresp), .m_axil_bready(lite_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arprot(), .m_axil_arvalid(lite_arvalid), .m_axil_arready(lite_arready),
        .m_axil_rdata(lite_rdata), .m_axil_rresp(lite_rresp), .m_axil_rvalid(lite_rvalid), .m_axil_rready(lite_rready),
        .m_axib_awready(1'b0), .m_axib_wready(1'b0), .m_axib_bid('0), .m_axib_bresp('0), .m_axib_bvalid(1'b0),
        .m_axib_arready(1'b0), .m_axib_rid('0), .m_axib_rdata('0), .m_axib_rresp('0), .m_axib_rlast(1'b0), .m_axib_rvalid(1'b0),
        .m_axis_h2c_tready_0(1'b0), .s_axis_c2h_tdata_0('0), .s_axis_c2h_tkeep_0('0), .s_axis_c2h_tlast_0(1'b0),
        .s_axis_c2h_tvalid_0(1'b0),
        .m_axis_h2c_tready_1(1'b0), .s_axis_c2h_tdata_1('0), .s_axis_c2h_tkeep_1('0), .s_axis_c2h_tlast_1(1'b0),
        .s_axis_c2h_tvalid_1(1'b0),
        .m_axis_h2c_tready_2(1'b0), .s_axis_c2h_tdata_2('0), .s_axis_c2h_tkeep_2('0), .s_axis_c2h_tlast_2(1'b0),
        .s_axis_c2h_tvalid_2(1'b0),
        .m_axis_h2c_tready_3(1'b0), .s_axis_c2h_tdata_3('0), .s_axis_c2h_tkeep_3('0), .s_axis_c2h_tlast_3(1'b0),
        .s_axis_c2h_tvalid_3(1'b0)
    );

    // Random back-pressure, the same for the same seed.
    int pressure = 0;
    logic [31:0] random;
    initial if (!$value$plusargs("pressure=%d", pressure)) pressure = 0;
    always_ff @(posedge axi_aclk)
        if (!axi_aresetn) random <= 32'(pressure) * 32'h9E37_79B9 ^ 32'h0BAD_CAFE;
        else if (pressure != 0) begin
            // xorshift32
            logic [31:0] next;
            next = random ^ random << 13;
            next = next ^ next >> 17;
            random <= next ^ next << 5;
        end
    wire [4:0] hold = pressure == 0 ? 5'b0 : {random[3], random[8], random[13] & random[14], random[18], random[23]};

    axi_ram #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH), .SIZE(64'(RAM_SIZE))) ram (
        .clk(axi_aclk), .rst_n(axi_aresetn), .hold,
        .s_awid(awid), .s_awaddr(awaddr), .s_awlen(awlen), .s_awburst(awburst), .s_awsize(awsize), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready),
        .s_bid(bid), .s_bresp(bresp), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arburst(arburst), .s_arsize(arsize), .s_arvalid(arvalid), .s_arready(arready),
        .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp), .s_rlast(rlast), .s_rvalid(rvalid), .s_rready(rready)
    );

    // The register LATE answers after the first write burst at LATE_AT.
    localparam logic [63:0] LATE_AT = 64'hF_F000;
    logic late_enable;
    always_ff @(posedge axi_aclk)
        if (!axi_aresetn) late_enable <= 1'b0;
        else if (awvalid && awready && awaddr == LATE_AT) late_enable <= 1'b1;

    reference_registers #(.USER_INTERRUPTS(USER_INTERRUPTS)) registers (
        .clk(axi_aclk), .rst_n(axi_aresetn),
        .s_awaddr(lite_awaddr), .s_awvalid(lite_awvalid), .s_awready(lite_awready),
        .s_wdata(lite_wdata), .s_wstrb(lite_wstrb), .s_wvalid(lite_wvalid), .s_wready(lite_wready),
        .s_bvalid(lite_bvalid), .s_bresp(lite_bresp), .s_bready(lite_bready),
        .s_araddr(lite_araddr), .s_arvalid(lite_arvalid), .s_arready(lite_arready),
        .s_rdata(lite_rdata), .s_rresp(lite_rresp), .s_rvalid(lite_rvalid), .s_rready(lite_rready), .late_enable,
        .usr_irq_req, .usr_irq_ack
    );

    if (CHECKER) begin : g_checker
    axi_checker #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH)) checker_i (
        .clk(axi_aclk), .rst_n(axi_aresetn),
        .awid, .awaddr, .awlen, .awsize, .awburst, .awvalid, .awready, .wdata, .wstrb, .wlast, .wvalid, .wready,
        .bid, .bresp, .bvalid, .bready, .arid, .araddr, .arlen, .arsize, .arburst, .arvalid, .arready,
        .rid, .rdata, .rresp, .rlast, .rvalid, .rready
    );
    end
endmodule
