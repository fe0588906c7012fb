//! Byte streams directly into and out of shared memory.
//!
//! [`std::io::Read`] fills a `&mut [u8]`, which shared memory never is. Files, pipes and sockets do not need one: the kernel copies to and
//! from the memory itself. Other streams use a buffer: [`Bounced`].

use fpga_registers::invariant::DebugExpect as _;
use std::fs::File;
use std::io::{self, Cursor, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::SharedSlice;

/// Buffer size of a [`Bounced`] stream in bytes: fits the second-level cache.
const BOUNCE: usize = 64 << 10;

/// Maximum count of one system call, as read(2) and write(2) document it.
const MAX_COUNT: usize = 0x7FFF_F000;

/// Source of bytes for shared memory, as [`std::io::Read`] is for a slice.
///
/// ```
/// use fpga_pci::{HugePages, ReadVolatile, SharedMemory};
/// let memory = SharedMemory::anonymous(4096, HugePages::No)?;
/// let mut source = &b"twelve bytes"[..];
/// source.read_exact_volatile(memory.view().slice(0, 12)?)?;
/// assert_eq!(memory.load_u32(0)?.to_le_bytes(), *b"twel");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait ReadVolatile {
    /// Reads at most as many bytes as `into` has. Returns the number of bytes, 0 at the end of the source.
    ///
    /// # Errors
    /// Errors of the source.
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize>;

    /// Fills `into` completely.
    ///
    /// # Errors
    /// [`ErrorKind::UnexpectedEof`] if the source ends before; otherwise errors of the source.
    fn read_exact_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<()> {
        let mut rest = into;
        while !rest.is_empty() {
            match self.read_volatile(rest) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => rest = behind(rest, count)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sink for the bytes of shared memory, as [`std::io::Write`] is for a slice.
pub trait WriteVolatile {
    /// Writes at most as many bytes as `from` has. Returns the number of bytes.
    ///
    /// # Errors
    /// Errors of the sink.
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize>;

    /// Writes all of `from`.
    ///
    /// # Errors
    /// [`ErrorKind::WriteZero`] if the sink accepts no more; otherwise errors of the sink.
    fn write_all_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<()> {
        let mut rest = from;
        while !rest.is_empty() {
            match self.write_volatile(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => rest = behind(rest, count)?,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Returns the part after the first `count` bytes, a number that a stream reported.
fn behind(memory: SharedSlice<'_>, count: usize) -> io::Result<SharedSlice<'_>> {
    let left = memory.len().checked_sub(count);
    let rest = left.and_then(|left| memory.slice(count, left).ok());
    rest.ok_or_else(|| {
        io::Error::other(format!(
            "a stream reported {count} bytes where at most {} were asked for",
            memory.len()
        ))
    })
}

fn outcome(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn read_file(file: BorrowedFd<'_>, into: SharedSlice<'_>) -> io::Result<usize> {
    let count = into.len().min(MAX_COUNT);
    // SAFETY: the descriptor is borrowed. `count` bytes from that address on are live shared memory, made of atomics, which others may
    // write: the kernel too.
    outcome(unsafe { libc::read(file.as_raw_fd(), into.as_mut_ptr().cast(), count) })
}

fn write_file(file: BorrowedFd<'_>, from: SharedSlice<'_>) -> io::Result<usize> {
    let count = from.len().min(MAX_COUNT);
    // SAFETY: the descriptor is borrowed. `count` bytes from that address on are live and initialised; the kernel copies them, and a
    // concurrent change only changes the copied bytes.
    outcome(unsafe { libc::write(file.as_raw_fd(), from.as_mut_ptr().cast_const().cast(), count) })
}

macro_rules! by_descriptor {
    ($($trait:ident $method:ident $call:ident: $($kind:ty),*;)*) => {
        $($(
            impl $trait for $kind {
                fn $method(&mut self, memory: SharedSlice<'_>) -> io::Result<usize> {
                    $call(self.as_fd(), memory)
                }
            }
        )*)*
    };
}

by_descriptor! {
    ReadVolatile read_volatile read_file: File, &File, PipeReader, UnixStream, TcpStream;
    WriteVolatile write_volatile write_file: File, &File, PipeWriter, UnixStream, TcpStream;
}

impl ReadVolatile for &[u8] {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        let count = into.len().min(self.len());
        let (now, later) = self.split_at(count);
        into.write(0, now).map_err(io::Error::other)?;
        *self = later;
        Ok(count)
    }
}

impl<T: AsRef<[u8]>> ReadVolatile for Cursor<T> {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        let start = usize::try_from(self.position()).unwrap_or(usize::MAX);
        let mut rest = self.get_ref().as_ref().get(start..).unwrap_or_default();
        let count = rest.read_volatile(into)?;
        self.set_position(self.position() + count as u64);
        Ok(count)
    }
}

impl WriteVolatile for Vec<u8> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        let start = self.len();
        self.resize(start + from.len(), 0);
        from.read(0, self.get_mut(start..).debug_expect("resized before").unwrap_or_default())
            .map_err(io::Error::other)?;
        Ok(from.len())
    }
}

impl<T: ReadVolatile + ?Sized> ReadVolatile for &mut T {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        (**self).read_volatile(into)
    }
}

impl<T: WriteVolatile + ?Sized> WriteVolatile for &mut T {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        (**self).write_volatile(from)
    }
}

impl<T: ReadVolatile + ?Sized> ReadVolatile for Box<T> {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        (**self).read_volatile(into)
    }
}

impl<T: WriteVolatile + ?Sized> WriteVolatile for Box<T> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        (**self).write_volatile(from)
    }
}

/// Adapter of any [`Read`] or [`Write`] to a stream for shared memory: one more copy, through a buffer of 64 KiB.
#[derive(Debug)]
pub struct Bounced<T> {
    inner: T,
    buffer: Box<[u8]>,
}

impl<T> Bounced<T> {
    /// Wraps `inner`, which may be a `&mut` to a stream.
    #[must_use]
    pub fn new(inner: T) -> Self {
        Self { inner, buffer: vec![0; BOUNCE].into_boxed_slice() }
    }

    /// Returns the inner stream.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.inner
    }

    /// Returns the stream, and the part of the buffer that fits into `memory`.
    fn part(&mut self, memory: SharedSlice<'_>) -> (&mut T, &mut [u8]) {
        let count = memory.len().min(self.buffer.len());
        (&mut self.inner, self.buffer.get_mut(..count).unwrap_or_default())
    }
}

impl<T: Read> ReadVolatile for Bounced<T> {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        let (inner, buffer) = self.part(into);
        let count = inner.read(buffer)?;
        // A count larger than requested is returned unchanged, and refused by the caller.
        into.write(0, buffer.get(..count).unwrap_or(buffer)).map_err(io::Error::other)?;
        Ok(count)
    }
}

impl<T: Write> WriteVolatile for Bounced<T> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        let (inner, buffer) = self.part(from);
        from.slice(0, buffer.len()).and_then(|part| part.read(0, buffer)).map_err(io::Error::other)?;
        inner.write(buffer)
    }
}

#[cfg(test)]
mod tests;
