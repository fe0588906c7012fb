/* Every function with handles that are null, wild, closed or of another kind, and with NULL: all end in a status. */
#include "check.h"

static uint64_t bad[4];

/* The call with each of the bad handles. Out parameters get their defined values. */
#define BAD(type, call)                        \
    do {                                       \
        size_t n_;                             \
        for (n_ = 0; n_ < 4; n_++) {           \
            type h = {bad[n_]};                \
            EXPECT(call, FPGA_ERROR_HANDLE);   \
        }                                      \
    } while (0)
/* A call with a NULL pointer, or an impossible value. */
#define WRONG(call) EXPECT(call, FPGA_ERROR_ARGUMENT)

static void cards(fpga_card card)
{
    fpga_card_info info;
    fpga_recovery_report report;
    fpga_buffer buffer;
    fpga_channel channel;
    fpga_interrupt interrupt;
    fpga_endpoint endpoint;
    fpga_cdma cdma;
    fpga_user_lines lines;
    char text[8];
    uint64_t start, length;
    uint32_t line = 0, value;
    BAD(fpga_card, fpga_close(h));
    BAD(fpga_card, fpga_get_info(h, &info, sizeof info));
    BAD(fpga_card, fpga_get_name(h, text, sizeof text));
    BAD(fpga_card, fpga_get_memory_range(h, 0, &start, &length));
    BAD(fpga_card, fpga_enable_interrupts(h, &value));
    BAD(fpga_card, fpga_read32(h, FPGA_BAR_DMA, 0, &value));
    BAD(fpga_card, fpga_write32(h, FPGA_BAR_DMA, 0, 0));
    BAD(fpga_card, fpga_read64(h, FPGA_BAR_DMA, 0, &start));
    BAD(fpga_card, fpga_write64(h, FPGA_BAR_DMA, 0, 0));
    BAD(fpga_card, fpga_buffer_create(h, 4096, &buffer));
    BAD(fpga_card, fpga_buffer_register(h, bad, 4096, &buffer));
    BAD(fpga_card, fpga_channel_open(h, FPGA_H2C, 0, &channel));
    BAD(fpga_card, fpga_channel_open_with(h, FPGA_H2C, 0, NULL, 0, &channel));
    BAD(fpga_card, fpga_stream_open(h, FPGA_H2C, 0, NULL, 0, &channel));
    BAD(fpga_card, fpga_set_write_flush_timeout(h, 0));
    BAD(fpga_card, fpga_interrupt_open(h, &line, 1, &interrupt));
    BAD(fpga_card, fpga_get_user_lines(h, &lines, sizeof lines));
    BAD(fpga_card, fpga_cdma_open(h, &cdma));
    BAD(fpga_card, fpga_cdma_open_at(h, 0, &cdma));
    BAD(fpga_card, fpga_recover(h, NULL, 0, &report, sizeof report, NULL, 0));
    BAD(fpga_card, fpga_endpoint_open(h, NULL, 0, &endpoint));
    HOLDS(buffer.value == 0 && channel.value == 0 && interrupt.value == 0 && cdma.value == 0 && endpoint.value == 0);
    HOLDS(value == UINT32_MAX && start == UINT64_MAX);
    WRONG(fpga_get_memory_range(card, 0, NULL, &length));
    WRONG(fpga_get_name(card, NULL, 8));
    WRONG(fpga_read32(card, FPGA_BAR_DMA, 0, NULL));
    WRONG(fpga_buffer_create(card, 4096, NULL));
    WRONG(fpga_channel_open(card, FPGA_H2C, 0, NULL));
    WRONG(fpga_channel_open_with(card, FPGA_H2C, 0, NULL, 32, &channel));
    WRONG(fpga_interrupt_open(card, &line, 1, NULL));
    WRONG(fpga_get_user_lines(card, NULL, sizeof lines));
    WRONG(fpga_cdma_open(card, NULL));
    WRONG(fpga_endpoint_open(card, NULL, 0, NULL));
    WRONG(fpga_recover(card, NULL, 0, NULL, 0, NULL, 10));
    EXPECT(fpga_stream_open(card, FPGA_H2C, 0, NULL, 0, &channel), FPGA_ERROR_UNSUPPORTED);
    EXPECT(fpga_set_write_flush_timeout(card, 1), FPGA_ERROR_UNSUPPORTED);
    EXPECT(fpga_cdma_open_at(card, UINT64_MAX - 3, &cdma), FPGA_ERROR_RANGE);
    EXPECT(fpga_read32(card, FPGA_BAR_DMA, 2, &value), FPGA_ERROR_RANGE);
}

static void channels(fpga_card card)
{
    fpga_segment segment = {{0}, 0, 64, 0}, many;
    fpga_wait_options wait;
    fpga_piece piece;
    fpga_stream_statistics statistics;
    fpga_buffer buffer;
    fpga_channel channel;
    uint64_t ticket;
    uint32_t value;
    size_t length;
    void *data;
    int fd;
    memset(&wait, 0, sizeof wait);
    BAD(fpga_buffer, fpga_buffer_data(h, &data, &length));
    BAD(fpga_buffer, fpga_buffer_free(h));
    BAD(fpga_channel, fpga_channel_close(h));
    BAD(fpga_channel, fpga_write(h, 0, "x", 1, 0));
    BAD(fpga_channel, fpga_write_with(h, 0, "x", 1, 0, &wait, sizeof wait));
    BAD(fpga_channel, fpga_read(h, 0, &value, 1, 0));
    BAD(fpga_channel, fpga_read_with(h, 0, &value, 1, 0, &wait, sizeof wait));
    BAD(fpga_channel, fpga_submit(h, segment.buffer, 0, 1, 0, &ticket));
    BAD(fpga_channel, fpga_submit_list(h, &segment, 1, &ticket));
    BAD(fpga_channel, fpga_poll(h, &length));
    BAD(fpga_channel, fpga_progress(h, &ticket, &value));
    BAD(fpga_channel, fpga_wait(h, 0, 0));
    BAD(fpga_channel, fpga_wait_with(h, 0, 0, &wait, sizeof wait));
    BAD(fpga_channel, fpga_next_failure(h, &ticket));
    BAD(fpga_channel, fpga_cancel(h, 0, &value));
    BAD(fpga_channel, fpga_abort(h));
    BAD(fpga_channel, fpga_channel_fd(h, &fd));
    BAD(fpga_channel, fpga_channel_take(h, &ticket));
    BAD(fpga_channel, fpga_channel_arm(h));
    BAD(fpga_channel, fpga_channel_disarm(h));
    BAD(fpga_channel, fpga_stream_send(h, "x", 1, 0));
    BAD(fpga_channel, fpga_stream_next(h, &length));
    BAD(fpga_channel, fpga_stream_wait(h, 0, NULL, 0, &length));
    BAD(fpga_channel, fpga_stream_pieces(h, &piece, 1, &length));
    BAD(fpga_channel, fpga_stream_copy(h, 0, &value, 1));
    BAD(fpga_channel, fpga_stream_release(h));
    BAD(fpga_channel, fpga_stream_receive(h, &value, 4, 0, &length));
    BAD(fpga_channel, fpga_stream_stop(h));
    BAD(fpga_channel, fpga_stream_get_statistics(h, &statistics, sizeof statistics));
    HOLDS(data == NULL && fd == -1 && length == 0);
    DO(fpga_buffer_create(card, 4096, &buffer));
    DO(fpga_channel_open(card, FPGA_H2C, 1, &channel));
    EXPECT(fpga_submit_list(channel, &segment, 1, &ticket), FPGA_ERROR_HANDLE);
    many = segment;
    many.buffer = buffer;
    many.length = SIZE_MAX;
    EXPECT(fpga_submit_list(channel, &many, 1, &ticket), FPGA_ERROR_RANGE);
    WRONG(fpga_submit_list(channel, &many, SIZE_MAX, &ticket));
    WRONG(fpga_submit_list(channel, (fpga_segment *)(void *)((char *)&many + 1), 1, &ticket));
    WRONG(fpga_write(channel, 0, "x", SIZE_MAX, 0));
    WRONG(fpga_write_with(channel, 0, "x", 1, 0, NULL, sizeof wait));
    WRONG(fpga_channel_fd(channel, NULL));
    WRONG(fpga_channel_take(channel, NULL));
    WRONG(fpga_next_failure(channel, NULL));
    WRONG(fpga_buffer_data(buffer, NULL, &length));
    WRONG(fpga_stream_next(channel, &length));
    WRONG(fpga_stream_get_statistics(channel, &statistics, sizeof statistics));
    EXPECT(fpga_wait(channel, 0, 0), FPGA_ERROR_TICKET);
    EXPECT(fpga_channel_arm(channel), FPGA_ERROR_UNSUPPORTED);
    DO(fpga_channel_close(channel));
    /* The handle of one kind where another is expected. */
    channel.value = buffer.value;
    EXPECT(fpga_poll(channel, &length), FPGA_ERROR_HANDLE);
    DO(fpga_buffer_free(buffer));
}

static void others(fpga_card card)
{
    fpga_map map = {0};
    fpga_map_entry entry;
    fpga_cdma cdma;
    uint64_t counts[FPGA_USER_LINES];
    uint32_t value;
    size_t length;
    char text[8];
    int fd;
    BAD(fpga_map, fpga_map_close(h));
    BAD(fpga_map, fpga_map_read(h, card, "x", &value));
    BAD(fpga_map, fpga_map_take(h, card, "x", &value));
    BAD(fpga_map, fpga_map_write(h, card, "x", 0));
    BAD(fpga_map, fpga_map_set(h, card, "x", "y"));
    BAD(fpga_map, fpga_map_value_text(h, "x", 0, text, sizeof text, &length));
    BAD(fpga_map, fpga_map_value_number(h, "x", "y", &value));
    BAD(fpga_map, fpga_map_get_value(h, "x", 0, text, sizeof text, &value));
    BAD(fpga_map, fpga_map_count(h, &length));
    BAD(fpga_map, fpga_map_get_entry(h, 0, text, sizeof text, &entry, sizeof entry));
    WRONG(fpga_map_load(NULL, &map));
    WRONG(fpga_map_load("x", NULL));
    WRONG(fpga_map_read(map, card, NULL, &value));
    WRONG(fpga_map_set(map, card, "x", NULL));
    DO(fpga_map_parse("schema_version: 1\nname: m\nblocks: [{name: b, offset: 0, registers: [{name: r, offset: 0}]}]\n", NULL, &map));
    WRONG(fpga_map_value_text(map, "b.r", 0, NULL, 0, NULL));
    WRONG(fpga_map_value_text(map, "b.r", 0, NULL, 5, &length));
    DO(fpga_map_value_text(map, "b.r", 0, NULL, 0, &length));
    HOLDS(length == 3);
    WRONG(fpga_map_get_value(map, "b.r", 0, text, sizeof text, NULL));
    DO(fpga_map_close(map));
    BAD(fpga_interrupt, fpga_interrupt_close(h));
    BAD(fpga_interrupt, fpga_interrupt_wait(h, 0, &value, counts));
    BAD(fpga_interrupt, fpga_interrupt_take(h, &value, counts));
    BAD(fpga_interrupt, fpga_interrupt_rearm(h, 0));
    BAD(fpga_interrupt, fpga_interrupt_enable(h, 0, 1));
    BAD(fpga_interrupt, fpga_interrupt_get_count(h, 0, counts, NULL));
    BAD(fpga_interrupt, fpga_interrupt_fd(h, &fd));
    BAD(fpga_cdma, fpga_cdma_close(h));
    BAD(fpga_cdma, fpga_cdma_copy(h, 0, 0, 1, 0));
    BAD(fpga_cdma, fpga_cdma_get_status(h, &value, NULL, NULL));
    BAD(fpga_cdma, fpga_cdma_reset(h));
    BAD(fpga_cdma, fpga_cdma_ring_start(h, NULL, 0));
    BAD(fpga_cdma, fpga_cdma_ring_stop(h));
    BAD(fpga_cdma, fpga_cdma_ring_submit(h, NULL, 0, counts));
    BAD(fpga_cdma, fpga_cdma_ring_poll(h, counts, &value));
    BAD(fpga_cdma, fpga_cdma_ring_wait(h, 0, 0, NULL, 0));
    BAD(fpga_cdma, fpga_cdma_ring_next_failure(h, counts));
    BAD(fpga_cdma, fpga_cdma_ring_abort(h));
    DO(fpga_cdma_open(card, &cdma));
    DO(fpga_cdma_get_status(cdma, NULL, NULL, NULL));
    DO(fpga_cdma_close(cdma));
    EXPECT(fpga_cdma_close(cdma), FPGA_ERROR_HANDLE);
}

static void endpoints(fpga_card card)
{
    fpga_region region;
    fpga_readable readable;
    fpga_endpoint_info info;
    fpga_endpoint_counters counters;
    fpga_send_completion completion;
    fpga_read_completion read;
    fpga_notification notification;
    fpga_publisher_state state;
    fpga_subscriber_state counts;
    fpga_publisher_event news;
    fpga_frame_event event;
    fpga_publisher publisher;
    fpga_subscriber subscriber;
    fpga_endpoint endpoint;
    fpga_frame frame = {0};
    fpga_peer peer;
    const void *value;
    void *data;
    uint8_t bytes[FPGA_READABLE_BYTES];
    uint64_t ticket;
    uint32_t found;
    size_t length;
    memset(&region, 0, sizeof region);
    memset(&readable, 0, sizeof readable);
    BAD(fpga_endpoint, fpga_endpoint_close(h));
    BAD(fpga_endpoint, fpga_endpoint_get_info(h, &info, sizeof info));
    BAD(fpga_endpoint, fpga_endpoint_get_counters(h, &counters, sizeof counters));
    BAD(fpga_endpoint, fpga_region_open(h, 1, 0, 1, &region));
    BAD(fpga_endpoint, fpga_region_close(h, &region));
    BAD(fpga_endpoint, fpga_endpoint_send(h, 0, &region, 0, 0, NULL, 0, &ticket));
    BAD(fpga_endpoint, fpga_endpoint_poll(h, &length));
    BAD(fpga_endpoint, fpga_endpoint_next_completion(h, &completion, sizeof completion, &found));
    BAD(fpga_endpoint, fpga_endpoint_wait(h, 0, 0, &completion, sizeof completion));
    BAD(fpga_endpoint, fpga_endpoint_cancel(h, 0, &found));
    BAD(fpga_endpoint, fpga_endpoint_next_notification(h, &notification, sizeof notification, &found));
    BAD(fpga_endpoint, fpga_endpoint_wait_notification(h, 0, &notification, sizeof notification));
    BAD(fpga_endpoint, fpga_endpoint_write(h, 0, "x", 1));
    BAD(fpga_endpoint, fpga_endpoint_wait_peer(h, 1, 0, &peer, sizeof peer));
    BAD(fpga_endpoint, fpga_readable_open(h, 1, 0, 1, &readable));
    BAD(fpga_endpoint, fpga_readable_close(h, &readable));
    BAD(fpga_endpoint, fpga_endpoint_read(h, &readable, 0, 0, 0, NULL, 0, &ticket));
    BAD(fpga_endpoint, fpga_endpoint_next_read(h, &read, sizeof read, &found));
    BAD(fpga_endpoint, fpga_endpoint_wait_read(h, 0, 0, &read, sizeof read));
    BAD(fpga_endpoint, fpga_endpoint_cancel_read(h, 0, &found));
    BAD(fpga_endpoint, fpga_publisher_open(h, NULL, 0, &publisher));
    BAD(fpga_endpoint, fpga_subscriber_open(h, "127.0.0.1:1", NULL, 0, &subscriber));
    BAD(fpga_publisher, fpga_publisher_listen(h, "127.0.0.1:0", NULL, 0));
    BAD(fpga_publisher, fpga_publisher_poll(h, &length));
    BAD(fpga_publisher, fpga_publisher_next_event(h, &news, sizeof news, NULL, 0));
    BAD(fpga_publisher, fpga_publisher_take(h, &frame));
    BAD(fpga_publisher, fpga_publisher_publish(h, frame, NULL, NULL, NULL));
    BAD(fpga_publisher, fpga_publisher_end(h));
    BAD(fpga_publisher, fpga_publisher_close(h, 0));
    BAD(fpga_publisher, fpga_publisher_get_state(h, &state, sizeof state));
    BAD(fpga_frame, fpga_frame_data(h, &data, &length));
    BAD(fpga_frame, fpga_frame_value(h, &value, &length));
    BAD(fpga_frame, fpga_frame_set_length(h, 1));
    BAD(fpga_frame, fpga_frame_write(h, "x", 1));
    BAD(fpga_frame, fpga_frame_set_value(h, "x", 1));
    BAD(fpga_frame, fpga_frame_free(h));
    BAD(fpga_subscriber, fpga_subscriber_poll(h, &event, sizeof event));
    BAD(fpga_subscriber, fpga_subscriber_wait(h, 0, &event, sizeof event));
    BAD(fpga_subscriber, fpga_subscriber_leave(h, 0));
    BAD(fpga_subscriber, fpga_subscriber_close(h));
    BAD(fpga_subscriber, fpga_subscriber_get_state(h, &counts, sizeof counts));
    HOLDS(publisher.value == 0 && subscriber.value == 0 && frame.value == 0 && ticket == UINT64_MAX && found == 0);
    WRONG(fpga_region_encode(NULL, bytes, sizeof bytes));
    WRONG(fpga_region_encode(&region, NULL, sizeof bytes));
    WRONG(fpga_region_decode(NULL, 32, &region));
    WRONG(fpga_readable_encode(NULL, bytes, sizeof bytes));
    WRONG(fpga_readable_decode(bytes, 0, &readable));
    DO(fpga_endpoint_open(card, NULL, 0, &endpoint));
    WRONG(fpga_endpoint_send(endpoint, 0, NULL, 0, 0, NULL, 0, NULL));
    WRONG(fpga_endpoint_next_completion(endpoint, NULL, 0, NULL));
    WRONG(fpga_endpoint_next_notification(endpoint, NULL, 0, &found));
    WRONG(fpga_region_open(endpoint, 1, 0, 4096, NULL));
    WRONG(fpga_subscriber_open(endpoint, NULL, NULL, 0, &subscriber));
    /* A node that nobody listens at; the endpoint went into the subscriber. */
    {
        fpga_status status = fpga_subscriber_open(endpoint, "127.0.0.1:1", NULL, 0, &subscriber);
        while (status == FPGA_OK)
            status = fpga_subscriber_poll(subscriber, &event, sizeof event);
        EXPECT(status, FPGA_ERROR_PEER);
        if (subscriber.value != 0) {
            EXPECT(fpga_subscriber_poll(subscriber, &event, sizeof event), FPGA_ERROR_STOPPED);
            DO(fpga_subscriber_leave(subscriber, SECOND));
        }
    }
    EXPECT(fpga_endpoint_poll(endpoint, NULL), FPGA_ERROR_HANDLE);
}

static void networks(void)
{
    fpga_card card;
    uint64_t units;
    uint32_t value;
    BAD(fpga_network, fpga_network_close(h));
    BAD(fpga_network, fpga_network_open(h, 0, &card));
    BAD(fpga_network, fpga_network_set_faults(h, 0, ""));
    BAD(fpga_network, fpga_network_load_faults(h, 0, "no such file.yaml"));
    BAD(fpga_network, fpga_network_fail(h, 0, FPGA_FAILURE_NONE));
    BAD(fpga_network, fpga_network_replug(h, 0));
    BAD(fpga_network, fpga_network_set_user_interrupt(h, 0, 0, 1));
    BAD(fpga_network, fpga_network_pulse_user_interrupt(h, 0, 0, &value));
    BAD(fpga_network, fpga_network_peek(h, 0, 0, &value, 4));
    BAD(fpga_network, fpga_network_poke(h, 0, 0, "x", 1));
    BAD(fpga_network, fpga_network_poison(h, 0, 0, 1));
    BAD(fpga_network, fpga_network_step(h, &value));
    BAD(fpga_network, fpga_network_settle(h, &units));
    BAD(fpga_network, fpga_network_advance(h, 1));
    WRONG(fpga_network_create(NULL, 0, NULL));
}

int main(void)
{
    fpga_card card, closed;
    fpga_buffer other;
    DO(fpga_open("mock", &closed));
    bad[0] = 0;
    bad[1] = UINT64_C(0x123456789abcdef0);
    bad[2] = closed.value;
    DO(fpga_close(closed));
    DO(fpga_open("mock", &card));
    /* An open handle, with the kind changed: no object has this kind. */
    bad[3] = card.value | UINT64_C(63) << 20;
    DO(fpga_buffer_create(card, 4096, &other));
    cards(card);
    channels(card);
    others(card);
    endpoints(card);
    networks();
    DO(fpga_buffer_free(other));
    DO(fpga_close(card));
    puts("every function refuses handles that are not its own");
    return 0;
}
