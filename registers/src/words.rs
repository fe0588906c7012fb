//! 64-bit quantities as pairs of 32-bit little-endian words, the form every register and descriptor uses.

/// Splits a 64-bit value into its low and high word.
#[must_use]
pub(crate) const fn split(value: u64) -> (u32, u32) {
    #[expect(clippy::cast_possible_truncation, reason = "the caller asks for the halves")]
    let halves = (value as u32, (value >> 32) as u32);
    halves
}

/// Joins a low and a high word to a 64-bit value.
#[must_use]
pub(crate) const fn join(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}
