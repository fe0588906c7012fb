// Two cards with network interface, nodes 1 and 2, and the network between them. A design for a board has one card, and a MAC in place of
// fpga_network.

`timescale 1ps / 1ps

module top;
    localparam int DATA_WIDTH = 256;

    for (genvar card = 0; card < 2; card++) begin : g_card
        wire clk, rst_n;
        wire [DATA_WIDTH-1:0] rx_tdata, tx_tdata;
        wire [DATA_WIDTH/8-1:0] rx_tkeep, tx_tkeep;
        wire rx_tlast, rx_tvalid, rx_tready, tx_tlast, tx_tvalid, tx_tready;

        // XDMA, CDMA, memory and the network interface, which has the AXI4-Streams.
        ni_card #(
            .DATA_WIDTH(DATA_WIDTH), .RAM_SIZE(4 << 20), .NODE_ID(card + 1), .CHANNELS(2), .PACKET_LOG2(10), .MASK_BITS(64)
        ) card_i (
            .clk, .rst_n,
            .s_axis_tdata(rx_tdata), .s_axis_tkeep(rx_tkeep), .s_axis_tlast(rx_tlast), .s_axis_tvalid(rx_tvalid), .s_axis_tready(rx_tready),
            .m_axis_tdata(tx_tdata), .m_axis_tkeep(tx_tkeep), .m_axis_tlast(tx_tlast), .m_axis_tvalid(tx_tvalid), .m_axis_tready(tx_tready)
        );

        // A port of the simulated network. +fpga_network replaces its conditions.
        fpga_network #(.DATA_WIDTH(DATA_WIDTH), .NETWORK("loss=0.01,reorder=64")) network (
            .aclk(clk), .aresetn(rst_n),
            .s_axis_tdata(tx_tdata), .s_axis_tkeep(tx_tkeep), .s_axis_tlast(tx_tlast), .s_axis_tvalid(tx_tvalid), .s_axis_tready(tx_tready),
            .m_axis_tdata(rx_tdata), .m_axis_tkeep(rx_tkeep), .m_axis_tlast(rx_tlast), .m_axis_tvalid(rx_tvalid), .m_axis_tready(rx_tready)
        );
    end
endmodule
