//! Buffers: DMA memory of a card that the program reads and writes in place. A buffer is registered with a channel at the first transfer
//! that uses it there.
//!
//! A channel looks buffers up by their handles, without their slots: a submission enters one slot, the channel's. So a buffer that is freed
//! is deregistered from every channel first.

use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use fpga_driver::{Card, DmaAccess, RegisteredMemory, SharedMemory};

use crate::abi::Status;
use crate::call::{set, set_if};
use crate::error::Failure;
use crate::handle::{self, Kind, Object};

/// DMA memory of a card.
pub(crate) struct Buffer {
    pub(crate) card: Card,
    memory: RegisteredMemory,
    /// Handles of the channels that the buffer is registered with.
    pub(crate) channels: Vec<u64>,
    /// For memory of the program: set when the driver has unmapped it.
    pub(crate) released: Option<Arc<AtomicBool>>,
}

// SAFETY: the only type of this kind.
unsafe impl Object for Buffer {
    const KIND: Kind = Kind::Buffer;
}

/// Owner of the program's memory in the driver. Its drop sets the flag.
struct Owner(Arc<AtomicBool>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Returns the memory of a buffer for a channel that registers it, and records the channel.
pub(crate) fn memory_for(buffer: u64, channel: u64) -> Result<RegisteredMemory, Failure> {
    Ok(handle::change(buffer, |buffer: &mut Buffer| {
        buffer.channels.push(channel);
        buffer.memory.clone()
    })?)
}

/// Removes a channel that has failed to register a buffer.
pub(crate) fn remove_channel(buffer: u64, channel: u64) {
    // The buffer may have been freed since.
    let _ = handle::change(buffer, |buffer: &mut Buffer| buffer.channels.retain(|known| *known != channel));
}

pub(crate) fn fpga_buffer_create(card: u64, length: usize, out: *mut u64) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::card(card)?;
    let memory = card.registered_memory(length)?;
    let buffer = Buffer { card, memory, channels: Vec::new(), released: None };
    set(out, handle::add(buffer)?)
}

pub(crate) fn fpga_buffer_register(
    card: u64,
    data: *mut u8,
    length: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    set(out, 0)?;
    let card = handle::card(card)?;
    if data.is_null() {
        return Err(Failure::null("data"));
    }
    let released = Arc::new(AtomicBool::new(false));
    let owner = Box::new(Owner(Arc::clone(&released)));
    // SAFETY: the header requires that `length` bytes at `data` are mapped, writable and initialised until `fpga_buffer_free` has
    // succeeded, which it does only after `owner` was dropped. No Rust code has references to them.
    let memory = unsafe { SharedMemory::from_foreign(data, length, owner) };
    let memory = memory.map_err(|error| Failure::on_card(Status::Argument, &error, card.name()))?;
    let memory = card.map_memory(memory, DmaAccess::Both).map_err(|refused| refused.error)?;
    let buffer = Buffer { card, memory, channels: Vec::new(), released: Some(released) };
    set(out, handle::add(buffer)?)
}

pub(crate) fn fpga_buffer_data(buffer: u64, data: *mut *mut u8, length: *mut usize) -> Result<(), Failure> {
    set(data, core::ptr::null_mut())?;
    set_if(length, 0)?;
    let (address, size) = handle::shared(buffer, |buffer: &Buffer| {
        (buffer.memory.memory().host_address(), buffer.memory.len())
    })?;
    set(data, core::ptr::with_exposed_provenance_mut(address))?;
    set_if(length, size)
}
