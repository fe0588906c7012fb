// Cards with network interface at ports of the simulated network (`fpga_network`): nodes 1 to CARDS, two by default.

`timescale 1ps / 1ps

module ni_pair_top #(
    parameter int CARDS = 2,
    parameter int DATA_WIDTH = 256,
    parameter int RAM_SIZE = 33554432
);
    for (genvar card = 0; card < CARDS; card++) begin : g_card
        wire clk, rst_n;
        wire [DATA_WIDTH-1:0] rx_tdata, tx_tdata;
        wire [DATA_WIDTH/8-1:0] rx_tkeep, tx_tkeep;
        wire rx_tlast, rx_tvalid, rx_tready, tx_tlast, tx_tvalid, tx_tready;

        ni_card #(.DATA_WIDTH(DATA_WIDTH), .RAM_SIZE(RAM_SIZE), .NODE_ID(card + 1)) card_i (
            .clk, .rst_n,
            .s_axis_tdata(rx_tdata), .s_axis_tkeep(rx_tkeep), .s_axis_tlast(rx_tlast), .s_axis_tvalid(rx_tvalid), .s_axis_tready(rx_tready),
            .m_axis_tdata(tx_tdata), .m_axis_tkeep(tx_tkeep), .m_axis_tlast(tx_tlast), .m_axis_tvalid(tx_tvalid), .m_axis_tready(tx_tready)
        );
        fpga_network #(.DATA_WIDTH(DATA_WIDTH)) network (
            .aclk(clk), .aresetn(rst_n),
            .s_axis_tdata(tx_tdata), .s_axis_tkeep(tx_tkeep), .s_axis_tlast(tx_tlast), .s_axis_tvalid(tx_tvalid), .s_axis_tready(tx_tready),
            .m_axis_tdata(rx_tdata), .m_axis_tkeep(rx_tkeep), .m_axis_tlast(rx_tlast), .m_axis_tvalid(rx_tvalid), .m_axis_tready(rx_tready)
        );
    end
endmodule
