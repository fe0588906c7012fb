// Receiver of the registry scheme (docs/protocol/receiver.md 5): takes DATA, START and ARRIVED packets, writes their payload to card
// memory, and reports with answers, events and faults.
//
// One total order: packet, then command of the host, then timeout; each is finished before the next one begins, with one exception.
// A DATA packet of a registered segment whose bit is clear and that its memory window allows (the fast path) is finished by the response
// to its write: it waits in `ni_inflight` while later packets are examined. A packet that is not on the fast path waits until no
// write is under way, so it finds the state in which its predecessors left it. A bit is set, and an answer leaves, after the response.
//
// Latency of the fast path: 4 cycles from `packet_valid` to the first beat of the write, then one beat per cycle, and the next packet in
// the cycle after the last beat. The other packets take as many cycles as they search: records of senders and transfers, escape slots,
// tombstones and memory windows are searched one per cycle.
//
// One file, although it is long: the states share the selected records, and every table port is driven from several of them.
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

    output logic                write_valid,
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
    output logic                command_failed,
    // Words 0 to 23 of block `registry`, 0 to 10 of block `escape`, and 1 to 8 of block `memory` with VALID in bit 256.
    output wire  [767:0]        registry_shadow,
    output wire  [351:0]        escape_shadow,
    output logic [256:0]        memory_shadow,
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
    localparam int BYTE_BITS = $clog2(BUS / 8);
    localparam logic [31:0] SIZE = 32'd1 << PACKET_LOG2;
    localparam logic [31:0] UNLIMITED_SLOTS = 32'hFFFF_FFFF;
    localparam logic [63:0] NEVER = 64'hFFFF_FFFF_FFFF_FFFF;

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

    localparam logic [2:0] COMMAND_LATCH_ENTRY = 3'd0;
    localparam logic [2:0] COMMAND_LATCH_SLOT = 3'd1;
    localparam logic [2:0] COMMAND_LATCH_WINDOW = 3'd2;
    localparam logic [2:0] COMMAND_INSTALL = 3'd3;
    localparam logic [2:0] COMMAND_REMOVE = 3'd4;
    localparam logic [2:0] COMMAND_CLEAR = 3'd5;

    // Constants instead of an enumeration: Icarus Verilog 11 takes its names in port connections for new wires.
    // Fast path.
    localparam logic [6:0] IDLE = 7'd0;
    localparam logic [6:0] LOOKUP = 7'd1;
    localparam logic [6:0] READ = 7'd2;
    localparam logic [6:0] CHECK = 7'd3;
    localparam logic [6:0] DECIDE = 7'd4;
    localparam logic [6:0] STREAM = 7'd5;
    localparam logic [6:0] DRAIN = 7'd6;
    localparam logic [6:0] FINISH = 7'd7;
    // Answers, and a refused write.
    localparam logic [6:0] ACK = 7'd8;
    localparam logic [6:0] NACK = 7'd9;
    localparam logic [6:0] FAULT = 7'd10;
    localparam logic [6:0] WRITE_ERROR = 7'd11;
    // Packets that are not on the fast path, by what is known of them.
    localparam logic [6:0] CLASSIFY = 7'd12;
    localparam logic [6:0] HIT = 7'd13;
    localparam logic [6:0] HIT_RECORD = 7'd14;
    localparam logic [6:0] HIT_LATE = 7'd15;
    localparam logic [6:0] HIT_ACCESS = 7'd16;
    localparam logic [6:0] SENDER = 7'd17;
    localparam logic [6:0] SENDER_FOUND = 7'd18;
    localparam logic [6:0] SENDER_LATE = 7'd19;
    localparam logic [6:0] SENDER_RECORDS = 7'd20;
    localparam logic [6:0] TRANSFER_FOUND = 7'd21;
    localparam logic [6:0] RETRY = 7'd22;
    localparam logic [6:0] RETRY_SLOT = 7'd23;
    localparam logic [6:0] KINDS = 7'd24;
    localparam logic [6:0] ARRIVED = 7'd25;
    localparam logic [6:0] ARRIVED_SEARCH = 7'd26;
    localparam logic [6:0] ARRIVED_FOUND = 7'd27;
    localparam logic [6:0] ARRIVED_CHECK = 7'd28;
    // Oldest live transfer of a sender advances.
    localparam logic [6:0] ADVANCE = 7'd29;
    localparam logic [6:0] ADVANCE_WAIT = 7'd30;
    localparam logic [6:0] OVERTAKEN = 7'd31;
    localparam logic [6:0] OVERTAKEN_NEXT = 7'd32;
    // Escape channel.
    localparam logic [6:0] ESCAPE_ACCESS = 7'd33;
    localparam logic [6:0] ESCAPE_NODE = 7'd34;
    localparam logic [6:0] ESCAPE_OFFER = 7'd35;
    localparam logic [6:0] ESCAPE_REFRESH = 7'd36;
    localparam logic [6:0] ESCAPE_STORE = 7'd37;
    localparam logic [6:0] ESCAPE_EVENT = 7'd38;
    // Registration.
    localparam logic [6:0] REGISTER = 7'd39;
    localparam logic [6:0] REGISTER_SEARCH = 7'd40;
    localparam logic [6:0] REGISTER_ACCESS = 7'd41;
    localparam logic [6:0] REGISTER_NODE = 7'd42;
    localparam logic [6:0] RESEARCH = 7'd43;
    localparam logic [6:0] RESEARCH_SENDER = 7'd44;
    localparam logic [6:0] RESEARCH_RECORDS = 7'd45;
    localparam logic [6:0] RESEARCH_TRANSFER = 7'd46;
    localparam logic [6:0] PLACE = 7'd47;
    localparam logic [6:0] START_WAIT = 7'd48;
    localparam logic [6:0] INSERT = 7'd49;
    localparam logic [6:0] INSERT_NODE = 7'd50;
    localparam logic [6:0] INSERT_TRANSFER = 7'd51;
    localparam logic [6:0] INSERT_ENTRY = 7'd52;
    localparam logic [6:0] REGISTERED = 7'd53;
    localparam logic [6:0] FIRST_PACKET = 7'd54;
    localparam logic [6:0] RELEASE = 7'd55;
    localparam logic [6:0] RELEASE_FIND = 7'd56;
    localparam logic [6:0] RELEASE_SLOT = 7'd57;
    localparam logic [6:0] HELD_DRAIN = 7'd58;
    localparam logic [6:0] HELD_DONE = 7'd59;
    // Completion, notices, ends of transfers.
    localparam logic [6:0] COMPLETE = 7'd60;
    localparam logic [6:0] COMPLETE_TRANSFER = 7'd61;
    localparam logic [6:0] COMPLETE_MARK = 7'd62;
    localparam logic [6:0] COMPLETE_SLOT = 7'd63;
    localparam logic [6:0] COMPLETE_PACKET = 7'd64;
    localparam logic [6:0] COMPLETE_ENTRY = 7'd65;
    localparam logic [6:0] COMPLETE_DONE = 7'd66;
    localparam logic [6:0] COMPLETE_NOTICE = 7'd67;
    localparam logic [6:0] AWAIT = 7'd68;
    localparam logic [6:0] NOTICE = 7'd69;
    localparam logic [6:0] NOTICE_EVENT = 7'd70;
    localparam logic [6:0] CLOSE = 7'd71;
    localparam logic [6:0] CLOSE_RECORD = 7'd72;
    localparam logic [6:0] CLOSE_WAIT = 7'd73;
    // Sweep, and the release of a node's earlier incarnations.
    localparam logic [6:0] SWEEP = 7'd74;
    localparam logic [6:0] SWEEP_ENTRY = 7'd75;
    localparam logic [6:0] SWEEP_ENTRY_DUE = 7'd76;
    localparam logic [6:0] EXPIRE = 7'd77;
    localparam logic [6:0] SWEEP_ENTRY_NEXT = 7'd78;
    localparam logic [6:0] SWEEP_TRANSFER = 7'd79;
    localparam logic [6:0] SWEEP_TRANSFER_DUE = 7'd80;
    localparam logic [6:0] SWEEP_TRANSFER_NEXT = 7'd81;
    localparam logic [6:0] SWEEP_SENDER = 7'd82;
    localparam logic [6:0] SWEEP_NODE = 7'd83;
    localparam logic [6:0] SWEEP_SENDER_NEXT = 7'd84;
    // Timers and commands.
    localparam logic [6:0] TIMER = 7'd85;
    localparam logic [6:0] TIMER_DUE = 7'd86;
    localparam logic [6:0] TIMER_SEARCH = 7'd87;
    localparam logic [6:0] TIMER_FIND = 7'd88;
    localparam logic [6:0] TIMER_SLOT = 7'd89;
    localparam logic [6:0] TIMER_EVENT = 7'd90;
    localparam logic [6:0] TIMER_RELEASE = 7'd91;
    localparam logic [6:0] TIMER_RESET = 7'd92;
    localparam logic [6:0] TIMER_RESET_WAIT = 7'd93;
    localparam logic [6:0] TIMER_SWEEP = 7'd94;
    localparam logic [6:0] TIMER_END = 7'd95;
    localparam logic [6:0] COMMAND = 7'd96;
    localparam logic [6:0] COMMAND_ENTRY = 7'd97;
    localparam logic [6:0] COMMAND_ENTRY_LATCH = 7'd98;
    localparam logic [6:0] COMMAND_SLOT = 7'd99;
    localparam logic [6:0] COMMAND_WINDOW = 7'd100;
    localparam logic [6:0] COMMAND_WAIT = 7'd101;
    logic [6:0] state;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // The packet: that of the port, or one from the escape channel.

    logic         held;
    wire  [447:0] escape_header;
    wire  [15:0]  escape_length;
    wire  [703:0] h = held ? {256'd0, escape_header} : packet_header;
    wire  [7:0]   h_kind = h[ni_pkg::DATA_KIND_LSB +: 8];
    wire  [7:0]   h_flags = h[ni_pkg::DATA_FLAGS_LSB +: 8];
    wire  [31:0]  h_source = h[ni_pkg::DATA_SOURCE_LSB +: 32];
    wire  [31:0]  h_destination = h[ni_pkg::DATA_DESTINATION_LSB +: 32];
    wire  [31:0]  h_incarnation = h[ni_pkg::DATA_INCARNATION_LSB +: 32];
    wire  [31:0]  h_transfer = h[ni_pkg::DATA_TRANSFER_LSB +: 32];
    wire  [31:0]  h_oldest_live = h[ni_pkg::DATA_OLDEST_LIVE_LSB +: 32];
    wire  [31:0]  h_segment = h[ni_pkg::DATA_SEGMENT_LSB +: 32];
    wire  [31:0]  h_segment_count = h[ni_pkg::DATA_SEGMENT_COUNT_LSB +: 32];
    wire  [63:0]  h_address = h[ni_pkg::DATA_ADDRESS_LSB +: 64];
    wire  [63:0]  h_key = h[ni_pkg::DATA_KEY_LSB +: 64];
    wire  [7:0]   h_log2 = h[ni_pkg::DATA_PACKET_SIZE_LOG2_LSB +: 8];
    wire  [63:0]  h_base = h[ni_pkg::START_BASE_LSB +: 64];
    wire  [31:0]  h_segment_length = h[ni_pkg::START_SEGMENT_LENGTH_LSB +: 32];
    wire  [15:0]  h_packets = h[ni_pkg::START_PACKETS_LSB +: 16];
    wire  [63:0]  h_transfer_base = h[ni_pkg::START_TRANSFER_BASE_LSB +: 64];
    wire  [63:0]  h_transfer_length = h[ni_pkg::START_TRANSFER_LENGTH_LSB +: 64];
    wire  [127:0] h_name = {h_segment, h_transfer, h_incarnation, h_source};
    wire          is_start = h_kind == ni_pkg::PACKET_KIND_START;
    wire          is_arrived = h_kind == ni_pkg::PACKET_KIND_ARRIVED;
    wire          is_trimmed = h_flags[ni_pkg::FLAGS_TRIMMED_BIT];
    wire  [15:0]  h_length = is_trimmed ? 16'd0 : held ? escape_length : packet_payload_length;
    wire  [1:0]   h_notice = h_flags[ni_pkg::FLAGS_NO_NOTICE_BIT] ? NOTICE_NEVER
        : h_flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT] ? NOTICE_ON_LAST : NOTICE_ON_ARRIVED;

    // Time that an escaped packet has waited, and the time of a timeout.
    logic [15:0]  delay;
    logic         in_timer;
    logic [63:0]  timer_now;
    wire  [63:0]  h_time = in_timer ? timer_now : packet_time;
    wire  [CONTEXT-1:0] h_context = {h_address, h_length, h_time, delay, h_flags[ni_pkg::FLAGS_MARKED_BIT],
        h[ni_pkg::DATA_PATH_LSB +: 8], h[ni_pkg::DATA_TRIES_LSB +: 8], h[ni_pkg::DATA_OP_LSB +: 32], h_name};

    // Context of the packet in progress: `h`, or one whose write was answered.
    logic [CONTEXT-1:0] c;
    wire  [63:0] c_address;
    wire  [15:0] c_length;
    wire  [63:0] c_now;
    wire  [15:0] c_delay;
    wire  [16:0] c_path_unused;
    wire  [31:0] c_op;
    wire  [127:0] c_name;
    assign {c_address, c_length, c_now, c_delay, c_path_unused, c_op, c_name} = c;
    wire  [31:0] c_source = c_name[31:0];
    wire  [31:0] c_incarnation = c_name[63:32];
    wire  [31:0] c_segment = c_name[127:96];

    // Whether transfer, or incarnation, `a` came before `b`: serial numbers of 32 bits.
    function automatic logic is_older(input logic [31:0] a, input logic [31:0] b);
        is_older = b - a != 0 && b - a <= 32'h8000_0000;
    endfunction

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Registers of the control.

    // Selected records: every table shows the record of its register.
    logic [ENTRY_BITS-1:0]    e_index;
    logic [SOURCE_BITS-1:0]   s_index;
    logic [TRANSFER_BITS-1:0] t_index;
    logic [SLOT_BITS-1:0]     x_index;
    logic [SLOT_BITS-1:0]     x_from;
    // Fields of the packet's entry.
    logic                     hit;
    logic [TRANSFER_BITS-1:0] e_transfer;
    logic [63:0]              e_base;
    logic [31:0]              e_length;
    logic [31:0]              e_segment_count;
    logic [8:0]               e_packets;
    logic [WINDOW_BITS-1:0]   e_window;
    logic [31:0]              oldest_live;
    // The sender and the transfer of the packet have records; the registration makes new ones.
    logic                     s_known;
    logic                     t_known;
    logic                     new_source;
    logic                     new_transfer;
    logic                     swept;
    // The memory windows are asked for the whole segment.
    logic                     whole;
    // States in which the subroutines continue.
    logic [6:0] reply_next;
    logic [6:0] advance_next;
    logic [6:0] complete_next;
    logic [6:0] close_next;
    logic [6:0] sweep_next;
    // Answer and fault in progress.
    logic [7:0]               reason;
    logic [31:0]              newest;
    logic [15:0]              reply_delay;
    logic [7:0]               fault_kind;
    logic [63:0]              fault_at;
    logic [31:0]              fault_size;
    // Completion: number of the last packet, whole transfer, its notification is possible; end of a transfer with a tombstone.
    logic [7:0]               k_number;
    logic                     k_whole;
    logic                     k_ready;
    logic                     close_complete;
    // Sweep: of earlier incarnations only; earliest time at which a record expires.
    logic                     former;
    logic [63:0]              next_time;
    logic [63:0]              entry_touched;
    // Lower bound of the time at which a record expires.
    logic [63:0]              next_sweep;
    // A sender with transfers in progress has advanced its oldest live transfer since the last sweep.
    logic                     moved_on;
    logic                     resettle;
    // Senders with transfers in progress; transfers in progress that notify; those of them that have a reserved slot.
    logic [15:0]              active;
    logic [15:0]              notifying;
    logic [15:0]              announced;
    // Write: beat on the data port, all beats accepted, it belongs to a START.
    logic [BEAT_BITS-1:0]     beat;
    logic                     sent;
    logic                     writing_start;

    wire clear = state == COMMAND && command == COMMAND_CLEAR;
    wire tables_rst_n = rst_n && !clear;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Outputs of the tables.

    wire                      found;
    wire [ENTRY_BITS-1:0]     found_index;
    wire                      e_live;
    wire [127:0]              e_name;
    wire [63:0]               read_base;
    wire [31:0]               read_length;
    wire [31:0]               read_segment_count;
    wire [8:0]                read_packets;
    wire                      read_silent;
    wire                      read_notify;
    wire [SOURCE_BITS-1:0]    read_source;
    wire [TRANSFER_BITS-1:0]  read_transfer;
    wire [WINDOW_BITS-1:0]    read_window;
    wire [MASK_BITS-1:0]      read_mask;
    wire [63:0]               read_touched;
    wire [31:0]               read_generation;
    wire [ENTRY_BITS-1:0]     free_entry;
    wire                      has_free_entry;
    wire [MASK_BITS-1:0]      commit_mask;
    wire [31:0]               commit_generation;
    wire [ENTRY_BITS:0]       registry_used;

    wire                      senders_done;
    wire                      s_found;
    wire [SOURCE_BITS-1:0]    s_found_index;
    wire                      s_free;
    wire [SOURCE_BITS-1:0]    s_free_index;
    wire                      s_in_use;
    wire [63:0]               s_name;
    wire [31:0]               s_oldest;
    wire [15:0]               s_transfers;
    wire [15:0]               s_announced;
    wire [63:0]               s_touched;

    wire                      transfers_done;
    wire                      t_found;
    wire [TRANSFER_BITS-1:0]  t_found_index;
    wire                      t_free;
    wire [TRANSFER_BITS-1:0]  t_free_index;
    wire                      t_in_use;
    wire [SOURCE_BITS-1:0]    t_source;
    wire [31:0]               t_id;
    wire [31:0]               t_segment_count;
    wire [63:0]               t_base;
    wire [63:0]               t_length;
    wire [1:0]                t_notice;
    wire [15:0]               t_registered;
    wire                      t_awaits_notice;
    wire                      t_awaits_slot;
    wire [63:0]               t_touched;
    wire [31:0]               t_done_base;
    wire                      t_segment_done;
    wire                      t_segment_covered;
    wire                      mark_done;

    wire                      tombstones_done;
    wire                      tombstone;
    wire                      adjacent;
    wire [15:0]               ranges_used;

    wire                      nodes_done;
    wire                      node_found;
    wire                      node_available;
    wire [31:0]               node_incarnation;

    wire                      probe_allows;
    wire                      access_done;
    wire                      allowed;
    wire [WINDOW_BITS-1:0]    allowed_index;
    wire                      window_valid;
    wire [225:0]              window;
    wire [WINDOW_BITS:0]      windows_used;

    wire                      escape_done;
    wire                      x_found;
    wire [SLOT_BITS-1:0]      x_found_index;
    wire                      x_vacant;
    wire [SLOT_BITS-1:0]      x_vacant_index;
    wire                      x_valid;
    wire [63:0]               x_arrived;
    wire [BUS-1:0]            x_payload;
    wire [63:0]               escape_deadline;
    wire [SLOT_BITS:0]        escape_used;
    wire [SLOT_BITS:0]        escape_most;

    wire                      inflight_full;
    wire                      inflight_empty;
    wire                      in_flight;
    wire                      head_answered;
    wire                      head_error;
    wire                      head_start;
    wire [ENTRY_BITS-1:0]     head_entry;
    wire [7:0]                head_number;
    wire [CONTEXT-1:0]        head_context;

    wire                      answer_space;
    wire                      event_space;
    wire                      events_quiet;
    wire                      fault_space;
    wire [15:0]               refusal_delay;
    wire                      shadow_done;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Decisions.

    wire       agrees;
    wire [7:0] number;
    wire       same_start;
    wire       sound_start;
    // A stored packet was checked when it arrived.
    wire is_for_us = held || (h_destination == node && (is_arrived || h_source != ni_pkg::NODE_ANY));
    wire is_sound_size = h_log2 == 8'(PACKET_LOG2) && (is_trimmed || (h_length != 0 && {16'd0, h_length} <= SIZE));
    wire is_late = is_older(h_transfer, oldest_live);
    wire is_newer = is_older(oldest_live, h_oldest_live);
    wire has_bit = read_mask[number[$clog2(MASK_BITS)-1:0]];
    wire agrees_hit = agrees && (!is_start || (same_start && h_transfer_length == t_length));
    wire is_fast = !is_arrived && !is_start && !is_trimmed && is_for_us && is_sound_size && hit && !is_late && !is_newer && agrees
        && !has_bit && !in_flight && probe_allows;
    wire fast = state == DECIDE && is_fast && !inflight_full;

    // The head of the packets under way is finished beside the control, unless it completes its entry or memory refused it.
    wire [MASK_BITS-1:0] new_mask = commit_mask | (MASK_BITS'(1) << head_number);
    wire is_answered = !inflight_empty && head_answered && !head_start;
    wire is_special = is_answered && (head_error || &new_mask);
    wire may_commit = state == IDLE || state == LOOKUP || state == READ || state == CHECK || state == DECIDE || state == STREAM
        || state == DRAIN || state == HELD_DRAIN;
    wire commit = may_commit && is_answered && !is_special && answer_space && (!packet_events || event_space);
    wire take_head = (state == IDLE || state == DRAIN || state == HELD_DRAIN) && is_special;
    wire take_start = state == START_WAIT && head_answered;

    // Slots for notices (5.8). They count when the events reported so far have left.
    wire is_unlimited = notice_slots == UNLIMITED_SLOTS;
    wire is_settled = is_unlimited || events_quiet;
    wire [31:0] wide_announced = {16'd0, announced};
    wire [31:0] free_slots = is_unlimited ? UNLIMITED_SLOTS : notice_slots > wide_announced ? notice_slots - wide_announced : 32'd0;
    wire has_slot = free_slots != 0;
    wire [31:0] uncovered = {16'd0, notifying - announced} + 32'd1;
    wire admits_notifying = uncovered <= free_slots || uncovered - free_slots <= 32'(TRANSFERS / 2);

    // Space for a START (5.5).
    wire same_transfer = t_segment_count == h_segment_count && t_base == h_transfer_base && t_length == h_transfer_length;
    wire has_tombstone_space = adjacent || h_transfer == s_oldest || ranges_used + s_transfers < 16'(TOMBSTONES);
    wire has_sender = s_known || s_free;
    wire may_open_transfer = h_segment[31:8] == 0 && (!s_known || has_tombstone_space) && t_free;
    wire is_contradiction = has_free_entry && has_sender && t_known && !same_transfer;
    wire is_full = !has_free_entry || !has_sender || (t_known ? same_transfer && !t_segment_covered : !may_open_transfer);
    wire is_single = h_segment_count == 1 && h_packets == 1;
    wire opens_notifying = !t_known && h_notice != NOTICE_NEVER;
    wire is_not_ready = !is_full && opens_notifying && ((is_single && !has_slot) || !admits_notifying);
    wire is_sweep_due = moved_on || next_sweep <= c_now;
    wire is_placed = state == PLACE && (is_settled || !opens_notifying);
    wire place = is_placed && !is_contradiction && !is_full && !is_not_ready;

    wire write_start = fast || (state == HIT_ACCESS && access_done && allowed) || (place && !is_trimmed);
    wire [15:0] beats = (h_length + 16'(BUS / 8 - 1)) >> BYTE_BITS;
    wire is_last_beat = 16'(beat) + 16'd1 == beats;
    wire accept = write_data_valid && write_data_ready;
    wire is_stream_done = state == STREAM && (sent || (accept && is_last_beat)) && (!write_valid || write_ready);
    wire next_beat = (accept && !is_last_beat) || state == ESCAPE_STORE;

    assign write_address = c_address;
    assign write_length = c_length;
    assign write_data_valid = state == STREAM && !sent;
    assign write_data = held ? x_payload : payload_data;
    assign payload_beat = next_beat ? beat + 1'b1 : beat;
    assign packet_ready = (state == FINISH && !held) || (is_stream_done && !writing_start && !held);

    wire [63:0] entry_deadline = entry_touched + registry_timeout;
    wire [63:0] transfer_deadline = t_touched + registry_timeout;
    wire [63:0] sender_deadline = s_touched + registry_timeout + packet_lifetime;
    wire is_former = s_in_use && s_name[31:0] == c_source && s_name[63:32] != c_incarnation;
    wire is_entry_over = former ? is_former : entry_deadline <= c_now || is_older(e_name[95:64], s_oldest);
    wire is_transfer_over = former ? is_former : transfer_deadline <= c_now || is_older(t_id, s_oldest);
    wire is_sender_idle = !former && s_in_use && s_transfers == 0;
    wire is_sender_over = is_sender_idle && sender_deadline <= c_now;
    wire is_timer_due = escape_deadline <= now || next_sweep <= now || resettle;
    wire is_overtaken = t_in_use && t_source == s_index && t_awaits_notice && is_older(t_id, oldest_live);
    // In units of DELAY_UNIT_NS.
    wire [63:0] x_wait = c_now > x_arrived ? (c_now - x_arrived) >> 6 : 64'd0;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Tables.

    wire expire = state == EXPIRE && event_space;
    wire remove_entry = expire || (state == COMPLETE_ENTRY && event_space);
    wire is_trimmed_hit = state == CLASSIFY && is_for_us && is_sound_size && hit && is_trimmed && !is_arrived;
    wire is_duplicate = state == HIT_LATE && !is_late && agrees_hit && has_bit;
    wire open_sender = state == INSERT && new_source;
    wire open_transfer = state == INSERT_TRANSFER && new_transfer;
    wire close_record = state == CLOSE_RECORD;
    wire await = state == AWAIT;
    wire search_records = (state == SENDER_LATE && !is_late) || state == RESEARCH_RECORDS;

    ni_registry #(
        .HASHED(HASHED), .ENTRIES(ENTRIES), .MASK_BITS(MASK_BITS), .SOURCES(SOURCES), .TRANSFERS(TRANSFERS), .MEMORY_WINDOWS(MEMORY_WINDOWS)
    ) registry (
        .clk, .rst_n, .clear,
        .lookup_key(h_name), .found, .found_index,
        .index(state == READ ? found_index : e_index),
        .read_live(e_live), .read_key(e_name), .read_base, .read_length, .read_segment_count, .read_packets, .read_silent, .read_notify,
        .read_source, .read_transfer, .read_window, .read_mask, .read_touched, .read_generation,
        .insert(state == INSERT_ENTRY), .insert_base(h_base), .insert_length(h_segment_length), .insert_segment_count(h_segment_count),
        .insert_packets(h_packets[8:0]), .insert_silent(h_flags[ni_pkg::FLAGS_SILENT_BIT]),
        .insert_notify(h_flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT]), .insert_source(s_index), .insert_transfer(t_index),
        // Bits beyond the packets are ones (5.3). A trimmed START leaves its own packet missing (5.11).
        .insert_mask(({MASK_BITS{1'b1}} << h_packets[8:0]) | MASK_BITS'(!is_trimmed)),
        .free_index(free_entry), .has_free(has_free_entry),
        .remove(remove_entry), .touch(is_trimmed_hit || is_duplicate), .touch_time(c_now),
        .set_window(state == HIT_ACCESS && access_done && allowed), .window(allowed_index),
        .commit_index(head_entry), .commit_mask, .commit_generation, .commit, .commit_new_mask(new_mask),
        .commit_time(head_context[193 +: 64]),
        .occupancy(registry_used)
    );

    ni_senders #(.SOURCES(SOURCES)) senders (
        .clk, .rst_n, .clear,
        .name({h_incarnation, h_source}),
        .search((state == CLASSIFY && is_for_us && (is_arrived || (!hit && is_sound_size))) || state == RESEARCH),
        .search_done(senders_done), .found(s_found), .found_index(s_found_index), .free(s_free), .free_index(s_free_index),
        .index(s_index), .read_in_use(s_in_use), .read_name(s_name), .read_oldest_live(s_oldest), .read_transfers(s_transfers),
        .read_announced(s_announced), .read_touched(s_touched),
        .open(open_sender),
        .close((state == SWEEP_SENDER && former && is_former) || (state == SWEEP_NODE && nodes_done)),
        .set_oldest_live(state == ADVANCE), .oldest_live(h_oldest_live),
        .touch(fast || state == HIT || state == SENDER_FOUND), .touch_time(c_now),
        .set_transfers(close_record || open_transfer), .transfers(open_transfer ? s_transfers + 1'b1 : s_transfers - 1'b1),
        .set_announced(await || (close_record && t_awaits_notice)), .announced(await ? s_announced + 1'b1 : s_announced - 1'b1)
    );

    ni_transfers #(.SOURCES(SOURCES), .TRANSFERS(TRANSFERS)) transfers (
        .clk, .rst_n, .clear,
        .search(search_records || state == ARRIVED_SEARCH), .source_known(s_known), .source(s_index), .id(h_transfer),
        .search_done(transfers_done), .found(t_found), .found_index(t_found_index), .free(t_free), .free_index(t_free_index),
        .index(t_index), .read_in_use(t_in_use), .read_source(t_source), .read_id(t_id), .read_segment_count(t_segment_count),
        .read_base(t_base), .read_length(t_length), .read_notice(t_notice), .read_registered(t_registered),
        .read_awaits_notice(t_awaits_notice), .read_awaits_slot(t_awaits_slot), .read_touched(t_touched), .read_done_base(t_done_base),
        .segment(c_segment), .segment_done(t_segment_done), .segment_covered(t_segment_covered),
        .open(open_transfer), .open_segment_count(h_segment_count), .open_base(h_transfer_base), .open_length(h_transfer_length),
        .open_notice(h_notice), .close(close_record),
        .set_registered(state == INSERT_ENTRY || state == COMPLETE_TRANSFER || expire),
        .registered(state == INSERT_ENTRY ? t_registered + 1'b1 : t_registered - 1'b1),
        .touch(state == INSERT_ENTRY || state == COMPLETE_TRANSFER || state == TRANSFER_FOUND), .touch_time(c_now),
        .set_awaits_notice(await),
        .set_awaits_slot((state == COMPLETE_NOTICE && k_whole && !k_ready) || (state == RETRY_SLOT && is_settled && has_slot)),
        .awaits_slot(state == COMPLETE_NOTICE),
        .mark(state == COMPLETE_TRANSFER), .mark_done
    );

    ni_tombstones #(.SOURCES(SOURCES), .TOMBSTONES(TOMBSTONES)) tombstones (
        .clk, .rst_n(tables_rst_n),
        .start(search_records || state == ADVANCE || open_sender || (close_record && close_complete)),
        .op(state == ADVANCE ? TOMBSTONE_ADVANCE : open_sender ? TOMBSTONE_RESET : close_record ? TOMBSTONE_INSERT : TOMBSTONE_CHECK),
        .source(s_index), .oldest_live(s_oldest), .id(close_record ? t_id : h_transfer), .advance_to(h_oldest_live),
        .done(tombstones_done), .contains(tombstone), .adjacent, .used(ranges_used)
    );

    wire is_same_incarnation = node_found && node_incarnation == h_incarnation;
    wire is_superseded = node_found && is_older(h_incarnation, node_incarnation);
    wire is_swept_node = state == SWEEP_SENDER || state == SWEEP_NODE;
    ni_nodes #(.NODES(NODES)) nodes (
        .clk, .rst_n, .clear,
        .start(((state == ESCAPE_ACCESS || state == REGISTER_ACCESS) && access_done && allowed) || open_sender
            || (state == SWEEP_SENDER && is_sender_over)),
        .node(is_swept_node ? s_name[31:0] : h_source),
        .idle_limit(c_now > packet_lifetime ? c_now - packet_lifetime : 64'd0),
        .done(nodes_done), .found(node_found), .available(node_available), .incarnation(node_incarnation),
        .admit(state == REGISTER_NODE && nodes_done && (node_found ? !is_same_incarnation && !is_superseded : node_available)),
        .admit_incarnation(h_incarnation),
        .set_active((state == INSERT_NODE && nodes_done && tombstones_done && is_same_incarnation)
            || (state == SWEEP_NODE && nodes_done && node_found && node_incarnation == s_name[63:32])),
        .active(state == INSERT_NODE), .now(c_now)
    );

    wire is_range_valid = window_length != 0 && !(window_base > ~window_length);
    wire is_window = {16'd0, command_index} < 32'(MEMORY_WINDOWS);
    ni_access #(.MEMORY_WINDOWS(MEMORY_WINDOWS)) access (
        // CLEAR keeps memory windows (interface.md 10.7).
        .clk, .rst_n, .clear(1'b0),
        .source(h_source), .key(h_key), .address(whole ? h_base : h_address), .length(whole ? h_segment_length : {16'd0, h_length}),
        .probe(state == COMMAND ? command_index[WINDOW_BITS-1:0] : hit ? e_window : '0), .probe_allows,
        .search((state == HIT_LATE && !is_late && agrees_hit && !has_bit) || (state == KINDS && !is_start && !is_trimmed)
            || state == REGISTER_SEARCH),
        .search_done(access_done), .allowed, .allowed_index,
        .install(state == COMMAND && command == COMMAND_INSTALL && is_window && is_range_valid),
        .remove(state == COMMAND && command == COMMAND_REMOVE && is_window),
        .index(command_index[WINDOW_BITS-1:0]), .window_source, .window_base, .window_length, .window_key, .window_permissions,
        .read_valid(window_valid), .read_window(window), .occupancy(windows_used)
    );

    ni_escape #(.ESCAPE_SLOTS(ESCAPE_SLOTS), .PACKET_LOG2(PACKET_LOG2), .BUS(BUS)) escape (
        .clk, .rst_n, .clear, .now(c_now), .escape_timeout, .packet_lifetime,
        .search((state == ESCAPE_NODE && nodes_done && !is_superseded) || (state == RELEASE && escape_used != 0)
            || state == TIMER_SEARCH || state == TIMER_RESET),
        .mode(state == ESCAPE_NODE ? ESCAPE_SAME : state == RELEASE ? ESCAPE_OPERATION : state == TIMER_SEARCH ? ESCAPE_EXPIRED
            : ESCAPE_TIMER),
        .from(state == RELEASE || state == TIMER_SEARCH ? x_from : '0),
        // `h` is the packet of the port in these states.
        .key(h_name), .address(h_address),
        .search_done(escape_done), .found(x_found), .found_index(x_found_index), .vacant(x_vacant), .vacant_index(x_vacant_index),
        .index(x_index), .read_valid(x_valid), .read_header(escape_header), .read_length(escape_length), .read_arrived(x_arrived),
        .store(state == ESCAPE_STORE && is_last_beat), .header(packet_header[447:0]), .length(h_length),
        .refresh(state == ESCAPE_REFRESH),
        .release_slot((state == HELD_DONE && event_space) || state == TIMER_RELEASE), .note_wait(state == RELEASE_SLOT),
        .payload_write(state == ESCAPE_STORE), .payload_beat(beat), .payload(payload_data),
        .payload_read_beat(payload_beat), .payload_read(x_payload),
        .next_deadline(escape_deadline), .occupancy(escape_used), .high_water(escape_most)
    );

    ni_inflight #(.ENTRIES(ENTRIES), .CONTEXT(CONTEXT)) inflight (
        .clk, .rst_n,
        .push(write_start), .push_start(state == PLACE), .push_entry(e_index), .push_number(number), .push_context(c),
        .full(inflight_full), .empty(inflight_empty), .write_done, .write_error,
        .head_answered, .head_error, .head_start, .head_entry, .head_number, .head_context,
        .pop(commit || take_head || take_start),
        .search_entry(e_index), .search_number(number), .contains(in_flight)
    );

    ni_receive_check #(.MASK_BITS(MASK_BITS), .PACKET_LOG2(PACKET_LOG2)) check (
        .clk, .address(h_address), .payload_length(h_length), .trimmed(is_trimmed), .segment(h_segment), .segment_count(h_segment_count),
        .start_base(h_base), .start_length(h_segment_length), .start_packets(h_packets), .transfer_base(h_transfer_base),
        .transfer_length(h_transfer_length),
        .entry_base(e_base), .entry_length(e_length), .entry_packets(e_packets), .entry_segment_count(e_segment_count),
        .agrees, .number, .same_start, .sound_start
    );

    ni_refusals #(.ENTRIES(ENTRIES)) refusals (
        .clk, .rst_n, .clear, .release_entry(remove_entry),
        .refuse(is_placed && is_full && !is_contradiction && (swept || !is_sweep_due) && !has_free_entry),
        .now(c_now), .delay(refusal_delay)
    );

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Reports.

    wire report_ack = state == ACK && answer_space;
    wire report_nack = state == NACK && answer_space;
    wire report_done = state == COMPLETE_DONE && k_ready && answer_space;
    wire report_fault = state == FAULT && fault_space;
    wire reports_event = state == ESCAPE_EVENT || state == REGISTERED || state == HELD_DONE || state == COMPLETE_ENTRY
        || state == NOTICE_EVENT || state == EXPIRE || state == TIMER_EVENT
        || ((state == FIRST_PACKET || state == COMPLETE_PACKET) && packet_events);
    wire report_event = reports_event && event_space;
    wire is_slot_event = state == ESCAPE_EVENT || state == HELD_DONE || state == TIMER_EVENT;
    wire is_packet_event = commit || state == FIRST_PACKET || state == COMPLETE_PACKET;
    wire [7:0] registration = {is_trimmed, 3'd0, h_flags[3:1], 1'b0};

    logic [7:0] event_kind;
    always_comb begin
        case (state)
            ESCAPE_EVENT: event_kind = ni_pkg::EVENT_KIND_ESCAPED;
            HELD_DONE, TIMER_EVENT: event_kind = ni_pkg::EVENT_KIND_ESCAPE_RELEASED;
            REGISTERED: event_kind = ni_pkg::EVENT_KIND_REGISTERED;
            COMPLETE_ENTRY: event_kind = ni_pkg::EVENT_KIND_COMPLETED;
            NOTICE_EVENT: event_kind = ni_pkg::EVENT_KIND_NOTICE;
            EXPIRE: event_kind = ni_pkg::EVENT_KIND_EXPIRED;
            default: event_kind = ni_pkg::EVENT_KIND_PACKET;
        endcase
    end
    wire is_notice = state == NOTICE_EVENT;
    wire is_registered = state == REGISTERED;
    wire [127:0] event_key = commit ? head_context[127:0] : is_notice ? {32'd0, t_id, s_name} : state == EXPIRE ? e_name : c_name;
    wire [15:0] event_index = is_notice ? 16'd0 : is_slot_event ? 16'(x_index) : commit ? 16'(head_entry) : 16'(e_index);
    wire [31:0] event_count = commit ? {24'd0, head_number} : is_packet_event ? {24'd0, k_number} : is_registered ? {16'd0, h_packets}
        : {31'd0, state == HELD_DONE};
    wire [63:0] event_address = is_slot_event ? c_address : is_registered ? h_base : is_notice ? t_base : 64'd0;
    wire [63:0] event_length = is_slot_event ? {48'd0, c_length} : is_registered ? {32'd0, h_segment_length} : is_notice ? t_length : 64'd0;

    ni_receive_report #(.CONTEXT(CONTEXT)) report (
        .clk, .rst_n, .node, .incarnation, .context_in(commit ? head_context : c),
        .answer(commit || report_ack || report_nack || report_done),
        .answer_kind(report_nack ? ni_pkg::PACKET_KIND_NACK : report_done ? ni_pkg::PACKET_KIND_SEGMENT_DONE : ni_pkg::PACKET_KIND_ACK),
        .answer_reason(report_nack ? reason : active > 16'd255 ? 8'd255 : active[7:0]),
        .answer_op(report_nack && reason == ni_pkg::NACK_REASON_SUPERSEDED ? newest
            : commit ? head_context[128 +: 32] : c_op),
        .answer_delay(report_nack ? reply_delay : commit ? head_context[177 +: 16] : c_delay), .answer_space,
        .event_report(report_event || (commit && packet_events)), .event_kind, .event_index,
        .event_generation(is_notice || is_slot_event ? 32'd0 : commit ? commit_generation : read_generation),
        .event_key, .event_op(is_slot_event ? c_op : is_registered ? h_segment_count : 32'd0), .event_count, .event_address, .event_length,
        .event_tries(is_registered ? registration : 8'd0), .event_space, .events_quiet,
        .fault(report_fault), .fault_reason(fault_kind), .fault_address(fault_at), .fault_length(fault_size), .fault_space,
        .answer_valid, .answer_ready, .answer_data(answer), .answer_length, .event_valid, .event_ready, .event_data, .fault_valid,
        .fault_ready, .fault_event
    );

    ni_receive_shadow #(.MASK_BITS(MASK_BITS)) shadow (
        .clk, .rst_n(tables_rst_n), .latch_entry(state == COMMAND_ENTRY_LATCH), .latch_slot(state == COMMAND_SLOT),
        .valid(!command_failed && (state == COMMAND_SLOT ? x_valid : e_live)), .index(command_index),
        .age(state == COMMAND_SLOT ? (now > x_arrived ? now - x_arrived : 64'd0) : (now > read_touched ? now - read_touched : 64'd0)),
        .done(shadow_done),
        .generation(read_generation), .key(e_name), .segment_count(read_segment_count), .base(read_base), .length(read_length),
        .packets(read_packets), .silent(read_silent), .notify(read_notify), .transfer_length(t_length), .mask(read_mask),
        .slot_key({escape_header[ni_pkg::DATA_SEGMENT_LSB +: 32], escape_header[ni_pkg::DATA_TRANSFER_LSB +: 32],
            escape_header[ni_pkg::DATA_INCARNATION_LSB +: 32], escape_header[ni_pkg::DATA_SOURCE_LSB +: 32]}),
        .slot_address(escape_header[ni_pkg::DATA_ADDRESS_LSB +: 64]), .slot_length(escape_length),
        .slot_op(escape_header[ni_pkg::DATA_OP_LSB +: 32]),
        .entry_words(registry_shadow), .slot_words(escape_shadow)
    );

    assign registry_occupancy = 32'(registry_used);
    assign escape_occupancy = 32'(escape_used);
    assign escape_high_water = 32'(escape_most);
    assign memory_occupancy = 32'(windows_used);
    assign command_ready = state == COMMAND_WAIT && shadow_done;
    assign idle = state == IDLE && !packet_valid && !command_valid && inflight_empty && !is_timer_due && !answer_valid && !event_valid
        && !fault_valid;

    wire refuse_offer = state == ESCAPE_OFFER && escape_done && !x_found && !x_vacant;
    wire is_late_record = state == SENDER_RECORDS && transfers_done && tombstones_done && tombstone;
    wire is_late_segment = state == TRANSFER_FOUND && t_segment_done && !t_awaits_slot;
    assign count_duplicates = is_duplicate || state == ESCAPE_REFRESH || state == RETRY
        || (state == ARRIVED && senders_done && !s_found) || (state == ARRIVED_FOUND && transfers_done && !t_found)
        || (state == ARRIVED_CHECK && !t_awaits_notice);
    assign count_registrations = state == INSERT_ENTRY;
    assign count_completions = state == COMPLETE_ENTRY && event_space;
    assign count_escape_hits = state == ESCAPE_EVENT && event_space;
    assign count_escape_dropped = refuse_offer || state == TIMER_RELEASE;
    assign count_registry_full = (is_placed && is_full && !is_contradiction && (swept || !is_sweep_due))
        || (state == REGISTER_NODE && nodes_done && !node_found && !node_available);
    assign count_bad_packet = (report_fault && fault_kind == ni_pkg::FAULT_REASON_BAD_PACKET) || (state == CLASSIFY && !is_for_us);
    assign count_violations = report_fault && fault_kind != ni_pkg::FAULT_REASON_BAD_PACKET;
    assign count_tombstone_hits = (state == HIT_LATE && is_late) || (state == SENDER_LATE && is_late) || is_late_record || is_late_segment;
    assign count_expired = expire;
    assign count_nacks_sent = report_nack;
    assign count_acks_sent = commit || report_ack;
    assign count_trimmed = state == CLASSIFY && !is_arrived && is_trimmed;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Control.

    always_ff @(posedge clk) begin
        // Counts over all records change where records begin and end.
        if (!rst_n || clear) begin
            active <= '0;
            notifying <= '0;
            announced <= '0;
        end else begin
            if (open_transfer && s_transfers == 0) active <= active + 1'b1;
            if (close_record && s_transfers == 1) active <= active - 1'b1;
            if (open_transfer && h_notice != NOTICE_NEVER) notifying <= notifying + 1'b1;
            if (close_record && t_notice != NOTICE_NEVER) notifying <= notifying - 1'b1;
            if (await) announced <= announced + 1'b1;
            if (close_record && t_awaits_notice) announced <= announced - 1'b1;
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) registry_high_water <= '0;
        else if (registry_occupancy > registry_high_water) registry_high_water <= registry_occupancy;
    end

    always_ff @(posedge clk) begin
        // The beats of the write, or of the payload that is stored in the escape channel.
        if (state == IDLE || state == LOOKUP || state == CHECK) beat <= '0;
        else if (next_beat) beat <= beat + 1'b1;
        if (write_start) begin
            write_valid <= 1'b1;
            sent <= 1'b0;
        end else begin
            if (write_ready) write_valid <= 1'b0;
            if (accept && is_last_beat) sent <= 1'b1;
        end
        if (!rst_n) write_valid <= 1'b0;
    end

    always_ff @(posedge clk) begin
        if (take_head) begin
            c <= head_context;
            e_index <= head_entry;
            k_number <= head_number;
            complete_next <= state;
        end
        case (state)
            IDLE: begin
                held <= 1'b0;
                delay <= '0;
                whole <= 1'b0;
                swept <= 1'b0;
                in_timer <= 1'b0;
                reply_delay <= '0;
                reply_next <= FINISH;
                timer_now <= now;
                if (resettle) next_sweep <= '0;
                resettle <= 1'b0;
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (packet_valid) state <= READ;
                else if (command_valid && inflight_empty) state <= COMMAND;
                else if (is_timer_due && !resettle && inflight_empty) state <= TIMER;
            end
            LOOKUP: begin
                whole <= 1'b0;
                reply_next <= FINISH;
                state <= READ;
            end
            READ: begin
                c <= h_context;
                hit <= found && !is_arrived;
                e_index <= found_index;
                s_index <= read_source;
                e_transfer <= read_transfer;
                e_base <= read_base;
                e_length <= read_length;
                e_segment_count <= read_segment_count;
                e_packets <= read_packets;
                e_window <= read_window;
                state <= CHECK;
            end
            CHECK: begin
                oldest_live <= s_oldest;
                state <= DECIDE;
            end
            DECIDE: begin
                writing_start <= 1'b0;
                if (fast) state <= STREAM;
                else if (!inflight_empty) state <= is_fast ? DECIDE : DRAIN;
                else state <= CLASSIFY;
            end
            STREAM: if (is_stream_done) state <= writing_start ? START_WAIT : held ? HELD_DRAIN : IDLE;
            DRAIN: begin
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (inflight_empty) state <= IDLE;
            end
            FINISH: state <= held ? HELD_DRAIN : IDLE;

            ACK: if (answer_space) state <= reply_next;
            NACK: if (answer_space) begin
                reply_delay <= '0;
                state <= reply_next;
            end
            FAULT: if (fault_space) state <= NACK;
            WRITE_ERROR: begin
                // Nothing has changed: the packet may be sent again, and finds the same state.
                fault_kind <= ni_pkg::FAULT_REASON_MEMORY_FAULT;
                fault_at <= c_address;
                fault_size <= {16'd0, c_length};
                reason <= ni_pkg::NACK_REASON_VIOLATION;
                reply_next <= complete_next;
                state <= FAULT;
            end

            CLASSIFY: begin
                fault_kind <= ni_pkg::FAULT_REASON_BAD_PACKET;
                fault_at <= h_address;
                fault_size <= {16'd0, h_length};
                reason <= ni_pkg::NACK_REASON_BAD_PACKET;
                if (!is_for_us) begin
                    state <= FINISH;
                end else if (is_arrived) begin
                    state <= ARRIVED;
                end else if (!is_sound_size) begin
                    state <= FAULT;
                end else if (hit && is_trimmed) begin
                    reason <= ni_pkg::NACK_REASON_TRIMMED;
                    state <= NACK;
                end else begin
                    state <= hit ? HIT : SENDER;
                end
            end

            // Its entry is known.
            HIT: begin
                if (is_newer) oldest_live <= h_oldest_live;
                advance_next <= HIT_RECORD;
                state <= is_newer ? ADVANCE : HIT_RECORD;
            end
            HIT_RECORD: begin
                t_index <= e_transfer;
                state <= HIT_LATE;
            end
            HIT_LATE: begin
                if (is_late) state <= ACK;
                else if (!agrees_hit) state <= FAULT;
                else if (has_bit) state <= ACK;
                else state <= HIT_ACCESS;
            end
            HIT_ACCESS: if (access_done) begin
                fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                reason <= ni_pkg::NACK_REASON_VIOLATION;
                state <= allowed ? STREAM : FAULT;
            end

            // Its entry is not known.
            SENDER: if (senders_done) begin
                s_known <= s_found;
                t_known <= 1'b0;
                if (s_found) s_index <= s_found_index;
                state <= s_found ? SENDER_FOUND : KINDS;
            end
            SENDER_FOUND: begin
                oldest_live <= is_older(s_oldest, h_oldest_live) ? h_oldest_live : s_oldest;
                advance_next <= SENDER_LATE;
                state <= is_older(s_oldest, h_oldest_live) ? ADVANCE : SENDER_LATE;
            end
            SENDER_LATE: state <= is_late ? ACK : SENDER_RECORDS;
            SENDER_RECORDS: if (transfers_done && tombstones_done) begin
                t_known <= t_found;
                if (t_found) t_index <= t_found_index;
                state <= tombstone ? ACK : t_found ? TRANSFER_FOUND : KINDS;
            end
            TRANSFER_FOUND: begin
                if (!t_segment_done) state <= KINDS;
                else state <= t_awaits_slot ? RETRY : ACK;
            end
            RETRY: state <= RETRY_SLOT;
            RETRY_SLOT: if (is_settled) begin
                reason <= ni_pkg::NACK_REASON_NOT_READY;
                k_whole <= 1'b1;
                k_ready <= 1'b1;
                complete_next <= FINISH;
                if (has_slot) reply_next <= COMPLETE_DONE;
                state <= has_slot ? ACK : NACK;
            end
            KINDS: begin
                reason <= ni_pkg::NACK_REASON_TRIMMED;
                if (is_start) state <= REGISTER;
                else state <= is_trimmed ? NACK : ESCAPE_ACCESS;
            end

            ARRIVED: if (senders_done) begin
                s_known <= 1'b1;
                s_index <= s_found_index;
                state <= s_found ? ARRIVED_SEARCH : FINISH;
            end
            ARRIVED_SEARCH: state <= ARRIVED_FOUND;
            ARRIVED_FOUND: if (transfers_done) begin
                t_index <= t_found_index;
                state <= t_found ? ARRIVED_CHECK : FINISH;
            end
            ARRIVED_CHECK: begin
                close_next <= FINISH;
                state <= t_awaits_notice ? NOTICE : FINISH;
            end

            ADVANCE: begin
                if (s_transfers != 0) moved_on <= 1'b1;
                state <= ADVANCE_WAIT;
            end
            ADVANCE_WAIT: if (tombstones_done) begin
                t_index <= '0;
                state <= s_announced != 0 ? OVERTAKEN : advance_next;
            end
            // The sender has moved past complete transfers without an ARRIVED packet (5.8).
            OVERTAKEN: begin
                close_next <= OVERTAKEN_NEXT;
                state <= is_overtaken ? NOTICE : OVERTAKEN_NEXT;
            end
            OVERTAKEN_NEXT: begin
                t_index <= t_index + 1'b1;
                state <= t_index == TRANSFER_BITS'(TRANSFERS - 1) ? advance_next : OVERTAKEN;
            end

            ESCAPE_ACCESS: if (access_done) begin
                fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                reason <= ni_pkg::NACK_REASON_VIOLATION;
                state <= allowed ? ESCAPE_NODE : FAULT;
            end
            ESCAPE_NODE: if (nodes_done) begin
                newest <= node_incarnation;
                reason <= ni_pkg::NACK_REASON_SUPERSEDED;
                state <= is_superseded ? NACK : ESCAPE_OFFER;
            end
            ESCAPE_OFFER: if (escape_done) begin
                reason <= ni_pkg::NACK_REASON_ESCAPE_FULL;
                x_index <= x_found ? x_found_index : x_vacant_index;
                if (x_found) state <= ESCAPE_REFRESH;
                else state <= x_vacant ? ESCAPE_STORE : NACK;
            end
            ESCAPE_REFRESH: state <= FINISH;
            ESCAPE_STORE: if (is_last_beat) state <= ESCAPE_EVENT;
            ESCAPE_EVENT: if (event_space) state <= FINISH;

            REGISTER: begin
                reason <= ni_pkg::NACK_REASON_BAD_PACKET;
                whole <= 1'b1;
                state <= sound_start ? REGISTER_SEARCH : FAULT;
            end
            REGISTER_SEARCH: state <= REGISTER_ACCESS;
            REGISTER_ACCESS: if (access_done) begin
                reason <= ni_pkg::NACK_REASON_VIOLATION;
                if (!allowed) begin
                    fault_kind <= ni_pkg::FAULT_REASON_VIOLATION;
                    fault_at <= h_base;
                    fault_size <= h_segment_length;
                end
                state <= allowed ? REGISTER_NODE : FAULT;
            end
            // The newest incarnation of the sender (incarnations.md 6.2): a later one ends all records of the earlier one.
            REGISTER_NODE: if (nodes_done) begin
                newest <= node_incarnation;
                reason <= is_superseded ? ni_pkg::NACK_REASON_SUPERSEDED : ni_pkg::NACK_REASON_BUSY;
                former <= 1'b1;
                sweep_next <= RESEARCH;
                if (is_superseded || (!node_found && !node_available)) state <= NACK;
                else if (node_found && !is_same_incarnation) state <= SWEEP;
                else state <= s_known ? PLACE : RESEARCH;
            end
            RESEARCH: state <= RESEARCH_SENDER;
            RESEARCH_SENDER: if (senders_done) begin
                s_known <= s_found;
                if (s_found) s_index <= s_found_index;
                state <= RESEARCH_RECORDS;
            end
            RESEARCH_RECORDS: state <= RESEARCH_TRANSFER;
            RESEARCH_TRANSFER: if (transfers_done && tombstones_done) begin
                t_known <= t_found;
                if (t_found) t_index <= t_found_index;
                state <= PLACE;
            end
            PLACE: begin
                x_from <= '0;
                new_source <= !s_known;
                new_transfer <= !t_known;
                writing_start <= 1'b1;
                former <= 1'b0;
                sweep_next <= RESEARCH;
                if (place) begin
                    if (!s_known) s_index <= s_free_index;
                    if (!t_known) t_index <= t_free_index;
                    state <= is_trimmed ? INSERT : STREAM;
                end else if (is_placed) begin
                    if (is_contradiction) begin
                        reason <= ni_pkg::NACK_REASON_BAD_PACKET;
                        state <= FAULT;
                    end else if (!swept && is_sweep_due) begin
                        swept <= 1'b1;
                        state <= SWEEP;
                    end else begin
                        // Of missing records it is not known when they are free.
                        reply_delay <= is_full && !has_free_entry ? refusal_delay : 16'd0;
                        reason <= is_full ? ni_pkg::NACK_REASON_BUSY : ni_pkg::NACK_REASON_NOT_READY;
                        state <= NACK;
                    end
                end
            end
            START_WAIT: if (head_answered) begin
                complete_next <= FINISH;
                state <= head_error ? WRITE_ERROR : INSERT;
            end
            INSERT: state <= new_source ? INSERT_NODE : INSERT_TRANSFER;
            INSERT_NODE: if (nodes_done && tombstones_done) state <= INSERT_TRANSFER;
            INSERT_TRANSFER: state <= INSERT_ENTRY;
            INSERT_ENTRY: begin
                e_index <= free_entry;
                k_number <= '0;
                if (c_now + registry_timeout < next_sweep) next_sweep <= c_now + registry_timeout;
                state <= REGISTERED;
            end
            REGISTERED: if (event_space) begin
                reason <= ni_pkg::NACK_REASON_TRIMMED;
                reply_next <= is_trimmed ? RELEASE : FIRST_PACKET;
                complete_next <= RELEASE;
                state <= is_trimmed ? NACK : h_packets == 1 ? COMPLETE : ACK;
            end
            FIRST_PACKET: if (event_space || !packet_events) state <= RELEASE;
            // The packets of the new operation in the escape channel, in slot order, as if they arrived now (5.5).
            RELEASE: state <= escape_used != 0 ? RELEASE_FIND : FINISH;
            RELEASE_FIND: if (escape_done) begin
                held <= x_found;
                x_index <= x_found_index;
                state <= x_found ? RELEASE_SLOT : FINISH;
            end
            RELEASE_SLOT: begin
                delay <= x_wait[63:16] == 0 ? x_wait[15:0] : 16'hFFFF;
                state <= LOOKUP;
            end
            HELD_DRAIN: begin
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (inflight_empty) state <= HELD_DONE;
            end
            HELD_DONE: if (event_space) begin
                held <= 1'b0;
                delay <= '0;
                x_from <= x_index + 1'b1;
                state <= x_index == SLOT_BITS'(ESCAPE_SLOTS - 1) ? FINISH : RELEASE;
            end

            // All packets of the entry are in memory (5.5).
            COMPLETE: begin
                t_index <= read_transfer;
                state <= COMPLETE_TRANSFER;
            end
            COMPLETE_TRANSFER: state <= COMPLETE_MARK;
            COMPLETE_MARK: if (mark_done) begin
                k_whole <= t_done_base >= t_segment_count;
                state <= COMPLETE_SLOT;
            end
            COMPLETE_SLOT: if (is_settled || !k_whole || t_notice == NOTICE_NEVER) begin
                k_ready <= !k_whole || t_notice == NOTICE_NEVER || has_slot;
                reason <= ni_pkg::NACK_REASON_NOT_READY;
                reply_next <= COMPLETE_PACKET;
                state <= !k_whole || t_notice == NOTICE_NEVER || has_slot ? ACK : NACK;
            end
            COMPLETE_PACKET: if (event_space || !packet_events) state <= COMPLETE_ENTRY;
            COMPLETE_ENTRY: if (event_space) state <= COMPLETE_DONE;
            COMPLETE_DONE: if (answer_space || !k_ready) state <= COMPLETE_NOTICE;
            COMPLETE_NOTICE: begin
                close_next <= complete_next;
                close_complete <= 1'b1;
                if (!k_whole || !k_ready) state <= complete_next;
                else if (t_notice == NOTICE_NEVER) state <= CLOSE;
                else state <= t_notice == NOTICE_ON_LAST ? NOTICE : AWAIT;
                s_index <= t_source;
            end
            AWAIT: state <= complete_next;
            NOTICE: begin
                s_index <= t_source;
                close_complete <= 1'b1;
                state <= NOTICE_EVENT;
            end
            NOTICE_EVENT: if (event_space) state <= CLOSE_RECORD;
            CLOSE: begin
                s_index <= t_source;
                state <= CLOSE_RECORD;
            end
            CLOSE_RECORD: state <= CLOSE_WAIT;
            CLOSE_WAIT: if (tombstones_done) state <= close_next;

            SWEEP: begin
                if (!former) moved_on <= 1'b0;
                next_time <= NEVER;
                e_index <= '0;
                state <= SWEEP_ENTRY;
            end
            SWEEP_ENTRY: begin
                s_index <= read_source;
                t_index <= read_transfer;
                entry_touched <= read_touched;
                state <= e_live ? SWEEP_ENTRY_DUE : SWEEP_ENTRY_NEXT;
            end
            SWEEP_ENTRY_DUE: begin
                if (!is_entry_over && entry_deadline < next_time) next_time <= entry_deadline;
                state <= is_entry_over ? EXPIRE : SWEEP_ENTRY_NEXT;
            end
            EXPIRE: if (event_space) state <= SWEEP_ENTRY_NEXT;
            SWEEP_ENTRY_NEXT: begin
                e_index <= e_index + 1'b1;
                t_index <= '0;
                state <= e_index == ENTRY_BITS'(ENTRIES - 1) ? SWEEP_TRANSFER : SWEEP_ENTRY;
            end
            SWEEP_TRANSFER: begin
                s_index <= t_source;
                state <= t_in_use && (former || t_registered == 0) ? SWEEP_TRANSFER_DUE : SWEEP_TRANSFER_NEXT;
            end
            SWEEP_TRANSFER_DUE: begin
                close_next <= SWEEP_TRANSFER_NEXT;
                close_complete <= 1'b0;
                if (!is_transfer_over) begin
                    if (transfer_deadline < next_time) next_time <= transfer_deadline;
                    state <= SWEEP_TRANSFER_NEXT;
                end else begin
                    state <= t_awaits_notice ? NOTICE : CLOSE;
                end
            end
            SWEEP_TRANSFER_NEXT: begin
                t_index <= t_index + 1'b1;
                s_index <= '0;
                state <= t_index == TRANSFER_BITS'(TRANSFERS - 1) ? SWEEP_SENDER : SWEEP_TRANSFER;
            end
            SWEEP_SENDER: begin
                if (is_sender_idle && !is_sender_over && sender_deadline < next_time) next_time <= sender_deadline;
                state <= is_sender_over ? SWEEP_NODE : SWEEP_SENDER_NEXT;
            end
            SWEEP_NODE: if (nodes_done) state <= SWEEP_SENDER_NEXT;
            SWEEP_SENDER_NEXT: begin
                s_index <= s_index + 1'b1;
                if (s_index != SOURCE_BITS'(SOURCES - 1)) begin
                    state <= SWEEP_SENDER;
                end else begin
                    if (!former) next_sweep <= next_time;
                    state <= sweep_next;
                end
            end

            TIMER: begin
                in_timer <= 1'b1;
                x_from <= '0;
                state <= TIMER_DUE;
            end
            TIMER_DUE: begin
                c <= h_context;
                state <= escape_deadline <= timer_now ? TIMER_SEARCH : TIMER_SWEEP;
            end
            TIMER_SEARCH: state <= TIMER_FIND;
            TIMER_FIND: if (escape_done) begin
                x_index <= x_found_index;
                held <= x_found;
                state <= x_found ? TIMER_SLOT : TIMER_RESET;
            end
            TIMER_SLOT: begin
                c <= h_context;
                reason <= ni_pkg::NACK_REASON_BUSY;
                reply_next <= TIMER_RELEASE;
                state <= TIMER_EVENT;
            end
            TIMER_EVENT: if (event_space) state <= NACK;
            TIMER_RELEASE: begin
                held <= 1'b0;
                x_from <= x_index + 1'b1;
                state <= x_index == SLOT_BITS'(ESCAPE_SLOTS - 1) ? TIMER_RESET : TIMER_SEARCH;
            end
            TIMER_RESET: state <= TIMER_RESET_WAIT;
            TIMER_RESET_WAIT: if (escape_done) state <= TIMER_SWEEP;
            TIMER_SWEEP: begin
                former <= 1'b0;
                sweep_next <= TIMER_END;
                state <= next_sweep <= timer_now ? SWEEP : TIMER_END;
            end
            TIMER_END: state <= IDLE;

            COMMAND: begin
                hit <= 1'b0;
                e_index <= command_index[ENTRY_BITS-1:0];
                x_index <= command_index[SLOT_BITS-1:0];
                command_failed <= !is_window;
                case (command)
                    COMMAND_LATCH_ENTRY: begin
                        command_failed <= {16'd0, command_index} >= 32'(ENTRIES);
                        state <= COMMAND_ENTRY;
                    end
                    COMMAND_LATCH_SLOT: begin
                        command_failed <= {16'd0, command_index} >= 32'(ESCAPE_SLOTS);
                        state <= COMMAND_SLOT;
                    end
                    COMMAND_LATCH_WINDOW: state <= COMMAND_WINDOW;
                    COMMAND_INSTALL: begin
                        command_failed <= !is_window || !is_range_valid;
                        state <= COMMAND_WAIT;
                    end
                    COMMAND_CLEAR: begin
                        command_failed <= 1'b0;
                        next_sweep <= NEVER;
                        moved_on <= 1'b0;
                        state <= COMMAND_WAIT;
                    end
                    default: state <= COMMAND_WAIT;
                endcase
            end
            COMMAND_ENTRY: begin
                t_index <= read_transfer;
                state <= COMMAND_ENTRY_LATCH;
            end
            COMMAND_ENTRY_LATCH: state <= COMMAND_WAIT;
            COMMAND_SLOT: state <= COMMAND_WAIT;
            COMMAND_WINDOW: begin
                // Source, base, length, key, permissions in the order of the block.
                memory_shadow <= window_valid && !command_failed
                    ? {1'b1, 30'd0, window[225:224], window[63:0], window[127:64], window[191:128], window[223:192]} : '0;
                state <= COMMAND_WAIT;
            end
            COMMAND_WAIT: if (shadow_done) state <= IDLE;
            default: state <= IDLE;
        endcase
        if (timeouts_changed) resettle <= 1'b1;
        if (!rst_n) begin
            state <= IDLE;
            held <= 1'b0;
            delay <= '0;
            in_timer <= 1'b0;
            resettle <= 1'b0;
            next_sweep <= NEVER;
            moved_on <= 1'b0;
        end
    end

    wire unused = &{1'b0, c_path_unused, h, window_valid};
endmodule
