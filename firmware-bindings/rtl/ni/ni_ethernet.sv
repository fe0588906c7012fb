// Packets of the network interface in Ethernet II frames, between its AXI4-Stream ports and those of a MAC.
//
// Frame: destination and source MAC address, EtherType, two bytes 0, the packet; zeros up to 60 bytes. The MAC adds preamble and checksum.
// Addresses have their first byte in bits 7:0.
//
// Protocol: AXI4-Stream, one frame or packet per TLAST, in `clk`'s domain. `s_axis` takes packets, `tx_axis` has their frames. `rx_axis`
// takes frames, `m_axis` has their packets without padding, whose length the kind determines; MESSAGE_DATA, which this network interface
// does not have, keeps the padding that payloads of less than four bytes have. Frames with another EtherType, to another
// address than `mac` or broadcast, or without a packet are dropped and counted in `ignored`. A MAC without TREADY at its receiver needs a
// FIFO in front of `rx_axis`. Damaged frames may be passed on, because packets have a checksum, but may enter a wrong address.
//
// The MAC address of a node is that of the last frame from it; frames to nodes that have not sent are broadcast. The table has NODES
// entries, selected by the low bits of the node id: a node displaces another one of the same entry, which is then broadcast to.
//
// Latency: 1 cycle in each direction. A frame takes one more cycle than its packet if the 16 bytes in front do not fit its last beat. Order:
// that of the input. Reset: frames in progress and the table.

`timescale 1ns / 1ps

module ni_ethernet #(
    // Data width in bits: 128, 256 or 512.
    parameter int BUS = 256,
    // Entries of the address table; power of two.
    parameter int NODES = 64,
    // Default: local experiments (IEEE 802).
    parameter logic [15:0] ETHERTYPE = 16'h88B5
) (
    input  wire             clk,
    input  wire             rst_n,
    // Address of this card.
    input  wire [47:0]      mac,
    output logic [31:0]     ignored,

    input  wire [BUS-1:0]   s_axis_tdata,
    input  wire [BUS/8-1:0] s_axis_tkeep,
    input  wire             s_axis_tlast,
    input  wire             s_axis_tvalid,
    output wire             s_axis_tready,

    output logic [BUS-1:0]   tx_axis_tdata,
    output logic [BUS/8-1:0] tx_axis_tkeep,
    output logic             tx_axis_tlast,
    output logic             tx_axis_tvalid,
    input  wire              tx_axis_tready,

    input  wire [BUS-1:0]   rx_axis_tdata,
    input  wire [BUS/8-1:0] rx_axis_tkeep,
    input  wire             rx_axis_tlast,
    input  wire             rx_axis_tvalid,
    output wire             rx_axis_tready,

    output logic [BUS-1:0]   m_axis_tdata,
    output logic [BUS/8-1:0] m_axis_tkeep,
    output logic             m_axis_tlast,
    output logic             m_axis_tvalid,
    input  wire              m_axis_tready
);
    localparam int BYTES = BUS / 8;
    // Bytes in front of the packet.
    localparam int FRONT = 16;
    localparam int MIN_FRAME = 60;
    localparam int MIN_BEATS = (MIN_FRAME + BYTES - 1) / BYTES;
    localparam int MIN_LAST = MIN_FRAME - (MIN_BEATS - 1) * BYTES;
    localparam logic [BYTES-1:0] MIN_KEEP = BYTES'((65'b1 << MIN_LAST) - 65'b1);
    localparam int NODE_BITS = $clog2(NODES);
    localparam logic [47:0] BROADCAST = '1;
    localparam int SOURCE_LSB = ni_pkg::COMMON_SOURCE_LSB;
    localparam int DESTINATION_LSB = ni_pkg::COMMON_DESTINATION_LSB;

    // Address table. -----------------------------------------------------------------------------------------------------------------------

    logic [NODES-1:0] known;
    logic [31:0] nodes[NODES];
    logic [47:0] addresses[NODES];

    wire learn;
    wire [31:0] learn_node;
    wire [47:0] learn_address;

    always_ff @(posedge clk) begin
        if (!rst_n) known <= '0;
        else if (learn) known[learn_node[NODE_BITS-1:0]] <= 1'b1;
        if (learn) begin
            nodes[learn_node[NODE_BITS-1:0]] <= learn_node;
            addresses[learn_node[NODE_BITS-1:0]] <= learn_address;
        end
    end

    // Packets to frames. -------------------------------------------------------------------------------------------------------------------

    wire [31:0] node = s_axis_tdata[DESTINATION_LSB+:32];
    wire [NODE_BITS-1:0] entry = node[NODE_BITS-1:0];
    wire [47:0] destination = known[entry] && nodes[entry] == node ? addresses[entry] : BROADCAST;
    wire [8*FRONT-1:0] front = {16'h0, ETHERTYPE[7:0], ETHERTYPE[15:8], mac, destination};

    // Bytes outside TKEEP may be padding of the frame.
    logic [BUS-1:0] packet;
    always_comb for (int i = 0; i < BYTES; i++) packet[8*i+:8] = s_axis_tkeep[i] ? s_axis_tdata[8*i+:8] : 8'h0;

    // The last bytes of the beat before, and their number as a mask. `draining`: the packet has ended, its frame has not.
    logic [8*FRONT-1:0] carry;
    logic [FRONT-1:0] carry_keep;
    logic tx_first, draining;
    logic [3:0] tx_beat;

    wire tx_free = !tx_axis_tvalid || tx_axis_tready;
    wire tx_step = tx_free && (draining || s_axis_tvalid);
    assign s_axis_tready = tx_free && !draining;

    wire [BUS+8*FRONT-1:0] tx_wide = draining ? (BUS + 8 * FRONT)'(carry) : {packet, tx_first ? front : carry};
    wire [BYTES+FRONT-1:0] tx_wide_keep = draining ? (BYTES + FRONT)'(carry_keep) : {s_axis_tkeep, tx_first ? FRONT'('1) : carry_keep};
    wire tx_ends = draining || (s_axis_tlast && tx_wide_keep[BYTES+:FRONT] == 0);
    wire tx_is_short = 5'(tx_beat) + 5'd1 < 5'(MIN_BEATS);
    wire tx_last = tx_ends && !tx_is_short;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            tx_axis_tvalid <= 1'b0;
            tx_first <= 1'b1;
            draining <= 1'b0;
            tx_beat <= '0;
        end else begin
            if (tx_axis_tready) tx_axis_tvalid <= 1'b0;
            if (tx_step) begin
                tx_axis_tvalid <= 1'b1;
                tx_axis_tdata <= tx_wide[BUS-1:0];
                tx_axis_tkeep <= tx_wide_keep[BYTES-1:0];
                if (tx_ends && tx_is_short) tx_axis_tkeep <= '1;
                if (tx_ends && tx_beat == 4'(MIN_BEATS - 1)) tx_axis_tkeep <= tx_wide_keep[BYTES-1:0] | MIN_KEEP;
                tx_axis_tlast <= tx_last;
                carry <= tx_wide[BUS+:8*FRONT];
                carry_keep <= tx_wide_keep[BYTES+:FRONT];
                tx_first <= tx_last;
                draining <= !tx_last && (draining || s_axis_tlast);
                tx_beat <= tx_last ? '0 : (tx_beat == '1) ? tx_beat : tx_beat + 1'b1;
            end
        end
    end

    // Frames to packets. -------------------------------------------------------------------------------------------------------------------

    // The beat before. `rx_first`: the next beat is the first one of a frame. `skipping`: the rest of the frame is not used. `emptying`: the
    // frame has ended, its packet has not.
    logic [BUS-1:0] held;
    logic [BYTES-1:0] held_keep;
    logic rx_first, skipping, emptying;
    // The next beat of the packet is its first one; bytes that may follow.
    logic packet_first;
    logic [15:0] rest;

    wire rx_free = !m_axis_tvalid || m_axis_tready;
    assign rx_axis_tready = rx_free && !emptying;
    wire rx_take = rx_axis_tvalid && rx_axis_tready;

    wire [47:0] to = rx_axis_tdata[47:0];
    wire is_own = {rx_axis_tdata[103:96], rx_axis_tdata[111:104]} == ETHERTYPE && (to == mac || to == BROADCAST) &&
        (!rx_axis_tlast || (rx_axis_tkeep >> FRONT) != 0);

    wire [BUS-1:0] rx_data = BUS'({emptying ? BUS'(0) : rx_axis_tdata, held} >> (8 * FRONT));
    wire [2*BYTES-1:0] rx_wide_keep = {emptying ? BYTES'(0) : rx_axis_tkeep, held_keep} >> FRONT;
    wire [7:0] kind = rx_data[ni_pkg::COMMON_KIND_LSB+:8];
    wire [6:0] header_length;
    ni_rx_length length (.kind, .header_length);
    // Only packets of less than MIN_FRAME - FRONT bytes are padded; a checksum of four bytes follows the header.
    wire is_short = header_length < 7'(MIN_FRAME - FRONT - 4) && kind != ni_pkg::PACKET_KIND_MESSAGE_DATA;
    wire [15:0] limit = is_short ? 16'(header_length) + 16'd4 : '1;
    wire [15:0] allowed = packet_first ? limit : rest;
    wire is_cut = allowed <= 16'(BYTES);
    wire [BYTES-1:0] cut_keep = BYTES'(((BYTES + 1)'(1) << allowed) - (BYTES + 1)'(1));
    wire rx_ends = emptying || (rx_axis_tlast && rx_wide_keep[2*BYTES-1:BYTES] == 0);
    wire rx_step = rx_free && (emptying || (rx_axis_tvalid && !rx_first && !skipping));

    assign learn = rx_step && packet_first;
    assign learn_node = rx_data[SOURCE_LSB+:32];
    assign learn_address = held[95:48];

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            m_axis_tvalid <= 1'b0;
            rx_first <= 1'b1;
            skipping <= 1'b0;
            emptying <= 1'b0;
            packet_first <= 1'b1;
            ignored <= '0;
        end else begin
            if (m_axis_tready) m_axis_tvalid <= 1'b0;
            if (rx_take) begin
                rx_first <= rx_axis_tlast;
                if (rx_first) begin
                    skipping <= !is_own && !rx_axis_tlast;
                    emptying <= is_own && rx_axis_tlast;
                    if (!is_own) ignored <= ignored + 1'b1;
                end else if (rx_axis_tlast) skipping <= 1'b0;
                held <= rx_axis_tdata;
                held_keep <= rx_axis_tkeep;
            end
            if (rx_step) begin
                m_axis_tvalid <= 1'b1;
                m_axis_tdata <= rx_data;
                m_axis_tkeep <= is_cut ? rx_wide_keep[BYTES-1:0] & cut_keep : rx_wide_keep[BYTES-1:0];
                m_axis_tlast <= rx_ends || is_cut;
                packet_first <= rx_ends || is_cut;
                rest <= allowed == '1 ? allowed : allowed - 16'(BYTES);
                emptying <= !emptying && !rx_ends && !is_cut && rx_axis_tlast;
                if (!emptying && is_cut && !rx_axis_tlast) skipping <= 1'b1;
            end
        end
    end
endmodule
