//! One subscriber's slots as the publisher tracks them.
//!
//! Frames for a subscriber have *positions*: 0, 1, 2 ... modulo 2^32. Position `p` goes into slot `p % slots`. Four counters follow each
//! other through the positions:
//!
//! ```text
//!   consumed <= settled, or settled <= consumed     both <= started <= sent <= the lower of both + slots
//!   |            |            |           `- frames promised to the subscriber by publish()
//!   |            |            `- transfers that have been started
//!   |            `- every transfer before it has ended, successfully or not
//!   `- frames that the subscriber has returned (E3-3): it writes this number, and only this side compares
//! ```
//!
//! A slot is written again only when its frame was returned *and* its transfer has ended: a subscriber may return a frame before this side
//! has received its acknowledgement.

use fpga_frames_wire::{FramePosition, possible_slots};

/// Impossible credit: more than was ever sent, or less than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it returned frames up to position {found}, but only positions {consumed} to {started} are possible")]
pub struct InvalidCredit {
    /// Reported position.
    pub found: u32,
    /// Position reported before.
    pub consumed: u32,
    /// Position after the last frame that was started.
    pub started: u32,
}

/// Slot counters of one subscriber.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Credits {
    slots: u32,
    consumed: u32,
    settled: u32,
    started: u32,
    sent: u32,
    /// By slot: the transfer has ended, but an earlier one has not.
    ended: Box<[bool]>,
    /// Position after the last one whose transfer failed, until the subscriber has passed it.
    failed: Option<u32>,
}

/// Whether `a` is at or after `b`; the two are never 2^31 apart.
const fn reaches(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

impl Credits {
    /// Creates the counters of a subscriber with `slots` empty slots; its next frame is at position `first`. `None` if the number of slots
    /// is not possible ([`possible_slots`]).
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

    /// Number of frames that can be sent now.
    #[must_use]
    pub const fn free_slots(&self) -> u32 {
        let unread = self.sent.wrapping_sub(self.consumed);
        let unsettled = self.sent.wrapping_sub(self.settled);
        self.slots - if unread > unsettled { unread } else { unsettled }
    }

    /// Reserves a slot for one more frame. Returns false if no slot is free.
    #[must_use]
    pub const fn reserve(&mut self) -> bool {
        if self.free_slots() == 0 {
            return false;
        }
        self.sent = self.sent.wrapping_add(1);
        true
    }

    /// Position of the oldest frame that was reserved and not started; `None` if there is none.
    #[must_use]
    pub const fn due(&self) -> Option<FramePosition> {
        if self.started == self.sent {
            return None;
        }
        Some(FramePosition { position: self.started, slot: self.started % self.slots })
    }

    /// Records that the transfer of the due frame was started.
    pub const fn start(&mut self) {
        if self.started != self.sent {
            self.started = self.started.wrapping_add(1);
        }
    }

    /// Records that the transfer to `position` has ended. Returns false if there is no such transfer.
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

    /// Accepts the subscriber's report that every frame before `consumed` was returned. Returns the number of newly returned frames.
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

    /// Position before which every transfer has ended: a frame that has not arrived by then will not arrive.
    #[must_use]
    pub const fn settled(&self) -> u32 {
        self.settled
    }

    /// Number of frames that were reserved and whose transfers have not ended.
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.sent.wrapping_sub(self.settled)
    }

    /// Position after the last reserved frame.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether the subscriber waits for a frame that will not come, and was not notified of it yet.
    #[must_use]
    pub fn needs_status(&self) -> bool {
        self.failed.is_some_and(|failed| reaches(self.settled, failed))
    }

    /// Whether every reserved transfer has ended.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.settled == self.sent
    }
}
