//! What goes wrong, and what a user sees of it: one row a fault. Cases run the rows, and `docs/faults.md` is printed from them, so
//! that what is promised is what is tested.
//!
//! A row is either a scene of its own, three transfers under a [`FaultMethod`], or it is shown by a case that does more than that.
//! Either way the words come from [`ExpectedError`], [`MemoryOutcome`] and [`AfterFault`], and the case holds the driver to them.

mod table;

use core::fmt;

use fpga_driver::registers::xdma::ChannelError as StatusBit;
use fpga_driver::{CdmaError, CdmaFaultCause, ChannelError, Direction, FaultCause, RunMode};

use fpga_card::fault_plan::{FaultEntry, FaultsDescription};

use super::Capability;
use crate::fault_injecting::InterruptFault;

pub use table::TABLE;

/// How a fault is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultMethod {
    /// Interrupts do not arrive as they should.
    Interrupts(InterruptFault),
    /// The engine stops at its first descriptor with this bit in its status register.
    Status(StatusBit),
    /// The card reports this completed count, in the register and in the write-back.
    Count(u32),
    /// The card reports a completed count that is so much too high, everywhere.
    CountOff(i32),
    /// The write-back does not arrive.
    WritebackLost,
    /// So many bytes of the write-back arrive.
    WritebackTorn(u8),
    /// The host refuses a descriptor fetch.
    FetchRefused,
    /// The host refuses data.
    DataRefused,
    /// Registers read as all ones from the next access on.
    AllOnes,
    /// The card is pulled out before the next access.
    Removed,
    /// The card is reset before the next access, and nobody tells the driver.
    ExternalReset,
    /// The card is pulled out as its second descriptor ends.
    RemovedAtDescriptor,
    /// The card is reset as its second descriptor ends, and nobody tells the driver.
    ResetAtDescriptor,
    /// An AXI slave that never answers.
    Stalled,
    /// An AXI slave that answers with an error.
    SlaveError,
    /// No AXI slave at the address.
    DecodeError,
}

/// What the driver says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedError {
    /// Error bits.
    Status,
    /// A count that cannot be.
    Count,
    /// The engine stopped without an error bit.
    Silent,
    /// Not complete in time.
    TimedOut,
    /// The engine does not stop.
    Wedged,
    /// The card is gone.
    Gone,
    /// The card was reset.
    Stale,
    /// The copy engine stopped with an error.
    Cdma,
    /// The same in a ring of copies.
    CdmaRing,
    /// The copy engine does not stop.
    CdmaStuck,
    /// Descriptors did not get to the copy engine.
    Upload,
    /// It was aborted.
    Aborted,
    /// A packet that is longer than what waits for it.
    TooLong,
    /// Metadata of a stream's packet that cannot be true.
    Metadata,
    /// Nothing: two packets of a stream arrive as one.
    Joined,
    /// The system's word of an error on the bus.
    BusError,
    /// Nothing: who polls sees success. The self-test finds it.
    Validate,
}

impl ExpectedError {
    /// What an error of a channel says.
    #[must_use]
    pub const fn of(error: &ChannelError) -> Option<Self> {
        use fpga_driver::pci::MmioError;
        match error {
            ChannelError::Gone { .. } | ChannelError::Mmio { source: MmioError::Gone { .. }, .. } => {
                Some(Self::Gone)
            }
            ChannelError::Wedged { .. } => Some(Self::Wedged),
            ChannelError::TimedOut { .. } => Some(Self::TimedOut),
            ChannelError::Mmio { source: MmioError::Stale { .. }, .. } => Some(Self::Stale),
            _ => None,
        }
    }

    /// What the failure of a transfer says; `None`: it failed because of another.
    #[must_use]
    pub const fn of_cause(cause: &FaultCause) -> Option<Self> {
        match cause {
            FaultCause::Status(_) => Some(Self::Status),
            FaultCause::Count(_) => Some(Self::Count),
            FaultCause::NoError(_) => Some(Self::Silent),
            FaultCause::Aborted => Some(Self::Aborted),
            _ => None,
        }
    }

    /// What an error of the copy engine says.
    #[must_use]
    pub const fn of_cdma(error: &CdmaError) -> Option<Self> {
        match error {
            CdmaError::Engine { .. } => Some(Self::Cdma),
            CdmaError::TimedOut { .. } => Some(Self::TimedOut),
            CdmaError::Stuck { .. } => Some(Self::CdmaStuck),
            CdmaError::Gone { .. } => Some(Self::Gone),
            _ => None,
        }
    }

    /// What the failure of a copy in a ring says; `None`: it failed because of another, or was given up with it.
    #[must_use]
    pub const fn of_cdma_cause(cause: &CdmaFaultCause) -> Option<Self> {
        match cause {
            CdmaFaultCause::Status(_) => Some(Self::CdmaRing),
            CdmaFaultCause::Upload => Some(Self::Upload),
            _ => None,
        }
    }
}

impl fmt::Display for ExpectedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "`FaultCause::Status` with the bit, the descriptor and its addresses",
            Self::Count => "`FaultCause::Count` with the count and what was posted",
            Self::Silent => "`FaultCause::NoError` with the status register",
            Self::TimedOut => "`ChannelError::TimedOut` with how far the run is",
            Self::Wedged => "`ChannelError::Wedged` with the number of buffers kept",
            Self::Gone => "`ChannelError::Gone` with the number of buffers kept",
            Self::Stale => "`MmioError::Stale`: a handle from before the reset",
            Self::Cdma => "`CdmaError::Engine` with the status register and how far the copy came",
            Self::CdmaRing => {
                "`CdmaFaultCause::Status` with the status register, the descriptor and its addresses; `Earlier` for copies behind it"
            }
            Self::CdmaStuck => "`CdmaError::Stuck` with the status register",
            Self::Upload => "`CdmaFaultCause::Upload`: the engine was not told",
            Self::Aborted => "`FaultCause::Aborted`",
            Self::TooLong => "`PacketFault::TooLong` with its bytes so far, once",
            Self::Metadata => "`StreamError::Packet` with the ring's entry and what was found there, once",
            Self::Joined => "nothing (the card tells of one packet): who knows his packets' lengths sees it",
            Self::BusError => "`DeviceEvent::BusError` from `Card::events`",
            Self::Validate => "nothing at the transfer (a posted write has no answer); `validate` fails",
        })
    }
}

/// What becomes of the memory of transfers in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryOutcome {
    /// All of it comes back.
    Returned,
    /// What was posted comes back too, but the engine may still write to its destinations in the card.
    Unstopped,
    /// What the card may still reach is kept for good and counted; what was never posted comes back.
    Quarantined,
}

impl fmt::Display for MemoryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Returned => "all come back",
            Self::Unstopped => "all come back; their destinations may change until the reset",
            Self::Quarantined => "posted ones into quarantine, the others come back",
        })
    }
}

/// What works afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFault {
    /// The channel, as before.
    Channel,
    /// The card, opened again.
    Reopen,
    /// The card, reset and opened again.
    Reset,
}

impl fmt::Display for AfterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Channel => "the channel, at once",
            Self::Reopen => "the card, opened again once it is back",
            Self::Reset => "the card, after a reset of the bus and opened again",
        })
    }
}

/// Where a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliesTo {
    /// Channels of this direction (`None`: both) and run mode (`None`: both).
    Channels(Option<Direction>, Option<RunMode>),
    /// The copy engine inside the card, one copy at a time.
    Cdma,
    /// The copy engine inside the card, with many copies in flight.
    CdmaRing,
    /// C2H channels of a card whose channels are streams.
    Stream,
    /// The card as a PCI function.
    Function,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultRow {
    /// Short name; its case is `fault.` and this.
    pub name: &'static str,
    /// Its case's name.
    pub case: &'static str,
    /// What happens, for people.
    pub what: &'static str,
    /// How it is made; `None`: by the case named in [`case`](Self::case), which does more than a scene.
    pub fault: Option<FaultMethod>,
    /// Where.
    pub on: AppliesTo,
    /// The scene waits by interrupt.
    pub by_interrupt: bool,
    /// What the driver says, in this order. Nothing: the work is done.
    pub said: &'static [ExpectedError],
    /// What becomes of memory.
    pub memory: MemoryOutcome,
    /// What works afterwards.
    pub after: AfterFault,
    /// What it takes of a door.
    pub needs: &'static [Capability],
}

/// A plan of these faults.
#[must_use]
pub fn plan(list: impl IntoIterator<Item = FaultEntry>) -> FaultsDescription {
    let mut plan = FaultsDescription::default();
    plan.seed = 1;
    plan.list = list.into_iter().collect();
    plan
}

/// The row of this name.
///
/// # Panics
/// If there is none: a mistake of the case that asks.
#[must_use]
pub fn row(name: &str) -> &'static FaultRow {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no fault of the name {name}"))
}
