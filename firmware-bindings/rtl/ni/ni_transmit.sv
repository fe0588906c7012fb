// Transmit windows: commit queue, check of the header, segmentation into packets (protocol section 10.2).
//
// Input: `commit_valid` pulses for a nonzero commit word. Windows are sent in the order of their commits. A commit while `enable` is low is
// ignored; one of a window that is queued or being sent raises the fault WindowBusy (one fault for all such commits that wait for its
// acceptance). If `enable` goes low, the packet in progress is completed and the next one waits.
//
// Each window is checked when its turn comes: SEQUENCE against the commit word first (TornHeader), because a torn header may contain
// anything, then the rules of its kind (BadHeader). This build executes no commands: they are refused as BadHeader. A refused window is
// reported by its fault event, and then freed like a sent one: its bit in `window_free` is set and the event WindowFree is raised, with
// the number of windows freed since reset as count. The faults TornHeader, and BadHeader for a broken rule, name only the window; BadHeader
// for a valid header that this build cannot send also names node, transfer and segment.
//
// Output: one frame per packet, header first, then the beats of its payload. Payload is read ahead of the frames, up to 16 beats.
// Throughput: a packet takes its beats of payload and 2 cycles, or 3 with a list of path identifiers. Latency: from a commit to the first
// frame 9 cycles and one per beat of a window header (128 bytes), with a list of path identifiers up to 2 more.
// Reset: all windows are free, nothing is sent.

`timescale 1ns / 1ps

module ni_transmit #(
    parameter int BUS = 64,
    parameter int PACKET_LOG2 = 12,
    parameter int MASK_BITS = 64,
    // 1 to 32.
    parameter int WINDOWS = 8,
    localparam int BYTES = BUS / 8,
    localparam int BYTE_BITS = $clog2(BYTES),
    localparam int STRIDE_LOG2 = $clog2(4096 + (MASK_BITS << PACKET_LOG2)),
    localparam int WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1,
    localparam int BEAT_BITS = STRIDE_LOG2 - BYTE_BITS
) (
    input  wire                    clk,
    input  wire                    rst_n,

    // Settings of the host.
    input  wire                    enable,
    // A message scheme is active: windows for the registry scheme, that is all that are possible here, are refused.
    input  wire                    messages_active,
    input  wire  [31:0]            node_id,
    input  wire  [31:0]            incarnation,
    // Nanoseconds since reset.
    input  wire  [63:0]            now,

    input  wire                    commit_valid,
    input  wire  [WINDOW_BITS-1:0] commit_window,
    output logic                   read_valid,
    input  wire                    read_ready,
    output wire  [WINDOW_BITS-1:0] read_window,
    output logic [BEAT_BITS-1:0]   read_beat,
    input  wire  [BUS-1:0]         read_data,

    output wire                    frame_valid,
    input  wire                    frame_ready,
    output wire  [703:0]           frame_header,
    output wire  [7:0]             frame_header_length,
    output wire  [15:0]            frame_payload_length,
    output wire                    frame_data_valid,
    input  wire                    frame_data_ready,
    output wire  [BUS-1:0]         frame_data,

    output wire                    event_valid,
    input  wire                    event_ready,
    output wire  [511:0]           event_data,
    output wire                    fault_valid,
    input  wire                    fault_ready,
    output wire  [511:0]           fault_event,

    // Registers WINDOW_FREE, and TRANSMITTING of STATUS.
    output wire  [31:0]            window_free,
    output wire                    transmitting,
    output logic                   count_link_inquiry,
    output logic                   count_link_active
);
    localparam int HEADER_BEATS = 128 / BYTES;
    localparam int COMMIT_BEAT = 4032 / BYTES;
    localparam int FIRST_PAYLOAD_BEAT = 4096 / BYTES;

    // ---- Committed windows -------------------------------------------------------------------------------------------------------

    logic [WINDOWS-1:0] busy;
    wire commit = commit_valid && enable;
    wire free;
    logic [WINDOW_BITS-1:0] window;

    wire queued;
    wire dequeue;
    wire [WINDOW_BITS-1:0] queue_window;
    wire queue_ready;
    wire [5:0] queue_level;
    // It has an entry for each window: it is never full.
    ni_fifo #(.WIDTH(WINDOW_BITS), .DEPTH(32)) queue (
        .clk(clk), .rst_n(rst_n), .in_valid(commit && !busy[commit_window]), .in_ready(queue_ready), .in_data(commit_window),
        .out_valid(queued), .out_ready(dequeue), .out_data(queue_window), .level(queue_level)
    );

    always_ff @(posedge clk) begin
        if (!rst_n) busy <= '0;
        else begin
            if (free && !(commit && commit_window == window)) busy[window] <= 1'b0;
            if (commit) busy[commit_window] <= 1'b1;
        end
    end
    wire [WINDOWS-1:0] idle = ~busy;
    assign window_free = 32'(idle);
    assign transmitting = busy != '0;

    // ---- Steps of a window -------------------------------------------------------------------------------------------------------

    localparam logic [3:0] IDLE = 4'd0;
    // Read the header and the commit word, check them, read the word of the last path identifiers.
    localparam logic [3:0] HEADER = 4'd1;
    localparam logic [3:0] CHECK = 4'd2;
    localparam logic [3:0] PADDING = 4'd3;
    localparam logic [3:0] VERDICT = 4'd4;
    // Read op number, path identifier and payload of the next packet; wait for `enable`.
    localparam logic [3:0] OP = 4'd5;
    localparam logic [3:0] PATH = 4'd6;
    localparam logic [3:0] PAYLOAD = 4'd7;
    localparam logic [3:0] PAUSE = 4'd8;
    // The only packet of a window without payload.
    localparam logic [3:0] SINGLE = 4'd9;
    // Wait until all frames are accepted, report the fault, free the window.
    localparam logic [3:0] DRAIN = 4'd10;
    localparam logic [3:0] FAULT = 4'd11;
    localparam logic [3:0] REPORTED = 4'd12;
    localparam logic [3:0] FREE = 4'd13;
    logic [3:0] state;
    // Beats of the header that are read, cycles of a wait.
    logic [4:0] step;

    logic [1023:0] header;
    logic [31:0] commit_word;
    logic padding_zero;
    wire header_valid;
    wire header_fits;
    wire [7:0] last_index;
    wire [12:0] last_length;
    ni_transmit_check #(.PACKET_LOG2(PACKET_LOG2), .MASK_BITS(MASK_BITS)) check (
        .clk(clk), .header(header), .valid(header_valid), .fits(header_fits), .last_index(last_index), .last_length(last_length)
    );

    wire [7:0] kind = header[ni_pkg::WINDOW_HEADER_KIND_LSB+:8];
    wire has_packets = kind == ni_pkg::WINDOW_KIND_DATA;
    wire [8:0] count = header[ni_pkg::WINDOW_HEADER_PACKET_COUNT_LSB+:9];
    wire [7:0] first = header[ni_pkg::WINDOW_HEADER_FIRST_PACKET_LSB+:8];
    wire [3:0] size_log2 = header[ni_pkg::WINDOW_HEADER_PACKET_SIZE_LOG2_LSB+:4];
    wire has_paths = header[ni_pkg::WINDOW_HEADER_PATHS_LSB];
    wire [31:0] sequence_word = header[ni_pkg::WINDOW_HEADER_SEQUENCE_LSB+:32];

    wire torn = sequence_word != commit_word;
    wire rules_broken = sequence_word == 32'h0 || !header_valid || !padding_zero;
    wire unable = !header_fits || kind == ni_pkg::WINDOW_KIND_COMMAND || messages_active || node_id == ni_pkg::NODE_ANY;

    // Offsets in the window: lists of op numbers and path identifiers.
    logic [8:0] index;
    wire [10:0] paths_offset = 11'd128 + {count, 2'b00};
    wire [10:0] op_offset = 11'd128 + {index, 2'b00};
    wire [10:0] path_offset = paths_offset + 11'(index);
    // Word of the last path identifiers. It has zeros after them.
    wire [10:0] padding_offset = paths_offset + 11'({count[8:2], 2'b00});
    logic [BEAT_BITS-1:0] payload_beat;
    logic [9:0] payload_beats;
    wire is_last = index + 9'd1 == count;
    wire [12:0] packet_length = first + index[7:0] == last_index ? last_length : 13'd1 << size_log2;
    wire [9:0] packet_beats = 10'((packet_length + 13'(BYTES - 1)) >> BYTE_BITS);

    // ---- Reads; the answer comes one cycle later ---------------------------------------------------------------------------------

    logic [3:0] answer_state;
    logic answer_commit;
    logic [BYTE_BITS-1:0] lane;
    wire data_space;
    wire packet_space;
    logic [10:0] offset;
    always_comb begin
        read_valid = 1'b0;
        offset = 11'd0;
        read_beat = payload_beat;
        case (state)
            HEADER: begin
                read_valid = 1'b1;
                read_beat = step == 5'(HEADER_BEATS) ? BEAT_BITS'(COMMIT_BEAT) : BEAT_BITS'(step);
            end
            PADDING: begin
                read_valid = 1'b1;
                offset = padding_offset;
                read_beat = BEAT_BITS'(offset[10:BYTE_BITS]);
            end
            OP: begin
                read_valid = packet_space;
                offset = op_offset;
                read_beat = BEAT_BITS'(offset[10:BYTE_BITS]);
            end
            PATH: begin
                read_valid = 1'b1;
                offset = path_offset;
                read_beat = BEAT_BITS'(offset[10:BYTE_BITS]);
            end
            PAYLOAD: read_valid = data_space;
            default: read_valid = 1'b0;
        endcase
    end
    assign read_window = window;
    wire read = read_valid && read_ready;

    // Word and byte of the answer's beat at the offset of the read.
    wire [31:0] answer_word = read_data[32*lane[BYTE_BITS-1:2]+:32];
    wire [7:0] answer_byte = answer_word[8*lane[1:0]+:8];

    logic answered;
    wire header_answer = answered && answer_state == HEADER && !answer_commit;
    wire commit_answer = answered && answer_state == HEADER && answer_commit;
    wire padding_answer = answered && answer_state == PADDING;
    wire op_answer = answered && answer_state == OP;
    wire path_answer = answered && answer_state == PATH;
    wire data_answer = answered && answer_state == PAYLOAD;

    logic [31:0] op;
    logic [7:0] answer_index;
    always_ff @(posedge clk) begin
        answer_state <= state;
        answer_commit <= step == 5'(HEADER_BEATS);
        lane <= offset[BYTE_BITS-1:0];
        if (read && state == OP) answer_index <= index[7:0];
        if (header_answer) header <= {read_data, header[1023:BUS]};
        if (commit_answer) commit_word <= read_data[31:0];
        if (op_answer) op <= answer_word;
        if (state == CHECK) padding_zero <= 1'b1;
        // Bytes count % 4 to 3 of the word.
        if (padding_answer) padding_zero <= answer_word >> {count[1:0], 3'b000} == 32'h0;
        if (!rst_n) answered <= 1'b0;
        else answered <= read;
    end

    // ---- Packets and payload on their way to the port ----------------------------------------------------------------------------

    wire single = state == SINGLE && packet_space;
    wire packet_known = path_answer || op_answer && !has_paths;
    wire [7:0] packet_path = path_answer ? answer_byte : header[ni_pkg::WINDOW_HEADER_PATH_LSB+:8];
    wire [31:0] packet_op = path_answer ? op : answer_word;
    wire [7:0] frame_index;
    wire [31:0] frame_op;
    wire [7:0] frame_path;
    wire [2:0] packet_level;
    wire packet_ready;
    // At most one packet waits for its op number and path identifier.
    logic packet_pending;
    assign packet_space = packet_level + 3'(packet_pending) < 3'd4;
    ni_fifo #(.WIDTH(48), .DEPTH(4)) packets (
        .clk(clk), .rst_n(rst_n), .in_valid(packet_known || single), .in_ready(packet_ready),
        .in_data({answer_index, packet_op, packet_path}), .out_valid(frame_valid), .out_ready(frame_ready),
        .out_data({frame_index, frame_op, frame_path}), .level(packet_level)
    );
    ni_transmit_header headers (
        .window(header), .node_id(node_id), .incarnation(incarnation), .index(frame_index), .op(frame_op), .path(frame_path),
        .last_index(last_index), .last_length(last_length), .header(frame_header), .header_length(frame_header_length),
        .payload_length(frame_payload_length)
    );

    wire [4:0] data_level;
    wire data_ready;
    assign data_space = data_level + 5'(data_answer) < 5'd16;
    ni_fifo #(.WIDTH(BUS), .DEPTH(16)) payload (
        .clk(clk), .rst_n(rst_n), .in_valid(data_answer), .in_ready(data_ready), .in_data(read_data),
        .out_valid(frame_data_valid), .out_ready(frame_data_ready), .out_data(frame_data), .level(data_level)
    );
    wire unused = &{1'b0, queue_ready, queue_level, packet_ready, data_ready};

    // ---- Next step ---------------------------------------------------------------------------------------------------------------

    wire fault_taken;
    assign dequeue = state == IDLE && enable;
    wire [3:0] next_packet = enable ? OP : PAUSE;

    always_ff @(posedge clk) begin
        step <= 5'd0;
        case (state)
            IDLE: begin
                window <= queue_window;
                index <= 9'd0;
                payload_beat <= BEAT_BITS'(FIRST_PAYLOAD_BEAT);
                if (dequeue && queued) state <= HEADER;
            end
            HEADER: begin
                step <= step + 5'(read);
                if (read && step == 5'(HEADER_BEATS)) begin
                    state <= CHECK;
                    step <= 5'd0;
                end
            end
            CHECK: begin
                step <= step + 5'd1;
                if (step == 5'd1) state <= has_packets && has_paths && count[1:0] != 2'd0 ? PADDING : VERDICT;
            end
            PADDING: if (read) state <= VERDICT;
            VERDICT: begin
                // The answer of PADDING is here after one cycle.
                step <= step + 5'd1;
                if (step == 5'd1) begin
                    state <= torn || rules_broken || unable ? FAULT : has_packets ? next_packet : SINGLE;
                end
            end
            OP: if (read) begin
                payload_beats <= packet_beats;
                state <= has_paths ? PATH : PAYLOAD;
            end
            PATH: if (read) state <= PAYLOAD;
            PAYLOAD: if (read) begin
                payload_beat <= payload_beat + 1'b1;
                payload_beats <= payload_beats - 10'd1;
                if (payload_beats == 10'd1) begin
                    index <= index + 9'd1;
                    state <= is_last ? DRAIN : next_packet;
                end
            end
            PAUSE: if (enable) state <= OP;
            SINGLE: if (packet_space) state <= DRAIN;
            DRAIN: if (packet_level == 3'd0 && !packet_pending) state <= FREE;
            FAULT: if (fault_taken) state <= REPORTED;
            REPORTED: if (!fault_valid) state <= FREE;
            default: if (free) state <= IDLE;
        endcase
        if (!rst_n) begin
            state <= IDLE;
            packet_pending <= 1'b0;
        end else if (read && state == OP) packet_pending <= 1'b1;
        else if (packet_known) packet_pending <= 1'b0;
    end

    // ---- Events and faults -------------------------------------------------------------------------------------------------------

    ni_transmit_report #(.WINDOWS(WINDOWS)) report (
        .clk(clk), .rst_n(rst_n), .now(now), .window(window), .header(header), .commit_word(commit_word), .torn(torn),
        .rules_broken(rules_broken), .refuse(state == FAULT), .refuse_taken(fault_taken), .free(state == FREE),
        .free_taken(free), .busy_commit(commit && busy[commit_window]), .busy_window(commit_window),
        .event_valid(event_valid), .event_ready(event_ready), .event_data(event_data), .fault_valid(fault_valid),
        .fault_ready(fault_ready), .fault_event(fault_event)
    );

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            count_link_inquiry <= 1'b0;
            count_link_active <= 1'b0;
        end else begin
            count_link_inquiry <= single && kind == ni_pkg::WINDOW_KIND_LINK_INQUIRY;
            count_link_active <= single && kind == ni_pkg::WINDOW_KIND_LINK_ACTIVE;
        end
    end
endmodule
