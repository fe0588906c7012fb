//! `cargo measure`: pairs of runs of `fpgactl dma bench` with a simulated card and of DPDK's software DMA device, and a check of the speed
//! with wide bounds. The building blocks have criterion benchmarks in their packages; a whole path is `fpgactl dma bench` alone.
//!
//! On a virtual machine the latency between two CPUs can change several times a minute, by a factor of four, and both programs' rates with
//! it. So a ratio is that of one pair, and the median of the pairs counts.

mod check;
mod program;
mod record;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use program::{BenchError, Program};
use record::{Record, RecordError};

/// Compare `fpgactl dma bench` on a simulated card with DPDK's software DMA device, and print a table in Markdown
#[derive(Debug, Clone, Parser)]
#[command(name = "cargo measure")]
struct Options {
    /// Also measure DPDK's software DMA device (needs libdpdk-dev and librte-dma-skeleton)
    #[arg(long)]
    peer: bool,
    /// Number of pairs of runs for each size, direction and ring
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Operation sizes in bytes
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "64,512,4096,65536,1048576",
        value_parser = clap::value_parser!(u32).range(1..=16 << 20))]
    sizes: Vec<u32>,
    /// Number of operations in flight
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=512))]
    depth: u32,
    /// CPUs of the submitting and of the copying thread
    #[arg(long, value_name = "HOST,CARD", value_delimiter = ',', num_args = 2, default_value = "0,1")]
    cpus: Vec<usize>,
    /// Compare ratios of this machine with wide bounds, in at most 90 seconds: finds loss of speed. Exit status 3: it has one CPU only
    #[arg(long, conflicts_with = "peer")]
    check: bool,
    /// fpgactl to measure, built with --release
    #[arg(long, value_name = "FILE", default_value = "target/release/fpgactl")]
    fpgactl: PathBuf,
}

/// Parameters that are measured together.
#[derive(Clone, Copy)]
struct Cell {
    ring: &'static str,
    size: u32,
    direction: &'static str,
}

/// One run of each program.
struct Pair {
    ours: Record,
    peer: Option<Record>,
}

/// Median with minimum and maximum of what some pairs have, or `-`.
fn spread(pairs: &[Pair], digits: usize, value: impl Fn(&Pair) -> Option<f64>) -> String {
    let mut values: Vec<f64> = pairs.iter().filter_map(value).collect();
    values.sort_by(f64::total_cmp);
    let (Some(first), Some(median), Some(last)) =
        (values.first(), values.get(values.len() / 2), values.last())
    else {
        return "-".to_owned();
    };
    format!("{median:.digits$} ({first:.digits$}-{last:.digits$})")
}

/// Row of the table.
fn row(head: &str, pairs: &[Pair]) -> String {
    let ratio = |of: fn(&Record) -> Option<f64>| {
        move |pair: &Pair| Some(of(&pair.ours)? / pair.peer.as_ref().and_then(of)?)
    };
    [
        head.to_owned(),
        spread(pairs, 2, |pair| Some(pair.ours.gb_per_s)),
        spread(pairs, 3, |pair| pair.ours.copy_share()),
        spread(pairs, 2, ratio(|record| Some(record.ops_per_s))),
        spread(pairs, 0, |pair| pair.ours.p50_ns),
        spread(pairs, 0, |pair| pair.ours.p99_ns),
        spread(pairs, 2, ratio(|record| record.p99_ns)),
        spread(pairs, 1, |pair| pair.ours.cpu_ns_per_op),
        spread(pairs, 2, ratio(|record| record.cpu_ns_per_op)),
    ]
    .join(" | ")
}

/// Runs each program once.
fn run_pair(
    ours: &Program,
    peer: Option<&Program>,
    cell: Cell,
    options: &Options,
) -> Result<Pair, BenchError> {
    let &[host, card] = options.cpus.as_slice() else { return Err(BenchError::OneCpu) };
    let (size, depth, pin) = (cell.size.to_string(), options.depth.to_string(), format!("{card},{host}"));
    // The shortest operations need millions; otherwise the first ones distort the result. Long ones consist of copying alone.
    let seconds = if cell.size <= 64 { "1.2" } else { "0.5" };
    let samples = if cell.size <= 4096 { "100000" } else { "0" };
    let amount = ["--depth", &depth, "--seconds", seconds, "--samples", samples, "--batches", "2000"];
    let args = [
        "--mode",
        "poll",
        "--channels",
        "1",
        "--pin",
        &pin,
        "--ring",
        cell.ring,
        "--direction",
        cell.direction,
    ];
    let text = program::output(ours.bench(&[&args[..], &["--sizes", &size], &amount].concat()))?;
    let ours = record::rows(&text)?.pop().ok_or(RecordError::NoResult)?;
    let run = |peer: &Program| {
        let text = program::output(peer.dpdk(host, card, &[&["--size", &size], &amount[..]].concat()))?;
        Ok::<_, BenchError>(Record::of_peer(&text)?)
    };
    Ok(Pair { ours, peer: peer.map(run).transpose()? })
}

/// Measures and prints each row when it is complete.
fn measure(root: &Path, options: &Options) -> Result<(), BenchError> {
    let ours = Program::existing(&root.join(&options.fpgactl))?;
    let peer = if options.peer { Some(Program::peer(root)?) } else { None };
    println!(
        "| size | direction | ring | GB/s | share of the copy limit | rate / DPDK's | median, ns | p99, ns | p99 / DPDK's | CPU time, ns | \
         CPU time / DPDK's |\n|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|"
    );
    for ring in ["credit", "stop"] {
        for size in options.sizes.iter().copied() {
            for direction in ["h2c", "c2h"] {
                let run = |_| run_pair(&ours, peer.as_ref(), Cell { ring, size, direction }, options);
                let pairs = (0..options.pairs).map(run).collect::<Result<Vec<_>, _>>()?;
                println!("| {} |", row(&format!("{size} | {direction} | {ring}"), &pairs));
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    let (root, options) = (fpga_process::workspace_root(), Options::parse());
    let run = || {
        let check = |program| check::run(&program);
        if options.check {
            Program::existing(&root.join(&options.fpgactl)).and_then(check)
        } else {
            measure(&root, &options)
        }
    };
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            // A task that this machine cannot run has exit status 3, as a package.
            ExitCode::from(if matches!(error, BenchError::OneCpu) { 3 } else { 1 })
        }
    }
}
