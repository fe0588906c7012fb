//! Ring of frames in shared memory: one process writes, one reads.
//!
//! | Bytes | Written by | |
//! |---|---|---|
//! | 0..4 | writer | bytes written so far, modulo 2^32 |
//! | 128..132 | reader | bytes read so far, modulo 2^32 |
//! | 256..260 | both | 1: the reader sleeps, and the writer is to wake it |
//! | 4096.. | writer | the records |
//!
//! A record starts at a multiple of 64: its length as a word of 32 bits, 12 unused bytes, and the wrapped frame. It does not wrap around the end of the ring; the
//! length [`SKIP`] stands for the rest of the ring.
//!
//! The other process may write anything at any time. Each side therefore keeps its own position, checks every value that it reads once, and
//! copies a record out before reading it.

use super::MAX_DATAGRAM;
use fpga_pci::{MemoryError, SharedMemory};
use std::sync::atomic::{Ordering, fence};

/// Bytes for records: the packets of an op table.
const SIZE: u32 = 4 << 20;
/// Bytes before the records.
const CONTROL: usize = 4096;
/// Bytes of a ring in its file, a multiple of the page size.
pub(super) const LENGTH: usize = CONTROL + SIZE as usize;

const WRITTEN: usize = 0;
const READ: usize = 128;
const ASLEEP: usize = 256;

/// Granule of records, in bytes: a cache line.
const GRANULE: u32 = 64;
/// Bytes before the data of a record.
const HEADER: usize = 16;
/// Length of the unused rest of the ring.
const SKIP: u32 = u32::MAX;
/// Bytes read after which the writer learns of the free space, if the ring does not become empty before.
const REPORT: u32 = SIZE / 8;

/// Reason why a ring cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum RingError {
    /// The other side has written an impossible value.
    #[error("the peer has written an invalid {0} to the shared ring")]
    Corrupt(&'static str),
    /// Excluded by the checks of the positions.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// Offset of a position in the ring's memory.
const fn offset(position: u32) -> usize {
    CONTROL + (position % SIZE) as usize
}

/// Bytes that a record of `length` bytes of data occupies; `None` if it is too long.
fn record(length: usize) -> Option<u32> {
    let length = u32::try_from(HEADER.checked_add(length)?).ok()?;
    length.checked_next_multiple_of(GRANULE).filter(|_| length as usize <= HEADER + MAX_DATAGRAM)
}

/// Writing side.
#[derive(Debug)]
pub(super) struct RingWriter {
    memory: SharedMemory,
    written: u32,
    /// As the reader knows.
    published: u32,
    /// Last known position of the reader.
    read: u32,
}

impl RingWriter {
    #[cfg(test)]
    pub(super) fn memory(&self) -> SharedMemory {
        self.memory.clone()
    }

    pub(super) const fn new(memory: SharedMemory) -> Self {
        Self { memory, written: 0, published: 0, read: 0 }
    }

    /// Writes a record of `header` and `rest`; [`publish`](Self::publish) makes it visible. Returns `false` if the ring is full.
    pub(super) fn push(&mut self, header: &[u8], rest: &[u8]) -> Result<bool, RingError> {
        let length = header.len() + rest.len();
        let Some(size) = record(length) else { return Ok(false) };
        let to_end = SIZE - self.written % SIZE;
        let needed = if size > to_end { to_end + size } else { size };
        if needed > self.free()? {
            self.read = self.memory.load_u32_acquire(READ)?;
            if needed > self.free()? {
                return Ok(false);
            }
        }
        if size > to_end {
            self.memory.store_u32(offset(self.written), SKIP)?;
            self.written = self.written.wrapping_add(to_end);
        }
        let at = offset(self.written);
        // `record` has limited the length.
        self.memory.store_u32(at, u32::try_from(length).unwrap_or(SKIP))?;
        self.memory.write(at + HEADER, header)?;
        self.memory.write(at + HEADER + header.len(), rest)?;
        self.written = self.written.wrapping_add(size);
        Ok(true)
    }

    fn free(&self) -> Result<u32, RingError> {
        SIZE.checked_sub(self.written.wrapping_sub(self.read)).ok_or(RingError::Corrupt("read position"))
    }

    /// Makes the written records visible. Returns whether the reader sleeps and must be woken.
    pub(super) fn publish(&mut self) -> Result<bool, RingError> {
        if self.published == self.written {
            return Ok(false);
        }
        self.published = self.written;
        self.memory.store_u32_release(WRITTEN, self.written)?;
        // Either the reader sees the records before it sleeps, or this side sees that it sleeps.
        fence(Ordering::SeqCst);
        let asleep = self.memory.load_u32(ASLEEP)? != 0;
        if asleep {
            self.memory.store_u32(ASLEEP, 0)?;
        }
        Ok(asleep)
    }
}

/// Reading side.
#[derive(Debug)]
pub(super) struct RingReader {
    memory: SharedMemory,
    read: u32,
    /// As the writer knows.
    reported: u32,
    /// Last known position of the writer.
    written: u32,
}

impl RingReader {
    #[cfg(test)]
    pub(super) fn memory(&self) -> SharedMemory {
        self.memory.clone()
    }

    pub(super) const fn new(memory: SharedMemory) -> Self {
        Self { memory, read: 0, reported: 0, written: 0 }
    }

    /// Copies the next record to the start of `into`; returns its length, `None` without one.
    pub(super) fn next(&mut self, into: &mut [u8]) -> Result<Option<usize>, RingError> {
        if self.written == self.read {
            self.written = self.memory.load_u32_acquire(WRITTEN)?;
            if self.written == self.read {
                self.report()?;
                return Ok(None);
            }
        }
        let mut length = self.memory.load_u32(offset(self.read))?;
        if length == SKIP {
            let to_end = SIZE - self.read % SIZE;
            self.take(to_end)?;
            length = self.memory.load_u32(offset(self.read))?;
        }
        let (at, to_end) = (offset(self.read), SIZE - self.read % SIZE);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let fits = record(length).filter(|size| *size <= to_end).zip(into.get_mut(..length));
        let Some((size, into)) = fits else { return Err(RingError::Corrupt("record length")) };
        self.take(size)?;
        self.memory.read(at + HEADER, into)?;
        if self.read.wrapping_sub(self.reported) >= REPORT {
            self.report()?;
        }
        Ok(Some(length))
    }

    /// Advances by `count` bytes, which the writer must have written.
    fn take(&mut self, count: u32) -> Result<(), RingError> {
        let available = self.written.wrapping_sub(self.read);
        if available > SIZE || count > available {
            return Err(RingError::Corrupt("write position"));
        }
        self.read = self.read.wrapping_add(count);
        Ok(())
    }

    /// Tells the writer what is free.
    fn report(&mut self) -> Result<(), RingError> {
        if self.reported != self.read {
            self.reported = self.read;
            self.memory.store_u32_release(READ, self.read)?;
        }
        Ok(())
    }

    /// Announces sleep: the writer wakes this side from now on. Returns `false` if there are records.
    pub(super) fn prepare_to_sleep(&mut self) -> Result<bool, RingError> {
        self.report()?;
        self.memory.store_u32(ASLEEP, 1)?;
        // Counterpart of the fence in `publish`.
        fence(Ordering::SeqCst);
        self.written = self.memory.load_u32_acquire(WRITTEN)?;
        Ok(self.written == self.read)
    }

    /// Ends the announcement.
    pub(super) fn awake(&self) -> Result<(), RingError> {
        Ok(self.memory.store_u32(ASLEEP, 0)?)
    }
}
