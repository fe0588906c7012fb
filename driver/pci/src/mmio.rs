//! Register access: the [`Mmio`] trait that backends implement and [`Bar`], the handle that drivers hold.

use core::fmt;
use std::sync::Arc;

use fpga_registers::{BarOffset, RegisterIo};

use crate::{MmioError, Process};

mod bus_error;
mod mapped;

pub(crate) use bus_error::AreaGuard;
pub use bus_error::{bus_errors_caught, catch_bus_errors};
pub use mapped::{Liveness, MappedBar};

/// Implementation of a [`Bar`]: aligned 32- and 64-bit accesses inside `0..size()`.
///
/// Values are those of little-endian registers, in the host's byte order. Implementations check bounds and alignment
/// themselves; they never trust the caller to have done so.
pub trait Mmio: Send + Sync {
    /// Size of the BAR in bytes.
    fn size(&self) -> u64;

    /// Reads 32 bits.
    ///
    /// # Errors
    /// See [`MmioError`].
    fn read32(&self, at: BarOffset) -> Result<u32, MmioError>;

    /// Writes 32 bits. The write is posted: `Ok` means that it was sent, not that it arrived.
    ///
    /// # Errors
    /// See [`MmioError`].
    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError>;

    /// Reads 64 bits at a multiple of 8. The default is two 32-bit reads, low half first; a backend with 64-bit accesses uses one read. Do
    /// not use it on registers that are 32 bits wide (an AXI-Lite BAR splits or refuses it).
    ///
    /// # Errors
    /// See [`MmioError`].
    fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        check_access(at, 8, self.size())?;
        let low = self.read32(at)?;
        let high = self.read32(BarOffset::new(at.get() + 4))?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Writes 64 bits at a multiple of 8. The default is two 32-bit writes, low half first.
    ///
    /// # Errors
    /// See [`MmioError`].
    fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        check_access(at, 8, self.size())?;
        let [b0, b1, b2, b3, b4, b5, b6, b7] = value.to_le_bytes();
        self.write32(at, u32::from_le_bytes([b0, b1, b2, b3]))?;
        self.write32(BarOffset::new(at.get() + 4), u32::from_le_bytes([b4, b5, b6, b7]))
    }

    /// Writes one or two bytes at a multiple of their number, and no others (byte enables of the bus). The default refuses it: a read and a
    /// write of the whole word would have the effects of both on a register. Not every design takes such writes.
    ///
    /// # Errors
    /// See [`MmioError`].
    fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        check_narrow(at, from, self.size())?;
        Err(MmioError::Misaligned { at, width: 4 })
    }

    /// Reads a block as consecutive 32-bit words in ascending order. Offset and length are multiples of 4. A copy routine of the C library
    /// is not used, because its widths, orders and repetitions may have effects on a device.
    ///
    /// # Errors
    /// See [`MmioError`]; words before the failing one have been read.
    fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        check_block(at, into.len(), self.size())?;
        let mut next = at.get();
        for word in into.chunks_exact_mut(4) {
            word.copy_from_slice(&self.read32(BarOffset::new(next))?.to_le_bytes());
            next += 4;
        }
        Ok(())
    }

    /// Writes a block as consecutive 32-bit words in ascending order. Offset and length are multiples of 4.
    ///
    /// # Errors
    /// See [`MmioError`]; words before the failing one have been written.
    fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        check_block(at, from.len(), self.size())?;
        let mut next = at.get();
        let (words, _) = from.as_chunks::<4>();
        for word in words {
            self.write32(BarOffset::new(next), u32::from_le_bytes(*word))?;
            next += 4;
        }
        Ok(())
    }
}

/// Checks one access of `width` bytes (a power of two) against a BAR of `end` bytes.
///
/// # Errors
/// [`MmioError::OutOfRange`] or [`MmioError::Misaligned`].
pub fn check_access(at: BarOffset, width: u64, end: u64) -> Result<(), MmioError> {
    if at.get().checked_add(width).is_none_or(|past| past > end) {
        return Err(MmioError::OutOfRange { at, width, end });
    }
    if !at.get().is_multiple_of(width) {
        return Err(MmioError::Misaligned { at, width });
    }
    Ok(())
}

/// Checks a write of one or two bytes.
///
/// # Errors
/// As [`check_access`]; [`MmioError::Misaligned`] for another number of bytes.
pub fn check_narrow(at: BarOffset, from: &[u8], end: u64) -> Result<(), MmioError> {
    match from.len() {
        1 | 2 => check_access(at, from.len() as u64, end),
        _ => Err(MmioError::Misaligned { at, width: 4 }),
    }
}

/// Checks a block of 32-bit words.
fn check_block(at: BarOffset, length: usize, end: u64) -> Result<(), MmioError> {
    let width = length as u64;
    if at.get().checked_add(width).is_none_or(|past| past > end) {
        return Err(MmioError::OutOfRange { at, width, end });
    }
    if !at.get().is_multiple_of(4) || !width.is_multiple_of(4) {
        return Err(MmioError::Misaligned { at, width: 4 });
    }
    Ok(())
}

/// Opened BAR, or a part of one. Cheap to clone; clones access the same registers. After a fork, every access by the child is
/// [`MmioError::OtherProcess`].
#[derive(Clone)]
pub struct Bar {
    mmio: Arc<dyn Mmio>,
    /// Start of this view in the backend. `base + size` never exceeds the backend's size.
    base: u64,
    size: u64,
    process: Process,
}

impl fmt::Debug for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bar")
            .field("base", &format_args!("{:#x}", self.base))
            .field("size", &format_args!("{:#x}", self.size))
            .finish_non_exhaustive()
    }
}

impl Bar {
    /// Creates a handle to the whole of `mmio`.
    #[must_use]
    pub fn new(mmio: Arc<dyn Mmio>) -> Self {
        let size = mmio.size();
        Self { mmio, base: 0, size, process: Process::current() }
    }

    /// Size of this BAR, or of this part of it, in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Part of `length` bytes from `at` on, with its own offsets starting at 0.
    ///
    /// # Errors
    /// [`MmioError::OutOfRange`] if it does not lie inside this view; [`MmioError::Misaligned`] if `at` is not a multiple of 4.
    pub fn slice(&self, at: BarOffset, length: u64) -> Result<Self, MmioError> {
        let whole = self.place(at, length)?;
        if !whole.get().is_multiple_of(4) {
            return Err(MmioError::Misaligned { at: whole, width: 4 });
        }
        Ok(Self { mmio: Arc::clone(&self.mmio), base: whole.get(), size: length, process: self.process })
    }

    /// Reads a 32-bit register.
    ///
    /// # Errors
    /// See [`MmioError`]; offsets in errors count from the start of the BAR, not of the slice.
    #[inline]
    pub fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        self.mmio.read32(self.place(at, 4)?)
    }

    /// Writes a 32-bit register (posted).
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    #[inline]
    pub fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        self.mmio.write32(self.place(at, 4)?, value)
    }

    /// Reads 64 bits; see [`Mmio::read64`].
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    pub fn read64(&self, at: BarOffset) -> Result<u64, MmioError> {
        self.mmio.read64(self.place(at, 8)?)
    }

    /// Writes 64 bits; see [`Mmio::write64`].
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    pub fn write64(&self, at: BarOffset, value: u64) -> Result<(), MmioError> {
        self.mmio.write64(self.place(at, 8)?, value)
    }

    /// Writes one or two bytes; see [`Mmio::write_narrow`].
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    pub fn write_narrow(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.mmio.write_narrow(self.place(at, from.len() as u64)?, from)
    }

    /// Reads a block word by word; see [`Mmio::read_block`].
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    pub fn read_block(&self, at: BarOffset, into: &mut [u8]) -> Result<(), MmioError> {
        self.mmio.read_block(self.place(at, into.len() as u64)?, into)
    }

    /// Writes a block word by word; see [`Mmio::write_block`].
    ///
    /// # Errors
    /// As [`read32`](Self::read32).
    pub fn write_block(&self, at: BarOffset, from: &[u8]) -> Result<(), MmioError> {
        self.mmio.write_block(self.place(at, from.len() as u64)?, from)
    }

    /// Returns the backend's offset of an access to this view, which must lie inside the view.
    #[inline]
    fn place(&self, at: BarOffset, width: u64) -> Result<BarOffset, MmioError> {
        self.process.check()?;
        let whole = BarOffset::new(self.base.saturating_add(at.get()));
        if at.get().checked_add(width).is_none_or(|past| past > self.size) {
            return Err(MmioError::OutOfRange { at: whole, width, end: self.base + self.size });
        }
        Ok(whole)
    }
}

impl RegisterIo for Bar {
    type Error = MmioError;

    #[inline]
    fn read32(&self, at: BarOffset) -> Result<u32, MmioError> {
        Bar::read32(self, at)
    }

    #[inline]
    fn write32(&self, at: BarOffset, value: u32) -> Result<(), MmioError> {
        Bar::write32(self, at, value)
    }
}

#[cfg(test)]
mod tests;
