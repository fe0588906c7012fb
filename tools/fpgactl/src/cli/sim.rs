//! Declarations of `sim` for `clap`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::PossibleValue;
use clap::{Args, Subcommand, ValueEnum};

use super::whole;
use crate::units;
use fpga_netsim::clos_table::ClosRow;
use fpga_netsim::figures::Figure;

/// Commands of `sim`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// Run a scenario and write the result of every flow
    Run(SimRunArgs),
    /// Check scenario files without running them
    Check(SimCheckArgs),
    /// Print the JSON Schema of scenario files
    #[command(
        after_help = "An editor with a YAML language server completes keys and marks mistakes if a scenario begins with\n  \
                      # yaml-language-server: $schema=scenario.schema.json\n\n\
                      Examples:\n  \
                      fpgactl sim schema > scenario.schema.json"
    )]
    Schema,
    /// Make figures of the schemes: CSV and SVG
    Figure(SimFigureArgs),
    /// Compare the default scheme with all others over size, loss, disorder and number of destinations
    Grid(SimGridArgs),
    /// Compare the default scheme with the public simulator uet-htsim (NSCC) on a Clos network of 144 hosts
    Clos(SimClosArgs),
}

/// Options of `sim check`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Prints what each file describes, or file, line and key of the first mistake in it. Exit status: 0 if all files are valid, \
                  1 if one is not.\n\n\
                  Examples:\n  \
                  fpgactl sim check torus.yaml\n  \
                  fpgactl sim check scenarios/*.yaml --json"
)]
pub struct SimCheckArgs {
    /// The scenarios; -: standard input
    #[arg(value_name = "SCENARIO.yaml", required = true)]
    pub scenarios: Vec<PathBuf>,
}

/// Options of `sim run`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Writes DIR/SCENARIO.csv, a line for each flow of each run, and DIR/SCENARIO.svg, the distribution of the flows' times. \
                  The report names the causes of slow flows: queues, links, retransmissions. A flow that a scheme gives up is counted as a failure; the command still succeeds.\n\n\
                  `fpgactl sim schema` describes every key; the samples are in /usr/share/doc/fpgactl/examples/scenarios (in the sources: \
                  examples/scenarios).\n\n\
                  A scenario (all keys but the first one and traffic are optional):\n  \
                  schema_version: 1\n  \
                  scheme: selective  # or registry, receiver-window, sender-window, receiver-counter, adaptive-window\n  \
                  topology: {torus: {side: 3}}\n  \
                  # or point-to-point, {tree: {arity: 8, levels: 2, up: 4}}, {fat-tree: {radix: 4, tiers: 3}}, {clos: {tiers: [{down: 8, up: 4}, {down: 4}]}}\n  \
                  traffic: {permutation: {bytes: 65536}}\n  \
                  # or {incast: {senders: 32, bytes: 65536}}, {flows: [{from: 0, to: 5, bytes: 9000, at_ns: 0}]}, {file: flows.csv}\n  \
                  rate_gbps: 80\n  \
                  delay_ns: 800\n  \
                  data: {loss: 0.001, duplicate: 0, corrupt: 0, jitter_ns: 300}\n  \
                  # or bursts: {loss: 0.01, length: 8}; delay, copy_delay: {exponential: {least_ns: 0, mean_ns: 300}},\n  \
                  # constant, uniform, normal, log-normal\n  \
                  control: {loss: 0.001}\n  \
                  # shuffle: {depth: 32, patience_ns: 4000}\n  \
                  # disorder: {degree: 64, patience_ns: 4000}\n  \
                  # throttle: {rate_mbps: 40000, queue_ns: 50000}\n  \
                  # blackouts: [{from_ns: 100000, length_ns: 20000}]\n  \
                  # routing: ecmp\n  \
                  # paths: 64\n  \
                  # congestion: false\n  \
                  # slow_links: [{from: 0, to: 1, number: 0, times: 4}]\n  \
                  # controller: 26\n  \
                  # plain_switches: [{switch: 0, drop: true}]\n  \
                  # ecn: {threshold_bytes: 60000}\n  \
                  # link_failures: [{from: 0, to: 1, at_ns: 1000, for_ns: 500, every_ns: 9000}]\n  \
                  # control_first: true\n  \
                  # queue_bytes, packet_bytes, window, credit, literal, contexts, round_trip_ns, limit_ns, reroute_ns, series_ns, seed: numbers\n\n\
                  Examples:\n  \
                  fpgactl sim run torus.yaml\n  \
                  fpgactl sim run torus.yaml --runs 1000 --seed 7 --out results --json"
)]
pub struct SimRunArgs {
    /// The scenario; -: standard input
    #[arg(value_name = "SCENARIO.yaml")]
    pub scenario: PathBuf,
    /// Number of runs, each with its own seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1, 1_000_000))]
    pub runs: u32,
    /// Seed of the first run, from which all others follow [default: the scenario's, or 0]
    #[arg(long, value_name = "N", value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: Option<u64>,
    /// Threads [default: one per processor]; the result is the same for any number
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, 1024))]
    pub threads: Option<u16>,
    /// Output directory, created if it does not exist; -: only the CSV file, to standard output
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Draw a chart below the report, too [default: on a terminal]
    #[arg(long)]
    pub chart: bool,
}

/// Options of `sim figure`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Writes DIR/NAME.csv, DIR/NAME.svg and, if built with the feature `png`, DIR/NAME.png (406 dots per inch in a paper's column, built-in font), and DIR/NAME-intervals.csv with the 95 % intervals of its numbers. The same seed gives the same bytes, for any number of threads. docs/guide/figures.md states \
                  the claim of each figure, and where the result differs from the patents and the paper that describe the schemes.\n\n\
                  Examples:\n  \
                  fpgactl sim figure loss-sweep --quick --chart --out figures\n  \
                  fpgactl sim figure reorder --out figures\n  \
                  fpgactl sim figure all --quick --out figures"
)]
pub struct SimFigureArgs {
    /// Figure to make
    #[arg(value_enum, value_name = "NAME")]
    pub name: FigureName,
    /// Output directory, created if it does not exist; -: the CSV file of one figure to standard output
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub out: PathBuf,
    /// Draw charts below the report, too [default: on a terminal]
    #[arg(long)]
    pub chart: bool,
    /// At most 100 runs of each point, intervals of ± 1 %: for a preview, not for publication
    #[arg(long, conflicts_with = "runs")]
    pub quick: bool,
    /// Maximum number of runs of each point [default: 1000]; points of incast have a sixteenth, of a torus a
    /// fortieth. A point ends when the 95 % interval of
    /// its mean is narrower than ± 0.5 %
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 1_000_000))]
    pub runs: Option<u32>,
    /// Seed of all runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Threads [default: one per processor]; the result is the same for any number
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, 1024))]
    pub threads: Option<u16>,
}

/// Options of `sim grid`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Host 0 sends a transfer to each destination: 80 Gbit/s, 800 ns one way, packets of 512 bytes, losses of data and control \
                  packets alike. Every destination has got 64 KiB before, so the schemes know the path; their configured round trip is 100us. \
                  Times are medians over the runs, until the last application is notified. The same seed gives the same result, for any number of \
                  threads.\n\n\
                  The grid simulates the network and the schemes, not cards. --cards runs the complete path: each run is a `fpgactl transfer` on two new \
                  cards, of which the schemes know nothing. Every scheme of cards is compared; times are medians until both hosts have seen the end, with \
                  the medians of retransmitted and lost packets. --runs is then the number of runs of every size.\n\n\
                  Examples:\n  \
                  fpgactl sim grid --quick\n  \
                  fpgactl sim grid --cards --runs 21 --delay 1us --delay 50us\n  \
                  fpgactl sim grid --size 32KiB --size 256KiB --loss 0.5% --json\n  \
                  fpgactl sim grid --runs 9 --out figures"
)]
pub struct SimGridArgs {
    /// Complete transfers between simulated cards, with drivers, PCIe and card memory, instead of the network alone
    #[arg(long, conflicts_with_all = ["destinations", "threads", "out"])]
    pub cards: bool,
    /// With --cards: delay of every packet, one way, may be repeated [default: none]
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "cards")]
    pub delay: Vec<Duration>,
    /// Only a part of the points: seconds instead of minutes
    #[arg(long)]
    pub quick: bool,
    /// Bytes of a transfer, may be repeated [default: 512, 4KiB, 32KiB, 256KiB, 2MiB, 16MiB; with --cards: 4KiB, 16KiB, 64KiB, 256KiB, 1MiB]
    #[arg(long, value_name = "N", value_parser = units::bytes)]
    pub size: Vec<u64>,
    /// Share of lost packets, may be repeated [default: 0, 0.1%, 0.5%, 1%, 2%, 5%; with --cards: 0, 0.5%, 2%]
    #[arg(long, value_name = "P", value_parser = units::probability)]
    pub loss: Vec<f64>,
    /// Degree of disorder in packets, may be repeated [default: 0, 16, 64, 256]; with --cards: packets held back, as
    /// `fpgactl transfer --reorder`
    /// [default: 0, 64]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0, 256))]
    pub disorder: Vec<u32>,
    /// Number of destinations, may be repeated [default: 1, 8]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1, 32))]
    pub destinations: Vec<u32>,
    /// Switch the congestion windows off that senders have by default
    #[arg(long)]
    pub no_congestion_window: bool,
    /// Output directory for grid.csv and grid.svg, created if it does not exist; -: only the CSV file, to standard output [default: none]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Runs of a transfer of 16 MiB, each with its own seed; shorter ones have more, by the square root of the ratio of the sizes
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1, 100_000))]
    pub runs: u32,
    /// Seed of the first run, from which all others follow
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u64>(0, u64::MAX))]
    pub seed: u64,
    /// Threads [default: one per processor]; the result is the same for any number
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1, 1024))]
    pub threads: Option<u16>,
}

/// Options of `sim clos`.
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "12 leaves of 12 hosts, 12 spines (3 in the row oversubscribed), 100 or 400 Gbit/s and 1 us per link, ECMP, marks (ECN) from \
                  20 % to 80 % of a queue of one bandwidth-delay product, control packets first, trimming, packets of 4096 bytes. Each row is a \
                  flow list of examples/scenarios/clos. docs/guide/many-paths.md has the table and its reading.\n\n\
                  Times are from the submission of a flow to its completion at the sender. Retransmissions are in percent of the packets. \
                  The CPU time is that of all runs of the row. The flows of all runs are pooled; the seed selects the hash of ECMP.\n\n\
                  --htsim runs a built htsim_uec of <https://github.com/ultraethernet/uet-htsim> on the same lists and networks. If it \
                  fails, the table has this side alone, and the exit status is 1.\n\n\
                  Examples:\n  \
                  fpgactl sim clos\n  \
                  fpgactl sim clos --row incast-64KiB --row one-path --runs 5 --json\n  \
                  fpgactl sim clos --runs 5 --htsim uet-htsim/htsim/sim/build/datacenter/htsim_uec --out results"
)]
pub struct SimClosArgs {
    /// Folder with the flow lists [default: examples/scenarios/clos, or that of the package]
    #[arg(long, value_name = "DIR")]
    pub lists: Option<PathBuf>,
    /// Built program htsim_uec of uet-htsim, to run beside [default: none]
    #[arg(long, value_name = "PROGRAM")]
    pub htsim: Option<PathBuf>,
    /// Maximum wall-clock time of one run of htsim_uec
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = units::duration, requires = "htsim")]
    pub htsim_timeout: Duration,
    /// Row of the table, may be repeated [default: all]
    #[arg(long, value_name = "NAME", value_enum)]
    pub row: Vec<RowName>,
    /// Number of runs, with the seeds N, N + 1 and so on
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1, 1000))]
    pub runs: u32,
    /// Seed of the first run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(0, 2_000_000_000))]
    pub seed: u32,
    /// Output directory for clos.csv, created if it does not exist; -: the CSV file to standard output [default: none]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// Name of a row of `sim clos`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowName(pub &'static ClosRow);

impl ValueEnum for RowName {
    fn value_variants<'a>() -> &'a [Self] {
        static NAMES: LazyLock<Vec<RowName>> = LazyLock::new(|| ClosRow::ALL.iter().map(RowName).collect());
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.0.name).help(self.0.about))
    }
}

/// Name of one figure, or `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureName(Option<Figure>);

impl ValueEnum for FigureName {
    fn value_variants<'a>() -> &'a [Self] {
        static NAMES: LazyLock<Vec<FigureName>> = LazyLock::new(|| {
            let each = Figure::ALL.iter().copied().map(Some);
            std::iter::once(None).chain(each).map(FigureName).collect()
        });
        &NAMES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, about) = self.0.map_or(("all", "All figures"), |figure| (figure.name(), figure.about()));
        Some(PossibleValue::new(name).help(about))
    }
}

impl FigureName {
    /// Returns the figures that the name stands for.
    #[must_use]
    pub fn figures(self) -> Vec<Figure> {
        self.0.map_or_else(|| Figure::ALL.to_vec(), |figure| vec![figure])
    }
}
