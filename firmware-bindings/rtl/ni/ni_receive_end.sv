// Ends of segments and transfers (docs/protocol/receiver.md 5.5 and 5.8): completion, notices, tombstones.
//
// A pulse of one of these begins; `busy` is high until it has ended:
//
//   complete  the selected entry has all packets in memory, the last one is `number`: acknowledges it, frees the entry, reports COMPLETED,
//             and SEGMENT_DONE to the sender. With the last segment the transfer ends, too: with its notice, or it awaits ARRIVED. Without
//             a slot for the notice it answers "not ready" instead, and the transfer waits for a retry.
//   retry     a packet of the selected transfer, which waits for a slot, has arrived again
//   announce  the selected transfer, which awaits its notice, ends with it
//   drop      the selected transfer ends: without a tombstone; with its notice and a tombstone if it awaits one
//
// The outputs are requests to the tables and reports in the cycle in which they are high; `ack`, `nack` and `done_report` wait for
// `answer_space`, events for `event_space`. `select_` outputs select these records from the next cycle on. Reset: nothing runs.

`timescale 1ns / 1ps

module ni_receive_end (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire                      packet_events,

    input  wire                      complete,
    input  wire  [7:0]               number,
    input  wire                      retry,
    input  wire                      announce,
    input  wire                      drop,
    output wire                      busy,

    input  wire  [31:0]              transfer_segment_count,
    input  wire  [31:0]              transfer_done_base,
    input  wire  [1:0]               transfer_notice,
    input  wire                      transfer_awaits_notice,
    input  wire                      slots_settled,
    input  wire                      has_slot,

    // The transfer of the selected entry; the sender of the selected transfer.
    output wire                      select_transfer,
    output wire                      select_sender,
    // Marks the segment as complete in its transfer, which has one segment less in the registry.
    output wire                      mark_segment,
    input  wire                      mark_done,
    output wire                      remove_entry,
    output wire                      set_awaits_notice,
    output wire                      set_awaits_slot,
    output wire                      awaits_slot,
    output wire                      close_transfer,
    // The closed transfer is complete: it gets a tombstone.
    output wire                      close_complete,
    input  wire                      tombstones_done,

    output wire                      ack,
    output wire                      nack,
    output wire                      done_report,
    input  wire                      answer_space,
    output wire                      report_packet,
    output wire                      report_completed,
    output wire                      report_notice,
    output logic [7:0]               packet_number,
    input  wire                      event_space
);
    localparam logic [1:0] NOTICE_NEVER = 2'd0;
    localparam logic [1:0] NOTICE_ON_LAST = 2'd1;

    localparam logic [4:0] IDLE = 5'd0;
    localparam logic [4:0] COMPLETE = 5'd1;
    localparam logic [4:0] TRANSFER = 5'd2;
    localparam logic [4:0] MARK = 5'd3;
    localparam logic [4:0] SLOT = 5'd4;
    localparam logic [4:0] RETRY = 5'd5;
    localparam logic [4:0] ACK = 5'd6;
    localparam logic [4:0] NACK = 5'd7;
    localparam logic [4:0] PACKET = 5'd8;
    localparam logic [4:0] ENTRY = 5'd9;
    localparam logic [4:0] DONE = 5'd10;
    localparam logic [4:0] WHOLE = 5'd11;
    localparam logic [4:0] AWAIT = 5'd12;
    localparam logic [4:0] NOTICE = 5'd13;
    localparam logic [4:0] CLOSE = 5'd14;
    localparam logic [4:0] CLOSE_RECORD = 5'd15;
    localparam logic [4:0] CLOSE_WAIT = 5'd16;
    logic [4:0] state;

    // All segments of the transfer are complete; its notice is possible, or not needed; it is a retry, whose entry is free.
    logic whole;
    logic ready;
    logic retried;
    logic with_tombstone;

    wire needs_slot = whole && transfer_notice != NOTICE_NEVER;
    assign busy = state != IDLE;
    assign mark_segment = state == TRANSFER;
    assign remove_entry = state == ENTRY && event_space;
    assign set_awaits_notice = state == AWAIT;
    assign awaits_slot = state == WHOLE;
    assign set_awaits_slot = (state == WHOLE && whole && !ready) || (state == RETRY && slots_settled && has_slot);
    assign close_transfer = state == CLOSE_RECORD;
    assign close_complete = with_tombstone;
    assign ack = state == ACK && answer_space;
    assign nack = state == NACK && answer_space;
    assign done_report = state == DONE && ready && answer_space;
    assign report_packet = state == PACKET && packet_events;
    assign report_completed = state == ENTRY;
    assign report_notice = state == NOTICE;
    assign select_transfer = state == COMPLETE;
    // The notice names the sender; the counts of the sender change with the end of its transfer.
    assign select_sender = state == WHOLE || state == CLOSE;

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                with_tombstone <= !drop || transfer_awaits_notice;
                retried <= retry;
                if (complete) packet_number <= number;
                if (complete) state <= COMPLETE;
                else if (retry) state <= RETRY;
                else if (announce || drop) state <= CLOSE;
            end
            COMPLETE: state <= TRANSFER;
            TRANSFER: state <= MARK;
            MARK: if (mark_done) begin
                whole <= transfer_done_base >= transfer_segment_count;
                state <= SLOT;
            end
            SLOT: if (slots_settled || !needs_slot) begin
                ready <= !needs_slot || has_slot;
                state <= !needs_slot || has_slot ? ACK : NACK;
            end
            RETRY: if (slots_settled) begin
                whole <= 1'b1;
                ready <= has_slot;
                state <= has_slot ? ACK : NACK;
            end
            ACK: if (answer_space) state <= retried ? DONE : PACKET;
            NACK: if (answer_space) state <= retried ? IDLE : PACKET;
            PACKET: if (event_space || !packet_events) state <= ENTRY;
            ENTRY: if (event_space) state <= DONE;
            DONE: if (answer_space || !ready) state <= WHOLE;
            WHOLE: begin
                if (!whole || !ready) state <= IDLE;
                else if (transfer_notice == NOTICE_NEVER) state <= CLOSE_RECORD;
                else state <= transfer_notice == NOTICE_ON_LAST ? NOTICE : AWAIT;
            end
            AWAIT: state <= IDLE;
            NOTICE: if (event_space) state <= CLOSE_RECORD;
            CLOSE: state <= transfer_awaits_notice ? NOTICE : CLOSE_RECORD;
            CLOSE_RECORD: state <= CLOSE_WAIT;
            default: if (tombstones_done) state <= IDLE;
        endcase
        if (!rst_n) state <= IDLE;
    end
endmodule
