//! Copies of injected data.
//!
//! The engine copies injected data itself if the end of the operation is not requested. Operations that are counted or that
//! write a completion entry keep their data until then: it is copied to a slot here.

use crate::code::Code;
use crate::info::INJECT_SIZE;
use crate::memory::address_of;
use crate::sys::EAGAIN;
use fpga_messages::{HostRanges, MAX_INJECT};

/// Maximum number of slots.
const MAX_SLOTS: usize = 1024;

/// Slots of one endpoint. They are allocated when they are needed first.
#[derive(Default)]
pub(crate) struct Staging {
    slots: Vec<Box<[u8]>>,
    free: Vec<u16>,
}

impl Staging {
    /// Copies data. Returns the copy, and the number of its slot plus one.
    ///
    /// # Errors
    /// `FI_EAGAIN` if all slots are in use.
    pub(crate) fn copy(&mut self, data: &HostRanges) -> Result<(HostRanges, u64), Code> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_SLOTS => {
                self.slots.push(vec![0; INJECT_SIZE].into());
                u16::try_from(self.slots.len() - 1).map_err(|_| EAGAIN)?
            }
            None => return Err(EAGAIN),
        };
        let slot = self.slots.get_mut(usize::from(index)).ok_or(EAGAIN)?;
        let mut done = 0;
        for range in data.as_slice() {
            let length = crate::entry::to_size(range.length);
            let Some(part) = slot.get_mut(done..done + length) else { break };
            fpga_messages::HostMemory::read(
                &crate::memory::ApplicationMemory,
                range.address,
                fpga_driver::SharedSlice::from_mut(part),
            );
            done += length;
        }
        let copy = HostRanges::one(address_of(slot.as_ptr()), data.length().min(MAX_INJECT)).ok_or(EAGAIN)?;
        Ok((copy, u64::from(index) + 1))
    }

    /// Returns a slot by its number plus one.
    pub(crate) fn release(&mut self, slot: u64) {
        if let Some(index) = slot.checked_sub(1).and_then(|index| u16::try_from(index).ok()) {
            self.free.push(index);
        }
    }
}
