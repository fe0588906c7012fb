//! What is answered, where the answer is no error.

use super::access::{DmaTransfer, RegionAccess};
use super::bytes::Bytes;
use super::{Command, DeviceInfo, DmaUnmap, IrqInfo, RegionInfo, Version, WireError};

/// A reply of either side that is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// What the server agrees to.
    Version(Version),
    /// Mapped.
    DmaMap,
    /// Unmapped, and no access is under way any more: the request again.
    DmaUnmap(DmaUnmap),
    /// The device.
    DeviceGetInfo(DeviceInfo),
    /// A region. One file descriptor comes along if it may be mapped.
    DeviceGetRegionInfo(RegionInfo),
    /// A kind of interrupt.
    DeviceGetIrqInfo(IrqInfo),
    /// Done.
    DeviceSetIrqs,
    /// What was read.
    RegionRead(RegionAccess, &'a [u8]),
    /// What was written.
    RegionWrite(RegionAccess),
    /// Client to server: what was read.
    DmaRead(DmaTransfer, &'a [u8]),
    /// Client to server: what was written.
    DmaWrite(DmaTransfer),
    /// Done.
    DeviceReset,
    /// How many writes were done.
    RegionWriteMulti(u64),
}

impl<'a> Reply<'a> {
    /// The header's command.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::Version(_) => Command::VERSION,
            Self::DmaMap => Command::DMA_MAP,
            Self::DmaUnmap(_) => Command::DMA_UNMAP,
            Self::DeviceGetInfo(_) => Command::DEVICE_GET_INFO,
            Self::DeviceGetRegionInfo(_) => Command::DEVICE_GET_REGION_INFO,
            Self::DeviceGetIrqInfo(_) => Command::DEVICE_GET_IRQ_INFO,
            Self::DeviceSetIrqs => Command::DEVICE_SET_IRQS,
            Self::RegionRead(..) => Command::REGION_READ,
            Self::RegionWrite(_) => Command::REGION_WRITE,
            Self::DmaRead(..) => Command::DMA_READ,
            Self::DmaWrite(_) => Command::DMA_WRITE,
            Self::DeviceReset => Command::DEVICE_RESET,
            Self::RegionWriteMulti(_) => Command::REGION_WRITE_MULTI,
        }
    }

    /// Writes what follows the header to the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Version(version) => version.encode(out),
            Self::DmaUnmap(unmap) => unmap.encode(out),
            Self::DeviceGetInfo(info) => info.encode(out),
            Self::DeviceGetRegionInfo(info) => info.encode(out),
            Self::DeviceGetIrqInfo(info) => info.encode(out),
            Self::RegionRead(access, data) => {
                access.encode(out);
                out.extend_from_slice(data);
            }
            Self::RegionWrite(access) => access.encode(out),
            Self::DmaRead(transfer, data) => {
                transfer.encode(out);
                out.extend_from_slice(data);
            }
            Self::DmaWrite(transfer) => transfer.encode(out),
            Self::RegionWriteMulti(count) => out.extend_from_slice(&count.to_ne_bytes()),
            Self::DmaMap | Self::DeviceSetIrqs | Self::DeviceReset => {}
        }
    }

    /// Takes what followed the header of a reply apart, one that is no error. `None` for a command that has no answer here
    /// but an error.
    ///
    /// # Errors
    /// See [`WireError`].
    pub fn decode(command: Command, body: &'a [u8]) -> Result<Option<Self>, WireError> {
        let empty = || Bytes::exactly(command, body, 0);
        Ok(Some(match command {
            Command::VERSION => Self::Version(Version::decode(body)?),
            Command::DMA_MAP => {
                empty()?;
                Self::DmaMap
            }
            Command::DMA_UNMAP => Self::DmaUnmap(DmaUnmap::decode(body)?),
            Command::DEVICE_GET_INFO => Self::DeviceGetInfo(DeviceInfo::decode(body)?),
            Command::DEVICE_GET_REGION_INFO => Self::DeviceGetRegionInfo(RegionInfo::decode(body)?),
            Command::DEVICE_GET_IRQ_INFO => Self::DeviceGetIrqInfo(IrqInfo::decode(body)?),
            Command::DEVICE_SET_IRQS => {
                empty()?;
                Self::DeviceSetIrqs
            }
            Command::REGION_READ => {
                let (access, data) = RegionAccess::decode_data(command, body)?;
                Self::RegionRead(access, data)
            }
            Command::REGION_WRITE => Self::RegionWrite(RegionAccess::decode(command, body)?),
            Command::DMA_READ => {
                let (transfer, data) = DmaTransfer::decode_data(command, body)?;
                Self::DmaRead(transfer, data)
            }
            Command::DMA_WRITE => Self::DmaWrite(DmaTransfer::decode_written(command, body)?),
            Command::DEVICE_RESET => {
                empty()?;
                Self::DeviceReset
            }
            Command::REGION_WRITE_MULTI => Self::RegionWriteMulti(Bytes::exactly(command, body, 8)?.u64()?),
            _ => return Ok(None),
        }))
    }
}
