//! Which driver a function had before it was bound: one small file for each, below [`Roots::state`].
//!
//! `/run/fpga/bound/0000:65:00.0`, two lines, either value empty for none:
//!
//! ```text
//! driver=xdma
//! override=
//! ```

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::roots::attribute;
use crate::{HostError, PciAddress, Roots};

/// What a function had.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// Its driver.
    pub driver: Option<String>,
    /// Its `driver_override`.
    pub driver_override: Option<String>,
}

/// What a function had could not be kept or found out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The directory or a file in it cannot be used.
    #[error("{} cannot be {action}: {source}; binding needs root, and a writable /run", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was to be done with it.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else is at it.
    #[error("{} is locked: another program binds or releases just now; try again", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// The file holds something else.
    #[error("{} is damaged ({what}): remove it, and the kernel chooses the driver", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It could not be read.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// The records, while nobody else changes them.
#[derive(Debug)]
pub(super) struct Records {
    directory: PathBuf,
    /// Held, not used: the lock ends with it.
    _lock: File,
}

impl Records {
    /// Waits for nobody: who binds at the same time is told so.
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

    /// Keeps what the function had. The file is there whole or not at all.
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

    /// What the function had, if that was kept.
    pub(super) fn read(&self, address: PciAddress) -> Result<Option<Record>, RecordError> {
        let path = self.path(address);
        let Some(text) = attribute(&path)? else { return Ok(None) };
        parse(&text).map(Some).map_err(|what| RecordError::Damaged { path, what })
    }

    /// Forgets what the function had.
    pub(super) fn remove(&self, address: PciAddress) -> Result<(), RecordError> {
        let path = self.path(address);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(&path, "removed")(error)),
            _ => Ok(()),
        }
    }

    fn path(&self, address: PciAddress) -> PathBuf {
        // Colons and points are fine in names; `with_extension` must not take ".0" for one.
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

/// Names become parts of paths.
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
