//! Ten thousand random transfers; the program `soak` runs a million.
#![expect(clippy::panic, reason = "a test that cannot continue may as well stop")]

use fpga_netsim::soak::{FaultMix, SoakOptions, SoakTotals};

fn run(faults: FaultMix, transfers: u64, longest: u64, seed: u64) -> SoakTotals {
    let mut soak = SoakOptions::new(faults, transfers, seed);
    soak.longest = longest;
    soak.threads = 2;
    match soak.run(|_| ()) {
        Ok(totals) => totals,
        Err(violation) => panic!("{violation}"),
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
    let totals = run(FaultMix::All, 10_000, longest, 4);
    assert_eq!(totals.completed + totals.failed() + totals.abandoned, 10_000);
    assert!(totals.gentle > 2_000 && totals.gentle_completed * 1000 >= totals.gentle * 999, "{totals:?}");
    assert!(totals.of_any_size > 2_000, "{totals:?}");
    for (name, count) in [
        ("retransmits", totals.retransmits),
        ("corrupted", totals.corrupted),
        ("duplicated", totals.duplicated),
        ("duplicates", totals.duplicates),
        ("escaped", totals.escaped),
        ("registry full", totals.registry_full),
        ("restarts", totals.restarts),
        ("pauses", totals.pauses),
        ("deadlines", totals.deadline),
        ("refused", totals.refused),
        ("abandoned", totals.abandoned),
    ] {
        assert_ne!(count, 0, "no {name}: {totals:?}");
    }
}

#[test]
fn soak_op_numbers_and_transfer_ids_wrap_with_delayed_packets() {
    let totals = run(FaultMix::DelayedDuplicates, 10_000, 2048, 1);
    // No other reason is possible: no side restarts, and no side stops sending.
    assert_eq!(totals.completed + totals.deadline, 10_000, "{totals:?}");
    assert_eq!(totals.gentle_completed, totals.gentle, "{totals:?}");
    assert!(totals.gentle > 5_000 && totals.deadline > 500, "{totals:?}");
    assert!(totals.duplicated > 10_000 && totals.stale > 10_000, "{totals:?}");
    // In every round whose transfers do not end before they begin, ids wrap; and thousands of numbers are reused.
    assert!(totals.ids_wrapped * 500 >= totals.gentle, "{totals:?}");
    assert!(totals.numbers_reused > 25_000, "{totals:?}");
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
            Ok(totals) => {
                assert_eq!((totals.gentle, totals.completed), (500, 500), "round {round}: {totals:?}")
            }
            Err(violation) => panic!("{violation}"),
        }
    }
}
