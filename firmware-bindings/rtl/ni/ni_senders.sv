// Records of sending nodes, one per incarnation (docs/protocol/receiver.md 5.1).
//
// `index` selects the record that the `read_` ports show in the same cycle and that writes change with the clock edge. Search: a pulse of
// `search` compares the records in ascending order with `name`, one per cycle; `search_done` is high when no search runs, and `found`,
// `found_index`, `free` and `free_index` (the lowest unused record) hold from then until the next search. During a search the `read_`
// ports show the record that is compared. Reset and `clear`: no record is in use.

`timescale 1ns / 1ps

module ni_senders #(
    parameter int SOURCES = 64,
    localparam int SOURCE_BITS = $clog2(SOURCES)
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire                    clear,
    // Node in bits 31:0, incarnation in bits 63:32.
    input  wire  [63:0]            name,
    input  wire                    search,
    output wire                    search_done,
    output logic                   found,
    output logic [SOURCE_BITS-1:0] found_index,
    output logic                   free,
    output logic [SOURCE_BITS-1:0] free_index,

    input  wire  [SOURCE_BITS-1:0] index,
    output wire                    read_in_use,
    output wire  [63:0]            read_name,
    output wire  [31:0]            read_oldest_live,
    output wire  [15:0]            read_transfers,
    output wire  [15:0]            read_announced,
    output wire  [63:0]            read_touched,

    // Makes the record that of `name`, without transfers.
    input  wire                    open,
    input  wire                    close,
    input  wire                    set_oldest_live,
    input  wire  [31:0]            oldest_live,
    input  wire                    touch,
    input  wire  [63:0]            touch_time,
    // Numbers of transfers in progress, and of those that await the sender's ARRIVED packet.
    input  wire                    set_transfers,
    input  wire  [15:0]            transfers,
    input  wire                    set_announced,
    input  wire  [15:0]            announced
);
    logic [SOURCES-1:0] in_use;
    logic [63:0] names [0:SOURCES-1];
    logic [31:0] oldest [0:SOURCES-1];
    logic [15:0] transfer_counts [0:SOURCES-1];
    logic [15:0] announced_counts [0:SOURCES-1];
    logic [63:0] times [0:SOURCES-1];

    logic                   busy;
    logic [SOURCE_BITS-1:0] position;
    wire  [SOURCE_BITS-1:0] selected = busy ? position : index;

    assign search_done = !busy;
    assign read_in_use = in_use[selected];
    assign read_name = names[selected];
    assign read_oldest_live = oldest[selected];
    assign read_transfers = transfer_counts[selected];
    assign read_announced = announced_counts[selected];
    assign read_touched = times[selected];

    always_ff @(posedge clk) begin
        if (open) names[index] <= name;
        if (open || set_oldest_live) oldest[index] <= oldest_live;
        if (open || set_transfers) transfer_counts[index] <= open ? 16'd0 : transfers;
        if (open || set_announced) announced_counts[index] <= open ? 16'd0 : announced;
        if (open || touch) times[index] <= touch_time;
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            in_use <= '0;
            busy <= 1'b0;
        end else begin
            if (open) in_use[index] <= 1'b1;
            if (close) in_use[index] <= 1'b0;
            if (search) begin
                busy <= 1'b1;
                position <= '0;
                found <= 1'b0;
                free <= 1'b0;
            end else if (busy) begin
                position <= position + 1'b1;
                if (read_in_use && read_name == name) begin
                    found <= 1'b1;
                    found_index <= position;
                    busy <= 1'b0;
                end
                if (!read_in_use && !free) begin
                    free <= 1'b1;
                    free_index <= position;
                end
                if (position == SOURCE_BITS'(SOURCES - 1)) busy <= 1'b0;
            end
        end
    end
endmodule
