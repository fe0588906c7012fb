//! Errors of the client.

use std::borrow::Cow;
use std::path::PathBuf;

use super::socket::{ConnectError, SocketError};
use super::wire::WireError;
use fpga_pci::{ConfigSpaceError, ConnectionError, InterruptError, ServerError};

impl From<SocketError> for ConnectionError {
    fn from(error: SocketError) -> Self {
        match error {
            SocketError::TimedOut { after } | SocketError::Incomplete { after } => Self::TimedOut { after },
            SocketError::Closed | SocketError::ClosedWithin { .. } => Self::Closed,
            SocketError::Stopped => Self::ClosedLocally,
            SocketError::TooManyDescriptors => protocol(
                "more file descriptors than a message may carry, or than the limit on open files (ulimit -n) permits",
            ),
            SocketError::Malformed(error) => error.into(),
            SocketError::System(error) => Self::System(error),
        }
    }
}

impl From<WireError> for ConnectionError {
    fn from(error: WireError) -> Self {
        let (problem, value) = match error {
            WireError::Type { flags } => {
                ("a message is neither request nor reply: header flags", u64::from(flags))
            }
            WireError::Size { size, .. } => ("a message of a size that is not allowed: bytes", size.into()),
            WireError::Length { got, .. } => {
                ("a reply of another length than its command has: bytes", got as u64)
            }
            WireError::Count { count, .. } => {
                ("a reply whose count does not match what came with it: count", count)
            }
            WireError::Flags { flags, .. } => {
                ("a reply whose flags are unknown or exclude each other: flags", flags.into())
            }
            WireError::Capabilities { column } => {
                ("capabilities that are not the JSON object of the protocol: at column", column as u64)
            }
            WireError::Chain { at } => (
                "a chain of region capabilities that leaves the message or does not advance: at byte",
                at.into(),
            ),
        };
        Self::Protocol { problem, value: Some(value) }
    }
}

/// Violation of the protocol.
pub(super) const fn protocol(problem: &'static str) -> ConnectionError {
    ConnectionError::Protocol { problem, value: None }
}

/// A served device could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioUserOpenError {
    /// No connection to a server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server already has a client.
    #[error(
        "the card at {} is in use: its server has another client and accepts one at a time", .socket.display()
    )]
    Busy {
        /// The server's socket.
        socket: PathBuf,
    },
    /// An environment variable with an option has an invalid value.
    #[error("environment variable {variable}: \"{text}\" is not a number of seconds above 0")]
    Environment {
        /// Name of the variable.
        variable: &'static str,
        /// Its value.
        text: String,
    },
    /// The server did not reply, or refused.
    #[error("{}: {source}", .socket.display())]
    Server {
        /// The server's socket.
        socket: PathBuf,
        /// Cause.
        r#source: ServerError,
    },
    /// The server implements another protocol version.
    #[error("{} speaks version {major}.{minor} of vfio-user, this program version 0.1", .socket.display())]
    Version {
        /// The server's socket.
        socket: PathBuf,
        /// The server's major version.
        major: u16,
        /// The server's minor version.
        minor: u16,
    },
    /// The server lacks a required capability.
    #[error("{} states {name} = {value}, but {needed} is required", .socket.display())]
    Capability {
        /// The server's socket.
        socket: PathBuf,
        /// Name of the capability.
        name: &'static str,
        /// Value that the server announces.
        value: u64,
        /// Required value.
        needed: &'static str,
    },
    /// The server serves something that is not a PCI function.
    #[error("{} serves no PCI function ({what})", .socket.display())]
    NotPci {
        /// The server's socket.
        socket: PathBuf,
        /// The missing property.
        what: &'static str,
    },
    /// Configuration space cannot be used.
    #[error("configuration space of the served card cannot be used: {0}")]
    Config(ConfigSpaceError),
    /// The device's events cannot be enabled.
    #[error(transparent)]
    Interrupts(InterruptError),
}

impl VfioUserOpenError {
    /// Returns what a person can do about it, without the words of one front end.
    #[must_use]
    pub fn help(&self) -> Option<Cow<'static, str>> {
        Some(Cow::Borrowed(match self {
            Self::Connect(inner) => return inner.help(),
            Self::Environment { .. } => "set it to a number such as 30, or unset it",
            Self::Busy { .. } => "end the program that uses it, or serve another card on a separate socket",
            Self::Server { source, .. } => return source.help(),
            Self::Version { .. } => "use a server and a client of the same version",
            Self::Capability { .. } => return None,
            Self::NotPci { .. } => "check that it is the socket of a card",
            Self::Config(inner) => return inner.help(),
            Self::Interrupts(inner) => return inner.help(),
        }))
    }
}

impl From<ConfigSpaceError> for VfioUserOpenError {
    fn from(error: ConfigSpaceError) -> Self {
        Self::Config(error)
    }
}
