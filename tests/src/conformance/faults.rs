//! Table of faults and of what a user sees of them: one row per fault. Cases run the rows, and `docs/guide/faults.md` is printed from them, so
//! that the documented behaviour is the tested behaviour.
//!
//! A row is either a scenario, three transfers under a [`FaultMethod`], or a case that does more shows it. In both cases the text comes
//! from [`ExpectedError`], [`MemoryOutcome`] and [`AfterFault`], and the case checks the driver against them.

mod table;

use core::fmt;

use fpga_driver::{
    CdmaError, ChannelError, Direction, RunMode,
    errors::{CauseClass, CopyFault, FaultCause},
};
use fpga_registers::cdma::Cdmasr;
use fpga_registers::xdma::StatusError as StatusBit;

use fpga_card::fault_plan::{FaultEntry, FaultsDescription};

use super::Capability;
use crate::fault_injecting::InterruptFault;

pub use table::TABLE;

/// Method that causes a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultMethod {
    /// Interrupts are lost, late or spurious.
    Interrupts(InterruptFault),
    /// The engine stops at its first descriptor with this bit in its status register.
    Status(StatusBit),
    /// The card reports this completed count, in the register and in the write-back.
    Count(u32),
    /// The card reports a completed count that is too high by this number, in every place.
    CountOff(i32),
    /// The write-back does not arrive.
    WritebackLost,
    /// Only this number of bytes of the write-back arrive.
    WritebackTorn(u8),
    /// The host refuses a descriptor fetch.
    FetchRefused,
    /// The host refuses data.
    DataRefused,
    /// Registers read as all ones from the next access on.
    AllOnes,
    /// The card is removed before the next access.
    Removed,
    /// The card is reset before the next access, without notice to the driver.
    ExternalReset,
    /// The card is removed as its second descriptor ends.
    RemovedAtDescriptor,
    /// The card is reset as its second descriptor ends, without notice to the driver.
    ResetAtDescriptor,
    /// An AXI slave that never answers.
    Stalled,
    /// An AXI slave that answers with an error.
    SlaveError,
    /// No AXI slave at the address.
    DecodeError,
}

/// Error that the driver reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedError {
    /// Error bits in the status register.
    Status,
    /// An impossible completed count.
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
    /// The copy engine (CDMA) stopped with an error.
    Cdma,
    /// The copy engine stopped with an error in a CDMA ring.
    CdmaRing,
    /// The copy engine does not stop.
    CdmaStuck,
    /// Descriptors did not reach the copy engine.
    Upload,
    /// The transfer was aborted.
    Aborted,
    /// A packet that is longer than the buffers that wait for it.
    TooLong,
    /// Impossible metadata of a stream packet.
    Metadata,
    /// No error: two packets of a stream arrive as one.
    Joined,
    /// The system reports an error on the bus.
    BusError,
    /// No error: a caller that polls sees success. The self-test finds the fault.
    Validate,
}

impl ExpectedError {
    /// Classifies an error of a channel.
    #[must_use]
    pub fn of(error: &ChannelError) -> Option<Self> {
        match error {
            ChannelError::Gone { .. } => Some(Self::Gone),
            ChannelError::Wedged { .. } => Some(Self::Wedged),
            ChannelError::TimedOut { .. } => Some(Self::TimedOut),
            ChannelError::Cause(cause) => match cause.class() {
                CauseClass::Gone => Some(Self::Gone),
                CauseClass::Reset => Some(Self::Stale),
                _ => None,
            },
            _ => None,
        }
    }

    /// Classifies the cause of a failed transfer. `None`: it failed because another transfer failed.
    #[must_use]
    pub const fn of_cause(cause: &FaultCause) -> Option<Self> {
        match cause {
            FaultCause::Status(_) => Some(Self::Status),
            FaultCause::Count(_) => Some(Self::Count),
            FaultCause::NoError(_) => Some(Self::Silent),
            FaultCause::Aborted => Some(Self::Aborted),
            FaultCause::Gone => Some(Self::Gone),
            FaultCause::Reset => Some(Self::Stale),
            FaultCause::Wedged => Some(Self::Wedged),
            _ => None,
        }
    }

    /// Classifies an error of the copy engine.
    #[must_use]
    pub const fn of_cdma(error: &CdmaError) -> Option<Self> {
        match error {
            CdmaError::Copy { cause: CopyFault::Status(_), .. } => Some(Self::Cdma),
            CdmaError::Copy { cause: CopyFault::TimedOut { .. }, .. } => Some(Self::TimedOut),
            CdmaError::Stuck { .. } => Some(Self::CdmaStuck),
            CdmaError::Gone => Some(Self::Gone),
            _ => None,
        }
    }

    /// Classifies the cause of a failed copy in a ring. `None`: it failed because of another copy, or was aborted with it.
    #[must_use]
    pub const fn of_cdma_cause(cause: &FaultCause<Cdmasr>) -> Option<Self> {
        match cause {
            FaultCause::Status(_) => Some(Self::CdmaRing),
            FaultCause::Upload => Some(Self::Upload),
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
            Self::TimedOut => "`ChannelError::TimedOut` with the progress of the run",
            Self::Wedged => "`ChannelError::Wedged` with the number of buffers kept",
            Self::Gone => "`ChannelError::Gone` with the number of buffers kept",
            Self::Stale => "`MmioError::Stale`: a handle from before the reset",
            Self::Cdma => "`CopyFault::Status` with the status register and the bytes copied",
            Self::CdmaRing => {
                "`FaultCause::Status` with the status register, the descriptor and its addresses; `Earlier` for later copies"
            }
            Self::CdmaStuck => "`CdmaError::Stuck` with the status register",
            Self::Upload => "`FaultCause::Upload`: the engine was not started",
            Self::Aborted => "`FaultCause::Aborted`",
            Self::TooLong => "`PacketFault::TooLong` with the bytes received so far, once",
            Self::Metadata => "`StreamError::Packet` with the ring entry and its contents, once",
            Self::Joined => "none (the card reports one packet); a receiver that knows the packet lengths detects it",
            Self::BusError => "`DeviceEvent::BusError` from `Card::events`",
            Self::Validate => "none at the transfer (a posted write has no completion); `validate` fails",
        })
    }
}

/// State of the memory of transfers in flight after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryOutcome {
    /// All of it is returned.
    Returned,
    /// Posted memory is returned too, but the engine may still write to its destinations in the card.
    Unstopped,
    /// Memory that the card may still reach stays in quarantine and is counted; memory that was never posted is returned.
    Quarantined,
}

impl fmt::Display for MemoryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Returned => "all are returned",
            Self::Unstopped => "all are returned; their destinations may change until the reset",
            Self::Quarantined => "posted buffers go into quarantine, the others are returned",
        })
    }
}

/// Object that works after the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFault {
    /// The channel, without further action.
    Channel,
    /// The card, after it is opened again.
    Reopen,
    /// The card, after a reset and after it is opened again.
    Reset,
}

impl fmt::Display for AfterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Channel => "the channel, immediately",
            Self::Reopen => "the card, after it is back and is opened again",
            Self::Reset => "the card, after a bus reset and after it is opened again",
        })
    }
}

/// Objects to which a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppliesTo {
    /// Channels of this direction (`None`: both) and run mode (`None`: both).
    Channels(Option<Direction>, Option<RunMode>),
    /// The copy engine inside the card, one copy at a time.
    Cdma,
    /// The copy engine inside the card, with several copies in flight.
    CdmaRing,
    /// C2H channels of a card whose channels are streams.
    Stream,
    /// The card as a PCI function.
    Function,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultRow {
    /// Short name; the case is named `fault.` and this name.
    pub name: &'static str,
    /// Name of the case.
    pub case: &'static str,
    /// Description of the fault for readers.
    pub what: &'static str,
    /// Method that causes the fault; `None`: the case named in [`case`](Self::case) causes it and does more than a scenario.
    pub fault: Option<FaultMethod>,
    /// Objects to which the row applies.
    pub on: AppliesTo,
    /// The scenario waits by interrupt.
    pub by_interrupt: bool,
    /// Errors that the driver reports, in this order. Empty: the work is done.
    pub errors: &'static [ExpectedError],
    /// State of memory in flight.
    pub memory: MemoryOutcome,
    /// Object that works afterwards.
    pub after: AfterFault,
    /// Capabilities that the backend needs.
    pub needs: &'static [Capability],
}

/// Fault plan of these entries.
#[must_use]
pub fn plan(list: impl IntoIterator<Item = FaultEntry>) -> FaultsDescription {
    let mut plan = FaultsDescription::default();
    plan.seed = 1;
    plan.list = list.into_iter().collect();
    plan
}

/// Returns the row with this name.
///
/// # Panics
/// If there is none: an error of the calling case.
#[must_use]
pub fn row(name: &str) -> &'static FaultRow {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no fault is named {name}"))
}
