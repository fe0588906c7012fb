// Escape channel: packets that arrived before the START of their segment (docs/protocol/receiver.md 5.6).
//
// `index` selects the slot whose packet the `read_` ports show in the same cycle. Search: `search` compares the slots from `from` on, one per
// cycle, by `mode`; `search_done` is high when no search runs, and the results hold until the next search:
//
//   SAME      `found`: a slot with `key` and `address`; if none, `vacant`: the lowest empty slot
//   OPERATION `found`: a slot with `key`
//   EXPIRED   `found`: a slot whose deadline is not later than `now`
//   TIMER     no result: sets `next_deadline` to the earliest deadline
//
// `store` fills slot `index` and makes its deadline `now` + `timeout`; its payload is written before through `payload_write` at any time
// while the slot is empty. `refresh` replaces op number, try count and time of arrival. `release_slot` empties it. `note_wait` records
// that the packet of slot `index` leaves it for a registration; the timeout is 4 times the maximum recent wait, at most the packet
// lifetime, or the configured one if that is more. Payload is read through `payload_address`, one cycle later. Reset and `clear`: all
// slots are empty, and no wait is known.

`timescale 1ns / 1ps

module ni_escape #(
    parameter int ESCAPE_SLOTS = 64,
    parameter int PACKET_LOG2 = 9,
    parameter int BUS = 128,
    localparam int SLOT_BITS = $clog2(ESCAPE_SLOTS),
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                   clk,
    input  wire                   rst_n,
    input  wire                   clear,
    input  wire  [63:0]           now,
    input  wire  [63:0]           escape_timeout,
    input  wire  [63:0]           packet_lifetime,

    input  wire                   search,
    input  wire  [1:0]            mode,
    input  wire  [SLOT_BITS-1:0]  from,
    input  wire  [127:0]          key,
    input  wire  [63:0]           address,
    output wire                   search_done,
    output logic                  found,
    output logic [SLOT_BITS-1:0]  found_index,
    output logic                  vacant,
    output logic [SLOT_BITS-1:0]  vacant_index,

    input  wire  [SLOT_BITS-1:0]  index,
    output wire                   read_valid,
    output wire  [447:0]          read_header,
    output wire  [15:0]           read_length,
    output wire  [63:0]           read_arrived,

    input  wire                   store,
    input  wire  [447:0]          header,
    input  wire  [15:0]           length,
    input  wire                   refresh,
    input  wire                   release_slot,
    input  wire                   note_wait,

    input  wire                   payload_write,
    input  wire  [BEAT_BITS-1:0]  payload_beat,
    input  wire  [BUS-1:0]        payload,
    input  wire  [BEAT_BITS-1:0]  payload_read_beat,
    output logic [BUS-1:0]        payload_read,

    // Time of the first timeout; all ones: none.
    output logic [63:0]           next_deadline,
    output logic [SLOT_BITS:0]    occupancy,
    output logic [SLOT_BITS:0]    high_water
);
    localparam logic [1:0] SAME = 2'd0;
    localparam logic [1:0] OPERATION = 2'd1;
    localparam logic [1:0] EXPIRED = 2'd2;
    localparam logic [1:0] TIMER = 2'd3;

    logic [ESCAPE_SLOTS-1:0] valid;
    // Header without op number and try count; op number, try count; times.
    logic [447:0] headers [0:ESCAPE_SLOTS-1];
    logic [39:0]  tries [0:ESCAPE_SLOTS-1];
    logic [15:0]  lengths [0:ESCAPE_SLOTS-1];
    logic [63:0]  arrivals [0:ESCAPE_SLOTS-1];
    logic [63:0]  deadlines [0:ESCAPE_SLOTS-1];
    logic [BUS-1:0] payloads [0:ESCAPE_SLOTS*BEATS-1];

    logic                 busy;
    logic [1:0]           r_mode;
    logic [SLOT_BITS-1:0] position;
    wire  [SLOT_BITS-1:0] selected = busy ? position : index;

    /* verilator lint_off UNUSEDSIGNAL */
    wire [447:0] header_found = headers[selected];
    /* verilator lint_on UNUSEDSIGNAL */
    wire [39:0]  tries_found = tries[selected];
    wire [127:0] key_found;
    wire [63:0]  address_found = header_found[ni_pkg::DATA_ADDRESS_LSB +: 64];
    wire [63:0]  deadline_found = deadlines[selected];
    assign key_found = {header_found[ni_pkg::DATA_SEGMENT_LSB +: 32], header_found[ni_pkg::DATA_TRANSFER_LSB +: 32],
        header_found[ni_pkg::DATA_INCARNATION_LSB +: 32], header_found[ni_pkg::DATA_SOURCE_LSB +: 32]};
    assign read_valid = valid[selected];
    assign read_length = lengths[selected];
    assign read_arrived = arrivals[selected];
    assign read_header = {header_found[447:440], tries_found[39:32], header_found[431:416], tries_found[31:0], header_found[383:0]};
    assign search_done = !busy && !search;

    logic [63:0] longest_wait;
    wire  [65:0] wide_wait = {longest_wait, 2'b00};
    wire  [63:0] bounded_wait = wide_wait > {2'b00, packet_lifetime} ? packet_lifetime : wide_wait[63:0];
    wire  [63:0] timeout = bounded_wait > escape_timeout ? bounded_wait : escape_timeout;
    wire  [63:0] deadline = now + timeout;
    wire  [63:0] wait_time = now > read_arrived ? now - read_arrived : 64'd0;
    wire  [63:0] faded = longest_wait - (longest_wait >> 6);

    wire matches_key = read_valid && key_found == key;
    wire is_same = r_mode == SAME && matches_key && address_found == address;
    wire is_operation = r_mode == OPERATION && matches_key;
    wire is_expired = r_mode == EXPIRED && read_valid && deadline_found <= now;
    wire is_hit = is_same || is_operation || is_expired;
    wire is_last = position == SLOT_BITS'(ESCAPE_SLOTS - 1);

    localparam int PAYLOAD_BITS = $clog2(ESCAPE_SLOTS * BEATS);
    wire [PAYLOAD_BITS-1:0] write_address = PAYLOAD_BITS'(index * BEATS) + PAYLOAD_BITS'(payload_beat);
    wire [PAYLOAD_BITS-1:0] read_address = PAYLOAD_BITS'(index * BEATS) + PAYLOAD_BITS'(payload_read_beat);

    always_ff @(posedge clk) begin
        if (store) begin
            headers[index] <= header;
            lengths[index] <= length;
            deadlines[index] <= deadline;
        end
        if (store || refresh) begin
            tries[index] <= {header[ni_pkg::DATA_TRIES_LSB +: 8], header[ni_pkg::DATA_OP_LSB +: 32]};
            arrivals[index] <= now;
        end
        if (payload_write) payloads[write_address] <= payload;
        payload_read <= payloads[read_address];
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            valid <= '0;
            busy <= 1'b0;
            next_deadline <= '1;
            occupancy <= '0;
            high_water <= '0;
            longest_wait <= '0;
        end else begin
            if (store) begin
                valid[index] <= 1'b1;
                occupancy <= occupancy + 1'b1;
                if (occupancy >= high_water) high_water <= occupancy + 1'b1;
                if (deadline < next_deadline) next_deadline <= deadline;
            end
            if (release_slot) begin
                valid[index] <= 1'b0;
                occupancy <= occupancy - 1'b1;
                if (occupancy == 1) next_deadline <= '1;
            end
            if (note_wait) longest_wait <= wait_time > faded ? wait_time : faded;
            if (search) begin
                busy <= 1'b1;
                r_mode <= mode;
                position <= from;
                found <= 1'b0;
                vacant <= 1'b0;
                if (mode == TIMER) next_deadline <= '1;
            end else if (busy) begin
                position <= position + 1'b1;
                if (is_hit) begin
                    found <= 1'b1;
                    found_index <= position;
                end
                if (!read_valid && !vacant) begin
                    vacant <= 1'b1;
                    vacant_index <= position;
                end
                if (r_mode == TIMER && read_valid && deadline_found < next_deadline) next_deadline <= deadline_found;
                if (is_hit || is_last) busy <= 1'b0;
            end
        end
    end
endmodule
