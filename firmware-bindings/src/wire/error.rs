//! Errors of parsing and encoding packets.

use fpga_registers::{CardAddr, quantity};

use super::{Flags, PacketKind};
use crate::geometry::GeometryError;
use crate::ids::{NodeId, SegmentIndex, TransferId};

/// Reason why bytes are not a packet of this protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Shorter than any packet.
    #[error(
        "a frame of {length} is too short for a packet, the minimum is {needed}: check the link for truncation",
        length = quantity(*length, "byte"),
    )]
    TooShort {
        /// Bytes given.
        length: usize,
        /// Bytes of a common header and a checksum.
        needed: usize,
    },
    /// The checksum is wrong: the packet was damaged in transit, truncated or padded.
    #[error(
        "checksum {found:#010x}, computed {computed:#010x}: the packet was damaged in flight, the sender will retransmit it"
    )]
    Checksum {
        /// Checksum in the packet.
        found: u32,
        /// Checksum of its bytes.
        computed: u32,
    },
    /// Unsupported wire version.
    #[error("wire version {found}, this node supports {supported}: update the older node")]
    Version {
        /// Version found.
        found: u8,
        /// Version of this package.
        supported: u8,
    },
    /// Unknown packet kind.
    #[error("unknown packet kind {found}: the peer violates the format")]
    Kind {
        /// Number found.
        found: u8,
    },
    /// The length differs from the length that the fields imply.
    #[error(
        "{kind} packet of {found}, its fields give {expected}: the peer violates the format",
        found = quantity(*found, "byte"),
    )]
    Length {
        /// Kind of the packet.
        kind: PacketKind,
        /// Length implied by the fields, in bytes.
        expected: usize,
        /// Length found, in bytes.
        found: usize,
    },
    /// Flags that are unknown or not allowed for this kind.
    #[error("{kind} packet with flags {found}, which this kind does not allow: the peer violates the format")]
    Flags {
        /// Kind of the packet.
        kind: PacketKind,
        /// Flags found.
        found: Flags,
    },
    /// A node id is the reserved one.
    #[error("packet from node {from} to node {to}: 4294967295 is not a node; set NODE_ID")]
    ReservedNode {
        /// Source found.
        from: NodeId,
        /// Destination found.
        to: NodeId,
    },
    /// A reserved field is not 0.
    #[error("{kind} packet with a reserved field set: the peer violates the format")]
    Reserved {
        /// Kind of the packet.
        kind: PacketKind,
    },
    /// The payload is empty without [`Flags::TRIMMED`], not empty with it, or longer than the packet size.
    #[error(
        "payload of {length} in packets of {counted_packet_size}: the allowed range is 1 to {packet_size}, and 0 with TRIMMED",
        length = quantity(*length, "byte"),
        counted_packet_size = quantity(*packet_size, "byte"),
    )]
    PayloadLength {
        /// Bytes of the payload.
        length: usize,
        /// Bytes of a full packet's payload.
        packet_size: u32,
    },
    /// The packet's transfer is older than the oldest live one of its sender.
    #[error(
        "transfer {transfer} is older than the sender's oldest live one, {oldest_live}: the sender's fields contradict each other"
    )]
    OldestLive {
        /// Transfer of the packet.
        transfer: TransferId,
        /// Oldest live transfer in the packet.
        oldest_live: TransferId,
    },
    /// A START packet's payload does not start at the segment's start.
    #[error("START packet for {address} in a segment at {base}: it must carry packet 0")]
    StartAddress {
        /// Address of the payload.
        address: CardAddr,
        /// Address of the segment.
        base: CardAddr,
    },
    /// A START packet's payload is not that of the segment's first packet.
    #[error(
        "START packet of {found} payload bytes, but the first packet of segment {segment} has {expected}"
    )]
    StartPayload {
        /// Bytes found.
        found: usize,
        /// Packet size, or the segment's length if that is less.
        expected: u32,
        /// Segment of the packet.
        segment: SegmentIndex,
    },
    /// A segment contradicts itself or its transfer.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// A NACK without a known reason, or an ACK with one.
    #[error("{kind} packet with unknown reason {found}: the peer violates the format")]
    Reason {
        /// Kind of the packet.
        kind: PacketKind,
        /// Number found.
        found: u8,
    },
    /// The scheme does not use messages, or is unknown.
    #[error("{kind} packet of scheme {found}, which is not a message scheme: the peer violates the format")]
    Scheme {
        /// Kind of the packet.
        kind: PacketKind,
        /// Number found.
        found: u8,
    },
    /// A message contradicts itself or its transfer.
    #[error(
        "{kind} packet of a message of {length} in a transfer of {transfer_length}: a message has 1 byte to 4096 packets, within the transfer",
        length = quantity(*length, "byte"),
    )]
    Message {
        /// Kind of the packet.
        kind: PacketKind,
        /// Bytes of the message.
        length: u32,
        /// Bytes of the transfer.
        transfer_length: u64,
    },
    /// The packet does not fit its message.
    #[error("{kind} packet {index}: index, tail mark and payload do not agree with its message")]
    MessagePacket {
        /// Kind of the packet.
        kind: PacketKind,
        /// Index of the packet.
        index: u16,
    },
    /// Unknown answer, or one that this kind of packet does not carry.
    #[error("{kind} packet with unknown answer {found}: the peer violates the format")]
    Answer {
        /// Kind of the packet.
        kind: PacketKind,
        /// Number found.
        found: u8,
    },
    /// A READ_REQUEST with length 0 or number 0.
    #[error("READ_REQUEST packet of 0 bytes or with number 0: the peer violates the format")]
    EmptyRead,
    /// Load values of a link are out of range.
    #[error("link {link} with rate {rate} and queue {queue} of 1000: the hop violates the format")]
    LinkState {
        /// The link.
        link: u32,
        /// Rate found.
        rate: u16,
        /// Queue found.
        queue: u16,
    },
    /// An ARRIVED packet with length 0.
    #[error("ARRIVED packet of an empty transfer: the peer violates the format")]
    EmptyTransfer,
    /// A HELLO packet with an impossible number of mask bits, or without a wire version.
    #[error(
        "HELLO packet with {mask_bits} mask bits and wire version {wire_version}: allowed are 1 to 256 bits and version 1 or later"
    )]
    HelloLimits {
        /// Mask bits found.
        mask_bits: u16,
        /// Wire version found.
        wire_version: u8,
    },
}

impl WireError {
    /// Whether the network damaged the packet (counted as BAD_CRC); otherwise the sender made it wrong (counted as BAD_PACKET).
    #[must_use]
    pub const fn is_damage(&self) -> bool {
        matches!(self, Self::TooShort { .. } | Self::Checksum { .. })
    }
}

/// Reason why a value was not encoded. The buffer's content is unspecified on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The packet does not fit into the buffer.
    #[error(
        "the packet needs {needed}, the buffer has {available}: provide MAX_PACKET_LENGTH",
        needed = quantity(*needed, "byte"),
    )]
    BufferTooSmall {
        /// Bytes of the packet.
        needed: usize,
        /// Bytes of the buffer.
        available: usize,
    },
    /// A receiver would refuse the packet.
    #[error("a receiver would refuse this packet: {0}")]
    Invalid(WireError),
}

impl From<WireError> for EncodeError {
    fn from(error: WireError) -> Self {
        Self::Invalid(error)
    }
}

impl From<GeometryError> for EncodeError {
    fn from(error: GeometryError) -> Self {
        Self::Invalid(WireError::Geometry(error))
    }
}
