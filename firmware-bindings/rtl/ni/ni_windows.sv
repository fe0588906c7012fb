// Memory of the transmit windows (protocol section 10.2).
//
// Host side: AXI4 slave of BUS bits. Bursts are INCR (other types are treated as INCR), of any size and with any strobes; one write and one
// read burst at a time; responses are OKAY. Address 0 is the first byte of window 0; window `w` begins at w * 2^STRIDE_LOG2:
//
//   0x0000  header, op numbers and path identifiers (2048 bytes)
//   0x0fc0  commit word (4 bytes)
//   0x1000  payload (MASK_BITS packets)
//
// Other bytes do not exist: they read as 0, and writes to them are ignored. A beat is written in the cycle of its handshake.
//
// `commit_valid` pulses one cycle after a beat that writes the last byte of a commit word, if the word is not 0; all beats before are in
// memory then. It has no back-pressure: the receiver keeps a bit per window.
//
// Transmitter side: `read_data` is beat `read_beat` of `read_window` one cycle after `read_valid` and `read_ready`, for one cycle. If the
// host reads at the same time, the two have every second cycle each. Beats that the host writes at the same time have any value.
// Reset: ends bursts; memory is not cleared.

`timescale 1ns / 1ps

module ni_windows #(
    // Bits of the port and of the memory: 64 to 512.
    parameter int BUS = 64,
    // Maximum payload of a packet in bytes, as a power of two: 6 to 12.
    parameter int PACKET_LOG2 = 12,
    // Packets of maximum size in a window: 32 to 256.
    parameter int MASK_BITS = 64,
    // 1 to 32.
    parameter int WINDOWS = 8,
    parameter int ID_BITS = 4,
    localparam int BYTES = BUS / 8,
    localparam int BYTE_BITS = $clog2(BYTES),
    localparam int STRIDE_LOG2 = $clog2(4096 + (MASK_BITS << PACKET_LOG2)),
    localparam int WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1,
    localparam int ADDRESS_BITS = WINDOW_BITS + STRIDE_LOG2,
    localparam int BEAT_BITS = STRIDE_LOG2 - BYTE_BITS
) (
    input  wire                    clk,
    input  wire                    rst_n,

    input  wire  [ID_BITS-1:0]     s_axi_awid,
    input  wire  [ADDRESS_BITS-1:0] s_axi_awaddr,
    input  wire  [2:0]             s_axi_awsize,
    input  wire                    s_axi_awvalid,
    output wire                    s_axi_awready,
    input  wire  [BUS-1:0]         s_axi_wdata,
    input  wire  [BUS/8-1:0]       s_axi_wstrb,
    input  wire                    s_axi_wlast,
    input  wire                    s_axi_wvalid,
    output wire                    s_axi_wready,
    output logic [ID_BITS-1:0]     s_axi_bid,
    output wire  [1:0]             s_axi_bresp,
    output logic                   s_axi_bvalid,
    input  wire                    s_axi_bready,
    input  wire  [ID_BITS-1:0]     s_axi_arid,
    input  wire  [ADDRESS_BITS-1:0] s_axi_araddr,
    input  wire  [7:0]             s_axi_arlen,
    input  wire  [2:0]             s_axi_arsize,
    input  wire                    s_axi_arvalid,
    output wire                    s_axi_arready,
    output wire  [ID_BITS-1:0]     s_axi_rid,
    output wire  [BUS-1:0]         s_axi_rdata,
    output wire  [1:0]             s_axi_rresp,
    output wire                    s_axi_rlast,
    output wire                    s_axi_rvalid,
    input  wire                    s_axi_rready,

    output logic                   commit_valid,
    output logic [WINDOW_BITS-1:0] commit_window,

    input  wire                    read_valid,
    output wire                    read_ready,
    input  wire  [WINDOW_BITS-1:0] read_window,
    input  wire  [BEAT_BITS-1:0]   read_beat,
    output logic [BUS-1:0]         read_data
);
    localparam int HEADER_BEATS = 2048 / BYTES;
    localparam int HEADER_BITS = $clog2(HEADER_BEATS);
    localparam int COMMIT_BEAT = 4032 / BYTES;
    localparam int FIRST_PAYLOAD_BEAT = 4096 / BYTES;
    localparam int PAYLOAD_BEATS = (MASK_BITS << PACKET_LOG2) / BYTES;
    localparam int PAYLOAD_BITS = $clog2(PAYLOAD_BEATS);

    // Address of the beat after one at `address`.
    function automatic logic [ADDRESS_BITS-1:0] next(input logic [ADDRESS_BITS-1:0] address, input logic [2:0] size);
        next = ((address >> size) + 1'b1) << size;
    endfunction

    // ---- Write bursts ------------------------------------------------------------------------------------------------------------

    logic writing;
    logic [ADDRESS_BITS-1:0] write_address;
    logic [2:0] write_size;
    logic [ID_BITS-1:0] write_id;

    assign s_axi_awready = !writing;
    assign s_axi_wready = writing && (!s_axi_bvalid || s_axi_bready);
    assign s_axi_bresp = 2'b00;
    wire write = s_axi_wvalid && s_axi_wready;

    always_ff @(posedge clk) begin
        if (s_axi_awvalid && s_axi_awready) begin
            write_address <= s_axi_awaddr;
            write_size <= s_axi_awsize;
            write_id <= s_axi_awid;
        end else if (write) write_address <= next(write_address, write_size);
        if (write && s_axi_wlast) s_axi_bid <= write_id;
        if (!rst_n) begin
            writing <= 1'b0;
            s_axi_bvalid <= 1'b0;
        end else begin
            if (s_axi_awvalid && s_axi_awready) writing <= 1'b1;
            else if (write && s_axi_wlast) writing <= 1'b0;
            if (write && s_axi_wlast) s_axi_bvalid <= 1'b1;
            else if (s_axi_bready) s_axi_bvalid <= 1'b0;
        end
    end

    wire [WINDOW_BITS-1:0] into_window = write_address[STRIDE_LOG2+:WINDOW_BITS];
    wire [BEAT_BITS-1:0] into_beat = write_address[BYTE_BITS+:BEAT_BITS];
    wire [BEAT_BITS-1:0] into_payload = into_beat - BEAT_BITS'(FIRST_PAYLOAD_BEAT);
    wire into_any = write && (WINDOW_BITS + 1)'(into_window) < (WINDOW_BITS + 1)'(WINDOWS);
    wire write_header = into_any && into_beat < BEAT_BITS'(HEADER_BEATS);
    wire write_commit = into_any && into_beat == BEAT_BITS'(COMMIT_BEAT);
    wire write_payload = into_any && into_beat >= BEAT_BITS'(FIRST_PAYLOAD_BEAT)
        && (BEAT_BITS + 1)'(into_payload) < (BEAT_BITS + 1)'(PAYLOAD_BEATS);

    // ---- Read requests -----------------------------------------------------------------------------------------------------------

    logic reading;
    logic [ADDRESS_BITS-1:0] address;
    logic [7:0] left;
    logic [2:0] size;
    logic [ID_BITS-1:0] id;
    logic host_pending;
    logic host_last;
    logic host_next;
    wire [2:0] level;

    assign s_axi_arready = !reading;
    // A beat that is read has space in the queue of answers.
    wire host_wants = reading && level + 3'(host_pending) < 3'd4;
    wire host_reads = host_wants && (host_next || !read_valid);
    assign read_ready = !host_reads;

    wire [WINDOW_BITS-1:0] from_window = host_reads ? address[STRIDE_LOG2+:WINDOW_BITS] : read_window;
    wire [BEAT_BITS-1:0] from_beat = host_reads ? address[BYTE_BITS+:BEAT_BITS] : read_beat;
    wire [BEAT_BITS-1:0] from_payload = from_beat - BEAT_BITS'(FIRST_PAYLOAD_BEAT);
    wire from_any = (WINDOW_BITS + 1)'(from_window) < (WINDOW_BITS + 1)'(WINDOWS);

    always_ff @(posedge clk) begin
        if (s_axi_arvalid && s_axi_arready) begin
            address <= s_axi_araddr;
            left <= s_axi_arlen;
            size <= s_axi_arsize;
            id <= s_axi_arid;
        end else if (host_reads) begin
            address <= next(address, size);
            left <= left - 8'd1;
        end
        host_last <= left == 8'd0;
        if (!rst_n) begin
            reading <= 1'b0;
            host_pending <= 1'b0;
            host_next <= 1'b0;
        end else begin
            if (s_axi_arvalid && s_axi_arready) reading <= 1'b1;
            else if (host_reads && left == 8'd0) reading <= 1'b0;
            host_pending <= host_reads;
            host_next <= host_wants && !host_reads;
        end
    end

    wire queue_ready;
    wire unused = &{1'b0, queue_ready};
    logic [ID_BITS-1:0] pending_id;
    always_ff @(posedge clk) pending_id <= id;
    ni_fifo #(.WIDTH(BUS + ID_BITS + 1), .DEPTH(4)) answers (
        .clk(clk), .rst_n(rst_n), .in_valid(host_pending), .in_ready(queue_ready), .in_data({host_last, pending_id, read_data}),
        .out_valid(s_axi_rvalid), .out_ready(s_axi_rready), .out_data({s_axi_rlast, s_axi_rid, s_axi_rdata}), .level(level)
    );
    assign s_axi_rresp = 2'b00;

    // ---- Memories ----------------------------------------------------------------------------------------------------------------

    logic [BUS-1:0] headers [0:WINDOWS*HEADER_BEATS-1];
    logic [BUS-1:0] payloads [0:(WINDOWS<<PAYLOAD_BITS)-1];
    logic [31:0] commits [0:WINDOWS-1];

    localparam int HEADER_ADDRESS = $clog2(WINDOWS * HEADER_BEATS);
    localparam int PAYLOAD_ADDRESS = $clog2(WINDOWS << PAYLOAD_BITS);
    wire [HEADER_ADDRESS-1:0] header_write = HEADER_ADDRESS'({into_window, into_beat[HEADER_BITS-1:0]});
    wire [HEADER_ADDRESS-1:0] header_read = HEADER_ADDRESS'({from_window, from_beat[HEADER_BITS-1:0]});
    wire [PAYLOAD_ADDRESS-1:0] payload_write = PAYLOAD_ADDRESS'({into_window, into_payload[PAYLOAD_BITS-1:0]});
    wire [PAYLOAD_ADDRESS-1:0] payload_read = PAYLOAD_ADDRESS'({from_window, from_payload[PAYLOAD_BITS-1:0]});

    logic [BUS-1:0] header_data;
    logic [BUS-1:0] payload_data;
    always_ff @(posedge clk) begin
        for (int i = 0; i < BYTES; i = i + 1) begin
            if (write_header && s_axi_wstrb[i]) headers[header_write][8*i+:8] <= s_axi_wdata[8*i+:8];
            if (write_payload && s_axi_wstrb[i]) payloads[payload_write][8*i+:8] <= s_axi_wdata[8*i+:8];
        end
        header_data <= headers[header_read];
        payload_data <= payloads[payload_read];
    end

    // A commit word may be written in parts: the stored bytes complete it.
    wire [31:0] stored = commits[into_window];
    logic [31:0] word;
    always_comb begin
        for (int i = 0; i < 4; i = i + 1) word[8*i+:8] = s_axi_wstrb[i] ? s_axi_wdata[8*i+:8] : stored[8*i+:8];
    end

    logic [31:0] commit_data;
    logic from_header;
    logic from_commit;
    logic from_payloads;
    always_ff @(posedge clk) begin
        if (write_commit) commits[into_window] <= word;
        commit_data <= commits[from_window];
        commit_window <= into_window;
        from_header <= from_any && from_beat < BEAT_BITS'(HEADER_BEATS);
        from_commit <= from_any && from_beat == BEAT_BITS'(COMMIT_BEAT);
        from_payloads <= from_any && from_beat >= BEAT_BITS'(FIRST_PAYLOAD_BEAT)
            && (BEAT_BITS + 1)'(from_payload) < (BEAT_BITS + 1)'(PAYLOAD_BEATS);
        if (!rst_n) commit_valid <= 1'b0;
        else commit_valid <= write_commit && s_axi_wstrb[3] && word != 32'h0;
    end

    assign read_data = (from_header ? header_data : '0) | (from_payloads ? payload_data : '0)
        | (from_commit ? BUS'(commit_data) : '0);
endmodule
