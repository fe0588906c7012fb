// Network port, sending side: arbiter of answers and frames, checksum.
//
// Inputs: packets without checksum. An answer is a header of `answer_length` bytes; a frame is a header of `frame_header_length` bytes and
// `frame_payload_length` bytes of payload, whose beats follow the header's acceptance (payload from byte 0 of the first beat; bytes after
// its end may have any value). Lengths of headers are 20 to 88 and multiples of 4; bytes of a header after its length must be 0.
//
// Output: AXI4-Stream, one frame per packet: header, payload, CRC-32C of both (protocol section 3.1). All bytes of a beat are valid except
// in the last one. `m_axis_tvalid` may be low between the beats of a frame that waits for its payload.
//
// Order: round robin over the ANSWERS answer ports and the frames, packet by packet: an answer waits for at most one packet of each other
// source. Latency: 3 cycles from the acceptance of a header to its first beat; up to 5 more to the last beat, which waits for the checksum
// while later beats follow into a FIFO. Throughput: a beat per cycle, also across packets.
// `count_sent` pulses once per packet, after its last beat. Reset: drops packets; the frame on the wire is cut off.

`timescale 1ns / 1ps

module ni_tx #(
    // Bits of the network port: 64 to 512.
    parameter int BUS = 64,
    // Answer ports: 1 to 8.
    parameter int ANSWERS = 2
) (
    input  wire                    clk,
    input  wire                    rst_n,

    input  wire  [ANSWERS-1:0]     answer_valid,
    output wire  [ANSWERS-1:0]     answer_ready,
    input  wire  [704*ANSWERS-1:0] answer,
    input  wire  [8*ANSWERS-1:0]   answer_length,

    input  wire                    frame_valid,
    output wire                    frame_ready,
    input  wire  [703:0]           frame_header,
    input  wire  [7:0]             frame_header_length,
    input  wire  [15:0]            frame_payload_length,
    input  wire                    frame_data_valid,
    output wire                    frame_data_ready,
    input  wire  [BUS-1:0]         frame_data,

    output wire  [BUS-1:0]         m_axis_tdata,
    output wire  [BUS/8-1:0]       m_axis_tkeep,
    output wire                    m_axis_tlast,
    output wire                    m_axis_tvalid,
    input  wire                    m_axis_tready,

    output logic                   count_sent
);
    localparam int BYTES = BUS / 8;
    localparam int BYTE_BITS = $clog2(BYTES);
    localparam int SIZE_BITS = BYTE_BITS + 1;
    localparam int HEADER_BITS = BUS * ((88 + BYTES - 1) / BYTES);
    localparam int SOURCES = ANSWERS + 1;
    // More beats than cycles until the checksum of a last beat is known.
    localparam int FIFO_BEATS = 8;

    // ---- Arbiter -----------------------------------------------------------------------------------------------------------------

    // Source ANSWERS is the frames. The search begins after the source that was served last.
    wire [SOURCES-1:0] offered = {frame_valid, answer_valid};
    logic [3:0] served;
    logic [3:0] chosen;
    always_comb begin
        chosen = 4'd0;
        for (int i = SOURCES - 1; i >= 0; i = i - 1) if (offered[i]) chosen = 4'(i);
        for (int i = SOURCES - 1; i >= 0; i = i - 1) if (offered[i] && 4'(i) > served) chosen = 4'(i);
    end

    logic active;
    wire fire;
    wire is_last;
    wire load = (!active || fire && is_last) && offered != '0;
    wire is_frame = chosen == 4'(ANSWERS);
    assign frame_ready = load && is_frame;

    // The frames are the last source.
    wire [704*SOURCES-1:0] headers = {frame_header, answer};
    wire [8*SOURCES-1:0] lengths = {frame_header_length, answer_length};
    wire [703:0] header = headers[704*chosen+:704];
    wire [7:0] header_length = lengths[8*chosen+:8];
    for (genvar i = 0; i < ANSWERS; i = i + 1) begin : g_answer
        assign answer_ready[i] = load && chosen == 4'(i);
    end
    wire [15:0] payload_length = is_frame ? frame_payload_length : 16'd0;

    // ---- Beats of header and payload ---------------------------------------------------------------------------------------------

    // The rest of the header, later the bytes of the payload that did not fit the last beat.
    logic [HEADER_BITS-1:0] rest;
    // Beats that are full of header.
    logic [4:0] header_beats;
    // Position of the payload's first byte in its beat, in words of 4 bytes.
    logic [4:0] shift;
    // Bytes not sent, of header and payload; bytes of payload not fetched.
    logic [16:0] left;
    logic [16:0] payload_left;

    wire in_header = header_beats != 5'd0;
    wire fetch = !in_header && payload_left != 17'd0;
    wire [2*BUS-1:0] moved = {{BUS{1'b0}}, frame_data} << {shift, 5'b00000};
    wire [BUS-1:0] joined = rest[BUS-1:0] | (fetch ? moved[BUS-1:0] : '0);
    assign is_last = left <= 17'(BYTES);
    wire [SIZE_BITS-1:0] size = is_last ? left[SIZE_BITS-1:0] : SIZE_BITS'(BYTES);
    wire ready;
    assign fire = active && ready && (!fetch || frame_data_valid);
    assign frame_data_ready = active && ready && fetch;

    // Bytes after the end count as zeros in the checksum.
    logic [BUS-1:0] masked;
    always_comb begin
        for (int i = 0; i < BYTES; i = i + 1) masked[8*i+:8] = SIZE_BITS'(i) < size ? joined[8*i+:8] : 8'h0;
    end

    always_ff @(posedge clk) begin
        if (load) begin
            served <= chosen;
            rest <= HEADER_BITS'(header);
            header_beats <= 5'(header_length >> BYTE_BITS);
            shift <= 5'(header_length[BYTE_BITS-1:2]);
            left <= 17'(header_length) + 17'(payload_length);
            payload_left <= 17'(payload_length);
        end else if (fire) begin
            left <= left - 17'(size);
            if (in_header) begin
                rest <= rest >> BUS;
                header_beats <= header_beats - 5'd1;
            end else begin
                rest <= HEADER_BITS'(moved[2*BUS-1:BUS]);
                payload_left <= payload_left > 17'(BYTES) ? payload_left - 17'(BYTES) : 17'd0;
            end
        end
        if (!rst_n) begin
            active <= 1'b0;
            served <= 4'd0;
        end else if (load) active <= 1'b1;
        else if (fire && is_last) active <= 1'b0;
    end

    // ---- Checksum ----------------------------------------------------------------------------------------------------------------

    logic beat_valid;
    logic [BUS-1:0] beat_data;
    logic [SIZE_BITS-1:0] beat_size;
    logic beat_last;
    wire fifo_ready;
    wire beat_take = beat_valid && fifo_ready;
    assign ready = !beat_valid || fifo_ready;

    // The register after whole beats; the zeros after a shorter last beat are undone beside the beats.
    logic [31:0] crc;
    wire [31:0] crc_next;
    logic end_valid;
    logic [31:0] end_crc;
    logic [BYTE_BITS-1:0] end_gap;
    ni_crc32c #(.BUS(BUS)) checksum (.crc_in(crc), .data(beat_data), .crc_out(crc_next));

    always_ff @(posedge clk) begin
        if (ready) begin
            beat_data <= masked;
            beat_size <= size;
            beat_last <= is_last;
        end
        end_crc <= crc_next;
        end_gap <= BYTE_BITS'(SIZE_BITS'(BYTES) - beat_size);
        if (!rst_n) begin
            beat_valid <= 1'b0;
            end_valid <= 1'b0;
            crc <= '1;
        end else begin
            if (ready) beat_valid <= fire;
            end_valid <= beat_take && beat_last;
            if (beat_take) crc <= beat_last ? '1 : crc_next;
        end
    end

    wire crc_valid;
    wire [31:0] crc_end;
    ni_crc32c_end #(.BUS(BUS)) checksum_end (
        .clk, .rst_n, .in_valid(end_valid), .in_crc(end_crc), .gap(end_gap), .out_valid(crc_valid), .out_crc(crc_end)
    );

    wire beat_waits;
    wire [BUS-1:0] out_data;
    wire [SIZE_BITS-1:0] out_size;
    wire out_last;
    wire out_take;
    wire checksum_waits;
    wire [31:0] out_crc;
    /* verilator lint_off PINCONNECTEMPTY */
    ni_fifo #(.WIDTH(BUS + SIZE_BITS + 1), .DEPTH(FIFO_BEATS)) beats (
        .clk, .rst_n, .in_valid(beat_valid), .in_ready(fifo_ready), .in_data({beat_last, beat_size, beat_data}),
        .out_valid(beat_waits), .out_ready(out_take), .out_data({out_last, out_size, out_data}), .level()
    );
    // At most one checksum per beat of the other FIFO: there is space.
    ni_fifo #(.WIDTH(32), .DEPTH(FIFO_BEATS)) checksums (
        .clk, .rst_n, .in_valid(crc_valid), .in_ready(), .in_data(~crc_end),
        .out_valid(checksum_waits), .out_ready(out_take && out_last), .out_data(out_crc), .level()
    );
    /* verilator lint_on PINCONNECTEMPTY */
    wire out_valid = beat_waits && (!out_last || checksum_waits);

    // ---- Output: the checksum after the last byte, in one more beat if it does not fit -------------------------------------------

    logic in_rest;
    wire [BUS+31:0] with_crc = {32'h0, out_data} | (out_last ? {{BUS{1'b0}}, out_crc} << {out_size, 3'b000} : '0);
    wire [SIZE_BITS:0] out_end = {1'b0, out_size} + (out_last ? (SIZE_BITS + 1)'(4) : '0);
    wire has_rest = out_end > (SIZE_BITS + 1)'(BYTES);
    wire [SIZE_BITS:0] out_count = in_rest ? out_end - (SIZE_BITS + 1)'(BYTES) : out_end;

    assign m_axis_tvalid = out_valid;
    assign m_axis_tdata = in_rest ? BUS'(with_crc[BUS+31:BUS]) : with_crc[BUS-1:0];
    assign m_axis_tlast = out_last && (in_rest || !has_rest);
    for (genvar i = 0; i < BYTES; i = i + 1) begin : g_keep
        assign m_axis_tkeep[i] = (SIZE_BITS + 1)'(i) < out_count;
    end
    assign out_take = out_valid && m_axis_tready && (in_rest || !has_rest);

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            in_rest <= 1'b0;
            count_sent <= 1'b0;
        end else begin
            if (out_valid && m_axis_tready) in_rest <= has_rest && !in_rest;
            count_sent <= out_valid && m_axis_tready && m_axis_tlast;
        end
    end
endmodule
