//! Register writes of a client in shared memory: [`WRITE_RING`].
//!
//! The client may write anything to the ring at any time. Positions and lengths are checked by the reader, and a write is copied out before it is
//! decoded. An invalid one ends the connection.

use std::os::fd::OwnedFd;

use fpga_pci::memory::{RingError, RingReader};
use fpga_pci::{MemoryError, SharedMemory};
use fpga_vfio_user::wire::{Command, SmallWrite, WRITE_RING, WireError};

/// Maximum number of writes executed in a row: those that fit in the ring. A message is handled after the writes before it.
pub(super) const MAX_WRITES_IN_A_ROW: usize = 1024;

/// The client has written something invalid to the ring.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostedError {
    #[error(transparent)]
    Ring(#[from] RingError),
    #[error("a record of {0} bytes in the ring of register writes is not a write")]
    Length(usize),
    #[error(transparent)]
    Write(#[from] WireError),
}

/// Ring of one client.
#[derive(Debug)]
pub(super) struct PostedWrites(RingReader);

impl PostedWrites {
    /// Maps the client's file.
    pub(super) fn map(file: OwnedFd) -> Result<Self, MemoryError> {
        let memory = SharedMemory::from_sealed_file(file, WRITE_RING.length())?;
        Ok(Self(RingReader::new(WRITE_RING, memory)))
    }

    /// Returns the next write.
    pub(super) fn next(&mut self) -> Result<Option<SmallWrite>, PostedError> {
        let mut bytes = [0; SmallWrite::LENGTH];
        match self.0.next(&mut bytes)? {
            None => Ok(None),
            Some(SmallWrite::LENGTH) => Ok(Some(SmallWrite::decode(Command::SHARE_WRITES, &bytes)?)),
            Some(other) => Err(PostedError::Length(other)),
        }
    }

    /// Returns whether there are writes, or an error that [`next`](Self::next) reports.
    pub(super) fn has_writes(&self) -> bool {
        self.0.has_records().unwrap_or(true)
    }

    /// Announces sleep: the client sends a message from now on when it writes. Returns `false` if there are writes.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        self.0.prepare_to_sleep().unwrap_or(false)
    }

    /// Ends the announcement.
    pub(super) fn awake(&self) {
        // Cannot fail: the ring has this word.
        let _ = self.0.awake();
    }
}
