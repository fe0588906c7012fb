// Test of a generated register block: each access, strobes, pulses, reset values.

`timescale 1ps / 1ps

module bench;
    bit clk = 1'b0;
    always #1 clk = ~clk;

    logic rst_n = 1'b0, valid = 1'b0, arvalid = 1'b0;
    logic [31:0] awaddr, wdata, araddr, flags_set = '0;
    logic [3:0] wstrb;
    wire [31:0] rdata, value, action, acknowledge, command, flags;
    wire [1:0] bresp, rresp;
    wire [7:0] low;
    wire command_written, queue_read, go, last, awready, wready, bvalid, arready, rvalid;

    kinds dut (
        .clk, .rst_n,
        .s_axil_awaddr(awaddr), .s_axil_awvalid(valid), .s_axil_awready(awready),
        .s_axil_wdata(wdata), .s_axil_wstrb(wstrb), .s_axil_wvalid(valid), .s_axil_wready(wready),
        .s_axil_bresp(bresp), .s_axil_bvalid(bvalid), .s_axil_bready(1'b1),
        .s_axil_araddr(araddr), .s_axil_arvalid(arvalid), .s_axil_arready(arready),
        .s_axil_rdata(rdata), .s_axil_rresp(rresp), .s_axil_rvalid(rvalid), .s_axil_rready(1'b1),
        .b_value(value), .b_action(action), .b_acknowledge(acknowledge), .b_command(command),
        .b_command_written(command_written), .b_flags_set(flags_set), .b_flags(flags), .b_queue(32'hCAFE),
        .b_queue_read(queue_read), .b_mixed_low(low), .b_mixed_go(go), .b_mixed_level(4'hA), .b_mixed_last(last),
        .b_cycles_low(32'h1111), .b_cycles_high(32'h2222)
    );

    task automatic check(input bit is_right, input string what);
        if (!is_right) $fatal(1, "wrong: %s", what);
    endtask

    // Ends in the cycle of the response, when pulses are visible.
    task automatic write(input int address, input int data, input logic [3:0] strobes, input logic [1:0] response);
        @(negedge clk);
        {awaddr, wdata, wstrb, valid} = {address, data, strobes, 1'b1};
        #0.1 check(awready && wready, "ready");
        @(negedge clk);
        valid = 1'b0;
        check(bvalid && bresp == response, "response of a write");
    endtask

    task automatic read(input int address, input int expected, input logic [1:0] response);
        @(negedge clk);
        {araddr, arvalid} = {address, 1'b1};
        @(negedge clk);
        arvalid = 1'b0;
        check(rvalid && rresp == response, "response of a read");
        check(rdata == expected, $sformatf("read of %0h: %0h instead of %0h", address, rdata, expected));
    endtask

    initial begin
        repeat (3) @(negedge clk);
        rst_n = 1'b1;
        check(command == 5 && low == 8'h7F && last, "reset values");
        read('h10000, 'h11223344, 0);
        write('h10000, 'hAABBCCDD, 4'b0101, 0);
        read('h10000, 'h11BB33DD, 0);

        write('h10004, 'hF0F0, 4'b0001, 0);
        check(action == 'hF0, "action");
        @(negedge clk) check(action == 0, "action ends");
        read('h10004, 0, 0);
        write('h10008, 'h3, 4'b1111, 0);
        check(acknowledge == 3, "acknowledge");

        write('h1000C, 'h77, 4'b1111, 0);
        check(command == 'h77 && command_written, "command");
        @(negedge clk) check(command == 'h77 && !command_written, "command ends");
        read('h1000C, 0, 0);

        flags_set = 'h6;
        @(negedge clk) flags_set = 0;
        read('h10010, 'h6, 0);
        write('h10010, 'h2, 4'b1111, 0);
        read('h10010, 'h4, 0);
        // The design sets the bit that the host clears.
        flags_set = 'h4;
        write('h10010, 'h4, 4'b1111, 0);
        flags_set = 0;
        read('h10010, 'h4, 0);

        read('h10014, 'hCAFE, 0);
        check(queue_read, "queue");
        @(negedge clk) check(!queue_read, "queue ends");

        read('h10018, 'h800A007F, 0);
        write('h10018, 'h7FFFFFFF, 4'b1111, 0);
        check(low == 8'hFF && go && !last, "fields");
        read('h10018, 'h000A00FF, 0);
        read('h10020, 'h1111, 0);
        read('h10024, 'h2222, 0);
        write('h10020, 'h1, 4'b1111, 0);

        read('h1001C, 0, 3);
        write('h1001C, 0, 4'b1111, 3);
        read('h0, 0, 3);
        $display("all right");
        $finish;
    end
endmodule
