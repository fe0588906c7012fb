//! Packets without payload.

use fpga_registers::CardAddr;

use super::{CRC_LENGTH, Common, EncodeError, NackReason, PacketKind, WireError, exact, finish};
use crate::bytes::{ByteImage, u8_at, u16_at, u32_at, u64_at};
use crate::generated::layout::{ack, arrived, hello, segment_done};
use crate::generated::{Capabilities, SEGMENT_PACKETS_MAX, WIRE_VERSION};
use crate::geometry::{packet_size, range_end};
use crate::ids::{Incarnation, OpNumber, SegmentIndex, TransferId};

/// ACK: the payload of one packet is in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Ack {
    /// Common header: from the receiver of the data to its sender.
    pub common: Common,
    /// Op number of the packet.
    pub op: OpNumber,
    /// Transfer of the packet.
    pub transfer: TransferId,
    /// Segment of the packet.
    pub segment: SegmentIndex,
    /// Incarnation in the packet.
    pub peer_incarnation: Incarnation,
    /// Try count in the packet (erratum E2-2: identifies the try that an answer belongs to).
    pub tries: u8,
    /// Number of nodes that send to the receiver, 255 for more; 0: not known.
    pub senders: u8,
    /// Time between arrival and answer, in units of [`DELAY_UNIT_NS`](crate::generated::DELAY_UNIT_NS).
    pub delay: u16,
}

/// NACK: one packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Nack {
    /// Common header: from the receiver of the data to its sender.
    pub common: Common,
    /// Op number of the packet.
    pub op: OpNumber,
    /// Transfer of the packet.
    pub transfer: TransferId,
    /// Segment of the packet.
    pub segment: SegmentIndex,
    /// Incarnation in the packet.
    pub peer_incarnation: Incarnation,
    /// Try count in the packet.
    pub tries: u8,
    /// Reason of the refusal.
    pub reason: NackReason,
    /// Time until the next try has a chance, in units of [`DELAY_UNIT_NS`](crate::generated::DELAY_UNIT_NS); 0: not known.
    pub delay: u16,
}

/// SEGMENT_DONE: every packet of a segment is in memory (erratum E1-11).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SegmentDone {
    /// Common header: from the receiver of the data to its sender.
    pub common: Common,
    /// The transfer.
    pub transfer: TransferId,
    /// The segment.
    pub segment: SegmentIndex,
    /// Incarnation in the segment's packets.
    pub peer_incarnation: Incarnation,
}

/// ARRIVED: the sender reports that a whole transfer is in the receiver's memory (transfers with `notify = sender`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Arrived {
    /// Common header: from the sender of the data to its receiver.
    pub common: Common,
    /// The transfer.
    pub transfer: TransferId,
    /// First byte of the transfer at the receiver.
    pub address: CardAddr,
    /// Length of the transfer in bytes, not 0.
    pub length: u64,
    /// Key of the receiver's memory window.
    pub key: u64,
}

/// HELLO and HELLO_REPLY: capabilities of the node that sends the packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hello {
    /// Common header.
    pub common: Common,
    /// Payload bytes of a full packet, as a power of two: 6 to 12.
    pub packet_size_log2: u8,
    /// Newest wire version that the node supports.
    pub wire_version: u8,
    /// Maximum number of packets of a segment that the node can receive, 1 to 256.
    pub mask_bits: u16,
    /// Capabilities of the card. Bits that this software does not know are kept.
    pub capabilities: Capabilities,
    /// Bit n: the node supports scheme number n ([`Scheme`](crate::generated::Scheme)).
    pub schemes: u32,
    /// Registry timeout of the node: silence of a sender after which an entry is released, in microseconds.
    pub registry_timeout_us: u32,
}

/// Any packet without payload, as a value. Exhaustive for the same reason as [`super::Packet`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Control {
    /// One packet is in memory.
    Ack(Ack),
    /// One packet was refused.
    Nack(Nack),
    /// A segment is complete.
    SegmentDone(SegmentDone),
    /// A transfer is complete, reported by the sender.
    Arrived(Arrived),
    /// Capabilities of a node, and a request for the peer's.
    Hello(Hello),
    /// Capabilities of a node, as an answer.
    HelloReply(Hello),
}

/// Common fields of ACK and NACK.
struct Answer {
    common: Common,
    op: OpNumber,
    transfer: TransferId,
    segment: SegmentIndex,
    peer_incarnation: Incarnation,
    tries: u8,
    reason: u8,
    delay: u16,
}

impl Answer {
    fn parse(bytes: &[u8; ack::LAYOUT_SIZE]) -> Self {
        Self {
            common: Common::read(bytes),
            op: OpNumber::new(u32_at::<{ ack::OP }, _>(bytes)),
            transfer: TransferId::new(u32_at::<{ ack::TRANSFER }, _>(bytes)),
            segment: u32_at::<{ ack::SEGMENT }, _>(bytes),
            peer_incarnation: Incarnation::new(u32_at::<{ ack::PEER_INCARNATION }, _>(bytes)),
            tries: u8_at::<{ ack::TRIES }, _>(bytes),
            reason: u8_at::<{ ack::REASON }, _>(bytes),
            delay: u16_at::<{ ack::DELAY }, _>(bytes),
        }
    }

    fn encode(&self, kind: PacketKind, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        write(&self.common, kind, buffer, |image: &mut ByteImage<{ ack::LAYOUT_SIZE }>| {
            image.put::<{ ack::OP }, _>(self.op.get());
            image.put::<{ ack::TRANSFER }, _>(self.transfer.get());
            image.put::<{ ack::SEGMENT }, _>(self.segment);
            image.put::<{ ack::PEER_INCARNATION }, _>(self.peer_incarnation.get());
            image.put::<{ ack::TRIES }, _>(self.tries);
            image.put::<{ ack::REASON }, _>(self.reason);
            image.put::<{ ack::DELAY }, _>(self.delay);
        })
    }
}

/// Writes common header, the fields that `fill` sets, and the checksum. Fields that are not set are 0, as reserved fields must be.
#[inline]
fn write<const LENGTH: usize>(
    common: &Common,
    kind: PacketKind,
    buffer: &mut [u8],
    fill: impl FnOnce(&mut ByteImage<LENGTH>),
) -> Result<usize, EncodeError> {
    common.check(kind)?;
    let available = buffer.len();
    let needed = LENGTH + CRC_LENGTH;
    let head = buffer.first_chunk_mut::<LENGTH>().ok_or(EncodeError::BufferTooSmall { needed, available })?;
    let mut image = ByteImage::new();
    common.put(kind, &mut image);
    fill(&mut image);
    image.store(head);
    finish(buffer, LENGTH)
}

impl SegmentDone {
    fn parse(bytes: &[u8; segment_done::LAYOUT_SIZE]) -> Result<Self, WireError> {
        if u32_at::<{ segment_done::RESERVED }, _>(bytes) != 0 {
            return Err(WireError::Reserved { kind: PacketKind::SegmentDone });
        }
        Ok(Self {
            common: Common::read(bytes),
            transfer: TransferId::new(u32_at::<{ segment_done::TRANSFER }, _>(bytes)),
            segment: u32_at::<{ segment_done::SEGMENT }, _>(bytes),
            peer_incarnation: Incarnation::new(u32_at::<{ segment_done::PEER_INCARNATION }, _>(bytes)),
        })
    }

    fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        write(
            &self.common,
            PacketKind::SegmentDone,
            buffer,
            |image: &mut ByteImage<{ segment_done::LAYOUT_SIZE }>| {
                image.put::<{ segment_done::TRANSFER }, _>(self.transfer.get());
                image.put::<{ segment_done::SEGMENT }, _>(self.segment);
                image.put::<{ segment_done::PEER_INCARNATION }, _>(self.peer_incarnation.get());
            },
        )
    }
}

impl Arrived {
    fn check(&self) -> Result<(), WireError> {
        if self.length == 0 {
            return Err(WireError::EmptyTransfer);
        }
        range_end(self.address, self.length)?;
        Ok(())
    }

    fn parse(bytes: &[u8; arrived::LAYOUT_SIZE]) -> Result<Self, WireError> {
        if u32_at::<{ arrived::RESERVED }, _>(bytes) != 0 {
            return Err(WireError::Reserved { kind: PacketKind::Arrived });
        }
        let arrived = Self {
            common: Common::read(bytes),
            transfer: TransferId::new(u32_at::<{ arrived::TRANSFER }, _>(bytes)),
            address: CardAddr::new(u64_at::<{ arrived::ADDRESS }, _>(bytes)),
            length: u64_at::<{ arrived::LENGTH }, _>(bytes),
            key: u64_at::<{ arrived::KEY }, _>(bytes),
        };
        arrived.check()?;
        Ok(arrived)
    }

    fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.check()?;
        write(&self.common, PacketKind::Arrived, buffer, |image: &mut ByteImage<{ arrived::LAYOUT_SIZE }>| {
            image.put::<{ arrived::TRANSFER }, _>(self.transfer.get());
            image.put::<{ arrived::ADDRESS }, _>(self.address.get());
            image.put::<{ arrived::LENGTH }, _>(self.length);
            image.put::<{ arrived::KEY }, _>(self.key);
        })
    }
}

impl Hello {
    fn check(&self) -> Result<(), WireError> {
        packet_size(self.packet_size_log2)?;
        if self.wire_version < WIRE_VERSION || !(1..=SEGMENT_PACKETS_MAX).contains(&self.mask_bits) {
            return Err(WireError::HelloLimits {
                mask_bits: self.mask_bits,
                wire_version: self.wire_version,
            });
        }
        Ok(())
    }

    fn parse(bytes: &[u8; hello::LAYOUT_SIZE]) -> Result<Self, WireError> {
        let hello = Self {
            common: Common::read(bytes),
            packet_size_log2: u8_at::<{ hello::PACKET_SIZE_LOG2 }, _>(bytes),
            wire_version: u8_at::<{ hello::WIRE_VERSION }, _>(bytes),
            mask_bits: u16_at::<{ hello::MASK_BITS }, _>(bytes),
            capabilities: Capabilities::from_bits(u32_at::<{ hello::CAPABILITIES }, _>(bytes)),
            schemes: u32_at::<{ hello::SCHEMES }, _>(bytes),
            registry_timeout_us: u32_at::<{ hello::REGISTRY_TIMEOUT_US }, _>(bytes),
        };
        hello.check()?;
        Ok(hello)
    }

    fn encode(&self, kind: PacketKind, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.check()?;
        write(&self.common, kind, buffer, |image: &mut ByteImage<{ hello::LAYOUT_SIZE }>| {
            image.put::<{ hello::PACKET_SIZE_LOG2 }, _>(self.packet_size_log2);
            image.put::<{ hello::WIRE_VERSION }, _>(self.wire_version);
            image.put::<{ hello::MASK_BITS }, _>(self.mask_bits);
            image.put::<{ hello::CAPABILITIES }, _>(self.capabilities.bits());
            image.put::<{ hello::SCHEMES }, _>(self.schemes);
            image.put::<{ hello::REGISTRY_TIMEOUT_US }, _>(self.registry_timeout_us);
        })
    }
}

impl Control {
    /// Parses a packet without payload, except its checksum.
    pub(super) fn parse(kind: PacketKind, body: &[u8]) -> Result<Self, WireError> {
        match kind {
            PacketKind::Ack | PacketKind::Nack => Self::from_answer(kind, &Answer::parse(exact(kind, body)?)),
            PacketKind::SegmentDone => SegmentDone::parse(exact(kind, body)?).map(Self::SegmentDone),
            PacketKind::Arrived => Arrived::parse(exact(kind, body)?).map(Self::Arrived),
            PacketKind::Hello => Hello::parse(exact(kind, body)?).map(Self::Hello),
            PacketKind::HelloReply => Hello::parse(exact(kind, body)?).map(Self::HelloReply),
            // Packets with payload and packets of message schemes are parsed elsewhere.
            _ => Err(WireError::Kind { found: kind.value() }),
        }
    }

    fn from_answer(kind: PacketKind, answer: &Answer) -> Result<Self, WireError> {
        let Answer { common, op, transfer, segment, peer_incarnation, tries, reason, delay } = *answer;
        if kind == PacketKind::Nack {
            let reason =
                NackReason::try_from(reason).map_err(|_| WireError::Reason { kind, found: reason })?;
            let nack = Nack { common, op, transfer, segment, peer_incarnation, tries, reason, delay };
            return Ok(Self::Nack(nack));
        }
        let senders = reason;
        Ok(Self::Ack(Ack { common, op, transfer, segment, peer_incarnation, tries, senders, delay }))
    }

    /// Kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Ack(_) => PacketKind::Ack,
            Self::Nack(_) => PacketKind::Nack,
            Self::SegmentDone(_) => PacketKind::SegmentDone,
            Self::Arrived(_) => PacketKind::Arrived,
            Self::Hello(_) => PacketKind::Hello,
            Self::HelloReply(_) => PacketKind::HelloReply,
        }
    }

    /// Common header.
    #[must_use]
    pub const fn common(&self) -> Common {
        match self {
            Self::Ack(packet) => packet.common,
            Self::Nack(packet) => packet.common,
            Self::SegmentDone(packet) => packet.common,
            Self::Arrived(packet) => packet.common,
            Self::Hello(packet) | Self::HelloReply(packet) => packet.common,
        }
    }

    /// Common header, for changes.
    pub const fn common_mut(&mut self) -> &mut Common {
        match self {
            Self::Ack(packet) => &mut packet.common,
            Self::Nack(packet) => &mut packet.common,
            Self::SegmentDone(packet) => &mut packet.common,
            Self::Arrived(packet) => &mut packet.common,
            Self::Hello(packet) | Self::HelloReply(packet) => &mut packet.common,
        }
    }

    /// Length of the packet in bytes, checksum included.
    #[must_use]
    pub const fn length(&self) -> usize {
        super::header_length(self.kind()) + CRC_LENGTH
    }

    /// Encodes the packet. Returns its length; [`super::MAX_CONTROL_LENGTH`] bytes are always enough.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BufferTooSmall`], or [`EncodeError::Invalid`] for a packet that [`super::Packet::parse`] would refuse.
    pub fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let kind = self.kind();
        match *self {
            Self::Ack(Ack { common, op, transfer, segment, peer_incarnation, tries, senders, delay }) => {
                Answer { common, op, transfer, segment, peer_incarnation, tries, reason: senders, delay }
                    .encode(kind, buffer)
            }
            Self::Nack(Nack { common, op, transfer, segment, peer_incarnation, tries, reason, delay }) => {
                let reason = reason.value();
                Answer { common, op, transfer, segment, peer_incarnation, tries, reason, delay }
                    .encode(kind, buffer)
            }
            Self::SegmentDone(packet) => packet.encode(buffer),
            Self::Arrived(packet) => packet.encode(buffer),
            Self::Hello(packet) | Self::HelloReply(packet) => packet.encode(kind, buffer),
        }
    }
}
