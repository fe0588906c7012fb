//! One subscriber's slots as the subscriber tracks them.

use fpga_registers::quantity;

/// Maximum number of slots of one subscriber.
pub const MAX_SLOTS: u32 = 4096;

/// Position and slot of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FramePosition {
    /// Position of the frame.
    pub position: u32,
    /// Slot of the frame.
    pub slot: u32,
}

/// Whether a subscriber can have this number of slots. Only powers of two divide the range of positions, so that slot numbers stay
/// continuous when positions wrap.
#[must_use]
pub const fn possible_slots(slots: u32) -> bool {
    slots.is_power_of_two() && slots <= MAX_SLOTS
}

/// Notification or count from the publisher that is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// The slot does not exist.
    #[error(
        "a notification names slot {slot}, but the subscriber has {slots}",
        slots = quantity(*slots, "slot"),
    )]
    NoSlot {
        /// Slot number.
        slot: u32,
        /// Number of slots.
        slots: u32,
    },
    /// A frame in a slot that was not returned.
    #[error("a frame arrived in slot {slot}, which was not returned: data read from this slot may be torn")]
    Occupied {
        /// The slot.
        slot: u32,
    },
    /// The publisher reports positions as ended for which it had no free slot.
    #[error(
        "the publisher reports the end of all frames before position {found}, but it can have sent frames only up to position {limit}"
    )]
    AlreadyEnded {
        /// Reported position.
        found: u32,
        /// Highest possible position.
        limit: u32,
    },
}

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// No known content: the publisher may write the slot.
    Empty,
    /// Holds an unread frame of this many bytes.
    Arrived(u64),
    /// Holds a frame that a reader uses.
    Read,
    /// The frame was returned or will not come, but an earlier position is not done yet.
    Done,
}

/// Slots of one subscriber, in the order of their positions. Position `p` goes into slot `p % slots`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrivals {
    states: Box<[State]>,
    /// Lowest position that was not returned.
    consumed: u32,
    /// Next position to be read.
    next: u32,
}

impl Arrivals {
    /// Creates `slots` empty slots; the first frame is at position `first`. `None` if the number of slots is not possible.
    #[must_use]
    pub fn new(slots: u32, first: u32) -> Option<Self> {
        let length = usize::try_from(slots).ok().filter(|_| possible_slots(slots))?;
        Some(Self { states: vec![State::Empty; length].into(), consumed: first, next: first })
    }

    fn slots(&self) -> u32 {
        u32::try_from(self.states.len()).unwrap_or(u32::MAX)
    }

    fn state(&mut self, position: u32) -> Option<&mut State> {
        let slot = position % self.slots();
        self.states.get_mut(usize::try_from(slot).ok()?)
    }

    /// Records that a frame of `length` bytes is in `slot`.
    ///
    /// # Errors
    /// [`ArrivalError`]. Nothing changes.
    pub fn arrived(&mut self, slot: u32, length: u64) -> Result<(), ArrivalError> {
        let slots = self.slots();
        let place = usize::try_from(slot).ok().and_then(|at| self.states.get_mut(at));
        match place.ok_or(ArrivalError::NoSlot { slot, slots })? {
            place @ State::Empty => *place = State::Arrived(length),
            _ => return Err(ArrivalError::Occupied { slot }),
        }
        Ok(())
    }

    /// Records that `length` bytes are in the slots from `slot` on, each of `stride` bytes: a frame in each of them.
    ///
    /// # Errors
    /// [`ArrivalError`]. Nothing changes for the slot that it names and for those after it.
    pub fn arrived_from(&mut self, slot: u32, length: u64, stride: u64) -> Result<(), ArrivalError> {
        let (mut slot, mut rest) = (slot, length);
        loop {
            self.arrived(slot, rest.min(stride))?;
            if rest <= stride || stride == 0 {
                return Ok(());
            }
            (slot, rest) = (slot.saturating_add(1), rest - stride);
        }
    }

    /// Records that every position before `settled` has ended: frames that have not arrived count as returned. Returns their number. An
    /// older value that arrives late changes nothing.
    ///
    /// # Errors
    /// [`ArrivalError::AlreadyEnded`]. Nothing changes.
    pub fn settled(&mut self, settled: u32) -> Result<u32, ArrivalError> {
        let ahead = settled.wrapping_sub(self.consumed);
        if ahead > 1 << 31 {
            return Ok(0);
        }
        if ahead > self.slots() {
            let limit = self.consumed.wrapping_add(self.slots());
            return Err(ArrivalError::AlreadyEnded { found: settled, limit });
        }
        let mut lost = 0;
        for offset in 0..ahead {
            if let Some(state @ State::Empty) = self.state(self.consumed.wrapping_add(offset)) {
                *state = State::Done;
                lost += 1;
            }
        }
        self.advance();
        Ok(lost)
    }

    /// Returns the next frame in the order of positions and marks it as being read. `None` if it has not arrived.
    #[must_use]
    pub fn read(&mut self) -> Option<(FramePosition, u64)> {
        let slots = self.slots();
        while self.next.wrapping_sub(self.consumed) < slots {
            let position = self.next;
            match *self.state(position)? {
                State::Arrived(length) => {
                    *self.state(position)? = State::Read;
                    self.next = position.wrapping_add(1);
                    return Some((FramePosition { position, slot: position % slots }, length));
                }
                State::Done => self.next = position.wrapping_add(1),
                State::Empty | State::Read => return None,
            }
        }
        None
    }

    /// Records that the reader of the frame at `position` has released it. Returns false if the frame was not being read.
    pub fn release(&mut self, position: u32) -> bool {
        let inside = position.wrapping_sub(self.consumed) < self.next.wrapping_sub(self.consumed);
        match self.state(position) {
            Some(state @ State::Read) if inside => *state = State::Done,
            _ => return false,
        }
        self.advance();
        true
    }

    /// Returns whether [`read`](Self::read) would return a frame.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        let slots = self.slots();
        let in_use = self.next.wrapping_sub(self.consumed);
        let state = |position: u32| self.states.get(usize::try_from(position % slots).ok()?);
        let mut states = (0..slots.saturating_sub(in_use)).map(|ahead| state(self.next.wrapping_add(ahead)));
        matches!(states.find(|state| *state != Some(&State::Done)), Some(Some(State::Arrived(_))))
    }

    fn advance(&mut self) {
        while let Some(state @ State::Done) = self.state(self.consumed) {
            *state = State::Empty;
            if self.next == self.consumed {
                self.next = self.next.wrapping_add(1);
            }
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// Position before which every frame was returned: the count that the publisher receives.
    #[must_use]
    pub const fn consumed(&self) -> u32 {
        self.consumed
    }

    /// Next position to be read. The difference to [`consumed`](Self::consumed) is the number of frames that are being read.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrivals_readable_matches_read(first: u32, steps in proptest::collection::vec((0..4_u8, 0..8_u32), 0..100)) {
            let mut arrivals = Arrivals::new(8, first).unwrap();
            let mut reading = Vec::new();
            for (step, number) in steps {
                match step {
                    0 => drop(arrivals.arrived(number, 1)),
                    1 => drop(arrivals.settled(arrivals.consumed().wrapping_add(number))),
                    2 => reading.extend(arrivals.read().map(|(frame, _)| frame.position)),
                    _ => {
                        let released = reading.pop().is_none_or(|position| arrivals.release(position));
                        prop_assert!(released);
                    }
                }
                prop_assert_eq!(arrivals.is_readable(), arrivals.clone().read().is_some());
            }
        }
    }
}
