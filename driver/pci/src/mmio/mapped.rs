//! BAR that is mapped into the process, except for ranges that the system excludes.

use core::fmt;
use core::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use fpga_registers::BarOffset;
use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use volatile_register::RW;

use super::bus_error::{AreaGuard, GONE};
use super::{Mmio, check_access, check_narrow};
use crate::{MmioError, OsError};

/// State of the device that a mapped BAR checks.
pub trait Liveness: Send + Sync {
    /// Whether the device still answers at its BARs, determined by other means (configuration space). Called only after a register read as
    /// all ones, so it may be slow.
    fn is_present(&self) -> bool;

    /// Number that changes with each reset of the device: handles from before are stale. Called at every access.
    fn generation(&self) -> u64;
}

/// BAR mapped with `mmap`, in one or several areas. Ranges between the areas (such as the page with the MSI-X table, which the kernel
/// reserves) are accessed through the file descriptor.
///
/// While memory decoding is off (during a reset, after removal) an access to a mapped BAR raises SIGBUS. The generation check leaves only a
/// short time window for that; [`catch_bus_errors`](super::catch_bus_errors) closes it, and so does mapping no area at all.
pub struct MappedBar {
    file: Arc<OwnedFd>,
    /// Start of the BAR in the file.
    file_offset: u64,
    size: u64,
    areas: Vec<MappedArea>,
    presence: Arc<dyn Liveness>,
    /// Device generation of this handle.
    generation: u64,
}

/// One mapped part of a BAR.
struct MappedArea {
    /// Bytes from the start of the BAR.
    start: u64,
    end: u64,
    /// Offset of `start` in the mapping: less than a page.
    skip: u64,
    /// Before the mapping, so that it is dropped first. Also holds the generation, which a bus error changes.
    watched: AreaGuard,
    mapping: MmapRaw,
}

impl fmt::Debug for MappedBar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MappedBar")
            .field("size", &format_args!("{:#x}", self.size))
            .field("areas", &self.areas.iter().map(|area| area.start..area.end).collect::<Vec<_>>())
            .field("generation", &self.generation)
            .finish_non_exhaustive()
    }
}

impl MappedBar {
    /// Maps `areas` of a BAR (bytes from the start of the BAR, multiples of 8). The BAR starts at `file_offset` of `file`, at a page
    /// boundary, and is `size` bytes long. A page that belongs to an area only partly is mapped, but accessed only inside the area.
    /// Everything else is accessed by reads and writes of the file.
    ///
    /// # Errors
    /// The start of the area that could not be mapped, and the system's reason. An area that does not lie inside the BAR is `EINVAL`.
    pub fn map(
        file: Arc<OwnedFd>,
        file_offset: u64,
        size: u64,
        areas: &[Range<u64>],
        presence: Arc<dyn Liveness>,
    ) -> Result<Self, (u64, OsError)> {
        let invalid = |area: &Range<u64>| (area.start, OsError::from(Errno::INVAL));
        let page = rustix::param::page_size() as u64;
        let generation = presence.generation();
        let mut mapped = Vec::with_capacity(areas.len());
        for area in areas {
            // The mapping itself would round the offset down to a page; the alignment of the cells depends on this check.
            let aligned = area.start.is_multiple_of(8) && file_offset.is_multiple_of(page);
            if area.start >= area.end || area.end > size || !aligned {
                return Err(invalid(area));
            }
            let skip = area.start % page;
            let length = usize::try_from(area.end - area.start + skip).map_err(|_| invalid(area))?;
            let offset = file_offset.checked_add(area.start - skip).ok_or_else(|| invalid(area))?;
            let mapping = MmapOptions::new()
                .offset(offset)
                .len(length)
                .map_raw(file.as_raw_fd())
                .map_err(|error| (area.start, error.into()))?;
            // To the end of the last page, which is mapped as a whole.
            let whole = length.next_multiple_of(rustix::param::page_size());
            let watched = AreaGuard::new(mapping.as_mut_ptr().addr(), whole, generation);
            mapped.push(MappedArea { start: area.start, end: area.end, skip, watched, mapping });
        }
        Ok(Self { file, file_offset, size, areas: mapped, presence, generation })
    }

    fn begin(&self, at: BarOffset, width: u64) -> Result<Option<&MappedArea>, MmioError> {
        check_access(at, width, self.size)?;
        let area = self.areas.iter().find(|area| area.start <= at.get() && at.get() + width <= area.end);
        let generation = area.map_or(self.generation, |area| area.watched.generation());
        if self.presence.generation() != generation {
            return Err(Self::stale_or_gone(at, generation));
        }
        Ok(area)
    }

    #[cold]
    fn stale_or_gone(at: BarOffset, generation: u64) -> MmioError {
        if generation == GONE { MmioError::Gone { at } } else { MmioError::Stale { at } }
    }

    /// Reads by file descriptor. Unlike the mapping, this returns an error when memory decoding is off.
    fn read_file<const N: usize>(&self, at: BarOffset) -> Result<[u8; N], MmioError> {
        let mut bytes = [0; N];
        match rustix::io::pread(self.file.as_fd(), &mut bytes[..], self.file_offset.saturating_add(at.get()))
        {
            Ok(count) if count == N => Ok(bytes),
            Ok(_) => Err(MmioError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(refused(at, errno)),
        }
    }

    fn write_file(&self, at: BarOffset, bytes: &[u8]) -> Result<(), MmioError> {
        match rustix::io::pwrite(self.file.as_fd(), bytes, self.file_offset.saturating_add(at.get())) {
            Ok(count) if count == bytes.len() => Ok(()),
            Ok(_) => Err(MmioError::Refused { at, source: OsError::from_raw(0) }),
            Err(errno) => Err(refused(at, errno)),
        }
    }

    /// Confirms that the device is present. An all-ones read means a link that is down, or a valid register value, so another source is
    /// checked.
    #[cold]
    fn confirm_presence(&self, at: BarOffset) -> Result<(), MmioError> {
        if self.presence.is_present() { Ok(()) } else { Err(MmioError::Gone { at }) }
    }
}

/// vfio-pci answers EIO while memory decoding is off, and the kernel ENODEV or ENXIO when the device is no longer there.
fn refused(at: BarOffset, errno: Errno) -> MmioError {
    match errno {
        Errno::IO | Errno::NODEV | Errno::NXIO => MmioError::Gone { at },
        errno => MmioError::Refused { at, source: errno.into() },
    }
}

impl MappedArea {
    /// Returns the value read, unless the device is gone.
    fn read<T: Copy>(&self, at: BarOffset) -> Result<T, MmioError> {
        let value = self.cell::<T>(at).read();
        if self.watched.is_gone() { Err(MmioError::Gone { at }) } else { Ok(value) }
    }

    /// Register cell at `at`. The caller has checked that it lies inside this area and is aligned.
    fn cell<T: Copy>(&self, at: BarOffset) -> &RW<T> {
        let offset = at.get() - self.start + self.skip;
        debug_assert!(offset + size_of::<T>() as u64 <= self.mapping.len() as u64);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the offset is below the mapping's length, a usize"
        )]
        let offset = offset as usize;
        // SAFETY: `begin` found start <= at and at + width <= end, and the mapping is skip + end - start bytes long and
        // page aligned (`map` checked the offset), so the cell lies inside it and is aligned (start - skip is a page and `at`
        // a multiple of the width). The mapping lives as long as `self`, to which the reference is bound. The cell is an
        // UnsafeCell that is only accessed with volatile loads and stores, so the device may change it at any time.
        unsafe { &*self.mapping.as_mut_ptr().add(offset).cast::<RW<T>>() }
    }

    fn write<T: Copy>(&self, at: BarOffset, value: T) {
        let cell = self.cell::<T>(at);
        // SAFETY: the cell is valid (see `cell`). `write` is unsafe because a register write has effects: here on a
        // device that reaches host memory only through mappings that this package made and keeps alive.
        unsafe { cell.write(value) };
    }
}

impl Mmio for MappedBar {
    fn size(&self) -> u64 {
        self.size
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        let value = match self.begin(at, 4)? {
            Some(area) => u32::from_le(area.read::<u32>(at)?),
            None => u32::from_le_bytes(self.read_file(at)?),
        };
        if value == u32::MAX {
            self.confirm_presence(at)?;
        }
        Ok(value)
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        match self.begin(at, 4)? {
            Some(area) => area.write(at, value.to_le()),
            None => self.write_file(at, &value.to_le_bytes())?,
        }
        Ok(())
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        let value = match self.begin(at, 8)? {
            Some(area) => u64::from_le(area.read::<u64>(at)?),
            None => u64::from_le_bytes(self.read_file(at)?),
        };
        if value == u64::MAX {
            self.confirm_presence(at)?;
        }
        Ok(value)
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        match self.begin(at, 8)? {
            Some(area) => area.write(at, value.to_le()),
            None => self.write_file(at, &value.to_le_bytes())?,
        }
        Ok(())
    }

    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        check_narrow(at, from, self.size)?;
        match (self.begin(at, from.len() as u64)?, from) {
            (Some(area), &[byte]) => area.write(at, byte),
            (Some(area), &[low, high]) => area.write(at, u16::from_ne_bytes([low, high])),
            _ => self.write_file(at, from)?,
        }
        Ok(())
    }
}
