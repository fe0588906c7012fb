// Driver of registers_bench. Arguments: seed, probability of READY and VALID in per cent, bytes of memory, memory windows. Input, numbers
// hexadecimal: `W ADDRESS VALUE STROBES` writes a register (output: `W` and the response), `R ADDRESS` reads one (output: `R` and the value),
// `s` waits until nothing is in flight. The table of memory windows is here: registers_bench has no receiver.

#include <map>

#include "host.h"

static constexpr int QUIET_CYCLES = 30;

struct Window {
    uint32_t source;
    uint64_t base, length, key;
    uint32_t permissions;
};

class Bench {
public:
    Bench(uint64_t seed, unsigned percent, size_t bytes, size_t windows)
        : dut(std::make_unique<Vdut>()), random(seed), percent(percent), windows(windows), memory(bytes, 64, bytes) {
        dut->s_axil_awvalid = dut->s_axil_wvalid = dut->s_axil_bready = dut->s_axil_arvalid = dut->s_axil_rready = 0;
        dut->command_ready = dut->command_failed = dut->m_bvalid = dut->m_awready = dut->m_wready = 0;
        dut->now = 0;
        dut->memory_occupancy = 0;
        dut->rst_n = 0;
        for (int i = 0; i < 4; i++) host::edge(*dut);
        dut->rst_n = 1;
        dut->eval();
    }

    void cycle() {
        memory.drive(*dut, random, percent);
        dut->eval();
        is_quiet = !dut->m_awvalid && !dut->m_wvalid && memory.idle();
        memory.sample(*dut);
        const bool executed = dut->command_ready;
        host::edge(*dut);
        memory.after(*dut);
        dut->now += 4;
        dut->command_ready = 0;
        if (dut->command_valid && !executed && random.chance(percent)) execute();
        dut->eval();
    }

    void settle() {
        for (int quiet = 0; quiet < QUIET_CYCLES; quiet = is_quiet ? quiet + 1 : 0) cycle();
    }

    unsigned write(uint16_t address, uint32_t value, unsigned strobes) {
        // Address and data come in any order.
        bool address_done = false, data_done = false;
        dut->s_axil_awaddr = address;
        dut->s_axil_wdata = value;
        dut->s_axil_wstrb = strobes;
        for (int i = 0; !address_done || !data_done; i++) {
            if (i > 10000) std::exit(2);
            if (!address_done && random.chance(percent)) dut->s_axil_awvalid = 1;
            if (!data_done && random.chance(percent)) dut->s_axil_wvalid = 1;
            dut->eval();
            const bool takes_address = dut->s_axil_awvalid && dut->s_axil_awready, takes_data = dut->s_axil_wvalid && dut->s_axil_wready;
            cycle();
            if (takes_address) dut->s_axil_awvalid = 0, address_done = true;
            if (takes_data) dut->s_axil_wvalid = 0, data_done = true;
        }
        unsigned response = 0;
        for (bool done = false; !done;) {
            dut->s_axil_bready = random.chance(percent);
            dut->eval();
            done = dut->s_axil_bvalid && dut->s_axil_bready;
            response = dut->s_axil_bresp;
            cycle();
        }
        dut->s_axil_bready = 0;
        return response;
    }

    uint32_t read(uint16_t address) {
        dut->s_axil_araddr = address;
        dut->s_axil_arvalid = 1;
        for (bool done = false; !done;) {
            dut->eval();
            done = dut->s_axil_arready;
            cycle();
        }
        dut->s_axil_arvalid = 0;
        uint32_t value = 0;
        for (bool done = false; !done;) {
            dut->s_axil_rready = random.chance(percent);
            dut->eval();
            done = dut->s_axil_rvalid && dut->s_axil_rready;
            value = dut->s_axil_rdata;
            cycle();
        }
        dut->s_axil_rready = 0;
        return value;
    }

    std::unique_ptr<Vdut> dut;
    host::Random random;
    unsigned percent;
    size_t windows;
    host::WriteMemory memory;
    bool is_quiet = false;
    std::map<unsigned, Window> table;

private:
    void execute() {
        const unsigned index = dut->command_index;
        const bool in_range = index < windows;
        dut->command_failed = !in_range;
        if (dut->command == 2) {
            uint8_t shadow[40] = {};
            const auto found = table.find(index);
            if (found != table.end()) {
                const Window& window = found->second;
                std::memcpy(shadow, &window.source, 4);
                std::memcpy(shadow + 4, &window.base, 8);
                std::memcpy(shadow + 12, &window.length, 8);
                std::memcpy(shadow + 20, &window.key, 8);
                shadow[28] = window.permissions;
                shadow[32] = 1;
            }
            host::set_bytes(dut->memory_shadow, shadow, sizeof shadow);
        } else if (dut->command == 3) {
            const bool fits = dut->window_length != 0 && dut->window_base + dut->window_length >= dut->window_base;
            dut->command_failed = !in_range || !fits;
            if (!dut->command_failed)
                table[index] = {dut->window_source, dut->window_base, dut->window_length, dut->window_key, dut->window_permissions};
        } else if (dut->command == 4) {
            table.erase(index);
        } else {
            dut->command_failed = 0;
        }
        dut->memory_occupancy = table.size();
        dut->command_ready = 1;
    }
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> args;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '+') args.push_back(argv[i]);
    Bench bench(std::stoul(args.at(0)), std::stoul(args.at(1)), std::stoul(args.at(2)), std::stoul(args.at(3)));
    std::string operation;
    auto number = [] {
        std::string text;
        std::cin >> text;
        return std::stoull(text, nullptr, 16);
    };
    while (std::cin >> operation) {
        if (operation == "W") {
            const uint16_t address = number();
            const uint32_t value = number();
            const unsigned strobes = number();
            std::printf("W %x\n", bench.write(address, value, strobes));
        } else if (operation == "R") {
            std::printf("R %x\n", bench.read(number()));
        } else {
            bench.settle();
        }
    }
    bench.dut->final();
    return 0;
}
