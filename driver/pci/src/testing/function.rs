//! PCI function with configuration space, one BAR of memory and a record of its mappings, without any behaviour.

use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use fpga_registers::{BarOffset, Iova};

use crate::config::ConfigSpace;
use crate::mmio::check_access;
use crate::{
    Backend, Bar, BarError, BarInfo, BarKind, ConfigSpaceError, DmaAccess, DmaMapError, Interrupt,
    InterruptError, MemoryError, Mmio, MmioError, OsError, ResetError, ResetLevel, SharedMemory, lock,
};

/// Size of BAR 0 in bytes.
const BAR_SIZE: u64 = 4096;

/// [`Backend`] without a device, for tests of code above a backend.
#[derive(Debug)]
pub struct StubBackend {
    config: Mutex<[u8; 256]>,
    bar: Arc<Words>,
    ranges: Vec<RangeInclusive<Iova>>,
    mappings: Mutex<BTreeMap<u64, (SharedMemory, DmaAccess)>>,
    refuse_map: AtomicBool,
    refuse_unmap: AtomicBool,
}

#[derive(Debug)]
struct Words(Vec<AtomicU32>);

impl StubBackend {
    /// Creates a function whose device may use addresses in `ranges`.
    #[must_use]
    pub fn new(ranges: Vec<RangeInclusive<Iova>>) -> Self {
        let mut config = [0; 256];
        // Any vendor and device id, so that it counts as present.
        config[..4].copy_from_slice(&[0xEE, 0x10, 0x38, 0x90]);
        Self {
            config: Mutex::new(config),
            bar: Arc::new(Words((0..BAR_SIZE / 4).map(|_| AtomicU32::new(0)).collect())),
            ranges,
            mappings: Mutex::new(BTreeMap::new()),
            refuse_map: AtomicBool::new(false),
            refuse_unmap: AtomicBool::new(false),
        }
    }

    /// Start and length of all mappings, ascending.
    #[must_use]
    pub fn mapped(&self) -> Vec<(Iova, u64)> {
        lock(&self.mappings)
            .iter()
            .map(|(iova, (memory, _))| (Iova::new(*iova), memory.len() as u64))
            .collect()
    }

    /// Reads through the mappings, as the device would.
    ///
    /// # Errors
    /// [`DmaMapError::NotMapped`] if the bytes do not lie in one mapping that the device may read.
    pub fn dma_read(&self, iova: Iova, into: &mut [u8]) -> Result<(), DmaMapError> {
        let length = into.len() as u64;
        self.dma(iova, length, DmaAccess::device_reads, |memory, offset| memory.read(offset, into))
    }

    /// Writes through the mappings, as the device would.
    ///
    /// # Errors
    /// [`DmaMapError::NotMapped`] if the bytes do not lie in one mapping that the device may write.
    pub fn dma_write(&self, iova: Iova, from: &[u8]) -> Result<(), DmaMapError> {
        let length = from.len() as u64;
        self.dma(iova, length, DmaAccess::device_writes, |memory, offset| memory.write(offset, from))
    }

    fn dma(
        &self,
        iova: Iova,
        length: u64,
        allowed: impl FnOnce(DmaAccess) -> bool,
        access: impl FnOnce(&SharedMemory, usize) -> Result<(), MemoryError>,
    ) -> Result<(), DmaMapError> {
        let not_mapped = DmaMapError::NotMapped { iova, length };
        let mappings = lock(&self.mappings);
        let (start, (memory, granted)) = mappings.range(..=iova.get()).next_back().ok_or(not_mapped)?;
        let offset = usize::try_from(iova.get() - start).map_err(|_| not_mapped)?;
        if !allowed(*granted) {
            return Err(not_mapped);
        }
        access(memory, offset).map_err(|_| not_mapped)
    }

    /// Sets whether mapping is refused from now on.
    pub fn refuse_map(&self, refuse: bool) {
        self.refuse_map.store(refuse, Ordering::Relaxed);
    }

    /// Sets whether unmapping is refused from now on.
    pub fn refuse_unmap(&self, refuse: bool) {
        self.refuse_unmap.store(refuse, Ordering::Relaxed);
    }
}

impl Mmio for Words {
    fn size(&self) -> u64 {
        BAR_SIZE
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        self.cell(at).map(|cell| cell.load(Ordering::Relaxed))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        self.cell(at).map(|cell| cell.store(value, Ordering::Relaxed))
    }
}

impl Words {
    fn cell(&self, at: BarOffset) -> Result<&AtomicU32, MmioError> {
        check_access(at, 4, BAR_SIZE)?;
        let index = usize::try_from(at.get() / 4).unwrap_or(usize::MAX);
        self.0.get(index).ok_or(MmioError::OutOfRange { at, width: 4, end: BAR_SIZE })
    }
}

impl Backend for StubBackend {
    fn name(&self) -> &'static str {
        "bare"
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        lock(&self.config).as_slice().read(at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        let mut config = lock(&self.config);
        let (start, size) = (usize::from(at), config.len());
        let place = config.get_mut(start..).and_then(|rest| rest.get_mut(..from.len()));
        place.ok_or(ConfigSpaceError::OutOfRange { at, length: from.len(), size })?.copy_from_slice(from);
        Ok(())
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        let bar = BarInfo { index: 0, size: BAR_SIZE, kind: BarKind::Memory32, prefetchable: false };
        [Some(bar), None, None, None, None, None]
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        match index {
            0 => Ok(Bar::new(Arc::<Words>::clone(&self.bar))),
            1..6 => Err(BarError::Absent { index }),
            _ => Err(BarError::BadIndex { index }),
        }
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        let refused = OsError::from(rustix::io::Errno::NOMEM);
        if self.refuse_map.load(Ordering::Relaxed) {
            return Err(DmaMapError::LimitReached { iova, length, source: refused });
        }
        let end = iova.checked_add(length - 1).ok_or(DmaMapError::OutsideRanges { iova, length })?;
        if !self.ranges.iter().any(|range| range.contains(&iova) && range.contains(&end)) {
            return Err(DmaMapError::OutsideRanges { iova, length });
        }
        let mut mappings = lock(&self.mappings);
        let before = mappings.range(..=end.get()).next_back();
        if before.is_some_and(|(start, (other, _))| start + (other.len() as u64) > iova.get()) {
            return Err(DmaMapError::Overlap { iova, length });
        }
        mappings.insert(iova.get(), (memory.clone(), access));
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        if self.refuse_unmap.load(Ordering::Relaxed) {
            return Err(DmaMapError::Refused { iova, length, source: rustix::io::Errno::IO.into() });
        }
        let mut mappings = lock(&self.mappings);
        if mappings.get(&iova.get()).is_none_or(|(memory, _)| memory.len() as u64 != length) {
            return Err(DmaMapError::NotMapped { iova, length });
        }
        mappings.remove(&iova.get());
        Ok(())
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        self.ranges.clone()
    }

    fn interrupt_vectors(&self) -> u32 {
        0
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        Err(InterruptError::TooMany { asked: count, available: 0 })
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        Ok(())
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        Err(ResetError::Unsupported { level })
    }

    fn now(&self) -> u64 {
        0
    }

    fn relax(&self) {}
}
