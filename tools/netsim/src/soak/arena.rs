//! Memory of the receiver: slots that transfers use one after the other, with contents that identify the transfer.

use fpga_protocol::receiver::{MemoryFault, ReceiveMemory};
use fpga_registers::{CardAddr, quantity};

use super::Check;

/// Start address of the memory.
pub(super) const BASE: u64 = 0x1_0000_0000;
/// Maximum offset of a transfer in its slot; offsets vary, so that alignment does.
pub(super) const MAX_START_OFFSET: u64 = 64;

/// Eight bytes of a transfer: mixing up two transfers, or two offsets of one, yields different bytes.
fn word(transfer: u64, index: u64) -> u64 {
    let mut z = (transfer << 32 ^ index).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ z >> 27
}

/// Fills `bytes` with those of `transfer` from `offset` on.
pub(super) fn fill(transfer: u64, offset: u64, bytes: &mut [u8]) {
    let inside = usize::try_from(offset % 8).unwrap_or(0);
    let (head, rest) = bytes.split_at_mut((8 - inside).min(bytes.len()) * usize::from(inside != 0));
    let first = word(transfer, offset / 8).to_le_bytes();
    for (byte, right) in head.iter_mut().zip(first.iter().skip(inside)) {
        *byte = *right;
    }
    for (index, chunk) in (offset.div_ceil(8)..).zip(rest.chunks_mut(8)) {
        let word = word(transfer, index).to_le_bytes();
        chunk.copy_from_slice(word.get(..chunk.len()).unwrap_or_default());
    }
}

/// Position of the first byte that differs from the transfer's.
fn first_mismatch(transfer: u64, bytes: &[u8]) -> Option<u64> {
    for (index, chunk) in (0..).zip(bytes.chunks(8)) {
        let right = word(transfer, index).to_le_bytes();
        if Some(chunk) != right.get(..chunk.len()) {
            return Some(index * 8);
        }
    }
    None
}

/// Part of the memory, and the transfer that uses it.
#[derive(Clone, Copy, Debug)]
struct Slot {
    transfer: u64,
    /// Offset of the transfer's first byte in the slot.
    start: u64,
    length: u64,
    /// Whether the application was notified: nothing may change after that.
    arrived: bool,
    /// First byte and length of a transfer whose sender is gone: packets of it may still be in flight.
    released: Option<(u64, u64)>,
}

/// The receiver's memory.
#[derive(Debug)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    slot_size: u64,
    stray: Option<String>,
}

impl Arena {
    /// Creates `slots` of `slot_size` bytes, a multiple of 8.
    pub(super) fn new(slots: u16, slot_size: u64) -> Self {
        let empty = Slot { transfer: u64::MAX, start: 0, length: 0, arrived: false, released: None };
        let bytes = usize::try_from(slot_size * u64::from(slots)).unwrap_or(0);
        Self { bytes: vec![0; bytes], slots: vec![empty; slots.into()], slot_size, stray: None }
    }

    pub(super) fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn slot_bytes(&self, at: u16) -> Option<(&Slot, &[u8])> {
        let slot = self.slots.get(usize::from(at))?;
        let start = usize::try_from(u64::from(at) * self.slot_size + slot.start).ok()?;
        let end = start + usize::try_from(slot.length).ok()?;
        Some((slot, self.bytes.get(start..end)?))
    }

    /// Assigns slot `at` to a transfer. Returns the address of its first byte.
    pub(super) fn assign_slot(&mut self, at: u16, transfer: u64, start: u64, length: u64) -> CardAddr {
        if let Some(slot) = self.slots.get_mut(usize::from(at)) {
            *slot = Slot { transfer, start, length, arrived: false, released: slot.released.take() };
        }
        CardAddr::new(BASE + u64::from(at) * self.slot_size + start)
    }

    /// Releases slot `at`, whose transfer's sender is gone, for immediate reuse.
    pub(super) fn release_slot(&mut self, at: u16) {
        if let Some(slot) = self.slots.get_mut(usize::from(at)) {
            slot.released = Some((slot.start, slot.length));
            slot.arrived = false;
        }
    }

    /// Slot that contains `address`.
    pub(super) fn slot_at(&self, address: u64) -> Option<u16> {
        u16::try_from(address.checked_sub(BASE)? / self.slot_size).ok()
    }

    /// Checks the transfer in slot `at` when its arrival is reported.
    pub(super) fn arrived(&mut self, at: u16) -> Check {
        self.check(at, "on arrival")?;
        if let Some(slot) = self.slots.get_mut(usize::from(at)) {
            slot.arrived = true;
        }
        Ok(())
    }

    /// Checks that the data that arrived in slot `at` is unchanged.
    pub(super) fn check_unchanged(&self, at: u16) -> Check {
        match self.slots.get(usize::from(at)) {
            Some(slot) if slot.arrived => self.check(at, "after arrival"),
            _ => Ok(()),
        }
    }

    fn check(&self, at: u16, when: &str) -> Check {
        let (slot, bytes) = self.slot_bytes(at).ok_or_else(|| format!("slot {at} does not exist"))?;
        let Slot { transfer, length, .. } = *slot;
        first_mismatch(transfer, bytes).map_or(Ok(()), |offset| {
            Err(format!("transfer {transfer}: byte {offset} of {length} is wrong {when}"))
        })
    }

    /// Takes the record of a write outside of all transfers, if there was one.
    pub(super) fn take_stray_write(&mut self) -> Option<String> {
        self.stray.take()
    }
}

impl ReceiveMemory for Arena {
    fn write(&mut self, at: CardAddr, bytes: &[u8]) -> Result<(), MemoryFault> {
        let length = bytes.len() as u64;
        let inside = self.slot_at(at.get()).and_then(|index| {
            let slot = self.slots.get(usize::from(index))?;
            let offset = at.get().checked_sub(BASE + u64::from(index) * self.slot_size)?;
            let holds = |(start, size): (u64, u64)| {
                offset.checked_sub(start).is_some_and(|offset| offset + length <= size)
            };
            (holds((slot.start, slot.length)) || slot.released.is_some_and(holds)).then_some(())
        });
        let start = usize::try_from(at.get().wrapping_sub(BASE)).unwrap_or(usize::MAX);
        let range = start.checked_add(bytes.len()).and_then(|end| self.bytes.get_mut(start..end));
        match range {
            Some(range) if inside.is_some() => range.copy_from_slice(bytes),
            _ => {
                let length = quantity(length, "byte");
                self.stray = Some(format!("write of {length} at {at}, outside the memory of all transfers"));
            }
        }
        Ok(())
    }
}
