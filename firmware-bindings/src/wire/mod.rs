//! Packet formats.
//!
//! Every packet consists of a common header, the fields of its kind, for DATA and START the payload, and a CRC-32C over all of that. All
//! integers are little-endian. Byte offsets are in [`crate::generated::layout`]; tables are in `map/ni.md`.
//!
//! | Kind | Meaning | Bytes without payload |
//! ---|---|---|
//! | DATA | a packet of a segment | 60 |
//! | START | the first packet of a segment, with the fields that the registry needs | 92 |
//! | ACK, NACK | one packet is in memory; one packet was refused | 40 |
//! | SEGMENT_DONE | all packets of a segment are in memory | 36 |
//! | ARRIVED | the sender reports that a transfer is complete | 52 |
//! | HELLO, HELLO_REPLY | capabilities of a node | 36 |
//! | MESSAGE_REQUEST | asks for a receive context for a message | 76 |
//! | MESSAGE_DATA, MESSAGE_START | a packet of a message; with the description that begins it | 40, 88 |
//! | MESSAGE_ANSWER, MESSAGE_MAP | answer of a message's receiver; with bitmaps | 44, 76 |
//! | READ_REQUEST | asks a node to write a part of its memory to the requesting node | 68 |
//! | LINK_INQUIRY, LINK_SLOW | asks hops for the load of their links; asks a sender to send less | 24 |
//! | LINK_PASSIVE, LINK_ACTIVE | a hop's answer; a congested link | 36 |
//!
//! The rows from MESSAGE_REQUEST on belong to the message schemes ([`Message`]); these packets only go to a node whose HELLO names the
//! scheme. The last two rows are link feedback ([`LinkPacket`]).
//!
//! # Two levels
//!
//! [`Packet::parse`] checks bytes. It returns a *view* of DATA and START packets that borrows them ([`Data`]), so that a payload is copied
//! only once, to its memory, and *values* for the small packets ([`Control`]). [`DataHeader`] is the value of a DATA or START packet
//! without its payload. Values are encoded into the caller's buffer. Nothing allocates.
//!
//! # No panic, and what a successful parse means
//!
//! `parse` accepts any bytes. If it succeeds, the length is exactly the packet's, the checksum is right, every enum and flag is known,
//! reserved fields are 0, no address range wraps, the payload fits the packet size, and a START packet's segment is consistent with itself
//! and with its transfer ([`crate::geometry`]). No accessor of a parsed packet panics or can read outside the bytes: views hold arrays
//! whose length is part of their type, and offsets are checked at compile time. Not checked, because only the receiver can: keys, memory
//! windows, whether a segment is expected, and whether a DATA packet (which does not contain its segment's start) lies in its segment.
//!
//! Encoding makes the same checks and refuses every packet that parsing would refuse. A packet buffer holds exactly one packet: link
//! padding must be removed first.
//!
//! # Order of the checks
//!
//! Length, checksum, version, kind, fields. A failure after the checksum means that the packet was *sent* that way, by a peer with a
//! different protocol; a failure up to the checksum means that the network damaged it. Receivers count the two separately
//! ([`WireError::is_damage`]).

#![warn(clippy::indexing_slicing)]

mod control;
mod data;
mod error;
mod link;
mod message;
mod notes;

pub use control::{Ack, Arrived, Control, Hello, Nack, SegmentDone};
pub use data::{Data, DataHeader, SegmentName, StartFields};
pub use error::{EncodeError, WireError};
pub use link::{LinkFeedback, LinkLoad, LinkPacket};
pub use message::{
    Announcement, AnswerBody, MESSAGE_PACKETS_MAX, Message, MessageAnswer, MessageBytes, MessageHeader,
    MessageRequest, ReadRequest, SENDERS_MAX,
};

pub use notes::AnswerNotes;

pub use crate::generated::{Flags, LINK_WHOLE, NackReason, PacketKind, WIRE_VERSION};

use crate::bytes::{ByteImage, u8_at, u32_at};
use crate::crc::{crc32c, crc32c_after};
use crate::generated::layout::{ack, arrived, common, data as data_at, hello, segment_done, start};
use crate::generated::{PACKET_SIZE_LOG2_MAX, layout};
use crate::ids::{Incarnation, NodeId};

/// Length of the checksum at the end of every packet, in bytes.
pub const CRC_LENGTH: usize = 4;

/// Length of a DATA packet before its payload, in bytes.
pub const DATA_HEADER_LENGTH: usize = layout::data::LAYOUT_SIZE;

/// Length of a START packet before its payload, in bytes.
pub const START_HEADER_LENGTH: usize = layout::start::LAYOUT_SIZE;

/// Maximum length of a packet in bytes: a START packet with the largest payload. A buffer of this size holds any packet.
pub const MAX_PACKET_LENGTH: usize = START_HEADER_LENGTH + (1 << PACKET_SIZE_LOG2_MAX) + CRC_LENGTH;

/// Maximum length of a packet without payload, in bytes.
pub const MAX_CONTROL_LENGTH: usize = layout::arrived::LAYOUT_SIZE + CRC_LENGTH;

/// Common header fields, without version and kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Common {
    /// Node that sends the packet; for an acknowledgement, the receiver of the data.
    pub source: NodeId,
    /// Node that the packet is addressed to.
    pub destination: NodeId,
    /// Incarnation of `source`.
    pub incarnation: Incarnation,
    /// Flags of the segment, and [`Flags::TRIMMED`], in DATA and START. MESSAGE_REQUEST and MESSAGE_START may carry [`Flags::NO_NOTICE`], answers
    /// [`Flags::ECHO`], reports of links [`Flags::LAST_HOP`], and all packets [`Flags::MARKED`].
    pub flags: Flags,
    /// Path identifier: switches that choose between equal routes hash it. Answers repeat it, and link packets have that of the packet
    /// that they are about.
    pub path: u8,
}

impl Common {
    /// Common header of an answer to this packet: with its path, its mark as [`Flags::ECHO`], and incarnation 0, which the answering
    /// node replaces.
    #[must_use]
    pub const fn answer(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            incarnation: Incarnation::new(0),
            flags: if self.flags.contains(Flags::MARKED) { Flags::ECHO } else { Flags::NONE },
            path: self.path,
        }
    }

    #[inline]
    fn check(&self, kind: PacketKind) -> Result<(), WireError> {
        let allowed = Flags::MARKED.with(match kind {
            PacketKind::Data | PacketKind::Start => SEGMENT_FLAGS.with(Flags::TRIMMED),
            PacketKind::MessageRequest | PacketKind::MessageStart => Flags::NO_NOTICE,
            PacketKind::Ack | PacketKind::Nack | PacketKind::MessageAnswer | PacketKind::MessageMap => {
                Flags::ECHO
            }
            PacketKind::LinkPassive | PacketKind::LinkActive | PacketKind::LinkSlow => Flags::LAST_HOP,
            _ => Flags::NONE,
        });
        if !allowed.contains(self.flags) || contradicts(self.flags) {
            return Err(WireError::Flags { kind, found: self.flags });
        }
        if self.source == NodeId::ANY || self.destination == NodeId::ANY {
            return Err(WireError::ReservedNode { from: self.source, to: self.destination });
        }
        Ok(())
    }

    /// Reads the common header at the start of a longer one.
    #[inline]
    fn read<const LENGTH: usize>(bytes: &[u8; LENGTH]) -> Self {
        Self {
            source: NodeId::new(u32_at::<{ common::SOURCE }, _>(bytes)),
            destination: NodeId::new(u32_at::<{ common::DESTINATION }, _>(bytes)),
            incarnation: Incarnation::new(u32_at::<{ common::INCARNATION }, _>(bytes)),
            flags: Flags::from_bits(u8_at::<{ common::FLAGS }, _>(bytes).into()),
            path: u8_at::<{ common::PATH }, _>(bytes),
        }
    }

    #[inline]
    fn put<const LENGTH: usize>(&self, kind: PacketKind, image: &mut ByteImage<LENGTH>) {
        image.put::<{ common::VERSION }, _>(WIRE_VERSION);
        image.put::<{ common::KIND }, _>(kind.value());
        // Bits beyond the low byte are refused by `check`.
        image.put::<{ common::FLAGS }, _>(self.flags.low_byte());
        image.put::<{ common::PATH }, _>(self.path);
        image.put::<{ common::SOURCE }, _>(self.source.get());
        image.put::<{ common::DESTINATION }, _>(self.destination.get());
        image.put::<{ common::INCARNATION }, _>(self.incarnation.get());
    }
}

/// Flags that describe a segment: those of a window header.
pub(crate) const SEGMENT_FLAGS: Flags = Flags::SILENT.with(Flags::NOTIFY_RECEIVER).with(Flags::NO_NOTICE);

impl Flags {
    #[expect(clippy::cast_possible_truncation, reason = "a packet's flags are its low byte")]
    pub(crate) const fn low_byte(self) -> u8 {
        self.bits() as u8
    }
}

/// Marks a packet as a switch with a long queue does: sets [`Flags::MARKED`] and renews the checksum. Returns whether the packet was
/// marked: bytes that are too short or damaged stay as they are.
pub fn mark(packet: &mut [u8]) -> bool {
    let Some((body, crc)) = packet.split_last_chunk_mut::<CRC_LENGTH>() else { return false };
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return false;
    }
    let Some(flags) =
        body.first_chunk_mut::<{ common::LAYOUT_SIZE }>().and_then(|head| head.get_mut(common::FLAGS))
    else {
        return false;
    };
    *flags |= Flags::MARKED.low_byte();
    *crc = crc32c(body).to_le_bytes();
    true
}

/// Cuts off the payload of a DATA or START packet as a switch with a full queue does: sets [`Flags::TRIMMED`] and a payload length of 0, and
/// renews the checksum. Returns the new length of the packet; `None` for bytes that are not such a packet, which stay as they are.
pub fn trim(packet: &mut [u8]) -> Option<usize> {
    let Ok(Packet::Data(data)) = Packet::parse(packet) else { return None };
    let header = data.header();
    let common = Common { flags: header.common.flags.with(Flags::TRIMMED), ..header.common };
    DataHeader { common, ..header }.encode(&[], packet).ok()
}

/// Whether the flags ask both for a notification by the receiver and for no notification.
pub(crate) const fn contradicts(flags: Flags) -> bool {
    flags.contains(Flags::NOTIFY_RECEIVER.with(Flags::NO_NOTICE))
}

/// A checked packet.
///
/// Exhaustive on purpose: a further kind means another wire version, and every handler of packets must then handle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// DATA or START: a view of the bytes.
    Data(Data<'a>),
    /// Any other packet of the registry scheme: a value.
    Control(Control),
    /// A packet of a message scheme. It is a view that is parsed again when it is read: the value of its longest kind would make every
    /// packet of the registry scheme move more bytes.
    Message(MessageBytes<'a>),
    /// A link feedback packet: a value.
    Link(LinkPacket),
}

/// Length of header and fields, without payload and checksum.
const fn header_length(kind: PacketKind) -> usize {
    match kind {
        PacketKind::Data => data_at::LAYOUT_SIZE,
        PacketKind::Start => start::LAYOUT_SIZE,
        PacketKind::Ack | PacketKind::Nack => ack::LAYOUT_SIZE,
        PacketKind::SegmentDone => segment_done::LAYOUT_SIZE,
        PacketKind::Arrived => arrived::LAYOUT_SIZE,
        PacketKind::Hello | PacketKind::HelloReply => hello::LAYOUT_SIZE,
        PacketKind::MessageRequest => layout::message_request::LAYOUT_SIZE,
        PacketKind::MessageData => layout::message_data::LAYOUT_SIZE,
        PacketKind::MessageStart => layout::message_start::LAYOUT_SIZE,
        PacketKind::MessageAnswer => layout::message_answer::LAYOUT_SIZE,
        PacketKind::MessageMap => layout::message_map::LAYOUT_SIZE,
        PacketKind::ReadRequest => layout::read_request::LAYOUT_SIZE,
        PacketKind::LinkInquiry => layout::link_inquiry::LAYOUT_SIZE,
        PacketKind::LinkPassive => layout::link_passive::LAYOUT_SIZE,
        PacketKind::LinkActive => layout::link_active::LAYOUT_SIZE,
        PacketKind::LinkSlow => layout::link_slow::LAYOUT_SIZE,
    }
}

impl<'a> Packet<'a> {
    /// Checks `bytes`, which must be exactly one packet.
    ///
    /// # Errors
    ///
    /// The first broken rule, in the order given in the [module](self).
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, WireError> {
        let needed = common::LAYOUT_SIZE + CRC_LENGTH;
        let Some((body, crc)) = bytes.split_last_chunk::<CRC_LENGTH>() else {
            return Err(WireError::TooShort { length: bytes.len(), needed });
        };
        let Some(head) = body.first_chunk::<{ common::LAYOUT_SIZE }>() else {
            return Err(WireError::TooShort { length: bytes.len(), needed });
        };
        let (found, computed) = (u32::from_le_bytes(*crc), crc32c(body));
        if found != computed {
            return Err(WireError::Checksum { found, computed });
        }
        let kind = checked_kind(head)?;
        match kind {
            PacketKind::Data | PacketKind::Start => Data::parse(kind, body).map(Self::Data),
            PacketKind::MessageRequest
            | PacketKind::MessageData
            | PacketKind::MessageStart
            | PacketKind::MessageAnswer
            | PacketKind::MessageMap
            | PacketKind::ReadRequest => MessageBytes::parse(kind, body).map(Self::Message),
            PacketKind::LinkInquiry
            | PacketKind::LinkPassive
            | PacketKind::LinkActive
            | PacketKind::LinkSlow => LinkPacket::parse(kind, body).map(Self::Link),
            _ => Control::parse(kind, body).map(Self::Control),
        }
    }

    /// Kind of the packet.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Data(data) => data.kind(),
            Self::Control(control) => control.kind(),
            Self::Message(message) => message.kind(),
            Self::Link(packet) => packet.kind(),
        }
    }

    /// The common header.
    #[must_use]
    pub fn common(&self) -> Common {
        match self {
            Self::Data(data) => data.common(),
            Self::Control(control) => control.common(),
            Self::Message(message) => message.common(),
            Self::Link(packet) => packet.common,
        }
    }
}

/// Kind of a packet whose version and common header are correct.
#[inline]
fn checked_kind(head: &[u8; common::LAYOUT_SIZE]) -> Result<PacketKind, WireError> {
    let version = u8_at::<{ common::VERSION }, _>(head);
    if version != WIRE_VERSION {
        return Err(WireError::Version { found: version, supported: WIRE_VERSION });
    }
    let found = u8_at::<{ common::KIND }, _>(head);
    let kind = PacketKind::try_from(found).map_err(|_| WireError::Kind { found })?;
    Common::read(head).check(kind)?;
    Ok(kind)
}

/// Returns the checksum of a packet whose header and payload are not contiguous.
#[must_use]
#[inline]
pub fn checksum_apart(header: &[u8], payload: &[u8]) -> [u8; CRC_LENGTH] {
    crc32c_after(crc32c(header), payload).to_le_bytes()
}

/// Whole header of a packet without payload, or the error with the expected length.
fn exact<const LENGTH: usize>(kind: PacketKind, body: &[u8]) -> Result<&[u8; LENGTH], WireError> {
    body.try_into().map_err(|_| WireError::Length {
        kind,
        expected: LENGTH + CRC_LENGTH,
        found: body.len() + CRC_LENGTH,
    })
}

/// Second step of two-step encoding: writes the checksum after the first `length` bytes of `buffer`, which are header and payload. Returns
/// the packet's length.
///
/// # Errors
///
/// [`EncodeError::BufferTooSmall`] if the checksum does not fit.
#[inline]
pub fn finish(buffer: &mut [u8], length: usize) -> Result<usize, EncodeError> {
    let available = buffer.len();
    let body = buffer
        .get(..length)
        .ok_or(EncodeError::BufferTooSmall { needed: length.saturating_add(CRC_LENGTH), available })?;
    let crc = crc32c(body);
    seal(buffer, length, crc)
}

/// Length in bytes from which the checksum of a payload is computed apart from that of its header.
const LONG_PAYLOAD: usize = 512;

/// Like [`finish`], for a body that is a header of `header_length` bytes and a copy of `payload`. The checksum of a long payload is
/// computed from the original: the copy's stores are still pending, and a processor that loads across them waits.
#[inline]
fn finish_copy(buffer: &mut [u8], header_length: usize, payload: &[u8]) -> Result<usize, EncodeError> {
    let length = header_length + payload.len();
    match buffer.get(..header_length) {
        Some(header) if payload.len() >= LONG_PAYLOAD => {
            seal(buffer, length, crc32c_after(crc32c(header), payload))
        }
        _ => finish(buffer, length),
    }
}

/// Writes `crc` after the first `length` bytes.
#[inline]
fn seal(buffer: &mut [u8], length: usize, crc: u32) -> Result<usize, EncodeError> {
    let available = buffer.len();
    let needed = length.saturating_add(CRC_LENGTH);
    let place = buffer
        .get_mut(length..needed)
        .and_then(|rest| rest.first_chunk_mut::<CRC_LENGTH>())
        .ok_or(EncodeError::BufferTooSmall { needed, available })?;
    *place = crc.to_le_bytes();
    Ok(needed)
}
