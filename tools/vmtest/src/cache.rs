//! Cache of files that are fetched or built once. Every entry is created under another name and renamed when it is complete, so that an
//! existing entry is complete, however the run that created it ended.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// File in every entry that describes it.
const VERSION: &str = "VERSION";
/// Environment variable for a folder other than `target/vm-cache`.
pub(crate) const VARIABLE: &str = "FPGA_VM_CACHE";

/// Reasons why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CacheError {
    /// A file could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    File { what: &'static str, path: PathBuf, source: io::Error },
    /// Another process is creating entries.
    #[error("another run uses {}: wait for its end, or set {VARIABLE} to another folder", .0.display())]
    InUse(PathBuf),
}

/// Adds the file name to an error of the file system.
pub(crate) fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_path_buf();
    move |source| CacheError::File { what, path, source }
}

/// Cache folder, locked against a second run for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    /// Unlocked when it is closed, however this process ends.
    _lock: File,
}

/// Existing entry.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Folder of the entry.
    pub(crate) folder: PathBuf,
    /// Description in one line.
    pub(crate) version: String,
}

impl Cache {
    /// Opens the folder, which is created if necessary.
    pub(crate) fn open(folder: &Path) -> Result<Self, CacheError> {
        fs::create_dir_all(folder).map_err(at("make", folder))?;
        // Programs are started from here with other working folders.
        let folder = folder.canonicalize().map_err(at("find", folder))?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(at("make", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(CacheError::InUse(folder)),
            Err(TryLockError::Error(source)) => Err(CacheError::File { what: "lock", path, source }),
        }
    }

    /// Path of the folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Entry, if it exists and is complete.
    pub(crate) fn get(&self, name: &str) -> Option<Entry> {
        let folder = self.folder.join(name);
        let version = fs::read_to_string(folder.join(VERSION)).ok()?;
        Some(Entry { folder, version: version.trim().to_owned() })
    }

    /// Entry; if it does not exist, `make` fills a folder with its content and returns its description in one line.
    pub(crate) fn entry<E: From<CacheError>>(
        &self,
        name: &str,
        make: impl FnOnce(&Path) -> Result<String, E>,
    ) -> Result<Entry, E> {
        if let Some(entry) = self.get(name) {
            return Ok(entry);
        }
        let folder = self.folder.join(name);
        let partial = self.folder.join(format!("{name}.partial"));
        for left_over in [&partial, &folder] {
            remove(left_over)?;
        }
        fs::create_dir_all(&partial).map_err(at("make", &partial))?;
        let version = make(&partial)?;
        let note = partial.join(VERSION);
        fs::write(&note, format!("{version}\n")).map_err(at("write", &note))?;
        fs::rename(&partial, &folder).map_err(at("rename", &partial))?;
        Ok(Entry { folder, version })
    }
}

/// Removes a folder with its content, if it exists.
pub(crate) fn remove(folder: &Path) -> Result<(), CacheError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at("remove", folder)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(folder: &Path) -> Result<String, CacheError> {
        fs::write(folder.join("kernel"), "x").map_err(at("write", folder))?;
        Ok("6.12".to_owned())
    }

    #[test]
    fn cache_entry_is_built_once() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        assert!(cache.get("kernel").is_none());
        let made = cache.entry("kernel", fill).unwrap();
        assert_eq!(fs::read_to_string(made.folder.join("kernel")).unwrap(), "x");
        let again: Result<Entry, CacheError> =
            cache.entry("kernel", |_| panic!("an existing entry was made again"));
        assert_eq!(again.unwrap().version, "6.12");
    }

    #[test]
    fn cache_unfinished_entry_is_rebuilt() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let broken = cache.entry("kernel", |partial| {
            fs::write(partial.join("half"), "x").unwrap();
            Err(CacheError::InUse(partial.to_path_buf()))
        });
        assert!(broken.is_err() && cache.get("kernel").is_none());
        // An entry without its description is not complete either.
        fs::create_dir(cache.folder().join("kernel")).unwrap();
        let made = cache.entry("kernel", fill).unwrap();
        assert!(made.folder.join("kernel").is_file() && !made.folder.join("half").exists());
    }

    #[test]
    fn cache_second_run_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(folder.path()).unwrap();
        let error = Cache::open(folder.path()).unwrap_err();
        assert!(error.to_string().contains("another run uses"), "{error}");
        drop(cache);
        // A program that another test starts has the lock until it is executed.
        let mut again = Cache::open(folder.path());
        while matches!(again, Err(CacheError::InUse(_))) {
            std::thread::yield_now();
            again = Cache::open(folder.path());
        }
        again.unwrap();
    }
}
