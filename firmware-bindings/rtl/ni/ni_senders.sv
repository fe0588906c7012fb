// Records of sending nodes, one per incarnation (docs/protocol/receiver.md 5.1).
//
// `index` selects the record that the `read_` ports show in the same cycle and that writes change with the clock edge. Search by `name`: see
// `ni_records`. Reset and `clear`: no record is in use.

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
    output wire                    found,
    output wire  [SOURCE_BITS-1:0] found_index,
    output wire                    free,
    output wire  [SOURCE_BITS-1:0] free_index,

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
    input  wire  [15:0]            announced,
    // Number of senders with transfers in progress.
    output logic [15:0]            active
);
    logic [31:0] oldest [0:SOURCES-1];
    logic [15:0] transfer_counts [0:SOURCES-1];
    logic [15:0] announced_counts [0:SOURCES-1];
    logic [63:0] times [0:SOURCES-1];

    ni_records #(.RECORDS(SOURCES), .NAME(64)) records (
        .clk, .rst_n, .clear, .name, .search, .may_exist(1'b1), .search_done, .found, .found_index, .free, .free_index,
        .index, .read_in_use, .read_name, .open, .close
    );
    assign read_oldest_live = oldest[index];
    assign read_transfers = transfer_counts[index];
    assign read_announced = announced_counts[index];
    assign read_touched = times[index];

    always_ff @(posedge clk) begin
        if (open || set_oldest_live) oldest[index] <= oldest_live;
        if (open || set_transfers) transfer_counts[index] <= open ? 16'd0 : transfers;
        if (open || set_announced) announced_counts[index] <= open ? 16'd0 : announced;
        if (open || touch) times[index] <= touch_time;
        if (!rst_n || clear) begin
            active <= '0;
        end else begin
            if (set_transfers && read_transfers == 0) active <= active + 1'b1;
            if (set_transfers && transfers == 0) active <= active - 1'b1;
        end
    end
endmodule
