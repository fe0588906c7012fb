// Packets by kind, for a node that runs the registry scheme or receives messages, without link feedback (docs/protocol/interface.md 10.6 and
// 10.7).
//
// | Packet | Action with the registry scheme |
// |---|---|
// | DATA, START, ARRIVED | to the receiver, for any destination |
// | others for another node | dropped, counted |
// | ACK, NACK, SEGMENT_DONE | event, unless PEER_INCARNATION is not this node's |
// | HELLO | HELLO_REPLY |
// | HELLO_REPLY | event, if an answer is expected |
// | MESSAGE_REQUEST, MESSAGE_DATA, MESSAGE_START, READ_REQUEST | MESSAGE_ANSWER Refused or ReadRefused with reason Scheme; counted |
// | MESSAGE_ANSWER, MESSAGE_MAP | dropped, counted |
// | link feedback | ignored |
//
// | Packet | Other action with `receives_messages` |
// |---|---|
// | MESSAGE_REQUEST, MESSAGE_DATA, MESSAGE_START | to the message receiver |
// | READ_REQUEST, MESSAGE_ANSWER, MESSAGE_MAP | ignored: no message is sent |
// | DATA, START | NACK with reason Scheme; counted |
// | ARRIVED | dropped, counted |
//
// Protocol: `packet_*` is the output of ni_rx; `receive_valid` and `receive_ready` are its handshake with the receiver of the scheme, which
// reads header and payload from ni_rx directly. `hello` is a pulse: the host asks `hello_node` for its capabilities; a second request before the first
// one has left is lost, as it may be in the network. `clear` forgets the requests that are not answered.
//
// Latency: none to the receiver, 1 cycle to events and answers, one packet per cycle while they are taken. Order: that of the packets; the
// receiver gets a packet when events and answers of earlier ones have been taken. Reset: no event, no answer, no request.

`timescale 1ns / 1ps

module ni_dispatch #(
    parameter int PACKET_LOG2 = 12,
    parameter int MASK_BITS = 32,
    parameter int CAPABILITIES = 0
) (
    input  wire          clk,
    input  wire          rst_n,
    input  wire          clear,
    input  wire  [31:0]  node,
    input  wire  [31:0]  incarnation,
    input  wire  [31:0]  registry_timeout_us,
    input  wire          receives_messages,
    input  wire          hello,
    input  wire  [31:0]  hello_node,

    input  wire          packet_valid,
    output wire          packet_ready,
    /* verilator lint_off UNUSEDSIGNAL */
    // The longest header that is read here has 56 bytes.
    input  wire  [703:0] packet_header,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire  [63:0]  packet_time,
    output wire          receive_valid,
    input  wire          receive_ready,

    output logic         event_valid,
    input  wire          event_ready,
    output logic [511:0] event_data,
    output logic         answer_valid,
    input  wire          answer_ready,
    output logic [703:0] answer,
    output logic [7:0]   answer_length,

    output wire          count_bad_packet
);
    localparam logic [7:0] HELLO_LENGTH = 8'd32;
    localparam logic [7:0] MESSAGE_ANSWER_LENGTH = 8'd40;
    localparam logic [7:0] NACK_LENGTH = 8'd36;

    // Fields of the packet; those that several kinds have at the same position are read once.
    wire [7:0] kind = packet_header[ni_pkg::COMMON_KIND_LSB+:8];
    wire [31:0] source = packet_header[ni_pkg::COMMON_SOURCE_LSB+:32];
    wire [31:0] destination = packet_header[ni_pkg::COMMON_DESTINATION_LSB+:32];
    wire [31:0] source_incarnation = packet_header[ni_pkg::COMMON_INCARNATION_LSB+:32];
    wire [31:0] message = packet_header[ni_pkg::MESSAGE_REQUEST_MESSAGE_LSB+:32];
    wire is_ack = kind == ni_pkg::PACKET_KIND_ACK;
    wire is_nack = kind == ni_pkg::PACKET_KIND_NACK;
    wire is_done = kind == ni_pkg::PACKET_KIND_SEGMENT_DONE;
    wire is_hello = kind == ni_pkg::PACKET_KIND_HELLO;
    wire is_reply = kind == ni_pkg::PACKET_KIND_HELLO_REPLY;
    wire is_read = kind == ni_pkg::PACKET_KIND_READ_REQUEST;
    wire is_message = kind == ni_pkg::PACKET_KIND_MESSAGE_REQUEST || kind == ni_pkg::PACKET_KIND_MESSAGE_DATA ||
        kind == ni_pkg::PACKET_KIND_MESSAGE_START;
    wire is_answer = kind == ni_pkg::PACKET_KIND_MESSAGE_ANSWER || kind == ni_pkg::PACKET_KIND_MESSAGE_MAP;
    wire is_segment = kind == ni_pkg::PACKET_KIND_DATA || kind == ni_pkg::PACKET_KIND_START;
    wire is_arrived = kind == ni_pkg::PACKET_KIND_ARRIVED;
    wire is_for_us = destination == node;
    // Packets of the other scheme.
    wire is_refused = receives_messages ? is_segment : is_message || is_read;
    wire is_dropped = receives_messages ? is_arrived : is_answer;
    wire is_received = receives_messages ? is_message && is_for_us : is_segment || is_arrived;
    wire [31:0] peer_incarnation = is_done ? packet_header[ni_pkg::SEGMENT_DONE_PEER_INCARNATION_LSB+:32] :
        packet_header[ni_pkg::ACK_PEER_INCARNATION_LSB+:32];
    wire is_current = peer_incarnation == incarnation;

    // HELLOs that are not answered; stops at its maximum.
    logic [31:0] asked;
    wire raises_event = is_for_us && (((is_ack || is_nack || is_done) && is_current) || (is_reply && asked != 0));
    wire raises_answer = is_for_us && (is_hello || is_refused);
    wire is_event_free = !event_valid || event_ready;
    wire is_answer_free = !answer_valid || answer_ready;

    assign receive_valid = packet_valid && is_received && !event_valid && !answer_valid;
    wire is_handled = packet_valid && !is_received && (!raises_event || is_event_free) && (!raises_answer || is_answer_free);
    assign packet_ready = is_received ? receive_ready && receive_valid : is_handled;
    assign count_bad_packet = is_handled && (!is_for_us || is_refused || is_dropped);

    // Events. ------------------------------------------------------------------------------------------------------------------------------

    // ACK and NACK: INDEX is DELAY, COUNT is the number of senders (ACK), the echoed mark and the path.
    wire [7:0] reason = packet_header[ni_pkg::ACK_REASON_LSB+:8];
    wire [7:0] path = packet_header[ni_pkg::COMMON_PATH_LSB+:8];
    wire is_echo = packet_header[ni_pkg::COMMON_FLAGS_LSB+ni_pkg::FLAGS_ECHO_BIT];

    wire [511:0] ack_event;
    assign ack_event = {
        32'd0, 24'd0, packet_header[ni_pkg::ACK_TRIES_LSB+:8], packet_time, 64'd0, 64'd0, source_incarnation,
        8'd0, path, 7'd0, is_echo, is_ack ? reason : 8'd0,
        packet_header[ni_pkg::ACK_OP_LSB+:32], packet_header[ni_pkg::ACK_SEGMENT_LSB+:32], packet_header[ni_pkg::ACK_TRANSFER_LSB+:32],
        peer_incarnation, source, packet_header[ni_pkg::ACK_DELAY_LSB+:16],
        is_nack ? reason : 8'd0, is_nack ? ni_pkg::EVENT_KIND_NACK : ni_pkg::EVENT_KIND_ACK
    };
    wire [511:0] done_event;
    assign done_event = {
        32'd0, 24'd0, 8'd0, packet_time, 64'd0, 64'd0, source_incarnation, 32'd0, 32'd0,
        packet_header[ni_pkg::SEGMENT_DONE_SEGMENT_LSB+:32], packet_header[ni_pkg::SEGMENT_DONE_TRANSFER_LSB+:32],
        peer_incarnation, source, 16'd0, 8'd0, ni_pkg::EVENT_KIND_SEGMENT_DONE
    };
    wire [511:0] hello_event;
    assign hello_event = {
        32'd0, 24'd0, packet_header[ni_pkg::HELLO_PACKET_SIZE_LOG2_LSB+:8], packet_time,
        32'd0, packet_header[ni_pkg::HELLO_REGISTRY_TIMEOUT_US_LSB+:32], 64'd0, source_incarnation,
        packet_header[ni_pkg::HELLO_CAPABILITIES_LSB+:32], 24'd0, packet_header[ni_pkg::HELLO_WIRE_VERSION_LSB+:8],
        packet_header[ni_pkg::HELLO_SCHEMES_LSB+:32], 32'd0, 32'd0, source, packet_header[ni_pkg::HELLO_MASK_BITS_LSB+:16],
        8'd0, ni_pkg::EVENT_KIND_HELLO
    };

    // Answers. -----------------------------------------------------------------------------------------------------------------------------

    // A HELLO of the host that waits for the answer register.
    logic hello_waiting;
    logic [31:0] hello_to;
    wire put_answer = is_handled && raises_answer;
    wire put_hello = hello_waiting && is_answer_free && !put_answer;
    wire [31:0] to = put_answer ? source : hello_to;

    wire [255:0] hello_packet;
    assign hello_packet = {
        registry_timeout_us, receives_messages ? 32'd1 << ni_pkg::SCHEME_RECEIVER_WINDOW : 32'd1 << ni_pkg::SCHEME_REGISTRY, 32'(CAPABILITIES), 16'(MASK_BITS), ni_pkg::WIRE_VERSION, 8'(PACKET_LOG2),
        incarnation, to, node, 8'd0, 8'd0, put_answer ? ni_pkg::PACKET_KIND_HELLO_REPLY : ni_pkg::PACKET_KIND_HELLO, ni_pkg::WIRE_VERSION
    };
    wire [319:0] refusal;
    assign refusal = {
        16'd0, ni_pkg::NACK_REASON_SCHEME, is_read ? ni_pkg::ANSWER_KIND_READ_REFUSED : ni_pkg::ANSWER_KIND_REFUSED,
        32'd0, 32'd0, 32'hffff_ffff, source_incarnation, message,
        incarnation, to, node, 8'd0, 8'd0, ni_pkg::PACKET_KIND_MESSAGE_ANSWER, ni_pkg::WIRE_VERSION
    };

    wire [287:0] nack;
    assign nack = {
        16'd0, ni_pkg::NACK_REASON_SCHEME, packet_header[ni_pkg::DATA_TRIES_LSB+:8], source_incarnation,
        packet_header[ni_pkg::DATA_SEGMENT_LSB+:32], packet_header[ni_pkg::DATA_TRANSFER_LSB+:32], packet_header[ni_pkg::DATA_OP_LSB+:32],
        incarnation, to, node, 8'd0, 8'd0, ni_pkg::PACKET_KIND_NACK, ni_pkg::WIRE_VERSION
    };

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            event_valid <= 1'b0;
            answer_valid <= 1'b0;
            hello_waiting <= 1'b0;
            asked <= '0;
        end else begin
            if (is_handled && raises_event) event_valid <= 1'b1;
            else if (event_ready) event_valid <= 1'b0;
            if (put_answer || put_hello) answer_valid <= 1'b1;
            else if (answer_ready) answer_valid <= 1'b0;
            if (clear) hello_waiting <= 1'b0;
            else if (hello && !hello_waiting) hello_waiting <= 1'b1;
            else if (put_hello) hello_waiting <= 1'b0;
            if (clear) asked <= '0;
            else if (hello && !hello_waiting) begin
                if (!(is_handled && raises_event && is_reply) && asked != '1) asked <= asked + 1'b1;
            end else if (is_handled && raises_event && is_reply) asked <= asked - 1'b1;
        end
        if (hello && !hello_waiting) hello_to <= hello_node;
        if (is_handled && raises_event) event_data <= is_reply ? hello_event : is_done ? done_event : ack_event;
        if (put_answer || put_hello) begin
            answer <= (put_hello || is_hello) ? {448'd0, hello_packet} : is_segment ? {416'd0, nack} : {384'd0, refusal};
            answer_length <= (put_hello || is_hello) ? HELLO_LENGTH : is_segment ? NACK_LENGTH : MESSAGE_ANSWER_LENGTH;
        end
    end
endmodule
