// Driver of ni_rx: sends frames, reads the packets that the module hands on, and reports its verdicts.
//
// Arguments: seed; probabilities, of 256, of a valid beat, of a packet's acceptance and of a fault's acceptance; 1: read payloads;
// PACKET_LOG2.
// Input: frames: flags (1 byte; bit 0: the interface is disabled), length (4 bytes), bytes.
// Output: records: P: time (8), payload length (2), header (88), stored payload; V: one letter for the verdict about a frame that is
// counted: c checksum, t trimmed, b bad packet, g good; F: fault event; C: cycles from the first beat to the last packet or verdict.

#include "stream.h"

using namespace stream;

static constexpr size_t MAX_QUIET_CYCLES = 20000;
// Wait before and after a frame for a disabled interface: longer than frames are in the pipeline.
static constexpr size_t DRAIN_CYCLES = 64;

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    const auto numbers = arguments(argc, argv);
    Random random(numbers.at(0));
    const unsigned offer = numbers.at(1), accept = numbers.at(2), accept_fault = numbers.at(3);
    const bool reads = numbers.at(4) != 0;
    Input input(read_input());
    auto top = new Vdut;
    const size_t width = sizeof top->s_axis_tdata;
    const size_t stored = size_t{1} << numbers.at(5);

    std::vector<uint8_t> frame;
    size_t offset = 0;
    bool in_frame = false, offering = false, disabled = false;
    size_t idle = 0, beat = 0, read_beats = 0;
    bool reading = false, complete = false, accepting = false;
    std::vector<uint8_t> payload;
    uint64_t cycle = 0, first = 0, end = 0;

    top->clk = 0;
    top->rst_n = 0;
    top->enable = 1;
    top->payload_beat = 0;
    for (;; cycle++) {
        // Inputs of this cycle.
        top->rst_n = cycle >= 4;
        top->now = 1000 + cycle;
        if (!in_frame && top->rst_n && !input.empty() && (!disabled || idle > DRAIN_CYCLES)) {
            disabled = false;
            // The state of the interface is that of the cycle after the last beat: wait for the frames before.
            const bool disable = input.number(1) & 1;
            frame = input.take(input.number(4));
            offset = 0;
            in_frame = true;
            disabled = disable;
            idle = 0;
        }
        if (in_frame && disabled && top->enable && ++idle > DRAIN_CYCLES) top->enable = 0;
        if (!in_frame && disabled && ++idle > DRAIN_CYCLES) top->enable = 1;
        const bool may_send = in_frame && (!disabled || !top->enable);
        offering = may_send && (offering || random.chance(offer));
        top->s_axis_tvalid = offering;
        std::memset(&top->s_axis_tdata, 0, width);
        for (size_t i = 0; i < width; i++) bytes(top->s_axis_tdata)[i] = static_cast<uint8_t>(random.next());
        std::memset(&top->s_axis_tkeep, 0, sizeof top->s_axis_tkeep);
        if (offering) {
            const size_t count = std::min(width, frame.size() - offset);
            std::memcpy(bytes(top->s_axis_tdata), frame.data() + offset, count);
            for (size_t i = 0; i < count; i++) bytes(top->s_axis_tkeep)[i / 8] |= 1 << (i % 8);
            top->s_axis_tlast = offset + count == frame.size();
        }
        top->fault_ready = random.chance(accept_fault);
        top->packet_ready = accepting || (!reads && random.chance(accept));
        if (reading && !complete) top->payload_beat = beat;
        top->eval();

        const bool took = top->rst_n && top->s_axis_tvalid && top->s_axis_tready;
        const bool took_packet = top->rst_n && top->packet_valid && top->packet_ready;
        if (took && first == 0) first = cycle;
        if (top->rst_n && top->fault_valid && top->fault_ready) {
            put_record('F', {bytes(top->fault_event), bytes(top->fault_event) + sizeof top->fault_event});
            end = cycle;
        }
        if (top->rst_n && top->count_received) {
            const char verdict = top->count_bad_crc ? 'c' : top->count_trimmed ? 't' : top->count_bad_packet ? 'b' : 'g';
            if (top->count_bad_crc + top->count_trimmed + top->count_bad_packet > 1) give_up("two verdicts");
            put_record('V', {static_cast<uint8_t>(verdict)});
            end = cycle;
        } else if (top->rst_n && (top->count_bad_crc || top->count_trimmed || top->count_bad_packet)) {
            give_up("verdict about a frame that is not counted");
        }
        if (took_packet) {
            std::vector<uint8_t> record;
            for (size_t i = 0; i < 8; i++) record.push_back(static_cast<uint8_t>(top->packet_time >> (8 * i)));
            for (size_t i = 0; i < 2; i++) record.push_back(static_cast<uint8_t>(top->packet_payload_length >> (8 * i)));
            record.insert(record.end(), bytes(top->packet_header), bytes(top->packet_header) + 88);
            payload.resize(std::min<size_t>(reads ? top->packet_payload_length : 0, stored));
            record.insert(record.end(), payload.begin(), payload.end());
            put_record('P', record);
            end = cycle;
        }

        // Clock edge.
        const bool was_reading = reading && !complete;
        top->clk = 1;
        top->eval();
        top->clk = 0;
        top->eval();

        if (took) {
            offset += std::min(width, frame.size() - offset);
            offering = false;
            if (offset == frame.size()) {
                in_frame = false;
                idle = 0;
            }
        }
        if (took_packet) {
            accepting = reading = complete = false;
        } else if (was_reading) {
            payload.insert(payload.end(), bytes(top->payload_data), bytes(top->payload_data) + width);
            if (++beat >= read_beats) complete = true;
        } else if (reads && top->packet_valid && !reading) {
            reading = true;
            beat = 0;
            read_beats = (std::min<size_t>(top->packet_payload_length, stored) + width - 1) / width;
            complete = read_beats == 0;
            payload.clear();
        }
        if (reading && complete && !accepting) accepting = random.chance(accept);
        if (!in_frame && input.empty() && cycle > end + 2000) break;
        if (cycle > end + MAX_QUIET_CYCLES && cycle > MAX_QUIET_CYCLES && in_frame) give_up("the module does not go on");
    }
    std::vector<uint8_t> record;
    for (size_t i = 0; i < 8; i++) record.push_back(static_cast<uint8_t>((end - first) >> (8 * i)));
    put_record('C', record);
    delete top;
}
