// Answers and events of the receiver: builds them from a packet's context, and buffers them (docs/protocol/receiver.md 5.10).
//
// A pulse of `answer`, `event_report` or `fault` reports from the inputs of that cycle; callers check `answer_space`, `event_space` and
// `fault_space` first. The outputs are streams in the order of the reports, one cycle later. `events_quiet`: no event waits here, nor
// did one leave in the previous cycle. Reset: empties all.

`timescale 1ns / 1ps

module ni_receive_report #(
    parameter int CONTEXT = 337
) (
    input  wire               clk,
    input  wire               rst_n,
    input  wire  [31:0]       node,
    input  wire  [31:0]       incarnation,
    // Context of the packet that is answered: see `ni_receive`.
    input  wire  [CONTEXT-1:0] context_in,

    input  wire               answer,
    input  wire  [7:0]        answer_kind,
    // Number of nodes that send, for ACK; reason, for NACK.
    input  wire  [7:0]        answer_reason,
    input  wire  [31:0]       answer_op,
    input  wire  [15:0]       answer_delay,
    output wire               answer_space,

    input  wire               event_report,
    input  wire  [7:0]        event_kind,
    input  wire  [15:0]       event_index,
    input  wire  [31:0]       event_generation,
    input  wire  [127:0]      event_key,
    input  wire  [31:0]       event_op,
    input  wire  [31:0]       event_count,
    input  wire  [63:0]       event_address,
    input  wire  [63:0]       event_length,
    input  wire  [7:0]        event_tries,
    output wire               event_space,
    output wire               events_quiet,

    input  wire               fault,
    input  wire  [7:0]        fault_reason,
    input  wire  [63:0]       fault_address,
    input  wire  [31:0]       fault_length,
    output wire               fault_space,

    output wire               answer_valid,
    input  wire               answer_ready,
    output wire  [703:0]      answer_data,
    output wire  [7:0]        answer_length,
    output wire               event_valid,
    input  wire               event_ready,
    output wire  [511:0]      event_data,
    output wire               fault_valid,
    input  wire               fault_ready,
    output wire  [511:0]      fault_event
);
    wire [63:0] c_address;
    wire [15:0] c_length;
    wire [63:0] c_now;
    wire [15:0] c_delay;
    wire        c_marked;
    wire [7:0]  c_path;
    wire [7:0]  c_tries;
    wire [31:0] c_op;
    wire [127:0] c_key;
    assign {c_address, c_length, c_now, c_delay, c_marked, c_path, c_tries, c_op, c_key} = context_in;
    wire [31:0] c_source = c_key[31:0];
    wire [31:0] c_incarnation = c_key[63:32];
    wire [31:0] c_transfer = c_key[95:64];
    wire [31:0] c_segment = c_key[127:96];

    // SEGMENT_DONE answers no packet: it repeats neither path nor mark.
    wire is_done = answer_kind == ni_pkg::PACKET_KIND_SEGMENT_DONE;
    logic [7:0] flags;
    always_comb begin
        flags = 8'd0;
        flags[ni_pkg::FLAGS_ECHO_BIT] = c_marked && !is_done;
    end
    wire [127:0] common = {incarnation, c_source, node, is_done ? 8'd0 : c_path, flags, answer_kind, ni_pkg::WIRE_VERSION};
    wire [159:0] done_fields = {64'd0, c_incarnation, c_segment, c_transfer};
    wire [159:0] answer_fields = {answer_delay, answer_reason, c_tries, c_incarnation, c_segment, c_transfer, answer_op};
    wire [287:0] queued;
    assign answer_data = {416'd0, queued};
    assign answer_length = queued[15:8] == ni_pkg::PACKET_KIND_SEGMENT_DONE ? 8'(ni_pkg::SEGMENT_DONE_BYTES) : 8'(ni_pkg::ACK_BYTES);

    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(288), .DEPTH(4)) answers (
        .clk, .rst_n,
        .in_valid(answer), .in_ready(answer_space), .in_data({is_done ? done_fields : answer_fields, common}),
        .out_valid(answer_valid), .out_ready(answer_ready), .out_data(queued), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    // Sequence and reserved bits, which are 0, are not stored.
    wire [455:0] new_event = {event_tries, c_now, event_length, event_address, event_generation, event_count, event_op, event_key[127:96],
        event_key[95:64], event_key[63:32], event_key[31:0], event_index, 8'd0, event_kind};
    wire [455:0] new_fault = {8'd0, c_now, 32'd0, fault_length, fault_address, 32'd0, 32'd0, c_op, c_segment, c_transfer, c_incarnation,
        c_source, 16'd0, fault_reason, ni_pkg::EVENT_KIND_FAULT};
    wire [455:0] queued_event;
    wire [455:0] queued_fault;
    wire [2:0]   event_level;
    assign event_data = {56'd0, queued_event};
    assign fault_event = {56'd0, queued_fault};

    ni_fifo #(.WIDTH(456), .DEPTH(4)) events (
        .clk, .rst_n,
        .in_valid(event_report), .in_ready(event_space), .in_data(new_event),
        .out_valid(event_valid), .out_ready(event_ready), .out_data(queued_event), .level(event_level)
    );
    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(456), .DEPTH(2)) faults (
        .clk, .rst_n,
        .in_valid(fault), .in_ready(fault_space), .in_data(new_fault),
        .out_valid(fault_valid), .out_ready(fault_ready), .out_data(queued_fault), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    logic was_empty;
    always_ff @(posedge clk) was_empty <= rst_n && event_level == 0 && !event_report;
    assign events_quiet = was_empty && event_level == 0;

    wire unused = &{1'b0, c_address, c_length, c_delay};
endmodule
