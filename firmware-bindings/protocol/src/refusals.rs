//! Waiting times of refused senders: each gets a time at which a table entry should be free for it.
//!
//! A table with `entries` entries that are occupied for the time T each frees one every T / `entries`. Each refusal takes the
//! next of these times; the sender comes back then, not after a backoff. One number is enough for it: the time that the
//! last refused sender was given.

use fpga_firmware::generated::DELAY_UNIT_NS;

use crate::time::Nanos;

/// Maximum waiting time, in the mean times that an entry is occupied, and its absolute maximum.
const MAX_LIVES: u64 = 16;
const MAX_WAIT: Nanos = Nanos::from_millis(4);

/// Waiting times of one table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refusals {
    /// Mean time between two releases of an entry, smoothed, and the time of the last release.
    interval: Nanos,
    released: Nanos,
    /// Time of the last refused sender's next try.
    turn: Nanos,
}

impl Refusals {
    /// Records that an entry was released while the table was full or not. Idle times say nothing about the table.
    pub(crate) fn note_release(&mut self, now: Nanos) {
        let span = now.saturating_sub(self.released);
        self.released = now;
        let interval = self.interval.get();
        self.interval = if interval == 0 || span > MAX_WAIT {
            span.min(MAX_WAIT)
        } else {
            Nanos::new(interval - interval / 8 + span.get() / 8)
        };
    }

    /// Returns the time after which one more refused sender tries again, in units of [`DELAY_UNIT_NS`]; 0: not known.
    pub(crate) fn refuse(&mut self, now: Nanos, entries: u32) -> u16 {
        if self.interval == Nanos::ZERO {
            return 0;
        }
        let most = self.interval.saturating_mul(MAX_LIVES * u64::from(entries)).min(MAX_WAIT);
        self.turn = self.turn.max(now).saturating_add(self.interval);
        let wait = self.turn.saturating_sub(now);
        if wait > most {
            self.turn = now;
        }
        u16::try_from(wait.min(most).get().div_ceil(DELAY_UNIT_NS.into())).unwrap_or(u16::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_get_successive_times_at_rate_of_releases() {
        let mut refusals = Refusals::default();
        assert_eq!(refusals.refuse(Nanos::new(5), 4), 0);
        for n in 1..200 {
            refusals.note_release(Nanos::new(n * 640));
        }
        let now = Nanos::new(200 * 640);
        let waits = [(); 3].map(|()| refusals.refuse(now, 4));
        assert!((9..=11).contains(&waits[0]), "{waits:?}");
        assert!(waits[1] - waits[0] >= 9 && waits[2] - waits[1] >= 9, "{waits:?}");
        // Bounded, however many are refused.
        for _ in 0..1000 {
            assert!(refusals.refuse(now, 4) <= 16 * 4 * 11);
        }
    }
}
