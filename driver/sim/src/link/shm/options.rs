//! Paths of a link by shared memory.

use super::super::LinkError;
use super::MAX_PATH;
use std::path::{Path, PathBuf};

/// Paths of a link by shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShmLinkOptions {
    /// Path of the socket to listen on.
    pub local: PathBuf,
    /// Paths of the other processes' sockets. Processes with other paths are refused; without peers, any process is accepted.
    pub peers: Vec<PathBuf>,
}

impl ShmLinkOptions {
    /// Creates options that listen at `local`, without peers.
    #[must_use]
    pub fn new(local: impl Into<PathBuf>) -> Self {
        Self { local: local.into(), peers: Vec::new() }
    }

    /// Adds a peer.
    #[must_use]
    pub fn peer(mut self, path: impl Into<PathBuf>) -> Self {
        self.peers.push(path.into());
        self
    }
}

/// Absolute path, by which processes with different directories know one socket.
pub(super) fn absolute(path: &Path) -> Result<PathBuf, LinkError> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.as_os_str().len() > MAX_PATH {
        return Err(LinkError::LongPath { path });
    }
    Ok(path)
}
