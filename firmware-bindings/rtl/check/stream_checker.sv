// Protocol checker of an AXI4-Stream: passive, for simulation. Violations are counted and reported like those of axi_checker.
//
// Rules: TVALID stays high until TREADY and its payload is stable (IHI 0051, 2.2.1); TKEEP is contiguous from byte 0, all ones except in
// the last beat of a packet, and never 0 (PG195).

`timescale 1ps / 1ps

module stream_checker #(
    parameter int DATA_WIDTH = 256,
    parameter string NAME = "axis"
) (
    input wire                    clk,
    input wire                    rst_n,
    input wire [DATA_WIDTH-1:0]   tdata,
    input wire [DATA_WIDTH/8-1:0] tkeep,
    input wire                    tlast,
    input wire                    tvalid,
    input wire                    tready
);
    localparam int BYTES = DATA_WIDTH / 8;

    int violations = 0;
    longint unsigned beats = 0;
    longint unsigned packets = 0;
    logic was_reset, held;
    logic [DATA_WIDTH+BYTES:0] was;
    wire [DATA_WIDTH+BYTES:0] is = {tlast, tkeep, tdata};

    task automatic violation(input string rule);
        violations = violations + 1;
        if (violations <= 20) $display("stream_checker %s at %0t: %s", NAME, $time, rule);
    endtask

    /* verilator lint_off BLKSEQ */
    always @(posedge clk) begin
        was_reset <= !rst_n;
        held <= rst_n && tvalid && !tready;
        was <= is;
        if (rst_n) begin
            if (was_reset && tvalid) violation("TVALID in the first cycle after reset");
            if (held && !tvalid) violation("TVALID withdrawn");
            if (held && tvalid && is != was) violation("payload changed before TREADY");
            if (tvalid && tready) begin
                if (tkeep == '0) violation("TKEEP is 0");
                if ((tkeep & (tkeep + 1'b1)) != '0) violation("TKEEP is not contiguous");
                if (!tlast && tkeep != '1) violation("partial beat without TLAST");
                beats = beats + 1;
                packets = packets + longint'(tlast);
            end
        end
    end
    /* verilator lint_on BLKSEQ */

    final $display("stream_checker %s: %0d violations in %0d beats, %0d packets", NAME, violations, beats, packets);
endmodule
