/* User interrupts of a simulated card with a thread of its own; copies inside the card; recovery. */
#include "check.h"
#include <poll.h>
#include <pthread.h>

static fpga_interrupt waited;

static void *wait_for_line(void *argument)
{
    uint32_t lines = 0;
    (void)argument;
    DO(fpga_interrupt_wait(waited, 10 * SECOND, &lines, NULL));
    HOLDS(lines == 1u << 3);
    return NULL;
}

static void use_lines(fpga_network network, fpga_card card)
{
    uint32_t wanted[2] = {3, 7}, wrong = 16, lines, acknowledged;
    uint64_t counts[FPGA_USER_LINES], count;
    fpga_interrupt interrupt, again;
    fpga_user_lines states;
    struct pollfd polled;
    pthread_t thread;
    int32_t delivery;
    EXPECT(fpga_interrupt_open(card, &wrong, 1, &interrupt), FPGA_ERROR_UNSUPPORTED);
    EXPECT(fpga_interrupt_open(card, wanted, 0, &interrupt), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_interrupt_open(card, NULL, 1, &interrupt), FPGA_ERROR_ARGUMENT);
    DO(fpga_interrupt_open(card, wanted, 2, &interrupt));
    EXPECT(fpga_interrupt_open(card, wanted, 1, &again), FPGA_ERROR_IN_USE);
    EXPECT(fpga_interrupt_wait(interrupt, 1000000, &lines, counts), FPGA_ERROR_TIMED_OUT);
    DO(fpga_network_set_user_interrupt(network, 0, 7, 1));
    DO(fpga_interrupt_wait(interrupt, FPGA_NO_TIMEOUT, &lines, counts));
    HOLDS(lines == 1u << 7 && counts[7] == 1 && counts[3] == 0);
    DO(fpga_get_user_lines(card, &states, sizeof states));
    HOLDS(states.lines[7].enabled == 1 && states.lines[7].pending == 1 && states.lines[3].pending == 0);
    DO(fpga_network_set_user_interrupt(network, 0, 7, 0));
    DO(fpga_interrupt_rearm(interrupt, 7));
    EXPECT(fpga_interrupt_rearm(interrupt, 4), FPGA_ERROR_RANGE);
    DO(fpga_interrupt_get_count(interrupt, 7, &count, &delivery));
    HOLDS(count >= 1 && delivery == FPGA_DELIVERY_MESSAGE);
    DO(fpga_interrupt_take(interrupt, &lines, NULL));
    /* The file descriptor. */
    DO(fpga_interrupt_fd(interrupt, &polled.fd));
    polled.events = POLLIN;
    DO(fpga_network_pulse_user_interrupt(network, 0, 3, &acknowledged));
    HOLDS(poll(&polled, 1, 10000) == 1);
    DO(fpga_interrupt_take(interrupt, &lines, counts));
    HOLDS(lines == 1u << 3 && counts[3] == 1);
    EXPECT(fpga_network_pulse_user_interrupt(network, 0, 16, NULL), FPGA_ERROR_RANGE);
    EXPECT(fpga_network_pulse_user_interrupt(network, 9, 3, NULL), FPGA_ERROR_RANGE);
    /* A masked line. */
    DO(fpga_interrupt_enable(interrupt, 7, 0));
    EXPECT(fpga_interrupt_wait(interrupt, SECOND, &lines, NULL), FPGA_ERROR_ARGUMENT);
    DO(fpga_interrupt_enable(interrupt, 7, 1));
    /* Another thread waits while this one closes the handle: its wait ends as usual. */
    waited = interrupt;
    pthread_create(&thread, NULL, wait_for_line, NULL);
    DO(fpga_network_set_user_interrupt(network, 0, 3, 1));
    pthread_join(thread, NULL);
    DO(fpga_interrupt_close(interrupt));
    EXPECT(fpga_interrupt_take(interrupt, &lines, NULL), FPGA_ERROR_HANDLE);
    HOLDS(lines == 0);
    DO(fpga_interrupt_open(card, wanted, 1, &again));
    DO(fpga_interrupt_close(again));
}

static void copy(fpga_network network, fpga_card card)
{
    fpga_cdma cdma, again;
    uint32_t status, idle, failed;
    char text[16] = "";
    DO(fpga_network_poke(network, 0, 0x10000, "inside the card", 16));
    DO(fpga_cdma_open(card, &cdma));
    EXPECT(fpga_cdma_open(card, &again), FPGA_ERROR_IN_USE);
    DO(fpga_cdma_copy(cdma, 0x10000, 0x40000, 16, 10 * SECOND));
    DO(fpga_cdma_copy(cdma, 0x10000, 0x50000, 16, FPGA_NO_TIMEOUT));
    DO(fpga_network_peek(network, 0, 0x40000, text, sizeof text));
    HOLDS(strcmp(text, "inside the card") == 0);
    EXPECT(fpga_cdma_copy(cdma, 0x10000, 0x10040, 4096, SECOND), FPGA_ERROR_RANGE);
    DO(fpga_network_poison(network, 0, 0x80000, 64));
    EXPECT(fpga_cdma_copy(cdma, 0x80000, 0x90000, 4096, 10 * SECOND), FPGA_ERROR_FAULT);
    HOLDS(fpga_last_error()->part == FPGA_PART_CDMA && fpga_last_error()->card_address == 0x90000);
    HOLDS(fpga_last_error()->length == 4096);
    DO(fpga_cdma_get_status(cdma, &status, &idle, &failed));
    HOLDS(failed == 0);
    DO(fpga_cdma_reset(cdma));
    DO(fpga_cdma_close(cdma));
    EXPECT(fpga_cdma_reset(cdma), FPGA_ERROR_HANDLE);
    EXPECT(fpga_network_peek(network, 0, UINT64_MAX - 4, text, 4), FPGA_ERROR_RANGE);
}

static void ring(fpga_network network, fpga_card card)
{
    fpga_cdma_ring_options options;
    fpga_wait_options wait;
    fpga_copy parts[2] = {{0x10000, 0x60000, 6}, {0x10007, 0x60006, 9}};
    char text[16] = "";
    fpga_cdma cdma;
    uint64_t ticket, ended, failed, n;
    uint32_t in_flight;
    memset(&options, 0, sizeof options);
    memset(&wait, 0, sizeof wait);
    DO(fpga_cdma_open(card, &cdma));
    EXPECT(fpga_cdma_ring_submit(cdma, parts, 2, &ticket), FPGA_ERROR_ARGUMENT);
    HOLDS(ticket == UINT64_MAX);
    options.base = 0x100000;
    options.descriptors = 100;
    EXPECT(fpga_cdma_ring_start(cdma, &options, sizeof options), FPGA_ERROR_ARGUMENT);
    options.descriptors = 64;
    options.user_interrupt_plus_1 = 1;
    DO(fpga_cdma_ring_start(cdma, &options, sizeof options));
    EXPECT(fpga_cdma_ring_start(cdma, &options, sizeof options), FPGA_ERROR_IN_USE);
    EXPECT(fpga_cdma_copy(cdma, 0x10000, 0x40000, 16, SECOND), FPGA_ERROR_IN_USE);
    DO(fpga_cdma_ring_submit(cdma, parts, 2, &ticket));
    wait.mode = FPGA_WAIT_INTERRUPT;
    DO(fpga_cdma_ring_wait(cdma, ticket, 10 * SECOND, &wait, sizeof wait));
    DO(fpga_cdma_ring_wait(cdma, ticket, 0, NULL, 0));
    DO(fpga_network_peek(network, 0, 0x60000, text, 15));
    HOLDS(strcmp(text, "insidethe card") == 0);
    for (n = 0; n < 500; n++) {
        fpga_status status;
        while ((status = fpga_cdma_ring_submit(cdma, parts, 2, &ticket)) == FPGA_ERROR_FULL)
            DO(fpga_cdma_ring_poll(cdma, NULL, NULL));
        DO(status);
    }
    do
        DO(fpga_cdma_ring_poll(cdma, &ended, &in_flight));
    while (ended <= ticket);
    HOLDS(in_flight == 0);
    DO(fpga_cdma_ring_next_failure(cdma, &failed));
    HOLDS(failed == UINT64_MAX);
    parts[0].source = 0x80000;
    DO(fpga_cdma_ring_submit(cdma, parts, 1, &ticket));
    EXPECT(fpga_cdma_ring_wait(cdma, ticket, 10 * SECOND, NULL, 0), FPGA_ERROR_FAULT);
    HOLDS(fpga_last_error()->part == FPGA_PART_CDMA_RING);
    EXPECT(fpga_cdma_ring_next_failure(cdma, &failed), FPGA_ERROR_FAULT);
    HOLDS(failed == ticket);
    parts[0].destination = UINT64_MAX - 2;
    EXPECT(fpga_cdma_ring_submit(cdma, parts, 1, &ticket), FPGA_ERROR_RANGE);
    EXPECT(fpga_cdma_ring_wait(cdma, 1000000, SECOND, NULL, 0), FPGA_ERROR_TICKET);
    DO(fpga_cdma_ring_abort(cdma));
    DO(fpga_cdma_ring_stop(cdma));
    EXPECT(fpga_cdma_ring_stop(cdma), FPGA_ERROR_ARGUMENT);
    DO(fpga_cdma_copy(cdma, 0x10000, 0x40000, 16, 10 * SECOND));
    DO(fpga_cdma_close(cdma));
}

static void recover(fpga_network network, fpga_card card)
{
    fpga_recovery_options options;
    fpga_recovery_report report;
    fpga_channel h2c;
    char text[4096];
    uint32_t value;
    memset(&options, 0, sizeof options);
    DO(fpga_channel_open(card, FPGA_H2C, 0, &h2c));
    EXPECT(fpga_recover(card, NULL, 0, NULL, 0, NULL, 0), FPGA_ERROR_IN_USE);
    HOLDS(strstr(fpga_last_error()->advice, "force") != NULL);
    DO(fpga_channel_close(h2c));
    DO(fpga_recover(card, NULL, 0, &report, sizeof report, text, sizeof text));
    HOLDS(report.well == 1 && report.reopen == 0 && report.step_count > 4);
    HOLDS(report.steps[0].outcome == FPGA_RECOVERY_NOT_NEEDED && strstr(text, "the card works") != NULL);
    options.at_least = FPGA_RECOVERY_BUS;
    DO(fpga_recover(card, &options, sizeof options, &report, sizeof report, NULL, 0));
    HOLDS(report.well == 1 && report.reopen == 1 && report.steps[report.step_count - 1].part == FPGA_RECOVERY_BUS_RESET);
    EXPECT(fpga_channel_open(card, FPGA_H2C, 0, &h2c), FPGA_ERROR_GONE);
    options.at_least = 9;
    EXPECT(fpga_recover(card, &options, sizeof options, NULL, 0, NULL, 0), FPGA_ERROR_ARGUMENT);
    /* A card that has left the bus. */
    DO(fpga_close(card));
    DO(fpga_network_open(network, 0, &card));
    DO(fpga_network_fail(network, 0, FPGA_FAILURE_GONE));
    EXPECT(fpga_recover(card, NULL, 0, NULL, 0, NULL, 0), FPGA_ERROR_GONE);
    EXPECT(fpga_read32(card, FPGA_BAR_DMA, 0, &value), FPGA_ERROR_GONE);
    HOLDS(value == UINT32_MAX);
    DO(fpga_close(card));
    EXPECT(fpga_network_open(network, 0, &card), FPGA_ERROR_GONE);
    HOLDS(card.value == 0);
    DO(fpga_recover_named("mock", NULL, 0, &report, sizeof report, text, sizeof text));
    HOLDS(report.well == 1);
    EXPECT(fpga_recover_named("no card", NULL, 0, NULL, 0, NULL, 0), FPGA_ERROR_OPEN);
    EXPECT(fpga_recover_named(NULL, NULL, 0, NULL, 0, NULL, 0), FPGA_ERROR_ARGUMENT);
    DO(fpga_network_replug(network, 0));
    DO(fpga_network_open(network, 0, &card));
    DO(fpga_close(card));
}

int main(void)
{
    fpga_network_options options;
    fpga_network network;
    fpga_card card;
    memset(&options, 0, sizeof options);
    options.threaded = 1;
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &card));
    use_lines(network, card);
    copy(network, card);
    ring(network, card);
    recover(network, card);
    DO(fpga_network_close(network));
    puts("interrupts, copies and recovery work");
    return 0;
}
