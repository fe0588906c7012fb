//! Access to regions and memory by message. "Read and Write Operations" in the specification.

use super::bytes::Bytes;
use super::{Command, MAX_DATA, WireError};

/// An access to a region: offset (8 bytes), region (4), count (4), then the data, if any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionAccess {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Region number: see [`region`](super::region).
    pub region: u32,
    /// Number of bytes, at most [`MAX_DATA`].
    pub count: u32,
}

/// An access to the client's memory: address (8 bytes), count (8), then the data, if any.
///
/// This is the layout of the specification and of libvfio-user. QEMU (`hw/vfio-user/protocol.h`, `VFIOUserDMARW`) has a count of 4 bytes
/// followed directly by the data, although its messages have the same size: data exchanged with it by these messages is off by 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DmaTransfer {
    /// First address, as the device sees it.
    pub address: u64,
    /// Number of bytes, at most [`MAX_DATA`].
    pub count: u64,
}

/// One of the writes of a [`REGION_WRITE_MULTI`](Command::REGION_WRITE_MULTI) message: offset (8 bytes), region (4), count
/// (4), data (8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SmallWrite {
    /// Offset of the first byte in the region.
    pub offset: u64,
    /// Region number.
    pub region: u32,
    /// Number of bytes, at most 8.
    count: u8,
    data: [u8; 8],
}

impl RegionAccess {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_ne_bytes());
        out.extend_from_slice(&self.region.to_ne_bytes());
        out.extend_from_slice(&self.count.to_ne_bytes());
    }

    /// Decodes an access without data.
    pub(super) fn decode(command: Command, body: &[u8]) -> Result<Self, WireError> {
        Self::fields(command, &mut Bytes::exactly(command, body, 16)?)
    }

    /// Decodes an access and its data.
    pub(super) fn decode_data(command: Command, body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut bytes = Bytes::at_least(command, body, 16)?;
        let access = Self::fields(command, &mut bytes)?;
        let data = matching(command, access.count.into(), bytes.rest())?;
        Ok((access, data))
    }

    fn fields(command: Command, bytes: &mut Bytes<'_>) -> Result<Self, WireError> {
        let access = Self { offset: bytes.u64()?, region: bytes.u32()?, count: bytes.u32()? };
        limit(command, access.count.into())?;
        Ok(access)
    }
}

impl DmaTransfer {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.address.to_ne_bytes());
        out.extend_from_slice(&self.count.to_ne_bytes());
    }

    pub(super) fn decode(command: Command, body: &[u8]) -> Result<Self, WireError> {
        Self::fields(command, &mut Bytes::exactly(command, body, 16)?)
    }

    pub(super) fn decode_data(command: Command, body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let mut bytes = Bytes::at_least(command, body, 16)?;
        let transfer = Self::fields(command, &mut bytes)?;
        let data = matching(command, transfer.count, bytes.rest())?;
        Ok((transfer, data))
    }

    /// Decodes the reply to a write: its table in the specification gives the count 4 bytes, libvfio-user and the request give it 8. Both
    /// are accepted.
    pub(super) fn decode_written(command: Command, body: &[u8]) -> Result<Self, WireError> {
        if body.len() != 12 {
            return Self::decode(command, body);
        }
        let mut bytes = Bytes::exactly(command, body, 12)?;
        let transfer = Self { address: bytes.u64()?, count: bytes.u32()?.into() };
        limit(command, transfer.count)?;
        Ok(transfer)
    }

    fn fields(command: Command, bytes: &mut Bytes<'_>) -> Result<Self, WireError> {
        let transfer = Self { address: bytes.u64()?, count: bytes.u64()? };
        limit(command, transfer.count)?;
        Ok(transfer)
    }
}

impl SmallWrite {
    /// Bytes of one write in a message.
    pub const LENGTH: usize = 24;

    /// Creates a write of `data`; `None` if it has more than 8 bytes.
    #[must_use]
    pub fn new(region: u32, offset: u64, data: &[u8]) -> Option<Self> {
        let mut bytes = [0; 8];
        bytes.get_mut(..data.len())?.copy_from_slice(data);
        Some(Self { offset, region, count: u8::try_from(data.len()).ok()?, data: bytes })
    }

    /// Data to write.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.data.get(..usize::from(self.count)).unwrap_or(&self.data)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Bytes of the write: in a message, or in a ring.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let [o0, o1, o2, o3, o4, o5, o6, o7] = self.offset.to_ne_bytes();
        let [r0, r1, r2, r3] = self.region.to_ne_bytes();
        let [c0, c1, c2, c3] = u32::from(self.count).to_ne_bytes();
        let [d0, d1, d2, d3, d4, d5, d6, d7] = self.data;
        [o0, o1, o2, o3, o4, o5, o6, o7, r0, r1, r2, r3, c0, c1, c2, c3, d0, d1, d2, d3, d4, d5, d6, d7]
    }

    /// Decodes a write of `command`.
    ///
    /// # Errors
    /// [`WireError::Length`], [`WireError::Count`].
    pub fn decode(command: Command, body: &[u8]) -> Result<Self, WireError> {
        let mut bytes = Bytes::exactly(command, body, Self::LENGTH)?;
        let (offset, region, count, data) = (bytes.u64()?, bytes.u32()?, bytes.u32()?, bytes.array::<8>()?);
        let used = usize::try_from(count).ok().and_then(|count| data.get(..count));
        let used = used.ok_or(WireError::Count { command, count: count.into(), got: 8 })?;
        Self::new(region, offset, used).ok_or(WireError::Count { command, count: count.into(), got: 8 })
    }
}

fn limit(command: Command, count: u64) -> Result<(), WireError> {
    if count > u64::from(MAX_DATA) {
        return Err(WireError::Count { command, count, got: MAX_DATA.into() });
    }
    Ok(())
}

fn matching(command: Command, count: u64, data: &[u8]) -> Result<&[u8], WireError> {
    if count == data.len() as u64 {
        Ok(data)
    } else {
        Err(WireError::Count { command, count, got: data.len() as u64 })
    }
}
