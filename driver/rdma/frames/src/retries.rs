//! Retries of failed transfers between card memory and host memory.
//!
//! Reading a credit, a status or a frame again returns the current content, and writing a status or a credit again writes the newest: a
//! failure loses only time. A persistent failure is distinguished from a passing one by count and by time.

use std::time::Duration;

use core::fmt;

use fpga_driver::errors::{ChannelFault, FaultCause};

/// Pause before the second retry. The first retry is made at once, and each further pause is twice as long. A failure that ends after some
/// milliseconds, such as a link retraining, does not end a stream.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of doublings of the pause.
const MAX_DOUBLINGS: u32 = 6;

/// Kind of transfer between host and card that is retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RetriedTransfer {
    /// Frames, by a subscriber. A publisher's frames are live data and not repeated.
    Frames,
    /// Status that a publisher sends to a subscriber.
    Status,
    /// Credits that subscribers send.
    Credits,
}

impl fmt::Display for RetriedTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frames => "frames",
            Self::Status => "status blocks",
            Self::Credits => "credits",
        })
    }
}

/// Consecutive failures of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RetryBackoff {
    failures: u32,
    due: Duration,
}

impl RetryBackoff {
    /// Whether the fault is one of this transfer, and not of an earlier one in the same run.
    pub(crate) const fn is_own_failure(fault: &ChannelFault) -> bool {
        !matches!(fault.cause, FaultCause::EarlierFault)
    }

    /// Records a failure of the transfer itself. Returns the number of consecutive failures.
    pub(crate) fn failed(&mut self, now: Duration) -> u32 {
        if let Some(doublings) = self.failures.checked_sub(1) {
            self.due = now.saturating_add(PAUSE * (1 << doublings.min(MAX_DOUBLINGS)));
        }
        self.failures = self.failures.saturating_add(1);
        self.failures
    }

    /// Records a success.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether the next attempt may be made. The clock is not read without a failure.
    pub(crate) fn is_due(&self, now: impl FnOnce() -> Duration) -> bool {
        self.failures == 0 || now() >= self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_first_is_immediate_then_backs_off() {
        let mut retries = RetryBackoff::default();
        let mut now = Duration::from_millis(1_000);
        let mut pauses = Vec::new();
        for failures in 1..=10 {
            assert_eq!(retries.failed(now), failures);
            let before = now;
            while !retries.is_due(|| now) {
                now = now.saturating_add(Duration::from_millis(1));
            }
            pauses.push(now.saturating_sub(before).as_millis());
        }
        assert_eq!(pauses, [0, 20, 40, 80, 160, 320, 640, 1280, 1280, 1280]);
        retries.succeeded();
        assert!(retries.is_due(|| Duration::ZERO));
        assert_eq!(retries.failed(now), 1);
        assert!(retries.is_due(|| now));
    }
}
