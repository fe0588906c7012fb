// Simulation model with the ports of the vendor's AXI CDMA IP (PG034).
//
// The behaviour is the CDMA of this project's card model behind DPI-C (library `fpga_rtl`, directory driver/sim/rtl): registers, simple and
// scatter-gather mode, errors, interrupts. Exact: registers, order of descriptors, data, status, errors. Approximate: cycles, and the
// length of bursts; up to 4 KiB are read before they are written. Both clocks must be the same one.

`timescale 1ps / 1ps

module fpga_cdma #(
    // Bits of m_axi: 32, 64, 128, 256 or 512.
    parameter int DATA_WIDTH = 256,
    // 32 to 64. Above 32, the registers have high halves.
    parameter int ADDR_WIDTH = 64,
    // Bits of the byte count: 23 or 26.
    parameter int LENGTH_WIDTH = 26,
    parameter bit INCLUDE_SG = 1'b1,
    // Data realignment engine: any address. Without it, a misaligned address ends a transfer with DMAIntErr.
    parameter bit INCLUDE_DRE = 1'b1
) (
    input  wire                       m_axi_aclk,
    input  wire                       s_axi_lite_aclk,
    input  wire                       s_axi_lite_aresetn,
    output logic                      cdma_introut,
    output wire  [31:0]               cdma_tvect_out,

    input  wire  [5:0]                s_axi_lite_awaddr,
    input  wire                       s_axi_lite_awvalid,
    output wire                       s_axi_lite_awready,
    input  wire  [31:0]               s_axi_lite_wdata,
    input  wire                       s_axi_lite_wvalid,
    output wire                       s_axi_lite_wready,
    output wire  [1:0]                s_axi_lite_bresp,
    output logic                      s_axi_lite_bvalid,
    input  wire                       s_axi_lite_bready,
    input  wire  [5:0]                s_axi_lite_araddr,
    input  wire                       s_axi_lite_arvalid,
    output wire                       s_axi_lite_arready,
    output logic [31:0]               s_axi_lite_rdata,
    output wire  [1:0]                s_axi_lite_rresp,
    output logic                      s_axi_lite_rvalid,
    input  wire                       s_axi_lite_rready,

    output wire  [ADDR_WIDTH-1:0]     m_axi_awaddr,
    output wire  [7:0]                m_axi_awlen,
    output wire  [2:0]                m_axi_awsize,
    output wire  [1:0]                m_axi_awburst,
    output wire  [2:0]                m_axi_awprot,
    output wire  [3:0]                m_axi_awcache,
    output wire                       m_axi_awvalid,
    input  wire                       m_axi_awready,
    output wire  [DATA_WIDTH-1:0]     m_axi_wdata,
    output wire  [DATA_WIDTH/8-1:0]   m_axi_wstrb,
    output wire                       m_axi_wlast,
    output wire                       m_axi_wvalid,
    input  wire                       m_axi_wready,
    input  wire  [1:0]                m_axi_bresp,
    input  wire                       m_axi_bvalid,
    output wire                       m_axi_bready,
    output wire  [ADDR_WIDTH-1:0]     m_axi_araddr,
    output wire  [7:0]                m_axi_arlen,
    output wire  [2:0]                m_axi_arsize,
    output wire  [1:0]                m_axi_arburst,
    output wire  [2:0]                m_axi_arprot,
    output wire  [3:0]                m_axi_arcache,
    output wire                       m_axi_arvalid,
    input  wire                       m_axi_arready,
    input  wire  [DATA_WIDTH-1:0]     m_axi_rdata,
    input  wire  [1:0]                m_axi_rresp,
    input  wire                       m_axi_rlast,
    input  wire                       m_axi_rvalid,
    output wire                       m_axi_rready,

    output wire  [ADDR_WIDTH-1:0]     m_axi_sg_awaddr,
    output wire  [7:0]                m_axi_sg_awlen,
    output wire  [2:0]                m_axi_sg_awsize,
    output wire  [1:0]                m_axi_sg_awburst,
    output wire  [2:0]                m_axi_sg_awprot,
    output wire  [3:0]                m_axi_sg_awcache,
    output wire                       m_axi_sg_awvalid,
    input  wire                       m_axi_sg_awready,
    output wire  [32-1:0]     m_axi_sg_wdata,
    output wire  [32/8-1:0]   m_axi_sg_wstrb,
    output wire                       m_axi_sg_wlast,
    output wire                       m_axi_sg_wvalid,
    input  wire                       m_axi_sg_wready,
    input  wire  [1:0]                m_axi_sg_bresp,
    input  wire                       m_axi_sg_bvalid,
    output wire                       m_axi_sg_bready,
    output wire  [ADDR_WIDTH-1:0]     m_axi_sg_araddr,
    output wire  [7:0]                m_axi_sg_arlen,
    output wire  [2:0]                m_axi_sg_arsize,
    output wire  [1:0]                m_axi_sg_arburst,
    output wire  [2:0]                m_axi_sg_arprot,
    output wire  [3:0]                m_axi_sg_arcache,
    output wire                       m_axi_sg_arvalid,
    input  wire                       m_axi_sg_arready,
    input  wire  [32-1:0]     m_axi_sg_rdata,
    input  wire  [1:0]                m_axi_sg_rresp,
    input  wire                       m_axi_sg_rlast,
    input  wire                       m_axi_sg_rvalid,
    output wire                       m_axi_sg_rready
);
    import "DPI-C" function int fpga_cdma_open(
        input int data_bits, input int address_bits, input int length_bits, input int features);
    import "DPI-C" function int fpga_cdma_read(input int handle, input int offset);
    import "DPI-C" function void fpga_cdma_write(input int handle, input int offset, input int value);
    import "DPI-C" function int fpga_cdma_clock(input int handle, input int is_reset);
    import "DPI-C" function int fpga_cdma_command(
        input int handle, input int master, input int is_write, output longint unsigned address, output int length);
    import "DPI-C" function int fpga_cdma_write_data(
        input int handle, input int master, output bit [511:0] data, output longint unsigned strobes);
    import "DPI-C" function void fpga_cdma_write_response(input int handle, input int master, input int response);
    import "DPI-C" function void fpga_cdma_read_data(
        input int handle, input int master, input bit [511:0] data, input int response, input int is_last);

    // Masters: 0 m_axi, 1 m_axi_sg. Bits of the flags of a cycle: 4 per master, then the interrupt.
    localparam int WRITE_COMMAND = 0;
    localparam int WRITE_DATA = 1;
    localparam int READ_COMMAND = 2;
    localparam int INTERRUPT = 8;

    logic [ADDR_WIDTH-1:0] awaddr[2], araddr[2];
    logic [7:0] awlen[2], arlen[2];
    logic [511:0] wdata[2];
    logic [63:0] wstrb[2];
    logic [1:0] awvalid, wvalid, wlast, bready, arvalid, rready;
    wire [1:0] bresp[2], rresp[2];
    wire [511:0] rdata[2];
    wire [1:0] awready = {m_axi_sg_awready, m_axi_awready};
    wire [1:0] wready = {m_axi_sg_wready, m_axi_wready};
    wire [1:0] bvalid = {m_axi_sg_bvalid, m_axi_bvalid};
    wire [1:0] arready = {m_axi_sg_arready, m_axi_arready};
    wire [1:0] rvalid = {m_axi_sg_rvalid, m_axi_rvalid};
    wire [1:0] rlast = {m_axi_sg_rlast, m_axi_rlast};

    assign m_axi_awaddr = awaddr[0];
    assign m_axi_awlen = awlen[0];
    assign m_axi_awsize = 3'($clog2(DATA_WIDTH / 8));
    assign m_axi_awburst = 2'b01;
    assign m_axi_awprot = 3'b000;
    assign m_axi_awcache = 4'b0011;
    assign m_axi_awvalid = awvalid[0];
    assign m_axi_wdata = wdata[0][DATA_WIDTH-1:0];
    assign m_axi_wstrb = wstrb[0][DATA_WIDTH/8-1:0];
    assign m_axi_wlast = wlast[0];
    assign m_axi_wvalid = wvalid[0];
    assign m_axi_bready = bready[0];
    assign m_axi_araddr = araddr[0];
    assign m_axi_arlen = arlen[0];
    assign m_axi_arsize = 3'($clog2(DATA_WIDTH / 8));
    assign m_axi_arburst = 2'b01;
    assign m_axi_arprot = 3'b000;
    assign m_axi_arcache = 4'b0011;
    assign m_axi_arvalid = arvalid[0];
    assign m_axi_rready = rready[0];
    assign bresp[0] = m_axi_bresp;
    assign rdata[0] = 512'(m_axi_rdata);
    assign rresp[0] = m_axi_rresp;
    assign m_axi_sg_awaddr = awaddr[1];
    assign m_axi_sg_awlen = awlen[1];
    assign m_axi_sg_awsize = 3'd2;
    assign m_axi_sg_awburst = 2'b01;
    assign m_axi_sg_awprot = 3'b000;
    assign m_axi_sg_awcache = 4'b0011;
    assign m_axi_sg_awvalid = awvalid[1];
    assign m_axi_sg_wdata = wdata[1][32-1:0];
    assign m_axi_sg_wstrb = wstrb[1][32/8-1:0];
    assign m_axi_sg_wlast = wlast[1];
    assign m_axi_sg_wvalid = wvalid[1];
    assign m_axi_sg_bready = bready[1];
    assign m_axi_sg_araddr = araddr[1];
    assign m_axi_sg_arlen = arlen[1];
    assign m_axi_sg_arsize = 3'd2;
    assign m_axi_sg_arburst = 2'b01;
    assign m_axi_sg_arprot = 3'b000;
    assign m_axi_sg_arcache = 4'b0011;
    assign m_axi_sg_arvalid = arvalid[1];
    assign m_axi_sg_rready = rready[1];
    assign bresp[1] = m_axi_sg_bresp;
    assign rdata[1] = 512'(m_axi_sg_rdata);
    assign rresp[1] = m_axi_sg_rresp;

    assign cdma_tvect_out = '0;
    assign s_axi_lite_bresp = 2'b00;
    assign s_axi_lite_rresp = 2'b00;

    int handle = -1;
    initial begin
        handle = fpga_cdma_open(DATA_WIDTH, ADDR_WIDTH, LENGTH_WIDTH, int'(INCLUDE_SG) | int'(INCLUDE_DRE) << 1);
        if (handle < 0) $fatal(1, "fpga_cdma: the model does not start; its message is on standard error");
    end

    // Registers: a write needs its address and its data.
    wire writes = s_axi_lite_awvalid && s_axi_lite_wvalid && !s_axi_lite_bvalid;
    wire reads = s_axi_lite_arvalid && !s_axi_lite_rvalid;
    assign s_axi_lite_awready = writes;
    assign s_axi_lite_wready = writes;
    assign s_axi_lite_arready = reads;

    int flags, length, found;
    longint unsigned address, strobes;
    bit [511:0] data;
    bit was_reset = 1'b1;

    /* verilator lint_off BLKSEQ */
    always @(posedge m_axi_aclk) begin
        if (s_axi_lite_aresetn) begin
            for (int master = 0; master < 2; master++) begin
                if (bvalid[master] && bready[master]) fpga_cdma_write_response(handle, master, int'(bresp[master]));
                if (rvalid[master] && rready[master])
                    fpga_cdma_read_data(handle, master, rdata[master], int'(rresp[master]), int'(rlast[master]));
            end
            if (s_axi_lite_bready) s_axi_lite_bvalid <= 1'b0;
            if (s_axi_lite_rready) s_axi_lite_rvalid <= 1'b0;
            if (writes) begin
                fpga_cdma_write(handle, int'(s_axi_lite_awaddr), s_axi_lite_wdata);
                s_axi_lite_bvalid <= 1'b1;
            end
            if (reads) begin
                s_axi_lite_rdata <= fpga_cdma_read(handle, int'(s_axi_lite_araddr));
                s_axi_lite_rvalid <= 1'b1;
            end
        end

        flags = fpga_cdma_clock(handle, int'(!s_axi_lite_aresetn));
        cdma_introut <= flags[INTERRUPT];
        was_reset <= !s_axi_lite_aresetn;

        if (!s_axi_lite_aresetn || was_reset) begin
            awvalid <= '0;
            wvalid <= '0;
            wlast <= '0;
            bready <= '0;
            arvalid <= '0;
            rready <= '0;
            if (!s_axi_lite_aresetn) begin
                s_axi_lite_bvalid <= 1'b0;
                s_axi_lite_rvalid <= 1'b0;
            end
        end else begin
            bready <= '1;
            rready <= '1;
            for (int master = 0; master < 2; master++) begin
                if (!awvalid[master] || awready[master]) begin
                    awvalid[master] <= 1'b0;
                    if (flags[4 * master + WRITE_COMMAND]) begin
                        found = fpga_cdma_command(handle, master, 1, address, length);
                        awvalid[master] <= found != 0;
                        awaddr[master] <= ADDR_WIDTH'(address);
                        awlen[master] <= 8'(length);
                    end
                end
                if (!wvalid[master] || wready[master]) begin
                    wvalid[master] <= 1'b0;
                    if (flags[4 * master + WRITE_DATA]) begin
                        found = fpga_cdma_write_data(handle, master, data, strobes);
                        wvalid[master] <= found != 0;
                        wdata[master] <= data;
                        wstrb[master] <= strobes;
                        wlast[master] <= found[1];
                    end
                end
                if (!arvalid[master] || arready[master]) begin
                    arvalid[master] <= 1'b0;
                    if (flags[4 * master + READ_COMMAND]) begin
                        found = fpga_cdma_command(handle, master, 0, address, length);
                        arvalid[master] <= found != 0;
                        araddr[master] <= ADDR_WIDTH'(address);
                        arlen[master] <= 8'(length);
                    end
                end
            end
        end
    end
    /* verilator lint_on BLKSEQ */
endmodule
