// Fault log with its shadow window (block fault_log), and reports of faults as events: at most one unconsumed event per reason, so that
// faults cannot fill the event ring (docs/protocol/interface.md, 10.4: Fault, and 10.5).
//
// Protocol: `fault_*` takes the event that describes a fault; the log keeps its fields. Unless its reason is EventLost or EventWrite, which
// the event ring reports itself, it is also an event: passed to `report_*` if the host has consumed the last one of its reason
// (`report_number` is the running number that it gets), otherwise counted. When the host has written EVENT_CONSUMED, the last counted
// fault of each reason is reported with the number of the others in GENERATION. `latch` takes the fault of age `latch_index` into the
// shadow words, which `window_word` shows.
//
// Latency: `fault_ready` in the cycle of `fault_valid`, but for events that wait for the queue, and 9 cycles after EVENT_CONSUMED; shadow
// words 1 cycle after `latch`. Order: faults in order; counted ones by reason, before later ones. Reset: log empty, nothing counted. A
// restart of the event ring clears the counted faults, not the log.

`timescale 1ns / 1ps

module ni_faults #(
    // Power of two.
    parameter int ENTRIES = 64
) (
    input  wire          clk,
    input  wire          rst_n,

    input  wire          fault_valid,
    output wire          fault_ready,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire  [511:0] fault_event,
    /* verilator lint_on UNUSEDSIGNAL */

    // Event ring.
    input  wire          enable,
    input  wire          restarted,
    input  wire          consumed_written,
    input  wire  [31:0]  ring_consumed,
    output wire          report_valid,
    input  wire          report_ready,
    output logic [511:0] report_event,
    input  wire  [31:0]  report_number,

    // Block fault_log.
    input  wire          latch,
    input  wire  [31:0]  latch_index,
    input  wire  [11:0]  window_register,
    output logic [31:0]  window_word,
    output wire          has_faults
);
    localparam int INDEX = $clog2(ENTRIES);
    // Reasons are 1 to 9.
    localparam int REASONS = 16;
    localparam int LAST_REASON = 9;

    wire [7:0] fault_reason = fault_event[ni_pkg::EVENT_REASON_LSB+:ni_pkg::EVENT_REASON_WIDTH];
    wire is_logged_only = !enable || fault_reason == ni_pkg::FAULT_REASON_EVENT_LOST || fault_reason == ni_pkg::FAULT_REASON_EVENT_WRITE;

    // Reports. -----------------------------------------------------------------------------------------------------------------------------

    // For each reason: whether an event was reported, and its running number; whether faults were counted since, how many, and the last.
    logic [REASONS-1:0] reported;
    logic [REASONS-1:0] counted;
    logic [31:0] number_of [0:REASONS-1];
    logic [31:0] count_of [0:REASONS-1];
    logic [511:0] last_of [0:REASONS-1];

    // Counted faults are reported by reason, after a write to EVENT_CONSUMED.
    logic scanning;
    logic [3:0] scanned;

    wire [3:0] reason = scanning ? scanned : fault_reason[3:0];
    // The counts wrap: a number that is not consumed is ahead of the count.
    wire is_unconsumed = reported[reason] && $signed(ring_consumed - number_of[reason]) < 0;
    wire [31:0] count = counted[reason] ? count_of[reason] : 32'd0;

    wire scan_reports = scanning && counted[reason] && !is_unconsumed && enable;
    wire scan_next = scanning && (!scan_reports || report_ready);
    wire fault_reports = !scanning && fault_valid && !is_logged_only && !is_unconsumed;
    wire fault_counts = !scanning && fault_valid && !is_logged_only && is_unconsumed;

    assign report_valid = (scan_reports || (fault_reports && !consumed_written)) && !restarted;
    assign fault_ready = !scanning && !consumed_written && !restarted && (!fault_reports || report_ready);
    wire taken = fault_valid && fault_ready;

    always_comb begin
        report_event = scanning ? last_of[reason] : fault_event;
        if (scanning) report_event[ni_pkg::EVENT_GENERATION_LSB+:ni_pkg::EVENT_GENERATION_WIDTH] = count - 1'b1;
    end

    always_ff @(posedge clk) begin
        if (!rst_n || restarted) begin
            reported <= '0;
            counted <= '0;
            scanning <= 1'b0;
        end else begin
            if (consumed_written) begin
                scanning <= enable;
                scanned <= 4'd1;
            end else if (scan_next) begin
                scanned <= scanned + 1'b1;
                if (scanned == 4'(LAST_REASON)) scanning <= 1'b0;
            end
            if (report_valid && report_ready) begin
                reported[reason] <= 1'b1;
                if (scanning) counted[reason] <= 1'b0;
            end
            if (fault_counts && taken) counted[reason] <= 1'b1;
        end
        if (report_valid && report_ready) number_of[reason] <= report_number;
        if (fault_counts && taken) begin
            count_of[reason] <= (count == '1) ? count : count + 1'b1;
            last_of[reason] <= fault_event;
        end
    end

    // Log. ---------------------------------------------------------------------------------------------------------------------------------

    // Reason, window, node, transfer, segment, detail, address, length, time.
    localparam int ENTRY = 8 + 16 + 4 * 32 + 3 * 64;
    logic [ENTRY-1:0] log [0:ENTRIES-1];
    logic [INDEX-1:0] next;
    logic [INDEX:0] level;
    logic [31:0] total;
    logic [31:0] index;
    logic shadow_valid;
    logic [ENTRY-1:0] shadow;

    assign has_faults = level != 0;
    wire [INDEX-1:0] latched = next - 1'b1 - latch_index[INDEX-1:0];

    always_ff @(posedge clk) begin
        if (taken)
            log[next] <= {
                fault_event[ni_pkg::EVENT_TIME_LSB+:64],
                fault_event[ni_pkg::EVENT_LENGTH_LSB+:64],
                fault_event[ni_pkg::EVENT_ADDRESS_LSB+:64],
                fault_event[ni_pkg::EVENT_COUNT_LSB+:32],
                fault_event[ni_pkg::EVENT_SEGMENT_LSB+:32],
                fault_event[ni_pkg::EVENT_TRANSFER_LSB+:32],
                fault_event[ni_pkg::EVENT_NODE_LSB+:32],
                fault_event[ni_pkg::EVENT_INDEX_LSB+:16],
                fault_reason
            };
        if (latch) shadow <= log[latched];
        if (!rst_n) begin
            next <= '0;
            level <= '0;
            total <= '0;
            index <= '0;
            shadow_valid <= 1'b0;
        end else begin
            if (taken) begin
                next <= next + 1'b1;
                total <= total + 1'b1;
                if (!level[INDEX]) level <= level + 1'b1;
            end
            if (latch) begin
                index <= latch_index;
                shadow_valid <= latch_index < {{(31 - INDEX){1'b0}}, level};
            end
        end
    end

    wire [31:0] shadow_reason = {24'b0, shadow[7:0]};
    wire [31:0] shadow_window = {16'b0, shadow[23:8]};
    wire [31:0] shadow_node = shadow[55:24];
    wire [31:0] shadow_transfer = shadow[87:56];
    wire [31:0] shadow_segment = shadow[119:88];
    wire [31:0] shadow_detail = shadow[151:120];
    wire [31:0] shadow_address_low = shadow[183:152];
    wire [31:0] shadow_address_high = shadow[215:184];
    wire [31:0] shadow_length_low = shadow[247:216];
    wire [31:0] shadow_length_high = shadow[279:248];
    wire [31:0] shadow_time_low = shadow[311:280];
    wire [31:0] shadow_time_high = shadow[343:312];
    logic [31:0] shadow_word;
    always_comb begin
        case (window_register)
            ni_pkg::REG_FAULT_LOG_VALID: shadow_word = 32'd1;
            ni_pkg::REG_FAULT_LOG_REASON: shadow_word = shadow_reason;
            ni_pkg::REG_FAULT_LOG_WINDOW: shadow_word = shadow_window;
            ni_pkg::REG_FAULT_LOG_NODE: shadow_word = shadow_node;
            ni_pkg::REG_FAULT_LOG_TRANSFER: shadow_word = shadow_transfer;
            ni_pkg::REG_FAULT_LOG_SEGMENT: shadow_word = shadow_segment;
            ni_pkg::REG_FAULT_LOG_DETAIL: shadow_word = shadow_detail;
            ni_pkg::REG_FAULT_LOG_ADDRESS_LOW: shadow_word = shadow_address_low;
            ni_pkg::REG_FAULT_LOG_ADDRESS_HIGH: shadow_word = shadow_address_high;
            ni_pkg::REG_FAULT_LOG_LENGTH_LOW: shadow_word = shadow_length_low;
            ni_pkg::REG_FAULT_LOG_LENGTH_HIGH: shadow_word = shadow_length_high;
            ni_pkg::REG_FAULT_LOG_TIME_LOW: shadow_word = shadow_time_low;
            ni_pkg::REG_FAULT_LOG_TIME_HIGH: shadow_word = shadow_time_high;
            default: shadow_word = '0;
        endcase
        case (window_register)
            ni_pkg::REG_FAULT_LOG_INDEX: window_word = index;
            ni_pkg::REG_FAULT_LOG_COUNT: window_word = total;
            default: window_word = shadow_valid ? shadow_word : '0;
        endcase
    end
endmodule
