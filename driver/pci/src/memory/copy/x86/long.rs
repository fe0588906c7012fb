//! Routines for more than [`INLINE`] bytes. One of them copies all lengths through the caches; for data beyond the caches the fastest one
//! of this machine is chosen by measuring (module `choice`).

use core::arch::asm;

use crate::memory::copy::CopyRoutine;

/// Maximum length in bytes of copies that are made in the caller's code, and not here.
pub(super) const INLINE: usize = 128;

/// Prefetch distance of a streaming copy in bytes: far enough for memory, near enough for the smallest first-level caches, and one page,
/// because the hardware prefetcher stops at page boundaries.
pub(super) const PREFETCH_DISTANCE: isize = 4096;

/// Copies with `routine`, or with SSE2 if this machine lacks its instructions. Streaming routines prefetch data `ahead` bytes after the
/// data that they copy; their stores need a fence.
///
/// # Safety
/// As [`copy`](super::copy), for more than [`INLINE`] bytes.
#[inline]
pub(super) unsafe fn copy_with(
    routine: CopyRoutine,
    to: *mut u8,
    from: *const u8,
    length: usize,
    ahead: isize,
) {
    debug_assert!(length > INLINE);
    // SAFETY: the caller's promise is passed on; the machine has the instructions.
    unsafe {
        match routine {
            _ if !routine.is_available() => sse2(to, from, length),
            CopyRoutine::Words | CopyRoutine::Sse2 => sse2(to, from, length),
            CopyRoutine::RepMovsb => rep_movsb(to, from, length),
            CopyRoutine::Avx2 => avx2(to, from, length),
            CopyRoutine::Avx512 => avx512(to, from, length),
            CopyRoutine::Avx2Streaming => avx2_streaming(to, from, length, ahead),
            CopyRoutine::Avx512Streaming => avx512_streaming(to, from, length, ahead),
        }
    }
}

/// Body of the copies with wide registers: 64 bytes up to the first 64-byte boundary of the destination (none if it begins there), then
/// rounds of 128 bytes, then the last 128 bytes, which overlap the last round.
macro_rules! wide_copy {
    ($(#[$doc:meta])* $name:ident, head: $head:expr, load: $load:expr, store: $store:expr, last: $last:expr
     $(, $ahead:ident: $prefetch:literal)?) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As [`copy`](super::copy), for more than [`INLINE`] bytes, on a machine with the instructions of its name.
        unsafe fn $name(to: *mut u8, from: *const u8, length: usize $(, $ahead: isize)?) {
            // SAFETY: the first accesses reach 64 bytes far, the rounds begin no later than at `length - 128` (rdx
            // is there, in the destination) and reach 128 bytes far, the last accesses begin at `length - 128`: all inside
            // `length`, which is more than 128. Every register that is changed is named or clobbered.
            unsafe {
                asm!(
                    "lea rdx, [rdi + rcx - 128]",
                    "lea rcx, [rsi + rcx - 128]",
                    "mov rax, rdi",
                    "neg rax",
                    "and rax, 63",
                    "jz 2f",
                    $head,
                    "add rdi, rax",
                    "add rsi, rax",
                    "cmp rdi, rdx",
                    "ja 3f",
                    ".p2align 5",
                    "2:",
                    $($prefetch,)?
                    $load,
                    $store,
                    "sub rsi, -128",
                    "sub rdi, -128",
                    "cmp rdi, rdx",
                    "jbe 2b",
                    // Nothing remains if the destination ends at a 64-byte boundary. Ordinary stores to a line whose streaming stores are in
                    // progress would fetch it.
                    "lea rax, [rdx + 128]",
                    "cmp rdi, rax",
                    "je 4f",
                    "3:",
                    $last,
                    "4:",
                    // Dirty upper halves of the wide registers would slow down later code.
                    "vzeroupper",
                    inout("rdi") to => _,
                    inout("rsi") from => _,
                    inout("rcx") length => _,
                    out("rdx") _,
                    out("rax") _,
                    $(inout("r8") $ahead => _,)?
                    clobber_abi("sysv64"),
                    options(nostack)
                );
            }
        }
    };
}

/// 64 bytes with two registers.
macro_rules! avx2_head {
    () => {
        "vmovups ymm0, [rsi]\nvmovups ymm1, [rsi + 32]\nvmovups [rdi], ymm0\nvmovups [rdi + 32], ymm1"
    };
}
/// Loads of a round.
macro_rules! avx2_load {
    ($from:literal) => {
        concat!(
            "vmovups ymm0, [",
            $from,
            "]\nvmovups ymm1, [",
            $from,
            " + 32]\n",
            "vmovups ymm2, [",
            $from,
            " + 64]\nvmovups ymm3, [",
            $from,
            " + 96]"
        )
    };
}
/// Stores of a round.
macro_rules! avx2_store {
    ($store:literal, $to:literal) => {
        concat!(
            $store,
            " [",
            $to,
            "], ymm0\n",
            $store,
            " [",
            $to,
            " + 32], ymm1\n",
            $store,
            " [",
            $to,
            " + 64], ymm2\n",
            $store,
            " [",
            $to,
            " + 96], ymm3"
        )
    };
}
/// As `avx2_load`, with registers of 64 bytes.
macro_rules! avx512_load {
    ($from:literal) => {
        concat!("vmovups zmm0, [", $from, "]\nvmovups zmm1, [", $from, " + 64]")
    };
}
/// As `avx2_store`, with registers of 64 bytes.
macro_rules! avx512_store {
    ($store:literal, $to:literal) => {
        concat!($store, " [", $to, "], zmm0\n", $store, " [", $to, " + 64], zmm1")
    };
}

wide_copy! {
    /// Copy through the caches.
    avx2,
    head: avx2_head!(),
    load: avx2_load!("rsi"),
    store: avx2_store!("vmovaps", "rdi"),
    last: concat!(avx2_load!("rcx"), "\n", avx2_store!("vmovups", "rdx"))
}
wide_copy! {
    /// Copy with stores that bypass the caches, so that the destination's lines are not fetched first. Only loads then use the caches, and
    /// prefetching pays: for data `ahead` bytes further on (a prefetch accesses nothing and never faults). The stores are not ordered.
    avx2_streaming,
    head: avx2_head!(),
    load: avx2_load!("rsi"),
    store: avx2_store!("vmovntps", "rdi"),
    last: concat!(avx2_load!("rcx"), "\n", avx2_store!("vmovups", "rdx")),
    ahead: "prefetcht0 [rsi + r8]\nprefetcht0 [rsi + r8 + 64]"
}
wide_copy! {
    /// Copy through the caches.
    avx512,
    head: "vmovups zmm0, [rsi]\nvmovups [rdi], zmm0",
    load: avx512_load!("rsi"),
    store: avx512_store!("vmovaps", "rdi"),
    last: concat!(avx512_load!("rcx"), "\n", avx512_store!("vmovups", "rdx"))
}
wide_copy! {
    /// As [`avx2_streaming`]. Each store fills a whole cache line, which therefore needs no write-combining buffer for long.
    avx512_streaming,
    head: "vmovups zmm0, [rsi]\nvmovups [rdi], zmm0",
    load: avx512_load!("rsi"),
    store: avx512_store!("vmovntps", "rdi"),
    last: concat!(avx512_load!("rcx"), "\n", avx512_store!("vmovups", "rdx")),
    ahead: "prefetcht0 [rsi + r8]\nprefetcht0 [rsi + r8 + 64]"
}

/// Copy by microcode.
///
/// # Safety
/// As [`copy`](super::copy), for any length.
unsafe fn rep_movsb(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: copies rcx bytes from rsi to rdi, upwards (the direction flag is clear on entry to assembly).
    unsafe {
        asm!(
            "rep movsb",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") length => _,
            options(nostack, preserves_flags)
        );
    }
}

/// Copy for machines without AVX2.
///
/// # Safety
/// As [`copy`](super::copy), for more than [`INLINE`] bytes.
pub(super) unsafe fn sse2(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: rounds of 64 bytes begin before `length - 64` (rdx is there, in the destination), the last one at
    // `length - 64`: all inside `length`, which is more than 128. Every register that is changed is named or
    // clobbered.
    unsafe {
        asm!(
            "lea rdx, [rdi + rcx - 64]",
            "lea rcx, [rsi + rcx - 64]",
            "2:",
            "movups xmm0, [rsi]",
            "movups xmm1, [rsi + 16]",
            "movups xmm2, [rsi + 32]",
            "movups xmm3, [rsi + 48]",
            "movups [rdi], xmm0",
            "movups [rdi + 16], xmm1",
            "movups [rdi + 32], xmm2",
            "movups [rdi + 48], xmm3",
            "add rsi, 64",
            "add rdi, 64",
            "cmp rdi, rdx",
            "jb 2b",
            "movups xmm0, [rcx]",
            "movups xmm1, [rcx + 16]",
            "movups xmm2, [rcx + 32]",
            "movups xmm3, [rcx + 48]",
            "movups [rdx], xmm0",
            "movups [rdx + 16], xmm1",
            "movups [rdx + 32], xmm2",
            "movups [rdx + 48], xmm3",
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") length => _,
            out("rdx") _,
            clobber_abi("sysv64"),
            options(nostack)
        );
    }
}
