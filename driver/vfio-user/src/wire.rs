//! Messages of the vfio-user protocol, version 0.1, and their bytes: plain code without I/O, for client and server.
//!
//! Source: QEMU's `docs/interop/vfio-user.rst` ("Protocol Specification") and `include/vfio-user.h` of libvfio-user;
//! the structures that come from VFIO are those of `linux/vfio.h`. All numbers are in the byte order of the host
//! ("all data is in the endianness of the host system"), unaligned and without padding.
//!
//! Every message begins with a [`Header`], followed by a [`Request`] or a [`Reply`]. Every length and count is checked against the
//! available bytes and the limits below before memory is allocated for it. The caller checks the *meaning* of numbers (whether a region
//! exists, whether addresses may be mapped).

use core::fmt;

use fpga_pci::memory::RingLayout;

mod access;
mod bytes;
mod claim;
mod dma;
mod error;
mod info;
mod irqs;
mod reply;
mod request;
mod version;

pub use access::{DmaTransfer, RegionAccess, SmallWrite};
pub use claim::StreamClaim;
pub use dma::{DmaMap, DmaUnmap, dma_map_flags, dma_unmap_flags};
pub use error::WireError;
pub use info::{
    DeviceInfo, InfoRequest, IrqInfo, RegionInfo, SparseArea, device_flags, irq_flags, region_flags,
};
pub use irqs::{IrqAction, IrqData, SetIrqs};
pub use reply::Reply;
pub use request::Request;
pub use version::{Capabilities, MAJOR, MINOR, MigrationCapability, TwinSocket, Version};

/// Length of a message's header in bytes.
pub const HEADER_LENGTH: usize = 16;

/// Maximum number of bytes of one access message where the peer announces no `max_data_xfer_size`; also the maximum that is accepted here.
pub const MAX_DATA: u32 = 1 << 20;

/// Maximum length of an accepted message: header, the fixed part of an access, and [`MAX_DATA`] bytes. All other messages are smaller (the
/// largest, 65536 interrupts as booleans, has 64 KiB).
pub const MAX_MESSAGE: u32 = 16 + 16 + MAX_DATA;

/// Maximum number of file descriptors that are accepted with one message, and so the announced `max_msg_fds`. The kernel's own limit is 253
/// (`SCM_MAX_FD`).
pub const MAX_FDS: usize = 64;

/// Ring of a client's register writes in memory that it shares with the server ([`Command::SHARE_WRITES`]): 1024 of them, each the bytes of
/// a [`SmallWrite`].
///
/// The server executes the writes of the ring before it handles a message. So a client keeps the order of its accesses if it publishes a write
/// before it sends a message, and waits for the reply to a message that writes before it writes to the ring. It wakes a sleeping server by a
/// [`REGION_WRITE_MULTI`](Command::REGION_WRITE_MULTI) message without writes. A write that the region does not have is ignored, as that of a
/// message without reply; a record that is no [`SmallWrite`], or an impossible position, ends the connection.
pub const WRITE_RING: RingLayout = RingLayout::new(16, SmallWrite::LENGTH);

/// Regions of a PCI device, as VFIO numbers them (`VFIO_PCI_*_REGION_INDEX` in `linux/vfio.h`).
pub mod region {
    /// BAR 0; the others follow up to 5.
    pub const BAR0: u32 = 0;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// Legacy VGA ranges.
    pub const VGA: u32 = 8;
    /// Number of regions.
    pub const COUNT: u32 = 9;
}

/// Interrupt kinds of a PCI device, as VFIO numbers them (`VFIO_PCI_*_IRQ_INDEX` in `linux/vfio.h`).
pub mod irq {
    /// INTx, the legacy interrupt line.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// Uncorrectable error reported by the device.
    pub const ERR: u32 = 3;
    /// Device-release request (REQ).
    pub const REQ: u32 = 4;
    /// Number of interrupt kinds.
    pub const COUNT: u32 = 5;
}

/// Command of a message. Unknown numbers are kept, so that they can be refused by a reply.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Command(pub u16);

impl Command {
    /// Version and capabilities; the first message.
    pub const VERSION: Self = Self(1);
    /// Maps memory for the device.
    pub const DMA_MAP: Self = Self(2);
    /// Unmaps memory.
    pub const DMA_UNMAP: Self = Self(3);
    /// Queries the numbers of regions and interrupt kinds.
    pub const DEVICE_GET_INFO: Self = Self(4);
    /// Queries one region.
    pub const DEVICE_GET_REGION_INFO: Self = Self(5);
    /// Queries the descriptors for parts of a region.
    pub const DEVICE_GET_REGION_IO_FDS: Self = Self(6);
    /// Queries one interrupt kind.
    pub const DEVICE_GET_IRQ_INFO: Self = Self(7);
    /// Configures or triggers interrupts.
    pub const DEVICE_SET_IRQS: Self = Self(8);
    /// Reads a region.
    pub const REGION_READ: Self = Self(9);
    /// Writes a region.
    pub const REGION_WRITE: Self = Self(10);
    /// Server to client: reads memory that was mapped without a file descriptor.
    pub const DMA_READ: Self = Self(11);
    /// Server to client: writes such memory.
    pub const DMA_WRITE: Self = Self(12);
    /// Resets the device.
    pub const DEVICE_RESET: Self = Self(13);
    /// Queries dirty pages, in early versions of the protocol.
    pub const DIRTY_PAGES: Self = Self(14);
    /// Several small writes of regions.
    pub const REGION_WRITE_MULTI: Self = Self(15);
    /// Features of the device (migration).
    pub const DEVICE_FEATURE: Self = Self(16);
    /// Migration data out.
    pub const MIG_DATA_READ: Self = Self(17);
    /// Migration data in.
    pub const MIG_DATA_WRITE: Self = Self(18);

    /// Passes memory with a ring of register writes. Not in the specification: sent only to servers that offer it
    /// ([`Capabilities::write_ring`]), with a number far from those of the protocol.
    pub const SHARE_WRITES: Self = Self(0x4650);

    /// Claims a stream channel of a shared card, or releases it. Not in the specification: sent only to servers that offer it
    /// ([`Capabilities::stream_claims`]).
    pub const CLAIM_STREAM: Self = Self(0x4651);

    /// The name in the specification, without its prefix.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::VERSION => "VERSION",
            Self::DMA_MAP => "DMA_MAP",
            Self::DMA_UNMAP => "DMA_UNMAP",
            Self::DEVICE_GET_INFO => "DEVICE_GET_INFO",
            Self::DEVICE_GET_REGION_INFO => "DEVICE_GET_REGION_INFO",
            Self::DEVICE_GET_REGION_IO_FDS => "DEVICE_GET_REGION_IO_FDS",
            Self::DEVICE_GET_IRQ_INFO => "DEVICE_GET_IRQ_INFO",
            Self::DEVICE_SET_IRQS => "DEVICE_SET_IRQS",
            Self::REGION_READ => "REGION_READ",
            Self::REGION_WRITE => "REGION_WRITE",
            Self::DMA_READ => "DMA_READ",
            Self::DMA_WRITE => "DMA_WRITE",
            Self::DEVICE_RESET => "DEVICE_RESET",
            Self::DIRTY_PAGES => "DIRTY_PAGES",
            Self::REGION_WRITE_MULTI => "REGION_WRITE_MULTI",
            Self::DEVICE_FEATURE => "DEVICE_FEATURE",
            Self::MIG_DATA_READ => "MIG_DATA_READ",
            Self::MIG_DATA_WRITE => "MIG_DATA_WRITE",
            Self::SHARE_WRITES => "SHARE_WRITES",
            Self::CLAIM_STREAM => "CLAIM_STREAM",
            _ => return None,
        })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "unknown command {}", self.0),
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Kind of message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A request.
    Request {
        /// The sender wants no reply, not even an error.
        no_reply: bool,
    },
    /// A reply to a request.
    Reply {
        /// The `errno` value of a failed request (0 where the sender gave none). Such a reply has no body.
        error: Option<u32>,
    },
}

/// The header: id (2 bytes), command (2), size of the whole message (4), flags (4), error (4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Header {
    /// Chosen by the requester, repeated in the reply. Need not be unique.
    pub id: u16,
    /// Command of the request; the same in the reply.
    pub command: Command,
    /// Length of the whole message in bytes, including this header.
    pub size: u32,
    /// Request or reply.
    pub kind: Kind,
}

/// Flags of a header: bits 0-3 are the type, 0 a request, 1 a reply.
const TYPE_MASK: u32 = 0xF;
const TYPE_REQUEST: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

impl Header {
    /// Encodes the header.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_LENGTH] {
        let (flags, error) = match self.kind {
            Kind::Request { no_reply } => (TYPE_REQUEST | if no_reply { NO_REPLY } else { 0 }, 0),
            Kind::Reply { error: Some(errno) } => (TYPE_REPLY | ERROR, errno),
            Kind::Reply { error: None } => (TYPE_REPLY, 0),
        };
        let [i0, i1] = self.id.to_ne_bytes();
        let [c0, c1] = self.command.0.to_ne_bytes();
        let [s0, s1, s2, s3] = self.size.to_ne_bytes();
        let [f0, f1, f2, f3] = flags.to_ne_bytes();
        let [e0, e1, e2, e3] = error.to_ne_bytes();
        [i0, i1, c0, c1, s0, s1, s2, s3, f0, f1, f2, f3, e0, e1, e2, e3]
    }

    /// Decodes a header. Unknown flags are ignored, so that a later minor version may add some.
    ///
    /// # Errors
    /// [`WireError::Type`], and [`WireError::Size`] for a size below the header's own or above [`MAX_MESSAGE`]: the position of the next
    /// message is unknown after either.
    pub fn decode(bytes: &[u8; HEADER_LENGTH]) -> Result<Self, WireError> {
        let [i0, i1, c0, c1, s0, s1, s2, s3, f0, f1, f2, f3, e0, e1, e2, e3] = *bytes;
        let command = Command(u16::from_ne_bytes([c0, c1]));
        let size = u32::from_ne_bytes([s0, s1, s2, s3]);
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let error = u32::from_ne_bytes([e0, e1, e2, e3]);
        let kind = match flags & TYPE_MASK {
            TYPE_REQUEST => Kind::Request { no_reply: flags & NO_REPLY != 0 },
            TYPE_REPLY => Kind::Reply { error: (flags & ERROR != 0).then_some(error) },
            _ => return Err(WireError::Type { flags }),
        };
        if (size as usize) < HEADER_LENGTH || size > MAX_MESSAGE {
            return Err(WireError::Size { command, size });
        }
        Ok(Self { id: u16::from_ne_bytes([i0, i1]), command, size, kind })
    }

    /// Returns the number of bytes that follow the header.
    #[must_use]
    pub const fn body_length(&self) -> usize {
        (self.size as usize).saturating_sub(HEADER_LENGTH)
    }
}

/// Appends a request with its header to `out`.
pub fn encode_request(id: u16, no_reply: bool, request: &Request<'_>, out: &mut Vec<u8>) {
    frame(id, request.command(), Kind::Request { no_reply }, out, |out| request.encode(out));
}

/// Appends a reply with its header to `out`.
pub fn encode_reply(id: u16, reply: &Reply<'_>, out: &mut Vec<u8>) {
    frame(id, reply.command(), Kind::Reply { error: None }, out, |out| reply.encode(out));
}

/// Appends a reply to `out` that refuses request `id` with an `errno` value.
pub fn encode_error(id: u16, command: Command, errno: u32, out: &mut Vec<u8>) {
    frame(id, command, Kind::Reply { error: Some(errno) }, out, |_| {});
}

fn frame(id: u16, command: Command, kind: Kind, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    body(out);
    // A message of 4 GiB cannot be sent; the receiver's limit refuses the saturated value.
    let size = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..start + HEADER_LENGTH) {
        place.copy_from_slice(&Header { id, command, size, kind }.encode());
    }
}

#[cfg(test)]
mod tests;
