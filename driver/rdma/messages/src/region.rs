//! Memory that peers may access.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Permissions of peers in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAccess {
    /// Peers may read.
    pub read: bool,
    /// Peers may write.
    pub write: bool,
}

impl RemoteAccess {
    const fn allows(self, other: Self) -> bool {
        (self.read || !other.read) && (self.write || !other.write)
    }
}

/// Registered memory of an application, shared by its messengers. A region is addressed by its key, and by an offset or a virtual address.
#[derive(Debug, Default)]
pub struct Regions {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_key: HashMap<u64, Entry>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    address: u64,
    length: u64,
    /// Address that stands for the first byte.
    base: u64,
    access: RemoteAccess,
}

/// Reason why memory is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The key is in use.
    #[error("key {key:#x} is in use: choose another one")]
    KeyInUse {
        /// The key.
        key: u64,
    },
    /// The range wraps around the end of the address space.
    #[error("{length} bytes at {address:#x} are beyond the end of the address space")]
    Range {
        /// First byte.
        address: u64,
        /// Length in bytes.
        length: u64,
    },
}

impl Regions {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        // The entries are complete at any time.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers `length` bytes of the application's memory at `address`. Peers address the first byte as `base`. Returns the key: `key`, or
    /// a free one.
    ///
    /// # Errors
    /// [`RegionError`].
    pub fn register(
        &self,
        address: u64,
        length: u64,
        base: u64,
        access: RemoteAccess,
        key: Option<u64>,
    ) -> Result<u64, RegionError> {
        if address.checked_add(length).is_none() || base.checked_add(length).is_none() {
            return Err(RegionError::Range { address, length });
        }
        let mut entries = self.lock();
        let key = match key {
            Some(key) if entries.by_key.contains_key(&key) => return Err(RegionError::KeyInUse { key }),
            Some(key) => key,
            None => loop {
                let candidate = entries.next;
                entries.next = candidate.wrapping_add(1);
                if !entries.by_key.contains_key(&candidate) {
                    break candidate;
                }
            },
        };
        entries.by_key.insert(key, Entry { address, length, base, access });
        Ok(key)
    }

    /// Deregisters a region. Returns whether there was one.
    pub fn deregister(&self, key: u64) -> bool {
        self.lock().by_key.remove(&key).is_some()
    }

    /// Calls `use_it` with the application's address of `length` bytes at `address` of the region `key`, if it has them and permits `access`.
    /// The region stays registered meanwhile. Returns `None` if it does not.
    pub(crate) fn with<T>(
        &self,
        key: u64,
        address: u64,
        length: u64,
        access: RemoteAccess,
        use_it: impl FnOnce(u64) -> T,
    ) -> Option<T> {
        let entries = self.lock();
        let entry = entries.by_key.get(&key)?;
        let offset = address.checked_sub(entry.base)?;
        let fits = offset.checked_add(length).is_some_and(|end| end <= entry.length);
        (fits && entry.access.allows(access)).then(|| use_it(entry.address + offset))
    }
}
