//! Transfers that fail: bad addresses on either side, poison, counts that cannot be, write-backs that get lost. The one at fault
//! says so and where, those behind it were not executed, and the channel works again.

use core::time::Duration;

use fpga_card::FaultKind;
use fpga_driver::core::ring::CountFault;
use fpga_driver::pci::DmaPoolOptions;
use fpga_driver::registers::xdma::{
    ChannelBlock, ChannelError as StatusBit, PerChannel, SGDMA_COMMON_BASE, SgdmaCommonBlock, channel_base,
};
use fpga_driver::{
    AttachedMemory, Card, ChannelFault, FaultCause, NetworkInterface, OpenOptions, Piece, ResourceError,
    RunMode, Ticket, Transport,
};
use fpga_tests::cards::{DMA_BAR, described, hurried_world, open_with, peek, with_channels, world};
use fpga_tests::rig::Way;
use fpga_tests::tampered::{Replaced, Tampered};

use super::*;

/// What the card logged of this kind.
fn logged(rig: &Rig, kind: FaultKind) -> usize {
    rig.world.with_card(0, |card| card.faults().iter().filter(|fault| fault.kind == kind).count()).unwrap()
}

fn bits(fault: &ChannelFault) -> Vec<StatusBit> {
    fault.status_errors().collect()
}

/// Each allocation its own mapping, so that a test can take one away.
fn small_regions(way: Way) -> Rig {
    let world = world(with_channels(2, 2));
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 4096;
    let card = open_with(&world, OpenOptions::default().memory(memory));
    Rig::on(world, card, way, way.options())
}

/// A card without network interface: where its memory of 1 MiB ends, nobody knows but the AXI bus.
fn unknown_memory(way: Way) -> Rig {
    let world = way.world(described("memory: { size: 0x100000 }"));
    let card = open_with(&world, OpenOptions::default().network_interface(NetworkInterface::Ignored));
    Rig::on(world, card, way, way.options().max_descriptor_length(4096))
}

/// Attaches `length` bytes that the card cannot reach.
fn attach_lost(rig: &mut Rig, length: usize) -> (AttachedMemory, u64) {
    let area = rig.card.area(length).unwrap();
    let iova = area.iova();
    let mapped = length.next_multiple_of(4096) as u64;
    rig.world.transport(0).unmap_dma(iova, mapped).unwrap();
    (rig.channel.attach(area).unwrap(), iova.get())
}

/// Waits until `last` has ended; the completions of what failed: the first of them, and whether all others are `Earlier`.
fn first_fault(rig: &mut Rig, last: Ticket) -> (Ticket, ChannelFault, Vec<Ticket>) {
    rig.channel.wait_ended(last, WaitOptions::default()).unwrap();
    let mut done = rig.completions().into_iter();
    let first = done.next().unwrap();
    let fault = *first.outcome.unwrap_err();
    let later = done
        .map(|done| {
            let fault = done.outcome.unwrap_err();
            assert_eq!((fault.cause.clone(), fault.place), (FaultCause::Earlier, None));
            assert!(fault.to_string().contains("submit it again"), "{fault}");
            done.ticket
        })
        .collect();
    (first.ticket, fault, later)
}

#[test]
fn host_memory_that_cannot_be_read() {
    for way in WAYS.into_iter().filter(|way| way.to_card()) {
        let mut rig = small_regions(way);
        let good = rig.attach(8192);
        let (lost, iova) = attach_lost(&mut rig, 8192);
        // Some batches before, so that the place is not the first.
        for n in 0..10 {
            let ticket = rig.channel.submit_at(good, 0, 64, CardAddr::new(n << 12)).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        }
        let data = bytes(1, 8192);
        rig.put(good, 0, CardAddr::ZERO, &data);
        let first = rig.channel.submit_at(good, 0, 8192, CardAddr::new(0x1_0000)).unwrap();
        let pieces = [
            Piece { memory: good, offset: 100, length: 1000, card: CardAddr::new(0x2_0000) },
            Piece { memory: lost, offset: 64, length: 2000, card: CardAddr::new(0x3_0000) },
            Piece { memory: good, offset: 0, length: 50, card: CardAddr::new(0x4_0000) },
        ];
        let bad = rig.channel.submit_list(&pieces).unwrap();
        let later = [0, 1].map(|_| rig.channel.submit_at(good, 0, 8192, CardAddr::new(0x5_0000)).unwrap());
        let (ticket, fault, after) = first_fault(&mut rig, later[1]);
        assert_eq!((ticket, after), (bad, later.to_vec()), "{way:?}");
        assert!(rig.channel.has_ended(first));
        assert_eq!(bits(&fault), [StatusBit::HostReadUnsupportedRequest]);
        let place = fault.place.unwrap();
        // Ten alone, one, and the list's first piece came before.
        assert_eq!((place.descriptor, place.host.get()), (12, iova + 64), "{way:?}");
        assert_eq!((place.card, place.length, place.bytes_done), (Some(CardAddr::new(0x3_0000)), 2000, 1000));
        assert!(fault.to_string().contains("descriptor 12"), "{fault}");
        assert_eq!(logged(&rig, FaultKind::HostReadRefused), 1);
        assert!(peek(&rig.world, 0, CardAddr::new(0x1_0000), 8192) == data, "what came before is there");
        assert_eq!(peek(&rig.world, 0, CardAddr::new(0x5_0000), 8192), [0; 8192], "what came after is not");
        rig.assert_works(1);
        for memory in [good, lost] {
            drop(rig.channel.detach(memory).unwrap());
        }
        assert_pool(&rig.card, AREA, 0);
    }
}

#[test]
fn host_memory_that_cannot_be_written_shows_in_the_cards_log_alone() {
    for way in WAYS.into_iter().filter(|way| !way.to_card()) {
        let mut rig = small_regions(way);
        let good = rig.attach(4096);
        let (lost, iova) = attach_lost(&mut rig, 4096);
        rig.memory(lost).write(0, &[0xEE; 4096]).unwrap();
        let data = bytes(2, 4096);
        rig.put(good, 0, CardAddr::ZERO, &data);
        let bad = rig.channel.submit_at(lost, 0, 4096, CardAddr::ZERO).unwrap();
        let behind = rig.channel.submit_at(good, 0, 4096, CardAddr::ZERO).unwrap();
        rig.channel.wait_ended(behind, WaitOptions::default()).unwrap();
        // PCIe gives no answer to a write: the engine reports success.
        assert!(rig.completions().is_empty() && rig.channel.has_ended(bad));
        assert_eq!(rig.arrived(lost, 0, CardAddr::ZERO, 4096), [0xEE; 4096]);
        assert!(rig.arrived(good, 0, CardAddr::ZERO, 4096) == data, "{way:?}");
        let at = rig.world.with_card(0, |card| {
            card.faults()
                .iter()
                .find(|fault| fault.kind == FaultKind::HostWriteLost)
                .map(|fault| fault.address)
        });
        assert_eq!(at, Some(Some(iova)));
        rig.assert_works(2);
    }
}

#[test]
fn card_addresses_that_are_not_there() {
    for way in WAYS {
        for behind in [0, 1, 5] {
            let mut rig = unknown_memory(way);
            let memory = rig.attach(8 * 4096);
            let iova = {
                let area = rig.channel.detach(memory).unwrap();
                let iova = area.iova().get();
                (rig.channel.attach(area).unwrap(), iova)
            };
            let (memory, iova) = iova;
            let data = bytes(3, 4096);
            rig.put(memory, 0, CardAddr::new(0x8000), &data);
            let first = rig.channel.submit_at(memory, 0, 4096, CardAddr::new(0x8000)).unwrap();
            // Four pages, of which two lie in memory.
            let end = CardAddr::new(0x10_0000 - 2 * 4096);
            let bad = rig.channel.submit_at(memory, 4096, 4 * 4096, end).unwrap();
            let later: Vec<_> = (0..behind)
                .map(|_| rig.channel.submit_at(memory, 6 * 4096, 4096, CardAddr::ZERO).unwrap())
                .collect();
            let (ticket, fault, after) = first_fault(&mut rig, later.last().copied().unwrap_or(bad));
            assert_eq!((ticket, after), (bad, later), "{way:?}");
            assert!(rig.channel.has_ended(first));
            let bit = if way.to_card() { StatusBit::CardWriteDecode } else { StatusBit::CardReadDecode };
            assert_eq!(bits(&fault), [bit]);
            let place = fault.place.unwrap();
            assert_eq!((place.descriptor, place.host.get()), (3, iova + 3 * 4096), "{way:?}");
            assert_eq!(
                (place.card, place.length, place.bytes_done),
                (Some(CardAddr::new(0x10_0000)), 4096, 8192)
            );
            assert!(rig.arrived(memory, 0, CardAddr::new(0x8000), 4096) == data);
            rig.assert_works(3);
        }
    }
}

#[test]
fn poisoned_memory() {
    for way in WAYS {
        let mut rig = unknown_memory(way);
        let buffer = rig.card.buffer(64).unwrap();
        rig.world.with_card(0, |card| card.poison(CardAddr::new(0x4_0010), 1));
        let before = rig.channel.submit(buffer, CardAddr::ZERO).unwrap();
        let bad = rig.channel.submit(rig.card.buffer(300).unwrap(), CardAddr::new(0x4_0000)).unwrap();
        let later = rig.channel.submit(rig.card.buffer(64).unwrap(), CardAddr::ZERO).unwrap();
        let outcomes = [before, bad, later].map(|ticket| {
            let done = rig.channel.wait(ticket, WaitOptions::default()).unwrap();
            assert!(done.buffer.is_some());
            done.outcome
        });
        let [Ok(64), Err(bad), Err(later)] = outcomes else { panic!("{way:?}: {outcomes:?}") };
        let bit = if way.to_card() { StatusBit::CardWriteSlave } else { StatusBit::CardReadSlave };
        assert_eq!(bits(&bad), [bit]);
        assert_eq!(bad.place.unwrap().card, Some(CardAddr::new(0x4_0000)));
        assert_eq!(later.cause, FaultCause::Earlier);
        rig.world.with_card(0, |card| card.poison(CardAddr::ZERO, 0));
        rig.assert_works(4);
        assert_pool(&rig.card, AREA, 0);
    }
}

/// An error in the middle of a stream: whoever goes on submitting without a look at outcomes loses the batch and no more.
pub(crate) fn bad_stream(way: Way) {
    let mut rig = unknown_memory(way);
    let memory = rig.attach(64 * 64);
    let mut dice = Dice::new(12);
    let (mut submitted, mut failed, mut faults) = (0_u64, 0, 0);
    while submitted < 3000 {
        let bad = submitted % 100 == 99;
        let at = if bad { 0x10_0000 } else { 0x100 * (submitted % 64) };
        match rig.channel.submit_at(memory, 0, 64, CardAddr::new(at)) {
            Ok(_) => submitted += 1,
            Err(error) => assert!(error.is_full(), "{error}"),
        }
        if dice.below(7) == 0 {
            rig.channel.poll().unwrap();
            rig.channel.relax();
        }
        for done in rig.completions() {
            failed += 1;
            faults += u32::from(done.outcome.unwrap_err().cause != FaultCause::Earlier);
        }
    }
    for done in rig.finish() {
        failed += 1;
        faults += u32::from(done.outcome.unwrap_err().cause != FaultCause::Earlier);
    }
    assert_eq!(rig.channel.ended(), 3000);
    assert!((1..=30).contains(&faults), "{way:?}: {faults}");
    assert!(failed >= faults && failed < 3000, "{way:?}: {failed}");
    rig.assert_works(5);
}

#[test]
fn a_stream_with_bad_transfers_goes_on() {
    for way in WAYS {
        bad_stream(way);
    }
}

#[test]
fn counts_that_cannot_be() {
    for way in WAYS {
        for lie in [4, 100, 0x3FF, 0x400, 0xFFFF, 0x7F_FFFF, 0xFF_FFFE, 0xFF_FFFF] {
            let mut rig = Rig::new(way);
            let memory = rig.attach(4096);
            rig.world.with_card(0, |card| card.override_completed_count(Some(lie)));
            let tickets = [0, 1, 2].map(|_| rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap());
            let (ticket, fault, later) = first_fault(&mut rig, tickets[2]);
            assert_eq!(
                (ticket, later),
                (tickets[0], tickets[1..].to_vec()),
                "{way:?} {lie:#x}: nothing counts"
            );
            let FaultCause::Count(CountFault::BeyondPosted { reported, posted: 3, known: 0 }) = fault.cause
            else {
                panic!("{way:?} {lie:#x}: {fault}")
            };
            assert_eq!((reported, fault.place.unwrap().descriptor), (lie, 0));
            rig.world.with_card(0, |card| card.override_completed_count(None));
            rig.assert_works(6);
            assert!(rig.channel.detach(memory).is_ok());
            assert_pool(&rig.card, AREA, 0);
        }
    }
}

/// An endless run counts on: a count that goes back is as impossible as one that is too high.
#[test]
fn a_count_that_goes_back() {
    for lie in [0, 9, 15, 14] {
        for way in WAYS.into_iter().filter(|way| matches!(way.mode, RunMode::CreditRing)) {
            let mut rig = Rig::new(way);
            let memory = rig.attach(4096);
            let submit = |rig: &mut Rig| rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            for _ in 0..10 {
                let ticket = submit(&mut rig);
                rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            }
            rig.world.with_card(0, |card| card.override_completed_count(Some(lie)));
            let tickets = [0, 1, 2].map(|_| submit(&mut rig));
            let (ticket, fault, later) = first_fault(&mut rig, tickets[2]);
            assert_eq!((ticket, later), (tickets[0], tickets[1..].to_vec()), "{way:?} {lie}");
            assert!(
                matches!(
                    fault.cause,
                    FaultCause::Count(CountFault::BeyondPosted { reported, known: 10, posted: 13 }) if reported == lie
                ),
                "{way:?}: {fault}"
            );
            assert_eq!(fault.place.unwrap().descriptor, 10);
            rig.world.with_card(0, |card| card.override_completed_count(None));
            rig.assert_works(7);
        }
    }
}

#[test]
fn a_count_that_stands_still() {
    for way in WAYS {
        let world = hurried_world(with_channels(2, 2));
        let card = fpga_tests::cards::open(&world);
        let mut rig = Rig::on(world, card, way, way.options());
        let memory = rig.attach(4096);
        rig.world.with_card(0, |card| card.override_completed_count(Some(0)));
        let tickets = [0, 1].map(|_| rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap());
        let limit = WaitOptions::default().timeout(Duration::from_millis(200));
        match (way.mode, rig.channel.wait_ended(tickets[0], limit)) {
            // The engine has stopped, so it shows.
            (RunMode::StopRuns, Ok(())) => {
                let (ticket, fault, later) = first_fault(&mut rig, tickets[1]);
                assert_eq!((ticket, later), (tickets[0], vec![tickets[1]]));
                assert!(matches!(fault.cause, FaultCause::Silent(_)), "{fault}");
            }
            // An engine that waits for credits looks the same as one that works: the time-out is what ends it.
            (RunMode::CreditRing, Err(ChannelError::TimedOut { completed: 0, posted: 2, .. })) => {
                assert_eq!(rig.channel.in_flight(), 2);
                assert_eq!(rig.channel.abort(), Ok(2));
                assert!(
                    rig.completions()
                        .into_iter()
                        .all(|done| done.outcome.unwrap_err().cause == FaultCause::Aborted)
                );
            }
            (_, other) => panic!("{way:?}: {other:?}"),
        }
        rig.world.with_card(0, |card| card.override_completed_count(None));
        rig.assert_works(8);
    }
}

/// Counts of the same run stand beside each other in a time-out's message.
#[test]
fn a_time_out_tells_how_far_the_run_is() {
    for way in WAYS {
        let mut rig = Rig::new(way);
        let memory = rig.attach(1 << 20);
        for _ in 0..10 {
            let ticket = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            let tickets = [0, 1].map(|_| rig.channel.submit_at(memory, 0, 1 << 20, CardAddr::ZERO).unwrap());
            let none = WaitOptions::default().timeout(Duration::ZERO);
            let error = rig.channel.wait_ended(tickets[1], none).unwrap_err();
            let ChannelError::TimedOut { completed, posted, .. } = error else { panic!("{error}") };
            // In a run of their own in either mode: long descriptors share none with blocks of short ones (quirk 1).
            assert_eq!((completed, posted), (0, 2), "{way:?}");
            rig.channel.wait_ended(tickets[1], WaitOptions::default()).unwrap();
        }
    }
}

/// Where the write-back word goes, as the card has it.
fn divert_writeback(rig: &Rig) {
    let base = channel_base(rig.way.direction, 0);
    // Nothing is mapped there.
    rig.card.dma_bar().write32(ChannelBlock::POLL_ADDRESS_LOW.address(base), 0xFFFF_F000).unwrap();
    rig.card.dma_bar().write32(ChannelBlock::POLL_ADDRESS_HIGH.address(base), 0).unwrap();
}

#[test]
fn write_backs_that_get_lost() {
    for way in WAYS {
        let mut rig = unknown_memory(way);
        let memory = rig.attach(1 << 16);
        divert_writeback(&rig);
        for n in 0..20 {
            let data = bytes(n, 3 * 4096);
            rig.put(memory, 0, CardAddr::ZERO, &data);
            rig.channel.submit_at(memory, 0, 3 * 4096, CardAddr::ZERO).unwrap();
            let ticket = rig.channel.submit_at(memory, 0x8000, 64, CardAddr::new(0x8000)).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            let failed = rig.completions();
            assert!(failed.is_empty(), "{way:?}: {failed:?}");
            assert!(rig.arrived(memory, 0, CardAddr::ZERO, 3 * 4096) == data, "{way:?}");
        }
        assert_eq!(logged(&rig, FaultKind::HostWriteLost), 20);
        // An error is found too, and said to be where it is.
        let good = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        let bad = rig.channel.submit_at(memory, 0, 64, CardAddr::new(0x10_0000)).unwrap();
        let later = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
        let (ticket, fault, after) = first_fault(&mut rig, later);
        assert_eq!((ticket, after), (bad, vec![later]));
        assert!(rig.channel.has_ended(good));
        assert_eq!(bits(&fault).len(), 1);
        rig.assert_works(9);
    }
}

/// Descriptors that the card cannot fetch any more, in the middle of an endless run as at the beginning.
#[test]
fn descriptors_that_cannot_be_fetched() {
    for way in WAYS {
        for before in [0, 3] {
            let mut rig = small_regions(way);
            let memory = rig.attach(4096);
            for _ in 0..before {
                let ticket = rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap();
                rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            }
            // The ring was the first piece of memory that the card gave out.
            let word = |low: fpga_driver::BarOffset| {
                u64::from(fpga_tests::cards::register(&rig.world, 0, DMA_BAR, low))
            };
            let base = channel_base(way.direction, 0);
            let writeback = word(ChannelBlock::POLL_ADDRESS_LOW.address(base))
                | word(ChannelBlock::POLL_ADDRESS_HIGH.address(base)) << 32;
            let ring = (writeback - 64) - 1024 * 32;
            let mapped = (1024 * 32 + 4096) as u64;
            rig.world.transport(0).unmap_dma(fpga_driver::Iova::new(ring), mapped).unwrap();
            let tickets = [0, 1].map(|_| rig.channel.submit_at(memory, 0, 64, CardAddr::ZERO).unwrap());
            let (ticket, fault, later) = first_fault(&mut rig, tickets[1]);
            assert_eq!((ticket, later), (tickets[0], vec![tickets[1]]), "{way:?}");
            assert_eq!(bits(&fault), [StatusBit::DescriptorUnsupportedRequest]);
            assert_eq!(fault.place.unwrap().descriptor, before);
            assert!(rig.channel.detach(memory).is_ok());
            // Its neighbour's descriptors are elsewhere.
            let mut other = way.take(&rig.card, 1, way.options()).unwrap();
            let buffer = rig.card.buffer(5000).unwrap();
            other.transfer(buffer, CardAddr::ZERO, WaitOptions::default()).unwrap();
        }
    }
}

/// Long descriptors and short ones on a card that mishandles several blocks of long ones (quirk 1).
#[test]
fn the_long_descriptor_quirk() {
    for way in WAYS {
        let world = world(described("xdma: { long_descriptor_quirk: true }"));
        let card = fpga_tests::cards::open(&world);
        let mut rig = Rig::on(world, card, way, way.options().descriptors(256).transfers(128));
        let memory = rig.attach(4 << 20);
        let mut dice = Dice::new(11);
        for round in 0..300_u64 {
            let mut last = None;
            for _ in 0..=dice.below(40) {
                let length =
                    if dice.below(6) == 0 { 4097 + dice.below(60_000) } else { 1 + dice.below(4096) };
                match rig.channel.submit_at(memory, dice.below(4096), length, CardAddr::new(round << 16)) {
                    Ok(ticket) => last = Some(ticket),
                    Err(error) => assert!(error.is_full(), "{error}"),
                }
                if dice.below(10) == 0 {
                    rig.channel.poll().unwrap();
                    rig.step(dice.below(10));
                }
            }
            if let Some(last) = last
                && dice.below(3) == 0
            {
                rig.channel.wait_ended(last, WaitOptions::default()).unwrap();
            }
            assert!(rig.completions().is_empty(), "{way:?}: round {round}");
        }
        assert!(rig.finish().is_empty(), "{way:?}");
        assert_eq!(logged(&rig, FaultKind::BadMagic), 0, "{way:?}");
        rig.assert_works(10);
    }
}

#[test]
fn a_card_without_credit_mode() {
    for way in WAYS {
        let world = world(with_channels(2, 2));
        let held = SgdmaCommonBlock::CREDIT_MODE.address(SGDMA_COMMON_BASE).get();
        let transport = Tampered::new(world.transport(0), Vec::new());
        let card = Card::open(transport.clone()).unwrap();
        // None at all; and all but this one.
        let own = PerChannel::one(way.direction, 0).into_bits();
        for value in [0, 0x000F_000F & !own] {
            transport.replace(vec![Replaced { bar: DMA_BAR, at: held, value }]);
            match (way.mode, way.take(&card, 0, way.options())) {
                (RunMode::CreditRing, Err(error @ ResourceError::NoCreditMode { .. })) => {
                    assert!(error.to_string().contains("use stop runs"), "{error}");
                }
                (RunMode::StopRuns, Ok(mut channel)) => {
                    let buffer = card.buffer(5000).unwrap();
                    channel.transfer(buffer, CardAddr::ZERO, WaitOptions::default()).unwrap();
                }
                (_, other) => panic!("{way:?}: {other:?}"),
            }
            assert_pool(&card, 0, 0);
        }
        // A refusal leaves the channel to be taken, in either mode.
        transport.replace(Vec::new());
        for mode in [RunMode::CreditRing, RunMode::StopRuns, RunMode::CreditRing] {
            let way = Way { mode, ..way };
            let channel = way.take(&card, 0, way.options()).unwrap();
            let mut rig = Rig { way, channel, card: card.clone(), world: world.clone() };
            rig.assert_works(11);
        }
    }
}
