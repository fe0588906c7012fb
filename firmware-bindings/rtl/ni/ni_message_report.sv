// Answers, events and faults of the message receiver: builds them and buffers them (docs/protocol/packets.md 3.11).
//
// A pulse of `answer`, `event_report` or `fault` reports from the inputs of that cycle; callers check `answer_space`, `event_space` and
// `fault_space` first. The outputs are streams in the order of the reports, one cycle later. `events_quiet`: no event waits here, nor did
// one leave in the previous cycle. Reset: empties all.

`timescale 1ns / 1ps

module ni_message_report (
    input  wire          clk,
    input  wire          rst_n,
    input  wire  [31:0]  node,
    input  wire  [31:0]  incarnation,
    // Message, incarnation and source of the message that is reported, and the time.
    input  wire  [95:0]  name,
    input  wire  [63:0]  now,

    input  wire          answer,
    input  wire  [7:0]   answer_kind,
    // Reason, for refusals; number of nodes that send.
    input  wire  [7:0]   answer_reason,
    input  wire  [31:0]  answer_context,
    input  wire  [31:0]  answer_first,
    input  wire  [31:0]  answer_last,
    input  wire  [15:0]  answer_ahead,
    input  wire  [7:0]   answer_path,
    input  wire          answer_echo,
    // Those of the message that is answered.
    input  wire  [95:0]  answer_name,
    output wire          answer_space,

    input  wire          event_report,
    input  wire  [7:0]   event_kind,
    input  wire  [15:0]  event_index,
    input  wire  [31:0]  event_generation,
    input  wire  [31:0]  event_transfer,
    input  wire  [31:0]  event_segment,
    input  wire  [31:0]  event_op,
    input  wire  [31:0]  event_count,
    input  wire  [63:0]  event_address,
    input  wire  [63:0]  event_length,
    input  wire  [7:0]   event_tries,
    output wire          event_space,
    output wire          events_quiet,

    input  wire          fault,
    input  wire  [7:0]   fault_reason,
    input  wire  [63:0]  fault_address,
    input  wire  [31:0]  fault_length,
    output wire          fault_space,

    output wire          answer_valid,
    input  wire          answer_ready,
    output wire  [703:0] answer_data,
    output wire  [7:0]   answer_length,
    output wire          event_valid,
    input  wire          event_ready,
    output wire  [511:0] event_data,
    output wire          fault_valid,
    input  wire          fault_ready,
    output wire  [511:0] fault_event
);
    localparam int ANSWER = 8 * ni_pkg::MESSAGE_ANSWER_BYTES;

    logic [7:0] flags;
    always_comb begin
        flags = 8'd0;
        flags[ni_pkg::FLAGS_ECHO_BIT] = answer_echo;
    end
    wire [31:0] peer_source = answer_name[31:0];
    wire [31:0] peer_incarnation = answer_name[63:32];
    wire [31:0] message = answer_name[95:64];
    wire [ANSWER-1:0] new_answer = {answer_ahead, answer_reason, answer_kind, answer_last, answer_first, answer_context, peer_incarnation,
        message, incarnation, peer_source, node, answer_path, flags, ni_pkg::PACKET_KIND_MESSAGE_ANSWER, ni_pkg::WIRE_VERSION};
    wire [ANSWER-1:0] queued;
    assign answer_data = 704'(queued);
    assign answer_length = 8'(ni_pkg::MESSAGE_ANSWER_BYTES);

    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(ANSWER), .DEPTH(4)) answers (
        .clk, .rst_n, .in_valid(answer), .in_ready(answer_space), .in_data(new_answer),
        .out_valid(answer_valid), .out_ready(answer_ready), .out_data(queued), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    // Sequence and reserved bits, which are 0, are not stored.
    wire [455:0] new_event = {event_tries, now, event_length, event_address, event_generation, event_count, event_op, event_segment,
        event_transfer, name[63:32], name[31:0], event_index, 8'd0, event_kind};
    wire [455:0] new_fault = {8'd0, now, 32'd0, fault_length, fault_address, 32'd0, 32'd0, 32'd0, 32'd0, 32'd0, name[63:32], name[31:0],
        16'd0, fault_reason, ni_pkg::EVENT_KIND_FAULT};
    wire [455:0] queued_event;
    wire [455:0] queued_fault;
    wire [2:0]   event_level;
    assign event_data = {56'd0, queued_event};
    assign fault_event = {56'd0, queued_fault};

    ni_fifo #(.WIDTH(456), .DEPTH(4)) events (
        .clk, .rst_n, .in_valid(event_report), .in_ready(event_space), .in_data(new_event),
        .out_valid(event_valid), .out_ready(event_ready), .out_data(queued_event), .level(event_level)
    );
    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(456), .DEPTH(2)) faults (
        .clk, .rst_n, .in_valid(fault), .in_ready(fault_space), .in_data(new_fault),
        .out_valid(fault_valid), .out_ready(fault_ready), .out_data(queued_fault), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    logic was_empty;
    always_ff @(posedge clk) was_empty <= rst_n && event_level == 0 && !event_report;
    assign events_quiet = was_empty && event_level == 0;

    wire unused = &{1'b0, name[95:64]};
endmodule
