//! Access to the application's memory.

use crate::entry::to_size;
use core::ptr::with_exposed_provenance;
use core::ptr::with_exposed_provenance_mut;
use fpga_messages::HostMemory;

/// The memory of this process.
pub(crate) struct ApplicationMemory;

impl HostMemory for ApplicationMemory {
    fn read(&self, from: u64, to: &mut [u8]) {
        let from = with_exposed_provenance::<u8>(to_size(from));
        // SAFETY: the range is part of a buffer that the application has posted or registered, and must keep until the operation has
        // completed or the region is closed. `to` is memory of the engine, which no application buffer overlaps.
        unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, to.len()) };
    }

    fn write(&self, to: u64, from: &[u8]) {
        let to = with_exposed_provenance_mut::<u8>(to_size(to));
        // SAFETY: as in `read`; the buffer was posted for receiving, or registered for remote writing.
        unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    }
}

/// Number of an address, for the engine.
pub(crate) fn address_of<T>(pointer: *const T) -> u64 {
    crate::entry::to_u64(pointer.expose_provenance())
}
