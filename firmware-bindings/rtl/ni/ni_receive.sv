// Receiver of the registry scheme (docs/protocol/receiver.md 5): takes DATA, START and ARRIVED packets, writes their payload to card
// memory, and reports with answers, events and faults.
//
// One total order: packet, then command of the host, then timeout; each is finished before the next one begins, with one exception.
// A DATA packet of a registered segment whose bit is clear and that its memory window allows (the fast path) is finished by the response
// to its write: it waits in `ni_inflight` while later packets are examined. A packet that is not on the fast path waits until no
// write is under way, so it finds the state in which its predecessors left it. A bit is set, and an answer leaves, after the response.
//
// Latency of the fast path: 4 cycles from `packet_valid` to the first beat of the write, then one beat per cycle, and the next packet in
// the cycle after the last beat. The other packets take as many cycles as they search: records of senders and transfers are searched four
// per cycle; escape slots, tombstones and memory windows one per cycle.
//
// This module is the wiring: the tables, the records of them that are selected, and the modules that use them, one of which runs at a time:
//
//   ni_receive_control   packets: fast path, duplicates, escape channel; calls the others
//   ni_receive_start     registration of a segment by its START packet
//   ni_receive_end       completion of segments, notices, ends of transfers
//   ni_receive_sweep     ends what has expired, or what senders have given up
//   ni_receive_timer     timeouts
//   ni_receive_command   commands of the host
//   ni_receive_write     payload to memory, or into the escape channel
//   ni_receive_report    answers, events and faults
//
// One file, although it is long: the ports of these modules and of the tables, once each.
//
// Reset and the command CLEAR clear valid bits and counts; the memories keep their values, which nothing reads. Reset drops answers and
// events that wait; CLEAR lets them leave.
//
// Context of a packet, from bit 0: source, incarnation, transfer, segment (32 each), op number (32), try count (8), path (8), marked (1),
// DELAY of its ACK (16), time (64), payload length (16), address (64).

`timescale 1ns / 1ps

module ni_receive #(
    parameter int BUS = 128,
    parameter int PACKET_LOG2 = 9,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    // Registry: 0: all keys are compared at once; 1: four of them.
    parameter bit HASHED = 1'b0,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 64,
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    parameter int TOMBSTONES = 128,
    parameter int NODES = 1024,
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                 clk,
    input  wire                 rst_n,
    // Nanoseconds since reset: timeouts and ages.
    input  wire  [63:0]         now,
    // Settings. A change of a timeout is announced by a pulse of `timeouts_changed`.
    input  wire  [31:0]         node,
    input  wire  [31:0]         incarnation,
    input  wire                 packet_events,
    input  wire  [63:0]         escape_timeout,
    input  wire  [63:0]         registry_timeout,
    input  wire  [63:0]         packet_lifetime,
    input  wire                 timeouts_changed,
    // Free slots for notices, after all events that were accepted up to the previous cycle; all ones: unlimited.
    input  wire  [31:0]         notice_slots,

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
    output logic [31:0]         registry_high_water,
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
    localparam int CONTEXT = 337;
    localparam int ENTRY_BITS = $clog2(ENTRIES);
    localparam int SOURCE_BITS = $clog2(SOURCES);
    localparam int TRANSFER_BITS = $clog2(TRANSFERS);
    localparam int WINDOW_BITS = $clog2(MEMORY_WINDOWS);
    localparam int SLOT_BITS = $clog2(ESCAPE_SLOTS);

    localparam logic [1:0] NOTICE_NEVER = 2'd0;
    localparam logic [1:0] NOTICE_ON_LAST = 2'd1;
    localparam logic [1:0] NOTICE_ON_ARRIVED = 2'd2;

    localparam logic [1:0] TOMBSTONE_CHECK = 2'd0;
    localparam logic [1:0] TOMBSTONE_INSERT = 2'd1;
    localparam logic [1:0] TOMBSTONE_ADVANCE = 2'd2;
    localparam logic [1:0] TOMBSTONE_RESET = 2'd3;

    localparam logic [1:0] ESCAPE_SAME = 2'd0;
    localparam logic [1:0] ESCAPE_OPERATION = 2'd1;
    localparam logic [1:0] ESCAPE_EXPIRED = 2'd2;
    localparam logic [1:0] ESCAPE_TIMER = 2'd3;

    // ---- The packet: that of the port, or one from the escape channel --------------------------------------------------------------

    wire          control_held;
    wire          timer_held;
    wire          held = control_held || timer_held;
    wire  [447:0] escape_header;
    wire  [15:0]  escape_length;
    wire  [703:0] h = held ? {256'd0, escape_header} : packet_header;
    wire  [7:0]   h_flags = h[ni_pkg::DATA_FLAGS_LSB +: 8];
    wire  [31:0]  h_source = h[ni_pkg::DATA_SOURCE_LSB +: 32];
    wire  [31:0]  h_incarnation = h[ni_pkg::DATA_INCARNATION_LSB +: 32];
    wire  [31:0]  h_transfer = h[ni_pkg::DATA_TRANSFER_LSB +: 32];
    wire  [31:0]  h_oldest_live = h[ni_pkg::DATA_OLDEST_LIVE_LSB +: 32];
    wire  [31:0]  h_segment = h[ni_pkg::DATA_SEGMENT_LSB +: 32];
    wire  [31:0]  h_segment_count = h[ni_pkg::DATA_SEGMENT_COUNT_LSB +: 32];
    wire  [63:0]  h_address = h[ni_pkg::DATA_ADDRESS_LSB +: 64];
    wire  [63:0]  h_key = h[ni_pkg::DATA_KEY_LSB +: 64];
    wire  [63:0]  h_base = h[ni_pkg::START_BASE_LSB +: 64];
    wire  [31:0]  h_segment_length = h[ni_pkg::START_SEGMENT_LENGTH_LSB +: 32];
    wire  [15:0]  h_packets = h[ni_pkg::START_PACKETS_LSB +: 16];
    wire  [63:0]  h_transfer_base = h[ni_pkg::START_TRANSFER_BASE_LSB +: 64];
    wire  [63:0]  h_transfer_length = h[ni_pkg::START_TRANSFER_LENGTH_LSB +: 64];
    wire  [127:0] h_name = {h_segment, h_transfer, h_incarnation, h_source};
    wire          is_trimmed = h_flags[ni_pkg::FLAGS_TRIMMED_BIT];
    wire  [15:0]  h_length = is_trimmed ? 16'd0 : held ? escape_length : packet_payload_length;
    wire  [1:0]   h_notice = h_flags[ni_pkg::FLAGS_NO_NOTICE_BIT] ? NOTICE_NEVER
        : h_flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT] ? NOTICE_ON_LAST : NOTICE_ON_ARRIVED;

    wire  [15:0]  delay;
    wire          timer_busy;
    wire  [63:0]  time_of_timeout;
    wire  [63:0]  h_time = timer_busy ? time_of_timeout : packet_time;
    wire  [CONTEXT-1:0] h_context = {h_address, h_length, h_time, delay, h_flags[ni_pkg::FLAGS_MARKED_BIT],
        h[ni_pkg::DATA_PATH_LSB +: 8], h[ni_pkg::DATA_TRIES_LSB +: 8], h[ni_pkg::DATA_OP_LSB +: 32], h_name};

    // Context of the packet in progress: `h`, or one whose write was answered.
    logic [CONTEXT-1:0] c;
    wire  [63:0]  c_address;
    wire  [15:0]  c_length;
    wire  [63:0]  c_now;
    wire  [31:0]  c_segment = c[127:96];
    assign {c_address, c_length, c_now} = c[CONTEXT-1:193];

    // ---- Selected records: every table shows the record of its register -------------------------------------------------------------

    logic [ENTRY_BITS-1:0]    e_index;
    logic [SOURCE_BITS-1:0]   s_index;
    logic [TRANSFER_BITS-1:0] t_index;
    logic [SLOT_BITS-1:0]     x_index;

    // ---- Outputs of the tables ---------------------------------------------------------------------------------------------------

    wire found, e_live, read_silent, read_notify, has_free_entry;
    wire [ENTRY_BITS-1:0] found_index, free_entry;
    wire [127:0] e_name;
    wire [63:0] read_base, read_touched;
    wire [31:0] read_length, read_segment_count, read_generation, commit_generation;
    wire [8:0] read_packets;
    wire [SOURCE_BITS-1:0] read_source;
    wire [TRANSFER_BITS-1:0] read_transfer;
    wire [WINDOW_BITS-1:0] read_window;
    wire [MASK_BITS-1:0] read_mask, commit_mask;
    wire [ENTRY_BITS:0] registry_used;

    wire senders_done, s_found, s_free, s_in_use;
    wire [SOURCE_BITS-1:0] s_found_index, s_free_index;
    wire [63:0] s_name, s_touched;
    wire [31:0] s_oldest;
    wire [15:0] s_transfers, s_announced, s_active;

    wire transfers_done, t_found, t_free, t_in_use, t_awaits_notice, t_awaits_slot, t_segment_done, t_segment_covered, mark_done;
    wire [TRANSFER_BITS-1:0] t_found_index, t_free_index;
    wire [SOURCE_BITS-1:0] t_source;
    wire [31:0] t_id, t_segment_count, t_done_base;
    wire [63:0] t_base, t_length, t_touched;
    wire [1:0] t_notice;
    wire [15:0] t_registered;

    wire tombstones_done, tombstone, adjacent, nodes_done, node_found, node_available;
    wire [15:0] ranges_used;
    wire [31:0] node_incarnation;

    wire probe_allows, access_done, allowed, window_valid;
    wire [WINDOW_BITS-1:0] allowed_index;
    wire [225:0] window;
    wire [WINDOW_BITS:0] windows_used;

    wire escape_done, x_found, x_vacant, x_valid;
    wire [SLOT_BITS-1:0] x_found_index, x_vacant_index;
    wire [63:0] x_arrived, escape_deadline;
    wire [BUS-1:0] x_payload;
    wire [SLOT_BITS:0] escape_used, escape_most;

    wire inflight_full, inflight_empty, in_flight, head_answered, head_error, head_start;
    wire [ENTRY_BITS-1:0] head_entry;
    wire [7:0] head_number;
    wire [CONTEXT-1:0] head_context;

    wire answer_space, event_space, events_quiet, fault_space, shadow_done, slots_settled, has_slot, admits_notifying;
    wire [15:0] refusal_delay;

    // In units of DELAY_UNIT_NS.
    wire [63:0] x_wait = c_now > x_arrived ? (c_now - x_arrived) >> 6 : 64'd0;

    // ---- Outputs of the modules ----------------------------------------------------------------------------------------------------

    wire control_load_context, control_idle, control_start_command, control_start_timer, control_begin_start,
        control_sender_known, control_transfer_known, control_complete, control_retry, control_announce, control_reading,
        control_select_entry, control_touch_entry, control_set_window, control_search_senders, control_select_sender,
        control_touch_sender, control_advance, control_advanced, control_search_records, control_search_arrived,
        control_select_transfer, control_touch_transfer, control_search_access, control_find_node, control_search_same,
        control_search_operation, control_select_slot, control_store, control_refresh_slot, control_release_slot,
        control_note_wait, control_write_start, control_rewind, control_ack, control_nack, control_fault,
        control_report_escaped, control_report_released, control_count_duplicates, control_count_escape_dropped,
        control_count_foreign, control_count_tombstone_hits, control_count_trimmed;
    wire [ENTRY_BITS-1:0] control_select_entry_index;
    wire [SOURCE_BITS-1:0] control_select_sender_index;
    wire [TRANSFER_BITS-1:0] control_select_transfer_index;
    wire [WINDOW_BITS-1:0] control_probe;
    wire [SLOT_BITS-1:0] control_search_from, control_select_slot_index;
    wire [7:0] control_nack_reason, control_fault_reason;
    wire [63:0] control_fault_address;
    wire [15:0] control_fault_length;

    wire start_busy, start_registered, start_whole, start_search_access, start_find_node, start_admit_node, start_activate_node,
        start_sweep, start_former, start_search_senders, start_select_sender, start_open_sender, start_search_records,
        start_s_known, start_select_transfer, start_open_transfer, start_insert_entry, start_write_start, start_take_response,
        start_complete, start_count_full, start_refuse, start_ack, start_nack, start_fault, start_report_registered,
        start_report_packet;
    wire [SOURCE_BITS-1:0] start_sender;
    wire [TRANSFER_BITS-1:0] start_transfer_index;
    wire [7:0] start_nack_reason, start_fault_reason;
    wire [15:0] start_nack_delay;
    wire [63:0] start_fault_address;
    wire [31:0] start_fault_length;

    wire end_busy, end_select_transfer, end_select_sender, end_mark_segment, end_remove_entry, end_set_awaits_notice,
        end_set_awaits_slot, end_awaits_slot, end_close_transfer, end_close_complete, end_ack, end_nack, end_done_report,
        end_report_packet, end_report_completed, end_report_notice;
    wire [7:0] end_packet_number;

    wire sweep_busy, sweep_due, sweep_select_entry, sweep_select_transfer, sweep_select_sender, sweep_expiring,
        sweep_end_transfer, sweep_find_node, sweep_in_senders, sweep_release_node, sweep_close_sender;
    wire [63:0] sweep_deadline;
    wire [ENTRY_BITS-1:0] sweep_entry;
    wire [TRANSFER_BITS-1:0] sweep_transfer;
    wire [SOURCE_BITS-1:0] sweep_sender;

    wire timer_load_context, timer_search_expired, timer_search_earliest, timer_select_slot,
        timer_release_slot, timer_sweep, timer_report_released, timer_nack;
    wire [SLOT_BITS-1:0] timer_from;

    wire command_probe, command_install, command_remove, command_select_entry_and_slot, command_select_transfer,
        command_latch_entry, command_latch_slot;

    wire writer_done;

    // ---- Requests of several modules -----------------------------------------------------------------------------------------------

    wire                sound_start;
    wire                is_last_beat;
    wire [BEAT_BITS-1:0] beat;
    wire [7:0]          number;
    wire [MASK_BITS-1:0] new_mask;
    wire                commit;
    wire                take_head;
    wire                clear;
    logic               resettle;

    wire write_start = control_write_start || start_write_start;
    wire search_records = control_search_records || start_search_records;
    wire expire = sweep_expiring && event_space;
    wire remove_entry = expire || end_remove_entry;
    wire touches_transfer = start_insert_entry || end_mark_segment;
    wire report_ack = control_ack || start_ack || end_ack;
    wire report_nack = control_nack || start_nack || end_nack || timer_nack;
    wire report_fault = control_fault || start_fault;
    wire [7:0] fault_reason = start_busy ? start_fault_reason : control_fault_reason;
    wire [7:0] nack_reason = timer_busy ? ni_pkg::NACK_REASON_BUSY : end_busy ? ni_pkg::NACK_REASON_NOT_READY
        : start_busy ? start_nack_reason : control_nack_reason;
    wire is_timer_due = escape_deadline <= now || sweep_deadline <= now || resettle;

    always_ff @(posedge clk) begin
        if (control_select_entry) e_index <= control_select_entry_index;
        if (start_insert_entry) e_index <= free_entry;
        if (sweep_select_entry) e_index <= sweep_entry;
        if (command_select_entry_and_slot) e_index <= command_index[ENTRY_BITS-1:0];

        if (control_select_sender) s_index <= control_select_sender_index;
        if (start_select_sender) s_index <= start_sender;
        if (sweep_select_sender) s_index <= sweep_sender;
        if (end_select_sender) s_index <= t_source;

        if (control_select_transfer) t_index <= control_select_transfer_index;
        if (start_select_transfer) t_index <= start_transfer_index;
        if (sweep_select_transfer) t_index <= sweep_transfer;
        if (end_select_transfer || command_select_transfer) t_index <= read_transfer;

        if (control_select_slot) x_index <= control_select_slot_index;
        if (timer_select_slot) x_index <= x_found_index;
        if (command_select_entry_and_slot) x_index <= command_index[SLOT_BITS-1:0];

        if (take_head) c <= head_context;
        else if (control_load_context || timer_load_context) c <= h_context;

        if (control_idle) resettle <= 1'b0;
        if (timeouts_changed) resettle <= 1'b1;
        if (!rst_n) resettle <= 1'b0;
    end

    assign write_address = c_address;
    assign write_length = c_length;
    assign write_data = held ? x_payload : payload_data;

    // ---- Modules -------------------------------------------------------------------------------------------------------------------

    ni_receive_control #(
        .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .ENTRY_BITS(ENTRY_BITS), .SOURCE_BITS(SOURCE_BITS), .TRANSFERS(TRANSFERS),
        .WINDOW_BITS(WINDOW_BITS), .ESCAPE_SLOTS(ESCAPE_SLOTS)
    ) control (
        .clk, .rst_n, .packet_events, .node, .packet_valid, .packet_ready, .h, .h_length, .held(control_held), .delay,
        .load_context(control_load_context), .idle(control_idle), .sound_start, .start_command(control_start_command), .command_valid,
        .command_ready, .start_timer(control_start_timer), .timer_busy, .timeout_due(is_timer_due && !resettle),
        .begin_start(control_begin_start), .sender_known(control_sender_known), .transfer_known(control_transfer_known), .start_busy,
        .registered(start_registered), .complete(control_complete), .retry(control_retry), .announce(control_announce), .end_busy,
        .reading(control_reading), .found, .found_index, .entry_base(read_base), .entry_length(read_length),
        .entry_segment_count(read_segment_count), .entry_packets(read_packets), .entry_sender(read_source),
        .entry_transfer(read_transfer), .entry_window(read_window), .entry_mask(read_mask), .select_entry(control_select_entry),
        .select_entry_index(control_select_entry_index), .touch_entry(control_touch_entry), .set_window(control_set_window),
        .search_senders(control_search_senders), .senders_done, .sender_found(s_found), .sender_found_index(s_found_index),
        .sender_oldest(s_oldest), .sender_transfers(s_transfers), .sender_announced(s_announced), .select_sender(control_select_sender),
        .select_sender_index(control_select_sender_index), .touch_sender(control_touch_sender), .advance(control_advance),
        .advanced(control_advanced), .search_records(control_search_records), .search_arrived(control_search_arrived), .transfers_done,
        .transfer_found(t_found), .transfer_found_index(t_found_index), .transfer_of_sender(t_in_use && t_source == s_index),
        .transfer_id(t_id), .transfer_length(t_length), .transfer_awaits_notice(t_awaits_notice), .transfer_awaits_slot(t_awaits_slot),
        .segment_done(t_segment_done), .select_transfer(control_select_transfer), .select_transfer_index(control_select_transfer_index),
        .touch_transfer(control_touch_transfer), .tombstones_done, .tombstone, .probe(control_probe), .probe_allows,
        .search_access(control_search_access), .access_done, .allowed, .find_node(control_find_node), .nodes_done, .node_found,
        .node_incarnation, .search_same(control_search_same), .search_operation(control_search_operation),
        .search_from(control_search_from), .escape_done, .slot_found(x_found), .slot_found_index(x_found_index), .slot_vacant(x_vacant),
        .slot_vacant_index(x_vacant_index), .slots_used(escape_used != 0), .slot_wait(x_wait), .select_slot(control_select_slot),
        .select_slot_index(control_select_slot_index), .store(control_store), .refresh_slot(control_refresh_slot),
        .release_slot(control_release_slot), .note_wait(control_note_wait), .write_start(control_write_start), .rewind(control_rewind),
        .write_done(writer_done), .is_last_beat, .number, .in_flight, .inflight_full, .inflight_empty, .head_answered, .head_error,
        .head_start, .head_entry, .head_number, .commit_mask, .new_mask, .commit, .take_head, .ack(control_ack), .nack(control_nack),
        .nack_reason(control_nack_reason), .fault(control_fault), .fault_reason(control_fault_reason),
        .fault_address(control_fault_address), .fault_length(control_fault_length), .report_escaped(control_report_escaped),
        .report_released(control_report_released), .answer_space, .event_space, .fault_space, .context_address(c_address),
        .context_length(c_length), .count_duplicates(control_count_duplicates), .count_escape_dropped(control_count_escape_dropped),
        .count_foreign(control_count_foreign), .count_tombstone_hits(control_count_tombstone_hits),
        .count_trimmed(control_count_trimmed)
    );

    ni_receive_start #(.SOURCES(SOURCES), .TRANSFERS(TRANSFERS), .TOMBSTONES(TOMBSTONES)) start (
        .clk, .rst_n, .packet_events, .begin_start(control_begin_start), .sender_known(control_sender_known),
        .transfer_known(control_transfer_known), .busy(start_busy), .registered(start_registered), .trimmed(is_trimmed), .sound_start,
        .incarnation(h_incarnation), .transfer(h_transfer), .segment(h_segment), .segment_count(h_segment_count), .packets(h_packets),
        .address(h_address), .length(h_length), .base(h_base), .segment_length(h_segment_length), .transfer_base(h_transfer_base),
        .transfer_length(h_transfer_length), .notifies(h_notice != NOTICE_NEVER), .whole(start_whole),
        .search_access(start_search_access), .access_done, .allowed, .nodes_done, .node_found, .node_available, .node_incarnation,
        .find_node(start_find_node), .admit_node(start_admit_node), .activate_node(start_activate_node), .sweep(start_sweep),
        .former(start_former), .sweep_busy, .sweep_due, .search_senders(start_search_senders), .senders_done, .sender_found(s_found),
        .sender_found_index(s_found_index), .sender_free(s_free), .sender_free_index(s_free_index), .sender_oldest(s_oldest),
        .sender_transfers(s_transfers), .select_sender(start_select_sender), .sender(start_sender), .open_sender(start_open_sender),
        .search_records(start_search_records), .s_known(start_s_known), .transfers_done, .transfer_found(t_found),
        .transfer_found_index(t_found_index), .transfer_free(t_free), .transfer_free_index(t_free_index),
        .record_segment_count(t_segment_count), .record_base(t_base), .record_length(t_length), .record_covers(t_segment_covered),
        .select_transfer(start_select_transfer), .transfer_index(start_transfer_index), .open_transfer(start_open_transfer),
        .tombstones_done, .tombstone_adjacent(adjacent), .tombstones_used(ranges_used), .has_free_entry,
        .insert_entry(start_insert_entry), .slots_settled, .has_slot, .admits_notifying, .write_start(start_write_start),
        .write_done(writer_done), .take_response(start_take_response), .answered(head_answered), .refused(head_error),
        .complete(start_complete), .end_busy, .count_full(start_count_full), .refuse(start_refuse), .refusal_delay, .ack(start_ack),
        .nack(start_nack), .nack_reason(start_nack_reason), .nack_delay(start_nack_delay), .fault(start_fault),
        .fault_reason(start_fault_reason), .fault_address(start_fault_address), .fault_length(start_fault_length), .answer_space,
        .fault_space, .report_registered(start_report_registered), .report_packet(start_report_packet), .event_space
    );

    ni_receive_end ends (
        .clk, .rst_n, .packet_events, .complete(control_complete || start_complete), .number(start_complete ? 8'd0 : head_number),
        .retry(control_retry), .announce(control_announce), .drop(sweep_end_transfer), .busy(end_busy),
        .transfer_segment_count(t_segment_count), .transfer_done_base(t_done_base), .transfer_notice(t_notice),
        .transfer_awaits_notice(t_awaits_notice), .slots_settled, .has_slot, .select_transfer(end_select_transfer),
        .select_sender(end_select_sender), .mark_segment(end_mark_segment), .mark_done, .remove_entry(end_remove_entry),
        .set_awaits_notice(end_set_awaits_notice), .set_awaits_slot(end_set_awaits_slot), .awaits_slot(end_awaits_slot),
        .close_transfer(end_close_transfer), .close_complete(end_close_complete), .tombstones_done, .ack(end_ack), .nack(end_nack),
        .done_report(end_done_report), .answer_space, .report_packet(end_report_packet), .report_completed(end_report_completed),
        .report_notice(end_report_notice), .packet_number(end_packet_number), .event_space
    );

    ni_receive_sweep #(.ENTRIES(ENTRIES), .SOURCES(SOURCES), .TRANSFERS(TRANSFERS)) sweep (
        .clk, .rst_n, .clear, .registry_timeout, .packet_lifetime, .start(start_sweep || timer_sweep), .former(start_former),
        .source(h_source), .incarnation(h_incarnation), .now(c_now), .busy(sweep_busy), .registered(start_insert_entry),
        .advanced(control_advanced), .timeouts_changed(control_idle && resettle), .due(sweep_due), .deadline(sweep_deadline),
        .select_entry(sweep_select_entry), .entry(sweep_entry), .select_transfer(sweep_select_transfer), .transfer(sweep_transfer),
        .select_sender(sweep_select_sender), .sender(sweep_sender), .entry_live(e_live), .entry_transfer_id(e_name[95:64]),
        .entry_sender(read_source), .entry_transfer(read_transfer), .entry_touched(read_touched), .event_space,
        .expiring(sweep_expiring), .transfer_in_use(t_in_use), .transfer_id(t_id), .transfer_sender(t_source),
        .transfer_registered(t_registered), .transfer_touched(t_touched), .end_transfer(sweep_end_transfer), .end_busy,
        .sender_in_use(s_in_use), .sender_name(s_name), .sender_oldest(s_oldest), .sender_transfers(s_transfers),
        .sender_touched(s_touched), .find_node(sweep_find_node), .in_senders(sweep_in_senders), .node_done(nodes_done),
        .release_node(sweep_release_node), .close_sender(sweep_close_sender)
    );

    ni_receive_timer #(.ESCAPE_SLOTS(ESCAPE_SLOTS)) timer (
        .clk, .rst_n, .now, .start(control_start_timer), .busy(timer_busy), .time_of_timeout, .held(timer_held),
        .load_context(timer_load_context), .escape_deadline, .search_expired(timer_search_expired),
        .search_earliest(timer_search_earliest), .from(timer_from), .escape_done, .found(x_found), .found_index(x_found_index),
        .select_slot(timer_select_slot), .release_slot(timer_release_slot), .record_deadline(sweep_deadline), .sweep(timer_sweep),
        .sweep_busy, .report_released(timer_report_released), .event_space, .nack(timer_nack), .answer_space
    );

    ni_receive_command #(.ENTRIES(ENTRIES), .ESCAPE_SLOTS(ESCAPE_SLOTS), .MEMORY_WINDOWS(MEMORY_WINDOWS)) commands (
        .clk, .rst_n, .start(control_start_command), .command, .index(command_index), .ready(command_ready), .failed(command_failed),
        .window_base, .window_length, .probe(command_probe), .install(command_install), .remove(command_remove), .clear,
        .select_entry_and_slot(command_select_entry_and_slot), .select_transfer(command_select_transfer),
        .latch_entry(command_latch_entry), .latch_slot(command_latch_slot), .shadow_done, .window_valid, .window, .memory_shadow
    );

    ni_receive_write #(.BUS(BUS), .BEAT_BITS(BEAT_BITS)) writer (
        .clk, .rst_n, .start(write_start), .store(control_store), .rewind(control_rewind), .length(h_length), .beat, .is_last_beat,
        .done(writer_done), .payload_beat, .write_valid, .write_ready, .write_data_valid, .write_data_ready
    );

    ni_notice_slots #(.TRANSFERS(TRANSFERS)) notice (
        .clk, .rst_n, .clear, .slots(notice_slots), .events_quiet, .open(start_open_transfer && h_notice != NOTICE_NEVER),
        .close(end_close_transfer && t_notice != NOTICE_NEVER), .reserve(end_set_awaits_notice),
        .close_reserved(end_close_transfer && t_awaits_notice), .settled(slots_settled), .has_slot, .admits(admits_notifying)
    );

    ni_receive_report #(.CONTEXT(CONTEXT)) report (
        .clk, .rst_n, .packet_events, .node, .incarnation, .context_in(commit ? head_context : c), .commit,
        .head_entry(16'(head_entry)), .head_number, .head_generation(commit_generation), .ack(report_ack), .nack(report_nack),
        .segment_done(end_done_report), .senders(s_active), .nack_reason, .newest(node_incarnation),
        .nack_delay(start_busy ? start_nack_delay : 16'd0), .answer_space, .packet(start_report_packet || end_report_packet),
        .packet_number(end_busy ? end_packet_number : 8'd0), .registered(start_report_registered), .completed(end_report_completed),
        .expired(sweep_expiring), .notice(end_report_notice), .escaped(control_report_escaped), .released(control_report_released),
        .timed_out(timer_report_released), .entry(16'(e_index)), .entry_generation(read_generation), .entry_key(e_name),
        .slot(16'(x_index)), .sender_name(s_name), .transfer(t_id), .transfer_base(t_base), .transfer_length(t_length),
        .start_trimmed(is_trimmed), .start_flags(h_flags), .start_segment_count(h_segment_count), .start_packets(h_packets),
        .start_base(h_base), .start_length(h_segment_length), .event_space, .events_quiet, .fault(report_fault), .fault_reason,
        .fault_address(start_busy ? start_fault_address : control_fault_address),
        .fault_length(start_busy ? start_fault_length : {16'd0, control_fault_length}), .fault_space, .answer_valid, .answer_ready,
        .answer_data(answer), .answer_length, .event_valid, .event_ready, .event_data, .fault_valid, .fault_ready, .fault_event
    );

    // ---- Tables --------------------------------------------------------------------------------------------------------------------

    ni_registry #(
        .HASHED(HASHED), .ENTRIES(ENTRIES), .MASK_BITS(MASK_BITS), .SOURCES(SOURCES), .TRANSFERS(TRANSFERS), .MEMORY_WINDOWS(MEMORY_WINDOWS)
    ) registry (
        .clk, .rst_n, .clear,
        .lookup_key(h_name), .found, .found_index,
        .index(e_index), .show_found(control_reading),
        .read_live(e_live), .read_key(e_name), .read_base, .read_length, .read_segment_count, .read_packets, .read_silent, .read_notify,
        .read_source, .read_transfer, .read_window, .read_mask, .read_touched, .read_generation,
        .insert(start_insert_entry), .insert_base(h_base), .insert_length(h_segment_length), .insert_segment_count(h_segment_count),
        .insert_packets(h_packets[8:0]), .insert_silent(h_flags[ni_pkg::FLAGS_SILENT_BIT]),
        .insert_notify(h_flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT]), .insert_source(s_index), .insert_transfer(t_index),
        // Bits beyond the packets are ones (5.3). A trimmed START leaves its own packet missing (5.11).
        .insert_mask(({MASK_BITS{1'b1}} << h_packets[8:0]) | MASK_BITS'(!is_trimmed)),
        .free_index(free_entry), .has_free(has_free_entry),
        .remove(remove_entry), .touch(control_touch_entry), .touch_time(c_now),
        .set_window(control_set_window), .window(allowed_index),
        .commit_index(head_entry), .commit_mask, .commit_generation, .commit, .commit_new_mask(new_mask),
        .commit_time(head_context[193 +: 64]),
        .occupancy(registry_used)
    );

    ni_senders #(.SOURCES(SOURCES)) senders (
        .clk, .rst_n, .clear,
        .name({h_incarnation, h_source}),
        .search(control_search_senders || start_search_senders),
        .search_done(senders_done), .found(s_found), .found_index(s_found_index), .free(s_free), .free_index(s_free_index),
        .index(s_index), .read_in_use(s_in_use), .read_name(s_name), .read_oldest_live(s_oldest), .read_transfers(s_transfers),
        .read_announced(s_announced), .read_touched(s_touched),
        .open(start_open_sender), .close(sweep_close_sender),
        .set_oldest_live(control_advance), .oldest_live(h_oldest_live),
        .touch(control_touch_sender), .touch_time(c_now),
        .set_transfers(end_close_transfer || start_open_transfer),
        .transfers(start_open_transfer ? s_transfers + 1'b1 : s_transfers - 1'b1),
        .set_announced(end_set_awaits_notice || (end_close_transfer && t_awaits_notice)),
        .announced(end_set_awaits_notice ? s_announced + 1'b1 : s_announced - 1'b1), .active(s_active)
    );

    ni_transfers #(.SOURCES(SOURCES), .TRANSFERS(TRANSFERS)) transfers (
        .clk, .rst_n, .clear,
        .search(search_records || control_search_arrived), .source_known(start_busy ? start_s_known : control_sender_known),
        .source(s_index), .id(h_transfer),
        .search_done(transfers_done), .found(t_found), .found_index(t_found_index), .free(t_free), .free_index(t_free_index),
        .index(t_index), .read_in_use(t_in_use), .read_source(t_source), .read_id(t_id), .read_segment_count(t_segment_count),
        .read_base(t_base), .read_length(t_length), .read_notice(t_notice), .read_registered(t_registered),
        .read_awaits_notice(t_awaits_notice), .read_awaits_slot(t_awaits_slot), .read_touched(t_touched), .read_done_base(t_done_base),
        .segment(c_segment), .segment_done(t_segment_done), .segment_covered(t_segment_covered),
        .open(start_open_transfer), .open_segment_count(h_segment_count), .open_base(h_transfer_base), .open_length(h_transfer_length),
        .open_notice(h_notice), .close(end_close_transfer),
        .set_registered(touches_transfer || expire), .registered(start_insert_entry ? t_registered + 1'b1 : t_registered - 1'b1),
        .touch(touches_transfer || control_touch_transfer), .touch_time(c_now),
        .set_awaits_notice(end_set_awaits_notice), .set_awaits_slot(end_set_awaits_slot), .awaits_slot(end_awaits_slot),
        .mark(end_mark_segment), .mark_done
    );

    ni_tombstones #(.SOURCES(SOURCES), .TOMBSTONES(TOMBSTONES)) tombstones (
        .clk, .rst_n(rst_n && !clear),
        .start(search_records || control_advance || start_open_sender || (end_close_transfer && end_close_complete)),
        .op(control_advance ? TOMBSTONE_ADVANCE : start_open_sender ? TOMBSTONE_RESET : end_close_transfer ? TOMBSTONE_INSERT
            : TOMBSTONE_CHECK),
        .source(s_index), .oldest_live(s_oldest), .id(end_close_transfer ? t_id : h_transfer), .advance_to(h_oldest_live),
        .done(tombstones_done), .contains(tombstone), .adjacent, .used(ranges_used)
    );

    ni_nodes #(.NODES(NODES)) nodes (
        .clk, .rst_n, .clear,
        .start(control_find_node || start_find_node || sweep_find_node),
        .node(sweep_in_senders ? s_name[31:0] : h_source),
        .idle_limit(c_now > packet_lifetime ? c_now - packet_lifetime : 64'd0),
        .done(nodes_done), .found(node_found), .available(node_available), .incarnation(node_incarnation),
        .admit(start_admit_node), .admit_incarnation(h_incarnation),
        .set_active(start_activate_node || (sweep_release_node && node_found && node_incarnation == s_name[63:32])),
        .active(start_activate_node), .now(c_now)
    );

    ni_access #(.MEMORY_WINDOWS(MEMORY_WINDOWS)) access (
        // CLEAR keeps memory windows (interface.md 10.7).
        .clk, .rst_n, .clear(1'b0),
        .source(h_source), .key(h_key), .address(start_whole ? h_base : h_address),
        .length(start_whole ? h_segment_length : {16'd0, h_length}),
        .probe(command_probe ? command_index[WINDOW_BITS-1:0] : control_probe), .probe_allows,
        .search(control_search_access || start_search_access), .search_done(access_done), .allowed, .allowed_index,
        .install(command_install), .remove(command_remove),
        .index(command_index[WINDOW_BITS-1:0]), .window_source, .window_base, .window_length, .window_key, .window_permissions,
        .read_valid(window_valid), .read_window(window), .occupancy(windows_used)
    );

    ni_escape #(.ESCAPE_SLOTS(ESCAPE_SLOTS), .PACKET_LOG2(PACKET_LOG2), .BUS(BUS)) escape (
        .clk, .rst_n, .clear, .now(c_now), .escape_timeout, .packet_lifetime,
        .search(control_search_same || control_search_operation || timer_search_expired || timer_search_earliest),
        .mode(control_search_same ? ESCAPE_SAME : control_search_operation ? ESCAPE_OPERATION
            : timer_search_expired ? ESCAPE_EXPIRED : ESCAPE_TIMER),
        .from(control_search_operation ? control_search_from : timer_search_expired ? timer_from : '0),
        // `h` is the packet of the port in these searches.
        .key(h_name), .address(h_address),
        .search_done(escape_done), .found(x_found), .found_index(x_found_index), .vacant(x_vacant), .vacant_index(x_vacant_index),
        .index(x_index), .read_valid(x_valid), .read_header(escape_header), .read_length(escape_length), .read_arrived(x_arrived),
        .store(control_store && is_last_beat), .header(packet_header[447:0]), .length(h_length), .refresh(control_refresh_slot),
        .release_slot(control_release_slot || timer_release_slot), .note_wait(control_note_wait),
        .payload_write(control_store), .payload_beat(beat), .payload(payload_data),
        .payload_read_beat(payload_beat), .payload_read(x_payload),
        .next_deadline(escape_deadline), .occupancy(escape_used), .high_water(escape_most)
    );

    ni_inflight #(.ENTRIES(ENTRIES), .CONTEXT(CONTEXT)) inflight (
        .clk, .rst_n,
        .push(write_start), .push_start(start_write_start), .push_entry(e_index), .push_number(number), .push_context(c),
        .full(inflight_full), .empty(inflight_empty), .write_done, .write_error,
        .head_answered, .head_error, .head_start, .head_entry, .head_number, .head_context,
        .pop(commit || take_head || start_take_response),
        .search_entry(e_index), .search_number(number), .contains(in_flight)
    );

    ni_refusals #(.ENTRIES(ENTRIES)) refusals (
        .clk, .rst_n, .clear, .release_entry(remove_entry), .refuse(start_refuse), .now(c_now), .delay(refusal_delay)
    );

    ni_receive_shadow #(.MASK_BITS(MASK_BITS)) shadow (
        .clk, .rst_n(rst_n && !clear), .latch_entry(command_latch_entry), .latch_slot(command_latch_slot),
        .valid(!command_failed && (command_latch_slot ? x_valid : e_live)), .index(command_index),
        .age(command_latch_slot ? (now > x_arrived ? now - x_arrived : 64'd0) : (now > read_touched ? now - read_touched : 64'd0)),
        .done(shadow_done),
        .generation(read_generation), .key(e_name), .segment_count(read_segment_count), .base(read_base), .length(read_length),
        .packets(read_packets), .silent(read_silent), .notify(read_notify), .transfer_length(t_length), .mask(read_mask),
        .slot_key({escape_header[ni_pkg::DATA_SEGMENT_LSB +: 32], escape_header[ni_pkg::DATA_TRANSFER_LSB +: 32],
            escape_header[ni_pkg::DATA_INCARNATION_LSB +: 32], escape_header[ni_pkg::DATA_SOURCE_LSB +: 32]}),
        .slot_address(escape_header[ni_pkg::DATA_ADDRESS_LSB +: 64]), .slot_length(escape_length),
        .slot_op(escape_header[ni_pkg::DATA_OP_LSB +: 32]),
        .entry_words(registry_shadow), .slot_words(escape_shadow)
    );

    // ---- Levels and counters -------------------------------------------------------------------------------------------------------

    always_ff @(posedge clk) begin
        if (!rst_n || clear) registry_high_water <= '0;
        else if (registry_occupancy > registry_high_water) registry_high_water <= registry_occupancy;
    end

    assign registry_occupancy = 32'(registry_used);
    assign escape_occupancy = 32'(escape_used);
    assign escape_high_water = 32'(escape_most);
    assign memory_occupancy = 32'(windows_used);
    assign idle = control_idle && !packet_valid && !command_valid && inflight_empty && !is_timer_due && !answer_valid && !event_valid
        && !fault_valid;

    wire is_bad_packet = fault_reason == ni_pkg::FAULT_REASON_BAD_PACKET;
    assign count_duplicates = control_count_duplicates;
    assign count_registrations = start_insert_entry;
    assign count_completions = end_remove_entry;
    assign count_escape_hits = control_report_escaped && event_space;
    assign count_escape_dropped = control_count_escape_dropped || timer_release_slot;
    assign count_registry_full = start_count_full;
    assign count_bad_packet = (report_fault && is_bad_packet) || control_count_foreign;
    assign count_violations = report_fault && !is_bad_packet;
    assign count_tombstone_hits = control_count_tombstone_hits;
    assign count_expired = expire;
    assign count_nacks_sent = report_nack;
    assign count_acks_sent = commit || report_ack;
    assign count_trimmed = control_count_trimmed;

    wire unused = &{1'b0, h};
endmodule
