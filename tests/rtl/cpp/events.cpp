// Driver of events_bench. Arguments: BUS in bytes, seed, probability of READY in per cent, bytes of memory, first address that answers with
// errors. Input, one operation per line, numbers hexadecimal:
//   t TIME         sets `now`
//   n 0|1          CONTROL.EVENT_ENABLE
//   c              CONTROL.RESET
//   w OFFSET VALUE writes a ring register; output: `w` and 1 if the value was taken
//   e BYTES        an event; f BYTES: a fault
//   s              waits until nothing is in flight
//   r              output: `r` and the readable registers, the notice slots, the interrupt requests, whether the log has faults
//   l INDEX        latches an entry of the fault log; output: `l` and the words of the window
//   m ADDRESS LENGTH  output: `m` and memory

#include "host.h"

static constexpr int QUIET_CYCLES = 40;
static constexpr int FAULT_LOG_WORDS = 14;

class Bench {
public:
    Bench(size_t bus, uint64_t seed, unsigned percent, size_t bytes, uint64_t error_from)
        : dut(std::make_unique<Vdut>()), random(seed), percent(percent), memory(bytes, bus, error_from) {
        dut->enable = dut->clear = dut->ring_write = dut->event_valid = dut->fault_valid = dut->latch = 0;
        dut->m_bvalid = dut->m_awready = dut->m_wready = 0;
        dut->now = 0;
        dut->rst_n = 0;
        for (int i = 0; i < 4; i++) host::edge(*dut);
        dut->rst_n = 1;
    }

    // One cycle. Returns whether `ready` was high in it.
    template <typename Signal>
    bool cycle(const Signal& ready) {
        memory.drive(*dut, random, percent);
        dut->eval();
        const bool was_ready = ready;
        is_quiet = !dut->m_awvalid && !dut->m_wvalid && memory.idle();
        memory.sample(*dut);
        host::edge(*dut);
        memory.after(*dut);
        return was_ready;
    }

    template <typename Port>
    void pass(Port& data, CData& valid, const CData& ready, const std::string& text) {
        const std::vector<uint8_t> bytes = host::from_hex(text);
        host::set_bytes(data, bytes.data(), bytes.size());
        valid = 1;
        for (int i = 0; !cycle(ready); i++)
            if (i > 100000) std::exit(2);
        valid = 0;
    }

    void settle() {
        for (int quiet = 0; quiet < QUIET_CYCLES; quiet = is_quiet ? quiet + 1 : 0) cycle(dut->clk);
    }

    std::unique_ptr<Vdut> dut;
    host::Random random;
    unsigned percent;
    host::WriteMemory memory;
    bool is_quiet = false;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> args;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '+') args.push_back(argv[i]);
    Bench bench(std::stoul(args.at(0)), std::stoul(args.at(1)), std::stoul(args.at(2)), std::stoul(args.at(3)), std::stoul(args.at(4)));
    Vdut& dut = *bench.dut;

    std::string operation;
    auto number = [] {
        std::string text;
        std::cin >> text;
        return std::stoull(text, nullptr, 16);
    };
    while (std::cin >> operation) {
        switch (operation[0]) {
            case 't': dut.now = number(); break;
            case 'n':
                dut.enable = number();
                bench.cycle(dut.clk);
                break;
            case 'c':
                dut.clear = 1;
                bench.cycle(dut.clk);
                dut.clear = 0;
                break;
            case 'w': {
                dut.ring_register = number();
                dut.ring_value = number();
                dut.ring_write = 1;
                std::printf("w %d\n", bench.cycle(dut.ring_taken));
                dut.ring_write = 0;
                break;
            }
            case 'e':
            case 'f': {
                std::string text;
                std::cin >> text;
                if (operation[0] == 'e') bench.pass(dut.event_data, dut.event_valid, dut.event_ready, text);
                else bench.pass(dut.fault_event, dut.fault_valid, dut.fault_ready, text);
                break;
            }
            case 's': bench.settle(); break;
            case 'r':
                dut.eval();
                std::printf("r %llx %x %x %x %x %x %x %x %x %x %x\n", (unsigned long long)dut.ring_base, dut.ring_size, dut.ring_consumed,
                            dut.ring_produced, dut.ring_posted, dut.ring_overflows, dut.ring_dropped, dut.ring_interrupt, dut.notice_slots,
                            dut.usr_irq_req, dut.has_faults);
                break;
            case 'l':
                dut.latch_index = number();
                dut.latch = 1;
                bench.cycle(dut.clk);
                dut.latch = 0;
                std::printf("l");
                for (int word = 0; word < FAULT_LOG_WORDS; word++) {
                    dut.window_register = 4 * word;
                    dut.eval();
                    std::printf(" %x", dut.window_word);
                }
                dut.window_register = 0x80;
                dut.eval();
                std::printf(" %x\n", dut.window_word);
                break;
            case 'm': {
                const size_t address = number(), length = number();
                std::printf("m ");
                host::print_hex(bench.memory.bytes().data() + address, length);
                std::printf("\n");
                break;
            }
            default: return 1;
        }
    }
    dut.final();
    return 0;
}
