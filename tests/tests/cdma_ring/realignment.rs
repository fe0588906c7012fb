//! Builds without DRE: data that the engine cannot move goes through the host, in order.

use super::*;
use fpga_tests::causes::Lower as _;

const WIDTH: u32 = 16;

/// A card whose engine has no DRE, and a ring on it with bounce channels for the rest.
fn without_realignment_ring(route: DescriptorRoute) -> (SimNetwork, Card, CdmaRing<u64>) {
    let file = "xdma: { h2c_channels: 2, c2h_channels: 1 }\ncdma: { dre: false, data_width: 128 }";
    let network = network(described(file));
    let card = open(&network);
    let mut cdma = card.cdma().unwrap();
    cdma.set_bounce_channels(WIDTH, card.h2c(1).unwrap(), card.c2h(0).unwrap()).unwrap();
    let made = cdma.into_ring(path(&card, route), options().length_bits(12));
    let ring = made.unwrap_or_else(|refused| panic!("{refused}"));
    (network, card, ring)
}

#[test]
fn cdma_ring_bounce_every_offset_and_length_around_beat() {
    const SPAN: usize = 256;
    for route in SETUPS {
        let (network, _card, mut ring) = without_realignment_ring(route);
        let source = bytes(3, SPAN);
        poke(&network, 0, at(0x20_0000), &source);
        let beat = u64::from(WIDTH);
        // The data path is the same for both descriptor routes, so that one of them is enough for all offsets.
        let step = if route == DescriptorRoute::Bypass { 1 } else { 5 };
        for (first, second) in
            (0..beat).step_by(step).flat_map(|first| (0..beat).map(move |second| (first, second)))
        {
            let before = bytes(8, SPAN);
            for length in [1, 2, beat - 1, beat, beat + 1, 2 * beat, 3 * beat + 1] {
                poke(&network, 0, at(0x30_0000), &before);
                let to = at(0x30_0000 + beat + second);
                let ticket = ring.copy(at(0x20_0000 + first), to, length, length).unwrap();
                assert_eq!(arrives(&mut ring, ticket), length);
                let mut expected = before.clone();
                let (first, second, length) = (first as usize, (beat + second) as usize, length as usize);
                expected[second..][..length].copy_from_slice(&source[first..][..length]);
                assert!(
                    peek(&network, 0, at(0x30_0000), SPAN) == expected,
                    "{route:?}: {length} bytes from {first} to {second}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(seeded(48))]

    /// Lists of copies at any addresses, several in flight: each copy reads the results of the earlier ones.
    #[test]
    fn cdma_ring_bounce_lists_match_array(
        lists in prop::collection::vec(prop::collection::vec((0..4000_u64, 0..4000_u64, 1..300_u64, any::<bool>()), 1..4), 1..12),
        bypass in any::<bool>(),
        seed in any::<u64>(),
    ) {
        const BASE: u64 = 0x20_0000;
        let (network, _card, mut ring) = without_realignment_ring(if bypass { DescriptorRoute::Bypass } else { DescriptorRoute::Channel });
        let mut model = bytes(seed, 4400);
        poke(&network, 0, at(BASE), &model);
        let mut tickets = Vec::new();
        for list in &lists {
            let list: Vec<_> = list
                .iter()
                .map(|(from, to, length, aligned)| {
                    let place = |at: u64| if *aligned { at & !15 } else { at };
                    (place(*from), place(*to), *length)
                })
                .filter(|(from, to, length)| from.abs_diff(*to) >= *length)
                .collect();
            if list.is_empty() {
                continue;
            }
            let segments: Vec<_> =
                list.iter().map(|(from, to, length)| segment(BASE + from, BASE + to, *length)).collect();
            let length: u64 = list.iter().map(|(_, _, length)| length).sum();
            tickets.push((ring.submit(&segments, length).unwrap(), length));
            for (from, to, length) in list {
                let (from, to, length) = (from as usize, to as usize, length as usize);
                model.copy_within(from..from + length, to);
            }
            if seed.is_multiple_of(3) {
                ring.poll().unwrap();
            }
            // The ring holds fifteen descriptors.
            if ring.free_descriptors() < 4
                && let Some((ticket, _)) = tickets.last()
            {
                let done = ring.wait(*ticket, long_wait()).unwrap();
                prop_assert_eq!(done.outcome, Ok(done.payload));
                tickets.pop();
            }
        }
        while ring.in_flight() != 0 {
            ring.poll().unwrap();
            ring.relax();
        }
        for done in drain(&mut ring) {
            prop_assert_eq!(done.outcome, Ok(done.payload));
        }
        prop_assert!(peek(&network, 0, at(BASE), model.len()) == model);
    }
}

#[test]
fn cdma_ring_failed_bounce_returns_payload_and_continues() {
    for route in SETUPS {
        let (network, card, mut ring) = without_realignment_ring(route);
        let before = ring.copy(at(0x20_0000), at(0x30_0000), 5000, 1).unwrap();
        network.with_card(0, |card| card.poison(at(0x40_0000), 16));
        let refused = ring.copy(at(0x40_0001), at(0x50_0002), 100, 2).unwrap_err();
        assert!(
            matches!(
                refused.error.kind,
                CdmaRingError::Engine(CdmaError::Copy { cause: CopyFault::Bounce(_), .. })
            ),
            "{refused}"
        );
        assert_eq!(refused.payload, 2);
        network.with_card(0, |card| card.poison(at(0), 0));
        arrives(&mut ring, before);
        // Invalid requests are refused before anything is waited for or moved.
        let refused = ring.copy(at(0x40_0001), at(BASE + 2), 100, 3).unwrap_err();
        assert!(
            matches!(refused.error.kind.lower(), Some(RefusalReason::DescriptorMemory { .. })),
            "{refused}"
        );
        let again = ring.copy(at(0x40_0001), at(0x50_0001), 100, 4).unwrap();
        assert_eq!(arrives(&mut ring, again), 4);
        // Bounce channels are returned with the engine.
        let (mut cdma, path, rest) = ring.close();
        assert!(rest.is_empty());
        assert!(card.h2c(1).is_err());
        cdma.copy(at(0x40_0001), at(0x50_0002), 100).unwrap();
        assert!(cdma.take_bounce_channels().is_some());
        drop(path);
        assert!(card.h2c(1).is_ok());
    }
}

/// The engine's own part fails: the bytes that went through the host count as done.
#[test]
fn cdma_ring_bounce_engine_error_counts_moved_bytes() {
    let (network, _card, mut ring) = without_realignment_ring(DescriptorRoute::Bypass);
    network.with_card(0, |card| card.poison(at(0x20_0000 + 8192), 16));
    let ticket = ring.copy(at(0x20_0003), at(0x30_0003), 20_000, 1).unwrap();
    let done = ring.wait(ticket, long_wait()).unwrap();
    let fault = done.outcome.unwrap_err();
    let place = fault.kind.position.unwrap();
    // Thirteen bytes to the next beat, then descriptors of 4080.
    assert_eq!(place.bytes_done, 13 + 2 * 4080, "{fault}");
    assert_eq!(place.source, at(0x20_0000 + 16 + 2 * 4080));
}
