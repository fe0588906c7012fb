//! The IOMMU of one card: which host memory it reaches at which address, looked up at every access.
//!
//! Most accesses go where the last one of their kind went, so that mapping is tried first; what it does not hold as a
//! whole (or does not permit) takes the long way, which alone decides what is a fault.

use fpga_card::{DmaFault, DmaSpace, HostPort, Interrupt};
use fpga_pci::{DmaAccess, DmaMapError, InterruptTrigger, SharedMemory};
use fpga_registers::Iova;
use std::ops::RangeInclusive;

/// Granule of mappings.
pub(crate) const PAGE: u64 = 4096;
/// Highest mappable address: 48 bits, like a four-level IOMMU page table.
const LAST: u64 = (1 << 48) - 1;
/// Addresses that a PC keeps for interrupt messages.
const MESSAGE_WINDOW: RangeInclusive<u64> = 0xFEE0_0000..=0xFEEF_FFFF;

#[derive(Debug)]
struct Mapping {
    start: u64,
    memory: SharedMemory,
    access: DmaAccess,
}

impl Mapping {
    fn length(&self) -> u64 {
        self.memory.len() as u64
    }

    fn last(&self) -> u64 {
        self.start + (self.length() - 1)
    }

    const fn permits(&self, write: bool) -> bool {
        if write { self.access.device_writes() } else { self.access.device_reads() }
    }

    /// Offset of `at`; far beyond the end if it lies below the start.
    #[inline]
    fn offset(&self, at: u64) -> usize {
        usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX)
    }

    /// Reads if all of it lies here and may be read.
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.access.device_reads() && self.memory.view().read(self.offset(at), into).is_ok()
    }

    /// Writes if all of it lies here and may be written.
    #[inline]
    fn write(&self, at: u64, from: &[u8]) -> bool {
        if !self.access.device_writes() {
            return false;
        }
        match from.first_chunk() {
            Some(word) if from.len() == 4 => self.write_word(at, *word),
            _ => self.memory.view().write(self.offset(at), from).is_ok(),
        }
    }

    /// A lone word (write-back, event sequence) becomes visible after everything written before it.
    #[inline(never)]
    fn write_word(&self, at: u64, word: [u8; 4]) -> bool {
        let (memory, offset) = (self.memory.view(), self.offset(at));
        memory.store_u32_release(offset, u32::from_le_bytes(word)).is_ok()
            || memory.write(offset, &word).is_ok()
    }
}

/// The mappings that accesses of one kind hit last and before that, by position: a channel alternates between its
/// descriptors and its data, which may lie in mappings of their own.
#[derive(Clone, Copy, Debug)]
struct Recent {
    last: usize,
    before: usize,
}

impl Recent {
    const NONE: Self = Self { last: usize::MAX, before: usize::MAX };

    const fn swap(&mut self) {
        *self = Self { last: self.before, before: self.last };
    }

    const fn note(&mut self, position: usize) {
        if self.last != position {
            *self = Self { last: position, before: self.last };
        }
    }
}

/// The map, and the interrupts of the function, which is all that a card reaches of its host.
#[derive(Debug)]
pub(crate) struct HostSide {
    /// By address, without overlap.
    mappings: Vec<Mapping>,
    reads: Recent,
    writes: Recent,
    pub(crate) interrupts: Vec<InterruptTrigger>,
}

impl Default for HostSide {
    fn default() -> Self {
        Self { mappings: Vec::new(), reads: Recent::NONE, writes: Recent::NONE, interrupts: Vec::new() }
    }
}

/// The addresses that can be mapped.
pub(crate) fn ranges() -> Vec<RangeInclusive<Iova>> {
    let (first, last) = (*MESSAGE_WINDOW.start(), *MESSAGE_WINDOW.end());
    vec![Iova::ZERO..=Iova::new(first - 1), Iova::new(last + 1)..=Iova::new(LAST)]
}

impl HostSide {
    pub(crate) fn map(
        &mut self,
        iova: Iova,
        memory: &SharedMemory,
        access: DmaAccess,
    ) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        if !iova.is_aligned_to(PAGE) || length == 0 || !length.is_multiple_of(PAGE) {
            return Err(DmaMapError::Misaligned { iova, length, page: PAGE });
        }
        let start = iova.get();
        let last = start.checked_add(length - 1).filter(|last| *last <= LAST);
        let outside = DmaMapError::OutsideRanges { iova, length };
        let last = last.ok_or(outside)?;
        if start <= *MESSAGE_WINDOW.end() && last >= *MESSAGE_WINDOW.start() {
            return Err(outside);
        }
        // Mappings do not overlap, so if any reaches into this one, then the first that ends behind its start does.
        let position = self.mappings.partition_point(|mapping| mapping.last() < start);
        if self.mappings.get(position).is_some_and(|mapping| mapping.start <= last) {
            return Err(DmaMapError::Overlap { iova, length });
        }
        self.mappings.insert(position, Mapping { start, memory: memory.clone(), access });
        self.forget();
        Ok(())
    }

    pub(crate) fn unmap(&mut self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        match self.mappings.binary_search_by_key(&iova.get(), |mapping| mapping.start) {
            Ok(position) if self.mappings.get(position).is_some_and(|mapping| mapping.length() == length) => {
                self.mappings.remove(position);
                self.forget();
                Ok(())
            }
            _ => Err(DmaMapError::NotMapped { iova, length }),
        }
    }

    pub(crate) fn unmap_all(&mut self) {
        self.mappings.clear();
        self.forget();
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mappings.iter().map(Mapping::length).sum()
    }

    /// Positions have changed.
    const fn forget(&mut self) {
        (self.reads, self.writes) = (Recent::NONE, Recent::NONE);
    }

    /// The mapping that holds `at`.
    fn find(&self, at: u64) -> Option<usize> {
        let holds = |mapping: &Mapping| mapping.start <= at && at <= mapping.last();
        let position = self.mappings.partition_point(|mapping| mapping.last() < at);
        self.mappings.get(position).is_some_and(holds).then_some(position)
    }

    /// Calls `each` with every mapping that the access needs, the address in it, and the part of `0..length` that lies
    /// there; notes the first one.
    fn walk(
        &mut self,
        at: Iova,
        length: usize,
        write: bool,
        mut each: impl FnMut(&Mapping, u64, RangeInclusive<usize>) -> bool,
    ) -> Result<(), DmaFault> {
        let mut position = None;
        let mut done = 0;
        while done < length {
            let address = at.get().wrapping_add(done as u64);
            let fault = DmaFault { at: Iova::new(address), write };
            let here = match position {
                None => self.find(address),
                Some(previous) => Some(previous + 1),
            };
            let mapping = here.and_then(|here| self.mappings.get(here)).ok_or(fault)?;
            // Between neighbours may be a hole.
            let offset = address.checked_sub(mapping.start).ok_or(fault)?;
            let offset = usize::try_from(offset).map_err(|_| fault)?;
            let part = mapping.memory.len().saturating_sub(offset).min(length - done);
            if part == 0 || !mapping.permits(write) || !each(mapping, address, done..=done + part - 1) {
                return Err(fault);
            }
            if position.is_none()
                && let Some(here) = here
            {
                if write { &mut self.writes } else { &mut self.reads }.note(here);
            }
            position = here;
            done += part;
        }
        Ok(())
    }

    #[inline(never)]
    fn read_elsewhere(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        if self.mappings.get(self.reads.before).is_some_and(|mapping| mapping.read(at.get(), into)) {
            self.reads.swap();
            return Ok(());
        }
        self.walk(at, into.len(), false, |mapping, at, part| {
            into.get_mut(part).is_some_and(|part| mapping.read(at, part))
        })
    }

    #[inline(never)]
    fn write_elsewhere(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        if self.mappings.get(self.writes.before).is_some_and(|mapping| mapping.write(at.get(), from)) {
            self.writes.swap();
            return Ok(());
        }
        self.walk(at, from.len(), true, |mapping, at, part| {
            from.get(part).is_some_and(|part| mapping.write(at, part))
        })
    }
}

impl DmaSpace for HostSide {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        match self.mappings.get(self.reads.last) {
            Some(mapping) if mapping.read(at.get(), into) => Ok(()),
            _ => self.read_elsewhere(at, into),
        }
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        match self.mappings.get(self.writes.last) {
            Some(mapping) if mapping.write(at.get(), from) => Ok(()),
            _ => self.write_elsewhere(at, from),
        }
    }
}

impl HostPort for HostSide {
    fn interrupt(&mut self, interrupt: Interrupt) {
        // A driver in this process asks for MSI-X; nobody listens to a legacy line.
        let Interrupt::Msix(vector) = interrupt else { return };
        if let Some(trigger) = self.interrupts.get(usize::from(vector)) {
            trigger.signal();
        }
    }
}

#[cfg(test)]
mod tests;
