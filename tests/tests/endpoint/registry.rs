//! The registry and its mirror, in the middle of transfers.

use super::*;

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
