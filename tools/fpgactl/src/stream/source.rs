//! Sources: files, random bytes, and standard input.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use fpga_diag::test_data::RandomBytes;
use fpga_driver::bulk::BulkError;
use fpga_driver::{Error, ReadVolatile, SharedSlice};
use fpga_pci::lock;
use fpga_registers::quantity;

use super::BLOCK_BYTES;
use super::input::{Spool, is_stdin};
use crate::error::{CliError, wrap};
use crate::progress::Deadline;

/// Stream that can be read more than once.
#[derive(Debug, Clone)]
pub enum Source {
    /// A regular file.
    File {
        /// Path.
        path: PathBuf,
        /// Size at the first check.
        length: u64,
        /// Modification time at the first check.
        modified: Option<SystemTime>,
    },
    /// Random bytes.
    Random {
        /// Seed of the generator.
        seed: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Standard input, one part at a time.
    Input(Arc<Mutex<Spool>>),
}

impl Source {
    /// Source for the file at `path`; `-`: standard input.
    pub fn named(path: &Path, deadline: Deadline) -> Result<Self, CliError> {
        if is_stdin(path) {
            return Ok(Self::Input(Arc::new(Mutex::new(Spool::open(deadline)?))));
        }
        Self::file(path)
    }

    /// Source for the file at `path`.
    pub fn file(path: &Path) -> Result<Self, CliError> {
        // Checked before it is opened: opening a pipe would wait for its writer.
        let found = fs::metadata(path).map_err(|source| CliError::file(path, "read it", source))?;
        if !found.is_file() {
            let text = format!("{}: this is a {}", path.display(), kind_of(&found));
            return Err(CliError::usage(text)
                .advise("give a regular file, whose length is known and which can be read again"));
        }
        Ok(Self::File { path: path.to_owned(), length: found.len(), modified: found.modified().ok() })
    }

    /// Length of the stream in bytes, if known.
    #[must_use]
    pub const fn length(&self) -> Option<u64> {
        match self {
            Self::File { length, .. } | Self::Random { length, .. } => Some(*length),
            Self::Input(_) => None,
        }
    }

    /// Length of the part that begins at `start`, at most `most`; 0 at the end. Parts have to be requested in order: a reader of standard
    /// input reads the latest one.
    ///
    /// # Errors
    /// For standard input: errors of the system, [`CliError::timed_out`], [`CliError::stopped`].
    pub fn next_part(&self, start: u64, most: u64) -> Result<u64, CliError> {
        match self {
            Self::File { length, .. } | Self::Random { length, .. } => {
                Ok(length.saturating_sub(start).min(most))
            }
            Self::Input(spool) => lock(spool).next_part(most),
        }
    }

    /// Fails if `out` names the source file.
    pub fn check_apart(&self, out: &Path) -> Result<(), CliError> {
        if let Self::File { path, .. } = self
            && let (Ok(a), Ok(b)) = (fs::metadata(path), fs::metadata(out))
            && (a.dev(), a.ino()) == (b.dev(), b.ino())
        {
            let text = format!("{} is the file that is read, writing it would destroy it", out.display());
            return Err(CliError::usage(text).advise("give another file with --out"));
        }
        Ok(())
    }

    /// Name for reports.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.display().to_string(),
            Self::Random { .. } => "random bytes".to_owned(),
            Self::Input(_) => "standard input".to_owned(),
        }
    }

    /// Opens a reader at the start of the stream.
    pub fn open(&self, deadline: Deadline) -> Result<SourceReader<'_>, CliError> {
        let bytes = match self {
            Self::File { path, .. } => {
                Bytes::File(File::open(path).map_err(|source| CliError::file(path, "read it", source))?)
            }
            Self::Random { seed, length } => Bytes::Random(RandomBytes::new(*seed, *length)),
            Self::Input(_) => Bytes::Input { offset: 0 },
        };
        Ok(SourceReader { source: self, bytes, deadline })
    }

    /// Fails if a file has changed since the first check.
    pub fn check_unchanged(&self) -> Result<(), CliError> {
        // No other process can change the other sources.
        let Self::File { path, length, modified } = self else { return Ok(()) };
        let found = fs::metadata(path).map_err(|source| CliError::file(path, "read it again", source))?;
        if found.len() != *length {
            return Err(self.changed(format!("{} now", quantity(found.len(), "byte"))));
        }
        if found.modified().ok() != *modified {
            return Err(self.changed("as many now, but written to meanwhile".to_owned()));
        }
        Ok(())
    }

    /// Explains an error that may come from a shortened file, or from the card.
    #[must_use]
    pub fn explain(&self, error: CliError) -> CliError {
        match error.cause() {
            Some(Error { kind: BulkError::Short { .. }, .. }) => {
                self.changed("fewer when they were read".to_owned())
            }
            _ => error,
        }
    }

    pub(super) fn changed(&self, now: String) -> CliError {
        let before = quantity(self.length().unwrap_or(0), "byte");
        CliError::failed(format!(
            "{}: the file changed while it was being read ({before} at the start, {now})",
            Path::new(&self.name()).display()
        ))
        .advise("do not change it while the command runs")
    }
}

fn kind_of(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    if kind.is_dir() {
        "directory"
    } else if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

/// Reader of a [`Source`].
#[derive(Debug)]
pub struct SourceReader<'a> {
    source: &'a Source,
    bytes: Bytes,
    deadline: Deadline,
}

#[derive(Debug)]
enum Bytes {
    File(File),
    Random(RandomBytes),
    /// Standard input, with the position of this reader.
    Input {
        offset: u64,
    },
}

impl SourceReader<'_> {
    /// Source of the reader.
    #[must_use]
    pub const fn source(&self) -> &Source {
        self.source
    }
}

impl SourceReader<'_> {
    /// Reads from a file by `file`, or at most `length` random bytes by `random`.
    fn read_by(
        &mut self,
        length: usize,
        file: impl FnOnce(&mut File) -> io::Result<usize>,
        random: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<usize> {
        self.deadline.check(|| format!("reading {}", self.source.name())).map_err(io::Error::other)?;
        match (&mut self.bytes, self.source) {
            (Bytes::File(bytes), Source::File { path, .. }) => {
                file(bytes).map_err(|error| wrap(path, "read it", error))
            }
            (Bytes::File(bytes), _) => file(bytes),
            (Bytes::Random(bytes), _) => {
                let ready = bytes.take(length);
                random(ready).map(|()| ready.len())
            }
            (Bytes::Input { .. }, _) => Ok(0),
        }
    }
}

impl SourceReader<'_> {
    /// Reads from the kept part of standard input.
    fn read_input(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.deadline.check(|| format!("reading {}", self.source.name())).map_err(io::Error::other)?;
        let (Bytes::Input { offset }, Source::Input(spool)) = (&mut self.bytes, self.source) else {
            return Ok(0);
        };
        let count = lock(spool).read_at(*offset, into)?;
        *offset += count as u64;
        Ok(count)
    }
}

impl Read for SourceReader<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &self.bytes {
            Bytes::Input { .. } => self.read_input(into),
            Bytes::File(_) => self.read_by(0, |file| file.read(into), |_| Ok(())),
            Bytes::Random(_) => self.read_by(
                into.len(),
                |_| Ok(0),
                |ready| {
                    // As many bytes as `into` has, or fewer.
                    if let Some(into) = into.get_mut(..ready.len()) {
                        into.copy_from_slice(ready);
                    }
                    Ok(())
                },
            ),
        }
    }
}

impl ReadVolatile for SourceReader<'_> {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        let copy = |ready: &[u8]| into.write(0, ready).map_err(io::Error::other);
        if matches!(self.bytes, Bytes::Input { .. }) {
            let mut block = vec![0; into.len().min(BLOCK_BYTES)];
            let count = self.read_input(&mut block)?;
            copy(block.get(..count).unwrap_or_default())?;
            return Ok(count);
        }
        self.read_by(into.len(), |file| file.read_volatile(into), copy)
    }
}
