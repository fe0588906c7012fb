//! Standard input and named pipes as sources of bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fpga_driver::{ReadVolatile, SharedSlice};
use fpga_input::{FileKind, InputError};
use rustix::event::PollFlags;

use super::BLOCK_BYTES;
use crate::error::{CliError, wrap};
use crate::progress::Deadline;

/// Returns whether a file name means standard input.
#[must_use]
pub fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns whether reading `file` may have to wait: standard input or a pipe.
#[must_use]
pub fn waits(file: &Path) -> bool {
    is_stdin(file) || std::fs::metadata(file).is_ok_and(|found| found.file_type().is_fifo())
}

/// Opens `file` for reading. Does not wait for the writer of a pipe: wait until the file is readable before each read.
pub fn open_at_once(file: &Path) -> io::Result<File> {
    let flags = if waits(file) { rustix::fs::OFlags::NONBLOCK.bits() } else { 0 };
    OpenOptions::new().read(true).custom_flags(i32::try_from(flags).unwrap_or(0)).open(file)
}

/// Reads the YAML text of `file`; `-` is standard input.
///
/// # Errors
/// Those of reading it; for standard input and pipes those of [`Input::open`], [`CliError::timed_out`] and [`CliError::stopped`], too.
pub(crate) fn read_yaml(kind: FileKind, file: &Path, deadline: Deadline) -> Result<String, CliError> {
    let Some(input) = Input::named(file, deadline)? else { return Ok(kind.read_yaml(file)?) };
    let text = kind.read_from(file, input).map_err(|error| match error {
        InputError::Unreadable { source, .. } => CliError::carried(file, "read it", source),
        other => other.into(),
    })?;
    kind.check_yaml(file, &text)?;
    Ok(text)
}

/// Standard input or a pipe. A read ends when bytes are available, when the command's time is over, or when a signal requests the end.
#[derive(Debug)]
pub struct Input {
    file: File,
    name: PathBuf,
    deadline: Deadline,
}

impl Input {
    /// Opens standard input, once per process.
    ///
    /// # Errors
    /// Wrong usage if another input uses it already.
    pub fn open(deadline: Deadline) -> Result<Self, CliError> {
        static TAKEN: AtomicBool = AtomicBool::new(false);
        if TAKEN.swap(true, Ordering::Relaxed) {
            let text = "standard input (-) is named for two inputs of this command";
            return Err(CliError::usage(text).advise("name a file for one"));
        }
        let name = name().to_owned();
        let file = io::stdin().as_fd().try_clone_to_owned();
        Ok(Self {
            file: file.map_err(|source| CliError::file(&name, "read it", source))?.into(),
            name,
            deadline,
        })
    }

    /// Opens `file` if it is `-` or a pipe: files for which a read, or already the open, may have to wait. `None` for any other file.
    pub fn named(file: &Path, deadline: Deadline) -> Result<Option<Self>, CliError> {
        if is_stdin(file) {
            return Self::open(deadline).map(Some);
        }
        if !waits(file) {
            return Ok(None);
        }
        let opened = open_at_once(file).map_err(|source| CliError::file(file, "read it", source))?;
        Ok(Some(Self { file: opened, name: file.to_owned(), deadline }))
    }

    /// Remaining bytes, if it is a file.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        let found = self.file.metadata().ok().filter(|found| found.is_file())?;
        let place = (&self.file).stream_position().ok()?;
        Some(found.len().saturating_sub(place))
    }

    /// Waits until a read returns at once.
    fn wait(&self) -> io::Result<()> {
        self.deadline.wait_for(&self.file, PollFlags::IN, || format!("reading {}", self.name.display()))
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.wait()?;
        self.file.read(into).map_err(|error| wrap(&self.name, "read it", error))
    }
}

impl ReadVolatile for Input {
    fn read_volatile(&mut self, into: SharedSlice<'_>) -> io::Result<usize> {
        self.wait()?;
        self.file.read_volatile(into).map_err(|error| wrap(&self.name, "read it", error))
    }
}

fn name() -> &'static Path {
    Path::new("standard input")
}

/// Standard input for a command that reads everything twice: one part at a time is kept in a temporary file without a name, which is never
/// left behind however the command ends.
#[derive(Debug)]
pub struct Spool {
    input: Input,
    kept: File,
    /// Offset of the kept part in the input.
    start: u64,
    /// Length of the kept part in bytes.
    length: u64,
}

impl Spool {
    pub(super) fn open(deadline: Deadline) -> Result<Self, CliError> {
        let kept = tempfile::tempfile().map_err(spool_error)?;
        Ok(Self { input: Input::open(deadline)?, kept, start: 0, length: 0 })
    }

    /// Replaces the kept part by the next one, of at most `most` bytes. Returns its length; 0 at the end.
    pub(super) fn next_part(&mut self, most: u64) -> Result<u64, CliError> {
        self.start = self.start.saturating_add(self.length);
        self.length = 0;
        self.kept.set_len(0).and_then(|()| self.kept.seek(SeekFrom::Start(0))).map_err(spool_error)?;
        let mut block = vec![0; BLOCK_BYTES];
        while self.length < most {
            let wanted = usize::try_from(most - self.length).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
            let count = match self.input.read(block.get_mut(..wanted).unwrap_or_default()) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(CliError::carried(name(), "read it", error)),
            };
            self.kept.write_all(block.get(..count).unwrap_or_default()).map_err(spool_error)?;
            self.length += count as u64;
        }
        Ok(self.length)
    }

    /// Reads bytes of the kept part.
    pub(super) fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        let inside = offset.saturating_sub(self.start);
        let left = usize::try_from(self.length.saturating_sub(inside)).unwrap_or(usize::MAX);
        let count = into.len().min(left);
        self.kept
            .read_at(into.get_mut(..count).unwrap_or_default(), inside)
            .map_err(|error| wrap(name(), "read its copy", error))
    }
}

/// Error of the temporary file. The system determines where files without a name are.
fn spool_error(source: io::Error) -> CliError {
    CliError::file(&std::env::temp_dir(), "keep a part of standard input there (TMPDIR)", source)
}
