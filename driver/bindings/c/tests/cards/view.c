/* A client of a shared card: view NAME memory|streams|killed. Prints the bytes that it has moved in each direction. */
#include "../programs/check.h"

enum { FIXED = 4096, BEAT = 64, COUNT = 32, LENGTH = 3000, COPY = 100000, LONGEST = 300000 };

static void fill(unsigned char *bytes, size_t length, unsigned seed)
{
    size_t n;
    for (n = 0; n < length; n++)
        bytes[n] = (unsigned char)(n * 7 + n / 256 + seed);
}

static unsigned char *buffer_of(fpga_card card, size_t length, fpga_buffer *buffer)
{
    void *data;
    DO(fpga_buffer_create(card, length, buffer));
    DO(fpga_buffer_data(*buffer, &data, NULL));
    return (unsigned char *)data;
}

static void memory(fpga_card card)
{
    fpga_channel_options options;
    fpga_channel out, in;
    fpga_cdma cdma;
    fpga_card_info info;
    fpga_buffer buffer, read_buffer;
    unsigned char *data = buffer_of(card, LONGEST, &buffer), *got = buffer_of(card, LONGEST, &read_buffer);
    uint64_t ticket = 0;
    size_t n;
    unsigned long sent = 0, received = 0;
    /* Constant-address mode: every beat has the same address. */
    memset(&options, 0, sizeof options);
    options.fixed_address = 1;
    DO(fpga_channel_open_with(card, FPGA_H2C, 0, &options, sizeof options, &out));
    fill(data, FIXED, 1);
    DO(fpga_write(out, BEAT, data, FIXED, SECOND * 60));
    DO(fpga_channel_close(out));
    DO(fpga_channel_open_with(card, FPGA_C2H, 0, &options, sizeof options, &in));
    DO(fpga_read(in, BEAT, got, FIXED, SECOND * 60));
    for (n = 0; n < FIXED; n++)
        HOLDS(got[n] == data[FIXED - BEAT + n % BEAT]);
    DO(fpga_channel_close(in));
    sent += FIXED;
    received += FIXED;
    /* Several descriptors in flight. */
    DO(fpga_channel_open(card, FPGA_H2C, 1, &out));
    DO(fpga_channel_open(card, FPGA_C2H, 2, &in));
    fill(data, COUNT * LENGTH, 2);
    for (n = 0; n < COUNT; n++)
        DO(fpga_submit(out, buffer, n * LENGTH, LENGTH, 0x10000 + n * LENGTH, &ticket));
    DO(fpga_wait(out, ticket, SECOND * 60));
    for (n = 0; n < COUNT; n++)
        DO(fpga_submit(in, read_buffer, n * LENGTH, LENGTH, 0x10000 + n * LENGTH, &ticket));
    DO(fpga_wait(in, ticket, SECOND * 60));
    HOLDS(memcmp(data, got, COUNT * LENGTH) == 0);
    sent += COUNT * LENGTH;
    received += COUNT * LENGTH;
    /* The copy engine of a view: the owner reads and writes. */
    DO(fpga_get_info(card, &info, sizeof info));
    if (info.cdma) {
        fill(data, COPY, 3);
        DO(fpga_write(out, 0x100000, data, COPY, SECOND * 60));
        DO(fpga_cdma_open(card, &cdma));
        DO(fpga_cdma_copy(cdma, 0x100000, 0x200000, COPY, SECOND * 60));
        DO(fpga_read(in, 0x200000, got, COPY, SECOND * 60));
        HOLDS(memcmp(data, got, COPY) == 0);
        DO(fpga_cdma_close(cdma));
        sent += 2 * COPY;
        received += 2 * COPY;
    }
    DO(fpga_channel_close(out));
    DO(fpga_channel_close(in));
    DO(fpga_buffer_free(buffer));
    DO(fpga_buffer_free(read_buffer));
    printf("h2c %lu c2h %lu\n", sent, received);
}

/* Waits for a packet while the sender's transfers go on. */
static size_t next(fpga_channel out, fpga_channel in)
{
    size_t length = 0;
    while (length == 0) {
        DO(fpga_poll(out, NULL));
        DO(fpga_stream_next(in, &length));
    }
    return length;
}

static void streams(fpga_card card)
{
    static const size_t lengths[] = {1, BEAT, 4097, 65537, LONGEST};
    fpga_channel out, in;
    fpga_buffer buffer;
    unsigned char *data = buffer_of(card, LONGEST, &buffer), *got = (unsigned char *)malloc(LONGEST);
    size_t n, length, others = 0;
    unsigned long moved = 0;
    DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &out));
    DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &in));
    for (n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        fill(data, lengths[n], (unsigned)n);
        DO(fpga_submit(out, buffer, 0, lengths[n], 0, NULL));
        do {
            length = next(out, in);
            HOLDS(length <= LONGEST);
            DO(fpga_stream_copy(in, 0, got, length));
            /* The beginning of a packet of a client that was killed. */
        } while (n == 0 && length != lengths[n] && ++others < 2);
        HOLDS(length == lengths[n] && memcmp(data, got, length) == 0);
        moved += lengths[n];
    }
    DO(fpga_channel_close(out));
    DO(fpga_channel_close(in));
    DO(fpga_buffer_free(buffer));
    free(got);
    printf("h2c %lu c2h %lu others %lu\n", moved, moved, (unsigned long)others);
}

/* Sends a packet that nobody receives, until it is killed. */
static void killed(fpga_card card)
{
    fpga_channel out;
    fpga_buffer buffer;
    fill(buffer_of(card, LONGEST, &buffer), LONGEST, 9);
    DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &out));
    DO(fpga_submit(out, buffer, 0, LONGEST, 0, NULL));
    for (;;)
        DO(fpga_poll(out, NULL));
}

int main(int count, char **arguments)
{
    fpga_card card;
    HOLDS(count == 3);
    DO(fpga_open(arguments[1], &card));
    switch (arguments[2][0]) {
    case 'm':
        memory(card);
        break;
    case 's':
        streams(card);
        break;
    default:
        killed(card);
    }
    DO(fpga_close(card));
    return 0;
}
