// Receive registry: the operations in progress (docs/protocol/receiver.md 5.1).
//
// Lookup: `lookup_key` is compared in every cycle; `found` and `found_index` answer one cycle later, in which it must not change yet.
// `HASHED` selects how: every key at once (`ni_registry_cam`), or four of them (`ni_registry_hash`). Entries: `index` selects the entry
// that the `read_` ports show in the same cycle; while `show_found`, its fields from `read_base` to `read_window` are those of `found_index`.
// Writes take effect with the clock edge. `insert` uses entry `free_index`; callers check `has_free` first, which concerns `lookup_key`
// of the previous cycle. Reset: all entries are free and never used; `clear` does the same while the rest of the design runs.
//
// The mask has a read and write port of its own (`commit_`): packets are marked while the next one is examined.

`timescale 1ns / 1ps

module ni_registry #(
    parameter bit HASHED = 1'b0,
    parameter int ENTRIES = 64,
    parameter int MASK_BITS = 32,
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    parameter int MEMORY_WINDOWS = 64,
    localparam int ENTRY_BITS = $clog2(ENTRIES),
    localparam int SOURCE_BITS = $clog2(SOURCES),
    localparam int TRANSFER_BITS = $clog2(TRANSFERS),
    localparam int WINDOW_BITS = $clog2(MEMORY_WINDOWS)
) (
    input  wire                       clk,
    input  wire                       rst_n,
    input  wire                       clear,
    // Source, incarnation, transfer and segment, as in bits 0 to 127.
    input  wire  [127:0]              lookup_key,
    output wire                       found,
    output wire  [ENTRY_BITS-1:0]     found_index,

    input  wire  [ENTRY_BITS-1:0]     index,
    input  wire                       show_found,
    output wire                       read_live,
    output wire  [127:0]              read_key,
    output wire  [63:0]               read_base,
    output wire  [31:0]               read_length,
    output wire  [31:0]               read_segment_count,
    output wire  [8:0]                read_packets,
    output wire                       read_silent,
    output wire                       read_notify,
    output wire  [SOURCE_BITS-1:0]    read_source,
    output wire  [TRANSFER_BITS-1:0]  read_transfer,
    output wire  [WINDOW_BITS-1:0]    read_window,
    output wire  [MASK_BITS-1:0]      read_mask,
    output wire  [63:0]               read_touched,
    output wire  [31:0]               read_generation,

    // New entry: `lookup_key` with these fields, touched at `touch_time`.
    input  wire                       insert,
    input  wire  [63:0]               insert_base,
    input  wire  [31:0]               insert_length,
    input  wire  [31:0]               insert_segment_count,
    input  wire  [8:0]                insert_packets,
    input  wire                       insert_silent,
    input  wire                       insert_notify,
    input  wire  [SOURCE_BITS-1:0]    insert_source,
    input  wire  [TRANSFER_BITS-1:0]  insert_transfer,
    input  wire  [MASK_BITS-1:0]      insert_mask,
    output wire  [ENTRY_BITS-1:0]     free_index,
    output wire                       has_free,
    // Frees entry `index`.
    input  wire                       remove,
    // Time of the last packet, and the window that allowed it, of entry `index`.
    input  wire                       touch,
    input  wire  [63:0]               touch_time,
    input  wire                       set_window,
    input  wire  [WINDOW_BITS-1:0]    window,

    // Mask of entry `commit_index`; `commit` replaces it and the time of the last packet.
    input  wire  [ENTRY_BITS-1:0]     commit_index,
    output wire  [MASK_BITS-1:0]      commit_mask,
    output wire  [31:0]               commit_generation,
    input  wire                       commit,
    input  wire  [MASK_BITS-1:0]      commit_new_mask,
    input  wire  [63:0]               commit_time,

    output wire  [ENTRY_BITS:0]       occupancy
);
    localparam int FIELDS = 64 + 32 + 32 + 9 + 2 + SOURCE_BITS + TRANSFER_BITS;

    wire  [ENTRIES-1:0] live;
    // Entries that were used since reset.
    wire  [ENTRIES-1:0] used;

    logic [127:0]            keys [0:ENTRIES-1];
    logic [FIELDS-1:0]       fields [0:ENTRIES-1];
    logic [WINDOW_BITS-1:0]  windows [0:ENTRIES-1];
    logic [MASK_BITS-1:0]    masks [0:ENTRIES-1];
    logic [63:0]             times [0:ENTRIES-1];
    logic [31:0]             generations [0:ENTRIES-1];

    if (HASHED) begin : g_hash
        ni_registry_hash #(.ENTRIES(ENTRIES)) keys_of_entries (
            .clk, .rst_n, .clear, .lookup_key, .found, .found_index, .insert, .free_index, .has_free, .remove, .index, .live, .used, .occupancy
        );
    end else begin : g_cam
        ni_registry_cam #(.ENTRIES(ENTRIES)) keys_of_entries (
            .clk, .rst_n, .clear, .lookup_key, .found, .found_index, .insert, .free_index, .has_free, .remove, .index, .live, .used, .occupancy
        );
    end

    wire [ENTRY_BITS-1:0] shown = show_found ? found_index : index;
    assign read_live = live[index];
    assign read_key = keys[index];
    assign {read_base, read_length, read_segment_count, read_packets, read_silent, read_notify, read_source, read_transfer} = fields[shown];
    assign read_window = windows[shown];
    assign read_mask = masks[index];
    assign read_touched = times[index];
    // An entry that was never used has generation 0, although its memory is not cleared.
    assign read_generation = used[index] ? generations[index] : 32'd0;
    assign commit_mask = masks[commit_index];
    assign commit_generation = generations[commit_index];

    // One write port per memory: the caller does not use two of these at once.
    wire [ENTRY_BITS-1:0] mask_index = commit ? commit_index : free_index;
    wire [ENTRY_BITS-1:0] time_index = commit ? commit_index : insert ? free_index : index;
    wire [ENTRY_BITS-1:0] window_index = insert ? free_index : index;
    wire [31:0] old_generation = used[free_index] ? generations[free_index] : 32'd0;

    always_ff @(posedge clk) begin
        if (insert) begin
            keys[free_index] <= lookup_key;
            fields[free_index] <= {insert_base, insert_length, insert_segment_count, insert_packets, insert_silent, insert_notify,
                insert_source, insert_transfer};
            generations[free_index] <= old_generation + 1'b1;
        end
        if (commit || insert) masks[mask_index] <= commit ? commit_new_mask : insert_mask;
        if (commit || insert || touch) times[time_index] <= commit ? commit_time : touch_time;
        if (insert || set_window) windows[window_index] <= insert ? '0 : window;
    end
endmodule
