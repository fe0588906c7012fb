// Names of records: which records are in use, and for whom.
//
// `index` selects the record that `read_in_use` and `read_name` show in the same cycle; `open` makes it that of `name`, `close` frees it, with
// the clock edge. Search: a pulse of `search` compares the names of the records in use with `name`, four records per cycle in ascending
// order; `search_done` is high when no search runs. `found` and `found_index` hold from then until the next search, and, if none has the
// name, `free` and `free_index`: the lowest unused record. The `read_` ports are not valid during a search. Reset and `clear`: no record
// is in use.

`timescale 1ns / 1ps

module ni_records #(
    parameter int RECORDS = 64,
    // Bits of a name.
    parameter int NAME = 64,
    localparam int INDEX_BITS = $clog2(RECORDS)
) (
    input  wire                   clk,
    input  wire                   rst_n,
    input  wire                   clear,
    input  wire  [NAME-1:0]       name,
    input  wire                   search,
    // The name may be that of a record; otherwise the search is for an unused one.
    input  wire                   may_exist,
    output wire                   search_done,
    output logic                  found,
    output logic [INDEX_BITS-1:0] found_index,
    output logic                  free,
    output logic [INDEX_BITS-1:0] free_index,

    input  wire  [INDEX_BITS-1:0] index,
    output wire                   read_in_use,
    output wire  [NAME-1:0]       read_name,
    input  wire                   open,
    input  wire                   close
);
    localparam int LANES = RECORDS < 4 ? RECORDS : 4;
    localparam int LANE_BITS = $clog2(LANES);
    localparam int GROUPS = (RECORDS + LANES - 1) / LANES;
    localparam int GROUP_BITS = GROUPS > 1 ? $clog2(GROUPS) : 1;

    logic [GROUPS*LANES-1:0] in_use;
    logic                    busy;
    logic [GROUP_BITS-1:0]   position;
    wire  [GROUP_BITS-1:0]   group_of_index = GROUP_BITS'(index >> LANE_BITS);
    wire  [GROUP_BITS-1:0]   group = busy ? position : group_of_index;
    wire  [LANE_BITS-1:0]    lane_of_index = index[LANE_BITS-1:0];

    wire [LANES-1:0]      used;
    wire [LANES-1:0]      exists;
    wire [LANES-1:0]      same;
    wire [NAME*LANES-1:0] names_of_group;
    for (genvar lane = 0; lane < LANES; lane++) begin : g_lane
        logic [NAME-1:0] names [0:GROUPS-1];
        wire [NAME-1:0] name_of_lane = names[group];
        always_ff @(posedge clk) if (open && lane_of_index == LANE_BITS'(lane)) names[group_of_index] <= name;
        assign names_of_group[NAME*lane +: NAME] = name_of_lane;
        assign used[lane] = in_use[32'(group) * LANES + lane];
        assign exists[lane] = 32'(group) * LANES + lane < RECORDS;
        assign same[lane] = used[lane] && may_exist && name_of_lane == name;
    end
    assign search_done = !busy;
    assign read_in_use = in_use[index];
    assign read_name = names_of_group[32'(lane_of_index) * NAME +: NAME];

    wire [LANES-1:0] unused = exists & ~used;
    logic [LANE_BITS-1:0] match_lane;
    logic [LANE_BITS-1:0] unused_lane;
    always_comb begin
        // At most one name same.
        match_lane = '0;
        unused_lane = '0;
        for (int lane = LANES - 1; lane >= 0; lane--) begin
            if (same[lane]) match_lane = match_lane | LANE_BITS'(lane);
            if (unused[lane]) unused_lane = LANE_BITS'(lane);
        end
    end

    always_ff @(posedge clk) begin
        if (!rst_n || clear) begin
            in_use <= '0;
            busy <= 1'b0;
        end else begin
            if (open) in_use[index] <= 1'b1;
            if (close) in_use[index] <= 1'b0;
            if (search) begin
                busy <= 1'b1;
                position <= '0;
                found <= 1'b0;
                free <= 1'b0;
            end else if (busy) begin
                position <= position + 1'b1;
                if (|same) begin
                    found <= 1'b1;
                    found_index <= INDEX_BITS'({position, match_lane});
                end
                if (!free && |unused) begin
                    free <= 1'b1;
                    free_index <= INDEX_BITS'({position, unused_lane});
                end
                if (|same || position == GROUP_BITS'(GROUPS - 1)) busy <= 1'b0;
            end
        end
    end
endmodule
