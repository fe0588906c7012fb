//! Taking the kernel's answers apart: plain code over bytes, every access checked.
//!
//! Layouts: `struct vfio_region_info`, `struct vfio_iommu_type1_info` and their capability chains in `linux/vfio.h`.
//! Byte order is the host's.

use core::ops::{Range, RangeInclusive};

use fpga_registers::Iova;
use vfio_bindings::bindings::vfio::{
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_INFO_PGSIZES, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE,
    VFIO_REGION_INFO_CAP_SPARSE_MMAP, VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP,
};

use crate::DmaMapError;

/// A chain longer than this loops: the kernel has a handful of capability kinds.
const MOST_CAPABILITIES: usize = 32;

/// The 32-bit word at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?.first_chunk()?;
    Some(u32::from_ne_bytes(*word))
}

/// The 64-bit word at `at`.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at.checked_add(8)?)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// The capability `id` of a chain that starts at byte `first`. `None` if the chain is damaged, `Some(None)` if it has
/// no such capability, else the bytes from the capability's header on.
fn capability(bytes: &[u8], first: u32, id: u32) -> Option<Option<&[u8]>> {
    let mut at = first as usize;
    for _ in 0..MOST_CAPABILITIES {
        if at == 0 {
            return Some(None);
        }
        let here = bytes.get(at..)?;
        // Header: id (16 bits), version (16 bits), offset of the next one (32 bits).
        let header = here.first_chunk::<8>()?;
        if u32::from(u16::from_ne_bytes([header[0], header[1]])) == id {
            return Some(Some(here));
        }
        at = word(here, 4)? as usize;
    }
    None
}

/// The pairs of 64-bit numbers that both capabilities used here consist of: header, count (32 bits), reserved (32
/// bits), pairs.
fn pairs(capability: &[u8]) -> Option<Vec<(u64, u64)>> {
    let count = word(capability, 8)? as usize;
    let bytes = capability.get(16..16_usize.checked_add(count.checked_mul(16)?)?)?;
    bytes.chunks_exact(16).map(|pair| Some((long(pair, 0)?, long(pair, 8)?))).collect()
}

/// A region of a device file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RegionInfo {
    /// Where it starts in the device file.
    pub(super) offset: u64,
    /// Bytes; 0 if the device does not have it.
    pub(super) size: u64,
    /// May be mapped, at least partly.
    mappable: bool,
    /// The parts that may be mapped (start and length), if not all of it.
    sparse: Option<Vec<(u64, u64)>>,
}

/// Takes `struct vfio_region_info` apart: argsz, flags, index, `cap_offset`, size, offset.
pub(super) fn parse_region(bytes: &[u8]) -> Option<RegionInfo> {
    let flags = word(bytes, 4)?;
    let sparse = if flags & VFIO_REGION_INFO_FLAG_CAPS != 0 {
        match capability(bytes, word(bytes, 12)?, VFIO_REGION_INFO_CAP_SPARSE_MMAP)? {
            Some(found) => Some(pairs(found)?),
            None => None,
        }
    } else {
        None
    };
    let (size, offset) = (long(bytes, 16)?, long(bytes, 24)?);
    offset.checked_add(size)?;
    Some(RegionInfo { offset, size, mappable: flags & VFIO_REGION_INFO_FLAG_MMAP != 0, sparse })
}

impl RegionInfo {
    /// The parts to map, in whole pages of `page` bytes: what the kernel permits, without the pages that hold any of the
    /// MSI-X table (`table`). Newer kernels permit mapping it; whoever can write it can send interrupts anywhere on
    /// a machine without interrupt remapping, and nobody needs to: the kernel fills the table in.
    ///
    /// With 64 KiB pages nothing may be left of an XDMA BAR. It is then accessed by system calls.
    pub(super) fn mappable_areas(&self, table: Option<Range<u64>>, page: u64) -> Vec<Range<u64>> {
        if !self.mappable {
            return Vec::new();
        }
        let whole = [(0, self.size)];
        let permitted = self.sparse.as_deref().unwrap_or(&whole);
        let mut areas = Vec::new();
        for &(start, length) in permitted {
            let end = start.saturating_add(length).min(self.size);
            match &table {
                Some(table) if table.start < end && table.end > start => {
                    let before = table.start - table.start % page;
                    let after = table.end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
                    areas.push(start..before.min(end));
                    areas.push(after.max(start)..end);
                }
                _ => areas.push(start..end),
            }
        }
        // Whole pages only: the neighbourhood of a part page is not ours.
        let areas = areas.into_iter().filter_map(|area| {
            let start = area.start.checked_next_multiple_of(page)?;
            let end = area.end - area.end % page;
            (start < end).then_some(start..end)
        });
        areas.collect()
    }
}

/// What the IOMMU permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IommuInfo {
    /// Smallest page in bytes.
    pub(super) page_size: u64,
    /// Addresses that may be mapped, ascending.
    pub(super) ranges: Vec<RangeInclusive<Iova>>,
}

/// Takes `struct vfio_iommu_type1_info` apart: argsz, flags, `iova_pgsizes` (64 bits), `cap_offset`.
pub(super) fn parse_iommu(bytes: &[u8]) -> Option<IommuInfo> {
    let flags = word(bytes, 4)?;
    let sizes = if flags & VFIO_IOMMU_INFO_PGSIZES != 0 { long(bytes, 8)? } else { 0 };
    // The sizes are a bit mask; a mask of zero says nothing.
    let page_size = if sizes == 0 { 4096 } else { 1 << sizes.trailing_zeros() };
    let found = if flags & VFIO_IOMMU_INFO_CAPS != 0 {
        capability(bytes, word(bytes, 16)?, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)?
    } else {
        None
    };
    let mut ranges = match found {
        Some(capability) => pairs(capability)?,
        // Kernels before 5.4 do not tell. 39 bits is what the smallest IOMMUs translate; without the window of 1 MiB
        // that x86 keeps for message interrupts.
        None => vec![(0, 0xFEDF_FFFF), (0xFEF0_0000, (1 << 39) - 1)],
    };
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    let ranges = ranges.into_iter().map(|(first, last)| Iova::new(first)..=Iova::new(last)).collect();
    Some(IommuInfo { page_size, ranges })
}

impl IommuInfo {
    /// Checks a mapping before the kernel is asked, which would say no more than EINVAL.
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

#[cfg(test)]
mod tests;
