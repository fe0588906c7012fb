//! Where single pages are that lie close together, as an operating system maps them.
//!
//! What a look-up costs is cache misses. A million mappings in a hash table are tens of megabytes, more than a processor's share
//! of its caches; in words of 4 bytes they are not. So a leaf says of each of its pages only where it is in the file that all
//! of them are parts of, which is how clients map their memory. Pages of another file have to be noted elsewhere.

use super::slot_array::SlotArray;
use super::{Extent, PAGE};
use fpga_pci::DmaAccess;

/// Pages of a leaf.
pub(crate) const PAGES: usize = 512;
/// Bytes of its words.
const BYTES: usize = PAGES * size_of::<u32>();

/// Bits of a word; 0 is a page that is not noted.
const READS: u32 = 1 << 30;
const WRITES: u32 = 1 << 31;
/// Pages of a file that a word can name: 4 TiB.
const NUMBERS: u32 = READS;

/// What the words of a leaf have in common.
#[derive(Clone, Copy, Debug)]
struct Common {
    /// Pages that are noted.
    used: u32,
    /// The memory that all of them are in.
    slot: u32,
}

/// Leaves by number: the pages of 2 MiB of addresses each.
#[derive(Debug)]
pub(crate) struct Leaves {
    words: SlotArray<BYTES>,
    common: Vec<Common>,
    /// Those that are not in use; their words are 0.
    free: Vec<usize>,
}

impl Default for Leaves {
    fn default() -> Self {
        Self { words: SlotArray::new(0), common: Vec::new(), free: Vec::new() }
    }
}

/// The word of a mapping, if it is one page that a word can describe.
fn word(extent: &Extent) -> Option<u32> {
    let page = u32::try_from(extent.offset / PAGE).ok().filter(|page| *page < NUMBERS)?;
    let reads = if extent.access.device_reads() { READS } else { 0 };
    let writes = if extent.access.device_writes() { WRITES } else { 0 };
    (extent.length == PAGE && extent.offset.is_multiple_of(PAGE) && reads | writes != 0)
        .then_some(page | reads | writes)
}

/// Which page of its leaf.
const fn index(at: u64) -> usize {
    (at / PAGE % PAGES as u64) as usize
}

impl Leaves {
    /// A leaf for pages of this memory, without any.
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

    /// Leaves in use.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.common.len() - self.free.len()
    }

    /// Pages that are noted in all of them.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.common.iter().map(|common| common.used as usize).sum()
    }

    fn place(&mut self, leaf: usize, at: u64) -> Option<&mut [u8; 4]> {
        self.words.all_mut().get_mut(leaf)?.as_chunks_mut().0.get_mut(index(at))
    }

    /// Notes the mapping that starts at `start`; whether it can be noted in this leaf.
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

    /// Forgets the page at `start`. `None` if it was not noted; otherwise whether the leaf, which was the last that it held, is no
    /// longer in use.
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

    /// The page that holds `at`, and where it starts.
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
