//! Card memory, pages on demand.
//!
//! A card has gigabytes; a test touches a little of them. Pages of 64 KiB hang in a two-level table and come into
//! being at their first write; what was never written reads as zeros and costs nothing.

use std::fmt;

/// Bytes of a page.
pub(crate) const PAGE: usize = 64 * 1024;
/// Pages of one directory: 64 MiB.
const DIRECTORY: usize = 1024;

type Page = Box<[u8; PAGE]>;
type Directory = Box<[Option<Page>; DIRECTORY]>;

static ZEROS: [u8; PAGE] = [0; PAGE];

/// Sparse memory addressed by offset from its own start.
pub(crate) struct SparseMemory {
    size: u64,
    directories: Vec<Option<Directory>>,
    pages: usize,
}

// By hand, here and below: gigabytes of content are no help in a message.
impl fmt::Debug for SparseMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SparseMemory").field("size", &self.size).field("pages", &self.pages).finish()
    }
}

/// Where an offset lies: directory, page in it, byte in that.
fn split(offset: u64) -> Option<(usize, usize, usize)> {
    let offset = usize::try_from(offset).ok()?;
    let page = offset / PAGE;
    Some((page / DIRECTORY, page % DIRECTORY, offset % PAGE))
}

fn zeroed_page() -> Option<Page> {
    // Through a Vec: a boxed array expression would be built on the stack first.
    vec![0_u8; PAGE].into_boxed_slice().try_into().ok()
}

impl SparseMemory {
    /// Memory of `size` bytes; `size` is a multiple of [`PAGE`] (the description is checked).
    pub(crate) fn new(size: u64) -> Self {
        let pages = usize::try_from(size).unwrap_or(usize::MAX).div_ceil(PAGE);
        let mut directories = Vec::new();
        directories.resize_with(pages.div_ceil(DIRECTORY), || None);
        Self { size, directories, pages: 0 }
    }

    pub(crate) const fn size(&self) -> u64 {
        self.size
    }

    /// Pages that were written at least once.
    pub(crate) const fn resident_pages(&self) -> usize {
        self.pages
    }

    /// Bytes from `offset` to the end of its page, at most `most`; `None` past the end of memory.
    pub(crate) fn slice(&self, offset: u64, most: usize) -> Option<&[u8]> {
        let (directory, page, start) = self.place(offset)?;
        let end = (start + most.min(PAGE)).min(PAGE);
        let bytes = match self.directories.get(directory)?.as_deref() {
            Some(directory) => directory.get(page)?.as_deref().unwrap_or(&ZEROS),
            None => &ZEROS,
        };
        bytes.get(start..end)
    }

    /// As [`Self::slice`], to be written: brings the page into being.
    pub(crate) fn slice_mut(&mut self, offset: u64, most: usize) -> Option<&mut [u8]> {
        let (directory, page, start) = self.place(offset)?;
        let end = (start + most.min(PAGE)).min(PAGE);
        let slot = self.slot(directory, page)?;
        let fresh = slot.is_none();
        if fresh {
            *slot = zeroed_page();
            self.pages += 1;
        }
        self.slot(directory, page)?.as_deref_mut()?.get_mut(start..end)
    }

    /// Takes the page of `offset` out of the table so that another can be written while it is read; give it back with
    /// [`Self::restore`]. `None` in the result: never written.
    pub(crate) fn detach(&mut self, offset: u64) -> Option<DetachedPage> {
        let (directory, page, _) = self.place(offset)?;
        let bytes =
            self.directories.get_mut(directory)?.as_mut().and_then(|entries| entries.get_mut(page)?.take());
        Some(DetachedPage { directory, page, bytes })
    }

    pub(crate) fn restore(&mut self, detached: DetachedPage) {
        if let Some(slot) = self.directories.get_mut(detached.directory).and_then(|entries| entries.as_mut())
            && let Some(slot) = slot.get_mut(detached.page)
            && slot.is_none()
        {
            *slot = detached.bytes;
        }
    }

    fn place(&self, offset: u64) -> Option<(usize, usize, usize)> {
        if offset < self.size { split(offset) } else { None }
    }

    fn slot(&mut self, directory: usize, page: usize) -> Option<&mut Option<Page>> {
        self.directories
            .get_mut(directory)?
            .get_or_insert_with(|| Box::new([const { None }; DIRECTORY]))
            .get_mut(page)
    }
}

/// A page taken out of the table.
pub(crate) struct DetachedPage {
    directory: usize,
    page: usize,
    bytes: Option<Page>,
}

impl DetachedPage {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or(&ZEROS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn write(memory: &mut SparseMemory, mut offset: u64, mut from: &[u8]) {
        while !from.is_empty() {
            let into = memory.slice_mut(offset, from.len()).unwrap();
            let count = into.len();
            into.copy_from_slice(&from[..count]);
            from = &from[count..];
            offset += count as u64;
        }
    }

    fn read(memory: &SparseMemory, mut offset: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let from = memory.slice(offset, into.len() - done).unwrap();
            into[done..done + from.len()].copy_from_slice(from);
            done += from.len();
            offset += from.len() as u64;
        }
    }

    #[test]
    fn reading_untouched_memory_gives_zeros_and_allocates_nothing() {
        let memory = SparseMemory::new(8 << 30);
        let mut bytes = [7; 300];
        read(&memory, (5 << 30) + 65_500, &mut bytes);
        assert_eq!(bytes, [0; 300]);
        assert_eq!(memory.resident_pages(), 0);
    }

    #[test]
    fn past_the_end_is_nothing() {
        let mut memory = SparseMemory::new(1 << 20);
        assert!(memory.slice(1 << 20, 1).is_none());
        assert!(memory.slice_mut(u64::MAX, 1).is_none());
        assert_eq!(memory.slice((1 << 20) - 4, 100).unwrap().len(), 4);
    }

    #[test]
    fn a_detached_page_comes_back() {
        let mut memory = SparseMemory::new(1 << 20);
        write(&mut memory, 70_000, b"page");
        let page = memory.detach(70_000).unwrap();
        assert_eq!(&page.bytes()[70_000 - PAGE..][..4], b"page");
        memory.restore(page);
        let mut bytes = [0; 4];
        read(&memory, 70_000, &mut bytes);
        assert_eq!(&bytes, b"page");
    }

    proptest! {
        #[test]
        fn behaves_like_a_flat_array(
            writes in prop::collection::vec((0_usize..400_000, prop::collection::vec(any::<u8>(), 1..3000)), 1..20)
        ) {
            let size = 7 * PAGE;
            let mut memory = SparseMemory::new(size as u64);
            let mut model = vec![0_u8; size];
            for (at, bytes) in &writes {
                model[*at..*at + bytes.len()].copy_from_slice(bytes);
                write(&mut memory, *at as u64, bytes);
            }
            let mut all = vec![1; size];
            read(&memory, 0, &mut all);
            prop_assert_eq!(all, model);
        }
    }
}
