//! Packets of the message schemes, that is all schemes except the registry.
//!
//! A transfer is divided into messages of up to [`MESSAGE_PACKETS_MAX`] packets. The receiver keeps a context per message. The answers
//! contain its number (CID), so that later packets need not repeat the fields of the announcement.

mod answer;

use fpga_registers::CardAddr;

use super::{CRC_LENGTH, Common, EncodeError, PacketKind, WireError, exact, finish, finish_copy};
use crate::bytes::{ByteImage, u8_at, u16_at, u32_at, u64_at};
use crate::generated::Scheme;
use crate::generated::layout::{
    message_data as data_at, message_request as request_at, message_start as start_at,
    read_request as read_at,
};
use crate::geometry::{packet_size, range_end};
use crate::ids::{MessageId, TransferId};
pub use answer::{AnswerBody, MessageAnswer, SENDERS_MAX};

/// Maximum number of packets of a message: a window's base has 13 bits (erratum E0-11).
pub const MESSAGE_PACKETS_MAX: u32 = 4096;

/// Value of a CONTEXT field without context.
const NO_CONTEXT: u32 = u32::MAX;

/// Description of a message that begins it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Announcement {
    /// Length of the message in bytes: 1 to [`MESSAGE_PACKETS_MAX`] packets.
    pub length: u32,
    /// First byte of the message at the destination.
    pub base: CardAddr,
    /// Key of the destination's memory window.
    pub key: u64,
    /// First byte of the transfer at the destination.
    pub transfer_base: CardAddr,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
    /// Number of the transfer.
    pub transfer: TransferId,
    /// Number of the read that the transfer answers; 0 if there is none.
    pub read: u32,
    /// Number of other messages of the transfer that are not complete; 0: this message completes the transfer.
    pub left: u32,
}

/// MESSAGE_REQUEST: asks for a receive context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageRequest {
    /// Common header: from the sender of the data.
    pub common: Common,
    /// Id of the message.
    pub message: MessageId,
    /// Scheme of the message.
    pub scheme: Scheme,
    /// Payload bytes of a full packet, as a power of two: 6 to 12.
    pub packet_size_log2: u8,
    /// Description of the message.
    pub announcement: Announcement,
}

/// MESSAGE_DATA or MESSAGE_START without payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MessageHeader {
    /// Common header: from the sender of the data.
    pub common: Common,
    /// Id of the message.
    pub message: MessageId,
    /// Context of the receiver, if known.
    pub context: Option<u32>,
    /// Sequence number of this sending of a packet.
    pub sequence: u32,
    /// Index within the message.
    pub index: u16,
    /// Whether this is the message's last packet.
    pub tail: bool,
    /// Scheme of the message.
    pub scheme: Scheme,
    /// Payload bytes of a full packet, as a power of two: 6 to 12.
    pub packet_size_log2: u8,
    /// Description that lets this packet begin its message; makes it a MESSAGE_START.
    pub announcement: Option<Announcement>,
}

/// READ_REQUEST: asks for a transfer to the requesting node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReadRequest {
    /// Common header: from the node that requests the data.
    pub common: Common,
    /// Number of the read, not 0.
    pub read: MessageId,
    /// First byte at the node that has the data.
    pub source: CardAddr,
    /// Key of the memory window there.
    pub source_key: u64,
    /// First byte at the requesting node.
    pub base: CardAddr,
    /// Key of the memory window there.
    pub key: u64,
    /// Length in bytes, not 0.
    pub length: u64,
}

/// Any packet of the message schemes, without payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Message {
    /// MESSAGE_REQUEST.
    Request(MessageRequest),
    /// MESSAGE_DATA, MESSAGE_START.
    Data(MessageHeader),
    /// MESSAGE_ANSWER, MESSAGE_MAP.
    Answer(MessageAnswer),
    /// READ_REQUEST.
    Read(ReadRequest),
}

/// Checked bytes of a packet of the message schemes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageBytes<'a> {
    kind: PacketKind,
    body: &'a [u8],
}

fn scheme(kind: PacketKind, found: u8) -> Result<Scheme, WireError> {
    match Scheme::try_from(u32::from(found)) {
        Ok(Scheme::Registry) | Err(_) => Err(WireError::Scheme { kind, found }),
        Ok(scheme) => Ok(scheme),
    }
}

fn scheme_byte(scheme: Scheme) -> u8 {
    u8::try_from(scheme.value()).unwrap_or(u8::MAX)
}

const fn context(field: u32) -> Option<u32> {
    if field == NO_CONTEXT { None } else { Some(field) }
}

impl Announcement {
    /// Number of packets of the message.
    #[must_use]
    pub const fn packets(&self, packet_size_log2: u8) -> u32 {
        match 1_u32.checked_shl(packet_size_log2 as u32) {
            Some(size) => self.length.div_ceil(size),
            None => 1,
        }
    }

    fn check(&self, kind: PacketKind, packet_size_log2: u8) -> Result<(), WireError> {
        let size = packet_size(packet_size_log2)?;
        let wrong = WireError::Message { kind, length: self.length, transfer_length: self.transfer_length };
        if self.length == 0 || self.length.div_ceil(size) > MESSAGE_PACKETS_MAX {
            return Err(wrong);
        }
        let end = range_end(self.base, self.length.into())?;
        let transfer_end = range_end(self.transfer_base, self.transfer_length)?;
        // The message is alone or one of several: each of the others has at least one byte in the transfer.
        let others = self.transfer_length.saturating_sub(self.length.into());
        if self.base < self.transfer_base || end > transfer_end || u64::from(self.left) > others {
            return Err(wrong);
        }
        Ok(())
    }
}

impl MessageHeader {
    /// MESSAGE_DATA or MESSAGE_START.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        if self.announcement.is_some() { PacketKind::MessageStart } else { PacketKind::MessageData }
    }

    /// Length of the header in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        super::header_length(self.kind())
    }

    fn check(&self, payload: usize) -> Result<(), WireError> {
        let packet_size = packet_size(self.packet_size_log2)?;
        let refused = WireError::PayloadLength { length: payload, packet_size };
        let length = u32::try_from(payload).map_err(|_| refused)?;
        if length == 0 || length > packet_size {
            return Err(refused);
        }
        let kind = self.kind();
        scheme(kind, scheme_byte(self.scheme))?;
        let index = u32::from(self.index);
        if index >= MESSAGE_PACKETS_MAX {
            return Err(WireError::MessagePacket { kind, index: self.index });
        }
        if let Some(announcement) = &self.announcement {
            announcement.check(kind, self.packet_size_log2)?;
            let last = announcement.packets(self.packet_size_log2) - 1;
            let expected = if index == last { announcement.length - last * packet_size } else { packet_size };
            if index > last || self.tail != (index == last) || length != expected {
                return Err(WireError::MessagePacket { kind, index: self.index });
            }
        } else if !self.tail && length != packet_size {
            return Err(refused);
        }
        Ok(())
    }

    fn put<const LENGTH: usize>(&self, payload: usize, image: &mut ByteImage<LENGTH>) {
        self.common.put(self.kind(), image);
        image.put::<{ data_at::MESSAGE }, _>(self.message.get());
        image.put::<{ data_at::CONTEXT }, _>(self.context.unwrap_or(NO_CONTEXT));
        image.put::<{ data_at::SEQUENCE }, _>(self.sequence);
        image.put::<{ data_at::INDEX }, _>(self.index);
        #[expect(clippy::cast_possible_truncation, reason = "checked: at most 4096")]
        image.put::<{ data_at::PAYLOAD_LENGTH }, _>(payload as u16);
        image.put::<{ data_at::TAIL }, _>(u8::from(self.tail));
        image.put::<{ data_at::SCHEME }, _>(scheme_byte(self.scheme));
        image.put::<{ data_at::PACKET_SIZE_LOG2 }, _>(self.packet_size_log2);
    }

    fn encode(&self, payload: &[u8], buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.common.check(self.kind())?;
        self.check(payload.len())?;
        let at = self.length();
        let end = at + payload.len();
        let too_small = EncodeError::BufferTooSmall { needed: end + CRC_LENGTH, available: buffer.len() };
        if buffer.len() < end + CRC_LENGTH {
            return Err(too_small);
        }
        if let Some(fields) = &self.announcement {
            let mut image = ByteImage::<{ start_at::LAYOUT_SIZE }>::new();
            self.put(payload.len(), &mut image);
            image.put::<{ start_at::LENGTH }, _>(fields.length);
            image.put::<{ start_at::BASE }, _>(fields.base.get());
            image.put::<{ start_at::KEY }, _>(fields.key);
            image.put::<{ start_at::TRANSFER_BASE }, _>(fields.transfer_base.get());
            image.put::<{ start_at::TRANSFER_LENGTH }, _>(fields.transfer_length);
            image.put::<{ start_at::TRANSFER }, _>(fields.transfer.get());
            image.put::<{ start_at::READ }, _>(fields.read);
            image.put::<{ start_at::LEFT }, _>(fields.left);
            image.store(buffer.first_chunk_mut().ok_or(too_small)?);
        } else {
            let mut image = ByteImage::<{ data_at::LAYOUT_SIZE }>::new();
            self.put(payload.len(), &mut image);
            image.store(buffer.first_chunk_mut().ok_or(too_small)?);
        }
        buffer.get_mut(at..end).ok_or(too_small)?.copy_from_slice(payload);
        finish_copy(buffer, at, payload)
    }

    fn read(kind: PacketKind, body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        let at = super::header_length(kind);
        let wrong = |expected| WireError::Length { kind, expected, found: body.len() + CRC_LENGTH };
        let short = wrong(at + CRC_LENGTH);
        let head: &[u8; data_at::LAYOUT_SIZE] = body.first_chunk().ok_or(short)?;
        let (_, payload) = body.split_at_checked(at).ok_or(short)?;
        let expected = usize::from(u16_at::<{ data_at::PAYLOAD_LENGTH }, _>(head));
        if payload.len() != expected {
            return Err(wrong(at + expected + CRC_LENGTH));
        }
        let announcement = if kind == PacketKind::MessageStart {
            let head: &[u8; start_at::LAYOUT_SIZE] = body.first_chunk().ok_or(short)?;
            Some(Announcement {
                length: u32_at::<{ start_at::LENGTH }, _>(head),
                base: CardAddr::new(u64_at::<{ start_at::BASE }, _>(head)),
                key: u64_at::<{ start_at::KEY }, _>(head),
                transfer_base: CardAddr::new(u64_at::<{ start_at::TRANSFER_BASE }, _>(head)),
                transfer_length: u64_at::<{ start_at::TRANSFER_LENGTH }, _>(head),
                transfer: TransferId::new(u32_at::<{ start_at::TRANSFER }, _>(head)),
                read: u32_at::<{ start_at::READ }, _>(head),
                left: u32_at::<{ start_at::LEFT }, _>(head),
            })
        } else {
            None
        };
        let tail = match u8_at::<{ data_at::TAIL }, _>(head) {
            0 => false,
            1 => true,
            _ => return Err(WireError::Reserved { kind }),
        };
        if u8_at::<{ data_at::RESERVED }, _>(head) != 0 {
            return Err(WireError::Reserved { kind });
        }
        let header = Self {
            common: Common::read(head),
            message: MessageId::new(u32_at::<{ data_at::MESSAGE }, _>(head)),
            context: context(u32_at::<{ data_at::CONTEXT }, _>(head)),
            sequence: u32_at::<{ data_at::SEQUENCE }, _>(head),
            index: u16_at::<{ data_at::INDEX }, _>(head),
            tail,
            scheme: scheme(kind, u8_at::<{ data_at::SCHEME }, _>(head))?,
            packet_size_log2: u8_at::<{ data_at::PACKET_SIZE_LOG2 }, _>(head),
            announcement,
        };
        header.check(payload.len())?;
        Ok((header, payload))
    }
}

impl MessageRequest {
    fn check(&self) -> Result<(), WireError> {
        let kind = PacketKind::MessageRequest;
        scheme(kind, scheme_byte(self.scheme))?;
        self.announcement.check(kind, self.packet_size_log2)
    }

    fn read(bytes: &[u8; request_at::LAYOUT_SIZE]) -> Result<Self, WireError> {
        let kind = PacketKind::MessageRequest;
        if u16_at::<{ request_at::RESERVED }, _>(bytes) != 0 {
            return Err(WireError::Reserved { kind });
        }
        let request = Self {
            common: Common::read(bytes),
            message: MessageId::new(u32_at::<{ request_at::MESSAGE }, _>(bytes)),
            scheme: scheme(kind, u8_at::<{ request_at::SCHEME }, _>(bytes))?,
            packet_size_log2: u8_at::<{ request_at::PACKET_SIZE_LOG2 }, _>(bytes),
            announcement: Announcement {
                length: u32_at::<{ request_at::LENGTH }, _>(bytes),
                base: CardAddr::new(u64_at::<{ request_at::BASE }, _>(bytes)),
                key: u64_at::<{ request_at::KEY }, _>(bytes),
                transfer_base: CardAddr::new(u64_at::<{ request_at::TRANSFER_BASE }, _>(bytes)),
                transfer_length: u64_at::<{ request_at::TRANSFER_LENGTH }, _>(bytes),
                transfer: TransferId::new(u32_at::<{ request_at::TRANSFER }, _>(bytes)),
                read: u32_at::<{ request_at::READ }, _>(bytes),
                left: u32_at::<{ request_at::LEFT }, _>(bytes),
            },
        };
        request.check()?;
        Ok(request)
    }

    fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.check()?;
        let fields = &self.announcement;
        let mut image = ByteImage::<{ request_at::LAYOUT_SIZE }>::new();
        image.put::<{ request_at::MESSAGE }, _>(self.message.get());
        image.put::<{ request_at::LENGTH }, _>(fields.length);
        image.put::<{ request_at::BASE }, _>(fields.base.get());
        image.put::<{ request_at::KEY }, _>(fields.key);
        image.put::<{ request_at::TRANSFER_BASE }, _>(fields.transfer_base.get());
        image.put::<{ request_at::TRANSFER_LENGTH }, _>(fields.transfer_length);
        image.put::<{ request_at::TRANSFER }, _>(fields.transfer.get());
        image.put::<{ request_at::READ }, _>(fields.read);
        image.put::<{ request_at::LEFT }, _>(fields.left);
        image.put::<{ request_at::SCHEME }, _>(scheme_byte(self.scheme));
        image.put::<{ request_at::PACKET_SIZE_LOG2 }, _>(self.packet_size_log2);
        write(&self.common, PacketKind::MessageRequest, image, buffer)
    }
}

impl ReadRequest {
    fn check(&self) -> Result<(), WireError> {
        if self.length == 0 || self.read.get() == 0 {
            return Err(WireError::EmptyRead);
        }
        range_end(self.source, self.length)?;
        range_end(self.base, self.length)?;
        Ok(())
    }

    fn parse(bytes: &[u8; read_at::LAYOUT_SIZE]) -> Result<Self, WireError> {
        if u32_at::<{ read_at::RESERVED }, _>(bytes) != 0 {
            return Err(WireError::Reserved { kind: PacketKind::ReadRequest });
        }
        let request = Self {
            common: Common::read(bytes),
            read: MessageId::new(u32_at::<{ read_at::READ }, _>(bytes)),
            source: CardAddr::new(u64_at::<{ read_at::FROM }, _>(bytes)),
            source_key: u64_at::<{ read_at::FROM_KEY }, _>(bytes),
            base: CardAddr::new(u64_at::<{ read_at::BASE }, _>(bytes)),
            key: u64_at::<{ read_at::KEY }, _>(bytes),
            length: u64_at::<{ read_at::LENGTH }, _>(bytes),
        };
        request.check()?;
        Ok(request)
    }

    fn encode(&self, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        self.check()?;
        let mut image = ByteImage::<{ read_at::LAYOUT_SIZE }>::new();
        image.put::<{ read_at::READ }, _>(self.read.get());
        image.put::<{ read_at::FROM }, _>(self.source.get());
        image.put::<{ read_at::FROM_KEY }, _>(self.source_key);
        image.put::<{ read_at::BASE }, _>(self.base.get());
        image.put::<{ read_at::KEY }, _>(self.key);
        image.put::<{ read_at::LENGTH }, _>(self.length);
        write(&self.common, PacketKind::ReadRequest, image, buffer)
    }
}

/// Writes a packet without payload whose own fields are in `image`.
fn write<const LENGTH: usize>(
    common: &Common,
    kind: PacketKind,
    mut image: ByteImage<LENGTH>,
    buffer: &mut [u8],
) -> Result<usize, EncodeError> {
    common.check(kind)?;
    common.put(kind, &mut image);
    let available = buffer.len();
    let place = buffer
        .first_chunk_mut::<LENGTH>()
        .ok_or(EncodeError::BufferTooSmall { needed: LENGTH + CRC_LENGTH, available })?;
    image.store(place);
    finish(buffer, LENGTH)
}

impl Message {
    /// Kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Request(_) => PacketKind::MessageRequest,
            Self::Data(header) => header.kind(),
            Self::Answer(answer) => answer.kind(),
            Self::Read(_) => PacketKind::ReadRequest,
        }
    }

    /// The common header.
    #[must_use]
    pub const fn common(&self) -> Common {
        match self {
            Self::Request(packet) => packet.common,
            Self::Data(packet) => packet.common,
            Self::Answer(packet) => packet.common,
            Self::Read(packet) => packet.common,
        }
    }

    /// Common header, for changes.
    pub const fn common_mut(&mut self) -> &mut Common {
        match self {
            Self::Request(packet) => &mut packet.common,
            Self::Data(packet) => &mut packet.common,
            Self::Answer(packet) => &mut packet.common,
            Self::Read(packet) => &mut packet.common,
        }
    }

    /// Length of the packet in bytes with its checksum, without payload.
    #[must_use]
    pub const fn length(&self) -> usize {
        super::header_length(self.kind()) + CRC_LENGTH
    }

    /// Encodes the packet; only [`Message::Data`] has a payload, the others ignore it. Returns its length;
    /// [`super::MAX_PACKET_LENGTH`] bytes are always enough.
    ///
    /// # Errors
    /// [`EncodeError::BufferTooSmall`], or [`EncodeError::Invalid`] for a packet that [`super::Packet::parse`] would refuse.
    pub fn encode(&self, payload: &[u8], buffer: &mut [u8]) -> Result<usize, EncodeError> {
        match self {
            Self::Request(packet) => packet.encode(buffer),
            Self::Data(packet) => packet.encode(payload, buffer),
            Self::Answer(packet) => packet.encode(buffer),
            Self::Read(packet) => packet.encode(buffer),
        }
    }

    fn read(kind: PacketKind, body: &[u8]) -> Result<(Self, &[u8]), WireError> {
        Ok(match kind {
            PacketKind::MessageRequest => (Self::Request(MessageRequest::read(exact(kind, body)?)?), &[]),
            PacketKind::MessageData | PacketKind::MessageStart => {
                let (header, payload) = MessageHeader::read(kind, body)?;
                (Self::Data(header), payload)
            }
            PacketKind::MessageAnswer | PacketKind::MessageMap => {
                (Self::Answer(MessageAnswer::read(kind, body)?), &[])
            }
            PacketKind::ReadRequest => (Self::Read(ReadRequest::parse(exact(kind, body)?)?), &[]),
            other => return Err(WireError::Kind { found: other.value() }),
        })
    }
}

impl<'a> MessageBytes<'a> {
    /// Parses a packet without its checksum.
    pub(super) fn parse(kind: PacketKind, body: &'a [u8]) -> Result<Self, WireError> {
        Message::read(kind, body)?;
        Ok(Self { kind, body })
    }

    /// Kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        self.kind
    }

    /// The common header.
    #[must_use]
    pub fn common(&self) -> Common {
        self.body
            .first_chunk::<{ crate::generated::layout::common::LAYOUT_SIZE }>()
            .map_or_else(Common::default, Common::read)
    }

    /// Returns the packet as a value, and its payload.
    ///
    /// # Errors
    /// None for packets that [`super::Packet::parse`] has returned.
    pub fn read(&self) -> Result<(Message, &'a [u8]), WireError> {
        Message::read(self.kind, self.body)
    }
}
