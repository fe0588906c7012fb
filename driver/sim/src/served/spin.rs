//! Polling before a sleep, while it pays.
//!
//! A client that works with its card makes its next access some microseconds after the last one; a wake-up would cost it tens of them. The server
//! polls for such a client, for a bounded time, and sleeps at once for one whose accesses were further apart. On a contended CPU it sleeps at once, too:
//! a thread that is woken gets the CPU sooner than one that has yielded it.

use std::time::{Duration, Instant};

use fpga_pci::wait::Contention;

/// Maximum duration of polling: about the cost of a wake-up on both sides, and of the shortest sleep of a client.
const MAX_SPIN: Duration = Duration::from_micros(100);
/// Number of accesses in a row that came early enough after which as many late ones are needed to stop polling.
const MAX_SCORE: u8 = 4;
/// Checks of memory between two looks at the clock and at descriptors.
pub(super) const CHECKS_PER_LOOK: u32 = 32;

/// Number of rounds with work between two looks at descriptors, each of which is a system call.
const ROUNDS_PER_LOOK: u32 = 16;

/// Decision whether to poll, and when to look at descriptors.
#[derive(Debug)]
pub(super) struct Spin {
    rounds: u32,
    /// Excess of early accesses among the last ones.
    score: u8,
    contention: Contention,
    idle_since: Option<Instant>,
}

impl Spin {
    pub(super) const fn new() -> Self {
        Self { rounds: 0, score: 0, contention: Contention::new(), idle_since: None }
    }

    /// Notes a round that ends with work to do. Returns whether to look at descriptors: other sources are served meanwhile.
    pub(super) const fn looks(&mut self) -> bool {
        self.rounds = (self.rounds + 1) % ROUNDS_PER_LOOK;
        self.rounds == 0
    }

    /// There is nothing to do since `now`, or since an earlier call. Returns the end of polling.
    pub(super) fn idle(&mut self, now: Instant) -> Instant {
        let since = *self.idle_since.get_or_insert(now);
        if self.score == 0 || self.is_contended() { since } else { since + MAX_SPIN }
    }

    /// Returns whether the CPU is contended.
    pub(super) const fn is_contended(&self) -> bool {
        self.contention.is_contended()
    }

    /// Lets another thread run while this one polls: the client may need this CPU.
    pub(super) fn yield_cpu(&mut self) {
        let began = Instant::now();
        std::thread::yield_now();
        self.contention.yielded(began.elapsed());
    }

    /// The server sleeps.
    pub(super) const fn sleeps(&mut self) {
        self.contention.slept();
    }

    /// The client has made an access.
    pub(super) fn worked(&mut self, now: Instant) {
        let Some(since) = self.idle_since.take() else { return };
        self.score = if now.saturating_duration_since(since) <= MAX_SPIN {
            self.score.saturating_add(1).min(MAX_SCORE)
        } else {
            self.score.saturating_sub(1)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of idle periods, of `count` with this duration each, in which a server polls.
    fn polls(spin: &mut Spin, now: &mut Instant, idle: Duration, count: u32) -> u32 {
        let mut polls = 0;
        for _ in 0..count {
            polls += u32::from(spin.idle(*now) > *now);
            *now += idle;
            spin.worked(*now);
        }
        polls
    }

    #[test]
    fn spin_follows_distance_of_accesses() {
        let (mut spin, mut now) = (Spin::new(), Instant::now());
        assert_eq!(polls(&mut spin, &mut now, Duration::from_millis(1), 10), 0);
        assert_eq!(polls(&mut spin, &mut now, Duration::from_micros(10), 10), 9);
        assert_eq!(polls(&mut spin, &mut now, Duration::from_millis(1), 10), 4);
        // A yield took long.
        assert_eq!(polls(&mut spin, &mut now, Duration::from_micros(10), 10), 9);
        spin.contention.yielded(Duration::from_millis(1));
        assert_eq!(polls(&mut spin, &mut now, Duration::from_micros(10), 10), 0);
        (0..16).for_each(|_| spin.sleeps());
        assert_eq!(polls(&mut spin, &mut now, Duration::from_micros(10), 10), 10);
    }
}
