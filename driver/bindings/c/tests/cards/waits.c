/* Every wait ends in every way within milliseconds: removal of the card, a flag, a signal, another thread that closes, cancels or calls.
 * Prints a row for each wait with the delays in milliseconds, "-" for what this run leaves out, then the longest delay.
 * Arguments: "mock", "threaded" or "served"; the names of two served cards, the second with streams; the part of the table, 0 to 2, or 3 for
 * all of it. A line "stall 0", "remove 1" or "replug 1" requests that of a served card; a line comes back when it is done. */
/* For nanosleep and pthread_kill. */
#define _GNU_SOURCE
#include "../programs/check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Registers of the DMA engine (PG195): halts the descriptor fetches of channels. */
enum { HALT_SET = 0x6014, H2C_0 = 1, C2H_0 = 1 << 16 };
enum { COPY = 6 << 20, PACKET = 1 << 18, PARTS = 3 };
enum { REMOVAL, FLAG, SIGNAL, CLOSE, CANCEL, CALL, ENDS };

static const char *kind, *served[2];
static int is_served, part;
static fpga_network network;
static fpga_card card;
static fpga_channel channel;
static fpga_interrupt lines;
static fpga_cdma cdma;
static fpga_endpoint endpoint;
static fpga_subscriber subscriber;
static fpga_buffer buffer;
static uint64_t ticket;
static volatile int flag, waiting;
static int listener;
static char memory[COPY];

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static void pause_ms(long ms)
{
    struct timespec time = {0, ms * 1000000};
    nanosleep(&time, NULL);
}

static void handler(int signal)
{
    (void)signal;
    flag = 1;
}

static void request(const char *what, int streams)
{
    char line[16];
    printf("%s %d\n", what, streams);
    fflush(stdout);
    HOLDS(fgets(line, sizeof line, stdin) != NULL);
}

static void open_card(int streams)
{
    fpga_network_options options;
    memset(&options, 0, sizeof options);
    options.threaded = strcmp(kind, "threaded") == 0;
    options.description = streams ? "us-plus-x8-stream" : NULL;
    if (is_served) {
        DO(fpga_open(served[streams], &card));
    } else {
        DO(fpga_network_create(&options, sizeof options, &network));
        DO(fpga_network_open(network, 0, &card));
    }
    DO(fpga_enable_interrupts(card, NULL));
}

static void remove_card(int streams)
{
    if (is_served)
        request("remove", streams);
    else
        DO(fpga_network_fail(network, 0, FPGA_FAILURE_GONE));
}

/* A copy of the engine does not end, nor does a reset. */
static void stall(void)
{
    if (is_served)
        request("stall", 0);
    else
        DO(fpga_network_set_faults(network, 0, "list: [{fault: cdma_stall}]"));
}

static void open_channel(fpga_direction direction)
{
    DO(fpga_channel_open(card, direction, 0, &channel));
    DO(fpga_write32(card, FPGA_BAR_DMA, HALT_SET, H2C_0 | C2H_0));
    DO(fpga_buffer_create(card, 64, &buffer));
    DO(fpga_submit(channel, buffer, 0, 64, 0, &ticket));
}

static void open_idle_channel(fpga_direction direction)
{
    DO(fpga_channel_open(card, direction, 0, &channel));
    DO(fpga_write32(card, FPGA_BAR_DMA, HALT_SET, H2C_0 | C2H_0));
}

static void open_transfer(void) { open_channel(FPGA_H2C); }
static void open_h2c(void) { open_idle_channel(FPGA_H2C); }
static void open_c2h(void) { open_idle_channel(FPGA_C2H); }

static void open_lines(void)
{
    uint32_t line = 3;
    DO(fpga_interrupt_open(card, &line, 1, &lines));
}

static void open_endpoint(void)
{
    fpga_endpoint_options options;
    memset(&options, 0, sizeof options);
    options.give_up_ns = 1000000 * SECOND;
    DO(fpga_endpoint_open(card, &options, sizeof options, &endpoint));
}

static void open_sending(void)
{
    fpga_region region = {77, 0, 0x20000, 64, 5};
    open_endpoint();
    DO(fpga_endpoint_send(endpoint, 0x10000, &region, 0, 64, NULL, 0, &ticket));
}

static void open_reading(void)
{
    fpga_readable readable = {77, 0, 64, {77, 0, 0x20000, 64, 5}};
    fpga_send_options options;
    memset(&options, 0, sizeof options);
    options.deadline_ns = 1000000 * SECOND;
    open_endpoint();
    DO(fpga_endpoint_read(endpoint, &readable, 0, 0x10000, 64, &options, sizeof options, &ticket));
}

static void open_joining(void)
{
    struct sockaddr_in place;
    socklen_t length = sizeof place;
    fpga_subscriber_options options;
    char address[32];
    memset(&options, 0, sizeof options);
    options.patience_ns = 1000000 * SECOND;
    HOLDS(getsockname(listener, (struct sockaddr *)&place, &length) == 0);
    snprintf(address, sizeof address, "127.0.0.1:%d", ntohs(place.sin_port));
    open_endpoint();
    DO(fpga_subscriber_open(endpoint, address, &options, sizeof options, &subscriber));
}

static void open_engine(void)
{
    DO(fpga_cdma_open(card, &cdma));
    stall();
}

static void open_ring(void)
{
    fpga_cdma_ring_options options;
    fpga_copy copy = {0, 0x100000, 64};
    memset(&options, 0, sizeof options);
    options.base = 0x200000;
    DO(fpga_cdma_open(card, &cdma));
    DO(fpga_cdma_ring_start(cdma, &options, sizeof options));
    stall();
    DO(fpga_cdma_ring_submit(cdma, &copy, 1, &ticket));
}

static void open_receiver(void) { DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &channel)); }
static void open_sender(void) { DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &channel)); }

static fpga_status wait_transfer(void) { return fpga_wait(channel, ticket, FPGA_NO_TIMEOUT); }

static fpga_status wait_interrupt(void)
{
    fpga_wait_options options;
    memset(&options, 0, sizeof options);
    options.mode = FPGA_WAIT_INTERRUPT;
    return fpga_wait_with(channel, ticket, FPGA_NO_TIMEOUT, &options, sizeof options);
}

static fpga_status wait_write(void) { return fpga_write(channel, 0, memory, COPY, FPGA_NO_TIMEOUT); }
static fpga_status wait_read(void) { return fpga_read(channel, 0, memory, COPY, FPGA_NO_TIMEOUT); }

/* The loop of fpga_channel_fd. A removal sends no interrupt: a register shows it. */
static fpga_status wait_fd(void)
{
    struct pollfd polled;
    fpga_status status = fpga_channel_fd(channel, &polled.fd);
    uint32_t word;
    uint64_t count;
    polled.events = POLLIN;
    while (!flag && !status) {
        status = fpga_channel_take(channel, &count);
        if (!status && !(status = fpga_channel_arm(channel)) && !(status = fpga_poll(channel, NULL)))
            status = fpga_read32(card, FPGA_BAR_DMA, 0, &word);
        if (!status)
            poll(&polled, 1, 20);
        if (status == FPGA_ERROR_CONCURRENT)
            status = FPGA_OK;
        if (!status && word == UINT32_MAX)
            status = FPGA_ERROR_GONE;
    }
    return status ? status : FPGA_ERROR_CANCELLED;
}

static fpga_status wait_lines(void)
{
    uint32_t found;
    return fpga_interrupt_wait(lines, FPGA_NO_TIMEOUT, &found, NULL);
}

static fpga_status wait_arrival(void)
{
    fpga_notification notification;
    return fpga_endpoint_wait_notification(endpoint, FPGA_NO_TIMEOUT, &notification, sizeof notification);
}

static fpga_status wait_sent(void) { return fpga_endpoint_wait(endpoint, ticket, FPGA_NO_TIMEOUT, NULL, 0); }
static fpga_status wait_remote(void) { return fpga_endpoint_wait_read(endpoint, ticket, FPGA_NO_TIMEOUT, NULL, 0); }
static fpga_status wait_peer(void) { return fpga_endpoint_wait_peer(endpoint, 77, FPGA_NO_TIMEOUT, NULL, 0); }

static fpga_status wait_event(void)
{
    fpga_frame_event event;
    return fpga_subscriber_wait(subscriber, FPGA_NO_TIMEOUT, &event, sizeof event);
}

/* A part of a copy without a limit has one of its own, a second, which takes milliseconds in virtual time. */
static fpga_status wait_copy(void)
{
    const uint64_t limit = strcmp(kind, "mock") == 0 ? 1000000 * SECOND : FPGA_NO_TIMEOUT;
    return fpga_cdma_copy(cdma, 0, 0x100000, 64, limit);
}

static fpga_status wait_ring(void) { return fpga_cdma_ring_wait(cdma, ticket, FPGA_NO_TIMEOUT, NULL, 0); }

static fpga_status wait_packet(void)
{
    size_t length;
    return fpga_stream_wait(channel, FPGA_NO_TIMEOUT, NULL, 0, &length);
}

static fpga_status wait_received(void)
{
    size_t length;
    return fpga_stream_receive(channel, memory, 64, FPGA_NO_TIMEOUT, &length);
}

/* More bytes than the card holds, which nobody receives. */
static fpga_status wait_taken(void)
{
    fpga_status status;
    do
        status = fpga_stream_send(channel, memory, PACKET, FPGA_NO_TIMEOUT);
    while (!status);
    return status;
}

static fpga_status close_channel(void) { return fpga_channel_close(channel); }
static fpga_status close_lines(void) { return fpga_interrupt_close(lines); }
static fpga_status close_cdma(void) { return fpga_cdma_close(cdma); }
static fpga_status close_endpoint(void) { return fpga_endpoint_close(endpoint); }
static fpga_status close_subscriber(void) { return fpga_subscriber_close(subscriber); }

static fpga_status abort_all(void) { return fpga_abort(channel); }
static fpga_status stop_stream(void) { return fpga_stream_stop(channel); }
static fpga_status cancel_one(void) { return fpga_cancel(channel, ticket, NULL); }
static fpga_status reset_engine(void) { return fpga_cdma_reset(cdma); }
static fpga_status abort_ring(void) { return fpga_cdma_ring_abort(cdma); }
static fpga_status cancel_sent(void) { return fpga_endpoint_cancel(endpoint, ticket, NULL); }
static fpga_status cancel_read(void) { return fpga_endpoint_cancel_read(endpoint, ticket, NULL); }

static fpga_status poll_channel(void) { return fpga_poll(channel, NULL); }
static fpga_status next_packet(void)
{
    size_t length;
    return fpga_stream_next(channel, &length);
}
/* Calls for another mode of the object: refused at once, and they end no wait. */
static fpga_status reset_in_ring_mode(void) { return fpga_cdma_reset(cdma); }
static fpga_status end_missing_ring(void)
{
    EXPECT(fpga_cdma_ring_abort(cdma), FPGA_ERROR_ARGUMENT);
    return fpga_cdma_ring_stop(cdma);
}
static fpga_status stop_sender(void) { return fpga_stream_stop(channel); }
static fpga_status poll_ring(void) { return fpga_cdma_ring_poll(cdma, NULL, NULL); }
static fpga_status look_at_engine(void) { return fpga_cdma_get_status(cdma, NULL, NULL, NULL); }
static fpga_status poll_endpoint(void) { return fpga_endpoint_poll(endpoint, NULL); }
static fpga_status poll_subscriber(void)
{
    fpga_frame_event event;
    return fpga_subscriber_poll(subscriber, &event, sizeof event);
}

/* What a wait waits for, ways to end it, and a call that is refused while another thread waits. */
static const struct {
    const char *name;
    int streams;
    void (*open)(void);
    fpga_status (*wait)(void);
    fpga_status (*close)(void);
    fpga_status (*cancel)(void);
    fpga_status (*call)(void);
    fpga_status (*misfit)(void); /* a call that the object's mode does not allow */
    int stuck; /* closing and cancelling take as long as an engine may need to stop */
} WAITS[] = {
    {"wait", 0, open_transfer, wait_transfer, close_channel, cancel_one, poll_channel, NULL, 0},
    {"wait_with", 0, open_transfer, wait_interrupt, close_channel, abort_all, poll_channel, NULL, 0},
    {"write", 0, open_h2c, wait_write, close_channel, abort_all, poll_channel, NULL, 0},
    {"read", 0, open_c2h, wait_read, close_channel, abort_all, poll_channel, NULL, 0},
    {"channel_fd", 0, open_transfer, wait_fd, close_channel, NULL, NULL, NULL, 0},
    {"interrupt_wait", 0, open_lines, wait_lines, close_lines, NULL, NULL, NULL, 0},
    {"wait_notification", 0, open_endpoint, wait_arrival, close_endpoint, NULL, poll_endpoint, NULL, 0},
    {"endpoint_wait", 0, open_sending, wait_sent, close_endpoint, cancel_sent, poll_endpoint, NULL, 0},
    {"wait_read", 0, open_reading, wait_remote, close_endpoint, cancel_read, poll_endpoint, NULL, 0},
    {"wait_peer", 0, open_endpoint, wait_peer, close_endpoint, NULL, poll_endpoint, NULL, 0},
    {"subscriber_wait", 0, open_joining, wait_event, close_subscriber, NULL, poll_subscriber, NULL, 0},
    {"cdma_copy", 0, open_engine, wait_copy, close_cdma, reset_engine, look_at_engine, end_missing_ring, 1},
    {"ring_wait", 0, open_ring, wait_ring, close_cdma, abort_ring, poll_ring, reset_in_ring_mode, 1},
    {"stream_wait", 1, open_receiver, wait_packet, close_channel, stop_stream, next_packet, NULL, 0},
    {"stream_receive", 1, open_receiver, wait_received, close_channel, abort_all, next_packet, NULL, 0},
    {"stream_send", 1, open_sender, wait_taken, close_channel, NULL, poll_channel, stop_sender, 0},
};
enum { WAIT_COUNT = sizeof WAITS / sizeof WAITS[0] };

typedef struct {
    int row;
    fpga_status status;
    double at;
    volatile int ended;
} waiter;

static void *wait_thread(void *argument)
{
    waiter *one = argument;
    DO(fpga_set_cancel_flag(&flag));
    waiting++;
    do
        one->status = WAITS[one->row].wait();
    while (one->status == FPGA_ERROR_CONCURRENT);
    one->at = now();
    one->ended = 1;
    return NULL;
}

/* Whether the wait may end so: what another thread cancels also fails as such if that thread was faster. */
static int is_wanted(int row, int end, fpga_status found)
{
    switch (end) {
    case REMOVAL: return found == FPGA_ERROR_GONE;
    case CLOSE: return found == FPGA_ERROR_HANDLE;
    case CANCEL: return found == FPGA_ERROR_CANCELLED || (found == FPGA_ERROR_FAULT && WAITS[row].cancel != reset_engine);
    default: return found == FPGA_ERROR_CANCELLED;
    }
}

/* Ends a wait. Returns its delay. */
static double run(int row, int end)
{
    const int waiters = WAITS[row].call == NULL && WAITS[row].cancel == NULL ? 2 : 1;
    waiter all[2];
    pthread_t threads[2];
    double began, took = 0;
    int n, is_closed = 0;
    fpga_status status;
    flag = waiting = 0;
    open_card(WAITS[row].streams);
    WAITS[row].open();
    for (n = 0; n < waiters; n++) {
        memset(&all[n], 0, sizeof all[n]);
        all[n].row = row;
        pthread_create(&threads[n], NULL, wait_thread, &all[n]);
    }
    while (waiting < waiters)
        pause_ms(1);
    pause_ms(20);
    began = now();
    if (end == REMOVAL) {
        remove_card(WAITS[row].streams);
    } else if (end == CLOSE) {
        status = WAITS[row].close();
        is_closed = 1;
        HOLDS(status == FPGA_OK);
    } else if (end == CANCEL) {
        do {
            status = WAITS[row].cancel();
            HOLDS(status == FPGA_OK || status == FPGA_ERROR_WEDGED || status == FPGA_ERROR_TICKET);
            pause_ms(1);
        } while (!all[0].ended);
    } else if (end == SIGNAL) {
        pthread_kill(threads[0], SIGUSR1);
    } else {
        if (end == CALL) {
            /* It is refused at once; until the waiter has the handle, it succeeds. */
            do {
                began = now();
                status = WAITS[row].call();
                took = now() - began;
            } while (status == FPGA_OK || status == FPGA_ERROR_TIMED_OUT);
            EXPECT(status, FPGA_ERROR_CONCURRENT);
            if (WAITS[row].misfit) {
                status = WAITS[row].misfit();
                HOLDS(status == FPGA_ERROR_IN_USE || status == FPGA_ERROR_ARGUMENT);
                pause_ms(30);
                HOLDS(!all[0].ended);
            }
            began = now();
        }
        flag = 1;
    }
    for (n = 0; n < waiters; n++) {
        pthread_join(threads[n], NULL);
        took = all[n].at - began > took ? all[n].at - began : took;
        if (!is_wanted(row, end, all[n].status))
            fprintf(stderr, "%s of %s, end %d: %s\n", WAITS[row].name, kind, end, fpga_status_name(all[n].status));
        HOLDS(is_wanted(row, end, all[n].status));
    }
    /* An engine that is gone is not waited for. */
    if (end != REMOVAL)
        remove_card(WAITS[row].streams);
    if (!is_closed)
        DO(WAITS[row].close());
    /* Open handles keep the card open. */
    if (buffer.value)
        DO(fpga_buffer_free(buffer));
    buffer.value = 0;
    DO(fpga_close(card));
    if (is_served)
        request("replug", WAITS[row].streams);
    else
        DO(fpga_network_close(network));
    return took;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    struct sockaddr_in place;
    double took, longest = 0;
    int row, end;
    HOLDS(argc == 5);
    setvbuf(stdout, NULL, _IOLBF, 0);
    alarm(600);
    kind = argv[1];
    served[0] = argv[2];
    served[1] = argv[3];
    part = atoi(argv[4]);
    is_served = strcmp(kind, "served") == 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, NULL);
    memset(&place, 0, sizeof place);
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM, 0);
    HOLDS(bind(listener, (struct sockaddr *)&place, sizeof place) == 0 && listen(listener, 100) == 0);
    for (row = 0; row < WAIT_COUNT; row++) {
        printf("%-18s", WAITS[row].name);
        for (end = 0; end < ENDS; end++) {
            const int none = (end == CANCEL && !WAITS[row].cancel) || (end == CALL && !WAITS[row].call);
            /* An engine that does not stop is waited for: in virtual time, this takes no time. */
            const int slow = WAITS[row].stuck && (end == CLOSE || end == CANCEL);
            const int here = slow ? strcmp(kind, "mock") == 0 : (row + end) % PARTS == part;
            if (none || (part != PARTS && !here)) {
                printf("%9s", "-");
                continue;
            }
            took = run(row, end);
            longest = took > longest ? took : longest;
            printf(" %8.1f", took);
        }
        printf("\n");
    }
    printf("longest %.1f\n", longest);
    return 0;
}
