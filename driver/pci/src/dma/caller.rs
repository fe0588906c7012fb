//! Memory of the caller that is mapped for the device in place.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fpga_registers::Iova;

use super::{
    Allocation, AllocationOrigin, DmaPool, QuarantineReason, QuarantineRecord, RegisteredMemory, Shared,
    State,
};
use crate::memory::BaseAddress;
use crate::{DmaAccess, DmaAllocError, DmaMapError, SharedMemory};

/// Refusal to map memory of a caller. It returns the memory.
#[derive(Debug, thiserror::Error)]
#[error("{:#x} bytes of the caller's memory were not mapped for DMA: {error}", .memory.len())]
pub struct MapRefused {
    /// Reason.
    pub error: DmaAllocError,
    /// The memory, unchanged.
    pub memory: SharedMemory,
}

/// Memory of a caller that is mapped, being mapped, or kept until the process ends.
pub(super) struct CallerRegion {
    pub(super) memory: SharedMemory,
    pub(super) iova: Iova,
    /// The device may reach it until the process ends: it is never freed, and its addresses are never reused.
    pub(super) kept: bool,
}

impl DmaPool {
    /// Maps memory of the caller, such as one half of a shared-memory file or pages of a chosen size, so that the device reaches it in
    /// place: no copy through the pool's own memory is needed. It becomes a region of its own, from which nothing else is allocated.
    ///
    /// Dropping the returned value and its clones unmaps the memory and frees its addresses. Drop it only when the device is known to be
    /// idle, otherwise [quarantine](RegisteredMemory::quarantine) it: then it stays mapped and is leaked. Clones of `memory` that the caller
    /// has kept stay valid in both cases.
    ///
    /// The call takes system calls, and the kernel pins every page: map once, not per transfer. The memory does not count against
    /// [`DmaPoolOptions::limit`](super::DmaPoolOptions::limit), which limits the pool's own memory; the system's limit on locked memory
    /// applies. [`DmaPoolStats`](super::DmaPoolStats) counts it separately.
    ///
    /// A memory can be mapped only once per pool. Two [`SharedMemory`] values made from one file are different memories.
    ///
    /// # Errors
    /// The memory is returned with [`DmaAllocError::NotWholePages`], [`DmaAllocError::AlreadyMapped`] (quarantined memory stays mapped),
    /// [`DmaAllocError::AddressWidth`], [`DmaAllocError::Iova`] or [`DmaAllocError::Map`]. Nothing is mapped in this case.
    pub fn map(&self, memory: SharedMemory, access: DmaAccess) -> Result<RegisteredMemory, MapRefused> {
        let iova = match self.0.map_caller(&memory, access) {
            Ok(iova) => iova,
            Err(error) => return Err(MapRefused { error, memory }),
        };
        let (start, length) = (BaseAddress::of(memory.view()), memory.len());
        Ok(RegisteredMemory::new(Allocation {
            pool: Arc::clone(&self.0),
            origin: AllocationOrigin::Caller { memory: Box::new(memory) },
            start,
            iova,
            length,
            capacity: length,
            access,
            kept: AtomicBool::new(false),
        }))
    }
}

impl Shared {
    /// Maps memory of a caller. The lock is not held while the kernel pins pages, which takes long for much memory; the entry made before
    /// keeps other threads from mapping the same memory.
    fn map_caller(&self, memory: &SharedMemory, access: DmaAccess) -> Result<Iova, DmaAllocError> {
        self.process.check()?;
        let page = self.backend.dma_page_size();
        let length = memory.len();
        // Pointers have at most 64 bits.
        let start = memory.host_pointer().addr() as u64;
        if !(length as u64).is_multiple_of(page) || !start.is_multiple_of(page) {
            return Err(DmaAllocError::NotWholePages { length, page });
        }
        self.reachable(&self.lock())?;
        loop {
            let iova = self.lock().claim(memory, page)?;
            let Err(error) = self.backend.map_dma(iova, memory, access) else { return Ok(iova) };
            let mut state = self.lock();
            let removed = state.release_caller(iova);
            // A mapping of an earlier pool of this backend still exists: the range stays allocated, and another one is tried.
            if !matches!(error, DmaMapError::Overlap { .. }) {
                // Just allocated: releasing it cannot fail.
                let _ = state.space.release(iova, length as u64);
                drop(state);
                drop(removed);
                return Err(error.into());
            }
        }
    }

    /// Unmaps an area of a caller's memory.
    pub(super) fn unmap_caller(&self, iova: Iova, length: usize) {
        if let Err(error) = self.backend.unmap_dma(iova, length as u64) {
            tracing::error!(device = self.backend.name(), %iova, length, %error,
                "memory of the caller is leaked: it could not be unmapped");
            let at = self.backend.now();
            self.lock().quarantine_caller(iova, length, QuarantineReason::UnmapRefused, at);
            return;
        }
        let mut state = self.lock();
        let released = state.space.release(iova, length as u64);
        debug_assert!(released.is_ok(), "an area is given back once");
        let removed = state.release_caller(iova);
        drop(state);
        // This may be the last clone: unmapping it from the process must not happen under the lock.
        drop(removed);
    }
}

impl State {
    /// Allocates addresses for all of `memory`, and adds its entry.
    fn claim(&mut self, memory: &SharedMemory, page: u64) -> Result<Iova, DmaAllocError> {
        if let Some(region) = self.callers.iter().find(|region| region.memory.is_same(memory)) {
            return Err(DmaAllocError::AlreadyMapped { iova: region.iova, length: memory.len() });
        }
        let iova = self.addresses(memory.len() as u64, page)?;
        self.callers.push(CallerRegion { memory: memory.clone(), iova, kept: false });
        self.stats.caller_areas += 1;
        self.stats.caller_bytes += memory.len();
        Ok(iova)
    }

    /// Removes the entry, but keeps the addresses allocated.
    fn release_caller(&mut self, iova: Iova) -> Option<CallerRegion> {
        let index = self.callers.iter().position(|region| region.iova == iova)?;
        let region = self.callers.swap_remove(index);
        self.stats.caller_areas -= 1;
        self.stats.caller_bytes -= region.memory.len();
        Some(region)
    }

    /// Keeps the memory until the process ends, and records it in the statistics and the quarantine list.
    pub(super) fn quarantine_caller(&mut self, iova: Iova, length: usize, reason: QuarantineReason, at: u64) {
        if let Some(region) = self.callers.iter_mut().find(|region| region.iova == iova) {
            region.kept = true;
            self.stats.caller_areas -= 1;
            self.stats.caller_bytes -= length;
        }
        self.record(QuarantineRecord { iova, length, reason, at });
    }

    /// Quarantined bytes that are callers' memory.
    pub(super) fn callers_quarantined(&self) -> usize {
        self.callers.iter().filter(|region| region.kept).map(|region| region.memory.len()).sum()
    }
}

#[cfg(test)]
mod tests;
