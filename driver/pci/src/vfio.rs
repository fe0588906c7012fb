//! The kernel's vfio-pci, through either of its interfaces: group and container (every distribution has them), or the device file with
//! iommufd (newer kernels, if built with it). [`VfioOptions`] selects the interface; both offer the same.
//!
//! | Resource | Implementation |
//! |---|---|
//! | addresses | the ranges that the kernel reports, without holes and the MSI window; one mapping per region, readable and writable by the device only as requested |
//! | BARs | mapped, without the MSI-X table ([`BarAccess`], [`catch_bus_errors`](crate::catch_bus_errors)) |
//! | interrupts | MSI-X, else MSI, else INTx, by event descriptors |
//! | bus errors, device-release requests (REQ) | [`Backend::events`], armed from the start |
//! | reset | of the function, if it has one; of the link, if every function below the port belongs to this process |
//!
//! # Use of the `vfio-ioctls` crate
//!
//! Requests are built and replies parsed in the submodules `kernel`, `sys` and `info`, with `vfio-bindings` and `iommufd-bindings`. Of the
//! `vfio-ioctls` crate (0.10.0) only the container is used: it checks version and extension when it is opened, and compares the unmapped
//! length with the requested one. Its device is not used:
//!
//! | Behaviour in its source | Here |
//! |---|---|
//! | dropping a device reads a sysfs link again and unwraps: panics when the device was removed | plain files, closed in order |
//! | no access to a group's file: no hot reset, no VF token | own group |
//! | a group with any flag besides "viable" is refused as not viable | the flag itself, and the names of the blocking members |
//! | `region_read`/`region_write` report no error: with memory decoding off a read leaves its buffer unchanged | own `pread`/`pwrite`, every failure an error |
//! | `reset` reports neither "not supported" nor failure | [`ResetError`] |
//! | regions whose info fails are skipped, so later numbers shift | own region info by number |
//! | maps always readable and writable | own map call with the access asked for |
//! | partial unmap, double map, reserved addresses fail with bare errno values | checked against the ranges and distinguished in [`DmaMapError`] |
//!
//! Its `vfio_cdev` feature, which would offer iommufd, depends on a hypervisor's crates and has the same problems.
//!
//! # Handles and closing
//!
//! A [`Bar`] keeps the device file open, so a device is released to the system when the backend *and* every BAR of it are dropped. After a
//! surprise removal: drop them all, and open the device again when it is back.

use core::fmt;
use core::ops::RangeInclusive;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fpga_registers::Iova;
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{VFIO_DEVICE_FLAGS_RESET, VFIO_PCI_CONFIG_REGION_INDEX};

use crate::mmio::{Liveness, MappedBar, bus_errors_caught};
use crate::{
    Backend, Bar, BarError, BarInfo, BarKind, ConfigSpaceError, DeviceEvents, DmaAccess, DmaMapError,
    Interrupt, InterruptError, OsError, PciAddress, Process, ResetError, ResetLevel, SharedMemory, config,
    lock,
};

mod error;
#[cfg(test)]
mod fake;
mod host;
mod info;
mod interrupts;
mod iommu;
mod kernel;
mod open;
mod options;
mod reset;
mod sys;

pub use error::VfioOpenError;
use host::HostFiles;
use info::{IommuInfo, RegionInfo};
use interrupts::Interrupts;
use iommu::{AddressSpace, Mapped};
use kernel::{Kernel, System};
use open::Opened;
pub use options::{
    BarAccess, INTERFACE_VARIABLE, ParseVfioOptionError, VF_TOKEN_VARIABLE, VfToken, VfioInterface,
    VfioOptions,
};
use reset::Group;
use sys::Calls;

/// Maximum number of mappings of a container if the kernel does not report it: the default of `dma_entry_limit`, module `vfio_iommu_type1`.
const DEFAULT_MAPPINGS: u32 = 65_535;

/// PCI function opened through vfio-pci.
///
/// Dropping it switches bus mastering off first, then interrupts, then closes the device; the kernel ends all its mappings. [`Bar`]s that
/// still exist stay mapped, but their device does no more DMA. In a child after a fork, dropping it only closes descriptors.
pub struct VfioBackend {
    name: String,
    address: PciAddress,
    options: VfioOptions,
    interface: VfioInterface,
    kernel: Arc<dyn Kernel>,
    bars: [Option<BarInfo>; 6],
    regions: [Option<RegionInfo>; 6],
    msix: Option<config::MsixCapability>,
    interrupts: Interrupts,
    events: DeviceEvents,
    can_reset: bool,
    iommu: IommuInfo,
    /// Mapped memory, which must be kept until it is unmapped.
    mappings: Mutex<BTreeMap<u64, SharedMemory>>,
    /// Closed in this order: the device, so that the group can be released, and the address space last.
    device: Arc<DeviceFile>,
    group: Option<Group>,
    space: AddressSpace,
    process: Process,
}

/// Device file, and the location of configuration space in it.
struct DeviceFile {
    file: Arc<OwnedFd>,
    config_offset: u64,
    config_size: u64,
    generation: AtomicU64,
}

impl fmt::Debug for VfioBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfioBackend")
            .field("name", &self.name)
            .field("interface", &self.interface)
            .field("bars", &self.bars)
            .field("vectors", &self.interrupts.vectors)
            .finish_non_exhaustive()
    }
}

impl DeviceFile {
    /// Checks an access to configuration space and returns its offset in the file.
    fn config_place(&self, at: u16, length: usize) -> Result<u64, ConfigSpaceError> {
        if u64::from(at) + length as u64 > self.config_size {
            let size = usize::try_from(self.config_size).unwrap_or(usize::MAX);
            return Err(ConfigSpaceError::OutOfRange { at, length, size });
        }
        self.config_offset
            .checked_add(u64::from(at))
            .ok_or(ConfigSpaceError::Refused { at, source: Errno::OVERFLOW.into() })
    }
}

impl config::ConfigSpace for DeviceFile {
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        let place = self.config_place(at, into.len())?;
        let length = into.len();
        match rustix::io::pread(self.file.as_fd(), into, place) {
            Ok(count) if count == length => Ok(()),
            Ok(_) => Err(ConfigSpaceError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(ConfigSpaceError::Refused { at, source: errno.into() }),
        }
    }
}

impl Liveness for DeviceFile {
    fn is_present(&self) -> bool {
        // Memory decoding is off after a reset of a device whose state was not restored.
        config::answers(self) == Ok(true)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl VfioBackend {
    /// Opens the function at a PCI address such as `0000:65:00.0`, which must be bound to vfio-pci, with the options of the environment
    /// ([`VfioOptions::from_environment`]).
    ///
    /// # Errors
    /// See [`VfioOpenError`].
    pub fn open(address: &str) -> Result<Self, VfioOpenError> {
        Self::open_with(address, VfioOptions::from_environment()?)
    }

    /// As [`open`](Self::open), with `options`. The container itself is always opened at `/dev/vfio/vfio`, even if the options name another
    /// directory for device files; that directory is only used to check that a container exists.
    ///
    /// # Errors
    /// See [`VfioOpenError`].
    pub fn open_with(address: &str, options: VfioOptions) -> Result<Self, VfioOpenError> {
        Self::open_on(Arc::new(System), address.parse()?, options)
    }

    fn open_on(
        kernel: Arc<dyn Kernel>,
        address: PciAddress,
        options: VfioOptions,
    ) -> Result<Self, VfioOpenError> {
        let name = address.to_string();
        let Opened { device, interface, group, space } =
            open::open(&*kernel, &HostFiles::new(address, &options.roots), &options)?;
        let query = |what: &'static str, source: OsError| VfioOpenError::Query { address, what, source };
        let malformed = |what: &'static str| VfioOpenError::Malformed { address, what };
        let config = |source| VfioOpenError::Config { address, source };

        let file = Arc::new(device);
        let calls = Calls::new(&*kernel, file.as_fd());
        let region = |index| -> Result<RegionInfo, VfioOpenError> {
            let reply = calls.region_info(index).map_err(|source| query("a region", source))?;
            info::parse_region(&reply).ok_or_else(|| malformed("a region"))
        };
        let config_region = region(VFIO_PCI_CONFIG_REGION_INDEX)?;
        let device = Arc::new(DeviceFile {
            file: Arc::clone(&file),
            config_offset: config_region.offset,
            config_size: config_region.size,
            generation: AtomicU64::new(0),
        });
        let registers = config::bar_registers(&*device).map_err(config)?;
        let msix = config::find_msix(&*device).map_err(config)?;
        let mut regions = [const { None }; 6];
        let mut bars = [None; 6];
        for index in 0..6_u8 {
            let slot = usize::from(index);
            let region = region(u32::from(index))?;
            if region.size == 0 {
                continue;
            }
            // A register that reads as zero (no address assigned) but has a size is also a memory BAR.
            let register = registers[slot];
            bars[slot] = Some(BarInfo {
                index,
                size: region.size,
                kind: register.map_or(BarKind::Memory32, |register| register.kind),
                prefetchable: register.is_some_and(|register| register.prefetchable),
            });
            regions[slot] = Some(region);
        }
        let interrupts = Interrupts::find(calls).map_err(|source| query("its interrupts", source))?;
        let flags = calls.device_flags().map_err(|source| query("its properties", source))?;
        let iommu = space.info(&*kernel).map_err(|source| query("its IOMMU", source))?;
        let iommu = iommu.ok_or_else(|| malformed("its IOMMU"))?;
        if iommu.ranges.is_empty() {
            return Err(VfioOpenError::NoAddresses { address });
        }
        let events = interrupts::arm_events(calls, &name).map_err(|error| VfioOpenError::Step {
            address,
            step: "preparing for its events",
            source: Box::new(error),
        })?;
        tracing::debug!(device = name, %interface, kind = ?interrupts.kind, vectors = interrupts.vectors,
            mappings = ?iommu.available, "opened");
        let backend = Self {
            name,
            address,
            options,
            interface,
            kernel,
            bars,
            regions,
            msix,
            interrupts,
            events,
            can_reset: flags & VFIO_DEVICE_FLAGS_RESET != 0,
            iommu,
            mappings: Mutex::new(BTreeMap::new()),
            device,
            group,
            space,
            process: Process::current(),
        };
        // The kernel opens devices with bus mastering off; the setting of an earlier user must not persist either.
        backend.set_bus_master(false).map_err(config)?;
        Ok(backend)
    }

    /// The kernel interface through which it was opened.
    #[must_use]
    pub fn interface(&self) -> VfioInterface {
        self.interface
    }

    fn calls(&self) -> Calls<'_> {
        Calls::new(&*self.kernel, self.device.file.as_fd())
    }

    fn mappings(&self) -> MutexGuard<'_, BTreeMap<u64, SharedMemory>> {
        lock(&self.mappings)
    }
}

impl Backend for VfioBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn config_read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        config::ConfigSpace::read(&*self.device, at, into)
    }

    fn config_write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        let place = self.device.config_place(at, from.len())?;
        match rustix::io::pwrite(self.device.file.as_fd(), from, place) {
            Ok(count) if count == from.len() => Ok(()),
            Ok(_) => Err(ConfigSpaceError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(ConfigSpaceError::Refused { at, source: errno.into() }),
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
        let mapped = match self.options.bar_access {
            BarAccess::File => false,
            // A device failure never ends a process that did not accept that risk.
            BarAccess::Auto => bus_errors_caught(),
            BarAccess::Mapped => true,
        };
        let areas =
            if mapped { region.mappable_areas(table, rustix::param::page_size() as u64) } else { Vec::new() };
        let presence: Arc<dyn Liveness> = Arc::<DeviceFile>::clone(&self.device);
        MappedBar::map(Arc::clone(&self.device.file), region.offset, region.size, &areas, presence)
            .map(|mapped| Bar::new(Arc::new(mapped)))
            .map_err(|(offset, source)| BarError::MapFailed { index, offset, source })
    }

    fn map_dma(&self, iova: Iova, memory: &SharedMemory, access: DmaAccess) -> Result<(), DmaMapError> {
        let length = memory.len() as u64;
        self.iommu.check(iova, length, self.dma_page_size())?;
        let mut mappings = self.mappings();
        if let Err(source) = self.space.map(&*self.kernel, iova.get(), memory, access) {
            let mapped = Mapped {
                bytes: mappings.values().map(|memory| memory.len() as u64).sum(),
                mappings: mappings.len(),
                limit: self.iommu.available.unwrap_or(DEFAULT_MAPPINGS),
            };
            return Err(self.space.explain(&*self.kernel, iova, length, mapped, source));
        }
        mappings.insert(iova.get(), memory.clone());
        Ok(())
    }

    fn unmap_dma(&self, iova: Iova, length: u64) -> Result<(), DmaMapError> {
        let mut mappings = self.mappings();
        // The kernel would also accept a range that spans several mappings; that is never intended here.
        if mappings.get(&iova.get()).is_none_or(|memory| memory.len() as u64 != length) {
            return Err(DmaMapError::NotMapped { iova, length });
        }
        let size = usize::try_from(length).map_err(|_| DmaMapError::NotMapped { iova, length })?;
        self.space.unmap(&*self.kernel, iova.get(), size).map_err(|source| DmaMapError::Refused {
            iova,
            length,
            source,
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
        self.interrupts.vectors
    }

    fn enable_interrupts(&self, count: u32) -> Result<Vec<Interrupt>, InterruptError> {
        self.interrupts.enable(self.calls(), count)
    }

    fn disable_interrupts(&self) -> Result<(), InterruptError> {
        self.interrupts.disable(self.calls())
    }

    fn events(&self) -> Result<DeviceEvents, InterruptError> {
        Ok(self.events.clone())
    }

    fn reset(&self, level: ResetLevel) -> Result<(), ResetError> {
        if level == ResetLevel::Function && !self.can_reset {
            return Err(ResetError::Unsupported { level });
        }
        if level == ResetLevel::Hot {
            let host = HostFiles::new(self.address, &self.options.roots);
            reset::check_hot(self.calls(), &host, self.group.as_ref())?;
        }
        // A device that no longer answers cannot be stopped; the reset is still attempted.
        let _ = self.set_bus_master(false);
        // Before the reset: handles must not touch the BARs while memory decoding is off.
        self.device.generation.fetch_add(1, Ordering::AcqRel);
        let done = match level {
            ResetLevel::Function => self.calls().reset(),
            ResetLevel::Hot => reset::hot(self.calls(), self.group.as_ref()),
        };
        done.map_err(|source| ResetError::Failed { level, source })?;
        // The kernel restores the command register, bus mastering included.
        self.set_bus_master(false).map_err(|_| ResetError::NoAnswer { level })
    }

    fn now(&self) -> u64 {
        crate::wait::monotonic_ns()
    }

    fn relax(&self) {
        crate::wait::spin();
    }
}

impl Drop for VfioBackend {
    fn drop(&mut self) {
        if !self.process.is_current() {
            return;
        }
        // First: from here on the device does no more DMA.
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
