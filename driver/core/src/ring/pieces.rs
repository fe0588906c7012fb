//! Cutting a scattered host buffer into as few descriptors as the rules allow.

use fpga_registers::Iova;

use super::config::PAGE;

/// One contiguous stretch of host memory as the device addresses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostRange {
    /// First byte.
    pub start: Iova,
    /// Bytes; empty ranges are skipped.
    pub length: u64,
}

impl HostRange {
    /// `length` bytes from `start` on.
    #[must_use]
    pub const fn new(start: Iova, length: u64) -> Self {
        Self { start, length }
    }
}

/// What one descriptor covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) length: u32,
}

/// Yields the pieces of a list of ranges in order: neighbours that touch are merged, and a run longer than one
/// descriptor is cut so that every piece but the first begins on a page.
#[derive(Clone, Debug)]
pub(super) struct Pieces<'a> {
    ranges: &'a [HostRange],
    start: u64,
    remaining: u64,
    max: u64,
}

impl<'a> Pieces<'a> {
    /// `max`: longest piece, a nonzero multiple of 4096.
    pub(super) fn new(ranges: &'a [HostRange], max: u32) -> Self {
        Self { ranges, start: 0, remaining: 0, max: u64::from(max) }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    #[inline]
    fn next(&mut self) -> Option<Piece> {
        while let Some((first, rest)) = self.ranges.split_first() {
            // Ranges that end past the address space were refused before, so this sum cannot wrap.
            if self.remaining == 0 {
                self.start = first.start.get();
            } else if first.length != 0 && self.start + self.remaining != first.start.get() {
                break;
            }
            self.remaining += first.length;
            self.ranges = rest;
        }
        if self.remaining == 0 {
            return None;
        }
        // Only the first piece can begin inside a page; shortening it puts every later cut on a page boundary.
        let longest = self.max - self.start % PAGE;
        let taken = self.remaining.min(longest);
        let piece = Piece { start: self.start, length: u32::try_from(taken).ok()? };
        self.start += taken;
        self.remaining -= taken;
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn cut(ranges: &[(u64, u64)], max: u32) -> Vec<(u64, u32)> {
        let ranges: Vec<_> = ranges.iter().map(|&(s, l)| HostRange::new(Iova::new(s), l)).collect();
        Pieces::new(&ranges, max).map(|p| (p.start, p.length)).collect()
    }

    #[test]
    fn touching_ranges_merge_and_gaps_split() {
        let long = super::super::MAX_DESCRIPTOR_LENGTH;
        assert_eq!(
            cut(&[(0x1000, 0x1000), (0x2000, 0x1000), (0x4000, 8)], long),
            [(0x1000, 0x2000), (0x4000, 8)]
        );
        assert_eq!(cut(&[(0x1000, 0), (0x9000, 4), (0, 0), (0x9004, 4)], long), [(0x9000, 8)]);
        assert_eq!(cut(&[], long), []);
        assert_eq!(cut(&[(5, 0)], long), []);
    }

    #[test]
    fn cuts_fall_on_pages() {
        assert_eq!(cut(&[(0x1800, 0x2000)], 4096), [(0x1800, 0x800), (0x2000, 0x1000), (0x3000, 0x800)]);
        let long = super::super::MAX_DESCRIPTOR_LENGTH;
        let whole = u64::from(long);
        assert_eq!(cut(&[(0x1001, whole + 1)], long), [(0x1001, long - 1), (0x1000 + whole, 2)]);
        assert_eq!(cut(&[(0, whole * 2)], long), [(0, long), (whole, long)]);
    }
}
