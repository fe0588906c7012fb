/*
 * Sends packets of samples through the filter on the card, and compares the result with a filter in C.
 *
 *     ./host rtl:model
 */
#include <fpga.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* Ends the program with the message and the advice of the library if a call fails. */
static void check(fpga_status status)
{
    if (status == FPGA_OK)
        return;
    fprintf(stderr, "%s\nhelp: %s\n", fpga_last_error()->message, fpga_last_error()->advice);
    exit(1);
}

/* filter.yaml */
enum { TAPS = 0x00, STATUS = 0x10, PACKETS = 0x14, PACKET = 1 };

enum { MAX_SAMPLES = 2000 };

static const uint32_t taps[4] = {1, 3, 3, 1};

static uint32_t filtered(const uint32_t *samples, size_t n)
{
    uint32_t sum = 0;
    for (size_t tap = 0; tap < 4 && tap <= n; tap++)
        sum += taps[tap] * samples[n - tap];
    return sum;
}

int main(int argc, char **argv)
{
    static uint32_t samples[MAX_SAMPLES], result[MAX_SAMPLES];
    const size_t counts[3] = {1, 7, MAX_SAMPLES};
    uint32_t line = 0, lines, packets;
    uint64_t interrupts[FPGA_USER_LINES];
    size_t length;
    fpga_card card;
    fpga_channel tx, rx;
    fpga_interrupt interrupt;

    if (argc < 2)
        return 2;
    check(fpga_open(argv[1], &card));
    for (uint64_t tap = 0; tap < 4; tap++)
        check(fpga_write32(card, FPGA_BAR_USER, TAPS + 4 * tap, taps[tap]));
    check(fpga_interrupt_open(card, &line, 1, &interrupt));
    check(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &tx));
    check(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &rx));
    /* The first call posts the buffers: without them the filter's output waits. */
    check(fpga_stream_next(rx, &length));

    for (size_t n = 0; n < MAX_SAMPLES; n++)
        samples[n] = (uint32_t)(n * n);
    for (size_t packet = 0; packet < 3; packet++) {
        size_t bytes = counts[packet] * sizeof *samples;
        check(fpga_stream_send(tx, samples, bytes, 10 * SECOND));
        check(fpga_interrupt_wait(interrupt, 10 * SECOND, &lines, interrupts));
        check(fpga_stream_wait(rx, 10 * SECOND, NULL, 0, &length));
        if (length != bytes) {
            fprintf(stderr, "%zu bytes instead of %zu\n", length, bytes);
            return 1;
        }
        check(fpga_stream_copy(rx, 0, result, length));
        for (size_t n = 0; n < counts[packet]; n++)
            if (result[n] != filtered(samples, n)) {
                fprintf(stderr, "sample %zu is %u instead of %u\n", n, result[n], filtered(samples, n));
                return 1;
            }
        /* Clear the cause, then let the line interrupt again. */
        check(fpga_write32(card, FPGA_BAR_USER, STATUS, PACKET));
        check(fpga_interrupt_rearm(interrupt, line));
        printf("packet of %zu samples: right\n", counts[packet]);
    }
    check(fpga_read32(card, FPGA_BAR_USER, PACKETS, &packets));
    printf("%u packets\n", packets);
    check(fpga_channel_close(rx));
    check(fpga_channel_close(tx));
    check(fpga_interrupt_close(interrupt));
    check(fpga_close(card));
    return 0;
}
