//! `cargo measure --check`: compares this machine with wide bounds, to find a loss of speed.
//!
//! Each figure is a ratio of two rates or latencies of the same moments, and the best of up to [`MAX_RUNS`] runs counts, so that other load
//! on the machine does not fail the check. The runs of the figures alternate, because other load comes and goes.

use std::process::Command;
use std::time::{Duration, Instant};

use super::program::{BenchError, Program, output, shown};
use super::record::{Record, RecordError, rows};

/// Maximum number of runs of each figure in which its threads had their CPUs.
const MAX_RUNS: usize = 10;
/// Time limit of the whole check.
const LIMIT: Duration = Duration::from_secs(90);
/// Minimum ratio of CPU time to wall time of a run on two CPUs; below, other programs took CPU time.
const BUSY_CPUS: f64 = 1.9;

/// What a figure compares.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Share of the copy limit.
    Share,
    /// The same on one CPU.
    OneCpu,
    /// Share of the copy limit, divided by that of the run to compare with, which copies in less memory.
    ShareRatio,
    /// 99th percentile, divided by that of the run to compare with.
    LatencyRatio,
}

/// Figure: its options of `dma bench`, those of the run to compare with, and its bound, about a third of the goal.
struct Figure {
    name: &'static str,
    kind: Kind,
    args: &'static [&'static str],
    base: &'static [&'static str],
    bound: f64,
    /// Best value of all runs.
    best: Option<f64>,
    undisturbed: usize,
}

const fn figure(
    name: &'static str,
    kind: Kind,
    args: &'static [&'static str],
    base: &'static [&'static str],
    bound: f64,
) -> Figure {
    Figure { name, kind, args, base, bound, best: None, undisturbed: 0 }
}

/// Options for the share of the copy limit.
const SHARES: [(&str, [&str; 6]); 6] = [
    ("share of the copy limit, 4 KiB, h2c", ["--sizes", "4KiB", "--direction", "h2c", "--samples", "0"]),
    ("share of the copy limit, 4 KiB, c2h", ["--sizes", "4KiB", "--direction", "c2h", "--samples", "0"]),
    ("share of the copy limit, 64 KiB, h2c", ["--sizes", "64KiB", "--direction", "h2c", "--samples", "0"]),
    ("share of the copy limit, 64 KiB, c2h", ["--sizes", "64KiB", "--direction", "c2h", "--samples", "0"]),
    ("share of the copy limit, 1 MiB, h2c", ["--sizes", "1MiB", "--direction", "h2c", "--samples", "0"]),
    ("share of the copy limit, 1 MiB, c2h", ["--sizes", "1MiB", "--direction", "c2h", "--samples", "0"]),
];

/// All figures.
fn figures() -> Vec<Figure> {
    let shares = SHARES.iter().map(|(name, args)| figure(name, Kind::Share, args, &[], 0.3));
    let others = [
        figure(
            "share of the copy limit with 4 channels per direction, divided by that with 1",
            Kind::ShareRatio,
            &["--sizes", "64KiB", "--direction", "both", "--channels", "4", "--samples", "0"],
            &["--sizes", "64KiB", "--direction", "both", "--channels", "1", "--samples", "0"],
            0.4,
        ),
        figure(
            "99th percentile of 64 B beside 1 MiB, divided by that without",
            Kind::LatencyRatio,
            &["--sizes", "64", "--direction", "h2c", "--beside", "1MiB"],
            &["--sizes", "64", "--direction", "h2c"],
            20.0,
        ),
        figure(
            "share of the copy limit on one CPU, 64 KiB",
            Kind::OneCpu,
            &["--sizes", "64KiB", "--direction", "h2c"],
            &[],
            0.13,
        ),
    ];
    shares.chain(others).collect()
}

/// Measures all figures and prints them.
pub(crate) fn run(program: &Program) -> Result<(), BenchError> {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1) {
        return Err(BenchError::OneCpu);
    }
    let began = Instant::now();
    let mut figures = figures();
    for round in 0.. {
        let mut has_run = false;
        for figure in &mut figures {
            // Each is measured once; a run takes up to some seconds.
            let in_time = began.elapsed() + Duration::from_secs(5) < LIMIT;
            if round == 0 || (in_time && figure.undisturbed < MAX_RUNS && !figure.is_within()) {
                has_run = true;
                figure.run(program)?;
            }
        }
        if !has_run {
            break;
        }
    }
    let failed = figures.iter().filter(|figure| !figure.report(program)).count();
    if failed == 0 { Ok(()) } else { Err(BenchError::OutOfBounds(failed)) }
}

impl Figure {
    fn command(&self, program: &Program, args: &[&str]) -> Command {
        let args = [args, &["--seconds", "0.3", "--batches", "0"]].concat();
        if self.kind == Kind::OneCpu { program.bench_on_one_cpu(&args) } else { program.bench(&args) }
    }

    fn run(&mut self, program: &Program) -> Result<(), BenchError> {
        let run = |args: &[&str]| output(self.command(program, args)).and_then(|text| Ok(rows(&text)?));
        let base = if self.base.is_empty() { Vec::new() } else { run(self.base)? };
        let found = run(self.args)?;
        Ok(self.add(&base, &found)?)
    }

    /// Adds the results of a run.
    fn add(&mut self, base: &[Record], rows: &[Record]) -> Result<(), RecordError> {
        let value = |row: &Record| match self.kind {
            Kind::Share | Kind::OneCpu => row.copy_share(),
            Kind::ShareRatio => Some(row.copy_share()? / base.first()?.copy_share()?),
            Kind::LatencyRatio => Some(row.p99_ns? / base.first()?.p99_ns?),
        };
        let found = rows.first().and_then(value).filter(|value| value.is_finite());
        let found = found.ok_or(RecordError::NoResult)?;
        self.best = Some(self.best.filter(|best| self.is_better(*best, found)).unwrap_or(found));
        let busy = if self.kind == Kind::OneCpu { BUSY_CPUS / 2.0 } else { BUSY_CPUS };
        self.undisturbed += usize::from(base.iter().chain(rows).all(|row| row.busy_cpus >= busy));
        Ok(())
    }

    /// Whether the first value is the better one, or as good.
    fn is_better(&self, first: f64, second: f64) -> bool {
        if self.kind == Kind::LatencyRatio { first <= second } else { first >= second }
    }

    fn is_within(&self) -> bool {
        self.best.is_some_and(|best| self.is_better(best, self.bound))
    }

    /// Prints the figure, and returns whether it is within its bound.
    fn report(&self, program: &Program) -> bool {
        let (name, bound, value) = (self.name, self.bound, self.best.unwrap_or(f64::NAN));
        if self.is_within() {
            println!("{name}: {value:.2} (bound {bound})");
        } else {
            println!(
                "error: {name}: {value:.2}, out of the bound {bound}: {}",
                shown(&self.command(program, self.args))
            );
        }
        self.is_within()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_best_run_counts() {
        let run = |rate: f64, busy: f64| {
            let text = format!(
                r#"{{"schema_version":1,"results":[{{"gb_per_s":{rate},"copy_gb_per_s":10,"busy_cpus":{busy},"verified":true,"p99_us":{rate}}}]}}"#
            );
            rows(text.as_bytes()).unwrap()
        };
        let mut figures = figures();
        let share = &mut figures[0];
        assert!(share.add(&[], &[]).is_err() && !share.is_within(), "no rows");
        share.add(&[], &run(2.9, 1.0)).unwrap();
        assert_eq!((share.best, share.undisturbed, share.is_within()), (Some(0.29), 0, false));
        share.add(&[], &run(4.0, 2.0)).unwrap();
        share.add(&[], &run(2.0, 2.0)).unwrap();
        assert_eq!((share.best, share.undisturbed, share.is_within()), (Some(0.4), 2, true));
        let channels = &mut figures[6];
        channels.add(&run(10.0, 2.0), &run(3.0, 2.0)).unwrap();
        assert!((channels.best.unwrap() - 0.3).abs() < 1e-9 && !channels.is_within());
        assert!(channels.add(&[], &run(5.0, 2.0)).is_err(), "nothing to compare with");
        let beside = &mut figures[7];
        beside.add(&run(2.0, 2.0), &run(39.0, 2.0)).unwrap();
        assert!((beside.best.unwrap() - 19.5).abs() < 1e-9 && beside.is_within());
    }
}
