//! A peer: its session, its ring here, and the ring of this side there.

use crate::address::{Address, PeerId};
use crate::layout::{Doorbell, MAX_RECORD, RING, UNIT};
use crate::operation::OperationId;
use crate::request::HostRanges;
use crate::wire::Header;
use fpga_driver::{Incarnation, NodeId};
use fpga_rdma::{Notification, RemoteRegion};
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
    /// The peer has not answered; the session failed at `since`.
    Failed { since: Duration },
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

/// Region of the peer that this side may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote {
    pub(crate) region: RemoteRegion,
    /// Offsets in the region.
    pub(crate) ring: u64,
    pub(crate) landing: u64,
    pub(crate) ring_length: u64,
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
        Self { list: Vec::new(), unknown: Peer::new(NodeId::ANY) }
    }
}

impl Peers {
    /// Returns a peer by a number of the application.
    pub(crate) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.list.get(id.0 as usize)
    }

    /// Adds a peer.
    pub(crate) fn add(&mut self, node: NodeId) -> PeerId {
        let id = PeerId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.list.push(Peer::new(node));
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

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) node: NodeId,
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
    /// Number of the peer's ring here.
    pub(crate) ring: Option<u32>,
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
    pub(crate) fn new(node: NodeId) -> Self {
        Self {
            node,
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
            ring: None,
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
        }
    }

    /// Returns the peer's region while the session is open.
    pub(crate) fn open_remote(&self) -> Option<Remote> {
        self.remote.filter(|_| self.session == Session::Open)
    }

    /// Drops all state of the session but the ring.
    pub(crate) fn reset(&mut self) {
        (self.write_at, self.in_use, self.read_at, self.freed, self.taken) = (0, 0, 0, 0, 0);
        self.ended = self.ended.wrapping_add(1);
        self.remote = None;
        self.incarnation = None;
        self.queue.clear();
        self.doorbells.clear();
        self.early.clear();
        self.granted_slots.clear();
    }

    /// Reserves the peer's ring for a record of `length` bytes. Returns its offset in the region; `None` if the ring is full.
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

    /// Writer and reader compute the same positions, and all space comes back.
    #[test]
    fn peer_ring_positions_agree() {
        let mut writer = Peer::new(NodeId::new(1));
        let region = RemoteRegion {
            node: NodeId::new(2),
            address: fpga_driver::CardAddr::new(0),
            length: 1 << 20,
            key: 1,
        };
        writer.remote = Some(Remote { region, ring: 4096, landing: 0, ring_length: RING });
        let mut reader = Peer::new(NodeId::new(2));
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
        let mut writer = Peer::new(NodeId::new(1));
        assert_eq!(writer.reserve(64), None);
        let region = RemoteRegion {
            node: NodeId::new(2),
            address: fpga_driver::CardAddr::new(0),
            length: 1 << 20,
            key: 1,
        };
        writer.remote = Some(Remote { region, ring: 0, landing: 0, ring_length: RING });
        let mut count = 0;
        while writer.reserve(MAX_RECORD).is_some() {
            count += 1;
        }
        assert_eq!(count, RING / MAX_RECORD);
    }

    #[test]
    fn peer_early_record_waits_for_the_one_before() {
        let mut reader = Peer::new(NodeId::new(2));
        assert!(reader.note_arrival(128, 64));
        assert_eq!(reader.next_arrival(), None);
        assert!(reader.note_arrival(0, 100));
        assert_eq!(reader.next_arrival(), Some((0, 100)));
        assert_eq!(reader.next_arrival(), Some((128, 64)));
    }

    #[test]
    fn peer_that_ignores_the_space_of_its_ring_is_noticed() {
        let mut reader = Peer::new(NodeId::new(2));
        let (mut at, mut count) = (0, 0);
        while !reader.has_overrun() {
            assert!(reader.note_arrival(at, 64) && reader.next_arrival().is_some());
            (at, _) = advance(at, 64, RING);
            count += 1;
        }
        assert!(count <= RING / UNIT + 1);
        let mut reader = Peer::new(NodeId::new(2));
        assert!((0..MAX_EARLY).all(|_| reader.note_arrival(64, 64)));
        assert!(!reader.note_arrival(64, 64));
    }
}
