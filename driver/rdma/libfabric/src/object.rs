//! Objects that programs hold by pointer.
//!
//! A program's pointer is that of an [`Arc`]'s content, which begins with the structure of libfabric's headers. An object is recognised by its class, by its
//! table of functions, which is in this library, and by a magic number that is removed when it is closed. Objects of other providers, closed objects whose memory
//! is still mapped, null and misaligned pointers are errors.

use crate::code::Code;
use crate::entry::call;
use crate::log;
use crate::sys::{EBUSY, EINVAL, EOPBADSTATE, FiOps, Fid};
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::ops::Deref;
use core::ptr::from_ref;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use fpga_pci::OtherProcess;
use fpga_pci::Process;
use std::sync::Arc;

/// Magic number of an open object.
const OPEN: u32 = 0x6670_6761;
/// Value of `users` while the object is closed.
const CLOSING: u32 = u32::MAX;

/// First field of each object. `R` is the structure of the headers.
#[repr(C)]
pub(crate) struct Head<R> {
    raw: UnsafeCell<R>,
    magic: AtomicU32,
    users: AtomicU32,
    /// Process that has made the object, which alone may use it.
    process: Process,
}

// SAFETY: this library writes `raw` before a program gets the object's pointer, and only reads class and table afterwards, which no thread
// changes. The pointers in `raw` are those of static tables and of the program's context, which is not dereferenced.
unsafe impl<R> Send for Head<R> {}
// SAFETY: as above.
unsafe impl<R> Sync for Head<R> {}

impl<R> Head<R> {
    pub(crate) fn new(raw: R) -> Self {
        Self {
            raw: UnsafeCell::new(raw),
            magic: AtomicU32::new(OPEN),
            users: AtomicU32::new(0),
            process: Process::current(),
        }
    }

    /// The structure of the headers, which the library and inline functions access.
    pub(crate) const fn raw(&self) -> *mut R {
        self.raw.get()
    }
}

/// Kind of object.
///
/// # Safety
/// The type is `repr(C)`, begins with a `Head<Self::Raw>` that [`head`](Self::head) returns, `Raw` begins with a [`Fid`], and values are
/// only passed to programs by [`publish`].
pub(crate) unsafe trait Object: Send + Sync + Sized {
    type Raw;
    const CLASS: usize;

    /// Table of the object's functions.
    fn operations() -> *const FiOps;

    fn head(&self) -> &Head<Self::Raw>;

    /// Head of the structure for an object with this context.
    fn fid(context: *mut c_void) -> Fid {
        Fid { fclass: Self::CLASS, context, ops: Self::operations() }
    }
}

/// Makes a `repr(C)` type, whose first field is `head: Head<$raw>`, the objects of class `$class` with the functions `$operations`.
macro_rules! object {
    ($type:ty: $raw:ty, $class:expr, $operations:path) => {
        // SAFETY: `repr(C)`, and the first field is the head with the structure of this class.
        unsafe impl $crate::object::Object for $type {
            type Raw = $raw;
            const CLASS: usize = $class;

            fn operations() -> *const $crate::sys::FiOps {
                &raw const $operations
            }

            fn head(&self) -> &$crate::object::Head<$raw> {
                &self.head
            }
        }
    };
}
pub(crate) use object;

/// Passes an object to the program.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::Raw {
    Arc::into_raw(object).cast_mut().cast()
}

/// Returns the object of a program's pointer.
#[inline]
pub(crate) fn borrow<'a, T: Object, P>(pointer: *const P) -> Result<&'a T, Code> {
    let fid = pointer.cast::<Fid>();
    if fid.is_null() || !fid.is_aligned() {
        return Err(EINVAL);
    }
    // SAFETY: not null and aligned; programs pass objects of libfabric, and all begin with a `Fid`. Its first fields never change.
    let (class, operations) = unsafe { ((*fid).fclass, (*fid).ops) };
    if class != T::CLASS || operations != T::operations() {
        return Err(EINVAL);
    }
    // SAFETY: class and table are those of T, so `publish` has passed this pointer, which comes from an `Arc<T>`. The program does not
    // close an object while another call uses it.
    let object = unsafe { &*pointer.cast::<T>() };
    if object.head().magic.load(Ordering::Relaxed) != OPEN {
        return Err(EINVAL);
    }
    match object.head().process.check() {
        Ok(()) => Ok(object),
        Err(other) => Err(refuse_process(other)),
    }
}

/// Returns the error for an object that another process has made: a child after a fork must not use the parent's card.
#[cold]
fn refuse_process(other: OtherProcess) -> Code {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if !WARNED.swap(true, Ordering::Relaxed) {
        log::warn(format_args!("{other}; {}", other.help()));
    }
    EOPBADSTATE
}

/// Ends the program's use of an object, and returns it.
///
/// # Errors
/// `FI_EBUSY` if other objects use it.
pub(crate) fn close<T: Object>(pointer: *mut Fid) -> Result<Arc<T>, Code> {
    let object: &T = borrow(pointer)?;
    let users = &object.head().users;
    users.compare_exchange(0, CLOSING, Ordering::AcqRel, Ordering::Relaxed).map_err(|_| EBUSY)?;
    object.head().magic.store(0, Ordering::Relaxed);
    // SAFETY: `borrow` has found that the pointer is from `publish`; only one call gets here, as the number of users proves.
    Ok(unsafe { Arc::from_raw(pointer.cast_const().cast()) })
}

/// Function `close` of objects whose drop is all that remains to be done.
pub(crate) unsafe extern "C" fn close_object<T: Object>(fid: *mut Fid) -> c_int {
    call(|| close::<T>(fid).map(|_| 0))
}

/// Reference of another object: its target cannot be closed.
pub(crate) struct Held<T: Object>(Arc<T>);

impl<T: Object> Held<T> {
    /// Holds an object that [`borrow`] has found.
    pub(crate) fn new(object: &T) -> Result<Self, Code> {
        let users = &object.head().users;
        let add = |users: u32| users.checked_add(1).filter(|users| *users != CLOSING);
        users.fetch_update(Ordering::AcqRel, Ordering::Relaxed, add).map_err(|_| EINVAL)?;
        let pointer = from_ref(object);
        // SAFETY: all objects are in an `Arc`, and this one is not dropped during the call.
        let object = unsafe {
            Arc::increment_strong_count(pointer);
            Arc::from_raw(pointer)
        };
        Ok(Self(object))
    }
}

impl<T: Object> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Object> Drop for Held<T> {
    fn drop(&mut self) {
        self.0.head().users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether both are the same object.
pub(crate) fn is_same<T>(a: &T, b: &T) -> bool {
    core::ptr::eq(a, b)
}
