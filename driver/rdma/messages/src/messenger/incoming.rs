//! Arrivals: doorbells, records and parts of large data.

use super::CardMessenger;
use super::outgoing::slice;
use crate::address::PeerId;
use crate::completion::Failure;
use crate::hello::Hello;
use crate::inbound::{Fetched, WaitingFetch};
use crate::layout::{AreaPart, Arrival, CHUNK, Doorbell, HELLO_BYTES, MAX_RECORD, RING_OFFSET};
use crate::wire::{HEADER, Header, Kind};
use fpga_driver::{CardAddr, SharedSlice};
use fpga_rdma::Notification;

/// Maximum number of arrivals before the hello of a peer.
const MAX_HELD: usize = 4096;
/// Maximum number of copies that wait while a hello is accepted.
const MAX_WAITING_HELLOS: usize = 1024;

impl CardMessenger {
    /// Processes an arrival in card memory.
    pub(super) fn arrived(&mut self, notification: &Notification) {
        let Notification { node, incarnation, address, length, .. } = *notification;
        let Ok(length) = u32::try_from(length) else { return };
        match self.side.layout.arrival(address) {
            // Without space for its copy a hello is dropped: the peer repeats it.
            Arrival::Hello(port)
                if u64::from(length) == HELLO_BYTES && self.inbound.waiting.len() < MAX_WAITING_HELLOS =>
            {
                self.fetch(WaitingFetch {
                    from: address,
                    length,
                    subject: Fetched::Hello { port, node, incarnation },
                });
            }
            Arrival::Hello(_) | Arrival::Unknown => {}
            Arrival::Area(area, part) => {
                let Some(id) = self.areas.owner(area) else { return };
                // The card accepts writes to an area from its node alone.
                if self.peers[id].node != node {
                    return;
                }
                let peer = &mut self.peers[id];
                // Before the hello of its process, which may still be in card memory. Arrivals from an earlier process stay here
                // until the next hello.
                if peer.incarnation != Some(incarnation) {
                    if peer.held.len() == MAX_HELD {
                        // Of an earlier process, most likely.
                        peer.held.retain(|held| held.incarnation == incarnation);
                    }
                    if peer.held.len() < MAX_HELD {
                        peer.held.push(*notification);
                    }
                    return;
                }
                peer.last_arrival = self.now;
                match part {
                    AreaPart::Doorbell(doorbell) => self.rung(id, doorbell),
                    AreaPart::Landing(slot) => self.landed(id, (area, slot), address, length),
                    AreaPart::Ring(offset) => self.record_arrived(id, area, offset, length),
                }
            }
        }
    }

    fn record_arrived(&mut self, id: PeerId, area: u32, offset: u64, length: u32) {
        if u64::from(length) > MAX_RECORD || (length as usize) < HEADER {
            return;
        }
        if !self.peers[id].note_arrival(offset, length) {
            self.fail_peer(id);
            return;
        }
        while let Some(incarnation) = self.peers[id].incarnation
            && let Some((offset, length)) = self.peers[id].next_arrival()
        {
            if self.peers[id].has_overrun() {
                self.fail_peer(id);
                return;
            }
            self.fetch(WaitingFetch {
                from: self.side.layout.address(area, RING_OFFSET + offset),
                length,
                subject: Fetched::Record { peer: id, incarnation, offset },
            });
        }
    }

    /// Processes the arrival of a part of large data in a landing slot of an area.
    fn landed(&mut self, id: PeerId, (area, slot): (u32, u16), address: CardAddr, length: u32) {
        let Some((operation, part)) = self.peers[id].landing.user(slot) else { return };
        let Some(expected) = self.operations.get(operation) else { return };
        let rest = expected.length.saturating_sub(part * CHUNK).min(CHUNK);
        let is_expected = expected.refused.is_none() && u64::from(length) == rest;
        if !is_expected || address != self.side.layout.landing_slot(area, slot) {
            return;
        }
        let subject = match expected.registered {
            Some(_) => Fetched::Direct { slot, operation, part },
            None => Fetched::Chunk { slot, operation, part },
        };
        self.fetch(WaitingFetch { from: address, length, subject });
    }

    /// Starts a copy to host memory, in order.
    fn fetch(&mut self, fetch: WaitingFetch) {
        if !self.inbound.waiting.is_empty() || !self.start_fetch(&fetch) {
            self.inbound.waiting.push_back(fetch);
        }
    }

    fn start_fetch(&mut self, fetch: &WaitingFetch) -> bool {
        let (handle, at, place) = if let Fetched::Direct { operation, part, .. } = fetch.subject {
            let registered = self.operations.get(operation).and_then(|operation| operation.registered);
            // An operation that has ended needs no data.
            let Some((handle, at)) = registered.and_then(|memory| memory.target_at(part * CHUNK)) else {
                return true;
            };
            (handle, at, self.inbound.nowhere())
        } else {
            let Some(place) = self.inbound.space(fetch.length) else { return false };
            (self.side.inbound_handle, place.0, place)
        };
        match self.side.c2h.submit_at(handle, at, fetch.length as usize, fetch.from) {
            Ok(ticket) => {
                self.inbound.started(ticket, fetch, place);
                true
            }
            Err(error) if error.is_full() => false,
            Err(error) => {
                self.fail_card(&error.to_string());
                true
            }
        }
    }

    /// Processes the records and parts that were copied to host memory.
    pub(super) fn advance_fetches(&mut self) -> Result<usize, String> {
        if self.inbound.is_idle() {
            return Ok(0);
        }
        self.side.c2h.poll().map_err(|error| error.to_string())?;
        if let Some(completion) = self.side.c2h.next_completion()
            && let Err(error) = completion.outcome
        {
            return Err(error.to_string());
        }
        let memory = self.side.inbound.clone();
        let mut work = 0;
        while let Some(fetch) = self.inbound.oldest().copied()
            && self.side.c2h.has_ended(fetch.ticket)
        {
            work += 1;
            if let Some(bytes) = slice(&memory, fetch.offset as u64, fetch.length as u64) {
                self.fetched(fetch.subject, bytes);
            }
            self.inbound.release_oldest();
        }
        while let Some(fetch) = self.inbound.waiting.pop_front() {
            if !self.start_fetch(&fetch) {
                self.inbound.waiting.push_front(fetch);
                break;
            }
        }
        Ok(work)
    }

    fn fetched(&mut self, subject: Fetched, bytes: SharedSlice<'_>) {
        match subject {
            Fetched::Chunk { slot, operation, part } => self.part_copied(slot, operation, part, bytes),
            Fetched::Direct { slot, operation, part } => self.part_arrived(slot, operation, part),
            Fetched::Hello { port, node, incarnation } => {
                let mut hello = [0; HEADER];
                if bytes.read(0, &mut hello).is_ok()
                    && let Some(hello) = Hello::decode(&hello, (node, incarnation))
                {
                    self.handle_hello(port, node, incarnation, &hello);
                }
            }
            Fetched::Record { peer: id, incarnation, offset } => {
                let length = u32::try_from(bytes.len()).unwrap_or(0);
                let peer = &mut self.peers[id];
                if peer.incarnation != Some(incarnation) {
                    return;
                }
                peer.note_freed(offset, length);
                let mut header = [0; HEADER];
                let decoded = bytes.read(0, &mut header).ok().and_then(|()| Header::decode(&header));
                let data = bytes.slice(HEADER, bytes.len() - HEADER);
                if let (Some(header), Ok(data)) = (decoded, data) {
                    self.credited(id, header.credit.into());
                    // A wrong credit has ended the session.
                    if self.peers[id].incarnation == Some(incarnation) {
                        self.record(id, &header, data);
                    }
                }
                self.return_credit(id);
            }
        }
    }

    /// Processes a record. Its data is only valid during the call.
    fn record(&mut self, id: PeerId, header: &Header, data: SharedSlice<'_>) {
        let length = data.len() as u64;
        match header.kind {
            Kind::Message if header.length == length => self.message(id, header, data),
            Kind::LargeMessage => self.large_message(id, header),
            Kind::Grant => self.handle_grant(id, header),
            Kind::Write if header.length == length => self.write_arrived(id, header, data),
            Kind::LargeWrite => self.large_write_arrived(id, header),
            Kind::Read => self.read_arrived(id, header),
            Kind::LargeRead => self.large_read_arrived(id, header),
            Kind::Answer => self.answered(id, header, data),
            Kind::Atomic => self.atomic_arrived(id, header, data),
            Kind::Stopped => self.stopped(id, header),
            Kind::Closed => self.peer_closed(id),
            // Lengths that do not agree: the peer's defect, whose operation does not end.
            Kind::Message | Kind::Write => {}
        }
    }

    fn credited(&mut self, id: PeerId, units: u32) {
        if units == 0 {
            return;
        }
        let peer = &mut self.peers[id];
        if !peer.credit(units) {
            self.fail_peer(id);
        } else if !peer.queue.is_empty() {
            self.list(id);
        }
    }

    fn rung(&mut self, id: PeerId, doorbell: Doorbell) {
        match doorbell {
            Doorbell::Credit(units) => self.credited(id, units),
            Doorbell::Chunk(slot) => self.slot_writable(id, slot),
            Doorbell::Eager(units) => {
                if !self.peers[id].return_eager(units) {
                    self.fail_peer(id);
                }
            }
            Doorbell::Done(number) => self.peer_done(id, number),
            Doorbell::Refused(number) => {
                let failure = Failure::KeyRefused { address: self.name(id) };
                self.peer_refused(id, number, failure);
            }
            Doorbell::Unsupported(number) => {
                let failure = Failure::NotSupported { address: self.name(id) };
                self.peer_refused(id, number, failure);
            }
        }
    }
}
