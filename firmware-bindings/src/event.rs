//! Entries of the event ring: what the NI tells the host.
//!
//! An event is 64 bytes. Its sequence number is the last word, so that a reader that sees the number it waits for also
//! sees the rest (the reader still needs its read barrier between the two). Numbers count 1, 2, 3, ... and wrap past 0:
//! 0 marks an entry that was never written.

#![warn(clippy::indexing_slicing)]

use fpga_registers::CardAddr;

use crate::bytes::{put_u8, put_u16, put_u32, put_u64, u8_at, u16_at, u32_at, u64_at};
use crate::generated::layout::event as at;
pub use crate::generated::{EventKind, FaultReason, NackReason, Outcome};
use crate::generated::{Flags, Scheme};
use crate::ids::{Incarnation, NodeId, OpNumber, SegmentIndex, TransferId};

/// Bytes of an event.
pub const SIZE: usize = at::LAYOUT_SIZE;

/// One event. Which fields a kind uses is said at [`EventKind`]; the others are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    /// What it reports.
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
    /// The transfer.
    pub transfer: TransferId,
    /// The segment within it.
    pub segment: SegmentIndex,
    /// The op number of a packet; of a registration, the segments of its transfer.
    pub op: OpNumber,
    /// A count; its meaning depends on `kind`.
    pub count: u32,
    /// Generation of the registry entry; for answers, the incarnation of the node that answers.
    pub generation: u32,
    /// A card address.
    pub address: CardAddr,
    /// Bytes from there.
    pub length: u64,
    /// Nanoseconds since the card's reset.
    pub time: u64,
    /// Try count that the receiver echoed; of a registration, what [`Registration`] says.
    pub tries: u8,
    /// Running number of the event, never 0.
    pub sequence: u32,
}

/// Where the scheme begins in the byte that a registration's event says it in.
const SCHEME_SHIFT: u32 = 4;
/// Bits of a scheme there: as many as the registry window has for it.
const SCHEME_MASK: u8 = 7;

/// What the event of a registration says beside places and counts, in one byte: how the segment is received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Registration {
    /// Of its packets' flags, those that stay with the entry: [`Flags::SILENT`], [`Flags::NOTIFY_RECEIVER`] and
    /// [`Flags::NO_NOTICE`].
    pub flags: Flags,
    /// By which rules; `None`: a number that this software does not know.
    pub scheme: Option<Scheme>,
}

impl Registration {
    /// The flags that are told.
    const TOLD: u8 = low_byte(Flags::SILENT.with(Flags::NOTIFY_RECEIVER).with(Flags::NO_NOTICE));

    /// The byte for a segment that is received by `scheme`, of packets with these flags.
    #[must_use]
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "there are fewer schemes than bits have values")]
    pub const fn byte(flags: Flags, scheme: Scheme) -> u8 {
        low_byte(flags) & Self::TOLD | (scheme.value() as u8 & SCHEME_MASK) << SCHEME_SHIFT
    }

    fn of(byte: u8) -> Self {
        Self {
            flags: Flags::from_bits((byte & Self::TOLD).into()),
            scheme: Scheme::try_from(u32::from(byte >> SCHEME_SHIFT & SCHEME_MASK)).ok(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the flags that are told are in the low byte")]
const fn low_byte(flags: Flags) -> u8 {
    flags.bits() as u8
}

/// Why 64 bytes are not an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum EventError {
    /// The entry was never written.
    #[error("the event ring's entry was not written yet: wait for its sequence number")]
    Empty,
    /// Every bit is set: nothing answers any more.
    #[error("the event reads as all ones: the card is gone, reopen it")]
    AllOnes,
    /// The kind is unknown.
    #[error("event {sequence} is of the unknown kind {found}: the ring is damaged, reset the interface")]
    UnknownKind {
        /// Number found.
        found: u8,
        /// Which event.
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
        /// Which event.
        sequence: u32,
    },
    /// A reserved byte is not 0.
    #[error("event {sequence} ({kind}) has reserved bytes set: the ring is damaged, reset the interface")]
    Reserved {
        /// Kind of the event.
        kind: EventKind,
        /// Which event.
        sequence: u32,
    },
}

/// The sequence number after `sequence`: 0 is left out.
#[must_use]
#[inline]
pub const fn next_sequence(sequence: u32) -> u32 {
    match sequence.wrapping_add(1) {
        0 => 1,
        next => next,
    }
}

/// The sequence number of an entry, whatever else it holds: what a poll looks at first. 0 = never written.
#[must_use]
#[inline]
pub const fn sequence_of(bytes: &[u8; SIZE]) -> u32 {
    u32_at::<{ at::SEQUENCE }, _>(bytes)
}

impl Event {
    /// An event of this kind with every other field 0. Its sequence number must be set before it is written.
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

    /// The reason of a [`EventKind::Nack`] event.
    #[must_use]
    pub fn nack_reason(&self) -> Option<NackReason> {
        if self.kind == EventKind::Nack { NackReason::try_from(self.reason).ok() } else { None }
    }

    /// The reason of a [`EventKind::Fault`] event.
    #[must_use]
    pub fn fault_reason(&self) -> Option<FaultReason> {
        if self.kind == EventKind::Fault { FaultReason::try_from(self.reason).ok() } else { None }
    }

    /// What a [`EventKind::Sent`] event says of its transfer.
    #[must_use]
    pub fn outcome(&self) -> Option<Outcome> {
        if self.kind == EventKind::Sent { Outcome::try_from(self.reason).ok() } else { None }
    }

    /// What a [`EventKind::Registered`] event says of how its segment is received.
    #[must_use]
    pub fn registration(&self) -> Option<Registration> {
        (self.kind == EventKind::Registered).then(|| Registration::of(self.tries))
    }

    /// The bytes of the event.
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

    /// The event in these bytes.
    ///
    /// # Errors
    ///
    /// [`EventError::Empty`] for an entry that was never written; the others for bytes that no NI writes.
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
