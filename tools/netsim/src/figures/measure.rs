//! Points of a figure: a scenario, run once per seed.

use fpga_netmodel::{Delay, Loss, Order};
use fpga_protocol::Nanos;

use super::pairs::pairs;
use super::{FigureError, Options, ProgressCallback, Row};
use crate::numbers::float;
use crate::statistics::{self, Summary, seed_of};
use crate::{FlowReport, Report, Scenario, Simulation, parallel};

/// Runs per job: enough to make the cost of distributing jobs negligible.
pub(super) const BLOCK: usize = 20;
/// Runs of a point before its interval is examined for the first time: of one flow, and of several.
const FIRST_RUNS: [usize; 2] = [30, 8];
/// Divisors of the runs of a point with several flows, which take longer: incast, and random pairs in a torus, whose mean differs less.
const SEVERAL: u32 = 16;
const PAIRS: u32 = 40;
/// Minimum number of runs from which an interval is computed.
const MIN_RUNS: u32 = 3;
/// Sufficient width of the interval of retransmissions per packet needed, in widths of the time's interval: a constant, because the
/// retransmissions of many points are almost none, and a multiple of the retransmissions.
const NARROW_AGAIN: (f64, f64) = (0.4, 4.0);

/// Point of a figure before it is run.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// CSV fields known in advance.
    pub(super) row: Row,
    pub(super) scenario: Scenario,
    /// Whether the point is deterministic: one run is sufficient.
    pub(super) certain: bool,
    /// Whether each run draws the pairs of hosts anew, and its result is the mean of its flows: a torus.
    pub(super) pairs: bool,
}

impl Point {
    /// Creates a point with the scenario's own numbers in its row.
    pub(super) fn new(scenario: Scenario) -> Self {
        let row = Row {
            scheme: scenario.scheme.name().to_owned(),
            topology: scenario.topology.to_string(),
            size_bytes: scenario.flows.first().map(|flow| flow.length),
            packet_bytes: Some(scenario.sender.packet_size().into()),
            ..Row::default()
        };
        let quiet = |delay: Delay| matches!(delay, Delay::Constant(_));
        let certain = scenario.impairments().is_none()
            || scenario.data.loss == Loss::default()
                && scenario.control.loss == Loss::default()
                && quiet(scenario.data.delay)
                && quiet(scenario.control.delay)
                && scenario.order == Order::InOrder;
        Self { row, scenario, certain, pairs: false }
    }

    /// Maximum number of runs.
    fn runs(&self, options: &Options) -> usize {
        let most = if self.certain {
            1
        } else if self.pairs {
            most_of_pairs(options)
        } else if self.scenario.flows.len() > 1 {
            most_of_several(options)
        } else {
            options.runs
        };
        most as usize
    }

    /// Runs before the interval is examined.
    const fn first_runs(&self) -> usize {
        let [single, several] = FIRST_RUNS;
        if self.scenario.flows.len() > 1 { several } else { single }
    }

    /// Runs per job.
    const fn block(&self) -> usize {
        if self.scenario.flows.len() > 1 { 1 } else { BLOCK }
    }

    /// One run.
    fn run(&self, seed: u64) -> Result<Outcome, FigureError> {
        let mut scenario = self.scenario.clone().seed(seed);
        if self.pairs {
            scenario = pairs(scenario, self.row.size_bytes.unwrap_or(1), seed);
        }
        let run = Simulation::new(&scenario).and_then(Simulation::run);
        run.map(|report| outcome(&report, self.pairs)).map_err(|source| FigureError::Run {
            point: format!("{} {}", self.row.figure, self.row.scheme),
            seed,
            source,
        })
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Row)) -> Self {
        change(&mut self.row);
        self
    }
}

/// Maximum number of runs of a point with several flows.
pub(super) const fn most_of_several(options: &Options) -> u32 {
    part(options, SEVERAL)
}

/// Maximum number of runs of a point of random pairs.
pub(super) const fn most_of_pairs(options: &Options) -> u32 {
    part(options, PAIRS)
}

const fn part(options: &Options, divisor: u32) -> u32 {
    let runs = options.runs / divisor;
    let least = if options.runs < MIN_RUNS { options.runs } else { MIN_RUNS };
    if runs > least { runs } else { least }
}

/// Result of one run.
#[derive(Clone, Debug, Default, PartialEq)]
struct Outcome {
    /// Microseconds from the first submission until the last receiving application was notified, or the mean of the flows' own times;
    /// `None` if that did not happen.
    time: Option<f64>,
    /// Times of the flows, if `time` is their mean.
    each: Vec<f64>,
    needed: u64,
    sent: u64,
    failures: u64,
    jain: f64,
}

/// Point with the results of its runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) row: Row,
    pub(super) summary: Option<Summary>,
    /// Mean of Jain's index over the flows' rates, and half the width of its 95 % interval.
    pub(super) jain: f64,
    pub(super) jain_half_width: f64,
    /// Retransmissions divided by packets needed.
    pub(super) again: f64,
    /// Half the width of the 95 % interval of `again`.
    pub(super) again_half_width: f64,
}

impl Measured {
    /// Mean in microseconds; NaN if every run failed.
    pub(super) fn mean(&self) -> f64 {
        self.summary.map_or(f64::NAN, |summary| summary.mean)
    }

    /// Half the width of the mean's 95 % interval, divided by the mean.
    fn error(&self) -> f64 {
        self.summary.map_or(0.0, |summary| summary.half_width / summary.mean)
    }

    /// Mean and its relative error, as a reference for others; the error is 0 for a deterministic point.
    pub(super) fn ideal(&self) -> (f64, f64) {
        (self.mean(), self.error())
    }

    /// Sets the speed relative to an ideal: microseconds, and their relative error. The errors of both are treated as independent. They
    /// come from the same random numbers, so the interval is too wide rather than too narrow.
    pub(super) fn against(&mut self, (ideal, error): (f64, f64)) {
        self.row.speed_ratio = self.summary.map(|summary| ideal / summary.mean);
        self.row.speed_ci95 = self.row.speed_ratio.map(|ratio| ratio * self.error().hypot(error));
    }

    /// Sets the speed of the ideal itself to exactly 1.
    pub(super) fn is_ideal(&mut self) {
        self.row.speed_ci95 = self.row.speed_ratio.map(|_| 0.0);
    }

    /// Half the width of the speed ratio's confidence interval.
    pub(super) fn speed_half_width(&self) -> f64 {
        self.row.speed_ci95.unwrap_or(0.0)
    }
}

fn micros(span: Nanos) -> f64 {
    float(span.get()) / 1000.0
}

fn outcome(report: &Report, is_mean: bool) -> Outcome {
    let received = report.flows.iter().filter_map(|flow| flow.received).max();
    let begun = report.flows.iter().map(|flow| flow.begun).min().unwrap_or(Nanos::ZERO);
    let failures = report.failures() as u64;
    let needed = report.flows.iter().map(|flow| flow.packets).sum::<u64>();
    let latencies = || report.flows.iter().map(FlowReport::latency);
    let rates: Vec<f64> =
        latencies().map(|span| span.map_or(0.0, |span| 1.0 / float(span.get().max(1)))).collect();
    let each: Vec<f64> = if is_mean { latencies().flatten().map(micros).collect() } else { Vec::new() };
    let time = if is_mean {
        Some(each.iter().sum::<f64>() / float(each.len().max(1) as u64))
    } else {
        received.map(|at| micros(at.saturating_sub(begun)))
    };
    Outcome {
        time: time.filter(|_| failures == 0),
        each,
        needed,
        sent: needed + report.flows.iter().map(|flow| flow.retransmits).sum::<u64>(),
        failures,
        jain: statistics::jain(&rates),
    }
}

/// Runs every point until its interval is narrow ([`Options::narrow`]), at most as often as the options specify. The number of runs follows from the
/// results of the runs with the lowest numbers, so it does not depend on threads.
///
/// # Errors
/// The first run that fails, in the order of points and seeds; [`FigureError::Stopped`].
pub(super) fn measure(
    points: Vec<Point>,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<Vec<Measured>, FigureError> {
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); points.len()];
    let first = |point: &Point| point.first_runs().min(point.runs(options));
    let mut wanted: Vec<usize> = points.iter().map(first).collect();
    loop {
        // Blocks of runs: point, first run, end.
        let mut jobs: Vec<(usize, usize, usize)> = Vec::new();
        for (number, ((point, runs), end)) in points.iter().zip(&outcomes).zip(&wanted).enumerate() {
            let starts = (runs.len()..*end).step_by(point.block());
            jobs.extend(starts.map(|start| (number, start, (*end).min(start + point.block()))));
        }
        if jobs.is_empty() {
            break;
        }
        let job = |number: usize| {
            let Some(&(number, start, end)) = jobs.get(number) else { return Ok(Vec::new()) };
            let Some(point) = points.get(number) else { return Ok(Vec::new()) };
            (start..end).map(|run| point.run(seed_of(options.seed, run as u64))).collect()
        };
        let on_result = |result: &Result<Vec<Outcome>, FigureError>| {
            done(result.as_ref().map_or(0, |runs| runs.len() as u64))
        };
        let results =
            parallel::map(jobs.len(), options.threads, job, on_result).ok_or(FigureError::Stopped)?;
        for (result, (number, ..)) in results.into_iter().zip(&jobs) {
            if let Some(place) = outcomes.get_mut(*number) {
                place.extend(result?);
            }
        }
        for ((point, runs), end) in points.iter().zip(&outcomes).zip(&mut wanted) {
            *end = sufficient(runs, point.runs(options), options.narrow);
        }
    }
    // The omitted runs count as done.
    let omitted = points.iter().zip(&outcomes).map(|(point, runs)| point.runs(options) - runs.len());
    if done(omitted.sum::<usize>() as u64).is_break() {
        return Err(FigureError::Stopped);
    }
    Ok(points
        .into_iter()
        .zip(outcomes)
        .map(|(point, runs)| measured(point.row, &runs, point.scenario.flows.len() > 1, options.seed))
        .collect())
}

/// Number of runs that a point needs, by the runs that it has: as many as it has if its intervals are narrow, at most `most`.
fn sufficient(runs: &[Outcome], most: usize, narrow: f64) -> usize {
    let times: Vec<f64> = runs.iter().filter_map(|run| run.time).collect();
    let (mean, half) = statistics::mean(&times);
    let (mean_again, half_again) = statistics::mean(&again(runs));
    let narrow_again = narrow * mean_again.mul_add(NARROW_AGAIN.1, NARROW_AGAIN.0);
    // Both intervals narrow with the root of the number of runs.
    let over = (half / (mean * narrow)).max(half_again / narrow_again);
    if over.is_nan() || over <= 1.0 {
        return runs.len();
    }
    // At most four times as many at once: the first estimate of a rare event is poor.
    let factor = (over * over * 1.05).clamp(1.1, 4.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let more = (factor * float(runs.len() as u64)).ceil() as usize;
    more.next_multiple_of(BLOCK).min(most).max(runs.len())
}

/// Retransmissions of each run, divided by the packets needed.
fn again(runs: &[Outcome]) -> Vec<f64> {
    let runs = runs.iter().filter(|run| run.needed > 0);
    runs.map(|run| float(run.sent - run.needed) / float(run.needed)).collect()
}

fn measured(mut row: Row, runs: &[Outcome], several: bool, seed: u64) -> Measured {
    let samples: Vec<f64> = runs.iter().filter_map(|run| run.time).collect();
    let mut summary = statistics::summarise(&samples, seed);
    let each: Vec<f64> = runs.iter().flat_map(|run| &run.each).copied().collect();
    if let (Some(summary), Some(flows)) = (&mut summary, statistics::summarise(&each, seed)) {
        summary.p99 = flows.p99;
    }
    let again = again(runs);
    let repeated = statistics::summarise(&again, seed).unwrap_or_default();
    row.mean_us = summary.map(|summary| summary.mean);
    row.ci95_us = summary.map(|summary| summary.half_width);
    row.p99_us = summary.map(|summary| summary.p99.value);
    (row.p99_low_us, row.p99_high_us) =
        (summary.map(|summary| summary.p99.low), summary.map(|summary| summary.p99.high));
    row.packets_ratio = Some(1.0 + repeated.mean);
    row.packets_ci95 = Some(repeated.half_width);
    row.failures = Some(runs.iter().map(|run| run.failures).sum());
    row.runs = Some(runs.len() as u64);
    row.seed = Some(seed);
    let fair: Vec<f64> = runs.iter().map(|run| run.jain).collect();
    let fair = statistics::summarise(&fair, seed).unwrap_or_default();
    if several {
        (row.jain, row.jain_ci95) = (Some(fair.mean), Some(fair.half_width));
    }
    Measured {
        row,
        summary,
        jain: fair.mean,
        jain_half_width: fair.half_width,
        again: repeated.mean,
        again_half_width: repeated.half_width,
    }
}
