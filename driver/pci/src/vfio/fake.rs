//! Fake kernel for tests: a directory with the contents of sysfs and `/dev` for a few devices, and replies to every request.
//!
//! A device is a file in memory: configuration space and one BAR are really read, written and mapped. Any call can be made to fail. Open
//! files are found among the process's descriptors, under a name that is unique per fake kernel.

use core::mem::offset_of;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fpga_host::Roots;
use iommufd_bindings::iommufd::{iommu_ioas_iova_ranges, iommu_ioas_map};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use tempfile::TempDir;
use vfio_bindings::bindings::vfio as v;
use vfio_ioctls::VfioError;

use super::info::{read_u32, read_u64};
use super::kernel::{Argument, Container, Kernel, LockedMemory, Request};
use super::options::VfioOptions;
use super::{VfioBackend, VfioOpenError};
use crate::OsError;

/// The device that tests open.
pub(super) const ADDRESS: &str = "0000:65:00.0";
/// Its IOMMU group.
pub(super) const GROUP: u32 = 7;
/// Offsets of BAR 0 and configuration space in the device file.
pub(super) const BAR: u64 = 0x10000;
pub(super) const CONFIG: u64 = 0x40000;
/// Ranges that may be mapped: around the MSI window, 39 bits.
pub(super) const RANGES: [(u64, u64); 2] = [(0, 0xFEDF_FFFF), (0xFEF0_0000, 0x7F_FFFF_FFFF)];

/// Step that can fail: opening a file, the container, or a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Open(&'static str),
    Container,
    Request(Request),
    Unmap,
}

/// State and behaviour of the fake kernel.
pub(super) struct State {
    /// Steps that fail, with their error.
    pub(super) failures: Vec<(Call, Errno)>,
    /// Requests in their order.
    pub(super) requests: Vec<Request>,
    /// Length and flags by address.
    pub(super) mapped: BTreeMap<u64, (u64, u32)>,
    pub(super) locked: LockedMemory,
    pub(super) max_mappings: usize,
    pub(super) viable: bool,
    /// Maximum number of message interrupts; the reply to a request for more.
    pub(super) vectors_left: u32,
    /// Vectors by index: INTx, MSI, MSI-X, error, request. `None`: no such index.
    pub(super) vectors: [Option<u32>; 5],
    /// Flags of the device: reset.
    pub(super) can_reset: bool,
    /// Functions below the port: id (group or device), bus, devfn; `None`: no hot reset.
    pub(super) dependents: Option<Vec<(u32, u8, u8)>>,
    /// Whether the device was opened by its device file.
    own_file: bool,
    /// Descriptors per index, as last set, and those for unmasking.
    pub(super) irq_files: BTreeMap<(u32, bool), Vec<i32>>,
    /// Flags of the last binding, and the name requested from the group.
    pub(super) bind_flags: u32,
    pub(super) device_name: String,
    /// Group files shown by the last hot reset.
    pub(super) hot_groups: Option<u32>,
}

pub(super) struct Fake {
    directory: TempDir,
    name: String,
    state: Mutex<State>,
    device: OwnedFd,
}

impl Fake {
    /// Creates a machine whose device can be opened through both interfaces.
    pub(super) fn new() -> Arc<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("fake-kernel-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let device = rustix::fs::memfd_create("device", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&device, CONFIG + 256).unwrap();
        // Vendor, device, memory decoding and bus mastering on, capabilities; BAR 0 of 64 KiB; MSI-X with 32 vectors.
        for (at, bytes) in [
            (0x00, &[0xEE, 0x10, 0x38, 0x90, 0x06, 0x00, 0x10, 0x00][..]),
            (0x10, &[0x00, 0x00, 0x00, 0xF0]),
            (0x34, &[0x40]),
            (0x40, &[0x11, 0x00, 0x1F, 0x80, 0x00, 0x80, 0x00, 0x00, 0xE0, 0x8F, 0x00, 0x00]),
        ] {
            rustix::io::pwrite(&device, bytes, CONFIG + at).unwrap();
        }
        let state = State {
            failures: Vec::new(),
            requests: Vec::new(),
            mapped: BTreeMap::new(),
            locked: LockedMemory { locked: 0, limit: None },
            max_mappings: 3,
            viable: true,
            vectors_left: u32::MAX,
            vectors: [Some(1), Some(1), Some(32), Some(1), Some(1)],
            can_reset: true,
            dependents: Some(vec![(GROUP, 0x65, 0)]),
            own_file: false,
            irq_files: BTreeMap::new(),
            bind_flags: 0,
            device_name: String::new(),
            hot_groups: None,
        };
        let directory = tempfile::tempdir().unwrap();
        let fake = Self { directory, name, state: Mutex::new(state), device };
        fake.add_function(ADDRESS, "vfio-pci", GROUP);
        fs::create_dir_all(fake.sysfs(ADDRESS).join("vfio-dev/vfio3")).unwrap();
        for file in ["vfio/vfio", "vfio/7", "vfio/devices/vfio3", "iommu"] {
            let file = fake.dev(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "").unwrap();
        }
        Arc::new(fake)
    }

    /// Path of an IOMMU group in sysfs.
    pub(super) fn iommu_group(&self, group: u32) -> PathBuf {
        self.directory.path().join("sys/kernel/iommu_groups").join(group.to_string())
    }

    /// Adds another function, bound to `driver`.
    pub(super) fn add_function(&self, address: &str, driver: &str, group: u32) {
        let device = self.sysfs(address);
        fs::create_dir_all(&device).unwrap();
        if !driver.is_empty() {
            symlink(Path::new("../../../../bus/pci/drivers").join(driver), device.join("driver")).unwrap();
        }
        let groups = self.iommu_group(group);
        symlink(&groups, device.join("iommu_group")).unwrap();
        fs::create_dir_all(groups.join("devices")).unwrap();
        symlink(&device, groups.join("devices").join(address)).unwrap();
    }

    pub(super) fn sysfs(&self, address: &str) -> PathBuf {
        self.directory.path().join("sys/bus/pci/devices").join(address)
    }

    pub(super) fn dev(&self, file: &str) -> PathBuf {
        self.directory.path().join("dev").join(file)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn options(&self) -> VfioOptions {
        let mut roots = Roots::with_root(self.directory.path());
        // Files that this process has open are real.
        roots.proc = PathBuf::from("/proc");
        VfioOptions::default().roots(roots)
    }

    pub(super) fn open(self: &Arc<Self>, options: VfioOptions) -> Result<VfioBackend, VfioOpenError> {
        let kernel = Arc::new(FakeKernel(Arc::clone(self)));
        VfioBackend::open_on(kernel, ADDRESS.parse().unwrap(), options)
    }

    /// Returns the number of files that this kernel handed out and that are still open.
    pub(super) fn open_files(&self) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
        let marker = format!("/memfd:{} ", self.name);
        targets.filter(|target| target.to_string_lossy().starts_with(&marker)).count() + self.devices_open()
    }

    /// Returns the number of open device files. The device file is opened again through procfs, so it is recognised by its inode.
    fn devices_open(&self) -> usize {
        let own = rustix::fs::fstat(&self.device).unwrap();
        let own = (own.st_ino, own.st_dev);
        let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let same = links.filter(|link| {
            rustix::fs::stat(link.path()).is_ok_and(|stat| stat.st_ino == own.0 && stat.st_dev == own.1)
        });
        // Without the one of this fake.
        same.count() - 1
    }

    /// Writes into configuration space.
    pub(super) fn set_config(&self, at: u64, bytes: &[u8]) {
        rustix::io::pwrite(&self.device, bytes, CONFIG + at).unwrap();
    }

    /// The file behind the device.
    pub(super) fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Makes `call` fail from now on.
    pub(super) fn fail(&self, call: Call, errno: Errno) {
        self.state().failures.push((call, errno));
    }

    fn file(&self) -> OwnedFd {
        rustix::fs::memfd_create(self.name.as_str(), MemfdFlags::CLOEXEC).unwrap()
    }

    fn failure(&self, call: &Call) -> Result<(), OsError> {
        let state = self.state();
        match state.failures.iter().find(|(failing, _)| failing == call) {
            Some((_, errno)) => Err((*errno).into()),
            None => Ok(()),
        }
    }
}

/// The container of a [`Fake`].
struct FakeContainer {
    file: OwnedFd,
    kernel: Arc<Fake>,
}

impl Container for FakeContainer {
    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn unmap(&self, iova: u64, length: usize) -> Result<(), OsError> {
        self.kernel.failure(&Call::Unmap)?;
        self.kernel.state().unmap(iova, length as u64)
    }
}

impl State {
    fn map(&mut self, iova: u64, length: u64, flags: u32) -> Result<u32, OsError> {
        let last = iova + length - 1;
        if !RANGES.iter().any(|range| range.0 <= iova && last <= range.1) {
            return Err(Errno::INVAL.into());
        }
        if self.mapped.iter().any(|(start, (other, _))| *start <= last && iova < start + other) {
            return Err(Errno::EXIST.into());
        }
        if self.mapped.len() == self.max_mappings {
            return Err(Errno::NOSPC.into());
        }
        let locked: u64 = self.mapped.values().map(|(length, _)| length).sum();
        if self.locked.limit.is_some_and(|limit| self.locked.locked.max(locked) + length > limit) {
            return Err(Errno::NOMEM.into());
        }
        self.mapped.insert(iova, (length, flags));
        Ok(0)
    }

    fn unmap(&mut self, iova: u64, length: u64) -> Result<(), OsError> {
        match self.mapped.remove(&iova) {
            Some((mapped, _)) if mapped == length => Ok(()),
            _ => Err(Errno::NOENT.into()),
        }
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

/// Handle of a backend to a [`Fake`].
struct FakeKernel(Arc<Fake>);

impl Kernel for FakeKernel {
    fn open(&self, path: &Path) -> Result<OwnedFd, OsError> {
        for name in ["vfio/7", "vfio/devices/vfio3", "iommu"] {
            if path == self.0.dev(name) {
                self.0.failure(&Call::Open(name))?;
                return if name == "vfio/devices/vfio3" {
                    Ok(self.0.device_file())
                } else {
                    Ok(self.0.file())
                };
            }
        }
        Err(Errno::NOENT.into())
    }

    fn container(&self) -> Result<Box<dyn Container>, VfioError> {
        let failure = self.0.failure(&Call::Container);
        failure.map_err(|error| VfioError::OpenContainer(std::io::Error::from_raw_os_error(error.raw())))?;
        Ok(Box::new(FakeContainer { file: self.0.file(), kernel: Arc::clone(&self.0) }))
    }

    unsafe fn ioctl(
        &self,
        _file: BorrowedFd<'_>,
        request: Request,
        argument: Argument<'_>,
    ) -> Result<u32, OsError> {
        self.0.state().requests.push(request);
        self.0.failure(&Call::Request(request))?;
        match argument {
            Argument::Value(_) => Ok(0),
            Argument::Bytes(bytes) => self.0.answer(request, bytes),
        }
    }

    fn locked_memory(&self) -> LockedMemory {
        self.0.state().locked
    }
}

impl Fake {
    fn answer(&self, request: Request, bytes: &mut [u8]) -> Result<u32, OsError> {
        let mut state = self.state();
        let field = |at: usize| read_u32(bytes, at).unwrap();
        match request {
            Request::GroupStatus => put(bytes, 4, u32::from(state.viable)),
            Request::GroupDevice => {
                state.device_name = String::from_utf8(bytes.to_vec()).unwrap();
                drop(state);
                return Ok(u32::try_from(self.device_file().into_raw_fd()).unwrap());
            }
            Request::DeviceInfo => put(bytes, 4, 2 | u32::from(state.can_reset)),
            Request::RegionInfo => {
                let (flags, size, offset) = match field(8) {
                    0 => (7, 0x10000, BAR),
                    v::VFIO_PCI_CONFIG_REGION_INDEX => (3, 256, CONFIG),
                    _ => (0, 0, 0),
                };
                put(bytes, 4, flags);
                put_u64(bytes, 16, size);
                put_u64(bytes, 24, offset);
            }
            Request::IrqInfo => {
                let count = state.vectors.get(field(8) as usize).copied().flatten();
                put(bytes, 12, count.ok_or(Errno::INVAL)?);
            }
            Request::SetIrqs => return state.set_irqs(bytes),
            Request::HotResetInfo => {
                let dependents = state.dependents.clone().ok_or(Errno::NODEV)?;
                put(bytes, 8, u32::try_from(dependents.len()).unwrap());
                if bytes.len() < 12 + 8 * dependents.len() {
                    return Err(Errno::NOSPC.into());
                }
                put(bytes, 4, u32::from(state.own_file));
                for (index, (id, bus, devfn)) in dependents.into_iter().enumerate() {
                    put(bytes, 12 + 8 * index, id);
                    put(bytes, 16 + 8 * index, u32::from_ne_bytes([0, 0, bus, devfn]));
                }
            }
            Request::HotReset => state.hot_groups = Some(field(8)),
            Request::BindIommufd => {
                state.own_file = true;
                state.bind_flags = field(4);
            }
            Request::IommuInfo => {
                let mut info: Vec<u8> = [88_u32, 3].iter().flat_map(|word| word.to_ne_bytes()).collect();
                info.extend(0x4020_1000_u64.to_ne_bytes());
                // Capabilities: ranges, then available mappings.
                let words: [u32; 6] = [24, 0, 1 << 16 | 1, 72, 2, 0];
                info.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                info.extend(RANGES.iter().flat_map(|range| [range.0, range.1]).flat_map(u64::to_ne_bytes));
                let words: [u32; 4] = [1 << 16 | 3, 0, u32::try_from(state.max_mappings).unwrap(), 0];
                info.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                let length = bytes.len().min(info.len());
                bytes[..length].copy_from_slice(&info[..length]);
            }
            Request::IommuMap => {
                let (flags, iova, length) =
                    (field(4), read_u64(bytes, 16).unwrap(), read_u64(bytes, 24).unwrap());
                return state.map(iova, length, flags);
            }
            Request::IoasAlloc => put(bytes, 8, 5),
            Request::IoasRanges => return Self::ranges(bytes),
            Request::IoasMap => {
                assert_eq!(field(8), 5, "the address space that was allocated");
                let at = |field| read_u64(bytes, field).unwrap();
                return state.map(
                    at(offset_of!(iommu_ioas_map, iova)),
                    at(offset_of!(iommu_ioas_map, length)),
                    field(4),
                );
            }
            Request::IoasUnmap => {
                let failure = state.failures.iter().find(|failure| failure.0 == Call::Unmap).cloned();
                if let Some((_, errno)) = failure {
                    return Err(errno.into());
                }
                state.unmap(read_u64(bytes, 8).unwrap(), read_u64(bytes, 16).unwrap())?;
            }
            Request::SetIommu | Request::GroupSetContainer | Request::Reset | Request::AttachIoas => {}
        }
        Ok(0)
    }

    /// Writes the ranges, or only their number if the caller has too little space, so that it has to ask again.
    fn ranges(bytes: &mut [u8]) -> Result<u32, OsError> {
        let at = offset_of!(iommu_ioas_iova_ranges, num_iovas);
        let capacity = read_u32(bytes, at).unwrap() as usize;
        // More than the first request holds: small ones below the large one.
        let small = (0..40_u64).map(|index| (index << 20, (index << 20) + 0xFFFF));
        let ranges: Vec<(u64, u64)> = small.chain([(0x1_0000_0000, RANGES[1].1)]).collect();
        put(bytes, at, u32::try_from(ranges.len()).unwrap());
        put_u64(bytes, offset_of!(iommu_ioas_iova_ranges, out_iova_alignment), 4096);
        if capacity < ranges.len() {
            return Err(Errno::MSGSIZE.into());
        }
        let address = read_u64(bytes, offset_of!(iommu_ioas_iova_ranges, allowed_iovas)).unwrap();
        let place = core::ptr::with_exposed_provenance_mut::<u64>(usize::try_from(address).unwrap());
        for (index, value) in ranges.iter().flat_map(|range| [range.0, range.1]).enumerate() {
            // SAFETY: the caller of the request guarantees space for `capacity` pairs there, which are at least as many.
            unsafe { place.add(index).write(value) };
        }
        Ok(0)
    }

    /// The device file, opened once more.
    fn device_file(&self) -> OwnedFd {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.device));
        fs::OpenOptions::new().read(true).write(true).open(path).unwrap().into()
    }
}

impl State {
    fn set_irqs(&mut self, bytes: &[u8]) -> Result<u32, OsError> {
        let field = |at: usize| read_u32(bytes, at).unwrap();
        let (flags, index, count) = (field(4), field(8), field(16));
        let key = (index, flags & v::VFIO_IRQ_SET_ACTION_UNMASK != 0);
        if flags & v::VFIO_IRQ_SET_DATA_NONE != 0 {
            self.irq_files.retain(|(other, _), _| *other != index);
            return Ok(0);
        }
        if matches!(index, v::VFIO_PCI_MSI_IRQ_INDEX | v::VFIO_PCI_MSIX_IRQ_INDEX)
            && count > self.vectors_left
        {
            return Ok(self.vectors_left);
        }
        let files = (0..count as usize).map(|file| i32::from_ne_bytes(field(20 + 4 * file).to_ne_bytes()));
        self.irq_files.insert(key, files.collect());
        Ok(0)
    }
}
