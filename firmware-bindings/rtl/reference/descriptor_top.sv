// Reference top level with descriptor bypass: a register block loads the descriptors of both channels. RAM at the AXI master.
//
// | Offset | Register | Access | Contents |
// |---|---|---|---|
// | 0x00, 0x04 | SOURCE | RW | source address |
// | 0x08, 0x0C | DESTINATION | RW | destination address |
// | 0x10 | LENGTH | RW | length |
// | 0x14 | LOAD | W | control bits 15:0; bit 16: C2H. Loads the descriptor once the port is ready |
// | 0x18 | LOADED | R | number of descriptors loaded |

`timescale 1ps / 1ps

module descriptor_top;
    localparam int DATA_WIDTH = 128;

    wire clk, rst_n;
    wire [3:0] awid, bid, arid, rid;
    wire [63:0] awaddr, araddr;
    wire [7:0] awlen, arlen;
    wire [2:0] awsize, arsize;
    wire [1:0] awburst, arburst, bresp, rresp;
    wire awvalid, awready, wvalid, wready, wlast, bvalid, bready, arvalid, arready, rvalid, rready, rlast;
    wire [DATA_WIDTH-1:0] wdata, rdata;
    wire [DATA_WIDTH/8-1:0] wstrb;
    wire [31:0] lite_awaddr, lite_wdata, lite_araddr;
    wire lite_awvalid, lite_wvalid, lite_bready, lite_arvalid, lite_rready;
    logic lite_bvalid, lite_rvalid;
    logic [31:0] lite_rdata;

    logic [31:0] registers[8];
    logic pending;
    wire [1:0] ready;
    wire is_c2h = registers[5][16];
    wire load = pending && ready[is_c2h];

    fpga_xdma #(.DATA_WIDTH(DATA_WIDTH), .H2C_DSC_BYPASS(4'b0001), .C2H_DSC_BYPASS(4'b0001)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b1),
        .axi_aclk(clk), .axi_aresetn(rst_n), .usr_irq_req(1'b0),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
        .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready),
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
        .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
        .m_axil_awaddr(lite_awaddr), .m_axil_awvalid(lite_awvalid), .m_axil_awready(lite_awvalid && lite_wvalid && !lite_bvalid),
        .m_axil_wdata(lite_wdata), .m_axil_wvalid(lite_wvalid), .m_axil_wready(lite_awvalid && lite_wvalid && !lite_bvalid),
        .m_axil_bvalid(lite_bvalid), .m_axil_bresp(2'b00), .m_axil_bready(lite_bready),
        .m_axil_araddr(lite_araddr), .m_axil_arvalid(lite_arvalid), .m_axil_arready(lite_arvalid && !lite_rvalid),
        .m_axil_rdata(lite_rdata), .m_axil_rresp(2'b00), .m_axil_rvalid(lite_rvalid), .m_axil_rready(lite_rready),
        .h2c_dsc_byp_ready_0(ready[0]), .h2c_dsc_byp_load_0(load && !is_c2h),
        .h2c_dsc_byp_src_addr_0({registers[1], registers[0]}), .h2c_dsc_byp_dst_addr_0({registers[3], registers[2]}),
        .h2c_dsc_byp_len_0(registers[4][27:0]), .h2c_dsc_byp_ctl_0(registers[5][15:0]),
        .c2h_dsc_byp_ready_0(ready[1]), .c2h_dsc_byp_load_0(load && is_c2h),
        .c2h_dsc_byp_src_addr_0({registers[1], registers[0]}), .c2h_dsc_byp_dst_addr_0({registers[3], registers[2]}),
        .c2h_dsc_byp_len_0(registers[4][27:0]), .c2h_dsc_byp_ctl_0(registers[5][15:0])
    );

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            lite_bvalid <= 1'b0;
            lite_rvalid <= 1'b0;
            pending <= 1'b0;
            registers[6] <= '0;
        end else begin
            if (lite_bready) lite_bvalid <= 1'b0;
            if (lite_rready) lite_rvalid <= 1'b0;
            if (load) begin
                pending <= 1'b0;
                registers[6] <= registers[6] + 1;
            end
            if (lite_awvalid && lite_wvalid && !lite_bvalid) begin
                registers[lite_awaddr[4:2]] <= lite_wdata;
                lite_bvalid <= 1'b1;
                if (lite_awaddr[4:2] == 5) pending <= 1'b1;
            end
            if (lite_arvalid && !lite_rvalid) begin
                lite_rdata <= registers[lite_araddr[4:2]];
                lite_rvalid <= 1'b1;
            end
        end
    end

    axi_ram #(.DATA_WIDTH(DATA_WIDTH)) ram (
        .clk, .rst_n, .hold(5'b0),
        .s_awid(awid), .s_awaddr(awaddr), .s_awlen(awlen), .s_awburst(awburst), .s_awsize(awsize), .s_awvalid(awvalid), .s_awready(awready),
        .s_wdata(wdata), .s_wstrb(wstrb), .s_wlast(wlast), .s_wvalid(wvalid), .s_wready(wready),
        .s_bid(bid), .s_bresp(bresp), .s_bvalid(bvalid), .s_bready(bready),
        .s_arid(arid), .s_araddr(araddr), .s_arlen(arlen), .s_arburst(arburst), .s_arsize(arsize), .s_arvalid(arvalid), .s_arready(arready),
        .s_rid(rid), .s_rdata(rdata), .s_rresp(rresp), .s_rlast(rlast), .s_rvalid(rvalid), .s_rready(rready)
    );
endmodule
