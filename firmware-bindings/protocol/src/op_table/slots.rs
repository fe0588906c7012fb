//! Fixed-capacity collections of slot numbers.

use alloc::boxed::Box;

use fpga_registers::cast::{index, low16};

/// FIFO that can hold every slot once.
#[derive(Clone, Debug)]
pub(super) struct SlotFifo {
    slots: Box<[u16]>,
    first: u32,
    len: u32,
}

impl SlotFifo {
    pub(super) fn new(capacity: u32) -> Self {
        Self { slots: alloc::vec![0; index(capacity)].into_boxed_slice(), first: 0, len: 0 }
    }

    #[expect(clippy::cast_possible_truncation, reason = "made from a 32-bit capacity")]
    pub(super) const fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// Appends a slot. A slot is in at most one list at a time, so the list never overflows.
    #[inline]
    pub(super) fn push(&mut self, slot: u16) {
        debug_assert!(self.len < self.capacity(), "a slot is in the list twice");
        let mut at = self.first + self.len;
        if at >= self.capacity() {
            at -= self.capacity();
        }
        self.slots[index(at)] = slot;
        self.len += 1;
    }

    /// Returns the slots in the list, first to last.
    pub(super) fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let (wrapped, ahead) = self.slots.split_at(index(self.first).min(self.slots.len()));
        ahead.iter().chain(wrapped).take(index(self.len)).copied()
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<u16> {
        if self.len == 0 {
            return None;
        }
        let slot = self.slots[index(self.first)];
        self.first += 1;
        if self.first == self.capacity() {
            self.first = 0;
        }
        self.len -= 1;
        Some(slot)
    }
}

/// Set of slots with round-robin removal.
#[derive(Clone, Debug, Hash)]
pub(super) struct SlotSet {
    words: Box<[u64]>,
    /// Start of the next search, so that low slots do not starve high ones.
    cursor: u32,
    capacity: u32,
    len: u32,
}

impl SlotSet {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            words: alloc::vec![0; index(capacity.div_ceil(64))].into_boxed_slice(),
            cursor: 0,
            capacity,
            len: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn insert(&mut self, slot: u16) {
        let word = &mut self.words[usize::from(slot >> 6)];
        let bit = 1 << (slot & 63);
        self.len += u32::from(*word & bit == 0);
        *word |= bit;
    }

    pub(super) fn remove(&mut self, slot: u16) {
        let word = &mut self.words[usize::from(slot >> 6)];
        let bit = 1 << (slot & 63);
        self.len -= u32::from(*word & bit != 0);
        *word &= !bit;
    }

    /// Returns the next slot.
    pub(super) fn first(&self) -> Option<u16> {
        if self.len == 0 {
            return None;
        }
        self.first_from(self.cursor).or_else(|| self.first_from(0)).map(low16)
    }

    /// Removes and returns the next slot.
    pub(super) fn take_next(&mut self) -> Option<u16> {
        let slot = self.first()?;
        self.remove(slot);
        let next = u32::from(slot) + 1;
        self.cursor = if next == self.capacity { 0 } else { next };
        Some(slot)
    }

    fn first_from(&self, start: u32) -> Option<u32> {
        let mut word = index(start >> 6);
        let mut bits = self.words.get(word)? & (u64::MAX << (start & 63));
        loop {
            if bits != 0 {
                return u32::try_from(word * 64).ok().map(|base| base + bits.trailing_zeros());
            }
            word += 1;
            bits = *self.words.get(word)?;
        }
    }
}
