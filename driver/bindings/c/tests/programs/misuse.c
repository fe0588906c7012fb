/* Wrong handles, wrong arguments, double frees, use after close, and use by two threads end in a status. */
#include <fpga.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect(int line, fpga_status found, fpga_status wanted)
{
    if (found != wanted) {
        const fpga_error *error = fpga_last_error();
        fprintf(stderr, "line %d: %s instead of %s (%s)\n", line, fpga_status_name(found), fpga_status_name(wanted),
                error ? error->message : "");
        exit(1);
    }
    if (found != FPGA_OK && fpga_last_error()->message[0] == 0) {
        fprintf(stderr, "line %d: no message\n", line);
        exit(1);
    }
}

#define EXPECT(call, status) expect(__LINE__, (call), (status))

static void *other_thread(void *argument)
{
    /* The last error belongs to a thread. */
    *(int *)argument = fpga_last_error() == NULL;
    return NULL;
}

int main(void)
{
    fpga_card card = {0}, none = {0}, wild = {0x123456789abcdef0u};
    fpga_channel channel, again, reused;
    fpga_buffer buffer;
    fpga_card_info info;
    uint32_t word = 7;
    int clean = 0;
    char byte;
    pthread_t thread;
    if (fpga_last_error() != NULL)
        return 1;
    EXPECT(fpga_open(NULL, &card), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_open("mock", NULL), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_open("no card", &card), FPGA_ERROR_OPEN);
    if (card.value != 0 || fpga_last_error()->advice[0] == 0)
        return 1;
    EXPECT(fpga_close(none), FPGA_ERROR_HANDLE);
    EXPECT(fpga_close(wild), FPGA_ERROR_HANDLE);
    EXPECT(fpga_open("mock", &card), FPGA_OK);
    EXPECT(fpga_get_info(card, NULL, sizeof info), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_get_info(card, &info, 4), FPGA_OK);
    EXPECT(fpga_read32(card, FPGA_BAR_USER, 0xfffffff0u, &word), FPGA_ERROR_RANGE);
    if (word != UINT32_MAX || strcmp(fpga_last_error()->card, "mock:0") != 0)
        return 1;
    EXPECT(fpga_read32(card, (fpga_bar)9, 0, &word), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_channel_open(card, (fpga_direction)7, 0, &channel), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_channel_open(card, FPGA_H2C, 1000, &channel), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_channel_open(card, FPGA_H2C, 9, &channel), FPGA_ERROR_UNSUPPORTED);
    EXPECT(fpga_channel_open(card, FPGA_H2C, 0, &channel), FPGA_OK);
    EXPECT(fpga_channel_open(card, FPGA_H2C, 0, &again), FPGA_ERROR_IN_USE);
    EXPECT(fpga_read(channel, 0, &byte, 1, 0), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_write(channel, 0, NULL, 1, 0), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_write(channel, UINT64_MAX, &byte, 1, 1000000000u), FPGA_ERROR_RANGE);
    EXPECT(fpga_buffer_create(card, 0, &buffer), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_buffer_create(card, 4096, &buffer), FPGA_OK);
    EXPECT(fpga_submit(channel, buffer, 0, 5000, 0, NULL), FPGA_ERROR_RANGE);
    EXPECT(fpga_submit(channel, buffer, SIZE_MAX, 2, 0, NULL), FPGA_ERROR_RANGE);
    EXPECT(fpga_submit(channel, buffer, 0, 64, 0, NULL), FPGA_OK);
    EXPECT(fpga_buffer_free(buffer), FPGA_ERROR_IN_USE);
    /* A blocking call that ended early would abort the submitted transfer. */
    EXPECT(fpga_write(channel, 0, &byte, 1, 1000000000u), FPGA_ERROR_IN_USE);
    EXPECT(fpga_wait(channel, 12345, 0), FPGA_ERROR_TICKET);
    EXPECT(fpga_wait(channel, 0, 1000000000u), FPGA_OK);
    EXPECT(fpga_close(card), FPGA_OK);
    EXPECT(fpga_close(card), FPGA_ERROR_HANDLE);
    {
        /* A handle of another kind. */
        fpga_channel wrong = {buffer.value};
        EXPECT(fpga_poll(wrong, NULL), FPGA_ERROR_HANDLE);
        EXPECT(fpga_channel_close(wrong), FPGA_ERROR_HANDLE);
    }
    EXPECT(fpga_channel_close(channel), FPGA_OK);
    EXPECT(fpga_channel_close(channel), FPGA_ERROR_HANDLE);
    EXPECT(fpga_poll(channel, NULL), FPGA_ERROR_HANDLE);
    EXPECT(fpga_submit(channel, buffer, 0, 64, 0, NULL), FPGA_ERROR_HANDLE);
    {
        /* The buffer outlives its channel and its card. */
        void *data = NULL;
        size_t length = 0;
        EXPECT(fpga_buffer_data(buffer, &data, &length), FPGA_OK);
        if (data == NULL || length < 4096)
            return 1;
        /* A generation with more bits than a slot holds. */
        fpga_buffer forged = {buffer.value | UINT64_C(1) << 62};
        EXPECT(fpga_buffer_free(forged), FPGA_ERROR_HANDLE);
    }
    EXPECT(fpga_buffer_free(buffer), FPGA_OK);
    EXPECT(fpga_buffer_free(buffer), FPGA_ERROR_HANDLE);
    EXPECT(fpga_open("mock", &card), FPGA_OK);
    EXPECT(fpga_channel_open(card, FPGA_C2H, 0, &reused), FPGA_OK);
    /* The slots are used again, and the old handles stay closed. */
    EXPECT(fpga_poll(channel, NULL), FPGA_ERROR_HANDLE);
    EXPECT(fpga_channel_close(reused), FPGA_OK);
    EXPECT(fpga_close(card), FPGA_OK);
    pthread_create(&thread, NULL, other_thread, &clean);
    pthread_join(thread, NULL);
    if (!clean || fpga_last_error() == NULL)
        return 1;
    puts("misuse is refused");
    return 0;
}
