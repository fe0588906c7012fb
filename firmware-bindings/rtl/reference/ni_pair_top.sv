// Two cards with network interface, whose network ports are connected to each other. Nodes 1 and 2.

`timescale 1ps / 1ps

module ni_pair_top #(
    parameter int DATA_WIDTH = 256,
    parameter int RAM_SIZE = 16777216
);
    localparam int WIDTH = DATA_WIDTH + DATA_WIDTH / 8 + 1;

    wire [1:0] clk, rst_n;
    wire [DATA_WIDTH-1:0] rx_tdata[2], tx_tdata[2];
    wire [DATA_WIDTH/8-1:0] rx_tkeep[2], tx_tkeep[2];
    wire [1:0] rx_tlast, rx_tvalid, rx_tready, tx_tlast, tx_tvalid, tx_tready;

    for (genvar card = 0; card < 2; card++) begin : g_card
        ni_card #(.DATA_WIDTH(DATA_WIDTH), .RAM_SIZE(RAM_SIZE), .NODE_ID(card + 1)) card_i (
            .clk(clk[card]), .rst_n(rst_n[card]), .s_axis_tdata(rx_tdata[card]), .s_axis_tkeep(rx_tkeep[card]),
            .s_axis_tlast(rx_tlast[card]), .s_axis_tvalid(rx_tvalid[card]), .s_axis_tready(rx_tready[card]),
            .m_axis_tdata(tx_tdata[card]), .m_axis_tkeep(tx_tkeep[card]), .m_axis_tlast(tx_tlast[card]),
            .m_axis_tvalid(tx_tvalid[card]), .m_axis_tready(tx_tready[card])
        );

        // From the other card: each card has its own clock.
        network_link #(.WIDTH(WIDTH)) link (
            .from_clk(clk[1-card]), .from_rst_n(rst_n[1-card]), .from_data({tx_tlast[1-card], tx_tkeep[1-card], tx_tdata[1-card]}),
            .from_valid(tx_tvalid[1-card]), .from_ready(tx_tready[1-card]),
            .to_clk(clk[card]), .to_rst_n(rst_n[card]), .to_data({rx_tlast[card], rx_tkeep[card], rx_tdata[card]}),
            .to_valid(rx_tvalid[card]), .to_ready(rx_tready[card])
        );
    end
endmodule

// Simulation of a link between two clock domains: a queue. A reset of one end loses what is on the way at this end.
module network_link #(
    parameter int WIDTH = 8
) (
    input  wire             from_clk,
    input  wire             from_rst_n,
    input  wire [WIDTH-1:0] from_data,
    input  wire             from_valid,
    output logic            from_ready,
    input  wire             to_clk,
    input  wire             to_rst_n,
    output logic [WIDTH-1:0] to_data,
    output logic            to_valid,
    input  wire             to_ready
);
    localparam int DEPTH = 64;
    logic [WIDTH-1:0] beats[$];
    logic [WIDTH-1:0] beat;

    /* verilator lint_off BLKSEQ */
    always @(posedge from_clk) begin
        if (from_rst_n && from_valid && from_ready) beats.push_back(from_data);
        from_ready <= from_rst_n && beats.size() < DEPTH;
    end

    always @(posedge to_clk) begin
        if (!to_rst_n) begin
            to_valid <= 1'b0;
            beats.delete();
        end else if (!to_valid || to_ready) begin
            to_valid <= beats.size() != 0;
            if (beats.size() != 0) begin
                beat = beats.pop_front();
                to_data <= beat;
            end
        end
    end
    /* verilator lint_on BLKSEQ */
endmodule
