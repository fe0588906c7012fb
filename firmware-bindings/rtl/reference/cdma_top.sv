// Reference top level with two AXI CDMAs: the XDMA's memory master and all masters of the CDMAs reach one RAM through a crossbar,
// and so does that of the bypass BAR.
//
// User BAR: reference_registers at 0, CDMA with DRE and scatter-gather at 0x4000, CDMA with neither at 0x8000. usr_irq_req: 0 and 1 are
// the interrupts of the CDMAs, 2 and 3 those of the registers. Plusarg +pressure=SEED as in reference_top.

`timescale 1ps / 1ps

module cdma_top #(
    parameter int DATA_WIDTH = 256,
    parameter int RAM_SIZE = 1048576
);
    localparam int CHANNELS = 1;
    localparam int MASTERS = 5;

    wire clk, rst_n;
    wire [1:0] introut, registers_irq;

    wire [3:0] awid[MASTERS], arid[MASTERS];
    wire [63:0] awaddr[MASTERS], araddr[MASTERS];
    wire [7:0] awlen[MASTERS], arlen[MASTERS];
    wire [2:0] awsize[MASTERS], arsize[MASTERS];
    wire [1:0] awburst[MASTERS], arburst[MASTERS];
    wire [DATA_WIDTH-1:0] wdata[MASTERS];
    wire [DATA_WIDTH/8-1:0] wstrb[MASTERS];
    wire [MASTERS-1:0] awvalid, awready, wlast, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;
    wire [3:0] bid, rid;
    wire [1:0] bresp, rresp;
    wire [DATA_WIDTH-1:0] rdata;
    wire rlast;

    wire [31:0] lite_awaddr, lite_wdata, lite_araddr;
    wire [3:0] lite_wstrb;
    wire lite_awvalid, lite_wvalid, lite_bready, lite_arvalid, lite_rready;
    // Slaves: registers, CDMA 0, CDMA 1. One access at a time, whose address stays.
    wire [2:0] lite_awready, lite_wready, lite_bvalid, lite_arready, lite_rvalid;
    wire [1:0] lite_bresp[3], lite_rresp[3];
    wire [31:0] lite_rdata[3];
    wire [1:0] to = lite_awaddr[15:14];
    wire [1:0] from = lite_araddr[15:14];

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .CHANNELS(CHANNELS), .USER_INTERRUPTS(4), .BYPASS_BAR(1'b1)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req({registers_irq, introut}),
        .m_axi_awid(awid[0]), .m_axi_awaddr(awaddr[0]), .m_axi_awlen(awlen[0]), .m_axi_awsize(awsize[0]),
        .m_axi_awburst(awburst[0]), .m_axi_awvalid(awvalid[0]), .m_axi_awready(awready[0]),
        .m_axi_wdata(wdata[0]), .m_axi_wstrb(wstrb[0]), .m_axi_wlast(wlast[0]), .m_axi_wvalid(wvalid[0]), .m_axi_wready(wready[0]),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid[0]), .m_axi_bready(bready[0]),
        .m_axi_arid(arid[0]), .m_axi_araddr(araddr[0]), .m_axi_arlen(arlen[0]), .m_axi_arsize(arsize[0]),
        .m_axi_arburst(arburst[0]), .m_axi_arvalid(arvalid[0]), .m_axi_arready(arready[0]),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid[0]), .m_axi_rready(rready[0]),
        .m_axil_awaddr(lite_awaddr), .m_axil_awvalid(lite_awvalid), .m_axil_awready(lite_awready[to]),
        .m_axil_wdata(lite_wdata), .m_axil_wstrb(lite_wstrb), .m_axil_wvalid(lite_wvalid), .m_axil_wready(lite_wready[to]),
        .m_axil_bvalid(lite_bvalid[to]), .m_axil_bresp(lite_bresp[to]), .m_axil_bready(lite_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arvalid(lite_arvalid), .m_axil_arready(lite_arready[from]),
        .m_axil_rdata(lite_rdata[from]), .m_axil_rresp(lite_rresp[from]), .m_axil_rvalid(lite_rvalid[from]), .m_axil_rready(lite_rready),
        .m_axib_awid(awid[4]), .m_axib_awaddr(awaddr[4]), .m_axib_awlen(awlen[4]), .m_axib_awsize(awsize[4]),
        .m_axib_awburst(awburst[4]), .m_axib_awvalid(awvalid[4]), .m_axib_awready(awready[4]),
        .m_axib_wdata(wdata[4]), .m_axib_wstrb(wstrb[4]), .m_axib_wlast(wlast[4]), .m_axib_wvalid(wvalid[4]), .m_axib_wready(wready[4]),
        .m_axib_bid(bid), .m_axib_bresp(bresp), .m_axib_bvalid(bvalid[4]), .m_axib_bready(bready[4]),
        .m_axib_arid(arid[4]), .m_axib_araddr(araddr[4]), .m_axib_arlen(arlen[4]), .m_axib_arsize(arsize[4]),
        .m_axib_arburst(arburst[4]), .m_axib_arvalid(arvalid[4]), .m_axib_arready(arready[4]),
        .m_axib_rid(rid), .m_axib_rdata(rdata), .m_axib_rresp(rresp), .m_axib_rlast(rlast), .m_axib_rvalid(rvalid[4]), .m_axib_rready(rready[4]),
        .m_axis_h2c_tready_0(1'b0), .s_axis_c2h_tdata_0('0), .s_axis_c2h_tkeep_0('0), .s_axis_c2h_tlast_0(1'b0),
        .s_axis_c2h_tvalid_0(1'b0),
        .m_axis_h2c_tready_1(1'b0), .s_axis_c2h_tdata_1('0), .s_axis_c2h_tkeep_1('0), .s_axis_c2h_tlast_1(1'b0),
        .s_axis_c2h_tvalid_1(1'b0),
        .m_axis_h2c_tready_2(1'b0), .s_axis_c2h_tdata_2('0), .s_axis_c2h_tkeep_2('0), .s_axis_c2h_tlast_2(1'b0),
        .s_axis_c2h_tvalid_2(1'b0),
        .m_axis_h2c_tready_3(1'b0), .s_axis_c2h_tdata_3('0), .s_axis_c2h_tkeep_3('0), .s_axis_c2h_tlast_3(1'b0),
        .s_axis_c2h_tvalid_3(1'b0)
    );

    reference_registers #(.USER_INTERRUPTS(2)) registers (
        .clk, .rst_n,
        .s_awaddr(32'(lite_awaddr[13:0])), .s_awvalid(lite_awvalid && to == 0), .s_awready(lite_awready[0]),
        .s_wdata(lite_wdata), .s_wstrb(lite_wstrb), .s_wvalid(lite_wvalid && to == 0), .s_wready(lite_wready[0]),
        .s_bvalid(lite_bvalid[0]), .s_bresp(lite_bresp[0]), .s_bready(lite_bready),
        .s_araddr(32'(lite_araddr[13:0])), .s_arvalid(lite_arvalid && from == 0), .s_arready(lite_arready[0]),
        .s_rdata(lite_rdata[0]), .s_rresp(lite_rresp[0]), .s_rvalid(lite_rvalid[0]), .s_rready(lite_rready),
        .usr_irq_req(registers_irq), .usr_irq_ack('0)
    );

    // CDMA 0: masters 1 (data) and 2 (descriptors). CDMA 1: master 3.
    wire [63:0] sg_awaddr, sg_araddr;
    wire [31:0] sg_wdata, sg_rdata;
    wire [3:0] sg_wstrb;
    wire sg_awvalid, sg_awready, sg_wvalid, sg_wready, sg_arvalid, sg_arready;

    fpga_cdma #(.DATA_WIDTH(DATA_WIDTH), .INCLUDE_SG(1'b1), .INCLUDE_DRE(1'b1)) cdma_0 (
        .m_axi_aclk(clk), .s_axi_lite_aclk(clk), .s_axi_lite_aresetn(rst_n), .cdma_introut(introut[0]),
        .s_axi_lite_awaddr(lite_awaddr[5:0]), .s_axi_lite_awvalid(lite_awvalid && to == 1), .s_axi_lite_awready(lite_awready[1]),
        .s_axi_lite_wdata(lite_wdata), .s_axi_lite_wvalid(lite_wvalid && to == 1), .s_axi_lite_wready(lite_wready[1]),
        .s_axi_lite_bresp(lite_bresp[1]), .s_axi_lite_bvalid(lite_bvalid[1]), .s_axi_lite_bready(lite_bready),
        .s_axi_lite_araddr(lite_araddr[5:0]), .s_axi_lite_arvalid(lite_arvalid && from == 1), .s_axi_lite_arready(lite_arready[1]),
        .s_axi_lite_rdata(lite_rdata[1]), .s_axi_lite_rresp(lite_rresp[1]), .s_axi_lite_rvalid(lite_rvalid[1]), .s_axi_lite_rready(lite_rready),
        .m_axi_awaddr(awaddr[1]), .m_axi_awlen(awlen[1]), .m_axi_awsize(awsize[1]), .m_axi_awburst(awburst[1]),
        .m_axi_awvalid(awvalid[1]), .m_axi_awready(awready[1]),
        .m_axi_wdata(wdata[1]), .m_axi_wstrb(wstrb[1]), .m_axi_wlast(wlast[1]), .m_axi_wvalid(wvalid[1]), .m_axi_wready(wready[1]),
        .m_axi_bresp(bresp), .m_axi_bvalid(bvalid[1]), .m_axi_bready(bready[1]),
        .m_axi_araddr(araddr[1]), .m_axi_arlen(arlen[1]), .m_axi_arsize(arsize[1]), .m_axi_arburst(arburst[1]),
        .m_axi_arvalid(arvalid[1]), .m_axi_arready(arready[1]),
        .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid[1]), .m_axi_rready(rready[1]),
        .m_axi_sg_awaddr(sg_awaddr), .m_axi_sg_awlen(awlen[2]), .m_axi_sg_awsize(awsize[2]), .m_axi_sg_awburst(awburst[2]),
        .m_axi_sg_awvalid(sg_awvalid), .m_axi_sg_awready(sg_awready),
        .m_axi_sg_wdata(sg_wdata), .m_axi_sg_wstrb(sg_wstrb), .m_axi_sg_wlast(wlast[2]), .m_axi_sg_wvalid(sg_wvalid), .m_axi_sg_wready(sg_wready),
        .m_axi_sg_bresp(bresp), .m_axi_sg_bvalid(bvalid[2]), .m_axi_sg_bready(bready[2]),
        .m_axi_sg_araddr(sg_araddr), .m_axi_sg_arlen(arlen[2]), .m_axi_sg_arsize(arsize[2]), .m_axi_sg_arburst(arburst[2]),
        .m_axi_sg_arvalid(sg_arvalid), .m_axi_sg_arready(sg_arready),
        .m_axi_sg_rdata(sg_rdata), .m_axi_sg_rresp(rresp), .m_axi_sg_rlast(rlast), .m_axi_sg_rvalid(rvalid[2]), .m_axi_sg_rready(rready[2])
    );

    assign awaddr[2] = sg_awaddr;
    assign araddr[2] = sg_araddr;
    axi_widen #(.WIDTH(DATA_WIDTH)) widen (
        .clk, .rst_n,
        .s_awaddr(sg_awaddr), .s_awvalid(sg_awvalid), .s_awready(sg_awready),
        .s_wdata(sg_wdata), .s_wstrb(sg_wstrb), .s_wlast(wlast[2]), .s_wvalid(sg_wvalid), .s_wready(sg_wready),
        .s_araddr(sg_araddr), .s_arvalid(sg_arvalid), .s_arready(sg_arready), .s_rdata(sg_rdata), .s_rready(rready[2]),
        .m_awvalid(awvalid[2]), .m_awready(awready[2]), .m_wdata(wdata[2]), .m_wstrb(wstrb[2]), .m_wvalid(wvalid[2]), .m_wready(wready[2]),
        .m_arvalid(arvalid[2]), .m_arready(arready[2]), .m_rdata(rdata), .m_rlast(rlast), .m_rvalid(rvalid[2])
    );

    fpga_cdma #(.DATA_WIDTH(DATA_WIDTH), .INCLUDE_SG(1'b0), .INCLUDE_DRE(1'b0)) cdma_1 (
        .m_axi_aclk(clk), .s_axi_lite_aclk(clk), .s_axi_lite_aresetn(rst_n), .cdma_introut(introut[1]),
        .s_axi_lite_awaddr(lite_awaddr[5:0]), .s_axi_lite_awvalid(lite_awvalid && to == 2), .s_axi_lite_awready(lite_awready[2]),
        .s_axi_lite_wdata(lite_wdata), .s_axi_lite_wvalid(lite_wvalid && to == 2), .s_axi_lite_wready(lite_wready[2]),
        .s_axi_lite_bresp(lite_bresp[2]), .s_axi_lite_bvalid(lite_bvalid[2]), .s_axi_lite_bready(lite_bready),
        .s_axi_lite_araddr(lite_araddr[5:0]), .s_axi_lite_arvalid(lite_arvalid && from == 2), .s_axi_lite_arready(lite_arready[2]),
        .s_axi_lite_rdata(lite_rdata[2]), .s_axi_lite_rresp(lite_rresp[2]), .s_axi_lite_rvalid(lite_rvalid[2]), .s_axi_lite_rready(lite_rready),
        .m_axi_awaddr(awaddr[3]), .m_axi_awlen(awlen[3]), .m_axi_awsize(awsize[3]), .m_axi_awburst(awburst[3]),
        .m_axi_awvalid(awvalid[3]), .m_axi_awready(awready[3]),
        .m_axi_wdata(wdata[3]), .m_axi_wstrb(wstrb[3]), .m_axi_wlast(wlast[3]), .m_axi_wvalid(wvalid[3]), .m_axi_wready(wready[3]),
        .m_axi_bresp(bresp), .m_axi_bvalid(bvalid[3]), .m_axi_bready(bready[3]),
        .m_axi_araddr(araddr[3]), .m_axi_arlen(arlen[3]), .m_axi_arsize(arsize[3]), .m_axi_arburst(arburst[3]),
        .m_axi_arvalid(arvalid[3]), .m_axi_arready(arready[3]),
        .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid[3]), .m_axi_rready(rready[3]),
        .m_axi_sg_awready(1'b0), .m_axi_sg_wready(1'b0), .m_axi_sg_bresp('0), .m_axi_sg_bvalid(1'b0),
        .m_axi_sg_arready(1'b0), .m_axi_sg_rdata('0), .m_axi_sg_rresp('0), .m_axi_sg_rlast(1'b0), .m_axi_sg_rvalid(1'b0)
    );
    for (genvar master = 1; master < 4; master++) begin : g_id
        assign awid[master] = '0;
        assign arid[master] = '0;
    end

    wire [3:0] m_awid, m_arid;
    wire [63:0] m_awaddr, m_araddr;
    wire [7:0] m_awlen, m_arlen;
    wire [2:0] m_awsize, m_arsize;
    wire [1:0] m_awburst, m_arburst;
    wire [DATA_WIDTH-1:0] m_wdata;
    wire [DATA_WIDTH/8-1:0] m_wstrb;
    wire m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bvalid, m_bready, m_arvalid, m_arready, m_rvalid, m_rready;

    axi_crossbar #(.MASTERS(MASTERS), .DATA_WIDTH(DATA_WIDTH)) crossbar (
        .clk, .rst_n,
        .s_awid(awid), .s_awaddr(awaddr), .s_awlen(awlen), .s_awsize(awsize), .s_awburst(awburst), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arsize(arsize), .s_arburst(arburst), .s_arvalid(arvalid), .s_arready(arready),
        .s_rvalid(rvalid), .s_rready(rready),
        .m_awid, .m_awaddr, .m_awlen, .m_awsize, .m_awburst, .m_awvalid, .m_awready, .m_wdata, .m_wstrb, .m_wlast, .m_wvalid, .m_wready,
        .m_bvalid, .m_bready, .m_arid, .m_araddr, .m_arlen, .m_arsize, .m_arburst, .m_arvalid, .m_arready, .m_rlast(rlast), .m_rvalid, .m_rready
    );

    int pressure = 0;
    logic [31:0] random;
    initial if (!$value$plusargs("pressure=%d", pressure)) pressure = 0;
    always_ff @(posedge clk)
        if (!rst_n) random <= 32'(pressure) * 32'h9E37_79B9 ^ 32'h0BAD_CAFE;
        else if (pressure != 0) begin
            // xorshift32
            logic [31:0] next;
            next = random ^ random << 13;
            next = next ^ next >> 17;
            random <= next ^ next << 5;
        end
    wire [4:0] hold = pressure == 0 ? 5'b0 : {random[3], random[8], random[13] & random[14], random[18], random[23]};

    axi_ram #(.DATA_WIDTH(DATA_WIDTH), .SIZE(64'(RAM_SIZE)), .NARROW(1'b1)) ram (
        .clk, .rst_n, .hold,
        .s_awid(m_awid), .s_awaddr(m_awaddr), .s_awlen(m_awlen), .s_awburst(m_awburst), .s_awsize(m_awsize),
        .s_awvalid(m_awvalid), .s_awready(m_awready),
        .s_wdata(m_wdata), .s_wstrb(m_wstrb), .s_wlast(m_wlast), .s_wvalid(m_wvalid), .s_wready(m_wready),
        .s_bid(bid), .s_bresp(bresp), .s_bvalid(m_bvalid), .s_bready(m_bready),
        .s_arid(m_arid), .s_araddr(m_araddr), .s_arlen(m_arlen), .s_arburst(m_arburst), .s_arsize(m_arsize),
        .s_arvalid(m_arvalid), .s_arready(m_arready),
        .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp), .s_rlast(rlast), .s_rvalid(m_rvalid), .s_rready(m_rready)
    );

    // Behind the crossbar: the bursts of all masters. In front of it: the descriptor master with its own width.
    axi_checker #(.DATA_WIDTH(DATA_WIDTH), .NAME("ram")) ram_checker (
        .clk, .rst_n,
        .awid(m_awid), .awaddr(m_awaddr), .awlen(m_awlen), .awsize(m_awsize), .awburst(m_awburst), .awvalid(m_awvalid), .awready(m_awready),
        .wdata(m_wdata), .wstrb(m_wstrb), .wlast(m_wlast), .wvalid(m_wvalid), .wready(m_wready),
        .bid, .bresp, .bvalid(m_bvalid), .bready(m_bready),
        .arid(m_arid), .araddr(m_araddr), .arlen(m_arlen), .arsize(m_arsize), .arburst(m_arburst), .arvalid(m_arvalid), .arready(m_arready),
        .rid, .rdata, .rresp, .rlast, .rvalid(m_rvalid), .rready(m_rready)
    );
    for (genvar master = 0; master < MASTERS; master++) begin : g_checker
        if (master != 2) begin : g_wide
            axi_checker #(.DATA_WIDTH(DATA_WIDTH), .NAME("master")) checker_i (
                .clk, .rst_n,
                .awid(awid[master]), .awaddr(awaddr[master]), .awlen(awlen[master]), .awsize(awsize[master]), .awburst(awburst[master]),
                .awvalid(awvalid[master]), .awready(awready[master]),
                .wdata(wdata[master]), .wstrb(wstrb[master]), .wlast(wlast[master]), .wvalid(wvalid[master]), .wready(wready[master]),
                .bid, .bresp, .bvalid(bvalid[master]), .bready(bready[master]),
                .arid(arid[master]), .araddr(araddr[master]), .arlen(arlen[master]), .arsize(arsize[master]), .arburst(arburst[master]),
                .arvalid(arvalid[master]), .arready(arready[master]),
                .rid, .rdata, .rresp, .rlast, .rvalid(rvalid[master]), .rready(rready[master])
            );
        end
    end
    axi_checker #(.DATA_WIDTH(32), .NAME("m_axi_sg")) descriptor_checker (
        .clk, .rst_n,
        .awid(4'b0), .awaddr(sg_awaddr), .awlen(awlen[2]), .awsize(awsize[2]), .awburst(awburst[2]), .awvalid(sg_awvalid), .awready(sg_awready),
        .wdata(sg_wdata), .wstrb(sg_wstrb), .wlast(wlast[2]), .wvalid(sg_wvalid), .wready(sg_wready),
        .bid, .bresp, .bvalid(bvalid[2]), .bready(bready[2]),
        .arid(4'b0), .araddr(sg_araddr), .arlen(arlen[2]), .arsize(arsize[2]), .arburst(arburst[2]), .arvalid(sg_arvalid), .arready(sg_arready),
        .rid, .rdata(sg_rdata), .rresp, .rlast, .rvalid(rvalid[2]), .rready(rready[2])
    );
endmodule
