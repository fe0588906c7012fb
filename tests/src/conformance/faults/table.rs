//! Rows of the fault table.

use fpga_driver::{Direction, RunMode};
use fpga_registers::xdma::StatusError as StatusBit;

use super::{AfterFault, AppliesTo, ExpectedError, FaultMethod, FaultRow, MemoryOutcome};
use crate::conformance::Capability;
use crate::fault_injecting::InterruptFault;

/// A fault that a scenario shows.
macro_rules! scene {
    ($name:literal, $what:literal, $fault:expr) => {
        FaultRow {
            fault: Some($fault),
            by_interrupt: matches!($fault, FaultMethod::Interrupts(_)),
            ..row($name, concat!("fault.", $name), $what)
        }
    };
}

/// A bit of the status register.
macro_rules! status {
    ($name:literal, $what:literal, $bit:ident) => {
        scene!($name, $what, FaultMethod::Status(StatusBit::$bit)).errors(&[ExpectedError::Status])
    };
}

/// A fault of the copy engine while it works on a ring's chain.
macro_rules! in_chain {
    ($name:literal, $what:literal) => {
        row($name, concat!("fault.", $name), $what)
            .on(AppliesTo::CdmaRing)
            .errors(&[ExpectedError::CdmaRing])
            .needs(CARD)
    };
}

/// A fault with a separate case. Defaults: channels of both directions and run modes, no error, all memory returned, channel usable
/// afterwards, every backend.
const fn row(name: &'static str, case: &'static str, what: &'static str) -> FaultRow {
    FaultRow {
        name,
        case,
        what,
        fault: None,
        on: AppliesTo::Channels(None, None),
        by_interrupt: false,
        errors: &[],
        memory: MemoryOutcome::Returned,
        after: AfterFault::Channel,
        needs: &[],
    }
}

impl FaultRow {
    const fn on(self, on: AppliesTo) -> Self {
        Self { on, ..self }
    }

    const fn errors(self, errors: &'static [ExpectedError]) -> Self {
        Self { errors, ..self }
    }

    const fn quarantined(self) -> Self {
        Self { memory: MemoryOutcome::Quarantined, ..self }
    }

    const fn unstopped(self) -> Self {
        Self { memory: MemoryOutcome::Unstopped, ..self }
    }

    const fn after(self, after: AfterFault) -> Self {
        Self { after, ..self }
    }

    const fn needs(self, needs: &'static [Capability]) -> Self {
        Self { needs, ..self }
    }
}

const H2C: AppliesTo = AppliesTo::Channels(Some(Direction::H2c), None);
const C2H: AppliesTo = AppliesTo::Channels(Some(Direction::C2h), None);
const CARD: &[Capability] = &[Capability::CardFaults];
const REFUSED: &[Capability] = &[Capability::DmaRefusal];
const REMOVAL: &[Capability] = &[Capability::Removal];

/// Every fault.
pub const TABLE: &[FaultRow] = &[
    scene!("interrupt_lost", "an interrupt message is lost", FaultMethod::Interrupts(InterruptFault::Lost)),
    scene!(
        "interrupt_late",
        "an interrupt arrives after its wait has ended",
        FaultMethod::Interrupts(InterruptFault::Late)
    ),
    scene!("interrupt_spurious", "a spurious interrupt", FaultMethod::Interrupts(InterruptFault::Spurious)),
    scene!("writeback_lost", "the write-back word is never written", FaultMethod::WritebackLost).needs(REFUSED),
    scene!("count_behind.batch_mode", "a completed count that stays behind, in batch mode", FaultMethod::Count(0))
        .on(AppliesTo::Channels(None, Some(RunMode::Batch)))
        .errors(&[ExpectedError::Silent])
        .needs(CARD),
    scene!(
        "count_behind.credit_mode",
        "a completed count that stays behind, in credit mode: indistinguishable from a busy engine",
        FaultMethod::Count(0)
    )
    .on(AppliesTo::Channels(None, Some(RunMode::Credit)))
    .errors(&[ExpectedError::TimedOut, ExpectedError::Aborted])
    .needs(CARD),
    scene!("count_beyond", "a completed count above the number of posted descriptors", FaultMethod::Count(100))
        .errors(&[ExpectedError::Count])
        .needs(CARD),
    scene!("count_impossible", "a completed count that is impossible for any run", FaultMethod::Count(0xFF_FFFF))
        .errors(&[ExpectedError::Count])
        .needs(CARD),
    scene!("stalled", "the engine hangs: an AXI slave never answers", FaultMethod::Stalled)
        .errors(&[ExpectedError::TimedOut, ExpectedError::Wedged])
        .quarantined()
        .after(AfterFault::Reset)
        .needs(CARD),
    scene!("count_beyond_by_one", "a completed count that is one too high", FaultMethod::CountOff(1))
        .errors(&[ExpectedError::Count])
        .needs(CARD),
    scene!("writeback_torn", "two of the four bytes of the write-back word arrive", FaultMethod::WritebackTorn(2))
        .needs(CARD),
    scene!("fetch_refused", "the host refuses a descriptor fetch", FaultMethod::FetchRefused)
        .errors(&[ExpectedError::Status])
        .needs(CARD),
    scene!("data_refused", "the host refuses a read of data", FaultMethod::DataRefused)
        .on(H2C)
        .errors(&[ExpectedError::Status])
        .needs(CARD),
    scene!("all_ones_at_the_doorbell", "registers read as all ones, starting at a doorbell", FaultMethod::AllOnes)
        .errors(&[ExpectedError::Gone])
        .quarantined()
        .after(AfterFault::Reset)
        .needs(CARD),
    scene!("removed_at_the_doorbell", "the card is removed at a doorbell", FaultMethod::Removed)
        .errors(&[ExpectedError::Gone])
        .quarantined()
        .after(AfterFault::Reopen)
        .needs(CARD),
    scene!("reset_behind", "the card is reset externally, without notice to the driver", FaultMethod::ExternalReset)
        .errors(&[ExpectedError::Gone])
        .quarantined()
        .after(AfterFault::Reopen)
        .needs(CARD),
    scene!(
        "removed_at_a_descriptor",
        "the card is removed during a run, as a descriptor ends",
        FaultMethod::RemovedAtDescriptor
    )
    .errors(&[ExpectedError::Gone])
    .quarantined()
    .after(AfterFault::Reopen)
    .needs(CARD),
    scene!(
        "reset_at_a_descriptor",
        "the card is reset externally during a run, as a descriptor ends",
        FaultMethod::ResetAtDescriptor
    )
    .errors(&[ExpectedError::Gone])
    .quarantined()
    .after(AfterFault::Reopen)
    .needs(CARD),
    row(
        "all_ones_at_descriptor",
        "fault.all_ones_at_descriptor",
        "registers read as all ones during a run whose data and write-back continue: the driver detects it at its next register read",
    )
    .errors(&[ExpectedError::Gone])
    .quarantined()
    .after(AfterFault::Reset)
    .needs(CARD),
    scene!("slave_error", "the AXI slave at the card address reports an error", FaultMethod::SlaveError)
        .errors(&[ExpectedError::Status])
        .needs(CARD),
    scene!("decode_error", "no AXI slave at the card address", FaultMethod::DecodeError)
        .errors(&[ExpectedError::Status])
        .needs(CARD),
    status!(
        "status.align_mismatch",
        "status bit 3: source and destination not aligned to each other",
        AlignMismatch
    ),
    status!("status.magic_stopped", "status bit 4: a descriptor without magic number", MagicStopped),
    status!("status.invalid_length", "status bit 5: a stream length that is not whole beats", InvalidLength),
    status!(
        "status.host_read_unsupported",
        "status bit 9 (H2C): the host refuses a read as unsupported",
        HostReadUnsupportedRequest
    )
    .on(H2C),
    status!(
        "status.host_read_aborted",
        "status bit 10 (H2C): the host aborts a read",
        HostReadCompleterAbort
    )
    .on(H2C),
    status!(
        "status.host_read_parity",
        "status bit 11 (H2C): parity error on data from the host",
        HostReadParity
    )
    .on(H2C),
    status!(
        "status.host_read_poisoned",
        "status bit 12 (H2C): data from the host is poisoned",
        HostReadPoisoned
    )
    .on(H2C),
    status!(
        "status.host_read_unexpected",
        "status bit 13 (H2C): an unexpected completion",
        HostReadUnexpectedCompletion
    )
    .on(H2C),
    status!("status.card_write_decode", "status bit 14 (H2C): AXI decode error on a write", CardWriteDecode)
        .on(H2C),
    status!("status.card_write_slave", "status bit 15 (H2C): AXI slave error on a write", CardWriteSlave)
        .on(H2C),
    status!("status.card_read_decode", "status bit 9 (C2H): AXI decode error on a read", CardReadDecode)
        .on(C2H),
    status!("status.card_read_slave", "status bit 10 (C2H): AXI slave error on a read", CardReadSlave)
        .on(C2H),
    status!(
        "status.descriptor_unsupported",
        "status bit 19: the host refuses a descriptor fetch",
        DescriptorUnsupportedRequest
    ),
    status!(
        "status.descriptor_aborted",
        "status bit 20: the host aborts a descriptor fetch",
        DescriptorCompleterAbort
    ),
    status!("status.descriptor_parity", "status bit 21: parity error on a descriptor", DescriptorParity),
    status!("status.descriptor_poisoned", "status bit 22: a descriptor is poisoned", DescriptorPoisoned),
    status!(
        "status.descriptor_unexpected",
        "status bit 23: an unexpected completion of a descriptor fetch",
        DescriptorUnexpectedCompletion
    ),
    row("unmapped_source", "iommu.unmapped_source", "the IOMMU refuses to let the card read a buffer")
        .on(H2C)
        .errors(&[ExpectedError::Status])
        .needs(REFUSED),
    row(
        "unmapped_destination",
        "iommu.unmapped_destination",
        "the IOMMU refuses to let the card write a buffer: not mapped",
    )
    .on(C2H)
    .errors(&[ExpectedError::Validate])
    .needs(REFUSED),
    row(
        "read_only_destination",
        "iommu.read_only_destination",
        "the IOMMU refuses to let the card write a buffer: mapped for reading",
    )
    .on(C2H)
    .errors(&[ExpectedError::Validate])
    .needs(REFUSED),
    row(
        "unmapped_descriptors",
        "iommu.unmapped_descriptors",
        "the IOMMU refuses to let the card read descriptors",
    )
    .errors(&[ExpectedError::Status])
    .needs(REFUSED),
    row("all_ones", "removal.all_ones_at_any_access", "registers read as all ones, starting at any access")
        .errors(&[ExpectedError::Gone])
        .quarantined()
        .after(AfterFault::Reopen)
        .needs(REMOVAL),
    row("removed", "removal.gone_at_any_access", "the card leaves the bus at any access")
        .errors(&[ExpectedError::Gone])
        .quarantined()
        .after(AfterFault::Reopen)
        .needs(REMOVAL),
    row("reset_under_load", "recovery.reset_under_load", "the card is reset during transfers")
        .errors(&[ExpectedError::Stale])
        .after(AfterFault::Reopen)
        .needs(&[Capability::BusReset]),
    row("cdma_slave_error", "fault.cdma_slave_error", "the copy engine gets an AXI slave error")
        .on(AppliesTo::Cdma)
        .errors(&[ExpectedError::Cdma])
        .needs(CARD),
    row("cdma_decode_error", "fault.cdma_decode_error", "the copy engine finds no AXI slave at an address")
        .on(AppliesTo::Cdma)
        .errors(&[ExpectedError::Cdma])
        .needs(CARD),
    row("cdma_hangs", "fault.cdma_hangs", "the copy engine hangs: an AXI slave never answers")
        .on(AppliesTo::Cdma)
        .errors(&[ExpectedError::CdmaStuck])
        .unstopped()
        .after(AfterFault::Reset)
        .needs(CARD),
    in_chain!("cdma_ring_internal_error", "a descriptor in the middle of a chain has no length (DMAIntErr)"),
    in_chain!("cdma_ring_slave_error", "a copy in the middle of a chain gets an AXI slave error"),
    in_chain!("cdma_ring_decode_error", "a copy in the middle of a chain finds no AXI slave"),
    in_chain!(
        "cdma_ring_descriptor_slave_error",
        "an AXI slave error at a descriptor in the middle of a chain"
    ),
    in_chain!("cdma_ring_descriptor_decode_error", "no AXI slave at a descriptor in the middle of a chain"),
    in_chain!(
        "cdma_ring_stale_descriptor",
        "a descriptor in the middle of a chain is already marked complete (SGIntErr), also after a reset"
    ),
    in_chain!(
        "cdma_ring_extra_start",
        "the engine gets one start too many and stops at a descriptor that is marked complete"
    )
    .errors(&[]),
    in_chain!("cdma_ring_hangs", "an AXI slave never answers in the middle of a chain")
        .errors(&[ExpectedError::CdmaStuck])
        .unstopped()
        .after(AfterFault::Reset),
    row(
        "cdma_ring_descriptors_lost",
        "fault.cdma_ring_descriptors_lost",
        "descriptors that were written through the bypass BAR do not read back",
    )
    .on(AppliesTo::CdmaRing)
    .errors(&[ExpectedError::Upload]),
    row("stream_without_end", "fault.stream_without_end", "a stream whose packet never ends")
        .on(AppliesTo::Stream)
        .errors(&[ExpectedError::TooLong])
        .needs(CARD),
    row(
        "stream_metadata_missing",
        "fault.stream_metadata_missing",
        "the metadata of a packet is not written",
    )
    .on(AppliesTo::Stream)
    .errors(&[ExpectedError::Metadata])
    .needs(CARD),
    row(
        "stream_metadata_torn",
        "fault.stream_metadata_torn",
        "only the first word of a packet's metadata is written",
    )
    .on(AppliesTo::Stream)
    .errors(&[ExpectedError::Metadata])
    .needs(CARD),
    row(
        "stream_metadata_magic",
        "fault.stream_metadata_magic",
        "a packet's metadata has a wrong magic number",
    )
    .on(AppliesTo::Stream)
    .errors(&[ExpectedError::Metadata])
    .needs(CARD),
    row(
        "stream_metadata_length",
        "fault.stream_metadata_length",
        "a packet's metadata has a length above that of its buffer",
    )
    .on(AppliesTo::Stream)
    .errors(&[ExpectedError::Metadata])
    .needs(CARD),
    row(
        "stream_metadata_no_end",
        "fault.stream_metadata_no_end",
        "a packet's buffer is not full and has no end of packet",
    )
    .on(AppliesTo::Stream)
    .errors(&[ExpectedError::Metadata])
    .needs(CARD),
    row("stream_end_lost", "fault.stream_end_lost", "the end of a packet is lost in the card")
        .on(AppliesTo::Stream)
        .errors(&[ExpectedError::Joined])
        .needs(CARD),
    row("bus_error", "fault.bus_error", "an uncorrectable error on the bus (AER)")
        .on(AppliesTo::Function)
        .errors(&[ExpectedError::BusError])
        .needs(CARD),
];
