//! Packets whose operation is registered, and the completion of operations and transfers.

use fpga_firmware::event::{Event, EventKind, NackReason};
use fpga_firmware::ids::TransferId;
use fpga_firmware::wire::DataHeader;

use super::registry::Entry;
use super::tombstone::NotifyMode;
use super::{ReceiveMemory, Receiver, key_of};
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
        let oldest_live = self.note_sender(now, source, header);
        // The sender may have given up this transfer and have sent other data to the same addresses since.
        if header.transfer.is_older_than(oldest_live) {
            self.acknowledge_delayed(header);
            return;
        }
        let length = payload.len() as u64;
        let transfer_length = |at| self.peers.transfer(at).length;
        let mut operation = self.registry.operation(slot);
        let bit = position(operation.entry, transfer_length, header, length, self.config.packet_size_log2);
        let Some(bit) = bit else {
            self.contradiction(now, header, payload.len());
            return;
        };
        if operation.contains(bit) {
            // Acknowledge again: the first acknowledgement may have been lost [E1-7].
            operation.entry.touched = now;
            self.counters.duplicates += 1;
            self.acknowledge(header);
            return;
        }
        let window = self.access.allowing_write(
            operation.entry.window.0,
            header.common.source,
            header.key,
            header.address,
            length,
        );
        let Some(window) = window else {
            self.violation(now, header, header.address, length);
            return;
        };
        // Write first: a set bit asserts that the bytes are in memory.
        if let Err(fault) = memory.write(header.address, payload) {
            self.memory_fault(now, header, fault);
            return;
        }
        if operation.entry.window.0 != window {
            operation.entry.window.0 = window;
        }
        operation.entry.touched = now;
        let complete = operation.insert(bit);
        if complete {
            self.complete(now, slot, bit, header);
            return;
        }
        self.acknowledge(header);
        if self.config.packet_events {
            self.packet_event(now, slot, bit);
        }
    }

    /// Records the sender's activity and its oldest live transfer. Returns the oldest live transfer.
    #[inline]
    pub(super) fn note_sender(&mut self, now: Nanos, source: u16, header: &DataHeader) -> TransferId {
        let record = self.peers.source_mut(source);
        record.touched = now;
        let oldest_live = record.completed.oldest_live();
        if !oldest_live.is_older_than(header.oldest_live) {
            return oldest_live;
        }
        self.advance_oldest_live(now, source, header.oldest_live)
    }

    /// Advances the sender's oldest live transfer.
    // Out of line: most packets do not advance it, and inlining would cost their path registers.
    #[inline(never)]
    fn advance_oldest_live(&mut self, now: Nanos, source: u16, oldest_live: TransferId) -> TransferId {
        let record = self.peers.source_mut(source);
        record.completed.advance(oldest_live);
        self.moved_on |= record.transfers != 0;
        if record.announced != 0 {
            self.release_overtaken_notices(now, source);
        }
        oldest_live
    }

    /// Acknowledges and drops a late packet of a completed operation: its sender still waits for the answer [E1-4].
    pub(super) fn acknowledge_delayed(&mut self, header: &DataHeader) {
        self.counters.tombstone_hits += 1;
        self.acknowledge(header);
    }

    pub(super) fn packet_event(&mut self, now: Nanos, slot: u16, bit: u16) {
        let event = Event { count: u32::from(bit), ..self.entry_event(EventKind::Packet, slot) };
        self.event(now, event);
    }

    /// Creates an event that names an entry's operation.
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

    /// Completes an entry whose packets are all in memory; `bit` of `header` is the last one. Sends its answer, one
    /// event, one operation-complete packet, and the notification of the transfer if this was its last segment (spec
    /// 2.2.3). The entry is freed in any case. If the event ring has no slot for the notification, the packet is
    /// refused as "receiver not ready" and the sender tries again.
    pub(super) fn complete(&mut self, now: Nanos, slot: u16, bit: u16, header: &DataHeader) {
        let event = self.entry_event(EventKind::Completed, slot);
        let key = *self.registry.key(slot);
        let transfer = self.registry.entry(slot).transfer;
        let record = self.peers.transfer_mut(transfer);
        record.registered -= 1;
        record.touched = now;
        record.done.insert(key.segment);
        let is_whole = record.done.base() >= record.segment_count;
        let takes_slot = is_whole && record.notice != NotifyMode::Never;
        let is_ready = !takes_slot || self.has_notice_slot();
        if is_ready {
            self.acknowledge(header);
        } else {
            self.nack_not_ready(header);
        }
        if self.config.packet_events {
            self.packet_event(now, slot, bit);
        }
        self.registry.remove(slot);
        self.refusals.note_release(now);
        self.counters.completions += 1;
        self.event(now, event);
        if is_ready {
            self.segment_done(key);
        }
        // One notification per transfer, independent of its number of segments [E1-9].
        if is_ready && is_whole {
            self.arrived(now, transfer);
        } else if is_whole {
            self.peers.transfer_mut(transfer).awaits_slot = true;
        }
    }

    /// Handles a packet of a transfer that is completely in memory and waits for a slot of the event ring.
    pub(super) fn retry_notice(&mut self, now: Nanos, at: u16, header: &DataHeader) {
        self.counters.duplicates += 1;
        if !self.has_notice_slot() {
            self.nack_not_ready(header);
            return;
        }
        self.peers.transfer_mut(at).awaits_slot = false;
        self.acknowledge(header);
        self.segment_done(key_of(header));
        self.arrived(now, at);
    }

    /// Handles the arrival of a whole transfer. If its notification needs a slot, one is free.
    fn arrived(&mut self, now: Nanos, at: u16) {
        match self.peers.transfer(at).notice {
            NotifyMode::OnLastPacket => self.notice(now, at),
            NotifyMode::OnArrivedPacket => self.peers.await_notice(at),
            NotifyMode::Never => self.peers.close_transfer(at, true),
        }
    }

    pub(super) fn nack_not_ready(&mut self, header: &DataHeader) {
        self.counters.not_ready += 1;
        self.refuse(header, NackReason::NotReady);
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
        self.take_notice_slot();
        self.counters.notices += 1;
        self.event(now, event);
    }

    /// Notifies the host of complete transfers that the sender has moved past without an ARRIVED packet received: the
    /// packet was lost or is late. A late one has no effect afterwards.
    #[cold]
    fn release_overtaken_notices(&mut self, now: Nanos, source: u16) {
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

/// Returns the packet's index within its segment if the packet agrees with the entry [E1-5]: on a packet boundary,
/// inside the range, with the length for that position [E1-10], and, for a start, with the same shape.
/// `transfer_length` returns the length of a transfer by its record.
#[inline]
pub(super) fn position(
    entry: &Entry,
    transfer_length: impl FnOnce(u16) -> u64,
    header: &DataHeader,
    length: u64,
    packet_size_log2: u8,
) -> Option<u16> {
    if header.segment_count != entry.segment_count {
        return None;
    }
    if let Some(start) = &header.start {
        let same = start.base == entry.base
            && start.segment_length == entry.length
            && start.packets == entry.packets
            && start.transfer_length == transfer_length(entry.transfer);
        if !same {
            return None;
        }
    }
    let packet_size = 1 << packet_size_log2;
    let offset = header.address.get().checked_sub(entry.base.get())?;
    let rest = u64::from(entry.length).checked_sub(offset)?;
    // Every packet is full, except for the last one, which has the remaining bytes.
    if offset & (packet_size - 1) != 0 || length != rest.min(packet_size) {
        return None;
    }
    u16::try_from(offset >> packet_size_log2).ok().filter(|&bit| bit < entry.packets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_firmware::generated::{PACKET_SIZE_LOG2_MAX, PACKET_SIZE_LOG2_MIN};
    use fpga_firmware::ids::OpNumber;
    use fpga_firmware::wire::Common;
    use fpga_registers::CardAddr;
    use proptest::prelude::*;

    const BASE: u64 = 0x1_0000;

    fn header(address: u64, packet_size_log2: u8) -> DataHeader {
        DataHeader {
            common: Common::default(),
            transfer: TransferId::new(0),
            oldest_live: TransferId::new(0),
            segment: 0,
            segment_count: 1,
            address: CardAddr::new(address),
            key: 0,
            op: OpNumber::new(0),
            tries: 1,
            packet_size_log2,
            start: None,
        }
    }

    proptest! {
        /// Compares with the definition: packet `n` of a segment starts n packet sizes after its base and holds one
        /// packet size or the remaining bytes. Covers correct packets, packets off by one byte, beyond the end, too
        /// long and too short.
        #[test]
        fn packet_range_matches_definition_for_every_index(
            log2 in PACKET_SIZE_LOG2_MIN..=PACKET_SIZE_LOG2_MAX,
            packets in 1u16..=256,
            last in any::<u32>(),
            number in 0u64..258,
            beside in prop_oneof![4 => Just(0i64), 1 => -1i64..=1],
            more in prop_oneof![4 => Just(0i64), 1 => -1i64..=1],
        ) {
            let size = 1u32 << log2;
            let length = (u32::from(packets) - 1) * size + last % size + 1;
            let entry =
                Entry { base: CardAddr::new(BASE), length, packets, segment_count: 1, ..Entry::EMPTY };
            let address = BASE.wrapping_add_signed(beside) + number * u64::from(size);
            let end = BASE + u64::from(length);
            let found = end.saturating_sub(address).clamp(1, u64::from(size)).saturating_add_signed(more);
            let expected = (0..packets).find(|&n| {
                let start = u32::from(n) * size;
                address == BASE + u64::from(start) && found == u64::from((length - start).min(size))
            });
            prop_assert_eq!(position(&entry, |_| 0, &header(address, log2), found, log2), expected);
        }
    }
}
