//! Sinks: one that compares, and one with a time limit.

use std::io::{self, Read, Write};

use fpga_driver::{CardAddr, SharedSlice, WriteVolatile};

use super::{BLOCK_BYTES, SourceReader};
use crate::error::CliError;
use crate::outfile::OutFile;
use crate::progress::Deadline;

/// Sink that fails after a deadline.
#[derive(Debug)]
pub struct DeadlineSink<W> {
    /// Destination of the bytes.
    pub inner: W,
    /// Deadline.
    pub deadline: Deadline,
}

impl<W: WriteVolatile> WriteVolatile for DeadlineSink<W> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        self.deadline.check(|| "reading card memory".to_owned()).map_err(io::Error::other)?;
        self.inner.write_volatile(from)
    }
}

/// Position of a byte of the stream in card memory, for the message about a difference.
#[derive(Debug, Clone)]
pub struct StreamPosition {
    /// The receiving card.
    pub card: String,
    /// Number of the transfer, from 1.
    pub transfer: u64,
    /// Offset in the stream of the transfer's first byte.
    pub start: u64,
    /// Address of that byte.
    pub address: CardAddr,
}

/// Sink that compares the received bytes with a second reading of the source, and writes them to a file.
#[derive(Debug)]
pub struct Compare<'a, 'b> {
    expected: &'a mut SourceReader<'b>,
    out: Option<&'a mut OutFile>,
    position: StreamPosition,
    done: u64,
    scratch: Vec<u8>,
    /// Copy of the received bytes: what is compared is also what is written to the file.
    received: Vec<u8>,
}

impl<'a, 'b> Compare<'a, 'b> {
    /// Creates a sink for the part of the stream at `position`; `expected` is positioned at its first byte.
    #[must_use]
    pub fn new(
        expected: &'a mut SourceReader<'b>,
        out: Option<&'a mut OutFile>,
        position: StreamPosition,
    ) -> Self {
        Self {
            expected,
            out,
            position,
            done: 0,
            scratch: vec![0; BLOCK_BYTES],
            received: Vec::with_capacity(BLOCK_BYTES),
        }
    }

    fn check(&mut self, bytes: &[u8]) -> io::Result<()> {
        let expected = self.scratch.get_mut(..bytes.len()).unwrap_or_default();
        self.expected.read_exact(expected).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::other(self.expected.source().changed("fewer when they were read again".to_owned()))
            }
            _ => error,
        })?;
        if expected == bytes {
            return Ok(());
        }
        self.expected.source().check_unchanged().map_err(io::Error::other)?;
        let differing = expected.iter().zip(bytes).enumerate().find(|(_, (sent, received))| sent != received);
        let Some((index, (sent, received))) = differing else { return Ok(()) };
        let inside = self.done + index as u64;
        let (offset, transfer, card) =
            (self.position.start + inside, self.position.transfer, &self.position.card);
        let address = CardAddr::new(self.position.address.get().saturating_add(inside));
        let text = format!(
            "data differ at offset {offset} ({offset:#x}): sent {sent:#04x}, received {received:#04x}, in transfer {transfer} at card address {address} of {card}"
        );
        let advice = "run the command again, with -vv if the error is repeated";
        Err(io::Error::other(CliError::failed(text).advise(advice)))
    }
}

impl WriteVolatile for Compare<'_, '_> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        let length = from.len().min(BLOCK_BYTES);
        let mut received = core::mem::take(&mut self.received);
        received.resize(length, 0);
        from.read(0, &mut received).map_err(io::Error::other)?;
        self.check(&received)?;
        self.done += length as u64;
        if let Some(out) = &mut self.out {
            out.write_all(&received)?;
        }
        self.received = received;
        Ok(length)
    }
}
