// The XDMA IP, memory at its AXI master, and the scaler with registers and an interrupt.

`timescale 1ps / 1ps

module top;
    wire clk, rst_n;

    wire [3:0] awid, bid, arid, rid;
    wire [63:0] awaddr, wdata, araddr, rdata;
    wire [7:0] wstrb, arlen;
    wire [1:0] bresp, rresp;
    wire awvalid, awready, wvalid, wready, wlast, bvalid, bready, arvalid, arready, rvalid, rready, rlast;

    wire [31:0] lite_awaddr, lite_wdata, lite_araddr, lite_rdata;
    wire [3:0] lite_wstrb;
    wire [1:0] lite_bresp, lite_rresp;
    wire lite_awvalid, lite_awready, lite_wvalid, lite_wready, lite_bvalid, lite_bready;
    wire lite_arvalid, lite_arready, lite_rvalid, lite_rready;

    wire interrupt;

    xdma_0 xdma_0_i (
        .sys_clk(1'b0), .sys_rst_n(1'b1), .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req({3'b000, interrupt}),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready),
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
        .m_axil_awaddr(lite_awaddr), .m_axil_awvalid(lite_awvalid), .m_axil_awready(lite_awready),
        .m_axil_wdata(lite_wdata), .m_axil_wstrb(lite_wstrb), .m_axil_wvalid(lite_wvalid), .m_axil_wready(lite_wready),
        .m_axil_bresp(lite_bresp), .m_axil_bvalid(lite_bvalid), .m_axil_bready(lite_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arvalid(lite_arvalid), .m_axil_arready(lite_arready),
        .m_axil_rdata(lite_rdata), .m_axil_rresp(lite_rresp), .m_axil_rvalid(lite_rvalid), .m_axil_rready(lite_rready)
    );

    wire start, busy, done, write;
    wire [31:0] source, destination, length, factor;
    wire [15:0] address;
    wire [63:0] write_data, read_data;

    axi_bram memory (
        .clk, .rst_n,
        .s_awid(awid), .s_awaddr(awaddr), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready),
        .s_bid(bid), .s_bresp(bresp), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arvalid(arvalid), .s_arready(arready),
        .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp), .s_rlast(rlast), .s_rvalid(rvalid), .s_rready(rready),
        .address, .write, .write_data, .read_data
    );

    scaler_registers registers (
        .clk, .rst_n,
        .s_axil_awaddr(lite_awaddr), .s_axil_awvalid(lite_awvalid), .s_axil_awready(lite_awready),
        .s_axil_wdata(lite_wdata), .s_axil_wstrb(lite_wstrb), .s_axil_wvalid(lite_wvalid), .s_axil_wready(lite_wready),
        .s_axil_bresp(lite_bresp), .s_axil_bvalid(lite_bvalid), .s_axil_bready(lite_bready),
        .s_axil_araddr(lite_araddr), .s_axil_arvalid(lite_arvalid), .s_axil_arready(lite_arready),
        .s_axil_rdata(lite_rdata), .s_axil_rresp(lite_rresp), .s_axil_rvalid(lite_rvalid), .s_axil_rready(lite_rready),
        .scaler_control_start(start),
        .scaler_status_busy(busy),
        .scaler_status_done_set(done),
        // The request stays until the host clears the bit.
        .scaler_status_done(interrupt),
        .scaler_source(source),
        .scaler_destination(destination),
        .scaler_length(length),
        .scaler_factor(factor)
    );

    scaler scaler_i (
        .clk, .rst_n, .start, .source, .destination, .length, .factor, .busy, .done, .address, .write, .write_data, .read_data
    );
endmodule
