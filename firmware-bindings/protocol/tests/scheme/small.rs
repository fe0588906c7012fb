//! Messages of a few packets, and all faults that can happen to them.

use crate::scheme::explore::{FaultBudget, explore};
use crate::scheme::literal_receivers::{self as literal, LiteralVariant};
use crate::scheme::search::{
    ALL, LOSSES_AND_A_COPY, MAX_STATES, OTHERS, every, every_distinct_window, fault_budget, search,
};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::{adaptive_window, mapping, receiver_window, selective};

const ROUND_TRIP: Nanos = Nanos::new(1000);

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
        search(&format!("receiver window {window}, {name}"), count, false, mischief, || {
            let sender = receiver_window::Sender::new(config, count, Nanos::ZERO);
            (sender, receiver_window::Receiver::new(config, Nanos::ZERO))
        })
    };
    // A window beyond the message limits nothing.
    let kinds = &kinds[..if window <= count { 2 } else { 1 }];
    kinds.iter().map(search).sum()
}

fn adaptive_windows(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = adaptive_window::AdaptiveWindowConfig {
        window,
        ..adaptive_window::AdaptiveWindowConfig::new(ROUND_TRIP)
    };
    search(&format!("adaptive window {window}"), count, false, mischief, || {
        let receiver = adaptive_window::Receiver::new(mapping::WIDTH, Some(ROUND_TRIP));
        (adaptive_window::Sender::new(config, count), receiver)
    })
}

fn selectives(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = selective::SelectiveConfig { window, ..selective::SelectiveConfig::new(ROUND_TRIP) };
    search(&format!("selective {window}"), count, false, mischief, || {
        (selective::Sender::new(config, count), selective::Receiver::new(config.window.max(2), None))
    })
}

#[test]
fn search_receiver_window_keeps_invariants() {
    every(1..=4, 1..=3, &ALL, receiver_windows);
    every_distinct_window(4..=4, &ALL[..1], receiver_windows);
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

/// Checks the search itself: with the literal readings it finds the failures that [`literal`](crate::scheme::literal) counts.
#[test]
fn search_finds_known_defects() {
    let config = receiver_window::ReceiverWindowConfig::new(Nanos::ZERO);
    let nothing_wrong = fault_budget(0, 0, 0);
    let found =
        [LiteralVariant::Document000, LiteralVariant::Document000BaseBit, LiteralVariant::Document004].map(
            |reading| {
                let sender = receiver_window::Sender::new(config, 6, Nanos::ZERO);
                explore(sender, literal::Receiver::new(reading, 128), 6, false, nothing_wrong, MAX_STATES)
            },
        );
    let [first, base_bit, second] = found;
    assert!(first.hangs > 0 && first.finished == 0, "{first:?}");
    assert!(base_bit.hangs > 0 && base_bit.finished > 0, "{base_bit:?}");
    assert!(second.hangs > 0 && second.false_completions > 0, "{second:?}");
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
        // Only the kind that is searched with a longer window.
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
}
