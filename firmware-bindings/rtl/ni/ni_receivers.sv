// Receivers of the schemes that the NI has: the registry's, and with MESSAGE_CONTEXTS that of the receiver window. One of them is active.
//
// Ports: those of `ni_receive`. Packets, writes and shadow words are the active receiver's; both get the commands, so that both have the same
// memory windows. A change of `receives_messages` takes effect when the command CLEAR ends (`messages_active`), which clears both: no packet
// and no write is in progress then. Answers and events of the receiver that was active before leave first.
//
// Latency: none. Reset: the registry is active.

`timescale 1ns / 1ps

module ni_receivers #(
    parameter int BUS = 128,
    parameter int PACKET_LOG2 = 9,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    parameter bit HASHED = 1'b0,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 64,
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    parameter int TOMBSTONES = 128,
    parameter int NODES = 1024,
    // Message receiver: contexts (0: without), maximum window, senders' contexts with a record.
    parameter int MESSAGE_CONTEXTS = 0,
    parameter int MESSAGE_WINDOW = 128,
    parameter int MESSAGE_PEERS = 1024,
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                 clk,
    input  wire                 rst_n,
    // Nanoseconds since reset: timeouts and ages.
    input  wire  [63:0]         now,
    // Settings. The scheme is receiver-window; it takes effect with the next CLEAR. A change of a timeout is announced by a pulse of `timeouts_changed`.
    input  wire  [31:0]         node,
    input  wire  [31:0]         incarnation,
    input  wire                 packet_events,
    input  wire                 receives_messages,
    input  wire  [7:0]          message_window,
    input  wire                 message_credit,
    input  wire  [7:0]          message_patience,
    input  wire  [31:0]         round_trip_ns,
    input  wire  [63:0]         escape_timeout,
    input  wire  [63:0]         registry_timeout,
    input  wire  [63:0]         packet_lifetime,
    input  wire                 timeouts_changed,
    // Free slots for notices, after all events that were accepted up to the previous cycle; all ones: unlimited.
    input  wire  [31:0]         notice_slots,

    // The scheme in effect: the packet is for the message receiver.
    output logic                messages_active,
    input  wire                 packet_valid,
    output wire                 packet_ready,
    input  wire  [703:0]        packet_header,
    input  wire  [15:0]         packet_payload_length,
    input  wire  [63:0]         packet_time,
    output wire  [BEAT_BITS-1:0] payload_beat,
    input  wire  [BUS-1:0]      payload_data,

    output wire                 write_valid,
    input  wire                 write_ready,
    output wire  [63:0]         write_address,
    output wire  [15:0]         write_length,
    output wire                 write_data_valid,
    input  wire                 write_data_ready,
    output wire  [BUS-1:0]      write_data,
    input  wire                 write_done,
    input  wire                 write_error,

    output wire                 answer_valid,
    input  wire                 answer_ready,
    output wire  [703:0]        answer,
    output wire  [7:0]          answer_length,
    output wire                 event_valid,
    input  wire                 event_ready,
    output wire  [511:0]        event_data,
    output wire                 fault_valid,
    input  wire                 fault_ready,
    output wire  [511:0]        fault_event,

    // Command: 0 latch registry entry, 1 latch escape slot, 2 latch memory window, 3 install memory window, 4 remove it, 5 clear.
    // `command_ready` ends it: the shadow words are complete then. `command_failed` is valid with it: the index or the range is invalid.
    input  wire                 command_valid,
    output wire                 command_ready,
    input  wire  [2:0]          command,
    input  wire  [15:0]         command_index,
    input  wire  [31:0]         window_source,
    input  wire  [63:0]         window_base,
    input  wire  [63:0]         window_length,
    input  wire  [63:0]         window_key,
    input  wire  [1:0]          window_permissions,
    output wire                 command_failed,
    // Words 0 to 23 of block `registry`, 0 to 10 of block `escape`, and 1 to 8 of block `memory` with VALID in bit 256.
    output wire  [767:0]        registry_shadow,
    output wire  [351:0]        escape_shadow,
    output wire  [256:0]        memory_shadow,
    output wire  [31:0]         registry_occupancy,
    output wire  [31:0]         registry_high_water,
    output wire  [31:0]         escape_occupancy,
    output wire  [31:0]         escape_high_water,
    output wire  [31:0]         memory_occupancy,

    // One pulse per counted item; names as in block `counters`.
    output wire                 count_duplicates,
    output wire                 count_registrations,
    output wire                 count_completions,
    output wire                 count_escape_hits,
    output wire                 count_escape_dropped,
    output wire                 count_registry_full,
    output wire                 count_bad_packet,
    output wire                 count_violations,
    output wire                 count_tombstone_hits,
    output wire                 count_expired,
    output wire                 count_nacks_sent,
    output wire                 count_acks_sent,
    output wire                 count_trimmed,
    // No packet, command, timeout or report is in progress, and none is due.
    output wire                 idle
);
    localparam logic [2:0] COMMAND_CLEAR = 3'd5;

    wire is_clearing = command_valid && command == COMMAND_CLEAR;

    // Outputs of the registry's receiver, and of the message receiver.
    wire                 r_packet_ready, m_packet_ready;
    wire [BEAT_BITS-1:0] r_payload_beat, m_payload_beat;
    wire                 r_write_valid, m_write_valid, r_write_data_valid, m_write_data_valid;
    wire [63:0]          r_write_address, m_write_address;
    wire [15:0]          r_write_length, m_write_length;
    wire [BUS-1:0]       r_write_data, m_write_data;
    wire                 r_answer_valid, m_answer_valid, r_event_valid, m_event_valid, r_fault_valid, m_fault_valid;
    wire [703:0]         r_answer, m_answer;
    wire [7:0]           r_answer_length, m_answer_length;
    wire [511:0]         r_event_data, m_event_data, r_fault_event, m_fault_event;
    wire                 r_command_ready, m_command_ready, r_command_failed, m_command_failed;
    wire [767:0]         r_registry_shadow, m_registry_shadow;
    wire [256:0]         r_memory_shadow;
    wire [31:0]          r_registry_occupancy, m_registry_occupancy, r_registry_high_water, m_registry_high_water;
    wire                 r_idle, m_idle;
    wire                 r_duplicates, m_duplicates, r_registrations, m_registrations, r_completions, m_completions;
    wire                 r_registry_full, m_registry_full, r_bad_packet, m_bad_packet, r_violations, m_violations;
    wire                 r_tombstone_hits, m_tombstone_hits, r_expired, m_expired, r_nacks_sent, m_nacks_sent, r_acks_sent, m_acks_sent;

    // Both have to end a command.
    logic r_is_done;
    logic m_is_done;
    wire r_ends = r_is_done || r_command_ready;
    wire m_ends = m_is_done || m_command_ready;
    assign command_ready = command_valid && r_ends && m_ends;
    always_ff @(posedge clk) begin
        r_is_done <= command_valid && !command_ready && r_ends;
        m_is_done <= command_valid && !command_ready && m_ends;
        if (command_ready && command == COMMAND_CLEAR) messages_active <= receives_messages && MESSAGE_CONTEXTS != 0;
        if (!rst_n) begin
            r_is_done <= 1'b0;
            m_is_done <= 1'b0;
            messages_active <= 1'b0;
        end
    end

    // The receiver that is not active reports only what has waited since it was.
    wire takes_m_answer = m_answer_valid && (!messages_active || !r_answer_valid);
    wire takes_m_event = m_event_valid && (!messages_active || !r_event_valid);
    wire takes_m_fault = m_fault_valid && (!messages_active || !r_fault_valid);
    assign answer_valid = r_answer_valid || m_answer_valid;
    assign answer = takes_m_answer ? m_answer : r_answer;
    assign answer_length = takes_m_answer ? m_answer_length : r_answer_length;
    assign event_valid = r_event_valid || m_event_valid;
    assign event_data = takes_m_event ? m_event_data : r_event_data;
    assign fault_valid = r_fault_valid || m_fault_valid;
    assign fault_event = takes_m_fault ? m_fault_event : r_fault_event;

    assign packet_ready = messages_active ? m_packet_ready : r_packet_ready;
    assign payload_beat = messages_active ? m_payload_beat : r_payload_beat;
    assign write_valid = r_write_valid || m_write_valid;
    assign write_address = messages_active ? m_write_address : r_write_address;
    assign write_length = messages_active ? m_write_length : r_write_length;
    assign write_data_valid = r_write_data_valid || m_write_data_valid;
    assign write_data = messages_active ? m_write_data : r_write_data;
    assign command_failed = messages_active ? m_command_failed : r_command_failed;
    assign registry_shadow = messages_active ? m_registry_shadow : r_registry_shadow;
    assign memory_shadow = r_memory_shadow;
    assign registry_occupancy = messages_active ? m_registry_occupancy : r_registry_occupancy;
    assign registry_high_water = messages_active ? m_registry_high_water : r_registry_high_water;
    assign idle = r_idle && m_idle;
    assign count_duplicates = r_duplicates || m_duplicates;
    assign count_registrations = r_registrations || m_registrations;
    assign count_completions = r_completions || m_completions;
    assign count_registry_full = r_registry_full || m_registry_full;
    assign count_bad_packet = r_bad_packet || m_bad_packet;
    assign count_violations = r_violations || m_violations;
    assign count_tombstone_hits = r_tombstone_hits || m_tombstone_hits;
    assign count_expired = r_expired || m_expired;
    assign count_nacks_sent = r_nacks_sent || m_nacks_sent;
    assign count_acks_sent = r_acks_sent || m_acks_sent;

    ni_receive #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .ENTRIES(ENTRIES), .HASHED(HASHED), .ESCAPE_SLOTS(ESCAPE_SLOTS),
        .MEMORY_WINDOWS(MEMORY_WINDOWS), .SOURCES(SOURCES), .TRANSFERS(TRANSFERS), .TOMBSTONES(TOMBSTONES), .NODES(NODES)
    ) segments (
        .clk, .rst_n, .now, .node, .incarnation, .packet_events, .escape_timeout, .registry_timeout, .packet_lifetime, .timeouts_changed,
        .notice_slots,
        .packet_valid(packet_valid && !messages_active && !is_clearing), .packet_ready(r_packet_ready), .packet_header,
        .packet_payload_length, .packet_time, .payload_beat(r_payload_beat), .payload_data,
        .write_valid(r_write_valid), .write_ready(write_ready && !messages_active), .write_address(r_write_address),
        .write_length(r_write_length), .write_data_valid(r_write_data_valid), .write_data_ready(write_data_ready && !messages_active),
        .write_data(r_write_data), .write_done(write_done && !messages_active), .write_error,
        .answer_valid(r_answer_valid), .answer_ready(answer_ready && !takes_m_answer), .answer(r_answer), .answer_length(r_answer_length),
        .event_valid(r_event_valid), .event_ready(event_ready && !takes_m_event), .event_data(r_event_data),
        .fault_valid(r_fault_valid), .fault_ready(fault_ready && !takes_m_fault), .fault_event(r_fault_event),
        .command_valid(command_valid && !r_is_done), .command_ready(r_command_ready), .command, .command_index, .window_source, .window_base,
        .window_length, .window_key, .window_permissions, .command_failed(r_command_failed), .registry_shadow(r_registry_shadow),
        .escape_shadow, .memory_shadow(r_memory_shadow), .registry_occupancy(r_registry_occupancy),
        .registry_high_water(r_registry_high_water), .escape_occupancy, .escape_high_water, .memory_occupancy,
        .count_duplicates(r_duplicates), .count_registrations(r_registrations), .count_completions(r_completions), .count_escape_hits,
        .count_escape_dropped, .count_registry_full(r_registry_full), .count_bad_packet(r_bad_packet), .count_violations(r_violations),
        .count_tombstone_hits(r_tombstone_hits), .count_expired(r_expired), .count_nacks_sent(r_nacks_sent),
        .count_acks_sent(r_acks_sent), .count_trimmed, .idle(r_idle)
    );

    if (MESSAGE_CONTEXTS != 0) begin : g_messages
        // The registry's receiver shows the memory windows; both have the same.
        /* verilator lint_off PINCONNECTEMPTY */
        ni_message_receive #(
            .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .CONTEXTS(MESSAGE_CONTEXTS), .WINDOW(MESSAGE_WINDOW), .MEMORY_WINDOWS(MEMORY_WINDOWS),
            .PEERS(MESSAGE_PEERS), .NODES(NODES)
        ) messages (
            .clk, .rst_n, .now, .node, .incarnation, .registry_timeout, .packet_lifetime, .timeouts_changed, .window(message_window),
            .credit(message_credit), .patience(message_patience), .round_trip(round_trip_ns), .notice_slots,
            .packet_valid(packet_valid && messages_active && !is_clearing), .packet_ready(m_packet_ready), .packet_header,
            .packet_payload_length, .packet_time, .payload_beat(m_payload_beat), .payload_data,
            .write_valid(m_write_valid), .write_ready(write_ready && messages_active), .write_address(m_write_address),
            .write_length(m_write_length), .write_data_valid(m_write_data_valid), .write_data_ready(write_data_ready && messages_active),
            .write_data(m_write_data), .write_done(write_done && messages_active), .write_error,
            .answer_valid(m_answer_valid), .answer_ready(answer_ready && takes_m_answer), .answer(m_answer),
            .answer_length(m_answer_length), .event_valid(m_event_valid), .event_ready(event_ready && takes_m_event),
            .event_data(m_event_data), .fault_valid(m_fault_valid), .fault_ready(fault_ready && takes_m_fault), .fault_event(m_fault_event),
            .command_valid(command_valid && !m_is_done), .command_ready(m_command_ready), .command, .command_index, .window_source,
            .window_base, .window_length, .window_key, .window_permissions, .command_failed(m_command_failed),
            .registry_shadow(m_registry_shadow), .memory_shadow(), .registry_occupancy(m_registry_occupancy),
            .registry_high_water(m_registry_high_water), .memory_occupancy(),
            .count_duplicates(m_duplicates), .count_registrations(m_registrations), .count_completions(m_completions),
            .count_registry_full(m_registry_full), .count_bad_packet(m_bad_packet), .count_violations(m_violations),
            .count_tombstone_hits(m_tombstone_hits), .count_expired(m_expired), .count_nacks_sent(m_nacks_sent),
            .count_acks_sent(m_acks_sent), .idle(m_idle)
        );
        /* verilator lint_on PINCONNECTEMPTY */
    end else begin : g_none
        assign {m_packet_ready, m_write_valid, m_write_data_valid, m_answer_valid, m_event_valid, m_fault_valid, m_command_failed} = '0;
        assign {m_command_ready, m_idle} = '1;
        assign m_payload_beat = '0;
        assign {m_write_address, m_write_length, m_write_data, m_answer, m_answer_length, m_event_data, m_fault_event} = '0;
        assign {m_registry_shadow, m_registry_occupancy, m_registry_high_water} = '0;
        assign {m_duplicates, m_registrations, m_completions, m_registry_full, m_bad_packet, m_violations, m_tombstone_hits, m_expired,
            m_nacks_sent, m_acks_sent} = '0;
        wire unused = &{1'b0, message_window, message_credit, message_patience, round_trip_ns};
    end
endmodule
