// Rules of the packet formats (protocol sections 3.2 to 3.13), for a frame whose checksum is right.
//
// Protocol: none; the outputs belong to the inputs of the cycle before, unless `hold` keeps them. Latency: 1 cycle. Reset: none needed.
//
// The rules depend only on the packet: not checked here are DESTINATION, keys, memory windows, and whether a packet fits its segment.

`timescale 1ns / 1ps

module ni_rx_rules (
    input  wire          clk,
    input  wire          hold,
    // First 88 bytes of the frame. Bytes after its end, and after the header of its kind, may have any value.
    input  wire  [703:0] header,
    // Bytes of the header of its kind.
    input  wire  [6:0]   header_length,
    // Bytes of the frame, checksum included; 131071 for more.
    input  wire  [16:0]  frame_length,
    // Exactly one of the three: the packet may be handed on; it counts as TRIMMED; it breaks a rule.
    output wire          good,
    output wire          trimmed,
    output wire          bad
);
    // Common header.
    wire [7:0] kind = header[ni_pkg::COMMON_KIND_LSB+:8];
    wire [7:0] flags = header[ni_pkg::COMMON_FLAGS_LSB+:8];
    wire is_trimmed = flags[ni_pkg::FLAGS_TRIMMED_BIT];

    wire is_data = kind == ni_pkg::PACKET_KIND_DATA;
    wire is_start = kind == ni_pkg::PACKET_KIND_START;
    wire is_ack = kind == ni_pkg::PACKET_KIND_ACK;
    wire is_nack = kind == ni_pkg::PACKET_KIND_NACK;
    wire is_segment_done = kind == ni_pkg::PACKET_KIND_SEGMENT_DONE;
    wire is_arrived = kind == ni_pkg::PACKET_KIND_ARRIVED;
    wire is_hello = kind == ni_pkg::PACKET_KIND_HELLO || kind == ni_pkg::PACKET_KIND_HELLO_REPLY;
    wire is_request = kind == ni_pkg::PACKET_KIND_MESSAGE_REQUEST;
    wire is_message_data = kind == ni_pkg::PACKET_KIND_MESSAGE_DATA;
    wire is_message_start = kind == ni_pkg::PACKET_KIND_MESSAGE_START;
    wire is_answer = kind == ni_pkg::PACKET_KIND_MESSAGE_ANSWER;
    wire is_map = kind == ni_pkg::PACKET_KIND_MESSAGE_MAP;
    wire is_read = kind == ni_pkg::PACKET_KIND_READ_REQUEST;
    wire is_passive = kind == ni_pkg::PACKET_KIND_LINK_PASSIVE;
    wire is_active = kind == ni_pkg::PACKET_KIND_LINK_ACTIVE;
    wire is_slow = kind == ni_pkg::PACKET_KIND_LINK_SLOW;

    wire segment = is_data || is_start;
    wire message = is_message_data || is_message_start;
    wire known = header[ni_pkg::COMMON_VERSION_LSB+:8] == ni_pkg::WIRE_VERSION
        && kind >= ni_pkg::PACKET_KIND_DATA && kind <= ni_pkg::PACKET_KIND_LINK_SLOW;

    // Flags allowed for the kind (section 3.3).
    logic [7:0] allowed;
    always_comb begin
        allowed = 8'h0;
        allowed[ni_pkg::FLAGS_MARKED_BIT] = 1'b1;
        allowed[ni_pkg::FLAGS_SILENT_BIT] = segment;
        allowed[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT] = segment;
        allowed[ni_pkg::FLAGS_NO_NOTICE_BIT] = segment || is_request || is_message_start;
        allowed[ni_pkg::FLAGS_TRIMMED_BIT] = segment;
        allowed[ni_pkg::FLAGS_LAST_HOP_BIT] = is_passive || is_active || is_slow;
        allowed[ni_pkg::FLAGS_ECHO_BIT] = is_ack || is_nack || is_answer || is_map;
    end
    wire flags_allowed = (flags & ~allowed) == 8'h0
        && !(flags[ni_pkg::FLAGS_NOTIFY_RECEIVER_BIT] && flags[ni_pkg::FLAGS_NO_NOTICE_BIT]);
    wire nodes = header[ni_pkg::COMMON_SOURCE_LSB+:32] != ni_pkg::NODE_ANY
        && header[ni_pkg::COMMON_DESTINATION_LSB+:32] != ni_pkg::NODE_ANY;

    // Length: header, payload and checksum.
    wire [15:0] payload_length = segment ? header[ni_pkg::DATA_PAYLOAD_LENGTH_LSB+:16]
        : message ? header[ni_pkg::MESSAGE_DATA_PAYLOAD_LENGTH_LSB+:16] : 16'h0;
    wire length = frame_length == 17'(header_length) + 17'(payload_length) + 17'd4;

    // Reserved fields. Bytes that only START has are not looked at in DATA.
    wire reserved = !(is_start && header[ni_pkg::START_RESERVED_LSB+:16] != 16'h0)
        && !(is_segment_done && header[ni_pkg::SEGMENT_DONE_RESERVED_LSB+:32] != 32'h0)
        && !(is_arrived && header[ni_pkg::ARRIVED_RESERVED_LSB+:32] != 32'h0)
        && !(is_request && header[ni_pkg::MESSAGE_REQUEST_RESERVED_LSB+:16] != 16'h0)
        && !(message && (header[ni_pkg::MESSAGE_DATA_RESERVED_LSB+:8] != 8'h0
            || header[ni_pkg::MESSAGE_DATA_TAIL_LSB+:8] > 8'd1))
        && !(is_read && header[ni_pkg::READ_REQUEST_RESERVED_LSB+:32] != 32'h0);

    // Packet size and the part of a segment or message that one packet is.
    wire [7:0] size_log2 = segment ? header[ni_pkg::DATA_PACKET_SIZE_LOG2_LSB+:8]
        : message ? header[ni_pkg::MESSAGE_DATA_PACKET_SIZE_LOG2_LSB+:8]
        : is_request ? header[ni_pkg::MESSAGE_REQUEST_PACKET_SIZE_LOG2_LSB+:8]
        : header[ni_pkg::HELLO_PACKET_SIZE_LOG2_LSB+:8];
    wire has_size = segment || message || is_request || is_hello;
    wire size_valid = size_log2 >= ni_pkg::PACKET_SIZE_LOG2_MIN && size_log2 <= ni_pkg::PACKET_SIZE_LOG2_MAX;
    wire [15:0] size = 16'h1 << size_log2[3:0];

    wire [31:0] whole = is_start ? header[ni_pkg::START_SEGMENT_LENGTH_LSB+:32]
        : is_request ? header[ni_pkg::MESSAGE_REQUEST_LENGTH_LSB+:32]
        : header[ni_pkg::MESSAGE_START_LENGTH_LSB+:32];
    wire [31:0] whole_less_one = whole - 32'd1;
    // Index of the last packet, and its bytes less one.
    wire [31:0] last_index = whole_less_one >> size_log2[3:0];
    wire [15:0] last_length_less_one = whole_less_one[15:0] & (size - 16'd1);
    wire [15:0] payload_less_one = payload_length - 16'd1;

    wire payload_fits = payload_length <= size;
    wire segment_payload = (payload_length == 16'h0) == is_trimmed && payload_fits;

    // DATA and START (section 3.4). A transfer is older than another if it is behind by at most 2^31.
    wire [31:0] behind = header[ni_pkg::DATA_OLDEST_LIVE_LSB+:32] - header[ni_pkg::DATA_TRANSFER_LSB+:32];
    wire older = behind != 32'h0 && (!behind[31] || behind == 32'h8000_0000);
    wire [31:0] index = header[ni_pkg::DATA_SEGMENT_LSB+:32];
    wire [31:0] count = header[ni_pkg::DATA_SEGMENT_COUNT_LSB+:32];
    wire segment_rules = segment_payload && index < count && !older;
    wire first_payload = payload_length == 16'h0
        || (last_index == 32'h0 ? payload_less_one == last_length_less_one : payload_length == size);
    wire start_rules = header[ni_pkg::START_BASE_LSB+:64] == header[ni_pkg::DATA_ADDRESS_LSB+:64]
        && whole != 32'h0 && last_index < 32'(ni_pkg::SEGMENT_PACKETS_MAX)
        && 32'(header[ni_pkg::START_PACKETS_LSB+:16]) == last_index + 32'd1 && first_payload;

    // Messages (sections 3.9 and 3.10): at most 4096 packets.
    wire [7:0] scheme = is_request ? header[ni_pkg::MESSAGE_REQUEST_SCHEME_LSB+:8]
        : header[ni_pkg::MESSAGE_DATA_SCHEME_LSB+:8];
    wire scheme_rule = 32'(scheme) == ni_pkg::SCHEME_RECEIVER_WINDOW
        || 32'(scheme) == ni_pkg::SCHEME_ADAPTIVE_WINDOW || 32'(scheme) == ni_pkg::SCHEME_SELECTIVE;
    wire [63:0] transfer_length = is_request ? header[ni_pkg::MESSAGE_REQUEST_TRANSFER_LENGTH_LSB+:64]
        : header[ni_pkg::MESSAGE_START_TRANSFER_LENGTH_LSB+:64];
    wire [31:0] left = is_request ? header[ni_pkg::MESSAGE_REQUEST_LEFT_LSB+:32]
        : header[ni_pkg::MESSAGE_START_LEFT_LSB+:32];
    // A transfer shorter than the message is refused by the ranges.
    wire [63:0] others = transfer_length - 64'(whole);
    wire announcement_rules = whole != 32'h0 && last_index < 32'd4096 && 64'(left) <= others;
    wire [15:0] packet_index = header[ni_pkg::MESSAGE_DATA_INDEX_LSB+:16];
    wire tail = header[ni_pkg::MESSAGE_DATA_TAIL_LSB];
    wire is_last = 32'(packet_index) == last_index;
    wire message_rules = payload_length != 16'h0 && payload_fits && packet_index < 16'd4096
        && (is_message_data ? tail || payload_length == size
            : tail == is_last && 32'(packet_index) <= last_index
                && (is_last ? payload_less_one == last_length_less_one : payload_length == size));

    // Answers (sections 3.5 and 3.11).
    wire [7:0] reason = is_nack ? header[ni_pkg::ACK_REASON_LSB+:8] : header[ni_pkg::MESSAGE_ANSWER_REASON_LSB+:8];
    wire reason_known = reason >= ni_pkg::NACK_REASON_BUSY && reason <= ni_pkg::NACK_REASON_TRIMMED;
    wire first_zero = header[ni_pkg::MESSAGE_ANSWER_FIRST_LSB+:32] == 32'h0;
    wire [31:0] last = header[ni_pkg::MESSAGE_ANSWER_LAST_LSB+:32];
    wire last_zero = last == 32'h0;
    wire ahead_zero = header[ni_pkg::MESSAGE_ANSWER_AHEAD_LSB+:16] == 16'h0;
    wire [7:0] answer = header[ni_pkg::MESSAGE_ANSWER_ANSWER_LSB+:8];
    wire no_duplicate = !reason[7];
    wire refused_fields = reason == ni_pkg::NACK_REASON_SUPERSEDED ? last_zero : first_zero && last[31:16] == 16'h0;
    logic answer_rules;
    always_comb begin
        case (answer)
            ni_pkg::ANSWER_KIND_ACCEPTED, ni_pkg::ANSWER_KIND_DONE:
                answer_rules = first_zero && last_zero && no_duplicate && ahead_zero;
            ni_pkg::ANSWER_KIND_REFUSED: answer_rules = reason_known && ahead_zero && refused_fields;
            ni_pkg::ANSWER_KIND_RESEND: answer_rules = no_duplicate && ahead_zero;
            ni_pkg::ANSWER_KIND_LIMIT: answer_rules = no_duplicate;
            ni_pkg::ANSWER_KIND_READ_ACCEPTED:
                answer_rules = first_zero && last_zero && reason == 8'h0 && ahead_zero;
            ni_pkg::ANSWER_KIND_READ_REFUSED: answer_rules = reason_known && first_zero && last_zero && ahead_zero;
            default: answer_rules = 1'b0;
        endcase
    end
    wire map_rule = answer == ni_pkg::ANSWER_KIND_MAP;

    // HELLO and HELLO_REPLY (section 3.8), READ_REQUEST (3.12), ARRIVED (3.7).
    wire [15:0] mask_bits = header[ni_pkg::HELLO_MASK_BITS_LSB+:16];
    wire hello_rules = header[ni_pkg::HELLO_WIRE_VERSION_LSB+:8] >= ni_pkg::WIRE_VERSION && mask_bits != 16'h0
        && mask_bits <= ni_pkg::SEGMENT_PACKETS_MAX;
    wire read_rules = header[ni_pkg::READ_REQUEST_READ_LSB+:32] != 32'h0
        && header[ni_pkg::READ_REQUEST_LENGTH_LSB+:64] != 64'h0;
    wire arrived_rules = header[ni_pkg::ARRIVED_LENGTH_LSB+:64] != 64'h0;

    // Link feedback (section 3.13). LINK_PASSIVE and LINK_ACTIVE have RECEIVER and the load at the same positions.
    wire load_rules = header[ni_pkg::LINK_ACTIVE_RECEIVER_LSB+:32] != ni_pkg::NODE_ANY
        && header[ni_pkg::LINK_ACTIVE_RATE_LSB+:16] <= ni_pkg::LINK_WHOLE
        && header[ni_pkg::LINK_ACTIVE_QUEUE_LSB+:16] <= ni_pkg::LINK_WHOLE;
    // SENDER of LINK_ACTIVE and RECEIVER of LINK_SLOW.
    wire first_node = header[ni_pkg::LINK_ACTIVE_SENDER_LSB+:32] != ni_pkg::NODE_ANY;

    wire rules = known && nodes && length && reserved && (!has_size || size_valid)
        && (!segment || segment_rules) && (!is_start || start_rules) && (!is_nack || reason_known)
        && (!is_arrived || arrived_rules) && (!is_hello || hello_rules)
        && (!(message || is_request) || scheme_rule) && (!(is_request || is_message_start) || announcement_rules)
        && (!message || message_rules) && (!is_answer || answer_rules) && (!is_map || map_rule)
        && (!is_read || read_rules) && (!(is_passive || is_active) || load_rules)
        && (!(is_active || is_slow) || first_node);

    // Ranges: of the payload, segment, message, transfer or read, and of the transfer that contains it.
    wire [63:0] inner_start = is_start ? header[ni_pkg::START_BASE_LSB+:64]
        : is_arrived ? header[ni_pkg::ARRIVED_ADDRESS_LSB+:64]
        : is_request ? header[ni_pkg::MESSAGE_REQUEST_BASE_LSB+:64]
        : is_message_start ? header[ni_pkg::MESSAGE_START_BASE_LSB+:64]
        : is_read ? header[ni_pkg::READ_REQUEST_FROM_LSB+:64] : header[ni_pkg::DATA_ADDRESS_LSB+:64];
    wire [63:0] inner_length = is_start || is_request || is_message_start ? 64'(whole)
        : is_arrived ? header[ni_pkg::ARRIVED_LENGTH_LSB+:64]
        : is_read ? header[ni_pkg::READ_REQUEST_LENGTH_LSB+:64] : 64'(payload_length);
    wire [63:0] outer_start = is_start ? header[ni_pkg::START_TRANSFER_BASE_LSB+:64]
        : is_request ? header[ni_pkg::MESSAGE_REQUEST_TRANSFER_BASE_LSB+:64]
        : is_read ? header[ni_pkg::READ_REQUEST_BASE_LSB+:64] : header[ni_pkg::MESSAGE_START_TRANSFER_BASE_LSB+:64];
    wire [63:0] outer_length = is_start ? header[ni_pkg::START_TRANSFER_LENGTH_LSB+:64]
        : is_read ? header[ni_pkg::READ_REQUEST_LENGTH_LSB+:64] : transfer_length;

    wire inner_valid;
    wire outer_valid;
    wire contained;
    wire same_start;
    wire same_end;
    ni_ranges ranges (
        .clk(clk), .hold(hold), .inner_start(inner_start), .inner_length(inner_length), .outer_start(outer_start),
        .outer_length(outer_length), .inner_valid(inner_valid), .outer_valid(outer_valid), .contained(contained),
        .same_start(same_start), .same_end(same_end)
    );

    // Second cycle: the results of the ranges.
    logic rules_kept;
    logic flags_broken;
    logic counts_trimmed;
    logic checks_inner;
    logic checks_outer;
    logic checks_inside;
    logic checks_ends;
    logic is_first_segment;
    logic is_last_segment;

    always_ff @(posedge clk) begin
        if (!hold) begin
            rules_kept <= rules;
            flags_broken <= known && !flags_allowed;
            counts_trimmed <= is_trimmed;
            checks_inner <= segment || is_arrived || is_request || is_message_start || is_read;
            checks_outer <= is_start || is_request || is_message_start || is_read;
            checks_inside <= is_start || is_request || is_message_start;
            checks_ends <= is_start;
            is_first_segment <= index == 32'h0;
            // INDEX < COUNT is checked: the sum does not wrap.
            is_last_segment <= index + 32'd1 == count;
        end
    end

    wire ranges_kept = (!checks_inner || inner_valid) && (!checks_outer || outer_valid)
        && (!checks_inside || contained)
        && (!checks_ends || (same_start == is_first_segment && same_end == is_last_segment));
    // A switch has trimmed a packet of a kind to which a receiver has no answer: as lost.
    assign trimmed = flags_broken && counts_trimmed;
    assign good = rules_kept && !flags_broken && ranges_kept;
    assign bad = !good && !trimmed;
endmodule
