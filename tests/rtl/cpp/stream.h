// Helpers of the drivers of streams: clock, random back-pressure, binary input and output.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "Vdut.h"
#include "verilated.h"

namespace stream {

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
    // True with a probability of `per_256` / 256.
    bool chance(unsigned per_256) { return (next() >> 32) % 256 < per_256; }

private:
    uint64_t state;
};

// Port of any width as bytes; bit 0 is bit 0 of byte 0.
template <typename Port>
uint8_t* bytes(Port& port) {
    return reinterpret_cast<uint8_t*>(&port);
}

inline std::vector<uint8_t> read_input() {
    std::vector<uint8_t> all;
    uint8_t part[65536];
    size_t count;
    while ((count = std::fread(part, 1, sizeof part, stdin)) > 0) all.insert(all.end(), part, part + count);
    return all;
}

// Reader of little-endian values.
class Input {
public:
    explicit Input(std::vector<uint8_t> all) : all(std::move(all)) {}
    bool empty() const { return at == all.size(); }
    int peek() const { return empty() ? -1 : all[at]; }
    uint64_t number(size_t size) {
        uint64_t value = 0;
        for (size_t i = 0; i < size; i++) value |= static_cast<uint64_t>(all.at(at++)) << (8 * i);
        return value;
    }
    std::vector<uint8_t> take(size_t size) {
        if (at + size > all.size()) std::abort();
        std::vector<uint8_t> part(all.begin() + at, all.begin() + at + size);
        at += size;
        return part;
    }

private:
    std::vector<uint8_t> all;
    size_t at = 0;
};

inline void put_number(uint64_t value, size_t size) {
    for (size_t i = 0; i < size; i++) std::putchar(static_cast<int>(value >> (8 * i) & 0xff));
}

// A record: one letter, the length of its content, the content.
inline void put_record(char kind, const std::vector<uint8_t>& content) {
    std::putchar(kind);
    put_number(content.size(), 4);
    std::fwrite(content.data(), 1, content.size(), stdout);
}

// Numbers on the command line, without those of Verilator.
inline std::vector<uint64_t> arguments(int argc, char** argv) {
    std::vector<uint64_t> numbers;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '+') numbers.push_back(std::strtoull(argv[i], nullptr, 0));
    }
    return numbers;
}

// Stops a run that does not end.
inline void give_up(const char* reason) {
    std::fprintf(stderr, "%s\n", reason);
    std::exit(1);
}

}  // namespace stream
