//! Fields of structures in the memory of programs, by their offsets.

/// The eight bytes at `at`; 0 behind the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_ne_bytes(*word))
}

/// The four bytes at `at`; 0 behind the end.
pub(crate) fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_ne_bytes(*word))
}

/// Writes a field at `at`.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(place) = bytes.get_mut(at..at + value.len()) {
        place.copy_from_slice(value);
    }
}
