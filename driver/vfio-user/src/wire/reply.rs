//! Successful replies.

use super::access::{DmaTransfer, RegionAccess};
use super::bytes::Bytes;
use super::{Command, DeviceInfo, DmaUnmap, IrqInfo, RegionInfo, Version, WireError};

/// A successful reply of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// Version and capabilities that the server agrees to.
    Version(Version),
    /// The memory is mapped.
    DmaMap,
    /// The memory is unmapped, and no access is in progress any more; repeats the request.
    DmaUnmap(DmaUnmap),
    /// Description of the device.
    DeviceGetInfo(DeviceInfo),
    /// Description of a region. One file descriptor is passed if it may be mapped.
    DeviceGetRegionInfo(RegionInfo),
    /// Description of an interrupt kind.
    DeviceGetIrqInfo(IrqInfo),
    /// The interrupts are configured.
    DeviceSetIrqs,
    /// Data read.
    RegionRead(RegionAccess, &'a [u8]),
    /// Access that was written.
    RegionWrite(RegionAccess),
    /// Client to server: data read.
    DmaRead(DmaTransfer, &'a [u8]),
    /// Client to server: access that was written.
    DmaWrite(DmaTransfer),
    /// The device was reset.
    DeviceReset,
    /// Number of writes performed.
    RegionWriteMulti(u64),
    /// The server executes the writes of the ring from now on.
    ShareWrites,
    /// The claim has changed.
    ClaimStream,
}

impl<'a> Reply<'a> {
    /// Command of the header.
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
            Self::ShareWrites => Command::SHARE_WRITES,
            Self::ClaimStream => Command::CLAIM_STREAM,
        }
    }

    /// Appends the body to `out`.
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
            Self::DmaMap
            | Self::DeviceSetIrqs
            | Self::DeviceReset
            | Self::ShareWrites
            | Self::ClaimStream => {}
        }
    }

    /// Decodes the body of a successful reply. Returns `None` for a command that has no successful reply here.
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
            Command::SHARE_WRITES => {
                empty()?;
                Self::ShareWrites
            }
            Command::CLAIM_STREAM => {
                empty()?;
                Self::ClaimStream
            }
            _ => return Ok(None),
        }))
    }
}
