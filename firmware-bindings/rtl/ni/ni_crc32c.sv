// CRC-32C of one beat (protocol section 3.1): polynomial 0x1EDC6F41, reflected.
//
// Protocol: combinational. `crc_in` is the register before the beat (all ones at the start of a frame), `crc_out` the register after it;
// the checksum of a frame is the complement of the register after its last byte. If the last beat is shorter, its other bytes count as
// zeros: `ni_crc32c_end` undoes them. Latency: none. Reset: none.
//
// Structure: the checksum is linear, so each of the 32 output bits is the exclusive-or of a constant set of input bits. The register is
// added to the first four bytes of the data.

`timescale 1ns / 1ps

module ni_crc32c #(
    // Bits of a beat: 64 to 512.
    parameter int BUS = 64
) (
    input  wire  [31:0]    crc_in,
    input  wire  [BUS-1:0] data,
    output wire  [31:0]    crc_out
);
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

    wire [BUS-1:0] sum = data ^ {{(BUS - 32) {1'b0}}, crc_in};

    for (genvar row = 0; row < 32; row = row + 1) begin : g_row
        localparam logic [BUS-1:0] MASK = mask(5'(row));
        assign crc_out[row] = ^(sum & MASK);
    end
endmodule
