//! What every exported function does around its body: catching panics, recording the last error, and checked access to memory of C programs.
//!
//! A structure that may grow is passed with its size. The library accesses no more bytes than that, and reads missing members as 0.

use core::ffi::{CStr, c_char};
use core::time::Duration;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{Plain, Status, zeroed};
use crate::error::{self, Failure};

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

/// Returns `length` readable bytes at `data`.
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

/// Returns `length` writable bytes at `data`.
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

/// Checks the address and the size of an out parameter.
///
/// # Errors
/// [`Status::Argument`] if `data` is null.
pub(crate) fn out_bytes(data: *mut u8, length: usize) -> Result<*mut u8, Failure> {
    if data.is_null() || length > isize::MAX as usize {
        return Err(Failure::null("an out parameter"));
    }
    Ok(data)
}

/// Returns the array of `count` elements at `data`.
///
/// # Errors
/// [`Status::Argument`] if `data` is null and `count` is not 0.
pub(crate) fn array<'a, T: Plain>(data: *const T, count: usize) -> Result<&'a [T], Failure> {
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

/// Returns the text at `text`, which the error calls `name`.
///
/// # Errors
/// [`Status::Argument`] if it is null or not UTF-8.
pub(crate) fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::null(name));
    }
    // SAFETY: not null; the header requires a string that ends in a zero byte.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::of(Status::Argument, &format!("{name} is not UTF-8")))
}

/// Copies a text, cut to `length - 1` bytes, and a zero byte to `to`. Writes the length of the whole text to `needed`, unless that is null.
///
/// # Errors
/// [`Status::Argument`] if `to` is null and `length` is not 0, or if both pointers are null.
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
    let end = text.floor_char_boundary(length.saturating_sub(1));
    for (to, from) in bytes.iter_mut().zip(text.bytes().take(end)) {
        *to = from;
    }
    Ok(())
}

/// Writes to an out parameter, unless it is null.
#[inline]
pub(crate) fn set_if<T>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() { Ok(()) } else { set(out, value) }
}

/// Sets an option, unless the member of the C structure is 0, which stands for the default.
pub(crate) fn set_option<T: Default + PartialEq>(option: &mut T, given: T) {
    if given != T::default() {
        *option = given;
    }
}

/// As [`set_option`], for a time in nanoseconds.
pub(crate) fn set_time(option: &mut Duration, nanoseconds: u64) {
    set_option(option, duration(nanoseconds));
}

pub(crate) const fn duration(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

/// Copies bytes at a host address that the driver has returned. They stay mapped, and the card does not write them during the copy.
pub(crate) fn copy_from(address: usize, into: &mut [u8]) {
    let from = core::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: callers pass parts of received packets: `into.len()` mapped bytes outside of Rust's memory, whose buffers are not posted.
    unsafe { core::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

/// Reads an options structure of `size` bytes. Null with size 0 stands for the defaults.
///
/// # Errors
/// [`Status::Argument`] if `from` is null and `size` is not 0; [`Status::Unsupported`] if a member beyond this library's structure is not 0.
pub(crate) fn read_options<T: Plain>(from: *const T, size: usize) -> Result<T, Failure> {
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

/// Writes `value` to a structure of `size` bytes. Members that this library does not have become 0.
///
/// # Errors
/// [`Status::Argument`] if `to` is null.
pub(crate) fn write_struct<T: Plain>(to: *mut T, size: usize, value: &T) -> Result<(), Failure> {
    let to = out_bytes(to.cast(), size)?;
    // SAFETY: `to` has `size` writable bytes. Padding is copied, never read.
    unsafe {
        to.write_bytes(0, size);
        core::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to, size.min(size_of::<T>()));
    }
    Ok(())
}
