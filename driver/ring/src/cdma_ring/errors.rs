//! Refused requests and rejected progress reports.

use fpga_registers::CardAddr;
use fpga_registers::cdma::SgStatus;

use super::CopyEntry;

/// A refused request.
pub type Refusal<T> = crate::refusal::Refusal<T, RefusalReason>;

/// Reason for refusing a request. Only [`Full`](Self::Full) is temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error(
        "the CDMA ring is full: {needed} descriptors needed, {free} free; complete operations, then retry"
    )]
    Full {
        /// Descriptors (or slots) that the request needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The request never fits: too many segments, or too long, for this ring.
    #[error(
        "the copy needs {needed} descriptors, the CDMA ring holds {usable}: split it or use a larger ring"
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
        "{length} bytes at {start} exceed the {address_bits} address bits of the CDMA build; choose a lower address"
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
        "{} bytes from {} to {} overlap; copy through another buffer",
        segment.length, segment.source, segment.destination
    )]
    Overlap {
        /// The faulty segment.
        segment: CopyEntry,
    },
    /// The destination is the ring's own descriptor memory.
    #[error(
        "{} bytes to {} would overwrite the ring's own descriptors; choose another destination",
        segment.length, segment.destination
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
