//! Search of all reachable states of sender, receiver and the network between them.
//!
//! The search is breadth-first over states, not sequences. At any moment every packet and answer in flight may be delivered, lost or
//! duplicated, packets may lose their payload (be trimmed), and the sender may restart, within a budget of each. When nothing is in flight, time passes until a timer expires at either
//! end; if the budget allows it, a few timers also expire while packets are in flight. Packets carry the sender's values, including its
//! oldest live transfer. A state that was seen before is not followed again. States are distinguished by a 128-bit hash: among ten
//! million, two different ones have the same hash with a probability of 10^-25.
//!
//! Invariants of every state: bytes are right and inside the range, written once, none after the operation's completion, and none of an
//! earlier incarnation of a sender over those of a later one. An operation is complete at the receiver exactly when all of it is in
//! memory, and at the sender not before. Every path ends: each transfer of the sender's last incarnation is completed at both ends,
//! reported once and whole in memory, those of earlier incarnations are completed or expired, and all tables are empty. No path is a
//! cycle: a delivery without a retransmission reduces the packets in flight, and a retransmission increments a try count.
//!
//! By default small spaces are searched. The larger ones, with their counts, run with `cargo test -p fpga-protocol exhaustive --
//! --ignored --nocapture` (some minutes).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test helper that cannot continue may as well stop the test"
)]

mod case;
use crate::common;
mod machine;
mod random;
mod receiver_machine;
mod search;
mod sender_machine;

use case::{Budget, Case, PLAIN};
use fpga_protocol::Nanos;
use fpga_protocol::sender::Notify;
use search::{Faults, SearchResult, search};

const fn budget(losses: u8, copies: u8) -> Budget {
    Budget { losses, copies, restarts: 0, deaths: 0, late: 0, early: 0, trims: 0 }
}

/// A receiver with one entry and one escape slot that keeps packets for a millisecond: it refuses nearly everything.
const SMALL_RECEIVER: Case =
    Case { registry_entries: 1, escape_slots: 1, escape_timeout: Nanos::from_millis(1), ..PLAIN };

/// Searches and prints the result.
fn search_and_print(name: &str, case: Case) -> SearchResult {
    let found = search(case);
    let SearchResult { states, ends, near, far, faults } = found;
    let Faults { hangs, false_completions, bad_writes } = faults;
    let Budget { losses, copies, .. } = case.budget;
    println!(
        "{name}, {losses} losses, {copies} copies: {states} states ({near} of the sender, {far} of the receiver, {ends} ends), \
         {hangs} hangs, {false_completions} false completions, {bad_writes} bad writes"
    );
    found
}

/// Searches, asserts that no invariant is violated, and returns the number of states.
fn assert_no_violation(name: &str, case: Case) -> usize {
    let SearchResult { states, ends, faults, .. } = search_and_print(name, case);
    assert!(ends > 0, "{name} {case:?}");
    assert_eq!(faults, Faults::default(), "{name} {case:?}");
    states
}

fn one(packets: u16, mask_bits: u16, losses: u8, copies: u8) -> usize {
    let name = format!("{packets} packets, {mask_bits} mask bits");
    assert_no_violation(&name, Case { packets, mask_bits, budget: budget(losses, copies), ..PLAIN })
}

#[test]
fn search_one_operation_two_losses_two_copies_every_width() {
    let mut states = 0;
    for mask_bits in 1..=8 {
        for packets in 1..=mask_bits.min(4) {
            states += one(packets, mask_bits, 2, 2);
        }
    }
    assert!(states > 100_000, "{states}");
}

#[test]
fn search_one_operation_up_to_seven_packets() {
    // `search_larger_state_spaces` has all of them with two losses and two copies.
    let states = [one(6, 8, 1, 1), one(7, 7, 2, 0)];
    assert!(states.iter().all(|states| *states > 5_000), "{states:?}");
}

#[test]
fn search_two_overlapping_operations_of_three_packets() {
    let case = Case { packets: 3, transfers: 2, mask_bits: 3, budget: budget(1, 1), ..PLAIN };
    let states = assert_no_violation("two operations of 3 packets", case);
    assert!(states > 20_000, "{states}");
}

#[test]
fn search_sender_restart_at_any_moment() {
    for (packets, losses, copies) in [(2, 2, 2), (3, 1, 1)] {
        let budget = Budget { restarts: 1, ..budget(losses, copies) };
        let case = Case { packets, budget, ..PLAIN };
        let states = assert_no_violation("a restarted sender", case);
        assert!(states > 5_000, "{states}");
    }
    // The earlier incarnation holds the only entry.
    let budget = Budget { restarts: 1, ..budget(1, 1) };
    assert_no_violation("a restarted sender, one entry", Case { packets: 2, budget, ..SMALL_RECEIVER });
}

/// Copies of an earlier incarnation's packets arrive at any age, also long after all records of it were released, and whatever packet
/// lifetime the receiver assumes.
#[test]
fn search_delayed_duplicates_of_earlier_incarnations_at_any_age() {
    assert!(search_delayed_duplicates(2) > 5_000);
}

#[test]
#[ignore = "long: 1 s: every case"]
fn search_delayed_duplicates_of_earlier_incarnations_in_every_case() {
    assert!(search_delayed_duplicates(1) > 50_000);
}

/// Searches one case in `part`, and returns the number of states.
fn search_delayed_duplicates(part: usize) -> usize {
    let late =
        |restarts, deaths, late, losses, copies| Budget { restarts, deaths, late, ..budget(losses, copies) };
    let zero = Case { packet_lifetime: Nanos::ZERO, ..PLAIN };
    let wrapping = Case { numbers: [u32::MAX - 1, u32::MAX, 1], ..PLAIN };
    let mut states = 0;
    for (name, case) in [
        ("1 packet, 2 late", Case { budget: late(1, 0, 2, 1, 1), ..PLAIN }),
        ("2 packets, 2 late", Case { packets: 2, budget: late(1, 0, 2, 1, 0), ..PLAIN }),
        (
            "2 packets, 1 late, an early timer",
            Case { packets: 2, budget: Budget { early: 1, ..late(1, 0, 1, 0, 0) }, ..PLAIN },
        ),
        ("2 packets, 2 late, packet lifetime 0", Case { packets: 2, budget: late(1, 0, 2, 1, 0), ..zero }),
        (
            "2 packets, 1 late, 1 copy, packet lifetime 0, an early timer",
            Case { packets: 2, budget: Budget { early: 1, ..late(1, 0, 1, 0, 1) }, ..zero },
        ),
        ("2 restarts, 2 late", Case { budget: late(2, 0, 2, 0, 0), ..PLAIN }),
        ("2 restarts, 2 late, numbers that wrap", Case { budget: late(2, 0, 2, 0, 0), ..wrapping }),
        ("restart, then none, 1 late", Case { budget: late(1, 1, 1, 0, 1), ..PLAIN }),
        ("2 segments, 1 late", Case { segments: 2, budget: late(1, 0, 1, 0, 0), ..PLAIN }),
        (
            "notice by the sender, 2 late",
            Case { notify: Notify::Sender, budget: late(1, 0, 2, 0, 1), ..PLAIN },
        ),
        ("one entry, 2 packets, 1 late", Case { packets: 2, budget: late(1, 0, 1, 0, 1), ..SMALL_RECEIVER }),
    ]
    .into_iter()
    .step_by(part)
    {
        states += assert_no_violation(name, case);
    }
    println!("{states} states in all");
    states
}

/// Numbers that pass half of the range while a packet is in flight: the first incarnation seems later than the third.
#[test]
fn search_incarnations_out_of_order_are_corrupted() {
    let budget = Budget { restarts: 2, late: 1, ..Budget::default() };
    let numbers = [1, 0x6000_0001, 0xC000_0001];
    let found = search_and_print("incarnations out of order", Case { numbers, budget, ..PLAIN }).faults;
    assert!(found.bad_writes > 0, "{found:?}");
}

/// A receiver that assumes any packet lifetime is safe from packets of earlier incarnations: their order decides.
#[test]
fn search_restart_does_not_depend_on_packet_lifetime() {
    let budget = Budget { restarts: 1, early: 1, ..Budget::default() };
    for packet_lifetime in [Nanos::ZERO, PLAIN.packet_lifetime] {
        let case = Case { packets: 2, budget, packet_lifetime, ..PLAIN };
        assert_no_violation("a restart, an early timer", case);
    }
}

/// A network that cuts off payloads instead of dropping packets delivers everything, together with all other faults.
#[test]
fn search_trimmed_packets_are_delivered() {
    let trims = |trims, losses, copies| Budget { trims, ..budget(losses, copies) };
    let mut states = 0;
    for (name, case) in [
        ("1 packet, 4 trims", Case { budget: trims(4, 1, 1), ..PLAIN }),
        ("3 packets, 2 trims", Case { packets: 3, budget: trims(2, 1, 1), ..PLAIN }),
        (
            "2 operations of 2 packets, 2 trims",
            Case { packets: 2, transfers: 2, budget: trims(2, 1, 0), ..PLAIN },
        ),
        (
            "2 segments of 2 packets, 2 trims",
            Case { packets: 2, segments: 2, budget: trims(2, 0, 1), ..PLAIN },
        ),
        (
            "2 packets, 2 trims, notice by the sender",
            Case { packets: 2, notify: Notify::Sender, budget: trims(2, 1, 1), ..PLAIN },
        ),
        ("one entry, 3 packets, 2 trims", Case { packets: 3, budget: trims(2, 1, 0), ..SMALL_RECEIVER }),
        (
            "one entry, 2 operations of 2 packets, 2 trims",
            Case { packets: 2, transfers: 2, budget: trims(2, 0, 1), ..SMALL_RECEIVER },
        ),
        (
            "4 packets, start last, 3 trims",
            Case { packets: 4, starts_last: true, budget: trims(3, 0, 0), ..PLAIN },
        ),
        (
            "2 packets, 1 trim, a new incarnation",
            Case { packets: 2, budget: Budget { restarts: 1, ..trims(1, 1, 1) }, ..PLAIN },
        ),
        (
            "2 packets, 1 trim, a sender that has stopped",
            Case { packets: 2, budget: Budget { deaths: 1, ..trims(1, 1, 1) }, ..PLAIN },
        ),
        (
            "2 packets, 1 trim, 1 late copy",
            Case { packets: 2, budget: Budget { restarts: 1, late: 1, ..trims(1, 0, 0) }, ..PLAIN },
        ),
        (
            "2 packets, 2 trims, an early timer",
            Case { packets: 2, budget: Budget { early: 1, ..trims(2, 0, 1) }, ..PLAIN },
        ),
    ] {
        states += assert_no_violation(name, case);
    }
    assert!(states > 20_000, "{states}");
}

#[test]
fn search_abandoned_operations_expire() {
    for case in [
        Case { packets: 3, budget: Budget { deaths: 1, ..budget(2, 2) }, ..PLAIN },
        Case { packets: 2, budget: Budget { deaths: 1, restarts: 1, ..budget(1, 1) }, ..PLAIN },
        Case { packets: 2, budget: Budget { deaths: 1, ..budget(1, 1) }, ..SMALL_RECEIVER },
    ] {
        assert_no_violation("a sender that has stopped", case);
    }
}

#[test]
fn search_first_packet_last_and_duplicated_around_completion() {
    let last = Case { starts_last: true, ..PLAIN };
    let states = [
        assert_no_violation("7 packets, start last", Case { packets: 7, budget: budget(2, 2), ..last }),
        assert_no_violation(
            "two starts last",
            Case { packets: 2, transfers: 2, budget: budget(2, 2), ..last },
        ),
    ];
    assert!(states.iter().all(|states| *states > 5_000), "{states:?}");
}

#[test]
fn search_one_entry_and_one_escape_slot() {
    let states = [
        assert_no_violation(
            "one entry, 4 packets",
            Case { packets: 4, budget: budget(2, 1), ..SMALL_RECEIVER },
        ),
        assert_no_violation(
            "one entry, 2 operations",
            Case { packets: 2, transfers: 2, budget: budget(1, 1), ..SMALL_RECEIVER },
        ),
        assert_no_violation(
            "one entry, 2 segments",
            Case { packets: 2, segments: 2, budget: budget(1, 1), ..SMALL_RECEIVER },
        ),
    ];
    assert!(states.iter().all(|states| *states > 5_000), "{states:?}");
}

#[test]
fn search_transfer_of_two_segments() {
    for (notify, packets, least) in
        [(Notify::Receiver, 3, 10_000), (Notify::Receiver, 2, 1_000), (Notify::Sender, 2, 1_000)]
    {
        let name = format!("2 segments of {packets} packets, notice by the {notify:?}");
        let case = Case { packets, segments: 2, notify, budget: budget(1, 1), ..PLAIN };
        let states = assert_no_violation(&name, case);
        assert!(states > least, "{states}");
    }
}

#[test]
fn search_timers_expire_while_packets_in_flight() {
    for case in [
        Case { packets: 3, budget: Budget { early: 1, ..budget(1, 1) }, ..SMALL_RECEIVER },
        Case { packets: 2, transfers: 2, budget: Budget { early: 1, ..budget(1, 0) }, ..SMALL_RECEIVER },
        Case { packets: 2, budget: Budget { early: 2, ..budget(1, 1) }, ..PLAIN },
        Case { packets: 3, budget: Budget { early: 1, ..budget(1, 0) }, ..PLAIN },
    ] {
        assert_no_violation("early timers", case);
    }
}

#[test]
#[ignore = "long: 600 s: tens of millions of states"]
fn search_larger_state_spaces() {
    let mut states = 0;
    for mask_bits in 1..=8 {
        for packets in 1..=mask_bits.min(7) {
            states += one(packets, mask_bits, 2, 2);
        }
    }
    let three = Case { packets: 3, budget: budget(2, 2), ..PLAIN };
    let late = Budget { restarts: 1, late: 2, ..budget(1, 1) };
    let again = |restarts, deaths, losses, copies| Budget { restarts, deaths, ..budget(losses, copies) };
    let last = Case { packets: 7, starts_last: true, ..PLAIN };
    for (name, case) in [
        ("two operations of 3 packets", Case { transfers: 2, mask_bits: 3, ..three }),
        ("3 packets, and a new incarnation", Case { budget: again(1, 0, 2, 2), ..three }),
        ("3 packets, a new incarnation, and none", Case { budget: again(1, 1, 2, 2), ..three }),
        (
            "two operations of 2 packets, and a new incarnation",
            Case { packets: 2, transfers: 2, budget: again(1, 0, 1, 1), ..PLAIN },
        ),
        (
            "one entry, 3 packets, and a new incarnation",
            Case { packets: 3, budget: again(1, 0, 1, 2), ..SMALL_RECEIVER },
        ),
        ("5 packets of a sender that has stopped", Case { packets: 5, budget: again(0, 1, 2, 2), ..PLAIN }),
        ("7 packets, start last", Case { budget: budget(2, 4), ..last }),
        (
            "two operations of 3 packets, starts last",
            Case { packets: 3, transfers: 2, budget: budget(2, 3), ..last },
        ),
        (
            "one entry, 2 operations of 3 packets",
            Case { packets: 3, transfers: 2, budget: budget(2, 2), ..SMALL_RECEIVER },
        ),
        (
            "one entry, 2 segments of 3 packets",
            Case { packets: 3, segments: 2, budget: budget(1, 1), ..SMALL_RECEIVER },
        ),
        ("one entry, 5 packets", Case { packets: 5, budget: budget(2, 2), ..SMALL_RECEIVER }),
        ("2 packets, 2 late copies of an earlier incarnation", Case { packets: 2, budget: late, ..PLAIN }),
        (
            "2 operations of 2 packets, a late copy of an earlier incarnation",
            Case { packets: 2, transfers: 2, budget: Budget { late: 1, ..again(1, 0, 0, 1) }, ..PLAIN },
        ),
        ("2 segments of 3 packets", Case { segments: 2, ..three }),
        (
            "2 segments of 3 packets, notice by the sender",
            Case { segments: 2, notify: Notify::Sender, ..three },
        ),
        ("3 packets, an early timer", Case { budget: Budget { early: 1, ..budget(1, 1) }, ..three }),
        (
            "one entry, 3 packets, early timers",
            Case { packets: 3, budget: Budget { early: 2, ..budget(1, 1) }, ..SMALL_RECEIVER },
        ),
    ] {
        states += assert_no_violation(name, case);
    }
    println!("{states} states in all");
}
