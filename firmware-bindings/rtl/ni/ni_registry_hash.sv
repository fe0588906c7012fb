// Keys of the receive registry as a hash table with four ways: see `ni_registry` for the ports.
//
// A key may use the four entries of its set, numbers 4 * set to 4 * set + 3; the lowest free one is used first. `has_free` is low if all
// four are in use, although other sets have free entries: the registration is refused as if the registry were full (5.5).
//
// A lookup takes one cycle, as with `ni_registry_cam`: the set of the key is found, and its keys and bits are read; the comparison follows in
// the next cycle. `has_free` and `free_index` concern the key, and the entries in use, of the previous cycle. Reset and `clear`: all entries
// are free and never used.
//
// The set is the high part of a sum of products. The factors are fractions of 2^16 by the powers of one root (g^4 = g + 1), so that the
// operations of one sender, whose transfers and segments differ by small steps, spread over the sets.

`timescale 1ns / 1ps

module ni_registry_hash #(
    // Power of two, at least 8.
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
    output logic [ENTRY_BITS:0]    occupancy
);
    localparam int SET_BITS = ENTRY_BITS - 2;

    /* verilator lint_off UNUSEDSIGNAL */
    // Only the high part selects the set.
    wire [15:0] sum = lookup_key[79:64] * 16'hD1B5 + lookup_key[111:96] * 16'hABC9 + lookup_key[15:0] * 16'h8CB9
        + (lookup_key[47:32] ^ lookup_key[63:48]);
    /* verilator lint_on UNUSEDSIGNAL */
    wire [SET_BITS-1:0] set = sum[15 -: SET_BITS];

    // Of the previous cycle: the set, and which of its entries are in use.
    logic [SET_BITS-1:0] set_found;
    logic [3:0]          live_found;
    wire  [3:0]          matches_way;
    wire  [1:0]          free_way = !live_found[0] ? 2'd0 : !live_found[1] ? 2'd1 : !live_found[2] ? 2'd2 : 2'd3;
    always_ff @(posedge clk) begin
        set_found <= set;
        live_found <= live[{set, 2'b00} +: 4];
    end

    for (genvar way = 0; way < 4; way++) begin : g_way
        logic [127:0] keys [0:(ENTRIES/4)-1];
        logic [127:0] key;
        always_ff @(posedge clk) begin
            if (insert && free_way == 2'(way)) keys[set_found] <= lookup_key;
            key <= keys[set];
        end
        assign matches_way[way] = live_found[way] && key == lookup_key;
    end

    wire [1:0] found_way = {matches_way[2] | matches_way[3], matches_way[1] | matches_way[3]};
    assign has_free = live_found != 4'b1111;
    assign free_index = {set_found, free_way};
    assign found = |matches_way;
    assign found_index = {set_found, found_way};

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            live <= '0;
            used <= '0;
            occupancy <= '0;
        end else begin
            if (insert) begin
                live[free_index] <= 1'b1;
                used[free_index] <= 1'b1;
            end
            if (remove) live[index] <= 1'b0;
            if (insert != remove) occupancy <= insert ? occupancy + 1'b1 : occupancy - 1'b1;
        end
    end
endmodule
