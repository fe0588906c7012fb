// Replay of a record (+fpga_record of a simulation with the library, see driver/sim/rtl/README.md) at the masters of fpga_xdma, for simulators
// without DPI-C: compile with the macro FPGA_REPLAY, and name the record by +fpga_replay=FILE.
//
// Commands, write data, register accesses and stream beats are issued in the record's order as soon as the responses before them in the
// record have arrived. Responses that differ from the record in a known bit are reported and counted. The simulation ends after the last event, or
// when the next one is not possible for +fpga_replay_timeout=CYCLES (100000); with +fpga_replay_finish=0 only `is_finished` is set.
// Not replayed: descriptors of the design, user interrupts.

`timescale 1ps / 1ps

module fpga_replay #(
    parameter int DATA_WIDTH = 256
);
    // Entries of each queue, a power of two. The record has at most 8 outstanding bursts of a direction, of 256 beats.
    localparam int COMMANDS = 16;
    localparam int BEATS = 512;
    localparam int READS = 4096;
    localparam int RESPONSES = 64;
    // Cycles from the last event to the end.
    localparam int SETTLE = 64;
    // Reported differences; all are counted.
    localparam int REPORTED = 20;

    int file = 0;
    string path;
    int timeout = 100000;
    int line = 1;
    int differences = 0;
    int unknown_beats = 0;
    longint unsigned events = 0;
    longint unsigned cycle = 0;
    int stalled = 0;
    // No further event; the replay has ended, which `is_complete` confirms.
    bit is_over = 1'b0, is_finished = 1'b0, is_complete = 1'b0;
    int finish = 1;

    // Queues by master: commands (id, address, length, size, kind), separate for writes and reads, and write data.
    int command_head[4], command_tail[4];
    logic [127:0] commands[4 * COMMANDS];
    int data_head[2], data_tail[2];
    logic [511:0] beats[2 * BEATS];
    logic [64:0] beat_masks[2 * BEATS];
    // Responses that the record's events have not been compared with, by master and id.
    int write_head[8], write_tail[8];
    logic [1:0] writes[8 * RESPONSES];
    int read_head[8], read_tail[8];
    logic [511:0] reads[8 * READS];
    logic [2:0] read_ends[8 * READS];
    // The register access, and its response.
    bit has_register = 1'b0, is_register_write, has_response = 1'b0;
    int register_at, register_data, register_mask, response_code;
    logic [31:0] response_data;
    // One beat of each stream port.
    logic [3:0] has_beat = '0;
    logic [511:0] stream_beats[4];
    logic [64:0] stream_masks[4];
    // Received beats by channel.
    int stream_head[4], stream_tail[4];
    logic [511:0] received[4 * COMMANDS];
    logic [64:0] received_masks[4 * COMMANDS];
    bit wants_reset;
    int acknowledged;

    // Event that is read but not replayed yet.
    bit has_event = 1'b0;
    logic [8*16-1:0] word;
    longint unsigned at_cycle, at_time, at_host;
    logic [63:0] event_address, event_mask;
    logic [511:0] event_data;
    int event_master, event_id, event_length, event_size, event_kind, event_last, event_code;

    task automatic open;
        int character;
        logic [8*14-1:0] head;
        if (!$value$plusargs("fpga_replay=%s", path)) $fatal(1, "fpga_replay: no record; give +fpga_replay=FILE");
        if ($value$plusargs("fpga_replay_timeout=%d", timeout)) ;
        if ($value$plusargs("fpga_replay_finish=%d", finish)) ;
        file = $fopen(path, "r");
        if (file == 0) $fatal(1, "fpga_replay: %0s cannot be read", path);
        character = $fgets(head, file);
        if (head != "rtl-record 1\n") $fatal(1, "fpga_replay: %0s is no record: its first line is not rtl-record 1", path);
        clear();
    endtask

    task automatic clear;
        for (int index = 0; index < 4; index++) begin
            command_head[index] = 0;
            command_tail[index] = 0;
            stream_head[index] = 0;
            stream_tail[index] = 0;
        end
        for (int index = 0; index < 2; index++) begin
            data_head[index] = 0;
            data_tail[index] = 0;
        end
        for (int index = 0; index < 8; index++) begin
            write_head[index] = 0;
            write_tail[index] = 0;
            read_head[index] = 0;
            read_tail[index] = 0;
        end
        has_register = 1'b0;
        has_response = 1'b0;
        has_beat = '0;
    endtask

    task automatic skip_line;
        int character;
        character = 0;
        while (character != 10 && character != -1) character = $fgetc(file);
    endtask

    task automatic bad_line(input int expected, input int found);
        if (found != expected) $fatal(1, "fpga_replay: %0s line %0d: a field is missing", path, line);
    endtask

    // Reads the next event that is replayed.
    task automatic next_event;
        int count;
        has_event = 1'b0;
        while (!has_event && !is_over) begin
            count = $fscanf(file, "%d %d %d %s", at_cycle, at_time, at_host, word);
            line = line + 1;
            if (count != 4) is_over = 1'b1;
            else begin
                has_event = 1'b1;
                if (word == "aw" || word == "ar") begin
                    count = $fscanf(file, "%d %d %h %d %d %d", event_master, event_id, event_address, event_length, event_size, event_kind);
                    bad_line(6, count);
                end else if (word == "w") begin
                    count = $fscanf(file, "%d %h %h %d", event_master, event_data, event_mask, event_last);
                    bad_line(4, count);
                end else if (word == "b") begin
                    count = $fscanf(file, "%d %d %d", event_master, event_id, event_code);
                    bad_line(3, count);
                end else if (word == "r") begin
                    count = $fscanf(file, "%d %d %h %d %d", event_master, event_id, event_data, event_code, event_last);
                    bad_line(5, count);
                end else if (word == "lite_read") begin
                    count = $fscanf(file, "%h", event_address);
                    bad_line(1, count);
                end else if (word == "lite_write") begin
                    count = $fscanf(file, "%h %h %h", event_address, event_data, event_mask);
                    bad_line(3, count);
                end else if (word == "lite_response") begin
                    count = $fscanf(file, "%h %d", event_data, event_code);
                    bad_line(2, count);
                end else if (word == "h2c" || word == "c2h") begin
                    count = $fscanf(file, "%d %h %h %d", event_id, event_data, event_mask, event_last);
                    bad_line(4, count);
                    event_id = event_id & 3;
                end else if (word == "usr_irq_ack") begin
                    count = $fscanf(file, "%h", event_mask);
                    bad_line(1, count);
                end else if (word != "reset") has_event = 1'b0;
                event_master = event_master & 1;
                skip_line();
            end
        end
    endtask

    task automatic difference;
        differences = differences + 1;
    endtask

    function automatic int lane_of(input int master, input int id);
        return master * 4 + (id & 3);
    endfunction

    // Replays the next event, if it is possible now: `done`.
    task automatic replay_event(output bit done);
        int at, lane;
        done = 1'b1;
        lane = lane_of(event_master, event_id);
        if (word == "aw" || word == "ar") begin
            lane = event_master * 2 + int'(word == "ar");
            if (command_tail[lane] - command_head[lane] == COMMANDS) done = 1'b0;
            else begin
                at = lane * COMMANDS + command_tail[lane] % COMMANDS;
                commands[at] = {16'(event_id), event_address, 16'(event_length), 16'(event_size), 16'(event_kind)};
                command_tail[lane] = command_tail[lane] + 1;
            end
        end else if (word == "w") begin
            if (data_tail[event_master] - data_head[event_master] == BEATS) done = 1'b0;
            else begin
                at = event_master * BEATS + data_tail[event_master] % BEATS;
                beats[at] = event_data;
                beat_masks[at] = {event_last != 0, event_mask};
                data_tail[event_master] = data_tail[event_master] + 1;
            end
        end else if (word == "b") begin
            if (write_head[lane] == write_tail[lane]) done = 1'b0;
            else begin
                at = lane * RESPONSES + write_head[lane] % RESPONSES;
                if (writes[at] !== 2'(event_code)) begin
                    difference();
                    if (differences <= REPORTED)
                        $display("fpga_replay at %0t, cycle %0d, line %0d: BRESP of id %0d is %b, in the record %b", $time, cycle, line, event_id, writes[at], 2'(event_code));
                end
                write_head[lane] = write_head[lane] + 1;
            end
        end else if (word == "r") begin
            if (read_head[lane] == read_tail[lane]) done = 1'b0;
            else begin
                at = lane * READS + read_head[lane] % READS;
                // Bits that are X may be outside the transfer: the record does not have its length.
                unknown_beats = unknown_beats + int'($isunknown(reads[at]));
                if ((|(reads[at] ^ event_data)) === 1'b1 || read_ends[at] !== {1'(event_last), 2'(event_code)}) begin
                    difference();
                    if (differences <= REPORTED)
                        $display("fpga_replay at %0t, cycle %0d, line %0d: R beat of id %0d is %h, RLAST and RRESP %b; in the record %h, %b",
                            $time, cycle, line, event_id, reads[at][DATA_WIDTH-1:0], read_ends[at], event_data[DATA_WIDTH-1:0], {1'(event_last), 2'(event_code)});
                end
                read_head[lane] = read_head[lane] + 1;
            end
        end else if (word == "lite_read" || word == "lite_write") begin
            if (has_register || has_response) done = 1'b0;
            else begin
                has_register = 1'b1;
                is_register_write = word == "lite_write";
                register_at = event_address[31:0];
                register_data = event_data[31:0];
                register_mask = int'(event_mask[3:0]);
            end
        end else if (word == "lite_response") begin
            done = has_response;
            if (has_response && (response_data !== event_data[31:0] || response_code != event_code)) begin
                difference();
                if (differences <= REPORTED)
                    $display("fpga_replay at %0t, cycle %0d, line %0d: m_axil answers %h with response %0d, in the record %h with %0d",
                        $time, cycle, line, response_data, response_code, event_data[31:0], event_code);
            end
            has_response = 1'b0;
        end else if (word == "h2c") begin
            done = !has_beat[event_id];
            if (done) begin
                has_beat[event_id] = 1'b1;
                stream_beats[event_id] = event_data;
                stream_masks[event_id] = {event_last != 0, event_mask};
            end
        end else if (word == "c2h") begin
            done = stream_head[event_id] != stream_tail[event_id];
            if (done) begin
                at = event_id * COMMANDS + stream_head[event_id] % COMMANDS;
                if (received[at] !== event_data || received_masks[at] !== {event_last != 0, event_mask}) begin
                    difference();
                    if (differences <= REPORTED)
                        $display("fpga_replay at %0t, cycle %0d, line %0d: beat of s_axis_c2h_%0d is %h, in the record %h", $time, cycle, line, event_id, received[at][DATA_WIDTH-1:0], event_data[DATA_WIDTH-1:0]);
                end
                stream_head[event_id] = stream_head[event_id] + 1;
            end
        end else if (word == "usr_irq_ack") acknowledged = acknowledged | int'(event_mask[15:0]);
        else if (word == "reset") begin
            clear();
            wants_reset = 1'b1;
        end
        if (done) events = events + 1;
    endtask

    // Flags of the cycle, as those of fpga_xdma_clock.
    task automatic clock(output longint unsigned flags);
        bit done;
        logic [63:0] result;
        cycle = cycle + 1;
        wants_reset = 1'b0;
        acknowledged = 0;
        stalled = stalled + 1;
        done = 1'b1;
        while (done && !is_over && !wants_reset) begin
            if (!has_event) next_event();
            done = 1'b0;
            if (has_event) begin
                replay_event(done);
                if (done) begin
                    has_event = 1'b0;
                    stalled = 0;
                end
            end
        end
        result = '0;
        result[0] = command_head[0] != command_tail[0];
        result[1] = data_head[0] != data_tail[0];
        result[2] = command_head[1] != command_tail[1];
        result[3] = has_register;
        result[4] = wants_reset;
        result[12] = command_head[2] != command_tail[2];
        result[13] = data_head[1] != data_tail[1];
        result[14] = command_head[3] != command_tail[3];
        result[31:16] = acknowledged[15:0];
        result[35:32] = has_beat;
        for (int channel = 0; channel < 4; channel++) result[36+channel] = stream_tail[channel] - stream_head[channel] < COMMANDS - 2;
        if (is_over && stalled == SETTLE) begin
            $display("fpga_replay: %0d events, %0d differences; %0d read beats with unknown bits", events, differences, unknown_beats);
            is_complete = 1'b1;
            is_finished = 1'b1;
        end else if (!is_over && stalled == timeout) begin
            $display("fpga_replay at %0t, cycle %0d: line %0d of %0s (%0s) is not possible for %0d cycles: the design does not answer as in the record",
                $time, cycle, line, path, word, timeout);
            is_finished = 1'b1;
        end
        result[5] = is_finished && finish != 0;
        flags = result;
    endtask

    task automatic command(
        input int master, input int is_write, output int found, output int id, output longint unsigned address, output int length,
        output int kind, output int size);
        int lane, at;
        lane = master * 2 + int'(is_write == 0);
        at = lane * COMMANDS + command_head[lane] % COMMANDS;
        found = int'(command_head[lane] != command_tail[lane]);
        id = int'(commands[at][127:112]);
        address = commands[at][111:48];
        length = int'(commands[at][47:32]);
        size = int'(commands[at][31:16]);
        kind = int'(commands[at][15:0]);
        command_head[lane] = command_head[lane] + found;
    endtask

    task automatic write_data(input int master, output int found, output logic [511:0] data, output longint unsigned strobes);
        int at;
        at = master * BEATS + data_head[master] % BEATS;
        found = data_head[master] == data_tail[master] ? 0 : beat_masks[at][64] ? 3 : 1;
        data = beats[at];
        strobes = beat_masks[at][63:0];
        if (found != 0) data_head[master] = data_head[master] + 1;
    endtask

    task automatic write_response(input int master, input int id, input int code);
        int lane;
        lane = lane_of(master, id);
        writes[lane * RESPONSES + write_tail[lane] % RESPONSES] = 2'(code);
        write_tail[lane] = write_tail[lane] + 1;
    endtask

    task automatic read_data(input int master, input int id, input logic [511:0] data, input int code, input int is_last);
        int lane, at;
        lane = lane_of(master, id);
        at = lane * READS + read_tail[lane] % READS;
        reads[at] = data;
        read_ends[at] = {1'(is_last), 2'(code)};
        read_tail[lane] = read_tail[lane] + 1;
    endtask

    task automatic register(output int found, output int address, output int value, output int strobes);
        found = has_register ? is_register_write ? 2 : 1 : 0;
        address = register_at;
        value = register_data;
        strobes = register_mask;
        has_register = 1'b0;
    endtask

    task automatic register_response(input logic [31:0] value, input int code);
        has_response = 1'b1;
        response_data = value;
        response_code = code;
    endtask

    task automatic stream_beat(input int channel, output int found, output logic [511:0] data, output longint unsigned keep);
        found = has_beat[channel] ? stream_masks[channel][64] ? 3 : 1 : 0;
        data = stream_beats[channel];
        keep = stream_masks[channel][63:0];
        has_beat[channel] = 1'b0;
    endtask

    task automatic stream_data(input int channel, input logic [511:0] data, input logic [63:0] keep, input int is_last);
        int at;
        at = channel * COMMANDS + stream_tail[channel] % COMMANDS;
        received[at] = data;
        received_masks[at] = {is_last != 0, keep};
        stream_tail[channel] = stream_tail[channel] + 1;
    endtask
endmodule
