//! Model check of a pool's reference counts against sets of holders: every state that two slots, two subscribers and a user with a frame on
//! another thread can reach, and random walks through larger pools.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use std::collections::{BTreeMap, BTreeSet, HashSet};

use fpga_frames::{NotHeld, SlotPool};
use proptest::prelude::*;

/// Holder of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Holder {
    /// The user, or the upload of the frame into the card.
    User,
    /// The transfer to a subscriber.
    Transfer(usize),
}

/// A pool, and the holders of its slots by the rules of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Model {
    pool: SlotPool,
    holders: BTreeMap<usize, BTreeSet<Holder>>,
    /// Slots whose memory the card may reach until the process ends: the holder during their upload never releases them.
    lost: BTreeSet<usize>,
}

impl Model {
    fn new(slots: usize) -> Self {
        let holders = (0..slots).map(|slot| (slot, BTreeSet::new())).collect();
        Self { pool: SlotPool::new(slots), holders, lost: BTreeSet::new() }
    }

    fn take(&mut self) -> Option<usize> {
        let free = self.holders.values().filter(|holders| holders.is_empty()).count();
        let taken = self.pool.take();
        assert_eq!(taken.is_some(), free > 0, "a slot is found if and only if one is free");
        let slot = taken?;
        assert!(
            self.holders[&slot].is_empty(),
            "slot {slot} is taken while {:?} hold it",
            self.holders[&slot]
        );
        self.holders.get_mut(&slot).unwrap().insert(Holder::User);
        Some(slot)
    }

    fn hold(&mut self, slot: usize, holder: Holder) {
        self.pool.hold(slot).unwrap();
        assert!(self.holders.get_mut(&slot).unwrap().insert(holder));
    }

    fn release(&mut self, slot: usize, holder: Holder) {
        let holders = self.holders.get_mut(&slot).unwrap();
        assert!(holders.remove(&holder));
        assert_eq!(self.pool.release(slot), Ok(holders.is_empty()));
    }

    fn check(&self) {
        for (slot, holders) in &self.holders {
            assert_eq!(self.pool.references(*slot) as usize, holders.len(), "slot {slot}");
        }
        assert_eq!(self.pool.free(), self.holders.values().filter(|holders| holders.is_empty()).count());
    }

    /// All possible next states.
    fn steps(&self, subscribers: usize) -> Vec<Self> {
        let mut found = Vec::new();
        let mut step = |change: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            change(&mut next);
            next.check();
            found.push(next);
        };
        step(&|model| {
            let _ = model.take();
        });
        for (&slot, holders) in &self.holders {
            let lost = self.lost.contains(&slot);
            for &holder in holders {
                // Dropped, given up, arrived or failed: in any order.
                if !(lost && holder == Holder::User) {
                    step(&|model| model.release(slot, holder));
                }
            }
            // During the upload into the card, when the engine cannot be confirmed idle: nothing is sent from that slot.
            if *holders == BTreeSet::from([Holder::User]) && !lost {
                step(&|model| {
                    model.lost.insert(slot);
                });
            }
            // Transfers begin while the upload holds the slot.
            if holders.contains(&Holder::User) && !lost {
                for subscriber in (0..subscribers).map(Holder::Transfer).filter(|it| !holders.contains(it)) {
                    step(&|model| model.hold(slot, subscriber));
                }
            } else if holders.is_empty() {
                let mut next = self.clone();
                assert_eq!(next.pool.hold(slot), Err(NotHeld { slot }));
                assert_eq!(next.pool.release(slot), Err(NotHeld { slot }));
                assert_eq!(next, *self, "what is refused changes nothing");
            }
        }
        found
    }
}

#[test]
fn pool_small_every_state_matches_model() {
    for (slots, subscribers) in [(1, 3), (2, 2), (3, 1), (3, 2)] {
        let mut seen = HashSet::new();
        let mut open = vec![Model::new(slots)];
        while let Some(model) = open.pop() {
            if seen.insert(model.clone()) {
                open.extend(model.steps(subscribers));
            }
        }
        // Each slot is free, or held by any set of holders, or lost; and the search may start at any slot.
        let sets = (1_usize << (subscribers + 1)) + 1;
        assert!(
            seen.len() >= sets.pow(u32::try_from(slots).unwrap()),
            "{slots} slots: {} states",
            seen.len()
        );
    }
}

proptest! {
    #[test]
    fn pool_large_random_walk_matches_model(
        slots in 1..40_usize, walk in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8), 0..400),
    ) {
        let mut model = Model::new(slots);
        for (choice, what) in walk {
            let held: Vec<_> = model
                .holders
                .iter()
                .flat_map(|(slot, holders)| holders.iter().map(|holder| (*slot, *holder)))
                .collect();
            match what {
                0 => {
                    let _ = model.take();
                }
                1 if !held.is_empty() => {
                    let (slot, _) = held[choice.index(held.len())];
                    if let Some(free) = (0..8).map(Holder::Transfer).find(|it| !model.holders[&slot].contains(it)) {
                        model.hold(slot, free);
                    }
                }
                _ if !held.is_empty() => {
                    let (slot, holder) = held[choice.index(held.len())];
                    model.release(slot, holder);
                }
                _ => {}
            }
            model.check();
        }
        // No slot is leaked.
        for (slot, holders) in model.holders.clone() {
            for holder in holders {
                model.release(slot, holder);
            }
        }
        prop_assert_eq!(model.pool.free(), slots);
    }
}
