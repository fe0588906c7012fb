// Driver of `ni_receive`: reads commands in binary form, drives the ports with random back-pressure, and writes what the module does.
//
// Arguments: seed; percentage of cycles in which a port is ready (0: changes at random); first and last address that refuse writes.
// Commands and outputs begin with a letter; integers are little-endian. A command that is not a packet waits until the module is idle.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "Vdut.h"
#include "verilated.h"

#ifndef ANSWER_BYTES
// Longest answer of the registry scheme.
#define ANSWER_BYTES 36
#endif

namespace {

// Cycles without progress after which the module is taken to be stuck.
constexpr unsigned long MAX_WAIT = 1000000;

class Random {
public:
    explicit Random(uint64_t seed) : state(seed * 2 + 1) {}
    uint32_t next() {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<uint32_t>(state >> 33);
    }
    bool chance(unsigned percent) { return next() % 100 < percent; }

private:
    uint64_t state;
};

template <typename T>
void put(T& port, const uint8_t* bytes, size_t length) {
    memset(&port, 0, sizeof port);
    memcpy(&port, bytes, length < sizeof port ? length : sizeof port);
}

struct Packet {
    uint8_t header[88];
    uint64_t time;
    std::vector<uint8_t> payload;
};

struct Write {
    uint64_t address;
    uint16_t length;
    std::vector<uint8_t> data;
    bool has_address = false;
};

class Bench {
public:
    Bench(uint64_t seed, unsigned percent, uint64_t bad_first, uint64_t bad_last)
        : random(seed), fixed(percent), bad_first(bad_first), bad_last(bad_last) {
        dut.rst_n = 0;
        dut.clk = 0;
        dut.now = 0;
        dut.packet_valid = 0;
        dut.write_done = 0;
        dut.command_valid = 0;
        dut.timeouts_changed = 0;
        for (int cycle = 0; cycle < 4; cycle++) clock();
        dut.rst_n = 1;
    }

    void run() {
        int letter;
        while ((letter = getchar()) != EOF) {
            if (letter == 'P') {
                packets.push_back(read_packet());
                // The module works while commands are read.
                while (packets.size() > 2) cycle();
                continue;
            }
            wait_idle();
            command(letter);
            fflush(stdout);
        }
    }

private:
    Vdut dut;
    Random random;
    unsigned fixed;
    unsigned percent = 100;
    uint64_t bad_first, bad_last;
    std::deque<Packet> packets;
    bool shown = false;
    std::deque<Write> writes;
    std::deque<Write> answered;
    // Cycles in which the writes of `answered` get their responses.
    std::deque<uint64_t> due;
    std::vector<uint8_t> beat_data;
    uint32_t slots = 0xFFFFFFFF;
    uint64_t notices = 0;
    uint64_t cycles = 0;
    uint64_t counts[13] = {};

    static void read(void* to, size_t length) {
        if (fread(to, 1, length, stdin) != length) exit(2);
    }
    template <typename T>
    static T get() {
        T value;
        read(&value, sizeof value);
        return value;
    }
    static void write(const void* from, size_t length) { fwrite(from, 1, length, stdout); }

    static Packet read_packet() {
        Packet packet;
        read(packet.header, sizeof packet.header);
        packet.time = get<uint64_t>();
        packet.payload.resize(get<uint16_t>());
        read(packet.payload.data(), packet.payload.size());
        return packet;
    }

    void clock() {
        dut.eval();
        dut.clk = 1;
        dut.eval();
        dut.clk = 0;
    }

    void show_beat(size_t beat) {
        const size_t bytes = sizeof dut.payload_data;
        uint8_t data[bytes];
        for (size_t n = 0; n < bytes; n++) data[n] = static_cast<uint8_t>(random.next());
        if (!packets.empty()) {
            const auto& payload = packets.front().payload;
            const size_t from = beat * bytes;
            if (from < payload.size()) memcpy(data, payload.data() + from, std::min(bytes, payload.size() - from));
        }
        put(dut.payload_data, data, bytes);
    }

    // One clock cycle: inputs, outputs before the edge, edge.
    void cycle() {
        if (cycles % 256 == 0) percent = fixed ? fixed : (random.next() % 4 == 0 ? 100 : 5 + random.next() % 90);
        cycles++;
        if (!packets.empty() && !shown && random.chance(percent)) shown = true;
        dut.packet_valid = shown;
        if (shown) {
            const Packet& packet = packets.front();
            put(dut.packet_header, packet.header, sizeof packet.header);
            dut.packet_time = packet.time;
            dut.packet_payload_length = static_cast<uint16_t>(packet.payload.size());
        }
        dut.write_ready = random.chance(percent);
        dut.write_data_ready = random.chance(percent);
        dut.answer_ready = random.chance(percent);
        dut.event_ready = random.chance(percent);
        dut.fault_ready = random.chance(percent);
        dut.write_done = 0;
        dut.write_error = random.chance(50);
        bool responded = false;
        if (!answered.empty() && due.front() <= cycles) {
            const Write& done = answered.front();
            const bool bad = done.address + done.length > bad_first && done.address <= bad_last;
            dut.write_done = 1;
            dut.write_error = bad;
            responded = true;
        }
        dut.notice_slots = slots == 0xFFFFFFFF ? slots : (notices < slots ? static_cast<uint32_t>(slots - notices) : 0);
        dut.eval();
        const size_t beat = dut.payload_beat;
        if (dut.write_valid && dut.write_ready) take_address();
        if (dut.write_data_valid && dut.write_data_ready) take_beat();
        finish_writes();
        if (dut.answer_valid && dut.answer_ready) {
            report('A', &dut.answer_length, 1);
            write(&dut.answer, ANSWER_BYTES);
        }
        if (dut.event_valid && dut.event_ready) {
            report('E', &dut.event_data, 64);
            if (*reinterpret_cast<const uint8_t*>(&dut.event_data) == 9) notices++;
        }
        if (dut.fault_valid && dut.fault_ready) report('F', &dut.fault_event, 64);
        count();
        const bool taken = dut.packet_valid && dut.packet_ready;
        clock();
        if (responded) {
            answered.pop_front();
            due.pop_front();
        }
        if (taken) {
            packets.pop_front();
            shown = false;
            if (fixed == 100 && !packets.empty()) shown = true;
        }
        show_beat(beat);
    }

    void take_address() {
        for (auto& entry : writes) {
            if (!entry.has_address) return fill_address(entry);
        }
        writes.emplace_back();
        fill_address(writes.back());
    }

    void fill_address(Write& entry) {
        entry.address = dut.write_address;
        entry.length = dut.write_length;
        entry.has_address = true;
    }

    void take_beat() {
        // Beats belong to the first write that lacks some.
        const size_t bytes = sizeof dut.write_data;
        Write* target = nullptr;
        for (auto& entry : writes) {
            if (!entry.has_address || entry.data.size() < entry.length) {
                target = &entry;
                break;
            }
        }
        if (!target) {
            writes.emplace_back();
            target = &writes.back();
        }
        const auto* data = reinterpret_cast<const uint8_t*>(&dut.write_data);
        target->data.insert(target->data.end(), data, data + bytes);
    }

    void finish_writes() {
        while (!writes.empty() && writes.front().has_address && writes.front().data.size() >= writes.front().length) {
            Write done = writes.front();
            writes.pop_front();
            const bool bad = done.address + done.length > bad_first && done.address <= bad_last;
            if (!bad) {
                putchar('D');
                write(&done.address, 8);
                write(&done.length, 2);
                write(done.data.data(), done.length);
            }
            due.push_back(cycles + (fixed == 100 ? 8 : random.next() % 20));
            answered.push_back(done);
        }
    }

    static void report(char letter, const void* data, size_t length) {
        putchar(letter);
        write(data, length);
    }

    void count() {
        const bool pulses[13] = {dut.count_duplicates != 0, dut.count_registrations != 0, dut.count_completions != 0,
            dut.count_escape_hits != 0, dut.count_escape_dropped != 0, dut.count_registry_full != 0, dut.count_bad_packet != 0,
            dut.count_violations != 0, dut.count_tombstone_hits != 0, dut.count_expired != 0, dut.count_nacks_sent != 0,
            dut.count_acks_sent != 0, dut.count_trimmed != 0};
        for (int n = 0; n < 13; n++) counts[n] += pulses[n];
    }

    void wait_idle() {
        unsigned long waited = 0;
        // A few cycles show whether a timeout is due.
        for (int quiet = 0; quiet < 3; quiet++) {
            do {
                cycle();
                if (++waited > MAX_WAIT) {
                    fflush(stdout);
                    fprintf(stderr, "ni_receive is not idle after %lu cycles\n", MAX_WAIT);
                    exit(3);
                }
            } while (!packets.empty() || !writes.empty() || !answered.empty() || !dut.idle);
        }
    }

    void host_command(int code, uint16_t index) {
        dut.command = static_cast<uint8_t>(code);
        dut.command_index = index;
        dut.command_valid = 1;
        for (unsigned long waited = 0;; waited++) {
            dut.eval();
            const bool ready = dut.command_ready;
            if (ready) break;
            cycle();
            if (waited > MAX_WAIT) exit(3);
        }
        const uint8_t failed = dut.command_failed;
        cycle();
        dut.command_valid = 0;
        cycle();
        if (code >= 3) report('C', &failed, 1);
    }

    void command(int letter) {
        switch (letter) {
            case 'T':
                dut.now = get<uint64_t>();
                wait_idle();
                break;
            case 'S':
                dut.node = get<uint32_t>();
                dut.incarnation = get<uint32_t>();
                dut.packet_events = get<uint8_t>();
                dut.escape_timeout = get<uint64_t>();
                dut.registry_timeout = get<uint64_t>();
                dut.packet_lifetime = get<uint64_t>();
                dut.timeouts_changed = get<uint8_t>();
                cycle();
                dut.timeouts_changed = 0;
                wait_idle();
                break;
            case 'N':
                slots = get<uint32_t>();
                notices = 0;
                break;
            case 'W': {
                const auto index = get<uint16_t>();
                dut.window_source = get<uint32_t>();
                dut.window_base = get<uint64_t>();
                dut.window_length = get<uint64_t>();
                dut.window_key = get<uint64_t>();
                dut.window_permissions = get<uint8_t>();
                host_command(3, index);
                break;
            }
            case 'R':
                host_command(4, get<uint16_t>());
                break;
            case 'X':
                host_command(5, 0);
                break;
            case 'L':
                host_command(0, get<uint16_t>());
                report('L', &dut.registry_shadow, 96);
                break;
            case 'K':
                host_command(1, get<uint16_t>());
                report('K', &dut.escape_shadow, 44);
                break;
            case 'M':
                host_command(2, get<uint16_t>());
                report('M', &dut.memory_shadow, 33);
                break;
            case 'Y': {
                const uint32_t levels[5] = {dut.registry_occupancy, dut.registry_high_water, dut.escape_occupancy,
                    dut.escape_high_water, dut.memory_occupancy};
                putchar('Y');
                write(counts, sizeof counts);
                write(levels, sizeof levels);
                write(&cycles, 8);
                break;
            }
            default:
                fprintf(stderr, "unknown command %d\n", letter);
                exit(2);
        }
    }
};

}  // namespace

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    std::vector<std::string> arguments;
    for (int n = 1; n < argc; n++) {
        if (argv[n][0] != '+') arguments.emplace_back(argv[n]);
    }
    if (arguments.size() != 4) return 2;
    const auto number = [&](size_t n) { return strtoull(arguments[n].c_str(), nullptr, 0); };
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    Bench bench(number(0), static_cast<unsigned>(number(1)), number(2), number(3));
    bench.run();
    return 0;
}
