//! What the device consists of: `struct vfio_device_info`, `vfio_region_info` and `vfio_irq_info` of `linux/vfio.h`.

use super::bytes::Bytes;
use super::{Command, WireError};

/// Flags of [`DeviceInfo`].
pub mod device_flags {
    /// [`DEVICE_RESET`](super::Command::DEVICE_RESET) works.
    pub const RESET: u32 = 1 << 0;
    /// It is a PCI device: the only kind that the protocol knows.
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
    /// Set up as a whole: more of them only after all were disabled.
    pub const NORESIZE: u32 = 1 << 3;
}

/// Capability ids of regions, `linux/vfio.h`.
const CAP_SPARSE_MMAP: u16 = 1;
const CAP_MSIX_MAPPABLE: u16 = 3;
/// Bytes of a region's fixed part.
const REGION: u32 = 32;
/// A chain longer than this runs in a circle: there are a handful of kinds.
const MAX_CAPABILITIES: usize = 32;

/// A question about the device, about a region or about a kind of interrupt. Only the index is of interest, and how
/// large an answer may be; the other fields of the structures are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InfoRequest {
    /// Bytes that the sender takes as an answer.
    pub argsz: u32,
    /// Of what; 0 for the device as a whole.
    pub index: u32,
}

/// The device: argsz (4 bytes), flags (4), regions (4), kinds of interrupt (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceInfo {
    /// See [`device_flags`].
    pub flags: u32,
    /// How many regions; a PCI device has [`region::COUNT`](super::region::COUNT), some of them empty.
    pub regions: u32,
    /// How many kinds of interrupt.
    pub irqs: u32,
}

/// A part of a region that may be mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SparseArea {
    /// First byte, from the start of the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
}

/// A region: argsz (4 bytes), flags (4), index (4), offset of the first capability (4), size (8), offset in the file that
/// comes along (8).
///
/// A sparse capability is a header (id, version, offset of the next one), a count (4), 4 bytes of nothing, and as many
/// pairs of offset and size.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RegionInfo {
    /// Bytes that a whole answer needs. More than this answer has if the question left too little room: ask again.
    pub argsz: u32,
    /// See [`region_flags`]. [`CAPS`](region_flags::CAPS) is set or cleared by what follows when this is sent.
    pub flags: u32,
    /// Which region.
    pub index: u32,
    /// Bytes; 0 if the device has no such region.
    pub size: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// What of it may be mapped, where that is not all of it.
    pub sparse: Option<Vec<SparseArea>>,
    /// The page with the MSI-X table may be mapped as well.
    pub msix_mappable: bool,
}

/// A kind of interrupt: argsz (4 bytes), flags (4), index (4), count (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IrqInfo {
    /// See [`irq_flags`].
    pub flags: u32,
    /// Which kind.
    pub index: u32,
    /// How many interrupts of it the device has.
    pub count: u32,
}

impl InfoRequest {
    /// `length` is that of the structure in question, which is sent whole: libvfio-user refuses anything shorter.
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
    /// Bytes of the structure.
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
    /// Bytes of the structure.
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
    /// Bytes of the structure without capabilities.
    pub(super) const LENGTH: usize = REGION as usize;

    /// Bytes of a whole answer: what to give as `argsz`.
    #[must_use]
    pub fn length(&self) -> u32 {
        let sparse = self.sparse.as_ref().map_or(0, |areas| 16 + areas.len() * 16);
        let msix = if self.msix_mappable { 8 } else { 0 };
        u32::try_from(Self::LENGTH + sparse + msix).unwrap_or(u32::MAX)
    }

    /// This answer for somebody who takes `argsz` bytes: without its capabilities if they do not fit, with the number of
    /// bytes that the next question must have room for.
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
        // libvfio-user leaves the flag out and QEMU's server sets it where the capabilities did not fit; both leave out
        // the bytes.
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
                // Unknown ones say something about the region that nobody here needs to know.
                _ => {}
            }
            at = next;
        }
        Err(WireError::Chain { at })
    }
}
