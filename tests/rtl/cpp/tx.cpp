// Driver of ni_tx: offers answers and frames, and reports the frames of the network port.
//
// Arguments: seed; probabilities, of 256, of an offer, of a valid payload beat and of the acceptance of a beat; number of answer ports.
// Input: packets: port (1 byte; 255: a frame of the transmit windows), length of the header (1), of the payload (2), header, payload.
// Each port offers its packets in order.
// Output: records: T: port whose packet is accepted; M: frame; N: number of frames that the module has counted; C: cycles from the first
// acceptance to the last beat.

#include <algorithm>
#include <deque>

#include "stream.h"

using namespace stream;

struct Packet {
    std::vector<uint8_t> header, payload;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    const auto numbers = arguments(argc, argv);
    Random random(numbers.at(0));
    const unsigned offer = numbers.at(1), offer_data = numbers.at(2), accept = numbers.at(3);
    const size_t answers = numbers.at(4);
    Input input(read_input());
    auto top = new Vdut;
    const size_t width = sizeof top->m_axis_tdata;

    std::vector<std::deque<Packet>> ports(answers + 1);
    size_t total = 0;
    while (!input.empty()) {
        const size_t port = input.number(1);
        const size_t header = input.number(1), payload = input.number(2);
        Packet packet;
        packet.header = input.take(header);
        packet.payload = input.take(payload);
        ports.at(port == 255 ? answers : port).push_back(packet);
        total++;
    }

    std::vector<bool> offering(answers + 1);
    std::deque<std::vector<uint8_t>> beats;
    bool offering_data = false;
    std::vector<uint8_t> frame;
    uint64_t frames = 0, counted = 0, cycle = 0, first = 0, end = 0;
    top->clk = 0;
    for (; frames < total || cycle < end + 8; cycle++) {
        top->rst_n = cycle >= 4;
        top->answer_valid = 0;
        std::memset(&top->answer, 0, sizeof top->answer);
        std::memset(&top->answer_length, 0, sizeof top->answer_length);
        for (size_t port = 0; port <= answers; port++) {
            if (top->rst_n && !ports[port].empty() && !offering[port]) offering[port] = random.chance(offer);
            if (port == answers || !offering[port]) continue;
            const auto& header = ports[port].front().header;
            top->answer_valid |= 1 << port;
            std::memcpy(bytes(top->answer) + 88 * port, header.data(), header.size());
            bytes(top->answer_length)[port] = header.size();
        }
        top->frame_valid = offering[answers];
        if (top->frame_valid) {
            const auto& packet = ports[answers].front();
            std::memset(&top->frame_header, 0, sizeof top->frame_header);
            std::memcpy(bytes(top->frame_header), packet.header.data(), packet.header.size());
            top->frame_header_length = packet.header.size();
            top->frame_payload_length = packet.payload.size();
        }
        if (!offering_data && !beats.empty()) offering_data = random.chance(offer_data);
        top->frame_data_valid = offering_data;
        // Bytes after the payload have any value.
        for (size_t i = 0; i < width; i++) bytes(top->frame_data)[i] = static_cast<uint8_t>(random.next() >> 24);
        if (offering_data) std::copy(beats.front().begin(), beats.front().end(), bytes(top->frame_data));
        top->m_axis_tready = random.chance(accept);
        top->eval();

        size_t taken = 0;
        for (size_t port = 0; top->rst_n && port <= answers; port++) {
            const bool is_ready = port == answers ? top->frame_ready : top->answer_ready >> port & 1;
            if (!offering[port] || !is_ready) continue;
            if (taken++) give_up("two packets at once");
            if (first == 0) first = cycle;
            put_record('T', {static_cast<uint8_t>(port)});
            const auto payload = ports[port].front().payload;
            for (size_t at = 0; at < payload.size(); at += width) {
                beats.emplace_back(payload.begin() + at, payload.begin() + std::min(at + width, payload.size()));
            }
            ports[port].pop_front();
            offering[port] = false;
        }
        if (top->rst_n && offering_data && top->frame_data_ready) {
            beats.pop_front();
            offering_data = false;
        }
        if (top->rst_n && top->m_axis_tvalid && top->m_axis_tready) {
            size_t count = 0;
            const uint8_t* keep = bytes(top->m_axis_tkeep);
            while (count < width && keep[count / 8] >> (count % 8) & 1) count++;
            for (size_t i = count; i < width; i++) if (keep[i / 8] >> (i % 8) & 1) give_up("gap in TKEEP");
            if (count == 0 || (!top->m_axis_tlast && count != width)) give_up("a beat is not full");
            frame.insert(frame.end(), bytes(top->m_axis_tdata), bytes(top->m_axis_tdata) + count);
            if (top->m_axis_tlast) {
                put_record('M', frame);
                frame.clear();
                frames++;
                end = cycle;
            }
        }
        if (top->rst_n && cycle > 4 && top->count_sent) counted++;
        top->clk = 1;
        top->eval();
        top->clk = 0;
        top->eval();
        if (cycle > end + 100000) give_up("the module does not go on");
    }
    const auto number = [](uint64_t value) {
        std::vector<uint8_t> record;
        for (size_t i = 0; i < 8; i++) record.push_back(static_cast<uint8_t>(value >> (8 * i)));
        return record;
    };
    put_record('N', number(counted));
    put_record('C', number(end + 1 - first));
    delete top;
}
