//! The system calls on vfio files that are made here rather than by `vfio-ioctls`.
//!
//! Requests are built and answers taken apart as bytes (`linux/vfio.h`), so that no answer of the kernel is believed
//! to have a shape; see [`info`](super::info).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use vfio_bindings::bindings::vfio::{
    VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_IRQ_SET_ACTION_TRIGGER,
    VFIO_IRQ_SET_DATA_EVENTFD, VFIO_IRQ_SET_DATA_NONE, VFIO_PCI_MSI_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_TYPE, vfio_iommu_type1_dma_map,
};
use vfio_ioctls::VfioContainer;
use vmm_sys_util::ioctl::{ioctl, ioctl_with_mut_ptr, ioctl_with_ref};

use super::info::word;
use crate::{DmaAccess, Interrupt, OsError, SharedMemory};

/// Largest answer accepted: thousands of ranges.
const MOST_REPLY: usize = 64 << 10;

/// Requests whose argument is a block of bytes that starts with its own length and holds no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    DeviceInfo = 7,
    RegionInfo = 8,
    IrqInfo = 9,
    SetIrqs = 10,
    IommuInfo = 12,
}

/// Number of the request that resets the device.
const RESET: u32 = 11;
/// Number of the request that maps memory for DMA.
const MAP_DMA: u32 = 13;

/// Which kind of message interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IrqKind {
    Msix,
    Msi,
}

impl IrqKind {
    const fn index(self) -> u32 {
        match self {
            Self::Msix => VFIO_PCI_MSIX_IRQ_INDEX,
            Self::Msi => VFIO_PCI_MSI_IRQ_INDEX,
        }
    }
}

/// `_IO(';', 100 + number)`: no direction and no size, so simply the two bytes.
fn code(number: u32) -> u64 {
    u64::from(VFIO_TYPE) << 8 | u64::from(VFIO_BASE + number)
}

/// What a call returned, with the thread's error number if it is negative.
fn outcome(result: i32) -> Result<(), OsError> {
    if result < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

/// Makes a request; the first word of `block` is set to its length.
fn request<F: AsRawFd>(file: &F, request: Request, block: &mut [u8]) -> Result<(), OsError> {
    let length = u32::try_from(block.len()).map_err(|_| OsError::from(rustix::io::Errno::INVAL))?;
    match block.first_chunk_mut::<4>() {
        Some(first) => *first = length.to_ne_bytes(),
        None => return Err(rustix::io::Errno::INVAL.into()),
    }
    // SAFETY: for every member of `Request` the kernel reads and writes at most as many bytes as the first word says,
    // which is the block's length, and keeps no address of it. The blocks hold no addresses.
    outcome(unsafe { ioctl_with_mut_ptr(file, code(request as u32), block.as_mut_ptr()) })
}

/// A request with an answer of unknown length: asks again with the length that the kernel names.
fn request_grown<F: AsRawFd>(file: &F, what: Request, head: &[u8]) -> Result<Vec<u8>, OsError> {
    let mut reply = head.to_vec();
    request(file, what, &mut reply)?;
    let needed = word(&reply, 0).unwrap_or(0) as usize;
    if needed > head.len() {
        reply = head.to_vec();
        reply.resize(needed.min(MOST_REPLY), 0);
        request(file, what, &mut reply)?;
    }
    Ok(reply)
}

/// Bytes of 32-bit words in the host's order.
fn block(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// `struct vfio_region_info` with its capabilities, for region `index`.
pub(super) fn region_info(device: &OwnedFd, index: u32) -> Result<Vec<u8>, OsError> {
    request_grown(device, Request::RegionInfo, &block(&[0, 0, index, 0, 0, 0, 0, 0]))
}

/// `struct vfio_iommu_type1_info` with its capabilities.
pub(super) fn iommu_info(container: &VfioContainer) -> Result<Vec<u8>, OsError> {
    request_grown(container, Request::IommuInfo, &block(&[0; 6]))
}

/// The flags of `struct vfio_device_info`.
pub(super) fn device_flags(device: &OwnedFd) -> Result<u32, OsError> {
    // The first form of the structure: argsz, flags, num_regions, num_irqs.
    let mut info = block(&[0; 4]);
    request(device, Request::DeviceInfo, &mut info)?;
    Ok(word(&info, 4).unwrap_or(0))
}

/// The kind of interrupt to use (MSI-X before MSI) and its number of vectors; none if the device has neither.
pub(super) fn interrupts(device: &OwnedFd) -> Result<(Option<IrqKind>, u32), OsError> {
    for kind in [IrqKind::Msix, IrqKind::Msi] {
        let mut info = block(&[0, 0, kind.index(), 0]);
        request(device, Request::IrqInfo, &mut info)?;
        let count = word(&info, 12).unwrap_or(0);
        if count != 0 {
            return Ok((Some(kind), count));
        }
    }
    Ok((None, 0))
}

/// Connects vectors `0..interrupts.len()` with their event descriptors.
pub(super) fn enable_interrupts(
    device: &OwnedFd,
    kind: IrqKind,
    interrupts: &[Interrupt],
) -> Result<(), OsError> {
    let count = u32::try_from(interrupts.len()).map_err(|_| OsError::from(rustix::io::Errno::INVAL))?;
    let flags = VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER;
    let mut set = block(&[0, flags, kind.index(), 0, count]);
    set.extend(interrupts.iter().flat_map(|interrupt| interrupt.as_raw_fd().to_ne_bytes()));
    request(device, Request::SetIrqs, &mut set)
}

/// Disconnects all vectors.
pub(super) fn disable_interrupts(device: &OwnedFd, kind: IrqKind) -> Result<(), OsError> {
    let flags = VFIO_IRQ_SET_DATA_NONE | VFIO_IRQ_SET_ACTION_TRIGGER;
    request(device, Request::SetIrqs, &mut block(&[0, flags, kind.index(), 0, 0]))
}

/// Resets the device by the best method that the kernel has for it alone.
pub(super) fn reset(device: &OwnedFd) -> Result<(), OsError> {
    // SAFETY: the request takes no argument. Open BAR handles are stale before (see the caller); DMA memory stays mapped.
    outcome(unsafe { ioctl(device, code(RESET)) })
}

/// Maps all of `memory` at `iova` with just the access asked for.
pub(super) fn map_dma(
    container: &VfioContainer,
    iova: u64,
    memory: &SharedMemory,
    access: DmaAccess,
) -> Result<(), OsError> {
    let read = if access.device_reads() { VFIO_DMA_MAP_FLAG_READ } else { 0 };
    let write = if access.device_writes() { VFIO_DMA_MAP_FLAG_WRITE } else { 0 };
    let argument = vfio_iommu_type1_dma_map {
        #[expect(clippy::cast_possible_truncation, reason = "the size of a small structure")]
        argsz: size_of::<vfio_iommu_type1_dma_map>() as u32,
        flags: read | write,
        vaddr: memory.host_pointer() as u64,
        iova,
        size: memory.len() as u64,
    };
    // SAFETY: `memory` is a live mapping of that length, to which only atomics and unposted buffers refer. The kernel
    // pins its pages, and the caller keeps a clone until they are unmapped, so the device never reaches memory that
    // has become something else.
    outcome(unsafe { ioctl_with_ref(container, code(MAP_DMA), &argument) })
}

/// A second descriptor of the device's file, with an owner.
pub(super) fn duplicate<F: AsRawFd>(file: &F) -> Result<OwnedFd, OsError> {
    // SAFETY: `file` owns an open descriptor, which stays open for this call as `file` is borrowed.
    let borrowed = unsafe { BorrowedFd::borrow_raw(file.as_raw_fd()) };
    Ok(borrowed.try_clone_to_owned()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_codes_are_those_of_the_header() {
        // _IO(';', 100 + n) with ';' = 0x3B.
        assert_eq!(code(Request::DeviceInfo as u32), 0x3B6B);
        assert_eq!(code(Request::RegionInfo as u32), 0x3B6C);
        assert_eq!(code(Request::IrqInfo as u32), 0x3B6D);
        assert_eq!(code(Request::SetIrqs as u32), 0x3B6E);
        assert_eq!(code(RESET), 0x3B6F);
        assert_eq!(code(Request::IommuInfo as u32), 0x3B70);
        assert_eq!(code(MAP_DMA), 0x3B71);
    }

    #[test]
    fn a_request_to_a_file_that_is_no_device_is_an_error() {
        let (interrupt, _) = Interrupt::pair().unwrap();
        let file = duplicate(&interrupt).unwrap();
        assert_eq!(region_info(&file, 0).unwrap_err().raw(), rustix::io::Errno::NOTTY.raw_os_error());
        assert!(reset(&file).is_err());
        assert!(device_flags(&file).is_err());
        assert!(interrupts(&file).is_err());
    }
}
