// Header of a packet of a transmit window (protocol sections 3.3 to 3.7, 3.13 and 10.2). Combinational.
//
// Packet `index` of a data window has the address BASE + (FIRST_PACKET + index) x packet size; packet 0 of the segment is a START packet,
// all others are DATA. Windows of other kinds have one packet.

`timescale 1ns / 1ps

module ni_transmit_header (
    input  wire  [1023:0] window,
    input  wire  [31:0]   node_id,
    input  wire  [31:0]   incarnation,
    // Data windows: of the packet.
    input  wire  [7:0]    index,
    input  wire  [31:0]   op,
    input  wire  [7:0]    path,
    input  wire  [7:0]    last_index,
    input  wire  [12:0]   last_length,
    output logic [703:0]  header,
    output logic [7:0]    header_length,
    output logic [15:0]   payload_length
);
    wire [7:0] kind = window[ni_pkg::WINDOW_HEADER_KIND_LSB+:8];
    wire [3:0] size_log2 = window[ni_pkg::WINDOW_HEADER_PACKET_SIZE_LOG2_LSB+:4];
    wire [7:0] number = window[ni_pkg::WINDOW_HEADER_FIRST_PACKET_LSB+:8] + index;
    wire [63:0] address = window[ni_pkg::WINDOW_HEADER_BASE_LSB+:64] + (64'(number) << size_log2);
    wire is_start = number == 8'h0;
    wire [15:0] data_length = number == last_index ? 16'(last_length) : 16'd1 << size_log2;

    // Fields that no packet carries.
    wire unused = &{1'b0, window};

    always_comb begin
        header = '0;
        header_length = 8'(ni_pkg::DATA_BYTES);
        payload_length = 16'h0;
        header[ni_pkg::COMMON_VERSION_LSB+:8] = ni_pkg::WIRE_VERSION;
        header[ni_pkg::COMMON_PATH_LSB+:8] = path;
        header[ni_pkg::COMMON_SOURCE_LSB+:32] = node_id;
        header[ni_pkg::COMMON_DESTINATION_LSB+:32] = window[ni_pkg::WINDOW_HEADER_DESTINATION_LSB+:32];
        header[ni_pkg::COMMON_INCARNATION_LSB+:32] = incarnation;
        case (kind)
            ni_pkg::WINDOW_KIND_ARRIVAL: begin
                header_length = 8'(ni_pkg::ARRIVED_BYTES);
                header[ni_pkg::COMMON_KIND_LSB+:8] = ni_pkg::PACKET_KIND_ARRIVED;
                header[ni_pkg::ARRIVED_TRANSFER_LSB+:32] = window[ni_pkg::WINDOW_HEADER_TRANSFER_LSB+:32];
                header[ni_pkg::ARRIVED_ADDRESS_LSB+:64] = window[ni_pkg::WINDOW_HEADER_TRANSFER_BASE_LSB+:64];
                header[ni_pkg::ARRIVED_LENGTH_LSB+:64] = window[ni_pkg::WINDOW_HEADER_TRANSFER_LENGTH_LSB+:64];
                header[ni_pkg::ARRIVED_KEY_LSB+:64] = window[ni_pkg::WINDOW_HEADER_KEY_LSB+:64];
            end
            ni_pkg::WINDOW_KIND_LINK_INQUIRY: begin
                header_length = 8'(ni_pkg::LINK_INQUIRY_BYTES);
                header[ni_pkg::COMMON_KIND_LSB+:8] = ni_pkg::PACKET_KIND_LINK_INQUIRY;
                header[ni_pkg::LINK_INQUIRY_NUMBER_LSB+:32] = window[ni_pkg::WINDOW_HEADER_NUMBER_LSB+:32];
            end
            ni_pkg::WINDOW_KIND_LINK_ACTIVE: begin
                header_length = 8'(ni_pkg::LINK_ACTIVE_BYTES);
                header[ni_pkg::COMMON_KIND_LSB+:8] = ni_pkg::PACKET_KIND_LINK_ACTIVE;
                header[ni_pkg::LINK_ACTIVE_SENDER_LSB+:32] = node_id;
                header[ni_pkg::LINK_ACTIVE_RECEIVER_LSB+:32] = window[ni_pkg::WINDOW_HEADER_RECEIVER_LSB+:32];
                header[ni_pkg::LINK_ACTIVE_LINK_LSB+:32] = window[ni_pkg::WINDOW_HEADER_NUMBER_LSB+:32];
                header[ni_pkg::LINK_ACTIVE_RATE_LSB+:16] = window[ni_pkg::WINDOW_HEADER_RATE_LSB+:16];
                header[ni_pkg::LINK_ACTIVE_QUEUE_LSB+:16] = window[ni_pkg::WINDOW_HEADER_QUEUE_LSB+:16];
            end
            default: begin
                payload_length = data_length;
                header[ni_pkg::COMMON_KIND_LSB+:8] = ni_pkg::PACKET_KIND_DATA;
                header[ni_pkg::COMMON_FLAGS_LSB+:8] = window[ni_pkg::WINDOW_HEADER_FLAGS_LSB+:8];
                header[ni_pkg::DATA_TRANSFER_LSB+:32] = window[ni_pkg::WINDOW_HEADER_TRANSFER_LSB+:32];
                header[ni_pkg::DATA_OLDEST_LIVE_LSB+:32] = window[ni_pkg::WINDOW_HEADER_OLDEST_LIVE_LSB+:32];
                header[ni_pkg::DATA_SEGMENT_LSB+:32] = window[ni_pkg::WINDOW_HEADER_SEGMENT_LSB+:32];
                header[ni_pkg::DATA_SEGMENT_COUNT_LSB+:32] = window[ni_pkg::WINDOW_HEADER_SEGMENT_COUNT_LSB+:32];
                header[ni_pkg::DATA_ADDRESS_LSB+:64] = address;
                header[ni_pkg::DATA_KEY_LSB+:64] = window[ni_pkg::WINDOW_HEADER_KEY_LSB+:64];
                header[ni_pkg::DATA_OP_LSB+:32] = op;
                header[ni_pkg::DATA_PAYLOAD_LENGTH_LSB+:16] = data_length;
                header[ni_pkg::DATA_TRIES_LSB+:8] = window[ni_pkg::WINDOW_HEADER_TRIES_LSB+:8];
                header[ni_pkg::DATA_PACKET_SIZE_LOG2_LSB+:8] = 8'(size_log2);
                if (is_start) begin
                    header_length = 8'(ni_pkg::START_BYTES);
                    header[ni_pkg::COMMON_KIND_LSB+:8] = ni_pkg::PACKET_KIND_START;
                    header[ni_pkg::START_BASE_LSB+:64] = window[ni_pkg::WINDOW_HEADER_BASE_LSB+:64];
                    header[ni_pkg::START_SEGMENT_LENGTH_LSB+:32] = window[ni_pkg::WINDOW_HEADER_SEGMENT_LENGTH_LSB+:32];
                    header[ni_pkg::START_PACKETS_LSB+:16] = window[ni_pkg::WINDOW_HEADER_SEGMENT_PACKETS_LSB+:16];
                    header[ni_pkg::START_TRANSFER_BASE_LSB+:64] = window[ni_pkg::WINDOW_HEADER_TRANSFER_BASE_LSB+:64];
                    header[ni_pkg::START_TRANSFER_LENGTH_LSB+:64]
                        = window[ni_pkg::WINDOW_HEADER_TRANSFER_LENGTH_LSB+:64];
                end
            end
        endcase
    end
endmodule
