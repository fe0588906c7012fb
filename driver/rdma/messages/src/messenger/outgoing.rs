//! Outgoing data: records, parts of large data, doorbells and hellos.

use super::CardMessenger;
use crate::address::PeerId;
use crate::card::MIN_TRANSFERS;
use crate::layout::{CHUNK, Doorbell, MAX_OPERATIONS, RING, UNIT};
use crate::operation::{Local, OperationId, Role};
use crate::peer::{Payload, QueuedRecord, Session, eager_units};
use crate::port::PortOptions;
use crate::region::RemoteAccess;
use crate::request::{CompleteWhen, HostMemory, HostRanges};
use crate::staging::StagingSlot;
use crate::wire::{HEADER, Kind};
use fpga_driver::{SharedMemory, SharedSlice};
use fpga_rdma::{HostSource, RemoteRegion, SendCompletion, SendOptions, SendTicket};

/// Maximum number of the endpoint's transfers in flight for records, parts and hellos. The rest is reserved for doorbells.
const MAX_IN_FLIGHT: usize = MIN_TRANSFERS as usize - 256;

/// Maximum numbers of doorbells and records that wait for one peer. Each operation of the peer has at most one of them: a peer with more violates
/// the limit of operations.
const MAX_DOORBELLS: usize = 2 * MAX_OPERATIONS as usize;
const MAX_RECORDS: usize = MAX_OPERATIONS as usize + super::MAX_QUEUED;

/// Maximum number of buffers that are kept for reuse.
const MAX_SPARE: usize = 64;

/// Purpose of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Record, or part of large data.
    Data(Option<OperationId>),
    Doorbell,
    Hello,
}

/// Transfer in progress.
#[derive(Debug)]
pub(super) struct InFlight {
    slot: Option<StagingSlot>,
    peer: PeerId,
    session: u32,
    purpose: Purpose,
}

impl InFlight {
    pub(super) const fn peer(&self) -> PeerId {
        self.peer
    }
}

/// Copies bytes of the application's memory to consecutive bytes of `to`, from `at` on.
fn gather(memory: &dyn HostMemory, from: &HostRanges, skip: u64, length: u64, to: &SharedMemory, at: u64) {
    from.parts(skip, length, |address, position, part| {
        let slice = slice(to, at + position, part);
        debug_assert!(slice.is_some(), "{part} bytes at {at} + {position} are outside of the staging memory");
        if let Some(slice) = slice {
            memory.read(address, slice);
        }
    });
}

/// Returns a buffer of `length` zeros, from `spare` if it has one.
fn buffer(spare: &mut Vec<Vec<u8>>, length: u64) -> Vec<u8> {
    let mut bytes = spare.pop().unwrap_or_default();
    bytes.clear();
    bytes.resize(usize::try_from(length).unwrap_or(0), 0);
    bytes
}

/// Returns a copy of the application's memory, in a buffer of `spare` if it has one.
fn copy(memory: &dyn HostMemory, ranges: &HostRanges, spare: &mut Vec<Vec<u8>>) -> Vec<u8> {
    let mut bytes = buffer(spare, ranges.length());
    ranges.parts(0, ranges.length(), |address, position, part| {
        let (start, end) =
            (usize::try_from(position).unwrap_or(0), usize::try_from(position + part).unwrap_or(0));
        if let Some(place) = bytes.get_mut(start..end) {
            memory.read(address, SharedSlice::from_mut(place));
        }
    });
    bytes
}

/// Returns a part of shared memory.
pub(super) fn slice(memory: &SharedMemory, at: u64, length: u64) -> Option<SharedSlice<'_>> {
    memory.view().slice(usize::try_from(at).ok()?, usize::try_from(length).ok()?).ok()
}

impl CardMessenger {
    /// Sends a record, or queues it if the peer's ring or a resource of this side is full.
    pub(super) fn submit(&mut self, id: PeerId, record: QueuedRecord) {
        let mut record = record;
        if let Some(operation) = record.operation.and_then(|operation| self.operations.get_mut(operation)) {
            operation.in_flight += 1;
        }
        let is_first = self.peers[id].queue.is_empty();
        if is_first && self.try_post(id, &mut record) {
            return;
        }
        // Injected data may change from now on.
        let is_injected = record.operation.is_none_or(|operation| {
            self.operations
                .get(operation)
                .is_none_or(|operation| operation.complete == CompleteWhen::Injected)
        });
        if is_injected && let Payload::Host(ranges) = &record.payload {
            let ranges = *ranges;
            let memory = &*self.ports[self.peers[id].port].options.memory;
            let bytes = copy(memory, &ranges, &mut self.spare);
            record.payload = Payload::Bytes(bytes);
        }
        self.connect(id);
        let peer = &mut self.peers[id];
        peer.queue.push_back(record);
        if peer.queue.len() > MAX_RECORDS {
            self.fail_peer(id);
            return;
        }
        self.list(id);
    }

    /// Returns a buffer of `length` zeros. Reuses a kept one if there is one.
    pub(super) fn buffer(&mut self, length: u64) -> Vec<u8> {
        buffer(&mut self.spare, length)
    }

    /// Keeps the buffer of a payload for reuse.
    pub(super) fn recycle(&mut self, payload: &mut Payload) {
        if let Payload::Bytes(bytes) = payload {
            self.recycle_bytes(std::mem::take(bytes));
        }
    }

    /// Keeps a buffer for reuse.
    pub(super) fn recycle_bytes(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > 0 && self.spare.len() < MAX_SPARE {
            self.spare.push(bytes);
        }
    }

    /// Adds a peer to the list of peers to flush.
    pub(super) fn list(&mut self, id: PeerId) {
        if !std::mem::replace(&mut self.peers[id].is_listed, true) {
            self.peers_to_flush.push_back(id);
        }
    }

    fn has_room(&self) -> bool {
        self.in_flight.len() < MAX_IN_FLIGHT
    }

    /// Starts a record. Returns `false` if it must wait.
    fn try_post(&mut self, id: PeerId, record: &mut QueuedRecord) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(remote) = self.peers[id].open_remote() else { return false };
        let mut payload = record.payload.length();
        let is_message = record.header.kind == Kind::Message;
        let mut units = if is_message { eager_units(payload) } else { 0 };
        if units > 0 && !self.peers[id].has_eager(units) {
            self.announce(record);
            (payload, units) = (0, 0);
        }
        let length = HEADER as u64 + payload;
        let Some(slot) = self.staging.take(length) else { return false };
        let peer = &mut self.peers[id];
        let Some(offset) = peer.reserve(length) else {
            self.staging.release(slot);
            return false;
        };
        peer.use_eager(units);
        record.header.credit = peer.take_credit();
        self.stage(slot.offset, &record.header.encode());
        let body = slot.offset + HEADER as u64;
        match &record.payload {
            Payload::None => {}
            Payload::Host(ranges) => {
                gather(&*self.port_of(id).options.memory, ranges, 0, payload, &self.side.staging, body);
            }
            Payload::Bytes(bytes) => self.stage(body, bytes),
        }
        self.recycle(&mut record.payload);
        self.send_slot(slot, id, (remote.region, offset, length), Purpose::Data(record.operation));
        true
    }

    /// Makes a message that the peer may not be able to keep a large one: its data follows when it has matched a receive.
    fn announce(&mut self, record: &mut QueuedRecord) {
        record.header.kind = Kind::LargeMessage;
        let payload = std::mem::replace(&mut record.payload, Payload::None);
        let Some(operation) = record.operation.and_then(|operation| self.operations.get_mut(operation))
        else {
            return;
        };
        (operation.sent, operation.is_granted) = (0, false);
        match payload {
            Payload::Bytes(bytes) => (operation.local, operation.kept) = (Local::Kept, bytes),
            Payload::Host(ranges) if operation.complete == CompleteWhen::Injected => {
                let memory = &*self.ports[self.peers[operation.peer].port].options.memory;
                (operation.local, operation.kept) = (Local::Kept, copy(memory, &ranges, &mut self.spare));
            }
            Payload::Host(_) | Payload::None => {}
        }
    }

    /// Writes `bytes` to a staging slot, which is long enough for them.
    fn stage(&self, at: u64, bytes: &[u8]) {
        let memory = slice(&self.side.staging, at, bytes.len() as u64);
        let is_written = memory.is_some_and(|memory| memory.write(0, bytes).is_ok());
        debug_assert!(is_written, "{} bytes at {at} are outside of the staging memory", bytes.len());
    }

    /// Sends a filled slot.
    fn send_slot(
        &mut self,
        slot: StagingSlot,
        peer: PeerId,
        target: (RemoteRegion, u64, u64),
        purpose: Purpose,
    ) {
        let session = self.peers[peer].ended;
        let from = (self.side.staging_source, slot.offset);
        self.transfer(from, target, InFlight { slot: Some(slot), peer, session, purpose });
    }

    /// Starts a transfer of host memory to an offset of the peer's memory.
    fn transfer(
        &mut self,
        (source, at): (HostSource, u64),
        (target, offset, length): (RemoteRegion, u64, u64),
        in_flight: InFlight,
    ) {
        let options = self.send_options(in_flight.peer);
        let sent = self.side.endpoint.send_from_host(source, at, &target, (offset, length), options);
        self.transferred(sent.ok(), in_flight);
    }

    /// Withdraws the transfers of an operation's parts that read the application's memory.
    pub(super) fn cancel_parts(&mut self, id: OperationId) {
        let is_part =
            |in_flight: &InFlight| in_flight.slot.is_none() && in_flight.purpose == Purpose::Data(Some(id));
        for (ticket, _) in self.in_flight.iter().filter(|(_, in_flight)| is_part(in_flight)) {
            self.side.endpoint.cancel(ticket);
        }
    }

    /// Starts the copies to host memory that were submitted.
    pub(super) fn kick(&mut self) -> Result<(), String> {
        if !self.inbound.is_idle() {
            self.side.c2h.poll().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn send_options(&self, peer: PeerId) -> SendOptions {
        let mut options = SendOptions::default();
        options.segment_size = self.peers[peer].segment_size;
        options
    }

    /// Notes a transfer that was started. One that was refused, without a ticket, ends the session.
    fn transferred(&mut self, ticket: Option<SendTicket>, in_flight: InFlight) {
        let peer = in_flight.peer;
        match ticket {
            Some(ticket) => {
                self.note_sent(peer);
                self.in_flight.insert(ticket, in_flight);
            }
            None => {
                if let Some(slot) = in_flight.slot {
                    self.staging.release(slot);
                }
                self.fail_peer(peer);
            }
        }
    }

    fn note_sent(&mut self, id: PeerId) {
        let now = self.now;
        let peer = &mut self.peers[id];
        peer.in_flight += 1;
        peer.last_sent = now;
    }

    /// Sends the first message of a session.
    pub(super) fn send_hello(
        &mut self,
        id: PeerId,
        bytes: &[u8; HEADER],
        target: RemoteRegion,
        offset: u64,
    ) -> bool {
        if !self.has_room() {
            return false;
        }
        let Some(slot) = self.staging.take(HEADER as u64) else { return false };
        self.stage(slot.offset, bytes);
        self.send_slot(slot, id, (target, offset, HEADER as u64), Purpose::Hello);
        true
    }

    /// Rings a doorbell of a peer.
    pub(super) fn ring(&mut self, id: PeerId, doorbell: Doorbell) {
        // What it concerns has ended with the session.
        if self.peers[id].session != Session::Open {
            return;
        }
        let is_first = self.peers[id].doorbells.is_empty();
        if is_first && self.try_ring(id, doorbell) {
            return;
        }
        // Their number is limited by the operations and the ring of the peer.
        let peer = &mut self.peers[id];
        peer.doorbells.push_back(doorbell);
        if peer.doorbells.len() > MAX_DOORBELLS {
            self.fail_peer(id);
            return;
        }
        self.list(id);
    }

    fn try_ring(&mut self, id: PeerId, doorbell: Doorbell) -> bool {
        let Some(remote) = self.peers[id].open_remote() else { return false };
        // The address is the content: the byte is any one.
        let source = self.side.layout.doorbell_source();
        let sent =
            self.side.endpoint.send(source, &remote.region, doorbell.offset(), 1, SendOptions::default());
        let Ok(ticket) = sent else { return false };
        self.note_sent(id);
        let session = self.peers[id].ended;
        self.in_flight.insert(ticket, InFlight { slot: None, peer: id, session, purpose: Purpose::Doorbell });
        true
    }

    /// Sends the waiting doorbells and records of all peers, as far as there is space.
    pub(super) fn flush(&mut self) {
        for _ in 0..self.peers_to_flush.len() {
            let Some(id) = self.peers_to_flush.pop_front() else { return };
            self.peers[id].is_listed = false;
            if !self.flush_peer(id) {
                self.list(id);
            }
        }
    }

    /// Sends the waiting doorbells and records of a peer. Returns whether none remain.
    fn flush_peer(&mut self, id: PeerId) -> bool {
        loop {
            let peer = &mut self.peers[id];
            if let Some(doorbell) = peer.doorbells.pop_front() {
                if !self.try_ring(id, doorbell) {
                    self.peers[id].doorbells.push_front(doorbell);
                    return false;
                }
                continue;
            }
            let Some(mut record) = peer.queue.pop_front() else { return true };
            if !self.try_post(id, &mut record) {
                self.peers[id].queue.push_front(record);
                return false;
            }
        }
    }

    /// Returns credits that no record carries.
    pub(super) fn return_credit(&mut self, id: PeerId) {
        let peer = &mut self.peers[id];
        if u64::from(peer.freed) >= RING / UNIT / 4 {
            let units = peer.take_credit();
            self.ring(id, Doorbell::Credit(units.into()));
        }
    }

    /// Processes the end of a transfer.
    pub(super) fn sent(&mut self, done: SendCompletion) {
        let Some(ended) = self.in_flight.remove(done.ticket) else { return };
        if let Some(slot) = ended.slot {
            self.staging.release(slot);
        }
        let peer = &mut self.peers[ended.peer];
        peer.in_flight = peer.in_flight.saturating_sub(1);
        match (ended.purpose, done.result) {
            (Purpose::Hello, Ok(())) | (Purpose::Doorbell, Ok(())) | (Purpose::Data(None), Ok(())) => {}
            // The peer may not have opened its hello slots yet; the session gives up.
            (Purpose::Hello, Err(_)) => {}
            (Purpose::Data(Some(id)), Ok(())) => self.data_arrived(id),
            // To a process that has ended since: its successor has a session of its own.
            (_, Err(_)) if ended.session != self.peers[ended.peer].ended => {}
            (_, Err(_)) => self.fail_peer(ended.peer),
        }
    }

    /// Processes the arrival of a record or a part of an operation in the peer's card.
    fn data_arrived(&mut self, id: OperationId) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.in_flight = operation.in_flight.saturating_sub(1);
        }
        self.end_sending(id);
    }

    /// Ends an operation of this side if it is complete.
    pub(super) fn end_sending(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get(id) else { return };
        if operation.refused.is_some() {
            self.end_refused(id);
            return;
        }
        let is_sent = operation.in_flight == 0 && operation.sent == operation.length && operation.is_granted;
        let is_over = match operation.role {
            Role::Send if operation.complete.waits_for_peer() => is_sent && operation.is_done,
            Role::Send | Role::Serve => is_sent,
            Role::Write => is_sent && operation.is_done,
            Role::Read | Role::Atomic | Role::Receive | Role::Absorb => false,
        };
        if is_over {
            self.finish(id, Ok(()));
        }
    }

    /// Sends parts of large data to free landing slots. Returns the number of parts.
    pub(super) fn pump(&mut self) -> usize {
        let mut count = 0;
        for _ in 0..self.sending_parts.len() {
            let Some(id) = self.sending_parts.pop_front() else { break };
            while self.send_part(id) {
                count += 1;
            }
            let is_incomplete = self
                .operations
                .get(id)
                .is_some_and(|operation| operation.sent < operation.length && operation.refused.is_none());
            if is_incomplete {
                self.sending_parts.push_back(id);
            }
        }
        count
    }

    /// Starts the next part. Returns `false` if there is none, or if it must wait.
    fn send_part(&mut self, id: OperationId) -> bool {
        if !self.has_room() {
            return false;
        }
        let operation = self.operations.get(id).filter(|operation| operation.refused.is_none());
        let Some(operation) = operation else { return false };
        let (peer, offset) = (operation.peer, operation.sent);
        let length = CHUNK.min(operation.length - offset);
        let count = u64::from(operation.grant.count);
        if length == 0 || count == 0 {
            return false;
        }
        let index = usize::try_from(offset / CHUNK % count).unwrap_or(0);
        if !operation.writable.get(index).copied().unwrap_or(false) {
            return false;
        }
        let (local, registered) = (operation.local, operation.registered);
        let Some(landing) = operation.grant.as_slice().get(index).copied() else { return false };
        let Some(remote) = self.peers[peer].open_remote() else { return false };
        let from = registered.and_then(|memory| memory.source_at(offset));
        let slot = if from.is_none() { self.staging.take(length) } else { None };
        if let Some(slot) = slot {
            if !self.gather_local((id, peer), &local, offset, length, slot) {
                self.staging.release(slot);
                self.refuse(id);
                return false;
            }
        } else if from.is_none() {
            return false;
        }
        if let Some(operation) = self.operations.get_mut(id) {
            operation.sent += length;
            operation.in_flight += 1;
            if let Some(writable) = operation.writable.get_mut(index) {
                *writable = false;
            }
        }
        // The peer states both: a target outside of its region fails the session.
        let target = remote.landing.saturating_add(u64::from(landing) * CHUNK);
        let target = (remote.region, target, length);
        let purpose = Purpose::Data(Some(id));
        match (from, slot) {
            (Some(from), _) => {
                let session = self.peers[peer].ended;
                self.transfer(from, target, InFlight { slot: None, peer, session, purpose });
            }
            (None, Some(slot)) => self.send_slot(slot, peer, target, purpose),
            (None, None) => {}
        }
        true
    }

    /// Copies a part of the operation's data to a staging slot. Returns `false` if its region is gone.
    fn gather_local(
        &self,
        (id, peer): (OperationId, PeerId),
        local: &Local,
        offset: u64,
        length: u64,
        slot: StagingSlot,
    ) -> bool {
        let PortOptions { memory, regions, .. } = &self.port_of(peer).options;
        match local {
            Local::Host(ranges) => {
                gather(&**memory, ranges, offset, length, &self.side.staging, slot.offset);
                true
            }
            Local::Kept => {
                let kept = self.operations.get(id).map(|operation| operation.kept.as_slice());
                // No more than the part: a receive with a shorter buffer takes less than was kept.
                let bounds = usize::try_from(offset).ok().zip(usize::try_from(offset + length).ok());
                let part = bounds.and_then(|(start, end)| kept?.get(start..end));
                self.stage(slot.offset, part.unwrap_or_default());
                true
            }
            Local::Region { key, address } => {
                let access = RemoteAccess { read: true, write: false };
                let copied = regions.with(*key, address.wrapping_add(offset), length, access, |host| {
                    if let Some(place) = slice(&self.side.staging, slot.offset, length) {
                        memory.read(host, place);
                    }
                });
                copied.is_some()
            }
        }
    }
}
