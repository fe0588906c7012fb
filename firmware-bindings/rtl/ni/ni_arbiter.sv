// Arbiter of streams: round robin, one word per grant.
//
// Protocol: valid and ready on all sides. A choice is kept until its word is taken or withdrawn (a reset of its source), so that the output
// does not change while it waits. `out_index` is the input that the word came from. Latency: none; the output is combinational. Reset: input
// 0 is next in turn. Order: that of each input.

`timescale 1ns / 1ps

module ni_arbiter #(
    parameter int WIDTH = 8,
    // At least 2.
    parameter int COUNT = 2
) (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire  [COUNT-1:0]         in_valid,
    output logic [COUNT-1:0]         in_ready,
    // Input 0 in the lowest bits.
    input  wire  [COUNT*WIDTH-1:0]   in_data,
    output wire                      out_valid,
    input  wire                      out_ready,
    output wire  [WIDTH-1:0]         out_data,
    output logic [$clog2(COUNT)-1:0] out_index
);
    localparam int INDEX = $clog2(COUNT);

    // Input that is next in turn; kept choice of a word that waits.
    logic [INDEX-1:0] turn;
    logic waiting;
    logic [INDEX-1:0] kept;

    assign out_valid = |in_valid;

    always_comb begin
        // The last assignment wins: inputs from `turn` on come before those below it, and lower ones before higher ones.
        out_index = '0;
        for (int input_number = COUNT - 1; input_number >= 0; input_number--)
            if (in_valid[input_number] && INDEX'(input_number) < turn) out_index = INDEX'(input_number);
        for (int input_number = COUNT - 1; input_number >= 0; input_number--)
            if (in_valid[input_number] && INDEX'(input_number) >= turn) out_index = INDEX'(input_number);
        if (waiting && in_valid[kept]) out_index = kept;
    end

    // A block of its own: the ready signals depend on the output, the index does not depend on it.
    always_comb begin
        in_ready = '0;
        for (int input_number = 0; input_number < COUNT; input_number++)
            if (INDEX'(input_number) == out_index) in_ready[input_number] = out_ready && in_valid[input_number];
    end

    assign out_data = in_data[WIDTH*out_index+:WIDTH];

    always_ff @(posedge clk) begin
        kept <= out_index;
        if (!rst_n) begin
            turn <= '0;
            waiting <= 1'b0;
        end else begin
            waiting <= out_valid && !out_ready;
            if (out_valid && out_ready) turn <= (out_index == INDEX'(COUNT - 1)) ? '0 : out_index + 1'b1;
        end
    end
endmodule
