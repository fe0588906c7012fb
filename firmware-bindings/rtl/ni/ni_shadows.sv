// Shadow windows of the receiver's tables: blocks registry, escape and memory (docs/protocol/interface.md 10.8).
//
// Protocol: `write` is a pulse with block (bits 15:12 of the user BAR's offset), offset and value; `taken` tells in the same cycle whether the
// value is valid, and `needs_command` whether the receiver has to execute `next_command` for it. `command_done` is the pulse of its end. The
// shadow words of registry and escape are the receiver's; those of a memory window are here, because the host changes them before COMMIT
// installs them as a whole. `word` is the readable value at block and offset. Latency: words follow in the cycle after a write or the end
// of a command. Reset: all words are 0.

`timescale 1ns / 1ps

module ni_shadows (
    input  wire          clk,
    input  wire          rst_n,
    input  wire          write,
    input  wire  [3:0]   block,
    input  wire  [11:0]  offset,
    input  wire  [31:0]  value,
    output logic         taken,
    output logic         needs_command,
    output logic [2:0]   next_command,
    output wire  [15:0]  next_index,
    output logic [31:0]  word,

    input  wire          command_done,
    input  wire  [2:0]   command,
    input  wire          command_failed,
    output logic [31:0]  window_source,
    output logic [63:0]  window_base,
    output logic [63:0]  window_length,
    output logic [63:0]  window_key,
    output logic [1:0]   window_permissions,
    /* verilator lint_off UNUSEDSIGNAL */
    // Without word 0, which is the index, and the bits of PERMISSIONS that have no meaning.
    input  wire  [767:0] registry_shadow,
    input  wire  [351:0] escape_shadow,
    input  wire  [256:0] memory_shadow,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire  [31:0]  registry_occupancy,
    input  wire  [31:0]  registry_high_water,
    input  wire  [31:0]  escape_occupancy,
    input  wire  [31:0]  escape_high_water,
    input  wire  [31:0]  memory_occupancy
);
    localparam logic [2:0] COMMAND_REGISTRY = 3'd0;
    localparam logic [2:0] COMMAND_ESCAPE = 3'd1;
    localparam logic [2:0] COMMAND_MEMORY = 3'd2;
    localparam logic [2:0] COMMAND_INSTALL = 3'd3;
    localparam logic [2:0] COMMAND_REMOVE = 3'd4;

    localparam logic [3:0] REGISTRY = ni_pkg::BLOCK_OFFSET_REGISTRY[15:12];
    localparam logic [3:0] ESCAPE = ni_pkg::BLOCK_OFFSET_ESCAPE[15:12];
    localparam logic [3:0] MEMORY = ni_pkg::BLOCK_OFFSET_MEMORY[15:12];

    logic [31:0] registry_index;
    logic [31:0] escape_index;
    logic [31:0] memory_index;
    logic window_valid;
    wire is_install = value == ni_pkg::MEMORY_COMMIT_INSTALL;
    wire is_remove = value == ni_pkg::MEMORY_COMMIT_REMOVE;
    wire is_index = offset == ni_pkg::REG_REGISTRY_INDEX;
    wire is_permissions = value <= 32'd3;
    // Indices beyond 16 bits are out of range, as is this one.
    wire [31:0] table_index = (next_command == COMMAND_INSTALL || next_command == COMMAND_REMOVE) ? memory_index : value;
    assign next_index = (table_index[31:16] == 0) ? table_index[15:0] : 16'hffff;

    always_comb begin
        taken = 1'b0;
        needs_command = 1'b0;
        next_command = COMMAND_REGISTRY;
        case (block)
            REGISTRY: begin
                taken = is_index;
                needs_command = is_index;
            end
            ESCAPE: begin
                taken = is_index;
                needs_command = is_index;
                next_command = COMMAND_ESCAPE;
            end
            MEMORY: begin
                case (offset)
                    ni_pkg::REG_MEMORY_INDEX: begin
                        taken = 1'b1;
                        needs_command = 1'b1;
                        next_command = COMMAND_MEMORY;
                    end
                    ni_pkg::REG_MEMORY_COMMIT: begin
                        taken = is_install || is_remove;
                        needs_command = is_install || is_remove;
                        next_command = is_install ? COMMAND_INSTALL : COMMAND_REMOVE;
                    end
                    ni_pkg::REG_MEMORY_PERMISSIONS: taken = is_permissions;
                    ni_pkg::REG_MEMORY_SOURCE_NODE, ni_pkg::REG_MEMORY_BASE_LOW, ni_pkg::REG_MEMORY_BASE_HIGH,
                    ni_pkg::REG_MEMORY_LENGTH_LOW, ni_pkg::REG_MEMORY_LENGTH_HIGH, ni_pkg::REG_MEMORY_KEY_LOW, ni_pkg::REG_MEMORY_KEY_HIGH:
                    taken = 1'b1;
                    default: taken = 1'b0;
                endcase
            end
            default: taken = 1'b0;
        endcase
    end

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            registry_index <= '0;
            escape_index <= '0;
            memory_index <= '0;
            window_valid <= 1'b0;
            {window_permissions, window_key, window_length, window_base, window_source} <= '0;
        end else if (write) begin
            if (block == REGISTRY && is_index) registry_index <= value;
            if (block == ESCAPE && is_index) escape_index <= value;
            if (block == MEMORY)
                case (offset)
                    ni_pkg::REG_MEMORY_INDEX: memory_index <= value;
                    ni_pkg::REG_MEMORY_SOURCE_NODE: window_source <= value;
                    ni_pkg::REG_MEMORY_BASE_LOW: window_base[31:0] <= value;
                    ni_pkg::REG_MEMORY_BASE_HIGH: window_base[63:32] <= value;
                    ni_pkg::REG_MEMORY_LENGTH_LOW: window_length[31:0] <= value;
                    ni_pkg::REG_MEMORY_LENGTH_HIGH: window_length[63:32] <= value;
                    ni_pkg::REG_MEMORY_KEY_LOW: window_key[31:0] <= value;
                    ni_pkg::REG_MEMORY_KEY_HIGH: window_key[63:32] <= value;
                    ni_pkg::REG_MEMORY_PERMISSIONS: if (is_permissions) window_permissions <= value[1:0];
                    default: ;
                endcase
        end else if (command_done) begin
            if (command == COMMAND_MEMORY) begin
                {window_permissions, window_key, window_length, window_base, window_source} <= memory_shadow[225:0];
                window_valid <= memory_shadow[256];
            end
            if (!command_failed && command == COMMAND_INSTALL) window_valid <= 1'b1;
            if (!command_failed && command == COMMAND_REMOVE) window_valid <= 1'b0;
        end
    end

    // Reads. -----------------------------------------------------------------------------------------------------------------------

    wire [31:0] window_base_low = window_base[31:0];
    wire [31:0] window_base_high = window_base[63:32];
    wire [31:0] window_length_low = window_length[31:0];
    wire [31:0] window_length_high = window_length[63:32];
    wire [31:0] window_key_low = window_key[31:0];
    wire [31:0] window_key_high = window_key[63:32];
    localparam int REGISTRY_WORDS = 24;
    localparam int ESCAPE_WORDS = 11;
    wire [9:0] number = offset[11:2];
    logic [31:0] registry_word;
    logic [31:0] escape_word;
    logic [31:0] memory_word;
    always_comb begin
        registry_word = '0;
        for (int index = 1; index < REGISTRY_WORDS; index++) if (number == 10'(index)) registry_word = registry_shadow[32*index+:32];
        if (is_index) registry_word = registry_index;
        if (offset == ni_pkg::REG_REGISTRY_OCCUPANCY) registry_word = registry_occupancy;
        if (offset == ni_pkg::REG_REGISTRY_HIGH_WATER) registry_word = registry_high_water;
        escape_word = '0;
        for (int index = 1; index < ESCAPE_WORDS; index++) if (number == 10'(index)) escape_word = escape_shadow[32*index+:32];
        if (is_index) escape_word = escape_index;
        if (offset == ni_pkg::REG_ESCAPE_OCCUPANCY) escape_word = escape_occupancy;
        if (offset == ni_pkg::REG_ESCAPE_HIGH_WATER) escape_word = escape_high_water;
        case (offset)
            ni_pkg::REG_MEMORY_INDEX: memory_word = memory_index;
            ni_pkg::REG_MEMORY_SOURCE_NODE: memory_word = window_source;
            ni_pkg::REG_MEMORY_BASE_LOW: memory_word = window_base_low;
            ni_pkg::REG_MEMORY_BASE_HIGH: memory_word = window_base_high;
            ni_pkg::REG_MEMORY_LENGTH_LOW: memory_word = window_length_low;
            ni_pkg::REG_MEMORY_LENGTH_HIGH: memory_word = window_length_high;
            ni_pkg::REG_MEMORY_KEY_LOW: memory_word = window_key_low;
            ni_pkg::REG_MEMORY_KEY_HIGH: memory_word = window_key_high;
            ni_pkg::REG_MEMORY_PERMISSIONS: memory_word = {30'b0, window_permissions};
            ni_pkg::REG_MEMORY_VALID: memory_word = {31'b0, window_valid};
            ni_pkg::REG_MEMORY_OCCUPANCY: memory_word = memory_occupancy;
            default: memory_word = '0;
        endcase
        case (block)
            REGISTRY: word = registry_word;
            ESCAPE: word = escape_word;
            MEMORY: word = memory_word;
            default: word = '0;
        endcase
    end
endmodule
