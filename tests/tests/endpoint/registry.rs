//! The receive registry and its mirror, in the middle of transfers.

use fpga_diag::inspect::Inspect as _;
use std::sync::Arc;

use fpga_firmware::generated::{escape, registry};
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_protocol::mirror::Operation;
use fpga_protocol::receiver::EntryView;
use fpga_sim::{SimNetwork, SimNetworkBuilder};
use fpga_tests::fault_injecting::{FaultInjectingBackend, ReplacedRegister};

use super::*;

#[test]
fn registry_mask_matches_document() {
    // 4 KiB in packets of 512 bytes under a mask of 32 bits, after the first packet: 0xFFFFFF01.
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 4096);
    net.put(0, SOURCE, &bytes(1, 4096));
    net.send(0, SOURCE, &region.remote, 0, 4096);
    let mut masks = Vec::new();
    while net.completions[0].is_empty() {
        net.poll(0).unwrap();
        net.network.step();
        let entries: Vec<_> =
            (0..64).map(|index| net.end(1).tables().entry(index).unwrap()).filter(|e| e.valid).collect();
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

/// Cards whose segments have more packets than may be in flight to one node: stopping the sender leaves entries incomplete.
fn half_full() -> CardDescription {
    described("ni: { mask_bits: 256, packet_size: 64 }")
}

fn packet_events(mut options: EndpointOptions) -> EndpointOptions {
    options.packet_events = true;
    // Longer than the packets in flight: a segment is incomplete while the sender waits.
    options.segment_size = Some(16 << 10);
    options.ops = Some(64);
    options
}

/// Lets all packets in flight arrive while the sender is stopped, and takes the receiver's events.
fn pause(net: &mut Testbed) {
    loop {
        net.network.step_until_idle();
        if net.poll(1).unwrap() == 0 {
            return;
        }
    }
}

#[test]
fn mirror_mid_transfer_matches_card() {
    let mut occupied = 0;
    for seed in 0..10 {
        let mut net = Testbed::of(&half_full(), random(seed), packet_events);
        let region = net.region(1, TARGET, 1 << 20);
        let data = bytes(seed, 300_000);
        net.put(0, SOURCE, &data);
        for n in 0..3 {
            net.send(0, at(SOURCE, n * 100_000), &region.remote, n * 100_000, 100_000);
        }
        let mut moments = 0;
        while !net.end(0).is_idle() {
            // A few rounds of the sender, then a check.
            for round in 0..1 + (seed + moments) % 5 {
                net.poll(0).unwrap();
                for _ in 0..(seed * 7 + moments * 3 + round) % 40 {
                    net.network.step();
                }
            }
            pause(&mut net);
            assert_eq!(net.end(1).check_mirror().unwrap(), [], "seed {seed}, moment {moments}");
            assert_eq!(net.end(1).next_mirror_fault(), None);
            let occupancy = net.end(1).tables().registry_occupancy().unwrap().0;
            assert_eq!(u32::from(net.end(1).mirror().occupancy()), occupancy);
            let escaped = net.end(1).tables().escape_occupancy().unwrap().0;
            assert_eq!(u32::from(net.end(1).mirror().escape_occupancy()), escaped);
            occupied += u64::from(occupancy > 0);
            moments += 1;
            if net.network.step_until_idle() == 0 {
                net.network.advance(Nanos::from_micros(20));
            }
            assert!(moments < 100_000);
        }
        assert!(net.get(1, TARGET, 300_000) == data);
        net.notifications[1].clear();
        net.assert_clean();
    }
    assert!(occupied > 100, "only {occupied} samples had an entry in use");
}

#[test]
fn mirror_difference_to_card_is_reported() {
    let mut net = Testbed::of(&half_full(), DeliveryOrder::InOrder, packet_events);
    let region = net.region(1, TARGET, 100_000);
    net.put(0, SOURCE, &bytes(1, 100_000));
    net.send(0, SOURCE, &region.remote, 0, 100_000);
    let advance = |net: &mut Testbed| {
        net.poll(0).unwrap();
        net.network.step_until_idle();
        net.poll(0).unwrap();
        pause(net);
    };
    while net.end(1).tables().registry_occupancy().unwrap().0 == 0 {
        advance(&mut net);
    }
    assert_eq!(net.end(1).check_mirror().unwrap(), []);
    // A register bit changes by a fault: from here on the card reports no packet events.
    let bar = net.end(1).card().user_bar().unwrap().clone();
    let control = BarOffset::new(0x2000 + u64::from(ni::CONTROL));
    bar.write32(control, ni::control::ENABLE | ni::control::EVENT_ENABLE).unwrap();
    let found = loop {
        advance(&mut net);
        let found = net.end(1).check_mirror().unwrap();
        if !found.is_empty() {
            break found;
        }
        assert!(!net.end(0).is_idle(), "the sender is still busy while mirror and card differ");
    };
    for Difference { field, mirror, card, .. } in &found {
        assert!(matches!(field, Field::Mask { .. }), "{field:?}");
        assert_eq!(mirror & card, *mirror, "the mirror has no bit that the card does not have");
    }
    assert!(found[0].to_string().contains("on the card"), "{}", found[0]);
    // The data transfer does not depend on packet events.
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    assert!(net.get(1, TARGET, 100_000) == bytes(1, 100_000));
}

/// Card 1 on a fault-injecting backend, in the middle of a transfer: one entry is incomplete.
fn with_false_registers(network: SimNetworkBuilder) -> (Testbed, Arc<FaultInjectingBackend>) {
    // A port so slow that the event of a packet is read before the next packet arrives.
    let file = described("ni: { mask_bits: 256, packet_size: 64, megabits_per_second: 200 }");
    let mut net = Testbed::joined(2, &file, network, packet_events);
    net.ends[1] = None;
    let backend = FaultInjectingBackend::new(net.network.backend(1), Vec::new());
    let card = Card::from_backend(backend.clone()).unwrap();
    net.ends[1] = Some(Endpoint::open_with(&card, &packet_events(options(0xB))).unwrap());
    let region = net.region(1, TARGET, 100_000);
    net.put(0, SOURCE, &bytes(1, 16_384));
    net.send(0, SOURCE, &region.remote, 0, 16_384);
    (net, backend)
}

/// Replaces every register of a window, one at a time: the field of that register is reported, and no other.
fn assert_each_false_register_is_found(
    net: &mut Testbed,
    backend: &FaultInjectingBackend,
    (block, index_register, index): (u32, u32, u16),
    replaced_fields: &[(u32, Field)],
) {
    let bar = net.end(1).card().user_bar().unwrap().clone();
    let number = net.end(1).card().info().roles.user.unwrap().index;
    assert_eq!(net.end(1).check_mirror().unwrap(), []);
    for &(register, field) in replaced_fields {
        let place = BarOffset::new(u64::from(block + register));
        bar.write32(BarOffset::new(u64::from(block + index_register)), index.into()).unwrap();
        let bit = match field {
            Field::Silent => registry::flags::SILENT,
            Field::Notify => registry::flags::NOTIFY,
            Field::Scheme => 1 << registry::flags::SCHEME_SHIFT,
            _ => 1,
        };
        let value = bar.read32(place).unwrap() ^ bit;
        backend.replace(vec![ReplacedRegister { bar: number, at: place.get(), value }]);
        let found = net.end(1).check_mirror().unwrap();
        backend.replace(Vec::new());
        let found: Vec<_> =
            found.iter().filter(|found| found.index == index).map(|found| found.field).collect();
        assert_eq!(found, [field], "register {register:#x}");
    }
    assert_eq!(net.end(1).check_mirror().unwrap(), []);
}

#[test]
fn mirror_every_registry_field_difference_is_reported() {
    let (mut net, backend) = with_false_registers(SimNetwork::builder());
    while net.end(1).tables().registry_occupancy().unwrap().0 == 0 {
        net.poll(0).unwrap();
        net.network.step();
    }
    pause(&mut net);
    let (index, operation) = net.end(1).mirror().operations().next().expect("an entry in use");
    assert_eq!((operation.base, operation.length, operation.expected), (TARGET, 16_384, 256));
    let mut replaced_fields = vec![
        (registry::FLAGS, Field::Valid),
        (registry::GENERATION, Field::Generation),
        (registry::SOURCE_NODE, Field::Source),
        (registry::INCARNATION, Field::Incarnation),
        (registry::TRANSFER, Field::Transfer),
        (registry::SEGMENT, Field::Segment),
        (registry::BASE_LOW, Field::Base),
        (registry::BASE_HIGH, Field::Base),
        (registry::LENGTH, Field::Length),
        (registry::EXPECTED, Field::Expected),
        (registry::SEGMENT_COUNT, Field::SegmentCount),
        (registry::FLAGS, Field::Silent),
        (registry::FLAGS, Field::Notify),
        (registry::FLAGS, Field::Scheme),
        (registry::FIRST, Field::First),
    ];
    replaced_fields.extend((0..8u8).map(|word| (registry::MASK + 4 * u32::from(word), Field::Mask { word })));
    let window = (registry::BLOCK_OFFSET, registry::INDEX, index);
    assert_each_false_register_is_found(&mut net, &backend, window, &replaced_fields);
    net.settle();
    assert!(net.get(1, TARGET, 16_384) == bytes(1, 16_384));
}

/// Runs until a packet waits in the escape channel and the mirror shows it, or the transfer has ended.
fn has_escaped(net: &mut Testbed) -> bool {
    while !net.end(0).is_idle() {
        net.poll(0).unwrap();
        net.poll(1).unwrap();
        let (waiting, mirrored) =
            (net.end(1).tables().escape_occupancy().unwrap().0, net.end(1).mirror().escape_occupancy());
        if waiting > 0 && waiting == u32::from(mirrored) {
            return true;
        }
        if !net.network.step() {
            net.end(0).relax();
        }
    }
    false
}

#[test]
fn mirror_every_escape_field_difference_is_reported() {
    // If the first packet of the segment is lost, the next one waits in the escape channel.
    let loss = Loss::Independent(Probability::new(0.2).unwrap());
    let lossy = |seed| {
        SimNetwork::builder().impairments(Impairments::both(Conditions::default().loss(loss))).seed(seed)
    };
    let (mut net, backend) = (0..32)
        .map(|seed| with_false_registers(lossy(seed)))
        .find_map(|(mut net, backend)| has_escaped(&mut net).then_some((net, backend)))
        .expect("a packet that waits");
    let Some((index, packet)) = net.end(1).mirror().escaped().next().map(|(index, packet)| (index, *packet))
    else {
        panic!("no waiting transfer")
    };
    assert_eq!((packet.address, packet.length), (at(TARGET, 64), 64));
    let replaced_fields = [
        (escape::VALID, Field::Valid),
        (escape::SOURCE_NODE, Field::Source),
        (escape::INCARNATION, Field::Incarnation),
        (escape::TRANSFER, Field::Transfer),
        (escape::SEGMENT, Field::Segment),
        (escape::ADDRESS_LOW, Field::Address),
        (escape::ADDRESS_HIGH, Field::Address),
        (escape::LENGTH, Field::Length),
    ];
    let window = (escape::BLOCK_OFFSET, escape::INDEX, index);
    assert_each_false_register_is_found(&mut net, &backend, window, &replaced_fields);
    net.settle();
    assert!(net.get(1, TARGET, 16_384) == bytes(1, 16_384));
}

/// Compares the mirror with an entry of a card that runs several schemes: the scheme is compared for all entries, the mask for segments
/// only.
fn assert_mirrored(net: &mut Testbed, index: u16, operation: &Operation, entry: EntryView) {
    let is_segment = entry.scheme == Scheme::Registry;
    assert_eq!(operation.scheme, Some(entry.scheme));
    assert_eq!(operation.mask.map(|mask| mask.words()), is_segment.then_some(entry.mask));
    let other = if is_segment { Scheme::Selective } else { Scheme::Registry };
    for (scheme, expected) in [(entry.scheme, &[][..]), (other, &[Field::Scheme])] {
        let mut found = Vec::new();
        net.end(1)
            .mirror()
            .compare(index, &EntryView { scheme, ..entry }, |difference| found.push(difference.field));
        assert_eq!(found, expected);
    }
}

/// Segments and messages at the same time. The card sends messages by itself, so they are checked between its steps. The sender's host can
/// pause segments.
#[test]
fn mirror_distinguishes_segments_and_messages() {
    let every = |mut options: EndpointOptions| {
        options.other_schemes = Scheme::ALL.iter().copied().collect();
        packet_events(options)
    };
    let (mut segments, mut messages) = (0, 0);
    for seed in 0..4 {
        let mut net = Testbed::of(&half_full(), random(seed), every);
        let region = net.region(1, TARGET, 1 << 20).remote;
        let data = bytes(seed, 300_000);
        net.put(0, SOURCE, &data);
        for (scheme, from, length) in [
            (Scheme::Selective, 0, 30_000),
            (Scheme::AdaptiveWindow, 30_000, 30_000),
            (Scheme::Registry, 60_000, 240_000),
        ] {
            let by = SendOptions::default().scheme(scheme);
            net.send_with(0, at(SOURCE, from), &region, from, length, by);
        }
        let seen = messages;
        while !net.end(0).is_idle() {
            let pauses = messages > seen + 100;
            net.poll(0).unwrap();
            net.poll(1).unwrap();
            if !net.network.step() {
                net.network.advance(Nanos::from_micros(20));
            }
            if pauses {
                pause(&mut net);
                assert_eq!(net.end(1).check_mirror().unwrap(), [], "seed {seed}");
            }
            let operations: Vec<_> =
                net.end(1).mirror().operations().map(|(index, operation)| (index, *operation)).collect();
            for (index, operation) in operations {
                let entry = net.end(1).tables().entry(index).unwrap();
                let is_segment = entry.scheme == Scheme::Registry;
                // Events may still be in flight.
                if entry.valid && (pauses || !is_segment) {
                    assert_mirrored(&mut net, index, &operation, entry);
                    segments += u32::from(is_segment);
                    messages += u32::from(!is_segment);
                }
            }
        }
        assert!(net.get(1, TARGET, 300_000) == data);
        net.notifications[1].clear();
        net.assert_clean();
    }
    assert!(segments > 20 && messages > 20, "{segments}, {messages}");
}

/// Opening writes the timeout whatever an earlier owner of the card had set: a reset of the interface keeps settings.
#[test]
fn escape_timeout_set_by_host_is_used() {
    for micros in [250, 1_000, 40_000] {
        let mut net = Testbed::of(&CardDescription::default(), DeliveryOrder::InOrder, |mut options| {
            options.escape_timeout = Duration::from_micros(micros);
            options
        });
        let bar = net.end(1).card().user_bar().unwrap().clone();
        let found = bar.read32(BarOffset::new(0x2000 + u64::from(ni::ESCAPE_TIMEOUT_US))).unwrap();
        assert_eq!(u64::from(found), micros);
    }
}
