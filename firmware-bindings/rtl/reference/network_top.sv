// Two stations on a simulated network: each sends FRAMES frames of different lengths to the other one, and counts those that arrive. Prints
// `station N: received R, wrong W, late L` at the end; `late`: frames with a lower number than the one before.

`timescale 1ps / 1ps

module network_station #(
    parameter int DATA_WIDTH = 64,
    parameter int NODE = 1,
    parameter int PEER = 2,
    parameter int FRAMES = 1000
) (
    input  wire  clk,
    input  wire  rst_n,
    output int   received,
    output int   wrong,
    output int   late
);
    localparam int BYTES = DATA_WIDTH / 8;
    // Bytes of the longest frame, and its bits.
    localparam int LONGEST = 128;

    logic [DATA_WIDTH-1:0] out_data, in_data;
    logic [BYTES-1:0] out_keep, in_keep;
    logic out_last, out_valid, in_last, in_valid;
    wire out_ready;

    fpga_network #(.DATA_WIDTH(DATA_WIDTH)) port (
        .aclk(clk), .aresetn(rst_n),
        .s_axis_tdata(out_data), .s_axis_tkeep(out_keep), .s_axis_tlast(out_last), .s_axis_tvalid(out_valid),
        .s_axis_tready(out_ready),
        .m_axis_tdata(in_data), .m_axis_tkeep(in_keep), .m_axis_tlast(in_last), .m_axis_tvalid(in_valid),
        .m_axis_tready(1'b1));

    // Frame `number`: source and destination as in the common header, the number, then bytes that depend on number and position.
    function automatic logic [7:0] value(input int number, input int position, input int source, input int destination);
        case (position)
            0, 1, 2, 3: value = 8'h00;
            4: value = 8'(source);
            8: value = 8'(destination);
            5, 6, 7, 9, 10, 11: value = 8'h00;
            12: value = 8'(number);
            13: value = 8'(number >> 8);
            default: value = 8'(number + 7 * position);
        endcase
    endfunction
    function automatic int size(input int number);
        size = 16 + number % (LONGEST - 16);
    endfunction

    int sent, offset, got_number, got_length, last_number;
    bit is_wrong;

    always_ff @(posedge clk) begin
        out_valid <= 1'b0;
        if (!rst_n) begin
            sent <= 0;
            offset <= 0;
        end else if (sent < FRAMES) begin
            out_valid <= 1'b1;
            for (int byte_of = 0; byte_of < BYTES; byte_of++) begin
                out_data[8*byte_of +: 8] <= value(sent, offset + byte_of, NODE, PEER);
                out_keep[byte_of] <= offset + byte_of < size(sent);
            end
            out_last <= offset + BYTES >= size(sent);
            offset <= offset + BYTES >= size(sent) ? 0 : offset + BYTES;
            if (offset + BYTES >= size(sent)) sent <= sent + 1;
        end
    end

    logic [8*LONGEST-1:0] frame;
    /* verilator lint_off BLKSEQ */
    always @(posedge clk) begin
        if (!rst_n) begin
            got_length = 0;
            received <= 0;
            wrong <= 0;
            late <= 0;
            last_number = -1;
        end else if (in_valid) begin
            for (int byte_of = 0; byte_of < BYTES; byte_of++)
                if (in_keep[byte_of] && got_length < LONGEST) begin
                    frame[8*got_length +: 8] = in_data[8*byte_of +: 8];
                    got_length = got_length + 1;
                end
            if (in_last) begin
                got_number = int'(frame[8*12 +: 16]);
                is_wrong = got_length != size(got_number);
                for (int position = 0; position < LONGEST; position++)
                    if (position < got_length && frame[8*position +: 8] != value(got_number, position, PEER, NODE)) is_wrong = 1'b1;
                received <= received + 1;
                if (is_wrong) wrong <= wrong + 1;
                else if (got_number < last_number) late <= late + 1;
                if (!is_wrong) last_number = got_number;
                got_length = 0;
            end
        end
    end
    /* verilator lint_on BLKSEQ */
endmodule

module network_top;
    logic clk = 1'b0;
    logic rst_n = 1'b0;
    always #2000 clk = !clk;

    int received[2], wrong[2], late[2];
    network_station #(.DATA_WIDTH(64), .NODE(1), .PEER(2)) first (
        .clk, .rst_n, .received(received[0]), .wrong(wrong[0]), .late(late[0]));
    network_station #(.DATA_WIDTH(512), .NODE(2), .PEER(1)) second (
        .clk, .rst_n, .received(received[1]), .wrong(wrong[1]), .late(late[1]));

    initial begin
        repeat (4) @(negedge clk);
        rst_n = 1'b1;
        repeat (40000) @(posedge clk);
        for (int station = 0; station < 2; station++)
            $display("station %0d: received %0d, wrong %0d, late %0d", station, received[station], wrong[station], late[station]);
        $finish;
    end
endmodule
