// Block RAM with an AXI4 slave (INCR bursts of the full data width) and a port for the design. The slave has one burst of each direction at
// a time; addresses beyond the RAM repeat it.

`timescale 1ps / 1ps

module axi_bram #(
    parameter int DATA_WIDTH = 64,
    // Bits of the byte address: 64 KiB.
    parameter int SIZE_BITS = 16
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire [3:0]              s_awid,
    input  wire [63:0]             s_awaddr,
    input  wire                    s_awvalid,
    output wire                    s_awready,
    input  wire [DATA_WIDTH-1:0]   s_wdata,
    input  wire [DATA_WIDTH/8-1:0] s_wstrb,
    input  wire                    s_wlast,
    input  wire                    s_wvalid,
    output wire                    s_wready,
    output logic [3:0]             s_bid,
    output wire [1:0]              s_bresp,
    output logic                   s_bvalid,
    input  wire                    s_bready,
    input  wire [3:0]              s_arid,
    input  wire [63:0]             s_araddr,
    input  wire [7:0]              s_arlen,
    input  wire                    s_arvalid,
    output wire                    s_arready,
    output logic [3:0]             s_rid,
    output logic [DATA_WIDTH-1:0]  s_rdata,
    output wire [1:0]              s_rresp,
    output logic                   s_rlast,
    output logic                   s_rvalid,
    input  wire                    s_rready,
    // The design's port: data of a read one cycle later.
    input  wire [SIZE_BITS-1:0]    address,
    input  wire                    write,
    input  wire [DATA_WIDTH-1:0]   write_data,
    output logic [DATA_WIDTH-1:0]  read_data
);
    localparam int BYTES = DATA_WIDTH / 8;
    localparam int LANE = $clog2(BYTES);

    logic [DATA_WIDTH-1:0] memory[1 << (SIZE_BITS - LANE)];

    assign s_bresp = 2'b00;
    assign s_rresp = 2'b00;

    logic writing;
    logic [SIZE_BITS-1:LANE] write_word;

    assign s_awready = !writing && !s_bvalid;
    assign s_wready = writing;

    always_ff @(posedge clk) begin
        if (write) memory[address[SIZE_BITS-1:LANE]] <= write_data;
        read_data <= memory[address[SIZE_BITS-1:LANE]];
        if (!rst_n) begin
            writing <= 1'b0;
            s_bvalid <= 1'b0;
        end else begin
            if (s_bready) s_bvalid <= 1'b0;
            if (s_awvalid && s_awready) begin
                writing <= 1'b1;
                write_word <= s_awaddr[SIZE_BITS-1:LANE];
                s_bid <= s_awid;
            end
            if (s_wvalid && s_wready) begin
                for (int lane = 0; lane < BYTES; lane++)
                    if (s_wstrb[lane]) memory[write_word][8 * lane +: 8] <= s_wdata[8 * lane +: 8];
                write_word <= write_word + 1;
                if (s_wlast) begin
                    writing <= 1'b0;
                    s_bvalid <= 1'b1;
                end
            end
        end
    end

    logic reading;
    logic [SIZE_BITS-1:LANE] read_word;
    logic [7:0] left;

    assign s_arready = !reading;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            reading <= 1'b0;
            s_rvalid <= 1'b0;
        end else begin
            if (s_rready) s_rvalid <= 1'b0;
            if (s_arvalid && s_arready) begin
                reading <= 1'b1;
                read_word <= s_araddr[SIZE_BITS-1:LANE];
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
