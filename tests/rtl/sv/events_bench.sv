// Event ring and fault log as in the top: `ni_events`, `ni_faults`, and `ni_write` without payload.

`timescale 1ns / 1ps

module events_bench #(
    parameter int BUS = 512
) (
    input  wire             clk,
    input  wire             rst_n,
    input  wire [63:0]      now,
    input  wire             enable,
    input  wire             clear,
    input  wire             ring_write,
    input  wire [11:0]      ring_register,
    input  wire [31:0]      ring_value,
    output wire             ring_taken,
    output wire [31:0]      ring_consumed,
    output wire [31:0]      ring_produced,
    output wire [31:0]      ring_posted,
    output wire [31:0]      ring_overflows,
    output wire [31:0]      ring_dropped,
    output wire [31:0]      ring_interrupt,
    output wire [16:0]      notice_slots,
    output wire [15:0]      usr_irq_req,
    output wire [63:0]      ring_base,
    output wire [16:0]      ring_size,
    input  wire             event_valid,
    output wire             event_ready,
    input  wire [511:0]     event_data,
    input  wire             fault_valid,
    output wire             fault_ready,
    input  wire [511:0]     fault_event,
    input  wire             latch,
    input  wire [31:0]      latch_index,
    input  wire [11:0]      window_register,
    output wire [31:0]      window_word,
    output wire             has_faults,
    output wire [63:0]      m_awaddr,
    output wire [7:0]       m_awlen,
    output wire             m_awvalid,
    input  wire             m_awready,
    output wire [BUS-1:0]   m_wdata,
    output wire [BUS/8-1:0] m_wstrb,
    output wire             m_wlast,
    output wire             m_wvalid,
    input  wire             m_wready,
    input  wire [1:0]       m_bresp,
    input  wire             m_bvalid,
    output wire             m_bready
);
    wire restarted, consumed_written;
    wire merged_valid, merged_ready, report_valid, report_ready, ring_fault_valid, ring_fault_ready, any_fault_valid, any_fault_ready;
    wire [511:0] merged_data, report_event, ring_fault_event, any_fault_event;
    wire [31:0] event_number;
    wire event_write_valid, event_write_ready, event_write_done, event_write_error;
    wire [63:0] event_write_address;
    wire [511:0] event_write_data;

    ni_arbiter #(
        .WIDTH(512),
        .COUNT(2)
    ) fault_arbiter (
        .clk(clk),
        .rst_n(rst_n),
        .in_valid({fault_valid, ring_fault_valid}),
        .in_ready({fault_ready, ring_fault_ready}),
        .in_data({fault_event, ring_fault_event}),
        .out_valid(any_fault_valid),
        .out_ready(any_fault_ready),
        .out_data(any_fault_event),
        .out_index()
    );

    ni_faults faults (
        .fault_valid(any_fault_valid),
        .fault_ready(any_fault_ready),
        .fault_event(any_fault_event),
        .report_number(event_number),
        .*
    );

    ni_arbiter #(
        .WIDTH(512),
        .COUNT(2)
    ) event_arbiter (
        .clk(clk),
        .rst_n(rst_n),
        .in_valid({event_valid, report_valid}),
        .in_ready({event_ready, report_ready}),
        .in_data({event_data, report_event}),
        .out_valid(merged_valid),
        .out_ready(merged_ready),
        .out_data(merged_data),
        .out_index()
    );

    ni_events events (
        .event_valid(merged_valid),
        .event_ready(merged_ready),
        .event_data(merged_data),
        .*
    );

    ni_write #(.BUS(BUS)) writer (
        .write_valid(1'b0),
        .write_ready(),
        .write_address(64'b0),
        .write_length(16'b0),
        .write_data_valid(1'b0),
        .write_data_ready(),
        .write_data({BUS{1'b0}}),
        .write_done(),
        .write_error(),
        .*
    );
endmodule
