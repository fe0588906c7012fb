//! `fpgactl sim grid --cards`: the grid on two simulated cards with their drivers, by the code of `transfer`.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use fpga_registers::quantity;
use serde::Serialize;

use crate::cli::{Scheme, SimGridArgs, TransferArgs};
use crate::commands::transfer;
use crate::error::CliError;
use crate::output::Report;
use crate::progress::Progress;
use crate::settings::Settings;
use crate::stop;

use super::sim_grid::AIM;

/// Default sizes in bytes, of the whole grid and of a quick one.
const SIZES: [u64; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const QUICK_SIZES: [u64; 2] = [16 << 10, 64 << 10];
const LOSSES: [f64; 3] = [0.0, 0.005, 0.02];
const QUICK_LOSSES: [f64; 2] = [0.0, 0.02];
/// Default numbers of packets that the network holds back: none, and that of `transfer`.
const DISORDERS: [u32; 2] = [0, 64];

/// Result of a grid on cards.
#[derive(Debug, Serialize)]
pub struct CardGridReport {
    runs: u32,
    seed: u64,
    /// Largest ratio of the default's median to the best one; null if the default failed at some point.
    worst_ratio: Option<f64>,
    /// Points at which the ratio is above 1.1.
    above: u64,
    points: Vec<CardPoint>,
}

/// Point of the grid.
#[derive(Debug, Serialize)]
struct CardPoint {
    size_bytes: u64,
    loss: f64,
    /// Packets that the network holds back.
    disorder: u32,
    /// Delay of each packet, one way.
    delay_us: f64,
    best: Option<&'static str>,
    /// Median of the default divided by the best one.
    ratio: Option<f64>,
    /// The default first.
    schemes: Vec<CardCell>,
}

/// Times of one scheme at a point.
#[derive(Debug, Serialize)]
struct CardCell {
    scheme: &'static str,
    /// Median in µs, from the submission until both hosts have seen the end; null if more than half of the runs failed.
    median_us: Option<f64>,
    /// Medians of the packets that were retransmitted and lost.
    retransmitted: u64,
    lost: u64,
    failures: u32,
}

impl CardPoint {
    fn rate(&mut self) {
        let time = |cell: &CardCell| cell.median_us.unwrap_or(f64::INFINITY);
        let best = self.schemes.iter().min_by(|one, other| time(one).total_cmp(&time(other)));
        let best = best.filter(|best| best.median_us.is_some());
        let first = self.schemes.first().and_then(|cell| cell.median_us);
        self.ratio = best.and_then(|best| Some(first? / best.median_us?));
        self.best = best.map(|best| best.scheme);
    }
}

impl Report for CardGridReport {
    fn text(&self) -> String {
        let mut text = String::new();
        let _ =
            write!(text, "{:>10} {:>8} {:>6} {:>10} {:>6}", "delay µs", "disorder", "loss", "bytes", "ratio");
        for cell in self.points.first().map(|point| &point.schemes).into_iter().flatten() {
            let _ = write!(text, " {:>22}", cell.scheme);
        }
        text.push('\n');
        for point in &self.points {
            let ratio = point.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
            let CardPoint { size_bytes, loss, disorder, delay_us, .. } = point;
            let loss = loss * 100.0;
            let _ = write!(text, "{delay_us:>10.1} {disorder:>8} {loss:>5.1}% {size_bytes:>10} {ratio:>6}");
            for CardCell { median_us, retransmitted, lost, .. } in &point.schemes {
                let time = median_us.map_or_else(|| "-".to_owned(), |time| format!("{time:.2}"));
                let _ = write!(text, " {:>22}", format!("{time} ({retransmitted}/{lost})"));
            }
            text.push('\n');
        }
        let worst = self.worst_ratio.map_or_else(|| "-".to_owned(), |worst| format!("{worst:.2}"));
        let _ = writeln!(
            text,
            "Median µs of {} on two cards (packets retransmitted/lost), seed {}. Default / best scheme: at most {worst}; above {AIM} at {} of {}.",
            quantity(self.runs, "run"),
            self.seed,
            self.above,
            quantity(self.points.len(), "point"),
        );
        text
    }
}

/// Chosen values of an axis, or its default.
fn axis<T: Clone>(chosen: &[T], default: &[T]) -> Vec<T> {
    if chosen.is_empty() { default.to_vec() } else { chosen.to_vec() }
}

/// Schemes that cards offer, the default first.
fn schemes() -> Vec<Scheme> {
    let default = Scheme::Registry;
    let others = Scheme::value_variants().iter().copied().filter(|scheme| *scheme != default);
    std::iter::once(default).chain(others).collect()
}

/// Runs the command.
///
/// # Errors
/// [`CliError`] for a card that is not simulated, of a time limit or a signal, and of opening a card. A transfer that fails is counted.
pub fn run(settings: &Settings, args: &SimGridArgs) -> Result<CardGridReport, CliError> {
    if !settings.card.is_simulated() {
        return Err(CliError::usage("sim grid runs on simulated cards")
            .advise("omit --card, or name a simulated one"));
    }
    let quick = args.quick;
    let sizes = axis(&args.size, if quick { &QUICK_SIZES } else { &SIZES });
    let losses = axis(&args.loss, if quick { &QUICK_LOSSES } else { &LOSSES });
    let disorders = axis(&args.disorder, &DISORDERS);
    let delays = axis(&args.delay, &[std::time::Duration::ZERO]);
    let schemes = schemes();
    stop::handle_signals()?;
    let cells = sizes.len() * losses.len() * disorders.len() * delays.len() * schemes.len();
    let total = cells as u64 * u64::from(args.runs);
    let progress = Progress::counting(total, "runs", settings.progress);
    let mut done = 0;
    let mut points = Vec::new();
    for delay in &delays {
        for &disorder in &disorders {
            for &loss in &losses {
                for &size in &sizes {
                    let mut point = CardPoint {
                        size_bytes: size,
                        loss,
                        disorder,
                        delay_us: delay.as_secs_f64() * 1e6,
                        best: None,
                        ratio: None,
                        schemes: Vec::new(),
                    };
                    for &scheme in &schemes {
                        let mut transfer = TransferArgs { size: Some(size), ..TransferArgs::default() };
                        transfer.scheme = vec![scheme];
                        transfer.no_congestion_window = args.no_congestion_window;
                        transfer.reorder = Some(u16::try_from(disorder).unwrap_or(u16::MAX));
                        (transfer.impair.loss, transfer.impair.delay) = (Some(loss), Some(*delay));
                        let mut results = Vec::new();
                        for run in 0..args.runs {
                            let at = || format!("sim grid after {done} of {}", quantity(total, "run"));
                            stop::check(at(), "nothing was written")?;
                            settings.deadline.check_time(|| "sim grid".to_owned())?;
                            transfer.seed = Some(args.seed.wrapping_add(run.into()));
                            results.push(attempt(settings, &transfer)?);
                            done += 1;
                            progress.at(done);
                        }
                        point.schemes.push(cell(scheme.name(), &results));
                    }
                    point.rate();
                    points.push(point);
                }
            }
        }
    }
    drop(progress);
    let ratios = points.iter().map(|point| point.ratio);
    let worst = ratios.clone().try_fold(0.0, |worst: f64, ratio| ratio.map(|ratio| worst.max(ratio)));
    let above = ratios.filter(|ratio| ratio.is_none_or(|ratio| ratio > AIM)).count();
    Ok(CardGridReport { runs: args.runs, seed: args.seed, worst_ratio: worst, above: above as u64, points })
}

/// Runs one transfer; `None` if the network does not deliver it.
fn attempt(settings: &Settings, args: &TransferArgs) -> Result<Option<transfer::CardRun>, CliError> {
    match transfer::run_quietly(settings, args) {
        Ok(report) => Ok(Some(report.card_run())),
        Err(error) if error.cause::<transfer::Undelivered>().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

fn cell(scheme: &'static str, results: &[Option<transfer::CardRun>]) -> CardCell {
    let mut times: Vec<f64> =
        results.iter().map(|run| run.as_ref().map_or(f64::INFINITY, |run| run.micros)).collect();
    times.sort_unstable_by(f64::total_cmp);
    let middle = |of: fn(&transfer::CardRun) -> u64| {
        let mut counts: Vec<u64> = results.iter().flatten().map(of).collect();
        counts.sort_unstable();
        counts.get(counts.len() / 2).copied().unwrap_or(0)
    };
    CardCell {
        scheme,
        median_us: times.get(times.len() / 2).copied().filter(|time| time.is_finite()),
        retransmitted: middle(|run| run.retransmits),
        lost: middle(|run| run.lost),
        failures: u32::try_from(results.iter().filter(|run| run.is_none()).count()).unwrap_or(u32::MAX),
    }
}
