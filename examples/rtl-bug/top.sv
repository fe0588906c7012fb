// The XDMA IP, a RAM with a bug, and two checkers. +fixed: without the bug.

`timescale 1ps / 1ps

module top;
    wire clk, rst_n;
    wire [3:0] awid, bid, arid, rid;
    wire [63:0] awaddr, wdata, araddr, rdata;
    wire [7:0] awlen, wstrb, arlen;
    wire [2:0] awsize, arsize;
    wire [1:0] awburst, arburst, bresp, rresp;
    wire awvalid, awready, wvalid, wready, wlast, bvalid, bready, arvalid, arready, rvalid, rready, rlast;

    xdma_0 xdma_0_i (
        .sys_clk(1'b0), .sys_rst_n(1'b1), .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req(1'b0),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
        .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready),
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
        .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready)
    );

    bit fixed;
    initial fixed = $test$plusargs("fixed") != 0;

    wire write;
    wire [15:0] write_address;

    burst_ram memory (
        .clk, .rst_n, .fixed,
        .s_awid(awid), .s_awaddr(awaddr), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready),
        .s_bid(bid), .s_bresp(bresp), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arvalid(arvalid), .s_arready(arready),
        .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp), .s_rlast(rlast), .s_rvalid(rvalid), .s_rready(rready),
        .write, .write_address
    );

    // The rules of AXI, at the port.
    axi_checker #(.DATA_WIDTH(64)) protocol (
        .clk, .rst_n,
        .awid, .awaddr, .awlen, .awsize, .awburst, .awvalid, .awready, .wdata, .wstrb, .wlast, .wvalid, .wready,
        .bid, .bresp, .bvalid, .bready, .arid, .araddr, .arlen, .arsize, .arburst, .arvalid, .arready,
        .rid, .rdata, .rresp, .rlast, .rvalid, .rready
    );

    // The addresses, behind it.
    burst_checker addresses (.clk, .rst_n, .awaddr, .awvalid, .awready, .write, .write_address);
endmodule
