//! Copies inside the card, against an array of bytes.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::time::Duration;

use fpga_driver::mock::{CardFailure, World};
use fpga_driver::{BarOffset, Card, CardAddr, Cdma, CdmaError, NetworkInterface, OpenOptions, ResourceError};
use fpga_tests::bytes;
use fpga_tests::cards::{described, open, open_with, peek, poke, seeded, with_channels, world};
use proptest::prelude::*;

const MEMORY: u64 = 0x2_0000_0000;

fn at(offset: u64) -> CardAddr {
    CardAddr::new(offset)
}

fn opened() -> (World, Card) {
    let world = world(with_channels(1, 1));
    let card = open(&world);
    (world, card)
}

/// A copy that must arrive.
fn assert_works(world: &World, cdma: &mut Cdma, seed: u64) {
    let data = bytes(seed, 70_001);
    poke(world, 0, at(0x30_0001), &data);
    cdma.copy(at(0x30_0001), at(0x50_0003), 70_001).unwrap();
    assert!(peek(world, 0, at(0x50_0003), 70_001) == data);
}

const MODEL: usize = 1 << 20;

proptest! {
    #![proptest_config(seeded(64))]

    #[test]
    fn copies_match_an_array(
        copies in prop::collection::vec((0..MODEL, 0..MODEL, prop_oneof![0..130_usize, 1..200_000_usize]), 1..16),
        seed in any::<u64>(),
    ) {
        let (world, card) = opened();
        let mut cdma = card.cdma().unwrap();
        let mut model = bytes(seed, MODEL);
        let base = MEMORY - MODEL as u64;
        poke(&world, 0, at(base), &model);
        for (from, to, length) in copies {
            let length = length.min(MODEL - from.max(to));
            let copied = cdma.copy(at(base + from as u64), at(base + to as u64), length as u64);
            if from.abs_diff(to) < length {
                prop_assert!(matches!(copied, Err(CdmaError::Overlap { .. })), "{:?}", copied);
            } else {
                prop_assert_eq!(copied, Ok(()));
                model.copy_within(from..from + length, to);
            }
        }
        prop_assert!(peek(&world, 0, at(base), MODEL) == model);
    }
}

#[test]
fn ranges_that_cannot_be_are_refused_before_the_card_sees_them() {
    let (world, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let before = card.counters();
    for (from, to, length) in [
        (0, MEMORY - 99, 100),
        (MEMORY - 99, 0, 100),
        (MEMORY, 0, 1),
        (0, 0x8_0000_0000, 1),
        (0, MEMORY / 2, MEMORY),
    ] {
        let error = cdma.copy(at(from), at(to), length).unwrap_err();
        assert!(matches!(error, CdmaError::CardMemory { .. }), "{error}");
        assert!(error.to_string().contains("mock:0 CDMA"), "{error}");
    }
    for (from, to, length) in
        [(u64::MAX, 0, 2), (0, u64::MAX - 5, 100), (0, 1, u64::MAX), (8, 1 << 20, u64::MAX)]
    {
        let error = cdma.copy(at(from), at(to), length).unwrap_err();
        assert!(matches!(error, CdmaError::AddressRange { .. } | CdmaError::CardMemory { .. }), "{error}");
    }
    for (from, to, length) in
        [(0, 0, 1), (100, 100, 50), (100, 101, 2), (101, 100, 2), (0, 99, 100), (99, 0, 100)]
    {
        let error = cdma.copy(at(from), at(to), length).unwrap_err();
        assert!(matches!(error, CdmaError::Overlap { .. }), "{error}");
    }
    assert_eq!(card.counters(), before, "no register was touched");
    // Side by side is no overlap.
    cdma.copy(at(0), at(100), 100).unwrap();
    assert_works(&world, &mut cdma, 1);
}

#[test]
fn no_bytes_are_no_transfer() {
    let (world, card) = opened();
    let mut cdma = card.cdma().unwrap();
    poke(&world, 0, at(100), &[1; 100]);
    cdma.copy(at(0), at(100), 0).unwrap();
    cdma.copy(at(100), at(100), 0).unwrap();
    cdma.copy(at(MEMORY), at(0), 0).unwrap();
    assert_eq!(world.with_card(0, |card| card.counters().cdma_descriptors), Some(0));
    assert_eq!(peek(&world, 0, at(100), 100), [1; 100]);
}

#[test]
fn a_copy_longer_than_one_transfer_can_be_is_cut() {
    let (world, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let length = (64 << 20) + 12_345;
    let (from, to) = (0x1000_0001, 0x2000_0003);
    // Marks around every place where a piece may end.
    let marks: Vec<u64> = (0..=length >> 20).map(|mib| (mib << 20).min(length - 64)).collect();
    for &mark in &marks {
        poke(&world, 0, at(from + mark), &bytes(mark, 64));
    }
    poke(&world, 0, at(to + length), b"behind");
    cdma.copy(at(from), at(to), length).unwrap();
    for &mark in &marks {
        assert_eq!(peek(&world, 0, at(to + mark), 64), bytes(mark, 64), "at {mark:#x}");
    }
    assert_eq!(peek(&world, 0, at(to + length), 6), b"behind");
    let counted = world.with_card(0, |card| (card.counters().cdma_descriptors, card.counters().cdma_bytes));
    assert_eq!(counted, Some((length.div_ceil(4 << 20), length)), "pieces of 4 MiB");
}

#[test]
fn one_owner_at_a_time() {
    let (world, card) = opened();
    let cdma = card.cdma().unwrap();
    assert!(matches!(card.cdma(), Err(ResourceError::InUse { .. })));
    assert!(matches!(card.clone().cdma_at(BarOffset::new(0x1000)), Err(ResourceError::InUse { .. })));
    drop(cdma);
    assert_works(&world, &mut card.cdma().unwrap(), 2);
    // An endpoint uses it for itself.
    let endpoint = fpga_driver::Endpoint::open_with(&card, &fpga_tests::net::options(1)).unwrap();
    assert!(matches!(card.cdma(), Err(ResourceError::InUse { .. })));
    drop(endpoint);
    assert_works(&world, &mut card.cdma().unwrap(), 3);
}

#[test]
fn an_error_ends_in_a_reset_and_the_engine_works_again() {
    let (world, card) = opened();
    let mut cdma = card.cdma().unwrap();
    // The second of three pieces fails.
    let piece = 32 << 20;
    for (poisoned, done) in [(piece + 100, piece), (100, 0), (2 * piece + 8, 2 * piece)] {
        world.with_card(0, |card| card.poison(at(poisoned), 64));
        let error = cdma.copy(at(0), at(0x1_0000_0000), 2 * piece + 4096).unwrap_err();
        let CdmaError::Engine { source_start, destination, length, done: found, status, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*source_start, *destination, *length), (at(0), at(0x1_0000_0000), 2 * piece + 4096));
        assert_eq!(*found, done);
        assert!(status.has_error());
        assert!(error.to_string().contains("can be used again"), "{error}");
        assert!(!cdma.status().unwrap().has_error(), "it was reset");
        world.with_card(0, |card| card.poison(at(0), 0));
        assert_works(&world, &mut cdma, done);
    }
    // The next owner too.
    drop(cdma);
    assert_works(&world, &mut card.cdma().unwrap(), 5);
}

#[test]
fn a_copy_ends_in_the_time_it_is_given() {
    let (world, card) = opened();
    let mut cdma = card.cdma().unwrap();
    let data = bytes(1, 9 << 20);
    poke(&world, 0, at(0x1000_0000), &data);
    // Virtual time: a page of 64 KiB takes 100 ns, so 4 MiB take some 7 microseconds.
    let mut seen = Vec::new();
    for micros in 0..40 {
        poke(&world, 0, at(0x1_0000_0000), &[0; 9 << 20]);
        let limit = Duration::from_micros(micros);
        match cdma.copy_with_timeout(at(0x1000_0000), at(0x1_0000_0000), 9 << 20, limit) {
            Ok(()) => seen.push(9 << 20),
            Err(CdmaError::TimedOut { done, length, .. }) => {
                assert_eq!(length, 9 << 20);
                assert!(done < length);
                let all = usize::try_from(done).unwrap();
                assert!(peek(&world, 0, at(0x1_0000_0000), all) == data[..all]);
                seen.push(all);
            }
            Err(error) => panic!("{error}"),
        }
        // It was reset: nothing goes on behind the caller's back.
        let then = peek(&world, 0, at(0x1_0000_0000), 9 << 20);
        world.step_until_idle();
        assert!(peek(&world, 0, at(0x1_0000_0000), 9 << 20) == then);
        assert_works(&world, &mut cdma, micros);
    }
    assert!(seen.is_sorted(), "{seen:?}");
    seen.dedup();
    assert_eq!(seen, [0, 4 << 20, 8 << 20, 9 << 20], "every piece is a place to stop at");
    assert!(peek(&world, 0, at(0x1_0000_0000), 9 << 20) == data);
}

#[test]
fn unaligned_copies_on_a_build_without_realignment_fail_typed() {
    let world = world(described("cdma: { dre: false, data_width: 512 }"));
    let card = open(&world);
    let mut cdma = card.cdma().unwrap();
    let data = bytes(1, 4096);
    poke(&world, 0, at(0x1000), &data);
    let error = cdma.copy(at(0x1001), at(0x8000), 100).unwrap_err();
    assert!(matches!(error, CdmaError::Engine { done: 0, .. }), "{error}");
    cdma.copy(at(0x1000), at(0x8040), 4000).unwrap();
    assert!(peek(&world, 0, at(0x8040), 4000) == data[..4000]);
}

#[test]
fn every_build_of_the_engine_copies() {
    for sections in [
        "cdma: { address_width: 32 }\nmemory: { size: 0x10000000 }",
        "cdma: { address_width: 64, sg: false }",
        "cdma: { data_width: 32 }",
        "cdma: { address_width: 40 }",
    ] {
        let world = world(described(sections));
        let card = open(&world);
        assert_works(&world, &mut card.cdma().unwrap(), 7);
    }
}

#[test]
fn a_card_without_identity_has_none_unless_told() {
    let world = world(with_channels(1, 1));
    let card = open_with(&world, OpenOptions::default().network_interface(NetworkInterface::Ignored));
    let error = card.cdma().unwrap_err();
    assert!(matches!(error, ResourceError::Absent { .. }), "{error}");
    assert!(error.to_string().contains("cdma_at"), "{error}");
    for wrong in [0xFFFC, 0x1_0000, u64::MAX] {
        let error = card.cdma_at(BarOffset::new(wrong)).unwrap_err();
        assert!(matches!(error, ResourceError::Mmio { .. }), "{error}");
    }
    assert_works(&world, &mut card.cdma_at(BarOffset::new(0x1000)).unwrap(), 4);
    // Without an identity nobody knows where memory ends: the bus says so.
    let mut cdma = card.cdma_at(BarOffset::new(0x1000)).unwrap();
    let error = cdma.copy(at(0), at(MEMORY), 64).unwrap_err();
    assert!(matches!(error, CdmaError::Engine { .. }), "{error}");
    assert_works(&world, &mut cdma, 5);
}

#[test]
fn a_card_that_leaves() {
    for failure in [CardFailure::AllOnes, CardFailure::Gone] {
        let (world, card) = opened();
        let mut cdma = card.cdma().unwrap();
        assert_works(&world, &mut cdma, 1);
        world.fail(0, failure);
        let error = cdma.copy(at(0), at(0x1000), 64).unwrap_err();
        assert!(matches!(error, CdmaError::Gone { .. } | CdmaError::Mmio { .. }), "{error}");
        assert!(error.to_string().contains("gone"), "{error}");
        drop((cdma, card));
        world.fail(0, CardFailure::None);
        let card = open(&world);
        assert_works(&world, &mut card.cdma().unwrap(), 2);
    }
}
