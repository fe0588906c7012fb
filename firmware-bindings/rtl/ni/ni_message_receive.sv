// Receiver of the scheme receiver-window (docs/protocol/messages.md 7, schemes.md 8.1): takes MESSAGE_REQUEST, MESSAGE_DATA and
// MESSAGE_START packets, writes their payload to card memory, and reports with answers, events and faults. It does not send messages.
//
// Timers and reorder window follow ROUND_TRIP_NS, and nothing is measured (`ni_message_window`).
//
// One total order: timeout, packet, command of the host; each is finished before the next one begins, with one exception. A packet of a message
// in progress that is in the window and new, and that the memory window of its predecessor allows (the fast path), is finished by the
// response to its write: it waits in `inflight` while later packets are examined. Its bit is set at once; its answer leaves after the
// response. A packet that is not on the fast path waits until no write is under way. If memory refuses a write, the message is given up;
// packets of it that were examined before the response are written, too.
//
// Latency of the fast path: 4 cycles from `packet_valid` to the first beat of the write, then one beat per cycle, and the next packet in
// the cycle after the last beat. A packet that shows others to be overtaken takes a cycle for each of them more. The other packets take
// as many cycles as they search.
//
// One file, although it is long: the states share the selected context, and the table ports are driven from several of them.
//
// Reset and the command CLEAR clear valid bits and counts; CLEAR lets waiting answers and events leave.

`timescale 1ns / 1ps

module ni_message_receive #(
    parameter int BUS = 128,
    parameter int PACKET_LOG2 = 9,
    // Powers of two; WINDOW: 32 to 128.
    parameter int CONTEXTS = 64,
    parameter int WINDOW = 128,
    parameter int MEMORY_WINDOWS = 64,
    parameter int PEERS = 1024,
    parameter int NODES = 1024,
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                 clk,
    input  wire                 rst_n,
    // Nanoseconds since reset.
    input  wire  [63:0]         now,
    // Settings. A change of a timeout is announced by a pulse of `timeouts_changed`.
    input  wire  [31:0]         node,
    input  wire  [31:0]         incarnation,
    input  wire  [63:0]         registry_timeout,
    input  wire  [63:0]         packet_lifetime,
    input  wire                 timeouts_changed,
    input  wire  [7:0]          window,
    input  wire                 credit,
    input  wire  [7:0]          patience,
    input  wire  [31:0]         round_trip,
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

    // Command: 0 latch context, 1 latch nothing, 2 latch memory window, 3 install memory window, 4 remove it, 5 clear; as `ni_receive`.
    input  wire                 command_valid,
    output wire                 command_ready,
    input  wire  [2:0]          command,
    input  wire  [15:0]         command_index,
    input  wire  [31:0]         window_source,
    input  wire  [63:0]         window_base,
    input  wire  [63:0]         window_length,
    input  wire  [63:0]         window_key,
    input  wire  [1:0]          window_permissions,
    output logic                command_failed,
    // Words 0 to 23 of block `registry`, and 1 to 8 of block `memory` with VALID in bit 256.
    output wire  [767:0]        registry_shadow,
    output logic [256:0]        memory_shadow,
    output wire  [31:0]         registry_occupancy,
    output wire  [31:0]         registry_high_water,
    output wire  [31:0]         memory_occupancy,

    // One pulse per counted item; names as in block `counters`.
    output wire                 count_duplicates,
    output wire                 count_registrations,
    output wire                 count_completions,
    output wire                 count_registry_full,
    output wire                 count_bad_packet,
    output wire                 count_violations,
    output wire                 count_tombstone_hits,
    output wire                 count_expired,
    output wire                 count_nacks_sent,
    output wire                 count_acks_sent,
    // No packet, command, timeout or report is in progress, and none is due.
    output wire                 idle
);
    localparam int SLOT_BITS = $clog2(CONTEXTS);
    localparam int PEER_BITS = $clog2(PEERS);
    localparam int WINDOW_BITS = $clog2(MEMORY_WINDOWS);
    localparam logic [31:0] SIZE = 32'd1 << PACKET_LOG2;
    localparam logic [31:0] UNLIMITED_SLOTS = 32'hFFFF_FFFF;
    localparam logic [31:0] NO_CONTEXT = 32'hFFFF_FFFF;
    // Maximum number of senders in an answer.
    localparam logic [15:0] SENDERS_MAX = 16'd127;
    // Name, path, mark, time, index, address and length of a packet.
    localparam int PACKET = 96 + 8 + 1 + 64 + 13 + 64 + 16;

    localparam logic [2:0] COMMAND_LATCH_CONTEXT = 3'd0;
    localparam logic [2:0] COMMAND_LATCH_WINDOW = 3'd2;
    localparam logic [2:0] COMMAND_INSTALL = 3'd3;
    localparam logic [2:0] COMMAND_REMOVE = 3'd4;
    localparam logic [2:0] COMMAND_CLEAR = 3'd5;

    // Constants instead of an enumeration: Icarus Verilog 11 takes its names in port connections for new wires.
    // Fast path.
    localparam logic [5:0] IDLE = 6'd0;
    localparam logic [5:0] READ = 6'd1;
    localparam logic [5:0] CHECK = 6'd2;
    localparam logic [5:0] DECIDE = 6'd3;
    localparam logic [5:0] STREAM = 6'd4;
    localparam logic [5:0] DRAIN = 6'd5;
    localparam logic [5:0] FINISH = 6'd6;
    // An accepted packet completes its message, or requests others.
    localparam logic [5:0] AFTER = 6'd7;
    localparam logic [5:0] COMPLETE = 6'd8;
    localparam logic [5:0] NOTICE = 6'd9;
    localparam logic [5:0] OPERATION = 6'd10;
    localparam logic [5:0] EMIT = 6'd11;
    // Answers with a reason, faults, a refused write.
    localparam logic [5:0] REPLY = 6'd12;
    localparam logic [5:0] FAULT = 6'd13;
    localparam logic [5:0] WRITE_ERROR = 6'd14;
    localparam logic [5:0] WRITE_ERROR_END = 6'd15;
    // Packets that are not on the fast path.
    localparam logic [5:0] CLASSIFY = 6'd16;
    localparam logic [5:0] SEARCH = 6'd17;
    localparam logic [5:0] SEARCHED = 6'd18;
    localparam logic [5:0] PAST = 6'd19;
    localparam logic [5:0] REQUESTED = 6'd20;
    localparam logic [5:0] ACCESS = 6'd21;
    // Admission of a message.
    localparam logic [5:0] ADMIT = 6'd22;
    localparam logic [5:0] ADMIT_ACCESS = 6'd23;
    localparam logic [5:0] ADMIT_NODE = 6'd24;
    localparam logic [5:0] SUCCEED = 6'd25;
    localparam logic [5:0] SUCCEED_NEXT = 6'd26;
    localparam logic [5:0] ADMIT_PEER = 6'd27;
    localparam logic [5:0] ADMIT_SEARCH = 6'd28;
    localparam logic [5:0] ADMIT_SEARCHED = 6'd29;
    localparam logic [5:0] ADMIT_SLOT = 6'd30;
    localparam logic [5:0] ADMIT_FREE = 6'd31;
    localparam logic [5:0] INSERT_NODE = 6'd32;
    localparam logic [5:0] INSERT_SCAN = 6'd33;
    localparam logic [5:0] INSERT = 6'd34;
    localparam logic [5:0] REGISTERED = 6'd35;
    localparam logic [5:0] BEGUN = 6'd36;
    // End of a message.
    localparam logic [5:0] END = 6'd37;
    localparam logic [5:0] END_NODE = 6'd38;
    localparam logic [5:0] END_SCAN = 6'd39;
    localparam logic [5:0] END_CLOSE = 6'd40;
    // Timers and commands.
    localparam logic [5:0] TIMER = 6'd41;
    localparam logic [5:0] TIMER_LOAD = 6'd42;
    localparam logic [5:0] TIMER_OPERATION = 6'd43;
    localparam logic [5:0] COMMAND = 6'd44;
    localparam logic [5:0] COMMAND_CONTEXT = 6'd45;
    localparam logic [5:0] COMMAND_LATCH = 6'd46;
    localparam logic [5:0] COMMAND_WINDOW = 6'd47;
    localparam logic [5:0] COMMAND_WAIT = 6'd48;
    logic [5:0] state;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // The packet of the port.

    wire [703:0] h = packet_header;
    wire [7:0]   h_kind = h[ni_pkg::MESSAGE_DATA_KIND_LSB +: 8];
    wire [7:0]   h_flags = h[ni_pkg::MESSAGE_DATA_FLAGS_LSB +: 8];
    wire [31:0]  h_source = h[ni_pkg::MESSAGE_DATA_SOURCE_LSB +: 32];
    wire [31:0]  h_destination = h[ni_pkg::MESSAGE_DATA_DESTINATION_LSB +: 32];
    wire [95:0]  h_name = {h[ni_pkg::MESSAGE_DATA_MESSAGE_LSB +: 32], h[ni_pkg::MESSAGE_DATA_INCARNATION_LSB +: 32], h_source};
    wire [31:0]  h_incarnation = h_name[63:32];
    wire [31:0]  h_message = h_name[95:64];
    wire [31:0]  h_context = h[ni_pkg::MESSAGE_DATA_CONTEXT_LSB +: 32];
    wire [15:0]  h_index = h[ni_pkg::MESSAGE_DATA_INDEX_LSB +: 16];
    wire         h_tail = h[ni_pkg::MESSAGE_DATA_TAIL_LSB];
    wire         is_repeated = h[ni_pkg::MESSAGE_DATA_SEQUENCE_LSB +: 32] == 32'd2;
    wire         is_request = h_kind == ni_pkg::PACKET_KIND_MESSAGE_REQUEST;
    wire         is_start = h_kind == ni_pkg::PACKET_KIND_MESSAGE_START;
    wire [7:0]   h_scheme = is_request ? h[ni_pkg::MESSAGE_REQUEST_SCHEME_LSB +: 8] : h[ni_pkg::MESSAGE_DATA_SCHEME_LSB +: 8];
    wire [7:0]   h_log2 = is_request ? h[ni_pkg::MESSAGE_REQUEST_PACKET_SIZE_LOG2_LSB +: 8]
        : h[ni_pkg::MESSAGE_DATA_PACKET_SIZE_LOG2_LSB +: 8];
    // Announcement: the same fields in the same order.
    wire [31:0]  h_length = is_request ? h[ni_pkg::MESSAGE_REQUEST_LENGTH_LSB +: 32] : h[ni_pkg::MESSAGE_START_LENGTH_LSB +: 32];
    wire [63:0]  h_base = is_request ? h[ni_pkg::MESSAGE_REQUEST_BASE_LSB +: 64] : h[ni_pkg::MESSAGE_START_BASE_LSB +: 64];
    wire [63:0]  h_key = is_request ? h[ni_pkg::MESSAGE_REQUEST_KEY_LSB +: 64] : h[ni_pkg::MESSAGE_START_KEY_LSB +: 64];
    wire [63:0]  h_transfer_base = is_request ? h[ni_pkg::MESSAGE_REQUEST_TRANSFER_BASE_LSB +: 64]
        : h[ni_pkg::MESSAGE_START_TRANSFER_BASE_LSB +: 64];
    wire [63:0]  h_transfer_length = is_request ? h[ni_pkg::MESSAGE_REQUEST_TRANSFER_LENGTH_LSB +: 64]
        : h[ni_pkg::MESSAGE_START_TRANSFER_LENGTH_LSB +: 64];
    wire [31:0]  h_transfer = is_request ? h[ni_pkg::MESSAGE_REQUEST_TRANSFER_LSB +: 32] : h[ni_pkg::MESSAGE_START_TRANSFER_LSB +: 32];
    wire [31:0]  h_read = is_request ? h[ni_pkg::MESSAGE_REQUEST_READ_LSB +: 32] : h[ni_pkg::MESSAGE_START_READ_LSB +: 32];
    wire [31:0]  h_left = is_request ? h[ni_pkg::MESSAGE_REQUEST_LEFT_LSB +: 32] : h[ni_pkg::MESSAGE_START_LEFT_LSB +: 32];
    wire [31:0]  h_packets = (h_length + SIZE - 32'd1) >> PACKET_LOG2;
    wire         h_notifies = !h_flags[ni_pkg::FLAGS_NO_NOTICE_BIT];
    wire         is_for_us = h_destination == node && h_source != ni_pkg::NODE_ANY;
    wire         is_scheme = {24'd0, h_scheme} == ni_pkg::SCHEME_RECEIVER_WINDOW;

    // Packet in progress, or the timer's message.
    logic [95:0] c_name;
    logic [7:0]  c_path;
    logic        c_marked;
    logic [63:0] c_now;
    logic [12:0] c_index;
    logic [63:0] c_address;
    logic [15:0] c_length;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Registers of the control.

    // Context of the packet; the one that the tables show while messages end or records are counted; it is known.
    logic [SLOT_BITS-1:0] e_index;
    logic [SLOT_BITS-1:0] e_saved;
    logic                 located;
    logic                 hit;
    logic                 sound;
    logic [31:0]          e_length;
    logic [WINDOW_BITS-1:0] e_window;
    logic [63:0]          e_key;
    // A scan over all contexts, for others of the same name.
    logic [SLOT_BITS-1:0] scan;
    logic [63:0]          scan_name;
    logic                 scan_found;
    // Answer and fault in progress; states in which the subroutines continue.
    logic [7:0]           reply_kind;
    logic [7:0]           reply_reason;
    logic [31:0]          reply_first;
    logic [31:0]          reply_last;
    logic                 reply_context;
    logic [5:0]           reply_next;
    logic [5:0]           fault_next;
    logic [5:0]           emit_next;
    logic [1:0]           emit_allowance;
    logic [5:0]           end_next;
    logic                 end_complete;
    logic                 end_expired;
    logic [7:0]           fault_kind;
    logic [63:0]          fault_at;
    logic [31:0]          fault_size;
    // The refused write at the head of `inflight` is handled; contexts whose message ended so while others of its writes were under way.
    logic                 in_error;
    logic                 pending_failed;
    logic [5:0]           error_next;
    logic [CONTEXTS-1:0]  failed;
    // Messages ended during the admission; of the sender's earlier incarnation.
    logic                 has_ended;
    logic                 has_succeeded;
    logic                 whole;
    // Nodes with messages in progress; slots of the event ring reserved for notices.
    logic [15:0]          senders;
    logic [15:0]          reserved;
    logic                 timer_silent;

    wire clear = state == COMMAND && command == COMMAND_CLEAR;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Outputs of the tables.

    wire                   r_live;
    wire [95:0]            r_name;
    wire [63:0]            r_base;
    wire [31:0]            r_length;
    wire [12:0]            r_count;
    wire [63:0]            r_key;
    wire [31:0]            r_transfer;
    wire [63:0]            r_transfer_base;
    wire [63:0]            r_transfer_length;
    wire [31:0]            r_read;
    wire [31:0]            r_left;
    wire                   r_notifies;
    wire [PEER_BITS-1:0]   r_peer;
    wire [WINDOW_BITS-1:0] r_window;
    wire [31:0]            r_paths;
    wire [31:0]            r_generation;
    wire [63:0]            r_heard;
    wire [SLOT_BITS-1:0]   free_slot;
    wire                   has_free;
    wire [CONTEXTS-1:0]    live;
    wire [SLOT_BITS:0]     contexts_used;
    wire [SLOT_BITS:0]     contexts_high_water;

    wire                   peers_done;
    wire                   p_found;
    wire [PEER_BITS-1:0]   p_index;
    wire [19:0]            p_number;
    wire                   p_live;
    wire                   p_complete;
    wire [SLOT_BITS-1:0]   p_slot;
    wire                   p_available;
    wire [PEER_BITS-1:0]   p_free;

    wire                   nodes_done;
    wire                   node_found;
    wire                   node_available;
    wire [31:0]            node_incarnation;

    wire                   probe_allows;
    wire                   access_done;
    wire                   allowed;
    wire [WINDOW_BITS-1:0] allowed_index;
    wire                   window_valid;
    wire [225:0]           installed;
    wire [WINDOW_BITS:0]   windows_used;

    wire                   is_below;
    wire                   is_beyond;
    wire                   has_packet;
    wire                   has_requests;
    wire                   window_busy;
    wire                   accepted;
    wire                   complete;
    wire [12:0]            new_base;
    wire [7:0]             new_above;
    wire                   special;
    wire                   w_answer_valid;
    wire                   w_answer_ready;
    wire                   w_answer_is_limit;
    wire [31:0]            w_answer_first;
    wire [31:0]            w_answer_last;
    wire [7:0]             w_answer_above;
    wire                   set_deadline;
    wire [63:0]            deadline;
    wire [12:0]            base_shown;
    wire [WINDOW-1:0]      here_shown;

    wire                   inflight_full;
    wire                   inflight_empty;
    wire                   head_answered;
    wire                   head_error;
    wire [SLOT_BITS-1:0]   head_slot;
    wire [PACKET+22:0]     head_packet;

    wire                   timer_due;
    wire                   timer_over;
    wire [SLOT_BITS-1:0]   due_index;
    wire [63:0]            scan_time;
    wire                   timers_clean;

    wire                   answer_space;
    wire                   event_space;
    wire                   events_quiet;
    wire                   fault_space;
    wire [15:0]            refusal_delay;
    wire                   shadow_done;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Decisions.

    // Of the packet under way that memory answers next.
    wire [95:0] head_name;
    wire [7:0]  head_path;
    wire        head_marked;
    wire [63:0] head_now;
    wire [12:0] head_index;
    wire [63:0] head_address;
    wire [15:0] head_length;
    wire        head_limit;
    wire [13:0] head_limit_first;
    wire [7:0]  head_above;
    assign {head_limit, head_limit_first, head_above, head_name, head_path, head_marked, head_now, head_index, head_address, head_length}
        = head_packet;
    wire [63:0] x_now = in_error ? head_now : c_now;
    wire is_answered = !inflight_empty && head_answered;
    wire is_stale = failed[head_slot];
    wire is_error = is_answered && head_error && !is_stale;
    wire may_commit = state == IDLE || state == READ || state == CHECK || state == DECIDE || state == STREAM || state == DRAIN
        || state == AFTER;
    wire commit = may_commit && is_answered && (is_stale || (!head_error && (!head_limit || answer_space)));
    wire commit_answer = commit && head_limit && !is_stale;
    wire take_error = is_error && !window_busy && (state == IDLE || state == DRAIN || state == AFTER);
    wire pop = commit || state == WRITE_ERROR_END;

    wire is_window_idle = !window_busy && !special;
    wire is_data_hit = hit && is_for_us && is_scheme && !is_request;
    wire is_old = is_below || (!is_beyond && has_packet);
    wire fast = state == DECIDE && is_data_hit && sound && probe_allows && !is_old && !is_beyond && !inflight_full;
    wire fast_old = state == DECIDE && is_data_hit && sound && probe_allows && is_old && !has_requests;
    wire slow_hit = state == ACCESS && access_done && allowed;
    wire accept = fast || (slow_hit && !is_old && !is_beyond);
    wire drop = slow_hit && is_beyond;
    // Packets of a message in progress (7.6), and its requests.
    wire touch = fast || fast_old || state == REQUESTED || (state == CLASSIFY && is_data_hit);

    wire is_stream_done;
    ni_message_stream #(.BUS(BUS), .BEAT_BITS(BEAT_BITS)) stream (
        .clk, .rst_n, .prepare(state == IDLE || state == CHECK || state == ACCESS), .start(accept), .length(c_length),
        .done(is_stream_done), .payload_beat, .write_valid, .write_ready, .write_data_valid, .write_data_ready
    );
    assign write_address = c_address;
    assign write_length = c_length;
    assign write_data = payload_data;
    assign packet_ready = state == FINISH || is_stream_done;

    wire [7:0] answer_senders = senders > SENDERS_MAX ? SENDERS_MAX[7:0] : senders[7:0];
    wire is_unlimited = notice_slots == UNLIMITED_SLOTS;
    wire reserves = h_notifies && h_left == 0;
    wire is_settled = is_unlimited || events_quiet;
    wire is_not_ready = {16'd0, reserved} >= notice_slots;
    // Numbers of messages wrap (7.4).
    wire [19:0] p_behind = h_message[19:0] - p_number;
    wire is_same_message = p_found && p_behind == 0;
    wire is_unknown = !p_found || (p_behind != 0 && !p_behind[19]);
    wire is_newer_node = node_found && node_incarnation != h_incarnation;
    wire [31:0] node_behind = node_incarnation - h_incarnation;
    wire is_superseded = is_newer_node && (!node_behind[31] || node_behind == 32'h8000_0000);
    wire has_peer = p_found || p_available;
    wire is_former = r_live && r_name[31:0] == h_source && r_name[63:32] != h_incarnation;
    wire is_other = r_live && r_name[63:0] == scan_name && (state == INSERT_SCAN || scan != e_index);
    wire [63:0] tombstone = registry_timeout + packet_lifetime;
    wire [63:0] idle_limit = c_now > tombstone ? c_now - tombstone : 64'd0;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Tables.

    wire is_scanning = state == END_SCAN || state == INSERT_SCAN || state == SUCCEED;
    wire [SLOT_BITS-1:0] table_index = is_scanning ? scan : e_index;
    wire is_timer_path = state == TIMER_LOAD && !timer_silent;
    wire insert = state == INSERT;
    wire close = state == END_CLOSE;
    wire end_event = state == END && event_space;
    wire is_ending = state == END || state == END_NODE || close;

    ni_message_contexts #(
        .CONTEXTS(CONTEXTS), .PEER_BITS(PEER_BITS), .WINDOW_BITS(WINDOW_BITS)
    ) contexts (
        .clk, .rst_n, .clear, .index(table_index),
        .is_live(r_live), .name(r_name), .base(r_base), .length(r_length), .count(r_count), .key(r_key), .transfer(r_transfer),
        .transfer_base(r_transfer_base), .transfer_length(r_transfer_length), .read_number(r_read), .left(r_left), .notifies(r_notifies),
        .peer(r_peer), .window(r_window), .paths(r_paths), .generation(r_generation),
        .insert, .new_name(h_name), .new_base(h_base), .new_length(h_length), .new_count(h_packets[12:0]), .new_key(h_key),
        .new_transfer(h_transfer), .new_transfer_base(h_transfer_base), .new_transfer_length(h_transfer_length), .new_read_number(h_read),
        .new_left(h_left), .new_notifies(h_notifies), .new_peer(p_found ? p_index : p_free), .remove(close),
        .set_window(slow_hit), .new_window(insert ? e_window : allowed_index),
        .set_paths(touch || is_timer_path),
        .new_paths(is_timer_path ? {r_paths[7:0], r_paths[31:8]} : {r_paths[23:0], h[ni_pkg::MESSAGE_DATA_PATH_LSB +: 8]}),
        .free_index(free_slot), .has_free, .live, .occupancy(contexts_used), .high_water(contexts_high_water)
    );

    ni_message_peers #(.PEERS(PEERS), .CONTEXTS(CONTEXTS)) peers (
        .clk, .rst_n, .clear, .start(state == SEARCH || state == ADMIT_SEARCH), .source(h_source), .incarnation(h_incarnation),
        .message(h_message), .idle_limit, .done(peers_done), .found(p_found), .found_index(p_index), .found_number(p_number),
        .found_live(p_live), .found_complete(p_complete), .found_slot(p_slot), .available(p_available), .free_index(p_free),
        .put(insert), .put_index(p_found ? p_index : p_free), .put_slot(e_index),
        .finish(end_event || state == PAST), .finish_index(end_event ? r_peer : p_index),
        .finish_complete(end_event ? end_complete : p_complete), .finish_heard(end_event ? r_heard : c_now)
    );

    ni_nodes #(.NODES(NODES)) nodes (
        .clk, .rst_n, .clear,
        .start((state == ADMIT_ACCESS && access_done && allowed) || end_event || (state == ADMIT_FREE && has_peer && has_free)),
        .node(is_ending ? r_name[31:0] : h_source), .idle_limit,
        .done(nodes_done), .found(node_found), .available(node_available), .incarnation(node_incarnation),
        .admit(state == ADMIT_NODE && nodes_done && (node_found ? is_newer_node && !is_superseded : node_available)),
        .admit_incarnation(h_incarnation),
        .set_active(insert || (close && node_found && node_incarnation == scan_name[63:32])), .active(insert || scan_found), .now(x_now)
    );

    wire is_range_valid = window_length != 0 && !(window_base > ~window_length);
    wire is_window = {16'd0, command_index} < 32'(MEMORY_WINDOWS);
    ni_access #(.MEMORY_WINDOWS(MEMORY_WINDOWS)) access (
        // CLEAR keeps memory windows (interface.md 10.7).
        .clk, .rst_n, .clear(1'b0),
        .source(h_source), .key(whole ? h_key : e_key), .address(whole ? h_base : c_address), .length(whole ? h_length : {16'd0, c_length}),
        .probe(state == COMMAND ? command_index[WINDOW_BITS-1:0] : whole ? '0 : e_window), .probe_allows,
        .search((state == CLASSIFY && is_data_hit && sound) || (state == ADMIT && whole)),
        .search_done(access_done), .allowed, .allowed_index,
        .install(state == COMMAND && command == COMMAND_INSTALL && is_window && is_range_valid),
        .remove(state == COMMAND && command == COMMAND_REMOVE && is_window),
        .index(command_index[WINDOW_BITS-1:0]), .window_source, .window_base, .window_length, .window_key, .window_permissions,
        .read_valid(window_valid), .read_window(installed), .occupancy(windows_used)
    );

    ni_message_window #(.CONTEXTS(CONTEXTS), .WINDOW(WINDOW)) packets (
        .clk, .rst_n, .window, .credit, .patience, .round_trip,
        .index(e_index), .load(state == READ || state == TIMER_LOAD || state == COMMAND_CONTEXT), .count(r_count), .now(c_now),
        .packet_index(c_index), .packet_tail(h_tail), .packet_repeated(is_repeated), .is_below, .is_beyond, .has_packet, .has_requests,
        .begin_message(state == REGISTERED && event_space), .accept, .drop, .expire(state == TIMER_OPERATION),
        .emit(state == OPERATION && !window_busy), .allowance(emit_allowance), .discard(close),
        .busy(window_busy), .accepted, .complete, .new_base, .new_above, .special,
        .answer_valid(w_answer_valid), .answer_ready(w_answer_ready), .answer_is_limit(w_answer_is_limit),
        .answer_first(w_answer_first), .answer_last(w_answer_last), .answer_above(w_answer_above), .set_deadline, .deadline,
        .base_shown, .here_shown
    );

    ni_message_timers #(.CONTEXTS(CONTEXTS)) timers (
        .clk, .rst_n, .restart(clear || timeouts_changed), .now, .silence(registry_timeout), .live, .busy(state != IDLE),
        .index(e_index), .set_deadline, .deadline, .set_heard(touch || insert), .new_heard(c_now), .heard(r_heard),
        .due(timer_due), .silent(timer_over), .due_index, .scan_time, .clean(timers_clean)
    );

    wire [13:0] new_limit = {1'b0, new_base} + {6'd0, window};
    // Search by number is not needed: the bit of a packet under way is set.
    /* verilator lint_off PINCONNECTEMPTY */
    ni_inflight #(.ENTRIES(CONTEXTS), .CONTEXT(PACKET + 23)) inflight (
        .clk, .rst_n,
        .push(accepted), .push_start(1'b0), .push_entry(e_index), .push_number(8'd0),
        .push_context({credit && !complete, new_limit, new_above, c_name, c_path, c_marked, c_now, c_index, c_address, c_length}),
        .full(inflight_full), .empty(inflight_empty), .write_done, .write_error,
        .head_answered, .head_error, .head_start(), .head_entry(head_slot), .head_number(), .head_context(head_packet),
        .pop, .search_entry({SLOT_BITS{1'b0}}), .search_number(8'd0), .contains()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    wire refuse = state == ADMIT_FREE && !(has_peer && has_free);
    ni_refusals #(.ENTRIES(CONTEXTS)) refusals (
        .clk, .rst_n, .clear, .release_entry(close), .refuse, .now(x_now), .delay(refusal_delay)
    );

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Reports.

    wire report_reply = state == REPLY && answer_space;
    wire report_window = state == EMIT && w_answer_valid && answer_space;
    assign w_answer_ready = state == EMIT && answer_space;
    wire is_refusal = reply_kind == ni_pkg::ANSWER_KIND_REFUSED;
    wire [7:0] answer_kind = commit_answer || (report_window && w_answer_is_limit) ? ni_pkg::ANSWER_KIND_LIMIT
        : report_window ? ni_pkg::ANSWER_KIND_RESEND : reply_kind;
    wire is_notice = state == NOTICE;
    wire is_registered = state == REGISTERED;
    wire report_event = event_space && (state == END || is_notice || is_registered);
    // SILENT, NOTIFY_RECEIVER and NO_NOTICE of the message's packets, and the scheme.
    wire [7:0] registration = {1'b0, ni_pkg::SCHEME_RECEIVER_WINDOW[2:0], !r_notifies, r_notifies, 2'b00};

    ni_message_report report (
        .clk, .rst_n, .node, .incarnation, .name(state == FAULT ? (in_error ? head_name : c_name) : r_name), .now(x_now),
        .answer(commit_answer || report_reply || report_window), .answer_kind,
        .answer_reason(report_reply && is_refusal ? reply_reason : answer_senders),
        .answer_context(commit_answer ? 32'(head_slot) : report_window || reply_context ? 32'(e_index) : NO_CONTEXT),
        .answer_first(commit_answer ? {18'd0, head_limit_first} : report_window ? w_answer_first : reply_first),
        .answer_last(commit_answer ? {19'd0, head_index} : report_window ? w_answer_last : reply_last),
        .answer_ahead(commit_answer ? {8'd0, head_above} : report_window && w_answer_is_limit ? {8'd0, w_answer_above} : 16'd0),
        .answer_path(commit_answer || in_error ? head_path : c_path), .answer_echo(commit_answer || in_error ? head_marked : c_marked),
        .answer_name(commit_answer || in_error ? head_name : c_name), .answer_space,
        .event_report(report_event),
        .event_kind(is_notice ? ni_pkg::EVENT_KIND_NOTICE : is_registered ? ni_pkg::EVENT_KIND_REGISTERED
            : end_complete ? ni_pkg::EVENT_KIND_COMPLETED : ni_pkg::EVENT_KIND_EXPIRED),
        .event_index(is_notice ? 16'd0 : 16'(e_index)), .event_generation(is_notice ? 32'd0 : r_generation), .event_transfer(r_transfer),
        .event_segment(is_notice ? 32'd0 : r_name[95:64]), .event_op(is_registered ? (r_left == '1 ? r_left : r_left + 32'd1) : 32'd0),
        .event_count(is_notice ? r_read : {19'd0, r_count}), .event_address(is_notice ? r_transfer_base : r_base),
        .event_length(is_notice ? r_transfer_length : {32'd0, r_length}), .event_tries(is_registered ? registration : 8'd0),
        .event_space, .events_quiet,
        .fault(state == FAULT && fault_space), .fault_reason(fault_kind), .fault_address(fault_at), .fault_length(fault_size), .fault_space,
        .answer_valid, .answer_ready, .answer_data(answer), .answer_length, .event_valid, .event_ready, .event_data, .fault_valid,
        .fault_ready, .fault_event
    );

    ni_message_shadow #(.WINDOW(WINDOW)) shadow (
        .clk, .rst_n(rst_n && !clear), .latch(state == COMMAND_LATCH), .valid(r_live && !command_failed), .index(command_index),
        .age(now > r_heard ? now - r_heard : 64'd0), .done(shadow_done), .generation(r_generation), .name(r_name), .transfer(r_transfer),
        .left(r_left), .base(r_base), .length(r_length), .count(r_count), .notifies(r_notifies), .transfer_length(r_transfer_length),
        .first(base_shown), .here(here_shown), .words(registry_shadow)
    );

    assign registry_occupancy = 32'(contexts_used);
    assign registry_high_water = 32'(contexts_high_water);
    assign memory_occupancy = 32'(windows_used);
    assign command_ready = state == COMMAND_WAIT && shadow_done;
    assign idle = state == IDLE && !packet_valid && !command_valid && inflight_empty && is_window_idle && timers_clean && !answer_valid
        && !event_valid && !fault_valid;

    assign count_duplicates = fast_old || (slow_hit && is_old) || (state == PAST && p_complete);
    assign count_registrations = insert;
    assign count_completions = state == COMPLETE;
    assign count_registry_full = refuse || (state == ADMIT_NODE && nodes_done && !node_found && !node_available);
    assign count_bad_packet = state == FAULT && fault_space && fault_kind == ni_pkg::FAULT_REASON_BAD_PACKET
        || state == CLASSIFY && (!is_for_us || !is_scheme);
    assign count_violations = state == FAULT && fault_space && fault_kind == ni_pkg::FAULT_REASON_VIOLATION;
    assign count_tombstone_hits = (state == SEARCHED && peers_done && (is_unknown ? !is_request && !is_start : !is_same_message))
        || (state == PAST && !p_complete);
    assign count_expired = close && end_expired;
    assign count_nacks_sent = report_reply && is_refusal && reply_reason != ni_pkg::NACK_REASON_SUPERSEDED;
    assign count_acks_sent = commit_answer || report_window || (report_reply && !(is_refusal
        && reply_reason != ni_pkg::NACK_REASON_SUPERSEDED));

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Control.

    wire [31:0] offset = 32'(h_index) << PACKET_LOG2;
    wire is_tail = {1'b0, r_count} == 14'(h_index[12:0]) + 14'd1;
    wire [31:0] expected = is_tail ? r_length - offset : SIZE;

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            senders <= '0;
            reserved <= '0;
        end else begin
            if (insert && !scan_found) senders <= senders + 1'b1;
            if (close && node_found && node_incarnation == scan_name[63:32] && !scan_found) senders <= senders - 1'b1;
            if (state == ADMIT_PEER && has_succeeded) senders <= senders - 1'b1;
            if (insert && reserves) reserved <= reserved + 1'b1;
            if (close && r_notifies && r_left == 0) reserved <= reserved - 1'b1;
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear || inflight_empty) failed <= '0;
        else if (state == WRITE_ERROR_END) failed[head_slot] <= 1'b1;
    end

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                located <= 1'b0;
                whole <= 1'b0;
                in_error <= 1'b0;
                has_ended <= 1'b0;
                has_succeeded <= 1'b0;
                pending_failed <= 1'b0;
                reply_context <= 1'b0;
                reply_first <= '0;
                reply_last <= '0;
                reply_next <= FINISH;
                if (special) begin
                    state <= AFTER;
                end else if (take_error) begin
                    error_next <= IDLE;
                    state <= WRITE_ERROR;
                end else if (!window_busy) begin
                    if (timer_due || (timer_over && inflight_empty)) begin
                        e_index <= due_index;
                        timer_silent <= timer_over;
                        state <= TIMER;
                    end else if (timer_over) begin
                        state <= DRAIN;
                    end else if (packet_valid) begin
                        e_index <= h_context[SLOT_BITS-1:0];
                        located <= !is_request && h_context < 32'(CONTEXTS);
                        state <= READ;
                    end else if (command_valid && inflight_empty) begin
                        state <= COMMAND;
                    end
                end
            end
            READ: begin
                c_name <= h_name;
                c_path <= h[ni_pkg::MESSAGE_DATA_PATH_LSB +: 8];
                c_marked <= h_flags[ni_pkg::FLAGS_MARKED_BIT];
                c_now <= packet_time;
                c_index <= h_index[12:0];
                c_address <= r_base + {32'd0, offset};
                c_length <= packet_payload_length;
                hit <= located && r_live && r_name == h_name;
                sound <= {3'd0, r_count} > h_index && h_tail == is_tail && {16'd0, packet_payload_length} == expected;
                e_length <= r_length;
                e_window <= r_window;
                e_key <= r_key;
                state <= CHECK;
            end
            CHECK: state <= DECIDE;
            DECIDE: begin
                if (fast) state <= STREAM;
                else if (fast_old) state <= FINISH;
                else if (!inflight_empty) state <= DRAIN;
                else state <= CLASSIFY;
            end
            STREAM: if (is_stream_done) state <= IDLE;
            DRAIN: begin
                error_next <= IDLE;
                if (take_error) state <= WRITE_ERROR;
                else if (inflight_empty) state <= IDLE;
            end
            FINISH: state <= IDLE;

            // The message is in memory as far as it was accepted.
            AFTER: begin
                error_next <= AFTER;
                emit_allowance <= credit ? 2'd2 : 2'd3;
                emit_next <= IDLE;
                if (take_error) state <= WRITE_ERROR;
                else if (inflight_empty && !window_busy) begin
                    end_complete <= 1'b1;
                    end_expired <= 1'b0;
                    if (pending_failed) state <= IDLE;
                    else state <= base_shown == r_count ? COMPLETE : OPERATION;
                end
            end
            COMPLETE: begin
                end_next <= REPLY;
                reply_kind <= ni_pkg::ANSWER_KIND_DONE;
                reply_next <= r_left == 0 && r_notifies ? NOTICE : IDLE;
                state <= END;
            end
            NOTICE: if (event_space) state <= IDLE;
            OPERATION: if (!window_busy) state <= EMIT;
            EMIT: if (!window_busy) state <= emit_next;

            REPLY: if (answer_space) state <= reply_next;
            FAULT: if (fault_space) state <= fault_next;
            WRITE_ERROR: begin
                in_error <= 1'b1;
                e_saved <= e_index;
                e_index <= head_slot;
                if (head_slot == e_index) pending_failed <= 1'b1;
                fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                fault_at <= head_address;
                fault_size <= {16'd0, head_length};
                end_complete <= 1'b0;
                end_expired <= 1'b0;
                end_next <= REPLY;
                reply_kind <= ni_pkg::ANSWER_KIND_REFUSED;
                reply_reason <= ni_pkg::NACK_REASON_VIOLATION;
                reply_first <= '0;
                reply_last <= '0;
                reply_context <= 1'b0;
                reply_next <= WRITE_ERROR_END;
                fault_next <= END;
                state <= FAULT;
            end
            WRITE_ERROR_END: begin
                in_error <= 1'b0;
                e_index <= e_saved;
                state <= error_next;
            end

            CLASSIFY: begin
                reply_kind <= ni_pkg::ANSWER_KIND_REFUSED;
                reply_reason <= ni_pkg::NACK_REASON_SCHEME;
                fault_kind <= ni_pkg::FAULT_REASON_BAD_PACKET;
                fault_at <= r_base;
                fault_size <= e_length;
                fault_next <= FINISH;
                emit_allowance <= 2'd3;
                emit_next <= FINISH;
                if (!is_for_us) state <= FINISH;
                else if (!is_scheme) state <= REPLY;
                else if (is_data_hit) state <= sound ? ACCESS : FAULT;
                else state <= SEARCH;
            end
            SEARCH: state <= SEARCHED;
            SEARCHED: if (peers_done) begin
                reply_reason <= ni_pkg::NACK_REASON_UNKNOWN;
                located <= 1'b1;
                if (is_unknown) begin
                    state <= is_request || is_start ? ADMIT : REPLY;
                end else if (!is_same_message) begin
                    state <= FINISH;
                end else if (!p_live) begin
                    state <= PAST;
                end else begin
                    e_index <= p_slot;
                    state <= is_request ? REQUESTED : READ;
                end
            end
            PAST: begin
                if (p_complete) reply_kind <= ni_pkg::ANSWER_KIND_DONE;
                state <= REPLY;
            end
            REQUESTED: begin
                reply_kind <= ni_pkg::ANSWER_KIND_ACCEPTED;
                reply_context <= 1'b1;
                state <= REPLY;
            end
            ACCESS: if (access_done) begin
                fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                fault_at <= c_address;
                fault_size <= {16'd0, c_length};
                fault_next <= END;
                end_complete <= 1'b0;
                end_expired <= 1'b0;
                end_next <= REPLY;
                reply_reason <= ni_pkg::NACK_REASON_VIOLATION;
                if (!allowed) state <= FAULT;
                else state <= is_old || is_beyond ? OPERATION : STREAM;
            end

            ADMIT: begin
                whole <= 1'b1;
                reply_reason <= ni_pkg::NACK_REASON_BAD_PACKET;
                fault_at <= h_base;
                fault_size <= h_length;
                fault_next <= REPLY;
                // The check of the memory windows begins when they are asked for the whole message.
                if (h_log2 != 8'(PACKET_LOG2)) state <= FAULT;
                else if (whole) state <= ADMIT_ACCESS;
            end
            ADMIT_ACCESS: if (access_done) begin
                fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                reply_reason <= ni_pkg::NACK_REASON_VIOLATION;
                e_window <= allowed_index;
                state <= allowed ? ADMIT_NODE : FAULT;
            end
            // The newest incarnation of the sender (incarnations.md 6.2): a later one ends all messages of the earlier one.
            ADMIT_NODE: if (nodes_done) begin
                reply_reason <= is_superseded ? ni_pkg::NACK_REASON_SUPERSEDED : ni_pkg::NACK_REASON_BUSY;
                if (is_superseded) reply_first <= node_incarnation;
                scan <= '0;
                if (is_superseded || (!node_found && !node_available)) state <= REPLY;
                else state <= is_newer_node ? SUCCEED : ADMIT_PEER;
            end
            SUCCEED: begin
                e_index <= scan;
                end_complete <= 1'b0;
                end_expired <= 1'b1;
                end_next <= SUCCEED_NEXT;
                if (is_former) begin
                    has_ended <= 1'b1;
                    has_succeeded <= 1'b1;
                end
                state <= is_former ? END : SUCCEED_NEXT;
            end
            SUCCEED_NEXT: begin
                scan <= e_index + 1'b1;
                state <= e_index == SLOT_BITS'(CONTEXTS - 1) ? ADMIT_PEER : SUCCEED;
            end
            // The sender's context has moved on to another message.
            ADMIT_PEER: begin
                has_succeeded <= 1'b0;
                e_index <= p_slot;
                end_complete <= 1'b0;
                end_expired <= 1'b1;
                end_next <= ADMIT_SEARCH;
                if (p_found && p_live) state <= END;
                else state <= has_ended ? ADMIT_SEARCH : ADMIT_SLOT;
            end
            ADMIT_SEARCH: state <= ADMIT_SEARCHED;
            ADMIT_SEARCHED: if (peers_done) state <= ADMIT_SLOT;
            ADMIT_SLOT: if (is_settled || !reserves) begin
                reply_reason <= ni_pkg::NACK_REASON_NOT_READY;
                state <= reserves && is_not_ready ? REPLY : ADMIT_FREE;
            end
            ADMIT_FREE: begin
                reply_reason <= ni_pkg::NACK_REASON_BUSY;
                reply_last <= {16'd0, refusal_delay};
                e_index <= free_slot;
                scan <= '0;
                scan_name <= h_name[63:0];
                scan_found <= 1'b0;
                if (has_peer && has_free) begin
                    reply_last <= '0;
                    state <= INSERT_NODE;
                end else begin
                    state <= REPLY;
                end
            end
            INSERT_NODE: if (nodes_done) state <= INSERT_SCAN;
            INSERT_SCAN: begin
                scan <= scan + 1'b1;
                if (is_other) scan_found <= 1'b1;
                if (scan == SLOT_BITS'(CONTEXTS - 1)) state <= INSERT;
            end
            INSERT: state <= REGISTERED;
            REGISTERED: if (event_space) state <= BEGUN;
            BEGUN: if (!window_busy) begin
                whole <= 1'b0;
                state <= is_request ? REQUESTED : READ;
            end

            // Message `e_index` ends. The tables show it until the next one begins in its context.
            END: begin
                scan <= '0;
                scan_name <= r_name[63:0];
                scan_found <= 1'b0;
                if (event_space) state <= END_NODE;
            end
            END_NODE: if (nodes_done) state <= node_found && node_incarnation == scan_name[63:32] ? END_SCAN : END_CLOSE;
            END_SCAN: begin
                scan <= scan + 1'b1;
                if (is_other) scan_found <= 1'b1;
                if (scan == SLOT_BITS'(CONTEXTS - 1)) state <= END_CLOSE;
            end
            END_CLOSE: state <= end_next;

            TIMER: begin
                c_now <= scan_time;
                state <= TIMER_LOAD;
            end
            TIMER_LOAD: begin
                c_name <= r_name;
                // The path identifiers of the last packets in turn (8.1).
                c_path <= r_paths[15:8];
                c_marked <= 1'b0;
                emit_allowance <= 2'd3;
                emit_next <= IDLE;
                end_complete <= 1'b0;
                end_expired <= 1'b1;
                end_next <= IDLE;
                state <= !timer_due && !timer_over ? IDLE : timer_silent ? END : TIMER_OPERATION;
            end
            TIMER_OPERATION: state <= OPERATION;

            COMMAND: begin
                e_index <= command_index[SLOT_BITS-1:0];
                command_failed <= !is_window;
                case (command)
                    COMMAND_LATCH_CONTEXT: begin
                        command_failed <= {16'd0, command_index} >= 32'(CONTEXTS);
                        state <= COMMAND_CONTEXT;
                    end
                    COMMAND_LATCH_WINDOW: state <= COMMAND_WINDOW;
                    COMMAND_INSTALL: begin
                        command_failed <= !is_window || !is_range_valid;
                        state <= COMMAND_WAIT;
                    end
                    COMMAND_CLEAR: begin
                        command_failed <= 1'b0;
                        state <= COMMAND_WAIT;
                    end
                    default: state <= COMMAND_WAIT;
                endcase
            end
            COMMAND_CONTEXT: state <= COMMAND_LATCH;
            COMMAND_LATCH: state <= COMMAND_WAIT;
            COMMAND_WINDOW: begin
                // Source, base, length, key, permissions in the order of the block.
                memory_shadow <= window_valid && !command_failed
                    ? {1'b1, 30'd0, installed[225:224], installed[63:0], installed[127:64], installed[191:128], installed[223:192]} : '0;
                state <= COMMAND_WAIT;
            end
            COMMAND_WAIT: if (shadow_done) state <= IDLE;
            default: state <= IDLE;
        endcase
        if (!rst_n) begin
            state <= IDLE;
            in_error <= 1'b0;
        end
    end

    wire unused = &{1'b0, h, h_packets[31:13]};
endmodule
