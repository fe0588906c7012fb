// Control of the receiver: examines packets one by one, and calls the modules that do the rest.
//
// The packet is that of the port, or, while `held`, one from the escape channel. All fields of it and of the selected records are inputs;
// the outputs are requests that are high for a cycle: to tables (searches, changes), to the other modules (`start_timer` and so on, whose
// `busy` is high until they have ended), and reports, which wait for `answer_space`, `event_space` or `fault_space`. `select_` outputs set
// the selected records from the next cycle on. Order and latency: see `ni_receive`. Reset: the packet in progress begins anew.
//
// Paths of a packet (docs/protocol/receiver.md 5.2 to 5.6):
//
//   READ, CHECK, DECIDE, STREAM                its entry is found, and it is on the fast path
//   CLASSIFY, HIT to HIT_ACCESS                its entry is found: all other cases
//   CLASSIFY, SENDER to KINDS                  no entry: late, complete, or unknown
//   ESCAPE_ACCESS to ESCAPE_EVENT              unknown, and no START: into the escape channel
//   START                                      unknown START: `ni_receive_start`
//   RELEASE, RELEASE_FIND, RELEASE_SLOT, ...   then the packets of its segment leave the escape channel, each as if it arrived now
//   ARRIVED to ARRIVED_CHECK                   ARRIVED packets
//   ADVANCE to OVERTAKEN_NEXT                  on each of these, when the sender's oldest live transfer has advanced
//
// A write that was answered is finished beside this, unless it completes its entry or memory refused it: see `commit`.

`timescale 1ns / 1ps

module ni_receive_control #(
    parameter int PACKET_LOG2 = 9,
    parameter int MASK_BITS = 32,
    parameter int ENTRY_BITS = 6,
    parameter int SOURCE_BITS = 6,
    parameter int TRANSFERS = 128,
    parameter int WINDOW_BITS = 6,
    parameter int ESCAPE_SLOTS = 64,
    localparam int TRANSFER_BITS = $clog2(TRANSFERS),
    localparam int SLOT_BITS = $clog2(ESCAPE_SLOTS)
) (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire                      packet_events,
    input  wire  [31:0]              node,

    // The packet.
    input  wire                      packet_valid,
    output wire                      packet_ready,
    input  wire  [703:0]             h,
    input  wire  [15:0]              h_length,
    output logic                     held,
    // Time that it has waited in the escape channel, in units of DELAY_UNIT_NS.
    output logic [15:0]              delay,
    // It becomes the context: the packet that reports concern.
    output wire                      load_context,
    output wire                      idle,
    output wire                      sound_start,

    // Modules that the control calls.
    output wire                      start_command,
    input  wire                      command_valid,
    input  wire                      command_ready,
    output wire                      start_timer,
    input  wire                      timer_busy,
    input  wire                      timeout_due,
    output wire                      begin_start,
    output logic                     sender_known,
    output logic                     transfer_known,
    input  wire                      start_busy,
    input  wire                      registered,
    output wire                      complete,
    output wire                      retry,
    output wire                      announce,
    input  wire                      end_busy,

    // Registry.
    output wire                      reading,
    input  wire                      found,
    input  wire  [ENTRY_BITS-1:0]    found_index,
    input  wire  [63:0]              entry_base,
    input  wire  [31:0]              entry_length,
    input  wire  [31:0]              entry_segment_count,
    input  wire  [8:0]               entry_packets,
    input  wire  [SOURCE_BITS-1:0]   entry_sender,
    input  wire  [TRANSFER_BITS-1:0] entry_transfer,
    input  wire  [WINDOW_BITS-1:0]   entry_window,
    input  wire  [MASK_BITS-1:0]     entry_mask,
    output wire                      select_entry,
    output wire  [ENTRY_BITS-1:0]    select_entry_index,
    output wire                      touch_entry,
    output wire                      set_window,

    // Senders.
    output wire                      search_senders,
    input  wire                      senders_done,
    input  wire                      sender_found,
    input  wire  [SOURCE_BITS-1:0]   sender_found_index,
    input  wire  [31:0]              sender_oldest,
    input  wire  [15:0]              sender_transfers,
    input  wire  [15:0]              sender_announced,
    output logic                     select_sender,
    output logic [SOURCE_BITS-1:0]   select_sender_index,
    output wire                      touch_sender,
    // Sets the oldest live transfer of the sender, and cuts its tombstones off.
    output wire                      advance,
    output wire                      advanced,

    // Transfers and tombstones.
    output wire                      search_records,
    output wire                      search_arrived,
    input  wire                      transfers_done,
    input  wire                      transfer_found,
    input  wire  [TRANSFER_BITS-1:0] transfer_found_index,
    input  wire                      transfer_of_sender,
    input  wire  [31:0]              transfer_id,
    input  wire  [63:0]              transfer_length,
    input  wire                      transfer_awaits_notice,
    input  wire                      transfer_awaits_slot,
    input  wire                      segment_done,
    output logic                     select_transfer,
    output logic [TRANSFER_BITS-1:0] select_transfer_index,
    output wire                      touch_transfer,
    input  wire                      tombstones_done,
    input  wire                      tombstone,

    // Memory windows.
    output wire  [WINDOW_BITS-1:0]   probe,
    input  wire                      probe_allows,
    output wire                      search_access,
    input  wire                      access_done,
    input  wire                      allowed,

    // Newest incarnation of the packet's node.
    output wire                      find_node,
    input  wire                      nodes_done,
    input  wire                      node_found,
    input  wire  [31:0]              node_incarnation,

    // Escape channel.
    output wire                      search_same,
    output wire                      search_operation,
    output logic [SLOT_BITS-1:0]     search_from,
    input  wire                      escape_done,
    input  wire                      slot_found,
    input  wire  [SLOT_BITS-1:0]     slot_found_index,
    input  wire                      slot_vacant,
    input  wire  [SLOT_BITS-1:0]     slot_vacant_index,
    input  wire                      slots_used,
    // Time that the packet of the selected slot has waited.
    input  wire  [63:0]              slot_wait,
    output wire                      select_slot,
    output wire  [SLOT_BITS-1:0]     select_slot_index,
    output wire                      store,
    output wire                      refresh_slot,
    output wire                      release_slot,
    output wire                      note_wait,

    // Writes.
    output wire                      write_start,
    output wire                      rewind,
    input  wire                      write_done,
    input  wire                      is_last_beat,
    output wire  [7:0]               number,
    input  wire                      in_flight,
    input  wire                      inflight_full,
    input  wire                      inflight_empty,
    // The oldest write: its response, packet number, and the mask of its entry.
    input  wire                      head_answered,
    input  wire                      head_error,
    input  wire                      head_start,
    input  wire  [ENTRY_BITS-1:0]    head_entry,
    input  wire  [7:0]               head_number,
    input  wire  [MASK_BITS-1:0]     commit_mask,
    output wire  [MASK_BITS-1:0]     new_mask,
    // Sets the bit, acknowledges the packet, and removes it from the writes under way.
    output wire                      commit,
    // Makes it the packet in progress: it completes its entry, or memory refused it.
    output wire                      take_head,

    output wire                      ack,
    output wire                      nack,
    output logic [7:0]               nack_reason,
    output wire                      fault,
    output logic [7:0]               fault_reason,
    output logic [63:0]              fault_address,
    output logic [15:0]              fault_length,
    output wire                      report_escaped,
    output wire                      report_released,
    input  wire                      answer_space,
    input  wire                      event_space,
    input  wire                      fault_space,
    input  wire  [63:0]              context_address,
    input  wire  [15:0]              context_length,

    output wire                      count_duplicates,
    output wire                      count_escape_dropped,
    output wire                      count_foreign,
    output wire                      count_tombstone_hits,
    output wire                      count_trimmed
);
    // Constants instead of an enumeration: Icarus Verilog 11 takes its names in port connections for new wires.
    localparam logic [5:0] IDLE = 6'd0;
    localparam logic [5:0] LOOKUP = 6'd1;
    localparam logic [5:0] READ = 6'd2;
    localparam logic [5:0] CHECK = 6'd3;
    localparam logic [5:0] DECIDE = 6'd4;
    localparam logic [5:0] STREAM = 6'd5;
    localparam logic [5:0] DRAIN = 6'd6;
    localparam logic [5:0] FINISH = 6'd7;
    localparam logic [5:0] ACK = 6'd8;
    localparam logic [5:0] NACK = 6'd9;
    localparam logic [5:0] FAULT = 6'd10;
    localparam logic [5:0] WRITE_ERROR = 6'd11;
    localparam logic [5:0] COMPLETE = 6'd12;
    localparam logic [5:0] CLASSIFY = 6'd13;
    localparam logic [5:0] HIT = 6'd14;
    localparam logic [5:0] HIT_RECORD = 6'd15;
    localparam logic [5:0] HIT_LATE = 6'd16;
    localparam logic [5:0] HIT_ACCESS = 6'd17;
    localparam logic [5:0] SENDER = 6'd18;
    localparam logic [5:0] SENDER_FOUND = 6'd19;
    localparam logic [5:0] SENDER_LATE = 6'd20;
    localparam logic [5:0] SENDER_RECORDS = 6'd21;
    localparam logic [5:0] TRANSFER_FOUND = 6'd22;
    localparam logic [5:0] RETRY = 6'd23;
    localparam logic [5:0] END = 6'd24;
    localparam logic [5:0] KINDS = 6'd25;
    localparam logic [5:0] START = 6'd26;
    localparam logic [5:0] ARRIVED = 6'd27;
    localparam logic [5:0] ARRIVED_SEARCH = 6'd28;
    localparam logic [5:0] ARRIVED_FOUND = 6'd29;
    localparam logic [5:0] ARRIVED_CHECK = 6'd30;
    localparam logic [5:0] ADVANCE = 6'd31;
    localparam logic [5:0] ADVANCE_WAIT = 6'd32;
    localparam logic [5:0] OVERTAKEN = 6'd33;
    localparam logic [5:0] OVERTAKEN_END = 6'd34;
    localparam logic [5:0] OVERTAKEN_NEXT = 6'd35;
    localparam logic [5:0] ESCAPE_ACCESS = 6'd36;
    localparam logic [5:0] ESCAPE_NODE = 6'd37;
    localparam logic [5:0] ESCAPE_OFFER = 6'd38;
    localparam logic [5:0] ESCAPE_REFRESH = 6'd39;
    localparam logic [5:0] ESCAPE_STORE = 6'd40;
    localparam logic [5:0] ESCAPE_EVENT = 6'd41;
    localparam logic [5:0] RELEASE = 6'd42;
    localparam logic [5:0] RELEASE_FIND = 6'd43;
    localparam logic [5:0] RELEASE_SLOT = 6'd44;
    localparam logic [5:0] HELD_DRAIN = 6'd45;
    localparam logic [5:0] HELD_DONE = 6'd46;
    localparam logic [5:0] TIMER = 6'd47;
    localparam logic [5:0] COMMAND = 6'd48;
    logic [5:0] state;
    // Where the control continues after an answer; after a completion or a refused write; after an advance.
    logic [5:0] reply_next;
    logic [5:0] complete_next;
    logic [5:0] advance_next;

    localparam logic [31:0] SIZE = 32'd1 << PACKET_LOG2;

    // Whether transfer, or incarnation, `a` came before `b`: serial numbers of 32 bits.
    function automatic logic is_older(input logic [31:0] a, input logic [31:0] b);
        is_older = b - a != 0 && b - a <= 32'h8000_0000;
    endfunction

    // ---- The packet ----------------------------------------------------------------------------------------------------------------

    wire [7:0]  h_kind = h[ni_pkg::DATA_KIND_LSB +: 8];
    wire [7:0]  h_flags = h[ni_pkg::DATA_FLAGS_LSB +: 8];
    wire [31:0] h_source = h[ni_pkg::DATA_SOURCE_LSB +: 32];
    wire [31:0] h_destination = h[ni_pkg::DATA_DESTINATION_LSB +: 32];
    wire [31:0] h_incarnation = h[ni_pkg::DATA_INCARNATION_LSB +: 32];
    wire [31:0] h_transfer = h[ni_pkg::DATA_TRANSFER_LSB +: 32];
    wire [31:0] h_oldest_live = h[ni_pkg::DATA_OLDEST_LIVE_LSB +: 32];
    wire [63:0] h_address = h[ni_pkg::DATA_ADDRESS_LSB +: 64];
    wire [7:0]  h_log2 = h[ni_pkg::DATA_PACKET_SIZE_LOG2_LSB +: 8];
    wire        is_start = h_kind == ni_pkg::PACKET_KIND_START;
    wire        is_arrived = h_kind == ni_pkg::PACKET_KIND_ARRIVED;
    wire        is_trimmed = h_flags[ni_pkg::FLAGS_TRIMMED_BIT];

    // Fields of its entry.
    logic                     hit;
    logic [TRANSFER_BITS-1:0] e_transfer;
    logic [63:0]              e_base;
    logic [31:0]              e_length;
    logic [31:0]              e_segment_count;
    logic [8:0]               e_packets;
    logic [WINDOW_BITS-1:0]   e_window;
    logic [31:0]              oldest_live;
    assign probe = hit ? e_window : '0;

    wire agrees;
    wire same_start;
    ni_receive_check #(.MASK_BITS(MASK_BITS), .PACKET_LOG2(PACKET_LOG2)) check (
        .clk, .address(h_address), .payload_length(h_length), .trimmed(is_trimmed), .segment(h[ni_pkg::DATA_SEGMENT_LSB +: 32]),
        .segment_count(h[ni_pkg::DATA_SEGMENT_COUNT_LSB +: 32]), .start_base(h[ni_pkg::START_BASE_LSB +: 64]),
        .start_length(h[ni_pkg::START_SEGMENT_LENGTH_LSB +: 32]), .start_packets(h[ni_pkg::START_PACKETS_LSB +: 16]),
        .transfer_base(h[ni_pkg::START_TRANSFER_BASE_LSB +: 64]), .transfer_length(h[ni_pkg::START_TRANSFER_LENGTH_LSB +: 64]),
        .entry_base(e_base), .entry_length(e_length), .entry_packets(e_packets), .entry_segment_count(e_segment_count),
        .agrees, .number, .same_start, .sound_start
    );

    // A stored packet was checked when it arrived.
    wire is_for_us = held || (h_destination == node && (is_arrived || h_source != ni_pkg::NODE_ANY));
    wire is_sound_size = h_log2 == 8'(PACKET_LOG2) && (is_trimmed || (h_length != 0 && {16'd0, h_length} <= SIZE));
    wire is_late = is_older(h_transfer, oldest_live);
    wire is_newer = is_older(oldest_live, h_oldest_live);
    wire has_bit = entry_mask[number[$clog2(MASK_BITS)-1:0]];
    wire agrees_hit = agrees && (!is_start || (same_start && h[ni_pkg::START_TRANSFER_LENGTH_LSB +: 64] == transfer_length));
    wire is_fast = !is_arrived && !is_start && !is_trimmed && is_for_us && is_sound_size && hit && !is_late && !is_newer && agrees
        && !has_bit && !in_flight && probe_allows;
    wire fast = state == DECIDE && is_fast && !inflight_full;
    wire is_duplicate = state == HIT_LATE && !is_late && agrees_hit && has_bit;
    wire is_trimmed_hit = state == CLASSIFY && is_for_us && is_sound_size && hit && is_trimmed && !is_arrived;
    wire is_superseded = node_found && is_older(h_incarnation, node_incarnation);
    wire moves_on = is_older(sender_oldest, h_oldest_live);

    // ---- Writes under way ----------------------------------------------------------------------------------------------------------

    assign new_mask = commit_mask | (MASK_BITS'(1) << head_number);
    wire is_answered = !inflight_empty && head_answered && !head_start;
    wire is_special = is_answered && (head_error || &new_mask);
    wire may_commit = state == IDLE || state == LOOKUP || state == READ || state == CHECK || state == DECIDE || state == STREAM
        || state == DRAIN || state == HELD_DRAIN;
    assign commit = may_commit && is_answered && !is_special && answer_space && (!packet_events || event_space);
    assign take_head = (state == IDLE || state == DRAIN || state == HELD_DRAIN) && is_special;

    // ---- Requests ------------------------------------------------------------------------------------------------------------------

    assign idle = state == IDLE;
    assign load_context = state == READ;
    assign reading = state == READ;
    assign rewind = state == IDLE || state == LOOKUP || state == CHECK;
    assign packet_ready = !held && (state == FINISH || (state == STREAM && write_done));
    assign start_command = state == IDLE && !is_special && !packet_valid && command_valid && inflight_empty;
    assign start_timer = state == IDLE && !is_special && !packet_valid && !command_valid && timeout_due && inflight_empty;
    assign begin_start = state == KINDS && is_start;
    assign complete = take_head && !head_error;
    assign retry = state == RETRY;
    wire is_overtaken = transfer_of_sender && transfer_awaits_notice && is_older(transfer_id, oldest_live);
    assign announce = (state == ARRIVED_CHECK && transfer_awaits_notice) || (state == OVERTAKEN && is_overtaken);

    assign select_entry = state == READ || take_head;
    assign select_entry_index = state == READ ? found_index : head_entry;
    assign touch_entry = is_trimmed_hit || is_duplicate;
    assign set_window = state == HIT_ACCESS && access_done && allowed;
    assign search_senders = state == CLASSIFY && is_for_us && (is_arrived || (!hit && is_sound_size));
    assign touch_sender = fast || state == HIT || state == SENDER_FOUND;
    assign advance = state == ADVANCE;
    assign advanced = state == ADVANCE && sender_transfers != 0;
    assign search_records = state == SENDER_LATE && !is_late;
    assign search_arrived = state == ARRIVED_SEARCH;
    assign touch_transfer = state == TRANSFER_FOUND;
    assign search_access = (state == HIT_LATE && !is_late && agrees_hit && !has_bit) || (state == KINDS && !is_start && !is_trimmed);
    assign find_node = state == ESCAPE_ACCESS && access_done && allowed;
    assign search_same = state == ESCAPE_NODE && nodes_done && !is_superseded;
    assign search_operation = state == RELEASE && slots_used;
    assign select_slot = (state == ESCAPE_OFFER || state == RELEASE_FIND) && escape_done;
    assign select_slot_index = slot_found || state == RELEASE_FIND ? slot_found_index : slot_vacant_index;
    assign store = state == ESCAPE_STORE;
    assign refresh_slot = state == ESCAPE_REFRESH;
    assign release_slot = state == HELD_DONE && event_space;
    assign note_wait = state == RELEASE_SLOT;
    assign write_start = fast || set_window;

    always_comb begin
        select_sender = 1'b0;
        select_sender_index = sender_found_index;
        select_transfer = 1'b0;
        select_transfer_index = transfer_found_index;
        case (state)
            READ: begin
                select_sender = 1'b1;
                select_sender_index = entry_sender;
            end
            SENDER, ARRIVED: select_sender = senders_done && sender_found;
            HIT_RECORD: begin
                select_transfer = 1'b1;
                select_transfer_index = e_transfer;
            end
            SENDER_RECORDS, ARRIVED_FOUND: select_transfer = transfers_done && transfer_found;
            ADVANCE_WAIT: begin
                select_transfer = 1'b1;
                select_transfer_index = '0;
            end
            OVERTAKEN_NEXT: begin
                select_transfer = 1'b1;
                select_transfer_index = overtaken + 1'b1;
            end
            default: ;
        endcase
    end

    assign ack = state == ACK && answer_space;
    assign nack = state == NACK && answer_space;
    assign fault = state == FAULT && fault_space;
    assign report_escaped = state == ESCAPE_EVENT;
    assign report_released = state == HELD_DONE;

    wire is_late_record = state == SENDER_RECORDS && transfers_done && tombstones_done && tombstone;
    wire is_late_segment = state == TRANSFER_FOUND && segment_done && !transfer_awaits_slot;
    assign count_duplicates = is_duplicate || state == ESCAPE_REFRESH || state == RETRY
        || (state == ARRIVED && senders_done && !sender_found) || (state == ARRIVED_FOUND && transfers_done && !transfer_found)
        || (state == ARRIVED_CHECK && !transfer_awaits_notice);
    assign count_escape_dropped = state == ESCAPE_OFFER && escape_done && !slot_found && !slot_vacant;
    assign count_foreign = state == CLASSIFY && !is_for_us;
    assign count_tombstone_hits = (state == HIT_LATE && is_late) || (state == SENDER_LATE && is_late) || is_late_record || is_late_segment;
    assign count_trimmed = state == CLASSIFY && !is_arrived && is_trimmed;

    // ---- States --------------------------------------------------------------------------------------------------------------------

    // Transfer that is examined: whether its sender has moved past it.
    logic [TRANSFER_BITS-1:0] overtaken;
    wire is_last_slot = search_from == '0;

    always_ff @(posedge clk) begin
        if (take_head) complete_next <= state;
        case (state)
            IDLE: begin
                held <= 1'b0;
                delay <= '0;
                reply_next <= FINISH;
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (packet_valid) state <= READ;
                else if (start_command) state <= COMMAND;
                else if (start_timer) state <= TIMER;
            end
            LOOKUP: begin
                reply_next <= FINISH;
                state <= READ;
            end
            READ: begin
                hit <= found && !is_arrived;
                e_transfer <= entry_transfer;
                e_base <= entry_base;
                e_length <= entry_length;
                e_segment_count <= entry_segment_count;
                e_packets <= entry_packets;
                e_window <= entry_window;
                state <= CHECK;
            end
            CHECK: begin
                oldest_live <= sender_oldest;
                state <= DECIDE;
            end
            DECIDE: begin
                if (fast) state <= STREAM;
                else if (!inflight_empty) state <= is_fast ? DECIDE : DRAIN;
                else state <= CLASSIFY;
            end
            STREAM: if (write_done) state <= held ? HELD_DRAIN : IDLE;
            DRAIN: begin
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (inflight_empty) state <= IDLE;
            end
            FINISH: state <= held ? HELD_DRAIN : IDLE;

            ACK: if (answer_space) state <= reply_next;
            NACK: if (answer_space) state <= reply_next;
            FAULT: if (fault_space) state <= NACK;
            WRITE_ERROR: begin
                // Nothing has changed: the packet may be sent again, and finds the same state.
                fault_reason <= ni_pkg::FAULT_REASON_MEMORY_FAULT;
                fault_address <= context_address;
                fault_length <= context_length;
                nack_reason <= ni_pkg::NACK_REASON_VIOLATION;
                reply_next <= complete_next;
                state <= FAULT;
            end
            COMPLETE: if (!end_busy) state <= complete_next;

            CLASSIFY: begin
                fault_reason <= ni_pkg::FAULT_REASON_BAD_PACKET;
                fault_address <= h_address;
                fault_length <= h_length;
                nack_reason <= hit && is_trimmed && is_sound_size ? ni_pkg::NACK_REASON_TRIMMED : ni_pkg::NACK_REASON_BAD_PACKET;
                if (!is_for_us) state <= FINISH;
                else if (is_arrived) state <= ARRIVED;
                else if (!is_sound_size) state <= FAULT;
                else if (hit && is_trimmed) state <= NACK;
                else state <= hit ? HIT : SENDER;
            end

            // Its entry is known.
            HIT: begin
                if (is_newer) oldest_live <= h_oldest_live;
                advance_next <= HIT_RECORD;
                state <= is_newer ? ADVANCE : HIT_RECORD;
            end
            HIT_RECORD: state <= HIT_LATE;
            HIT_LATE: begin
                if (is_late) state <= ACK;
                else if (!agrees_hit) state <= FAULT;
                else if (has_bit) state <= ACK;
                else state <= HIT_ACCESS;
            end
            HIT_ACCESS: if (access_done) begin
                fault_reason <= ni_pkg::FAULT_REASON_VIOLATION;
                nack_reason <= ni_pkg::NACK_REASON_VIOLATION;
                state <= allowed ? STREAM : FAULT;
            end

            // Its entry is not known.
            SENDER: if (senders_done) begin
                sender_known <= sender_found;
                transfer_known <= 1'b0;
                state <= sender_found ? SENDER_FOUND : KINDS;
            end
            SENDER_FOUND: begin
                oldest_live <= moves_on ? h_oldest_live : sender_oldest;
                advance_next <= SENDER_LATE;
                state <= moves_on ? ADVANCE : SENDER_LATE;
            end
            SENDER_LATE: state <= is_late ? ACK : SENDER_RECORDS;
            SENDER_RECORDS: if (transfers_done && tombstones_done) begin
                transfer_known <= transfer_found;
                state <= tombstone ? ACK : transfer_found ? TRANSFER_FOUND : KINDS;
            end
            TRANSFER_FOUND: begin
                if (!segment_done) state <= KINDS;
                else state <= transfer_awaits_slot ? RETRY : ACK;
            end
            RETRY: state <= END;
            END: if (!end_busy) state <= FINISH;
            KINDS: begin
                nack_reason <= ni_pkg::NACK_REASON_TRIMMED;
                if (is_start) state <= START;
                else state <= is_trimmed ? NACK : ESCAPE_ACCESS;
            end
            START: if (!start_busy) state <= registered ? RELEASE : FINISH;

            ARRIVED: if (senders_done) begin
                sender_known <= 1'b1;
                state <= sender_found ? ARRIVED_SEARCH : FINISH;
            end
            ARRIVED_SEARCH: state <= ARRIVED_FOUND;
            ARRIVED_FOUND: if (transfers_done) state <= transfer_found ? ARRIVED_CHECK : FINISH;
            ARRIVED_CHECK: state <= transfer_awaits_notice ? END : FINISH;

            ADVANCE: state <= ADVANCE_WAIT;
            ADVANCE_WAIT: if (tombstones_done) begin
                overtaken <= '0;
                state <= sender_announced != 0 ? OVERTAKEN : advance_next;
            end
            // The sender has moved past complete transfers without an ARRIVED packet (5.8).
            OVERTAKEN: state <= is_overtaken ? OVERTAKEN_END : OVERTAKEN_NEXT;
            OVERTAKEN_END: if (!end_busy) state <= OVERTAKEN_NEXT;
            OVERTAKEN_NEXT: begin
                overtaken <= overtaken + 1'b1;
                state <= overtaken == TRANSFER_BITS'(TRANSFERS - 1) ? advance_next : OVERTAKEN;
            end

            ESCAPE_ACCESS: if (access_done) begin
                fault_reason <= ni_pkg::FAULT_REASON_VIOLATION;
                nack_reason <= ni_pkg::NACK_REASON_VIOLATION;
                state <= allowed ? ESCAPE_NODE : FAULT;
            end
            ESCAPE_NODE: if (nodes_done) begin
                nack_reason <= ni_pkg::NACK_REASON_SUPERSEDED;
                state <= is_superseded ? NACK : ESCAPE_OFFER;
            end
            ESCAPE_OFFER: if (escape_done) begin
                nack_reason <= ni_pkg::NACK_REASON_ESCAPE_FULL;
                if (slot_found) state <= ESCAPE_REFRESH;
                else state <= slot_vacant ? ESCAPE_STORE : NACK;
            end
            ESCAPE_REFRESH: state <= FINISH;
            ESCAPE_STORE: if (is_last_beat) state <= ESCAPE_EVENT;
            ESCAPE_EVENT: if (event_space) state <= FINISH;

            // The packets of the new operation in the escape channel, in slot order, as if they arrived now (5.5).
            RELEASE: state <= slots_used ? RELEASE_FIND : FINISH;
            RELEASE_FIND: if (escape_done) begin
                held <= slot_found;
                search_from <= slot_found_index + 1'b1;
                state <= slot_found ? RELEASE_SLOT : FINISH;
            end
            RELEASE_SLOT: begin
                delay <= slot_wait[63:16] == 0 ? slot_wait[15:0] : 16'hFFFF;
                state <= LOOKUP;
            end
            HELD_DRAIN: begin
                if (is_special) state <= head_error ? WRITE_ERROR : COMPLETE;
                else if (inflight_empty) state <= HELD_DONE;
            end
            HELD_DONE: if (event_space) begin
                held <= 1'b0;
                delay <= '0;
                state <= is_last_slot ? FINISH : RELEASE;
            end

            TIMER: if (!timer_busy) state <= IDLE;
            default: if (command_ready) state <= IDLE;
        endcase
        if (begin_start) search_from <= '0;
        if (!rst_n) begin
            state <= IDLE;
            held <= 1'b0;
            delay <= '0;
        end
    end

    wire unused = &{1'b0, h};
endmodule
