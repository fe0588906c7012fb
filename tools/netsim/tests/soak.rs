//! Ten thousand random transfers; the program `soak` runs a million.
#![expect(clippy::panic, reason = "a test that cannot continue may as well stop")]

use fpga_netsim::soak::{FaultMix, SoakOptions, SoakTotals};

fn run(trouble: FaultMix, transfers: u64, longest: u64, seed: u64) -> SoakTotals {
    let mut soak = SoakOptions::new(trouble, transfers, seed);
    soak.longest = longest;
    soak.threads = 2;
    match soak.run(|_| ()) {
        Ok(tally) => tally,
        Err(broken) => panic!("{broken}"),
    }
}

/// Short transfers: packets take the time.
#[test]
fn soak_ten_thousand_transfers_keep_invariants() {
    check_ten_thousand(128 << 10);
}

#[test]
#[ignore = "long: 5 s: transfers of up to 1 MiB"]
fn soak_ten_thousand_long_transfers_keep_invariants() {
    check_ten_thousand(1 << 20);
}

fn check_ten_thousand(longest: u64) {
    let tally = run(FaultMix::All, 10_000, longest, 4);
    assert_eq!(tally.completed + tally.failed() + tally.abandoned, 10_000);
    assert!(tally.gentle > 2_000 && tally.gentle_completed * 1000 >= tally.gentle * 999, "{tally:?}");
    assert!(tally.of_any_size > 2_000, "{tally:?}");
    for (what, count) in [
        ("retransmits", tally.retransmits),
        ("damaged", tally.damaged),
        ("doubled", tally.duplicated),
        ("duplicates", tally.duplicates),
        ("escaped", tally.escaped),
        ("registry full", tally.registry_full),
        ("restarts", tally.restarts),
        ("pauses", tally.pauses),
        ("deadlines", tally.deadline),
        ("refused", tally.refused),
        ("abandoned", tally.abandoned),
    ] {
        assert_ne!(count, 0, "no {what}: {tally:?}");
    }
}

#[test]
fn soak_op_numbers_and_transfer_ids_wrap_with_delayed_packets() {
    let tally = run(FaultMix::DelayedDuplicates, 10_000, 2048, 1);
    // No other reason is possible: no side restarts, and no side stops sending.
    assert_eq!(tally.completed + tally.deadline, 10_000, "{tally:?}");
    assert_eq!(tally.gentle_completed, tally.gentle, "{tally:?}");
    assert!(tally.gentle > 5_000 && tally.deadline > 500, "{tally:?}");
    assert!(tally.duplicated > 10_000 && tally.stale > 10_000, "{tally:?}");
    // In every round whose transfers do not end before they begin, ids wrap; and thousands of numbers are reused.
    assert!(tally.ids_wrapped * 500 >= tally.gentle, "{tally:?}");
    assert!(tally.numbers_reused > 25_000, "{tally:?}");
}

#[test]
fn soak_result_is_independent_of_threads() {
    let soak = |threads| {
        let mut soak = SoakOptions::new(FaultMix::All, 2_000, 7);
        soak.longest = 10_000;
        soak.threads = threads;
        soak.run(|_| ())
    };
    assert_eq!(soak(1), soak(3));
}

/// Rounds in which a copy of a start packet that had released its op number was registered, and held the only entry: all others were
/// refused, and regular commands took turns before it until it was given up.
#[test]
fn soak_holder_of_only_entry_makes_progress() {
    for round in [145, 303, 1350] {
        let mut soak = SoakOptions::new(FaultMix::DelayedDuplicates, 1_000_000, 7);
        (soak.longest, soak.only) = (2048, Some(round));
        match soak.run(|_| ()) {
            Ok(tally) => assert_eq!((tally.gentle, tally.completed), (500, 500), "round {round}: {tally:?}"),
            Err(broken) => panic!("{broken}"),
        }
    }
}
