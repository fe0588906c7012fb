//! Authenticated datagrams: all ends of a link share a key, and each datagram ends with a tag of it.
//!
//! | Bytes after the datagram | |
//! |---|---|
//! | 0..8 | when it was sent: microseconds since 1970 by the sender's clock, higher in every later datagram |
//! | 8..40 | tag: BLAKE3 with the key, of the datagram and the time |
//!
//! Who does not have the key can neither create nor change a datagram. The content is not encrypted. A copy of a datagram that is sent again
//! within [`MAX_AGE`] is a duplicate, as networks create them, and the transport drops it; later copies are dropped here. An end that has
//! just started knows no times, and accepts older datagrams of a node until the first new one arrives. Their transfers are for an earlier
//! incarnation of its card, which drops them.
//!
//! A sender whose clock was set back by more than [`MAX_AGE`] between two processes with the same node is heard again when its clock has caught up.

use super::NODES;
use super::wrapper;
use fpga_firmware::NodeId;
use fpga_input::{FileKind, InputError};
use fpga_registers::bytes::u64_at;
use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes after each datagram of a link with a key.
pub(super) const TRAILER_LENGTH: usize = TIME_LENGTH + blake3::OUT_LEN;
const TIME_LENGTH: usize = size_of::<u64>();
/// Maximum time by which a datagram may have been sent before the newest one of its node: reordering in networks is far below.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Key that all ends of a link share.
#[derive(Clone, PartialEq, Eq)]
pub struct LinkKey([u8; blake3::KEY_LEN]);

impl fmt::Debug for LinkKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("LinkKey(..)")
    }
}

/// Reason why a key cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkKeyError {
    /// The file cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Other users can access the file.
    #[error("link key {}: other users can access the file (mode {mode:03o}); chmod 600 it", .path.display())]
    NotPrivate {
        /// The file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// The file is not a key.
    #[error("link key {}: give 64 hexadecimal digits, as openssl rand -hex 32 prints them", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
    },
}

impl LinkKey {
    /// Creates a key of 32 random bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads a key from a file of 64 hexadecimal digits that no other user can access.
    ///
    /// # Errors
    /// [`LinkKeyError`].
    pub fn read(path: &Path) -> Result<Self, LinkKeyError> {
        let text = FileKind::LINK_KEY.read(path)?;
        // A pipe has no mode worth checking: nobody else can open it.
        if let Ok(found) = std::fs::metadata(path)
            && found.is_file()
            && found.mode() & 0o077 != 0
        {
            return Err(LinkKeyError::NotPrivate { path: path.to_owned(), mode: found.mode() & 0o777 });
        }
        let format = || LinkKeyError::Format { path: path.to_owned() };
        let key = blake3::Hash::from_hex(text.trim()).map_err(|_| format())?;
        Ok(Self(*key.as_bytes()))
    }
}

/// Reason why a datagram is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It has no tag of the key.
    Tag,
    /// It was sent long before the newest datagram of its node.
    Old,
}

/// Creates and checks the ends of datagrams.
#[derive(Debug)]
pub(super) struct Authenticator {
    hasher: blake3::Hasher,
    /// Time of the datagram sent last.
    last: u64,
    /// Time of the newest datagram of each node.
    newest: HashMap<NodeId, u64>,
}

impl Authenticator {
    pub(super) fn new(key: &LinkKey) -> Self {
        Self { hasher: blake3::Hasher::new_keyed(&key.0), last: 0, newest: HashMap::new() }
    }

    fn tag(&mut self, parts: [&[u8]; 3], time: [u8; TIME_LENGTH]) -> blake3::Hash {
        self.hasher.reset();
        for part in parts {
            self.hasher.update(part);
        }
        self.hasher.update(&time).finalize()
    }

    /// Returns the end of a datagram that is sent now.
    pub(super) fn seal(&mut self, parts: [&[u8]; 3]) -> [u8; TRAILER_LENGTH] {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        self.last = now.max(self.last.saturating_add(1));
        self.seal_at(parts, self.last)
    }

    fn seal_at(&mut self, parts: [&[u8]; 3], time: u64) -> [u8; TRAILER_LENGTH] {
        let time = time.to_le_bytes();
        let tag = self.tag(parts, time);
        let mut trailer = [0; TRAILER_LENGTH];
        let (head, end) = trailer.split_at_mut(TIME_LENGTH);
        head.copy_from_slice(&time);
        end.copy_from_slice(tag.as_bytes());
        trailer
    }

    /// Checks a datagram and its end. Returns whether it was sent after all others of its node that have arrived.
    pub(super) fn check(&mut self, datagram: &[u8], trailer: &[u8]) -> Result<bool, Refused> {
        let time = u64_at(trailer, 0).ok_or(Refused::Tag)?;
        let found = trailer.get(TIME_LENGTH..).and_then(|tag| tag.try_into().ok()).ok_or(Refused::Tag)?;
        // Compares in constant time.
        if self.tag([datagram, &[], &[]], time.to_le_bytes()) != blake3::Hash::from_bytes(found) {
            return Err(Refused::Tag);
        }
        let source = wrapper::source(datagram).ok_or(Refused::Tag)?;
        let has_space = self.newest.len() < NODES;
        match self.newest.get_mut(&source) {
            Some(newest) if time > *newest => *newest = time,
            Some(newest) => {
                let age = Duration::from_micros(*newest - time);
                return if age > MAX_AGE { Err(Refused::Old) } else { Ok(false) };
            }
            None if has_space => {
                self.newest.insert(source, time);
            }
            // Only holders of the key fill the table.
            None => {}
        }
        Ok(true)
    }
}

#[cfg(test)]
#[path = "authentication_tests.rs"]
mod tests;
