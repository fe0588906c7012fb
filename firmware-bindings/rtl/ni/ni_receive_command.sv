// Commands of the host to the receiver: latches of shadow windows, memory windows, CLEAR.
//
// `start` begins `command` (codes: see `ni_receive`), which stays until `ready` ends it; `failed` is valid then. An entry is latched with
// its transfer; `select_` outputs set the selected records from the next cycle on. `probe` shows window `index` in the next cycle.
// Reset: nothing runs.

`timescale 1ns / 1ps

module ni_receive_command #(
    parameter int ENTRIES = 64,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 64
) (
    input  wire         clk,
    input  wire         rst_n,
    input  wire         start,
    input  wire  [2:0]  command,
    input  wire  [15:0] index,
    output wire         ready,
    output logic        failed,

    input  wire  [63:0] window_base,
    input  wire  [63:0] window_length,
    output wire         probe,
    output wire         install,
    output wire         remove,
    output wire         clear,
    output wire         select_entry_and_slot,
    output wire         select_transfer,
    output wire         latch_entry,
    output wire         latch_slot,
    input  wire         shadow_done,
    // Memory window `index`: see `ni_access`; words 1 to 8 of block `memory`, with VALID in bit 256.
    input  wire         window_valid,
    input  wire [225:0] window,
    output logic [256:0] memory_shadow
);
    localparam logic [2:0] LATCH_ENTRY = 3'd0;
    localparam logic [2:0] LATCH_SLOT = 3'd1;
    localparam logic [2:0] LATCH_WINDOW = 3'd2;
    localparam logic [2:0] INSTALL = 3'd3;
    localparam logic [2:0] REMOVE = 3'd4;
    localparam logic [2:0] CLEAR = 3'd5;

    localparam logic [2:0] IDLE = 3'd0;
    localparam logic [2:0] DECODE = 3'd1;
    localparam logic [2:0] ENTRY = 3'd2;
    localparam logic [2:0] ENTRY_LATCH = 3'd3;
    localparam logic [2:0] SLOT = 3'd4;
    localparam logic [2:0] WINDOW = 3'd5;
    localparam logic [2:0] WAIT = 3'd6;
    logic [2:0] state;

    wire is_range_valid = window_length != 0 && !(window_base > ~window_length);
    wire is_window = {16'd0, index} < 32'(MEMORY_WINDOWS);

    assign ready = state == WAIT && shadow_done;
    assign probe = state == DECODE;
    assign install = state == DECODE && command == INSTALL && is_window && is_range_valid;
    assign remove = state == DECODE && command == REMOVE && is_window;
    assign clear = state == DECODE && command == CLEAR;
    assign select_entry_and_slot = state == DECODE;
    assign select_transfer = state == ENTRY;
    assign latch_entry = state == ENTRY_LATCH;
    assign latch_slot = state == SLOT;

    always_ff @(posedge clk) begin
        case (state)
            IDLE: if (start) state <= DECODE;
            DECODE: begin
                failed <= !is_window;
                state <= WAIT;
                case (command)
                    LATCH_ENTRY: begin
                        failed <= {16'd0, index} >= 32'(ENTRIES);
                        state <= ENTRY;
                    end
                    LATCH_SLOT: begin
                        failed <= {16'd0, index} >= 32'(ESCAPE_SLOTS);
                        state <= SLOT;
                    end
                    LATCH_WINDOW: state <= WINDOW;
                    INSTALL: failed <= !is_window || !is_range_valid;
                    CLEAR: failed <= 1'b0;
                    default: ;
                endcase
            end
            ENTRY: state <= ENTRY_LATCH;
            ENTRY_LATCH, SLOT: state <= WAIT;
            WINDOW: begin
                // Source, base, length, key, permissions in the order of the block.
                memory_shadow <= window_valid && !failed
                    ? {1'b1, 30'd0, window[225:224], window[63:0], window[127:64], window[191:128], window[223:192]} : '0;
                state <= WAIT;
            end
            default: if (shadow_done) state <= IDLE;
        endcase
        if (!rst_n) state <= IDLE;
    end
endmodule
