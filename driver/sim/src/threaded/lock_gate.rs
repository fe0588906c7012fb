//! Who holds the world: the worker, until somebody asks; and the worker's sleep.
//!
//! The worker keeps the lock while it works, since taking it for every burst would cost more than the burst. Whoever
//! wants it raises `asked` first; the worker looks there between bursts, lets go, and comes back when those who had asked
//! are served. Not to be shut out by threads that ask again and again, it then says that it is its turn.

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use crate::sync::{Thread, park_timeout};
use crossbeam::utils::{Backoff, CachePadded};
use rustix::thread::{MembarrierCommand, membarrier};
use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;
use std::time::Duration;

/// What worker and callers tell each other. Each field has cache lines of its own: who writes one must not slow down
/// who reads another.
#[derive(Debug)]
pub(crate) struct LockGate {
    /// How often the lock was asked for.
    asked: CachePadded<AtomicU64>,
    /// How often it was given back.
    served: CachePadded<AtomicU64>,
    /// The worker waits for the lock: others let it pass.
    turn: CachePadded<AtomicBool>,
    /// The worker sleeps, or is about to.
    parked: CachePadded<AtomicBool>,
    /// How often the worker found nothing to do.
    idle_count: CachePadded<AtomicU64>,
    /// The worker is to end.
    stop: AtomicBool,
    /// The worker runs. It may end early if a card panics.
    alive: AtomicBool,
    worker: OnceLock<Thread>,
    /// The worker makes everybody's stores visible when it goes to sleep, so that who posts something needs no fence: that
    /// would wait until all stores before it, descriptors not least, have found their way, for every doorbell.
    barriers: bool,
}

/// Has every running thread of this process execute a full fence; `false` if the system does not do that.
fn issue_membarrier() -> bool {
    // Interleavings can be tried with fences only.
    cfg!(not(loom)) && membarrier(MembarrierCommand::PrivateExpedited).is_ok()
}

/// One request for the lock, from asking to giving back.
#[derive(Debug)]
pub(crate) struct LockRequest<'a>(&'a LockGate);

impl Drop for LockRequest<'_> {
    fn drop(&mut self) {
        self.0.served.fetch_add(1, Ordering::Release);
        // The worker sets `parked` before it lets go of the lock that this thread had after it.
        if self.0.parked.load(Ordering::Relaxed) {
            self.0.unpark();
        }
    }
}

impl LockGate {
    pub(crate) fn new() -> Self {
        Self {
            asked: CachePadded::new(AtomicU64::new(0)),
            served: CachePadded::new(AtomicU64::new(0)),
            turn: CachePadded::new(AtomicBool::new(false)),
            parked: CachePadded::new(AtomicBool::new(false)),
            idle_count: CachePadded::new(AtomicU64::new(0)),
            stop: AtomicBool::new(false),
            alive: AtomicBool::new(true),
            worker: OnceLock::new(),
            barriers: membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok() && issue_membarrier(),
        }
    }

    // What callers do.

    /// Asks for the lock; take it then. Give the lock back before the pass.
    pub(crate) fn ask(&self) -> LockRequest<'_> {
        let backoff = Backoff::new();
        // Courtesy has an end: the worker may have no CPU to run on.
        while self.turn.load(Ordering::Relaxed) && !backoff.is_completed() {
            backoff.snooze();
        }
        self.pass()
    }

    /// As [`ask`](Self::ask), for a thread that has taken the free lock: the worker is woken afterwards if it has parked meanwhile.
    pub(crate) fn pass(&self) -> LockRequest<'_> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        LockRequest(self)
    }

    /// After posting something without the lock: wakes the worker if it sleeps.
    #[inline]
    pub(crate) fn posted(&self) {
        // Either the worker sees what was posted before it sleeps, or this thread sees that it is about to.
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

    /// Tells the worker to end, as soon as it looks.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        // Makes the worker look. Nobody takes the lock for it.
        self.asked.fetch_add(1, Ordering::Release);
        if let Some(worker) = self.worker.get() {
            worker.unpark();
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// How often the worker found nothing to do. To be read with the lock held: everything that is counted later was
    /// found later.
    pub(crate) fn idle_count(&self) -> u64 {
        self.idle_count.load(Ordering::Acquire)
    }

    /// Whether the worker sleeps, or is about to.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Relaxed)
    }

    // What the worker does.

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

    /// Requests that nobody has been given the lock for, with the lock held: `asked` minus `served`.
    #[inline]
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// With the lock held: so many requests are over, and all others wait.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Acquire)
    }

    /// After letting go of the lock: waits for those who had asked, and then takes the lock by `lock`.
    pub(crate) fn reacquire<T>(&self, lock: impl FnOnce() -> T) -> T {
        let asked = self.asked();
        let backoff = Backoff::new();
        // Somebody may keep the lock for long; the lock itself is the better place to wait for that.
        while self.served() < asked && !backoff.is_completed() {
            backoff.snooze();
        }
        self.turn.store(true, Ordering::Relaxed);
        let locked = lock();
        self.turn.store(false, Ordering::Relaxed);
        locked
    }

    /// With the lock held: nothing was found to do.
    #[inline]
    pub(crate) fn worker_idle(&self) {
        // There is one writer.
        self.idle_count.store(self.idle_count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// With the lock held: from now on the worker must be woken. Give the lock back, and [`park`](Self::park).
    pub(crate) fn prepare_to_sleep(&self) {
        // Not a plain store: it comes after the last time that somebody took the flag back, and everybody knows.
        self.parked.swap(true, Ordering::AcqRel);
    }

    /// Sleeps until woken or for `timeout`, unless `is_idle` finds something that came before. Returns whether there is
    /// a reason to be awake other than the time.
    pub(crate) fn park(&self, timeout: Duration, is_idle: impl FnOnce() -> bool) -> bool {
        // The other half of the fence in `posted`.
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
