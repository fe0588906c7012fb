//! Rings of copies inside the card: whole stack, both ways for descriptors.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is the failure report")]

use std::time::Duration;

use fpga_driver::core::cdma_ring::{ConfigError, RefusalReason};
use fpga_driver::mock::{CardFailure, World};
use fpga_driver::registers::cdma::{CdmaBlock, Cdmasr};
use fpga_driver::registers::xdma::{IRQ_BASE, IrqBlock};
use fpga_driver::{
    BarOffset, Card, CardAddr, CdmaCompletion, CdmaError, CdmaFaultCause, CdmaRing, CdmaRingError,
    CdmaRingOptions, CdmaSegment, CdmaSubmitError, DescriptorPath, NetworkInterface, OpenOptions, Ticket,
    WaitMode, WaitOptions,
};
use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, described, hurried_world, open, open_with, peek, poke, register,
    seeded, with_channels, world,
};
use fpga_tests::tampered::{Replaced, Tampered};
use fpga_tests::{PATIENCE, bytes};
use proptest::prelude::*;

const MEMORY: u64 = 0x2_0000_0000;
/// Where descriptors lie.
const BASE: u64 = 0x10_0000;
/// Far enough for copies of 64 MiB.
const FAR: u64 = 0x4000_0000;
/// The CDMA's registers in the user BAR of the built-in card.
const CDMA: BarOffset = BarOffset::new(0x1000);
const USER_BAR: u8 = 0;

fn at(offset: u64) -> CardAddr {
    CardAddr::new(offset)
}

fn segment(source: u64, destination: u64, length: u64) -> CdmaSegment {
    CdmaSegment::new(at(source), at(destination), length)
}

fn opened() -> (World, Card) {
    let world = world(with_channels(1, 1));
    let card = open(&world);
    (world, card)
}

/// How descriptors travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bypass,
    Channel,
}

const WAYS: [Way; 2] = [Way::Bypass, Way::Channel];

fn path(card: &Card, way: Way) -> DescriptorPath {
    match way {
        Way::Bypass => DescriptorPath::bypass(at(0)),
        Way::Channel => DescriptorPath::channel(card.h2c(0).unwrap()),
    }
}

fn options() -> CdmaRingOptions {
    CdmaRingOptions::new(at(BASE)).descriptors(16).copies(16)
}

fn ring<T>(card: &Card, way: Way, options: CdmaRingOptions) -> CdmaRing<T> {
    let made = card.cdma().unwrap().into_ring(path(card, way), options);
    made.unwrap_or_else(|refused| panic!("{refused}"))
}

fn refusal(card: &Card, path: DescriptorPath, options: CdmaRingOptions) -> CdmaRingError {
    let refused = card.cdma().unwrap().into_ring::<()>(path, options).unwrap_err();
    // The engine that came back works.
    let mut cdma = refused.cdma;
    cdma.copy(at(0x40_0000), at(0x50_0000), 64).unwrap();
    refused.error
}

fn patient() -> WaitOptions {
    WaitOptions::default().timeout(PATIENCE)
}

/// Waits for one copy that must arrive.
fn arrives<T>(ring: &mut CdmaRing<T>, ticket: Ticket) -> T {
    let done = ring.wait(ticket, patient()).unwrap();
    assert_eq!(done.ticket, ticket);
    done.outcome.unwrap_or_else(|fault| panic!("{fault}"));
    done.payload
}

/// A copy that must arrive and be right.
fn assert_works(world: &World, ring: &mut CdmaRing<u64>, seed: u64) {
    let data = bytes(seed, 7001);
    poke(world, 0, at(0x30_0001), &data);
    let ticket = ring.copy(at(0x30_0001), at(0x50_0003), 7001, seed).unwrap();
    assert_eq!(arrives(ring, ticket), seed);
    assert!(peek(world, 0, at(0x50_0003), 7001) == data);
}

fn executed(world: &World) -> u64 {
    world.with_card(0, |card| card.counters().cdma_descriptors).unwrap()
}

/// Everything that has ended, oldest first.
fn drain<T>(ring: &mut CdmaRing<T>) -> Vec<CdmaCompletion<T>> {
    std::iter::from_fn(|| ring.next_completion()).collect()
}

#[test]
fn chains_of_every_length() {
    for way in WAYS {
        let (world, card) = opened();
        let mut ring = ring(&card, way, options());
        let data = bytes(1, 15 * 100);
        poke(&world, 0, at(0x20_0000), &data);
        for length in 1..=15_u64 {
            let before = executed(&world);
            poke(&world, 0, at(0x30_0000), &[0; 15 * 100]);
            for n in 0..length {
                ring.copy(at(0x20_0000 + n * 100), at(0x30_0000 + n * 100), 100, n).unwrap();
            }
            assert_eq!(
                (ring.in_flight(), u64::from(ring.free_descriptors())),
                (u32::try_from(length).unwrap(), 15 - length)
            );
            let mut ended = 0;
            while ended < length {
                ended += ring.poll().unwrap() as u64;
                ring.relax();
            }
            let payloads: Vec<u64> = drain(&mut ring)
                .into_iter()
                .map(|done| {
                    assert_eq!(done.outcome, Ok(100));
                    done.payload
                })
                .collect();
            assert_eq!(payloads, (0..length).collect::<Vec<_>>(), "{way:?}");
            let all = usize::try_from(length * 100).unwrap();
            let arrived = peek(&world, 0, at(0x30_0000), 15 * 100);
            assert!(arrived[..all] == data[..all] && arrived[all..].iter().all(|byte| *byte == 0));
            assert_eq!(executed(&world) - before, length);
            assert_eq!((ring.in_flight(), ring.free_descriptors(), ring.overruns()), (0, 15, 0));
        }
    }
}

const MODEL: usize = 1 << 18;

proptest! {
    #![proptest_config(seeded(64))]

    #[test]
    fn copies_match_an_array(
        lists in prop::collection::vec(
            (
                prop::collection::vec((0..MODEL, 0..MODEL, prop_oneof![0..130_usize, 1..50_000_usize]), 1..5),
                0..4_u8,
            ),
            1..40,
        ),
        channel in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (world, card) = opened();
        let way = if channel { Way::Channel } else { Way::Bypass };
        let mut ring: CdmaRing<usize> = ring(&card, way, options().length_bits(13).copies(8));
        let mut model = bytes(seed, MODEL);
        let base = MEMORY - MODEL as u64;
        poke(&world, 0, at(base), &model);
        let mut expected = std::collections::VecDeque::new();
        for (number, (list, polls)) in lists.into_iter().enumerate() {
            let list: Vec<_> = list
                .into_iter()
                .map(|(from, to, length)| (from, to, length.min(MODEL - from.max(to)).min(from.abs_diff(to))))
                .collect();
            let segments: Vec<_> = list
                .iter()
                .map(|&(from, to, length)| segment(base + from as u64, base + to as u64, length as u64))
                .collect();
            let mut payload = number;
            let taken = loop {
                match ring.submit(&segments, payload) {
                    Ok(ticket) => break Some(ticket),
                    Err(refused) if refused.is_full() => payload = refused.payload,
                    Err(refused) => {
                        let permanent = matches!(
                            refused.error,
                            CdmaSubmitError::Ring { source: RefusalReason::Empty | RefusalReason::TooManyDescriptors { .. }, .. }
                        );
                        prop_assert!(permanent, "{}", refused);
                        prop_assert_eq!(refused.payload, number);
                        break None;
                    }
                }
                ring.poll().unwrap();
                ring.relax();
            };
            if let Some(ticket) = taken {
                for (from, to, length) in list {
                    model.copy_within(from..from + length, to);
                }
                expected.push_back((ticket, number));
            }
            for _ in 0..polls {
                ring.poll().unwrap();
                ring.relax();
            }
            while let Some(done) = ring.next_completion() {
                prop_assert!(done.outcome.is_ok());
                prop_assert_eq!(Some((done.ticket, done.payload)), expected.pop_front());
            }
        }
        while ring.in_flight() != 0 {
            ring.poll().unwrap();
            ring.relax();
        }
        for done in drain(&mut ring) {
            prop_assert!(done.outcome.is_ok());
            prop_assert_eq!(Some((done.ticket, done.payload)), expected.pop_front());
        }
        prop_assert!(expected.is_empty());
        prop_assert!(peek(&world, 0, at(base), MODEL) == model);
    }
}

#[test]
fn many_times_round_with_appends_while_it_runs() {
    for way in WAYS {
        for (descriptors, steps) in [(2, 1), (4, 3), (8, 7), (16, 2)] {
            let (world, card) = opened();
            let mut ring: CdmaRing<u64> = ring(&card, way, options().descriptors(descriptors));
            let data = bytes(3, 1 << 16);
            poke(&world, 0, at(0x20_0000), &data);
            let (mut sent, mut ended) = (0_u64, 0_u64);
            while ended < 500 {
                if sent < 500 {
                    let offset = sent * 130 % 60_000;
                    match ring.copy(at(0x20_0000 + offset), at(0x30_0000 + offset), 130, sent) {
                        Ok(_) => sent += 1,
                        Err(refused) => assert!(refused.is_full() && refused.payload == sent),
                    }
                }
                ring.poll().unwrap();
                // The engine stands in the middle of a chain more often than not.
                for _ in 0..steps {
                    world.step();
                }
                for done in drain(&mut ring) {
                    assert_eq!((done.outcome, done.payload), (Ok(130), ended));
                    ended += 1;
                }
            }
            assert_eq!((executed(&world), ring.overruns()), (500, 0), "{way:?} {descriptors}");
            assert!(peek(&world, 0, at(0x30_0000), 59_000) == data[..59_000], "{way:?} {descriptors}");
        }
    }
}

/// Lets the engine have what is queued and do it, without a look at how far it is.
fn hand_over<T>(world: &World, ring: &mut CdmaRing<T>, way: Way) {
    assert_eq!(ring.poll(), Ok(0));
    world.step_until_idle();
    if way == Way::Channel {
        // The descriptors have arrived: now the tail.
        assert_eq!(ring.poll(), Ok(0));
        world.step_until_idle();
    }
}

#[test]
fn a_batch_costs_one_pair_of_tail_writes_and_one_read_per_look() {
    for way in WAYS {
        let (world, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        for count in [1_u64, 5, 10, 15] {
            for n in 0..count {
                ring.copy(at(0x20_0000 + n * 64), at(0x30_0000 + n * 64), 64, n).unwrap();
            }
            let before = card.counters().unwrap();
            hand_over(&world, &mut ring, way);
            let handed = card.counters().unwrap();
            assert_eq!(
                ring.poll(),
                Ok(usize::try_from(count).unwrap()),
                "{way:?}: one look takes up the batch"
            );
            let after = card.counters().unwrap();
            assert_eq!(after.mmio_writes, handed.mmio_writes, "looking writes nothing");
            let (writes, reads) =
                (handed.mmio_writes - before.mmio_writes, handed.mmio_reads - before.mmio_reads);
            match way {
                // 64 bytes per descriptor in accesses of 8 or, where the batch wraps, as many; the tail in two; the read-back.
                Way::Bypass => assert_eq!((writes, reads), (8 * count + 2, 1)),
                // A run of the channel at most, then the tail.
                Way::Channel => assert!(writes <= 2 + 5 && reads == 0, "{writes} {reads}"),
            }
            // The status word; or the pointer, which is at the tail, and the status register, which says idle.
            assert_eq!(after.mmio_reads - handed.mmio_reads, if way == Way::Bypass { 1 } else { 2 });
            assert_eq!(ring.poll(), Ok(0));
            assert_eq!(
                card.counters().unwrap().mmio_reads,
                after.mmio_reads,
                "nothing outstanding, nothing read"
            );
            assert_eq!(drain(&mut ring).len() as u64, count);
        }
    }
}

#[test]
fn lists_are_one_copy_and_long_ones_are_cut() {
    for way in WAYS {
        let (world, card) = opened();
        let mut ring: CdmaRing<String> = ring(&card, way, options().length_bits(12));
        assert_eq!(ring.max_descriptor_length(), 4096 - 64);
        let data = bytes(4, 20_000);
        poke(&world, 0, at(0x20_0000), &data);
        let list = [
            segment(0x20_0000, 0x30_0001, 15_000),
            segment(0, 0, 0),
            segment(0x20_0000 + 15_000, 0x31_0000, 5000),
        ];
        let ticket = ring.submit(&list, "a list".to_owned()).unwrap();
        assert_eq!(ring.in_flight(), 1);
        let done = ring.wait(ticket, patient()).unwrap();
        assert_eq!((done.outcome, done.payload.as_str()), (Ok(20_000), "a list"));
        assert!(peek(&world, 0, at(0x30_0001), 15_000) == data[..15_000]);
        assert!(peek(&world, 0, at(0x31_0000), 5000) == data[15_000..]);
        assert_eq!(executed(&world), 4 + 2);
        // A later segment may use what an earlier one made.
        let list = [segment(0x20_0000, 0x40_0000, 100), segment(0x40_0000, 0x41_0000, 100)];
        let ticket = ring.submit(&list, String::new()).unwrap();
        arrives(&mut ring, ticket);
        assert!(peek(&world, 0, at(0x41_0000), 100) == data[..100]);
    }
}

#[test]
fn what_cannot_be_is_refused_and_comes_back() {
    let (_, card) = opened();
    let mut ring: CdmaRing<u32> = ring(&card, Way::Bypass, options());
    let before = card.counters();
    let mut refused = |segments: &[CdmaSegment]| {
        let refused = ring.submit(segments, 77).unwrap_err();
        assert_eq!(refused.payload, 77);
        assert!(!refused.is_full() && refused.to_string().contains("mock:0 CDMA"), "{refused}");
        refused.error
    };
    let range = |error| matches!(error, CdmaSubmitError::Range(CdmaError::CardMemory { .. }));
    let of_ring = |error| match error {
        CdmaSubmitError::Ring { source, .. } => source,
        error => panic!("{error}"),
    };
    assert!(range(refused(&[segment(0, MEMORY - 99, 100)])));
    assert!(range(refused(&[segment(0, 0x100, 16), segment(MEMORY, 0, 1)])));
    assert!(range(refused(&[segment(u64::MAX, 0, 2)])));
    assert_eq!(of_ring(refused(&[])), RefusalReason::Empty);
    assert_eq!(of_ring(refused(&[segment(5, 5, 0)])), RefusalReason::Empty);
    assert_eq!(
        of_ring(refused(&[segment(0, 99, 100)])),
        RefusalReason::Overlap { segment: segment(0, 99, 100) }
    );
    let own = segment(0, BASE + 16 * 64 - 1, 1);
    assert_eq!(of_ring(refused(&[own])), RefusalReason::DescriptorMemory { segment: own });
    let many: Vec<_> = (0..16).map(|n| segment(n, 0x20_0000 + n, 1)).collect();
    assert_eq!(of_ring(refused(&many)), RefusalReason::TooManyDescriptors { needed: 16, usable: 15 });
    assert_eq!(card.counters(), before, "no register was touched");
    // Full is another matter.
    ring.submit(&many[..15], 1).unwrap();
    let full = ring.submit(&many[..1], 2).unwrap_err();
    assert!(full.is_full() && full.payload == 2);
}

#[test]
fn rings_that_cannot_be_give_everything_back() {
    let (world, card) = opened();
    let bypass = || DescriptorPath::bypass(at(0));
    let config = |options| match refusal(&card, bypass(), options) {
        CdmaRingError::Config { source, .. } => source,
        error => panic!("{error}"),
    };
    assert_eq!(config(options().descriptors(3)), ConfigError::Entries { found: 3 });
    assert_eq!(config(options().copies(3)), ConfigError::Operations { found: 3 });
    assert_eq!(config(options().length_bits(30)), ConfigError::LengthBits { found: 30 });
    assert_eq!(config(options().data_bytes(3)), ConfigError::DataBytes { found: 3 });
    assert!(matches!(config(CdmaRingOptions::new(at(BASE + 32))), ConfigError::Base { .. }));
    for (threshold, delay) in [(0, 0), (0, 9), (2, 0), (255, 0)] {
        let error = refusal(&card, bypass(), options().interrupt_threshold(threshold).interrupt_delay(delay));
        assert!(matches!(error, CdmaRingError::Coalescing { .. }), "{error}");
    }
    let error = refusal(&card, bypass(), CdmaRingOptions::new(at(MEMORY + 0x1000)));
    assert!(matches!(error, CdmaRingError::Engine(CdmaError::CardMemory { .. })), "{error}");
    // The BAR shows 64 MiB.
    for (base, window) in [(64 << 20, 0), ((64 << 20) - 512, 0), (0, 64), (BASE, 0x4000_0000)] {
        let base = CdmaRingOptions::new(at(base)).descriptors(16);
        let error = refusal(&card, DescriptorPath::bypass(at(window)), base);
        assert!(matches!(error, CdmaRingError::OutsideBypass { .. }), "{error}");
    }
    let error = refusal(&card, bypass(), options().user_interrupt(0));
    assert!(matches!(error, CdmaRingError::NoInterrupt { .. }), "not enabled: {error}");
    card.enable_interrupts().unwrap();
    let error = refusal(&card, bypass(), options().user_interrupt(16));
    assert!(matches!(error, CdmaRingError::NoInterrupt { .. }), "no such line: {error}");

    // A channel that is at work, or another card's.
    let mut busy = card.h2c(0).unwrap();
    let ticket = busy.submit(card.buffer(64).unwrap(), at(0)).unwrap();
    let error = refusal(&card, DescriptorPath::channel(busy), options());
    assert!(matches!(error, CdmaRingError::Channel { .. }), "{error}");
    let _ = ticket;
    let other = World::builder().cards(1).build().unwrap();
    let foreign = open(&other).h2c(0).unwrap();
    let error = refusal(&card, DescriptorPath::channel(foreign), options());
    assert!(matches!(error, CdmaRingError::Submit(_)), "{error}");
    drop((card, world));

    for (file, expected) in [
        ("cdma: { sg: false }", "NoScatterGather"),
        ("bars: { bypass: null }", "NoBypass"),
        ("cdma: { address_width: 32 }\nmemory: { base: 0x100000000, size: 0x10000000 }", "Base"),
    ] {
        let world = self::world(described(file));
        let card = open(&world);
        let options = if expected == "Base" { CdmaRingOptions::new(at(0x1_0010_0000)) } else { options() };
        let window = if expected == "Base" { at(0x1_0000_0000) } else { at(0) };
        let refused =
            card.cdma().unwrap().into_ring::<()>(DescriptorPath::bypass(window), options).unwrap_err();
        assert!(format!("{:?}", refused.error).contains(expected), "{:?}", refused.error);
    }
}

#[test]
fn every_build_of_the_engine_has_a_ring() {
    for way in WAYS {
        for (file, options) in [
            ("cdma: { address_width: 32 }\nmemory: { size: 0x10000000 }", options()),
            ("cdma: { address_width: 40 }", options()),
            ("cdma: { data_width: 32 }", options().data_bytes(4)),
            ("cdma: { max_length_bits: 23 }", options()),
            ("cdma: { max_length_bits: 26 }", options().length_bits(26)),
            ("cdma: { max_length_bits: 15 }", options().length_bits(15).descriptors(64)),
        ] {
            let world = world(described(file));
            let card = open(&world);
            let mut ring = ring(&card, way, options);
            (0..20).for_each(|seed| assert_works(&world, &mut ring, seed));
        }
        // Addresses that the build does not have.
        let world = world(described("cdma: { address_width: 32 }"));
        let card = open(&world);
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        let refused = ring.copy(at(0), at(0x1_0000_0000), 64, 0).unwrap_err();
        assert!(
            matches!(
                refused.error,
                CdmaSubmitError::Ring { source: RefusalReason::AddressRange { address_bits: 32, .. }, .. }
            ),
            "{refused}"
        );
        assert_works(&world, &mut ring, 1);
    }
}

#[test]
fn without_realignment_unaligned_copies_are_refused() {
    let world = world(described("cdma: { dre: false, data_width: 512, max_length_bits: 15 }"));
    let card = open(&world);
    let mut ring: CdmaRing<u64> = ring(&card, Way::Bypass, options().length_bits(12).realignment(false));
    let refused = ring.copy(at(0x20_0001), at(0x30_0000), 64, 5).unwrap_err();
    let CdmaSubmitError::Ring { source, .. } = refused.error else { panic!("{}", refused.error) };
    assert_eq!(source, RefusalReason::Misaligned { address: at(0x20_0001), alignment: 64 });
    // An aligned one stays aligned where it is cut; its length is free.
    let data = bytes(1, 20_001);
    poke(&world, 0, at(0x20_0000), &data);
    let ticket = ring.copy(at(0x20_0000), at(0x30_0040), 20_001, 6).unwrap();
    arrives(&mut ring, ticket);
    assert!(peek(&world, 0, at(0x30_0040), 20_001) == data);
}

#[test]
fn an_error_in_every_position_names_the_copy_and_the_ring_goes_on() {
    for way in WAYS {
        // Without an identity nobody knows where memory ends, so that the bus has to say it.
        for decode in [false, true] {
            let world = hurried_world(with_channels(1, 1));
            let card = open_with(&world, OpenOptions::default().network_interface(NetworkInterface::Ignored));
            let cdma = card.cdma_at(CDMA).unwrap();
            let mut ring = cdma.into_ring(path(&card, way), options().length_bits(12)).unwrap();
            for failing in 0..6_u64 {
                let before = executed(&world);
                let bad = if decode { at(MEMORY + 4032) } else { at(0x30_0000 + failing * 0x1_0000 + 4032) };
                if !decode {
                    world.with_card(0, |card| card.poison(bad, 8));
                }
                // Each copy takes two descriptors; the second one of the failing copy fails.
                for n in 0..6 {
                    let to = if decode && n == failing { MEMORY } else { 0x30_0000 + n * 0x1_0000 };
                    if decode && n == failing {
                        let list = [segment(0, 0x50_0000, 4032), segment(4032, to + 4032, 100)];
                        ring.submit(&list, n).unwrap();
                    } else {
                        ring.copy(at(0x20_0000), at(to), 5000, n).unwrap();
                    }
                }
                while ring.in_flight() != 0 {
                    ring.poll().unwrap();
                    ring.relax();
                }
                let done = drain(&mut ring);
                assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
                for done in done {
                    let fault = match (done.payload.cmp(&failing), done.outcome) {
                        (std::cmp::Ordering::Less, outcome) => {
                            assert_eq!(outcome, Ok(5000));
                            continue;
                        }
                        (_, outcome) => outcome.unwrap_err(),
                    };
                    if done.payload > failing {
                        assert_eq!((&fault.cause, fault.place), (&CdmaFaultCause::Earlier, None));
                        continue;
                    }
                    let CdmaFaultCause::Status(status) = fault.cause else { panic!("{fault}") };
                    assert_eq!((status.dma_decode_error(), status.dma_slave_error()), (decode, !decode));
                    let place = fault.place.unwrap();
                    assert_eq!((place.destination, place.bytes_done), (bad, 4032), "{way:?} {failing}");
                    let length = if decode { 100 } else { 5000 - 4032 };
                    assert_eq!(place.length, length);
                    assert!(fault.to_string().contains("can be used again"), "{fault}");
                }
                assert_eq!(executed(&world) - before, failing * 2 + 1, "nothing behind it was executed");
                world.with_card(0, |card| card.poison(at(0), 0));
                assert_works(&world, &mut ring, failing);
            }
            assert_eq!(ring.overruns(), 0);
        }
    }
}

#[test]
fn descriptors_that_the_engine_cannot_fetch() {
    for way in WAYS {
        let world = hurried_world(with_channels(1, 1));
        let card = open(&world);
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        assert_works(&world, &mut ring, 1);
        for n in 0..3 {
            ring.copy(at(0x20_0000), at(0x30_0000), 64, n).unwrap();
        }
        // They are written; then their memory fails: from the third on, counted from the one that worked.
        assert_eq!(ring.poll(), Ok(0));
        if way == Way::Channel {
            for _ in 0..1000 {
                ring.relax();
            }
        }
        world.with_card(0, |card| card.poison(at(BASE + 2 * 64), 64));
        let mut polled = Ok(0);
        while polled.is_ok() && ring.in_flight() != 0 {
            polled = ring.poll();
            ring.relax();
        }
        match way {
            // The bypass BAR shows all ones there, so the copies end; the guards cannot be written, which nobody notices.
            // (A write is posted.)
            Way::Bypass => assert_eq!(polled.map(|_| ()), Ok(())),
            // The channel says that the guards did not arrive.
            Way::Channel => assert!(matches!(polled, Err(CdmaRingError::Upload { .. })), "{polled:?}"),
        }
        let done = drain(&mut ring);
        assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(done[0].outcome, Ok(64));
        let fault = done[1].outcome.as_ref().unwrap_err();
        let CdmaFaultCause::Status(status) = fault.cause else { panic!("{fault}") };
        assert!(status.sg_slave_error());
        assert_eq!(fault.place.unwrap().descriptor, 2);
        world.with_card(0, |card| card.poison(at(0), 0));
        // Whatever became of the ring, the engine works.
        let (mut cdma, path, rest) = ring.close();
        assert!(rest.is_empty());
        cdma.copy(at(0x20_0000), at(0x30_0000), 64).unwrap();
        drop(path);
        let mut again = cdma.into_ring(self::path(&card, way), options()).unwrap();
        assert_works(&world, &mut again, 2);
    }
}

#[test]
fn a_stale_status_stops_the_engine_and_is_said() {
    let world = hurried_world(with_channels(1, 1));
    let card = open(&world);
    let mut ring: CdmaRing<u64> = ring(&card, Way::Channel, options());
    assert_works(&world, &mut ring, 1);
    for n in 0..3 {
        ring.copy(at(0x20_0000), at(0x30_0000), 64, n).unwrap();
    }
    assert_eq!(ring.poll(), Ok(0));
    world.step_until_idle();
    // Somebody marks the second of the three as complete before the engine comes by.
    poke(&world, 0, at(BASE + 2 * 64 + 0x1C), &0x8000_0000_u32.to_le_bytes());
    while ring.in_flight() != 0 {
        ring.poll().unwrap();
        ring.relax();
    }
    let done = drain(&mut ring);
    assert_eq!(done[0].outcome, Ok(64));
    let fault = done[1].outcome.as_ref().unwrap_err();
    let CdmaFaultCause::Status(status) = fault.cause else { panic!("{fault}") };
    assert!(status.sg_internal_error(), "{fault}");
    assert_eq!(fault.place.unwrap().descriptor, 2);
    assert_eq!(done[2].outcome.as_ref().unwrap_err().cause, CdmaFaultCause::Earlier);
    assert_works(&world, &mut ring, 2);
}

#[test]
fn an_engine_started_once_too_often_costs_a_reset_and_nothing_else() {
    for way in WAYS {
        let world = hurried_world(with_channels(1, 1));
        let tampered = Tampered::new(world.transport(0), Vec::new());
        let card = Card::open(tampered.clone()).unwrap();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        // The engine is at work on a long copy; before the high word of the next tail arrives, it has done that too.
        let tail_high = CdmaBlock::TAILDESC_HIGH.address(CDMA).get();
        for round in 0..8_u64 {
            let data = bytes(round, 4_000_000);
            poke(&world, 0, at(0x20_0000), &data);
            ring.copy(at(0x20_0000), at(FAR), 3_900_000, 1).unwrap();
            // The descriptor is there, and the engine has begun.
            while register(&world, 0, USER_BAR, CdmaBlock::SR.address(CDMA)) & 2 != 0 {
                assert_eq!(ring.poll(), Ok(0));
                world.step();
            }
            tampered.overtake(Some((USER_BAR, tail_high)));
            ring.copy(at(0x20_0000 + 3_900_000), at(FAR + 3_900_000), 100_000, 2).unwrap();
            while ring.in_flight() != 0 {
                ring.poll().unwrap();
                ring.relax();
            }
            tampered.overtake(None);
            let done = drain(&mut ring);
            assert!(done.iter().all(|done| done.outcome.is_ok()), "{way:?} {round}: {done:?}");
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [1, 2]);
            assert!(peek(&world, 0, at(FAR), 4_000_000) == data);
            assert_works(&world, &mut ring, round);
        }
        assert_eq!(ring.overruns(), 8, "{way:?}: it did happen");
    }
}

#[test]
fn abort_in_every_state() {
    for way in WAYS {
        for steps in 0..40 {
            let world = world(with_channels(1, 1));
            let card = open(&world);
            let mut ring: CdmaRing<u64> = ring(&card, way, options());
            assert_eq!(ring.abort(), Ok(0), "nothing to abort");
            for n in 0..4 {
                ring.copy(at(0x20_0000), at(0x40_0000), 100_000, n).unwrap();
                if n == 2 {
                    // The last stays queued.
                    for _ in 0..steps {
                        ring.poll().unwrap();
                        world.step();
                    }
                }
            }
            let in_flight = ring.in_flight();
            assert_eq!(ring.abort(), Ok(in_flight as usize));
            assert_eq!((ring.in_flight(), ring.free_descriptors()), (0, 15));
            let done = drain(&mut ring);
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3]);
            let aborted = done.iter().position(|done| done.outcome.is_err()).unwrap();
            for done in &done[aborted..] {
                assert_eq!(done.outcome.as_ref().unwrap_err().cause, CdmaFaultCause::Aborted);
            }
            assert!(done[..aborted].iter().all(|done| done.outcome == Ok(100_000)));
            // Nothing of the aborted ones happens any more.
            poke(&world, 0, at(0x40_0000), &[9; 100]);
            world.step_until_idle();
            assert_eq!(peek(&world, 0, at(0x40_0000), 100), [9; 100]);
            assert_works(&world, &mut ring, steps);
        }
    }
}

#[test]
fn dropped_in_the_middle_it_leaves_nothing_behind() {
    for way in WAYS {
        for steps in [0, 1, 5, 10, 20, 30] {
            let world = world(with_channels(1, 1));
            let card = open(&world);
            card.enable_interrupts().unwrap();
            let mut ring: CdmaRing<u64> = ring(&card, way, options().user_interrupt(0));
            for n in 0..6 {
                ring.copy(at(0x20_0000), at(0x40_0000), 100_000, n).unwrap();
            }
            for _ in 0..steps {
                ring.poll().unwrap();
                world.step();
            }
            drop(ring);
            assert_eq!(register(&world, 0, DMA_BAR, IrqBlock::USER_ENABLE.address(IRQ_BASE)), 0, "masked");
            let status = Cdmasr::from_bits(register(&world, 0, USER_BAR, CdmaBlock::SR.address(CDMA)));
            poke(&world, 0, at(0x40_0000), &[9; 100]);
            world.step_until_idle();
            assert!(status.idle() && peek(&world, 0, at(0x40_0000), 100) == [9; 100], "{way:?} {steps}");
            assert_pool(&card, 0, 0);
            // The next owner, in the other mode.
            let mut cdma = card.cdma().unwrap();
            cdma.copy(at(0x20_0000), at(0x40_0000), 5000).unwrap();
            let mut again = cdma.into_ring(path(&card, way), options()).unwrap();
            assert_works(&world, &mut again, 1);
            drop((again, card));
            assert_closed(&world, 0);
        }
    }
}

#[test]
fn closing_gives_engine_channel_and_payloads_back() {
    for way in WAYS {
        let (world, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        assert_works(&world, &mut ring, 1);
        ring.copy(at(0x20_0000), at(0x40_0000), 64, 10).unwrap();
        while ring.in_flight() != 0 {
            ring.poll().unwrap();
            ring.relax();
        }
        ring.copy(at(0x20_0000), at(0x40_0000), 100_000, 11).unwrap();
        ring.poll().unwrap();
        ring.copy(at(0x20_0000), at(0x40_0000), 100_000, 12).unwrap();
        let (mut cdma, path, done) = ring.close();
        assert_eq!(
            done.iter().map(|done| (done.payload, done.outcome.is_ok())).collect::<Vec<_>>(),
            [(10, true), (11, false), (12, false)]
        );
        cdma.copy(at(0x20_0000), at(0x40_0000), 5000).unwrap();
        if let DescriptorPath::Channel(mut channel) = path {
            assert!(channel.next_completion().is_none(), "nothing of the ring's is left in it");
            let buffer = channel.write(card.buffer_from(b"as before").unwrap(), at(0x60_0000)).unwrap();
            assert_eq!(peek(&world, 0, at(0x60_0000), 9), buffer.as_slice());
            drop(buffer);
            assert_pool(&card, 1, 0);
            // And again into a ring.
            let mut ring = cdma.into_ring(DescriptorPath::Channel(channel), options()).unwrap();
            assert_works(&world, &mut ring, 2);
        }
    }
}

#[test]
fn waits_end_in_time() {
    for way in WAYS {
        let (_, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        let ticket = ring.copy(at(0x20_0000), at(FAR), 64 << 20, 1).unwrap();
        let error = ring.wait(ticket, WaitOptions::default().timeout(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, CdmaRingError::TimedOut { .. }), "{error}");
        let short = WaitOptions::default().timeout(Duration::from_micros(1));
        assert!(matches!(ring.wait(ticket, short), Err(CdmaRingError::TimedOut { .. })));
        assert_eq!(ring.in_flight(), 1);
        assert_eq!(arrives(&mut ring, ticket), 1, "it went on");
        let error = ring.wait(ticket, patient()).unwrap_err();
        assert!(matches!(error, CdmaRingError::UnknownTicket { .. }), "taken: {error}");
        let interrupt = patient().mode(WaitMode::Interrupt);
        let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 1 << 20, 2).unwrap();
        let error = ring.wait(ticket, interrupt).unwrap_err();
        assert!(matches!(error, CdmaRingError::NoInterrupt { .. }), "{error}");
        let spin = patient().mode(WaitMode::Hybrid { spin: PATIENCE });
        assert_eq!(ring.wait(ticket, spin).unwrap().payload, 2);
    }
}

#[test]
fn interrupts_come_per_threshold_and_the_delay_covers_the_rest() {
    for way in WAYS {
        for (threshold, delay) in [(1, 0), (4, 20), (255, 20), (8, 1), (2, 255)] {
            let (world, card) = opened();
            card.enable_interrupts().unwrap();
            let options = options().user_interrupt(0).interrupt_threshold(threshold).interrupt_delay(delay);
            let mut ring: CdmaRing<u64> = ring(&card, way, options);
            for batch in 1..=15_u64 {
                for n in 0..batch {
                    ring.copy(at(0x20_0000), at(0x40_0000), 20_000, n).unwrap();
                }
                let last = ring.copy(at(0x20_0000), at(0x40_0000), 20_000, 99);
                let last = match last {
                    Ok(ticket) => ticket,
                    Err(refused) => {
                        assert!(refused.is_full());
                        let before = ring.in_flight();
                        assert_eq!(before, 15);
                        continue_full(&mut ring);
                        continue;
                    }
                };
                let sent = card.counters().unwrap().interrupts;
                let began = world.now();
                let done = ring.wait(last, patient().mode(WaitMode::Interrupt)).unwrap();
                assert_eq!((done.outcome, done.payload), (Ok(20_000), 99));
                let sent = card.counters().unwrap().interrupts - sent;
                assert!(sent >= 1, "{way:?} {threshold} {delay} {batch}: it slept");
                assert!(sent <= batch + 2, "{way:?} {threshold} {delay} {batch}: {sent} interrupts");
                let waited = world.now().get() - began.get();
                assert!(
                    waited < 50_000_000,
                    "{way:?} {threshold} {delay} {batch}: woken by an interrupt, not by its limit: {waited} ns"
                );
                assert_eq!(drain(&mut ring).len() as u64, batch);
                let enabled = register(&world, 0, DMA_BAR, IrqBlock::USER_ENABLE.address(IRQ_BASE));
                assert_eq!(enabled, 0, "masked again");
            }
            // Who polls gets no interrupt.
            let sent = card.counters().unwrap().interrupts;
            let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 20_000, 5).unwrap();
            arrives(&mut ring, ticket);
            assert_eq!(card.counters().unwrap().interrupts, sent);
        }
    }
}

/// Lets a full ring run empty.
fn continue_full(ring: &mut CdmaRing<u64>) {
    while ring.in_flight() != 0 {
        ring.poll().unwrap();
        ring.relax();
    }
    drain(ring);
}

#[test]
fn a_threshold_saves_interrupts() {
    let mut counts = Vec::new();
    for (threshold, delay) in [(1, 0), (4, 200), (255, 200)] {
        let (_, card) = opened();
        card.enable_interrupts().unwrap();
        let options = options().user_interrupt(0).interrupt_threshold(threshold).interrupt_delay(delay);
        let mut ring: CdmaRing<u64> = ring(&card, Way::Bypass, options);
        let mut last = None;
        for n in 0..12 {
            // Long enough that the sleeper has time to sleep again between two of them.
            last = Some(ring.copy(at(0x20_0000), at(0x400_0000), 4 << 20, n).unwrap());
        }
        let done = ring.wait(last.unwrap(), patient().mode(WaitMode::Interrupt)).unwrap();
        assert_eq!(done.outcome, Ok(4 << 20));
        counts.push(card.counters().unwrap().interrupts);
    }
    assert_eq!(counts[0], 12, "one per descriptor");
    assert_eq!(counts[1], 3, "one per four");
    assert_eq!(counts[2], 1, "the delay alone");
}

#[test]
fn an_error_wakes_a_sleeper() {
    for way in WAYS {
        let (world, card) = opened();
        card.enable_interrupts().unwrap();
        let options = options().user_interrupt(0).interrupt_threshold(255).interrupt_delay(255);
        let mut ring: CdmaRing<u64> = ring(&card, way, options);
        world.with_card(0, |card| card.poison(at(0x40_0000), 64));
        let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 64, 1).unwrap();
        let began = world.now();
        let done = ring.wait(ticket, patient().mode(WaitMode::Interrupt)).unwrap();
        assert!(matches!(done.outcome.unwrap_err().cause, CdmaFaultCause::Status(_)));
        assert!(world.now().get() - began.get() < 50_000_000, "{way:?}");
        world.with_card(0, |card| card.poison(at(0), 0));
        assert_works(&world, &mut ring, 1);
    }
}

#[test]
fn an_engine_that_does_not_stop_is_said_to_be_stuck() {
    for way in WAYS {
        let world = hurried_world(with_channels(1, 1));
        let tampered = Tampered::new(world.transport(0), Vec::new());
        let card = Card::open(tampered.clone()).unwrap();
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        ring.copy(at(0x20_0000), at(0x40_0000), 1 << 20, 1).unwrap();
        ring.poll().unwrap();
        ring.copy(at(0x20_0000), at(0x40_0000), 1 << 20, 2).unwrap();
        // The reset bit stays up: an AXI slave does not answer.
        tampered.replace(vec![Replaced {
            bar: USER_BAR,
            at: CdmaBlock::CR.address(CDMA).get(),
            value: 1 << 2,
        }]);
        let error = ring.abort().unwrap_err();
        assert!(matches!(error, CdmaRingError::Engine(CdmaError::Stuck { .. })), "{error}");
        let done = drain(&mut ring);
        assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [1, 2]);
        assert!(
            done.iter().all(|done| done.outcome.as_ref().unwrap_err().cause == CdmaFaultCause::Unstoppable)
        );
        let refused = ring.copy(at(0), at(0x40_0000), 1, 3).unwrap_err();
        assert!(matches!(refused.error, CdmaSubmitError::Dead(_)) && refused.payload == 3);
        assert_eq!((ring.poll(), ring.abort()), (Err(error.clone()), Err(error)));
        drop(ring);
        tampered.replace(Vec::new());
        let mut ring = self::ring(&card, way, options());
        assert_works(&world, &mut ring, 1);
    }
}

#[test]
fn registers_that_lie() {
    let word = |bar, register: BarOffset, value| vec![Replaced { bar, at: register.get(), value }];
    let (sr, current) = (CdmaBlock::SR.address(CDMA), CdmaBlock::CURDESC_LOW.address(CDMA));
    for way in WAYS {
        let world = hurried_world(with_channels(1, 1));
        let tampered = Tampered::new(world.transport(0), Vec::new());
        let card = Card::open(tampered.clone()).unwrap();
        let base = u32::try_from(BASE).unwrap();
        let bypass = card.info().roles.bypass.unwrap().index;
        let mut lies = match way {
            // A pointer to nowhere, to no descriptor, to one that is not posted.
            Way::Channel => vec![
                (word(USER_BAR, current, 0), "current-descriptor"),
                (word(USER_BAR, current, base + 32), "current-descriptor"),
                (word(USER_BAR, current, base + 5 * 64), "current-descriptor"),
            ],
            Way::Bypass => {
                vec![(
                    word(bypass, BarOffset::new(BASE + 2 * 64 + 0x1C), 0x0BAD_0000),
                    "no descriptor status",
                )]
            }
        };
        // Idle from the start, without having moved: the pointer where it stopped before, the status word as it was written.
        let unmoved = [
            word(USER_BAR, sr, 0x0001_000A),
            word(USER_BAR, current, base),
            word(bypass, BarOffset::new(BASE + 2 * 64 + 0x1C), 0),
        ];
        lies.push((unmoved.concat(), "stopped before its tail"));
        for (lie, said) in lies {
            let mut ring: CdmaRing<u64> = ring(&card, way, options());
            assert_works(&world, &mut ring, 1);
            ring.copy(at(0x20_0000), at(FAR), 8_000_000, 1).unwrap();
            ring.copy(at(0x20_0000), at(0x40_0000), 64, 2).unwrap();
            ring.poll().unwrap();
            tampered.replace(lie);
            for _ in 0..100_000 {
                if ring.in_flight() == 0 || ring.poll().is_err() {
                    break;
                }
                ring.relax();
            }
            tampered.replace(Vec::new());
            let done = drain(&mut ring);
            assert_eq!(done.iter().map(|done| done.payload).collect::<Vec<_>>(), [1, 2], "{way:?} {said}");
            let fault = done[0].outcome.as_ref().unwrap_err();
            assert!(fault.to_string().contains(said), "{way:?} {said}: {fault}");
            assert_works(&world, &mut ring, 2);
        }
        // All ones: the card is gone.
        let mut ring: CdmaRing<u64> = ring(&card, way, options());
        ring.copy(at(0x20_0000), at(FAR), 8_000_000, 1).unwrap();
        ring.poll().unwrap();
        tampered.replace(
            [
                word(USER_BAR, sr, u32::MAX),
                word(USER_BAR, current, u32::MAX),
                word(bypass, BarOffset::new(BASE + 0x1C), u32::MAX),
            ]
            .concat(),
        );
        let mut polled = ring.poll();
        while polled.is_ok() {
            ring.relax();
            polled = ring.poll();
        }
        assert!(matches!(polled, Err(CdmaRingError::Engine(CdmaError::Gone { .. }))), "{polled:?}");
        assert_eq!(drain(&mut ring).len(), 1);
        tampered.replace(Vec::new());
    }
}

#[test]
fn descriptors_that_do_not_arrive() {
    // Through the bypass BAR: what is written does not read back.
    let world = hurried_world(with_channels(1, 1));
    let tampered = Tampered::new(world.transport(0), Vec::new());
    let card = Card::open(tampered.clone()).unwrap();
    let bypass = card.info().roles.bypass.unwrap().index;
    let mut ring: CdmaRing<u64> = ring(&card, Way::Bypass, options());
    assert_works(&world, &mut ring, 1);
    tampered.replace(vec![Replaced { bar: bypass, at: BASE + 64 + 0x18, value: 0 }]);
    let before = executed(&world);
    ring.copy(at(0x20_0000), at(0x40_0000), 64, 7).unwrap();
    ring.poll().unwrap();
    world.step_until_idle();
    assert_eq!(executed(&world), before, "the engine was not told");
    let done = ring.next_completion().unwrap();
    assert_eq!((done.payload, done.outcome.unwrap_err().cause), (7, CdmaFaultCause::Upload));
    tampered.replace(Vec::new());
    assert_works(&world, &mut ring, 2);

    // By a channel that may not read host memory: it says so, and the ring goes on when it may again.
    let world = hurried_world(with_channels(1, 1));
    let card = open(&world);
    let mut ring: CdmaRing<u64> = self::ring(&card, Way::Channel, options());
    assert_works(&world, &mut ring, 1);
    // The place of the second descriptor refuses to be written.
    world.with_card(0, |card| card.poison(at(BASE + 64), 64));
    ring.copy(at(0x20_0000), at(0x40_0000), 64, 7).unwrap();
    let mut polled = Ok(0);
    while polled.is_ok() && ring.in_flight() != 0 {
        polled = ring.poll();
        ring.relax();
    }
    assert!(
        matches!(polled, Err(CdmaRingError::Upload { .. })),
        "the guards cannot be written either: {polled:?}"
    );
    assert_eq!(ring.next_completion().unwrap().outcome.unwrap_err().cause, CdmaFaultCause::Upload);
    world.with_card(0, |card| card.poison(at(0), 0));
    let (cdma, path, _) = ring.close();
    let mut ring = cdma.into_ring(path, options()).unwrap();
    assert_works(&world, &mut ring, 2);
}

#[test]
fn a_card_that_leaves() {
    for way in WAYS {
        for failure in [CardFailure::AllOnes, CardFailure::Gone] {
            let world = hurried_world(with_channels(1, 1));
            let card = open(&world);
            let mut ring: CdmaRing<u64> = ring(&card, way, options().descriptors(64));
            assert_works(&world, &mut ring, 1);
            for n in 0..3 {
                ring.copy(at(0x20_0000), at(FAR), 64 << 20, n).unwrap();
            }
            let ticket = ring.copy(at(0x20_0000), at(0x40_0000), 1, 3).unwrap();
            ring.poll().unwrap();
            world.fail(0, failure);
            let error = ring.wait(ticket, patient()).unwrap_err();
            assert!(error.to_string().contains("gone"), "{way:?} {failure:?}: {error}");
            assert_eq!(drain(&mut ring).iter().map(|done| done.payload).collect::<Vec<_>>(), [0, 1, 2, 3]);
            drop((ring, card));
            world.fail(0, CardFailure::None);
            let card = open(&world);
            assert_works(&world, &mut self::ring(&card, way, options().descriptors(64)), 2);
        }
    }
}
