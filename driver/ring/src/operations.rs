//! Operations of a ring, in the order of their submission.

use alloc::boxed::Box;
use core::ops::Range;

use fpga_registers::cast::{index, low32};

/// Identifies one submitted operation by its sequence number in its ring, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// Returns the number of operations that were submitted to the ring before.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Creates the token of the `number`-th operation of a ring.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }
}

/// Queue of operations with a fixed number of slots. Operations have running 64-bit numbers; a slot's index is the number's low bits.
#[derive(Debug)]
pub(crate) struct Operations<S> {
    slots: Box<[S]>,
    mask: u32,
    /// Number of the oldest operation, and of the next one to be submitted.
    first: u64,
    next: u64,
}

impl<S> Operations<S> {
    /// Queue with `slots` slots, a power of two.
    pub(crate) fn new(slots: u32, slot: impl FnMut() -> S) -> Self {
        let all = core::iter::repeat_with(slot).take(index(slots)).collect();
        Self { slots: all, mask: slots - 1, first: 0, next: 0 }
    }

    /// Returns the number of operations in the queue.
    #[inline]
    pub(crate) const fn len(&self) -> u32 {
        low32(self.next - self.first)
    }

    #[inline]
    pub(crate) const fn is_full(&self) -> bool {
        self.next - self.first > self.mask as u64
    }

    /// Returns the number of operations submitted so far: the number of the next one.
    #[inline]
    pub(crate) const fn submitted(&self) -> u64 {
        self.next
    }

    /// Returns the number of operations removed so far.
    #[inline]
    pub(crate) const fn ended(&self) -> u64 {
        self.first
    }

    /// Numbers of the operations in the queue.
    pub(crate) const fn numbers(&self) -> Range<u64> {
        self.first..self.next
    }

    /// The oldest operation.
    #[inline]
    pub(crate) const fn oldest(&self) -> Option<Token> {
        if self.first == self.next { None } else { Some(Token(self.first)) }
    }

    /// Index of the slot of operation `number`.
    #[inline]
    pub(crate) const fn index(&self, number: u64) -> usize {
        index(low32(number) & self.mask)
    }

    /// Slot of operation `number`.
    #[inline]
    pub(crate) fn slot(&self, number: u64) -> &S {
        &self.slots[self.index(number)]
    }

    /// Slot of operation `number`.
    #[inline]
    pub(crate) fn slot_mut(&mut self, number: u64) -> &mut S {
        &mut self.slots[self.index(number)]
    }

    /// Adds an operation; the queue is not full.
    #[inline]
    pub(crate) fn push(&mut self, slot: S) -> Token {
        let token = Token(self.next);
        *self.slot_mut(token.0) = slot;
        self.next += 1;
        token
    }

    /// Removes the `count` oldest operations.
    #[inline]
    pub(crate) const fn remove(&mut self, count: u64) {
        self.first += count;
    }
}
