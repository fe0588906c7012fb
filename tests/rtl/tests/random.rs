//! Random values, often at the edges of their ranges.

use rand_core::Rng as _;
use rand_pcg::Pcg64;

/// Source of random values.
pub(crate) struct Random(Pcg64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Pcg64::new(u128::from(seed), 0x0A02_BDBF_7BB3_C0A7_AC28_FA16_A64A_BF96))
    }

    pub(crate) fn word(&mut self) -> u32 {
        self.0.next_u32()
    }

    pub(crate) fn long(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number of `from..=to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.0.next_u64() % (to - from + 1)
    }

    /// Whether an event of probability 1 / `count` occurs.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.within(1, count) == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.within(0, from.len() as u64 - 1)).unwrap()]
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A length of `1..=size`: often one at an edge.
    pub(crate) fn length(&mut self, size: u64) -> u64 {
        match self.within(0, 3) {
            0 => size,
            1 => self.within(1, size.min(9)),
            2 => size - self.within(0, size.min(9) - 1),
            _ => self.within(1, size),
        }
    }

    /// A range of `length` bytes in a transfer, with the number of the part and the count of parts: the two start or end together exactly
    /// if it is the first or the last part.
    pub(crate) fn segment(&mut self, length: u64) -> (u64, u64, u64, u32, u32) {
        let before = if self.one_in(2) { 0 } else { self.within(1, 1 << 40) };
        let after = if self.one_in(2) { 0 } else { self.within(1, 1 << 40) };
        let total = before + length + after;
        let transfer = if self.one_in(4) { u64::MAX - total } else { self.within(0, u64::MAX - total) };
        let index = if before == 0 { 0 } else { self.word() >> 1 | 1 };
        let count = if after == 0 { index + 1 } else { index + 2 + (self.word() >> 2) };
        (transfer + before, transfer, total, index, count)
    }

    /// Changes one field-sized part of `bytes`: to an edge value, by one, by one bit, or to a random value.
    pub(crate) fn change(&mut self, bytes: &mut [u8]) {
        let size = usize::try_from(self.pick(&[1_u64, 2, 4, 8])).unwrap();
        let at = usize::try_from(self.within(0, (bytes.len() / size - 1) as u64)).unwrap() * size;
        let field = &mut bytes[at..at + size];
        let mut value = [0; 8];
        value[..size].copy_from_slice(field);
        let value = u64::from_le_bytes(value);
        let value = match self.within(0, 6) {
            0 => 0,
            1 => u64::MAX,
            2 => value.wrapping_add(1),
            3 => value.wrapping_sub(1),
            4 => value ^ 1 << self.within(0, 8 * size as u64 - 1),
            5 => self.within(0, 20),
            _ => self.long(),
        };
        field.copy_from_slice(&value.to_le_bytes()[..size]);
    }
}
