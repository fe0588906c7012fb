//! Output files. Every file that a command writes goes through [`OutFile`].
//!
//! | Named file | Action |
//! |---|---|
//! | a regular file, or none yet | a temporary file beside it, `.NAME.XXXXXX.fpgactl-part`, is written, and renamed when it is complete |
//! | a symbolic link to one | the same for the link's target; the link stays |
//! | `-`, `/dev/stdout` | standard output is written; reports go to standard error then |
//! | a device, a pipe, another descriptor of the process | it is written directly; a pipe is waited for until the time limit or a signal |
//!
//! So a file of that name is either the old one or the complete new one, however the command ends. SIGINT, SIGTERM and SIGHUP remove the
//! temporary file; SIGKILL leaves it. The permissions of an existing file, and its owner and group if the process may set them, are kept;
//! other hard links keep the old content.

mod partial;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fpga_driver::{SharedSlice, WriteVolatile};
use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::error::{CliError, wrap};
use crate::progress::Deadline;
use partial::PartialFileClaim;

pub(crate) use partial::{remove_temporary, watch};

/// Suffix of a temporary file's name.
pub const SUFFIX: &str = ".fpgactl-part";
/// Maximum number of bytes of a file's name that its temporary file repeats, so that the whole stays below `NAME_MAX`.
const MAX_NAME_BYTES: usize = 200;
/// Maximum number of consecutive symbolic links (`path_resolution(7)`).
const MAX_LINKS: usize = 40;
/// Intended action on an output file, for errors.
const ACTION: &str = "write it";
/// Time between two attempts to open a pipe that has no reader. The system reports no event when one comes.
const READER_POLL: Duration = Duration::from_millis(20);

/// Returns whether a file name means standard output.
#[must_use]
pub fn is_stdout(path: &Path) -> bool {
    ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| path == Path::new(name))
}

/// Returns whether a file name leads to a terminal.
#[must_use]
pub fn is_terminal(path: &Path) -> bool {
    if is_stdout(path) {
        return io::stdout().is_terminal();
    }
    // Opening a device can have effects, so that its name decides.
    let device = fs::canonicalize(path).unwrap_or_default();
    device.starts_with("/dev/pts") || device.to_string_lossy().starts_with("/dev/tty")
}

/// File being written. Dropping it keeps the previous file; [`commit`](Self::commit) replaces it.
#[derive(Debug)]
pub struct OutFile {
    path: PathBuf,
    destination: Destination,
    /// Limit of waits for the reader of a pipe.
    deadline: Deadline,
    _claim: Option<PartialFileClaim>,
}

#[derive(Debug)]
enum Destination {
    /// Standard output, a device, a pipe.
    Direct(File),
    /// A file beside `target`.
    Temporary { file: NamedTempFile, target: PathBuf, replaces: bool },
}

/// Destination that a name stands for.
enum OutputTarget {
    Direct,
    /// A file, and the existing regular file.
    File(PathBuf, Option<Metadata>),
}

impl OutFile {
    /// Opens an output file. An existing file does not change. For a pipe without a reader, waits for one.
    ///
    /// # Errors
    /// [`CliError::timed_out`] at the deadline, [`CliError::stopped`] at a signal, also in later writes to a pipe; wrong usage if another output of the command has
    /// the same name.
    pub fn create(path: &Path, deadline: Deadline) -> Result<Self, CliError> {
        let fail = |source| CliError::file(path, ACTION, source);
        let direct = |file| Self {
            path: path.to_owned(),
            destination: Destination::Direct(file),
            deadline,
            _claim: None,
        };
        if is_stdout(path) {
            return Ok(direct(stdout().map_err(fail)?));
        }
        match resolve(path).map_err(fail)? {
            OutputTarget::Direct => {
                let found = fs::metadata(path).map_err(fail)?;
                let file = if found.file_type().is_fifo() {
                    pipe(path, deadline).map_err(|error| CliError::carried(path, ACTION, error))?
                } else {
                    OpenOptions::new().write(true).truncate(true).open(path).map_err(fail)?
                };
                Ok(direct(file))
            }
            OutputTarget::File(target, existing) => {
                Self::create_temporary(path, &target, existing.as_ref(), deadline)
            }
        }
    }

    /// Creates the temporary file for `target`.
    fn create_temporary(
        path: &Path,
        target: &Path,
        existing: Option<&Metadata>,
        deadline: Deadline,
    ) -> Result<Self, CliError> {
        let fail = |source| CliError::file(path, ACTION, source);
        let name = target.file_name().ok_or_else(|| fail(io::ErrorKind::IsADirectory.into()))?;
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        // Canonical name, so that two outputs to one file are detected.
        let folder = &fs::canonicalize(folder).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let (path, folder) = (path.display(), folder.display());
                CliError::failed(format!("{path}: cannot write it: the folder {folder} does not exist"))
                    .advise("create it (mkdir -p), or name a file in another one")
            }
            _ => fail(error),
        })?;
        let target = folder.join(name);
        if existing.is_some() {
            // A file that this process may not write must not be replaced either.
            drop(OpenOptions::new().write(true).open(&target).map_err(fail)?);
        }
        watch().map_err(CliError::signals)?;
        let (made, claim) =
            PartialFileClaim::with(&target, || temporary(folder, name)).ok_or_else(|| twice(path))?;
        let file = made.map_err(fail)?;
        if let Some(existing) = existing {
            copy_owner_and_mode(file.as_file(), existing).map_err(fail)?;
        }
        let destination = Destination::Temporary { file, target, replaces: existing.is_some() };
        Ok(Self { path: path.to_owned(), destination, deadline, _claim: Some(claim) })
    }

    /// Writes a whole file.
    pub fn write_whole(path: &Path, bytes: &[u8], deadline: Deadline) -> Result<(), CliError> {
        let mut file = Self::create(path, deadline)?;
        file.write_all(bytes).map_err(|error| CliError::carried(path, ACTION, error))?;
        file.commit()
    }

    /// Shortens the new file to `length` bytes. What was written to a pipe or device stays there.
    pub fn truncate(&mut self, length: u64) -> Result<(), CliError> {
        match &self.destination {
            Destination::Temporary { file, .. } => {
                file.as_file().set_len(length).map_err(|source| CliError::file(&self.path, ACTION, source))
            }
            Destination::Direct(_) => Ok(()),
        }
    }

    /// Renames the complete file to its final name.
    ///
    /// # Errors
    /// Errors of the system. If only the last step failed, the temporary file remains, and the advice names it.
    pub fn commit(self) -> Result<(), CliError> {
        let Self { path, destination, _claim, .. } = self;
        let Destination::Temporary { file, target, replaces } = destination else { return Ok(()) };
        if replaces {
            // After a crash of the machine, either the old or the new content must be stored.
            file.as_file().sync_data().map_err(|source| CliError::file(&path, ACTION, source))?;
        }
        match file.persist(target) {
            Ok(_) => Ok(()),
            Err(error) => {
                let source = error.error;
                match error.file.keep() {
                    // The content is complete.
                    Ok((_, temporary)) => Err(CliError::failed(format!(
                        "{}: the old file cannot be replaced: {source}",
                        path.display()
                    ))
                    .advise(format!("move the new content from {}", temporary.display()))),
                    Err(_) => Err(CliError::file(&path, ACTION, source)),
                }
            }
        }
    }
}

impl OutFile {
    fn file(&self) -> &File {
        match &self.destination {
            Destination::Direct(file) => file,
            Destination::Temporary { file, .. } => file.as_file(),
        }
    }

    /// Writes by `write`. Waits while a pipe is full.
    fn written(&self, mut write: impl FnMut(&File) -> io::Result<usize>) -> io::Result<usize> {
        loop {
            match write(self.file()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let what = || format!("writing {}", self.path.display());
                    self.deadline.wait_for(self.file(), PollFlags::OUT, what)?;
                }
                written => return written.map_err(|error| self.failed(error)),
            }
        }
    }

    /// Adds the file's name to the error of a write.
    fn failed(&self, error: io::Error) -> io::Error {
        match (&self.destination, error.kind()) {
            (Destination::Direct(_), io::ErrorKind::BrokenPipe) => {
                io::Error::other(CliError::closed(&self.path))
            }
            _ => wrap(&self.path, ACTION, error),
        }
    }
}

impl WriteVolatile for OutFile {
    fn write_volatile(&mut self, from: SharedSlice<'_>) -> io::Result<usize> {
        self.written(|mut file| file.write_volatile(from))
    }
}

impl Write for OutFile {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.written(|mut file| file.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        // There is no buffer here.
        Ok(())
    }
}

/// Flag of files whose writes fail instead of waiting.
fn nonblocking() -> i32 {
    i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0)
}

/// Standard output. A pipe is opened again: the flag of a shared one would affect other processes.
fn stdout() -> io::Result<File> {
    let out = io::stdout();
    let shared = File::from(out.as_fd().try_clone_to_owned()?);
    if shared.metadata()?.file_type().is_fifo() {
        let own = format!("/proc/self/fd/{}", out.as_fd().as_raw_fd());
        if let Ok(own) = OpenOptions::new().write(true).custom_flags(nonblocking()).open(own) {
            return Ok(own);
        }
    }
    Ok(shared)
}

/// Opens a pipe once it has a reader.
fn pipe(path: &Path, deadline: Deadline) -> io::Result<File> {
    let mut waits = false;
    loop {
        match OpenOptions::new().write(true).custom_flags(nonblocking()).open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if !std::mem::replace(&mut waits, true) {
                    tracing::info!("waiting for a reader of {}", path.display());
                }
                deadline.sleep(READER_POLL, || format!("waiting for a reader of {}", path.display()))?;
            }
            opened => return opened,
        }
    }
}

fn twice(path: &Path) -> CliError {
    CliError::usage(format!("{} is named for two outputs of this command", path.display()))
        .advise("name two files")
}

/// Finds the file that a name leads to: a link's target is replaced, not the link.
fn resolve(path: &Path) -> io::Result<OutputTarget> {
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => return Ok(OutputTarget::Direct),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut place = path.to_owned();
    for _ in 0..MAX_LINKS {
        let found = match fs::symlink_metadata(&place) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(OutputTarget::File(place, None));
            }
            Err(error) => return Err(error),
        };
        if !found.is_symlink() {
            return Ok(OutputTarget::File(place, Some(found)));
        }
        let to = fs::read_link(&place)?;
        let folder = place.parent().unwrap_or(Path::new(""));
        if folder.starts_with("/proc") || folder.starts_with("/dev/fd") {
            // Kernel link to an open file, whose name may belong to another file by now.
            return Ok(OutputTarget::Direct);
        }
        place = folder.join(to);
    }
    Err(io::Error::other("too many symbolic links"))
}

/// New file in `folder`, with the permissions that the umask permits.
fn temporary(folder: &Path, name: &OsStr) -> io::Result<NamedTempFile> {
    let kept = name.as_bytes().get(..MAX_NAME_BYTES).unwrap_or(name.as_bytes());
    let prefix = OsString::from_vec([b".", kept, b"."].concat());
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(SUFFIX)
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)
}

/// Copies owner and permissions of the existing file to the new one.
fn copy_owner_and_mode(file: &File, existing: &Metadata) -> io::Result<()> {
    let made = file.metadata()?;
    if (made.uid(), made.gid()) != (existing.uid(), existing.gid())
        && fchown(file, Some(existing.uid()), Some(existing.gid())).is_err()
        && let Err(error) = fchown(file, None, Some(existing.gid()))
    {
        tracing::debug!(%error, "the file changes its owner");
    }
    // After the owner: changing the owner clears permission bits.
    file.set_permissions(existing.permissions())
}

#[cfg(test)]
mod tests;
