//! A BAR of a simulated card.

use crate::network::SimNetwork;
use crate::state::{CardFailure, Slot, State};
use crate::threaded::{NotPosted, StaleBar};
use fpga_pci::mmio::check_narrow;
use fpga_pci::{Mmio, MmioError};
use fpga_registers::BarOffset;

/// One BAR of a card.
#[derive(Debug)]
pub(crate) struct SimBar {
    network: SimNetwork,
    card: usize,
    index: u8,
    size: u64,
    generation: u32,
}

impl SimBar {
    pub(crate) const fn new(network: SimNetwork, card: usize, index: u8, size: u64, generation: u32) -> Self {
        Self { network, card, index, size, generation }
    }

    fn check(&self, at: BarOffset, length: usize, alignment: u64) -> Result<(), MmioError> {
        let width = length as u64;
        if at.get().checked_add(width).is_none_or(|end| end > self.size) {
            return Err(MmioError::OutOfRange { at, width, end: self.size });
        }
        if !at.is_aligned_to(alignment) || !width.is_multiple_of(alignment.min(4)) {
            return Err(MmioError::Misaligned { at, width: alignment });
        }
        Ok(())
    }

    fn read(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        let mut state = self.network.lock();
        let slot = self.slot(&mut state, at)?;
        match slot.failure {
            CardFailure::None => {
                slot.card.bar_read(self.index, at.get(), into);
                // As in the kernel's driver: all ones are a valid value unless the function does not answer.
                if into.iter().all(|byte| *byte == 0xFF) && !slot.card.config().memory_decoding() {
                    return Err(MmioError::Gone { at });
                }
            }
            CardFailure::AllOnes => into.fill(0xFF),
            CardFailure::Gone => return Err(MmioError::Gone { at }),
        }
        Ok(())
    }

    fn write(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        let mut state = self.network.lock();
        let slot = self.slot(&mut state, at)?;
        // Writes are posted: the writer is not notified that there is no card.
        if slot.failure == CardFailure::None {
            slot.card.bar_write(self.index, at.get(), from, &mut slot.host);
        }
        Ok(())
    }

    fn slot<'a>(&self, state: &'a mut State, at: BarOffset) -> Result<&'a mut Slot, MmioError> {
        let slot = state.slots.get_mut(self.card).ok_or(MmioError::Gone { at })?;
        if slot.generation == self.generation { Ok(slot) } else { Err(MmioError::Stale { at }) }
    }
}

impl Mmio for SimBar {
    fn size(&self) -> u64 {
        self.size
    }

    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        self.check(at, 4, 4)?;
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        self.check(at, 4, 4)?;
        if let Some(threaded) = self.network.threaded() {
            match threaded.post(self.card, self.index, self.generation, at.get(), value) {
                Ok(Ok(())) => return Ok(()),
                Err(StaleBar) => return Err(MmioError::Stale { at }),
                Ok(Err(NotPosted)) => {}
            }
        }
        self.write(at, &value.to_le_bytes())
    }

    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.check(at, 8, 8)?;
        let mut bytes = [0; 8];
        self.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.check(at, 8, 8)?;
        self.write(at, &value.to_le_bytes())
    }

    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        check_narrow(at, from, self.size)?;
        self.write(at, from)
    }

    fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        self.check(at, into.len(), 4)?;
        self.read(at, into)
    }

    fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.check(at, from.len(), 4)?;
        self.write(at, from)
    }
}
