// FIFO with registered flags and data in distributed memory.
//
// Protocol: valid and ready on both sides; a word is passed in a cycle with both. Latency: 1 cycle from input to output. Reset: empties
// it; the memory is not cleared. Order: first in, first out.

`timescale 1ns / 1ps

module ni_fifo #(
    parameter int WIDTH = 8,
    // Power of two, at least 2.
    parameter int DEPTH = 16
) (
    input  wire              clk,
    input  wire              rst_n,
    input  wire              in_valid,
    output wire              in_ready,
    input  wire  [WIDTH-1:0] in_data,
    output wire              out_valid,
    input  wire              out_ready,
    output wire  [WIDTH-1:0] out_data,
    // Words stored.
    output logic [$clog2(DEPTH):0] level
);
    localparam int INDEX = $clog2(DEPTH);

    logic [WIDTH-1:0] words [0:DEPTH-1];
    logic [INDEX-1:0] head;
    logic [INDEX-1:0] tail;

    wire push = in_valid && in_ready;
    wire pop = out_valid && out_ready;

    // Bit INDEX is set only if all DEPTH words are in use.
    assign in_ready = !level[INDEX];
    assign out_valid = level != 0;
    assign out_data = words[head];

    always_ff @(posedge clk) begin
        if (push) words[tail] <= in_data;
        if (!rst_n) begin
            head <= '0;
            tail <= '0;
            level <= '0;
        end else begin
            if (push) tail <= tail + 1'b1;
            if (pop) head <= head + 1'b1;
            if (push != pop) level <= push ? level + 1'b1 : level - 1'b1;
        end
    end
endmodule
