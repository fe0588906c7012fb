//! Record of a function's driver before it was bound: one small file per function, below [`Roots::state`].
//!
//! `/run/fpga/bound/0000:65:00.0`, two lines, either value empty for none:
//!
//! ```text
//! driver=xdma
//! override=
//! ```

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::roots::attribute;
use crate::{HostError, PciAddress, Roots};

/// Recorded state of a function.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Its driver.
    pub driver: Option<String>,
    /// Its `driver_override`.
    pub driver_override: Option<String>,
}

/// Reason why a record could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory or a file in it cannot be used.
    #[error("{} cannot be {action}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Action that failed.
        action: &'static str,
        /// Error of the system.
        r#source: io::Error,
    },
    /// Another program holds the lock.
    #[error("{} is locked: another program binds or releases just now", path.display())]
    Locked {
        /// Path of the lock.
        path: PathBuf,
    },
    /// The file has an invalid content.
    #[error("{} is damaged ({what})", path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        what: &'static str,
    },
    /// The file could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl RecordError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::File { .. } => Some("run as root, and make /run writable".into()),
            Self::Locked { .. } => Some("try again".into()),
            Self::Damaged { .. } => Some("remove it: the kernel then chooses the driver".into()),
            Self::Host(inner) => inner.help(),
        }
    }
}

/// The records, locked against other programs.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    /// Held for its lock, which ends when the file is closed.
    _lock: File,
}

impl Records {
    /// Takes the lock without waiting: fails if another program binds at the same time.
    pub(super) fn lock(roots: &Roots) -> Result<Self, RecordError> {
        let directory = roots.state.join("bound");
        fs::create_dir_all(&directory).map_err(failed(&directory, "made"))?;
        let path = roots.state.join("lock");
        let lock = File::create(&path).map_err(failed(&path, "made"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { directory, _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(RecordError::Locked { path }),
            Err(fs::TryLockError::Error(source)) => Err(failed(&path, "locked")(source)),
        }
    }

    /// Writes the function's record. The file is written completely or not at all.
    pub(super) fn write(&self, address: PciAddress, record: &Record) -> Result<(), RecordError> {
        let path = self.path(address);
        let new = path.with_extension("new");
        let text = format!(
            "driver={}\noverride={}\n",
            record.driver.as_deref().unwrap_or_default(),
            record.driver_override.as_deref().unwrap_or_default()
        );
        File::create(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(failed(&new, "written"))?;
        fs::rename(&new, &path).map_err(failed(&path, "written"))
    }

    /// Reads the function's record, if there is one.
    pub(super) fn read(&self, address: PciAddress) -> Result<Option<Record>, RecordError> {
        let path = self.path(address);
        let Some(text) = attribute(&path)? else { return Ok(None) };
        parse(&text).map(Some).map_err(|what| RecordError::Damaged { path, what })
    }

    /// Removes the function's record.
    pub(super) fn remove(&self, address: PciAddress) -> Result<(), RecordError> {
        let path = self.path(address);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, "removed")(error)),
            _ => Ok(()),
        }
    }

    fn path(&self, address: PciAddress) -> PathBuf {
        // Colons and dots are valid in names, but `with_extension` must not take ".0" for an extension.
        self.directory.join(address.to_string().replace('.', "-"))
    }
}

fn failed(path: &Path, action: &'static str) -> impl Fn(io::Error) -> RecordError {
    move |source| RecordError::File { path: path.to_owned(), action, source }
}

fn parse(text: &str) -> Result<Record, &'static str> {
    let mut record = Record::default();
    let mut complete = [false; 2];
    for line in text.lines() {
        let (key, value) = line.split_once('=').ok_or("a line without =")?;
        if !is_name(value) {
            return Err("a driver's name that is none");
        }
        let value = (!value.is_empty()).then(|| value.to_owned());
        match key {
            "driver" => (record.driver, complete[0]) = (value, true),
            "override" => (record.driver_override, complete[1]) = (value, true),
            _ => return Err("a line that is not known"),
        }
    }
    if complete == [true; 2] { Ok(record) } else { Err("a line is missing") }
}

/// Returns whether a text is a valid name: names become parts of paths.
fn is_name(text: &str) -> bool {
    text.len() <= 255
        && !matches!(text, "." | "..")
        && text.chars().all(|c| (c.is_ascii_graphic() || c == ' ') && c != '/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn record_damaged_is_refused() {
        for text in [
            "",
            "driver=xdma",
            "override=",
            "driver=a\noverride=\nmore=",
            "driver",
            "driver=../x\noverride=",
            "driver=..\noverride=",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        let record = parse("driver=xdma\noverride=").unwrap();
        assert_eq!(record, Record { driver: Some("xdma".to_owned()), driver_override: None });
    }

    #[test]
    fn record_lock_excludes_others_until_holder_ends() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::with_root(dir.path());
        let records = Records::lock(&roots).unwrap();
        assert!(matches!(Records::lock(&roots), Err(RecordError::Locked { .. })));
        drop(records);
        Records::lock(&roots).unwrap();
    }

    proptest! {
        #[test]
        fn record_written_is_read_back(
            driver in proptest::option::of("[a-z0-9_-]{1,20}"), only in proptest::option::of("[a-z0-9_-]{1,20}"),
            function in 0_u8..8, junk in "\\PC{0,60}",
        ) {
            let dir = tempfile::tempdir().unwrap();
            let records = Records::lock(&Roots::with_root(dir.path())).unwrap();
            let address = PciAddress::new(0, 0x65, 0, function).unwrap();
            prop_assert_eq!(records.read(address).unwrap(), None);
            let record = Record { driver, driver_override: only };
            records.write(address, &record).unwrap();
            prop_assert_eq!(records.read(address).unwrap(), Some(record));
            fs::write(records.path(address), junk).unwrap();
            let _ = records.read(address);
            records.remove(address).unwrap();
            prop_assert_eq!(records.read(address).unwrap(), None);
        }
    }
}
