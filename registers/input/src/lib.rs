//! Reads text files that users name, with a limit for each kind of file.
//!
//! Every program of this project reads a text file that a user names (a card description, a scenario, a register map, ...) through
//! [`FileKind::read`] or, for YAML that `serde_yaml` parses, `FileKind::read_yaml` (feature `yaml`). Both read no more than the
//! kind's limit, refuse files without end (devices), accept pipes such as those of a shell's `<(...)`, and name the file, its size
//! and the limit in the error.

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

mod wording;
#[cfg(feature = "yaml")]
mod yaml;

pub use wording::{plain_message, shortened};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// A kind of text file that users write, and the size limit of such files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileKind {
    /// Name in messages.
    pub name: &'static str,
    /// Maximum size in bytes.
    pub limit: u64,
}

impl FileKind {
    /// Defaults of the command line (`--config`).
    pub const CONFIGURATION: Self = Self { name: "configuration file", limit: MIB };
    /// A simulated card (`--card mock:FILE.yaml`).
    pub const CARD: Self = Self { name: "card file", limit: MIB };
    /// A plan of faults for a served card.
    pub const FAULT_PLAN: Self = Self { name: "plan of faults", limit: MIB };
    /// A scenario of the simulator.
    pub const SCENARIO: Self = Self { name: "scenario", limit: 16 * MIB };
    /// A list of flows of a scenario.
    pub const FLOW_LIST: Self = Self { name: "flow list", limit: 64 * MIB };
    /// A key of a link by UDP (`--link-key`).
    pub const LINK_KEY: Self = Self { name: "link key", limit: 4 * KIB };
    /// A register map (`--map`).
    pub const REGISTER_MAP: Self = Self { name: "register map", limit: 8 * MIB };
    /// A register log (`--record`, `replay`).
    pub const REGISTER_LOG: Self = Self { name: "register log", limit: GIB };

    /// Every kind; docs/guide/command-line.md lists the limits.
    pub const ALL: [Self; 8] = [
        Self::CONFIGURATION,
        Self::CARD,
        Self::FAULT_PLAN,
        Self::SCENARIO,
        Self::FLOW_LIST,
        Self::LINK_KEY,
        Self::REGISTER_MAP,
        Self::REGISTER_LOG,
    ];

    /// Opens `file` for reading. The reader fails with [`InputError::TooLong`] (in an [`io::Error`], see [`InputError::carried`]) instead of
    /// returning more than the limit.
    ///
    /// # Errors
    /// [`InputError::Unreadable`], [`InputError::Special`]; [`InputError::TooLong`] for a regular file above the limit.
    pub fn open(self, file: &Path) -> Result<BoundedFile, InputError> {
        let unreadable = |source| InputError::Unreadable { kind: self, file: file.to_owned(), source };
        // Before it is opened: opening a device can have effects, such as rewinding a tape.
        let found = std::fs::metadata(file).map_err(unreadable)?;
        if let Some(special) = special(found.file_type()) {
            return Err(InputError::Special { kind: self, file: file.to_owned(), special });
        }
        if found.is_file() && found.len() > self.limit {
            return Err(InputError::TooLong { kind: self, file: file.to_owned(), size: Some(found.len()) });
        }
        let inner = File::open(file).map_err(unreadable)?;
        Ok(self.bounded(file, inner))
    }

    /// Reads the text of `file`: a regular file or a pipe.
    ///
    /// # Errors
    /// See [`InputError`].
    pub fn read(self, file: &Path) -> Result<String, InputError> {
        self.text(file, self.open(file)?)
    }

    /// Reads the text from `reader`, such as standard input; `file` is only named in errors.
    ///
    /// # Errors
    /// See [`InputError`].
    pub fn read_from(self, file: &Path, reader: impl Read) -> Result<String, InputError> {
        self.text(file, self.bounded(file, reader))
    }

    /// Limits `reader` as [`open`](Self::open) does; `file` is only named in errors.
    pub fn bounded<R: Read>(self, file: &Path, reader: R) -> BoundedFile<R> {
        BoundedFile { kind: self, file: file.to_owned(), inner: reader, left: self.limit }
    }

    fn text(self, file: &Path, mut reader: BoundedFile<impl Read>) -> Result<String, InputError> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| InputError::carried(self, file, error))?;
        String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            InputError::NotText { kind: self, file: file.to_owned(), at }
        })
    }
}

/// Description of a file that cannot be read as text; `None` for a regular file or a pipe.
fn special(kind: FileType) -> Option<&'static str> {
    if kind.is_dir() {
        Some("directory")
    } else if kind.is_char_device() {
        Some("character device")
    } else if kind.is_block_device() {
        Some("block device")
    } else if kind.is_socket() {
        Some("socket")
    } else {
        None
    }
}

/// A reader that fails when its file exceeds the limit.
#[derive(Debug)]
pub struct BoundedFile<R = File> {
    kind: FileKind,
    file: PathBuf,
    inner: R,
    left: u64,
}

impl<R: Read> Read for BoundedFile<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            // A file of exactly the limit ends here; one more byte is too many.
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => {
                    let (kind, file) = (self.kind, self.file.clone());
                    Err(io::Error::other(InputError::TooLong { kind, file, size: None }))
                }
            };
        }
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let count = self.inner.read(into.get_mut(..most).unwrap_or_default())?;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

/// Reason why a text file was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The system refused.
    #[error("{} {}: cannot read it: {source}; {}", kind.name, file.display(), advice(source))]
    Unreadable {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// Error of the system.
        r#source: io::Error,
    },
    /// The file is neither a regular file nor a pipe.
    #[error("{} {}: this is a {special}; name a regular file or a pipe", kind.name, file.display())]
    Special {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// Type of the file.
        special: &'static str,
    },
    /// The file exceeds the limit of its kind.
    #[error(
        "{} {}: the file has {} bytes, above the limit of {} ({}); check that this is the intended file",
        kind.name, file.display(), size.map_or_else(|| format!("more than {}", kind.limit), |size| size.to_string()),
        kind.limit, binary_size(kind.limit)
    )]
    TooLong {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// Size of the file, if the system knows it.
        size: Option<u64>,
    },
    /// The file is not text.
    #[error("{} {}: this is not text: byte {at} is not UTF-8; name a text file", kind.name, file.display())]
    NotText {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// Offset of the first wrong byte.
        at: usize,
    },
    /// Lists and mappings are nested too deeply.
    #[error(
        "{} {}:{line}:{column}: lists and mappings are nested more than {limit} deep; close the brackets",
        kind.name, file.display()
    )]
    Nested {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// Line of the bracket that exceeds the limit, from 1.
        line: usize,
        /// Its column, from 1.
        column: usize,
        /// The limit.
        limit: usize,
    },
    /// Aliases repeat too many values.
    #[error(
        "{} {}: its aliases repeat too many values (at most {limit} in total); write the values out, or use fewer aliases",
        kind.name, file.display()
    )]
    Aliases {
        /// The kind of file that was expected.
        kind: FileKind,
        /// The file.
        file: PathBuf,
        /// The limit.
        limit: u64,
    },
}

impl InputError {
    /// Extracts the error that a [`BoundedFile`] reported through a reader, or wraps the system's.
    #[must_use]
    pub fn carried(kind: FileKind, file: &Path, error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(inner) => inner,
            Err(source) => Self::Unreadable { kind, file: file.to_owned(), source },
        }
    }
}

/// Advice for an error of the system on a file: one imperative sentence without its full stop.
#[must_use]
pub fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "check the permissions of the file and of its directory",
        io::ErrorKind::IsADirectory => "name a file, not a directory",
        io::ErrorKind::NotADirectory => "check the path: one of its directories is a file",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "free space on the device, or choose another location"
        }
        io::ErrorKind::FileTooLarge => {
            "the file is larger than the limit of this process (ulimit -f) or of the file system allows; raise the limit, or write less data"
        }
        io::ErrorKind::ReadOnlyFilesystem => "choose another location",
        _ => "check the file and its device",
    }
}

/// Formats a limit in its largest whole unit.
fn binary_size(bytes: u64) -> String {
    let whole = |unit: u64| bytes.checked_div(unit).filter(|count| count * unit == bytes && *count > 0);
    for (unit, name) in [(GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")] {
        if let Some(count) = whole(unit) {
            return format!("{count} {name}");
        }
    }
    format!("{bytes} bytes")
}
