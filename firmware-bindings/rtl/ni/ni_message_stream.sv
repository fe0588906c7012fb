// Write of a packet's payload from its buffer to card memory.
//
// `start` is a pulse: the write of `length` bytes, not 0, at `address` begins; both hold until `done`, the pulse in which its last beat and its
// address have been taken. `prepare` is high in the cycle before `start`: the buffer shows beat 0 in the cycle after it. Latency: the first
// beat is offered in the cycle after `start`, then one per cycle. Reset: no write is in progress.

`timescale 1ns / 1ps

module ni_message_stream #(
    parameter int BUS = 128,
    parameter int BEAT_BITS = 5
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  prepare,
    input  wire                  start,
    input  wire  [15:0]          length,
    output wire                  done,
    output wire  [BEAT_BITS-1:0] payload_beat,
    output logic                 write_valid,
    input  wire                  write_ready,
    output logic                 write_data_valid,
    input  wire                  write_data_ready
);
    localparam int BYTE_BITS = $clog2(BUS / 8);

    logic                 active;
    logic [BEAT_BITS-1:0] beat;
    wire  [15:0] beats = (length + 16'(BUS / 8 - 1)) >> BYTE_BITS;
    wire  is_last = 16'(beat) + 16'd1 == beats;
    wire  accept = write_data_valid && write_data_ready;
    assign done = active && (!write_data_valid || (accept && is_last)) && (!write_valid || write_ready);
    assign payload_beat = accept && !is_last ? beat + 1'b1 : beat;

    always_ff @(posedge clk) begin
        if (prepare) beat <= '0;
        else beat <= payload_beat;
        if (start) begin
            active <= 1'b1;
            write_valid <= 1'b1;
            write_data_valid <= 1'b1;
        end else begin
            if (done) active <= 1'b0;
            if (write_ready) write_valid <= 1'b0;
            if (accept && is_last) write_data_valid <= 1'b0;
        end
        if (!rst_n) begin
            active <= 1'b0;
            write_valid <= 1'b0;
            write_data_valid <= 1'b0;
        end
    end
endmodule
