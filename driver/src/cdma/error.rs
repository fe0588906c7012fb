//! Errors of copies inside the card.

use core::fmt;
use fpga_pci::Waited;

use fpga_registers::cdma::Cdmasr;
use fpga_registers::{CardAddr, quantity};
use fpga_ring::RefusalReason;
use fpga_ring::cdma_ring::CopyEntry;

use super::MAX_DATA_BYTES;
use crate::advice::Advice;
use crate::error::{Cause, Error, ErrorKind, Refused, ResourceError, TransferError, widen};
use crate::fault::FaultCause;
use crate::silence::AllOnesCause;

/// Error of a copy or of the engine's setup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaError {
    /// A range ends beyond the address space.
    #[error(
        "a copy of {length} from {start} leaves the card's address space",
        length = quantity(*length, "byte"),
    )]
    AddressRange {
        /// First address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// A range ends behind the card's memory.
    #[error(
        "the range of {length} at {start} ends behind the card's memory",
        length = quantity(*length, "byte"),
    )]
    CardMemory {
        /// First address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// Source and destination overlap. The engine reads ahead, so the result would be undefined.
    #[error(
        "source and destination overlap in a copy of {} from {} to {}",
        quantity(segment.length, "byte"), segment.source, segment.destination
    )]
    Overlap {
        /// The copy.
        segment: CopyEntry,
    },
    /// The copy ended before its end.
    #[error(
        "copy of {length} from {source_start} to {destination} ended after {done}: {cause}",
        length = quantity(segment.length, "byte"),
        source_start = segment.source,
        destination = segment.destination,
        done = quantity(*done, "byte"),
    )]
    Copy {
        /// The whole copy.
        segment: CopyEntry,
        /// Number of bytes that were certainly copied.
        done: u64,
        /// Cause.
        cause: CopyFault,
    },
    /// The engine does not become idle, or its reset does not end.
    #[error("{what} did not end within {waited} (status {status}); an AXI slave does not answer")]
    Stuck {
        /// Operation that did not end.
        what: &'static str,
        /// Timeout on the clock of the card.
        waited: Waited,
        /// Status register.
        status: Cdmasr,
    },
    /// The card is gone: the registers read as all ones, and so do those of the DMA BAR, or configuration space.
    #[error("the card is gone (registers read as all ones)")]
    Gone,
    /// The engine's registers read as all ones, and the card answers otherwise.
    #[error(transparent)]
    Silent(AllOnesCause),
    /// An address register does not hold the written value: the build has a narrower register. Nothing was copied.
    #[error("the build's {register} register holds {held:#x} of {written:#x}: its addresses are too narrow")]
    Narrow {
        /// Name of the register.
        register: &'static str,
        /// Value that the register holds.
        held: u32,
        /// Value that was written.
        written: u32,
    },
    /// The build has no scatter-gather engine.
    #[error("built without scatter-gather, which rings of copies and the network interface need")]
    NoScatterGather,
    /// The channels cannot carry the bytes that a build without data realignment cannot move.
    #[error("{reason}")]
    BounceChannels {
        /// Reason, with what to do.
        reason: &'static str,
    },
    /// A register access failed.
    #[error(transparent)]
    Cause(Cause),
}

/// Cause of a copy's early end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyFault {
    /// The engine halted with this status and was reset.
    #[error("the engine halted ({0}) and was reset; it can be used again")]
    Status(Cdmasr),
    /// The caller's timeout has passed. The engine was reset.
    #[error("the limit has passed after {waited}; the engine was reset and can be used again")]
    TimedOut {
        /// Time waited, on the clock of the card.
        waited: Waited,
    },
    /// The caller stopped the copy between two chunks. The engine is idle.
    #[error("stopped by the caller")]
    Stopped,
    /// The length register does not hold the low bits of the written value. The engine was reset.
    #[error(
        "the length register reads {held:#x} after {written:#x}; the next {written} bytes of the destination may have changed"
    )]
    LengthRegister {
        /// Value that the register holds.
        held: u32,
        /// Value that was written.
        written: u32,
    },
    /// The build has no data realignment, and the bytes that it cannot move could not go through host memory. Contains the error of the
    /// lent channel or of the memory pool.
    #[error("bytes that a build without data realignment cannot move did not get through host memory: {0}")]
    Bounce(String),
}

/// Returns the advice for an internal error of the engine: an engine that was built without data realignment (DRE) refuses addresses that are
/// not multiples of its data width, and its status does not say so.
fn realignment_advice(source: CardAddr, destination: CardAddr, status: Cdmasr) -> Option<Advice> {
    let is_aligned = |address: CardAddr| address.is_aligned_to(MAX_DATA_BYTES.into());
    if !status.dma_internal_error() || (is_aligned(source) && is_aligned(destination)) {
        return None;
    }
    Some(Advice::AlignOrLendChannels)
}

/// Error of a ring: it could not be created, it failed as a whole, or a wait ended without its copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaRingError {
    /// Error of the engine; of a submission also a range that the card cannot reach, or a transfer through host memory that failed, so that
    /// part of the copy may have been done.
    #[error(transparent)]
    Engine(#[from] CdmaError),
    /// Back-pressure: the ring is full.
    #[error("the CDMA ring is full: {needed} needed, {free} free", needed = quantity(*needed, "descriptor"))]
    Full {
        /// Descriptors, or slots of copies, that the copy needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The copy needs host memory, which requires that earlier copies end first, and waiting for them failed.
    #[error("what was submitted before has to end first: {0}")]
    Earlier(Box<Self>),
    /// The interrupt threshold is 0, or it is above 1 without a delay, so that the last descriptors would never raise an interrupt.
    #[error(
        "an interrupt per {threshold} with delay {delay}: the last descriptors of a batch would never interrupt",
        threshold = quantity(*threshold, "descriptor"),
    )]
    Coalescing {
        /// Requested descriptors per interrupt.
        threshold: u8,
        /// Requested delay.
        delay: u8,
    },
    /// The descriptors are not inside the window of the bypass BAR.
    #[error(
        "the {bytes} of descriptors at {base} do not lie inside the bypass BAR, which shows {window_bytes} from {window} on",
        bytes = quantity(*bytes, "byte"),
        window_bytes = quantity(*window_bytes, "byte"),
    )]
    OutsideBypass {
        /// Card address of the first descriptor.
        base: CardAddr,
        /// Size of the descriptors in bytes.
        bytes: u64,
        /// Card address of the BAR's first byte.
        window: CardAddr,
        /// Size of the BAR in bytes.
        window_bytes: u64,
    },
    /// The bypass BAR cannot be used.
    #[error("{reason}")]
    NoBypass {
        /// Reason.
        reason: String,
    },
    /// The lent channel belongs to another card, or has transfers in flight.
    #[error("the lent channel {reason}")]
    Channel {
        /// Reason and remedy.
        reason: &'static str,
    },
    /// Memory for the host's copy of the descriptors could not be allocated.
    #[error(transparent)]
    Memory(#[from] ResourceError),
    /// The lent channel refused the descriptors, or failed. The copies whose descriptors it carried have ended.
    #[error("the descriptors did not reach the card: {0}")]
    Upload(Error<TransferError>),
    /// A word written through the bypass BAR reads back differently.
    #[error(
        "the descriptor word at {address} reads as {found:#010x} after {written:#010x} was written through the bypass BAR"
    )]
    Lost {
        /// Card address of the word.
        address: CardAddr,
        /// Written value.
        written: u32,
        /// Value read back.
        found: u32,
    },
    /// The wait's deadline has passed. The copy stays in flight: wait again, or abort.
    #[error(
        "not complete after {waited} (status {status}, {outstanding} outstanding)",
        outstanding = quantity(*outstanding, "descriptor"))]
    TimedOut {
        /// Time waited.
        waited: Waited,
        /// Status register.
        status: Cdmasr,
        /// Number of descriptors that the engine has not completed.
        outstanding: u32,
    },
    /// The wait was cancelled ([`WaitOptions::cancel`](crate::WaitOptions::cancel)). The copy stays in flight: wait again, or abort.
    #[error("the wait was cancelled after {waited}")]
    Cancelled {
        /// Time waited.
        waited: Waited,
    },
    /// The ticket's completion was already taken, or the ticket belongs to another ring.
    #[error("this ticket's completion has been taken, or it is another ring's")]
    UnknownTicket,
    /// The wait needs an interrupt, which is not available.
    #[error("no interrupt is available")]
    NoInterrupt,
    /// The ring options are invalid, waiting for the interrupt failed, or the ring refused the copy and will do so again: it has no bytes,
    /// needs too many descriptors, or has a range that the engine cannot use.
    #[error(transparent)]
    Cause(Cause),
}

crate::error::with_cause!(CdmaError, CdmaRingError);

impl ErrorKind for CdmaRingError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Engine(error) => return error.advice(),
            Self::Memory(error) => return error.advice(),
            Self::Upload(error) => return error.advice(),
            Self::Earlier(error) => return error.advice(),
            Self::Full { .. } => Advice::TakeCompletions,
            Self::Coalescing { .. } => {
                Advice::text("set 1 to 255 descriptors per interrupt, and above 1 a delay")
            }
            Self::OutsideBypass { .. } | Self::NoBypass { .. } => Advice::LendChannel,
            Self::Lost { .. } => Advice::text("check that there is memory at this address"),
            Self::TimedOut { .. } => Advice::WaitLongerOrAbort,
            Self::Cancelled { .. } => Advice::WaitAgainOrAbort,
            Self::NoInterrupt => Advice::StateRingInterrupt,
            Self::Cause(cause) => return cause.advice(),
            Self::Channel { .. } | Self::UnknownTicket => return None,
        })
    }

    fn names_place(&self) -> bool {
        matches!(self, Self::Upload(_))
    }
}

widen! { CdmaError => CdmaRingError }

impl ErrorKind for CdmaError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::AddressRange { .. } => Advice::ShortenCopy,
            Self::CardMemory { .. } => Advice::SeeCardInfo,
            Self::Overlap { .. } => Advice::text("copy through another range"),
            Self::Copy { segment, cause, .. } => match cause {
                CopyFault::Status(status) => {
                    return realignment_advice(segment.source, segment.destination, *status);
                }
                CopyFault::TimedOut { .. } | CopyFault::Stopped => Advice::CopyRest,
                CopyFault::LengthRegister { .. } => {
                    Advice::text("check the offset of the engine's registers")
                }
                CopyFault::Bounce(_) => return None,
            },
            Self::Stuck { .. } => Advice::ResetHungEngine,
            Self::Gone => Advice::ReopenCard,
            Self::Silent(cause) => cause.advice(),
            Self::Narrow { .. } => Advice::text("load a build with wider addresses"),
            Self::NoScatterGather => Advice::text("load a bitstream whose CDMA has scatter-gather"),
            Self::Cause(cause) => return cause.advice(),
            Self::BounceChannels { .. } => return None,
        })
    }
}

impl<T> Refused<T, Error<CdmaRingError>> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.error.kind, CdmaRingError::Full { .. })
    }
}

impl CdmaRingError {
    /// Refusal of the ring.
    pub(super) fn of(reason: RefusalReason) -> Self {
        match reason {
            RefusalReason::Full { needed, free } => Self::Full { needed, free },
            reason => Self::Cause(reason.into()),
        }
    }
}

/// Position at which the engine halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CdmaFaultPosition {
    /// Index of the descriptor in the ring.
    pub descriptor: u32,
    /// Source address of the descriptor.
    pub source: CardAddr,
    /// Destination address of the descriptor.
    pub destination: CardAddr,
    /// Length of the descriptor in bytes.
    pub length: u32,
    /// Bytes of the copy that earlier descriptors have moved.
    pub bytes_done: u64,
}

/// Fault of a copy. Unless the cause says otherwise, the engine was reset and the ring can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdmaFault {
    /// Cause of the fault.
    pub cause: FaultCause<Cdmasr>,
    /// Position of the fault, if the engine was working on this copy.
    pub position: Option<CdmaFaultPosition>,
}

impl fmt::Display for CdmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            FaultCause::Status(status) => write!(f, "the engine halted ({status})")?,
            FaultCause::NoError(status) => {
                write!(f, "the engine stopped before its tail without an error bit ({status})")?;
            }
            FaultCause::EarlierFault => write!(f, "not executed: a copy before it failed")?,
            cause => cause.describe(f)?,
        }
        if let Some(place) = self.position {
            write!(
                f,
                " at descriptor {} ({} from {} to {}, after {} of the copy)",
                place.descriptor,
                quantity(place.length, "byte"),
                place.source,
                place.destination,
                quantity(place.bytes_done, "byte")
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for CdmaFault {}

impl ErrorKind for CdmaFault {
    fn advice(&self) -> Option<Advice> {
        let addresses =
            Advice::text("check both addresses against the card's address map; the ring can be used again");
        Some(match self.cause {
            FaultCause::Status(status) => self
                .position
                .and_then(|at| realignment_advice(at.source, at.destination, status))
                .unwrap_or(addresses),
            FaultCause::Count(_) | FaultCause::NoError(_) => {
                Advice::text("take what was not reported complete as not done; the ring can be used again")
            }
            FaultCause::Upload | FaultCause::EarlierFault | FaultCause::Aborted => Advice::Resubmit,
            FaultCause::Gone => Advice::ReopenCard,
            FaultCause::Reset => Advice::DropCard,
            FaultCause::Wedged => Advice::text("do not use its destination before the card has been reset"),
        })
    }
}

impl<K: Into<TransferError>> From<Error<K>> for CdmaRingError {
    fn from(error: Error<K>) -> Self {
        Self::Upload(error.map(Into::into))
    }
}
