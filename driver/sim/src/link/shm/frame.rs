//! Received frames. A long one stays in the ring, so that the card copies its payload once, to card memory.
//!
//! Only frames that come straight from a card are left there: a simulated network may have damaged others, and the card would write the
//! payload of a damaged header to a wrong address before it sees the checksum. The sending link marks them. A peer that marks others wrongly
//! writes nothing that it could not write with a correct checksum.

use super::super::LinkCounters;
use super::super::wrapper::{self, KIND_AT, Nodes, WRAPPER_LENGTH};
use fpga_card::FrameSource;
use fpga_firmware::wire::START_HEADER_LENGTH;
use fpga_pci::memory::{RingError, RingReader, RingRecord};

/// Kind of a record whose frame comes straight from a card.
const INTACT: u8 = 2;
/// Minimum length of a record that stays in the ring, in bytes. For shorter ones, two copies cost less than two checks.
const MIN_SHARED: usize = 2048;
/// Bytes of such a record that are copied in any case: the wrapper, and the longest header.
const START: usize = WRAPPER_LENGTH + START_HEADER_LENGTH;

/// A received frame.
#[derive(Debug)]
pub(crate) enum ReceivedFrame<'a> {
    /// Copy of the frame in memory of this process.
    Copied(&'a [u8]),
    /// The frame in the ring.
    Shared(SharedFrame<'a>),
}

/// A frame in the ring of a peer, which may change it at any time.
#[derive(Debug)]
pub(crate) struct SharedFrame<'a> {
    reader: &'a RingReader,
    record: RingRecord,
    start: [u8; START_HEADER_LENGTH],
    buffer: &'a mut [u8],
    counters: &'a mut LinkCounters,
}

/// Marks a frame that comes straight from a card.
pub(super) fn mark_intact(wrapper: &mut [u8; WRAPPER_LENGTH]) {
    if let Some(kind) = wrapper.get_mut(KIND_AT) {
        *kind = INTACT;
    }
}

/// Copies the next record to `buffer`, or its start if the rest is to stay in the ring. Returns the record, the nodes of a valid one, and the
/// number of copied bytes.
pub(super) fn read(
    reader: &mut RingReader,
    buffer: &mut [u8],
) -> Result<Option<(RingRecord, Option<Nodes>, usize)>, RingError> {
    let Some(record) = reader.next_record()? else { return Ok(None) };
    let length = record.length();
    let mut copied = if length < MIN_SHARED { length } else { START };
    read_start(reader, record, buffer, copied)?;
    if copied < length && buffer.get(KIND_AT) != Some(&INTACT) {
        copied = length;
        read_start(reader, record, buffer, copied)?;
    }
    Ok(Some((record, nodes(buffer, copied, length), copied)))
}

fn read_start(
    reader: &RingReader,
    record: RingRecord,
    buffer: &mut [u8],
    count: usize,
) -> Result<(), RingError> {
    // The buffer fits the longest record.
    reader.read(record, 0, buffer.get_mut(..count).unwrap_or_default())
}

/// Nodes of a record of `length` bytes whose first `copied` bytes are in `buffer`; `None` if it is invalid.
fn nodes(buffer: &mut [u8], copied: usize, length: usize) -> Option<Nodes> {
    let start = buffer.get_mut(..copied)?;
    if let Some(kind) = start.get_mut(KIND_AT).filter(|kind| **kind == INTACT) {
        *kind = 0;
    }
    wrapper::unwrap_start(start, length).ok()
}

impl<'a> SharedFrame<'a> {
    /// Frame of a valid record whose start is in `buffer`.
    pub(super) fn new(
        reader: &'a RingReader,
        record: RingRecord,
        buffer: &'a mut [u8],
        counters: &'a mut LinkCounters,
    ) -> Self {
        let start = buffer.get(WRAPPER_LENGTH..).and_then(<[u8]>::first_chunk).copied();
        Self { reader, record, start: start.unwrap_or([0; START_HEADER_LENGTH]), buffer, counters }
    }

    /// Copies the frame; `None` if the peer has changed its start.
    pub(crate) fn into_copy(self) -> Option<&'a [u8]> {
        let length = self.record.length();
        read_start(self.reader, self.record, self.buffer, length).ok()?;
        self.counters.copied_bytes += length as u64;
        let frame = self.buffer.get(WRAPPER_LENGTH..length)?;
        if !frame.starts_with(&self.start) {
            self.counters.malformed += 1;
            return None;
        }
        Some(frame)
    }
}

impl FrameSource for SharedFrame<'_> {
    fn length(&self) -> usize {
        self.record.length() - WRAPPER_LENGTH
    }

    fn start(&self) -> &[u8] {
        &self.start
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> bool {
        self.reader.read(self.record, WRAPPER_LENGTH + offset, into).is_ok()
    }
}
