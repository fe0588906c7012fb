//! Counters of completions.

use crate::access_counters::AccessCounter;
use crate::domain::Domain;
use crate::entry::{call, call_or, set};
use crate::object::{Head, Held, Object, borrow, close_object, object, publish};
use crate::sources::Sources;
use crate::sys::*;
use crate::wait;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// Counter.
#[repr(C)]
pub(crate) struct Counter {
    head: Head<FidCntr>,
    pub(crate) domain: Held<Domain>,
    pub(crate) sources: Arc<Sources>,
    wait_object: c_int,
    value: AtomicU64,
    errors: AtomicU64,
}

static FID: FiOps = FiOps { close: close_object::<Counter>, control, ..FiOps::NONE };
static COUNTER: FiOpsCntr =
    FiOpsCntr { read, readerr, add, set: set_value, wait, adderr, seterr, ..FiOpsCntr::NONE };

object!(Counter: FidCntr, FI_CLASS_CNTR, FID);

impl Counter {
    /// Counts a completion.
    pub(crate) fn count(&self, is_ok: bool) {
        self.change(if is_ok { &self.value } else { &self.errors }, 1);
    }

    /// Ends waits for operations of peers: the card of an endpoint has failed.
    pub(crate) fn fail(&self) {
        self.change(&self.errors, 1);
    }

    fn change(&self, number: &AtomicU64, by: u64) {
        number.fetch_add(by, Ordering::SeqCst);
        self.sources.notify();
    }
}

impl AccessCounter for Held<Counter> {
    fn count(&self) {
        Counter::count(self, true);
    }

    fn sources(&self) -> &Arc<Sources> {
        &self.sources
    }
}

pub(crate) unsafe extern "C" fn open(
    domain: *mut FidDomain,
    attributes: *mut FiCntrAttr,
    out: *mut *mut FidCntr,
    context: *mut c_void,
) -> c_int {
    call(|| {
        let domain: &Domain = borrow(domain)?;
        set(out, null_mut())?;
        let mut wait_object = FI_WAIT_UNSPEC;
        if let Some(attributes) = crate::entry::optional(attributes)? {
            crate::entry::check_flags(attributes.flags, 0, EBADFLAGS)?;
            if attributes.events != FI_CNTR_EVENTS_COMP {
                return Err(ENOSYS);
            }
            wait_object = attributes.wait_obj;
        }
        // Programs may wait for a counter without a wait object, too.
        let kind = if wait_object == FI_WAIT_NONE { FI_WAIT_UNSPEC } else { wait_object };
        let counter = Counter {
            head: Head::new(FidCntr { fid: Counter::fid(context), ops: &raw const COUNTER }),
            domain: Held::new(domain)?,
            sources: Arc::new(Sources::new(wait::for_object(kind)?)),
            wait_object,
            value: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        };
        set(out, publish(Arc::new(counter)))?;
        Ok(0)
    })
}

unsafe extern "C" fn control(fid: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    call(|| {
        let counter: &Counter = borrow(fid)?;
        wait::control(counter.wait_object, counter.sources.wait(), command, argument)
    })
}

unsafe extern "C" fn read(counter: *mut FidCntr) -> u64 {
    call_or(0, || {
        let counter: &Counter = borrow(counter)?;
        counter.sources.progress();
        Ok(counter.value.load(Ordering::SeqCst))
    })
}

unsafe extern "C" fn readerr(counter: *mut FidCntr) -> u64 {
    call_or(0, || {
        let counter: &Counter = borrow(counter)?;
        counter.sources.progress();
        Ok(counter.errors.load(Ordering::SeqCst))
    })
}

/// Changes a number of the counter, and wakes threads that wait for it.
fn change(counter: *mut FidCntr, change: impl FnOnce(&Counter)) -> c_int {
    call(|| {
        let counter: &Counter = borrow(counter)?;
        change(counter);
        counter.sources.notify();
        Ok(0)
    })
}

unsafe extern "C" fn add(counter: *mut FidCntr, value: u64) -> c_int {
    change(counter, |counter| _ = counter.value.fetch_add(value, Ordering::SeqCst))
}

unsafe extern "C" fn set_value(counter: *mut FidCntr, value: u64) -> c_int {
    change(counter, |counter| counter.value.store(value, Ordering::SeqCst))
}

unsafe extern "C" fn adderr(counter: *mut FidCntr, value: u64) -> c_int {
    change(counter, |counter| _ = counter.errors.fetch_add(value, Ordering::SeqCst))
}

unsafe extern "C" fn seterr(counter: *mut FidCntr, value: u64) -> c_int {
    change(counter, |counter| counter.errors.store(value, Ordering::SeqCst))
}

unsafe extern "C" fn wait(counter: *mut FidCntr, threshold: u64, timeout: c_int) -> c_int {
    call(|| {
        let counter: &Counter = borrow(counter)?;
        let errors = counter.errors.load(Ordering::SeqCst);
        let reached = || {
            if counter.value.load(Ordering::SeqCst) >= threshold {
                Some(Ok(0))
            } else if counter.errors.load(Ordering::SeqCst) != errors {
                Some(Err(EAVAIL))
            } else {
                None
            }
        };
        let result = counter.sources.wait_for(timeout, reached);
        if let Some(wait) = counter.sources.wait() {
            // Another thread may wait for the same value.
            wait.write();
        }
        result.unwrap_or(Err(ETIMEDOUT))
    })
}
