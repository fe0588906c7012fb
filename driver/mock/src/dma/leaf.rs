//! Where single pages are that lie close together, as an operating system maps them.
//!
//! What a look-up costs is cache misses. A million mappings in a hash table are tens of megabytes, more than a processor's share
//! of its caches; in words of 4 bytes they are not. So a leaf says of each of its pages only where it is in the file that all
//! of them are parts of, which is how clients map their memory. Pages of another file have to be noted elsewhere.

use super::{Extent, PAGE};
use fpga_pci::DmaAccess;

/// Pages of a leaf.
pub(crate) const PAGES: usize = 512;

/// Bits of a word; 0 is a page that is not noted.
const READS: u32 = 1 << 30;
const WRITES: u32 = 1 << 31;
/// Pages of a file that a word can name: 4 TiB.
const NUMBERS: u32 = READS;

/// The pages of 2 MiB of addresses.
#[derive(Debug)]
pub(crate) struct Leaf {
    words: Box<[u32; PAGES]>,
    used: usize,
    /// The memory that all of them are in.
    slot: u32,
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

impl Leaf {
    /// A leaf for pages of this memory, without any.
    pub(crate) fn new(slot: u32) -> Self {
        Self { words: Box::new([0; PAGES]), used: 0, slot }
    }

    /// Notes the mapping that starts at `start`; whether it can be noted here.
    pub(crate) fn insert(&mut self, start: u64, extent: &Extent) -> bool {
        let Some(word) = word(extent).filter(|_| extent.slot == self.slot) else { return false };
        let Some(place) = self.words.get_mut(index(start)) else { return false };
        self.used += usize::from(*place == 0);
        *place = word;
        true
    }

    /// Forgets the page at `start`; whether it was noted.
    pub(crate) fn remove(&mut self, start: u64) -> bool {
        let word = self.words.get_mut(index(start)).map_or(0, std::mem::take);
        self.used -= usize::from(word != 0);
        word != 0
    }

    /// The page that holds `at`, and where it starts.
    #[inline]
    pub(crate) fn find(&self, at: u64) -> Option<(u64, Extent)> {
        let word = *self.words.get(index(at)).filter(|word| **word != 0)?;
        let access = match (word & READS != 0, word & WRITES != 0) {
            (true, true) => DmaAccess::Both,
            (false, _) => DmaAccess::WriteByDevice,
            (true, false) => DmaAccess::ReadByDevice,
        };
        let offset = u64::from(word & (NUMBERS - 1)) * PAGE;
        Some((at & !(PAGE - 1), Extent { length: PAGE, slot: self.slot, offset, access }))
    }

    /// Pages that are noted.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }
}
