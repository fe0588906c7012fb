//! What can go wrong with copies inside the card.

use core::fmt;

use fpga_pci::{InterruptError, MmioError};
use fpga_registers::CardAddr;
use fpga_registers::cdma::Cdmasr;
use fpga_ring::cdma_ring;

use super::{Cdma, DescriptorPath};
use crate::channel::{C2hChannel, H2cChannel};
use crate::error::{ChannelError, ResourceError, SubmitError};
use crate::name::CardName;

/// A copy or the engine's set-up failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaError {
    /// A range ends beyond the address space.
    #[error("{card} CDMA: {length} bytes from {start} leave the card's address space; give a shorter length")]
    AddressRange {
        /// Which card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// A range ends behind the card's memory.
    #[error(
        "{card} CDMA: {length} bytes at {start} end behind the card's memory; `fpgactl info` shows where it is"
    )]
    CardMemory {
        /// Which card.
        card: CardName,
        /// First address.
        start: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// Source and destination overlap: the engine reads ahead, so the result would be undefined.
    #[error(
        "{card} CDMA: {length} bytes from {source_start} to {destination} overlap; copy through another place"
    )]
    Overlap {
        /// Which card.
        card: CardName,
        /// First source address.
        source_start: CardAddr,
        /// First destination address.
        destination: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// The engine halted with an error and was reset.
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination} failed after {done} bytes: {status}; the engine was reset and can be used again"
    )]
    Engine {
        /// Which card.
        card: CardName,
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Bytes of the whole copy.
        length: u64,
        /// Bytes that were copied for certain.
        done: u64,
        /// The status register.
        status: Cdmasr,
    },
    /// The caller's time is over. The engine was reset.
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination} was given up after {waited_ms} ms and {done} bytes; the engine was reset and can be used again: allow more time, or copy the rest"
    )]
    TimedOut {
        /// Which card.
        card: CardName,
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Bytes of the whole copy.
        length: u64,
        /// Bytes that were copied for certain.
        done: u64,
        /// How long it took, in milliseconds.
        waited_ms: u64,
    },
    /// The engine does not become idle, or its reset does not end.
    #[error(
        "{card} CDMA: {what} did not end within {waited_ms} ms (status {status}); an AXI slave does not answer: reset the card"
    )]
    Stuck {
        /// Which card.
        card: CardName,
        /// What.
        what: &'static str,
        /// How long it was given, in milliseconds.
        waited_ms: u64,
        /// The status register.
        status: Cdmasr,
    },
    /// Every register reads as all ones.
    #[error("{card} CDMA: the card is gone (registers read as all ones); reopen it when it is back")]
    Gone {
        /// Which card.
        card: CardName,
    },
    /// An address or length register does not hold what was written: the build is narrower.
    #[error(
        "{card} CDMA: the build's {register} register holds {held:#x} of {written:#x}: the copy needs a build with wider addresses or lengths"
    )]
    Narrow {
        /// Which card.
        card: CardName,
        /// Which register.
        register: &'static str,
        /// What it holds.
        held: u32,
        /// What was written.
        written: u32,
    },
    /// The build has no scatter-gather engine.
    #[error(
        "{card} CDMA: built without scatter-gather, which rings of copies and the network interface need; load a bitstream with it"
    )]
    NoScatterGather {
        /// Which card.
        card: CardName,
    },
    /// The build has no data realignment, and what it cannot move did not get through host memory.
    #[error(
        "{card} CDMA: copy of {length} bytes from {source_start} to {destination}: what a build without data realignment cannot move did not get through host memory, after {done} bytes: {reason}"
    )]
    Bounce {
        /// Which card.
        card: CardName,
        /// First source address of the whole copy.
        source_start: CardAddr,
        /// First destination address of the whole copy.
        destination: CardAddr,
        /// Bytes of the whole copy.
        length: u64,
        /// Bytes that were copied for certain.
        done: u64,
        /// What the lent channel, or the memory pool, said.
        reason: String,
    },
    /// A register access failed.
    #[error("{card} CDMA: {source}")]
    Mmio {
        /// Which card.
        card: CardName,
        /// What failed.
        source: MmioError,
    },
}

/// A ring as a whole cannot go on, could not be made, or a wait ended without its copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaRingError {
    /// The engine.
    #[error(transparent)]
    Engine(#[from] CdmaError),
    /// A ring cannot have this shape.
    #[error("{card} CDMA ring: {source}")]
    Config {
        /// Which card.
        card: CardName,
        /// What is wrong.
        source: cdma_ring::ConfigError,
    },
    /// A completion interrupt per several descriptors, and nothing for those that are left over.
    #[error(
        "{card} CDMA ring: an interrupt per {threshold} descriptors with delay {delay}: give 1 to 255 descriptors, and above 1 a delay, or the last ones of a batch would never interrupt"
    )]
    Coalescing {
        /// Which card.
        card: CardName,
        /// Descriptors per interrupt asked for.
        threshold: u8,
        /// Delay asked for.
        delay: u8,
    },
    /// The descriptors do not lie in what the bypass BAR shows.
    #[error(
        "{card} CDMA ring: {bytes} bytes of descriptors at {base} are not inside the bypass BAR, which shows {window_bytes} bytes from {window} on; move them, or lend an H2C channel"
    )]
    OutsideBypass {
        /// Which card.
        card: CardName,
        /// First descriptor.
        base: CardAddr,
        /// Bytes of descriptors.
        bytes: u64,
        /// Card address of the BAR's first byte.
        window: CardAddr,
        /// Size of the BAR.
        window_bytes: u64,
    },
    /// The bypass BAR cannot be used.
    #[error("{card} CDMA ring: {reason}; lend an H2C channel to carry the descriptors")]
    NoBypass {
        /// Which card.
        card: CardName,
        /// Why.
        reason: String,
    },
    /// The lent channel is another card's, or has transfers in flight.
    #[error("{card} CDMA ring: the lent channel {reason}")]
    Channel {
        /// Which card.
        card: CardName,
        /// What is wrong, and what to do.
        reason: &'static str,
    },
    /// The host's copy of the descriptors could not be had.
    #[error(transparent)]
    Memory(#[from] ResourceError),
    /// The descriptors could not be queued on the lent channel.
    #[error("the descriptors' way to the card: {0}")]
    Submit(#[from] SubmitError),
    /// The lent channel failed; what was to be copied has ended with that.
    #[error("{card} CDMA ring: the descriptors did not reach the card: {reason}")]
    Upload {
        /// Which card.
        card: CardName,
        /// What the channel said.
        reason: String,
    },
    /// What was written through the bypass BAR does not read back.
    #[error(
        "{card} CDMA ring: the descriptor word at {address} reads as {found:#010x} after {written:#010x} was written through the bypass BAR; is there memory at this address?"
    )]
    Lost {
        /// Which card.
        card: CardName,
        /// Its card address.
        address: CardAddr,
        /// What was written.
        written: u32,
        /// What it reads as.
        found: u32,
    },
    /// The wait's deadline has passed. The copy goes on: wait again, or abort.
    #[error(
        "{card} CDMA ring: not complete after {} (status {status}, {outstanding} descriptors outstanding); wait longer, or abort",
        crate::error::waited(*waited_us)
    )]
    TimedOut {
        /// Which card.
        card: CardName,
        /// How long was waited, in microseconds.
        waited_us: u64,
        /// The status register.
        status: Cdmasr,
        /// Descriptors that the engine has not completed.
        outstanding: u32,
    },
    /// The ticket's completion was handed out before, or it belongs to another ring.
    #[error("{card} CDMA ring: this ticket's completion has been taken, or it is another ring's")]
    UnknownTicket {
        /// Which card.
        card: CardName,
    },
    /// Interrupts were asked for but are not there.
    #[error(
        "{card} CDMA ring: no interrupt; call Card::enable_interrupts first, name the user interrupt that the engine is wired to (CdmaRingOptions::user_interrupt) and drop the program's own handle of that line (Card::user_interrupt), or wait by polling"
    )]
    NoInterrupt {
        /// Which card.
        card: CardName,
    },
    /// Waiting for the interrupt failed.
    #[error("{card} CDMA ring: {source}")]
    Interrupt {
        /// Which card.
        card: CardName,
        /// What failed.
        source: InterruptError,
    },
}

impl CdmaRingError {
    pub(super) fn upload(card: CardName, source: &ChannelError) -> Self {
        Self::Upload { card, reason: source.to_string() }
    }
}

/// A ring could not be made. Everything comes back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct CdmaRingRefused {
    /// Why.
    pub error: CdmaRingError,
    /// The engine.
    pub cdma: Cdma,
    /// With the channel that was lent.
    pub path: DescriptorPath,
}

/// Channels for what the engine cannot move were not taken. They come back.
#[derive(Debug, thiserror::Error)]
#[error("{card} CDMA: {reason}")]
pub struct BounceRefused {
    /// Which card.
    pub card: CardName,
    /// Why.
    pub reason: &'static str,
    /// The channel to the card.
    pub h2c: H2cChannel,
    /// The channel from the card.
    pub c2h: C2hChannel,
}

/// A copy was not taken. The payload comes back.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct CdmaRefused<T> {
    /// Why.
    pub error: CdmaSubmitError,
    /// What was handed in.
    pub payload: T,
}

impl<T> CdmaRefused<T> {
    /// Whether this is back-pressure: the ring is full, and the same submission works once something has completed.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.error, CdmaSubmitError::Ring { source: cdma_ring::RefusalReason::Full { .. }, .. })
    }
}

/// Why a copy was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CdmaSubmitError {
    /// The ring does not take it.
    #[error("{card} CDMA ring: {source}")]
    Ring {
        /// Which card.
        card: CardName,
        /// Why.
        source: cdma_ring::RefusalReason,
    },
    /// It is not inside what the card can reach.
    #[error(transparent)]
    Range(CdmaError),
    /// It needs host memory, and that failed. A part of it may have been copied.
    #[error(transparent)]
    Bounce(CdmaError),
    /// It needs host memory, and what was submitted before has to end first, which it did not.
    #[error("what was submitted before has to end first: {0}")]
    EarlierFailed(CdmaRingError),
    /// The ring cannot be used any more.
    #[error(transparent)]
    Failed(#[from] CdmaRingError),
}

/// Where the engine stood when it halted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CdmaFaultPosition {
    /// Index of the descriptor in the ring.
    pub descriptor: u32,
    /// Where it copies from.
    pub source: CardAddr,
    /// Where it copies to.
    pub destination: CardAddr,
    /// Its length in bytes.
    pub length: u32,
    /// Bytes of the copy that descriptors before it have moved.
    pub bytes_done: u64,
}

/// Why a copy was ended by the engine or by the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CdmaFaultCause {
    /// Error bits in the status register.
    Status(Cdmasr),
    /// A status word or a descriptor pointer that cannot be.
    Progress(cdma_ring::ProgressFault),
    /// The engine is idle before the end of the ring and shows no error bit.
    NoError(Cdmasr),
    /// The descriptors did not reach the card.
    Upload,
    /// A copy before this one failed; this one was not executed.
    EarlierFault,
    /// The ring was aborted. The copy may have been executed in part.
    Aborted,
    /// The engine could not be stopped: it may still write to the destination.
    Unstoppable,
}

/// A copy failed. Unless the cause says otherwise the engine has been reset and the ring can be used again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdmaFault {
    /// Which card.
    pub card: CardName,
    /// What happened.
    pub cause: CdmaFaultCause,
    /// Where, if the engine was at work on this copy.
    pub place: Option<CdmaFaultPosition>,
}

impl fmt::Display for CdmaFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CDMA ring: ", self.card)?;
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
        }
        if let Some(place) = self.place {
            write!(
                f,
                " at descriptor {} ({} bytes from {} to {}, after {} bytes of the copy)",
                place.descriptor, place.length, place.source, place.destination, place.bytes_done
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
