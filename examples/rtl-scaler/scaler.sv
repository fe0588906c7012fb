// Reads a vector from memory, multiplies each 32-bit number, and writes the result: three cycles for a pair of numbers.

`timescale 1ps / 1ps

module scaler (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         start,
    input  wire  [31:0] source,
    input  wire  [31:0] destination,
    // Pairs of numbers.
    input  wire  [31:0] length,
    input  wire  [31:0] factor,
    output wire         busy,
    // One cycle of 1 at the end.
    output logic        done,
    output logic [15:0] address,
    output logic        write,
    output logic [63:0] write_data,
    input  wire  [63:0] read_data
);
    typedef enum logic [1:0] {IDLE, READ, MULTIPLY, WRITE} state_t;
    state_t state;
    logic [31:0] index;

    assign busy = state != IDLE;

    always_ff @(posedge clk) begin
        done <= 1'b0;
        write <= 1'b0;
        if (!rst_n) state <= IDLE;
        else case (state)
            IDLE:
                if (start) begin
                    index <= '0;
                    address <= source[15:0];
                    state <= READ;
                    if (length == 0) begin
                        done <= 1'b1;
                        state <= IDLE;
                    end
                end
            // The memory sees the address.
            READ: state <= MULTIPLY;
            MULTIPLY: begin
                write_data <= {read_data[63:32] * factor, read_data[31:0] * factor};
                address <= 16'(destination + 8 * index);
                write <= 1'b1;
                state <= WRITE;
            end
            // The memory writes; the next address is set.
            WRITE: begin
                index <= index + 1;
                address <= 16'(source + 8 * (index + 1));
                state <= READ;
                if (index + 1 == length) begin
                    done <= 1'b1;
                    state <= IDLE;
                end
            end
        endcase
    end
endmodule
