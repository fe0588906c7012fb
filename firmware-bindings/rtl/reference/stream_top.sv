// Reference top level of an AXI4-Stream build: every H2C port is connected to the C2H port of its channel through a FIFO.
//
// Plusargs: +pressure=SEED for random back-pressure (0: none).

`timescale 1ps / 1ps

module stream_top #(
    parameter int DATA_WIDTH = 256,
    // Beats of each FIFO.
    parameter int DEPTH = 64
);
    localparam int CHANNELS = 2;

    wire clk, rst_n;
    wire [DATA_WIDTH-1:0] h2c_tdata[CHANNELS], c2h_tdata[CHANNELS];
    wire [DATA_WIDTH/8-1:0] h2c_tkeep[CHANNELS], c2h_tkeep[CHANNELS];
    wire [CHANNELS-1:0] h2c_tlast, h2c_tvalid, h2c_tready, c2h_tlast, c2h_tvalid, c2h_tready;

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .CHANNELS(CHANNELS), .STREAM(1'b1)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req(1'b0),
        .m_axi_awready(1'b0), .m_axi_wready(1'b0), .m_axi_bid('0), .m_axi_bresp('0), .m_axi_bvalid(1'b0),
        .m_axi_arready(1'b0), .m_axi_rid('0), .m_axi_rdata('0), .m_axi_rresp('0), .m_axi_rlast(1'b0), .m_axi_rvalid(1'b0),
        .m_axil_awready(1'b0), .m_axil_wready(1'b0), .m_axil_bvalid(1'b0), .m_axil_bresp('0),
        .m_axil_arready(1'b0), .m_axil_rdata('0), .m_axil_rresp('0), .m_axil_rvalid(1'b0),
        .m_axib_awready(1'b0), .m_axib_wready(1'b0), .m_axib_bid('0), .m_axib_bresp('0), .m_axib_bvalid(1'b0),
        .m_axib_arready(1'b0), .m_axib_rid('0), .m_axib_rdata('0), .m_axib_rresp('0), .m_axib_rlast(1'b0), .m_axib_rvalid(1'b0),
        .m_axis_h2c_tdata_0(h2c_tdata[0]), .m_axis_h2c_tkeep_0(h2c_tkeep[0]), .m_axis_h2c_tlast_0(h2c_tlast[0]),
        .m_axis_h2c_tvalid_0(h2c_tvalid[0]), .m_axis_h2c_tready_0(h2c_tready[0]),
        .s_axis_c2h_tdata_0(c2h_tdata[0]), .s_axis_c2h_tkeep_0(c2h_tkeep[0]), .s_axis_c2h_tlast_0(c2h_tlast[0]),
        .s_axis_c2h_tvalid_0(c2h_tvalid[0]), .s_axis_c2h_tready_0(c2h_tready[0]),
        .m_axis_h2c_tdata_1(h2c_tdata[1]), .m_axis_h2c_tkeep_1(h2c_tkeep[1]), .m_axis_h2c_tlast_1(h2c_tlast[1]),
        .m_axis_h2c_tvalid_1(h2c_tvalid[1]), .m_axis_h2c_tready_1(h2c_tready[1]),
        .s_axis_c2h_tdata_1(c2h_tdata[1]), .s_axis_c2h_tkeep_1(c2h_tkeep[1]), .s_axis_c2h_tlast_1(c2h_tlast[1]),
        .s_axis_c2h_tvalid_1(c2h_tvalid[1]), .s_axis_c2h_tready_1(c2h_tready[1]),
        .m_axis_h2c_tready_2(1'b0), .s_axis_c2h_tdata_2('0), .s_axis_c2h_tkeep_2('0), .s_axis_c2h_tlast_2(1'b0),
        .s_axis_c2h_tvalid_2(1'b0),
        .m_axis_h2c_tready_3(1'b0), .s_axis_c2h_tdata_3('0), .s_axis_c2h_tkeep_3('0), .s_axis_c2h_tlast_3(1'b0),
        .s_axis_c2h_tvalid_3(1'b0)
    );

    int pressure = 0;
    logic [31:0] random;
    initial if (!$value$plusargs("pressure=%d", pressure)) pressure = 0;
    always_ff @(posedge clk)
        if (!rst_n) random <= 32'(pressure) * 32'h9E37_79B9 ^ 32'h0BAD_CAFE;
        else if (pressure != 0) begin
            // xorshift32
            logic [31:0] next;
            next = random ^ random << 13;
            next = next ^ next >> 17;
            random <= next ^ next << 5;
        end
    wire [3:0] hold = pressure == 0 ? 4'b0 : {random[3], random[8] & random[11], random[14], random[21] | random[27]};

    for (genvar channel = 0; channel < CHANNELS; channel++) begin : g_channel
        stream_fifo #(.DATA_WIDTH(DATA_WIDTH), .DEPTH(DEPTH)) fifo (
            .clk, .rst_n, .hold(hold[2*channel +: 2]),
            .s_tdata(h2c_tdata[channel]), .s_tkeep(h2c_tkeep[channel]), .s_tlast(h2c_tlast[channel]),
            .s_tvalid(h2c_tvalid[channel]), .s_tready(h2c_tready[channel]),
            .m_tdata(c2h_tdata[channel]), .m_tkeep(c2h_tkeep[channel]), .m_tlast(c2h_tlast[channel]),
            .m_tvalid(c2h_tvalid[channel]), .m_tready(c2h_tready[channel])
        );
        stream_checker #(.DATA_WIDTH(DATA_WIDTH), .NAME("h2c")) checker_i (
            .clk, .rst_n, .tdata(h2c_tdata[channel]), .tkeep(h2c_tkeep[channel]), .tlast(h2c_tlast[channel]),
            .tvalid(h2c_tvalid[channel]), .tready(h2c_tready[channel])
        );
    end
endmodule
