//! Order in which destinations are served, kept up to date by changes: no search goes over all destinations.
//!
//! The head of each queue has a place in one tree ([`Tournament`]) for its class and its [`Claim`]. Every change of a
//! destination marks it ([`super::table::Destinations::get_mut`]); the next search first renews the places of the marked
//! ones. A head that its own destination blocks has no place until that destination changes, or until the release time of
//! its congestion window. What blocks several destinations at once (op numbers, flow control, segment records) takes a
//! place away for one search only.
//!
//! The same holds for packets to be retransmitted: those that a congestion window holds back leave the set of due packets
//! until their destination changes.

use alloc::boxed::Box;

use fpga_registers::cast::{index, low16};

use super::Sender;
use super::issue::{Candidate, Claim, OpBudget};
use crate::op_table::Op;
use crate::segment::TransferClass;
use crate::time::Nanos;
use crate::tournament::{ABSENT, Tournament};

#[cfg(test)]
mod tests;

/// Number of kinds of claims, "none" included.
const KINDS: usize = 3;
/// Number of trees. By claim: (inverted priority, arrival) of the head of each regular queue, and inverted priority of the
/// head of each big-transfer queue; then [`PASSED`] and [`RELEASE`].
const TREES: usize = 2 * KINDS + 2;
/// Regular queues whose head has sent no packet: number of big segments that had been issued when none of its commands had
/// to be passed; 0 if one has let a big segment pass.
const PASSED: usize = 2 * KINDS;
/// Release times of congestion windows that hold packets back.
const RELEASE: usize = PASSED + 1;

/// Contribution of a destination to the sums.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    expected: u8,
    begun: u8,
    returned: bool,
}

/// Places of the heads of all queues.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    trees: Tournament<TREES>,
    shares: Box<[Share]>,
    expected: u32,
    begun: u32,
    returned: u32,
}

/// Trees of a class, by claim: none, started, expected.
const fn trees(class: TransferClass) -> [usize; KINDS] {
    match class {
        TransferClass::Regular => [0, 1, 2],
        TransferClass::Big => [3, 4, 5],
    }
}

const fn tree(class: TransferClass, claim: Option<Claim>) -> usize {
    let [none, started, expected] = trees(class);
    match claim {
        None => none,
        Some(Claim::Started) => started,
        Some(Claim::Expected) => expected,
    }
}

impl Turns {
    /// Bytes of state per leaf of the trees, and per destination.
    pub(super) const BYTES: [usize; 2] = [Tournament::<TREES>::BYTES_PER_LEAF, size_of::<Share>()];

    pub(super) fn new(destinations: u32) -> Self {
        Self {
            trees: Tournament::new(destinations),
            shares: alloc::vec![Share::default(); index(destinations)].into_boxed_slice(),
            expected: 0,
            begun: 0,
            returned: 0,
        }
    }

    /// Returns the number of leaves of the trees.
    pub(super) const fn leaves(destinations: u32) -> usize {
        Tournament::<TREES>::leaves(destinations)
    }

    pub(super) const fn has_expected(&self) -> bool {
        self.expected != 0
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.begun != 0
    }

    /// Whether a queue of a class has a place.
    fn has(&self, class: TransferClass) -> bool {
        let least = self.trees.least();
        trees(class).into_iter().any(|tree| least[tree] != ABSENT)
    }

    /// Whether a big-transfer queue has a place.
    pub(super) fn has_big(&self) -> bool {
        self.has(TransferClass::Big)
    }

    /// Whether a queue has a place.
    pub(super) fn has_any(&self) -> bool {
        let [classes @ .., _, _] = self.trees.least();
        *classes != [ABSENT; 2 * KINDS]
    }

    /// Returns the earliest time at which a congestion window lets a packet leave.
    pub(super) fn next_release(&self) -> Nanos {
        Nanos::new(self.trees.least()[RELEASE])
    }

    /// Removes a destination from some trees.
    fn remove(&mut self, destination: u32, trees: &[usize]) {
        let mut keys = self.trees.keys(destination);
        for tree in trees {
            keys[*tree] = ABSENT;
        }
        self.trees.set(destination, keys);
    }

    fn count(&mut self, destination: u32, share: Share) {
        let Some(place) = self.shares.get_mut(index(destination)) else { return };
        let before = core::mem::replace(place, share);
        self.expected = self.expected + u32::from(share.expected) - u32::from(before.expected);
        self.begun = self.begun + u32::from(share.begun) - u32::from(before.begun);
        self.returned = self.returned + u32::from(share.returned) - u32::from(before.returned);
    }
}

impl Sender {
    /// Renews the places of all destinations that have changed, and of those whose congestion window lets packets leave
    /// again.
    pub(super) fn renew_turns(&mut self, now: Nanos) {
        while self.turns.next_release() <= now {
            let Some(at) = self.turns.trees.first_from(RELEASE, 0, now.get()) else { break };
            self.turns.remove(at, &[RELEASE]);
            self.destinations.mark(at);
        }
        while let Some(at) = self.destinations.take_marked() {
            self.renew_turn(now, at);
        }
    }

    fn renew_turn(&mut self, now: Nanos, at: u32) {
        let record = self.destinations.get(at);
        let mut keys = [ABSENT; TREES];
        let mut share = Share::default();
        for (class, queue) in [(TransferClass::Regular, &record.regular), (TransferClass::Big, &record.big)] {
            let Some(slot) = queue.head() else { continue };
            let claim = self.claim(slot);
            match claim {
                Some(Claim::Expected) => share.expected += 1,
                Some(Claim::Started) => share.begun += 1,
                None => {}
            }
            let transfer = &self.transfers[index(slot)];
            let first = self.has_sent_none(slot);
            if class == TransferClass::Big {
                share.returned = transfer.partial.is_some() && first;
            }
            if self.is_blocked(now, at, slot) {
                continue;
            }
            let priority = u64::from(u8::MAX - transfer.command.priority);
            keys[tree(class, claim)] = match class {
                TransferClass::Regular => priority << 56 | transfer.arrival,
                TransferClass::Big => priority,
            };
            if class == TransferClass::Regular && first {
                let issued = self.big_segments_issued;
                keys[PASSED] = if record.must_pass(issued) != 0 { 0 } else { issued };
            }
        }
        if self.config.congestion.is_some() && record.transfers != 0 && self.room(now, at) == 0 {
            let release = self.destinations.release_time(at).filter(|release| *release > now);
            keys[RELEASE] = release.unwrap_or(Nanos::MAX).get();
        }
        self.turns.trees.set(at, keys);
        self.turns.count(at, share);
        self.return_held(now, at);
    }

    /// Whether a head cannot be served until its destination changes, or its congestion window lets packets leave.
    fn is_blocked(&self, now: Nanos, destination: u32, slot: u32) -> bool {
        let is_limited = |node| self.flow_limit(node) == 0 || !self.segments.has_free();
        self.capacity(now, destination, slot) == 0 && !is_limited(self.destinations.get(destination).node)
    }

    /// Takes the place of a head that cannot be served, for this search.
    fn pass_over(&mut self, now: Nanos, class: TransferClass, destination: u32, slot: u32) {
        self.turns.remove(destination, &trees(class));
        if class == TransferClass::Regular && self.capacity(now, destination, slot) == 0 {
            self.turns.remove(destination, &[PASSED]);
        }
        self.destinations.mark(destination);
    }

    /// Returns, by claim, whether the op numbers suffice for one packet of a head without a packet in flight.
    fn admitted(&self, pool: &OpBudget, class: TransferClass) -> [bool; KINDS] {
        let usual = pool.usual(class, self.config.op_entries);
        let left = pool.available.saturating_sub(pool.expected.into());
        let may_pass = class == TransferClass::Regular && left != 0 && !self.yielded_op_numbers && {
            let limit = self.big_segments_issued.checked_sub(1);
            limit.is_some_and(|limit| self.turns.trees.least()[PASSED] <= limit)
        };
        [usual != 0 && (left > pool.begun.into() || may_pass), left != 0, true]
    }

    /// Returns the waiting regular command of the highest priority whose destination accepts packets; among equals, the
    /// one that arrived first.
    pub(super) fn regular_candidate(&mut self, pool: &OpBudget) -> Option<Candidate> {
        let class = TransferClass::Regular;
        if !self.turns.has(class) {
            return None;
        }
        let admitted = self.admitted(pool, class);
        loop {
            let least = self.turns.trees.least();
            let trees = trees(class).into_iter().zip(admitted).filter(|(_, admitted)| *admitted);
            let (key, tree) = trees.map(|(tree, _)| (least[tree], tree)).min()?;
            let destination = self.turns.trees.first_from(tree, 0, key)?;
            let slot = self.destinations.get(destination).regular.head()?;
            let budget = self.budget(pool, class, destination, slot);
            if budget != 0 {
                return Some(Candidate { slot, destination, class, budget });
            }
            self.pass_over(pool.now, class, destination, slot);
        }
    }

    /// Returns the head of the next destination's big-transfer queue, round robin among those of the highest priority.
    /// `owing`: only segments that the receiver expects.
    pub(super) fn big_candidate(&mut self, pool: &OpBudget, owing: bool) -> Option<Candidate> {
        let class = TransferClass::Big;
        let [none, started, expected] = self.admitted(pool, class);
        let admitted = [none && !owing, started && !owing, expected];
        loop {
            let all = self.turns.trees.least();
            let admitted = trees(class).into_iter().zip(admitted).filter(|(_, admitted)| *admitted);
            let trees = admitted.map(|(tree, _)| tree);
            let least = trees.clone().map(|tree| all[tree]).min().filter(|least| *least != ABSENT)?;
            let first = |start| {
                trees.clone().filter_map(|tree| self.turns.trees.first_from(tree, start, least)).min()
            };
            let destination = first(self.big_turn).or_else(|| first(0))?;
            let slot = self.destinations.get(destination).big.head()?;
            let budget = self.budget(pool, class, destination, slot);
            if budget != 0 {
                return Some(Candidate { slot, destination, class, budget });
            }
            self.pass_over(pool.now, class, destination, slot);
        }
    }

    /// Whether a regular command has already let a big segment pass, and waits only for an op number.
    pub(super) fn has_yielded(&mut self, now: Nanos) -> bool {
        let (false, Some(limit)) = (self.yielded_op_numbers, self.big_segments_issued.checked_sub(1)) else {
            return false;
        };
        let mut start = 0;
        while let Some(destination) = self.turns.trees.first_from(PASSED, start, limit) {
            let Some(slot) = self.destinations.get(destination).regular.head() else { return false };
            if self.capacity(now, destination, slot) != 0 {
                return true;
            }
            self.pass_over(now, TransferClass::Regular, destination, slot);
            start = destination + 1;
        }
        false
    }

    /// Whether a big transfer's segment waits that was sent before and returned its op number. A copy of its first
    /// packet may have been registered since, and hold the entry that the regular commands wait for.
    pub(super) const fn has_returned_segment(&self) -> bool {
        self.turns.returned != 0
    }
}

impl Sender {
    /// Returns the next packet to retransmit that its congestion window lets leave, in flight again.
    pub(super) fn take_due(&mut self, now: Nanos) -> Option<Op> {
        self.renew_turns(now);
        while let Some(op) = self.ops.first_due() {
            let transfer = &self.transfers[index(self.segments.get(op.segment).transfer)];
            let at = transfer.destination;
            // The receiver holds the other packets of a segment until it has the first one: they may fill the window.
            let in_flight = if op.packet == 0 { 0 } else { self.destinations.in_network(at) };
            if self.destinations.room(now, at, in_flight) != 0 {
                let (retry, trip) = (&self.retry, &self.destinations.get(at).trip);
                return self.ops.take_due(now, |op| retry.deadline(now, trip, op.silent, transfer.progress));
            }
            self.ops.hold_due(op.number.slot());
            self.destinations.hold_packet(at, &mut self.order_links, op.number.slot().into());
        }
        None
    }

    /// Returns the packets that were held back to the due ones, if the congestion window of their destination may let one
    /// leave.
    fn return_held(&mut self, now: Nanos, destination: u32) {
        let held = self.destinations.get(destination).held.len();
        if held == 0 || self.destinations.room(now, destination, 0) == 0 {
            return;
        }
        while let Some(slot) = self.destinations.take_held(destination, &mut self.order_links) {
            self.ops.return_due(low16(slot));
        }
    }

    /// Returns one packet that was held back to the due ones, if it is still due.
    pub(super) fn unhold(&mut self, destination: u32, slot: u32) {
        if self.destinations.is_held_packet(slot) {
            self.destinations.release_packet(destination, &mut self.order_links, slot);
            self.ops.return_due(low16(slot));
        }
    }
}
