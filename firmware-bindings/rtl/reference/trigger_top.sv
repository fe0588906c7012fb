// The reference top level, and a condition of the design that triggers the waveform: the first AXI-Lite read of offset 0x10.

`timescale 1ps / 1ps

module trigger_top;
    import "DPI-C" function void fpga_xdma_trace_trigger();

    reference_top top ();

    // The waveform begins at the rising edge after the call.
    always @(negedge top.axi_aclk)
        if (top.lite_arvalid && top.lite_araddr == 32'h10) fpga_xdma_trace_trigger();
endmodule
