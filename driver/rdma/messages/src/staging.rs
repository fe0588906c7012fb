//! Staging slots: host memory, where data is put together, and from where it is sent.

use crate::layout::STAGING;

/// A taken slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StagingSlot {
    class: usize,
    /// Offset of its first byte in the staging memory.
    pub(crate) offset: u64,
}

/// Free slots, by class.
#[derive(Debug)]
pub(crate) struct Staging {
    free: [Vec<u64>; STAGING.len()],
}

impl Staging {
    pub(crate) fn new() -> Self {
        let mut start = 0;
        let free = STAGING.map(|(count, bytes)| {
            let first = start;
            start += u64::from(count) * bytes;
            (0..u64::from(count)).rev().map(|number| first + number * bytes).collect()
        });
        Self { free }
    }

    /// Takes a slot of the smallest class with one of `length` bytes.
    pub(crate) fn take(&mut self, length: u64) -> Option<StagingSlot> {
        for (class, (free, (_, bytes))) in self.free.iter_mut().zip(STAGING).enumerate() {
            // The largest slots are for parts of large messages: other data never waits for them, nor they for it.
            let fits = length <= bytes && (class + 1 < STAGING.len() || length > crate::layout::MAX_RECORD);
            if fits && let Some(offset) = free.pop() {
                return Some(StagingSlot { class, offset });
            }
        }
        None
    }

    pub(crate) fn release(&mut self, slot: StagingSlot) {
        if let Some(free) = self.free.get_mut(slot.class) {
            free.push(slot.offset);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{CHUNK, MAX_RECORD, STAGING_BYTES};

    #[test]
    fn staging_slots_are_distinct_and_come_back() {
        let mut staging = Staging::new();
        let mut taken = Vec::new();
        for length in [64, MAX_RECORD, CHUNK] {
            while let Some(slot) = staging.take(length) {
                taken.push(slot);
            }
        }
        let count: u32 = STAGING.iter().map(|(count, _)| count).sum();
        assert_eq!(taken.len(), count as usize);
        let mut offsets: Vec<u64> = taken.iter().map(|slot| slot.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        assert_eq!(offsets.len(), count as usize);
        assert!(taken.iter().all(|slot| slot.offset + STAGING[slot.class].1 <= STAGING_BYTES));
        assert_eq!(staging.take(64), None);
        taken.drain(..).for_each(|slot| staging.release(slot));
        assert!(staging.take(CHUNK).is_some());
    }

    #[test]
    fn staging_small_data_leaves_the_largest_slots() {
        let mut staging = Staging::new();
        while staging.take(64).is_some() {}
        assert!(staging.take(CHUNK).is_some());
    }
}
