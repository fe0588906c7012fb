//! Free slots of a fixed table.

use alloc::boxed::Box;

use fpga_registers::cast::{index, low16};

/// Stack that can hold every slot of a table once. Its memory is allocated at construction and never grows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FreeSlots {
    slots: Box<[u16]>,
    len: usize,
}

impl FreeSlots {
    /// Creates a stack with all slots free, at most 65536; slot 0 is taken first.
    pub(crate) fn all(capacity: u32) -> Self {
        Self { slots: (0..capacity).rev().map(low16).collect(), len: index(capacity) }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn pop(&mut self) -> Option<u16> {
        self.len = self.len.checked_sub(1)?;
        self.slots.get(self.len).copied()
    }

    /// Removes a slot that is in the stack.
    pub(crate) fn remove(&mut self, slot: u16) {
        let free = self.slots.get_mut(..self.len).unwrap_or_default();
        if let Some(at) = free.iter().position(|other| *other == slot) {
            free.copy_within(at + 1.., at);
            self.len -= 1;
        }
    }

    pub(crate) fn push(&mut self, slot: u16) {
        debug_assert!(self.len < self.slots.len(), "a slot was freed twice");
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = slot;
            self.len += 1;
        }
    }
}
