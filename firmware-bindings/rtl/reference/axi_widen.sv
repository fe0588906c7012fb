// 32-bit AXI4 master in front of a wider bus: the same bursts with narrow beats, on the byte lanes of their addresses. One burst of each
// direction at a time, incrementing addresses.

`timescale 1ps / 1ps

module axi_widen #(
    parameter int WIDTH = 256
) (
    input  wire               clk,
    input  wire               rst_n,
    input  wire [63:0]        s_awaddr,
    input  wire               s_awvalid,
    output wire               s_awready,
    input  wire [31:0]        s_wdata,
    input  wire [3:0]         s_wstrb,
    input  wire               s_wlast,
    input  wire               s_wvalid,
    output wire               s_wready,
    input  wire [63:0]        s_araddr,
    input  wire               s_arvalid,
    output wire               s_arready,
    output wire [31:0]        s_rdata,
    input  wire               s_rready,
    output wire               m_awvalid,
    input  wire               m_awready,
    output wire [WIDTH-1:0]   m_wdata,
    output wire [WIDTH/8-1:0] m_wstrb,
    output wire               m_wvalid,
    input  wire               m_wready,
    output wire               m_arvalid,
    input  wire               m_arready,
    input  wire [WIDTH-1:0]   m_rdata,
    input  wire               m_rlast,
    input  wire               m_rvalid
);
    localparam int WORDS = WIDTH / 32;
    localparam int INDEX = $clog2(WORDS);

    logic writing, reading;
    logic [INDEX-1:0] write_word, read_word;

    assign m_awvalid = s_awvalid && !writing;
    assign s_awready = m_awready && !writing;
    assign m_wvalid = s_wvalid && writing;
    assign s_wready = m_wready && writing;
    assign m_wdata = {WORDS{s_wdata}};
    assign m_wstrb = (WIDTH / 8)'(s_wstrb) << {write_word, 2'b00};
    assign m_arvalid = s_arvalid && !reading;
    assign s_arready = m_arready && !reading;
    assign s_rdata = m_rdata[{read_word, 5'b00000} +: 32];

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            writing <= 1'b0;
            reading <= 1'b0;
        end else begin
            if (m_awvalid && m_awready) begin
                writing <= 1'b1;
                write_word <= s_awaddr[2 +: INDEX];
            end
            if (m_wvalid && m_wready) begin
                write_word <= write_word + 1;
                if (s_wlast) writing <= 1'b0;
            end
            if (m_arvalid && m_arready) begin
                reading <= 1'b1;
                read_word <= s_araddr[2 +: INDEX];
            end
            if (m_rvalid && s_rready) begin
                read_word <= read_word + 1;
                if (m_rlast) reading <= 1'b0;
            end
        end
    end
endmodule
