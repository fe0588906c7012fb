// Driver of ni_dispatch. Arguments: seed, probability of READY in per cent. Input, numbers hexadecimal:
//   n NODE INCARNATION TIMEOUT  settings
//   m 0|1                       the registry scheme, or messages are received
//   c                           CONTROL.RESET, which clears the counters, too
//   h NODE                      the host asks a node
//   p TIME HEADER               a packet
//   s                           waits until nothing is in flight; output: `b` and the number of dropped packets that were counted
// Output as it comes: `e` and an event, `a` and an answer, `r` for a packet to the receiver.

#include "host.h"

static constexpr int QUIET_CYCLES = 8;

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> args;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '+') args.push_back(argv[i]);
    host::Random random(std::stoul(args.at(0)));
    const unsigned percent = std::stoul(args.at(1));

    auto dut = std::make_unique<Vdut>();
    dut->clear = dut->hello = dut->packet_valid = dut->receive_ready = dut->event_ready = dut->answer_ready = 0;
    dut->node = dut->incarnation = dut->registry_timeout_us = dut->packet_time = dut->receives_messages = 0;
    dut->rst_n = 0;
    for (int i = 0; i < 4; i++) host::edge(*dut);
    dut->rst_n = 1;

    unsigned counted = 0;
    bool is_quiet = false;
    auto cycle = [&] {
        dut->receive_ready = random.chance(percent);
        dut->event_ready = random.chance(percent);
        dut->answer_ready = random.chance(percent);
        dut->eval();
        const bool packet = dut->packet_valid && dut->packet_ready;
        is_quiet = !dut->packet_valid && !dut->event_valid && !dut->answer_valid;
        if (dut->event_valid && dut->event_ready) {
            std::printf("e ");
            host::print_hex(reinterpret_cast<const uint8_t*>(&dut->event_data), 64);
            std::printf("\n");
        }
        if (dut->answer_valid && dut->answer_ready) {
            std::printf("a ");
            host::print_hex(reinterpret_cast<const uint8_t*>(&dut->answer), dut->answer_length);
            std::printf("\n");
        }
        if (dut->receive_valid && dut->receive_ready) std::printf("r\n");
        counted += dut->count_bad_packet;
        host::edge(*dut);
        return packet;
    };

    std::string operation;
    auto number = [] {
        std::string text;
        std::cin >> text;
        return std::stoull(text, nullptr, 16);
    };
    while (std::cin >> operation) {
        switch (operation[0]) {
            case 'n':
                dut->node = number();
                dut->incarnation = number();
                dut->registry_timeout_us = number();
                break;
            case 'm':
                dut->receives_messages = number();
                break;
            case 'c':
                dut->clear = 1;
                cycle();
                dut->clear = 0;
                counted = 0;
                break;
            case 'h':
                dut->hello_node = number();
                dut->hello = 1;
                cycle();
                dut->hello = 0;
                break;
            case 'p': {
                dut->packet_time = number();
                std::string text;
                std::cin >> text;
                const std::vector<uint8_t> header = host::from_hex(text);
                host::set_bytes(dut->packet_header, header.data(), header.size());
                dut->packet_valid = 1;
                for (int i = 0; !cycle(); i++)
                    if (i > 10000) return 2;
                dut->packet_valid = 0;
                break;
            }
            default:
                for (int quiet = 0; quiet < QUIET_CYCLES; quiet = is_quiet ? quiet + 1 : 0) cycle();
                std::printf("b %u\n", counted);
        }
    }
    dut->final();
    return 0;
}
