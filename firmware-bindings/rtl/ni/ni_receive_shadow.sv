// Shadow words of the registry and escape windows: the fields of an entry or slot, as the blocks `registry` and `escape` of the contract lay
// them out. Word n is bits 32n+31 to 32n.
//
// `latch_entry` or `latch_slot` takes the fields of that cycle; the age follows, divided by 1000, 64 cycles later; `done` is high when the
// words are complete. They keep their values until the next latch. Reset: all words are 0.

`timescale 1ns / 1ps

module ni_receive_shadow #(
    parameter int MASK_BITS = 32
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  latch_entry,
    input  wire                  latch_slot,
    input  wire                  valid,
    input  wire  [15:0]          index,
    // Nanoseconds.
    input  wire  [63:0]          age,
    output wire                  done,

    input  wire  [31:0]          generation,
    input  wire  [127:0]         key,
    input  wire  [31:0]          segment_count,
    input  wire  [63:0]          base,
    input  wire  [31:0]          length,
    input  wire  [8:0]           packets,
    input  wire                  silent,
    input  wire                  notify,
    input  wire  [63:0]          transfer_length,
    input  wire  [MASK_BITS-1:0] mask,

    input  wire  [127:0]         slot_key,
    input  wire  [63:0]          slot_address,
    input  wire  [15:0]          slot_length,
    input  wire  [31:0]          slot_op,

    // Offsets 0x00 to 0x5c of block `registry`; 0x00 to 0x28 of block `escape`.
    output logic [767:0]         entry_words,
    output logic [351:0]         slot_words
);
    // Restoring division: one bit of the quotient per cycle, the highest first.
    logic [63:0] quotient;
    logic [9:0]  remainder;
    logic [6:0]  steps;
    logic        to_slot;
    wire  [10:0] shifted = {remainder, quotient[63]};
    wire         fits = shifted >= 11'd1000;
    wire  [31:0] microseconds = quotient[63:32] == 0 ? quotient[31:0] : 32'hFFFF_FFFF;
    logic        store;
    assign done = steps == 0 && !store && !latch_entry && !latch_slot;

    // Bits above the mask are ones, like those beyond the packet count.
    logic [255:0] wide_mask;
    always_comb begin
        wide_mask = '1;
        wide_mask[MASK_BITS-1:0] = mask;
    end
    wire [31:0] flags = {28'd0, notify, silent, 2'b01};

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            steps <= '0;
            store <= 1'b0;
            entry_words <= '0;
            slot_words <= '0;
        end else if (latch_entry || latch_slot) begin
            quotient <= valid ? age : 64'd0;
            remainder <= '0;
            steps <= 7'd64;
            to_slot <= latch_slot;
            if (latch_entry) begin
                entry_words <= '0;
                entry_words[15:0] <= index;
                if (valid) begin
                    entry_words[8*ni_pkg::REG_REGISTRY_GENERATION +: 32] <= generation;
                    entry_words[8*ni_pkg::REG_REGISTRY_FLAGS +: 32] <= flags;
                    entry_words[8*ni_pkg::REG_REGISTRY_SOURCE_NODE +: 128] <= key;
                    entry_words[8*ni_pkg::REG_REGISTRY_SEGMENT_COUNT +: 32] <= segment_count;
                    entry_words[8*ni_pkg::REG_REGISTRY_BASE_LOW +: 64] <= base;
                    entry_words[8*ni_pkg::REG_REGISTRY_LENGTH +: 32] <= length;
                    entry_words[8*ni_pkg::REG_REGISTRY_EXPECTED +: 32] <= {23'd0, packets};
                    entry_words[8*ni_pkg::REG_REGISTRY_TRANSFER_LENGTH_LOW +: 64] <= transfer_length;
                    entry_words[8*ni_pkg::REG_REGISTRY_MASK_0 +: 256] <= wide_mask;
                end
            end else begin
                slot_words <= '0;
                slot_words[15:0] <= index;
                if (valid) begin
                    slot_words[8*ni_pkg::REG_ESCAPE_VALID +: 32] <= 32'd1;
                    slot_words[8*ni_pkg::REG_ESCAPE_SOURCE_NODE +: 128] <= slot_key;
                    slot_words[8*ni_pkg::REG_ESCAPE_ADDRESS_LOW +: 64] <= slot_address;
                    slot_words[8*ni_pkg::REG_ESCAPE_LENGTH +: 32] <= {16'd0, slot_length};
                    slot_words[8*ni_pkg::REG_ESCAPE_OP +: 32] <= slot_op;
                end
            end
        end else if (steps != 0) begin
            quotient <= {quotient[62:0], fits};
            remainder <= fits ? 10'(shifted - 11'd1000) : shifted[9:0];
            steps <= steps - 1'b1;
            store <= steps == 1;
        end else if (store) begin
            store <= 1'b0;
            if (to_slot) slot_words[8*ni_pkg::REG_ESCAPE_AGE_US +: 32] <= microseconds;
            else entry_words[8*ni_pkg::REG_REGISTRY_AGE_US +: 32] <= microseconds;
        end
    end
endmodule
