//! Large data: in parts, to landing slots that the receiving side grants.
//!
//! The slots are in the area of the sending side, so a peer can only overwrite its own data. Part `i` goes to slot `i` modulo the number of granted slots, once the receiving side has copied part `i` minus that number. A doorbell
//! tells the sending side of each copied part.

use super::CardMessenger;
use crate::address::PeerId;
use crate::completion::Failure;
use crate::layout::{CHUNK, Doorbell};
use crate::operation::{Local, Operation, OperationId, Role};
use crate::peer::{Payload, QueuedRecord};
use crate::port::PortOptions;
use crate::region::RemoteAccess;
use crate::wire::{Grant, Header, Kind};
use fpga_driver::SharedSlice;

/// Maximum number of landing slots of one operation.
const MAX_SLOTS: u64 = 4;

impl CardMessenger {
    /// Sends the operation's request with a grant of landing slots. If none of the peer's slots is free, the request waits.
    pub(super) fn request_data(&mut self, id: OperationId) {
        let Some(peer) = self.operations.get(id).map(|operation| operation.peer) else { return };
        if !self.peers[peer].landing.waiting.is_empty() || !self.try_request(id) {
            self.peers[peer].landing.waiting.push_back(id);
        }
    }

    fn try_request(&mut self, id: OperationId) -> bool {
        let Some(operation) = self.operations.get_mut(id) else { return true };
        let wanted = operation.length.div_ceil(CHUNK).min(MAX_SLOTS);
        let landing = &mut self.peers[operation.peer].landing;
        let mut grant = Grant::default();
        for part in 0..wanted {
            let Some(slot) = landing.take(id, part) else { break };
            grant.push(slot);
        }
        if wanted > 0 && grant.count == 0 {
            return false;
        }
        operation.grant = grant;
        let peer = operation.peer;
        self.register_memory(id);
        let Some(operation) = self.operations.get_mut(id) else { return true };
        if let Some(mut header) = operation.request.take() {
            header.grant = grant;
            self.submit(peer, QueuedRecord { header, payload: Payload::None, operation: None });
        }
        if wanted == 0 {
            self.finish(id, Ok(()));
        }
        true
    }

    /// Sends the waiting requests to a peer, as far as slots are free.
    fn send_waiting_requests(&mut self, peer: PeerId) {
        while let Some(id) = self.peers[peer].landing.waiting.pop_front() {
            if !self.try_request(id) {
                self.peers[peer].landing.waiting.push_front(id);
                return;
            }
        }
    }

    /// Frees the landing slots of an operation that has ended.
    pub(super) fn release_landing(&mut self, id: OperationId, operation: &Operation) {
        if !matches!(operation.role, Role::Receive | Role::Absorb | Role::Read) || operation.grant.count == 0
        {
            return;
        }
        self.peers[operation.peer].landing.release(id);
        self.send_waiting_requests(operation.peer);
    }

    /// Refuses an operation of the peer whose region is gone. A side that sends first waits for the parts in flight, and a side that receives
    /// keeps the landing slots until the peer sends no more parts: they must not reach slots of another operation.
    pub(super) fn refuse(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let (peer, number, is_receiving) =
            (operation.peer, operation.peer_operation, operation.role == Role::Absorb);
        let failure = Failure::KeyRefused { address: std::sync::Arc::clone(&self.peers[peer].name) };
        operation.refused = Some(failure);
        if is_receiving {
            self.ring(peer, Doorbell::Refused(number));
        } else {
            self.end_refused(id);
        }
    }

    /// Ends a refused operation whose parts were sent by this side, once none of them is in flight.
    pub(super) fn end_refused(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id).filter(|operation| operation.in_flight == 0) else {
            return;
        };
        let Some(failure) = operation.refused.clone() else { return };
        let (peer, number) = (operation.peer, operation.peer_operation);
        match operation.role {
            Role::Serve => self.ring(peer, Doorbell::Refused(number)),
            Role::Send | Role::Write if operation.grant.count > 0 => {
                let header = Header { peer_operation: number, ..Header::new(Kind::Stopped) };
                self.submit(peer, QueuedRecord { header, payload: Payload::None, operation: None });
            }
            _ => {}
        }
        self.finish(id, Err(failure));
    }

    /// Processes the end of the parts of an operation that this side has refused.
    pub(super) fn stopped(&mut self, id: PeerId, header: &Header) {
        if let Some(number) = self.operations.named(header.peer_operation, id)
            && let Some(operation) = self.operations.get(number)
            && operation.role == Role::Absorb
            && let Some(failure) = operation.refused.clone()
        {
            self.finish(number, Err(failure));
        }
    }

    /// Handles a grant of the peer's landing slots for an operation.
    pub(super) fn handle_grant(&mut self, id: PeerId, header: &Header) {
        let Some(number) = self.operations.named(header.peer_operation, id) else { return };
        let Some(operation) = self.operations.get_mut(number) else { return };
        let is_waiting = matches!(operation.role, Role::Send | Role::Write) && !operation.is_granted;
        if !is_waiting {
            return;
        }
        if header.length > operation.length || header.length > 0 && header.grant.count == 0 {
            // The operation would never end.
            self.fail_peer(id);
            return;
        }
        operation.peer_operation = header.operation;
        self.begin_sending(number, header.length, header.grant);
    }

    /// Starts to send `length` bytes to the granted slots.
    pub(super) fn begin_sending(&mut self, id: OperationId, length: u64, grant: Grant) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.is_granted = true;
        operation.length = length;
        operation.grant = grant;
        operation.writable = [true; crate::wire::MAX_GRANT];
        let slots = grant.as_slice().iter().map(|slot| (*slot, id));
        self.peers[operation.peer].granted_slots.extend(slots);
        if length > 0 {
            self.register_memory(id);
            self.sending_parts.push_back(id);
            self.pump();
        } else {
            self.end_sending(id);
        }
    }

    /// Handles the doorbell of a peer that has copied the part in a landing slot.
    pub(super) fn slot_writable(&mut self, id: PeerId, slot: u16) {
        let peer = &self.peers[id];
        let user = peer.granted_slots.iter().find(|(granted, _)| *granted == slot).map(|(_, user)| *user);
        let Some(operation) = user.and_then(|user| self.operations.get_mut(user)) else { return };
        let index = operation.grant.as_slice().iter().position(|granted| *granted == slot);
        if let Some(writable) = index.and_then(|index| operation.writable.get_mut(index)) {
            *writable = true;
        }
    }

    /// Processes a part that was copied to memory of the messenger.
    pub(super) fn part_copied(&mut self, slot: u16, id: OperationId, part: u64, bytes: SharedSlice<'_>) {
        let Some(operation) = self.operations.get(id) else { return };
        if operation.refused.is_some() {
            return;
        }
        let (peer, local) = (operation.peer, operation.local);
        if !self.scatter_local(peer, &local, part * CHUNK, bytes) {
            self.refuse(id);
            return;
        }
        self.part_arrived(slot, id, part);
    }

    /// Processes a part that is in the operation's memory.
    pub(super) fn part_arrived(&mut self, slot: u16, id: OperationId, part: u64) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let peer = operation.peer;
        let count = u64::from(operation.grant.count).max(1);
        operation.arrived += CHUNK.min(operation.length.saturating_sub(part * CHUNK));
        let is_complete = operation.arrived >= operation.length;
        let has_next = (part + count) * CHUNK < operation.length;
        self.peers[peer].landing.expect(slot, id, part + count);
        if has_next {
            self.ring(peer, Doorbell::Chunk(slot));
        }
        if is_complete {
            self.finish(id, Ok(()));
        }
    }

    /// Copies a part to the memory of an operation with `peer`. Returns `false` if its region is gone.
    pub(super) fn scatter_local(
        &self,
        peer: PeerId,
        local: &Local,
        offset: u64,
        bytes: SharedSlice<'_>,
    ) -> bool {
        let PortOptions { memory, regions, .. } = &self.port_of(peer).options;
        let length = bytes.len() as u64;
        match local {
            Local::Host(ranges) => {
                ranges.parts(offset, length, |address, position, part| {
                    let (start, part) = (usize::try_from(position), usize::try_from(part));
                    if let (Ok(start), Ok(part)) = (start, part)
                        && let Ok(source) = bytes.slice(start, part)
                    {
                        memory.write(address, source);
                    }
                });
                true
            }
            Local::Kept => false,
            Local::Region { key, address } => {
                let access = RemoteAccess { read: false, write: true };
                let address = address.wrapping_add(offset);
                regions.with(*key, address, length, access, |host| memory.write(host, bytes)).is_some()
            }
        }
    }
}
