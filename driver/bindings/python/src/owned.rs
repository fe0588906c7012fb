//! Objects that Python threads share, and that end with their card.
//!
//! A thread that waits for the card holds an object in turns of some milliseconds ([`Owned::turns`]). Between two turns, other threads use
//! the object and signal handlers run. A close ends the waits of other threads at once.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use fpga_pci::Process;
use pyo3::prelude::*;

use crate::error::{Class, Failure};
use crate::wait::{self, Limit, Pause, SIGNAL_INTERVAL};

/// Interval in which a thread tries to take an object that another thread holds.
const LOCK_INTERVAL: Duration = Duration::from_micros(100);
/// Maximum time for which a wait leaves an object to other threads between two turns.
const MAX_YIELD: Duration = Duration::from_millis(1);

/// Object that `Card.close` closes.
pub(crate) trait Close: Send + Sync {
    /// Ends the waits of other threads: the object is about to be closed.
    fn begin_close(&self);

    /// Closes the object. A closed one can be closed again.
    ///
    /// # Errors
    /// `OtherProcessError`; the exception of a signal handler; `InUseError` inside a call of this thread.
    fn close(&self, py: Python<'_>) -> Result<(), Failure>;
}

/// Value of the driver that Python threads share, until it is closed.
pub(crate) struct Owned<T> {
    card: String,
    /// Name of the object in messages, such as `c2h0`.
    name: String,
    /// `None`: closed.
    value: Mutex<Option<T>>,
    /// A thread closes the object: waits of other threads end.
    closing: AtomicBool,
    /// Number of threads that wait for the value.
    wanted: AtomicU32,
    /// Thread that holds the value; 0: none.
    holder: AtomicUsize,
    /// Process that may use the value. In a child process, the lock may have been copied while another thread of the parent held it.
    process: Process,
}

thread_local! {
    static ADDRESS: Cell<u8> = const { Cell::new(0) };
}

/// Number of this thread, unique among running threads.
fn this_thread() -> usize {
    ADDRESS.with(|own| core::ptr::from_ref(own).addr())
}

/// Value that this thread holds.
pub(crate) struct Held<'a, T> {
    guard: MutexGuard<'a, Option<T>>,
    owner: &'a Owned<T>,
}

impl<T: Send> Held<'_, T> {
    /// The value.
    ///
    /// # Errors
    /// `ClosedError`.
    #[inline]
    pub(crate) fn value(&mut self) -> Result<&mut T, Failure> {
        self.guard.as_mut().ok_or_else(|| self.owner.closed())
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        self.owner.holder.store(0, Ordering::Relaxed);
    }
}

/// Waiter of a thread to hold a value.
struct Waiter<'a>(&'a AtomicU32);

impl<'a> Waiter<'a> {
    fn new(wanted: &'a AtomicU32) -> Self {
        wanted.fetch_add(1, Ordering::Relaxed);
        Self(wanted)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Send> Owned<T> {
    /// Value of the card with this name.
    pub(crate) fn new(card: String, name: impl Into<String>, value: T) -> Self {
        Self {
            card,
            name: name.into(),
            value: Mutex::new(Some(value)),
            closing: AtomicBool::new(false),
            wanted: AtomicU32::new(0),
            holder: AtomicUsize::new(0),
            process: Process::current(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn card(&self) -> &str {
        &self.card
    }

    /// Holds the value if no other call does. `None` in another process as well.
    #[inline]
    pub(crate) fn try_hold(&self) -> Option<Held<'_, T>> {
        if self.process.is_current() { self.try_lock() } else { None }
    }

    /// As [`try_hold`](Self::try_hold), in the process of the value.
    #[inline]
    fn try_lock(&self) -> Option<Held<'_, T>> {
        let guard = match self.value.try_lock() {
            Ok(guard) => guard,
            // A panic of another thread left the driver's state consistent: the driver reports what is wrong with it.
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        self.holder.store(this_thread(), Ordering::Relaxed);
        Some(Held { guard, owner: self })
    }

    /// Holds the value. Waits for calls of other threads, within the limit.
    ///
    /// # Errors
    /// `ClosedError`, `OtherProcessError`, `TimedOutError`, the exception of a signal handler; `InUseError` inside a call of this thread.
    #[inline]
    pub(crate) fn hold(&self, py: Python<'_>, limit: &mut Limit) -> Result<Held<'_, T>, Failure> {
        self.check_open()?;
        match self.try_lock() {
            Some(held) => Ok(held),
            None => self.hold_contended(py, limit, false),
        }
    }

    #[cold]
    fn hold_contended(
        &self,
        py: Python<'_>,
        limit: &mut Limit,
        closes: bool,
    ) -> Result<Held<'_, T>, Failure> {
        let _waiter = Waiter::new(&self.wanted);
        let began = Instant::now();
        let mut checked = began;
        loop {
            if closes {
                self.process.check()?;
            } else {
                self.check_open()?;
            }
            if let Some(held) = self.try_lock() {
                limit.spend(began.elapsed());
                return Ok(held);
            }
            if self.holder.load(Ordering::Relaxed) == this_thread() {
                return Err(Failure::new(Class::InUseError, "a call of this thread is using it")
                    .advice("do it after that call, not in code that runs inside it")
                    .on_part(&self.card, &self.name));
            }
            if began.elapsed() >= limit.left() {
                limit.spend(began.elapsed());
                return Err(self.late(limit));
            }
            py.detach(|| std::thread::sleep(LOCK_INTERVAL));
            if checked.elapsed() >= SIGNAL_INTERVAL {
                py.check_signals()?;
                checked = Instant::now();
            }
        }
    }

    #[cold]
    fn late(&self, limit: &Limit) -> Failure {
        Failure::new(Class::TimedOutError, format!("other calls were using it for {:?}", limit.total()))
            .advice("wait longer (timeout=...), or end the calls of other threads")
            .on_part(&self.card, &self.name)
    }

    /// Runs a call with the value. Waits for calls of other threads.
    ///
    /// # Errors
    /// As [`hold`](Self::hold); errors of the call.
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut T) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        call(self.hold(py, &mut Limit::none())?.value()?)
    }

    /// Calls `turn` without the interpreter's lock until it has a result. Between two turns, which last some milliseconds, other threads
    /// hold the value and signal handlers run.
    ///
    /// # Errors
    /// As [`hold`](Self::hold); errors of a turn.
    #[inline]
    pub(crate) fn turns<R: Send>(
        &self,
        py: Python<'_>,
        limit: &mut Limit,
        mut turn: impl FnMut(&mut T, &mut Limit, &Pause<'_>) -> Result<Option<R>, Failure> + Send,
    ) -> Result<R, Failure> {
        loop {
            let mut held = self.hold(py, limit)?;
            let value = held.value()?;
            let result = py.detach(|| turn(value, limit, &Pause::new(&self.wanted, &self.closing)));
            drop(held);
            if let Some(result) = result? {
                return Ok(result);
            }
            self.between_turns(py, limit)?;
        }
    }

    /// Runs signal handlers, and lets threads that want the value have it.
    ///
    /// # Errors
    /// The exception of a signal handler.
    #[cold]
    pub(crate) fn between_turns(&self, py: Python<'_>, limit: &mut Limit) -> Result<(), Failure> {
        py.check_signals()?;
        if self.wanted.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let began = Instant::now();
        py.detach(|| {
            while self.wanted.load(Ordering::Relaxed) > 0 && began.elapsed() < MAX_YIELD {
                std::thread::sleep(LOCK_INTERVAL);
            }
        });
        limit.spend(began.elapsed());
        Ok(())
    }

    /// Ends a wait if another thread wants to close the object.
    ///
    /// # Errors
    /// `ClosedError`, `OtherProcessError`.
    #[inline]
    pub(crate) fn check_open(&self) -> Result<(), Failure> {
        if self.is_closed() { Err(self.closed()) } else { Ok(()) }
    }

    /// Whether the object was closed, or belongs to another process.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closing.load(Ordering::Acquire) || !self.process.is_current()
    }

    #[cold]
    pub(crate) fn closed(&self) -> Failure {
        match self.process.check() {
            Ok(()) => wait::closed(&self.name).on_card(&self.card),
            Err(other) => Failure::from(other).on_part(&self.card, &self.name),
        }
    }

    /// Ends the waits of other threads: the object is about to be closed.
    pub(crate) fn begin_close(&self) {
        self.closing.store(true, Ordering::Release);
    }

    /// Takes the value out and marks the object as closed. `None`: it was closed before.
    ///
    /// # Errors
    /// `OtherProcessError`; the exception of a signal handler; `InUseError` inside a call of this thread.
    pub(crate) fn take(&self, py: Python<'_>) -> Result<Option<T>, Failure> {
        if !self.process.is_current() {
            return Err(self.closed());
        }
        self.begin_close();
        let mut held = match self.try_lock() {
            Some(held) => held,
            None => self.hold_contended(py, &mut Limit::none(), true)?,
        };
        Ok(held.guard.take())
    }

    /// Closes the object: its value is dropped without the interpreter's lock.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn shut(&self, py: Python<'_>) -> Result<(), Failure> {
        let value = self.take(py)?;
        py.detach(|| drop(value));
        Ok(())
    }
}

impl<T: Send + 'static> Close for Owned<T> {
    fn begin_close(&self) {
        self.begin_close();
    }

    fn close(&self, py: Python<'_>) -> Result<(), Failure> {
        self.shut(py)
    }
}
