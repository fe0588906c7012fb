//! Slot for a connection, at its position in the list that events refer to.

use super::connection::Connection;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Slot for a connection.
#[derive(Debug)]
pub(super) enum Slot {
    Free,
    /// Accepted: the first message has not arrived.
    Accepted(OwnedFd),
    Open(Connection),
}

impl Slot {
    /// Socket of the connection.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Free => None,
            Self::Accepted(socket) => Some(socket.as_fd()),
            Self::Open(connection) => Some(connection.socket.as_fd()),
        }
    }
}
