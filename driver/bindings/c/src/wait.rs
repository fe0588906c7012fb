//! Cancellation of waits: by a flag of the program, or by another thread that uses or closes the object.

use core::cell::Cell;
use core::ffi::c_int;
use core::time::Duration;

use fpga_driver::Cancellation;

use crate::abi::Status;
use crate::call::duration;
use crate::error::Failure;
use crate::handle::{self, Claim, NO_HANDLE, Object};

/// Interval between two checks for a cancellation, in nanoseconds.
const CANCEL_INTERVAL_NS: u64 = 10_000_000;

/// Reason why a wait was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Flag,
    Claimed(Claim),
}

thread_local! {
    /// Flag that the program has set for all waits of this thread.
    static FLAG: Cell<*const c_int> = const { Cell::new(core::ptr::null()) };
    /// Flag that cancels the current wait of this thread.
    static CANCEL: Cell<*const c_int> = const { Cell::new(core::ptr::null()) };
    /// Reason of the last cancellation.
    static REASON: Cell<Option<Reason>> = const { Cell::new(None) };
}

/// Cancellation of the current wait of a thread. Outside of [`with_wait`] it is never requested.
pub(crate) const CANCELLATION: Cancellation = Cancellation::from_function(is_cancelled);

pub(crate) fn fpga_set_cancel_flag(flag: *const c_int) -> Result<(), Failure> {
    if !flag.is_aligned() {
        return Err(Failure::argument("the flag is not an aligned int"));
    }
    FLAG.set(flag);
    Ok(())
}

/// A wait of this thread. Ends when it is dropped.
struct Waiting;

impl Waiting {
    fn begin(handle: u64, flag: *const c_int) -> Self {
        CANCEL.set(if flag.is_null() { FLAG.get() } else { flag });
        handle::watch(handle);
        REASON.set(None);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        CANCEL.set(core::ptr::null());
        handle::watch(NO_HANDLE);
    }
}

/// Calls `body`, which waits with the object of a handle. The wait is cancelled when `flag` is set (null: the flag of the thread), or when
/// another thread closes or claims the object.
///
/// # Errors
/// Those of `body`; [`Status::Handle`] if it was cancelled because the handle was closed.
pub(crate) fn with_wait<T: Object, R>(
    handle: u64,
    flag: *const c_int,
    body: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    waiting(handle, flag, || handle::with(handle, body))
}

/// As [`with_wait`], for an object that threads share; `body` accesses it by [`handle::shared`].
///
/// # Errors
/// As [`with_wait`].
pub(crate) fn waiting<R>(
    handle: u64,
    flag: *const c_int,
    body: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let wait = Waiting::begin(handle, flag);
    let result = body();
    drop(wait);
    result.map_err(|failure| if failure.status() == Status::Cancelled { explain(failure) } else { failure })
}

#[cold]
/// Replaces the text of a cancellation that another thread has caused.
fn explain(failure: Failure) -> Failure {
    match REASON.take() {
        Some(Reason::Claimed(Claim::Close)) => {
            Failure::of(Status::Handle, "another thread has closed the handle during the call")
        }
        Some(Reason::Claimed(Claim::Use)) => {
            let text = "another thread has cancelled or aborted transfers during the wait";
            Failure::of(Status::Cancelled, text).advise("wait again for transfers that are still in flight")
        }
        Some(Reason::Flag) | None => failure,
    }
}

/// Returns an error if the current wait of this thread is cancelled.
///
/// # Errors
/// [`Status::Cancelled`].
pub(crate) fn check_cancelled() -> Result<(), Failure> {
    if is_cancelled() {
        return Err(Failure::of(Status::Cancelled, "the wait was cancelled").advise("wait again"));
    }
    Ok(())
}

/// Calls `wait` with parts of the timeout, until it succeeds, the time is over or the wait is cancelled.
///
/// # Errors
/// [`Status::Cancelled`], and those of `wait`; a timeout only of the last part.
pub(crate) fn wait_in_parts<R>(
    timeout_ns: u64,
    mut wait: impl FnMut(Duration) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut left = timeout_ns;
    loop {
        check_cancelled()?;
        let part = left.min(CANCEL_INTERVAL_NS);
        match wait(duration(part)) {
            Err(late) if late.status() == Status::TimedOut && left > part => {
                if left != u64::MAX {
                    left -= part;
                }
            }
            done => return done,
        }
    }
}

/// Returns whether the current wait of this thread is cancelled.
pub(crate) fn is_cancelled() -> bool {
    let flag = CANCEL.get();
    // SAFETY: not null. The flag is set for a wait only, in its own thread; the header requires that the flag of a call stays valid during
    // the call, and that of a thread as long as it is set. Any thread and any signal handler may write it, hence volatile.
    let reason = if !flag.is_null() && unsafe { flag.read_volatile() } != 0 {
        Some(Reason::Flag)
    } else {
        handle::claim().map(Reason::Claimed)
    };
    if reason.is_some() {
        REASON.set(reason);
    }
    reason.is_some()
}
