//! The rows.

use fpga_driver::registers::xdma::ChannelError as StatusBit;
use fpga_driver::{Direction, RunMode};

use super::{After, Fault, Memory, On, Row, Said};
use crate::conformance::Ability;
use crate::tampered::Interrupts;

/// Channels of both directions and run modes.
const ANY: On = On::Channels(None, None);

/// A fault that a scene shows.
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

/// A fault that a case of its own shows.
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

/// A bit of the status register.
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
        "count_beyond_by_one",
        "a completed count that is one too high",
        Fault::CountOff(1),
        ANY,
        &[Said::Count],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "writeback_torn",
        "two of the four bytes of the write-back word arrive",
        Fault::WritebackTorn(2),
        ANY,
        &[],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "fetch_refused",
        "the host refuses a descriptor fetch",
        Fault::FetchRefused,
        ANY,
        &[Said::Status],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "data_refused",
        "the host refuses a read of data",
        Fault::DataRefused,
        On::Channels(H2C, None),
        &[Said::Status],
        Returned,
        Channel,
        CARD
    ),
    scene!(
        "all_ones_at_the_doorbell",
        "registers read as all ones from a doorbell on",
        Fault::AllOnes,
        ANY,
        &[Said::Gone],
        Quarantined,
        Reset,
        CARD
    ),
    scene!(
        "removed_at_the_doorbell",
        "the card is pulled out as a doorbell rings",
        Fault::Removed,
        ANY,
        &[Said::Gone],
        Quarantined,
        Reopen,
        CARD
    ),
    scene!(
        "reset_behind",
        "somebody else resets the card, and nobody tells the driver",
        Fault::ResetBehind,
        ANY,
        &[Said::Gone],
        Quarantined,
        Reopen,
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
    shown!(
        "stream_without_end",
        "fault.stream_without_end",
        "a stream whose packet never ends",
        On::Stream,
        &[Said::TooLong],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_metadata_missing",
        "fault.stream_metadata_missing",
        "the metadata of a packet is not written",
        On::Stream,
        &[Said::Metadata],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_metadata_torn",
        "fault.stream_metadata_torn",
        "only the first word of a packet's metadata is written",
        On::Stream,
        &[Said::Metadata],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_metadata_magic",
        "fault.stream_metadata_magic",
        "a packet's metadata has another magic number",
        On::Stream,
        &[Said::Metadata],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_metadata_length",
        "fault.stream_metadata_length",
        "a packet is said to be longer than its buffer",
        On::Stream,
        &[Said::Metadata],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_metadata_no_end",
        "fault.stream_metadata_no_end",
        "a packet's last buffer is not full and has no end of packet",
        On::Stream,
        &[Said::Metadata],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "stream_end_lost",
        "fault.stream_end_lost",
        "the end of a packet is lost in the card",
        On::Stream,
        &[Said::Joined],
        Returned,
        Channel,
        CARD
    ),
    shown!(
        "bus_error",
        "fault.bus_error",
        "an uncorrectable error on the bus (AER)",
        On::Function,
        &[Said::BusError],
        Returned,
        Channel,
        CARD
    ),
];
