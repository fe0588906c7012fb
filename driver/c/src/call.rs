//! Frame of every call: panics, statuses and the record of the last error.

use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fpga_driver::Cancellation;

use crate::error::{self, Failure};
use crate::handle::{self, Claim, Kind, Watched};
use crate::layout::Member;
use crate::status::Status;

/// Runs the body of a call. Records its failure for `fpga_last_error`, and turns a panic into a status.
#[inline]
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(failure)) => error::record(failure),
        Err(_) => error::record(Failure::of(Status::Internal, "the library panicked; report it")),
    }
}

/// Writes `value` to an out parameter.
///
/// # Errors
/// [`Status::Argument`] if `out` is null.
#[inline]
pub(crate) fn set<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(Failure::null("an out parameter"));
    }
    // SAFETY: not null; the header requires that it points to writable memory of this type, at any alignment.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Bytes of a caller, as the header describes them: `length` readable bytes at `data`.
///
/// # Errors
/// [`Status::Argument`] if `data` is null and `length` is not 0.
pub(crate) fn bytes<'a>(data: *const u8, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() || length > isize::MAX as usize {
        return Err(Failure::null("data"));
    }
    // SAFETY: not null, and the header requires `length` readable bytes that nothing changes during the call.
    Ok(unsafe { core::slice::from_raw_parts(data, length) })
}

/// As [`bytes`], for memory that the call writes.
///
/// # Errors
/// As [`bytes`].
pub(crate) fn bytes_mut<'a>(data: *mut u8, length: usize) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || length > isize::MAX as usize {
        return Err(Failure::null("data"));
    }
    // SAFETY: not null, and the header requires `length` writable bytes that nothing else accesses during the call.
    Ok(unsafe { core::slice::from_raw_parts_mut(data, length) })
}

/// Memory of a caller that the call writes: `length` bytes at `data`.
///
/// # Errors
/// [`Status::Argument`] if `data` is null.
pub(crate) fn out_bytes(data: *mut u8, length: usize) -> Result<*mut u8, Failure> {
    if data.is_null() || length > isize::MAX as usize {
        return Err(Failure::null("an out parameter"));
    }
    Ok(data)
}

/// Array of a caller, as the header describes it: `count` elements at `data`.
///
/// # Errors
/// [`Status::Argument`] if `data` is null and `count` is not 0.
pub(crate) fn array<'a, T: Member>(data: *const T, count: usize) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if data.is_null() || !data.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::null("an array"));
    }
    // SAFETY: not null and aligned, every bit pattern is a value, and the header requires `count` elements that nothing changes during the
    // call.
    Ok(unsafe { core::slice::from_raw_parts(data, count) })
}

/// Text of a caller, which `what` names in the error.
///
/// # Errors
/// [`Status::Argument`] if it is null or not UTF-8.
pub(crate) fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: not null; the header requires a string that ends in a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::of(Status::Argument, &format!("{what} is not UTF-8")))
}

/// Copies a text with a zero byte to memory of a caller, cut to `length` bytes, and the length of the whole text to `needed` unless that is
/// null.
///
/// # Errors
/// [`Status::Argument`] if `to` is null and `length` is not 0, or if there is nothing to write to.
pub(crate) fn copy_text(
    to: *mut c_char,
    length: usize,
    needed: *mut usize,
    text: &str,
) -> Result<(), Failure> {
    if !needed.is_null() {
        set(needed, text.len())?;
    } else if to.is_null() {
        return Err(Failure::null("the memory for the text"));
    }
    let bytes = bytes_mut(to.cast::<u8>(), length)?;
    bytes.fill(0);
    let mut most = length.saturating_sub(1).min(text.len());
    while !text.is_char_boundary(most) {
        most -= 1;
    }
    for (to, from) in bytes.iter_mut().zip(text.bytes().take(most)) {
        *to = from;
    }
    Ok(())
}

/// Writes to an out parameter that may be null.
///
/// # Errors
/// None.
#[inline]
pub(crate) fn set_if<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() { Ok(()) } else { set(out, value) }
}

/// Converts a time of a caller.
pub(crate) const fn duration(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

/// Copies bytes at an address of this process.
///
/// The caller has the address from the driver, for bytes that stay mapped and that the card does not write at this time.
pub(crate) fn copy_from(address: usize, into: &mut [u8]) {
    let from = core::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the callers of this function, in this package, pass parts of received packets: `into.len()` mapped bytes outside of Rust's
    // memory, whose buffers are not posted.
    unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

/// Interval in which a wait looks whether it is to end, in nanoseconds.
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
    /// Flag that ends the wait in which this thread is.
    static CANCEL: Cell<*const c_int> = const { Cell::new(core::ptr::null()) };
    /// Object with which this thread waits.
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
    /// Why the wait was cancelled.
    static REASON: Cell<Option<Reason>> = const { Cell::new(None) };
}

/// Cancellation of the wait in which a thread is: by the flag of the call or of the thread, or by another thread that closes or claims the
/// object. Outside of [`with_wait`] it is never requested.
pub(crate) const CANCELLATION: Cancellation = Cancellation::from_function(is_cancelled);

/// Sets the flag that ends the waits of this thread.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_set_cancel_flag(flag: *const c_int) -> Status {
    call(|| {
        if !flag.is_aligned() {
            return Err(Failure::argument("the flag is not an aligned int"));
        }
        FLAG.set(flag);
        Ok(())
    })
}

/// A wait of this thread. Ends when it is dropped.
struct Waiting;

impl Waiting {
    fn begin(handle: u64, flag: *const c_int) -> Self {
        CANCEL.set(if flag.is_null() { FLAG.get() } else { flag });
        WATCHED.set(handle::watch(handle));
        REASON.set(None);
        Self
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        CANCEL.set(core::ptr::null());
        WATCHED.set(None);
    }
}

/// Returns the object with which this thread waits.
pub(crate) fn watched() -> Option<Watched> {
    WATCHED.get()
}

/// Runs `body`, which waits with the object of a handle, until `flag`, or the flag of the thread if that is null, is set, or another thread
/// closes or claims the object.
///
/// # Errors
/// Those of `body`; [`Status::Handle`] if it was cancelled because the handle was closed.
pub(crate) fn with_wait<T: Kind, R>(
    handle: u64,
    flag: *const c_int,
    body: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    waiting(handle, flag, || handle::with(handle, body))
}

/// As [`with_wait`], for an object that threads share: `body` enters it itself.
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

/// Returns an error if the wait of this thread is to end.
///
/// # Errors
/// [`Status::Cancelled`].
pub(crate) fn check_cancelled() -> Result<(), Failure> {
    if is_cancelled() {
        return Err(Failure::of(Status::Cancelled, "the wait was cancelled").advise("wait again"));
    }
    Ok(())
}

/// Calls `wait` with the time of a caller, in parts, until the wait of this thread is to end.
///
/// # Errors
/// [`Status::Cancelled`], and those of `wait`: one of a part that has timed out is returned with the last one only.
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

/// Returns whether the wait of this thread is to end.
pub(crate) fn is_cancelled() -> bool {
    let flag = CANCEL.get();
    // SAFETY: not null. The flag is set for a wait only, in its own thread; the header requires that the flag of a call stays valid during
    // the call, and that of a thread as long as it is set. Any thread and any signal handler may write it, hence volatile.
    let reason = if !flag.is_null() && unsafe { flag.read_volatile() } != 0 {
        Some(Reason::Flag)
    } else {
        WATCHED.get().and_then(Watched::claim).map(Reason::Claimed)
    };
    if reason.is_some() {
        REASON.set(reason);
    }
    reason.is_some()
}
