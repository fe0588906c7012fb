// Protocol checker of an AXI4 master and its slave: passive, for simulation. Each violation is reported with its time and counted; the
// total is reported at the end.
//
// Rules (AMBA AXI, IHI 0022): VALID stays high until READY and its payload is stable (A3.2.1); a burst does not cross 4 KiB, its length
// fits its type (A3.4.1); WLAST is at the last beat, and data does not exceed the commands (A3.4.1); strobes are inside the burst (A3.4.3);
// B and RLAST belong to outstanding bursts of their id (A5.3).
//
// With a simulator of four states, X and Z at VALID and READY, and at the other control signals while VALID is high, are violations, too.
// They are reported with the cycle (since the reset) and the address: that of the command, or of the oldest burst that the channel concerns.

`timescale 1ps / 1ps

module axi_checker #(
    parameter int DATA_WIDTH = 256,
    parameter int ADDR_WIDTH = 64,
    parameter int ID_WIDTH = 4,
    parameter NAME = "m_axi"
) (
    input wire                    clk,
    input wire                    rst_n,
    input wire [ID_WIDTH-1:0]     awid,
    input wire [ADDR_WIDTH-1:0]   awaddr,
    input wire [7:0]              awlen,
    input wire [2:0]              awsize,
    input wire [1:0]              awburst,
    input wire                    awvalid,
    input wire                    awready,
    input wire [DATA_WIDTH-1:0]   wdata,
    input wire [DATA_WIDTH/8-1:0] wstrb,
    input wire                    wlast,
    input wire                    wvalid,
    input wire                    wready,
    input wire [ID_WIDTH-1:0]     bid,
    input wire [1:0]              bresp,
    input wire                    bvalid,
    input wire                    bready,
    input wire [ID_WIDTH-1:0]     arid,
    input wire [ADDR_WIDTH-1:0]   araddr,
    input wire [7:0]              arlen,
    input wire [2:0]              arsize,
    input wire [1:0]              arburst,
    input wire                    arvalid,
    input wire                    arready,
    input wire [ID_WIDTH-1:0]     rid,
    input wire [DATA_WIDTH-1:0]   rdata,
    input wire [1:0]              rresp,
    input wire                    rlast,
    input wire                    rvalid,
    input wire                    rready
);
    localparam int BYTES = DATA_WIDTH / 8;
    localparam int LANE = $clog2(BYTES);
    localparam int IDS = 1 << ID_WIDTH;
    // Reported violations; all are counted.
    localparam int REPORTED = 20;

    int violations = 0;
    longint unsigned bursts = 0;

    task automatic violation(input string rule);
        violations = violations + 1;
        if (violations <= REPORTED) $display("axi_checker %s at %0t: %s", NAME, $time, rule);
    endtask

    task automatic check_command(
        input string channel, input logic [ADDR_WIDTH-1:0] address, input logic [7:0] len, input logic [2:0] size, input logic [1:0] burst);
        logic [ADDR_WIDTH-1:0] first, last;
        first = (address >> size) << size;
        last = first + (ADDR_WIDTH'(len) + 1 << size) - 1;
        if (burst == 2'b11) violation({channel, ": reserved burst type"});
        if (burst == 2'b01 && first[ADDR_WIDTH-1:12] != last[ADDR_WIDTH-1:12]) violation({channel, ": burst crosses 4 KiB"});
        if (burst == 2'b00 && len > 15) violation({channel, ": FIXED burst of more than 16 beats"});
        if (burst == 2'b10 && len != 1 && len != 3 && len != 7 && len != 15) violation({channel, ": WRAP burst of a wrong length"});
        if ((1 << size) > BYTES) violation({channel, ": size exceeds the data width"});
        bursts = bursts + 1;
    endtask

    // Previous cycle.
    logic was_reset;
    logic aw_held, w_held, b_held, ar_held, r_held;
    logic [ID_WIDTH+ADDR_WIDTH+12:0] aw_was, ar_was;
    logic [DATA_WIDTH+BYTES:0] w_was;
    logic [ID_WIDTH+1:0] b_was;
    logic [ID_WIDTH+DATA_WIDTH+2:0] r_was;
    wire [ID_WIDTH+ADDR_WIDTH+12:0] aw_is = {awid, awaddr, awlen, awsize, awburst};
    wire [ID_WIDTH+ADDR_WIDTH+12:0] ar_is = {arid, araddr, arlen, arsize, arburst};
    wire [DATA_WIDTH+BYTES:0] w_is = {wdata, wstrb, wlast};
    wire [ID_WIDTH+1:0] b_is = {bid, bresp};
    wire [ID_WIDTH+DATA_WIDTH+2:0] r_is = {rid, rdata, rresp, rlast};

    // Commands whose data is not complete, in order, and complete bursts without a response, by id.
    typedef struct packed {
        logic [ID_WIDTH-1:0] id;
        logic [ADDR_WIDTH-1:0] address;
        logic [7:0] len;
        logic [2:0] size;
        logic [1:0] burst;
    } command_t;
    // Queues of vectors, not of structures or per id: Icarus Verilog has no others.
    logic [$bits(command_t)-1:0] commands[$];
    command_t command;
    int beat = 0;
    // Beats that came before their command.
    typedef struct packed {
        logic [BYTES-1:0] strobes;
        logic last;
    } beat_t;
    logic [BYTES:0] early[$];
    beat_t early_beat;
    // Bursts in progress, in the order of their commands: reads, and writes whose data is complete.
    typedef struct packed {
        logic [ID_WIDTH-1:0] id;
        logic [7:0] len;
        logic [ADDR_WIDTH-1:0] address;
    } burst_t;
    logic [$bits(burst_t)-1:0] reads[$], writes[$];
    burst_t read, write;
    int read_index, write_index;
    int read_beats[IDS];

    // Finds the first read (write) burst with this id: `read` and `read_index`, which is -1 if there is none.
    task automatic find_read(input logic [ID_WIDTH-1:0] id);
        read_index = -1;
        for (int index = 0; index < reads.size() && read_index < 0; index++) begin
            read = reads[index];
            if (read.id == id) read_index = index;
        end
    endtask

    task automatic find_write(input logic [ID_WIDTH-1:0] id);
        write_index = -1;
        for (int index = 0; index < writes.size() && write_index < 0; index++) begin
            write = writes[index];
            if (write.id == id) write_index = index;
        end
    endtask

    // Unknown control signals: VALID 4:0, READY 9:5, payload 14:10, each of AW, W, B, AR, R.
    int unsigned cycle = 0;
    logic [14:0] unknown, unknown_was;
    wire [14:0] unknown_is = {
        rvalid === 1'b1 && $isunknown({rid, rresp, rlast}), arvalid === 1'b1 && $isunknown(ar_is),
        bvalid === 1'b1 && $isunknown(b_is), wvalid === 1'b1 && $isunknown({wstrb, wlast}), awvalid === 1'b1 && $isunknown(aw_is),
        $isunknown(rready), $isunknown(arready), $isunknown(bready), $isunknown(wready), $isunknown(awready),
        $isunknown(rvalid), $isunknown(arvalid), $isunknown(bvalid), $isunknown(wvalid), $isunknown(awvalid)
    };

    // Reports those that were known in the cycle before.
    task automatic check_known;
        logic [ADDR_WIDTH-1:0] oldest;
        string channel, signal;
        unknown = unknown_is & ~unknown_was;
        for (int index = 0; index < 15; index++)
            if (unknown[index]) begin
                oldest = '0;
                case (index % 5)
                    0: begin
                        channel = "AW";
                        oldest = awaddr;
                    end
                    1: begin
                        channel = "W";
                        command = commands.size() != 0 ? commands[0] : '0;
                        oldest = command.address;
                    end
                    2: begin
                        channel = "B";
                        write = writes.size() != 0 ? writes[0] : '0;
                        oldest = write.address;
                    end
                    3: begin
                        channel = "AR";
                        oldest = araddr;
                    end
                    default: begin
                        channel = "R";
                        read = reads.size() != 0 ? reads[0] : '0;
                        oldest = read.address;
                    end
                endcase
                signal = index < 5 ? "VALID" : index < 10 ? "READY" : "a signal of the payload";
                violation($sformatf("%0s: %0s is X or Z in cycle %0d, address %h", channel, signal, cycle, oldest));
            end
    endtask

    task automatic check_beat(input logic [BYTES-1:0] strobes, input logic last);
        logic [ADDR_WIDTH-1:0] at, first_byte, last_byte;
        logic [BYTES-1:0] allowed;
        command = commands[0];
        at = (command.address >> command.size) << command.size;
        if (command.burst != 2'b00) at = at + (ADDR_WIDTH'(beat) << command.size);
        first_byte = (beat == 0 || command.burst == 2'b00) ? command.address : at;
        last_byte = at + (ADDR_WIDTH'(1) << command.size) - 1;
        for (int lane = 0; lane < BYTES; lane++)
            allowed[lane] = lane >= int'(first_byte[LANE-1:0]) && lane <= int'(last_byte[LANE-1:0]);
        // Strobes of a WRAP burst are not checked.
        if (command.burst != 2'b10 && (strobes & ~allowed) != '0) violation("W: strobe outside the burst");
        if (last != (beat == int'(command.len))) violation("W: WLAST at the wrong beat");
        if (last || beat == int'(command.len)) begin
            write = {command.id, command.len, command.address};
            writes.push_back(write);
            command = commands.pop_front();
            beat = 0;
        end else beat = beat + 1;
    endtask

    /* verilator lint_off BLKSEQ */
    always @(posedge clk) begin
        was_reset <= !rst_n;
        aw_held <= rst_n && awvalid && !awready;
        w_held <= rst_n && wvalid && !wready;
        b_held <= rst_n && bvalid && !bready;
        ar_held <= rst_n && arvalid && !arready;
        r_held <= rst_n && rvalid && !rready;
        aw_was <= aw_is;
        w_was <= w_is;
        b_was <= b_is;
        ar_was <= ar_is;
        r_was <= r_is;
        if (!rst_n) begin
            commands.delete();
            early.delete();
            reads.delete();
            writes.delete();
            unknown_was = '0;
            cycle = 0;
            beat = 0;
            for (int id = 0; id < IDS; id++) begin
                read_beats[id] = 0;
            end
        end else begin
            if (was_reset && (awvalid || wvalid || arvalid)) violation("VALID in the first cycle after reset");
            if (aw_held && !awvalid) violation("AW: VALID withdrawn");
            if (aw_held && awvalid && aw_is != aw_was) violation("AW: payload changed before READY");
            if (w_held && !wvalid) violation("W: VALID withdrawn");
            if (w_held && wvalid && w_is != w_was) violation("W: payload changed before READY");
            if (b_held && !bvalid) violation("B: VALID withdrawn");
            if (b_held && bvalid && b_is != b_was) violation("B: payload changed before READY");
            if (ar_held && !arvalid) violation("AR: VALID withdrawn");
            if (ar_held && arvalid && ar_is != ar_was) violation("AR: payload changed before READY");
            if (r_held && !rvalid) violation("R: VALID withdrawn");
            if (r_held && rvalid && r_is != r_was) violation("R: payload changed before READY");

            cycle = cycle + 1;
            if (unknown_is !== unknown_was) check_known;
            unknown_was = unknown_is;

            // Responses concern bursts of earlier cycles.
            if (bvalid && bready) begin
                find_write(bid);
                if (write_index < 0) violation("B: response without a complete burst of its id");
                else writes.delete(write_index);
            end
            if (rvalid && rready) begin
                find_read(rid);
                if (read_index < 0) violation("R: data without a command of its id");
                else begin
                    if (rlast != (read_beats[rid] == int'(read.len))) violation("R: RLAST at the wrong beat");
                    if (rlast || read_beats[rid] == int'(read.len)) begin
                        reads.delete(read_index);
                        read_beats[rid] = 0;
                    end else read_beats[rid] = read_beats[rid] + 1;
                end
            end
            if (awvalid && awready) begin
                check_command("AW", awaddr, awlen, awsize, awburst);
                command = {awid, awaddr, awlen, awsize, awburst};
                commands.push_back(command);
            end
            if (wvalid && wready) begin
                early_beat = {wstrb, wlast};
                early.push_back(early_beat);
            end
            while (early.size() != 0 && commands.size() != 0) begin
                early_beat = early.pop_front();
                check_beat(early_beat.strobes, early_beat.last);
            end
            if (arvalid && arready) begin
                check_command("AR", araddr, arlen, arsize, arburst);
                read = {arid, arlen, araddr};
                reads.push_back(read);
            end
        end
    end
    /* verilator lint_on BLKSEQ */

    final $display("axi_checker %s: %0d violations in %0d bursts", NAME, violations, bursts);
endmodule
