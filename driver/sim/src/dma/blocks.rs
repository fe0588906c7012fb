//! Index of the mappings that are one aligned block of a page-table size: 4 KiB, 2 MiB, 1 GiB or 512 GiB.
//!
//! An operating system maps page by page (a guest's kernel with a translating IOMMU creates a million mappings of 4 KiB), and every DMA
//! must find one of them. In a tree by address this costs a cache miss for nearly every level. A multi-level table needs one or two misses,
//! but scattered addresses need a table each. This is a hash table with open addressing whose entries are complete: one cache miss and 32
//! bytes per mapping at any address. Four neighbouring pages share a cache line, so a DMA over many pages does not miss for each page.
//!
//! Where many pages of a 2 MiB block are mapped, the block's entry names a leaf (module `leaf`) that holds them: a million consecutive
//! pages need 4 MiB of leaves, which stay in the caches.

mod table;

use crate::dma::leaf::{Leaves, PAGES};
use crate::dma::{Extent, PAGE};
use fpga_pci::DmaAccess;
use std::hash::{BuildHasher, RandomState};
use table::{Entry, Table};

/// Address bits between two sizes.
const BITS: u32 = 9;
const LEVELS: usize = 4;

/// Bit of a value: entry in use. A value of 0 is an empty entry.
const PRESENT: u64 = 1;
/// Bit of a value: the card may read.
const READS: u64 = 1 << 1;
const WRITES: u64 = 1 << 2;
/// Bit of a value: the value is not a mapping but the number of a leaf, from [`SLOT_SHIFT`] on.
const LEAF: u64 = 1 << 3;
/// Position of the number of the memory.
const SLOT_SHIFT: u32 = 4;
const SLOT_BITS: u32 = 24;
/// Position of the page number in that memory.
const OFFSET_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;

/// Number of memories that entries can name.
pub(crate) const SLOTS: u32 = 1 << SLOT_BITS;
/// Number of pages of a memory that entries can name.
const OFFSETS: u64 = 1 << (64 - OFFSET_SHIFT);

/// Number of neighbours that share a cache line: 4 entries of 16 bytes.
const ENTRIES_PER_CACHE_LINE: u64 = 4;
/// Level of the blocks that can be leaves.
const LEAF_LEVEL: usize = 1;
/// Bytes of addresses that a leaf covers.
pub(crate) const LEAF_BYTES: u64 = PAGE * PAGES as u64;
/// Minimum number of mapped pages for which a leaf needs no more memory than the entries of the table.
pub(crate) const MIN_LEAF_PAGES: usize = PAGES * size_of::<u32>() / (2 * size_of::<Entry>());

/// Initial number of entries. A power of two, like every later number.
const MIN_ENTRIES: usize = 64;

/// Hash table of blocks. An entry's key consists of the block's size and its number among the blocks of that size.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// Entries, at most half of them in use, so that a search is short.
    entries: Table,
    used: usize,
    /// Number of blocks of each size: sizes without blocks are not searched.
    levels: [usize; LEVELS],
    leaves: Leaves,
    /// Random seed: a client that chooses the addresses must not be able to choose the collisions.
    seed: u64,
}

impl Default for Blocks {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        Self {
            entries: Table::new(MIN_ENTRIES),
            used: 0,
            levels: [0; LEVELS],
            leaves: Leaves::default(),
            seed,
        }
    }
}

/// log2 of the bytes of a block.
#[expect(clippy::cast_possible_truncation, reason = "below LEVELS")]
const fn bits(level: usize) -> u32 {
    PAGE.trailing_zeros() + BITS * level as u32
}

/// Returns the level at which `length` bytes at `start` are one block, if any.
fn level_of(start: u64, length: u64) -> Option<usize> {
    (0..LEVELS).find(|level| length == 1 << bits(*level)).filter(|_| start.is_multiple_of(length))
}

/// Key of the block of this size that contains `at`.
const fn key(at: u64, level: usize) -> u64 {
    (at >> bits(level)) * LEVELS as u64 + level as u64
}

impl Blocks {
    /// Adds the mapping if it is a block that an entry can describe. It must not overlap another one. Returns whether to try to
    /// [`gather`](Self::gather) the pages around it.
    pub(crate) fn insert(&mut self, start: u64, extent: &Extent) -> bool {
        let (Some(level), Some(value)) = (level_of(start, extent.length), encode(extent)) else {
            return false;
        };
        if level == 0
            && let Some(leaf) = self.leaf(start)
            && self.leaves.insert(leaf, start, extent)
        {
            return false;
        }
        self.add(Entry { key: key(start, level), value });
        if let Some(count) = self.levels.get_mut(level) {
            *count += 1;
        }
        // A periodic check that any order of many page mappings reaches.
        level == 0 && (start / PAGE).is_multiple_of(MIN_LEAF_PAGES as u64)
    }

    /// Moves the pages of the block around `at` into a leaf. `pages` are those of one memory that have entries of their own.
    pub(crate) fn gather<'a>(&mut self, at: u64, slot: u32, pages: impl Iterator<Item = (u64, &'a Extent)>) {
        if self.leaf(at).is_some() {
            return;
        }
        let number = self.leaves.add(slot);
        for (start, extent) in pages {
            if self.leaves.insert(number, start, extent) && self.take(key(start, 0)).is_some() {
                self.count_down(0);
            }
        }
        self.add(Entry { key: key(at, LEAF_LEVEL), value: PRESENT | LEAF | (number as u64) << SLOT_SHIFT });
    }

    /// Removes the mapping if it is in the index.
    pub(crate) fn remove(&mut self, start: u64, length: u64) {
        let Some(level) = level_of(start, length) else { return };
        if level == 0
            && let Some(leaf) = self.leaf(start)
            && let Some(is_empty) = self.leaves.remove(leaf, start)
        {
            if is_empty {
                self.take(key(start, LEAF_LEVEL));
            }
        } else if self.take(key(start, level)).is_some() {
            self.count_down(level);
        }
        if self.used == 0 {
            *self = Self::default();
        }
    }

    fn count_down(&mut self, level: usize) {
        if let Some(count) = self.levels.get_mut(level) {
            *count -= 1;
        }
    }

    /// Adds an entry that is not in the table.
    fn add(&mut self, entry: Entry) {
        if (self.used + 1) * 2 > self.entries.len() {
            let larger = Table::new(self.entries.len() * 2);
            for entry in std::mem::replace(&mut self.entries, larger).filled() {
                self.put(entry);
            }
        }
        self.put(entry);
        self.used += 1;
    }

    /// Removes an entry, if present.
    fn take(&mut self, key: u64) -> Option<()> {
        let mut hole = self.position(key)?;
        self.used -= 1;
        // Entries that follow without a gap move into the hole if it lies between their home index and their position: no search may end
        // too early.
        let mut at = hole;
        loop {
            at = self.after(at);
            let entry = self.entry(at);
            if entry.value == 0 {
                break;
            }
            let (distance, gap) = (self.distance(self.home_index(entry.key), at), self.distance(hole, at));
            if distance >= gap {
                self.set(hole, entry);
                hole = at;
            }
        }
        self.set(hole, Entry::default());
        Some(())
    }

    /// Returns the number of the leaf for `at`.
    #[inline]
    fn leaf(&self, at: u64) -> Option<usize> {
        if self.leaves.len() == 0 {
            return None;
        }
        let value = self.entry(self.position(key(at, LEAF_LEVEL))?).value;
        (value & LEAF != 0).then(|| usize::try_from(value >> SLOT_SHIFT).ok())?
    }

    /// Returns the block that contains `at`, and its start.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<(u64, Extent)> {
        if let Some(leaf) = self.leaf(at)
            && let Some(found) = self.leaves.find(leaf, at)
        {
            return Some(found);
        }
        for (level, count) in self.levels.iter().enumerate() {
            if *count > 0
                && let Some(position) = self.position(key(at, level))
                && let value = self.entry(position).value
                && value & LEAF == 0
            {
                let size = 1 << bits(level);
                return Some((at & !(size - 1), decode(value, size)));
            }
        }
        None
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the number of blocks and number of leaves.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        let leaves = self.leaves.len();
        (self.used - leaves + self.leaves.used(), leaves)
    }

    fn put(&mut self, entry: Entry) {
        let mut at = self.home_index(entry.key);
        while self.entry(at).value != 0 {
            at = self.after(at);
        }
        self.set(at, entry);
    }

    #[inline]
    fn position(&self, key: u64) -> Option<usize> {
        let mut at = self.home_index(key);
        loop {
            let entry = self.entry(at);
            if entry.value == 0 {
                return None;
            }
            if entry.key == key {
                return Some(at);
            }
            at = self.after(at);
        }
    }

    /// Start of the search for a key: randomised, but next to that of the neighbouring page.
    #[inline]
    fn home_index(&self, key: u64) -> usize {
        let page = key / LEVELS as u64;
        let product = u128::from((page / ENTRIES_PER_CACHE_LINE) ^ self.seed) * 0x9E37_79B9_7F4A_7C15;
        #[expect(clippy::cast_possible_truncation, reason = "bits of a hash")]
        let hash = (product >> 64) as usize ^ product as usize ^ (key % LEVELS as u64) as usize;
        #[expect(clippy::cast_possible_truncation, reason = "below NEIGHBOURS")]
        let place =
            hash.wrapping_mul(ENTRIES_PER_CACHE_LINE as usize) | (page % ENTRIES_PER_CACHE_LINE) as usize;
        place & (self.entries.len() - 1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }

    /// Returns the entry at `at`. All positions are below the number of entries.
    #[inline]
    fn entry(&self, at: usize) -> Entry {
        self.entries.get(at)
    }

    fn set(&mut self, at: usize, entry: Entry) {
        self.entries.set(at, entry);
    }
}

fn encode(extent: &Extent) -> Option<u64> {
    let page = extent.offset / PAGE;
    let fits = extent.offset.is_multiple_of(PAGE) && page < OFFSETS && extent.slot < SLOTS;
    let reads = if extent.access.device_reads() { READS } else { 0 };
    let writes = if extent.access.device_writes() { WRITES } else { 0 };
    fits.then_some(PRESENT | reads | writes | u64::from(extent.slot) << SLOT_SHIFT | page << OFFSET_SHIFT)
}

fn decode(value: u64, length: u64) -> Extent {
    let access = match (value & READS != 0, value & WRITES != 0) {
        (true, true) => DmaAccess::Both,
        (false, _) => DmaAccess::WriteByDevice,
        (true, false) => DmaAccess::ReadByDevice,
    };
    let slot = u32::try_from(value >> SLOT_SHIFT & u64::from(SLOTS - 1)).unwrap_or(0);
    Extent { length, slot, offset: (value >> OFFSET_SHIFT) * PAGE, access }
}
