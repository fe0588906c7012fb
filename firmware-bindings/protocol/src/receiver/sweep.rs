//! Timers: escaped packets, silent operations, and records that nothing needs any more.

use fpga_firmware::event::{EventKind, NackReason};

use super::Receiver;
use super::tombstone::PeerTable;
use crate::time::Nanos;

impl Receiver {
    /// When to call [`Receiver::handle_timeout`] next; `None` if nothing can run out. It may be early, never late.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.escape.next_deadline.min(self.next_sweep).as_timer()
    }

    /// Drops escaped packets whose time is up, operations whose sender fell silent or has moved on, and the records
    /// of senders that have been silent for longer than any of their packets can wander.
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
                    // Not silence: the sender is to try again soon, and must not take this for a node that is gone.
                    // Where the registry is short, packets may wait here in vain many times in a row.
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

    /// Releases everything that is over. Also called when a start finds no room.
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
                // Everything is in memory, and the sender's notice was lost.
                self.notice(now, at);
            } else {
                self.peers.close_transfer(at, false);
            }
        }
        // Longer than its operations: a packet sent just before the silence may still be on its way.
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
        self.counters.expired += 1;
        self.event(now, event);
        self.peers.transfer_mut(transfer).registered -= 1;
    }

    /// Releases everything of the other lives of `source`'s node.
    #[cold]
    pub(super) fn release_former_incarnations(&mut self, now: Nanos, source: u16) {
        let node = self.peers.source(source).node;
        let is_former = |peers: &PeerTable, at: u16| {
            let other = peers.source(at);
            at != source && other.in_use && other.node == node
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
                // Everything is in memory: the sender's notice is what it did not come to.
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
