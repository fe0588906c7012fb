//! Loss detection by the order of sending (RACK and tail loss probe, RFC 8985; docs/protocol.md 4.6).
//!
//! Per destination the packets in flight are listed in the order of their sending. A packet counts as lost when a packet
//! sent after it has been acknowledged, and its own answer is later than that one's by more than the reorder window.
//! Without answers, the packet sent last is retransmitted as a probe: its answer tells whether earlier ones are late. The
//! deadline of each packet ([`super::RetryPolicy`]) is the last resort.
//!
//! ```text
//!   order:   lost   acknowledged   late   acknowledged   in flight   in flight (tail: the probe)
//!             ^ older than latest - window: retransmitted     ^ latest
//! ```

use fpga_firmware::ids::OpNumber;
use fpga_registers::cast::{index, low16};

use super::Sender;
use super::table::{Destination, LatestArrival, Segment};
use crate::op_table::{Op, OpState};
use crate::time::Nanos;

/// Share of the first timeout after which a probe leaves, before the first sample.
const FIRST_PROBE: u64 = 4;
/// Maximum number of doublings of the probe timer.
const MAX_DOUBLINGS: u8 = 10;

/// Whether transmission `one` left before `other`; numbers wrap.
const fn before(one: u32, other: u32) -> bool {
    one != other && other.wrapping_sub(one) < 1 << 31
}

impl Sender {
    /// Whether losses are detected by the order of sending.
    pub(super) const fn uses_order(&self) -> bool {
        self.retry.uses_order()
    }

    /// Appends a packet that leaves now to the order of its destination.
    pub(super) fn track(&mut self, now: Nanos, destination: u32, number: OpNumber) {
        if !self.uses_order() {
            return;
        }
        let slot = u32::from(number.slot());
        let sequence = self.next_sequence;
        self.next_sequence = if sequence == u32::MAX { 1 } else { sequence + 1 };
        if let Some(place) = self.sequences.get_mut(index(slot)) {
            *place = sequence;
        }
        let record = self.destinations.get_mut(destination);
        record.order.push_back(&mut self.order_links, slot);
        record.active = now;
        let in_flight = self.destinations.in_network(destination);
        self.destinations.control(destination, |config, window| window.note_sent(config, now, in_flight));
        if self.paths.deadline(destination) == Nanos::MAX {
            let record = self.destinations.get(destination);
            self.paths.start(destination, now.saturating_add(self.probe_wait(record)));
        }
    }

    /// Announces that the caller reports when each packet of a window leaves ([`Self::departed`]). Round trips then do
    /// not include the time that a packet waits in its window, and a retransmission may leave before packets of a
    /// window that was polled earlier.
    #[must_use]
    pub fn report_departures(mut self) -> Self {
        self.reports_departures = true;
        self
    }

    /// Records that a packet of a window of new packets leaves now. Retransmissions are not reported: they leave when
    /// they are polled.
    pub fn departed(&mut self, now: Nanos, number: OpNumber) {
        let Some(op) = self.ops.get(number) else { return };
        let sequence = self.sequences.get(usize::from(number.slot())).copied().unwrap_or(0);
        if !self.reports_departures || op.state != OpState::InFlight || op.tries != 1 || sequence != 0 {
            return;
        }
        let destination = self.destination_of(&op);
        let progress = self.transfers[index(self.segments.get(op.segment).transfer)].progress;
        let deadline = self.retry.deadline(now, &self.destinations.get(destination).trip, 0, progress);
        self.ops.depart(number, now, deadline);
        let record = self.segments.get_mut(op.segment);
        record.latest = now;
        if op.packet == 0 {
            record.start.first = now;
        }
        self.track(now, destination, number);
    }

    /// Removes a packet that is no longer in flight from the order of its destination.
    pub(super) fn untrack(&mut self, destination: u32, number: OpNumber) {
        let slot = u32::from(number.slot());
        if let Some(sequence) = self.sequences.get_mut(index(slot))
            && *sequence != 0
        {
            *sequence = 0;
            self.destinations.get_mut(destination).order.remove(&mut self.order_links, slot);
            self.unpark(destination, slot);
        } else {
            self.unhold(destination, slot);
        }
    }

    pub(super) fn destination_of(&self, op: &Op) -> u32 {
        self.transfers[index(self.segments.get(op.segment).transfer)].destination
    }

    /// Whether everything was sent: a late retransmission delays the transfer, and a spurious one delays no other packet.
    const fn is_all_sent(&self) -> bool {
        self.queued == 0
    }

    /// Returns the reorder window of a destination, at least an eighth of its round trip.
    fn reorder_window(&self, record: &Destination, late: u64) -> Nanos {
        record.disorder.window(Nanos::new(record.trip.mean.get() / 8), late, self.is_all_sent())
    }

    /// Returns the time without answers after which a probe leaves.
    fn probe_wait(&self, record: &Destination) -> Nanos {
        let (once, doublings) = match record.trip.usual() {
            Some(usual) => (usual.saturating_add(self.reorder_window(record, 0)), record.probes),
            // Many senders that start together lose their first packets: the first two probes leave soon.
            None => (
                Nanos::new(self.retry.wait(&record.trip, 0).get() / FIRST_PROBE),
                record.probes.saturating_sub(1),
            ),
        };
        once.saturating_mul(1 << doublings.min(MAX_DOUBLINGS)).max(Nanos::new(1))
    }

    /// Restarts the timer of a destination after its first samples: it may run with a much longer guess.
    pub(super) fn restart_probe(&mut self, now: Nanos, destination: u32) {
        if self.uses_order() {
            let record = self.destinations.get(destination);
            let probe = now.saturating_add(self.probe_wait(record)).min(record.lost_at);
            self.paths.stop(destination);
            self.paths.start(destination, probe);
        }
    }

    /// Handles an acknowledgement. `trip`: round trip of the packet's current transmission, if it is the one that was
    /// acknowledged and was not held up.
    pub(super) fn note_arrival(&mut self, now: Nanos, op: &Op, tries: u8, trip: Option<Nanos>) {
        if !self.uses_order() {
            return;
        }
        let destination = self.destination_of(op);
        let sequence = self.sequences.get(usize::from(op.number.slot())).copied().unwrap_or(0);
        self.untrack(destination, op.number);
        let record = self.destinations.get_mut(destination);
        record.active = now;
        record.probes = 0;
        if tries < op.tries {
            record.disorder.note_wasted();
        } else if op.tries > 1 && op.busy == 0 {
            record.disorder.note_useful();
        }
        if let (Some(trip), true) = (trip, sequence != 0) {
            let LatestArrival { sequence: latest, trip: latest_trip } = record.latest;
            if latest == 0 || before(latest, sequence) {
                record.latest = LatestArrival { sequence, trip };
                record.disorder.sample(Nanos::ZERO);
            } else {
                record.disorder.sample(trip.saturating_sub(latest_trip));
            }
        }
        let record = self.destinations.get(destination);
        if record.lost_at == Nanos::MAX || record.lost_at <= now {
            self.detect_losses(now, destination);
        }
    }

    /// Returns the time at which a packet would be answered if its path were as fast as that of the latest arrival; `None` if it
    /// cannot be answered before its segment's first packet. `by_packet`: time of its own acknowledgement; otherwise of the answer to the
    /// whole segment, which replaces lost acknowledgements of packets.
    fn expected_answer(&self, op: &Op, latest: &LatestArrival, by_packet: bool) -> Option<Nanos> {
        let Segment { start, latest: last, .. } = *self.segments.get(op.segment);
        if op.packet == 0 {
            return Some(op.sent.saturating_add(latest.trip));
        }
        // The receiver answers packets in its escape channel when the first packet has arrived.
        (start.known != Nanos::MAX).then(|| {
            let sent = if by_packet { op.sent } else { op.sent.max(last) };
            sent.max(start.again).saturating_add(latest.trip).max(start.known)
        })
    }

    /// Makes lost packets due for retransmission, and sets the time of the next check.
    fn detect_losses(&mut self, now: Nanos, destination: u32) {
        let record = self.destinations.get(destination);
        let latest = record.latest;
        let overtaken = |slot: u32| {
            let sequence = self.sequences.get(index(slot)).copied().unwrap_or(0);
            before(sequence, latest.sequence)
        };
        let late = if record.disorder.is_new() {
            let slots = record.order.iter(&self.order_links).take_while(|slot| overtaken(*slot));
            let ops = slots.filter_map(|slot| self.ops.slot(low16(slot)));
            let waits = ops.filter_map(|op| self.expected_answer(&op, &latest, true));
            waits.map(|at| now.saturating_sub(at).get()).fold(0, u64::saturating_add)
        } else {
            0
        };
        // In an incast, lost packets fill the congestion window: waiting for a late one delays all others.
        let crowded = self.destinations.is_crowded(destination);
        let most = if crowded { record.trip.mean } else { Nanos::MAX };
        let window = self.reorder_window(record, late).min(most.max(Nanos::new(1)));
        // Waiting for the segment's answer costs nothing only as long as enough op numbers are left for new packets.
        let by_packet = self.is_all_sent() || crowded || self.ops.in_use() > self.config.op_entries / 2;
        // The first window is an estimate from few arrivals. A packet that waited for longer than its timer would is lost.
        let (mean, timeout) = (record.trip.mean, record.trip.timeout().unwrap_or(Nanos::MAX));
        let mut next = record.order.head();
        let mut lost_at = Nanos::MAX;
        while let Some(slot) = next {
            let sequence = self.sequences.get(index(slot)).copied().unwrap_or(0);
            if latest.sequence == 0 || !before(sequence, latest.sequence) {
                break;
            }
            next = self.order_links.next(slot);
            let Some(op) = self.ops.slot(low16(slot)) else { continue };
            let Some(at) = self.expected_answer(&op, &latest, by_packet) else { continue };
            let overdue = at.saturating_add(mean).max(op.sent.saturating_add(timeout));
            let at = at.saturating_add(window).min(overdue);
            if at > now {
                lost_at = lost_at.min(at);
                // Later ones are due later, unless their segment was held up.
                break;
            }
            self.untrack(destination, op.number);
            self.ops.resend(op.number, false);
            self.counters.overtaken += 1;
            self.note_late(now, destination, op.number);
            self.destinations.control(destination, |_, window| window.note_lost(1));
        }
        self.destinations.get_mut(destination).lost_at = lost_at;
        if lost_at < self.paths.deadline(destination) {
            self.paths.start(destination, lost_at);
        }
    }

    /// Handles the expired timer of a destination: a check for losses, or a probe.
    pub(super) fn check_path(&mut self, now: Nanos, destination: u32) {
        if self.destinations.get(destination).lost_at <= now {
            self.detect_losses(now, destination);
        }
        let record = self.destinations.get(destination);
        if record.order.len() == 0 {
            self.destinations.get_mut(destination).lost_at = Nanos::MAX;
            return;
        }
        if record.active.saturating_add(self.probe_wait(record)) <= now {
            self.probe_path(now, destination);
        }
        let record = self.destinations.get(destination);
        if record.order.len() != 0 {
            let probe = record.active.saturating_add(self.probe_wait(record));
            self.paths.start(destination, probe.min(record.lost_at).max(now.saturating_add(Nanos::new(1))));
        }
    }

    /// Retransmits the packet sent last; from the second probe in a row, the one sent first as well.
    fn probe_path(&mut self, now: Nanos, destination: u32) {
        let record = self.destinations.get(destination);
        let (head, tail) = (record.order.head(), record.order.tail());
        let repeated = record.probes > 0;
        for slot in [tail, head.filter(|head| repeated && Some(*head) != tail)].into_iter().flatten() {
            self.probe(destination, slot);
        }
        self.destinations.control(destination, |config, window| window.note_timeout(config, now));
        let record = self.destinations.get_mut(destination);
        record.probes = record.probes.saturating_add(1);
        record.active = now;
        // A node that has never answered gets no more new packets after its second probe.
        record.suspect |= repeated && record.trip.samples == 0;
    }

    /// Handles a packet whose deadline has passed while nothing that left after it was answered: the whole path is silent,
    /// or its round trip has become longer. One probe leaves instead of all packets, and their deadlines double together.
    /// Returns whether the path is silent.
    pub(super) fn outwait_silence(&mut self, now: Nanos, destination: u32, op: &Op) -> bool {
        let record = self.destinations.get(destination);
        if !self.uses_order() || record.trip.samples == 0 || record.sampled.latest >= op.sent {
            return false;
        }
        if record.probes == 0 {
            self.probe_path(now, destination);
        }
        let Some(op) = self.ops.get(op.number).filter(|op| op.state == OpState::InFlight) else {
            return true;
        };
        let progress = self.transfers[index(self.segments.get(op.segment).transfer)].progress;
        let record = self.destinations.get(destination);
        self.ops.extend(op.number, self.retry.deadline(now, &record.trip, record.probes, progress));
        true
    }

    /// Retransmits a packet as a probe; instead of one that its receiver cannot use yet, the first of its segment.
    fn probe(&mut self, destination: u32, slot: u32) {
        let Some(op) = self.ops.slot(low16(slot)) else { return };
        let number =
            if self.waits_for_start(&op) { self.segments.get(op.segment).start.op } else { op.number };
        self.untrack(destination, number);
        self.ops.resend(number, false);
        self.counters.probes += 1;
    }
}
