//! Segment lengths that the driver chooses, against a sweep over segment lengths in virtual time. The full grid is
//! `fpgactl sim figure segment-tuner`.

use fpga_netsim::figures::cards::CardTransfer;
use fpga_netsim::figures::segment_tuner::{CARDS, LENGTHS, NETWORKS, sweep};
use fpgactl::card_runs;

/// Runs of a point with loss.
const LOSSY_RUNS: u64 = 8;
/// Bounds of the chosen length's time, in percent of the best one's. The choice knows neither losses nor the congestion window, whose
/// first size is less than the longest segment of the slow card.
const BOUND: u64 = 110;
const LOSSY_BOUND: u64 = 115;

/// Mean time in nanoseconds, summed over the seeds.
fn time(transfer: CardTransfer) -> u64 {
    let runs = if transfer.network.loss > 0.0 { LOSSY_RUNS } else { 1 };
    let times = (1..=runs).map(|seed| card_runs::run(&CardTransfer { seed, ..transfer }).unwrap().time.get());
    times.sum::<u64>() / runs
}

/// The shortest `lengths` on cards and networks for whose numbers `is_tried` returns true; segments below a sixteenth of the longest are
/// left to the figure.
fn check_choice(lengths: usize, is_tried: impl Fn(usize, usize) -> bool) {
    for (card, design) in CARDS.into_iter().enumerate() {
        for (number, network) in NETWORKS.into_iter().enumerate() {
            if !is_tried(card, number) {
                continue;
            }
            for length in LENGTHS.into_iter().take(lengths) {
                let of = |segment| time(CardTransfer { design, network, length, segment, seed: 0 });
                let lengths = sweep(&design, length);
                let tried = lengths.iter().rev().take(5);
                let best = tried.map(|segment| of(Some(*segment))).min().unwrap();
                let chosen = of(None);
                let bound = if network.loss > 0.0 { LOSSY_BOUND } else { BOUND };
                assert!(
                    chosen * 100 <= best * bound,
                    "{}, {}, {length} bytes: {chosen} ns, best of the sweep {best} ns",
                    design.name,
                    network.name
                );
            }
        }
    }
}

/// Every card and every network, each once. It needs its time for the runs of the sweep.
#[test]
fn segment_choice_is_within_tenth_of_sweep() {
    check_choice(2, |card, network| card == network);
}

#[test]
#[ignore = "long: 7 s: every card on every network, and a longer transfer"]
fn segment_choice_of_every_pair_is_within_tenth_of_sweep() {
    check_choice(3, |_, _| true);
}

#[test]
fn segment_choice_same_seed_gives_same_time() {
    let transfer =
        CardTransfer { design: CARDS[1], network: NETWORKS[1], length: LENGTHS[2], segment: None, seed: 3 };
    assert_eq!(card_runs::run(&transfer), card_runs::run(&transfer));
}
