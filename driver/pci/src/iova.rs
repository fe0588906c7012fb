//! Allocation of device addresses (IOVAs).

use core::ops::RangeInclusive;

use fpga_registers::Iova;

use crate::IovaError;

/// Free ranges of a 64-bit space, sorted, none touching another. Ends are inclusive, so that the last address of
/// the space can be used and no sum overflows.
///
/// Shared by the IOVA allocator and by the pool's offset allocator.
#[derive(Debug, Clone)]
pub(crate) struct FreeRanges {
    /// Managed ranges, in the same form.
    managed: Vec<(u64, u64)>,
    free: Vec<(u64, u64)>,
}

/// Initial capacity for free ranges: no heap allocation until a space has more free ranges than this.
const CHUNKS: usize = 1024;

impl FreeRanges {
    pub(crate) fn new(ranges: impl IntoIterator<Item = (u64, u64)>) -> Self {
        let mut sorted: Vec<(u64, u64)> = ranges.into_iter().filter(|(first, last)| first <= last).collect();
        sorted.sort_unstable();
        let mut managed: Vec<(u64, u64)> = Vec::with_capacity(sorted.len());
        for (first, last) in sorted {
            match managed.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => previous.1 = previous.1.max(last),
                _ => managed.push((first, last)),
            }
        }
        let mut free = Vec::with_capacity(managed.len().max(CHUNKS));
        free.extend_from_slice(&managed);
        Self { managed, free }
    }

    /// Allocates `length` addresses whose start is a multiple of `alignment`, from the smallest free range that holds them (the lowest of
    /// equals): large ranges stay whole for large requests.
    pub(crate) fn take(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let span = length.checked_sub(1)?;
        let mut best: Option<(usize, u64, u64)> = None;
        for (index, &(first, last)) in self.free.iter().enumerate() {
            let size = last - first;
            if best.is_some_and(|(_, _, smallest)| smallest <= size) {
                continue;
            }
            let Some(start) = first.checked_next_multiple_of(alignment) else { continue };
            if start.checked_add(span).is_some_and(|end| end <= last) {
                best = Some((index, start, size));
                if size == span {
                    break;
                }
            }
        }
        let (index, start, _) = best?;
        self.carve(index, start, start + span);
        Some(start)
    }

    /// Allocates exactly `start..=end`. Returns false if it is not wholly free.
    pub(crate) fn take_exactly(&mut self, start: u64, end: u64) -> bool {
        let index = self.free.partition_point(|&(_, last)| last < start);
        match self.free.get(index) {
            Some(&(first, last)) if first <= start && start <= end && end <= last => {
                self.carve(index, start, end);
                true
            }
            _ => false,
        }
    }

    /// Removes `start..=end` from the free range at `index`, which contains it.
    fn carve(&mut self, index: usize, start: u64, end: u64) {
        let (first, last) = self.free[index];
        match (first < start, end < last) {
            (false, false) => {
                self.free.remove(index);
            }
            (true, false) => self.free[index].1 = start - 1,
            (false, true) => self.free[index].0 = end + 1,
            (true, true) => {
                self.free[index].1 = start - 1;
                self.free.insert(index + 1, (end + 1, last));
            }
        }
    }

    /// Frees `start..=end`. Returns false (and changes nothing) if any of it is free already or not managed.
    pub(crate) fn give(&mut self, start: u64, end: u64) -> bool {
        let range = self.managed.partition_point(|&(_, last)| last < start);
        if start > end || !self.managed.get(range).is_some_and(|&(first, last)| first <= start && end <= last)
        {
            return false;
        }
        // The first free range that does not end before `start`: it must begin after `end`.
        let next = self.free.partition_point(|&(_, last)| last < start);
        if self.free.get(next).is_some_and(|&(first, _)| first <= end) {
            return false;
        }
        let joins_previous = next > 0 && self.free[next - 1].1.checked_add(1) == Some(start);
        let joins_next = self.free.get(next).is_some_and(|&(first, _)| end.checked_add(1) == Some(first));
        match (joins_previous, joins_next) {
            (true, true) => {
                self.free[next - 1].1 = self.free[next].1;
                self.free.remove(next);
            }
            (true, false) => self.free[next - 1].1 = end,
            (false, true) => self.free[next].0 = start,
            (false, false) => self.free.insert(next, (start, end)),
        }
        true
    }

    /// Size of the largest free range; saturated.
    pub(crate) fn largest(&self) -> u64 {
        self.free.iter().map(|&(first, last)| (last - first).saturating_add(1)).max().unwrap_or(0)
    }

    /// Sum of the free ranges; saturated.
    pub(crate) fn total(&self) -> u64 {
        self.free
            .iter()
            .fold(0, |sum: u64, &(first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }
}

/// Allocator of IOVA ranges: best fit, any power-of-two alignment, reuse, holes.
///
/// ```
/// use fpga_pci::IovaAllocator;
/// use fpga_registers::Iova;
/// let mut space = IovaAllocator::new([Iova::new(0x1000)..=Iova::new(0xFFFF)]);
/// let at = space.allocate(0x2000, 0x2000)?;
/// assert_eq!(at, Iova::new(0x2000));
/// space.release(at, 0x2000)?;
/// # Ok::<(), fpga_pci::IovaError>(())
/// ```
#[derive(Debug, Clone)]
pub struct IovaAllocator(FreeRanges);

impl IovaAllocator {
    /// Manages `ranges`, in any order; overlapping ones are joined, empty ones ignored.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = RangeInclusive<Iova>>) -> Self {
        Self(FreeRanges::new(ranges.into_iter().map(|range| (range.start().get(), range.end().get()))))
    }

    /// Allocates `length` addresses, the first a multiple of `alignment`.
    ///
    /// # Errors
    /// [`IovaError::BadRequest`], [`IovaError::Exhausted`].
    pub fn allocate(&mut self, length: u64, alignment: u64) -> Result<Iova, IovaError> {
        if length == 0 || !alignment.is_power_of_two() {
            return Err(IovaError::BadRequest { length, alignment });
        }
        self.0.take(length, alignment).map(Iova::new).ok_or_else(|| IovaError::Exhausted {
            length,
            alignment,
            largest: self.0.largest(),
        })
    }

    /// Allocates exactly `length` addresses from `iova` on, for mappings with a given address.
    ///
    /// # Errors
    /// [`IovaError::NotAllocated`] if they are not all free.
    pub fn reserve(&mut self, iova: Iova, length: u64) -> Result<(), IovaError> {
        let taken = last_of(iova, length).is_some_and(|end| self.0.take_exactly(iova.get(), end));
        if taken { Ok(()) } else { Err(IovaError::NotAllocated { iova, length }) }
    }

    /// Frees `length` addresses from `iova` on: an allocated range, or a part of it.
    ///
    /// # Errors
    /// [`IovaError::NotAllocated`] if they are not all allocated; nothing changes in this case.
    pub fn release(&mut self, iova: Iova, length: u64) -> Result<(), IovaError> {
        let given = last_of(iova, length).is_some_and(|end| self.0.give(iova.get(), end));
        if given { Ok(()) } else { Err(IovaError::NotAllocated { iova, length }) }
    }

    /// Returns the number of free addresses, saturated at 2^64 - 1.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.0.total()
    }

    /// Size of the largest free range, saturated at 2^64 - 1.
    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.0.largest()
    }
}

/// Returns the last of `length` addresses from `iova` on, if there is one and it does not wrap.
fn last_of(iova: Iova, length: u64) -> Option<u64> {
    iova.get().checked_add(length.checked_sub(1)?)
}

#[cfg(test)]
mod tests;
