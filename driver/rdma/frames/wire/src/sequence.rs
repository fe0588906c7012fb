//! Sequence numbers of frames, and gaps between two of them.

use core::fmt;

/// Sequence number of a frame. It rises by one with every published frame, also when no subscriber gets it, so that a subscriber sees every
/// missed frame as a gap (E3-6). 64 bits wrap after some ten million years at the rates of cameras; numbers may start at any value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(u64);

impl Sequence {
    /// Creates the sequence number `number`.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number as an integer.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Sequence number of the next frame.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Number of frames from `earlier` to this one, modulo 2^64.
    #[must_use]
    pub const fn distance_from(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A frame that precedes one that was received already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "frame {found} arrived where frame {expected} or a later one was expected: the publisher sends wrong frame numbers"
)]
pub struct OutOfSequence {
    /// Sequence number of the frame.
    pub found: Sequence,
    /// Expected sequence number; later ones are allowed too.
    pub expected: Sequence,
}

/// Tracks the expected sequence number and counts missing frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GapDetector {
    expected: Sequence,
}

impl GapDetector {
    /// Creates a detector that expects `first`.
    #[must_use]
    pub const fn new(first: Sequence) -> Self {
        Self { expected: first }
    }

    /// Expected sequence number.
    #[must_use]
    pub const fn expected(&self) -> Sequence {
        self.expected
    }

    /// Records a received frame. Returns the number of missing frames before it.
    ///
    /// # Errors
    /// [`OutOfSequence`]: the frame is older than one received before. Nothing changes.
    pub const fn frame(&mut self, found: Sequence) -> Result<u64, OutOfSequence> {
        match self.advance_to(found) {
            Ok(missed) => {
                self.expected = found.next();
                Ok(missed)
            }
            Err(error) => Err(error),
        }
    }

    /// Records that no frame before `next` will follow. Returns the number of missing frames.
    ///
    /// # Errors
    /// As [`frame`](Self::frame).
    pub const fn advance_to(&mut self, next: Sequence) -> Result<u64, OutOfSequence> {
        let missed = next.distance_from(self.expected);
        if missed > u64::MAX / 2 {
            return Err(OutOfSequence { found: next, expected: self.expected });
        }
        self.expected = next;
        Ok(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a list of lost numbers, from any start in the range.
        #[test]
        fn sequence_missing_frames_are_counted_exactly(
            first in prop_oneof![Just(0), Just(u64::MAX - 3), any::<u64>()],
            seen in proptest::collection::vec(any::<bool>(), 0..60),
        ) {
            let mut detector = GapDetector::new(Sequence::new(first));
            let mut lost = 0;
            let mut next = Sequence::new(first);
            for frame in &seen {
                if *frame {
                    prop_assert_eq!(detector.frame(next), Ok(core::mem::take(&mut lost)));
                    prop_assert!(detector.frame(next).is_err(), "twice");
                } else {
                    lost += 1;
                }
                next = next.next();
            }
            prop_assert_eq!(detector.advance_to(next), Ok(lost));
            prop_assert_eq!(detector.expected(), next);
        }
    }
}
