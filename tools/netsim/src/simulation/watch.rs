//! Observation of a run: waits of each flow at each queue, and series of queue lengths and rates.

use std::collections::HashMap;

use fpga_protocol::Nanos;

use super::{NONE, PICOS, Packet, Report, Simulation};
use crate::queue_report::{FlowDelay, QueueReport, QueueSeries, SeriesReport};
use crate::scenario::Scenario;
use crate::topology::SwitchFabric;
use rustc_hash::FxHashMap;

/// Maximum number of flows and ports whose waits are recorded; further ones are not.
const MAX_PAIRS: usize = 1 << 21;
/// Maximum number of values of all series.
const MAX_VALUES: usize = 1 << 22;
/// Maximum number of queues with a series in the report.
const MAX_SERIES: usize = 16;

/// Waits of one flow at one port.
#[derive(Clone, Copy, Debug, Default)]
struct FlowWait {
    /// Time during which at least one of its packets waited, in picoseconds.
    total: u64,
    /// End of the last counted wait.
    until: u64,
    /// Packets lost there.
    lost: u64,
}

/// Observation.
#[derive(Debug)]
pub(super) struct Watch {
    waits: FxHashMap<(u32, u32), FlowWait>,
    /// Shortest header of each flow's data packets.
    headers: Vec<u32>,
    /// Interval of the series in picoseconds, 0 for none, and the time of the next sample.
    interval: u64,
    next: u64,
    /// Length of every port's queue and bytes sent since the last sample, sample by sample.
    rows: Vec<(u32, u32)>,
    sent: Vec<u64>,
    truncated: bool,
}

impl Watch {
    pub(super) fn new(scenario: &Scenario) -> Self {
        let interval = scenario.series.map_or(0, |interval| interval.get().saturating_mul(PICOS));
        Self {
            waits: FxHashMap::default(),
            headers: vec![u32::MAX; scenario.flows.len()],
            interval,
            next: interval,
            rows: Vec::new(),
            sent: Vec::new(),
            truncated: false,
        }
    }

    /// Records a data packet that a host sends.
    pub(super) fn note_sent(&mut self, flow: u32, header: u32) {
        if let Some(least) = self.headers.get_mut(flow as usize) {
            *least = (*least).min(header);
        }
    }

    fn wait_of(&mut self, flow: u32, port: u32) -> Option<&mut FlowWait> {
        if self.waits.len() >= MAX_PAIRS && !self.waits.contains_key(&(flow, port)) {
            return None;
        }
        Some(self.waits.entry((flow, port)).or_default())
    }

    /// Takes the samples that are due before the event at `at`.
    #[inline]
    pub(super) fn sample_until(&mut self, network: &SwitchFabric, at: u64) {
        while self.interval > 0 && self.next <= at && !self.truncated {
            self.sample(network);
        }
    }

    fn sample(&mut self, network: &SwitchFabric) {
        let ports = network.ports();
        if self.rows.len() + ports > MAX_VALUES {
            self.truncated = true;
            return;
        }
        self.sent.resize(ports, 0);
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        for (port, (stats, before)) in (0..).zip(network.statistics().iter().zip(&mut self.sent)) {
            let backlog = network.backlog(port, self.next);
            let sent = stats.bytes.saturating_sub(backlog);
            self.rows.push((narrow(backlog), narrow(sent.saturating_sub(*before))));
            *before = sent.max(*before);
        }
        self.next = self.next.saturating_add(self.interval);
    }

    /// Completes the report.
    pub(super) fn finish(self, scenario: &Scenario, network: &SwitchFabric, report: &mut Report) {
        let mut queues: Vec<QueueReport> = Vec::new();
        let begun = report.flows.iter().map(|flow| flow.begun).min().unwrap_or(Nanos::ZERO);
        let span = report.ended.saturating_sub(begun).get().max(1);
        for (port, stats) in (0..).zip(network.statistics()) {
            if stats.packets == 0 && stats.dropped == 0 {
                continue;
            }
            let Some((from, to)) = network.owner(port).map(|from| (from, network.next_hop(port).1)) else {
                continue;
            };
            let bytes = |picos: f64| crate::numbers::nearest(network.bytes_in(port, picos));
            #[expect(clippy::cast_precision_loss, reason = "a mean")]
            let work = stats.work as f64;
            queues.push(QueueReport {
                port,
                number: network.number(port),
                from,
                to,
                packets: stats.packets,
                bytes: stats.bytes,
                mean_bytes: bytes(work / (crate::numbers::float(span) * 1000.0)),
                max_bytes: bytes(crate::numbers::float(stats.max)),
                full: Nanos::new(stats.full / PICOS),
                observed: Nanos::new(span),
                dropped: stats.dropped,
                marked: stats.marked,
                trimmed: stats.trimmed,
                cut: stats.cut,
                ..QueueReport::default()
            });
        }
        let place: HashMap<u32, usize> =
            queues.iter().enumerate().map(|(at, queue)| (queue.port, at)).collect();
        // By flow: the queue in which it waited longest, and the one that lost most of its packets. Ties: the lower port.
        let mut delays: Vec<FlowDelay> =
            (0..).zip(&scenario.flows).map(|(flow, _)| FlowDelay::new(flow)).collect();
        let mut waits: Vec<_> = self.waits.iter().collect();
        waits.sort_unstable_by_key(|(key, _)| **key);
        for ((flow, port), wait) in waits {
            let waited = Nanos::new(wait.total / PICOS);
            if let Some(queue) = place.get(port).and_then(|at| queues.get_mut(*at)) {
                queue.flows += u64::from(wait.total > 0);
                queue.waited = queue.waited.saturating_add(waited);
                queue.max_wait = queue.max_wait.max(waited);
            }
            let Some(delay) = delays.get_mut(*flow as usize) else { continue };
            if waited > delay.waited {
                (delay.waited, delay.queue) = (waited, Some(*port));
            }
            if wait.lost > delay.lost {
                (delay.lost, delay.lost_at) = (wait.lost, Some(*port));
            }
        }
        for ((delay, flow), header) in delays.iter_mut().zip(&scenario.flows).zip(&self.headers) {
            let header = if *header == u32::MAX { 0 } else { *header };
            delay.ideal =
                network.ideal((flow.from, flow.to), flow.length, scenario.sender.packet_size(), header);
        }
        report.series = (self.interval > 0).then(|| self.series(&queues));
        report.queues = queues;
        report.delays = delays;
    }

    fn series(&self, queues: &[QueueReport]) -> SeriesReport {
        let ports = self.sent.len().max(1);
        let mut longest: Vec<&QueueReport> = queues.iter().collect();
        longest.sort_by_key(|queue| (core::cmp::Reverse(queue.max_bytes), queue.port));
        let one = |queue: &&QueueReport| {
            let values = self.rows.iter().skip(queue.port as usize).step_by(ports);
            let (bytes, sent): (Vec<u32>, Vec<u32>) = values.copied().unzip();
            QueueSeries {
                port: queue.port,
                from: queue.from,
                to: queue.to,
                number: queue.number,
                bytes,
                sent,
            }
        };
        SeriesReport {
            interval: Nanos::new(self.interval / PICOS),
            truncated: self.truncated,
            queues: longest.iter().take(MAX_SERIES).map(one).collect(),
        }
    }
}

impl Simulation {
    /// Records a wait of a packet at a port: for its receiver, and for the report.
    pub(super) fn note_wait(&mut self, port: u32, packet: u32, since: u64, waited: u64, marked: bool) {
        if !self.observes {
            return;
        }
        let Some(of) = self.packets.get_mut(packet as usize) else { return };
        of.marked |= marked;
        of.waited = of.waited.saturating_add(waited);
        let flow = of.flow;
        if waited == 0 || flow == NONE {
            return;
        }
        if let Some(wait) = self.watch.as_mut().and_then(|watch| watch.wait_of(flow, port)) {
            let until = since.saturating_add(waited);
            wait.total += until.saturating_sub(since.max(wait.until));
            wait.until = wait.until.max(until);
        }
    }

    /// Records a packet that a port loses.
    pub(super) fn note_loss(&mut self, port: u32, packet: u32) {
        let Some(flow) = self.packets.get(packet as usize).map(|packet: &Packet| packet.flow) else { return };
        if flow == NONE {
            return;
        }
        if let Some(wait) = self.watch.as_mut().and_then(|watch| watch.wait_of(flow, port)) {
            wait.lost += 1;
        }
    }
}
