//! Frame of every call: panics, statuses and the record of the last error; and memory of callers.
//!
//! A structure that may grow is passed with its size: the library reads and writes no more than the caller has, and takes members that the
//! caller does not have as zero.

use core::ffi::{CStr, c_char};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{self, Failure};
use crate::layout::{CStruct, Member, zeroed};
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

/// Reads options of a caller, whose structure has `size` bytes. No structure: the defaults.
///
/// # Errors
/// [`Status::Argument`] if `from` is null and `size` is not 0; [`Status::Unsupported`] if a member beyond this library's structure is not 0.
pub(crate) fn read_options<T: CStruct>(from: *const T, size: usize) -> Result<T, Failure> {
    let mut options = zeroed::<T>();
    let given = bytes(from.cast(), size)?;
    if given.get(size_of::<T>()..).is_some_and(|unknown| unknown.iter().any(|byte| *byte != 0)) {
        let text = "options are set that this version of the library does not have";
        return Err(Failure::of(Status::Unsupported, text));
    }
    // SAFETY: both have this many bytes, and every bit pattern is a value of the type.
    unsafe {
        let to = (&raw mut options).cast::<u8>();
        core::ptr::copy_nonoverlapping(given.as_ptr(), to, given.len().min(size_of::<T>()));
    }
    Ok(options)
}

/// Writes a structure to a caller, whose structure has `size` bytes. Members that this library does not know become 0.
///
/// # Errors
/// [`Status::Argument`] if `to` is null.
pub(crate) fn write_struct<T: CStruct>(to: *mut T, size: usize, value: &T) -> Result<(), Failure> {
    let to = out_bytes(to.cast(), size)?;
    // SAFETY: `to` has `size` writable bytes. Padding is copied, never read.
    unsafe {
        to.write_bytes(0, size);
        core::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to, size.min(size_of::<T>()));
    }
    Ok(())
}
