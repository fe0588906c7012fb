/*
 * C++17 classes over fpga.h: handles that close themselves, exceptions, and spans over buffers. Header only.
 *
 * Ownership
 *   Objects can be moved, not copied. A moved-from object is empty; a call with it throws Error with FPGA_ERROR_HANDLE. Destructors close and
 *   report nothing; close() reports. A buffer with a transfer in flight is not freed by its destructor, and its memory stays: declare buffers
 *   before the channels that use them, so that channels close first.
 *
 * Errors
 *   Failures throw Error. A full ring is no failure: submit returns an empty optional.
 *
 * Everything else, such as threads and polling, is as fpga.h describes it. get() has the handle for functions without a class.
 */
#ifndef FPGA_HPP
#define FPGA_HPP

#include <fpga.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace fpga {

/* Failure of a call. what() is the message. */
class Error : public std::runtime_error {
public:
    explicit Error(const fpga_error &error)
        : std::runtime_error(error.message), details_(error), advice_(error.advice), card_(error.card)
    {
        details_.message = nullptr;
        details_.advice = nullptr;
        details_.card = nullptr;
    }

    fpga_status status() const noexcept { return static_cast<fpga_status>(details_.status); }
    /* What to do; empty if there is no advice. */
    const std::string &advice() const noexcept { return advice_; }
    /* Name of the card; empty if the error concerns none. */
    const std::string &card() const noexcept { return card_; }
    /* Part, addresses and counts; its texts are NULL. */
    const fpga_error &details() const noexcept { return details_; }

private:
    fpga_error details_;
    std::string advice_;
    std::string card_;
};

/* Throws if a call has failed. */
inline void check(fpga_status status)
{
    if (status != FPGA_OK)
        throw Error(*fpga_last_error());
}

/* Time limit: any duration, or forever. A negative duration does not wait; one of 584 years or more is forever. */
class Timeout {
public:
    template <class Rep, class Period>
    Timeout(std::chrono::duration<Rep, Period> limit)
        : nanoseconds_(count(limit))
    {
    }

    static Timeout forever() noexcept { return Timeout(); }
    std::uint64_t nanoseconds() const noexcept { return nanoseconds_; }

private:
    template <class Rep, class Period> static std::uint64_t count(std::chrono::duration<Rep, Period> limit)
    {
        /* In floating point, whose range holds every duration. */
        const double nanoseconds = std::chrono::duration<double, std::nano>(limit).count();
        if (!(nanoseconds > 0)) /* also a duration that is not a number */
            return 0;
        if (nanoseconds >= 9.2e18)
            return nanoseconds >= 1.8e19 ? FPGA_NO_TIMEOUT : static_cast<std::uint64_t>(nanoseconds);
        return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(limit).count());
    }

    Timeout() noexcept : nanoseconds_(FPGA_NO_TIMEOUT) {}
    std::uint64_t nanoseconds_;
};

/* Elements in memory that something else owns. */
template <class T> class Span {
public:
    Span(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
    T *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    T *begin() const noexcept { return data_; }
    T *end() const noexcept { return data_ + size_; }
    T &operator[](std::size_t index) const noexcept { return data_[index]; }

private:
    T *data_;
    std::size_t size_;
};

/* Owner of a handle. */
template <class H, fpga_status (*Close)(H)> class Handle {
public:
    Handle() noexcept : handle_{0} {}
    explicit Handle(H handle) noexcept : handle_(handle) {}
    Handle(Handle &&other) noexcept : handle_(other.release()) {}
    Handle &operator=(Handle &&other) noexcept
    {
        if (this != &other) {
            if (handle_.value != 0)
                Close(handle_);
            handle_ = other.release();
        }
        return *this;
    }
    Handle(const Handle &) = delete;
    Handle &operator=(const Handle &) = delete;
    ~Handle()
    {
        if (handle_.value != 0)
            Close(handle_);
    }

    H get() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_.value != 0; }
    /* Closes the handle, and throws if that fails. The object keeps a handle that did not close. */
    void close()
    {
        check(Close(handle_));
        handle_.value = 0;
    }
    /* Gives the handle to the caller, who closes it. */
    H release() noexcept { return std::exchange(handle_, H{0}); }

protected:
    H *out() noexcept { return &handle_; }

private:
    H handle_;
};

/* Memory that a card reads and writes in place. */
class Buffer : public Handle<fpga_buffer, fpga_buffer_free> {
public:
    Buffer() = default;
    Buffer(fpga_card card, std::size_t length) { check(fpga_buffer_create(card, length, out())); }
    /* Memory of the program, in whole pages, that outlives the buffer. */
    Buffer(fpga_card card, void *data, std::size_t length) { check(fpga_buffer_register(card, data, length, out())); }

    Span<std::byte> bytes() const { return as<std::byte>(); }
    /* The memory as elements of a type without constructors. A rest that is too short for an element is left out. */
    template <class T> Span<T> as() const
    {
        void *data = nullptr;
        std::size_t length = 0;
        check(fpga_buffer_data(get(), &data, &length));
        return Span<T>(static_cast<T *>(data), length / sizeof(T));
    }
};

/* Channels and streams: submission without a copy. */
class Transfers : public Handle<fpga_channel, fpga_channel_close> {
public:
    /* Queues a transfer, and returns its ticket; empty if the ring is full: poll, then submit again. */
    std::optional<std::uint64_t> submit(const Buffer &buffer, std::size_t offset, std::size_t length,
                                        std::uint64_t card_address = 0)
    {
        std::uint64_t ticket = 0;
        fpga_status status = fpga_submit(get(), buffer.get(), offset, length, card_address, &ticket);
        return submitted(status, ticket);
    }
    std::optional<std::uint64_t> submit(const std::vector<fpga_segment> &list)
    {
        std::uint64_t ticket = 0;
        fpga_status status = fpga_submit_list(get(), list.data(), list.size(), &ticket);
        return submitted(status, ticket);
    }
    /* Starts queued transfers, and returns the number of transfers that have ended. */
    std::size_t poll()
    {
        std::size_t ended = 0;
        check(fpga_poll(get(), &ended));
        return ended;
    }
    void wait(std::uint64_t ticket, Timeout timeout) { check(fpga_wait(get(), ticket, timeout.nanoseconds())); }
    /* Returns whether the transfer was cancelled; false if it had ended. */
    bool cancel(std::uint64_t ticket)
    {
        std::uint32_t cancelled = 0;
        check(fpga_cancel(get(), ticket, &cancelled));
        return cancelled != 0;
    }
    void abort() { check(fpga_abort(get())); }
    /* Numbers of transfers that have ended since the channel was opened, and in flight. */
    std::pair<std::uint64_t, std::uint32_t> progress() const
    {
        std::pair<std::uint64_t, std::uint32_t> counts{0, 0};
        check(fpga_progress(get(), &counts.first, &counts.second));
        return counts;
    }

private:
    static std::optional<std::uint64_t> submitted(fpga_status status, std::uint64_t ticket)
    {
        if (status == FPGA_ERROR_FULL)
            return std::nullopt;
        check(status);
        return ticket;
    }
};

/* Memory-mapped DMA channel. */
class Channel : public Transfers {
public:
    Channel() = default;
    Channel(fpga_card card, fpga_direction direction, std::uint32_t number)
    {
        check(fpga_channel_open(card, direction, number, out()));
    }
    Channel(fpga_card card, fpga_direction direction, std::uint32_t number, const fpga_channel_options &options)
    {
        check(fpga_channel_open_with(card, direction, number, &options, sizeof options, out()));
    }

    void write(std::uint64_t card_address, const void *data, std::size_t length, Timeout timeout)
    {
        check(fpga_write(get(), card_address, data, length, timeout.nanoseconds()));
    }
    void read(std::uint64_t card_address, void *data, std::size_t length, Timeout timeout)
    {
        check(fpga_read(get(), card_address, data, length, timeout.nanoseconds()));
    }
};

/* AXI4-Stream channel. */
class Stream : public Transfers {
public:
    Stream() = default;
    Stream(fpga_card card, fpga_direction direction, std::uint32_t number, const fpga_stream_options &options = {})
    {
        check(fpga_stream_open(card, direction, number, &options, sizeof options, out()));
    }

    /* Sends one packet, and waits until the card has taken it. */
    void send(const void *data, std::size_t length, Timeout timeout)
    {
        check(fpga_stream_send(get(), data, length, timeout.nanoseconds()));
    }
    /* Takes the next packet, and returns its length, 0 if none has arrived. */
    std::size_t next()
    {
        std::size_t length = 0;
        check(fpga_stream_next(get(), &length));
        return length;
    }
    /* Waits for the next packet, and returns its length. */
    std::size_t next(Timeout timeout)
    {
        std::size_t length = 0;
        check(fpga_stream_wait(get(), timeout.nanoseconds(), nullptr, 0, &length));
        return length;
    }
    /* The current packet in the memory that the card has written, valid until the next call that takes or gives back packets. */
    std::vector<Span<const std::byte>> pieces() const
    {
        std::size_t count = 0;
        check(fpga_stream_pieces(get(), nullptr, 0, &count));
        std::vector<fpga_piece> found(count);
        check(fpga_stream_pieces(get(), found.data(), count, &count));
        std::vector<Span<const std::byte>> spans;
        for (const fpga_piece &piece : found)
            spans.emplace_back(static_cast<const std::byte *>(piece.data), piece.length);
        return spans;
    }
    /* Copies a part of the current packet. */
    void copy(std::size_t offset, void *data, std::size_t length) const
    {
        check(fpga_stream_copy(get(), offset, data, length));
    }
    void release() { check(fpga_stream_release(get())); }
    void stop() { check(fpga_stream_stop(get())); }
    fpga_stream_statistics statistics() const
    {
        fpga_stream_statistics statistics{};
        check(fpga_stream_get_statistics(get(), &statistics, sizeof statistics));
        return statistics;
    }
};

/* Lines by which the design interrupts the host. */
class Interrupt : public Handle<fpga_interrupt, fpga_interrupt_close> {
public:
    Interrupt() = default;
    Interrupt(fpga_card card, std::initializer_list<std::uint32_t> lines)
    {
        check(fpga_interrupt_open(card, lines.begin(), lines.size(), out()));
    }

    /* Waits for an interrupt, and returns the lines as bits. */
    std::uint32_t wait(Timeout timeout) const
    {
        std::uint32_t lines = 0;
        check(fpga_interrupt_wait(get(), timeout.nanoseconds(), &lines, nullptr));
        return lines;
    }
    /* Takes the interrupts that have arrived, and returns the lines as bits. */
    std::uint32_t take() const
    {
        std::uint32_t lines = 0;
        check(fpga_interrupt_take(get(), &lines, nullptr));
        return lines;
    }
    void rearm(std::uint32_t line) const { check(fpga_interrupt_rearm(get(), line)); }
    void enable(std::uint32_t line, bool enabled) const { check(fpga_interrupt_enable(get(), line, enabled ? 1 : 0)); }
    /* File descriptor for poll() and epoll, which belongs to this object. */
    int fd() const
    {
        int fd = -1;
        check(fpga_interrupt_fd(get(), &fd));
        return fd;
    }
};

/* Copies inside the card (AXI CDMA). */
class Cdma : public Handle<fpga_cdma, fpga_cdma_close> {
public:
    Cdma() = default;
    explicit Cdma(fpga_card card) { check(fpga_cdma_open(card, out())); }
    void copy(std::uint64_t source, std::uint64_t destination, std::uint64_t length, Timeout timeout)
    {
        check(fpga_cdma_copy(get(), source, destination, length, timeout.nanoseconds()));
    }
};

class Card : public Handle<fpga_card, fpga_close> {
public:
    Card() = default;
    /* Opens a card by a name, as fpga_open describes it. */
    explicit Card(const std::string &name) { check(fpga_open(name.c_str(), out())); }
    explicit Card(fpga_card card) noexcept : Handle(card) {}

    fpga_card_info info() const
    {
        fpga_card_info info{};
        check(fpga_get_info(get(), &info, sizeof info));
        return info;
    }
    std::string name() const
    {
        std::array<char, 4096> name{};
        check(fpga_get_name(get(), name.data(), name.size()));
        return name.data();
    }
    /* Enables interrupts, before channels are opened that wait by interrupt. Returns the number of vectors. */
    std::uint32_t enable_interrupts() const
    {
        std::uint32_t vectors = 0;
        check(fpga_enable_interrupts(get(), &vectors));
        return vectors;
    }

    std::uint32_t read32(fpga_bar bar, std::uint64_t offset) const
    {
        std::uint32_t value = 0;
        check(fpga_read32(get(), bar, offset, &value));
        return value;
    }
    std::uint64_t read64(fpga_bar bar, std::uint64_t offset) const
    {
        std::uint64_t value = 0;
        check(fpga_read64(get(), bar, offset, &value));
        return value;
    }
    void write32(fpga_bar bar, std::uint64_t offset, std::uint32_t value) const
    {
        check(fpga_write32(get(), bar, offset, value));
    }
    void write64(fpga_bar bar, std::uint64_t offset, std::uint64_t value) const
    {
        check(fpga_write64(get(), bar, offset, value));
    }

    Buffer buffer(std::size_t length) const { return Buffer(get(), length); }
    Channel h2c(std::uint32_t number) const { return Channel(get(), FPGA_H2C, number); }
    Channel c2h(std::uint32_t number) const { return Channel(get(), FPGA_C2H, number); }
    Stream h2c_stream(std::uint32_t number, const fpga_stream_options &options = {}) const
    {
        return Stream(get(), FPGA_H2C, number, options);
    }
    Stream c2h_stream(std::uint32_t number, const fpga_stream_options &options = {}) const
    {
        return Stream(get(), FPGA_C2H, number, options);
    }
    Interrupt interrupt(std::initializer_list<std::uint32_t> lines) const { return Interrupt(get(), lines); }
    Cdma cdma() const { return Cdma(get()); }
};

/* Registers of a design by name. */
class Map : public Handle<fpga_map, fpga_map_close> {
public:
    Map() = default;
    explicit Map(const std::string &file) { check(fpga_map_load(file.c_str(), out())); }

    std::uint32_t read(const Card &card, const std::string &name) const
    {
        std::uint32_t value = 0;
        check(fpga_map_read(get(), card.get(), name.c_str(), &value));
        return value;
    }
    /* Reads a register whose read has side effects. */
    std::uint32_t take(const Card &card, const std::string &name) const
    {
        std::uint32_t value = 0;
        check(fpga_map_take(get(), card.get(), name.c_str(), &value));
        return value;
    }
    void write(const Card &card, const std::string &name, std::uint32_t value) const
    {
        check(fpga_map_write(get(), card.get(), name.c_str(), value));
    }
    void set(const Card &card, const std::string &name, const std::string &value) const
    {
        check(fpga_map_set(get(), card.get(), name.c_str(), value.c_str()));
    }
};

/* Simulated cards, for tests. */
class Network : public Handle<fpga_network, fpga_network_close> {
public:
    explicit Network(const fpga_network_options &options = {})
    {
        check(fpga_network_create(&options, sizeof options, out()));
    }

    Card card(std::uint32_t index) const
    {
        fpga_card card{0};
        check(fpga_network_open(get(), index, &card));
        return Card(card);
    }
    void set_faults(std::uint32_t index, const std::string &yaml) const
    {
        check(fpga_network_set_faults(get(), index, yaml.c_str()));
    }
    void fail(std::uint32_t index, fpga_card_failure failure) const { check(fpga_network_fail(get(), index, failure)); }
    void set_user_interrupt(std::uint32_t index, std::uint32_t line, bool asserted) const
    {
        check(fpga_network_set_user_interrupt(get(), index, line, asserted ? 1 : 0));
    }
    void peek(std::uint32_t index, std::uint64_t address, void *data, std::size_t length) const
    {
        check(fpga_network_peek(get(), index, address, data, length));
    }
    void poke(std::uint32_t index, std::uint64_t address, const void *data, std::size_t length) const
    {
        check(fpga_network_poke(get(), index, address, data, length));
    }
    /* Does one unit of work; false if there is none. */
    bool step() const
    {
        std::uint32_t worked = 0;
        check(fpga_network_step(get(), &worked));
        return worked != 0;
    }
    void settle() const { check(fpga_network_settle(get(), nullptr)); }
    void advance(std::chrono::nanoseconds span) const
    {
        check(fpga_network_advance(get(), static_cast<std::uint64_t>(span.count() < 0 ? 0 : span.count())));
    }
};

} // namespace fpga

#endif // FPGA_HPP
