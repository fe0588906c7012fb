//! Errors of copies inside the card.

use core::fmt;
use fpga_pci::Waited;

use fpga_registers::cdma::Cdmasr;
use fpga_registers::{CardAddr, quantity};
use fpga_ring::cdma_ring;

use super::MAX_DATA_BYTES;
use crate::advice::Advice;
use crate::error::{Cause, ChannelError, Error, ErrorKind, Refused, ResourceError, SubmitError, widen};
use crate::fault::ChannelFault;
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
        "source and destination overlap in a copy of {length} from {source_start} to {destination}",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// The engine halted with an error and was reset.
    #[error(
        "copy of {length} from {source_start} to {destination} failed after {done}: {status}; the engine was reset and can be used again",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
    )]
    Engine {
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Length of the whole copy in bytes.
        length: u64,
        /// Bytes that were certainly copied.
        done: u64,
        /// Status register.
        status: Cdmasr,
    },
    /// The caller's timeout has passed. The engine was reset.
    #[error(
        "copy of {length} from {source_start} to {destination} was given up after {waited} and {done}; the engine was reset and can be used again",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
    )]
    TimedOut {
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Length of the whole copy in bytes.
        length: u64,
        /// Bytes that were certainly copied.
        done: u64,
        /// Time waited, on the clock of the card.
        waited: Waited,
    },
    /// The caller stopped the copy between two chunks. The engine is idle.
    #[error("copy of {length} bytes from {source_start} to {destination} was stopped after {done} bytes")]
    Stopped {
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Length of the whole copy in bytes.
        length: u64,
        /// Bytes that were copied.
        done: u64,
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
    /// The length register does not hold the low bits of the written value. The engine was reset.
    #[error(
        "copy of {length} bytes from {source_start} to {destination} ended after {done} bytes: the length register reads {held:#x} after {written:#x}. The next {written} bytes of the destination may have changed"
    )]
    LengthRegister {
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Length of the whole copy in bytes.
        length: u64,
        /// Bytes that were certainly copied.
        done: u64,
        /// Value that the register holds.
        held: u32,
        /// Value that was written.
        written: u32,
    },
    /// The build has no scatter-gather engine.
    #[error("built without scatter-gather, which rings of copies and the network interface need")]
    NoScatterGather,
    /// The build has no data realignment, and the bytes that it cannot move could not go through host memory.
    #[error(
        "copy of {length} from {source_start} to {destination}: what a build without data realignment cannot move did not get through host memory, after {done}: {reason}",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
    )]
    Bounce {
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Length of the whole copy in bytes.
        length: u64,
        /// Bytes that were certainly copied.
        done: u64,
        /// Error of the lent channel or of the memory pool.
        reason: String,
    },
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
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] CdmaError),
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
    /// The descriptors could not be queued on the lent channel.
    #[error("the descriptors could not be submitted to the card: {0}")]
    Submit(Error<SubmitError>),
    /// The lent channel failed. The copies whose descriptors it carried have ended.
    #[error("the descriptors did not reach the card: {0}")]
    Upload(Error<ChannelError>),
    /// The transfer of the descriptors on the lent channel failed.
    #[error("the descriptors did not reach the card: {0}")]
    UploadFault(Error<ChannelFault>),
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
    /// The ring options are invalid, or waiting for the interrupt failed.
    #[error(transparent)]
    Cause(Cause),
}

crate::error::with_cause!(CdmaError, CdmaRingError);

impl ErrorKind for CdmaRingError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::Engine(error) => return error.advice(),
            Self::Memory(error) => return error.advice(),
            Self::Submit(error) => return error.advice(),
            Self::Upload(error) => return error.advice(),
            Self::UploadFault(error) => return error.advice(),
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
        matches!(self, Self::Submit(_))
    }
}

impl ErrorKind for CdmaSubmitError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::Range(error) | Self::Bounce(error) => error.advice(),
            Self::EarlierFailed(error) | Self::Failed(error) => error.advice(),
            Self::Full { .. } => Some(Advice::TakeCompletions),
            Self::Cause(cause) => cause.advice(),
        }
    }
}

widen! { CdmaRingError => CdmaSubmitError, CdmaError => CdmaRingError }

impl ErrorKind for CdmaError {
    fn advice(&self) -> Option<Advice> {
        Some(match self {
            Self::AddressRange { .. } => Advice::ShortenCopy,
            Self::CardMemory { .. } => Advice::SeeCardInfo,
            Self::Overlap { .. } => Advice::text("copy through another range"),
            Self::Engine { source_start, destination, status, .. } => {
                return realignment_advice(*source_start, *destination, *status);
            }
            Self::TimedOut { .. } | Self::Stopped { .. } => Advice::CopyRest,
            Self::Stuck { .. } => Advice::ResetHungEngine,
            Self::Gone => Advice::ReopenCard,
            Self::Silent(cause) => cause.advice(),
            Self::Narrow { .. } => Advice::text("load a build with wider addresses"),
            Self::LengthRegister { .. } => Advice::text("check the offset of the engine's registers"),
            Self::NoScatterGather => Advice::text("load a bitstream whose CDMA has scatter-gather"),
            Self::Cause(cause) => return cause.advice(),
            Self::Bounce { .. } | Self::BounceChannels { .. } => return None,
        })
    }
}

impl<T> Refused<T, Error<CdmaSubmitError>> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.error.kind, CdmaSubmitError::Full { .. })
    }
}

/// Reason why a copy was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaSubmitError {
    /// Back-pressure: the ring is full.
    #[error("the CDMA ring is full: {needed} needed, {free} free", needed = quantity(*needed, "descriptor"))]
    Full {
        /// Descriptors, or slots of copies, that the copy needs.
        needed: u32,
        /// Number of free ones.
        free: u32,
    },
    /// The ring refused the copy, and will do so again: it has no bytes, needs too many descriptors, or has a range that the engine cannot
    /// use.
    #[error(transparent)]
    Cause(Cause),
    /// The range is not inside the memory that the card can reach.
    #[error(transparent)]
    Range(CdmaError),
    /// The copy needs host memory, and the transfer through it failed. Part of the copy may have been done.
    #[error(transparent)]
    Bounce(CdmaError),
    /// The copy needs host memory, which requires that earlier copies end first, and waiting for them failed.
    #[error("what was submitted before has to end first: {0}")]
    EarlierFailed(CdmaRingError),
    /// The ring has failed and cannot be used.
    #[error(transparent)]
    Failed(#[from] CdmaRingError),
}

impl CdmaSubmitError {
    /// Refusal of the ring.
    pub(super) fn of(reason: cdma_ring::CdmaRefusalReason) -> Self {
        match reason {
            cdma_ring::CdmaRefusalReason::Full { needed, free } => Self::Full { needed, free },
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

/// Reason why the engine or the driver ended a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CdmaFaultCause {
    /// The status register has error bits set.
    Status(Cdmasr),
    /// A status word or a descriptor pointer has an impossible value.
    Progress(Cause),
    /// The engine became idle before the end of the ring and shows no error bit.
    NoError(Cdmasr),
    /// The descriptors did not reach the card.
    Upload,
    /// An earlier copy failed; this one was not executed.
    EarlierFault,
    /// The ring was aborted. The copy may have been executed in part.
    Aborted,
    /// The engine could not be stopped: it may still write to the destination.
    Unstoppable,
    /// The card is gone.
    Gone,
}

/// Fault of a copy. Unless the cause says otherwise, the engine was reset and the ring can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdmaFault {
    /// Cause of the fault.
    pub cause: CdmaFaultCause,
    /// Position of the fault, if the engine was working on this copy.
    pub position: Option<CdmaFaultPosition>,
}

impl fmt::Display for CdmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            CdmaFaultCause::Status(status) => write!(f, "the engine halted ({status})")?,
            CdmaFaultCause::Progress(fault) => write!(f, "{fault}")?,
            CdmaFaultCause::NoError(status) => {
                write!(f, "the engine stopped before its tail without an error bit ({status})")?;
            }
            CdmaFaultCause::Upload => write!(f, "the descriptors did not reach the card")?,
            CdmaFaultCause::EarlierFault => write!(f, "not executed: a copy before it failed")?,
            CdmaFaultCause::Aborted => write!(f, "aborted")?,
            CdmaFaultCause::Unstoppable => write!(f, "the engine does not stop")?,
            CdmaFaultCause::Gone => write!(f, "ended without a result: the card is gone")?,
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
            CdmaFaultCause::Status(status) => self
                .position
                .and_then(|at| realignment_advice(at.source, at.destination, status))
                .unwrap_or(addresses),
            CdmaFaultCause::Progress(_) | CdmaFaultCause::NoError(_) => {
                Advice::text("take what was not reported complete as not done; the ring can be used again")
            }
            CdmaFaultCause::Upload | CdmaFaultCause::EarlierFault | CdmaFaultCause::Aborted => {
                Advice::Resubmit
            }
            CdmaFaultCause::Gone => Advice::ReopenCard,
            CdmaFaultCause::Unstoppable => {
                Advice::text("do not use its destination before the card has been reset")
            }
        })
    }
}

impl From<Error<SubmitError>> for CdmaRingError {
    fn from(error: Error<SubmitError>) -> Self {
        Self::Submit(error)
    }
}
