// Helpers of the drivers of the host side: registers with a clock edge, random back-pressure, AXI4 memory, hexadecimal text.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "Vdut.h"
#include "verilated.h"

namespace host {

// xorshift64*: reproducible on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull | 1) {}
    uint64_t next() {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return state * 0x2545F4914F6CDD1Dull;
    }
    // True with a probability of `percent` per cent.
    bool chance(unsigned percent) { return next() % 100 < percent; }

private:
    uint64_t state;
};

// Bytes of a port of any width; bit 0 is bit 0 of byte 0.
template <typename Port>
void set_bytes(Port& port, const uint8_t* bytes, size_t count) {
    std::memset(&port, 0, sizeof port);
    std::memcpy(&port, bytes, count < sizeof port ? count : sizeof port);
}

template <typename Port>
bool bit(const Port& port, size_t index) {
    return reinterpret_cast<const uint8_t*>(&port)[index / 8] >> (index % 8) & 1;
}

template <typename Port>
uint8_t byte(const Port& port, size_t index) {
    return reinterpret_cast<const uint8_t*>(&port)[index];
}

inline std::vector<uint8_t> from_hex(const std::string& text) {
    std::vector<uint8_t> bytes(text.size() / 2);
    for (size_t i = 0; i < bytes.size(); i++) bytes[i] = std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16);
    return bytes;
}

inline void print_hex(const uint8_t* bytes, size_t count) {
    for (size_t i = 0; i < count; i++) std::printf("%02x", bytes[i]);
}

// Memory behind the write channels `m_aw*`, `m_w*`, `m_b*` of a module. Bursts that begin from `error_from` to below `error_to` are
// answered with SLVERR and DECERR in turn, and write nothing. Responses have the order of the commands, and come after a random delay.
class WriteMemory {
public:
    WriteMemory(size_t bytes, size_t bus_bytes, uint64_t error_from, uint64_t error_to = ~0ull)
        : bytes_(bytes), bus_(bus_bytes), error_from_(error_from), error_to_(error_to) {}

    // Inputs of the module for the next edge. `ready`: probability of READY and of a response, in per cent.
    template <typename Dut>
    void drive(Dut& dut, Random& random, unsigned ready) {
        dut.m_awready = random.chance(ready);
        dut.m_wready = random.chance(ready);
        if (!dut.m_bvalid && !responses_.empty() && random.chance(ready)) {
            dut.m_bvalid = 1;
            dut.m_bresp = responses_.front();
        }
    }

    // Before the edge: takes what is transferred in it.
    template <typename Dut>
    void sample(Dut& dut) {
        b_done_ = dut.m_bvalid && dut.m_bready;
        if (b_done_) responses_.pop_front();
        if (dut.m_awvalid && dut.m_awready) commands_.push_back({dut.m_awaddr, unsigned(dut.m_awlen) + 1});
        if (dut.m_wvalid && dut.m_wready) {
            Beat beat{std::vector<uint8_t>(bus_), std::vector<bool>(bus_)};
            for (size_t i = 0; i < bus_; i++) {
                beat.data[i] = byte(dut.m_wdata, i);
                beat.strobes[i] = bit(dut.m_wstrb, i);
            }
            beats_.push_back(beat);
        }
        while (!commands_.empty() && beats_.size() >= commands_.front().beats) apply();
    }

    // After the edge.
    template <typename Dut>
    void after(Dut& dut) {
        if (b_done_) dut.m_bvalid = 0;
    }

    bool idle() const { return commands_.empty() && beats_.empty() && responses_.empty(); }
    std::vector<uint8_t>& bytes() { return bytes_; }

private:
    struct Command {
        uint64_t address;
        unsigned beats;
    };
    struct Beat {
        std::vector<uint8_t> data;
        std::vector<bool> strobes;
    };

    void apply() {
        Command command = commands_.front();
        commands_.pop_front();
        bool error = command.address >= error_from_ && command.address < error_to_;
        for (unsigned n = 0; n < command.beats; n++) {
            for (size_t i = 0; i < bus_ && !error; i++)
                if (beats_.front().strobes[i]) bytes_.at(command.address / bus_ * bus_ + n * bus_ + i) = beats_.front().data[i];
            beats_.pop_front();
        }
        if (error) decode_ = !decode_;
        responses_.push_back(error ? 2 + decode_ : 0);
    }

    std::vector<uint8_t> bytes_;
    size_t bus_;
    uint64_t error_from_, error_to_;
    std::deque<Command> commands_;
    std::deque<Beat> beats_;
    std::deque<unsigned> responses_;
    bool b_done_ = false;
    bool decode_ = false;
};

// Low and high phase of the clock.
template <typename Dut>
void edge(Dut& dut) {
    dut.clk = 1;
    dut.eval();
    dut.clk = 0;
    dut.eval();
}

}  // namespace host
