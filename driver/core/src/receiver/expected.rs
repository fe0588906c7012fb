//! Packets whose operation is registered, and the completion of operations and transfers.

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::wire::DataHeader;

use super::registry::Entry;
use super::{ReceiveMemory, Receiver};
use crate::time::Nanos;

impl Receiver {
    #[inline]
    pub(super) fn expected<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        slot: u16,
        header: &DataHeader,
        payload: &[u8],
        memory: &mut M,
    ) {
        let source = self.registry.entry(slot).source;
        self.hear(now, source, header);
        // The sender may have given this transfer up, and have sent other data to the same place since.
        if header.transfer.is_older_than(self.peers.source(source).completed.oldest_live()) {
            self.late(header);
            return;
        }
        let log2 = self.config.packet_size_log2;
        let entry = self.registry.entry(slot);
        let length = payload.len() as u64;
        let bit = match position(entry, header, log2) {
            Some(bit) if u64::from(entry.payload_length(bit, log2)) == length => bit,
            _ => {
                self.contradiction(now, header, payload.len());
                return;
            }
        };
        if entry.mask.contains(bit) {
            // Acknowledged again: the first acknowledgement may have been lost [E1-7].
            self.counters.duplicates += 1;
            self.registry.entry_mut(slot).touched = now;
            self.acknowledge(header);
            return;
        }
        if !self.access.allows_write(header.common.source, header.key, header.address, length) {
            self.violation(now, header, header.address, length);
            return;
        }
        // Written first: a set bit promises that the bytes are there.
        if let Err(fault) = memory.write(header.address, payload) {
            self.memory_fault(now, header, fault);
            return;
        }
        let entry = self.registry.entry_mut(slot);
        entry.touched = now;
        entry.mask.insert(bit);
        let complete = entry.mask.is_complete();
        self.acknowledge(header);
        if self.config.packet_events {
            self.packet_event(now, slot, bit);
        }
        if complete {
            self.complete(now, slot);
        }
    }

    /// Notes that a sender is alive and how far it has got.
    #[inline]
    pub(super) fn hear(&mut self, now: Nanos, source: u16, header: &DataHeader) {
        let record = self.peers.source_mut(source);
        record.touched = now;
        let news = record.completed.advance(header.oldest_live);
        if news && record.announced != 0 {
            self.overtaken_notices(now, source);
        }
    }

    /// A late packet of something that is over: acknowledged, since its sender still asks, and dropped [E1-4].
    pub(super) fn late(&mut self, header: &DataHeader) {
        self.counters.tombstone_hits += 1;
        self.acknowledge(header);
    }

    pub(super) fn packet_event(&mut self, now: Nanos, slot: u16, bit: u16) {
        let event = Event { count: u32::from(bit), ..self.entry_event(EventKind::Packet, slot) };
        self.event(now, event);
    }

    /// An event that names an entry's operation.
    pub(super) fn entry_event(&self, kind: EventKind, slot: u16) -> Event {
        let key = self.registry.key(slot);
        Event {
            index: slot,
            generation: self.registry.entry(slot).generation,
            node: key.source,
            incarnation: key.incarnation,
            transfer: key.transfer,
            segment: key.segment,
            ..Event::new(kind)
        }
    }

    /// All packets of an entry are in memory: one event, one operation-complete packet, and the transfer's notice if it
    /// was the last segment (spec 2.2.3).
    pub(super) fn complete(&mut self, now: Nanos, slot: u16) {
        let event = self.entry_event(EventKind::Completed, slot);
        let key = *self.registry.key(slot);
        let Entry { transfer, notify, .. } = *self.registry.entry(slot);
        self.registry.remove(slot);
        self.counters.completions += 1;
        self.event(now, event);
        self.segment_done(key);
        let record = self.peers.transfer_mut(transfer);
        record.registered -= 1;
        record.touched = now;
        record.done.insert(key.segment);
        // One notice per transfer, however many segments it had [E1-9].
        if record.done.base() < record.segment_count {
            return;
        }
        if notify {
            self.notice(now, transfer);
        } else {
            record.awaits_notice = true;
            let source = record.source;
            self.peers.source_mut(source).announced += 1;
        }
    }

    /// Reports a whole transfer and turns its record into a tombstone.
    pub(super) fn notice(&mut self, now: Nanos, at: u16) {
        let record = *self.peers.transfer(at);
        let source = self.peers.source(record.source);
        let event = Event {
            node: source.node,
            incarnation: source.incarnation,
            transfer: record.id,
            address: record.base,
            length: record.length,
            ..Event::new(EventKind::Notice)
        };
        self.peers.close_transfer(at, true);
        self.counters.notices += 1;
        self.event(now, event);
    }

    /// The sender has moved past transfers whose notice it owes: it has given the notice, and it was lost or is late. Told
    /// now; a late one finds nothing to tell.
    #[cold]
    fn overtaken_notices(&mut self, now: Nanos, source: u16) {
        let oldest_live = self.peers.source(source).completed.oldest_live();
        for at in 0..self.peers.transfer_count() {
            let record = self.peers.transfer(at);
            let owed = record.in_use && record.source == source && record.awaits_notice;
            if owed && record.id.is_older_than(oldest_live) {
                self.notice(now, at);
            }
        }
    }
}

/// The packet's place within its segment, if the packet agrees with the entry [E1-5]: on a packet boundary, inside the range,
/// and, for a start, of the same shape.
#[inline]
fn position(entry: &Entry, header: &DataHeader, packet_size_log2: u8) -> Option<u16> {
    if header.segment_count != entry.segment_count {
        return None;
    }
    if let Some(start) = &header.start {
        let same = start.base == entry.base
            && start.segment_length == entry.length
            && start.packets == entry.packets
            && start.transfer_length == entry.transfer_length;
        if !same {
            return None;
        }
    }
    let offset = header.address.get().checked_sub(entry.base.get())?;
    if offset & ((1 << packet_size_log2) - 1) != 0 {
        return None;
    }
    u16::try_from(offset >> packet_size_log2).ok().filter(|&bit| bit < entry.packets)
}
