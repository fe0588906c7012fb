//! Schedule of frames that are published at a fixed rate.

use std::time::{Duration, Instant};

/// Maximum backlog that is made up for after a pause. Older frames are live data of a past moment, and sending them all at once would fill
/// the slots of every subscriber.
const BEHIND: Duration = Duration::from_millis(100);

/// Clock with one tick per frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FramePacer {
    rate: f64,
    began: Instant,
    /// Ticks in the past: published or late.
    ticks: u64,
    late: u64,
}

impl FramePacer {
    /// Creates a clock with `rate` ticks per second, starting at `began`; the first tick is immediate.
    pub(super) const fn new(rate: f64, began: Instant) -> Self {
        Self { rate, began, ticks: 0, late: 0 }
    }

    /// Returns whether a frame is due. Ticks that are too far behind are skipped.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.began).as_secs_f64() * self.rate;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "positive, and it saturates"
        )]
        let (begun, most) = (at as u64 + 1, (BEHIND.as_secs_f64() * self.rate) as u64 + 1);
        let behind = begun.saturating_sub(self.ticks);
        let skipped = behind.saturating_sub(most);
        self.ticks += skipped;
        self.late += skipped;
        behind > 0
    }

    /// Counts a published frame.
    pub(super) const fn published(&mut self) {
        self.ticks += 1;
    }

    /// Number of ticks that passed without a frame and will not get one.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive numbers, and rounded as above"
)]
mod tests {
    use super::*;

    fn due(pace: &mut FramePacer, now: Instant) -> u64 {
        let mut count = 0;
        while pace.is_due(now) {
            pace.published();
            count += 1;
        }
        count
    }

    #[test]
    fn pacer_every_tick_has_frame_or_is_late() {
        let began = Instant::now();
        for rate in [0.001, 1.0, 7.5, 1_000.0, 1e5] {
            let mut pace = FramePacer::new(rate, began);
            let (mut frames, mut at) = (due(&mut pace, began), Duration::ZERO);
            assert_eq!((frames, pace.late()), (1, 0), "the first one at once");
            // A program that polls every millisecond and is stopped for an hour now and then.
            for poll in 0..3_000_u64 {
                let pause = poll % 1_000 == 999;
                at += if pause { Duration::from_secs(3_600) } else { Duration::from_millis(1) };
                let late = pace.late();
                let now = due(&mut pace, began + at);
                frames += now;
                let most = (rate * 0.1) as u64 + 1;
                assert!(now <= most, "{now} at once, at {rate} a second");
                assert!(pause || pace.late() == late, "a tenth of a second is made up for");
            }
            let ticks = (at.as_secs_f64() * rate) as u64 + 1;
            assert!(frames + pace.late() == ticks, "{frames} and {} of {ticks}", pace.late());
        }
    }
}
