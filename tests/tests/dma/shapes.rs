//! Ring sizes and options: invalid ones, and the fixed card address.

use fpga_card::AccessLog;
use fpga_driver::{
    ChannelOptions, Error, MemoryHandle, ResourceError, ScatterGatherEntry, errors::FaultCause,
};
use fpga_ring::ring::{MAX_DESCRIPTOR_LENGTH, RefusalReason, RingConfigError};
use fpga_tests::bed::TestSetup;
use fpga_tests::cards::{described, network, open, peek, poke};
use fpga_tests::causes::Lower as _;

use super::*;

/// Whether it is the expected error.
type Right = fn(&RingConfigError) -> bool;

#[test]
fn ring_invalid_options_are_refused() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let good = setup.options();
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
            let before = bed.card.counters();
            let error = setup.take(&bed.card, 1, options).unwrap_err();
            let source = error.kind.lower().unwrap();
            assert!(right(source), "{options:?}: {source:?}");
            assert_eq!(bed.card.counters(), before, "refused without a register access");
            assert_pool(&bed.card, AREA, 0);
        }
        // The largest and the smallest valid values.
        for options in [
            good.descriptors(1 << 16).transfers(1 << 16),
            good.descriptors(2).transfers(1 << 16),
            good.descriptors(1 << 16).transfers(1),
            good.max_descriptor_length(MAX_DESCRIPTOR_LENGTH),
        ] {
            drop(bed.channel);
            bed.channel = setup.take(&bed.card, 0, options).unwrap();
            bed.assert_works(1);
        }
    }
}

#[test]
fn memory_of_zero_size_is_refused() {
    for setup in SETUPS {
        let bed = TestBed::new(setup);
        for length in [0, usize::MAX, isize::MAX.unsigned_abs()] {
            let refused = bed.card.registered_memory(length).map(|area| area.len());
            assert!(
                matches!(refused, Err(Error { kind: ResourceError::Cause(_), .. })),
                "{length}: {refused:?}"
            );
        }
        assert_pool(&bed.card, AREA, 0);
    }
}

/// Bytes of a beat: the built-in card's data path is 512 bits wide.
const BEAT: usize = 64;

fn fixed(setup: fpga_tests::bed::TestSetup) -> (TestBed, MemoryHandle) {
    let mut bed = TestBed::with(setup, setup.options().fixed_address(true));
    let memory = bed.register_memory(1 << 16);
    (bed, memory)
}

#[test]
fn fixed_address_partial_beat_is_refused() {
    for setup in SETUPS {
        let (mut bed, memory) = fixed(setup);
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
            let refused = bed.channel.submit_at(memory, offset, length, at(card)).unwrap_err();
            assert!(misaligned(&refused.kind), "{setup:?}: {refused}");
            assert!(refused.to_string().contains("beats of 64 bytes"), "{refused}");
            let entry = ScatterGatherEntry { memory, offset, length, card: at(card) };
            let good = ScatterGatherEntry { memory, offset: 0x1000, length: BEAT, card: at(0) };
            for list in [vec![entry], vec![good, entry]] {
                let refused = bed.channel.submit_list(&list).unwrap_err();
                assert!(misaligned(&refused.kind), "{setup:?}: {refused}");
            }
            if offset == 0 {
                let refused = bed.channel.submit(bed.card.buffer(length).unwrap(), at(card)).unwrap_err();
                assert!(misaligned(&refused.error.kind), "{setup:?}: {refused}");
                assert_eq!(refused.payload.len(), length);
            }
        }
        assert_eq!(bed.channel.in_flight(), 0);
        // A part outside the memory is refused for that reason, whatever its alignment.
        let refused = bed.channel.submit_at(memory, 1 << 16, BEAT, at(0));
        assert!(matches!(refused, Err(Error { kind: SubmitError::MemoryRange { .. }, .. })), "{refused:?}");
    }
}

#[test]
fn fixed_address_every_beat_uses_same_address() {
    for setup in SETUPS {
        let (mut bed, memory) = fixed(setup);
        let at = CardAddr::new(0x8000);
        poke(&bed.network, 0, at, &bytes(1, 4096));
        for (n, beats) in (0..).zip([1, 2, 64, 65, 128, 1000]) {
            let length = beats * BEAT;
            let data = bytes(n, length);
            bed.memory(memory).write(0, &data).unwrap();
            let behind = peek(&bed.network, 0, at, 4096);
            let ticket = bed.channel.submit_at(memory, 0, length, at).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert!(bed.completions().is_empty(), "{setup:?}");
            let after = peek(&bed.network, 0, at, 4096);
            if setup.to_card() {
                assert_eq!(after[..BEAT], data[length - BEAT..], "memory holds the last beat");
            } else {
                assert_eq!(after[..BEAT], behind[..BEAT]);
                let mut found = vec![0; length];
                bed.memory(memory).read(0, &mut found).unwrap();
                assert!(found.chunks(BEAT).all(|beat| beat == &behind[..BEAT]), "{setup:?}");
            }
            assert_eq!(after[BEAT..], behind[BEAT..], "memory behind the destination is unchanged");
        }
        // Buffers and lists work in the same way; all entries of a list may use the one address.
        let buffer = bed.card.buffer_from(&bytes(9, 4 * BEAT)).unwrap();
        let buffer = bed.channel.transfer(buffer, at, WaitOptions::default()).unwrap();
        if setup.to_card() {
            assert_eq!(peek(&bed.network, 0, at, BEAT), buffer.to_vec()[3 * BEAT..]);
        }
        let entry = |k: usize| ScatterGatherEntry { memory, offset: k * 0x1000, length: 2 * BEAT, card: at };
        let ticket = bed.channel.submit_list(&[entry(0), entry(3), entry(1)]).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        if setup.to_card() {
            let mut last = [0; BEAT];
            bed.memory(memory).read(0x1000 + BEAT, &mut last).unwrap();
            assert_eq!(peek(&bed.network, 0, at, BEAT), last);
        } else {
            // The destination is host memory, where entries may not overlap.
            let refused = bed.channel.submit_list(&[entry(0), entry(0)]);
            assert!(matches!(refused, Err(Error { kind: SubmitError::Overlap { .. }, .. })), "{refused:?}");
        }
        assert!(bed.completions().is_empty());
        assert!(bed.channel.deregister_memory(memory).is_ok());
    }
}

/// The beat width is the one that the card reports.
#[test]
fn fixed_address_beat_follows_data_width() {
    for (bits, beat) in [(64, 8), (128, 16), (256, 32), (512, 64)] {
        for setup in SETUPS {
            let network = network(described(&format!("xdma: {{ data_width: {bits} }}")));
            let card = open(&network);
            let mut bed = TestBed::on(network, card, setup, setup.options().fixed_address(true));
            let memory = bed.register_memory(4096);
            let refused = bed.channel.submit_at(memory, beat / 2, beat, CardAddr::ZERO);
            assert!(
                matches!(refused, Err(Error { kind: SubmitError::Misaligned { width, .. }, .. }) if width == beat as u64),
                "{refused:?}"
            );
            let ticket = bed.channel.submit_at(memory, beat, 3 * beat, CardAddr::new(beat as u64)).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert!(bed.completions().is_empty(), "{setup:?} {bits}");
        }
    }
}

/// The next owner of a channel does not inherit the fixed address mode.
#[test]
fn fixed_address_mode_ends_with_channel() {
    for setup in SETUPS {
        let (mut bed, memory) = fixed(setup);
        let ticket = bed.channel.submit_at(memory, 0, 4096, CardAddr::ZERO).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        drop(bed.channel);
        bed.channel = setup.take(&bed.card, 0, setup.options()).unwrap();
        bed.assert_works(1);
        // A channel in fixed address mode does not inherit the mode of the last owner either; its own error ends its transfer as in the
        // other mode.
        drop(bed.channel);
        bed.channel = setup.take(&bed.card, 0, setup.options().fixed_address(true)).unwrap();
        let memory = bed.register_memory(4096);
        let ticket = bed.channel.submit_at(memory, 0, 4096, CardAddr::new(0x40_0000_0000)).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        let failed = bed.completions().remove(0).outcome.unwrap_err();
        assert!(matches!(failed.kind.cause, FaultCause::Status(_)), "{failed}");
        let ticket = bed.channel.submit_at(memory, 0, 4096, CardAddr::ZERO).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert!(bed.completions().is_empty());
    }
}

/// The refusal of a transfer that never fits reports the number of descriptors that it needs.
#[test]
fn submit_oversized_part_names_needed_descriptors() {
    for setup in SETUPS {
        let mut bed = TestBed::with(setup, setup.options().descriptors(8).max_descriptor_length(4096));
        let memory = bed.register_memory(16 * 4096);
        let refused = bed.channel.submit_at(memory, 1, 8 * 4096, CardAddr::ZERO);
        assert!(
            matches!(
                refused.as_ref().unwrap_err().kind.lower(),
                Some(RefusalReason::TooManyDescriptors { needed: 9, usable: 8 })
            ),
            "{refused:?}"
        );
        let ticket = bed.channel.submit_at(memory, 0, 8 * 4096, CardAddr::ZERO).unwrap();
        let full = bed.channel.submit_at(memory, 0, 1, CardAddr::ZERO).unwrap_err();
        assert!(full.is_full(), "{full}");
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
    }
}

/// Log of the driver's accesses to the card, with the card's time and the values.
fn accesses(setup: TestSetup, seed: u64) -> Vec<String> {
    let mut bed = TestBed::new(setup);
    bed.network.with_card(0, |card| card.set_access_log(AccessLog::bounded(1 << 16)));
    let mut rng = Pcg64::new(seed.into(), 1);
    for _ in 0..200 {
        let length = 1 + (rng.next_u64() % 9000) as usize;
        let buffer = bed.card.buffer(length).unwrap();
        bed.channel.submit(buffer, CardAddr::new(rng.next_u64() % 4096)).unwrap();
        if rng.next_u64().is_multiple_of(3) {
            while bed.channel.in_flight() > 0 {
                bed.channel.poll().unwrap();
                bed.channel.relax();
            }
        }
    }
    let log = bed.network.with_card(0, |card| card.set_access_log(AccessLog::Off));
    let Some(AccessLog::Bounded { entries, .. }) = log else { panic!("no access log") };
    entries.iter().map(|access| format!("{access:?}")).collect()
}

#[test]
fn transfers_same_seed_makes_same_accesses() {
    for setup in SETUPS {
        let first = accesses(setup, 3);
        assert!(first.len() > 100, "{setup:?}: {}", first.len());
        assert!(first == accesses(setup, 3), "{setup:?}");
        assert!(first != accesses(setup, 4), "{setup:?}");
    }
}
