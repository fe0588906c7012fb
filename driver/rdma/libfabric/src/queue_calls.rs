//! Functions of completion queues.

use crate::code::Code;
use crate::domain::Domain;
use crate::entry::{call, call_or, check_flags, copy_text, set, structure, to_count};
use crate::object::{Head, Held, Object, borrow, close_object, object, publish};
use crate::queue::{Format, MAX_SIZE, Queue};
use crate::sources::Sources;
use crate::sys::*;
use crate::wait;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use std::ffi::CStr;
use std::sync::Arc;

static FID: FiOps = FiOps { close: close_object::<Queue>, control, ..FiOps::NONE };
static QUEUE: FiOpsCq =
    FiOpsCq { read, readfrom, readerr, sread, sreadfrom, signal, strerror, ..FiOpsCq::NONE };

object!(Queue: FidCq, FI_CLASS_CQ, FID);

pub(crate) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attributes: *mut FiCqAttr,
    out: *mut *mut FidCq,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let domain: &Domain = borrow(domain)?;
        let attributes = structure(attributes)?;
        set(out, null_mut())?;
        check_flags(attributes.flags, FI_AFFINITY, EBADFLAGS)?;
        let is_threshold = matches!(attributes.wait_cond, FI_CQ_COND_NONE | FI_CQ_COND_THRESHOLD);
        if attributes.size > MAX_SIZE || !is_threshold && attributes.wait_obj != FI_WAIT_NONE {
            return Err(EINVAL);
        }
        let format = Format::new(attributes.format)?;
        let sources = Sources::new(wait::for_object(attributes.wait_obj)?);
        let head = Head::new(FidCq { fid: Queue::fid(context), ops: &raw const QUEUE });
        let queue =
            Queue::new(head, Held::new(domain)?, sources, attributes.wait_obj, format, attributes.size);
        set(out, publish(Arc::new(queue)))?;
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    call(|| {
        let queue: &Queue = borrow(fid)?;
        wait::control(queue.wait_object, queue.sources.wait(), command, argument)
    })
}

/// Reads entries without waiting.
fn read_now(queue: &Queue, array: *mut c_void, count: usize, sources: *mut u64) -> Result<isize, Code> {
    if count > 0 && array.is_null() {
        return Err(EINVAL);
    }
    if let Some(taken) = queue.take(array, count, sources) {
        return taken.map(to_count);
    }
    queue.sources.progress();
    queue.take(array, count, sources).unwrap_or_else(|| Err(queue.empty_error())).map(to_count)
}

unsafe extern "C" fn read(queue: *mut FidCq, array: *mut c_void, count: usize) -> isize {
    call(|| read_now(borrow(queue)?, array, count, null_mut()))
}

unsafe extern "C" fn readfrom(
    queue: *mut FidCq,
    array: *mut c_void,
    count: usize,
    sources: *mut u64,
) -> isize {
    call(|| read_now(borrow(queue)?, array, count, sources))
}

unsafe extern "C" fn readerr(queue: *mut FidCq, entry: *mut FiCqErrEntry, flags: u64) -> isize {
    call(|| {
        let queue: &Queue = borrow(queue)?;
        check_flags(flags, 0, EBADFLAGS)?;
        if queue.is_empty() {
            queue.sources.progress();
        }
        if queue.take_error(entry)? { Ok(1) } else { Err(EAGAIN) }
    })
}

/// Reads entries, and waits for them.
fn read_later(
    queue: &Queue,
    array: *mut c_void,
    count: usize,
    sources: *mut u64,
    timeout: c_int,
) -> Result<isize, Code> {
    let Some(wait) = queue.sources.wait() else { return Err(EINVAL) };
    if count == 0 || array.is_null() {
        return Err(EINVAL);
    }
    let taken = queue.sources.wait_for(timeout, || {
        let failure = || Some(queue.empty_error()).filter(|code| *code != EAGAIN);
        queue.take(array, count, sources).or_else(|| failure().map(Err))
    });
    if !queue.is_empty() {
        // One event may stand for several entries: another thread may wait for the next one.
        wait.write();
    }
    taken.unwrap_or(Err(EAGAIN)).map(to_count)
}

unsafe extern "C" fn sread(
    queue: *mut FidCq,
    array: *mut c_void,
    count: usize,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    call(|| read_later(borrow(queue)?, array, count, null_mut(), timeout))
}

unsafe extern "C" fn sreadfrom(
    queue: *mut FidCq,
    array: *mut c_void,
    count: usize,
    sources: *mut u64,
    _condition: *const c_void,
    timeout: c_int,
) -> isize {
    call(|| read_later(borrow(queue)?, array, count, sources, timeout))
}

unsafe extern "C" fn signal(queue: *mut FidCq) -> c_int {
    call(|| {
        let queue: &Queue = borrow(queue)?;
        queue.sources.wait().ok_or(ENOSYS)?.signal();
        Ok(0)
    })
}

unsafe extern "C" fn strerror(
    queue: *mut FidCq,
    number: c_int,
    data: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    let fallback: &CStr = c"error of the FPGA provider";
    call_or(fallback.as_ptr(), || {
        let queue: &Queue = borrow(queue)?;
        if buffer.is_null() || length == 0 {
            // The queue's text stays until the next error is read; others are static.
            return Ok(queue.static_text(number, data));
        }
        copy_text(buffer, length, &queue.error_text(number, data))?;
        Ok(buffer.cast_const())
    })
}
