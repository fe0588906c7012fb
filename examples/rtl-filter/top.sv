// The XDMA IP with streams, the filter between them, its registers and its interrupt.

`timescale 1ps / 1ps

module top;
    wire clk, rst_n;
    wire [63:0] h2c_tdata, c2h_tdata;
    wire [7:0] h2c_tkeep, c2h_tkeep;
    wire h2c_tlast, h2c_tvalid, h2c_tready, c2h_tlast, c2h_tvalid, c2h_tready;

    wire [31:0] awaddr, wdata, araddr, rdata;
    wire [3:0] wstrb;
    wire [1:0] bresp, rresp;
    wire awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;

    wire interrupt;

    xdma_0 xdma_0_i (
        .sys_clk(1'b0), .sys_rst_n(1'b1), .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req({3'b000, interrupt}),
        .m_axis_h2c_tdata_0(h2c_tdata), .m_axis_h2c_tkeep_0(h2c_tkeep), .m_axis_h2c_tlast_0(h2c_tlast),
        .m_axis_h2c_tvalid_0(h2c_tvalid), .m_axis_h2c_tready_0(h2c_tready),
        .s_axis_c2h_tdata_0(c2h_tdata), .s_axis_c2h_tkeep_0(c2h_tkeep), .s_axis_c2h_tlast_0(c2h_tlast),
        .s_axis_c2h_tvalid_0(c2h_tvalid), .s_axis_c2h_tready_0(c2h_tready),
        .m_axil_awaddr(awaddr), .m_axil_awvalid(awvalid), .m_axil_awready(awready),
        .m_axil_wdata(wdata), .m_axil_wstrb(wstrb), .m_axil_wvalid(wvalid), .m_axil_wready(wready),
        .m_axil_bresp(bresp), .m_axil_bvalid(bvalid), .m_axil_bready(bready),
        .m_axil_araddr(araddr), .m_axil_arvalid(arvalid), .m_axil_arready(arready),
        .m_axil_rdata(rdata), .m_axil_rresp(rresp), .m_axil_rvalid(rvalid), .m_axil_rready(rready)
    );

    wire [31:0] h0, h1, h2, h3;

    filter filter_i (
        .clk, .rst_n, .h0, .h1, .h2, .h3,
        .s_tdata(h2c_tdata), .s_tkeep(h2c_tkeep), .s_tlast(h2c_tlast), .s_tvalid(h2c_tvalid), .s_tready(h2c_tready),
        .m_tdata(c2h_tdata), .m_tkeep(c2h_tkeep), .m_tlast(c2h_tlast), .m_tvalid(c2h_tvalid), .m_tready(c2h_tready)
    );

    wire packet = c2h_tvalid && c2h_tready && c2h_tlast;
    logic [31:0] packets;
    always_ff @(posedge clk)
        if (!rst_n) packets <= '0;
        else if (packet) packets <= packets + 1;

    filter_registers registers (
        .clk, .rst_n,
        .s_axil_awaddr(awaddr), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
        .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
        .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
        .s_axil_araddr(araddr), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
        .filter_taps_0(h0), .filter_taps_1(h1), .filter_taps_2(h2), .filter_taps_3(h3),
        .filter_status_packet_set(packet),
        .filter_status_packet(interrupt),
        .filter_packets(packets)
    );
endmodule
