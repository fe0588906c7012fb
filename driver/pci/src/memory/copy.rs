//! Copies between memory that others may change at any time and private memory of this program.
//!
//! In Rust's terms each of these functions makes one relaxed atomic access per *byte* of shared memory, in no particular order. Soundness
//! depends on this guarantee alone: during a concurrent change by another thread, process or device, each byte that arrives is one that was
//! there at some time. The machine guarantees more:
//!
//! * a copy of exactly 4 or 8 bytes to (or from) an address that is a multiple of its length is a single access;
//! * accesses are as wide as the machine permits. Compiler-generated code is not used on x86-64 (module `x86`): a compiler has atomic words
//!   of at most 8 bytes, and neither joins nor unrolls them.
//!
//! Elsewhere the copies are made of atomic words of 8 bytes (module `words`).

use core::sync::atomic::AtomicU8;

pub use choice::{CopyRoutines, MeasuredRoutine, RoutineTable};
pub use limit::CopyLimit;
pub use routine::{CopyRoutine, PageKind, UnknownRoutine};

mod choice;
mod limit;
mod routine;
#[cfg(any(test, miri, not(target_arch = "x86_64")))]
mod words;
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86;

#[cfg(any(miri, not(target_arch = "x86_64")))]
use words as machine;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use x86 as machine;

/// Copies `from` to `into`, up to the length of the shorter one.
#[inline]
pub(super) fn load(from: &[AtomicU8], into: &mut [u8]) {
    machine::load(from, into);
}

/// Copies `from` to `into`, up to the length of the shorter one.
#[inline]
pub(super) fn store(into: &[AtomicU8], from: &[u8]) {
    machine::store(into, from);
}

/// Copies `from` to `into`, up to the length of the shorter one. Where they overlap, the result is unspecified.
#[inline]
pub(super) fn between(into: &[AtomicU8], from: &[AtomicU8]) {
    machine::between(into, from);
}

/// As [`load`], with `routine`. `next` is the data that will be loaded after it. If the routine streams, [`fence`] must follow before any
/// other thread may see `into`.
#[inline]
pub(super) fn load_with(routine: CopyRoutine, from: &[AtomicU8], into: &mut [u8], next: Option<&[AtomicU8]>) {
    machine::load_with(routine, from, into, next);
}

/// As [`store`], with `routine`. `next` is the data that will be stored after it. If the routine streams, others see the bytes in any order,
/// and all of them once [`fence`] was called.
#[inline]
pub(super) fn store_with(routine: CopyRoutine, into: &[AtomicU8], from: &[u8], next: Option<&[u8]>) {
    machine::store_with(routine, into, from, next);
}

/// Ends a series of streaming copies: orders them before all later stores of this thread.
#[inline]
pub(super) fn fence() {
    machine::fence();
}

/// Sets every byte of `into`.
#[inline]
pub(super) fn fill(into: &[AtomicU8], value: u8) {
    machine::fill(into, value);
}

#[cfg(test)]
mod tests;
