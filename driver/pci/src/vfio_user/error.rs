//! What can go wrong between client and server.

use std::path::PathBuf;

use super::socket::{ConnectError, SocketError};
use super::wire::{Command, WireError};
use crate::{ConfigError, InterruptError, OsError};

/// A message to the server did not have the effect it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// The server refused. The connection goes on.
    #[error("the server refused {command}: {source}; what the server logged says why")]
    Refused {
        /// What was asked for.
        command: Command,
        /// The server's reason.
        source: OsError,
    },
    /// The exchange failed. The connection is closed: what comes next could not be understood.
    #[error("{command}: {cause}; the connection is closed, open the card again when its server is back")]
    Broken {
        /// What was asked for.
        command: Command,
        /// What went wrong.
        cause: Breakage,
    },
    /// An earlier exchange failed and the connection is closed. Nothing was sent.
    #[error(
        "not connected to the server any more since {command}: {cause}; open the card again when its server is back"
    )]
    Down {
        /// What was asked for when it happened.
        command: Command,
        /// What went wrong then.
        cause: Breakage,
    },
}

impl PeerError {
    /// Whether nothing more is to be had from this connection.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }

    /// Whether the connection ended because the server closed its end: it has exited, or it no longer serves this client.
    #[must_use]
    pub const fn closed_by_peer(&self) -> bool {
        match self {
            Self::Refused { .. } => false,
            Self::Broken { cause, .. } | Self::Down { cause, .. } => {
                matches!(cause, Breakage::Socket(SocketError::Closed | SocketError::ClosedWithin { .. }))
            }
        }
    }
}

/// What ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breakage {
    /// The message was not sent, or none was received.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The reply cannot be understood.
    #[error("the server's reply is malformed ({0}): is it a vfio-user server, and of this program's age?")]
    Malformed(#[from] WireError),
    /// A reply to something else.
    #[error("message {got_id} ({got}) came as the reply to message {id}")]
    Stray {
        /// Id of the message that waits for its reply.
        id: u16,
        /// Id of the reply that came.
        got_id: u16,
        /// What it replies to.
        got: Command,
    },
    /// A reply that does not fit the question.
    #[error("the server's reply is about another {what} than was asked for")]
    Contradiction {
        /// What differs.
        what: &'static str,
    },
    /// File descriptors that nobody asked for. They were closed.
    #[error("the server's reply came with {count} file descriptors that do not belong to it")]
    Descriptors {
        /// How many.
        count: usize,
    },
    /// The card was closed here.
    #[error("the card was closed")]
    Left,
}

/// A served device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioUserOpenError {
    /// No connection to a server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server has a client already.
    #[error(
        "the card at {} is in use: its server has another client and takes one at a time; end the program that uses it, or serve \
         another card on a socket of its own", .socket.display()
    )]
    Busy {
        /// The server's socket.
        socket: PathBuf,
    },
    /// The server did not answer, or refused.
    #[error("{}: {source}", .socket.display())]
    Peer {
        /// The server's socket.
        socket: PathBuf,
        /// What happened.
        source: PeerError,
    },
    /// The server speaks another version.
    #[error("{} speaks version {major}.{minor} of vfio-user, this program 0.1; use a server and a client of one age", .socket.display())]
    Version {
        /// The server's socket.
        socket: PathBuf,
        /// The server's version.
        major: u16,
        /// The minor one.
        minor: u16,
    },
    /// The server cannot do what is needed.
    #[error("{} states {name} = {value}, and needed is {needed}: this server cannot be used", .socket.display())]
    Capability {
        /// The server's socket.
        socket: PathBuf,
        /// Which capability.
        name: &'static str,
        /// What the server states.
        value: u64,
        /// What would do.
        needed: &'static str,
    },
    /// The server serves something that is not a PCI function.
    #[error("{} serves no PCI function ({what}); check that it is the socket of a card", .socket.display())]
    NotPci {
        /// The server's socket.
        socket: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// Configuration space cannot be used.
    #[error("configuration space of the served card cannot be used: {0}")]
    Config(#[from] ConfigError),
    /// Its events cannot be listened to.
    #[error(transparent)]
    Interrupts(InterruptError),
}
