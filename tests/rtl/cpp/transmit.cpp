// Driver of the transmit side (sv/transmit_bench.sv): the host's writes, and the network port.
//
// Arguments: seed; probability, of 256, of the acceptance of an event or fault, and of a read of the host.
// Input: operations, in order: W address (4) length (4) bytes: write; E value (1): CONTROL.ENABLE; N node (4) incarnation (4): settings; P
// value (2): probability of the acceptance of a beat; I cycles (4): wait; Q: wait until all windows are free and all reports are accepted.
// Output: records: M: cycle of the last beat (8), frame; E: event; F: fault; Q: WINDOW_FREE (4) after the wait; N: counts of frames,
// inquiries and active reports (4 each), at the end.

#include <algorithm>

#include "stream.h"

using namespace stream;

// More than the packets of all windows take.
static constexpr uint64_t MAX_DRAIN_CYCLES = 1000000;

static Vdut* top;
static uint64_t cycle;
static unsigned pace = 256, reports, host_reads;
static std::vector<uint8_t> frame;
static uint32_t counts[3];

// One cycle with the inputs that are set.
static void step(Random& random) {
    top->now = 1000 + cycle;
    top->m_axis_tready = random.chance(pace);
    top->event_ready = random.chance(reports);
    top->fault_ready = random.chance(reports);
    top->arvalid = random.chance(host_reads);
    top->eval();
    if (top->rst_n && cycle > 4) {
        if (top->m_axis_tvalid && top->m_axis_tready) {
            const size_t width = sizeof top->m_axis_tdata;
            size_t count = 0;
            while (count < width && bytes(top->m_axis_tkeep)[count / 8] >> (count % 8) & 1) count++;
            if (!top->m_axis_tlast && count != width) give_up("a beat is not full");
            frame.insert(frame.end(), bytes(top->m_axis_tdata), bytes(top->m_axis_tdata) + count);
            if (top->m_axis_tlast) {
                for (size_t i = 0; i < 8; i++) frame.insert(frame.begin() + i, static_cast<uint8_t>(cycle >> (8 * i)));
                put_record('M', frame);
                frame.clear();
            }
        }
        if (top->event_valid && top->event_ready) put_record('E', {bytes(top->event_data), bytes(top->event_data) + 64});
        if (top->fault_valid && top->fault_ready) put_record('F', {bytes(top->fault_event), bytes(top->fault_event) + 64});
        counts[0] += top->count_sent;
        counts[1] += top->count_link_inquiry;
        counts[2] += top->count_link_active;
    }
}

static void edge() {
    top->clk = 1;
    top->eval();
    top->clk = 0;
    top->eval();
    cycle++;
}

static void idle(Random& random, uint64_t cycles) {
    for (uint64_t i = 0; i < cycles; i++) {
        step(random);
        edge();
    }
}

// Write of any bytes: bursts of up to 256 full beats.
static void write(Random& random, uint64_t address, const std::vector<uint8_t>& data) {
    const uint64_t width = sizeof top->wdata;
    const uint64_t end = address + data.size();
    while (address < end) {
        const uint64_t first = address / width;
        const uint64_t beats = std::min<uint64_t>(256, (end + width - 1) / width - first);
        bool aw = true, response = false;
        uint64_t beat = 0;
        const uint64_t last = cycle + MAX_DRAIN_CYCLES;
        while (!response) {
            if (cycle > last) give_up("a write does not end");
            top->awvalid = aw;
            top->awaddr = first * width;
            top->wvalid = beat < beats;
            top->wlast = beat + 1 == beats;
            std::memset(&top->wstrb, 0, sizeof top->wstrb);
            for (uint64_t i = 0; i < width && beat < beats; i++) {
                const uint64_t at = (first + beat) * width + i;
                if (at < address || at >= end) continue;
                bytes(top->wdata)[i] = data[data.size() - (end - at)];
                bytes(top->wstrb)[i / 8] |= 1 << (i % 8);
            }
            step(random);
            if (top->awvalid && top->awready) aw = false;
            if (top->wvalid && top->wready) beat++;
            response = top->bvalid;
            edge();
        }
        top->awvalid = top->wvalid = 0;
        address = (first + beats) * width;
    }
}

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    const auto numbers = arguments(argc, argv);
    Random random(numbers.at(0));
    reports = numbers.at(1);
    host_reads = numbers.at(2);
    Input input(read_input());
    top = new Vdut;
    top->rst_n = 0;
    top->enable = 1;
    idle(random, 4);
    top->rst_n = 1;
    while (!input.empty()) {
        switch (input.number(1)) {
            case 'W': {
                const uint64_t address = input.number(4);
                write(random, address, input.take(input.number(4)));
                break;
            }
            case 'E':
                top->enable = input.number(1);
                break;
            case 'N':
                top->node_id = input.number(4);
                top->incarnation = input.number(4);
                break;
            case 'P':
                pace = input.number(2);
                break;
            case 'I':
                idle(random, input.number(4));
                break;
            default: {
                // The last frame is in ni_tx when its window is free.
                const uint64_t end = cycle + MAX_DRAIN_CYCLES;
                for (unsigned quiet = 0; quiet < 200; quiet++) {
                    if (cycle > end) give_up("the windows are not freed");
                    step(random);
                    if (top->transmitting || top->event_valid || top->fault_valid || top->m_axis_tvalid) quiet = 0;
                    edge();
                }
                put_record('Q', {bytes(top->window_free), bytes(top->window_free) + 4});
            }
        }
    }
    std::vector<uint8_t> record;
    for (uint32_t count : counts) {
        for (size_t i = 0; i < 4; i++) record.push_back(static_cast<uint8_t>(count >> (8 * i)));
    }
    put_record('N', record);
    delete top;
}
