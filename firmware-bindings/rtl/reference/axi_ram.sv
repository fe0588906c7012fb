// AXI4 RAM: one burst of each direction at a time, any alignment, INCR and FIXED. Addresses beyond the RAM answer DECERR; those in
// SILENT_BASE..SILENT_BASE+SILENT_SIZE-1 never answer; those in SLAVE_BASE.. answer SLVERR. Two defects:
// reads in LAST_BASE.. end one beat early, responses in ID_BASE.. have a wrong id. `hold` is back-pressure, one bit per channel.

`timescale 1ps / 1ps

module axi_ram #(
    parameter int DATA_WIDTH = 256,
    parameter int ADDR_WIDTH = 64,
    parameter int ID_WIDTH = 4,
    // A power of two.
    parameter longint SIZE = 64'h10_0000,
    parameter longint SILENT_BASE = 64'h4000_0000,
    parameter longint SILENT_SIZE = 64'h1000,
    parameter longint SLAVE_BASE = 64'h5000_0000,
    parameter longint SLAVE_SIZE = 64'h1000,
    parameter longint LAST_BASE = 64'h6000_0000,
    parameter longint ID_BASE = 64'h7000_0000,
    parameter longint DEFECT_SIZE = 64'h1000,
    // Bursts of beats that are narrower than the data bus; without it, the sizes are not read.
    parameter bit NARROW = 1'b0
) (
    input  wire                    clk,
    input  wire                    rst_n,
    // Back-pressure: AW, W, B, AR, R.
    input  wire [4:0]              hold,
    input  wire [ID_WIDTH-1:0]     s_awid,
    input  wire [ADDR_WIDTH-1:0]   s_awaddr,
    input  wire [7:0]              s_awlen,
    input  wire [1:0]              s_awburst,
    input  wire [2:0]              s_awsize,
    input  wire                    s_awvalid,
    output wire                    s_awready,
    input  wire [DATA_WIDTH-1:0]   s_wdata,
    input  wire [DATA_WIDTH/8-1:0] s_wstrb,
    input  wire                    s_wlast,
    input  wire                    s_wvalid,
    output wire                    s_wready,
    output logic [ID_WIDTH-1:0]    s_bid,
    output logic [1:0]             s_bresp,
    output logic                   s_bvalid,
    input  wire                    s_bready,
    input  wire [ID_WIDTH-1:0]     s_arid,
    input  wire [ADDR_WIDTH-1:0]   s_araddr,
    input  wire [7:0]              s_arlen,
    input  wire [1:0]              s_arburst,
    input  wire [2:0]              s_arsize,
    input  wire                    s_arvalid,
    output wire                    s_arready,
    output logic [ID_WIDTH-1:0]    s_rid,
    output logic [DATA_WIDTH-1:0]  s_rdata,
    output logic [1:0]             s_rresp,
    output logic                   s_rlast,
    output logic                   s_rvalid,
    input  wire                    s_rready
);
    localparam int BYTES = DATA_WIDTH / 8;
    localparam int SHIFT = $clog2(BYTES);
    localparam int WORDS = int'(SIZE >> SHIFT);
    localparam int INDEX = $clog2(WORDS);

    logic [DATA_WIDTH-1:0] memory[WORDS];

    function automatic logic [1:0] response_of(input logic [ADDR_WIDTH-1:0] at);
        if (at >= ADDR_WIDTH'(SLAVE_BASE) && at < ADDR_WIDTH'(SLAVE_BASE + SLAVE_SIZE)) return 2'b10;
        return at < ADDR_WIDTH'(SIZE) ? 2'b00 : 2'b11;
    endfunction

    function automatic logic is_defect(input logic [ADDR_WIDTH-1:0] at, input longint base);
        return at >= ADDR_WIDTH'(base) && at < ADDR_WIDTH'(base + DEFECT_SIZE);
    endfunction

    function automatic logic is_silent(input logic [ADDR_WIDTH-1:0] at);
        return at >= ADDR_WIDTH'(SILENT_BASE) && at < ADDR_WIDTH'(SILENT_BASE + SILENT_SIZE);
    endfunction

    function automatic logic [ADDR_WIDTH-1:0] next_of(input logic [ADDR_WIDTH-1:0] at, input logic [2:0] size);
        return ((at >> size) + 1) << size;
    endfunction

    // Writes.
    logic writing, write_fixed, responding;
    logic [ADDR_WIDTH-1:0] write_at;
    logic [2:0] write_size;
    logic [1:0] write_response;
    logic [ID_WIDTH-1:0] write_id;

    assign s_awready = !writing && !responding && !s_bvalid && !hold[0] && !(s_awvalid && is_silent(s_awaddr));
    assign s_wready = writing && !hold[1];

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            writing <= 1'b0;
            responding <= 1'b0;
            s_bvalid <= 1'b0;
        end else begin
            if (s_awvalid && s_awready) begin
                writing <= 1'b1;
                write_fixed <= s_awburst == 2'b00;
                write_at <= s_awaddr;
                write_size <= NARROW ? s_awsize : 3'(SHIFT);
                write_response <= response_of(s_awaddr);
                write_id <= is_defect(s_awaddr, ID_BASE) ? ~s_awid : s_awid;
            end
            if (s_wvalid && s_wready) begin
                if (write_response == 2'b00) begin
                    for (int lane = 0; lane < BYTES; lane++)
                        if (s_wstrb[lane]) memory[write_at[SHIFT +: INDEX]][8 * lane +: 8] <= s_wdata[8 * lane +: 8];
                end
                if (!write_fixed) write_at <= next_of(write_at, write_size);
                if (s_wlast) begin
                    writing <= 1'b0;
                    responding <= 1'b1;
                end
            end
            if (s_bvalid && s_bready) s_bvalid <= 1'b0;
            if (responding && !hold[2]) begin
                responding <= 1'b0;
                s_bvalid <= 1'b1;
                s_bid <= write_id;
                s_bresp <= write_response;
            end
        end
    end

    // Reads.
    logic reading, read_fixed;
    logic [ADDR_WIDTH-1:0] read_at;
    logic [2:0] read_size;
    logic [7:0] read_left;
    logic [1:0] read_response;
    logic [ID_WIDTH-1:0] read_id;

    assign s_arready = !reading && !hold[3] && !(s_arvalid && is_silent(s_araddr));

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            reading <= 1'b0;
            s_rvalid <= 1'b0;
            s_rlast <= 1'b0;
        end else begin
            if (s_rvalid && s_rready) s_rvalid <= 1'b0;
            if (s_arvalid && s_arready) begin
                reading <= 1'b1;
                read_fixed <= s_arburst == 2'b00;
                read_at <= s_araddr;
                read_size <= NARROW ? s_arsize : 3'(SHIFT);
                read_left <= is_defect(s_araddr, LAST_BASE) && s_arlen != 0 ? s_arlen - 1 : s_arlen;
                read_response <= response_of(s_araddr);
                read_id <= is_defect(s_araddr, ID_BASE) ? ~s_arid : s_arid;
            end
            if (reading && (!s_rvalid || s_rready) && !hold[4]) begin
                s_rvalid <= 1'b1;
                s_rid <= read_id;
                s_rresp <= read_response;
                s_rdata <= read_response == 2'b00 ? memory[read_at[SHIFT +: INDEX]] : '0;
                s_rlast <= read_left == 0;
                read_left <= read_left - 1;
                if (!read_fixed) read_at <= next_of(read_at, read_size);
                if (read_left == 0) reading <= 1'b0;
            end
        end
    end
endmodule
