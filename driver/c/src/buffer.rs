//! Buffers: DMA memory of one channel that the program reads and writes in place.

use fpga_driver::MemoryHandle;

use crate::call::{call, set};
use crate::channel::Channel;
use crate::error::Failure;
use crate::handle::{self, Object};
use crate::status::Status;

/// DMA memory that is registered with a channel.
pub(crate) struct Buffer {
    /// Handle of the channel.
    pub(crate) channel: u64,
    pub(crate) memory: MemoryHandle,
    /// Address of the first byte in this process, and the size in bytes.
    address: usize,
    length: usize,
}

/// Creates DMA memory of `length` bytes for transfers of `channel`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_buffer_create(channel: u64, length: usize, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        let mut entered = handle::enter(channel)?;
        let owner = entered.get::<Channel>()?;
        let (memory, address, length) = owner.register(length)?;
        let handle = handle::add(Object::Buffer(Buffer { channel, memory, address, length }));
        match handle {
            Ok(handle) => set(out, handle),
            Err(status) => {
                owner.deregister(memory)?;
                Err(status.into())
            }
        }
    })
}

/// Returns the first byte and the size of a buffer.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_buffer_data(buffer: u64, data: *mut *mut u8, length: *mut usize) -> Status {
    call(|| {
        set(data, core::ptr::null_mut())?;
        let (channel, address, size) =
            handle::shared(buffer, |buffer: &Buffer| (buffer.channel, buffer.address, buffer.length))?;
        if !handle::is_open(channel) {
            return Err(Failure::of(
                Status::Handle,
                "the buffer's channel is closed, which released the memory",
            ));
        }
        set(data, core::ptr::with_exposed_provenance_mut(address))?;
        if length.is_null() { Ok(()) } else { set(length, size) }
    })
}

/// Frees a buffer. Refused while a transfer of it is in flight.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_buffer_free(buffer: u64) -> Status {
    call(|| {
        let (channel, memory) = handle::shared(buffer, |buffer: &Buffer| (buffer.channel, buffer.memory))?;
        match handle::enter(channel) {
            Ok(mut entered) => entered.get::<Channel>()?.deregister(memory)?,
            // The channel is closed, and has released its memory.
            Err(Status::Handle) => {}
            Err(status) => return Err(Failure::from(status)),
        }
        Ok(handle::close_shared::<Buffer>(buffer)?)
    })
}
