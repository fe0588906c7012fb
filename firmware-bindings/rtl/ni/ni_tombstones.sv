// Ranges of completed transfers of each sender (docs/protocol/receiver.md 5.7): sorted, not older than its oldest live transfer, and they
// neither touch nor overlap.
//
// `start` begins the operation `op` for sender record `source`; `done` is high when no operation runs, and the results hold until the
// next start. An operation takes 2 cycles and one per range that it reads or moves. The operations:
//
//   CHECK    `contains`: transfer `id` lies in a range; `adjacent`: completing it would extend a range; `used`: number of ranges.
//   INSERT   adds `id`. Callers admit a transfer only while its range is certain to have space.
//   ADVANCE  cuts off all transfers before `advance_to`.
//   RESET    removes all ranges.
//
// Memory: synchronous read, one write port. Reset clears nothing: a sender's ranges are reset when its record is opened.

`timescale 1ns / 1ps

module ni_tombstones #(
    parameter int SOURCES = 64,
    // Ranges per sender, beside the one for its oldest live transfer.
    parameter int TOMBSTONES = 128,
    localparam int SOURCE_BITS = $clog2(SOURCES)
) (
    input  wire                    clk,
    input  wire                    rst_n,
    input  wire                    start,
    input  wire  [1:0]             op,
    input  wire  [SOURCE_BITS-1:0] source,
    input  wire  [31:0]            oldest_live,
    input  wire  [31:0]            id,
    input  wire  [31:0]            advance_to,
    output wire                    done,
    output logic                   contains,
    output logic                   adjacent,
    output logic [15:0]            used
);
    localparam logic [1:0] CHECK = 2'd0;
    localparam logic [1:0] INSERT = 2'd1;
    localparam logic [1:0] ADVANCE = 2'd2;
    localparam logic [1:0] RESET = 2'd3;

    localparam int RANGES = TOMBSTONES + 1;
    localparam int RANGE_BITS = $clog2(RANGES + 1);
    localparam int ADDRESS_BITS = $clog2(SOURCES * RANGES);

    // First transfer in bits 31:0, number of transfers in bits 63:32.
    logic [63:0]           ranges [0:SOURCES*RANGES-1];
    logic [RANGE_BITS-1:0] counts [0:SOURCES-1];

    // Constants instead of an enumeration: Icarus Verilog 11 takes its names in port connections for new wires.
    localparam logic [2:0] IDLE = 3'd0;
    localparam logic [2:0] READ = 3'd1;
    localparam logic [2:0] SCAN = 3'd2;
    localparam logic [2:0] MOVE_DOWN = 3'd3;
    localparam logic [2:0] MOVE_UP = 3'd4;
    localparam logic [2:0] STORE = 3'd5;
    logic [2:0] state;

    logic [1:0]              r_op;
    logic [SOURCE_BITS-1:0]  r_source;
    logic [31:0]             r_oldest;
    logic [31:0]             r_id;
    logic [31:0]             r_to;
    logic [ADDRESS_BITS-1:0] base;
    logic [RANGE_BITS-1:0]   count;
    // Range that `data` shows, and the one to be written next.
    logic [RANGE_BITS-1:0]   position;
    logic [RANGE_BITS-1:0]   target;
    logic [63:0]             data;
    logic [63:0]             left;
    logic [63:0]             carry;

    wire [31:0] first = data[31:0];
    wire [31:0] length = data[63:32];
    wire [31:0] offset = first - r_oldest;
    wire [31:0] passed = r_to - r_oldest;
    wire [31:0] left_first = left[31:0];
    wire [31:0] left_length = left[63:32];
    wire [32:0] range_end = {1'b0, offset} + {1'b0, length};
    wire [31:0] cut = passed > offset ? passed - offset : 32'd0;
    wire [31:0] id_offset = r_id - r_oldest;
    wire at_end = position == count;
    // The first range that does not begin before the transfer: it belongs there.
    wire stop = at_end || offset >= id_offset;
    wire has_left = position != 0;
    wire in_left = has_left && r_id - left_first < left_length;
    wire is_first = !at_end && first == r_id;
    wire joins_left = has_left && left_first + left_length == r_id;
    wire joins_right = !at_end && first == r_id + 1'b1;
    // Ids before the oldest live one are over without a range.
    wire [31:0] behind = r_oldest - r_id;
    wire is_older = behind != 0 && behind <= 32'h8000_0000;

    logic                    write;
    logic [RANGE_BITS-1:0]   write_position;
    logic [63:0]             write_data;
    logic [RANGE_BITS-1:0]   next_position;
    logic                    advance_position;

    assign done = state == IDLE && !start;

    always_comb begin
        write = 1'b0;
        write_position = target;
        write_data = {length - cut, first + cut};
        advance_position = 1'b0;
        case (state)
            READ: advance_position = 1'b0;
            SCAN: begin
                case (r_op)
                    ADVANCE: begin
                        write = !at_end && range_end > {1'b0, passed};
                        advance_position = 1'b1;
                    end
                    INSERT: begin
                        advance_position = 1'b1;
                        if (stop && !in_left && !is_first && !is_older) begin
                            write = joins_left || joins_right || count != RANGE_BITS'(RANGES);
                            write_position = joins_left ? position - 1'b1 : position;
                            if (joins_left && joins_right) write_data = {left_length + 1'b1 + length, left_first};
                            else if (joins_left) write_data = {left_length + 1'b1, left_first};
                            else if (joins_right) write_data = {length + 1'b1, r_id};
                            else write_data = {32'd1, r_id};
                        end
                    end
                    default: advance_position = 1'b1;
                endcase
            end
            MOVE_DOWN: begin
                write = !at_end;
                write_position = position - 1'b1;
                write_data = data;
                advance_position = 1'b1;
            end
            MOVE_UP: begin
                write = position <= count;
                write_position = position;
                write_data = carry;
                advance_position = 1'b1;
            end
            default: ;
        endcase
        next_position = advance_position ? position + 1'b1 : position;
    end

    wire [ADDRESS_BITS-1:0] read_address = base + ADDRESS_BITS'(next_position);
    wire [ADDRESS_BITS-1:0] write_address = base + ADDRESS_BITS'(write_position);
    always_ff @(posedge clk) begin
        if (write) ranges[write_address] <= write_data;
        data <= ranges[read_address];
        if (state == STORE) counts[r_source] <= count;
    end

    always_ff @(posedge clk) begin
        if (!rst_n) begin
            state <= IDLE;
        end else begin
            case (state)
                IDLE: if (start) begin
                    r_op <= op;
                    r_source <= source;
                    r_oldest <= oldest_live;
                    r_id <= id;
                    r_to <= advance_to;
                    base <= ADDRESS_BITS'(source * RANGES);
                    count <= op == RESET ? '0 : counts[source];
                    used <= 16'(counts[source]);
                    position <= '0;
                    target <= '0;
                    contains <= 1'b0;
                    adjacent <= 1'b0;
                    state <= op == RESET ? STORE : READ;
                end
                READ: state <= SCAN;
                SCAN: begin
                    position <= next_position;
                    left <= data;
                    case (r_op)
                        ADVANCE: begin
                            if (write) target <= target + 1'b1;
                            if (at_end) begin
                                count <= target;
                                state <= STORE;
                            end
                        end
                        INSERT: if (stop) begin
                            carry <= data;
                            if (!write) begin
                                state <= IDLE;
                            end else if (joins_left && joins_right) begin
                                state <= MOVE_DOWN;
                            end else if (joins_left || joins_right) begin
                                state <= IDLE;
                            end else begin
                                state <= MOVE_UP;
                            end
                        end
                        CHECK: begin
                            if (!at_end) begin
                                if (r_id - first < length) contains <= 1'b1;
                                if (first == r_id + 1'b1 || first + length == r_id) adjacent <= 1'b1;
                            end else begin
                                state <= IDLE;
                            end
                        end
                        default: state <= IDLE;
                    endcase
                end
                MOVE_DOWN: begin
                    position <= next_position;
                    if (at_end) begin
                        count <= count - 1'b1;
                        state <= STORE;
                    end
                end
                MOVE_UP: begin
                    // `data` shows the range at `position`, which was stored one further up.
                    position <= next_position;
                    carry <= data;
                    if (position >= count) begin
                        count <= count + 1'b1;
                        state <= STORE;
                    end
                end
                STORE: state <= IDLE;
                default: state <= IDLE;
            endcase
        end
    end
endmodule
