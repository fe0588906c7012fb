//! Refused requests and rejected counts.

use fpga_registers::{CardAddr, quantity};

use super::HostRange;

/// A refused request.
pub type Refusal<T> = crate::refusal::Refusal<T, RefusalReason>;

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error(
        "the descriptor ring is full: {needed} needed, {free} free",
        needed = quantity(*needed, "entry"),
    )]
    Full {
        /// Descriptors (or slots) that the request needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The request never fits: the buffer is too scattered, or too long, for this ring.
    #[error(
        "the request needs {needed}, the ring has {entries}",
        needed = quantity(*needed, "descriptor"),
    )]
    TooManyDescriptors {
        /// Descriptors that the request needs.
        needed: u64,
        /// Entries of the ring.
        entries: u32,
    },
    /// The request has no bytes to move.
    #[error(
        "the request has 0 bytes: the engine has no zero-length descriptor; complete it without the device"
    )]
    Empty,
    /// A host range ends beyond the address space, or the lengths add up to more than 2^64 bytes.
    #[error("host range of {} at {} exceeds the address space; check address and length", quantity(range.length, "byte"), range.start)]
    HostAddress {
        /// The first faulty range.
        range: HostRange,
    },
    /// The card side ends beyond the address space.
    #[error("the range of {length} at card address {start} leaves the address space", length = quantity(*length, "byte"))]
    CardAddress {
        /// First card address.
        start: CardAddr,
        /// Requested bytes.
        length: u64,
    },
    /// A part inside a stream packet is not a multiple of a beat (PG195, `invalid_length`).
    #[error(
        "a buffer of {length} inside a packet is not whole beats: make every buffer except the last a multiple of {beat}",
        length = quantity(*length, "byte"),
        beat = quantity(*beat, "byte"),
    )]
    PartialBeat {
        /// Length of the part in bytes.
        length: u32,
        /// Size of a beat in bytes.
        beat: u32,
    },
    /// A count fault has occurred: drain the ring and recover the channel first.
    #[error("the descriptor ring is faulted: drain it and recover the channel")]
    Faulted,
}

/// An impossible completed count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CountFault {
    /// The write-back's error bit: read the channel's status register for the cause.
    #[error(
        "the engine stopped with an error after {count} of the run: read the channel status",
        count = quantity(*count, "descriptor"),
    )]
    Engine {
        /// The completed count in the same word.
        count: u32,
    },
    /// Reserved bits are set; all ones means that the device is gone.
    #[error(
        "{word:#010x} is not a completed count: the device is gone, or another writer overwrote it; recover the channel"
    )]
    NotACount {
        /// The value found.
        word: u32,
    },
    /// More than was posted, or less than was reported before.
    #[error(
        "the device reports {reported} completed descriptors, but {known} were known and {posted} are posted; recover the channel"
    )]
    BeyondPosted {
        /// Count reported by the device.
        reported: u32,
        /// Previous count.
        known: u32,
        /// Descriptors in the run.
        posted: u32,
    },
}
