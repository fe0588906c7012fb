// Receive contexts of messages: identity and announcement of the message in progress in each of them (docs/protocol/messages.md 7.1).
//
// All read outputs are those of context `index`, in the same cycle. `insert` begins a message in context `index` with the announcement of the
// inputs, and takes the context; `remove` frees it. `free_index` is the context for the next message: the one freed last, otherwise the
// lowest unused one. At most one of insert and remove per cycle. The other writes concern context `index`, too: `set_window` (memory
// window that allowed the last packet), `set_paths`. Reset and `clear`: all contexts are free, generations and paths are 0.

`timescale 1ns / 1ps

module ni_message_contexts #(
    // Power of two.
    parameter int CONTEXTS = 64,
    parameter int PEER_BITS = 10,
    parameter int WINDOW_BITS = 6,
    localparam int SLOT_BITS = $clog2(CONTEXTS)
) (
    input  wire                   clk,
    input  wire                   rst_n,
    input  wire                   clear,
    input  wire  [SLOT_BITS-1:0]  index,
    output wire                   is_live,
    output wire  [95:0]           name,
    output wire  [63:0]           base,
    output wire  [31:0]           length,
    output wire  [12:0]           count,
    output wire  [63:0]           key,
    output wire  [31:0]           transfer,
    output wire  [63:0]           transfer_base,
    output wire  [63:0]           transfer_length,
    output wire  [31:0]           read_number,
    output wire  [31:0]           left,
    output wire                   notifies,
    output wire  [PEER_BITS-1:0]  peer,
    output wire  [WINDOW_BITS-1:0] window,
    output wire  [31:0]           paths,
    output wire  [31:0]           generation,

    input  wire                   insert,
    // Message, incarnation, source.
    input  wire  [95:0]           new_name,
    input  wire  [63:0]           new_base,
    input  wire  [31:0]           new_length,
    input  wire  [12:0]           new_count,
    input  wire  [63:0]           new_key,
    input  wire  [31:0]           new_transfer,
    input  wire  [63:0]           new_transfer_base,
    input  wire  [63:0]           new_transfer_length,
    input  wire  [31:0]           new_read_number,
    input  wire  [31:0]           new_left,
    input  wire                   new_notifies,
    input  wire  [PEER_BITS-1:0]  new_peer,
    input  wire                   remove,
    input  wire                   set_window,
    input  wire  [WINDOW_BITS-1:0] new_window,
    input  wire                   set_paths,
    input  wire  [31:0]           new_paths,

    output wire  [SLOT_BITS-1:0]  free_index,
    output wire                   has_free,
    output logic [CONTEXTS-1:0]   live,
    output logic [SLOT_BITS:0]    occupancy,
    output logic [SLOT_BITS:0]    high_water
);
    localparam int WIDTH = 96 + 64 + 32 + 13 + 64 + 32 + 64 + 64 + 32 + 32 + 1 + PEER_BITS;

    logic [WIDTH-1:0]       records [0:CONTEXTS-1];
    logic [WINDOW_BITS-1:0] windows [0:CONTEXTS-1];
    logic [31:0]            all_paths [0:CONTEXTS-1];
    logic [31:0]            generations [0:CONTEXTS-1];
    // Contexts whose paths and generation were written.
    logic [CONTEXTS-1:0]    used;

    assign {peer, notifies, left, read_number, transfer_length, transfer_base, transfer, key, count, length, base, name} = records[index];
    assign is_live = live[index];
    assign window = windows[index];
    assign paths = used[index] ? all_paths[index] : 32'd0;
    assign generation = used[index] ? generations[index] : 32'd0;

    // Freed contexts, the last one on top, and number of contexts that were ever taken.
    logic [SLOT_BITS-1:0] released [0:CONTEXTS-1];
    logic [SLOT_BITS:0]   released_count;
    logic [SLOT_BITS:0]   used_count;
    wire  [SLOT_BITS-1:0] top = released_count[SLOT_BITS-1:0] - 1'b1;
    wire  recycle = released_count != 0;
    assign free_index = recycle ? released[top] : used_count[SLOT_BITS-1:0];
    assign has_free = recycle || !used_count[SLOT_BITS];

    always_ff @(posedge clk) begin
        if (insert) begin
            records[index] <= {new_peer, new_notifies, new_left, new_read_number, new_transfer_length, new_transfer_base, new_transfer,
                new_key, new_count, new_length, new_base, new_name};
            generations[index] <= generation + 1'b1;
        end
        if (insert || set_window) windows[index] <= new_window;
        if (insert || set_paths) all_paths[index] <= insert ? paths : new_paths;
        if (remove) released[released_count[SLOT_BITS-1:0]] <= index;
    end

    always_ff @(posedge clk) begin
        if (insert) begin
            live[index] <= 1'b1;
            used[index] <= 1'b1;
            if (recycle) released_count <= released_count - 1'b1;
            else used_count <= used_count + 1'b1;
            occupancy <= occupancy + 1'b1;
            if (occupancy >= high_water) high_water <= occupancy + 1'b1;
        end
        if (remove) begin
            live[index] <= 1'b0;
            released_count <= released_count + 1'b1;
            occupancy <= occupancy - 1'b1;
        end
        if (!rst_n || clear) begin
            live <= '0;
            used <= '0;
            released_count <= '0;
            used_count <= '0;
            occupancy <= '0;
            high_water <= '0;
        end
    end
endmodule
