//! Cards that work on a thread of their own.
//!
//! One worker per simulated network runs all its cards and the network. It owns the state by holding its lock; all other threads request
//! the lock ([`lock_gate`]) and get it between two bursts of work. Register writes need no lock: they go through a queue per card
//! ([`posted`]). A thread that takes the lock applies the queued writes first, as reads push posted writes ahead of them on PCIe, so that
//! the accesses of one thread happen in program order.

mod lock_gate;
pub(crate) mod posted;
mod worker;

use crate::state::State;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use lock_gate::LockGate;
pub(crate) use lock_gate::LockRequest;
use posted::{PostedQueue, PostedWrite};
use std::sync::Mutex;
use std::time::{Duration, Instant};
pub(crate) use worker::Worker;

use crossbeam::utils::{Backoff, CachePadded};

/// Default time for which an idle worker polls for work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// Maximum number of bursts that a waiting thread does for the worker before it checks its own condition.
const HELP_ROUNDS: u32 = 16;

/// The thread of a [`SimNetwork`](crate::SimNetwork) whose cards work by themselves; see
/// [`SimNetworkBuilder::threaded`](crate::SimNetworkBuilder::threaded).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadOptions {
    /// CPU that the thread is bound to; `None` lets the system choose.
    pub cpu: Option<usize>,
    /// Time for which an idle thread polls for work before it sleeps. The first access after that has the cost of the wake-up: tens of
    /// microseconds. [`Duration::MAX`] never sleeps and occupies a CPU.
    pub spin: Duration,
    /// Other threads do the work of the cards in their polling loops, and accesses do not wake the thread: it looks for work every 10 ms.
    /// For a program whose threads wait for their transfers, and leave no CPU for another one. `spin` has no effect then.
    pub attended: bool,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        Self { cpu: None, spin: SPIN, attended: false }
    }
}

impl ThreadOptions {
    /// Binds the thread to a CPU.
    #[must_use]
    pub const fn pin(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Sets the time for which an idle thread polls for work before it sleeps.
    #[must_use]
    pub const fn spin(mut self, span: Duration) -> Self {
        self.spin = span;
        self
    }

    /// Lets other threads do the work of the cards.
    #[must_use]
    pub const fn attended(mut self, attended: bool) -> Self {
        self.attended = attended;
        self
    }
}

/// Lock-free input queue of one card.
#[derive(Debug)]
pub(crate) struct Mailbox {
    posted: PostedQueue,
    /// Number of resets so far, as in the card's slot. Written with the lock held.
    generation: CachePadded<AtomicU32>,
}

/// Data that the worker shares with other threads, beside the state.
#[derive(Debug)]
pub(crate) struct WorkerState {
    gate: LockGate,
    mailboxes: Box<[Mailbox]>,
    /// Start of time.
    epoch: Instant,
    /// Whether the process had one CPU when the simulated network was built: the worker and the threads that wait for it then alternate.
    pub(crate) single_cpu: bool,
}

/// The write was not posted: it does not fit, or the queue stayed full. It must be made with the lock held.
#[derive(Debug)]
pub(crate) struct NotPosted;

/// A BAR was opened before the last reset.
#[derive(Debug)]
pub(crate) struct StaleBar;

impl WorkerState {
    pub(crate) fn new(cards: usize, options: ThreadOptions) -> Self {
        let mailbox =
            || Mailbox { posted: PostedQueue::new(), generation: CachePadded::new(AtomicU32::new(0)) };
        // Read here, by the thread that builds the simulated network: a thread bound to a CPU sees only that CPU.
        let single_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let mailboxes = (0..cards).map(|_| mailbox()).collect();
        Self { gate: LockGate::new(!options.attended), mailboxes, epoch: Instant::now(), single_cpu }
    }

    /// Nanoseconds since the simulated network was created.
    pub(crate) fn elapsed(&self) -> fpga_protocol::Nanos {
        fpga_protocol::Nanos::from(self.epoch.elapsed())
    }

    /// Returns whether other threads do the work in their polling loops.
    pub(crate) const fn is_attended(&self) -> bool {
        !self.gate.wakes()
    }

    /// Requests the lock.
    pub(crate) fn ask(&self) -> LockRequest<'_> {
        self.gate.ask()
    }

    /// Posts a write of `value` at `offset` of BAR `bar`, which was opened in `generation`.
    #[inline]
    pub(crate) fn post(
        &self,
        card: usize,
        bar: u8,
        generation: u32,
        offset: u64,
        value: u32,
    ) -> Result<Result<(), NotPosted>, StaleBar> {
        let Some(mailbox) = self.mailboxes.get(card) else { return Ok(Err(NotPosted)) };
        if mailbox.generation.load(Ordering::Acquire) != generation {
            return Err(StaleBar);
        }
        let Some(write) = PostedWrite::new(bar, offset, value, generation) else { return Ok(Err(NotPosted)) };
        if mailbox.posted.post(write).is_err() && !self.post_blocking(mailbox, write) {
            return Ok(Err(NotPosted));
        }
        self.gate.posted();
        Ok(Ok(()))
    }

    /// Waits for space in the queue (back-pressure). If the worker does not run, the caller has to do its work.
    #[cold]
    fn post_blocking(&self, mailbox: &Mailbox, write: PostedWrite) -> bool {
        let backoff = Backoff::new();
        while !backoff.is_completed() {
            backoff.snooze();
            if mailbox.posted.post(write).is_ok() {
                return true;
            }
        }
        false
    }

    /// Records a reset of the card, with the lock held: earlier opened BARs become stale.
    pub(crate) fn set_generation(&self, card: usize, generation: u32) {
        if let Some(mailbox) = self.mailboxes.get(card) {
            mailbox.generation.store(generation, Ordering::Release);
        }
    }

    /// Returns the number of writes posted to all cards so far.
    fn tickets(&self) -> u64 {
        self.mailboxes.iter().map(|mailbox| mailbox.posted.tickets()).sum()
    }

    /// Does the worker's work if the lock is free: the worker sleeps, or waits for a CPU. Returns whether there was any.
    pub(crate) fn work(&self, state: &Mutex<State>) -> bool {
        if !self.gate.is_alive() {
            return false;
        }
        let Ok(mut state) = state.try_lock() else { return false };
        let pass = self.gate.pass();
        let mut worked = false;
        state.now = state.now.max(self.elapsed());
        for _ in 0..HELP_ROUNDS {
            if self.apply(&mut state) + state.burst() == 0 {
                break;
            }
            worked = true;
        }
        // The lock is released first.
        drop(state);
        drop(pass);
        worked
    }

    /// Waits until the worker has found nothing to do after the lock was released. `rests` is the idle count at that time. Does not wait
    /// for a worker that has ended.
    pub(crate) fn wait_until_idle(&self, rests: u64) {
        let backoff = Backoff::new();
        while self.gate.idle_count() == rests && self.gate.is_alive() {
            backoff.snooze();
        }
    }

    /// Returns the number of times that the worker had nothing to do. Call with the lock held.
    pub(crate) fn idle_count(&self) -> u64 {
        self.gate.idle_count()
    }

    /// Applies every write that was posted before, as far as this thread can observe.
    pub(crate) fn apply_all(&self, state: &mut State) {
        for (mailbox, slot) in self.mailboxes.iter().zip(&mut state.slots) {
            let until = mailbox.posted.tickets();
            let backoff = Backoff::new();
            while slot.posted.taken() < until {
                match mailbox.posted.take(&mut slot.posted) {
                    Some(write) => slot.apply(write),
                    // Another thread has a ticket and is about to fill the slot.
                    None => backoff.snooze(),
                }
            }
        }
    }

    /// Applies the writes in the queues.
    #[inline]
    fn apply(&self, state: &mut State) -> u64 {
        let mut applied = 0;
        for (mailbox, slot) in self.mailboxes.iter().zip(&mut state.slots) {
            // A thread that posts continuously must not keep the card from working.
            for _ in 0..posted::CAPACITY {
                let Some(write) = mailbox.posted.take(&mut slot.posted) else { break };
                slot.apply(write);
                applied += 1;
            }
        }
        applied
    }
}

/// The state and, if the cards work by themselves, the data of their thread.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) threaded: Option<WorkerState>,
    /// Number of threads that wait for the state after they have found it locked.
    pub(crate) waiting: AtomicU32,
    /// Virtual time when the state was last unlocked, in nanoseconds: software reads the clock at every poll.
    pub(crate) now: AtomicU64,
    /// Whether a link shares time with other processes.
    pub(crate) is_linked: bool,
    /// Process that has built the network. A child has neither its thread nor usable locks.
    pub(crate) process: fpga_pci::Process,
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
mod tests;
