//! Storage of the hash table's entries.

use crate::dma::slot_array::SlotArray;

/// Bytes of an entry: its key and its value.
const BYTES: usize = 16;

/// Entry of the table; empty if its value is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: u64,
    pub(super) value: u64,
}

/// Entries by position.
#[derive(Debug)]
pub(super) struct Table(SlotArray<BYTES>);

impl Table {
    /// Creates a table of `entries` empty entries.
    pub(super) fn new(entries: usize) -> Self {
        Self(SlotArray::new(entries))
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.0.all().len()
    }

    /// Returns the entry at `at`; an empty one beyond the end.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Entry {
        let Some(slot) = self.0.all().get(at) else { return Entry::default() };
        let [key, value] = [slot.first_chunk(), slot.last_chunk()]
            .map(|word| word.map_or(0, |word| u64::from_ne_bytes(*word)));
        Entry { key, value }
    }

    /// Replaces the entry at `at`; does nothing beyond the end.
    pub(super) fn set(&mut self, at: usize, entry: Entry) {
        if let Some(slot) = self.0.all_mut().get_mut(at) {
            let words = [entry.key.to_ne_bytes(), entry.value.to_ne_bytes()];
            slot.copy_from_slice(words.as_flattened());
        }
    }

    /// Entries that are not empty.
    pub(super) fn filled(&self) -> impl Iterator<Item = Entry> {
        (0..self.len()).map(|at| self.get(at)).filter(|entry| entry.value != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dma::slot_array::LARGE;

    #[test]
    fn block_table_small_and_large_match_map() {
        for entries in [4, LARGE / BYTES] {
            let mut table = Table::new(entries);
            assert_eq!(matches!(table, Table(SlotArray::Large(_))), entries > 4);
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
