// Two address ranges compared: a segment or message within its transfer (protocol sections 3.4, 3.9 and 10.2).
//
// Protocol: none; the outputs belong to the inputs of the cycle before. Latency: 1 cycle. Reset: none needed.
//
// A range must not reach beyond the end of the 64-bit address space: start + length <= 2^64 - 1.

`timescale 1ns / 1ps

module ni_ranges (
    input  wire         clk,
    input  wire         hold,
    input  wire  [63:0] inner_start,
    input  wire  [63:0] inner_length,
    input  wire  [63:0] outer_start,
    input  wire  [63:0] outer_length,
    output wire         inner_valid,
    output wire         outer_valid,
    // The inner range lies in the outer one. Only if both are valid.
    output wire         contained,
    output wire         same_start,
    output wire         same_end
);
    logic [64:0] inner_end;
    logic [64:0] outer_end;
    logic starts_inside;
    logic starts_equal;

    always_ff @(posedge clk) begin
        if (!hold) begin
            inner_end <= {1'b0, inner_start} + {1'b0, inner_length};
            outer_end <= {1'b0, outer_start} + {1'b0, outer_length};
            starts_inside <= inner_start >= outer_start;
            starts_equal <= inner_start == outer_start;
        end
    end

    assign inner_valid = !inner_end[64];
    assign outer_valid = !outer_end[64];
    assign contained = starts_inside && inner_end[63:0] <= outer_end[63:0];
    assign same_start = starts_equal;
    assign same_end = inner_end[63:0] == outer_end[63:0];
endmodule
