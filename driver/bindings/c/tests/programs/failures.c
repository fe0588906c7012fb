/* Out parameters after a failure, sizes that are too large, and a stream that had no memory for a packet. */
#include "check.h"

/* Every out parameter has its defined value, whatever it had before. */
static void out_parameters(void)
{
    fpga_card card = {0};
    fpga_channel channel = {0};
    fpga_cdma cdma = {0};
    fpga_endpoint endpoint = {0};
    fpga_publisher publisher = {0};
    fpga_frame frame = {0};
    fpga_map map = {0};
    fpga_buffer buffer = {0};
    fpga_segment segment;
    uint64_t ticket = 7, ended = 7, start = 7, length = 7;
    uint32_t in_flight = 7, sent = 7, skipped = 7;
    size_t count = 7;
    void *data = &card;
    memset(&segment, 0, sizeof segment);
    EXPECT(fpga_submit(channel, buffer, 0, 64, 0, &ticket), FPGA_ERROR_HANDLE);
    HOLDS(ticket == UINT64_MAX);
    ticket = 7;
    EXPECT(fpga_submit_list(channel, &segment, 1, &ticket), FPGA_ERROR_HANDLE);
    HOLDS(ticket == UINT64_MAX);
    EXPECT(fpga_poll(channel, &count), FPGA_ERROR_HANDLE);
    HOLDS(count == 0);
    EXPECT(fpga_progress(channel, &ended, &in_flight), FPGA_ERROR_HANDLE);
    HOLDS(ended == 0 && in_flight == 0);
    ended = 7, in_flight = 7;
    EXPECT(fpga_cdma_ring_poll(cdma, &ended, &in_flight), FPGA_ERROR_HANDLE);
    HOLDS(ended == 0 && in_flight == 0);
    count = 7;
    EXPECT(fpga_endpoint_poll(endpoint, &count), FPGA_ERROR_HANDLE);
    HOLDS(count == 0);
    count = 7;
    EXPECT(fpga_publisher_poll(publisher, &count), FPGA_ERROR_HANDLE);
    HOLDS(count == 0);
    EXPECT(fpga_publisher_publish(publisher, frame, &ticket, &sent, &skipped), FPGA_ERROR_HANDLE);
    HOLDS(sent == 0 && skipped == 0);
    EXPECT(fpga_get_memory_range(card, 0, &start, &length), FPGA_ERROR_HANDLE);
    HOLDS(length == 0);
    count = 7;
    EXPECT(fpga_buffer_data(buffer, &data, &count), FPGA_ERROR_HANDLE);
    HOLDS(data == NULL && count == 0);
    count = 7;
    EXPECT(fpga_map_value_text(map, "a", 1, NULL, 0, &count), FPGA_ERROR_HANDLE);
    HOLDS(count == 0);
}

/* A receive that finds no DMA memory says so, and the stream receives with a smaller capacity. */
static void receive_without_memory(void)
{
    fpga_open_options options;
    fpga_card card;
    fpga_channel in, out;
    char packet[256];
    size_t length;
    size_t most = (size_t)8 << 20;
    char *large = (char *)malloc(most);
    memset(&options, 0, sizeof options);
    options.dma_limit = (uint64_t)4 << 20;
    HOLDS(large != NULL);
    DO(fpga_open_with("mock:us-plus-x8-stream", &options, sizeof options, &card));
    DO(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &out));
    DO(fpga_stream_open(card, FPGA_C2H, 0, NULL, 0, &in));
    EXPECT(fpga_stream_receive(in, large, most, SECOND, &length), FPGA_ERROR_NO_MEMORY);
    HOLDS(length == 0);
    DO(fpga_stream_send(out, "packet", 7, SECOND));
    DO(fpga_stream_receive(in, packet, sizeof packet, SECOND, &length));
    HOLDS(length == 7 && strcmp(packet, "packet") == 0);
    DO(fpga_channel_close(in));
    DO(fpga_channel_close(out));
    DO(fpga_close(card));
    free(large);
}

static void too_large(void)
{
    fpga_network_options options;
    fpga_publisher_options publishing;
    fpga_network network;
    fpga_card card;
    fpga_endpoint endpoint;
    fpga_publisher publisher;
    memset(&options, 0, sizeof options);
    memset(&publishing, 0, sizeof publishing);
    options.cards = UINT32_MAX;
    EXPECT(fpga_network_create(&options, sizeof options, &network), FPGA_ERROR_ARGUMENT);
    HOLDS(network.value == 0);
    DO(fpga_network_create(NULL, 0, &network));
    DO(fpga_network_open(network, 0, &card));
    DO(fpga_endpoint_open(card, NULL, 0, &endpoint));
    publishing.heap_slots = UINT32_MAX;
    EXPECT(fpga_publisher_open(endpoint, &publishing, sizeof publishing, &publisher), FPGA_ERROR_ARGUMENT);
    HOLDS(publisher.value == 0);
    DO(fpga_close(card));
    DO(fpga_network_close(network));
}

int main(void)
{
    out_parameters();
    receive_without_memory();
    too_large();
    puts("failures leave defined values");
    return 0;
}
