//! Checked view into shared memory: every access to such memory in this package is made here.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use super::copy;
use crate::MemoryError;

mod descriptor;

/// Maximum length in bytes of the parts of [`SharedSlice::read_chunks`] and [`SharedSlice::write_chunks`].
pub const CHUNK: usize = 4096;

/// Borrowed part of a [`SharedMemory`](crate::SharedMemory), a [`DmaBuffer`](crate::DmaBuffer) or a
/// [`RegisteredMemory`](crate::RegisteredMemory): copies and atomic words, never a `&[u8]`.
///
/// Word accesses need offsets that make the *address* a multiple of the word; views start on cache lines or pages unless they were narrowed
/// to an odd offset.
#[derive(Clone, Copy, Default)]
pub struct SharedSlice<'a>(&'a [AtomicU8]);

impl fmt::Debug for SharedSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlice").field("len", &format_args!("{:#x}", self.0.len())).finish()
    }
}

impl<'a> SharedSlice<'a> {
    /// # Safety
    /// `length` initialised bytes at `start` are mapped readable and writable for all of `'a`. The only references to them are made from
    /// atomics, except to parts that this view is not used on meanwhile.
    #[inline]
    pub(crate) unsafe fn from_raw(start: *mut u8, length: usize) -> Self {
        // SAFETY: the caller vouches for the memory; AtomicU8 has the layout of u8 and permits changes by others.
        Self(unsafe { core::slice::from_raw_parts(start.cast::<AtomicU8>(), length) })
    }

    /// View of private memory of this program, for code that serves both kinds.
    #[must_use]
    #[inline]
    pub fn from_mut(bytes: &'a mut [u8]) -> Self {
        let (start, length) = (bytes.as_mut_ptr(), bytes.len());
        // SAFETY: the bytes are borrowed exclusively for all of `'a`, so no other reference to them is used meanwhile.
        unsafe { Self::from_raw(start, length) }
    }

    /// Size in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it has no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Address of the first byte in this process, with exposed provenance: for `/proc/self/smaps`, for messages, and for a program in
    /// another language, which accesses the memory through it.
    #[must_use]
    pub fn host_address(&self) -> usize {
        self.0.as_ptr().expose_provenance()
    }

    /// Start of the memory, with write permission.
    #[inline]
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    /// Part of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    #[inline]
    pub fn slice(&self, offset: usize, length: usize) -> Result<Self, MemoryError> {
        self.range(offset, length).map(Self)
    }

    /// The whole view, as bytes that others may change at any time.
    #[inline]
    pub(super) const fn atomics(&self) -> &'a [AtomicU8] {
        self.0
    }

    #[inline]
    fn range(&self, offset: usize, length: usize) -> Result<&'a [AtomicU8], MemoryError> {
        match offset.checked_add(length).and_then(|end| self.0.get(offset..end)) {
            Some(range) => Ok(range),
            None => Err(self.outside(offset, length)),
        }
    }

    /// Out of line: keeps the success paths short.
    #[cold]
    fn outside(&self, offset: usize, length: usize) -> MemoryError {
        MemoryError::OutOfRange { offset, length, size: self.0.len() }
    }

    #[inline]
    fn word32(&self, offset: usize) -> Result<&'a AtomicU32, MemoryError> {
        let start = self.range(offset, 4)?.as_ptr().cast::<AtomicU32>();
        if !start.is_aligned() {
            return Err(MemoryError::Misaligned { offset, alignment: 4 });
        }
        // SAFETY: 4 bytes inside a live slice of atomics (range check above), aligned (checked). No plain reference to them exists, see
        // `from_raw`. Accesses of different sizes may meet here; the machine and LLVM define them byte by byte, and no invariant of this
        // package depends on a value read.
        Ok(unsafe { &*start })
    }

    #[inline]
    fn word64(&self, offset: usize) -> Result<&'a AtomicU64, MemoryError> {
        let start = self.range(offset, 8)?.as_ptr().cast::<AtomicU64>();
        if !start.is_aligned() {
            return Err(MemoryError::Misaligned { offset, alignment: 8 });
        }
        // SAFETY: as in `word32`, for 8 bytes.
        Ok(unsafe { &*start })
    }

    /// Splits a range into single bytes up to the first 8-byte boundary, whole words, and the remaining bytes.
    #[inline]
    fn words(bytes: &'a [AtomicU8]) -> (&'a [AtomicU8], &'a [AtomicU64], &'a [AtomicU8]) {
        // SAFETY: eight AtomicU8 may be viewed as one AtomicU64: same memory, all values valid, alignment arranged
        // by align_to. For accesses of different sizes see `word32`.
        unsafe { bytes.align_to::<AtomicU64>() }
    }

    /// Copies out of the memory. Exactly 4 or 8 bytes at an address that is a multiple of their length are read in one access; otherwise
    /// only each byte is atomic.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is copied in this case.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        copy::load(self.range(offset, into.len())?, into);
        Ok(())
    }

    /// Copies into the memory. Exactly 4 or 8 bytes at an address that is a multiple of their length are written in one access; otherwise
    /// only each byte is atomic, and bytes may be written twice.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is copied in this case.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        copy::store(self.range(offset, from.len())?, from);
        Ok(())
    }

    /// Copies all bytes into a vector.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        copy::load(self.0, &mut bytes);
        bytes
    }

    /// Calls `each` with copies of consecutive parts of at most [`CHUNK`] bytes, and the offset of each: for code that needs the bytes as a
    /// slice, such as a checksum. A part is copied once, so `each` sees stable bytes.
    pub fn read_chunks(&self, mut each: impl FnMut(usize, &[u8])) {
        let mut chunk = [0; CHUNK];
        let mut offset = 0;
        for part in self.0.chunks(CHUNK) {
            if let Some(bytes) = chunk.get_mut(..part.len()) {
                copy::load(part, bytes);
                each(offset, bytes);
            }
            offset += part.len();
        }
    }

    /// Fills the memory with the bytes that `each` writes into consecutive parts of at most [`CHUNK`] bytes, given the offset of each: for
    /// code that produces bytes in a slice, such as a random generator. A part initially holds the bytes of an earlier one.
    pub fn write_chunks(&self, mut each: impl FnMut(usize, &mut [u8])) {
        let mut chunk = [0; CHUNK];
        let mut offset = 0;
        for part in self.0.chunks(CHUNK) {
            if let Some(bytes) = chunk.get_mut(..part.len()) {
                each(offset, bytes);
                copy::store(part, bytes);
            }
            offset += part.len();
        }
    }

    /// Exchanges the bytes of both views, up to the length of the shorter one. If the two overlap, the bytes in the overlap are
    /// unspecified.
    pub fn swap_with(&self, other: &SharedSlice<'_>) {
        let (mut mine, mut theirs) = ([0; CHUNK / 4], [0; CHUNK / 4]);
        for (here, there) in self.0.chunks(mine.len()).zip(other.0.chunks(theirs.len())) {
            let length = here.len().min(there.len());
            let (Some(mine), Some(theirs)) = (mine.get_mut(..length), theirs.get_mut(..length)) else {
                return;
            };
            copy::load(here, mine);
            copy::load(there, theirs);
            copy::store(here, theirs);
            copy::store(there, mine);
        }
    }

    /// Sets `length` bytes to `value`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is set in this case.
    #[inline]
    pub fn fill(&self, offset: usize, length: usize, value: u8) -> Result<(), MemoryError> {
        copy::fill(self.range(offset, length)?, value);
        Ok(())
    }

    /// Copies `length` bytes at `source_offset` of `source` to `offset` of this view. If the two overlap, the
    /// bytes in the overlap are unspecified.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] for either side; nothing is copied in this case.
    #[inline]
    pub fn copy_from(
        &self,
        offset: usize,
        source: SharedSlice<'_>,
        source_offset: usize,
        length: usize,
    ) -> Result<(), MemoryError> {
        let to = self.range(offset, length)?;
        copy::between(to, source.range(source_offset, length)?);
        Ok(())
    }

    /// Stores `N` consecutive 32-bit words, such as a descriptor, as pairs where the address permits. Words may
    /// become visible to the device in any order: publish them with a barrier.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; [`MemoryError::Misaligned`] if the address is not a multiple of 4.
    #[inline]
    pub fn store_words<const N: usize>(&self, offset: usize, words: [u32; N]) -> Result<(), MemoryError> {
        let (head, pairs, tail) = Self::words(self.range(offset, N * 4)?);
        if head.is_empty() && tail.is_empty() {
            let (values, _) = words.as_chunks::<2>();
            for (place, [low, high]) in pairs.iter().zip(values) {
                place.store((u64::from(*high) << 32 | u64::from(*low)).to_le(), Ordering::Relaxed);
            }
            return Ok(());
        }
        for (index, word) in words.into_iter().enumerate() {
            self.store_u32(offset + index * 4, word)?;
        }
        Ok(())
    }

    /// Loads `N` consecutive 32-bit words, each one atomically (the set may be torn).
    ///
    /// # Errors
    /// As [`store_words`](Self::store_words).
    #[inline]
    pub fn load_words<const N: usize>(&self, offset: usize) -> Result<[u32; N], MemoryError> {
        self.range(offset, N * 4)?;
        let mut words = [0; N];
        for (index, word) in words.iter_mut().enumerate() {
            *word = self.load_u32(offset + index * 4)?;
        }
        Ok(words)
    }
}

macro_rules! word_access {
    ($($cell:ident $kind:ty: $load:ident $acquire:ident $store:ident $release:ident;)*) => {
        impl SharedSlice<'_> {
            $(
                /// Loads a little-endian word, relaxed.
                ///
                /// # Errors
                /// [`MemoryError::OutOfRange`], [`MemoryError::Misaligned`].
                #[inline]
                pub fn $load(&self, offset: usize) -> Result<$kind, MemoryError> {
                    Ok(<$kind>::from_le(self.$cell(offset)?.load(Ordering::Relaxed)))
                }

                /// Loads a little-endian word; later accesses of this thread are not moved before it.
                ///
                /// # Errors
                /// [`MemoryError::OutOfRange`], [`MemoryError::Misaligned`].
                #[inline]
                pub fn $acquire(&self, offset: usize) -> Result<$kind, MemoryError> {
                    Ok(<$kind>::from_le(self.$cell(offset)?.load(Ordering::Acquire)))
                }

                /// Stores a little-endian word, relaxed.
                ///
                /// # Errors
                /// [`MemoryError::OutOfRange`], [`MemoryError::Misaligned`].
                #[inline]
                pub fn $store(&self, offset: usize, value: $kind) -> Result<(), MemoryError> {
                    self.$cell(offset)?.store(value.to_le(), Ordering::Relaxed);
                    Ok(())
                }

                /// Stores a little-endian word; earlier accesses of this thread are not moved after it.
                ///
                /// # Errors
                /// [`MemoryError::OutOfRange`], [`MemoryError::Misaligned`].
                #[inline]
                pub fn $release(&self, offset: usize, value: $kind) -> Result<(), MemoryError> {
                    self.$cell(offset)?.store(value.to_le(), Ordering::Release);
                    Ok(())
                }
            )*
        }
    };
}

word_access! {
    word32 u32: load_u32 load_u32_acquire store_u32 store_u32_release;
    word64 u64: load_u64 load_u64_acquire store_u64 store_u64_release;
}
