/*
 * User-space driver for FPGA cards with Xilinx XDMA (PCIe DMA).
 *
 * Handles
 *   A handle is a value, not a pointer: it is never dereferenced. 0 is no handle. A closed or wrong handle is the
 *   status FPGA_ERROR_HANDLE, never a fault. Memory arguments are pointers, and have to be valid as described.
 *
 * Errors
 *   Every function that can fail returns a status; FPGA_OK is 0. Out parameters have a defined value after a failure:
 *   handles are 0, values of registers are all ones, others are unchanged. fpga_last_error() has the problem, what to do about it,
 *   and the card, of the last failed call of the calling thread.
 *
 * Threads
 *   fpga_card handles may be used by any number of threads at the same time. A channel, and the buffers of a channel, belong to one
 *   thread at a time: a call while another thread is in a call with the same handle returns FPGA_ERROR_CONCURRENT.
 *
 * Times are in nanoseconds; FPGA_NO_TIMEOUT waits without a limit. Addresses and lengths are in bytes.
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

/* Wait without a limit. */
#define FPGA_NO_TIMEOUT UINT64_MAX

typedef struct { uint64_t value; } fpga_card;
typedef struct { uint64_t value; } fpga_channel;
typedef struct { uint64_t value; } fpga_buffer;

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
    FPGA_ERROR_GONE = 13,       /* the card does not answer */
    FPGA_ERROR_TICKET = 14,     /* the ticket is unknown */
    FPGA_ERROR_SYSTEM = 15,     /* the system refused a request */
    FPGA_ERROR_INTERNAL = 16    /* a defect of this library */
} fpga_status;

/* Error of the last failed call of a thread. The texts are never NULL. */
typedef struct fpga_error {
    fpga_status status;
    const char *message; /* the problem, in one line */
    const char *advice;  /* what to do about it; empty if there is no advice */
    const char *card;    /* name of the card; empty if the error concerns none */
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
    uint64_t memory_length;     /* its length in bytes */
} fpga_card_info;

/* Opens a card: "0000:65:00.0" (bound to vfio-pci), "mock", "mock:NAME", "mock:FILE.yaml" or "vfio-user:SOCKET". */
fpga_status fpga_open(const char *name, fpga_card *card);

/* Closes a card. Its channels keep it open until they are closed. */
fpga_status fpga_close(fpga_card card);

/* Writes the properties of a card to *info. size is sizeof(fpga_card_info). */
fpga_status fpga_get_info(fpga_card card, fpga_card_info *info, size_t size);

/* Writes the name of a card, cut to length - 1 characters, and a zero byte. */
fpga_status fpga_get_name(fpga_card card, char *name, size_t length);

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

/* ---- DMA channels ----------------------------------------------------------------------------------------------------------- */

typedef enum fpga_direction {
    FPGA_H2C = 0, /* from host to card */
    FPGA_C2H = 1  /* from card to host */
} fpga_direction;

/* Takes a channel. It has one owner at a time, in this process and others. */
fpga_status fpga_channel_open(fpga_card card, fpga_direction direction, uint32_t number, fpga_channel *channel);

/* Closes a channel. Transfers in flight are aborted; its buffers cannot be used any more, and have to be freed. */
fpga_status fpga_channel_close(fpga_channel channel);

/* Copies length bytes at data to card memory at card_address, and waits. Any memory; one copy. FPGA_ERROR_IN_USE while submitted
 * transfers are in flight. When it ends early, the engine is stopped. */
fpga_status fpga_write(fpga_channel channel, uint64_t card_address, const void *data, size_t length, uint64_t timeout_ns);

/* Copies length bytes of card memory at card_address to data, and waits. Any memory; one copy. Ends early as fpga_write does. */
fpga_status fpga_read(fpga_channel channel, uint64_t card_address, void *data, size_t length, uint64_t timeout_ns);

/* ---- Transfers without a copy ----------------------------------------------------------------------------------------------- */

/* Creates length bytes of DMA memory for transfers of a channel. */
fpga_status fpga_buffer_create(fpga_channel channel, size_t length, fpga_buffer *buffer);

/* Returns the memory of a buffer, and its size unless length is NULL. Valid until the buffer is freed or its channel closed. The program
 * must not access a part of it while a transfer of that part is in flight. */
fpga_status fpga_buffer_data(fpga_buffer buffer, void **data, size_t *length);

/* Frees a buffer. FPGA_ERROR_IN_USE while a transfer of it is in flight. */
fpga_status fpga_buffer_free(fpga_buffer buffer);

/* Queues a transfer of length bytes at offset of the buffer, from or to card memory at card_address. The next fpga_poll or fpga_wait
 * starts it. Transfers end in the order of their submission. ticket may be NULL. */
fpga_status fpga_submit(fpga_channel channel, fpga_buffer buffer, size_t offset, size_t length, uint64_t card_address,
                        uint64_t *ticket);

/* Starts queued transfers, and writes the number of transfers that have ended, unless ended is NULL. Never waits. */
fpga_status fpga_poll(fpga_channel channel, size_t *ended);

/* Waits until the transfer of a ticket, and so every earlier one, has ended. FPGA_ERROR_FAULT if a transfer has failed since the last
 * call. */
fpga_status fpga_wait(fpga_channel channel, uint64_t ticket, uint64_t timeout_ns);

/* Stops the engine and ends everything in flight. */
fpga_status fpga_abort(fpga_channel channel);

#ifdef __cplusplus
}
#endif

#endif /* FPGA_H */
