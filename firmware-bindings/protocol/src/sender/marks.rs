//! Set of slots without order: insertion, and removal of any slot, in constant time.

use alloc::boxed::Box;

use fpga_registers::cast::{index, low16};

/// Slots of a table of at most 65536, each at most once.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    slots: Box<[u16]>,
    len: usize,
    is_marked: Box<[bool]>,
}

impl Marks {
    /// Bytes of state per slot of the table.
    pub(super) const BYTES: usize = size_of::<u16>() + size_of::<bool>();

    pub(super) fn new(slots: u32) -> Self {
        Self {
            slots: alloc::vec![0; index(slots)].into_boxed_slice(),
            len: 0,
            is_marked: alloc::vec![false; index(slots)].into_boxed_slice(),
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, slot: u32) {
        let Some(is_marked) = self.is_marked.get_mut(index(slot)).filter(|marked| !**marked) else { return };
        *is_marked = true;
        if let Some(place) = self.slots.get_mut(self.len) {
            *place = low16(slot);
            self.len += 1;
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pop(&mut self) -> Option<u32> {
        self.len = self.len.checked_sub(1)?;
        let slot = self.slots.get(self.len).copied()?;
        if let Some(is_marked) = self.is_marked.get_mut(usize::from(slot)) {
            *is_marked = false;
        }
        Some(slot.into())
    }
}
