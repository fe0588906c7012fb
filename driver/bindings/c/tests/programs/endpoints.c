/* Transfers between two cards on one network that loses, duplicates and reorders packets; reads; failures. */
#include "check.h"

enum { LENGTH = 50000 };

static void both(fpga_endpoint one, fpga_endpoint other)
{
    DO(fpga_endpoint_poll(one, NULL));
    DO(fpga_endpoint_poll(other, NULL));
}

static void transfer(fpga_network network, fpga_endpoint near, fpga_endpoint far, const char *scheme)
{
    static unsigned char sent[LENGTH], received[LENGTH];
    fpga_send_completion completion;
    fpga_notification notification;
    fpga_region region, decoded;
    fpga_send_options options;
    uint8_t bytes[FPGA_REGION_BYTES];
    fpga_endpoint_info info;
    uint64_t ticket;
    uint32_t found, cancelled;
    size_t n;
    memset(&options, 0, sizeof options);
    options.scheme = scheme;
    for (n = 0; n < LENGTH; n++)
        sent[n] = (unsigned char)(n % 249);
    DO(fpga_network_poke(network, 0, 0x10000, sent, LENGTH));
    DO(fpga_endpoint_get_info(near, &info, sizeof info));
    HOLDS(info.node == 1 && info.idle == 1 && info.usable_length > 1 << 20);
    EXPECT(fpga_region_open(far, 1, 0, 0, &region), FPGA_ERROR_RANGE);
    HOLDS(region.length == 0 && region.key == 0);
    DO(fpga_region_open(far, 1, 0x200000, LENGTH, &region));
    HOLDS(region.node == 2 && region.address == 0x200000 && region.length == LENGTH);
    /* The other process gets bytes. */
    EXPECT(fpga_region_encode(&region, bytes, sizeof bytes - 1), FPGA_ERROR_RANGE);
    DO(fpga_region_encode(&region, bytes, sizeof bytes));
    DO(fpga_region_decode(bytes, sizeof bytes, &decoded));
    HOLDS(decoded.node == 2 && decoded.address == region.address && decoded.length == LENGTH && decoded.key == region.key);
    EXPECT(fpga_region_decode(bytes, 10, &region), FPGA_ERROR_ARGUMENT);
    bytes[0] ^= 1;
    EXPECT(fpga_region_decode(bytes, sizeof bytes, &region), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_endpoint_send(near, 0x10000, &decoded, 8, LENGTH, NULL, 0, &ticket), FPGA_ERROR_RANGE);
    HOLDS(ticket == UINT64_MAX);
    EXPECT(fpga_endpoint_send(near, UINT64_MAX - 8, &decoded, 0, 100, NULL, 0, &ticket), FPGA_ERROR_RANGE);
    DO(fpga_endpoint_send(near, 0x10000, &decoded, 0, LENGTH, &options, sizeof options, &ticket));
    EXPECT(fpga_endpoint_wait(near, ticket ^ 1, SECOND, NULL, 0), FPGA_ERROR_TICKET);
    for (found = 0; !found;) {
        both(near, far);
        DO(fpga_endpoint_next_completion(near, &completion, sizeof completion, &found));
    }
    HOLDS(completion.ticket == ticket && completion.result == FPGA_OK && completion.length == LENGTH && completion.node == 2);
    DO(fpga_endpoint_wait_notification(far, SECOND, &notification, sizeof notification));
    HOLDS(notification.node == 1 && notification.address == 0x200000 && notification.length == LENGTH);
    DO(fpga_endpoint_next_notification(far, &notification, sizeof notification, &found));
    HOLDS(found == 0);
    DO(fpga_network_peek(network, 1, 0x200000, received, LENGTH));
    HOLDS(memcmp(sent, received, LENGTH) == 0);
    /* The wait drives the cards as well. */
    options.notify = FPGA_NOTIFY_NONE;
    DO(fpga_endpoint_send(near, 0x10000, &decoded, 0, 1000, &options, sizeof options, &ticket));
    DO(fpga_endpoint_wait(near, ticket, FPGA_NO_TIMEOUT, &completion, sizeof completion));
    HOLDS(completion.length == 1000 && completion.reason == FPGA_SEND_DONE);
    EXPECT(fpga_endpoint_wait(near, ticket, 10 * SECOND, NULL, 0), FPGA_ERROR_TICKET);
    /* Cancelled. */
    DO(fpga_endpoint_send(near, 0x10000, &decoded, 0, LENGTH, &options, sizeof options, &ticket));
    DO(fpga_endpoint_cancel(near, ticket, &cancelled));
    HOLDS(cancelled == 1);
    EXPECT(fpga_endpoint_wait(near, ticket, 10 * SECOND, &completion, sizeof completion), FPGA_ERROR_CANCELLED);
    HOLDS(completion.reason == FPGA_SEND_CANCELLED);
    /* A closed region. */
    DO(fpga_region_close(far, &decoded));
    EXPECT(fpga_region_close(far, &decoded), FPGA_ERROR_ARGUMENT);
    DO(fpga_endpoint_send(near, 0x10000, &decoded, 0, 1000, &options, sizeof options, &ticket));
    EXPECT(fpga_endpoint_wait(near, ticket, 10 * SECOND, &completion, sizeof completion), FPGA_ERROR_PEER);
    HOLDS(completion.result == FPGA_ERROR_PEER && completion.reason != FPGA_SEND_DONE);
    HOLDS(fpga_last_error()->part == FPGA_PART_ENDPOINT && strcmp(fpga_last_error()->card, "mock:0") == 0);
    options.notify = 5;
    EXPECT(fpga_endpoint_send(near, 0x10000, &decoded, 0, 1, &options, sizeof options, &ticket), FPGA_ERROR_ARGUMENT);
    options.notify = 0;
    options.scheme = "sender-window"; /* of the network simulator; no card has it */
    EXPECT(fpga_endpoint_send(near, 0x10000, &decoded, 0, 1, &options, sizeof options, &ticket), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_endpoint_send(near, 0x10000, NULL, 0, 1, NULL, 0, &ticket), FPGA_ERROR_ARGUMENT);
}

static void read_memory(fpga_network network, fpga_endpoint near, fpga_endpoint far)
{
    uint8_t bytes[FPGA_READABLE_BYTES];
    fpga_readable readable, decoded;
    fpga_read_completion completion;
    fpga_endpoint_counters counters;
    char text[32] = "";
    uint64_t ticket;
    uint32_t found = 0, cancelled;
    fpga_peer peer;
    DO(fpga_endpoint_wait_peer(near, 2, 10 * SECOND, &peer, sizeof peer));
    HOLDS(peer.node == 2 && peer.packet_size >= 64 && (peer.schemes & 1) == 1);
    EXPECT(fpga_endpoint_wait_peer(near, 77, 1000000, &peer, sizeof peer), FPGA_ERROR_PEER);
    DO(fpga_network_poke(network, 1, 0x300000, "memory of the other node", 25));
    DO(fpga_readable_open(far, 1, 0x300000, 4096, &readable));
    DO(fpga_readable_encode(&readable, bytes, sizeof bytes));
    DO(fpga_readable_decode(bytes, sizeof bytes, &decoded));
    HOLDS(memcmp(&readable, &decoded, sizeof readable) == 0);
    EXPECT(fpga_endpoint_read(near, &decoded, 0, 0x400000, 5000, NULL, 0, &ticket), FPGA_ERROR_RANGE);
    DO(fpga_endpoint_read(near, &decoded, 0, 0x400000, 25, NULL, 0, &ticket));
    while (!found) {
        both(near, far);
        DO(fpga_endpoint_next_read(near, &completion, sizeof completion, &found));
    }
    HOLDS(completion.ticket == ticket && completion.node == 2 && completion.length == 25 && completion.result == FPGA_OK);
    DO(fpga_network_peek(network, 0, 0x400000, text, 25));
    HOLDS(strcmp(text, "memory of the other node") == 0);
    EXPECT(fpga_endpoint_wait_read(near, ticket, SECOND, NULL, 0), FPGA_ERROR_TICKET);
    DO(fpga_endpoint_read(near, &decoded, 0, 0x400000, 25, NULL, 0, &ticket));
    DO(fpga_endpoint_cancel_read(near, ticket, &cancelled));
    HOLDS(cancelled == 1);
    EXPECT(fpga_endpoint_wait_read(near, ticket, SECOND, &completion, sizeof completion), FPGA_ERROR_CANCELLED);
    DO(fpga_readable_close(far, &decoded));
    EXPECT(fpga_readable_close(far, &decoded), FPGA_ERROR_ARGUMENT);
    /* The other node learns by an acknowledgement that its answer has arrived. */
    do {
        both(near, far);
        DO(fpga_endpoint_get_counters(far, &counters, sizeof counters));
    } while (counters.reads_served == 0);
    HOLDS(counters.events > 0);
}

static void read_file(const char *name, char *text, size_t size)
{
    FILE *file = fopen(name, "r");
    size_t length;
    HOLDS(file != NULL);
    length = fread(text, 1, size - 1, file);
    text[length] = 0;
    fclose(file);
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    HOLDS(file != NULL);
    HOLDS(fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Incarnations of a node are ordered. `file`: name of a file that does not exist. */
static void incarnations(const char *file)
{
    static const uint32_t newest = 2000000000;
    fpga_network_options options;
    fpga_endpoint_options settings;
    fpga_send_completion completion;
    fpga_endpoint_info info;
    fpga_endpoint near, far;
    fpga_network network;
    fpga_card cards[2];
    fpga_region region;
    uint64_t ticket;
    char text[32], expected[32];
    uint32_t first;
    memset(&options, 0, sizeof options);
    memset(&settings, 0, sizeof settings);
    options.cards = 2;
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &cards[0]));
    DO(fpga_network_open(network, 1, &cards[1]));
    /* By default, a number later than every earlier one, which the file keeps. */
    settings.incarnation_file = file;
    DO(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near));
    DO(fpga_endpoint_get_info(near, &info, sizeof info));
    first = info.incarnation;
    DO(fpga_endpoint_close(near));
    snprintf(expected, sizeof expected, "%010lu\n", (unsigned long)first);
    read_file(file, text, sizeof text);
    HOLDS(strcmp(text, expected) == 0);
    /* The clock is behind the file: the file decides. */
    snprintf(text, sizeof text, "%010lu\n", (unsigned long)first + 5000);
    write_file(file, text);
    DO(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near));
    DO(fpga_endpoint_get_info(near, &info, sizeof info));
    HOLDS(info.incarnation == first + 5001);
    DO(fpga_endpoint_close(near));
    settings.incarnation_file = "not UTF-8: \xff";
    EXPECT(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near), FPGA_ERROR_ARGUMENT);
    settings.incarnation_file = NULL;
    /* A stated number is the caller's responsibility: the other node refuses an earlier one. */
    DO(fpga_endpoint_open(cards[1], NULL, 0, &far));
    DO(fpga_region_open(far, FPGA_ANY_NODE, 0x200000, 100, &region));
    settings.incarnation = newest;
    DO(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near));
    DO(fpga_endpoint_send(near, 0x10000, &region, 0, 100, NULL, 0, &ticket));
    DO(fpga_endpoint_wait(near, ticket, 10 * SECOND, &completion, sizeof completion));
    DO(fpga_endpoint_close(near));
    settings.incarnation = newest - 1;
    DO(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near));
    DO(fpga_endpoint_send(near, 0x10000, &region, 0, 100, NULL, 0, &ticket));
    EXPECT(fpga_endpoint_wait(near, ticket, 10 * SECOND, &completion, sizeof completion), FPGA_ERROR_PEER);
    HOLDS(completion.result == FPGA_ERROR_PEER && completion.reason == FPGA_SEND_SUPERSEDED);
    HOLDS(strstr(fpga_last_error()->message, "incarnation 0x77359400") != NULL);
    HOLDS(strstr(fpga_last_error()->advice, "open it again without an incarnation") != NULL);
    DO(fpga_endpoint_close(near));
    DO(fpga_endpoint_open(cards[0], NULL, 0, &near));
    DO(fpga_endpoint_get_info(near, &info, sizeof info));
    HOLDS(info.incarnation > newest);
    DO(fpga_endpoint_send(near, 0x10000, &region, 0, 100, NULL, 0, &ticket));
    DO(fpga_endpoint_wait(near, ticket, 10 * SECOND, &completion, sizeof completion));
    DO(fpga_endpoint_close(near));
    DO(fpga_endpoint_close(far));
    DO(fpga_close(cards[0]));
    DO(fpga_close(cards[1]));
    DO(fpga_network_close(network));
}

int main(int count, char **arguments)
{
    char file[4096];
    fpga_network_options options;
    fpga_endpoint_options settings;
    fpga_network network;
    fpga_card cards[2];
    fpga_endpoint near, far, again;
    memset(&options, 0, sizeof options);
    memset(&settings, 0, sizeof settings);
    options.cards = 2;
    options.seed = 7;
    options.lost_one_in = 50;
    options.duplicated_one_in = 50;
    options.reorder = 4;
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &cards[0]));
    DO(fpga_network_open(network, 1, &cards[1]));
    settings.scheme = "fastest";
    EXPECT(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near), FPGA_ERROR_ARGUMENT);
    HOLDS(strstr(fpga_last_error()->message, "registry") != NULL);
    settings.scheme = NULL;
    settings.event_entries = 100;
    EXPECT(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near), FPGA_ERROR_ARGUMENT);
    settings.event_entries = 0;
    DO(fpga_endpoint_open(cards[0], NULL, 0, &near));
    EXPECT(fpga_endpoint_open(cards[0], NULL, 0, &again), FPGA_ERROR_IN_USE);
    DO(fpga_endpoint_open(cards[1], NULL, 0, &far));
    transfer(network, near, far, NULL);
    read_memory(network, near, far);
    DO(fpga_endpoint_write(near, 0x1000, "direct", 7));
    DO(fpga_endpoint_close(near));
    DO(fpga_endpoint_close(far));
    EXPECT(fpga_endpoint_poll(far, NULL), FPGA_ERROR_HANDLE);
    settings.scheme = "selective";
    DO(fpga_endpoint_open(cards[0], &settings, sizeof settings, &near));
    DO(fpga_endpoint_open(cards[1], &settings, sizeof settings, &far));
    transfer(network, near, far, "Selective");
    DO(fpga_endpoint_close(near));
    DO(fpga_endpoint_close(far));
    DO(fpga_close(cards[0]));
    DO(fpga_close(cards[1]));
    DO(fpga_network_close(network));
    /* Beside this program. */
    HOLDS(count > 0 && snprintf(file, sizeof file, "%s.incarnation", arguments[0]) < (int)sizeof file);
    remove(file);
    incarnations(file);
    remove(file);
    puts("endpoints work");
    return 0;
}
