//! `cargo measure --check`: compares this machine with wide bounds, to find a loss of speed before the next full measurement.
//!
//! Each figure is a ratio of two rates or latencies of the same moments, and the best of up to [`MAX_RUNS`] runs counts, so that other load
//! on the machine does not fail the check. A figure within its bound is not measured again. The runs of one figure are in rounds, because
//! other load comes and goes, and a run that had less than its CPUs is repeated while time remains.

use std::process::Command;
use std::time::{Duration, Instant};

use super::cells::size_text;
use super::data::ChannelQuantity;
use super::goals::{Goal, Quantity};
use super::ping;
use super::programs::{DriverProgram, ProgramError};
use super::questions::{Question, Trial};
use super::record::{ResultDirection, ResultRow};
use super::runs::BUSY_CPUS;

/// Maximum number of undisturbed runs of each figure.
const MAX_RUNS: usize = 10;
/// Time limit of the whole check.
const LIMIT: Duration = Duration::from_secs(90);
/// Time limit of one run; runs of some seconds each are the rule.
const RUN_LIMIT: Duration = Duration::from_secs(20);
/// Duration of each row of a run in seconds.
const SECONDS: &str = "0.3";

/// Reasons why the check does not pass.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Cpus(#[from] ping::PingError),
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The program reports no rate of a plain copy, or no latency.
    #[error("the output has no rate of a plain copy, or no latency: {command}; build fpgactl again")]
    Missing { command: String },
    #[error(
        "figures out of bounds: {0}, see above; bounds are about a third of the goals: find the change that costs speed, or check again on an \
         idle machine"
    )]
    OutOfBounds(usize),
}

/// Options of the run that gives the shares of the copy limit, for the sizes that have a bound.
const SHARES: [&str; 6] = ["--sizes", "4096,65536,1048576", "--direction", "h2c,c2h", "--samples", "0"];

/// Runs that give one figure, or one per row.
struct Runs {
    /// `None`: shares of the copy limit.
    question: Option<Question>,
    figures: Vec<Best>,
    /// Number of runs, and of those that had all of their CPUs.
    runs: usize,
    undisturbed: usize,
    /// Duration of the last run, with the one to compare with.
    took: Duration,
}

/// Best value of a figure.
struct Best {
    quantity: Quantity,
    direction: ResultDirection,
    value: Option<f64>,
}

/// All runs.
fn plan() -> Vec<Runs> {
    use ResultDirection::{Both, C2h, H2c};
    let best = |quantity, direction| Best { quantity, direction, value: None };
    let runs = |question, figures| Runs { question, figures, runs: 0, undisturbed: 0, took: Duration::ZERO };
    let shares = [4096, 64 << 10, 1 << 20]
        .into_iter()
        .flat_map(|size| [H2c, C2h].map(|direction| best(Quantity::CopyShare(size), direction)));
    let of = |question| {
        let (quantity, direction) = match question {
            Question::Channels => (ChannelQuantity::FourChannels, Both),
            Question::Beside => (ChannelQuantity::Beside, H2c),
            Question::OneCpu => (ChannelQuantity::OneCpuShare, H2c),
        };
        runs(Some(question), vec![best(Quantity::Channels(quantity), direction)])
    };
    std::iter::once(runs(None, shares.collect())).chain(Question::ALL.map(of)).collect()
}

/// Name of a figure.
fn name(quantity: Quantity, direction: ResultDirection) -> String {
    let direction = match direction {
        ResultDirection::H2c => "h2c",
        ResultDirection::C2h => "c2h",
        ResultDirection::Both => "both directions",
    };
    match quantity {
        Quantity::CopyShare(size) => format!("share of the copy limit, {}, {direction}", size_text(size)),
        Quantity::Channels(ChannelQuantity::FourChannels) => {
            "share of the copy limit with 4 channels per direction, divided by that with 1".to_owned()
        }
        Quantity::Channels(ChannelQuantity::Beside) => {
            "99th percentile of 64 B beside 1 MiB, divided by that without".to_owned()
        }
        Quantity::Channels(ChannelQuantity::OneCpuShare) => {
            "share of the copy limit on one CPU, 64 KiB".to_owned()
        }
        other => format!("{other:?}"),
    }
}

/// Value of a figure in the rows of a run, and of the run to compare with.
fn value(
    quantity: Quantity,
    direction: ResultDirection,
    base: Option<&[ResultRow]>,
    rows: &[ResultRow],
) -> Option<f64> {
    let record = |rows: &[ResultRow]| {
        let fits = |row: &&ResultRow| match quantity {
            Quantity::CopyShare(size) => row.size == size && row.direction == direction,
            _ => row.direction == direction,
        };
        rows.iter().find(fits).map(|row| row.record)
    };
    let trial = Trial { looks: Vec::new(), base: base.and_then(record), run: record(rows)? };
    match quantity {
        Quantity::Channels(ChannelQuantity::FourChannels) => trial.share_ratio(),
        Quantity::Channels(ChannelQuantity::Beside) => trial.latency_ratio(),
        _ => trial.run.copy_share(),
    }
}

/// Measures all figures and prints them.
pub(crate) fn run(program: &DriverProgram) -> Result<(), CheckError> {
    let [cpu, _] = ping::first_two()?;
    let began = Instant::now();
    let mut plan = plan();
    for runs in &mut plan {
        runs.run(program, cpu)?;
    }
    loop {
        // Twice the time of the last run must remain, so that the check ends in time.
        let may_run = |runs: &Runs| runs.is_open() && began.elapsed() + 2 * runs.took < LIMIT;
        if !plan.iter().any(may_run) {
            break;
        }
        for runs in &mut plan {
            if may_run(runs) {
                runs.run(program, cpu)?;
            }
        }
    }
    let failed: usize = plan.iter().map(|runs| runs.report(program, cpu)).sum();
    if failed > 0 { Err(CheckError::OutOfBounds(failed)) } else { Ok(()) }
}

impl Runs {
    /// Whether a figure is out of its bound and may be measured again.
    fn is_open(&self) -> bool {
        self.undisturbed < MAX_RUNS && !self.figures.iter().all(Best::is_within)
    }

    /// Commands of the run to compare with, and of the run; on one CPU, which all threads share, if the question is about that.
    fn commands(&self, program: &DriverProgram, cpu: usize) -> (Option<Command>, Command) {
        let (base, args) = self.question.map_or((None, &SHARES[..]), Question::args);
        let cpu = Some(cpu).filter(|_| self.question == Some(Question::OneCpu));
        let command = |args: &[&str]| {
            program.bench_command(cpu, &[args, &["--seconds", SECONDS, "--batches", "0"]].concat())
        };
        (base.map(command), command(args))
    }

    /// Command line of a run, for messages.
    fn shown(&self, program: &DriverProgram, cpu: usize) -> String {
        let (_, command) = self.commands(program, cpu);
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    /// Runs once.
    fn run(&mut self, program: &DriverProgram, cpu: usize) -> Result<(), CheckError> {
        let began = Instant::now();
        let run = |mut command| DriverProgram::bench_rows(&mut command, RUN_LIMIT);
        let (base, command) = self.commands(program, cpu);
        let (base, rows) = (base.map(run).transpose()?, run(command)?);
        self.took = began.elapsed();
        if !self.add(base.as_deref(), &rows) {
            return Err(CheckError::Missing { command: self.shown(program, cpu) });
        }
        Ok(())
    }

    /// Adds the results of a run, and returns whether they have all figures.
    fn add(&mut self, base: Option<&[ResultRow]>, rows: &[ResultRow]) -> bool {
        let busy = self.question.map_or(BUSY_CPUS, Question::busy_cpus);
        let is_disturbed = base.unwrap_or_default().iter().chain(rows).any(|row| row.record.busy_cpus < busy);
        self.runs += 1;
        self.undisturbed += usize::from(!is_disturbed);
        self.figures.iter_mut().all(|best| best.add(base, rows))
    }

    /// Prints the figures, and returns the number of those out of bounds.
    fn report(&self, program: &DriverProgram, cpu: usize) -> usize {
        let command = self.shown(program, cpu);
        self.figures.iter().filter(|best| !best.report(self.runs, &command)).count()
    }
}

impl Best {
    /// Adds the results of a run, and returns whether they have this figure.
    fn add(&mut self, base: Option<&[ResultRow]>, rows: &[ResultRow]) -> bool {
        let found = value(self.quantity, self.direction, base, rows);
        let Some(found) = found.filter(|found| found.is_finite()) else { return false };
        let goal = Goal::of(self.quantity, None);
        let better = |value| goal.map_or(found, |goal| goal.better(value, found));
        self.value = Some(self.value.map_or(found, better));
        true
    }

    fn is_within(&self) -> bool {
        let goal = Goal::of(self.quantity, None);
        self.value.zip(goal).is_some_and(|(value, goal)| goal.is_within_bound(value))
    }

    /// Prints the figure, and returns whether it is within its bound.
    fn report(&self, runs: usize, command: &str) -> bool {
        let (Some(value), Some(goal)) = (self.value, Goal::of(self.quantity, None)) else { return true };
        let (name, bound) = (name(self.quantity, self.direction), goal.bound_text());
        if self.is_within() {
            println!("{name}: {value:.2} (bound {bound})");
        } else {
            println!(
                "error: {name}: {value:.2} in the best of {runs} runs, out of the bound {bound}: {command}"
            );
        }
        self.is_within()
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::Record;
    use super::*;

    fn row(size: u64, direction: ResultDirection, gb_per_s: f64) -> ResultRow {
        let record = Record { gb_per_s, copy_gb_per_s: Some(10.0), ..Record::default() };
        ResultRow { size, direction, record }
    }

    #[test]
    fn check_plan_has_every_bounded_figure() {
        let planned: Vec<Quantity> =
            plan().iter().flat_map(|runs| &runs.figures).map(|best| best.quantity).collect();
        for (quantity, _) in Goal::checked() {
            assert!(planned.contains(&quantity), "{quantity:?}");
        }
        for quantity in planned {
            assert!(
                Goal::of(quantity, None).is_some_and(|goal| !goal.bound_text().is_empty()),
                "{quantity:?}"
            );
        }
    }

    #[test]
    fn check_values_are_ratios() {
        let rows = [row(4096, ResultDirection::H2c, 9.0), row(4096, ResultDirection::C2h, 8.0)];
        let share = |direction| value(Quantity::CopyShare(4096), direction, None, &rows);
        assert_eq!((share(ResultDirection::C2h), share(ResultDirection::Both)), (Some(0.8), None));
        let both = |rate| [row(65536, ResultDirection::Both, rate)];
        let channels = Quantity::Channels(ChannelQuantity::FourChannels);
        let ratio = value(channels, ResultDirection::Both, Some(&both(10.0)), &both(5.0));
        assert_eq!((ratio, value(channels, ResultDirection::Both, None, &both(5.0))), (Some(0.5), None));
    }

    #[test]
    fn check_best_run_counts_until_the_number_of_undisturbed_runs() {
        let mut runs = plan().remove(0);
        let rows = |rate: f64, busy_cpus| {
            let row = |size| [ResultDirection::H2c, ResultDirection::C2h].map(|way| row(size, way, rate));
            let mut rows: Vec<ResultRow> = [4096, 64 << 10, 1 << 20].into_iter().flat_map(row).collect();
            rows.iter_mut().for_each(|row| row.record.busy_cpus = busy_cpus);
            rows
        };
        assert!(!plan().remove(0).add(None, &[]), "no rows");
        assert!(runs.add(None, &rows(2.9, 1.0)) && runs.is_open());
        for run in 1..MAX_RUNS {
            assert!(runs.add(None, &rows(2.8, 2.0)) && runs.is_open(), "run {run}");
        }
        assert_eq!(runs.figures.iter().filter(|best| !best.report(runs.runs, "")).count(), 6);
        assert!(runs.add(None, &rows(2.8, 2.0)) && !runs.is_open(), "enough undisturbed runs");
        let mut runs = plan().remove(0);
        assert!(runs.is_open() && runs.add(None, &rows(5.0, 1.0)) && !runs.is_open(), "within all bounds");
    }
}
