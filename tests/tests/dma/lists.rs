//! Scatter-gather lists: several entries, one transfer.

use fpga_driver::{Error, MemoryHandle, ScatterGatherEntry};
use fpga_ring::ring::RefusalReason;
use fpga_tests::causes::Lower as _;

use super::*;

const AT: u64 = 0x40_0000;

const fn entry(memory: MemoryHandle, offset: usize, length: usize, card: u64) -> ScatterGatherEntry {
    ScatterGatherEntry { memory, offset, length, card: CardAddr::new(card) }
}

/// Descriptors that the card has executed.
fn descriptors(bed: &TestBed) -> u64 {
    bed.card.counters().unwrap().descriptors
}

#[test]
fn list_touching_entries_share_descriptor() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(1 << 16);
        let cases: [(&[ScatterGatherEntry], u64); 6] = [
            (&[entry(memory, 0, 100, AT), entry(memory, 100, 100, AT + 100)], 1),
            (&[entry(memory, 0, 100, AT), entry(memory, 300, 0, 0), entry(memory, 100, 1, AT + 100)], 1),
            // A gap or a step backwards on either side.
            (&[entry(memory, 0, 100, AT), entry(memory, 101, 100, AT + 100)], 2),
            (&[entry(memory, 0, 100, AT), entry(memory, 100, 100, AT + 101)], 2),
            (&[entry(memory, 100, 100, AT + 100), entry(memory, 0, 100, AT)], 2),
            (&[entry(memory, 0, 0, AT), entry(memory, 0, 1, AT), entry(memory, 5, 0, AT)], 1),
        ];
        for (n, (list, expected)) in cases.into_iter().enumerate() {
            let before = descriptors(&bed);
            let ticket = bed.channel.submit_list(list).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            assert_eq!(descriptors(&bed) - before, expected, "{setup:?} case {n}");
        }
    }
}

#[test]
fn list_empty_is_refused() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        for list in [&[][..], &[entry(memory, 0, 0, AT)], &[entry(memory, 7, 0, AT); 100]] {
            let refused = bed.channel.submit_list(list);
            assert!(
                matches!(&refused, Err(error) if matches!(error.kind.lower(), Some(RefusalReason::Empty))),
                "{refused:?}"
            );
        }
        assert_eq!(bed.channel.in_flight(), 0);
    }
}

#[test]
fn list_one_bad_entry_queues_nothing() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(4096);
        let gone = bed.register_memory(4096);
        drop(bed.channel.deregister_memory(gone).unwrap());
        let good = entry(memory, 0, 64, AT);
        let bad = [
            entry(memory, 4000, 97, AT + 0x1000),
            entry(memory, 64, 64, 0x2_0000_0000 - 63),
            entry(memory, usize::MAX, 2, AT),
            entry(gone, 0, 64, AT + 0x1000),
        ];
        for bad in bad {
            for list in
                [vec![bad], vec![good, bad], vec![bad, good], vec![good, entry(memory, 0, 0, AT), bad]]
            {
                let refused = bed.channel.submit_list(&list).unwrap_err();
                let right = match &refused {
                    Error { kind: SubmitError::MemoryRange { size: 4096, .. }, .. } => bad.memory == memory,
                    Error { kind: SubmitError::CardMemory { length: 64, .. }, .. } => {
                        bad.card.get() > AT + 0x1000
                    }
                    Error { kind: SubmitError::NotRegistered, .. } => bad.memory == gone,
                    _ => false,
                };
                assert!(right, "{bad:?}: {refused}");
            }
        }
        let before = descriptors(&bed);
        assert_eq!((bed.channel.in_flight(), bed.channel.poll().unwrap()), (0, 0));
        let ticket = bed.channel.submit_list(&[good]).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert_eq!(descriptors(&bed) - before, 1);
        // The memory and addresses of an empty entry are not checked, and are not used for another entry.
        let ticket = bed.channel.submit_list(&[entry(gone, 1 << 40, 0, u64::MAX), good]).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert!(bed.channel.deregister_memory(memory).is_ok());
    }
}

#[test]
fn list_overlapping_destinations_refused_sources_accepted() {
    for setup in SETUPS {
        let mut bed = TestBed::new(setup);
        let memory = bed.register_memory(1 << 16);
        let iova = |bed: &mut TestBed| {
            let area = bed.channel.deregister_memory(memory).unwrap();
            let iova = area.iova().get();
            (bed.channel.register_memory(area).unwrap(), iova)
        };
        let (memory, base) = iova(&mut bed);
        // These entries overlap on one side by one byte or more; on the other side they are not adjacent.
        let lists = |on_card: bool| {
            let at = |apart: u64, close: u64, length| {
                let (card, offset) = if on_card { (close, apart) } else { (apart, close) };
                entry(memory, usize::try_from(offset).unwrap(), length, AT + card)
            };
            [
                (vec![at(0, 0, 100), at(0x1000, 99, 100)], (0, 99, 100)),
                (vec![at(0x1000, 99, 100), at(0, 0, 100)], (0, 99, 100)),
                (vec![at(0, 50, 1), at(0x1000, 50, 1)], (50, 50, 1)),
                (vec![at(0, 0, 100), at(0x1000, 10, 5)], (0, 10, 5)),
                // Two overlapping entries among others that do not overlap.
                (
                    vec![
                        at(0, 0, 64),
                        at(0x1000, 200, 64),
                        at(0x2000, 64, 64),
                        at(0x3000, 263, 10),
                        at(0x4000, 400, 0),
                    ],
                    (200, 263, 10),
                ),
            ]
        };
        for (list, (first, second, length)) in lists(setup.to_card()) {
            let refused = bed.channel.submit_list(&list).unwrap_err();
            let start = if setup.to_card() { AT } else { base };
            let Error { kind: SubmitError::Overlap { first: a, second: b, length: l, .. }, .. } = refused
            else {
                panic!("{setup:?}: {refused}")
            };
            assert_eq!((a, b, l), (start + first, start + second, length), "{setup:?}");
            assert!(format!("{refused:#}").contains("one source"));
            assert_eq!(bed.channel.in_flight(), 0);
        }
        for (list, _) in lists(!setup.to_card()) {
            let ticket = bed.channel.submit_list(&list).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        }
        // Two transfers with the same destination are separate: the later one overwrites the earlier one.
        for byte in [1, 2] {
            let offset = usize::from(byte) * 64;
            bed.put(memory, offset, CardAddr::new(AT), &[byte; 64]);
            let part = entry(memory, if setup.to_card() { offset } else { 0 }, 64, AT);
            bed.channel.submit_list(&[part]).unwrap();
            if !setup.to_card() {
                bed.finish();
            }
        }
        bed.finish();
        assert_eq!(bed.arrived(memory, 0, CardAddr::new(AT), 64), [2; 64]);
    }
}

fn million_entries(setups: usize) {
    const COUNT: usize = 1_000_000;
    for setup in SETUPS.into_iter().take(setups) {
        let mut bed = TestBed::with(setup, setup.options().descriptors(1024));
        let memory = bed.register_memory(16 << 20);
        let data = bytes(7, 16 * COUNT);
        bed.put(memory, 0, CardAddr::new(AT), &data);
        let list: Vec<_> = (0..COUNT).map(|n| entry(memory, n * 16, 16, AT + n as u64 * 16)).collect();
        let before = descriptors(&bed);
        let ticket = bed.channel.submit_list(&list).unwrap();
        assert_eq!(bed.channel.in_flight(), 1);
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert_eq!(descriptors(&bed) - before, 1);
        assert!(bed.arrived(memory, 0, CardAddr::new(AT), 16 * COUNT) == data, "{setup:?}");
        let list: Vec<_> = (0..COUNT).map(|n| entry(memory, n * 16, 8, AT + n as u64 * 16)).collect();
        let refused = bed.channel.submit_list(&list).unwrap_err();
        let Some(RefusalReason::TooManyDescriptors { needed: 1_000_000, usable: 1024 }) =
            refused.kind.lower()
        else {
            panic!("{refused}")
        };
        assert_eq!((bed.channel.in_flight(), bed.channel.poll().unwrap()), (0, 0));
        // As many entries as there are descriptors.
        let ticket = bed.channel.submit_list(&list[..1024]).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        assert_eq!(descriptors(&bed) - before, 1025);
    }
}

/// In one direction and run mode, on which the length of a list does not depend.
#[test]
fn list_million_entries_touching_and_separate() {
    million_entries(1);
}

#[test]
#[ignore = "long: 2 s: every direction and run mode"]
fn list_million_entries_in_every_setup() {
    million_entries(SETUPS.len());
}

#[test]
fn list_longer_than_free_space_is_refused_until_free() {
    for setup in SETUPS {
        let mut bed = TestBed::with(setup, setup.options().descriptors(16).transfers(16));
        let memory = bed.register_memory(1 << 16);
        let list: Vec<_> = (0..12).map(|n| entry(memory, n << 12, 100, AT + ((n as u64) << 13))).collect();
        let data: Vec<_> = (0..12).map(|n| bytes(n, 100)).collect();
        for (entry, data) in list.iter().zip(&data) {
            bed.put(memory, entry.offset, entry.card, data);
        }
        for n in 0..8 {
            bed.channel.submit_at(memory, 0xF000, 64, CardAddr::new(0x100 * n)).unwrap();
        }
        for _ in 0..2 {
            let refused = bed.channel.submit_list(&list).unwrap_err();
            assert!(
                matches!(refused, Error { kind: SubmitError::Full { needed: 12, free: 8 }, .. }),
                "{refused}"
            );
            assert!(refused.is_full());
            bed.channel.poll().unwrap();
        }
        assert_eq!(bed.channel.in_flight(), 8);
        bed.finish();
        let ticket = bed.channel.submit_list(&list).unwrap();
        bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
        for (entry, data) in list.iter().zip(&data) {
            assert!(bed.arrived(memory, entry.offset, entry.card, 100) == *data, "{setup:?}");
        }
    }
}

/// A list with more descriptors than credits, than a block holds, and than a page of descriptors.
#[test]
fn list_as_long_as_ring_transfers() {
    for setup in SETUPS {
        let mut bed = TestBed::with(setup, setup.options().descriptors(4096));
        let memory = bed.register_memory(4096 * 256);
        for count in [63, 64, 65, 127, 128, 129, 1022, 1023, 1024, 1025, 2047, 4096] {
            let data = bytes(count as u64, count * 16);
            let list: Vec<_> = (0..count).map(|n| entry(memory, n * 256, 16, AT + n as u64 * 64)).collect();
            for (entry, data) in list.iter().zip(data.chunks(16)) {
                bed.put(memory, entry.offset, entry.card, data);
            }
            let ticket = bed.channel.submit_list(&list).unwrap();
            bed.channel.wait_ended(ticket, WaitOptions::default()).unwrap();
            for (entry, data) in list.iter().zip(data.chunks(16)) {
                assert!(bed.arrived(memory, entry.offset, entry.card, 16) == data, "{setup:?} {count}");
            }
        }
        assert_eq!(bed.channel.ended(), 12);
        assert!(bed.completions().is_empty());
        let overflow = bed.network.with_card(0, |card| {
            card.faults().iter().any(|fault| fault.kind == fpga_card::FaultKind::CreditOverflow)
        });
        assert_eq!(overflow, Some(false), "{setup:?}");
    }
}
