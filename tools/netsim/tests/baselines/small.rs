//! Messages of a few packets, and all faults that can happen to them.

use super::explore::{FaultBudget, explore};
use super::search::{ALL, MAX_STATES, every, every_distinct_window, fault_budget, search};
use fpga_netsim::scheme::receiver_counter::{self, CountRule, ReceiverCounterConfig};
use fpga_netsim::scheme::sender_window::{self, SenderWindowConfig};
use fpga_protocol::Nanos;

/// Sender windows that retransmit what is unacknowledged, and in the literal form of source 004; constant timers.
fn sender_windows(window: u32, count: u32, mischief: FaultBudget) -> usize {
    let config = SenderWindowConfig { window, adaptive: false, ..SenderWindowConfig::new(Nanos::ZERO) };
    let literal = SenderWindowConfig { window, ..SenderWindowConfig::literal(Nanos::ZERO) };
    let search = |(name, config): (&str, SenderWindowConfig)| {
        search(&format!("{name} {window}"), count, false, mischief, || {
            (sender_window::Sender::new(config, count), sender_window::Receiver::new(count))
        })
    };
    search(("sender window", config)) + search(("sender window, literal", literal))
}

fn receiver_counters(count: u32, mischief: FaultBudget) -> usize {
    let config = ReceiverCounterConfig::new(Nanos::ZERO);
    search("receiver counter", count, true, mischief, || {
        (receiver_counter::Sender::new(config, count), receiver_counter::Receiver::new(config, count))
    })
}

#[test]
fn search_sender_window_keeps_invariants() {
    every(1..=4, 1..=3, &ALL, sender_windows);
    every_distinct_window(4..=4, &ALL[..1], sender_windows);
}

#[test]
fn search_receiver_counter_keeps_invariants() {
    every(1..=1, 1..=4, &ALL, |_, count, mischief| receiver_counters(count, mischief));
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
}

#[test]
fn search_counter_without_identity_counts_copy_as_other_packet() {
    let config =
        ReceiverCounterConfig { counting: CountRule::CountOnly, ..ReceiverCounterConfig::new(Nanos::ZERO) };
    let ends = || (receiver_counter::Sender::new(config, 3), receiver_counter::Receiver::new(config, 3));
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, true, fault_budget(1, 1, 0), MAX_STATES);
    assert!(found.false_completions > 0 && found.bad_writes > 0, "{found:?}");
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, true, fault_budget(2, 0, 0), MAX_STATES);
    assert_eq!(found.faults(), [0; 5], "{found:?}");
}

#[test]
#[ignore = "long: 30 s: seven packets"]
fn search_sender_window_seven_packets() {
    every(1..=8, 7..=7, &ALL[..1], sender_windows);
}

/// A window longer than the message is equivalent to one of the message's length.
#[test]
fn search_sender_window_longer_than_message_equals_message_length() {
    for mischief in &ALL[..2] {
        assert_eq!(sender_windows(3, 3, *mischief), sender_windows(4, 3, *mischief));
        assert_eq!(sender_windows(3, 3, *mischief), sender_windows(8, 3, *mischief));
    }
}

#[test]
#[ignore = "long: 900 s: seven packets, larger fault budgets"]
fn search_baselines_seven_packets_larger_fault_budget() {
    const MORE: [FaultBudget; 2] = [fault_budget(2, 2, 0), fault_budget(1, 1, 1)];
    every(1..=8, 7..=7, &MORE, sender_windows);
    every(1..=1, 7..=7, &MORE, |_, count, mischief| receiver_counters(count, mischief));
}
