//! Building of requests and parsing of replies, over the [`Kernel`] interface.
//!
//! All structures are bytes with fields at the offsets of `linux/vfio.h` and `linux/iommufd.h`, so that the layout of a reply is never
//! assumed; [`info`](super::info) parses the longer ones.

use core::mem::offset_of;
use fpga_registers::invariant::DebugExpect as _;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_BIND_FLAG_TOKEN, VFIO_GROUP_FLAGS_VIABLE, VFIO_TYPE1v2_IOMMU, vfio_device_attach_iommufd_pt,
    vfio_device_bind_iommufd, vfio_device_info, vfio_group_status, vfio_irq_info, vfio_pci_hot_reset,
    vfio_pci_hot_reset_info,
};

use super::info::read_u32;
use super::kernel::{Argument, Kernel, Request};
use super::options::VfToken;
use crate::{OsError, PciAddress};

/// Maximum size in bytes of an accepted reply: thousands of ranges.
const MAX_REPLY_SIZE: usize = 64 << 10;

/// Structure of the kernel, as bytes. The first word is its length, as in both interfaces.
#[derive(Debug, Clone)]
pub(super) struct Block(Vec<u8>);

impl Block {
    /// Creates a structure of zeros, except for the length.
    pub(super) fn of<T>() -> Self {
        Self(vec![0; size_of::<T>()]).with_length()
    }

    fn with_length(mut self) -> Self {
        let length = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        if let Some(first) = self.0.first_chunk_mut::<4>() {
            *first = length.to_ne_bytes();
        }
        self
    }

    /// Sets the 32-bit field at `at`. A field that the structure does not have is a defect in this module, which its tests detect.
    pub(super) fn with(mut self, at: usize, value: u32) -> Self {
        if let Some(field) = self.0.get_mut(at..at + 4) {
            field.copy_from_slice(&value.to_ne_bytes());
        } else {
            debug_assert!(false, "no field at {at}");
        }
        self
    }

    /// Sets the 64-bit field at `at`.
    pub(super) fn with_long(mut self, at: usize, value: u64) -> Self {
        if let Some(field) = self.0.get_mut(at..at + 8) {
            field.copy_from_slice(&value.to_ne_bytes());
        } else {
            debug_assert!(false, "no field at {at}");
        }
        self
    }

    /// Appends words to the structure's array.
    fn and(mut self, words: impl IntoIterator<Item = [u8; 4]>) -> Self {
        self.0.extend(words.into_iter().flatten());
        self.with_length()
    }

    /// Returns the 32-bit field at `at`.
    pub(super) fn read_u32(&self, at: usize) -> u32 {
        read_u32(&self.0, at).debug_expect("a field of the structure").unwrap_or(0)
    }

    /// Returns the 64-bit field at `at`.
    pub(super) fn read_u64(&self, at: usize) -> u64 {
        super::info::read_u64(&self.0, at).debug_expect("a field of the structure").unwrap_or(0)
    }
}

/// Open file to which requests are made.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    kernel: &'a dyn Kernel,
    file: BorrowedFd<'a>,
}

impl<'a> Calls<'a> {
    pub(super) fn new(kernel: &'a dyn Kernel, file: BorrowedFd<'a>) -> Self {
        Self { kernel, file }
    }

    /// Makes a request whose bytes hold no address, or the address of memory that the caller vouches for.
    ///
    /// # Safety
    /// Addresses in `block`, if the request has some, are those of memory that the kernel may use as the request defines.
    pub(super) unsafe fn request(self, request: Request, block: &mut Block) -> Result<u32, OsError> {
        // SAFETY: the kernel reads and writes at most as many bytes as the first word declares, which is the block's length; the caller
        // vouches for addresses.
        unsafe { self.kernel.ioctl(self.file, request, Argument::Bytes(&mut block.0)) }
    }

    /// Makes a request without addresses.
    fn request_without_addresses(self, request: Request, block: &mut Block) -> Result<u32, OsError> {
        debug_assert!(!matches!(request, Request::IommuMap | Request::IoasMap | Request::IoasRanges));
        // SAFETY: none of the requests made through this function has an address in its structure (a VF token's is null
        // or set by `bind`, which keeps the bytes).
        unsafe { self.request(request, block) }
    }

    fn value(self, request: Request, value: u32) -> Result<u32, OsError> {
        // SAFETY: the requests that use this function take a number or nothing: no memory is accessed.
        unsafe { self.kernel.ioctl(self.file, request, Argument::Value(value)) }
    }

    /// Makes a request with a reply of unknown length: repeats it with the length that the kernel returns.
    fn request_growing(self, request: Request, head: Block) -> Result<Vec<u8>, OsError> {
        let mut reply = head.clone();
        self.request_without_addresses(request, &mut reply)?;
        let needed = reply.read_u32(0) as usize;
        if needed > head.0.len() {
            reply = head;
            reply.0.resize(needed.min(MAX_REPLY_SIZE), 0);
            reply = reply.with_length();
            self.request_without_addresses(request, &mut reply)?;
        }
        Ok(reply.0)
    }

    /// Returns whether the group can be used: no member is bound to a driver that would do DMA for the kernel.
    pub(super) fn group_is_viable(self) -> Result<bool, OsError> {
        let mut status = Block::of::<vfio_group_status>();
        self.request_without_addresses(Request::GroupStatus, &mut status)?;
        Ok(status.read_u32(offset_of!(vfio_group_status, flags)) & VFIO_GROUP_FLAGS_VIABLE != 0)
    }

    /// Puts the group into a container.
    pub(super) fn set_container(self, container: BorrowedFd<'_>) -> Result<(), OsError> {
        let mut number = Block(container.as_raw_fd().to_ne_bytes().to_vec());
        self.request_without_addresses(Request::GroupSetContainer, &mut number).map(drop)
    }

    /// Sets the IOMMU type of a container.
    pub(super) fn set_iommu(self) -> Result<(), OsError> {
        self.value(Request::SetIommu, VFIO_TYPE1v2_IOMMU).map(drop)
    }

    /// Opens a device of the group.
    pub(super) fn group_device(
        self,
        address: PciAddress,
        token: Option<VfToken>,
    ) -> Result<OwnedFd, OsError> {
        // The format that vfio-pci parses in its match function.
        let name = match token {
            Some(token) => format!("{address} vf_token={token}\0"),
            None => format!("{address}\0"),
        };
        let number = self.request_without_addresses(Request::GroupDevice, &mut Block(name.into_bytes()))?;
        let number = RawFd::try_from(number).map_err(|_| OsError::from(Errno::BADF))?;
        // SAFETY: the kernel returned the number of a descriptor that it just created for this process; no other code knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Binds a device file to an iommufd.
    pub(super) fn bind(self, iommufd: BorrowedFd<'_>, token: Option<VfToken>) -> Result<(), OsError> {
        let number = u32::from_ne_bytes(iommufd.as_raw_fd().to_ne_bytes());
        let mut bind = Block::of::<vfio_device_bind_iommufd>()
            .with(offset_of!(vfio_device_bind_iommufd, iommufd), number);
        let bytes = token.map(VfToken::to_bytes);
        if let Some(bytes) = &bytes {
            bind = bind
                .with(offset_of!(vfio_device_bind_iommufd, flags), VFIO_DEVICE_BIND_FLAG_TOKEN)
                .with_long(
                    offset_of!(vfio_device_bind_iommufd, token_uuid_ptr),
                    bytes.as_ptr().expose_provenance() as u64,
                );
        }
        // SAFETY: the address, if any, is that of 16 bytes which live beyond the call; the kernel only reads them.
        unsafe { self.request(Request::BindIommufd, &mut bind) }.map(drop)
    }

    /// Attaches a bound device to an address space of its iommufd.
    pub(super) fn attach(self, ioas: u32) -> Result<(), OsError> {
        let mut attach = Block::of::<vfio_device_attach_iommufd_pt>()
            .with(offset_of!(vfio_device_attach_iommufd_pt, pt_id), ioas);
        self.request_without_addresses(Request::AttachIoas, &mut attach).map(drop)
    }

    /// Reads `struct vfio_region_info` with its capabilities, for region `index`.
    pub(super) fn region_info(self, index: u32) -> Result<Vec<u8>, OsError> {
        use vfio_bindings::bindings::vfio::vfio_region_info;
        let head = Block::of::<vfio_region_info>().with(offset_of!(vfio_region_info, index), index);
        self.request_growing(Request::RegionInfo, head)
    }

    /// Reads `struct vfio_iommu_type1_info` with its capabilities, of a container.
    pub(super) fn iommu_info(self) -> Result<Vec<u8>, OsError> {
        use vfio_bindings::bindings::vfio::vfio_iommu_type1_info;
        self.request_growing(Request::IommuInfo, Block::of::<vfio_iommu_type1_info>())
    }

    /// Reads the flags of `struct vfio_device_info`.
    pub(super) fn device_flags(self) -> Result<u32, OsError> {
        let mut info = Block::of::<vfio_device_info>();
        self.request_without_addresses(Request::DeviceInfo, &mut info)?;
        Ok(info.read_u32(offset_of!(vfio_device_info, flags)))
    }

    /// Reads flags and number of vectors of interrupt `index`; 0 vectors if the device has no such interrupt: the kernel returns EINVAL for
    /// an index that the device's kind lacks (the error interrupt of a function without PCI Express), and 0 for others.
    pub(super) fn irq_info(self, index: u32) -> Result<(u32, u32), OsError> {
        let mut info = Block::of::<vfio_irq_info>().with(offset_of!(vfio_irq_info, index), index);
        match self.request_without_addresses(Request::IrqInfo, &mut info) {
            Ok(_) => {
                let field = |at| info.read_u32(at);
                Ok((field(offset_of!(vfio_irq_info, flags)), field(offset_of!(vfio_irq_info, count))))
            }
            Err(error) if error == Errno::INVAL.into() => Ok((0, 0)),
            Err(error) => Err(error),
        }
    }

    /// `struct vfio_irq_set`: performs the action in `flags` on the vectors from 0 on of interrupt `index`. With descriptors the number of
    /// vectors is their number. Returns 0, or the number of available vectors if there are fewer.
    pub(super) fn set_irqs(self, index: u32, flags: u32, count: SetIrqs<'_>) -> Result<u32, OsError> {
        use vfio_bindings::bindings::vfio::vfio_irq_set;
        let (count, files) = match count {
            SetIrqs::Files(files) => {
                (u32::try_from(files.len()).map_err(|_| OsError::from(Errno::INVAL))?, files)
            }
            SetIrqs::Count(count) => (count, &[][..]),
        };
        let mut set = Block::of::<vfio_irq_set>()
            .with(offset_of!(vfio_irq_set, flags), flags)
            .with(offset_of!(vfio_irq_set, index), index)
            .with(offset_of!(vfio_irq_set, count), count)
            .and(files.iter().map(|file| file.to_ne_bytes()));
        self.request_without_addresses(Request::SetIrqs, &mut set)
    }

    /// Resets the device by the best method of the kernel that affects only this device.
    pub(super) fn reset(self) -> Result<(), OsError> {
        self.value(Request::Reset, 0).map(drop)
    }

    /// Reads `struct vfio_pci_hot_reset_info`: the functions that a hot reset also affects.
    pub(super) fn hot_reset_info(self) -> Result<Vec<u8>, OsError> {
        let mut head = Block::of::<vfio_pci_hot_reset_info>();
        // The kernel returns the number of devices in the header, together with ENOSPC.
        match self.request_without_addresses(Request::HotResetInfo, &mut head) {
            Err(error) if error == Errno::NOSPC.into() => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(head.0),
        }
        let count = head.read_u32(offset_of!(vfio_pci_hot_reset_info, count)) as usize;
        let mut info = Block::of::<vfio_pci_hot_reset_info>();
        info.0
            .resize((size_of::<vfio_pci_hot_reset_info>() + count.saturating_mul(8)).min(MAX_REPLY_SIZE), 0);
        info = info.with_length();
        self.request_without_addresses(Request::HotResetInfo, &mut info)?;
        Ok(info.0)
    }

    /// Resets the link. A device opened through its group proves by the group file that it owns the affected functions; one opened by its
    /// device file needs no proof, because the kernel knows its owner.
    pub(super) fn hot_reset(self, group: Option<BorrowedFd<'_>>) -> Result<(), OsError> {
        let mut reset = Block::of::<vfio_pci_hot_reset>()
            .with(offset_of!(vfio_pci_hot_reset, count), u32::from(group.is_some()))
            .and(group.map(|file| file.as_raw_fd().to_ne_bytes()));
        self.request_without_addresses(Request::HotReset, &mut reset).map(drop)
    }
}

/// Vectors of a [`Calls::set_irqs`] call.
#[derive(Debug, Clone, Copy)]
pub(super) enum SetIrqs<'a> {
    /// One vector for each descriptor.
    Files(&'a [RawFd]),
    /// This number of vectors, without descriptors.
    Count(u32),
}

#[cfg(test)]
mod tests {
    use super::*;
    use iommufd_bindings::iommufd::{
        iommu_ioas_alloc, iommu_ioas_iova_ranges, iommu_ioas_map, iommu_ioas_unmap, iommu_iova_range,
    };
    use vfio_bindings::bindings::vfio as v;

    /// Independently typed from the kernel's headers (6.12: `include/uapi/linux/vfio.h`, `include/uapi/linux/iommufd.h`; later additions,
    /// such as the token of a binding, from 7.2), not from the bindings.
    #[test]
    fn sys_structures_match_kernel_headers() {
        assert_eq!(size_of::<v::vfio_group_status>(), 8);
        assert_eq!(offset_of!(v::vfio_group_status, flags), 4);
        assert_eq!(size_of::<v::vfio_region_info>(), 32);
        assert_eq!(offset_of!(v::vfio_region_info, index), 8);
        assert_eq!(offset_of!(v::vfio_region_info, cap_offset), 12);
        assert_eq!(offset_of!(v::vfio_region_info, size), 16);
        assert_eq!(offset_of!(v::vfio_region_info, offset), 24);
        assert_eq!(offset_of!(v::vfio_device_info, flags), 4);
        assert_eq!(size_of::<v::vfio_irq_info>(), 16);
        assert_eq!(offset_of!(v::vfio_irq_info, flags), 4);
        assert_eq!(offset_of!(v::vfio_irq_info, index), 8);
        assert_eq!(offset_of!(v::vfio_irq_info, count), 12);
        assert_eq!(size_of::<v::vfio_irq_set>(), 20);
        assert_eq!(offset_of!(v::vfio_irq_set, flags), 4);
        assert_eq!(offset_of!(v::vfio_irq_set, index), 8);
        assert_eq!(offset_of!(v::vfio_irq_set, start), 12);
        assert_eq!(offset_of!(v::vfio_irq_set, count), 16);
        assert_eq!(size_of::<v::vfio_pci_hot_reset_info>(), 12);
        assert_eq!(offset_of!(v::vfio_pci_hot_reset_info, flags), 4);
        assert_eq!(offset_of!(v::vfio_pci_hot_reset_info, count), 8);
        assert_eq!(size_of::<v::vfio_pci_dependent_device>(), 8);
        assert_eq!(size_of::<v::vfio_pci_hot_reset>(), 12);
        assert_eq!(offset_of!(v::vfio_pci_hot_reset, count), 8);
        assert_eq!(size_of::<v::vfio_device_bind_iommufd>(), 24);
        assert_eq!(offset_of!(v::vfio_device_bind_iommufd, iommufd), 8);
        assert_eq!(offset_of!(v::vfio_device_bind_iommufd, out_devid), 12);
        assert_eq!(offset_of!(v::vfio_device_bind_iommufd, token_uuid_ptr), 16);
        assert_eq!(offset_of!(v::vfio_device_attach_iommufd_pt, pt_id), 8);
        assert_eq!(size_of::<v::vfio_iommu_type1_dma_map>(), 32);
        assert_eq!(offset_of!(v::vfio_iommu_type1_dma_map, flags), 4);
        assert_eq!(offset_of!(v::vfio_iommu_type1_dma_map, vaddr), 8);
        assert_eq!(offset_of!(v::vfio_iommu_type1_dma_map, iova), 16);
        assert_eq!(offset_of!(v::vfio_iommu_type1_dma_map, size), 24);
        assert_eq!(size_of::<iommu_ioas_alloc>(), 12);
        assert_eq!(offset_of!(iommu_ioas_alloc, out_ioas_id), 8);
        assert_eq!(size_of::<iommu_iova_range>(), 16);
        assert_eq!(offset_of!(iommu_iova_range, last), 8);
        assert_eq!(size_of::<iommu_ioas_iova_ranges>(), 32);
        assert_eq!(offset_of!(iommu_ioas_iova_ranges, ioas_id), 4);
        assert_eq!(offset_of!(iommu_ioas_iova_ranges, num_iovas), 8);
        assert_eq!(offset_of!(iommu_ioas_iova_ranges, allowed_iovas), 16);
        assert_eq!(offset_of!(iommu_ioas_iova_ranges, out_iova_alignment), 24);
        assert_eq!(size_of::<iommu_ioas_map>(), 40);
        assert_eq!(offset_of!(iommu_ioas_map, flags), 4);
        assert_eq!(offset_of!(iommu_ioas_map, ioas_id), 8);
        assert_eq!(offset_of!(iommu_ioas_map, user_va), 16);
        assert_eq!(offset_of!(iommu_ioas_map, length), 24);
        assert_eq!(offset_of!(iommu_ioas_map, iova), 32);
        assert_eq!(size_of::<iommu_ioas_unmap>(), 24);
        assert_eq!(offset_of!(iommu_ioas_unmap, ioas_id), 4);
        assert_eq!(offset_of!(iommu_ioas_unmap, iova), 8);
        assert_eq!(offset_of!(iommu_ioas_unmap, length), 16);
    }

    #[test]
    fn sys_block_states_length_and_keeps_fields() {
        let block = Block::of::<v::vfio_irq_set>().with(4, 0x21).and([1_i32, -1].map(i32::to_ne_bytes));
        assert_eq!((block.read_u32(0), block.read_u32(4), block.read_u32(24)), (28, 0x21, u32::MAX));
        let block = Block::of::<iommu_ioas_map>().with_long(24, 1 << 40);
        assert_eq!((block.read_u32(0), block.read_u64(24)), (40, 1 << 40));
    }
}
