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
//!
//! A thread that closes an object, or cancels something of it, while another thread waits with it, claims it: the wait sees that
//! ([`claim`]), ends and leaves the slot.

mod claim;

use core::any::Any;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use fpga_driver::Card;
use fpga_pci::{OtherProcess, Process};

use crate::abi::Status;
use crate::error::{self, Failure};
pub(crate) use claim::{Claim, NO_HANDLE, claim, watch, with_claimed, with_claimed_in};

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
/// Mode of objects that have only one, and of calls that are possible in every mode.
pub(crate) const ANY_MODE: usize = 0;
/// Number of modes of an object, including [`ANY_MODE`].
const MODES: usize = 3;
const _: () = assert!(KIND_BITS >= STATE_BITS, "a state has space for the generation of a handle");

/// Kinds of objects, by their numbers in handles.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Card,
    Channel,
    Buffer,
    Map,
    UserInterrupts,
    Cdma,
    #[cfg(feature = "sim")]
    Network,
    Endpoint,
    Publisher,
    Subscriber,
    Frame,
}

/// Object that a handle names. Each has its own allocation: slots are small, and an object does not move.
///
/// # Safety
/// No other type has this kind.
pub(crate) unsafe trait Object: Any + Send {
    const KIND: Kind;
}

/// Object in a slot.
struct Content {
    kind: Kind,
    object: Box<dyn Any + Send>,
}

// SAFETY: the only type of this kind.
unsafe impl Object for Card {
    const KIND: Kind = Kind::Card;
}

struct Slot {
    /// Process that has opened the object, which alone may use it: in a child after a fork, the state may be that of another thread of the
    /// parent.
    process: AtomicU64,
    /// Generation and state.
    state: AtomicU64,
    /// Generation of the object that a thread is closing.
    closing: AtomicU64,
    /// Mode of the object ([`ANY_MODE`] if it has only one), which calls of the thread that uses it change.
    mode: AtomicU32,
    /// Number of threads that want the object from a thread that waits with it: in any mode, and in each mode.
    claims: [AtomicU32; MODES],
    object: UnsafeCell<Option<Content>>,
}

// SAFETY: objects are Send. Only the thread that changed the state from IDLE to BUSY, or that holds the table's lock for a FREE slot, accesses the object.
unsafe impl Sync for Slot {}

impl Slot {
    /// Returns the mode of the object, which does not change while a thread waits with it.
    fn mode(&self) -> usize {
        self.mode.load(Ordering::Relaxed) as usize
    }
}

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
    pub(crate) fn get<T: Object>(&mut self) -> Result<&mut T, Status> {
        // SAFETY: this value exists once per BUSY slot, and is borrowed mutably.
        let content = unsafe { &mut *self.slot.object.get() };
        let content = content.as_mut().filter(|content| content.kind == T::KIND).ok_or(Status::Handle)?;
        // SAFETY: an object of this kind is a T. `downcast_mut` would call a function to find the same.
        Ok(unsafe { &mut *(&raw mut *content.object).cast::<T>() })
    }

    /// Takes the object out, if it is of this kind, and frees the slot: the handle is closed.
    pub(crate) fn close<T: Object>(mut self) -> Result<T, Status> {
        self.get::<T>()?;
        let (slot, generation) = (self.slot, self.generation);
        core::mem::forget(self);
        // SAFETY: the slot is still BUSY by this thread.
        let content = unsafe { (*slot.object.get()).take() };
        slot.state.store(generation << STATE_BITS | FREE, Ordering::Release);
        content.and_then(|content| content.object.downcast().ok()).map(|object| *object).ok_or(Status::Handle)
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

/// Calls `body` with the object of a handle, which one thread uses at a time. Handles of other kinds are refused before they are entered.
///
/// # Errors
/// As [`enter`], and those of `body`.
#[inline]
pub(crate) fn with<T: Object, R>(
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
pub(crate) fn enter_single<T: Object>(handle: u64) -> Result<Entered, Status> {
    if is_kind::<T>(handle) { enter(handle) } else { Err(Status::Handle) }
}

#[inline]
fn is_kind<T: Object>(handle: u64) -> bool {
    handle >> INDEX_BITS & ((1 << KIND_BITS) - 1) == T::KIND as u64
}

/// Calls `read` with an object that threads share, and returns its result.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn shared<T: Object, R>(handle: u64, read: impl FnOnce(&T) -> R) -> Result<R, Status> {
    enter_shared::<T>(handle)?.get::<T>().map(|object| read(object))
}

/// Returns the card of a handle.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn card(handle: u64) -> Result<Card, Status> {
    shared(handle, Card::clone)
}

/// As [`shared`], for an object that a call changes.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn change<T: Object, R>(handle: u64, change: impl FnOnce(&mut T) -> R) -> Result<R, Status> {
    enter_shared::<T>(handle)?.get::<T>().map(change)
}

/// Begins to use an object that threads share. Waits while another thread uses it, which takes nanoseconds. The kind is compared first:
/// a call with a channel would wait as long as another thread waits for transfers of that channel.
pub(crate) fn enter_shared<T: Object>(handle: u64) -> Result<Entered, Status> {
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

/// Sets the mode of an object that this thread uses.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn set_mode(handle: u64, mode: usize) -> Result<(), Status> {
    let (slot, _) = slot_of(handle).ok_or(Status::Handle)?;
    slot.mode.store(u32::try_from(mode).map_err(|_| Status::Internal)?, Ordering::Relaxed);
    Ok(())
}

/// Adds an object and returns its handle.
///
/// # Errors
/// [`Status::NoMemory`] if the table is full.
pub(crate) fn add<T: Object>(object: T) -> Result<u64, Status> {
    add_in_mode(object, ANY_MODE)
}

/// As [`add`], for an object with modes.
///
/// # Errors
/// As [`add`].
pub(crate) fn add_in_mode<T: Object>(object: T, mode: usize) -> Result<u64, Status> {
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
                    closing: AtomicU64::new(0),
                    mode: AtomicU32::new(0),
                    claims: [const { AtomicU32::new(0) }; MODES],
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
    unsafe { *slot.object.get() = Some(Content { kind: T::KIND, object: Box::new(object) }) };
    slot.process.store(Process::current().to_bits(), Ordering::Relaxed);
    slot.mode.store(u32::try_from(mode).map_err(|_| Status::Internal)?, Ordering::Relaxed);
    slot.state.store(generation << STATE_BITS | IDLE, Ordering::Release);
    Ok((generation << KIND_BITS | T::KIND as u64) << INDEX_BITS | index as u64)
}

/// Closes a handle of this kind, which one thread uses at a time, and drops its object. Waits of other threads with it end first.
///
/// # Errors
/// As [`with_claimed`].
pub(crate) fn close<T: Object>(handle: u64) -> Result<(), Status> {
    finish::<T>(handle, enter_to_close::<T>(handle)?)
}

/// Begins to use an object that is to be closed.
///
/// # Errors
/// As [`with_claimed`].
pub(crate) fn enter_to_close<T: Object>(handle: u64) -> Result<Entered, Status> {
    claim::enter_claimed::<T>(handle, Claim::Close)
}

/// As [`close`], of an object that threads share.
///
/// # Errors
/// [`Status::Handle`].
pub(crate) fn close_shared<T: Object>(handle: u64) -> Result<(), Status> {
    finish::<T>(handle, enter_shared::<T>(handle)?)
}

/// Closes the handle of an object in use by this thread.
///
/// # Errors
/// [`Status::Handle`] if the object is of another kind.
pub(crate) fn finish<T: Object>(handle: u64, entered: Entered) -> Result<(), Status> {
    drop(take::<T>(handle, entered)?);
    Ok(())
}

/// As [`finish`], and returns the object.
///
/// # Errors
/// As [`finish`].
pub(crate) fn take<T: Object>(handle: u64, entered: Entered) -> Result<T, Status> {
    let object = entered.close::<T>()?;
    let index = usize::try_from(handle & ((1 << INDEX_BITS) - 1)).map_err(|_| Status::Handle)?;
    TABLE.free.lock().unwrap_or_else(PoisonError::into_inner).0.push(index);
    Ok(object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;
    use crate::map::Map;

    /// Handle of a register map: an object that needs no card.
    fn map() -> u64 {
        let (yaml, mut handle) = (c"schema_version: 1\nname: m\nblocks: []\n", 0);
        let status = crate::exports::fpga_map_parse(yaml.as_ptr(), core::ptr::null(), &raw mut handle);
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
