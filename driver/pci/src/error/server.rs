//! Errors of devices that another process serves.
//!
//! They are independent of the protocol between the two processes, so that a [`Backend`](crate::Backend) over another protocol uses the
//! same errors.

use core::fmt;
use core::time::Duration;

use super::OsError;

/// A request to the process that serves a device failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The server refused the request. The connection stays open.
    #[error("the server refused {request}: {source}")]
    Refused {
        /// Request, in the terms of the protocol.
        request: &'static str,
        /// The server's reason.
        r#source: OsError,
    },
    /// The server has not answered in time. The connection stays open: the card can be used again once the server has answered. Until then,
    /// every access fails at once with this error.
    #[error("the server has not answered {request} within {after:?}; the connection stays open")]
    TimedOut {
        /// Request, in the terms of the protocol.
        request: &'static str,
        /// Limit of the time for an answer.
        after: Duration,
    },
    /// The request failed and the connection is closed: later data could not be interpreted.
    #[error("{request}: {cause}; the connection is closed")]
    ConnectionLost {
        /// Request, in the terms of the protocol.
        request: &'static str,
        /// Reason.
        cause: ConnectionError,
    },
    /// An earlier request failed and closed the connection. Nothing was sent.
    #[error("not connected to the server any more since {request}: {cause}")]
    Disconnected {
        /// Request that failed.
        request: &'static str,
        /// Reason.
        cause: ConnectionError,
    },
}

impl ServerError {
    /// Returns whether the connection is closed, so that every later request fails, too.
    #[must_use]
    pub const fn is_disconnected(&self) -> bool {
        matches!(self, Self::ConnectionLost { .. } | Self::Disconnected { .. })
    }

    /// Returns whether the server has not answered in time, with the connection still open or closed for it.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        matches!(
            self,
            Self::TimedOut { .. }
                | Self::ConnectionLost { cause: ConnectionError::TimedOut { .. }, .. }
                | Self::Disconnected { cause: ConnectionError::TimedOut { .. }, .. }
        )
    }

    /// Returns whether the server closed the connection: it has exited, or it no longer serves this client.
    #[must_use]
    pub const fn is_closed_by_server(&self) -> bool {
        matches!(
            self,
            Self::ConnectionLost { cause: ConnectionError::Closed, .. }
                | Self::Disconnected { cause: ConnectionError::Closed, .. }
        )
    }
}

/// Reason why a connection to a server is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The server did not reply in time.
    #[error("the peer did not answer within {after:?}")]
    TimedOut {
        /// Timeout of the wait.
        after: Duration,
    },
    /// The server closed the connection.
    #[error("the peer closed the connection")]
    Closed,
    /// This process closed the card.
    #[error("the card was closed")]
    ClosedLocally,
    /// The server sent something that the protocol does not allow.
    #[error("{problem}{}", Received(*value))]
    Protocol {
        /// Description of the problem, ending with the name of the value if there is one.
        problem: &'static str,
        /// Received value.
        value: Option<u64>,
    },
    /// The operating system reported an error of the connection.
    #[error("the socket failed: {0}")]
    System(OsError),
}

struct Received(Option<u64>);

impl fmt::Display for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |value| write!(f, " {value:#x}"))
    }
}
