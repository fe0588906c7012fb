//! Many worlds, in some threads, until a time or a number of failures is reached.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fpga_pci::lock;

use crate::choices::mix;
use crate::coverage::Coverage;
use crate::minimise::Reduction;
use crate::model::Violation;

/// What a swarm is asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// Seed of the first world.
    pub seed: u64,
    /// Time after which no further world begins.
    pub time: Duration,
    /// Maximum number of worlds.
    pub worlds: u64,
    /// Number of threads.
    pub threads: usize,
    /// Name of the applications of all worlds; `None`: any.
    pub only: Option<String>,
    /// Number of failures after which no further world begins.
    pub failures: usize,
}

/// Kind of worlds that run only if it is asked for: some of its worlds do not end yet.
const UNFINISHED: &str = "streams";

/// Result of a swarm.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of worlds that ran.
    pub worlds: u64,
    /// States that they reached.
    pub coverage: Coverage,
    /// Worlds that failed.
    pub failures: Vec<(u64, Violation)>,
    /// Sum of their virtual times in milliseconds.
    pub virtual_millis: u64,
    /// Time of the longest world, and its seed.
    pub longest: (Duration, u64),
}

/// Seed of world `number` of a swarm.
#[must_use]
pub const fn seed_of(seed: u64, number: u64) -> u64 {
    mix(seed.wrapping_add(mix(number)))
}

/// Runs worlds.
#[must_use]
pub fn run(request: &Request) -> Report {
    let (next, stop, begun) = (AtomicU64::new(0), AtomicBool::new(false), Instant::now());
    let report = Mutex::new(Report::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) && begun.elapsed() < request.time {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= request.worlds {
                break;
            }
            let seed = seed_of(request.seed, number);
            let world = Reduction::whole(seed);
            let kind = world.plan().work.name();
            if !request.only.as_ref().map_or(kind != UNFINISHED, |only| only == kind) {
                continue;
            }
            let start = Instant::now();
            let result = world.run();
            let mut report = lock(&report);
            report.worlds += 1;
            report.longest = report.longest.max((start.elapsed(), seed));
            match result {
                Ok(outcome) => {
                    report.coverage.add_world(&outcome.coverage);
                    report.virtual_millis += outcome.time.get() / 1_000_000;
                }
                Err(violation) => {
                    report.failures.push((seed, violation));
                    if report.failures.len() >= request.failures {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..request.threads.max(1) {
            scope.spawn(work);
        }
    });
    report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}
