//! IOMMU of one card: the host memory that the card reaches, by address, looked up at every access.
//!
//! Most accesses go to the same mapping as the previous one of their kind, so that mapping is tried first. An access that does not lie
//! entirely in that mapping uses the slow path, which alone decides about faults. The slow path is designed for a million mappings: an
//! index finds aligned blocks (module `blocks`), such as single pages; a tree holds all mappings by address. Both are updated at every
//! change, which also clears the cached mappings.

mod backing;
mod blocks;
mod leaf;
mod reuse;
mod slot_array;

use backing::{Backing, Backings};
pub use backing::{FileError, RemoteMemory};
use blocks::{Blocks, LEAF_BYTES, MIN_LEAF_PAGES};
use fpga_card::{DmaFault, DmaPart, DmaSpace};
use fpga_pci::memory::{Span, gather, page_kind, scatter};
use fpga_pci::{DmaAccess, DmaMapError, OsError, SharedMemory, SharedSlice};
use fpga_registers::Iova;
use fpga_registers::invariant::DebugExpect as _;
use reuse::ReuseTracker;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Granule of mappings.
pub(crate) const PAGE: u64 = 4096;
/// Highest mappable address: 48 bits, like a four-level IOMMU page table.
const LAST: u64 = (1 << 48) - 1;
/// Maximum number of mappings of a client: each needs a few hundred bytes of this process. A guest that maps 8 GiB by pages has as many.
const MAX_CLIENT_MAPPINGS: usize = 1 << 21;
/// Addresses that a PC reserves for interrupt messages.
const MESSAGE_WINDOW: RangeInclusive<u64> = 0xFEE0_0000..=0xFEEF_FFFF;

/// Mapping at some address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// Length in bytes.
    length: u64,
    /// Number of the memory that contains the mapping.
    slot: u32,
    /// Offset of the mapping's first byte in that memory.
    offset: u64,
    access: DmaAccess,
}

impl Extent {
    const fn permits(&self, write: bool) -> bool {
        if write { self.access.device_writes() } else { self.access.device_reads() }
    }
}

/// Cached mapping: permits accesses of the kind that it is cached for.
#[derive(Debug)]
struct CachedMapping {
    start: u64,
    memory: SharedMemory,
}

impl CachedMapping {
    /// Offset of `at` in the mapping; far beyond the end if `at` lies below the start.
    #[inline]
    fn offset(&self, at: u64) -> usize {
        usize::try_from(at.wrapping_sub(self.start)).unwrap_or(usize::MAX)
    }

    /// Reads if the whole range lies in this mapping.
    #[inline]
    fn read(&self, at: u64, into: &mut [u8]) -> bool {
        self.memory.view().read(self.offset(at), into).is_ok()
    }

    /// Returns the memory of the part if the whole part lies in this mapping.
    fn stretch(&self, part: &DmaPart) -> Option<Span<'_>> {
        let shared = self.memory.view().slice(self.offset(part.at.get()), part.length).ok()?;
        Some(Span { shared, offset: part.offset })
    }

    /// Writes if the whole range lies in this mapping.
    #[inline]
    fn write(&self, at: u64, from: &[u8]) -> bool {
        store(self.memory.view(), self.offset(at), from)
    }
}

/// Writes if the whole range lies in `memory`.
#[inline]
fn store(memory: SharedSlice<'_>, offset: usize, from: &[u8]) -> bool {
    match from.first_chunk() {
        Some(word) if from.len() == 4 => store_word(memory, offset, *word),
        _ => memory.write(offset, from).is_ok(),
    }
}

/// Stores a single word (write-back, event sequence). It becomes visible after everything written before it.
#[inline(never)]
fn store_word(memory: SharedSlice<'_>, offset: usize, word: [u8; 4]) -> bool {
    memory.store_u32_release(offset, u32::from_le_bytes(word)).is_ok() || memory.write(offset, &word).is_ok()
}

/// The last two mappings that accesses of one kind used: a channel alternates between its descriptors and its data, which may be in
/// separate mappings.
#[derive(Debug, Default)]
struct MappingCache {
    last: Option<CachedMapping>,
    before: Option<CachedMapping>,
    /// Start of the single page that the last look-up returned.
    page: u64,
}

impl MappingCache {
    const fn swap(&mut self) {
        std::mem::swap(&mut self.last, &mut self.before);
    }

    /// Returns the cached mapping that holds all of `part`, and makes it the most recent one. A single descriptor is read before its data,
    /// so the data is usually in the older mapping.
    fn cached_window(&mut self, part: &DmaPart) -> Option<&CachedMapping> {
        let holds = |window: &Option<CachedMapping>| {
            window.as_ref().is_some_and(|window| window.stretch(part).is_some())
        };
        if !holds(&self.last) {
            if !holds(&self.before) {
                return None;
            }
            self.swap();
        }
        self.last.as_ref()
    }

    fn note(&mut self, window: CachedMapping) {
        self.before = self.last.replace(window);
    }

    /// Whether a mapping is worth caching. A single page is cached at the second hit: where everything is mapped by pages, hardly any page
    /// is hit twice, and caching it costs more than finding it.
    #[inline]
    fn is_cacheable(&mut self, start: u64, length: u64) -> bool {
        length > PAGE || std::mem::replace(&mut self.page, start) == start
    }
}

/// Number of accesses that the map refused since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedAccesses {
    /// Reads of host memory, descriptor fetches among them.
    pub reads: u64,
    /// Writes of host memory.
    pub writes: u64,
}

/// Host memory that a card reaches: mappings by address, each a part of some memory, with the card's access rights.
///
/// The same structure serves cards in this process (the driver maps its own memory) and cards that are served to another process
/// (the client passes files). It is designed for a million mappings of one page each.
#[derive(Debug, Default)]
pub struct DmaMap {
    reads: MappingCache,
    writes: MappingCache,
    /// Mappings by first address, without overlap.
    extents: BTreeMap<u64, Extent>,
    /// Those of the mappings that are aligned blocks.
    blocks: Blocks,
    backings: Backings,
    /// Whether data for the card, and data for the host, should bypass the caches.
    into_card: ReuseTracker,
    into_host: ReuseTracker,
    mapped: u64,
    refused: RefusedAccesses,
}

/// Address ranges that can be mapped.
pub(crate) fn ranges() -> Vec<RangeInclusive<Iova>> {
    let (first, last) = (*MESSAGE_WINDOW.start(), *MESSAGE_WINDOW.end());
    vec![Iova::ZERO..=Iova::new(first - 1), Iova::new(last + 1)..=Iova::new(LAST)]
}

/// Memory that a client lets the card reach.
#[derive(Debug)]
#[non_exhaustive]
pub enum ClientMemory {
    /// Part of a file, from this byte on.
    File(OwnedFd, u64),
    /// Memory without a file: the client is asked for each access.
    Remote(Arc<dyn RemoteMemory>),
    /// Memory without a file of a client that cannot be asked.
    Unreachable,
}

/// Reason why a client's memory is not mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientMapError {
    /// The address range cannot be mapped.
    #[error(transparent)]
    Address(#[from] DmaMapError),
    /// The file cannot be mapped.
    #[error(transparent)]
    File(#[from] FileError),
}

impl DmaMap {
    /// Maps all of `memory`, which belongs to this process, at `iova`.
    ///
    /// # Errors
    /// [`DmaMapError`]; nothing is mapped then.
    pub fn map(&mut self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        let (start, last) = self.place(iova, length)?;
        if start <= *MESSAGE_WINDOW.end() && last >= *MESSAGE_WINDOW.start() {
            return Err(DmaMapError::OutsideRanges { iova, length });
        }
        let slot = self.backings.own(Backing::Mapped(memory.clone()));
        let source = OsError::from(rustix::io::Errno::NOSPC);
        let slot = slot.map_err(|_| DmaMapError::LimitReached { iova, length, source })?;
        self.insert(start, Extent { length, slot, offset: 0, access });
        Ok(())
    }

    /// Maps `length` bytes of a client in another process. The client chooses the addresses: the range of the interrupt messages is not
    /// excluded.
    ///
    /// # Errors
    /// [`ClientMapError`]; nothing is mapped then, and the descriptor is closed.
    pub fn map_client(
        &mut self,
        iova: Iova,
        length: u64,
        memory: ClientMemory,
        access: DmaAccess,
    ) -> Result<(), ClientMapError> {
        let (start, _) = self.place(iova, length)?;
        if self.extents.len() >= MAX_CLIENT_MAPPINGS {
            let source = OsError::from(rustix::io::Errno::NOSPC);
            return Err(DmaMapError::LimitReached { iova, length, source }.into());
        }
        let (slot, offset) = match memory {
            ClientMemory::File(file, offset) => (self.backings.file(file, offset, length, access)?, offset),
            ClientMemory::Remote(memory) => (self.backings.remote(memory)?, start),
            ClientMemory::Unreachable => (self.backings.own(Backing::Nothing)?, 0),
        };
        self.insert(start, Extent { length, slot, offset, access });
        Ok(())
    }

    /// Returns the first and last address if the range can be mapped.
    fn place(&self, iova: Iova, length: u64) -> Result<(u64, u64), DmaMapError> {
        if !iova.is_aligned_to(PAGE) || length == 0 || !length.is_multiple_of(PAGE) {
            return Err(DmaMapError::Misaligned { iova, length, page: PAGE });
        }
        let start = iova.get();
        let last = start.checked_add(length - 1).filter(|last| *last <= LAST);
        let last = last.ok_or(DmaMapError::OutsideRanges { iova, length })?;
        // Mappings do not overlap: if any mapping overlaps the new one, so does the last one that starts before its end.
        if self
            .extents
            .range(..=last)
            .next_back()
            .is_some_and(|(at, extent)| at + (extent.length - 1) >= start)
        {
            return Err(DmaMapError::Overlap { iova, length });
        }
        Ok((start, last))
    }

    /// Returns the memory whose owner is asked for each access, if any is mapped.
    #[inline]
    pub(crate) fn remote_memory(&self) -> Option<&Arc<dyn RemoteMemory>> {
        self.backings.remote_memory()
    }

    fn insert(&mut self, start: u64, extent: Extent) {
        self.extents.insert(start, extent);
        if self.blocks.insert(start, &extent) {
            self.gather(start, extent.slot);
        }
        self.mapped += extent.length;
        self.forget();
    }

    /// Creates a leaf for the pages around `at`, if enough of them are parts of this memory.
    fn gather(&mut self, at: u64, slot: u32) {
        let first = at & !(LEAF_BYTES - 1);
        let around = self.extents.range(first..first + LEAF_BYTES).map(|(start, extent)| (*start, extent));
        let pages = around.filter(|(_, extent)| extent.length == PAGE && extent.slot == slot);
        if pages.clone().take(MIN_LEAF_PAGES).count() == MIN_LEAF_PAGES {
            self.blocks.gather(at, slot, pages);
        }
    }

    fn remove(&mut self, start: u64) {
        if let Some(extent) = self.extents.remove(&start) {
            self.blocks.remove(start, extent.length);
            self.backings.release(extent.slot);
            self.mapped -= extent.length;
        }
        self.forget();
    }

    /// Removes one mapping with this start and length.
    ///
    /// # Errors
    /// [`DmaMapError::NotMapped`].
    pub fn unmap(&mut self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let start = iova.get();
        if self.extents.get(&start).is_none_or(|extent| extent.length != length) {
            return Err(DmaMapError::NotMapped { iova, length });
        }
        self.remove(start);
        Ok(())
    }

    /// Removes every mapping in the `length` bytes from `iova`, as the kernel's type 1 IOMMU version 2 does: a guest that drops a
    /// whole address space unmaps large ranges without regard to the single mappings. Returns the number of bytes that were mapped,
    /// which may be 0.
    ///
    /// # Errors
    /// [`DmaMapError::NotMapped`] if only a part of some mapping lies in the range, or the range is invalid. Nothing changes then.
    pub fn unmap_range(&mut self, iova: Iova, length: u64) -> Result<u64, DmaMapError> {
        let start = iova.get();
        let refusal = DmaMapError::NotMapped { iova, length };
        let last = start.checked_add(length.checked_sub(1).ok_or(refusal)?).ok_or(refusal)?;
        let end_of = |at: u64, extent: &Extent| at + (extent.length - 1);
        let before = self.extents.range(..start).next_back();
        if before.is_some_and(|(at, extent)| end_of(*at, extent) >= start)
            || self
                .extents
                .range(start..=last)
                .next_back()
                .is_some_and(|(at, extent)| end_of(*at, extent) > last)
        {
            return Err(refusal);
        }
        let before = self.mapped;
        while let Some((at, _)) = self.extents.range(start..=last).next() {
            let at = *at;
            self.remove(at);
        }
        Ok(before - self.mapped)
    }

    /// Removes all mappings.
    pub fn unmap_all(&mut self) {
        self.extents.clear();
        self.blocks.clear();
        self.backings.clear();
        self.mapped = 0;
        self.forget();
    }

    /// Returns the number of mapped bytes.
    #[must_use]
    pub const fn mapped_bytes(&self) -> u64 {
        self.mapped
    }

    /// Returns the number of refused accesses so far.
    #[must_use]
    pub const fn refused(&self) -> RefusedAccesses {
        self.refused
    }

    /// Returns the number of mappings and number of memories.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.extents.len(), self.backings.len())
    }

    /// Clears the cached mappings after a change of the map.
    fn forget(&mut self) {
        (self.reads, self.writes) = (MappingCache::default(), MappingCache::default());
    }

    /// Returns the mapping that holds `at`, and its start.
    #[inline]
    fn find(&self, at: u64) -> Option<(u64, Extent)> {
        self.blocks.find(at).or_else(|| {
            let (start, extent) = self.extents.range(..=at).next_back()?;
            (at - start < extent.length).then_some((*start, *extent))
        })
    }

    /// Calls `each` for every memory that the access spans, with the offset in it and the part of `0..length` that lies there. `each`
    /// returns the number of bytes that it has processed. Caches the first mapping.
    fn walk(
        &mut self,
        at: Iova,
        length: usize,
        write: bool,
        mut each: impl FnMut(&Backing, u64, RangeInclusive<usize>) -> usize,
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let address = at.get().wrapping_add(done as u64);
            let found = self.find(address).filter(|(_, extent)| extent.permits(write));
            let found = found.and_then(|found| Some((found, self.backings.get(found.1.slot)?)));
            let Some(((start, extent), backing)) = found else { return Err(self.refuse(address, write)) };
            let inside = address - start;
            let rest = usize::try_from(extent.length - inside).unwrap_or(usize::MAX);
            let part = rest.min(length - done);
            let got = each(backing, extent.offset + inside, done..=done + part - 1);
            if got != part {
                return Err(self.refuse(address.wrapping_add(got as u64), write));
            }
            let recent = if write { &mut self.writes } else { &mut self.reads };
            if done == 0
                && recent.is_cacheable(start, extent.length)
                && let Backing::Mapped(memory) = backing
                && let (Ok(offset), Ok(length)) =
                    (usize::try_from(extent.offset), usize::try_from(extent.length))
                && let Ok(memory) = memory.part(offset, length)
            {
                recent.note(CachedMapping { start, memory });
            }
            done += part;
        }
        Ok(())
    }

    /// Caches the mapping that holds all of `part` if no cached one does: with many channels, each has its own mapping. Returns whether one
    /// is cached now, as the most recent one.
    fn cache_window(&mut self, part: &DmaPart, write: bool) -> bool {
        let recent = if write { &mut self.writes } else { &mut self.reads };
        if recent.cached_window(part).is_some() {
            return true;
        }
        let found = self.find(part.at.get()).filter(|(_, extent)| extent.permits(write));
        let memory = found.and_then(|(start, extent)| {
            let Some(Backing::Mapped(memory)) = self.backings.get(extent.slot) else { return None };
            let (offset, length) =
                (usize::try_from(extent.offset).ok()?, usize::try_from(extent.length).ok()?);
            Some(CachedMapping { start, memory: memory.part(offset, length).ok()? })
        });
        let Some(window) = memory.filter(|window| window.stretch(part).is_some()) else { return false };
        let recent = if write { &mut self.writes } else { &mut self.reads };
        recent.note(window);
        true
    }

    #[cold]
    const fn refuse(&mut self, at: u64, write: bool) -> DmaFault {
        *(if write { &mut self.refused.writes } else { &mut self.refused.reads }) += 1;
        DmaFault { at: Iova::new(at), write }
    }

    #[inline(never)]
    fn read_elsewhere(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        if self.reads.before.as_ref().is_some_and(|window| window.read(at.get(), into)) {
            self.reads.swap();
            return Ok(());
        }
        self.walk(at, into.len(), false, |backing, offset, part| {
            into.get_mut(part).map_or(0, |part| backing.read(offset, part))
        })
    }

    #[inline(never)]
    fn write_elsewhere(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        if self.writes.before.as_ref().is_some_and(|window| window.write(at.get(), from)) {
            self.writes.swap();
            return Ok(());
        }
        self.walk(at, from.len(), true, |backing, offset, part| {
            from.get(part).map_or(0, |part| backing.write(offset, part))
        })
    }
}

impl DmaSpace for DmaMap {
    #[inline]
    fn read(&mut self, at: Iova, into: &mut [u8]) -> Result<(), DmaFault> {
        match &self.reads.last {
            Some(window) if window.read(at.get(), into) => Ok(()),
            _ => self.read_elsewhere(at, into),
        }
    }

    #[inline]
    fn write(&mut self, at: Iova, from: &[u8]) -> Result<(), DmaFault> {
        match &self.writes.last {
            Some(window) if window.write(at.get(), from) => Ok(()),
            _ => self.write_elsewhere(at, from),
        }
    }

    fn read_parts(&mut self, parts: &[DmaPart], memory: &mut [u8]) -> Result<(), (usize, DmaFault)> {
        let base = memory.as_ptr().addr();
        let streams =
            self.into_card.note(parts.iter().map(|part| (base.wrapping_add(part.offset), part.length)));
        let mut done = 0;
        while let Some(part) = parts.get(done) {
            if streams
                && self.cache_window(part, false)
                && let Some(window) = &self.reads.last
            {
                let near = parts.get(done..).unwrap_or_default();
                let count = gather(
                    memory,
                    page_kind(&window.memory),
                    near.iter().map_while(|part| window.stretch(part)),
                );
                if count > 0 {
                    done += count;
                    continue;
                }
            }
            let into = memory.get_mut(part.range()).debug_expect("a part of the memory").unwrap_or_default();
            self.read(part.at, into).map_err(|fault| (done, fault))?;
            done += 1;
        }
        Ok(())
    }

    fn write_parts(&mut self, parts: &[DmaPart], memory: &[u8]) -> Result<(), (usize, DmaFault)> {
        let address = |part: &DmaPart| usize::try_from(part.at.get()).unwrap_or(0);
        let streams = self.into_host.note(parts.iter().map(|part| (address(part), part.length)));
        let mut done = 0;
        while let Some(part) = parts.get(done) {
            if streams
                && self.cache_window(part, true)
                && let Some(window) = &self.writes.last
            {
                let near = parts.get(done..).unwrap_or_default();
                let count = scatter(
                    memory,
                    page_kind(&window.memory),
                    near.iter().map_while(|part| window.stretch(part)),
                );
                if count > 0 {
                    done += count;
                    continue;
                }
            }
            let from = memory.get(part.range()).debug_expect("a part of the memory").unwrap_or_default();
            self.write(part.at, from).map_err(|fault| (done, fault))?;
            done += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
