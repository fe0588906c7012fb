//! Every scheme over sizes, losses, disorder and numbers of destinations: how close the default is to the best one.
//!
//! Host 0 sends a transfer to each destination at the same time. Before that, each destination gets a transfer of 64 KiB, from which the
//! schemes learn the path: their configured round trip is a first guess, sixty times too long. The receiver counter is not compared:
//! it retransmits the whole message for each loss, and without losses it equals the receiver window.

use fpga_netmodel::{Conditions, Delay, Loss, Probability};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::congestion::CongestionConfig;

mod output;

use super::disorder::{DelayDistribution, Delays};
use super::{FigureError, Options, ProgressCallback};
use crate::statistics::seed_of;
use crate::{BitRate, Flow, Scenario, Scheme, Simulation, Topology, parallel};

pub use output::{csv, picture};

/// Transfer before the measured one, in bytes; it starts at time 0.
const WARM_UP: u64 = 64 << 10;
/// Start of the measured transfers: long after the end of the first ones.
const START: Nanos = Nanos::from_millis(20);
/// Size with the fewest runs.
const LARGEST: u64 = 16 << 20;
/// First guess of the round trip.
const GUESS: Nanos = Nanos::from_micros(100);
/// Schemes that are compared; the first one is the default.
const SCHEMES: [Scheme; 5] = [
    Scheme::Registry,
    Scheme::ReceiverWindow,
    Scheme::SenderWindow,
    Scheme::AdaptiveWindow,
    Scheme::Selective,
];

/// Values of the axes. Each combination is a point.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GridAxes {
    /// Bytes of a transfer.
    pub sizes: Vec<u64>,
    /// Shares of lost packets, data and control alike.
    pub losses: Vec<f64>,
    /// Degrees of disorder (source 004): mean over runs of 512 packets of the largest jump in the order of arrival.
    pub disorders: Vec<u32>,
    /// Numbers of destinations.
    pub destinations: Vec<u32>,
    /// Whether senders have congestion windows, as those of endpoints have by default.
    pub congestion: bool,
}

impl GridAxes {
    /// Returns all values.
    #[must_use]
    pub fn full() -> Self {
        Self {
            sizes: vec![512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20],
            losses: vec![0.0, 0.001, 0.005, 0.01, 0.02, 0.05],
            disorders: vec![0, 16, 64, 256],
            destinations: vec![1, 8],
            congestion: true,
        }
    }

    /// Returns a part that takes seconds.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            sizes: vec![512, 32 << 10, 256 << 10],
            losses: vec![0.0, 0.005, 0.05],
            disorders: vec![0, 64],
            destinations: vec![1, 8],
            congestion: true,
        }
    }
}

/// Times of one scheme at a point.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GridCell {
    /// Name of the scheme; `registry-literal`: the default without evidence by order (source 001).
    pub scheme: &'static str,
    /// Median in microseconds, from the submission to the last notification; `None` if more than half of the runs failed.
    pub median_us: Option<f64>,
    /// First and third quartile in microseconds.
    pub quartiles_us: Option<(f64, f64)>,
    /// Packets sent divided by packets needed, mean over the runs.
    pub packets_ratio: f64,
    /// Runs that did not deliver every transfer.
    pub failures: u32,
}

/// Point of the grid.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GridPoint {
    /// Bytes of each transfer.
    pub size: u64,
    /// Share of lost packets.
    pub loss: f64,
    /// Degree of disorder.
    pub disorder: u32,
    /// Number of destinations.
    pub destinations: u32,
    /// Number of runs.
    pub runs: u32,
    /// Times of the schemes: the default first, its literal form last.
    pub cells: Vec<GridCell>,
}

impl GridPoint {
    /// Returns the fastest cell, the literal form excluded.
    #[must_use]
    pub fn best(&self) -> Option<&GridCell> {
        let times = self.cells.iter().take(SCHEMES.len()).filter(|cell| cell.median_us.is_some());
        times.min_by(|one, other| {
            let [one, other] = [one, other].map(|cell| cell.median_us.unwrap_or(f64::INFINITY));
            one.total_cmp(&other)
        })
    }

    /// Returns the default's median divided by the best one; `None` if the default failed.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.cells.first()?.median_us? / self.best()?.median_us?)
    }
}

/// Scenario of a point and a scheme.
fn scenario(
    size: u64,
    loss: f64,
    delay: Delay,
    destinations: u32,
    (scheme, literal): (Scheme, bool),
) -> Scenario {
    let conditions = Conditions::default()
        .loss(Loss::Independent(Probability::new(loss).unwrap_or_default()))
        .delay(delay);
    let mut scenario = Scenario::new(size).rate(BitRate::from_gbps(80)).delay(Nanos::new(800));
    if destinations > 1 {
        let arity = destinations.saturating_add(1);
        scenario = scenario.topology(Topology::Tree { arity, levels: 1, up: 1 }).delay(Nanos::new(400));
    }
    let to = |at| (1..=destinations).map(move |node| Flow { at, ..Flow::new(0, node, size) });
    let first = (1..=destinations).map(|node| Flow::new(0, node, WARM_UP));
    let flows = first.chain(to(START)).collect();
    scenario = scenario.data(conditions).control(conditions).scheme(scheme).flows(flows);
    scenario.round_trip = Some(GUESS);
    scenario.sender.retry.order_evidence = !literal;
    scenario
}

/// Result of one run: the time of the measured transfers in microseconds, packets sent, packets needed.
type RunResult = (Option<f64>, u64, u64);

/// Number of runs of a transfer of `size` bytes: the shorter it is, the more its times vary.
fn runs_of(size: u64, options: &Options) -> usize {
    let more = (LARGEST / size.clamp(1, LARGEST)).isqrt();
    (options.runs.max(1) as usize).saturating_mul(usize::try_from(more).unwrap_or(usize::MAX))
}

/// Number of runs of a grid.
#[must_use]
pub fn runs(axes: &GridAxes, options: &Options) -> u64 {
    let GridAxes { sizes, losses, disorders, destinations, .. } = axes;
    let points = losses.len() * disorders.len() * destinations.len();
    let runs: usize = sizes.iter().map(|size| runs_of(*size, options)).sum();
    (points * (SCHEMES.len() + 1) * runs) as u64
}

/// Runs the grid. Seed and threads are those of `options`; a transfer of 16 MiB has `runs` runs, a shorter one more by the square
/// root of the ratio of the sizes.
///
/// # Errors
/// The first run that fails, in the order of points and seeds; [`FigureError::Stopped`].
pub fn run(
    axes: &GridAxes,
    options: &Options,
    done: &mut ProgressCallback<'_>,
) -> Result<Vec<GridPoint>, FigureError> {
    let mut delays = Delays::new(options.seed);
    let mut points = Vec::new();
    let mut jobs = Vec::new();
    for &destinations in &axes.destinations {
        for &disorder in &axes.disorders {
            let delay = match disorder {
                0 => Delay::default(),
                degree => delays.of(DelayDistribution::Exponential, degree)?,
            };
            for &loss in &axes.losses {
                for &size in &axes.sizes {
                    let variants = SCHEMES.iter().map(|scheme| (*scheme, false));
                    for variant in variants.chain([(Scheme::Registry, true)]) {
                        let mut scenario = scenario(size, loss, delay, destinations, variant);
                        scenario.congestion = axes.congestion.then_some(CongestionConfig::DEFAULT);
                        jobs.push((variant, scenario));
                    }
                    let runs = u32::try_from(runs_of(size, options)).unwrap_or(u32::MAX);
                    points.push(GridPoint { size, loss, disorder, destinations, runs, cells: Vec::new() });
                }
            }
        }
    }
    let numbers = |(at, (_, scenario)): (usize, &(_, Scenario))| {
        let size = scenario.flows.last().map_or(LARGEST, |flow| flow.length);
        (0..runs_of(size, options)).map(move |run| (at, run as u64))
    };
    let all: Vec<(usize, u64)> = jobs.iter().enumerate().flat_map(numbers).collect();
    let job = |number: usize| -> Result<RunResult, FigureError> {
        let found = all.get(number).and_then(|(at, run)| Some((jobs.get(*at)?, *run)));
        let Some(((_, scenario), run)) = found else { return Ok((None, 0, 0)) };
        let seed = seed_of(options.seed, run);
        let report =
            Simulation::new(&scenario.clone().seed(seed)).and_then(Simulation::run).map_err(|source| {
                FigureError::Run { point: format!("grid {}", scenario.scheme.name()), seed, source }
            })?;
        let flows = || report.flows.iter().zip(&scenario.flows).filter(|(_, flow)| flow.at == START);
        let whole = flows().all(|(report, _)| report.is_complete());
        let last = flows().filter_map(|(report, _)| report.received).max().filter(|_| whole);
        let needed = flows().map(|(report, _)| report.packets).sum::<u64>();
        let sent = needed + flows().map(|(report, _)| report.retransmits).sum::<u64>();
        Ok((last.map(|at| super::float(at.saturating_sub(START).get()) / 1000.0), sent, needed))
    };
    let results = parallel::map(all.len(), options.threads, job, |_| done(1));
    let results = results.ok_or(FigureError::Stopped)?.into_iter().collect::<Result<Vec<_>, _>>()?;
    let of = all.chunk_by(|one, other| one.0 == other.0).map(<[_]>::len);
    let cells = jobs.iter().zip(of.scan(0, |end, count| {
        *end += count;
        Some(*end - count..*end)
    }));
    let cells = cells.map(|(((scheme, literal), _), range)| {
        let results = results.get(range).unwrap_or_default();
        cell(if *literal { "registry-literal" } else { scheme.name() }, results)
    });
    let cells: Vec<GridCell> = cells.collect();
    for (point, cells) in points.iter_mut().zip(cells.chunks(SCHEMES.len() + 1)) {
        point.cells = cells.to_vec();
    }
    Ok(points)
}

fn cell(scheme: &'static str, results: &[RunResult]) -> GridCell {
    let mut times: Vec<f64> = results.iter().map(|(time, ..)| time.unwrap_or(f64::INFINITY)).collect();
    times.sort_unstable_by(f64::total_cmp);
    let part = |share: usize| times.get(times.len() * share / 4).copied().filter(|time| time.is_finite());
    let sum = |of: fn(&RunResult) -> u64| super::float(results.iter().map(of).sum::<u64>().max(1));
    GridCell {
        scheme,
        median_us: part(2),
        quartiles_us: part(1).zip(part(3)),
        packets_ratio: sum(|(_, sent, _)| *sent) / sum(|(.., needed)| *needed),
        failures: u32::try_from(results.iter().filter(|(time, ..)| time.is_none()).count())
            .unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ops::ControlFlow;

    /// A part with wide bounds: 1.1 is the aim for many runs of every point.
    fn check_default_scheme(sizes: &[u64], destinations: &[u32], runs: u32) {
        let axes = GridAxes {
            sizes: sizes.to_vec(),
            losses: vec![0.0, 0.02],
            disorders: vec![0, 64],
            destinations: destinations.to_vec(),
            congestion: true,
        };
        let options = Options::new(runs, 1);
        let points = run(&axes, &options, &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(points.len(), 4 * sizes.len() * destinations.len());
        for point in &points {
            let ratio = point.ratio().unwrap();
            assert!(ratio < 1.5, "{ratio:.2}: {point:?}");
            assert!(point.cells.iter().all(|cell| cell.failures == 0), "{point:?}");
        }
    }

    /// 16 runs of each point.
    #[test]
    fn default_scheme_is_near_best_on_lossy_paths() {
        check_default_scheme(&[64 << 10], &[1], 1);
    }

    #[test]
    #[ignore = "long: 60 s: several sizes and destinations, nine times the runs"]
    fn default_scheme_is_near_best_on_lossy_paths_nine_times_the_runs() {
        check_default_scheme(&[4 << 10, 64 << 10], &[1, 8], 9);
    }
}
