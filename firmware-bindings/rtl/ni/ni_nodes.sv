// Newest known incarnation of each sending node (docs/protocol/incarnations.md 6.2).
//
// A hash table without removal: `start` searches the slots of `node`, two cycles per slot, until its record or a free slot, at most 64.
// `done` is high when no search runs, and the results hold until the next start: `found`, `incarnation` and `active` of the record; without
// one, `available`: a slot for it, which is free, or else that of the node that is idle longest, since before `idle_limit`. The
// following writes concern the slot found or available: `admit` (new record, without a user), `set_active` (a record of a sender begins or
// ends to use it). Reset and `clear`: no node is known.

`timescale 1ns / 1ps

module ni_nodes #(
    // Power of two.
    parameter int NODES = 1024,
    localparam int NODE_BITS = $clog2(NODES)
) (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         clear,
    input  wire         start,
    input  wire  [31:0] node,
    input  wire  [63:0] idle_limit,
    output wire         done,
    output logic        found,
    output logic        available,
    output wire  [31:0] incarnation,
    input  wire         admit,
    input  wire  [31:0] admit_incarnation,
    input  wire         set_active,
    input  wire         active,
    input  wire  [63:0] now
);
    localparam int PROBES = NODES < 64 ? NODES : 64;
    // Bits of the golden ratio that decide bits 20 and up of the product: the home slot.
    localparam int PRODUCT_BITS = 20 + NODE_BITS;
    localparam logic [63:0] GOLDEN_RATIO = 64'h9E37_79B9_7F4A_7C15;

    // Node, incarnation, time at which the last user began or ended.
    logic [127:0]       records [0:NODES-1];
    logic [NODES-1:0]   valid;
    logic [NODES-1:0]   users;

    // Constants instead of an enumeration: Icarus Verilog 11 takes its names in port connections for new wires.
    localparam logic [1:0] IDLE = 2'd0;
    localparam logic [1:0] READ = 2'd1;
    localparam logic [1:0] COMPARE = 2'd2;
    logic [1:0] state;
    logic [NODE_BITS-1:0] position;
    logic [6:0]           steps;
    logic [NODE_BITS-1:0] slot;
    logic [127:0]         record;
    logic                 record_valid;
    logic                 record_used;
    logic [63:0]          longest;
    logic [31:0]          found_incarnation;

    /* verilator lint_off UNUSEDSIGNAL */
    // Bits above PRODUCT_BITS do not influence the home slot; bits below 20 are not part of it.
    wire [63:0] wide_node = {32'd0, node};
    wire [PRODUCT_BITS-1:0] product = wide_node[PRODUCT_BITS-1:0] * GOLDEN_RATIO[PRODUCT_BITS-1:0];
    /* verilator lint_on UNUSEDSIGNAL */
    wire [31:0] record_node = record[31:0];
    wire [31:0] record_incarnation = record[63:32];
    wire [63:0] record_touched = record[127:64];
    wire is_over = !record_used && record_touched < idle_limit && (!available || record_touched < longest);

    assign done = state == IDLE && !start;
    assign incarnation = found_incarnation;

    always_ff @(posedge clk) begin
        record <= records[position];
        if (admit || set_active) records[slot] <= {now, admit ? admit_incarnation : found_incarnation, node};
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            state <= IDLE;
            valid <= '0;
        end else begin
            if (admit) begin
                valid[slot] <= 1'b1;
                users[slot] <= 1'b0;
                found_incarnation <= admit_incarnation;
            end
            if (set_active) users[slot] <= active;
            case (state)
                IDLE: if (start) begin
                    position <= product[20 +: NODE_BITS];
                    steps <= '0;
                    found <= 1'b0;
                    available <= 1'b0;
                    state <= READ;
                end
                READ: begin
                    record_valid <= valid[position];
                    record_used <= users[position];
                    state <= COMPARE;
                end
                default: begin
                    position <= position + 1'b1;
                    steps <= steps + 1'b1;
                    state <= READ;
                    if (!record_valid) begin
                        // Records are never removed: none of this node lies beyond a free slot.
                        available <= 1'b1;
                        slot <= position;
                        state <= IDLE;
                    end else if (record_node == node) begin
                        found <= 1'b1;
                        found_incarnation <= record_incarnation;
                        slot <= position;
                        state <= IDLE;
                    end else begin
                        if (is_over) begin
                            available <= 1'b1;
                            longest <= record_touched;
                            slot <= position;
                        end
                        if (steps == 7'(PROBES - 1)) state <= IDLE;
                    end
                end
            endcase
        end
    end
endmodule
