/*
 * Packets to a card and from it, through AXI4-Stream channels. The card has to loop its H2C stream back to its C2H stream, as the simulated
 * card does.
 *
 *     ./stream [CARD]            default: a simulated card with streams
 */
#include "check.h"
#include <string.h>

enum { PACKETS = 1000, MAX_LENGTH = 5000, MAX_PIECES = 16 };

static size_t length_of(size_t number)
{
    return 1 + number * 37 % MAX_LENGTH;
}

int main(int argc, char **argv)
{
    fpga_stream_options options;
    fpga_stream_statistics statistics;
    fpga_piece pieces[MAX_PIECES];
    fpga_card card;
    fpga_channel tx, rx;
    fpga_buffer buffer;
    void *content;
    size_t sent = 0, received = 0, length, count;

    check(fpga_open(argc > 1 ? argv[1] : "mock:us-plus-x8-stream", &card));
    check(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &tx));
    /* A ring of 64 buffers of 1 KiB that the card fills. A packet takes as many as it needs. */
    memset(&options, 0, sizeof options);
    options.buffers = 64;
    options.buffer_size = 1024;
    check(fpga_stream_open(card, FPGA_C2H, 0, &options, sizeof options, &rx));

    /* Packets are sent from a buffer, without a copy. */
    check(fpga_buffer_create(card, MAX_LENGTH, &buffer));
    check(fpga_buffer_data(buffer, &content, NULL));
    for (size_t n = 0; n < MAX_LENGTH; n++)
        ((unsigned char *)content)[n] = (unsigned char)(n % 251);

    /* The first call posts the buffers. Without them the card's stream stalls, and nothing is lost. */
    check(fpga_stream_next(rx, &length));
    while (received < PACKETS) {
        while (sent < PACKETS) {
            /* The first length_of(sent) bytes of the buffer are one packet. A stream has no card address. */
            fpga_status status = fpga_submit(tx, buffer, 0, length_of(sent), 0, NULL);
            if (status == FPGA_ERROR_FULL)
                break;
            check(status);
            sent++;
        }
        check(fpga_poll(tx, NULL));
        /* Gives the previous packet's buffers back to the card, and takes the next packet, if there is one. */
        check(fpga_stream_next(rx, &length));
        if (length == 0)
            continue;
        check(fpga_stream_pieces(rx, pieces, MAX_PIECES, &count));
        for (size_t n = 0, offset = 0; n < count; offset += pieces[n].length, n++)
            if (length != length_of(received) || memcmp(pieces[n].data, (char *)content + offset, pieces[n].length) != 0) {
                fprintf(stderr, "packet %zu differs\n", received);
                return 1;
            }
        received++;
    }
    check(fpga_stream_get_statistics(rx, &statistics, sizeof statistics));
    printf("%llu packets, %llu bytes, %llu lost\n", (unsigned long long)statistics.packets,
           (unsigned long long)statistics.bytes, (unsigned long long)statistics.lost);

    check(fpga_channel_close(tx));
    check(fpga_channel_close(rx));
    check(fpga_buffer_free(buffer));
    check(fpga_close(card));
    return 0;
}
