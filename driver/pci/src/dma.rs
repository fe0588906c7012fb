//! DMA memory: large regions that are mapped once and handed out as owned allocations.
//!
//! A [`DmaPool`] maps regions through its backend and never unmaps one while an allocation of it exists. Regions without allocations stay
//! mapped for the next one. They are unmapped when a further region would exceed the limit, or cannot be mapped. An allocation is either
//!
//! * a [`DmaBuffer`], owned by the host. It *moves* into a transfer, so that no thread reads it while the device writes it; it comes back
//!   with the completion, the refusal or the failure; or
//! * a [`RegisteredMemory`], shared with the device for its whole lifetime (rings, write-backs, event queues, buffers of several channels).
//!
//! Neither is ever a `&[u8]` or a `&mut [u8]`: the device can reach both as long as they are mapped, and a faulty device or a hostile
//! server process writes to wrong addresses. They offer copies, which are as fast as `memcpy`, atomic words, and [`SharedSlice`]s, which
//! streams read and write without a copy ([`ReadVolatile`](crate::ReadVolatile)).
//!
//! Memory that the caller has mapped itself can become registered memory as well: [`DmaPool::map`].
//!
//! Both return to the pool when dropped. Allocating from existing regions and freeing does not touch the heap, except for the block that the
//! clones of registered memory share.
//!
//! # When the device may still write
//!
//! If it cannot be confirmed that the device has finished with an allocation, it must not be dropped but
//! [quarantined](DmaPool::quarantine): its memory and its addresses are then never reused and never unmapped, and the pool reports it.
//!
//! # When a pool is dropped
//!
//! Existing allocations keep the pool's regions, mappings and backend alive until the last one is dropped. A region with quarantined
//! allocations (and a region that the system refuses to unmap) is leaked: neither unmapped nor freed until the process ends.

use core::fmt;
use core::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fpga_registers::Iova;

use crate::iova::FreeRanges;
use crate::memory::BaseAddress;
use crate::{
    Backend, DmaAccess, DmaAllocError, DmaMapError, FAULT_LOG, HugePages, IovaAllocator, IovaError,
    MemoryError, Process, SharedMemory, SharedSlice, lock,
};

mod caller;
mod quarantine;

use caller::CallerRegion;
pub use caller::MapRefused;
pub use quarantine::{QuarantineReason, QuarantineRecord};

/// Granule of allocations in bytes, for their start and their length: one cache line, so that bytes written by the device never share a
/// line with bytes written by the host.
const UNIT: usize = 64;

/// Options of a DMA pool.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct DmaPoolOptions {
    /// Bytes per region; larger requests get a region of their own. Default 4 MiB.
    pub region_size: usize,
    /// Maximum number of bytes that the pool maps, without memory of callers. Regions without allocations are unmapped when it is reached.
    /// Default 256 MiB.
    pub limit: usize,
    /// Requested page size. Default: [`HugePages::Transparent`], large pages if the kernel has some: they need fewer entries in the TLBs of
    /// processor and IOMMU.
    pub huge: HugePages,
    /// Permitted accesses of the device to memory from [`DmaPool::allocate`]. Default: read and write.
    pub access: DmaAccess,
    /// Number of address bits of the device: it gets no address that needs more. Default 64 (XDMA).
    pub address_bits: u32,
}

impl Default for DmaPoolOptions {
    fn default() -> Self {
        Self {
            region_size: 4 << 20,
            limit: 256 << 20,
            huge: HugePages::Transparent,
            access: DmaAccess::Both,
            address_bits: 64,
        }
    }
}

/// Current contents of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DmaPoolStats {
    /// Regions mapped.
    pub regions: usize,
    /// Bytes mapped.
    pub mapped_bytes: usize,
    /// Allocations in use: buffers and registered memory.
    pub in_use: usize,
    /// Bytes in use.
    pub in_use_bytes: usize,
    /// Areas of callers' memory ([`DmaPool::map`]) that are mapped; not included in the fields above.
    pub caller_areas: usize,
    /// Bytes of callers' memory that are mapped.
    pub caller_bytes: usize,
    /// Allocations in quarantine, including areas of callers' memory.
    pub quarantined: usize,
    /// Bytes in quarantine.
    pub quarantined_bytes: usize,
}

/// Contiguous range of device addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IovaRange {
    /// First address.
    pub iova: Iova,
    /// Length in bytes.
    pub length: u64,
}

/// Pool of DMA memory for one device. Clones are handles to the same pool. After a fork the child allocates nothing
/// ([`DmaAllocError::OtherProcess`]), and dropping memory there neither unmaps nor reuses it.
#[derive(Clone)]
pub struct DmaPool(Arc<Shared>);

struct Shared {
    backend: Arc<dyn Backend>,
    options: DmaPoolOptions,
    state: Mutex<State>,
    process: Process,
}

struct State {
    space: IovaAllocator,
    /// First address that the IOMMU permits, if the device has too few address bits for all permitted ones.
    beyond: Option<Iova>,
    /// Regions by number; `None` where one was unmapped, until another one takes the number.
    regions: Vec<Option<Region>>,
    callers: Vec<CallerRegion>,
    stats: DmaPoolStats,
    quarantine: Vec<QuarantineRecord>,
}

struct Region {
    memory: SharedMemory,
    iova: Iova,
    access: DmaAccess,
    free: FreeRanges,
    /// Holds quarantined allocations: never to be unmapped.
    tainted: bool,
}

impl fmt::Debug for DmaPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DmaPool")
            .field("device", &self.0.backend.name())
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl DmaPool {
    /// Creates a pool that has mapped nothing yet.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>, options: DmaPoolOptions) -> Self {
        let page = backend.dma_page_size().max(1);
        let highest = match options.address_bits {
            bits @ 0..64 => (1_u64 << bits) - 1,
            _ => u64::MAX,
        };
        // Address 0 is excluded: a descriptor field that was not filled in must not hit memory.
        let ranges = backend.iova_ranges();
        let usable: Vec<_> = ranges.iter().filter_map(|range| whole_pages(range, page, highest)).collect();
        let beyond = ranges.first().map(|range| *range.start());
        // Ranges without a whole page are a different case: more address bits would not help.
        let beyond = beyond.filter(|first| usable.is_empty() && first.get() > highest);
        let state = State {
            space: IovaAllocator::new(usable),
            beyond,
            regions: Vec::new(),
            callers: Vec::new(),
            stats: DmaPoolStats::default(),
            quarantine: Vec::new(),
        };
        Self(Arc::new(Shared { backend, options, state: Mutex::new(state), process: Process::current() }))
    }

    /// Allocates a buffer of `length` bytes that starts at a multiple of 64. Its content is unspecified.
    ///
    /// Maps another region if none has space, which takes system calls; see [`reserve`](Self::reserve).
    ///
    /// # Errors
    /// See [`DmaAllocError`].
    pub fn allocate(&self, length: usize) -> Result<DmaBuffer, DmaAllocError> {
        self.allocate_aligned(length, UNIT)
    }

    /// As [`allocate`](Self::allocate), in memory where the device has only the permissions `access`: a source that it can only read, or a
    /// target that it can only write, is protected from a faulty device. Such memory has regions of its own.
    ///
    /// # Errors
    /// See [`DmaAllocError`].
    pub fn allocate_for(&self, length: usize, access: DmaAccess) -> Result<DmaBuffer, DmaAllocError> {
        self.piece(length, UNIT, access)
    }

    /// As [`allocate`](Self::allocate), at an address (host and device) that is a multiple of `alignment`, a power
    /// of two of at most the page size.
    ///
    /// # Errors
    /// See [`DmaAllocError`].
    pub fn allocate_aligned(&self, length: usize, alignment: usize) -> Result<DmaBuffer, DmaAllocError> {
        self.piece(length, alignment, self.0.options.access)
    }

    fn piece(&self, length: usize, alignment: usize, access: DmaAccess) -> Result<DmaBuffer, DmaAllocError> {
        let largest = self.page();
        let capacity = length.checked_next_multiple_of(UNIT).filter(|_| length != 0);
        let Some(capacity) = capacity.filter(|_| alignment.is_power_of_two() && alignment <= largest) else {
            return Err(DmaAllocError::BadRequest { length, alignment, largest });
        };
        let alignment = alignment.max(UNIT);
        self.0.process.check()?;
        let mut state = self.0.lock();
        let (region, offset) = match state.take(capacity, alignment, access) {
            Some(place) => place,
            None => {
                self.0.grow(&mut state, capacity, access, None)?;
                state.take(capacity, alignment, access).ok_or_else(|| self.0.exhausted(&state, capacity))?
            }
        };
        let exhausted = || self.0.exhausted(&state, capacity);
        let origin = state.regions.get(region).and_then(Option::as_ref).ok_or_else(exhausted)?;
        // Free ranges of the region lie inside its memory; this is checked once for the whole lifetime of the allocation.
        let start = BaseAddress::of(origin.memory.view().slice(offset, capacity)?);
        // The sum stays inside the region, whose end was checked when it was mapped.
        let iova = Iova::new(origin.iova.get() + offset as u64);
        state.stats.in_use += 1;
        state.stats.in_use_bytes += capacity;
        Ok(DmaBuffer(Allocation {
            pool: Arc::clone(&self.0),
            origin: AllocationOrigin::Region { number: region },
            start,
            iova,
            length,
            capacity,
            access,
            kept: AtomicBool::new(false),
        }))
    }

    /// Allocates zeroed memory that stays shared with the device: for rings and write-backs.
    ///
    /// # Errors
    /// See [`DmaAllocError`].
    pub fn allocate_registered(
        &self,
        length: usize,
        alignment: usize,
    ) -> Result<RegisteredMemory, DmaAllocError> {
        let mut buffer = self.allocate_aligned(length, alignment)?;
        buffer.fill(0);
        Ok(buffer.into_registered())
    }

    /// Maps regions until at least `bytes` are free, so that later allocations take no system call (unless the free ranges are too small).
    ///
    /// # Errors
    /// See [`DmaAllocError`]; regions that were mapped until then stay.
    pub fn reserve(&self, bytes: usize) -> Result<(), DmaAllocError> {
        let access = self.0.options.access;
        self.0.process.check()?;
        let mut state = self.0.lock();
        loop {
            let regions = state.regions.iter().flatten().filter(|region| region.access == access);
            let free = regions.fold(0, |sum: u64, region| sum.saturating_add(region.free.total()));
            let missing = (bytes as u64).saturating_sub(free);
            if missing == 0 {
                return Ok(());
            }
            self.0.grow(&mut state, UNIT, access, Some(access))?;
        }
    }

    /// Quarantines a buffer because the device may still access it. Its memory and addresses are never reused and never unmapped.
    pub fn quarantine(&self, buffer: DmaBuffer, reason: QuarantineReason) {
        buffer.quarantine(reason);
    }

    /// Lists all quarantined memory, oldest first. Empty in another process than the pool's.
    #[must_use]
    pub fn quarantined(&self) -> Vec<QuarantineRecord> {
        if !self.0.process.is_current() {
            return Vec::new();
        }
        self.0.lock().quarantine.clone()
    }

    /// Returns the current contents of the pool; zeros in another process than the pool's.
    #[must_use]
    pub fn stats(&self) -> DmaPoolStats {
        if !self.0.process.is_current() {
            return DmaPoolStats::default();
        }
        self.0.lock().stats
    }

    fn page(&self) -> usize {
        usize::try_from(self.0.backend.dma_page_size()).unwrap_or(4096).max(UNIT)
    }
}

/// Returns the whole pages of `range` that are above page 0 and not above `highest`.
fn whole_pages(range: &RangeInclusive<Iova>, page: u64, highest: u64) -> Option<RangeInclusive<Iova>> {
    let first = range.start().get().max(page).checked_next_multiple_of(page)?;
    let last = range.end().get().min(highest);
    // `last + 1` rounded down, without the overflow at the end of the address space.
    let last = last.checked_sub((last % page + 1) % page)?;
    (first <= last).then(|| Iova::new(first)..=Iova::new(last))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything can panic.
        lock(&self.state)
    }

    /// Checks that the device can use any permitted address.
    fn reachable(&self, state: &State) -> Result<(), DmaAllocError> {
        match state.beyond {
            Some(first) => Err(DmaAllocError::AddressWidth { bits: self.options.address_bits, first }),
            None => Ok(()),
        }
    }

    fn exhausted(&self, state: &State, length: usize) -> DmaAllocError {
        DmaAllocError::Exhausted {
            length,
            in_use: state.stats.in_use_bytes,
            mapped: state.stats.mapped_bytes,
            limit: self.options.limit,
            quarantined: state.stats.quarantined_bytes - state.callers_quarantined(),
        }
    }

    /// Maps one more region. If that fails, unmaps regions without allocations, except those with permissions `keep`, and tries again.
    fn grow(
        &self,
        state: &mut State,
        capacity: usize,
        access: DmaAccess,
        keep: Option<DmaAccess>,
    ) -> Result<(), DmaAllocError> {
        match self.add_region(state, capacity, access) {
            Err(_) if self.unmap_unused(state, keep) => self.add_region(state, capacity, access),
            added => added,
        }
    }

    /// Unmaps all regions without allocations, except those with permissions `keep`. Returns whether there were any.
    fn unmap_unused(&self, state: &mut State, keep: Option<DmaAccess>) -> bool {
        let State { regions, space, stats, .. } = state;
        let mut unmapped = false;
        for place in regions.iter_mut() {
            let unused = |region: &mut Region| {
                !region.tainted
                    && Some(region.access) != keep
                    && region.free.total() == region.memory.len() as u64
            };
            let Some(mut region) = place.take_if(unused) else { continue };
            let length = region.memory.len() as u64;
            if let Err(error) = self.backend.unmap_dma(region.iova, length) {
                tracing::error!(device = self.backend.name(), iova = %region.iova, length, %error,
                    "unused DMA region stays mapped: it could not be unmapped");
                // Neither used nor unmapped again: its mapping is in an unknown state.
                region.tainted = true;
                region.free = FreeRanges::new([]);
                *place = Some(region);
                continue;
            }
            // The range was allocated for this region: releasing it cannot fail.
            let _ = space.release(region.iova, length);
            stats.regions -= 1;
            stats.mapped_bytes -= region.memory.len();
            unmapped = true;
        }
        unmapped
    }

    /// Maps one more region with space for an allocation of `capacity` bytes.
    fn add_region(&self, state: &mut State, capacity: usize, access: DmaAccess) -> Result<(), DmaAllocError> {
        self.reachable(state)?;
        let page = self.backend.dma_page_size();
        let granule = usize::try_from(page).unwrap_or(usize::MAX).max(rustix::param::page_size());
        let room = self.options.limit.saturating_sub(state.stats.mapped_bytes);
        let room = room - room % granule;
        // The last region may be smaller than the others if the request fits.
        let size = self.options.region_size.min(room).max(capacity).checked_next_multiple_of(granule);
        let size = size.filter(|size| *size <= room).ok_or_else(|| self.exhausted(state, capacity))?;
        let kind = self.backend.memory_kind();
        let mut memory = SharedMemory::of_kind(kind, size, self.options.huge)?;
        if memory.len() > room {
            // Whole large pages no longer fit into the limit; normal pages do.
            memory = SharedMemory::of_kind(kind, size, HugePages::No)?;
        }
        let length = memory.len() as u64;
        let iova = loop {
            let place = state.addresses(length, page)?;
            match self.backend.map_dma(place, &memory, access) {
                Ok(()) => break place,
                // An earlier pool of this backend has left it mapped: in quarantine, or with a buffer that still exists. The range stays
                // allocated, so that it is not tried again.
                Err(DmaMapError::Overlap { .. }) => {}
                Err(error) => {
                    // Just allocated: releasing it cannot fail.
                    let _ = state.space.release(place, length);
                    return Err(error.into());
                }
            }
        };
        state.stats.regions += 1;
        state.stats.mapped_bytes += memory.len();
        let free = FreeRanges::new([(0, length - 1)]);
        let region = Some(Region { memory, iova, access, free, tainted: false });
        match state.regions.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = region,
            None => state.regions.push(region),
        }
        Ok(())
    }
}

impl State {
    /// Allocates addresses for a region, aligned like a large page, so that the IOMMU can use large entries. Any page is used if addresses
    /// are short.
    fn addresses(&mut self, length: u64, page: u64) -> Result<Iova, IovaError> {
        for large in [1 << 30, 2 << 20] {
            if length >= large
                && large > page
                && let Ok(place) = self.space.allocate(length, large)
            {
                return Ok(place);
            }
        }
        self.space.allocate(length, page)
    }

    /// Records one more quarantined allocation.
    fn record(&mut self, record: QuarantineRecord) {
        self.stats.quarantined += 1;
        self.stats.quarantined_bytes += record.length;
        self.quarantine.push(record);
    }

    /// Allocates in the first region with space: early regions fill up, late ones empty.
    fn take(&mut self, capacity: usize, alignment: usize, access: DmaAccess) -> Option<(usize, usize)> {
        let regions = self.regions.iter_mut().enumerate();
        let mut regions = regions.filter_map(|(index, region)| Some((index, region.as_mut()?)));
        regions.find_map(|(index, region)| {
            if region.access != access {
                return None;
            }
            let offset = region.free.take(capacity as u64, alignment as u64)?;
            // The offset is inside memory of this process.
            usize::try_from(offset).ok().map(|offset| (index, offset))
        })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // The parent's mappings: the backend is leaked, and does not access the device.
            core::mem::forget(Arc::clone(&self.backend));
            return;
        }
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        for region in state.regions.drain(..).flatten() {
            let length = region.memory.len() as u64;
            let keep = if region.tainted {
                tracing::warn!(target: FAULT_LOG, device = self.backend.name(), iova = %region.iova, length,
                    "DMA region stays mapped and is leaked: it holds quarantined buffers");
                true
            } else if let Err(error) = self.backend.unmap_dma(region.iova, length) {
                tracing::error!(device = self.backend.name(), iova = %region.iova, length, %error,
                    "DMA region is leaked: it could not be unmapped");
                true
            } else {
                false
            };
            if keep {
                keep_until_exit(region.memory);
            }
        }
        // Areas keep the pool alive, so the remaining ones were quarantined or could not be unmapped.
        for region in state.callers.drain(..) {
            tracing::warn!(device = self.backend.name(), iova = %region.iova, length = region.memory.len(),
                "memory of the caller stays mapped and is leaked");
            keep_until_exit(region.memory);
        }
    }
}

/// Keeps memory that the device may still reach mapped until the process ends, so that its pages are never reused. It stays reachable in
/// this list, so that leak checkers report only unintended leaks.
fn keep_until_exit(memory: SharedMemory) {
    static KEPT: Mutex<Vec<SharedMemory>> = Mutex::new(Vec::new());
    lock(&KEPT).push(memory);
}

/// Allocated part of a region, or memory of a caller. It returns to its origin when dropped, unless it is quarantined.
struct Allocation {
    /// Keeps regions mapped, in this process and for the device.
    pool: Arc<Shared>,
    origin: AllocationOrigin,
    /// First of `capacity` bytes, which stay mapped during this value's lifetime: a region of the pool is unmapped only
    /// when all of it is free, or with the last handle to the pool; memory of a caller is held by `origin`.
    start: BaseAddress,
    iova: Iova,
    /// Bytes in use, at most `capacity`.
    length: usize,
    capacity: usize,
    /// Permitted accesses of the device.
    access: DmaAccess,
    /// In quarantine: not returned on drop.
    kept: AtomicBool,
}

/// Origin to which an allocation returns. Kept small: buffers are moved into transfers and back at high rates, and an [`Allocation`] of 64
/// bytes moves faster than a longer one.
enum AllocationOrigin {
    /// Region with that number, at the offset of the allocation's `iova`.
    Region { number: usize },
    /// Memory of a caller: it is unmapped, from the device and then from this process, with the last clone of the memory.
    Caller {
        /// Keeps the bytes mapped, even if the pool's entry is removed.
        memory: Box<SharedMemory>,
    },
}

const _: () = assert!(size_of::<Allocation>() <= 64);

impl Allocation {
    /// View of the bytes of this allocation that are in use.
    #[inline]
    fn view(&self) -> SharedSlice<'_> {
        // SAFETY: `length` is at most `capacity`, and `capacity` bytes from `start` on stay mapped while `self` exists, to which the view
        // is bound. They are readable, writable and initialised, as all shared memory, and no references to them exist except such views.
        unsafe { self.start.view(self.length) }
    }

    fn quarantine(&self, reason: QuarantineReason) {
        // Each bit of state that the pool keeps about it changes once, under the pool's lock: this flag needs no ordering.
        if self.kept.swap(true, Ordering::Relaxed) || !self.pool.process.is_current() {
            return;
        }
        let (iova, length, at) = (self.iova, self.capacity, self.pool.backend.now());
        tracing::error!(target: FAULT_LOG, device = self.pool.backend.name(), %iova, length, %reason, "DMA buffer put into quarantine");
        let mut state = self.pool.lock();
        match &self.origin {
            AllocationOrigin::Region { number } => {
                state.stats.in_use -= 1;
                state.stats.in_use_bytes -= length;
                if let Some(region) = state.regions.get_mut(*number).and_then(Option::as_mut) {
                    region.tainted = true;
                }
                state.record(QuarantineRecord { iova, length, reason, at });
            }
            AllocationOrigin::Caller { .. } => state.quarantine_caller(iova, length, reason, at),
        }
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("iova", &format_args!("{}", self.iova))
            .field("len", &self.length)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if *self.kept.get_mut() || !self.pool.process.is_current() {
            return;
        }
        let number = match &self.origin {
            AllocationOrigin::Region { number } => *number,
            AllocationOrigin::Caller { .. } => return self.pool.unmap_caller(self.iova, self.capacity),
        };
        let mut state = self.pool.lock();
        state.stats.in_use -= 1;
        state.stats.in_use_bytes -= self.capacity;
        if let Some(region) = state.regions.get_mut(number).and_then(Option::as_mut) {
            let first = self.iova.get() - region.iova.get();
            let given = region.free.give(first, first + self.capacity as u64 - 1);
            debug_assert!(given, "a range is released once");
        }
    }
}

mod buffer;

pub use buffer::{DmaBuffer, RegisteredMemory};

#[cfg(test)]
mod tests;
