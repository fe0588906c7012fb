//! Content of BENCHMARKS.md.

use std::fmt::Write as _;

use super::cost::{self, Cost};
use super::cpu_sample::CpuSample;
use super::machine::Facts;
use super::micro::Benchmark;
use super::placement::{CpuPlacement, histogram};
use super::programs::PEER_FLAGS;
use super::record::{Latency, Record, Run};
use super::statistics::Spread;
use super::{BUSY_CPUS, Cell, Measured, Pair, Ring, Setting, Verdict};

/// Input of the report.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) command: String,
    pub(super) machine: Facts,
    pub(super) versions: Facts,
    pub(super) setting: Setting,
    /// Wanted number of pairs per median.
    pub(super) wanted: usize,
    pub(super) measured: Vec<Measured>,
    pub(super) cost: Vec<Cost>,
    pub(super) micro: Vec<Benchmark>,
    /// CPU placement around the benchmarks of `micro`; `None`: it changed.
    pub(super) micro_regime: Option<CpuPlacement>,
}

/// Minimum ratio to the peer, by size.
const MIN_RATIOS: [(u64, f64); 5] = [(64, 2.5), (512, 2.0), (4096, 1.15), (65536, 1.05), (1 << 20, 1.05)];

fn floor(cell: &Cell) -> Option<f64> {
    MIN_RATIOS.iter().find(|(size, _)| *size == cell.size).map(|(_, floor)| *floor)
}

/// Maximum cost of submitting and reaping the shortest operation, in nanoseconds.
const fn cost_limit(cell: &Cell, regime: CpuPlacement) -> Option<f64> {
    match regime {
        _ if cell.size > 64 => None,
        CpuPlacement::SharedCache => Some(15.0),
        CpuPlacement::NoSharedCache => Some(30.0),
        CpuPlacement::SameCore => None,
    }
}

const fn met(yes: bool) -> &'static str {
    if yes { "yes" } else { "**no**" }
}

fn size_text(bytes: u64) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

/// Table: header, then rows of as many columns; columns after the first `left` are right-aligned.
fn table(header: &[&str], left: usize, rows: &[Vec<String>]) -> String {
    let rule: Vec<&str> =
        (0..header.len()).map(|column| if column < left { "---" } else { "---:" }).collect();
    let mut text = format!("| {} |\n| {} |\n", header.join(" | "), rule.join(" | "));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    text
}

fn facts(facts: &Facts) -> String {
    facts.iter().fold(String::new(), |mut text, (name, value)| {
        let _ = writeln!(text, "* {name}: {value}");
        text
    })
}

/// Progress line for one pair.
pub(super) fn progress(cell: &Cell, pair: &Pair, setting: &Setting) -> String {
    let latencies: Vec<String> = pair.looks.iter().map(|cores| format!("{:.0}", cores.one_way_ns)).collect();
    let mut text = format!(
        "{:>7} {} {:6}  {:8.3} M ops/s",
        size_text(cell.size),
        cell.direction.name(),
        cell.ring.name(),
        pair.ours.ops_per_s / 1e6
    );
    if let Some(peer) = &pair.peer {
        let _ = write!(
            text,
            ", peer {:8.3}, ratio {:6.2}",
            peer.ops_per_s / 1e6,
            pair.ours.ops_per_s / peer.ops_per_s
        );
    }
    let _ = write!(text, "  {} ({} ns)", pair.verdict(setting).name(), latencies.join(" "));
    text
}

impl Report {
    pub(super) fn text(&self) -> String {
        let mut text = String::from(
            "# Benchmarks\n\nWritten by `cargo measure --peer --write`; do not edit. Figures of one machine at one time: compare ratios, not\nfigures of two machines. To repeat the measurement:\n\n",
        );
        let _ = writeln!(text, "    {}\n", self.command);
        let _ =
            writeln!(text, "## Machine and versions\n\n{}{}", facts(&self.machine), facts(&self.versions));
        if !self.measured.is_empty() {
            text += &self.method();
            text += &self.regimes();
            text += &self.throughput(Ring::Credit, "credit mode");
            text += &self.throughput(Ring::Stop, "batch mode (the default)");
            text += &self.latency();
            text += &self.cpu();
        }
        if !self.micro.is_empty() {
            text += &self.building_blocks();
        }
        text
    }

    fn method(&self) -> String {
        let Setting { depth, .. } = self.setting;
        format!(
            "## What is compared\n\n\
            *Ours*: the driver on one thread, a simulated card on a second one, which fetches descriptors, translates addresses, copies\n\
            and writes back as the hardware does; `fpgactl dma bench --card mock`.\n\
            *Peer*: DPDK's software DMA device (`dma_skeleton`: rings, and a thread that copies) through the dmadev API;\n\
            `tools/bench/peer/dmadev_skeleton.c`, `gcc {}`. It is built for this machine's CPU, ours is not.\n\n\
            Both copy from a working set of 16 MiB (at most 4096 buffers) to another one, keep {depth} operations in flight, submit at\n\
            most 32 per round and then poll once for completions, are bound to the same two CPUs, and compare the memory afterwards:\n\
            a run whose data differs ends the benchmark.\n\n\
            Runs come in pairs, ours and then the peer's. Before, between and after, two threads pass a cache line back and forth. A pair\n\
            counts as *far* if all three latencies reach {} ns one way, as *near* if all reach {} ns only, and as *one core* if none does:\n\
            the CPUs of the virtual machine are then two hardware threads of one core. Otherwise their placement changed during the pair,\n\
            which is discarded as torn. A pair is discarded as disturbed if either program got less than {BUSY_CPUS} of the two CPUs' time.\n\
            A ratio is that of one pair. Figures are medians, with minimum and maximum in brackets. Floors apply to separate cores;\n\
            *too few*: a median of fewer than {} pairs.\n\n",
            PEER_FLAGS.join(" "),
            self.setting.limits.far_ns,
            self.setting.limits.near_ns,
            self.wanted,
        )
    }

    fn regimes(&self) -> String {
        let pairs = || self.measured.iter().flat_map(|measured| &measured.pairs);
        let samples: Vec<CpuSample> = pairs().flat_map(|pair| pair.looks.iter().copied()).collect();
        let count = |verdict| pairs().filter(|pair| pair.verdict(&self.setting) == verdict).count();
        format!(
            "## Latency between the two CPUs, one way\n\n{} pairs near, {} far, {} on one core; discarded: {} torn, {} disturbed.\n\
            x: how much longer arithmetic takes on one CPU while the other does the same (median).\n\n\
            ```text\n{}```\n\n",
            count(Verdict::Counts(CpuPlacement::SharedCache)),
            count(Verdict::Counts(CpuPlacement::NoSharedCache)),
            count(Verdict::Counts(CpuPlacement::SameCore)),
            count(Verdict::PlacementChanged),
            count(Verdict::CpuTaken),
            histogram(&samples, &self.setting.limits)
        )
    }

    /// Cells with pairs in a placement.
    fn rows(&self) -> impl Iterator<Item = (&Measured, CpuPlacement, Vec<&Pair>)> {
        self.measured
            .iter()
            .flat_map(|measured| CpuPlacement::ALL.into_iter().map(move |regime| (measured, regime)))
            .map(|(measured, regime)| {
                (measured, regime, measured.of(regime, &self.setting).collect::<Vec<_>>())
            })
            .filter(|(.., pairs)| !pairs.is_empty())
    }

    fn throughput(&self, ring: Ring, name: &str) -> String {
        if self.measured.iter().all(|measured| measured.cell.ring != ring) {
            return String::new();
        }
        let mut rows = Vec::new();
        for (measured, regime, pairs) in self.rows().filter(|(measured, ..)| measured.cell.ring == ring) {
            let cell = &measured.cell;
            let ratio = Spread::of(pairs.iter().filter_map(|pair| ratio(pair)));
            let floor = floor(cell).filter(|_| regime != CpuPlacement::SameCore);
            let ours = Spread::of(pairs.iter().map(|pair| pair.ours.ops_per_s));
            #[expect(clippy::cast_precision_loss, reason = "sizes are small")]
            let bytes = cell.size as f64;
            rows.push(vec![
                size_text(cell.size),
                cell.direction.name().to_owned(),
                regime.name().to_owned(),
                or_dash(ours, 1e6, 3),
                or_dash(Spread::of(peers(&pairs).map(|peer| peer.ops_per_s)), 1e6, 3),
                ours.map_or_else(dash, |ours| format!("{:.2}", ours.median * bytes / 1e9)),
                or_dash(ratio, 1.0, 2),
                floor.map_or_else(dash, |floor| format!("{floor:.2}")),
                match (ratio, floor) {
                    (Some(ratio), Some(floor)) => {
                        let few = if pairs.len() < self.wanted { ", too few" } else { "" };
                        met(ratio.median >= floor).to_owned() + few
                    }
                    _ => dash(),
                },
                pairs.len().to_string(),
                measured.discarded(&self.setting).to_string(),
            ]);
        }
        let header = [
            "size",
            "way",
            "regime",
            "ours, M ops/s",
            "peer, M ops/s",
            "ours, GB/s",
            "ratio",
            "floor",
            "met",
            "pairs",
            "discarded",
        ];
        format!("## Throughput, {name}\n\n{}\n", table(&header, 3, &rows))
    }

    fn latency(&self) -> String {
        let mut rows = Vec::new();
        for (measured, regime, pairs) in self.rows() {
            let of = |part: fn(&Latency) -> f64, records: &[&Record]| {
                or_dash(
                    Spread::of(records.iter().filter_map(|record| record.latency.as_ref().map(part))),
                    1.0,
                    0,
                )
            };
            let ours: Vec<&Record> = pairs.iter().map(|pair| &pair.ours).collect();
            if ours.iter().all(|record| record.latency.is_none()) {
                continue;
            }
            let peer: Vec<&Record> = peers(&pairs).collect();
            let median = |part: fn(&Latency) -> f64, records: &[&Record]| {
                Some(
                    Spread::of(records.iter().filter_map(|record| record.latency.as_ref().map(part)))?.median,
                )
            };
            let below =
                |part| Some(median(part, &ours)? < median(part, &peer)?).filter(|_| measured.cell.size == 64);
            let mut row = head(&measured.cell, regime);
            let below = Option::zip(below(|l| l.p50_ns), below(|l| l.p99_ns));
            let below = below.map_or_else(dash, |(p50, p99)| met(p50 && p99).to_owned());
            for records in [&ours, &peer] {
                row.extend([
                    of(|l| l.p50_ns, records),
                    of(|l| l.p99_ns, records),
                    of(|l| l.p999_ns, records),
                ]);
            }
            row.push(below);
            rows.push(row);
        }
        if rows.is_empty() {
            return String::new();
        }
        let header = [
            "size", "way", "ring", "regime", "ours p50", "p99", "p99.9", "peer p50", "p99", "p99.9", "below",
        ];
        format!(
            "## Latency of one operation at a time, ns\n\n\
            From before the submission to after the poll that found the operation done, 100 000 in a row. Each sample contains one reading of\n\
            the clock, on both sides. *Below*: whether p50 and p99 of 64 B are below the peer's, as required.\n\n{}\n",
            table(&header, 4, &rows)
        )
    }

    fn cpu(&self) -> String {
        let pairs = self.measured.iter().flat_map(|measured| &measured.pairs);
        let samples = pairs.flat_map(|pair| &pair.looks).chain(self.cost.iter().flat_map(Cost::samples));
        let quickest = cost::quickest(samples);
        let limits = &self.setting.limits;
        let mut rows = Vec::new();
        for (cost, regime) in
            self.cost.iter().flat_map(|cost| CpuPlacement::ALL.into_iter().map(move |regime| (cost, regime)))
        {
            let of = |runs: &[Run]| {
                let values: Vec<f64> = cost::in_regime(runs, regime, limits, quickest).collect();
                (Spread::of(values.iter().copied()), values.len())
            };
            let ((ours, runs), (peer, peer_runs)) = (of(&cost.ours), of(&cost.peer));
            let Some(ours) = ours else { continue };
            let limit = cost_limit(&cost.cell, regime);
            let mut row = head(&cost.cell, regime);
            row.extend([
                ours.text(1.0, 1),
                runs.to_string(),
                or_dash(peer, 1.0, 1),
                peer_runs.to_string(),
                peer.map_or_else(dash, |peer| format!("{:.2}", peer.median / ours.median)),
                limit.map_or_else(dash, |limit| format!("{limit:.0}")),
                limit.map_or_else(dash, |limit| met(ours.median <= limit).to_owned()),
            ]);
            rows.push(row);
        }
        if rows.is_empty() {
            return String::new();
        }
        let header =
            ["size", "way", "ring", "regime", "ours", "runs", "peer", "runs", "peer / ours", "limit", "met"];
        let all: usize = self.cost.iter().map(|cost| cost.ours.len() + cost.peer.len()).sum();
        format!(
            "## What an operation costs the submitting CPU, ns\n\n\
            Closed batches of 32. Submitting the batch is timed. A pause follows, long enough for the card or device to complete it, which\n\
            is not timed. Then reaping in one call is timed. Batches that are not complete by then are excluded; the figure is the median\n\
            of the others, less the cost of the clock. It contains no waiting, but every cache line that comes from the other CPU.\n\
            {all} separate runs; a run counts if no other program used the core of the submitting CPU: arithmetic on it took at most a tenth\n\
            longer before and after than in the best case.\n\n{}\n",
            table(&header, 4, &rows)
        )
    }

    fn building_blocks(&self) -> String {
        let rows: Vec<Vec<String>> = self
            .micro
            .iter()
            .map(|benchmark| {
                // If the CPU placement changed meanwhile, the stricter budget applies.
                let budget = benchmark.budget(self.micro_regime.unwrap_or(CpuPlacement::SharedCache));
                vec![
                    benchmark.package.clone(),
                    benchmark.name.clone(),
                    format!("{:.2}", benchmark.nanoseconds),
                    benchmark.interval.map_or_else(dash, |(low, high)| format!("{low:.2}-{high:.2}")),
                    budget.map_or_else(dash, |budget| format!("{budget:.0}")),
                    budget.map_or_else(dash, |budget| met(benchmark.nanoseconds <= budget).to_owned()),
                ]
            })
            .collect();
        let regime = self.micro_regime.map_or("changing", CpuPlacement::name);
        let header = ["package", "benchmark", "ns", "95 % interval", "budget", "met"];
        format!(
            "## Building blocks\n\n\
            `cargo bench -p PACKAGE`, nanoseconds per operation, CPUs {regime}. With an interval: criterion's mean; without: as the benchmark\n\
            prints it.\n\n{}\n",
            table(&header, 2, &rows)
        )
    }
}

fn head(cell: &Cell, regime: CpuPlacement) -> Vec<String> {
    let parts = [&size_text(cell.size), cell.direction.name(), cell.ring.name(), regime.name()];
    parts.map(str::to_owned).to_vec()
}

fn ratio(pair: &Pair) -> Option<f64> {
    pair.peer.as_ref().map(|peer| pair.ours.ops_per_s / peer.ops_per_s)
}

fn peers<'a>(pairs: &'a [&Pair]) -> impl Iterator<Item = &'a Record> {
    pairs.iter().filter_map(|pair| pair.peer.as_ref())
}

fn dash() -> String {
    "-".to_owned()
}

fn or_dash(spread: Option<Spread>, scale: f64, digits: usize) -> String {
    spread.map_or_else(dash, |spread| spread.text(scale, digits))
}

#[cfg(test)]
mod tests;
