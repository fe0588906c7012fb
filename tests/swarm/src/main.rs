//! The swarm as a program; `cargo xtask swarm` runs it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use fpga_swarm::swarm::{Request, run};
use fpga_swarm::{Reduction, minimise};

/// Random small worlds of simulated cards and endpoints, checked for safety and progress.
#[derive(Debug, Parser)]
#[command(name = "swarm")]
struct Arguments {
    /// Seconds after which no further world begins
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seed of the run
    #[arg(long, default_value_t = 1, value_parser = number)]
    seed: u64,
    /// Run the world of this seed alone
    #[arg(long, value_parser = number)]
    world: Option<u64>,
    /// Maximum number of worlds
    #[arg(long, default_value_t = u64::MAX)]
    worlds: u64,
    /// Number of threads [default: CPUs]
    #[arg(long)]
    threads: Option<usize>,
    /// Run the worlds of one kind alone: transfers, messages, or streams, which do not run without it
    #[arg(long)]
    only: Option<String>,
    /// Number of failures after which no further world begins
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Reduce the first world that fails, and print it as a test
    #[arg(long)]
    minimise: bool,
    /// Print the counts of states
    #[arg(long)]
    coverage: bool,
}

fn number(text: &str) -> Result<u64, std::num::ParseIntError> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    }
}

fn reduce(seed: u64) {
    let (reduced, violation) = minimise(&Reduction::whole(seed), 2000);
    println!("{:#?}\n{}", reduced.plan(), violation.map_or_else(|| "no failure".to_owned(), |found| found.0));
    println!("{}", reduced.as_test());
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The text of a panic is part of its world's failure.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(seed) = arguments.world {
        if arguments.minimise {
            reduce(seed);
            return ExitCode::SUCCESS;
        }
        return match Reduction::whole(seed).run() {
            Ok(outcome) => {
                println!(
                    "world {seed:#x}: {} events, hash {:#x}",
                    outcome.trace.events,
                    outcome.trace.hash()
                );
                ExitCode::SUCCESS
            }
            Err(violation) => {
                println!("{:#?}\nworld {seed:#x}: {}", Reduction::whole(seed).plan(), violation.0);
                ExitCode::FAILURE
            }
        };
    }
    let threads =
        arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let begun = std::time::Instant::now();
    let report = run(&Request {
        seed: arguments.seed,
        time: Duration::from_secs(arguments.seconds),
        worlds: arguments.worlds,
        threads,
        only: arguments.only,
        failures: arguments.failures,
    });
    if arguments.coverage {
        print!("{}", report.coverage);
    }
    println!(
        "{} worlds of seed {:#x} in {:.0?} by {threads} threads, {} s of virtual time; the longest took {:.1?} (world {:#x}); {} failed",
        report.worlds,
        arguments.seed,
        begun.elapsed(),
        report.virtual_millis / 1000,
        report.longest.0,
        report.longest.1,
        report.failures.len()
    );
    for (seed, violation) in &report.failures {
        println!("world {seed:#x}: {}", violation.0);
    }
    if let Some((seed, _)) = report.failures.first().filter(|_| arguments.minimise) {
        reduce(*seed);
    }
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
