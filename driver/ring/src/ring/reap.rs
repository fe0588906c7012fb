//! Processing of the device's counts, and return of completed operations.

use super::config::COUNT_MASK;
use super::{Completion, CountFault, Drained, OperationKind, Ring};
use fpga_registers::cast::low32;

impl<T> Ring<T> {
    /// Processes the poll-mode write-back word: error in bit 31, completed count in 23:0 (PG195). A word with a lower count than the
    /// register's is not progress: the engine writes it only at the end of a batch, and a write may get lost.
    ///
    /// # Errors
    /// Same as [`Ring::complete`]; also an error bit, or a bit that the hardware never sets (all ones: the device is gone).
    #[inline]
    pub fn complete_writeback(&mut self, word: u32) -> Result<u32, CountFault> {
        if word & !COUNT_MASK != 0 {
            self.faulted = true;
            return Err(if word & !COUNT_MASK == 1 << 31 {
                CountFault::Engine { count: word & COUNT_MASK }
            } else {
                CountFault::NotACount { word }
            });
        }
        let added = self.take(word, self.written_back)?;
        self.written_back += u64::from(added);
        let step = self.written_back.saturating_sub(self.completed);
        self.completed += step;
        Ok(low32(step))
    }

    /// Processes the channel's completed-count register. It has 32 bits; a run of a circular ring uses all of them.
    ///
    /// The register counts every descriptor, the write-back word only those that report: the word may lag behind it.
    ///
    /// # Errors
    /// Same as [`Ring::complete`].
    pub fn complete_register(&mut self, count: u32) -> Result<u32, CountFault> {
        if self.open && count != u32::MAX { self.complete(count & COUNT_MASK) } else { self.complete(count) }
    }

    /// Processes the device's completed count, relative to the start of the run, and returns the number of newly completed descriptors.
    /// Only the low 24 bits exist; a repeated count is not progress.
    ///
    /// After a fault, the count from the channel's register may be passed once more, so that operations that did finish are returned as
    /// finished.
    ///
    /// # Errors
    /// [`CountFault`] if the posted run cannot produce the count. Nothing is marked complete, and the ring accepts nothing more until it
    /// has been drained.
    #[inline]
    pub fn complete(&mut self, count: u32) -> Result<u32, CountFault> {
        if count & !COUNT_MASK != 0 {
            self.faulted = true;
            return Err(CountFault::NotACount { word: count });
        }
        let step = self.take(count, self.completed)?;
        self.completed += u64::from(step);
        Ok(step)
    }

    /// Returns the number of descriptors that `count` adds to `from`.
    #[inline]
    fn take(&mut self, count: u32, from: u64) -> Result<u32, CountFault> {
        let known = low32(from - self.run_start) & COUNT_MASK;
        // Modulo 2^24: a count that decreased appears as a huge increment and is refused below.
        let step = count.wrapping_sub(known) & COUNT_MASK;
        if u64::from(step) > self.run_end - from {
            self.faulted = true;
            let posted = known.wrapping_add(low32(self.run_end - from));
            return Err(CountFault::BeyondPosted { reported: count, known, posted });
        }
        Ok(step)
    }

    /// Returns the number of finished operations without payload, oldest first, up to the first one that is unfinished, has a payload or
    /// was withdrawn, and removes them.
    #[inline]
    pub fn pop_without_payload(&mut self) -> u32 {
        let numbers = self.operations.numbers();
        if numbers.start >= self.irregular_until {
            // One descriptor each: no individual check.
            let count = self.completed - self.freed;
            self.freed = self.completed;
            self.operations.remove(count);
            return low32(count);
        }
        let (mut count, mut freed) = (0, self.freed);
        for number in numbers {
            let operation = self.operations.slot(number);
            let after = freed + u64::from(operation.descriptors);
            if after > self.completed || operation.kind != OperationKind::Plain {
                break;
            }
            freed = after;
            count += 1;
        }
        self.freed = freed;
        self.operations.remove(count);
        low32(count)
    }

    /// Returns the oldest operation if all of its descriptors have completed and it has a payload or was withdrawn.
    #[inline]
    #[must_use]
    pub fn poll_completion(&mut self) -> Option<Completion<T>> {
        let token = self.operations.oldest()?;
        let operation = *self.operations.slot(token.number());
        let after = self.freed + u64::from(operation.descriptors);
        if after > self.completed || operation.kind == OperationKind::Plain {
            return None;
        }
        let completion = Completion {
            token,
            payload: self.payloads[self.operations.index(token.number())].take(),
            length: operation.length,
            first_index: low32(self.freed) & self.entry_mask,
            descriptors: operation.descriptors,
            withdrawn: operation.kind == OperationKind::Withdrawn,
        };
        self.freed = after;
        self.operations.remove(1);
        Some(completion)
    }

    /// Removes every operation, oldest first, finished or not. Once the iterator is exhausted the ring is empty, no run is posted and the
    /// fault is cleared; operations remaining in a dropped iterator stay in the ring.
    ///
    /// Call it when the engine is known to be idle, or quarantine the memory that [`Drained::posted`] marks.
    pub fn drain(&mut self) -> Drain<'_, T> {
        self.faulted = true;
        Drain { ring: self }
    }
}

/// See [`Ring::drain`].
#[derive(Debug)]
pub struct Drain<'a, T> {
    ring: &'a mut Ring<T>,
}

impl<T> Iterator for Drain<'_, T> {
    type Item = Drained<T>;

    fn next(&mut self) -> Option<Drained<T>> {
        let ring = &mut *self.ring;
        let Some(token) = ring.operations.oldest() else {
            ring.freed = ring.staged;
            ring.completed = ring.staged;
            ring.run_start = ring.staged;
            ring.written_back = ring.staged;
            ring.run_end = ring.staged;
            ring.open = false;
            ring.single_descriptor_blocks = false;
            ring.faulted = false;
            return None;
        };
        let operation = *ring.operations.slot(token.number());
        let (first, end) = (ring.freed, ring.freed + u64::from(operation.descriptors));
        let drained = Drained {
            token,
            payload: ring.payloads[ring.operations.index(token.number())].take(),
            length: operation.length,
            completed_bytes: ring.bytes_between(first, end.min(ring.completed)),
            posted: first < ring.run_end,
        };
        ring.freed = end;
        ring.completed = ring.completed.max(end);
        ring.run_end = ring.run_end.max(end);
        ring.operations.remove(1);
        Some(drained)
    }
}
