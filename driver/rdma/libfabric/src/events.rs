//! Event queues: insertions into address vectors, and events that programs write themselves.

use crate::code::Code;
use crate::entry::{array, call, call_or, check_flags, copy_out, copy_text, set, structure, to_count};
use crate::fabric::Fabric;
use crate::object::{Head, Held, Object, borrow, close_object, object, publish};
use crate::sources::Sources;
use crate::sys::*;
use crate::wait;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::null_mut;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum length of an event that a program writes, in bytes.
const MAX_EVENT: usize = 4096;
/// Maximum number of events in a queue.
const MAX_EVENTS: usize = 65536;

struct Event {
    kind: u32,
    data: Vec<u8>,
}

/// Failed insertion of an address. Pointers of the program are numbers here.
struct Failure {
    fid: usize,
    context: usize,
    index: u64,
    code: Code,
}

#[derive(Default)]
struct Content {
    events: VecDeque<Event>,
    failures: VecDeque<Failure>,
}

/// Event queue.
#[repr(C)]
pub(crate) struct EventQueue {
    head: Head<FidEq>,
    pub(crate) fabric: Held<Fabric>,
    /// No endpoints: events come from calls. It has the wait object.
    pub(crate) sources: Sources,
    wait_object: c_int,
    is_writable: bool,
    content: Mutex<Content>,
}

static FID: FiOps = FiOps { close: close_object::<EventQueue>, control, ..FiOps::NONE };
static QUEUE: FiOpsEq = FiOpsEq { read, readerr, write, sread, strerror, ..FiOpsEq::NONE };

object!(EventQueue: FidEq, FI_CLASS_EQ, FID);

impl EventQueue {
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_empty(&self) -> bool {
        let content = self.lock();
        content.events.is_empty() && content.failures.is_empty()
    }

    /// Adds the end of an insertion into an address vector.
    pub(crate) fn inserted(
        &self,
        fid: *mut Fid,
        context: *mut c_void,
        count: usize,
        failures: &[(usize, Code)],
    ) {
        let mut content = self.lock();
        for (index, code) in failures {
            let (fid, context) = (fid.expose_provenance(), context.expose_provenance());
            content.failures.push_back(Failure {
                fid,
                context,
                index: crate::entry::to_u64(*index),
                code: *code,
            });
        }
        let entry = FiEqEntry { fid, context, data: crate::entry::to_u64(count) };
        content.events.push_back(Event { kind: FI_AV_COMPLETE, data: bytes(&entry) });
        drop(content);
        self.sources.notify();
    }

    /// Takes or copies the oldest event.
    fn take(
        &self,
        kind: *mut u32,
        buffer: *mut c_void,
        length: usize,
        flags: u64,
    ) -> Option<Result<isize, Code>> {
        let mut content = self.lock();
        if !content.failures.is_empty() {
            return Some(Err(EAVAIL));
        }
        let event = content.events.front()?;
        if event.data.len() > length {
            return Some(Err(ETOOSMALL));
        }
        let count = to_count(event.data.len());
        if let Err(code) = set(kind, event.kind).and_then(|()| copy_out(buffer.cast(), length, &event.data)) {
            return Some(Err(code));
        }
        if flags & FI_PEEK == 0 {
            content.events.pop_front();
        }
        Some(Ok(count))
    }
}

/// Bytes of an entry.
fn bytes(entry: &FiEqEntry) -> Vec<u8> {
    let start = core::ptr::from_ref(entry).cast::<u8>();
    // SAFETY: a `FiEqEntry` has three fields of 8 bytes and no padding: all of its bytes are initialised.
    unsafe { core::slice::from_raw_parts(start, size_of::<FiEqEntry>()) }.to_vec()
}

pub(crate) unsafe extern "C" fn open(
    fabric: *mut FidFabric,
    attributes: *mut FiEqAttr,
    out: *mut *mut FidEq,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let fabric: &Fabric = borrow(fabric)?;
        let attributes = structure(attributes)?;
        set(out, null_mut())?;
        check_flags(attributes.flags, FI_AFFINITY | FI_WRITE, EBADFLAGS)?;
        let queue = EventQueue {
            head: Head::new(FidEq { fid: EventQueue::fid(context), ops: &raw const QUEUE }),
            fabric: Held::new(fabric)?,
            sources: Sources::new(wait::for_object(attributes.wait_obj)?),
            wait_object: attributes.wait_obj,
            is_writable: attributes.flags & FI_WRITE != 0,
            content: Mutex::default(),
        };
        set(out, publish(Arc::new(queue)))?;
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    call(|| {
        let queue: &EventQueue = borrow(fid)?;
        wait::control(queue.wait_object, queue.sources.wait(), command, argument)
    })
}

unsafe extern "C" fn read(
    queue: *mut FidEq,
    kind: *mut u32,
    buffer: *mut c_void,
    length: usize,
    flags: u64,
) -> isize {
    call(|| {
        let queue: &EventQueue = borrow(queue)?;
        check_flags(flags, FI_PEEK, EBADFLAGS)?;
        queue.take(kind, buffer, length, flags).unwrap_or(Err(EAGAIN))
    })
}

unsafe extern "C" fn sread(
    queue: *mut FidEq,
    kind: *mut u32,
    buffer: *mut c_void,
    length: usize,
    timeout: c_int,
    flags: u64,
) -> isize {
    call(|| {
        let queue: &EventQueue = borrow(queue)?;
        check_flags(flags, FI_PEEK, EBADFLAGS)?;
        if queue.sources.wait().is_none() {
            return Err(EINVAL);
        }
        queue.sources.wait_for(timeout, || queue.take(kind, buffer, length, flags)).unwrap_or(Err(EAGAIN))
    })
}

unsafe extern "C" fn readerr(queue: *mut FidEq, entry: *mut FiEqErrEntry, flags: u64) -> isize {
    call(|| {
        let queue: &EventQueue = borrow(queue)?;
        check_flags(flags, FI_PEEK, EBADFLAGS)?;
        let mut content = queue.lock();
        let failure = content.failures.front().ok_or(EAGAIN)?;
        let error = FiEqErrEntry {
            fid: core::ptr::with_exposed_provenance_mut(failure.fid),
            context: core::ptr::with_exposed_provenance_mut(failure.context),
            data: failure.index,
            err: failure.code.get(),
            prov_errno: failure.code.get(),
            err_data: null_mut(),
            err_data_size: 0,
        };
        set(entry, error)?;
        if flags & FI_PEEK == 0 {
            content.failures.pop_front();
        }
        Ok(to_count(size_of::<FiEqErrEntry>()))
    })
}

unsafe extern "C" fn write(
    queue: *mut FidEq,
    kind: u32,
    buffer: *const c_void,
    length: usize,
    flags: u64,
) -> isize {
    call(|| {
        let queue: &EventQueue = borrow(queue)?;
        check_flags(flags, 0, EBADFLAGS)?;
        if !queue.is_writable || length > MAX_EVENT {
            return Err(EINVAL);
        }
        let data = array(buffer.cast::<u8>(), length)?.to_vec();
        let mut content = queue.lock();
        if content.events.len() >= MAX_EVENTS {
            return Err(EAGAIN);
        }
        content.events.push_back(Event { kind, data });
        drop(content);
        queue.sources.notify();
        Ok(to_count(length))
    })
}

unsafe extern "C" fn strerror(
    queue: *mut FidEq,
    number: c_int,
    _data: *const c_void,
    buffer: *mut c_char,
    length: usize,
) -> *const c_char {
    let text = if number == EINVAL.get() {
        c"the address is not fpga://IP:PORT or fpga://node/NUMBER"
    } else {
        crate::code::c_text(number)
    };
    call_or(text.as_ptr(), || {
        let _: &EventQueue = borrow(queue)?;
        if !buffer.is_null() && length > 0 {
            copy_text(buffer, length, &text.to_string_lossy())?;
            return Ok(buffer.cast_const());
        }
        Ok(text.as_ptr())
    })
}
