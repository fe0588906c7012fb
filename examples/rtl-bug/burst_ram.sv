// RAM with an AXI4 slave and a bug in it. See README.md.

`timescale 1ps / 1ps

module burst_ram #(
    parameter int SIZE_BITS = 16
) (
    input  wire                   clk,
    input  wire                   rst_n,
    // 1: without the bug.
    input  wire                   fixed,
    input  wire  [3:0]            s_awid,
    input  wire  [63:0]           s_awaddr,
    input  wire                   s_awvalid,
    output wire                   s_awready,
    input  wire  [63:0]           s_wdata,
    input  wire  [7:0]            s_wstrb,
    input  wire                   s_wlast,
    input  wire                   s_wvalid,
    output wire                   s_wready,
    output logic [3:0]            s_bid,
    output wire  [1:0]            s_bresp,
    output logic                  s_bvalid,
    input  wire                   s_bready,
    input  wire  [3:0]            s_arid,
    input  wire  [63:0]           s_araddr,
    input  wire  [7:0]            s_arlen,
    input  wire                   s_arvalid,
    output wire                   s_arready,
    output logic [3:0]            s_rid,
    output logic [63:0]           s_rdata,
    output wire  [1:0]            s_rresp,
    output logic                  s_rlast,
    output logic                  s_rvalid,
    input  wire                   s_rready,
    // Write access of the memory, for the checker.
    output wire                   write,
    output logic [SIZE_BITS-1:0]  write_address
);
    logic [63:0] memory[1 << (SIZE_BITS - 3)];
    logic writing, reading;
    logic [SIZE_BITS-1:3] read_word;
    logic [7:0] left;

    assign s_bresp = 2'b00;
    assign s_rresp = 2'b00;
    assign s_awready = !writing && !s_bvalid;
    assign s_wready = writing;
    assign s_arready = !reading;
    assign write = s_wvalid && s_wready;

    // The next word of a burst.
    wire [SIZE_BITS-1:0] wrapped = {write_address[SIZE_BITS-1:8], write_address[7:0] + 8'd8};
    wire [SIZE_BITS-1:0] next = fixed ? write_address + 16'd8 : wrapped;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            writing <= 1'b0;
            s_bvalid <= 1'b0;
        end else begin
            if (s_bready) s_bvalid <= 1'b0;
            if (s_awvalid && s_awready) begin
                writing <= 1'b1;
                write_address <= {s_awaddr[SIZE_BITS-1:3], 3'b000};
                s_bid <= s_awid;
            end
            if (write) begin
                for (int lane = 0; lane < 8; lane++)
                    if (s_wstrb[lane]) memory[write_address[SIZE_BITS-1:3]][8 * lane +: 8] <= s_wdata[8 * lane +: 8];
                write_address <= next;
                if (s_wlast) begin
                    writing <= 1'b0;
                    s_bvalid <= 1'b1;
                end
            end
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            reading <= 1'b0;
            s_rvalid <= 1'b0;
        end else begin
            if (s_rready) s_rvalid <= 1'b0;
            if (s_arvalid && s_arready) begin
                reading <= 1'b1;
                read_word <= s_araddr[SIZE_BITS-1:3];
                left <= s_arlen;
                s_rid <= s_arid;
            end
            if (reading && (!s_rvalid || s_rready)) begin
                s_rvalid <= 1'b1;
                s_rdata <= memory[read_word];
                s_rlast <= left == 0;
                read_word <= read_word + 1;
                left <= left - 1;
                if (left == 0) reading <= 1'b0;
            end
        end
    end
endmodule
