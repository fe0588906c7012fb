//! What a ring refuses, and what it does not believe.

use fpga_registers::CardAddr;
use fpga_registers::cdma::SgStatus;

use super::CopyEntry;

/// A request that was not taken.
pub type Refusal<T> = crate::refusal::Refusal<T, RefusalReason>;

/// Why a request was not taken. Only [`Full`](Self::Full) goes away by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RefusalReason {
    /// Back-pressure: no operation slot or too few descriptors are free.
    #[error(
        "the CDMA ring is full: {needed} descriptors needed, {free} free; complete operations, then retry"
    )]
    Full {
        /// Descriptors (or slots) the request needs.
        needed: u32,
        /// How many are free.
        free: u32,
    },
    /// Never fits: too many segments, or too long, for this ring.
    #[error(
        "the copy needs {needed} descriptors, the CDMA ring holds {usable}: split it or use a larger ring"
    )]
    TooManyDescriptors {
        /// Descriptors the request needs.
        needed: u64,
        /// Entries of the ring that can be in use.
        usable: u32,
    },
    /// No bytes to copy.
    #[error("an empty copy: the engine has no zero-length descriptor; complete it without the engine")]
    Empty,
    /// A range ends beyond what the build can address.
    #[error("{length} bytes at {start} leave the {address_bits} address bits of the CDMA build")]
    AddressRange {
        /// First address.
        start: CardAddr,
        /// Bytes.
        length: u64,
        /// What the build has.
        address_bits: u8,
    },
    /// Source and destination of one segment overlap: the engine reads ahead, so the result would be undefined.
    #[error(
        "{} bytes from {} to {} overlap; copy through another place",
        segment.length, segment.source, segment.destination
    )]
    Overlap {
        /// The segment at fault.
        segment: CopyEntry,
    },
    /// The destination is the ring's own descriptor memory.
    #[error(
        "{} bytes to {} would overwrite the ring's own descriptors; choose another destination",
        segment.length, segment.destination
    )]
    DescriptorMemory {
        /// The segment at fault.
        segment: CopyEntry,
    },
    /// The build has no realignment engine.
    #[error(
        "{address} is not a multiple of {alignment}, which a CDMA build without data realignment needs; align it, or have what does not fit go through host memory"
    )]
    Misaligned {
        /// The address at fault.
        address: CardAddr,
        /// The data width in bytes.
        alignment: u32,
    },
    /// A fault was seen: drain the ring and reset the engine first.
    #[error("the CDMA ring is faulted: drain it and reset the engine")]
    Faulted,
}

/// Progress that cannot be true, or that says that the engine has halted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressFault {
    /// Error bits in a descriptor's status word: the engine has halted there.
    #[error("the engine halted at descriptor {index}: {status}")]
    Descriptor {
        /// Its ring entry.
        index: u32,
        /// Its status word.
        status: SgStatus,
    },
    /// Bits that the hardware keeps at zero are set; all ones means that the device is gone.
    #[error("{word:#010x} is no descriptor status: the device is gone or something else wrote there")]
    NotAStatus {
        /// The word found.
        word: u32,
    },
    /// The current-descriptor register names no posted descriptor.
    #[error("the current-descriptor register holds {address}, which is no posted descriptor")]
    NotPosted {
        /// What the register holds.
        address: CardAddr,
    },
}
