//! What a ring refuses, and what it does not believe.

use fpga_registers::CardAddr;

use super::HostRange;

/// A request that was not taken.
pub type Refusal<T> = crate::refusal::Refusal<T, RefusalReason>;

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error(
        "the descriptor ring is full: {needed} entries needed, {free} free; complete operations, then retry"
    )]
    Full {
        /// Descriptors (or slots) the request needs.
        needed: u32,
        /// How many are free.
        free: u32,
    },
    /// Never fits: the buffer is too scattered, or too long, for this ring.
    #[error("the request needs {needed} descriptors, the ring has {entries}: split it or use a larger ring")]
    TooManyDescriptors {
        /// Descriptors the request needs.
        needed: u64,
        /// Entries of the ring.
        entries: u32,
    },
    /// No bytes to move.
    #[error("an empty request: the engine has no zero-length descriptor; complete it without the device")]
    Empty,
    /// A host range ends beyond the address space, or the lengths add up to more than 2^64 bytes.
    #[error("host range of {} bytes at {} leaves the address space", range.length, range.start)]
    HostAddress {
        /// The first range at fault.
        range: HostRange,
    },
    /// The card side ends beyond the address space.
    #[error("{length} bytes at card address {start} leave the address space")]
    CardAddress {
        /// First card address.
        start: CardAddr,
        /// Bytes asked for.
        length: u64,
    },
    /// A stream's descriptors are whole beats but for the end of the packet (PG195, `invalid_length`).
    #[error(
        "a part of {length} bytes inside a packet is not whole beats: every part but the last must be a multiple of {beat} bytes"
    )]
    PartialBeat {
        /// Bytes of the part.
        length: u32,
        /// Bytes of a beat.
        beat: u32,
    },
    /// A count fault was seen: drain the ring and recover the channel first.
    #[error("the descriptor ring is faulted: drain it and recover the channel")]
    Faulted,
}

/// A completed count that cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountFault {
    /// The write-back's error bit: read the channel's status register for the cause.
    #[error("the engine stopped with an error after {count} descriptors of the run: read the channel status")]
    Engine {
        /// The completed count in the same word.
        count: u32,
    },
    /// Bits that the hardware keeps at zero are set; all ones means that the device is gone.
    #[error("{word:#010x} is no completed count: the device is gone or something else wrote there")]
    NotACount {
        /// The word found.
        word: u32,
    },
    /// More than was posted, or less than was reported before.
    #[error(
        "the device reports {reported} completed descriptors; {known} were known and {posted} are posted"
    )]
    BeyondPosted {
        /// The device's count.
        reported: u32,
        /// The count before.
        known: u32,
        /// Descriptors in the run.
        posted: u32,
    },
}
