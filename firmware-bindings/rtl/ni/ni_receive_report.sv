// Answers, events and faults of the receiver: builds them from a packet's context, and buffers them (docs/protocol/receiver.md 5.10).
//
// An input that is high for a cycle reports from the inputs of that cycle; callers check `answer_space`, `event_space` and `fault_space`
// first. At most one answer and one event are reported at a time. The outputs are streams in the order of the reports, one cycle later.
// `events_quiet`: no event waits here, nor did one leave in the previous cycle. Reset: empties all.
//
// `commit` reports the packet `head_number` of entry `head_entry`, whose write was answered; `context_in` is its context then. All others
// concern the packet in progress and the selected records.

`timescale 1ns / 1ps

module ni_receive_report #(
    parameter int CONTEXT = 337
) (
    input  wire               clk,
    input  wire               rst_n,
    input  wire               packet_events,
    input  wire  [31:0]       node,
    input  wire  [31:0]       incarnation,
    // Context of the packet that is answered: see `ni_receive`.
    input  wire  [CONTEXT-1:0] context_in,
    input  wire               commit,
    input  wire  [15:0]       head_entry,
    input  wire  [7:0]        head_number,
    input  wire  [31:0]       head_generation,

    // Answers. An ACK names the number of nodes that send; a NACK its reason, the newest incarnation if that is the reason, and a delay.
    input  wire               ack,
    input  wire               nack,
    input  wire               segment_done,
    input  wire  [15:0]       senders,
    input  wire  [7:0]        nack_reason,
    input  wire  [31:0]       newest,
    input  wire  [15:0]       nack_delay,
    output wire               answer_space,

    // Events: packet `packet_number` of the selected entry, and the others by their name.
    input  wire               packet,
    input  wire  [7:0]        packet_number,
    input  wire               registered,
    input  wire               completed,
    input  wire               expired,
    input  wire               notice,
    input  wire               escaped,
    // A packet leaves the escape channel: for its entry, or after its timeout.
    input  wire               released,
    input  wire               timed_out,
    input  wire  [15:0]       entry,
    input  wire  [31:0]       entry_generation,
    input  wire  [127:0]      entry_key,
    input  wire  [15:0]       slot,
    input  wire  [63:0]       sender_name,
    input  wire  [31:0]       transfer,
    input  wire  [63:0]       transfer_base,
    input  wire  [63:0]       transfer_length,
    // START packet.
    input  wire               start_trimmed,
    input  wire  [7:0]        start_flags,
    input  wire  [31:0]       start_segment_count,
    input  wire  [15:0]       start_packets,
    input  wire  [63:0]       start_base,
    input  wire  [31:0]       start_length,
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
    logic [7:0] flags;
    always_comb begin
        flags = 8'd0;
        flags[ni_pkg::FLAGS_ECHO_BIT] = c_marked && !segment_done;
    end
    wire [7:0] answer_kind = nack ? ni_pkg::PACKET_KIND_NACK : segment_done ? ni_pkg::PACKET_KIND_SEGMENT_DONE : ni_pkg::PACKET_KIND_ACK;
    wire [7:0] answer_reason = nack ? nack_reason : senders > 16'd255 ? 8'd255 : senders[7:0];
    wire [31:0] answer_op = nack && nack_reason == ni_pkg::NACK_REASON_SUPERSEDED ? newest : c_op;
    wire [15:0] answer_delay = nack ? nack_delay : c_delay;
    wire [127:0] common = {incarnation, c_source, node, segment_done ? 8'd0 : c_path, flags, answer_kind, ni_pkg::WIRE_VERSION};
    wire [159:0] done_fields = {64'd0, c_incarnation, c_segment, c_transfer};
    wire [159:0] answer_fields = {answer_delay, answer_reason, c_tries, c_incarnation, c_segment, c_transfer, answer_op};
    wire [287:0] queued;
    assign answer_data = {416'd0, queued};
    assign answer_length = queued[15:8] == ni_pkg::PACKET_KIND_SEGMENT_DONE ? 8'(ni_pkg::SEGMENT_DONE_BYTES) : 8'(ni_pkg::ACK_BYTES);

    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(288), .DEPTH(4)) answers (
        .clk, .rst_n,
        .in_valid(commit || ack || nack || segment_done), .in_ready(answer_space),
        .in_data({segment_done ? done_fields : answer_fields, common}),
        .out_valid(answer_valid), .out_ready(answer_ready), .out_data(queued), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    wire of_slot = escaped || released || timed_out;
    logic [7:0] event_kind;
    always_comb begin
        event_kind = ni_pkg::EVENT_KIND_PACKET;
        if (registered) event_kind = ni_pkg::EVENT_KIND_REGISTERED;
        if (completed) event_kind = ni_pkg::EVENT_KIND_COMPLETED;
        if (expired) event_kind = ni_pkg::EVENT_KIND_EXPIRED;
        if (notice) event_kind = ni_pkg::EVENT_KIND_NOTICE;
        if (escaped) event_kind = ni_pkg::EVENT_KIND_ESCAPED;
        if (released || timed_out) event_kind = ni_pkg::EVENT_KIND_ESCAPE_RELEASED;
    end
    wire [127:0] event_key = notice ? {32'd0, transfer, sender_name} : expired ? entry_key : c_key;
    wire [15:0] event_index = notice ? 16'd0 : of_slot ? slot : commit ? head_entry : entry;
    wire [31:0] event_generation = notice || of_slot ? 32'd0 : commit ? head_generation : entry_generation;
    wire [31:0] event_op = of_slot ? c_op : registered ? start_segment_count : 32'd0;
    wire [31:0] event_count = commit ? {24'd0, head_number} : packet ? {24'd0, packet_number} : registered ? {16'd0, start_packets}
        : {31'd0, released};
    wire [63:0] event_address = of_slot ? c_address : registered ? start_base : notice ? transfer_base : 64'd0;
    wire [63:0] event_length = of_slot ? {48'd0, c_length} : registered ? {32'd0, start_length} : notice ? transfer_length : 64'd0;
    wire [7:0] event_tries = registered ? {start_trimmed, 3'd0, start_flags[3:1], 1'b0} : 8'd0;
    wire event_report = (commit && packet_events)
        || (event_space && (packet || registered || completed || expired || notice || of_slot));

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

    wire unused = &{1'b0, start_flags};
endmodule
