//! Operation of a ring without faults, and its refusals.

use super::*;
use fpga_tests::causes::Lower as _;

#[test]
fn cdma_ring_chains_of_every_length() {
    for route in SETUPS {
        let (network, card) = opened();
        let mut ring = ring(&card, route, options());
        let data = bytes(1, 15 * 100);
        poke(&network, 0, at(0x20_0000), &data);
        for length in 1..=15_u64 {
            let before = executed(&network);
            poke(&network, 0, at(0x30_0000), &[0; 15 * 100]);
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
            assert_eq!(payloads, (0..length).collect::<Vec<_>>(), "{route:?}");
            let all = usize::try_from(length * 100).unwrap();
            let arrived = peek(&network, 0, at(0x30_0000), 15 * 100);
            assert!(arrived[..all] == data[..all] && arrived[all..].iter().all(|byte| *byte == 0));
            assert_eq!(executed(&network) - before, length);
            assert_eq!((ring.in_flight(), ring.free_descriptors(), ring.overruns()), (0, 15, 0));
        }
    }
}

const MODEL: usize = 1 << 18;

proptest! {
    #![proptest_config(seeded(64))]

    #[test]
    fn cdma_ring_copies_match_array(
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
        let (network, card) = opened();
        let route = if channel { DescriptorRoute::Channel } else { DescriptorRoute::Bypass };
        let mut ring: CdmaRing<usize> = ring(&card, route, options().length_bits(13).copies(8));
        let mut model = bytes(seed, MODEL);
        let base = MEMORY - MODEL as u64;
        poke(&network, 0, at(base), &model);
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
                        let permanent = matches!(refused.error.kind.lower(), Some(RefusalReason::Empty | RefusalReason::TooManyDescriptors { .. }));
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
        prop_assert!(peek(&network, 0, at(base), MODEL) == model);
    }
}

#[test]
fn cdma_ring_appends_while_running_wrap_many_times() {
    for route in SETUPS {
        for (descriptors, steps) in [(2, 1), (4, 3), (8, 7), (16, 2)] {
            let (network, card) = opened();
            let mut ring: CdmaRing<u64> = ring(&card, route, options().descriptors(descriptors));
            let data = bytes(3, 1 << 16);
            poke(&network, 0, at(0x20_0000), &data);
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
                // The engine is in the middle of a chain most of the time.
                for _ in 0..steps {
                    network.step();
                }
                for done in drain(&mut ring) {
                    assert_eq!((done.outcome, done.payload), (Ok(130), ended));
                    ended += 1;
                }
            }
            assert_eq!((executed(&network), ring.overruns()), (500, 0), "{route:?} {descriptors}");
            assert!(peek(&network, 0, at(0x30_0000), 59_000) == data[..59_000], "{route:?} {descriptors}");
        }
    }
}

/// Gives the queued copies to the engine and runs it to the end, without reading its progress.
fn hand_over<T>(network: &SimNetwork, ring: &mut CdmaRing<T>, route: DescriptorRoute) {
    assert_eq!(ring.poll(), Ok(0));
    network.step_until_idle();
    if route == DescriptorRoute::Channel {
        // The descriptors have arrived: this poll writes the tail.
        assert_eq!(ring.poll(), Ok(0));
        network.step_until_idle();
    }
}

#[test]
fn cdma_ring_batch_costs_one_tail_write_pair_and_one_read_per_poll() {
    for route in SETUPS {
        let (network, card) = opened();
        let mut ring: CdmaRing<u64> = ring(&card, route, options());
        for count in [1_u64, 5, 10, 15] {
            for n in 0..count {
                ring.copy(at(0x20_0000 + n * 64), at(0x30_0000 + n * 64), 64, n).unwrap();
            }
            let before = card.counters().unwrap();
            hand_over(&network, &mut ring, route);
            let handed = card.counters().unwrap();
            assert_eq!(
                ring.poll(),
                Ok(usize::try_from(count).unwrap()),
                "{route:?}: one poll collects the batch"
            );
            let after = card.counters().unwrap();
            assert_eq!(after.mmio_writes, handed.mmio_writes, "polling writes no register");
            let (writes, reads) =
                (handed.mmio_writes - before.mmio_writes, handed.mmio_reads - before.mmio_reads);
            match route {
                // 64 bytes per descriptor in accesses of 8, also where the batch wraps around; two writes for the tail; one read-back.
                DescriptorRoute::Bypass => assert_eq!((writes, reads), (8 * count + 2, 1)),
                // At most one run of the channel, then the tail.
                DescriptorRoute::Channel => assert!(writes <= 2 + 5 && reads == 0, "{writes} {reads}"),
            }
            // Bypass: the status word. Channel: the pointer, which is at the tail, and the status register, which reads idle.
            assert_eq!(
                after.mmio_reads - handed.mmio_reads,
                if route == DescriptorRoute::Bypass { 1 } else { 2 }
            );
            assert_eq!(ring.poll(), Ok(0));
            assert_eq!(
                card.counters().unwrap().mmio_reads,
                after.mmio_reads,
                "polling an idle ring reads no register"
            );
            assert_eq!(drain(&mut ring).len() as u64, count);
        }
    }
}

#[test]
fn cdma_ring_list_is_one_copy_and_long_list_is_cut() {
    for route in SETUPS {
        let (network, card) = opened();
        let mut ring: CdmaRing<String> = ring(&card, route, options().length_bits(12));
        assert_eq!(ring.max_descriptor_length(), 4096 - 64);
        let data = bytes(4, 20_000);
        poke(&network, 0, at(0x20_0000), &data);
        let list = [
            segment(0x20_0000, 0x30_0001, 15_000),
            segment(0, 0, 0),
            segment(0x20_0000 + 15_000, 0x31_0000, 5000),
        ];
        let ticket = ring.submit(&list, "a list".to_owned()).unwrap();
        assert_eq!(ring.in_flight(), 1);
        let done = ring.wait(ticket, long_wait()).unwrap();
        assert_eq!((done.outcome, done.payload.as_str()), (Ok(20_000), "a list"));
        assert!(peek(&network, 0, at(0x30_0001), 15_000) == data[..15_000]);
        assert!(peek(&network, 0, at(0x31_0000), 5000) == data[15_000..]);
        assert_eq!(executed(&network), 4 + 2);
        // A later segment may read data that an earlier one wrote.
        let list = [segment(0x20_0000, 0x40_0000, 100), segment(0x40_0000, 0x41_0000, 100)];
        let ticket = ring.submit(&list, String::new()).unwrap();
        arrives(&mut ring, ticket);
        assert!(peek(&network, 0, at(0x41_0000), 100) == data[..100]);
    }
}

#[test]
fn cdma_ring_invalid_copy_is_refused_and_returned() {
    let (_, card) = opened();
    let mut ring: CdmaRing<u32> = ring(&card, DescriptorRoute::Bypass, options());
    let before = card.counters();
    let mut refused = |segments: &[CdmaSegment]| {
        let refused = ring.submit(segments, 77).unwrap_err();
        assert_eq!(refused.payload, 77);
        assert!(!refused.is_full() && refused.to_string().contains("mock:0 CDMA"), "{refused}");
        refused.error.kind
    };
    let range = |error| matches!(error, CdmaRingError::Engine(CdmaError::CardMemory { .. }));
    let of_ring = |error: CdmaRingError| *error.lower::<RefusalReason>().unwrap();
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
    // A full ring is a different error.
    ring.submit(&many[..15], 1).unwrap();
    let full = ring.submit(&many[..1], 2).unwrap_err();
    assert!(full.is_full() && full.payload == 2);
}

#[test]
fn cdma_ring_invalid_configuration_returns_everything() {
    let (network, card) = opened();
    let bypass = || DescriptorPath::bypass(at(0));
    let config = |options| *refusal(&card, bypass(), options).lower::<CdmaRingConfigError>().unwrap();
    assert_eq!(config(options().descriptors(3)), CdmaRingConfigError::Entries { found: 3 });
    assert_eq!(config(options().copies(3)), CdmaRingConfigError::Operations { found: 3 });
    assert_eq!(config(options().length_bits(24)), CdmaRingConfigError::LengthBits { found: 24 });
    assert_eq!(config(options().data_bytes(3)), CdmaRingConfigError::DataBytes { found: 3 });
    assert!(matches!(config(CdmaRingOptions::new(at(BASE + 32))), CdmaRingConfigError::Base { .. }));
    for (threshold, delay) in [(0, 0), (0, 9), (2, 0), (255, 0)] {
        let error = refusal(&card, bypass(), options().interrupt_threshold(threshold).interrupt_delay(delay));
        assert!(matches!(error, CdmaRingError::Coalescing { .. }), "{error}");
    }
    let error = refusal(&card, bypass(), CdmaRingOptions::new(at(MEMORY + 0x1000)));
    assert!(matches!(error, CdmaRingError::Engine(CdmaError::CardMemory { .. })), "{error}");
    // The bypass BAR covers 64 MiB.
    for (base, window) in [(64 << 20, 0), ((64 << 20) - 512, 0), (0, 64), (BASE, 0x4000_0000)] {
        let base = CdmaRingOptions::new(at(base)).descriptors(16);
        let error = refusal(&card, DescriptorPath::bypass(at(window)), base);
        assert!(matches!(error, CdmaRingError::OutsideBypass { .. }), "{error}");
    }
    let error = refusal(&card, bypass(), options().user_interrupt(0));
    assert!(matches!(error, CdmaRingError::NoInterrupt), "not enabled: {error}");
    card.enable_interrupts().unwrap();
    let error = refusal(&card, bypass(), options().user_interrupt(16));
    assert!(matches!(error, CdmaRingError::NoInterrupt), "no such line: {error}");

    // A busy channel, and a channel of another card.
    let mut busy = card.h2c(0).unwrap();
    let ticket = busy.submit(card.buffer(64).unwrap(), at(0)).unwrap();
    let error = refusal(&card, DescriptorPath::channel(busy), options());
    assert!(matches!(error, CdmaRingError::Channel { .. }), "{error}");
    let _ = ticket;
    let other = SimNetwork::builder().cards(1).build().unwrap();
    let foreign = open(&other).h2c(0).unwrap();
    let error = refusal(&card, DescriptorPath::channel(foreign), options());
    assert!(
        matches!(error, CdmaRingError::Upload(ref error) if matches!(error.kind, TransferError::Submit(_))),
        "{error}"
    );
    drop((card, network));

    for (file, expected) in [
        ("cdma: { sg: false }", "NoScatterGather"),
        ("bars: { bypass: null }", "NoBypass"),
        ("cdma: { address_width: 32 }\nmemory: { base: 0x100000000, size: 0x10000000 }", "Base"),
    ] {
        let network = self::network(described(file));
        let card = open(&network);
        let options = if expected == "Base" { CdmaRingOptions::new(at(0x1_0010_0000)) } else { options() };
        let window = if expected == "Base" { at(0x1_0000_0000) } else { at(0) };
        let refused =
            card.cdma().unwrap().into_ring::<()>(DescriptorPath::bypass(window), options).unwrap_err();
        assert!(format!("{:?}", refused.error).contains(expected), "{:?}", refused.error);
    }
}

#[test]
fn cdma_ring_every_build_has_ring() {
    for route in SETUPS {
        for (file, options) in [
            ("cdma: { address_width: 32 }\nmemory: { size: 0x10000000 }", options()),
            ("cdma: { address_width: 40 }", options()),
            ("cdma: { data_width: 32 }", options().data_bytes(4)),
            ("cdma: { max_length_bits: 23 }", options()),
            ("cdma: { max_length_bits: 26 }", options()),
            ("cdma: { max_length_bits: 23 }", options().length_bits(15).descriptors(64)),
        ] {
            let network = network(described(file));
            let card = open(&network);
            let mut ring = ring(&card, route, options);
            (0..20).for_each(|seed| assert_works(&network, &mut ring, seed));
        }
        // Addresses that the build cannot issue.
        let network = network(described("cdma: { address_width: 32 }"));
        let card = open(&network);
        let mut ring: CdmaRing<u64> = ring(&card, route, options());
        let refused = ring.copy(at(0), at(0x1_0000_0000), 64, 0).unwrap_err();
        assert!(
            matches!(refused.error.kind.lower(), Some(RefusalReason::CardAddress { address_bits: 32, .. })),
            "{refused}"
        );
        assert_works(&network, &mut ring, 1);
    }
}

#[test]
fn cdma_ring_without_dre_unaligned_copy_is_refused() {
    let network = network(described("cdma: { dre: false, data_width: 512, max_length_bits: 23 }"));
    let card = open(&network);
    let mut ring: CdmaRing<u64> =
        ring(&card, DescriptorRoute::Bypass, options().length_bits(12).realignment(false));
    let refused = ring.copy(at(0x20_0001), at(0x30_0000), 64, 5).unwrap_err();
    let misaligned = RefusalReason::Misaligned { address: at(0x20_0001), alignment: 64 };
    assert_eq!(refused.error.kind.lower(), Some(&misaligned));
    // An aligned copy stays aligned where it is split; its length is free.
    let data = bytes(1, 20_001);
    poke(&network, 0, at(0x20_0000), &data);
    let ticket = ring.copy(at(0x20_0000), at(0x30_0040), 20_001, 6).unwrap();
    arrives(&mut ring, ticket);
    assert!(peek(&network, 0, at(0x30_0040), 20_001) == data);
}
