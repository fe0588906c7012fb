//! Messages of a few packets, and all faults that can happen to them.

use crate::scheme::explore::{FaultBudget, SearchResult, explore};
use crate::scheme::literal_receivers::{self as literal, LiteralVariant};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::receiver_counter::CountRule;
use fpga_protocol::scheme::{
    MessageReceiver, MessageSender, adaptive_window, mapping, receiver_counter, receiver_window, selective,
    sender_window,
};
use std::hash::Hash;

const ROUND_TRIP: Nanos = Nanos::new(1000);
/// Maximum number of states, above that of any case here; a search of this size takes some ten megabytes.
const MAX_STATES: usize = 100_000_000;

const fn fault_budget(losses: u8, copies: u8, early: u8) -> FaultBudget {
    FaultBudget { losses, copies, early }
}

/// Two losses and a copy, which the specification requires; includes all smaller budgets.
const LOSSES_AND_A_COPY: FaultBudget = fault_budget(2, 1, 0);
/// The other combinations of two or three faults.
const OTHERS: [FaultBudget; 3] = [fault_budget(1, 2, 0), fault_budget(1, 1, 1), fault_budget(0, 0, 2)];
const ALL: [FaultBudget; 4] = [LOSSES_AND_A_COPY, OTHERS[0], OTHERS[1], OTHERS[2]];

/// Searches, asserts that no invariant is violated, and returns the number of states.
fn assert_no_violation<S, R>(
    name: &str,
    count: u32,
    mischiefs: &[FaultBudget],
    make: impl Fn() -> (S, R),
) -> usize
where
    S: MessageSender + Clone + Eq + Hash,
    R: MessageReceiver + Clone + Eq + Hash,
{
    let mut sum = 0;
    for &mischief in mischiefs {
        let (sender, receiver) = make();
        let found = explore(sender, receiver, count, mischief, MAX_STATES);
        let SearchResult { states, finished, .. } = found;
        assert!(states > 0 && finished > 0, "{name} {count} {mischief:?}: {found:?}");
        assert_eq!(found.faults(), [0; 5], "{name} {count} {mischief:?}: {found:?}");
        sum += states;
    }
    sum
}

/// Searches one case of a scheme, with one window or one counting rule, and prints the number of states.
fn search<S, R>(name: &str, count: u32, mischief: FaultBudget, make: impl Fn() -> (S, R)) -> usize
where
    S: MessageSender + Clone + Eq + Hash,
    R: MessageReceiver + Clone + Eq + Hash,
{
    let states = assert_no_violation(name, count, &[mischief], make);
    let FaultBudget { losses, copies, early } = mischief;
    println!(
        "{name}, {count} packets, {losses} losses, {copies} copies, {early} early timers: {states} states"
    );
    states
}

/// Receiver windows that tell their sender nothing, and with credits; constant timers of zero length.
fn receiver_windows(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let zero = receiver_window::ReceiverWindowConfig {
        adaptive: false,
        ..receiver_window::ReceiverWindowConfig::new(Nanos::ZERO)
    };
    let credit = receiver_window::ReceiverWindowConfig { credit: true, ..zero };
    let kinds = [("without credit", zero), ("credit", credit)];
    let search = |(name, config): &(&str, receiver_window::ReceiverWindowConfig)| {
        let config = receiver_window::ReceiverWindowConfig { window, ..*config };
        search(&format!("receiver window {window}, {name}"), count, mischief, || {
            let sender = receiver_window::Sender::new(config, count, Nanos::ZERO);
            (sender, receiver_window::Receiver::new(config, Nanos::ZERO))
        })
    };
    // A window beyond the message limits nothing.
    let kinds = &kinds[..if window <= count { 2 } else { 1 }];
    kinds.iter().map(search).sum()
}

/// Sender windows that retransmit what is unacknowledged, and in the literal form of source 004; constant timers.
fn sender_windows(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = sender_window::SenderWindowConfig {
        window,
        adaptive: false,
        ..sender_window::SenderWindowConfig::new(Nanos::ZERO)
    };
    let literal = sender_window::SenderWindowConfig {
        window,
        ..sender_window::SenderWindowConfig::literal(Nanos::ZERO)
    };
    let search = |(name, config): (&str, sender_window::SenderWindowConfig)| {
        search(&format!("{name} {window}"), count, mischief, || {
            (sender_window::Sender::new(config, count), sender_window::Receiver::new(count))
        })
    };
    search(("sender window", config)) + search(("sender window, literal", literal))
}

fn receiver_counters(count: u32, mischief: FaultBudget) -> usize {
    let config = receiver_counter::ReceiverCounterConfig::new(Nanos::ZERO);
    search("receiver counter", count, mischief, || {
        (receiver_counter::Sender::new(config, count), receiver_counter::Receiver::new(config, count))
    })
}

fn reporting_counters(count: u32, mischief: FaultBudget) -> usize {
    let config = receiver_counter::ReceiverCounterConfig {
        reports: true,
        ..receiver_counter::ReceiverCounterConfig::new(Nanos::ZERO)
    };
    search("receiver counter with reports", count, mischief, || {
        (receiver_counter::Sender::new(config, count), receiver_counter::Receiver::new(config, count))
    })
}

fn adaptive_windows(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = adaptive_window::AdaptiveWindowConfig {
        window,
        ..adaptive_window::AdaptiveWindowConfig::new(ROUND_TRIP)
    };
    search(&format!("adaptive window {window}"), count, mischief, || {
        let receiver = adaptive_window::Receiver::new(mapping::WIDTH, Some(ROUND_TRIP));
        (adaptive_window::Sender::new(config, count), receiver)
    })
}

fn selectives(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = selective::SelectiveConfig { window, ..selective::SelectiveConfig::new(ROUND_TRIP) };
    search(&format!("selective {window}"), count, mischief, || {
        (selective::Sender::new(config, count), selective::Receiver::new(config.window.max(2), None))
    })
}

/// As [`every`], with the windows of 1 to the length of each message: a longer one is equivalent to one of the message's length, see
/// `search_window_longer_than_message_equals_message_length`.
fn every_distinct_window(
    counts: impl Iterator<Item = u32>,
    mischiefs: &[FaultBudget],
    search: impl Fn(u32, u32, FaultBudget) -> usize,
) {
    for count in counts {
        every(1..=count, count..=count, mischiefs, &search);
    }
}

/// Searches all windows with all of these messages and budgets; returns the number of states.
fn every(
    windows: impl Iterator<Item = u32> + Clone,
    counts: impl Iterator<Item = u32> + Clone,
    mischiefs: &[FaultBudget],
    search: impl Fn(u32, u32, FaultBudget) -> usize,
) -> usize {
    let mut sum = 0;
    for count in counts {
        for window in windows.clone() {
            sum += mischiefs.iter().map(|mischief| search(window, count, *mischief)).sum::<usize>();
        }
    }
    println!("{sum} states in all");
    sum
}

#[test]
fn search_receiver_window_keeps_invariants() {
    every(1..=4, 1..=3, &ALL, receiver_windows);
    every_distinct_window(4..=4, &ALL[..1], receiver_windows);
}

#[test]
fn search_sender_window_keeps_invariants() {
    every(1..=4, 1..=3, &ALL, sender_windows);
    every_distinct_window(4..=4, &ALL[..1], sender_windows);
}

#[test]
fn search_receiver_counter_keeps_invariants() {
    every(1..=1, 1..=4, &ALL, |_, count, mischief| receiver_counters(count, mischief));
    every(1..=1, 1..=3, &ALL, |_, count, mischief| reporting_counters(count, mischief));
}

#[test]
#[ignore = "long: 9 s: up to seven packets"]
fn search_receiver_window_up_to_seven_packets() {
    every(1..=8, 1..=3, &ALL, receiver_windows);
    every_distinct_window(4..=4, &ALL, receiver_windows);
    every_distinct_window(5..=6, &ALL[..1], receiver_windows);
    every(1..=3, 7..=7, &ALL[..1], receiver_windows);
    every(8..=8, 7..=7, &ALL[..1], receiver_windows);
}

#[test]
#[ignore = "long: 3 s: up to six packets"]
fn search_sender_window_up_to_six_packets() {
    every(1..=8, 1..=3, &ALL, sender_windows);
    every_distinct_window(4..=4, &ALL, sender_windows);
    every_distinct_window(5..=6, &ALL[..1], sender_windows);
}

#[test]
#[ignore = "long: 5 s: up to seven packets"]
fn search_receiver_counter_up_to_seven_packets() {
    every(1..=1, 5..=7, &ALL[..1], |_, count, mischief| receiver_counters(count, mischief));
    every(1..=1, 4..=5, &ALL[..1], |_, count, mischief| reporting_counters(count, mischief));
}

#[test]
fn search_counter_without_identity_counts_copy_as_other_packet() {
    let config = receiver_counter::ReceiverCounterConfig {
        counting: CountRule::CountOnly,
        ..receiver_counter::ReceiverCounterConfig::new(Nanos::ZERO)
    };
    let ends = || (receiver_counter::Sender::new(config, 3), receiver_counter::Receiver::new(config, 3));
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, fault_budget(1, 1, 0), MAX_STATES);
    assert!(found.false_completions > 0 && found.bad_writes > 0, "{found:?}");
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, fault_budget(2, 0, 0), MAX_STATES);
    assert_eq!(found.faults(), [0; 5], "{found:?}");
}

/// Checks the search itself: with the literal readings it finds the failures that [`literal`](crate::scheme::literal) counts, and it finds the
/// double write of a receiver that forgets.
#[test]
fn search_finds_known_defects() {
    let config = receiver_window::ReceiverWindowConfig::new(Nanos::ZERO);
    let nothing_wrong = fault_budget(0, 0, 0);
    let found =
        [LiteralVariant::Document000, LiteralVariant::Document000BaseBit, LiteralVariant::Document004].map(
            |reading| {
                let sender = receiver_window::Sender::new(config, 6, Nanos::ZERO);
                explore(sender, literal::Receiver::new(reading, 128), 6, nothing_wrong, MAX_STATES)
            },
        );
    let [first, base_bit, second] = found;
    assert!(first.hangs > 0 && first.finished == 0, "{first:?}");
    assert!(base_bit.hangs > 0 && base_bit.finished > 0, "{base_bit:?}");
    assert!(second.hangs > 0 && second.false_completions > 0, "{second:?}");
    // A counter that does not distinguish its rounds writes packets again.
    let rounds = receiver_counter::ReceiverCounterConfig {
        counting: CountRule::CountOnly,
        ..receiver_counter::ReceiverCounterConfig::new(Nanos::ZERO)
    };
    let ends = (receiver_counter::Sender::new(rounds, 3), receiver_counter::Receiver::new(rounds, 3));
    let found = explore(ends.0, ends.1, 3, fault_budget(0, 1, 0), MAX_STATES);
    assert!(found.bad_writes > 0, "{found:?}");
}

#[test]
fn search_adaptive_window_keeps_invariants() {
    every(1..=3, 1..=3, &ALL, adaptive_windows);
}

/// A window longer than the message is equivalent to one of the message's length, so windows of 8 need no search with seven packets.
#[test]
fn search_window_longer_than_message_equals_message_length() {
    for mischief in [LOSSES_AND_A_COPY, OTHERS[0]] {
        for search in [adaptive_windows, selectives] {
            // The sender's memory has the same number of slots, too: a power of two.
            assert_eq!(search(3, 3, mischief), search(4, 3, mischief));
            assert_eq!(search(3, 3, mischief), search(8, 3, mischief));
        }
        // Both kinds of the sender window; of the receiver window, only the kind that is searched with a longer window.
        assert_eq!(sender_windows(3, 3, mischief), sender_windows(4, 3, mischief));
        assert_eq!(sender_windows(3, 3, mischief), sender_windows(8, 3, mischief));
        assert_eq!(receiver_windows(4, 3, mischief), receiver_windows(8, 3, mischief));
    }
}

#[test]
fn search_selective_keeps_invariants() {
    every(1..=3, 1..=2, &ALL, selectives);
    every(1..=3, 3..=3, &ALL[..1], selectives);
}

#[test]
#[ignore = "long: 1 s: three packets, other faults"]
fn search_selective_three_packets() {
    every(1..=3, 3..=3, &OTHERS, selectives);
}

// The specification requires messages of seven packets, two losses and a copy, windows of 1 to 8. A plain `cargo test` searches messages
// of up to four packets; the ignored tests search seven packets, and larger budgets.

#[test]
#[ignore = "long: 30 s: seven packets"]
fn search_sender_window_seven_packets() {
    every(1..=8, 7..=7, &ALL[..1], sender_windows);
}

#[test]
#[ignore = "long: 300 s: 7,183,381 states of seven packets with a window of 6, a third of that with each one less"]
fn search_adaptive_window_four_to_seven_packets() {
    every(1..=6, 4..=7, &[LOSSES_AND_A_COPY], adaptive_windows);
}

#[test]
#[ignore = "long: 300 s: 8,383,617 states of seven packets with a window of 6, a third of that with each one less"]
fn search_selective_four_to_seven_packets() {
    every(1..=6, 4..=7, &[LOSSES_AND_A_COPY], selectives);
}

// All seven packets in flight: three times as many states again, because every order in which answers can be in flight is a separate
// state. Each scheme has its own test, so that they can run in parallel.

#[test]
#[ignore = "long: 300 s: 18,201,291 states"]
fn search_adaptive_window_seven_packets_in_flight() {
    every(7..=7, 7..=7, &[LOSSES_AND_A_COPY], adaptive_windows);
}

#[test]
#[ignore = "long: 300 s: 21,071,325 states"]
fn search_selective_seven_packets_in_flight() {
    every(7..=7, 7..=7, &[LOSSES_AND_A_COPY], selectives);
}

#[test]
#[ignore = "long: 120 s: seven packets, larger fault budgets"]
fn search_seven_packets_larger_fault_budget() {
    const MORE: [FaultBudget; 2] = [fault_budget(2, 2, 0), fault_budget(1, 1, 1)];
    every(1..=8, 7..=7, &MORE, receiver_windows);
    every(1..=8, 7..=7, &MORE, sender_windows);
    every(1..=1, 7..=7, &MORE, |_, count, mischief| receiver_counters(count, mischief));
}
