/* Waits end when the card is removed and when a flag is set, by another thread or by a signal handler; calls of other threads with their
 * handle do not block. Prints a row for each wait: the delays in milliseconds.
 * Argument: "mock", "threaded", or the name of a card whose removal is requested by a line "remove". */
/* For nanosleep and pthread_kill. */
#define _GNU_SOURCE
#include "../programs/check.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { WAITS = 3, ENDS = 4 };
enum { REMOVAL, FLAG, SIGNAL, REFUSED_CALLS };

static const char *const names[WAITS] = {"interrupt_wait", "wait_notification", "channel_fd"};
static const char *name;
static fpga_network network;
static fpga_card card;
static fpga_channel channel;
static fpga_interrupt lines;
static fpga_endpoint endpoint;
static volatile int flag, waiting;
static int wait_number;
static fpga_status ended;
static double worst;

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

static int is_served(void)
{
    return strncmp(name, "vfio-user:", 10) == 0;
}

static void open_all(void)
{
    fpga_network_options options;
    uint32_t line = 3;
    memset(&options, 0, sizeof options);
    options.cards = 1;
    options.threaded = strcmp(name, "threaded") == 0;
    if (is_served()) {
        DO(fpga_open(name, &card));
    } else {
        DO(fpga_network_create(&options, sizeof options, &network));
        DO(fpga_network_open(network, 0, &card));
    }
    DO(fpga_enable_interrupts(card, NULL));
    DO(fpga_channel_open(card, FPGA_C2H, 0, &channel));
    DO(fpga_interrupt_open(card, &line, 1, &lines));
    DO(fpga_endpoint_open(card, NULL, 0, &endpoint));
}

static void close_all(void)
{
    fpga_interrupt_close(lines);
    fpga_endpoint_close(endpoint);
    fpga_channel_close(channel);
    DO(fpga_close(card));
    if (network.value)
        DO(fpga_network_close(network));
}

static void handler(int signal)
{
    (void)signal;
    flag = 1;
}

/* The loop of fpga_channel_fd. A removal sends no interrupt: a register shows it. */
static fpga_status run_loop(void)
{
    struct pollfd polled;
    uint32_t word;
    uint64_t count;
    DO(fpga_channel_fd(channel, &polled.fd));
    polled.events = POLLIN;
    while (!flag) {
        DO(fpga_channel_take(channel, &count));
        if (fpga_channel_arm(channel) || fpga_poll(channel, NULL) || fpga_read32(card, FPGA_BAR_DMA, 0, &word) || word == UINT32_MAX)
            return FPGA_ERROR_GONE;
        poll(&polled, 1, 20);
    }
    return FPGA_ERROR_CANCELLED;
}

static void *wait_thread(void *argument)
{
    fpga_notification notification;
    uint32_t found;
    (void)argument;
    DO(fpga_set_cancel_flag(&flag));
    waiting = 1;
    if (wait_number == 0)
        ended = fpga_interrupt_wait(lines, FPGA_NO_TIMEOUT, &found, NULL);
    else if (wait_number == 1)
        do
            ended = fpga_endpoint_wait_notification(endpoint, FPGA_NO_TIMEOUT, &notification, sizeof notification);
        while (ended == FPGA_ERROR_CONCURRENT);
    else
        ended = run_loop();
    return NULL;
}

static void end_by(int end, pthread_t thread)
{
    if (end == REMOVAL && network.value) {
        DO(fpga_network_fail(network, 0, FPGA_FAILURE_GONE));
    } else if (end == REMOVAL) {
        printf("remove\n");
        fflush(stdout);
    } else if (end == SIGNAL) {
        pthread_kill(thread, SIGUSR1);
    } else {
        if (end == REFUSED_CALLS && wait_number == 1) {
            while (fpga_endpoint_poll(endpoint, NULL) != FPGA_ERROR_CONCURRENT)
                pause_ms(1);
            EXPECT(fpga_endpoint_close(endpoint), FPGA_ERROR_CONCURRENT);
        } else if (end == REFUSED_CALLS && wait_number == 0) {
            /* The thread that waits keeps the lines. */
            DO(fpga_interrupt_close(lines));
        }
        flag = 1;
    }
}

static void run(int end)
{
    const fpga_status wanted = end == REMOVAL ? FPGA_ERROR_GONE : FPGA_ERROR_CANCELLED;
    pthread_t thread;
    double began, took;
    flag = waiting = 0;
    open_all();
    pthread_create(&thread, NULL, wait_thread, NULL);
    while (!waiting)
        pause_ms(1);
    pause_ms(30);
    began = now();
    end_by(end, thread);
    pthread_join(thread, NULL);
    took = now() - began;
    if (ended != wanted)
        fprintf(stderr, "%s, end %d: %s instead of %s\n", names[wait_number], end, fpga_status_name(ended), fpga_status_name(wanted));
    HOLDS(ended == wanted);
    worst = took > worst ? took : worst;
    printf(" %8.1f", took);
    close_all();
}

int main(int argc, char **argv)
{
    struct sigaction action;
    int end;
    alarm(300);
    name = argc > 1 ? argv[1] : "mock";
    memset(&action, 0, sizeof action);
    action.sa_handler = handler;
    sigaction(SIGUSR1, &action, NULL);
    for (wait_number = 0; wait_number < WAITS; wait_number++) {
        printf("%-18s", names[wait_number]);
        /* A served card is removed below, once: it does not come back. */
        for (end = is_served() ? FLAG : REMOVAL; end < ENDS; end++)
            run(end);
        printf("\n");
    }
    if (is_served()) {
        wait_number = 1;
        run(REMOVAL);
        printf(" (removal during %s)\n", names[wait_number]);
    }
    printf("longest %.1f\n", worst);
    return 0;
}
