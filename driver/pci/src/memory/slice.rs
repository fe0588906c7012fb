//! The checked view into shared memory: every access to such memory in this package ends here.

use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::MemoryError;

/// Copies between two memories whose words do not line up go through a buffer of this size on the stack.
const BOUNCE: usize = 512;

/// A borrowed part of a [`SharedMemory`](crate::SharedMemory) or of a [`DmaArea`](crate::DmaArea).
///
/// Word accesses need offsets that make the *address* a multiple of the word; views start on cache lines or pages
/// unless they were narrowed to something odd.
#[derive(Clone, Copy, Default)]
pub struct SharedSlice<'a>(&'a [AtomicU8]);

impl fmt::Debug for SharedSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSlice").field("len", &format_args!("{:#x}", self.0.len())).finish()
    }
}

impl<'a> SharedSlice<'a> {
    /// # Safety
    /// `length` initialised bytes at `start` are mapped readable and writable for all of `'a`, and no reference to
    /// any of them exists that is not made from atomics, except to parts that this view is not used on meanwhile.
    pub(crate) unsafe fn from_raw(start: *mut u8, length: usize) -> Self {
        // SAFETY: the caller vouches for the memory; AtomicU8 has the layout of u8 and permits changes by others.
        Self(unsafe { core::slice::from_raw_parts(start.cast::<AtomicU8>(), length) })
    }

    /// Size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Start of the memory, with the right to write.
    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    /// The part of `length` bytes from `offset` on.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`].
    pub fn slice(&self, offset: usize, length: usize) -> Result<Self, MemoryError> {
        self.range(offset, length).map(Self)
    }

    fn range(&self, offset: usize, length: usize) -> Result<&'a [AtomicU8], MemoryError> {
        offset.checked_add(length).and_then(|end| self.0.get(offset..end)).ok_or(MemoryError::OutOfRange {
            offset,
            length,
            size: self.0.len(),
        })
    }

    #[inline]
    fn word32(&self, offset: usize) -> Result<&'a AtomicU32, MemoryError> {
        let start = self.range(offset, 4)?.as_ptr().cast::<AtomicU32>();
        if !start.is_aligned() {
            return Err(MemoryError::Misaligned { offset, alignment: 4 });
        }
        // SAFETY: 4 bytes inside a live slice of atomics (range check above), aligned (checked). Nobody holds a
        // plain reference to them, see `from_raw`. Accesses of different sizes may meet here; the machine and LLVM
        // define them byte by byte, and no invariant of this package rests on a value read.
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

    /// A range as single bytes up to the first 8-byte boundary, whole words, and the bytes that remain.
    #[inline]
    fn words(bytes: &'a [AtomicU8]) -> (&'a [AtomicU8], &'a [AtomicU64], &'a [AtomicU8]) {
        // SAFETY: eight AtomicU8 may be viewed as one AtomicU64: same memory, all values valid, alignment arranged
        // by align_to. For accesses of different sizes see `word32`.
        unsafe { bytes.align_to::<AtomicU64>() }
    }

    /// Copies out of the memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is copied then.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), MemoryError> {
        let (head, words, tail) = Self::words(self.range(offset, into.len())?);
        let (into_head, rest) = into.split_at_mut(head.len());
        let (into_words, into_tail) = rest.split_at_mut(words.len() * 8);
        load_bytes(head, into_head);
        load_lines(words, into_words);
        load_bytes(tail, into_tail);
        Ok(())
    }

    /// Copies into the memory.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is copied then.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), MemoryError> {
        let (head, words, tail) = Self::words(self.range(offset, from.len())?);
        let (from_head, rest) = from.split_at(head.len());
        let (from_words, from_tail) = rest.split_at(words.len() * 8);
        store_bytes(head, from_head);
        store_lines(words, from_words);
        store_bytes(tail, from_tail);
        Ok(())
    }

    /// Sets `length` bytes to `value`.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`]; nothing is set then.
    pub fn fill(&self, offset: usize, length: usize, value: u8) -> Result<(), MemoryError> {
        let (head, words, tail) = Self::words(self.range(offset, length)?);
        let word = u64::from_ne_bytes([value; 8]);
        head.iter().chain(tail).for_each(|byte| byte.store(value, Ordering::Relaxed));
        words.iter().for_each(|place| place.store(word, Ordering::Relaxed));
        Ok(())
    }

    /// Copies `length` bytes at `source_offset` of `source` to `offset` of this view. If the two overlap, the
    /// bytes in the overlap are unspecified.
    ///
    /// # Errors
    /// [`MemoryError::OutOfRange`] for either side; nothing is copied then.
    pub fn copy_from(
        &self,
        offset: usize,
        source: SharedSlice<'_>,
        source_offset: usize,
        length: usize,
    ) -> Result<(), MemoryError> {
        let to = self.range(offset, length)?;
        let from = source.range(source_offset, length)?;
        let (to_head, to_words, to_tail) = Self::words(to);
        let (from_head, from_words, from_tail) = SharedSlice::words(from);
        if to_head.len() == from_head.len() && to_words.len() == from_words.len() {
            copy_bytes(to_head, from_head);
            copy_lines(to_words, from_words);
            copy_bytes(to_tail, from_tail);
            return Ok(());
        }
        let mut bounce = [0; BOUNCE];
        let mut done = 0;
        while done < length {
            let part = (length - done).min(BOUNCE);
            source.read(source_offset + done, &mut bounce[..part])?;
            self.write(offset + done, &bounce[..part])?;
            done += part;
        }
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

    /// Loads `N` consecutive 32-bit words, each by itself (the set may be torn).
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

// The compiler does not unroll loops over atomics. Lines of eight words do it by hand: about twice as fast.

fn load_lines(from: &[AtomicU64], into: &mut [u8]) {
    let (from_lines, from_rest) = from.as_chunks::<8>();
    let (into_words, _) = into.as_chunks_mut::<8>();
    let (into_lines, into_rest) = into_words.as_chunks_mut::<8>();
    for (line, places) in from_lines.iter().zip(into_lines) {
        *places = line.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
    }
    for (word, place) in from_rest.iter().zip(into_rest) {
        *place = word.load(Ordering::Relaxed).to_ne_bytes();
    }
}

fn store_lines(into: &[AtomicU64], from: &[u8]) {
    let (into_lines, into_rest) = into.as_chunks::<8>();
    let (from_words, _) = from.as_chunks::<8>();
    let (from_lines, from_rest) = from_words.as_chunks::<8>();
    for (places, line) in into_lines.iter().zip(from_lines) {
        for (place, bytes) in places.iter().zip(line) {
            place.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
        }
    }
    for (place, bytes) in into_rest.iter().zip(from_rest) {
        place.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
    }
}

fn copy_lines(into: &[AtomicU64], from: &[AtomicU64]) {
    let (into_lines, into_rest) = into.as_chunks::<8>();
    let (from_lines, from_rest) = from.as_chunks::<8>();
    for (places, line) in into_lines.iter().zip(from_lines) {
        for (place, word) in places.iter().zip(line) {
            place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }
    for (place, word) in into_rest.iter().zip(from_rest) {
        place.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

fn load_bytes(from: &[AtomicU8], into: &mut [u8]) {
    for (byte, place) in from.iter().zip(into) {
        *place = byte.load(Ordering::Relaxed);
    }
}

fn store_bytes(into: &[AtomicU8], from: &[u8]) {
    for (place, byte) in into.iter().zip(from) {
        place.store(*byte, Ordering::Relaxed);
    }
}

fn copy_bytes(into: &[AtomicU8], from: &[AtomicU8]) {
    for (place, byte) in into.iter().zip(from) {
        place.store(byte.load(Ordering::Relaxed), Ordering::Relaxed);
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
