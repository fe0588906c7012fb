//! The CPU on which the threads of partitions take turns.
//!
//! Partitions meet every few microseconds. A thread that sleeps until then on a CPU of its own leaves it idle, and an idle CPU, above all a
//! virtual one, takes longer to wake up than a partition needs from one exchange to the next. On a common CPU, a change of turns is a context
//! switch. The virtual times and the frames of a run do not depend on any of this.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Number of exchanges between two reviews, some tens of milliseconds.
const REVIEW: u64 = 1_024;

/// CPU of all partitions' threads.
#[derive(Debug, Default)]
pub(super) struct CommonCpu {
    /// `None` until the next exchange: the system chooses.
    number: Option<usize>,
    /// Time of the last review, and CPU time of the process until then.
    reviewed: Option<(Instant, Duration)>,
}

impl CommonCpu {
    pub(super) const fn number(&self) -> Option<usize> {
        self.number
    }

    /// Takes the calling thread's CPU, if there is none yet, or lets the system choose again, if other programs need this one: it moves
    /// threads that are not bound to an idle CPU, if there is one. `round`: number of the exchange.
    pub(super) fn review(&mut self, round: u64) {
        if self.number.is_none() {
            self.number = Some(sched_getcpu());
            self.reviewed = None;
        } else if round.is_multiple_of(REVIEW) {
            let now = (Instant::now(), cpu_time());
            if let Some((then, used)) = self.reviewed.replace(now) {
                let (span, used) = (now.0.saturating_duration_since(then), now.1.saturating_sub(used));
                if is_contended(span, used) {
                    self.number = None;
                }
            }
        }
    }
}

/// Whether threads of which one always has work waited for a CPU for a quarter of `span` or longer, if they used it for `used`.
fn is_contended(span: Duration, used: Duration) -> bool {
    used < span - span / 4
}

/// CPU time of the process.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Binding of a partition's thread to the common CPU.
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
