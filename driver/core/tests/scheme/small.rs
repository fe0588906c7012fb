//! Messages of a few packets, and everything that can happen to them.

use crate::explore::{Found, Mischief, explore};
use fpga_core::Nanos;
use fpga_core::scheme::receiver_counter::Counting;
use fpga_core::scheme::{
    Incoming, Outgoing, adaptive_window, receiver_counter, receiver_window, selective, sender_window,
};
use std::hash::Hash;

const ROUND_TRIP: Nanos = Nanos::new(1000);

/// Losses and copies that are tried together; more packets leave room for less.
fn mischiefs(count: u32) -> Vec<Mischief> {
    let all = [(2, 0, 0), (1, 1, 0), (0, 2, 0), (1, 0, 1), (0, 1, 1), (2, 1, 0), (1, 1, 1)];
    let most = match count {
        0..=2 => 7,
        3 => 5,
        4 => 3,
        _ => 1,
    };
    all[..most].iter().map(|&(losses, copies, early)| Mischief { losses, copies, early }).collect()
}

fn all_is_well<S, R>(name: &str, count: u32, make: impl Fn() -> (S, R))
where
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    for mischief in mischiefs(count) {
        let (sender, receiver) = make();
        let found = explore(sender, receiver, count, mischief);
        println!("{name}, {count} packets, {mischief:?}: {found:?}");
        let Found { states, finished, hangs, false_completions, bad_writes } = found;
        assert!(states > 0 && finished > 0, "{name} {count} {mischief:?}: {found:?}");
        assert_eq!((hangs, false_completions, bad_writes), (0, 0, 0), "{name} {count} {mischief:?}");
    }
}

fn receiver_windows(credit: bool, most: u32) {
    for window in 1..=8 {
        for count in 1..=most {
            let config =
                receiver_window::Config { window, credit, ..receiver_window::Config::new(ROUND_TRIP) };
            all_is_well(&format!("receiver window {window}, credit {credit}"), count, || {
                let sender = receiver_window::Sender::new(config, count, Nanos::ZERO);
                (sender, receiver_window::Receiver::new(config, Nanos::ZERO))
            });
        }
    }
}

#[test]
fn receiver_window() {
    receiver_windows(false, 4);
}

#[test]
fn receiver_window_with_credits() {
    receiver_windows(true, 4);
}

#[test]
fn sender_window() {
    for window in 1..=5 {
        for count in 1..=4 {
            let config = sender_window::Config { window, ..sender_window::Config::new(ROUND_TRIP) };
            all_is_well(&format!("sender window {window}"), count, || {
                (sender_window::Sender::new(config, count), sender_window::Receiver::new(count))
            });
        }
    }
}

#[test]
fn receiver_counter() {
    let config = receiver_counter::Config::new(ROUND_TRIP);
    for count in 1..=4 {
        all_is_well("receiver counter", count, || {
            (receiver_counter::Sender::new(config, count), receiver_counter::Receiver::new(config, count))
        });
    }
}

#[test]
fn a_bare_counter_takes_a_copy_for_another_packet() {
    let config =
        receiver_counter::Config { counting: Counting::Bare, ..receiver_counter::Config::new(ROUND_TRIP) };
    let ends = || (receiver_counter::Sender::new(config, 3), receiver_counter::Receiver::new(config, 3));
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, Mischief { losses: 1, copies: 1, early: 0 });
    assert!(found.false_completions > 0, "{found:?}");
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, Mischief { losses: 2, copies: 0, early: 0 });
    assert_eq!((found.false_completions, found.hangs), (0, 0), "{found:?}");
}

#[test]
fn adaptive_window() {
    for window in [1, 2, 3] {
        for count in 1..=3 {
            let config = adaptive_window::Config { window, ..adaptive_window::Config::new(ROUND_TRIP) };
            all_is_well(&format!("adaptive window {window}"), count, || {
                let receiver = adaptive_window::Receiver::new(Some(ROUND_TRIP));
                (adaptive_window::Sender::new(config, count), receiver)
            });
        }
    }
}

#[test]
fn selective() {
    for window in [1, 2, 3] {
        for count in 1..=3 {
            let config = selective::Config { window, ..selective::Config::new(ROUND_TRIP) };
            all_is_well(&format!("selective {window}"), count, || {
                (selective::Sender::new(config, count), selective::Receiver::new(None))
            });
        }
    }
}
