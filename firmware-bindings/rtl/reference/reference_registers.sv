// AXI4-Lite register block of the reference top level.
//
// | Offset | Register | Access | Contents |
// |---|---|---|---|
// | 0x00 | ID | R | 0x46524546 |
// | 0x04 | SCRATCH | RW | |
// | 0x08 | INTERRUPT | RW | lines of usr_irq_req; write 1 raises a line |
// | 0x0C | CLEAR | W | write 1 lowers a line |
// | 0x10 | ACKNOWLEDGED | R | number of cycles of usr_irq_ack |
// | 0x14 | CYCLES | R | clock cycles since reset |
// | 0x20 | LATE | R | 0; answers when the input late_enable is high |
//
// Offsets from 0x1000 on never answer; others answer DECERR.

`timescale 1ps / 1ps

module reference_registers #(
    parameter int USER_INTERRUPTS = 4
) (
    input  wire        clk,
    input  wire        rst_n,
    input  wire [31:0] s_awaddr,
    input  wire        s_awvalid,
    output wire        s_awready,
    input  wire [31:0] s_wdata,
    input  wire [3:0]  s_wstrb,
    input  wire        s_wvalid,
    output wire        s_wready,
    output logic       s_bvalid,
    output logic [1:0] s_bresp,
    input  wire        s_bready,
    input  wire [31:0] s_araddr,
    input  wire        s_arvalid,
    output wire        s_arready,
    output logic [31:0] s_rdata,
    output logic [1:0] s_rresp,
    output logic       s_rvalid,
    input  wire        s_rready,
    input  wire        late_enable,
    output logic [USER_INTERRUPTS-1:0] usr_irq_req,
    input  wire  [USER_INTERRUPTS-1:0] usr_irq_ack
);
    localparam logic [31:0] ID = 32'h4652_4546;

    logic [31:0] scratch, acknowledged, cycles;

    wire writes = s_awvalid && s_wvalid && !s_bvalid && s_awaddr < 32'h1000;
    assign s_awready = writes;
    assign s_wready = writes;
    wire reads = s_arvalid && !s_rvalid && s_araddr < 32'h1000 && (s_araddr != 32'h20 || late_enable);
    assign s_arready = reads;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            s_bvalid <= 1'b0;
            s_rvalid <= 1'b0;
            scratch <= '0;
            acknowledged <= '0;
            cycles <= '0;
            usr_irq_req <= '0;
        end else begin
            cycles <= cycles + 1;
            if (usr_irq_ack != '0) acknowledged <= acknowledged + 1;
            if (s_bvalid && s_bready) s_bvalid <= 1'b0;
            if (s_rvalid && s_rready) s_rvalid <= 1'b0;
            if (writes) begin
                s_bvalid <= 1'b1;
                s_bresp <= 2'b00;
                case (s_awaddr[11:0])
                    12'h004: for (int lane = 0; lane < 4; lane++)
                        if (s_wstrb[lane]) scratch[8 * lane +: 8] <= s_wdata[8 * lane +: 8];
                    12'h008: usr_irq_req <= usr_irq_req | s_wdata[USER_INTERRUPTS-1:0];
                    12'h00C: usr_irq_req <= usr_irq_req & ~s_wdata[USER_INTERRUPTS-1:0];
                    default: s_bresp <= 2'b11;
                endcase
            end
            if (reads) begin
                s_rvalid <= 1'b1;
                s_rresp <= 2'b00;
                case (s_araddr[11:0])
                    12'h000: s_rdata <= ID;
                    12'h004: s_rdata <= scratch;
                    12'h008: s_rdata <= 32'(usr_irq_req);
                    12'h010: s_rdata <= acknowledged;
                    12'h014: s_rdata <= cycles;
                    12'h020: s_rdata <= '0;
                    default: begin
                        s_rdata <= '0;
                        s_rresp <= 2'b11;
                    end
                endcase
            end
        end
    end
endmodule
