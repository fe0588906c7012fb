// Memory windows: the ranges of card memory that each peer may write (docs/protocol/receiver.md 5.4).
//
// Check: the request inputs are compared with the window of the previous cycle's `probe`; `probe_allows` tells whether it permits the
// write. Search: a pulse of `search` compares all windows, one per cycle, beginning with that of `probe`; `search_done` is high when no
// search runs, and `allowed` and `allowed_index` hold from then until the next search. Windows are changed only while no search runs. Reset
// and `clear`: no window is installed.

`timescale 1ns / 1ps

module ni_access #(
    parameter int MEMORY_WINDOWS = 64,
    localparam int WINDOW_BITS = $clog2(MEMORY_WINDOWS)
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire                    clear,
    input  wire  [31:0]            source,
    input  wire  [63:0]            key,
    input  wire  [63:0]            address,
    input  wire  [31:0]            length,
    input  wire  [WINDOW_BITS-1:0] probe,
    output wire                    probe_allows,
    input  wire                    search,
    output wire                    search_done,
    output logic                   allowed,
    output logic [WINDOW_BITS-1:0] allowed_index,
    // Installs the window, or removes it.
    input  wire                    install,
    input  wire                    remove,
    input  wire  [WINDOW_BITS-1:0] index,
    input  wire  [31:0]            window_source,
    input  wire  [63:0]            window_base,
    input  wire  [63:0]            window_length,
    input  wire  [63:0]            window_key,
    // Bit set Permissions.
    input  wire  [1:0]             window_permissions,
    // Window of the previous cycle's `probe`, as it was installed.
    output wire                    read_valid,
    output wire  [225:0]           read_window,
    output logic [WINDOW_BITS:0]   occupancy
);
    logic [MEMORY_WINDOWS-1:0] valid;
    // Permissions, source, base, length, key.
    logic [225:0] windows [0:MEMORY_WINDOWS-1];

    logic                   busy;
    logic                   first;
    logic [WINDOW_BITS-1:0] position;
    // Window that is compared in this cycle.
    logic [225:0]           window;
    logic                   is_valid;
    logic [WINDOW_BITS-1:0] compared;
    wire  [WINDOW_BITS-1:0] next = busy ? position : probe;

    wire [63:0] key_found = window[63:0];
    wire [63:0] length_found = window[127:64];
    wire [63:0] base_found = window[191:128];
    wire [31:0] source_found = window[223:192];
    wire        is_writable = window[224 + ni_pkg::PERMISSIONS_WRITE_BIT];
    assign read_valid = is_valid;
    assign read_window = window;
    wire [64:0] offset = {1'b0, address} - {1'b0, base_found};
    wire [64:0] rest = {1'b0, length_found} - {1'b0, offset[63:0]};
    assign probe_allows = is_valid && is_writable && (source_found == source || source_found == ni_pkg::NODE_ANY) && key_found == key
        && !offset[64] && !rest[64] && {32'd0, length} <= rest[63:0];
    assign search_done = !busy && !search;

    always_ff @(posedge clk) begin
        window <= windows[next];
        is_valid <= valid[next];
        compared <= next;
        if (install) windows[index] <= {window_permissions, window_source, window_base, window_length, window_key};
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            valid <= '0;
            busy <= 1'b0;
            occupancy <= '0;
        end else begin
            if (install && !valid[index]) occupancy <= occupancy + 1'b1;
            if (remove && valid[index]) occupancy <= occupancy - 1'b1;
            if (install) valid[index] <= 1'b1;
            if (remove) valid[index] <= 1'b0;
            if (search) begin
                // The next cycle compares `probe`, the following ones all windows in order.
                busy <= 1'b1;
                first <= 1'b1;
                allowed <= 1'b0;
                position <= '0;
            end else if (busy) begin
                first <= 1'b0;
                position <= position + 1'b1;
                if (probe_allows) begin
                    allowed <= 1'b1;
                    allowed_index <= compared;
                    busy <= 1'b0;
                end else if (!first && compared == WINDOW_BITS'(MEMORY_WINDOWS - 1)) begin
                    busy <= 1'b0;
                end
            end
        end
    end
endmodule
