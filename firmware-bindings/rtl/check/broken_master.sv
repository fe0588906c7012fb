// Test of the checker: a master and a slave that break its rules one after the other. Prints the name of each rule before its cycles.

`timescale 1ps / 1ps

module broken_master;
    bit clk = 0;
    always #500 clk = ~clk;

    logic rst_n = 0;
    logic [3:0] awid = 0, bid = 0, arid = 0, rid = 0;
    logic [31:0] awaddr = 0, araddr = 0;
    logic [7:0] awlen = 0, arlen = 0;
    logic [1:0] awburst = 1, arburst = 1;
    logic awvalid = 0, awready = 0, wvalid = 0, wready = 0, wlast = 0, bvalid = 0, bready = 1;
    logic arvalid = 0, arready = 0, rvalid = 0, rready = 1, rlast = 0;
    logic [63:0] wdata = 0, rdata = 0;
    logic [7:0] wstrb = 0;

    axi_checker #(.DATA_WIDTH(64), .ADDR_WIDTH(32), .ID_WIDTH(4), .NAME("broken")) checker_i (
        .clk, .rst_n, .awid, .awaddr, .awlen, .awsize(3'd3), .awburst, .awvalid, .awready,
        .wdata, .wstrb, .wlast, .wvalid, .wready, .bid, .bresp(2'b00), .bvalid, .bready,
        .arid, .araddr, .arlen, .arsize(3'd3), .arburst, .arvalid, .arready,
        .rid, .rdata, .rresp(2'b00), .rlast, .rvalid, .rready
    );

    task automatic cycles(input int count);
        repeat (count) @(posedge clk);
        #1;
    endtask

    task automatic reset();
        {awvalid, awready, wvalid, wready, bvalid, arvalid, arready, rvalid} = '0;
        rst_n = 0;
        cycles(2);
        rst_n = 1;
        cycles(2);
    endtask

    // A burst's command, accepted at once.
    task automatic write_command(input logic [31:0] address, input logic [7:0] len);
        {awaddr, awlen, awvalid, awready} = {address, len, 1'b1, 1'b1};
        cycles(1);
        {awvalid, awready} = '0;
    endtask

    task automatic write_beat(input logic [7:0] strobes, input logic last);
        {wstrb, wlast, wvalid, wready} = {strobes, last, 1'b1, 1'b1};
        cycles(1);
        {wvalid, wready} = '0;
    endtask

    initial begin
        reset();
        $display("expect none");
        write_command(32'hFF8, 0);
        write_beat(8'hFF, 1);
        bvalid = 1;
        cycles(1);
        bvalid = 0;

        $display("expect AW: VALID withdrawn");
        awvalid = 1;
        cycles(1);
        awvalid = 0;
        cycles(1);
        reset();

        $display("expect W: payload changed before READY");
        wvalid = 1;
        cycles(1);
        wdata = 1;
        cycles(1);
        reset();

        $display("expect AW: burst crosses 4 KiB");
        write_command(32'hFF8, 1);
        reset();

        $display("expect AW: FIXED burst of more than 16 beats");
        awburst = 0;
        write_command(32'h0, 16);
        awburst = 1;
        reset();

        $display("expect W: WLAST at the wrong beat");
        write_command(32'h0, 1);
        write_beat(8'hFF, 1);
        reset();

        $display("expect W: strobe outside the burst");
        write_command(32'h4, 0);
        write_beat(8'hF8, 1);
        reset();

        $display("expect B: response without a complete burst of its id");
        write_command(32'h0, 1);
        write_beat(8'hFF, 0);
        bvalid = 1;
        cycles(1);
        reset();

        $display("expect R: data without a command of its id");
        rvalid = 1;
        cycles(1);
        reset();

        $display("expect R: RLAST at the wrong beat");
        {araddr, arlen, arvalid, arready} = {32'h0, 8'd1, 1'b1, 1'b1};
        cycles(1);
        {arvalid, arready} = '0;
        {rvalid, rlast} = 2'b11;
        cycles(1);
        reset();

        $finish;
    end
endmodule
