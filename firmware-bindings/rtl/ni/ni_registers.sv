// Registers of the NI: AXI4-Lite slave for the blocks identity, ni, counters, registry, escape, memory and fault_log of the user BAR.
//
// Protocol: AXI4-Lite, one access at a time, writes first. Addresses are offsets in the user BAR, a word each; the block cdma is not here.
// Reads have no side effects; words without a register read 0. A write to such a word or with an invalid value changes nothing and raises
// the fault BadSetting with its offset in COUNT. A write of single bytes is possible where a register only holds its value (`is_plain`);
// elsewhere it is ignored and answered with SLVERR. All other responses are OKAY.
//
// Tables are read by INDEX: the write is a command to the receiver (`command_*`), which takes a consistent entry into the shadow words
// between two packets. So are COMMIT, and CONTROL.RESET and the schemes, which clear the receiver. The response comes after the command, so
// that a read that follows finds the words complete.
//
// Latency: 4 cycles from request to response, but for commands and for faults that wait for the log. Order: that of the accesses; with
// `clear`, counts and transmit windows are cleared at once, and the receiver after the packet in progress. Reset: registers have the reset
// values of the map.

`timescale 1ns / 1ps

module ni_registers #(
    parameter int BUILD = 1,
    parameter int NODE_ID = 0,
    parameter int PACKET_LOG2 = 12,
    parameter int MASK_BITS = 32,
    parameter int ENTRIES = 64,
    parameter int MESSAGE_CONTEXTS = 0,
    parameter int MESSAGE_WINDOW = 128,
    parameter int ESCAPE_SLOTS = 64,
    parameter int MEMORY_WINDOWS = 64,
    parameter int WINDOWS = 8,
    parameter int FAULT_ENTRIES = 64,
    parameter logic [63:0] WINDOW_BASE = 64'h1_0000_0000,
    parameter logic [63:0] MEMORY_BASE = 64'h0,
    parameter logic [63:0] MEMORY_SIZE = 64'h100_0000,
    parameter int CAPABILITIES = 0,
    parameter logic [31:0] CDMA_OFFSET = ni_pkg::BLOCK_OFFSET_CDMA
) (
    input  wire          clk,
    input  wire          rst_n,
    // Nanoseconds since reset.
    input  wire  [63:0]  now,

    /* verilator lint_off UNUSEDSIGNAL */
    input  wire  [15:0]  s_axil_awaddr,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire          s_axil_awvalid,
    output wire          s_axil_awready,
    input  wire  [31:0]  s_axil_wdata,
    input  wire  [3:0]   s_axil_wstrb,
    input  wire          s_axil_wvalid,
    output wire          s_axil_wready,
    output logic [1:0]   s_axil_bresp,
    output wire          s_axil_bvalid,
    input  wire          s_axil_bready,
    /* verilator lint_off UNUSEDSIGNAL */
    input  wire  [15:0]  s_axil_araddr,
    /* verilator lint_on UNUSEDSIGNAL */
    input  wire          s_axil_arvalid,
    output wire          s_axil_arready,
    output logic [31:0]  s_axil_rdata,
    output wire  [1:0]   s_axil_rresp,
    output wire          s_axil_rvalid,
    input  wire          s_axil_rready,

    // Settings.
    output wire  [31:0]  node,
    output wire  [31:0]  incarnation,
    output wire          enable,
    output wire          event_enable,
    output wire          packet_events,
    output wire  [63:0]  escape_timeout,
    output wire  [63:0]  registry_timeout,
    output wire  [63:0]  packet_lifetime,
    output wire  [31:0]  registry_timeout_us,
    output wire          timeouts_changed,
    output wire          receives_messages,
    output wire  [7:0]   message_window,
    output wire          message_credit,
    output wire  [7:0]   message_patience,
    output wire  [31:0]  round_trip_ns,
    // Pulses: CONTROL.RESET; a change of the schemes, which clears the receiver's counters; a HELLO to `hello_node`.
    output wire          clear,
    output wire          clear_receiver,
    output wire          hello,
    output wire  [31:0]  hello_node,

    // Event ring.
    output wire          ring_write,
    output wire  [11:0]  ring_register,
    output wire  [31:0]  ring_value,
    input  wire          ring_taken,
    input  wire  [63:0]  ring_base,
    input  wire  [16:0]  ring_size,
    input  wire  [31:0]  ring_consumed,
    input  wire  [31:0]  ring_produced,
    input  wire  [31:0]  ring_posted,
    input  wire  [31:0]  ring_overflows,
    input  wire  [31:0]  ring_dropped,
    input  wire  [31:0]  ring_interrupt,

    // Command to the receiver; shadow words and occupancies of its tables.
    output wire          command_valid,
    input  wire          command_ready,
    output logic [2:0]   command,
    output logic [15:0]  command_index,
    input  wire          command_failed,
    output wire  [31:0]  window_source,
    output wire  [63:0]  window_base,
    output wire  [63:0]  window_length,
    output wire  [63:0]  window_key,
    output wire  [1:0]   window_permissions,
    input  wire  [767:0] registry_shadow,
    input  wire  [351:0] escape_shadow,
    input  wire  [256:0] memory_shadow,
    input  wire  [31:0]  registry_occupancy,
    input  wire  [31:0]  registry_high_water,
    input  wire  [31:0]  escape_occupancy,
    input  wire  [31:0]  escape_high_water,
    input  wire  [31:0]  memory_occupancy,

    // Counters and fault log: offset of the register that is read, and its word.
    output wire  [11:0]  read_register,
    input  wire  [31:0]  counter_word,
    input  wire  [31:0]  fault_log_word,
    output wire          fault_log_latch,
    output wire  [31:0]  fault_log_index,
    input  wire          has_faults,

    // Transmit windows.
    input  wire  [31:0]  windows_free,
    input  wire          transmitting,

    output wire          fault_valid,
    input  wire          fault_ready,
    output logic [511:0] fault_event
);
    localparam logic [2:0] IDLE = 3'd0;
    localparam logic [2:0] READ = 3'd1;
    localparam logic [2:0] MERGE = 3'd2;
    localparam logic [2:0] WRITE = 3'd3;
    localparam logic [2:0] COMMAND = 3'd4;
    localparam logic [2:0] FAULT = 3'd5;
    localparam logic [2:0] RESPOND_READ = 3'd6;
    localparam logic [2:0] RESPOND_WRITE = 3'd7;

    localparam logic [2:0] COMMAND_INSTALL = 3'd3;
    localparam logic [2:0] COMMAND_REMOVE = 3'd4;
    localparam logic [2:0] COMMAND_CLEAR = 3'd5;

    // Blocks by their number: 4 KiB each.
    localparam logic [3:0] IDENTITY = ni_pkg::BLOCK_OFFSET_IDENTITY[15:12];
    localparam logic [3:0] NI = ni_pkg::BLOCK_OFFSET_NI[15:12];
    localparam logic [3:0] COUNTERS = ni_pkg::BLOCK_OFFSET_COUNTERS[15:12];
    localparam logic [3:0] REGISTRY = ni_pkg::BLOCK_OFFSET_REGISTRY[15:12];
    localparam logic [3:0] ESCAPE = ni_pkg::BLOCK_OFFSET_ESCAPE[15:12];
    localparam logic [3:0] MEMORY = ni_pkg::BLOCK_OFFSET_MEMORY[15:12];
    localparam logic [3:0] FAULT_LOG = ni_pkg::BLOCK_OFFSET_FAULT_LOG[15:12];

    logic [2:0] state;
    logic [3:0] block;
    logic [11:0] offset;
    logic [31:0] value;
    logic [3:0] strobes;
    logic [31:0] read_word;

    // Access. ------------------------------------------------------------------------------------------------------------------------------

    wire take_write = state == IDLE && s_axil_awvalid && s_axil_wvalid;
    assign s_axil_awready = take_write;
    assign s_axil_wready = take_write;
    assign s_axil_arready = state == IDLE && !take_write;
    assign s_axil_bvalid = state == RESPOND_WRITE;
    assign s_axil_rvalid = state == RESPOND_READ;
    assign s_axil_rresp = 2'b00;
    assign command_valid = state == COMMAND;
    assign fault_valid = state == FAULT;

    wire write = state == WRITE;
    // Of the commands, those that change a memory window may be refused; an index out of range latches an entry that is not valid.
    wire command_fails = command_failed && (command == COMMAND_INSTALL || command == COMMAND_REMOVE);
    logic taken;
    logic needs_command;

    wire is_plain = block == NI && (offset == ni_pkg::REG_NI_NODE_ID || offset == ni_pkg::REG_NI_INCARNATION ||
        offset == ni_pkg::REG_NI_THRESHOLD || offset == ni_pkg::REG_NI_ESCAPE_TIMEOUT_US || offset == ni_pkg::REG_NI_REGISTRY_TIMEOUT_US ||
        offset == ni_pkg::REG_NI_PACKET_LIFETIME_US || offset == ni_pkg::REG_NI_GIVE_UP_US);
    // The refusal is reported after the command that belongs to the write, if any.
    logic refused;
    logic [63:0] fault_time;

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            state <= IDLE;
        end else begin
            case (state)
                IDLE:
                if (take_write) state <= MERGE;
                else if (s_axil_arvalid) state <= READ;
                READ: state <= RESPOND_READ;
                MERGE: state <= (strobes == '1 || (is_plain && strobes != 0)) ? WRITE : RESPOND_WRITE;
                WRITE: state <= needs_command ? COMMAND : taken ? RESPOND_WRITE : FAULT;
                COMMAND: if (command_ready) state <= (refused || command_fails) ? FAULT : RESPOND_WRITE;
                FAULT: if (fault_ready) state <= RESPOND_WRITE;
                RESPOND_READ: if (s_axil_rready) state <= IDLE;
                default: if (s_axil_bready) state <= IDLE;
            endcase
        end
        if (state == IDLE) begin
            {block, offset} <= take_write ? {s_axil_awaddr[15:2], 2'b00} : {s_axil_araddr[15:2], 2'b00};
            value <= s_axil_wdata;
            strobes <= s_axil_wstrb;
        end
        if (state == READ) s_axil_rdata <= read_word;
        if (state == MERGE) begin
            for (int lane = 0; lane < 4; lane++) if (!strobes[lane]) value[8*lane+:8] <= read_word[8*lane+:8];
            s_axil_bresp <= (strobes == '1 || strobes == 0 || is_plain) ? 2'b00 : 2'b10;
        end
        if (write) begin
            refused <= !taken;
            fault_time <= now;
            command <= shadow_command ? shadow_command_number : COMMAND_CLEAR;
            command_index <= shadow_command_index;
        end
    end

    always_comb begin
        fault_event = '0;
        fault_event[ni_pkg::EVENT_KIND_LSB+:ni_pkg::EVENT_KIND_WIDTH] = ni_pkg::EVENT_KIND_FAULT;
        fault_event[ni_pkg::EVENT_REASON_LSB+:ni_pkg::EVENT_REASON_WIDTH] = ni_pkg::FAULT_REASON_BAD_SETTING;
        fault_event[ni_pkg::EVENT_COUNT_LSB+:ni_pkg::EVENT_COUNT_WIDTH] = {16'b0, block, offset};
        fault_event[ni_pkg::EVENT_TIME_LSB+:ni_pkg::EVENT_TIME_WIDTH] = fault_time;
    end

    // Settings. ----------------------------------------------------------------------------------------------------------------------------

    wire settings_taken;
    wire [31:0] settings_word;
    ni_settings #(
        .NODE_ID(NODE_ID),
        .PACKET_LOG2(PACKET_LOG2),
        .MASK_BITS(MASK_BITS),
        .ENTRIES(ENTRIES),
        .MESSAGE_CONTEXTS(MESSAGE_CONTEXTS),
        .MESSAGE_WINDOW(MESSAGE_WINDOW),
        .ESCAPE_SLOTS(ESCAPE_SLOTS),
        .MEMORY_WINDOWS(MEMORY_WINDOWS),
        .WINDOWS(WINDOWS),
        .FAULT_ENTRIES(FAULT_ENTRIES),
        .WINDOW_BASE(WINDOW_BASE),
        .MEMORY_BASE(MEMORY_BASE),
        .MEMORY_SIZE(MEMORY_SIZE)
    ) settings (
        .clk, .rst_n, .write(write && block == NI), .register_offset(offset), .value, .taken(settings_taken), .word(settings_word),
        .node, .incarnation, .enable, .event_enable, .packet_events, .escape_timeout, .registry_timeout, .packet_lifetime,
        .registry_timeout_us, .timeouts_changed, .receives_messages, .message_window, .message_credit, .message_patience, .round_trip_ns,
        .clear, .clear_receiver, .hello, .ring_write, .ring_taken, .ring_base, .ring_size,
        .ring_consumed, .ring_produced, .ring_posted, .ring_overflows, .ring_dropped, .ring_interrupt, .windows_free, .transmitting,
        .has_faults
    );
    assign hello_node = value;
    assign ring_register = offset;
    assign ring_value = value;

    // Shadow windows of the receiver's tables. -----------------------------------------------------------------------------------------------

    wire shadow_taken;
    wire shadow_command;
    wire [2:0] shadow_command_number;
    wire [15:0] shadow_command_index;
    wire [31:0] shadow_word;
    ni_shadows shadows (
        .clk, .rst_n, .write, .block, .offset, .value, .taken(shadow_taken), .needs_command(shadow_command),
        .next_command(shadow_command_number), .next_index(shadow_command_index), .word(shadow_word),
        .command_done(command_valid && command_ready), .command, .command_failed, .window_source, .window_base, .window_length, .window_key,
        .window_permissions, .registry_shadow, .escape_shadow, .memory_shadow, .registry_occupancy, .registry_high_water, .escape_occupancy,
        .escape_high_water, .memory_occupancy
    );

    wire is_fault_index = offset == ni_pkg::REG_FAULT_LOG_INDEX;
    assign fault_log_latch = write && block == FAULT_LOG && is_fault_index;
    assign fault_log_index = value;

    always_comb begin
        case (block)
            NI: taken = settings_taken;
            REGISTRY, ESCAPE, MEMORY: taken = shadow_taken;
            FAULT_LOG: taken = is_fault_index;
            default: taken = 1'b0;
        endcase
        needs_command = clear || clear_receiver || shadow_command;
    end

    // Reads. -------------------------------------------------------------------------------------------------------------------------------

    wire [31:0] identity_word;
    ni_identity #(
        .BUILD(BUILD),
        .CAPABILITIES(CAPABILITIES), .CDMA_OFFSET(CDMA_OFFSET)
    ) identity (
        .register_offset(offset[11:2]),
        .word(identity_word)
    );
    assign read_register = offset;

    always_comb begin
        case (block)
            IDENTITY: read_word = identity_word;
            NI: read_word = settings_word;
            COUNTERS: read_word = counter_word;
            REGISTRY, ESCAPE, MEMORY: read_word = shadow_word;
            FAULT_LOG: read_word = fault_log_word;
            default: read_word = '0;
        endcase
    end
endmodule
