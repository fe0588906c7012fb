//! The IOMMU of one card: which host memory it reaches at which address, looked up at every access.

use fpga_card::{DmaFault, DmaSpace, HostPort};
use fpga_pci::{DmaAccess, DmaMapError, InterruptTrigger, SharedMemory};
use fpga_registers::Iova;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Granule of mappings.
pub(crate) const PAGE: u64 = 4096;
/// Highest mappable address: 48 bits, like a four-level IOMMU page table.
const LAST: u64 = (1 << 48) - 1;
/// Addresses that a PC keeps for interrupt messages.
const MESSAGE_WINDOW: RangeInclusive<u64> = 0xFEE0_0000..=0xFEEF_FFFF;

#[derive(Debug)]
struct Mapping {
    memory: SharedMemory,
    access: DmaAccess,
}

impl Mapping {
    fn length(&self) -> u64 {
        self.memory.len() as u64
    }
}

/// The map, and the interrupts of the function, which is all that a card reaches of its host.
#[derive(Debug, Default)]
pub(crate) struct HostSide {
    mappings: BTreeMap<u64, Mapping>,
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
        let below = self.mappings.range(..=last).next_back();
        if below.is_some_and(|(at, mapping)| at + (mapping.length() - 1) >= start) {
            return Err(DmaMapError::Overlap { iova, length });
        }
        self.mappings.insert(start, Mapping { memory: memory.clone(), access });
        Ok(())
    }

    pub(crate) fn unmap(&mut self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        match self.mappings.get(&iova.get()) {
            Some(mapping) if mapping.length() == length => {
                self.mappings.remove(&iova.get());
                Ok(())
            }
            _ => Err(DmaMapError::NotMapped { iova, length }),
        }
    }

    pub(crate) fn unmap_all(&mut self) {
        self.mappings.clear();
    }

    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.mappings.values().map(Mapping::length).sum()
    }

    /// Calls `each` with memory, offset in it and the part of `0..length`, mapping by mapping.
    fn walk(
        &self,
        at: Iova,
        length: usize,
        write: bool,
        mut each: impl FnMut(&SharedMemory, usize, RangeInclusive<usize>) -> bool,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let address = at.get().wrapping_add(done as u64);
            let fault = DmaFault { at: Iova::new(address), write };
            let (start, mapping) = self.mappings.range(..=address).next_back().ok_or(fault)?;
            let allowed = if write { mapping.access.device_writes() } else { mapping.access.device_reads() };
            let offset = usize::try_from(address - start).map_err(|_| fault)?;
            let here = mapping.memory.len().saturating_sub(offset).min(length - done);
            if here == 0 || !allowed || !each(&mapping.memory, offset, done..=done + here - 1) {
                return Err(fault);
            }
            done += here;
        }
        Ok(())
    }
}

impl DmaSpace for HostSide {
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        self.walk(at, into.len(), false, |memory, offset, part| {
            into.get_mut(part).is_some_and(|part| memory.read(offset, part).is_ok())
        })
    }

    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        self.walk(at, from.len(), true, |memory, offset, part| {
            // A lone word (write-back, event sequence) becomes visible after everything written before it.
            match from.get(part) {
                Some([a, b, c, d]) if offset.is_multiple_of(4) => {
                    memory.store_u32_release(offset, u32::from_le_bytes([*a, *b, *c, *d])).is_ok()
                }
                Some(part) => memory.write(offset, part).is_ok(),
                None => false,
            }
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
