//! Newest incarnation of each sending node, at a receiver (docs/protocol.md 6.2).
//!
//! Incarnations of a node are ordered. A receiver records the newest one that it knows of each node:
//!
//! * A later one replaces it at once, and all operations and messages of the earlier one end. Only a packet that may
//!   begin an operation or message, and that passed the check of memory window and key, makes an incarnation known: a
//!   packet of an unknown sender, a HELLO or a damaged one cannot lock a node out.
//! * An earlier one is refused at any age, with the newest one in the answer. A node whose order was broken (a clock
//!   that was set back and lost state, or 2^31 numbers passed) therefore learns above which number it has to start.
//!
//! The table is bounded. A record is replaced only while no slot is free for another node, and only that of a node
//! without operations or messages for longer than the packet lifetime: by then no packet of an earlier incarnation of that
//! node is in flight.

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId};

use crate::non_state::NonState;
use crate::time::Nanos;
use fpga_registers::cast::index;

/// Maximum number of slots that are searched for one node.
const PROBES: usize = 64;

/// Default number of nodes of which the newest incarnation is recorded.
pub(crate) const DEFAULT_NODES: u32 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct NodeRecord<P> {
    node: NodeId,
    /// Newest incarnation known.
    incarnation: Incarnation,
    /// Number of its users: messages in progress, or the record of its transfers.
    users: u32,
    /// Time at which the last of them began or ended.
    touched: Nanos,
    /// Measurements of the path from the node, kept from one user to the next.
    path: P,
}

/// Whether operations or messages of an incarnation may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Permitted; index of the node's record.
    Admitted(usize),
    /// Permitted, and those of the node's earlier incarnation end.
    Succeeds(usize),
    /// Refused: this later incarnation is known.
    Superseded(Incarnation),
    /// Refused for now: no free record.
    Full,
}

/// Hash table of nodes without removal: a record is overwritten by one of another node in its slot. `P`: measurements of
/// the path from a node, kept with its record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct NodeTable<P = ()> {
    slots: Box<[Option<NodeRecord<P>>]>,
    /// Number of nodes with users.
    active: NonState<u32>,
}

impl<P: Copy + Default> NodeTable<P> {
    /// Size of the record of one node, in bytes.
    pub(crate) const BYTES: usize = size_of::<Option<NodeRecord<P>>>();

    /// Creates a table for `nodes` nodes, at least one.
    pub(crate) fn new(nodes: u32) -> Self {
        Self { slots: alloc::vec![None; index(nodes.max(1))].into_boxed_slice(), active: NonState(0) }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    fn probes(&self, node: NodeId) -> impl Iterator<Item = usize> + use<P> {
        let size = self.slots.len().max(1);
        let mixed = u64::from(node.get()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let first = usize::try_from(mixed % size as u64).unwrap_or(0);
        (0..PROBES.min(size)).map(move |step| (first + step) % size)
    }

    fn find(&self, node: NodeId) -> Option<usize> {
        for at in self.probes(node) {
            match self.slots.get(at)? {
                Some(known) if known.node == node => return Some(at),
                Some(_) => {}
                // Records are never removed: no later record was placed beyond a free slot.
                None => return None,
            }
        }
        None
    }

    fn get(&self, at: usize) -> Option<&NodeRecord<P>> {
        self.slots.get(at)?.as_ref()
    }

    /// Returns the newest incarnation of a node if it is later than `incarnation`.
    pub(crate) fn superseding(&self, node: NodeId, incarnation: Incarnation) -> Option<Incarnation> {
        let known = self.find(node).and_then(|at| self.get(at))?;
        incarnation.is_earlier_than(known.incarnation).then_some(known.incarnation)
    }

    /// Decides whether an operation or message of this incarnation may begin, and records the incarnation if so. The
    /// record of a node without users since before `idle_limit`, at least one packet lifetime ago, may be replaced.
    pub(crate) fn admit(
        &mut self,
        now: Nanos,
        (node, incarnation): (NodeId, Incarnation),
        idle_limit: Nanos,
    ) -> Admission {
        let fresh = NodeRecord { node, incarnation, users: 0, touched: now, path: P::default() };
        let found = self.find(node);
        let known = found.and_then(|at| Some((at, self.get(at)?.incarnation)));
        let (at, admission) = match known {
            Some((at, known)) if known == incarnation => return Admission::Admitted(at),
            Some((_, known)) if incarnation.is_earlier_than(known) => return Admission::Superseded(known),
            Some((at, _)) => (at, Admission::Succeeds(at)),
            None => match self.find_slot(node, idle_limit) {
                Some(at) => (at, Admission::Admitted(at)),
                None => return Admission::Full,
            },
        };
        if let Some(slot) = self.slots.get_mut(at) {
            let was_active = slot.as_ref().is_some_and(|known| known.users != 0);
            self.active.0 = self.active.0.saturating_sub(was_active.into());
            *slot = Some(fresh);
        }
        admission
    }

    /// Returns a slot for a node without a record: a free one, or that of the node that is idle longest.
    fn find_slot(&self, node: NodeId, idle_limit: Nanos) -> Option<usize> {
        let mut longest: Option<(Nanos, usize)> = None;
        for at in self.probes(node) {
            let Some(known) = self.get(at) else { return Some(at) };
            let is_over = known.users == 0 && known.touched < idle_limit;
            if is_over && longest.is_none_or(|(touched, _)| known.touched < touched) {
                longest = Some((known.touched, at));
            }
        }
        longest.map(|(_, at)| at)
    }

    /// Returns the number of nodes with users.
    pub(crate) const fn active(&self) -> u32 {
        self.active.0
    }

    /// Records that the node at this index has one more user.
    pub(crate) fn begin(&mut self, at: usize, now: Nanos) {
        if let Some(Some(known)) = self.slots.get_mut(at) {
            self.active.0 += u32::from(known.users == 0);
            known.users += 1;
            known.touched = now;
        }
    }

    /// Returns the measurements of the path from the node at this index.
    pub(crate) fn path(&self, at: usize) -> P {
        self.get(at).map(|known| known.path).unwrap_or_default()
    }

    /// Records that a user of this incarnation has ended, and its measurements of the path, if any. Users of an earlier
    /// incarnation are not counted.
    pub(crate) fn end(&mut self, (node, incarnation): (NodeId, Incarnation), now: Nanos, path: Option<P>) {
        if let Some(Some(known)) = self.find(node).and_then(|at| self.slots.get_mut(at))
            && known.incarnation == incarnation
        {
            let was_last = known.users == 1;
            known.users = known.users.saturating_sub(1);
            self.active.0 = self.active.0.saturating_sub(was_last.into());
            known.touched = now;
            known.path = path.unwrap_or(known.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn name(node: u32, incarnation: u32) -> (NodeId, Incarnation) {
        (NodeId::new(node), Incarnation::new(incarnation))
    }

    #[test]
    fn incarnation_earlier_is_refused_at_any_age_and_across_wrap() {
        let mut table = NodeTable::<()>::new(4);
        let ages = [0, 1, 10_000_000, u64::MAX / 2].map(Nanos::new);
        assert!(matches!(table.admit(ages[0], name(1, u32::MAX - 1), ages[0]), Admission::Admitted(_)));
        assert!(matches!(table.admit(ages[0], name(1, 3), ages[0]), Admission::Succeeds(_)));
        for age in ages {
            let earlier = table.admit(age, name(1, u32::MAX - 1), age);
            assert_eq!(earlier, Admission::Superseded(Incarnation::new(3)), "{age:?}");
            assert_eq!(table.superseding(NodeId::new(1), Incarnation::new(2)), Some(Incarnation::new(3)));
        }
        assert_eq!(table.superseding(NodeId::new(1), Incarnation::new(3)), None);
    }

    #[test]
    fn table_full_replaces_only_node_idle_longest() {
        let mut table = NodeTable::<()>::new(2);
        for (node, at) in [(1, 10), (2, 20)] {
            let Admission::Admitted(place) = table.admit(Nanos::new(at), name(node, 7), Nanos::ZERO) else {
                panic!("a free slot")
            };
            table.begin(place, Nanos::new(at));
            table.end(name(node, 7), Nanos::new(at), None);
        }
        let now = Nanos::new(30);
        assert_eq!(table.admit(now, name(3, 7), Nanos::new(10)), Admission::Full);
        assert!(matches!(table.admit(now, name(3, 7), Nanos::new(30)), Admission::Admitted(_)));
        assert_eq!(table.superseding(NodeId::new(2), Incarnation::new(6)), Some(Incarnation::new(7)));
        assert_eq!(table.superseding(NodeId::new(1), Incarnation::new(6)), None);
    }

    #[test]
    fn node_in_use_keeps_record() {
        let mut table = NodeTable::<()>::new(1);
        let Admission::Admitted(at) = table.admit(Nanos::ZERO, name(1, 7), Nanos::ZERO) else {
            panic!("free")
        };
        table.begin(at, Nanos::ZERO);
        assert_eq!(table.admit(Nanos::MAX, name(2, 1), Nanos::MAX), Admission::Full);
    }

    proptest! {
        /// Compares with the definition: the newest incarnation admitted of each node.
        #[test]
        fn admission_matches_newest_of_each_node(
            start in any::<u32>(),
            packets in prop::collection::vec((0u32..6, 0u32..1000), 1..200),
        ) {
            let mut table = NodeTable::<()>::new(64);
            let mut newest = [None; 6];
            for (node, step) in packets {
                let place = &mut newest[index(node)];
                let admission = table.admit(Nanos::ZERO, name(node, start.wrapping_add(step)), Nanos::ZERO);
                match *place {
                    Some(known) if step < known => {
                        let known = Incarnation::new(start.wrapping_add(known));
                        prop_assert_eq!(admission, Admission::Superseded(known));
                    }
                    Some(known) if step > known => prop_assert!(matches!(admission, Admission::Succeeds(_))),
                    _ => prop_assert!(matches!(admission, Admission::Admitted(_))),
                }
                *place = Some(place.map_or(step, |known: u32| known.max(step)));
            }
        }
    }
}
