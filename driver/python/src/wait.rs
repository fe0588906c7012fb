//! Waits: without the interpreter's lock, and ended by Ctrl-C.

use std::cell::{Cell, RefCell};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use fpga_driver::{Cancellation, WaitOptions};
use pyo3::prelude::*;

use crate::error::{Class, Failure};

/// Interval in which a wait looks for signals.
pub(crate) const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);
/// Interval in which a thread tries to take a lock that another thread holds.
const LOCK_INTERVAL: Duration = Duration::from_micros(200);

thread_local! {
    static LOOKED: Cell<Option<Instant>> = const { Cell::new(None) };
    /// Exception that a signal handler raised during a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Runs Python's signal handlers if it is time to. Returns whether one has raised an exception.
pub(crate) fn is_interrupted() -> bool {
    // The wait has ended; what the call still does is to be short.
    if RAISED.with_borrow(Option::is_some) {
        return true;
    }
    let now = Instant::now();
    let due = LOOKED.get().is_none_or(|looked| now.duration_since(looked) >= SIGNAL_INTERVAL);
    if !due {
        return false;
    }
    LOOKED.set(Some(now));
    match Python::try_attach(|py| py.check_signals()) {
        Some(Ok(())) => false,
        Some(Err(error)) => {
            RAISED.set(Some(error));
            true
        }
        // The interpreter shuts down: no thread waits for the result.
        None => true,
    }
}

/// Takes the exception that ended a wait of this thread.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.take()
}

/// Converts a timeout in seconds; `None` waits without a limit.
///
/// # Errors
/// `ValueError` for a number that is negative or not a number.
pub(crate) fn duration(seconds: Option<f64>) -> Result<Duration, Failure> {
    let seconds = seconds.unwrap_or(f64::INFINITY);
    if seconds.is_nan() || seconds < 0.0 {
        let message = format!("a timeout of {seconds} s: give a time of 0 s or more, or None");
        return Err(Failure::value(message));
    }
    // A time that is too long for a duration is not a limit.
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// Options of a wait that Ctrl-C ends. `timeout` is in seconds.
///
/// # Errors
/// As [`duration`].
pub(crate) fn options(timeout: Option<f64>) -> Result<WaitOptions, Failure> {
    let limit = duration(timeout)?;
    // The first look at signals is one interval from now: short waits do not take the interpreter's lock.
    LOOKED.set(Some(Instant::now()));
    Ok(WaitOptions::default().timeout(limit).total(limit).cancel(Cancellation::from_function(is_interrupted)))
}

/// Runs a call without the interpreter's lock. The exception of a signal handler replaces the result of the call.
///
/// # Errors
/// Errors of the call.
pub(crate) fn detached<T: Send, E>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, Failure>
where
    E: Into<Failure> + Send,
{
    // A handler may make a call of its own while this thread waits: it has its own exception.
    let outer = raised();
    let result = py.detach(call);
    let inner = raised();
    RAISED.set(outer);
    match inner {
        Some(error) => Err(error.into()),
        None => result.map_err(Into::into),
    }
}

/// Waits with a call that takes a plain timeout: in short parts, between which it looks for signals. `wait` returns `None` when its
/// time is over.
///
/// # Errors
/// Errors of the call; the exception of a signal handler; `late` when the time is over.
#[expect(dead_code, reason = "for waits of interrupts, endpoints and frame streams")]
pub(crate) fn in_parts<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    timeout: Option<f64>,
    mut wait: impl FnMut(Duration) -> Result<Option<T>, E> + Send,
    late: impl FnOnce() -> Failure,
) -> Result<T, Failure> {
    let limit = duration(timeout)?;
    let began = Instant::now();
    loop {
        let left = limit.saturating_sub(began.elapsed());
        let part = left.min(SIGNAL_INTERVAL);
        if let Some(value) = py.detach(|| wait(part)).map_err(Into::into)? {
            return Ok(value);
        }
        py.check_signals()?;
        if left <= part {
            return Err(late());
        }
    }
}

/// Takes a lock that another Python thread may hold during a wait. Ctrl-C ends the attempt.
///
/// # Errors
/// The exception of a signal handler.
pub(crate) fn lock<'a, T: Send>(py: Python<'_>, mutex: &'a Mutex<T>) -> Result<MutexGuard<'a, T>, Failure> {
    let mut looked = Instant::now();
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            // A panic of another thread left the driver's state consistent: the driver reports what is wrong with it.
            Err(TryLockError::Poisoned(poisoned)) => return Ok(PoisonError::into_inner(poisoned)),
            Err(TryLockError::WouldBlock) => py.detach(|| std::thread::sleep(LOCK_INTERVAL)),
        }
        if looked.elapsed() >= SIGNAL_INTERVAL {
            py.check_signals()?;
            looked = Instant::now();
        }
    }
}

/// Error of an object that was closed.
pub(crate) fn closed(what: &str) -> Failure {
    Failure::new(Class::Closed, format!("{what} is closed"))
}
