//! Receiver's records of every sender's contexts: the last message and its state.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, MessageId, NodeId};

use crate::time::Nanos;
use fpga_registers::cast::index;

/// Maximum number of slots that are searched for one key.
const PROBES: usize = 64;

/// Identity of a sender's context: node, incarnation and context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ContextKey {
    pub(super) node: NodeId,
    pub(super) incarnation: Incarnation,
    pub(super) context: u16,
}

impl ContextKey {
    fn hash(&self) -> u64 {
        let origin = u64::from(self.node.get()) << 32 | u64::from(self.incarnation.get());
        let mixed = (origin ^ u64::from(self.context) << 13).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 24
    }
}

/// State of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MessageState {
    /// In progress, in this context of the receiver.
    Live(u16),
    /// Complete.
    Done,
    /// Given up.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerRecord {
    pub(super) key: ContextKey,
    pub(super) message: MessageId,
    pub(super) state: MessageState,
    /// Arrival time of its last packet.
    pub(super) last_heard: Nanos,
}

/// Hash table without removal: an expired record is overwritten by a new one in its slot.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PeerTable {
    places: Box<[Option<PeerRecord>]>,
}

impl PeerTable {
    pub(super) fn new(count: u32) -> Self {
        Self { places: alloc::vec![None; index(count)].into_boxed_slice() }
    }

    fn probes(&self, key: &ContextKey) -> impl Iterator<Item = usize> + use<> {
        let size = self.places.len().max(1);
        let first = usize::try_from(key.hash() % size as u64).unwrap_or(0);
        (0..PROBES.min(size)).map(move |step| (first + step) % size)
    }

    pub(super) fn find(&self, key: &ContextKey) -> Option<usize> {
        for at in self.probes(key) {
            match self.places.get(at)? {
                Some(peer) if peer.key == *key => return Some(at),
                Some(_) => {}
                // Records are never removed: no later record was placed beyond a free slot.
                None => return None,
            }
        }
        None
    }

    pub(super) fn get(&self, at: usize) -> Option<&PeerRecord> {
        self.places.get(at)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut PeerRecord> {
        self.places.get_mut(at)?.as_mut()
    }

    /// Returns a slot for a peer without a record: one that was never used, or one whose message ended before `rested`.
    pub(super) fn find_free(&self, key: &ContextKey, rested: Nanos) -> Option<usize> {
        self.probes(key).find(|at| match self.places.get(*at) {
            Some(Some(peer)) => !matches!(peer.state, MessageState::Live(_)) && peer.last_heard < rested,
            Some(None) => true,
            None => false,
        })
    }

    pub(super) fn put(&mut self, at: usize, peer: PeerRecord) {
        if let Some(place) = self.places.get_mut(at) {
            *place = Some(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(node: u32, state: MessageState, heard: u64) -> PeerRecord {
        let key = ContextKey { node: NodeId::new(node), incarnation: Incarnation::new(9), context: 3 };
        PeerRecord { key, message: MessageId::from_parts(3, 1), state, last_heard: Nanos::new(heard) }
    }

    #[test]
    fn find_every_key_of_quarter_full_table() {
        let mut peers = PeerTable::new(4096);
        for node in 0..1024 {
            let peer = peer(node, MessageState::Done, 0);
            assert_eq!(peers.find(&peer.key), None);
            let place = peers.find_free(&peer.key, Nanos::ZERO).unwrap();
            peers.put(place, peer);
        }
        for node in 0..1024 {
            let peer = peer(node, MessageState::Done, 0);
            assert_eq!(peers.find(&peer.key).and_then(|at| peers.get(at)), Some(&peer));
        }
    }

    #[test]
    fn room_of_ended_message_given_away_after_rest() {
        let mut peers = PeerTable::new(1);
        let next = peer(2, MessageState::Live(0), 0).key;
        for (state, after) in
            [(MessageState::Done, Some(0)), (MessageState::GivenUp, Some(0)), (MessageState::Live(7), None)]
        {
            peers.put(0, peer(1, state, 100));
            let free = [99, 100, 101].map(|rested| peers.find_free(&next, Nanos::new(rested)));
            assert_eq!(free, [None, None, after], "{state:?}");
        }
    }
}
