//! Hash index of the slots of a fixed table: finds the slot of a key in constant time, and allocates only at construction.
//!
//! Slots with keys of the same hash are chained. The keys are in the table itself: the caller compares them. The index
//! follows from the table, so that it is not used in comparisons of states.

use alloc::boxed::Box;
use core::hash::{Hash, Hasher};

use fpga_registers::cast::index;

/// Value for "no slot".
const NONE: u16 = u16::MAX;

/// Slots of a table of at most 65535 by the hash of their keys.
#[derive(Clone, Debug)]
pub(crate) struct SlotIndex {
    /// First slot of each hash.
    heads: Box<[u16]>,
    /// Per slot, the next one of the same hash.
    next: Box<[u16]>,
    shift: u32,
}

impl PartialEq for SlotIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SlotIndex {}

impl Hash for SlotIndex {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl SlotIndex {
    /// Bytes of state per slot, and per hash.
    pub(crate) const BYTES: usize = size_of::<u16>();

    pub(crate) fn new(slots: u32) -> Self {
        let heads = Self::heads(slots);
        Self {
            heads: alloc::vec![NONE; heads].into_boxed_slice(),
            next: alloc::vec![NONE; index(slots)].into_boxed_slice(),
            shift: 64 - heads.trailing_zeros(),
        }
    }

    /// Returns the number of hashes for a table of `slots`.
    pub(crate) fn heads(slots: u32) -> usize {
        index(slots).next_power_of_two().max(2)
    }

    fn home(&self, key: u64) -> usize {
        usize::try_from(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift).unwrap_or(0)
    }

    /// Returns the slot with `key` that `is_wanted`.
    pub(crate) fn find(&self, key: u64, mut is_wanted: impl FnMut(u16) -> bool) -> Option<u16> {
        let mut slot = self.heads.get(self.home(key)).copied()?;
        while slot != NONE {
            if is_wanted(slot) {
                return Some(slot);
            }
            slot = self.next.get(usize::from(slot)).copied()?;
        }
        None
    }

    /// Adds a slot that is not in the index.
    pub(crate) fn insert(&mut self, key: u64, slot: u16) {
        let home = self.home(key);
        if let (Some(head), Some(next)) = (self.heads.get_mut(home), self.next.get_mut(usize::from(slot))) {
            *next = core::mem::replace(head, slot);
        }
    }

    /// Removes a slot that was added with `key`.
    pub(crate) fn remove(&mut self, key: u64, slot: u16) {
        let home = self.home(key);
        let after = self.next.get(usize::from(slot)).copied().unwrap_or(NONE);
        let Some(head) = self.heads.get_mut(home) else { return };
        if *head == slot {
            *head = after;
            return;
        }
        let mut at = *head;
        while let Some(next) = self.next.get_mut(usize::from(at)) {
            if *next == slot {
                *next = after;
                return;
            }
            at = *next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slot_index_matches_map(steps in prop::collection::vec((0u16..20, 0u64..12), 1..200)) {
            let mut slots = SlotIndex::new(20);
            let mut map: BTreeMap<u16, u64> = BTreeMap::new();
            for (slot, key) in steps {
                match map.remove(&slot) {
                    Some(key) => slots.remove(key, slot),
                    None => {
                        slots.insert(key, slot);
                        map.insert(slot, key);
                    }
                }
                for key in 0..12 {
                    let mut found = Vec::new();
                    while let Some(slot) = slots.find(key, |slot| map.get(&slot) == Some(&key) && !found.contains(&slot)) {
                        found.push(slot);
                    }
                    found.sort_unstable();
                    let expected: Vec<u16> = map.iter().filter(|(_, at)| **at == key).map(|(slot, _)| *slot).collect();
                    prop_assert_eq!(found, expected);
                }
            }
        }
    }
}
