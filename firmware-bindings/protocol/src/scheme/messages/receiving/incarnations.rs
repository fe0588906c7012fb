//! A node has one life at a time: what a packet of a former one can do.
//!
//! A message's key holds the life of its sender, so a sender that was started anew begins messages beside those of its former life, and
//! late packets of that would be written over what the new one has sent since. So a node's messages are taken of one life alone.
//! Of two lives, neither their numbers nor the order of their first packets tell which is the newer one. But of the older one
//! nothing arrives any more when a packet lifetime has passed since the newer one was first heard of. Hence:
//!
//! * A life of a node that is known by another one is refused as by a busy receiver for a packet lifetime, which is not silence to it.
//!   Whoever is heard after that is alive: it takes the other's place, and what that had under way is given up.
//! * A life is known while it has a message under way, and for longer than a packet wanders after that. A node that is not known has
//!   either never sent, or no packet of a life before the last one is on its way.
//! * One other life at a time waits for its place; it keeps its turn while it is heard.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId};

use crate::time::Nanos;
use fpga_registers::cast::index;

/// Places that are looked at for one node.
const PROBES: usize = 64;
/// Most places: more nodes do not send to one at a time.
const MAX_NODES: u32 = 1024;

/// A life that waits until packets of the node's other one have died out.
#[derive(Clone, Copy, Debug)]
struct PendingIncarnation {
    incarnation: Incarnation,
    /// When it may begin messages.
    admitted: Nanos,
    last_heard: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct NodeRecord {
    node: NodeId,
    /// The one whose messages are taken.
    life: Incarnation,
    /// Messages of it that are under way.
    messages: u32,
    /// When the last of them began or ended.
    touched: Nanos,
    waiting: Option<PendingIncarnation>,
}

/// Whether messages of a life may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// They may; the node's place.
    Admitted(usize),
    /// They may from now on, and the node's former life is over.
    Succeeds(usize),
    /// Later, perhaps.
    Refused,
}

/// The nodes that have sent messages: a hash table without removal, as that of their contexts.
#[derive(Clone, Debug)]
pub(super) struct NodeTable {
    places: Box<[Option<NodeRecord>]>,
}

impl NodeTable {
    /// Bytes of state of one node.
    pub(super) const BYTES: usize = size_of::<Option<NodeRecord>>();

    /// For a receiver that remembers so many contexts of senders.
    pub(super) fn new(peers: u32) -> Self {
        Self { places: alloc::vec![None; index(peers.min(MAX_NODES))].into_boxed_slice() }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.places.len() as u64
    }

    fn probes(&self, node: NodeId) -> impl Iterator<Item = usize> + use<> {
        let size = self.places.len().max(1);
        let mixed = u64::from(node.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let first = usize::try_from(mixed % size as u64).unwrap_or(0);
        (0..PROBES.min(size)).map(move |step| (first + step) % size)
    }

    /// A message of this life would begin. A packet wanders for `lifetime` at most; nodes whose messages ended before `rested`, which is
    /// at least as long ago, need not be known any more.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        (node, life): (NodeId, Incarnation),
        lifetime: Nanos,
        rested: Nanos,
    ) -> Admission {
        let alone = NodeRecord { node, life, messages: 0, touched: now, waiting: None };
        let is_over = |known: &NodeRecord| known.messages == 0 && known.touched < rested;
        let (mut found, mut free) = (None, None);
        for at in self.probes(node) {
            match self.places.get(at) {
                Some(Some(known)) if known.node == node => {
                    found = Some(at);
                    break;
                }
                Some(Some(known)) if free.is_none() && is_over(known) => free = Some(at),
                Some(Some(_)) => {}
                // Nothing is ever removed: what comes later was never put past a free place.
                Some(None) | None => {
                    free = free.or(Some(at));
                    break;
                }
            }
        }
        let Some(at) = found.or(free) else { return Admission::Refused };
        let Some(place) = self.places.get_mut(at) else { return Admission::Refused };
        let Some(known) = place.as_mut().filter(|_| found.is_some()) else {
            *place = Some(alone);
            return Admission::Admitted(at);
        };
        if known.life == life {
            return Admission::Admitted(at);
        }
        let is_forgotten = is_over(known);
        match &mut known.waiting {
            Some(waiting) if waiting.incarnation == life => {
                waiting.last_heard = now;
                if waiting.admitted > now {
                    return Admission::Refused;
                }
            }
            Some(waiting) if waiting.last_heard.saturating_add(lifetime) > now => return Admission::Refused,
            _ if is_forgotten => {}
            waiting => {
                *waiting = Some(PendingIncarnation {
                    incarnation: life,
                    admitted: now.saturating_add(lifetime),
                    last_heard: now,
                });
                if lifetime != Nanos::ZERO {
                    return Admission::Refused;
                }
            }
        }
        *place = Some(alone);
        Admission::Succeeds(at)
    }

    /// A message of the node at this place has begun.
    pub(super) fn begin(&mut self, at: usize, now: Nanos) {
        if let Some(Some(known)) = self.places.get_mut(at) {
            known.messages += 1;
            known.touched = now;
        }
    }

    /// A message of this life has ended. Those of a former one are not counted.
    pub(super) fn end(&mut self, (node, life): (NodeId, Incarnation), now: Nanos) {
        for at in self.probes(node) {
            if let Some(Some(known)) = self.places.get_mut(at)
                && known.node == node
            {
                if known.life == life {
                    known.messages = known.messages.saturating_sub(1);
                    known.touched = now;
                }
                return;
            }
        }
    }
}
