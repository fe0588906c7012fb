//! Slots of the subscriber, and the memory that the publisher writes.
//!
//! Frames have positions 0, 1, 2 ... modulo 2^32. Position `p` goes into slot `p % slots`; frames are read and returned in this order.

use crate::blocks::{BLOCK, InvalidData};

/// State of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The publisher may write the slot.
    Empty,
    /// Holds an unread frame of this many bytes.
    Arrived(usize),
    /// A reader has the frame.
    Read,
    /// The frame was returned or will not come, but an earlier one is not done yet.
    Done,
}

/// Frame at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) position: u32,
    pub(crate) length: usize,
}

/// States of all slots.
#[derive(Debug)]
pub(crate) struct Slots {
    states: Box<[State]>,
    stride: usize,
    /// Lowest position that was not returned.
    consumed: u32,
    /// Next position to be read.
    next: u32,
    /// Number of frames that have arrived and are unread.
    unread: u32,
}

impl Slots {
    /// Creates `count` empty slots of `stride` bytes; `count` is a power of two. The first frame is at position `first`.
    pub(crate) fn new(count: usize, stride: usize, first: u32) -> Self {
        Self {
            states: vec![State::Empty; count.max(1)].into(),
            stride,
            consumed: first,
            next: first,
            unread: 0,
        }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.states.len()).unwrap_or(u32::MAX)
    }

    /// Slot of a position.
    pub(crate) fn index(&self, position: u32) -> usize {
        usize::try_from(position % self.count()).unwrap_or(0)
    }

    fn state(&mut self, position: u32) -> Option<&mut State> {
        let index = self.index(position);
        self.states.get_mut(index)
    }

    /// Records a transfer of `length` bytes to `address`: a frame in each slot of the range.
    pub(crate) fn arrived(&mut self, address: u64, length: u64) -> Result<(), InvalidData> {
        let wrong = InvalidData::Slot { address, length };
        let (Ok(at), Ok(mut rest)) = (usize::try_from(address), usize::try_from(length)) else {
            return Err(wrong);
        };
        if at % self.stride != 0 || rest == 0 {
            return Err(wrong);
        }
        for state in self.states.iter_mut().skip(at / self.stride) {
            if *state != State::Empty {
                break;
            }
            *state = State::Arrived(rest.min(self.stride));
            self.unread += 1;
            rest = rest.saturating_sub(self.stride);
            if rest == 0 {
                return Ok(());
            }
        }
        Err(wrong)
    }

    /// Records that every position before `settled` has ended: frames that have not arrived by then will not arrive. An older number
    /// changes nothing.
    pub(crate) fn settled(&mut self, settled: u32) -> Result<(), InvalidData> {
        let ahead = settled.wrapping_sub(self.consumed);
        if ahead > 1 << 31 {
            return Ok(());
        }
        if ahead > self.count() {
            return Err(InvalidData::Settled { found: settled });
        }
        for offset in 0..ahead {
            if let Some(state @ State::Empty) = self.state(self.consumed.wrapping_add(offset)) {
                *state = State::Done;
            }
        }
        self.advance();
        Ok(())
    }

    /// Next frame in the order of positions, if it has arrived.
    pub(crate) fn peek(&mut self) -> Option<Arrival> {
        while self.next.wrapping_sub(self.consumed) < self.count() {
            let position = self.next;
            match *self.state(position)? {
                State::Arrived(length) => return Some(Arrival { position, length }),
                State::Done => self.next = position.wrapping_add(1),
                State::Empty | State::Read => return None,
            }
        }
        None
    }

    /// Marks the frame that [`peek`](Self::peek) returned as being read.
    pub(crate) fn read(&mut self) {
        let position = self.next;
        if let Some(state @ State::Arrived(_)) = self.state(position) {
            *state = State::Read;
            self.next = position.wrapping_add(1);
            self.unread = self.unread.saturating_sub(1);
        }
    }

    /// Records that the reader of the frame at `position` has returned it.
    pub(crate) fn release(&mut self, position: u32) {
        if let Some(state @ State::Read) = self.state(position) {
            *state = State::Done;
        }
        self.advance();
    }

    fn advance(&mut self) {
        while let Some(state @ State::Done) = self.state(self.consumed) {
            *state = State::Empty;
            if self.next == self.consumed {
                self.next = self.next.wrapping_add(1);
            }
            self.consumed = self.consumed.wrapping_add(1);
        }
    }

    /// Whether no frame is unread or with its reader.
    pub(crate) const fn is_idle(&self) -> bool {
        self.unread == 0 && self.next == self.consumed
    }

    /// Whether a frame is unread.
    pub(crate) const fn has_unread(&self) -> bool {
        self.unread != 0
    }

    /// Position before which every frame was returned.
    pub(crate) const fn consumed(&self) -> u32 {
        self.consumed
    }

    /// Next position to be read.
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }
}

/// Memory that the publisher writes, from address 0: the slots, then a block for its status. The memory of a frame that is being read is
/// with its reader, so that no packet can change it.
#[derive(Debug)]
pub(crate) struct Memory {
    stride: usize,
    slots: Box<[Option<Vec<u8>>]>,
    status: [u8; BLOCK],
}

impl Memory {
    /// Allocates the memory; `None` if there is not enough.
    pub(crate) fn new(count: usize, stride: usize) -> Option<Self> {
        let mut slots = Vec::new();
        slots.try_reserve_exact(count).ok()?;
        for _ in 0..count {
            let mut slot = Vec::new();
            slot.try_reserve_exact(stride).ok()?;
            slot.resize(stride, 0);
            slots.push(Some(slot));
        }
        Some(Self { stride, slots: slots.into(), status: [0; BLOCK] })
    }

    /// Address of the status.
    pub(crate) const fn status_address(&self) -> u64 {
        self.stride as u64 * self.slots.len() as u64
    }

    /// Length in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.status_address() + BLOCK as u64
    }

    pub(crate) const fn status(&self) -> &[u8; BLOCK] {
        &self.status
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&[u8]> {
        self.slots.get(index)?.as_deref()
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Vec<u8>> {
        self.slots.get_mut(index)?.take()
    }

    pub(crate) fn give_back(&mut self, index: usize, memory: Vec<u8>) {
        if let Some(place) = self.slots.get_mut(index) {
            *place = Some(memory);
        }
    }

    fn part(&mut self, at: usize) -> Option<&mut [u8]> {
        let (slot, offset) = (at / self.stride, at % self.stride);
        if slot == self.slots.len() {
            return self.status.get_mut(offset..);
        }
        self.slots.get_mut(slot)?.as_deref_mut()?.get_mut(offset..)
    }

    /// Whether all of the range exists, and no part of it is with a reader.
    fn is_free(&mut self, mut at: usize, mut length: usize) -> bool {
        while length > 0 {
            match self.part(at).map(|part| part.len()) {
                Some(room @ 1..) => (at, length) = (at + room.min(length), length - room.min(length)),
                _ => return false,
            }
        }
        true
    }

    /// Writes `bytes`, all or nothing. Returns false if a part of the range does not exist or is with a reader.
    pub(crate) fn write(&mut self, address: u64, mut bytes: &[u8]) -> bool {
        let Ok(mut at) = usize::try_from(address) else { return false };
        if at.checked_add(bytes.len()).is_none() || !self.is_free(at, bytes.len()) {
            return false;
        }
        while let Some(part) = self.part(at).filter(|_| !bytes.is_empty()) {
            let (now, later) = bytes.split_at(part.len().min(bytes.len()));
            if let Some(place) = part.get_mut(..now.len()) {
                place.copy_from_slice(now);
            }
            (at, bytes) = (at + now.len(), later);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_shared_transfer_fills_adjacent_slots() {
        let mut slots = Slots::new(4, 100, 6);
        assert_eq!(slots.arrived(200, 150), Ok(()));
        let mut found = Vec::new();
        while let Some(arrival) = slots.peek() {
            found.push((arrival.position, arrival.length));
            slots.read();
        }
        assert_eq!(found, [(6, 100), (7, 50)]);
        assert!(!slots.has_unread() && !slots.is_idle());
        slots.release(7);
        assert_eq!(slots.consumed(), 6, "in order");
        slots.release(6);
        assert_eq!((slots.consumed(), slots.is_idle()), (8, true));
        for (address, length) in [(300, 101), (1, 10), (0, 0), (400, 1), (u64::MAX, 1), (0, u64::MAX)] {
            let mut slots = Slots::new(4, 100, 0);
            let wrong = InvalidData::Slot { address, length };
            assert_eq!(slots.arrived(address, length), Err(wrong));
        }
        let mut slots = Slots::new(4, 100, 0);
        assert_eq!(slots.arrived(100, 1), Ok(()));
        assert!(slots.arrived(100, 1).is_err(), "not returned");
        assert_eq!(slots.settled(2), Ok(()), "the frame at position 0 will not come");
        assert_eq!(slots.peek(), Some(Arrival { position: 1, length: 1 }));
        assert_eq!(slots.settled(6), Err(InvalidData::Settled { found: 6 }));
    }
}
