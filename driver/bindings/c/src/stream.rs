//! AXI4-Stream channels: sending packets, and receiving them in place or into memory of the program.
//!
//! A received packet is borrowed from its stream until the next call. The handle cannot hold that borrow, so it keeps the addresses of the
//! packet's parts, which the card does not write until the next call posts their buffers again.

use core::ffi::c_int;

use fpga_driver::stream::{C2hStreamOptions, Packet, StreamError};
use fpga_driver::{C2hStream, Card, ChannelOptions, DmaBuffer, RunMode, TransferFailed, WaitOptions};

use crate::abi::{
    FPGA_RUN_DEFAULT, Status, fpga_piece, fpga_stream_options, fpga_stream_statistics, fpga_wait_options,
    zeroed,
};
use crate::call::{bytes, bytes_mut, copy_from, read_options, set, set_option, write_struct};
use crate::channel::{Channel, Engine, RECEIVING_MODE, Receiving, open, polling, run_mode, wait_options};
use crate::code::{Position, StatusCode};
use crate::error::Failure;
use crate::handle;
use crate::wait::with_wait;

/// Alignment in bytes of the length of a C2H stream's buffers (PG195).
const BUFFER_ALIGNMENT: usize = 64;

impl Receiving {
    fn length(&self) -> usize {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    /// Records the parts of a packet.
    fn record(&mut self, packet: &Packet<'_>) {
        self.pieces.extend(packet.parts().map(|part| (part.host_address(), part.len())));
    }
}

impl StatusCode for StreamError {
    fn status(&self) -> Status {
        match self {
            Self::Packet(_) => Status::Lost,
            Self::Fault(fault) => fault.status(),
            Self::Channel(error) => error.status(),
            Self::Posted { .. } => Status::InUse,
            Self::Stopped => Status::Stopped,
            Self::Submit(error) => error.status(),
            Self::BufferTooLarge { .. } => Status::Range,
            _ => Status::Internal,
        }
    }

    fn position(&self) -> Position {
        match self {
            Self::Fault(error) => error.position(),
            _ => Position::default(),
        }
    }
}

/// Takes a stream channel of a card.
fn take(card: &Card, h2c: bool, number: u8, options: &fpga_stream_options) -> Result<Engine, Failure> {
    let run_mode = match options.run_mode {
        FPGA_RUN_DEFAULT => None,
        mode => Some(run_mode(mode)?),
    };
    if h2c {
        let mut channel = ChannelOptions::default().run_mode(run_mode.unwrap_or(RunMode::Batch));
        set_option(&mut channel.descriptors, options.descriptors);
        set_option(&mut channel.transfers, options.packets);
        return Ok(Engine::H2cStream(card.h2c_stream_with(number, channel)?));
    }
    let mut stream = C2hStreamOptions::default();
    stream.run_mode = run_mode.unwrap_or(stream.run_mode);
    set_option(&mut stream.buffers, options.buffers);
    set_option(&mut stream.buffer_size, usize::try_from(options.buffer_size).unwrap_or(usize::MAX));
    Ok(Engine::C2hStream(Box::new(card.c2h_stream_with(number, stream)?)))
}

pub(crate) fn fpga_stream_open(
    card: u64,
    direction: i32,
    number: u32,
    options: *const fpga_stream_options,
    size: usize,
    out: *mut u64,
) -> Result<(), Failure> {
    open(card, direction, number, out, |card, h2c, number| {
        take(card, h2c, number, &read_options(options, size)?)
    })
}

/// Calls `body` with a C2H stream.
fn receiving<R>(
    channel: u64,
    body: impl FnOnce(&mut C2hStream, &mut Receiving, &Card) -> Result<R, Failure>,
) -> Result<R, Failure> {
    handle::with(channel, |channel: &mut Channel| receiver(channel, body))
}

fn receiver<R>(
    channel: &mut Channel,
    body: impl FnOnce(&mut C2hStream, &mut Receiving, &Card) -> Result<R, Failure>,
) -> Result<R, Failure> {
    match &mut channel.engine {
        Engine::C2hStream(stream) => body(stream, &mut channel.receiving, &channel.card),
        _ => Err(not_receiving()),
    }
}

fn not_receiving() -> Failure {
    Failure::argument("only a C2H stream receives packets")
}

/// As [`receiving`], for a wait.
fn waiting<R>(
    channel: u64,
    flag: *const c_int,
    body: impl FnOnce(&mut C2hStream, &mut Receiving, &Card) -> Result<R, Failure>,
) -> Result<R, Failure> {
    with_wait(channel, flag, |channel: &mut Channel| receiver(channel, body))
}

pub(crate) fn fpga_stream_send(
    channel: u64,
    data: *const u8,
    length: usize,
    timeout_ns: u64,
) -> Result<(), Failure> {
    let data = bytes(data, length)?;
    with_wait(channel, core::ptr::null(), |channel: &mut Channel| {
        let Engine::H2cStream(stream) = &mut channel.engine else {
            return Err(Failure::argument("only an H2C stream sends packets"));
        };
        if data.is_empty() {
            return Err(Failure::argument("a packet has at least one byte"));
        }
        let buffer = channel.card.buffer_from(data)?;
        stream.send_with(buffer, polling(timeout_ns)).map(drop).map_err(|failed| failed.error.into())
    })
}

pub(crate) fn fpga_stream_next(channel: u64, length: *mut usize) -> Result<(), Failure> {
    set(length, 0)?;
    receiving(channel, |stream, state, _| {
        advance(stream, state)?;
        set(length, state.length())
    })
}

/// Releases the current packet, and takes the next one.
fn advance(stream: &mut C2hStream, state: &mut Receiving) -> Result<(), Failure> {
    if let Some(failed) = state.failed.take() {
        return Err(failed);
    }
    if !core::mem::take(&mut state.is_pending) {
        state.pieces.clear();
        if let Some(packet) = stream.next_packet()? {
            state.record(&packet);
        } else {
            stream.relax();
        }
    }
    Ok(())
}

pub(crate) fn fpga_stream_wait(
    channel: u64,
    timeout_ns: u64,
    options: *const fpga_wait_options,
    size: usize,
    length: *mut usize,
) -> Result<(), Failure> {
    set(length, 0)?;
    let (wait, flag) = wait_options(timeout_ns, options, size)?;
    waiting(channel, flag, |stream, state, _| {
        if let Some(failed) = state.failed.take() {
            return Err(failed);
        }
        if !core::mem::take(&mut state.is_pending) {
            state.pieces.clear();
            let packet = stream.wait_packet(wait)?;
            state.record(&packet);
        }
        set(length, state.length())
    })
}

pub(crate) fn fpga_stream_pieces(
    channel: u64,
    pieces: *mut fpga_piece,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    set(count, 0)?;
    receiving(channel, |_, state, _| {
        let parts: &[(usize, usize)] = if state.is_pending { &[] } else { &state.pieces };
        for (index, &(address, length)) in parts.iter().take(capacity).enumerate() {
            let piece = fpga_piece { data: core::ptr::with_exposed_provenance(address), length };
            if pieces.is_null() {
                return Err(Failure::null("the array of parts"));
            }
            set(pieces.wrapping_add(index), piece)?;
        }
        set(count, parts.len())
    })
}

pub(crate) fn fpga_stream_copy(
    channel: u64,
    offset: usize,
    data: *mut u8,
    length: usize,
) -> Result<(), Failure> {
    let into = bytes_mut(data, length)?;
    receiving(channel, |_, state, _| {
        let whole = if state.is_pending { 0 } else { state.length() };
        if offset.checked_add(length).is_none_or(|end| end > whole) {
            let text = format!("{length} bytes at {offset} are not inside the packet of {whole} bytes");
            return Err(Failure::of(Status::Range, &text));
        }
        let (mut skip, mut rest) = (offset, into);
        for &(address, length) in &state.pieces {
            let from = skip.min(length);
            skip -= from;
            let count = (length - from).min(rest.len());
            let (now, later) = rest.split_at_mut(count);
            copy_from(address + from, now);
            rest = later;
        }
        Ok(())
    })
}

pub(crate) fn fpga_stream_release(channel: u64) -> Result<(), Failure> {
    receiving(channel, |stream, state, _| {
        if state.is_pending || state.pieces.is_empty() {
            return Ok(());
        }
        // The driver posts the buffers when it looks for the next packet, which is kept for the next call.
        match advance(stream, state) {
            Ok(()) => state.is_pending = !state.pieces.is_empty(),
            Err(failed) => state.failed = Some(failed),
        }
        Ok(())
    })
}

pub(crate) fn fpga_stream_receive(
    channel: u64,
    data: *mut u8,
    capacity: usize,
    timeout_ns: u64,
    length: *mut usize,
) -> Result<(), Failure> {
    set(length, 0)?;
    let into = bytes_mut(data, capacity)?;
    waiting(channel, core::ptr::null(), |stream, state, card| {
        if !state.is_received {
            state.buffer = Some(receive(stream, state, card, capacity, polling(timeout_ns))?);
            (state.is_posted, state.is_received) = (false, true);
        }
        let Some(buffer) = &state.buffer else { return Err(Status::Internal.into()) };
        set(length, buffer.len())?;
        let Some(into) = into.get_mut(..buffer.len()) else {
            let text = format!("the packet has {} bytes, and there is space for {capacity}", buffer.len());
            return Err(Failure::of(Status::Range, &text).advise("call again with more memory"));
        };
        buffer.read(0, into).map_err(|error| Failure::argument(&error.to_string()))?;
        state.is_received = false;
        Ok(())
    })
}

/// Receives one packet into the posted buffer, or into a new one. After a failure, the buffer stays in `state`, or stays posted.
fn receive(
    stream: &mut C2hStream,
    state: &mut Receiving,
    card: &Card,
    capacity: usize,
    wait: WaitOptions,
) -> Result<DmaBuffer, Failure> {
    let received = if state.is_posted {
        stream.wait_received(wait)
    } else {
        let size = capacity.max(1).checked_next_multiple_of(BUFFER_ALIGNMENT).unwrap_or(usize::MAX);
        let buffer = match state.buffer.take().filter(|buffer| buffer.capacity() == size) {
            Some(buffer) => buffer,
            None => card.buffer(size)?,
        };
        stream.receive_with(buffer, wait)
    };
    received.map_err(|TransferFailed { error, buffer }| {
        // Only a wait that ends early leaves the buffer posted.
        state.is_posted = buffer.is_none() && matches!(error.kind, StreamError::Channel(_));
        state.buffer = buffer;
        error.into()
    })
}

pub(crate) fn fpga_stream_stop(channel: u64) -> Result<(), Failure> {
    handle::with_claimed_in(channel, RECEIVING_MODE, not_receiving, |channel: &mut Channel| {
        receiver(channel, |stream, _, _| Ok(stream.stop()?))
    })
}

/// Stops the stream and drops what was posted.
pub(crate) fn abort(stream: &mut C2hStream, state: &mut Receiving) -> Result<(), Failure> {
    *state = Receiving::default();
    drop(stream.abort()?);
    Ok(())
}

pub(crate) fn fpga_stream_get_statistics(
    channel: u64,
    statistics: *mut fpga_stream_statistics,
    size: usize,
) -> Result<(), Failure> {
    handle::with(channel, |channel: &mut Channel| {
        let mut found = zeroed::<fpga_stream_statistics>();
        match &channel.engine {
            Engine::H2cStream(stream) => {
                let counted = stream.statistics();
                (found.packets, found.refused, found.still) =
                    (counted.packets, counted.refused, counted.still);
                found.posted = stream.in_flight().into();
            }
            Engine::C2hStream(stream) => {
                let counted = stream.statistics();
                (found.packets, found.bytes) = (counted.packets, counted.bytes);
                (found.lost, found.discarded_bytes) = (counted.lost, counted.discarded_bytes);
                found.starved = counted.starved;
                found.posted = stream.posted().into();
            }
            _ => return Err(Failure::argument("the channel is not a stream")),
        }
        write_struct(statistics, size, &found)
    })
}

pub(crate) fn fpga_set_write_flush_timeout(card: u64, exponent: u32) -> Result<(), Failure> {
    let card = handle::card(card)?;
    Ok(card.set_write_flush_timeout(u8::try_from(exponent).unwrap_or(u8::MAX))?)
}
