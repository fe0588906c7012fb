// Registration of a segment by its START packet (docs/protocol/receiver.md 5.5).
//
// `begin_start` begins it for the packet of the inputs, which stay; `sender_known` and `transfer_known` tell whether the records that are
// selected in that cycle are its own. `busy` is high until it has ended; `registered` tells then that the segment has an entry. The steps,
// in this order, each of which may refuse the packet:
//
//   1. the START agrees with itself (`sound_start`), and the memory windows allow the whole segment
//   2. its incarnation is not older than the newest one of its node; a newer one ends all records of earlier ones by a sweep
//   3. the tables have space: otherwise a sweep, if one is due, then all is searched again
//   4. payload in memory (`write_start`, `write_done`, then the response `answered`), unless the packet is trimmed
//   5. records and entry; REGISTERED is reported, and the packet acknowledged. A segment of one packet is completed (`complete`)
//
// Requests to the tables are outputs that are high for a cycle, as are the reports: see `ni_receive_end`. Reset: nothing runs.

`timescale 1ns / 1ps

module ni_receive_start #(
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    parameter int TOMBSTONES = 128,
    localparam int SOURCE_BITS = $clog2(SOURCES),
    localparam int TRANSFER_BITS = $clog2(TRANSFERS)
) (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire                      packet_events,

    input  wire                      begin_start,
    input  wire                      sender_known,
    input  wire                      transfer_known,
    output wire                      busy,
    output logic                     registered,

    // The packet.
    input  wire                      trimmed,
    input  wire                      sound_start,
    input  wire  [31:0]              incarnation,
    input  wire  [31:0]              transfer,
    input  wire  [31:0]              segment,
    input  wire  [31:0]              segment_count,
    input  wire  [15:0]              packets,
    input  wire  [63:0]              address,
    input  wire  [15:0]              length,
    input  wire  [63:0]              base,
    input  wire  [31:0]              segment_length,
    input  wire  [63:0]              transfer_base,
    input  wire  [63:0]              transfer_length,
    // It asks for a notice.
    input  wire                      notifies,

    // Memory windows: for the whole segment while `whole` is high.
    output logic                     whole,
    output wire                      search_access,
    input  wire                      access_done,
    input  wire                      allowed,
    // Newest incarnation of the node.
    input  wire                      nodes_done,
    input  wire                      node_found,
    input  wire                      node_available,
    input  wire  [31:0]              node_incarnation,
    output wire                      find_node,
    output wire                      admit_node,
    output wire                      activate_node,
    output wire                      sweep,
    output wire                      former,
    input  wire                      sweep_busy,
    input  wire                      sweep_due,
    // Records.
    output wire                      search_senders,
    input  wire                      senders_done,
    input  wire                      sender_found,
    input  wire  [SOURCE_BITS-1:0]   sender_found_index,
    input  wire                      sender_free,
    input  wire  [SOURCE_BITS-1:0]   sender_free_index,
    input  wire  [31:0]              sender_oldest,
    input  wire  [15:0]              sender_transfers,
    output wire                      select_sender,
    output wire  [SOURCE_BITS-1:0]   sender,
    output wire                      open_sender,
    output wire                      search_records,
    output logic                     s_known,
    input  wire                      transfers_done,
    input  wire                      transfer_found,
    input  wire  [TRANSFER_BITS-1:0] transfer_found_index,
    input  wire                      transfer_free,
    input  wire  [TRANSFER_BITS-1:0] transfer_free_index,
    input  wire  [31:0]              record_segment_count,
    input  wire  [63:0]              record_base,
    input  wire  [63:0]              record_length,
    input  wire                      record_covers,
    output wire                      select_transfer,
    output wire  [TRANSFER_BITS-1:0] transfer_index,
    output wire                      open_transfer,
    input  wire                      tombstones_done,
    input  wire                      tombstone_adjacent,
    input  wire  [15:0]              tombstones_used,
    input  wire                      has_free_entry,
    output wire                      insert_entry,
    // Slots for notices.
    input  wire                      slots_settled,
    input  wire                      has_slot,
    input  wire                      admits_notifying,

    output wire                      write_start,
    input  wire                      write_done,
    output wire                      take_response,
    input  wire                      answered,
    input  wire                      refused,
    output wire                      complete,
    input  wire                      end_busy,

    // No entry, or no space in another table: counted. No entry: the delay of the refusal is asked for.
    output wire                      count_full,
    output wire                      refuse,
    input  wire  [15:0]              refusal_delay,
    output wire                      ack,
    output wire                      nack,
    output logic [7:0]               nack_reason,
    output logic [15:0]              nack_delay,
    output wire                      fault,
    output logic [7:0]               fault_reason,
    output wire  [63:0]              fault_address,
    output wire  [31:0]              fault_length,
    input  wire                      answer_space,
    input  wire                      fault_space,
    output wire                      report_registered,
    output wire                      report_packet,
    input  wire                      event_space
);
    localparam logic [4:0] IDLE = 5'd0;
    localparam logic [4:0] CHECK = 5'd1;
    localparam logic [4:0] SEARCH = 5'd2;
    localparam logic [4:0] ACCESS = 5'd3;
    localparam logic [4:0] NODE = 5'd4;
    localparam logic [4:0] SWEEP = 5'd5;
    localparam logic [4:0] SENDER = 5'd6;
    localparam logic [4:0] SENDER_WAIT = 5'd7;
    localparam logic [4:0] RECORDS = 5'd8;
    localparam logic [4:0] RECORDS_WAIT = 5'd9;
    localparam logic [4:0] SPACE = 5'd10;
    localparam logic [4:0] STREAM = 5'd11;
    localparam logic [4:0] RESPONSE = 5'd12;
    localparam logic [4:0] INSERT = 5'd13;
    localparam logic [4:0] INSERT_NODE = 5'd14;
    localparam logic [4:0] INSERT_TRANSFER = 5'd15;
    localparam logic [4:0] INSERT_ENTRY = 5'd16;
    localparam logic [4:0] REGISTERED = 5'd17;
    localparam logic [4:0] ACK = 5'd18;
    localparam logic [4:0] FIRST_PACKET = 5'd19;
    localparam logic [4:0] COMPLETE = 5'd20;
    localparam logic [4:0] FAULT = 5'd21;
    localparam logic [4:0] NACK = 5'd22;
    logic [4:0] state;

    // Whether transfer, or incarnation, `a` came before `b`: serial numbers of 32 bits.
    function automatic logic is_older(input logic [31:0] a, input logic [31:0] b);
        is_older = b - a != 0 && b - a <= 32'h8000_0000;
    endfunction

    // The transfer has a record; records that the registration makes; the sweep has run.
    logic t_known;
    logic new_sender;
    logic new_transfer;
    logic swept;
    // The fault concerns the whole segment.
    logic fault_of_segment;

    // ---- Incarnation of the node (incarnations.md 6.2) -----------------------------------------------------------------------------

    wire is_same_incarnation = node_found && node_incarnation == incarnation;
    wire is_superseded = node_found && is_older(incarnation, node_incarnation);
    wire is_newer_incarnation = node_found && !is_same_incarnation && !is_superseded;
    wire is_node_refused = is_superseded || (!node_found && !node_available);
    wire node_known = state == NODE && nodes_done;

    // ---- Space in the tables -------------------------------------------------------------------------------------------------------

    wire same_transfer = record_segment_count == segment_count && record_base == transfer_base && record_length == transfer_length;
    wire has_tombstone_space = tombstone_adjacent || transfer == sender_oldest || tombstones_used + sender_transfers < 16'(TOMBSTONES);
    wire has_sender = s_known || sender_free;
    wire may_open_transfer = segment < 32'd256 && (!s_known || has_tombstone_space) && transfer_free;
    wire is_contradiction = has_free_entry && has_sender && t_known && !same_transfer;
    wire is_full = !has_free_entry || !has_sender || (t_known ? same_transfer && !record_covers : !may_open_transfer);
    wire is_single = segment_count == 1 && packets == 1;
    wire opens_notifying = !t_known && notifies;
    wire is_not_ready = !is_full && opens_notifying && ((is_single && !has_slot) || !admits_notifying);
    wire is_decided = state == SPACE && (slots_settled || !opens_notifying);
    wire has_space = is_decided && !is_contradiction && !is_full && !is_not_ready;
    wire is_sweep_next = is_decided && !is_contradiction && !has_space && !swept && sweep_due;
    wire is_final = is_decided && is_full && !is_contradiction && (swept || !sweep_due);

    // ---- Requests ------------------------------------------------------------------------------------------------------------------

    assign busy = state != IDLE;
    assign search_access = state == SEARCH;
    assign find_node = (state == ACCESS && access_done && allowed) || open_sender;
    assign admit_node = node_known && (is_newer_incarnation || (!node_found && node_available));
    assign activate_node = state == INSERT_NODE && nodes_done && tombstones_done && is_same_incarnation;
    assign former = state == NODE;
    assign sweep = (node_known && is_newer_incarnation) || is_sweep_next;
    assign search_senders = state == SENDER;
    assign search_records = state == RECORDS;
    assign select_sender = (state == SENDER_WAIT && senders_done && sender_found) || (has_space && !s_known);
    assign sender = state == SPACE ? sender_free_index : sender_found_index;
    assign select_transfer = (state == RECORDS_WAIT && transfers_done && tombstones_done && transfer_found) || (has_space && !t_known);
    assign transfer_index = state == SPACE ? transfer_free_index : transfer_found_index;
    assign open_sender = state == INSERT && new_sender;
    assign open_transfer = state == INSERT_TRANSFER && new_transfer;
    assign insert_entry = state == INSERT_ENTRY;
    assign write_start = has_space && !trimmed;
    assign take_response = state == RESPONSE && answered;
    assign complete = state == REGISTERED && event_space && !trimmed && packets == 1;
    assign count_full = is_final || (node_known && !node_found && !node_available);
    assign refuse = is_final && !has_free_entry;

    assign ack = state == ACK && answer_space;
    assign nack = state == NACK && answer_space;
    assign fault = state == FAULT && fault_space;
    assign fault_address = fault_of_segment ? base : address;
    assign fault_length = fault_of_segment ? segment_length : {16'd0, length};
    assign report_registered = state == REGISTERED;
    assign report_packet = state == FIRST_PACKET && packet_events;

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                whole <= 1'b0;
                s_known <= sender_known;
                t_known <= transfer_known;
                swept <= 1'b0;
                registered <= 1'b0;
                nack_delay <= '0;
                fault_of_segment <= 1'b0;
                fault_reason <= ni_pkg::FAULT_REASON_BAD_PACKET;
                nack_reason <= ni_pkg::NACK_REASON_BAD_PACKET;
                if (begin_start) state <= CHECK;
            end
            CHECK: begin
                whole <= 1'b1;
                state <= sound_start ? SEARCH : FAULT;
            end
            SEARCH: state <= ACCESS;
            ACCESS: if (access_done) begin
                fault_reason <= ni_pkg::FAULT_REASON_VIOLATION;
                nack_reason <= ni_pkg::NACK_REASON_VIOLATION;
                fault_of_segment <= 1'b1;
                state <= allowed ? NODE : FAULT;
            end
            NODE: if (nodes_done) begin
                fault_of_segment <= 1'b0;
                nack_reason <= is_superseded ? ni_pkg::NACK_REASON_SUPERSEDED : ni_pkg::NACK_REASON_BUSY;
                if (is_node_refused) state <= NACK;
                else if (is_newer_incarnation) state <= SWEEP;
                else state <= s_known ? SPACE : SENDER;
            end
            SWEEP: if (!sweep_busy) state <= SENDER;
            SENDER: state <= SENDER_WAIT;
            SENDER_WAIT: if (senders_done) begin
                s_known <= sender_found;
                state <= RECORDS;
            end
            RECORDS: state <= RECORDS_WAIT;
            RECORDS_WAIT: if (transfers_done && tombstones_done) begin
                t_known <= transfer_found;
                state <= SPACE;
            end
            SPACE: if (is_decided) begin
                new_sender <= !s_known;
                new_transfer <= !t_known;
                swept <= swept || is_sweep_next;
                fault_reason <= ni_pkg::FAULT_REASON_BAD_PACKET;
                // Of missing records it is not known when they are free.
                nack_delay <= is_full && !has_free_entry ? refusal_delay : 16'd0;
                nack_reason <= is_contradiction ? ni_pkg::NACK_REASON_BAD_PACKET
                    : is_full ? ni_pkg::NACK_REASON_BUSY : ni_pkg::NACK_REASON_NOT_READY;
                if (has_space) state <= trimmed ? INSERT : STREAM;
                else if (is_contradiction) state <= FAULT;
                else state <= is_sweep_next ? SWEEP : NACK;
            end
            STREAM: if (write_done) state <= RESPONSE;
            RESPONSE: if (answered) begin
                // Nothing has changed: the packet may be sent again, and finds the same state.
                fault_reason <= ni_pkg::FAULT_REASON_MEMORY_FAULT;
                nack_reason <= ni_pkg::NACK_REASON_VIOLATION;
                nack_delay <= '0;
                state <= refused ? FAULT : INSERT;
            end
            INSERT: state <= new_sender ? INSERT_NODE : INSERT_TRANSFER;
            INSERT_NODE: if (nodes_done && tombstones_done) state <= INSERT_TRANSFER;
            INSERT_TRANSFER: state <= INSERT_ENTRY;
            INSERT_ENTRY: begin
                registered <= 1'b1;
                state <= REGISTERED;
            end
            REGISTERED: if (event_space) begin
                nack_reason <= ni_pkg::NACK_REASON_TRIMMED;
                nack_delay <= '0;
                state <= trimmed ? NACK : packets == 1 ? COMPLETE : ACK;
            end
            ACK: if (answer_space) state <= FIRST_PACKET;
            FIRST_PACKET: if (event_space || !packet_events) state <= IDLE;
            COMPLETE: if (!end_busy) state <= IDLE;
            FAULT: if (fault_space) state <= NACK;
            NACK: if (answer_space) state <= IDLE;
            default: state <= IDLE;
        endcase
        if (!rst_n) state <= IDLE;
    end
endmodule
