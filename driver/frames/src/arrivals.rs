//! One subscriber's slots as it sees them itself.

use crate::credits::{FramePosition, possible_slots};

/// A notice or a count of the publisher's that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArrivalError {
    /// There is no such slot.
    #[error("a frame has arrived in slot {slot} of {slots}")]
    NoSlot {
        /// The slot.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// A frame in a slot that was not given back.
    #[error("a frame has arrived in slot {slot}, which was not given back: what is read from it may be torn")]
    Occupied {
        /// The slot.
        slot: u32,
    },
    /// The publisher claims to be done with positions that it had no room for.
    #[error(
        "the publisher says that frames up to position {found} have ended, where at most {limit} can have been sent"
    )]
    AlreadyEnded {
        /// What it says.
        found: u32,
        /// What can be.
        limit: u32,
    },
}

/// What a slot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    /// Nothing that is known: the publisher may write it.
    Empty,
    /// A frame of so many bytes.
    Arrived(u64),
    /// A frame that somebody reads.
    Read,
    /// A frame that was given back, or that will not come; an earlier one was not.
    Done,
}

/// The slots, in the order of their positions (see [`Credits`](crate::credits::Credits)).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Arrivals {
    states: Box<[State]>,
    /// The lowest position that was not given back.
    consumed: u32,
    /// The next position to be read.
    next: u32,
}

impl Arrivals {
    /// So many empty slots; the first frame will be at position `first`. `None` if there cannot be so many.
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

    /// A frame of `length` bytes is in `slot`.
    ///
    /// # Errors
    /// [`ArrivalError`]: nothing changes.
    pub fn arrived(&mut self, slot: u32, length: u64) -> Result<(), ArrivalError> {
        let slots = self.slots();
        let place = usize::try_from(slot).ok().and_then(|at| self.states.get_mut(at));
        match place.ok_or(ArrivalError::NoSlot { slot, slots })? {
            place @ State::Empty => *place = State::Arrived(length),
            _ => return Err(ArrivalError::Occupied { slot }),
        }
        Ok(())
    }

    /// The publisher says that everything before `settled` has ended: what has not arrived is given back. Returns how many that is.
    /// What it said earlier, and is late, changes nothing.
    ///
    /// # Errors
    /// [`ArrivalError::AlreadyEnded`]: nothing changes.
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

    /// The next frame to be read, in the order of positions; it counts as read from now on. `None` if it has not arrived.
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

    /// Whoever read the frame at `position` is done with it. False: nobody did.
    pub fn release(&mut self, position: u32) -> bool {
        let inside = position.wrapping_sub(self.consumed) < self.next.wrapping_sub(self.consumed);
        match self.state(position) {
            Some(state @ State::Read) if inside => *state = State::Done,
            _ => return false,
        }
        self.advance();
        true
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

    /// Everything before this position was given back: what the publisher is told.
    #[must_use]
    pub const fn consumed(&self) -> u32 {
        self.consumed
    }

    /// The next position to be read: with [`consumed`](Self::consumed), how many frames are being read.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }
}
