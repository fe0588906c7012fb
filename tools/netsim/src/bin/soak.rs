//! Random transfers under random impairments, each of them checked: see [`fpga_netsim::soak`].

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Parser;
use fpga_netsim::soak::{FaultMix, SoakOptions, SoakTotals};

/// Transfers between two nodes over links that lose, reorder, duplicate and corrupt packets; every byte is checked. Exit status 1: an
/// invariant was violated, or too few transfers succeeded.
#[derive(Debug, Parser)]
struct Options {
    /// Kind of random impairments.
    #[arg(long, value_enum, default_value = "everything")]
    trouble: Kind,
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

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// Loss, bursts, reordering, duplicates, corruption, blackouts, restarts.
    Everything,
    /// Delayed duplicates that arrive after op numbers and transfer ids have wrapped.
    DelayedDuplicates,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let trouble = match options.trouble {
        Kind::Everything => FaultMix::All,
        Kind::DelayedDuplicates => FaultMix::DelayedDuplicates,
    };
    let mut soak = SoakOptions::new(trouble, options.transfers, options.seed);
    soak.longest = options.longest;
    soak.threads = options.threads;
    soak.only = options.round;
    let began = Instant::now();
    let reported = AtomicU64::new(0);
    let result = soak.run(|done| {
        let tenth = done * 10 / options.transfers.max(1);
        if reported.fetch_max(tenth, Ordering::Relaxed) < tenth {
            eprintln!("{done} of {} transfers after {:.0?}", options.transfers, began.elapsed());
        }
    });
    match result {
        Ok(tally) => {
            print(&tally);
            println!("took                {:.1?}", began.elapsed());
            match shortfall(trouble, &tally) {
                None => ExitCode::SUCCESS,
                Some(what) => {
                    eprintln!("error: {what}");
                    ExitCode::FAILURE
                }
            }
        }
        Err(broken) => {
            eprintln!("error: {broken}");
            ExitCode::FAILURE
        }
    }
}

/// Target that was missed, beyond the guarantees of each transfer.
fn shortfall(trouble: FaultMix, tally: &SoakTotals) -> Option<String> {
    let SoakTotals { gentle, gentle_completed, completed, deadline, transfers, .. } = *tally;
    match trouble {
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

fn print(tally: &SoakTotals) {
    for (name, count) in [
        ("transfers", tally.transfers),
        ("bytes", tally.bytes),
        ("of unlimited size", tally.of_any_size),
        ("completed", tally.completed),
        ("failed: deadline", tally.deadline),
        ("failed: unanswered", tally.unanswered),
        ("failed: state lost", tally.forgotten),
        ("failed: refused", tally.refused),
        ("sender restarted", tally.abandoned),
        ("loss <= 5 %", tally.gentle),
        ("  of them completed", tally.gentle_completed),
        ("packets", tally.packets),
        ("retransmits", tally.retransmits),
        ("frames lost", tally.lost),
        ("frames corrupted", tally.damaged),
        ("frames duplicated", tally.duplicated),
        ("duplicates dropped", tally.duplicates),
        ("escaped", tally.escaped),
        ("registry full", tally.registry_full),
        ("restarts", tally.restarts),
        ("pauses", tally.pauses),
        ("stale answers", tally.stale),
        ("op numbers reused", tally.numbers_reused),
        ("ids wrapped", tally.ids_wrapped),
    ] {
        println!("{name:20}{count}");
    }
    println!("{:20}{}", "simulated", tally.simulated);
}
