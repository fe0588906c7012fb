// Driver of fpga_ni. Arguments: bytes of the bus, seed, probability of READY and VALID in per cent, bytes of memory (writes beyond are answered
// with errors), offset of the transmit windows. Input, numbers hexadecimal:
//   W ADDRESS VALUE   writes a register; R ADDRESS reads one (output: `R` and the value)
//   x ADDRESS BYTES   writes the memory of the transmit windows
//   f BYTES           a frame from the network
//   s                 waits until nothing is in flight
//   w CYCLES          lets time pass
//   m ADDRESS LENGTH  output: `m` and memory
// Output as it comes: `o` and a frame to the network.

#include "host.h"

#include "Vdut___024root.h"

static constexpr int QUIET_CYCLES = 80;

class Bench {
public:
    Bench(size_t bus, uint64_t seed, unsigned percent, size_t bytes)
        : dut(std::make_unique<Vdut>()), random(seed), bus(bus), percent(percent), memory(bytes, bus, bytes) {
        dut->s_axil_awvalid = dut->s_axil_wvalid = dut->s_axil_bready = dut->s_axil_arvalid = dut->s_axil_rready = 0;
        dut->s_axi_awvalid = dut->s_axi_wvalid = dut->s_axi_bready = dut->s_axi_arvalid = dut->s_axi_rready = 0;
        dut->s_axis_tvalid = dut->m_axis_tready = 0;
        dut->m_axi_bvalid = dut->m_axi_awready = dut->m_axi_wready = 0;
        dut->rst_n = 0;
        for (int i = 0; i < 4; i++) host::edge(*dut);
        dut->rst_n = 1;
        dut->eval();
    }

    void cycle() {
        Port port{*dut};
        memory.drive(port, random, percent);
        dut->m_axis_tready = random.chance(percent);
        if (!dut->s_axis_tvalid && position < frame.size() && random.chance(percent)) {
            const size_t count = std::min(bus, frame.size() - position);
            host::set_bytes(dut->s_axis_tdata, frame.data() + position, count);
            uint8_t keep[8] = {};
            for (size_t i = 0; i < count; i++) keep[i / 8] |= 1 << (i % 8);
            host::set_bytes(dut->s_axis_tkeep, keep, (bus + 7) / 8);
            dut->s_axis_tlast = position + count == frame.size();
            dut->s_axis_tvalid = 1;
        }
        dut->eval();
        is_quiet = !dut->m_axi_awvalid && !dut->m_axi_wvalid && memory.idle() && !dut->m_axis_tvalid && dut->rootp->fpga_ni__DOT__receive_idle && position >= frame.size();
        memory.sample(port);
        const bool takes_beat = dut->s_axis_tvalid && dut->s_axis_tready;
        if (dut->m_axis_tvalid && dut->m_axis_tready) {
            for (size_t i = 0; i < bus; i++)
                if (host::bit(dut->m_axis_tkeep, i)) sent.push_back(host::byte(dut->m_axis_tdata, i));
            if (dut->m_axis_tlast) {
                std::printf("o ");
                host::print_hex(sent.data(), sent.size());
                std::printf("\n");
                sent.clear();
            }
        }
        host::edge(*dut);
        memory.after(port);
        if (takes_beat) {
            dut->s_axis_tvalid = 0;
            position += bus;
        }
        dut->eval();
    }

    void settle() {
        for (int quiet = 0; quiet < QUIET_CYCLES; quiet = is_quiet ? quiet + 1 : 0) cycle();
    }

    void receive(const std::vector<uint8_t>& bytes) {
        frame = bytes;
        position = 0;
        while (position < frame.size()) cycle();
    }

    // One handshake: `valid` stays high until `ready`.
    template <typename Valid, typename Ready>
    void handshake(Valid& valid, const Ready& ready) {
        valid = 1;
        for (bool done = false; !done;) {
            dut->eval();
            done = ready;
            cycle();
        }
        valid = 0;
        dut->eval();
    }

    void write_register(uint16_t address, uint32_t value) {
        dut->s_axil_awaddr = address;
        dut->s_axil_wdata = value;
        dut->s_axil_wstrb = 15;
        dut->s_axil_awvalid = 1;
        handshake(dut->s_axil_wvalid, dut->s_axil_wready);
        dut->s_axil_awvalid = 0;
        handshake(dut->s_axil_bready, dut->s_axil_bvalid);
    }

    uint32_t read_register(uint16_t address) {
        dut->s_axil_araddr = address;
        handshake(dut->s_axil_arvalid, dut->s_axil_arready);
        while (!dut->s_axil_rvalid) cycle();
        const uint32_t value = dut->s_axil_rdata;
        handshake(dut->s_axil_rready, dut->s_axil_rvalid);
        return value;
    }

    // Bursts of one beat.
    void write_window(uint64_t address, const std::vector<uint8_t>& bytes) {
        for (size_t at = 0; at < bytes.size();) {
            const size_t lane = (address + at) % bus, count = std::min(bus - lane, bytes.size() - at);
            uint8_t data[64] = {}, strobes[8] = {};
            std::memcpy(data + lane, bytes.data() + at, count);
            for (size_t i = lane; i < lane + count; i++) strobes[i / 8] |= 1 << (i % 8);
            dut->s_axi_awid = 0;
            dut->s_axi_awaddr = address + at - lane;
            dut->s_axi_awlen = 0;
            dut->s_axi_awburst = 1;
            dut->s_axi_awsize = __builtin_ctz(bus);
            host::set_bytes(dut->s_axi_wdata, data, bus);
            host::set_bytes(dut->s_axi_wstrb, strobes, (bus + 7) / 8);
            dut->s_axi_wlast = 1;
            handshake(dut->s_axi_awvalid, dut->s_axi_awready);
            handshake(dut->s_axi_wvalid, dut->s_axi_wready);
            handshake(dut->s_axi_bready, dut->s_axi_bvalid);
            at += count;
        }
    }

    std::unique_ptr<Vdut> dut;
    host::Random random;
    size_t bus;
    unsigned percent;
    host::WriteMemory memory;

private:
    // The memory's names of the master's signals.
    struct Port {
        Vdut& dut;
        decltype(Vdut::m_axi_awready)& m_awready = dut.m_axi_awready;
        decltype(Vdut::m_axi_wready)& m_wready = dut.m_axi_wready;
        decltype(Vdut::m_axi_bvalid)& m_bvalid = dut.m_axi_bvalid;
        decltype(Vdut::m_axi_bresp)& m_bresp = dut.m_axi_bresp;
        decltype(Vdut::m_axi_bready)& m_bready = dut.m_axi_bready;
        decltype(Vdut::m_axi_awvalid)& m_awvalid = dut.m_axi_awvalid;
        decltype(Vdut::m_axi_awaddr)& m_awaddr = dut.m_axi_awaddr;
        decltype(Vdut::m_axi_awlen)& m_awlen = dut.m_axi_awlen;
        decltype(Vdut::m_axi_wvalid)& m_wvalid = dut.m_axi_wvalid;
        decltype(Vdut::m_axi_wdata)& m_wdata = dut.m_axi_wdata;
        decltype(Vdut::m_axi_wstrb)& m_wstrb = dut.m_axi_wstrb;
    };

    bool is_quiet = false;
    std::vector<uint8_t> frame, sent;
    size_t position = 0;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> args;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '+') args.push_back(argv[i]);
    Bench bench(std::stoul(args.at(0)), std::stoul(args.at(1)), std::stoul(args.at(2)), std::stoul(args.at(3)));
    std::string operation, text;
    auto number = [&text] {
        std::cin >> text;
        return std::stoull(text, nullptr, 16);
    };
    while (std::cin >> operation) {
        switch (operation[0]) {
            case 'W': {
                const uint16_t address = number();
                bench.write_register(address, number());
                break;
            }
            case 'R':
                std::printf("R %x\n", bench.read_register(number()));
                std::fflush(stdout);
                break;
            case 'x': {
                const uint64_t address = number();
                std::cin >> text;
                bench.write_window(address, host::from_hex(text));
                break;
            }
            case 'f':
                std::cin >> text;
                bench.receive(host::from_hex(text));
                break;
            case 'w':
                for (uint64_t cycles = number(); cycles != 0; cycles--) bench.cycle();
                break;
            case 'm': {
                const size_t address = number(), length = number();
                std::printf("m ");
                host::print_hex(bench.memory.bytes().data() + address, length);
                std::printf("\n");
                std::fflush(stdout);
                break;
            }
            default: bench.settle();
        }
    }
    bench.dut->final();
    return 0;
}
