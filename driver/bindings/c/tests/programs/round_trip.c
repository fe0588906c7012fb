/* Round trip of data by blocking calls, then by transfers of registered memory. */
#include <fpga.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND 1000000000u

static void check(fpga_status status, const char *what)
{
    if (status != FPGA_OK) {
        const fpga_error *error = fpga_last_error();
        fprintf(stderr, "%s: %s: %s; %s\n", what, fpga_status_name(status), error->message, error->advice);
        exit(1);
    }
}

int main(void)
{
    enum { SIZE = 300001, PART = 4096, PARTS = 64 };
    fpga_card card;
    fpga_channel h2c, c2h;
    fpga_buffer out, in;
    fpga_card_info info;
    unsigned char *sent = (unsigned char *)malloc(SIZE), *found = (unsigned char *)malloc(SIZE);
    void *data;
    size_t size, n;
    uint64_t ticket = 0;
    uint32_t identifier;
    check(fpga_open("mock", &card), "open");
    check(fpga_get_info(card, &info, sizeof info), "info");
    check(fpga_read32(card, FPGA_BAR_DMA, 0x2000, &identifier), "register");
    if (info.h2c_channels == 0 || info.memory_length == 0 || identifier >> 16 != 0x1fc2) {
        fprintf(stderr, "wrong properties\n");
        return 1;
    }
    check(fpga_channel_open(card, FPGA_H2C, 0, &h2c), "h2c");
    check(fpga_channel_open(card, FPGA_C2H, 0, &c2h), "c2h");
    for (n = 0; n < SIZE; n++)
        sent[n] = (unsigned char)(n * 7 + n / 256);
    check(fpga_write(h2c, 0x1000, sent, SIZE, SECOND), "write");
    check(fpga_read(c2h, 0x1000, found, SIZE, SECOND), "read");
    if (memcmp(sent, found, SIZE) != 0) {
        fprintf(stderr, "the data differs\n");
        return 1;
    }
    check(fpga_buffer_create(card, PART * PARTS, &out), "buffer");
    check(fpga_buffer_create(card, PART * PARTS, &in), "buffer");
    check(fpga_buffer_data(out, &data, &size), "data");
    memcpy(data, sent, PART * PARTS);
    for (n = 0; n < PARTS; n++)
        check(fpga_submit(h2c, out, n * PART, PART, 0x200000 + n * PART, &ticket), "submit");
    check(fpga_poll(h2c, NULL), "poll");
    check(fpga_wait(h2c, ticket, SECOND), "wait");
    for (n = 0; n < PARTS; n++)
        check(fpga_submit(c2h, in, n * PART, PART, 0x200000 + n * PART, &ticket), "submit");
    check(fpga_wait(c2h, ticket, SECOND), "wait");
    check(fpga_buffer_data(in, &data, NULL), "data");
    if (memcmp(data, sent, PART * PARTS) != 0) {
        fprintf(stderr, "the data of the buffers differs\n");
        return 1;
    }
    check(fpga_buffer_free(out), "free");
    check(fpga_buffer_free(in), "free");
    check(fpga_channel_close(h2c), "close");
    check(fpga_channel_close(c2h), "close");
    check(fpga_close(card), "close");
    free(sent);
    free(found);
    printf("round trip of %d bytes, %d transfers of %d bytes\n", SIZE, PARTS, PART);
    return 0;
}
