//! The subscriber's side.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::wire::{Accepted, Hello, Join, Message, MessageError, Offer, Refusal};
use super::{ConnectionError, MessageConnection};

/// Why nobody was joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BootstrapError {
    /// Nobody there.
    #[error("{address}: {source}; is a publisher listening there?")]
    Connect {
        /// Where.
        address: SocketAddr,
        /// What failed.
        source: io::Error,
    },
    /// The connection broke.
    #[error("{address}: {source}; the publisher may have ended: try again")]
    Broken {
        /// With whom.
        address: SocketAddr,
        /// What failed.
        source: io::Error,
    },
    /// The publisher closed the connection without a word.
    #[error(
        "{address} closed the connection without an answer; it is no publisher, or has too many callers: try again"
    )]
    Closed {
        /// Who.
        address: SocketAddr,
    },
    /// The answer was no message.
    #[error("{address}: {source}")]
    Message {
        /// Whose.
        address: SocketAddr,
        /// What is wrong with it.
        source: MessageError,
    },
    /// The publisher said no.
    #[error("{address} refuses: {}", refusal.text)]
    Refused {
        /// Who.
        address: SocketAddr,
        /// Its reason.
        refusal: Refusal,
    },
    /// An answer to something else.
    #[error("{address} answered something that was not asked for; it is no publisher")]
    Unexpected {
        /// Who.
        address: SocketAddr,
    },
    /// No answer in time.
    #[error("{address} did not answer within {patience:?}; it may be busy, or be no publisher")]
    TimedOut {
        /// Who.
        address: SocketAddr,
        /// How long was waited.
        patience: Duration,
    },
}

/// A conversation with a publisher.
#[derive(Debug)]
pub(crate) struct BootstrapClient {
    line: MessageConnection,
    address: SocketAddr,
    hello: Hello,
    until: Instant,
    patience: Duration,
}

/// What the publisher has said.
#[derive(Debug)]
pub(crate) enum Step {
    Nothing,
    Offer(Offer),
    Accepted(Accepted),
}

impl BootstrapClient {
    /// Connects, which may wait, and says hello.
    pub(crate) fn begin(
        address: SocketAddr,
        hello: Hello,
        patience: Duration,
        now: Instant,
    ) -> Result<Self, BootstrapError> {
        let connect = |source| BootstrapError::Connect { address, source };
        let socket = TcpStream::connect_timeout(&address, patience.max(Duration::from_millis(1)));
        let mut line = MessageConnection::new(socket.map_err(connect)?).map_err(connect)?;
        line.send(&Message::Hello(hello));
        // At once: a publisher with many callers turns those away that say nothing. What goes wrong shows when it is polled.
        let _ = line.flush();
        Ok(Self { line, address, hello, until: now + patience, patience })
    }

    /// The same conversation from its beginning.
    pub(crate) fn reconnect(&self, patience: Duration, now: Instant) -> Result<Self, BootstrapError> {
        Self::begin(self.address, self.hello, patience, now)
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

    pub(crate) fn poll(&mut self, now: Instant) -> Result<Step, BootstrapError> {
        let flushed = self.line.flush();
        // What was said before the connection broke is heard first: a refusal says more than a broken pipe.
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
            return Err(BootstrapError::TimedOut { address: self.address, patience: self.patience });
        }
        Ok(Step::Nothing)
    }
}
