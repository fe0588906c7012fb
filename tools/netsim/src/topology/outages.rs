//! Links that fail or become slow at stated times, and the routes around them.

use std::cell::RefCell;

use fpga_protocol::Nanos;

use super::SwitchFabric;
use rustc_hash::FxHashMap;

/// Failure of a link, or its slow phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outage {
    /// Vertex at one end: hosts from 0, then switches, the lowest level first.
    pub from: u32,
    /// Vertex at the other end.
    pub to: u32,
    /// Number of the link among several between them, from 0; `None`: all of them.
    pub number: Option<u32>,
    /// Whether only the direction from `from` to `to` is affected.
    pub one_way: bool,
    /// Time of the first failure.
    pub at: Nanos,
    /// Duration; `None`: until the end of the run, as of a removed link.
    pub length: Option<Nanos>,
    /// Time from one failure to the next, at least the duration; `None`: it happens once.
    pub period: Option<Nanos>,
    /// `None`: nothing passes. Else the factor by which packets take longer.
    pub times: Option<u32>,
}

/// Way of a packet at a vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It has arrived.
    Here,
    /// It leaves by this port.
    Through(u32),
    /// All links on shortest routes have failed.
    Lost,
}

/// Phases of one port, in picoseconds.
#[derive(Clone, Copy, Debug)]
struct Phase {
    at: u64,
    length: u64,
    period: Option<u64>,
    times: Option<u64>,
}

impl Phase {
    /// Time since the beginning of the phase that covers `now`.
    fn since(&self, now: u64) -> Option<u64> {
        let since = now.checked_sub(self.at)?;
        let since = self.period.map_or(since, |period| since % period.max(1));
        (since < self.length).then_some(since)
    }

    /// Next beginning after `now`.
    fn next(&self, now: u64) -> Option<u64> {
        match (now.checked_sub(self.at), self.period) {
            (None, _) => Some(self.at),
            (Some(since), Some(period)) => {
                Some(self.at.saturating_add((since / period.max(1) + 1).saturating_mul(period)))
            }
            (Some(_), None) => None,
        }
    }

    /// Whether it begins or continues in a span.
    fn covers(&self, from: u64, until: u64) -> bool {
        self.since(from).is_some() || self.next(from).is_some_and(|next| next < until)
    }
}

/// All failures.
#[derive(Debug, Default)]
pub(super) struct Outages {
    phases: FxHashMap<u32, Vec<Phase>>,
    /// Time after which switches do not use a failed link any more.
    detection: u64,
    /// Time at which a route may change, in picoseconds.
    next: u64,
    /// Whether a vertex reaches a host, until then.
    reached: RefCell<FxHashMap<(u32, u32), bool>>,
}

const PICOS: u64 = 1000;

impl SwitchFabric {
    /// Adds a failure. Returns whether there is such a link.
    pub(crate) fn add_outage(&mut self, outage: &Outage, detection: Nanos) -> bool {
        let mut ports = self.between(outage.from, outage.to, outage.number);
        if !outage.one_way {
            ports.extend(self.between(outage.to, outage.from, outage.number));
        }
        let pico = |span: Nanos| span.get().saturating_mul(PICOS);
        let phase = Phase {
            at: pico(outage.at),
            length: outage.length.map_or(u64::MAX, pico),
            period: outage.period.map(pico),
            times: outage.times.map(u64::from),
        };
        let outages = self.outages.get_or_insert_default();
        outages.detection = pico(detection);
        for port in &ports {
            outages.phases.entry(*port).or_default().push(phase);
        }
        !ports.is_empty()
    }

    /// Forgets reachability that has changed since.
    pub(super) fn renew_outages(&mut self, now: u64) {
        let Some(outages) = &mut self.outages else { return };
        if now < outages.next {
            return;
        }
        outages.reached.get_mut().clear();
        let change = |phase: &Phase| {
            // A phase that has begun ends; switches notice it later than it begins.
            let begin = phase.since(now).map(|since| now - since);
            let noticed = begin.map(|begin| begin.saturating_add(outages.detection));
            let end = begin.map(|begin| begin.saturating_add(phase.length));
            let next = phase.next(now).map(|next| next.saturating_add(outages.detection));
            [noticed, end, next, phase.next(now)].into_iter().flatten().filter(|at| *at > now).min()
        };
        outages.next = outages.phases.values().flatten().filter_map(change).min().unwrap_or(u64::MAX);
    }

    /// Whether a port leads to a host as far as switches know.
    pub(super) fn is_usable(&self, port: u32, to: u32, now: u64) -> bool {
        let Some(outages) = &self.outages else { return true };
        let failed = outages.phases.get(&port).is_some_and(|phases| {
            let mut failed = phases.iter().filter(|phase| phase.times.is_none());
            failed.any(|phase| phase.since(now).is_some_and(|since| since >= outages.detection))
        });
        if failed {
            return false;
        }
        let vertex = self.next_hop(port).1;
        if vertex == to {
            return true;
        }
        let known = outages.reached.borrow().get(&(vertex, to)).copied();
        known.unwrap_or_else(|| {
            let mut reached = false;
            self.for_each_path(vertex, to, |next| reached = reached || self.is_usable(next, to, now));
            outages.reached.borrow_mut().insert((vertex, to), reached);
            reached
        })
    }

    /// Whether a link fails in a span, so that a packet that waits or is sent meanwhile is lost.
    pub(super) fn fails(&self, port: u32, from: u64, until: u64) -> bool {
        let phases = self.outages.as_ref().and_then(|outages| outages.phases.get(&port));
        phases.into_iter().flatten().any(|phase| phase.times.is_none() && phase.covers(from, until))
    }

    /// Factor by which a packet takes longer that a port begins to send at `now`.
    pub(super) fn slowness(&self, port: u32, now: u64) -> u64 {
        let phases = self.outages.as_ref().and_then(|outages| outages.phases.get(&port));
        let slow = phases.into_iter().flatten().filter(|phase| phase.since(now).is_some());
        slow.filter_map(|phase| phase.times).max().unwrap_or(1)
    }
}
