//! Transfers from and to parts of registered memory.

use fpga_driver::{Card, Error};
use fpga_pci::{DmaAccess, SharedMemory};
use fpga_ring::ring::RefusalReason;
use fpga_sim::SimNetwork;
use fpga_tests::cards::{peek, poke, with_channels};
use fpga_tests::causes::Lower as _;

use super::*;

const AT: CardAddr = CardAddr::new(0x40_0000);

#[test]
fn registered_success_is_counted_without_completion() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        let tickets: Vec<_> =
            (0..10).map(|n| bed.channel.submit_at(memory, n * 100, 100, AT).unwrap()).collect();
        assert_eq!((bed.channel.ended(), bed.channel.in_flight()), (0, 10));
        bed.channel.wait_ended(tickets[4], WaitOptions::default()).unwrap();
        assert!(tickets[..5].iter().all(|ticket| bed.channel.has_ended(*ticket)));
        bed.channel.wait_ended(tickets[9], WaitOptions::default()).unwrap();
        assert_eq!((bed.channel.ended(), bed.channel.in_flight()), (10, 0));
        // Waiting again, also for transfers that ended long ago, returns at once.
        for ticket in &tickets {
            bed.channel.wait_ended(*ticket, WaitOptions::default()).unwrap();
            let nothing = bed.channel.wait(*ticket, WaitOptions::default());
            assert!(matches!(nothing, Err(Error { kind: ChannelError::UnknownTicket, .. })), "{nothing:?}");
        }
        assert!(bed.channel.next_completion().is_none());
        // A ticket of another channel, with a number that this channel has not reached.
        let mut other = setup.take(&bed.card, 1, setup.options()).unwrap();
        let unknown = other.wait_ended(tickets[0], WaitOptions::default());
        assert!(matches!(unknown, Err(Error { kind: ChannelError::UnknownTicket, .. })), "{unknown:?}");
        assert!(!other.has_ended(tickets[0]));
    }
}

/// Asserts that every call with this handle is refused.
fn assert_stale(bed: &mut TestBed, memory: fpga_driver::MemoryHandle) {
    let refused = bed.channel.submit_at(memory, 0, 64, AT);
    assert!(
        matches!(refused, Err(Error { kind: SubmitError::NotRegistered, .. })),
        "{:?}: {refused:?}",
        bed.setup
    );
    let entry = fpga_driver::ScatterGatherEntry { memory, offset: 0, length: 64, card: AT };
    let refused = bed.channel.submit_list(&[entry]);
    assert!(
        matches!(refused, Err(Error { kind: SubmitError::NotRegistered, .. })),
        "{:?}: {refused:?}",
        bed.setup
    );
    let refused = bed.channel.deregister_memory(memory).map(|area| area.len());
    assert!(
        matches!(refused, Err(Error { kind: ChannelError::NotRegistered, .. })),
        "{:?}: {refused:?}",
        bed.setup
    );
    assert!(bed.channel.memory(memory).is_none());
    assert_eq!(bed.channel.in_flight(), 0);
}

#[test]
fn registered_memory_in_flight_cannot_be_deregistered() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let (a, b, idle) = (bed.register_memory(8192), bed.register_memory(8192), bed.register_memory(64));
        let data = [bytes(1, 8192), bytes(2, 8192)];
        let places = [AT, AT.checked_add(0x1_0000).unwrap()];
        bed.put(a, 0, places[0], &data[0]);
        bed.put(b, 0, places[1], &data[1]);
        let first = bed.channel.submit_at(a, 0, 8192, places[0]).unwrap();
        // Memory is in use while its transfer is queued, posted, or executed. Memory without transfers can be deregistered at any time.
        let held = |bed: &mut TestBed, memory| {
            let refused = bed.channel.deregister_memory(memory).map(|area| area.len());
            assert!(
                matches!(refused, Err(Error { kind: ChannelError::MemoryInUse, .. })),
                "{setup:?}: {refused:?}"
            );
        };
        held(&mut bed, a);
        bed.channel.poll().unwrap();
        held(&mut bed, a);
        let last = bed.channel.submit_at(b, 0, 8192, places[1]).unwrap();
        bed.network.step_until_idle();
        held(&mut bed, a);
        assert_eq!(bed.channel.deregister_memory(idle).unwrap().len(), 64);
        bed.channel.wait_ended(first, WaitOptions::default()).unwrap();
        let area = bed.channel.deregister_memory(a).unwrap();
        let mut found = vec![0; 8192];
        area.memory().read(0, &mut found).unwrap();
        assert!(found == data[0] && peek(&bed.network, 0, places[0], 8192) == data[0]);
        bed.channel.wait_ended(last, WaitOptions::default()).unwrap();
        assert_stale(&mut bed, a);
        // The table slot is used again, the handle is not.
        let again = bed.channel.register_memory(area).unwrap();
        assert_ne!(again, a);
        assert_stale(&mut bed, a);
        assert_stale(&mut bed, idle);
        for memory in [again, b] {
            let ticket = bed.channel.submit_at(memory, 1, 4097, AT).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert!(bed.channel.deregister_memory(memory).is_ok());
        }
        drop(bed.channel);
        assert_pool(&bed.card, 0, 0);
        drop(bed.card);
        assert_closed(&bed.network, 0);
    }
}

#[test]
fn registered_memory_of_other_channel_is_refused() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let mut other = setup.take(&bed.card, 1, setup.options()).unwrap();
        let mut area = bed.card.registered_memory(4096).unwrap();
        // As many registrations as this channel has, and more: both channels give out the same numbers.
        for _ in 0..3 {
            let _registered = bed.register_memory(4096);
            let memory = other.register_memory(area).unwrap();
            assert_stale(&mut bed, memory);
            assert!(other.memory(memory).is_some());
            area = other.deregister_memory(memory).unwrap();
        }
        // A handle of an earlier channel with the same number is refused too.
        let number_before = bed.register_memory(4096);
        drop(bed.channel);
        bed.channel = setup.take(&bed.card, 0, setup.options()).unwrap();
        for _ in 0..5 {
            let _ = bed.register_memory(64);
        }
        assert_stale(&mut bed, number_before);
    }
}

#[test]
fn registered_memory_of_other_card_is_returned() {
    for setup in SETUPS {
        let network = SimNetwork::builder().card(with_channels(1, 1)).cards(1).build().unwrap();
        let (card, other_card) = (
            Card::from_backend(network.backend(0)).unwrap(),
            Card::from_backend(network.backend(1)).unwrap(),
        );
        let mut channel = setup.take(&card, 0, setup.options()).unwrap();
        let area = other_card.registered_memory(4096).unwrap();
        area.memory().write(0, &[7; 64]).unwrap();
        let iova = area.iova();
        let refused = channel.register_memory(area).unwrap_err();
        assert!(matches!(refused.error.kind, SubmitError::ForeignBuffer), "{refused}");
        assert_eq!((refused.payload.iova(), refused.payload.len()), (iova, 4096));
        let mut found = [0; 64];
        refused.payload.memory().read(0, &mut found).unwrap();
        assert_eq!(found, [7; 64]);
        drop(refused);
        assert_pool(&other_card, 0, 0);
        assert_pool(&card, AREA, 0);
    }
}

#[test]
fn registered_memory_of_both_directions_makes_round_trip() {
    let card = Card::open("mock").unwrap();
    let (mut h2c, mut c2h) = (card.h2c(0).unwrap(), card.c2h(0).unwrap());
    let memory = card.registered_memory(8192).unwrap();
    let (to, from) =
        (h2c.register_memory(memory.clone()).unwrap(), c2h.register_memory(memory.clone()).unwrap());
    memory.memory().write(0, &[0x5A; 4096]).unwrap();
    let sent = h2c.submit_at(to, 0, 4096, CardAddr::new(0x1000)).unwrap();
    h2c.wait_ended(sent, WaitOptions::default()).unwrap();
    let received = c2h.submit_at(from, 4096, 4096, CardAddr::new(0x1000)).unwrap();
    c2h.wait_ended(received, WaitOptions::default()).unwrap();
    // Closing one channel leaves the memory to the other, and to the program.
    drop(h2c);
    let again = c2h.submit_at(from, 0, 64, CardAddr::new(0x1000)).unwrap();
    c2h.wait_ended(again, WaitOptions::default()).unwrap();
    drop(c2h);
    let mut bytes = [0; 4096];
    memory.memory().read(4096, &mut bytes).unwrap();
    assert_eq!(bytes, [0x5A; 4096]);
}

#[test]
fn registered_caller_memory_transfers() {
    for setup in SETUPS {
        let mut bed = TestBed::with(setup, setup.options().max_descriptor_length(4096));
        let memory = SharedMemory::memfd("own", 1 << 20).unwrap();
        let area = bed.card.map_memory(memory.clone(), DmaAccess::Both).unwrap();
        let own = bed.channel.register_memory(area).unwrap();
        let (mapped, data) = (bed.network.mapped_bytes(0), bytes(5, 100_000));
        bed.put(own, 4321, AT, &data);
        let ticket = bed.channel.submit_at(own, 4321, 100_000, AT).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        // The caller reads its own memory: there was no copy.
        let mut found = vec![0; 100_000];
        memory.view().read(4321, &mut found).unwrap();
        assert!(found == data && peek(&bed.network, 0, AT, 100_000) == data, "{setup:?}");
        // It is unmapped when it is deregistered and dropped, or when its channel is dropped in the middle of a transfer.
        drop(bed.channel.deregister_memory(own).unwrap());
        assert_eq!(bed.network.mapped_bytes(0), mapped - (1 << 20), "{setup:?}");
        let area = bed.card.map_memory(memory.clone(), DmaAccess::Both).unwrap();
        let own = bed.channel.register_memory(area).unwrap();
        bed.channel.submit_at(own, 0, 1 << 20, AT).unwrap();
        bed.channel.poll().unwrap();
        bed.step(20);
        drop(bed.channel);
        assert_eq!(bed.network.mapped_bytes(0), mapped - (1 << 20), "{setup:?}");
        let stats = assert_pool(&bed.card, 0, 0);
        assert_eq!((stats.caller_areas, stats.caller_bytes), (0, 0));
        memory.view().read(0, &mut found).unwrap();
    }
}

#[test]
fn registered_part_outside_is_refused() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(1000);
        assert_eq!(bed.memory(memory).len(), 1000);
        for (offset, length) in [
            (0, 1001),
            (1, 1000),
            (999, 2),
            (1000, 1),
            (1001, 0),
            (1001, 1),
            (usize::MAX, 1),
            (1, usize::MAX),
            (usize::MAX, usize::MAX),
        ] {
            let refused = bed.channel.submit_at(memory, offset, length, AT);
            let Err(Error {
                kind: SubmitError::MemoryRange { offset: o, length: l, size: 1000, .. }, ..
            }) = refused
            else {
                panic!("{offset} {length}: {refused:?}")
            };
            assert_eq!((o, l), (offset, length));
        }
        for offset in [0, 500, 1000] {
            let refused = bed.channel.submit_at(memory, offset, 0, AT);
            assert!(
                matches!(&refused, Err(error) if matches!(error.kind.lower(), Some(RefusalReason::Empty))),
                "{refused:?}"
            );
        }
        for at in [0x2_0000_0000 - 999, 0x2_0000_0000, u64::MAX - 998, u64::MAX] {
            let refused = bed.channel.submit_at(memory, 0, 1000, CardAddr::new(at));
            assert!(
                matches!(refused, Err(Error { kind: SubmitError::CardMemory { length: 1000, .. }, .. })),
                "{refused:?}"
            );
        }
        assert_eq!(bed.channel.in_flight(), 0);
        // To the last byte on both sides.
        let ticket = bed.channel.submit_at(memory, 0, 1000, CardAddr::new(0x2_0000_0000 - 1000)).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        let ticket = bed.channel.submit_at(memory, 999, 1, CardAddr::new(0x2_0000_0000 - 1)).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
    }
}

#[test]
fn registered_transfer_longer_than_descriptor_is_split() {
    // A little more than 2^28 bytes; descriptors have a length field of 28 bits.
    const LENGTH: usize = (1 << 28) + 4097;
    for setup in SETUPS.into_iter().filter(|setup| matches!(setup.direction, Direction::C2h)) {
        let network = fpga_tests::cards::network(with_channels(2, 2));
        let mut memory = fpga_pci::DmaPoolOptions::default();
        memory.limit = 1 << 30;
        let card = fpga_tests::cards::open_with(&network, fpga_driver::OpenOptions::default().memory(memory));
        let mut bed = TestBed::on(network, card, setup, setup.options());
        let memory = bed.register_memory(LENGTH);
        let before = bed.card.counters().unwrap().descriptors;
        // Card memory that was never written reads as zeros.
        for offset in [0, (1 << 28) - 4096, LENGTH - 8] {
            bed.memory(memory).write(offset, &[0xFF; 8]).unwrap();
        }
        poke(&bed.network, 0, AT.checked_add(LENGTH as u64 - 8).unwrap(), &[1; 8]);
        let ticket = bed.channel.submit_at(memory, 0, LENGTH, AT).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert_eq!(bed.card.counters().unwrap().descriptors - before, 2);
        for (offset, expected) in [(0, 0), ((1 << 28) - 4096, 0), (LENGTH - 8, 1)] {
            assert_eq!(bed.arrived(memory, offset, AT, 8), [expected; 8], "at {offset}");
        }
    }
}
