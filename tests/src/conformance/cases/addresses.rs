//! Host addresses that the IOMMU refuses. Memory stays unchanged. A fault that the card can detect is reported as a typed error with
//! channel, descriptor and address. The channel works afterwards.
//!
//! A posted write has no completion: the engine cannot detect that a C2H transfer was refused (PG195 has no bit for it). The fault shows in
//! the IOMMU's log, in a simulated card's fault log, and in the self-test, which checks the data that has arrived.

use fpga_card::FaultKind;
use fpga_diag::validate::Status;
use fpga_driver::{
    CardAddr, MemoryHandle, OpenOptions, ScatterGatherEntry, Ticket,
    errors::{ChannelFault, FaultCause},
};
use fpga_pci::{DmaAccess, DmaPoolOptions, SharedMemory};
use fpga_registers::xdma::StatusError as StatusBit;

use super::{Case, CaseContext, Verdict, case};
use crate::bytes;
use crate::conformance::Capability;
use crate::conformance::case_context::{ChannelPair, Opened, long_wait};
use crate::fault_injecting::Mapping;

pub(super) const CASES: &[Case] = &[
    case("iommu.unmapped_source", &[Capability::DmaRefusal], unmapped_source),
    case("iommu.unmapped_destination", &[Capability::DmaRefusal], unmapped_destination),
    case("iommu.read_only_destination", &[Capability::DmaRefusal], read_only_destination),
    case("iommu.unmapped_descriptors", &[Capability::DmaRefusal], unmapped_descriptors),
    case("iommu.validate_finds_lost_writes", &[Capability::DmaRefusal], validate_finds),
];

const LENGTH: usize = 8192;

/// Opens the card so that every allocation has its own mapping.
fn open(context: &CaseContext<'_>) -> Opened {
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 4096;
    context.open_with(OpenOptions::default().memory(memory))
}

/// Runs `make` and returns the mapping that it adds, if any.
fn mapping<T>(opened: &Opened, make: impl FnOnce() -> T) -> (T, Option<Mapping>) {
    let before = opened.injector.mappings();
    let made = make();
    let new =
        opened.injector.mappings().into_iter().find(|now| before.iter().all(|old| old.iova != now.iova));
    (made, new)
}

/// Registers two pages of memory that have their own mapping, and returns that mapping.
fn register_memory(opened: &Opened, pair: &mut ChannelPair) -> (MemoryHandle, Mapping) {
    let memory = SharedMemory::memfd("two-pages", LENGTH).expect("memory");
    let (area, mapping) =
        mapping(opened, || opened.card.map_memory(memory, DmaAccess::Both).expect("mapped"));
    (pair.channel.register_memory(area).expect("registration succeeds"), mapping.expect("a mapping"))
}

/// Returns the first failed transfer with its fault, and the later ones, which were not executed.
fn failed(pair: &mut ChannelPair, last: Ticket) -> (Ticket, ChannelFault, Vec<Ticket>) {
    pair.channel.wait_ended(last, long_wait()).expect("the transfers complete");
    let first = pair.channel.next_completion().expect("a failed transfer");
    let later = core::iter::from_fn(|| pair.channel.next_completion())
        .map(|later| {
            assert_eq!(later.outcome.map_err(|fault| fault.kind.cause), Err(FaultCause::EarlierFault));
            later.ticket
        })
        .collect();
    match first.outcome {
        Err(fault) => (first.ticket, fault.kind, later),
        Ok(_) => panic!("{:?}: the transfer succeeded", pair.setup),
    }
}

/// Number of faults of this kind in the log of a card in this process; 0 for other cards.
fn logged(context: &CaseContext<'_>, kind: FaultKind) -> usize {
    let logged = |card: &mut fpga_card::Card| card.faults().iter().filter(|fault| fault.kind == kind).count();
    context.simulated().and_then(|(network, number)| network.with_card(number, logged)).unwrap_or(0)
}

/// The error names the list entry that cannot be read, independent of earlier transfers on its channel.
fn unmapped_source(context: &mut CaseContext<'_>) -> Verdict {
    let opened = open(context);
    opened.needs(1 << 20)?;
    for setup in opened.setups().into_iter().filter(|setup| setup.to_card()) {
        let mut pair = opened.pair(setup)?;
        let (good, _) = register_memory(&opened, &mut pair);
        let (lost, gone) = register_memory(&opened, &mut pair);
        let (data, untouched) = (bytes(1, LENGTH), bytes(2, LENGTH));
        let (first_at, bad_at, later_at) = (pair.at(0), pair.at(0x1_0000), pair.at(0x2_0000));
        pair.write(bad_at, &untouched);
        pair.write(later_at, &untouched);
        pair.channel.memory(good).expect("registered memory").write(0, &data).expect("inside");
        opened.injector.unmap_behind_driver(&gone).expect("unmapped");
        for _ in 0..10 {
            let ticket = pair.channel.submit_at(good, 0, 64, first_at).expect("accepted");
            pair.channel.wait_ended(ticket, long_wait()).expect("the transfer completes");
        }
        // Each earlier transfer had one descriptor; the first transfer and the list's first entry follow.
        let before = u32::try_from(pair.channel.ended() + 2).expect("an index in the ring");
        let log = logged(context, FaultKind::HostReadRefused);
        let first = pair.channel.submit_at(good, 0, LENGTH, first_at).expect("accepted");
        let entries = [
            ScatterGatherEntry { memory: good, offset: 100, length: 1000, card: pair.at(0x3_0000) },
            ScatterGatherEntry { memory: lost, offset: 64, length: 2000, card: bad_at },
            ScatterGatherEntry { memory: good, offset: 0, length: 50, card: pair.at(0x4_0000) },
        ];
        let bad = pair.channel.submit_list(&entries).expect("accepted");
        let later = [0, 1].map(|_| pair.channel.submit_at(good, 0, LENGTH, later_at).expect("accepted"));
        let (ticket, fault, after) = failed(&mut pair, later[1]);
        assert_eq!((ticket, after), (bad, later.to_vec()), "{setup:?}: {fault}");
        let refused = usize::from(context.simulated().is_some());
        assert_eq!(logged(context, FaultKind::HostReadRefused) - log, refused, "{setup:?}: the card's log");
        assert!(pair.channel.has_ended(first));
        let bits: Vec<_> = fault.status_errors().collect();
        assert!(
            matches!(bits[..], [StatusBit::HostReadUnsupportedRequest | StatusBit::HostReadCompleterAbort]),
            "{setup:?}: {fault}"
        );
        let place = fault.position.expect("the fault names the descriptor");
        assert_eq!(
            (place.host.get(), place.card),
            (gone.iova.get() + 64, Some(bad_at)),
            "{setup:?}: {fault}"
        );
        assert_eq!(
            (place.descriptor, place.length, place.bytes_done),
            (before, 2000, 1000),
            "{setup:?}: {fault}"
        );
        assert!(fault.to_string().contains(&format!("descriptor {before}")), "{fault}");
        assert!(pair.read(first_at, LENGTH) == data, "{setup:?}: the earlier transfer's data arrived");
        assert!(pair.read(bad_at, LENGTH) == untouched, "{setup:?}: the failed transfer wrote no byte");
        assert!(pair.read(later_at, LENGTH) == untouched, "{setup:?}: the later transfer was not executed");
        pair.assert_works(1);
        for memory in [good, lost] {
            drop(pair.channel.deregister_memory(memory).expect("nothing is in flight"));
        }
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

/// Checks the fault log of a card in this process: it reports faults that no status bit shows.
fn assert_logged(context: &CaseContext<'_>, at: u64) {
    if let Some((network, number)) = context.simulated() {
        let logged = network.with_card(number, |card| {
            card.faults()
                .iter()
                .filter(|fault| fault.kind == FaultKind::HostWriteLost)
                .any(|fault| fault.address == at)
        });
        assert_eq!(logged, Some(true), "the card's log names {at:#x}");
    }
}

/// A destination that the IOMMU does not let the card write, with either kind of refusal.
fn refused_destination(context: &mut CaseContext<'_>, refuse: fn(&Opened, &Mapping)) -> Verdict {
    let opened = open(context);
    opened.needs(1 << 20)?;
    for setup in opened.setups().into_iter().filter(|setup| !setup.to_card()) {
        let mut pair = opened.pair(setup)?;
        let (good, _) = register_memory(&opened, &mut pair);
        let (lost, gone) = register_memory(&opened, &mut pair);
        let (data, untouched) = (bytes(3, LENGTH), bytes(4, LENGTH));
        let at = pair.at(0);
        pair.write(at, &data);
        pair.channel.memory(lost).expect("registered memory").write(0, &untouched).expect("inside");
        refuse(&opened, &gone);
        let bad = pair.channel.submit_at(lost, 0, LENGTH, at).expect("accepted");
        let behind = pair.channel.submit_at(good, 0, LENGTH, at).expect("accepted");
        pair.channel.wait_ended(behind, long_wait()).expect("the engine cannot detect the refusal");
        assert!(
            pair.channel.has_ended(bad) && pair.channel.next_completion().is_none(),
            "{setup:?}: a fault"
        );
        let mut now = vec![0; LENGTH];
        pair.channel.memory(lost).expect("registered memory").read(0, &mut now).expect("inside");
        assert!(now == untouched, "{setup:?}: memory that the card may not write is unchanged");
        pair.channel.memory(good).expect("registered memory").read(0, &mut now).expect("inside");
        assert!(now == data, "{setup:?}: the later transfer's data arrived");
        assert_logged(context, gone.iova.get());
        pair.assert_works(2);
    }
    opened.assert_pool(0, 0);
    opened.close();
    Ok(())
}

fn unmapped_destination(context: &mut CaseContext<'_>) -> Verdict {
    refused_destination(context, |opened, gone| opened.injector.unmap_behind_driver(gone).expect("unmapped"))
}

fn read_only_destination(context: &mut CaseContext<'_>) -> Verdict {
    refused_destination(context, |opened, gone| {
        opened.injector.restrict_access(gone, DmaAccess::ReadByDevice).expect("mapped again");
    })
}

/// The ring's descriptors cannot be fetched any more, at the start of its run or in the middle. Its channel reports the fault, and works as
/// soon as they can be fetched. The neighbouring channel is not affected.
fn unmapped_descriptors(context: &mut CaseContext<'_>) -> Verdict {
    let probe = context.open();
    let setups = probe.setups();
    probe.close();
    for (setup, before) in setups.into_iter().flat_map(|setup| [(setup, 0), (setup, 3)]) {
        let opened = open(context);
        opened.needs(1 << 20)?;
        // The channel allocates the card's first memory here, so that the ring has its own mapping.
        let (channel, ring) = mapping(&opened, || setup.take(&opened.card, 0, setup.options()));
        let (Ok(mut channel), Some(ring)) = (channel, ring) else { continue };
        let memory = channel
            .register_memory(opened.card.registered_memory(LENGTH).expect("DMA memory"))
            .expect("registration succeeds");
        let place: CardAddr = opened.at(0);
        for _ in 0..before {
            let ticket = channel.submit_at(memory, 0, 64, place).expect("accepted");
            channel.wait_ended(ticket, long_wait()).expect("the transfer completes");
        }
        opened.injector.unmap_behind_driver(&ring).expect("unmapped");
        let tickets = [0, 1].map(|_| channel.submit_at(memory, 0, 64, place).expect("accepted"));
        channel.wait_ended(tickets[1], long_wait()).expect("the transfers complete");
        let first = channel.next_completion().expect("the first transfer has a completion");
        assert_eq!(first.ticket, tickets[0]);
        let fault = first.outcome.expect_err("the descriptor fetch fails").kind;
        let bits: Vec<_> = fault.status_errors().collect();
        assert!(
            matches!(
                bits[..],
                [StatusBit::DescriptorUnsupportedRequest | StatusBit::DescriptorCompleterAbort]
            ),
            "{setup:?}: {fault}"
        );
        assert_eq!(fault.position.expect("the fault names the descriptor").descriptor, before);
        let later = channel.next_completion().expect("the second transfer has a completion");
        assert_eq!(later.ticket, tickets[1]);
        assert_eq!(later.outcome.map_err(|fault| fault.kind.cause), Err(FaultCause::EarlierFault));
        if opened.card.info().xdma.count(setup.direction) > 1 {
            let mut other = setup.take(&opened.card, 1, setup.options()).expect("a free channel");
            let buffer = opened.card.buffer(5000).expect("DMA memory");
            other.transfer(buffer, place, long_wait()).unwrap_or_else(|failed| panic!("{setup:?}: {failed}"));
        }
        opened.injector.remap(&ring).expect("mapped again");
        let ticket = channel.submit_at(memory, 0, 64, place).expect("accepted");
        channel.wait_ended(ticket, long_wait()).expect("the transfer completes");
        assert!(channel.next_completion().is_none(), "{setup:?}: the transfer succeeds without a completion");
        drop(channel.deregister_memory(memory).expect("nothing is in flight"));
        drop(channel);
        opened.pair(setup)?.assert_works(3);
        opened.assert_pool(0, 0);
        opened.close();
    }
    Ok(())
}

/// An IOMMU that refuses all writes of the card: the self-test reports it, and for which direction.
fn validate_finds(context: &mut CaseContext<'_>) -> Verdict {
    let injector = context.open_backend();
    injector.restrict_all_access(Some(DmaAccess::ReadByDevice));
    let opened = Opened::on(injector, OpenOptions::default());
    let report = super::validate::report(&opened);
    assert!(report.has_failed(), "{report:#?}");
    let failed: Vec<_> =
        report.tests.iter().filter(|test| test.status == Status::Fail).map(|test| &test.name).collect();
    assert!(
        failed.iter().any(|name| ["transfer", "memory", "writeback"].iter().any(|part| name.contains(part))),
        "{failed:?}"
    );
    opened.assert_pool(0, 0);
    opened.close();
    let opened = context.open();
    opened.pair(opened.setups()[0])?.assert_works(4);
    opened.close();
    Ok(())
}
