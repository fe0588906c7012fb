// One AXI4 master in front of two slaves: addresses from BASE on go to slave 1, others to slave 0. One write and one read burst at a time,
// whose data follows its command, as axi_crossbar sends them. Payload signals go to both slaves: only the handshakes are here.

`timescale 1ps / 1ps

module axi_split #(
    parameter logic [63:0] BASE = 64'h10_0000_0000
) (
    input  wire        clk,
    input  wire        rst_n,
    input  wire [63:0] awaddr,
    input  wire        awvalid,
    output wire        awready,
    input  wire        wvalid,
    output wire        wready,
    output wire        bvalid,
    input  wire        bready,
    input  wire [63:0] araddr,
    input  wire        arvalid,
    output wire        arready,
    output wire        rvalid,
    input  wire        rready,
    // Slaves that the responses come from.
    output wire        writes_to,
    output wire        reads_from,
    output wire [1:0]  m_awvalid,
    input  wire [1:0]  m_awready,
    output wire [1:0]  m_wvalid,
    input  wire [1:0]  m_wready,
    input  wire [1:0]  m_bvalid,
    output wire [1:0]  m_bready,
    output wire [1:0]  m_arvalid,
    input  wire [1:0]  m_arready,
    input  wire [1:0]  m_rvalid,
    output wire [1:0]  m_rready
);
    logic writer, reader;
    assign writes_to = awvalid ? awaddr >= BASE : writer;
    assign reads_from = arvalid ? araddr >= BASE : reader;

    assign m_awvalid = {awvalid && writes_to, awvalid && !writes_to};
    assign awready = m_awready[writes_to];
    assign m_wvalid = {wvalid && writes_to, wvalid && !writes_to};
    assign wready = m_wready[writes_to];
    assign bvalid = m_bvalid[writes_to];
    assign m_bready = {bready && writes_to, bready && !writes_to};
    assign m_arvalid = {arvalid && reads_from, arvalid && !reads_from};
    assign arready = m_arready[reads_from];
    assign rvalid = m_rvalid[reads_from];
    assign m_rready = {rready && reads_from, rready && !reads_from};

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            writer <= 1'b0;
            reader <= 1'b0;
        end else begin
            if (awvalid) writer <= writes_to;
            if (arvalid) reader <= reads_from;
        end
    end
endmodule
