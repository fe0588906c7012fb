//! Refused requests.

use core::fmt;

use fpga_registers::{CardAddr, quantity};

use crate::ranges::{CopyEntry, HostRange};

/// A refused request; returns the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Refusal<T> {
    /// Reason.
    pub reason: RefusalReason,
    /// Payload given to `submit`.
    pub payload: T,
}

// Implemented manually, so that a refusal of a payload without `Debug` can still be unwrapped and printed.
impl<T> fmt::Debug for Refusal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refusal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> core::error::Error for Refusal<T> {}

/// Reason for refusing a request. Only [`Full`](Self::Full) is temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error("the descriptor ring is full: {needed} needed, {free} free", needed = quantity(*needed, "entry"))]
    Full {
        /// Descriptors (or slots) that the request needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The request never fits this ring: it is too scattered, or too long.
    #[error(
        "the request needs {needed}, the ring holds {usable}",
        needed = quantity(*needed, "descriptor"),
    )]
    TooManyDescriptors {
        /// Descriptors that the request needs.
        needed: u64,
        /// Maximum number of entries in use.
        usable: u32,
    },
    /// The request has no bytes to move.
    #[error("the request has 0 bytes: the engine has no zero-length descriptor")]
    Empty,
    /// A host range ends beyond the address space, or the lengths add up to more than 2^64 bytes.
    #[error("host range of {} at {} exceeds the address space", quantity(range.length, "byte"), range.start)]
    HostAddress {
        /// The first faulty range.
        range: HostRange,
    },
    /// A card range ends beyond the address width of the engine.
    #[error(
        "the range of {length} at card address {start} exceeds the {address_bits} address bits of the engine",
        length = quantity(*length, "byte"),
    )]
    CardAddress {
        /// First card address.
        start: CardAddr,
        /// Requested bytes.
        length: u64,
        /// Address bits of the engine: 64 for XDMA, the build's for CDMA.
        address_bits: u8,
    },
    /// A part inside a stream packet is not a multiple of a beat (PG195, `invalid_length`).
    #[error(
        "a buffer of {length} inside a packet is not whole beats: every buffer except the last is a multiple of {beat}",
        length = quantity(*length, "byte"),
        beat = quantity(*beat, "byte"),
    )]
    PartialBeat {
        /// Length of the part in bytes.
        length: u32,
        /// Size of a beat in bytes.
        beat: u32,
    },
    /// Source and destination of one copy overlap: the engine reads ahead, so the result would be undefined.
    #[error(
        "source and destination overlap in a copy of {} from {} to {}",
        quantity(segment.length, "byte"), segment.source, segment.destination
    )]
    Overlap {
        /// The faulty segment.
        segment: CopyEntry,
    },
    /// The destination is the ring's own descriptor memory.
    #[error(
        "a copy of {} to {} would overwrite the ring's own descriptors",
        quantity(segment.length, "byte"), segment.destination
    )]
    DescriptorMemory {
        /// The faulty segment.
        segment: CopyEntry,
    },
    /// The CDMA build has no realignment engine, and an address is unaligned.
    #[error("{address} is not a multiple of {alignment}, which a CDMA build without data realignment needs")]
    Misaligned {
        /// The unaligned address.
        address: CardAddr,
        /// The data width in bytes.
        alignment: u32,
    },
    /// An impossible report has occurred: nothing is accepted until the ring is drained and the engine recovered.
    #[error("the descriptor ring is faulted until it is drained and the engine recovered")]
    Faulted,
}

impl RefusalReason {
    /// Returns what to do about it; `None` if the problem leaves nothing to advise, or depends on the caller's interface.
    #[must_use]
    pub const fn help(&self) -> Option<&'static str> {
        Some(match self {
            Self::Empty => "complete it without the device",
            Self::HostAddress { .. } => "check address and length",
            Self::CardAddress { .. } => "choose a lower address",
            Self::Overlap { .. } => "copy through another buffer",
            Self::DescriptorMemory { .. } => "choose another destination",
            Self::Misaligned { .. } => "align it, or copy the unaligned part through host memory",
            _ => return None,
        })
    }
}
