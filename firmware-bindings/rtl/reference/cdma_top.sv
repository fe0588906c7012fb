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

    // Slaves: 0 registers, 2 CDMA 1. One access at a time, whose address stays.
    wire [31:0] lite_awaddr, lite_wdata, lite_araddr;
    wire [3:0] lite_wstrb;
    wire lite_awvalid, lite_wvalid, lite_bready, lite_arvalid, lite_rready;
    wire [2:0] lite_awready, lite_wready, lite_bvalid, lite_arready, lite_rvalid;
    wire [1:0] lite_bresp[3], lite_rresp[3];
    wire [31:0] lite_rdata[3];
    wire [1:0] to = lite_awaddr[15:14];
    wire [1:0] from = lite_araddr[15:14];

    // Masters 0 to 3: memory, data and descriptors of CDMA 0, bypass BAR. Master 4: CDMA 1.
    card_engines #(.DATA_WIDTH(DATA_WIDTH), .CHANNELS(CHANNELS), .USER_INTERRUPTS(4)) engines (
        .clk, .rst_n, .usr_irq_req({registers_irq, introut}), .introut(introut[0]),
        .to_cdma(to == 1), .from_cdma(from == 1),
        .lite_awaddr, .lite_awvalid, .lite_awready(lite_awready[to]), .lite_wdata, .lite_wstrb, .lite_wvalid, .lite_wready(lite_wready[to]),
        .lite_bresp(lite_bresp[to]), .lite_bvalid(lite_bvalid[to]), .lite_bready, .lite_araddr, .lite_arvalid,
        .lite_arready(lite_arready[from]), .lite_rdata(lite_rdata[from]), .lite_rresp(lite_rresp[from]), .lite_rvalid(lite_rvalid[from]),
        .lite_rready, .awid(awid[0:3]), .awaddr(awaddr[0:3]), .awlen(awlen[0:3]), .awsize(awsize[0:3]), .awburst(awburst[0:3]),
        .awvalid(awvalid[3:0]), .awready(awready[3:0]), .wdata(wdata[0:3]), .wstrb(wstrb[0:3]), .wlast(wlast[3:0]), .wvalid(wvalid[3:0]),
        .wready(wready[3:0]), .bid, .bresp, .bvalid(bvalid[3:0]), .bready(bready[3:0]), .arid(arid[0:3]), .araddr(araddr[0:3]),
        .arlen(arlen[0:3]), .arsize(arsize[0:3]), .arburst(arburst[0:3]), .arvalid(arvalid[3:0]), .arready(arready[3:0]), .rid, .rdata,
        .rresp, .rlast, .rvalid(rvalid[3:0]), .rready(rready[3:0])
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

    fpga_cdma #(.DATA_WIDTH(DATA_WIDTH), .INCLUDE_SG(1'b0), .INCLUDE_DRE(1'b0)) cdma_1 (
        .m_axi_aclk(clk), .s_axi_lite_aclk(clk), .s_axi_lite_aresetn(rst_n), .cdma_introut(introut[1]),
        .s_axi_lite_awaddr(lite_awaddr[5:0]), .s_axi_lite_awvalid(lite_awvalid && to == 2), .s_axi_lite_awready(lite_awready[2]),
        .s_axi_lite_wdata(lite_wdata), .s_axi_lite_wvalid(lite_wvalid && to == 2), .s_axi_lite_wready(lite_wready[2]),
        .s_axi_lite_bresp(lite_bresp[2]), .s_axi_lite_bvalid(lite_bvalid[2]), .s_axi_lite_bready(lite_bready),
        .s_axi_lite_araddr(lite_araddr[5:0]), .s_axi_lite_arvalid(lite_arvalid && from == 2), .s_axi_lite_arready(lite_arready[2]),
        .s_axi_lite_rdata(lite_rdata[2]), .s_axi_lite_rresp(lite_rresp[2]), .s_axi_lite_rvalid(lite_rvalid[2]), .s_axi_lite_rready(lite_rready),
        .m_axi_awaddr(awaddr[4]), .m_axi_awlen(awlen[4]), .m_axi_awsize(awsize[4]), .m_axi_awburst(awburst[4]),
        .m_axi_awvalid(awvalid[4]), .m_axi_awready(awready[4]),
        .m_axi_wdata(wdata[4]), .m_axi_wstrb(wstrb[4]), .m_axi_wlast(wlast[4]), .m_axi_wvalid(wvalid[4]), .m_axi_wready(wready[4]),
        .m_axi_bresp(bresp), .m_axi_bvalid(bvalid[4]), .m_axi_bready(bready[4]),
        .m_axi_araddr(araddr[4]), .m_axi_arlen(arlen[4]), .m_axi_arsize(arsize[4]), .m_axi_arburst(arburst[4]),
        .m_axi_arvalid(arvalid[4]), .m_axi_arready(arready[4]),
        .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid[4]), .m_axi_rready(rready[4]),
        .m_axi_sg_awready(1'b0), .m_axi_sg_wready(1'b0), .m_axi_sg_bresp('0), .m_axi_sg_bvalid(1'b0),
        .m_axi_sg_arready(1'b0), .m_axi_sg_rdata('0), .m_axi_sg_rresp('0), .m_axi_sg_rlast(1'b0), .m_axi_sg_rvalid(1'b0)
    );
    assign awid[4] = '0;
    assign arid[4] = '0;

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

    // Behind the crossbar: the bursts of all masters. card_engines checks the descriptor master, which has a width of its own.
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
endmodule
