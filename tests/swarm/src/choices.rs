//! Random choices, which depend on a seed alone.

use std::ops::Range;

use fpga_protocol::Nanos;

/// Generator of choices (SplitMix64).
#[derive(Clone, Debug)]
pub struct Choices(u64);

impl Choices {
    /// Creates a generator. Different seeds give unrelated choices.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number below `end`; 0 for 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        let bits = self.bits();
        if end == 0 { 0 } else { bits % end }
    }

    /// Returns a number of a range.
    pub const fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Returns an index below `end`.
    pub fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).unwrap_or(0)
    }

    /// Returns true once in `n` times.
    pub const fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns one of the values.
    ///
    /// # Panics
    /// If there are none.
    pub fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.index(values.len())]
    }

    /// Returns a number whose logarithm is uniform: 1 to `2^bits`.
    pub const fn scale(&mut self, bits: u64) -> u64 {
        let magnitude = self.below(bits + 1);
        1 + self.below(1 << magnitude)
    }
}

/// Returns well mixed bits.
#[must_use]
pub const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A part of a plan with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed<T> {
    /// Position in the plan of the seed, by which a reduction names it.
    pub number: usize,
    /// Time.
    pub time: Nanos,
    /// The part.
    pub item: T,
}

/// Hash of the events of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    hash: u64,
    /// Number of events.
    pub events: u64,
}

impl Trace {
    /// Adds an event.
    pub fn add(&mut self, words: &[u64]) {
        self.events += 1;
        for word in words {
            self.hash = mix(self.hash ^ *word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        }
    }

    /// Returns the hash.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }
}
