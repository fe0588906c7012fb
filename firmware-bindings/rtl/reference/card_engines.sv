// XDMA and CDMA of a card, with their masters as arrays for axi_crossbar.
//
// Masters: 0 memory port of the XDMA, 1 data of the CDMA, 2 descriptors of the CDMA, widened to DATA_WIDTH, 3 bypass BAR. The signals of a
// response without array are those of the slave; bvalid and rvalid name its master. lite_* is the register port of the XDMA towards the
// design, one access at a time, whose address stays. Accesses with to_cdma (writes) and from_cdma (reads), which the design derives from
// the addresses, are the CDMA's, and the design does not see them.

`timescale 1ps / 1ps

module card_engines #(
    parameter int DATA_WIDTH = 256,
    parameter int CHANNELS = 4,
    parameter int USER_INTERRUPTS = 16
) (
    output wire                       clk,
    output wire                       rst_n,
    input  wire [USER_INTERRUPTS-1:0] usr_irq_req,
    // Interrupt of the CDMA.
    output wire                       introut,

    input  wire                       to_cdma,
    input  wire                       from_cdma,
    output wire [31:0]                lite_awaddr,
    output wire                       lite_awvalid,
    input  wire                       lite_awready,
    output wire [31:0]                lite_wdata,
    output wire [3:0]                 lite_wstrb,
    output wire                       lite_wvalid,
    input  wire                       lite_wready,
    input  wire [1:0]                 lite_bresp,
    input  wire                       lite_bvalid,
    output wire                       lite_bready,
    output wire [31:0]                lite_araddr,
    output wire                       lite_arvalid,
    input  wire                       lite_arready,
    input  wire [31:0]                lite_rdata,
    input  wire [1:0]                 lite_rresp,
    input  wire                       lite_rvalid,
    output wire                       lite_rready,

    output wire [3:0]                 awid[4],
    output wire [63:0]                awaddr[4],
    output wire [7:0]                 awlen[4],
    output wire [2:0]                 awsize[4],
    output wire [1:0]                 awburst[4],
    output wire [3:0]                 awvalid,
    input  wire [3:0]                 awready,
    output wire [DATA_WIDTH-1:0]      wdata[4],
    output wire [DATA_WIDTH/8-1:0]    wstrb[4],
    output wire [3:0]                 wlast,
    output wire [3:0]                 wvalid,
    input  wire [3:0]                 wready,
    input  wire [3:0]                 bid,
    input  wire [1:0]                 bresp,
    input  wire [3:0]                 bvalid,
    output wire [3:0]                 bready,
    output wire [3:0]                 arid[4],
    output wire [63:0]                araddr[4],
    output wire [7:0]                 arlen[4],
    output wire [2:0]                 arsize[4],
    output wire [1:0]                 arburst[4],
    output wire [3:0]                 arvalid,
    input  wire [3:0]                 arready,
    input  wire [3:0]                 rid,
    input  wire [DATA_WIDTH-1:0]      rdata,
    input  wire [1:0]                 rresp,
    input  wire                       rlast,
    input  wire [3:0]                 rvalid,
    output wire [3:0]                 rready
);
    wire x_awvalid, x_wvalid, x_bready, x_arvalid, x_rready;
    assign lite_awvalid = x_awvalid && !to_cdma;
    assign lite_wvalid = x_wvalid && !to_cdma;
    assign lite_bready = x_bready && !to_cdma;
    assign lite_arvalid = x_arvalid && !from_cdma;
    assign lite_rready = x_rready && !from_cdma;

    wire c_awready, c_wready, c_bvalid, c_arready, c_rvalid;
    wire [1:0] c_bresp, c_rresp;
    wire [31:0] c_rdata;

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .CHANNELS(CHANNELS), .USER_INTERRUPTS(USER_INTERRUPTS), .BYPASS_BAR(1'b1)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req(usr_irq_req),
        .m_axi_awid(awid[0]), .m_axi_awaddr(awaddr[0]), .m_axi_awlen(awlen[0]), .m_axi_awsize(awsize[0]),
        .m_axi_awburst(awburst[0]), .m_axi_awvalid(awvalid[0]), .m_axi_awready(awready[0]),
        .m_axi_wdata(wdata[0]), .m_axi_wstrb(wstrb[0]), .m_axi_wlast(wlast[0]), .m_axi_wvalid(wvalid[0]), .m_axi_wready(wready[0]),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid[0]), .m_axi_bready(bready[0]),
        .m_axi_arid(arid[0]), .m_axi_araddr(araddr[0]), .m_axi_arlen(arlen[0]), .m_axi_arsize(arsize[0]),
        .m_axi_arburst(arburst[0]), .m_axi_arvalid(arvalid[0]), .m_axi_arready(arready[0]),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid[0]), .m_axi_rready(rready[0]),
        .m_axil_awaddr(lite_awaddr), .m_axil_awvalid(x_awvalid), .m_axil_awready(to_cdma ? c_awready : lite_awready),
        .m_axil_wdata(lite_wdata), .m_axil_wstrb(lite_wstrb), .m_axil_wvalid(x_wvalid), .m_axil_wready(to_cdma ? c_wready : lite_wready),
        .m_axil_bvalid(to_cdma ? c_bvalid : lite_bvalid), .m_axil_bresp(to_cdma ? c_bresp : lite_bresp), .m_axil_bready(x_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arvalid(x_arvalid), .m_axil_arready(from_cdma ? c_arready : lite_arready),
        .m_axil_rdata(from_cdma ? c_rdata : lite_rdata), .m_axil_rresp(from_cdma ? c_rresp : lite_rresp),
        .m_axil_rvalid(from_cdma ? c_rvalid : lite_rvalid), .m_axil_rready(x_rready),
        .m_axib_awid(awid[3]), .m_axib_awaddr(awaddr[3]), .m_axib_awlen(awlen[3]), .m_axib_awsize(awsize[3]),
        .m_axib_awburst(awburst[3]), .m_axib_awvalid(awvalid[3]), .m_axib_awready(awready[3]),
        .m_axib_wdata(wdata[3]), .m_axib_wstrb(wstrb[3]), .m_axib_wlast(wlast[3]), .m_axib_wvalid(wvalid[3]), .m_axib_wready(wready[3]),
        .m_axib_bid(bid), .m_axib_bresp(bresp), .m_axib_bvalid(bvalid[3]), .m_axib_bready(bready[3]),
        .m_axib_arid(arid[3]), .m_axib_araddr(araddr[3]), .m_axib_arlen(arlen[3]), .m_axib_arsize(arsize[3]),
        .m_axib_arburst(arburst[3]), .m_axib_arvalid(arvalid[3]), .m_axib_arready(arready[3]),
        .m_axib_rid(rid), .m_axib_rdata(rdata), .m_axib_rresp(rresp), .m_axib_rlast(rlast), .m_axib_rvalid(rvalid[3]), .m_axib_rready(rready[3]),
        .m_axis_h2c_tready_0(1'b0), .s_axis_c2h_tdata_0('0), .s_axis_c2h_tkeep_0('0), .s_axis_c2h_tlast_0(1'b0),
        .s_axis_c2h_tvalid_0(1'b0),
        .m_axis_h2c_tready_1(1'b0), .s_axis_c2h_tdata_1('0), .s_axis_c2h_tkeep_1('0), .s_axis_c2h_tlast_1(1'b0),
        .s_axis_c2h_tvalid_1(1'b0),
        .m_axis_h2c_tready_2(1'b0), .s_axis_c2h_tdata_2('0), .s_axis_c2h_tkeep_2('0), .s_axis_c2h_tlast_2(1'b0),
        .s_axis_c2h_tvalid_2(1'b0),
        .m_axis_h2c_tready_3(1'b0), .s_axis_c2h_tdata_3('0), .s_axis_c2h_tkeep_3('0), .s_axis_c2h_tlast_3(1'b0),
        .s_axis_c2h_tvalid_3(1'b0)
    );

    wire [63:0] sg_awaddr, sg_araddr;
    wire [31:0] sg_wdata, sg_rdata;
    wire [3:0] sg_wstrb;
    wire sg_awvalid, sg_awready, sg_wvalid, sg_wready, sg_arvalid, sg_arready;

    fpga_cdma #(.DATA_WIDTH(DATA_WIDTH), .INCLUDE_SG(1'b1), .INCLUDE_DRE(1'b1)) cdma (
        .m_axi_aclk(clk), .s_axi_lite_aclk(clk), .s_axi_lite_aresetn(rst_n), .cdma_introut(introut),
        .s_axi_lite_awaddr(lite_awaddr[5:0]), .s_axi_lite_awvalid(x_awvalid && to_cdma), .s_axi_lite_awready(c_awready),
        .s_axi_lite_wdata(lite_wdata), .s_axi_lite_wvalid(x_wvalid && to_cdma), .s_axi_lite_wready(c_wready),
        .s_axi_lite_bresp(c_bresp), .s_axi_lite_bvalid(c_bvalid), .s_axi_lite_bready(x_bready),
        .s_axi_lite_araddr(lite_araddr[5:0]), .s_axi_lite_arvalid(x_arvalid && from_cdma), .s_axi_lite_arready(c_arready),
        .s_axi_lite_rdata(c_rdata), .s_axi_lite_rresp(c_rresp), .s_axi_lite_rvalid(c_rvalid), .s_axi_lite_rready(x_rready),
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
    for (genvar master = 1; master < 3; master++) begin : g_id
        assign awid[master] = '0;
        assign arid[master] = '0;
    end

    // The descriptor master with its own width.
    axi_checker #(.DATA_WIDTH(32), .NAME("m_axi_sg")) descriptor_checker (
        .clk, .rst_n,
        .awid(4'b0), .awaddr(sg_awaddr), .awlen(awlen[2]), .awsize(awsize[2]), .awburst(awburst[2]), .awvalid(sg_awvalid), .awready(sg_awready),
        .wdata(sg_wdata), .wstrb(sg_wstrb), .wlast(wlast[2]), .wvalid(sg_wvalid), .wready(sg_wready),
        .bid, .bresp, .bvalid(bvalid[2]), .bready(bready[2]),
        .arid(4'b0), .araddr(sg_araddr), .arlen(arlen[2]), .arsize(arsize[2]), .arburst(arburst[2]), .arvalid(sg_arvalid), .arready(sg_arready),
        .rid, .rdata(sg_rdata), .rresp, .rlast, .rvalid(rvalid[2]), .rready(rready[2])
    );
endmodule
