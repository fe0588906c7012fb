//! `sim run` and `sim figure`: runs the simulator.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fpga_input::FileKind;
use fpga_netsim::figures::picture::Picture;
use fpga_netsim::figures::{Figure, Options, RenderedFigure};
use fpga_netsim::sweep::{self, Sweep};
use fpga_netsim::{SimulationError, file, parallel};
use fpga_registers::quantity;
use serde::Serialize;

use super::sim_explain::ExplainedReport;
use crate::card_runs;
use crate::chart;
use crate::cli::{SimFigureArgs, SimRunArgs};
use crate::error::CliError;
use crate::outfile::{self, OutFile};
use crate::output::Report;
use crate::progress::Deadline;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;
use crate::stream::{is_stdin, read_yaml};

/// Result of a scenario.
#[derive(Debug, Serialize)]
pub struct RunReport {
    scenario: String,
    scheme: &'static str,
    topology: String,
    runs: u64,
    seed: u64,
    flows: u64,
    failures: u64,
    first_error: Option<String>,
    mean_us: Option<f64>,
    ci95_us: Option<f64>,
    p99_us: Option<f64>,
    p99_low_us: Option<f64>,
    p99_high_us: Option<f64>,
    goodput_gb_per_s: f64,
    fairness: f64,
    packets_ratio: f64,
    dropped: u64,
    events: u64,
    /// Events divided by the time of all runs together, building the networks included.
    events_per_s: u64,
    packet_events: u64,
    simulated_s: f64,
    #[serde(flatten)]
    explained: ExplainedReport,
    csv: String,
    /// Null if the data went to standard output.
    svg: Option<String>,
    /// Chart for people, if it can be shown.
    #[serde(skip)]
    chart: String,
}

impl Report for RunReport {
    fn text(&self) -> String {
        let times = match (self.mean_us, self.ci95_us, self.p99_us) {
            (Some(mean), Some(half), Some(p99)) => format!("mean {mean:.2} ± {half:.2} µs, p99 {p99:.2} µs"),
            _ => "no flow has arrived".to_owned(),
        };
        let error =
            self.first_error.as_ref().map(|error| format!("first failure: {error}\n")).unwrap_or_default();
        format!(
            "{} on {}: {} in {}, {}; {times}; {:.3} GB/s a run, fairness {:.3}, {:.4} packets sent per packet needed, \
             {} dropped, {}, {} at {}.{} million/s\n{error}{}{}\n{}\n{}",
            self.scheme,
            self.topology,
            quantity(self.flows, "flow"),
            quantity(self.runs, "run"),
            quantity(self.failures, "failure"),
            self.goodput_gb_per_s,
            self.fairness,
            self.packets_ratio,
            self.dropped,
            quantity(self.packet_events, "packet event"),
            quantity(self.events, "event"),
            self.events_per_s / 1_000_000,
            self.events_per_s / 100_000 % 10,
            self.explained.text(),
            self.csv,
            self.svg.as_deref().unwrap_or_default(),
            self.chart
        )
    }
}

fn threads(wanted: Option<u16>) -> usize {
    wanted.map_or_else(parallel::processors, usize::from)
}

/// Runs `job`, and sets its flag on a signal or at the deadline: a simulation reads no clock, so a second thread checks meanwhile.
pub(super) fn until_stopped<R>(
    deadline: Deadline,
    what: &(dyn Fn() -> String + Sync),
    job: impl FnOnce(&AtomicBool) -> R,
) -> R {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if stop::is_asked() || deadline.check_time(what).is_err() {
                    ended.store(true, Ordering::Relaxed);
                }
                thread::park_timeout(Duration::from_millis(20));
            }
        });
        let result = job(&ended);
        ended.store(true, Ordering::Relaxed);
        watch.thread().unpark();
        result
    })
}

/// Creates the directory for results, unless they go to standard output.
pub(super) fn directory(out: &Path) -> Result<(), CliError> {
    if outfile::is_stdout(out) {
        return Ok(());
    }
    std::fs::create_dir_all(out).map_err(|source| CliError::file(out, "write results there", source))
}

/// Writes data and picture of `name` to `out`, and returns the paths; to standard output it writes only the data.
pub(super) fn write(
    out: &Path,
    name: &str,
    csv: &str,
    picture: &Picture,
    deadline: Deadline,
) -> Result<(String, Option<String>), CliError> {
    if outfile::is_stdout(out) {
        OutFile::write_whole(out, csv.as_bytes(), deadline)?;
        return Ok((out.display().to_string(), None));
    }
    let csv = write_file(out, &format!("{name}.csv"), csv, deadline)?;
    Ok((csv, Some(write_file(out, &format!("{name}.svg"), picture.svg(), deadline)?)))
}

pub(super) fn write_file(
    out: &Path,
    name: &str,
    content: impl AsRef<[u8]>,
    deadline: Deadline,
) -> Result<String, CliError> {
    let path = out.join(name);
    OutFile::write_whole(&path, content.as_ref(), deadline)?;
    Ok(path.display().to_string())
}

/// Runs `sim run`.
pub fn run(settings: &Settings, args: &SimRunArgs) -> Result<RunReport, CliError> {
    let text = read_yaml(FileKind::SCENARIO, &args.scenario, settings.deadline)?;
    let mut scenario = file::parse(&args.scenario.display().to_string(), &text)?;
    scenario.seed = args.seed.unwrap_or(scenario.seed);
    stop::handle_signals()?;
    directory(&args.out)?;
    let progress = Progress::counting(args.runs.into(), "runs", settings.progress);
    let mut runs = 0;
    let count = usize::try_from(args.runs).unwrap_or(usize::MAX);
    let what = || format!("sim run {}", args.scenario.display());
    let (sweep, span) = until_stopped(settings.deadline, &what, |ended| {
        tracing::info!(runs = count, "simulating");
        let begun = Instant::now();
        let sweep = sweep::run(&scenario, count, threads(args.threads), ended, || {
            runs += 1;
            progress.at(runs);
        });
        (sweep, begun.elapsed())
    });
    drop(progress);
    if matches!(&sweep, Err(error) if matches!(error.source, SimulationError::Stopped { .. })) {
        stop::check(format!("{} after {runs} of {}", what(), quantity(count, "run")), "nothing was written")?;
        settings.deadline.check_time(what)?;
    }
    let sweep = sweep.map_err(|error| CliError::failed(format!("{}: {error}", args.scenario.display())))?;
    // The files are named after the scenario's.
    let name = if is_stdin(&args.scenario) { Path::new("scenario") } else { &args.scenario };
    let name = name.file_stem().unwrap_or_default().to_string_lossy();
    let (csv, svg) = write(&args.out, &name, &sweep.csv, &sweep.picture, settings.deadline)?;
    let chart = chart::text_beside_report(&sweep.picture, args.chart, settings);
    let explained = ExplainedReport::of(&scenario, &sweep);
    let events_per_s = u128::from(sweep.events) * 1_000_000_000 / span.as_nanos().max(1);
    let events_per_s = u64::try_from(events_per_s).unwrap_or(u64::MAX);
    Ok(RunReport { chart, events_per_s, ..report(args, scenario.seed, sweep, explained, csv, svg) })
}

fn report(
    args: &SimRunArgs,
    seed: u64,
    sweep: Sweep,
    explained: ExplainedReport,
    csv: String,
    svg: Option<String>,
) -> RunReport {
    let latency = sweep.latency_us;
    RunReport {
        scenario: args.scenario.display().to_string(),
        scheme: sweep.scheme,
        topology: sweep.topology,
        runs: sweep.runs,
        seed,
        flows: sweep.flows,
        failures: sweep.failures,
        first_error: sweep.first_error,
        mean_us: latency.map(|latency| latency.mean),
        ci95_us: latency.map(|latency| latency.half_width),
        p99_us: latency.map(|latency| latency.p99.value),
        p99_low_us: latency.map(|latency| latency.p99.low),
        p99_high_us: latency.map(|latency| latency.p99.high),
        goodput_gb_per_s: sweep.goodput_gb_per_s,
        fairness: sweep.fairness,
        packets_ratio: sweep.packets_ratio,
        dropped: sweep.dropped,
        events: sweep.events,
        events_per_s: 0,
        packet_events: sweep.packet_events,
        simulated_s: std::time::Duration::from(sweep.simulated).as_secs_f64(),
        explained,
        csv,
        svg,
        chart: String::new(),
    }
}

/// Figures that were made.
#[derive(Debug, Serialize)]
pub struct FiguresReport {
    figures: Vec<FigureReport>,
    runs: u32,
    seed: u64,
    failures: u64,
}

/// One figure.
#[derive(Debug, Serialize)]
struct FigureReport {
    name: &'static str,
    csv: String,
    /// Null if the data went to standard output.
    svg: Option<String>,
    /// Null if the data went to standard output, or the program was built without the feature `png`.
    png: Option<String>,
    /// Path of its intervals; a figure without measurements has none.
    intervals: Option<String>,
    points: u64,
    failures: u64,
    findings: Vec<String>,
    #[serde(skip)]
    chart: String,
}

impl Report for FiguresReport {
    fn text(&self) -> String {
        let mut text = String::new();
        for figure in &self.figures {
            text += &format!("{}: {}", figure.name, figure.csv);
            for file in [&figure.svg, &figure.png].into_iter().flatten() {
                text += &format!(", {file}");
            }
            text.push('\n');
            for finding in &figure.findings {
                text += &format!("  {finding}\n");
            }
            if figure.failures > 0 {
                text += &format!("  {}\n", quantity(figure.failures, "failure"));
            }
            text += &figure.chart;
        }
        text
    }
}

/// Runs `sim figure`.
pub fn figure(settings: &Settings, args: &SimFigureArgs) -> Result<FiguresReport, CliError> {
    let usual = if args.quick { Options::QUICK_RUNS } else { Options::PUBLISHED_RUNS };
    let mut options = Options::new(args.runs.unwrap_or(usual), args.seed);
    options.threads = threads(args.threads);
    options.cards = Some(card_runs::run);
    let wanted = args.name.figures();
    if outfile::is_stdout(&args.out) && wanted.len() > 1 {
        return Err(CliError::usage(format!(
            "--out {}: the data of {} figures have no common table",
            args.out.display(),
            wanted.len()
        ))
        .advise("name one figure, or a folder"));
    }
    directory(&args.out)?;
    let total = wanted.iter().map(|figure| figure.runs(&options)).sum();
    let progress = Progress::counting(total, "runs", settings.progress);
    let (mut runs, mut figures) = (0, Vec::new());
    for figure in wanted {
        progress.phase(figure.name());
        let what = || format!("sim figure {}", figure.name());
        // Written figures are complete: a figure's files are written after all of its runs.
        let left = match figures.len() {
            0 => "nothing was written".to_owned(),
            made => format!("complete in {}: {}", args.out.display(), quantity(made, "figure")),
        };
        let check = |runs: u64| {
            stop::check(format!("{} after {runs} of {}", what(), quantity(total, "run")), left.as_str())?;
            settings.deadline.check_time(what)
        };
        check(runs)?;
        tracing::info!(figure = figure.name(), "simulating");
        let mut stopped = Ok(());
        let made = figure.make(&options, &mut |more| {
            runs += more;
            progress.at(runs);
            stopped = check(runs);
            if stopped.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        stopped?;
        let made = made.map_err(|error| CliError::failed(format!("figure {}: {error}", figure.name())))?;
        figures.push(written(settings, args, figure, made)?);
    }
    let failures = figures.iter().map(|figure| figure.failures).sum();
    Ok(FiguresReport { figures, runs: options.runs, seed: options.seed, failures })
}

/// A picture as PNG, if this program was built with it.
#[cfg(feature = "png")]
fn png(name: &'static str, picture: &Picture) -> Result<Option<Vec<u8>>, CliError> {
    picture.png().map(Some).map_err(|error| CliError::failed(format!("figure {name}, PNG: {error}")))
}

#[cfg(not(feature = "png"))]
#[expect(clippy::unnecessary_wraps, reason = "the form with PNG can fail")]
const fn png(_: &'static str, _: &Picture) -> Result<Option<Vec<u8>>, CliError> {
    Ok(None)
}

fn written(
    settings: &Settings,
    args: &SimFigureArgs,
    figure: Figure,
    made: RenderedFigure,
) -> Result<FigureReport, CliError> {
    let (csv, svg) = write(&args.out, figure.name(), &made.csv, &made.picture, settings.deadline)?;
    let chart = chart::text_beside_report(&made.picture, args.chart, settings);
    let RenderedFigure { points, failures, findings, intervals, picture, .. } = made;
    let name = figure.name();
    let intervals = if intervals.is_empty() || svg.is_none() {
        None
    } else {
        Some(write_file(&args.out, &format!("{name}-intervals.csv"), &intervals, settings.deadline)?)
    };
    let png = match (&svg, png(name, &picture)?) {
        (Some(_), Some(image)) => {
            Some(write_file(&args.out, &format!("{name}.png"), image, settings.deadline)?)
        }
        _ => None,
    };
    Ok(FigureReport { name, csv, svg, png, intervals, points, failures, findings, chart })
}
