// Block ni: what the host sets, and parameters of the build.
//
// Protocol: `write` is a pulse with the register's offset and value; `taken` tells in the same cycle whether the value is valid, otherwise
// the old one stays (fault BadSetting). `word` is the readable value at `register_offset`. Registers of the event ring are ni_events'.
// Latency: a setting changes in the cycle after its write. Reset: the reset values of the map.
//
// The NI runs the registry scheme and, with MESSAGE_CONTEXTS, as an alternative the scheme receiver-window, as receiver only. Of other schemes
// the settings are stored, and used by nothing.

`timescale 1ns / 1ps

module ni_settings #(
    parameter int NODE_ID = 0,
    parameter int PACKET_LOG2 = 12,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    // Receive contexts of messages; 0: registry scheme only. Maximum window.
    parameter int MESSAGE_CONTEXTS = 0,
    parameter int MESSAGE_WINDOW = 128,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 64,
    parameter int WINDOWS = 8,
    parameter int FAULT_ENTRIES = 64,
    parameter logic [63:0] WINDOW_BASE = 64'h1_0000_0000,
    parameter logic [63:0] MEMORY_BASE = 64'h0,
    parameter logic [63:0] MEMORY_SIZE = 64'h100_0000
) (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         write,
    input  wire  [11:0] register_offset,
    input  wire  [31:0] value,
    output logic        taken,
    output logic [31:0] word,

    // Settings.
    output logic [31:0] node,
    output logic [31:0] incarnation,
    output wire         enable,
    output wire         event_enable,
    output wire         packet_events,
    // Nanoseconds.
    output wire  [63:0] escape_timeout,
    output wire  [63:0] registry_timeout,
    output wire  [63:0] packet_lifetime,
    output logic [31:0] registry_timeout_us,
    output logic        timeouts_changed,
    // Whether the scheme is receiver-window, and its parameters.
    output wire         receives_messages,
    output wire  [7:0]  message_window,
    output wire         message_credit,
    output wire  [7:0]  message_patience,
    output logic [31:0] round_trip_ns,

    // In the cycle of the write: CONTROL.RESET; a write to SCHEME or SCHEMES_ON, or to a parameter of the message scheme that is active, which
    // clears the receiver; a HELLO to node `value`.
    output wire         clear,
    output wire         clear_receiver,
    output wire         hello,

    // Event ring.
    output wire         ring_write,
    input  wire         ring_taken,
    input  wire  [63:0] ring_base,
    input  wire  [16:0] ring_size,
    input  wire  [31:0] ring_consumed,
    input  wire  [31:0] ring_produced,
    input  wire  [31:0] ring_posted,
    input  wire  [31:0] ring_overflows,
    input  wire  [31:0] ring_dropped,
    input  wire  [31:0] ring_interrupt,

    // State.
    input  wire  [31:0] windows_free,
    input  wire         transmitting,
    input  wire         has_faults
);
    localparam int PAYLOAD_OFFSET = 32'h1000;
    localparam int COMMIT_OFFSET = 32'hfc0;
    localparam int PAYLOAD_SIZE = MASK_BITS << PACKET_LOG2;
    localparam int WINDOW_STRIDE = 1 << $clog2(PAYLOAD_OFFSET + PAYLOAD_SIZE);
    localparam int MESSAGE_PACKETS_MAX = 4096;
    localparam logic [31:0] SCHEMES = (32'd1 << ni_pkg::SCHEME_REGISTRY)
        | (MESSAGE_CONTEXTS != 0 ? 32'd1 << ni_pkg::SCHEME_RECEIVER_WINDOW : 32'd0);
    // Requests for a hole before everything is requested (8.7).
    localparam logic [7:0] DEFAULT_PATIENCE = 8'd3;
    localparam int CONTROL_ENABLE = ni_pkg::REG_NI_CONTROL_ENABLE_LSB;
    localparam int CONTROL_RESET = ni_pkg::REG_NI_CONTROL_RESET_LSB;
    localparam int CONTROL_EVENT_ENABLE = ni_pkg::REG_NI_CONTROL_EVENT_ENABLE_LSB;
    localparam int CONTROL_PACKET_EVENTS = ni_pkg::REG_NI_CONTROL_PACKET_EVENTS_LSB;

    logic [31:0] control;
    logic [31:0] threshold;
    logic [31:0] escape_timeout_us;
    logic [31:0] packet_lifetime_us;
    logic [31:0] give_up_us;
    logic [31:0] message_packets;
    logic [31:0] paths;
    logic [31:0] congestion;
    logic [31:0] scheme;
    logic [31:0] schemes_on;
    logic [31:0] receiver_window;
    logic [31:0] adaptive_window;
    logic [31:0] selective_window;
    logic [31:0] receiver_window_options;
    logic [31:0] adaptive_options;
    logic [31:0] adaptive_walk_ns;
    logic [31:0] link_controller;
    logic [31:0] link_rate_mbps;

    assign enable = control[CONTROL_ENABLE];
    assign event_enable = control[CONTROL_EVENT_ENABLE];
    assign packet_events = control[CONTROL_PACKET_EVENTS];

    // Values that are valid (10.7). ----------------------------------------------------------------------------------------------------------

    // A ring can be enabled only if it has entries.
    wire wants_events = value[CONTROL_EVENT_ENABLE];
    wire can_enable_events = !wants_events || event_enable || ring_size != 0;
    wire [8:0] samples = value[ni_pkg::REG_NI_ADAPTIVE_OPTIONS_SAMPLES_LSB+:ni_pkg::REG_NI_ADAPTIVE_OPTIONS_SAMPLES_WIDTH];

    logic fits;
    logic is_ring;
    logic only_disabled;
    always_comb begin
        fits = 1'b1;
        is_ring = 1'b0;
        only_disabled = 1'b0;
        case (register_offset)
            ni_pkg::REG_NI_NODE_ID: fits = value != ni_pkg::NODE_ANY;
            ni_pkg::REG_NI_CONTROL: fits = can_enable_events;
            ni_pkg::REG_NI_GIVE_UP_US: fits = value != 0;
            ni_pkg::REG_NI_HELLO: fits = value != ni_pkg::NODE_ANY && enable;
            ni_pkg::REG_NI_INCARNATION, ni_pkg::REG_NI_THRESHOLD, ni_pkg::REG_NI_ESCAPE_TIMEOUT_US, ni_pkg::REG_NI_REGISTRY_TIMEOUT_US,
            ni_pkg::REG_NI_PACKET_LIFETIME_US, ni_pkg::REG_NI_COMMAND_CANCEL:
            fits = 1'b1;
            default: only_disabled = 1'b1;
        endcase
        if (only_disabled)
            case (register_offset)
                ni_pkg::REG_NI_SCHEME_WINDOW_0, ni_pkg::REG_NI_SCHEME_WINDOW_2, ni_pkg::REG_NI_SCHEME_WINDOW_3: fits = value == 0;
                // One scheme at a time, named by SCHEMES_ON or not. There is no link feedback.
                ni_pkg::REG_NI_SCHEME: fits = value < 32 && SCHEMES[value[4:0]] && (schemes_on & ~(32'd1 << value[4:0])) == 0;
                ni_pkg::REG_NI_SCHEMES_ON: fits = (value & ~(32'd1 << scheme[4:0])) == 0;
                ni_pkg::REG_NI_LINK_CONTROL: fits = value == 0;
                ni_pkg::REG_NI_ROUND_TRIP_NS, ni_pkg::REG_NI_LINK_RATE_MBPS: fits = value != 0;
                ni_pkg::REG_NI_MESSAGE_PACKETS: fits = value != 0 && value <= MESSAGE_PACKETS_MAX;
                ni_pkg::REG_NI_PATHS: fits = value != 0 && value <= {16'b0, ni_pkg::PATHS_MAX};
                ni_pkg::REG_NI_CONGESTION: fits = value <= 1;
                ni_pkg::REG_NI_SCHEME_WINDOW_1: fits = value <= MESSAGE_WINDOW;
                ni_pkg::REG_NI_SCHEME_WINDOW_4: fits = value <= 128;
                ni_pkg::REG_NI_SCHEME_WINDOW_5: fits = value <= 512;
                ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS: fits = (value & ~32'h0000_ff01) == 0;
                ni_pkg::REG_NI_ADAPTIVE_OPTIONS: fits = (value & ~32'h0001_ff01) == 0 && samples <= 256;
                ni_pkg::REG_NI_ADAPTIVE_WALK_NS, ni_pkg::REG_NI_LINK_CONTROLLER: fits = 1'b1;
                default: is_ring = 1'b1;
            endcase
        if (is_ring) taken = ring_taken;
        else taken = fits && !(only_disabled && enable);
    end

    // Writes. ------------------------------------------------------------------------------------------------------------------------------

    wire is_control = register_offset == ni_pkg::REG_NI_CONTROL;
    wire is_scheme = register_offset == ni_pkg::REG_NI_SCHEME || register_offset == ni_pkg::REG_NI_SCHEMES_ON;
    wire set = write && taken && !is_ring;
    assign ring_write = write && is_ring;
    assign clear = write && is_control && value[CONTROL_RESET];
    assign clear_receiver = set && (is_scheme || (only_disabled && receives_messages));
    assign hello = set && register_offset == ni_pkg::REG_NI_HELLO;

    // The bits of CONTROL that keep their value. An invalid EVENT_ENABLE does not prevent the others.
    logic [31:0] next_control;
    wire wants_enable = value[CONTROL_ENABLE];
    wire wants_packet_events = value[CONTROL_PACKET_EVENTS];
    always_comb begin
        next_control = '0;
        next_control[CONTROL_ENABLE] = wants_enable;
        next_control[CONTROL_PACKET_EVENTS] = wants_packet_events;
        next_control[CONTROL_EVENT_ENABLE] = wants_events && can_enable_events;
    end

    always_ff @(posedge clk) begin
        timeouts_changed <= set;
        if (!rst_n) begin
            node <= NODE_ID;
            incarnation <= ni_pkg::REG_NI_INCARNATION_RESET;
            control <= ni_pkg::REG_NI_CONTROL_RESET;
            threshold <= ni_pkg::REG_NI_THRESHOLD_RESET;
            escape_timeout_us <= ni_pkg::REG_NI_ESCAPE_TIMEOUT_US_RESET;
            registry_timeout_us <= ni_pkg::REG_NI_REGISTRY_TIMEOUT_US_RESET;
            packet_lifetime_us <= ni_pkg::REG_NI_PACKET_LIFETIME_US_RESET;
            give_up_us <= ni_pkg::REG_NI_GIVE_UP_US_RESET;
            round_trip_ns <= ni_pkg::REG_NI_ROUND_TRIP_NS_RESET;
            message_packets <= ni_pkg::REG_NI_MESSAGE_PACKETS_RESET;
            paths <= ni_pkg::REG_NI_PATHS_RESET;
            congestion <= ni_pkg::REG_NI_CONGESTION_RESET;
            scheme <= ni_pkg::REG_NI_SCHEME_RESET;
            schemes_on <= ni_pkg::REG_NI_SCHEMES_ON_RESET;
            receiver_window <= ni_pkg::REG_NI_SCHEME_WINDOW_1_RESET;
            adaptive_window <= ni_pkg::REG_NI_SCHEME_WINDOW_4_RESET;
            selective_window <= ni_pkg::REG_NI_SCHEME_WINDOW_5_RESET;
            receiver_window_options <= ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS_RESET;
            adaptive_options <= ni_pkg::REG_NI_ADAPTIVE_OPTIONS_RESET;
            adaptive_walk_ns <= ni_pkg::REG_NI_ADAPTIVE_WALK_NS_RESET;
            link_controller <= ni_pkg::REG_NI_LINK_CONTROLLER_RESET;
            link_rate_mbps <= ni_pkg::REG_NI_LINK_RATE_MBPS_RESET;
            timeouts_changed <= 1'b0;
        end else if (write && is_control) begin
            control <= next_control;
        end else if (set) begin
            case (register_offset)
                ni_pkg::REG_NI_NODE_ID: node <= value;
                ni_pkg::REG_NI_INCARNATION: incarnation <= value;
                ni_pkg::REG_NI_THRESHOLD: threshold <= value;
                ni_pkg::REG_NI_ESCAPE_TIMEOUT_US: escape_timeout_us <= value;
                ni_pkg::REG_NI_REGISTRY_TIMEOUT_US: registry_timeout_us <= value;
                ni_pkg::REG_NI_PACKET_LIFETIME_US: packet_lifetime_us <= value;
                ni_pkg::REG_NI_GIVE_UP_US: give_up_us <= value;
                ni_pkg::REG_NI_ROUND_TRIP_NS: round_trip_ns <= value;
                ni_pkg::REG_NI_MESSAGE_PACKETS: message_packets <= value;
                ni_pkg::REG_NI_PATHS: paths <= value;
                ni_pkg::REG_NI_CONGESTION: congestion <= value;
                ni_pkg::REG_NI_SCHEME: scheme <= value;
                ni_pkg::REG_NI_SCHEMES_ON: schemes_on <= value;
                ni_pkg::REG_NI_SCHEME_WINDOW_1: receiver_window <= value;
                ni_pkg::REG_NI_SCHEME_WINDOW_4: adaptive_window <= value;
                ni_pkg::REG_NI_SCHEME_WINDOW_5: selective_window <= value;
                ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS: receiver_window_options <= value;
                ni_pkg::REG_NI_ADAPTIVE_OPTIONS: adaptive_options <= value;
                ni_pkg::REG_NI_ADAPTIVE_WALK_NS: adaptive_walk_ns <= value;
                ni_pkg::REG_NI_LINK_CONTROLLER: link_controller <= value;
                ni_pkg::REG_NI_LINK_RATE_MBPS: link_rate_mbps <= value;
                default: ;
            endcase
        end
    end

    assign escape_timeout = {32'b0, escape_timeout_us} * 64'd1000;
    assign registry_timeout = {32'b0, registry_timeout_us} * 64'd1000;
    assign packet_lifetime = {32'b0, packet_lifetime_us} * 64'd1000;

    assign receives_messages = scheme == ni_pkg::SCHEME_RECEIVER_WINDOW;
    assign message_window = receiver_window == 0 ? 8'(MESSAGE_WINDOW) : receiver_window[7:0];
    // Where senders have congestion windows, the receiver sends limits (8.1).
    assign message_credit = receiver_window_options[ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS_CREDIT_LSB]
        || congestion[ni_pkg::REG_NI_CONGESTION_WINDOW_LSB];
    wire [7:0] resend_after = receiver_window_options[ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS_RESEND_AFTER_LSB +: 8];
    assign message_patience = resend_after == 0 ? DEFAULT_PATIENCE : resend_after;

    // Reads. -------------------------------------------------------------------------------------------------------------------------------

    logic [31:0] status;
    always_comb begin
        status = '0;
        status[ni_pkg::REG_NI_STATUS_ENABLED_LSB] = enable;
        status[ni_pkg::REG_NI_STATUS_TRANSMITTING_LSB] = transmitting;
        status[ni_pkg::REG_NI_STATUS_EVENTS_LOST_LSB] = ring_overflows != 0;
        status[ni_pkg::REG_NI_STATUS_FAULTED_LSB] = has_faults;
    end

    wire [31:0] ring_base_low = ring_base[31:0];
    wire [31:0] ring_base_high = ring_base[63:32];

    always_comb begin
        case (register_offset)
            ni_pkg::REG_NI_NODE_ID: word = node;
            ni_pkg::REG_NI_INCARNATION: word = incarnation;
            ni_pkg::REG_NI_CONTROL: word = control;
            ni_pkg::REG_NI_STATUS: word = status;
            ni_pkg::REG_NI_PACKET_SIZE_LOG2: word = PACKET_LOG2;
            ni_pkg::REG_NI_MASK_BITS: word = MASK_BITS;
            ni_pkg::REG_NI_REGISTRY_ENTRIES: word = receives_messages ? MESSAGE_CONTEXTS : ENTRIES;
            ni_pkg::REG_NI_ESCAPE_SLOTS: word = ESCAPE_SLOTS;
            ni_pkg::REG_NI_MEMORY_WINDOW_COUNT: word = MEMORY_WINDOWS;
            ni_pkg::REG_NI_SCHEMES: word = SCHEMES;
            ni_pkg::REG_NI_FAULT_LOG_ENTRIES: word = FAULT_ENTRIES;
            ni_pkg::REG_NI_WINDOW_COUNT: word = WINDOWS;
            ni_pkg::REG_NI_WINDOW_STRIDE: word = WINDOW_STRIDE;
            ni_pkg::REG_NI_WINDOW_BASE_LOW: word = WINDOW_BASE[31:0];
            ni_pkg::REG_NI_WINDOW_BASE_HIGH: word = WINDOW_BASE[63:32];
            ni_pkg::REG_NI_WINDOW_PAYLOAD_OFFSET: word = PAYLOAD_OFFSET;
            ni_pkg::REG_NI_WINDOW_PAYLOAD_SIZE: word = PAYLOAD_SIZE;
            ni_pkg::REG_NI_WINDOW_COMMIT_OFFSET: word = COMMIT_OFFSET;
            ni_pkg::REG_NI_WINDOW_FREE: word = windows_free;
            ni_pkg::REG_NI_MEMORY_BASE_LOW: word = MEMORY_BASE[31:0];
            ni_pkg::REG_NI_MEMORY_BASE_HIGH: word = MEMORY_BASE[63:32];
            ni_pkg::REG_NI_MEMORY_SIZE_LOW: word = MEMORY_SIZE[31:0];
            ni_pkg::REG_NI_MEMORY_SIZE_HIGH: word = MEMORY_SIZE[63:32];
            ni_pkg::REG_NI_THRESHOLD: word = threshold;
            ni_pkg::REG_NI_ESCAPE_TIMEOUT_US: word = escape_timeout_us;
            ni_pkg::REG_NI_REGISTRY_TIMEOUT_US: word = registry_timeout_us;
            ni_pkg::REG_NI_PACKET_LIFETIME_US: word = packet_lifetime_us;
            ni_pkg::REG_NI_GIVE_UP_US: word = give_up_us;
            ni_pkg::REG_NI_ROUND_TRIP_NS: word = round_trip_ns;
            ni_pkg::REG_NI_EVENT_RING_BASE_LOW: word = ring_base_low;
            ni_pkg::REG_NI_EVENT_RING_BASE_HIGH: word = ring_base_high;
            ni_pkg::REG_NI_EVENT_RING_SIZE: word = {15'b0, ring_size};
            ni_pkg::REG_NI_EVENT_CONSUMED: word = ring_consumed;
            ni_pkg::REG_NI_EVENT_PRODUCED: word = ring_produced;
            ni_pkg::REG_NI_EVENT_OVERFLOWS: word = ring_overflows;
            ni_pkg::REG_NI_EVENT_INTERRUPT: word = ring_interrupt;
            ni_pkg::REG_NI_EVENT_POSTED: word = ring_posted;
            ni_pkg::REG_NI_EVENTS_DROPPED: word = ring_dropped;
            ni_pkg::REG_NI_MESSAGE_PACKETS: word = message_packets;
            ni_pkg::REG_NI_SCHEME: word = scheme;
            ni_pkg::REG_NI_SCHEMES_ON: word = schemes_on;
            ni_pkg::REG_NI_SCHEME_WINDOW_1: word = receiver_window;
            ni_pkg::REG_NI_SCHEME_WINDOW_4: word = adaptive_window;
            ni_pkg::REG_NI_SCHEME_WINDOW_5: word = selective_window;
            ni_pkg::REG_NI_RECEIVER_WINDOW_OPTIONS: word = receiver_window_options;
            ni_pkg::REG_NI_ADAPTIVE_OPTIONS: word = adaptive_options;
            ni_pkg::REG_NI_ADAPTIVE_WALK_NS: word = adaptive_walk_ns;
            ni_pkg::REG_NI_LINK_CONTROLLER: word = link_controller;
            ni_pkg::REG_NI_LINK_RATE_MBPS: word = link_rate_mbps;
            ni_pkg::REG_NI_PATHS: word = paths;
            ni_pkg::REG_NI_CONGESTION: word = congestion;
            // COMMAND_ENTRIES, SENDING_CONTEXTS and RATE_ENTRIES are 0: the host is the sender. OP_TABLE_ENTRIES: the host has the op table.
            default: word = '0;
        endcase
    end
endmodule
