// Network port, receiving side: packet buffers, checksum, rules of the packet formats.
//
// Input: AXI4-Stream, one frame per packet, without link padding. All bytes of a beat are valid except in the last one, whose valid bytes
// are the first ones. `s_axis_tready` is low while no buffer is free: a link without back-pressure needs a buffer before this port.
//
// Output: packets that keep all rules of their kind (protocol section 3.2), in order of arrival, addressed to any node. `packet_header`,
// `packet_payload_length` and `packet_time` stay from `packet_valid` to `packet_ready`, which releases the buffer. `payload_data` is beat
// `payload_beat` of that packet's payload, from byte 0, one cycle later; it is stored up to 2^PACKET_LOG2 bytes. A longer payload is valid
// (its packet has a greater PACKET_SIZE_LOG2) and is cut off; the receiver refuses the packet by its header.
//
// Dropped: while `enable` is low, without a count; damaged frames (`count_bad_crc`); packets that break a rule (`count_bad_packet`, fault
// BadPacket); trimmed packets of a kind without an answer (`count_trimmed`). `count_received` counts every frame that is not ignored.
//
// Latency: 4 cycles from the last beat to `packet_valid`. Throughput: a beat per cycle, also across frames, until all SLOTS buffers are
// in use; a buffer is in use from the first beat to the release. A fault that is not accepted stops the port.
// Reset: drops all packets; buffers are not cleared.

`timescale 1ns / 1ps

module ni_rx #(
    // Bits of the network port: 64 to 512.
    parameter int BUS = 64,
    // Maximum payload in bytes, as a power of two: 6 to 12.
    parameter int PACKET_LOG2 = 12,
    // Packet buffers; a power of two, at least 2.
    parameter int SLOTS = 4,
    localparam int BYTES = BUS / 8,
    localparam int BEATS = (1 << PACKET_LOG2) / BYTES,
    localparam int BEAT_BITS = BEATS > 1 ? $clog2(BEATS) : 1
) (
    input  wire                  clk,
    input  wire                  rst_n,
    input  wire                  enable,
    // Nanoseconds since reset.
    input  wire  [63:0]          now,

    input  wire  [BUS-1:0]       s_axis_tdata,
    input  wire  [BUS/8-1:0]     s_axis_tkeep,
    input  wire                  s_axis_tlast,
    input  wire                  s_axis_tvalid,
    output wire                  s_axis_tready,

    output wire                  packet_valid,
    input  wire                  packet_ready,
    output wire  [703:0]         packet_header,
    output wire  [15:0]          packet_payload_length,
    output wire  [63:0]          packet_time,
    input  wire  [BEAT_BITS-1:0] payload_beat,
    output logic [BUS-1:0]       payload_data,

    output logic                 fault_valid,
    input  wire                  fault_ready,
    output logic [511:0]         fault_event,

    output logic                 count_received,
    output logic                 count_bad_crc,
    output logic                 count_trimmed,
    output logic                 count_bad_packet
);
    localparam int SLOT_BITS = $clog2(SLOTS);
    localparam int SIZE_BITS = $clog2(BYTES) + 1;
    localparam int HEADER_BEATS = (88 + BYTES - 1) / BYTES;
    // Frames are counted up to this length; no packet is as long.
    localparam logic [16:0] MAX_LENGTH = 17'h1ffff;
    localparam logic [16:0] MIN_LENGTH = 17'(ni_pkg::COMMON_BYTES + 4);

    // ---- Stage 0: a beat arrives -------------------------------------------------------------------------------------------------

    logic [SLOTS-1:0] used;
    logic [SLOT_BITS-1:0] free_slot;
    always_comb begin
        free_slot = '0;
        for (int i = SLOTS - 1; i >= 0; i = i - 1) if (!used[i]) free_slot = SLOT_BITS'(i);
    end

    logic in_frame;
    logic [SLOT_BITS-1:0] slot;
    logic [12:0] beat;
    wire advance;
    logic frame_valid;

    assign s_axis_tready = (in_frame || used != '1) && (!frame_valid || advance);
    wire take = s_axis_tvalid && s_axis_tready;
    wire [SLOT_BITS-1:0] beat_slot = in_frame ? slot : free_slot;
    wire [12:0] beat_index = in_frame ? beat : 13'd0;

    // Bytes beyond the end count as zeros (see the checksum below).
    logic [BUS-1:0] data;
    logic [SIZE_BITS-1:0] size;
    always_comb begin
        size = '0;
        for (int i = 0; i < BYTES; i = i + 1) begin
            data[8*i+:8] = s_axis_tkeep[i] ? s_axis_tdata[8*i+:8] : 8'h0;
            size = size + SIZE_BITS'(s_axis_tkeep[i]);
        end
    end

    // Checksum over the whole frame, its own checksum included: then the register has a constant value. The zeros after the end of the
    // last beat move it on to another constant for each number of them.
    function automatic logic [32*BYTES+31:0] residues(input logic [31:0] polynomial);
        logic [31:0] crc;
        crc = 32'hffff_ffff;
        for (int i = 0; i < 32; i = i + 1) crc = (crc >> 1) ^ (crc[0] ? polynomial : 32'h0);
        for (int gap = 0; gap <= BYTES; gap = gap + 1) begin
            residues[32*gap+:32] = crc;
            for (int i = 0; i < 8; i = i + 1) crc = (crc >> 1) ^ (crc[0] ? polynomial : 32'h0);
        end
    endfunction
    localparam logic [32*BYTES+31:0] RESIDUES = residues(32'h82f6_3b78);

    logic [31:0] crc;
    wire [31:0] crc_next;
    ni_crc32c #(.BUS(BUS)) checksum (.crc_in(in_frame ? crc : 32'hffff_ffff), .data(data), .crc_out(crc_next));

    logic [BUS*HEADER_BEATS-1:0] head;
    logic [16:0] length;
    logic [SIZE_BITS-1:0] last_gap;
    logic [63:0] arrival;
    wire [17:0] length_sum = {1'b0, in_frame ? length : 17'd0} + 18'(size);

    always_ff @(posedge clk) begin
        if (take) begin
            crc <= crc_next;
            slot <= beat_slot;
            beat <= beat_index == '1 ? beat_index : beat_index + 13'd1;
            length <= length_sum[17] ? MAX_LENGTH : length_sum[16:0];
            last_gap <= SIZE_BITS'(BYTES) - size;
            arrival <= now;
            for (int i = 0; i < HEADER_BEATS; i = i + 1) if (beat_index == 13'(i)) head[BUS*i+:BUS] <= data;
        end
        if (!rst_n) begin
            in_frame <= 1'b0;
            frame_valid <= 1'b0;
        end else begin
            if (take) in_frame <= !s_axis_tlast;
            frame_valid <= take && s_axis_tlast || frame_valid && !advance;
        end
    end

    wire [SLOT_BITS-1:0] packet_slot;
    ni_rx_payload #(.BUS(BUS), .PACKET_LOG2(PACKET_LOG2), .SLOTS(SLOTS)) payload (
        .clk(clk), .rst_n(rst_n), .take(take), .first(!in_frame), .last(s_axis_tlast), .index(beat_index), .data(data),
        .slot(beat_slot), .read_slot(packet_slot), .read_beat(payload_beat), .read_data(payload_data)
    );

    // ---- Stage 1: the frame is complete --------------------------------------------------------------------------------------------

    // Fields after the header of the kind are 0 for the modules behind.
    wire [7:0] kind = head[ni_pkg::COMMON_KIND_LSB+:8];
    wire [6:0] header_length;
    ni_rx_length lengths (.kind(kind), .header_length(header_length));
    logic [703:0] masked;
    always_comb begin
        for (int i = 0; i < 22; i = i + 1) masked[32*i+:32] = 7'(4 * i) < header_length ? head[32*i+:32] : 32'h0;
    end

    logic [703:0] header;
    logic [16:0] frame_length;
    logic [63:0] frame_time;
    logic [SLOT_BITS-1:0] frame_slot;
    logic damaged;
    logic ignored;
    logic check_valid;

    always_ff @(posedge clk) begin
        if (advance) begin
            header <= masked;
            frame_length <= length;
            frame_time <= arrival;
            frame_slot <= slot;
            damaged <= length < MIN_LENGTH || crc != RESIDUES[32*last_gap+:32];
            ignored <= !enable;
        end
        if (!rst_n) check_valid <= 1'b0;
        else if (advance) check_valid <= frame_valid;
    end

    // ---- Stage 2: the rules ----------------------------------------------------------------------------------------------------------

    // Headers wait in memory for their verdict and for the receiver.
    localparam int ENTRY = 704 + 16 + 64;
    logic [ENTRY-1:0] entries [0:SLOTS-1];
    wire [15:0] payload_length = frame_length[15:0] - 16'(check_length) - 16'd4;
    wire [6:0] check_length;
    ni_rx_length check_lengths (.kind(header[ni_pkg::COMMON_KIND_LSB+:8]), .header_length(check_length));

    wire good;
    wire trimmed;
    wire bad;
    ni_rx_rules checks (
        .clk(clk), .hold(!advance), .header(header), .header_length(check_length), .frame_length(frame_length), .good(good),
        .trimmed(trimmed), .bad(bad)
    );

    logic verdict_valid;
    logic verdict_damaged;
    logic verdict_ignored;
    logic [SLOT_BITS-1:0] verdict_slot;
    logic [63:0] verdict_time;

    always_ff @(posedge clk) begin
        if (advance) begin
            if (check_valid) entries[frame_slot] <= {frame_time, payload_length, header};
            verdict_slot <= frame_slot;
            verdict_damaged <= damaged;
            verdict_ignored <= ignored;
            verdict_time <= frame_time;
        end
        if (!rst_n) verdict_valid <= 1'b0;
        else if (advance) verdict_valid <= check_valid;
    end

    // ---- Stage 3: the verdict --------------------------------------------------------------------------------------------------------

    wire counted = verdict_valid && !verdict_ignored;
    wire keep = counted && !verdict_damaged && good;
    wire refuse = counted && !verdict_damaged && bad;
    assign advance = !(refuse && fault_valid);

    wire queue_ready;
    wire [SLOT_BITS:0] queue_level;
    // It has an entry for each slot: it is never full.
    ni_fifo #(.WIDTH(SLOT_BITS), .DEPTH(SLOTS)) queue (
        .clk(clk), .rst_n(rst_n), .in_valid(keep), .in_ready(queue_ready), .in_data(verdict_slot), .out_valid(packet_valid),
        .out_ready(packet_ready), .out_data(packet_slot), .level(queue_level)
    );
    wire unused = &{1'b0, queue_ready, queue_level};

    assign {packet_time, packet_payload_length, packet_header} = entries[packet_slot];

    logic [63:0] fault_time;
    always_comb begin
        fault_event = '0;
        fault_event[ni_pkg::EVENT_KIND_LSB+:8] = ni_pkg::EVENT_KIND_FAULT;
        fault_event[ni_pkg::EVENT_REASON_LSB+:8] = ni_pkg::FAULT_REASON_BAD_PACKET;
        fault_event[ni_pkg::EVENT_TIME_LSB+:64] = fault_time;
    end

    always_ff @(posedge clk) begin
        if (refuse && !fault_valid) fault_time <= verdict_time;
        if (!rst_n) begin
            used <= '0;
            fault_valid <= 1'b0;
            count_received <= 1'b0;
            count_bad_crc <= 1'b0;
            count_trimmed <= 1'b0;
            count_bad_packet <= 1'b0;
        end else begin
            if (take && !in_frame) used[free_slot] <= 1'b1;
            if (packet_valid && packet_ready) used[packet_slot] <= 1'b0;
            if (verdict_valid && advance && !keep) used[verdict_slot] <= 1'b0;
            fault_valid <= refuse && advance || fault_valid && !fault_ready;
            count_received <= counted && advance;
            count_bad_crc <= counted && verdict_damaged;
            count_trimmed <= counted && !verdict_damaged && trimmed;
            count_bad_packet <= refuse && advance;
        end
    end
endmodule
