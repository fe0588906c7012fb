//! Handles of C programs: numbers that name slots of a table, in the shape of pointers.
//!
//! A handle has the index of a slot, and the kind and the generation of the slot's object. It is never dereferenced: a null handle, a wild one, one that
//! was closed, and one of another kind of object are found by a comparison.
//!
//! | State of a slot | Meaning |
//! |---|---|
//! | generation, `FREE` | no object; the next object gets the next generation |
//! | generation, `IDLE` | an object that no thread uses |
//! | generation, `BUSY` | an object that one thread uses; calls of other threads are refused |
//!
//! Entering and leaving a slot are one atomic operation each. The table grows by chunks and takes its lock only to create an object.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::buffer::Buffer;
use crate::cdma::CopyEngine;
use crate::channel::Channel;
use crate::endpoint::CardEndpoint;
use crate::error::{self, Failure};
use crate::frames::AnyFrame;
use crate::interrupt::UserLines;
use crate::map::Map;
#[cfg(feature = "sim")]
use crate::network::Network;
use crate::status::Status;
use crate::subscriber::AnySubscriber;
use fpga_driver::Card;
use fpga_driver::backend::Process;
use fpga_driver::errors::OtherProcess;
use fpga_frames::Publisher;

const FREE: u64 = 0;
const IDLE: u64 = 1;
const BUSY: u64 = 2;
const STATE_BITS: u32 = 2;
/// Bits of the index in a handle: 2^20 objects at a time.
const INDEX_BITS: u32 = 20;
const CHUNK: usize = 1 << 10;
const CHUNKS: usize = 1 << 10;
/// Bits of the object's kind in a handle, above the index.
const KIND_BITS: u32 = 6;
/// Generations fit into the other bits of a handle, and generation 0 is not used: no handle is null.
const MAX_GENERATION: u64 = (1 << (u64::BITS - INDEX_BITS - KIND_BITS)) - 1;
const _: () = assert!(KIND_BITS >= STATE_BITS, "a state has space for the generation of a handle");

/// Kind of object that a function takes.
pub(crate) trait Kind: Sized {
    /// Kind in the handles of these objects.
    const NUMBER: u64;

    fn into_object(self) -> Object;

    fn of(object: &mut Object) -> Option<&mut Self>;

    fn from_object(object: Object) -> Option<Self>;
}

/// Lists the kinds of objects. Each object has its own allocation: slots are small, and an object does not move.
macro_rules! objects {
    ($($(#[$meta:meta])* $name:ident = $number:literal),* $(,)?) => {
        /// Object that a handle names.
        pub(crate) enum Object {
            $($(#[$meta])* $name(Box<$name>),)*
        }

        $($(#[$meta])* impl Kind for $name {
            const NUMBER: u64 = $number;

            fn into_object(self) -> Object {
                Object::$name(Box::new(self))
            }

            fn from_object(object: Object) -> Option<Self> {
                match object {
                    Object::$name(object) => Some(*object),
                    _ => None,
                }
            }

            #[inline]
            fn of(object: &mut Object) -> Option<&mut Self> {
                match object {
                    Object::$name(object) => Some(object),
                    _ => None,
                }
            }
        })*
    };
}

objects! {
    Card = 0,
    Channel = 1,
    Buffer = 2,
    Map = 3,
    UserLines = 4,
    CopyEngine = 5,
    #[cfg(feature = "sim")]
    Network = 6,
    CardEndpoint = 7,
    Publisher = 8,
    AnySubscriber = 9,
    AnyFrame = 10,
}

struct Slot {
    /// Process that has opened the object, which alone may use it: in a child after a fork, the state may be that of another thread of the
    /// parent.
    process: AtomicU64,
    /// Generation and state.
    state: AtomicU64,
    object: UnsafeCell<Option<Object>>,
}

/// Objects are used by one thread after another.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Object>();
};

// SAFETY: objects are Send, which the constant above checks. Only the thread that changed the state from IDLE to BUSY, or that holds the table's lock for a FREE slot, accesses the object.
unsafe impl Sync for Slot {}

/// Chunks of slots, created when they are needed.
struct Table {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    /// Indices of free slots, and the number of slots.
    free: Mutex<(Vec<usize>, usize)>,
}

static TABLE: Table =
    Table { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::new((Vec::new(), 0)) };

impl Table {
    fn slot(&self, index: usize) -> Option<&Slot> {
        self.chunks.get(index / CHUNK)?.get()?.get(index % CHUNK)
    }
}

fn slot_of(handle: u64) -> Option<(&'static Slot, u64)> {
    let index = usize::try_from(handle & ((1 << INDEX_BITS) - 1)).ok()?;
    Some((TABLE.slot(index)?, handle >> (INDEX_BITS + KIND_BITS)))
}

/// Object in use by this thread. The slot is idle again when it is dropped.
pub(crate) struct Entered {
    slot: &'static Slot,
    generation: u64,
}

impl Entered {
    /// Returns the object if it is of this kind.
    #[inline]
    pub(crate) fn get<T: Kind>(&mut self) -> Result<&mut T, Status> {
        // SAFETY: this value exists once per BUSY slot, and is borrowed mutably.
        let object = unsafe { &mut *self.slot.object.get() };
        object.as_mut().and_then(T::of).ok_or(Status::Handle)
    }

    /// Takes the object out, if it is of this kind, and frees the slot: the handle is closed.
    pub(crate) fn close<T: Kind>(mut self) -> Result<Object, Status> {
        self.get::<T>()?;
        let (slot, generation) = (self.slot, self.generation);
        core::mem::forget(self);
        // SAFETY: the slot is still BUSY by this thread.
        let object = unsafe { (*slot.object.get()).take() };
        slot.state.store(generation << STATE_BITS | FREE, Ordering::Release);
        object.ok_or(Status::Handle)
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        self.slot.state.store(self.generation << STATE_BITS | IDLE, Ordering::Release);
    }
}

/// Begins to use the object of a handle.
///
/// # Errors
/// [`Status::Handle`] if the handle is not open, [`Status::Concurrent`] if another thread uses the object, [`Status::Process`] if another
/// process has opened it.
#[inline]
pub(crate) fn enter(handle: u64) -> Result<Entered, Status> {
    let (slot, generation) = slot_of(handle).ok_or(Status::Handle)?;
    if let Err(other) = Process::from_bits(slot.process.load(Ordering::Relaxed)).check() {
        return Err(of_other(slot, generation, other));
    }
    let idle = generation << STATE_BITS | IDLE;
    match slot.state.compare_exchange(idle, idle ^ IDLE ^ BUSY, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(Entered { slot, generation }),
        Err(found) if found == generation << STATE_BITS | BUSY => Err(Status::Concurrent),
        Err(_) => Err(Status::Handle),
    }
}

#[cold]
fn of_other(slot: &Slot, generation: u64, other: OtherProcess) -> Status {
    if slot.state.load(Ordering::Acquire) >> STATE_BITS != generation {
        return Status::Handle;
    }
    error::note_process(other);
    Status::Process
}

/// Runs `body` with the object of a handle, which one thread uses at a time. The kind is compared first: it says nothing about other
/// objects whether they are in use.
///
/// # Errors
/// As [`enter`], and those of `body`.
#[inline]
pub(crate) fn with<T: Kind, R>(
    handle: u64,
    body: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut entered = enter_single::<T>(handle)?;
    body(entered.get::<T>()?)
}

/// As [`enter`], with a check of the kind.
///
/// # Errors
/// As [`enter`].
#[inline]
pub(crate) fn enter_single<T: Kind>(handle: u64) -> Result<Entered, Status> {
    if is_kind::<T>(handle) { enter(handle) } else { Err(Status::Handle) }
}

#[inline]
fn is_kind<T: Kind>(handle: u64) -> bool {
    handle >> INDEX_BITS & ((1 << KIND_BITS) - 1) == T::NUMBER
}

/// Returns a copy of what `read` finds in an object that threads share.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn shared<T: Kind, R>(handle: u64, read: impl FnOnce(&T) -> R) -> Result<R, Status> {
    enter_shared::<T>(handle)?.get::<T>().map(|object| read(object))
}

/// As [`shared`], for an object that a call changes.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn change<T: Kind, R>(handle: u64, change: impl FnOnce(&mut T) -> R) -> Result<R, Status> {
    enter_shared::<T>(handle)?.get::<T>().map(change)
}

/// Begins to use an object that threads share. Waits while another thread uses it, which takes nanoseconds. The kind is compared first:
/// a call with a channel would wait as long as another thread waits for transfers of that channel.
pub(crate) fn enter_shared<T: Kind>(handle: u64) -> Result<Entered, Status> {
    if !is_kind::<T>(handle) {
        return Err(Status::Handle);
    }
    loop {
        match enter(handle) {
            Err(Status::Concurrent) => std::thread::yield_now(),
            result => return result,
        }
    }
}

/// Adds an object and returns its handle.
///
/// # Errors
/// [`Status::NoMemory`] if the table is full.
pub(crate) fn add<T: Kind>(object: T) -> Result<u64, Status> {
    let mut free = TABLE.free.lock().unwrap_or_else(PoisonError::into_inner);
    let index = match free.0.pop() {
        Some(index) => index,
        None => {
            let index = free.1;
            let chunk = TABLE.chunks.get(index / CHUNK).ok_or(Status::NoMemory)?;
            chunk.get_or_init(|| {
                let empty = || Slot {
                    process: AtomicU64::new(0),
                    state: AtomicU64::new(FREE),
                    object: UnsafeCell::new(None),
                };
                (0..CHUNK).map(|_| empty()).collect()
            });
            free.1 += 1;
            index
        }
    };
    let slot = TABLE.slot(index).ok_or(Status::Internal)?;
    let generation = (slot.state.load(Ordering::Acquire) >> STATE_BITS) % MAX_GENERATION + 1;
    // SAFETY: the slot is FREE, and its index was taken from the list under the lock: no other thread accesses the object.
    unsafe { *slot.object.get() = Some(object.into_object()) };
    slot.process.store(Process::current().to_bits(), Ordering::Relaxed);
    slot.state.store(generation << STATE_BITS | IDLE, Ordering::Release);
    Ok((generation << KIND_BITS | T::NUMBER) << INDEX_BITS | index as u64)
}

/// Closes a handle of this kind, which one thread uses at a time, and drops its object.
///
/// # Errors
/// As [`enter`].
pub(crate) fn close<T: Kind>(handle: u64) -> Result<(), Status> {
    finish::<T>(handle, enter_single::<T>(handle)?)
}

/// As [`close`], of an object that threads share.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn close_shared<T: Kind>(handle: u64) -> Result<(), Status> {
    finish::<T>(handle, enter_shared::<T>(handle)?)
}

/// Closes the handle of an object in use by this thread.
///
/// # Errors
/// [`Status::Handle`] if the object is of another kind.
pub(crate) fn finish<T: Kind>(handle: u64, entered: Entered) -> Result<(), Status> {
    drop(take::<T>(handle, entered)?);
    Ok(())
}

/// As [`finish`], and returns the object.
///
/// # Errors
/// As [`finish`].
pub(crate) fn take<T: Kind>(handle: u64, entered: Entered) -> Result<Object, Status> {
    let object = entered.close::<T>()?;
    let index = usize::try_from(handle & ((1 << INDEX_BITS) - 1)).map_err(|_| Status::Handle)?;
    TABLE.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(index);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handle of a register map: an object that needs no card.
    fn map() -> u64 {
        let (yaml, mut handle) = (c"schema_version: 1\nname: m\nblocks: []\n", 0);
        let status = crate::map::fpga_map_parse(yaml.as_ptr(), core::ptr::null(), &raw mut handle);
        assert_eq!(status, Status::Ok);
        handle
    }

    fn is_open(handle: u64) -> bool {
        slot_of(handle).is_some_and(|(slot, generation)| {
            let state = slot.state.load(Ordering::Acquire);
            state >> STATE_BITS == generation && state != generation << STATE_BITS | FREE
        })
    }

    #[test]
    fn shared_other_kind_in_use_is_refused_at_once() {
        let handle = map();
        let entered = enter(handle).unwrap();
        assert_eq!(shared(handle, |_: &Buffer| ()), Err(Status::Handle));
        assert_eq!(close_shared::<Buffer>(handle), Err(Status::Handle));
        drop(entered);
        assert_eq!(close_shared::<Map>(handle), Ok(()));
    }

    #[test]
    fn close_shared_waits_for_other_thread() {
        let handle = map();
        let entered = enter(handle).unwrap();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| close_shared::<Map>(handle));
            drop(entered);
            assert_eq!(closing.join().unwrap(), Ok(()));
        });
        assert!(!is_open(handle));
    }
}
