//! Requests.

use super::access::{DmaTransfer, RegionAccess, SmallWrite};
use super::bytes::Bytes;
use super::claim::StreamClaim;
use super::info::InfoRequest;
use super::{Command, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, SetIrqs, Version, WireError};

/// A request of either side.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'a> {
    /// The first message: the client's proposal.
    Version(Version),
    /// Maps memory for the device.
    DmaMap(DmaMap),
    /// Unmaps memory.
    DmaUnmap(DmaUnmap),
    /// Queries the numbers of regions and interrupt kinds.
    DeviceGetInfo(InfoRequest),
    /// Queries one region.
    DeviceGetRegionInfo(InfoRequest),
    /// Queries the descriptors for parts of a region. Not supported here: refused.
    DeviceGetRegionIoFds(InfoRequest),
    /// Queries one interrupt kind.
    DeviceGetIrqInfo(InfoRequest),
    /// Configures or triggers interrupts.
    DeviceSetIrqs(SetIrqs<'a>),
    /// Reads a region.
    RegionRead(RegionAccess),
    /// Writes a region.
    RegionWrite(RegionAccess, &'a [u8]),
    /// Server to client: reads the client's memory.
    DmaRead(DmaTransfer),
    /// Server to client: writes the client's memory.
    DmaWrite(DmaTransfer, &'a [u8]),
    /// Resets the device.
    DeviceReset,
    /// Several small writes of regions, in order.
    RegionWriteMulti(Vec<SmallWrite>),
    /// Passes a file with the client's ring of register writes: [`WRITE_RING`](super::WRITE_RING).
    ShareWrites,
    /// Claims or releases a stream channel.
    ClaimStream(StreamClaim),
    /// Any other command (dirty pages, migration, later versions): to be refused by a reply.
    Unsupported(Command),
}

/// Bytes of `struct vfio_user_region_io_fds_request`.
const IO_FDS: usize = 16;

impl<'a> Request<'a> {
    /// Command of the header.
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
            Self::ShareWrites => Command::SHARE_WRITES,
            Self::ClaimStream(_) => Command::CLAIM_STREAM,
            Self::Unsupported(command) => *command,
        }
    }

    /// Appends the body to `out`.
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
            Self::ClaimStream(claim) => claim.encode(out),
            Self::DeviceReset | Self::ShareWrites | Self::Unsupported(_) => {}
        }
    }

    /// Decodes the body of a request.
    ///
    /// # Errors
    /// See [`WireError`]. An unknown command is not an error: [`Request::Unsupported`].
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
            Command::SHARE_WRITES => {
                Bytes::exactly(command, body, 0)?;
                Self::ShareWrites
            }
            Command::CLAIM_STREAM => Self::ClaimStream(StreamClaim::decode(body)?),
            _ => Self::Unsupported(command),
        })
    }
}

/// Decodes a count (8 bytes), then the writes. QEMU may send its whole array for any count, so trailing bytes are ignored.
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
