//! The op table compared with a map, with random time steps.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot continue may as well stop the test")]

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use fpga_firmware::ids::OpNumber;
use fpga_protocol::Nanos;
use fpga_protocol::op_table::{OpState, OpTable, OpTableConfig, OpTableError};
use proptest::prelude::*;

/// The reuse delay of a number is twice this: the lifetime of a packet, and that of its answer.
const PACKET_LIFETIME: u64 = 100;
const REUSE_DELAY: u64 = 2 * PACKET_LIFETIME;

fn table(entries: u32, bits: u8) -> OpTable {
    let mut config = OpTableConfig::default();
    config.entries = entries;
    config.generation_bits = bits;
    config.packet_lifetime = Nanos::new(PACKET_LIFETIME);
    OpTable::new(config).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Take(u64),
    Acknowledge(usize),
    Stale(u32),
    Refuse(usize, u64),
    Resend(usize),
    Due,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..60).prop_map(Step::Take),
        4 => (0usize..64).prop_map(Step::Acknowledge),
        1 => any::<u32>().prop_map(Step::Stale),
        1 => (0usize..64, 1u64..60).prop_map(|(n, t)| Step::Refuse(n, t)),
        1 => (0usize..64).prop_map(Step::Resend),
        2 => Just(Step::Due),
        2 => (0u64..70).prop_map(Step::Pass),
    ]
}

#[derive(Clone, Copy, Debug)]
struct ModelSlot {
    packet: u16,
    tries: u8,
    state: OpState,
    deadline: u64,
}

proptest! {
    #[test]
    fn e1_13_op_table_matches_map_and_respects_reuse_delay(
        steps in prop::collection::vec(step(), 1..400), entries in 1u32..6, bits in 1u8..4,
    ) {
        let mut table = table(entries, bits);
        let mut live: HashMap<OpNumber, ModelSlot> = HashMap::new();
        let mut released: HashMap<OpNumber, u64> = HashMap::new();
        let mut now = 0u64;
        let mut packet = 0u16;
        for step in steps {
            let at = Nanos::new(now);
            let mut numbers: Vec<_> = live.keys().copied().collect();
            numbers.sort_unstable();
            let pick = |n: usize| if numbers.is_empty() { None } else { Some(numbers[n % numbers.len()]) };
            match step {
                Step::Take(wait) => {
                    packet += 1;
                    let available = table.available(at);
                    let taken = table.take(at, 3, packet, Nanos::new(now + wait));
                    prop_assert_eq!(taken.is_some(), available > 0);
                    if let Some(number) = taken {
                        prop_assert!(released.get(&number).is_none_or(|then| now >= then + REUSE_DELAY));
                        let known = ModelSlot { packet, tries: 1, state: OpState::InFlight, deadline: now + wait };
                        prop_assert!(live.insert(number, known).is_none());
                    } else {
                        prop_assert_eq!(table.in_use() + table.in_reuse_delay(), entries);
                    }
                }
                Step::Acknowledge(n) => if let Some(number) = pick(n) {
                    let op = table.acknowledge(at, number).unwrap();
                    let known = live.remove(&number).unwrap();
                    prop_assert_eq!((op.packet, op.tries, op.segment), (known.packet, known.tries, 3));
                    prop_assert!(table.acknowledge(at, number).is_none(), "a second time is stale");
                    released.insert(number, now);
                },
                Step::Stale(bits) => {
                    let number = OpNumber::new(bits);
                    if !live.contains_key(&number) {
                        prop_assert!(table.acknowledge(at, number).is_none());
                    }
                }
                Step::Refuse(n, wait) => if let Some(number) = pick(n) {
                    table.refuse(number, Nanos::new(now + wait));
                    let known = live.get_mut(&number).unwrap();
                    if known.state != OpState::Due {
                        known.state = OpState::Waiting;
                        known.deadline = now + wait;
                    }
                },
                Step::Resend(n) => if let Some(number) = pick(n) {
                    table.resend(number, true);
                    live.get_mut(&number).unwrap().state = OpState::Due;
                },
                Step::Due => {
                    let due = live.values().filter(|known| known.state == OpState::Due).count();
                    let op = table.take_due(at, |_| Nanos::new(now + 30));
                    prop_assert_eq!(op.is_some(), due > 0);
                    if let Some(op) = op {
                        let known = live.get_mut(&op.number).unwrap();
                        prop_assert_eq!(known.state, OpState::Due);
                        known.state = OpState::InFlight;
                        known.tries += 1;
                        known.deadline = now + 30;
                        prop_assert_eq!(op.tries, known.tries);
                    }
                }
                Step::Pass(span) => {
                    now += span;
                    let bound = table.next_deadline();
                    let mut expected: Vec<_> = live.iter()
                        .filter(|(_, k)| k.state == OpState::InFlight && k.deadline <= now).map(|(n, _)| *n).collect();
                    let earliest = live.values().filter(|k| k.state != OpState::Due).map(|k| k.deadline).min();
                    if let Some(earliest) = earliest {
                        prop_assert!(bound.unwrap() <= Nanos::new(earliest), "early is fine, late is not");
                    }
                    for known in live.values_mut() {
                        if known.state == OpState::Waiting && known.deadline <= now {
                            known.state = OpState::Due;
                        }
                    }
                    let mut reported = Vec::new();
                    while let Some(op) = table.expired(Nanos::new(now)) {
                        reported.push(op.number);
                        table.extend(op.number, Nanos::new(now + 40));
                        live.get_mut(&op.number).unwrap().deadline = now + 40;
                    }
                    expected.sort_unstable();
                    reported.sort_unstable();
                    prop_assert_eq!(reported, expected);
                    prop_assert!(table.next_deadline().is_none_or(|at| at > Nanos::new(now)));
                }
            }
            prop_assert_eq!(table.in_use() as usize, live.len());
            prop_assert_eq!(table.has_due(), live.values().any(|known| known.state == OpState::Due));
            for op in table.iter() {
                let known = live[&op.number];
                prop_assert_eq!((op.packet, op.tries, op.state), (known.packet, known.tries, known.state));
            }
        }
    }
}

#[test]
fn e1_13_op_table_slot_reused_immediately_number_after_delay() {
    // One slot and two generation bits: numbers 0, 1 | 2, 3 in two halves.
    let mut table = table(1, 2);
    let mut use_at = |now: u64| {
        let number = table.take(Nanos::new(now), 0, 0, Nanos::MAX)?;
        table.acknowledge(Nanos::new(now), number);
        Some(number.generation())
    };
    assert_eq!([use_at(0), use_at(0), use_at(5), use_at(6)], [Some(0), Some(1), Some(2), Some(3)]);
    // Numbers 0 and 1 were released at 0.
    assert_eq!([use_at(7), use_at(199)], [None, None]);
    assert_eq!([use_at(200), use_at(200)], [Some(0), Some(1)]);
    // Numbers 2 and 3 were released by 6.
    assert_eq!(use_at(205), None);
    assert_eq!(use_at(206), Some(2));
}

#[test]
fn op_table_16_generation_bits_never_wait_at_link_rate() {
    // 256 entries in turn, one packet every 10 ns: far beyond any link, and no slot is ever in its reuse delay.
    let mut config = OpTableConfig::default();
    config.packet_lifetime = Nanos::from_millis(10);
    let mut table = OpTable::new(config).unwrap();
    for n in 0..2_000_000u64 {
        let now = Nanos::new(n * 10);
        let number = table.take(now, 0, 0, Nanos::MAX).unwrap();
        table.acknowledge(now, number);
        assert_eq!(table.in_reuse_delay(), 0);
    }
}

#[test]
fn op_table_invalid_sizes_are_refused() {
    let mut config = OpTableConfig::default();
    config.entries = 0;
    assert_eq!(OpTable::new(config).unwrap_err(), OpTableError::Entries { found: 0 });
    config.entries = 1;
    config.generation_bits = 17;
    assert_eq!(OpTable::new(config).unwrap_err(), OpTableError::GenerationBits { found: 17 });
}

/// Each number has its reuse delay after its second use: with one bit, a release crosses into the other half of the generations.
#[test]
fn op_table_next_reusable_is_earliest() {
    let mut table = table(2, 1);
    assert_eq!(table.next_reusable(), None);
    for (taken, released) in [(0, 10), (20, 30), (40, 50), (60, 70)] {
        let number = table.take(Nanos::new(taken), 0, 0, Nanos::MAX).unwrap();
        table.acknowledge(Nanos::new(released), number).unwrap();
    }
    assert_eq!((table.in_reuse_delay(), table.next_reusable()), (2, Some(Nanos::new(10 + REUSE_DELAY))));
    assert_eq!(table.available(Nanos::new(10 + REUSE_DELAY)), 1);
    assert_eq!(table.next_reusable(), Some(Nanos::new(30 + REUSE_DELAY)));
    assert_eq!(table.available(Nanos::new(30 + REUSE_DELAY)), 2);
    assert_eq!(table.next_reusable(), None);
}

fn hash_of(table: &OpTable) -> u64 {
    let mut hasher = DefaultHasher::new();
    table.hash(&mut hasher);
    hasher.finish()
}

#[test]
fn hash_tables_with_different_entries_differ() {
    // Time, segment, packet and deadline.
    let entry = (Nanos::new(1), 2, 3, Nanos::new(4));
    let filled = |(now, segment, packet, deadline)| {
        let mut table = table(2, 16);
        table.take(now, segment, packet, deadline).unwrap();
        hash_of(&table)
    };
    assert_eq!(filled(entry), filled(entry));
    let others = [
        (Nanos::new(9), 2, 3, Nanos::new(4)),
        (Nanos::new(1), 9, 3, Nanos::new(4)),
        (Nanos::new(1), 2, 9, Nanos::new(4)),
        (Nanos::new(1), 2, 3, Nanos::new(9)),
    ];
    for other in others {
        assert_ne!(filled(entry), filled(other), "{other:?}");
    }
}

/// The earlier content of a free entry is not part of the state.
#[test]
fn hash_former_content_of_free_entries_ignored() {
    let emptied = |segment| {
        let mut table = table(2, 16);
        let number = table.take(Nanos::new(1), segment, 3, Nanos::new(4)).unwrap();
        table.acknowledge(Nanos::new(2), number).unwrap();
        hash_of(&table)
    };
    assert_eq!(emptied(2), emptied(9));
}
