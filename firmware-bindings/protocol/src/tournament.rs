//! Minima of several keys per slot of a table: changing the keys of a slot and finding the slot of a least one take
//! logarithmic time.
//!
//! Complete binary trees of the same shape, side by side: the root is element 1, the children of `n` are `2 n` and `2 n + 1`,
//! and the leaves are the keys. A change ends at the first node whose minima stay the same.

use alloc::boxed::Box;

use fpga_registers::cast::{index, low32};

/// `N` keys of each slot of one table, each in its own tree.
#[derive(Clone, Debug)]
pub(crate) struct Tournament<const N: usize> {
    nodes: Box<[[u64; N]]>,
    leaves: usize,
}

/// Key of a slot that does not take part in a tree.
pub(crate) const ABSENT: u64 = u64::MAX;

impl<const N: usize> Tournament<N> {
    /// Bytes of state per leaf, of which there are [`Self::leaves`].
    pub(crate) const BYTES_PER_LEAF: usize = 2 * size_of::<[u64; N]>();

    /// Creates the trees without any key.
    pub(crate) fn new(slots: u32) -> Self {
        let leaves = Self::leaves(slots);
        Self { nodes: alloc::vec![[ABSENT; N]; 2 * leaves].into_boxed_slice(), leaves }
    }

    /// Returns the number of leaves for a table of `slots`.
    pub(crate) const fn leaves(slots: u32) -> usize {
        index(slots).next_power_of_two()
    }

    /// Returns the keys of a slot.
    pub(crate) fn keys(&self, slot: u32) -> [u64; N] {
        self.nodes.get(self.leaves + index(slot)).copied().unwrap_or([ABSENT; N])
    }

    /// Sets the keys of a slot.
    pub(crate) fn set(&mut self, slot: u32, keys: [u64; N]) {
        let leaf = self.leaves + index(slot);
        let Some(place) = self.nodes.get_mut(leaf) else { return };
        let before = core::mem::replace(place, keys);
        for (tree, (key, before)) in keys.into_iter().zip(before).enumerate() {
            if key != before {
                self.climb(tree, leaf);
            }
        }
    }

    /// Renews the minima above a key that has changed.
    fn climb(&mut self, tree: usize, mut at: usize) {
        while at > 1 {
            let least = self.key(tree, at).min(self.key(tree, at ^ 1));
            at /= 2;
            match self.nodes.get_mut(at).and_then(|keys| keys.get_mut(tree)) {
                Some(place) if *place != least => *place = least,
                _ => return,
            }
        }
    }

    /// Returns the least keys; [`ABSENT`] in a tree without any.
    pub(crate) fn least(&self) -> &[u64; N] {
        self.nodes.get(1).unwrap_or(const { &[ABSENT; N] })
    }

    /// Returns the first slot from `start` on whose key in `tree` is at most `limit` and not [`ABSENT`].
    pub(crate) fn first_from(&self, tree: usize, start: u32, limit: u64) -> Option<u32> {
        let exceeds = |at: usize| self.key(tree, at) > limit;
        if index(start) >= self.leaves || exceeds(1) || limit == ABSENT {
            return None;
        }
        let mut at = if start == 0 { 1 } else { self.leaves + index(start) };
        while exceeds(at) {
            // Up to the first subtree to the right.
            while at & 1 != 0 {
                at /= 2;
                if at <= 1 {
                    return None;
                }
            }
            at += 1;
        }
        while at < self.leaves {
            at *= 2;
            at += usize::from(exceeds(at));
        }
        Some(low32((at - self.leaves) as u64))
    }

    fn key(&self, tree: usize, at: usize) -> u64 {
        self.nodes.get(at).and_then(|keys| keys.get(tree)).copied().unwrap_or(ABSENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn tournament_matches_scan(slots in 1u32..40, steps in prop::collection::vec((0u32..40, [0u64..6, 0u64..6], 0u32..48), 1..200)) {
            let mut trees = Tournament::<2>::new(slots);
            let mut all: Vec<[u64; 2]> = alloc::vec![[ABSENT; 2]; slots as usize];
            for (slot, keys, start) in steps {
                let keys = keys.map(|key| if key == 0 { ABSENT } else { key });
                if slot < slots {
                    trees.set(slot, keys);
                    all[slot as usize] = keys;
                }
                for tree in 0..2 {
                    prop_assert_eq!(trees.least()[tree], all.iter().map(|keys| keys[tree]).min().unwrap());
                    for limit in 0..7 {
                        let expected = (start..slots).find(|slot| all[*slot as usize][tree] <= limit);
                        prop_assert_eq!(trees.first_from(tree, start, limit), expected);
                    }
                }
            }
        }
    }
}
