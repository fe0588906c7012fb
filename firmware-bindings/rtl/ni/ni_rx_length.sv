// Length of the header of a packet kind in bytes, without payload and checksum (protocol section 3.1). Combinational.

`timescale 1ns / 1ps

module ni_rx_length (
    input  wire  [7:0] kind,
    // Of an unknown kind: that of LINK_SLOW.
    output logic [6:0] header_length
);
    always_comb begin
        case (kind)
            ni_pkg::PACKET_KIND_DATA: header_length = 7'(ni_pkg::DATA_BYTES);
            ni_pkg::PACKET_KIND_START: header_length = 7'(ni_pkg::START_BYTES);
            ni_pkg::PACKET_KIND_ACK, ni_pkg::PACKET_KIND_NACK: header_length = 7'(ni_pkg::ACK_BYTES);
            ni_pkg::PACKET_KIND_SEGMENT_DONE: header_length = 7'(ni_pkg::SEGMENT_DONE_BYTES);
            ni_pkg::PACKET_KIND_ARRIVED: header_length = 7'(ni_pkg::ARRIVED_BYTES);
            ni_pkg::PACKET_KIND_HELLO, ni_pkg::PACKET_KIND_HELLO_REPLY: header_length = 7'(ni_pkg::HELLO_BYTES);
            ni_pkg::PACKET_KIND_MESSAGE_REQUEST: header_length = 7'(ni_pkg::MESSAGE_REQUEST_BYTES);
            ni_pkg::PACKET_KIND_MESSAGE_DATA: header_length = 7'(ni_pkg::MESSAGE_DATA_BYTES);
            ni_pkg::PACKET_KIND_MESSAGE_START: header_length = 7'(ni_pkg::MESSAGE_START_BYTES);
            ni_pkg::PACKET_KIND_MESSAGE_ANSWER: header_length = 7'(ni_pkg::MESSAGE_ANSWER_BYTES);
            ni_pkg::PACKET_KIND_MESSAGE_MAP: header_length = 7'(ni_pkg::MESSAGE_MAP_BYTES);
            ni_pkg::PACKET_KIND_READ_REQUEST: header_length = 7'(ni_pkg::READ_REQUEST_BYTES);
            ni_pkg::PACKET_KIND_LINK_INQUIRY: header_length = 7'(ni_pkg::LINK_INQUIRY_BYTES);
            ni_pkg::PACKET_KIND_LINK_PASSIVE: header_length = 7'(ni_pkg::LINK_PASSIVE_BYTES);
            ni_pkg::PACKET_KIND_LINK_ACTIVE: header_length = 7'(ni_pkg::LINK_ACTIVE_BYTES);
            default: header_length = 7'(ni_pkg::LINK_SLOW_BYTES);
        endcase
    end
endmodule
