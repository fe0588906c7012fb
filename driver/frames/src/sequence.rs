//! Numbers of frames, and what is missing between two of them.

use core::fmt;

/// A frame's number. It rises by one with every frame that is published, whether or not anybody gets it: what a subscriber does not
/// see, it misses by number (E3-6). 64 bits wrap after some ten million years at the rates of cameras; they may start anywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sequence(u64);

impl Sequence {
    /// The frame `number`.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The frame after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// How many frames this one comes after `earlier`, modulo 2^64.
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

/// A frame that comes before one that was seen already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "frame {found} after frames up to the one before {expected}: the publisher numbers its frames wrongly"
)]
pub struct OutOfSequence {
    /// The frame.
    pub found: Sequence,
    /// The one that was due, or any after it.
    pub expected: Sequence,
}

/// Knows which frame is due, and so how many are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GapDetector {
    expected: Sequence,
}

impl GapDetector {
    /// `first` is the first frame that is not missing.
    #[must_use]
    pub const fn new(first: Sequence) -> Self {
        Self { expected: first }
    }

    /// The frame that is due.
    #[must_use]
    pub const fn expected(&self) -> Sequence {
        self.expected
    }

    /// A frame was seen: how many before it were not.
    ///
    /// # Errors
    /// [`OutOfSequence`]: it is older than one seen before. Nothing changes.
    pub const fn frame(&mut self, found: Sequence) -> Result<u64, OutOfSequence> {
        match self.advance_to(found) {
            Ok(missed) => {
                self.expected = found.next();
                Ok(missed)
            }
            Err(error) => Err(error),
        }
    }

    /// Nothing before `next` will come any more: how many frames are missing.
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
        /// Against a set of the numbers that were lost, from anywhere in the range on.
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
