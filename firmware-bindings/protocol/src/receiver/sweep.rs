//! Timers of a receiver: escaped packets, operations without traffic, and expired records.

use fpga_firmware::event::{EventKind, NackReason};
use fpga_firmware::ids::{Incarnation, NodeId};

use super::Receiver;
use super::tombstone::PeerTable;
use crate::time::Nanos;

impl Receiver {
    /// Returns the time at which [`Receiver::handle_timeout`] must be called next; `None` if no timer runs. The time
    /// may be earlier than the first timeout, never later.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.escape.next_deadline.min(self.next_sweep).as_timer()
    }

    /// Drops everything whose timeout has expired:
    ///
    /// * escaped packets after the escape timeout;
    /// * operations and transfers after the registry timeout without a packet, or if their transfer is older than the
    ///   sender's oldest live one, because the sender has ended it;
    /// * records of senders without transfers, one packet lifetime after the registry timeout.
    ///
    /// Does nothing while the output queue has too little space; the caller must poll the outputs first.
    pub fn handle_timeout(&mut self, now: Nanos) {
        if self.outputs.space() < self.burst {
            self.counters.unpolled += 1;
            return;
        }
        if self.escape.next_deadline <= now {
            let mut from = 0;
            while let Some(slot) = self.escape.expired(now, from) {
                if let Some((header, payload)) = self.escape.peek(slot) {
                    let (header, length) = (*header, payload.len() as u64);
                    self.escape_event(now, EventKind::EscapeReleased, slot, &header, length, 0);
                    // An explicit refusal makes the sender retry soon and not treat this node as unreachable: with a
                    // small registry, packets may time out here many times in a row.
                    self.refuse(&header, NackReason::Busy);
                }
                self.escape.release(slot);
                self.counters.escape_dropped += 1;
                from = slot + 1;
            }
            self.escape.reset_timer();
        }
        if self.next_sweep <= now {
            self.sweep(now);
        }
    }

    /// Releases every expired entry and record. Also called when the first packet of an operation finds no free entry
    /// or record.
    #[cold]
    pub(super) fn sweep(&mut self, now: Nanos) {
        let mut next = Nanos::MAX;
        self.moved_on = false;
        let silence = self.config.registry_timeout;
        for slot in (0..self.registry.capacity()).map(fpga_registers::cast::low16) {
            if !self.registry.is_live(slot) {
                continue;
            }
            let entry = self.registry.entry(slot);
            let deadline = entry.touched.saturating_add(silence);
            let oldest_live = self.peers.source(entry.source).completed.oldest_live();
            let moved_on = self.registry.key(slot).transfer.is_older_than(oldest_live);
            if deadline > now && !moved_on {
                next = next.min(deadline);
                continue;
            }
            self.expire(now, slot);
        }
        for at in 0..self.peers.transfer_count() {
            let record = *self.peers.transfer(at);
            if !record.in_use || record.registered != 0 {
                continue;
            }
            let oldest_live = self.peers.source(record.source).completed.oldest_live();
            let moved_on = record.id.is_older_than(oldest_live);
            let deadline = record.touched.saturating_add(silence);
            if deadline > now && !moved_on {
                next = next.min(deadline);
            } else if record.awaits_notice {
                // The whole transfer is in memory, but the sender's ARRIVED packet was lost: notify the host anyway.
                self.notice(now, at);
            } else {
                self.peers.close_transfer(at, false);
            }
        }
        // A sender's record is kept one packet lifetime longer than its operations: a packet that it sent last may
        // still be in flight.
        let silence = silence.saturating_add(self.config.packet_lifetime);
        for at in 0..self.peers.source_count() {
            let source = self.peers.source(at);
            if !source.in_use || source.transfers != 0 {
                continue;
            }
            let deadline = source.touched.saturating_add(silence);
            if deadline > now {
                next = next.min(deadline);
            } else {
                let source = (source.node, source.incarnation);
                self.nodes.end(source, now, None);
                self.peers.close_source(at);
            }
        }
        self.next_sweep = next;
    }

    /// Ends an operation whose sender is gone.
    fn expire(&mut self, now: Nanos, slot: u16) {
        let event = self.entry_event(EventKind::Expired, slot);
        let transfer = self.registry.entry(slot).transfer;
        self.registry.remove(slot);
        self.refusals.note_release(now);
        self.counters.expired += 1;
        self.event(now, event);
        self.peers.transfer_mut(transfer).registered -= 1;
    }

    /// Releases all records of `node` but those of its `newest` incarnation.
    #[cold]
    pub(super) fn release_former_incarnations(&mut self, now: Nanos, node: NodeId, newest: Incarnation) {
        let is_former = |peers: &PeerTable, at: u16| {
            let other = peers.source(at);
            other.in_use && other.node == node && other.incarnation != newest
        };
        for slot in (0..self.registry.capacity()).map(fpga_registers::cast::low16) {
            if self.registry.is_live(slot) && is_former(&self.peers, self.registry.entry(slot).source) {
                self.expire(now, slot);
            }
        }
        for at in 0..self.peers.transfer_count() {
            let record = *self.peers.transfer(at);
            if !record.in_use || !is_former(&self.peers, record.source) {
                continue;
            }
            if record.awaits_notice {
                // The whole transfer is in memory; only the sender's ARRIVED packet is missing.
                self.notice(now, at);
            } else {
                self.peers.close_transfer(at, false);
            }
        }
        for at in 0..self.peers.source_count() {
            if is_former(&self.peers, at) {
                self.peers.close_source(at);
            }
        }
    }
}
