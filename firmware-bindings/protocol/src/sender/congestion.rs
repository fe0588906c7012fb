//! Congestion windows of the destinations ([`crate::feedback::congestion`]): which packets count, and who waits.
//!
//! The packets in the order of a destination count as in the network, with one exception. If the first packet of a
//! segment is refused, the receiver answers the others only after it has registered the segment. They would fill the window
//! of a destination, and keep out the packets for which the registry waits. They are *parked*: in the order, for the
//! detection of losses, but outside of the window.

use fpga_firmware::wire::AnswerNotes;
use fpga_registers::cast::low16;

use super::{Answer, Sender};
use crate::op_table::Op;
use crate::time::Nanos;

impl Sender {
    /// Returns the number of packets that the congestion window of a destination lets leave now.
    pub(super) fn room(&self, now: Nanos, destination: u32) -> u32 {
        self.destinations.room(now, destination, self.destinations.in_network(destination))
    }

    /// Records which windows hold packets back, and sets the time of the next attempt. Called when nothing can be sent.
    pub(super) fn note_held(&mut self, now: Nanos) {
        self.pace = Nanos::MAX;
        if self.config.congestion.is_some() {
            self.renew_turns(now);
            // A window that was noted stays so until its destination changes.
            while let Some(destination) = self.destinations.take_changed() {
                if self.destinations.get(destination).transfers != 0 && self.room(now, destination) == 0 {
                    self.destinations.hold(destination);
                }
            }
            self.pace = self.turns.next_release();
        }
        #[cfg(debug_assertions)]
        assert!(!self.is_searchable() || self.has_noted_all(now), "a full congestion window without a note");
    }

    /// Passes the signals of an acknowledgement to the window of its destination.
    pub(super) fn note_signals(&mut self, now: Nanos, op: &Op, notes: &AnswerNotes, trip: Option<Nanos>) {
        let destination = self.destination_of(op);
        self.destinations.control(destination, |config, window| {
            window.note_senders(config, notes.senders);
            if let Some(trip) = trip {
                window.sample(config, now, trip, notes.marked);
            }
        });
    }

    /// Returns the time of the next try of a refused packet: when the receiver expects to have space, if it reports that. Nodes
    /// that are refused together spread over an eighth of that time.
    pub(super) fn retry_time(&self, now: Nanos, op: &Op, answer: &Answer) -> Nanos {
        if answer.notes.delay == 0 {
            return self.retry.busy_until(now, op.busy);
        }
        let wait = answer.notes.delay_ns();
        let name = self.incarnation.get() ^ u32::from(op.number.slot());
        let spread = u64::from(name.wrapping_mul(0x9E37_79B9) >> 24);
        now.saturating_add(Nanos::new(wait + wait * spread / 2048))
    }

    /// Parks the packets of a segment whose first packet was refused.
    #[cold]
    pub(super) fn park(&mut self, op: &Op) {
        let destination = self.destination_of(op);
        if op.packet != 0 || self.destinations.parked_mut(destination).is_none() {
            return;
        }
        let mut next = self.destinations.get(destination).order.head();
        let mut more = 0;
        while let Some(slot) = next {
            next = self.order_links.next(slot);
            let is_other = |other: Op| other.segment == op.segment && other.packet != 0;
            if self.ops.slot(low16(slot)).is_some_and(is_other) && self.parked.insert(slot) {
                more += 1;
            }
        }
        if let Some(parked) = self.destinations.parked_mut(destination) {
            *parked += more;
        }
    }

    /// Counts the packets of a segment again after its first packet was acknowledged.
    pub(super) fn unpark_segment(&mut self, op: &Op) {
        let destination = self.destination_of(op);
        if op.packet != 0 || self.destinations.parked_mut(destination).is_none_or(|parked| *parked == 0) {
            return;
        }
        let mut next = self.destinations.get(destination).order.head();
        while let Some(slot) = next {
            next = self.order_links.next(slot);
            if self.ops.slot(low16(slot)).is_some_and(|other| other.segment == op.segment) {
                self.unpark(destination, slot);
            }
        }
    }

    /// Counts one packet again, or removes it.
    pub(super) fn unpark(&mut self, destination: u32, slot: u32) {
        if self.parked.count() != 0 && self.parked.contains(slot) {
            self.parked.remove(slot);
            if let Some(parked) = self.destinations.parked_mut(destination) {
                *parked -= 1;
            }
        }
    }
}
