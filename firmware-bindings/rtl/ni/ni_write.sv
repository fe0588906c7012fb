// AXI4 write master to card memory, with two clients: payload of packets, and events.
//
// Protocol: a payload write is a command (`write_*`: address and length of 1 to 65535 bytes, any alignment), then its data
// (`write_data_*`), byte 0 of the write in byte 0 of beat 0. An event write has address (a multiple of 64) and data together. Each write
// has one response pulse (`*_done`, with `*_error` for SLVERR or DECERR of any of its bursts). Bursts are INCR, as wide as the bus, with
// at most 256 beats, and do not cross 4 KiB; addresses are aligned to the bus, strobes exclude the other bytes of the first and the last
// beat. All bursts have one id (the top ties it to 0), so that responses have the order of the commands. Data may precede its command.
//
// An event is one burst in ascending order, so that SEQUENCE, its last word, is in its last beat.
//
// Latency: 3 cycles from a command to AWVALID, 1 cycle from data to WVALID; one beat per cycle, also from one write to the next. Two
// commands have at least 2 cycles between them. Order: writes begin in the order in which they were taken; the clients take turns.
// Up to OUTSTANDING bursts wait for their responses. Reset: all state; responses to earlier bursts must not arrive afterwards.

`timescale 1ns / 1ps

module ni_write #(
    parameter int BUS = 512,
    // Power of two.
    parameter int OUTSTANDING = 16
) (
    input  wire              clk,
    input  wire              rst_n,

    input  wire              write_valid,
    output wire              write_ready,
    input  wire  [63:0]      write_address,
    input  wire  [15:0]      write_length,
    input  wire              write_data_valid,
    output wire              write_data_ready,
    input  wire  [BUS-1:0]   write_data,
    output logic             write_done,
    output logic             write_error,

    input  wire              event_write_valid,
    output wire              event_write_ready,
    input  wire  [63:0]      event_write_address,
    input  wire  [511:0]     event_write_data,
    output logic             event_write_done,
    output logic             event_write_error,

    output logic [63:0]      m_awaddr,
    output logic [7:0]       m_awlen,
    output logic             m_awvalid,
    input  wire              m_awready,
    output logic [BUS-1:0]   m_wdata,
    output logic [BUS/8-1:0] m_wstrb,
    output logic             m_wlast,
    output logic             m_wvalid,
    input  wire              m_wready,
    /* verilator lint_off UNUSEDSIGNAL */
    // Bit 0 distinguishes DECERR from SLVERR, and EXOKAY (not used) from OKAY.
    input  wire  [1:0]       m_bresp,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire              m_bvalid,
    output wire              m_bready
);
    localparam int BYTES = BUS / 8;
    localparam int SHIFT = $clog2(BYTES);
    // A burst ends at a multiple of this size: 4 KiB, or 256 beats of a narrow bus.
    localparam int BLOCK = (SHIFT < 4) ? SHIFT + 8 : 12;
    // Beats of an event.
    localparam int EVENT_BEATS = 512 / BUS;
    localparam int EVENT_INDEX = (EVENT_BEATS > 1) ? $clog2(EVENT_BEATS) : 1;

    // Commands: one write at a time is divided into bursts. ----------------------------------------------------------------------------

    logic splitting;
    logic is_event;
    // Beat of the next burst's first byte.
    logic [63:SHIFT] address;
    // Bytes from the start of that beat to the end of the write.
    logic [16:0] span;
    // The client that is taken if both have a command.
    logic event_turn;
    // Data of the taken event; one event at a time.
    logic event_held;
    logic [511:0] event_data;

    wire order_ready;
    wire pending_ready;
    wire pick_event = event_write_valid && !event_held && (event_turn || !write_valid);
    wire can_take = !splitting && order_ready;
    assign write_ready = can_take && !pick_event;
    assign event_write_ready = can_take && pick_event;
    wire take = can_take && (write_valid || pick_event);

    wire [BLOCK:0] to_block_end = (BLOCK + 1)'(1 << BLOCK) - {1'b0, address[BLOCK-1:SHIFT], {SHIFT{1'b0}}};
    wire burst_is_last = span <= {{(16 - BLOCK){1'b0}}, to_block_end};
    wire [16:0] burst_bytes = burst_is_last ? span : {{(16 - BLOCK){1'b0}}, to_block_end};
    wire [16:0] burst_bytes_minus_1 = burst_bytes - 17'd1;
    wire issue = splitting && pending_ready && (!m_awvalid || m_awready);

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            splitting <= 1'b0;
            m_awvalid <= 1'b0;
            event_turn <= 1'b0;
        end else begin
            if (take) splitting <= 1'b1;
            else if (issue && burst_is_last) splitting <= 1'b0;
            if (take) event_turn <= !pick_event;
            if (issue) m_awvalid <= 1'b1;
            else if (m_awready) m_awvalid <= 1'b0;
        end
        if (take) begin
            is_event <= pick_event;
            address <= pick_event ? event_write_address[63:SHIFT] : write_address[63:SHIFT];
            span <= pick_event ? 17'd64 : {1'b0, write_length} + {{(17 - SHIFT){1'b0}}, write_address[SHIFT-1:0]};
        end else if (issue) begin
            address <= {address[63:BLOCK] + 1'b1, {(BLOCK - SHIFT) {1'b0}}};
            span <= span - burst_bytes;
        end
        if (take && pick_event) event_data <= event_write_data;
        if (issue) begin
            m_awaddr <= {address, {SHIFT{1'b0}}};
            m_awlen <= 8'(burst_bytes_minus_1 >> SHIFT);
        end
    end

    // Data: the writes in the order of their commands. ------------------------------------------------------------------------------------

    wire order_valid;
    wire order_is_event;
    wire [BLOCK-1:0] order_address;
    wire [15:0] order_length;
    wire load;
    ni_fifo #(
        .WIDTH(1 + BLOCK + 16),
        .DEPTH(4)
    ) order (
        .clk(clk),
        .rst_n(rst_n),
        .in_valid(take),
        .in_ready(order_ready),
        .in_data(pick_event ? {1'b1, event_write_address[BLOCK-1:0], 16'd64} : {1'b0, write_address[BLOCK-1:0], write_length}),
        .out_valid(order_valid),
        .out_ready(load),
        .out_data({order_is_event, order_address, order_length}),
        /* verilator lint_off PINCONNECTEMPTY */
        .level()
        /* verilator lint_on PINCONNECTEMPTY */
    );

    logic active;
    logic from_event;
    // Position of byte 0 of the write within its beat.
    logic [SHIFT-1:0] offset;
    // Last byte of the write within its beat.
    logic [SHIFT-1:0] last_byte;
    // Beats on the bus after the current one, and beats that have not been taken from the client.
    logic [16-SHIFT:0] beats_after;
    logic [16-SHIFT:0] inputs_left;
    // Beat within the block at whose end a burst ends.
    logic [BLOCK-SHIFT-1:0] block_beat;
    logic is_first;
    logic [EVENT_INDEX-1:0] event_beat;
    // Rotated input of the beat before: its upper bytes begin the current beat.
    logic [BUS-1:0] carry;

    wire can_put = active && (!m_wvalid || m_wready);
    wire needs_input = inputs_left != 0;
    assign write_data_ready = can_put && !from_event && needs_input;
    wire put = can_put && (from_event || !needs_input || write_data_valid);
    wire finish = put && beats_after == 0;
    assign load = order_valid && (!active || finish);

    wire [16:0] order_end = {1'b0, order_length} + {{(17 - SHIFT){1'b0}}, order_address[SHIFT-1:0]} - 17'd1;
    wire [16-SHIFT:0] order_inputs = (17 - SHIFT)'(({1'b0, order_length} + 17'(BYTES - 1)) >> SHIFT);

    // Byte n of the input goes to byte (n + offset) mod BYTES.
    logic [BUS-1:0] rotated;
    logic [BYTES-1:0] below_offset;
    logic [BYTES-1:0] strobes;
    logic [BUS-1:0] merged;
    always_comb begin
        rotated = write_data;
        for (int stage = 0; stage < SHIFT; stage++)
            if (offset[stage]) rotated = (rotated << (8 << stage)) | (rotated >> (BUS - (8 << stage)));
        for (int lane = 0; lane < BYTES; lane++) begin
            below_offset[lane] = SHIFT'(lane) < offset;
            strobes[lane] = !(is_first && below_offset[lane]) && !(beats_after == 0 && SHIFT'(lane) > last_byte);
            merged[8*lane+:8] = below_offset[lane] ? carry[8*lane+:8] : rotated[8*lane+:8];
        end
    end

    wire [BUS-1:0] event_part;
    generate
        if (EVENT_BEATS > 1) begin : gen_parts
            assign event_part = event_data[BUS*event_beat+:BUS];
        end else begin : gen_whole
            assign event_part = event_data;
        end
    endgenerate

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            active <= 1'b0;
            m_wvalid <= 1'b0;
            event_held <= 1'b0;
        end else begin
            if (load) active <= 1'b1;
            else if (finish) active <= 1'b0;
            if (put) m_wvalid <= 1'b1;
            else if (m_wready) m_wvalid <= 1'b0;
            if (take && pick_event) event_held <= 1'b1;
            else if (finish && from_event) event_held <= 1'b0;
        end
        if (put) begin
            m_wdata <= from_event ? event_part : merged;
            m_wstrb <= strobes;
            m_wlast <= beats_after == 0 || &block_beat;
            carry <= rotated;
            is_first <= 1'b0;
            beats_after <= beats_after - 1'b1;
            block_beat <= block_beat + 1'b1;
            event_beat <= event_beat + 1'b1;
            if (needs_input) inputs_left <= inputs_left - 1'b1;
        end
        if (load) begin
            from_event <= order_is_event;
            offset <= order_address[SHIFT-1:0];
            last_byte <= order_end[SHIFT-1:0];
            beats_after <= order_end[16:SHIFT];
            inputs_left <= order_inputs;
            block_beat <= order_address[BLOCK-1:SHIFT];
            is_first <= 1'b1;
            event_beat <= '0;
        end
    end

    // Responses: one per burst, in order. -------------------------------------------------------------------------------------------------

    wire response_is_event;
    wire response_is_last;
    // An earlier burst of the write has failed.
    logic failed;
    wire response = m_bvalid && m_bready;
    wire response_error = m_bresp[1] || failed;
    ni_fifo #(
        .WIDTH(2),
        .DEPTH(OUTSTANDING)
    ) pending (
        .clk(clk),
        .rst_n(rst_n),
        .in_valid(issue),
        .in_ready(pending_ready),
        .in_data({is_event, burst_is_last}),
        .out_valid(m_bready),
        .out_ready(m_bvalid),
        .out_data({response_is_event, response_is_last}),
        /* verilator lint_off PINCONNECTEMPTY */
        .level()
        /* verilator lint_on PINCONNECTEMPTY */
    );

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            failed <= 1'b0;
            write_done <= 1'b0;
            write_error <= 1'b0;
            event_write_done <= 1'b0;
            event_write_error <= 1'b0;
        end else begin
            if (response) failed <= response_error && !response_is_last;
            write_done <= response && response_is_last && !response_is_event;
            write_error <= response && response_is_last && !response_is_event && response_error;
            event_write_done <= response && response_is_last && response_is_event;
            event_write_error <= response && response_is_last && response_is_event && response_error;
        end
    end
endmodule
