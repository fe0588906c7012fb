// CRC-32C after the first bytes of a beat, from the register after the whole beat.
//
// Protocol: `in_crc` is the register of `ni_crc32c` after a beat whose last `gap` bytes are 0; `out_crc` is the register before those bytes.
// Each word is taken in the cycle of `in_valid`, and leaves ceil(log2(BUS / 8) / 2) cycles later with `out_valid`: two bits of `gap` are
// examined per cycle. Throughput: one per cycle. Reset: drops all words.
//
// A byte of zeros is a linear operation of the register that can be undone; undoing 1, 2, 4 and more bytes is a constant matrix each.

`timescale 1ns / 1ps

module ni_crc32c_end #(
    // Bits of a beat: 64 to 512.
    parameter int BUS = 64,
    localparam int GAP_BITS = $clog2(BUS / 8)
) (
    input  wire                clk,
    input  wire                rst_n,
    input  wire                in_valid,
    input  wire [31:0]         in_crc,
    input  wire [GAP_BITS-1:0] gap,
    output wire                out_valid,
    output wire [31:0]         out_crc
);
    localparam int STAGES = (GAP_BITS + 1) / 2;
    localparam logic [31:0] POLYNOMIAL = 32'h82f6_3b78;

    // Row `row` of the matrix: bits of the register that bit `row` of the register depends on after `bytes` bytes of zeros are undone.
    function automatic logic [31:0] mask(input logic [4:0] row, input int bytes);
        logic [31:0] column;
        for (int bit_in = 0; bit_in < 32; bit_in = bit_in + 1) begin
            column = 32'h1 << bit_in;
            for (int i = 0; i < 8 * bytes; i = i + 1) column = ((column ^ (column[31] ? POLYNOMIAL : 32'h0)) << 1) | {31'd0, column[31]};
            mask[bit_in] = column[row];
        end
    endfunction

    // Outputs of the stages; an odd number of bits of the gap gets a zero.
    logic [STAGES-1:0]          valid;
    logic [32*STAGES-1:0]       crcs;
    logic [2*STAGES*STAGES-1:0] gaps;
    // Their inputs: those of the module, and the outputs of all stages but the last.
    wire  [STAGES-1:0]          valid_in = STAGES'({valid, in_valid});
    wire  [32*STAGES-1:0]       crcs_in = (32 * STAGES)'({crcs, in_crc});
    wire  [2*STAGES*STAGES-1:0] gaps_in = (2 * STAGES * STAGES)'({gaps, (2 * STAGES)'(gap)});

    for (genvar stage = 0; stage < STAGES; stage++) begin : g_stage
        wire [31:0] crc = crcs_in[32*stage +: 32];
        wire [2*STAGES-1:0] gap_in = gaps_in[2*STAGES*stage +: 2*STAGES];
        wire [31:0] once;
        wire [31:0] twice;
        wire [31:0] half = gap_in[2*stage] ? once : crc;
        for (genvar row = 0; row < 32; row++) begin : g_row
            localparam logic [31:0] ONCE = mask(5'(row), 1 << (2 * stage));
            localparam logic [31:0] TWICE = mask(5'(row), 2 << (2 * stage));
            assign once[row] = ^(crc & ONCE);
            assign twice[row] = ^(half & TWICE);
        end
        always_ff @(posedge clk) begin
            valid[stage] <= rst_n && valid_in[stage];
            crcs[32*stage +: 32] <= gap_in[2*stage+1] ? twice : half;
            gaps[2*STAGES*stage +: 2*STAGES] <= gap_in;
        end
    end
    assign out_valid = valid[STAGES-1];
    assign out_crc = crcs[32*STAGES-32 +: 32];
endmodule
