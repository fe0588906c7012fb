// Signals of one AXI4 interface, for a master and a slave of cocotbext-axi, and the protocol checker.

`timescale 1ps / 1ps

module checker_bench #(
    parameter int DATA_WIDTH = 64,
    parameter int ADDR_WIDTH = 32,
    parameter int ID_WIDTH = 4
);
    logic clk, rst_n;
    logic [ID_WIDTH-1:0] axi_awid, axi_bid, axi_arid, axi_rid;
    logic [ADDR_WIDTH-1:0] axi_awaddr, axi_araddr;
    logic [7:0] axi_awlen, axi_arlen;
    logic [2:0] axi_awsize, axi_arsize;
    logic [1:0] axi_awburst, axi_arburst, axi_bresp, axi_rresp;
    logic axi_awvalid, axi_awready, axi_wvalid, axi_wready, axi_wlast, axi_bvalid, axi_bready;
    logic axi_arvalid, axi_arready, axi_rvalid, axi_rready, axi_rlast;
    logic [DATA_WIDTH-1:0] axi_wdata, axi_rdata;
    logic [DATA_WIDTH/8-1:0] axi_wstrb;

    axi_checker #(.DATA_WIDTH(DATA_WIDTH), .ADDR_WIDTH(ADDR_WIDTH), .ID_WIDTH(ID_WIDTH), .NAME("axi")) checker_i (
        .clk, .rst_n,
        .awid(axi_awid), .awaddr(axi_awaddr), .awlen(axi_awlen), .awsize(axi_awsize), .awburst(axi_awburst), .awvalid(axi_awvalid),
        .awready(axi_awready), .wdata(axi_wdata), .wstrb(axi_wstrb), .wlast(axi_wlast), .wvalid(axi_wvalid), .wready(axi_wready),
        .bid(axi_bid), .bresp(axi_bresp), .bvalid(axi_bvalid), .bready(axi_bready),
        .arid(axi_arid), .araddr(axi_araddr), .arlen(axi_arlen), .arsize(axi_arsize), .arburst(axi_arburst), .arvalid(axi_arvalid),
        .arready(axi_arready), .rid(axi_rid), .rdata(axi_rdata), .rresp(axi_rresp), .rlast(axi_rlast), .rvalid(axi_rvalid),
        .rready(axi_rready)
    );
endmodule
