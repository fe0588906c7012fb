//! Claims: a thread that closes an object, or cancels something of it, ends the wait of another thread with it.

use core::cell::Cell;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::time::Instant;

use super::{ANY_MODE, BUSY, Entered, FREE, Object, STATE_BITS, Slot, enter, enter_single, slot_of};
use crate::abi::Status;
use crate::error::Failure;

/// Maximum time that a thread waits for the call of another thread that it has asked to end: longer than an engine needs to stop.
const MAX_CLAIM: Duration = Duration::from_secs(10);
/// Pause between two attempts to enter such an object.
const CLAIM_PAUSE: Duration = Duration::from_micros(200);

/// Object with which a thread waits.
#[derive(Clone, Copy)]
struct Watched {
    slot: &'static Slot,
    generation: u64,
}

/// Purpose for which another thread claims an object.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    Close,
    Use,
}

impl Watched {
    /// Returns the claim of another thread to the object.
    #[inline]
    fn claim(self) -> Option<Claim> {
        let state = self.slot.state.load(Ordering::Relaxed);
        if self.slot.closing.load(Ordering::Relaxed) == self.generation
            || state >> STATE_BITS != self.generation
            || state & ((1 << STATE_BITS) - 1) == FREE
        {
            return Some(Claim::Close);
        }
        // A call that needs another mode is refused, and ends no wait.
        let of_mode =
            |mode: usize| self.slot.claims.get(mode).map_or(0, |count| count.load(Ordering::Relaxed));
        (of_mode(ANY_MODE) > 0 || of_mode(self.slot.mode()) > 0).then_some(Claim::Use)
    }
}

/// Handle of no object.
pub(crate) const NO_HANDLE: u64 = 0;

thread_local! {
    /// Object with which this thread waits.
    static WATCHED: Cell<Option<Watched>> = const { Cell::new(None) };
}

/// Records that this thread waits with the object of a handle; [`NO_HANDLE`]: that its wait has ended.
pub(crate) fn watch(handle: u64) {
    let object = if handle == NO_HANDLE { None } else { slot_of(handle) };
    WATCHED.set(object.map(|(slot, generation)| Watched { slot, generation }));
}

/// Returns the claim of another thread to the object with which this thread waits.
pub(crate) fn claim() -> Option<Claim> {
    WATCHED.get().and_then(Watched::claim)
}

/// As [`enter_single`]. If another thread waits with the object, its wait ends first.
///
/// # Errors
/// As [`enter`]: [`Status::Concurrent`] if this thread waits with the object, in a signal handler, or if the call of the other thread does not
/// end.
pub(super) fn enter_claimed<T: Object>(handle: u64, claim: Claim) -> Result<Entered, Status> {
    match enter_single::<T>(handle) {
        Err(Status::Concurrent) => enter_contended(handle, claim, ANY_MODE)?.ok_or(Status::Concurrent),
        result => result,
    }
}

/// Returns `None` if the object is in another mode than `mode`: the wait of the other thread continues.
#[cold]
fn enter_contended(handle: u64, claim: Claim, mode: usize) -> Result<Option<Entered>, Status> {
    let (slot, generation) = slot_of(handle).ok_or(Status::Handle)?;
    if WATCHED.get().is_some_and(|watched| core::ptr::eq(watched.slot, slot)) {
        return Err(Status::Concurrent);
    }
    let began = Instant::now();
    let claims = slot.claims.get(mode).ok_or(Status::Internal)?;
    match claim {
        Claim::Close => slot.closing.store(generation, Ordering::Relaxed),
        Claim::Use => _ = claims.fetch_add(1, Ordering::Relaxed),
    }
    let entered = loop {
        match enter(handle) {
            Err(Status::Concurrent) => {
                // Acquires the mode that the thread which uses the object found or set.
                let is_busy = slot.state.load(Ordering::Acquire) == generation << STATE_BITS | BUSY;
                if is_busy && mode != ANY_MODE && slot.mode() != mode {
                    break Ok(None);
                }
                if began.elapsed() >= MAX_CLAIM {
                    break Err(Status::Concurrent);
                }
                std::thread::sleep(CLAIM_PAUSE);
            }
            result => break result.map(Some),
        }
    };
    match claim {
        Claim::Use => _ = claims.fetch_sub(1, Ordering::Relaxed),
        Claim::Close if entered.is_err() => {
            let _ = slot.closing.compare_exchange(generation, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        Claim::Close => {}
    }
    entered
}

/// As [`with`], for calls that end what other threads wait for: their waits end.
///
/// # Errors
/// As [`enter_claimed`], and those of `body`.
pub(crate) fn with_claimed<T: Object, R>(
    handle: u64,
    body: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut entered = enter_claimed::<T>(handle, Claim::Use)?;
    body(entered.get::<T>()?)
}

/// As [`with_claimed`], for calls that are possible in `mode` only: in another mode, the waits of other threads continue, and `refused` has
/// the error.
///
/// # Errors
/// As [`with_claimed`].
pub(crate) fn with_claimed_in<T: Object, R>(
    handle: u64,
    mode: usize,
    refused: impl FnOnce() -> Failure,
    body: impl FnOnce(&mut T) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let entered = match enter_single::<T>(handle) {
        Err(Status::Concurrent) => enter_contended(handle, Claim::Use, mode)?,
        result => Some(result?),
    };
    match entered {
        Some(mut entered) => body(entered.get::<T>()?),
        None => Err(refused()),
    }
}
