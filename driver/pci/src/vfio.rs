//! The kernel's vfio-pci through its group and container interface (type 1 v2 IOMMU), which every distribution has.
//!
//! Groups, container and device are opened by the `vfio-ioctls` crate; everything whose errors, sizes or flags that
//! crate hides is done here by own system calls:
//!
//! | What its documentation or source shows (version 0.10.0) | Done here |
//! |---|---|
//! | `region_read`/`region_write` report no error: with memory decoding off a read leaves its buffer unchanged | own `pread`/`pwrite`, every failure an error |
//! | `reset` reports neither "not supported" nor failure | own reset call, [`ResetError`] |
//! | partial unmap, double map, reserved addresses fail with bare errno values | checked against the IOVA ranges and told apart in [`DmaMapError`] |
//! | dropping a device unwraps the re-read sysfs link: panics when the device was removed | link checked first, panic contained; see [`VfioTransport`] |
//! | regions whose info fails are skipped, so later numbers shift | own region info by number |
//! | a group with any flag besides "viable" is refused as not viable | [`VfioOpenError::GroupUnusable`] names both causes |
//! | `addr + size` unchecked | checked here before any call |
//! | always maps readable and writable | own map call with the access asked for |
//!
//! # What it does not do (yet)
//!
//! * iommufd and the device's own character device: another way to open, behind the same
//!   [`Transport`]; [`VfioTransport::open`] is the place to choose.
//! * The error and request eventfds (AER, hot unplug).
//! * Surviving SIGBUS: touching a mapped BAR while memory decoding is off kills the process. A reset invalidates
//!   open [`Bar`]s *before* it starts, which protects all threads but one that is in the middle of an access.
//! * VF tokens: a virtual function whose physical function is also used through vfio cannot be opened.
//! * Hot reset: [`ResetError::Unsupported`].

use core::fmt;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use fpga_registers::Iova;
use rustix::io::Errno;

use crate::mmio::{MappedBar, Presence};
use crate::{
    Bar, BarError, BarInfo, BarKind, ConfigError, DmaAccess, DmaMapError, Interrupt, InterruptError, OsError,
    PciAddress, ResetError, ResetLevel, SharedMemory, Transport, config,
};

mod info;
mod open;
mod sys;

use info::{IommuInfo, RegionInfo};
use open::OpenedDevice;
pub use open::{VfioOpenError, VfioRoots};

/// Number of the configuration space region of a PCI device.
const CONFIG_REGION: u32 = vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;

/// A PCI function opened through vfio-pci.
///
/// Dropping it switches bus mastering off first, then interrupts, then closes the device; the kernel ends all its
/// mappings. [`Bar`]s that are still around stay mapped, but their device does no DMA any more.
pub struct VfioTransport {
    name: String,
    device: Arc<DeviceFile>,
    bars: [Option<BarInfo>; 6],
    regions: [Option<RegionInfo>; 6],
    msix: Option<config::MsixCapability>,
    /// Which kind of interrupt the device is used with, and how many vectors it has.
    irq: Option<sys::IrqKind>,
    vectors: u32,
    can_reset: bool,
    iommu: IommuInfo,
    /// What is mapped: the memory must stay until it is unmapped.
    mappings: Mutex<BTreeMap<u64, SharedMemory>>,
    interrupts_on: Mutex<bool>,
    /// Last, so that the device file above is closed before: the group can then be given back.
    opened: OpenedDevice,
}

/// The device's file, and the part of it that is configuration space.
struct DeviceFile {
    file: Arc<OwnedFd>,
    config_offset: u64,
    config_size: u64,
    generation: AtomicU64,
}

/// Nanoseconds on the monotonic clock since the first call: one start for all devices of the process, so that their
/// times can be compared.
pub(crate) fn now() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    // 584 years fit.
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for VfioTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioTransport")
            .field("name", &self.name)
            .field("bars", &self.bars)
            .field("vectors", &self.vectors)
            .finish_non_exhaustive()
    }
}

impl DeviceFile {
    /// Checks an access to configuration space and gives its place in the file.
    fn config_place(&self, at: u16, length: usize) -> Result<u64, ConfigError> {
        if u64::from(at) + length as u64 > self.config_size {
            let size = usize::try_from(self.config_size).unwrap_or(usize::MAX);
            return Err(ConfigError::OutOfRange { at, length, size });
        }
        self.config_offset
            .checked_add(u64::from(at))
            .ok_or(ConfigError::Refused { at, source: Errno::OVERFLOW.into() })
    }
}

impl config::ConfigSpace for DeviceFile {
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError> {
        let place = self.config_place(at, into.len())?;
        let length = into.len();
        match rustix::io::pread(self.file.as_fd(), into, place) {
            Ok(count) if count == length => Ok(()),
            Ok(_) => Err(ConfigError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(ConfigError::Refused { at, source: errno.into() }),
        }
    }
}

impl Presence for DeviceFile {
    fn is_present(&self) -> bool {
        config::identity(self).is_ok()
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl VfioTransport {
    /// Opens the function at a PCI address such as `0000:65:00.0`, which has to be bound to vfio-pci.
    ///
    /// # Errors
    /// See [`VfioOpenError`].
    pub fn open(address: &str) -> Result<Self, VfioOpenError> {
        Self::open_at(address, &VfioRoots::default())
    }

    /// As [`open`](Self::open), looking for sysfs and for device files elsewhere. The device files themselves are
    /// always opened below `/dev/vfio`; the other root serves to check for them.
    ///
    /// # Errors
    /// See [`VfioOpenError`].
    pub fn open_at(address: &str, roots: &VfioRoots) -> Result<Self, VfioOpenError> {
        let address: PciAddress = address.parse()?;
        let (opened, file) = open::open(address, roots)?;
        let file = Arc::new(file);
        let query = |what: &'static str, source: OsError| VfioOpenError::Query { address, what, source };
        let malformed = |what: &'static str| VfioOpenError::Malformed { address, what };

        let region = |index| -> Result<RegionInfo, VfioOpenError> {
            let reply = sys::region_info(&file, index).map_err(|source| query("a region", source))?;
            info::parse_region(&reply).ok_or_else(|| malformed("a region"))
        };
        let config_region = region(CONFIG_REGION)?;
        let device = Arc::new(DeviceFile {
            file: Arc::clone(&file),
            config_offset: config_region.offset,
            config_size: config_region.size,
            generation: AtomicU64::new(0),
        });
        let registers = config::bar_registers(&*device)?;
        let msix = config::find_msix(&*device)?;
        let mut regions = [const { None }; 6];
        let mut bars = [None; 6];
        for index in 0..6_u8 {
            let slot = usize::from(index);
            let region = region(u32::from(index))?;
            if region.size == 0 {
                continue;
            }
            // A register that reads as zero (no address given) but has a size is a memory BAR all the same.
            let register = registers[slot];
            bars[slot] = Some(BarInfo {
                index,
                size: region.size,
                kind: register.map_or(BarKind::Memory32, |register| register.kind),
                prefetchable: register.is_some_and(|register| register.prefetchable),
            });
            regions[slot] = Some(region);
        }
        let (irq, vectors) = sys::interrupts(&file).map_err(|source| query("its interrupts", source))?;
        let flags = sys::device_flags(&file).map_err(|source| query("its properties", source))?;
        let reply = sys::iommu_info(&opened.container).map_err(|source| query("its IOMMU", source))?;
        let iommu = info::parse_iommu(&reply).ok_or_else(|| malformed("its IOMMU"))?;
        let transport = Self {
            name: address.to_string(),
            device,
            bars,
            regions,
            msix,
            irq,
            vectors,
            can_reset: flags & vfio_bindings::bindings::vfio::VFIO_DEVICE_FLAGS_RESET != 0,
            iommu,
            mappings: Mutex::new(BTreeMap::new()),
            interrupts_on: Mutex::new(false),
            opened,
        };
        // The kernel opens devices with bus mastering off; a former user's setting must not survive either.
        transport.set_bus_master(false)?;
        Ok(transport)
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<u64, SharedMemory>> {
        self.mappings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn interrupts_on(&self) -> MutexGuard<'_, bool> {
        self.interrupts_on.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for VfioTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigError> {
        config::ConfigSpace::read(&*self.device, at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigError> {
        let place = self.device.config_place(at, from.len())?;
        match rustix::io::pwrite(self.device.file.as_fd(), from, place) {
            Ok(count) if count == from.len() => Ok(()),
            Ok(_) => Err(ConfigError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(ConfigError::Refused { at, source: errno.into() }),
        }
    }

    fn bars(&self) -> [Option<BarInfo>; 6] {
        self.bars
    }

    fn open_bar(&self, index: u8) -> Result<Bar, BarError> {
        let bar = self.bars.get(usize::from(index)).ok_or(BarError::BadIndex { index })?;
        let region = self.regions.get(usize::from(index)).and_then(Option::as_ref);
        let (Some(bar), Some(region)) = (bar, region) else { return Err(BarError::Absent { index }) };
        if bar.kind == BarKind::Io {
            return Err(BarError::Unsupported { index });
        }
        let table = self.msix.filter(|msix| msix.table_bar == index).map(|msix| {
            let start = u64::from(msix.table_offset);
            start..start + u64::from(msix.table_length())
        });
        let areas = region.mappable_areas(table, rustix::param::page_size() as u64);
        let presence: Arc<dyn Presence> = Arc::<DeviceFile>::clone(&self.device);
        MappedBar::map(Arc::clone(&self.device.file), region.offset, region.size, &areas, presence)
            .map(|mapped| Bar::new(Arc::new(mapped)))
            .map_err(|(offset, source)| BarError::MapFailed { index, offset, source })
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        self.iommu.check(iova, length, self.dma_page_size())?;
        let mut mappings = self.mappings();
        sys::map_dma(&self.opened.container, iova.get(), memory, access).map_err(|source| {
            match Errno::from_raw_os_error(source.raw()) {
                Errno::EXIST => DmaMapError::Overlap { iova, length },
                Errno::NOMEM | Errno::NOSPC => DmaMapError::LimitReached { iova, length, source },
                _ => DmaMapError::Refused { iova, length, source },
            }
        })?;
        mappings.insert(iova.get(), memory.clone());
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let mut mappings = self.mappings();
        // The kernel would also take a range that spans several mappings; that is never meant here.
        if mappings.get(&iova.get()).is_none_or(|memory| memory.len() as u64 != length) {
            return Err(DmaMapError::NotMapped { iova, length });
        }
        let size = usize::try_from(length).map_err(|_| DmaMapError::NotMapped { iova, length })?;
        self.opened.container.vfio_dma_unmap(iova.get(), size).map_err(|error| {
            let source = match error {
                vfio_ioctls::VfioError::IommuDmaUnmap(errno) => OsError::from_raw(errno.errno()),
                _ => Errno::INVAL.into(),
            };
            DmaMapError::Refused { iova, length, source }
        })?;
        mappings.remove(&iova.get());
        Ok(())
    }

    fn iova_ranges(&self) -> Vec<RangeInclusive<Iova>> {
        self.iommu.ranges.clone()
    }

    fn dma_page_size(&self) -> u64 {
        self.iommu.page_size.max(rustix::param::page_size() as u64)
    }

    fn interrupt_vectors(&self) -> u32 {
        self.vectors
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        let mut on = self.interrupts_on();
        if *on {
            return Err(InterruptError::AlreadyEnabled);
        }
        let kind = self.irq.filter(|_| count != 0 && count <= self.vectors);
        let kind = kind.ok_or(InterruptError::TooMany { asked: count, available: self.vectors })?;
        let mut interrupts = Vec::new();
        for _ in 0..count {
            interrupts.push(Interrupt::pair()?.0);
        }
        sys::enable_interrupts(&self.device.file, kind, &interrupts)
            .map_err(|source| InterruptError::Refused { count, source })?;
        *on = true;
        Ok(interrupts)
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        let mut on = self.interrupts_on();
        if let (true, Some(kind)) = (*on, self.irq) {
            sys::disable_interrupts(&self.device.file, kind)
                .map_err(|source| InterruptError::Refused { count: 0, source })?;
        }
        *on = false;
        Ok(())
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if level != ResetLevel::Function || !self.can_reset {
            return Err(ResetError::Unsupported { level });
        }
        // A device that no longer answers cannot be told to stop; the reset is still worth trying.
        let _ = self.set_bus_master(false);
        // Before the reset: handles must not touch the BARs while memory decoding is off.
        self.device.generation.fetch_add(1, Ordering::AcqRel);
        sys::reset(&self.device.file).map_err(|source| ResetError::Failed { level, source })?;
        // The kernel restores the command register, bus mastering included.
        self.set_bus_master(false).map_err(|_| ResetError::NoAnswer { level })
    }

    fn now(&self) -> u64 {
        now()
    }

    fn relax(&self) {
        core::hint::spin_loop();
    }
}

impl Drop for VfioTransport {
    fn drop(&mut self) {
        // First: whatever the device still had in mind, it does no more DMA.
        if let Err(error) = self.set_bus_master(false) {
            tracing::warn!(device = self.name, %error, "bus mastering could not be switched off before closing");
        }
        if let Err(error) = self.disable_interrupts() {
            tracing::warn!(device = self.name, %error, "interrupts could not be switched off before closing");
        }
    }
}

#[cfg(test)]
mod tests;
