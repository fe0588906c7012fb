//! `sim grid`: the default scheme beside all others over size, loss, disorder and number of destinations.

use std::fmt::Write as _;
use std::ops::ControlFlow;

use fpga_netsim::figures::Options;
use fpga_netsim::figures::grid::{self, GridAxes, GridCell, GridPoint};
use fpga_netsim::parallel;
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::SimGridArgs;
use crate::commands::sim;
use crate::error::CliError;
use crate::output::Report;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;

/// Ratio to the best scheme that the default is to keep.
pub(super) const AIM: f64 = 1.1;

/// Result of a grid.
#[derive(Debug, Serialize)]
pub struct GridReport {
    runs: u32,
    seed: u64,
    /// Largest ratio of the default's median to the best one; null if the default failed at some point.
    worst_ratio: Option<f64>,
    /// Points at which the ratio is above 1.1.
    above: u64,
    points: Vec<PointReport>,
    /// Files written.
    csv: Option<String>,
    svg: Option<String>,
}

#[derive(Debug, Serialize)]
struct PointReport {
    size_bytes: u64,
    loss: f64,
    disorder: u32,
    destinations: u32,
    runs: u32,
    best: Option<&'static str>,
    ratio: Option<f64>,
    schemes: Vec<SchemeReport>,
}

#[derive(Debug, Serialize)]
struct SchemeReport {
    scheme: &'static str,
    median_us: Option<f64>,
    q1_us: Option<f64>,
    q3_us: Option<f64>,
    packets_ratio: f64,
    failures: u32,
}

impl From<&GridCell> for SchemeReport {
    fn from(cell: &GridCell) -> Self {
        Self {
            scheme: cell.scheme,
            median_us: cell.median_us,
            q1_us: cell.quartiles_us.map(|(first, _)| first),
            q3_us: cell.quartiles_us.map(|(_, third)| third),
            packets_ratio: cell.packets_ratio,
            failures: cell.failures,
        }
    }
}

impl From<&GridPoint> for PointReport {
    fn from(point: &GridPoint) -> Self {
        Self {
            size_bytes: point.size,
            loss: point.loss,
            disorder: point.disorder,
            destinations: point.destinations,
            runs: point.runs,
            best: point.best().map(|cell| cell.scheme),
            ratio: point.ratio(),
            schemes: point.cells.iter().map(Into::into).collect(),
        }
    }
}

impl Report for GridReport {
    fn text(&self) -> String {
        let mut text = String::new();
        let names = self.points.first().map(|point| &point.schemes).into_iter().flatten();
        let _ = write!(text, "{:>4} {:>8} {:>6} {:>10} {:>6}", "dest", "disorder", "loss", "bytes", "ratio");
        for scheme in names {
            let _ = write!(text, " {:>17}", scheme.scheme);
        }
        text.push('\n');
        for point in &self.points {
            let ratio = point.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let _ = write!(
                text,
                "{:>4} {:>8} {:>5.1}% {:>10} {ratio:>6}",
                point.destinations,
                point.disorder,
                point.loss * 100.0,
                point.size_bytes
            );
            for scheme in &point.schemes {
                let time = scheme.median_us.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
                let _ = write!(text, " {time:>17}");
            }
            text.push('\n');
        }
        let worst = self.worst_ratio.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.2}"));
        let _ = writeln!(
            text,
            "Median µs of {} or more, seed {}. Default / best scheme (without registry-literal): at most {worst}; above {AIM} at {} of {}.",
            quantity(self.points.iter().map(|point| point.runs).min().unwrap_or(0), "run"),
            self.seed,
            self.above,
            quantity(self.points.len(), "point"),
        );
        for file in [&self.csv, &self.svg].into_iter().flatten() {
            let _ = writeln!(text, "{file}");
        }
        text
    }
}

/// Runs the command.
pub fn run(settings: &Settings, args: &SimGridArgs) -> Result<GridReport, CliError> {
    let mut axes = if args.quick { GridAxes::quick() } else { GridAxes::full() };
    fn chosen<T: Clone>(axis: &mut Vec<T>, wanted: &[T]) {
        if !wanted.is_empty() {
            *axis = wanted.to_vec();
        }
    }
    chosen(&mut axes.sizes, &args.size);
    chosen(&mut axes.losses, &args.loss);
    chosen(&mut axes.disorders, &args.disorder);
    chosen(&mut axes.destinations, &args.destinations);
    axes.congestion = !args.no_congestion_window;
    let mut options = Options::new(args.runs, args.seed);
    options.threads = args.threads.map_or_else(parallel::processors, usize::from);
    stop::handle_signals()?;
    if let Some(out) = &args.out {
        sim::directory(out)?;
    }
    let total = grid::runs(&axes, &options);
    let progress = Progress::counting(total, "runs", settings.progress);
    let what = || "sim grid".to_owned();
    let check = |runs: u64| {
        stop::check(format!("sim grid after {runs} of {}", quantity(total, "run")), "nothing was written")?;
        settings.deadline.check_time(what)
    };
    let (mut runs, mut stopped) = (0, Ok(()));
    let points = grid::run(&axes, &options, &mut |more| {
        runs += more;
        progress.at(runs);
        stopped = check(runs);
        if stopped.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(progress);
    stopped?;
    let points = points.map_err(|error| CliError::failed(format!("figure grid: {error}")))?;
    let (csv, svg) = match &args.out {
        None => (None, None),
        Some(out) => {
            let picture = grid::picture(&points, &options);
            let (csv, svg) = sim::write(out, "grid", &grid::csv(&points), &picture, settings.deadline)?;
            (Some(csv), svg)
        }
    };
    let ratios = points.iter().map(GridPoint::ratio);
    let worst = ratios.clone().try_fold(0.0, |worst: f64, ratio| ratio.map(|ratio| worst.max(ratio)));
    let above = ratios.filter(|ratio| ratio.is_none_or(|ratio| ratio > AIM)).count();
    Ok(GridReport {
        runs: args.runs,
        seed: args.seed,
        worst_ratio: worst,
        above: above as u64,
        points: points.iter().map(Into::into).collect(),
        csv,
        svg,
    })
}
