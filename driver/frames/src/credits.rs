//! One subscriber's slots as its publisher sees them.
//!
//! Frames for a subscriber have *positions*: 0, 1, 2 ... modulo 2^32. Position `p` goes into slot `p % slots`. Four counters follow each
//! other through the positions:
//!
//! ```text
//!   consumed <= settled, or the other way round     both <= started <= sent <= the lower of both + slots
//!   |            |            |           `- frames promised to the subscriber by publish()
//!   |            |            `- transfers that have been started
//!   |            `- everything before has ended, well or not
//!   `- what the subscriber has given back (E3-3): it writes this number, and only this side compares
//! ```
//!
//! A slot is written again only when its frame was given back *and* its transfer has ended: a subscriber may be done with a frame
//! before this side has heard of its arrival.

/// Slots that one subscriber may have.
pub const MAX_SLOTS: u32 = 4096;

/// A count that cannot be: more than was ever sent, or less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it says that it is done with frames up to position {found}, where {consumed} to {started} are possible: the subscriber is broken, or somebody else writes its counter"
)]
pub struct InvalidCredit {
    /// What it says.
    pub found: u32,
    /// What it said before.
    pub consumed: u32,
    /// What was sent.
    pub started: u32,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FramePosition {
    /// Its position.
    pub position: u32,
    /// Its slot.
    pub slot: u32,
}

/// The counters of one subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credits {
    slots: u32,
    consumed: u32,
    settled: u32,
    started: u32,
    sent: u32,
    /// By slot: the transfer has ended, but an earlier one has not.
    ended: Box<[bool]>,
    /// Behind the last position whose transfer failed, until the subscriber has passed it.
    failed: Option<u32>,
}

/// Whether `a` comes at `b` or after it; the two are never 2^31 apart.
const fn reaches(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

/// Whether a subscriber can have so many slots: powers of two alone divide the range of positions, so that nothing jumps when it wraps.
#[must_use]
pub const fn possible_slots(slots: u32) -> bool {
    slots.is_power_of_two() && slots <= MAX_SLOTS
}

impl Credits {
    /// A subscriber with so many empty slots; its next frame is at position `first`. `None` if there cannot be so many
    /// ([`possible_slots`]).
    #[must_use]
    pub fn new(slots: u32, first: u32) -> Option<Self> {
        let length = usize::try_from(slots).ok().filter(|_| possible_slots(slots))?;
        let ended = vec![false; length].into();
        Some(Self {
            slots,
            consumed: first,
            settled: first,
            started: first,
            sent: first,
            ended,
            failed: None,
        })
    }

    /// Frames that can be sent now.
    #[must_use]
    pub const fn free_slots(&self) -> u32 {
        let unread = self.sent.wrapping_sub(self.consumed);
        let unsettled = self.sent.wrapping_sub(self.settled);
        self.slots - if unread > unsettled { unread } else { unsettled }
    }

    /// Promises the subscriber a frame; false if it has no room.
    #[must_use]
    pub const fn reserve(&mut self) -> bool {
        if self.free_slots() == 0 {
            return false;
        }
        self.sent = self.sent.wrapping_add(1);
        true
    }

    /// Where the oldest frame that was promised and not started goes; `None` if there is none.
    #[must_use]
    pub const fn due(&self) -> Option<FramePosition> {
        if self.started == self.sent {
            return None;
        }
        Some(FramePosition { position: self.started, slot: self.started % self.slots })
    }

    /// The transfer of the frame that was due has been started.
    pub const fn start(&mut self) {
        if self.started != self.sent {
            self.started = self.started.wrapping_add(1);
        }
    }

    /// The transfer to `position` has ended. False: there is none.
    pub fn end(&mut self, position: u32, arrived: bool) -> bool {
        let behind = position.wrapping_sub(self.settled);
        let slots = self.slots;
        let under_way = behind < self.started.wrapping_sub(self.settled);
        let index = usize::try_from(position % slots).unwrap_or(usize::MAX);
        match self.ended.get_mut(index) {
            Some(ended) if under_way && !*ended => *ended = true,
            _ => return false,
        }
        if !arrived {
            let after = position.wrapping_add(1);
            self.failed =
                Some(self.failed.map_or(after, |failed| if reaches(failed, after) { failed } else { after }));
        }
        while self.settled != self.started {
            let index = usize::try_from(self.settled % slots).unwrap_or(usize::MAX);
            match self.ended.get_mut(index) {
                Some(ended) if *ended => *ended = false,
                _ => break,
            }
            self.settled = self.settled.wrapping_add(1);
        }
        true
    }

    /// The subscriber says that it is done with everything before `consumed`. Returns how many frames that is more than before.
    ///
    /// # Errors
    /// [`InvalidCredit`]. Nothing changes.
    pub fn consume(&mut self, consumed: u32) -> Result<u32, InvalidCredit> {
        let more = consumed.wrapping_sub(self.consumed);
        if more > self.started.wrapping_sub(self.consumed) {
            return Err(InvalidCredit { found: consumed, consumed: self.consumed, started: self.started });
        }
        self.consumed = consumed;
        if self.failed.is_some_and(|failed| reaches(consumed, failed)) {
            self.failed = None;
        }
        Ok(more)
    }

    /// Everything before this position has ended: what has not arrived will not.
    #[must_use]
    pub const fn settled(&self) -> u32 {
        self.settled
    }

    /// Frames that were promised, and whose transfers have not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.sent.wrapping_sub(self.settled)
    }

    /// Behind the last frame that was promised.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether the subscriber waits for a frame that will not come, and does not know.
    #[must_use]
    pub fn needs_status(&self) -> bool {
        self.failed.is_some_and(|failed| reaches(self.settled, failed))
    }

    /// Whether every transfer that was promised has ended.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settled == self.sent
    }
}
