//! DATA and START packets.

use fpga_registers::CardAddr;

use super::{
    CRC_LENGTH, Common, DATA_HEADER_LENGTH, EncodeError, Flags, PacketKind, START_HEADER_LENGTH, WireError,
};
use crate::bytes::{ByteImage, u8_at, u16_at, u32_at, u64_at};
use crate::generated::layout::{common, data as at, start};
use crate::geometry::{Geometry, check_index, packet_size, range_end};
use crate::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};

/// View of a checked DATA or START packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data<'a> {
    head: &'a [u8; DATA_HEADER_LENGTH],
    /// The whole header of a START packet.
    start: Option<&'a [u8; START_HEADER_LENGTH]>,
    payload: &'a [u8],
}

/// Key of the segment of a packet, unique among all segments of all senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SegmentName {
    /// The sending node.
    pub source: NodeId,
    /// Incarnation of the sending node.
    pub incarnation: Incarnation,
    /// Transfer of the sending node.
    pub transfer: TransferId,
    /// Segment within the transfer.
    pub segment: SegmentIndex,
}

impl SegmentName {
    /// Reads the key from the bytes of a DATA or START packet without checks. Use it only to prefetch what the result of
    /// [`super::Packet::parse`] will need. Returns `None` for other kinds and for less than a header.
    #[inline]
    #[must_use]
    pub fn peek(bytes: &[u8]) -> Option<Self> {
        let head: &[u8; DATA_HEADER_LENGTH] = bytes.first_chunk()?;
        let kind = PacketKind::try_from(u8_at::<{ common::KIND }, _>(head)).ok()?;
        if !matches!(kind, PacketKind::Data | PacketKind::Start) {
            return None;
        }
        let Common { source, incarnation, .. } = Common::read(head);
        let transfer = TransferId::new(u32_at::<{ at::TRANSFER }, _>(head));
        Some(Self { source, incarnation, transfer, segment: u32_at::<{ at::SEGMENT }, _>(head) })
    }
}

/// A DATA or START packet without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataHeader {
    /// Common header, with source and destination.
    pub common: Common,
    /// The transfer.
    pub transfer: TransferId,
    /// The sender's oldest transfer that is not complete (erratum E1-4: bounds the tombstones).
    pub oldest_live: TransferId,
    /// Index of the segment.
    pub segment: SegmentIndex,
    /// Segments of the transfer.
    pub segment_count: u32,
    /// Destination of the payload's first byte.
    pub address: CardAddr,
    /// Key of the destination's memory window.
    pub key: u64,
    /// Op number; echoed in the acknowledgement.
    pub op: OpNumber,
    /// Try count; echoed in the acknowledgement.
    pub tries: u8,
    /// Payload bytes of a full packet, as a power of two: 6 to 12.
    pub packet_size_log2: u8,
    /// Additional fields of a START packet; `None` makes a DATA packet.
    pub start: Option<StartFields>,
}

/// Additional fields of a START packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StartFields {
    /// Destination of the segment's first byte; equals the packet's address.
    pub base: CardAddr,
    /// Length of the segment in bytes.
    pub segment_length: u32,
    /// Number of packets of the segment, 1 to 256.
    pub packets: u16,
    /// Destination of the transfer's first byte.
    pub transfer_base: CardAddr,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
}

impl DataHeader {
    /// START or DATA.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        if self.start.is_some() { PacketKind::Start } else { PacketKind::Data }
    }

    /// Length of the header in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        if self.start.is_some() { START_HEADER_LENGTH } else { DATA_HEADER_LENGTH }
    }

    /// Index of the packet within a segment that starts at `base`. `None` if the packet is not on a packet boundary of the segment or
    /// starts before it.
    #[must_use]
    #[inline]
    pub fn packet_index(&self, base: CardAddr) -> Option<u64> {
        packet_index(self.address, base, self.packet_size_log2)
    }

    /// Checks the rules that sending and receiving share.
    #[inline(always)]
    fn check(&self, payload_length: usize) -> Result<(), WireError> {
        let packet_size = packet_size(self.packet_size_log2)?;
        let refused = WireError::PayloadLength { length: payload_length, packet_size };
        let length = u32::try_from(payload_length).map_err(|_| refused)?;
        let trimmed = self.common.flags.contains(Flags::TRIMMED);
        if (length == 0) != trimmed || length > packet_size {
            return Err(refused);
        }
        check_index(self.segment, self.segment_count)?;
        range_end(self.address, length.into())?;
        if self.transfer.is_older_than(self.oldest_live) {
            return Err(WireError::OldestLive { transfer: self.transfer, oldest_live: self.oldest_live });
        }
        match self.start {
            None => Ok(()),
            Some(start) => check_start(self.address, length, packet_size, &self.geometry(start)),
        }
    }

    #[inline]
    fn geometry(&self, start: StartFields) -> Geometry {
        Geometry {
            packet_size_log2: self.packet_size_log2,
            packets: start.packets,
            segment: self.segment,
            segment_count: self.segment_count,
            base: start.base,
            segment_length: start.segment_length,
            transfer_base: start.transfer_base,
            transfer_length: start.transfer_length,
        }
    }

    /// Encodes the packet with this payload. Returns its length.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BufferTooSmall`], or [`EncodeError::Invalid`] for a packet that [`super::Packet::parse`] would refuse.
    #[inline]
    pub fn encode(&self, payload: &[u8], buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let at = self.encode_header(payload.len(), buffer)?;
        let end = at + payload.len();
        let Some(place) = buffer.get_mut(at..end) else {
            // Unreachable: the first step has checked the buffer's length.
            return Err(EncodeError::BufferTooSmall { needed: end + CRC_LENGTH, available: buffer.len() });
        };
        place.copy_from_slice(payload);
        super::finish_copy(buffer, at, payload)
    }

    /// Writes the header and returns its length, which is the offset of the payload. This is the first step of two-step encoding, for a
    /// payload that is written to its place separately. The second step is [`super::finish`] with the sum of both lengths.
    ///
    /// # Errors
    ///
    /// [`EncodeError::BufferTooSmall`] unless header, payload and checksum fit; [`EncodeError::Invalid`] for a packet that
    /// [`super::Packet::parse`] would refuse.
    #[inline]
    pub fn encode_header(&self, payload_length: usize, buffer: &mut [u8]) -> Result<usize, EncodeError> {
        let needed = self.length() + payload_length + CRC_LENGTH;
        self.write_header(payload_length, needed, buffer)
    }

    /// Writes the header alone to `head`, for a payload that is sent from where it is. Returns the header's length, and the checksum that
    /// follows the payload.
    ///
    /// # Errors
    ///
    /// As for [`encode`](Self::encode).
    #[inline]
    pub fn encode_apart(
        &self,
        payload: &[u8],
        head: &mut [u8; START_HEADER_LENGTH],
    ) -> Result<(usize, [u8; CRC_LENGTH]), EncodeError> {
        let length = self.write_header(payload.len(), self.length(), head)?;
        let header = head.get(..length).unwrap_or_default();
        Ok((length, super::checksum_apart(header, payload)))
    }

    /// Reads the header of a DATA or START packet of `packet_length` bytes from its first bytes, for a payload that stays where it is. Makes
    /// all checks of [`super::Packet::parse`] but that of the checksum ([`super::checksum_apart`]); `None` if one fails, and for other packets.
    #[must_use]
    pub fn parse_apart(bytes: &[u8], packet_length: usize) -> Option<Self> {
        let kind = super::checked_kind(bytes.first_chunk()?).ok()?;
        if !matches!(kind, PacketKind::Data | PacketKind::Start) {
            return None;
        }
        let bytes = bytes.get(..super::header_length(kind))?;
        let payload_length = packet_length.checked_sub(bytes.len() + CRC_LENGTH)?;
        let data = Data::of_header(kind, bytes, payload_length).ok()?;
        let header = data.header();
        header.check(payload_length).ok()?;
        Some(header)
    }

    /// Writes the header to a buffer of at least `needed` bytes.
    #[inline(always)]
    fn write_header(
        &self,
        payload_length: usize,
        needed: usize,
        buffer: &mut [u8],
    ) -> Result<usize, EncodeError> {
        self.common.check(self.kind())?;
        self.check(payload_length)?;
        let available = buffer.len();
        let too_small = EncodeError::BufferTooSmall { needed, available };
        if available < needed {
            return Err(too_small);
        }
        if let Some(fields) = &self.start {
            let mut image = ByteImage::new();
            self.put(payload_length, &mut image);
            image.put::<{ start::BASE }, _>(fields.base.get());
            image.put::<{ start::SEGMENT_LENGTH }, _>(fields.segment_length);
            image.put::<{ start::PACKETS }, _>(fields.packets);
            image.put::<{ start::TRANSFER_BASE }, _>(fields.transfer_base.get());
            image.put::<{ start::TRANSFER_LENGTH }, _>(fields.transfer_length);
            image.store(buffer.first_chunk_mut::<START_HEADER_LENGTH>().ok_or(too_small)?);
        } else {
            let mut image = ByteImage::new();
            self.put(payload_length, &mut image);
            image.store(buffer.first_chunk_mut::<DATA_HEADER_LENGTH>().ok_or(too_small)?);
        }
        Ok(self.length())
    }

    #[inline]
    fn put<const LENGTH: usize>(&self, payload_length: usize, image: &mut ByteImage<LENGTH>) {
        self.common.put(self.kind(), image);
        image.put::<{ at::TRANSFER }, _>(self.transfer.get());
        image.put::<{ at::OLDEST_LIVE }, _>(self.oldest_live.get());
        image.put::<{ at::SEGMENT }, _>(self.segment);
        image.put::<{ at::SEGMENT_COUNT }, _>(self.segment_count);
        image.put::<{ at::ADDRESS }, _>(self.address.get());
        image.put::<{ at::KEY }, _>(self.key);
        image.put::<{ at::OP }, _>(self.op.get());
        #[expect(clippy::cast_possible_truncation, reason = "checked: at most 4096")]
        image.put::<{ at::PAYLOAD_LENGTH }, _>(payload_length as u16);
        image.put::<{ at::TRIES }, _>(self.tries);
        image.put::<{ at::PACKET_SIZE_LOG2 }, _>(self.packet_size_log2);
    }
}

/// Checks the additional rules of a START packet with `length` payload bytes. Not inlined, because a segment has only one START packet.
#[inline(never)]
fn check_start(
    address: CardAddr,
    length: u32,
    packet_size: u32,
    geometry: &Geometry,
) -> Result<(), WireError> {
    if address != geometry.base {
        return Err(WireError::StartAddress { address, base: geometry.base });
    }
    let expected = geometry.segment_length.min(packet_size);
    // If it is empty, a switch has cut it off.
    if length != expected && length != 0 {
        let found = length as usize;
        return Err(WireError::StartPayload { found, expected, segment: geometry.segment });
    }
    Ok(geometry.check()?)
}

fn packet_index(address: CardAddr, base: CardAddr, packet_size_log2: u8) -> Option<u64> {
    let distance = address.get().checked_sub(base.get())?;
    let index = distance.checked_shr(packet_size_log2.into())?;
    (index << packet_size_log2 == distance).then_some(index)
}

impl<'a> Data<'a> {
    /// Parses a packet without its checksum.
    // Inlined always: otherwise the compiler calls it and moves the result through memory twice.
    #[inline(always)]
    pub(super) fn parse(kind: PacketKind, body: &'a [u8]) -> Result<Self, WireError> {
        let header_length = super::header_length(kind);
        let Some((header, payload)) = body.split_at_checked(header_length) else {
            let found = body.len() + CRC_LENGTH;
            return Err(WireError::Length { kind, expected: header_length + CRC_LENGTH, found });
        };
        let data = Self { payload, ..Self::of_header(kind, header, payload.len())? };
        data.header().check(payload.len())?;
        Ok(data)
    }

    /// View of a header whose packet has `payload_length` bytes of payload.
    #[inline(always)]
    fn of_header(kind: PacketKind, header: &'a [u8], payload_length: usize) -> Result<Self, WireError> {
        let wrong = |expected| WireError::Length {
            kind,
            expected: header.len() + expected + CRC_LENGTH,
            found: header.len() + payload_length + CRC_LENGTH,
        };
        let head = header.first_chunk().ok_or(wrong(0))?;
        let start = match kind {
            PacketKind::Start => header.first_chunk(),
            _ => None,
        };
        let expected: usize = u16_at::<{ at::PAYLOAD_LENGTH }, _>(head).into();
        if payload_length != expected {
            return Err(wrong(expected));
        }
        if start.is_some_and(|head| u16_at::<{ start::RESERVED }, _>(head) != 0) {
            return Err(WireError::Reserved { kind });
        }
        Ok(Self { head, start, payload: &[] })
    }

    /// START or DATA.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> PacketKind {
        if self.start.is_some() { PacketKind::Start } else { PacketKind::Data }
    }

    /// The common header.
    #[must_use]
    #[inline]
    pub fn common(&self) -> Common {
        Common::read(self.head)
    }

    /// The transfer.
    #[must_use]
    #[inline]
    pub fn transfer(&self) -> TransferId {
        TransferId::new(u32_at::<{ at::TRANSFER }, _>(self.head))
    }

    /// The sender's oldest transfer that is not complete; not newer than [`Data::transfer`].
    #[must_use]
    #[inline]
    pub fn oldest_live(&self) -> TransferId {
        TransferId::new(u32_at::<{ at::OLDEST_LIVE }, _>(self.head))
    }

    /// Index of the segment; below [`Data::segment_count`].
    #[must_use]
    #[inline]
    pub fn segment(&self) -> SegmentIndex {
        u32_at::<{ at::SEGMENT }, _>(self.head)
    }

    /// Segments of the transfer.
    #[must_use]
    #[inline]
    pub fn segment_count(&self) -> u32 {
        u32_at::<{ at::SEGMENT_COUNT }, _>(self.head)
    }

    /// Destination of the payload's first byte. Address + payload length does not wrap.
    #[must_use]
    #[inline]
    pub fn address(&self) -> CardAddr {
        CardAddr::new(u64_at::<{ at::ADDRESS }, _>(self.head))
    }

    /// Key of the destination's memory window.
    #[must_use]
    #[inline]
    pub fn key(&self) -> u64 {
        u64_at::<{ at::KEY }, _>(self.head)
    }

    /// Op number, to be echoed.
    #[must_use]
    #[inline]
    pub fn op(&self) -> OpNumber {
        OpNumber::new(u32_at::<{ at::OP }, _>(self.head))
    }

    /// Try count, to be echoed.
    #[must_use]
    #[inline]
    pub fn tries(&self) -> u8 {
        u8_at::<{ at::TRIES }, _>(self.head)
    }

    /// Payload bytes of a full packet, as a power of two: 6 to 12.
    #[must_use]
    #[inline]
    pub fn packet_size_log2(&self) -> u8 {
        u8_at::<{ at::PACKET_SIZE_LOG2 }, _>(self.head)
    }

    /// Index of the packet within a segment that starts at `base`; as [`DataHeader::packet_index`].
    #[must_use]
    #[inline]
    pub fn packet_index(&self, base: CardAddr) -> Option<u64> {
        packet_index(self.address(), base, self.packet_size_log2())
    }

    /// Additional fields of a START packet; `None` for DATA.
    #[must_use]
    #[inline]
    pub fn start(&self) -> Option<StartFields> {
        self.start.map(|head| StartFields {
            base: CardAddr::new(u64_at::<{ start::BASE }, _>(head)),
            segment_length: u32_at::<{ start::SEGMENT_LENGTH }, _>(head),
            packets: u16_at::<{ start::PACKETS }, _>(head),
            transfer_base: CardAddr::new(u64_at::<{ start::TRANSFER_BASE }, _>(head)),
            transfer_length: u64_at::<{ start::TRANSFER_LENGTH }, _>(head),
        })
    }

    /// Payload: 1 byte to the packet size; empty if a switch has cut it off ([`Flags::TRIMMED`]).
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Header of the packet as a value.
    #[must_use]
    #[inline(always)]
    pub fn header(&self) -> DataHeader {
        DataHeader {
            common: self.common(),
            transfer: self.transfer(),
            oldest_live: self.oldest_live(),
            segment: self.segment(),
            segment_count: self.segment_count(),
            address: self.address(),
            key: self.key(),
            op: self.op(),
            tries: self.tries(),
            packet_size_log2: self.packet_size_log2(),
            start: self.start(),
        }
    }
}
