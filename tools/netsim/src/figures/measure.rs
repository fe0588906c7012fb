//! Points of a figure: a scenario, run once per seed.

use fpga_netmodel::{Delay, Loss, Order};
use fpga_protocol::Nanos;

use super::{FigureError, Options, ProgressCallback, Row};
use crate::statistics::{self, Summary, seed_of};
use crate::{Report, Scenario, Simulation, parallel};

/// Runs per job: enough to make the cost of distributing jobs negligible.
pub(super) const BLOCK: usize = 20;

/// Point of a figure before it is run.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// CSV fields known in advance.
    pub(super) row: Row,
    pub(super) scenario: Scenario,
    /// Whether the point is deterministic: one run is sufficient.
    pub(super) certain: bool,
}

impl Point {
    /// Creates a point with the scenario's own numbers in its row.
    pub(super) fn new(scenario: Scenario) -> Self {
        let row = Row {
            scheme: crate::scenario::scheme_name(scenario.scheme).to_owned(),
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
        Self { row, scenario, certain }
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Row)) -> Self {
        change(&mut self.row);
        self
    }
}

/// Result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    /// Time from the first submission until the last receiving application was notified; `None` if that did not happen.
    whole: Option<Nanos>,
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

fn outcome(report: &Report) -> Outcome {
    let received = report.flows.iter().filter_map(|flow| flow.received).max();
    let begun = report.flows.iter().map(|flow| flow.begun).min().unwrap_or(Nanos::ZERO);
    let failures = report.failures() as u64;
    let needed = report.flows.iter().map(|flow| flow.packets).sum::<u64>();
    let rates: Vec<f64> = report
        .flows
        .iter()
        .map(|flow| flow.latency().map_or(0.0, |span| 1.0 / float(span.get().max(1))))
        .collect();
    Outcome {
        whole: received.filter(|_| failures == 0).map(|at| at.saturating_sub(begun)),
        needed,
        sent: needed + report.flows.iter().map(|flow| flow.retransmits).sum::<u64>(),
        failures,
        jain: statistics::jain(&rates),
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts and nanoseconds far below 2^53")]
pub(crate) const fn float(number: u64) -> f64 {
    number as f64
}

/// Runs every point as often as the options specify.
///
/// # Errors
/// The first run that fails, in the order of points and seeds; [`FigureError::Stopped`].
pub(super) fn measure(
    points: Vec<Point>,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<Vec<Measured>, FigureError> {
    let runs = |point: &Point| if point.certain { 1 } else { options.runs as usize };
    // Blocks of runs: point, and its first run.
    let jobs: Vec<(usize, usize)> = points
        .iter()
        .enumerate()
        .flat_map(|(number, point)| (0..runs(point)).step_by(BLOCK).map(move |first| (number, first)))
        .collect();
    let job = |number: usize| {
        let Some(&(number, first)) = jobs.get(number) else { return Ok(Vec::new()) };
        let Some(point) = points.get(number) else { return Ok(Vec::new()) };
        (first..runs(point).min(first + BLOCK))
            .map(|run| {
                let seed = seed_of(options.seed, run as u64);
                let run = Simulation::new(&point.scenario.clone().seed(seed)).and_then(Simulation::run);
                run.map(|report| outcome(&report)).map_err(|source| FigureError::Run {
                    point: format!("{} {}", point.row.figure, point.row.scheme),
                    seed,
                    source,
                })
            })
            .collect::<Result<Vec<_>, _>>()
    };
    let on_result = |result: &Result<Vec<Outcome>, FigureError>| {
        done(result.as_ref().map_or(0, |runs| runs.len() as u64))
    };
    let results = parallel::map(jobs.len(), options.threads, job, on_result).ok_or(FigureError::Stopped)?;
    let mut outcomes: Vec<Vec<Outcome>> = vec![Vec::new(); points.len()];
    for (result, (number, _)) in results.into_iter().zip(&jobs) {
        if let Some(place) = outcomes.get_mut(*number) {
            place.extend(result?);
        }
    }
    Ok(points
        .into_iter()
        .zip(outcomes)
        .map(|(point, runs)| measured(point.row, &runs, point.scenario.flows.len() > 1, options.seed))
        .collect())
}

fn measured(mut row: Row, runs: &[Outcome], several: bool, seed: u64) -> Measured {
    let samples: Vec<f64> =
        runs.iter().filter_map(|run| run.whole).map(|span| float(span.get()) / 1000.0).collect();
    let summary = statistics::summarise(&samples, seed);
    let again: Vec<f64> = runs
        .iter()
        .filter(|run| run.needed > 0)
        .map(|run| float(run.sent - run.needed) / float(run.needed))
        .collect();
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
