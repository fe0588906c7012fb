//! Causes of slow flows: which queue, which link, how long.
//!
//! A flow's ideal time is that on an idle network: the delays of its links, its packets on the slowest of them, and one packet on each of the
//! others. A flow is slow if it took more than 1.25 times as long, or did not arrive. It waited for a queue while at least one of its packets was
//! in it.

use std::fmt;

use fpga_protocol::Nanos;

pub use crate::queue_report::{FlowDelay, QueueReport, QueueSeries, SeriesReport};
use crate::{Report, Scenario, Topology};

/// Kind of a cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CauseKind {
    /// Packets waited in a queue.
    Queue(u32),
    /// A full queue dropped packets.
    Drops(u32),
    /// A link failed.
    FailedLink(u32),
    /// The sending host's link carried other flows at the same time.
    SharedSender,
    /// Packets were retransmitted because of losses, damage or reordering at hosts.
    Retransmission,
    /// None of them: windows, contexts or acknowledgements of the scheme.
    Scheme,
}

impl CauseKind {
    /// Name in JSON documents.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue(_) => "queue",
            Self::Drops(_) => "drops",
            Self::FailedLink(_) => "failed-link",
            Self::SharedSender => "shared-sender",
            Self::Retransmission => "retransmission",
            Self::Scheme => "scheme",
        }
    }
}

/// Cause of delays.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cause {
    /// Kind, with the port.
    pub kind: CauseKind,
    /// Slow flows with this cause.
    pub flows: u64,
    /// All flows of the run.
    pub of: u64,
    /// Maximum wait or excess over the ideal time of such a flow.
    pub time: Nanos,
    /// Total excess of these flows over their ideal times.
    pub excess: Nanos,
    /// Queue, if a port is the cause.
    pub queue: Option<QueueReport>,
    /// One sentence.
    pub text: String,
}

/// A slow flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowFlow {
    /// Number of the flow.
    pub flow: u32,
    /// Time until its receiver was notified; `None`: it did not arrive.
    pub time: Option<Nanos>,
    /// Time beyond the ideal time; of a flow that did not arrive, until the end of the run.
    pub excess: Nanos,
    /// Its delay.
    pub delay: FlowDelay,
    /// Main cause.
    pub cause: CauseKind,
}

/// Explanation of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// Causes, the one with the largest total excess first.
    pub causes: Vec<Cause>,
    /// Slow flows, the one with the largest excess first.
    pub slow: Vec<SlowFlow>,
}

/// Time in the unit that suits it.
struct Time(Nanos);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = crate::numbers::float(self.0.get()) / 1000.0;
        if micros >= 1000.0 { write!(f, "{:.2} ms", micros / 1000.0) } else { write!(f, "{micros:.1} µs") }
    }
}

/// Name of a vertex: a host, or a switch by its tier.
#[must_use]
pub fn vertex_name(topology: &Topology, vertex: u32) -> String {
    let hosts = topology.hosts();
    match (topology, vertex.checked_sub(hosts)) {
        (_, None) => format!("host {vertex}"),
        (Topology::Clos(clos), Some(switch)) => {
            let (tier, number) = clos.tier_of(switch);
            let name = match (tier, clos.top()) {
                (0, _) => "leaf",
                (1, 1) => "spine",
                (1, _) => "aggregation switch",
                _ => "core",
            };
            format!("{name} {number}")
        }
        (_, Some(switch)) => format!("switch {switch}"),
    }
}

/// Explains a report with observations; without them it names no cause.
#[must_use]
pub fn explain(scenario: &Scenario, report: &Report) -> Explanation {
    let mut slow = Vec::new();
    for ((delay, of), flow) in report.delays.iter().zip(&report.flows).zip(&scenario.flows) {
        let time = if of.error.is_none() { of.latency() } else { None };
        let spent = time.unwrap_or_else(|| report.ended.saturating_sub(of.begun));
        let excess = spent.saturating_sub(delay.ideal);
        if time.is_some() && excess.get().saturating_mul(4) <= delay.ideal.get() {
            continue;
        }
        let queue = |port: &u32| report.queues.iter().find(|queue| queue.port == *port);
        let lost = delay.lost_at.as_ref().and_then(queue);
        let overlaps = |(other, of): &(&crate::Flow, &crate::FlowReport)| {
            other.from == flow.from
                && of.received.is_none_or(|end| end > flow.at)
                && other.at < flow.at.saturating_add(spent)
        };
        let cause = match (delay.queue, lost) {
            (_, Some(lost)) if lost.cut > 0 => CauseKind::FailedLink(lost.port),
            (Some(port), _) if delay.waited.get().saturating_mul(4) >= excess.get() => CauseKind::Queue(port),
            (_, Some(lost)) => CauseKind::Drops(lost.port),
            _ if of.retransmits > 0 => CauseKind::Retransmission,
            _ if scenario.flows.iter().zip(&report.flows).filter(overlaps).nth(1).is_some() => {
                CauseKind::SharedSender
            }
            _ => CauseKind::Scheme,
        };
        slow.push(SlowFlow { flow: delay.flow, time, excess, delay: *delay, cause });
    }
    slow.sort_by_key(|flow| (core::cmp::Reverse(flow.excess), flow.flow));
    let mut kinds: Vec<CauseKind> = slow.iter().map(|flow| flow.cause).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let mut causes: Vec<Cause> = kinds.into_iter().map(|kind| cause(scenario, report, &slow, kind)).collect();
    causes.sort_by_key(|cause| (core::cmp::Reverse(cause.excess), cause.kind));
    Explanation { causes, slow }
}

fn cause(scenario: &Scenario, report: &Report, slow: &[SlowFlow], kind: CauseKind) -> Cause {
    let own: Vec<&SlowFlow> = slow.iter().filter(|flow| flow.cause == kind).collect();
    let port = match kind {
        CauseKind::Queue(port) | CauseKind::Drops(port) | CauseKind::FailedLink(port) => Some(port),
        _ => None,
    };
    let queue = report.queues.iter().find(|queue| Some(queue.port) == port).copied();
    let time_of =
        |flow: &&SlowFlow| if matches!(kind, CauseKind::Queue(_)) { flow.delay.waited } else { flow.excess };
    let time = own.iter().map(time_of).max().unwrap_or(Nanos::ZERO);
    let excess = own.iter().fold(Nanos::ZERO, |sum, flow| sum.saturating_add(flow.excess));
    let (flows, of) = (own.len(), report.flows.len());
    let name = |vertex| vertex_name(&scenario.topology, vertex);
    let place = queue.map_or_else(String::new, |queue| {
        format!("{} port {} (to {})", name(queue.from), queue.number, name(queue.to))
    });
    let state = queue.map_or_else(String::new, |queue| {
        format!(
            "mean {:.1} KiB, maximum {:.1} KiB, full {:.1} % of the time, {} dropped",
            crate::numbers::float(queue.mean_bytes) / 1024.0,
            crate::numbers::float(queue.max_bytes) / 1024.0,
            queue.full_share() * 100.0,
            fpga_registers::quantity(queue.dropped, "packet")
        )
    });
    let who = format!("{flows} of {}", fpga_registers::quantity(of, "flow"));
    let (span, cut) = (Time(time), queue.map_or(0, |queue| queue.cut));
    let text = match kind {
        CauseKind::Queue(_) => format!("{who} waited up to {span} for the queue of {place}: {state}"),
        CauseKind::Drops(_) => {
            format!("{who} lost packets at the full queue of {place}, up to {span} late: {state}")
        }
        CauseKind::FailedLink(_) => {
            format!(
                "{who} lost packets on the failed link of {place}, up to {span} late: {} lost",
                fpga_registers::quantity(cut, "packet")
            )
        }
        CauseKind::SharedSender => {
            format!("{who} shared their sender's link with other flows, up to {span} late")
        }
        CauseKind::Retransmission => {
            format!(
                "{who} retransmitted packets that hosts' links lost, damaged, delayed or reordered, up to {span} late"
            )
        }
        CauseKind::Scheme => {
            format!("{who} waited for the scheme (window, context or acknowledgements), up to {span}")
        }
    };
    Cause { kind, flows: flows as u64, of: of as u64, time, excess, queue, text }
}
