// Driver of ni_windows: host accesses and the transmitter's reads.
//
// Arguments: seed; probability, of 256, of a valid or ready signal.
// Input: operations: W address (4) size (1) beats (2) [data strobes]: write burst, alone; R address (4) size (1) beats (2): read burst; T
// window (1) beat (4): read of the transmitter. Reads between two writes run at the same time.
// Output: records: R: data of a read burst; T: data of a read of the transmitter; K: window that is reported as committed; C: cycles of
// which the transmitter's read waited.

#include <deque>

#include "stream.h"

using namespace stream;

struct Write {
    uint64_t address, size, id;
    std::vector<std::vector<uint8_t>> data, strobes;
};
struct Read {
    uint64_t address, size, beats, id;
};

int main(int argc, char** argv) {
    Verilated::commandArgs(argc, argv);
    const auto numbers = arguments(argc, argv);
    Random random(numbers.at(0));
    const unsigned pace = numbers.at(1);
    Input input(read_input());
    auto top = new Vdut;
    const size_t width = sizeof top->s_axi_wdata;

    std::deque<Write> writes;
    std::deque<Read> reads, waiting;
    std::deque<std::pair<uint64_t, uint64_t>> fetches;
    std::vector<uint8_t> burst;
    bool aw_done = false, aw_valid = false, w_valid = false, ar_valid = false, read_valid = false, fetched = false;
    bool write_ends = false;
    size_t w_beat = 0;
    uint64_t waited = 0, quiet = 0, next_id = 0;
    top->clk = 0;
    for (uint64_t cycle = 0;; cycle++) {
        top->rst_n = cycle >= 4;
        if (top->rst_n && writes.empty() && !write_ends && reads.empty() && waiting.empty() && fetches.empty() && !fetched) {
            if (input.empty()) {
                if (quiet++ > 8) break;
            }
            while (!input.empty()) {
                const char kind = input.number(1);
                if (kind == 'W') {
                    Write write{input.number(4), input.number(1), next_id++ % 16, {}, {}};
                    const size_t beats = input.number(2);
                    for (size_t i = 0; i < beats; i++) {
                        write.data.push_back(input.take(width));
                        write.strobes.push_back(input.take(width / 8));
                    }
                    writes.push_back(write);
                    break;
                }
                if (kind == 'R') {
                    Read read{input.number(4), input.number(1), input.number(2), next_id++ % 16};
                    reads.push_back(read);
                } else {
                    const uint64_t window = input.number(1);
                    fetches.emplace_back(window, input.number(4));
                }
                // A write waits for the reads before it.
                if (input.peek() == 'W') break;
            }
        }
        if (!writes.empty() && !aw_done && !aw_valid) aw_valid = random.chance(pace);
        top->s_axi_awvalid = aw_valid;
        if (aw_valid) {
            top->s_axi_awaddr = writes.front().address;
            top->s_axi_awsize = writes.front().size;
            top->s_axi_awid = writes.front().id;
        }
        // Data may come before its address.
        if (!writes.empty() && w_beat < writes.front().data.size() && !w_valid) w_valid = random.chance(pace);
        top->s_axi_wvalid = w_valid;
        if (w_valid) {
            std::memcpy(bytes(top->s_axi_wdata), writes.front().data[w_beat].data(), width);
            std::memcpy(bytes(top->s_axi_wstrb), writes.front().strobes[w_beat].data(), width / 8);
            top->s_axi_wlast = w_beat + 1 == writes.front().data.size();
        }
        top->s_axi_bready = random.chance(pace);
        if (!reads.empty() && !ar_valid) ar_valid = random.chance(pace);
        top->s_axi_arvalid = ar_valid;
        if (ar_valid) {
            top->s_axi_araddr = reads.front().address;
            top->s_axi_arsize = reads.front().size;
            top->s_axi_arlen = reads.front().beats - 1;
            top->s_axi_arid = reads.front().id;
        }
        top->s_axi_rready = random.chance(pace);
        if (!fetches.empty() && !read_valid) read_valid = random.chance(pace);
        top->read_valid = read_valid;
        if (read_valid) {
            top->read_window = fetches.front().first;
            top->read_beat = fetches.front().second;
        }
        top->eval();
        if (fetched) put_record('T', {bytes(top->read_data), bytes(top->read_data) + width});
        fetched = false;
        if (top->rst_n) {
            if (cycle > 4 && top->commit_valid) put_record('K', {static_cast<uint8_t>(top->commit_window)});
            if (aw_valid && top->s_axi_awready) {
                aw_valid = false;
                aw_done = true;
            }
            if (w_valid && top->s_axi_wready) {
                if (!aw_done) give_up("data before its address");
                w_valid = false;
                if (++w_beat == writes.front().data.size()) write_ends = true;
            }
            if (top->s_axi_bvalid && top->s_axi_bready) {
                if (!write_ends || top->s_axi_bid != writes.front().id || top->s_axi_bresp) give_up("wrong write response");
                writes.pop_front();
                aw_done = write_ends = false;
                w_beat = 0;
            }
            if (ar_valid && top->s_axi_arready) {
                ar_valid = false;
                waiting.push_back(reads.front());
                reads.pop_front();
            }
            if (top->s_axi_rvalid && top->s_axi_rready) {
                if (waiting.empty() || top->s_axi_rid != waiting.front().id || top->s_axi_rresp) give_up("wrong read response");
                burst.insert(burst.end(), bytes(top->s_axi_rdata), bytes(top->s_axi_rdata) + width);
                const bool last = burst.size() == width * waiting.front().beats;
                if (last != top->s_axi_rlast) give_up("wrong RLAST");
                if (last) {
                    put_record('R', burst);
                    burst.clear();
                    waiting.pop_front();
                }
            }
            if (read_valid) {
                if (top->read_ready) {
                    read_valid = false;
                    fetched = true;
                    fetches.pop_front();
                } else {
                    waited++;
                }
            }
        }
        top->clk = 1;
        top->eval();
        top->clk = 0;
        top->eval();
        if (cycle > 20000000) give_up("the module does not go on");
    }
    std::vector<uint8_t> record;
    for (size_t i = 0; i < 8; i++) record.push_back(static_cast<uint8_t>(waited >> (8 * i)));
    put_record('C', record);
    delete top;
}
