// Packets of registered segments whose write is under way, in order.
//
// `push` adds a packet; the memory answers the writes in the same order (`write_done`, `write_error`). The head is the oldest packet;
// `head_answered` tells that its response has arrived, `head_error` that memory refused it. `pop` removes it. `contains` tells whether packet
// `search_number` of entry `search_entry` is among them, also in the cycle in which it is removed: the caller reads the mask in that
// cycle. Callers do not push while `full`. Reset: empty.

`timescale 1ns / 1ps

module ni_inflight #(
    parameter int ENTRIES = 64,
    parameter int CONTEXT = 337,
    // Power of two.
    parameter int DEPTH = 8,
    localparam int ENTRY_BITS = $clog2(ENTRIES),
    localparam int DEPTH_BITS = $clog2(DEPTH)
) (
    input  wire                   clk,
    input  wire                   rst_n,
    input  wire                   push,
    // The packet is the START of a new operation: it has no entry yet.
    input  wire                   push_start,
    input  wire  [ENTRY_BITS-1:0] push_entry,
    input  wire  [7:0]            push_number,
    input  wire  [CONTEXT-1:0]    push_context,
    output wire                   full,
    output wire                   empty,
    input  wire                   write_done,
    input  wire                   write_error,
    output wire                   head_answered,
    output wire                   head_error,
    output wire                   head_start,
    output wire  [ENTRY_BITS-1:0] head_entry,
    output wire  [7:0]            head_number,
    output wire  [CONTEXT-1:0]    head_context,
    input  wire                   pop,
    input  wire  [ENTRY_BITS-1:0] search_entry,
    input  wire  [7:0]            search_number,
    output logic                  contains
);
    localparam int NAME = ENTRY_BITS + 9;

    logic [CONTEXT-1:0]    contexts [0:DEPTH-1];
    logic [NAME-1:0]       names [0:DEPTH-1];
    logic [DEPTH-1:0]      used;
    logic [DEPTH-1:0]      errors;
    logic [DEPTH_BITS-1:0] head;
    logic [DEPTH_BITS-1:0] tail;
    // Packet whose response comes next, and number of responses that were not used yet.
    logic [DEPTH_BITS-1:0] response;
    logic [DEPTH_BITS:0]   responses;

    assign full = used[tail];
    assign empty = !used[head];
    assign head_answered = responses != 0;
    assign head_error = errors[head];
    assign {head_start, head_entry, head_number} = names[head];
    assign head_context = contexts[head];

    wire [DEPTH-1:0] hits;
    for (genvar i = 0; i < DEPTH; i++) begin : g_hit
        assign hits[i] = used[i] && names[i] == {1'b0, search_entry, search_number};
    end
    assign contains = |hits;

    always_ff @(posedge clk) begin
        if (push) begin
            contexts[tail] <= push_context;
            names[tail] <= {push_start, push_entry, push_number};
        end
        if (!rst_n) begin
            used <= '0;
            head <= '0;
            tail <= '0;
            response <= '0;
            responses <= '0;
        end else begin
            if (push) begin
                used[tail] <= 1'b1;
                tail <= tail + 1'b1;
            end
            if (pop) begin
                used[head] <= 1'b0;
                head <= head + 1'b1;
            end
            if (write_done) begin
                errors[response] <= write_error;
                response <= response + 1'b1;
            end
            if (write_done != pop) responses <= write_done ? responses + 1'b1 : responses - 1'b1;
        end
    end
endmodule
