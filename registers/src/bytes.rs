//! Little-endian numbers in bytes, for the packages of this workspace.

/// Returns the 16-bit number at byte `at`; `None` beyond the end.
#[must_use]
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

/// Returns the 32-bit number at byte `at`; `None` beyond the end.
#[must_use]
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the 64-bit number at byte `at`; `None` beyond the end.
#[must_use]
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
