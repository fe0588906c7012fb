// Records of transfers in progress (docs/protocol/receiver.md 5.1).
//
// `index` selects the record that the `read_` ports show in the same cycle and that writes change with the clock edge. Search: see
// `ni_records`, for the transfer `id` of sender record `source`; without `source_known` it only finds the lowest unused record.
// `mark` records that segment `segment` is complete: the record keeps the lowest incomplete segment and a mask of the 256 segments from
// there on. It takes one cycle per segment by which the lowest one advances, and two more; `mark_done` is high when it has ended, and
// `read_done_base` is the new lowest one then. Reset and `clear`: no record is in use.

`timescale 1ns / 1ps

module ni_transfers #(
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    localparam int SOURCE_BITS = $clog2(SOURCES),
    localparam int TRANSFER_BITS = $clog2(TRANSFERS)
) (
    input  wire                      clk,
    input  wire                      rst_n,
    input  wire                      clear,
    input  wire                      search,
    input  wire                      source_known,
    input  wire  [SOURCE_BITS-1:0]   source,
    input  wire  [31:0]              id,
    output wire                      search_done,
    output wire                      found,
    output wire  [TRANSFER_BITS-1:0] found_index,
    output wire                      free,
    output wire  [TRANSFER_BITS-1:0] free_index,

    input  wire  [TRANSFER_BITS-1:0] index,
    output wire                      read_in_use,
    output wire  [SOURCE_BITS-1:0]   read_source,
    output wire  [31:0]              read_id,
    output wire  [31:0]              read_segment_count,
    output wire  [63:0]              read_base,
    output wire  [63:0]              read_length,
    // 0: no notification, 1: with the last packet, 2: with the ARRIVED packet.
    output wire  [1:0]               read_notice,
    output wire  [15:0]              read_registered,
    output wire                      read_awaits_notice,
    output wire                      read_awaits_slot,
    output wire  [63:0]              read_touched,
    output wire  [31:0]              read_done_base,
    // State of `segment` in the selected record: complete; within 256 of the lowest incomplete one, or below it.
    input  wire  [31:0]              segment,
    output wire                      segment_done,
    output wire                      segment_covered,

    // Makes the record that of `source` and `id`, without complete or registered segments.
    input  wire                      open,
    input  wire  [31:0]              open_segment_count,
    input  wire  [63:0]              open_base,
    input  wire  [63:0]              open_length,
    input  wire  [1:0]               open_notice,
    input  wire                      close,
    // Number of its segments in the registry.
    input  wire                      set_registered,
    input  wire  [15:0]              registered,
    input  wire                      touch,
    input  wire  [63:0]              touch_time,
    input  wire                      set_awaits_notice,
    input  wire                      set_awaits_slot,
    input  wire                      awaits_slot,
    input  wire                      mark,
    output wire                      mark_done
);
    localparam int FIELDS = 32 + 64 + 64 + 2;

    logic [TRANSFERS-1:0] notice_flags;
    logic [TRANSFERS-1:0] slot_flags;
    logic [FIELDS-1:0]    fields [0:TRANSFERS-1];
    logic [15:0]          registered_counts [0:TRANSFERS-1];
    logic [63:0]          times [0:TRANSFERS-1];
    logic [287:0]         done_masks [0:TRANSFERS-1];

    ni_records #(.RECORDS(TRANSFERS), .NAME(SOURCE_BITS + 32)) records (
        .clk, .rst_n, .clear, .name({source, id}), .search, .may_exist(source_known), .search_done, .found, .found_index, .free,
        .free_index, .index, .read_in_use, .read_name({read_source, read_id}), .open, .close
    );
    assign {read_segment_count, read_base, read_length, read_notice} = fields[index];
    assign read_registered = registered_counts[index];
    assign read_awaits_notice = notice_flags[index];
    assign read_awaits_slot = slot_flags[index];
    assign read_touched = times[index];

    wire [287:0] read_done = done_masks[index];
    wire [255:0] read_done_bits = read_done[255:0];
    assign read_done_base = read_done[287:256];
    wire [31:0] distance = segment - read_done_base;
    wire below = segment < read_done_base;
    assign segment_covered = below || distance[31:8] == 0;
    assign segment_done = below || (distance[31:8] == 0 && read_done_bits[distance[7:0]]);

    // A marked segment is added first; then the mask is shifted while its lowest segment is complete.
    logic         marking;
    logic         shifting;
    logic [31:0]  base;
    logic [255:0] bits;
    assign mark_done = !marking;
    wire store_mark = marking && shifting && !bits[0];

    always_ff @(posedge clk) begin
        if (open) fields[index] <= {open_segment_count, open_base, open_length, open_notice};
        if (open || set_registered) registered_counts[index] <= open ? 16'd0 : registered;
        if (open || touch) times[index] <= touch_time;
        if (open || store_mark) done_masks[index] <= open ? 288'd0 : {base, bits};
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            marking <= 1'b0;
        end else begin
            if (open) begin
                notice_flags[index] <= 1'b0;
                slot_flags[index] <= 1'b0;
            end
            if (set_awaits_notice) notice_flags[index] <= 1'b1;
            if (set_awaits_slot) slot_flags[index] <= awaits_slot;
            if (mark) begin
                marking <= 1'b1;
                shifting <= 1'b0;
                base <= read_done_base;
                bits <= read_done_bits;
            end else if (marking && !shifting) begin
                shifting <= 1'b1;
                if (!below && distance[31:8] == 0) bits[distance[7:0]] <= 1'b1;
            end else if (marking && bits[0]) begin
                base <= base + 1'b1;
                bits <= bits >> 1;
            end else begin
                marking <= 1'b0;
            end
        end
    end
endmodule
