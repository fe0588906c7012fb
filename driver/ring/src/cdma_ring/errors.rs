//! Refused requests and rejected progress reports.

use fpga_registers::cdma::SgStatus;
use fpga_registers::{CardAddr, quantity};

use super::CopyEntry;

/// A refused request.
pub type Refusal<T> = crate::refusal::Refusal<T, CdmaRefusalReason>;

/// Reason for refusing a request. Only [`Full`](Self::Full) is temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaRefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error(
        "the CDMA ring is full: {needed} needed, {free} free",
        needed = quantity(*needed, "descriptor"),
    )]
    Full {
        /// Descriptors (or slots) that the request needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The request never fits: too many segments, or too long, for this ring.
    #[error(
        "the copy needs {needed}, the CDMA ring holds {usable}",
        needed = quantity(*needed, "descriptor"),
    )]
    TooManyDescriptors {
        /// Descriptors that the request needs.
        needed: u64,
        /// Maximum number of entries in use.
        usable: u32,
    },
    /// The request has no bytes to copy.
    #[error("the copy has 0 bytes: the engine has no zero-length descriptor; complete it without the engine")]
    Empty,
    /// A range ends beyond the build's address width.
    #[error(
        "the range of {length} at {start} exceeds the {address_bits} address bits of the CDMA build; choose a lower address",
        length = quantity(*length, "byte"),
    )]
    AddressRange {
        /// First address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// Address bits of the build.
        address_bits: u8,
    },
    /// Source and destination of one segment overlap: the engine reads ahead, so the result would be undefined.
    #[error(
        "source and destination overlap in a copy of {} from {} to {}; copy through another buffer",
        quantity(segment.length, "byte"), segment.source, segment.destination
    )]
    Overlap {
        /// The faulty segment.
        segment: CopyEntry,
    },
    /// The destination is the ring's own descriptor memory.
    #[error(
        "a copy of {} to {} would overwrite the ring's own descriptors; choose another destination",
        quantity(segment.length, "byte"), segment.destination
    )]
    DescriptorMemory {
        /// The faulty segment.
        segment: CopyEntry,
    },
    /// The build has no realignment engine, and an address is unaligned.
    #[error(
        "{address} is not a multiple of {alignment}, which a CDMA build without data realignment needs; align it, or copy the unaligned part through host memory"
    )]
    Misaligned {
        /// The unaligned address.
        address: CardAddr,
        /// The data width in bytes.
        alignment: u32,
    },
    /// A fault has occurred: drain the ring and reset the engine first.
    #[error("the CDMA ring is faulted: drain it and reset the engine")]
    Faulted,
}

/// Impossible progress, or a report that the engine has halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressFault {
    /// Error bits in a descriptor's status word: the engine has halted there.
    #[error("the engine halted at descriptor {index}: {status}")]
    Descriptor {
        /// Ring entry.
        index: u32,
        /// Status word.
        status: SgStatus,
    },
    /// Reserved bits are set; all ones means that the device is gone.
    #[error(
        "{word:#010x} is not a descriptor status: the device is gone, or another master wrote to the descriptor; reset the engine"
    )]
    NotAStatus {
        /// The value found.
        word: u32,
    },
    /// The current-descriptor register does not name a posted descriptor.
    #[error(
        "the current-descriptor register holds {address}, which is not a posted descriptor; reset the engine"
    )]
    NotPosted {
        /// Value of the register.
        address: CardAddr,
    },
}
