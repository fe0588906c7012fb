// Block counters: one pulse per counted item in, 32-bit counts out. Each count wraps.
//
// Reads: combinational; a pulse counts in the next cycle. `clear` (CONTROL.RESET) and reset set all counts to 0, `clear_receiver` (a change
// of the schemes) those of the receiver. BAD_PACKET and TRIMMED have several sources, each with a count of its own.

`timescale 1ns / 1ps

module ni_counters (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         clear,
    input  wire         clear_receiver,
    input  wire  [11:0] register_offset,
    output logic [31:0] word,

    // Network port.
    input  wire         rx_received,
    input  wire         rx_bad_crc,
    input  wire         rx_bad_packet,
    input  wire         rx_trimmed,
    input  wire         tx_sent,
    // Transmit windows.
    input  wire         link_inquiries_sent,
    input  wire         link_active_sent,
    // Packets that neither the receiver nor the host gets.
    input  wire         dispatch_bad_packet,
    // Receiver.
    input  wire         count_duplicates,
    input  wire         count_registrations,
    input  wire         count_completions,
    input  wire         count_escape_hits,
    input  wire         count_escape_dropped,
    input  wire         count_registry_full,
    input  wire         count_bad_packet,
    input  wire         count_violations,
    input  wire         count_tombstone_hits,
    input  wire         count_expired,
    input  wire         count_nacks_sent,
    input  wire         count_acks_sent,
    input  wire         count_trimmed
);
    localparam int RECEIVER = 13;
    localparam int OTHERS = 8;
    localparam int COUNTS = RECEIVER + OTHERS;

    wire [COUNTS-1:0] pulses = {
        dispatch_bad_packet, link_active_sent, link_inquiries_sent, tx_sent, rx_trimmed, rx_bad_packet, rx_bad_crc, rx_received,
        count_trimmed, count_acks_sent, count_nacks_sent, count_expired, count_tombstone_hits, count_violations, count_bad_packet,
        count_registry_full, count_escape_dropped, count_escape_hits, count_completions, count_registrations, count_duplicates
    };
    logic [32*COUNTS-1:0] counts;

    always_ff @(posedge clk) begin
        for (int number = 0; number < COUNTS; number++)
            if (!rst_n || clear || (clear_receiver && number < RECEIVER)) counts[32*number+:32] <= '0;
            else counts[32*number+:32] <= counts[32*number+:32] + 32'(pulses[number]);
    end

    wire [31:0] trimmed = counts[32*12+:32] + counts[32*16+:32];
    wire [31:0] bad_packet = counts[32*6+:32] + counts[32*15+:32] + counts[32*20+:32];
    logic [4:0] selected;
    always_comb begin
        case (register_offset)
            ni_pkg::REG_COUNTERS_DUPLICATES: selected = 5'd0;
            ni_pkg::REG_COUNTERS_REGISTRATIONS: selected = 5'd1;
            ni_pkg::REG_COUNTERS_COMPLETIONS: selected = 5'd2;
            ni_pkg::REG_COUNTERS_ESCAPE_HITS: selected = 5'd3;
            ni_pkg::REG_COUNTERS_ESCAPE_DROPPED: selected = 5'd4;
            ni_pkg::REG_COUNTERS_REGISTRY_FULL: selected = 5'd5;
            ni_pkg::REG_COUNTERS_VIOLATIONS: selected = 5'd7;
            ni_pkg::REG_COUNTERS_TOMBSTONE_HITS: selected = 5'd8;
            ni_pkg::REG_COUNTERS_EXPIRED: selected = 5'd9;
            ni_pkg::REG_COUNTERS_NACKS_SENT: selected = 5'd10;
            ni_pkg::REG_COUNTERS_ACKS_SENT: selected = 5'd11;
            ni_pkg::REG_COUNTERS_RX_PACKETS: selected = 5'd13;
            ni_pkg::REG_COUNTERS_BAD_CRC: selected = 5'd14;
            ni_pkg::REG_COUNTERS_TX_PACKETS: selected = 5'd17;
            ni_pkg::REG_COUNTERS_LINK_INQUIRIES_SENT: selected = 5'd18;
            ni_pkg::REG_COUNTERS_LINK_ACTIVE_SENT: selected = 5'd19;
            default: selected = 5'd31;
        endcase
        case (register_offset)
            ni_pkg::REG_COUNTERS_BAD_PACKET: word = bad_packet;
            ni_pkg::REG_COUNTERS_TRIMMED: word = trimmed;
            default: word = (selected == 5'd31) ? '0 : counts[32*selected+:32];
        endcase
    end
endmodule
