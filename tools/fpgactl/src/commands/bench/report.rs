//! Report of `dma bench`.

use core::time::Duration;

use fpga_pci::AccessCounters;
use fpga_pci::memory::CopyLimit;
use serde::Serialize;

use super::Case;
use super::histogram::LatencyHistogram;
use super::measure::Run;
use crate::cli::BenchArgs;
use crate::copies::CopyRoutinesReport;
use crate::output::{Report, pairs, render, table};
use crate::target::Opened;
use crate::units::{binary_size, gigabytes_per_second, micros};

/// Measured results.
#[derive(Debug, Serialize)]
pub struct BenchReport {
    pub(super) card: String,
    pub(super) simulated: bool,
    /// CPUs of the simulated card's thread and of this one, if they were bound.
    pinned: Option<Pinned>,
    /// Difference between two consecutive readings of the clock; it is part of every latency.
    clock_ns: u64,
    /// How this machine copies data beyond its caches, for simulated cards, which copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<CopyRoutinesReport>,
    /// Bytes of an operation of the channel that was kept busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<u64>,
    pub(super) results: Vec<ResultRow>,
    /// The simulated card's thread and this one share a CPU: the figures show the scheduler, not the card.
    pub(super) shared_cpu: bool,
    /// Warning for people, with advice.
    #[serde(skip)]
    pub(super) warning: Option<String>,
    /// Path of the figure, if one was requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) svg: Option<String>,
    /// Chart for people, if it can be shown.
    #[serde(skip)]
    pub(super) chart: String,
}

#[derive(Debug, Serialize)]
struct Pinned {
    card: usize,
    host: usize,
}

/// Result of one size, direction and wait mode.
#[derive(Debug, Serialize)]
pub(super) struct ResultRow {
    pub(super) size: u64,
    depth: u32,
    batch: u32,
    pub(super) direction: &'static str,
    pub(super) mode: &'static str,
    pub(super) ring: &'static str,
    /// Channels per direction.
    channels: u8,
    operations: u64,
    seconds: f64,
    ops_per_s: f64,
    pub(super) gb_per_s: f64,
    /// Speed of the fastest plain copy of this size on this CPU, measured just before; `None` for a real card, which does not copy.
    copy_gb_per_s: Option<f64>,
    /// `None`: the card has no channel in the other direction for the comparison.
    verified: Option<bool>,
    samples: u64,
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    p999_us: Option<f64>,
    /// CPU time of submitting and reaping in closed batches.
    cpu_ns_per_op: Option<f64>,
    /// CPU time of this thread in the throughput run, waiting included.
    thread_cpu_ns_per_op: f64,
    /// CPU time of all threads divided by wall time in the throughput run. It is 2 if this thread and the simulated card's each use a whole
    /// CPU.
    busy_cpus: f64,
    mmio_reads_per_op: Option<f64>,
    mmio_writes_per_op: Option<f64>,
    interrupts_per_op: Option<f64>,
}

/// Input of a line.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) run: Run,
    /// The fastest plain copy.
    pub(super) limit: Option<CopyLimit>,
    pub(super) latency: Option<Latency>,
    pub(super) cpu_ns_per_op: Option<f64>,
    /// Accesses that the card counted in the throughput run, if it counts them.
    pub(super) counted: Option<AccessCounters>,
    /// Whether the data could be compared; a difference leaves no line.
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
    /// Returns `None` if nothing was measured.
    pub(super) fn of(LatencyHistogram(measured): &LatencyHistogram) -> Option<Self> {
        let quantile = |part| measured.value_at_quantile(part);
        (!measured.is_empty()).then(|| Self {
            samples: measured.len(),
            p50: quantile(0.5),
            p99: quantile(0.99),
            p999: quantile(0.999),
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates are shown with a few digits")]
const fn float(value: u64) -> f64 {
    value as f64
}

impl ResultRow {
    pub(super) fn new(args: &BenchArgs, case: &Case, measured: &Measured) -> Self {
        let Measured { run, limit, latency, cpu_ns_per_op, counted, comparable } = *measured;
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
            copy_gb_per_s: limit.map(|limit| limit.bytes_per_second * 1e-9),
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

impl ResultRow {
    /// Share of the speed of plain copies.
    fn share_of_copy(&self) -> Option<f64> {
        self.copy_gb_per_s.map(|limit| self.gb_per_s / limit.max(f64::MIN_POSITIVE))
    }

    /// Load on the card, in words.
    pub(super) fn load(&self) -> String {
        format!(
            "{} in flight, {} per round, {} channel(s) per direction, {} ring",
            self.depth,
            // At most `depth` fit.
            self.batch.min(self.depth),
            self.channels,
            self.ring
        )
    }
}

impl BenchReport {
    pub(super) fn new(opened: &Opened, args: &BenchArgs, clock: Duration, results: Vec<ResultRow>) -> Self {
        Self {
            card: opened.card.name().to_owned(),
            simulated: opened.simulated,
            pinned: args.pin.map(|pin| Pinned { card: pin.card, host: pin.host }),
            clock_ns: u64::try_from(clock.as_nanos()).unwrap_or(u64::MAX),
            copies: opened.simulated.then(CopyRoutinesReport::get),
            beside: args.beside,
            results,
            shared_cpu: false,
            warning: None,
            svg: None,
            chart: String::new(),
        }
    }
}

impl Report for BenchReport {
    fn text(&self) -> String {
        let mut about =
            vec![("card", format!("{}{}", self.card, if self.simulated { " (simulated)" } else { "" }))];
        if let Some(first) = self.results.first() {
            about.push(("load", first.load()));
        }
        if let Some(size) = self.beside {
            about
                .push(("beside", format!("one more channel, busy with operations of {}", binary_size(size))));
        }
        if let Some(pinned) = &self.pinned {
            about.push(("CPUs", format!("card {}, host {}", pinned.card, pinned.host)));
        }
        if let Some(copies) = &self.copies {
            about.push(("copies", copies.line()));
        }
        if let Some(warning) = &self.warning {
            about.push(("warning", warning.clone()));
        }
        let mut text = pairs(&about);
        text.push('\n');
        let header = [
            "SIZE",
            "WAY",
            "MODE",
            "M OPS/S",
            "GB/S",
            "OF COPY",
            "P50 µs",
            "P99 µs",
            "P99.9 µs",
            "CPU ns",
            "THREAD ns",
            "READS",
            "WRITES",
            "IRQS",
            "VERIFIED",
        ];
        let mut table = table(&header, &[0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
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
                shown(line.share_of_copy(), 2),
                shown(line.p50_us, 3),
                shown(line.p99_us, 3),
                shown(line.p999_us, 3),
                shown(line.cpu_ns_per_op, 1),
                format!("{:.1}", line.thread_cpu_ns_per_op),
                shown(line.mmio_reads_per_op, 4),
                shown(line.mmio_writes_per_op, 4),
                shown(line.interrupts_per_op, 4),
                if line.verified.is_some() { "yes" } else { "n/a" }.to_owned(),
            ]);
        }
        text += &render(&table);
        text += "\nOF COPY: share of the speed of the fastest plain copy of this size on this CPU, measured just before the row.\n\
                 CPU: submitting and reaping an operation, without waiting. THREAD: this thread's CPU time, with waiting.\n\
                 READS, WRITES (of registers), IRQS: per operation, where the card counts them.\n";
        if let Some(file) = &self.svg {
            text += &format!("\nfigure: {file}\n");
        }
        text + &self.chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_quantiles_are_correct() {
        let of = |spans: &mut dyn Iterator<Item = u64>| {
            let mut measured = LatencyHistogram::new();
            spans.for_each(|span| measured.record(span));
            Latency::of(&measured)
        };
        assert_eq!(of(&mut std::iter::empty()), None);
        assert_eq!(of(&mut [7].into_iter()).unwrap(), Latency { samples: 1, p50: 7, p99: 7, p999: 7 });
        // Short latencies are exact.
        assert_eq!(of(&mut (1..=2000)).unwrap(), Latency { samples: 2000, p50: 1000, p99: 1980, p999: 1998 });
        // Long latencies are exact to a thousandth, and those above the maximum are not lost.
        let long = of(&mut (1..=100_000).chain([u64::MAX])).unwrap();
        for (found, exact) in [(long.p50, 50_000), (long.p99, 99_000), (long.p999, 99_900)] {
            assert!(found.abs_diff(exact) * 1000 <= exact, "{found} instead of {exact}");
        }
        assert_eq!(long.samples, 100_001);
    }
}
