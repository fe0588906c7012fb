//! Card memory: one flat mapping, backed on demand.
//!
//! A card has gigabytes; a test uses little of them. The whole range is mapped at once without reserving memory or swap. Unwritten memory
//! costs nothing and reads as zeros, and an address is an offset.

use memmap2::{Advice, MmapMut, MmapOptions};
use std::fmt;

/// Unit of work of the engines, and granule of [`FlatMemory::resident_pages`].
pub(crate) const PAGE: usize = 64 * 1024;

/// Memory addressed by offset from its own start.
pub(crate) struct FlatMemory {
    bytes: MmapMut,
    written: Written,
}

/// Bitmap of the pages that were written.
pub(crate) struct Written {
    bits: Vec<u64>,
    pages: usize,
    /// Page written last; most writes go to the same page again.
    last: usize,
}

impl Written {
    #[inline]
    pub(crate) fn mark(&mut self, page: usize) {
        if page != self.last {
            self.mark_other(page);
        }
    }

    fn mark_other(&mut self, page: usize) {
        self.last = page;
        if let Some(word) = self.bits.get_mut(page / 64) {
            let bit = 1 << (page % 64);
            self.pages += usize::from(*word & bit == 0);
            *word |= bit;
        }
    }
}

// Manual implementations, here and below: gigabytes of content do not belong in a message.
impl fmt::Debug for FlatMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlatMemory")
            .field("size", &self.bytes.len())
            .field("pages", &self.written.pages)
            .finish()
    }
}

impl FlatMemory {
    /// Creates memory of `size` bytes; `size` is a multiple of [`PAGE`] (the description is checked).
    ///
    /// # Errors
    /// The error of the operating system if it does not provide the address space.
    pub(crate) fn new(size: u64) -> std::io::Result<Self> {
        let length = usize::try_from(size).map_err(|_| std::io::ErrorKind::OutOfMemory)?;
        let bytes = MmapOptions::new().len(length).no_reserve_swap().map_anon()?;
        // Huge pages make long copies a fifth faster. A kernel without them is not an error.
        let _ = bytes.advise(Advice::HugePage);
        let bits = vec![0; length.div_ceil(PAGE).div_ceil(64)];
        Ok(Self { bytes, written: Written { bits, pages: 0, last: usize::MAX } })
    }

    #[inline]
    pub(crate) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Pages of [`PAGE`] bytes that were written at least once.
    pub(crate) const fn resident_pages(&self) -> usize {
        self.written.pages
    }

    /// Bytes from `offset` to the end of its page, at most `most`; `None` past the end of memory.
    #[inline]
    pub(crate) fn slice(&self, offset: u64, most: usize) -> Option<&[u8]> {
        let (start, end) = self.within_page(offset, most)?;
        self.bytes.get(start..end)
    }

    /// Mutable variant of [`Self::slice`].
    #[inline]
    pub(crate) fn slice_mut(&mut self, offset: u64, most: usize) -> Option<&mut [u8]> {
        let (start, end) = self.within_page(offset, most)?;
        self.written.mark(start / PAGE);
        self.bytes.get_mut(start..end)
    }

    /// The `length` bytes from `offset`, for writing; `None` if they exceed memory.
    pub(crate) fn range_mut(&mut self, offset: u64, length: usize) -> Option<&mut [u8]> {
        let start = usize::try_from(offset).ok()?;
        let bytes = self.bytes.get_mut(start..start.checked_add(length)?)?;
        if length > 0 {
            (start / PAGE..=(start + length - 1) / PAGE).for_each(|page| self.written.mark(page));
        }
        Some(bytes)
    }

    /// All pages, and the bitmap that a write has to update.
    #[inline]
    pub(crate) fn pages(&mut self) -> (&mut [[u8; PAGE]], &mut Written) {
        (self.bytes.as_chunks_mut().0, &mut self.written)
    }

    /// Copies `count` bytes within memory as if through a buffer; `None` if either range exceeds memory.
    pub(crate) fn copy(&mut self, from: u64, to: u64, count: usize) -> Option<()> {
        let from = usize::try_from(from).ok()?;
        let to = usize::try_from(to).ok()?;
        let end = to.checked_add(count)?;
        if from.checked_add(count)? > self.bytes.len() || end > self.bytes.len() {
            return None;
        }
        if count > 0 {
            (to / PAGE..=(end - 1) / PAGE).for_each(|page| self.written.mark(page));
        }
        self.bytes.copy_within(from..from + count, to);
        Some(())
    }

    /// Zeroes the memory and marks all pages as unwritten.
    pub(crate) fn clear(&mut self) {
        let pages = self.bytes.as_chunks_mut::<PAGE>().0;
        for (index, word) in self.written.bits.iter_mut().enumerate() {
            let mut bits = std::mem::take(word);
            while bits != 0 {
                if let Some(page) = pages.get_mut(64 * index + bits.trailing_zeros() as usize) {
                    page.fill(0);
                }
                bits &= bits - 1;
            }
        }
        (self.written.pages, self.written.last) = (0, usize::MAX);
    }

    #[inline]
    fn within_page(&self, offset: u64, most: usize) -> Option<(usize, usize)> {
        let start = usize::try_from(offset).ok().filter(|start| *start < self.bytes.len())?;
        Some((start, start + most.min(PAGE - start % PAGE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(memory: &mut FlatMemory, mut offset: u64, mut from: &[u8]) {
        while !from.is_empty() {
            let into = memory.slice_mut(offset, from.len()).unwrap();
            let count = into.len();
            into.copy_from_slice(&from[..count]);
            from = &from[count..];
            offset += count as u64;
        }
    }

    fn read(memory: &FlatMemory, mut offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let from = memory.slice(offset, into.len() - done).unwrap();
            into[done..done + from.len()].copy_from_slice(from);
            done += from.len();
            offset += from.len() as u64;
        }
    }

    #[test]
    fn memory_untouched_reads_zero() {
        let memory = FlatMemory::new(8 << 30).unwrap();
        let mut bytes = [7; 300];
        read(&memory, (5 << 30) + 65_500, &mut bytes);
        assert_eq!(bytes, [0; 300]);
        assert_eq!(memory.resident_pages(), 0);
    }

    #[test]
    fn memory_access_past_end_is_refused() {
        let mut memory = FlatMemory::new(1 << 20).unwrap();
        assert!(memory.slice(1 << 20, 1).is_none());
        assert!(memory.slice_mut(u64::MAX, 1).is_none());
        assert_eq!(memory.slice((1 << 20) - 4, 100).unwrap().len(), 4);
        assert!(memory.copy(0, (1 << 20) - 4, 5).is_none());
        assert!(memory.copy((1 << 20) - 4, 0, 5).is_none());
        assert!(memory.copy(u64::MAX, 0, 5).is_none());
        assert_eq!(memory.resident_pages(), 0, "a refused write changes nothing");
    }

    #[test]
    fn memory_slice_ends_at_page() {
        let mut memory = FlatMemory::new(1 << 20).unwrap();
        assert_eq!(memory.slice(65_500, 100).unwrap().len(), 36);
        assert_eq!(memory.slice_mut(65_500, 100).unwrap().len(), 36);
        assert_eq!(memory.slice(65_536, usize::MAX).unwrap().len(), PAGE);
    }

    #[test]
    fn memory_larger_than_address_space_is_refused() {
        FlatMemory::new(1 << 62).unwrap_err();
    }

    #[test]
    fn memory_resident_pages_are_counted_once() {
        let mut memory = FlatMemory::new(64 << 20).unwrap();
        for at in [0, 5, 65_536, 70_000, 3, 10 << 20] {
            write(&mut memory, at, &[1]);
        }
        assert_eq!(memory.resident_pages(), 3);
        memory.copy(0, 0x1_FFFF, 2).unwrap();
        assert_eq!(memory.resident_pages(), 4, "a copy across a page's end writes both");
        memory.clear();
        assert_eq!(memory.resident_pages(), 0);
        let mut bytes = [1; 3];
        read(&memory, 0x1_FFFF, &mut bytes);
        assert_eq!(bytes, [0; 3]);
        write(&mut memory, 0x1_FFFF, &[1]);
        assert_eq!(memory.resident_pages(), 1, "the page written last is cleared too");
    }

    proptest! {
        #[test]
        fn memory_random_accesses_match_array(
            writes in prop::collection::vec((0_usize..400_000, prop::collection::vec(any::<u8>(), 1..3000)), 1..20),
            copies in prop::collection::vec((0_usize..400_000, 0_usize..400_000, 0_usize..50_000), 1..10),
        ) {
            let size = 7 * PAGE;
            let mut memory = FlatMemory::new(size as u64).unwrap();
            let mut model = vec![0_u8; size];
            let mut touched = [false; 7];
            for (at, bytes) in &writes {
                model[*at..*at + bytes.len()].copy_from_slice(bytes);
                write(&mut memory, *at as u64, bytes);
                touched[at / PAGE..=(at + bytes.len() - 1) / PAGE].fill(true);
            }
            for (from, to, count) in copies {
                model.copy_within(from..from + count, to);
                memory.copy(from as u64, to as u64, count).unwrap();
                if count > 0 {
                    touched[to / PAGE..=(to + count - 1) / PAGE].fill(true);
                }
            }
            let mut all = vec![1; size];
            read(&memory, 0, &mut all);
            prop_assert_eq!(all, model);
            prop_assert_eq!(memory.resident_pages(), touched.iter().filter(|page| **page).count());
        }
    }
}
