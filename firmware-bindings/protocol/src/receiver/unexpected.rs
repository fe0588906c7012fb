//! Packets whose operation is not registered: late ones, starts, and those for the escape channel.

use fpga_firmware::event::{Event, EventKind, NackReason, Registration};
use fpga_firmware::generated::{DELAY_UNIT_NS, Scheme};
use fpga_firmware::geometry::Geometry;
use fpga_firmware::ids::OpNumber;
use fpga_firmware::wire::{DataHeader, Flags, StartFields};

use super::escape::{EscapeResult, key_of};
use super::mask::{Mask, SegmentWindow};
use super::registry::{Entry, SegmentKey};
use super::tombstone::{NotifyMode, TransferProgress};
use super::{ReceiveMemory, Receiver};
use crate::incarnations::Admission;
use crate::time::Nanos;

/// Records that a start needs; all of them are available.
#[derive(Clone, Copy)]
pub(super) struct StartRecords {
    source: u16,
    new_source: bool,
    transfer: u16,
    new_transfer: bool,
}

/// Reason for which a start is not registered.
#[derive(Clone, Copy)]
pub(super) enum StartRefusal {
    /// No free entry or record at present.
    Busy,
    /// The event ring has no slot for the transfer's notification.
    NotReady,
    /// The start contradicts its own transfer.
    Contradiction,
}

impl Receiver {
    pub(super) fn unexpected<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: Option<&[u8]>,
        memory: &mut M,
    ) {
        let source = self.peers.find_source(header.common.source, header.common.incarnation);
        if let Some(source) = source {
            self.note_sender(now, source, header);
            if self.peers.source(source).completed.contains(header.transfer) {
                self.acknowledge_delayed(header);
                return;
            }
            if let Some(at) = self.peers.find_transfer(source, header.transfer) {
                let transfer = self.peers.transfer_mut(at);
                // Late, refused or not: its sender is active, so its completed segments must not be forgotten.
                transfer.touched = now;
                if transfer.done.contains(header.segment) {
                    if transfer.awaits_slot {
                        self.retry_notice(now, at, header);
                    } else {
                        self.acknowledge_delayed(header);
                    }
                    return;
                }
            }
        }
        match header.start {
            Some(start) => self.register(now, header, start, payload, memory),
            None => match payload {
                Some(payload) => self.escape(now, header, payload),
                None => self.refuse(header, NackReason::Trimmed),
            },
        }
    }

    fn escape(&mut self, now: Nanos, header: &DataHeader, payload: &[u8]) {
        // Refuse at once instead of after the escape timeout: it could never be written.
        let length = payload.len() as u64;
        if !self.access.allows_write(header.common.source, header.key, header.address, length) {
            self.violation(now, header, header.address, length);
            return;
        }
        if let Some(newest) = self.superseding(header.common.source, header.common.incarnation) {
            self.refuse_superseded(header, newest);
            return;
        }
        let timeout = self.escape.timeout(self.config.escape_timeout, self.config.packet_lifetime);
        let deadline = now.saturating_add(timeout);
        match self.escape.offer(now, deadline, header, payload) {
            // Not acknowledged: it is not in memory yet, and may never be [E1-6].
            EscapeResult::Stored(slot) => {
                self.counters.escape_hits += 1;
                let occupancy = self.escape.occupancy();
                self.counters.escape_high_water = self.counters.escape_high_water.max(occupancy);
                self.escape_event(now, EventKind::Escaped, slot, header, length, 0);
            }
            EscapeResult::Refreshed => self.counters.duplicates += 1,
            EscapeResult::Full => {
                self.counters.escape_dropped += 1;
                self.refuse(header, NackReason::EscapeFull);
            }
        }
    }

    pub(super) fn escape_event(
        &mut self,
        now: Nanos,
        kind: EventKind,
        slot: u16,
        header: &DataHeader,
        length: u64,
        count: u32,
    ) {
        self.event(
            now,
            Event {
                index: slot,
                node: header.common.source,
                incarnation: header.common.incarnation,
                transfer: header.transfer,
                segment: header.segment,
                op: header.op,
                count,
                address: header.address,
                length,
                ..Event::new(kind)
            },
        );
    }

    /// Registers the operation of a start. Without `payload`, a switch has cut it off: then the start's own packet stays missing.
    fn register<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        start: StartFields,
        payload: Option<&[u8]>,
        memory: &mut M,
    ) {
        let found = payload.map_or(0, <[u8]>::len);
        let Some(mask) = self.first_mask(header, &start, payload.map(<[u8]>::len)) else {
            self.contradiction(now, header, found);
            return;
        };
        // Check the whole operation: the sender learns early that a part of it would be refused.
        let length = u64::from(start.segment_length);
        if !self.access.allows_write(header.common.source, header.key, start.base, length) {
            self.violation(now, header, start.base, length);
            return;
        }
        if !self.is_admitted(now, header) {
            return;
        }
        let place = match self.find_records(header, &start) {
            // Expired records may occupy the space. Without any, there is no sweep: a full registry is not searched for
            // every packet that it refuses.
            Err(StartRefusal::Busy | StartRefusal::NotReady) if self.moved_on || self.next_sweep <= now => {
                self.sweep(now);
                self.find_records(header, &start)
            }
            place => place,
        };
        let place = match place {
            Ok(place) => place,
            Err(StartRefusal::Busy) => {
                self.refuse_full(now, header);
                return;
            }
            Err(StartRefusal::NotReady) => {
                self.nack_not_ready(header);
                return;
            }
            Err(StartRefusal::Contradiction) => {
                self.contradiction(now, header, found);
                return;
            }
        };
        let Some(payload) = payload else {
            if self.insert_operation(now, header, &start, place, mask).is_some() {
                self.refuse(header, NackReason::Trimmed);
                self.release_escaped(now, &key_of(header), memory);
            }
            return;
        };
        // Write before any state shows that the packet arrived.
        if let Err(fault) = memory.write(header.address, payload) {
            self.memory_fault(now, header, fault);
            return;
        }
        let Some(slot) = self.insert_operation(now, header, &start, place, mask) else { return };
        if mask.is_complete() {
            self.complete(now, slot, 0, header);
        } else {
            self.acknowledge(header);
            if self.config.packet_events {
                self.packet_event(now, slot, 0);
            }
        }
        self.release_escaped(now, &key_of(header), memory);
    }

    /// Finds the records for a start, and whether the transfer may begin (`notice_slots.rs`), without changing
    /// anything.
    pub(super) fn find_records(
        &self,
        header: &DataHeader,
        start: &StartFields,
    ) -> Result<StartRecords, StartRefusal> {
        let place = self.place(header, start)?;
        let notifies = NotifyMode::of(header.common.flags) != NotifyMode::Never;
        if place.new_transfer && notifies {
            // A transfer of one packet is not stored at all without a slot for its notification.
            let is_one_packet = header.segment_count == 1 && start.packets == 1;
            if is_one_packet && !self.has_notice_slot() || !self.admits_notifying() {
                return Err(StartRefusal::NotReady);
            }
        }
        Ok(place)
    }

    /// Whether operations of this incarnation of the sender may be registered; if not, refuses the packet. A later
    /// incarnation than the newest known one of its node replaces that one with all its records: no sender waits for
    /// them, they may occupy the whole registry, and their packets would be written over newer data (docs/protocol.md
    /// 6.2).
    fn is_admitted(&mut self, now: Nanos, header: &DataHeader) -> bool {
        let origin = (header.common.source, header.common.incarnation);
        match self.nodes.admit(now, origin, self.rested(now)) {
            Admission::Admitted(_) => true,
            Admission::Succeeds(_) => {
                self.release_former_incarnations(now, origin.0, origin.1);
                true
            }
            Admission::Superseded(newest) => {
                self.refuse_superseded(header, newest);
                false
            }
            Admission::Full => {
                self.counters.registry_full += 1;
                self.refuse(header, NackReason::Busy);
                false
            }
        }
    }

    /// Returns the time since which a node has to have rested before its newest incarnation may be forgotten.
    fn rested(&self, now: Nanos) -> Nanos {
        now.checked_sub(self.config.packet_lifetime).unwrap_or(Nanos::ZERO)
    }

    /// Finds the records for a start without changing anything.
    fn place(&self, header: &DataHeader, start: &StartFields) -> Result<StartRecords, StartRefusal> {
        if !self.registry.has_free(&key_of(header)) {
            return Err(StartRefusal::Busy);
        }
        let known = self.peers.find_source(header.common.source, header.common.incarnation);
        let source = known.or_else(|| self.peers.free_source()).ok_or(StartRefusal::Busy)?;
        let transfer = known.and_then(|source| self.peers.find_transfer(source, header.transfer));
        if let Some(at) = transfer {
            let record = self.peers.transfer(at);
            let same = record.segment_count == header.segment_count
                && record.base == start.transfer_base
                && record.length == start.transfer_length;
            if !same {
                return Err(StartRefusal::Contradiction);
            }
            if !record.done.covers(header.segment) {
                return Err(StartRefusal::Busy);
            }
            return Ok(StartRecords { source, new_source: false, transfer: at, new_transfer: false });
        }
        if !SegmentWindow::EMPTY.covers(header.segment) {
            return Err(StartRefusal::Busy);
        }
        if known.is_some() && !self.peers.has_tombstone_space(source, header.transfer) {
            return Err(StartRefusal::Busy);
        }
        let at = self.peers.free_transfer().ok_or(StartRefusal::Busy)?;
        Ok(StartRecords { source, new_source: known.is_none(), transfer: at, new_transfer: true })
    }

    fn insert_operation(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        start: &StartFields,
        place: StartRecords,
        mask: Mask,
    ) -> Option<u16> {
        let StartRecords { source, new_source, transfer, new_transfer } = place;
        if new_source {
            let origin = (header.common.source, header.common.incarnation);
            self.peers.open_source(source, origin, header.oldest_live, now);
            if let Admission::Admitted(at) = self.nodes.admit(now, origin, self.rested(now)) {
                self.nodes.begin(at, now);
            }
        }
        if new_transfer {
            self.peers.open_transfer(
                transfer,
                TransferProgress {
                    in_use: true,
                    source,
                    id: header.transfer,
                    segment_count: header.segment_count,
                    base: start.transfer_base,
                    length: start.transfer_length,
                    done: SegmentWindow::EMPTY,
                    registered: 0,
                    notice: NotifyMode::of(header.common.flags),
                    awaits_notice: false,
                    awaits_slot: false,
                    touched: now,
                },
            );
        }
        let flags = header.common.flags;
        let entry = Entry {
            segment_count: header.segment_count,
            base: start.base,
            length: start.segment_length,
            packets: start.packets,
            silent: flags.contains(Flags::SILENT),
            notify: flags.contains(Flags::NOTIFY_RECEIVER),
            source,
            transfer,
            touched: now,
            ..Entry::EMPTY
        };
        let slot = self.registry.insert(key_of(header), mask, entry)?;
        let record = self.peers.transfer_mut(transfer);
        record.registered += 1;
        record.touched = now;
        self.next_sweep = self.next_sweep.min(now.saturating_add(self.config.registry_timeout));
        self.counters.registrations += 1;
        let occupancy = self.registry.occupancy();
        self.counters.registry_high_water = self.counters.registry_high_water.max(occupancy);
        let trimmed = if mask.contains(0) { Flags::NONE } else { Flags::TRIMMED };
        let event = Event {
            count: u32::from(start.packets),
            address: start.base,
            length: u64::from(start.segment_length),
            op: OpNumber::new(header.segment_count),
            tries: Registration::byte(flags.with(trimmed), Scheme::Registry),
            ..self.entry_event(EventKind::Registered, slot)
        };
        self.event(now, event);
        Some(slot)
    }

    /// Searches the escape channel for packets of an operation that has just been registered, and processes them as if
    /// they arrived now [E1-2].
    fn release_escaped<M: ReceiveMemory + ?Sized>(&mut self, now: Nanos, key: &SegmentKey, memory: &mut M) {
        let mut from = 0;
        // The escape channel is moved out so that its payloads can be borrowed while packets are processed; the move
        // costs two pointers. No packet is added meanwhile: the operation of its packets is registered, or over.
        let mut escape = core::mem::take(&mut self.escape);
        while let Some(slot) = escape.find(key, from) {
            let wait = now.saturating_sub(escape.arrived(slot).unwrap_or(now));
            escape.note_wait(wait);
            if let Some((header, payload)) = escape.peek(slot) {
                let header = *header;
                self.held.0 = u16::try_from(wait.get() / u64::from(DELAY_UNIT_NS)).unwrap_or(u16::MAX);
                self.dispatch(now, &header, payload, memory);
                self.held.0 = 0;
                self.escape_event(now, EventKind::EscapeReleased, slot, &header, payload.len() as u64, 1);
            }
            escape.release(slot);
            from = slot + 1;
        }
        self.escape = escape;
    }
}

pub(super) fn geometry(header: &DataHeader, start: &StartFields) -> Geometry {
    Geometry {
        packet_size_log2: header.packet_size_log2,
        packets: start.packets,
        segment: header.segment,
        segment_count: header.segment_count,
        base: start.base,
        segment_length: start.segment_length,
        transfer_base: start.transfer_base,
        transfer_length: start.transfer_length,
    }
}
