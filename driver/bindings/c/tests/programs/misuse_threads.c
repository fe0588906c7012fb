/* Calls with a handle that another thread is in a call with: they are refused, and change nothing. Calls that close, cancel or abort end its
 * wait: tests/cards/waits.c. */
#include "check.h"
#include <pthread.h>
#include <sched.h>

enum { PACKET = 1 << 18 };

static fpga_channel out, in;
static fpga_endpoint near, far;
static fpga_buffer buffer;
static uint64_t ticket;

/* The call, as soon as the other thread is not in a call with the handle. */
#define DO_WHEN_FREE(call)                          \
    do {                                            \
        fpga_status status_;                        \
        do                                          \
            status_ = (call);                       \
        while (status_ == FPGA_ERROR_CONCURRENT);   \
        DO(status_);                                \
    } while (0)

static void *wait_for_packet(void *argument)
{
    size_t length;
    (void)argument;
    DO_WHEN_FREE(fpga_stream_wait(in, 60 * SECOND, NULL, 0, &length));
    HOLDS(length == 5);
    return NULL;
}

static volatile int stopped;

/* A wait without a limit that another thread ends. */
static void *wait_for_flag(void *argument)
{
    fpga_wait_options wait;
    fpga_status status;
    size_t length;
    (void)argument;
    memset(&wait, 0, sizeof wait);
    wait.cancel = &stopped;
    do
        status = fpga_stream_wait(in, FPGA_NO_TIMEOUT, &wait, sizeof wait, &length);
    while (status == FPGA_ERROR_CONCURRENT);
    EXPECT(status, FPGA_ERROR_CANCELLED);
    return NULL;
}

static void *wait_for_receiver(void *argument)
{
    (void)argument;
    DO_WHEN_FREE(fpga_wait(out, ticket, 60 * SECOND));
    return NULL;
}

static void *wait_for_notification(void *argument)
{
    fpga_notification notification;
    (void)argument;
    DO_WHEN_FREE(fpga_endpoint_wait_notification(far, 60 * SECOND, &notification, sizeof notification));
    return NULL;
}

static void streams(fpga_network network, fpga_card card)
{
    pthread_t thread;
    size_t length, total = 0;
    (void)network;
    DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &out));
    DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &in));
    pthread_create(&thread, NULL, wait_for_packet, NULL);
    while (fpga_stream_next(in, &length) != FPGA_ERROR_CONCURRENT)
        sched_yield();
    EXPECT(fpga_stream_release(in), FPGA_ERROR_CONCURRENT);
    DO(fpga_stream_send(out, "hello", 5, 60 * SECOND));
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, wait_for_flag, NULL);
    while (fpga_stream_next(in, &length) != FPGA_ERROR_CONCURRENT)
        sched_yield();
    stopped = 1;
    pthread_join(thread, NULL);
    DO(fpga_channel_close(in));
    /* A sender that waits for its receiver: more bytes than the card holds. */
    DO(fpga_buffer_create(card, PACKET, &buffer));
    DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &in));
    DO(fpga_submit(out, buffer, 0, PACKET, 0, &ticket));
    pthread_create(&thread, NULL, wait_for_receiver, NULL);
    while (fpga_progress(out, NULL, NULL) != FPGA_ERROR_CONCURRENT)
        sched_yield();
    EXPECT(fpga_submit(out, buffer, 0, 64, 0, NULL), FPGA_ERROR_CONCURRENT);
    EXPECT(fpga_buffer_free(buffer), FPGA_ERROR_CONCURRENT);
    while (total < PACKET) {
        DO(fpga_stream_next(in, &length));
        total += length;
    }
    pthread_join(thread, NULL);
    DO(fpga_buffer_free(buffer));
    DO(fpga_channel_close(in));
    DO(fpga_channel_close(out));
}

static void endpoints(fpga_network network)
{
    fpga_card cards[2];
    fpga_publisher publisher;
    fpga_region region;
    pthread_t thread;
    DO(fpga_network_open(network, 0, &cards[0]));
    DO(fpga_network_open(network, 1, &cards[1]));
    DO(fpga_endpoint_open(cards[0], NULL, 0, &near));
    DO(fpga_endpoint_open(cards[1], NULL, 0, &far));
    DO(fpga_region_open(far, FPGA_ANY_NODE, 0x1000, 4096, &region));
    pthread_create(&thread, NULL, wait_for_notification, NULL);
    while (fpga_endpoint_poll(far, NULL) != FPGA_ERROR_CONCURRENT)
        sched_yield();
    EXPECT(fpga_region_close(far, &region), FPGA_ERROR_CONCURRENT);
    EXPECT(fpga_publisher_open(far, NULL, 0, &publisher), FPGA_ERROR_CONCURRENT);
    HOLDS(publisher.value == 0);
    DO(fpga_endpoint_send(near, 0x1000, &region, 0, 4096, NULL, 0, &ticket));
    DO(fpga_endpoint_wait(near, ticket, 60 * SECOND, NULL, 0));
    pthread_join(thread, NULL);
    DO(fpga_endpoint_close(near));
    DO(fpga_endpoint_close(far));
    DO(fpga_close(cards[0]));
    DO(fpga_close(cards[1]));
}

int main(void)
{
    fpga_network_options options;
    fpga_network network;
    fpga_card card;
    memset(&options, 0, sizeof options);
    options.threaded = 1;
    options.description = "us-plus-x8-stream";
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &card));
    streams(network, card);
    DO(fpga_close(card));
    DO(fpga_network_close(network));
    options.description = NULL;
    options.cards = 2;
    DO(fpga_network_create(&options, sizeof options, &network));
    endpoints(network);
    DO(fpga_network_close(network));
    puts("handles in use are refused");
    return 0;
}
