// Check of the header of a transmit window (protocol section 10.2).
//
// Protocol: none; the outputs belong to the inputs of the cycle before. Latency: 1 cycle. Reset: none needed.
//
// Not checked here: SEQUENCE, and the bytes after the list of path identifiers.

`timescale 1ns / 1ps

module ni_transmit_check #(
    // Maximum payload of a packet in bytes, as a power of two.
    parameter int PACKET_LOG2 = 12,
    // Packets of maximum size in a window.
    parameter int MASK_BITS = 64
) (
    input  wire          clk,
    input  wire [1023:0] header,
    // The header keeps the rules of its kind.
    output wire          valid,
    // This build can send the packets of such a header.
    output logic         fits,
    // Index of the last packet of the segment, and its bytes. Only for valid headers with packets.
    output logic [7:0]   last_index,
    output logic [12:0]  last_length
);
    wire [31:0] flags = header[ni_pkg::WINDOW_HEADER_FLAGS_LSB+:32];
    wire [7:0] kind = header[ni_pkg::WINDOW_HEADER_KIND_LSB+:8];
    wire is_data = kind == ni_pkg::WINDOW_KIND_DATA;
    wire is_arrival = kind == ni_pkg::WINDOW_KIND_ARRIVAL;
    wire is_command = kind == ni_pkg::WINDOW_KIND_COMMAND;
    wire is_inquiry = kind == ni_pkg::WINDOW_KIND_LINK_INQUIRY;
    wire is_active = kind == ni_pkg::WINDOW_KIND_LINK_ACTIVE;
    wire known = is_data || is_arrival || is_command || is_inquiry || is_active;

    // Fields of all kinds.
    localparam logic [31:0] ALLOWED_FLAGS = 32'h1 << ni_pkg::FLAGS_SILENT_BIT
        | 32'h1 << ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT | 32'h1 << ni_pkg::FLAGS_NO_NOTICE_BIT;
    wire flags_allowed = (flags & ~ALLOWED_FLAGS) == 32'h0
        && !(flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT] && flags[ni_pkg::FLAGS_NO_NOTICE_BIT]);
    wire [7:0] scheme = header[ni_pkg::WINDOW_HEADER_SCHEME_LSB+:8];
    wire scheme_known = 32'(scheme) == ni_pkg::SCHEME_REGISTRY || 32'(scheme) == ni_pkg::SCHEME_RECEIVER_WINDOW
        || 32'(scheme) == ni_pkg::SCHEME_ADAPTIVE_WINDOW || 32'(scheme) == ni_pkg::SCHEME_SELECTIVE;
    wire [7:0] paths = header[ni_pkg::WINDOW_HEADER_PATHS_LSB+:8];
    wire common_rules = known && flags_allowed && scheme_known && paths <= 8'(is_data)
        && header[ni_pkg::WINDOW_HEADER_RESERVED2_LSB+:ni_pkg::WINDOW_HEADER_RESERVED2_WIDTH] == '0
        && header[ni_pkg::WINDOW_HEADER_RESERVED3_LSB+:32] == 32'h0
        && header[ni_pkg::WINDOW_HEADER_DESTINATION_LSB+:32] != ni_pkg::NODE_ANY;

    // Fields of one kind only.
    wire no_command = scheme == 8'h0 && header[ni_pkg::WINDOW_HEADER_PRIORITY_LSB+:8] == 8'h0
        && header[ni_pkg::WINDOW_HEADER_COMMAND_LSB+:32] == 32'h0
        && header[ni_pkg::WINDOW_HEADER_PATIENCE_LSB+:64] == 64'h0;
    wire [31:0] receiver = header[ni_pkg::WINDOW_HEADER_RECEIVER_LSB+:32];
    wire [15:0] rate = header[ni_pkg::WINDOW_HEADER_RATE_LSB+:16];
    wire [15:0] queue = header[ni_pkg::WINDOW_HEADER_QUEUE_LSB+:16];
    wire no_load = receiver == 32'h0 && rate == 16'h0 && queue == 16'h0;
    wire no_link = no_load && header[ni_pkg::WINDOW_HEADER_NUMBER_LSB+:32] == 32'h0;
    wire load_rules = receiver != ni_pkg::NODE_ANY && rate <= ni_pkg::LINK_WHOLE && queue <= ni_pkg::LINK_WHOLE;
    wire [15:0] count = header[ni_pkg::WINDOW_HEADER_PACKET_COUNT_LSB+:16];
    wire has_length = header[ni_pkg::WINDOW_HEADER_TRANSFER_LENGTH_LSB+:64] != 64'h0;
    wire kind_rules = (is_command || no_command) && (is_inquiry || is_active || no_link)
        && (is_data || count == 16'h0) && (!(is_arrival || is_command) || has_length) && (!is_inquiry || no_load)
        && (!is_active || load_rules);

    // Segment (section 3.4) and the packets of the window in it.
    wire [31:0] behind = header[ni_pkg::WINDOW_HEADER_OLDEST_LIVE_LSB+:32]
        - header[ni_pkg::WINDOW_HEADER_TRANSFER_LSB+:32];
    wire older = behind != 32'h0 && (!behind[31] || behind == 32'h8000_0000);
    wire [31:0] segment = header[ni_pkg::WINDOW_HEADER_SEGMENT_LSB+:32];
    wire [31:0] segment_count = header[ni_pkg::WINDOW_HEADER_SEGMENT_COUNT_LSB+:32];
    wire [7:0] size_log2 = header[ni_pkg::WINDOW_HEADER_PACKET_SIZE_LOG2_LSB+:8];
    wire size_valid = size_log2 >= ni_pkg::PACKET_SIZE_LOG2_MIN && size_log2 <= ni_pkg::PACKET_SIZE_LOG2_MAX;
    wire [31:0] length = header[ni_pkg::WINDOW_HEADER_SEGMENT_LENGTH_LSB+:32];
    wire [31:0] length_less_one = length - 32'd1;
    wire [31:0] last = length_less_one >> size_log2[3:0];
    wire [15:0] packets = header[ni_pkg::WINDOW_HEADER_SEGMENT_PACKETS_LSB+:16];
    wire [15:0] first = header[ni_pkg::WINDOW_HEADER_FIRST_PACKET_LSB+:16];
    wire [16:0] end_packet = 17'(first) + 17'(count);
    wire segment_rules = !older && size_valid && segment < segment_count && length != 32'h0
        && last < 32'(ni_pkg::SEGMENT_PACKETS_MAX) && 32'(packets) == last + 32'd1 && count != 16'h0
        && end_packet <= 17'(packets);

    // Payload in the window: the bytes of all its packets are full, except those of the segment's last one. Valid for packet sizes of
    // this build, whose segments have up to 2^20 bytes.
    localparam logic [20:0] PAYLOAD_SIZE = 21'(MASK_BITS << PACKET_LOG2);
    wire [20:0] full = 21'(count[8:0]) << size_log2[3:0];
    wire [20:0] rest = length[20:0] - (21'(first[7:0]) << size_log2[3:0]);
    wire [20:0] payload = full < rest ? full : rest;
    wire [12:0] size = 13'd1 << size_log2[3:0];

    wire inner_valid;
    wire outer_valid;
    wire contained;
    wire same_start;
    wire same_end;
    wire [63:0] inner_length = is_command ? header[ni_pkg::WINDOW_HEADER_TRANSFER_LENGTH_LSB+:64] : 64'(length);
    ni_ranges ranges (
        .clk(clk), .hold(1'b0), .inner_start(header[ni_pkg::WINDOW_HEADER_BASE_LSB+:64]), .inner_length(inner_length),
        .outer_start(header[ni_pkg::WINDOW_HEADER_TRANSFER_BASE_LSB+:64]),
        .outer_length(header[ni_pkg::WINDOW_HEADER_TRANSFER_LENGTH_LSB+:64]), .inner_valid(inner_valid),
        .outer_valid(outer_valid), .contained(contained), .same_start(same_start), .same_end(same_end)
    );

    logic rules;
    logic checks_segment;
    logic checks_inner;
    logic checks_outer;
    logic is_first_segment;
    logic is_last_segment;
    always_ff @(posedge clk) begin
        rules <= common_rules && kind_rules && (!is_data || segment_rules);
        checks_segment <= is_data;
        checks_inner <= is_data || is_command;
        checks_outer <= is_data || is_command || is_arrival;
        is_first_segment <= segment == 32'h0;
        is_last_segment <= segment + 32'd1 == segment_count;
        fits <= !is_data || size_log2 <= 8'(PACKET_LOG2) && payload <= PAYLOAD_SIZE;
        last_index <= last[7:0];
        last_length <= (length_less_one[12:0] & (size - 13'd1)) + 13'd1;
    end

    assign valid = rules && (!checks_inner || inner_valid) && (!checks_outer || outer_valid)
        && (!checks_segment || contained && same_start == is_first_segment && same_end == is_last_segment);
    // Without a rule: KEY, TRIES, PATH.
    wire unused = &{1'b0, header};
endmodule
