//! DMA memory that Python objects lie in, found by its address: a transfer of such an object, or of a contiguous part of it, copies nothing.
//!
//! A [`Region`] is one area of DMA memory. The card lists its regions by address; a channel registers a region at its first transfer of
//! it, and forgets it when the Python object is gone. Regions are never freed while a transfer is in flight: the transfer holds one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use fpga_driver::{Iova, RegisteredMemory, SharedMemory};
use fpga_pci::Process;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::wait::brief;

/// Number of the next region of this process.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Owner of the bytes of a region.
#[derive(Debug)]
enum Home {
    /// The card can reach them.
    Dma(RegisteredMemory),
    /// The card was closed.
    Host { _memory: SharedMemory },
    /// In the middle of a change.
    Lost,
}

/// DMA memory of one Python object.
#[derive(Debug)]
pub(crate) struct Region {
    /// Number in this process, never used again.
    pub(crate) number: u64,
    memory: Mutex<Home>,
    /// Address for the device.
    pub(crate) iova: Iova,
    /// Address of the first byte in this process.
    pub(crate) address: usize,
    /// Size that the program has asked for, in bytes: the rest of the last page is not part of any transfer.
    pub(crate) length: usize,
    /// Number of groups of transfers that were submitted and have not ended.
    transfers: AtomicUsize,
}

impl Region {
    pub(crate) fn new(memory: RegisteredMemory, length: usize) -> Self {
        let (address, iova) = (memory.memory().host_address(), memory.iova());
        let (number, length) = (NEXT.fetch_add(1, Ordering::Relaxed), length.min(memory.len()));
        let memory = Mutex::new(Home::Dma(memory));
        Self { number, length, memory, iova, address, transfers: AtomicUsize::new(0) }
    }

    /// The memory, for a channel to register it. `None`: the card was closed.
    pub(crate) fn dma(&self) -> Option<RegisteredMemory> {
        match &*brief(&self.memory) {
            Home::Dma(memory) => Some(memory.clone()),
            Home::Host { .. } | Home::Lost => None,
        }
    }

    /// Ends its use for DMA. The bytes stay where they are, and the device is no longer held by them.
    fn give_back(&self) {
        let mut home = brief(&self.memory);
        let Home::Dma(memory) = std::mem::replace(&mut *home, Home::Lost) else { return };
        let kept = memory.clone();
        *home = match memory.into_host() {
            Some(memory) => Home::Host { _memory: memory },
            // The pool does not know it: it must stay as it is.
            None => Home::Dma(kept),
        };
    }

    /// Whether a transfer of the memory is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        self.transfers.load(Ordering::Acquire) > 0
    }
}

/// Share of a transfer in its memory, until it has ended.
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
pub(crate) struct Place {
    pub(crate) region: Arc<Region>,
    /// Offset of the first byte, and length, in bytes.
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Channel that registers regions.
pub(crate) trait Registrar: Send + Sync {
    /// Deregisters a region whose object is gone: now, or with the next call if another thread uses the channel. `waits`: the call of the
    /// other thread is waited for.
    ///
    /// # Errors
    /// `OtherProcessError`; the exception of a signal handler; `InUseError` inside a call of this thread.
    fn forget(&self, py: Python<'_>, number: u64, waits: bool) -> Result<(), Failure>;
}

/// Regions of a card, and the channels that may have registered them.
pub(crate) struct Regions {
    /// Other processes, children of this one, find no regions, and take no lock.
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
        let mut regions = brief(&self.by_address);
        let end = region.address.saturating_add(region.length);
        let before = regions.range(..end).next_back();
        if before.is_some_and(|(start, other)| start.saturating_add(other.length) > region.address) {
            return false;
        }
        regions.insert(region.address, Arc::clone(region));
        true
    }

    /// Ends the use of all regions for DMA: their card is closed, with all its channels.
    pub(crate) fn give_back(&self) {
        let regions = std::mem::take(&mut *brief(&self.by_address));
        regions.values().for_each(|region| region.give_back());
    }

    /// Removes a region from the list.
    pub(crate) fn remove(&self, region: &Region) {
        let mut regions = brief(&self.by_address);
        if regions.get(&region.address).is_some_and(|found| found.number == region.number) {
            regions.remove(&region.address);
        }
    }

    /// Finds the region that `length` bytes at `address` lie in.
    pub(crate) fn find(&self, address: usize, length: usize) -> Option<Place> {
        if !self.is_own() {
            return None;
        }
        let regions = brief(&self.by_address);
        let (start, region) = regions.range(..=address).next_back()?;
        let offset = address - start;
        (offset <= region.length && length <= region.length - offset).then(|| Place {
            region: Arc::clone(region),
            offset,
            length,
        })
    }

    /// Lists a channel.
    pub(crate) fn attach(&self, channel: Weak<dyn Registrar>) {
        let mut channels = brief(&self.channels);
        channels.retain(|channel| channel.strong_count() > 0);
        channels.push(channel);
    }

    /// Channels that may have registered a region.
    pub(crate) fn channels(&self) -> Vec<Arc<dyn Registrar>> {
        brief(&self.channels).iter().filter_map(Weak::upgrade).collect()
    }
}
