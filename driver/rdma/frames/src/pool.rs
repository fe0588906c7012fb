//! Free slots of a frame pool: the state of each slot that its user does not see.

use fpga_frames_wire::Sequence;

/// State of a slot besides its bytes: the *private page* of the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct SlotState {
    /// One for the user or for the frame's upload to the card, and one for every transfer that reads the slot (E3-1).
    references: u32,
    /// The frame that the slot holds, or held last.
    sequence: Sequence,
}

/// A slot was released more often than it was held, or does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("slot {slot} is not in use")]
pub struct NotHeld {
    /// Slot number.
    pub slot: usize,
}

/// Slots of a pool and their reference counts. Only a slot whose count is zero may be taken.
///
/// Owned by one thread: a frame that is dropped on another thread first returns its memory through a queue, and the count falls when the
/// memory is taken from there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SlotPool {
    slots: Box<[SlotState]>,
    /// Start of the search for a free slot: after the slot taken last, which is likely to be in use longest.
    next: usize,
    free: usize,
}

impl SlotPool {
    /// Creates a pool of `count` free slots.
    #[must_use]
    pub fn new(count: usize) -> Self {
        Self { slots: vec![SlotState::default(); count].into(), next: 0, free: count }
    }

    /// Number of free slots.
    #[must_use]
    pub const fn free(&self) -> usize {
        self.free
    }

    /// Number of slots.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether the pool has no slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Takes a free slot: its count goes from 0 to 1.
    #[must_use]
    pub fn take(&mut self) -> Option<usize> {
        if self.free == 0 {
            return None;
        }
        let (before, after) = self.slots.split_at(self.next.min(self.slots.len()));
        let is_free = |slot: &SlotState| slot.references == 0;
        let found = after.iter().position(is_free).map(|at| at + before.len());
        let slot = found.or_else(|| before.iter().position(is_free))?;
        self.slots.get_mut(slot)?.references = 1;
        self.next = slot + 1;
        self.free -= 1;
        Some(slot)
    }

    /// Adds a reader to a slot that is held.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn hold(&mut self, slot: usize) -> Result<(), NotHeld> {
        let place = self.slots.get_mut(slot).filter(|place| place.references > 0).ok_or(NotHeld { slot })?;
        place.references = place.references.saturating_add(1);
        Ok(())
    }

    /// Removes a reader from a slot. Returns whether the slot is free now.
    ///
    /// # Errors
    /// [`NotHeld`].
    pub fn release(&mut self, slot: usize) -> Result<bool, NotHeld> {
        let place = self.slots.get_mut(slot).filter(|place| place.references > 0).ok_or(NotHeld { slot })?;
        place.references -= 1;
        let free = place.references == 0;
        self.free += usize::from(free);
        Ok(free)
    }

    /// Records which frame a slot holds from now on.
    pub fn set_sequence(&mut self, slot: usize, sequence: Sequence) {
        if let Some(place) = self.slots.get_mut(slot) {
            place.sequence = sequence;
        }
    }

    /// Number of references to a slot.
    #[must_use]
    pub fn references(&self, slot: usize) -> u32 {
        self.slots.get(slot).map_or(0, |place| place.references)
    }

    /// The frame that a slot holds, or held last.
    #[must_use]
    pub fn sequence(&self, slot: usize) -> Sequence {
        self.slots.get(slot).map_or_else(Sequence::default, |place| place.sequence)
    }
}
