//! Parsing of bytes from the front.

use super::{Command, WireError};

/// Remaining bytes of a message's body.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    command: Command,
    rest: &'a [u8],
}

impl<'a> Bytes<'a> {
    /// Accepts a body that has at least `least` bytes. Later minor versions may add fields at the end.
    pub(super) fn at_least(command: Command, body: &'a [u8], least: usize) -> Result<Self, WireError> {
        if body.len() < least {
            return Err(WireError::Length { command, expected: least, got: body.len() });
        }
        Ok(Self { command, rest: body })
    }

    /// Accepts a body that has exactly `length` bytes.
    pub(super) fn exactly(command: Command, body: &'a [u8], length: usize) -> Result<Self, WireError> {
        if body.len() != length {
            return Err(WireError::Length { command, expected: length, got: body.len() });
        }
        Ok(Self { command, rest: body })
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(WireError::Length {
            command: self.command,
            expected: N,
            got: self.rest.len(),
        })?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.take().map(u16::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.take().map(u32::from_ne_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.take().map(u64::from_ne_bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        self.take()
    }

    /// Returns all remaining bytes.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }
}
