//! Queues of switch ports: limit, marks of congestion, priority of control packets, trimming, and what they report of themselves.
//!
//! Without priorities a queue is first in, first out, and the time at which a packet leaves is known when it arrives. With priorities
//! (`control_first`) a port has two queues: control packets leave before all data packets that wait; the packet being sent is finished.

use std::collections::VecDeque;

use fpga_netmodel::Cause;
use fpga_protocol::Nanos;
use rand_pcg::Pcg32;
use rand_pcg::rand_core::Rng;

use super::{SwitchFabric, time};

/// Queue length above which data packets are marked (explicit congestion notification, ECN).
///
/// The length is the bytes ahead of the packet when it arrives. Below `min` no packet is marked, from `max` on every packet, in between a
/// share that rises linearly from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marking {
    /// Length in bytes from which packets are marked.
    pub min: u64,
    /// Length in bytes from which all packets are marked, at least `min`.
    pub max: u64,
}

impl Marking {
    /// Marks every data packet that finds `bytes` or more ahead of it.
    #[must_use]
    pub const fn threshold(bytes: u64) -> Self {
        Self { min: bytes, max: bytes }
    }

    /// Share of packets to be marked at a queue length, in units of 2^-32.
    fn share(self, bytes: u64) -> u64 {
        if bytes >= self.max {
            return 1 << 32;
        }
        let above = u128::from(bytes.saturating_sub(self.min));
        let ramp = u128::from(self.max - self.min).max(1);
        u64::try_from((above << 32) / ramp).unwrap_or(0)
    }
}

/// A packet that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    pub(crate) packet: u32,
    pub(crate) to: u32,
    pub(crate) length: u32,
    /// Time of its arrival in picoseconds.
    pub(crate) since: u64,
}

/// Two queues of one port.
#[derive(Debug, Default)]
struct Priorities {
    /// Control packets and trimmed ones, then data.
    waiting: [VecDeque<Queued>; 2],
    bytes: [u64; 2],
    sending: Option<Queued>,
}

/// Statistics of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortStats {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) dropped: u64,
    pub(crate) marked: u64,
    pub(crate) trimmed: u64,
    /// Packets lost because the link failed.
    pub(crate) cut: u64,
    /// Integral of the time that the queue needs to drain, in square picoseconds.
    pub(crate) work: u128,
    /// Maximum time to drain in picoseconds.
    pub(crate) max: u64,
    /// Time in picoseconds during which an arriving packet would not have been accepted.
    pub(crate) full: u64,
    full_until: u64,
}

/// Result of offering a packet to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// It arrives at a vertex.
    Leaves { at: u64, vertex: u32, waited: u64, marked: bool },
    /// It waits; if `sends` is stated, the port begins to send it, and has sent it at that time.
    Queued { sends: Option<u64>, marked: bool },
    /// The queue was full.
    Full,
    /// The link failed.
    Cut,
}

/// State of all queues.
#[derive(Debug, Default)]
pub(super) struct Queues {
    marking: Option<Marking>,
    dice: Option<Pcg32>,
    priorities: Vec<Priorities>,
    stats: Vec<PortStats>,
}

impl SwitchFabric {
    /// Marks data packets at long queues.
    pub(crate) fn set_marking(&mut self, marking: Option<Marking>, seed: u64) {
        self.queues.marking = marking;
        // Any stream that no impairment of the network uses.
        self.queues.dice = marking.map(|_| Cause::Damage.numbers(!seed));
    }

    /// Lets control packets leave first.
    pub(crate) fn set_priorities(&mut self) {
        self.queues.priorities.resize_with(self.ports.len(), Priorities::default);
    }

    /// Counts what happens at each port.
    pub(crate) fn set_statistics(&mut self) {
        self.queues.stats.resize(self.ports.len(), PortStats::default());
    }

    pub(crate) fn statistics(&self) -> &[PortStats] {
        &self.queues.stats
    }

    pub(crate) fn note(&mut self, port: u32, change: impl FnOnce(&mut PortStats)) {
        if let Some(stats) = self.queues.stats.get_mut(port as usize) {
            change(stats);
        }
    }

    /// Bytes that a port has accepted and not sent yet.
    pub(crate) fn backlog(&self, port: u32, now: u64) -> u64 {
        let wait = u128::from(self.free_at(port).saturating_sub(now));
        let Some(port) = self.port(port) else { return 0 };
        let byte = u128::from(port.byte.max(1)) * u128::from(port.times.max(1));
        u64::try_from((wait << 16) / byte).unwrap_or(u64::MAX)
    }

    /// Bytes of a queue that takes `span` picoseconds to drain.
    pub(crate) fn bytes_in(&self, port: u32, span: f64) -> f64 {
        self.port(port).map_or(0.0, |port| {
            span * 65536.0
                / (crate::numbers::float(port.byte.max(1)) * crate::numbers::float(port.times.max(1)))
        })
    }

    /// Rate of a port's link in bit/s, time of `bytes` on it, and its delay, both in picoseconds.
    pub(crate) fn link(&self, port: u32, bytes: u64) -> (u64, u64) {
        self.port(port).map_or((0, 0), |port| (time(port.byte, bytes).saturating_mul(port.times), port.delay))
    }

    /// Number of a port at its vertex, from 0.
    pub(crate) fn number(&self, port: u32) -> u32 {
        let owner = self.owner(port);
        let before = (0..port).rev().take_while(|other| self.owner(*other) == owner);
        u32::try_from(before.count()).unwrap_or(u32::MAX)
    }

    /// Time of a flow of `length` bytes on an idle network, in packets of `packet` bytes with `header` more.
    pub(crate) fn ideal(&self, (from, to): (u32, u32), length: u64, packet: u32, header: u32) -> Nanos {
        let (packet, header) = (u64::from(packet), u64::from(header));
        let first = length.min(packet) + header;
        let rest = length + length.div_ceil(packet.max(1)) * header - first;
        let (mut port, mut sum, mut slowest) = (from, 0_u64, 0_u64);
        // The longest route has far fewer links.
        for _ in 0..256 {
            let (span, delay) = self.link(port, first);
            sum = sum.saturating_add(span).saturating_add(delay);
            slowest = slowest.max(self.link(port, rest).0);
            let mut next = None;
            if !self.is_host_port(port) {
                self.for_each_path(self.next_hop(port).1, to, |way| next = next.or(Some(way)));
            }
            let Some(way) = next else { break };
            port = way;
        }
        Nanos::new(sum.saturating_add(slowest) / 1000)
    }

    /// Returns whether nothing but the port's own queue decides about a packet.
    #[inline]
    fn is_plain(&self) -> bool {
        let Queues { marking, priorities, stats, .. } = &self.queues;
        self.outages.is_none() && marking.is_none() && priorities.is_empty() && stats.is_empty()
    }

    /// Offers a packet to a switch's port. `data`: it is a data packet with its payload.
    #[inline]
    pub(crate) fn offer(&mut self, port: u32, now: u64, packet: Queued, data: bool) -> Offer {
        if self.is_plain() {
            let sent = self.send(port, now, packet.length.into());
            return sent.map_or(Offer::Full, |(at, vertex)| Offer::Leaves {
                at,
                vertex,
                waited: 0,
                marked: false,
            });
        }
        self.offer_observed(port, now, packet, data)
    }

    fn offer_observed(&mut self, port: u32, now: u64, packet: Queued, data: bool) -> Offer {
        let bytes = packet.length.into();
        let before = self.free_at(port).max(now);
        let slow = self.slowness(port, before);
        let ahead = match self.queues.priorities.get(port as usize) {
            Some(queues) if data => queues.bytes[1],
            Some(queues) => queues.bytes[0],
            None => self.backlog(port, now),
        };
        if self.queues.priorities.is_empty() {
            let Some((_, vertex)) = self.send(port, now, bytes) else {
                self.note(port, |stats| stats.dropped += 1);
                return Offer::Full;
            };
            self.extend(port, before, bytes, slow);
            let free_at = self.free_at(port);
            let marked = data && self.is_marked(ahead);
            self.count(port, now, before, bytes, marked);
            if self.fails(port, now, free_at) {
                self.note(port, |stats| stats.cut += 1);
                return Offer::Cut;
            }
            let at = free_at.saturating_add(self.next_hop(port).0);
            return Offer::Leaves { at, vertex, waited: before - now, marked };
        }
        let limit =
            self.port(port).map_or(0, |port| (u128::from(port.queue) << 16) / u128::from(port.byte.max(1)));
        if u128::from(ahead) > limit {
            self.note(port, |stats| stats.dropped += 1);
            return Offer::Full;
        }
        self.extend(port, before, bytes, slow);
        let marked = data && self.is_marked(ahead);
        self.count(port, now, before, bytes, marked);
        if let Some(queues) = self.queues.priorities.get_mut(port as usize) {
            let class = usize::from(data);
            if let (Some(waiting), Some(sum)) = (queues.waiting.get_mut(class), queues.bytes.get_mut(class)) {
                waiting.push_back(packet);
                *sum += bytes;
            }
            if queues.sending.is_some() {
                return Offer::Queued { sends: None, marked };
            }
        }
        Offer::Queued { sends: self.send_next(port, now), marked }
    }

    /// Occupies a port for the time of a packet.
    fn extend(&mut self, port: u32, from: u64, bytes: u64, slow: u64) {
        let (span, _) = self.link(port, bytes);
        if let Some(free_at) = self.free_at.get_mut(port as usize) {
            *free_at = from.saturating_add(span.saturating_mul(slow));
        }
    }

    /// Begins to send the next packet that waits. Returns the time at which it is sent.
    fn send_next(&mut self, port: u32, now: u64) -> Option<u64> {
        let queues = self.queues.priorities.get_mut(port as usize)?;
        let class = queues.waiting.iter().position(|waiting| !waiting.is_empty())?;
        let packet = queues.waiting.get_mut(class)?.pop_front()?;
        if let Some(sum) = queues.bytes.get_mut(class) {
            *sum -= u64::from(packet.length);
        }
        queues.sending = Some(packet);
        self.waited = self.waited.saturating_add(now - packet.since);
        let (span, _) = self.link(port, packet.length.into());
        Some(now.saturating_add(span.saturating_mul(self.slowness(port, now))))
    }

    /// Handles the end of a packet's transmission. Returns the packet and the time it had waited, its arrival and the vertex if the link has
    /// not failed meanwhile, and the time at which the next packet is sent.
    pub(crate) fn sent(&mut self, port: u32, now: u64) -> (Option<(Queued, Offer)>, Option<u64>) {
        let sending = self.queues.priorities.get_mut(port as usize).and_then(|queues| queues.sending.take());
        let sent = sending.map(|packet| {
            let (span, delay) = self.link(port, packet.length.into());
            let waited = now.saturating_sub(span).saturating_sub(packet.since);
            if self.fails(port, packet.since, now) {
                self.note(port, |stats| stats.cut += 1);
                return (packet, Offer::Cut);
            }
            let vertex = self.next_hop(port).1;
            (packet, Offer::Leaves { at: now.saturating_add(delay), vertex, waited, marked: false })
        });
        (sent, self.send_next(port, now))
    }

    fn is_marked(&mut self, ahead: u64) -> bool {
        let Queues { marking: Some(marking), dice: Some(dice), .. } = &mut self.queues else { return false };
        // A number for every packet: marks of one do not depend on whether another needed a number.
        u64::from(dice.next_u32()) < marking.share(ahead)
    }

    /// Counts an accepted packet that waits from `now` until `begins`.
    fn count(&mut self, port: u32, now: u64, begins: u64, bytes: u64, marked: bool) {
        let free_at = self.free_at(port);
        let (Some(state), Some(stats)) =
            (self.ports.get(port as usize), self.queues.stats.get_mut(port as usize))
        else {
            return;
        };
        let (wait, service) = (u128::from(begins - now), u128::from(free_at - begins));
        stats.packets += 1;
        stats.bytes += bytes;
        stats.marked += u64::from(marked);
        stats.work = stats.work.saturating_add(wait * service + service * service / 2);
        stats.max = stats.max.max(free_at - now);
        let limit = state.queue.saturating_mul(state.times);
        let until = free_at.saturating_sub(limit);
        if until > now {
            stats.full += until - stats.full_until.max(now).min(until);
            stats.full_until = until;
        }
    }
}
