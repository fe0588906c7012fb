//! Every geometry, small tables, cards with fewer features.

use super::*;
use fpga_diag::inspect::Inspect as _;
use std::sync::atomic::AtomicBool;

use fpga_driver::{Cancellation, Error};

#[test]
fn builds_every_mask_and_packet_size_transfers() {
    for mask_bits in [8, 32, 64, 256] {
        for packet_size in [64, 128, 256, 512, 1024, 2048, 4096] {
            let file = described(&format!("ni: {{ mask_bits: {mask_bits}, packet_size: {packet_size} }}"));
            let mut net = Testbed::of(&file, random(mask_bits + packet_size / 64), |options| options);
            let region = net.region(1, TARGET, 200_000);
            for length in [1, packet_size as usize, packet_size as usize + 1, 70_001] {
                net.carry(at(SOURCE, 1), &region.remote, 3, &bytes(mask_bits, length));
            }
            net.assert_clean();
        }
    }
}

/// A possible build of a card, and matching options.
#[derive(Debug, Clone)]
struct Geometry {
    mask_bits: u16,
    packet_size_log2: u8,
    registry: u16,
    escape: u16,
    windows: u8,
    push: bool,
    packet_events: bool,
    /// Packets of a segment, and the threshold for big transfers in eighths of the segment.
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

    /// Every card that can be described carries transfers in both directions, in any order, with all matching options.
    #[test]
    fn builds_random_description_transfers_both_ways(
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
        let mut net = Testbed::of(&file, DeliveryOrder::Random { seed, depth }, |mut options| {
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
fn builds_one_registry_entry_and_one_escape_slot_suffice() {
    for seed in 0..12 {
        let file = described("ni: { registry_entries: 1, escape_slots: 1 }");
        let mut net = Testbed::of(&file, random(seed), |options| options);
        let region = net.region(1, TARGET, 400_000);
        net.carry(SOURCE, &region.remote, 1, &bytes(seed, 300_000));
        let counters = net.end(1).tables().counters().unwrap();
        if seed % 4 > 0 {
            assert!(
                counters.registry_full > 0 || counters.nacks_sent > 0,
                "the receiver exerted back-pressure: {counters:?}"
            );
        }
        assert!(net.end(1).tables().registry_occupancy().unwrap().1 <= 1);
        net.assert_clean();
    }
}

#[test]
fn builds_events_in_card_memory_suffice() {
    for (seed, sections) in [
        (0, "ni: { event_push: false }"),
        (1, "ni: { event_push: false, mask_bits: 256, packet_size: 64 }"),
        (2, "ni: { event_push: false, windows: 1 }\nxdma: { h2c_channels: 1, c2h_channels: 1 }"),
    ] {
        let mut net = Testbed::of(&described(sections), random(seed), |options| options);
        assert!(!net.end(0).card().info().ni.as_ref().unwrap().event_push);
        // The endpoint takes C2H channel 0 for itself.
        assert!(matches!(net.end(1).card().c2h(0), Err(Error { kind: ResourceError::InUse { .. }, .. })));
        let there = net.region(1, TARGET, 300_000);
        for length in [1, 5000, 300_000] {
            net.carry(SOURCE, &there.remote, 0, &bytes(seed, length));
        }
        net.assert_clean();
        let network = net.network.clone();
        drop(net);
        assert_closed(&network, 0);
        assert_closed(&network, 1);
    }
}

#[test]
fn builds_one_channel_each_way_suffices() {
    let file = described("xdma: { h2c_channels: 1, c2h_channels: 1 }");
    let mut net = Testbed::of(&file, random(9), |options| options);
    assert!(matches!(net.end(0).card().h2c(0), Err(Error { kind: ResourceError::InUse { .. }, .. })));
    let region = net.region(1, TARGET, 300_000);
    let data = bytes(1, 300_000);
    let mut buffer = net.end(0).card().buffer(data.len()).unwrap();
    buffer.write(0, &data).unwrap();
    // A write through the endpoint's own channel, also while the channel works on a transfer.
    let buffer = net.end(0).write(buffer, SOURCE).unwrap();
    net.send(0, SOURCE, &region.remote, 0, 300_000);
    for _ in 0..20 {
        net.poll(0).unwrap();
        net.network.step();
    }
    let buffer = net.end(0).write(buffer, CardAddr::new(0x80_0000)).unwrap();
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    let mut back = net.end(1).card().c2h(0).unwrap();
    let buffer_b = net.end(1).card().buffer(300_000).unwrap();
    assert!(back.read(buffer_b, TARGET).unwrap().to_vec() == data);
    assert!(net.get(0, CardAddr::new(0x80_0000), 300_000) == data);
    // A bad address is refused as on a channel, and the endpoint continues.
    let failed = net.end(0).write(buffer, CardAddr::new(u64::MAX - 5)).unwrap_err();
    assert!(failed.buffer.is_some(), "{failed}");
    net.notifications[1].clear();
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 70_000));
    net.assert_clean();
}

/// A transfer of 300,000 bytes, `steps` steps after its begin, on cards whose only channels the user shares with the endpoint.
#[expect(clippy::unwrap_used, reason = "in a test, a panic is the failure report")]
fn sending_on_shared_channel(steps: u64) -> (Testbed, Vec<u8>) {
    let file = described("xdma: { h2c_channels: 1, c2h_channels: 1 }");
    let mut net = Testbed::of(&file, DeliveryOrder::InOrder, |options| options);
    let region = net.region(1, TARGET, 300_000);
    let data = bytes(steps, 300_000);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region.remote, 0, 300_000);
    for _ in 0..steps {
        net.poll(0).unwrap();
        net.network.step();
    }
    (net, data)
}

/// A failed user transfer fails the endpoint's own transfers with it, because they share a run; the endpoint repeats its own.
#[test]
fn endpoint_failed_user_write_keeps_endpoint_alive() {
    for steps in 0..60 {
        let (mut net, data) = sending_on_shared_channel(steps);
        net.network.with_card(0, |card| card.poison(CardAddr::new(0x100_0000), 64));
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

/// A cancelled write of the user ends alone: transfers of the endpoint on the same channel continue.
#[test]
fn endpoint_cancelled_user_write_keeps_endpoint_alive() {
    static NOW: AtomicBool = AtomicBool::new(true);
    for steps in 0..60 {
        let (mut net, data) = sending_on_shared_channel(steps);
        let buffer = net.end(0).card().buffer(1000).unwrap();
        net.end(0).set_cancellation(Some(Cancellation::new(&NOW)));
        let failed = net.end(0).write(buffer, CardAddr::new(0x100_0000)).unwrap_err();
        assert!(failed.to_string().contains("cancelled"), "{failed}");
        assert_eq!(failed.buffer.map(|buffer| buffer.len()), Some(1000), "after {steps} steps");
        net.end(0).set_cancellation(None);
        net.settle();
        assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()), "after {steps} steps");
        assert!(net.get(1, TARGET, 300_000) == data);
        net.notifications[1].clear();
        net.assert_clean();
    }
}
