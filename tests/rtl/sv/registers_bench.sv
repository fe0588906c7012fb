// Registers with counters, event ring and fault log as in the top. The driver stands for the receiver, which executes the commands.

`timescale 1ns / 1ps

module registers_bench #(
    parameter int NODE_ID = 1,
    parameter int PACKET_LOG2 = 9,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 16,
    parameter int WINDOWS = 8,
    parameter logic [63:0] WINDOW_BASE = 64'h10_0000_0000,
    parameter logic [63:0] MEMORY_BASE = 64'h0,
    parameter logic [63:0] MEMORY_SIZE = 64'h10_0000,
    localparam int BUS = 512
) (
    input  wire             clk,
    input  wire             rst_n,
    input  wire [63:0]      now,
    input  wire [15:0]      s_axil_awaddr,
    input  wire             s_axil_awvalid,
    output wire             s_axil_awready,
    input  wire [31:0]      s_axil_wdata,
    input  wire [3:0]       s_axil_wstrb,
    input  wire             s_axil_wvalid,
    output wire             s_axil_wready,
    output wire [1:0]       s_axil_bresp,
    output wire             s_axil_bvalid,
    input  wire             s_axil_bready,
    input  wire [15:0]      s_axil_araddr,
    input  wire             s_axil_arvalid,
    output wire             s_axil_arready,
    output wire [31:0]      s_axil_rdata,
    output wire [1:0]       s_axil_rresp,
    output wire             s_axil_rvalid,
    input  wire             s_axil_rready,
    output wire             command_valid,
    input  wire             command_ready,
    output wire [2:0]       command,
    output wire [15:0]      command_index,
    input  wire             command_failed,
    output wire [31:0]      window_source,
    output wire [63:0]      window_base,
    output wire [63:0]      window_length,
    output wire [63:0]      window_key,
    output wire [1:0]       window_permissions,
    input  wire [256:0]     memory_shadow,
    input  wire [31:0]      memory_occupancy,
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
    localparam int CAPABILITIES = (1 << ni_pkg::CAPABILITIES_PACKET_EVENTS_BIT) | (1 << ni_pkg::CAPABILITIES_FAULT_LOG_BIT);

    wire enable, event_enable, packet_events, timeouts_changed, clear, clear_receiver, hello;
    wire [31:0] node, incarnation, registry_timeout_us, hello_node;
    wire [63:0] escape_timeout, registry_timeout, packet_lifetime;
    wire ring_write, ring_taken, restarted, consumed_written;
    wire [11:0] ring_register, read_register;
    wire [63:0] ring_base;
    wire [16:0] ring_size, notice_slots;
    wire [31:0] ring_value, ring_consumed, ring_produced, ring_posted, ring_overflows, ring_dropped, ring_interrupt;
    wire [31:0] counter_word, fault_log_word, fault_log_index, event_number;
    wire fault_log_latch, has_faults, fault_valid, fault_ready, ring_fault_valid, ring_fault_ready, any_fault_valid, any_fault_ready;
    wire report_valid, report_ready;
    wire [511:0] fault_event, ring_fault_event, any_fault_event, report_event, event_write_data;
    wire event_write_valid, event_write_ready, event_write_done, event_write_error;
    wire [63:0] event_write_address;
    wire [15:0] usr_irq_req;

    ni_registers #(
        .NODE_ID(NODE_ID),
        .PACKET_LOG2(PACKET_LOG2),
        .MASK_BITS(MASK_BITS),
        .ENTRIES(ENTRIES),
        .ESCAPE_SLOTS(ESCAPE_SLOTS),
        .MEMORY_WINDOWS(MEMORY_WINDOWS),
        .WINDOWS(WINDOWS),
        .WINDOW_BASE(WINDOW_BASE),
        .MEMORY_BASE(MEMORY_BASE),
        .MEMORY_SIZE(MEMORY_SIZE),
        .CAPABILITIES(CAPABILITIES)
    ) dut (
        .registry_shadow(768'b0),
        .escape_shadow(352'b0),
        .registry_occupancy(32'b0),
        .registry_high_water(32'b0),
        .escape_occupancy(32'b0),
        .escape_high_water(32'b0),
        .windows_free((32'd1 << WINDOWS) - 1),
        .transmitting(1'b0),
        .receives_messages(),
        .message_window(),
        .message_credit(),
        .message_patience(),
        .round_trip_ns(),
        .*
    );

    ni_counters counters (
        .register_offset(read_register),
        .word(counter_word),
        .rx_received(1'b0),
        .rx_bad_crc(1'b0),
        .rx_bad_packet(1'b0),
        .rx_trimmed(1'b0),
        .tx_sent(1'b0),
        .link_inquiries_sent(1'b0),
        .link_active_sent(1'b0),
        .dispatch_bad_packet(1'b0),
        .count_duplicates(1'b0),
        .count_registrations(1'b0),
        .count_completions(1'b0),
        .count_escape_hits(1'b0),
        .count_escape_dropped(1'b0),
        .count_registry_full(1'b0),
        .count_bad_packet(1'b0),
        .count_violations(1'b0),
        .count_tombstone_hits(1'b0),
        .count_expired(1'b0),
        .count_nacks_sent(1'b0),
        .count_acks_sent(1'b0),
        .count_trimmed(1'b0),
        .*
    );

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
        .enable(event_enable),
        .fault_valid(any_fault_valid),
        .fault_ready(any_fault_ready),
        .fault_event(any_fault_event),
        .report_number(event_number),
        .latch(fault_log_latch),
        .latch_index(fault_log_index),
        .window_register(read_register),
        .window_word(fault_log_word),
        .*
    );

    ni_events events (
        .enable(event_enable),
        .event_valid(report_valid),
        .event_ready(report_ready),
        .event_data(report_event),
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
