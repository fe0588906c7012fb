//! Searches of one scheme with all faults, for the schemes of cards and for the baselines of the network simulator.

use super::explore::{FaultBudget, SearchResult, explore};
use fpga_protocol::scheme::{MessageReceiver, MessageSender};
use std::hash::Hash;

/// Maximum number of states, above that of any case here; a search of this size takes some ten megabytes.
pub(crate) const MAX_STATES: usize = 100_000_000;

pub(crate) const fn fault_budget(losses: u8, copies: u8, early: u8) -> FaultBudget {
    FaultBudget { losses, copies, early }
}

/// Two losses and a copy, which the specification requires; includes all smaller budgets.
pub(crate) const LOSSES_AND_A_COPY: FaultBudget = fault_budget(2, 1, 0);
/// The other combinations of two or three faults.
pub(crate) const OTHERS: [FaultBudget; 3] =
    [fault_budget(1, 2, 0), fault_budget(1, 1, 1), fault_budget(0, 0, 2)];
pub(crate) const ALL: [FaultBudget; 4] = [LOSSES_AND_A_COPY, OTHERS[0], OTHERS[1], OTHERS[2]];

/// Searches one case of a scheme, with one window or one counting rule, asserts that no invariant is violated, prints the number of states
/// and returns it.
pub(crate) fn search<S, R>(
    name: &str,
    count: u32,
    has_rounds: bool,
    mischief: FaultBudget,
    make: impl Fn() -> (S, R),
) -> usize
where
    S: MessageSender + Clone + Eq + Hash,
    R: MessageReceiver + Clone + Eq + Hash,
{
    let (sender, receiver) = make();
    let found = explore(sender, receiver, count, has_rounds, mischief, MAX_STATES);
    let SearchResult { states, finished, .. } = found;
    assert!(states > 0 && finished > 0, "{name} {count} {mischief:?}: {found:?}");
    assert_eq!(found.faults(), [0; 5], "{name} {count} {mischief:?}: {found:?}");
    let FaultBudget { losses, copies, early } = mischief;
    println!(
        "{name}, {count} packets, {losses} losses, {copies} copies, {early} early timers: {states} states"
    );
    states
}

/// As [`every`], with the windows of 1 to the length of each message: a longer one is equivalent to one of the message's length, see
/// `search_window_longer_than_message_equals_message_length`.
pub(crate) fn every_distinct_window(
    counts: impl Iterator<Item = u32>,
    mischiefs: &[FaultBudget],
    search: impl Fn(u32, u32, FaultBudget) -> usize,
) {
    for count in counts {
        every(1..=count, count..=count, mischiefs, &search);
    }
}

/// Searches all windows with all of these messages and budgets; returns the number of states.
pub(crate) fn every(
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
