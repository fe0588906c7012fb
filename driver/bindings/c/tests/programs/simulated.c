/* Simulated cards: options, faults as texts and files, steps. */
#include "check.h"

int main(void)
{
    static const char plan[] = "seed: 1\nlist:\n  - {fault: refused_data, channel: h2c0}\n";
    fpga_network_options options;
    fpga_network network, none;
    fpga_card card;
    fpga_channel h2c;
    fpga_card_info info;
    fpga_buffer buffer;
    uint64_t ticket, units, ended;
    uint32_t worked = 1;
    char byte = 1;
    memset(&options, 0, sizeof options);
    options.description = "no such card.yaml";
    EXPECT(fpga_network_create(&options, sizeof options, &none), FPGA_ERROR_ARGUMENT);
    HOLDS(none.value == 0);
    options.description = "us-plus-x8-stream";
    DO(fpga_network_create(&options, sizeof options, &network));
    DO(fpga_network_open(network, 0, &card));
    DO(fpga_get_info(card, &info, sizeof info));
    HOLDS(info.stream == 1);
    DO(fpga_close(card));
    DO(fpga_network_close(network));
    EXPECT(fpga_network_close(network), FPGA_ERROR_HANDLE);
    EXPECT(fpga_network_open(network, 0, &card), FPGA_ERROR_HANDLE);

    options.description = NULL;
    options.cards = 2;
    DO(fpga_network_create(&options, sizeof options, &network));
    EXPECT(fpga_network_open(network, 2, &card), FPGA_ERROR_RANGE);
    DO(fpga_network_open(network, 1, &card));
    DO(fpga_get_info(card, &info, sizeof info));
    HOLDS(info.node == 2 && info.network_interface == 1);
    DO(fpga_channel_open(card, FPGA_H2C, 0, &h2c));
    EXPECT(fpga_network_set_faults(network, 1, "list: [{fault: nonsense}]"), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_network_set_faults(network, 1, NULL), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_network_load_faults(network, 1, "no such plan.yaml"), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_network_set_faults(network, 5, plan), FPGA_ERROR_RANGE);
    DO(fpga_network_set_faults(network, 1, plan));
    EXPECT(fpga_write(h2c, 0, &byte, 1, SECOND), FPGA_ERROR_FAULT);
    HOLDS(strcmp(fpga_last_error()->card, "mock:1") == 0 && fpga_last_error()->card_address == 0);
    HOLDS(fpga_last_error()->part == FPGA_PART_H2C && fpga_last_error()->advice[0] != 0);
    DO(fpga_write(h2c, 0, &byte, 1, SECOND));
    DO(fpga_network_set_faults(network, 1, ""));
    /* Cards work in steps. */
    DO(fpga_buffer_create(card, 4096, &buffer));
    DO(fpga_submit(h2c, buffer, 0, 4096, 0, &ticket));
    DO(fpga_poll(h2c, NULL));
    DO(fpga_network_settle(network, &units));
    DO(fpga_network_step(network, &worked));
    HOLDS(worked == 0);
    DO(fpga_network_advance(network, 1000000));
    DO(fpga_poll(h2c, NULL));
    DO(fpga_progress(h2c, &ended, NULL));
    HOLDS(ended == ticket + 1);
    EXPECT(fpga_network_fail(network, 1, (fpga_card_failure)8), FPGA_ERROR_ARGUMENT);
    DO(fpga_buffer_free(buffer));
    DO(fpga_channel_close(h2c));
    DO(fpga_close(card));
    DO(fpga_network_close(network));
    puts("simulated cards work");
    return 0;
}
