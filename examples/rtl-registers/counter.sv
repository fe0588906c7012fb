// A counter from 0 to a limit and around, or the other way.

`timescale 1ps / 1ps

module counter (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         enable,
    input  wire         down,
    input  wire         clear,
    input  wire  [31:0] limit,
    output logic [31:0] value,
    // One cycle of 1 for each turn.
    output logic        wrapped
);
    wire at_end = down ? value == 0 : value >= limit;

    always_ff @(posedge clk) begin
        wrapped <= rst_n && enable && !clear && at_end;
        if (!rst_n || clear) value <= '0;
        else if (enable) value <= at_end ? (down ? limit : '0) : (down ? value - 1 : value + 1);
    end
endmodule
