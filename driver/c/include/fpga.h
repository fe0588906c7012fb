/*
 * User-space driver for FPGA cards with Xilinx XDMA (PCIe DMA) and AXI CDMA.
 *
 * Handles
 *   A handle is a value, not a pointer: it is never dereferenced. 0 is no handle. A closed or wrong handle is the status
 *   FPGA_ERROR_HANDLE, never a fault. Memory arguments are pointers, and have to be valid as described.
 *
 * Errors
 *   Every function that can fail returns a status; FPGA_OK is 0. Out parameters have a defined value after a failure: handles are 0,
 *   values of registers are all ones, counts and lengths are 0, file descriptors are -1, tickets are UINT64_MAX, others are unchanged.
 *   fpga_last_error() has the problem, what to do about it, and where it is, of the last failed call of the calling thread.
 *   Every function may also return FPGA_ERROR_ARGUMENT (a pointer is NULL, a value is impossible), FPGA_ERROR_HANDLE and, for handles of
 *   one thread, FPGA_ERROR_CONCURRENT. Comments name the other errors that a program is likely to handle.
 *
 * Threads
 *   Shared: fpga_card, fpga_buffer, fpga_map, fpga_interrupt and fpga_network may be used by any number of threads at the same time. Single: all other handles belong to one thread at a time. A call while another thread is in a call with the same handle
 *   returns FPGA_ERROR_CONCURRENT and does nothing; so does closing it.
 *
 * Polling
 *   A poll that finds nothing is also what a simulated card in this process works in: a loop of polls makes progress on every card.
 *
 * Structures that may grow
 *   A structure that is passed with its size may get new members at its end. Pass sizeof. Options: a member that is 0 stands for its
 *   default, so clear the structure first; NULL with size 0 stands for all defaults. Options that the library does not have are
 *   FPGA_ERROR_UNSUPPORTED. Results: members that the library does not have are 0.
 *
 * Units
 *   Times are in nanoseconds; FPGA_NO_TIMEOUT waits without a limit, 0 does not wait. Addresses, offsets and lengths are in bytes.
 *   Texts are UTF-8 and end in a zero byte.
 */
#ifndef FPGA_H
#define FPGA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this header. The major number changes with the ABI. */
#define FPGA_VERSION_MAJOR 1
#define FPGA_VERSION_MINOR 0

#define FPGA_NO_TIMEOUT UINT64_MAX /* wait without a limit */

typedef struct { uint64_t value; } fpga_card;
typedef struct { uint64_t value; } fpga_channel;
typedef struct { uint64_t value; } fpga_buffer;
typedef struct { uint64_t value; } fpga_map;
typedef struct { uint64_t value; } fpga_interrupt;
typedef struct { uint64_t value; } fpga_cdma;
typedef struct { uint64_t value; } fpga_network;

/* ---- Errors ----------------------------------------------------------------------------------------------------------------- */

typedef enum fpga_status {
    FPGA_OK = 0,
    FPGA_ERROR_ARGUMENT = 1,    /* an argument is NULL, or has an impossible value */
    FPGA_ERROR_HANDLE = 2,      /* the handle is not open, or names an object of another kind */
    FPGA_ERROR_CONCURRENT = 3,  /* another thread is in a call with the handle */
    FPGA_ERROR_OPEN = 4,        /* the card cannot be opened */
    FPGA_ERROR_IN_USE = 5,      /* the resource has an owner, or transfers in flight */
    FPGA_ERROR_UNSUPPORTED = 6, /* the card has no such resource, or not this function */
    FPGA_ERROR_RANGE = 7,       /* the range is not inside the memory, the BAR or the card */
    FPGA_ERROR_NO_MEMORY = 8,   /* memory or handles are used up */
    FPGA_ERROR_FULL = 9,        /* the ring is full: fpga_poll, then submit again */
    FPGA_ERROR_TIMED_OUT = 10,  /* the time is over; submitted transfers stay in flight */
    FPGA_ERROR_FAULT = 11,      /* the engine reported an error in a transfer */
    FPGA_ERROR_WEDGED = 12,     /* the engine does not stop: the card has to be reset */
    FPGA_ERROR_GONE = 13,       /* the card does not answer, or was reset since it was opened */
    FPGA_ERROR_TICKET = 14,     /* the ticket is unknown */
    FPGA_ERROR_SYSTEM = 15,     /* the system refused a request */
    FPGA_ERROR_INTERNAL = 16,   /* a defect of this library */
    FPGA_ERROR_STOPPED = 17,    /* the stream was stopped or has ended, and has nothing more */
    FPGA_ERROR_LOST = 18,       /* a packet of a stream is lost; receiving continues with the next one */
    FPGA_ERROR_PEER = 19        /* another node does not answer, or refuses */
} fpga_status;

/* Part of a card that an error concerns. */
typedef enum fpga_part {
    FPGA_PART_CARD = 0,
    FPGA_PART_H2C = 1,            /* channel from host to card; part_number is its number */
    FPGA_PART_C2H = 2,            /* channel from card to host; part_number is its number */
    FPGA_PART_CDMA = 3,
    FPGA_PART_CDMA_RING = 4,
    FPGA_PART_USER_INTERRUPT = 5, /* part_number is the line */
    FPGA_PART_ENDPOINT = 6
} fpga_part;

/* Error of the last failed call of a thread. The texts are never NULL. Numbers that are not known are UINT64_MAX. The library may add
 * members at the end. */
typedef struct fpga_error {
    int32_t status;        /* fpga_status */
    int32_t part;          /* fpga_part */
    uint32_t part_number;
    uint32_t reserved;
    const char *message;   /* the problem, in one line */
    const char *advice;    /* what to do about it; empty if there is no advice */
    const char *card;      /* name of the card; empty if the error concerns none */
    uint64_t host_address; /* address of the failed part of a transfer, as the card sees host memory */
    uint64_t card_address; /* its address in card memory */
    uint64_t length;       /* its length */
    uint64_t bytes_done;   /* bytes of the transfer that were moved before it */
    uint64_t descriptor;   /* index of its descriptor in the ring */
} fpga_error;

/* Returns the error of the last failed call of this thread, or NULL. Valid until the next failed call of this thread. */
const fpga_error *fpga_last_error(void);

/* Returns the name of a status. Never NULL. */
const char *fpga_status_name(int32_t status);

/* ---- Cards ------------------------------------------------------------------------------------------------------------------ */

typedef struct fpga_card_info {
    uint32_t h2c_channels;      /* number of channels from host to card */
    uint32_t c2h_channels;      /* number of channels from card to host */
    uint32_t stream;            /* 1 if the channels are AXI4-Stream, 0 if they are memory mapped */
    uint32_t data_width;        /* width of the data path in bits, 0 if unknown */
    uint32_t memory_ranges;     /* number of ranges of card memory, 0 if they are unknown */
    uint32_t network_interface; /* 1 if the card has a network interface */
    uint64_t memory_start;      /* first address of the first range of card memory */
    uint64_t memory_length;     /* its length */
    uint32_t vendor;            /* PCI ids */
    uint32_t device;
    uint32_t subsystem_vendor;
    uint32_t subsystem_device;
    uint32_t node;              /* node id of the network interface, 0 without one */
    uint32_t cdma;              /* 1 if the place of the CDMA engine is known: fpga_cdma_open */
    uint32_t user_bar;          /* 1 if there is a user BAR */
    uint32_t max_payload;       /* maximum payload of a PCIe packet, 0 if unknown */
    uint32_t max_read_request;  /* maximum PCIe read request, 0 if unknown */
    uint32_t reserved;
} fpga_card_info;

/* Opens a card: "0000:65:00.0" (bound to vfio-pci), "mock", "mock:NAME", "mock:FILE.yaml" or "vfio-user:SOCKET". FPGA_ERROR_OPEN,
 * FPGA_ERROR_GONE, FPGA_ERROR_WEDGED (an engine of an earlier owner does not stop: fpga_recover). */
fpga_status fpga_open(const char *name, fpga_card *card);

/* Closes a card. Everything that was opened of it keeps it open until that is closed. */
fpga_status fpga_close(fpga_card card);

/* Writes the properties of a card to *info. size is sizeof *info. */
fpga_status fpga_get_info(fpga_card card, fpga_card_info *info, size_t size);

/* Writes the name of a card, cut to length - 1 bytes, and a zero byte. */
fpga_status fpga_get_name(fpga_card card, char *name, size_t length);

/* Writes the range of card memory with this index: memory_ranges of fpga_card_info is their number. FPGA_ERROR_RANGE. */
fpga_status fpga_get_memory_range(fpga_card card, uint32_t index, uint64_t *start, uint64_t *length);

/* Enables interrupts, before channels are opened that wait by interrupt, and writes the number of vectors unless vectors is NULL.
 * Vectors are shared if there are fewer than channels. FPGA_ERROR_SYSTEM if there are none: wait by polling then. */
fpga_status fpga_enable_interrupts(fpga_card card, uint32_t *vectors);

/* ---- Registers -------------------------------------------------------------------------------------------------------------- */

typedef enum fpga_bar {
    FPGA_BAR_DMA = 0, /* registers of the DMA engine (PG195) */
    FPGA_BAR_USER = 1 /* registers of the design (AXI-Lite master) */
} fpga_bar;

/* Reads a register. *value is all ones after a failure. */
fpga_status fpga_read32(fpga_card card, fpga_bar bar, uint64_t offset, uint32_t *value);
fpga_status fpga_read64(fpga_card card, fpga_bar bar, uint64_t offset, uint64_t *value);

/* Writes a register. The write is posted: it has been sent, and may not have arrived. */
fpga_status fpga_write32(fpga_card card, fpga_bar bar, uint64_t offset, uint32_t value);
fpga_status fpga_write64(fpga_card card, fpga_bar bar, uint64_t offset, uint64_t value);

/* ---- Registers by name ------------------------------------------------------------------------------------------------------ */

/* A register map is a YAML file that describes the registers of a design on the user BAR (docs/guide/register-maps.md). Names have dots:
 * "block.register", "block.register.field", elements of arrays "block[1].register[2]"; case is ignored. Errors in a map name file, line
 * and key; an unknown name is FPGA_ERROR_ARGUMENT with the nearest known name. Thread rule: shared. */

/* Accesses that a register or field permits: bits of fpga_map_entry.access. */
#define FPGA_ACCESS_READ 1        /* fpga_map_read, or fpga_map_take */
#define FPGA_ACCESS_WRITE 2
#define FPGA_ACCESS_SIDE_EFFECT 4 /* a read has side effects: only fpga_map_take reads it */

typedef struct fpga_map_entry {
    uint64_t offset;    /* of the register in the user BAR */
    uint32_t first_bit; /* 0 for a register */
    uint32_t bits;      /* 32 for a register */
    uint32_t access;    /* FPGA_ACCESS_... */
    uint32_t is_field;  /* 1 if it is a field of the register before it */
    uint32_t has_reset; /* 1 if the value after a reset is known */
    uint32_t reset;
    uint32_t values;    /* number of values that have names */
    uint32_t reserved;
} fpga_map_entry;

/* Loads a register map from a file, or from a text; the name of the text is for messages, and may be NULL. */
fpga_status fpga_map_load(const char *file, fpga_map *map);
fpga_status fpga_map_parse(const char *yaml, const char *name, fpga_map *map);

/* Closes a register map. */
fpga_status fpga_map_close(fpga_map map);

/* Reads a register, or a field moved to bit 0. FPGA_ERROR_UNSUPPORTED if the map does not permit it. */
fpga_status fpga_map_read(fpga_map map, fpga_card card, const char *name, uint32_t *value);

/* The same for registers whose read has side effects, such as clearing them. */
fpga_status fpga_map_take(fpga_map map, fpga_card card, const char *name, uint32_t *value);

/* Writes a register or a field. Other fields keep their values; write-one bits are written as 0. FPGA_ERROR_RANGE if it does not fit. */
fpga_status fpga_map_write(fpga_map map, fpga_card card, const char *name, uint32_t value);

/* The same with the name of a value, or a number as a text: "run", "12", "0x1f". */
fpga_status fpga_map_set(fpga_map map, fpga_card card, const char *name, const char *value);

/* Writes the name of a value of a register or field, or the value in hexadecimal, cut to length - 1 bytes. needed, unless NULL, becomes the
 * length of the whole text. */
fpga_status fpga_map_value_text(fpga_map map, const char *name, uint32_t value, char *text, size_t length, size_t *needed);

/* Converts the name of a value, or a number as a text, to a number. */
fpga_status fpga_map_value_number(fpga_map map, const char *name, const char *value, uint32_t *number);

/* Writes the named value of a register or field with this index, below fpga_map_entry.values. FPGA_ERROR_RANGE. */
fpga_status fpga_map_get_value(fpga_map map, const char *name, uint32_t index, char *text, size_t length, uint32_t *value);

/* Writes the number of entries: registers in the order of their offsets, each before its fields. */
fpga_status fpga_map_count(fpga_map map, size_t *count);

/* Writes name and properties of an entry. size is sizeof *entry; name and entry may be NULL. FPGA_ERROR_RANGE. */
fpga_status fpga_map_get_entry(fpga_map map, size_t index, char *name, size_t length, fpga_map_entry *entry, size_t size);

/* ---- Buffers ---------------------------------------------------------------------------------------------------------------- */

/* A buffer is memory of this process that a card reads and writes in place. Every channel and stream of the card can use it; the first
 * transfer of a channel with the buffer registers it there. The program must not access a part of it while a transfer of that part is in
 * flight. Thread rule: shared. */

/* Creates a buffer of length bytes, filled with zeros. FPGA_ERROR_NO_MEMORY. */
fpga_status fpga_buffer_create(fpga_card card, size_t length, fpga_buffer *buffer);

/* Makes length bytes of the program's memory at data a buffer. Both are multiples of the page size (4096; of the huge page's size for huge
 * pages). The kernel pins the pages, so register once, not per transfer. The memory stays the program's: it has to stay mapped until
 * fpga_buffer_free has returned FPGA_OK. FPGA_ERROR_NO_MEMORY also if the limit on locked memory (ulimit -l) is too low. */
fpga_status fpga_buffer_register(fpga_card card, void *data, size_t length, fpga_buffer *buffer);

/* Returns the memory of a buffer, and its size unless length is NULL. Valid until the buffer is freed. */
fpga_status fpga_buffer_data(fpga_buffer buffer, void **data, size_t *length);

/* Frees a buffer. FPGA_ERROR_IN_USE while a transfer of it is in flight on any channel, FPGA_ERROR_CONCURRENT while another thread is in a
 * long call with a channel that has used it: the buffer stays valid in both cases. FPGA_ERROR_WEDGED for registered memory that an engine
 * which did not stop may still write: the handle is closed, and the memory must stay mapped until the card was reset. */
fpga_status fpga_buffer_free(fpga_buffer buffer);

/* ---- DMA channels ----------------------------------------------------------------------------------------------------------- */

/* A channel has one owner at a time, in this process and others. Thread rule of channels and streams: single. */

typedef enum fpga_direction {
    FPGA_H2C = 0, /* from host to card */
    FPGA_C2H = 1  /* from card to host */
} fpga_direction;

/* Way to keep a ring of descriptors running. */
typedef enum fpga_run_mode {
    FPGA_RUN_DEFAULT = 0,
    FPGA_RUN_BATCH = 1, /* what is queued becomes one run; works on every card. The default, except for C2H streams */
    FPGA_RUN_CREDIT = 2 /* one endless run with descriptor credits (PG195); the default of C2H streams */
} fpga_run_mode;

typedef struct fpga_channel_options {
    uint32_t descriptors;           /* descriptors in the ring: a power of two, 2 to 65536. Default 1024 */
    uint32_t transfers;             /* transfers in flight: a power of two. Default 256 */
    uint32_t max_descriptor_length; /* bytes of a descriptor, a multiple of 4096. Default: the maximum of the core */
    int32_t run_mode;               /* fpga_run_mode */
    uint32_t long_blocks;           /* 1: the card handles several blocks of descriptors longer than 4 KiB. Default 0 */
    uint32_t fixed_address;         /* 1: every beat uses the same card address, as for a FIFO. Default 0 */
    uint32_t report_each;           /* 1: every transfer is reported as it ends, not only the last of a batch. Default 0 */
    uint32_t reserved;
} fpga_channel_options;

typedef enum fpga_wait_mode {
    FPGA_WAIT_POLL = 0,      /* poll host memory: lowest latency, one busy core */
    FPGA_WAIT_INTERRUPT = 1, /* sleep until the interrupt: needs fpga_enable_interrupts before the channel is opened */
    FPGA_WAIT_HYBRID = 2     /* poll for spin_ns, then sleep */
} fpga_wait_mode;

typedef struct fpga_wait_options {
    int32_t mode; /* fpga_wait_mode. Default FPGA_WAIT_POLL */
    uint32_t reserved;
    uint64_t spin_ns;
} fpga_wait_options;

/* Takes a memory-mapped channel. FPGA_ERROR_IN_USE, FPGA_ERROR_UNSUPPORTED (no such channel, or the channels are streams). */
fpga_status fpga_channel_open(fpga_card card, fpga_direction direction, uint32_t number, fpga_channel *channel);

/* The same with options. size is sizeof *options. FPGA_ERROR_UNSUPPORTED also for a run mode that the card does not have. */
fpga_status fpga_channel_open_with(fpga_card card, fpga_direction direction, uint32_t number, const fpga_channel_options *options,
                                   size_t size, fpga_channel *channel);

/* Closes a channel or a stream. Transfers in flight are aborted. Buffers stay open. */
fpga_status fpga_channel_close(fpga_channel channel);

/* Copies length bytes at data to card memory at card_address, and waits. Any memory; one copy. FPGA_ERROR_IN_USE while submitted
 * transfers are in flight. FPGA_ERROR_TIMED_OUT, FPGA_ERROR_FAULT: a part was moved; the engine was stopped. */
fpga_status fpga_write(fpga_channel channel, uint64_t card_address, const void *data, size_t length, uint64_t timeout_ns);
fpga_status fpga_write_with(fpga_channel channel, uint64_t card_address, const void *data, size_t length, uint64_t timeout_ns,
                            const fpga_wait_options *options, size_t size);

/* Copies length bytes of card memory at card_address to data, and waits. Any memory; one copy. Errors as fpga_write. */
fpga_status fpga_read(fpga_channel channel, uint64_t card_address, void *data, size_t length, uint64_t timeout_ns);
fpga_status fpga_read_with(fpga_channel channel, uint64_t card_address, void *data, size_t length, uint64_t timeout_ns,
                           const fpga_wait_options *options, size_t size);

/* ---- Transfers without a copy ----------------------------------------------------------------------------------------------- */

/* Part of a scatter-gather list. */
typedef struct fpga_segment {
    fpga_buffer buffer;
    size_t offset;         /* first byte in the buffer */
    size_t length;         /* empty parts are skipped */
    uint64_t card_address; /* first byte in card memory; not used by streams */
} fpga_segment;

/* Queues a transfer of length bytes at offset of the buffer, from or to card memory at card_address. On an H2C stream: one packet, and
 * card_address is not used. The next fpga_poll or fpga_wait starts it, so that transfers queued together run together. Transfers end in
 * the order of their submission. Tickets count from 0; ticket may be NULL. Allocates nothing, accesses no register.
 * FPGA_ERROR_FULL: fpga_poll, then submit again. FPGA_ERROR_RANGE. */
fpga_status fpga_submit(fpga_channel channel, fpga_buffer buffer, size_t offset, size_t length, uint64_t card_address,
                        uint64_t *ticket);

/* Queues a list as one transfer, or as one packet of an H2C stream, of which every part but the last is a multiple of the data path's
 * width. Destinations must not overlap. Nothing is queued after a failure. */
fpga_status fpga_submit_list(fpga_channel channel, const fpga_segment *segments, size_t count, uint64_t *ticket);

/* Starts queued transfers, and writes the number of transfers that have ended in this call, unless ended is NULL. Never waits. */
fpga_status fpga_poll(fpga_channel channel, size_t *ended);

/* Writes the number of transfers that have ended since the channel was opened, as of the last poll, and the number in flight. The transfer
 * of a ticket has ended if ticket < *ended. Both may be NULL. */
fpga_status fpga_progress(fpga_channel channel, uint64_t *ended, uint32_t *in_flight);

/* Waits until the transfer of a ticket, and so every earlier one, has ended. FPGA_ERROR_FAULT if a transfer has failed since the last
 * wait: the error is the first such failure. FPGA_ERROR_TIMED_OUT leaves the transfer in flight: wait again, or fpga_abort. */
fpga_status fpga_wait(fpga_channel channel, uint64_t ticket, uint64_t timeout_ns);
fpga_status fpga_wait_with(fpga_channel channel, uint64_t ticket, uint64_t timeout_ns, const fpga_wait_options *options, size_t size);

/* Takes the oldest failed transfer: writes its ticket and returns its failure, FPGA_ERROR_FAULT. FPGA_OK and UINT64_MAX if there is none.
 * A channel keeps the last 1024 failures, also those that fpga_wait has reported. */
fpga_status fpga_next_failure(fpga_channel channel, uint64_t *ticket);

/* Cancels one transfer; others continue. It ends in order, as a failed one. Writes 1, or 0 if it had ended before, unless cancelled is
 * NULL. FPGA_ERROR_TICKET, FPGA_ERROR_WEDGED, FPGA_ERROR_IN_USE (a packet whose sending has begun). */
fpga_status fpga_cancel(fpga_channel channel, uint64_t ticket, uint32_t *cancelled);

/* Stops the engine and ends everything in flight. The channel can be used again. FPGA_ERROR_WEDGED if the engine does not stop. */
fpga_status fpga_abort(fpga_channel channel);

/* Writes the file descriptor of the channel's interrupt, for poll() and epoll: readable when an interrupt has arrived. It belongs to the
 * channel, until that is closed. In each iteration: fpga_channel_take, fpga_channel_arm, fpga_poll (what ended before does not signal), then
 * wait until it is readable. FPGA_ERROR_UNSUPPORTED if interrupts were not enabled when the channel was opened. */
fpga_status fpga_channel_fd(fpga_channel channel, int *fd);

/* Takes the interrupts that have arrived, and writes their number. Never waits. */
fpga_status fpga_channel_take(fpga_channel channel, uint64_t *count);

/* Enables the channel's interrupt for the next completion, and disables it. */
fpga_status fpga_channel_arm(fpga_channel channel);
fpga_status fpga_channel_disarm(fpga_channel channel);

/* ---- Streams (AXI4-Stream) -------------------------------------------------------------------------------------------------- */

/* A stream is a channel of a card whose channels are streams: fpga_card_info.stream. Packets are sent by fpga_stream_send, or without a
 * copy by fpga_submit and fpga_submit_list. Packets are received by fpga_stream_next into a ring of buffers that the card fills, or one at
 * a time by fpga_stream_receive; not both at a time. Nothing is dropped: a stream whose receiver is slow stalls. */

typedef struct fpga_stream_options {
    int32_t run_mode;     /* fpga_run_mode */
    uint32_t buffers;     /* C2H: buffers in the ring, a power of two, 2 to 65536. Default 256 */
    uint64_t buffer_size; /* C2H: bytes of a buffer, a multiple of 64, at most 64 MiB. Default 4096. All of them hold the longest packet */
    uint32_t descriptors; /* H2C: descriptors in the ring, a power of two. Default 1024 */
    uint32_t packets;     /* H2C: packets in flight, a power of two. Default 256 */
} fpga_stream_options;

/* Piece of a received packet, in memory that the card has written. */
typedef struct fpga_piece {
    const void *data;
    size_t length;
} fpga_piece;

typedef struct fpga_stream_statistics {
    uint64_t packets;         /* packets sent or received */
    uint64_t bytes;           /* C2H: bytes of these packets */
    uint64_t lost;            /* C2H: lost packets */
    uint64_t discarded_bytes; /* C2H: bytes of lost packets, and up to the first end of packet */
    uint64_t starved;         /* C2H: times that every buffer was full, so that the card's stream stalled */
    uint64_t refused;         /* H2C: packets refused because the ring was full */
    uint64_t still;           /* H2C: times that the card took nothing for a tenth of a second */
    uint64_t posted;          /* buffers or packets that are posted now */
} fpga_stream_statistics;

/* Takes a stream channel; fpga_channel_close closes it. FPGA_ERROR_UNSUPPORTED if the channels are memory mapped. */
fpga_status fpga_stream_open(fpga_card card, fpga_direction direction, uint32_t number, const fpga_stream_options *options, size_t size,
                             fpga_channel *stream);

/* Sends length bytes at data as one packet, at least 1, and waits until the card has taken them. Any memory; one copy. A packet that times
 * out stays in flight. */
fpga_status fpga_stream_send(fpga_channel stream, const void *data, size_t length, uint64_t timeout_ns);

/* Gives the current packet back and takes the next one, if one has arrived: writes its length, 0 if there is none. Never waits. The first
 * call posts the buffers. FPGA_ERROR_LOST: call again. */
fpga_status fpga_stream_next(fpga_channel stream, size_t *length);

/* The same, and waits for the packet. FPGA_ERROR_TIMED_OUT, FPGA_ERROR_STOPPED (after fpga_stream_stop, and everything was taken). */
fpga_status fpga_stream_wait(fpga_channel stream, uint64_t timeout_ns, const fpga_wait_options *options, size_t size, size_t *length);

/* Writes the pieces of the current packet in order, at most capacity, and their number to *count; pieces may be NULL if capacity is 0. The
 * memory is valid until the next fpga_stream_next, fpga_stream_wait, fpga_stream_release, fpga_abort or fpga_channel_close. */
fpga_status fpga_stream_pieces(fpga_channel stream, fpga_piece *pieces, size_t capacity, size_t *count);

/* Copies length bytes at offset of the current packet to data. FPGA_ERROR_RANGE. */
fpga_status fpga_stream_copy(fpga_channel stream, size_t offset, void *data, size_t length);

/* Gives the buffers of the current packet back to the card, earlier than fpga_stream_next does. */
fpga_status fpga_stream_release(fpga_channel stream);

/* Receives one packet of at most capacity bytes to data, and writes its length. One copy. FPGA_ERROR_TIMED_OUT: call again.
 * FPGA_ERROR_LOST: the packet was longer. FPGA_ERROR_RANGE with the length of the packet: call again with more memory. */
fpga_status fpga_stream_receive(fpga_channel stream, void *data, size_t capacity, uint64_t timeout_ns, size_t *length);

/* C2H: posts no more buffers. The channel stops when the open descriptor is closed, by a packet on some cards; packets that arrive until
 * then can be taken. fpga_abort lets the stream start again. */
fpga_status fpga_stream_stop(fpga_channel stream);

/* Writes the counters of a stream. size is sizeof *statistics. */
fpga_status fpga_stream_get_statistics(fpga_channel stream, fpga_stream_statistics *statistics, size_t size);

/* Sets the card's write flush timeout: a C2H stream descriptor that has data is closed after 2^exponent clock cycles without more. 0, the
 * value after a reset, is off; 31 is the maximum. For streams without ends of packets. */
fpga_status fpga_set_write_flush_timeout(fpga_card card, uint32_t exponent);

/* ---- User interrupts -------------------------------------------------------------------------------------------------------- */

/* Lines by which the design interrupts the host (usr_irq_req). A line is a level: the design holds it until its cause was served. A handle
 * has one or more lines, each of which has one owner at a time. Thread rule: shared; each interrupt is reported to one thread. */

#define FPGA_USER_LINES 16 /* lines of a card */

typedef enum fpga_delivery {
    FPGA_DELIVERY_MESSAGE = 0, /* own vector */
    FPGA_DELIVERY_SHARED = 1,  /* vector shared with others */
    FPGA_DELIVERY_LEVEL = 2,   /* legacy interrupt */
    FPGA_DELIVERY_POLLED = 3   /* no interrupts: the library reads the level */
} fpga_delivery;

typedef struct fpga_user_line {
    uint32_t enabled; /* 1: unmasked */
    uint32_t pending; /* 1: the design holds it high */
    uint32_t vector;
    uint32_t reserved;
    uint64_t count;   /* interrupts since the card was created, UINT64_MAX if the card does not count them */
} fpga_user_line;

typedef struct fpga_user_lines {
    fpga_user_line lines[FPGA_USER_LINES];
} fpga_user_lines;

/* Takes count lines, 1 to 16, and enables them, and the card's interrupts with them. A line that is high interrupts at once.
 * FPGA_ERROR_IN_USE, FPGA_ERROR_UNSUPPORTED (no such line). */
fpga_status fpga_interrupt_open(fpga_card card, const uint32_t *lines, size_t count, fpga_interrupt *interrupt);

/* Gives the lines back, which masks them. Threads that wait keep them until their wait ends. */
fpga_status fpga_interrupt_close(fpga_interrupt interrupt);

/* Waits until one of the lines has interrupted, takes all interrupts, and writes the lines as bits: bit n for line n. counts, unless NULL,
 * has FPGA_USER_LINES elements, and becomes the number of interrupts of each line. FPGA_ERROR_TIMED_OUT; FPGA_ERROR_GONE, within 0.1 s, if
 * the card is removed or reset. */
fpga_status fpga_interrupt_wait(fpga_interrupt interrupt, uint64_t timeout_ns, uint32_t *lines, uint64_t *counts);

/* Takes the interrupts that have arrived, as fpga_interrupt_wait does. Never waits. */
fpga_status fpga_interrupt_take(fpga_interrupt interrupt, uint32_t *lines, uint64_t *counts);

/* Rearms a line after its cause was served: a line that is still high interrupts again. */
fpga_status fpga_interrupt_rearm(fpga_interrupt interrupt, uint32_t line);

/* Unmasks a line, or masks it if enabled is 0. */
fpga_status fpga_interrupt_enable(fpga_interrupt interrupt, uint32_t line, uint32_t enabled);

/* Writes the number of interrupts of a line since it was taken, and its fpga_delivery. Both may be NULL. */
fpga_status fpga_interrupt_get_count(fpga_interrupt interrupt, uint32_t line, uint64_t *count, int32_t *delivery);

/* Writes the file descriptor of the lines, for poll() and epoll: readable when one may have interrupted; then fpga_interrupt_take. It
 * belongs to the handle. */
fpga_status fpga_interrupt_fd(fpga_interrupt interrupt, int *fd);

/* Reads the states of all lines of a card, taken or not. size is sizeof *lines. */
fpga_status fpga_get_user_lines(fpga_card card, fpga_user_lines *lines, size_t size);

/* ---- Copies inside the card (AXI CDMA) -------------------------------------------------------------------------------------- */

/* Takes the copy engine. It has one owner at a time. FPGA_ERROR_UNSUPPORTED if its place is not known: fpga_cdma_open_at has the offset of
 * its registers in the user BAR. Thread rule: single. */
fpga_status fpga_cdma_open(fpga_card card, fpga_cdma *cdma);
fpga_status fpga_cdma_open_at(fpga_card card, uint64_t offset, fpga_cdma *cdma);

/* Gives the engine back. */
fpga_status fpga_cdma_close(fpga_cdma cdma);

/* Copies length bytes of card memory, which must not overlap, and waits. FPGA_ERROR_RANGE; FPGA_ERROR_FAULT and FPGA_ERROR_TIMED_OUT have
 * the bytes copied as fpga_error.bytes_done: the engine was reset and can be used again. */
fpga_status fpga_cdma_copy(fpga_cdma cdma, uint64_t source, uint64_t destination, uint64_t length, uint64_t timeout_ns);

/* Reads the status register (PG034, CDMASR), and whether the engine is idle, and has failed. All may be NULL. */
fpga_status fpga_cdma_get_status(fpga_cdma cdma, uint32_t *status, uint32_t *idle, uint32_t *failed);

/* Resets the engine. FPGA_ERROR_WEDGED if the reset does not end. */
fpga_status fpga_cdma_reset(fpga_cdma cdma);

/* ---- Recovery --------------------------------------------------------------------------------------------------------------- */

/* Levels of a recovery, mildest first. After a reset every handle of the card is stale: close them all, then open the card again. */
typedef enum fpga_recovery_level {
    FPGA_RECOVERY_DEFAULT = 0,
    FPGA_RECOVERY_CHANNEL = 1,  /* stop the engines by their registers. The default */
    FPGA_RECOVERY_FUNCTION = 2, /* function-level reset, which few XDMA cards have */
    FPGA_RECOVERY_BUS = 3       /* hot reset of the link: every function below the port */
} fpga_recovery_level;

typedef struct fpga_recovery_options {
    int32_t max_level;    /* fpga_recovery_level that is not exceeded */
    int32_t at_least;     /* fpga_recovery_level that is executed even if the card is healthy: a reset. Raises max_level */
    uint32_t force;       /* 1: although this process uses the card. It ends transfers, and a reset makes handles stale */
    uint32_t one_channel; /* 1: only the channel of direction and number */
    int32_t direction;    /* fpga_direction */
    uint32_t number;
    uint64_t limit_ns;    /* time for one engine to become idle. Default 2 s */
} fpga_recovery_options;

typedef enum fpga_recovery_part {
    FPGA_RECOVERY_REGISTERS = 0,
    FPGA_RECOVERY_H2C = 1, /* part_number is the number of the channel */
    FPGA_RECOVERY_C2H = 2,
    FPGA_RECOVERY_CDMA = 3,
    FPGA_RECOVERY_NETWORK = 4,
    FPGA_RECOVERY_INTERRUPTS = 5,
    FPGA_RECOVERY_FUNCTION_RESET = 6,
    FPGA_RECOVERY_BUS_RESET = 7
} fpga_recovery_part;

typedef enum fpga_recovery_outcome {
    FPGA_RECOVERY_NOT_NEEDED = 0,
    FPGA_RECOVERY_RECOVERED = 1,
    FPGA_RECOVERY_UNSUPPORTED = 2,
    FPGA_RECOVERY_FAILED = 3
} fpga_recovery_outcome;

typedef struct fpga_recovery_step {
    int32_t part;         /* fpga_recovery_part */
    uint32_t part_number;
    int32_t outcome;      /* fpga_recovery_outcome */
    uint32_t reserved;
    uint64_t duration_ns;
} fpga_recovery_step;

typedef struct fpga_recovery_report {
    uint32_t well;       /* 1: at the end the card answered, and nothing was busy */
    uint32_t reopen;     /* 1: the card was reset: open it again */
    uint32_t step_count; /* valid elements of steps */
    uint32_t reserved;
    fpga_recovery_step steps[16];
} fpga_recovery_report;

/* Recovers a card, no further than needed and permitted. A failed step is no error: the report has it. size and report_size are sizeof
 * *options and sizeof *report; report may be NULL. If length is not 0, text becomes the report as a text of several lines, cut to
 * length - 1 bytes. FPGA_ERROR_IN_USE while this process uses parts of the card: close them, or force. FPGA_ERROR_GONE. */
fpga_status fpga_recover(fpga_card card, const fpga_recovery_options *options, size_t size, fpga_recovery_report *report,
                         size_t report_size, char *text, size_t length);

/* ---- Simulated cards -------------------------------------------------------------------------------------------------------- */

/* Simulated cards and the network between them, for tests. Without threads, time is virtual, and cards work inside waits and polls of this
 * library and in fpga_network_step: the same calls give the same run. Functions return FPGA_ERROR_UNSUPPORTED if the library is built
 * without simulated cards, FPGA_ERROR_RANGE for a card that is not there. Thread rule: shared. */

typedef struct fpga_network_options {
    const char *description;    /* built-in card such as "us-plus-x8-stream", or FILE.yaml. Default: the card that "mock" opens */
    uint32_t cards;             /* number of cards, with node ids from 1. Default 1 */
    uint32_t threaded;          /* 1: cards work on a thread of their own, in real time */
    uint64_t seed;              /* of all random choices of the network */
    uint32_t lost_one_in;       /* one of this many packets is lost. Default: none, as below */
    uint32_t duplicated_one_in;
    uint32_t damaged_one_in;
    uint32_t reorder;           /* a packet is chosen at random among this many */
    uint64_t delay_ns;          /* delay of every packet */
    uint64_t jitter_ns;         /* maximum of an additional random delay */
    uint64_t rate_bits_per_s;   /* rate of the network. Default: no limit */
} fpga_network_options;

typedef enum fpga_card_failure {
    FPGA_FAILURE_NONE = 0,    /* the card works */
    FPGA_FAILURE_GONE = 1,    /* the card has left the bus */
    FPGA_FAILURE_ALL_ONES = 2 /* registers read as all ones; configuration space answers */
} fpga_card_failure;

/* Creates simulated cards. size is sizeof *options. */
fpga_status fpga_network_create(const fpga_network_options *options, size_t size, fpga_network *network);

/* Closes the handle. Cards that are open keep the network. */
fpga_status fpga_network_close(fpga_network network);

/* Opens the card with this index, from 0. Open a card once at a time. */
fpga_status fpga_network_open(fpga_network network, uint32_t index, fpga_card *card);

/* Plans faults of a card: a text as in section `faults` of a card description (docs/guide/faults.md), or a file with it. An empty text
 * removes the plan. Errors name the entry and its key. */
fpga_status fpga_network_set_faults(fpga_network network, uint32_t index, const char *yaml);
fpga_status fpga_network_load_faults(fpga_network network, uint32_t index, const char *file);

/* Makes a card fail, or work again with FPGA_FAILURE_NONE. */
fpga_status fpga_network_fail(fpga_network network, uint32_t index, fpga_card_failure failure);

/* Inserts a card again that has left the bus: in its power-on state, without its memory content. */
fpga_status fpga_network_replug(fpga_network network, uint32_t index);

/* Raises a user interrupt of a card as its design would, or lowers it if asserted is 0. */
fpga_status fpga_network_set_user_interrupt(fpga_network network, uint32_t index, uint32_t line, uint32_t asserted);

/* Raises a user interrupt until it is acknowledged. acknowledged, unless NULL, becomes 1 if it has been. */
fpga_status fpga_network_pulse_user_interrupt(fpga_network network, uint32_t index, uint32_t line, uint32_t *acknowledged);

/* Reads and writes card memory without DMA. FPGA_ERROR_RANGE outside of it. */
fpga_status fpga_network_peek(fpga_network network, uint32_t index, uint64_t address, void *data, size_t length);
fpga_status fpga_network_poke(fpga_network network, uint32_t index, uint64_t address, const void *data, size_t length);

/* Makes a range of card memory answer every access with an error. */
fpga_status fpga_network_poison(fpga_network network, uint32_t index, uint64_t address, uint64_t length);

/* Does one unit of work, and writes 1 if there was any, unless worked is NULL. Nothing with threads. */
fpga_status fpga_network_step(fpga_network network, uint32_t *worked);

/* Works until there is nothing to do at this time, and writes the units of work, unless units is NULL. With threads: waits for that. */
fpga_status fpga_network_settle(fpga_network network, uint64_t *units);

/* Lets time pass, with all work that becomes due. */
fpga_status fpga_network_advance(fpga_network network, uint64_t span_ns);

#ifdef __cplusplus
}
#endif

#endif /* FPGA_H */
