/* Classes of fpga.hpp: ownership, exceptions, spans, and every part of the wrapper once. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fpga.hpp>
#include <numeric>
#include <type_traits>

using namespace std::chrono_literals;

static void holds(int line, bool condition)
{
    if (!condition) {
        std::fprintf(stderr, "line %d: not true\n", line);
        std::exit(1);
    }
}
#define HOLDS(condition) holds(__LINE__, (condition))

/* The call throws an Error with this status. */
template <class Call> static fpga::Error thrown(int line, fpga_status status, Call call)
{
    try {
        call();
    } catch (const fpga::Error &error) {
        if (error.status() != status)
            std::fprintf(stderr, "line %d: %s\n", line, error.what());
        holds(line, error.status() == status && error.what()[0] != 0);
        return error;
    }
    holds(line, false);
    std::abort();
}
#define THROWS(status, call) thrown(__LINE__, status, [&] { call; })

static_assert(!std::is_copy_constructible_v<fpga::Card> && !std::is_copy_assignable_v<fpga::Buffer>);
static_assert(std::is_nothrow_move_constructible_v<fpga::Channel> && std::is_nothrow_move_assignable_v<fpga::Stream>);

static void ownership()
{
    fpga::Card card("mock"), empty;
    HOLDS(card && !empty && card.name() == "mock:0");
    fpga_card handle = card.get();
    fpga::Card moved(std::move(card));
    HOLDS(!card && moved.get().value == handle.value); // NOLINT: the state after a move is part of the interface
    THROWS(FPGA_ERROR_HANDLE, card.info());
    {
        fpga::Channel first = moved.h2c(0);
        THROWS(FPGA_ERROR_IN_USE, moved.h2c(0));
    }
    fpga::Channel again = moved.h2c(0);
    again = moved.h2c(1); /* closes the first */
    fpga::Channel first = moved.h2c(0);
    first.close();
    HOLDS(!first);
    fpga_card released = moved.release();
    HOLDS(!moved && fpga_close(released) == FPGA_OK);
    fpga::Error error = THROWS(FPGA_ERROR_OPEN, fpga::Card("no card"));
    HOLDS(!error.advice().empty() && error.card().empty());
    HOLDS(fpga::Timeout(-1s).nanoseconds() == 0 && fpga::Timeout(2ms).nanoseconds() == 2000000);
    HOLDS(fpga::Timeout::forever().nanoseconds() == FPGA_NO_TIMEOUT);
    /* Durations of any size are a time in nanoseconds, or no limit. */
    HOLDS(fpga::Timeout(std::chrono::seconds::max()).nanoseconds() == FPGA_NO_TIMEOUT);
    HOLDS(fpga::Timeout(std::chrono::hours::max()).nanoseconds() == FPGA_NO_TIMEOUT);
    HOLDS(fpga::Timeout(std::chrono::nanoseconds::max()).nanoseconds() >= INT64_MAX - UINT64_C(1024));
    HOLDS(fpga::Timeout(std::chrono::seconds::min()).nanoseconds() == 0);
    HOLDS(fpga::Timeout(std::chrono::hours(3000000)).nanoseconds() == UINT64_C(10800000000000000000));
}

static void transfers()
{
    fpga::Card card("mock");
    fpga::Buffer out = card.buffer(1 << 16), in = card.buffer(1 << 16);
    fpga::Channel h2c = card.h2c(0), c2h = card.c2h(0);
    HOLDS(card.info().h2c_channels > 0 && card.read32(FPGA_BAR_DMA, 0x2000) >> 16 == 0x1fc2);
    auto words = out.as<std::uint32_t>();
    std::iota(words.begin(), words.end(), 7u);
    HOLDS(words.size() == (1 << 14) && words[1] == 8 && out.bytes().size() == 1 << 16);
    std::uint64_t last = 0;
    for (std::size_t n = 0; n < 1000; n++) {
        std::size_t offset = n % 64 * 1024;
        auto ticket = h2c.submit(out, offset, 1024, offset);
        while (!ticket) {
            h2c.poll();
            ticket = h2c.submit(out, offset, 1024, offset);
        }
        last = *ticket;
    }
    h2c.wait(last, 10s);
    HOLDS(h2c.progress().first == 1000 && h2c.progress().second == 0 && !h2c.cancel(last));
    auto list = c2h.submit({{in.get(), 0, 4096, 0}, {in.get(), 4096, (1 << 16) - 4096, 4096}});
    c2h.wait(*list, 10s);
    auto found = in.as<std::uint32_t>();
    HOLDS(std::equal(words.begin(), words.end(), found.begin(), found.end()));
    char text[6];
    h2c.write(0x100, "hello", 6, 1s);
    c2h.read(0x100, text, 6, fpga::Timeout::forever());
    HOLDS(std::strcmp(text, "hello") == 0);
    fpga::Error error = THROWS(FPGA_ERROR_RANGE, h2c.submit(out, 1 << 16, 1, 0));
    HOLDS(error.card() == "mock:0");
    h2c.abort();
}

static void streams()
{
    fpga::Card card("mock:us-plus-x8-stream");
    fpga_stream_options options{};
    options.buffers = 16;
    options.buffer_size = 256;
    fpga::Stream tx = card.h2c_stream(0), rx = card.c2h_stream(0, options);
    HOLDS(rx.next() == 0);
    tx.send("a packet", 9, 1s);
    HOLDS(rx.next(1s) == 9);
    auto pieces = rx.pieces();
    HOLDS(pieces.size() == 1 && std::memcmp(pieces[0].data(), "a packet", pieces[0].size()) == 0);
    char part[6];
    rx.copy(2, part, 6);
    HOLDS(std::memcmp(part, "packet", 6) == 0 && rx.statistics().packets == 1);
    rx.release();
    rx.stop();
    THROWS(FPGA_ERROR_STOPPED, rx.next(1s));
}

static void simulated()
{
    fpga_network_options options{};
    options.threaded = 1;
    fpga::Network network(options);
    fpga::Card card = network.card(0);
    fpga::Interrupt interrupt = card.interrupt({3, 7});
    HOLDS(interrupt.fd() >= 0 && interrupt.take() == 0);
    network.set_user_interrupt(0, 7, true);
    HOLDS(interrupt.wait(10s) == 1u << 7);
    network.set_user_interrupt(0, 7, false);
    interrupt.rearm(7);
    fpga::Cdma cdma = card.cdma();
    char text[8] = "";
    network.poke(0, 0x1000, "copied", 7);
    cdma.copy(0x1000, 0x2000, 7, 10s);
    network.peek(0, 0x2000, text, 7);
    HOLDS(std::strcmp(text, "copied") == 0);
    network.fail(0, FPGA_FAILURE_GONE);
    THROWS(FPGA_ERROR_GONE, card.read32(FPGA_BAR_DMA, 0));
}

int main()
{
    ownership();
    transfers();
    streams();
    simulated();
    std::puts("the classes work");
    return 0;
}
