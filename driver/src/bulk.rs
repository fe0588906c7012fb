//! Long transfers between a stream of bytes (a file) and card memory, in pieces, several of them in flight.
//!
//! The channel is to be idle when one begins: after an error everything in flight on it is aborted and dropped.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use fpga_pci::DmaBuffer;
use fpga_registers::CardAddr;

use crate::card::Card;
use crate::channel::{C2hChannel, Completion, H2cChannel, Ticket, WaitOptions};
use crate::error::{ChannelError, ResourceError, SubmitError};
use crate::fault::ChannelFault;

/// Bytes of one piece: long enough that what a descriptor costs does not show, short enough to overlap with the file's I/O.
const PIECE: usize = 1 << 20;
/// Pieces in flight.
const DEPTH: usize = 4;

/// A long transfer failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BulkError {
    /// The stream's side: reading the source or writing the sink.
    #[error("after {done} bytes: {source}")]
    Stream {
        /// Bytes moved before.
        done: u64,
        /// What failed.
        source: io::Error,
    },
    /// The source ended early.
    #[error("the source ended after {done} of {length} bytes; it was shortened meanwhile")]
    Short {
        /// Bytes that came.
        done: u64,
        /// Bytes expected.
        length: u64,
    },
    /// No DMA memory.
    #[error(transparent)]
    Memory(#[from] ResourceError),
    /// A piece was not taken.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A piece failed.
    #[error(transparent)]
    Fault(#[from] ChannelFault),
    /// The channel cannot go on.
    #[error(transparent)]
    Channel(#[from] ChannelError),
}

/// A piece in flight: where it belongs in the stream.
struct Piece {
    ticket: Ticket,
    length: usize,
}

/// Takes a piece's outcome apart; the buffer comes back for the next piece.
fn buffer_of(done: Completion) -> Result<DmaBuffer, BulkError> {
    match (done.outcome, done.buffer) {
        (Ok(_), Some(buffer)) => Ok(buffer),
        (Err(fault), _) => Err(fault.into()),
        (Ok(bytes), None) => Err(BulkError::Short { done: 0, length: bytes }),
    }
}

/// Buffers for up to [`DEPTH`] pieces of a transfer of `length` bytes.
fn buffers(card: &Card, length: u64) -> Result<Vec<DmaBuffer>, ResourceError> {
    let count = usize::try_from(length.div_ceil(PIECE as u64)).unwrap_or(DEPTH).min(DEPTH);
    let size = usize::try_from(length).unwrap_or(PIECE).min(PIECE);
    (0..count).map(|_| card.buffer(size)).collect()
}

/// Moves `length` bytes of `source` to card memory from `to` on. `progress` is told the bytes that have arrived.
///
/// # Errors
/// See [`BulkError`]. What had arrived stays in card memory; all buffers are back, and the channel can be used again unless
/// the error says otherwise.
pub fn write_from(
    card: &Card,
    channel: &mut H2cChannel,
    source: &mut (impl Read + ?Sized),
    to: CardAddr,
    length: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BulkError> {
    let result = write_pieces(card, channel, source, to, length, progress);
    if result.is_err() {
        // Nothing may stay in flight: the buffers come back here, and go to the pool.
        let _ = channel.abort();
        while channel.next_completion().is_some() {}
    }
    result
}

fn write_pieces(
    card: &Card,
    channel: &mut H2cChannel,
    source: &mut (impl Read + ?Sized),
    to: CardAddr,
    length: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<(), BulkError> {
    let mut free = buffers(card, length)?;
    let mut ready: Option<DmaBuffer> = None;
    let mut flying: VecDeque<Piece> = VecDeque::with_capacity(DEPTH);
    let (mut sent, mut done) = (0u64, 0u64);
    while done < length {
        if ready.is_none()
            && sent < length
            && let Some(mut buffer) = free.pop()
        {
            fill(&mut buffer, source, sent, length)?;
            ready = Some(buffer);
        }
        if let Some(buffer) = ready.take() {
            let size = buffer.len();
            match channel.submit(buffer, offset(to, sent)) {
                Ok(ticket) => {
                    channel.poll()?;
                    flying.push_back(Piece { ticket, length: size });
                    sent += size as u64;
                    continue;
                }
                // A short ring: the piece waits for one that is in flight.
                Err(refused) if refused.is_full() && !flying.is_empty() => ready = Some(refused.buffer),
                Err(refused) => return Err(refused.error.into()),
            }
        }
        let Some(piece) = flying.pop_front() else { break };
        free.push(buffer_of(channel.wait(piece.ticket, WaitOptions::default())?)?);
        done += piece.length as u64;
        progress(done);
    }
    Ok(())
}

fn fill(
    buffer: &mut DmaBuffer,
    source: &mut (impl Read + ?Sized),
    sent: u64,
    length: u64,
) -> Result<(), BulkError> {
    let size = usize::try_from(length - sent).unwrap_or(PIECE).min(PIECE);
    let too_small = |_| BulkError::Short { done: sent, length };
    buffer.set_len(size).map_err(too_small)?;
    source.read_exact(buffer.as_mut_slice()).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BulkError::Short { done: sent, length },
        _ => BulkError::Stream { done: sent, source: error },
    })
}

/// Moves `length` bytes of card memory from `from` on to `sink`, in order. `progress` is told the bytes that `sink` has taken.
///
/// # Errors
/// As [`write_from`].
pub fn read_into(
    card: &Card,
    channel: &mut C2hChannel,
    from: CardAddr,
    length: u64,
    sink: &mut (impl Write + ?Sized),
    progress: &mut dyn FnMut(u64),
) -> Result<(), BulkError> {
    let result = read_pieces(card, channel, from, length, sink, progress);
    if result.is_err() {
        let _ = channel.abort();
        while channel.next_completion().is_some() {}
    }
    result
}

fn read_pieces(
    card: &Card,
    channel: &mut C2hChannel,
    from: CardAddr,
    length: u64,
    sink: &mut (impl Write + ?Sized),
    progress: &mut dyn FnMut(u64),
) -> Result<(), BulkError> {
    let mut free = buffers(card, length)?;
    let mut flying: VecDeque<Piece> = VecDeque::with_capacity(DEPTH);
    let (mut asked, mut done) = (0u64, 0u64);
    while done < length {
        if asked < length
            && let Some(mut buffer) = free.pop()
        {
            let size = usize::try_from(length - asked).unwrap_or(PIECE).min(PIECE);
            buffer.set_len(size).map_err(|_| BulkError::Short { done, length })?;
            match channel.submit(buffer, offset(from, asked)) {
                Ok(ticket) => {
                    channel.poll()?;
                    flying.push_back(Piece { ticket, length: size });
                    asked += size as u64;
                    continue;
                }
                Err(refused) if refused.is_full() && !flying.is_empty() => free.push(refused.buffer),
                Err(refused) => return Err(refused.error.into()),
            }
        }
        let Some(piece) = flying.pop_front() else { break };
        let buffer = buffer_of(channel.wait(piece.ticket, WaitOptions::default())?)?;
        sink.write_all(buffer.as_slice()).map_err(|source| BulkError::Stream { done, source })?;
        free.push(buffer);
        done += piece.length as u64;
        progress(done);
    }
    Ok(())
}

/// An address past the end of the address space stays there, where the channel refuses it.
fn offset(start: CardAddr, bytes: u64) -> CardAddr {
    start.checked_add(bytes).unwrap_or(CardAddr::new(u64::MAX))
}
