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
 *   Shared: fpga_card, fpga_buffer, fpga_map, fpga_interrupt and fpga_network may be used by any number of threads at the same time. A
 *   thread that closes such a handle leaves the calls of other threads undisturbed, except waits with an fpga_interrupt.
 *   Single: all other handles belong to one thread at a time, which may change from call to call. A call while another thread is in a call
 *   with the same handle returns FPGA_ERROR_CONCURRENT at once and does nothing.
 *   Closing a handle ends the wait of another thread with it: that wait returns FPGA_ERROR_HANDLE, some milliseconds later. Functions that
 *   cancel, abort, reset or stop do so too: that wait returns FPGA_ERROR_CANCELLED, and can be repeated for what is still in flight. They
 *   begin when the other thread has left the handle; FPGA_ERROR_CONCURRENT if it is in a call for longer than 10 s.
 *   Time: a wait that is ended early returns within 50 ms. A blocking copy does, too, although its engine may need longer to stop. Closing,
 *   cancelling, aborting and resetting wait until the engine has stopped, up to 2 s (idle_timeout_ns of fpga_open_options), if it does not
 *   answer; so does the next copy with that engine, within its own time.
 *   Signal handlers may set the flag of fpga_set_cancel_flag, and call nothing of this library.
 *   After fork() handles belong to the parent: every call of a child with them returns FPGA_ERROR_PROCESS and changes nothing. A child opens
 *   the card again, once the parent has closed it. It finds zeros in the memory of buffers, or, if the card is served, the parent's bytes.
 *
 * Polling
 *   Functions that wait poll, unless interrupts are requested. A simulated card in this process without a thread works inside polls that
 *   find nothing and inside waits: a loop of polls makes progress on every card.
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
typedef struct { uint64_t value; } fpga_endpoint;
typedef struct { uint64_t value; } fpga_publisher;
typedef struct { uint64_t value; } fpga_subscriber;
typedef struct { uint64_t value; } fpga_frame;
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
    FPGA_ERROR_PEER = 19,       /* another node does not answer, or refuses */
    FPGA_ERROR_CANCELLED = 20,  /* the program has ended the wait, or withdrawn the transfer */
    FPGA_ERROR_PROCESS = 21     /* the handle belongs to the parent of this process, before a fork() */
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

/* Returns the error of the last failed call of this thread, or NULL if none has failed, and while the thread ends (destructors of
 * thread-specific data). Valid until the next failed call of this thread. */
const fpga_error *fpga_last_error(void);

/* Returns the name of a status. Never NULL. */
const char *fpga_status_name(int32_t status);

/* Sets a flag that ends the waits of the calling thread, of every kind: a wait ends with FPGA_ERROR_CANCELLED some milliseconds after *flag is
 * not 0. A signal handler or another thread sets it; it has to stay valid until it is replaced. What was submitted stays in flight. NULL
 * removes it. The flag of fpga_wait_options takes precedence. fpga_publisher_close and fpga_subscriber_leave close their handle nevertheless. */
fpga_status fpga_set_cancel_flag(const volatile int *flag);

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

/* Opens a card: "0000:65:00.0" (bound to vfio-pci), "mock", "mock:NAME", "mock:FILE.yaml", "vfio-user:SOCKET",
 * "rtl:FOLDER" or "shared:CARD". FPGA_ERROR_OPEN, FPGA_ERROR_GONE, FPGA_ERROR_WEDGED (an engine of an earlier owner does not stop:
 * fpga_recover_named). */
fpga_status fpga_open(const char *name, fpga_card *card);

/* What to assume about a network interface on the user BAR. */
typedef enum fpga_network_interface {
    FPGA_INTERFACE_DETECT = 0, /* by the PCI subsystem ids of the card: the user BAR of other cards is never read. The default */
    FPGA_INTERFACE_EXPECT = 1, /* it is there; opening fails otherwise */
    FPGA_INTERFACE_IGNORE = 2
} fpga_network_interface;

typedef struct fpga_open_options {
    uint32_t dma_bar_plus_1;   /* 1 + number of the BAR with the XDMA registers. Default: found by the library */
    int32_t network_interface; /* fpga_network_interface */
    uint32_t observe;          /* 1: for inspection only. Nothing is written, and channels and interrupts cannot be used */
    uint32_t has_cdma;         /* 1: cdma_offset is the offset of the CDMA's registers in the user BAR */
    uint64_t cdma_offset;
    uint64_t memory_start;     /* card memory that DMA reaches, for cards without a network interface */
    uint64_t memory_length;    /* 0: not known */
    uint64_t idle_timeout_ns;  /* time until an engine is idle. Default and maximum 2 s */
    uint64_t dma_limit;        /* maximum bytes of DMA memory, without memory of the program. Default 256 MiB */
} fpga_open_options;

/* The same with options. size is sizeof *options. */
fpga_status fpga_open_with(const char *name, const fpga_open_options *options, size_t size, fpga_card *card);

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
    const volatile int *cancel; /* the wait ends with FPGA_ERROR_CANCELLED some milliseconds after *cancel is not 0: a flag that a signal
                                   handler or another thread sets. What was submitted stays in flight. Default: none */
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

/* Takes the oldest failed transfer: writes its ticket and returns its failure, FPGA_ERROR_FAULT; FPGA_ERROR_GONE or FPGA_ERROR_WEDGED if it
 * has ended together with the card or its channel. FPGA_OK and UINT64_MAX if there is none.
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

/* Takes a stream channel; fpga_channel_close closes it. FPGA_ERROR_IN_USE, also while another client of a shared card has it;
 * FPGA_ERROR_UNSUPPORTED if the channels are memory mapped. */
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
 * then can be taken: wait again after FPGA_ERROR_CANCELLED. fpga_abort lets the stream start again. */
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

/* Gives the lines back, which masks them. Waits of other threads end with FPGA_ERROR_HANDLE. */
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

/* Copies length bytes of card memory, which must not overlap, and waits. FPGA_ERROR_RANGE; FPGA_ERROR_FAULT, FPGA_ERROR_TIMED_OUT and
 * FPGA_ERROR_CANCELLED have the bytes copied as fpga_error.bytes_done: the engine was reset and can be used again. */
fpga_status fpga_cdma_copy(fpga_cdma cdma, uint64_t source, uint64_t destination, uint64_t length, uint64_t timeout_ns);

/* Reads the status register (PG034, CDMASR), and whether the engine is idle, and has failed. All may be NULL. */
fpga_status fpga_cdma_get_status(fpga_cdma cdma, uint32_t *status, uint32_t *idle, uint32_t *failed);

/* Resets the engine. A copy of another thread ends with FPGA_ERROR_CANCELLED. FPGA_ERROR_WEDGED if the reset does not end. While the engine
 * has a ring, the call is refused and ends no wait. */
fpga_status fpga_cdma_reset(fpga_cdma cdma);

/* A ring of copies keeps the engine busy without pauses, on builds with scatter-gather. The functions above return FPGA_ERROR_IN_USE while
 * the engine has a ring, those below FPGA_ERROR_ARGUMENT while it has none. */

typedef struct fpga_cdma_ring_options {
    uint64_t base;                  /* card address of the descriptors, a multiple of 64: 64 bytes each */
    uint64_t bypass_start;          /* card address of the first byte of the bypass BAR, by which descriptors are written */
    uint32_t use_channel;           /* 1: descriptors are written by DMA on H2C channel h2c_channel instead, which the ring takes */
    uint32_t h2c_channel;
    uint32_t descriptors;           /* a power of two, 2 to 65536. Default 256 */
    uint32_t copies;                /* copies in flight, a power of two. Default 256 */
    uint32_t length_bits;           /* bits of a descriptor's length, 8 to 23. Default 23 */
    uint32_t data_bytes;            /* width of the engine's data path. Default 64 */
    uint32_t no_realignment;        /* 1: built without data realignment; addresses are multiples of data_bytes */
    uint32_t user_interrupt_plus_1; /* 1 + user interrupt that the engine is connected to. Default: the ring is polled */
    uint32_t interrupt_threshold;   /* descriptors per interrupt. Default 1 */
    uint32_t interrupt_delay;       /* delay of an interrupt, in 125 clock cycles; required with a threshold above 1 */
} fpga_cdma_ring_options;

/* Part of a copy. */
typedef struct fpga_copy {
    uint64_t source;
    uint64_t destination;
    uint64_t length;
} fpga_copy;

/* Switches the engine to a ring. size is sizeof *options. FPGA_ERROR_UNSUPPORTED (no scatter-gather, no bypass BAR, or no interrupt). */
fpga_status fpga_cdma_ring_start(fpga_cdma cdma, const fpga_cdma_ring_options *options, size_t size);

/* Aborts what is in flight, and switches back to single copies. */
fpga_status fpga_cdma_ring_stop(fpga_cdma cdma);

/* Queues a copy of count parts. The next poll or wait starts it. Copies end in the order of their submission. ticket may be NULL.
 * FPGA_ERROR_FULL: poll, then submit again. FPGA_ERROR_RANGE. */
fpga_status fpga_cdma_ring_submit(fpga_cdma cdma, const fpga_copy *parts, size_t count, uint64_t *ticket);

/* Starts queued copies, and writes the number of copies that have ended since the start of the ring, and of those in flight. The copy of
 * a ticket has ended if ticket < *ended. Both may be NULL. Never waits. */
fpga_status fpga_cdma_ring_poll(fpga_cdma cdma, uint64_t *ended, uint32_t *in_flight);

/* Waits until a copy, and so every earlier one, has ended. Errors as fpga_wait. Waits by interrupt need user_interrupt_plus_1. */
fpga_status fpga_cdma_ring_wait(fpga_cdma cdma, uint64_t ticket, uint64_t timeout_ns, const fpga_wait_options *options, size_t size);

/* Takes the oldest failed copy, as fpga_next_failure. */
fpga_status fpga_cdma_ring_next_failure(fpga_cdma cdma, uint64_t *ticket);

/* Ends everything in flight. FPGA_ERROR_WEDGED if the engine does not stop. */
fpga_status fpga_cdma_ring_abort(fpga_cdma cdma);

/* ---- Endpoints: transfers between cards over a network ---------------------------------------------------------------------- */

/* An endpoint is a card's end of the network; there is one per card. It starts no thread: its owner polls it, and waits poll it as well.
 * Data moves from card memory to card memory; the receiving program does not take part. Thread rule: single. */

#define FPGA_ANY_NODE UINT32_MAX /* every node, as the source of writes to a region */

/* Schemes have names: "registry", "receiver-window", "adaptive-window", "selective". Peers run the same scheme. */
typedef struct fpga_endpoint_options {
    const char *scheme;           /* default scheme of transfers. Default "registry" */
    const char *other_schemes;    /* more schemes, separated by commas. Default: none */
    uint32_t h2c_channel_plus_1;  /* 1 + H2C channel that the endpoint takes. Default: the last one */
    uint32_t c2h_channel_plus_1;  /* 1 + C2H channel that it takes to let others read. Default: the last one */
    uint32_t big_threshold;       /* length above which a transfer is sent in turns with others. Default 8 KiB */
    uint32_t segment_size;        /* bytes of a segment. Default: chosen for the card */
    uint32_t window;              /* packets of a window, for schemes that have one. Default: of the scheme */
    uint32_t event_entries;       /* entries of the event ring, a power of two from 64. Default 16384 */
    uint32_t event_line;          /* user interrupt that ends the sleep of a wait */
    uint32_t incarnation;         /* number of this incarnation, later than every earlier one. Default: chosen so */
    uint32_t packets;             /* packets in flight. Default 4096 */
    uint32_t transfers;           /* transfers queued or in progress. Default 1024 */
    uint32_t destinations;        /* nodes with transfers at the same time. Default 64 */
    uint32_t source_alignment;    /* alignment of sources, for copy engines without data realignment. Default: any */
    uint64_t round_trip_ns;       /* expected round trip. Default 100 us */
    uint64_t timeout_ns;          /* time until a packet is sent again. Default: adaptive */
    uint64_t give_up_ns;          /* time without an answer until a transfer fails. Default 1 s */
    uint64_t registry_timeout_ns; /* time for which a partly received transfer is kept. Default 2 s */
    uint64_t escape_timeout_ns;   /* time for which an early packet is kept. Default 1 ms */
    const char *incarnation_file; /* file with the last incarnation number, which keeps the order of the defaults when the clock is set
                                   * back. It is created if needed, and ignored if it cannot be used. Default:
                                   * /var/lib/fpga/incarnation, or fpga/incarnation in the user's state directory; none for
                                   * simulated cards */
} fpga_endpoint_options;

/* Notification of the receiving program. */
typedef enum fpga_notify {
    FPGA_NOTIFY_RECEIVER = 0, /* by the receiving card, when the last packet arrives. The default */
    FPGA_NOTIFY_SENDER = 1,   /* by the sender, when all packets are acknowledged */
    FPGA_NOTIFY_NONE = 2      /* none; the transfer needs no room at the receiving host */
} fpga_notify;

typedef struct fpga_send_options {
    const char *scheme;   /* one of the endpoint's schemes. Default: its default scheme */
    int32_t notify;       /* fpga_notify */
    uint32_t priority;    /* 0 to 255, served strictly; 0 is the lowest */
    uint64_t deadline_ns; /* time after which the transfer is given up. Default: none */
} fpga_send_options;

typedef struct fpga_endpoint_info {
    uint32_t node;          /* this node's id */
    uint32_t incarnation;
    uint32_t scheme;        /* number of the default scheme */
    uint32_t idle;          /* 1: no transfer is in progress */
    uint64_t usable_start;  /* card memory that transfers may use */
    uint64_t usable_length;
    uint64_t now_ns;        /* clock of completions */
} fpga_endpoint_info;

/* Reason why a transfer failed. */
typedef enum fpga_send_reason {
    FPGA_SEND_DONE = 0,
    FPGA_SEND_UNANSWERED = 1,   /* the node does not answer */
    FPGA_SEND_REFUSED = 2,      /* the node refuses a packet: a closed region, a wrong key */
    FPGA_SEND_NOT_READY = 3,    /* the receiving host has no room for the notification */
    FPGA_SEND_FORGOTTEN = 4,    /* the node has forgotten the transfer */
    FPGA_SEND_SCHEME = 5,       /* the node does not run the scheme */
    FPGA_SEND_OTHER = 6,
    FPGA_SEND_DEADLINE = 7,
    FPGA_SEND_CANCELLED = 8,
    FPGA_SEND_SUPERSEDED = 9    /* the node knows a later incarnation of this node: open the endpoint again */
} fpga_send_reason;

typedef struct fpga_send_completion {
    uint64_t ticket;
    uint32_t node;        /* receiving node */
    int32_t result;       /* fpga_status of the transfer */
    int32_t reason;       /* fpga_send_reason */
    uint32_t segments;
    uint64_t length;
    uint64_t packets;     /* packets sent for the first time */
    uint64_t retransmits; /* packets sent again */
    uint64_t started_ns;
    uint64_t finished_ns;
} fpga_send_completion;

/* Arrival of a whole transfer in this card's memory. */
typedef struct fpga_notification {
    uint32_t node;        /* sending node */
    uint32_t incarnation;
    uint32_t transfer;    /* number of the transfer at its sender */
    uint32_t reserved;
    uint64_t address;     /* card address of the data */
    uint64_t length;
    uint64_t time_ns;     /* on the card's clock */
} fpga_notification;

typedef struct fpga_peer {
    uint32_t node;
    uint32_t incarnation;
    uint32_t wire_version;
    uint32_t packet_size;
    uint32_t mask_bits;           /* maximum packets of a segment */
    uint32_t schemes;             /* bit n: scheme number n */
    uint64_t registry_timeout_ns;
} fpga_peer;

typedef struct fpga_endpoint_counters {
    uint64_t packets;
    uint64_t retransmits;
    uint64_t acknowledged;
    uint64_t timeouts;
    uint64_t refused;
    uint64_t segments;
    uint64_t completed;
    uint64_t failed;
    uint64_t events;
    uint64_t notifications;
    uint64_t windows;        /* transmit windows filled */
    uint64_t turns;          /* times that the endpoint was driven */
    uint64_t faults;         /* faults that the network interface reported */
    uint64_t events_dropped; /* events that the card dropped because the host did not poll */
    uint64_t resyncs;        /* times that the tables were read anew because of that */
    uint64_t reads_served;   /* reads of other nodes */
    uint64_t reads_refused;
} fpga_endpoint_counters;

/* Region of a node's card memory that another node may write: a plain structure, which the programs send each other by any means. */
typedef struct fpga_region {
    uint32_t node;     /* owner */
    uint32_t reserved;
    uint64_t address;
    uint64_t length;
    uint64_t key;      /* protects against accidental writes; it is sent in clear text */
} fpga_region;

/* Range of a node's card memory that another node may read. */
typedef struct fpga_readable {
    uint32_t node;       /* owner */
    uint32_t reserved;
    uint64_t length;
    fpga_region mailbox; /* for requests */
} fpga_readable;

typedef struct fpga_read_completion {
    uint64_t ticket;
    uint32_t node;        /* owner of the data */
    int32_t result;       /* fpga_status of the read */
    uint64_t length;
    uint64_t started_ns;
    uint64_t finished_ns;
} fpga_read_completion;

#define FPGA_REGION_BYTES 32   /* bytes of an encoded region */
#define FPGA_READABLE_BYTES 48 /* bytes of an encoded readable range */

/* Takes the card's end of the network. size is sizeof *options. FPGA_ERROR_UNSUPPORTED (no network interface, or not this scheme),
 * FPGA_ERROR_IN_USE (also its channels). */
fpga_status fpga_endpoint_open(fpga_card card, const fpga_endpoint_options *options, size_t size, fpga_endpoint *endpoint);

/* Closes an endpoint. Transfers in progress end without completions. */
fpga_status fpga_endpoint_close(fpga_endpoint endpoint);

/* Writes the properties of an endpoint. size is sizeof *info. */
fpga_status fpga_endpoint_get_info(fpga_endpoint endpoint, fpga_endpoint_info *info, size_t size);

/* Writes the counters of an endpoint. size is sizeof *counters. */
fpga_status fpga_endpoint_get_counters(fpga_endpoint endpoint, fpga_endpoint_counters *counters, size_t size);

/* Opens length bytes of this card's memory for writes of a node, or of FPGA_ANY_NODE. FPGA_ERROR_RANGE, FPGA_ERROR_NO_MEMORY (all windows of
 * the card are open). After a failure *region is zero. */
fpga_status fpga_region_open(fpga_endpoint endpoint, uint32_t source_node, uint64_t address, uint64_t length, fpga_region *region);

/* Closes a region that this endpoint has opened: later packets are refused. */
fpga_status fpga_region_close(fpga_endpoint endpoint, const fpga_region *region);

/* Writes a region as FPGA_REGION_BYTES bytes, the same on every machine, and reads it back. length is the size of bytes. */
fpga_status fpga_region_encode(const fpga_region *region, uint8_t *bytes, size_t length);
fpga_status fpga_region_decode(const uint8_t *bytes, size_t length, fpga_region *region);

/* Starts a transfer of length bytes from this card's memory at source to offset bytes into another node's region. The source must not
 * change until it ends. It makes progress in polls and waits, and ends in one completion. ticket may be NULL. FPGA_ERROR_FULL: poll, take
 * completions, then send again. FPGA_ERROR_RANGE, FPGA_ERROR_UNSUPPORTED (the scheme), FPGA_ERROR_PEER (it cannot receive this). */
fpga_status fpga_endpoint_send(fpga_endpoint endpoint, uint64_t source, const fpga_region *target, uint64_t offset, uint64_t length,
                               const fpga_send_options *options, size_t size, uint64_t *ticket);

/* Does the endpoint's work, and writes the amount of it, unless work is NULL. Never waits. An error means that the endpoint has failed. */
fpga_status fpga_endpoint_poll(fpga_endpoint endpoint, size_t *work);

/* Takes the oldest completion; *found is 0 if there is none. Returns the failure of the transfer, if it has failed: FPGA_ERROR_PEER,
 * FPGA_ERROR_TIMED_OUT (its deadline), FPGA_ERROR_CANCELLED; *found is 1 then. completion may be NULL. */
fpga_status fpga_endpoint_next_completion(fpga_endpoint endpoint, fpga_send_completion *completion, size_t size, uint32_t *found);

/* Waits until a transfer has ended, takes its completion, and returns as fpga_endpoint_next_completion. FPGA_ERROR_TIMED_OUT also if it has
 * not ended in time: then it stays in progress, and *completion is unchanged. FPGA_ERROR_TICKET. */
fpga_status fpga_endpoint_wait(fpga_endpoint endpoint, uint64_t ticket, uint64_t timeout_ns, fpga_send_completion *completion,
                               size_t size);

/* Withdraws a transfer; its completion comes with a later poll. Writes 1, or 0 if it had ended, unless cancelled is NULL. */
fpga_status fpga_endpoint_cancel(fpga_endpoint endpoint, uint64_t ticket, uint32_t *cancelled);

/* Takes the oldest arrival; *found is 0 if there is none. */
fpga_status fpga_endpoint_next_notification(fpga_endpoint endpoint, fpga_notification *notification, size_t size, uint32_t *found);

/* Waits for an arrival and takes it. FPGA_ERROR_TIMED_OUT. */
fpga_status fpga_endpoint_wait_notification(fpga_endpoint endpoint, uint64_t timeout_ns, fpga_notification *notification, size_t size);

/* Copies length bytes at data to this card's memory through the endpoint's channel, and waits: for cards with one H2C channel. */
fpga_status fpga_endpoint_write(fpga_endpoint endpoint, uint64_t card_address, const void *data, size_t length);

/* Asks a node for its capabilities, and waits for the answer. From then on, transfers that it could not receive are refused at once. peer
 * may be NULL. FPGA_ERROR_PEER if it does not answer in time. */
fpga_status fpga_endpoint_wait_peer(fpga_endpoint endpoint, uint32_t node, uint64_t timeout_ns, fpga_peer *peer, size_t size);

/* Lets a node read length bytes of this card's memory; polls of this endpoint answer its requests. Takes a C2H channel the first time. */
fpga_status fpga_readable_open(fpga_endpoint endpoint, uint32_t reader_node, uint64_t address, uint64_t length, fpga_readable *readable);

/* Closes a readable range that this endpoint has opened. */
fpga_status fpga_readable_close(fpga_endpoint endpoint, const fpga_readable *readable);

/* Writes a readable range as FPGA_READABLE_BYTES bytes, and reads it back. length is the size of bytes. */
fpga_status fpga_readable_encode(const fpga_readable *readable, uint8_t *bytes, size_t length);
fpga_status fpga_readable_decode(const uint8_t *bytes, size_t length, fpga_readable *readable);

/* Starts a read of length bytes at offset of another node's range into this card's memory at destination. FPGA_ERROR_FULL: wait for a read
 * to end. FPGA_ERROR_RANGE, FPGA_ERROR_IN_USE (destinations of two reads overlap). */
fpga_status fpga_endpoint_read(fpga_endpoint endpoint, const fpga_readable *source, uint64_t offset, uint64_t destination,
                               uint64_t length, const fpga_send_options *options, size_t size, uint64_t *ticket);

/* As fpga_endpoint_next_completion, fpga_endpoint_wait and fpga_endpoint_cancel, for reads. Tickets of reads are numbers of their own. */
fpga_status fpga_endpoint_next_read(fpga_endpoint endpoint, fpga_read_completion *completion, size_t size, uint32_t *found);
fpga_status fpga_endpoint_wait_read(fpga_endpoint endpoint, uint64_t ticket, uint64_t timeout_ns, fpga_read_completion *completion,
                                    size_t size);
fpga_status fpga_endpoint_cancel_read(fpga_endpoint endpoint, uint64_t ticket, uint32_t *cancelled);

/* ---- Frame streams ---------------------------------------------------------------------------------------------------------- */

/* One publisher sends frames to any number of subscribers in real time. It waits for none of them: a subscriber without a free slot misses
 * the frame, and learns that. Thread rule of publishers, subscribers and frames: single. A frame is independent of its stream: another
 * thread may fill or read it. */

typedef struct fpga_publisher_options {
    uint64_t max_data_length;    /* bytes of a frame's data. Default 1 MiB */
    uint32_t max_value_length;   /* bytes of the value in front of the data. Default 64 */
    uint32_t slots;              /* frames being filled or in flight. Default 16 */
    uint32_t heap_slots;         /* more frames in ordinary memory, at most 65536. Default 8 */
    uint32_t subscribers;        /* maximum number of subscribers, up to 64. Default 8 */
    uint64_t heartbeat_ns;       /* maximum time between two transfers to a subscriber. Default 500 ms */
    uint64_t first_sequence;     /* sequence number of the first frame */
    uint32_t h2c_channel;        /* H2C channel for frames */
    uint32_t c2h_channel_plus_1; /* 1 + C2H channel for credits. Default: the first that is free */
    uint64_t max_silence_ns;     /* time for which transfers to a subscriber may fail before it is dropped. Default 20 s */
} fpga_publisher_options;

typedef struct fpga_publisher_state {
    uint64_t published;     /* frames published */
    uint64_t unsent;        /* of these, frames without a subscriber */
    uint64_t sent;          /* frames sent, each counted once per subscriber, as are the next three */
    uint64_t skipped;       /* missed by a subscriber without a free slot */
    uint64_t arrived;
    uint64_t failed;
    uint64_t next_sequence; /* sequence number of the next frame */
    uint32_t subscribers;   /* present subscribers */
    uint32_t free_slots;
    uint32_t closed;        /* 1: the stream has ended, and everything has arrived */
    uint32_t node;          /* node id of the publisher */
} fpga_publisher_state;

typedef struct fpga_subscriber_options {
    uint32_t slots;              /* frames that wait to be read. Default 8 */
    uint32_t missed_heartbeats;  /* heartbeats that are missing at least when the publisher is gone (max_silence_ns). Default 6 */
    uint64_t patience_ns;        /* time for joining. Default 10 s */
    uint32_t h2c_channel;        /* H2C channel for credits */
    uint32_t c2h_channel_plus_1; /* 1 + C2H channel for frames. Default: the first that is free */
    uint64_t max_silence_ns;     /* time without a transfer after which the publisher is gone. Default 20 s */
} fpga_subscriber_options;

typedef enum fpga_frame_event_kind {
    FPGA_EVENT_NONE = 0,
    FPGA_EVENT_JOINED = 1, /* the publisher has accepted; sequence is that of the first frame */
    FPGA_EVENT_FRAME = 2,  /* a frame: fpga_frame_free gives it back */
    FPGA_EVENT_GAP = 3,    /* missed frames from sequence on were missed */
    FPGA_EVENT_ENDED = 4,  /* the stream has ended, and all its frames were read */
    FPGA_EVENT_FAULT = 5   /* the publisher sent something invalid (fpga_last_error has the text); the stream continues */
} fpga_frame_event_kind;

typedef struct fpga_frame_event {
    int32_t kind;      /* fpga_frame_event_kind */
    uint32_t reserved;
    fpga_frame frame;
    uint64_t sequence;
    uint64_t missed;
    uint64_t time_ns;  /* publication by the clock of the publisher's card */
} fpga_frame_event;

typedef struct fpga_subscriber_state {
    uint64_t frames;            /* frames read */
    uint64_t bytes;             /* bytes of data in them */
    uint64_t gaps;
    uint64_t missed;            /* frames missed in gaps */
    uint64_t expected_sequence;
    uint32_t publisher_node;
    uint32_t joined;            /* 0 while the node joins */
} fpga_subscriber_state;

typedef enum fpga_publisher_event_kind {
    FPGA_PUBLISHER_NONE = 0,
    FPGA_PUBLISHER_JOINED = 1,        /* a subscriber; sequence is that of its first frame */
    FPGA_PUBLISHER_DROPPED = 2,       /* a subscriber has left, or does not answer */
    FPGA_PUBLISHER_REJECTED = 3,      /* a connection was not accepted */
    FPGA_PUBLISHER_UPLOAD_FAILED = 4, /* the frame of sequence did not get into the card: no subscriber gets it */
    FPGA_PUBLISHER_FAULT = 5          /* another transfer failed, and is repeated */
} fpga_publisher_event_kind;

typedef struct fpga_publisher_event {
    int32_t kind;      /* fpga_publisher_event_kind */
    uint32_t node;     /* the subscriber's */
    uint64_t sequence;
} fpga_publisher_event;

/* Makes an endpoint a publisher. The endpoint's handle is closed, also after most failures. size is sizeof *options. */
fpga_status fpga_publisher_open(fpga_endpoint endpoint, const fpga_publisher_options *options, size_t size, fpga_publisher *publisher);

/* Listens for subscribers at an address such as "192.0.2.1:7000". bound, unless NULL, becomes the address with the port in use, cut to
 * length - 1 bytes: port 0 stands for any. */
fpga_status fpga_publisher_listen(fpga_publisher publisher, const char *address, char *bound, size_t length);

/* Does the publisher's work: admits subscribers, sends frames, takes credits. Never waits. work may be NULL. */
fpga_status fpga_publisher_poll(fpga_publisher publisher, size_t *work);

/* Takes the oldest event of the publisher, FPGA_PUBLISHER_NONE if there is none, and, unless length is 0, a text with details, cut to
 * length - 1 bytes. The last events are kept until they are taken. */
fpga_status fpga_publisher_next_event(fpga_publisher publisher, fpga_publisher_event *event, size_t size, char *text, size_t length);

/* Takes a frame to fill. FPGA_ERROR_FULL: all are in use; poll, then try again. FPGA_ERROR_STOPPED after fpga_publisher_end. */
fpga_status fpga_publisher_take(fpga_publisher publisher, fpga_frame *frame);

/* Publishes a frame, whose handle is closed: writes its sequence number, and the numbers of subscribers that get it and that miss it. The
 * three may be NULL. Never waits. FPGA_ERROR_FULL: the frame is lost. FPGA_ERROR_ARGUMENT for a received frame, which stays open. */
fpga_status fpga_publisher_publish(fpga_publisher publisher, fpga_frame frame, uint64_t *sequence, uint32_t *sent, uint32_t *skipped);

/* Ends the stream after the frames published so far. Poll until closed of fpga_publisher_state, or call fpga_publisher_close. */
fpga_status fpga_publisher_end(fpga_publisher publisher);

/* Ends the stream, waits until every frame has arrived, and closes the handle. FPGA_ERROR_TIMED_OUT, FPGA_ERROR_CANCELLED: the handle is
 * closed, and frames are lost. */
fpga_status fpga_publisher_close(fpga_publisher publisher, uint64_t timeout_ns);

/* Writes the state of a publisher. size is sizeof *state. */
fpga_status fpga_publisher_get_state(fpga_publisher publisher, fpga_publisher_state *state, size_t size);

/* Returns the data of a frame: of a frame to fill, all of its memory; of a received one, the data. Valid until the frame is published or
 * freed. */
fpga_status fpga_frame_data(fpga_frame frame, void **data, size_t *length);

/* Returns the value of a received frame. */
fpga_status fpga_frame_value(fpga_frame frame, const void **value, size_t *length);

/* Sets the length of the data of a frame to fill, the maximum at first; or copies data, and sets the length. FPGA_ERROR_RANGE. */
fpga_status fpga_frame_set_length(fpga_frame frame, size_t length);
fpga_status fpga_frame_write(fpga_frame frame, const void *data, size_t length);

/* Sets the value in front of the data, such as a digest. FPGA_ERROR_RANGE. */
fpga_status fpga_frame_set_value(fpga_frame frame, const void *value, size_t length);

/* Frees a frame: one to fill is not published; the slot of a received one goes back to the publisher. */
fpga_status fpga_frame_free(fpga_frame frame);

/* Makes an endpoint a subscriber of the publisher that listens at an address. The endpoint's handle is closed, also after most failures.
 * Joining goes on in polls and waits: the first event is FPGA_EVENT_JOINED. */
fpga_status fpga_subscriber_open(fpga_endpoint endpoint, const char *address, const fpga_subscriber_options *options, size_t size,
                                 fpga_subscriber *subscriber);

/* Writes the next event, FPGA_EVENT_NONE if there is none. Never waits. size is sizeof *event, and has to contain the member frame.
 * FPGA_ERROR_PEER if the publisher does not answer any more. */
fpga_status fpga_subscriber_poll(fpga_subscriber subscriber, fpga_frame_event *event, size_t size);

/* Waits for the next event. FPGA_ERROR_TIMED_OUT. */
fpga_status fpga_subscriber_wait(fpga_subscriber subscriber, uint64_t timeout_ns, fpga_frame_event *event, size_t size);

/* Leaves the stream with notice to the publisher, and closes the handle. */
fpga_status fpga_subscriber_leave(fpga_subscriber subscriber, uint64_t timeout_ns);

/* Closes the handle without notice. The publisher finds out by failing transfers. */
fpga_status fpga_subscriber_close(fpga_subscriber subscriber);

/* Writes the state of a subscriber. size is sizeof *state. */
fpga_status fpga_subscriber_get_state(fpga_subscriber subscriber, fpga_subscriber_state *state, size_t size);

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

/* The same for a card that is not open, by its name: for cards that fpga_open refuses because an engine does not stop. The card must not be
 * open in this process. */
fpga_status fpga_recover_named(const char *name, const fpga_recovery_options *options, size_t size, fpga_recovery_report *report,
                               size_t report_size, char *text, size_t length);

/* ---- Simulated cards -------------------------------------------------------------------------------------------------------- */

/* Simulated cards and the network between them, for tests. Without threads, time is virtual, and cards work inside waits and polls of this
 * library and in fpga_network_step: the same calls give the same run. Functions return FPGA_ERROR_UNSUPPORTED if the library is built
 * without simulated cards, FPGA_ERROR_RANGE for a card that is not there. Thread rule: shared. */

typedef struct fpga_network_options {
    const char *description;    /* built-in card such as "us-plus-x8-stream", or FILE.yaml. Default: the card that "mock" opens */
    uint32_t cards;             /* number of cards, at most 1024, with node ids from 1. Default 1 */
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
