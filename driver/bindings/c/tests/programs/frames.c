/* A frame stream with one publisher and two subscribers, one of which is slow and misses frames. */
#include "check.h"

enum { FRAMES = 60, SIZE = 5000, SUBSCRIBERS = 2 };

typedef struct {
    fpga_subscriber handle;
    uint64_t frames, missed;
    int joined, ended;
} subscriber;

static void look(subscriber *of)
{
    fpga_frame_event event;
    fpga_frame frame;
    const void *value;
    void *data;
    size_t length;
    DO(fpga_subscriber_poll(of->handle, &event, sizeof event));
    switch (event.kind) {
    case FPGA_EVENT_JOINED:
        of->joined = 1;
        break;
    case FPGA_EVENT_FRAME:
        frame = event.frame;
        DO(fpga_frame_data(frame, &data, &length));
        HOLDS(length == SIZE - event.sequence && ((unsigned char *)data)[length - 1] == (unsigned char)event.sequence);
        DO(fpga_frame_value(frame, &value, &length));
        HOLDS(length == sizeof event.sequence && memcmp(value, &event.sequence, length) == 0);
        EXPECT(fpga_frame_write(frame, "x", 1), FPGA_ERROR_ARGUMENT);
        DO(fpga_frame_free(frame));
        EXPECT(fpga_frame_free(frame), FPGA_ERROR_HANDLE);
        of->frames++;
        break;
    case FPGA_EVENT_GAP:
        HOLDS(event.missed > 0);
        of->missed += event.missed;
        break;
    case FPGA_EVENT_ENDED:
        HOLDS(event.sequence == FRAMES);
        of->ended = 1;
        break;
    default:
        HOLDS(event.kind == FPGA_EVENT_NONE && event.frame.value == 0);
    }
}

static void publish(fpga_publisher publisher, uint64_t number)
{
    fpga_frame frame;
    uint64_t sequence;
    uint32_t sent, skipped;
    size_t length;
    void *data;
    DO(fpga_publisher_take(publisher, &frame));
    DO(fpga_frame_data(frame, &data, &length));
    HOLDS(length == SIZE);
    memset(data, (int)number, length);
    DO(fpga_frame_set_length(frame, SIZE - (size_t)number));
    EXPECT(fpga_frame_set_length(frame, SIZE + 1), FPGA_ERROR_RANGE);
    DO(fpga_frame_set_value(frame, &number, sizeof number));
    DO(fpga_publisher_publish(publisher, frame, &sequence, &sent, &skipped));
    HOLDS(sequence == number && sent + skipped == SUBSCRIBERS);
    EXPECT(fpga_publisher_publish(publisher, frame, NULL, NULL, NULL), FPGA_ERROR_HANDLE);
}

int main(void)
{
    fpga_network_options options;
    fpga_publisher_options settings;
    fpga_subscriber_options slots;
    fpga_publisher_state state;
    fpga_subscriber_state counts;
    fpga_publisher_event news;
    fpga_frame_event event;
    fpga_network network;
    fpga_card cards[1 + SUBSCRIBERS];
    fpga_endpoint endpoints[1 + SUBSCRIBERS];
    fpga_publisher publisher;
    fpga_subscriber none;
    fpga_frame frame;
    subscriber readers[SUBSCRIBERS];
    char address[64];
    uint64_t number = 0, turn;
    uint32_t n;
    memset(&options, 0, sizeof options);
    memset(&settings, 0, sizeof settings);
    memset(&slots, 0, sizeof slots);
    memset(readers, 0, sizeof readers);
    options.cards = 1 + SUBSCRIBERS;
    DO(fpga_network_create(&options, sizeof options, &network));
    for (n = 0; n <= SUBSCRIBERS; n++) {
        DO(fpga_network_open(network, n, &cards[n]));
        DO(fpga_endpoint_open(cards[n], NULL, 0, &endpoints[n]));
    }
    settings.max_data_length = SIZE;
    settings.max_value_length = 8;
    DO(fpga_publisher_open(endpoints[0], &settings, sizeof settings, &publisher));
    EXPECT(fpga_endpoint_poll(endpoints[0], NULL), FPGA_ERROR_HANDLE);
    EXPECT(fpga_publisher_listen(publisher, "nowhere", address, sizeof address), FPGA_ERROR_ARGUMENT);
    DO(fpga_publisher_listen(publisher, "127.0.0.1:0", address, sizeof address));
    EXPECT(fpga_subscriber_open(endpoints[1], "nowhere", NULL, 0, &none), FPGA_ERROR_ARGUMENT);
    slots.slots = 4;
    for (n = 0; n < SUBSCRIBERS; n++) {
        DO(fpga_subscriber_open(endpoints[n + 1], address, &slots, sizeof slots, &readers[n].handle));
        while (!readers[n].joined) {
            DO(fpga_publisher_poll(publisher, NULL));
            look(&readers[n]);
        }
    }
    DO(fpga_publisher_get_state(publisher, &state, sizeof state));
    HOLDS(state.subscribers == SUBSCRIBERS && state.next_sequence == 0 && state.closed == 0);
    DO(fpga_publisher_next_event(publisher, &news, sizeof news, address, sizeof address));
    HOLDS(news.kind == FPGA_PUBLISHER_JOINED && news.node == 2 && news.sequence == 0);
    DO(fpga_publisher_next_event(publisher, &news, sizeof news, NULL, 0));
    HOLDS(news.kind == FPGA_PUBLISHER_JOINED && news.node == 3);
    DO(fpga_publisher_next_event(publisher, &news, sizeof news, NULL, 0));
    HOLDS(news.kind == FPGA_PUBLISHER_NONE);
    /* A frame that is not published. */
    DO(fpga_publisher_take(publisher, &frame));
    EXPECT(fpga_frame_value(frame, (const void **)(void *)address, NULL), FPGA_ERROR_ARGUMENT);
    DO(fpga_frame_write(frame, "text", 4));
    DO(fpga_frame_free(frame));
    EXPECT(fpga_subscriber_wait(readers[0].handle, 1000000, &event, sizeof event), FPGA_ERROR_TIMED_OUT);
    /* A frame whose handle the event cannot take would keep its slot. */
    EXPECT(fpga_subscriber_wait(readers[0].handle, 0, &event, 8), FPGA_ERROR_ARGUMENT);
    EXPECT(fpga_subscriber_poll(readers[0].handle, &event, 8), FPGA_ERROR_ARGUMENT);
    HOLDS(event.kind == FPGA_EVENT_NONE);
    for (turn = 1; !readers[0].ended || !readers[1].ended; turn++) {
        if (number < FRAMES && turn % 100 == 0)
            publish(publisher, number++);
        else if (number == FRAMES)
            DO(fpga_publisher_end(publisher));
        DO(fpga_publisher_poll(publisher, NULL));
        look(&readers[0]);
        if (turn % 2000 == 0 || number == FRAMES)
            look(&readers[1]);
    }
    EXPECT(fpga_publisher_take(publisher, &frame), FPGA_ERROR_STOPPED);
    HOLDS(frame.value == 0);
    HOLDS(readers[0].frames == FRAMES && readers[0].missed == 0);
    HOLDS(readers[1].frames + readers[1].missed == FRAMES && readers[1].missed > 0);
    DO(fpga_subscriber_get_state(readers[1].handle, &counts, sizeof counts));
    HOLDS(counts.joined == 1 && counts.frames == readers[1].frames && counts.missed == readers[1].missed);
    DO(fpga_publisher_close(publisher, 10 * SECOND));
    EXPECT(fpga_publisher_poll(publisher, NULL), FPGA_ERROR_HANDLE);
    DO(fpga_subscriber_leave(readers[0].handle, 10 * SECOND));
    DO(fpga_subscriber_close(readers[1].handle));
    EXPECT(fpga_subscriber_poll(readers[1].handle, &event, sizeof event), FPGA_ERROR_HANDLE);
    for (n = 0; n <= SUBSCRIBERS; n++)
        DO(fpga_close(cards[n]));
    DO(fpga_network_close(network));
    puts("frame streams work");
    return 0;
}
