//! DMA memory of Python objects, found by address: transfers of such objects, or of contiguous parts of them, need no copy.
//!
//! A [`Region`] is one area of DMA memory. The card lists its regions by address; a channel registers a region at its first transfer of
//! it, and deregisters it when the Python object is gone. A transfer in flight holds its region, so regions in use are not freed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use fpga_driver::{Iova, RegisteredMemory, SharedMemory};
use fpga_pci::Process;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::wait::lock;

/// Number of the next region of this process.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Memory that backs a region.
#[derive(Debug)]
enum Backing {
    /// Mapped for the card.
    Dma(RegisteredMemory),
    /// Not mapped any more: the card was closed.
    Host { _memory: SharedMemory },
    /// Between the two, while the lock is held.
    Changing,
}

/// DMA memory of one Python object.
#[derive(Debug)]
pub(crate) struct Region {
    /// Number in this process, never used again.
    pub(crate) number: u64,
    memory: Mutex<Backing>,
    /// Address for the device.
    pub(crate) iova: Iova,
    /// Address of the first byte in this process.
    pub(crate) address: usize,
    /// Requested size in bytes; transfers do not access the rest of the last page.
    pub(crate) length: usize,
    /// Number of [`Use`]s: transfers and batches in flight.
    transfers: AtomicUsize,
}

impl Region {
    pub(crate) fn new(memory: RegisteredMemory, length: usize) -> Self {
        let (address, iova) = (memory.memory().host_address(), memory.iova());
        let (number, length) = (NEXT_NUMBER.fetch_add(1, Ordering::Relaxed), length.min(memory.len()));
        let memory = Mutex::new(Backing::Dma(memory));
        Self { number, length, memory, iova, address, transfers: AtomicUsize::new(0) }
    }

    /// Returns the memory, for registration with a channel. `None`: the card was closed.
    pub(crate) fn dma(&self) -> Option<RegisteredMemory> {
        match &*lock(&self.memory) {
            Backing::Dma(memory) => Some(memory.clone()),
            Backing::Host { .. } | Backing::Changing => None,
        }
    }

    /// Unmaps the memory, which no longer keeps the card open. The bytes keep their host address.
    fn unmap(&self) {
        let mut backing = lock(&self.memory);
        let Backing::Dma(memory) = std::mem::replace(&mut *backing, Backing::Changing) else { return };
        let kept = memory.clone();
        *backing = match memory.into_host() {
            Some(memory) => Backing::Host { _memory: memory },
            // Memory that is not from the pool stays mapped.
            None => Backing::Dma(kept),
        };
    }

    /// Whether a transfer of the memory is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.transfers.load(Ordering::Acquire) > 0
    }
}

/// Use of a region by a transfer or a batch, until that has ended.
#[derive(Debug)]
pub(crate) struct Use(Arc<Region>);

impl Use {
    pub(crate) fn of(region: &Arc<Region>) -> Self {
        region.transfers.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(region))
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        self.0.transfers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Part of a region.
#[derive(Debug, Clone)]
pub(crate) struct RegionPart {
    pub(crate) region: Arc<Region>,
    /// Offset of the first byte, and length, in bytes.
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Channel that registers regions.
pub(crate) trait Registrar: Send + Sync {
    /// Deregisters a region whose object is gone: now, or with the next call if another thread uses the channel. With `waits`, that thread's
    /// call is waited for.
    ///
    /// # Errors
    /// `OtherProcessError`; the exception of a signal handler; `InUseError` inside a call of this thread.
    fn deregister(&self, py: Python<'_>, number: u64, waits: bool) -> Result<(), Failure>;
}

/// Regions of a card, and the channels that may have registered them.
pub(crate) struct Regions {
    /// Process that has opened the card. Child processes find no regions.
    process: Process,
    by_address: Mutex<BTreeMap<usize, Arc<Region>>>,
    channels: Mutex<Vec<Weak<dyn Registrar>>>,
}

impl Regions {
    pub(crate) fn new() -> Self {
        Self { process: Process::current(), by_address: Mutex::default(), channels: Mutex::default() }
    }

    /// Whether this process has opened the card.
    pub(crate) fn is_own(&self) -> bool {
        self.process.is_current()
    }

    /// Lists a region. Returns false if it overlaps another one.
    pub(crate) fn add(&self, region: &Arc<Region>) -> bool {
        let mut regions = lock(&self.by_address);
        let end = region.address.saturating_add(region.length);
        let before = regions.range(..end).next_back();
        if before.is_some_and(|(start, other)| start.saturating_add(other.length) > region.address) {
            return false;
        }
        regions.insert(region.address, Arc::clone(region));
        true
    }

    /// Unmaps all regions: the card and its channels are closed.
    pub(crate) fn unmap(&self) {
        let regions = std::mem::take(&mut *lock(&self.by_address));
        regions.values().for_each(|region| region.unmap());
    }

    /// Removes a region from the list.
    pub(crate) fn remove(&self, region: &Region) {
        let mut regions = lock(&self.by_address);
        if regions.get(&region.address).is_some_and(|found| found.number == region.number) {
            regions.remove(&region.address);
        }
    }

    /// Finds the region that `length` bytes at `address` lie in.
    pub(crate) fn find(&self, address: usize, length: usize) -> Option<RegionPart> {
        if !self.is_own() {
            return None;
        }
        let regions = lock(&self.by_address);
        let (start, region) = regions.range(..=address).next_back()?;
        let offset = address - start;
        (offset <= region.length && length <= region.length - offset).then(|| RegionPart {
            region: Arc::clone(region),
            offset,
            length,
        })
    }

    /// Lists a channel.
    pub(crate) fn attach(&self, channel: Weak<dyn Registrar>) {
        let mut channels = lock(&self.channels);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(channel);
    }

    /// Channels that may have registered a region.
    pub(crate) fn channels(&self) -> Vec<Arc<dyn Registrar>> {
        lock(&self.channels).iter().filter_map(Weak::upgrade).collect()
    }
}
