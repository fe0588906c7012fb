//! Random test data.

use std::fmt;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

/// Bytes that are generated at once.
const BLOCK: usize = 16 << 10;

/// Random bytes: the same for the same seed, regardless of the sizes in which they are taken.
pub struct RandomBytes {
    generator: Pcg64Mcg,
    left: u64,
    block: Box<[u8; BLOCK]>,
    used: usize,
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
        }
    }

    /// Returns the next bytes, at most `length`; none at the end.
    pub fn take(&mut self, length: usize) -> &[u8] {
        if self.used == BLOCK {
            // As `fill_bytes`, without a call for each number.
            let (words, _) = self.block.as_chunks_mut::<8>();
            words.iter_mut().for_each(|word| *word = self.generator.next_u64().to_le_bytes());
            self.used = 0;
        }
        let ready = self.block.get(self.used..).unwrap_or_default();
        let count = length.min(ready.len()).min(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.used += count;
        self.left -= count as u64;
        ready.get(..count).unwrap_or_default()
    }
}
