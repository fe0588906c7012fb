// Events and faults of the transmit windows (protocol sections 10.2 and 10.4).
//
// Protocol: `refuse` asks for the fault of the window whose turn it is, `free` for its event WindowFree; both stay until `*_taken`. A
// commit of a busy window (`busy_commit`, a pulse) sets a bit that its fault WindowBusy clears: further ones until then add nothing.
// Outputs are streams with one entry each. Latency: 1 cycle. Order: faults of the windows in turn before those of busy windows.
// Reset: drops all reports; no window was freed.

`timescale 1ns / 1ps

module ni_transmit_report #(
    // 1 to 32.
    parameter int WINDOWS = 8,
    localparam int WINDOW_BITS = WINDOWS > 1 ? $clog2(WINDOWS) : 1
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire  [63:0]            now,

    // The window whose turn it is.
    input  wire  [WINDOW_BITS-1:0] window,
    input  wire  [1023:0]          header,
    input  wire  [31:0]            commit_word,
    // SEQUENCE is not the commit word; else: a rule of the header is broken.
    input  wire                    torn,
    input  wire                    rules_broken,
    input  wire                    refuse,
    output wire                    refuse_taken,
    input  wire                    free,
    output wire                    free_taken,

    input  wire                    busy_commit,
    input  wire  [WINDOW_BITS-1:0] busy_window,

    output logic                   event_valid,
    input  wire                    event_ready,
    output logic [511:0]           event_data,
    output logic                   fault_valid,
    input  wire                    fault_ready,
    output logic [511:0]           fault_event
);
    logic [31:0] freed;
    assign free_taken = free && (!event_valid || event_ready);
    assign refuse_taken = refuse && !fault_valid;

    // Commits of busy windows whose fault waits.
    logic [WINDOWS-1:0] refused;
    logic [WINDOWS-1:0] refused_taken;
    logic [WINDOW_BITS-1:0] refused_window;
    always_comb begin
        refused_window = '0;
        for (int i = WINDOWS - 1; i >= 0; i = i - 1) if (refused[i]) refused_window = WINDOW_BITS'(i);
        refused_taken = '0;
        if (!fault_valid && !refuse) refused_taken[refused_window] = refused != '0;
    end

    // A broken header may contain anything: its fault names only the window.
    wire names_segment = !torn && !rules_broken;
    wire unused = &{1'b0, header};

    always_ff @(posedge clk) begin
        if (free_taken) begin
            event_data <= '0;
            event_data[ni_pkg::EVENT_KIND_LSB+:8] <= ni_pkg::EVENT_KIND_WINDOW_FREE;
            event_data[ni_pkg::EVENT_INDEX_LSB+:16] <= 16'(window);
            event_data[ni_pkg::EVENT_COUNT_LSB+:32] <= freed + 32'd1;
            event_data[ni_pkg::EVENT_TIME_LSB+:64] <= now;
        end
        if (!fault_valid) begin
            fault_event <= '0;
            fault_event[ni_pkg::EVENT_KIND_LSB+:8] <= ni_pkg::EVENT_KIND_FAULT;
            fault_event[ni_pkg::EVENT_TIME_LSB+:64] <= now;
            if (refuse) begin
                fault_event[ni_pkg::EVENT_REASON_LSB+:8] <= torn ? ni_pkg::FAULT_REASON_TORN_HEADER
                    : ni_pkg::FAULT_REASON_BAD_HEADER;
                fault_event[ni_pkg::EVENT_INDEX_LSB+:16] <= 16'(window);
                if (torn) fault_event[ni_pkg::EVENT_COUNT_LSB+:32] <= commit_word;
                if (names_segment) begin
                    fault_event[ni_pkg::EVENT_NODE_LSB+:32] <= header[ni_pkg::WINDOW_HEADER_DESTINATION_LSB+:32];
                    fault_event[ni_pkg::EVENT_TRANSFER_LSB+:32] <= header[ni_pkg::WINDOW_HEADER_TRANSFER_LSB+:32];
                    fault_event[ni_pkg::EVENT_SEGMENT_LSB+:32] <= header[ni_pkg::WINDOW_HEADER_SEGMENT_LSB+:32];
                end
            end else begin
                fault_event[ni_pkg::EVENT_REASON_LSB+:8] <= ni_pkg::FAULT_REASON_WINDOW_BUSY;
                fault_event[ni_pkg::EVENT_INDEX_LSB+:16] <= 16'(refused_window);
            end
        end
        if (!rst_n) begin
            freed <= 32'd0;
            refused <= '0;
            event_valid <= 1'b0;
            fault_valid <= 1'b0;
        end else begin
            if (free_taken) freed <= freed + 32'd1;
            refused <= refused & ~refused_taken;
            if (busy_commit) refused[busy_window] <= 1'b1;
            event_valid <= free_taken || event_valid && !event_ready;
            fault_valid <= fault_valid ? !fault_ready : refuse || refused != '0;
        end
    end
endmodule
