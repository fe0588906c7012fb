//! Memory barriers, named after what they order and why.
//!
//! Rust's fences order accesses between *threads*: on aarch64 they become `dmb ish`, which covers the inner shareable domain only, while a
//! device is in the outer one. A fence also does not order the volatile store that rings a doorbell. Each of these functions is therefore a
//! full compiler barrier plus the instruction that the machine needs:
//!
//! | | x86-64 | aarch64 | other |
//! |---|---|---|---|
//! | stores before a doorbell | none: stores stay in order (TSO), uncached stores too | `dmb oshst` | sequentially consistent fence |
//! | loads after a status load | none: loads stay in order | `dmb oshld` | sequentially consistent fence |
//! | write-combined stores before a doorbell | `sfence` | `dmb oshst` | sequentially consistent fence |

#[cfg(target_arch = "x86_64")]
use core::sync::atomic::{Ordering, compiler_fence};

/// Orders descriptors (and payload) in host memory before the register write that notifies the device of them.
///
/// Without it the device may be notified first and fetch the old descriptor.
#[inline]
pub fn descriptor_before_doorbell() {
    stores_before_stores();
}

/// Orders the read of a write-back (completed count, status word, event sequence) before the data that it announces.
///
/// Call it after the load that saw the completion. Otherwise stale data may have been loaded before it.
#[inline]
pub fn writeback_before_data() {
    loads_before_loads();
}

/// Orders a register read (such as an interrupt status) before loads from memory that the device wrote earlier.
///
/// The completion of the read has pushed those writes to memory; loads must not be executed ahead of it.
#[inline]
pub fn register_before_memory() {
    loads_before_loads();
}

#[inline]
fn stores_before_stores() {
    // Not `nomem`: the possible memory access of the assembly stops the compiler from moving accesses across it.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction: no operands, no stack, flags unchanged; it only adds order.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(Ordering::SeqCst);
}

#[inline]
fn loads_before_loads() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier instruction: no operands, no stack, flags unchanged; it only adds order.
    unsafe {
        core::arch::asm!("dmb oshld", options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "x86_64")]
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
    core::sync::atomic::fence(Ordering::SeqCst);
}
