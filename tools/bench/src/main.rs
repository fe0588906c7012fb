//! `cargo measure`: compares this driver, with a simulated card on a separate thread, with DPDK's software DMA device, which is a
//! copying thread too. Then it runs the packages' own benchmarks and writes BENCHMARKS.md.
//!
//! On a virtual machine the latency between two CPUs can change several times a minute, by a factor of four, and both programs' figures
//! with it. So runs come in pairs, one of each program. The CPUs are sampled before, between and after ([`cpu_sample`]), and only ratios of
//! pairs whose three samples agree count.

#![forbid(unsafe_code)]

mod cost;
mod cpu_sample;
mod log;
mod machine;
mod micro;
mod ping;
mod placement;
mod programs;
mod record;
mod report;
mod statistics;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use cpu_sample::CpuSample;
use log::Log;
use placement::{CpuPlacement, PlacementLatencies};
use programs::{Amount, DriverProgram, Peer};
use record::Record;
use report::Report;

/// File written with `--write`.
const FILE: &str = "BENCHMARKS.md";
/// Maximum number of pairs tried for each pair wanted; a size may end with fewer.
const MAX_TRIES_PER_PAIR: usize = 4;
/// Minimum ratio of CPU time to wall time of a run. Both threads of either program are busy all the time, so the difference to 2 is CPU
/// time of other programs.
const BUSY_CPUS: f64 = 1.9;

/// Measure against DPDK's software DMA device, run the packages' benchmarks, and write BENCHMARKS.md
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo measure")]
struct Options {
    /// Also measure DPDK's software DMA device (needs libdpdk-dev and librte-dma-skeleton)
    #[arg(long)]
    peer: bool,
    /// Number of pairs of runs in one CPU placement for each size, direction and ring
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Operation sizes
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,512,4KiB,64KiB,1MiB")]
    sizes: Vec<Size>,
    /// Transfer directions
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', default_value = "h2c,c2h")]
    direction: Vec<Direction>,
    /// Ring modes: credits, or batches that end in a Stop descriptor
    #[arg(long, value_name = "RING,...", value_delimiter = ',', default_value = "credit,stop")]
    ring: Vec<Ring>,
    /// Number of operations in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=512))]
    depth: u32,
    /// Duration of one run in seconds [default: 1.2 at up to 64 bytes, else 0.5]
    #[arg(long, value_name = "S", value_parser = seconds)]
    seconds: Option<f64>,
    /// Minimum latency between the CPUs of a "far" pair (no shared cache)
    #[arg(long, value_name = "NS", default_value_t = 90.0)]
    far: f64,
    /// Minimum latency between the CPUs of a "near" pair (shared cache); below, they are hardware threads of one core
    #[arg(long, value_name = "NS", default_value_t = 34.0)]
    near: f64,
    /// CPUs of the submitting and of the copying thread [default: the first two]
    #[arg(long, value_name = "HOST,CARD", value_delimiter = ',', num_args = 2)]
    cpus: Option<Vec<usize>>,
    /// Skip the benchmarks of the packages
    #[arg(long)]
    no_micro: bool,
    /// Skip the pairs of runs
    #[arg(long)]
    no_pairs: bool,
    /// Continue the previous measurement, which must have used the same programs and options: for a machine on which few pairs
    /// agree
    #[arg(long)]
    resume: bool,
    /// Write BENCHMARKS.md
    #[arg(long)]
    write: bool,
}

/// Reasons why there are no figures.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    #[error(transparent)]
    Ping(#[from] ping::PingError),
    #[error(transparent)]
    Program(#[from] programs::ProgramError),
    #[error(transparent)]
    Micro(#[from] micro::MicroError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Log(#[from] log::LogError),
}

/// Size of an operation in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Size(u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let shift = match unit {
            "" | "B" => 0,
            "KiB" => 10,
            "MiB" => 20,
            _ => return Err(format!("\"{text}\" is not a size; write 64, 4KiB or 1MiB")),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(1 << shift));
        // Limited by the peer's working set.
        bytes
            .filter(|bytes| (1..=16 << 20).contains(bytes))
            .map(Self)
            .ok_or_else(|| format!("\"{text}\" is outside of 1 to 16MiB"))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("runs take 0.01 to 60 seconds".to_owned()),
    }
}

/// Transfer direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Direction {
    H2c,
    C2h,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::H2c => "h2c",
            Self::C2h => "c2h",
        }
    }
}

/// Ring mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Ring {
    /// Circular ring in credit mode
    Credit,
    /// Batch mode: each batch ends in a Stop descriptor
    Stop,
}

impl Ring {
    const fn name(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Stop => "stop",
        }
    }
}

/// Parameters that are measured together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cell {
    ring: Ring,
    size: u64,
    direction: Direction,
}

/// Parameters common to all runs.
#[derive(Debug, Clone, PartialEq)]
struct Setting {
    cpus: [usize; 2],
    depth: u32,
    seconds: Option<f64>,
    limits: PlacementLatencies,
}

impl Setting {
    /// Amount of work of a run of a pair.
    fn amount(&self, size: u64) -> Amount {
        Amount {
            // The shortest ones need millions of operations; otherwise the first operations distort the result.
            seconds: self.seconds.unwrap_or(if size <= 64 { 1.2 } else { 0.5 }),
            // Long operations consist only of copying.
            samples: if size <= 4096 { 100_000 } else { 0 },
            batches: 0,
        }
    }
}

/// One run of each program, and samples of the CPUs before, between and after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pair {
    looks: Vec<CpuSample>,
    ours: Record,
    peer: Option<Record>,
}

/// Verdict on a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// It counts for a placement.
    Counts(CpuPlacement),
    /// It does not count: the placement of the CPUs changed meanwhile.
    PlacementChanged,
    /// It does not count: other programs took CPU time.
    CpuTaken,
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Counts(regime) => regime.name(),
            Self::PlacementChanged => "discarded: torn",
            Self::CpuTaken => "discarded: disturbed",
        }
    }
}

impl Pair {
    fn verdict(&self, setting: &Setting) -> Verdict {
        let records = [Some(&self.ours), self.peer.as_ref()];
        if records.into_iter().flatten().any(|record| record.busy_cpus < BUSY_CPUS) {
            return Verdict::CpuTaken;
        }
        CpuPlacement::of(&self.looks, &setting.limits).map_or(Verdict::PlacementChanged, Verdict::Counts)
    }
}

/// All pairs of a cell.
#[derive(Debug, Clone, PartialEq)]
struct Measured {
    cell: Cell,
    pairs: Vec<Pair>,
}

impl Measured {
    fn of(&self, regime: CpuPlacement, setting: &Setting) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| pair.verdict(setting) == Verdict::Counts(regime))
    }

    fn discarded(&self, setting: &Setting) -> usize {
        self.pairs.iter().filter(|pair| !matches!(pair.verdict(setting), Verdict::Counts(_))).count()
    }

    fn is_done(&self, wanted: usize, setting: &Setting) -> bool {
        CpuPlacement::ALL.into_iter().any(|regime| self.of(regime, setting).count() >= wanted)
    }
}

/// Measures and reports.
fn run(root: &Path, options: &Options) -> Result<(), BenchError> {
    let cpus = match options.cpus.as_deref() {
        Some(&[host, card]) => [host, card],
        _ => ping::first_two()?,
    };
    let limits = PlacementLatencies { near_ns: options.near, far_ns: options.far };
    let setting = Setting { cpus, depth: options.depth, seconds: options.seconds, limits };
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| OsString::from("target"));
    let scratch = root.join(target).join("bench");
    let machine = machine::machine(cpus);
    let peer = if options.peer { Some(Peer::build(root, &scratch)?) } else { None };
    let versions = machine::versions(root, peer.as_ref().map(|peer| peer.dpdk.as_str()));
    let (mut measured, mut cost) = (Vec::new(), Vec::new());
    if !options.no_pairs {
        let ours = DriverProgram::build(root)?;
        let programs = [Some(ours.program()), peer.as_ref().map(Peer::program)];
        let mut log = Log::open(&scratch, &setting, programs, options.resume)?;
        measured = pairs(&setting, options, &ours, peer.as_ref(), &mut log)?;
        let samples = measured.iter().flat_map(|measured| &measured.pairs).flat_map(|pair| &pair.looks);
        let (cells, wanted) = (cells(options), usize::from(options.pairs));
        cost =
            cost::costs(&setting, &cells, wanted, &ours, peer.as_ref(), cost::quickest(samples), &mut log)?;
    }
    let before = CpuSample::sample(cpus)?;
    let micro = if options.no_micro { Vec::new() } else { micro::run(root, &scratch)? };
    let micro_regime = CpuPlacement::of(&[before, CpuSample::sample(cpus)?], &limits);
    let report = Report {
        command: command(options),
        machine,
        versions,
        setting,
        wanted: usize::from(options.pairs),
        measured,
        cost,
        micro,
        micro_regime,
    };
    let text = report.text();
    print!("{text}");
    if options.write {
        let path = root.join(FILE);
        std::fs::write(&path, &text).map_err(|source| BenchError::File { path, source })?;
    }
    Ok(())
}

/// Runs one pair per cell and round, so that a change of placement affects all cells alike.
fn pairs(
    setting: &Setting,
    options: &Options,
    ours: &DriverProgram,
    peer: Option<&Peer>,
    log: &mut Log,
) -> Result<Vec<Measured>, BenchError> {
    let mut all: Vec<Measured> =
        cells(options).into_iter().map(|cell| Measured { cell, pairs: log.pairs(&cell) }).collect();
    let wanted = usize::from(options.pairs);
    for round in 1..=wanted * MAX_TRIES_PER_PAIR {
        let open = all.iter().filter(|measured| !measured.is_done(wanted, setting)).count();
        if open == 0 {
            break;
        }
        eprintln!("round {round}: {open} of {} combinations need more pairs", all.len());
        for measured in all.iter_mut().filter(|measured| !measured.is_done(wanted, setting)) {
            let pair = one_pair(setting, &measured.cell, ours, peer)?;
            eprintln!("  {}", report::progress(&measured.cell, &pair, setting));
            log.pair(measured.cell, &pair)?;
            measured.pairs.push(pair);
        }
    }
    Ok(all)
}

fn one_pair(
    setting: &Setting,
    cell: &Cell,
    ours: &DriverProgram,
    peer: Option<&Peer>,
) -> Result<Pair, BenchError> {
    let amount = setting.amount(cell.size);
    let mut looks = vec![CpuSample::sample(setting.cpus)?];
    let ours = ours.run(setting, cell, &amount)?;
    looks.push(CpuSample::sample(setting.cpus)?);
    let peer = match peer {
        Some(peer) => {
            let record = peer.run(setting, cell, &amount)?;
            looks.push(CpuSample::sample(setting.cpus)?);
            Some(record)
        }
        None => None,
    };
    Ok(Pair { looks, ours, peer })
}

fn cells(options: &Options) -> Vec<Cell> {
    let mut cells = Vec::new();
    for ring in &options.ring {
        for size in &options.sizes {
            for direction in &options.direction {
                cells.push(Cell { ring: *ring, size: size.0, direction: *direction });
            }
        }
    }
    cells.dedup();
    cells
}

/// Command line that repeats the measurement.
fn command(options: &Options) -> String {
    let mut words = vec!["cargo measure".to_owned()];
    let mut flag = |set: bool, name: &str| {
        if set {
            words.push(format!("--{name}"));
        }
    };
    flag(options.peer, "peer");
    flag(options.no_pairs, "no-pairs");
    flag(options.no_micro, "no-micro");
    flag(options.resume, "resume");
    flag(options.write, "write");
    let sizes: Vec<String> = options.sizes.iter().map(|size| size.0.to_string()).collect();
    let directions: Vec<&str> = options.direction.iter().map(|direction| direction.name()).collect();
    let rings: Vec<&str> = options.ring.iter().map(|ring| ring.name()).collect();
    words.push(format!("--pairs {} --sizes {}", options.pairs, sizes.join(",")));
    words.push(format!("--direction {} --ring {}", directions.join(","), rings.join(",")));
    words.push(format!("--depth {} --near {} --far {}", options.depth, options.near, options.far));
    words.extend(options.seconds.map(|seconds| format!("--seconds {seconds}")));
    words.join(" ")
}

fn main() -> ExitCode {
    match run(&fpga_process::workspace_root(), &Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Options {
        Options::try_parse_from([&["measure"], args].concat()).unwrap()
    }

    #[test]
    fn size_parses_units() {
        for (text, bytes) in
            [("64", 64), ("512B", 512), ("4KiB", 4096), ("1MiB", 1 << 20), ("16MiB", 16 << 20)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for text in ["", "0", "4KB", "17MiB", "KiB", "99999999999999999999", "99999999999999999MiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn cells_every_combination_is_measured_once() {
        let cells = cells(&options(&["--sizes", "64,4KiB", "--ring", "credit"]));
        assert_eq!(cells.len(), 4);
        assert_eq!(cells[1], Cell { ring: Ring::Credit, size: 64, direction: Direction::C2h });
        assert_eq!(self::cells(&options(&[])).len(), 20);
    }

    #[test]
    fn cells_printed_command_repeats_run() {
        let first =
            options(&["--peer", "--sizes", "64,1MiB", "--seconds", "0.25", "--write", "--ring", "stop"]);
        let text = command(&first);
        let words: Vec<&str> = text.split(' ').skip(2).collect();
        let again = options(&words);
        assert_eq!(format!("{again:?}"), format!("{first:?}"));
    }

    #[test]
    fn cell_is_done_with_enough_pairs_in_one_placement() {
        let setting = Setting {
            cpus: [0, 1],
            depth: 256,
            seconds: None,
            limits: PlacementLatencies { near_ns: 34.0, far_ns: 90.0 },
        };
        let record = Record { ops_per_s: 1.0, busy_cpus: 2.0, latency: None, cpu_ns_per_op: None };
        let sample = |one_way_ns: &f64| CpuSample {
            one_way_ns: *one_way_ns,
            host_ns: 9.0,
            card_ns: 9.0,
            beside_ns: 9.0,
        };
        let pair = |latencies: &[f64]| Pair {
            looks: latencies.iter().map(sample).collect(),
            ours: record,
            peer: None,
        };
        let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::H2c };
        let mut measured =
            Measured { cell, pairs: vec![pair(&[40.0, 41.0]), pair(&[160.0, 165.0]), pair(&[40.0, 165.0])] };
        assert!(measured.is_done(1, &setting) && !measured.is_done(2, &setting));
        let stolen = Record { busy_cpus: 1.5, ..record };
        measured.pairs.push(Pair { ours: stolen, ..pair(&[160.0, 160.0]) });
        measured.pairs.push(Pair { peer: Some(stolen), ..pair(&[160.0, 160.0]) });
        measured.pairs.push(pair(&[155.0, 165.0]));
        assert!(measured.is_done(2, &setting));
        assert_eq!(measured.of(CpuPlacement::SharedCache, &setting).count(), 1);
    }
}
