//! Ranges of card addresses.

use fpga_registers::CardAddr;

/// Range of card addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CardRange {
    /// First address.
    pub start: CardAddr,
    /// Length in bytes.
    pub length: u64,
}

impl CardRange {
    /// Creates a range of `length` bytes from `start`.
    #[must_use]
    pub const fn new(start: CardAddr, length: u64) -> Self {
        Self { start, length }
    }

    /// Returns whether `length` bytes from `start` lie completely inside.
    #[must_use]
    pub const fn contains(&self, start: CardAddr, length: u64) -> bool {
        match start.get().checked_sub(self.start.get()) {
            Some(offset) => offset <= self.length && length <= self.length - offset,
            None => false,
        }
    }

    /// Returns whether the two ranges have a byte in common.
    #[must_use]
    pub const fn overlaps(&self, other: Self) -> bool {
        let (first, second) = (self.start.get(), other.start.get());
        if first <= second {
            second - first < self.length && other.length != 0
        } else {
            first - second < other.length && self.length != 0
        }
    }

    /// Returns the last address of the range.
    #[must_use]
    pub const fn last(&self) -> CardAddr {
        CardAddr::new(self.start.get().saturating_add(self.length.saturating_sub(1)))
    }
}
