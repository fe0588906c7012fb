// Shadow words of a receive context, as block `registry` of the contract lays them out (word n is bits 32n+31 to 32n): those that it has in common
// with a registry entry by `ni_receive_shadow`, the others here.
//
// `latch` takes the fields of that cycle; `done` is high when the words are complete, 65 cycles later. They keep their values until the next
// latch. Reset: all words are 0.

`timescale 1ns / 1ps

module ni_message_shadow #(
    parameter int WINDOW = 128
) (
    input  wire              clk,
    input  wire              rst_n,
    input  wire              latch,
    input  wire              valid,
    input  wire  [15:0]      index,
    // Nanoseconds.
    input  wire  [63:0]      age,
    output wire              done,

    input  wire  [31:0]      generation,
    // Message, incarnation, source.
    input  wire  [95:0]      name,
    input  wire  [31:0]      transfer,
    input  wire  [31:0]      left,
    input  wire  [63:0]      base,
    input  wire  [31:0]      length,
    input  wire  [12:0]      count,
    input  wire              notifies,
    input  wire  [63:0]      transfer_length,
    // Lowest missing packet; received packets by the low bits of their numbers.
    input  wire  [12:0]      first,
    input  wire  [WINDOW-1:0] here,

    output wire  [767:0]     words
);
    localparam int BITS = $clog2(WINDOW);
    localparam int MASK_BITS = 256;

    // Packets from the lowest missing one on; those beyond the message are ones.
    wire [12:0] rest = count - first;
    logic [MASK_BITS-1:0] mask;
    always_comb begin
        mask = rest < 13'(MASK_BITS) ? {MASK_BITS{1'b1}} << rest[7:0] : '0;
        for (int n = 0; n < WINDOW; n++) begin
            if (here[first[BITS-1:0] + BITS'(n)]) mask[n] = 1'b1;
        end
    end

    wire  [767:0] entry_words;
    wire  [351:0] unused_words;
    logic [767:0] own_words;
    assign words = entry_words | own_words;
    ni_receive_shadow #(.MASK_BITS(MASK_BITS)) entry (
        .clk, .rst_n, .latch_entry(latch), .latch_slot(1'b0), .valid, .index, .age, .done,
        .generation, .key({name[95:64], transfer, name[63:0]}), .segment_count(left == '1 ? left : left + 32'd1), .base, .length,
        .packets(9'd0), .silent(1'b0), .notify(notifies), .transfer_length, .mask,
        .slot_key(128'd0), .slot_address(64'd0), .slot_length(16'd0), .slot_op(32'd0),
        .entry_words, .slot_words(unused_words)
    );

    always_ff @(posedge clk) begin
        if (latch) begin
            own_words <= '0;
            if (valid) begin
                own_words[8*ni_pkg::REG_REGISTRY_FLAGS + ni_pkg::REG_REGISTRY_FLAGS_SCHEME_LSB +: 3] <= ni_pkg::SCHEME_RECEIVER_WINDOW[2:0];
                own_words[8*ni_pkg::REG_REGISTRY_EXPECTED +: 13] <= count;
                own_words[8*ni_pkg::REG_REGISTRY_FIRST +: 13] <= first;
            end
        end
        if (!rst_n) own_words <= '0;
    end

    wire unused = &{1'b0, unused_words};
endmodule
