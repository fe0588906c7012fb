//! The receive registry: a fixed number of operations that packets are expected for (spec 2.2.1, 2.2.3).

use alloc::boxed::Box;

use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::mask::Mask;
use crate::aside::Aside;
use crate::cast::{index, low16, low32};
use crate::free::FreeSlots;
use crate::time::Nanos;

/// What names an operation among all live ones [E1-5]. An address is no name: two live operations may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentKey {
    /// The sending node.
    pub source: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Its transfer.
    pub transfer: TransferId,
    /// The segment within it.
    pub segment: SegmentIndex,
}

impl SegmentKey {
    const NONE: Self = Self {
        source: NodeId::ANY,
        incarnation: Incarnation::new(0),
        transfer: TransferId::new(0),
        segment: 0,
    };

    /// Spread over 64 bits, the highest best: a sum of multiples, one multiplication deep.
    ///
    /// Transfer, segment and source count in steps of g^-1, g^-2 and g^-3 of the whole, where g^4 = g + 1: the multiples of
    /// these fractions, and their sums, stay as far from each other as three fractions can. So the operations of one
    /// sender, which differ by small steps in transfer and segment, hardly meet. Incarnations are random already.
    #[inline]
    fn hash(&self) -> u64 {
        let who = u64::from(self.source.get()) | u64::from(self.incarnation.get()) << 32;
        let what = u64::from(self.transfer.get()) | u64::from(self.segment) << 32;
        who.wrapping_mul(0x8CB9_2BA7_2F3D_8DD7).wrapping_add(what.wrapping_mul(0xD1B5_4A32_ABC9_8389))
    }
}

/// One operation in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Entry {
    pub(super) generation: u32,
    pub(super) segment_count: u32,
    pub(super) base: CardAddr,
    pub(super) length: u32,
    pub(super) packets: u16,
    pub(super) silent: bool,
    pub(super) notify: bool,
    /// Records of its sender and of its transfer.
    pub(super) source: u16,
    pub(super) transfer: u16,
    pub(super) transfer_length: u64,
    /// The memory window that allowed its last packet: where to look first for the next.
    pub(super) window: Aside<u16>,
    /// When its last packet arrived.
    pub(super) touched: Nanos,
    pub(super) mask: Mask,
}

impl Entry {
    pub(super) const EMPTY: Self = Self {
        generation: 0,
        segment_count: 0,
        base: CardAddr::ZERO,
        length: 0,
        packets: 0,
        silent: false,
        notify: false,
        source: 0,
        transfer: 0,
        transfer_length: 0,
        window: Aside(0),
        touched: Nanos::ZERO,
        mask: Mask::COMPLETE,
    };
}

/// A slot of the hash index that leads nowhere. Every number of 16 bits is an entry.
const VACANT: u32 = u32::MAX;

/// The registry. Lookup is a check of the last hit, then a hash index of four slots per entry with linear probing; keys lie
/// apart from the entries in one compact array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registry {
    keys: Box<[SegmentKey]>,
    live: Box<[bool]>,
    entries: Box<[Entry]>,
    slots: Box<[u32]>,
    /// What turns a hash into a place in `slots`.
    shift: u32,
    free: FreeSlots,
    last: Aside<u16>,
}

impl Registry {
    /// Bytes of state of one entry: key, whether it lives, itself, four places of the hash index and one of the list of free
    /// ones.
    pub(super) const BYTES: usize = size_of::<SegmentKey>()
        + size_of::<bool>()
        + size_of::<Entry>()
        + 4 * size_of::<u32>()
        + size_of::<u16>();

    /// `entries`: 1..=65536.
    pub(super) fn new(entries: u32) -> Self {
        let count = index(entries);
        let slots = (4 * count).next_power_of_two();
        Self {
            keys: alloc::vec![SegmentKey::NONE; count].into_boxed_slice(),
            live: alloc::vec![false; count].into_boxed_slice(),
            entries: alloc::vec![Entry::EMPTY; count].into_boxed_slice(),
            slots: alloc::vec![VACANT; slots].into_boxed_slice(),
            shift: 64 - slots.trailing_zeros(),
            free: FreeSlots::all(entries),
            last: Aside(0),
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn occupancy(&self) -> u32 {
        self.capacity() - u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.len() != 0
    }

    #[inline]
    fn home(&self, key: &SegmentKey) -> usize {
        index(low32(key.hash() >> self.shift)) & (self.slots.len() - 1)
    }

    /// The entry that expects packets of `key`.
    #[inline]
    pub(super) fn find(&mut self, key: &SegmentKey) -> Option<u16> {
        let last = usize::from(self.last.0);
        // A released entry's key is overwritten with one that no packet carries.
        if self.keys[last] == *key {
            return Some(self.last.0);
        }
        let mut at = self.home(key);
        loop {
            let entry = self.slots[at];
            if entry == VACANT {
                return None;
            }
            if self.keys[index(entry)] == *key {
                let entry = low16(entry);
                self.last.0 = entry;
                return Some(entry);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Enters an operation that is not in the registry; `None` if it is full.
    pub(super) fn insert(&mut self, key: SegmentKey, entry: Entry) -> Option<u16> {
        let slot = self.free.pop()?;
        let place = usize::from(slot);
        let generation = self.entries[place].generation.wrapping_add(1);
        self.entries[place] = Entry { generation, ..entry };
        self.keys[place] = key;
        self.live[place] = true;
        // At most a quarter of the index is in use, so a vacant slot is near.
        let mut at = self.home(&key);
        while self.slots[at] != VACANT {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot.into();
        self.last.0 = slot;
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let place = usize::from(slot);
        if !core::mem::take(&mut self.live[place]) {
            return;
        }
        let wrap = self.slots.len() - 1;
        let mut hole = self.home(&self.keys[place]);
        while self.slots[hole] != u32::from(slot) {
            hole = (hole + 1) & wrap;
        }
        // Closes the gap by moving back what probed past it: no grave stones that would slow later lookups.
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let entry = self.slots[at];
            if entry == VACANT {
                break;
            }
            let home = self.home(&self.keys[index(entry)]);
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = VACANT;
        self.keys[place] = SegmentKey::NONE;
        self.free.push(slot);
    }

    #[inline]
    pub(super) fn entry(&self, slot: u16) -> &Entry {
        &self.entries[usize::from(slot)]
    }

    #[inline]
    pub(super) fn entry_mut(&mut self, slot: u16) -> &mut Entry {
        &mut self.entries[usize::from(slot)]
    }

    pub(super) fn key(&self, slot: u16) -> &SegmentKey {
        &self.keys[usize::from(slot)]
    }

    pub(super) fn is_live(&self, slot: u16) -> bool {
        self.live.get(usize::from(slot)).copied().unwrap_or(false)
    }
}

/// One registry entry as the card's window shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Whether an operation is in progress here; everything but `generation` is 0 if not.
    pub valid: bool,
    /// How often the entry was used.
    pub generation: u32,
    /// Sender.
    pub source: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Its transfer.
    pub transfer: TransferId,
    /// The segment.
    pub segment: SegmentIndex,
    /// Segments of the transfer.
    pub segment_count: u32,
    /// Card address of the segment's first byte.
    pub base: CardAddr,
    /// Bytes of the segment.
    pub length: u32,
    /// Packets of the segment.
    pub expected: u16,
    /// Whether its completion posts no notice at the sender.
    pub silent: bool,
    /// Whether the receiver posts a notice when the whole transfer has arrived.
    pub notify: bool,
    /// Bytes of the transfer.
    pub transfer_length: u64,
    /// The packet that the mask's bit 0 stands for, all before which are in memory: 0 for a segment.
    pub first: u32,
    /// Which packets from there on are in memory.
    pub mask: [u32; 8],
    /// Time since the last packet.
    pub age: Nanos,
}

impl EntryView {
    /// An entry without an operation.
    #[must_use]
    pub const fn vacant(generation: u32) -> Self {
        Self {
            valid: false,
            generation,
            source: NodeId::new(0),
            incarnation: Incarnation::new(0),
            transfer: TransferId::new(0),
            segment: 0,
            segment_count: 0,
            base: CardAddr::ZERO,
            length: 0,
            expected: 0,
            silent: false,
            notify: false,
            transfer_length: 0,
            first: 0,
            mask: [0; 8],
            age: Nanos::ZERO,
        }
    }
}

impl Registry {
    pub(super) fn view(&self, slot: u16, now: Nanos) -> Option<EntryView> {
        let entry = self.entries.get(usize::from(slot))?;
        if !self.is_live(slot) {
            return Some(EntryView::vacant(entry.generation));
        }
        let key = self.key(slot);
        Some(EntryView {
            valid: true,
            generation: entry.generation,
            source: key.source,
            incarnation: key.incarnation,
            transfer: key.transfer,
            segment: key.segment,
            segment_count: entry.segment_count,
            base: entry.base,
            length: entry.length,
            expected: entry.packets,
            silent: entry.silent,
            notify: entry.notify,
            transfer_length: entry.transfer_length,
            first: 0,
            mask: entry.mask.words(),
            age: now.saturating_sub(entry.touched),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn key(n: u32) -> SegmentKey {
        SegmentKey {
            source: NodeId::new(n & 1),
            incarnation: Incarnation::new(n >> 1 & 1),
            transfer: TransferId::new(n >> 2 & 3),
            segment: n >> 4,
        }
    }

    proptest! {
        /// Against a plain map: same answers through any order of insertions, removals and lookups, also when the registry
        /// is full and where homes collide.
        #[test]
        fn finds_what_a_map_finds(entries in 1u32..20, steps in prop::collection::vec((0u32..64, any::<bool>()), 1..300)) {
            let mut registry = Registry::new(entries);
            let mut map = BTreeMap::new();
            for (n, remove) in steps {
                let slot = registry.find(&key(n));
                prop_assert_eq!(slot, map.get(&n).copied());
                match slot {
                    Some(slot) if remove => {
                        registry.remove(slot);
                        map.remove(&n);
                        prop_assert!(!registry.is_live(slot));
                    }
                    Some(slot) => prop_assert_eq!(registry.key(slot), &key(n)),
                    None => {
                        let slot = registry.insert(key(n), Entry::EMPTY);
                        prop_assert_eq!(slot.is_some(), map.len() < entries as usize);
                        map.extend(slot.map(|slot| (n, slot)));
                    }
                }
                prop_assert_eq!(registry.occupancy() as usize, map.len());
                for probe in 0..64 {
                    prop_assert_eq!(registry.find(&key(probe)), map.get(&probe).copied());
                }
            }
        }
    }

    #[test]
    fn operations_of_one_sender_do_not_meet() {
        // 64 operations in 256 places, from any transfer on: by transfer, by segment, and 8 x 8. At most one in eight may
        // find its place taken; random places would be taken for one in eight on average.
        for first in [0u32, 1000, u32::MAX - 64] {
            for (transfers, segments) in [(64u32, 1u32), (1, 64), (8, 8)] {
                let registry = Registry::new(64);
                let mut homes: Vec<_> = (0..transfers)
                    .flat_map(|t| (0..segments).map(move |segment| (first.wrapping_add(t), segment)))
                    .map(|(transfer, segment)| {
                        registry.home(&SegmentKey {
                            source: NodeId::new(5),
                            incarnation: Incarnation::new(0x1234_5678),
                            transfer: TransferId::new(transfer),
                            segment,
                        })
                    })
                    .collect();
                homes.sort_unstable();
                homes.dedup();
                assert!(homes.len() >= 56, "{} homes from {first}, {transfers} x {segments}", homes.len());
            }
        }
    }
}
