//! Access to the application's memory.

use crate::entry::to_size;
use core::ptr::with_exposed_provenance;
use core::ptr::with_exposed_provenance_mut;
use fpga_driver::{SharedMemory, SharedSlice};
use fpga_messages::HostMemory;

/// The memory of this process.
pub(crate) struct ApplicationMemory;

impl HostMemory for ApplicationMemory {
    fn read(&self, from: u64, to: SharedSlice<'_>) {
        let from = with_exposed_provenance::<u8>(to_size(from));
        let (to, length) = (with_exposed_provenance_mut::<u8>(to.host_address()), to.len());
        // SAFETY: the range is part of a buffer that the application has posted or registered, and must keep until the operation has
        // completed or the region is closed. `to` is memory of the engine, which no application buffer overlaps.
        unsafe { to.copy_from_nonoverlapping(from, length) };
    }

    fn write(&self, to: u64, from: SharedSlice<'_>) {
        let to = with_exposed_provenance_mut::<u8>(to_size(to));
        let (from, length) = (with_exposed_provenance::<u8>(from.host_address()), from.len());
        // SAFETY: as in `read`; the buffer was posted for receiving, or registered for remote writing.
        unsafe { to.copy_from_nonoverlapping(from, length) };
    }

    fn lend(&self, from: u64, length: u64) -> Option<SharedMemory> {
        let pointer = with_exposed_provenance_mut::<u8>(to_size(from));
        // SAFETY: the pages of a buffer that the application has posted. They stay mapped until the operation has completed, and the engine drops the
        // memory before. It is passed to the card alone, which accesses the bytes of the buffer and no others, and only reads what is sent:
        // a buffer that is sent may be read-only.
        unsafe { SharedMemory::from_foreign(pointer, to_size(length), Box::new(())) }.ok()
    }
}

/// Number of an address, for the engine.
pub(crate) fn address_of<T>(pointer: *const T) -> u64 {
    crate::entry::to_u64(pointer.expose_provenance())
}
