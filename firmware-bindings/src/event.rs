//! Entries of the event ring, with which the NI reports to the host.
//!
//! An event is 64 bytes. Its sequence number is the last word, so that a reader that sees the expected number also sees the rest (the
//! reader still needs its read barrier between the two). Numbers count 1, 2, 3, ... and wrap past 0: 0 marks an entry that was never
//! written.

#![warn(clippy::indexing_slicing)]

use fpga_registers::CardAddr;

use crate::bytes::{put_u8, put_u16, put_u32, put_u64, u8_at, u16_at, u32_at, u64_at};
use crate::generated::layout::event as at;
pub use crate::generated::{EventKind, FaultReason, NackReason, Outcome};
use crate::generated::{Flags, PacketKind, Scheme};
use crate::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};
use crate::wire::{Common, LinkFeedback, LinkLoad, LinkPacket, SEGMENT_FLAGS};

/// Bytes of an event.
pub const SIZE: usize = at::LAYOUT_SIZE;

/// One event. [`EventKind`] documents which fields a kind uses; the others are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// Kind of the event.
    pub kind: EventKind,
    /// A [`NackReason`], [`FaultReason`] or [`Outcome`] as a number, by `kind`; see [`Event::nack_reason`],
    /// [`Event::fault_reason`], [`Event::outcome`].
    pub reason: u8,
    /// Registry entry, escape slot or transmit window; the reason of a refused transfer.
    pub index: u16,
    /// The peer.
    pub node: NodeId,
    /// Incarnation of the transfer's sender.
    pub incarnation: Incarnation,
    /// Number of the transfer.
    pub transfer: TransferId,
    /// Index of the segment within the transfer.
    pub segment: SegmentIndex,
    /// The op number of a packet; for a registration, the number of segments of its transfer.
    pub op: OpNumber,
    /// A count; its meaning depends on `kind`.
    pub count: u32,
    /// Generation of the registry entry; for answers, the incarnation of the answering node.
    pub generation: u32,
    /// A card address.
    pub address: CardAddr,
    /// Length of the range at `address`, in bytes.
    pub length: u64,
    /// Nanoseconds since the card's reset.
    pub time: u64,
    /// Try count that the receiver echoed; for a registration, the byte of [`Registration`]; for link feedback, the path identifier.
    pub tries: u8,
    /// Sequence number of the event, never 0.
    pub sequence: u32,
}

/// Position of the scheme in the byte of a registration event.
const SCHEME_SHIFT: u32 = 4;
/// Bits of the scheme in that byte: as many as the registry window has for it.
const SCHEME_MASK: u8 = 7;

/// Bit of [`Flags::LAST_HOP`] beside the packet kind in the index of an event about link feedback.
const LAST_HOP: u16 = 1 << 8;

/// Reception parameters in a registration event, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Packet flags that the entry keeps: [`Flags::SILENT`], [`Flags::NOTIFY_RECEIVER`] and [`Flags::NO_NOTICE`]; and
    /// [`Flags::TRIMMED`] if packet 0 is not in memory.
    pub flags: Flags,
    /// Scheme; `None` for a number that this software does not know.
    pub scheme: Option<Scheme>,
}

impl Registration {
    /// Flags that are reported.
    const TOLD: u8 = SEGMENT_FLAGS.low_byte();
    /// Position of [`Flags::TRIMMED`], whose own bit belongs to the scheme.
    const TRIMMED: u8 = 1 << 7;

    /// Returns the byte for a segment that is received with `scheme`, of packets with these flags.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer schemes than bits have values")]
    pub const fn byte(flags: Flags, scheme: Scheme) -> u8 {
        let trimmed = if flags.contains(Flags::TRIMMED) { Self::TRIMMED } else { 0 };
        trimmed | flags.low_byte() & Self::TOLD | (scheme.value() as u8 & SCHEME_MASK) << SCHEME_SHIFT
    }

    fn of(byte: u8) -> Self {
        let trimmed = if byte & Self::TRIMMED != 0 { Flags::TRIMMED } else { Flags::NONE };
        Self {
            flags: Flags::from_bits((byte & Self::TOLD).into()).with(trimmed),
            scheme: Scheme::try_from(u32::from(byte >> SCHEME_SHIFT & SCHEME_MASK)).ok(),
        }
    }
}

/// Reason why 64 bytes are not a valid event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The entry was never written.
    #[error("the event ring's entry has not been written yet: wait for its sequence number")]
    Empty,
    /// All bits are set: the card does not answer.
    #[error("the event reads as all ones: the card is gone, reopen it")]
    AllOnes,
    /// The kind is unknown.
    #[error("event {sequence} is of the unknown kind {found}: the ring is damaged, reset the interface")]
    UnknownKind {
        /// Number found.
        found: u8,
        /// Sequence number of the event.
        sequence: u32,
    },
    /// The reason is not one of the kind's.
    #[error(
        "event {sequence} ({kind}) has the unknown reason {found}: the ring is damaged, reset the interface"
    )]
    UnknownReason {
        /// Number found.
        found: u8,
        /// Kind of the event.
        kind: EventKind,
        /// Sequence number of the event.
        sequence: u32,
    },
    /// A reserved byte is not 0.
    #[error("event {sequence} ({kind}) has reserved bytes set: the ring is damaged, reset the interface")]
    Reserved {
        /// Kind of the event.
        kind: EventKind,
        /// Sequence number of the event.
        sequence: u32,
    },
}

/// Returns the sequence number after `sequence`, skipping 0.
#[must_use]
#[inline]
pub const fn next_sequence(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// Returns the sequence number of an entry, whether or not it is valid. A poll reads it first. 0 = never written.
#[must_use]
#[inline]
pub const fn sequence_of(bytes: &[u8; SIZE]) -> u32 {
    u32_at::<{ at::SEQUENCE }, _>(bytes)
}

impl Event {
    /// Creates an event of this kind with every other field 0. Set its sequence number before it is written.
    #[must_use]
    pub const fn new(kind: EventKind) -> Self {
        Self {
            kind,
            reason: 0,
            index: 0,
            node: NodeId::new(0),
            incarnation: Incarnation::new(0),
            transfer: TransferId::new(0),
            segment: 0,
            op: OpNumber::new(0),
            count: 0,
            generation: 0,
            address: CardAddr::ZERO,
            length: 0,
            time: 0,
            tries: 0,
            sequence: 0,
        }
    }

    /// Reason of a [`EventKind::Nack`] event.
    #[must_use]
    pub fn nack_reason(&self) -> Option<NackReason> {
        if self.kind == EventKind::Nack { NackReason::try_from(self.reason).ok() } else { None }
    }

    /// Reason of a [`EventKind::Fault`] event.
    #[must_use]
    pub fn fault_reason(&self) -> Option<FaultReason> {
        if self.kind == EventKind::Fault { FaultReason::try_from(self.reason).ok() } else { None }
    }

    /// Outcome of the transfer in a [`EventKind::Sent`] event.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        if self.kind == EventKind::Sent { Outcome::try_from(self.reason).ok() } else { None }
    }

    /// Reception parameters in a [`EventKind::Registered`] event.
    #[must_use]
    pub fn registration(&self) -> Option<Registration> {
        (self.kind == EventKind::Registered).then(|| Registration::of(self.tries))
    }

    /// Creates the event about link feedback for this node; `None` for packets that raise no event.
    #[must_use]
    pub fn of_link(packet: &LinkPacket) -> Option<Self> {
        let last_hop = if packet.common.flags.contains(Flags::LAST_HOP) { LAST_HOP } else { 0 };
        let index = u16::from(packet.kind().value()) | last_hop;
        let event = Self { index, tries: packet.common.path, ..Self::new(EventKind::Link) };
        match packet.word {
            LinkFeedback::Passive { number, receiver, state: LinkLoad { link, rate, queue } } => Some(Self {
                node: receiver,
                op: OpNumber::new(number),
                segment: link,
                count: u32::from(rate) | u32::from(queue) << 16,
                ..event
            }),
            LinkFeedback::Slow { receiver } => Some(Self { node: receiver, ..event }),
            LinkFeedback::Inquiry { .. } | LinkFeedback::Active { .. } => None,
        }
    }

    /// Link packet of a [`EventKind::Link`] event, whose common header has path and flags only; `None` for another kind or an unknown
    /// packet kind.
    #[must_use]
    pub fn link_packet(&self) -> Option<LinkPacket> {
        if self.kind != EventKind::Link {
            return None;
        }
        let receiver = self.node;
        let last_hop = self.index & LAST_HOP != 0;
        let kind = u8::try_from(self.index & !LAST_HOP).ok()?;
        let word = match PacketKind::try_from(kind).ok()? {
            PacketKind::LinkPassive => {
                let [low, more, high, most] = self.count.to_le_bytes();
                let (rate, queue) = (u16::from_le_bytes([low, more]), u16::from_le_bytes([high, most]));
                let state = LinkLoad { link: self.segment, rate, queue };
                LinkFeedback::Passive { number: self.op.get(), receiver, state }
            }
            PacketKind::LinkSlow => LinkFeedback::Slow { receiver },
            _ => return None,
        };
        let flags = if last_hop { Flags::LAST_HOP } else { Flags::NONE };
        Some(LinkPacket { common: Common { path: self.tries, flags, ..Common::default() }, word })
    }

    /// Encodes the event.
    #[must_use]
    pub const fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        put_u8::<{ at::KIND }, _>(&mut bytes, self.kind.value());
        put_u8::<{ at::REASON }, _>(&mut bytes, self.reason);
        put_u16::<{ at::INDEX }, _>(&mut bytes, self.index);
        put_u32::<{ at::NODE }, _>(&mut bytes, self.node.get());
        put_u32::<{ at::INCARNATION }, _>(&mut bytes, self.incarnation.get());
        put_u32::<{ at::TRANSFER }, _>(&mut bytes, self.transfer.get());
        put_u32::<{ at::SEGMENT }, _>(&mut bytes, self.segment);
        put_u32::<{ at::OP }, _>(&mut bytes, self.op.get());
        put_u32::<{ at::COUNT }, _>(&mut bytes, self.count);
        put_u32::<{ at::GENERATION }, _>(&mut bytes, self.generation);
        put_u64::<{ at::ADDRESS }, _>(&mut bytes, self.address.get());
        put_u64::<{ at::LENGTH }, _>(&mut bytes, self.length);
        put_u64::<{ at::TIME }, _>(&mut bytes, self.time);
        put_u8::<{ at::TRIES }, _>(&mut bytes, self.tries);
        put_u32::<{ at::SEQUENCE }, _>(&mut bytes, self.sequence);
        bytes
    }

    /// Decodes an event.
    ///
    /// # Errors
    ///
    /// [`EventError::Empty`] for an entry that was never written; the other variants for bytes that no NI writes.
    pub fn decode(bytes: &[u8; SIZE]) -> Result<Self, EventError> {
        let sequence = sequence_of(bytes);
        if sequence == 0 {
            return Err(EventError::Empty);
        }
        if bytes.iter().all(|byte| *byte == u8::MAX) {
            return Err(EventError::AllOnes);
        }
        let found = u8_at::<{ at::KIND }, _>(bytes);
        let kind = EventKind::try_from(found).map_err(|_| EventError::UnknownKind { found, sequence })?;
        let reason = u8_at::<{ at::REASON }, _>(bytes);
        let known = match kind {
            EventKind::Nack => NackReason::try_from(reason).is_ok(),
            EventKind::Fault => FaultReason::try_from(reason).is_ok(),
            EventKind::Sent => Outcome::try_from(reason).is_ok(),
            _ => reason == 0,
        };
        if !known {
            return Err(EventError::UnknownReason { found: reason, kind, sequence });
        }
        // TRIES and the three reserved bytes are one word.
        if u32_at::<{ at::TRIES }, _>(bytes) >> 8 != 0 {
            return Err(EventError::Reserved { kind, sequence });
        }
        Ok(Self {
            kind,
            reason,
            index: u16_at::<{ at::INDEX }, _>(bytes),
            node: NodeId::new(u32_at::<{ at::NODE }, _>(bytes)),
            incarnation: Incarnation::new(u32_at::<{ at::INCARNATION }, _>(bytes)),
            transfer: TransferId::new(u32_at::<{ at::TRANSFER }, _>(bytes)),
            segment: u32_at::<{ at::SEGMENT }, _>(bytes),
            op: OpNumber::new(u32_at::<{ at::OP }, _>(bytes)),
            count: u32_at::<{ at::COUNT }, _>(bytes),
            generation: u32_at::<{ at::GENERATION }, _>(bytes),
            address: CardAddr::new(u64_at::<{ at::ADDRESS }, _>(bytes)),
            length: u64_at::<{ at::LENGTH }, _>(bytes),
            time: u64_at::<{ at::TIME }, _>(bytes),
            tries: u8_at::<{ at::TRIES }, _>(bytes),
            sequence,
        })
    }
}
