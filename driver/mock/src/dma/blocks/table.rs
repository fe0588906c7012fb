//! Where the entries of the hash table are.

use memmap2::{Advice, MmapMut};

/// Bytes of an entry: its key and its value.
const BYTES: usize = 16;
/// From this size on a table asks for huge pages.
const LARGE: usize = 2 << 20;

/// An entry; one whose value is 0 is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Entries by position.
///
/// In a table of a million mappings a look-up misses the caches for its entry, and the processor's memory of addresses for the page that
/// the entry is on: tens of megabytes are thousands of normal pages, and to find one of those takes as long as the entry itself. In
/// huge pages the second miss is rare. A system that has none gives normal ones.
#[derive(Debug)]
pub(super) enum Table {
    Small(Vec<[u8; BYTES]>),
    Large(MmapMut),
}

impl Table {
    /// So many empty entries.
    pub(super) fn new(entries: usize) -> Self {
        let bytes = entries.saturating_mul(BYTES);
        if bytes >= LARGE
            && let Ok(memory) = MmapMut::map_anon(bytes)
        {
            // Advice that is not taken costs time, nothing else.
            let _ = memory.advise(Advice::HugePage);
            return Self::Large(memory);
        }
        Self::Small(vec![[0; BYTES]; entries])
    }

    #[inline]
    fn slots(&self) -> &[[u8; BYTES]] {
        match self {
            Self::Small(entries) => entries,
            Self::Large(memory) => memory.as_chunks().0,
        }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.slots().len()
    }

    /// The entry at `at`; an empty one beyond the end.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry {
        let Some(slot) = self.slots().get(at) else { return Entry::default() };
        let [key, value] = [slot.first_chunk(), slot.last_chunk()]
            .map(|word| word.map_or(0, |word| u64::from_ne_bytes(*word)));
        Entry { key, value }
    }

    /// Replaces the entry at `at`; beyond the end there is none.
    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        let slots = match self {
            Self::Small(entries) => entries.as_mut_slice(),
            Self::Large(memory) => memory.as_chunks_mut().0,
        };
        if let Some(slot) = slots.get_mut(at) {
            let words = [entry.key.to_ne_bytes(), entry.value.to_ne_bytes()];
            slot.copy_from_slice(words.as_flattened());
        }
    }

    /// Those that are not empty.
    pub(super) fn filled(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(|at| self.get(at)).filter(|entry| entry.value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_stay_what_they_are_in_tables_of_either_kind() {
        for entries in [4, LARGE / BYTES] {
            let mut table = Table::new(entries);
            assert_eq!(matches!(table, Table::Large(_)), entries > 4);
            assert_eq!((table.len(), table.filled().count()), (entries, 0));
            let last = Entry { key: u64::MAX, value: 1 << 63 };
            for (at, entry) in [(0, Entry { key: 0, value: 1 }), (entries - 1, last), (entries, last)] {
                table.set(at, entry);
                assert_eq!(table.get(at), if at < entries { entry } else { Entry::default() });
            }
            assert_eq!(table.filled().map(|entry| entry.key).collect::<Vec<_>>(), [0, u64::MAX]);
            table.set(0, Entry::default());
            assert_eq!(table.filled().count(), 1);
        }
    }
}
