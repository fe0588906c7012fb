/*
 * User interrupts: the design on the card interrupts the host by a line of usr_irq_req. A line is a level: the design holds it until the
 * host has served the cause, usually by a register of the design.
 *
 *     ./user_interrupt           a simulated card, whose design is played by this program
 *     ./user_interrupt CARD      waits for one interrupt of a real card
 */
#include "check.h"
#include <string.h>

enum { RESULT = 3 };

int main(int argc, char **argv)
{
    uint32_t line = RESULT, lines;
    uint64_t counts[FPGA_USER_LINES];
    fpga_network_options options;
    fpga_network network;
    fpga_interrupt interrupt;
    fpga_card card;
    int simulated = argc < 2;

    if (simulated) {
        /* One simulated card that works on a thread of its own. */
        memset(&options, 0, sizeof options);
        options.threaded = 1;
        check(fpga_network_create(&options, sizeof options, &network));
        check(fpga_network_open(network, 0, &card));
    } else {
        check(fpga_open(argv[1], &card));
    }

    /* Taking a line enables it, and the card's interrupts with it. Several lines in one call: the second and third argument. */
    check(fpga_interrupt_open(card, &line, 1, &interrupt));

    for (int result = 0; result < (simulated ? 3 : 1); result++) {
        if (simulated)
            check(fpga_network_set_user_interrupt(network, 0, RESULT, 1)); /* the design has a result */

        /* Blocks; fpga_interrupt_fd is for programs that wait by poll() or epoll. */
        check(fpga_interrupt_wait(interrupt, 10 * SECOND, &lines, counts));
        printf("lines %#x, line %d: %llu\n", (unsigned)lines, RESULT, (unsigned long long)counts[RESULT]);

        /* Serve the cause first, here: the design lowers its line. A line that is still high after rearming interrupts again. */
        if (simulated)
            check(fpga_network_set_user_interrupt(network, 0, RESULT, 0));
        check(fpga_interrupt_rearm(interrupt, RESULT));
    }

    check(fpga_interrupt_close(interrupt));
    check(fpga_close(card));
    if (simulated)
        check(fpga_network_close(network));
    return 0;
}
