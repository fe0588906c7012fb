// Transmit side: memory of the windows, segmentation, network port.

`timescale 1ns / 1ps

module transmit_bench #(
    parameter int BUS = 64,
    parameter int PACKET_LOG2 = 7,
    parameter int MASK_BITS = 32,
    parameter int WINDOWS = 4
) (
    input  wire             clk,
    input  wire             rst_n,
    input  wire             enable,
    input  wire  [31:0]     node_id,
    input  wire  [31:0]     incarnation,
    input  wire  [63:0]     now,

    input  wire  [31:0]     awaddr,
    input  wire             awvalid,
    output wire             awready,
    input  wire  [BUS-1:0]  wdata,
    input  wire  [BUS/8-1:0] wstrb,
    input  wire             wlast,
    input  wire             wvalid,
    output wire             wready,
    output wire             bvalid,
    // Reads of the host beside those of the transmitter.
    input  wire             arvalid,

    output wire  [BUS-1:0]  m_axis_tdata,
    output wire  [BUS/8-1:0] m_axis_tkeep,
    output wire             m_axis_tlast,
    output wire             m_axis_tvalid,
    input  wire             m_axis_tready,

    output wire             event_valid,
    input  wire             event_ready,
    output wire  [511:0]    event_data,
    output wire             fault_valid,
    input  wire             fault_ready,
    output wire  [511:0]    fault_event,

    output wire  [31:0]     window_free,
    output wire             transmitting,
    output wire             count_sent,
    output wire             count_link_inquiry,
    output wire             count_link_active
);
    localparam int STRIDE_LOG2 = $clog2(4096 + (MASK_BITS << PACKET_LOG2));
    localparam int WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1;
    localparam int BEAT_BITS = STRIDE_LOG2 - $clog2(BUS / 8);

    wire commit_valid;
    wire [WINDOW_BITS-1:0] commit_window;
    wire read_valid;
    wire read_ready;
    wire [WINDOW_BITS-1:0] read_window;
    wire [BEAT_BITS-1:0] read_beat;
    wire [BUS-1:0] read_data;
    ni_windows #(.BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .WINDOWS(WINDOWS), .ID_BITS(1)) windows (
        .clk(clk), .rst_n(rst_n), .s_axi_awid(1'b0), .s_axi_awaddr(awaddr[WINDOW_BITS+STRIDE_LOG2-1:0]),
        .s_axi_awsize(3'($clog2(BUS / 8))), .s_axi_awvalid(awvalid), .s_axi_awready(awready), .s_axi_wdata(wdata),
        .s_axi_wstrb(wstrb), .s_axi_wlast(wlast), .s_axi_wvalid(wvalid), .s_axi_wready(wready), .s_axi_bid(), .s_axi_bresp(),
        .s_axi_bvalid(bvalid), .s_axi_bready(1'b1), .s_axi_arid(1'b0), .s_axi_araddr('0), .s_axi_arlen(8'd3),
        .s_axi_arsize(3'd3), .s_axi_arvalid(arvalid), .s_axi_arready(), .s_axi_rid(), .s_axi_rdata(), .s_axi_rresp(),
        .s_axi_rlast(), .s_axi_rvalid(), .s_axi_rready(1'b1), .commit_valid(commit_valid), .commit_window(commit_window),
        .read_valid(read_valid), .read_ready(read_ready), .read_window(read_window), .read_beat(read_beat),
        .read_data(read_data)
    );

    wire frame_valid;
    wire frame_ready;
    wire [703:0] frame_header;
    wire [7:0] frame_header_length;
    wire [15:0] frame_payload_length;
    wire frame_data_valid;
    wire frame_data_ready;
    wire [BUS-1:0] frame_data;
    ni_transmit #(.BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .WINDOWS(WINDOWS)) transmit (
        .clk(clk), .rst_n(rst_n), .enable(enable), .messages_active(1'b0), .node_id(node_id), .incarnation(incarnation), .now(now),
        .commit_valid(commit_valid), .commit_window(commit_window), .read_valid(read_valid), .read_ready(read_ready),
        .read_window(read_window), .read_beat(read_beat), .read_data(read_data), .frame_valid(frame_valid),
        .frame_ready(frame_ready), .frame_header(frame_header), .frame_header_length(frame_header_length),
        .frame_payload_length(frame_payload_length), .frame_data_valid(frame_data_valid),
        .frame_data_ready(frame_data_ready), .frame_data(frame_data), .event_valid(event_valid), .event_ready(event_ready),
        .event_data(event_data), .fault_valid(fault_valid), .fault_ready(fault_ready), .fault_event(fault_event),
        .window_free(window_free), .transmitting(transmitting), .count_link_inquiry(count_link_inquiry),
        .count_link_active(count_link_active)
    );

    ni_tx #(.BUS(BUS), .ANSWERS(1)) tx (
        .clk(clk), .rst_n(rst_n), .answer_valid(1'b0), .answer_ready(), .answer('0), .answer_length('0),
        .frame_valid(frame_valid), .frame_ready(frame_ready), .frame_header(frame_header),
        .frame_header_length(frame_header_length), .frame_payload_length(frame_payload_length),
        .frame_data_valid(frame_data_valid), .frame_data_ready(frame_data_ready), .frame_data(frame_data),
        .m_axis_tdata(m_axis_tdata), .m_axis_tkeep(m_axis_tkeep), .m_axis_tlast(m_axis_tlast),
        .m_axis_tvalid(m_axis_tvalid), .m_axis_tready(m_axis_tready), .count_sent(count_sent)
    );
endmodule
