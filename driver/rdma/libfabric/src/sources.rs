//! Lists of endpoints: of completion queues, counters, and the progress thread of a domain.

use crate::wait::Wait;
use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Endpoint as a source of completions.
pub(crate) trait Source: Send + Sync {
    /// Number, unique in the process.
    fn id(&self) -> u64;

    /// Makes operations progress, and passes completions to queues and counters. Returns the amount of work done.
    fn progress(&self) -> usize;

    /// Makes operations progress in the domain's thread. With `only_idle`, only if the program has not done so since the last call.
    fn progress_in_thread(&self, only_idle: bool) -> Attention;

    /// Time that a thread may sleep; zero if there is work.
    fn prepare_to_sleep(&self) -> Duration;

    /// Calls `visit` with the engine's descriptor, if it has one.
    fn visit_events(&self, visit: &mut dyn FnMut(BorrowedFd<'_>));
}

/// Result of [`Source::progress_in_thread`]. The maximum stands for several endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Attention {
    /// There was no work.
    Idle,
    /// The program makes the endpoint progress.
    ByProgram,
    /// Operations have progressed.
    Worked,
}

/// Returns a new number for an endpoint.
pub(crate) fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Maximum sleep of a waiting thread, for engines without a descriptor.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

/// Maximum sleep of a thread in a blocking call: another thread may have taken the event that was meant for this one.
const MAX_BLOCKING_SLEEP: Duration = Duration::from_millis(100);

/// Endpoints, and the wait object of their queue.
pub(crate) struct Sources {
    list: RwLock<Vec<Arc<dyn Source>>>,
    wait: Option<Wait>,
}

impl Sources {
    pub(crate) fn new(wait: Option<Wait>) -> Self {
        Self { list: RwLock::new(Vec::new()), wait }
    }

    pub(crate) fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// Adds an enabled endpoint.
    pub(crate) fn attach(&self, source: Arc<dyn Source>) {
        if let Some(wait) = &self.wait {
            source.visit_events(&mut |events| wait.watch(events));
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        if list.iter().all(|other| other.id() != source.id()) {
            list.push(source);
        }
    }

    /// Removes an endpoint.
    pub(crate) fn detach(&self, id: u64) {
        self.list.write().unwrap_or_else(PoisonError::into_inner).retain(|source| source.id() != id);
    }

    /// All endpoints.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Source>> {
        self.list.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes all endpoints progress.
    pub(crate) fn progress(&self) -> usize {
        self.list.read().unwrap_or_else(PoisonError::into_inner).iter().map(|source| source.progress()).sum()
    }

    /// Makes endpoints progress that the program does not drive.
    pub(crate) fn drive_idle(&self) -> Attention {
        self.drive(true)
    }

    /// Makes all endpoints progress in the domain's thread.
    pub(crate) fn drive_all(&self) -> Attention {
        self.drive(false)
    }

    fn drive(&self, only_idle: bool) -> Attention {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().map(|source| source.progress_in_thread(only_idle)).max().unwrap_or(Attention::Idle)
    }

    /// Time that a thread may sleep.
    pub(crate) fn prepare_to_sleep(&self) -> Duration {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().map(|source| source.prepare_to_sleep()).min().unwrap_or(MAX_SLEEP).min(MAX_SLEEP)
    }

    /// Wakes the waiting thread after a change.
    pub(crate) fn notify(&self) {
        if let Some(wait) = &self.wait {
            wait.notify();
        }
    }

    /// Prepares for waiting with the descriptor. `is_ready` tells whether there is something to read. Returns whether the program may wait.
    pub(crate) fn try_wait(&self, is_ready: &dyn Fn() -> bool) -> bool {
        let Some(wait) = &self.wait else { return true };
        self.progress();
        wait.arm();
        if is_ready() || wait.is_signalled() {
            return false;
        }
        let span = self.prepare_to_sleep();
        if span.is_zero() {
            return false;
        }
        wait.limit(span);
        // Completions may have come from another thread's progress.
        !is_ready()
    }

    /// Waits until `attempt` returns a value; `None` after `timeout` milliseconds (negative: never) or a signal.
    pub(crate) fn wait_for<T>(&self, timeout: i32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
        let deadline = u64::try_from(timeout).ok().map(|span| Instant::now() + Duration::from_millis(span));
        loop {
            self.progress();
            if let Some(value) = attempt() {
                return Some(value);
            }
            let wait = self.wait.as_ref()?;
            wait.arm();
            if let Some(value) = attempt() {
                return Some(value);
            }
            if wait.take_signal() {
                return None;
            }
            let left = deadline
                .map_or(MAX_SLEEP, |deadline: Instant| deadline.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return None;
            }
            let span = self.prepare_to_sleep().min(left).min(MAX_BLOCKING_SLEEP);
            if !span.is_zero() {
                wait.sleep(span);
            }
        }
    }
}
