// `fpga_ni` with small tables, for an independent master and memory: the identifiers that its memory port does not have are 0.
//
// Bytes that were never written are unknown here, which Python gets as random values. This bench ends the simulation if anything else that
// the interface drives is unknown: handshakes, and with VALID addresses, strobes, last beats, and the data of valid bytes.

`timescale 1ns / 1ps

module ni_ports_bench;
    localparam int BUS = 128;
    logic clk;
    logic rst_n;

    wire [15:0] s_axil_awaddr, s_axil_araddr;
    wire [31:0] s_axil_wdata, s_axil_rdata;
    wire [3:0]  s_axil_wstrb;
    wire [1:0]  s_axil_bresp, s_axil_rresp;
    wire s_axil_awvalid, s_axil_awready, s_axil_wvalid, s_axil_wready, s_axil_bvalid, s_axil_bready, s_axil_arvalid, s_axil_arready,
        s_axil_rvalid, s_axil_rready;

    wire [3:0]       s_axi_awid, s_axi_bid, s_axi_arid, s_axi_rid;
    wire [63:0]      s_axi_awaddr, s_axi_araddr;
    wire [7:0]       s_axi_awlen, s_axi_arlen;
    wire [2:0]       s_axi_awsize, s_axi_arsize;
    wire [1:0]       s_axi_awburst, s_axi_arburst, s_axi_bresp, s_axi_rresp;
    wire [BUS-1:0]   s_axi_wdata, s_axi_rdata;
    wire [BUS/8-1:0] s_axi_wstrb;
    wire s_axi_awvalid, s_axi_awready, s_axi_wlast, s_axi_wvalid, s_axi_wready, s_axi_bvalid, s_axi_bready, s_axi_arvalid, s_axi_arready,
        s_axi_rlast, s_axi_rvalid, s_axi_rready;

    wire [3:0]       m_axi_awid = 4'd0;
    wire [3:0]       m_axi_bid;
    wire [63:0]      m_axi_awaddr;
    wire [7:0]       m_axi_awlen;
    wire [2:0]       m_axi_awsize;
    wire [1:0]       m_axi_awburst, m_axi_bresp;
    wire [BUS-1:0]   m_axi_wdata;
    wire [BUS/8-1:0] m_axi_wstrb;
    wire m_axi_awvalid, m_axi_awready, m_axi_wlast, m_axi_wvalid, m_axi_wready, m_axi_bvalid, m_axi_bready;

    wire [BUS-1:0]   s_axis_tdata, m_axis_tdata;
    wire [BUS/8-1:0] s_axis_tkeep, m_axis_tkeep;
    wire s_axis_tlast, s_axis_tvalid, s_axis_tready, m_axis_tlast, m_axis_tvalid, m_axis_tready;
    wire [15:0] usr_irq_req;

    fpga_ni #(
        .BUS(BUS), .PACKET_LOG2(6), .ENTRIES(16), .ESCAPE_SLOTS(8), .WINDOWS(2), .MEMORY_WINDOWS(4), .SOURCES(4), .TRANSFERS(8),
        .TOMBSTONES(8), .NODES(16)
    ) ni (.*);

    // Icarus Verilog drops a signal without a reader.
    always @(posedge clk) if (m_axi_bvalid && m_axi_bid != m_axi_awid) $fatal(1, "response with another identifier");

    wire [BUS-1:0] memory_data, stream_data;
    for (genvar i = 0; i < BUS / 8; i++) begin : g_byte
        assign memory_data[8*i +: 8] = m_axi_wstrb[i] ? m_axi_wdata[8*i +: 8] : 8'd0;
        assign stream_data[8*i +: 8] = m_axis_tkeep[i] ? m_axis_tdata[8*i +: 8] : 8'd0;
    end
    wire [14:0] handshakes = {s_axil_awready, s_axil_wready, s_axil_bvalid, s_axil_arready, s_axil_rvalid, s_axi_awready, s_axi_wready,
        s_axi_bvalid, s_axi_arready, s_axi_rvalid, m_axi_awvalid, m_axi_wvalid, m_axi_bready, s_axis_tready, m_axis_tvalid};
    always @(posedge clk) begin
        if (rst_n === 1'b1) begin
            if (^handshakes === 1'bx) $fatal(1, "unknown handshake");
            if (s_axil_bvalid && ^s_axil_bresp === 1'bx || s_axil_rvalid && ^{s_axil_rresp, s_axil_rdata} === 1'bx)
                $fatal(1, "unknown register response");
            if (s_axi_bvalid && ^{s_axi_bresp, s_axi_bid} === 1'bx || s_axi_rvalid && ^{s_axi_rresp, s_axi_rid, s_axi_rlast} === 1'bx)
                $fatal(1, "unknown window response");
            if (m_axi_awvalid && ^{m_axi_awaddr, m_axi_awlen, m_axi_awsize, m_axi_awburst} === 1'bx) $fatal(1, "unknown address");
            if (m_axi_wvalid && ^{m_axi_wstrb, m_axi_wlast, memory_data} === 1'bx) $fatal(1, "unknown data of a write");
            if (m_axis_tvalid && ^{m_axis_tkeep, m_axis_tlast, stream_data} === 1'bx) $fatal(1, "unknown data of a frame");
        end
    end
endmodule
