//! Prediction whether destinations of copies will still be in the caches when they are written again.
//!
//! A copy through the caches is twice as fast as one that bypasses them if its destination is cached, and half as fast if it is not: then
//! the machine fetches every line only to overwrite it. A single copy cannot know this, but the engine's copies share one tracker: if
//! nearly all destinations among some megabytes are different, the next ones are assumed to differ too.

/// Bytes between two decisions: with the sources twice as many, and more than a core's share of a server's caches.
const SPAN: usize = 8 << 20;
/// log2 of the granule in which destinations are distinguished, in bytes.
const GRANULE: u32 = 11;
/// log2 of the bits of the filter: eight times the number of granules in a span, so that few share a bit.
const BITS: u32 = 15;
const WORDS: usize = 1 << (BITS - 6);

/// Recent destinations of copies.
#[derive(Debug)]
pub(crate) struct ReuseTracker {
    /// One bit for every destination of this span.
    seen: Box<[u64; WORDS]>,
    /// Number of copies in this span, and of those with a new destination.
    copies: u32,
    new: u32,
    bytes: usize,
    /// Result of the last span.
    streams: bool,
}

impl Default for ReuseTracker {
    fn default() -> Self {
        Self { seen: Box::new([0; WORDS]), copies: 0, new: 0, bytes: 0, streams: false }
    }
}

impl ReuseTracker {
    /// Records copies with these addresses and lengths; returns whether they should bypass the caches.
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
            // Three of four: copies in random order to twice the span would reach this share.
            self.streams = self.new > self.copies / 4 * 3;
            self.seen.fill(0);
            (self.copies, self.new, self.bytes) = (0, 0, 0);
        }
        self.streams
    }
}
