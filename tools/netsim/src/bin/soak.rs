//! Random transfers under random impairments, each of them checked: see [`fpga_netsim::soak`].

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use fpga_netsim::soak::{FaultMix, SoakOptions, SoakTotals};

/// Transfers between two nodes over links that lose, reorder, duplicate and corrupt packets; every byte is checked. Exit status 1: an
/// invariant was violated, or too few transfers succeeded.
#[derive(Debug, Parser)]
struct Options {
    /// Kind of random impairments.
    #[arg(long, value_enum, default_value = "everything")]
    faults: FaultMix,
    /// Transfers in total, in rounds of 500.
    #[arg(long, default_value_t = 1_000_000)]
    transfers: u64,
    /// Maximum length of a transfer in bytes.
    #[arg(long, default_value_t = 1 << 20)]
    longest: u64,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of threads; the result does not depend on it.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Run only this round, to replay a failure.
    #[arg(long)]
    round: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut soak = SoakOptions::new(options.faults, options.transfers, options.seed);
    (soak.longest, soak.threads, soak.only) = (options.longest, options.threads, options.round);
    let began = Instant::now();
    let mut reported = 0;
    let result = soak.run(|done| {
        let tenth = done * 10 / options.transfers.max(1);
        if std::mem::replace(&mut reported, tenth) < tenth {
            eprintln!("{done} of {} transfers after {:.0?}", options.transfers, began.elapsed());
        }
    });
    let missed = match result {
        Ok(totals) => {
            for (name, count) in totals.counts() {
                println!("{:20}{count}", name.replace('_', " "));
            }
            println!("{:20}{}\n{:20}{:.1?}", "simulated", totals.simulated, "took", began.elapsed());
            missed_target(options.faults, &totals)
        }
        Err(violation) => Some(violation.to_string()),
    };
    match missed {
        None => ExitCode::SUCCESS,
        Some(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the target that was missed, beyond the guarantees of each transfer.
fn missed_target(faults: FaultMix, totals: &SoakTotals) -> Option<String> {
    let SoakTotals { gentle, gentle_completed, completed, deadline, transfers, .. } = *totals;
    match faults {
        // No other reason is possible: no side restarts, and no side stops sending.
        FaultMix::DelayedDuplicates if completed + deadline < transfers => Some(format!(
            "{} of {transfers} transfers neither succeeded nor missed their own deadline; 0 are allowed",
            transfers - completed - deadline
        )),
        // 99.9 %.
        _ if gentle_completed * 1000 < gentle * 999 => Some(format!(
            "{gentle_completed} of {gentle} transfers with a loss of at most 5 % succeeded; 999 of 1000 are required"
        )),
        _ => None,
    }
}
