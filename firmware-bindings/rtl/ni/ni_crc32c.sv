// CRC-32C of one beat (protocol section 3.1): polynomial 0x1EDC6F41, reflected.
//
// Protocol: combinational. `crc_in` is the register before the beat (all ones at the start of a frame), `crc_out` the register after its
// first `bytes` bytes; the checksum of a frame is the complement of the register after its last byte. Bytes of `data` beyond `bytes` must
// be 0. Latency: none. Reset: none.
//
// Structure: the checksum is linear, so each of the 32 output bits is the exclusive-or of a constant set of input bits. The register is
// added to the first four bytes of the data; then the bytes are moved to the end of the beat, where the constants are the same for every
// length, because zeros before the data do not change a register of zeros. With `bytes` tied to BUS / 8, synthesis removes the shifter.

`timescale 1ns / 1ps

module ni_crc32c #(
    // Bits of a beat: 64 to 512.
    parameter int BUS = 64
) (
    input  wire  [31:0]            crc_in,
    input  wire  [BUS-1:0]         data,
    // 1 to BUS / 8.
    input  wire  [$clog2(BUS/8):0] bytes,
    output logic [31:0]            crc_out
);
    localparam int BYTES = BUS / 8;
    localparam logic [31:0] POLYNOMIAL = 32'h82f6_3b78;

    // Bits of the data that bit `row` of the register depends on, from a register of zeros: bit `i` is bit `row` of the register after a
    // beat whose only set bit is bit `i`.
    function automatic logic [BUS-1:0] mask(input logic [4:0] row);
        logic [31:0] column;
        column = 32'h1;
        for (int i = BUS - 1; i >= 0; i = i - 1) begin
            column = (column >> 1) ^ (column[0] ? POLYNOMIAL : 32'h0);
            mask[i] = column[row];
        end
    endfunction

    // The last bytes of the register are beyond the data if that is shorter than four bytes: they pass the beat unchanged.
    wire [BUS+31:0] sum = {32'h0, data ^ {{(BUS - 32) {1'b0}}, crc_in}};
    wire [$clog2(BUS/8):0] gap = ($clog2(BUS / 8) + 1)'(BYTES) - bytes;
    wire [BUS+31:0] moved = sum << {gap, 3'b000};

    for (genvar row = 0; row < 32; row = row + 1) begin : g_row
        localparam logic [BUS-1:0] MASK = mask(5'(row));
        assign crc_out[row] = ^(moved[BUS-1:0] & MASK) ^ moved[BUS+row];
    end
endmodule
