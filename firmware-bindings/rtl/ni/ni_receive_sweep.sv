// Sweep of the receiver (docs/protocol/receiver.md 5.9): ends registry entries, transfers and senders that expired or were given up.
//
// `start` begins a sweep; `busy` is high until it has ended. With `former`, it ends all records of earlier incarnations of `source` instead,
// whatever their age. The three tables are read in turn, a record in two to three cycles: entries, transfers, senders. The sweep selects
// a record by `select_entry` and `entry` (and so on), which shows its fields from the next cycle on.
//
//   entry     `expire` frees it and reports EXPIRED, in a cycle with `event_space`
//   transfer  `end_transfer` ends the selected one: with a notice if it awaits one; `end_busy` is high while that runs
//   sender    `find_node` searches its node's record, `node_done` answers; `close_sender` closes the sender
//
// `due` tells that a sweep may free something: a record expires, or a sender has given transfers up since the last sweep. `deadline` is a
// lower bound of the time at which a record expires. Reset and `clear`: nothing expires.

`timescale 1ns / 1ps

module ni_receive_sweep #(
    parameter int ENTRIES = 64,
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    localparam int ENTRY_BITS = $clog2(ENTRIES),
    localparam int SOURCE_BITS = $clog2(SOURCES),
    localparam int TRANSFER_BITS = $clog2(TRANSFERS)
) (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire                      clear,
    input  wire  [63:0]              registry_timeout,
    input  wire  [63:0]              packet_lifetime,

    input  wire                      start,
    input  wire                      former,
    input  wire  [31:0]              source,
    input  wire  [31:0]              incarnation,
    // Time of the packet or timeout in progress.
    input  wire  [63:0]              now,
    output wire                      busy,

    // A registration: its entry expires at `now` + `registry_timeout`. A sender with transfers in progress has advanced its oldest live
    // one. Timeouts have changed: every record is read again.
    input  wire                      registered,
    input  wire                      advanced,
    input  wire                      timeouts_changed,
    output wire                      due,
    output logic [63:0]              deadline,

    output logic                     select_entry,
    output wire  [ENTRY_BITS-1:0]    entry,
    output logic                     select_transfer,
    output logic [TRANSFER_BITS-1:0] transfer,
    output logic                     select_sender,
    output logic [SOURCE_BITS-1:0]   sender,

    input  wire                      entry_live,
    input  wire  [31:0]              entry_transfer_id,
    input  wire  [SOURCE_BITS-1:0]   entry_sender,
    input  wire  [TRANSFER_BITS-1:0] entry_transfer,
    input  wire  [63:0]              entry_touched,
    input  wire                      event_space,
    output wire                      expiring,

    input  wire                      transfer_in_use,
    input  wire  [31:0]              transfer_id,
    input  wire  [SOURCE_BITS-1:0]   transfer_sender,
    // Number of its segments in the registry.
    input  wire  [15:0]              transfer_registered,
    input  wire  [63:0]              transfer_touched,
    output wire                      end_transfer,
    input  wire                      end_busy,

    input  wire                      sender_in_use,
    // Node in bits 31:0, incarnation in bits 63:32.
    input  wire  [63:0]              sender_name,
    input  wire  [31:0]              sender_oldest,
    input  wire  [15:0]              sender_transfers,
    input  wire  [63:0]              sender_touched,
    output wire                      find_node,
    output wire                      in_senders,
    input  wire                      node_done,
    // The sender's node needs its record no longer.
    output wire                      release_node,
    output wire                      close_sender
);
    localparam logic [63:0] NEVER = 64'hFFFF_FFFF_FFFF_FFFF;

    localparam logic [3:0] IDLE = 4'd0;
    localparam logic [3:0] ENTRY = 4'd1;
    localparam logic [3:0] ENTRY_DUE = 4'd2;
    localparam logic [3:0] EXPIRE = 4'd3;
    localparam logic [3:0] ENTRY_NEXT = 4'd4;
    localparam logic [3:0] TRANSFER = 4'd5;
    localparam logic [3:0] TRANSFER_DUE = 4'd6;
    localparam logic [3:0] TRANSFER_END = 4'd7;
    localparam logic [3:0] TRANSFER_NEXT = 4'd8;
    localparam logic [3:0] SENDER = 4'd9;
    localparam logic [3:0] SENDER_NODE = 4'd10;
    localparam logic [3:0] SENDER_NEXT = 4'd11;
    logic [3:0] state;

    // Whether transfer `a` came before `b`: serial numbers of 32 bits.
    function automatic logic is_older(input logic [31:0] a, input logic [31:0] b);
        is_older = b - a != 0 && b - a <= 32'h8000_0000;
    endfunction

    // Positions in the three tables.
    logic [ENTRY_BITS-1:0]    e;
    logic [TRANSFER_BITS-1:0] t;
    logic [SOURCE_BITS-1:0]   s;
    logic                     of_former;
    // Earliest time at which a record expires that this sweep has left.
    logic [63:0]              earliest;
    logic [63:0]              touched;
    // A sender with transfers in progress has advanced its oldest live transfer since the last sweep.
    logic                     moved_on;

    wire [63:0] entry_deadline = touched + registry_timeout;
    wire [63:0] transfer_deadline = transfer_touched + registry_timeout;
    wire [63:0] sender_deadline = sender_touched + registry_timeout + packet_lifetime;
    wire is_former = sender_in_use && sender_name[31:0] == source && sender_name[63:32] != incarnation;
    wire is_entry_over = of_former ? is_former : entry_deadline <= now || is_older(entry_transfer_id, sender_oldest);
    wire is_transfer_over = of_former ? is_former : transfer_deadline <= now || is_older(transfer_id, sender_oldest);
    wire is_sender_idle = !of_former && sender_in_use && sender_transfers == 0;
    wire is_sender_over = is_sender_idle && sender_deadline <= now;
    wire is_last_entry = e == ENTRY_BITS'(ENTRIES - 1);
    wire is_last_transfer = t == TRANSFER_BITS'(TRANSFERS - 1);
    wire is_last_sender = s == SOURCE_BITS'(SOURCES - 1);

    assign busy = state != IDLE;
    assign due = moved_on || deadline <= now;
    assign expiring = state == EXPIRE;
    assign end_transfer = state == TRANSFER_DUE && is_transfer_over;
    assign in_senders = state == SENDER || state == SENDER_NODE;
    assign find_node = state == SENDER && is_sender_over;
    assign release_node = state == SENDER_NODE && node_done;
    assign close_sender = (state == SENDER && of_former && is_former) || release_node;

    assign entry = start ? '0 : e + 1'b1;
    always_comb begin
        select_entry = start || state == ENTRY_NEXT;
        select_transfer = 1'b0;
        select_sender = 1'b0;
        transfer = t + 1'b1;
        sender = s + 1'b1;
        case (state)
            // An entry is judged with its transfer and its sender.
            ENTRY: begin
                select_transfer = 1'b1;
                transfer = entry_transfer;
                select_sender = 1'b1;
                sender = entry_sender;
            end
            ENTRY_NEXT: begin
                select_transfer = 1'b1;
                transfer = '0;
            end
            TRANSFER: begin
                select_sender = 1'b1;
                sender = transfer_sender;
            end
            TRANSFER_NEXT: begin
                select_transfer = 1'b1;
                select_sender = 1'b1;
                sender = '0;
            end
            SENDER_NEXT: select_sender = 1'b1;
            default: ;
        endcase
    end

    always_ff @(posedge clk) begin
        case (state)
            IDLE: if (start) begin
                of_former <= former;
                if (!former) moved_on <= 1'b0;
                earliest <= NEVER;
                e <= '0;
                t <= '0;
                s <= '0;
                state <= ENTRY;
            end
            ENTRY: begin
                touched <= entry_touched;
                state <= entry_live ? ENTRY_DUE : ENTRY_NEXT;
            end
            ENTRY_DUE: begin
                if (!is_entry_over && entry_deadline < earliest) earliest <= entry_deadline;
                state <= is_entry_over ? EXPIRE : ENTRY_NEXT;
            end
            EXPIRE: if (event_space) state <= ENTRY_NEXT;
            ENTRY_NEXT: begin
                e <= e + 1'b1;
                state <= is_last_entry ? TRANSFER : ENTRY;
            end
            TRANSFER: state <= transfer_in_use && (of_former || transfer_registered == 0) ? TRANSFER_DUE : TRANSFER_NEXT;
            TRANSFER_DUE: begin
                if (!is_transfer_over && transfer_deadline < earliest) earliest <= transfer_deadline;
                state <= is_transfer_over ? TRANSFER_END : TRANSFER_NEXT;
            end
            TRANSFER_END: if (!end_busy) state <= TRANSFER_NEXT;
            TRANSFER_NEXT: begin
                t <= t + 1'b1;
                state <= is_last_transfer ? SENDER : TRANSFER;
            end
            SENDER: begin
                if (is_sender_idle && !is_sender_over && sender_deadline < earliest) earliest <= sender_deadline;
                state <= is_sender_over ? SENDER_NODE : SENDER_NEXT;
            end
            SENDER_NODE: if (node_done) state <= SENDER_NEXT;
            default: begin
                s <= s + 1'b1;
                if (is_last_sender && !of_former) deadline <= earliest;
                state <= is_last_sender ? IDLE : SENDER;
            end
        endcase
        if (registered && now + registry_timeout < deadline) deadline <= now + registry_timeout;
        if (advanced) moved_on <= 1'b1;
        if (timeouts_changed) deadline <= '0;
        if (!rst_n || clear) begin
            deadline <= NEVER;
            moved_on <= 1'b0;
        end
        if (!rst_n) state <= IDLE;
    end
endmodule
