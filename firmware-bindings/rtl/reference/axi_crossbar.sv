// Several AXI4 masters in front of one slave: one write and one read burst at a time, masters in turns.

`timescale 1ps / 1ps

module axi_crossbar #(
    parameter int MASTERS = 3,
    parameter int DATA_WIDTH = 256,
    parameter int ADDR_WIDTH = 64,
    parameter int ID_WIDTH = 4
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire [ID_WIDTH-1:0]     s_awid[MASTERS],
    input  wire [ADDR_WIDTH-1:0]   s_awaddr[MASTERS],
    input  wire [7:0]              s_awlen[MASTERS],
    input  wire [2:0]              s_awsize[MASTERS],
    input  wire [1:0]              s_awburst[MASTERS],
    input  wire [MASTERS-1:0]      s_awvalid,
    output logic [MASTERS-1:0]     s_awready,
    input  wire [DATA_WIDTH-1:0]   s_wdata[MASTERS],
    input  wire [DATA_WIDTH/8-1:0] s_wstrb[MASTERS],
    input  wire [MASTERS-1:0]      s_wlast,
    input  wire [MASTERS-1:0]      s_wvalid,
    output logic [MASTERS-1:0]     s_wready,
    output logic [MASTERS-1:0]     s_bvalid,
    input  wire [MASTERS-1:0]      s_bready,
    input  wire [ID_WIDTH-1:0]     s_arid[MASTERS],
    input  wire [ADDR_WIDTH-1:0]   s_araddr[MASTERS],
    input  wire [7:0]              s_arlen[MASTERS],
    input  wire [2:0]              s_arsize[MASTERS],
    input  wire [1:0]              s_arburst[MASTERS],
    input  wire [MASTERS-1:0]      s_arvalid,
    output logic [MASTERS-1:0]     s_arready,
    output logic [MASTERS-1:0]     s_rvalid,
    input  wire [MASTERS-1:0]      s_rready,
    output wire [ID_WIDTH-1:0]     m_awid,
    output wire [ADDR_WIDTH-1:0]   m_awaddr,
    output wire [7:0]              m_awlen,
    output wire [2:0]              m_awsize,
    output wire [1:0]              m_awburst,
    output wire                    m_awvalid,
    input  wire                    m_awready,
    output wire [DATA_WIDTH-1:0]   m_wdata,
    output wire [DATA_WIDTH/8-1:0] m_wstrb,
    output wire                    m_wlast,
    output wire                    m_wvalid,
    input  wire                    m_wready,
    input  wire                    m_bvalid,
    output wire                    m_bready,
    output wire [ID_WIDTH-1:0]     m_arid,
    output wire [ADDR_WIDTH-1:0]   m_araddr,
    output wire [7:0]              m_arlen,
    output wire [2:0]              m_arsize,
    output wire [1:0]              m_arburst,
    output wire                    m_arvalid,
    input  wire                    m_arready,
    input  wire                    m_rlast,
    input  wire                    m_rvalid,
    output wire                    m_rready
);
    // B and R payloads go to every master; their VALID selects.
    localparam int INDEX = $clog2(MASTERS);

    // `writing`: master `writer` has the write channels until its response; `addressed`: its command was taken, `sent`: its
    // data, too. Reads likewise.
    logic writing, write_addressed, write_sent, reading, read_addressed;
    logic [INDEX-1:0] writer, reader;

    function automatic logic [INDEX-1:0] following(input logic [INDEX-1:0] last, input logic [MASTERS-1:0] valid);
        following = last;
        for (int step = MASTERS; step >= 1; step--) begin
            automatic int candidate = (int'(last) + step) % MASTERS;
            if (valid[candidate]) following = INDEX'(candidate);
        end
    endfunction

    assign m_awid = s_awid[writer];
    assign m_awaddr = s_awaddr[writer];
    assign m_awlen = s_awlen[writer];
    assign m_awsize = s_awsize[writer];
    assign m_awburst = s_awburst[writer];
    assign m_awvalid = writing && !write_addressed && s_awvalid[writer];
    assign m_wdata = s_wdata[writer];
    assign m_wstrb = s_wstrb[writer];
    assign m_wlast = s_wlast[writer];
    assign m_wvalid = writing && write_addressed && !write_sent && s_wvalid[writer];
    assign m_bready = writing && s_bready[writer];
    assign m_arid = s_arid[reader];
    assign m_araddr = s_araddr[reader];
    assign m_arlen = s_arlen[reader];
    assign m_arsize = s_arsize[reader];
    assign m_arburst = s_arburst[reader];
    assign m_arvalid = reading && !read_addressed && s_arvalid[reader];
    assign m_rready = reading && s_rready[reader];

    always_comb begin
        s_awready = '0;
        s_wready = '0;
        s_bvalid = '0;
        s_arready = '0;
        s_rvalid = '0;
        s_awready[writer] = writing && !write_addressed && m_awready;
        s_wready[writer] = writing && write_addressed && !write_sent && m_wready;
        s_bvalid[writer] = writing && m_bvalid;
        s_arready[reader] = reading && !read_addressed && m_arready;
        s_rvalid[reader] = reading && m_rvalid;
    end

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            writing <= 1'b0;
            reading <= 1'b0;
            writer <= '0;
            reader <= '0;
        end else begin
            if (!writing && s_awvalid != '0) begin
                writing <= 1'b1;
                write_addressed <= 1'b0;
                write_sent <= 1'b0;
                writer <= following(writer, s_awvalid);
            end
            if (m_awvalid && m_awready) write_addressed <= 1'b1;
            if (m_wvalid && m_wready && m_wlast) write_sent <= 1'b1;
            if (m_bvalid && m_bready) writing <= 1'b0;
            if (!reading && s_arvalid != '0) begin
                reading <= 1'b1;
                read_addressed <= 1'b0;
                reader <= following(reader, s_arvalid);
            end
            if (m_arvalid && m_arready) read_addressed <= 1'b1;
            if (m_rvalid && m_rready && m_rlast) reading <= 1'b0;
        end
    end
endmodule
