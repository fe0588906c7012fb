// Simulation model of a network port: an Ethernet MAC with its cable, as a design sees it.
//
// Protocol: AXI4-Stream, one frame per TLAST; s_axis takes the frames that the design sends, m_axis has those that arrive. All instances of
// a simulation are ports of one network (library `fpga_rtl`, directory driver/sim/rtl), which may lose, duplicate, damage, delay and
// reorder frames, and may be linked to other processes. Frames are routed by the node ids of their common header.
//
// Configuration: plusarg +fpga_network=LIST or parameter NETWORK; see driver/sim/rtl/README.md. Reset: clears m_axis; frames in flight stay.

`timescale 1ps / 1ps

module fpga_network #(
    // 64, 128, 256 or 512.
    parameter int DATA_WIDTH = 256,
    // String. Without the type: Icarus Verilog has no parameters of type string.
    parameter NETWORK = ""
) (
    input  wire                    aclk,
    input  wire                    aresetn,
    input  wire [DATA_WIDTH-1:0]   s_axis_tdata,
    input  wire [DATA_WIDTH/8-1:0] s_axis_tkeep,
    input  wire                    s_axis_tlast,
    input  wire                    s_axis_tvalid,
    output wire                    s_axis_tready,
    output logic [DATA_WIDTH-1:0]  m_axis_tdata,
    output logic [DATA_WIDTH/8-1:0] m_axis_tkeep,
    output logic                   m_axis_tlast,
    output logic                   m_axis_tvalid,
    input  wire                    m_axis_tready
);
    import "DPI-C" function int fpga_network_open(input int data_bits, input string options);
    import "DPI-C" function void fpga_network_send(
        input int handle, input longint unsigned now, input bit [511:0] data, input longint unsigned keep, input int is_last);
    import "DPI-C" function int fpga_network_beat(
        input int handle, input longint unsigned now, output bit [511:0] data, output longint unsigned keep);

    int handle = -1;
    initial begin
        string options;
        if (!$value$plusargs("fpga_network=%s", options)) options = NETWORK;
        handle = fpga_network_open(DATA_WIDTH, options);
        if (handle < 0) $fatal(1, "fpga_network: the model does not start; its message is on standard error");
    end

    assign s_axis_tready = 1'b1;

    int found;
    bit [511:0] data;
    longint unsigned keep;

    /* verilator lint_off BLKSEQ */
    always @(posedge aclk) begin
        if (!aresetn) begin
            m_axis_tvalid <= 1'b0;
        end else begin
            if (s_axis_tvalid)
                fpga_network_send(handle, longint'($time), 512'(s_axis_tdata), 64'(s_axis_tkeep), int'(s_axis_tlast));
            if (!m_axis_tvalid || m_axis_tready) begin
                found = fpga_network_beat(handle, longint'($time), data, keep);
                m_axis_tvalid <= found != 0;
                m_axis_tlast <= found[1];
                m_axis_tdata <= data[DATA_WIDTH-1:0];
                m_axis_tkeep <= keep[DATA_WIDTH/8-1:0];
            end
        end
    end
    /* verilator lint_on BLKSEQ */
endmodule
