//! The reception mask: one bit per packet of a segment (spec 2.2.2).

/// Words of the widest mask.
const WORDS: usize = 4;
/// The widest mask, in bits.
pub const MAX_BITS: u16 = 256;

/// Which packets of a segment are in memory. A set bit is a packet in memory, or a bit beyond the expected count, so
/// that "complete" is "all ones" whatever the count is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mask([u64; WORDS]);

impl Mask {
    /// All ones.
    pub const COMPLETE: Self = Self([u64::MAX; WORDS]);

    /// The mask of a segment whose first of `expected` packets has just been written: `(all ones << n) | 1`, over
    /// 256 bits. `None` unless 1 <= `expected` <= 256.
    ///
    /// A narrower mask is this one's low bits: its own "ones above" are ones here too. For 8 packets the low 32 bits are
    /// `0xFFFF_FF01` [E1-1]; for 1 packet the mask is complete at once; for 256 nothing is left to shift in.
    #[must_use]
    pub fn first_of(expected: u16) -> Option<Self> {
        if expected == 0 || expected > MAX_BITS {
            return None;
        }
        let mut mask = Self::zeros_below(expected);
        mask.0[0] |= 1;
        Some(mask)
    }

    /// All ones shifted left by `count`, at most 256: the checked barrel shift, word by word.
    fn zeros_below(count: u16) -> Self {
        let mut words = [u64::MAX; WORDS];
        for (at, word) in (0u32..).zip(words.iter_mut()) {
            let zeros = u32::from(count).saturating_sub(at * 64);
            // A shift by the full width is an overflow in hardware and in Rust alike.
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

    /// Notes packet `bit` as written; ignored beyond the widest mask. Returns whether every expected packet is in memory.
    #[inline]
    pub fn insert(&mut self, bit: u16) -> bool {
        let Some(word) = self.0.get_mut(usize::from(bit >> 6)) else { return self.is_complete() };
        *word |= 1 << (bit & 63);
        // Its own word first: to read all four at once, the processor would wait for this store.
        *word == u64::MAX && self.is_complete()
    }

    /// Whether every expected packet is in memory.
    #[inline]
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.0[0] & self.0[1] & self.0[2] & self.0[3] == u64::MAX
    }

    /// Packets that are missing.
    #[must_use]
    pub fn missing(&self) -> u32 {
        self.0.iter().map(|word| word.count_zeros()).sum()
    }

    /// The first 64 packets.
    pub(super) const fn low(&self) -> u64 {
        self.0[0]
    }

    /// From the first 64 packets, of at most 64.
    pub(super) const fn from_low(low: u64) -> Self {
        Self([low, u64::MAX, u64::MAX, u64::MAX])
    }

    /// As the registry window shows it: 32-bit words, bit 0 of word 0 first.
    #[must_use]
    pub fn words(&self) -> [u32; 8] {
        let mut words = [0; 8];
        for (pair, word) in words.chunks_exact_mut(2).zip(self.0) {
            pair[0] = fpga_registers::cast::low32(word);
            pair[1] = fpga_registers::cast::low32(word >> 32);
        }
        words
    }

    /// From the registry window's words.
    #[must_use]
    pub fn from_words(words: [u32; 8]) -> Self {
        let mut mask = [0; WORDS];
        for (word, pair) in mask.iter_mut().zip(words.chunks_exact(2)) {
            *word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        Self(mask)
    }
}

/// Which segments of a transfer are complete: all below `base`, and those whose bit is set above it.
///
/// Bounded whatever the transfer's length, because a sender stays within 256 segments of its oldest incomplete one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentWindow {
    base: u32,
    /// Bit i: segment `base + i`; bit 0 is clear.
    bits: [u64; WORDS],
}

impl SegmentWindow {
    pub(crate) const EMPTY: Self = Self { base: 0, bits: [0; WORDS] };

    /// Segments below this one are all complete.
    pub(crate) const fn base(&self) -> u32 {
        self.base
    }

    /// Whether the window has room to note `segment`.
    pub(crate) const fn covers(&self, segment: u32) -> bool {
        segment < self.base || segment - self.base < MAX_BITS as u32
    }

    pub(crate) fn contains(&self, segment: u32) -> bool {
        let Some(bit) = segment.checked_sub(self.base) else { return true };
        let word = fpga_registers::cast::index(bit >> 6);
        self.bits.get(word).is_some_and(|word| word >> (bit & 63) & 1 != 0)
    }

    /// Notes `segment`; ignored beyond the window, which callers check first.
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

    /// Every count of packets, in two orders: complete with the last missing packet and not before, also for the packets
    /// that come twice, and none that are beyond the widest mask.
    #[test]
    fn mask_insert_reports_completion_at_last_missing_packet() {
        for expected in 1..=MAX_BITS {
            for step in [1, 5] {
                let mut mask = Mask::first_of(expected).unwrap();
                // 5 and a count divisible by it have a common divisor: such a count takes the plain order.
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
