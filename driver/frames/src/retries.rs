//! What the card did not move between its memory and the host's, and is asked for again.
//!
//! Reading a credit, a status or a frame again gives what lies there now, and writing a status or a credit again writes the newest: nothing
//! is lost by a failure but time. One that persists is another matter, and is told from one that passes by number and by time.

use core::fmt;

use fpga_driver::protocol::Nanos;
use fpga_driver::{ChannelFault, FaultCause};

/// The first retry is made at once, the second so much later, and each one after it twice as much: what is over after some milliseconds,
/// such as a link that is trained again, ends no stream.
const PAUSE: Nanos = Nanos::from_millis(20);
/// Pauses become no longer than this many doublings make them.
const MAX_DOUBLINGS: u32 = 6;

/// What is moved between host and card besides the frames of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetriedTransfer {
    /// Frames, by a subscriber; a publisher's are live, and not moved again.
    Frames,
    /// What a publisher tells a subscriber of the stream.
    Status,
    /// What subscribers tell of how far they are.
    Credits,
}

impl fmt::Display for RetriedTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frames => "frames",
            Self::Status => "the stream's status",
            Self::Credits => "credits",
        })
    }
}

/// Failures one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryBackoff {
    failures: u32,
    due: Nanos,
}

impl RetryBackoff {
    /// Whether the fault is one of this move, and not of one before it in the same run.
    pub(crate) const fn is_own_failure(fault: &ChannelFault) -> bool {
        !matches!(fault.cause, FaultCause::EarlierFault)
    }

    /// A move failed by its own fault. Returns how often that is now.
    pub(crate) fn failed(&mut self, now: Nanos) -> u32 {
        if let Some(doublings) = self.failures.checked_sub(1) {
            self.due = now.saturating_add(Nanos::new(PAUSE.get() << doublings.min(MAX_DOUBLINGS)));
        }
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// A move went well.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether the next one may be made. Nobody asks what time it is as long as all goes well.
    pub(crate) fn is_due(&self, now: impl FnOnce() -> Nanos) -> bool {
        self.failures == 0 || now() >= self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_first_is_immediate_then_backs_off() {
        let mut retries = RetryBackoff::default();
        let mut now = Nanos::from_millis(1_000);
        let mut pauses = Vec::new();
        for failures in 1..=10 {
            assert_eq!(retries.failed(now), failures);
            let before = now;
            while !retries.is_due(|| now) {
                now = now.saturating_add(Nanos::from_millis(1));
            }
            pauses.push(now.saturating_sub(before).get() / 1_000_000);
        }
        assert_eq!(pauses, [0, 20, 40, 80, 160, 320, 640, 1280, 1280, 1280]);
        retries.succeeded();
        assert!(retries.is_due(|| Nanos::ZERO));
        assert_eq!(retries.failed(now), 1);
        assert!(retries.is_due(|| now));
    }
}
