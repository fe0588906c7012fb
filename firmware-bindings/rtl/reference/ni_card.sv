// A card with network interface: XDMA, CDMA, card memory and fpga_ni, as the contract expects them. Its network ports are those of this
// module, in the clock domain of `clk`.
//
// User BAR: CDMA at 0x1000, all other blocks in fpga_ni. Card memory from address 0; transmit windows at WINDOW_BASE. The masters of XDMA
// (memory and bypass BAR) and CDMA reach both, the NI reaches card memory only. usr_irq_req: the lines that EVENT_INTERRUPT selects, and
// line 0 for the CDMA.

`timescale 1ps / 1ps

module ni_card #(
    parameter int DATA_WIDTH = 256,
    parameter int RAM_SIZE = 33554432,
    parameter int NODE_ID = 1,
    parameter int CHANNELS = 4,
    parameter int PACKET_LOG2 = 9,
    parameter int MASK_BITS = 32
) (
    output wire                    clk,
    output wire                    rst_n,
    input  wire [DATA_WIDTH-1:0]   s_axis_tdata,
    input  wire [DATA_WIDTH/8-1:0] s_axis_tkeep,
    input  wire                    s_axis_tlast,
    input  wire                    s_axis_tvalid,
    output wire                    s_axis_tready,
    output wire [DATA_WIDTH-1:0]   m_axis_tdata,
    output wire [DATA_WIDTH/8-1:0] m_axis_tkeep,
    output wire                    m_axis_tlast,
    output wire                    m_axis_tvalid,
    input  wire                    m_axis_tready
);
    localparam logic [63:0] WINDOW_BASE = 64'h10_0000_0000;
    localparam int CLOCK_NS = 4;
    // Behind the first crossbar: XDMA, CDMA data, CDMA descriptors, bypass BAR. Behind the second one: those, and the NI.
    localparam int MASTERS = 4;

    wire introut;
    wire [15:0] ni_irq;

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

    // Registers of the NI: those that are not the CDMA's.
    wire [31:0] lite_awaddr, lite_wdata, lite_araddr, lite_rdata;
    wire [3:0] lite_wstrb;
    wire [1:0] lite_bresp, lite_rresp;
    wire lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid, lite_bready;
    wire lite_arvalid, lite_arready, lite_rvalid, lite_rready;

    card_engines #(.DATA_WIDTH(DATA_WIDTH), .CHANNELS(CHANNELS), .USER_INTERRUPTS(16)) engines (
        .clk, .rst_n, .usr_irq_req(ni_irq | {15'b0, introut}), .introut,
        .to_cdma(lite_awaddr[15:12] == ni_pkg::BLOCK_OFFSET_CDMA[15:12]), .from_cdma(lite_araddr[15:12] == ni_pkg::BLOCK_OFFSET_CDMA[15:12]),
        .lite_awaddr, .lite_awvalid, .lite_awready, .lite_wdata, .lite_wstrb, .lite_wvalid, .lite_wready, .lite_bresp, .lite_bvalid,
        .lite_bready, .lite_araddr, .lite_arvalid, .lite_arready, .lite_rdata, .lite_rresp, .lite_rvalid, .lite_rready,
        .awid, .awaddr, .awlen, .awsize, .awburst, .awvalid, .awready, .wdata, .wstrb, .wlast, .wvalid, .wready, .bid, .bresp, .bvalid,
        .bready, .arid, .araddr, .arlen, .arsize, .arburst, .arvalid, .arready, .rid, .rdata, .rresp, .rlast, .rvalid, .rready
    );

    // Host side: XDMA and CDMA.
    wire [3:0] h_awid, h_arid;
    wire [63:0] h_awaddr, h_araddr;
    wire [7:0] h_awlen, h_arlen;
    wire [2:0] h_awsize, h_arsize;
    wire [1:0] h_awburst, h_arburst;
    wire [DATA_WIDTH-1:0] h_wdata;
    wire [DATA_WIDTH/8-1:0] h_wstrb;
    wire h_awvalid, h_awready, h_wlast, h_wvalid, h_wready, h_bvalid, h_bready, h_arvalid, h_arready, h_rvalid, h_rready;

    axi_crossbar #(.MASTERS(MASTERS), .DATA_WIDTH(DATA_WIDTH)) host_crossbar (
        .clk, .rst_n,
        .s_awid(awid), .s_awaddr(awaddr), .s_awlen(awlen), .s_awsize(awsize), .s_awburst(awburst), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arsize(arsize), .s_arburst(arburst), .s_arvalid(arvalid), .s_arready(arready),
        .s_rvalid(rvalid), .s_rready(rready),
        .m_awid(h_awid), .m_awaddr(h_awaddr), .m_awlen(h_awlen), .m_awsize(h_awsize), .m_awburst(h_awburst), .m_awvalid(h_awvalid),
        .m_awready(h_awready), .m_wdata(h_wdata), .m_wstrb(h_wstrb), .m_wlast(h_wlast), .m_wvalid(h_wvalid), .m_wready(h_wready),
        .m_bvalid(h_bvalid), .m_bready(h_bready), .m_arid(h_arid), .m_araddr(h_araddr), .m_arlen(h_arlen), .m_arsize(h_arsize),
        .m_arburst(h_arburst), .m_arvalid(h_arvalid), .m_arready(h_arready), .m_rlast(rlast), .m_rvalid(h_rvalid), .m_rready(h_rready)
    );

    // Slave 0: card memory, behind the second crossbar. Slave 1: transmit windows.
    wire writes_to, reads_from;
    wire [1:0] d_awvalid, d_awready, d_wvalid, d_wready, d_bvalid, d_bready, d_arvalid, d_arready, d_rvalid, d_rready;
    axi_split #(.BASE(WINDOW_BASE)) split (
        .clk, .rst_n, .awaddr(h_awaddr), .awvalid(h_awvalid), .awready(h_awready), .wvalid(h_wvalid), .wready(h_wready),
        .bvalid(h_bvalid), .bready(h_bready), .araddr(h_araddr), .arvalid(h_arvalid), .arready(h_arready), .rvalid(h_rvalid),
        .rready(h_rready), .writes_to, .reads_from, .m_awvalid(d_awvalid), .m_awready(d_awready), .m_wvalid(d_wvalid),
        .m_wready(d_wready), .m_bvalid(d_bvalid), .m_bready(d_bready), .m_arvalid(d_arvalid), .m_arready(d_arready), .m_rvalid(d_rvalid),
        .m_rready(d_rready)
    );
    wire [3:0] memory_bid, memory_rid, window_bid, window_rid;
    wire [1:0] memory_bresp, memory_rresp, window_bresp, window_rresp;
    wire [DATA_WIDTH-1:0] memory_rdata, window_rdata;
    wire memory_rlast, window_rlast;
    assign bid = writes_to ? window_bid : memory_bid;
    assign bresp = writes_to ? window_bresp : memory_bresp;
    assign rid = reads_from ? window_rid : memory_rid;
    assign rresp = reads_from ? window_rresp : memory_rresp;
    assign rdata = reads_from ? window_rdata : memory_rdata;
    assign rlast = reads_from ? window_rlast : memory_rlast;

    wire [63:0] ni_awaddr;
    wire [7:0] ni_awlen;
    wire [2:0] ni_awsize;
    wire [1:0] ni_awburst;
    wire [DATA_WIDTH-1:0] ni_wdata;
    wire [DATA_WIDTH/8-1:0] ni_wstrb;
    wire ni_awvalid, ni_awready, ni_wlast, ni_wvalid, ni_wready, ni_bvalid, ni_bready;
    /* verilator lint_off UNUSEDSIGNAL */
    wire ni_arready, ni_rvalid;
    /* verilator lint_on UNUSEDSIGNAL */

    fpga_ni #(
        .BUS(DATA_WIDTH), .CLOCK_NS(CLOCK_NS), .NODE_ID(NODE_ID), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS),
        .WINDOW_BASE(WINDOW_BASE), .MEMORY_BASE(64'h0), .MEMORY_SIZE(64'(RAM_SIZE))
    ) ni (
        .clk, .rst_n,
        .s_axil_awaddr(lite_awaddr[15:0]), .s_axil_awvalid(lite_awvalid), .s_axil_awready(lite_awready),
        .s_axil_wdata(lite_wdata), .s_axil_wstrb(lite_wstrb), .s_axil_wvalid(lite_wvalid), .s_axil_wready(lite_wready),
        .s_axil_bresp(lite_bresp), .s_axil_bvalid(lite_bvalid), .s_axil_bready(lite_bready),
        .s_axil_araddr(lite_araddr[15:0]), .s_axil_arvalid(lite_arvalid), .s_axil_arready(lite_arready),
        .s_axil_rdata(lite_rdata), .s_axil_rresp(lite_rresp), .s_axil_rvalid(lite_rvalid), .s_axil_rready(lite_rready),
        .s_axi_awid(h_awid), .s_axi_awaddr(h_awaddr), .s_axi_awlen(h_awlen), .s_axi_awsize(h_awsize), .s_axi_awburst(h_awburst),
        .s_axi_awvalid(d_awvalid[1]), .s_axi_awready(d_awready[1]), .s_axi_wdata(h_wdata), .s_axi_wstrb(h_wstrb), .s_axi_wlast(h_wlast),
        .s_axi_wvalid(d_wvalid[1]), .s_axi_wready(d_wready[1]), .s_axi_bid(window_bid), .s_axi_bresp(window_bresp),
        .s_axi_bvalid(d_bvalid[1]), .s_axi_bready(d_bready[1]), .s_axi_arid(h_arid), .s_axi_araddr(h_araddr), .s_axi_arlen(h_arlen),
        .s_axi_arsize(h_arsize), .s_axi_arburst(h_arburst), .s_axi_arvalid(d_arvalid[1]), .s_axi_arready(d_arready[1]),
        .s_axi_rid(window_rid), .s_axi_rdata(window_rdata), .s_axi_rresp(window_rresp), .s_axi_rlast(window_rlast),
        .s_axi_rvalid(d_rvalid[1]), .s_axi_rready(d_rready[1]),
        .m_axi_awaddr(ni_awaddr), .m_axi_awlen(ni_awlen), .m_axi_awsize(ni_awsize), .m_axi_awburst(ni_awburst), .m_axi_awvalid(ni_awvalid),
        .m_axi_awready(ni_awready), .m_axi_wdata(ni_wdata), .m_axi_wstrb(ni_wstrb), .m_axi_wlast(ni_wlast), .m_axi_wvalid(ni_wvalid),
        .m_axi_wready(ni_wready), .m_axi_bresp(memory_bresp), .m_axi_bvalid(ni_bvalid), .m_axi_bready(ni_bready),
        .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tvalid, .s_axis_tready, .m_axis_tdata, .m_axis_tkeep, .m_axis_tlast,
        .m_axis_tvalid, .m_axis_tready, .usr_irq_req(ni_irq)
    );

    wire [3:0] m_awid, m_arid;
    wire [63:0] m_awaddr, m_araddr;
    wire [7:0] m_awlen, m_arlen;
    wire [2:0] m_awsize, m_arsize;
    wire [1:0] m_awburst, m_arburst;
    wire [DATA_WIDTH-1:0] m_wdata;
    wire [DATA_WIDTH/8-1:0] m_wstrb;
    wire m_awvalid, m_awready, m_wlast, m_wvalid, m_wready, m_bvalid, m_bready, m_arvalid, m_arready, m_rvalid, m_rready;

    axi_crossbar #(.MASTERS(2), .DATA_WIDTH(DATA_WIDTH)) memory_crossbar (
        .clk, .rst_n,
        .s_awid('{h_awid, 4'b0}), .s_awaddr('{h_awaddr, ni_awaddr}), .s_awlen('{h_awlen, ni_awlen}), .s_awsize('{h_awsize, ni_awsize}),
        .s_awburst('{h_awburst, ni_awburst}), .s_awvalid({ni_awvalid, d_awvalid[0]}), .s_awready({ni_awready, d_awready[0]}),
        .s_wdata('{h_wdata, ni_wdata}), .s_wstrb('{h_wstrb, ni_wstrb}), .s_wlast({ni_wlast, h_wlast}),
        .s_wvalid({ni_wvalid, d_wvalid[0]}), .s_wready({ni_wready, d_wready[0]}), .s_bvalid({ni_bvalid, d_bvalid[0]}),
        .s_bready({ni_bready, d_bready[0]}),
        .s_arid('{h_arid, 4'b0}), .s_araddr('{h_araddr, 64'b0}), .s_arlen('{h_arlen, 8'b0}), .s_arsize('{h_arsize, 3'b0}),
        .s_arburst('{h_arburst, 2'b0}), .s_arvalid({1'b0, d_arvalid[0]}), .s_arready({ni_arready, d_arready[0]}),
        .s_rvalid({ni_rvalid, d_rvalid[0]}), .s_rready({1'b0, d_rready[0]}),
        .m_awid, .m_awaddr, .m_awlen, .m_awsize, .m_awburst, .m_awvalid, .m_awready, .m_wdata, .m_wstrb, .m_wlast, .m_wvalid, .m_wready,
        .m_bvalid, .m_bready, .m_arid, .m_araddr, .m_arlen, .m_arsize, .m_arburst, .m_arvalid, .m_arready, .m_rlast(memory_rlast),
        .m_rvalid, .m_rready
    );

    axi_ram #(.DATA_WIDTH(DATA_WIDTH), .SIZE(64'(RAM_SIZE)), .NARROW(1'b1)) ram (
        .clk, .rst_n, .hold(5'b0),
        .s_awid(m_awid), .s_awaddr(m_awaddr), .s_awlen(m_awlen), .s_awburst(m_awburst), .s_awsize(m_awsize),
        .s_awvalid(m_awvalid), .s_awready(m_awready),
        .s_wdata(m_wdata), .s_wstrb(m_wstrb), .s_wlast(m_wlast), .s_wvalid(m_wvalid), .s_wready(m_wready),
        .s_bid(memory_bid), .s_bresp(memory_bresp), .s_bvalid(m_bvalid), .s_bready(m_bready),
        .s_arid(m_arid), .s_araddr(m_araddr), .s_arlen(m_arlen), .s_arburst(m_arburst), .s_arsize(m_arsize),
        .s_arvalid(m_arvalid), .s_arready(m_arready),
        .s_rid(memory_rid), .s_rdata(memory_rdata), .s_rresp(memory_rresp), .s_rlast(memory_rlast), .s_rvalid(m_rvalid), .s_rready(m_rready)
    );

    axi_checker #(.DATA_WIDTH(DATA_WIDTH), .NAME("ni")) ni_checker (
        .clk, .rst_n,
        .awid(4'b0), .awaddr(ni_awaddr), .awlen(ni_awlen), .awsize(ni_awsize), .awburst(ni_awburst), .awvalid(ni_awvalid), .awready(ni_awready),
        .wdata(ni_wdata), .wstrb(ni_wstrb), .wlast(ni_wlast), .wvalid(ni_wvalid), .wready(ni_wready),
        .bid(4'b0), .bresp(memory_bresp), .bvalid(ni_bvalid), .bready(ni_bready),
        .arid(4'b0), .araddr(64'b0), .arlen(8'b0), .arsize(3'b0), .arburst(2'b0), .arvalid(1'b0), .arready(1'b0),
        .rid(4'b0), .rdata('0), .rresp(2'b0), .rlast(1'b0), .rvalid(1'b0), .rready(1'b0)
    );
    stream_checker #(.DATA_WIDTH(DATA_WIDTH), .NAME("network")) network_checker (
        .clk, .rst_n, .tdata(m_axis_tdata), .tkeep(m_axis_tkeep), .tlast(m_axis_tlast), .tvalid(m_axis_tvalid), .tready(m_axis_tready)
    );
endmodule
