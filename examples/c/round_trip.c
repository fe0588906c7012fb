/*
 * Data to a card and back without a copy: 64 transfers from one buffer, then 64 into another.
 *
 *     ./round_trip [CARD]        such as 0000:65:00.0; default: a simulated card
 */
#include "check.h"
#include <string.h>

enum { PART = 4096, PARTS = 64, ADDRESS = 0x10000 };

/* Transfers every part of a buffer, and waits for the last one: transfers of a channel end in order. */
static void transfer(fpga_channel channel, fpga_buffer buffer)
{
    uint64_t ticket = 0;
    for (size_t n = 0; n < PARTS; n++) {
        fpga_status status;
        /* A full ring is no failure: fpga_poll starts what is queued, and makes space. */
        while ((status = fpga_submit(channel, buffer, n * PART, PART, ADDRESS + n * PART, &ticket)) == FPGA_ERROR_FULL)
            check(fpga_poll(channel, NULL));
        check(status);
    }
    check(fpga_wait(channel, ticket, 10 * SECOND));
}

int main(int argc, char **argv)
{
    fpga_card card;
    fpga_channel h2c, c2h;
    fpga_buffer source, target;
    void *sent, *found;
    size_t length;

    check(fpga_open(argc > 1 ? argv[1] : "mock", &card));
    /* A channel has one owner. "H2C": from host to card; "C2H": from card to host. */
    check(fpga_channel_open(card, FPGA_H2C, 0, &h2c));
    check(fpga_channel_open(card, FPGA_C2H, 0, &c2h));

    /* Buffers are memory that the card reads and writes itself. The program uses it in place, except during a transfer. */
    check(fpga_buffer_create(card, PART * PARTS, &source));
    check(fpga_buffer_create(card, PART * PARTS, &target));
    check(fpga_buffer_data(source, &sent, &length));
    check(fpga_buffer_data(target, &found, NULL));
    for (size_t n = 0; n < length; n++)
        ((unsigned char *)sent)[n] = (unsigned char)(n * 7 + n / 256);

    transfer(h2c, source);
    transfer(c2h, target);
    if (memcmp(sent, found, PART * PARTS) != 0) {
        fprintf(stderr, "the data differs\n");
        return 1;
    }
    printf("%d transfers of %d bytes to the card and back\n", PARTS, PART);

    check(fpga_buffer_free(source));
    check(fpga_buffer_free(target));
    check(fpga_channel_close(h2c));
    check(fpga_channel_close(c2h));
    check(fpga_close(card));
    return 0;
}
