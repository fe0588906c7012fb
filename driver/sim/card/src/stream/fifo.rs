//! FIFO of bytes between two stream ports, with packet ends.

use fpga_registers::invariant::DebugExpect as _;
use std::collections::VecDeque;

/// Bounded queue of bytes and packet ends. Allocates nothing after its creation.
#[derive(Debug)]
pub(super) struct Fifo {
    /// Buffer; its length is a power of two.
    bytes: Box<[u8]>,
    /// Counts of bytes removed and added.
    taken: u64,
    filled: u64,
    /// Packet ends, as counts of the bytes before them.
    ends: VecDeque<u64>,
    max_packet_ends: usize,
}

impl Fifo {
    /// Creates a FIFO for `bytes` bytes (a power of two), and for one packet per beat of `beat` bytes.
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

    /// Returns the number of bytes that it accepts now; 0 if there is no space for another packet end.
    pub(super) fn free_bytes(&self) -> usize {
        if self.ends.len() >= self.max_packet_ends { 0 } else { self.bytes.len().saturating_sub(self.held()) }
    }

    fn place(&self, count: u64) -> usize {
        usize::try_from(count).unwrap_or(0) & (self.bytes.len() - 1)
    }

    /// Contiguous free bytes, at most `most`.
    pub(super) fn vacant(&mut self, most: usize) -> &mut [u8] {
        let most = most.min(self.free_bytes());
        let start = self.place(self.filled);
        let end = self.bytes.len().min(start + most);
        self.bytes.get_mut(start..end).debug_expect("inside the buffer").unwrap_or_default()
    }

    /// Marks the first `count` vacant bytes as written.
    pub(super) fn filled(&mut self, count: usize) {
        self.filled += count as u64;
    }

    /// Ends the packet after the last written byte.
    pub(super) fn end_packet(&mut self) {
        self.ends.push_back(self.filled);
    }

    /// Contiguous bytes of the first packet, at most `most`, and whether the packet ends with them.
    pub(super) fn front(&self, most: usize) -> (&[u8], bool) {
        let until = self.ends.front().copied().unwrap_or(self.filled);
        let start = self.place(self.taken);
        let rest = usize::try_from(until - self.taken).unwrap_or(usize::MAX);
        let count = rest.min(most).min(self.bytes.len() - start);
        let ends = count == rest && !self.ends.is_empty();
        (self.bytes.get(start..start + count).debug_expect("inside the buffer").unwrap_or_default(), ends)
    }

    /// Removes the first `count` bytes, and the end of the packet if it was reached.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count as u64;
        if self.ends.front() == Some(&self.taken) {
            self.ends.pop_front();
        }
    }
}
