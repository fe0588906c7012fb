//! Packets whose operation is not registered: late ones, starts, and those for the escape buffer.

use fpga_firmware::event::{Event, EventKind, NackReason, Registration};
use fpga_firmware::generated::Scheme;
use fpga_firmware::geometry::Geometry;
use fpga_firmware::ids::OpNumber;
use fpga_firmware::wire::{DataHeader, Flags, StartFields};

use super::escape::{EscapeResult, key_of};
use super::mask::{Mask, SegmentWindow};
use super::registry::{Entry, SegmentKey};
use super::tombstone::{NotifyMode, TransferProgress};
use super::{ReceiveMemory, Receiver};
use crate::time::Nanos;

/// The records that a start needs, all of them known to be available.
#[derive(Clone, Copy)]
struct StartRecords {
    source: u16,
    new_source: bool,
    transfer: u16,
    new_transfer: bool,
}

/// Why a start finds no place.
#[derive(Clone, Copy)]
enum StartRefusal {
    /// Nothing is free: later, perhaps.
    Busy,
    /// The event ring has no slot for the transfer's notice.
    NotReady,
    /// It contradicts its own transfer.
    Contradiction,
}

impl Receiver {
    pub(super) fn unexpected<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        payload: &[u8],
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
                // Late, refused or not: its sender is at it, so what is complete of it must not be forgotten.
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
            None => self.escape(now, header, payload),
        }
    }

    fn escape(&mut self, now: Nanos, header: &DataHeader, payload: &[u8]) {
        // Refused at once rather than after the wait: it could never be written.
        let length = payload.len() as u64;
        if !self.access.allows_write(header.common.source, header.key, header.address, length) {
            self.violation(now, header, header.address, length);
            return;
        }
        let deadline = now.saturating_add(self.config.escape_timeout);
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

    fn register<M: ReceiveMemory + ?Sized>(
        &mut self,
        now: Nanos,
        header: &DataHeader,
        start: StartFields,
        payload: &[u8],
        memory: &mut M,
    ) {
        let expected = start.segment_length.min(self.config.packet_size());
        let mask = Mask::first_of(start.packets).filter(|_| start.packets <= self.config.mask_bits);
        let sound = geometry(header, &start).check().is_ok()
            && header.address == start.base
            && payload.len() as u64 == u64::from(expected);
        let Some(mask) = mask.filter(|_| sound) else {
            self.contradiction(now, header, payload.len());
            return;
        };
        // The whole operation or nothing: a sender learns early that a part of it would be refused.
        let length = u64::from(start.segment_length);
        if !self.access.allows_write(header.common.source, header.key, start.base, length) {
            self.violation(now, header, start.base, length);
            return;
        }
        if !self.is_admitted(now, header) {
            self.counters.registry_full += 1;
            self.refuse(header, NackReason::Busy);
            return;
        }
        let place = match self.find_records(header, &start) {
            // What its sender has left behind may be all that is in the way. Nothing else can be there: a full registry is not
            // searched for every packet that it refuses.
            Err(StartRefusal::Busy | StartRefusal::NotReady) if self.moved_on || self.next_sweep <= now => {
                self.sweep(now);
                self.find_records(header, &start)
            }
            place => place,
        };
        let place = match place {
            Ok(place) => place,
            Err(StartRefusal::Busy) => {
                self.counters.registry_full += 1;
                self.refuse(header, NackReason::Busy);
                return;
            }
            Err(StartRefusal::NotReady) => {
                self.nack_not_ready(header);
                return;
            }
            Err(StartRefusal::Contradiction) => {
                self.contradiction(now, header, payload.len());
                return;
            }
        };
        // Written before anything shows that it arrived.
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

    /// Finds the records for a start, and whether the transfer may begin (`notice_slots.rs`), without changing anything.
    fn find_records(&self, header: &DataHeader, start: &StartFields) -> Result<StartRecords, StartRefusal> {
        let place = self.place(header, start)?;
        let notifies = NotifyMode::of(header.common.flags) != NotifyMode::Never;
        if place.new_transfer && notifies {
            // A transfer of one packet leaves nothing here if it cannot be told.
            let is_one_packet = header.segment_count == 1 && start.packets == 1;
            if is_one_packet && !self.has_notice_slot() || !self.admits_notifying() {
                return Err(StartRefusal::NotReady);
            }
        }
        Ok(place)
    }

    /// Whether operations of this life of the sender may be registered. A node has one life at a time: while it is known by another
    /// one, packets of that may be on their way, and would be written over what the new one sends to the same place, even after
    /// its completion (spec 2.2.9, 1).
    ///
    /// Which of two lives is the newer, their numbers do not tell, and the order of their first packets does not either. But of the
    /// older one nothing arrives when a packet lifetime has passed since the newer one was first heard of: whoever is still heard then
    /// is alive. Until then its starts are refused, which is not silence to it. From then on the other is forgotten, with all that it has
    /// left behind: nobody waits for it, and the registry may have no other room.
    fn is_admitted(&mut self, now: Nanos, header: &DataHeader) -> bool {
        let life = (header.common.source, header.common.incarnation);
        if let Some(at) = self.peers.find_source(life.0, life.1) {
            let admitted = self.peers.source(at).admitted;
            if admitted > now {
                return false;
            }
            if admitted != Nanos::ZERO {
                self.peers.source_mut(at).admitted = Nanos::ZERO;
                self.release_former_incarnations(now, at);
            }
            return true;
        }
        if !self.peers.contains_node(life.0) {
            return true;
        }
        if self.peers.free_source().is_none() && (self.moved_on || self.next_sweep <= now) {
            self.sweep(now);
        }
        if let Some(at) = self.peers.free_source() {
            let admitted = now.saturating_add(self.config.packet_lifetime);
            self.peers.open_source(at, life, header.oldest_live, now, admitted);
            self.next_sweep = self.next_sweep.min(now.saturating_add(self.config.registry_timeout));
        }
        false
    }

    /// Finds the records for a start without changing anything.
    fn place(&self, header: &DataHeader, start: &StartFields) -> Result<StartRecords, StartRefusal> {
        if !self.registry.has_free() {
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
            let life = (header.common.source, header.common.incarnation);
            self.peers.open_source(source, life, header.oldest_live, now, Nanos::ZERO);
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
        let event = Event {
            count: u32::from(start.packets),
            address: start.base,
            length: u64::from(start.segment_length),
            op: OpNumber::new(header.segment_count),
            tries: Registration::byte(flags, Scheme::Registry),
            ..self.entry_event(EventKind::Registered, slot)
        };
        self.event(now, event);
        Some(slot)
    }

    /// Searches the escape buffer for packets of an operation that has just been registered, and takes them as if they
    /// arrived now [E1-2].
    fn release_escaped<M: ReceiveMemory + ?Sized>(&mut self, now: Nanos, key: &SegmentKey, memory: &mut M) {
        let mut from = 0;
        // The buffer is set aside so that its payloads can be lent while packets are processed; taking it moves two
        // pointers. Nothing can come to be in it meanwhile: its packets' operation is registered, or over.
        let mut escape = core::mem::take(&mut self.escape);
        while let Some(slot) = escape.find(key, from) {
            if let Some((header, payload)) = escape.peek(slot) {
                let header = *header;
                self.dispatch(now, &header, payload, memory);
                self.escape_event(now, EventKind::EscapeReleased, slot, &header, payload.len() as u64, 1);
            }
            escape.release(slot);
            from = slot + 1;
        }
        self.escape = escape;
    }
}

fn geometry(header: &DataHeader, start: &StartFields) -> Geometry {
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
