//! What goes wrong, and what a user sees of it: one row a fault. Cases run the rows, and `docs/faults.md` is printed from them, so
//! that what is promised is what is tested.
//!
//! A row is either a scene of its own, three transfers under a [`Fault`], or it is shown by a case that does more than that
//! ([`Row::shown_by`]). Either way the words come from [`Said`], [`Memory`] and [`After`], and the case holds the driver to them.

use core::fmt;

use fpga_driver::registers::xdma::ChannelError as StatusBit;
use fpga_driver::{CdmaError, ChannelError, Direction, FaultCause, RunMode};

use super::Ability;
use crate::tampered::Interrupts;

/// How a fault is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Interrupts do not arrive as they should.
    Interrupts(Interrupts),
    /// The engine stops at its first descriptor with this bit in its status register.
    Status(StatusBit),
    /// The card reports this completed count, in the register and in the write-back.
    Count(u32),
    /// The write-back goes where nothing is mapped.
    WritebackLost,
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
pub enum Said {
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
    /// It was aborted.
    Aborted,
    /// Nothing: who polls sees success. The self-test finds it.
    Validate,
}

impl Said {
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
            FaultCause::Silent(_) => Some(Self::Silent),
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
            CdmaError::Gone { .. } => Some(Self::Gone),
            _ => None,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Status => "`FaultCause::Status` with the bit, the descriptor and its addresses",
            Self::Count => "`FaultCause::Count` with the count and what was posted",
            Self::Silent => "`FaultCause::Silent` with the status register",
            Self::TimedOut => "`ChannelError::TimedOut` with how far the run is",
            Self::Wedged => "`ChannelError::Wedged` with the number of buffers kept",
            Self::Gone => "`ChannelError::Gone` with the number of buffers kept",
            Self::Stale => "`MmioError::Stale`: a handle from before the reset",
            Self::Cdma => "`CdmaError::Engine` with the status register and how far the copy came",
            Self::Aborted => "`FaultCause::Aborted`",
            Self::Validate => "nothing at the transfer (a posted write has no answer); `validate` fails",
        })
    }
}

/// What becomes of the memory of transfers in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// All of it comes back.
    Returned,
    /// What the card may still reach is kept for good and counted; what was never posted comes back.
    Quarantined,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Returned => "all come back",
            Self::Quarantined => "posted ones into quarantine, the others come back",
        })
    }
}

/// What works afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The channel, as before.
    Channel,
    /// The card, opened again.
    Reopen,
    /// The card, reset and opened again.
    Reset,
}

impl fmt::Display for After {
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
pub enum On {
    /// Channels of this direction (`None`: both) and run mode (`None`: both).
    Channels(Option<Direction>, Option<RunMode>),
    /// The copy engine inside the card.
    Cdma,
}

/// One fault.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Short name; its case is `fault.` and this.
    pub name: &'static str,
    /// Its case's name.
    pub case: &'static str,
    /// What happens, for people.
    pub what: &'static str,
    /// How it is made; `None`: by the case named in [`case`](Self::case), which does more than a scene.
    pub fault: Option<Fault>,
    /// Where.
    pub on: On,
    /// The scene waits by interrupt.
    pub by_interrupt: bool,
    /// What the driver says, in this order. Nothing: the work is done.
    pub said: &'static [Said],
    /// What becomes of memory.
    pub memory: Memory,
    /// What works afterwards.
    pub after: After,
    /// What it takes of a door.
    pub needs: &'static [Ability],
}

/// Channels of both directions and run modes.
const ANY: On = On::Channels(None, None);

macro_rules! scene {
    ($name:literal, $what:literal, $fault:expr, $on:expr, $said:expr, $memory:ident, $after:ident, $needs:expr) => {
        Row {
            name: $name,
            case: concat!("fault.", $name),
            what: $what,
            fault: Some($fault),
            on: $on,
            by_interrupt: matches!($fault, Fault::Interrupts(_)),
            said: $said,
            memory: Memory::$memory,
            after: After::$after,
            needs: $needs,
        }
    };
}

macro_rules! shown {
    ($name:literal, $case:literal, $what:literal, $on:expr, $said:expr, $memory:ident, $after:ident, $needs:expr) => {
        Row {
            name: $name,
            case: $case,
            what: $what,
            fault: None,
            on: $on,
            by_interrupt: false,
            said: $said,
            memory: Memory::$memory,
            after: After::$after,
            needs: $needs,
        }
    };
}

macro_rules! status {
    ($name:literal, $what:literal, $bit:ident, $on:expr) => {
        scene!(
            $name,
            $what,
            Fault::Status(StatusBit::$bit),
            On::Channels($on, None),
            &[Said::Status],
            Returned,
            Channel,
            &[]
        )
    };
}

const H2C: Option<Direction> = Some(Direction::H2c);
const C2H: Option<Direction> = Some(Direction::C2h);
const CARD: &[Ability] = &[Ability::CardFaults];
const REFUSED: &[Ability] = &[Ability::RefusedDma];
const REMOVAL: &[Ability] = &[Ability::Removal];

/// Every fault.
pub const TABLE: &[Row] = &[
    scene!(
        "interrupt_lost",
        "an interrupt message is lost",
        Fault::Interrupts(Interrupts::Lost),
        ANY,
        &[],
        Returned,
        Channel,
        &[]
    ),
    scene!(
        "interrupt_late",
        "an interrupt comes later than the wait for it",
        Fault::Interrupts(Interrupts::Late),
        ANY,
        &[],
        Returned,
        Channel,
        &[]
    ),
    scene!(
        "interrupt_spurious",
        "an interrupt without a reason",
        Fault::Interrupts(Interrupts::Spurious),
        ANY,
        &[],
        Returned,
        Channel,
        &[]
    ),
    scene!(
        "writeback_lost",
        "the write-back word is never written",
        Fault::WritebackLost,
        ANY,
        &[],
        Returned,
        Channel,
        REFUSED
    ),
    scene!(
        "count_behind.stop_run",
        "a completed count that stays behind, in a stop run",
        Fault::Count(0),
        On::Channels(None, Some(RunMode::StopRuns)),
        &[Said::Silent],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "count_behind.credit_ring",
        "a completed count that stays behind, in a credit ring: it looks like an engine that works",
        Fault::Count(0),
        On::Channels(None, Some(RunMode::CreditRing)),
        &[Said::TimedOut, Said::Aborted],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "count_beyond",
        "a completed count beyond what was posted",
        Fault::Count(100),
        ANY,
        &[Said::Count],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "count_impossible",
        "a completed count that no run can have",
        Fault::Count(0xFF_FFFF),
        ANY,
        &[Said::Count],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "stalled",
        "the engine hangs: an AXI slave never answers",
        Fault::Stalled,
        ANY,
        &[Said::TimedOut, Said::Wedged],
        Quarantined,
        Reset,
        CARD
    ),
    scene!(
        "slave_error",
        "the AXI slave at the card address reports an error",
        Fault::SlaveError,
        ANY,
        &[Said::Status],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "decode_error",
        "no AXI slave at the card address",
        Fault::DecodeError,
        ANY,
        &[Said::Status],
        Returned,
        Channel,
        CARD
    ),
    status!(
        "status.align_mismatch",
        "status bit 3: source and destination not aligned to each other",
        AlignMismatch,
        None
    ),
    status!("status.magic_stopped", "status bit 4: a descriptor without magic number", MagicStopped, None),
    status!(
        "status.invalid_length",
        "status bit 5: a stream length that is not whole beats",
        InvalidLength,
        None
    ),
    status!(
        "status.host_read_unsupported",
        "status bit 9 (H2C): the host refuses a read as unsupported",
        HostReadUnsupportedRequest,
        H2C
    ),
    status!(
        "status.host_read_aborted",
        "status bit 10 (H2C): the host aborts a read",
        HostReadCompleterAbort,
        H2C
    ),
    status!(
        "status.host_read_parity",
        "status bit 11 (H2C): parity error on data from the host",
        HostReadParity,
        H2C
    ),
    status!(
        "status.host_read_poisoned",
        "status bit 12 (H2C): data from the host is poisoned",
        HostReadPoisoned,
        H2C
    ),
    status!(
        "status.host_read_unexpected",
        "status bit 13 (H2C): a completion nobody asked for",
        HostReadUnexpectedCompletion,
        H2C
    ),
    status!(
        "status.card_write_decode",
        "status bit 14 (H2C): AXI decode error on a write",
        CardWriteDecode,
        H2C
    ),
    status!(
        "status.card_write_slave",
        "status bit 15 (H2C): AXI slave error on a write",
        CardWriteSlave,
        H2C
    ),
    status!("status.card_read_decode", "status bit 9 (C2H): AXI decode error on a read", CardReadDecode, C2H),
    status!("status.card_read_slave", "status bit 10 (C2H): AXI slave error on a read", CardReadSlave, C2H),
    status!(
        "status.descriptor_unsupported",
        "status bit 19: the host refuses a descriptor fetch",
        DescriptorUnsupportedRequest,
        None
    ),
    status!(
        "status.descriptor_aborted",
        "status bit 20: the host aborts a descriptor fetch",
        DescriptorCompleterAbort,
        None
    ),
    status!(
        "status.descriptor_parity",
        "status bit 21: parity error on a descriptor",
        DescriptorParity,
        None
    ),
    status!(
        "status.descriptor_poisoned",
        "status bit 22: a descriptor is poisoned",
        DescriptorPoisoned,
        None
    ),
    status!(
        "status.descriptor_unexpected",
        "status bit 23: a completion for a descriptor nobody asked for",
        DescriptorUnexpectedCompletion,
        None
    ),
    shown!(
        "unmapped_source",
        "iommu.unmapped_source",
        "the IOMMU refuses to let the card read a buffer",
        On::Channels(H2C, None),
        &[Said::Status],
        Returned,
        Channel,
        REFUSED
    ),
    shown!(
        "unmapped_destination",
        "iommu.unmapped_destination",
        "the IOMMU refuses to let the card write a buffer: not mapped",
        On::Channels(C2H, None),
        &[Said::Validate],
        Returned,
        Channel,
        REFUSED
    ),
    shown!(
        "read_only_destination",
        "iommu.read_only_destination",
        "the IOMMU refuses to let the card write a buffer: mapped for reading",
        On::Channels(C2H, None),
        &[Said::Validate],
        Returned,
        Channel,
        REFUSED
    ),
    shown!(
        "unmapped_descriptors",
        "iommu.unmapped_descriptors",
        "the IOMMU refuses to let the card read descriptors",
        ANY,
        &[Said::Status],
        Returned,
        Channel,
        REFUSED
    ),
    shown!(
        "all_ones",
        "removal.all_ones_at_any_access",
        "registers read as all ones from any access on",
        ANY,
        &[Said::Gone],
        Quarantined,
        Reopen,
        REMOVAL
    ),
    shown!(
        "removed",
        "removal.gone_at_any_access",
        "the card leaves the bus, from any access on",
        ANY,
        &[Said::Gone],
        Quarantined,
        Reopen,
        REMOVAL
    ),
    shown!(
        "reset_under_load",
        "recovery.reset_under_load",
        "the card is reset in the middle of transfers",
        ANY,
        &[Said::Stale],
        Returned,
        Reopen,
        &[Ability::BusReset]
    ),
    shown!(
        "cdma_slave_error",
        "fault.cdma_slave_error",
        "the copy engine meets an AXI slave error",
        On::Cdma,
        &[Said::Cdma],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "cdma_decode_error",
        "fault.cdma_decode_error",
        "the copy engine finds no AXI slave at an address",
        On::Cdma,
        &[Said::Cdma],
        Returned,
        Channel,
        CARD
    ),
];

/// The row of this name.
///
/// # Panics
/// If there is none: a mistake of the case that asks.
#[must_use]
pub fn row(name: &str) -> &'static Row {
    TABLE.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no fault of the name {name}"))
}
