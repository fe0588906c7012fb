// Top level around the modules of verilog-axi (A. Forencich): fpga_xdma, a crossbar, two RAMs, and a RAM of registers.
// Its sources are not part of this project: FPGA_VERILOG_AXI names their folder `rtl`.

module foreign_top;
    localparam int DATA = 256;
    localparam int STROBES = DATA / 8;
    localparam int IDS = 4;
    // Two RAMs of 64 KiB.
    localparam int RAM_BITS = 16;
    localparam int ADDRESS = 32;

    wire clock, reset_n;
    wire [IDS-1:0] awid, arid, bid, rid;
    wire [63:0] awaddr, araddr;
    wire [7:0] awlen, arlen;
    wire [2:0] awsize, arsize, awprot, arprot;
    wire [1:0] awburst, arburst, bresp, rresp;
    wire [3:0] awcache, arcache;
    wire [DATA-1:0] wdata, rdata;
    wire [STROBES-1:0] wstrb;
    wire awlock, arlock, awvalid, awready, arvalid, arready, wvalid, wready, wlast, bvalid, bready, rvalid, rready, rlast;

    wire [31:0] l_awaddr, l_araddr, l_wdata, l_rdata;
    wire [2:0] l_awprot, l_arprot;
    wire [3:0] l_wstrb;
    wire [1:0] l_bresp, l_rresp;
    wire l_awvalid, l_awready, l_wvalid, l_wready, l_bvalid, l_bready, l_arvalid, l_arready, l_rvalid, l_rready;

    fpga_xdma #(.DATA_WIDTH(DATA), .ID_WIDTH(IDS), .CHANNELS(2)) xdma (
        .sys_clk(1'b0), .sys_clk_gt(1'b0), .sys_rst_n(1'b1), .pci_exp_rxp(1'b0), .pci_exp_rxn(1'b0),
        .axi_aclk(clock), .axi_aresetn(reset_n), .usr_irq_req(1'b0),
        .m_axi_awid(awid), .m_axi_awaddr(awaddr), .m_axi_awlen(awlen), .m_axi_awsize(awsize), .m_axi_awburst(awburst),
        .m_axi_awprot(awprot), .m_axi_awlock(awlock), .m_axi_awcache(awcache), .m_axi_awvalid(awvalid), .m_axi_awready(awready),
        .m_axi_wdata(wdata), .m_axi_wstrb(wstrb), .m_axi_wlast(wlast), .m_axi_wvalid(wvalid), .m_axi_wready(wready),
        .m_axi_bid(bid), .m_axi_bresp(bresp), .m_axi_bvalid(bvalid), .m_axi_bready(bready),
        .m_axi_arid(arid), .m_axi_araddr(araddr), .m_axi_arlen(arlen), .m_axi_arsize(arsize), .m_axi_arburst(arburst),
        .m_axi_arprot(arprot), .m_axi_arlock(arlock), .m_axi_arcache(arcache), .m_axi_arvalid(arvalid), .m_axi_arready(arready),
        .m_axi_rid(rid), .m_axi_rdata(rdata), .m_axi_rresp(rresp), .m_axi_rlast(rlast), .m_axi_rvalid(rvalid), .m_axi_rready(rready),
        .m_axil_awaddr(l_awaddr), .m_axil_awprot(l_awprot), .m_axil_awvalid(l_awvalid), .m_axil_awready(l_awready),
        .m_axil_wdata(l_wdata), .m_axil_wstrb(l_wstrb), .m_axil_wvalid(l_wvalid), .m_axil_wready(l_wready),
        .m_axil_bvalid(l_bvalid), .m_axil_bresp(l_bresp), .m_axil_bready(l_bready),
        .m_axil_araddr(l_araddr), .m_axil_arprot(l_arprot), .m_axil_arvalid(l_arvalid), .m_axil_arready(l_arready),
        .m_axil_rdata(l_rdata), .m_axil_rresp(l_rresp), .m_axil_rvalid(l_rvalid), .m_axil_rready(l_rready)
    );

    // Slave ports of the RAMs: two of each signal, the first RAM in the low bits.
    wire [2*IDS-1:0] s_awid, s_arid, s_bid, s_rid;
    wire [2*ADDRESS-1:0] s_awaddr, s_araddr;
    wire [15:0] s_awlen, s_arlen;
    wire [5:0] s_awsize, s_arsize, s_awprot, s_arprot;
    wire [3:0] s_awburst, s_arburst, s_bresp, s_rresp;
    wire [7:0] s_awcache, s_arcache;
    wire [2*DATA-1:0] s_wdata, s_rdata;
    wire [2*STROBES-1:0] s_wstrb;
    wire [1:0] s_awlock, s_arlock, s_awvalid, s_awready, s_arvalid, s_arready, s_wvalid, s_wready, s_wlast;
    wire [1:0] s_bvalid, s_bready, s_rvalid, s_rready, s_rlast;

    axi_crossbar #(
        .S_COUNT(1), .M_COUNT(2), .DATA_WIDTH(DATA), .ADDR_WIDTH(ADDRESS), .S_ID_WIDTH(IDS), .M_ID_WIDTH(IDS),
        .M_BASE_ADDR({32'h0001_0000, 32'h0000_0000}), .M_ADDR_WIDTH({32'd16, 32'd16})
    ) crossbar (
        .clk(clock), .rst(!reset_n),
        .s_axi_awid(awid), .s_axi_awaddr(awaddr[ADDRESS-1:0]), .s_axi_awlen(awlen), .s_axi_awsize(awsize),
        .s_axi_awburst(awburst), .s_axi_awlock(awlock), .s_axi_awcache(awcache), .s_axi_awprot(awprot), .s_axi_awqos(4'd0),
        .s_axi_awuser(1'b0), .s_axi_awvalid(awvalid), .s_axi_awready(awready), .s_axi_wdata(wdata), .s_axi_wstrb(wstrb),
        .s_axi_wlast(wlast), .s_axi_wuser(1'b0), .s_axi_wvalid(wvalid), .s_axi_wready(wready), .s_axi_bid(bid),
        .s_axi_bresp(bresp), .s_axi_bvalid(bvalid), .s_axi_bready(bready), .s_axi_arid(arid),
        .s_axi_araddr(araddr[ADDRESS-1:0]), .s_axi_arlen(arlen), .s_axi_arsize(arsize), .s_axi_arburst(arburst),
        .s_axi_arlock(arlock), .s_axi_arcache(arcache), .s_axi_arprot(arprot), .s_axi_arqos(4'd0), .s_axi_aruser(1'b0),
        .s_axi_arvalid(arvalid), .s_axi_arready(arready), .s_axi_rid(rid), .s_axi_rdata(rdata), .s_axi_rresp(rresp),
        .s_axi_rlast(rlast), .s_axi_rvalid(rvalid), .s_axi_rready(rready),
        .m_axi_awid(s_awid), .m_axi_awaddr(s_awaddr), .m_axi_awlen(s_awlen), .m_axi_awsize(s_awsize),
        .m_axi_awburst(s_awburst), .m_axi_awlock(s_awlock), .m_axi_awcache(s_awcache), .m_axi_awprot(s_awprot),
        .m_axi_awvalid(s_awvalid), .m_axi_awready(s_awready), .m_axi_wdata(s_wdata), .m_axi_wstrb(s_wstrb),
        .m_axi_wlast(s_wlast), .m_axi_wvalid(s_wvalid), .m_axi_wready(s_wready), .m_axi_bid(s_bid), .m_axi_bresp(s_bresp),
        .m_axi_buser(2'b0), .m_axi_bvalid(s_bvalid), .m_axi_bready(s_bready), .m_axi_arid(s_arid), .m_axi_araddr(s_araddr),
        .m_axi_arlen(s_arlen), .m_axi_arsize(s_arsize), .m_axi_arburst(s_arburst), .m_axi_arlock(s_arlock),
        .m_axi_arcache(s_arcache), .m_axi_arprot(s_arprot), .m_axi_arvalid(s_arvalid), .m_axi_arready(s_arready),
        .m_axi_rid(s_rid), .m_axi_rdata(s_rdata), .m_axi_rresp(s_rresp), .m_axi_rlast(s_rlast), .m_axi_ruser(2'b0),
        .m_axi_rvalid(s_rvalid), .m_axi_rready(s_rready)
    );

    for (genvar n = 0; n < 2; n++) begin : g_ram
        axi_ram #(.DATA_WIDTH(DATA), .ADDR_WIDTH(RAM_BITS), .ID_WIDTH(IDS), .PIPELINE_OUTPUT(n)) ram (
            .clk(clock), .rst(!reset_n),
            .s_axi_awid(s_awid[n*IDS +: IDS]), .s_axi_awaddr(s_awaddr[n*ADDRESS +: RAM_BITS]), .s_axi_awlen(s_awlen[n*8 +: 8]),
            .s_axi_awsize(s_awsize[n*3 +: 3]), .s_axi_awburst(s_awburst[n*2 +: 2]), .s_axi_awlock(s_awlock[n]),
            .s_axi_awcache(s_awcache[n*4 +: 4]), .s_axi_awprot(s_awprot[n*3 +: 3]), .s_axi_awvalid(s_awvalid[n]),
            .s_axi_awready(s_awready[n]), .s_axi_wdata(s_wdata[n*DATA +: DATA]), .s_axi_wstrb(s_wstrb[n*STROBES +: STROBES]),
            .s_axi_wlast(s_wlast[n]), .s_axi_wvalid(s_wvalid[n]), .s_axi_wready(s_wready[n]), .s_axi_bid(s_bid[n*IDS +: IDS]),
            .s_axi_bresp(s_bresp[n*2 +: 2]), .s_axi_bvalid(s_bvalid[n]), .s_axi_bready(s_bready[n]),
            .s_axi_arid(s_arid[n*IDS +: IDS]), .s_axi_araddr(s_araddr[n*ADDRESS +: RAM_BITS]), .s_axi_arlen(s_arlen[n*8 +: 8]),
            .s_axi_arsize(s_arsize[n*3 +: 3]), .s_axi_arburst(s_arburst[n*2 +: 2]), .s_axi_arlock(s_arlock[n]),
            .s_axi_arcache(s_arcache[n*4 +: 4]), .s_axi_arprot(s_arprot[n*3 +: 3]), .s_axi_arvalid(s_arvalid[n]),
            .s_axi_arready(s_arready[n]), .s_axi_rid(s_rid[n*IDS +: IDS]), .s_axi_rdata(s_rdata[n*DATA +: DATA]),
            .s_axi_rresp(s_rresp[n*2 +: 2]), .s_axi_rlast(s_rlast[n]), .s_axi_rvalid(s_rvalid[n]), .s_axi_rready(s_rready[n])
        );
    end

    axil_ram #(.DATA_WIDTH(32), .ADDR_WIDTH(12)) registers (
        .clk(clock), .rst(!reset_n),
        .s_axil_awaddr(l_awaddr[11:0]), .s_axil_awprot(l_awprot), .s_axil_awvalid(l_awvalid), .s_axil_awready(l_awready),
        .s_axil_wdata(l_wdata), .s_axil_wstrb(l_wstrb), .s_axil_wvalid(l_wvalid), .s_axil_wready(l_wready),
        .s_axil_bresp(l_bresp), .s_axil_bvalid(l_bvalid), .s_axil_bready(l_bready),
        .s_axil_araddr(l_araddr[11:0]), .s_axil_arprot(l_arprot), .s_axil_arvalid(l_arvalid), .s_axil_arready(l_arready),
        .s_axil_rdata(l_rdata), .s_axil_rresp(l_rresp), .s_axil_rvalid(l_rvalid), .s_axil_rready(l_rready)
    );
endmodule
