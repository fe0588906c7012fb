//! Frame of every call: panics, statuses and the record of the last error.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{self, Failure};
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
    // SAFETY: not null; the header requires that it points to writable memory of this type.
    unsafe { out.write(value) };
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
