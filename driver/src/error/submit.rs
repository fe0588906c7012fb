//! Reasons why a transfer was refused.

use core::fmt;

use fpga_pci::DmaAccess;
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, Iova, quantity};
use fpga_ring::RefusalReason;

use super::cause::Cause;
use super::channel::ChannelError;
use super::located::{Error, ErrorKind, ErrorPlace, widen};
use crate::advice::Advice;

/// Reason why a transfer was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Back-pressure: the ring is full.
    #[error("the descriptor ring is full: {needed} needed, {free} free", needed = quantity(*needed, "entry"))]
    Full {
        /// Descriptors, or slots of transfers, that the transfer needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The ring refused the transfer, and will do so again: it has no bytes, needs too many descriptors, or leaves the address space.
    #[error(transparent)]
    Cause(Cause),
    /// The buffer belongs to another card.
    #[error("the buffer belongs to another card, which this one cannot reach")]
    ForeignBuffer,
    /// The memory's DMA mapping does not permit the access that the channel needs.
    #[error("the memory is mapped for the device as {access:?}, and this channel needs {needed:?}")]
    NoAccess {
        /// Access that the channel needs.
        needed: DmaAccess,
        /// Access that the mapping permits.
        access: DmaAccess,
    },
    /// The range is not inside the card's memory.
    #[error(
        "the range of {length} at card address {start} is not inside the card's memory, {memory_start} to {memory_last}",
        length = quantity(*length, "byte"),
    )]
    CardMemory {
        /// First card address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// First address of the card's memory.
        memory_start: CardAddr,
        /// Last address of the card's memory.
        memory_last: CardAddr,
    },
    /// The handle does not name memory registered with this channel.
    #[error("no such memory is registered with this channel")]
    NotRegistered,
    /// The range is not inside the registered memory.
    #[error(
        "the range of {length} from offset {offset} is not inside the registered {size}",
        length = quantity(*length, "byte"),
        size = quantity(*size, "byte"),
    )]
    MemoryRange {
        /// Offset of the first requested byte.
        offset: usize,
        /// Requested length in bytes.
        length: usize,
        /// Size of the memory in bytes.
        size: usize,
    },
    /// Two entries of a scatter-gather list overlap at their destination.
    #[error(
        "entries of the list overlap at their destination: the one of {length} at {second:#x} begins inside the one at {first:#x}",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// Start of the earlier entry: a card address for H2C, a device address (IOVA) for C2H.
        first: u64,
        /// Start of the later entry.
        second: u64,
        /// Length of the later entry in bytes.
        length: u64,
    },
    /// Addresses or length of a fixed-address transfer are not whole beats of the data path.
    #[error(
        "a transfer of {length} between {host} and fixed card address {start} is not a whole number of beats of {width}, the data path's width",
        length = quantity(*length, "byte"),
        width = quantity(*width, "byte"),
    )]
    Misaligned {
        /// Host address.
        host: Iova,
        /// Card address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
        /// Size of a beat in bytes.
        width: u64,
    },
    /// The channel moves data in the other direction.
    #[error("channel of direction {found}: this transfer needs one of direction {needed}")]
    Direction {
        /// Direction of the channel.
        found: Direction,
        /// Direction of the transfer.
        needed: Direction,
    },
    /// The channel has failed and cannot be used.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

impl SubmitError {
    /// Refusal of the ring.
    pub(crate) fn of(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Full { needed, free } => Self::Full { needed, free },
            reason => Self::Cause(reason.into()),
        }
    }

    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

impl ErrorKind for SubmitError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::ForeignBuffer => Advice::TakeBufferFromCard,
            Self::NoAccess { needed, .. } => Advice::MapWithAccess(*needed),
            Self::CardMemory { .. } => Advice::SeeCardInfo,
            Self::NotRegistered => Advice::RegisterMemory,
            Self::MemoryRange { .. } => Advice::text("choose a range inside it"),
            Self::Overlap { .. } => Advice::text("give each byte of the destination one source"),
            Self::Misaligned { .. } => {
                Advice::text("make addresses and length multiples of the width of the data path")
            }
            Self::Channel(error) => return error.advice(),
            Self::Full { .. } => Advice::TakeCompletions,
            Self::Direction { .. } => Advice::text("take a channel of the other direction"),
            Self::Cause(cause) => return cause.advice(),
        })
    }
}

impl Error<SubmitError> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.kind.is_full()
    }
}

widen! {
    ChannelError => SubmitError,
}

/// Refused call. It returns the value that it took.
#[derive(Debug)]
pub struct Refused<T, E = Error<SubmitError>> {
    /// Reason of the refusal.
    pub error: E,
    /// Value that the call took, unchanged: buffer, memory or channels.
    pub payload: T,
}

impl<T, E: fmt::Display> fmt::Display for Refused<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug, E: fmt::Debug + fmt::Display> std::error::Error for Refused<T, E> {}

impl<T, K> Refused<T, K> {
    /// Adds the place to the reason.
    pub(crate) fn at(self, place: impl FnOnce() -> ErrorPlace) -> Refused<T, Error<K>> {
        Refused { error: Error::new(self.error, place()), payload: self.payload }
    }
}

impl<T> Refused<T> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.error.is_full()
    }
}
