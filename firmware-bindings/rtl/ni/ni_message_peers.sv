// Peer records of the message receiver (docs/protocol/messages.md 7.1): per context of a sender, its last message and how that ended.
//
// A hash table without removal; an expired record is overwritten by a new one in its slot. `start` searches the record of `source`,
// `incarnation` and the context in bits 31:20 of `message`: 101 cycles for the hash (two multiplications by constants, one bit per cycle),
// then two cycles per slot until its record or a free slot, at most 64 slots. `done` is high when no search runs, and the results hold until
// the next start: `found` with `found_index` and the content of the record; without one, `available`: `free_index` is the first slot that is
// free, or whose message ended and heard its last packet before `idle_limit`.
//
// `put` writes the record `put_index` of the inputs, in progress in context `put_slot`; `finish` stores how the message of record
// `finish_index` ended, and when its last packet arrived. At most one of them per cycle, none while a search runs. Reset and `clear`: empty.

`timescale 1ns / 1ps

module ni_message_peers #(
    // Powers of two.
    parameter int PEERS = 1024,
    parameter int CONTEXTS = 64,
    localparam int PEER_BITS = $clog2(PEERS),
    localparam int SLOT_BITS = $clog2(CONTEXTS)
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  clear,
    input  wire                  start,
    input  wire  [31:0]          source,
    input  wire  [31:0]          incarnation,
    input  wire  [31:0]          message,
    input  wire  [63:0]          idle_limit,
    output wire                  done,
    output logic                 found,
    output logic [PEER_BITS-1:0] found_index,
    output logic [19:0]          found_number,
    output logic                 found_live,
    output logic                 found_complete,
    output logic [SLOT_BITS-1:0] found_slot,
    output logic                 available,
    output logic [PEER_BITS-1:0] free_index,
    input  wire                  put,
    input  wire  [PEER_BITS-1:0] put_index,
    input  wire  [SLOT_BITS-1:0] put_slot,
    input  wire                  finish,
    input  wire  [PEER_BITS-1:0] finish_index,
    input  wire                  finish_complete,
    input  wire  [63:0]          finish_heard
);
    localparam int PROBES = PEERS < 64 ? PEERS : 64;
    localparam logic [63:0] FIRST_FACTOR = 64'h9E37_79B9_7F4A_7C15;
    localparam logic [63:0] SECOND_FACTOR = 64'hBF58_476D_1CE4_E5B9;
    // Bits of the second product that decide the home slot: 24 and up.
    localparam int SECOND_STEPS = 24 + PEER_BITS;

    localparam logic [2:0] IDLE = 3'd0;
    localparam logic [2:0] FIRST = 3'd1;
    localparam logic [2:0] MIX = 3'd2;
    localparam logic [2:0] SECOND = 3'd3;
    localparam logic [2:0] READ = 3'd4;
    localparam logic [2:0] COMPARE = 3'd5;
    logic [2:0] state;

    // Number, context, incarnation, source; state, slot and time of the last packet.
    logic [95:0]          keys [0:PEERS-1];
    logic [SLOT_BITS+1:0] states [0:PEERS-1];
    logic [63:0]          heards [0:PEERS-1];
    logic [PEERS-1:0]     valid;

    // Product of `factor` and the mixed key, from bit 0 on.
    logic [63:0] product;
    logic [63:0] shifted;
    logic [63:0] factor;
    logic [6:0]  steps;
    wire  [63:0] sum = product + (factor[0] ? shifted : 64'd0);
    wire  [63:0] key_bits = {source, incarnation} ^ {39'd0, message[31:20], 13'd0};

    logic [PEER_BITS-1:0] position;
    logic                 record_valid;
    logic [95:0]          record_key;
    logic                 record_live;
    logic                 record_complete;
    logic [SLOT_BITS-1:0] record_slot;
    logic [63:0]          record_heard;
    wire is_same = record_key[75:0] == {message[31:20], incarnation, source};
    wire is_over = !record_live && record_heard < idle_limit;

    assign done = state == IDLE && !start;

    always_ff @(posedge clk) begin
        record_key <= keys[position];
        {record_live, record_complete, record_slot} <= states[position];
        record_heard <= heards[position];
        if (put) keys[put_index] <= {message[19:0], message[31:20], incarnation, source};
        if (put || finish) states[put ? put_index : finish_index] <= {put, finish_complete, put_slot};
        if (finish) heards[finish_index] <= finish_heard;
    end

    always_ff @(posedge clk) begin
        case (state)
            IDLE: if (start) begin
                product <= '0;
                shifted <= key_bits;
                factor <= FIRST_FACTOR;
                steps <= 7'd64;
                state <= FIRST;
            end
            FIRST, SECOND: begin
                product <= sum;
                shifted <= shifted << 1;
                factor <= factor >> 1;
                steps <= steps - 1'b1;
                if (steps == 1) begin
                    steps <= '0;
                    position <= sum[24 +: PEER_BITS];
                    found <= 1'b0;
                    available <= 1'b0;
                    state <= state == FIRST ? MIX : READ;
                end
            end
            MIX: begin
                product <= '0;
                shifted <= product ^ (product >> 29);
                factor <= SECOND_FACTOR;
                steps <= 7'(SECOND_STEPS);
                state <= SECOND;
            end
            READ: begin
                record_valid <= valid[position];
                state <= COMPARE;
            end
            default: begin
                position <= position + 1'b1;
                steps <= steps + 1'b1;
                state <= READ;
                if (!available && (!record_valid || is_over)) begin
                    available <= 1'b1;
                    free_index <= position;
                end
                if (record_valid && is_same) begin
                    found <= 1'b1;
                    found_index <= position;
                    found_number <= record_key[95:76];
                    found_live <= record_live;
                    found_complete <= record_complete;
                    found_slot <= record_slot;
                end
                // Records are never removed: none with this key lies beyond a free slot.
                if (!record_valid || is_same || steps == 7'(PROBES - 1)) state <= IDLE;
            end
        endcase
        if (put) valid[put_index] <= 1'b1;
        if (!rst_n || clear) begin
            state <= IDLE;
            valid <= '0;
        end
    end
endmodule
