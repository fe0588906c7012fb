//! Part of the report of `sim run` that explains slow flows.

use fpga_netsim::explain::{CauseKind, QueueReport, vertex_name};
use fpga_netsim::sweep::Sweep;
use fpga_netsim::{LinkFeedbackCounts, Topology};
use fpga_protocol::Nanos;
use fpga_registers::quantity;
use serde::Serialize;

/// Maximum number of slow flows in the report.
const MAX_SLOW: usize = 16;

/// Cause of slow flows.
#[derive(Debug, Serialize)]
pub struct CauseReport {
    kind: &'static str,
    flows: u64,
    of: u64,
    time_us: f64,
    excess_us: f64,
    queue: Option<QueueEntry>,
    text: String,
}

/// Queue of a switch port.
#[derive(Debug, Serialize)]
pub struct QueueEntry {
    from: String,
    from_vertex: u32,
    port: u32,
    to: String,
    to_vertex: u32,
    mean_bytes: u64,
    max_bytes: u64,
    full_share: f64,
    packets: u64,
    bytes: u64,
    dropped: u64,
    marked: u64,
    trimmed: u64,
    cut: u64,
    flows: u64,
    max_wait_us: f64,
}

/// Flow that took more than 1.25 times its ideal time.
#[derive(Debug, Serialize)]
pub struct SlowFlowEntry {
    flow: u32,
    from: u32,
    to: u32,
    bytes: u64,
    time_us: Option<f64>,
    ideal_us: f64,
    times_ideal: Option<f64>,
    cause: &'static str,
    waited_us: f64,
    lost: u64,
}

/// Queue lengths and rates over time.
#[derive(Debug, Serialize)]
pub struct SeriesEntry {
    interval_ns: u64,
    truncated: bool,
    queues: Vec<QueueSeriesEntry>,
}

/// Series of one queue.
#[derive(Debug, Serialize)]
struct QueueSeriesEntry {
    from: String,
    port: u32,
    to: String,
    queue_bytes: Vec<u32>,
    rate_gbps: Vec<f64>,
}

/// Counts of link feedback of all runs.
#[derive(Debug, Serialize)]
pub struct LinkFeedbackReport {
    inquiries: u64,
    passive: u64,
    active: u64,
    lost: u64,
    dropped: u64,
    rerouted: u64,
    slowed: u64,
    rates_lowered: u64,
    rates_raised: u64,
}

impl LinkFeedbackReport {
    const fn of(counts: &LinkFeedbackCounts) -> Self {
        Self {
            inquiries: counts.inquiries,
            passive: counts.passive,
            active: counts.active,
            lost: counts.lost,
            dropped: counts.dropped,
            rerouted: counts.rerouted,
            slowed: counts.slowed,
            rates_lowered: counts.lowered,
            rates_raised: counts.raised,
        }
    }

    fn text(&self) -> String {
        format!(
            "link feedback: {}, {} passive and {} active feedback ({} lost, {} dropped by switches), \
             {} rerouted, {} slowed down; rates lowered {}, raised {}\n",
            quantity(self.inquiries, "inquiry"),
            self.passive,
            self.active,
            self.lost,
            self.dropped,
            self.rerouted,
            self.slowed,
            quantity(self.rates_lowered, "time"),
            quantity(self.rates_raised, "time"),
        )
    }
}

/// Explanation of the slowest run, and series of the first one.
#[derive(Debug, Serialize)]
pub struct ExplainedReport {
    cut: u64,
    trimmed: u64,
    marked: u64,
    /// Null without a controller.
    link_feedback: Option<LinkFeedbackReport>,
    explained_seed: u64,
    slow_flows: u64,
    causes: Vec<CauseReport>,
    slowest: Vec<SlowFlowEntry>,
    queues: Vec<QueueEntry>,
    series: Option<SeriesEntry>,
}

#[expect(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
fn micros(span: Nanos) -> f64 {
    span.get() as f64 / 1000.0
}

fn queue(topology: &Topology, queue: &QueueReport) -> QueueEntry {
    QueueEntry {
        from: vertex_name(topology, queue.from),
        from_vertex: queue.from,
        port: queue.number,
        to: vertex_name(topology, queue.to),
        to_vertex: queue.to,
        mean_bytes: queue.mean_bytes,
        max_bytes: queue.max_bytes,
        full_share: queue.full_share(),
        packets: queue.packets,
        bytes: queue.bytes,
        dropped: queue.dropped,
        marked: queue.marked,
        trimmed: queue.trimmed,
        cut: queue.cut,
        flows: queue.flows,
        max_wait_us: micros(queue.max_wait),
    }
}

impl ExplainedReport {
    /// Builds the part from the results of all runs.
    pub fn of(scenario: &fpga_netsim::Scenario, sweep: &Sweep) -> Self {
        let topology = &scenario.topology;
        let causes = sweep.explanation.causes.iter().map(|cause| CauseReport {
            kind: cause.kind.name(),
            flows: cause.flows,
            of: cause.of,
            time_us: micros(cause.time),
            excess_us: micros(cause.excess),
            queue: cause.queue.as_ref().map(|of| queue(topology, of)),
            text: cause.text.clone(),
        });
        let slowest = sweep.explanation.slow.iter().take(MAX_SLOW).filter_map(|slow| {
            let flow = scenario.flows.get(slow.flow as usize)?;
            let (time, ideal) = (slow.time.map(micros), micros(slow.delay.ideal));
            Some(SlowFlowEntry {
                flow: slow.flow,
                from: flow.from,
                to: flow.to,
                bytes: flow.length,
                time_us: time,
                ideal_us: ideal,
                times_ideal: time.map(|time| time / ideal.max(0.001)),
                cause: CauseKind::name(slow.cause),
                waited_us: micros(slow.delay.waited),
                lost: slow.delay.lost,
            })
        });
        let series = sweep.series.as_ref().map(|series| SeriesEntry {
            interval_ns: series.interval.get(),
            truncated: series.truncated,
            queues: series
                .queues
                .iter()
                .map(|of| {
                    // Bits per nanosecond are Gbit/s.
                    let rate = |sent: &u32| f64::from(*sent) * 8.0 / (micros(series.interval) * 1000.0);
                    QueueSeriesEntry {
                        from: vertex_name(topology, of.from),
                        port: of.number,
                        to: vertex_name(topology, of.to),
                        queue_bytes: of.bytes.clone(),
                        rate_gbps: of.sent.iter().map(rate).collect(),
                    }
                })
                .collect(),
        });
        Self {
            cut: sweep.cut,
            trimmed: sweep.trimmed,
            marked: sweep.marked,
            link_feedback: sweep.links.as_ref().map(LinkFeedbackReport::of),
            explained_seed: sweep.explained_seed,
            slow_flows: sweep.explanation.slow.len() as u64,
            causes: causes.collect(),
            slowest: slowest.collect(),
            queues: sweep.queues.iter().map(|of| queue(topology, of)).collect(),
            series,
        }
    }

    /// Lines for people: causes, and the slowest flow.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (number, count) in
            [("lost on failed links", self.cut), ("trimmed", self.trimmed), ("marked", self.marked)]
        {
            if count > 0 {
                text += &format!("{}: {count}\n", format_args!("packets {number}"));
            }
        }
        if let Some(links) = &self.link_feedback {
            text += &links.text();
        }
        for cause in &self.causes {
            text += &format!("cause: {}\n", cause.text);
        }
        if let Some(slow) = self.slowest.first() {
            let time = match (slow.time_us, slow.times_ideal) {
                (Some(time), Some(times)) => {
                    format!("{time:.1} µs, {times:.1} times its ideal time of {:.1} µs", slow.ideal_us)
                }
                _ => format!("did not arrive; its ideal time is {:.1} µs", slow.ideal_us),
            };
            text += &format!(
                "slowest flow (seed {}): {} from host {} to host {}, {time}\n",
                self.explained_seed, slow.flow, slow.from, slow.to
            );
        }
        text
    }
}
