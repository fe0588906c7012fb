// Simulation model with the ports of the vendor's XDMA IP (PG195): memory-mapped build, or AXI4-Stream build (parameter STREAM). Ports of
// the other build, and of channels beyond CHANNELS, are tied off and ignored.
//
// The behaviour is the card model of this project behind DPI-C (library `fpga_rtl`, directory driver/sim/rtl). Exact: descriptors, data,
// addresses, order, status, interrupts. Approximate: the cycles of the AXI masters. See driver/sim/rtl/README.md.
//
// Configuration: plusargs +fpga_socket=PATH, +fpga_card=FILE.yaml, +fpga_clock=locked|free, +fpga_settle=CYCLES,
// +fpga_ratio=R, +fpga_period=PS, +fpga_trace_from=WHEN, +fpga_trace_until=WHEN, +fpga_trace_after=CYCLES, +fpga_read_timeout=CYCLES, +fpga_signals=0|1, +fpga_announce=0|1, +fpga_trace=FILE, +fpga_record=FILE; without a plusarg the parameters SOCKET and CARD_FILE, then the environment.

`timescale 1ps / 1ps

module fpga_xdma #(
    // Bits of m_axi: 64, 128, 256 or 512.
    parameter int DATA_WIDTH = 256,
    parameter int ADDR_WIDTH = 64,
    parameter int ID_WIDTH = 4,
    // Channels of each direction, 1 to 4.
    parameter int CHANNELS = 1,
    parameter int AXIL_ADDR_WIDTH = 32,
    // Lines of usr_irq_req, 1 to 16.
    parameter int USER_INTERRUPTS = 1,
    parameter int LANES = 1,
    // AXI4-Stream build: one pair of stream ports per channel; m_axi is idle.
    parameter bit STREAM = 1'b0,
    // Bypass BAR: loads and stores of the host become accesses of m_axib.
    parameter bit BYPASS_BAR = 1'b0,
    // Channels whose descriptors come from the descriptor bypass ports, one bit each.
    parameter logic [3:0] H2C_DSC_BYPASS = 4'b0,
    parameter logic [3:0] C2H_DSC_BYPASS = 4'b0,
    // Half a period of axi_aclk in ps, if +fpga_period does not set it. 0: axi_aclk is sys_clk.
    parameter int HALF_PERIOD = 2000,
    // Strings. Without the type: Icarus Verilog has no parameters of type string.
    parameter SOCKET = "",
    parameter CARD_FILE = ""
) (
    input  wire                       sys_clk,
    input  wire                       sys_clk_gt,
    input  wire                       sys_rst_n,
    output wire [LANES-1:0]           pci_exp_txp,
    output wire [LANES-1:0]           pci_exp_txn,
    input  wire [LANES-1:0]           pci_exp_rxp,
    input  wire [LANES-1:0]           pci_exp_rxn,
    output logic                      user_lnk_up,

    output wire                       axi_aclk,
    output logic                      axi_aresetn,
    input  wire [USER_INTERRUPTS-1:0] usr_irq_req,
    output logic [USER_INTERRUPTS-1:0] usr_irq_ack,
    output logic                      msi_enable,
    output logic [2:0]                msi_vector_width,

    output logic [ID_WIDTH-1:0]       m_axi_awid,
    output logic [ADDR_WIDTH-1:0]     m_axi_awaddr,
    output logic [7:0]                m_axi_awlen,
    output logic [2:0]                m_axi_awsize,
    output logic [1:0]                m_axi_awburst,
    output logic [2:0]                m_axi_awprot,
    output logic                      m_axi_awlock,
    output logic [3:0]                m_axi_awcache,
    output logic                      m_axi_awvalid,
    input  wire                       m_axi_awready,
    output logic [DATA_WIDTH-1:0]     m_axi_wdata,
    output logic [DATA_WIDTH/8-1:0]   m_axi_wstrb,
    output logic                      m_axi_wlast,
    output logic                      m_axi_wvalid,
    input  wire                       m_axi_wready,
    input  wire [ID_WIDTH-1:0]        m_axi_bid,
    input  wire [1:0]                 m_axi_bresp,
    input  wire                       m_axi_bvalid,
    output logic                      m_axi_bready,
    output logic [ID_WIDTH-1:0]       m_axi_arid,
    output logic [ADDR_WIDTH-1:0]     m_axi_araddr,
    output logic [7:0]                m_axi_arlen,
    output logic [2:0]                m_axi_arsize,
    output logic [1:0]                m_axi_arburst,
    output logic [2:0]                m_axi_arprot,
    output logic                      m_axi_arlock,
    output logic [3:0]                m_axi_arcache,
    output logic                      m_axi_arvalid,
    input  wire                       m_axi_arready,
    input  wire [ID_WIDTH-1:0]        m_axi_rid,
    input  wire [DATA_WIDTH-1:0]      m_axi_rdata,
    input  wire [1:0]                 m_axi_rresp,
    input  wire                       m_axi_rlast,
    input  wire                       m_axi_rvalid,
    output logic                      m_axi_rready,

    output logic [AXIL_ADDR_WIDTH-1:0] m_axil_awaddr,
    output logic [2:0]                m_axil_awprot,
    output logic                      m_axil_awvalid,
    input  wire                       m_axil_awready,
    output logic [31:0]               m_axil_wdata,
    output logic [3:0]                m_axil_wstrb,
    output logic                      m_axil_wvalid,
    input  wire                       m_axil_wready,
    input  wire                       m_axil_bvalid,
    input  wire [1:0]                 m_axil_bresp,
    output logic                      m_axil_bready,
    output logic [AXIL_ADDR_WIDTH-1:0] m_axil_araddr,
    output logic [2:0]                m_axil_arprot,
    output logic                      m_axil_arvalid,
    input  wire                       m_axil_arready,
    input  wire [31:0]                m_axil_rdata,
    input  wire [1:0]                 m_axil_rresp,
    input  wire                       m_axil_rvalid,
    output logic                      m_axil_rready,

    output wire  [DATA_WIDTH-1:0]     m_axis_h2c_tdata_0,
    output wire  [DATA_WIDTH/8-1:0]   m_axis_h2c_tkeep_0,
    output wire                       m_axis_h2c_tlast_0,
    output wire                       m_axis_h2c_tvalid_0,
    input  wire                       m_axis_h2c_tready_0,
    input  wire  [DATA_WIDTH-1:0]     s_axis_c2h_tdata_0,
    input  wire  [DATA_WIDTH/8-1:0]   s_axis_c2h_tkeep_0,
    input  wire                       s_axis_c2h_tlast_0,
    input  wire                       s_axis_c2h_tvalid_0,
    output wire                       s_axis_c2h_tready_0,

    output wire  [DATA_WIDTH-1:0]     m_axis_h2c_tdata_1,
    output wire  [DATA_WIDTH/8-1:0]   m_axis_h2c_tkeep_1,
    output wire                       m_axis_h2c_tlast_1,
    output wire                       m_axis_h2c_tvalid_1,
    input  wire                       m_axis_h2c_tready_1,
    input  wire  [DATA_WIDTH-1:0]     s_axis_c2h_tdata_1,
    input  wire  [DATA_WIDTH/8-1:0]   s_axis_c2h_tkeep_1,
    input  wire                       s_axis_c2h_tlast_1,
    input  wire                       s_axis_c2h_tvalid_1,
    output wire                       s_axis_c2h_tready_1,

    output wire  [DATA_WIDTH-1:0]     m_axis_h2c_tdata_2,
    output wire  [DATA_WIDTH/8-1:0]   m_axis_h2c_tkeep_2,
    output wire                       m_axis_h2c_tlast_2,
    output wire                       m_axis_h2c_tvalid_2,
    input  wire                       m_axis_h2c_tready_2,
    input  wire  [DATA_WIDTH-1:0]     s_axis_c2h_tdata_2,
    input  wire  [DATA_WIDTH/8-1:0]   s_axis_c2h_tkeep_2,
    input  wire                       s_axis_c2h_tlast_2,
    input  wire                       s_axis_c2h_tvalid_2,
    output wire                       s_axis_c2h_tready_2,

    output wire  [DATA_WIDTH-1:0]     m_axis_h2c_tdata_3,
    output wire  [DATA_WIDTH/8-1:0]   m_axis_h2c_tkeep_3,
    output wire                       m_axis_h2c_tlast_3,
    output wire                       m_axis_h2c_tvalid_3,
    input  wire                       m_axis_h2c_tready_3,
    input  wire  [DATA_WIDTH-1:0]     s_axis_c2h_tdata_3,
    input  wire  [DATA_WIDTH/8-1:0]   s_axis_c2h_tkeep_3,
    input  wire                       s_axis_c2h_tlast_3,
    input  wire                       s_axis_c2h_tvalid_3,
    output wire                       s_axis_c2h_tready_3,

    output logic [ID_WIDTH-1:0]       m_axib_awid,
    output logic [ADDR_WIDTH-1:0]     m_axib_awaddr,
    output logic [7:0]                m_axib_awlen,
    output logic [2:0]                m_axib_awsize,
    output logic [1:0]                m_axib_awburst,
    output logic [2:0]                m_axib_awprot,
    output logic                      m_axib_awlock,
    output logic [3:0]                m_axib_awcache,
    output logic                      m_axib_awvalid,
    input  wire                       m_axib_awready,
    output logic [DATA_WIDTH-1:0]     m_axib_wdata,
    output logic [DATA_WIDTH/8-1:0]   m_axib_wstrb,
    output logic                      m_axib_wlast,
    output logic                      m_axib_wvalid,
    input  wire                       m_axib_wready,
    input  wire [ID_WIDTH-1:0]        m_axib_bid,
    input  wire [1:0]                 m_axib_bresp,
    input  wire                       m_axib_bvalid,
    output logic                      m_axib_bready,
    output logic [ID_WIDTH-1:0]       m_axib_arid,
    output logic [ADDR_WIDTH-1:0]     m_axib_araddr,
    output logic [7:0]                m_axib_arlen,
    output logic [2:0]                m_axib_arsize,
    output logic [1:0]                m_axib_arburst,
    output logic [2:0]                m_axib_arprot,
    output logic                      m_axib_arlock,
    output logic [3:0]                m_axib_arcache,
    output logic                      m_axib_arvalid,
    input  wire                       m_axib_arready,
    input  wire [ID_WIDTH-1:0]        m_axib_rid,
    input  wire [DATA_WIDTH-1:0]      m_axib_rdata,
    input  wire [1:0]                 m_axib_rresp,
    input  wire                       m_axib_rlast,
    input  wire                       m_axib_rvalid,
    output logic                      m_axib_rready,

    output wire                       h2c_dsc_byp_ready_0,
    input  wire                       h2c_dsc_byp_load_0,
    input  wire  [63:0]               h2c_dsc_byp_src_addr_0,
    input  wire  [63:0]               h2c_dsc_byp_dst_addr_0,
    input  wire  [27:0]               h2c_dsc_byp_len_0,
    input  wire  [15:0]               h2c_dsc_byp_ctl_0,

    output wire                       h2c_dsc_byp_ready_1,
    input  wire                       h2c_dsc_byp_load_1,
    input  wire  [63:0]               h2c_dsc_byp_src_addr_1,
    input  wire  [63:0]               h2c_dsc_byp_dst_addr_1,
    input  wire  [27:0]               h2c_dsc_byp_len_1,
    input  wire  [15:0]               h2c_dsc_byp_ctl_1,

    output wire                       h2c_dsc_byp_ready_2,
    input  wire                       h2c_dsc_byp_load_2,
    input  wire  [63:0]               h2c_dsc_byp_src_addr_2,
    input  wire  [63:0]               h2c_dsc_byp_dst_addr_2,
    input  wire  [27:0]               h2c_dsc_byp_len_2,
    input  wire  [15:0]               h2c_dsc_byp_ctl_2,

    output wire                       h2c_dsc_byp_ready_3,
    input  wire                       h2c_dsc_byp_load_3,
    input  wire  [63:0]               h2c_dsc_byp_src_addr_3,
    input  wire  [63:0]               h2c_dsc_byp_dst_addr_3,
    input  wire  [27:0]               h2c_dsc_byp_len_3,
    input  wire  [15:0]               h2c_dsc_byp_ctl_3,

    output wire                       c2h_dsc_byp_ready_0,
    input  wire                       c2h_dsc_byp_load_0,
    input  wire  [63:0]               c2h_dsc_byp_src_addr_0,
    input  wire  [63:0]               c2h_dsc_byp_dst_addr_0,
    input  wire  [27:0]               c2h_dsc_byp_len_0,
    input  wire  [15:0]               c2h_dsc_byp_ctl_0,

    output wire                       c2h_dsc_byp_ready_1,
    input  wire                       c2h_dsc_byp_load_1,
    input  wire  [63:0]               c2h_dsc_byp_src_addr_1,
    input  wire  [63:0]               c2h_dsc_byp_dst_addr_1,
    input  wire  [27:0]               c2h_dsc_byp_len_1,
    input  wire  [15:0]               c2h_dsc_byp_ctl_1,

    output wire                       c2h_dsc_byp_ready_2,
    input  wire                       c2h_dsc_byp_load_2,
    input  wire  [63:0]               c2h_dsc_byp_src_addr_2,
    input  wire  [63:0]               c2h_dsc_byp_dst_addr_2,
    input  wire  [27:0]               c2h_dsc_byp_len_2,
    input  wire  [15:0]               c2h_dsc_byp_ctl_2,

    output wire                       c2h_dsc_byp_ready_3,
    input  wire                       c2h_dsc_byp_load_3,
    input  wire  [63:0]               c2h_dsc_byp_src_addr_3,
    input  wire  [63:0]               c2h_dsc_byp_dst_addr_3,
    input  wire  [27:0]               c2h_dsc_byp_len_3,
    input  wire  [15:0]               c2h_dsc_byp_ctl_3
);
`ifdef FPGA_REPLAY
    // Commands of a record (+fpga_record) instead of those of a host, for simulators without DPI-C.
    fpga_replay #(.DATA_WIDTH(DATA_WIDTH)) replay ();
`else
    import "DPI-C" function int fpga_xdma_open(input int data_bits, input int id_bits, input int channels, input int user_interrupts,
        input int features);
    import "DPI-C" function void fpga_xdma_option(input int handle, input string name, input string value);
    import "DPI-C" function int fpga_xdma_start(input int handle);
    import "DPI-C" function void fpga_xdma_time(input int handle, input longint unsigned picoseconds);
    import "DPI-C" function int fpga_xdma_half_period(input int handle, input int otherwise);
    import "DPI-C" function void fpga_xdma_pace(input int handle, input longint unsigned now);
    import "DPI-C" function int fpga_xdma_trace(input int handle);
    import "DPI-C" function longint unsigned fpga_xdma_clock(input int handle, input int requests);
    import "DPI-C" function int fpga_xdma_command(
        input int handle, input int master, input int is_write, output int id, output longint unsigned address, output int length,
        output int kind, output int size);
    import "DPI-C" function int fpga_xdma_write_data(input int handle, input int master, output bit [511:0] data, output longint unsigned strobes);
    import "DPI-C" function void fpga_xdma_write_response(input int handle, input int master, input int id, input int response);
    import "DPI-C" function void fpga_xdma_read_data(
        input int handle, input int master, input int id, input bit [511:0] data, input int response, input int is_last);
    import "DPI-C" function int fpga_xdma_register(input int handle, output int address, output int value, output int strobes);
    import "DPI-C" function void fpga_xdma_register_response(input int handle, input int value, input int response);
    import "DPI-C" function int fpga_xdma_stream_beat(
        input int handle, input int channel, output bit [511:0] data, output longint unsigned keep);
    import "DPI-C" function void fpga_xdma_stream_data(
        input int handle, input int channel, input bit [511:0] data, input longint unsigned keep, input int is_last);
    import "DPI-C" function void fpga_xdma_load(
        input int handle, input int port, input longint unsigned source, input longint unsigned destination, input int length,
        input int control);
    import "DPI-C" function void fpga_xdma_close(input int handle);
`endif

    localparam int BYTES = DATA_WIDTH / 8;
    localparam logic [2:0] SIZE = 3'($clog2(BYTES));
    // Cycles of axi_aresetn low.
    localparam int RESET_CYCLES = 32;

    // Bits of the flags of a cycle.
    localparam int WRITE_COMMAND = 0;
    localparam int WRITE_DATA = 1;
    localparam int READ_COMMAND = 2;
    localparam int REGISTER = 3;
    localparam int RESET = 4;
    localparam int FINISH = 5;
    localparam int BYPASS = 12;
    localparam int MSI_ENABLE = 8;
    localparam int MSI_WIDTH = 9;
    localparam int ACKNOWLEDGED = 16;
    localparam int STREAM_BEAT = 32;
    localparam int STREAM_READY = 36;
    localparam int LOAD_READY = 40;
    // Bits of the requests of a cycle.
    localparam int STREAM_ACCEPTED = 16;
    localparam int IN_RESET = 20;

    generate
        if (HALF_PERIOD == 0) begin : g_sys_clk
            assign axi_aclk = sys_clk;
            initial begin_simulation();
        end else begin : g_own_clk
            bit clock = 1'b0;
            int half_period;
            initial begin
                begin_simulation();
`ifdef FPGA_REPLAY
                half_period = HALF_PERIOD;
`else
                half_period = fpga_xdma_half_period(handle, HALF_PERIOD);
`endif
                forever #(half_period) clock = ~clock;
            end
            assign axi_aclk = clock;
        end
    endgenerate

    assign pci_exp_txp = '0;
    assign pci_exp_txn = '1;

    int handle = -1;
    // Bit 0: the simulation runs; 1: simulated time has a limit; 2: the waveform has triggers; 3: there is a record.
    int started = 0;
    string trace;

`ifdef FPGA_REPLAY
    task automatic begin_simulation;
        replay.open();
        if ($value$plusargs("fpga_trace=%s", trace)) begin
            $dumpfile(trace);
            $dumpvars(0);
        end
    endtask
`else
    // Instances are numbered from 0. +fpga_NAME.N=VALUE is for instance N, +fpga_NAME=VALUE for all, or for the first if `is_own`.
    task automatic set_option(input string name, input string otherwise, input bit is_own);
        string value, numbered;
        numbered = $sformatf("fpga_%s.%0d=%%s", name, handle);
        if (!$value$plusargs(numbered, value))
            if (is_own && handle != 0 || !$value$plusargs({"fpga_", name, "=%s"}, value)) value = otherwise;
        fpga_xdma_option(handle, name, value);
    endtask

    task automatic begin_simulation;
        handle = fpga_xdma_open(DATA_WIDTH, ID_WIDTH, CHANNELS, USER_INTERRUPTS, int'(STREAM) | int'(BYPASS_BAR) << 1 | int'(HALF_PERIOD == 0) << 2 | int'(H2C_DSC_BYPASS) << 8 | int'(C2H_DSC_BYPASS) << 12);
        set_option("socket", SOCKET, 1'b1);
        set_option("card", CARD_FILE, 1'b1);
        set_option("clock", "", 1'b0);
        set_option("ratio", "", 1'b0);
        set_option("period", "", 1'b0);
        set_option("settle", "", 1'b0);
        set_option("read_timeout", "", 1'b0);
        set_option("signals", "", 1'b0);
        set_option("announce", "", 1'b0);
        set_option("record", "", 1'b1);
        set_option("trace_from", "", 1'b1);
        set_option("trace_until", "", 1'b1);
        set_option("trace_after", "", 1'b1);
        started = fpga_xdma_start(handle);
        if (started == 0) $fatal(1, "fpga_xdma: the simulation does not start; its message is on standard error");
        // Waveform of the whole model, if the simulator was built with support for it.
        if (handle == 0 && $value$plusargs("fpga_trace=%s", trace)) begin
            $dumpfile(trace);
            if (!started[2]) $dumpvars(0);
        end else if (started[2]) $fatal(1, "fpga_xdma: +fpga_trace_from, _until and _after need +fpga_trace=FILE");
    endtask
`endif

    // Begin and end of the waveform by triggers, in processes of their own: Verilator moves $dumpvars within a clocked one.
    bit is_traced = 1'b0;
    always @(posedge is_traced) $dumpvars(0);
    always @(negedge is_traced)
`ifdef VERILATOR
        // $dumpoff has no effect.
        $c("\n#if VM_TRACE\nvlSymsp->_traceDumpClose();\n#endif\n");
`else
        $dumpoff;
`endif

`ifndef FPGA_REPLAY
    final fpga_xdma_close(handle);
`endif

    assign m_axi_awsize = SIZE;
    assign m_axi_awprot = 3'b000;
    assign m_axi_awlock = 1'b0;
    assign m_axi_awcache = 4'b0011;
    assign m_axi_arsize = SIZE;
    assign m_axi_arprot = 3'b000;
    assign m_axi_arlock = 1'b0;
    assign m_axi_arcache = 4'b0011;
    assign m_axil_awprot = 3'b000;
    assign m_axil_arprot = 3'b000;
    assign m_axib_awprot = 3'b000;
    assign m_axib_awlock = 1'b0;
    assign m_axib_awcache = 4'b0011;
    assign m_axib_arprot = 3'b000;
    assign m_axib_arlock = 1'b0;
    assign m_axib_arcache = 4'b0011;

    // Descriptor bypass ports: H2C 0 to 3, C2H 4 to 7.
    localparam logic [7:0] DSC_BYPASS = {C2H_DSC_BYPASS, H2C_DSC_BYPASS};
    logic [7:0] dsc_ready;
    wire [7:0] dsc_load;
    wire [63:0] dsc_source[8], dsc_destination[8];
    wire [27:0] dsc_length[8];
    wire [15:0] dsc_control[8];
    assign h2c_dsc_byp_ready_0 = dsc_ready[0];
    assign dsc_load[0] = h2c_dsc_byp_load_0;
    assign dsc_source[0] = h2c_dsc_byp_src_addr_0;
    assign dsc_destination[0] = h2c_dsc_byp_dst_addr_0;
    assign dsc_length[0] = h2c_dsc_byp_len_0;
    assign dsc_control[0] = h2c_dsc_byp_ctl_0;
    assign h2c_dsc_byp_ready_1 = dsc_ready[1];
    assign dsc_load[1] = h2c_dsc_byp_load_1;
    assign dsc_source[1] = h2c_dsc_byp_src_addr_1;
    assign dsc_destination[1] = h2c_dsc_byp_dst_addr_1;
    assign dsc_length[1] = h2c_dsc_byp_len_1;
    assign dsc_control[1] = h2c_dsc_byp_ctl_1;
    assign h2c_dsc_byp_ready_2 = dsc_ready[2];
    assign dsc_load[2] = h2c_dsc_byp_load_2;
    assign dsc_source[2] = h2c_dsc_byp_src_addr_2;
    assign dsc_destination[2] = h2c_dsc_byp_dst_addr_2;
    assign dsc_length[2] = h2c_dsc_byp_len_2;
    assign dsc_control[2] = h2c_dsc_byp_ctl_2;
    assign h2c_dsc_byp_ready_3 = dsc_ready[3];
    assign dsc_load[3] = h2c_dsc_byp_load_3;
    assign dsc_source[3] = h2c_dsc_byp_src_addr_3;
    assign dsc_destination[3] = h2c_dsc_byp_dst_addr_3;
    assign dsc_length[3] = h2c_dsc_byp_len_3;
    assign dsc_control[3] = h2c_dsc_byp_ctl_3;
    assign c2h_dsc_byp_ready_0 = dsc_ready[4];
    assign dsc_load[4] = c2h_dsc_byp_load_0;
    assign dsc_source[4] = c2h_dsc_byp_src_addr_0;
    assign dsc_destination[4] = c2h_dsc_byp_dst_addr_0;
    assign dsc_length[4] = c2h_dsc_byp_len_0;
    assign dsc_control[4] = c2h_dsc_byp_ctl_0;
    assign c2h_dsc_byp_ready_1 = dsc_ready[5];
    assign dsc_load[5] = c2h_dsc_byp_load_1;
    assign dsc_source[5] = c2h_dsc_byp_src_addr_1;
    assign dsc_destination[5] = c2h_dsc_byp_dst_addr_1;
    assign dsc_length[5] = c2h_dsc_byp_len_1;
    assign dsc_control[5] = c2h_dsc_byp_ctl_1;
    assign c2h_dsc_byp_ready_2 = dsc_ready[6];
    assign dsc_load[6] = c2h_dsc_byp_load_2;
    assign dsc_source[6] = c2h_dsc_byp_src_addr_2;
    assign dsc_destination[6] = c2h_dsc_byp_dst_addr_2;
    assign dsc_length[6] = c2h_dsc_byp_len_2;
    assign dsc_control[6] = c2h_dsc_byp_ctl_2;
    assign c2h_dsc_byp_ready_3 = dsc_ready[7];
    assign dsc_load[7] = c2h_dsc_byp_load_3;
    assign dsc_source[7] = c2h_dsc_byp_src_addr_3;
    assign dsc_destination[7] = c2h_dsc_byp_dst_addr_3;
    assign dsc_length[7] = c2h_dsc_byp_len_3;
    assign dsc_control[7] = c2h_dsc_byp_ctl_3;

    // Stream ports by channel.
    logic [DATA_WIDTH-1:0] h2c_tdata[4];
    logic [BYTES-1:0] h2c_tkeep[4];
    logic [3:0] h2c_tlast, h2c_tvalid, c2h_tready;
    wire [3:0] h2c_tready = {m_axis_h2c_tready_3, m_axis_h2c_tready_2, m_axis_h2c_tready_1, m_axis_h2c_tready_0};
    wire [DATA_WIDTH-1:0] c2h_tdata[4];
    wire [BYTES-1:0] c2h_tkeep[4];
    wire [3:0] c2h_tlast = {s_axis_c2h_tlast_3, s_axis_c2h_tlast_2, s_axis_c2h_tlast_1, s_axis_c2h_tlast_0};
    wire [3:0] c2h_tvalid = {s_axis_c2h_tvalid_3, s_axis_c2h_tvalid_2, s_axis_c2h_tvalid_1, s_axis_c2h_tvalid_0};
    assign m_axis_h2c_tdata_0 = h2c_tdata[0];
    assign m_axis_h2c_tkeep_0 = h2c_tkeep[0];
    assign m_axis_h2c_tlast_0 = h2c_tlast[0];
    assign m_axis_h2c_tvalid_0 = h2c_tvalid[0];
    assign c2h_tdata[0] = s_axis_c2h_tdata_0;
    assign c2h_tkeep[0] = s_axis_c2h_tkeep_0;
    assign s_axis_c2h_tready_0 = c2h_tready[0];
    assign m_axis_h2c_tdata_1 = h2c_tdata[1];
    assign m_axis_h2c_tkeep_1 = h2c_tkeep[1];
    assign m_axis_h2c_tlast_1 = h2c_tlast[1];
    assign m_axis_h2c_tvalid_1 = h2c_tvalid[1];
    assign c2h_tdata[1] = s_axis_c2h_tdata_1;
    assign c2h_tkeep[1] = s_axis_c2h_tkeep_1;
    assign s_axis_c2h_tready_1 = c2h_tready[1];
    assign m_axis_h2c_tdata_2 = h2c_tdata[2];
    assign m_axis_h2c_tkeep_2 = h2c_tkeep[2];
    assign m_axis_h2c_tlast_2 = h2c_tlast[2];
    assign m_axis_h2c_tvalid_2 = h2c_tvalid[2];
    assign c2h_tdata[2] = s_axis_c2h_tdata_2;
    assign c2h_tkeep[2] = s_axis_c2h_tkeep_2;
    assign s_axis_c2h_tready_2 = c2h_tready[2];
    assign m_axis_h2c_tdata_3 = h2c_tdata[3];
    assign m_axis_h2c_tkeep_3 = h2c_tkeep[3];
    assign m_axis_h2c_tlast_3 = h2c_tlast[3];
    assign m_axis_h2c_tvalid_3 = h2c_tvalid[3];
    assign c2h_tdata[3] = s_axis_c2h_tdata_3;
    assign c2h_tkeep[3] = s_axis_c2h_tkeep_3;
    assign s_axis_c2h_tready_3 = c2h_tready[3];

    int reset_cycles = RESET_CYCLES;
    // A register access is on the bus.
    bit lite_busy;

    // Arguments of the calls. Blocking assignments: each is written and read within one call.
    int requests, id, length, kind, size, register_strobes, register_address, register_value, found;
    longint unsigned flags, address, strobes;
    logic [511:0] data;

    // The calls, as tasks: of the library, or of the record's replay.
    task automatic response_of_write(input int master, input int bid, input int bresp);
`ifdef FPGA_REPLAY
        replay.write_response(master, bid, bresp);
`else
        fpga_xdma_write_response(handle, master, bid, bresp);
`endif
    endtask

    task automatic beat_of_read(input int master, input int rid, input logic [511:0] rdata, input int rresp, input int rlast);
`ifdef FPGA_REPLAY
        replay.read_data(master, rid, rdata, rresp, rlast);
`else
        fpga_xdma_read_data(handle, master, rid, rdata, rresp, rlast);
`endif
    endtask

    task automatic response_of_register(input logic [31:0] value, input int code);
`ifdef FPGA_REPLAY
        replay.register_response(value, code);
`else
        fpga_xdma_register_response(handle, int'(value), code);
`endif
    endtask

    task automatic take_command(input int master, input int is_write);
`ifdef FPGA_REPLAY
        replay.command(master, is_write, found, id, address, length, kind, size);
`else
        found = fpga_xdma_command(handle, master, is_write, id, address, length, kind, size);
`endif
    endtask

    task automatic take_write_data(input int master);
`ifdef FPGA_REPLAY
        replay.write_data(master, found, data, strobes);
`else
        found = fpga_xdma_write_data(handle, master, data, strobes);
`endif
    endtask

    task automatic take_register;
`ifdef FPGA_REPLAY
        replay.register(found, register_address, register_value, register_strobes);
`else
        found = fpga_xdma_register(handle, register_address, register_value, register_strobes);
`endif
    endtask

    task automatic take_stream_beat(input int channel);
`ifdef FPGA_REPLAY
        replay.stream_beat(channel, found, data, strobes);
`else
        found = fpga_xdma_stream_beat(handle, channel, data, strobes);
`endif
    endtask

    // Begins the cycle: `flags`.
    task automatic begin_cycle;
`ifdef FPGA_REPLAY
        replay.clock(flags);
`else
        flags = fpga_xdma_clock(handle, requests);
`endif
    endtask

    task automatic clear;
        m_axi_awvalid <= 1'b0;
        m_axi_wvalid <= 1'b0;
        m_axi_wlast <= 1'b0;
        m_axi_bready <= 1'b0;
        m_axi_arvalid <= 1'b0;
        m_axi_rready <= 1'b0;
        m_axib_awvalid <= 1'b0;
        m_axib_wvalid <= 1'b0;
        m_axib_wlast <= 1'b0;
        m_axib_bready <= 1'b0;
        m_axib_arvalid <= 1'b0;
        m_axib_rready <= 1'b0;
        m_axil_awvalid <= 1'b0;
        m_axil_wvalid <= 1'b0;
        m_axil_bready <= 1'b0;
        m_axil_arvalid <= 1'b0;
        m_axil_rready <= 1'b0;
        usr_irq_ack <= '0;
        h2c_tvalid <= '0;
        c2h_tready <= '0;
        dsc_ready <= '0;
        lite_busy = 1'b0;
    endtask

    initial begin
        axi_aresetn = 1'b0;
        user_lnk_up = 1'b0;
    end

    /* verilator lint_off BLKSEQ */
    always @(posedge axi_aclk) begin
`ifndef FPGA_REPLAY
        if (started[3]) fpga_xdma_time(handle, $time);
`endif
        // Responses first: the card continues with them in this cycle.
        if (axi_aresetn) begin
            if (m_axi_bvalid && m_axi_bready) response_of_write(0, int'(m_axi_bid), int'(m_axi_bresp));
            if (m_axi_rvalid && m_axi_rready)
                beat_of_read(0, int'(m_axi_rid), 512'(m_axi_rdata), int'(m_axi_rresp), int'(m_axi_rlast));
            if (BYPASS_BAR && m_axib_bvalid && m_axib_bready) response_of_write(1, int'(m_axib_bid), int'(m_axib_bresp));
            if (BYPASS_BAR && m_axib_rvalid && m_axib_rready)
                beat_of_read(1, int'(m_axib_rid), 512'(m_axib_rdata), int'(m_axib_rresp), int'(m_axib_rlast));
            if (lite_busy && m_axil_bvalid && m_axil_bready) begin
                response_of_register(0, int'(m_axil_bresp));
                m_axil_bready <= 1'b0;
                lite_busy = 1'b0;
            end
            if (lite_busy && m_axil_rvalid && m_axil_rready) begin
                response_of_register(m_axil_rdata, int'(m_axil_rresp));
                m_axil_rready <= 1'b0;
                lite_busy = 1'b0;
            end
        end

        requests = axi_aresetn ? int'(usr_irq_req) : 0;
        requests[IN_RESET] = !sys_rst_n;
        if (STREAM && axi_aresetn) begin
            for (int channel = 0; channel < CHANNELS; channel++)
                if (c2h_tvalid[channel] && c2h_tready[channel])
`ifdef FPGA_REPLAY
                    replay.stream_data(channel, 512'(c2h_tdata[channel]), 64'(c2h_tkeep[channel]), int'(c2h_tlast[channel]));
`else
                    fpga_xdma_stream_data(
                        handle, channel, 512'(c2h_tdata[channel]), 64'(c2h_tkeep[channel]), int'(c2h_tlast[channel]));
`endif
            requests[STREAM_ACCEPTED +: 4] = h2c_tvalid & h2c_tready;
        end
`ifndef FPGA_REPLAY
        if (DSC_BYPASS != '0 && axi_aresetn)
            for (int port = 0; port < 8; port++)
                if (dsc_ready[port] && dsc_load[port])
                    fpga_xdma_load(
                        handle, port, dsc_source[port], dsc_destination[port], int'(dsc_length[port]), int'(dsc_control[port]));
        if (started[1]) fpga_xdma_pace(handle, longint'($time));
`endif
        begin_cycle();
        if (flags[FINISH]) $finish;
        msi_enable <= flags[MSI_ENABLE];
        msi_vector_width <= flags[MSI_WIDTH +: 3];

        if (flags[RESET] || !sys_rst_n) begin
            reset_cycles <= RESET_CYCLES;
            axi_aresetn <= 1'b0;
            user_lnk_up <= 1'b0;
            clear();
        end else if (reset_cycles != 0) begin
            reset_cycles <= reset_cycles - 1;
            axi_aresetn <= reset_cycles == 1;
            user_lnk_up <= reset_cycles == 1;
            clear();
        end else begin
            m_axi_bready <= 1'b1;
            m_axi_rready <= 1'b1;
            usr_irq_ack <= flags[ACKNOWLEDGED +: USER_INTERRUPTS];

            if (!m_axi_awvalid || m_axi_awready) begin
                m_axi_awvalid <= 1'b0;
                if (flags[WRITE_COMMAND]) begin
                    take_command(0, 1);
                    if (found != 0) begin
                        m_axi_awvalid <= 1'b1;
                        m_axi_awid <= ID_WIDTH'(id);
                        m_axi_awaddr <= ADDR_WIDTH'(address);
                        m_axi_awlen <= 8'(length);
                        m_axi_awburst <= 2'(kind);
                    end
                end
            end
            if (!m_axi_wvalid || m_axi_wready) begin
                m_axi_wvalid <= 1'b0;
                if (flags[WRITE_DATA]) begin
                    take_write_data(0);
                    if (found != 0) begin
                        m_axi_wvalid <= 1'b1;
                        m_axi_wdata <= data[DATA_WIDTH-1:0];
                        m_axi_wstrb <= strobes[BYTES-1:0];
                        m_axi_wlast <= found[1];
                    end
                end
            end
            if (!m_axi_arvalid || m_axi_arready) begin
                m_axi_arvalid <= 1'b0;
                if (flags[READ_COMMAND]) begin
                    take_command(0, 0);
                    if (found != 0) begin
                        m_axi_arvalid <= 1'b1;
                        m_axi_arid <= ID_WIDTH'(id);
                        m_axi_araddr <= ADDR_WIDTH'(address);
                        m_axi_arlen <= 8'(length);
                        m_axi_arburst <= 2'(kind);
                    end
                end
            end

            if (BYPASS_BAR) begin
                m_axib_bready <= 1'b1;
                m_axib_rready <= 1'b1;
                if (!m_axib_awvalid || m_axib_awready) begin
                    m_axib_awvalid <= 1'b0;
                    if (flags[BYPASS + WRITE_COMMAND]) begin
                        take_command(1, 1);
                        if (found != 0) begin
                            m_axib_awvalid <= 1'b1;
                            m_axib_awid <= ID_WIDTH'(id);
                            m_axib_awaddr <= ADDR_WIDTH'(address);
                            m_axib_awsize <= 3'(size);
                            m_axib_awlen <= 8'(length);
                            m_axib_awburst <= 2'(kind);
                        end
                    end
                end
                if (!m_axib_wvalid || m_axib_wready) begin
                    m_axib_wvalid <= 1'b0;
                    if (flags[BYPASS + WRITE_DATA]) begin
                        take_write_data(1);
                        if (found != 0) begin
                            m_axib_wvalid <= 1'b1;
                            m_axib_wdata <= data[DATA_WIDTH-1:0];
                            m_axib_wstrb <= strobes[BYTES-1:0];
                            m_axib_wlast <= found[1];
                        end
                    end
                end
                if (!m_axib_arvalid || m_axib_arready) begin
                    m_axib_arvalid <= 1'b0;
                    if (flags[BYPASS + READ_COMMAND]) begin
                        take_command(1, 0);
                        if (found != 0) begin
                            m_axib_arvalid <= 1'b1;
                            m_axib_arid <= ID_WIDTH'(id);
                            m_axib_araddr <= ADDR_WIDTH'(address);
                            m_axib_arsize <= 3'(size);
                            m_axib_arlen <= 8'(length);
                            m_axib_arburst <= 2'(kind);
                        end
                    end
                end
            end

            if (DSC_BYPASS != '0) dsc_ready <= flags[LOAD_READY +: 8];
            if (STREAM) begin
                c2h_tready <= flags[STREAM_READY +: 4];
                for (int channel = 0; channel < CHANNELS; channel++)
                    if (!h2c_tvalid[channel] || h2c_tready[channel]) begin
                        h2c_tvalid[channel] <= 1'b0;
                        if (flags[STREAM_BEAT + channel]) begin
                            take_stream_beat(channel);
                            h2c_tvalid[channel] <= found != 0;
                            h2c_tdata[channel] <= data[DATA_WIDTH-1:0];
                            h2c_tkeep[channel] <= strobes[BYTES-1:0];
                            h2c_tlast[channel] <= found[1];
                        end
                    end
            end

            if (m_axil_awready) m_axil_awvalid <= 1'b0;
            if (m_axil_wready) m_axil_wvalid <= 1'b0;
            if (m_axil_arready) m_axil_arvalid <= 1'b0;
            if (!lite_busy && flags[REGISTER]) begin
                take_register();
                lite_busy = found != 0;
                if (found == 1) begin
                    m_axil_araddr <= AXIL_ADDR_WIDTH'(register_address);
                    m_axil_arvalid <= 1'b1;
                    m_axil_rready <= 1'b1;
                end else if (found == 2) begin
                    m_axil_awaddr <= AXIL_ADDR_WIDTH'(register_address);
                    m_axil_wdata <= register_value;
                    m_axil_wstrb <= 4'(register_strobes);
                    m_axil_awvalid <= 1'b1;
                    m_axil_wvalid <= 1'b1;
                    m_axil_bready <= 1'b1;
                end
            end
        end
`ifndef FPGA_REPLAY
        // After the commands of the cycle, so that the waveform contains their address phase.
        if (started[2]) begin
            found = fpga_xdma_trace(handle);
            if (found == 1) is_traced = 1'b1;
            if (found == 2) is_traced = 1'b0;
        end
`endif
    end
    /* verilator lint_on BLKSEQ */
endmodule
