//! Narrowing conversions that the packages of this workspace share, each with its reason.

/// Returns the low 32 bits: ring positions are running 64-bit counts whose low bits are the index.
#[expect(clippy::cast_possible_truncation, reason = "the caller asks for the low bits")]
#[must_use]
#[inline]
pub const fn low32(value: u64) -> u32 {
    value as u32
}

/// Returns the high 32 bits.
#[must_use]
#[inline]
pub const fn high32(value: u64) -> u32 {
    low32(value >> 32)
}

/// Returns the low 16 bits.
#[expect(clippy::cast_possible_truncation, reason = "the caller asks for the low bits")]
#[must_use]
#[inline]
pub const fn low16(value: u32) -> u16 {
    value as u16
}

/// Converts a 32-bit index to `usize`; targets have at least 32-bit pointers.
#[must_use]
#[inline]
pub const fn index(value: u32) -> usize {
    value as usize
}
