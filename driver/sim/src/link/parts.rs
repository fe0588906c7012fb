//! Parts of frames that are longer than a datagram on their path.
//!
//! | Bytes | |
//! |---|---|
//! | 0..16 | wrapper of the whole frame, with kind [`PART`] |
//! | 16..20 | number of the frame at its sender |
//! | 20..22 | offset of the part in the frame |
//! | 22..24 | 0 |
//! | 24.. | the part |
//!
//! All parts of a frame have the same length, so that one system call can send them: zeros fill up the last one. A frame is complete when all
//! its parts have arrived, in any order. A lost part loses its frame: it is replaced by a later one, and the cards repeat it.
//!
//! The memory for incomplete frames is fixed ([`SETS`] times [`WAYS`] frames), and parts of unknown senders are dropped before: a sender of
//! invalid parts, or of parts of frames that never become complete, can displace frames of others, as a flood of datagrams can.

use super::datagram::MAX_DATAGRAM;
use super::wrapper::{self, WRAPPER_LENGTH};
use fpga_registers::bytes::{u16_at, u32_at};
use std::net::SocketAddr;

/// Kind of a part, in byte [`wrapper::KIND_AT`]; whole frames have 0.
const PART: u8 = 1;
/// Bytes before a part.
pub(super) const PART_HEADER: usize = 24;
/// Maximum number of parts of a frame: bits of a mask.
pub(super) const MAX_PARTS: usize = 64;
/// Incomplete frames: the number of a frame selects a set, in which a new frame replaces the oldest one.
const SETS: usize = 16;
const WAYS: usize = 4;

/// Parts of a frame, to be sent.
#[derive(Debug)]
pub(super) struct Division<'a> {
    frame: &'a [u8],
    header: [u8; PART_HEADER],
    /// Length of each part.
    length: usize,
    offset: usize,
}

/// Datagram of a part: header, bytes of the frame, and number of zeros after them.
pub(super) type PartToSend<'a> = ([u8; PART_HEADER], &'a [u8], usize);

impl<'a> Division<'a> {
    /// Divides `frame`, whose wrapper is `header`, into parts of equal length that fit datagrams of `limit` bytes. `None` if it has too many.
    pub(super) fn new(
        frame: &'a [u8],
        header: &[u8; WRAPPER_LENGTH],
        number: u32,
        limit: usize,
    ) -> Option<Self> {
        let room = limit.checked_sub(PART_HEADER).filter(|room| *room > 0)?;
        let count = frame.len().div_ceil(room);
        if count > MAX_PARTS {
            return None;
        }
        let mut whole = [0; PART_HEADER];
        let (wrapper, rest) = whole.split_first_chunk_mut::<WRAPPER_LENGTH>()?;
        *wrapper = *header;
        *wrapper.get_mut(wrapper::KIND_AT)? = PART;
        *rest.first_chunk_mut()? = number.to_le_bytes();
        Some(Self { frame, header: whole, length: frame.len().div_ceil(count.max(1)), offset: 0 })
    }
}

impl<'a> Iterator for Division<'a> {
    type Item = PartToSend<'a>;

    fn next(&mut self) -> Option<PartToSend<'a>> {
        let rest = self.frame.get(self.offset..).filter(|rest| !rest.is_empty())?;
        let part = rest.get(..self.length).unwrap_or(rest);
        let mut header = self.header;
        let offset = u16::try_from(self.offset).ok()?;
        *header.last_chunk_mut::<4>()?.first_chunk_mut()? = offset.to_le_bytes();
        self.offset += part.len();
        Some((header, part, self.length - part.len()))
    }
}

/// A received part.
#[derive(Clone, Copy, Debug)]
struct Part<'a> {
    /// Wrapper of the frame.
    header: [u8; WRAPPER_LENGTH],
    number: u32,
    offset: usize,
    frame_length: usize,
    /// Number of parts of the frame.
    count: usize,
    /// The part; with zeros if it is the last one.
    bytes: &'a [u8],
}

/// Returns whether a datagram says that it is a part.
pub(super) fn is_part(datagram: &[u8]) -> bool {
    datagram.get(wrapper::KIND_AT) == Some(&PART)
}

impl<'a> Part<'a> {
    /// Decodes a datagram; `None` if a value is impossible.
    fn decode(datagram: &'a [u8]) -> Option<Self> {
        let mut header = *datagram.first_chunk::<WRAPPER_LENGTH>()?;
        *header.get_mut(wrapper::KIND_AT)? = 0;
        let bytes = datagram.get(PART_HEADER..)?;
        let frame_length = wrapper::stated_length(&header)?;
        let offset = usize::from(u16_at(datagram, 20)?);
        let is_zero = u16_at(datagram, 22)? == 0;
        let count = frame_length.checked_div(bytes.len())? + usize::from(frame_length % bytes.len() != 0);
        let is_valid = is_zero
            && (2..=MAX_PARTS).contains(&count)
            && offset < frame_length
            && offset % bytes.len() == 0
            && frame_length <= MAX_DATAGRAM - WRAPPER_LENGTH;
        let number = u32_at(datagram, 16)?;
        is_valid.then_some(Self { header, number, offset, frame_length, count, bytes })
    }
}

/// Frame that is being joined.
#[derive(Clone, Copy, Debug)]
struct Joined {
    from: SocketAddr,
    number: u32,
    header: [u8; WRAPPER_LENGTH],
    /// Length of its parts.
    part: usize,
    /// Parts that have not arrived, one bit each.
    missing: u64,
    /// Time of its first part, as a number of frames.
    begun: u64,
}

/// Result of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Impossible values, or not of the frame whose number it has.
    Invalid,
    /// Other parts are missing, or it had arrived before.
    Incomplete,
    /// The frame is complete: its slot, for [`Joiner::datagram`].
    Complete(usize),
}

/// Bytes of a slot: wrapper and frame.
const SLOT_BYTES: usize = MAX_DATAGRAM;

/// Joins parts.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    /// Allocated with the first part.
    frames: Vec<Option<Joined>>,
    memory: Vec<u8>,
    begun: u64,
    /// Frames that were replaced before they were complete.
    pub(super) incomplete: u64,
}

impl Joiner {
    /// Takes a part that has arrived from `from`.
    pub(super) fn take(&mut self, from: SocketAddr, datagram: &[u8]) -> Outcome {
        let Some(part) = Part::decode(datagram) else { return Outcome::Invalid };
        if self.frames.is_empty() {
            self.frames.resize(SETS * WAYS, None);
            self.memory.resize(SETS * WAYS * SLOT_BYTES, 0);
        }
        let slot = self.slot(from, &part);
        self.put(slot, &part).unwrap_or(Outcome::Invalid)
    }

    /// Wrapper and frame of a slot, until the next part is taken.
    pub(super) fn datagram(&self, slot: usize) -> Option<&[u8]> {
        let joined = self.frames.get(slot)?.as_ref()?;
        let length = WRAPPER_LENGTH + wrapper::stated_length(&joined.header)?;
        self.memory.get(slot * SLOT_BYTES..)?.get(..length)
    }

    /// Slot of the frame that a part belongs to; a new one if none of its parts has arrived.
    fn slot(&mut self, from: SocketAddr, part: &Part<'_>) -> usize {
        let key = part.number.wrapping_add(from.port().into());
        let first = key as usize % SETS * WAYS;
        let set = self.frames.get_mut(first..first + WAYS).unwrap_or_default();
        let is_known = |joined: &Option<Joined>| {
            joined.is_some_and(|joined| joined.number == part.number && joined.from == from)
        };
        if let Some(at) = set.iter().position(is_known) {
            return first + at;
        }
        let age = |joined: &Option<Joined>| joined.map_or(0, |joined| joined.begun);
        let oldest = set.iter().enumerate().min_by_key(|(_, joined)| age(joined)).map_or(0, |(at, _)| at);
        self.begun += 1;
        let Part { header, number, count, bytes, .. } = *part;
        let missing = u64::MAX >> (MAX_PARTS - count);
        let joined = Joined { from, number, header, part: bytes.len(), missing, begun: self.begun };
        if let Some(slot) = set.get_mut(oldest) {
            self.incomplete += u64::from(slot.is_some_and(|joined| joined.missing != 0));
            *slot = Some(joined);
        }
        first + oldest
    }

    /// Copies a part to its slot; `None` if it is not of the frame there.
    fn put(&mut self, slot: usize, part: &Part<'_>) -> Option<Outcome> {
        let joined = self.frames.get_mut(slot)?.as_mut()?;
        if joined.header != part.header || joined.part != part.bytes.len() {
            return None;
        }
        let bit = 1_u64.checked_shl(u32::try_from(part.offset / joined.part).ok()?)?;
        if joined.missing & bit == 0 {
            return Some(Outcome::Incomplete);
        }
        let memory = self.memory.get_mut(slot * SLOT_BYTES..)?;
        let (head, frame) = memory.split_first_chunk_mut::<WRAPPER_LENGTH>()?;
        *head = part.header;
        let length = joined.part.min(part.frame_length - part.offset);
        frame.get_mut(part.offset..)?.get_mut(..length)?.copy_from_slice(part.bytes.get(..length)?);
        joined.missing &= !bit;
        Some(if joined.missing == 0 { Outcome::Complete(slot) } else { Outcome::Incomplete })
    }
}

#[cfg(test)]
#[path = "parts_tests.rs"]
mod tests;
