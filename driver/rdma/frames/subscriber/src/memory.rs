//! Memory that the publisher writes.

use fpga_frames_wire::blocks::BLOCK;

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

    /// Length of a slot in bytes, at least 1.
    pub(crate) const fn stride(&self) -> u64 {
        self.stride as u64
    }

    /// Address of the status.
    pub(crate) const fn status_address(&self) -> u64 {
        self.stride as u64 * self.slots.len() as u64
    }

    /// Length in bytes.
    pub(crate) const fn length(&self) -> u64 {
        self.status_address() + BLOCK as u64
    }

    /// Block that the publisher writes to [`status_address`](Self::status_address).
    pub(crate) const fn status(&self) -> &[u8; BLOCK] {
        &self.status
    }

    pub(crate) fn slot(&self, index: usize) -> Option<&[u8]> {
        self.slots.get(index)?.as_deref()
    }

    /// Takes the memory of a slot, for a reader.
    pub(crate) fn take(&mut self, index: usize) -> Option<Vec<u8>> {
        self.slots.get_mut(index)?.take()
    }

    /// Returns the memory of a slot.
    pub(crate) fn put_back(&mut self, index: usize, memory: Vec<u8>) {
        if let Some(slot) = self.slots.get_mut(index) {
            *slot = Some(memory);
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
            if let Some(part) = part.get_mut(..now.len()) {
                part.copy_from_slice(now);
            }
            (at, bytes) = (at + now.len(), later);
        }
        true
    }
}
