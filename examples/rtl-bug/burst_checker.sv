// Compares the memory's write address with that of the burst's beat, for incrementing bursts of 64 bits, one at a time. Reports the first
// wrong beat of each burst.

`timescale 1ps / 1ps

module burst_checker (
    input wire        clk,
    input wire        rst_n,
    input wire [63:0] awaddr,
    input wire        awvalid,
    input wire        awready,
    input wire        write,
    input wire [15:0] write_address
);
    logic [63:0] first;
    int beat;
    bit is_reported;
    int bursts = 0;

    wire [63:0] expected = {first[63:3], 3'b000} + 64'(8 * beat);

    always_ff @(posedge clk) if (rst_n) begin
        if (awvalid && awready) begin
            first <= awaddr;
            beat <= 0;
            is_reported <= 1'b0;
        end
        if (write) begin
            beat <= beat + 1;
            if (write_address != expected[15:0] && !is_reported) begin
                is_reported <= 1'b1;
                bursts <= bursts + 1;
                $display("burst_checker at %0t: write burst to 0x%0h, beat %0d: memory address 0x%0h, expected 0x%0h",
                    $time, first, beat, write_address, expected);
            end
        end
    end

    final $display("burst_checker: %0d bursts to wrong addresses", bursts);
endmodule
