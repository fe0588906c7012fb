//! Waiting: the end of a wait ([`Deadline`]), and the behaviour of a polling loop that finds nothing ([`Backoff`]).
//!
//! Every loop of the driver that waits for a card uses these two, so that each of them ends in time and leaves the CPU to others: the
//! thread, process or virtual machine that a loop waits for may need the CPU that the loop occupies.

use core::fmt;
use core::time::Duration;
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::time::{ClockId, clock_gettime};

use crate::{Backend, Clock};

/// Duration of a wait and the clock that measured it. Prints as `2000 ms`, or as `2000 ms of virtual time`, which is unrelated to the time
/// that a person has waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waited {
    /// Duration by that clock.
    pub time: Duration,
    /// Whether the clock is virtual ([`Clock::Virtual`]).
    pub is_virtual: bool,
}

impl Waited {
    /// Creates it from nanoseconds of `backend`'s clock.
    #[must_use]
    pub fn new(backend: &dyn Backend, nanoseconds: u64) -> Self {
        Self::of(backend, Duration::from_nanos(nanoseconds))
    }

    /// Creates it from a duration of `backend`'s clock.
    #[must_use]
    pub fn of(backend: &dyn Backend, time: Duration) -> Self {
        Self { time, is_virtual: backend.clock() == Clock::Virtual }
    }

    /// Whole microseconds.
    #[must_use]
    pub fn as_micros(self) -> u64 {
        u64::try_from(self.time.as_micros()).unwrap_or(u64::MAX)
    }

    /// Whole milliseconds.
    #[must_use]
    pub fn as_millis(self) -> u64 {
        u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX)
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = if self.is_virtual { " of virtual time" } else { "" };
        match self.as_micros() {
            us @ 0..10_000 => write!(f, "{us} µs{clock}"),
            10_000..10_000_000 => write!(f, "{} ms{clock}", self.time.as_millis()),
            _ => write!(f, "{} s{clock}", self.time.as_secs()),
        }
    }
}

/// Minimum wall-clock limit of a wait whose timeout is counted in virtual time.
pub const MIN_WALL_LIMIT: Duration = Duration::from_secs(60);

/// Duration of a spin before the first yield, in nanoseconds.
const SPIN_NS: u64 = 20_000;
/// Time after which a wait sleeps, for 31 us at first. A sleep takes some 15 us longer, 2 % of the time that was waited by then: an engine that
/// idles until the next poll loses half of that on average.
const SLEEP_AFTER_NS: u64 = 2_000_000;
/// Divisor of the time waited: a sleep takes this part of it, which limits the delay of the end of a wait.
const SLEEP_SHARE: u64 = 64;
/// Default maximum duration of one sleep.
const MAX_SLEEP: Duration = Duration::from_millis(1);
/// A yield that takes this long has let another thread run: the CPU is contended.
const CONTENDED: Duration = Duration::from_micros(200);
/// Duration of a sleep on a contended CPU. The scheduler soon wakes a thread that slept, but charges a thread that yields for a whole time
/// slice.
const CONTENDED_SLEEP: Duration = Duration::from_micros(20);
/// Number of such sleeps after the first slow yield. The next yield shows whether the CPU is still contended: if so, the number doubles.
/// One slow yield may have been an interrupt or the hypervisor.
const MIN_CONTENDED_SLEEPS: u32 = 16;
/// Maximum number of such sleeps between two yields.
const MAX_CONTENDED_SLEEPS: u32 = 1024;
/// Number of [`spin`] calls of a thread between two yields.
const SPINS_PER_YIELD: u32 = 1024;

/// Nanoseconds on the monotonic clock since the first call: one start for all devices of the process, so that their
/// times can be compared.
#[must_use]
pub fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // Holds 584 years.
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of the system's `CLOCK_MONOTONIC`, for comparison with other processes.
#[must_use]
pub fn system_monotonic_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Performs one step of a spin loop: a hint to the processor, and from time to time a yield. For [`Backend::relax`] of backends whose card
/// works elsewhere; loops that know how long they have waited use [`Backoff`].
#[inline]
pub fn spin() {
    spin_and_yield(SPINS_PER_YIELD);
}

/// As [`spin`], with one yield in `period` calls of this thread.
#[inline]
pub fn spin_and_yield(period: u32) {
    thread_local! {
        static SPINS: Cell<u32> = const { Cell::new(0) };
    }
    core::hint::spin_loop();
    let spins = SPINS.get().wrapping_add(1);
    SPINS.set(spins);
    if spins.is_multiple_of(period) {
        std::thread::yield_now();
    }
}

/// One step of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffStep {
    /// Poll again at once.
    Spin,
    /// Let other threads run before the next poll.
    Yield,
    /// Sleep for this time.
    Sleep(Duration),
}

/// Backoff of a loop that polls: it spins for some microseconds, then yields, then sleeps for a part of the time that it has waited.
/// On a [contended](Self::is_contended) CPU it sleeps at once.
///
/// [`reset`](Self::reset) it when a poll finds work. No system call is made in the first 20 us after that on a CPU that is not contended,
/// except by a simulated card whose thread shares the only CPU with the waiting one ([`Backend::relax`] yields there).
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// Time of the first [`back_off`](Self::back_off) after work was found.
    since: Option<u64>,
    sleep_after: u64,
    max_sleep: Duration,
    contention: Contention,
}

/// Contention of a thread's CPU, detected by its yields. A yield that takes long has let another thread run: the CPU is contended, and the
/// thread gets it back sooner if it sleeps, for the next 16 to 1024 times: twice as many after each slow yield, half as many after each
/// fast one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Contention {
    /// Sleeps until the next yield.
    left: u32,
    /// Sleeps after the last slow yield, halved by each fast one.
    last: u32,
}

impl Contention {
    /// State of an uncontended CPU.
    #[must_use]
    pub const fn new() -> Self {
        Self { left: 0, last: 0 }
    }

    /// Returns whether to sleep instead of yielding.
    #[must_use]
    #[inline]
    pub const fn is_contended(&self) -> bool {
        self.left > 0
    }

    /// Records a yield that took `span`.
    pub fn yielded(&mut self, span: Duration) {
        *self = if span < CONTENDED {
            Self { left: 0, last: self.last / 2 }
        } else {
            let sleeps = self.last.saturating_mul(2).clamp(MIN_CONTENDED_SLEEPS, MAX_CONTENDED_SLEEPS);
            Self { left: sleeps, last: sleeps }
        };
    }

    /// Records a sleep.
    pub const fn slept(&mut self) {
        self.left = self.left.saturating_sub(1);
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new()
    }
}

impl Backoff {
    /// Creates a backoff that has not waited yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { since: None, sleep_after: SLEEP_AFTER_NS, max_sleep: MAX_SLEEP, contention: Contention::new() }
    }

    /// Sets the maximum duration of one sleep (default 1 ms).
    #[must_use]
    pub const fn max_sleep(mut self, span: Duration) -> Self {
        self.max_sleep = span;
        self
    }

    /// Sets the time after which a wait sleeps (default 2 ms).
    #[must_use]
    pub const fn sleep_after(mut self, nanoseconds: u64) -> Self {
        self.sleep_after = nanoseconds;
        self
    }

    /// Returns whether the CPU is contended, so that each wait sleeps at once.
    #[must_use]
    #[inline]
    pub const fn is_contended(&self) -> bool {
        self.contention.is_contended()
    }

    /// Records that a poll has found work: the next wait begins.
    #[inline]
    pub const fn reset(&mut self) {
        self.since = None;
    }

    /// Returns the step of a wait that has taken `waited` nanoseconds so far and may take `left` more.
    #[must_use]
    pub fn step(&self, waited: u64, left: u64) -> BackoffStep {
        if left == 0 {
            return BackoffStep::Spin;
        }
        if waited >= self.sleep_after {
            return BackoffStep::Sleep(
                Duration::from_nanos((waited / SLEEP_SHARE).min(left)).min(self.max_sleep),
            );
        }
        if self.contention.is_contended() {
            return BackoffStep::Sleep(CONTENDED_SLEEP.min(Duration::from_nanos(left)));
        }
        if waited < SPIN_NS { BackoffStep::Spin } else { BackoffStep::Yield }
    }

    /// Performs one step after a poll that has found nothing, for at most `left` nanoseconds of the card's clock. Returns whether the
    /// thread has slept.
    pub fn back_off(&mut self, backend: &dyn Backend, left: u64) -> bool {
        let now = backend.now();
        let waited = now.saturating_sub(*self.since.get_or_insert(now));
        self.take(self.step(waited, left), backend)
    }

    /// Performs a step. Returns whether the thread has slept.
    pub fn take(&mut self, step: BackoffStep, backend: &dyn Backend) -> bool {
        match step {
            BackoffStep::Spin => backend.relax(),
            BackoffStep::Yield => {
                // A card inside this thread works in `relax`.
                backend.relax();
                if backend.clock() == Clock::Monotonic {
                    let began = Instant::now();
                    std::thread::yield_now();
                    self.contention.yielded(began.elapsed());
                }
            }
            BackoffStep::Sleep(span) => {
                backend.pause(span);
                self.contention.slept();
                return true;
            }
        }
        false
    }
}

/// End of a wait: a timeout on the card's clock ([`Backend::now`]).
///
/// On a card with [virtual time](Clock::Virtual) a second limit counts wall-clock time: the timeout or [`MIN_WALL_LIMIT`], whichever is
/// longer. It limits a wait on a simulation that is slower than real time.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    began: u64,
    limit: u64,
    wall: Option<Instant>,
}

impl Deadline {
    /// Creates the deadline `timeout` from now on.
    #[must_use]
    pub fn after(backend: &dyn Backend, timeout: Duration) -> Self {
        let wall = (backend.clock() == Clock::Virtual).then(Instant::now);
        Self::from(backend.now(), wall, timeout)
    }

    /// Creates the deadline `timeout` after `began` on the card's clock, and after `wall` if that clock is virtual.
    #[must_use]
    pub fn from(began: u64, wall: Option<Instant>, timeout: Duration) -> Self {
        let limit = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // A limit beyond the range of the clock means no limit.
        let wall = wall.and_then(|wall| wall.checked_add(timeout.max(MIN_WALL_LIMIT)));
        Self { began, limit, wall }
    }

    /// The timeout in nanoseconds.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The end on the card's clock.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.began.saturating_add(self.limit)
    }

    /// Nanoseconds since the wait began, at time `now` of the card's clock.
    #[must_use]
    pub const fn waited(&self, now: u64) -> u64 {
        now.saturating_sub(self.began)
    }

    /// Returns whether the wait is over at time `now` of the card's clock. The wall clock is read only if it has a limit.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now: u64) -> bool {
        self.is_over_at(now, Instant::now)
    }

    /// As [`is_over`](Self::is_over), with a wall clock of the caller.
    #[inline]
    #[must_use]
    pub fn is_over_at(&self, now: u64, wall: impl FnOnce() -> Instant) -> bool {
        self.waited(now) >= self.limit || self.wall.is_some_and(|end| wall() >= end)
    }

    /// Remaining nanoseconds of the card's clock at `now`.
    #[must_use]
    pub const fn left(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.waited(now))
    }

    /// Maximum remaining wall-clock time of the wait at `now`, for a thread that sleeps without the card's clock. Without a wall-clock
    /// limit: the remaining time of the card's clock.
    #[must_use]
    pub fn wall_time_left(&self, now: u64) -> Duration {
        match self.wall {
            Some(end) => end.saturating_duration_since(Instant::now()),
            None => Duration::from_nanos(self.left(now)),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn deadline_real_clock_counts_card_time_only() {
        let deadline = Deadline::from(5, None, Duration::from_secs(1));
        assert!(!deadline.is_over_at(5 + SECOND - 1, || unreachable!("no wall clock")));
        assert!(deadline.is_over_at(5 + SECOND, || unreachable!("no wall clock")));
        assert_eq!(deadline.left(5 + SECOND / 4), SECOND * 3 / 4);
        assert!(Deadline::from(5, None, Duration::ZERO).is_over(5));
        assert!(!Deadline::from(5, None, Duration::MAX).is_over(u64::MAX - 1));
    }

    #[test]
    fn deadline_virtual_clock_ends_by_wall_clock_too() {
        let began = Instant::now();
        for (timeout, limit) in [(1, 60), (59, 60), (100, 100), (7200, 7200)] {
            let deadline = Deadline::from(0, Some(began), Duration::from_secs(timeout));
            let at = |wall| deadline.is_over_at(1, || began + Duration::from_secs(wall));
            assert!(!at(limit - 1), "{timeout} s");
            assert!(at(limit), "{timeout} s");
            assert!(deadline.is_over_at(timeout * SECOND, || began), "{timeout} s");
        }
        assert!(
            !Deadline::from(0, Some(began), Duration::MAX)
                .is_over_at(1, || began + Duration::from_secs(9999))
        );
    }

    #[test]
    fn backoff_sleep_is_fraction_of_wait_and_ends_in_time() {
        let backoff = Backoff::new();
        assert_eq!(backoff.step(SPIN_NS, SECOND), BackoffStep::Yield);
        assert_eq!(backoff.step(SLEEP_AFTER_NS - 1, SECOND), BackoffStep::Yield);
        assert_eq!(backoff.step(SLEEP_AFTER_NS, SECOND), BackoffStep::Sleep(Duration::from_nanos(31_250)));
        assert_eq!(backoff.step(SECOND, SECOND), BackoffStep::Sleep(MAX_SLEEP));
        assert_eq!(backoff.step(SECOND, 10), BackoffStep::Sleep(Duration::from_nanos(10)));
        assert_eq!(backoff.step(SECOND, 0), BackoffStep::Spin);
        let long = Duration::from_millis(10);
        assert_eq!(backoff.max_sleep(long).step(SECOND, SECOND), BackoffStep::Sleep(long));
    }

    #[test]
    fn backoff_slow_yield_sleeps_then_yields() {
        let mut backoff = Backoff::new();
        let sleeps = |backoff: &mut Backoff| {
            let mut count = 0;
            while backoff.step(SPIN_NS, SECOND) == BackoffStep::Sleep(CONTENDED_SLEEP) {
                backoff.contention.slept();
                count += 1;
            }
            count
        };
        backoff.contention.yielded(CONTENDED - Duration::from_nanos(1));
        assert_eq!(sleeps(&mut backoff), 0);
        // Long contention: yields become rare.
        for wanted in [16, 32, 64, 128, 256, 512, 1024, 1024] {
            backoff.contention.yielded(CONTENDED);
            assert_eq!(sleeps(&mut backoff), wanted);
        }
        // One fast yield does not prove that the contention has ended; many do.
        backoff.contention.yielded(Duration::ZERO);
        assert_eq!(sleeps(&mut backoff), 0);
        backoff.contention.yielded(CONTENDED);
        assert_eq!(sleeps(&mut backoff), 1024);
        for _ in 0..11 {
            backoff.contention.yielded(Duration::ZERO);
        }
        backoff.contention.yielded(CONTENDED);
        assert_eq!(sleeps(&mut backoff), 16);
    }

    #[test]
    fn backoff_contended_cpu_is_not_spun_on() {
        let mut backoff = Backoff::new();
        assert_eq!(backoff.step(0, SECOND), BackoffStep::Spin);
        backoff.contention.yielded(CONTENDED);
        assert!(backoff.is_contended());
        assert_eq!(backoff.step(0, SECOND), BackoffStep::Sleep(CONTENDED_SLEEP));
        assert_eq!(backoff.step(0, 0), BackoffStep::Spin);
    }
}
