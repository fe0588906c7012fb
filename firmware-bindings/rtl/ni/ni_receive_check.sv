// Checks of a DATA or START packet against its registry entry, and of a START against itself.
//
// Combinational, but for `offset` and the sums: they belong to the inputs of the previous cycle, so that a 64-bit addition and a 64-bit
// comparison are in different cycles. Inputs are stable for two cycles at least.

`timescale 1ns / 1ps

module ni_receive_check #(
    parameter int MASK_BITS = 32,
    parameter int PACKET_LOG2 = 9
) (
    input  wire         clk,
    input  wire  [63:0] address,
    input  wire  [15:0] payload_length,
    input  wire         trimmed,
    input  wire  [31:0] segment,
    input  wire  [31:0] segment_count,
    input  wire  [63:0] start_base,
    input  wire  [31:0] start_length,
    input  wire  [15:0] start_packets,
    input  wire  [63:0] transfer_base,
    input  wire  [63:0] transfer_length,
    input  wire  [63:0] entry_base,
    input  wire  [31:0] entry_length,
    input  wire  [8:0]  entry_packets,
    input  wire  [31:0] entry_segment_count,
    // The packet agrees with the entry (docs/protocol/receiver.md 5.2), apart from the START fields; its number in the segment.
    output wire         agrees,
    output wire  [7:0]  number,
    // The START describes the same segment as the entry, apart from the length of the transfer.
    output wire         same_start,
    // The START keeps the rules of docs/protocol/packets.md 3.4, and its packets fit the mask.
    output wire         sound_start
);
    localparam logic [31:0] SIZE = 32'd1 << PACKET_LOG2;

    logic [64:0] offset;
    logic [64:0] segment_end;
    logic [64:0] transfer_end;
    always_ff @(posedge clk) begin
        offset <= {1'b0, address} - {1'b0, entry_base};
        segment_end <= {1'b0, start_base} + {33'd0, start_length};
        transfer_end <= {1'b0, transfer_base} + {1'b0, transfer_length};
    end

    wire [31:0] rest = entry_length - offset[31:0];
    wire [31:0] expected = rest > SIZE ? SIZE : rest;
    wire [31:0] wide_number = offset[31:0] >> PACKET_LOG2;
    assign number = wide_number[7:0];
    assign agrees = segment_count == entry_segment_count && offset[64:32] == 0 && offset[31:0] <= entry_length
        && offset[PACKET_LOG2-1:0] == 0 && {16'd0, payload_length} == expected && wide_number < {23'd0, entry_packets};
    assign same_start = start_base == entry_base && start_length == entry_length && start_packets == {7'd0, entry_packets};

    wire [32:0] rounded = {1'b0, start_length} + {1'b0, SIZE - 32'd1};
    wire [32:0] packets = rounded >> PACKET_LOG2;
    wire [31:0] first_length = start_length > SIZE ? SIZE : start_length;
    wire is_first = segment == 0;
    wire is_last = segment + 1'b1 == segment_count;
    assign sound_start = packets != 0 && packets <= 33'd256 && packets[15:0] == start_packets && start_packets <= 16'(MASK_BITS)
        && segment < segment_count
        && !segment_end[64] && !transfer_end[64] && start_base >= transfer_base && segment_end[63:0] <= transfer_end[63:0]
        && is_first == (start_base == transfer_base) && is_last == (segment_end == transfer_end)
        && address == start_base && (trimmed || {16'd0, payload_length} == first_length);
endmodule
