//! Bad input and failing devices: each has its typed error, and whatever happens, every buffer is back or in quarantine exactly
//! once, and the card can be used afterwards.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::expect_used, reason = "a panic is the failure report")]

use std::time::Duration;

use fpga_card::{CardDescription, FaultKind};
use fpga_driver::core::ring::CountFault;
use fpga_driver::firmware::generated::{CONTRACT_CHECKSUM, IDENTITY_MAGIC};
use fpga_driver::firmware::identity::{IdentityError, ReadError};
use fpga_driver::mock::{CardFailure, World};
use fpga_driver::pci::{DmaPoolOptions, MmioError, QuarantineReason};
use fpga_driver::registers::xdma::{
    ChannelError as StatusBit, PerChannel, SGDMA_COMMON_BASE, SgdmaBlock, SgdmaCommonBlock, sgdma_base,
};
use fpga_driver::{
    Card, CardAddr, ChannelError, ChannelFault, ChannelOptions, Completion, Direction, DmaBuffer, FaultCause,
    H2cChannel, Iova, NetworkInterface, OpenError, OpenOptions, ResourceError, SubmitError, TransferError,
    Transport, WaitOptions,
};
use fpga_tests::bytes;
use fpga_tests::cards::{
    DMA_BAR, assert_closed, assert_pool, described, hurried_world, open, open_with, peek, poke, register,
    seeded, with_channels, world,
};
use fpga_tests::tampered::{Replaced, Tampered};
use proptest::prelude::*;

/// Descriptors and write-back of one channel: one area of DMA memory.
const AREA: usize = 1;
const MEMORY: u64 = 0x2_0000_0000;

fn ignored() -> OpenOptions {
    OpenOptions::default().network_interface(NetworkInterface::Ignored)
}

fn try_open(world: &World, options: OpenOptions) -> Result<Card, OpenError> {
    Card::open_with(world.transport(0), options)
}

fn filled(card: &Card, data: &[u8]) -> DmaBuffer {
    let mut buffer = card.buffer(data.len()).unwrap();
    buffer.as_mut_slice().copy_from_slice(data);
    buffer
}

/// A transfer through the channel arrives.
fn assert_works(world: &World, card: &Card, channel: &mut H2cChannel, seed: u64) {
    let data = bytes(seed, 20_000);
    let at = CardAddr::new(0xC_0001);
    drop(channel.write(filled(card, &data), at).unwrap());
    assert!(peek(world, 0, at, data.len()) == data);
}

fn steps_of(world: &World, count: usize) {
    for _ in 0..count {
        world.step();
    }
}

/// A message for people: names the card and is more than a word.
fn assert_message(error: &dyn std::fmt::Display, parts: &[&str]) {
    let message = error.to_string();
    for part in ["mock:0"].iter().chain(parts) {
        assert!(message.contains(part), "{part:?} is not in {message:?}");
    }
}

// Opening.

#[test]
fn bars_that_are_missing() {
    let none = world(described("bars: { user: null, dma: null, bypass: null }"));
    assert!(matches!(try_open(&none, ignored()), Err(OpenError::NoBars { .. })));

    // No MSI-X table at its place, no BAR of 64 KiB: nothing is guessed, and no user logic is read.
    let no_dma = world(described(
        "bars: { user: { size: 0x20000 }, dma: null, bypass: { size: 0x100000, width: 64 } }",
    ));
    let error = try_open(&no_dma, ignored()).unwrap_err();
    let OpenError::DmaBarUnclear { found, .. } = &error else { panic!("{error}") };
    assert_eq!(*found, [(0, 0x2_0000), (1, 0x10_0000)]);
    assert_message(&error, &["name it in the open options"]);
    assert_eq!(no_dma.with_card(0, |card| card.counters().mmio_reads), Some(0));
    // The option decides, and what it names is confirmed.
    let error = try_open(&no_dma, ignored().dma_bar(1)).unwrap_err();
    assert!(matches!(error, OpenError::NotXdma { index: 1, .. }), "{error}");

    let no_user = world(described("bars: { user: null }"));
    let error = try_open(&no_user, OpenOptions::default()).unwrap_err();
    assert!(matches!(error, OpenError::RoleAbsent { .. }), "{error}");
    let card = open_with(&no_user, ignored());
    assert!(card.user_bar().is_none());
    assert!(matches!(card.cdma(), Err(ResourceError::Absent { .. })));
    assert_works(&no_user, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn bars_that_are_too_small() {
    let dma = world(described("bars: { dma: { size: 0x4000 } }"));
    let error = try_open(&dma, OpenOptions::default().dma_bar(1)).unwrap_err();
    let OpenError::BarTooSmall { role: "DMA", index: 1, size: 0x4000, needed: 0x8000, .. } = error else {
        panic!("{error}")
    };
    let user = world(described("bars: { user: { size: 0x4000 } }"));
    let error = try_open(&user, OpenOptions::default()).unwrap_err();
    let OpenError::BarTooSmall { role: "user", index: 0, size: 0x4000, .. } = error else {
        panic!("{error}")
    };
    assert_closed(&user, 0);
    let card = open_with(&user, ignored());
    assert_works(&user, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn wrong_options() {
    let world = world(CardDescription::default());
    let error = try_open(&world, OpenOptions::default().dma_bar(5)).unwrap_err();
    assert!(matches!(error, OpenError::BarAbsent { index: 5, .. }), "{error}");
    let error = try_open(&world, OpenOptions::default().dma_bar(200)).unwrap_err();
    assert!(matches!(error, OpenError::BarAbsent { index: 200, .. }), "{error}");
    let error = try_open(&world, OpenOptions::default().dma_bar(0)).unwrap_err();
    assert!(matches!(error, OpenError::NotXdma { index: 0, .. }), "{error}");
    assert_message(&error, &["BAR 0", "0x2000"]);
    assert_closed(&world, 0);
    let card = open_with(&world, OpenOptions::default().dma_bar(1));
    assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
}

#[test]
fn a_card_without_channels_is_not_taken_for_one_with() {
    // Every channel identifier reads as something else.
    let world = world(CardDescription::default());
    let replaced = (0..4).flat_map(|n| [0x100 * n, 0x1000 + 0x100 * n]);
    let replaced = replaced.map(|at| Replaced { bar: DMA_BAR, at, value: 0 }).collect();
    let card = Card::open_with(Tampered::new(world.transport(0), replaced), ignored()).unwrap();
    assert_eq!((card.info().xdma.h2c_channels, card.info().xdma.c2h_channels), (0, 0));
    assert!(matches!(card.h2c(0), Err(ResourceError::NoSuchChannel { available: 0, .. })));
}

#[test]
fn channels_that_do_not_exist_or_are_taken() {
    let world = world(with_channels(2, 1));
    let card = open(&world);
    for number in [2, 3, 4, 7, 255] {
        let error = card.h2c(number).unwrap_err();
        assert!(matches!(error, ResourceError::NoSuchChannel { available: 2, .. }), "{error}");
        assert_message(&error, &["has 2"]);
        assert!(matches!(card.c2h(number), Err(ResourceError::NoSuchChannel { available: 1, .. })));
    }
    let held = card.h2c(1).unwrap();
    let error = card.clone().h2c(1).unwrap_err();
    assert!(matches!(error, ResourceError::InUse { .. }), "{error}");
    assert_message(&error, &["channel h2c1"]);
    // The same number in the other direction, and another number, are others.
    drop(card.h2c(0).unwrap());
    assert!(card.c2h(0).is_ok());
    drop(held);
    assert_works(&world, &card, &mut card.h2c(1).unwrap(), 3);
    assert_pool(&card, 0, 0);
}

#[test]
fn a_card_with_another_identity() {
    let version = |value: u32| described(&format!("ni: {{ version_override: {value} }}"));
    let cases = [
        (version(0x0002_0000), "update the software"),
        (version(0x0000_0009), "update the bitstream"),
        (
            described(&format!("ni: {{ checksum_override: {} }}", CONTRACT_CHECKSUM ^ 1)),
            "build both from the same",
        ),
    ];
    for (file, advice) in cases {
        let world = world(file);
        let error = try_open(&world, OpenOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::Identity { .. }), "{error}");
        assert_message(&error, &[advice]);
        // Refused means untouched: no right to do DMA, no memory mapped.
        assert_closed(&world, 0);
        let card = open_with(&world, ignored());
        assert!(card.info().identity.is_none() && card.info().ni.is_none());
        assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
    }
    // Somebody else's user logic under our subsystem id.
    let world = world(CardDescription::default());
    for (value, all_ones) in [(IDENTITY_MAGIC ^ 0x100, false), (0, false), (u32::MAX, true)] {
        let words = if all_ones { 0..64 } else { 0..1 };
        let replaced: Vec<_> = words.map(|word| Replaced { bar: 0, at: word * 4, value }).collect();
        let tampered = Tampered::new(world.transport(0), replaced);
        let error = Card::open(tampered.clone()).unwrap_err();
        let OpenError::Identity { source: ReadError::Refused(source), .. } = &error else {
            panic!("{error}")
        };
        if all_ones {
            assert_eq!(*source, IdentityError::AllOnes);
        } else {
            assert_eq!(*source, IdentityError::WrongMagic { found: value });
            assert_message(&error, &["open the card without it"]);
        }
        drop(error);
        let card = Card::open_with(tampered, ignored()).unwrap();
        assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
    }
}

#[test]
fn the_user_bar_of_a_foreign_card_is_never_read() {
    let world = world(described("pci: { subsystem_device: 0x0007 }"));
    world.with_card(0, |card| card.set_access_log(fpga_card::AccessLog::bounded(10_000)));
    let card = open(&world);
    assert!(card.info().identity.is_none());
    assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
    drop(card);
    let touched = world.with_card(0, |card| match card.access_log() {
        fpga_card::AccessLog::Bounded { entries, .. } => {
            entries.iter().filter(|access| access.target == fpga_card::AccessTarget::Bar(0)).count()
        }
        _ => usize::MAX,
    });
    assert_eq!(touched, Some(0));
    // Unless the user says that it is there.
    let card = open_with(&world, OpenOptions::default().network_interface(NetworkInterface::Expected));
    assert!(card.info().ni.is_some());
}

// Addresses.

#[test]
fn card_addresses_past_memory_are_refused_before_the_card_sees_them() {
    let world = world(CardDescription::default());
    let card = open(&world);
    let mut h2c = card.h2c(0).unwrap();
    let mut c2h = card.c2h(0).unwrap();
    let windows = card.info().ni.as_ref().unwrap().windows;
    let behind_windows = windows.address(windows.count, 0).get();
    let before = card.counters();
    for at in [
        MEMORY - 99,
        MEMORY,
        MEMORY + 1,
        0x8_0000_0000,
        behind_windows - 99,
        behind_windows,
        u64::MAX - 99,
        u64::MAX,
    ] {
        let at = CardAddr::new(at);
        let refused = h2c.submit(filled(&card, &[9; 100]), at).unwrap_err();
        let SubmitError::CardMemory { start, length: 100, memory_last, .. } = refused.error else {
            panic!("{:?}", refused.error)
        };
        assert_eq!((start, memory_last), (at, CardAddr::new(MEMORY - 1)));
        assert_message(&refused, &["h2c0", "100 bytes"]);
        assert_eq!(refused.buffer.as_slice(), [9; 100]);
        let failed = c2h.read(refused.buffer, at).unwrap_err();
        assert!(matches!(failed.error, TransferError::Submit(SubmitError::CardMemory { .. })), "{failed}");
        assert_eq!(failed.buffer.unwrap().as_slice(), [9; 100]);
    }
    assert_eq!(card.counters(), before, "nothing reached the card");
    // To the last byte.
    h2c.write(filled(&card, &[1; 100]), CardAddr::new(MEMORY - 100)).unwrap();
    h2c.write(filled(&card, &[1; 100]), CardAddr::new(behind_windows - 100)).unwrap();
    assert_works(&world, &card, &mut h2c, 1);
    assert_pool(&card, 2 * AREA, 0);
}

/// Where nobody knows where memory ends, the AXI bus answers.
fn unknown_memory() -> (World, Card) {
    let world = world(described("memory: { size: 0x100000 }"));
    let card = open_with(&world, ignored());
    (world, card)
}

fn bits(fault: &ChannelFault) -> Vec<StatusBit> {
    fault.status_errors().collect()
}

#[test]
fn an_axi_decode_error_names_its_place() {
    let (world, card) = unknown_memory();
    let options = ChannelOptions::default().max_descriptor_length(4096);
    for direction in [Direction::H2c, Direction::C2h] {
        // Four pages, of which two lie in memory.
        let at = CardAddr::new(0x10_0000 - 2 * 4096);
        let buffer = card.memory().allocate_aligned(4 * 4096, 4096).unwrap();
        let iova = buffer.iova().get();
        let (failed, bit) = match direction {
            Direction::C2h => {
                (card.c2h_with(0, options).unwrap().read(buffer, at), StatusBit::CardReadDecode)
            }
            _ => (card.h2c_with(0, options).unwrap().write(buffer, at), StatusBit::CardWriteDecode),
        };
        let failed = failed.unwrap_err();
        let TransferError::Fault(fault) = &failed.error else { panic!("{failed}") };
        assert_eq!(bits(fault), [bit]);
        assert_eq!(fault.channel.direction, direction);
        let place = fault.place.unwrap();
        assert_eq!(place.descriptor, 2);
        assert_eq!(place.host, Iova::new(iova + 2 * 4096));
        assert_eq!(place.card, CardAddr::new(0x10_0000));
        assert_eq!((place.length, place.bytes_done), (4096, 2 * 4096));
        assert_message(
            &failed,
            &[&fault.channel.to_string(), "descriptor 2", "after 8192 bytes", "can be used again"],
        );
        assert_eq!(failed.buffer.unwrap().len(), 4 * 4096);
        assert_pool(&card, 0, 0);
    }
    assert_works(&world, &card, &mut card.h2c(0).unwrap(), 4);
}

#[test]
fn a_slave_error_ends_the_run_at_its_transfer() {
    let (world, card) = unknown_memory();
    let mut channel = card.h2c(0).unwrap();
    world.with_card(0, |card| card.poison(CardAddr::new(0x4_0000), 64));
    let good = channel.submit(filled(&card, &bytes(1, 3000)), CardAddr::new(0x1000)).unwrap();
    let bad = channel.submit(card.buffer(5000).unwrap(), CardAddr::new(0x3_F800)).unwrap();
    let later = channel.submit(card.buffer(6000).unwrap(), CardAddr::new(0x8_0000)).unwrap();
    let ended = |channel: &mut H2cChannel, ticket| channel.wait(ticket, WaitOptions::default()).unwrap();
    assert_eq!(ended(&mut channel, good).outcome, Ok(3000));
    let done = ended(&mut channel, bad);
    let fault = done.outcome.unwrap_err();
    assert_eq!(bits(&fault), [StatusBit::CardWriteSlave]);
    assert_eq!(fault.place.unwrap().card, CardAddr::new(0x3_F800));
    assert_eq!(done.buffer.unwrap().len(), 5000);
    let done = ended(&mut channel, later);
    let fault = done.outcome.unwrap_err();
    assert_eq!((fault.cause.clone(), fault.place), (FaultCause::Earlier, None));
    assert_message(&fault, &["h2c0", "submit it again"]);
    assert_eq!(done.buffer.unwrap().len(), 6000);
    assert!(peek(&world, 0, CardAddr::new(0x1000), 3000) == bytes(1, 3000), "what came before is there");
    assert_eq!(peek(&world, 0, CardAddr::new(0x8_0000), 6000), [0; 6000], "what came after is not");
    world.with_card(0, |card| card.poison(CardAddr::ZERO, 0));
    let data = bytes(2, 5000);
    channel.write(filled(&card, &data), CardAddr::new(0x3_F800)).unwrap();
    assert!(peek(&world, 0, CardAddr::new(0x3_F800), 5000) == data);
    assert_pool(&card, AREA, 0);
}

proptest! {
    #![proptest_config(seeded(48))]

    /// A run in which any transfers are bad: what precedes the first bad one arrives, everything comes back once.
    #[test]
    fn any_bad_transfer_of_a_run(lengths in prop::collection::vec(1..20_000_usize, 1..20), bad in prop::collection::vec(any::<bool>(), 20)) {
        let (world, card) = unknown_memory();
        let mut channel = card.h2c(0).unwrap();
        let mut expected = Vec::new();
        for (n, &length) in lengths.iter().enumerate() {
            let at = if bad[n] { 0x10_0000 } else { n as u64 * 0x8000 };
            let buffer = filled(&card, &bytes(n as u64, length));
            let iova = buffer.iova();
            let ticket = channel.submit(buffer, CardAddr::new(at)).unwrap();
            expected.push((ticket, iova));
        }
        let first_bad = bad[..lengths.len()].iter().position(|bad| *bad).unwrap_or(lengths.len());
        for (n, (ticket, iova)) in expected.into_iter().enumerate() {
            let done = channel.wait(ticket, WaitOptions::default()).unwrap();
            prop_assert_eq!(done.buffer.unwrap().iova(), iova);
            match n.cmp(&first_bad) {
                std::cmp::Ordering::Less => {
                    prop_assert_eq!(done.outcome, Ok(lengths[n] as u64));
                    prop_assert!(peek(&world, 0, CardAddr::new(n as u64 * 0x8000), lengths[n]) == bytes(n as u64, lengths[n]));
                }
                std::cmp::Ordering::Equal => prop_assert_eq!(bits(&done.outcome.unwrap_err()), [StatusBit::CardWriteDecode]),
                std::cmp::Ordering::Greater => {
                    let fault = done.outcome.unwrap_err();
                    // A run is limited; what was queued behind it may have been a run of its own.
                    prop_assert!(matches!(fault.cause, FaultCause::Earlier | FaultCause::Status(_)));
                }
            }
        }
        assert_works(&world, &card, &mut channel, 5);
        assert_pool(&card, AREA, 0);
    }
}

// The host's side of the bus.

/// Each allocation its own mapping, so that a test can take one away.
fn small_regions() -> OpenOptions {
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 4096;
    OpenOptions::default().memory(memory)
}

#[test]
fn a_source_that_is_not_mapped() {
    let world = world(CardDescription::default());
    let card = open_with(&world, small_regions());
    let mut channel = card.h2c(0).unwrap();
    let data = bytes(1, 8192);
    let buffer = filled(&card, &data);
    world.transport(0).unmap_dma(buffer.iova(), 8192).unwrap();
    let failed = channel.write(buffer, CardAddr::new(0x1000)).unwrap_err();
    let TransferError::Fault(fault) = &failed.error else { panic!("{failed}") };
    assert_eq!(bits(fault), [StatusBit::HostReadUnsupportedRequest]);
    assert_eq!(fault.place.unwrap().bytes_done, 0);
    let lost = failed.buffer.unwrap();
    assert_works(&world, &card, &mut channel, 2);
    drop(lost);
    assert_pool(&card, AREA, 0);
}

#[test]
fn a_lost_posted_write_has_no_status_bit() {
    let world = world(CardDescription::default());
    let card = open_with(&world, small_regions());
    let mut channel = card.c2h(0).unwrap();
    let mut buffer = card.buffer(8192).unwrap();
    buffer.as_mut_slice().fill(0xEE);
    world.transport(0).unmap_dma(buffer.iova(), 8192).unwrap();
    // PCIe gives a requester no answer to a write: the engine reports success. Inventing an error would be a lie about
    // real cards; the simulated card's own log has it.
    let buffer = channel.read(buffer, CardAddr::new(0x1000)).unwrap();
    assert_eq!(buffer.as_slice(), [0xEE; 8192]);
    let logged =
        world.with_card(0, |card| card.faults().iter().any(|fault| fault.kind == FaultKind::HostWriteLost));
    assert_eq!(logged, Some(true));
    assert_eq!(channel.in_flight(), 0);
}

#[test]
fn descriptors_that_are_not_mapped() {
    let world = world(CardDescription::default());
    let card = open_with(&world, small_regions());
    let mut channel = card.h2c(0).unwrap();
    assert_works(&world, &card, &mut channel, 1);
    // Write-back and descriptors are in one mapping: the engine cannot even tell that it stopped.
    let base = sgdma_base(Direction::H2c, 0);
    let first = u64::from(register(&world, 0, DMA_BAR, SgdmaBlock::DESCRIPTOR_LOW.address(base)))
        | u64::from(register(&world, 0, DMA_BAR, SgdmaBlock::DESCRIPTOR_HIGH.address(base))) << 32;
    world.transport(0).unmap_dma(Iova::new(first), (1024 * 32 + 4096) as u64).unwrap();
    let failed = channel.write(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap_err();
    let TransferError::Fault(fault) = &failed.error else { panic!("{failed}") };
    assert_eq!(bits(fault), [StatusBit::DescriptorUnsupportedRequest]);
    assert!(failed.buffer.is_some());
    drop(failed);
    // Taken while the other is held: its ring gets memory that is still mapped.
    assert_works(&world, &card, &mut card.h2c(1).unwrap(), 2);
    drop(channel);
    assert_pool(&card, 0, 0);
}

// Devices that stop, lie or leave.

#[test]
fn an_impossible_count_is_not_believed() {
    for reported in [2, 5, 0x100, 0x7F_FFFF, 0x00FF_FFFF] {
        let world = world(CardDescription::default());
        let card = open(&world);
        let mut channel = card.h2c(0).unwrap();
        assert_works(&world, &card, &mut channel, 1);
        world.with_card(0, |card| card.override_completed_count(Some(reported)));
        let failed = channel.write(card.buffer(4096).unwrap(), CardAddr::ZERO).unwrap_err();
        let TransferError::Fault(fault) = &failed.error else { panic!("{failed}") };
        let FaultCause::Count(CountFault::BeyondPosted { reported: found, posted: 1, .. }) = fault.cause
        else {
            panic!("{fault}")
        };
        assert_eq!(found, reported);
        assert_message(&failed, &["h2c0", "can be used again"]);
        assert!(failed.buffer.is_some());
        // As long as it lies, every transfer fails; then the channel works, without anything done to it.
        let again = channel.write(failed.buffer.unwrap(), CardAddr::ZERO).unwrap_err();
        assert!(matches!(again.error, TransferError::Fault(_)));
        world.with_card(0, |card| card.override_completed_count(None));
        assert_works(&world, &card, &mut channel, 2);
        drop(again);
        assert_pool(&card, AREA, 0);
    }
}

#[test]
fn a_count_that_stays_behind_is_noticed() {
    let world = world(CardDescription::default());
    let card = open(&world);
    let mut channel = card.h2c(0).unwrap();
    world.with_card(0, |card| card.override_completed_count(Some(0)));
    let tickets: Vec<_> =
        (0..3).map(|n| channel.submit(card.buffer(4096).unwrap(), CardAddr::new(n << 12)).unwrap()).collect();
    let done = channel.wait(tickets[0], WaitOptions::default()).unwrap();
    let fault = done.outcome.unwrap_err();
    assert!(matches!(fault.cause, FaultCause::Silent(_)), "{fault}");
    assert_eq!(fault.place.unwrap().descriptor, 0);
    assert_message(&fault, &["without an error bit"]);
    for ticket in &tickets[1..] {
        let done = channel.wait(*ticket, WaitOptions::default()).unwrap();
        assert_eq!(done.outcome.unwrap_err().cause, FaultCause::Earlier);
        assert!(done.buffer.is_some());
    }
    world.with_card(0, |card| card.override_completed_count(None));
    assert_works(&world, &card, &mut channel, 1);
}

proptest! {
    #![proptest_config(seeded(64))]

    /// Whatever counts the device makes up, and whenever: transfers end once each, buffers come back once each, nothing is
    /// reported as done that was not, and the channel works as soon as the device is honest again.
    #[test]
    fn made_up_counts(lies in prop::collection::vec((prop::option::of(prop_oneof![0..70_u32, any::<u32>()]), 1..64_usize), 1..12), seed in any::<u64>()) {
        let world = world(CardDescription::default());
        let card = open(&world);
        let mut channel = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(4096)).unwrap();
        let mut seen = std::collections::BTreeMap::new();
        let (mut submitted, mut returned) = (0, 0);
        for (n, (lie, batch)) in lies.iter().enumerate() {
            world.with_card(0, |card| card.override_completed_count(*lie));
            for k in 0..*batch {
                let data = bytes(seed.wrapping_add(n as u64 * 64 + k as u64), 5000);
                let ticket = channel.submit(filled(&card, &data), CardAddr::new((n * 64 + k) as u64 * 8192)).unwrap();
                prop_assert!(seen.insert(ticket, None).is_none());
                submitted += 1;
            }
            let mut rounds = 0;
            while channel.in_flight() > 0 {
                // A device that reports too little makes no progress until somebody looks.
                if let Some((&ticket, _)) = seen.iter().find(|(_, outcome)| outcome.is_none()) {
                    let done = channel.wait(ticket, WaitOptions::default()).unwrap();
                    note(&mut seen, done, &mut returned);
                }
                while let Some(done) = channel.next_completion() {
                    note(&mut seen, done, &mut returned);
                }
                rounds += 1;
                prop_assert!(rounds < 1000);
            }
            while let Some(done) = channel.next_completion() {
                note(&mut seen, done, &mut returned);
            }
        }
        prop_assert_eq!(submitted, returned);
        world.with_card(0, |card| card.override_completed_count(None));
        assert_works(&world, &card, &mut channel, seed);
        assert_pool(&card, AREA, 0);
    }
}

fn note(
    seen: &mut std::collections::BTreeMap<fpga_driver::Ticket, Option<bool>>,
    done: Completion,
    returned: &mut usize,
) {
    assert!(done.buffer.is_some(), "an idle engine's buffers come back");
    let place = seen.get_mut(&done.ticket).expect("submitted");
    assert!(place.replace(done.outcome.is_ok()).is_none(), "ended twice");
    *returned += 1;
}

fn halt(card: &Card, on: bool) {
    let channels = PerChannel::one(Direction::H2c, 0);
    let register =
        if on { SgdmaCommonBlock::HALT_SET.offset() } else { SgdmaCommonBlock::HALT_CLEAR.offset() };
    card.dma_bar().write32(SGDMA_COMMON_BASE.offset_by(register), channels.into_bits()).unwrap();
}

#[test]
fn a_stalled_run_times_out_and_can_be_aborted() {
    let world = hurried_world(CardDescription::default());
    let card = open(&world);
    let mut channel = card.h2c(0).unwrap();
    // An engine that may not fetch descriptors is busy for ever.
    halt(&card, true);
    let tickets: Vec<_> =
        (0..5).map(|_| channel.submit(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap()).collect();
    let options = WaitOptions::default().timeout(Duration::from_millis(20));
    for _ in 0..2 {
        let error = channel.wait(tickets[0], options).unwrap_err();
        let ChannelError::TimedOut { completed: 0, posted: 5, waited_us, .. } = error else {
            panic!("{error}")
        };
        assert!((20_000..100_000).contains(&waited_us), "{waited_us} µs");
        assert_message(&error, &["h2c0", "0 of 5", "abort"]);
    }
    assert_eq!(channel.in_flight(), 5);
    assert_pool(&card, AREA + 5, 0);
    // Queued behind the run, never posted.
    let queued = channel.submit(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap();
    assert_eq!(channel.abort().unwrap(), 6);
    assert_eq!(channel.in_flight(), 0);
    for ticket in tickets.into_iter().chain([queued]) {
        let done = channel.wait(ticket, options).unwrap();
        assert_eq!(done.outcome.unwrap_err().cause, FaultCause::Aborted);
        assert!(done.buffer.is_some());
    }
    assert_eq!(channel.abort().unwrap(), 0, "nothing is left to abort");
    // A blocking call that times out stops the engine and gives the buffer back.
    let failed = channel.write(card.buffer(1000).unwrap(), CardAddr::ZERO).unwrap_err();
    assert!(matches!(failed.error, TransferError::Channel(ChannelError::TimedOut { .. })), "{failed}");
    assert!(failed.buffer.is_some());
    drop(failed);
    halt(&card, false);
    assert_works(&world, &card, &mut channel, 1);
    assert_pool(&card, AREA, 0);
}

#[test]
fn aborting_at_any_moment() {
    for steps in 0..60 {
        let world = world(CardDescription::default());
        let card = open(&world);
        let mut channel = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(8192)).unwrap();
        let data: Vec<_> = (0..6).map(|n| bytes(n, 30_000)).collect();
        for (n, data) in (0..).zip(&data) {
            channel.submit(filled(&card, data), CardAddr::new(n << 16)).unwrap();
        }
        channel.poll().unwrap();
        steps_of(&world, steps);
        assert_eq!(channel.abort().unwrap(), 6, "after {steps} steps");
        let mut failed = false;
        for (n, data) in (0..).zip(&data) {
            let done = channel.next_completion().unwrap();
            assert!(done.buffer.is_some());
            if done.outcome.is_ok() {
                assert!(!failed, "in order");
                assert!(peek(&world, 0, CardAddr::new(n << 16), 30_000) == *data);
            }
            failed |= done.outcome.is_err();
        }
        assert_works(&world, &card, &mut channel, 9);
        assert_pool(&card, AREA, 0);
    }
}

#[test]
fn a_card_that_does_not_answer_cannot_be_opened() {
    for failure in [CardFailure::AllOnes, CardFailure::Gone] {
        let world = world(CardDescription::default());
        world.fail(0, failure);
        let error = try_open(&world, OpenOptions::default()).unwrap_err();
        assert!(matches!(error, OpenError::Gone { .. }), "{failure:?}: {error:?}");
        assert_message(&error, &["gone", "rescan"]);
        world.fail(0, CardFailure::None);
        assert_closed(&world, 0);
        let card = open(&world);
        assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
    }
}

#[test]
fn a_card_that_leaves_in_the_middle_of_a_transfer() {
    // AllOnes: registers are lost, DMA goes on; Gone: everything is.
    for (failure, steps) in
        [CardFailure::AllOnes, CardFailure::Gone].into_iter().flat_map(|f| (0..40).map(move |s| (f, s)))
    {
        let world = world(CardDescription::default());
        let card = open(&world);
        let mut channel = card.h2c_with(0, ChannelOptions::default().max_descriptor_length(8192)).unwrap();
        let tickets: Vec<_> = (0..4)
            .map(|n| channel.submit(filled(&card, &bytes(n, 20_000)), CardAddr::new(n << 16)).unwrap())
            .collect();
        channel.poll().unwrap();
        steps_of(&world, steps);
        // Behind the run, not posted.
        let queued: Vec<_> = (0..3)
            .map(|n| channel.submit(card.buffer(500).unwrap(), CardAddr::new(n << 10)).unwrap())
            .collect();
        world.fail(0, failure);
        let mut returned = 0;
        let mut kept = 0;
        let (mut gone, mut run_failed) = (None, false);
        for ticket in tickets.iter().chain(&queued) {
            let done = match channel.wait(*ticket, WaitOptions::default()) {
                Ok(done) => done,
                Err(error) => {
                    gone = Some(error);
                    channel.wait(*ticket, WaitOptions::default()).unwrap()
                }
            };
            match (&done.outcome, done.buffer.is_some()) {
                (Ok(_), true) | (Err(_), true) => returned += 1,
                (Err(_), false) => kept += 1,
                (Ok(_), false) => panic!("done, but kept"),
            }
            run_failed |= tickets.contains(ticket) && done.outcome.is_err();
            if queued.contains(ticket) && run_failed {
                assert!(done.buffer.is_some(), "never posted: nobody can reach it");
            }
        }
        let ChannelError::Gone { quarantined, .. } = gone.expect("somebody must notice") else { panic!() };
        assert_eq!((quarantined, returned), (kept, 7 - kept), "{failure:?} after {steps} steps");
        assert!(channel.next_completion().is_none());
        // The ring itself is among what the card may still reach.
        let stats = assert_pool(&card, 0, kept + AREA);
        assert_eq!(stats.in_use_bytes, 0);
        assert!(
            card.memory().quarantined().iter().all(|record| record.reason == QuarantineReason::DeviceGone)
        );
        // Dead is dead: every call says so and hands buffers back.
        let refused = channel.submit(card.buffer(64).unwrap(), CardAddr::ZERO).unwrap_err();
        assert!(matches!(refused.error, SubmitError::Channel(ChannelError::Gone { .. })));
        assert!(matches!(channel.poll(), Err(ChannelError::Gone { .. })));
        assert!(matches!(channel.abort(), Err(ChannelError::Gone { .. })));
        assert_message(&channel.poll().unwrap_err(), &["reopen"]);
        drop(refused);
        drop((channel, card));
        world.fail(0, CardFailure::None);
        let card = open(&world);
        assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
        assert_pool(&card, 0, 0);
    }
}

#[test]
fn a_reset_makes_handles_stale() {
    let world = world(CardDescription::default());
    let card = open(&world);
    let mut channel = card.h2c(0).unwrap();
    channel.submit(card.buffer(100_000).unwrap(), CardAddr::ZERO).unwrap();
    channel.poll().unwrap();
    world.transport(0).reset(fpga_driver::pci::ResetLevel::Hot).unwrap();
    let error = channel.abort().unwrap_err();
    assert!(matches!(error, ChannelError::Mmio { source: MmioError::Stale { .. }, .. }), "{error}");
    drop((channel, card));
    let card = open(&world);
    assert_works(&world, &card, &mut card.h2c(0).unwrap(), 1);
    assert_pool(&card, 0, 0);
}

#[test]
fn no_memory_is_an_error_and_not_the_end() {
    let world = world(CardDescription::default());
    let mut memory = DmaPoolOptions::default();
    memory.region_size = 1 << 20;
    memory.limit = 1 << 20;
    let card = open_with(&world, OpenOptions::default().memory(memory));
    let mut channel = card.h2c(0).unwrap();
    let all = card.buffer(900 << 10).unwrap();
    let error = card.buffer(900 << 10).unwrap_err();
    assert!(matches!(error, ResourceError::Memory { .. }), "{error}");
    assert_message(&error, &["wait for transfers"]);
    assert!(matches!(card.buffer(0), Err(ResourceError::Memory { .. })));
    assert!(matches!(card.buffer(usize::MAX), Err(ResourceError::Memory { .. })));
    // Nor does a channel that finds none stay taken.
    let error = card.h2c_with(1, ChannelOptions::default().descriptors(65_536)).unwrap_err();
    assert!(matches!(error, ResourceError::Memory { .. }), "{error}");
    drop(all);
    assert!(card.h2c(1).is_ok());
    assert_works(&world, &card, &mut channel, 1);
    poke(&world, 0, CardAddr::ZERO, &[0]);
    assert_pool(&card, AREA, 0);
}
