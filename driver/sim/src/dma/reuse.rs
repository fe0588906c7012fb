//! Whether the places that data is copied to will be in the caches when they are copied to again.
//!
//! A copy through the caches is twice as fast as one past them where its destination is found there, and half as fast where it
//! is not: then the machine fetches every line only to overwrite it. No single copy can know. But whoever copies for an engine
//! sees all its destinations: if nearly all among some megabytes are different, the next ones will be so too.

/// Bytes between two decisions: with their sources twice that, and more than a core's fair share of the caches of a server.
const SPAN: usize = 8 << 20;
/// Granule in which destinations are told apart.
const GRANULE: u32 = 11;
/// log2 of the bits that remember them: eight times as many as the span has granules, so that few share one.
const BITS: u32 = 15;
const WORDS: usize = 1 << (BITS - 6);

/// The destinations of the recent past.
#[derive(Debug)]
pub(crate) struct ReuseTracker {
    /// A bit for every destination of this span.
    seen: Box<[u64; WORDS]>,
    /// Copies of this span, and those among them whose destination was new.
    copies: u32,
    new: u32,
    bytes: usize,
    /// What the last span says.
    streams: bool,
}

impl Default for ReuseTracker {
    fn default() -> Self {
        Self { seen: Box::new([0; WORDS]), copies: 0, new: 0, bytes: 0, streams: false }
    }
}

impl ReuseTracker {
    /// Takes note of copies to these addresses and of these lengths, and says whether they are better made past the caches.
    pub(crate) fn note(&mut self, copies: impl Iterator<Item = (usize, usize)>) -> bool {
        for (address, length) in copies {
            let hash =
                ((address >> GRANULE) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BITS);
            let hash = usize::try_from(hash).unwrap_or(0);
            if let Some(word) = self.seen.get_mut(hash / 64) {
                let bit = 1 << (hash % 64);
                self.new += u32::from(*word & bit == 0);
                *word |= bit;
            }
            self.copies += 1;
            self.bytes = self.bytes.saturating_add(length);
        }
        if self.bytes >= SPAN {
            // Three of four: copies in random order to twice the span would have as many.
            self.streams = self.new > self.copies / 4 * 3;
            self.seen.fill(0);
            (self.copies, self.new, self.bytes) = (0, 0, 0);
        }
        self.streams
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies of `length` to a ring of `size` bytes, some rounds of it; what was said of the last.
    fn ring(reuse: &mut ReuseTracker, size: usize, length: usize) -> bool {
        let mut said = false;
        for at in (0..10 * SPAN).step_by(length) {
            said = reuse.note(std::iter::once((at % size, length)));
        }
        said
    }

    #[test]
    fn reuse_working_set_beyond_caches_streams() {
        for length in [2048, 4096, 65_536] {
            let mut reuse = ReuseTracker::default();
            for _ in 0..3 {
                assert!(!ring(&mut reuse, SPAN / 2, length), "{length}");
                assert!(ring(&mut reuse, 2 * SPAN, length), "{length}");
                assert!(!ring(&mut reuse, length, length), "{length}");
                assert!(ring(&mut reuse, 64 * SPAN, length), "{length}");
            }
        }
    }

    #[test]
    fn reuse_few_copies_use_caches() {
        let mut reuse = ReuseTracker::default();
        assert!(!reuse.note([(0, 1 << 20), (1 << 20, 1 << 20)].into_iter()));
        assert!(!reuse.note(std::iter::empty()));
        assert!(reuse.note(std::iter::once((5 << 20, SPAN))), "now enough is known");
    }
}
