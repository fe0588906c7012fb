// The XDMA IP, its AXI-Lite registers, and the counter behind them. The design has no memory: m_axi is not connected.

`timescale 1ps / 1ps

module top;
    wire clk, rst_n;
    wire [31:0] awaddr, wdata, araddr, rdata;
    wire [3:0] wstrb;
    wire [1:0] bresp, rresp;
    wire awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;

    xdma_0 xdma_0_i (
        .sys_clk(1'b0), .sys_rst_n(1'b1), .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req('0),
        .m_axil_awaddr(awaddr), .m_axil_awvalid(awvalid), .m_axil_awready(awready),
        .m_axil_wdata(wdata), .m_axil_wstrb(wstrb), .m_axil_wvalid(wvalid), .m_axil_wready(wready),
        .m_axil_bresp(bresp), .m_axil_bvalid(bvalid), .m_axil_bready(bready),
        .m_axil_araddr(araddr), .m_axil_arvalid(arvalid), .m_axil_arready(arready),
        .m_axil_rdata(rdata), .m_axil_rresp(rresp), .m_axil_rvalid(rvalid), .m_axil_rready(rready)
    );

    wire enable, clear, wrapped;
    wire [1:0] direction;
    wire [31:0] limit, value;

    counter_registers registers (
        .clk, .rst_n,
        .s_axil_awaddr(awaddr), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
        .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
        .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
        .s_axil_araddr(araddr), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
        .counter_version(32'h0001_0002),
        .counter_control_enable(enable),
        .counter_control_direction(direction),
        .counter_control_clear(clear),
        .counter_status_running(enable),
        .counter_status_wrapped_set(wrapped),
        .counter_status_wrapped(),
        .counter_limit(limit),
        .counter_value(value),
        .counter_mark_0(),
        .counter_mark_1()
    );

    counter counter_i (
        .clk, .rst_n, .enable, .down(direction == 2'(counter_registers_pkg::DIRECTION_DOWN)), .clear, .limit, .value, .wrapped
    );
endmodule
