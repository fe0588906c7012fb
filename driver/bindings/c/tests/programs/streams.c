/* Packets through a card whose H2C streams are looped back to its C2H streams. */
#include "check.h"

enum { PACKETS = 200, HEADER = 64 };

static void in_place(fpga_card card, fpga_channel out, fpga_channel in)
{
    unsigned char byte, *bytes;
    fpga_stream_statistics statistics;
    fpga_buffer buffer;
    fpga_segment parts[2];
    fpga_piece pieces[8];
    size_t length, count, sent = 0, received = 0, n, sum;
    void *data;
    DO(fpga_buffer_create(card, 1 << 16, &buffer));
    DO(fpga_buffer_data(buffer, &data, NULL));
    bytes = (unsigned char *)data;
    for (n = 0; n < 1 << 16; n++)
        bytes[n] = (unsigned char)(n % 251);
    DO(fpga_stream_next(in, &length));
    HOLDS(length == 0);
    while (received < PACKETS) {
        while (sent < PACKETS) {
            fpga_status status;
            parts[0].buffer = parts[1].buffer = buffer;
            parts[0].offset = 0;
            parts[0].length = HEADER;
            parts[1].offset = 1000;
            parts[1].length = 1 + sent * 37 % 5000;
            parts[0].card_address = parts[1].card_address = 0;
            status = fpga_submit_list(out, parts, 2, NULL);
            if (status == FPGA_ERROR_FULL)
                break;
            DO(status);
            sent++;
        }
        DO(fpga_poll(out, NULL));
        DO(fpga_stream_next(in, &length));
        if (length == 0)
            continue;
        HOLDS(length == HEADER + 1 + received * 37 % 5000);
        DO(fpga_stream_pieces(in, pieces, 8, &count));
        for (n = 0, sum = 0; n < count; n++)
            sum += pieces[n].length;
        HOLDS(sum == length && ((const unsigned char *)pieces[0].data)[HEADER - 1] == HEADER - 1);
        DO(fpga_stream_copy(in, length - 1, &byte, 1));
        HOLDS(byte == bytes[1000 + received * 37 % 5000]);
        EXPECT(fpga_stream_copy(in, length, &byte, 1), FPGA_ERROR_RANGE);
        EXPECT(fpga_stream_copy(in, SIZE_MAX, &byte, 1), FPGA_ERROR_RANGE);
        if (received % 3 == 0) {
            DO(fpga_stream_release(in));
            DO(fpga_stream_release(in));
            DO(fpga_stream_pieces(in, NULL, 0, &count));
            HOLDS(count == 0);
        }
        received++;
    }
    DO(fpga_stream_get_statistics(in, &statistics, sizeof statistics));
    HOLDS(statistics.packets == PACKETS && statistics.lost == 0);
    DO(fpga_stream_get_statistics(out, &statistics, sizeof statistics));
    HOLDS(statistics.packets == PACKETS);
    DO(fpga_buffer_free(buffer));
}

int main(void)
{
    fpga_stream_options options;
    fpga_wait_options wait;
    fpga_channel out, in, wrong;
    fpga_card card;
    fpga_buffer buffer;
    char text[128];
    size_t length;
    volatile int stopped = 1;
    memset(&options, 0, sizeof options);
    memset(&wait, 0, sizeof wait);
    DO(fpga_open("mock:us-plus-x8-stream", &card));
    EXPECT(fpga_channel_open(card, FPGA_H2C, 0, &wrong), FPGA_ERROR_UNSUPPORTED);
    options.buffer_size = 100;
    EXPECT(fpga_stream_open(card, FPGA_C2H, 0, &options, sizeof options, &in), FPGA_ERROR_ARGUMENT);
    options.buffers = 64;
    options.buffer_size = 1024;
    DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &out));
    DO(fpga_stream_open(card, FPGA_C2H, 0, &options, sizeof options, &in));
    in_place(card, out, in);
    EXPECT(fpga_stream_wait(in, 1000000, &wait, sizeof wait, &length), FPGA_ERROR_TIMED_OUT);
    HOLDS(length == 0);
    /* A flag ends the wait early, at any timeout. */
    wait.cancel = &stopped;
    EXPECT(fpga_stream_wait(in, FPGA_NO_TIMEOUT, &wait, sizeof wait, &length), FPGA_ERROR_CANCELLED);
    wait.cancel = NULL;
    /* Functions of the other direction, and of memory-mapped channels. */
    EXPECT(fpga_stream_next(out, &length), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_stream_send(in, "x", 1, SECOND), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_stream_send(out, "", 0, SECOND), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_write(out, 0, "x", 1, SECOND), FPGA_ERROR_ARGUMENT);
    DO(fpga_buffer_create(card, 4096, &buffer));
    EXPECT(fpga_submit(in, buffer, 0, 64, 0, NULL), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_poll(in, NULL), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_stream_receive(in, text, sizeof text, SECOND, &length), FPGA_ERROR_IN_USE);
    DO(fpga_stream_stop(in));
    EXPECT(fpga_stream_wait(in, SECOND, NULL, 0, &length), FPGA_ERROR_STOPPED);
    DO(fpga_channel_close(in));
    /* One packet at a time, by a copy. */
    DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &in));
    EXPECT(fpga_stream_receive(in, text, sizeof text, 1000000, &length), FPGA_ERROR_TIMED_OUT);
    HOLDS(strstr(fpga_last_error()->advice, "call the function again") != NULL);
    DO(fpga_stream_send(out, "one packet", 11, SECOND));
    EXPECT(fpga_stream_receive(in, text, 4, SECOND, &length), FPGA_ERROR_RANGE);
    HOLDS(length == 11);
    DO(fpga_stream_receive(in, text, sizeof text, SECOND, &length));
    HOLDS(length == 11 && strcmp(text, "one packet") == 0);
    DO(fpga_buffer_free(buffer));
    DO(fpga_channel_close(in));
    DO(fpga_channel_close(out));
    DO(fpga_close(card));
    puts("streams work");
    return 0;
}
