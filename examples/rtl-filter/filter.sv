// FIR filter with four taps: two samples of 32 bits per beat, and no history across packets. One beat of latency.

`timescale 1ps / 1ps

module filter (
    input  wire         clk,
    input  wire         rst_n,
    input  wire  [31:0] h0,
    input  wire  [31:0] h1,
    input  wire  [31:0] h2,
    input  wire  [31:0] h3,
    input  wire  [63:0] s_tdata,
    input  wire  [7:0]  s_tkeep,
    input  wire         s_tlast,
    input  wire         s_tvalid,
    output wire         s_tready,
    output logic [63:0] m_tdata,
    output logic [7:0]  m_tkeep,
    output logic        m_tlast,
    output logic        m_tvalid,
    input  wire         m_tready
);
    // The three samples before this beat.
    logic [31:0] p1, p2, p3;
    wire [31:0] x0 = s_tdata[31:0];
    wire [31:0] x1 = s_tdata[63:32];

    assign s_tready = !m_tvalid || m_tready;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            m_tvalid <= 1'b0;
            {p1, p2, p3} <= '0;
        end else if (s_tready) begin
            m_tvalid <= s_tvalid;
            m_tdata <= {h0 * x1 + h1 * x0 + h2 * p1 + h3 * p2, h0 * x0 + h1 * p1 + h2 * p2 + h3 * p3};
            m_tkeep <= s_tkeep;
            m_tlast <= s_tlast;
            if (s_tvalid) {p1, p2, p3} <= s_tlast ? '0 : {x1, x0, p1};
        end
    end
endmodule
