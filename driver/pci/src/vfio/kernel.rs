//! Interface to the kernel: every system call on a VFIO or iommufd file uses [`Kernel`], so that tests can substitute a fake kernel and
//! make any single call fail.
//!
//! Accesses to configuration space and BARs are plain reads, writes and mappings of a file; they do not need the interface.

use std::ffi::c_ulong;
use std::fs::OpenOptions;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

use iommufd_bindings::iommufd::{
    IOMMUFD_CMD_IOAS_ALLOC, IOMMUFD_CMD_IOAS_IOVA_RANGES, IOMMUFD_CMD_IOAS_MAP, IOMMUFD_CMD_IOAS_UNMAP,
};
use rustix::io::Errno;
use rustix::process::Resource;
use vfio_bindings::bindings::vfio::{VFIO_BASE, VFIO_TYPE};
use vfio_ioctls::{VfioContainer, VfioError};
use vmm_sys_util::ioctl::{ioctl_with_mut_ptr, ioctl_with_val};

use crate::OsError;

/// Bit of the capability to lock memory beyond the limit (`linux/capability.h`).
const CAP_IPC_LOCK: u32 = 14;

/// Request to a VFIO or iommufd file. The numbers overlap (a container's request and a device's may have the same one), so they are in
/// [`code`](Request::code).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    SetIommu,
    IommuInfo,
    IommuMap,
    GroupStatus,
    GroupSetContainer,
    GroupDevice,
    DeviceInfo,
    RegionInfo,
    IrqInfo,
    SetIrqs,
    Reset,
    HotResetInfo,
    HotReset,
    BindIommufd,
    AttachIoas,
    IoasAlloc,
    IoasRanges,
    IoasMap,
    IoasUnmap,
}

impl Request {
    /// Request code: `_IO(';', number)` has no direction and no size, so it is the two bytes. VFIO counts from 100 (`linux/vfio.h`),
    /// iommufd from 0x80 (`linux/iommufd.h`); both have the type ';'.
    pub(super) const fn code(self) -> u32 {
        let number = match self {
            Self::SetIommu => VFIO_BASE + 2,
            Self::GroupStatus => VFIO_BASE + 3,
            Self::GroupSetContainer => VFIO_BASE + 4,
            Self::GroupDevice => VFIO_BASE + 6,
            Self::DeviceInfo => VFIO_BASE + 7,
            Self::RegionInfo => VFIO_BASE + 8,
            Self::IrqInfo => VFIO_BASE + 9,
            Self::SetIrqs => VFIO_BASE + 10,
            Self::Reset => VFIO_BASE + 11,
            Self::HotResetInfo | Self::IommuInfo => VFIO_BASE + 12,
            Self::HotReset | Self::IommuMap => VFIO_BASE + 13,
            Self::BindIommufd => VFIO_BASE + 18,
            Self::AttachIoas => VFIO_BASE + 19,
            Self::IoasAlloc => IOMMUFD_CMD_IOAS_ALLOC,
            Self::IoasRanges => IOMMUFD_CMD_IOAS_IOVA_RANGES,
            Self::IoasMap => IOMMUFD_CMD_IOAS_MAP,
            Self::IoasUnmap => IOMMUFD_CMD_IOAS_UNMAP,
        };
        (VFIO_TYPE as u32) << 8 | number
    }
}

/// Argument of a request.
#[derive(Debug)]
pub(super) enum Argument<'a> {
    /// A number.
    Value(u32),
    /// Address of these bytes.
    Bytes(&'a mut [u8]),
}

/// Memory that the process has locked, and may lock, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LockedMemory {
    pub(super) locked: u64,
    /// `None`: no limit.
    pub(super) limit: Option<u64>,
}

/// Operations of the kernel that are needed here.
pub(super) trait Kernel: Send + Sync {
    /// Opens a device file for reading and writing.
    fn open(&self, path: &Path) -> Result<OwnedFd, OsError>;

    /// Opens a container of the right version that supports a type 1 v2 IOMMU.
    fn container(&self) -> Result<Box<dyn Container>, VfioError>;

    /// Makes a request. The kernel's result is not negative.
    ///
    /// # Safety
    /// `argument` is what the request takes (`linux/vfio.h`, `linux/iommufd.h`): at least as many bytes as the kernel reads and writes for
    /// the length that they declare, and addresses in them, if any, of memory that the kernel may use as the request defines.
    unsafe fn ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: Request,
        argument: Argument<'_>,
    ) -> Result<u32, OsError>;

    /// Locked memory, for messages.
    fn locked_memory(&self) -> LockedMemory;
}

/// Open `/dev/vfio/vfio`.
pub(super) trait Container: Send + Sync {
    fn file(&self) -> BorrowedFd<'_>;

    /// Removes one mapping. Fails if the kernel unmapped another number of bytes.
    fn unmap(&self, iova: u64, length: usize) -> Result<(), OsError>;
}

/// Kernel on which this process runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct System;

impl Kernel for System {
    fn open(&self, path: &Path) -> Result<OwnedFd, OsError> {
        // The standard library sets close-on-exec: a child that inherits the file would keep the device busy.
        Ok(OpenOptions::new().read(true).write(true).open(path)?.into())
    }

    fn container(&self) -> Result<Box<dyn Container>, VfioError> {
        Ok(Box::new(VfioContainer::new(None)?))
    }

    unsafe fn ioctl(
        &self,
        file: BorrowedFd<'_>,
        request: Request,
        argument: Argument<'_>,
    ) -> Result<u32, OsError> {
        let code = c_ulong::from(request.code());
        let result = match argument {
            // SAFETY: the request takes a number or nothing; the caller vouches for that.
            Argument::Value(value) => unsafe { ioctl_with_val(&file, code, c_ulong::from(value)) },
            // SAFETY: the caller vouches for the bytes, which are borrowed for the time of the call.
            Argument::Bytes(bytes) => unsafe { ioctl_with_mut_ptr(&file, code, bytes.as_mut_ptr()) },
        };
        u32::try_from(result).map_err(|_| std::io::Error::last_os_error().into())
    }

    fn locked_memory(&self) -> LockedMemory {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let capabilities =
            capabilities.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()).unwrap_or(0);
        let limit = rustix::process::getrlimit(Resource::Memlock).current;
        // The limit does not apply to a process with the capability to lock memory.
        let limit = limit.filter(|_| capabilities & 1 << CAP_IPC_LOCK == 0);
        // Memory pinned by containers counts as locked, memory pinned by iommufd as pinned.
        let kib = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok()).unwrap_or(0)
        };
        LockedMemory { locked: (kib("VmLck:") + kib("VmPin:")) * 1024, limit }
    }
}

impl Container for VfioContainer {
    fn file(&self) -> BorrowedFd<'_> {
        // SAFETY: the container owns the descriptor and keeps it open while it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.as_raw_fd()) }
    }

    fn unmap(&self, iova: u64, length: usize) -> Result<(), OsError> {
        self.vfio_dma_unmap(iova, length).map_err(|error| match error {
            VfioError::IommuDmaUnmap(errno) => OsError::from_raw(errno.errno()),
            _ => Errno::INVAL.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    /// Compares the codes with those in traces of other programs.
    #[test]
    fn ioctl_request_codes_match_headers() {
        for (request, code) in [
            (Request::SetIommu, 0x3B66),
            (Request::GroupStatus, 0x3B67),
            (Request::GroupSetContainer, 0x3B68),
            (Request::GroupDevice, 0x3B6A),
            (Request::DeviceInfo, 0x3B6B),
            (Request::RegionInfo, 0x3B6C),
            (Request::IrqInfo, 0x3B6D),
            (Request::SetIrqs, 0x3B6E),
            (Request::Reset, 0x3B6F),
            (Request::HotResetInfo, 0x3B70),
            (Request::IommuInfo, 0x3B70),
            (Request::HotReset, 0x3B71),
            (Request::IommuMap, 0x3B71),
            (Request::BindIommufd, 0x3B76),
            (Request::AttachIoas, 0x3B77),
            (Request::IoasAlloc, 0x3B81),
            (Request::IoasRanges, 0x3B84),
            (Request::IoasMap, 0x3B85),
            (Request::IoasUnmap, 0x3B86),
        ] {
            assert_eq!(request.code(), code, "{request:?}");
        }
    }

    #[test]
    fn ioctl_on_non_device_file_is_error() {
        let file = System.open(Path::new("/dev/null")).unwrap();
        // SAFETY: the file supports no request.
        let refused = unsafe { System.ioctl(file.as_fd(), Request::Reset, Argument::Value(0)) };
        assert_eq!(refused, Err(Errno::NOTTY.into()));
        assert_eq!(System.open(Path::new("/dev/null/none")).unwrap_err(), Errno::NOTDIR.into());
    }

    #[test]
    fn locked_memory_limit_of_process_is_read() {
        let memory = System.locked_memory();
        let limit = rustix::process::getrlimit(Resource::Memlock).current;
        assert!(memory.limit.is_none() || memory.limit == limit);
    }
}
