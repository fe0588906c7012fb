// Waiting times of refused senders: the field DELAY of NACK Busy (docs/protocol/packets.md 3.5).
//
// A full registry frees an entry every `interval`, the smoothed mean of the times between two releases. Each refusal gets the next of these
// times. `release_entry` records that an entry was released at `now`, `refuse` that a sender was refused at `now`; at most one of them per
// cycle. `delay` is the waiting time, in units of DELAY_UNIT_NS, that a refusal at `now` gives; 0: not known. Reset: no interval is known.

`timescale 1ns / 1ps

module ni_refusals #(
    parameter int ENTRIES = 64
) (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         clear,
    input  wire         release_entry,
    input  wire         refuse,
    input  wire  [63:0] now,
    output wire  [15:0] delay
);
    // 4 ms: neither an interval nor a waiting time is longer.
    localparam logic [63:0] MAX_WAIT_NS = 64'd4_000_000;
    // Occupation times of an entry that a sender waits at most.
    localparam int MAX_LIVES = 16;

    logic [22:0] interval;
    logic [63:0] released;
    // Time of the next try of the last refused sender.
    logic [63:0] turn;

    wire [63:0] elapsed = now > released ? now - released : 64'd0;
    wire [22:0] span = elapsed > MAX_WAIT_NS ? MAX_WAIT_NS[22:0] : elapsed[22:0];
    wire [22:0] smoothed = interval - (interval >> 3) + (span >> 3);

    wire [63:0] longest = {41'd0, interval} * 64'(MAX_LIVES * ENTRIES);
    wire [63:0] limit = longest > MAX_WAIT_NS ? MAX_WAIT_NS : longest;
    wire [63:0] next_turn = (turn > now ? turn : now) + {41'd0, interval};
    wire [63:0] wait_time = next_turn - now;
    // Rounded up; at most MAX_WAIT_NS.
    wire [21:0] bounded = wait_time > limit ? limit[21:0] : wait_time[21:0];
    assign delay = interval == 0 ? 16'd0 : bounded[21:6] + {15'd0, bounded[5:0] != 0};

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            interval <= '0;
            released <= '0;
            turn <= '0;
        end else if (release_entry) begin
            released <= now;
            interval <= interval == 0 || elapsed > MAX_WAIT_NS ? span : smoothed;
        end else if (refuse && interval != 0) begin
            turn <= wait_time > limit ? now : next_turn;
        end
    end
endmodule
