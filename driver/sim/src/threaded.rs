//! Cards that work by themselves, on a thread of their own.
//!
//! One worker per world runs all its cards and the network. It owns the state by holding its lock; everybody else asks
//! for the lock ([`lock_gate`]) and gets it between two bursts of work. Register writes do not: they travel through a queue
//! per card ([`posted`]). Whoever takes the lock applies what is queued first, as reads push posted writes ahead of them
//! on PCIe, so that the accesses of one thread happen in the order that it made them in.

mod lock_gate;
pub(crate) mod posted;
mod worker;

use crate::state::State;
use crate::sync::atomic::{AtomicU32, Ordering};
use lock_gate::LockGate;
pub(crate) use lock_gate::LockRequest;
use posted::{PostedQueue, PostedWrite};
use std::sync::Mutex;
use std::time::{Duration, Instant};
pub(crate) use worker::Worker;

use crossbeam::utils::{Backoff, CachePadded};

/// How long an idle worker looks for work before it sleeps, unless it is told otherwise.
const SPIN: Duration = Duration::from_micros(50);

/// Maximum number of bursts that a waiting thread does for the worker before it looks for what it waits for.
const HELP_ROUNDS: u32 = 16;

/// The thread of a [`SimNetwork`](crate::SimNetwork) whose cards work by themselves; see
/// [`SimNetworkBuilder::threaded`](crate::SimNetworkBuilder::threaded).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadOptions {
    /// CPU that the thread is bound to; `None` leaves it to the system.
    pub cpu: Option<usize>,
    /// How long an idle thread goes on looking for work before it sleeps. The first access after that pays for the
    /// wake-up: tens of microseconds. [`Duration::MAX`] never sleeps and costs a CPU.
    pub spin: Duration,
}

impl Default for ThreadOptions {
    fn default() -> Self {
        Self { cpu: None, spin: SPIN }
    }
}

impl ThreadOptions {
    /// Binds the thread to a CPU.
    #[must_use]
    pub const fn pin(mut self, cpu: usize) -> Self {
        self.cpu = Some(cpu);
        self
    }

    /// Sets how long an idle thread goes on looking for work before it sleeps.
    #[must_use]
    pub const fn spin(mut self, span: Duration) -> Self {
        self.spin = span;
        self
    }
}

/// One card's way in that needs no lock.
#[derive(Debug)]
pub(crate) struct Mailbox {
    posted: PostedQueue,
    /// Resets so far, as in the card's slot. Written with the lock held.
    generation: CachePadded<AtomicU32>,
}

/// What the worker shares with everybody else, beside the state.
#[derive(Debug)]
pub(crate) struct WorkerState {
    gate: LockGate,
    mailboxes: Box<[Mailbox]>,
    /// When time began.
    epoch: Instant,
    /// The process had one CPU when the world was built: the world's thread and those that wait for it take turns.
    pub(crate) single_cpu: bool,
}

/// The write was not posted: it does not fit, or there is no room for long. It is to be made with the lock held.
#[derive(Debug)]
pub(crate) struct NotPosted;

/// A BAR was opened before the last reset.
#[derive(Debug)]
pub(crate) struct StaleBar;

impl WorkerState {
    pub(crate) fn new(cards: usize) -> Self {
        let mailbox =
            || Mailbox { posted: PostedQueue::new(), generation: CachePadded::new(AtomicU32::new(0)) };
        // Here, by the thread that builds the world: a thread that is bound to a CPU sees no other.
        let single_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        let mailboxes = (0..cards).map(|_| mailbox()).collect();
        Self { gate: LockGate::new(), mailboxes, epoch: Instant::now(), single_cpu }
    }

    /// Nanoseconds since the world was made.
    pub(crate) fn elapsed(&self) -> fpga_protocol::Nanos {
        fpga_protocol::Nanos::new(u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Asks for the lock.
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

    /// Back-pressure: waits for room. A worker that does not run makes none; then the caller has to do it.
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

    /// With the lock held: the card was reset, and BARs opened before are stale.
    pub(crate) fn set_generation(&self, card: usize, generation: u32) {
        if let Some(mailbox) = self.mailboxes.get(card) {
            mailbox.generation.store(generation, Ordering::Release);
        }
    }

    /// Writes posted to all cards so far.
    fn tickets(&self) -> u64 {
        self.mailboxes.iter().map(|mailbox| mailbox.posted.tickets()).sum()
    }

    /// Does the worker's work, if the lock is free: the worker sleeps, or waits for a CPU. Returns whether there was any.
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
        // The lock goes back first.
        drop(state);
        drop(pass);
        worked
    }

    /// Waits until the worker has found nothing to do after the lock was given back, as `rests` and a release of the lock
    /// say. A worker that is gone is not waited for.
    pub(crate) fn wait_until_idle(&self, rests: u64) {
        let backoff = Backoff::new();
        while self.gate.idle_count() == rests && self.gate.is_alive() {
            backoff.snooze();
        }
    }

    /// With the lock held: how often the worker had nothing to do.
    pub(crate) fn idle_count(&self) -> u64 {
        self.gate.idle_count()
    }

    /// Applies every write that was posted before, as far as this thread can know of it.
    pub(crate) fn apply_all(&self, state: &mut State) {
        for (mailbox, slot) in self.mailboxes.iter().zip(&mut state.slots) {
            let until = mailbox.posted.tickets();
            let backoff = Backoff::new();
            while slot.posted.taken() < until {
                match mailbox.posted.take(&mut slot.posted) {
                    Some(write) => slot.apply(write),
                    // Somebody has a ticket and is about to fill the slot.
                    None => backoff.snooze(),
                }
            }
        }
    }

    /// Applies writes that are there.
    #[inline]
    fn apply(&self, state: &mut State) -> u64 {
        let mut applied = 0;
        for (mailbox, slot) in self.mailboxes.iter().zip(&mut state.slots) {
            // Who posts without end must not keep the card from working.
            for _ in 0..posted::CAPACITY {
                let Some(write) = mailbox.posted.take(&mut slot.posted) else { break };
                slot.apply(write);
                applied += 1;
            }
        }
        applied
    }
}

/// The state and, if its cards work by themselves, what their thread needs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
    pub(crate) threaded: Option<WorkerState>,
    /// Threads that wait for the state, without having found it free.
    pub(crate) waiting: AtomicU32,
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(test)]
mod tests;
