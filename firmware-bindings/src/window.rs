//! Header block of a transmit window: what the NI sends, and in which packets.
//!
//! A window is RAM in the card's address space: this header at its start, after it the op numbers of its packets and, if they take
//! different paths, their path identifiers, the payload at WINDOW_PAYLOAD_OFFSET, the commit word at WINDOW_COMMIT_OFFSET. Writing a nonzero
//! commit word starts the transmission. The NI accepts the header only if its sequence equals the commit word, so that a stale or
//! half-written header is detected. A retransmission is a window with one packet.
//!
//! This file is longer than most: encoding, decoding and the checks of both concern the same fields.

#![warn(clippy::indexing_slicing)]

use core::ops::Range;

use fpga_registers::{CardAddr, quantity};

use crate::bytes::{put_u8, put_u16, put_u32, put_u64, u8_at, u16_at, u32_at, u64_at};
pub use crate::generated::WindowKind;
use crate::generated::layout::window_header as at;
use crate::generated::{Flags, LINK_WHOLE, SEGMENT_PACKETS_MAX, Scheme};
use crate::geometry::{Geometry, GeometryError, range_end};
use crate::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use crate::wire::{Arrived, Common, DataHeader, LinkFeedback, LinkLoad, LinkPacket, StartFields};

/// Length of the header in bytes, without the lists of op numbers and path identifiers.
pub const HEADER_LENGTH: usize = at::LAYOUT_SIZE;

/// Maximum length of a header block in bytes: with 256 op numbers and path identifiers.
pub const MAX_HEADER_BLOCK: usize = HEADER_LENGTH + 5 * SEGMENT_PACKETS_MAX as usize;

/// Header of a transmit window, without the lists of op numbers and path identifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WindowHeader {
    /// Sequence number, nonzero; the commit word must equal it.
    pub sequence: u32,
    /// Flags of the packets.
    pub flags: Flags,
    /// Destination node.
    pub destination: NodeId,
    /// Number of the transfer.
    pub transfer: TransferId,
    /// Number of the sender's oldest transfer that is not complete.
    pub oldest_live: TransferId,
    /// Index of the segment.
    pub segment: SegmentIndex,
    /// Number of segments of the transfer.
    pub segment_count: u32,
    /// Length of the whole segment in bytes.
    pub segment_length: u32,
    /// First byte of the segment at the destination; for a [`WindowKind::Command`], of the source.
    pub base: CardAddr,
    /// Key of the destination's memory window.
    pub key: u64,
    /// First byte of the transfer at the destination.
    pub transfer_base: CardAddr,
    /// Length of the transfer in bytes.
    pub transfer_length: u64,
    /// Index within the segment of the window's first packet, whose first byte is the payload's first byte.
    pub first_packet: u16,
    /// Number of packets to send from this window, each with its op number. 0 for all kinds except [`WindowKind::Data`].
    pub packet_count: u16,
    /// Payload bytes of a full packet, as a power of two.
    pub packet_size_log2: u8,
    /// Packets of a segment, a notice of arrival, or a whole transfer.
    pub kind: WindowKind,
    /// Number of packets of the whole segment.
    pub segment_packets: u16,
    /// Try count of the packets.
    pub tries: u8,
    /// Path identifier of the packets; with `path_list`, of none.
    pub path: u8,
    /// Whether each packet has a path identifier of its own, in a list after the op numbers. Only for [`WindowKind::Data`].
    pub path_list: bool,
    /// Fields that only a [`WindowKind::Command`] has; for other kinds, [`CommandFields::NONE`].
    pub command: CommandFields,
    /// Fields that only a [`WindowKind::LinkInquiry`] or a [`WindowKind::LinkActive`] has; for other kinds, [`LinkFields::NONE`].
    pub link: LinkFields,
}

/// Fields of the kinds with one link packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct LinkFields {
    /// Number of the inquiry, or of the link.
    pub number: u32,
    /// [`WindowKind::LinkActive`]: node that this node sends to.
    pub receiver: u32,
    /// [`WindowKind::LinkActive`]: rate of the link, at most [`LINK_WHOLE`].
    pub rate: u16,
    /// [`WindowKind::LinkActive`]: fill level of the link's queue, at most [`LINK_WHOLE`].
    pub queue: u16,
}

impl LinkFields {
    /// Value for windows of other kinds.
    pub const NONE: Self = Self { number: 0, receiver: 0, rate: 0, queue: 0 };
}

/// Fields of a [`WindowKind::Command`] besides source, destination and length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CommandFields {
    /// Number that the events about the transfer repeat.
    pub number: u32,
    /// Priority: served before waiting commands of a lower number.
    pub priority: u8,
    /// Nanoseconds after which the transfer is given up regardless of its progress; 0: no limit.
    pub timeout_ns: u64,
    /// Scheme of the transfer, never the registry; `None`: the interface's default.
    pub scheme: Option<Scheme>,
}

impl CommandFields {
    /// Value for windows of other kinds.
    pub const NONE: Self = Self { number: 0, priority: 0, timeout_ns: 0, scheme: None };
}

/// Reason why a header block cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum WindowError {
    /// Header, op numbers or path identifiers do not fit into the buffer.
    #[error(
        "the header block needs {needed}, the buffer has {available}: provide MAX_HEADER_BLOCK",
        needed = quantity(*needed, "byte"),
    )]
    TooShort {
        /// Bytes needed.
        needed: usize,
        /// Bytes given.
        available: usize,
    },
    /// The sequence is 0, which no commit word can equal.
    #[error("window sequence 0 is not valid: count from 1, and skip 0 when the count wraps")]
    ZeroSequence,
    /// The commit word and the header differ.
    #[error(
        "commit word {commit} does not match the header's sequence number {sequence}: write the header completely before the commit"
    )]
    Torn {
        /// Word committed.
        commit: u32,
        /// Sequence of the header.
        sequence: u32,
    },
    /// A flag is not in the map.
    #[error(
        "window flags {found:#x} are not valid: leave reserved bits 0, and set at most one of NOTIFY_RECEIVER and NO_NOTICE"
    )]
    Flags {
        /// All flags found.
        found: u32,
    },
    /// Unknown window kind.
    #[error("unknown window kind {found}: give 0 (data), 1 (notice of arrival) or 2 (command)")]
    Kind {
        /// Number found.
        found: u8,
    },
    /// A command names a scheme for which the interface executes no transfers.
    #[error(
        "scheme {found} of a command is not valid: give 1 to 5 for a scheme that the interface executes, or 0 for its default"
    )]
    Scheme {
        /// Number found.
        found: u8,
    },
    /// The destination is not a node.
    #[error("the window's destination 0xffffffff is not a node: name one node")]
    Destination,
    /// A reserved byte is set.
    #[error("the window header has reserved bytes set: clear the block before filling it")]
    Reserved,
    /// The window's packets are not packets of its segment.
    #[error(
        "window of {count} from packet {first} is outside its segment of {segment_packets}: give at least one packet, within the segment",
        count = quantity(*count, "packet"),
    )]
    PacketRange {
        /// Index of the first packet.
        first: u16,
        /// Packets in the window.
        count: u16,
        /// Packets of the segment.
        segment_packets: u16,
    },
    /// The number of op numbers differs from the header's packet count.
    #[error("{given} op numbers for {count}: give one per packet", count = quantity(*count, "packet"))]
    OpCount {
        /// Op numbers given.
        given: usize,
        /// Packets in the window.
        count: u16,
    },
    /// PATHS is neither 0 nor 1.
    #[error("unknown form of path identifiers {found}: give 0 (one for all packets) or 1 (a list)")]
    Paths {
        /// Number found.
        found: u8,
    },
    /// The number of path identifiers differs from the header's packet count.
    #[error("{given} path identifiers for {count}: give one per packet", count = quantity(*count, "packet"))]
    PathCount {
        /// Path identifiers given.
        given: usize,
        /// Packets in the window.
        count: u16,
    },
    /// The transfer is older than the oldest live one.
    #[error("transfer {transfer} is older than the oldest live one, {oldest_live}: do not send it any more")]
    OldestLive {
        /// Transfer of the window.
        transfer: TransferId,
        /// Oldest live transfer.
        oldest_live: TransferId,
    },
    /// A link packet with an invalid receiver, or fractions above the whole.
    #[error(
        "link packet about receiver {receiver}, rate {rate}, queue {queue}: give a node, and fractions up to {LINK_WHOLE}"
    )]
    Link {
        /// Receiver found.
        receiver: u32,
        /// Rate found.
        rate: u16,
        /// Queue level found.
        queue: u16,
    },
    /// A notice of arrival or a command for an empty transfer.
    #[error("window for an empty transfer: do not send packets for it")]
    EmptyTransfer,
    /// The segment contradicts itself or its transfer.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
}

/// Op numbers of a window's packets, and their path identifiers if there is a list of them, in packet order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpNumbers<'a> {
    bytes: &'a [[u8; 4]],
    paths: &'a [u8],
}

impl OpNumbers<'_> {
    /// Number of op numbers: the header's packet count.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no op numbers, as in a notice of arrival.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Op number of the window's packet `index`.
    #[must_use]
    pub fn get(&self, index: u16) -> Option<OpNumber> {
        self.bytes.get(usize::from(index)).map(|bytes| OpNumber::new(u32::from_le_bytes(*bytes)))
    }

    /// Path identifiers of the packets. Empty without [`WindowHeader::path_list`].
    #[must_use]
    pub const fn paths(&self) -> &[u8] {
        self.paths
    }

    /// Iterates over the op numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = OpNumber> + '_ {
        self.bytes.iter().map(|bytes| OpNumber::new(u32::from_le_bytes(*bytes)))
    }
}

/// Number of the scheme; 0, which is never a valid scheme of a command (registry), stands for the default.
fn scheme_byte(scheme: Option<Scheme>) -> u8 {
    scheme.and_then(|scheme| u8::try_from(scheme.value()).ok()).unwrap_or(0)
}

impl WindowHeader {
    /// Length in bytes of the header with its op numbers and path identifiers, which must be written before the commit.
    #[must_use]
    pub const fn block_length(&self) -> usize {
        let paths = if self.path_list { (self.packet_count as usize).next_multiple_of(4) } else { 0 };
        self.path_list_offset() + paths
    }

    /// Offset of the path identifiers in the header block.
    #[must_use]
    pub const fn path_list_offset(&self) -> usize {
        HEADER_LENGTH + 4 * self.packet_count as usize
    }

    /// Commit word that starts this window.
    #[must_use]
    pub const fn commit_word(&self) -> [u8; 4] {
        self.sequence.to_le_bytes()
    }

    /// Checks a commit word against the header.
    ///
    /// # Errors
    ///
    /// [`WindowError::Torn`].
    pub const fn check_commit(&self, commit: u32) -> Result<(), WindowError> {
        if commit == self.sequence {
            Ok(())
        } else {
            Err(WindowError::Torn { commit, sequence: self.sequence })
        }
    }

    fn check(&self) -> Result<(), WindowError> {
        if self.sequence == 0 {
            return Err(WindowError::ZeroSequence);
        }
        if self.destination == NodeId::ANY {
            return Err(WindowError::Destination);
        }
        if !crate::wire::SEGMENT_FLAGS.contains(self.flags) || crate::wire::contradicts(self.flags) {
            return Err(WindowError::Flags { found: self.flags.bits().into() });
        }
        if self.kind != WindowKind::Command && self.command != CommandFields::NONE {
            return Err(WindowError::Reserved);
        }
        if self.kind != WindowKind::Data && self.path_list {
            return Err(WindowError::Reserved);
        }
        if self.command.scheme == Some(Scheme::Registry) {
            return Err(WindowError::Scheme { found: scheme_byte(self.command.scheme) });
        }
        match self.kind {
            WindowKind::LinkInquiry | WindowKind::LinkActive => return self.check_link(),
            _ if self.link != LinkFields::NONE => return Err(WindowError::Reserved),
            WindowKind::Data => {}
            WindowKind::Arrival | WindowKind::Command => return self.check_transfer(),
        }
        if self.transfer.is_older_than(self.oldest_live) {
            return Err(WindowError::OldestLive { transfer: self.transfer, oldest_live: self.oldest_live });
        }
        Geometry {
            packet_size_log2: self.packet_size_log2,
            packets: self.segment_packets,
            segment: self.segment,
            segment_count: self.segment_count,
            base: self.base,
            segment_length: self.segment_length,
            transfer_base: self.transfer_base,
            transfer_length: self.transfer_length,
        }
        .check()?;
        let beyond =
            u32::from(self.first_packet) + u32::from(self.packet_count) > self.segment_packets.into();
        if self.packet_count == 0 || beyond {
            return Err(self.packet_range());
        }
        Ok(())
    }

    /// Checks a link packet, whose transfer, segment and packet fields are ignored.
    const fn check_link(&self) -> Result<(), WindowError> {
        let LinkFields { receiver, rate, queue, .. } = self.link;
        if self.packet_count != 0 {
            return Err(self.packet_range());
        }
        let is_inquiry = matches!(self.kind, WindowKind::LinkInquiry);
        if is_inquiry && (receiver != 0 || rate != 0 || queue != 0) {
            return Err(WindowError::Reserved);
        }
        if receiver == NodeId::ANY.get() || rate > LINK_WHOLE || queue > LINK_WHOLE {
            return Err(WindowError::Link { receiver, rate, queue });
        }
        Ok(())
    }

    /// Checks a notice or a command, which concerns the transfer only: segment and packet fields are ignored.
    fn check_transfer(&self) -> Result<(), WindowError> {
        if self.packet_count != 0 {
            return Err(self.packet_range());
        }
        if self.transfer_length == 0 {
            return Err(WindowError::EmptyTransfer);
        }
        range_end(self.transfer_base, self.transfer_length)?;
        if self.kind == WindowKind::Command {
            range_end(self.base, self.transfer_length)?;
        }
        Ok(())
    }

    const fn packet_range(&self) -> WindowError {
        WindowError::PacketRange {
            first: self.first_packet,
            count: self.packet_count,
            segment_packets: self.segment_packets,
        }
    }

    /// Writes header, op numbers and path identifiers to the start of `buffer`. Returns the number of bytes written,
    /// [`WindowHeader::block_length`]. `paths` is ignored without [`WindowHeader::path_list`].
    ///
    /// # Errors
    ///
    /// The errors of [`WindowHeader::decode`], a buffer that is too short, [`WindowError::OpCount`] and [`WindowError::PathCount`]. Nothing
    /// is written on an error.
    pub fn encode(&self, ops: &[OpNumber], paths: &[u8], buffer: &mut [u8]) -> Result<usize, WindowError> {
        self.check()?;
        if ops.len() != usize::from(self.packet_count) {
            return Err(WindowError::OpCount { given: ops.len(), count: self.packet_count });
        }
        let paths = if self.path_list { paths } else { &[] };
        if self.path_list && paths.len() != ops.len() {
            return Err(WindowError::PathCount { given: paths.len(), count: self.packet_count });
        }
        let needed = self.block_length();
        let too_short = WindowError::TooShort { needed, available: buffer.len() };
        if buffer.len() < needed {
            return Err(too_short);
        }
        let (head, rest) = buffer.split_first_chunk_mut::<HEADER_LENGTH>().ok_or(too_short)?;
        *head = self.header_bytes();
        let words = ops.iter().map(|op| op.get().to_le_bytes());
        let padded = paths.chunks(4).map(|part| {
            let mut word = [0; 4];
            word.iter_mut().zip(part).for_each(|(byte, path)| *byte = *path);
            word
        });
        for (word, bytes) in rest.as_chunks_mut::<4>().0.iter_mut().zip(words.chain(padded)) {
            *word = bytes;
        }
        Ok(needed)
    }

    fn header_bytes(&self) -> [u8; HEADER_LENGTH] {
        let mut bytes = [0; HEADER_LENGTH];
        put_u32::<{ at::SEQUENCE }, _>(&mut bytes, self.sequence);
        put_u32::<{ at::FLAGS }, _>(&mut bytes, self.flags.bits().into());
        put_u32::<{ at::DESTINATION }, _>(&mut bytes, self.destination.get());
        put_u32::<{ at::TRANSFER }, _>(&mut bytes, self.transfer.get());
        put_u32::<{ at::OLDEST_LIVE }, _>(&mut bytes, self.oldest_live.get());
        put_u32::<{ at::SEGMENT }, _>(&mut bytes, self.segment);
        put_u32::<{ at::SEGMENT_COUNT }, _>(&mut bytes, self.segment_count);
        put_u32::<{ at::SEGMENT_LENGTH }, _>(&mut bytes, self.segment_length);
        put_u64::<{ at::BASE }, _>(&mut bytes, self.base.get());
        put_u64::<{ at::KEY }, _>(&mut bytes, self.key);
        put_u64::<{ at::TRANSFER_BASE }, _>(&mut bytes, self.transfer_base.get());
        put_u64::<{ at::TRANSFER_LENGTH }, _>(&mut bytes, self.transfer_length);
        put_u16::<{ at::FIRST_PACKET }, _>(&mut bytes, self.first_packet);
        put_u16::<{ at::PACKET_COUNT }, _>(&mut bytes, self.packet_count);
        put_u8::<{ at::PACKET_SIZE_LOG2 }, _>(&mut bytes, self.packet_size_log2);
        put_u8::<{ at::KIND }, _>(&mut bytes, self.kind.value());
        put_u16::<{ at::SEGMENT_PACKETS }, _>(&mut bytes, self.segment_packets);
        put_u8::<{ at::TRIES }, _>(&mut bytes, self.tries);
        put_u8::<{ at::PATH }, _>(&mut bytes, self.path);
        put_u8::<{ at::PATHS }, _>(&mut bytes, self.path_list.into());
        put_u8::<{ at::PRIORITY }, _>(&mut bytes, self.command.priority);
        put_u8::<{ at::SCHEME }, _>(&mut bytes, scheme_byte(self.command.scheme));
        put_u32::<{ at::COMMAND }, _>(&mut bytes, self.command.number);
        put_u64::<{ at::PATIENCE }, _>(&mut bytes, self.command.timeout_ns);
        put_u32::<{ at::NUMBER }, _>(&mut bytes, self.link.number);
        put_u32::<{ at::RECEIVER }, _>(&mut bytes, self.link.receiver);
        put_u16::<{ at::RATE }, _>(&mut bytes, self.link.rate);
        put_u16::<{ at::QUEUE }, _>(&mut bytes, self.link.queue);
        bytes
    }

    /// Decodes the header, op numbers and path identifiers at the start of `bytes`; the following bytes are ignored.
    ///
    /// # Errors
    ///
    /// The first broken rule. [`WindowHeader::check_commit`] checks the commit word separately.
    pub fn decode(bytes: &[u8]) -> Result<(Self, OpNumbers<'_>), WindowError> {
        let available = bytes.len();
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LENGTH>() else {
            return Err(WindowError::TooShort { needed: HEADER_LENGTH, available });
        };
        let found = u32_at::<{ at::FLAGS }, _>(head);
        let flags = u16::try_from(found).map(Flags::from_bits).map_err(|_| WindowError::Flags { found })?;
        let found = u8_at::<{ at::KIND }, _>(head);
        let kind = WindowKind::try_from(found).map_err(|_| WindowError::Kind { found })?;
        let reserved = head.get(at::RESERVED2..at::NUMBER).unwrap_or_default();
        let rest_is_zero =
            reserved.iter().all(|byte| *byte == 0) && u32_at::<{ at::RESERVED3 }, _>(head) == 0;
        if !rest_is_zero {
            return Err(WindowError::Reserved);
        }
        let scheme = match u8_at::<{ at::SCHEME }, _>(head) {
            0 => None,
            found => Some(Scheme::try_from(u32::from(found)).map_err(|_| WindowError::Scheme { found })?),
        };
        let path_list = match u8_at::<{ at::PATHS }, _>(head) {
            0 => false,
            1 => true,
            found => return Err(WindowError::Paths { found }),
        };
        let header = Self {
            sequence: u32_at::<{ at::SEQUENCE }, _>(head),
            flags,
            destination: NodeId::new(u32_at::<{ at::DESTINATION }, _>(head)),
            transfer: TransferId::new(u32_at::<{ at::TRANSFER }, _>(head)),
            oldest_live: TransferId::new(u32_at::<{ at::OLDEST_LIVE }, _>(head)),
            segment: u32_at::<{ at::SEGMENT }, _>(head),
            segment_count: u32_at::<{ at::SEGMENT_COUNT }, _>(head),
            segment_length: u32_at::<{ at::SEGMENT_LENGTH }, _>(head),
            base: CardAddr::new(u64_at::<{ at::BASE }, _>(head)),
            key: u64_at::<{ at::KEY }, _>(head),
            transfer_base: CardAddr::new(u64_at::<{ at::TRANSFER_BASE }, _>(head)),
            transfer_length: u64_at::<{ at::TRANSFER_LENGTH }, _>(head),
            first_packet: u16_at::<{ at::FIRST_PACKET }, _>(head),
            packet_count: u16_at::<{ at::PACKET_COUNT }, _>(head),
            packet_size_log2: u8_at::<{ at::PACKET_SIZE_LOG2 }, _>(head),
            kind,
            segment_packets: u16_at::<{ at::SEGMENT_PACKETS }, _>(head),
            tries: u8_at::<{ at::TRIES }, _>(head),
            path: u8_at::<{ at::PATH }, _>(head),
            path_list,
            command: CommandFields {
                number: u32_at::<{ at::COMMAND }, _>(head),
                priority: u8_at::<{ at::PRIORITY }, _>(head),
                timeout_ns: u64_at::<{ at::PATIENCE }, _>(head),
                scheme,
            },
            link: LinkFields {
                number: u32_at::<{ at::NUMBER }, _>(head),
                receiver: u32_at::<{ at::RECEIVER }, _>(head),
                rate: u16_at::<{ at::RATE }, _>(head),
                queue: u16_at::<{ at::QUEUE }, _>(head),
            },
        };
        header.check()?;
        let count = usize::from(header.packet_count);
        let lists = rest
            .get(..header.block_length() - HEADER_LENGTH)
            .and_then(|lists| lists.split_at_checked(4 * count))
            .ok_or(WindowError::TooShort { needed: header.block_length(), available })?;
        let (ops, padded) = (lists.0.as_chunks::<4>().0, lists.1);
        let (paths, padding) = padded.split_at_checked(count).unwrap_or_default();
        if padding.iter().any(|byte| *byte != 0) {
            return Err(WindowError::Reserved);
        }
        Ok((header, OpNumbers { bytes: ops, paths }))
    }

    /// Byte range of the window's packet `index`, relative to the payload's start. `None` beyond the last packet.
    #[must_use]
    pub fn payload_range(&self, index: u16) -> Option<Range<u32>> {
        if index >= self.packet_count {
            return None;
        }
        let size = 1u32.checked_shl(self.packet_size_log2.into())?;
        let window = u32::from(self.first_packet).checked_mul(size)?;
        let start = u32::from(index).checked_mul(size)?;
        let rest = self.segment_length.checked_sub(window.checked_add(start)?)?;
        Some(start..start.checked_add(rest.min(size))?)
    }

    /// Payload bytes in the window. 0 for a notice of arrival, a command, or an unchecked header that is inconsistent.
    #[must_use]
    pub fn payload_length(&self) -> u32 {
        self.packet_count
            .checked_sub(1)
            .and_then(|last| self.payload_range(last))
            .map_or(0, |range| range.end)
    }

    /// Header that the NI puts before the payload of the window's packet `index`, with the path identifier `path` of its list or, without
    /// list, of the window. Packet 0 of a segment is a START packet. `None` beyond the last packet.
    #[must_use]
    pub fn packet(
        &self,
        index: u16,
        op: OpNumber,
        path: u8,
        source: NodeId,
        incarnation: Incarnation,
    ) -> Option<DataHeader> {
        let range = self.payload_range(index)?;
        let in_segment = u64::from(self.first_packet) << self.packet_size_log2;
        let address = self.base.checked_add(in_segment.checked_add(range.start.into())?)?;
        let is_start = self.first_packet == 0 && index == 0;
        Some(DataHeader {
            common: Common { path, ..self.common(source, incarnation, self.flags) },
            transfer: self.transfer,
            oldest_live: self.oldest_live,
            segment: self.segment,
            segment_count: self.segment_count,
            address,
            key: self.key,
            op,
            tries: self.tries,
            packet_size_log2: self.packet_size_log2,
            start: is_start.then_some(StartFields {
                base: self.base,
                segment_length: self.segment_length,
                packets: self.segment_packets,
                transfer_base: self.transfer_base,
                transfer_length: self.transfer_length,
            }),
        })
    }

    /// ARRIVED packet of a notice of arrival. `None` for other kinds of window.
    #[must_use]
    pub fn arrival(&self, source: NodeId, incarnation: Incarnation) -> Option<Arrived> {
        (self.kind == WindowKind::Arrival).then(|| Arrived {
            common: self.common(source, incarnation, Flags::NONE),
            transfer: self.transfer,
            address: self.transfer_base,
            length: self.transfer_length,
            key: self.key,
        })
    }

    /// Link packet of a window with one, about the node `source`. `None` for other kinds of window.
    #[must_use]
    pub fn link_packet(&self, source: NodeId, incarnation: Incarnation) -> Option<LinkPacket> {
        let LinkFields { number, receiver, rate, queue } = self.link;
        let word = match self.kind {
            WindowKind::LinkInquiry => LinkFeedback::Inquiry { number },
            WindowKind::LinkActive => LinkFeedback::Active {
                sender: source,
                receiver: NodeId::new(receiver),
                state: LinkLoad { link: number, rate, queue },
            },
            WindowKind::Data | WindowKind::Arrival | WindowKind::Command => return None,
        };
        Some(LinkPacket { common: self.common(source, incarnation, Flags::NONE), word })
    }

    const fn common(&self, source: NodeId, incarnation: Incarnation, flags: Flags) -> Common {
        Common { source, destination: self.destination, incarnation, flags, path: self.path }
    }
}
