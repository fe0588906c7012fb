//! DMA mappings.

use core::ops::RangeInclusive;

use super::bytes::Bytes;
use super::{Command, WireError};

/// Flags of [`DmaMap`].
pub mod dma_map_flags {
    /// The device may read the memory.
    pub const READ: u32 = 1 << 0;
    /// The device may write the memory.
    pub const WRITE: u32 = 1 << 1;
}

/// Flags of [`DmaUnmap`]: none in the current specification, these two in libvfio-user (after `linux/vfio.h`).
pub mod dma_unmap_flags {
    /// Report the written pages.
    pub const GET_DIRTY_BITMAP: u32 = 1 << 0;
    /// Unmap everything; address and size are 0.
    pub const ALL: u32 = 1 << 1;
}

/// `DMA_MAP`: argsz (4 bytes), flags (4), offset (8), address (8), size (8). It carries one file descriptor, or none: the memory is then
/// accessed by [`DMA_READ`](Command::DMA_READ) and [`DMA_WRITE`](Command::DMA_WRITE).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DmaMap {
    /// See [`dma_map_flags`].
    pub flags: u32,
    /// Offset of the memory in the file, in bytes.
    pub offset: u64,
    /// First address as the device sees it.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
}

/// `DMA_UNMAP`: argsz (4 bytes), flags (4), address (8), size (8); the reply repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DmaUnmap {
    /// Maximum reply size that the sender accepts, or the size of a complete reply, in bytes.
    pub argsz: u32,
    /// See [`dma_unmap_flags`].
    pub flags: u32,
    /// First address of a mapping.
    pub address: u64,
    /// Length in bytes.
    pub size: u64,
}

/// Addresses of the `size` bytes from `address`.
fn range(address: u64, size: u64) -> Option<RangeInclusive<u64>> {
    Some(address..=address.checked_add(size.checked_sub(1)?)?)
}

impl DmaMap {
    /// Mapped addresses; `None` if the range is empty or exceeds 64 bits.
    #[must_use]
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        range(self.address, self.size)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&32_u32.to_ne_bytes());
        out.extend_from_slice(&self.flags.to_ne_bytes());
        out.extend_from_slice(&self.offset.to_ne_bytes());
        out.extend_from_slice(&self.address.to_ne_bytes());
        out.extend_from_slice(&self.size.to_ne_bytes());
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::exactly(Command::DMA_MAP, body, 32)?;
        bytes.u32()?;
        Ok(Self { flags: bytes.u32()?, offset: bytes.u64()?, address: bytes.u64()?, size: bytes.u64()? })
    }
}

impl DmaUnmap {
    /// Unmapped addresses; `None` if the range is empty or exceeds 64 bits.
    #[must_use]
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        range(self.address, self.size)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.argsz.to_ne_bytes());
        out.extend_from_slice(&self.flags.to_ne_bytes());
        out.extend_from_slice(&self.address.to_ne_bytes());
        out.extend_from_slice(&self.size.to_ne_bytes());
    }

    /// Decodes a request. A client that requests dirty pages appends a bitmap's header, which is ignored here.
    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(Command::DMA_UNMAP, body, 24)?;
        Ok(Self { argsz: bytes.u32()?, flags: bytes.u32()?, address: bytes.u64()?, size: bytes.u64()? })
    }
}
