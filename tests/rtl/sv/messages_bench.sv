// `ni_message_receive` with the ports of `ni_receive`, so that both have the same driver. Settings of the scheme are arguments of the program:
// +window=, +credit=, +patience=, +round_trip=.

`timescale 1ns / 1ps

module messages_bench #(
    parameter int BUS = 128,
    parameter int PACKET_LOG2 = 6,
    parameter int CONTEXTS = 8,
    parameter int WINDOW = 32,
    parameter int MEMORY_WINDOWS = 4,
    parameter int PEERS = 16,
    parameter int NODES = 16,
    localparam int BEATS = (8 << PACKET_LOG2) > BUS ? (8 << PACKET_LOG2) / BUS : 1,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire  [63:0]          now,
    input  wire  [31:0]          node,
    input  wire  [31:0]          incarnation,
    input  wire                  packet_events,
    input  wire  [63:0]          escape_timeout,
    input  wire  [63:0]          registry_timeout,
    input  wire  [63:0]          packet_lifetime,
    input  wire                  timeouts_changed,
    input  wire  [31:0]          notice_slots,
    input  wire                  packet_valid,
    output wire                  packet_ready,
    input  wire  [703:0]         packet_header,
    input  wire  [15:0]          packet_payload_length,
    input  wire  [63:0]          packet_time,
    output wire  [BEAT_BITS-1:0] payload_beat,
    input  wire  [BUS-1:0]       payload_data,
    output wire                  write_valid,
    input  wire                  write_ready,
    output wire  [63:0]          write_address,
    output wire  [15:0]          write_length,
    output wire                  write_data_valid,
    input  wire                  write_data_ready,
    output wire  [BUS-1:0]       write_data,
    input  wire                  write_done,
    input  wire                  write_error,
    output wire                  answer_valid,
    input  wire                  answer_ready,
    output wire  [703:0]         answer,
    output wire  [7:0]           answer_length,
    output wire                  event_valid,
    input  wire                  event_ready,
    output wire  [511:0]         event_data,
    output wire                  fault_valid,
    input  wire                  fault_ready,
    output wire  [511:0]         fault_event,
    input  wire                  command_valid,
    output wire                  command_ready,
    input  wire  [2:0]           command,
    input  wire  [15:0]          command_index,
    input  wire  [31:0]          window_source,
    input  wire  [63:0]          window_base,
    input  wire  [63:0]          window_length,
    input  wire  [63:0]          window_key,
    input  wire  [1:0]           window_permissions,
    output wire                  command_failed,
    output wire  [767:0]         registry_shadow,
    output wire  [351:0]         escape_shadow,
    output wire  [256:0]         memory_shadow,
    output wire  [31:0]          registry_occupancy,
    output wire  [31:0]          registry_high_water,
    output wire  [31:0]          escape_occupancy,
    output wire  [31:0]          escape_high_water,
    output wire  [31:0]          memory_occupancy,
    output wire                  count_duplicates,
    output wire                  count_registrations,
    output wire                  count_completions,
    output wire                  count_escape_hits,
    output wire                  count_escape_dropped,
    output wire                  count_registry_full,
    output wire                  count_bad_packet,
    output wire                  count_violations,
    output wire                  count_tombstone_hits,
    output wire                  count_expired,
    output wire                  count_nacks_sent,
    output wire                  count_acks_sent,
    output wire                  count_trimmed,
    output wire                  idle
);
    int window = WINDOW;
    int credit = 0;
    int patience = 3;
    int round_trip = 1000;
    initial begin
        void'($value$plusargs("window=%d", window));
        void'($value$plusargs("credit=%d", credit));
        void'($value$plusargs("patience=%d", patience));
        void'($value$plusargs("round_trip=%d", round_trip));
    end

    // Timers are known to be quiet when two scans have followed a change of the time.
    localparam int SCANS = 4 * CONTEXTS + 8;
    logic [63:0] former;
    int unchanged;
    wire receive_idle;
    assign idle = receive_idle && now == former && unchanged >= SCANS;
    always_ff @(posedge clk) begin
        former <= now;
        unchanged <= now == former && !timeouts_changed ? unchanged + 1 : 0;
    end

    assign escape_shadow = '0;
    assign escape_occupancy = '0;
    assign escape_high_water = '0;
    assign {count_escape_hits, count_escape_dropped, count_trimmed} = '0;

    ni_message_receive #(
        .BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .CONTEXTS(CONTEXTS), .WINDOW(WINDOW), .MEMORY_WINDOWS(MEMORY_WINDOWS), .PEERS(PEERS),
        .NODES(NODES)
    ) receive (
        .clk, .rst_n, .now, .node, .incarnation, .registry_timeout, .packet_lifetime, .timeouts_changed, .window(8'(window)),
        .credit(credit[0]), .patience(8'(patience)), .round_trip(32'(round_trip)), .notice_slots,
        .packet_valid, .packet_ready, .packet_header, .packet_payload_length, .packet_time, .payload_beat, .payload_data,
        .write_valid, .write_ready, .write_address, .write_length, .write_data_valid, .write_data_ready, .write_data, .write_done,
        .write_error, .answer_valid, .answer_ready, .answer, .answer_length, .event_valid, .event_ready, .event_data, .fault_valid,
        .fault_ready, .fault_event, .command_valid, .command_ready, .command, .command_index, .window_source, .window_base,
        .window_length, .window_key, .window_permissions, .command_failed, .registry_shadow, .memory_shadow, .registry_occupancy,
        .registry_high_water, .memory_occupancy, .count_duplicates, .count_registrations, .count_completions, .count_registry_full,
        .count_bad_packet, .count_violations, .count_tombstone_hits, .count_expired, .count_nacks_sent, .count_acks_sent,
        .idle(receive_idle)
    );
endmodule
