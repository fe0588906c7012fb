// Driver of ni_ethernet: packets and frames from the standard input, and what comes out of the other ports.
//
// Input: records of a letter, a length of 4 bytes and the content. P: packet for s_axis. F: frame for rx_axis. S: wait until both are taken
// and nothing comes out. Output: T: frame of tx_axis. R: packet of m_axis. At the end I: the number of ignored frames. Arguments: seed, bytes
// of the bus, percentage of cycles in which a port is ready or valid.

#include <deque>
#include <memory>

#include "stream.h"

namespace {

using Bytes = std::vector<uint8_t>;

constexpr unsigned QUIET = 40;
constexpr uint64_t MAX_CYCLES = 10'000'000;

struct Source {
    std::deque<Bytes> queue;
    size_t offset = 0;
    bool valid = false;
};

std::unique_ptr<Vdut> dut;
size_t width;
stream::Random *rng;
unsigned chance;
Source packets, frames;
Bytes frame, packet;

// Offers the next beat; a beat that was offered stays.
template <typename Data, typename Keep>
void offer(Source& source, Data& data, Keep& keep, uint8_t& last, uint8_t& valid) {
    if (!source.valid) source.valid = !source.queue.empty() && rng->chance(chance);
    valid = source.valid;
    if (!source.valid) return;
    const Bytes& all = source.queue.front();
    size_t count = std::min(width, all.size() - source.offset);
    uint64_t mask = 0;
    for (size_t i = 0; i < width; i++) {
        stream::bytes(data)[i] = i < count ? all[source.offset + i] : static_cast<uint8_t>(rng->next());
        if (i < count) mask |= uint64_t{1} << i;
    }
    std::memcpy(&keep, &mask, sizeof keep);
    last = source.offset + count == all.size();
}

void taken(Source& source) {
    source.valid = false;
    source.offset += width;
    if (source.offset >= source.queue.front().size()) {
        source.queue.pop_front();
        source.offset = 0;
    }
}

template <typename Data, typename Keep>
void collect(char kind, Bytes& all, Data& data, const Keep& keep, uint8_t last) {
    uint64_t mask = 0;
    std::memcpy(&mask, &keep, sizeof keep);
    for (size_t i = 0; i < width; i++) {
        if (mask >> i & 1) all.push_back(stream::bytes(data)[i]);
    }
    if (last) {
        stream::put_record(kind, all);
        all.clear();
    }
}

// One clock cycle. Returns whether a beat moved.
bool cycle() {
    offer(packets, dut->s_axis_tdata, dut->s_axis_tkeep, dut->s_axis_tlast, dut->s_axis_tvalid);
    offer(frames, dut->rx_axis_tdata, dut->rx_axis_tkeep, dut->rx_axis_tlast, dut->rx_axis_tvalid);
    dut->tx_axis_tready = rng->chance(chance);
    dut->m_axis_tready = rng->chance(chance);
    dut->eval();
    bool from_packets = dut->s_axis_tvalid && dut->s_axis_tready;
    bool from_frames = dut->rx_axis_tvalid && dut->rx_axis_tready;
    bool to_mac = dut->rst_n && dut->tx_axis_tvalid && dut->tx_axis_tready;
    bool to_ni = dut->rst_n && dut->m_axis_tvalid && dut->m_axis_tready;
    if (to_mac) collect('T', frame, dut->tx_axis_tdata, dut->tx_axis_tkeep, dut->tx_axis_tlast);
    if (to_ni) collect('R', packet, dut->m_axis_tdata, dut->m_axis_tkeep, dut->m_axis_tlast);
    dut->clk = 1;
    dut->eval();
    dut->clk = 0;
    dut->eval();
    if (from_packets) taken(packets);
    if (from_frames) taken(frames);
    return from_packets || from_frames || to_mac || to_ni || packets.valid || frames.valid;
}

}  // namespace

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<uint64_t> numbers = stream::arguments(argc, argv);
    stream::Random random(numbers.at(0));
    rng = &random;
    width = numbers.at(1);
    chance = static_cast<unsigned>(numbers.at(2) * 256 / 100);
    dut = std::make_unique<Vdut>();
    dut->mac = 0x0200000000AA;
    dut->clk = 0;
    dut->rst_n = 0;
    for (int i = 0; i < 3; i++) cycle();
    dut->rst_n = 1;
    stream::Input input(stream::read_input());
    uint64_t cycles = 0;
    while (!input.empty()) {
        uint64_t kind = input.number(1);
        Bytes content = input.take(input.number(4));
        if (kind == 'P') packets.queue.push_back(content);
        if (kind == 'F') frames.queue.push_back(content);
        for (unsigned quiet = 0; kind == 'S' && quiet < QUIET; cycles++) {
            quiet = cycle() || !packets.queue.empty() || !frames.queue.empty() ? 0 : quiet + 1;
            if (cycles > MAX_CYCLES) stream::give_up("the module does not become idle");
        }
    }
    Bytes count(4);
    for (int i = 0; i < 4; i++) count[i] = static_cast<uint8_t>(dut->ignored >> (8 * i));
    stream::put_record('I', count);
    // Before Verilator's own state ends.
    dut.reset();
    return 0;
}
