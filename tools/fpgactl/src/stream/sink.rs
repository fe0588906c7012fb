//! The output file, and the sink that compares.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fpga_driver::{CardAddr, SharedSlice, WriteVolatile};

use super::{BLOCK, Source, SourceReader, wrap};
use crate::error::CliError;
use crate::progress::Deadline;

/// An output file. Unless it is [kept](Self::keep) it is removed again, so that nobody takes a part for the whole.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    file: File,
    /// Not a device or a pipe, which were there before.
    regular: bool,
    keep: bool,
}

impl OutFile {
    /// Creates the file or empties it.
    ///
    /// # Errors
    /// [`CliError::File`]; [`CliError::Usage`] if it is the file that `source` is read from.
    pub fn create(path: &Path, source: Option<&Source>) -> Result<Self, CliError> {
        if let Some(Source::File { path: read, .. }) = source
            && let (Ok(a), Ok(b)) = (fs::metadata(read), fs::metadata(path))
            && (a.dev(), a.ino()) == (b.dev(), b.ino())
        {
            return Err(CliError::Usage(format!(
                "{} is the file that is read, writing it would destroy it; give another file with --out",
                path.display()
            )));
        }
        let fail = |source| CliError::file(path, "write it", source);
        let file = File::create(path).map_err(fail)?;
        let regular = file.metadata().map_err(fail)?.is_file();
        Ok(Self { path: path.to_owned(), file, regular, keep: false })
    }

    /// The file is whole.
    pub fn keep(mut self) {
        self.keep = true;
    }
}

impl Write for OutFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.file.write(from).map_err(|error| wrap(&self.path, "write it", error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl WriteVolatile for OutFile {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        self.file.write_volatile(from).map_err(|error| wrap(&self.path, "write it", error))
    }
}

impl Drop for OutFile {
    fn drop(&mut self) {
        if !self.keep && self.regular {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A sink that gives up when the time is over.
#[derive(Debug)]
pub struct Limited<W> {
    /// Where the bytes go.
    pub inner: W,
    /// Until when.
    pub deadline: Deadline,
}

impl<W: WriteVolatile> WriteVolatile for Limited<W> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        self.deadline.check(|| "reading card memory".to_owned()).map_err(io::Error::other)?;
        self.inner.write_volatile(from)
    }
}

/// Where a byte of the stream was in card memory, for the message about one that differs.
#[derive(Debug, Clone)]
pub struct Place {
    /// The receiving card.
    pub card: String,
    /// Which transfer, from 1.
    pub transfer: u64,
    /// Offset in the stream of the transfer's first byte.
    pub start: u64,
    /// Where that byte was.
    pub address: CardAddr,
}

/// Compares what is written to it with a second reading of the source, byte for byte, and passes it on.
#[derive(Debug)]
pub struct Compare<'a, 'b> {
    expected: &'a mut SourceReader<'b>,
    out: Option<&'a mut OutFile>,
    place: Place,
    done: u64,
    scratch: Vec<u8>,
    /// Copy of the bytes that are compared: taken once, so that what goes to the file is what was compared.
    received: Vec<u8>,
}

impl<'a, 'b> Compare<'a, 'b> {
    /// A sink for the part of the stream at `place`; `expected` stands at its first byte.
    #[must_use]
    pub fn new(expected: &'a mut SourceReader<'b>, out: Option<&'a mut OutFile>, place: Place) -> Self {
        Self { expected, out, place, done: 0, scratch: vec![0; BLOCK], received: Vec::with_capacity(BLOCK) }
    }

    fn check(&mut self, piece: &[u8]) -> io::Result<()> {
        let expected = self.scratch.get_mut(..piece.len()).unwrap_or_default();
        self.expected.read_exact(expected).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                io::Error::other(self.expected.source().changed("fewer when they were read again".to_owned()))
            }
            _ => error,
        })?;
        if expected == piece {
            return Ok(());
        }
        self.expected.source().check_unchanged().map_err(io::Error::other)?;
        let differing = expected.iter().zip(piece).enumerate().find(|(_, (sent, received))| sent != received);
        let Some((index, (sent, received))) = differing else { return Ok(()) };
        let inside = self.done + index as u64;
        Err(io::Error::other(CliError::Mismatch {
            offset: self.place.start + inside,
            sent: *sent,
            received: *received,
            transfer: self.place.transfer,
            address: CardAddr::new(self.place.address.get().saturating_add(inside)),
            card: self.place.card.clone(),
        }))
    }
}

impl WriteVolatile for Compare<'_, '_> {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        let length = from.len().min(BLOCK);
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
