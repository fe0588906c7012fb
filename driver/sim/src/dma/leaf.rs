//! Locations of single pages that are close together, as an operating system maps them.
//!
//! The cost of a look-up is its cache misses. A million mappings in a hash table need tens of megabytes, more than a processor's share of
//! its caches; in words of 4 bytes they fit. A leaf therefore stores for each of its pages only the page number in the file that contains
//! all of them, which is how clients map their memory. Pages of another file are stored elsewhere.

use super::slot_array::SlotArray;
use super::{Extent, PAGE};
use fpga_pci::DmaAccess;

/// Pages of a leaf.
pub(crate) const PAGES: usize = 512;
/// Bytes of its words.
const BYTES: usize = PAGES * size_of::<u32>();

/// Bit of a word: the card may read. A word of 0 is a page that is not mapped.
const READS: u32 = 1 << 30;
const WRITES: u32 = 1 << 31;
/// Number of pages of a file that a word can name: 4 TiB.
const NUMBERS: u32 = READS;

/// Common properties of the words of a leaf.
#[derive(Clone, Copy, Debug)]
struct Common {
    /// Number of mapped pages.
    used: u32,
    /// Memory that contains all of them.
    slot: u32,
}

/// Leaves by number: the pages of 2 MiB of addresses each.
#[derive(Debug)]
pub(crate) struct Leaves {
    words: SlotArray<BYTES>,
    common: Vec<Common>,
    /// Unused leaves; their words are 0.
    free: Vec<usize>,
}

impl Default for Leaves {
    fn default() -> Self {
        Self { words: SlotArray::new(0), common: Vec::new(), free: Vec::new() }
    }
}

/// Word of a mapping, if it is one page that a word can describe.
fn word(extent: &Extent) -> Option<u32> {
    let page = u32::try_from(extent.offset / PAGE).ok().filter(|page| *page < NUMBERS)?;
    let reads = if extent.access.device_reads() { READS } else { 0 };
    let writes = if extent.access.device_writes() { WRITES } else { 0 };
    (extent.length == PAGE && extent.offset.is_multiple_of(PAGE) && reads | writes != 0)
        .then_some(page | reads | writes)
}

/// Index of a page in its leaf.
const fn index(at: u64) -> usize {
    (at / PAGE % PAGES as u64) as usize
}

impl Leaves {
    /// Adds an empty leaf for pages of this memory and returns its number.
    pub(crate) fn add(&mut self, slot: u32) -> usize {
        let common = Common { used: 0, slot };
        let number = self.free.pop().unwrap_or(self.common.len());
        match self.common.get_mut(number) {
            Some(place) => *place = common,
            None => self.common.push(common),
        }
        while self.words.all().len() < self.common.len() {
            self.words.double();
        }
        number
    }

    /// Returns the number of leaves in use.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.common.len() - self.free.len()
    }

    /// Returns the number of mapped pages in all leaves.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.common.iter().map(|common| common.used as usize).sum()
    }

    fn place(&mut self, leaf: usize, at: u64) -> Option<&mut [u8; 4]> {
        self.words.all_mut().get_mut(leaf)?.as_chunks_mut().0.get_mut(index(at))
    }

    /// Adds the mapping that starts at `start`; returns whether this leaf can hold it.
    pub(crate) fn insert(&mut self, leaf: usize, start: u64, extent: &Extent) -> bool {
        let Some(Common { slot, .. }) = self.common.get(leaf) else { return false };
        let Some(word) = word(extent).filter(|_| extent.slot == *slot) else { return false };
        let Some(place) = self.place(leaf, start) else { return false };
        let before = std::mem::replace(place, word.to_ne_bytes());
        if before == [0; 4]
            && let Some(common) = self.common.get_mut(leaf)
        {
            common.used += 1;
        }
        true
    }

    /// Removes the page at `start`. Returns `None` if it was not mapped, otherwise whether the leaf became empty and is now unused.
    pub(crate) fn remove(&mut self, leaf: usize, start: u64) -> Option<bool> {
        let place = self.place(leaf, start).filter(|place| **place != [0; 4])?;
        *place = [0; 4];
        let common = self.common.get_mut(leaf)?;
        common.used -= 1;
        let is_empty = common.used == 0;
        if is_empty {
            self.free.push(leaf);
        }
        Some(is_empty)
    }

    /// Returns the page that contains `at`, and its start.
    #[inline]
    pub(crate) fn find(&self, leaf: usize, at: u64) -> Option<(u64, Extent)> {
        let word = self.words.all().get(leaf)?.as_chunks().0.get(index(at))?;
        let word = Some(u32::from_ne_bytes(*word)).filter(|word| *word != 0)?;
        let slot = self.common.get(leaf)?.slot;
        let access = match (word & READS != 0, word & WRITES != 0) {
            (true, true) => DmaAccess::Both,
            (false, _) => DmaAccess::WriteByDevice,
            (true, false) => DmaAccess::ReadByDevice,
        };
        let offset = u64::from(word & (NUMBERS - 1)) * PAGE;
        Some((at & !(PAGE - 1), Extent { length: PAGE, slot, offset, access }))
    }
}
