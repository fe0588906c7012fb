//! DMA channels between host memory and card memory.

use core::time::Duration;

use fpga_driver::backend::Bounced;
use fpga_driver::{
    C2hChannel, Card, CardAddr, ChannelError, ChannelOptions, Error, H2cChannel, MemoryHandle, WaitOptions,
    bulk,
};

use crate::buffer::Buffer;
use crate::call::{bytes, bytes_mut, call, set};
use crate::error::Failure;
use crate::handle::{self, Object};
use crate::status::Status;

/// Direction of a channel, as in the header.
const H2C: i32 = 0;
const C2H: i32 = 1;

/// A channel, and its card for buffers of blocking calls.
pub(crate) struct Channel {
    card: Card,
    engine: Engine,
}

enum Engine {
    H2c(H2cChannel),
    C2h(C2hChannel),
}

/// Calls the same method of either direction.
macro_rules! either {
    ($channel:expr, $engine:ident => $call:expr) => {
        match &mut $channel.engine {
            Engine::H2c($engine) => $call,
            Engine::C2h($engine) => $call,
        }
    };
}

impl Channel {
    /// Creates DMA memory. Returns its handle, address and size.
    pub(crate) fn register(&mut self, length: usize) -> Result<(MemoryHandle, usize, usize), Failure> {
        let memory = self.card.registered_memory(length)?;
        let (address, length) = (memory.memory().host_address(), memory.len());
        let registered = either!(self, engine => engine.register_memory(memory));
        Ok((registered.map_err(|refused| refused.error)?, address, length))
    }

    /// Frees DMA memory.
    pub(crate) fn deregister(&mut self, memory: MemoryHandle) -> Result<(), Failure> {
        drop(either!(self, engine => engine.deregister_memory(memory))?);
        Ok(())
    }
}

fn wait(timeout_ns: u64) -> WaitOptions {
    WaitOptions::default().timeout(Duration::from_nanos(timeout_ns)).total(Duration::from_nanos(timeout_ns))
}

/// Takes a channel of a card.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_open(card: u64, direction: i32, number: u32, out: *mut u64) -> Status {
    call(|| {
        set(out, 0)?;
        let card = handle::shared(card, Card::clone)?;
        let number =
            u8::try_from(number).map_err(|_| Failure::of(Status::Argument, "number is above 255"))?;
        let engine = match direction {
            H2C => Engine::H2c(card.h2c_with(number, ChannelOptions::default())?),
            C2H => Engine::C2h(card.c2h_with(number, ChannelOptions::default())?),
            _ => return Err(Failure::of(Status::Argument, "direction is neither FPGA_H2C nor FPGA_C2H")),
        };
        set(out, handle::add(Object::Channel(Box::new(Channel { card, engine })))?)
    })
}

/// Closes a channel. Transfers in flight are aborted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_channel_close(channel: u64) -> Status {
    call(|| Ok(handle::close::<Channel>(channel)?))
}

/// Checks that no submitted transfer is in flight: a transfer that ends early aborts the engine, and theirs with it.
fn alone(in_flight: u32) -> Result<(), Failure> {
    if in_flight == 0 {
        return Ok(());
    }
    Err(Failure::of(Status::InUse, "submitted transfers are in flight: wait for them, or abort them, first"))
}

/// Writes `length` bytes at `data` to card memory at `card_address`, and waits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_write(
    channel: u64,
    card_address: u64,
    data: *const u8,
    length: usize,
    timeout_ns: u64,
) -> Status {
    call(|| {
        let mut source = Bounced::new(bytes(data, length)?);
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        let Engine::H2c(engine) = &mut channel.engine else {
            return Err(Failure::of(Status::Argument, "a C2H channel cannot write"));
        };
        alone(engine.in_flight())?;
        let to = CardAddr::new(card_address);
        let wait = wait(timeout_ns);
        Ok(bulk::write_from(&channel.card, engine, &mut source, to, length as u64, wait, &mut |_| {})?)
    })
}

/// Reads `length` bytes of card memory at `card_address` to `data`, and waits.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_read(
    channel: u64,
    card_address: u64,
    data: *mut u8,
    length: usize,
    timeout_ns: u64,
) -> Status {
    call(|| {
        let mut sink = Bounced::new(std::io::Cursor::new(bytes_mut(data, length)?));
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        let Engine::C2h(engine) = &mut channel.engine else {
            return Err(Failure::of(Status::Argument, "an H2C channel cannot read"));
        };
        alone(engine.in_flight())?;
        let from = CardAddr::new(card_address);
        let wait = wait(timeout_ns);
        Ok(bulk::read_into(&channel.card, engine, from, length as u64, &mut sink, wait, &mut |_| {})?)
    })
}

/// Queues a transfer of `length` bytes at `offset` of `buffer`. The next poll or wait starts it.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_submit(
    channel: u64,
    buffer: u64,
    offset: usize,
    length: usize,
    card_address: u64,
    ticket: *mut u64,
) -> Status {
    call(|| {
        let (owner, memory) = {
            let mut entered = handle::enter(buffer)?;
            let buffer = entered.get::<Buffer>()?;
            (buffer.channel, buffer.memory)
        };
        if owner != channel {
            return Err(Failure::of(Status::Handle, "the buffer belongs to another channel"));
        }
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        let to = CardAddr::new(card_address);
        let submitted = either!(channel, engine => engine.submit_at(memory, offset, length, to))?;
        if ticket.is_null() { Ok(()) } else { set(ticket, submitted.number()) }
    })
}

/// Starts queued transfers and counts those that have ended.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_poll(channel: u64, ended: *mut usize) -> Status {
    call(|| {
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        let count = either!(channel, engine => engine.poll())?;
        if ended.is_null() { Ok(()) } else { set(ended, count) }
    })
}

/// Waits until the transfer of `ticket`, and so every earlier one, has ended. Returns the first failure since the last call.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_wait(channel: u64, ticket: u64, timeout_ns: u64) -> Status {
    call(|| {
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        let ticket = fpga_driver::Ticket::from_number(ticket);
        either!(channel, engine => engine.wait_ended(ticket, wait(timeout_ns)))?;
        let mut failed = None;
        while let Some(done) = either!(channel, engine => engine.next_completion()) {
            if let Err(fault) = done.outcome {
                failed.get_or_insert(*fault);
            }
        }
        match failed {
            Some(fault) => Err(fault.widen::<fpga_driver::TransferError>().into()),
            None => Ok(()),
        }
    })
}

/// Stops the engine and ends everything in flight as aborted.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn fpga_abort(channel: u64) -> Status {
    call(|| {
        let mut entered = handle::enter(channel)?;
        let channel = entered.get::<Channel>()?;
        either!(channel, engine => engine.abort())
            .map_err(|error: Error<ChannelError>| Failure::from(error))?;
        while either!(channel, engine => engine.next_completion()).is_some() {}
        Ok(())
    })
}
