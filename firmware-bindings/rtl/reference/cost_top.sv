// Top levels for the cost of the model per clock cycle: a counter that ends the simulation after +cycles=N cycles.

`timescale 1ps / 1ps

module cost_top #(
    // 0: the counter alone; 1: with an idle fpga_xdma; 2: with the reference top level.
    parameter int PART = 0
);
    wire clk;

    if (PART == 0) begin : g_alone
        bit clock = 1'b0;
        always #(2000) clock = ~clock;
        assign clk = clock;
    end else if (PART == 1) begin : g_xdma
        fpga_xdma #(.DATA_WIDTH(256), .CHANNELS(2)) xdma (
            .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b0), .axi_aclk(clk),
            .usr_irq_req(1'b0));
    end else begin : g_reference
        reference_top #(.CHECKER(0)) top ();
        assign clk = top.axi_aclk;
    end

    longint cycles = 0;
    longint last;
    initial if (!$value$plusargs("cycles=%d", last)) last = 1;
    always_ff @(posedge clk) begin
        cycles <= cycles + 1;
        if (cycles == last) begin
            $display("cycles %0d", cycles);
            $finish;
        end
    end
endmodule
