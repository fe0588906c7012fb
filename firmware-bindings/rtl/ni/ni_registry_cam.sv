// Keys of the receive registry, all compared at once: see `ni_registry` for the ports.
//
// Order of use: the entry released last is used first, then the never used ones in ascending order, so that a model can follow the
// indices. Latency of a lookup: one cycle. Reset and `clear`: all entries are free and never used.

`timescale 1ns / 1ps

module ni_registry_cam #(
    parameter int ENTRIES = 64,
    localparam int ENTRY_BITS = $clog2(ENTRIES)
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire                    clear,
    input  wire  [127:0]           lookup_key,
    output wire                    found,
    output logic [ENTRY_BITS-1:0]  found_index,
    // Makes entry `free_index` that of `lookup_key`; frees entry `index`.
    input  wire                    insert,
    output wire  [ENTRY_BITS-1:0]  free_index,
    output wire                    has_free,
    input  wire                    remove,
    input  wire  [ENTRY_BITS-1:0]  index,
    output logic [ENTRIES-1:0]     live,
    output logic [ENTRIES-1:0]     used,
    output wire  [ENTRY_BITS:0]    occupancy
);
    logic [ENTRIES-1:0] match;

    // Released entries, the last one on top, and the number of entries that were ever used.
    logic [ENTRY_BITS-1:0] released [0:ENTRIES-1];
    logic [ENTRY_BITS:0]   released_count;
    logic [ENTRY_BITS:0]   used_count;
    wire  [ENTRY_BITS-1:0] top = released_count[ENTRY_BITS-1:0] - 1'b1;
    wire                   recycle = released_count != 0;

    assign has_free = recycle || used_count != (ENTRY_BITS + 1)'(ENTRIES);
    assign free_index = recycle ? released[top] : used_count[ENTRY_BITS-1:0];
    assign occupancy = used_count - released_count;

    for (genvar i = 0; i < ENTRIES; i++) begin : g_entry
        logic [127:0] key;
        always_ff @(posedge clk) begin
            if (insert && free_index == ENTRY_BITS'(i)) key <= lookup_key;
            match[i] <= live[i] && key == lookup_key;
        end
    end

    assign found = |match;
    // At most one bit is set: live keys are unique.
    always_comb begin
        found_index = '0;
        for (int i = 0; i < ENTRIES; i++) begin
            if (match[i]) found_index = found_index | ENTRY_BITS'(i);
        end
    end

    always_ff @(posedge clk) begin
        if (remove) released[released_count[ENTRY_BITS-1:0]] <= index;
        if (!rst_n || clear) begin
            live <= '0;
            used <= '0;
            released_count <= '0;
            used_count <= '0;
        end else begin
            if (insert) begin
                live[free_index] <= 1'b1;
                used[free_index] <= 1'b1;
                if (recycle) released_count <= released_count - 1'b1;
                else used_count <= used_count + 1'b1;
            end
            if (remove) begin
                live[index] <= 1'b0;
                released_count <= released_count + 1'b1;
            end
        end
    end
endmodule
