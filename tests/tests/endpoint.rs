//! The network path: permissions, notifications, deadlines, every geometry, small tables, small rings, and the mirror of the
//! receive registry in the middle of transfers.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]
#![expect(clippy::cast_possible_truncation, reason = "lengths of tests")]
#![expect(clippy::panic, reason = "a panic is the failure report")]

use std::time::Duration;

use fpga_card::CardDescription;
use fpga_driver::core::Nanos;
use fpga_driver::core::mirror::{Difference, Field};
use fpga_driver::core::sender::TransferError;
use fpga_driver::endpoint::{
    EndpointError, EndpointOptions, RemoteRegion, SendError, SendNotify, SendOptions,
};
use fpga_driver::firmware::event::NackReason;
use fpga_driver::firmware::generated::ni;
use fpga_driver::mock::{CardFailure, DeliveryOrder};
use fpga_driver::{BarOffset, Card, CardAddr, CardRange, Endpoint, NodeId, ResourceError};
use fpga_tests::bytes;
use fpga_tests::cards::{assert_closed, described, seeded};
use fpga_tests::net::{Net, options};
use proptest::prelude::*;

const SOURCE: CardAddr = CardAddr::new(0x10_0000);
const TARGET: CardAddr = CardAddr::new(0x2000_0000);

fn random(seed: u64) -> DeliveryOrder {
    DeliveryOrder::Random { seed, depth: [2, 8, 64, 256][seed as usize % 4] }
}

fn at(base: CardAddr, offset: u64) -> CardAddr {
    base.checked_add(offset).unwrap()
}

/// One transfer that is refused: its completion says why, and nothing else comes of it.
fn assert_refused(net: &mut Net, region: &RemoteRegion, length: u64, untouched: (CardAddr, usize)) {
    net.put(0, SOURCE, &bytes(1, length as usize));
    net.put(1, untouched.0, &vec![0xC3; untouched.1]);
    let ticket = net.send(0, SOURCE, region, 0, length);
    net.settle();
    let done = net.completions[0].pop_front().unwrap();
    assert_eq!(done.ticket, ticket);
    let Err(TransferError::Refused { node, reason: NackReason::Violation, .. }) = done.result else {
        panic!("{:?}", done.result)
    };
    assert_eq!(node, region.node);
    assert_eq!(net.completions[0].pop_front(), None);
    assert_eq!(net.notifications[1].pop_front(), None);
    assert!(net.get(1, untouched.0, untouched.1).iter().all(|byte| *byte == 0xC3), "written in spite of it");
    let counters = net.end(1).receive_counters().unwrap();
    assert!(counters.violations > 0 && counters.nacks_sent > 0);
    net.assert_clean();
}

#[test]
fn a_wrong_key_opens_nothing() {
    for (order, length) in [(DeliveryOrder::InOrder, 100), (random(1), 4096), (random(2), 100_000)] {
        let mut net = Net::new(order);
        let region = net.region(1, TARGET, 100_000);
        for wrong in [region.remote.key ^ 1, 0, !region.remote.key] {
            let forged = RemoteRegion { key: wrong, ..region.remote };
            assert_refused(&mut net, &forged, length, (TARGET, 100_000));
        }
        net.carry(SOURCE, &region.remote, 0, &bytes(2, length as usize));
        net.assert_clean();
    }
}

#[test]
fn an_address_outside_the_region_is_not_written() {
    let mut net = Net::new(random(3));
    let region = net.region(1, TARGET, 10_000);
    // A sender that lies about the region's place.
    let before = RemoteRegion { address: CardAddr::new(TARGET.get() - 1), ..region.remote };
    assert_refused(&mut net, &before, 1000, (CardAddr::new(TARGET.get() - 1), 1));
    let behind = RemoteRegion { address: at(TARGET, 9_001), ..region.remote };
    assert_refused(&mut net, &behind, 1000, (at(TARGET, 10_000), 1000));
    let elsewhere = RemoteRegion { address: CardAddr::new(0x10_0000_0000), ..region.remote };
    assert_refused(&mut net, &elsewhere, 1000, (at(TARGET, 10_000), 1000));
    // What the sender can know is refused before anything is sent.
    let error = net.end(0).send(SOURCE, &region.remote, 9_001, 1000, SendOptions::default()).unwrap_err();
    assert!(matches!(error, SendError::TargetRange { region: 10_000, .. }), "{error}");
    let error = net.end(0).send(SOURCE, &region.remote, u64::MAX, 2, SendOptions::default()).unwrap_err();
    assert!(matches!(error, SendError::TargetRange { .. }), "{error}");
    let error = net.end(0).send(CardAddr::new(0x1_FFFF_FFFF), &region.remote, 0, 2, SendOptions::default());
    assert!(matches!(error, Err(SendError::SourceRange { .. })), "{error:?}");
    let anyone = RemoteRegion { node: NodeId::ANY, ..region.remote };
    let error = net.end(0).send(SOURCE, &anyone, 0, 2, SendOptions::default());
    assert!(matches!(error, Err(SendError::Sender { .. })), "{error:?}");
    net.carry(SOURCE, &region.remote, 9_000, &bytes(4, 1000));
    net.assert_clean();
}

/// A transfer that runs over the region's end: what lies behind it stays as it was.
#[test]
fn a_transfer_that_leaves_the_region_on_its_way() {
    for seed in 0..8 {
        let mut net = Net::new(random(seed));
        let region = net.region(1, TARGET, 50_000);
        let too_long = RemoteRegion { length: 200_000, ..region.remote };
        assert_refused(&mut net, &too_long, 200_000, (at(TARGET, 50_000), 150_000));
        net.carry(SOURCE, &region.remote, 0, &bytes(4, 50_000));
        net.assert_clean();
    }
}

#[test]
fn a_closed_region_is_closed() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(1, 10_000));
    net.end(1).close_region(&region).unwrap();
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    // The next one has another key, though it is the same place.
    let again = net.region(1, TARGET, 10_000);
    assert_ne!(again.remote.key, region.remote.key);
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    net.carry(SOURCE, &again.remote, 0, &bytes(2, 10_000));
    net.assert_clean();
}

#[test]
fn a_region_is_for_the_node_that_it_names() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let stranger = net.end(1).open_region(NodeId::new(99), CardRange::new(TARGET, 1000)).unwrap();
    assert_refused(&mut net, &stranger.remote, 1000, (TARGET, 1000));
    let anyone = net.end(1).open_region(NodeId::ANY, CardRange::new(at(TARGET, 0x1000), 1000)).unwrap();
    net.carry(SOURCE, &anyone.remote, 0, &bytes(2, 1000));
    net.assert_clean();
}

#[test]
fn two_regions_have_two_keys() {
    let mut net = Net::new(random(5));
    let first = net.region(1, TARGET, 40_000);
    let second = net.region(1, at(TARGET, 0x10_0000), 40_000);
    assert_ne!(first.remote.key, second.remote.key);
    let crossed = RemoteRegion { key: second.remote.key, ..first.remote };
    assert_refused(&mut net, &crossed, 40_000, (TARGET, 40_000));
    net.put(0, SOURCE, &bytes(1, 80_000));
    net.send(0, SOURCE, &first.remote, 0, 40_000);
    net.send(0, at(SOURCE, 40_000), &second.remote, 0, 40_000);
    net.settle();
    assert!(net.completions[0].drain(..).all(|done| done.result == Ok(())));
    assert_eq!(net.notifications[1].len(), 2);
    assert!(net.get(1, TARGET, 40_000) == bytes(1, 80_000)[..40_000]);
    assert!(net.get(1, at(TARGET, 0x10_0000), 40_000) == bytes(1, 80_000)[40_000..]);
    net.end(1).close_region(&first).unwrap();
    net.notifications[1].clear();
    net.carry(SOURCE, &second.remote, 7, &bytes(3, 30_000));
    net.assert_clean();
}

#[test]
fn regions_that_cannot_be() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let usable = net.end(1).usable_memory();
    for range in [
        CardRange::new(TARGET, 0),
        CardRange::new(usable.last(), 2),
        CardRange::new(CardAddr::new(u64::MAX), 1),
        CardRange::new(CardAddr::ZERO, u64::MAX),
    ] {
        let error = net.end(1).open_region(NodeId::ANY, range).unwrap_err();
        assert!(matches!(error, EndpointError::RegionRange { .. }), "{error}");
    }
    net.end(1).open_region(NodeId::ANY, CardRange::new(usable.last(), 1)).unwrap();
    let handles: Vec<_> = (0..15).map(|n| net.region(1, at(TARGET, n * 4096), 4096)).collect();
    let error = net.end(1).open_region(NodeId::ANY, CardRange::new(TARGET, 1)).unwrap_err();
    assert!(matches!(error, EndpointError::RegionsFull { capacity: 16, .. }), "{error}");
    net.end(1).close_region(&handles[7]).unwrap();
    net.region(1, TARGET, 1);
    net.carry(SOURCE, &handles[14].remote, 0, &bytes(1, 4096));
}

/// A region is its owner's for as long as the owner's endpoint lives: the next owner of the card has opened nothing.
#[test]
fn regions_end_with_their_endpoint() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(1, 10_000));
    let card = net.end(1).card().clone();
    net.ends[1] = None;
    net.ends[1] = Some(Endpoint::open_with(&card, &options(0xC)).unwrap());
    assert_refused(&mut net, &region.remote, 10_000, (TARGET, 10_000));
    let region = net.region(1, TARGET, 10_000);
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 10_000));
    net.assert_clean();
}

#[test]
fn the_sender_may_tell_the_receiver() {
    for seed in 0..8 {
        let mut net = Net::new(random(seed));
        let region = net.region(1, TARGET, 200_000);
        for length in [1, 512, 16_384, 200_000] {
            let data = bytes(seed + length, length as usize);
            net.put(0, SOURCE, &data);
            let told = SendOptions::default().notify(SendNotify::Sender);
            let ticket = net.send_with(0, SOURCE, &region.remote, 0, length, told);
            net.settle();
            let done = net.completions[0].pop_front().unwrap();
            assert_eq!((done.ticket, done.result), (ticket, Ok(())));
            let notice = net.notifications[1].pop_front().expect("told by the sender");
            assert_eq!((notice.address, notice.length), (TARGET, length));
            assert_eq!(net.notifications[1].pop_front(), None, "told once");
            assert!(net.get(1, TARGET, data.len()) == data);
        }
        net.assert_clean();
    }
}

#[test]
fn a_deadline_ends_a_transfer() {
    let mut net = Net::new(random(6));
    let region = net.region(1, TARGET, 4 << 20);
    net.put(0, SOURCE, &bytes(1, 4 << 20));
    let soon = SendOptions::default().deadline(Duration::from_micros(50));
    let late = net.send_with(0, SOURCE, &region.remote, 0, 4 << 20, soon);
    let fine = net.send_with(
        0,
        SOURCE,
        &region.remote,
        0,
        1000,
        SendOptions::default().deadline(Duration::from_secs(5)),
    );
    net.settle();
    let mut results: Vec<_> = net.completions[0].drain(..).collect();
    results.sort_by_key(|done| done.ticket == fine);
    assert_eq!(results.len(), 2);
    assert_eq!(results[0].ticket, late);
    assert!(matches!(results[0].result, Err(TransferError::Deadline { .. })), "{:?}", results[0].result);
    assert!((results[0].finished.get() - results[0].started.get()) < 5_000_000, "{:?}", results[0]);
    assert_eq!(results[1].result, Ok(()));
    net.assert_clean();
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 100_000));
    net.assert_clean();
}

#[test]
fn a_node_that_is_not_there() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 100_000);
    let nowhere = RemoteRegion { node: NodeId::new(77), ..region.remote };
    let lost = net.send(0, SOURCE, &nowhere, 0, 50_000);
    let fine = net.send(0, SOURCE, &region.remote, 0, 50_000);
    net.settle();
    let results: Vec<_> = net.completions[0].drain(..).collect();
    assert_eq!(
        results.iter().map(|done| done.ticket).collect::<Vec<_>>(),
        [fine, lost],
        "one waits for nobody"
    );
    assert_eq!(results[0].result, Ok(()));
    let Err(TransferError::Unanswered { node, tries, .. }) = results[1].result else {
        panic!("{:?}", results[1])
    };
    assert_eq!((node, tries), (NodeId::new(77), 8));
    assert!(net.world.undeliverable() > 0);
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 1000));
    net.assert_clean();
}

#[test]
fn a_transfer_of_no_bytes_sends_nothing() {
    let mut net = Net::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1);
    net.carry(SOURCE, &region.remote, 0, &[]);
    net.carry(SOURCE, &region.remote, 1, &[]);
    assert_eq!(net.world.with_card(0, |card| card.counters().frames_sent), Some(0));
}

#[test]
fn many_transfers_both_ways_at_once() {
    for seed in 0..12 {
        let mut net = Net::new(random(seed));
        let there = net.region(1, TARGET, 32 << 20);
        let back = net.region(0, TARGET, 32 << 20);
        // Big and regular ones in turn.
        let lengths = [100, 200_000, 1, 16_384, 16_385, 777, 500_000, 4096, 0, 65_536, 33];
        let mut expected = Vec::new();
        for (n, length) in lengths.into_iter().enumerate() {
            for (from, region) in [(0, &there.remote), (1, &back.remote)] {
                let data = bytes(seed * 100 + n as u64 * 2 + from as u64, length);
                let place = n as u64 * 0x10_0000;
                net.put(from, at(SOURCE, place + 5), &data);
                let ticket = net.send(from, at(SOURCE, place + 5), region, place + 3, length as u64);
                expected.push((from, ticket, place + 3, data));
            }
        }
        net.settle();
        for (from, ticket, place, data) in expected {
            let done = net.completions[from].iter().filter(|done| done.ticket == ticket).collect::<Vec<_>>();
            assert_eq!(done.len(), 1);
            assert_eq!(done[0].result, Ok(()));
            assert!(
                net.get(1 - from, at(TARGET, place), data.len()) == data,
                "seed {seed}, {} bytes",
                data.len()
            );
            let notices =
                net.notifications[1 - from].iter().filter(|notice| notice.address == at(TARGET, place));
            assert_eq!(notices.count(), usize::from(!data.is_empty()));
        }
        net.completions.iter_mut().for_each(std::collections::VecDeque::clear);
        net.notifications.iter_mut().for_each(std::collections::VecDeque::clear);
        net.assert_clean();
    }
}

proptest! {
    #![proptest_config(seeded(48))]

    /// Several transfers with any addresses and lengths, in any delivery order: the receiver's memory is what an array would be,
    /// and not a byte beside it changes.
    #[test]
    fn any_addresses_and_lengths(
        seed in any::<u64>(),
        depth in 1..300_usize,
        transfers in prop::collection::vec((0..5000_u64, 0..3000_u64, prop_oneof![0..1500_usize, 0..60_000_usize]), 1..6),
    ) {
        const SLOT: u64 = 0x1_1000;
        let mut net = Net::new(DeliveryOrder::Random { seed, depth });
        let size = SLOT * transfers.len() as u64;
        let region = net.region(1, TARGET, size);
        let mut model = vec![0xA5; size as usize];
        net.put(1, TARGET, &model);
        for (n, &(from, to, length)) in transfers.iter().enumerate() {
            let data = bytes(seed ^ n as u64, length);
            let source = at(SOURCE, n as u64 * 0x10_0000 + from);
            let place = n as u64 * SLOT + to;
            net.put(0, source, &data);
            net.send(0, source, &region.remote, place, length as u64);
            model[place as usize..place as usize + length].copy_from_slice(&data);
        }
        net.settle();
        prop_assert_eq!(net.completions[0].len(), transfers.len());
        prop_assert!(net.completions[0].iter().all(|done| done.result == Ok(())));
        prop_assert!(net.get(1, TARGET, model.len()) == model);
        net.assert_clean();
    }
}

#[test]
fn every_mask_and_packet_size() {
    for mask_bits in [8, 32, 64, 256] {
        for packet_size in [64, 128, 256, 512, 1024, 2048, 4096] {
            let file = described(&format!("ni: {{ mask_bits: {mask_bits}, packet_size: {packet_size} }}"));
            let mut net = Net::of(&file, random(mask_bits + packet_size / 64), |options| options);
            let region = net.region(1, TARGET, 200_000);
            for length in [1, packet_size as usize, packet_size as usize + 1, 70_001] {
                net.carry(at(SOURCE, 1), &region.remote, 3, &bytes(mask_bits, length));
            }
            net.assert_clean();
        }
    }
}

/// A card that somebody might build, and options that fit it.
#[derive(Debug, Clone)]
struct Geometry {
    mask_bits: u16,
    packet_size_log2: u8,
    registry: u16,
    escape: u16,
    windows: u8,
    push: bool,
    packet_events: bool,
    /// Packets of a segment, and the share of it in eighths above which a transfer is big.
    segment: Option<(u16, u32)>,
}

fn geometry() -> impl Strategy<Value = Geometry> {
    let mask_bits = prop_oneof![1..=256_u16, prop::sample::select(vec![1, 2, 31, 32, 33, 63, 64, 255, 256])];
    let tables = (prop_oneof![1..4_u16, Just(64)], prop_oneof![1..4_u16, Just(64)], 1..=32_u8);
    (mask_bits, 6..=12_u8, tables, any::<bool>(), any::<bool>(), prop::option::of((any::<u16>(), 0..=8_u32)))
        .prop_map(
            |(mask_bits, packet_size_log2, (registry, escape, windows), push, packet_events, segment)| {
                let segment = segment.map(|(packets, threshold)| (1 + packets % mask_bits, threshold));
                Geometry {
                    mask_bits,
                    packet_size_log2,
                    registry,
                    escape,
                    windows,
                    push,
                    packet_events,
                    segment,
                }
            },
        )
}

proptest! {
    #![proptest_config(seeded(96))]

    /// Every card that can be described carries transfers both ways, in any order, with whatever options fit it.
    #[test]
    fn any_card_that_can_be_built(
        geometry in geometry(),
        seed in any::<u64>(),
        depth in 1..300_usize,
        lengths in prop::collection::vec(prop_oneof![0..2000_usize, 0..30_000_usize], 1..4),
    ) {
        let Geometry { mask_bits, packet_size_log2, registry, escape, windows, push, packet_events, segment } = geometry;
        let file = described(&format!(
            "ni: {{ mask_bits: {mask_bits}, packet_size: {}, registry_entries: {registry}, escape_slots: {escape}, windows: {windows}, event_push: {push} }}",
            1 << packet_size_log2,
        ));
        let mut net = Net::of(&file, DeliveryOrder::Random { seed, depth }, |mut options| {
            options.packet_events = packet_events;
            if let Some((packets, threshold)) = segment {
                let bytes = u32::from(packets) << packet_size_log2;
                options.segment_size = Some(bytes);
                options.big_threshold = Some(bytes / 8 * threshold);
            }
            options
        });
        let regions = [0, 1].map(|index| net.region(index, TARGET, 1 << 20).remote);
        for (n, &length) in lengths.iter().enumerate() {
            for from in [0, 1] {
                let place = n as u64 * 0x4_0000 + seed % 4096;
                net.put(from, at(SOURCE, place), &bytes(seed ^ (n * 2 + from) as u64, length));
                net.send(from, at(SOURCE, place), &regions[1 - from], place, length as u64);
            }
        }
        net.settle();
        for end in [0, 1] {
            let failed: Vec<_> = net.completions[end].iter().filter(|done| done.result != Ok(())).collect();
            prop_assert!(failed.is_empty(), "{:#?}", failed);
        }
        for (n, &length) in lengths.iter().enumerate() {
            for from in [0, 1] {
                let place = n as u64 * 0x4_0000 + seed % 4096;
                let data = bytes(seed ^ (n * 2 + from) as u64, length);
                prop_assert!(net.get(1 - from, at(TARGET, place), length) == data, "{} bytes from {}", length, from);
            }
        }
        for end in [0, 1] {
            prop_assert_eq!(net.completions[end].len(), lengths.len());
            prop_assert_eq!(net.notifications[end].len(), lengths.iter().filter(|length| **length > 0).count());
        }
        net.assert_clean();
    }
}

#[test]
fn one_registry_entry_and_one_escape_slot_are_enough() {
    for seed in 0..12 {
        let file = described("ni: { registry_entries: 1, escape_slots: 1 }");
        let mut net = Net::of(&file, random(seed), |options| options);
        let region = net.region(1, TARGET, 400_000);
        net.carry(SOURCE, &region.remote, 1, &bytes(seed, 300_000));
        let counters = net.end(1).receive_counters().unwrap();
        if seed % 4 > 0 {
            assert!(
                counters.registry_full > 0 || counters.nacks_sent > 0,
                "there was pressure: {counters:?}"
            );
        }
        assert!(net.end(1).registry_occupancy().unwrap().1 <= 1);
        net.assert_clean();
    }
}

#[test]
fn events_in_card_memory_do_as_well() {
    for (seed, sections) in [
        (0, "ni: { event_push: false }"),
        (1, "ni: { event_push: false, mask_bits: 256, packet_size: 64 }"),
        (2, "ni: { event_push: false, windows: 1 }\nxdma: { h2c_channels: 1, c2h_channels: 1 }"),
    ] {
        let mut net = Net::of(&described(sections), random(seed), |options| options);
        assert!(!net.end(0).card().info().ni.as_ref().unwrap().event_push);
        // It takes C2H channel 0 for itself.
        assert!(matches!(net.end(1).card().c2h(0), Err(ResourceError::InUse { .. })));
        let there = net.region(1, TARGET, 300_000);
        for length in [1, 5000, 300_000] {
            net.carry(SOURCE, &there.remote, 0, &bytes(seed, length));
        }
        net.assert_clean();
        let world = net.world.clone();
        drop(net);
        assert_closed(&world, 0);
        assert_closed(&world, 1);
    }
}

#[test]
fn a_card_with_one_channel_each_way() {
    let file = described("xdma: { h2c_channels: 1, c2h_channels: 1 }");
    let mut net = Net::of(&file, random(9), |options| options);
    assert!(matches!(net.end(0).card().h2c(0), Err(ResourceError::InUse { .. })));
    let region = net.region(1, TARGET, 300_000);
    let data = bytes(1, 300_000);
    let mut buffer = net.end(0).card().buffer(data.len()).unwrap();
    buffer.as_mut_slice().copy_from_slice(&data);
    // Through the endpoint's own channel, also while it works on a transfer.
    let buffer = net.end(0).write(buffer, SOURCE).unwrap();
    net.send(0, SOURCE, &region.remote, 0, 300_000);
    for _ in 0..20 {
        net.poll(0).unwrap();
        net.world.step();
    }
    let buffer = net.end(0).write(buffer, CardAddr::new(0x80_0000)).unwrap();
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    let mut back = net.end(1).card().c2h(0).unwrap();
    let buffer_b = net.end(1).card().buffer(300_000).unwrap();
    assert!(back.read(buffer_b, TARGET).unwrap().as_slice() == data);
    assert!(net.get(0, CardAddr::new(0x80_0000), 300_000) == data);
    // A bad address is refused as on a channel, and the endpoint goes on.
    let failed = net.end(0).write(buffer, CardAddr::new(u64::MAX - 5)).unwrap_err();
    assert!(failed.buffer.is_some(), "{failed}");
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 70_000));
    net.assert_clean();
}

/// A user's transfer that fails takes the endpoint's own with it, for they share a run; these go again.
#[test]
fn a_failed_write_through_the_endpoint_does_not_end_it() {
    let file = described("xdma: { h2c_channels: 1, c2h_channels: 1 }");
    for steps in 0..60 {
        let mut net = Net::of(&file, DeliveryOrder::InOrder, |options| options);
        let region = net.region(1, TARGET, 300_000);
        let data = bytes(steps, 300_000);
        net.put(0, SOURCE, &data);
        net.send(0, SOURCE, &region.remote, 0, 300_000);
        for _ in 0..steps {
            net.poll(0).unwrap();
            net.world.step();
        }
        net.world.with_card(0, |card| card.poison(CardAddr::new(0x100_0000), 64));
        let buffer = net.end(0).card().buffer(1000).unwrap();
        let failed = net.end(0).write(buffer, CardAddr::new(0x100_0000)).unwrap_err();
        assert!(failed.to_string().contains("h2c0"), "{failed}");
        assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(1000), "after {steps} steps");
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()), "after {steps} steps");
        assert!(net.get(1, TARGET, 300_000) == data);
        net.notifications[1].clear();
        net.assert_clean();
    }
}

// The registry and its mirror.

#[test]
fn the_mask_of_the_document() {
    // 4 KiB in packets of 512 bytes under a mask of 32 bits, after the first packet: 0xFFFFFF01.
    let mut net = Net::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 4096);
    net.put(0, SOURCE, &bytes(1, 4096));
    net.send(0, SOURCE, &region.remote, 0, 4096);
    let mut masks = Vec::new();
    while net.completions[0].is_empty() {
        net.poll(0).unwrap();
        net.world.step();
        let entries: Vec<_> =
            (0..64).map(|index| net.end(1).registry_entry(index).unwrap()).filter(|e| e.valid).collect();
        if let [entry] = entries[..] {
            assert_eq!((entry.base, entry.length, entry.expected), (TARGET, 4096, 8));
            assert_eq!((entry.segment, entry.segment_count, entry.transfer_length), (0, 1, 4096));
            if masks.last() != Some(&entry.mask[0]) {
                masks.push(entry.mask[0]);
            }
        }
    }
    // The last packet completes the entry, and a complete entry is free.
    let expected: Vec<u32> = (1..8).map(|packets| !0 << 8 | ((1 << packets) - 1)).collect();
    assert_eq!(expected[0], 0xFFFF_FF01);
    assert_eq!(masks, expected);
}

/// Cards whose segments have more packets than may be under way to one node: stopping the sender leaves entries half full.
fn half_full() -> CardDescription {
    described("ni: { mask_bits: 256, packet_size: 64 }")
}

fn packet_events(mut options: EndpointOptions) -> EndpointOptions {
    options.packet_events = true;
    options
}

/// Lets everything arrive that is under way, without the sender going on; takes the receiver's events.
fn pause(net: &mut Net) {
    loop {
        net.world.step_until_idle();
        if net.poll(1).unwrap() == 0 {
            return;
        }
    }
}

#[test]
fn the_mirror_is_right_in_the_middle_of_transfers() {
    let mut live = 0;
    for seed in 0..10 {
        let mut net = Net::of(&half_full(), random(seed), packet_events);
        let region = net.region(1, TARGET, 1 << 20);
        let data = bytes(seed, 300_000);
        net.put(0, SOURCE, &data);
        for n in 0..3 {
            net.send(0, at(SOURCE, n * 100_000), &region.remote, n * 100_000, 100_000);
        }
        let mut moments = 0;
        while !net.end(0).is_idle() {
            // A few rounds of the sender, then a look.
            for round in 0..1 + (seed + moments) % 5 {
                net.poll(0).unwrap();
                for _ in 0..(seed * 7 + moments * 3 + round) % 40 {
                    net.world.step();
                }
            }
            pause(&mut net);
            assert_eq!(net.end(1).check_mirror().unwrap(), [], "seed {seed}, moment {moments}");
            assert_eq!(net.end(1).next_mirror_fault(), None);
            let occupancy = net.end(1).registry_occupancy().unwrap().0;
            assert_eq!(u32::from(net.end(1).mirror().occupancy()), occupancy);
            live += u64::from(occupancy > 0);
            moments += 1;
            if net.world.step_until_idle() == 0 {
                net.world.advance(Nanos::from_micros(20));
            }
            assert!(moments < 100_000);
        }
        assert!(net.get(1, TARGET, 300_000) == data);
        net.notifications[1].clear();
        net.assert_clean();
    }
    assert!(live > 100, "only {live} of the looks saw an entry in use");
}

#[test]
fn a_difference_between_mirror_and_card_is_reported() {
    let mut net = Net::of(&half_full(), DeliveryOrder::InOrder, packet_events);
    let region = net.region(1, TARGET, 100_000);
    net.put(0, SOURCE, &bytes(1, 100_000));
    net.send(0, SOURCE, &region.remote, 0, 100_000);
    let advance = |net: &mut Net| {
        net.poll(0).unwrap();
        net.world.step_until_idle();
        net.poll(0).unwrap();
        pause(net);
    };
    while net.end(1).registry_occupancy().unwrap().0 == 0 {
        advance(&mut net);
    }
    assert_eq!(net.end(1).check_mirror().unwrap(), []);
    // A register that falls over: from here on the card does not tell of its packets.
    let bar = net.end(1).card().user_bar().unwrap().clone();
    let control = BarOffset::new(0x2000 + u64::from(ni::CONTROL));
    bar.write32(control, ni::control::ENABLE | ni::control::EVENT_ENABLE).unwrap();
    let found = loop {
        advance(&mut net);
        let found = net.end(1).check_mirror().unwrap();
        if !found.is_empty() {
            break found;
        }
        assert!(!net.end(0).is_idle(), "no difference was seen");
    };
    for Difference { field, mirror, card, .. } in &found {
        assert!(matches!(field, Field::Mask { .. }), "{field:?}");
        assert_eq!(mirror & card, *mirror, "the card is ahead of its events");
    }
    assert!(found[0].to_string().contains("on the card"), "{}", found[0]);
    // Data does not depend on it.
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    assert!(net.get(1, TARGET, 100_000) == bytes(1, 100_000));
}

// Rings that are too small, endpoints that end.

#[test]
fn a_small_event_ring_holds_back_or_says_what_was_lost() {
    let (mut complete, mut lost) = (0, 0);
    for entries in [1, 2, 4, 8, 16, 32, 64, 256] {
        for polls in [1, 8, 64] {
            let small = |mut options: EndpointOptions| {
                options.event_entries = entries;
                options
            };
            let mut net = Net::of(&CardDescription::default(), DeliveryOrder::InOrder, small);
            let region = net.region(1, TARGET, 100_000);
            let data = bytes(1, 100_000);
            net.put(0, SOURCE, &data);
            net.send(0, SOURCE, &region.remote, 0, 100_000);
            let mut failure = None;
            for _ in 0..200_000 {
                for _ in 0..polls {
                    net.world.step();
                }
                match (net.poll(0), net.poll(1)) {
                    (Err(error), _) | (_, Err(error)) => {
                        failure = Some(error);
                        break;
                    }
                    (Ok(0), Ok(0)) if net.end(0).is_idle() => break,
                    (Ok(0), Ok(0)) => net.world.advance(Nanos::from_micros(1)),
                    _ => {}
                }
            }
            match failure {
                None => {
                    assert_eq!(
                        net.completions[0].pop_front().expect("an end").result,
                        Ok(()),
                        "{entries} {polls}"
                    );
                    assert!(net.get(1, TARGET, 100_000) == data);
                    complete += 1;
                }
                Some(error) => {
                    let EndpointError::EventsLost { entries: found, .. } = error else {
                        panic!("{entries} {polls}: {error}")
                    };
                    assert_eq!(found, entries);
                    lost += 1;
                }
            }
        }
    }
    assert!(complete > 0 && lost > 0, "{complete} complete, {lost} lost");
    for wrong in [0, 3, 100, 1 << 17] {
        let net = Net::new(DeliveryOrder::InOrder);
        let card = net.ends[0].as_ref().unwrap().card().clone();
        drop(net);
        let mut options = options(1);
        options.event_entries = wrong;
        let error = Endpoint::open_with(&card, &options).unwrap_err();
        assert!(
            matches!(error, EndpointError::Option { .. } | EndpointError::Resource(_)),
            "{wrong}: {error}"
        );
        // Nothing stays taken.
        Endpoint::open_with(&card, &fpga_tests::net::options(2)).unwrap();
    }
}

#[test]
fn options_that_contradict_each_other() {
    let net = Net::new(DeliveryOrder::InOrder);
    let card: Card = net.ends[0].as_ref().unwrap().card().clone();
    let error = Endpoint::open_with(&card, &options(3)).unwrap_err();
    assert!(matches!(error, EndpointError::Resource(ResourceError::InUse { .. })), "{error}");
    drop(net);
    let open = |change: &dyn Fn(&mut EndpointOptions)| {
        let mut options = options(3);
        change(&mut options);
        Endpoint::open_with(&card, &options).unwrap_err()
    };
    // threshold <= segment <= mask_bits x packet_size
    assert!(matches!(open(&|options| options.segment_size = Some(32 << 10)), EndpointError::Config { .. }));
    assert!(matches!(open(&|options| options.segment_size = Some(0)), EndpointError::Config { .. }));
    assert!(matches!(
        open(&|options| (options.segment_size, options.big_threshold) = (Some(8192), Some(16_384))),
        EndpointError::Config { .. }
    ));
    assert!(matches!(open(&|options| options.channel = Some(9)), EndpointError::Resource(_)));
    assert!(matches!(open(&|options| options.chain = Some(CardAddr::new(1))), EndpointError::Option { .. }));
    assert!(matches!(
        open(&|options| options.chain = Some(CardAddr::new(0x1_FFFF_FFC0))),
        EndpointError::Option { .. }
    ));
    Endpoint::open_with(&card, &options(3)).unwrap();
}

#[test]
fn a_sender_that_ends_in_the_middle_and_comes_back() {
    for (seed, steps) in [3, 30, 100, 300, 700, 1500].into_iter().enumerate() {
        let mut net = Net::new(random(seed as u64));
        let region = net.region(1, TARGET, 800_000);
        net.put(0, SOURCE, &bytes(1, 400_000));
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..steps {
            net.poll(0).unwrap();
            net.world.step();
        }
        let card = net.end(0).card().clone();
        net.ends[0] = None;
        assert_eq!(card.memory().stats().in_use, 0);
        net.ends[0] = Some(Endpoint::open_with(&card, &options(0xA2)).unwrap());
        // The new life's transfers are told from the old one's, which the receiver still holds; the old one's packets that are on
        // the wire may arrive yet, so they have their own place.
        for length in [10, 100_000, 400_000] {
            net.carry(at(SOURCE, 0x10_0000), &region.remote, 400_000, &bytes(length as u64, length));
        }
        net.assert_clean();
    }
}

#[test]
fn a_receiver_that_ends_in_the_middle_and_comes_back() {
    for (seed, steps) in [3, 30, 100, 300, 700, 1500].into_iter().enumerate() {
        let mut net = Net::new(random(seed as u64));
        let region = net.region(1, TARGET, 400_000);
        net.put(0, SOURCE, &bytes(1, 400_000));
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..steps {
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            net.world.step();
        }
        let card = net.end(1).card().clone();
        net.ends[1] = None;
        net.ends[1] = Some(Endpoint::open_with(&card, &options(0xB2)).unwrap());
        let again = net.region(1, TARGET, 400_000);
        net.settle();
        // The old transfer ends once, with an error: its key is gone, or nobody answered.
        let done = net.completions[0].pop_front().unwrap();
        assert!(done.result.is_err(), "{done:?}");
        assert_eq!(net.completions[0].pop_front(), None);
        net.world.advance(Nanos::from_secs(10));
        net.settle();
        net.notifications[1].clear();
        net.carry(SOURCE, &again.remote, 0, &bytes(2, 400_000));
        net.assert_clean();
    }
}

#[test]
fn a_card_that_leaves_ends_its_endpoint() {
    for failure in [CardFailure::AllOnes, CardFailure::Gone] {
        let mut net = Net::new(DeliveryOrder::InOrder);
        let region = net.region(1, TARGET, 400_000);
        net.send(0, SOURCE, &region.remote, 0, 400_000);
        for _ in 0..50 {
            net.poll(0).unwrap();
            net.world.step();
        }
        net.world.fail(0, failure);
        let mut error = None;
        for _ in 0..100_000 {
            if let Err(found) = net.poll(0) {
                error = Some(found);
                break;
            }
            if !net.world.step() {
                net.world.advance(Nanos::from_micros(100));
            }
        }
        let error = error.expect("it must be noticed");
        assert_eq!(net.poll(0).unwrap_err(), error, "and stay");
        assert!(error.to_string().contains("mock:0"), "{error}");
        let card = net.end(0).card().clone();
        net.ends[0] = None;
        // What the card may still reach is not handed out again.
        let stats = card.memory().stats();
        assert_eq!(stats.in_use, 0, "{stats:?}");
        // Event ring at least; the channel's ring and the staging memory, if header blocks were under way.
        assert!(stats.quarantined > 0, "{failure:?}: {error}: {stats:?}");
        let largest = card.memory().quarantined().iter().map(|record| record.length).max();
        assert_eq!(largest, Some(4096 * 64), "the event ring: {:?}", card.memory().quarantined());
        drop(card);
        net.world.fail(0, CardFailure::None);
        // Nobody could clear its run bits, but it reaches nothing any more.
        assert_eq!(net.world.mapped_bytes(0), 0);
        assert_eq!(net.world.with_card(0, |card| card.config().bus_master()), Some(false));
        net.world.step_until_idle();
        let card = Card::open(net.world.transport(0)).unwrap();
        net.ends[0] = Some(Endpoint::open_with(&card, &options(0xA3)).unwrap());
        net.world.advance(Nanos::from_secs(10));
        net.settle();
        net.notifications[1].clear();
        net.carry(SOURCE, &region.remote, 0, &bytes(2, 50_000));
        net.assert_clean();
    }
}
