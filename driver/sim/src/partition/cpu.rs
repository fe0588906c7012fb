//! The CPUs on which the threads of partitions run.
//!
//! Partitions meet every few microseconds. A thread that sleeps until then on a CPU of its own leaves it idle, and an idle CPU, above all a
//! virtual one, takes longer to wake up than a partition needs from one exchange to the next. On a common CPU, a change of turns is a context
//! switch. So threads share a CPU, unless a trial shows that they are faster with a CPU each, where waiting threads spin:
//!
//! ```text
//! windows of 512 exchanges:   shared | shared, measured | apart, while faster | shared, measured | apart ...
//! ```
//!
//! A trial ends as soon as its window exceeds 4/5 of the measured window; a later window ends it if it exceeds the measured one. The
//! virtual times and the frames of a run do not depend on any of this.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Number of exchanges in a window, some milliseconds.
const WINDOW: u64 = 512;
/// Minimum and maximum number of exchanges between two trials.
const MIN_EXCHANGES: u64 = 16 * WINDOW;
const MAX_EXCHANGES: u64 = 256 * WINDOW;
/// Number of exchanges at which threads are not bound, so that each has slept and was woken where the system wanted.
const UNBOUND: u64 = 8;

/// Time of the system, and CPU time of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Clocks {
    now: Duration,
    used: Duration,
}

/// CPUs of the partitions' threads.
#[derive(Debug)]
pub(super) struct Cpus {
    epoch: Instant,
    /// CPUs that the threads may use, if there is one for each of them; otherwise empty.
    allowed: Vec<usize>,
    /// CPU that the threads share, or that of the first one; `None` while the system chooses.
    first: Option<usize>,
    /// `None` while the threads share a CPU.
    apart: Option<Apart>,
    /// Exchange and time at the start of the current window.
    window: (u64, Clocks),
    /// Exchange from which on a trial is due.
    trial: u64,
    interval: u64,
}

/// Threads with a CPU each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Apart {
    /// Maximum time of the current window.
    limit: Duration,
    /// Time of the window before the trial.
    shared: Duration,
}

impl Cpus {
    /// CPUs of `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let allowed: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        let is_parallel = threads > 1 && count.min(allowed.len()) >= threads;
        Self::with_allowed(Instant::now(), if is_parallel { allowed } else { Vec::new() })
    }

    const fn with_allowed(epoch: Instant, allowed: Vec<usize>) -> Self {
        Self {
            epoch,
            allowed,
            first: None,
            apart: None,
            window: (0, Clocks { now: Duration::ZERO, used: Duration::ZERO }),
            trial: 0,
            interval: MIN_EXCHANGES,
        }
    }

    /// Begins at exchange `round`. The first window is not measured: programs begin with other work.
    pub(super) fn begin(&mut self, round: u64) {
        (self.first, self.apart) = (None, None);
        (self.window, self.trial) = ((round, self.clocks()), round + WINDOW + 1);
        self.interval = MIN_EXCHANGES;
    }

    /// CPU of thread `number`; `None` lets the system choose.
    pub(super) fn of(&self, number: usize) -> Option<usize> {
        let first = self.first?;
        if self.apart.is_none() {
            return Some(first);
        }
        let at = self.allowed.iter().position(|cpu| *cpu == first).unwrap_or(0);
        self.allowed.iter().cycle().nth(at + number).copied()
    }

    /// Returns whether each thread has a CPU of its own.
    pub(super) const fn are_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// Reviews the placement after exchange `round`.
    pub(super) fn review(&mut self, round: u64) {
        if self.first.is_none() && round.saturating_sub(self.window.0) >= UNBOUND {
            self.first = Some(sched_getcpu());
        }
        if self.is_full(round) {
            self.judge(round, self.clocks());
        } else if self.is_too_long(self.epoch.elapsed()) {
            self.apart = None;
            self.window = (round, self.clocks());
        }
    }

    fn clocks(&self) -> Clocks {
        let used = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default();
        Clocks { now: self.epoch.elapsed(), used }
    }

    /// Returns whether threads with a CPU each take longer than they should, at time `now`.
    fn is_too_long(&self, now: Duration) -> bool {
        self.apart.is_some_and(|apart| now.saturating_sub(self.window.1.now) > apart.limit)
    }

    const fn is_full(&self, round: u64) -> bool {
        round.saturating_sub(self.window.0) >= WINDOW
    }

    /// Ends the window.
    fn judge(&mut self, round: u64, clocks: Clocks) {
        let span = clocks.now.saturating_sub(self.window.1.now);
        let used = clocks.used.saturating_sub(self.window.1.used);
        match self.apart {
            // If a trial is due, the next window is measured.
            Some(_) if round >= self.trial || self.is_too_long(clocks.now) => self.apart = None,
            Some(Apart { shared, .. }) => self.apart = Some(Apart { limit: shared, shared }),
            None if round >= self.trial && !self.allowed.is_empty() => {
                self.apart = Some(Apart { limit: span * 4 / 5, shared: span });
                self.trial = round + self.interval;
                self.interval = (2 * self.interval).min(MAX_EXCHANGES);
            }
            // Other programs need this CPU. The system moves threads that are not bound to an idle CPU, if there is one.
            None if is_contended(span, used) => self.first = None,
            None => {}
        }
        self.window = (round, clocks);
    }
}

/// Returns whether threads of which one always has work waited for a CPU for a quarter of `span` or longer, if they used it for `used`.
fn is_contended(span: Duration, used: Duration) -> bool {
    used < span - span / 4
}

/// Binding of a partition's thread to a CPU.
#[derive(Debug, Default)]
pub(super) struct Binding {
    cpu: Option<usize>,
    /// The thread, and CPUs that it may use without the binding.
    before: Option<(ThreadId, CpuSet)>,
}

impl Binding {
    /// Binds the calling thread to CPU `cpu`, or to none. A refusal costs only time.
    pub(super) fn follow(&mut self, cpu: Option<usize>) {
        if self.cpu == cpu {
            return;
        }
        self.cpu = cpu;
        let thread = std::thread::current().id();
        let known = self.before.filter(|(bound, _)| *bound == thread);
        let Some(before) = known.or_else(|| sched_getaffinity(None).ok().map(|cpus| (thread, cpus))) else {
            return;
        };
        self.before = Some(before);
        let mut cpus = CpuSet::new();
        match cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU && before.1.is_set(*cpu)) {
            Some(cpu) => cpus.set(cpu),
            None => cpus = before.1,
        }
        let _ = sched_setaffinity(None, &cpus);
    }

    /// Ends the binding. Another thread's remains: only that thread knows whether it still exists.
    pub(super) fn end(&mut self) {
        self.cpu = None;
        if let Some((thread, cpus)) = self.before.take()
            && thread == std::thread::current().id()
        {
            let _ = sched_setaffinity(None, &cpus);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads on CPU 5, at the start of their first window.
    fn cpus(allowed: &[usize]) -> Cpus {
        let mut cpus = Cpus::with_allowed(Instant::now(), allowed.to_vec());
        (cpus.first, cpus.trial) = (Some(5), WINDOW + 1);
        cpus
    }

    /// Passes windows in which the process uses its CPU, and that take `microseconds` each.
    fn pass(cpus: &mut Cpus, microseconds: &[u64]) {
        for span in microseconds {
            let (round, Clocks { now, used }) = cpus.window;
            let span = Duration::from_micros(*span);
            cpus.judge(round + WINDOW, Clocks { now: now + span, used: used + span });
        }
    }

    fn both(cpus: &Cpus) -> [Option<usize>; 2] {
        [0, 1].map(|number| cpus.of(number))
    }

    #[test]
    fn threads_stay_apart_while_faster() {
        let mut cpus = cpus(&[2, 5]);
        pass(&mut cpus, &[9_000]);
        assert_eq!(both(&cpus), [Some(5); 2]);
        // The trial begins after the second window.
        pass(&mut cpus, &[1_000]);
        assert_eq!(both(&cpus), [Some(5), Some(2)]);
        pass(&mut cpus, &[800, 1_000, 1_000]);
        assert!(cpus.are_apart());
        pass(&mut cpus, &[1_001]);
        assert_eq!(both(&cpus), [Some(5); 2]);
    }

    #[test]
    fn trial_ends_when_not_faster() {
        let mut cpus = cpus(&[2, 5]);
        pass(&mut cpus, &[1_000; 2]);
        let began = cpus.window.1.now;
        assert!(!cpus.is_too_long(began + Duration::from_micros(800)));
        assert!(cpus.is_too_long(began + Duration::from_micros(801)));
        pass(&mut cpus, &[801]);
        assert!(!cpus.are_apart());
        // The next one is due after an interval that doubles.
        let windows = usize::try_from(MIN_EXCHANGES / WINDOW).unwrap_or_default();
        pass(&mut cpus, &vec![1_000; windows - 2]);
        assert!(!cpus.are_apart());
        pass(&mut cpus, &[1_000]);
        assert!(cpus.are_apart());
        assert_eq!(cpus.interval, 4 * MIN_EXCHANGES);
    }

    #[test]
    fn successful_trial_is_repeated() {
        let mut cpus = cpus(&[2, 5]);
        pass(&mut cpus, &[1_000; 2]);
        let windows = usize::try_from(MIN_EXCHANGES / WINDOW).unwrap_or_default();
        pass(&mut cpus, &vec![500; windows - 1]);
        assert!(cpus.are_apart());
        // Measured again with a common CPU.
        pass(&mut cpus, &[500]);
        assert!(!cpus.are_apart());
        pass(&mut cpus, &[600]);
        assert_eq!(cpus.apart.map(|apart| apart.shared), Some(Duration::from_micros(600)));
    }

    #[test]
    fn threads_without_cpu_each_share() {
        let mut cpus = cpus(&[]);
        pass(&mut cpus, &[1_000; 64]);
        assert_eq!(both(&cpus), [Some(5); 2]);
    }

    #[test]
    fn contended_cpu_is_left() {
        let mut cpus = cpus(&[]);
        let span = Duration::from_micros(1_000);
        cpus.judge(WINDOW, Clocks { now: span, used: span * 3 / 4 });
        assert_eq!(both(&cpus), [Some(5); 2]);
        cpus.judge(2 * WINDOW, Clocks { now: span * 2, used: span * 3 / 4 + span / 2 });
        assert_eq!(both(&cpus), [None; 2]);
    }
}
