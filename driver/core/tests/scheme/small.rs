//! Messages of a few packets, and everything that can happen to them.

use crate::explore::{Found, Mischief, explore};
use fpga_core::Nanos;
use fpga_core::scheme::receiver_counter::Counting;
use fpga_core::scheme::{
    Incoming, Outgoing, adaptive_window, mapping, receiver_counter, receiver_window, selective, sender_window,
};
use std::hash::Hash;

const ROUND_TRIP: Nanos = Nanos::new(1000);
/// More states than any of these cases has: some ten megabytes.
const MOST: usize = 5_000_000;

const fn mischief(losses: u8, copies: u8, early: u8) -> Mischief {
    Mischief { losses, copies, early }
}

/// All combinations of up to two losses, copies or early timers, and some of three.
const ALL: [Mischief; 8] = [
    mischief(2, 0, 0),
    mischief(1, 1, 0),
    mischief(0, 2, 0),
    mischief(1, 0, 1),
    mischief(0, 1, 1),
    mischief(0, 0, 2),
    mischief(2, 1, 0),
    mischief(1, 1, 1),
];

/// Returns the states that were looked at.
fn all_is_well<S, R>(name: &str, count: u32, mischiefs: &[Mischief], make: impl Fn() -> (S, R)) -> usize
where
    S: Outgoing + Clone + Eq + Hash,
    R: Incoming + Clone + Eq + Hash,
{
    let mut sum = 0;
    for &mischief in mischiefs {
        let (sender, receiver) = make();
        let found = explore(sender, receiver, count, mischief, MOST * 20);
        let Found { states, finished, hangs, false_completions, bad_writes } = found;
        assert!(states > 0 && finished > 0, "{name} {count} {mischief:?}: {found:?}");
        assert_eq!((hangs, false_completions, bad_writes), (0, 0, 0), "{name} {count} {mischief:?}");
        sum += states;
    }
    sum
}

/// Windows of 1 to 8 with messages of these `counts`; timers of no length, and packets beyond the window asked for every time
/// or once.
fn receiver_windows(counts: impl Iterator<Item = u32> + Clone, mischiefs: &[Mischief]) -> usize {
    let mut sum = 0;
    let zero = receiver_window::Config { remembered: 8, ..receiver_window::Config::new(Nanos::ZERO) };
    let once = receiver_window::Config { ask_again: Nanos::new(1), ..zero };
    let credit = receiver_window::Config { credit: true, ..zero };
    for count in counts {
        for window in 1..=8 {
            for (name, config) in [("every time", zero), ("once", once), ("credit", credit)] {
                // Nothing is beyond the window where the message is not longer: the three are the same.
                if window >= count && config == once {
                    continue;
                }
                let config = receiver_window::Config { window, ..config };
                let states =
                    all_is_well(&format!("receiver window {window}, {name}"), count, mischiefs, || {
                        let sender = receiver_window::Sender::new(config, count, Nanos::ZERO);
                        (sender, receiver_window::Receiver::new(config, Nanos::ZERO))
                    });
                println!("window {window}, {count} packets, {name}: {states} states");
                sum += states;
            }
        }
    }
    println!("{sum} states in all");
    sum
}

#[test]
fn receiver_window() {
    receiver_windows(1..=4, &ALL);
    receiver_windows(5..=6, &ALL[..3]);
}

#[test]
#[ignore = "a quarter of a minute: 3.8 million states"]
fn receiver_window_of_seven_packets() {
    receiver_windows(7..=7, &ALL[..3]);
}

#[test]
#[ignore = "a minute: 6.8 million states"]
fn receiver_window_of_five_and_six_packets_and_more_trouble() {
    receiver_windows(5..=6, &ALL[3..]);
    receiver_windows(5..=5, &[mischief(2, 2, 0)]);
}

#[test]
fn sender_window() {
    for window in 1..=5 {
        for count in 1..=4 {
            let config = sender_window::Config { window, ..sender_window::Config::new(Nanos::ZERO) };
            all_is_well(&format!("sender window {window}"), count, &ALL, || {
                (sender_window::Sender::new(config, count), sender_window::Receiver::new(count))
            });
        }
    }
}

/// As many packets as the receiver window is searched with. Returns the states that were looked at.
fn sender_windows(counts: impl Iterator<Item = u32> + Clone, mischiefs: &[Mischief]) -> usize {
    let mut sum = 0;
    for count in counts {
        for window in 1..=8 {
            let config = sender_window::Config { window, ..sender_window::Config::new(Nanos::ZERO) };
            let states = all_is_well(&format!("sender window {window}"), count, mischiefs, || {
                (sender_window::Sender::new(config, count), sender_window::Receiver::new(count))
            });
            println!("sender window {window}, {count} packets: {states} states");
            sum += states;
        }
    }
    println!("sender window: {sum} states in all");
    sum
}

#[test]
#[ignore = "some seconds: 1,775,298 states"]
fn sender_window_of_five_to_seven_packets() {
    sender_windows(5..=7, &ALL[..3]);
}

#[test]
fn receiver_counter() {
    let config = receiver_counter::Config::new(Nanos::ZERO);
    for count in 1..=4 {
        all_is_well("receiver counter", count, &ALL, || {
            (receiver_counter::Sender::new(config, count), receiver_counter::Receiver::new(config, count))
        });
    }
}

#[test]
fn a_bare_counter_takes_a_copy_for_another_packet() {
    let config =
        receiver_counter::Config { counting: Counting::Bare, ..receiver_counter::Config::new(Nanos::ZERO) };
    let ends = || (receiver_counter::Sender::new(config, 3), receiver_counter::Receiver::new(config, 3));
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, mischief(1, 1, 0), MOST);
    assert!(found.false_completions > 0, "{found:?}");
    let (sender, receiver) = ends();
    let found = explore(sender, receiver, 3, mischief(2, 0, 0), MOST);
    assert_eq!((found.false_completions, found.hangs), (0, 0), "{found:?}");
}

/// Losses and copies that are tried together where the sender knows delays; more packets leave room for less.
fn fewer(count: u32) -> &'static [Mischief] {
    match count {
        0..=2 => &ALL,
        _ => &ALL[..5],
    }
}

/// Windows of up to 6; those beyond the message are as wide as it. Seven packets at once under two losses were not searched to the end:
/// each window more is three times the states.
fn adaptive_windows(counts: impl Iterator<Item = u32>, mischief: Mischief) {
    let mut sum = 0;
    for count in counts {
        for window in 1..=count.min(6) {
            let config = adaptive_window::Config { window, ..adaptive_window::Config::new(ROUND_TRIP) };
            let states = all_is_well(&format!("adaptive window {window}"), count, &[mischief], || {
                let receiver = adaptive_window::Receiver::new(mapping::WIDTH, Some(ROUND_TRIP));
                (adaptive_window::Sender::new(config, count), receiver)
            });
            println!("adaptive window {window}, {count} packets: {states} states");
            sum += states;
        }
    }
    println!("adaptive window, {mischief:?}: {sum} states in all");
}

#[test]
#[ignore = "a minute: 3,099,238 states"]
fn adaptive_window_of_four_to_seven_packets_and_two_losses() {
    adaptive_windows(4..=7, ALL[0]);
}

#[test]
#[ignore = "half a minute: 591,262 states"]
fn adaptive_window_of_four_and_five_packets_and_a_loss_and_a_copy() {
    adaptive_windows(4..=5, ALL[1]);
}

#[test]
#[ignore = "some seconds"]
fn adaptive_window_of_four_packets_and_two_copies() {
    adaptive_windows(4..=4, ALL[2]);
}

#[test]
fn adaptive_window() {
    for window in [1, 2, 3] {
        for count in 1..=3 {
            let config = adaptive_window::Config { window, ..adaptive_window::Config::new(ROUND_TRIP) };
            all_is_well(&format!("adaptive window {window}"), count, fewer(count), || {
                let receiver = adaptive_window::Receiver::new(mapping::WIDTH, Some(ROUND_TRIP));
                (adaptive_window::Sender::new(config, count), receiver)
            });
        }
    }
}

/// The same for the selective scheme.
fn selectives(counts: impl Iterator<Item = u32>, mischief: Mischief) {
    let mut sum = 0;
    for count in counts {
        for window in 1..=count {
            let config = selective::Config { window, ..selective::Config::new(ROUND_TRIP) };
            let states = all_is_well(&format!("selective {window}"), count, &[mischief], || {
                (selective::Sender::new(config, count), selective::Receiver::new(config.window.max(2), None))
            });
            println!("selective {window}, {count} packets: {states} states");
            sum += states;
        }
    }
    println!("selective, {mischief:?}: {sum} states in all");
}

#[test]
#[ignore = "a minute: 8,254,037 states"]
fn selective_of_four_to_seven_packets_and_two_losses() {
    selectives(4..=7, ALL[0]);
}

#[test]
#[ignore = "half a minute: 686,387 states"]
fn selective_of_four_and_five_packets_and_a_loss_and_a_copy() {
    selectives(4..=5, ALL[1]);
}

#[test]
#[ignore = "a minute: some 3 million states"]
fn selective_of_four_and_five_packets_and_two_copies() {
    selectives(4..=5, ALL[2]);
}

#[test]
fn selective() {
    for window in [1, 2, 3] {
        for count in 1..=3 {
            let config = selective::Config { window, ..selective::Config::new(ROUND_TRIP) };
            all_is_well(&format!("selective {window}"), count, fewer(count), || {
                (selective::Sender::new(config, count), selective::Receiver::new(config.window.max(2), None))
            });
        }
    }
}
