//! Ownership of the simulated network: the worker holds it until another thread asks; and the worker's sleep.
//!
//! The worker keeps the lock while it works, since taking it for every burst would cost more than the burst. A thread that wants the lock
//! increments `asked` first. The worker checks this counter between bursts, releases the lock, and takes it again when the threads that had
//! asked are served. To avoid starvation by threads that ask repeatedly, it then sets `turn`.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Thread, park_timeout};
use crossbeam::utils::{Backoff, CachePadded};
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;
use std::time::Duration;

/// Communication between the worker and callers. Each field has its own cache lines, so that a writer of one field does not slow down
/// readers of another.
#[derive(Debug)]
pub(crate) struct LockGate {
    /// Number of requests for the lock.
    asked: CachePadded<AtomicU64>,
    /// Number of releases of the lock.
    served: CachePadded<AtomicU64>,
    /// Whether the worker waits for the lock: other threads let it pass.
    turn: CachePadded<AtomicBool>,
    /// Whether the worker sleeps, or is about to.
    parked: CachePadded<AtomicBool>,
    /// Number of times that the worker found nothing to do.
    idle_count: CachePadded<AtomicU64>,
    /// Whether the worker is to end.
    stop: AtomicBool,
    /// Whether the worker runs. It may end early if a card panics.
    alive: AtomicBool,
    worker: OnceLock<Thread>,
    /// Whether accesses wake a sleeping worker.
    wakes: bool,
    /// Whether the worker issues a membarrier when it goes to sleep, which makes the stores of all threads visible. Posting a write then
    /// needs no fence, which would wait for all earlier stores, including descriptors, at every doorbell.
    barriers: bool,
}

/// Makes every running thread of this process execute a full fence; returns `false` if the system does not support this.
fn issue_membarrier() -> bool {
    // Loom explores interleavings with fences only.
    cfg!(not(loom)) && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

/// One request for the lock, from asking to release.
#[derive(Debug)]
pub(crate) struct LockRequest<'a>(&'a LockGate);

impl Drop for LockRequest<'_> {
    fn drop(&mut self) {
        self.0.served.fetch_add(1, Ordering::Release);
        // The worker sets `parked` before it releases the lock that this thread took after it.
        if self.0.wakes && self.0.parked.load(Ordering::Relaxed) {
            self.0.unpark();
        }
    }
}

impl LockGate {
    /// `wakes`: whether accesses wake a sleeping worker.
    pub(crate) fn new(wakes: bool) -> Self {
        Self {
            asked: CachePadded::new(AtomicU64::new(0)),
            served: CachePadded::new(AtomicU64::new(0)),
            turn: CachePadded::new(AtomicBool::new(false)),
            parked: CachePadded::new(AtomicBool::new(false)),
            idle_count: CachePadded::new(AtomicU64::new(0)),
            stop: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            worker: OnceLock::new(),
            wakes,
            barriers: membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && issue_membarrier(),
        }
    }

    // Callers' side.

    /// Asks for the lock; take it afterwards. Release the lock before dropping the request.
    pub(crate) fn ask(&self) -> LockRequest<'_> {
        let backoff = Backoff::new();
        // Bounded wait: the worker may have no CPU to run on.
        while self.turn.load(Ordering::Relaxed) && !backoff.is_completed() {
            backoff.snooze();
        }
        self.pass()
    }

    /// Like [`ask`](Self::ask), for a thread that has taken the free lock: the worker is woken afterwards if it has parked meanwhile.
    pub(crate) fn pass(&self) -> LockRequest<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        LockRequest(self)
    }

    /// Returns whether accesses wake a sleeping worker.
    pub(crate) const fn wakes(&self) -> bool {
        self.wakes
    }

    /// Call after posting a write without the lock: wakes the worker if it sleeps.
    #[inline]
    pub(crate) fn posted(&self) {
        if !self.wakes {
            return;
        }
        // Either the worker sees the posted write before it sleeps, or this thread sees that the worker is about to sleep.
        if self.barriers {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
        if self.parked.load(Ordering::Relaxed) {
            self.unpark();
        }
    }

    #[cold]
    fn unpark(&self) {
        if self.parked.swap(false, Ordering::AcqRel)
            && let Some(worker) = self.worker.get()
        {
            worker.unpark();
        }
    }

    /// Requests the end of the worker, which it notices at its next check.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Makes the worker check. No thread takes the lock for it.
        self.asked.fetch_add(1, Ordering::Release);
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Returns the number of times that the worker found nothing to do. To be read with the lock held: every later count was found later.
    pub(crate) fn idle_count(&self) -> u64 {
        self.idle_count.load(Ordering::Acquire)
    }

    /// Returns whether the worker sleeps, or is about to.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }

    // Worker's side.

    pub(crate) fn set_worker(&self, thread: Thread) {
        // Set once, by the thread that starts the worker.
        let _ = self.worker.set(thread);
    }

    pub(crate) fn set_dead(&self) {
        self.alive.store(false, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Returns the number of requests so far, with the lock held; `asked` minus `served` requests still wait.
    #[inline]
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// Returns the number of completed requests, with the lock held.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Acquire)
    }

    /// Call after releasing the lock: waits for the threads that had asked, and then takes the lock by `lock`.
    pub(crate) fn reacquire<T>(&self, lock: impl FnOnce() -> T) -> T {
        let asked = self.asked();
        let backoff = Backoff::new();
        // Another thread may keep the lock for long; blocking on the lock itself is better then.
        while self.served() < asked && !backoff.is_completed() {
            backoff.snooze();
        }
        self.turn.store(true, Ordering::Relaxed);
        let locked = lock();
        self.turn.store(false, Ordering::Relaxed);
        locked
    }

    /// Counts a round without work, with the lock held.
    #[inline]
    pub(crate) fn worker_idle(&self) {
        // There is only one writer.
        self.idle_count.store(self.idle_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Announces sleep, with the lock held: from now on the worker must be woken. Release the lock, and [`park`](Self::park).
    pub(crate) fn prepare_to_sleep(&self) {
        // Not a plain store: it must come after the last reset of the flag, and be visible to all threads.
        self.parked.swap(true, Ordering::AcqRel);
    }

    /// Sleeps until woken or for `timeout`, unless `is_idle` finds work that came before. Returns whether there is a reason to be awake
    /// other than the timeout.
    pub(crate) fn park(&self, timeout: Duration, is_idle: impl FnOnce() -> bool) -> bool {
        // Counterpart of the fence in `posted`.
        let fenced = if self.barriers {
            issue_membarrier()
        } else {
            fence(Ordering::SeqCst);
            true
        };
        let idle = fenced && is_idle() && !self.is_stopping();
        if idle {
            park_timeout(timeout);
        }
        !self.parked.swap(false, Ordering::AcqRel) || !idle
    }
}
