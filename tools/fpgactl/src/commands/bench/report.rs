//! What `dma bench` prints.

use core::time::Duration;

use fpga_driver::pci::AccessCounters;
use serde::Serialize;

use super::Case;
use super::measure::Run;
use crate::cli::BenchArgs;
use crate::output::{Report, pairs, render, table};
use crate::target::Opened;
use crate::units::{binary_size, gigabytes_per_second, micros};

/// What was measured.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    card: String,
    simulated: bool,
    /// CPUs of the simulated card's thread and of this one, where they were bound.
    pinned: Option<Pinned>,
    /// What two readings of the clock in a row differ by; it is in every latency.
    clock_ns: u64,
    results: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Pinned {
    card: usize,
    host: usize,
}

/// One size, direction and way of waiting.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    size: u64,
    depth: u32,
    batch: u32,
    direction: &'static str,
    mode: &'static str,
    ring: &'static str,
    /// Per direction.
    channels: u8,
    operations: u64,
    seconds: f64,
    ops_per_s: f64,
    gb_per_s: f64,
    /// `None`: the card has no channel in the other direction to compare with.
    verified: Option<bool>,
    samples: u64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// Submitting and reaping in closed batches.
    cpu_ns_per_op: Option<f64>,
    /// CPU time of this thread in the throughput run, waiting included.
    thread_cpu_ns_per_op: f64,
    /// CPU time of all threads over wall time in the throughput run: 2 where this thread and the simulated card's had a CPU each
    /// all the time.
    busy_cpus: f64,
    mmio_reads_per_op: Option<f64>,
    mmio_writes_per_op: Option<f64>,
    interrupts_per_op: Option<f64>,
}

/// What a line is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) run: Run,
    pub(super) latency: Option<Latency>,
    pub(super) cpu_ns_per_op: Option<f64>,
    /// What the card counted in the throughput run, where it counts.
    pub(super) counted: Option<AccessCounters>,
    /// Whether the data could be compared; where it differed there is no line.
    pub(super) comparable: bool,
}

/// Latencies, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Latency {
    samples: u64,
    p50: u64,
    p99: u64,
    p999: u64,
}

impl Latency {
    /// Of samples in ascending order; `None` of none.
    pub(super) fn of(ascending: &[u64]) -> Option<Self> {
        // The smallest one that so many per mille of the others do not exceed.
        let quantile = |per_mille: usize| {
            let rank = ascending.len() * per_mille / 1000;
            ascending.get(rank.min(ascending.len().saturating_sub(1))).copied()
        };
        Some(Self {
            samples: ascending.len() as u64,
            p50: quantile(500)?,
            p99: quantile(990)?,
            p999: quantile(999)?,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
const fn float(value: u64) -> f64 {
    value as f64
}

impl Line {
    pub(super) fn new(args: &BenchArgs, case: &Case, measured: &Measured) -> Self {
        let Measured { run, latency, cpu_ns_per_op, counted, comparable } = *measured;
        let Run { operations, span, thread, process } = run;
        let seconds = span.as_secs_f64();
        let per_op = |count: u64| float(count) / float(operations.max(1));
        Self {
            size: case.size,
            depth: args.depth,
            batch: args.batch,
            direction: case.direction.name(),
            mode: case.mode.name(),
            ring: args.ring.name(),
            channels: args.channels,
            operations,
            seconds,
            ops_per_s: if seconds > 0.0 { float(operations) / seconds } else { 0.0 },
            gb_per_s: gigabytes_per_second(operations.saturating_mul(case.size), span),
            verified: comparable.then_some(true),
            samples: latency.map_or(0, |latency| latency.samples),
            p50_us: latency.map(|latency| micros(latency.p50)),
            p99_us: latency.map(|latency| micros(latency.p99)),
            p999_us: latency.map(|latency| micros(latency.p999)),
            cpu_ns_per_op,
            thread_cpu_ns_per_op: thread.as_secs_f64() * 1e9 / float(operations.max(1)),
            busy_cpus: if seconds > 0.0 { process.as_secs_f64() / seconds } else { 0.0 },
            mmio_reads_per_op: counted.map(|counted| per_op(counted.mmio_reads)),
            mmio_writes_per_op: counted.map(|counted| per_op(counted.mmio_writes)),
            interrupts_per_op: counted.map(|counted| per_op(counted.interrupts)),
        }
    }
}

impl BenchReport {
    pub(super) fn new(opened: &Opened, args: &BenchArgs, clock: Duration, results: Vec<Line>) -> Self {
        Self {
            card: opened.card.name().to_owned(),
            simulated: opened.simulated,
            pinned: args.pin.map(|pin| Pinned { card: pin.card, host: pin.host }),
            clock_ns: u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX),
            results,
        }
    }
}

impl Report for BenchReport {
    fn text(&self) -> String {
        let mut about =
            vec![("card", format!("{}{}", self.card, if self.simulated { " (simulated)" } else { "" }))];
        if let Some(first) = self.results.first() {
            about.push((
                "load",
                format!(
                    "{} in flight, {} per round, {} channel(s) per direction, {} ring",
                    first.depth, first.batch, first.channels, first.ring
                ),
            ));
        }
        if let Some(pinned) = &self.pinned {
            about.push(("CPUs", format!("card {}, host {}", pinned.card, pinned.host)));
        }
        let mut text = pairs(&about);
        text.push('\n');
        let header = [
            "SIZE",
            "WAY",
            "MODE",
            "M OPS/S",
            "GB/S",
            "P50 us",
            "P99 us",
            "P99.9 us",
            "CPU ns",
            "THREAD ns",
            "READS",
            "WRITES",
            "IRQS",
            "VERIFIED",
        ];
        let mut table = table(&header, &[0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        for line in &self.results {
            table.add_row([
                binary_size(line.size),
                line.direction.to_owned(),
                line.mode.to_owned(),
                format!("{:.3}", line.ops_per_s / 1e6),
                format!("{:.3}", line.gb_per_s),
                shown(line.p50_us, 3),
                shown(line.p99_us, 3),
                shown(line.p999_us, 3),
                shown(line.cpu_ns_per_op, 1),
                format!("{:.1}", line.thread_cpu_ns_per_op),
                shown(line.mmio_reads_per_op, 4),
                shown(line.mmio_writes_per_op, 4),
                shown(line.interrupts_per_op, 4),
                if line.verified.is_some() { "yes" } else { "no way" }.to_owned(),
            ]);
        }
        text += &render(&table);
        text += "\nCPU: submitting and reaping an operation, without waiting. THREAD: this thread's CPU time, with waiting.\n\
                 READS, WRITES (of registers), IRQS: per operation, where the card counts them.\n";
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_latencies() {
        assert_eq!(Latency::of(&[]), None);
        let one = Latency::of(&[7]).unwrap();
        assert_eq!((one.samples, one.p50, one.p99, one.p999), (1, 7, 7, 7));
        let many: Vec<u64> = (0..100_000).collect();
        let many = Latency::of(&many).unwrap();
        assert_eq!((many.p50, many.p99, many.p999), (50_000, 99_000, 99_900));
    }
}
