//! Address space of a device: a container's IOMMU, or an IO address space of an iommufd.

use core::mem::offset_of;
use std::os::fd::{AsFd, OwnedFd};

use fpga_registers::Iova;
use iommufd_bindings::iommufd::{
    iommu_ioas_alloc, iommu_ioas_iova_ranges, iommu_ioas_map, iommu_ioas_unmap,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_FIXED_IOVA as FIXED_IOVA,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_READABLE as READABLE,
    iommufd_ioas_map_flags_IOMMU_IOAS_MAP_WRITEABLE as WRITEABLE,
};
use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, vfio_iommu_type1_dma_map,
};

use super::info::{self, IommuInfo};
use super::kernel::{Container, Kernel, Request};
use super::sys::{Block, Calls};
use crate::{DmaAccess, DmaMapError, OsError, SharedMemory};

/// Initial and maximum number of ranges requested.
const RANGES: u32 = 32;
const MAX_RANGES: u32 = 4096;

/// Address space in which mappings are made. Closing it ends them, once the device is closed too.
pub(super) enum AddressSpace {
    Container(Box<dyn Container>),
    Iommufd { file: OwnedFd, ioas: u32 },
}

/// Existing mappings, for messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mapped {
    pub(super) bytes: u64,
    pub(super) mappings: usize,
    /// Maximum number of mappings in the address space.
    pub(super) limit: u32,
}

impl AddressSpace {
    /// Creates an IO address space of an iommufd.
    pub(super) fn new(kernel: &dyn Kernel, file: OwnedFd) -> Result<Self, OsError> {
        let mut alloc = Block::of::<iommu_ioas_alloc>();
        // SAFETY: the structure holds no address.
        unsafe { Calls::new(kernel, file.as_fd()).request(Request::IoasAlloc, &mut alloc) }?;
        Ok(Self::Iommufd { file, ioas: alloc.read_u32(offset_of!(iommu_ioas_alloc, out_ioas_id)) })
    }

    /// Reads the permitted addresses. `Ok(None)`: the reply is invalid. Call it after the device is attached, which narrows the ranges.
    pub(super) fn info(&self, kernel: &dyn Kernel) -> Result<Option<IommuInfo>, OsError> {
        match self {
            Self::Container(container) => {
                let reply = Calls::new(kernel, container.file()).iommu_info()?;
                Ok(info::parse_iommu(&reply))
            }
            Self::Iommufd { file, ioas } => iova_ranges(Calls::new(kernel, file.as_fd()), *ioas),
        }
    }

    /// Maps all of `memory` at `iova` with exactly the requested access.
    pub(super) fn map(
        &self,
        kernel: &dyn Kernel,
        iova: u64,
        memory: &SharedMemory,
        access: DmaAccess,
    ) -> Result<(), OsError> {
        let address = memory.host_pointer().expose_provenance() as u64;
        let length = memory.len() as u64;
        let either = |read: u32, write: u32| {
            (if access.device_reads() { read } else { 0 }) | (if access.device_writes() { write } else { 0 })
        };
        let (file, request, mut block) = match self {
            Self::Container(container) => {
                let block = Block::of::<vfio_iommu_type1_dma_map>()
                    .with(
                        offset_of!(vfio_iommu_type1_dma_map, flags),
                        either(VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE),
                    )
                    .with_long(offset_of!(vfio_iommu_type1_dma_map, vaddr), address)
                    .with_long(offset_of!(vfio_iommu_type1_dma_map, iova), iova)
                    .with_long(offset_of!(vfio_iommu_type1_dma_map, size), length);
                (container.file(), Request::IommuMap, block)
            }
            Self::Iommufd { file, ioas } => {
                let block = Block::of::<iommu_ioas_map>()
                    .with(offset_of!(iommu_ioas_map, flags), FIXED_IOVA | either(READABLE, WRITEABLE))
                    .with(offset_of!(iommu_ioas_map, ioas_id), *ioas)
                    .with_long(offset_of!(iommu_ioas_map, user_va), address)
                    .with_long(offset_of!(iommu_ioas_map, length), length)
                    .with_long(offset_of!(iommu_ioas_map, iova), iova);
                (file.as_fd(), Request::IoasMap, block)
            }
        };
        // SAFETY: `memory` is a live mapping of that length, to which only references to atomics exist. The kernel pins its pages until
        // they are unmapped, even if all clones are dropped before, so the device never reaches memory that has been reused.
        unsafe { Calls::new(kernel, file).request(request, &mut block) }.map(drop)
    }

    /// Removes one mapping of `length` bytes.
    pub(super) fn unmap(&self, kernel: &dyn Kernel, iova: u64, length: usize) -> Result<(), OsError> {
        match self {
            // The crate compares the unmapped length with the requested one, so a kernel that unmaps nothing is detected.
            Self::Container(container) => container.unmap(iova, length),
            Self::Iommufd { file, ioas } => {
                let mut block = Block::of::<iommu_ioas_unmap>()
                    .with(offset_of!(iommu_ioas_unmap, ioas_id), *ioas)
                    .with_long(offset_of!(iommu_ioas_unmap, iova), iova)
                    .with_long(offset_of!(iommu_ioas_unmap, length), length as u64);
                // SAFETY: the structure holds no address of this process.
                unsafe { Calls::new(kernel, file.as_fd()).request(Request::IoasUnmap, &mut block) }?;
                match block.read_u64(offset_of!(iommu_ioas_unmap, length)) {
                    unmapped if unmapped == length as u64 => Ok(()),
                    _ => Err(Errno::INVAL.into()),
                }
            }
        }
    }

    /// Translates the error of a failed mapping.
    pub(super) fn explain(
        &self,
        kernel: &dyn Kernel,
        iova: Iova,
        length: u64,
        mapped: Mapped,
        source: OsError,
    ) -> DmaMapError {
        match Errno::from_raw_os_error(source.raw()) {
            // A container returns the first. An iommufd returns the first for a fixed address in use, and the second for one that has just
            // become reserved.
            Errno::EXIST | Errno::ADDRINUSE => DmaMapError::Overlap { iova, length },
            Errno::NOSPC if matches!(self, Self::Container(_)) => {
                DmaMapError::TooManyMappings { iova, length, in_use: mapped.mappings, limit: mapped.limit }
            }
            Errno::NOMEM => {
                let memory = kernel.locked_memory();
                // Memory pinned for an iommufd is counted per user: the process may see less than the kernel.
                let locked = memory.locked.max(mapped.bytes);
                let needed = locked.saturating_add(length);
                match memory.limit {
                    Some(limit) if needed > limit => {
                        DmaMapError::LockedMemory { iova, length, locked, limit, needed }
                    }
                    Some(limit) if matches!(self, Self::Iommufd { .. }) => {
                        DmaMapError::LockedMemoryOfUser { iova, length, limit }
                    }
                    _ => DmaMapError::LimitReached { iova, length, source },
                }
            }
            Errno::NOSPC => DmaMapError::LimitReached { iova, length, source },
            _ => DmaMapError::Refused { iova, length, source },
        }
    }
}

/// `IOMMU_IOAS_IOVA_RANGES`: repeats the request with space for all ranges.
fn iova_ranges(calls: Calls<'_>, ioas: u32) -> Result<Option<IommuInfo>, OsError> {
    let mut capacity = RANGES;
    loop {
        let mut ranges = vec![0_u64; 2 * capacity as usize];
        let mut block = Block::of::<iommu_ioas_iova_ranges>()
            .with(offset_of!(iommu_ioas_iova_ranges, ioas_id), ioas)
            .with(offset_of!(iommu_ioas_iova_ranges, num_iovas), capacity)
            .with_long(
                offset_of!(iommu_ioas_iova_ranges, allowed_iovas),
                ranges.as_mut_ptr().expose_provenance() as u64,
            );
        // SAFETY: the address is that of space for `capacity` pairs of 64-bit numbers (`struct iommu_iova_range`: start and last), which live
        // beyond the call and to which no other reference exists meanwhile.
        let outcome = unsafe { calls.request(Request::IoasRanges, &mut block) };
        let count = block.read_u32(offset_of!(iommu_ioas_iova_ranges, num_iovas));
        match outcome {
            Ok(_) if count <= capacity => {
                let pairs = ranges.chunks_exact(2).take(count as usize);
                let ranges = pairs.filter_map(|pair| Some((*pair.first()?, *pair.get(1)?))).collect();
                let alignment = block.read_u64(offset_of!(iommu_ioas_iova_ranges, out_iova_alignment)).max(1);
                return Ok(alignment.is_power_of_two().then(|| IommuInfo::new(alignment, ranges, None)));
            }
            Err(error) if error == Errno::MSGSIZE.into() && count > capacity && count <= MAX_RANGES => {
                capacity = count;
            }
            Ok(_) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
