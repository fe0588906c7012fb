//! BARs of a served device: access by messages, and by memory where the server shares it.

use core::ops::Range;
use fpga_registers::invariant::DebugExpect as _;
use std::sync::Arc;

use fpga_registers::BarOffset;

use super::connection::ServerConnection;
use super::error::protocol;
use super::wire::{RegionAccess, Reply, Request, region};
use fpga_pci::mmio::{Liveness, MappedBar, check_access, check_narrow};
use fpga_pci::{ConfigSpaceError, Mmio, MmioError, ServerError, config};

/// Region of the device with the server's region number.
pub(super) struct Region {
    pub(super) link: Arc<ServerConnection>,
    pub(super) index: u32,
    pub(super) size: u64,
    /// Maximum number of bytes of one message.
    pub(super) most: u32,
    /// Whether writes are sent without reply.
    pub(super) posted: bool,
}

impl Region {
    /// Reads bytes with the minimum number of messages.
    pub(super) fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), ServerError> {
        let mut offset = offset;
        for part in into.chunks_mut(usize::try_from(self.most).unwrap_or(usize::MAX).max(1)) {
            let access = self.access(offset, part.len());
            self.link.ask(&Request::RegionRead(access), &[], |reply, _| match reply {
                Reply::RegionRead(got, data) if got == access && data.len() == part.len() => {
                    part.copy_from_slice(data);
                    Ok(())
                }
                _ => Err(protocol("a reply about another part of the region")),
            })?;
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes bytes with the minimum number of messages.
    pub(super) fn write(&self, offset: u64, from: &[u8]) -> Result<(), ServerError> {
        if self.posted && self.link.post_shared(self.index, offset, from)? {
            return Ok(());
        }
        // The server may execute later writes of the ring before it has read this message.
        let posted = self.posted && !self.link.has_ring();
        let mut offset = offset;
        for part in from.chunks(usize::try_from(self.most).unwrap_or(usize::MAX).max(1)) {
            let access = self.access(offset, part.len());
            let request = Request::RegionWrite(access, part);
            if posted {
                self.link.post(&request)?;
            } else {
                self.link.ask(&request, &[], |reply, _| match reply {
                    Reply::RegionWrite(got) if got == access => Ok(()),
                    _ => Err(protocol("a reply about another part of the region")),
                })?;
            }
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Describes an access; a part is at most `most` bytes long, a 32-bit number.
    fn access(&self, offset: u64, length: usize) -> RegionAccess {
        RegionAccess {
            offset,
            region: self.index,
            count: u32::try_from(length).debug_expect("a part of a message").unwrap_or(u32::MAX),
        }
    }
}

/// Configuration space of a served device.
pub(super) struct ConfigRegion(pub(super) Region);

impl ConfigRegion {
    pub(super) fn check(&self, at: u16, length: usize) -> Result<(), ConfigSpaceError> {
        if u64::from(at) + length as u64 > self.0.size {
            let size = usize::try_from(self.0.size).unwrap_or(usize::MAX);
            return Err(ConfigSpaceError::OutOfRange { at, length, size });
        }
        Ok(())
    }

    pub(super) fn write(&self, at: u16, from: &[u8]) -> Result<(), ConfigSpaceError> {
        self.check(at, from.len())?;
        self.0.write(at.into(), from).map_err(|source| ConfigSpaceError::Server { at, source })
    }
}

impl config::ConfigSpace for ConfigRegion {
    fn read(&self, at: u16, into: &mut [u8]) -> Result<(), ConfigSpaceError> {
        self.check(at, into.len())?;
        self.0.read(at.into(), into).map_err(|source| ConfigSpaceError::Server { at, source })
    }
}

/// For mapped parts: whether the device still answers, and whether it was reset.
impl Liveness for ConfigRegion {
    fn is_present(&self) -> bool {
        // A slow server does not mean that the device is removed.
        match config::answers(self) {
            Err(ConfigSpaceError::Server { source, .. }) => !source.is_disconnected(),
            answers => answers == Ok(true),
        }
    }

    fn generation(&self) -> u64 {
        self.0.link.generation()
    }
}

/// An opened BAR.
pub(super) struct ServedBar {
    pub(super) region: Region,
    pub(super) presence: Arc<ConfigRegion>,
    /// Memory that the server shares, and the ranges of the BAR that it covers.
    pub(super) mapped: Option<(MappedBar, Vec<Range<u64>>)>,
    /// Generation that this handle belongs to.
    pub(super) generation: u64,
}

impl ServedBar {
    /// Returns the mapping that contains the whole access, after checking the access.
    fn begin(&self, at: BarOffset, width: u64) -> Result<Option<&MappedBar>, MmioError> {
        check_access(at, width, self.region.size)?;
        // A mapping outlives its server: its memory then no longer represents registers.
        self.region.link.check().map_err(|source| MmioError::Server { at, source })?;
        if self.region.link.generation() != self.generation {
            return Err(MmioError::Stale { at });
        }
        let Some((mapped, areas)) = &self.mapped else { return Ok(None) };
        let inside = areas.iter().any(|area| area.start <= at.get() && at.get() + width <= area.end);
        Ok(inside.then_some(mapped))
    }

    fn read<const N: usize>(&self, at: BarOffset) -> Result<[u8; N], MmioError> {
        let mut bytes = [0; N];
        self.region.read(at.get(), &mut bytes).map_err(|source| MmioError::Server { at, source })?;
        if bytes != [0xFF; N] {
            return Ok(bytes);
        }
        // All ones may mean that the device has left the bus, or may be a register's value.
        match config::answers(&*self.presence) {
            Ok(true) => Ok(bytes),
            Err(ConfigSpaceError::Server { source, .. }) => Err(MmioError::Server { at, source }),
            _ => Err(MmioError::Gone { at }),
        }
    }

    fn write(&self, at: BarOffset, bytes: &[u8]) -> Result<(), MmioError> {
        self.region.write(at.get(), bytes).map_err(|source| MmioError::Server { at, source })
    }
}

impl Mmio for ServedBar {
    fn size(&self) -> u64 {
        self.region.size
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        match self.begin(at, 4)? {
            Some(mapped) => mapped.read32(at),
            None => self.read(at).map(u32::from_le_bytes),
        }
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        match self.begin(at, 4)? {
            Some(mapped) => mapped.write32(at, value),
            None => self.write(at, &value.to_le_bytes()),
        }
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        match self.begin(at, 8)? {
            Some(mapped) => mapped.read64(at),
            None => self.read(at).map(u64::from_le_bytes),
        }
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        match self.begin(at, 8)? {
            Some(mapped) => mapped.write64(at, value),
            None => self.write(at, &value.to_le_bytes()),
        }
    }

    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        check_narrow(at, from, self.region.size)?;
        match self.begin(at, from.len() as u64)? {
            Some(mapped) => mapped.write_narrow(at, from),
            None => self.write(at, from),
        }
    }
}

/// Region number of BAR `index`.
pub(super) const fn bar_region(index: u8) -> u32 {
    region::BAR0 + index as u32
}
