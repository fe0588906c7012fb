// `ni_write` with the protocol checker at its master port.

`timescale 1ns / 1ps

module write_bench #(
    parameter int BUS = 512
) (
    input  wire             clk,
    input  wire             rst_n,
    input  wire             write_valid,
    output wire             write_ready,
    input  wire [63:0]      write_address,
    input  wire [15:0]      write_length,
    input  wire             write_data_valid,
    output wire             write_data_ready,
    input  wire [BUS-1:0]   write_data,
    output wire             write_done,
    output wire             write_error,
    input  wire             event_write_valid,
    output wire             event_write_ready,
    input  wire [63:0]      event_write_address,
    input  wire [511:0]     event_write_data,
    output wire             event_write_done,
    output wire             event_write_error,
    output wire [63:0]      m_awaddr,
    output wire [7:0]       m_awlen,
    output wire             m_awvalid,
    input  wire             m_awready,
    output wire [BUS-1:0]   m_wdata,
    output wire [BUS/8-1:0] m_wstrb,
    output wire             m_wlast,
    output wire             m_wvalid,
    input  wire             m_wready,
    input  wire [1:0]       m_bresp,
    input  wire             m_bvalid,
    output wire             m_bready
);
    ni_write #(.BUS(BUS)) dut (.*);

    axi_checker #(
        .DATA_WIDTH(BUS),
        .ID_WIDTH(1)
    ) protocol (
        .clk(clk),
        .rst_n(rst_n),
        .awid(1'b0),
        .awaddr(m_awaddr),
        .awlen(m_awlen),
        .awsize(3'($clog2(BUS / 8))),
        .awburst(2'b01),
        .awvalid(m_awvalid),
        .awready(m_awready),
        .wdata(m_wdata),
        .wstrb(m_wstrb),
        .wlast(m_wlast),
        .wvalid(m_wvalid),
        .wready(m_wready),
        .bid(1'b0),
        .bresp(m_bresp),
        .bvalid(m_bvalid),
        .bready(m_bready),
        .arid(1'b0),
        .araddr(64'b0),
        .arlen(8'b0),
        .arsize(3'b0),
        .arburst(2'b0),
        .arvalid(1'b0),
        .arready(1'b0),
        .rid(1'b0),
        .rdata({BUS{1'b0}}),
        .rresp(2'b0),
        .rlast(1'b0),
        .rvalid(1'b0),
        .rready(1'b0)
    );
endmodule
