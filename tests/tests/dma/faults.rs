//! Transfers that fail: bad addresses on either side, poison, impossible counts, lost write-backs. The failed transfer reports its error
//! and position, the later ones are not executed, and the channel works again.

use core::time::Duration;

use fpga_card::FaultKind;
use fpga_driver::{
    Advice, Card, Error, NetworkInterface, OpenOptions, ResourceError, RunMode, Ticket, TransferError,
    errors::{ChannelFault, ErrorKind as _, FaultCause},
};
use fpga_registers::xdma::{
    ChannelBlock, PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock, StatusError as StatusBit, channel_base,
};
use fpga_ring::ring::CountFault;
use fpga_tests::bed::TestSetup;
use fpga_tests::cards::{DMA_BAR, described, network, open_with, peek, poke, with_channels};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

use super::*;

/// Number of faults of this kind in the card's log.
fn logged(bed: &TestBed, kind: FaultKind) -> usize {
    bed.network.with_card(0, |card| card.faults().iter().filter(|fault| fault.kind == kind).count()).unwrap()
}

fn bits(fault: &ChannelFault) -> Vec<StatusBit> {
    fault.status_errors().collect()
}

/// A card without network interface: only the AXI bus knows where its memory of 1 MiB ends.
fn unknown_memory(way: TestSetup) -> TestBed {
    let network = way.network(described("memory: { size: 0x100000 }"));
    let card = open_with(&network, OpenOptions::default().network_interface(NetworkInterface::Ignored));
    TestBed::on(network, card, way, way.options().max_descriptor_length(4096))
}

/// Waits until `last` has ended. Returns the first failed transfer, its fault, and the later ones, which must all have failed with
/// `EarlierFault`.
fn first_fault(bed: &mut TestBed, last: Ticket) -> (Ticket, ChannelFault, Vec<Ticket>) {
    bed.channel.wait_ended(last, WaitOptions::default()).unwrap();
    let mut done = bed.completions().into_iter();
    let first = done.next().unwrap();
    let fault = first.outcome.unwrap_err().kind;
    let later = done
        .map(|done| {
            let fault = done.outcome.unwrap_err();
            assert_eq!((fault.kind.cause.clone(), fault.kind.position), (FaultCause::EarlierFault, None));
            assert_eq!(fault.advice(), Some(Advice::Resubmit), "{fault}");
            done.ticket
        })
        .collect();
    (first.ticket, fault, later)
}

#[test]
fn fault_unmapped_card_address_fails_transfer() {
    for way in SETUPS {
        for behind in [0, 1, 5] {
            let mut bed = unknown_memory(way);
            let memory = bed.register_memory(8 * 4096);
            let iova = {
                let area = bed.channel.deregister_memory(memory).unwrap();
                let iova = area.iova().get();
                (bed.channel.register_memory(area).unwrap(), iova)
            };
            let (memory, iova) = iova;
            let data = bytes(3, 4096);
            bed.put(memory, 0, CardAddr::new(0x8000), &data);
            let first = bed.channel.submit_at(memory, 0, 4096, CardAddr::new(0x8000)).unwrap();
            // Four pages, of which two are in memory.
            let end = CardAddr::new(0x10_0000 - 2 * 4096);
            let bad = bed.channel.submit_at(memory, 4096, 4 * 4096, end).unwrap();
            let later: Vec<_> = (0..behind)
                .map(|_| bed.channel.submit_at(memory, 6 * 4096, 4096, CardAddr::ZERO).unwrap())
                .collect();
            let (ticket, fault, after) = first_fault(&mut bed, later.last().copied().unwrap_or(bad));
            assert_eq!((ticket, after), (bad, later), "{way:?}");
            assert!(bed.channel.has_ended(first));
            let bit = if way.to_card() { StatusBit::CardWriteDecode } else { StatusBit::CardReadDecode };
            assert_eq!(bits(&fault), [bit]);
            let place = fault.position.unwrap();
            assert_eq!((place.descriptor, place.host.get()), (3, iova + 3 * 4096), "{way:?}");
            assert_eq!(
                (place.card, place.length, place.bytes_done),
                (Some(CardAddr::new(0x10_0000)), 4096, 8192)
            );
            for part in ["descriptor 3", "after 8192 bytes"] {
                assert!(fault.to_string().contains(part), "{part:?} is not in {fault}");
            }
            let advice = fault.advice().unwrap().to_string();
            assert!(advice.contains("can be used again"), "{advice}");
            assert!(bed.arrived(memory, 0, CardAddr::new(0x8000), 4096) == data);
            bed.assert_works(3);
        }
    }
}

#[test]
fn fault_poisoned_memory_fails_transfer() {
    const BAD: CardAddr = CardAddr::new(0x4_0000);
    for way in SETUPS {
        let mut bed = unknown_memory(way);
        let data = bytes(1, 3000);
        let places = [CardAddr::new(0x1000), BAD, CardAddr::new(0x8_0000)];
        let buffers = places.map(|at| bed.buffer(at, &data));
        if way.to_card() {
            poke(&bed.network, 0, places[2], &[0xEE; 3000]);
        }
        bed.network.with_card(0, |card| card.poison(CardAddr::new(0x4_0010), 1));
        let mut place = places.into_iter();
        let tickets = buffers.map(|buffer| bed.channel.submit(buffer, place.next().unwrap()).unwrap());
        let [before, bad, later] = tickets.map(|ticket| {
            let done = bed.channel.wait(ticket, WaitOptions::default()).unwrap();
            (done.outcome, done.buffer.unwrap())
        });
        let ((Ok(3000), before), (Err(fault), bad), (Err(earlier), later)) = (before, bad, later) else {
            panic!("{way:?}")
        };
        let bit = if way.to_card() { StatusBit::CardWriteSlave } else { StatusBit::CardReadSlave };
        assert_eq!(bits(&fault.kind), [bit]);
        assert_eq!(fault.kind.position.unwrap().card, Some(BAD));
        assert_eq!((earlier.kind.cause.clone(), earlier.kind.position), (FaultCause::EarlierFault, None));
        assert_eq!(earlier.advice(), Some(Advice::Resubmit), "{earlier}");
        assert!(bed.moved(&before, places[0], &data), "{way:?}: the earlier transfer's data arrived");
        let after = if way.to_card() { peek(&bed.network, 0, places[2], 3000) } else { later.to_vec() };
        assert!(after == [0xEE; 3000], "{way:?}: the later transfer's data did not arrive");
        // A blocking call returns the buffer with the error.
        let failed = bed.channel.transfer(bad, BAD, WaitOptions::default()).unwrap_err();
        assert!(
            matches!(&failed.error.kind, TransferError::Fault(fault) if bits(fault) == [bit]),
            "{failed}"
        );
        assert_eq!(failed.buffer.unwrap().len(), 3000);
        bed.network.with_card(0, |card| card.poison(CardAddr::ZERO, 0));
        bed.assert_works(4);
        drop((before, later));
        assert_pool(&bed.card, AREA, 0);
    }
}

/// Errors in the middle of a stream: a caller that continues to submit without checking outcomes loses only the batch of each error.
pub(crate) fn bad_stream(way: TestSetup) {
    let mut bed = unknown_memory(way);
    let memory = bed.register_memory(64 * 64);
    let mut dice = TestRng::new(12);
    let (mut submitted, mut failed, mut faults) = (0_u64, 0, 0);
    while submitted < 3000 {
        let bad = submitted % 100 == 99;
        let at = if bad { 0x10_0000 } else { 0x100 * (submitted % 64) };
        match bed.channel.submit_at(memory, 0, 64, CardAddr::new(at)) {
            Ok(_) => submitted += 1,
            Err(error) => assert!(error.is_full(), "{error}"),
        }
        if dice.below(7) == 0 {
            bed.channel.poll().unwrap();
            bed.channel.relax();
        }
        for done in bed.completions() {
            failed += 1;
            faults += u32::from(done.outcome.unwrap_err().kind.cause != FaultCause::EarlierFault);
        }
    }
    for done in bed.finish() {
        failed += 1;
        faults += u32::from(done.outcome.unwrap_err().kind.cause != FaultCause::EarlierFault);
    }
    assert_eq!(bed.channel.ended(), 3000);
    assert!((1..=30).contains(&faults), "{way:?}: {faults}");
    assert!(failed >= faults && failed < 3000, "{way:?}: {failed}");
    bed.assert_works(5);
}

#[test]
fn fault_bad_transfers_in_sequence_leave_channel_usable() {
    for way in SETUPS {
        bad_stream(way);
    }
}

/// The count of a circular ring continues: a decreasing count is as impossible as one that is too high.
#[test]
fn fault_decreasing_count_ends_run() {
    for wrong_count in [0, 9, 15, 14] {
        for way in SETUPS.into_iter().filter(|way| matches!(way.mode, RunMode::Credit)) {
            let mut bed = TestBed::new(way);
            let memory = bed.register_memory(4096);
            let submit = |bed: &mut TestBed| bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            for _ in 0..10 {
                let ticket = submit(&mut bed);
                bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            }
            bed.network.with_card(0, |card| card.override_completed_count(Some(wrong_count)));
            let tickets = [0, 1, 2].map(|_| submit(&mut bed));
            let (ticket, fault, later) = first_fault(&mut bed, tickets[2]);
            assert_eq!((ticket, later), (tickets[0], tickets[1..].to_vec()), "{way:?} {wrong_count}");
            assert!(
                matches!(
                    fault.cause,
                    FaultCause::Count(CountFault::BeyondPosted { reported, known: 10, posted: 13 }) if reported == wrong_count
                ),
                "{way:?}: {fault}"
            );
            assert_eq!(fault.position.unwrap().descriptor, 10);
            bed.network.with_card(0, |card| card.override_completed_count(None));
            bed.assert_works(7);
        }
    }
}

/// Both counts in a timeout's message belong to the same run.
#[test]
fn fault_timeout_reports_progress_of_run() {
    for way in SETUPS {
        let mut bed = TestBed::new(way);
        let memory = bed.register_memory(1 << 20);
        for _ in 0..10 {
            let ticket = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            let tickets = [0, 1].map(|_| bed.channel.submit_at(memory, 0, 1 << 20, CardAddr::ZERO).unwrap());
            let none = WaitOptions::default().timeout(Duration::ZERO);
            let error = bed.channel.wait_ended(tickets[1], none).unwrap_err();
            let Error { kind: ChannelError::TimedOut { completed, posted, .. }, .. } = error else {
                panic!("{error}")
            };
            // Both are in a separate run in either mode, because long descriptors do not share a run with blocks of short ones (quirk 1).
            assert_eq!((completed, posted), (0, 2), "{way:?}");
            bed.channel.wait_ended(tickets[1], WaitOptions::default()).unwrap();
        }
    }
}

/// Redirects the write-back word to an unmapped address.
fn divert_writeback(bed: &TestBed) {
    let base = channel_base(bed.setup.direction, 0);
    // No memory is mapped there.
    bed.card.dma_bar().write32(ChannelBlock::POLL_ADDRESS_LOW.address(base), 0xFFFF_F000).unwrap();
    bed.card.dma_bar().write32(ChannelBlock::POLL_ADDRESS_HIGH.address(base), 0).unwrap();
}

#[test]
fn fault_lost_writebacks_lose_no_transfer() {
    for way in SETUPS {
        let mut bed = unknown_memory(way);
        let memory = bed.register_memory(1 << 16);
        divert_writeback(&bed);
        for n in 0..20 {
            let data = bytes(n, 3 * 4096);
            bed.put(memory, 0, CardAddr::ZERO, &data);
            bed.channel.submit_at(memory, 0, 3 * 4096, CardAddr::ZERO).unwrap();
            let ticket = bed.channel.submit_at(memory, 0x8000, 64, CardAddr::new(0x8000)).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            let failed = bed.completions();
            assert!(failed.is_empty(), "{way:?}: {failed:?}");
            assert!(bed.arrived(memory, 0, CardAddr::ZERO, 3 * 4096) == data, "{way:?}");
        }
        assert_eq!(logged(&bed, FaultKind::HostWriteLost), 20);
        // An error is detected too, at the right position.
        let good = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        let bad = bed.channel.submit_at(memory, 0, 64, CardAddr::new(0x10_0000)).unwrap();
        let later = bed.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        let (ticket, fault, after) = first_fault(&mut bed, later);
        assert_eq!((ticket, after), (bad, vec![later]));
        assert!(bed.channel.has_ended(good));
        assert_eq!(bits(&fault).len(), 1);
        bed.assert_works(9);
    }
}

/// Long descriptors and short ones on a card that mishandles several blocks of long ones (quirk 1).
#[test]
fn quirk_1_long_descriptors_transfer() {
    for way in SETUPS {
        let network = network(described("xdma: { long_descriptor_quirk: true }"));
        let card = fpga_tests::cards::open(&network);
        let mut bed = TestBed::on(network, card, way, way.options().descriptors(256).transfers(128));
        let memory = bed.register_memory(4 << 20);
        let mut dice = TestRng::new(11);
        for round in 0..300_u64 {
            let mut last = None;
            for _ in 0..=dice.below(40) {
                let length =
                    if dice.below(6) == 0 { 4097 + dice.below(60_000) } else { 1 + dice.below(4096) };
                match bed.channel.submit_at(memory, dice.below(4096), length, CardAddr::new(round << 16)) {
                    Ok(ticket) => last = Some(ticket),
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
                if dice.below(10) == 0 {
                    bed.channel.poll().unwrap();
                    bed.step(dice.below(10));
                }
            }
            if let Some(last) = last
                && dice.below(3) == 0
            {
                bed.channel.wait_ended(last, WaitOptions::default()).unwrap();
            }
            assert!(bed.completions().is_empty(), "{way:?}: round {round}");
        }
        assert!(bed.finish().is_empty(), "{way:?}");
        assert_eq!(logged(&bed, FaultKind::BadMagic), 0, "{way:?}");
        bed.assert_works(10);
    }
}

#[test]
fn credit_mode_unsupported_is_refused() {
    for way in SETUPS {
        let network = network(with_channels(2, 2));
        let held = SgdmaCommonBlock::CREDIT_MODE.address(SGDMA_COMMON_BASE).get();
        let backend = FaultInjectingBackend::new(network.backend(0), Vec::new());
        let card = Card::from_backend(backend.clone()).unwrap();
        // No channel has credit mode; all channels but this one have it.
        let own = PerChannel::one(way.direction, 0).into_bits();
        for value in [0, 0x000F_000F & !own] {
            backend.replace(vec![ReplacedRegister { bar: DMA_BAR, at: held, value }]);
            match (way.mode, way.take(&card, 0, way.options())) {
                (
                    RunMode::Credit,
                    Err(error @ Error { kind: ResourceError::CreditModeUnsupported { .. }, .. }),
                ) => {
                    assert_eq!(error.advice(), Some(Advice::UseBatchMode), "{error}");
                }
                (RunMode::Batch, Ok(mut channel)) => {
                    let buffer = card.buffer(5000).unwrap();
                    channel.transfer(buffer, CardAddr::ZERO, WaitOptions::default()).unwrap();
                }
                (_, other) => panic!("{way:?}: {other:?}"),
            }
            assert_pool(&card, 0, 0);
        }
        // A refusal leaves the channel free, in either mode.
        backend.replace(Vec::new());
        for mode in [RunMode::Credit, RunMode::Batch, RunMode::Credit] {
            let way = TestSetup { mode, ..way };
            let channel = way.take(&card, 0, way.options()).unwrap();
            let mut bed = TestBed { setup: way, channel, card: card.clone(), network: network.clone() };
            bed.assert_works(11);
        }
    }
}
