// Network interface: registry scheme, with the host as sender; with MESSAGE_CONTEXTS, the scheme receiver-window as receiver (README.md lists
// the modules).
//
// Ports:
// * `s_axil_*`: AXI4-Lite slave, registers at their offsets in the user BAR. The address decoder of the user BAR sends the offsets of the
//   CDMA engine (CDMA_OFFSET, by default 0x1000 to 0x1fff) to it, all others here.
// * `s_axi_*`: AXI4 slave, memory of the transmit windows, at card address WINDOW_BASE; the upper bits of addresses are ignored.
// * `m_axi_*`: AXI4 write master to card memory (MEMORY_BASE, MEMORY_SIZE). It must not reach the transmit windows: a write of a peer
//   that starts outside of card memory has to be answered with DECERR.
// * `s_axis_*`, `m_axis_*`: AXI4-Stream, network: one frame per packet, TKEEP all ones but in the last beat.
// * `usr_irq_req`: user interrupt requests, levels (PG195).
//
// The event ring is in card memory: the capability EVENT_PUSH is not set. Order: the receiver handles a packet, a command or a timeout at a
// time; an event is written, and an answer sent, after the payload that it reports is in memory. Latency: see the modules. Reset: synchronous,
// for all of them; outstanding writes of `m_axi_*` must have ended.
//
// CONTROL.RESET ends the transmit windows behind the packet in progress, so that no frame is cut off.

`timescale 1ns / 1ps

module fpga_ni #(
    // Bits of the network port, of the transmit windows and of card memory.
    parameter int BUS = 512,
    // Nanoseconds of a clock cycle.
    parameter int CLOCK_NS = 4,
    parameter int BUILD = 1,
    // Node id after reset.
    parameter int NODE_ID = 1,
    parameter int PACKET_LOG2 = 12,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    parameter int ESCAPE_SLOTS = 64,
    parameter int WINDOWS = 8,
    parameter int MEMORY_WINDOWS = 64,
    parameter int SOURCES = 64,
    parameter int TRANSFERS = 128,
    parameter int TOMBSTONES = 128,
    parameter int NODES = 1024,
    // Contexts of the scheme receiver-window; 0: registry only. Its maximum window, and the senders' contexts of which it knows the last message.
    parameter int MESSAGE_CONTEXTS = 0,
    parameter int MESSAGE_WINDOW = 128,
    parameter int MESSAGE_PEERS = 1024,
    parameter int ID_BITS = 4,
    // A multiple of the size of all transmit windows.
    parameter logic [63:0] WINDOW_BASE = 64'h10_0000_0000,
    parameter logic [63:0] MEMORY_BASE = 64'h0,
    parameter logic [63:0] MEMORY_SIZE = 64'h4000_0000,
    // Offset of the CDMA engine's registers in the user BAR, for the block table.
    parameter logic [31:0] CDMA_OFFSET = ni_pkg::BLOCK_OFFSET_CDMA
) (
    input  wire               clk,
    input  wire               rst_n,

    input  wire [15:0]        s_axil_awaddr,
    input  wire               s_axil_awvalid,
    output wire               s_axil_awready,
    input  wire [31:0]        s_axil_wdata,
    input  wire [3:0]         s_axil_wstrb,
    input  wire               s_axil_wvalid,
    output wire               s_axil_wready,
    output wire [1:0]         s_axil_bresp,
    output wire               s_axil_bvalid,
    input  wire               s_axil_bready,
    input  wire [15:0]        s_axil_araddr,
    input  wire               s_axil_arvalid,
    output wire               s_axil_arready,
    output wire [31:0]        s_axil_rdata,
    output wire [1:0]         s_axil_rresp,
    output wire               s_axil_rvalid,
    input  wire               s_axil_rready,

    /* verilator lint_off UNUSEDSIGNAL */
    input  wire [ID_BITS-1:0] s_axi_awid,
    input  wire [63:0]        s_axi_awaddr,
    input  wire [7:0]         s_axi_awlen,
    input  wire [2:0]         s_axi_awsize,
    input  wire [1:0]         s_axi_awburst,
    input  wire               s_axi_awvalid,
    output wire               s_axi_awready,
    input  wire [BUS-1:0]     s_axi_wdata,
    input  wire [BUS/8-1:0]   s_axi_wstrb,
    input  wire               s_axi_wlast,
    input  wire               s_axi_wvalid,
    output wire               s_axi_wready,
    output wire [ID_BITS-1:0] s_axi_bid,
    output wire [1:0]         s_axi_bresp,
    output wire               s_axi_bvalid,
    input  wire               s_axi_bready,
    input  wire [ID_BITS-1:0] s_axi_arid,
    input  wire [63:0]        s_axi_araddr,
    input  wire [7:0]         s_axi_arlen,
    input  wire [2:0]         s_axi_arsize,
    input  wire [1:0]         s_axi_arburst,
    input  wire               s_axi_arvalid,
    output wire               s_axi_arready,
    output wire [ID_BITS-1:0] s_axi_rid,
    output wire [BUS-1:0]     s_axi_rdata,
    output wire [1:0]         s_axi_rresp,
    output wire               s_axi_rlast,
    output wire               s_axi_rvalid,
    input  wire               s_axi_rready,
    /* verilator lint_on UNUSEDSIGNAL */

    output wire [63:0]        m_axi_awaddr,
    output wire [7:0]         m_axi_awlen,
    output wire [2:0]         m_axi_awsize,
    output wire [1:0]         m_axi_awburst,
    output wire               m_axi_awvalid,
    input  wire               m_axi_awready,
    output wire [BUS-1:0]     m_axi_wdata,
    output wire [BUS/8-1:0]   m_axi_wstrb,
    output wire               m_axi_wlast,
    output wire               m_axi_wvalid,
    input  wire               m_axi_wready,
    input  wire [1:0]         m_axi_bresp,
    input  wire               m_axi_bvalid,
    output wire               m_axi_bready,

    input  wire [BUS-1:0]     s_axis_tdata,
    input  wire [BUS/8-1:0]   s_axis_tkeep,
    input  wire               s_axis_tlast,
    input  wire               s_axis_tvalid,
    output wire               s_axis_tready,
    output wire [BUS-1:0]     m_axis_tdata,
    output wire [BUS/8-1:0]   m_axis_tkeep,
    output wire               m_axis_tlast,
    output wire               m_axis_tvalid,
    input  wire               m_axis_tready,

    output wire [15:0]        usr_irq_req
);
    localparam int CAPABILITIES = (1 << ni_pkg::CAPABILITIES_PACKET_EVENTS_BIT) | (1 << ni_pkg::CAPABILITIES_FAULT_LOG_BIT);
    localparam int BYTES = BUS / 8;
    localparam int SHIFT = $clog2(BYTES);
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1;
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1;
    localparam int STRIDE_LOG2 = $clog2(4096 + (MASK_BITS << PACKET_LOG2));
    localparam int WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1;

    logic [63:0] now;
    always_ff @(posedge clk) begin
        if (!rst_n) now <= '0;
        else now <= now + 64'(CLOCK_NS);
    end

    // Registers, counters. -----------------------------------------------------------------------------------------------------------------

    wire enable, event_enable, packet_events, timeouts_changed, clear, clear_receiver, hello;
    wire receives_messages, message_credit, messages_active;
    wire [7:0] message_window, message_patience;
    wire [31:0] round_trip_ns;
    wire [31:0] node, incarnation, registry_timeout_us, hello_node;
    wire [63:0] escape_timeout, registry_timeout, packet_lifetime;
    wire ring_write, ring_taken, restarted, consumed_written;
    wire [11:0] ring_register, read_register;
    wire [63:0] ring_base;
    wire [16:0] ring_size, notice_slots;
    wire [31:0] ring_value, ring_consumed, ring_produced, ring_posted, ring_overflows, ring_dropped, ring_interrupt;
    wire [31:0] counter_word, fault_log_word, fault_log_index;
    wire fault_log_latch, has_faults;
    wire command_valid, command_ready, command_failed;
    wire [2:0] command;
    wire [15:0] command_index;
    wire [31:0] window_source;
    wire [63:0] window_base, window_length, window_key;
    wire [1:0] window_permissions;
    wire [767:0] registry_shadow;
    wire [351:0] escape_shadow;
    wire [256:0] memory_shadow;
    wire [31:0] registry_occupancy, registry_high_water, escape_occupancy, escape_high_water, memory_occupancy;
    wire [31:0] window_free;
    wire transmitting;
    wire setting_fault_valid, setting_fault_ready;
    wire [511:0] setting_fault_event;

    ni_registers #(
        .BUILD(BUILD), .NODE_ID(NODE_ID), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .ENTRIES(ENTRIES),
        .MESSAGE_CONTEXTS(MESSAGE_CONTEXTS), .MESSAGE_WINDOW(MESSAGE_WINDOW), .ESCAPE_SLOTS(ESCAPE_SLOTS),
        .MEMORY_WINDOWS(MEMORY_WINDOWS), .WINDOWS(WINDOWS), .WINDOW_BASE(WINDOW_BASE), .MEMORY_BASE(MEMORY_BASE),
        .MEMORY_SIZE(MEMORY_SIZE), .CAPABILITIES(CAPABILITIES), .CDMA_OFFSET(CDMA_OFFSET)
    ) registers (
        .clk, .rst_n, .now,
        .s_axil_awaddr, .s_axil_awvalid, .s_axil_awready, .s_axil_wdata, .s_axil_wstrb, .s_axil_wvalid, .s_axil_wready, .s_axil_bresp,
        .s_axil_bvalid, .s_axil_bready, .s_axil_araddr, .s_axil_arvalid, .s_axil_arready, .s_axil_rdata, .s_axil_rresp, .s_axil_rvalid,
        .s_axil_rready,
        .node, .incarnation, .enable, .event_enable, .packet_events, .escape_timeout, .registry_timeout, .packet_lifetime,
        .registry_timeout_us, .timeouts_changed, .receives_messages, .message_window, .message_credit, .message_patience, .round_trip_ns, .clear, .clear_receiver, .hello, .hello_node,
        .ring_write, .ring_register, .ring_value, .ring_taken, .ring_base, .ring_size, .ring_consumed, .ring_produced, .ring_posted,
        .ring_overflows, .ring_dropped, .ring_interrupt,
        .command_valid, .command_ready, .command, .command_index, .command_failed, .window_source, .window_base, .window_length,
        .window_key, .window_permissions, .registry_shadow, .escape_shadow, .memory_shadow, .registry_occupancy, .registry_high_water,
        .escape_occupancy, .escape_high_water, .memory_occupancy,
        .read_register, .counter_word, .fault_log_word, .fault_log_latch, .fault_log_index, .has_faults,
        .windows_free(window_free), .transmitting,
        .fault_valid(setting_fault_valid), .fault_ready(setting_fault_ready), .fault_event(setting_fault_event)
    );

    wire rx_received, rx_bad_crc, rx_bad_packet, rx_trimmed, tx_sent, link_inquiries_sent, link_active_sent, dispatch_bad_packet;
    wire count_duplicates, count_registrations, count_completions, count_escape_hits, count_escape_dropped, count_registry_full,
        count_bad_packet, count_violations, count_tombstone_hits, count_expired, count_nacks_sent, count_acks_sent, count_trimmed;
    ni_counters counters (
        .clk, .rst_n, .clear, .clear_receiver, .register_offset(read_register), .word(counter_word),
        .rx_received, .rx_bad_crc, .rx_bad_packet, .rx_trimmed, .tx_sent, .link_inquiries_sent, .link_active_sent, .dispatch_bad_packet,
        .count_duplicates, .count_registrations, .count_completions, .count_escape_hits, .count_escape_dropped, .count_registry_full,
        .count_bad_packet, .count_violations, .count_tombstone_hits, .count_expired, .count_nacks_sent, .count_acks_sent, .count_trimmed
    );

    // Receiving side. ----------------------------------------------------------------------------------------------------------------------

    wire packet_valid, packet_ready, receive_valid, receive_ready;
    wire [703:0] packet_header;
    wire [15:0] packet_payload_length;
    wire [63:0] packet_time;
    wire [BEAT_BITS-1:0] payload_beat;
    wire [BUS-1:0] payload_data;
    wire rx_fault_valid, rx_fault_ready, receive_fault_valid, receive_fault_ready;
    wire [511:0] rx_fault_event, receive_fault_event;
    wire dispatch_event_valid, dispatch_event_ready, receive_event_valid, receive_event_ready;
    wire [511:0] dispatch_event, receive_event;
    wire dispatch_answer_valid, dispatch_answer_ready, receive_answer_valid, receive_answer_ready;
    wire [703:0] dispatch_answer, receive_answer;
    wire [7:0] dispatch_answer_length, receive_answer_length;
    wire write_valid, write_ready, write_data_valid, write_data_ready, write_done, write_error;
    wire [63:0] write_address;
    wire [15:0] write_length;
    wire [BUS-1:0] write_data;

    ni_rx #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2)
    ) rx (
        .clk, .rst_n, .enable, .now, .s_axis_tdata, .s_axis_tkeep, .s_axis_tlast, .s_axis_tvalid, .s_axis_tready,
        .packet_valid, .packet_ready, .packet_header, .packet_payload_length, .packet_time, .payload_beat, .payload_data,
        .fault_valid(rx_fault_valid), .fault_ready(rx_fault_ready), .fault_event(rx_fault_event),
        .count_received(rx_received), .count_bad_crc(rx_bad_crc), .count_trimmed(rx_trimmed), .count_bad_packet(rx_bad_packet)
    );

    ni_dispatch #(
        .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .CAPABILITIES(CAPABILITIES)
    ) dispatch (
        .clk, .rst_n, .clear, .node, .incarnation, .registry_timeout_us, .receives_messages(messages_active), .hello, .hello_node,
        .packet_valid, .packet_ready, .packet_header, .packet_time, .receive_valid, .receive_ready,
        .event_valid(dispatch_event_valid), .event_ready(dispatch_event_ready), .event_data(dispatch_event),
        .answer_valid(dispatch_answer_valid), .answer_ready(dispatch_answer_ready), .answer(dispatch_answer),
        .answer_length(dispatch_answer_length), .count_bad_packet(dispatch_bad_packet)
    );

    /* verilator lint_off UNUSEDSIGNAL */
    // For test benches.
    wire receive_idle  /* verilator public_flat_rd */;
    /* verilator lint_on UNUSEDSIGNAL */
    ni_receivers #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .ENTRIES(ENTRIES), .ESCAPE_SLOTS(ESCAPE_SLOTS),
        .MEMORY_WINDOWS(MEMORY_WINDOWS), .SOURCES(SOURCES), .TRANSFERS(TRANSFERS), .TOMBSTONES(TOMBSTONES), .NODES(NODES),
        .MESSAGE_CONTEXTS(MESSAGE_CONTEXTS), .MESSAGE_WINDOW(MESSAGE_WINDOW), .MESSAGE_PEERS(MESSAGE_PEERS)
    ) receive (
        .clk, .rst_n, .now, .node, .incarnation, .packet_events, .receives_messages, .message_window, .message_credit, .message_patience, .round_trip_ns,
        .escape_timeout, .registry_timeout, .packet_lifetime, .timeouts_changed, .messages_active,
        .notice_slots((notice_slots == '1) ? 32'hffff_ffff : {15'b0, notice_slots}),
        .packet_valid(receive_valid), .packet_ready(receive_ready), .packet_header, .packet_payload_length, .packet_time, .payload_beat,
        .payload_data, .write_valid, .write_ready, .write_address, .write_length, .write_data_valid, .write_data_ready, .write_data,
        .write_done, .write_error,
        .answer_valid(receive_answer_valid), .answer_ready(receive_answer_ready), .answer(receive_answer),
        .answer_length(receive_answer_length),
        .event_valid(receive_event_valid), .event_ready(receive_event_ready), .event_data(receive_event),
        .fault_valid(receive_fault_valid), .fault_ready(receive_fault_ready), .fault_event(receive_fault_event),
        .command_valid, .command_ready, .command, .command_index, .window_source, .window_base, .window_length, .window_key,
        .window_permissions, .command_failed, .registry_shadow, .escape_shadow, .memory_shadow, .registry_occupancy,
        .registry_high_water, .escape_occupancy, .escape_high_water, .memory_occupancy,
        .count_duplicates, .count_registrations, .count_completions, .count_escape_hits, .count_escape_dropped, .count_registry_full,
        .count_bad_packet, .count_violations, .count_tombstone_hits, .count_expired, .count_nacks_sent, .count_acks_sent, .count_trimmed,
        .idle(receive_idle)
    );

    // Sending side. ------------------------------------------------------------------------------------------------------------------------

    wire commit_valid, window_read_valid, window_read_ready;
    wire [WINDOW_BITS-1:0] commit_window, window_read_window;
    wire [STRIDE_LOG2-SHIFT-1:0] window_read_beat;
    wire [BUS-1:0] window_read_data, frame_data;
    wire frame_valid, frame_ready, frame_data_valid, frame_data_ready;
    wire [703:0] frame_header;
    wire [7:0] frame_header_length;
    wire [15:0] frame_payload_length;
    wire transmit_event_valid, transmit_event_ready, transmit_fault_valid, transmit_fault_ready;
    wire [511:0] transmit_event, transmit_fault_event;

    ni_windows #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .WINDOWS(WINDOWS), .ID_BITS(ID_BITS)
    ) windows (
        .clk, .rst_n,
        .s_axi_awid, .s_axi_awaddr(s_axi_awaddr[WINDOW_BITS+STRIDE_LOG2-1:0]), .s_axi_awsize, .s_axi_awvalid, .s_axi_awready,
        .s_axi_wdata, .s_axi_wstrb, .s_axi_wlast, .s_axi_wvalid, .s_axi_wready, .s_axi_bid, .s_axi_bresp, .s_axi_bvalid, .s_axi_bready,
        .s_axi_arid, .s_axi_araddr(s_axi_araddr[WINDOW_BITS+STRIDE_LOG2-1:0]), .s_axi_arlen, .s_axi_arsize, .s_axi_arvalid,
        .s_axi_arready, .s_axi_rid, .s_axi_rdata, .s_axi_rresp, .s_axi_rlast, .s_axi_rvalid, .s_axi_rready,
        .commit_valid, .commit_window, .read_valid(window_read_valid), .read_ready(window_read_ready), .read_window(window_read_window),
        .read_beat(window_read_beat), .read_data(window_read_data)
    );

    // Beats of payload that the frame in progress still gets. CONTROL.RESET waits for them.
    logic [16-SHIFT:0] frame_beats;
    logic clearing;
    wire frame_begins = frame_valid && frame_ready;
    wire frame_is_over = !frame_begins && frame_beats == 0;
    wire transmit_clear = clearing && frame_is_over;
    wire [16-SHIFT:0] next_frame_beats = (17 - SHIFT)'(({1'b0, frame_payload_length} + 17'(BYTES - 1)) >> SHIFT);
    always_ff @(posedge clk) begin
        if (!rst_n) begin
            frame_beats <= '0;
            clearing <= 1'b0;
        end else begin
            if (frame_begins) frame_beats <= next_frame_beats;
            else if (frame_data_valid && frame_data_ready) frame_beats <= frame_beats - 1'b1;
            clearing <= clear || (clearing && !frame_is_over);
        end
    end

    ni_transmit #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS), .WINDOWS(WINDOWS)
    ) transmit (
        .clk, .rst_n(rst_n && !transmit_clear), .enable(enable && !clearing), .messages_active, .node_id(node), .incarnation, .now, .commit_valid,
        .commit_window, .read_valid(window_read_valid), .read_ready(window_read_ready), .read_window(window_read_window),
        .read_beat(window_read_beat), .read_data(window_read_data), .frame_valid, .frame_ready, .frame_header, .frame_header_length,
        .frame_payload_length, .frame_data_valid, .frame_data_ready, .frame_data,
        .event_valid(transmit_event_valid), .event_ready(transmit_event_ready), .event_data(transmit_event),
        .fault_valid(transmit_fault_valid), .fault_ready(transmit_fault_ready), .fault_event(transmit_fault_event),
        .window_free, .transmitting, .count_link_inquiry(link_inquiries_sent), .count_link_active(link_active_sent)
    );

    ni_tx #(
        .BUS(BUS), .ANSWERS(2)
    ) tx (
        .clk, .rst_n, .answer_valid({receive_answer_valid, dispatch_answer_valid}),
        .answer_ready({receive_answer_ready, dispatch_answer_ready}), .answer({receive_answer, dispatch_answer}),
        .answer_length({receive_answer_length, dispatch_answer_length}), .frame_valid, .frame_ready, .frame_header, .frame_header_length,
        .frame_payload_length, .frame_data_valid, .frame_data_ready, .frame_data,
        .m_axis_tdata, .m_axis_tkeep, .m_axis_tlast, .m_axis_tvalid, .m_axis_tready, .count_sent(tx_sent)
    );

    // Faults, events, card memory. ---------------------------------------------------------------------------------------------------------

    wire fault_valid, fault_ready, report_valid, report_ready, event_valid, event_ready, ring_fault_valid, ring_fault_ready;
    wire [511:0] fault_event, report_event, event_data, ring_fault_event, event_write_data;
    wire [31:0] event_number;
    wire event_write_valid, event_write_ready, event_write_done, event_write_error;
    wire [63:0] event_write_address;

    /* verilator lint_off PINCONNECTEMPTY */
    ni_arbiter #(
        .WIDTH(512), .COUNT(5)
    ) fault_arbiter (
        .clk, .rst_n,
        .in_valid({receive_fault_valid, transmit_fault_valid, rx_fault_valid, setting_fault_valid, ring_fault_valid}),
        .in_ready({receive_fault_ready, transmit_fault_ready, rx_fault_ready, setting_fault_ready, ring_fault_ready}),
        .in_data({receive_fault_event, transmit_fault_event, rx_fault_event, setting_fault_event, ring_fault_event}),
        .out_valid(fault_valid), .out_ready(fault_ready), .out_data(fault_event), .out_index()
    );

    ni_arbiter #(
        .WIDTH(512), .COUNT(4)
    ) event_arbiter (
        .clk, .rst_n, .in_valid({receive_event_valid, dispatch_event_valid, transmit_event_valid, report_valid}),
        .in_ready({receive_event_ready, dispatch_event_ready, transmit_event_ready, report_ready}),
        .in_data({receive_event, dispatch_event, transmit_event, report_event}),
        .out_valid(event_valid), .out_ready(event_ready), .out_data(event_data), .out_index()
    );
    /* verilator lint_on PINCONNECTEMPTY */

    ni_faults faults (
        .clk, .rst_n, .fault_valid, .fault_ready, .fault_event, .enable(event_enable), .restarted, .consumed_written, .ring_consumed,
        .report_valid, .report_ready, .report_event, .report_number(event_number), .latch(fault_log_latch), .latch_index(fault_log_index),
        .window_register(read_register), .window_word(fault_log_word), .has_faults
    );

    ni_events events (
        .clk, .rst_n, .now, .enable(event_enable), .clear, .ring_write, .ring_register, .ring_value, .ring_taken, .ring_base, .ring_size,
        .ring_consumed, .ring_produced, .ring_posted, .ring_overflows, .ring_dropped, .ring_interrupt, .restarted, .consumed_written,
        .event_valid, .event_ready, .event_data, .event_number, .notice_slots, .event_write_valid, .event_write_ready,
        .event_write_address, .event_write_data, .event_write_done, .event_write_error, .ring_fault_valid, .ring_fault_ready,
        .ring_fault_event, .usr_irq_req
    );

    assign m_axi_awsize = 3'(SHIFT);
    assign m_axi_awburst = 2'b01;
    ni_write #(
        .BUS(BUS)
    ) writer (
        .clk, .rst_n, .write_valid, .write_ready, .write_address, .write_length, .write_data_valid, .write_data_ready, .write_data,
        .write_done, .write_error, .event_write_valid, .event_write_ready, .event_write_address, .event_write_data, .event_write_done,
        .event_write_error, .m_awaddr(m_axi_awaddr), .m_awlen(m_axi_awlen), .m_awvalid(m_axi_awvalid), .m_awready(m_axi_awready),
        .m_wdata(m_axi_wdata), .m_wstrb(m_axi_wstrb), .m_wlast(m_axi_wlast), .m_wvalid(m_axi_wvalid), .m_wready(m_axi_wready),
        .m_bresp(m_axi_bresp), .m_bvalid(m_axi_bvalid), .m_bready(m_axi_bready)
    );
endmodule
