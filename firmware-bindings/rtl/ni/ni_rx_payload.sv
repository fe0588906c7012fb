// Payload memory of the packet buffers: payloads are moved to byte 0 of their first beat.
//
// Input: the beats of a frame (`take`), as `ni_rx` accepts them: `index` counts from 0 and stops at its maximum. The first beat names the
// kind, and so the length of the header. A beat of payload is complete with the beat of the frame that has its last byte; the rest of the
// last beat is written in the cycle after it. No first beat completes a payload beat, so that the next frame may follow at once.
// Output: `read_data` is a beat of a payload, one cycle after its address. Bytes after the payload have any value. Reset: none needed.

`timescale 1ns / 1ps

module ni_rx_payload #(
    parameter int BUS = 64,
    parameter int PACKET_LOG2 = 12,
    parameter int SLOTS = 4,
    localparam int BYTES = BUS / 8,
    localparam int BEATS = (1 << PACKET_LOG2) / BYTES,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1,
    localparam int SLOT_BITS = $clog2(SLOTS)
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  take,
    input  wire                  first,
    input  wire                  last,
    input  wire  [12:0]          index,
    input  wire  [BUS-1:0]       data,
    input  wire  [SLOT_BITS-1:0] slot,
    input  wire  [SLOT_BITS-1:0] read_slot,
    input  wire  [BEAT_BITS-1:0] read_beat,
    output logic [BUS-1:0]       read_data
);
    // First byte of the payload in its beat, and the beat of the frame that completes the payload's first beat.
    localparam int DATA_SHIFT = ni_pkg::DATA_BYTES % BYTES;
    localparam int START_SHIFT = ni_pkg::START_BYTES % BYTES;
    localparam int MESSAGE_SHIFT = ni_pkg::MESSAGE_DATA_BYTES % BYTES;
    localparam int MESSAGE_START_SHIFT = ni_pkg::MESSAGE_START_BYTES % BYTES;
    localparam int DATA_BEAT = (ni_pkg::DATA_BYTES + BYTES - 1) / BYTES;
    localparam int START_BEAT = (ni_pkg::START_BYTES + BYTES - 1) / BYTES;
    localparam int MESSAGE_BEAT = (ni_pkg::MESSAGE_DATA_BYTES + BYTES - 1) / BYTES;
    localparam int MESSAGE_START_BEAT = (ni_pkg::MESSAGE_START_BYTES + BYTES - 1) / BYTES;

    logic [7:0] kind;
    logic [BUS-1:0] previous;
    logic [12:0] previous_index;
    logic [SLOT_BITS-1:0] previous_slot;
    // The frame has ended: the rest of its last beat is still to be written, with any bytes after it.
    logic rest;

    always_ff @(posedge clk) begin
        if (take) begin
            if (first) kind <= data[ni_pkg::COMMON_KIND_LSB+:8];
            previous <= data;
            previous_index <= index;
            previous_slot <= slot;
        end
        if (!rst_n) rest <= 1'b0;
        else rest <= take && last;
    end

    logic [BUS-1:0] moved;
    logic [12:0] first_index;
    always_comb begin
        case (kind)
            ni_pkg::PACKET_KIND_DATA: begin
                moved = DATA_SHIFT == 0 ? data : BUS'({data, previous} >> (8 * DATA_SHIFT));
                first_index = 13'(DATA_BEAT);
            end
            ni_pkg::PACKET_KIND_START: begin
                moved = START_SHIFT == 0 ? data : BUS'({data, previous} >> (8 * START_SHIFT));
                first_index = 13'(START_BEAT);
            end
            ni_pkg::PACKET_KIND_MESSAGE_DATA: begin
                moved = MESSAGE_SHIFT == 0 ? data : BUS'({data, previous} >> (8 * MESSAGE_SHIFT));
                first_index = 13'(MESSAGE_BEAT);
            end
            default: begin
                moved = MESSAGE_START_SHIFT == 0 ? data : BUS'({data, previous} >> (8 * MESSAGE_START_SHIFT));
                first_index = 13'(MESSAGE_START_BEAT);
            end
        endcase
    end

    wire [12:0] write_index = (rest ? previous_index + 13'd1 : index) - first_index;
    wire write = (rest || take && !first) && write_index < 13'(BEATS);

    localparam int ADDRESS_BITS = $clog2(SLOTS * BEATS);
    wire [ADDRESS_BITS-1:0] write_address = BEATS > 1
        ? ADDRESS_BITS'({previous_slot, write_index[BEAT_BITS-1:0]}) : ADDRESS_BITS'(previous_slot);
    wire [ADDRESS_BITS-1:0] read_address = BEATS > 1
        ? ADDRESS_BITS'({read_slot, read_beat}) : ADDRESS_BITS'(read_slot);
    logic [BUS-1:0] words [0:SLOTS*BEATS-1];
    always_ff @(posedge clk) begin
        if (write) words[write_address] <= moved;
        read_data <= words[read_address];
    end
endmodule
