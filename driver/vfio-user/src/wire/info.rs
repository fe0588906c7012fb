//! Description of the device: `struct vfio_device_info`, `vfio_region_info` and `vfio_irq_info` of `linux/vfio.h`.

use super::bytes::Bytes;
use super::{Command, WireError};

/// Flags of [`DeviceInfo`].
pub mod device_flags {
    /// [`DEVICE_RESET`](super::Command::DEVICE_RESET) is supported.
    pub const RESET: u32 = 1 << 0;
    /// A PCI device: the only kind that the protocol defines.
    pub const PCI: u32 = 1 << 1;
}

/// Flags of [`RegionInfo`].
pub mod region_flags {
    /// May be read.
    pub const READ: u32 = 1 << 0;
    /// May be written.
    pub const WRITE: u32 = 1 << 1;
    /// May be mapped, all of it or its sparse areas: the reply carries a file descriptor.
    pub const MMAP: u32 = 1 << 2;
    /// A chain of capabilities follows.
    pub const CAPS: u32 = 1 << 3;
}

/// Flags of [`IrqInfo`].
pub mod irq_flags {
    /// Event descriptors are signalled.
    pub const EVENTFD: u32 = 1 << 0;
    /// May be masked and unmasked.
    pub const MASKABLE: u32 = 1 << 1;
    /// Masks itself when it has been raised.
    pub const AUTOMASKED: u32 = 1 << 2;
}

/// Capability ids of regions, `linux/vfio.h`.
const CAP_SPARSE_MMAP: u16 = 1;
const CAP_MSIX_MAPPABLE: u16 = 3;
/// Length of `vfio_region_info` without capabilities, in bytes.
const REGION: u32 = 32;
/// Maximum number of capabilities in a chain. Only a few kinds exist, so a longer chain is taken for a circular one.
const MAX_CAPABILITIES: usize = 32;

/// A query of the device, a region or an interrupt kind. Only the index and the maximum reply size are used; the other fields of the
/// structures are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InfoRequest {
    /// Maximum reply size that the sender accepts, in bytes.
    pub argsz: u32,
    /// Index of the queried object; 0 for the device.
    pub index: u32,
}

/// Description of the device: argsz (4 bytes), flags (4), regions (4), interrupt kinds (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceInfo {
    /// See [`device_flags`].
    pub flags: u32,
    /// Number of regions; a PCI device has [`region::COUNT`](super::region::COUNT), some of them empty.
    pub regions: u32,
    /// Number of interrupt kinds.
    pub irqs: u32,
}

/// A part of a region that may be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SparseArea {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Length in bytes.
    pub size: u64,
}

/// Description of a region: argsz (4 bytes), flags (4), index (4), offset of the first capability (4), size (8), offset in the passed file
/// (8).
///
/// A sparse capability consists of a header (id, version, offset of the next one), a count (4), 4 unused bytes, and `count` pairs of offset
/// and size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RegionInfo {
    /// Size of a complete reply in bytes. If it exceeds this reply's size, the request's limit was too small: ask again.
    pub argsz: u32,
    /// See [`region_flags`]. [`CAPS`](region_flags::CAPS) is set or cleared on encoding, depending on the capabilities.
    pub flags: u32,
    /// Region number.
    pub index: u32,
    /// Length in bytes; 0 if the device has no such region.
    pub size: u64,
    /// Offset of the region in the file.
    pub offset: u64,
    /// Mappable areas, if not the whole region.
    pub sparse: Option<Vec<SparseArea>>,
    /// Whether the page with the MSI-X table may be mapped as well.
    pub msix_mappable: bool,
}

/// Description of an interrupt kind: argsz (4 bytes), flags (4), index (4), count (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IrqInfo {
    /// See [`irq_flags`].
    pub flags: u32,
    /// Index of the kind.
    pub index: u32,
    /// Number of interrupts of this kind.
    pub count: u32,
}

impl InfoRequest {
    /// Encodes the query as a complete structure of `length` bytes: libvfio-user refuses a shorter one.
    pub(super) fn encode(&self, length: usize, out: &mut Vec<u8>) {
        for word in [self.argsz, 0, self.index] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.resize(out.len() + length.saturating_sub(12), 0);
    }

    pub(super) fn decode(command: Command, body: &[u8], length: usize) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(command, body, length)?;
        let argsz = bytes.u32()?;
        bytes.u32()?;
        Ok(Self { argsz, index: bytes.u32()? })
    }
}

impl DeviceInfo {
    /// Length of the structure in bytes.
    pub(super) const LENGTH: usize = 16;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for word in [16, self.flags, self.regions, self.irqs] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(Command::DEVICE_GET_INFO, body, Self::LENGTH)?;
        bytes.u32()?;
        Ok(Self { flags: bytes.u32()?, regions: bytes.u32()?, irqs: bytes.u32()? })
    }
}

impl IrqInfo {
    /// Length of the structure in bytes.
    pub(super) const LENGTH: usize = 16;

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        for word in [16, self.flags, self.index, self.count] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(Command::DEVICE_GET_IRQ_INFO, body, Self::LENGTH)?;
        bytes.u32()?;
        Ok(Self { flags: bytes.u32()?, index: bytes.u32()?, count: bytes.u32()? })
    }
}

impl RegionInfo {
    /// Length of the structure without capabilities, in bytes.
    pub(super) const LENGTH: usize = REGION as usize;

    /// Length of a complete reply in bytes: the value for `argsz`.
    #[must_use]
    pub fn length(&self) -> u32 {
        let sparse = self.sparse.as_ref().map_or(0, |areas| 16 + areas.len() * 16);
        let msix = if self.msix_mappable { 8 } else { 0 };
        u32::try_from(Self::LENGTH + sparse + msix).unwrap_or(u32::MAX)
    }

    /// Limits the reply to `argsz` bytes. If the capabilities do not fit, they are omitted, and the reply's `argsz` is the length that the
    /// next request must permit.
    #[must_use]
    pub fn within(mut self, argsz: u32) -> Self {
        self.argsz = self.length();
        if self.argsz > argsz {
            (self.sparse, self.msix_mappable) = (None, false);
        }
        self
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let has = self.sparse.is_some() || self.msix_mappable;
        let flags = self.flags & !region_flags::CAPS | if has { region_flags::CAPS } else { 0 };
        for word in [self.argsz.max(self.length()), flags, self.index, if has { REGION } else { 0 }] {
            out.extend_from_slice(&word.to_ne_bytes());
        }
        out.extend_from_slice(&self.size.to_ne_bytes());
        out.extend_from_slice(&self.offset.to_ne_bytes());
        let header = |id: u16, next: u32, out: &mut Vec<u8>| {
            out.extend_from_slice(&id.to_ne_bytes());
            out.extend_from_slice(&1_u16.to_ne_bytes());
            out.extend_from_slice(&next.to_ne_bytes());
        };
        if self.msix_mappable {
            header(CAP_MSIX_MAPPABLE, if self.sparse.is_some() { REGION + 8 } else { 0 }, out);
        }
        if let Some(areas) = &self.sparse {
            header(CAP_SPARSE_MMAP, 0, out);
            out.extend_from_slice(&u32::try_from(areas.len()).unwrap_or(u32::MAX).to_ne_bytes());
            out.extend_from_slice(&[0; 4]);
            for area in areas {
                out.extend_from_slice(&area.offset.to_ne_bytes());
                out.extend_from_slice(&area.size.to_ne_bytes());
            }
        }
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::at_least(Command::DEVICE_GET_REGION_INFO, body, Self::LENGTH)?;
        let (argsz, flags, index, first) = (bytes.u32()?, bytes.u32()?, bytes.u32()?, bytes.u32()?);
        let (size, offset) = (bytes.u64()?, bytes.u64()?);
        let mut region = Self { argsz, flags, index, size, offset, sparse: None, msix_mappable: false };
        // If the capabilities do not fit, libvfio-user clears the flag and QEMU's server sets it; both omit the bytes.
        if flags & region_flags::CAPS != 0 && body.len() > Self::LENGTH {
            region.capabilities(body, first)?;
        }
        Ok(region)
    }

    fn capabilities(&mut self, body: &[u8], first: u32) -> Result<(), WireError> {
        const COMMAND: Command = Command::DEVICE_GET_REGION_INFO;
        let mut at = first;
        for _ in 0..MAX_CAPABILITIES {
            if at == 0 {
                return Ok(());
            }
            let here = usize::try_from(at).ok().filter(|at| *at >= Self::LENGTH);
            let here = here.and_then(|at| body.get(at..)).ok_or(WireError::Chain { at })?;
            let mut bytes = Bytes::at_least(COMMAND, here, 8).map_err(|_| WireError::Chain { at })?;
            let (id, _version, next) = (bytes.u16()?, bytes.u16()?, bytes.u32()?);
            match id {
                CAP_SPARSE_MMAP => {
                    let count = bytes.u32()?;
                    bytes.u32()?;
                    let rest = bytes.rest();
                    let wrong = || WireError::Count {
                        command: COMMAND,
                        count: count.into(),
                        got: (rest.len() / 16) as u64,
                    };
                    let length = (count as usize).checked_mul(16).ok_or_else(wrong)?;
                    let areas = rest.get(..length).ok_or_else(wrong)?;
                    let areas = areas.chunks_exact(16).map(|area| {
                        let mut bytes = Bytes::exactly(COMMAND, area, 16)?;
                        Ok(SparseArea { offset: bytes.u64()?, size: bytes.u64()? })
                    });
                    self.sparse = Some(areas.collect::<Result<_, _>>()?);
                }
                CAP_MSIX_MAPPABLE => self.msix_mappable = true,
                // Unknown capabilities are ignored.
                _ => {}
            }
            at = next;
        }
        Err(WireError::Chain { at })
    }
}
