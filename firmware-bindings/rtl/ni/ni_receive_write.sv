// Payload of the packet in progress: to card memory, or into a slot of the escape channel.
//
// Write: a pulse of `start` begins one; `write_valid` offers its address from the next cycle on, and `write_data_valid` its beats, one per
// cycle. `done` is high in the cycle in which the last of both is accepted. Store: while `store` is high, a beat per cycle passes; `beat` is
// its number. `is_last_beat` tells that `beat` is the last one of `length` bytes. `rewind` sets `beat` to 0 while nothing is under way.
// `payload_beat` is the address of the buffer whose data arrives in the next cycle. Reset: no write is under way.

`timescale 1ns / 1ps

module ni_receive_write #(
    parameter int BUS = 128,
    parameter int BEAT_BITS = 5
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  start,
    input  wire                  store,
    input  wire                  rewind,
    input  wire  [15:0]          length,
    output logic [BEAT_BITS-1:0] beat,
    output wire                  is_last_beat,
    output wire                  done,
    output wire  [BEAT_BITS-1:0] payload_beat,

    output logic                 write_valid,
    input  wire                  write_ready,
    output wire                  write_data_valid,
    input  wire                  write_data_ready
);
    localparam int BYTE_BITS = $clog2(BUS / 8);

    logic busy;
    // All beats of the write were accepted.
    logic sent;
    wire [15:0] beats = (length + 16'(BUS / 8 - 1)) >> BYTE_BITS;
    assign is_last_beat = 16'(beat) + 16'd1 == beats;

    wire accept = write_data_valid && write_data_ready;
    wire next_beat = (accept && !is_last_beat) || store;
    assign write_data_valid = busy && !sent;
    assign done = busy && (sent || (accept && is_last_beat)) && (!write_valid || write_ready);
    assign payload_beat = next_beat ? beat + 1'b1 : beat;

    always_ff @(posedge clk) begin
        if (rewind) beat <= '0;
        else if (next_beat) beat <= beat + 1'b1;
        if (start) begin
            write_valid <= 1'b1;
            sent <= 1'b0;
        end else begin
            if (write_ready) write_valid <= 1'b0;
            if (accept && is_last_beat) sent <= 1'b1;
        end
        if (start) busy <= 1'b1;
        else if (done) busy <= 1'b0;
        if (!rst_n) begin
            write_valid <= 1'b0;
            busy <= 1'b0;
        end
    end
endmodule
