//! Transfers between the memory of a program and a channel.
//!
//! The data passes through registered memory of the channel: four slots, so that one is copied while the engine works on others.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use fpga_driver::{
    C2hStream, Card, CardAddr, ChannelError, ChannelOptions, Direction, H2cStream, MemoryHandle, Ticket,
    WaitOptions,
};
use fpga_pci::SharedSlice;
use rustix::io::Errno;

use crate::events::SIGNAL_CHECK;
use crate::memory::{Memory, Part};
use crate::process::Wait;

/// Bytes of a slot.
const SLOT_BYTES: usize = 256 << 10;
/// Number of slots.
const SLOTS: usize = 4;
/// Maximum duration of a call during which no other thread of the supervisor receives calls.
const MAX_SHORT_CALL: Duration = Duration::from_micros(100);
/// Maximum length of a stream packet: what one descriptor can transfer (PG195, "Descriptors": 28 bits), rounded down to a page.
const MAX_PACKET: u64 = (1 << 28) - 4096;

/// Failed transfer.
#[derive(Debug)]
pub(crate) enum TransferError {
    /// The program's arguments are wrong.
    Refused(Errno),
    /// A signal arrived, or the program has ended. The transfer was stopped.
    Interrupted,
    /// The card or the driver reports an error.
    Failed(String),
}

impl From<Errno> for TransferError {
    fn from(error: Errno) -> Self {
        Self::Refused(error)
    }
}

/// Formats an error of the driver with its causes.
fn failed(error: &dyn core::error::Error) -> TransferError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    TransferError::Failed(text)
}

/// Parameters of a call.
pub(crate) struct Request<'a> {
    /// Memory of the program.
    pub(crate) memory: Memory<'a>,
    /// Parts of it, in order.
    pub(crate) parts: &'a [Part],
    /// Card address of the first byte.
    pub(crate) address: u64,
    /// Maximum duration.
    pub(crate) timeout: Duration,
    /// Signals that end a wait early.
    pub(crate) wait: Option<Wait<'a>>,
    /// Called before a wait that may take long.
    pub(crate) blocks: &'a mut dyn FnMut(),
}

/// DMA channel of a card, opened by its first transfer.
#[derive(Debug)]
pub(crate) struct Channel {
    direction: Direction,
    number: u8,
    /// Every beat has the same card address (`IOCTL_XDMA_ADDRMODE_SET`).
    pub(crate) fixed: bool,
    engine: Option<Box<Engine>>,
    /// C2H stream: rest of a packet that no program has received yet.
    rest: VecDeque<u8>,
}

#[derive(Debug)]
enum Engine {
    Memory(Mapped),
    Send(H2cStream),
    Receive(Box<C2hStream>),
}

/// Part of the registered memory.
#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: usize,
    length: usize,
}

/// Waits for a ticket. After [`MAX_SHORT_CALL`], another thread receives calls.
macro_rules! wait_for {
    ($channel:expr, $ticket:expr, $request:expr, $is_interrupted:expr) => {{
        let begun = Instant::now();
        loop {
            $channel.poll().map_err(|error| failed(&error))?;
            if $channel.has_ended($ticket) {
                break;
            }
            if begun.elapsed() <= MAX_SHORT_CALL {
                $channel.relax();
                continue;
            }
            ($request.blocks)();
            let left = $request.timeout.saturating_sub(begun.elapsed());
            match $channel.wait_ended($ticket, WaitOptions::default().timeout(left.min(SIGNAL_CHECK))) {
                Ok(_) => break,
                Err(error)
                    if matches!(error.kind, ChannelError::TimedOut { .. })
                        && begun.elapsed() < $request.timeout => {}
                Err(error) => return Err(failed(&error)),
            }
            if $is_interrupted($request) {
                return Err(TransferError::Interrupted);
            }
        }
        // Successes of registered memory are only counted.
        let mut outcome = Ok(());
        while let Some(completion) = $channel.next_completion() {
            if let (Err(fault), true) = (completion.outcome, outcome.is_ok()) {
                outcome = Err(failed(&fault));
            }
        }
        outcome
    }};
}

/// Memory-mapped channel and its registered memory.
#[derive(Debug)]
struct Mapped(fpga_driver::Channel, MemoryHandle);

impl Mapped {
    fn bytes(&self, slot: Slot) -> Option<SharedSlice<'_>> {
        self.0.memory(self.1)?.slice(slot.offset, slot.length).ok()
    }

    fn start(&mut self, slot: Slot, at: CardAddr) -> Result<Ticket, TransferError> {
        let ticket =
            self.0.submit_at(self.1, slot.offset, slot.length, at).map_err(|error| failed(&error))?;
        self.0.poll().map_err(|error| failed(&error))?;
        Ok(ticket)
    }

    fn end(&mut self, ticket: Ticket, request: &mut Request<'_>) -> Result<(), TransferError> {
        // A signal does not stop it: the card ends it soon.
        wait_for!(self.0, ticket, request, |request: &mut Request<'_>| {
            request.wait.as_ref().is_some_and(Wait::has_ended)
        })
    }

    /// Stops everything in flight.
    fn stop(&mut self) {
        if let Err(error) = self.0.abort() {
            tracing::warn!(channel = %self.0.name(), error = %error, "the engine cannot be stopped");
        }
        while self.0.next_completion().is_some() {}
    }
}

impl Channel {
    pub(crate) const fn new(direction: Direction, number: u8) -> Self {
        Self { direction, number, fixed: false, engine: None, rest: VecDeque::new() }
    }

    /// Sets whether every beat has the same card address.
    pub(crate) fn set_fixed(&mut self, fixed: bool) {
        if self.fixed != fixed {
            self.fixed = fixed;
            // The next transfer opens the channel with the other mode.
            self.engine = None;
        }
    }

    /// Moves the parts of the request to the card (H2C) or from it (C2H). Returns the number of bytes moved: those of the whole request, or,
    /// from a stream, those up to the end of the packet.
    ///
    /// # Errors
    /// [`TransferError`]. After a failure the engine is idle and the next request starts anew.
    pub(crate) fn transfer(&mut self, card: &Card, request: &mut Request<'_>) -> Result<u64, TransferError> {
        let engine = match &mut self.engine {
            Some(engine) => engine,
            None => {
                let engine = self.open(card)?;
                self.engine.insert(Box::new(engine))
            }
        };
        let batches = Batches { parts: request.parts, taken: 0, address: request.address, fixed: self.fixed };
        let result = match &mut **engine {
            Engine::Memory(channel) if self.direction == Direction::H2c => write(channel, batches, request),
            Engine::Memory(channel) => read(channel, batches, request),
            Engine::Send(stream) => send(stream, card, request),
            Engine::Receive(stream) => receive(stream, &mut self.rest, request),
        };
        if matches!(result, Err(TransferError::Failed(_) | TransferError::Interrupted)) {
            // Dropping it stops the engine; its next user gets a fresh one.
            self.engine = None;
        }
        result
    }

    /// Whether bytes of a packet remain that no program has received yet.
    pub(crate) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Removes bytes that a program has received.
    pub(crate) fn take_rest(&mut self, length: u64) {
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(self.rest.len());
        self.rest.drain(..length);
    }

    /// Transfers `size` bytes of unspecified content at card address 0, or as a packet.
    pub(crate) fn repeat(&mut self, card: &Card, size: u32, timeout: Duration) -> Result<(), TransferError> {
        let mut bytes = vec![0_u8; usize::try_from(size).unwrap_or(0)];
        let own = Part { address: bytes.as_mut_ptr().expose_provenance() as u64, length: size.into() };
        let mut request = Request {
            memory: Memory::own(),
            parts: &[own],
            address: 0,
            timeout,
            wait: None,
            blocks: &mut || (),
        };
        let moved = self.transfer(card, &mut request)?;
        self.take_rest(moved);
        Ok(())
    }

    fn open(&self, card: &Card) -> Result<Engine, TransferError> {
        let number = self.number;
        let options = ChannelOptions::default().fixed_address(self.fixed);
        Ok(match (self.direction, card.info().xdma.stream) {
            (direction, false) => {
                let mut channel = card.channel(direction, number, options).map_err(|error| failed(&error))?;
                let memory = card.registered_memory(SLOT_BYTES * SLOTS).map_err(|error| failed(&error))?;
                let memory = channel.register_memory(memory).map_err(|refused| failed(&refused.error))?;
                Engine::Memory(Mapped(channel, memory))
            }
            (Direction::H2c, true) => Engine::Send(card.h2c_stream(number).map_err(|error| failed(&error))?),
            (Direction::C2h, true) => {
                let stream = card.c2h_stream(number).map_err(|error| failed(&error))?;
                Engine::Receive(Box::new(stream))
            }
        })
    }
}

/// Parts of the program's memory that share a slot, in order.
#[derive(Debug)]
struct Batch {
    parts: Vec<Part>,
    length: u64,
    /// Card address of the first byte.
    card: CardAddr,
}

/// Parts of a request, slot by slot.
struct Batches<'a> {
    parts: &'a [Part],
    /// Bytes of the first part that earlier slots contain.
    taken: u64,
    address: u64,
    /// Whether every slot has the same card address.
    fixed: bool,
}

impl Iterator for Batches<'_> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let mut batch = Batch { parts: Vec::new(), length: 0, card: CardAddr::new(self.address) };
        while let Some((part, rest)) = self.parts.split_first() {
            let length = (part.length - self.taken).min(SLOT_BYTES as u64 - batch.length);
            if length > 0 {
                batch.parts.push(Part { address: part.address.wrapping_add(self.taken), length });
                batch.length += length;
                self.taken += length;
            }
            if self.taken < part.length {
                break;
            }
            (self.parts, self.taken) = (rest, 0);
        }
        if !self.fixed {
            self.address = self.address.wrapping_add(batch.length);
        }
        (batch.length > 0).then_some(batch)
    }
}

/// Slot number `number`, as far as `length` bytes need it.
fn slot(number: usize, length: u64) -> Slot {
    Slot {
        offset: number % SLOTS * SLOT_BYTES,
        length: usize::try_from(length).unwrap_or(SLOT_BYTES).min(SLOT_BYTES),
    }
}

fn write(
    channel: &mut Mapped,
    batches: Batches<'_>,
    request: &mut Request<'_>,
) -> Result<u64, TransferError> {
    let mut in_flight = VecDeque::with_capacity(SLOTS);
    let (mut done, mut refused) = (0, None);
    let result = (|| {
        for (number, batch) in batches.enumerate() {
            if in_flight.len() == SLOTS
                && let Some((ticket, length)) = in_flight.pop_front()
            {
                channel.end(ticket, request)?;
                done += length;
            }
            let bytes = channel.bytes(slot(number, batch.length)).ok_or(Errno::NOMEM)?;
            let length = match request.memory.gather(&batch.parts, bytes) {
                Ok(length) => length,
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            };
            in_flight.push_back((channel.start(slot(number, length), batch.card)?, length));
            if length < batch.length {
                refused = Some(Errno::FAULT);
                break;
            }
        }
        for (ticket, length) in in_flight.drain(..) {
            channel.end(ticket, request)?;
            done += length;
        }
        Ok(())
    })();
    end(channel, result, done, refused)
}

fn read(channel: &mut Mapped, batches: Batches<'_>, request: &mut Request<'_>) -> Result<u64, TransferError> {
    let mut in_flight: VecDeque<(Ticket, Slot, Batch)> = VecDeque::with_capacity(SLOTS);
    let (mut done, mut refused) = (0, None);
    let result = (|| {
        let mut batches = batches.enumerate();
        loop {
            while in_flight.len() < SLOTS
                && refused.is_none()
                && let Some((number, batch)) = batches.next()
            {
                let slot = slot(number, batch.length);
                in_flight.push_back((channel.start(slot, batch.card)?, slot, batch));
            }
            let Some((ticket, slot, batch)) = in_flight.pop_front() else { return Ok(()) };
            channel.end(ticket, request)?;
            if refused.is_none() {
                let bytes = channel.bytes(slot).ok_or(Errno::NOMEM)?;
                match request.memory.scatter(&batch.parts, bytes) {
                    Ok(length) => {
                        done += length;
                        refused = (length < batch.length).then_some(Errno::FAULT);
                    }
                    Err(error) => refused = Some(error),
                }
            }
        }
    })();
    end(channel, result, done, refused)
}

/// Result of a transfer in slots: an incomplete one is a success, as for every file.
fn end(
    channel: &mut Mapped,
    result: Result<(), TransferError>,
    done: u64,
    refused: Option<Errno>,
) -> Result<u64, TransferError> {
    if let Err(error) = result {
        channel.stop();
        return Err(error);
    }
    match refused {
        Some(error) if done == 0 => Err(error.into()),
        _ => Ok(done),
    }
}

/// Sends the parts as one packet.
fn send(stream: &mut H2cStream, card: &Card, request: &mut Request<'_>) -> Result<u64, TransferError> {
    let length: u64 = request.parts.iter().map(|part| part.length).sum();
    if length == 0 {
        return Ok(0);
    }
    let bytes = usize::try_from(length).ok().filter(|_| length <= MAX_PACKET).ok_or(Errno::INVAL)?;
    let buffer = card.buffer_for(Direction::H2c, bytes).map_err(|error| failed(&error))?;
    let view = buffer.memory().slice(0, bytes).map_err(|_| Errno::NOMEM)?;
    if request.memory.gather(request.parts, view)? < length {
        return Err(Errno::FAULT.into());
    }
    let ticket = stream.submit(buffer).map_err(|refused| failed(&refused.error))?;
    // The other side of a stream may never take it.
    wait_for!(stream, ticket, request, |request: &mut Request<'_>| {
        request.wait.as_mut().and_then(Wait::interruption).is_some()
    })
    .map(|()| length)
}

/// Receives one packet, or as much of it as fits into the parts; the next call continues. Its bytes remain in `rest`.
fn receive(
    stream: &mut C2hStream,
    rest: &mut VecDeque<u8>,
    request: &mut Request<'_>,
) -> Result<u64, TransferError> {
    if rest.is_empty() {
        let begun = Instant::now();
        loop {
            if let Some(packet) = stream.next_packet().map_err(|error| failed(&error))? {
                rest.extend(packet.to_vec());
                break;
            }
            if begun.elapsed() <= MAX_SHORT_CALL {
                stream.relax();
                continue;
            }
            (request.blocks)();
            let left = request.timeout.saturating_sub(begun.elapsed());
            match stream.wait_packet(WaitOptions::default().timeout(left.min(SIGNAL_CHECK))) {
                Ok(packet) => {
                    rest.extend(packet.to_vec());
                    if request.wait.as_ref().is_some_and(Wait::is_killed) {
                        // The next reader gets it.
                        return Err(Errno::INTR.into());
                    }
                    break;
                }
                Err(error) if error.is_timeout() && begun.elapsed() < request.timeout => {}
                Err(error) => return Err(failed(&error)),
            }
            if let Some(error) = request.wait.as_mut().and_then(Wait::interruption) {
                return Err(error.into());
            }
        }
    }
    let mut done = 0_usize;
    for part in request.parts {
        let length = usize::try_from(part.length).unwrap_or(usize::MAX).min(rest.len() - done);
        let bytes: Vec<u8> = rest.iter().skip(done).take(length).copied().collect();
        match request.memory.write(part.address, &bytes) {
            Ok(()) => done += length,
            Err(Errno::FAULT) if done > 0 => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done as u64)
}
