//! Long transfers between a byte stream (a file) and card memory, in chunks, several of them in flight.
//!
//! The channel should be idle at the start: after an error, everything in flight on it is aborted and dropped.
//!
//! The whole range of card addresses is checked before the first byte is read from the source or the card. If the size of the card's memory
//! is not known, only ranges beyond the address space are refused in advance ([`H2cChannel::check_range`](crate::H2cChannel::check_range)).
//! The length of [`write_to_end`] is not known in advance: it stops at the end of the memory, and its error has the number of bytes
//! written.

use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use fpga_pci::{Deadline, DmaBuffer, ReadVolatile, SharedSlice, WriteVolatile};
use fpga_registers::xdma::Direction;
use fpga_registers::{CardAddr, quantity};

use crate::advice::Advice;
use crate::card::Card;
use crate::channel::{Channel, Completion, Engine, FromCard, Ticket, ToCard, WaitOptions};
use crate::error::{At, ChannelError, Error, ErrorKind, ResourceError, SubmitError};
use crate::fault::ChannelFault;

/// Size of a chunk in bytes: long enough that the cost of a descriptor is negligible, short enough to overlap with the file's I/O.
const CHUNK_BYTES: usize = 1 << 20;
/// Number of chunks in flight.
const DEPTH: usize = 4;

/// Error of a long transfer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// Reading the source or writing the sink failed.
    #[error("after {done}: {cause}", done = quantity(*done, "byte"))]
    Stream {
        /// Bytes moved before the error.
        done: u64,
        /// Underlying error.
        cause: io::Error,
    },
    /// The source ended early.
    #[error(
        "the source ended after {done} of {length}: it was shortened meanwhile",
        length = quantity(*length, "byte"),
    )]
    Short {
        /// Bytes that the source provided.
        done: u64,
        /// Expected number of bytes.
        length: u64,
    },
    /// The source has more bytes than the card memory behind the start address. The bytes that fit were written.
    #[error(
        "the source has more bytes than fit: {done} written, from card address {start} to the end of the card's memory",
        done = quantity(*done, "byte"),
    )]
    NoFreeSlot {
        /// First card address.
        start: CardAddr,
        /// Number of bytes written.
        done: u64,
    },
    /// DMA memory cannot be allocated.
    #[error(transparent)]
    Memory(#[from] ResourceError),
    /// A chunk was refused.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A chunk failed.
    #[error("after {}, and possibly a part of the next {length}: {cause}", quantity(*done, "byte"))]
    Fault {
        /// Bytes of the complete chunks before it.
        done: u64,
        /// Length in bytes of the chunk, of which an unknown part was moved.
        length: usize,
        /// Reason, with the position in the chunk.
        cause: ChannelFault,
    },
    /// The channel has failed, or the wait timed out or was cancelled.
    #[error("after {}, and possibly a part of the following data: {cause}", quantity(*done, "byte"))]
    Channel {
        /// Bytes of the complete chunks before it.
        done: u64,
        /// Reason.
        cause: ChannelError,
    },
}

impl ErrorKind for BulkError {
    fn advice(&self) -> Option<Advice> {
        match self {
            Self::NoFreeSlot { .. } => Some(Advice::text("choose a lower address, or a shorter source")),
            Self::Memory(error) => error.advice(),
            Self::Submit(error) => error.advice(),
            Self::Fault { cause, .. } => cause.advice(),
            Self::Channel { cause, .. } => cause.advice(),
            Self::Stream { .. } | Self::Short { .. } => None,
        }
    }

    fn names_place(&self) -> bool {
        // The caller's stream is not a part of the card.
        matches!(self, Self::Stream { .. } | Self::Short { .. })
    }
}

/// Functions that a long transfer calls while it lasts.
pub struct Beside<'a> {
    /// Called with the number of bytes that have arrived.
    pub progress: &'a mut dyn FnMut(u64),
    /// Called between two polls of the channel, for work that must not wait for the transfer, such as
    /// `Endpoint::poll`. Returns whether there was any; if not, the wait for the channel backs off.
    pub between_polls: &'a mut dyn FnMut() -> bool,
}

impl core::fmt::Debug for Beside<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Beside").finish_non_exhaustive()
    }
}

impl<'a> Beside<'a> {
    /// Only `progress`, and nothing between polls.
    fn alone(progress: &'a mut dyn FnMut(u64), nothing: &'a mut dyn FnMut() -> bool) -> Self {
        Self { progress, between_polls: nothing }
    }
}

/// Chunk in flight, with its position in the stream.
struct BulkChunk {
    ticket: Ticket,
    length: usize,
}

/// Returns the buffer of a completion for the next chunk, or its error; `done`: bytes of the chunks before it.
fn buffer_of(completion: Completion, chunk: &BulkChunk, done: u64) -> Result<DmaBuffer, BulkError> {
    match (completion.outcome, completion.buffer) {
        (Ok(_), Some(buffer)) => Ok(buffer),
        (Err(fault), _) => Err(BulkError::Fault { done, length: chunk.length, cause: fault.kind }),
        (Ok(bytes), None) => Err(BulkError::Short { done, length: done.saturating_add(bytes) }),
    }
}

/// Allocates buffers for up to [`DEPTH`] chunks of a transfer of `length` bytes.
fn buffers(card: &Card, direction: Direction, length: u64) -> Result<Vec<DmaBuffer>, BulkError> {
    let count = usize::try_from(length.div_ceil(CHUNK_BYTES as u64)).unwrap_or(DEPTH).min(DEPTH);
    let size = usize::try_from(length).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
    (0..count).map(|_| card.buffer_for(direction, size).map_err(|error| error.kind.into())).collect()
}

/// Writes `length` bytes of `source` to card memory from `to`. `options` apply to the wait for each chunk; [`WaitOptions::total`] limits
/// the waits for all chunks together. `progress` is called with the number of bytes that have arrived.
///
/// Files, pipes and sockets are read directly into DMA memory. A slice is also a source: `&mut &bytes[..]`. [`Bounced`](fpga_pci::Bounced)
/// turns any other [`std::io::Read`] into one.
///
/// # Errors
/// See [`BulkError`]. A range that is not inside the card's memory is refused before anything is read or written. After any other error,
/// data that has arrived stays in card memory. All buffers are returned, and the channel can be used again unless the error says otherwise.
pub fn write_from(
    card: &Card,
    channel: &mut Channel<impl ToCard>,
    source: &mut (impl ReadVolatile + ?Sized),
    to: CardAddr,
    length: u64,
    options: WaitOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error<BulkError>> {
    write_beside(card, channel, source, to, length, options, Beside::alone(progress, &mut || false))
}

/// As [`write_from`], and does other work of the calling thread between polls.
///
/// # Errors
/// As [`write_from`].
pub fn write_beside(
    card: &Card,
    channel: &mut Channel<impl ToCard>,
    source: &mut (impl ReadVolatile + ?Sized),
    to: CardAddr,
    length: u64,
    options: WaitOptions,
    beside: Beside<'_>,
) -> Result<(), Error<BulkError>> {
    let fill = |buffer: &mut DmaBuffer, sent| match source.read_exact_volatile(buffer.memory()) {
        Ok(()) => Ok(buffer.len()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(BulkError::Short { done: sent, length })
        }
        Err(source) => Err(BulkError::Stream { done: sent, cause: source }),
    };
    checked(&channel.0, Direction::H2c, to, length)
        .and_then(|()| pieces(card, &mut channel.0, to, length, options, fill, |_, _| Ok(()), beside))
        .map(drop)
        .at(|| channel.0.place())
}

/// Writes the bytes of `source`, up to its end, to card memory from `to`, and returns their number. For a source of unknown length, such as
/// a pipe.
///
/// # Errors
/// As [`write_from`]; [`BulkError::NoFreeSlot`] if the source has more bytes when the card's memory is full.
pub fn write_to_end(
    card: &Card,
    channel: &mut Channel<impl ToCard>,
    source: &mut (impl ReadVolatile + ?Sized),
    to: CardAddr,
    options: WaitOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, Error<BulkError>> {
    fill_memory(card, channel, source, to, options, progress).at(|| channel.0.place())
}

fn fill_memory(
    card: &Card,
    channel: &mut Channel<impl ToCard>,
    source: &mut (impl ReadVolatile + ?Sized),
    to: CardAddr,
    options: WaitOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, BulkError> {
    checked(&channel.0, Direction::H2c, to, 1)?;
    let room = channel.0.bytes_to_range_end(to);
    let fill = |buffer: &mut DmaBuffer, sent| {
        read_up_to(source, buffer.memory()).map_err(|source| BulkError::Stream { done: sent, cause: source })
    };
    let mut nothing = || false;
    let beside = Beside::alone(progress, &mut nothing);
    let done = pieces(card, &mut channel.0, to, room, options, fill, |_, _| Ok(()), beside)?;
    if done < room {
        return Ok(done);
    }
    let probe = card.buffer_for(Direction::H2c, 1).map_err(|error| error.kind)?;
    match read_up_to(source, probe.memory()) {
        Ok(0) => Ok(done),
        Ok(_) => Err(BulkError::NoFreeSlot { start: to, done }),
        Err(source) => Err(BulkError::Stream { done, cause: source }),
    }
}

/// Checks the direction of a channel, and a whole range of card memory.
fn checked(engine: &Engine, needed: Direction, start: CardAddr, length: u64) -> Result<(), BulkError> {
    let found = engine.direction();
    if found != needed {
        return Err(SubmitError::Direction { found, needed }.into());
    }
    Ok(engine.check_range(start, length)?)
}

/// Fills `into` as far as the source has bytes. Returns the number of bytes read.
fn read_up_to(source: &mut (impl ReadVolatile + ?Sized), into: SharedSlice<'_>) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.len().checked_sub(filled).filter(|left| *left > 0) {
        let rest = into.slice(filled, rest).map_err(io::Error::other)?;
        match source.read_volatile(rest) {
            Ok(0) => break,
            Ok(count) => filled += count.min(rest.len()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads `length` bytes of card memory from `from` and writes them to `sink` in order. `options` apply to the wait for each chunk;
/// [`WaitOptions::total`] limits the waits for all chunks together. `progress` is called with the number of bytes that `sink` has taken.
///
/// Files, pipes and sockets are written directly from DMA memory. A `Vec<u8>` is also a sink. [`Bounced`](fpga_pci::Bounced) turns any
/// other [`std::io::Write`] into one.
///
/// # Errors
/// As [`write_from`].
pub fn read_into(
    card: &Card,
    channel: &mut Channel<impl FromCard>,
    from: CardAddr,
    length: u64,
    sink: &mut (impl WriteVolatile + ?Sized),
    options: WaitOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<(), Error<BulkError>> {
    read_beside(card, channel, from, length, sink, options, Beside::alone(progress, &mut || false))
}

/// As [`read_into`], and does other work of the calling thread between polls.
///
/// # Errors
/// As [`write_from`].
pub fn read_beside(
    card: &Card,
    channel: &mut Channel<impl FromCard>,
    from: CardAddr,
    length: u64,
    sink: &mut (impl WriteVolatile + ?Sized),
    options: WaitOptions,
    beside: Beside<'_>,
) -> Result<(), Error<BulkError>> {
    let empty = |buffer: &DmaBuffer, done| {
        sink.write_all_volatile(buffer.memory()).map_err(|source| BulkError::Stream { done, cause: source })
    };
    let fill = |buffer: &mut DmaBuffer, _| Ok(buffer.len());
    checked(&channel.0, Direction::C2h, from, length)
        .and_then(|()| pieces(card, &mut channel.0, from, length, options, fill, empty, beside))
        .map(drop)
        .at(|| channel.0.place())
}

/// Transfers chunks in either direction: `fill` runs before a chunk is submitted, `empty` after it has completed, in order. `fill` returns
/// the number of bytes to move; fewer than the buffer holds end the transfer. Returns the number of bytes moved, at most `limit`.
#[expect(clippy::too_many_arguments, reason = "what the callers have in common")]
fn pieces(
    card: &Card,
    channel: &mut Engine,
    start: CardAddr,
    limit: u64,
    options: WaitOptions,
    mut fill: impl FnMut(&mut DmaBuffer, u64) -> Result<usize, BulkError>,
    mut empty: impl FnMut(&DmaBuffer, u64) -> Result<(), BulkError>,
    beside: Beside<'_>,
) -> Result<u64, BulkError> {
    if channel.is_stopping() {
        // An earlier call was cancelled before the engine had stopped. This one waits for it as for its own transfers.
        channel
            .wait_until(options, |engine| engine.try_abort(Duration::MAX))
            .map_err(|cause| BulkError::Channel { done: 0, cause })?;
        while channel.next_completion().is_some() {}
    }
    let result = run_descriptors(card, channel, start, limit, options, &mut fill, &mut empty, beside);
    if result.is_err() {
        // Nothing may stay in flight: the buffers are collected here and return to the pool.
        let cancelled =
            matches!(&result, Err(BulkError::Channel { cause: ChannelError::Cancelled { .. }, .. }));
        let aborted = if cancelled { channel.abandon_all() } else { channel.abort().map(drop) };
        while channel.next_completion().is_some() {}
        // If the wait ended early and the engine does not stop either, report only the second error, which has the remedy.
        if let (
            Err(BulkError::Channel {
                done,
                cause: ChannelError::TimedOut { .. } | ChannelError::Cancelled { .. },
            }),
            Err(source),
        ) = (&result, aborted)
        {
            return Err(BulkError::Channel { done: *done, cause: source });
        }
    }
    result
}

#[expect(clippy::too_many_arguments, reason = "as above")]
fn run_descriptors(
    card: &Card,
    channel: &mut Engine,
    start: CardAddr,
    limit: u64,
    options: WaitOptions,
    fill: &mut dyn FnMut(&mut DmaBuffer, u64) -> Result<usize, BulkError>,
    empty: &mut dyn FnMut(&DmaBuffer, u64) -> Result<(), BulkError>,
    beside: Beside<'_>,
) -> Result<u64, BulkError> {
    let mut free = buffers(card, channel.direction(), limit)?;
    let mut ready: Option<DmaBuffer> = None;
    let mut flying: VecDeque<BulkChunk> = VecDeque::with_capacity(DEPTH);
    let (mut sent, mut done, mut ended) = (0u64, 0u64, false);
    let unfit = |sent| BulkError::Short { done: sent, length: limit };
    let backend = channel.backend();
    let whole = Deadline::after(&*backend, options.total);
    loop {
        if ready.is_none()
            && !ended
            && sent < limit
            && let Some(mut buffer) = free.pop()
        {
            let size = usize::try_from(limit - sent).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            buffer.set_len(size).map_err(|_| unfit(sent))?;
            // Chunks in flight are aborted.
            let filled = fill(&mut buffer, sent).map_err(|error| match error {
                BulkError::Stream { cause, .. } => BulkError::Stream { done, cause },
                other => other,
            })?;
            ended = filled < size;
            if filled == 0 {
                free.push(buffer);
            } else {
                buffer.set_len(filled).map_err(|_| unfit(sent))?;
                ready = Some(buffer);
            }
        }
        if let Some(buffer) = ready.take() {
            let size = buffer.len();
            let to = if channel.is_fixed_address() { start } else { offset(start, sent) };
            match channel.submit_buffer(buffer, to) {
                Ok(ticket) => {
                    channel.poll().map_err(|source| BulkError::Channel { done, cause: source })?;
                    flying.push_back(BulkChunk { ticket, length: size });
                    sent += size as u64;
                    continue;
                }
                // The ring is short: this chunk waits for one that is in flight.
                Err(refused) if refused.error.is_full() && !flying.is_empty() => {
                    ready = Some(refused.payload)
                }
                Err(refused) => return Err(refused.error.into()),
            }
        }
        let Some(piece) = flying.pop_front() else { break };
        let left = Duration::from_nanos(whole.left(backend.now()));
        let completion = channel
            .wait_beside(piece.ticket, options.total(left), beside.between_polls)
            .map_err(|source| BulkError::Channel { done, cause: source })?;
        let buffer = buffer_of(completion, &piece, done)?;
        empty(&buffer, done)?;
        free.push(buffer);
        done += piece.length as u64;
        (beside.progress)(done);
    }
    Ok(done)
}

/// Adds `bytes` to `start`, saturating at the end of the address space, where the channel refuses the address.
fn offset(start: CardAddr, bytes: u64) -> CardAddr {
    start.checked_add(bytes).unwrap_or(CardAddr::new(u64::MAX))
}
