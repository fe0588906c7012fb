//! Ring of records in shared memory: one process writes, one reads.
//!
//! | Bytes | Written by | |
//! |---|---|---|
//! | 0..4 | writer | bytes written so far, modulo 2^32 |
//! | 128..132 | reader | bytes read so far, modulo 2^32 |
//! | 256..260 | both | 1: the reader sleeps, and the writer is to wake it |
//! | 4096.. | writer | the records |
//!
//! A record starts at a multiple of 64: its length as a word of 32 bits, 12 unused bytes, and its data. It does not wrap around the end of the ring; the
//! length [`SKIP`] stands for the rest of the ring.
//!
//! The other process may write anything at any time. Each side therefore keeps its own position, and checks every value that it reads once. A
//! reader copies bytes out before it relies on them.

use super::SharedMemory;
use crate::MemoryError;
use std::sync::atomic::{Ordering, fence};

/// Bytes before the records.
const CONTROL: usize = 4096;

const WRITTEN: usize = 0;
const READ: usize = 128;
const ASLEEP: usize = 256;

/// Granule of records, in bytes: a cache line.
const GRANULE: u32 = 64;
/// Bytes before the data of a record.
const HEADER: usize = 16;
/// Length of the unused rest of the ring.
const SKIP: u32 = u32::MAX;
/// Divisor of the ring's size: bytes read after which the writer learns of the free space, if the ring does not become empty before.
const REPORTS_PER_RING: u32 = 8;

/// Reason why a ring cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// The other side has written an impossible value.
    #[error("the peer has written an invalid {0} to the shared ring")]
    Corrupt(&'static str),
}

/// Excluded by the checks of the positions, except in memory that is smaller than its layout.
fn outside(_: MemoryError) -> RingError {
    RingError::Corrupt("layout")
}

/// Dimensions of a ring, equal on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingLayout {
    size: u32,
    max_record: usize,
}

impl RingLayout {
    /// A ring with 2^`log2_size` bytes for records (at least 64, at most 2 GiB), of at most `max_record` bytes of data each.
    #[must_use]
    pub const fn new(log2_size: u32, max_record: usize) -> Self {
        let log2_size = if log2_size < 6 { 6 } else { log2_size };
        Self { size: 1 << if log2_size > 31 { 31 } else { log2_size }, max_record }
    }

    /// Bytes of a ring in its file, a multiple of the page size.
    #[must_use]
    pub const fn length(self) -> usize {
        CONTROL + self.size as usize
    }

    /// Offset of a position in the ring's memory.
    const fn offset(self, position: u32) -> usize {
        CONTROL + (position % self.size) as usize
    }

    /// Bytes from a position to the end of the ring.
    const fn to_end(self, position: u32) -> u32 {
        self.size - position % self.size
    }

    /// Bytes that a record of `length` bytes of data occupies; `None` if it is too long.
    fn record(self, length: usize) -> Option<u32> {
        let record = u32::try_from(HEADER.checked_add(length)?).ok()?;
        record.checked_next_multiple_of(GRANULE).filter(|_| length <= self.max_record)
    }
}

/// Writing side.
#[derive(Debug)]
pub struct RingWriter {
    layout: RingLayout,
    memory: SharedMemory,
    written: u32,
    /// As the reader knows.
    published: u32,
    /// Last known position of the reader.
    read: u32,
}

impl RingWriter {
    /// The ring's memory.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Writer of the ring in `memory`, which has [`RingLayout::length`] bytes and was not used before.
    #[must_use]
    pub const fn new(layout: RingLayout, memory: SharedMemory) -> Self {
        Self { layout, memory, written: 0, published: 0, read: 0 }
    }

    /// Writes a record of `parts`; [`publish`](Self::publish) makes it visible. Returns `false` if the ring is full, or the record too long.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<bool, RingError> {
        let length = parts.iter().map(|part| part.len()).sum();
        let Some(size) = self.layout.record(length) else { return Ok(false) };
        let to_end = self.layout.to_end(self.written);
        let needed = if size > to_end { to_end + size } else { size };
        if needed > self.free()? {
            self.read = self.memory.load_u32_acquire(READ).map_err(outside)?;
            if needed > self.free()? {
                return Ok(false);
            }
        }
        if size > to_end {
            self.memory.store_u32(self.layout.offset(self.written), SKIP).map_err(outside)?;
            self.written = self.written.wrapping_add(to_end);
        }
        let at = self.layout.offset(self.written);
        // `record` has limited the length.
        self.memory.store_u32(at, u32::try_from(length).unwrap_or(SKIP)).map_err(outside)?;
        let mut to = at + HEADER;
        for part in parts {
            self.memory.write(to, part).map_err(outside)?;
            to += part.len();
        }
        self.written = self.written.wrapping_add(size);
        Ok(true)
    }

    fn free(&self) -> Result<u32, RingError> {
        self.layout
            .size
            .checked_sub(self.written.wrapping_sub(self.read))
            .ok_or(RingError::Corrupt("read position"))
    }

    /// Makes the written records visible. Returns whether the reader sleeps and must be woken.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn publish(&mut self) -> Result<bool, RingError> {
        if self.published == self.written {
            return Ok(false);
        }
        self.published = self.written;
        self.memory.store_u32_release(WRITTEN, self.written).map_err(outside)?;
        // Either the reader sees the records before it sleeps, or this side sees that it sleeps.
        fence(Ordering::SeqCst);
        let asleep = self.memory.load_u32(ASLEEP).map_err(outside)? != 0;
        if asleep {
            self.memory.store_u32(ASLEEP, 0).map_err(outside)?;
        }
        Ok(asleep)
    }
}

/// Record of a ring, whose data is still in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRecord {
    /// Offset of its data in the ring's memory.
    at: usize,
    length: usize,
}

impl RingRecord {
    /// Length of its data in bytes.
    #[must_use]
    pub const fn length(self) -> usize {
        self.length
    }
}

/// Reading side.
#[derive(Debug)]
pub struct RingReader {
    layout: RingLayout,
    memory: SharedMemory,
    read: u32,
    /// As the writer knows.
    reported: u32,
    /// Last known position of the writer.
    written: u32,
}

impl RingReader {
    /// The ring's memory.
    #[must_use]
    pub const fn memory(&self) -> &SharedMemory {
        &self.memory
    }

    /// Reader of the ring in `memory`, which has [`RingLayout::length`] bytes and was not used before.
    #[must_use]
    pub const fn new(layout: RingLayout, memory: SharedMemory) -> Self {
        Self { layout, memory, read: 0, reported: 0, written: 0 }
    }

    /// Copies the next record to the start of `into`; returns its length, `None` without one.
    ///
    /// # Errors
    /// [`RingError`]; also for a record that is longer than `into`.
    pub fn next(&mut self, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        let Some(record) = self.next_record()? else { return Ok(None) };
        let into = into.get_mut(..record.length).ok_or(RingError::Corrupt("record length"))?;
        self.read(record, 0, into)?;
        self.report_if_due()?;
        Ok(Some(record.length))
    }

    /// Returns the next record, `None` without one. Its data stays in the ring until the next call that changes the reader, but the writer
    /// may change it at any time: a part that decides something is read once.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn next_record(&mut self) -> Result<Option<RingRecord>, RingError> {
        self.report_if_due()?;
        if self.written == self.read {
            self.written = self.memory.load_u32_acquire(WRITTEN).map_err(outside)?;
            if self.written == self.read {
                self.report()?;
                return Ok(None);
            }
        }
        let mut length = self.memory.load_u32(self.layout.offset(self.read)).map_err(outside)?;
        if length == SKIP {
            let to_end = self.layout.to_end(self.read);
            self.take(to_end)?;
            length = self.memory.load_u32(self.layout.offset(self.read)).map_err(outside)?;
        }
        let (at, to_end) = (self.layout.offset(self.read), self.layout.to_end(self.read));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let Some(size) = self.layout.record(length).filter(|size| *size <= to_end) else {
            return Err(RingError::Corrupt("record length"));
        };
        self.take(size)?;
        Ok(Some(RingRecord { at: at + HEADER, length }))
    }

    /// Copies bytes of the last record, from `offset` on.
    ///
    /// # Errors
    /// [`RingError`] beyond the record's end.
    pub fn read(&self, record: RingRecord, offset: usize, into: &mut [u8]) -> Result<(), RingError> {
        let end = offset.checked_add(into.len()).filter(|end| *end <= record.length);
        end.ok_or(RingError::Corrupt("record length"))?;
        self.memory.read(record.at + offset, into).map_err(outside)
    }

    /// Returns whether the writer has published records. One load of memory, for a loop that polls.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn has_records(&self) -> Result<bool, RingError> {
        Ok(self.written != self.read || self.memory.load_u32(WRITTEN).map_err(outside)? != self.read)
    }

    /// Advances by `count` bytes, which the writer must have written.
    fn take(&mut self, count: u32) -> Result<(), RingError> {
        let available = self.written.wrapping_sub(self.read);
        if available > self.layout.size || count > available {
            return Err(RingError::Corrupt("write position"));
        }
        self.read = self.read.wrapping_add(count);
        Ok(())
    }

    /// Tells the writer what is free, if that is a large part of the ring.
    fn report_if_due(&mut self) -> Result<(), RingError> {
        if self.read.wrapping_sub(self.reported) >= self.layout.size / REPORTS_PER_RING {
            self.report()?;
        }
        Ok(())
    }

    /// Tells the writer what is free.
    fn report(&mut self) -> Result<(), RingError> {
        if self.reported != self.read {
            self.reported = self.read;
            self.memory.store_u32_release(READ, self.read).map_err(outside)?;
        }
        Ok(())
    }

    /// Announces sleep: the writer wakes this side from now on. Returns `false` if there are records.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn prepare_to_sleep(&mut self) -> Result<bool, RingError> {
        self.report()?;
        self.memory.store_u32(ASLEEP, 1).map_err(outside)?;
        // Counterpart of the fence in `publish`.
        fence(Ordering::SeqCst);
        self.written = self.memory.load_u32_acquire(WRITTEN).map_err(outside)?;
        Ok(self.written == self.read)
    }

    /// Ends the announcement.
    ///
    /// # Errors
    /// [`RingError`].
    pub fn awake(&self) -> Result<(), RingError> {
        self.memory.store_u32(ASLEEP, 0).map_err(outside)
    }
}
