// Event ring in card memory: registers, shares of the ring, writes (docs/protocol/interface.md, 10.4 and 10.5).
//
// Protocol: `event_*` takes events of all kinds in the layout `event`, with SEQUENCE 0; `event_number` is the running number of the event
// that is taken in this cycle. Without a ring (`enable` low) events are taken and ignored. `event_write_*` goes to ni_write, which answers
// with one pulse per event, in order. The host's registers are written by `ring_write`; `ring_taken` tells in the same cycle whether the
// value is valid. `clear` (CONTROL.RESET) and a rising `enable` start again with all counts at 0; `restarted` tells the fault log.
//
// Shares: *held* events are those that are taken and not consumed. Events of tables are dropped while a quarter of the ring is held, and
// from then on until the host has consumed the Dropped event that reports it; `notice_slots` is the rest of the half that notices may
// fill, all ones for a ring without shares. An event that finds the whole ring full when it is written is lost, and reported by a Fault
// EventLost as soon as there is space. A full queue lowers `event_ready`; nothing is lost there.
//
// Latency: 2 cycles from an event to its write; EVENT_PRODUCED counts it when the memory has answered. Order: that of the input. Reset:
// all registers. Responses to writes from before a restart are expected and not counted.

`timescale 1ns / 1ps

module ni_events #(
    // Events that wait to be written. Power of two.
    parameter int QUEUE = 16
) (
    input  wire          clk,
    input  wire          rst_n,
    input  wire  [63:0]  now,
    input  wire          enable,
    input  wire          clear,

    input  wire          ring_write,
    input  wire  [11:0]  ring_register,
    input  wire  [31:0]  ring_value,
    output logic         ring_taken,
    output logic [63:0]  ring_base,
    output logic [16:0]  ring_size,
    output logic [31:0]  ring_consumed,
    output logic [31:0]  ring_produced,
    output logic [31:0]  ring_posted,
    output logic [31:0]  ring_overflows,
    output logic [31:0]  ring_dropped,
    output logic [31:0]  ring_interrupt,
    output wire          restarted,
    // EVENT_CONSUMED was written.
    output logic         consumed_written,

    input  wire          event_valid,
    output wire          event_ready,
    input  wire  [511:0] event_data,
    output wire  [31:0]  event_number,
    output wire  [16:0]  notice_slots,

    output logic         event_write_valid,
    input  wire          event_write_ready,
    output logic [63:0]  event_write_address,
    output logic [511:0] event_write_data,
    input  wire          event_write_done,
    input  wire          event_write_error,

    // Faults of the ring itself, for the fault log.
    output wire          ring_fault_valid,
    input  wire          ring_fault_ready,
    output wire  [511:0] ring_fault_event,

    // User interrupt requests: a level, high while events are not consumed.
    output logic [15:0]  usr_irq_req
);
    // Registers of the ring. ----------------------------------------------------------------------------------------------------------------

    wire is_power_of_two = ring_value != 0 && (ring_value & (ring_value - 1'b1)) == 0;
    wire is_count = ring_produced - ring_value <= ring_produced - ring_consumed;

    wire is_aligned = ring_value[5:0] == 0;

    always_comb begin
        case (ring_register)
            ni_pkg::REG_NI_EVENT_RING_BASE_LOW: ring_taken = !enable && is_aligned;
            ni_pkg::REG_NI_EVENT_RING_BASE_HIGH: ring_taken = !enable;
            ni_pkg::REG_NI_EVENT_RING_SIZE:
            ring_taken = !enable && is_power_of_two && ring_value <= ni_pkg::EVENT_RING_ENTRIES_MAX;
            // The count may neither exceed what was written nor decrease.
            ni_pkg::REG_NI_EVENT_CONSUMED: ring_taken = is_count;
            ni_pkg::REG_NI_EVENT_INTERRUPT: ring_taken = 1'b1;
            default: ring_taken = 1'b0;
        endcase
    end

    wire take = ring_write && ring_taken;

    // Whether the ring is in use; follows `enable`.
    logic enabled;
    wire restart = clear || (enable && !enabled);
    assign restarted = restart;

    always_ff @(posedge clk) begin
        consumed_written <= rst_n && take && ring_register == ni_pkg::REG_NI_EVENT_CONSUMED;
        if (!rst_n) begin
            enabled <= 1'b0;
            ring_base <= '0;
            ring_size <= '0;
            ring_consumed <= '0;
            ring_interrupt <= '0;
        end else begin
            enabled <= enable;
            if (restart) ring_consumed <= '0;
            else if (take && ring_register == ni_pkg::REG_NI_EVENT_CONSUMED) ring_consumed <= ring_value;
            if (take && ring_register == ni_pkg::REG_NI_EVENT_RING_BASE_LOW) ring_base[31:0] <= ring_value;
            if (take && ring_register == ni_pkg::REG_NI_EVENT_RING_BASE_HIGH) ring_base[63:32] <= ring_value;
            if (take && ring_register == ni_pkg::REG_NI_EVENT_RING_SIZE) ring_size <= ring_value[16:0];
            if (take && ring_register == ni_pkg::REG_NI_EVENT_INTERRUPT) begin
                ring_interrupt[ni_pkg::REG_NI_EVENT_INTERRUPT_ENABLE_LSB] <= ring_value[ni_pkg::REG_NI_EVENT_INTERRUPT_ENABLE_LSB];
                ring_interrupt[ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_LSB+:ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_WIDTH] <=
                    ring_value[ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_LSB+:ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_WIDTH];
            end
        end
    end

    wire [3:0] interrupt_line = ring_interrupt[ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_LSB+:ni_pkg::REG_NI_EVENT_INTERRUPT_LINE_WIDTH];
    always_ff @(posedge clk) begin
        usr_irq_req <= '0;
        if (rst_n && ring_interrupt[ni_pkg::REG_NI_EVENT_INTERRUPT_ENABLE_LSB] && ring_produced != ring_consumed)
            usr_irq_req[interrupt_line] <= 1'b1;
    end

    // Take events into the queue, or drop them (10.5). -------------------------------------------------------------------------------------

    wire [31:0] held = ring_posted - ring_consumed;
    wire is_divided = enabled && {15'b0, ring_size} >= ni_pkg::EVENT_RING_ENTRIES_MIN;
    wire has_table_credit = !is_divided || held < {17'b0, ring_size[16:2]};
    wire [31:0] half = {16'b0, ring_size[16:1]};
    wire [16:0] half_free = 17'(half - held);
    assign notice_slots = !is_divided ? '1 : (held < half) ? half_free : '0;

    wire [7:0] kind = event_data[ni_pkg::EVENT_KIND_LSB+:ni_pkg::EVENT_KIND_WIDTH];
    wire is_of_table = kind == ni_pkg::EVENT_KIND_REGISTERED || kind == ni_pkg::EVENT_KIND_PACKET ||
        kind == ni_pkg::EVENT_KIND_COMPLETED || kind == ni_pkg::EVENT_KIND_EXPIRED || kind == ni_pkg::EVENT_KIND_ESCAPED ||
        kind == ni_pkg::EVENT_KIND_ESCAPE_RELEASED;

    // A Dropped event is not consumed yet; its running number.
    logic dropping;
    logic [31:0] dropped_number;
    // The counts wrap: a number that is not consumed is ahead of the count.
    wire is_dropping = dropping && $signed(ring_consumed - dropped_number) < 0;
    wire is_dropped = is_of_table && (is_dropping || !has_table_credit);
    wire reports_drop = is_dropped && !is_dropping;

    wire [63:0] event_time = event_data[ni_pkg::EVENT_TIME_LSB+:ni_pkg::EVENT_TIME_WIDTH];
    logic [511:0] dropped_event;
    always_comb begin
        dropped_event = '0;
        dropped_event[ni_pkg::EVENT_KIND_LSB+:ni_pkg::EVENT_KIND_WIDTH] = ni_pkg::EVENT_KIND_DROPPED;
        dropped_event[ni_pkg::EVENT_COUNT_LSB+:ni_pkg::EVENT_COUNT_WIDTH] = ring_dropped;
        dropped_event[ni_pkg::EVENT_TIME_LSB+:ni_pkg::EVENT_TIME_WIDTH] = event_time;
    end

    wire queue_ready;
    wire queue_valid;
    wire queue_pop;
    wire [511:0] queue_data;
    wire taken = event_valid && event_ready;
    wire push = taken && enabled && (!is_dropped || reports_drop);
    assign event_ready = !restart && (!enabled || queue_ready);
    assign event_number = ring_posted + 1'b1;

    wire flush = restart || !enable;
    ni_fifo #(
        .WIDTH(512),
        .DEPTH(QUEUE)
    ) queue (
        .clk(clk),
        .rst_n(rst_n && !flush),
        .in_valid(push),
        .in_ready(queue_ready),
        .in_data(is_dropped ? dropped_event : event_data),
        .out_valid(queue_valid),
        .out_ready(queue_pop),
        .out_data(queue_data),
        /* verilator lint_off PINCONNECTEMPTY */
        .level()
        /* verilator lint_on PINCONNECTEMPTY */
    );

    // Write events. ------------------------------------------------------------------------------------------------------------------------

    // Events given to ni_write since the restart, and the last sequence number.
    logic [31:0] issued;
    logic [31:0] sequence_number;
    // Events that were lost since the last report.
    logic [31:0] unreported;

    wire has_space = issued - ring_consumed < {15'b0, ring_size};
    wire can_write = enabled && !flush && (!event_write_valid || event_write_ready);
    wire report_lost = can_write && unreported != 0 && has_space;
    assign queue_pop = can_write && !report_lost;
    wire write_event = queue_pop && queue_valid && has_space;
    wire lose_event = queue_pop && queue_valid && !has_space;
    wire [31:0] next_sequence = (sequence_number == '1) ? 32'd1 : sequence_number + 1'b1;

    logic [511:0] lost_event;
    always_comb begin
        lost_event = '0;
        lost_event[ni_pkg::EVENT_KIND_LSB+:ni_pkg::EVENT_KIND_WIDTH] = ni_pkg::EVENT_KIND_FAULT;
        lost_event[ni_pkg::EVENT_REASON_LSB+:ni_pkg::EVENT_REASON_WIDTH] = ni_pkg::FAULT_REASON_EVENT_LOST;
        lost_event[ni_pkg::EVENT_COUNT_LSB+:ni_pkg::EVENT_COUNT_WIDTH] = unreported;
        lost_event[ni_pkg::EVENT_TIME_LSB+:ni_pkg::EVENT_TIME_WIDTH] = now;
    end

    // Responses to writes from before the last restart that have not arrived.
    logic [7:0] stale;
    wire is_counted = event_write_done && stale == 0;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            event_write_valid <= 1'b0;
            stale <= '0;
        end else begin
            if (report_lost || write_event) event_write_valid <= 1'b1;
            else if (event_write_ready) event_write_valid <= 1'b0;
            if (restart) stale <= stale + 8'(issued - ring_produced) - 8'(event_write_done);
            else if (event_write_done && stale != 0) stale <= stale - 1'b1;
        end
        if (!rst_n || restart) begin
            issued <= '0;
            sequence_number <= '0;
            unreported <= '0;
            dropping <= 1'b0;
            ring_produced <= '0;
            ring_posted <= '0;
            ring_overflows <= '0;
            ring_dropped <= '0;
        end else begin
            if (report_lost || write_event) begin
                issued <= issued + 1'b1;
                sequence_number <= next_sequence;
            end
            if (report_lost) unreported <= '0;
            else if (lose_event && unreported != '1) unreported <= unreported + 1'b1;
            if (lose_event) ring_overflows <= ring_overflows + 1'b1;
            if (is_counted) ring_produced <= ring_produced + 1'b1;
            if (!enable) ring_posted <= issued;
            else ring_posted <= ring_posted + 32'(push) + 32'(report_lost) - 32'(lose_event);
            if (taken && enabled && is_dropped) ring_dropped <= ring_dropped + 1'b1;
            if (taken && enabled && reports_drop) begin
                dropping <= 1'b1;
                dropped_number <= event_number;
            end else if (!is_dropping) dropping <= 1'b0;
        end
        if (report_lost || write_event) begin
            event_write_address <= ring_base + {26'b0, issued & ({15'b0, ring_size} - 1'b1), 6'b0};
            event_write_data <= report_lost ? lost_event : queue_data;
            event_write_data[ni_pkg::EVENT_SEQUENCE_LSB+:ni_pkg::EVENT_SEQUENCE_WIDTH] <= next_sequence;
        end
    end

    // Faults of the ring. ------------------------------------------------------------------------------------------------------------------

    // The first of several lost events, and entries that could not be written, by their address.
    logic lost_pending;
    wire error_valid;
    wire [63:0] error_address;
    ni_fifo #(
        .WIDTH(64),
        .DEPTH(16)
    ) errors (
        .clk(clk),
        .rst_n(rst_n),
        .in_valid(is_counted && event_write_error),
        /* verilator lint_off PINCONNECTEMPTY */
        .in_ready(),
        /* verilator lint_on PINCONNECTEMPTY */
        .in_data(ring_base + {26'b0, ring_produced & ({15'b0, ring_size} - 1'b1), 6'b0}),
        .out_valid(error_valid),
        .out_ready(ring_fault_ready && !lost_pending),
        .out_data(error_address),
        /* verilator lint_off PINCONNECTEMPTY */
        .level()
        /* verilator lint_on PINCONNECTEMPTY */
    );

    logic [511:0] ring_fault;
    always_comb begin
        ring_fault = '0;
        ring_fault[ni_pkg::EVENT_KIND_LSB+:ni_pkg::EVENT_KIND_WIDTH] = ni_pkg::EVENT_KIND_FAULT;
        ring_fault[ni_pkg::EVENT_TIME_LSB+:ni_pkg::EVENT_TIME_WIDTH] = now;
        if (lost_pending) begin
            ring_fault[ni_pkg::EVENT_REASON_LSB+:ni_pkg::EVENT_REASON_WIDTH] = ni_pkg::FAULT_REASON_EVENT_LOST;
            ring_fault[ni_pkg::EVENT_COUNT_LSB+:ni_pkg::EVENT_COUNT_WIDTH] = 32'd1;
        end else begin
            ring_fault[ni_pkg::EVENT_REASON_LSB+:ni_pkg::EVENT_REASON_WIDTH] = ni_pkg::FAULT_REASON_EVENT_WRITE;
            ring_fault[ni_pkg::EVENT_ADDRESS_LSB+:ni_pkg::EVENT_ADDRESS_WIDTH] = error_address;
            ring_fault[ni_pkg::EVENT_LENGTH_LSB+:ni_pkg::EVENT_LENGTH_WIDTH] = 64'd64;
        end
    end
    assign ring_fault_valid = lost_pending || error_valid;
    assign ring_fault_event = ring_fault;

    always_ff @(posedge clk) begin
        if (!rst_n) lost_pending <= 1'b0;
        else if (lose_event && unreported == 0) lost_pending <= 1'b1;
        else if (ring_fault_ready) lost_pending <= 1'b0;
    end
endmodule
