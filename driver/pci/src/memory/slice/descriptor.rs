//! Accesses for rings: whole descriptors in as few stores as the machine permits, and cache hints.
//!
//! When the other side polls the same cache lines, the cost of a submission is the number of stores and the waits for lines.

use super::SharedSlice;
use crate::MemoryError;

/// Length in bytes of a descriptor of the XDMA engines. PG195, table "Descriptor Format".
const DESCRIPTOR: usize = 32;

/// Length in bytes of a cache line. On machines with longer lines, hints are repeated, which is harmless.
const LINE: usize = 64;

impl SharedSlice<'_> {
    /// Stores 32 bytes (one XDMA descriptor) as four 64-bit words, each little endian in memory: as two 16-byte stores if the address is a
    /// multiple of 16 and the machine has such stores, else word by word. Each 8-byte word is atomic; the words may become visible in any
    /// order: publish them with a barrier.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::Misaligned`] if the address is not a multiple of 8.
    #[inline]
    pub fn store_descriptor(&self, offset: usize, words: [u64; 4]) -> Result<(), MemoryError> {
        let place = self.range(offset, DESCRIPTOR)?;
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if place.as_ptr().addr().is_multiple_of(16) {
            let [a, b, c, d] = words;
            // The words are passed in general registers. The caller may have just stored them one by one: a load of 16 bytes from memory
            // would wait until those stores have completed.
            // SAFETY: 32 bytes of shared memory (range check above) at a multiple of 16, which movaps needs. The assembly is equivalent to
            // relaxed atomic stores of their bytes, see the `copy` module; atomics may be written through a shared reference.
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

    /// Prefetches the cache lines of `length` bytes from `offset` on for writing, so that later stores do not wait for the current owner of
    /// the lines. A hint: it changes nothing, and a range outside the memory is ignored.
    #[inline]
    pub fn prefetch_write(&self, offset: usize, length: usize) {
        self.lines(offset, length, |line| {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch accesses no memory as far as the program can observe and never faults. Processors without the
            // instruction's effect (before 2014) execute it as a no-op.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
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
            // To the start of the next line: the first step may be shorter.
            at += LINE - address.addr() % LINE;
        }
    }
}
