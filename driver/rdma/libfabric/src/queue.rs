//! Completion queues: entries, errors, and their formats.

use crate::code::Code;
use crate::domain::Domain;
use crate::entry::{set_element, to_size};
use crate::object::{Head, Held};
use crate::sources::Sources;
use crate::sys::*;
use core::ffi::{c_char, c_int, c_void};
use core::ptr::with_exposed_provenance_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::ffi::CString;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Number of entries if the program does not set it.
pub(crate) const DEFAULT_SIZE: usize = 4096;
/// Maximum number of entries.
pub(crate) const MAX_SIZE: usize = 1 << 20;
/// Minimum number of entries: an endpoint takes no completions while a queue is full.
const MIN_SIZE: usize = 64;

/// Completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) context: u64,
    pub(crate) flags: u64,
    pub(crate) length: u64,
    pub(crate) buffer: u64,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    /// Address of the peer in the address vector.
    pub(crate) source: u64,
}

/// Completion of an operation that has failed.
#[derive(Clone, Debug)]
pub(crate) struct ErrorEntry {
    pub(crate) entry: Entry,
    /// Bytes that did not fit into the buffer.
    pub(crate) cut: u64,
    pub(crate) code: Code,
    pub(crate) text: String,
}

/// Format of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Context,
    Message,
    Data,
    Tagged,
}

impl Format {
    pub(crate) fn new(number: c_int) -> Result<Self, Code> {
        match number {
            FI_CQ_FORMAT_UNSPEC | FI_CQ_FORMAT_CONTEXT => Ok(Self::Context),
            FI_CQ_FORMAT_MSG => Ok(Self::Message),
            FI_CQ_FORMAT_DATA => Ok(Self::Data),
            FI_CQ_FORMAT_TAGGED => Ok(Self::Tagged),
            _ => Err(EINVAL),
        }
    }

    /// Writes element `index` of the program's array.
    fn write(self, array: *mut c_void, index: usize, entry: &Entry) -> Result<(), Code> {
        let op_context = pointer(entry.context);
        let Entry { flags, data, tag, .. } = *entry;
        let (len, buf) = (to_size(entry.length), pointer(entry.buffer));
        match self {
            Self::Context => set_element(array.cast(), index, FiCqEntry { op_context }),
            Self::Message => set_element(array.cast(), index, FiCqMsgEntry { op_context, flags, len }),
            Self::Data => {
                set_element(array.cast(), index, FiCqDataEntry { op_context, flags, len, buf, data })
            }
            Self::Tagged => {
                set_element(array.cast(), index, FiCqTaggedEntry { op_context, flags, len, buf, data, tag })
            }
        }
    }
}

/// Converts an address to a pointer of the program.
fn pointer(address: u64) -> *mut c_void {
    with_exposed_provenance_mut(to_size(address))
}

#[derive(Default)]
struct Content {
    entries: VecDeque<Entry>,
    errors: VecDeque<ErrorEntry>,
    /// Text of the error that was read last: programs may use it until the next one is read.
    text: CString,
}

/// Completion queue.
#[repr(C)]
pub(crate) struct Queue {
    pub(crate) head: Head<FidCq>,
    pub(crate) domain: Held<Domain>,
    pub(crate) sources: Sources,
    pub(crate) wait_object: c_int,
    format: Format,
    capacity: usize,
    content: Mutex<Content>,
    /// Number of entries and errors, so that an empty queue is found without the lock.
    count: AtomicUsize,
    /// The card of an endpoint has failed: there are no more entries.
    has_failed: AtomicBool,
}

impl Queue {
    pub(crate) fn new(
        head: Head<FidCq>,
        domain: Held<Domain>,
        sources: Sources,
        wait_object: c_int,
        format: Format,
        size: usize,
    ) -> Self {
        let capacity = if size == 0 { DEFAULT_SIZE } else { size.max(MIN_SIZE) };
        let content = Content { entries: VecDeque::with_capacity(capacity), ..Content::default() };
        Self {
            head,
            domain,
            sources,
            wait_object,
            format,
            capacity,
            content: Mutex::new(content),
            count: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is space for another entry.
    pub(crate) fn has_space(&self) -> bool {
        self.count.load(Ordering::Relaxed) < self.capacity
    }

    /// Whether there is nothing to read.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn push(&self, entry: Entry) {
        self.lock().entries.push_back(entry);
        self.count_entry();
    }

    pub(crate) fn push_error(&self, entry: ErrorEntry) {
        self.lock().errors.push_back(entry);
        self.count_entry();
    }

    /// Counts an entry, and wakes the waiting thread.
    fn count_entry(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.sources.notify();
    }

    /// Records that the card of an endpoint has failed, for programs that wait for operations of peers.
    pub(crate) fn fail(&self) {
        self.has_failed.store(true, Ordering::SeqCst);
        self.sources.notify();
    }

    /// Whether a read returns something other than `FI_EAGAIN`.
    pub(crate) fn is_ready(&self) -> bool {
        !self.is_empty() || self.empty_error() != EAGAIN
    }

    /// Returns the error of a read of the empty queue.
    pub(crate) fn empty_error(&self) -> Code {
        if self.has_failed.load(Ordering::SeqCst) { EIO } else { EAGAIN }
    }

    /// Takes up to `count` entries; `None` if there are none, an error code if an error must be read first.
    pub(crate) fn take(
        &self,
        array: *mut c_void,
        count: usize,
        sources: *mut u64,
    ) -> Option<Result<usize, Code>> {
        if self.is_empty() {
            return None;
        }
        let mut content = self.lock();
        if !content.errors.is_empty() {
            return Some(Err(crate::sys::EAVAIL));
        }
        let mut taken = 0;
        while taken < count
            && let Some(entry) = content.entries.front()
        {
            let mut written = self.format.write(array, taken, entry);
            if !sources.is_null() {
                written = written.and_then(|()| set_element(sources, taken, entry.source));
            }
            if let Err(code) = written {
                return Some(Err(code));
            }
            content.entries.pop_front();
            taken += 1;
        }
        self.count.fetch_sub(taken, Ordering::SeqCst);
        (taken > 0).then_some(Ok(taken))
    }

    /// Takes the oldest error and writes it to the program's structure. Returns whether there was one.
    pub(crate) fn take_error(&self, out: *mut FiCqErrEntry) -> Result<bool, Code> {
        let mut content = self.lock();
        let Some(error) = content.errors.front() else { return Ok(false) };
        let text = CString::new(error.text.clone()).unwrap_or_default();
        // A program may give a buffer since 1.5, but many leave the fields for it uninitialized. The text is therefore in the provider's
        // memory, and `max_err_data` is 0.
        let (err_data, err_data_size) = (text.as_ptr().cast_mut().cast(), text.as_bytes_with_nul().len());
        let Entry { flags, data, tag, .. } = error.entry;
        let number = error.code.get();
        let entry = FiCqErrEntry {
            op_context: pointer(error.entry.context),
            flags,
            len: to_size(error.entry.length),
            buf: pointer(error.entry.buffer),
            data,
            tag,
            olen: to_size(error.cut),
            err: number,
            prov_errno: number,
            err_data,
            err_data_size,
        };
        crate::entry::set(out, entry)?;
        // The bytes of a CString do not move with it.
        content.text = text;
        content.errors.pop_front();
        self.count.fetch_sub(1, Ordering::SeqCst);
        Ok(true)
    }

    /// Text of an error: that of `data` if it is the text that was passed last.
    pub(crate) fn error_text(&self, number: c_int, data: *const c_void) -> String {
        let content = self.lock();
        if !data.is_null() && core::ptr::eq(data, content.text.as_ptr().cast()) {
            content.text.to_string_lossy().into_owned()
        } else {
            crate::code::c_text(number).to_string_lossy().into_owned()
        }
    }
}

impl Queue {
    /// Text of an error that outlives the call: that of `data` if it is the text that was passed last, or a general one.
    pub(crate) fn static_text(&self, number: c_int, data: *const c_void) -> *const c_char {
        let content = self.lock();
        if !data.is_null() && core::ptr::eq(data, content.text.as_ptr().cast()) {
            content.text.as_ptr()
        } else {
            crate::code::c_text(number).as_ptr()
        }
    }
}
