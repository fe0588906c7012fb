//! A peer: its session, its ring here, and the ring of this side there.

use crate::address::{Address, PeerId};
use crate::layout::{
    Doorbell, EAGER_UNIT, LANDING_SLOTS, MAX_EAGER_UNITS, MAX_RECORD, PortNumber, RING, UNIT,
};
use crate::operation::OperationId;
use crate::request::HostRanges;
use crate::wire::Header;
use fpga_driver::{CardAddr, Incarnation, NodeId};
use fpga_rdma::{Notification, RegionHandle, RemoteRegion};
use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

/// State of the session with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Session {
    /// Nothing was sent.
    New,
    /// A hello is sent at `next`, and repeated until an answer arrives; the first was sent at `since`.
    Connecting { since: Duration, next: Duration, tries: u32 },
    /// Both sides know each other's rings.
    Open,
    /// The peer has not answered, or has closed the session, at `since`.
    Failed { since: Duration, is_closed: bool },
}

/// Data of a record.
#[derive(Debug)]
pub(crate) enum Payload {
    None,
    Host(HostRanges),
    Bytes(Vec<u8>),
}

impl Payload {
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::None => 0,
            Self::Host(ranges) => ranges.length(),
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }
}

/// Record that waits to be sent.
#[derive(Debug)]
pub(crate) struct QueuedRecord {
    pub(crate) header: Header,
    pub(crate) payload: Payload,
    /// Operation that counts it as in flight.
    pub(crate) operation: Option<OperationId>,
}

/// Area of the peer that this side may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) region: RemoteRegion,
    /// Offsets in the area.
    pub(crate) ring: u64,
    pub(crate) landing: u64,
    pub(crate) ring_length: u64,
    /// Credit for messages that match no receive, in units of [`EAGER_UNIT`].
    pub(crate) eager: u32,
}

/// Landing slots of a peer, in its area here.
#[derive(Debug)]
pub(crate) struct Landing {
    /// Users of the slots: the operation, and the number of the next part.
    users: [Option<(OperationId, u64)>; LANDING_SLOTS as usize],
    /// Operations that wait for slots.
    pub(crate) waiting: VecDeque<OperationId>,
}

impl Landing {
    const fn new() -> Self {
        Self { users: [None; LANDING_SLOTS as usize], waiting: VecDeque::new() }
    }

    /// Takes a free slot for part `part` of an operation; `None` if there is none.
    pub(crate) fn take(&mut self, operation: OperationId, part: u64) -> Option<u16> {
        let index = self.users.iter().position(Option::is_none)?;
        *self.users.get_mut(index)? = Some((operation, part));
        u16::try_from(index).ok()
    }

    /// Returns the user of a slot.
    pub(crate) fn user(&self, slot: u16) -> Option<(OperationId, u64)> {
        self.users.get(usize::from(slot)).copied().flatten()
    }

    /// Notes the number of the next part in a slot of `operation`.
    pub(crate) fn expect(&mut self, slot: u16, operation: OperationId, part: u64) {
        if let Some(Some((user, next))) = self.users.get_mut(usize::from(slot))
            && *user == operation
        {
            *next = part;
        }
    }

    /// Frees the slots of an operation.
    pub(crate) fn release(&mut self, operation: OperationId) {
        for user in &mut self.users {
            if user.is_some_and(|(user, _)| user == operation) {
                *user = None;
            }
        }
    }
}

/// Returns the credit that a message of `length` bytes uses, in units of [`EAGER_UNIT`]: its data, and one unit for its header and the memory
/// that keeps it.
pub(crate) fn eager_units(length: u64) -> u32 {
    u32::try_from(length.div_ceil(EAGER_UNIT) + 1).unwrap_or(u32::MAX)
}

/// All peers of a messenger, by their numbers.
#[derive(Debug)]
pub(crate) struct Peers {
    list: Vec<Peer>,
    /// Stands for a number that no peer has, which would be a defect of this package. It has no session, so that nothing is sent.
    unknown: Peer,
}

impl Default for Peers {
    fn default() -> Self {
        let name = PeerName { port: PortNumber(0), node: NodeId::ANY, slots: CardAddr::new(0) };
        Self { list: Vec::new(), unknown: Peer::new(name) }
    }
}

impl Peers {
    /// Returns a peer by a number of the application.
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.list.get(id.0 as usize)
    }

    /// Adds a peer.
    pub(crate) fn add(&mut self, name: PeerName) -> PeerId {
        let id = PeerId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(Peer::new(name));
        id
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the numbers of all peers.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> + use<> {
        (0..u32::try_from(self.list.len()).unwrap_or(u32::MAX)).map(PeerId)
    }
}

impl Index<PeerId> for Peers {
    type Output = Peer;

    fn index(&self, id: PeerId) -> &Peer {
        let peer = self.list.get(id.0 as usize);
        debug_assert!(peer.is_some(), "no peer has the number {id:?}");
        peer.unwrap_or(&self.unknown)
    }
}

impl IndexMut<PeerId> for Peers {
    fn index_mut(&mut self, id: PeerId) -> &mut Peer {
        let peer = self.list.get_mut(id.0 as usize);
        debug_assert!(peer.is_some(), "no peer has the number {id:?}");
        peer.unwrap_or(&mut self.unknown)
    }
}

/// Both ends of a session: a port of this card, and one of a peer's card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PeerName {
    pub(crate) port: PortNumber,
    pub(crate) node: NodeId,
    /// Address of the hello slots of the peer's port.
    pub(crate) slots: CardAddr,
}

/// A peer of one port.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) port: PortNumber,
    pub(crate) node: NodeId,
    /// Address of the peer's hello slots.
    pub(crate) slots: CardAddr,
    /// `None` until the application has added it.
    pub(crate) address: Option<Address>,
    pub(crate) name: Arc<str>,
    pub(crate) session: Session,
    /// Number of sessions that have ended: operations of an earlier session do not affect the current one.
    pub(crate) ended: u32,
    pub(crate) incarnation: Option<Incarnation>,
    pub(crate) remote: Option<Remote>,
    /// Incarnation of the peer with which a session has failed.
    pub(crate) failed_incarnation: Option<Incarnation>,
    /// Position of the next record in the peer's ring, and the bytes of the ring in use.
    write_at: u64,
    in_use: u64,
    pub(crate) queue: VecDeque<QueuedRecord>,
    pub(crate) doorbells: VecDeque<Doorbell>,
    /// Number of the peer's area here.
    pub(crate) area: Option<u32>,
    /// The memory window of this session, through which the peer writes the area.
    pub(crate) window: Option<RegionHandle>,
    pub(crate) landing: Landing,
    /// Credit for messages to the peer that match no receive, in units of [`EAGER_UNIT`].
    eager_left: u32,
    /// The same for messages of the peer: in use, and free again without the peer's knowledge.
    eager_used: u32,
    eager_freed: u32,
    /// Number of the peer's large messages that match no receive.
    pub(crate) announced: u32,
    /// Position of the next record in it, and records that have arrived before it.
    read_at: u64,
    early: Vec<(u64, u32)>,
    /// Bytes of the ring that the peer may not write again yet, as far as its records have arrived in order.
    taken: u64,
    /// Arrivals from a process whose hello has not arrived.
    pub(crate) held: Vec<Notification>,
    /// Units of the ring that the peer was not told of.
    pub(crate) freed: u32,
    /// Landing slots that the peer has granted, and the operations that use them.
    pub(crate) granted_slots: Vec<(u16, OperationId)>,
    /// Transfers in flight, and the time of the last one.
    pub(crate) in_flight: u32,
    pub(crate) last_sent: Duration,
    pub(crate) last_arrival: Duration,
    /// Whether a process of this machine was found to receive for its card, and whether the last check found none.
    pub(crate) was_present: bool,
    pub(crate) is_missing: bool,
    /// Whether it is in the list of peers with records or doorbells to send.
    pub(crate) is_listed: bool,
    /// Maximum segment size of transfers to it in bytes, if its link carries shorter packets better.
    pub(crate) segment_size: Option<u32>,
}

/// Maximum number of records in a ring.
const MAX_EARLY: usize = (RING / UNIT) as usize;

/// Returns the position after a record of `length` bytes at `at`, and the bytes that it uses. Both sides skip the end of the ring if no
/// record of maximum length fits there.
pub(crate) fn advance(at: u64, length: u64, ring: u64) -> (u64, u64) {
    let length = length.next_multiple_of(UNIT);
    let next = at + length;
    if ring.saturating_sub(next) < MAX_RECORD { (0, ring.saturating_sub(at)) } else { (next, length) }
}

impl Peer {
    pub(crate) fn new(name: PeerName) -> Self {
        let PeerName { port, node, slots } = name;
        Self {
            port,
            node,
            slots,
            address: None,
            name: format!("node {node}").into(),
            session: Session::New,
            ended: 0,
            incarnation: None,
            remote: None,
            failed_incarnation: None,
            write_at: 0,
            in_use: 0,
            queue: VecDeque::new(),
            doorbells: VecDeque::new(),
            area: None,
            window: None,
            landing: Landing::new(),
            eager_left: 0,
            eager_used: 0,
            eager_freed: 0,
            announced: 0,
            read_at: 0,
            early: Vec::new(),
            taken: 0,
            held: Vec::new(),
            freed: 0,
            granted_slots: Vec::new(),
            in_flight: 0,
            last_sent: Duration::ZERO,
            last_arrival: Duration::ZERO,
            was_present: false,
            is_missing: false,
            is_listed: false,
            segment_size: None,
        }
    }

    /// Returns the peer's area while the session is open.
    pub(crate) fn open_remote(&self) -> Option<Remote> {
        self.remote.filter(|_| self.session == Session::Open)
    }

    /// Drops all state of the session but the area, and returns the window to close.
    pub(crate) fn reset(&mut self) -> Option<RegionHandle> {
        (self.eager_left, self.eager_used, self.eager_freed, self.announced) = (0, 0, 0, 0);
        (self.write_at, self.in_use, self.read_at, self.freed, self.taken) = (0, 0, 0, 0, 0);
        self.ended = self.ended.wrapping_add(1);
        self.remote = None;
        self.incarnation = None;
        self.queue.clear();
        self.doorbells.clear();
        self.early.clear();
        self.granted_slots.clear();
        self.landing.waiting.clear();
        self.window.take()
    }

    /// Notes the area that the peer has granted.
    pub(crate) fn granted(&mut self, remote: Remote) {
        self.remote = Some(remote);
        self.eager_left = remote.eager;
    }

    /// Whether there is credit for a message that may match no receive.
    pub(crate) const fn has_eager(&self, units: u32) -> bool {
        units <= self.eager_left
    }

    /// Uses such credit.
    pub(crate) fn use_eager(&mut self, units: u32) {
        self.eager_left = self.eager_left.saturating_sub(units);
    }

    /// Processes the return of such credit. Returns `false` if it is more than is in use.
    pub(crate) fn return_eager(&mut self, units: u32) -> bool {
        let left = self.eager_left.saturating_add(units);
        self.eager_left = left;
        self.remote.is_some_and(|remote| left <= remote.eager)
    }

    /// Notes a message of the peer. Returns `false` if it exceeds `limit`, which the peer knows.
    pub(crate) fn note_eager(&mut self, units: u32, limit: u32) -> bool {
        self.eager_used = self.eager_used.saturating_add(units);
        self.eager_used <= limit
    }

    /// Notes that a message of the peer has matched a receive. Returns the units to return to the peer, at least a quarter of `limit`.
    pub(crate) fn free_eager(&mut self, units: u32, limit: u32) -> Option<u32> {
        self.eager_freed = self.eager_freed.saturating_add(units);
        if self.eager_freed < (limit / 4).clamp(1, MAX_EAGER_UNITS) {
            return None;
        }
        let returned = self.eager_freed.min(MAX_EAGER_UNITS);
        self.eager_freed -= returned;
        self.eager_used = self.eager_used.saturating_sub(returned);
        Some(returned)
    }

    /// Reserves the peer's ring for a record of `length` bytes. Returns its offset in the area; `None` if the ring is full.
    pub(crate) fn reserve(&mut self, length: u64) -> Option<u64> {
        let remote = self.remote?;
        let (next, used) = advance(self.write_at, length, remote.ring_length);
        if self.in_use + used > remote.ring_length {
            return None;
        }
        let offset = remote.ring + self.write_at;
        self.write_at = next;
        self.in_use += used;
        Some(offset)
    }

    /// Processes a credit of the peer. Returns `false` if it is more than is in use.
    pub(crate) fn credit(&mut self, units: u32) -> bool {
        match self.in_use.checked_sub(u64::from(units) * UNIT) {
            Some(rest) => {
                self.in_use = rest;
                true
            }
            None => false,
        }
    }

    /// Notes a record at `offset` of the peer's ring here. Returns `false` if there are more records than a ring has space for.
    pub(crate) fn note_arrival(&mut self, offset: u64, length: u32) -> bool {
        self.early.push((offset, length));
        self.early.len() <= MAX_EARLY
    }

    /// Whether the peer has written space of its ring that was not returned to it.
    pub(crate) const fn has_overrun(&self) -> bool {
        self.taken > RING
    }

    /// Returns the next record in order, if it has arrived: its offset and length.
    pub(crate) fn next_arrival(&mut self) -> Option<(u64, u32)> {
        let at = self.early.iter().position(|(offset, _)| *offset == self.read_at)?;
        let (offset, length) = self.early.swap_remove(at);
        let (next, used) = advance(offset, length.into(), RING);
        self.read_at = next;
        self.taken += used;
        Some((offset, length))
    }

    /// Notes that the record at `offset` was copied and its space is free.
    pub(crate) fn note_freed(&mut self, offset: u64, length: u32) {
        let (_, used) = advance(offset, length.into(), RING);
        self.freed += u32::try_from(used / UNIT).unwrap_or(0);
    }

    /// Takes the units that the peer can be told of.
    pub(crate) fn take_credit(&mut self) -> u16 {
        let units = u16::try_from(self.freed).unwrap_or(u16::MAX);
        self.freed -= u32::from(units);
        self.taken = self.taken.saturating_sub(u64::from(units) * UNIT);
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(node: u32) -> Peer {
        Peer::new(PeerName { port: PortNumber(0), node: NodeId::new(node), slots: CardAddr::new(0) })
    }

    /// Area whose ring begins at `ring`.
    fn remote(ring: u64) -> Remote {
        let start = fpga_driver::CardAddr::new(0);
        let region = RemoteRegion { node: NodeId::new(2), address: start, length: 1 << 20, key: 1 };
        Remote { region, ring, landing: 0, ring_length: RING, eager: 100 }
    }

    /// All credit comes back, in amounts that a doorbell can state, and more than is in use is noticed.
    #[test]
    fn peer_credit_for_messages_without_receive_returns() {
        for limit in [0, 1, 2, 100, 4096, 1 << 20] {
            let (mut sender, mut receiver) = (peer(1), peer(2));
            sender.granted(Remote { eager: limit, ..remote(0) });
            for length in (0..20_000).step_by(77) {
                let units = eager_units(length);
                let mut sent = Vec::new();
                while sender.has_eager(units) {
                    sender.use_eager(units);
                    assert!(receiver.note_eager(units, limit));
                    sent.push(units);
                }
                assert!(sent.len() as u64 * u64::from(units) <= u64::from(limit));
                for units in sent {
                    if let Some(returned) = receiver.free_eager(units, limit) {
                        assert!(returned <= MAX_EAGER_UNITS && sender.return_eager(returned));
                    }
                }
                assert!(sender.eager_left >= limit - limit / 4);
            }
            assert!(!sender.return_eager(limit.saturating_add(1)));
            assert!(!receiver.note_eager(limit.saturating_add(1), limit));
        }
    }

    #[test]
    fn peer_landing_slots_are_used_once() {
        let mut operations = crate::operation::Operations::default();
        let mut insert = || {
            let local = crate::operation::Local::Host(HostRanges::default());
            let role = crate::operation::Role::Absorb;
            let token = crate::request::Token::default();
            operations.insert(crate::operation::Operation::new(role, PeerId(0), token, local, 0)).unwrap()
        };
        let (first, second) = (insert(), insert());
        let mut landing = Landing::new();
        let slots: Vec<_> =
            (0..LANDING_SLOTS.into()).map(|part| landing.take(first, part).unwrap()).collect();
        assert_eq!(slots, (0..LANDING_SLOTS).collect::<Vec<_>>());
        assert_eq!(landing.take(second, 0), None);
        landing.release(second);
        landing.expect(3, second, 9);
        assert_eq!((landing.user(3), landing.user(LANDING_SLOTS)), (Some((first, 3)), None));
        landing.expect(3, first, 9);
        assert_eq!(landing.user(3), Some((first, 9)));
        landing.release(first);
        assert_eq!(landing.take(second, 5), Some(0));
    }

    /// Writer and reader compute the same positions, and all space comes back.
    #[test]
    fn peer_ring_positions_agree() {
        let mut writer = peer(1);
        writer.granted(remote(4096));
        let mut reader = peer(2);
        let mut length = 64;
        for round in 0..10_000_u64 {
            length = (length * 31 + round) % (MAX_RECORD - 63) + 64;
            let offset = writer.reserve(length).unwrap() - 4096;
            assert!(reader.note_arrival(offset, u32::try_from(length).unwrap()));
            assert_eq!(reader.next_arrival(), Some((offset, u32::try_from(length).unwrap())));
            reader.note_freed(offset, u32::try_from(length).unwrap());
            assert!(offset + length <= RING);
            assert!(writer.credit(reader.take_credit().into()) && !reader.has_overrun());
        }
        assert_eq!(writer.in_use, 0);
        assert!(!writer.credit(1));
    }

    #[test]
    fn peer_full_ring_accepts_nothing() {
        let mut writer = peer(1);
        assert_eq!(writer.reserve(64), None);
        writer.granted(remote(0));
        let mut count = 0;
        while writer.reserve(MAX_RECORD).is_some() {
            count += 1;
        }
        assert_eq!(count, RING / MAX_RECORD);
    }

    #[test]
    fn peer_early_record_waits_for_the_one_before() {
        let mut reader = peer(2);
        assert!(reader.note_arrival(128, 64));
        assert_eq!(reader.next_arrival(), None);
        assert!(reader.note_arrival(0, 100));
        assert_eq!(reader.next_arrival(), Some((0, 100)));
        assert_eq!(reader.next_arrival(), Some((128, 64)));
    }

    #[test]
    fn peer_that_ignores_the_space_of_its_ring_is_noticed() {
        let mut reader = peer(2);
        let (mut at, mut count) = (0, 0);
        while !reader.has_overrun() {
            assert!(reader.note_arrival(at, 64) && reader.next_arrival().is_some());
            (at, _) = advance(at, 64, RING);
            count += 1;
        }
        assert!(count <= RING / UNIT + 1);
        let mut reader = peer(2);
        assert!((0..MAX_EARLY).all(|_| reader.note_arrival(64, 64)));
        assert!(!reader.note_arrival(64, 64));
    }
}
