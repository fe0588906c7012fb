//! Transfers: blocking copies, and submission of transfers that need no copy.

use fpga_driver::{
    Card, CardAddr, Direction, Error, ScatterGatherEntry, Ticket, TransferError, bulk, stream::PacketFragment,
};
use fpga_pci::Bounced;

use crate::abi::{Status, fpga_segment, fpga_wait_options};
use crate::call::{array, bytes, bytes_mut, set, set_if};
use crate::channel::{Channel, Engine, each, receives, wait_options};
use crate::error::Failure;
use crate::handle;
use crate::wait::with_wait;

pub(crate) fn fpga_write(
    channel: u64,
    card_address: u64,
    data: *const u8,
    length: usize,
    timeout_ns: u64,
) -> Result<(), Failure> {
    fpga_write_with(channel, card_address, data, length, timeout_ns, core::ptr::null(), 0)
}

/// Returns the card and the engine for a blocking copy. A copy that ends early aborts the engine, so no submitted transfer may be in flight.
fn for_copy<'a>(
    channel: &'a mut Channel,
    direction: Direction,
    other_kind: &str,
) -> Result<(&'a Card, &'a mut fpga_driver::Channel), Failure> {
    match channel {
        Channel { card, engine: Engine::Memory(engine), .. } if engine.name().direction == direction => {
            if engine.in_flight() == 0 || engine.is_stopping() {
                return Ok((card, engine));
            }
            let text = "submitted transfers are in flight: wait for them, or abort them, first";
            Err(Failure::of(Status::InUse, text))
        }
        _ => Err(Failure::argument(other_kind)),
    }
}

pub(crate) fn fpga_write_with(
    channel: u64,
    card_address: u64,
    data: *const u8,
    length: usize,
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
) -> Result<(), Failure> {
    let (wait, flag) = wait_options(timeout_ns, options, size)?;
    let mut source = Bounced::new(bytes(data, length)?);
    with_wait(channel, flag, |channel: &mut Channel| {
        let other_kind = "only a memory-mapped H2C channel can write";
        let (card, engine) = for_copy(channel, Direction::H2c, other_kind)?;
        let to = CardAddr::new(card_address);
        Ok(bulk::write_from(card, engine, &mut source, to, length as u64, wait, &mut |_| {})?)
    })
}

pub(crate) fn fpga_read(
    channel: u64,
    card_address: u64,
    data: *mut u8,
    length: usize,
    timeout_ns: u64,
) -> Result<(), Failure> {
    fpga_read_with(channel, card_address, data, length, timeout_ns, core::ptr::null(), 0)
}

pub(crate) fn fpga_read_with(
    channel: u64,
    card_address: u64,
    data: *mut u8,
    length: usize,
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
) -> Result<(), Failure> {
    let (wait, flag) = wait_options(timeout_ns, options, size)?;
    let mut sink = Bounced::new(std::io::Cursor::new(bytes_mut(data, length)?));
    with_wait(channel, flag, |channel: &mut Channel| {
        let other_kind = "only a memory-mapped C2H channel can read";
        let (card, engine) = for_copy(channel, Direction::C2h, other_kind)?;
        let from = CardAddr::new(card_address);
        Ok(bulk::read_into(card, engine, from, length as u64, &mut sink, wait, &mut |_| {})?)
    })
}

#[inline]
pub(crate) fn fpga_submit(
    channel: u64,
    buffer: u64,
    offset: usize,
    length: usize,
    card_address: u64,
    ticket: *mut u64,
) -> Result<(), Failure> {
    let own = channel;
    set_if(ticket, u64::MAX)?;
    handle::with(channel, |channel: &mut Channel| {
        let memory = channel.memory(own, buffer)?;
        let address = CardAddr::new(card_address);
        let submitted = match &mut channel.engine {
            Engine::Memory(engine) => engine.submit_at(memory, offset, length, address)?,
            Engine::H2cStream(engine) => engine.submit_at(memory, offset, length)?,
            Engine::C2hStream(_) => return Err(receives()),
        };
        set_if(ticket, submitted.number())
    })
}

#[inline]
pub(crate) fn fpga_submit_list(
    channel: u64,
    segments: *const fpga_segment,
    count: usize,
    ticket: *mut u64,
) -> Result<(), Failure> {
    let own = channel;
    set_if(ticket, u64::MAX)?;
    let segments = array(segments, count)?;
    handle::with(channel, |channel: &mut Channel| {
        let (mut list, mut fragments) =
            (core::mem::take(&mut channel.list), core::mem::take(&mut channel.fragments));
        let submitted = submit_list(channel, own, segments, &mut list, &mut fragments);
        (channel.list, channel.fragments) = (list, fragments);
        set_if(ticket, submitted?.number())
    })
}

fn submit_list(
    channel: &mut Channel,
    own: u64,
    segments: &[fpga_segment],
    list: &mut Vec<ScatterGatherEntry>,
    fragments: &mut Vec<PacketFragment>,
) -> Result<Ticket, Failure> {
    list.clear();
    fragments.clear();
    let is_stream = matches!(channel.engine, Engine::H2cStream(_));
    for &fpga_segment { buffer, offset, length, card_address } in segments {
        let memory = channel.memory(own, buffer)?;
        if is_stream {
            fragments.push(PacketFragment { memory, offset, length });
        } else {
            list.push(ScatterGatherEntry { memory, offset, length, card: CardAddr::new(card_address) });
        }
    }
    Ok(match &mut channel.engine {
        Engine::Memory(engine) => engine.submit_list(list)?,
        Engine::H2cStream(engine) => engine.submit_list(fragments)?,
        Engine::C2hStream(_) => return Err(receives()),
    })
}

#[inline]
pub(crate) fn fpga_poll(channel: u64, ended: *mut usize) -> Result<(), Failure> {
    set_if(ended, 0)?;
    handle::with(channel, |channel: &mut Channel| {
        let count = each!(&mut channel.engine, engine => {
            let count = engine.poll()?;
            if count == 0 {
                engine.relax();
            }
            count
        });
        set_if(ended, count)
    })
}

pub(crate) fn fpga_wait(channel: u64, ticket: u64, timeout_ns: u64) -> Result<(), Failure> {
    fpga_wait_with(channel, ticket, timeout_ns, core::ptr::null(), 0)
}

pub(crate) fn fpga_wait_with(
    channel: u64,
    ticket: u64,
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
) -> Result<(), Failure> {
    let (wait, flag) = wait_options(timeout_ns, options, size)?;
    with_wait(channel, flag, |channel: &mut Channel| {
        let ticket = Ticket::from_number(ticket);
        each!(&mut channel.engine, engine => engine.wait_ended(ticket, wait))?;
        match channel.collect_failures()? {
            Some(fault) => Err(fault.widen::<TransferError>().into()),
            None => Ok(()),
        }
    })
}

pub(crate) fn fpga_next_failure(channel: u64, ticket: *mut u64) -> Result<(), Failure> {
    set(ticket, u64::MAX)?;
    handle::with(channel, |channel: &mut Channel| {
        channel.collect_failures()?;
        let Some((failed, fault)) = channel.failures.take() else { return Ok(()) };
        set(ticket, failed)?;
        let fault: Error<TransferError> = fault.widen();
        Err(fault.into())
    })
}

#[inline]
pub(crate) fn fpga_progress(channel: u64, ended: *mut u64, in_flight: *mut u32) -> Result<(), Failure> {
    set_if(ended, 0)?;
    set_if(in_flight, 0)?;
    handle::with(channel, |channel: &mut Channel| {
        let counts = each!(&channel.engine, engine => (engine.ended(), engine.in_flight()));
        set_if(ended, counts.0)?;
        set_if(in_flight, counts.1)
    })
}

pub(crate) fn fpga_cancel(channel: u64, ticket: u64, cancelled: *mut u32) -> Result<(), Failure> {
    set_if(cancelled, 0)?;
    handle::with_claimed(channel, |channel: &mut Channel| {
        let ticket = Ticket::from_number(ticket);
        let did = each!(&mut channel.engine, engine => engine.cancel(ticket))?;
        set_if(cancelled, did.into())
    })
}

pub(crate) fn fpga_abort(channel: u64) -> Result<(), Failure> {
    handle::with_claimed(channel, |channel: &mut Channel| {
        if let Engine::C2hStream(engine) = &mut channel.engine {
            return crate::stream::abort(engine, &mut channel.receiving);
        }
        each!(&mut channel.engine, engine => engine.abort())?;
        while each!(&mut channel.engine, engine => engine.next_completion()).is_some() {}
        Ok(())
    })
}
