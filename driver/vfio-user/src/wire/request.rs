//! What is asked for.

use super::access::{DmaTransfer, RegionAccess, SmallWrite};
use super::bytes::Bytes;
use super::info::InfoRequest;
use super::{Command, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, SetIrqs, Version, WireError};

/// A request of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// The first message: what the client proposes.
    Version(Version),
    /// Memory that the device may reach.
    DmaMap(DmaMap),
    /// Memory that it may reach no more.
    DmaUnmap(DmaUnmap),
    /// Numbers of regions and kinds of interrupt.
    DeviceGetInfo(InfoRequest),
    /// One region.
    DeviceGetRegionInfo(InfoRequest),
    /// Descriptors that stand for parts of a region. Nobody here has any: refused.
    DeviceGetRegionIoFds(InfoRequest),
    /// One kind of interrupt.
    DeviceGetIrqInfo(InfoRequest),
    /// Who is told of interrupts.
    DeviceSetIrqs(SetIrqs<'a>),
    /// Reading a region.
    RegionRead(RegionAccess),
    /// Writing a region.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Server to client: reading its memory.
    DmaRead(DmaTransfer),
    /// Server to client: writing its memory.
    DmaWrite(DmaTransfer, &'a [u8]),
    /// Resetting the device.
    DeviceReset,
    /// Several small writes of regions, in order.
    RegionWriteMulti(Vec<SmallWrite>),
    /// Anything else (dirty pages, migration, what later versions know): to be refused by a reply that says so.
    Unsupported(Command),
}

/// Bytes of `struct vfio_user_region_io_fds_request`.
const IO_FDS: usize = 16;

impl<'a> Request<'a> {
    /// The header's command.
    #[must_use]
    pub const fn command(&self) -> Command {
        match self {
            Self::Version(_) => Command::VERSION,
            Self::DmaMap(_) => Command::DMA_MAP,
            Self::DmaUnmap(_) => Command::DMA_UNMAP,
            Self::DeviceGetInfo(_) => Command::DEVICE_GET_INFO,
            Self::DeviceGetRegionInfo(_) => Command::DEVICE_GET_REGION_INFO,
            Self::DeviceGetRegionIoFds(_) => Command::DEVICE_GET_REGION_IO_FDS,
            Self::DeviceGetIrqInfo(_) => Command::DEVICE_GET_IRQ_INFO,
            Self::DeviceSetIrqs(_) => Command::DEVICE_SET_IRQS,
            Self::RegionRead(_) => Command::REGION_READ,
            Self::RegionWrite(..) => Command::REGION_WRITE,
            Self::DmaRead(_) => Command::DMA_READ,
            Self::DmaWrite(..) => Command::DMA_WRITE,
            Self::DeviceReset => Command::DEVICE_RESET,
            Self::RegionWriteMulti(_) => Command::REGION_WRITE_MULTI,
            Self::Unsupported(command) => *command,
        }
    }

    /// Writes what follows the header to the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Version(version) => version.encode(out),
            Self::DmaMap(map) => map.encode(out),
            Self::DmaUnmap(unmap) => unmap.encode(out),
            Self::DeviceGetInfo(info) => info.encode(DeviceInfo::LENGTH, out),
            Self::DeviceGetRegionInfo(info) => info.encode(RegionInfo::LENGTH, out),
            Self::DeviceGetRegionIoFds(info) => info.encode(IO_FDS, out),
            Self::DeviceGetIrqInfo(info) => info.encode(IrqInfo::LENGTH, out),
            Self::DeviceSetIrqs(irqs) => irqs.encode(out),
            Self::RegionRead(access) => access.encode(out),
            Self::RegionWrite(access, data) => {
                access.encode(out);
                out.extend_from_slice(data);
            }
            Self::DmaRead(transfer) => transfer.encode(out),
            Self::DmaWrite(transfer, data) => {
                transfer.encode(out);
                out.extend_from_slice(data);
            }
            Self::RegionWriteMulti(writes) => {
                out.extend_from_slice(&(writes.len() as u64).to_ne_bytes());
                for write in writes {
                    write.encode(out);
                }
            }
            Self::DeviceReset | Self::Unsupported(_) => {}
        }
    }

    /// Takes what followed the header of a request apart.
    ///
    /// # Errors
    /// See [`WireError`]. A command that is not known is no error: [`Request::Unsupported`].
    pub fn decode(command: Command, body: &'a [u8]) -> Result<Self, WireError> {
        Ok(match command {
            Command::VERSION => Self::Version(Version::decode(body)?),
            Command::DMA_MAP => Self::DmaMap(DmaMap::decode(body)?),
            Command::DMA_UNMAP => Self::DmaUnmap(DmaUnmap::decode(body)?),
            Command::DEVICE_GET_INFO => {
                Self::DeviceGetInfo(InfoRequest::decode(command, body, DeviceInfo::LENGTH)?)
            }
            Command::DEVICE_GET_REGION_INFO => {
                Self::DeviceGetRegionInfo(InfoRequest::decode(command, body, RegionInfo::LENGTH)?)
            }
            Command::DEVICE_GET_REGION_IO_FDS => {
                Self::DeviceGetRegionIoFds(InfoRequest::decode(command, body, IO_FDS)?)
            }
            Command::DEVICE_GET_IRQ_INFO => {
                Self::DeviceGetIrqInfo(InfoRequest::decode(command, body, IrqInfo::LENGTH)?)
            }
            Command::DEVICE_SET_IRQS => Self::DeviceSetIrqs(SetIrqs::decode(body)?),
            Command::REGION_READ => Self::RegionRead(RegionAccess::decode(command, body)?),
            Command::REGION_WRITE => {
                let (access, data) = RegionAccess::decode_data(command, body)?;
                Self::RegionWrite(access, data)
            }
            Command::DMA_READ => Self::DmaRead(DmaTransfer::decode(command, body)?),
            Command::DMA_WRITE => {
                let (transfer, data) = DmaTransfer::decode_data(command, body)?;
                Self::DmaWrite(transfer, data)
            }
            Command::DEVICE_RESET => {
                Bytes::exactly(command, body, 0)?;
                Self::DeviceReset
            }
            Command::REGION_WRITE_MULTI => Self::RegionWriteMulti(writes(body)?),
            _ => Self::Unsupported(command),
        })
    }
}

/// Count (8 bytes), then the writes. QEMU may send its whole array whatever the count is, so what is left over is not looked at.
fn writes(body: &[u8]) -> Result<Vec<SmallWrite>, WireError> {
    const COMMAND: Command = Command::REGION_WRITE_MULTI;
    let mut bytes = Bytes::at_least(COMMAND, body, 8)?;
    let count = bytes.u64()?;
    let rest = bytes.rest();
    let wrong =
        || WireError::Count { command: COMMAND, count, got: (rest.len() / SmallWrite::LENGTH) as u64 };
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(SmallWrite::LENGTH));
    let used = length.and_then(|length| rest.get(..length)).ok_or_else(wrong)?;
    used.chunks_exact(SmallWrite::LENGTH).map(|write| SmallWrite::decode(COMMAND, write)).collect()
}
