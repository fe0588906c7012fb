// Timeouts of the receiver (docs/protocol/receiver.md 5.9): packets that waited too long in the escape channel, then the sweep.
//
// A pulse of `start` begins it; `busy` is high until it has ended. `time_of_timeout` is the time of the last pulse. While `held`, the packet
// in progress is that of slot `slot`; `load_context` takes it over. Each expired packet is reported and answered with "busy", in slot
// order, and leaves its slot; then the escape channel finds its next deadline, and a sweep runs if the earliest record expires.
// Reset: nothing runs.

`timescale 1ns / 1ps

module ni_receive_timer #(
    parameter int ESCAPE_SLOTS = 64,
    localparam int SLOT_BITS = $clog2(ESCAPE_SLOTS)
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire  [63:0]          now,
    input  wire                  start,
    output wire                  busy,
    output logic [63:0]          time_of_timeout,
    output logic                 held,
    output wire                  load_context,

    input  wire  [63:0]          escape_deadline,
    // Search of the slots from `from` on: the first expired one, or the earliest deadline.
    output wire                  search_expired,
    output wire                  search_earliest,
    output logic [SLOT_BITS-1:0] from,
    input  wire                  escape_done,
    input  wire                  found,
    input  wire  [SLOT_BITS-1:0] found_index,
    output wire                  select_slot,
    output wire                  release_slot,

    input  wire  [63:0]          record_deadline,
    output wire                  sweep,
    input  wire                  sweep_busy,

    output wire                  report_released,
    input  wire                  event_space,
    output wire                  nack,
    input  wire                  answer_space
);
    localparam logic [3:0] IDLE = 4'd0;
    localparam logic [3:0] DUE = 4'd1;
    localparam logic [3:0] SEARCH = 4'd2;
    localparam logic [3:0] FIND = 4'd3;
    localparam logic [3:0] SLOT = 4'd4;
    localparam logic [3:0] EVENT = 4'd5;
    localparam logic [3:0] NACK = 4'd6;
    localparam logic [3:0] RELEASE = 4'd7;
    localparam logic [3:0] EARLIEST = 4'd8;
    localparam logic [3:0] EARLIEST_WAIT = 4'd9;
    localparam logic [3:0] SWEEP = 4'd10;
    localparam logic [3:0] SWEEP_WAIT = 4'd11;
    logic [3:0] state;
    // The last slot was released.
    wire is_last = from == '0;

    assign busy = state != IDLE;
    assign load_context = state == DUE || state == SLOT;
    assign search_expired = state == SEARCH;
    assign search_earliest = state == EARLIEST;
    assign select_slot = state == FIND && escape_done;
    assign release_slot = state == RELEASE;
    assign sweep = state == SWEEP && record_deadline <= time_of_timeout;
    assign report_released = state == EVENT;
    assign nack = state == NACK && answer_space;

    always_ff @(posedge clk) begin
        case (state)
            IDLE: begin
                time_of_timeout <= now;
                held <= 1'b0;
                from <= '0;
                if (start) state <= DUE;
            end
            DUE: state <= escape_deadline <= time_of_timeout ? SEARCH : SWEEP;
            SEARCH: state <= FIND;
            FIND: if (escape_done) begin
                held <= found;
                from <= found_index + 1'b1;
                state <= found ? SLOT : EARLIEST;
            end
            SLOT: state <= EVENT;
            EVENT: if (event_space) state <= NACK;
            NACK: if (answer_space) state <= RELEASE;
            RELEASE: begin
                held <= 1'b0;
                state <= is_last ? EARLIEST : SEARCH;
            end
            EARLIEST: state <= EARLIEST_WAIT;
            EARLIEST_WAIT: if (escape_done) state <= SWEEP;
            SWEEP: state <= record_deadline <= time_of_timeout ? SWEEP_WAIT : IDLE;
            default: if (!sweep_busy) state <= IDLE;
        endcase
        if (!rst_n) state <= IDLE;
    end
endmodule
