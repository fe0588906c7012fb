//! Reception mask: one bit per packet of a segment (docs/protocol.md 5.3).

/// Number of words of the widest mask.
const WORDS: usize = 4;
/// Number of bits of the widest mask.
pub const MAX_BITS: u16 = 256;

/// Reception mask: the packets of a segment that are in memory. A set bit is a packet in memory, or a bit beyond the
/// expected count, so that "complete" is "all ones" for every count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask([u64; WORDS]);

impl Mask {
    /// Mask with all bits set.
    pub const COMPLETE: Self = Self([u64::MAX; WORDS]);

    /// Returns the mask of a segment whose first of `expected` packets has just been written: `(all ones << n) | 1`,
    /// over 256 bits. Returns `None` unless 1 <= `expected` <= 256.
    ///
    /// A narrower mask is the low bits of this one, because the bits above are ones here too. For 8 packets the low 32
    /// bits are `0xFFFF_FF01` [E1-1]. For 1 packet the mask is complete at once. For 256 packets all bits but bit 0 are
    /// zero.
    #[must_use]
    pub fn first_of(expected: u16) -> Option<Self> {
        if expected == 0 || expected > MAX_BITS {
            return None;
        }
        let mut mask = Self::zeros_below(expected);
        mask.0[0] |= 1;
        Some(mask)
    }

    /// Returns the mask of an operation of `expected` packets, none of which has arrived; `None` as for [`Self::first_of`].
    pub(crate) fn none_of(expected: u16) -> Option<Self> {
        (expected != 0 && expected <= MAX_BITS).then(|| Self::zeros_below(expected))
    }

    /// Returns all ones shifted left by `count`, at most 256: a checked barrel shift, word by word.
    fn zeros_below(count: u16) -> Self {
        let mut words = [u64::MAX; WORDS];
        for (at, word) in (0u32..).zip(words.iter_mut()) {
            let zeros = u32::from(count).saturating_sub(at * 64);
            // A shift by the full width overflows in hardware and in Rust.
            *word = u64::MAX.checked_shl(zeros).unwrap_or(0);
        }
        Self(words)
    }

    /// Whether packet `bit` is in memory; true beyond the widest mask.
    #[inline]
    #[must_use]
    pub fn contains(&self, bit: u16) -> bool {
        self.0.get(usize::from(bit >> 6)).is_none_or(|word| word >> (bit & 63) & 1 != 0)
    }

    /// Marks packet `bit` as written; ignored beyond the widest mask. Returns whether every expected packet is in
    /// memory.
    #[inline]
    pub fn insert(&mut self, bit: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(bit >> 6)) else { return self.is_complete() };
        *word |= 1 << (bit & 63);
        // Check the modified word first: a read of all four would wait for this store.
        *word == u64::MAX && self.is_complete()
    }

    /// Whether every expected packet is in memory.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.0[0] & self.0[1] & self.0[2] & self.0[3] == u64::MAX
    }

    /// Returns the number of missing packets.
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.0.iter().map(|word| word.count_zeros()).sum()
    }

    /// Returns the bits of the first 64 packets.
    pub(super) const fn low(&self) -> u64 {
        self.0[0]
    }

    /// Creates the mask of a segment of at most 64 packets from its low word.
    pub(super) const fn from_low(low: u64) -> Self {
        Self([low, u64::MAX, u64::MAX, u64::MAX])
    }

    /// Returns the mask as the registry window shows it: 32-bit words, bit 0 of word 0 first.
    #[must_use]
    pub fn words(&self) -> [u32; 8] {
        let mut words = [0; 8];
        for (pair, word) in words.chunks_exact_mut(2).zip(self.0) {
            pair[0] = fpga_registers::cast::low32(word);
            pair[1] = fpga_registers::cast::low32(word >> 32);
        }
        words
    }

    /// Creates a mask from the words of the registry window.
    #[must_use]
    pub fn from_words(words: [u32; 8]) -> Self {
        let mut mask = [0; WORDS];
        for (word, pair) in mask.iter_mut().zip(words.chunks_exact(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        Self(mask)
    }
}

/// Completed segments of a transfer: all below `base`, and those whose bit is set from `base` on.
///
/// The size is independent of the transfer's length, because a sender stays within 256 segments of its oldest
/// incomplete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentWindow {
    base: u32,
    /// Bit i stands for segment `base + i`; bit 0 is clear.
    bits: [u64; WORDS],
}

impl SegmentWindow {
    pub(crate) const EMPTY: Self = Self { base: 0, bits: [0; WORDS] };

    /// Returns the lowest incomplete segment.
    pub(crate) const fn base(&self) -> u32 {
        self.base
    }

    /// Whether `segment` lies within the window or below it.
    pub(crate) const fn covers(&self, segment: u32) -> bool {
        segment < self.base || segment - self.base < MAX_BITS as u32
    }

    pub(crate) fn contains(&self, segment: u32) -> bool {
        let Some(bit) = segment.checked_sub(self.base) else { return true };
        let word = fpga_registers::cast::index(bit >> 6);
        self.bits.get(word).is_some_and(|word| word >> (bit & 63) & 1 != 0)
    }

    /// Marks `segment` as complete; ignored beyond the window, which callers check first.
    pub(crate) fn insert(&mut self, segment: u32) {
        let Some(bit) = segment.checked_sub(self.base) else { return };
        let Some(word) = self.bits.get_mut(fpga_registers::cast::index(bit >> 6)) else { return };
        *word |= 1 << (bit & 63);
        while self.bits[0] & 1 != 0 {
            let run = self.bits[0].trailing_ones().min(63);
            let [a, b, c, d] = self.bits;
            let shift = |low: u64, high: u64| low >> run | high << (64 - run);
            self.bits = [shift(a, b), shift(b, c), shift(c, d), d >> run];
            self.base += run;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests every packet count in two orders: the mask is complete with the last missing packet and not before, also
    /// with duplicate packets; bits beyond the widest mask have no effect.
    #[test]
    fn mask_insert_reports_completion_at_last_missing_packet() {
        for expected in 1..=MAX_BITS {
            for step in [1, 5] {
                let mut mask = Mask::first_of(expected).unwrap();
                // If 5 divides the count, 5 is not coprime to it: use the plain order.
                let step = if expected % step == 0 { 1 } else { step };
                for n in 1..=expected {
                    let bit = n * step % expected;
                    let complete = mask.insert(bit);
                    assert_eq!(complete, mask.is_complete(), "{bit} of {expected}");
                    assert_eq!(complete, mask == Mask::COMPLETE, "{bit} of {expected}");
                    assert_eq!(mask.insert(bit), complete);
                    assert_eq!(mask.insert(MAX_BITS), complete);
                }
                assert!(mask.is_complete());
            }
        }
    }
}
