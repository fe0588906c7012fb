/*
 * RDMA: data moves from the memory of one card to the memory of another. The receiving program opens a region and passes its description to
 * the sender, by any means; after that it takes no part.
 *
 *     ./two_cards      two simulated cards on one network, in one program
 */
#include "check.h"
#include <string.h>

enum { LENGTH = 100000 };

int main(void)
{
    static char sent[LENGTH], found[LENGTH];
    uint8_t letter[FPGA_REGION_BYTES];
    fpga_network_options options;
    fpga_send_completion completion;
    fpga_notification arrival;
    fpga_endpoint sender, receiver;
    fpga_card near, far;
    fpga_network network;
    fpga_region region;
    uint64_t ticket;
    uint32_t done = 0;

    memset(&options, 0, sizeof options);
    options.cards = 2;
    options.lost_one_in = 100; /* one of 100 packets is lost, and sent again */
    check(fpga_network_create(&options, sizeof options, &network));
    check(fpga_network_open(network, 0, &near));
    check(fpga_network_open(network, 1, &far));
    check(fpga_endpoint_open(near, NULL, 0, &sender));
    check(fpga_endpoint_open(far, NULL, 0, &receiver));

    /* The receiver. Node 1 may write; the bytes go to it, for example through a socket. */
    check(fpga_region_open(receiver, 1, 0x200000, LENGTH, &region));
    check(fpga_region_encode(&region, letter, sizeof letter));

    /* The sender. */
    check(fpga_region_decode(letter, sizeof letter, &region));
    memset(sent, 'x', LENGTH);
    check(fpga_endpoint_write(sender, 0x10000, sent, LENGTH));
    check(fpga_endpoint_send(sender, 0x10000, &region, 0, LENGTH, NULL, 0, &ticket));

    /* One program polls both; two programs call fpga_endpoint_wait and fpga_endpoint_wait_notification. */
    while (!done) {
        check(fpga_endpoint_poll(receiver, NULL));
        check(fpga_endpoint_poll(sender, NULL));
        check(fpga_endpoint_next_completion(sender, &completion, sizeof completion, &done));
    }
    check(fpga_endpoint_wait_notification(receiver, SECOND, &arrival, sizeof arrival));
    check(fpga_network_peek(network, 1, arrival.address, found, LENGTH));
    printf("%llu bytes from node %u, %s\n", (unsigned long long)arrival.length, (unsigned)arrival.node,
           memcmp(sent, found, LENGTH) == 0 ? "all equal" : "different");

    check(fpga_endpoint_close(sender));
    check(fpga_endpoint_close(receiver));
    check(fpga_close(near));
    check(fpga_close(far));
    check(fpga_network_close(network));
    return 0;
}
