//! What rings need beyond words: whole descriptors in as few stores as the machine permits, and hints to its caches.
//!
//! When the other side polls the same cache lines, the number of stores and the waits for lines are what a submission
//! costs.

use super::SharedSlice;
use crate::MemoryError;

/// Bytes of a descriptor of the XDMA engines. PG195, table "Descriptor Format".
const DESCRIPTOR: usize = 32;

/// Bytes of a cache line. Where lines are longer, hints are repeated, which is harmless.
const LINE: usize = 64;

impl SharedSlice<'_> {
    /// Stores 32 bytes (one XDMA descriptor) as four 64-bit words, each little endian in memory: as two 16-byte
    /// stores if the address is a multiple of 16 and the machine has such stores, else word by word. Each 8-byte word
    /// arrives whole; the words may become visible in any order: publish them with a barrier.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::Misaligned`] if the address is not a multiple of 8.
    #[inline]
    pub fn store_descriptor(&self, offset: usize, words: [u64; 4]) -> Result<(), MemoryError> {
        let place = self.range(offset, DESCRIPTOR)?;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if place.as_ptr().addr().is_multiple_of(16) {
            let [a, b, c, d] = words;
            // The words come in general registers: out of memory, where the caller may have just put them one by one,
            // a load of 16 bytes would wait until they have arrived there.
            // SAFETY: 32 bytes of shared memory (range check above) at a multiple of 16, which movaps needs. The
            // assembly stands for relaxed atomic stores of their bytes, see the `copy` module; atomics may be written
            // through a shared reference.
            unsafe {
                core::arch::asm!(
                    "movq {low}, {a}",
                    "movq {t}, {b}",
                    "punpcklqdq {low}, {t}",
                    "movq {high}, {c}",
                    "movq {t}, {d}",
                    "punpcklqdq {high}, {t}",
                    "movaps [{at}], {low}",
                    "movaps [{at} + 16], {high}",
                    at = in(reg) place.as_ptr(),
                    a = in(reg) a, b = in(reg) b, c = in(reg) c, d = in(reg) d,
                    low = out(xmm_reg) _, high = out(xmm_reg) _, t = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
            }
            return Ok(());
        }
        if !place.as_ptr().cast::<u64>().is_aligned() {
            return Err(MemoryError::Misaligned { offset, alignment: 8 });
        }
        for (index, word) in words.into_iter().enumerate() {
            self.store_u64(offset + index * 8, word)?;
        }
        Ok(())
    }

    /// Asks for the cache lines of `length` bytes from `offset` on with the right to write, so that stores that
    /// follow do not wait for whoever has them. A hint: it changes nothing, and what is out of range is ignored.
    #[inline]
    pub fn prefetch_write(&self, offset: usize, length: usize) {
        self.lines(offset, length, |line| {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch accesses no memory as far as the program can tell and never faults. Processors
            // without the instruction's effect (before 2014) execute it as nothing.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = line;
        });
    }

    /// As [`prefetch_write`](Self::prefetch_write), for loads.
    #[inline]
    pub fn prefetch_read(&self, offset: usize, length: usize) {
        self.lines(offset, length, |line| {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as in `prefetch_write`.
            unsafe {
                core::arch::asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
            }
            #[cfg(not(target_arch = "x86_64"))]
            let _ = line;
        });
    }

    /// Calls `each` with an address in every cache line of the part of this range that exists.
    #[inline]
    pub(in crate::memory) fn lines(&self, offset: usize, length: usize, each: impl Fn(*const u8)) {
        let start = self.as_mut_ptr().cast_const();
        let end = offset.saturating_add(length).min(self.len());
        let mut at = offset;
        while at < end {
            let address = start.wrapping_add(at);
            each(address);
            // To the start of the next line: the first step may be short.
            at += LINE - address.addr() % LINE;
        }
    }
}
