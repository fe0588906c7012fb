//! Segment lengths that the driver chooses, against a sweep over segment lengths in virtual time. The full grid is
//! `fpgactl sim figure segment-tuner`.

use fpga_netsim::figures::cards::CardTransfer;
use fpga_netsim::figures::segment_tuner::{CARDS, LENGTHS, NETWORKS, sweep};
use fpgactl::card_runs;

/// Runs of a point with loss.
const LOSSY_RUNS: u64 = 8;

/// Mean time in nanoseconds, summed over the seeds.
fn time(transfer: CardTransfer) -> u64 {
    let runs = if transfer.network.loss > 0.0 { LOSSY_RUNS } else { 1 };
    let times = (1..=runs).map(|seed| card_runs::run(&CardTransfer { seed, ..transfer }).unwrap().time.get());
    times.sum::<u64>() / runs
}

/// Shorter lengths on every card and network; segments below a sixteenth of the longest are left to the figure.
#[test]
fn segment_choice_is_within_tenth_of_sweep() {
    for design in CARDS {
        for network in NETWORKS {
            for length in LENGTHS.into_iter().take(3) {
                let of = |segment| time(CardTransfer { design, network, length, segment, seed: 0 });
                let lengths = sweep(&design, length);
                let tried = lengths.iter().rev().take(5);
                let best = tried.map(|segment| of(Some(*segment))).min().unwrap();
                let chosen = of(None);
                assert!(
                    chosen * 10 <= best * 11,
                    "{}, {}, {length} bytes: {chosen} ns, best of the sweep {best} ns",
                    design.name,
                    network.name
                );
            }
        }
    }
}

#[test]
fn segment_choice_same_seed_gives_same_time() {
    let transfer =
        CardTransfer { design: CARDS[1], network: NETWORKS[1], length: LENGTHS[2], segment: None, seed: 3 };
    assert_eq!(card_runs::run(&transfer), card_runs::run(&transfer));
}
