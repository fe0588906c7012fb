//! Random test data.

use std::fmt;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Bytes that are generated at once.
const BLOCK: usize = 16 << 10;

/// Random bytes: the same for the same seed, regardless of the sizes in which they are taken.
///
/// The first 16 KiB are random numbers. Each further block is the one before, with one random number added to all of its 64-bit words by
/// exclusive or: data at a wrong position differ from the expected ones as independent numbers would, and take a tenth of their time.
pub struct RandomBytes {
    generator: Pcg64Mcg,
    left: u64,
    block: Box<[u8; BLOCK]>,
    used: usize,
    /// Whether the block holds random numbers.
    is_filled: bool,
}

impl fmt::Debug for RandomBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RandomBytes").field("left", &self.left).finish_non_exhaustive()
    }
}

impl RandomBytes {
    /// `length` random bytes from `seed`.
    #[must_use]
    pub fn new(seed: u64, length: u64) -> Self {
        Self {
            generator: Pcg64Mcg::seed_from_u64(seed),
            left: length,
            block: Box::new([0; BLOCK]),
            used: BLOCK,
            is_filled: false,
        }
    }

    /// Returns the next bytes, at most `length`; none at the end.
    pub fn take(&mut self, length: usize) -> &[u8] {
        if self.used == BLOCK {
            let (words, _) = self.block.as_chunks_mut::<8>();
            if self.is_filled {
                let number = self.generator.next_u64();
                words.iter_mut().for_each(|word| *word = (u64::from_le_bytes(*word) ^ number).to_le_bytes());
            } else {
                // As `fill_bytes`, without a call for each number.
                words.iter_mut().for_each(|word| *word = self.generator.next_u64().to_le_bytes());
                self.is_filled = true;
            }
            self.used = 0;
        }
        let ready = self.block.get(self.used..).unwrap_or_default();
        let count = length.min(ready.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.used += count;
        self.left -= count as u64;
        ready.get(..count).unwrap_or_default()
    }
}
