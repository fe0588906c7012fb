// Words of the identity block: magic, contract, build, capabilities, table of the blocks of this NI.
//
// Combinational: `word` is the 32-bit word at byte offset `{register_offset, 2'b00}`. The block cdma is listed, too: its registers are outside of
// the NI, behind the address decoder of the user BAR.

`timescale 1ns / 1ps

module ni_identity #(
    parameter int BUILD = 1,
    parameter int CAPABILITIES = 0,
    // Offset of the CDMA engine's registers in the user BAR.
    parameter logic [31:0] CDMA_OFFSET = ni_pkg::BLOCK_OFFSET_CDMA
) (
    input  wire  [11:2] register_offset,
    output logic [31:0] word
);
    localparam int BLOCKS = 8;
    localparam int FIRST = 32'(ni_pkg::REG_IDENTITY_BLOCK_TABLE) / 4;

    // Entry of the block table: type and version, offset, size, reserved.
    logic [95:0] block_entry;
    wire [31:0] entry_word_0 = block_entry[31:0];
    wire [31:0] entry_word_1 = block_entry[63:32];
    wire [31:0] entry_word_2 = block_entry[95:64];
    wire [9:0] table_word = register_offset - 10'(FIRST);
    wire [7:0] table_entry = table_word[9:2];
    wire [1:0] entry_word = table_word[1:0];

    always_comb begin
        case (table_entry)
            8'd0: block_entry = {ni_pkg::BLOCK_SIZE_IDENTITY, ni_pkg::BLOCK_OFFSET_IDENTITY, ni_pkg::BLOCK_VERSION_IDENTITY, ni_pkg::BLOCK_TYPE_IDENTITY};
            8'd1: block_entry = {ni_pkg::BLOCK_SIZE_CDMA, CDMA_OFFSET, ni_pkg::BLOCK_VERSION_CDMA, ni_pkg::BLOCK_TYPE_CDMA};
            8'd2: block_entry = {ni_pkg::BLOCK_SIZE_NI, ni_pkg::BLOCK_OFFSET_NI, ni_pkg::BLOCK_VERSION_NI, ni_pkg::BLOCK_TYPE_NI};
            8'd3: block_entry = {ni_pkg::BLOCK_SIZE_COUNTERS, ni_pkg::BLOCK_OFFSET_COUNTERS, ni_pkg::BLOCK_VERSION_COUNTERS, ni_pkg::BLOCK_TYPE_COUNTERS};
            8'd4: block_entry = {ni_pkg::BLOCK_SIZE_REGISTRY, ni_pkg::BLOCK_OFFSET_REGISTRY, ni_pkg::BLOCK_VERSION_REGISTRY, ni_pkg::BLOCK_TYPE_REGISTRY};
            8'd5: block_entry = {ni_pkg::BLOCK_SIZE_ESCAPE, ni_pkg::BLOCK_OFFSET_ESCAPE, ni_pkg::BLOCK_VERSION_ESCAPE, ni_pkg::BLOCK_TYPE_ESCAPE};
            8'd6: block_entry = {ni_pkg::BLOCK_SIZE_MEMORY, ni_pkg::BLOCK_OFFSET_MEMORY, ni_pkg::BLOCK_VERSION_MEMORY, ni_pkg::BLOCK_TYPE_MEMORY};
            8'd7: block_entry = {ni_pkg::BLOCK_SIZE_FAULT_LOG, ni_pkg::BLOCK_OFFSET_FAULT_LOG, ni_pkg::BLOCK_VERSION_FAULT_LOG, ni_pkg::BLOCK_TYPE_FAULT_LOG};
            default: block_entry = '0;
        endcase
        case ({register_offset, 2'b00})
            ni_pkg::REG_IDENTITY_MAGIC: word = ni_pkg::IDENTITY_MAGIC;
            ni_pkg::REG_IDENTITY_CONTRACT_VERSION: word = ni_pkg::CONTRACT_VERSION;
            ni_pkg::REG_IDENTITY_CHECKSUM: word = ni_pkg::CONTRACT_CHECKSUM;
            ni_pkg::REG_IDENTITY_BUILD: word = BUILD;
            ni_pkg::REG_IDENTITY_CAPABILITIES: word = CAPABILITIES;
            ni_pkg::REG_IDENTITY_BLOCK_COUNT: word = BLOCKS;
            default:
            case (entry_word)
                2'd0: word = entry_word_0;
                2'd1: word = entry_word_1;
                2'd2: word = entry_word_2;
                default: word = '0;
            endcase
        endcase
    end
endmodule
