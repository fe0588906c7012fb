//! Parsing of the kernel's replies: plain code over bytes, every access checked.
//!
//! Layouts: `struct vfio_region_info`, `struct vfio_iommu_type1_info` and their capability chains, and `struct vfio_pci_hot_reset_info`, in
//! `linux/vfio.h`. Byte order is the host's.

use core::ops::{Range, RangeInclusive};

use fpga_registers::Iova;
use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL, VFIO_PCI_HOT_RESET_FLAG_DEV_ID, VFIO_REGION_INFO_CAP_MSIX_MAPPABLE,
    VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP,
};

use crate::{DmaMapError, PciAddress};

/// Maximum length of a capability chain: a longer one loops, because the kernel has a handful of capability kinds.
const MAX_CAPABILITIES: usize = 32;

/// Returns the 32-bit word at `at`.
pub(super) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

/// Returns the 64-bit word at `at`.
pub(super) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// Finds the capability `id` in a chain that starts at byte `first`. `None` if the chain is damaged, `Some(None)` if it has no such
/// capability, else the bytes from the capability's header on.
fn capability(bytes: &[u8], first: u32, id: u32) -> Option<Option<&[u8]>> {
    let mut at = first as usize;
    for _ in 0..MAX_CAPABILITIES {
        if at == 0 {
            return Some(None);
        }
        let here = bytes.get(at..)?;
        // Header: id (16 bits), version (16 bits), offset of the next one (32 bits).
        let header = here.first_chunk::<8>()?;
        if u32::from(u16::from_ne_bytes([header[0], header[1]])) == id {
            return Some(Some(here));
        }
        at = read_u32(here, 4)? as usize;
    }
    None
}

/// Reads the pairs of 64-bit numbers of which both capabilities used here consist: header, count (32 bits), reserved (32 bits), pairs.
fn pairs(capability: &[u8]) -> Option<Vec<(u64, u64)>> {
    let count = read_u32(capability, 8)? as usize;
    let bytes = capability.get(16..16_usize.checked_add(count.checked_mul(16)?)?)?;
    bytes.chunks_exact(16).map(|pair| Some((read_u64(pair, 0)?, read_u64(pair, 8)?))).collect()
}

/// Region of a device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// Start in the device file.
    pub(super) offset: u64,
    /// Size in bytes; 0 if the device does not have it.
    pub(super) size: u64,
    /// May be mapped, at least partly.
    mappable: bool,
    /// Parts that may be mapped (start and length), if not all of it.
    sparse: Option<Vec<(u64, u64)>>,
    /// The page with the MSI-X table may be mapped too (Linux 4.16 and later).
    table_mappable: bool,
}

/// Parses `struct vfio_region_info`: argsz, flags, index, `cap_offset`, size, offset.
pub(super) fn parse_region(bytes: &[u8]) -> Option<RegionInfo> {
    let flags = read_u32(bytes, 4)?;
    let (mut sparse, mut table_mappable) = (None, false);
    if flags & VFIO_REGION_INFO_FLAG_CAPS != 0 {
        let first = read_u32(bytes, 12)?;
        if let Some(found) = capability(bytes, first, VFIO_REGION_INFO_CAP_SPARSE_MMAP)? {
            sparse = Some(pairs(found)?);
        }
        table_mappable = capability(bytes, first, VFIO_REGION_INFO_CAP_MSIX_MAPPABLE)?.is_some();
    }
    let (size, offset) = (read_u64(bytes, 16)?, read_u64(bytes, 24)?);
    offset.checked_add(size)?;
    Some(RegionInfo {
        offset,
        size,
        mappable: flags & VFIO_REGION_INFO_FLAG_MMAP != 0,
        sparse,
        table_mappable,
    })
}

impl RegionInfo {
    /// Areas to map: those that the kernel permits, without the MSI-X table (`table`). Newer kernels permit mapping the table. Write access
    /// to it allows sending interrupts anywhere on a machine without interrupt remapping, and it is never needed: the kernel fills the
    /// table in.
    ///
    /// With pages of 4 KiB (`page`) the areas are whole pages: the pages that hold any part of the table are excluded, as XDMA uses them
    /// for nothing else. Larger pages would exclude registers together with the table, with 64 KiB the whole DMA BAR. In that case the
    /// areas begin and end at the table, and the page around it is mapped, if the kernel permits that, but never accessed at the table;
    /// otherwise those registers are accessed by system calls.
    pub(super) fn mappable_areas(&self, table: Option<Range<u64>>, page: u64) -> Vec<Range<u64>> {
        if !self.mappable {
            return Vec::new();
        }
        let whole = [(0, self.size)];
        let permitted = self.sparse.as_deref().unwrap_or(&whole);
        let mut areas = Vec::new();
        for &(start, length) in permitted {
            let end = start.saturating_add(length).min(self.size);
            // Whole pages only: the rest of a partial page is outside the permitted area.
            let (start, end) = (start.checked_next_multiple_of(page).unwrap_or(u64::MAX), end - end % page);
            match &table {
                Some(table) if table.start < end && table.end > start => {
                    let (before, after) = if page > SMALL_PAGE && self.table_mappable {
                        (table.start, table.end)
                    } else {
                        let after = table.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
                        (table.start - table.start % page, after)
                    };
                    areas.push(start..before.min(end));
                    areas.push(after.max(start)..end);
                }
                _ => areas.push(start..end),
            }
        }
        areas.retain(|area| area.start < area.end);
        areas
    }
}

/// Pages of this size allow mapping everything except the MSI-X page of an XDMA BAR.
const SMALL_PAGE: u64 = 4096;

/// Properties of the IOMMU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// Smallest page in bytes.
    pub(super) page_size: u64,
    /// Addresses that may be mapped, ascending.
    pub(super) ranges: Vec<RangeInclusive<Iova>>,
    /// Number of further mappings when the device was opened, if the kernel reports it (Linux 5.10 and later).
    pub(super) available: Option<u32>,
}

/// Parses `struct vfio_iommu_type1_info`: argsz, flags, `iova_pgsizes` (64 bits), `cap_offset`.
pub(super) fn parse_iommu(bytes: &[u8]) -> Option<IommuInfo> {
    let flags = read_u32(bytes, 4)?;
    let sizes = if flags & VFIO_IOMMU_INFO_PGSIZES != 0 { read_u64(bytes, 8)? } else { 0 };
    // The sizes are a bit mask; zero means unknown.
    let page_size = if sizes == 0 { 4096 } else { 1 << sizes.trailing_zeros() };
    let (mut found, mut available) = (None, None);
    if flags & VFIO_IOMMU_INFO_CAPS != 0 {
        let first = read_u32(bytes, 16)?;
        found = capability(bytes, first, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)?;
        if let Some(capability) = capability(bytes, first, VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL)? {
            available = Some(read_u32(capability, 8)?);
        }
    }
    let ranges = match found {
        Some(capability) => pairs(capability)?,
        // Kernels before 5.4 do not report ranges. The smallest IOMMUs translate 39 bits; the window of 1 MiB that x86 reserves for message
        // interrupts is excluded.
        None => vec![(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 39) - 1)],
    };
    Some(IommuInfo::new(page_size, ranges, available))
}

impl IommuInfo {
    /// Creates it from ranges (first and last address) in any order.
    pub(super) fn new(page_size: u64, mut ranges: Vec<(u64, u64)>, available: Option<u32>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let ranges = ranges.into_iter().map(|(first, last)| Iova::new(first)..=Iova::new(last)).collect();
        Self { page_size, ranges, available }
    }

    /// Checks a mapping before the kernel is called, which would only return EINVAL.
    pub(super) fn check(&self, iova: Iova, length: u64, page: u64) -> Result<(), DmaMapError> {
        if length == 0 || !length.is_multiple_of(page) || !iova.is_aligned_to(page) {
            return Err(DmaMapError::Misaligned { iova, length, page });
        }
        let last = iova.checked_add(length - 1);
        let inside =
            |last: Iova| self.ranges.iter().any(|range| range.contains(&iova) && range.contains(&last));
        if last.is_some_and(inside) { Ok(()) } else { Err(DmaMapError::OutsideRanges { iova, length }) }
    }
}

/// Function that a hot reset resets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dependent {
    pub(super) address: PciAddress,
    pub(super) owner: Owner,
}

/// Owner of a function, as the kernel reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The owner of this IOMMU group (of a device opened through its group).
    Group(u32),
    /// The caller (of a device opened by its device file).
    Caller,
    /// Another owner, or no VFIO driver.
    Other,
}

/// Parses `struct vfio_pci_hot_reset_info`: argsz, flags, count, then for each function its group or device id (32 bits), segment (16
/// bits), bus, and slot and function (3 bits).
pub(super) fn parse_hot_reset(bytes: &[u8]) -> Option<Vec<Dependent>> {
    let by_device = read_u32(bytes, 4)? & VFIO_PCI_HOT_RESET_FLAG_DEV_ID != 0;
    let count = read_u32(bytes, 8)? as usize;
    let entries = bytes.get(12..12_usize.checked_add(count.checked_mul(8)?)?)?;
    let entry = |entry: &[u8]| {
        let id = read_u32(entry, 0)?;
        let segment = u16::from_ne_bytes([*entry.get(4)?, *entry.get(5)?]);
        let (bus, devfn) = (*entry.get(6)?, *entry.get(7)?);
        let owner = match (by_device, id) {
            (false, group) => Owner::Group(group),
            // VFIO_PCI_DEVID_NOT_OWNED is -1, VFIO_PCI_DEVID_OWNED 0; any other value is a device of the caller.
            (true, u32::MAX) => Owner::Other,
            (true, _) => Owner::Caller,
        };
        let address = PciAddress::new(u32::from(segment), bus, devfn >> 3, devfn & 7)?;
        Some(Dependent { address, owner })
    };
    entries.chunks_exact(8).map(entry).collect()
}

#[cfg(test)]
mod tests;
