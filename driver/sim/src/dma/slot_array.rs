//! Memory for tables with random look-ups.

use memmap2::{Advice, MmapMut};

/// Size in bytes from which a table requests huge pages.
pub(super) const LARGE: usize = 2 << 20;

/// Array of slots of `BYTES` bytes each, initially zero.
///
/// In the tables of a million mappings a look-up causes a cache miss for its entry and a TLB miss for the entry's page: megabytes are
/// thousands of normal pages, and a page-table walk takes as long as the access to the entry. In huge pages the TLB miss is rare. A system
/// without huge pages provides normal ones.
#[derive(Debug)]
pub(super) enum SlotArray<const BYTES: usize> {
    Small(Vec<[u8; BYTES]>),
    Large(MmapMut),
}

impl<const BYTES: usize> SlotArray<BYTES> {
    pub(super) fn new(count: usize) -> Self {
        let bytes = count.saturating_mul(BYTES);
        if bytes >= LARGE
            && let Ok(memory) = MmapMut::map_anon(bytes)
        {
            // Advice that the system does not follow only costs time.
            let _ = memory.advise(Advice::HugePage);
            return Self::Large(memory);
        }
        Self::Small(vec![[0; BYTES]; count])
    }

    #[inline]
    pub(super) fn all(&self) -> &[[u8; BYTES]] {
        match self {
            Self::Small(places) => places,
            Self::Large(memory) => memory.as_chunks().0,
        }
    }

    #[inline]
    pub(super) fn all_mut(&mut self) -> &mut [[u8; BYTES]] {
        match self {
            Self::Small(places) => places,
            Self::Large(memory) => memory.as_chunks_mut().0,
        }
    }

    /// Doubles the number of slots and keeps their content; at least one.
    pub(super) fn double(&mut self) {
        let mut larger = Self::new((self.all().len() * 2).max(1));
        for (to, from) in larger.all_mut().iter_mut().zip(self.all()) {
            *to = *from;
        }
        *self = larger;
    }
}
