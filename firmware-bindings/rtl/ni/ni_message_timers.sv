// Timers of the receive contexts: per context the time of its next check and that of its last packet.
//
// A scan in the background compares one context per cycle: first all `deadlines` with the time at which the scan began (`scan_time`), then
// all times of the last packet, which expire after `silence`. It stops at a context that is due (`due` or `silent`, with `due_index`) until a
// new time is written for it, or its bit in `live` is cleared. `clean` tells that the last whole scan has found nothing, and that no cycle was
// `busy` since it began. `heard` is that of context `index`. Reset and `restart`: the scan begins again. Only contexts with a bit in
// `live` are compared, so the memories need no reset.

`timescale 1ns / 1ps

module ni_message_timers #(
    // Power of two.
    parameter int CONTEXTS = 64,
    localparam int SLOT_BITS = $clog2(CONTEXTS)
) (
    input  wire                 clk,
    input  wire                 rst_n,
    input  wire                 restart,
    input  wire  [63:0]         now,
    input  wire  [63:0]         silence,
    input  wire  [CONTEXTS-1:0] live,
    input  wire                 busy,
    input  wire  [SLOT_BITS-1:0] index,
    input  wire                 set_deadline,
    input  wire  [63:0]         deadline,
    input  wire                 set_heard,
    input  wire  [63:0]         new_heard,
    output wire  [63:0]         heard,
    output wire                 due,
    output wire                 silent,
    output wire  [SLOT_BITS-1:0] due_index,
    output logic [63:0]         scan_time,
    output wire                 clean
);
    logic [63:0] deadlines [0:CONTEXTS-1];
    logic [63:0] heards [0:CONTEXTS-1];
    assign heard = heards[index];

    // Bit above the index: the second half of the scan.
    logic [SLOT_BITS:0] position;
    logic               has_found;
    logic               quiet;
    logic               is_clean;
    wire  [SLOT_BITS-1:0] slot = position[SLOT_BITS-1:0];
    wire                is_second = position[SLOT_BITS];
    wire  [63:0]        heard_deadline = heards[slot] + silence;
    wire                is_over = live[slot] && (is_second ? heard_deadline : deadlines[slot]) <= scan_time;

    assign due = has_found && is_over && !is_second;
    assign silent = has_found && is_over && is_second;
    assign due_index = slot;
    assign clean = is_clean;

    always_ff @(posedge clk) begin
        if (set_deadline) deadlines[index] <= deadline;
        if (set_heard) heards[index] <= new_heard;
    end

    always_ff @(posedge clk) begin
        has_found <= is_over;
        if (!is_over) begin
            position <= position + 1'b1;
            if (position == '1) begin
                is_clean <= quiet;
                scan_time <= now;
                quiet <= 1'b1;
            end
        end
        if (!rst_n || restart || busy || is_over) begin
            is_clean <= 1'b0;
            quiet <= 1'b0;
        end
        if (!rst_n || restart) begin
            position <= '0;
            has_found <= 1'b0;
            scan_time <= now;
        end
    end
endmodule
