// Driver of write_bench. Arguments: BUS in bytes, seed, probability of READY and VALID in per cent, bytes of memory, first address that answers
// with errors, and the first one behind them. Input: lines `p ADDRESS LENGTH DATA` (payload) and `e ADDRESS DATA` (event), numbers hexadecimal. Output: `p` or `e` with `ok` or
// `error` for each response, then the number of cycles, then the memory.

#include "host.h"

struct Payload {
    uint64_t address;
    std::vector<uint8_t> data;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> args;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '+') args.push_back(argv[i]);
    const size_t bus = std::stoul(args.at(0));
    host::Random random(std::stoul(args.at(1)));
    const unsigned percent = std::stoul(args.at(2));
    host::WriteMemory memory(std::stoul(args.at(3)), bus, std::stoul(args.at(4)), std::stoul(args.at(5)));

    std::deque<Payload> payloads, data, events;
    std::string kind;
    while (std::cin >> kind) {
        std::string address, length, text;
        std::cin >> address;
        if (kind == "p") std::cin >> length;
        std::cin >> text;
        Payload item{std::stoull(address, nullptr, 16), host::from_hex(text)};
        if (kind == "p") payloads.push_back(item);
        else events.push_back(item);
    }

    auto dut = std::make_unique<Vdut>();
    // Inputs begin with random values, too.
    dut->write_valid = dut->write_data_valid = dut->event_write_valid = dut->m_bvalid = dut->m_awready = dut->m_wready = 0;
    dut->rst_n = 0;
    for (int i = 0; i < 4; i++) host::edge(*dut);
    dut->rst_n = 1;

    size_t expected = payloads.size() + events.size(), position = 0;
    uint64_t cycles = 0;
    while (expected != 0 && cycles < 2'000'000) {
        // A beat of the commands that were taken, or of the next one, since data may precede its command.
        if (!dut->write_valid && !payloads.empty() && random.chance(percent)) {
            dut->write_valid = 1;
            dut->write_address = payloads.front().address;
            dut->write_length = payloads.front().data.size();
        }
        if (!dut->write_data_valid && !data.empty() && random.chance(percent)) {
            dut->write_data_valid = 1;
            host::set_bytes(dut->write_data, data.front().data.data() + position, std::min(bus, data.front().data.size() - position));
        }
        if (!dut->event_write_valid && !events.empty() && random.chance(percent)) {
            dut->event_write_valid = 1;
            dut->event_write_address = events.front().address;
            host::set_bytes(dut->event_write_data, events.front().data.data(), 64);
        }
        memory.drive(*dut, random, percent);
        dut->eval();
        const bool command = dut->write_valid && dut->write_ready, event = dut->event_write_valid && dut->event_write_ready;
        const bool beat = dut->write_data_valid && dut->write_data_ready;
        memory.sample(*dut);
        host::edge(*dut);
        memory.after(*dut);
        cycles++;
        if (command) {
            data.push_back(payloads.front());
            payloads.pop_front();
            dut->write_valid = 0;
        }
        if (event) {
            events.pop_front();
            dut->event_write_valid = 0;
        }
        if (beat) {
            dut->write_data_valid = 0;
            position += bus;
            if (position >= data.front().data.size()) {
                data.pop_front();
                position = 0;
            }
        }
        if (dut->write_done) std::printf("p %s\n", dut->write_error ? "error" : "ok");
        if (dut->event_write_done) std::printf("e %s\n", dut->event_write_error ? "error" : "ok");
        expected -= dut->write_done + dut->event_write_done;
    }
    std::printf("cycles %llu\nmemory ", (unsigned long long)cycles);
    host::print_hex(memory.bytes().data(), memory.bytes().size());
    std::printf("\n");
    dut->final();
    return expected == 0 && memory.idle() ? 0 : 1;
}
