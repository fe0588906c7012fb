// Adds up samples of a converter outside the FPGA: the test bench plays the converter.

`timescale 1ps / 1ps

module sampler (
    // Clock of the user side.
    input  wire        clk,
    // The converter delivers samples while this is 1.
    output wire        sample_ready,
    input  wire        sample_valid,
    input  wire [15:0] sample
);
    wire rst_n, interrupt, start, axi_clk;
    wire [31:0] awaddr, wdata, araddr, rdata, count;
    wire [3:0] wstrb;
    wire [1:0] bresp, rresp;
    wire awvalid, awready, wvalid, wready, bvalid, bready, arvalid, arready, rvalid, rready;

    // The test bench makes the clock: xdma_0 was written with --clock-input.
    xdma_0 xdma_0_i (
        .sys_clk(clk), .sys_rst_n(1'b1), .axi_aclk(axi_clk), .axi_aresetn(rst_n), .usr_irq_req({3'b000, interrupt}),
        .m_axil_awaddr(awaddr), .m_axil_awvalid(awvalid), .m_axil_awready(awready),
        .m_axil_wdata(wdata), .m_axil_wstrb(wstrb), .m_axil_wvalid(wvalid), .m_axil_wready(wready),
        .m_axil_bresp(bresp), .m_axil_bvalid(bvalid), .m_axil_bready(bready),
        .m_axil_araddr(araddr), .m_axil_arvalid(arvalid), .m_axil_arready(arready),
        .m_axil_rdata(rdata), .m_axil_rresp(rresp), .m_axil_rvalid(rvalid), .m_axil_rready(rready)
    );

    logic [31:0] left, sum;
    logic done;
    assign sample_ready = left != 0;

    always_ff @(posedge axi_clk) begin
        done <= 1'b0;
        if (!rst_n) left <= '0;
        else if (start) begin
            left <= count;
            sum <= '0;
        end else if (sample_valid && sample_ready) begin
            sum <= sum + 32'(sample);
            left <= left - 1;
            done <= left == 1;
        end
    end

    sampler_registers registers (
        .clk(axi_clk), .rst_n,
        .s_axil_awaddr(awaddr), .s_axil_awvalid(awvalid), .s_axil_awready(awready),
        .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(wvalid), .s_axil_wready(wready),
        .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(bready),
        .s_axil_araddr(araddr), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(rready),
        .sampler_count(count),
        .sampler_control_start(start),
        .sampler_status_busy(sample_ready),
        .sampler_status_done_set(done),
        .sampler_status_done(interrupt),
        .sampler_sum(sum)
    );
endmodule
