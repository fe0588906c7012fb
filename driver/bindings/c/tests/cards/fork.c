/* Handles after fork(): every call of the child fails, closing and ending change nothing for the parent, and a child can open a card of its own.
 * Argument: "mock", "threaded", or the name of a card. */
#include "../programs/check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LENGTH = 1 << 16, CHILDREN = 8 };

static fpga_network network;
static fpga_card card;
static fpga_channel out, in;
static fpga_buffer from, to;
static fpga_interrupt lines;
static fpga_endpoint endpoint;
static volatile int stop, waits;

static void open_card(const char *name)
{
    fpga_network_options options;
    if (strcmp(name, "threaded") != 0) {
        DO(fpga_open(name, &card));
        return;
    }
    memset(&options, 0, sizeof options);
    options.cards = 1;
    options.threaded = 1;
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &card));
}

/* The call fails with the process of the handle, and with advice. */
#define REFUSED(call)                                                                  \
    do {                                                                               \
        char process_[64];                                                             \
        EXPECT(call, FPGA_ERROR_PROCESS);                                              \
        snprintf(process_, sizeof process_, "belongs to process %d,", (int)getppid()); \
        HOLDS(strstr(fpga_last_error()->message, process_));                           \
        HOLDS(strcmp(fpga_last_error()->advice, "open the card in this process") == 0); \
    } while (0)

/* A child that uses everything, and ends as a program does. */
static void child(const char *name)
{
    fpga_card_info info;
    fpga_channel channel;
    fpga_buffer buffer;
    uint32_t value, found;
    uint64_t ticket, count;
    size_t length;
    void *data;
    int fd;
    alarm(60);
    REFUSED(fpga_get_info(card, &info, sizeof info));
    REFUSED(fpga_read32(card, FPGA_BAR_DMA, 0, &value));
    REFUSED(fpga_write32(card, FPGA_BAR_DMA, 0x2000, 0));
    REFUSED(fpga_enable_interrupts(card, NULL));
    REFUSED(fpga_buffer_create(card, LENGTH, &buffer));
    REFUSED(fpga_buffer_data(from, &data, &length));
    REFUSED(fpga_channel_open(card, FPGA_H2C, 1, &channel));
    REFUSED(fpga_write(out, 0, "child", 6, SECOND));
    REFUSED(fpga_submit(out, from, 0, LENGTH, 0, &ticket));
    REFUSED(fpga_poll(out, &length));
    REFUSED(fpga_wait(out, 0, FPGA_NO_TIMEOUT));
    REFUSED(fpga_abort(out));
    REFUSED(fpga_channel_fd(out, &fd));
    REFUSED(fpga_channel_take(out, &count));
    REFUSED(fpga_channel_arm(out));
    REFUSED(fpga_interrupt_wait(lines, FPGA_NO_TIMEOUT, &found, NULL));
    REFUSED(fpga_interrupt_take(lines, &found, NULL));
    REFUSED(fpga_endpoint_poll(endpoint, &length));
    REFUSED(fpga_endpoint_close(endpoint));
    REFUSED(fpga_interrupt_close(lines));
    REFUSED(fpga_channel_close(out));
    REFUSED(fpga_channel_close(in));
    REFUSED(fpga_buffer_free(from));
    REFUSED(fpga_close(card));
    EXPECT(fpga_close((fpga_card){card.value + (UINT64_C(1) << 40)}), FPGA_ERROR_HANDLE);
    if (network.value)
        REFUSED(fpga_network_close(network));
    /* A card of its own, whose handles differ from those of the parent. */
    if (strncmp(name, "vfio-user:", 10) != 0) {
        fpga_card own;
        DO(fpga_open("mock", &own));
        HOLDS(own.value != card.value);
        DO(fpga_channel_open(own, FPGA_H2C, 0, &channel));
        DO(fpga_write(channel, 0, "child", 6, FPGA_NO_TIMEOUT));
        DO(fpga_channel_close(channel));
        DO(fpga_close(own));
    }
    exit(0);
}

static void *wait_for_flag(void *argument)
{
    fpga_wait_options wait;
    uint32_t found;
    (void)argument;
    memset(&wait, 0, sizeof wait);
    waits = 1;
    while (!stop) {
        fpga_status status = fpga_interrupt_wait(lines, 1000000, &found, NULL);
        HOLDS(status == FPGA_ERROR_TIMED_OUT || status == FPGA_OK);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "mock";
    uint32_t line = 3;
    unsigned char *sent, *received;
    pthread_t thread;
    size_t length;
    uint64_t ticket;
    void *data;
    int n;
    open_card(name);
    DO(fpga_enable_interrupts(card, NULL));
    DO(fpga_channel_open(card, FPGA_H2C, 0, &out));
    DO(fpga_channel_open(card, FPGA_C2H, 0, &in));
    DO(fpga_interrupt_open(card, &line, 1, &lines));
    DO(fpga_endpoint_open(card, NULL, 0, &endpoint));
    DO(fpga_buffer_create(card, LENGTH, &from));
    DO(fpga_buffer_create(card, LENGTH, &to));
    DO(fpga_buffer_data(from, &data, &length));
    sent = (unsigned char *)data;
    DO(fpga_buffer_data(to, &data, &length));
    received = (unsigned char *)data;
    /* Forks at any time of another thread's calls. */
    pthread_create(&thread, NULL, wait_for_flag, NULL);
    while (!waits)
        sched_yield();
    for (n = 0; n < CHILDREN; n++) {
        int status = -1;
        pid_t process;
        memset(sent, n + 1, LENGTH);
        DO(fpga_submit(out, from, 0, LENGTH, 0, &ticket));
        DO(fpga_poll(out, NULL));
        fflush(NULL);
        process = fork();
        HOLDS(process >= 0);
        if (process == 0)
            child(name);
        HOLDS(waitpid(process, &status, 0) == process);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fprintf(stderr, "child %d: status %#x\n", n, (unsigned)status);
        HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        DO(fpga_wait(out, ticket, 60 * SECOND));
        DO(fpga_submit(in, to, 0, LENGTH, 0, &ticket));
        DO(fpga_wait(in, ticket, 60 * SECOND));
        HOLDS(memcmp(sent, received, LENGTH) == 0);
        DO(fpga_endpoint_poll(endpoint, NULL));
    }
    stop = 1;
    pthread_join(thread, NULL);
    DO(fpga_interrupt_close(lines));
    DO(fpga_endpoint_close(endpoint));
    DO(fpga_channel_close(out));
    DO(fpga_channel_close(in));
    DO(fpga_buffer_free(from));
    DO(fpga_buffer_free(to));
    DO(fpga_close(card));
    if (network.value)
        DO(fpga_network_close(network));
    printf("%d children\n", CHILDREN);
    return 0;
}
