//! The IOMMU of one card: which host memory it reaches at which address, looked up at every access.

use fpga_card::{DmaFault, DmaSpace, HostPort};
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
    readable: bool,
    writable: bool,
}

impl Mapping {
    fn length(&self) -> u64 {
        self.memory.len() as u64
    }

    const fn permits(&self, write: bool) -> bool {
        if write { self.writable } else { self.readable }
    }

    /// Offset of `at` in the memory, if `length` bytes from there on lie in it.
    #[inline]
    fn offset(&self, at: u64, length: usize) -> Option<usize> {
        let offset = usize::try_from(at.checked_sub(self.start)?).ok()?;
        (offset <= self.memory.len() && length <= self.memory.len() - offset).then_some(offset)
    }
}

/// The map, and the interrupts of the function, which is all that a card reaches of its host.
#[derive(Debug, Default)]
pub(crate) struct HostSide {
    /// By start address, none overlapping another.
    mappings: Vec<Mapping>,
    /// The mapping that was hit last, for reads and for writes. Looked at first: a hint, checked like any other.
    last: [usize; 2],
    pub(crate) interrupts: Vec<InterruptTrigger>,
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
        let place = self.mappings.partition_point(|mapping| mapping.start <= last);
        let below = place.checked_sub(1).and_then(|below| self.mappings.get(below));
        if below.is_some_and(|mapping| mapping.start + (mapping.length() - 1) >= start) {
            return Err(DmaMapError::Overlap { iova, length });
        }
        let (readable, writable) = (access.device_reads(), access.device_writes());
        self.mappings.insert(place, Mapping { start, memory: memory.clone(), readable, writable });
        Ok(())
    }

    pub(crate) fn unmap(&mut self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let found = self.mappings.binary_search_by_key(&iova.get(), |mapping| mapping.start);
        match found.ok().filter(|at| self.mappings.get(*at).is_some_and(|it| it.length() == length)) {
            Some(at) => {
                self.mappings.remove(at);
                Ok(())
            }
            None => Err(DmaMapError::NotMapped { iova, length }),
        }
    }

    pub(crate) fn unmap_all(&mut self) {
        self.mappings.clear();
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mappings.iter().map(Mapping::length).sum()
    }

    /// The memory of `length` bytes at `at`, if they lie in the mapping that was hit last.
    #[inline]
    fn hit(&self, at: u64, length: usize, write: bool) -> Option<(&SharedMemory, usize)> {
        let mapping = self.mappings.get(self.last[usize::from(write)])?;
        let offset = mapping.offset(at, length)?;
        mapping.permits(write).then_some((&mapping.memory, offset))
    }

    /// Calls `each` with memory, offset in it and the part of `0..length`, mapping by mapping.
    #[inline(never)]
    fn walk(
        &mut self,
        at: Iova,
        length: usize,
        write: bool,
        mut each: impl FnMut(&SharedMemory, usize, RangeInclusive<usize>) -> bool,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let address = at.get().wrapping_add(done as u64);
            let fault = DmaFault { at: Iova::new(address), write };
            let above = self.mappings.partition_point(|mapping| mapping.start <= address);
            let index = above.checked_sub(1).ok_or(fault)?;
            let mapping = self.mappings.get(index).ok_or(fault)?;
            let offset = mapping.offset(address, 0).ok_or(fault)?;
            let here = mapping.memory.len().saturating_sub(offset).min(length - done);
            if here == 0 || !mapping.permits(write) || !each(&mapping.memory, offset, done..=done + here - 1)
            {
                return Err(fault);
            }
            self.last[usize::from(write)] = index;
            done += here;
        }
        Ok(())
    }
}

/// A lone word (write-back, event sequence) becomes visible after everything written before it.
#[inline]
fn store(memory: &SharedMemory, offset: usize, from: &[u8]) -> bool {
    match from {
        [a, b, c, d] if offset.is_multiple_of(4) => {
            memory.store_u32_release(offset, u32::from_le_bytes([*a, *b, *c, *d])).is_ok()
        }
        _ => memory.write(offset, from).is_ok(),
    }
}

impl DmaSpace for HostSide {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        if let Some((memory, offset)) = self.hit(at.get(), into.len(), false)
            && memory.read(offset, into).is_ok()
        {
            return Ok(());
        }
        self.walk(at, into.len(), false, |memory, offset, part| {
            into.get_mut(part).is_some_and(|part| memory.read(offset, part).is_ok())
        })
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        if let Some((memory, offset)) = self.hit(at.get(), from.len(), true)
            && store(memory, offset, from)
        {
            return Ok(());
        }
        self.walk(at, from.len(), true, |memory, offset, part| {
            from.get(part).is_some_and(|part| store(memory, offset, part))
        })
    }
}

impl HostPort for HostSide {
    fn interrupt(&mut self, vector: u16) {
        if let Some(trigger) = self.interrupts.get(usize::from(vector)) {
            trigger.signal();
        }
    }
}
