//! Errors of copies inside the card.

use core::fmt;
use fpga_pci::Waited;

use fpga_pci::{InterruptError, MmioError};
use fpga_registers::cdma::Cdmasr;
use fpga_registers::{CardAddr, quantity};
use fpga_ring::cdma_ring;

use super::copy::MAX_DATA_BYTES;
use crate::error::{ChannelError, Refused, ResourceError, SubmitError};
use crate::name::CardName;
use crate::silence::AllOnesCause;

/// Error of a copy or of the engine's setup.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaError {
    /// A range ends beyond the address space.
    #[error(
        "{card} CDMA: a copy of {length} from {start} leaves the card's address space; give a shorter length",
        length = quantity(*length, "byte"),
    )]
    AddressRange {
        /// Name of the card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// A range ends behind the card's memory.
    #[error(
        "{card} CDMA: the range of {length} at {start} ends behind the card's memory; `fpgactl info` shows where it is",
        length = quantity(*length, "byte"),
    )]
    CardMemory {
        /// Name of the card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// Source and destination overlap. The engine reads ahead, so the result would be undefined.
    #[error(
        "{card} CDMA: source and destination overlap in a copy of {length} from {source_start} to {destination}; copy through another place",
        length = quantity(*length, "byte"),
    )]
    Overlap {
        /// Name of the card.
        card: CardName,
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// The engine halted with an error and was reset.
    #[error(
        "{card} CDMA: copy of {length} from {source_start} to {destination} failed after {done}: {status}{advice}; the engine was reset and can be used again",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
        advice = realignment_advice(*source_start, *destination, *status),
    )]
    Engine {
        /// Name of the card.
        card: CardName,
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
        "{card} CDMA: copy of {length} from {source_start} to {destination} was given up after {waited} and {done}; the engine was reset and can be used again: allow more time, or copy the rest",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
    )]
    TimedOut {
        /// Name of the card.
        card: CardName,
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
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination} was stopped after {done} bytes; copy the rest to complete it"
    )]
    Stopped {
        /// Name of the card.
        card: CardName,
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
    #[error(
        "{card} CDMA: {what} did not end within {waited} (status {status}); an AXI slave does not answer: reset the card"
    )]
    Stuck {
        /// Name of the card.
        card: CardName,
        /// Operation that did not end.
        what: &'static str,
        /// Timeout on the clock of the card.
        waited: Waited,
        /// Status register.
        status: Cdmasr,
    },
    /// The card is gone: the registers read as all ones, and so do those of the DMA BAR, or configuration space.
    #[error("{card} CDMA: the card is gone (registers read as all ones); reopen it when it is back")]
    Gone {
        /// Name of the card.
        card: CardName,
    },
    /// The engine's registers read as all ones, and the card answers otherwise.
    #[error("{card} CDMA: {cause}")]
    Silent {
        /// Name of the card.
        card: CardName,
        /// Cause.
        cause: AllOnesCause,
    },
    /// An address register does not hold the written value: the build has a narrower register. Nothing was copied.
    #[error(
        "{card} CDMA: the build's {register} register holds {held:#x} of {written:#x}: the copy needs a build with wider addresses"
    )]
    Narrow {
        /// Name of the card.
        card: CardName,
        /// Name of the register.
        register: &'static str,
        /// Value that the register holds.
        held: u32,
        /// Value that was written.
        written: u32,
    },
    /// The length register does not hold the low bits of the written value. The engine was reset.
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination} ended after {done} bytes: the length register reads {held:#x} after {written:#x} was written, and the next {written} bytes of the destination may have changed; check the offset of the engine's registers"
    )]
    LengthRegister {
        /// Name of the card.
        card: CardName,
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
    #[error(
        "{card} CDMA: built without scatter-gather, which rings of copies and the network interface need; load a bitstream with it"
    )]
    NoScatterGather {
        /// Name of the card.
        card: CardName,
    },
    /// The build has no data realignment, and the bytes that it cannot move could not go through host memory.
    #[error(
        "{card} CDMA: copy of {length} from {source_start} to {destination}: what a build without data realignment cannot move did not get through host memory, after {done}: {reason}",
        length = quantity(*length, "byte"),
        done = quantity(*done, "byte"),
    )]
    Bounce {
        /// Name of the card.
        card: CardName,
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
    #[error("{card} CDMA: {reason}")]
    BounceChannels {
        /// Name of the card.
        card: CardName,
        /// Reason, with what to do.
        reason: &'static str,
    },
    /// A register access failed.
    #[error("{card} CDMA: {source}")]
    Mmio {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: MmioError,
    },
}

/// Returns the cause of an internal error of the engine that its status does not state: unaligned addresses on a build without realignment.
fn realignment_advice(source: CardAddr, destination: CardAddr, status: Cdmasr) -> &'static str {
    let is_aligned = |address: CardAddr| address.is_aligned_to(MAX_DATA_BYTES.into());
    if !status.dma_internal_error() || (is_aligned(source) && is_aligned(destination)) {
        return "";
    }
    "; an engine that was built without data realignment (DRE) refuses addresses that are not multiples of its data width: align source and destination to it (128 bytes suit every build), or lend channels that carry the rest (Cdma::set_bounce_channels)"
}

/// Error of a ring: it could not be created, it failed as a whole, or a wait ended without its copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaRingError {
    /// Error of the engine.
    #[error(transparent)]
    Engine(#[from] CdmaError),
    /// The ring options are invalid.
    #[error("{card} CDMA ring: {source}")]
    Config {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: cdma_ring::ConfigError,
    },
    /// The interrupt threshold is 0, or it is above 1 without a delay, so that the last descriptors would never raise an interrupt.
    #[error(
        "{card} CDMA ring: an interrupt per {threshold} with delay {delay}: give 1 to 255 descriptors, and above 1 a delay, or the last ones of a batch would never interrupt",
        threshold = quantity(*threshold, "descriptor"),
    )]
    Coalescing {
        /// Name of the card.
        card: CardName,
        /// Requested descriptors per interrupt.
        threshold: u8,
        /// Requested delay.
        delay: u8,
    },
    /// The descriptors are not inside the window of the bypass BAR.
    #[error(
        "{card} CDMA ring: the {bytes} of descriptors at {base} do not lie inside the bypass BAR, which shows {window_bytes} from {window} on; move them, or lend an H2C channel",
        bytes = quantity(*bytes, "byte"),
        window_bytes = quantity(*window_bytes, "byte"),
    )]
    OutsideBypass {
        /// Name of the card.
        card: CardName,
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
    #[error("{card} CDMA ring: {reason}; lend an H2C channel to carry the descriptors")]
    NoBypass {
        /// Name of the card.
        card: CardName,
        /// Reason.
        reason: String,
    },
    /// The lent channel belongs to another card, or has transfers in flight.
    #[error("{card} CDMA ring: the lent channel {reason}")]
    Channel {
        /// Name of the card.
        card: CardName,
        /// Reason and remedy.
        reason: &'static str,
    },
    /// Memory for the host's copy of the descriptors could not be allocated.
    #[error(transparent)]
    Memory(#[from] ResourceError),
    /// The descriptors could not be queued on the lent channel.
    #[error("the descriptors could not be submitted to the card: {0}")]
    Submit(#[from] SubmitError),
    /// The lent channel failed. The copies whose descriptors it carried have ended.
    #[error("{card} CDMA ring: the descriptors did not reach the card: {reason}")]
    Upload {
        /// Name of the card.
        card: CardName,
        /// Error of the channel.
        reason: String,
    },
    /// A word written through the bypass BAR reads back differently.
    #[error(
        "{card} CDMA ring: the descriptor word at {address} reads as {found:#010x} after {written:#010x} was written through the bypass BAR; is there memory at this address?"
    )]
    Lost {
        /// Name of the card.
        card: CardName,
        /// Card address of the word.
        address: CardAddr,
        /// Written value.
        written: u32,
        /// Value read back.
        found: u32,
    },
    /// The wait's deadline has passed. The copy stays in flight: wait again, or abort.
    #[error(
        "{card} CDMA ring: not complete after {waited} (status {status}, {outstanding} outstanding); wait longer, or abort",
        outstanding = quantity(*outstanding, "descriptor"))]
    TimedOut {
        /// Name of the card.
        card: CardName,
        /// Time waited.
        waited: Waited,
        /// Status register.
        status: Cdmasr,
        /// Number of descriptors that the engine has not completed.
        outstanding: u32,
    },
    /// The ticket's completion was already taken, or the ticket belongs to another ring.
    #[error("{card} CDMA ring: this ticket's completion has been taken, or it is another ring's")]
    UnknownTicket {
        /// Name of the card.
        card: CardName,
    },
    /// The wait needs an interrupt, which is not available.
    #[error(
        "{card} CDMA ring: no interrupt; call Card::enable_interrupts first, name the user interrupt that the engine is wired to (CdmaRingOptions::user_interrupt) and drop the program's own handle of that line (Card::user_interrupt), or wait by polling"
    )]
    NoInterrupt {
        /// Name of the card.
        card: CardName,
    },
    /// Waiting for the interrupt failed.
    #[error("{card} CDMA ring: {source}")]
    Interrupt {
        /// Name of the card.
        card: CardName,
        /// Underlying error.
        source: InterruptError,
    },
}

impl CdmaRingError {
    pub(super) fn upload(card: CardName, source: &ChannelError) -> Self {
        Self::Upload { card, reason: source.to_string() }
    }
}

impl<T> Refused<T, CdmaSubmitError> {
    /// Returns whether this is back-pressure: the ring is full, and the same submission succeeds after a completion.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.error, CdmaSubmitError::Ring { source: cdma_ring::RefusalReason::Full { .. }, .. })
    }
}

/// Reason why a copy was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaSubmitError {
    /// The ring refused the copy.
    #[error("{card} CDMA ring: {source}")]
    Ring {
        /// Name of the card.
        card: CardName,
        /// Reason.
        source: cdma_ring::RefusalReason,
    },
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
    Progress(cdma_ring::ProgressFault),
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
}

/// Fault of a copy. Unless the cause says otherwise, the engine was reset and the ring can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdmaFault {
    /// Name of the card.
    pub card: CardName,
    /// Cause of the fault.
    pub cause: CdmaFaultCause,
    /// Position of the fault, if the engine was working on this copy.
    pub place: Option<CdmaFaultPosition>,
}

impl fmt::Display for CdmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CDMA ring: ", self.card)?;
        match &self.cause {
            CdmaFaultCause::Status(status) => {
                let advice = self
                    .place
                    .map_or("", |place| realignment_advice(place.source, place.destination, *status));
                write!(f, "the engine halted ({status}){advice}")?;
            }
            CdmaFaultCause::Progress(fault) => write!(f, "{fault}")?,
            CdmaFaultCause::NoError(status) => {
                write!(f, "the engine stopped before its tail without an error bit ({status})")?;
            }
            CdmaFaultCause::Upload => write!(f, "the descriptors did not reach the card")?,
            CdmaFaultCause::EarlierFault => write!(f, "not executed: a copy before it failed")?,
            CdmaFaultCause::Aborted => write!(f, "aborted")?,
            CdmaFaultCause::Unstoppable => write!(f, "the engine does not stop")?,
        }
        if let Some(place) = self.place {
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
        let advice = match self.cause {
            CdmaFaultCause::Status(_) => {
                "check both addresses against the card's address map; the ring can be used again"
            }
            CdmaFaultCause::Progress(_) | CdmaFaultCause::NoError(_) => {
                "what was not reported complete does not count as done; the ring can be used again"
            }
            CdmaFaultCause::Upload | CdmaFaultCause::EarlierFault | CdmaFaultCause::Aborted => {
                "submit it again"
            }
            CdmaFaultCause::Unstoppable => "leave its destination alone until the card has been reset",
        };
        write!(f, "; {advice}")
    }
}

impl std::error::Error for CdmaFault {}
