//! Incarnations of sending nodes: a node has one incarnation at a time, and this module decides which one.
//!
//! A message's key contains the incarnation of its sender. A restarted sender therefore begins messages beside those of
//! its earlier incarnation, and late packets of the earlier one would overwrite the data that the new one has sent
//! since. For this reason a receiver accepts the messages of one incarnation of a node only.
//!
//! Neither the numbers of two incarnations nor the order of their first packets shows which one is newer. But no packet
//! of the older one arrives later than one packet lifetime after the newer one was first received from. Hence:
//!
//! * An incarnation of a node that is known by another one is refused as busy for one packet lifetime, which keeps the
//!   sender trying. An incarnation that still sends after that is the live one. It replaces the other, whose messages
//!   in progress are given up.
//! * An incarnation is known while it has a message in progress, and for longer than the packet lifetime after that.
//!   For a node that is not known, no packet of an incarnation before the last one is in flight, or the node has never
//!   sent.
//! * One other incarnation at a time waits to replace the known one; it keeps its turn while packets of it arrive.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId};

use crate::time::Nanos;
use fpga_registers::cast::index;

/// Maximum number of slots that are searched for one node.
const PROBES: usize = 64;
/// Maximum number of slots: not more nodes than this send to one node at a time.
const MAX_NODES: u32 = 1024;

/// Incarnation that waits until no packet of the node's other one can be in flight.
#[derive(Clone, Copy, Debug)]
struct PendingIncarnation {
    incarnation: Incarnation,
    /// Time from which it may begin messages.
    admitted: Nanos,
    last_heard: Nanos,
}

#[derive(Clone, Copy, Debug)]
struct NodeRecord {
    node: NodeId,
    /// Incarnation whose messages are accepted.
    incarnation: Incarnation,
    /// Number of its messages in progress.
    messages: u32,
    /// Time at which the last of them began or ended.
    touched: Nanos,
    waiting: Option<PendingIncarnation>,
}

/// Whether messages of an incarnation may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// They may; index of the node's record.
    Admitted(usize),
    /// They may from now on, and the node's earlier incarnation has ended.
    Succeeds(usize),
    /// Not yet.
    Refused,
}

/// Nodes that have sent messages: a hash table without removal, like that of their contexts.
#[derive(Clone, Debug)]
pub(super) struct NodeTable {
    places: Box<[Option<NodeRecord>]>,
}

impl NodeTable {
    /// Bytes of state of one node.
    pub(super) const BYTES: usize = size_of::<Option<NodeRecord>>();

    /// Creates the table for a receiver that records `peers` contexts of senders.
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

    /// Decides whether a message of this incarnation may begin. `lifetime`: packet lifetime. Nodes whose messages ended
    /// before `rested`, which is at least one lifetime ago, may be forgotten.
    pub(super) fn admit(
        &mut self,
        now: Nanos,
        (node, incarnation): (NodeId, Incarnation),
        lifetime: Nanos,
        rested: Nanos,
    ) -> Admission {
        let alone = NodeRecord { node, incarnation, messages: 0, touched: now, waiting: None };
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
                // Records are never removed: no later record was placed beyond a free slot.
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
        if known.incarnation == incarnation {
            return Admission::Admitted(at);
        }
        let is_forgotten = is_over(known);
        match &mut known.waiting {
            Some(waiting) if waiting.incarnation == incarnation => {
                waiting.last_heard = now;
                if waiting.admitted > now {
                    return Admission::Refused;
                }
            }
            Some(waiting) if waiting.last_heard.saturating_add(lifetime) > now => return Admission::Refused,
            _ if is_forgotten => {}
            waiting => {
                *waiting = Some(PendingIncarnation {
                    incarnation,
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

    /// Records that a message of the node at this index has begun.
    pub(super) fn begin(&mut self, at: usize, now: Nanos) {
        if let Some(Some(known)) = self.places.get_mut(at) {
            known.messages += 1;
            known.touched = now;
        }
    }

    /// Records that a message of this incarnation has ended. Those of an earlier one are not counted.
    pub(super) fn end(&mut self, (node, incarnation): (NodeId, Incarnation), now: Nanos) {
        for at in self.probes(node) {
            if let Some(Some(known)) = self.places.get_mut(at)
                && known.node == node
            {
                if known.incarnation == incarnation {
                    known.messages = known.messages.saturating_sub(1);
                    known.touched = now;
                }
                return;
            }
        }
    }
}
