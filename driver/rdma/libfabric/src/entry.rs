//! What every function of the provider does around its body: catching panics, results, checked access to memory of the caller.

use crate::code::Code;
use crate::log;
use crate::sys::{EINVAL, EOTHER};
use core::ffi::{CStr, c_char, c_int};
use core::panic::Location;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result type of a function: 0 or more, or a negative error code.
pub(crate) trait ReturnValue {
    fn from_code(code: Code) -> Self;
}

impl ReturnValue for c_int {
    fn from_code(code: Code) -> Self {
        -code.get()
    }
}

impl ReturnValue for isize {
    fn from_code(code: Code) -> Self {
        // An `int` fits into `ssize_t` on all supported machines.
        Self::try_from(-code.get()).unwrap_or(-1)
    }
}

/// Runs the body of a call. A panic does not cross the boundary: it is the error `FI_EOTHER`.
#[inline]
#[track_caller]
pub(crate) fn call<R: ReturnValue>(body: impl FnOnce() -> Result<R, Code>) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => result,
        Ok(Err(code)) => R::from_code(code),
        Err(_) => panicked(Location::caller()),
    }
}

/// Runs the body of a call whose result has no error codes; `otherwise` is returned after an error.
#[inline]
#[track_caller]
pub(crate) fn call_or<R>(otherwise: R, body: impl FnOnce() -> Result<R, Code>) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(result)) => result,
        Ok(Err(_)) => otherwise,
        Err(_) => {
            let _: c_int = panicked(Location::caller());
            otherwise
        }
    }
}

#[cold]
fn panicked<R: ReturnValue>(location: &Location<'_>) -> R {
    log::warn(format_args!("the provider panicked in the call at {location}; report it"));
    R::from_code(EOTHER)
}

/// Refuses flags outside of `known`.
pub(crate) fn check_flags(flags: u64, known: u64, code: Code) -> Result<(), Code> {
    if flags & !known == 0 { Ok(()) } else { Err(code) }
}

/// Whether `pointer` is not null and aligned.
fn is_usable<T>(pointer: *const T) -> bool {
    !pointer.is_null() && pointer.is_aligned()
}

/// Returns the caller's structure.
pub(crate) fn structure<'a, T>(pointer: *const T) -> Result<&'a T, Code> {
    if !is_usable(pointer) {
        return Err(EINVAL);
    }
    // SAFETY: not null and aligned; the caller of libfabric guarantees that it is a T which no other thread changes during the call.
    Ok(unsafe { &*pointer })
}

/// As [`structure`]; `None` for a null pointer.
pub(crate) fn optional<'a, T>(pointer: *const T) -> Result<Option<&'a T>, Code> {
    if pointer.is_null() { Ok(None) } else { structure(pointer).map(Some) }
}

/// Returns the caller's array. `pointer` is ignored if `count` is 0.
pub(crate) fn array<'a, T>(pointer: *const T, count: usize) -> Result<&'a [T], Code> {
    if count == 0 {
        return Ok(&[]);
    }
    let fits = count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok());
    if !is_usable(pointer) || !fits {
        return Err(EINVAL);
    }
    // SAFETY: not null, aligned, no longer than an object can be; that there are `count` values is what the caller of libfabric promises.
    Ok(unsafe { core::slice::from_raw_parts(pointer, count) })
}

/// Writes `value` to an out parameter.
pub(crate) fn set<T>(pointer: *mut T, value: T) -> Result<(), Code> {
    if !is_usable(pointer) {
        return Err(EINVAL);
    }
    // SAFETY: not null and aligned; that it is the caller's memory for a T is what the caller of libfabric promises.
    unsafe { pointer.write(value) };
    Ok(())
}

/// Reads an in-out parameter.
pub(crate) fn get<T: Copy>(pointer: *const T) -> Result<T, Code> {
    structure(pointer).copied()
}

/// Writes element `index` of an array of the caller.
pub(crate) fn set_element<T>(pointer: *mut T, index: usize, value: T) -> Result<(), Code> {
    set(pointer.wrapping_add(index), value)
}

/// Returns the caller's text; `None` for a null pointer.
pub(crate) fn text<'a>(pointer: *const c_char) -> Result<Option<&'a str>, Code> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: not null; that it ends with a null byte is what the caller of libfabric promises.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| EINVAL)
}

/// Copies `bytes` to the caller's buffer of `length` bytes, as far as it has space.
pub(crate) fn copy_out(buffer: *mut u8, length: usize, bytes: &[u8]) -> Result<(), Code> {
    let count = bytes.len().min(length);
    if count > 0 {
        if buffer.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: not null; the caller of libfabric promises `length` bytes there, which are not memory of this provider.
        unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr(), count) };
    }
    Ok(())
}

/// Copies text with its terminating null byte; text that is too long is cut.
pub(crate) fn copy_text(buffer: *mut c_char, length: usize, text: &str) -> Result<(), Code> {
    let Some(space) = length.checked_sub(1) else { return Ok(()) };
    let cut = text.as_bytes().get(..space).unwrap_or(text.as_bytes());
    copy_out(buffer.cast(), length, cut)?;
    set(buffer.cast::<u8>().wrapping_add(cut.len()), 0)
}

/// Converts a number of bytes or entries to `size_t`, which has 64 bits on all supported machines.
pub(crate) fn to_size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Inverse of [`to_size`].
pub(crate) fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Converts a count to a result.
pub(crate) fn to_count(number: usize) -> isize {
    isize::try_from(number).unwrap_or(isize::MAX)
}

/// Defines functions that libfabric calls, in the frame of [`call`]. The type of an argument follows from its name, which has an underscore
/// in front if the provider does not use it.
macro_rules! calls {
    ($($name:ident($($argument:ident),* $(,)?) $body:block)*) => {$(
        unsafe extern "C" fn $name($($argument: $crate::entry::argument!($argument)),*) -> isize {
            $crate::entry::call(|| $body)
        }
    )*};
}

macro_rules! argument {
    (endpoint) => { *mut $crate::sys::FidEp };
    // Memory that is read, and that is written.
    (buffer) => { *const core::ffi::c_void };
    (compare) => { *const core::ffi::c_void };
    (into) => { *mut core::ffi::c_void };
    (result) => { *mut core::ffi::c_void };
    (ranges) => { *const libc::iovec };
    (operands) => { *const $crate::sys::FiIoc };
    (compares) => { *const $crate::sys::FiIoc };
    (results) => { *mut $crate::sys::FiIoc };
    (message) => { *const $crate::sys::FiMsg };
    (tagged_message) => { *const $crate::sys::FiMsgTagged };
    (access_message) => { *const $crate::sys::FiMsgRma };
    (atomic_message) => { *const $crate::sys::FiMsgAtomic };
    (context) => { *mut core::ffi::c_void };
    (_descriptor) => { *mut core::ffi::c_void };
    (_compare_descriptor) => { *mut core::ffi::c_void };
    (_result_descriptor) => { *mut core::ffi::c_void };
    (_descriptors) => { *mut *mut core::ffi::c_void };
    (_compare_descriptors) => { *mut *mut core::ffi::c_void };
    (_result_descriptors) => { *mut *mut core::ffi::c_void };
    (length) => { usize };
    (count) => { usize };
    (compare_count) => { usize };
    (result_count) => { usize };
    (datatype) => { core::ffi::c_int };
    (operation) => { core::ffi::c_int };
    // Addresses, keys, tags, flags.
    ($number:ident) => { u64 };
}
pub(crate) use {argument, calls};
