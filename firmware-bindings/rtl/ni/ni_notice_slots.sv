// Slots of the event ring for notices (docs/protocol/receiver.md 5.8): whether a transfer that notifies may begin or end.
//
// `open` and `close` report transfers that notify; `reserve` reserves a slot for a transfer that awaits its ARRIVED packet, until
// `close_reserved`. The outputs are combinational. They count when `settled` is high: the events reported so far have left.
// Reset and `clear`: no transfer.

`timescale 1ns / 1ps

module ni_notice_slots #(
    parameter int TRANSFERS = 128
) (
    input  wire        clk,
    input  wire        rst_n,
    input  wire        clear,
    // Free slots after all events that have left; all ones: unlimited.
    input  wire [31:0] slots,
    input  wire        events_quiet,
    input  wire        open,
    input  wire        close,
    input  wire        reserve,
    input  wire        close_reserved,
    output wire        settled,
    output wire        has_slot,
    // A further transfer that notifies may begin: those without a slot occupy at most half of the records.
    output wire        admits
);
    localparam logic [31:0] UNLIMITED = 32'hFFFF_FFFF;

    // Transfers in progress that notify; those of them that have a reserved slot.
    logic [15:0] notifying;
    logic [15:0] reserved;

    wire is_unlimited = slots == UNLIMITED;
    wire [31:0] wide_reserved = {16'd0, reserved};
    wire [31:0] free_slots = is_unlimited ? UNLIMITED : slots > wide_reserved ? slots - wide_reserved : 32'd0;
    wire [31:0] uncovered = {16'd0, notifying - reserved} + 32'd1;
    assign settled = is_unlimited || events_quiet;
    assign has_slot = free_slots != 0;
    assign admits = uncovered <= free_slots || uncovered - free_slots <= 32'(TRANSFERS / 2);

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            notifying <= '0;
            reserved <= '0;
        end else begin
            if (open) notifying <= notifying + 1'b1;
            if (close) notifying <= notifying - 1'b1;
            if (reserve) reserved <= reserved + 1'b1;
            if (close_reserved) reserved <= reserved - 1'b1;
        end
    end
endmodule
