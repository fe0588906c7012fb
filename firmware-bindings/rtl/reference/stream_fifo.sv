// AXI4-Stream FIFO. `hold` is back-pressure: input, output. A packet leaves as soon as its first beat has arrived.

`timescale 1ps / 1ps

module stream_fifo #(
    parameter int DATA_WIDTH = 256,
    // Beats, a power of two.
    parameter int DEPTH = 64
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire [1:0]              hold,
    input  wire [DATA_WIDTH-1:0]   s_tdata,
    input  wire [DATA_WIDTH/8-1:0] s_tkeep,
    input  wire                    s_tlast,
    input  wire                    s_tvalid,
    output wire                    s_tready,
    output logic [DATA_WIDTH-1:0]  m_tdata,
    output logic [DATA_WIDTH/8-1:0] m_tkeep,
    output logic                   m_tlast,
    output logic                   m_tvalid,
    input  wire                    m_tready
);
    localparam int INDEX = $clog2(DEPTH);

    typedef struct packed {
        logic last;
        logic [DATA_WIDTH/8-1:0] keep;
        logic [DATA_WIDTH-1:0] data;
    } beat_t;
    beat_t beats[DEPTH];
    logic [INDEX:0] filled, taken;

    assign s_tready = filled - taken != (INDEX + 1)'(DEPTH) && !hold[0];

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            filled <= '0;
            taken <= '0;
            m_tvalid <= 1'b0;
        end else begin
            if (s_tvalid && s_tready) begin
                beats[filled[INDEX-1:0]] <= {s_tlast, s_tkeep, s_tdata};
                filled <= filled + 1;
            end
            if (m_tvalid && m_tready) m_tvalid <= 1'b0;
            if ((!m_tvalid || m_tready) && filled != taken && !hold[1]) begin
                {m_tlast, m_tkeep, m_tdata} <= beats[taken[INDEX-1:0]];
                m_tvalid <= 1'b1;
                taken <= taken + 1;
            end
        end
    end
endmodule
