// Receiver window: which packets of a message have arrived, which are requested again, and when (docs/protocol/schemes.md 8.1).
//
// Timers and reorder window are constant, as in the engine's configuration without `adaptive`: the reorder window is an eighth of
// ROUND_TRIP_NS, a wait two round trips, doubled with each request for everything. A message's state is a record of `states`, and a time per
// packet of its window in `since`. Bit vectors are indexed by the low bits of the packet number, so that the window moves by clearing
// bits, without a shift.
//
// Protocol: `load` copies the record of context `index` to the working registers; results hold for `packet_index` from the next cycle on.
// Then one operation, a pulse while not `busy`:
//
// | Operation | Action |
// |---|---|
// | begin_message | the record of a new message, heard at `now` |
// | accept | packet `packet_index` is in the window and new: its bit is set and the window moves. The record is written 3 cycles later |
// | drop | the packet is beyond the window |
// | expire | the timer is due at `now` |
// | emit | up to `allowance` answers, each a handshake of `answer_valid` and `answer_ready`; then the record is written |
//
// `accepted` is a pulse in the cycle in which an accepted packet has moved the window; `new_base` and `new_above` are valid with it, and
// `complete` tells that nothing is missing any more. `special` is high from then on until `emit` or `discard` if the caller has to call emit,
// or to end the message. `set_deadline` is a pulse with the time of the next check. Reset: no operation; records need none.
//
// One file, although it is long: all operations work on the loaded record.

`timescale 1ns / 1ps

module ni_message_window #(
    // Powers of two; WINDOW: 32 to 128 packets.
    parameter int CONTEXTS = 64,
    parameter int WINDOW = 128,
    localparam int SLOT_BITS = $clog2(CONTEXTS)
) (
    input  wire                 clk,
    input  wire                 rst_n,
    // Settings: 1 to WINDOW; whether answers carry limits; requests of a hole before everything is requested.
    input  wire  [7:0]          window,
    input  wire                 credit,
    input  wire  [7:0]          patience,
    input  wire  [31:0]         round_trip,

    input  wire  [SLOT_BITS-1:0] index,
    input  wire                 load,
    // Packets of the message.
    input  wire  [12:0]         count,
    input  wire  [63:0]         now,
    input  wire  [12:0]         packet_index,
    input  wire                 packet_tail,
    input  wire                 packet_repeated,
    output wire                 is_below,
    output wire                 is_beyond,
    output wire                 has_packet,
    output wire                 has_requests,

    input  wire                 begin_message,
    input  wire                 accept,
    input  wire                 drop,
    input  wire                 expire,
    input  wire                 emit,
    input  wire  [1:0]          allowance,
    input  wire                 discard,
    output wire                 busy,
    output wire                 accepted,
    output wire                 complete,
    output wire  [12:0]         new_base,
    output wire  [7:0]          new_above,
    output wire                 special,

    output wire                 answer_valid,
    input  wire                 answer_ready,
    output wire                 answer_is_limit,
    output wire  [31:0]         answer_first,
    output wire  [31:0]         answer_last,
    output wire  [7:0]          answer_above,

    output wire                 set_deadline,
    output wire  [63:0]         deadline,
    // For the shadow window: lowest missing packet, and the packets from there on.
    output wire  [12:0]         base_shown,
    output wire  [WINDOW-1:0]   here_shown
);
    localparam int BITS = $clog2(WINDOW);
    // Packets beyond the window that are remembered one by one; of those beyond them, the first and the last one are.
    localparam int DROPPED = 128;
    // Number of dropped packets that are requested before the window reaches them.
    localparam logic [7:0] BATCH = 8'd8;
    // Packets after the highest one received that are requested when nothing arrives any more.
    localparam logic [13:0] AHEAD = 14'd8;
    localparam logic [3:0] MAX_DOUBLINGS = 4'd12;
    localparam logic [63:0] NEVER = 64'hFFFF_FFFF_FFFF_FFFF;
    localparam int STATE = 3 * WINDOW + DROPPED + 1 + 13 + 13 + 8 + 13 + 8 + 13 + 13 + 1 + 64 + 64 + 8 + 4;

    localparam logic [4:0] IDLE = 5'd0;
    // Accepted packet.
    localparam logic [4:0] SLIDE = 5'd1;
    localparam logic [4:0] UPDATE = 5'd2;
    localparam logic [4:0] ENTER = 5'd3;
    localparam logic [4:0] FAR = 5'd4;
    // Times of the packets in `pending` become `now`.
    localparam logic [4:0] FILL = 5'd5;
    // Packets dropped beyond the window are requested.
    localparam logic [4:0] DROPPED_FIRST = 5'd6;
    // Timer.
    localparam logic [4:0] DETECT = 5'd7;
    localparam logic [4:0] DETECT_READ = 5'd8;
    localparam logic [4:0] DETECT_TEST = 5'd9;
    localparam logic [4:0] DETECT_END = 5'd10;
    localparam logic [4:0] SILENCE = 5'd11;
    localparam logic [4:0] SILENT = 5'd12;
    localparam logic [4:0] SILENT_OVERTAKEN = 5'd13;
    localparam logic [4:0] SILENT_AHEAD = 5'd14;
    localparam logic [4:0] SILENT_LAST = 5'd15;
    localparam logic [4:0] SILENT_MISSING = 5'd16;
    localparam logic [4:0] SILENT_REQUEST = 5'd17;
    localparam logic [4:0] REST = 5'd18;
    // Answers.
    localparam logic [4:0] EMIT = 5'd19;
    localparam logic [4:0] RUN_FIRST = 5'd20;
    localparam logic [4:0] RUN = 5'd21;
    localparam logic [4:0] RUN_ANSWER = 5'd22;
    localparam logic [4:0] SAVE = 5'd23;
    localparam logic [4:0] STORE = 5'd24;
    logic [4:0] state;
    logic [4:0] fill_next;
    logic [4:0] dropped_next;
    logic [4:0] rest_next;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Record of the message.

    // Packets from `base` on that have arrived; of the others those that were requested, and those whose requests are to be sent.
    logic [WINDOW-1:0]  here;
    logic [WINDOW-1:0]  requested;
    logic [WINDOW-1:0]  wanted;
    // Packets dropped beyond the window, their number, and the last of them; the range of those beyond that.
    logic [DROPPED-1:0] dropped;
    logic [7:0]         dropped_count;
    logic [12:0]        dropped_last;
    logic               has_far;
    logic [12:0]        far_first;
    logic [12:0]        far_last;
    // Lowest missing packet; one above the highest packet that has arrived; number of bits in `here`.
    logic [12:0]        base;
    logic [12:0]        highest;
    logic [7:0]         above;
    logic               has_tail;
    // Time of the last new packet, or of the last request because of silence; time of the next check for lost packets.
    logic [63:0]        active;
    logic [63:0]        due;
    // Expired waits for the lowest missing packet since the last slide or request for everything; such requests.
    logic [7:0]         strikes;
    logic [3:0]         ranges;

    logic [STATE-1:0]   states [0:CONTEXTS-1];
    wire  [STATE-1:0]   loaded = states[index];
    logic [63:0]        since [0:CONTEXTS*WINDOW-1];
    logic [63:0]        since_found;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Units.

    wire [BITS-1:0] base_bit = base[BITS-1:0];
    wire [BITS-1:0] packet_bit = packet_index[BITS-1:0];
    wire [13:0]     window_end = {1'b0, base} + {6'd0, window};
    wire [13:0]     wide_highest = {1'b0, highest};
    // Packets from the base up to the highest one, and of those the packets in the window.
    wire [12:0]     span = highest - base;
    wire [BITS:0]   seen = span < {5'd0, window} ? span[BITS:0] : window[BITS:0];

    // First bit of `searched` at or after that of the base.
    logic [WINDOW-1:0] searched;
    wire  [WINDOW-1:0] below_base = (WINDOW'(1) << base_bit) - WINDOW'(1);
    wire  [WINDOW-1:0] upper = searched & ~below_base;
    wire               has_upper = upper != 0;
    wire               has_any = searched != 0;
    logic [WINDOW-1:0] halved;
    logic [BITS-1:0]   first_bit;
    always_comb begin
        halved = has_upper ? upper : searched;
        first_bit = '0;
        for (int level = BITS - 1; level >= 0; level--) begin
            if ((halved & ((WINDOW'(1) << (1 << level)) - WINDOW'(1))) == 0) begin
                first_bit[level] = 1'b1;
                halved = halved >> (1 << level);
            end
        end
    end
    wire [WINDOW-1:0] first_mask = WINDOW'(1) << first_bit;
    wire [BITS-1:0]   first_ahead = first_bit - base_bit;

    // Bits of `range_length` packets from that of `range_first` on.
    logic [BITS-1:0]   range_first;
    logic [BITS:0]     range_length;
    wire  [BITS:0]     range_end = {1'b0, range_first} + range_length;
    wire  [WINDOW-1:0] range_bits = ((WINDOW'(1) << range_first) - WINDOW'(1)) ^ ((WINDOW'(1) << range_end[BITS-1:0]) - WINDOW'(1));
    wire  [WINDOW-1:0] range_mask = range_end[BITS] ? ~range_bits : range_bits;

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Results for the packet.

    wire [13:0] packet_end = {1'b0, packet_index} + 14'd1;
    assign is_below = packet_index < base;
    assign is_beyond = !is_below && {1'b0, packet_index} >= window_end;
    assign has_packet = here[packet_bit];
    assign has_requests = wanted != 0;
    assign base_shown = base;
    assign here_shown = here;

    // A packet above the highest one shows the packets between them to be overtaken.
    logic              has_gap;
    logic [BITS-1:0]   gap_first;
    logic [BITS:0]     gap_length;
    // First packet above the highest one, as far as it is in the window, up to this packet, or to the end of the window.
    wire  [13:0]       gap_end = {1'b0, packet_index} < window_end ? {1'b0, packet_index} : window_end;
    wire               is_gap = gap_end > wide_highest;
    wire  [BITS:0]     gap_wide = (BITS + 1)'(gap_end - wide_highest);

    // Packets by which the window moves.
    logic [BITS:0]     moves;
    logic              is_base;
    logic [63:0]       quiet_time;
    wire  [44:0]       wait_time = 45'({round_trip, 1'b0}) << ranges;
    wire  [63:0]       reorder_time = {35'd0, round_trip[31:3]};
    wire  [63:0]       packet_wait = is_base ? {31'd0, round_trip, 1'b0} : {19'd0, wait_time};

    wire is_update = state == UPDATE;
    wire moved = is_update && moves != 0;
    wire [WINDOW-1:0] gap_missing = range_mask & ~requested;
    wire fills_gap = is_update && has_gap && gap_missing != 0;
    wire [WINDOW-1:0] next_here = moved ? here & ~range_mask : here;
    assign new_base = moved ? base + 13'(moves) : base;
    assign new_above = moved ? above - 8'(moves) : above;
    wire [7:0] next_strikes = moved ? 8'd0 : strikes;
    wire [3:0] next_ranges = moved ? 4'd0 : ranges;
    wire [63:0] next_due = fills_gap && now < due ? now : due;
    // Packets enter the window that a later one has overtaken, or that were dropped.
    wire enters = moved && (wide_highest > window_end || dropped_count != 0 || has_far);
    assign accepted = is_update;
    assign complete = is_update && new_base == count;
    logic needs_caller;
    assign special = needs_caller || (is_update && (complete || enters || has_requests));
    assign busy = state != IDLE && !(is_update && !enters && !fills_gap);

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Memories.

    wire [63:0] first_time = quiet_time < next_due ? quiet_time : next_due;
    assign deadline = has_requests && active < first_time ? active : first_time;
    assign set_deadline = is_update || state == STORE;

    // `begin_message` sets the registers; the record is written with the first answers.
    wire [STATE-1:0] next_state = {next_ranges, next_strikes, next_due, active, has_tail, new_above, highest, new_base, far_last, far_first,
        has_far, dropped_last, dropped_count, dropped, wanted, requested, next_here};

    // Packet that enters the window.
    logic [13:0] entering;
    wire [6:0]      entering_dropped = entering[6:0];
    wire is_entering = state == ENTER && entering != window_end;
    wire is_reached = is_entering && dropped_count != 0 && dropped[entering_dropped];
    wire is_overtaken = is_entering && entering < wide_highest;
    wire [BITS-1:0] since_bit = state == ENTER ? entering[BITS-1:0] : first_bit;

    always_ff @(posedge clk) begin
        if (is_update || state == STORE) states[index] <= next_state;
        if ((state == FILL && has_any) || is_reached || is_overtaken) since[{index, since_bit}] <= now;
        since_found <= since[{index, first_bit}];
    end

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Timer and answers.

    logic [WINDOW-1:0] overdue;
    wire is_base_requested = requested[base_bit];
    wire is_base_overdue = overdue[base_bit];
    wire is_struck_out = strikes >= patience;
    wire [63:0] wait_end = now + {19'd0, wait_time};
    wire [63:0] since_end = since_found + (requested[first_bit] ? {19'd0, wait_time} : reorder_time);
    wire has_dropped = dropped_count != 0 || has_far;
    // Requests in silence: beyond the highest packet, up to the end of the message and of the window.
    wire [12:0] rest = count - base;
    wire [13:0] ahead_limit = {1'b0, span} + AHEAD;
    wire [13:0] ahead_end = {1'b0, rest} < ahead_limit ? {1'b0, rest} : ahead_limit;
    wire [13:0] ahead_inside = ahead_end < {6'd0, window} ? ahead_end : {6'd0, window};
    wire        has_ahead = ahead_inside > {1'b0, span};
    wire [BITS:0] ahead_length = (BITS + 1)'(ahead_inside - {1'b0, span});
    // The engine takes packets behind the window for missing, too, as far as its bit vectors reach.
    wire [13:0] ahead_wide = ahead_end < 14'd128 ? ahead_end : 14'd128;
    wire        is_ahead_beyond = ahead_wide > {6'd0, window} && ahead_wide > {1'b0, span};
    wire        is_last_inside = rest <= {5'd0, window};
    wire        is_last_beyond = !is_last_inside && rest <= 13'd128;
    wire [BITS-1:0] last_bit = count[BITS-1:0] - 1'b1;
    // Everything from the base on.
    wire [12:0] seen_least = span == 0 ? 13'd1 : span;
    wire [12:0] rest_wide = has_tail && rest < seen_least ? rest : seen_least;
    wire [BITS:0] rest_length = rest_wide < {5'd0, window} ? rest_wide[BITS:0] : window[BITS:0];

    // Answers that wait: one Resend, and one Limit.
    logic        has_resend;
    logic [12:0] resend_first;
    logic        resend_open;
    logic [12:0] resend_last;
    logic        has_limit;
    logic        limit_of_packet;
    logic        is_limit_first;
    logic [1:0]  allowed;
    // Packets of a run of requests.
    logic [BITS:0] run_length;
    logic [12:0]   run_first;
    wire [BITS-1:0] run_bit = run_first[BITS-1:0] + run_length[BITS-1:0];
    wire is_run = wanted[run_bit] && !run_length[BITS];
    wire emits_limit = state == EMIT && has_limit && (is_limit_first || !has_resend);
    wire emits_resend = state == EMIT && has_resend && !emits_limit;
    assign answer_valid = (allowed != 0 && (emits_limit || emits_resend)) || state == RUN_ANSWER;
    assign answer_is_limit = emits_limit;
    wire [12:0] run_last = run_first + 13'(run_length) - 13'd1;
    assign answer_first = emits_limit ? {18'd0, window_end} : {19'd0, emits_resend ? resend_first : run_first};
    assign answer_last = emits_limit ? (limit_of_packet ? {19'd0, packet_index} : '1)
        : emits_resend ? (resend_open ? '1 : {19'd0, resend_last}) : {19'd0, run_last};
    assign answer_above = above;
    wire answer_taken = answer_valid && answer_ready;

    always_comb begin
        range_first = base_bit;
        range_length = seen;
        case (state)
            UPDATE: begin
                range_first = moves != 0 ? base_bit : gap_first;
                range_length = moves != 0 ? moves : gap_length;
            end
            SILENT_AHEAD: begin
                range_first = highest[BITS-1:0];
                range_length = has_ahead ? ahead_length : '0;
            end
            REST: range_length = rest_length;
            IDLE: begin
                range_first = highest[BITS-1:0];
                range_length = is_gap ? gap_wide : '0;
            end
            default: ;
        endcase
    end

    // ---------------------------------------------------------------------------------------------------------------------------------
    // Control.

    // Packet beyond the window, counted from its end.
    wire [13:0] beyond = {1'b0, packet_index} - window_end;
    wire        is_near = beyond < 14'd128;
    wire        is_dropped_new = !dropped[packet_index[6:0]];
    wire        is_far_new = !is_near && !has_far;
    wire [7:0]  kept_count = dropped_count + {7'd0, is_near && is_dropped_new} + {7'd0, has_far || is_far_new};
    wire [13:0] near_end = window_end + 14'd128;

    always_ff @(posedge clk) begin
        if (load) begin
            {ranges, strikes, due, active, has_tail, above, highest, base, far_last, far_first, has_far, dropped_last, dropped_count}
                <= loaded[STATE-1:3*WINDOW+DROPPED];
            dropped <= loaded[3*WINDOW +: DROPPED];
            wanted <= loaded[2*WINDOW +: WINDOW];
            requested <= loaded[WINDOW +: WINDOW];
            here <= loaded[0 +: WINDOW];
        end
        case (state)
            IDLE: begin
                is_base <= packet_index == base;
                has_gap <= is_gap;
                gap_first <= highest[BITS-1:0];
                gap_length <= gap_wide;
                if (begin_message) begin
                    {has_far, has_tail, dropped_count, above, base, highest, strikes, ranges} <= '0;
                    here <= '0;
                    requested <= '0;
                    wanted <= '0;
                    dropped <= '0;
                    active <= now;
                    due <= NEVER;
                    state <= SAVE;
                end else if (accept) begin
                    here[packet_bit] <= 1'b1;
                    requested[packet_bit] <= 1'b0;
                    wanted[packet_bit] <= 1'b0;
                    searched <= ~(here | (WINDOW'(1) << packet_bit));
                    above <= above + 1'b1;
                    active <= now;
                    if (packet_tail) has_tail <= 1'b1;
                    if (packet_end > wide_highest) highest <= packet_end[12:0];
                    state <= SLIDE;
                end else if (drop) begin
                    // A dropped packet is evidence for those before it, as far as the window reaches.
                    if (packet_end > wide_highest) highest <= packet_end[12:0];
                    searched <= range_mask & ~requested;
                    if ((range_mask & ~requested) != 0 && now < due) due <= now;
                    fill_next <= IDLE;
                    dropped_next <= IDLE;
                    entering <= window_end;
                    if (credit) begin
                        has_limit <= 1'b1;
                        is_limit_first <= 1'b1;
                        limit_of_packet <= 1'b1;
                    end else begin
                        if (is_near) begin
                            dropped[packet_index[6:0]] <= 1'b1;
                            if (is_dropped_new) dropped_count <= dropped_count + 1'b1;
                            if (dropped_count == 0 || packet_index > dropped_last) dropped_last <= packet_index;
                        end else begin
                            has_far <= 1'b1;
                            if (!has_far || packet_index < far_first) far_first <= packet_index;
                            if (!has_far || packet_index > far_last) far_last <= packet_index;
                        end
                        if (!packet_repeated && kept_count >= BATCH) fill_next <= DROPPED_FIRST;
                    end
                    state <= FILL;
                end else if (expire) begin
                    state <= due <= now ? DETECT : SILENCE;
                end else if (emit) begin
                    allowed <= allowance;
                    state <= EMIT;
                end
            end

            SLIDE: begin
                moves <= has_any ? {1'b0, first_ahead} : (BITS + 1)'(WINDOW);
                quiet_time <= now + packet_wait;
                state <= UPDATE;
            end
            UPDATE: begin
                here <= next_here;
                base <= new_base;
                above <= new_above;
                strikes <= next_strikes;
                ranges <= next_ranges;
                due <= next_due;
                entering <= window_end;
                searched <= gap_missing;
                fill_next <= IDLE;
                needs_caller <= special;
                state <= complete ? IDLE : enters ? ENTER : fills_gap ? FILL : IDLE;
            end
            ENTER: begin
                if (is_reached) begin
                    dropped[entering_dropped] <= 1'b0;
                    dropped_count <= dropped_count - 1'b1;
                    requested[since_bit] <= 1'b1;
                    wanted[since_bit] <= 1'b1;
                end
                if ((is_reached || is_overtaken) && now < due) due <= now;
                entering <= entering + 1'b1;
                if (!is_entering) begin
                    entering <= {1'b0, far_first};
                    state <= has_far ? FAR : IDLE;
                end
            end
            // The packets of the far range that are near now.
            FAR: begin
                entering <= entering + 1'b1;
                if (entering > {1'b0, far_last}) begin
                    has_far <= 1'b0;
                    state <= IDLE;
                end else if (entering >= near_end) begin
                    far_first <= entering[12:0];
                    state <= IDLE;
                end else begin
                    dropped[entering_dropped] <= 1'b1;
                    dropped_count <= dropped_count + 1'b1;
                    dropped_last <= entering[12:0];
                end
            end
            FILL: begin
                searched <= searched & ~first_mask;
                if (!has_any) state <= fill_next;
            end
            DROPPED_FIRST: begin
                entering <= entering + 1'b1;
                if (dropped_count == 0 || dropped[entering_dropped]) begin
                    has_resend <= 1'b1;
                    resend_first <= dropped_count == 0 ? far_first : entering[12:0];
                    resend_last <= has_far ? far_last : dropped_last;
                    resend_open <= 1'b0;
                    dropped <= '0;
                    dropped_count <= '0;
                    has_far <= 1'b0;
                    state <= dropped_next;
                end
            end

            DETECT: begin
                due <= NEVER;
                searched <= (range_mask | requested) & ~here;
                overdue <= '0;
                state <= DETECT_READ;
            end
            DETECT_READ: state <= has_any ? DETECT_TEST : DETECT_END;
            DETECT_TEST: begin
                if (since_end <= now) overdue[first_bit] <= 1'b1;
                else if (since_end < due) due <= since_end;
                searched <= searched & ~first_mask;
                state <= DETECT_READ;
            end
            DETECT_END: begin
                rest_next <= SILENCE;
                fill_next <= SILENCE;
                dropped_next <= SILENCE;
                entering <= window_end;
                searched <= overdue;
                if (overdue == 0) begin
                    state <= SILENCE;
                end else if (is_base_overdue && is_base_requested && is_struck_out) begin
                    strikes <= '0;
                    if (ranges != MAX_DOUBLINGS) ranges <= ranges + 1'b1;
                    state <= REST;
                end else begin
                    if (is_base_overdue && is_base_requested) strikes <= strikes + 1'b1;
                    if (is_base_overdue && !is_base_requested && has_dropped) fill_next <= DROPPED_FIRST;
                    requested <= requested | overdue;
                    wanted <= wanted | overdue;
                    if (wait_end < due) due <= wait_end;
                    state <= FILL;
                end
            end

            SILENCE: state <= active + {19'd0, wait_time} <= now ? SILENT : IDLE;
            SILENT: begin
                active <= now;
                rest_next <= IDLE;
                if (credit) begin
                    has_limit <= 1'b1;
                    is_limit_first <= !has_resend;
                    limit_of_packet <= 1'b0;
                end
                if (!is_base_requested && is_struck_out) begin
                    strikes <= '0;
                    if (ranges != MAX_DOUBLINGS) ranges <= ranges + 1'b1;
                    state <= REST;
                end else begin
                    if (!is_base_requested) strikes <= strikes + 1'b1;
                    state <= SILENT_OVERTAKEN;
                end
            end
            SILENT_OVERTAKEN: begin
                searched <= range_mask | (WINDOW'(1) << base_bit);
                state <= SILENT_AHEAD;
            end
            SILENT_AHEAD: begin
                searched <= searched | range_mask;
                state <= SILENT_LAST;
            end
            SILENT_LAST: begin
                if (is_last_inside) searched[last_bit] <= 1'b1;
                state <= SILENT_MISSING;
            end
            SILENT_MISSING: begin
                searched <= searched & ~requested & ~here;
                state <= SILENT_REQUEST;
            end
            SILENT_REQUEST: begin
                requested <= requested | searched;
                wanted <= wanted | searched;
                if ((has_any || is_ahead_beyond || is_last_beyond) && wait_end < due) due <= wait_end;
                fill_next <= IDLE;
                state <= FILL;
            end
            REST: begin
                requested <= requested | (range_mask & ~here);
                searched <= range_mask & ~here;
                wanted <= '0;
                dropped <= '0;
                dropped_count <= '0;
                has_far <= 1'b0;
                has_resend <= 1'b1;
                resend_first <= base;
                resend_last <= count - 1'b1;
                resend_open <= !has_tail;
                due <= wait_end;
                fill_next <= rest_next;
                state <= FILL;
            end

            EMIT: begin
                if (answer_taken && emits_limit) has_limit <= 1'b0;
                if (answer_taken && emits_resend) has_resend <= 1'b0;
                if (answer_taken) allowed <= allowed - 1'b1;
                searched <= wanted;
                if (!answer_valid) state <= allowed != 0 && has_requests ? RUN_FIRST : SAVE;
            end
            RUN_FIRST: begin
                run_first <= base + 13'(first_ahead);
                run_length <= '0;
                state <= RUN;
            end
            RUN: begin
                if (is_run) begin
                    wanted[run_bit] <= 1'b0;
                    run_length <= run_length + 1'b1;
                end else begin
                    state <= RUN_ANSWER;
                end
            end
            RUN_ANSWER: if (answer_ready) begin
                allowed <= allowed - 1'b1;
                state <= EMIT;
            end
            SAVE: begin
                quiet_time <= active + {19'd0, wait_time};
                needs_caller <= 1'b0;
                state <= STORE;
            end
            STORE: state <= IDLE;
            default: state <= IDLE;
        endcase
        if (discard) needs_caller <= 1'b0;
        if (!rst_n) begin
            state <= IDLE;
            has_resend <= 1'b0;
            has_limit <= 1'b0;
            needs_caller <= 1'b0;
        end
    end
endmodule
