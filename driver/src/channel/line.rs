//! Interrupt line of a channel.

/// State of the channel's interrupt, as far as the host can know it. The engine sends a message when the line rises, and its write-back
/// before that: the message arrives after the write-back that it announces.
#[derive(Debug, Default)]
pub(super) struct InterruptLine {
    /// The interrupt is enabled in the channel's mask.
    pub(super) enabled: bool,
    /// The line is enabled and was cleared since its last rise: the next completion raises it.
    pub(super) low: bool,
    /// The line has risen for a completion that was seen in memory, and its message was not taken.
    pub(super) owes: bool,
}

impl InterruptLine {
    /// Records that a transfer has ended.
    #[inline]
    pub(super) const fn arm_for_next(&mut self) {
        if self.low {
            (self.low, self.owes) = (false, true);
        }
    }

    /// Records that the engine starts a run, which clears its status (PG195, Status: cleared on a rising edge of Run).
    pub(super) const fn starts(&mut self) {
        self.low = self.enabled;
    }
}
