//! Copies for x86-64 in inline assembly.
//!
//! # Why the assembly is sound
//!
//! To the compiler a block of assembly is a black box that may do anything that Rust code could do with its operands. These blocks are
//! equivalent to a loop of relaxed loads or stores of the `AtomicU8`s of shared memory and of plain accesses to memory that is borrowed
//! here: defined behaviour under any concurrent change of the shared bytes. The machine guarantees this, because no access, of any width
//! and alignment, splits a byte. None of the blocks is marked `nomem`, `readonly` or `pure`: the compiler neither drops, joins nor moves
//! memory accesses across them.
//!
//! # Its limits
//!
//! * Ordinary write-back cached memory only: on device memory (a BAR) wide and repeated accesses have effects.
//! * Bytes in the middle of a block may be loaded and stored twice (the last access overlaps the one before), and words of a longer copy
//!   may be torn. Callers that need a whole word use a word access, or a copy of exactly 4 or 8 bytes.
//! * Streaming stores are not ordered like other stores; a fence behind them restores the order before a copy returns.
//!
//! # Choice of instructions
//!
//! Up to [`INLINE`] bytes: 16-byte accesses in the caller's code, all loads before all stores, no loop. Above: 32-byte accesses (AVX2),
//! four per round with aligned stores, else 16-byte ones. Other routines were faster in some caches of one processor and slower elsewhere:
//! AVX-512 (+ 47 % for 512 bytes in the first-level cache, nothing in the second), `rep movsb` (+ 8 % for 64 KiB in the second-level cache,
//! - 65 % for 512 bytes in the first), prefetching ahead of ordinary stores (+ 20 % on one processor, - 20 % on another).
//!
//! Streaming stores are faster for data that is no longer in the caches when it is used, and slower otherwise. A single copy streams from
//! [`STREAM_STORE_MIN`] bytes on (out of shared memory: from [`STREAM_LOAD_MIN`] on); below that the caller decides ([`load_with`],
//! [`store_with`]). Each fence waits for the stores before it, which takes half as long as copying a page. Streaming of pages therefore
//! pays only with one fence for many copies (4 KiB out of 32 MiB: 25 GB/s; with a fence each 16, through the caches 13 to 20 on the same
//! machine). Which routine is the fastest beyond the caches depends on the processor: [`CopyRoutines`].

mod long;

use core::arch::asm;
use core::sync::atomic::AtomicU8;

use super::{CopyRoutine, CopyRoutines};
use long::{INLINE, PREFETCH_DISTANCE, copy_with};

/// Minimum length in bytes of copies whose stores bypass the caches. From this length on, source and destination together are larger than
/// most second-level caches. It is faster where whole working sets exceed the caches (by 1 to 25 % for 16 MiB, depending on page size, by
/// 40 % for 64 MiB) and costs up to half where buffers of that size are used again at once.
const STREAM_STORE_MIN: usize = 1 << 20;

/// Minimum length of streaming copies out of shared memory. The program reads the copied data, so smaller copies belong in the caches.
const STREAM_LOAD_MIN: usize = 8 << 20;

#[inline]
pub(super) fn load(from: &[AtomicU8], into: &mut [u8]) {
    let length = from.len().min(into.len());
    // SAFETY: both slices have `length` bytes; `into` is borrowed exclusively, so they do not overlap.
    unsafe { copy(into.as_mut_ptr(), from.as_ptr().cast(), length, STREAM_LOAD_MIN) };
}

#[inline]
pub(super) fn store(into: &[AtomicU8], from: &[u8]) {
    let length = from.len().min(into.len());
    // SAFETY: both slices have `length` bytes; atomics may be written through a shared reference. They do not overlap: while `from` is
    // borrowed it is not written, see `SharedSlice::from_raw`.
    unsafe { copy(into.as_ptr().cast_mut().cast(), from.as_ptr(), length, STREAM_STORE_MIN) };
}

#[inline]
pub(super) fn between(into: &[AtomicU8], from: &[AtomicU8]) {
    let length = from.len().min(into.len());
    // SAFETY: both slices have `length` bytes; atomics may be written through a shared reference. If the slices overlap, the result is
    // unspecified but made of their bytes.
    unsafe { copy(into.as_ptr().cast_mut().cast(), from.as_ptr().cast(), length, STREAM_STORE_MIN) };
}

/// As [`load`], with `routine`; `next` is the data that will be loaded after it. After a streaming routine, [`fence`] must follow before any
/// other thread may see `into`.
#[inline]
pub(super) fn load_with(routine: CopyRoutine, from: &[AtomicU8], into: &mut [u8], next: Option<&[AtomicU8]>) {
    let length = from.len().min(into.len());
    // SAFETY: as in `load`.
    unsafe {
        stream(
            routine,
            into.as_mut_ptr(),
            from.as_ptr().cast(),
            length,
            next.map(|next| next.as_ptr().cast()),
        )
    };
}

/// As [`store`], with `routine`; `next` is the data that will be stored after it. After a streaming routine, others see the bytes in any
/// order, and all of them once [`fence`] was called.
#[inline]
pub(super) fn store_with(routine: CopyRoutine, into: &[AtomicU8], from: &[u8], next: Option<&[u8]>) {
    let length = from.len().min(into.len());
    // SAFETY: as in `store`.
    unsafe {
        stream(routine, into.as_ptr().cast_mut().cast(), from.as_ptr(), length, next.map(<[u8]>::as_ptr))
    };
}

/// Orders streaming stores before all later stores.
#[inline]
pub(super) fn fence() {
    // SAFETY: an instruction without operands, part of SSE, which x86-64 always has.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) };
}

#[inline]
pub(super) fn fill(into: &[AtomicU8], value: u8) {
    // SAFETY: the slice has as many bytes, and atomics may be written through a shared reference.
    unsafe { set(into.as_ptr().cast_mut().cast(), into.len(), value) };
}

/// # Safety
/// `length` bytes at `from` are readable and at `to` writable, each side either shared memory (atomics) or borrowed here. From
/// `stream_from` bytes on the copy bypasses the caches.
#[inline]
unsafe fn copy(to: *mut u8, from: *const u8, length: usize, stream_from: usize) {
    if length > INLINE {
        // SAFETY: more than INLINE bytes, as the function needs; the rest is the caller's promise.
        unsafe { long(to, from, length, stream_from) };
    } else if length > 64 {
        // SAFETY: eight accesses of 16 bytes, from both ends, inside 65 to 128 bytes.
        unsafe {
            asm!(
                "movups {a}, [{f}]",
                "movups {b}, [{f} + 16]",
                "movups {c}, [{f} + 32]",
                "movups {d}, [{f} + 48]",
                "movups {e}, [{f} + {n} - 64]",
                "movups {g}, [{f} + {n} - 48]",
                "movups {h}, [{f} + {n} - 32]",
                "movups {i}, [{f} + {n} - 16]",
                "movups [{t}], {a}",
                "movups [{t} + 16], {b}",
                "movups [{t} + 32], {c}",
                "movups [{t} + 48], {d}",
                "movups [{t} + {n} - 64], {e}",
                "movups [{t} + {n} - 48], {g}",
                "movups [{t} + {n} - 32], {h}",
                "movups [{t} + {n} - 16], {i}",
                t = in(reg) to, f = in(reg) from, n = in(reg) length,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                e = out(xmm_reg) _, g = out(xmm_reg) _, h = out(xmm_reg) _, i = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if length > 32 {
        // SAFETY: four accesses of 16 bytes, from both ends, inside 33 to 64 bytes.
        unsafe {
            asm!(
                "movups {a}, [{f}]",
                "movups {b}, [{f} + 16]",
                "movups {c}, [{f} + {n} - 32]",
                "movups {d}, [{f} + {n} - 16]",
                "movups [{t}], {a}",
                "movups [{t} + 16], {b}",
                "movups [{t} + {n} - 32], {c}",
                "movups [{t} + {n} - 16], {d}",
                t = in(reg) to, f = in(reg) from, n = in(reg) length,
                a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else if length >= 16 {
        // SAFETY: two accesses of 16 bytes, from both ends, inside 16 to 32 bytes.
        unsafe {
            asm!(
                "movups {a}, [{f}]",
                "movups {b}, [{f} + {n} - 16]",
                "movups [{t}], {a}",
                "movups [{t} + {n} - 16], {b}",
                t = in(reg) to, f = in(reg) from, n = in(reg) length,
                a = out(xmm_reg) _, b = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
    } else {
        // SAFETY: fewer than 16 bytes, as the function needs; the rest is the caller's promise.
        unsafe { short(to, from, length) };
    }
}

/// Copies fewer than 16 bytes. Exactly 4 and 8 bytes are one access.
///
/// # Safety
/// As [`copy`], for fewer than 16 bytes.
#[inline]
unsafe fn short(to: *mut u8, from: *const u8, length: usize) {
    /// One load and one store, or two of each from both ends.
    macro_rules! ends {
        ($size:literal, $width:literal) => {
            if length == $size {
                // SAFETY: as many bytes on both sides.
                unsafe {
                    asm!(
                        concat!("mov {a:", $width, "}, [{f}]"),
                        concat!("mov [{t}], {a:", $width, "}"),
                        t = in(reg) to, f = in(reg) from, a = out(reg) _,
                        options(nostack, preserves_flags)
                    );
                }
                return;
            } else if length > $size {
                // SAFETY: more bytes than that on both sides, and fewer than twice as many.
                unsafe {
                    asm!(
                        concat!("mov {a:", $width, "}, [{f}]"),
                        concat!("mov {b:", $width, "}, [{f} + {n} - ", $size, "]"),
                        concat!("mov [{t}], {a:", $width, "}"),
                        concat!("mov [{t} + {n} - ", $size, "], {b:", $width, "}"),
                        t = in(reg) to, f = in(reg) from, n = in(reg) length,
                        a = out(reg) _, b = out(reg) _,
                        options(nostack, preserves_flags)
                    );
                }
                return;
            }
        };
    }
    ends!(8, "r");
    ends!(4, "e");
    ends!(2, "x");
    if length == 1 {
        // SAFETY: one byte on both sides.
        unsafe {
            asm!(
                "mov {a}, [{f}]",
                "mov [{t}], {a}",
                t = in(reg) to, f = in(reg) from, a = out(reg_byte) _,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Copies more than [`INLINE`] bytes.
///
/// # Safety
/// As [`copy`], for more than [`INLINE`] bytes.
#[inline(never)]
unsafe fn long(to: *mut u8, from: *const u8, length: usize, stream_from: usize) {
    if length < stream_from {
        // SAFETY: the caller's promise is passed on.
        return unsafe { copy_with(CopyRoutine::Avx2, to, from, length, 0) };
    }
    let routine = CopyRoutines::if_measured(length).unwrap_or(CopyRoutine::Avx2Streaming);
    // SAFETY: the caller's promise is passed on.
    unsafe { copy_with(routine, to, from, length, PREFETCH_DISTANCE) };
    fence();
}

/// Copies with `routine`. Without a fence.
///
/// # Safety
/// As [`copy`], for any length; `next` is not accessed.
#[inline]
unsafe fn stream(routine: CopyRoutine, to: *mut u8, from: *const u8, length: usize, next: Option<*const u8>) {
    if length <= INLINE {
        // SAFETY: the caller's promise is passed on.
        return unsafe { copy(to, from, length, STREAM_STORE_MIN) };
    }
    // A copy of more than two pages prefetches its own source.
    let ahead = match next {
        _ if length >= 2 * PREFETCH_DISTANCE.unsigned_abs() => PREFETCH_DISTANCE,
        Some(next) => next.addr().wrapping_sub(from.addr()).cast_signed(),
        None => 0,
    };
    // SAFETY: the caller's promise is passed on.
    unsafe { copy_with(routine, to, from, length, ahead) };
}

/// # Safety
/// `length` bytes at `to` are writable shared memory.
#[inline]
unsafe fn set(to: *mut u8, length: usize, value: u8) {
    let pattern = u64::from_ne_bytes([value; 8]);
    if length >= 64 {
        // SAFETY: the requirements of the function.
        unsafe { set_long(to, length, pattern) };
        return;
    }
    // Chunks of at most 8 bytes: not optimised further, because fills are large or rare.
    let mut at = 0;
    while at < length {
        let part = (length - at).min(8);
        // SAFETY: `part` bytes from `at` on are inside `length`; the pattern has 8.
        unsafe { short(to.add(at), (&raw const pattern).cast(), part) };
        at += part;
    }
}

/// # Safety
/// As [`set`], for at least 64 bytes.
#[inline(never)]
unsafe fn set_long(to: *mut u8, length: usize, pattern: u64) {
    // SAFETY: the first stores reach 64 bytes far; rounds from the next 16-byte boundary on begin before `length -
    // 64` (rdx is there); the last stores begin at `length - 64`: all inside `length`, which is at least 64.
    unsafe {
        asm!(
            "movq xmm0, rax",
            "punpcklqdq xmm0, xmm0",
            "lea rdx, [rdi + rcx - 64]",
            "movups [rdi], xmm0",
            "add rdi, 16",
            "and rdi, -16",
            "cmp rdi, rdx",
            "jae 3f",
            ".p2align 5",
            "2:",
            "movaps [rdi], xmm0",
            "movaps [rdi + 16], xmm0",
            "movaps [rdi + 32], xmm0",
            "movaps [rdi + 48], xmm0",
            "add rdi, 64",
            "cmp rdi, rdx",
            "jb 2b",
            "3:",
            "movups [rdx], xmm0",
            "movups [rdx + 16], xmm0",
            "movups [rdx + 32], xmm0",
            "movups [rdx + 48], xmm0",
            inout("rdi") to => _,
            inout("rcx") length => _,
            inout("rax") pattern => _,
            out("rdx") _,
            clobber_abi("sysv64"),
            options(nostack)
        );
    }
}
