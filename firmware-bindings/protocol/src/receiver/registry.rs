//! Receive registry: a fixed number of operations with pending packets (docs/protocol.md 5.1, 5.5).
//!
//! An entry is one cache line with key and mask, and the hash index is tagged, so that a packet reads one line of each.
//! A registry that exceeds the inner caches is prefetched by plain reads for one burst of packets at a time
//! (`benches/registry.rs`). Huge pages made no difference.

use alloc::boxed::Box;

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, NodeId, SegmentIndex, TransferId};
use fpga_registers::CardAddr;

use super::mask::Mask;
use crate::free::FreeSlots;
use crate::non_state::NonState;
use crate::time::Nanos;
use fpga_registers::cast::{index, low16, low32};

/// Identity of an operation among all live ones [E1-5]. An address is not sufficient: two live operations may overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentKey {
    /// Sending node.
    pub source: NodeId,
    /// Incarnation of that node.
    pub incarnation: Incarnation,
    /// Transfer of that node.
    pub transfer: TransferId,
    /// Segment within the transfer.
    pub segment: SegmentIndex,
}

impl SegmentKey {
    const NONE: Self = Self {
        source: NodeId::ANY,
        incarnation: Incarnation::new(0),
        transfer: TransferId::new(0),
        segment: 0,
    };

    /// Returns the key as two words: source with incarnation, and transfer with segment.
    #[inline]
    fn key_words(&self) -> [u64; 2] {
        [
            u64::from(self.source.get()) | u64::from(self.incarnation.get()) << 32,
            u64::from(self.transfer.get()) | u64::from(self.segment) << 32,
        ]
    }

    /// Compares two words instead of four fields. Which field differs is unpredictable, and each comparison of its own
    /// would be a branch that the processor mispredicts.
    #[inline]
    fn is(&self, other: &Self) -> bool {
        let ([who, what], [their_who, their_what]) = (self.key_words(), other.key_words());
        (who ^ their_who) | (what ^ their_what) == 0
    }

    /// Returns a hash of 64 bits, with the best distribution in the high bits: a sum of products, one multiplication
    /// deep.
    ///
    /// For g with g^4 = g + 1, transfer, segment and source are multiplied by the fractions g^-1, g^-2 and g^-3 of the
    /// range. The multiples of these fractions and their sums have the largest minimum distance that three fractions
    /// can have. Therefore the operations of one sender, which differ by small steps in transfer and segment, rarely
    /// collide. Incarnations are random already.
    #[inline]
    fn hash(&self) -> u64 {
        let [who, what] = self.key_words();
        who.wrapping_mul(0x8CB9_2BA7_2F3D_8DD7).wrapping_add(what.wrapping_mul(0xD1B5_4A32_ABC9_8389))
    }
}

/// One operation in progress: all fields that its packets are checked against, in one cache line. Fields that only its
/// start needs are in the record of its transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(align(64))]
pub(super) struct Entry {
    /// [`SegmentKey::NONE`], which no packet carries, if the entry is vacant.
    pub(super) key: SegmentKey,
    pub(super) base: CardAddr,
    /// Packets in memory, as in [`Mask`], unless the registry has wide masks.
    pub(super) mask: u64,
    /// Arrival time of its last packet.
    pub(super) touched: Nanos,
    pub(super) length: u32,
    pub(super) segment_count: u32,
    pub(super) generation: u32,
    pub(super) packets: u16,
    /// Indices of the records of its sender and of its transfer.
    pub(super) source: u16,
    pub(super) transfer: u16,
    /// Index of the memory window that allowed its last packet; the search for the next packet starts there.
    pub(super) window: NonState<u16>,
    pub(super) silent: bool,
    pub(super) notify: bool,
}

const _: () = assert!(size_of::<Entry>() == 64);

impl Entry {
    pub(super) const EMPTY: Self = Self {
        key: SegmentKey::NONE,
        base: CardAddr::ZERO,
        mask: u64::MAX,
        touched: Nanos::ZERO,
        length: 0,
        segment_count: 0,
        generation: 0,
        packets: 0,
        source: 0,
        transfer: 0,
        window: NonState(0),
        silent: false,
        notify: false,
    };

    fn is_live(&self) -> bool {
        self.key != SegmentKey::NONE
    }
}

/// An entry with its mask.
pub(super) struct Operation<'a> {
    pub(super) entry: &'a mut Entry,
    wide: Option<&'a mut Mask>,
}

impl Operation<'_> {
    /// Whether packet `bit` of the operation is in memory.
    #[inline]
    pub(super) fn contains(&self, bit: u16) -> bool {
        match &self.wide {
            None => self.entry.mask >> (bit & 63) & 1 != 0,
            Some(wide) => wide.contains(bit),
        }
    }

    /// Marks packet `bit` of the operation as written. Returns whether all packets are in memory.
    #[inline]
    pub(super) fn insert(&mut self, bit: u16) -> bool {
        match &mut self.wide {
            None => {
                self.entry.mask |= 1 << (bit & 63);
                self.entry.mask == u64::MAX
            }
            Some(wide) => wide.insert(bit),
        }
    }
}

/// Slot of the hash index: an entry's number and, above it, bits of the hash of its key, so that a lookup rarely reads
/// any entry but the one that it searches for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct IndexEntry(u32);

impl IndexEntry {
    const VACANT: Self = Self(0);

    fn new(hash: u64, entry: u16) -> Self {
        Self(Self::tag(hash) | u32::from(entry))
    }

    /// Returns the hash bits below those that select the slot, and one bit that distinguishes it from a vacant slot.
    #[inline]
    fn tag(hash: u64) -> u32 {
        low32(hash >> 14) & 0xFFFE_0000 | 1 << 16
    }

    /// Returns the entry if it may be the one of a key with this tag.
    #[inline]
    fn tagged(self, tag: u32) -> Option<u16> {
        u16::try_from(self.0 ^ tag).ok()
    }

    #[inline]
    const fn entry(self) -> u16 {
        low16(self.0)
    }
}

/// Slots of the hash index per entry.
const INDEX_ENTRIES_PER_OPERATION: usize = 4;

/// Number of entries up to which entries and index (80 KiB) fit the private caches of a processor.
const PREFETCH_THRESHOLD: usize = 1024;

/// Receive registry. A lookup checks the last hit, then a hash index of four tagged slots per entry with linear
/// probing. A packet reads one cache line of the index and one of the entries, independent of their number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registry {
    entries: Box<[Entry]>,
    /// Masks of the entries, if they may be wider than 64 bits.
    wide: Box<[Mask]>,
    places: Box<[IndexEntry]>,
    /// Shift that turns a hash into a position in `places`.
    shift: u32,
    free: FreeSlots,
    /// Entries of a set, of which a key may use any; 0: all entries are one set.
    ways: u32,
    last: NonState<u16>,
}

/// Entries of a set of a hashed registry, as a card without a comparison of all keys has them.
pub(super) const WAYS: u32 = 4;

impl Registry {
    /// Bytes of state of one entry: the entry, its wide mask, its slots of the hash index and one slot of the free
    /// list.
    pub(super) const fn bytes(mask_bits: u16) -> usize {
        let wide = if mask_bits > 64 { size_of::<Mask>() } else { 0 };
        size_of::<Entry>() + wide + INDEX_ENTRIES_PER_OPERATION * size_of::<IndexEntry>() + size_of::<u16>()
    }

    /// Creates a registry of `entries` entries, 1..=65536.
    pub(super) fn new(entries: u32, mask_bits: u16) -> Self {
        let count = index(entries);
        let places = (INDEX_ENTRIES_PER_OPERATION * count).next_power_of_two();
        let wide = if mask_bits > 64 { count } else { 0 };
        Self {
            entries: alloc::vec![Entry::EMPTY; count].into_boxed_slice(),
            wide: alloc::vec![Mask::COMPLETE; wide].into_boxed_slice(),
            places: alloc::vec![IndexEntry::VACANT; places].into_boxed_slice(),
            shift: 64 - places.trailing_zeros(),
            free: FreeSlots::all(entries),
            ways: 0,
            last: NonState(0),
        }
    }

    /// Creates a registry whose keys may use the entries of their set only: a power of two of at least two sets.
    pub(super) fn hashed(entries: u32, mask_bits: u16) -> Self {
        Self { ways: WAYS, ..Self::new(entries, mask_bits) }
    }

    pub(super) fn capacity(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn occupancy(&self) -> u32 {
        self.capacity() - u32::try_from(self.free.len()).unwrap_or(u32::MAX)
    }

    /// Whether an operation of `key` can be registered.
    pub(super) fn has_free(&self, key: &SegmentKey) -> bool {
        if self.ways == 0 { self.free.len() != 0 } else { self.free_way(key).is_some() }
    }

    /// Returns the lowest free entry of the set of `key`. The set is the high part of a sum of products of 16 bits, which is cheap in
    /// hardware (`ni_registry_hash.sv`).
    fn free_way(&self, key: &SegmentKey) -> Option<u16> {
        let sets = (self.capacity() / self.ways).max(1);
        let incarnation = key.incarnation.get();
        let sum = low16(key.transfer.get())
            .wrapping_mul(0xD1B5)
            .wrapping_add(low16(key.segment).wrapping_mul(0xABC9))
            .wrapping_add(low16(key.source.get()).wrapping_mul(0x8CB9))
            .wrapping_add(low16(incarnation) ^ low16(incarnation >> 16));
        let first = ((u32::from(sum) * sets) >> 16) * self.ways;
        (first..first + self.ways).map(low16).find(|slot| !self.is_live(*slot))
    }

    #[inline]
    fn home_index(&self, hash: u64) -> usize {
        index(low32(hash >> self.shift)) & (self.places.len() - 1)
    }

    /// Returns the entry that expects packets of `key`.
    #[inline]
    pub(super) fn find(&mut self, key: &SegmentKey) -> Option<u16> {
        if self.entries[usize::from(self.last.0)].key.is(key) {
            return Some(self.last.0);
        }
        let hash = key.hash();
        let tag = IndexEntry::tag(hash);
        let mut at = self.home_index(hash);
        loop {
            let place = self.places[at];
            if let Some(entry) = place.tagged(tag)
                && self.entries[usize::from(entry)].key.is(key)
            {
                self.last.0 = entry;
                return Some(entry);
            }
            if place == IndexEntry::VACANT {
                return None;
            }
            at = (at + 1) & (self.places.len() - 1);
        }
    }

    /// Whether the registry exceeds the processor's inner caches.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.entries.len() > PREFETCH_THRESHOLD
    }

    /// Reads the cache lines that [`Registry::find`] most likely reads: the key's home slot and the entry that it
    /// names.
    #[inline]
    pub(super) fn prefetch(&self, key: &SegmentKey) {
        let place = self.places[self.home_index(key.hash())];
        let entry = self.entries.get(usize::from(place.entry()));
        // The compiler would remove a read whose value is unused.
        core::hint::black_box(entry.map_or(0, |entry| entry.mask));
    }

    /// Inserts an operation that is not in the registry, with the packets of `mask` in memory; `None` if the registry
    /// is full.
    pub(super) fn insert(&mut self, key: SegmentKey, mask: Mask, entry: Entry) -> Option<u16> {
        let slot = if self.ways == 0 {
            self.free.pop()?
        } else {
            let slot = self.free_way(&key)?;
            self.free.remove(slot);
            slot
        };
        let place = usize::from(slot);
        let generation = self.entries[place].generation.wrapping_add(1);
        self.entries[place] = Entry { key, generation, mask: mask.low(), ..entry };
        if let Some(wide) = self.wide.get_mut(place) {
            *wide = mask;
        }
        // At most a quarter of the index is in use, so a vacant slot is near.
        let hash = key.hash();
        let mut at = self.home_index(hash);
        while self.places[at] != IndexEntry::VACANT {
            at = (at + 1) & (self.places.len() - 1);
        }
        self.places[at] = IndexEntry::new(hash, slot);
        self.last.0 = slot;
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let place = usize::from(slot);
        let Entry { key, generation, .. } = self.entries[place];
        if !self.is_live(slot) {
            return;
        }
        let wrap = self.places.len() - 1;
        let hash = key.hash();
        let mut hole = self.home_index(hash);
        while self.places[hole] != IndexEntry::new(hash, slot) {
            hole = (hole + 1) & wrap;
        }
        // Close the gap by moving back the slots that probed past it. Deletion markers would slow later lookups.
        let mut at = hole;
        loop {
            at = (at + 1) & wrap;
            let place = self.places[at];
            if place == IndexEntry::VACANT {
                break;
            }
            let home = self.home_index(self.entries[usize::from(place.entry())].key.hash());
            if at.wrapping_sub(home) & wrap >= at.wrapping_sub(hole) & wrap {
                self.places[hole] = place;
                hole = at;
            }
        }
        self.places[hole] = IndexEntry::VACANT;
        // Clear the entry: stale fields are not part of the state.
        self.entries[place] = Entry { generation, ..Entry::EMPTY };
        if let Some(wide) = self.wide.get_mut(place) {
            *wide = Mask::COMPLETE;
        }
        self.free.push(slot);
    }

    #[inline]
    pub(super) fn entry(&self, slot: u16) -> &Entry {
        &self.entries[usize::from(slot)]
    }

    /// Returns an operation in progress.
    #[inline]
    pub(super) fn operation(&mut self, slot: u16) -> Operation<'_> {
        let place = usize::from(slot);
        Operation { entry: &mut self.entries[place], wide: self.wide.get_mut(place) }
    }

    /// Returns the mask of an operation.
    pub(super) fn mask(&self, slot: u16) -> Mask {
        let place = usize::from(slot);
        self.wide.get(place).copied().unwrap_or(Mask::from_low(self.entries[place].mask))
    }

    pub(super) fn key(&self, slot: u16) -> &SegmentKey {
        &self.entries[usize::from(slot)].key
    }

    pub(super) fn is_live(&self, slot: u16) -> bool {
        self.entries.get(usize::from(slot)).is_some_and(Entry::is_live)
    }
}

/// View of one registry entry, as the card's window shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryView {
    /// Whether an operation is in progress; if not, every field but `generation` is 0.
    pub valid: bool,
    /// Scheme by which it is received: `registry`, or that of the message in a context.
    pub scheme: Scheme,
    /// Number of uses of the entry.
    pub generation: u32,
    /// Sender.
    pub source: NodeId,
    /// Incarnation of the sender.
    pub incarnation: Incarnation,
    /// Transfer of the sender.
    pub transfer: TransferId,
    /// Segment of the transfer.
    pub segment: SegmentIndex,
    /// Number of segments of the transfer.
    pub segment_count: u32,
    /// Card address of the segment's first byte.
    pub base: CardAddr,
    /// Length of the segment in bytes.
    pub length: u32,
    /// Number of packets of the segment.
    pub expected: u16,
    /// Whether its completion raises no event at the sender.
    pub silent: bool,
    /// Whether the receiver raises a notification when the whole transfer has arrived.
    pub notify: bool,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
    /// Packet of bit 0 of the mask; all packets before it are in memory. 0 for a segment.
    pub first: u32,
    /// Packets in memory from `first` on, one bit each.
    pub mask: [u32; 8],
    /// Time since the last packet.
    pub age: Nanos,
}

impl EntryView {
    /// Creates the view of an entry without an operation.
    #[must_use]
    pub const fn vacant(generation: u32) -> Self {
        Self {
            valid: false,
            scheme: Scheme::Registry,
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
    /// Returns the view of entry `slot`, without the fields that its transfer's record holds.
    pub(super) fn view(&self, slot: u16, now: Nanos) -> Option<EntryView> {
        let entry = self.entries.get(usize::from(slot))?;
        if !entry.is_live() {
            return Some(EntryView::vacant(entry.generation));
        }
        let key = entry.key;
        Some(EntryView {
            valid: true,
            scheme: Scheme::Registry,
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
            transfer_length: 0,
            first: 0,
            mask: self.mask(slot).words(),
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
        /// Compares with a plain map: same results for any order of insertions, removals and lookups, also when the
        /// registry is full and where home slots collide.
        #[test]
        fn registry_matches_map(entries in 1u32..20, steps in prop::collection::vec((0u32..64, any::<bool>()), 1..300)) {
            let mut registry = Registry::new(entries, 32);
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
                        let slot = registry.insert(key(n), Mask::COMPLETE, Entry::EMPTY);
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

    proptest! {
        /// Compares entries of one word and entries with a wide mask with the mask itself, for packets in any order.
        #[test]
        fn registry_operation_matches_mask(
            packets in 1u16..=256,
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..600),
        ) {
            let mut mask = Mask::first_of(packets).unwrap();
            let widths: &[u16] = if packets > 64 { &[256] } else { &[64, 256] };
            let mut registries: Vec<_> = widths.iter().map(|bits| Registry::new(2, *bits)).collect();
            for registry in &mut registries {
                registry.insert(key(1), mask, Entry::EMPTY).unwrap();
            }
            for bit in order.iter().map(|any| u16::try_from(any.index(packets.into())).unwrap()) {
                for registry in &mut registries {
                    let mut operation = registry.operation(0);
                    prop_assert_eq!(operation.contains(bit), mask.contains(bit));
                    let mut after = mask;
                    prop_assert_eq!(operation.insert(bit), after.insert(bit));
                    prop_assert_eq!(registry.mask(0), after);
                    prop_assert_eq!(registry.mask(1), Mask::COMPLETE);
                }
                mask.insert(bit);
            }
            // Removal leaves no stale state.
            for (registry, bits) in registries.iter_mut().zip(widths) {
                registry.remove(0);
                let unused = Registry::new(2, *bits);
                prop_assert_eq!(&registry.wide, &unused.wide);
                prop_assert_eq!(Entry { generation: 0, ..registry.entries[0] }, Entry::EMPTY);
            }
        }
    }

    #[test]
    fn place_of_entry_is_not_vacant_and_has_tag_of_hash() {
        let (low, high) = (0x8000_0000, u64::MAX);
        for hash in [0, low, high] {
            assert_ne!(IndexEntry::new(hash, 0), IndexEntry::VACANT, "{hash:x}");
            for entry in [0, 77, u16::MAX] {
                let place = IndexEntry::new(hash, entry);
                assert_eq!(
                    (place.tagged(IndexEntry::tag(hash)), place.entry()),
                    (Some(entry), entry),
                    "{hash:x}"
                );
            }
        }
        assert_eq!(IndexEntry::new(low, 77).tagged(IndexEntry::tag(0)), None);
        assert_eq!(IndexEntry::new(low, 77).tagged(IndexEntry::tag(high)), None);
    }

    #[test]
    fn registry_all_16_bit_slots_are_usable() {
        // The index distinguishes entry 0 from a vacant slot, and entry 65535 from all others.
        let mut registry = Registry::new(1 << 16, 32);
        assert!(registry.is_large());
        let slots: Vec<_> = (0..=u32::from(u16::MAX))
            .map(|n| registry.insert(key(n), Mask::COMPLETE, Entry::EMPTY))
            .collect();
        assert!(!registry.has_free(&key(0)));
        for (n, slot) in (0..).zip(&slots) {
            registry.prefetch(&key(n));
            assert_eq!(registry.find(&key(n)), *slot);
        }
        assert_eq!(slots.last(), Some(&Some(u16::MAX)));
        for (n, slot) in (0..).zip(slots) {
            registry.remove(slot.unwrap());
            assert_eq!(registry.find(&key(n)), None);
        }
        assert!(registry.places.iter().all(|place| *place == IndexEntry::VACANT));
    }

    #[test]
    fn registry_operations_of_one_sender_stay_separate() {
        // 64 operations in 256 slots, starting at any transfer: by transfer, by segment, and 8 x 8. At most one in
        // eight may find its home slot taken; with random slots it is one in eight on average.
        for first in [0u32, 1000, u32::MAX - 64] {
            for (transfers, segments) in [(64u32, 1u32), (1, 64), (8, 8)] {
                let registry = Registry::new(64, 32);
                let mut homes: Vec<_> = (0..transfers)
                    .flat_map(|t| (0..segments).map(move |segment| (first.wrapping_add(t), segment)))
                    .map(|(transfer, segment)| {
                        let key = SegmentKey {
                            source: NodeId::new(5),
                            incarnation: Incarnation::new(0x1234_5678),
                            transfer: TransferId::new(transfer),
                            segment,
                        };
                        registry.home_index(key.hash())
                    })
                    .collect();
                homes.sort_unstable();
                homes.dedup();
                assert!(homes.len() >= 56, "{} homes from {first}, {transfers} x {segments}", homes.len());
            }
        }
    }
}
