//! Scenario over many seeds: results of every flow of every run, as data, as a picture, and as a summary line.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_protocol::Nanos;
use fpga_registers::quantity;

use crate::explain::{Explanation, QueueReport, SeriesReport, explain};
use crate::figures::picture::{Curve, CurveKind, Extent, Panel, Picture};
use crate::statistics::{self, Summary, count, seed_of};
use crate::{FlowReport, LinkFeedbackCounts, Report, Scenario, Simulation, SimulationError, parallel};

/// CSV header of a sweep.
pub const HEADER: &str =
    "seed,flow,from,to,size_bytes,begun_us,received_us,completed_us,packets,retransmits,error";

/// Combined results of all runs.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Sweep {
    /// Name of the scheme.
    pub scheme: &'static str,
    /// Name of the topology.
    pub topology: String,
    /// Number of runs.
    pub runs: u64,
    /// Number of flows of all runs.
    pub flows: u64,
    /// Flows that did not succeed at both ends.
    pub failures: u64,
    /// Microseconds from a flow's submission until its receiver was notified; `None` if none was.
    pub latency_us: Option<Summary>,
    /// Payload of a run divided by the time from its first submission to its last notice, in GB/s; mean of all runs without a failure.
    pub goodput_gb_per_s: f64,
    /// Jain's index of the flows' rates, mean of all runs.
    pub fairness: f64,
    /// Data packets sent divided by those needed.
    pub packets_ratio: f64,
    /// Packets dropped because a switch's queue was full.
    pub dropped: u64,
    /// Events: whatever happens at a time, such as the arrival of a packet or the wake-up of a host.
    pub events: u64,
    /// Packets at switches and hosts, one for each packet and hop.
    pub packet_events: u64,
    /// Total simulated time.
    pub simulated: Nanos,
    /// First error of a flow, in words.
    pub first_error: Option<String>,
    /// Packets lost because a link failed, or no route was left.
    pub cut: u64,
    /// Packets whose payload a full queue cut.
    pub trimmed: u64,
    /// Data packets that arrived with a mark of congestion (ECN).
    pub marked: u64,
    /// Counts of link feedback; `None` if the scenario has no controller.
    pub links: Option<LinkFeedbackCounts>,
    /// Seed of the run that is explained: the one with the largest delay of a flow.
    pub explained_seed: u64,
    /// Causes of its slow flows.
    pub explanation: Explanation,
    /// Its queues, the one with the longest waits first; at most 16.
    pub queues: Vec<QueueReport>,
    /// Series of the first run.
    pub series: Option<SeriesReport>,
    /// One line for each flow of each run, with a header.
    pub csv: String,
    /// Distribution of the flows' times.
    pub picture: Picture,
}

/// Failure of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seed {seed}: {source}")]
pub struct SweepError {
    /// Seed of the run.
    pub seed: u64,
    /// Reason.
    pub r#source: SimulationError,
}

/// Seed of run `number`: the scenario's own for the first.
#[must_use]
pub const fn seed_of_run(scenario: &Scenario, number: u64) -> u64 {
    if number == 0 { scenario.seed } else { seed_of(scenario.seed, number) }
}

/// Runs a scenario with its own seed and with derived ones, on the given number of threads, until `stop` is set. `done` is called for each
/// run.
///
/// # Errors
/// The first run that fails, by number; [`SimulationError::Stopped`].
pub fn run(
    scenario: &Scenario,
    runs: usize,
    threads: usize,
    stop: &AtomicBool,
    mut done: impl FnMut(),
) -> Result<Sweep, SweepError> {
    let job = |number: usize| {
        let seed = seed_of_run(scenario, number as u64);
        let mut scenario = scenario.clone().seed(seed);
        scenario.observe = true;
        let report = Simulation::new(&scenario).and_then(|run| run.run_with_stop(stop));
        report.map_err(|source| SweepError { seed, source })
    };
    let on_result = |_: &Result<Report, SweepError>| {
        done();
        if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let Some(reports) = parallel::map(runs, threads, job, on_result) else {
        return Err(SweepError { seed: scenario.seed, source: SimulationError::Stopped { at: Nanos::ZERO } });
    };
    let reports = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(summarise(scenario, &reports))
}

fn micros(span: Nanos) -> f64 {
    crate::numbers::float(span.get()) / 1000.0
}

fn line(csv: &mut String, scenario: &Scenario, seed: u64, number: usize, report: &FlowReport) {
    let Some(flow) = scenario.flows.get(number) else { return };
    let time = |at: Option<Nanos>| at.map(|at| format!("{:.3}", micros(at))).unwrap_or_default();
    // The text of an error may contain commas and quotes.
    let error = report.error.map(|error| format!("\"{}\"", error.to_string().replace('"', "\"\"")));
    let _ = writeln!(
        csv,
        "{seed},{number},{},{},{},{:.3},{},{},{},{},{}",
        flow.from,
        flow.to,
        flow.length,
        micros(report.begun),
        time(report.received),
        time(report.completed),
        report.packets,
        report.retransmits,
        error.unwrap_or_default()
    );
}

fn summarise(scenario: &Scenario, reports: &[Report]) -> Sweep {
    let mut sweep = Sweep {
        scheme: scenario.scheme.name(),
        topology: scenario.topology.to_string(),
        runs: reports.len() as u64,
        csv: format!("{HEADER}\n"),
        ..Sweep::default()
    };
    let (mut samples, mut rates, mut fair) = (Vec::new(), Vec::new(), 0.0);
    let (mut needed, mut again) = (0_u64, 0_u64);
    for (number, report) in (0..).zip(reports) {
        let seed = seed_of_run(scenario, number);
        for (flow, of) in report.flows.iter().enumerate() {
            line(&mut sweep.csv, scenario, seed, flow, of);
            (needed, again) = (needed + of.packets, again + of.retransmits);
            if let Some(error) = of.error
                && sweep.first_error.is_none()
            {
                sweep.first_error = Some(format!("seed {seed}, flow {flow}: {error}"));
            }
        }
        sweep.flows += report.flows.len() as u64;
        sweep.failures += report.failures() as u64;
        samples.extend(report.flows.iter().filter_map(FlowReport::latency).map(micros));
        let shares = report.flows.iter().zip(&scenario.flows);
        let shares: Vec<f64> =
            shares.map(|(of, flow)| crate::numbers::float(of.goodput(flow.length).get())).collect();
        fair += statistics::jain(&shares);
        let begun = report.flows.iter().map(|flow| flow.begun).min().unwrap_or(Nanos::ZERO);
        let last = report.flows.iter().filter_map(|flow| flow.received).max();
        if let Some(last) = last.filter(|_| report.failures() == 0) {
            let bytes: u64 = scenario.flows.iter().map(|flow| flow.length).sum();
            // Bytes per nanosecond are GB/s.
            rates.push(
                crate::numbers::float(bytes) / crate::numbers::float(last.saturating_sub(begun).get().max(1)),
            );
        }
        sweep.dropped += report.dropped;
        if scenario.controller.is_some() {
            sweep.links = Some(sweep.links.unwrap_or_default().merged(&report.links));
        }
        sweep.cut += report.cut;
        sweep.trimmed += report.trimmed;
        sweep.marked += report.flows.iter().map(|flow| flow.marked).sum::<u64>();
        let explanation = explain(scenario, report);
        let worst = |of: &Explanation| of.slow.first().map(|flow| flow.excess);
        if number == 0 || worst(&explanation) > worst(&sweep.explanation) {
            (sweep.explained_seed, sweep.explanation) = (seed, explanation);
            sweep.queues.clone_from(&report.queues);
        }
        if number == 0 {
            sweep.series.clone_from(&report.series);
        }
        sweep.events += report.events;
        sweep.packet_events += report.packet_events;
        sweep.simulated = sweep.simulated.saturating_add(report.ended);
    }
    sweep
        .queues
        .sort_by_key(|queue| (core::cmp::Reverse((queue.waited, queue.dropped + queue.cut)), queue.port));
    sweep.queues.truncate(16);
    sweep.latency_us = statistics::summarise(&samples, scenario.seed);
    // An empty sum of floats is -0.
    sweep.goodput_gb_per_s = rates.iter().fold(0.0, |sum, rate| sum + rate) / count(rates.len().max(1));
    sweep.fairness = fair / count(reports.len().max(1));
    sweep.packets_ratio = crate::numbers::float(needed + again) / crate::numbers::float(needed.max(1));
    sweep.picture = distribution(scenario, &sweep, samples);
    sweep
}

/// Fraction of flows over the time at which their receivers were notified.
fn distribution(scenario: &Scenario, sweep: &Sweep, mut samples: Vec<f64>) -> Picture {
    samples.sort_unstable_by(f64::total_cmp);
    let all = count(usize::try_from(sweep.flows).unwrap_or(usize::MAX).max(1));
    // A thousand steps appear as smooth as a million.
    let step = samples.len().div_ceil(1000).max(1);
    let last = samples.len().saturating_sub(1);
    let kept = samples.iter().enumerate().filter(|(place, _)| place % step == 0 || *place == last);
    let points = kept.map(|(place, sample)| (*sample, count(place + 1) / all * 100.0, 0.0));
    let curve = Curve::new(sweep.scheme, 0).style(CurveKind::Thin).points(points);
    Picture {
        title: format!("{} on {}", sweep.scheme, sweep.topology),
        caption: vec![
            format!(
                "{} in {}, {}, seed {}; {} Gbit/s, {} one way per link, packets of {} bytes",
                quantity(sweep.flows, "flow"),
                quantity(sweep.runs, "run"),
                quantity(sweep.failures, "failure"),
                scenario.seed,
                scenario.rate.get() / 1_000_000_000,
                scenario.delay,
                scenario.sender.packet_size()
            ),
            "time: submission of a flow to its receiver's notice".to_owned(),
        ],
        columns: 1,
        panels: vec![Panel {
            x_label: "time (µs)".to_owned(),
            y_label: "flows that have arrived (%)".to_owned(),
            y_extent: Extent::Between(0.0, 102.0),
            curves: vec![curve],
            ..Panel::default()
        }],
    }
}
