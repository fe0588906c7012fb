//! The rows of the fault table, and the faults that need more than a scenario: registers that are lost unnoticed in the middle of a run, a
//! stream without an end, an error on the bus.

use core::time::Duration;
use std::sync::Arc;

use fpga_card::fault_plan::{ChannelName, FaultEntry, FaultName, Opportunity};
use fpga_driver::stream::{C2hStream, C2hStreamOptions, PacketFault};
use fpga_driver::{
    Card, CardAddr, Direction, Error, NetworkInterface, OpenOptions, ResourceError, WaitMode, WaitOptions,
    stream::StreamError,
};
use fpga_pci::Backend;
use fpga_pci::DeviceEvent;
use fpga_registers::xdma::{ChannelBlock, SgdmaBlock, StatusError as StatusBit, channel_base, sgdma_base};

use super::{Case, CaseContext, Verdict, case};
use crate::bed::TestSetup;
use crate::bytes;
use crate::conformance::builds::ENDLESS_PACKET;
use crate::conformance::case_context::{ChannelPair, HANG_TIMEOUT, Opened};
use crate::conformance::faults::{
    AfterFault, AppliesTo, ExpectedError, FaultMethod, FaultRow, MemoryOutcome, TABLE, row,
};
use crate::conformance::{Capability, CaseBody, Skip};
use crate::fault_injecting::{FaultInjectingBackend, InterruptFault, ReplacedRegister};

pub(super) const CASES: &[Case] = &[
    case("fault.all_ones_at_descriptor", &[Capability::CardFaults], all_ones_at_descriptor),
    case("fault.stream_without_end", &[Capability::CardFaults], stream_without_end),
    case("fault.bus_error", &[Capability::CardFaults], bus_error),
];

/// A case for every row that is a scenario.
pub(super) fn scenarios() -> impl Iterator<Item = Case> {
    TABLE.iter().filter(|row| row.fault.is_some()).map(|row| Case {
        name: row.case,
        needs: row.needs,
        run: CaseBody::Row(row),
    })
}

/// Bytes of one transfer of a scenario, and the distance of the transfers in card memory.
const LENGTH: usize = 5000;
const TRANSFER_DISTANCE: u64 = 0x1_0000;
/// Address beyond the memory of every card.
const UNMAPPED_ADDRESS: CardAddr = CardAddr::new(1 << 44);

/// Runs a row with every setup it applies to. Rows that leave the card healthy run on one opened card, because opening takes tenths of a
/// second in a kernel.
pub(in crate::conformance) fn scenario(row: &FaultRow, context: &mut CaseContext<'_>) -> Verdict {
    let AppliesTo::Channels(direction, mode) = row.on else { return Ok(()) };
    let mut opened = open(row, context)?;
    let mut setups: Vec<_> = opened
        .setups()
        .into_iter()
        .filter(|setup| direction.is_none_or(|only| only == setup.direction))
        .filter(|setup| mode.is_none_or(|only| only == setup.mode))
        .collect();
    // Each takes seconds of real time.
    let slow = row.memory == MemoryOutcome::Quarantined && context.real_time();
    if slow {
        setups.truncate(1);
    }
    for setup in setups {
        let sources = [FaultSource::Plan, FaultSource::Seam, FaultSource::Hook].into_iter();
        let sources = sources.filter(|source| source.supports(row.fault, context, setup));
        for source in sources.take(if slow { 1 } else { 3 }) {
            opened = scenario_on(row, context, opened, setup, source)?;
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Whether the row's fault is an address without a slave.
fn is_bad_address(row: &FaultRow) -> bool {
    row.fault == Some(FaultMethod::DecodeError)
}

/// Opens the card with the options that a row needs.
fn open(row: &FaultRow, context: &CaseContext<'_>) -> Result<Opened, Skip> {
    // With the network interface the driver knows where memory ends, and refuses addresses beyond it.
    let choice = if is_bad_address(row) { NetworkInterface::Ignored } else { NetworkInterface::BySubsystem };
    let mut options = OpenOptions::default().network_interface(choice);
    if row.fault == Some(FaultMethod::Stalled) {
        options = options.idle_timeout(HANG_TIMEOUT);
    }
    let mut opened = context.open_with(options);
    if is_bad_address(row) {
        opened.scratch = fpga_driver::CardRange::new(CardAddr::new(1 << 20), 1 << 20);
    }
    opened.needs(4 * TRANSFER_DISTANCE)?;
    if row.by_interrupt {
        opened.interrupts()?;
    }
    Ok(opened)
}

/// Source of a fault. The driver cannot distinguish the sources of one fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultSource {
    /// The fault-injecting backend.
    Seam,
    /// A hook of the simulated card.
    Hook,
    /// The simulated card's fault plan.
    Plan,
}

impl FaultSource {
    fn supports(self, fault: Option<FaultMethod>, context: &CaseContext<'_>, setup: TestSetup) -> bool {
        let Some(fault) = fault else { return false };
        match self {
            Self::Seam => matches!(
                fault,
                FaultMethod::Interrupts(_)
                    | FaultMethod::Status(_)
                    | FaultMethod::WritebackLost
                    | FaultMethod::DecodeError
            ),
            Self::Hook => {
                context.simulated().is_some()
                    && matches!(fault, FaultMethod::Count(_) | FaultMethod::Stalled | FaultMethod::SlaveError)
            }
            Self::Plan => {
                context.backend().missing_reason(Capability::CardFaults).is_none()
                    && planned(fault, setup, 0).is_some()
            }
        }
    }
}

/// Entry of the card's fault plan for this fault. `c2h`: number of the first C2H channel's interrupt message.
fn planned(fault: FaultMethod, setup: TestSetup, c2h: u16) -> Option<FaultEntry> {
    let channel = Some(if setup.to_card() { ChannelName::H2c(0) } else { ChannelName::C2h(0) });
    let on = |name, on| FaultEntry { on: Some(on), ..FaultEntry::new(name) };
    let of_channel = |name| FaultEntry { channel, ..FaultEntry::new(name) };
    let second = |entry| FaultEntry { skip: 1, ..entry };
    let always = |entry| FaultEntry { times: None, ..entry };
    let status = |bit| {
        let error = Some(status_name(bit)?.to_owned());
        Some(second(FaultEntry { error, ..of_channel(FaultName::StatusError) }))
    };
    Some(match fault {
        FaultMethod::Interrupts(InterruptFault::Lost) => always(FaultEntry::new(FaultName::LostInterrupt)),
        FaultMethod::Interrupts(InterruptFault::Late) => {
            let delay_ns = Some(3_000_000);
            always(FaultEntry { delay_ns, ..FaultEntry::new(FaultName::LateInterrupt) })
        }
        FaultMethod::Interrupts(InterruptFault::Spurious) => {
            let vector = Some(if setup.to_card() { 0 } else { c2h });
            always(FaultEntry { vector, ..on(FaultName::SpuriousInterrupt, Opportunity::Descriptor) })
        }
        FaultMethod::Status(bit) => return status(bit),
        FaultMethod::Count(count) => {
            always(FaultEntry { count: Some(count), ..of_channel(FaultName::ImpossibleCount) })
        }
        FaultMethod::CountOff(by) => always(FaultEntry { by: Some(by), ..of_channel(FaultName::WrongCount) }),
        FaultMethod::WritebackLost => always(of_channel(FaultName::MissingWriteback)),
        FaultMethod::WritebackTorn(bytes) => {
            always(FaultEntry { bytes: Some(bytes), ..of_channel(FaultName::TornWriteback) })
        }
        FaultMethod::Stalled => second(of_channel(FaultName::Stall)),
        FaultMethod::FetchRefused => of_channel(FaultName::RefusedFetch),
        FaultMethod::DataRefused => second(of_channel(FaultName::RefusedData)),
        FaultMethod::AllOnes => on(FaultName::AllOnes, Opportunity::Access),
        FaultMethod::Removed => on(FaultName::SurpriseRemoval, Opportunity::Access),
        FaultMethod::ExternalReset => on(FaultName::Reset, Opportunity::Access),
        FaultMethod::RemovedAtDescriptor => second(on(FaultName::SurpriseRemoval, Opportunity::Descriptor)),
        FaultMethod::ResetAtDescriptor => second(on(FaultName::Reset, Opportunity::Descriptor)),
        FaultMethod::SlaveError => {
            return status(if setup.to_card() {
                StatusBit::CardWriteSlave
            } else {
                StatusBit::CardReadSlave
            });
        }
        FaultMethod::Interrupts(InterruptFault::Normal) | FaultMethod::DecodeError => return None,
    })
}

/// Name of a status bit in a card file.
const fn status_name(bit: StatusBit) -> Option<&'static str> {
    Some(match bit {
        StatusBit::AlignMismatch => "align_mismatch",
        StatusBit::MagicStopped => "magic_stopped",
        StatusBit::InvalidLength => "invalid_length",
        StatusBit::HostReadUnsupportedRequest => "host_read_unsupported_request",
        StatusBit::HostReadCompleterAbort => "host_read_completer_abort",
        StatusBit::HostReadParity => "host_read_parity",
        StatusBit::HostReadPoisoned => "host_read_poisoned",
        StatusBit::HostReadUnexpectedCompletion => "host_read_unexpected_completion",
        StatusBit::CardReadDecode => "card_read_decode",
        StatusBit::CardReadSlave => "card_read_slave",
        StatusBit::CardWriteDecode => "card_write_decode",
        StatusBit::CardWriteSlave => "card_write_slave",
        StatusBit::DescriptorUnsupportedRequest => "descriptor_unsupported_request",
        StatusBit::DescriptorCompleterAbort => "descriptor_completer_abort",
        StatusBit::DescriptorParity => "descriptor_parity",
        StatusBit::DescriptorPoisoned => "descriptor_poisoned",
        StatusBit::DescriptorUnexpectedCompletion => "descriptor_unexpected_completion",
        _ => return None,
    })
}

/// Observed result of a scenario.
#[derive(Debug, Default)]
struct Seen {
    errors: Vec<ExpectedError>,
    back: usize,
    kept: usize,
}

impl Seen {
    fn record(&mut self, errors: Option<ExpectedError>) {
        // Each error is recorded once: an error that ends several transfers is reported for each of them.
        if let Some(errors) = errors
            && !self.errors.contains(&errors)
        {
            self.errors.push(errors);
        }
    }
}

/// Runs one scenario. Returns the card, open and healthy.
fn scenario_on(
    row: &FaultRow,
    context: &CaseContext<'_>,
    opened: Opened,
    setup: TestSetup,
    source: FaultSource,
) -> Result<Opened, Skip> {
    let label = format!("{setup:?} by {source:?}");
    let is_bad_address = is_bad_address(row);
    let mut pair = opened.pair(setup)?;
    pair.assert_works(1);
    let mut seen = Seen::default();
    let targets = [0, 1, 2]
        .map(|n| if is_bad_address && n == 1 { UNMAPPED_ADDRESS } else { pair.at(n * TRANSFER_DISTANCE) });
    let data = [1, 2, 3].map(|seed| bytes(seed, LENGTH));
    let buffers: Vec<_> = (0..3)
        .map(|n| {
            if targets[n] == UNMAPPED_ADDRESS {
                opened.card.buffer(LENGTH).expect("DMA memory")
            } else {
                pair.buffer(targets[n], &data[n])
            }
        })
        .collect();
    begin(row, context, &opened, &pair, source);
    let mut tickets = Vec::new();
    for (buffer, at) in buffers.into_iter().zip(targets) {
        tickets.push(pair.channel.submit(buffer, at).expect("accepted"));
    }
    let wait = if row.by_interrupt { WaitMode::Interrupt } else { WaitMode::Poll };
    // Expected completions get a long timeout, because the machine may be busy; expected timeouts get a short one.
    let limit = if row.errors.contains(&ExpectedError::TimedOut) {
        Duration::from_millis(200)
    } else {
        crate::TIMEOUT
    };
    let wait = WaitOptions::default().mode(wait).timeout(limit);
    for (n, ticket) in tickets.into_iter().enumerate() {
        let done = pair.channel.wait(ticket, wait).or_else(|error| {
            seen.record(ExpectedError::of(&error.kind));
            assert!(ExpectedError::of(&error.kind).is_some(), "{label}: {error}");
            if let Err(error) = pair.channel.abort() {
                assert!(ExpectedError::of(&error.kind).is_some(), "{label}: {error}");
                seen.record(ExpectedError::of(&error.kind));
            }
            pair.channel.wait(ticket, wait)
        });
        let done = done.unwrap_or_else(|error| panic!("{label}: waiting for a transfer failed: {error}"));
        match (&done.outcome, done.buffer) {
            (Ok(length), Some(buffer)) => {
                assert_eq!(*length, LENGTH as u64);
                seen.back += 1;
                assert!(
                    !row.errors.is_empty() || pair.moved(&buffer, targets[n], &data[n]),
                    "{label}: the data of transfer {n} differs from the data sent"
                );
            }
            (Ok(_), None) => panic!("{label}: the transfer completed without its buffer"),
            (Err(fault), buffer) => {
                assert!(!fault.to_string().is_empty());
                if row.memory == MemoryOutcome::Returned {
                    seen.record(ExpectedError::of_cause(&fault.kind.cause));
                }
                if let (Some(FaultMethod::Status(bit)), Some(ExpectedError::Status)) =
                    (row.fault, ExpectedError::of_cause(&fault.kind.cause))
                {
                    assert!(fault.kind.status_errors().eq([bit]), "{label}: {fault}");
                }
                seen.back += usize::from(buffer.is_some());
                seen.kept += usize::from(buffer.is_none());
            }
        }
    }
    assert_eq!(seen.errors, row.errors, "{label}");
    assert_eq!(seen.back + seen.kept, 3, "{label}: every buffer is accounted for");
    assert_eq!(seen.kept == 0, row.memory == MemoryOutcome::Returned, "{label}: {seen:?}");
    let quarantined = opened.card.memory().stats().quarantined;
    // The ring is in quarantine with them.
    assert_eq!(quarantined, if seen.kept == 0 { 0 } else { seen.kept + 1 }, "{label}: {seen:?}");
    end(row, context, &opened, source);
    after(row, context, opened, pair)
}

/// Starts the fault.
fn begin(
    row: &FaultRow,
    context: &CaseContext<'_>,
    opened: &Opened,
    pair: &ChannelPair,
    source: FaultSource,
) {
    let dma = opened.card.info().roles.dma.index;
    let (direction, base) = (pair.setup.direction, channel_base(pair.setup.direction, 0));
    let card = |action: &mut dyn FnMut(&mut fpga_card::Card)| {
        let (network, number) = context.simulated().expect("a simulated card in this process");
        network.with_card(number, action).expect("a card");
    };
    let c2h = u16::from(opened.card.info().xdma.h2c_channels);
    if source == FaultSource::Plan {
        let fault = row
            .fault
            .and_then(|fault| planned(fault, pair.setup, c2h))
            .expect("a fault that the fault plan supports");
        return context.set_faults([fault]);
    }
    match row.fault {
        Some(FaultMethod::Interrupts(fault)) => opened.injector.interrupts(fault),
        Some(FaultMethod::Status(bit)) => {
            let at = |offset: fpga_driver::BarOffset| (dma, offset.get());
            // The engine never starts, and shows the status bit.
            opened.injector.drop_writes(vec![
                at(ChannelBlock::CONTROL.address(base)),
                at(SgdmaBlock::CREDITS.address(sgdma_base(direction, 0))),
            ]);
            let shows = |offset: fpga_driver::BarOffset, value| ReplacedRegister {
                bar: dma,
                at: offset.get(),
                value,
            };
            opened.injector.replace(vec![
                shows(ChannelBlock::STATUS.address(base), bit.status().into_bits()),
                shows(ChannelBlock::COMPLETED.address(base), 0),
            ]);
        }
        Some(FaultMethod::Count(count)) => card(&mut |card| card.override_completed_count(Some(count))),
        Some(FaultMethod::WritebackLost) => {
            let bar = opened.card.dma_bar();
            ChannelBlock::POLL_ADDRESS_LOW.write(bar, base, 0xFFFF_F000).expect("write");
            ChannelBlock::POLL_ADDRESS_HIGH.write(bar, base, 0).expect("write");
        }
        Some(FaultMethod::Stalled) => {
            let at = pair.at(TRANSFER_DISTANCE);
            card(&mut |card| card.silence(at, TRANSFER_DISTANCE));
        }
        Some(FaultMethod::SlaveError) => {
            let at = pair.at(TRANSFER_DISTANCE);
            card(&mut |card| card.poison(at, 64));
        }
        _ => {}
    }
}

/// Ends the fault.
fn end(row: &FaultRow, context: &CaseContext<'_>, opened: &Opened, source: FaultSource) {
    opened.injector.restore();
    if source == FaultSource::Plan {
        context.set_faults([]);
        if matches!(row.fault, Some(FaultMethod::Removed | FaultMethod::RemovedAtDescriptor)) {
            context.replug();
        }
    }
    if let Some((network, number)) = context.simulated() {
        network.with_card(number, |card| {
            card.override_completed_count(None);
            card.silence(CardAddr::ZERO, 0);
            card.poison(CardAddr::ZERO, 0);
        });
    }
}

/// Checks that the object named in the row works afterwards.
fn after(
    row: &FaultRow,
    context: &CaseContext<'_>,
    opened: Opened,
    mut pair: ChannelPair,
) -> Result<Opened, Skip> {
    let setup = pair.setup;
    match row.after {
        AfterFault::Channel => {
            pair.assert_works(5);
            drop(pair);
            opened.assert_pool(0, 0);
            return Ok(opened);
        }
        AfterFault::Reopen => drop((pair, opened)),
        AfterFault::Reset => {
            drop((pair, opened));
            let injector = context.open_backend();
            let refused = Card::from_backend_with(
                Arc::<FaultInjectingBackend>::clone(&injector) as Arc<dyn Backend>,
                OpenOptions::default().idle_timeout(HANG_TIMEOUT),
            );
            assert!(
                refused.is_err() || context.backend().resets_between_owners(),
                "{setup:?}: opening a card that needs a reset fails"
            );
            drop(refused);
            drop(injector);
            context.reset();
        }
    }
    let again = open(row, context)?;
    again.pair(setup)?.assert_works(6);
    again.assert_pool(0, 0);
    Ok(again)
}

/// Registers are lost while DMA works. Transfers complete by their write-back until the driver reads a register. That happens after the
/// next doorbell, or earlier in real time, where a transfer may take longer than the driver waits before it reads the status register. From
/// then on everything in flight is lost with the card.
fn all_ones_at_descriptor(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("all_ones_at_descriptor");
    let probe = context.open();
    let mut setups = probe.setups();
    probe.close();
    if context.real_time() {
        // Each takes seconds of real time.
        setups.truncate(1);
    }
    for setup in setups {
        let opened = context.open();
        opened.needs(4 * TRANSFER_DISTANCE)?;
        let mut pair = opened.pair(setup)?;
        pair.assert_works(1);
        let data = [1, 2, 3].map(|seed| bytes(seed, LENGTH));
        let targets = [0, 1, 2].map(|n| pair.at(n * TRANSFER_DISTANCE));
        let buffers: Vec<_> = data.iter().zip(targets).map(|(data, at)| pair.buffer(at, data)).collect();
        context.set_faults([FaultEntry {
            on: Some(Opportunity::Descriptor),
            skip: 1,
            ..FaultEntry::new(FaultName::AllOnes)
        }]);
        let tickets: Vec<_> = buffers
            .into_iter()
            .zip(targets)
            .map(|(buffer, at)| pair.channel.submit(buffer, at).expect("accepted"))
            .collect();
        let patient = WaitOptions::default().timeout(crate::TIMEOUT);
        let mut lost = Vec::new();
        for (n, ticket) in tickets.into_iter().enumerate() {
            if !lost.is_empty() {
                lost.push(ticket);
                continue;
            }
            let done = match pair.channel.wait(ticket, patient) {
                Ok(done) => done,
                Err(error)
                    if context.real_time() && ExpectedError::of(&error.kind).as_slice() == row.errors =>
                {
                    lost.push(ticket);
                    continue;
                }
                Err(error) => panic!("{setup:?}: {error}"),
            };
            assert_eq!(done.outcome, Ok(LENGTH as u64), "{setup:?}: transfer {n}");
            let buffer = done.buffer.expect("a completion with its buffer");
            let is_equal = match (setup.direction, context.simulated()) {
                (Direction::C2h, _) => buffer.to_vec() == data[n],
                (_, Some((network, number))) => {
                    crate::cards::peek(&network, number, targets[n], LENGTH) == data[n]
                }
                // The memory of a card whose registers are lost cannot be checked.
                (_, None) => true,
            };
            assert!(is_equal, "{setup:?}: the data of transfer {n} differs from the data sent");
        }
        if lost.is_empty() {
            let next = opened.card.buffer(LENGTH).expect("DMA memory");
            let next = pair.channel.submit(next, targets[0]).expect("the loss is not detected yet");
            let error = pair.channel.wait(next, patient).expect_err("the wait detects the loss");
            assert_eq!(ExpectedError::of(&error.kind).as_slice(), row.errors, "{setup:?}: {error}");
            lost.push(next);
        }
        // The ring is in quarantine with them.
        let quarantined = lost.len() + 1;
        for ticket in lost {
            let done = pair.channel.wait(ticket, patient).expect("the transfer has ended");
            assert!(done.outcome.is_err() && done.buffer.is_none(), "{setup:?}: {:?}", done.outcome);
        }
        assert_eq!(row.memory, MemoryOutcome::Quarantined);
        assert_eq!(opened.card.memory().stats().quarantined, quarantined, "{setup:?}");
        context.set_faults([]);
        after(row, context, opened, pair)?.close();
    }
    Ok(())
}

/// A traffic source that never ends its packet: the received part is reported as lost, once, and the channel stops when requested.
/// Waits until more than `bytes` of the endless packet were discarded, and asserts that nothing else is reported.
fn wait_discarded(rx: &mut C2hStream, bytes: u64) {
    for _ in 0..1000 {
        let again = rx.wait_packet(WaitOptions::default().timeout(Duration::from_millis(20)));
        let again = again.map(|packet| packet.len());
        assert!(again.as_ref().is_err_and(Error::is_timeout), "the error is reported once: {again:?}");
        if rx.statistics().discarded_bytes > bytes {
            return;
        }
    }
    panic!("the stream does not flow: {:?}", rx.statistics());
}

fn stream_without_end(context: &mut CaseContext<'_>) -> Verdict {
    // Total bytes of the posted buffers.
    const RING: u64 = 16 * 4096;
    let row = row("stream_without_end");
    context.on(&ENDLESS_PACKET, |context| {
        let opened = context.open();
        let options = C2hStreamOptions::default().buffers(16).buffer_size(4096);
        let mut rx = match opened.card.c2h_stream_with(0, options) {
            Ok(rx) => rx,
            Err(error @ Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }) => {
                return Err(Skip(error.to_string()));
            }
            Err(error) => panic!("{error}"),
        };
        let reported = match rx.wait_packet(WaitOptions::default().timeout(crate::TIMEOUT)) {
            Err(Error { kind: StreamError::Packet(PacketFault::TooLong { bytes: RING }), .. }) => {
                ExpectedError::TooLong
            }
            Err(error) => panic!("{error}"),
            Ok(packet) => panic!("received a packet of {} bytes instead of an error", packet.len()),
        };
        assert_eq!([reported], row.errors);
        wait_discarded(&mut rx, RING);
        rx.abort().expect("a channel that receives data can be stopped");
        assert_eq!((row.memory, row.after), (MemoryOutcome::Returned, AfterFault::Channel));
        drop(rx);
        // The channel is free and can be started again. What follows is still the same packet: its next owner gets nothing of it.
        let mut rx = opened.card.c2h_stream_with(0, options).expect("the channel");
        wait_discarded(&mut rx, 0);
        drop(rx);
        opened.assert_pool(0, 0);
        opened.close();
        Ok(())
    })
}

/// An AER error arrives as an event, once; transfers in flight end normally.
fn bus_error(context: &mut CaseContext<'_>) -> Verdict {
    let row = row("bus_error");
    let opened = context.open();
    let events = opened.card.events().expect("event descriptors");
    if !events.can_have(DeviceEvent::BusError) {
        return Err(Skip("this backend does not report bus errors".to_owned()));
    }
    assert_eq!(events.poll(), None);
    context.bus_error()?;
    let mut pair = opened.pair(opened.setups()[0])?;
    pair.assert_works(1);
    let event = events.wait(crate::TIMEOUT).expect("waited");
    assert_eq!(event, Some(DeviceEvent::BusError));
    assert_eq!(
        (row.errors, row.memory, row.after),
        (&[ExpectedError::BusError][..], MemoryOutcome::Returned, AfterFault::Channel)
    );
    assert_eq!(events.poll(), None, "once");
    context.set_faults([]);
    pair.assert_works(2);
    drop(pair);
    opened.close();
    Ok(())
}
