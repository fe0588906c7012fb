//! Figures of the published schemes, made with this project's own implementation of them.
//!
//! | Figure | Shows | Module |
//! |---|---|---|
//! | `loss-free`, `lossy`, `loss-sweep` | time of a transfer by size, and by loss (source 004, figures 4 to 6) | `schemes` |
//! | `reorder` | speed by disorder and window (004, figure 7), with a band over what 004 leaves open | `reorder` |
//! | `torus-loss-free`, `torus-lossy`, `torus-loss-sweep` | the same as without `torus-`, on 004's network | `schemes`, `torus` |
//! | `torus-reorder` | speed by disorder and window on 004's network | `torus_reorder` |
//! | `selective` | every scheme over loss and disorder | `schemes` |
//! | `state-bits` | bits of state per context (004, table 5) | `state_bits` |
//! | `segmentation` | time by segment size: closed form, packets, cards (001, figure 5) | `segmentation`, `cards` |
//! | `segment-tuner` | segment sizes chosen by the driver, against a sweep on three cards and three networks | `segment_tuner`, `cards` |
//! | `receive-notify` | time saved by the receiver's own completion (001) | `notify` |
//! | `adaptive` | spurious retransmissions, and many senders to one receiver (002) | `adaptive` |
//!
//! Only one value is fitted to the sources, and they give it themselves: the degree of disorder, from which the mean of the delay
//! follows. docs/guide/figures.md contains the results, and the differences from the sources. The same options give the same bytes, for any
//! number of threads.

use std::ops::ControlFlow;

use fpga_netmodel::{BitRate, Conditions, Delay, Loss, OrderError, Probability};
use fpga_protocol::Nanos;

use crate::notice::NoticeError;
use crate::{Scenario, SimulationError, parallel};

mod adaptive;
pub mod cards;
mod disorder;
pub mod grid;
mod measure;
mod notify;
mod pairs;
pub mod picture;
mod reorder;
mod schemes;
pub mod segment_tuner;
mod segmentation;
mod state_bits;
mod torus;
mod torus_reorder;

pub(crate) use crate::numbers::float;
use cards::CardRunner;
use picture::Picture;
use torus::Network;

/// Declares the figures with their names and contents.
macro_rules! figures {
    ($($figure:ident $name:literal $about:literal,)*) => {
        /// Figure to make.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Figure {
            $(#[doc = $about] $figure,)*
        }

        impl Figure {
            /// All figures.
            pub const ALL: &'static [Self] = &[$(Self::$figure,)*];

            /// Name on the command line and of the files.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$figure => $name,)*
                }
            }

            /// Content in a few words.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self {
                    $(Self::$figure => $about,)*
                }
            }
        }
    };
}

figures! {
    LossFree "loss-free" "Time by size without loss (source 004, figure 4)",
    Lossy "lossy" "Time by size at 5 ‰ of loss (004, figure 5)",
    LossSweep "loss-sweep" "Time and packets by loss (004, figure 6)",
    Reorder "reorder" "Speed by disorder and window (004, figure 7)",
    TorusLossFree "torus-loss-free" "As loss-free, on the paper's network: a 3D torus with adaptive routing",
    TorusLossy "torus-lossy" "As lossy, on the 3D torus",
    TorusLossSweep "torus-loss-sweep" "As loss-sweep, on the 3D torus",
    TorusReorder "torus-reorder" "As reorder, on the 3D torus",
    StateBits "state-bits" "Bits of state per context (004, table 5)",
    Segmentation "segmentation" "Time by segment size: closed form, packet simulation and simulated cards (001, figure 5)",
    SegmentTuner "segment-tuner" "Segment sizes that the driver chooses, against a sweep on three cards and three networks",
    ReceiveNotify "receive-notify" "Time saved by the receiver's own completion (001)",
    Adaptive "adaptive" "Spurious retransmissions and incast (002)",
    Selective "selective" "Every scheme over loss and disorder",
}

/// Callback with the number of runs that have ended; it may stop the work.
pub type ProgressCallback<'a> = dyn FnMut(u64) -> ControlFlow<()> + 'a;

impl Figure {
    /// Makes the figure. `done` is called as runs end, and may stop the work; [`Self::runs`] is the approximate total.
    ///
    /// # Errors
    /// The first run that fails; [`FigureError::Stopped`].
    pub fn make(
        self,
        options: &Options,
        done: &mut ProgressCallback<'_>,
    ) -> Result<RenderedFigure, FigureError> {
        match self {
            Self::LossFree | Self::TorusLossFree => schemes::by_size(self, options, 0.0, done),
            Self::Lossy | Self::TorusLossy => schemes::by_size(self, options, 0.005, done),
            Self::LossSweep | Self::TorusLossSweep => schemes::by_loss(self, options, done),
            Self::Reorder => reorder::make(self, options, done),
            Self::TorusReorder => torus_reorder::make(self, options, done),
            Self::StateBits => Ok(state_bits::make(self)),
            Self::Segmentation => segmentation::make(self, options),
            Self::SegmentTuner => segment_tuner::make(self, options, done),
            Self::ReceiveNotify => notify::make(self),
            Self::Selective => schemes::by_loss_and_disorder(self, options, done),
            Self::Adaptive => adaptive::make(self, options, done),
        }
    }

    /// Approximate number of simulated runs, for a progress bar. Runs that are omitted because an interval is narrow count as done.
    #[must_use]
    pub const fn runs(self, options: &Options) -> u64 {
        let points = match self {
            Self::LossFree | Self::Lossy => 32,
            Self::TorusLossFree | Self::TorusLossy => 28,
            Self::LossSweep => 48,
            Self::TorusLossSweep => 42,
            Self::Reorder => 112,
            Self::TorusReorder => 32,
            Self::StateBits | Self::Segmentation | Self::ReceiveNotify => 0,
            Self::SegmentTuner => return if options.cards.is_some() { segment_tuner::POINTS } else { 0 },
            Self::Selective => 116,
            Self::Adaptive => 30,
        };
        points * Network::of(self, options).most_runs(options) as u64
    }
}

/// Options for making figures.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Maximum number of runs of each point. A point of incast has a sixteenth of it, a point of the torus a fortieth, at
    /// least 3.
    pub runs: u32,
    /// A point has enough runs when half the width of the 95 % interval of its mean, divided by the mean, is below this.
    pub narrow: f64,
    /// Hosts along each edge of the torus.
    pub torus_side: u32,
    /// Seed of all runs: run n has the same random numbers at every point of every figure.
    pub seed: u64,
    /// Number of threads; the result does not depend on it.
    pub threads: usize,
    /// Runner of transfers between simulated cards. `None`: figures have no values of cards.
    pub cards: Option<CardRunner>,
}

impl Options {
    /// Runs per point of a published figure.
    pub const PUBLISHED_RUNS: u32 = 1000;
    /// Runs per point of a quick preview.
    pub const QUICK_RUNS: u32 = 100;

    /// Creates options with as many threads as there are CPUs, and with intervals of ± 0.5 %, or of ± 1 % for a preview.
    #[must_use]
    pub fn new(runs: u32, seed: u64) -> Self {
        let narrow = if runs > Self::QUICK_RUNS { 0.005 } else { 0.01 };
        Self { runs, narrow, torus_side: 4, seed, threads: parallel::processors(), cards: None }
    }
}

/// Figure: data, picture, and findings in words.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RenderedFigure {
    /// Identity of the figure.
    pub figure: Figure,
    /// The data, with a header line.
    pub csv: String,
    /// Confidence intervals, one line for each line of the data, with a header; empty if nothing is measured.
    pub intervals: String,
    /// The drawing.
    pub picture: Picture,
    /// Findings, one sentence each.
    pub findings: Vec<String>,
    /// Number of points.
    pub points: u64,
    /// Number of transfers that failed, in all runs.
    pub failures: u64,
}

/// Line of the CSV file; fields that do not apply stay empty.
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    figure: &'static str,
    scheme: String,
    topology: String,
    size_bytes: Option<u64>,
    packet_bytes: Option<u64>,
    loss: Option<f64>,
    disorder: Option<u32>,
    window: Option<u32>,
    hops: Option<u64>,
    segment_bytes: Option<u64>,
    mean_us: Option<f64>,
    ci95_us: Option<f64>,
    p99_us: Option<f64>,
    packets_ratio: Option<f64>,
    speed_ratio: Option<f64>,
    failures: Option<u64>,
    runs: Option<u64>,
    seed: Option<u64>,
    p99_low_us: Option<f64>,
    p99_high_us: Option<f64>,
    packets_ci95: Option<f64>,
    speed_ci95: Option<f64>,
    jain: Option<f64>,
    jain_ci95: Option<f64>,
}

/// CSV header of a figure's intervals. All are 95 % intervals; a single number is half the width; that of p99 is found by bootstrap. `jain`
/// is Jain's index over the rates of a run's flows, for points of several flows.
pub const INTERVALS_HEADER: &str = "figure,scheme,topology,size_bytes,loss,disorder,window,hops,segment_bytes,mean_us,ci95_us,p99_us,p99_low_us,p99_high_us,packets_ratio,packets_ci95,speed_ratio,speed_ci95,jain,jain_ci95,runs,seed";

/// CSV header of every figure but `state-bits`.
pub const HEADER: &str = "figure,scheme,topology,size_bytes,packet_bytes,loss,disorder,window,hops,segment_bytes,mean_us,ci95_us,p99_us,packets_ratio,speed_ratio,failures,runs,seed";

impl Row {
    fn write(&self, out: &mut String) {
        line(out, &HEADER.split(',').map(|name| self.column(name)).collect::<Vec<_>>());
    }

    fn write_intervals(&self, out: &mut String) {
        line(out, &INTERVALS_HEADER.split(',').map(|name| self.column(name)).collect::<Vec<_>>());
    }

    /// Value of the column with this name; empty without one.
    fn column(&self, name: &str) -> String {
        match name {
            "figure" => self.figure.to_owned(),
            "scheme" => self.scheme.clone(),
            "topology" => self.topology.clone(),
            "size_bytes" => whole(self.size_bytes),
            "packet_bytes" => whole(self.packet_bytes),
            "loss" => whole(self.loss),
            "disorder" => whole(self.disorder),
            "window" => whole(self.window),
            "hops" => whole(self.hops),
            "segment_bytes" => whole(self.segment_bytes),
            "mean_us" => real(self.mean_us, 4),
            "ci95_us" => real(self.ci95_us, 4),
            "p99_us" => real(self.p99_us, 4),
            "p99_low_us" => real(self.p99_low_us, 4),
            "p99_high_us" => real(self.p99_high_us, 4),
            "packets_ratio" => real(self.packets_ratio, 5),
            "packets_ci95" => real(self.packets_ci95, 6),
            "speed_ratio" => real(self.speed_ratio, 5),
            "speed_ci95" => real(self.speed_ci95, 6),
            "jain" => real(self.jain, 5),
            "jain_ci95" => real(self.jain_ci95, 6),
            "failures" => whole(self.failures),
            "runs" => whole(self.runs),
            "seed" => whole(self.seed),
            _ => String::new(),
        }
    }
}

fn whole(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn real(value: Option<f64>, digits: usize) -> String {
    value.filter(|value| value.is_finite()).map(|value| format!("{value:.digits$}")).unwrap_or_default()
}

/// Appends a CSV line. No field contains a comma or a quote.
fn line(out: &mut String, fields: &[String]) {
    out.push_str(&fields.join(","));
    out.push('\n');
}

/// Assembles a figure.
fn made<'a>(
    figure: Figure,
    rows: impl IntoIterator<Item = &'a Row>,
    picture: Picture,
    findings: Vec<String>,
) -> RenderedFigure {
    let (mut csv, mut intervals) = (format!("{HEADER}\n"), format!("{INTERVALS_HEADER}\n"));
    let (mut points, mut failures) = (0, 0);
    for row in rows {
        row.write(&mut csv);
        row.write_intervals(&mut intervals);
        points += 1;
        failures += row.failures.unwrap_or(0);
    }
    RenderedFigure { figure, csv, intervals, picture, findings, points, failures }
}

/// Reasons why a figure cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// It was stopped.
    #[error("the figure was cancelled")]
    Stopped,
    /// A run failed.
    #[error("{point}, seed {seed}: {source}")]
    Run {
        /// Figure and scheme.
        point: String,
        /// Seed of the run.
        seed: u64,
        /// Reason.
        r#source: SimulationError,
    },
    /// A transfer between simulated cards failed.
    #[error("simulated cards: {0}")]
    Cards(String),
    /// See [`NoticeError`].
    #[error(transparent)]
    Notice(#[from] NoticeError),
    /// See [`OrderError`].
    #[error(transparent)]
    Order(#[from] OrderError),
}

impl FigureError {
    const fn cards(text: String) -> Self {
        Self::Cards(text)
    }
}

/// Frozen set of the parameters that the sources 000 and 004 leave open: 10 GB/s, 800 ns one way, packets of 512 bytes, timeouts of two round
/// trips, a sender's window of 32. One transfer of `length` bytes.
fn reference_parameters(length: u64) -> Scenario {
    let mut scenario =
        Scenario::new(length).congestion(None).rate(BitRate::from_gbps(80)).delay(Nanos::new(800));
    scenario.contexts = Some(1);
    scenario
}

/// Impairments of data packets only, as in source 004.
fn network(loss: f64, delay: Delay) -> Conditions {
    // The figures' own losses are all between 0 and 1.
    let loss = Probability::new(loss).unwrap_or_default();
    Conditions::default().loss(Loss::Independent(loss)).delay(delay)
}

/// Parameters common to all figures of the frozen set, and definitions of their symbols.
fn caption(net: Network, options: &Options, more: &str, symbols: &str) -> Vec<String> {
    vec![
        format!(
            "{}, packets of 512 bytes and their real headers; {more}. {} {}",
            net.caption(),
            net.time(),
            runs(&net.most_runs(options).to_string(), options)
        ),
        format!("{symbols} {MARKER_NOTE}"),
    ]
}

/// Number of runs, seed, and resulting confidence.
fn runs(most: &str, options: &Options) -> String {
    format!(
        "At most {most} runs per point, fewer where the interval is narrower than ± {} % of the mean; seed {}. Bars and shaded bands: 95 % \
         confidence interval of the mean.",
        options.narrow * 100.0,
        options.seed
    )
}

/// Treatment of coinciding points in the drawing.
const MARKER_NOTE: &str = "Coinciding markers are drawn side by side.";

/// Symbols of the schemes' parameters.
const SYMBOLS: &str = "W: window of the scheme, in packets. K: requests for the same packet after which everything from it on is requested. \
                       RTT: round-trip time without load. Disorder: largest jump of packet numbers between arrivals, less one.";

#[cfg(test)]
mod tests;
