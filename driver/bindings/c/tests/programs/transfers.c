/* Buffers of a card, used by several channels; memory of the program; lists; cancelling; failures; the file descriptor. */
#include "check.h"
#include <poll.h>

enum { PAGE = 4096, PAGES = 16 };

static void share_buffer(fpga_card card, fpga_channel h2c, fpga_channel c2h)
{
    fpga_buffer buffer;
    void *data;
    size_t length, ended;
    uint64_t ticket, count;
    uint32_t in_flight;
    unsigned char *bytes;
    DO(fpga_buffer_create(card, 2 * PAGE, &buffer));
    DO(fpga_buffer_data(buffer, &data, &length));
    HOLDS(length >= 2 * PAGE);
    bytes = (unsigned char *)data;
    memset(bytes, 0x5a, PAGE);
    DO(fpga_submit(h2c, buffer, 0, PAGE, 0x4000, &ticket));
    EXPECT(fpga_buffer_free(buffer), FPGA_ERROR_IN_USE);
    DO(fpga_wait(h2c, ticket, FPGA_NO_TIMEOUT));
    /* The same buffer on the other channel. */
    DO(fpga_submit(c2h, buffer, PAGE, PAGE, 0x4000, &ticket));
    DO(fpga_progress(c2h, NULL, &in_flight));
    HOLDS(in_flight == 1);
    EXPECT(fpga_buffer_free(buffer), FPGA_ERROR_IN_USE);
    DO(fpga_wait(c2h, ticket, SECOND));
    HOLDS(memcmp(bytes, bytes + PAGE, PAGE) == 0);
    /* Freeing ended the registration with the first channel; it comes back. */
    DO(fpga_submit(h2c, buffer, 0, 64, 0x8000, &ticket));
    DO(fpga_poll(h2c, &ended));
    DO(fpga_wait(h2c, ticket, SECOND));
    DO(fpga_progress(h2c, &count, &in_flight));
    HOLDS(count == ticket + 1 && in_flight == 0);
    DO(fpga_buffer_free(buffer));
    EXPECT(fpga_submit(h2c, buffer, 0, 64, 0x8000, NULL), FPGA_ERROR_HANDLE);
    EXPECT(fpga_submit(c2h, buffer, 0, 64, 0x8000, NULL), FPGA_ERROR_HANDLE);
}

static void register_memory(fpga_card card, fpga_channel h2c, fpga_channel c2h)
{
    void *memory = aligned_alloc(PAGE, PAGES * PAGE), *data;
    unsigned char *bytes = (unsigned char *)memory;
    fpga_segment list[4];
    fpga_buffer buffer;
    uint64_t ticket;
    size_t n;
    HOLDS(memory != NULL);
    for (n = 0; n < PAGES * PAGE; n++)
        bytes[n] = (unsigned char)(n / PAGE);
    EXPECT(fpga_buffer_register(card, bytes + 8, PAGE, &buffer), FPGA_ERROR_ARGUMENT);
    HOLDS(buffer.value == 0);
    EXPECT(fpga_buffer_register(card, bytes, 100, &buffer), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_buffer_register(card, NULL, PAGE, &buffer), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_buffer_register(card, bytes, 0, &buffer), FPGA_ERROR_ARGUMENT);
    DO(fpga_buffer_register(card, memory, PAGES * PAGE, &buffer));
    DO(fpga_buffer_data(buffer, &data, NULL));
    HOLDS(data == memory);
    /* Gather: pages 3, 1, 2 and half of page 0, to one place. */
    for (n = 0; n < 4; n++) {
        list[n].buffer = buffer;
        list[n].offset = (n == 3 ? 0 : n == 0 ? 3 : n) * PAGE;
        list[n].length = n == 3 ? PAGE / 2 : PAGE;
        list[n].card_address = 0x100000 + n * PAGE;
    }
    DO(fpga_submit_list(h2c, list, 4, &ticket));
    DO(fpga_wait(h2c, ticket, SECOND));
    memset(bytes + 8 * PAGE, 0xff, 4 * PAGE);
    DO(fpga_submit(c2h, buffer, 8 * PAGE, 3 * PAGE + PAGE / 2, 0x100000, &ticket));
    DO(fpga_wait(c2h, ticket, SECOND));
    HOLDS(bytes[8 * PAGE] == 3 && bytes[9 * PAGE] == 1 && bytes[10 * PAGE] == 2 && bytes[11 * PAGE] == 0);
    HOLDS(bytes[11 * PAGE + PAGE / 2] == 0xff);
    /* Destinations that overlap. */
    list[1].card_address = list[0].card_address + 64;
    EXPECT(fpga_submit_list(h2c, list, 2, &ticket), FPGA_ERROR_RANGE);
    EXPECT(fpga_submit_list(h2c, NULL, 2, &ticket), FPGA_ERROR_ARGUMENT);
    DO(fpga_buffer_free(buffer));
    EXPECT(fpga_submit_list(h2c, list, 1, &ticket), FPGA_ERROR_HANDLE);
    free(memory);
}

static void fail_and_cancel(fpga_card card, fpga_channel h2c)
{
    fpga_buffer buffer;
    uint64_t first, second, failed;
    uint32_t cancelled;
    DO(fpga_buffer_create(card, PAGE, &buffer));
    DO(fpga_next_failure(h2c, &failed));
    HOLDS(failed == UINT64_MAX);
    DO(fpga_submit(h2c, buffer, 0, 64, 0x1000, &first));
    DO(fpga_submit(h2c, buffer, 64, 64, 0x2000, &second));
    DO(fpga_cancel(h2c, first, &cancelled));
    HOLDS(cancelled == 1);
    EXPECT(fpga_wait(h2c, second, SECOND), FPGA_ERROR_FAULT);
    HOLDS(fpga_last_error()->part == FPGA_PART_H2C && fpga_last_error()->part_number == 0);
    /* The failure is reported once by a wait, and stays for fpga_next_failure. */
    DO(fpga_wait(h2c, second, SECOND));
    EXPECT(fpga_next_failure(h2c, &failed), FPGA_ERROR_FAULT);
    HOLDS(failed == first);
    DO(fpga_next_failure(h2c, &failed));
    DO(fpga_cancel(h2c, second, &cancelled));
    HOLDS(cancelled == 0);
    EXPECT(fpga_cancel(h2c, 1000000, &cancelled), FPGA_ERROR_TICKET);
    DO(fpga_submit(h2c, buffer, 0, PAGE, 0x1000, NULL));
    DO(fpga_abort(h2c));
    DO(fpga_buffer_free(buffer));
}

static void use_interrupts(fpga_card card)
{
    fpga_channel_options options;
    fpga_wait_options wait;
    struct pollfd polled;
    fpga_channel h2c;
    fpga_buffer buffer;
    uint64_t ticket, count = 0, ended = 0;
    uint32_t vectors = 0;
    char byte = 1;
    int fd = 0, n;
    memset(&options, 0, sizeof options);
    memset(&wait, 0, sizeof wait);
    DO(fpga_channel_open(card, FPGA_H2C, 1, &h2c));
    EXPECT(fpga_channel_fd(h2c, &fd), FPGA_ERROR_UNSUPPORTED);
    HOLDS(fd == -1);
    wait.mode = FPGA_WAIT_INTERRUPT;
    EXPECT(fpga_write_with(h2c, 0, &byte, 1, SECOND, &wait, sizeof wait), FPGA_ERROR_UNSUPPORTED);
    DO(fpga_channel_close(h2c));
    DO(fpga_enable_interrupts(card, &vectors));
    HOLDS(vectors > 0);
    options.descriptors = 100;
    EXPECT(fpga_channel_open_with(card, FPGA_H2C, 1, &options, sizeof options, &h2c), FPGA_ERROR_ARGUMENT);
    options.descriptors = 64;
    options.transfers = 32;
    options.run_mode = 7;
    EXPECT(fpga_channel_open_with(card, FPGA_H2C, 1, &options, sizeof options, &h2c), FPGA_ERROR_ARGUMENT);
    options.run_mode = FPGA_RUN_CREDIT;
    DO(fpga_channel_open_with(card, FPGA_H2C, 1, &options, sizeof options, &h2c));
    DO(fpga_write_with(h2c, 0, &byte, 1, SECOND, &wait, sizeof wait));
    wait.mode = 9;
    EXPECT(fpga_write_with(h2c, 0, &byte, 1, SECOND, &wait, sizeof wait), FPGA_ERROR_ARGUMENT);
    wait.mode = FPGA_WAIT_HYBRID;
    wait.spin_ns = 1000;
    DO(fpga_buffer_create(card, PAGE, &buffer));
    DO(fpga_submit(h2c, buffer, 0, PAGE, 0, &ticket));
    DO(fpga_wait_with(h2c, ticket, SECOND, &wait, sizeof wait));
    /* The file descriptor becomes readable for the completion. */
    DO(fpga_channel_fd(h2c, &fd));
    DO(fpga_channel_take(h2c, &count));
    DO(fpga_channel_arm(h2c));
    DO(fpga_submit(h2c, buffer, 0, PAGE, 0, &ticket));
    for (n = 0; n < 1000 && ended <= ticket; n++) {
        polled.fd = fd;
        polled.events = POLLIN;
        DO(fpga_poll(h2c, NULL));
        DO(fpga_progress(h2c, &ended, NULL));
        poll(&polled, 1, 0);
    }
    HOLDS(ended > ticket);
    DO(fpga_channel_take(h2c, &count));
    HOLDS(count == 1);
    DO(fpga_channel_disarm(h2c));
    DO(fpga_buffer_free(buffer));
    DO(fpga_channel_close(h2c));
}

static void open_with_options(void)
{
    fpga_open_options options;
    fpga_channel channel;
    fpga_card card;
    uint32_t value;
    memset(&options, 0, sizeof options);
    options.network_interface = 9;
    EXPECT(fpga_open_with("mock", &options, sizeof options, &card), FPGA_ERROR_ARGUMENT);
    HOLDS(card.value == 0);
    options.network_interface = FPGA_INTERFACE_DETECT;
    options.dma_bar_plus_1 = 6;
    EXPECT(fpga_open_with("mock", &options, sizeof options, &card), FPGA_ERROR_OPEN);
    HOLDS(strstr(fpga_last_error()->advice, "dma_bar_plus_1") != NULL);
    options.dma_bar_plus_1 = 0;
    options.observe = 1;
    DO(fpga_open_with("mock", &options, sizeof options, &card));
    DO(fpga_read32(card, FPGA_BAR_DMA, 0x2000, &value));
    EXPECT(fpga_channel_open(card, FPGA_H2C, 0, &channel), FPGA_ERROR_UNSUPPORTED);
    HOLDS(strstr(fpga_last_error()->advice, "observe") != NULL);
    DO(fpga_close(card));
}

int main(void)
{
    fpga_card card;
    fpga_channel h2c, c2h;
    uint64_t start, length;
    fpga_card_info info;
    char large[sizeof info + 8];
    DO(fpga_open("mock", &card));
    DO(fpga_get_info(card, &info, sizeof info));
    HOLDS(info.vendor == 0x10ee && info.user_bar == 1 && info.cdma == 1);
    memset(large, 0xff, sizeof large);
    DO(fpga_get_info(card, (fpga_card_info *)(void *)large, sizeof large));
    HOLDS(large[sizeof info] == 0 && large[sizeof info + 7] == 0);
    DO(fpga_get_memory_range(card, 0, &start, &length));
    HOLDS(start == info.memory_start && length == info.memory_length);
    EXPECT(fpga_get_memory_range(card, 1000, &start, &length), FPGA_ERROR_RANGE);
    DO(fpga_channel_open(card, FPGA_H2C, 0, &h2c));
    DO(fpga_channel_open(card, FPGA_C2H, 0, &c2h));
    share_buffer(card, h2c, c2h);
    register_memory(card, h2c, c2h);
    fail_and_cancel(card, h2c);
    use_interrupts(card);
    DO(fpga_channel_close(h2c));
    DO(fpga_channel_close(c2h));
    DO(fpga_close(card));
    open_with_options();
    puts("transfers work");
    return 0;
}
