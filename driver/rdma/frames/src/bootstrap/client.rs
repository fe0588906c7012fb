//! Subscriber side of the bootstrap.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::wire::{Accepted, Hello, Join, Message, MessageError, Offer, Refusal};
use super::{ConnectionError, JoinConnection, MessageConnection};

/// Reason why joining failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Connecting failed.
    #[error("connecting to {address} failed: {source}; check that a publisher listens there")]
    Connect {
        /// Address of the publisher.
        address: SocketAddr,
        /// Error of the operating system.
        r#source: io::Error,
    },
    /// The connection failed.
    #[error("the connection to {address} failed: {source}; the publisher may have ended: try again")]
    Broken {
        /// Address of the publisher.
        address: SocketAddr,
        /// Error of the operating system.
        r#source: io::Error,
    },
    /// The publisher closed the connection without an answer.
    #[error(
        "{address} closed the connection without an answer; it is not a publisher, or it has too many connections: try again"
    )]
    Closed {
        /// Address of the publisher.
        address: SocketAddr,
    },
    /// The answer is not a valid message.
    #[error("invalid message from {address}: {source}")]
    Message {
        /// Address of the publisher.
        address: SocketAddr,
        /// Reason.
        r#source: MessageError,
    },
    /// The publisher refused the join.
    #[error("{address} refused the join: {}", refusal.text)]
    Refused {
        /// Address of the publisher.
        address: SocketAddr,
        /// Refusal with its reason.
        refusal: Refusal,
    },
    /// The answer does not belong to the request.
    #[error("{address} sent a message that was not asked for; it is not a publisher: check the address")]
    Unexpected {
        /// Address of the publisher.
        address: SocketAddr,
    },
    /// No answer in time.
    #[error(
        "{address} did not answer within {patience:?}; it may be busy, or not a publisher: check the address and try again"
    )]
    TimedOut {
        /// Address of the publisher.
        address: SocketAddr,
        /// Time waited.
        patience: Duration,
    },
}

/// Bootstrap conversation with a publisher.
#[derive(Debug)]
pub(crate) struct BootstrapClient {
    line: MessageConnection,
    address: SocketAddr,
    hello: Hello,
    until: Duration,
    timeout: Duration,
}

/// Answer of the publisher.
#[derive(Debug)]
pub(crate) enum Step {
    Nothing,
    Offer(Offer),
    Accepted(Accepted),
}

impl BootstrapClient {
    /// Connects, which may block, and sends the hello.
    pub(crate) fn begin(
        address: SocketAddr,
        hello: Hello,
        timeout: Duration,
        now: Duration,
    ) -> Result<Self, BootstrapError> {
        let connect = |source| BootstrapError::Connect { address, source };
        let socket = TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1)));
        let line = MessageConnection::of_socket(socket.map_err(connect)?).map_err(connect)?;
        Ok(Self::over(line, address, hello, timeout, now))
    }

    /// Sends the hello over a connection of the program with the publisher, which errors name `address`.
    pub(crate) fn begin_over(
        connection: Box<dyn JoinConnection>,
        address: SocketAddr,
        hello: Hello,
        timeout: Duration,
        now: Duration,
    ) -> Self {
        Self::over(MessageConnection::new(connection), address, hello, timeout, now)
    }

    fn over(
        mut line: MessageConnection,
        address: SocketAddr,
        hello: Hello,
        timeout: Duration,
        now: Duration,
    ) -> Self {
        line.send(&Message::Hello(hello));
        // Immediately: a publisher with many callers rejects those that have sent nothing. An error appears at the next poll.
        let _ = line.flush();
        Self { line, address, hello, until: now.saturating_add(timeout), timeout }
    }

    /// Starts the same conversation again.
    pub(crate) fn reconnect(&self, timeout: Duration, now: Duration) -> Result<Self, BootstrapError> {
        Self::begin(self.address, self.hello, timeout, now)
    }

    pub(crate) fn join(&mut self, join: Join) {
        self.line.send(&Message::Join(join));
    }

    fn ended(&self, error: ConnectionError) -> BootstrapError {
        let address = self.address;
        match error {
            ConnectionError::Io(source) => BootstrapError::Broken { address, source },
            ConnectionError::Message(source) => BootstrapError::Message { address, source },
            ConnectionError::Closed => BootstrapError::Closed { address },
        }
    }

    pub(crate) fn poll(&mut self, now: Duration) -> Result<Step, BootstrapError> {
        let flushed = self.line.flush();
        // Messages received before the connection failed are read first: a refusal is more informative than a broken pipe.
        match self.line.receive().map_err(|error| self.ended(error))? {
            Some(Message::Offer(offer)) => return Ok(Step::Offer(offer)),
            Some(Message::Accepted(accepted)) => return Ok(Step::Accepted(accepted)),
            Some(Message::Refused(refusal)) => {
                return Err(BootstrapError::Refused { address: self.address, refusal });
            }
            Some(_) => return Err(BootstrapError::Unexpected { address: self.address }),
            None => {}
        }
        flushed.map_err(|error| self.ended(error))?;
        if now >= self.until {
            return Err(BootstrapError::TimedOut { address: self.address, patience: self.timeout });
        }
        Ok(Step::Nothing)
    }
}
