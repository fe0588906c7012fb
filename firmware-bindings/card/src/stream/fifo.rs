//! Bytes between two stream ports, with the ends of packets.

use std::collections::VecDeque;

/// A bounded queue of bytes and packet ends. Nothing is allocated after it was made.
#[derive(Debug)]
pub(super) struct Fifo {
    /// A power of two of them.
    bytes: Box<[u8]>,
    /// Counts of bytes taken out and put in.
    taken: u64,
    filled: u64,
    /// Behind which byte packets end, by count.
    ends: VecDeque<u64>,
    max_packet_ends: usize,
}

impl Fifo {
    /// Room for `bytes` bytes (a power of two), and for one packet per beat of `beat` bytes.
    pub(super) fn new(bytes: usize, beat: usize) -> Self {
        let max_packet_ends = (bytes / beat.max(1)).max(1);
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            taken: 0,
            filled: 0,
            ends: VecDeque::with_capacity(max_packet_ends),
            max_packet_ends,
        }
    }

    pub(super) fn clear(&mut self) {
        (self.taken, self.filled) = (0, 0);
        self.ends.clear();
    }

    fn held(&self) -> usize {
        usize::try_from(self.filled - self.taken).unwrap_or(usize::MAX)
    }

    /// Bytes that it takes now; none where the end of their packet could not be noted.
    pub(super) fn free_bytes(&self) -> usize {
        if self.ends.len() >= self.max_packet_ends { 0 } else { self.bytes.len().saturating_sub(self.held()) }
    }

    fn place(&self, count: u64) -> usize {
        usize::try_from(count).unwrap_or(0) & (self.bytes.len() - 1)
    }

    /// Free bytes in a row, at most `most`.
    pub(super) fn vacant(&mut self, most: usize) -> &mut [u8] {
        let most = most.min(self.free_bytes());
        let start = self.place(self.filled);
        let end = self.bytes.len().min(start + most);
        self.bytes.get_mut(start..end).unwrap_or_default()
    }

    /// The first `count` vacant bytes were written.
    pub(super) fn filled(&mut self, count: usize) {
        self.filled += count as u64;
    }

    /// The packet ends behind what was written last.
    pub(super) fn end_packet(&mut self) {
        self.ends.push_back(self.filled);
    }

    /// Bytes of the first packet in a row, at most `most`, and whether it ends with them.
    pub(super) fn front(&self, most: usize) -> (&[u8], bool) {
        let until = self.ends.front().copied().unwrap_or(self.filled);
        let start = self.place(self.taken);
        let rest = usize::try_from(until - self.taken).unwrap_or(usize::MAX);
        let count = rest.min(most).min(self.bytes.len() - start);
        let ends = count == rest && !self.ends.is_empty();
        (self.bytes.get(start..start + count).unwrap_or_default(), ends)
    }

    /// The first `count` bytes are gone; with them the end of the packet, if it was reached.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count as u64;
        if self.ends.front() == Some(&self.taken) {
            self.ends.pop_front();
        }
    }
}
