//! Ring sizes and options: invalid ones, and the fixed card address.

use fpga_card::AccessLog;
use fpga_driver::{
    ChannelOptions, Error, MemoryHandle, ResourceError, ScatterGatherEntry, errors::FaultCause,
};
use fpga_ring::ring::{MAX_DESCRIPTOR_LENGTH, RefusalReason, RingConfigError};
use fpga_tests::cards::{described, network, open, peek, poke};
use fpga_tests::rig::TestSetup;

use super::*;

/// Whether it is the expected error.
type Right = fn(&RingConfigError) -> bool;

#[test]
fn ring_invalid_options_are_refused() {
    for way in SETUPS {
        let mut rig = Rig::new(way);
        let good = way.options();
        let cases: [(ChannelOptions, Right); 14] = [
            (good.descriptors(0), |e| matches!(e, RingConfigError::Entries { found: 0 })),
            (good.descriptors(1), |e| matches!(e, RingConfigError::Entries { found: 1 })),
            (good.descriptors(3), |e| matches!(e, RingConfigError::Entries { found: 3 })),
            (good.descriptors(1 << 17), |e| matches!(e, RingConfigError::Entries { .. })),
            (good.descriptors(1 << 31), |e| matches!(e, RingConfigError::Entries { .. })),
            (good.descriptors(u32::MAX), |e| matches!(e, RingConfigError::Entries { found: u32::MAX })),
            (good.transfers(0), |e| matches!(e, RingConfigError::Operations { found: 0 })),
            (good.transfers(100), |e| matches!(e, RingConfigError::Operations { found: 100 })),
            (good.transfers(1 << 17), |e| matches!(e, RingConfigError::Operations { .. })),
            (good.transfers(u32::MAX), |e| matches!(e, RingConfigError::Operations { .. })),
            (good.max_descriptor_length(0), |e| matches!(e, RingConfigError::DescriptorLength { found: 0 })),
            (good.max_descriptor_length(1000), |e| {
                matches!(e, RingConfigError::DescriptorLength { found: 1000 })
            }),
            (good.max_descriptor_length(1 << 28), |e| matches!(e, RingConfigError::DescriptorLength { .. })),
            (good.max_descriptor_length(u32::MAX), |e| matches!(e, RingConfigError::DescriptorLength { .. })),
        ];
        for (options, right) in cases {
            let before = rig.card.counters();
            let error = way.take(&rig.card, 1, options).unwrap_err();
            let Error { kind: ResourceError::Ring(source), .. } = &error else {
                panic!("{options:?}: {error}")
            };
            assert!(right(source), "{options:?}: {source:?}");
            assert_eq!(rig.card.counters(), before, "refused without a register access");
            assert_pool(&rig.card, AREA, 0);
        }
        // The largest and the smallest valid values.
        for options in [
            good.descriptors(1 << 16).transfers(1 << 16),
            good.descriptors(2).transfers(1 << 16),
            good.descriptors(1 << 16).transfers(1),
            good.max_descriptor_length(MAX_DESCRIPTOR_LENGTH),
        ] {
            drop(rig.channel);
            rig.channel = way.take(&rig.card, 0, options).unwrap();
            rig.assert_works(1);
        }
    }
}

#[test]
fn memory_of_zero_size_is_refused() {
    for way in SETUPS {
        let rig = Rig::new(way);
        for length in [0, usize::MAX, isize::MAX.unsigned_abs()] {
            let refused = rig.card.registered_memory(length).map(|area| area.len());
            assert!(
                matches!(refused, Err(Error { kind: ResourceError::Memory(_), .. })),
                "{length}: {refused:?}"
            );
        }
        assert_pool(&rig.card, AREA, 0);
    }
}

/// Bytes of a beat: the built-in card's data path is 512 bits wide.
const BEAT: usize = 64;

fn fixed(way: fpga_tests::rig::TestSetup) -> (Rig, MemoryHandle) {
    let mut rig = Rig::with(way, way.options().fixed_address(true));
    let memory = rig.register_memory(1 << 16);
    (rig, memory)
}

#[test]
fn fixed_address_partial_beat_is_refused() {
    for way in SETUPS {
        let (mut rig, memory) = fixed(way);
        let at = |card: u64| CardAddr::new(0x8000 + card);
        for (offset, length, card) in [
            (1, BEAT, 0),
            (0, BEAT + 1, 0),
            (0, BEAT, 1),
            (BEAT / 2, BEAT, 0),
            (0, BEAT / 2, 0),
            (0, BEAT, 32),
            (0, 1, 0),
        ] {
            let misaligned = |error: &SubmitError| {
                matches!(error, SubmitError::Misaligned { width: 64, length: l, start, .. }
                    if *l == length as u64 && *start == at(card))
            };
            let refused = rig.channel.submit_at(memory, offset, length, at(card)).unwrap_err();
            assert!(misaligned(&refused.kind), "{way:?}: {refused}");
            assert!(refused.to_string().contains("beats of 64 bytes"), "{refused}");
            let entry = ScatterGatherEntry { memory, offset, length, card: at(card) };
            let good = ScatterGatherEntry { memory, offset: 0x1000, length: BEAT, card: at(0) };
            for list in [vec![entry], vec![good, entry]] {
                let refused = rig.channel.submit_list(&list).unwrap_err();
                assert!(misaligned(&refused.kind), "{way:?}: {refused}");
            }
            if offset == 0 {
                let refused = rig.channel.submit(rig.card.buffer(length).unwrap(), at(card)).unwrap_err();
                assert!(misaligned(&refused.error.kind), "{way:?}: {refused}");
                assert_eq!(refused.payload.len(), length);
            }
        }
        assert_eq!(rig.channel.in_flight(), 0);
        // A part outside the memory is refused for that reason, whatever its alignment.
        let refused = rig.channel.submit_at(memory, 1 << 16, BEAT, at(0));
        assert!(matches!(refused, Err(Error { kind: SubmitError::MemoryRange { .. }, .. })), "{refused:?}");
    }
}

#[test]
fn fixed_address_every_beat_uses_same_address() {
    for way in SETUPS {
        let (mut rig, memory) = fixed(way);
        let at = CardAddr::new(0x8000);
        poke(&rig.network, 0, at, &bytes(1, 4096));
        for (n, beats) in (0..).zip([1, 2, 64, 65, 128, 1000]) {
            let length = beats * BEAT;
            let data = bytes(n, length);
            rig.memory(memory).write(0, &data).unwrap();
            let behind = peek(&rig.network, 0, at, 4096);
            let ticket = rig.channel.submit_at(memory, 0, length, at).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert!(rig.completions().is_empty(), "{way:?}");
            let after = peek(&rig.network, 0, at, 4096);
            if way.to_card() {
                assert_eq!(after[..BEAT], data[length - BEAT..], "memory holds the last beat");
            } else {
                assert_eq!(after[..BEAT], behind[..BEAT]);
                let mut found = vec![0; length];
                rig.memory(memory).read(0, &mut found).unwrap();
                assert!(found.chunks(BEAT).all(|beat| beat == &behind[..BEAT]), "{way:?}");
            }
            assert_eq!(after[BEAT..], behind[BEAT..], "memory behind the destination is unchanged");
        }
        // Buffers and lists work in the same way; all entries of a list may use the one address.
        let buffer = rig.card.buffer_from(&bytes(9, 4 * BEAT)).unwrap();
        let buffer = rig.channel.transfer(buffer, at, WaitOptions::default()).unwrap();
        if way.to_card() {
            assert_eq!(peek(&rig.network, 0, at, BEAT), buffer.to_vec()[3 * BEAT..]);
        }
        let entry = |k: usize| ScatterGatherEntry { memory, offset: k * 0x1000, length: 2 * BEAT, card: at };
        let ticket = rig.channel.submit_list(&[entry(0), entry(3), entry(1)]).unwrap();
        rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        if way.to_card() {
            let mut last = [0; BEAT];
            rig.memory(memory).read(0x1000 + BEAT, &mut last).unwrap();
            assert_eq!(peek(&rig.network, 0, at, BEAT), last);
        } else {
            // The destination is host memory, where entries may not overlap.
            let refused = rig.channel.submit_list(&[entry(0), entry(0)]);
            assert!(matches!(refused, Err(Error { kind: SubmitError::Overlap { .. }, .. })), "{refused:?}");
        }
        assert!(rig.completions().is_empty());
        assert!(rig.channel.deregister_memory(memory).is_ok());
    }
}

/// The beat width is the one that the card reports.
#[test]
fn fixed_address_beat_follows_data_width() {
    for (bits, beat) in [(64, 8), (128, 16), (256, 32), (512, 64)] {
        for way in SETUPS {
            let network = network(described(&format!("xdma: {{ data_width: {bits} }}")));
            let card = open(&network);
            let mut rig = Rig::on(network, card, way, way.options().fixed_address(true));
            let memory = rig.register_memory(4096);
            let refused = rig.channel.submit_at(memory, beat / 2, beat, CardAddr::ZERO);
            assert!(
                matches!(refused, Err(Error { kind: SubmitError::Misaligned { width, .. }, .. }) if width == beat as u64),
                "{refused:?}"
            );
            let ticket = rig.channel.submit_at(memory, beat, 3 * beat, CardAddr::new(beat as u64)).unwrap();
            rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert!(rig.completions().is_empty(), "{way:?} {bits}");
        }
    }
}

/// The next owner of a channel does not inherit the fixed address mode.
#[test]
fn fixed_address_mode_ends_with_channel() {
    for way in SETUPS {
        let (mut rig, memory) = fixed(way);
        let ticket = rig.channel.submit_at(memory, 0, 4096, CardAddr::ZERO).unwrap();
        rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        drop(rig.channel);
        rig.channel = way.take(&rig.card, 0, way.options()).unwrap();
        rig.assert_works(1);
        // A channel in fixed address mode does not inherit the mode of the last owner either; its own error ends its transfer as in the
        // other mode.
        drop(rig.channel);
        rig.channel = way.take(&rig.card, 0, way.options().fixed_address(true)).unwrap();
        let memory = rig.register_memory(4096);
        let ticket = rig.channel.submit_at(memory, 0, 4096, CardAddr::new(0x40_0000_0000)).unwrap();
        rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        let failed = rig.completions().remove(0).outcome.unwrap_err();
        assert!(matches!(failed.kind.cause, FaultCause::Status(_)), "{failed}");
        let ticket = rig.channel.submit_at(memory, 0, 4096, CardAddr::ZERO).unwrap();
        rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert!(rig.completions().is_empty());
    }
}

/// The refusal of a transfer that never fits reports the number of descriptors that it needs.
#[test]
fn submit_oversized_part_names_needed_descriptors() {
    for way in SETUPS {
        let mut rig = Rig::with(way, way.options().descriptors(8).max_descriptor_length(4096));
        let memory = rig.register_memory(16 * 4096);
        let refused = rig.channel.submit_at(memory, 1, 8 * 4096, CardAddr::ZERO);
        assert!(
            matches!(
                refused,
                Err(Error {
                    kind: SubmitError::Ring(RefusalReason::TooManyDescriptors { needed: 9, entries: 8 }),
                    ..
                })
            ),
            "{refused:?}"
        );
        let ticket = rig.channel.submit_at(memory, 0, 8 * 4096, CardAddr::ZERO).unwrap();
        let full = rig.channel.submit_at(memory, 0, 1, CardAddr::ZERO).unwrap_err();
        assert!(full.is_full(), "{full}");
        rig.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
    }
}

/// Log of the driver's accesses to the card, with the card's time and the values.
fn accesses(way: TestSetup, seed: u64) -> Vec<String> {
    let mut rig = Rig::new(way);
    rig.network.with_card(0, |card| card.set_access_log(AccessLog::bounded(1 << 16)));
    let mut rng = Pcg64::new(seed.into(), 1);
    for _ in 0..200 {
        let length = 1 + (rng.next_u64() % 9000) as usize;
        let buffer = rig.card.buffer(length).unwrap();
        rig.channel.submit(buffer, CardAddr::new(rng.next_u64() % 4096)).unwrap();
        if rng.next_u64().is_multiple_of(3) {
            while rig.channel.in_flight() > 0 {
                rig.channel.poll().unwrap();
                rig.channel.relax();
            }
        }
    }
    let log = rig.network.with_card(0, |card| card.set_access_log(AccessLog::Off));
    let Some(AccessLog::Bounded { entries, .. }) = log else { panic!("no access log") };
    entries.iter().map(|access| format!("{access:?}")).collect()
}

#[test]
fn transfers_same_seed_makes_same_accesses() {
    for way in SETUPS {
        let first = accesses(way, 3);
        assert!(first.len() > 100, "{way:?}: {}", first.len());
        assert!(first == accesses(way, 3), "{way:?}");
        assert!(first != accesses(way, 4), "{way:?}");
    }
}
