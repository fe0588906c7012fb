//! Conversation with the publisher over TCP: hello, offer, join, accepted.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use fpga_frames_wire::messages::{Accepted, Hello, Inbox, Join, MAX_MESSAGE, Message, Offer, Window};

use crate::error::JoinError;

/// Pause before a conversation is repeated that the publisher closed without an answer: it has too many of them.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Conversation with a publisher.
#[derive(Debug)]
pub(crate) struct Conversation {
    socket: TcpStream,
    publisher: SocketAddr,
    until: Instant,
    inbox: Inbox,
}

impl Conversation {
    /// Connects and returns the publisher's offer.
    pub(crate) fn begin(
        publisher: SocketAddr,
        node: u32,
        incarnation: u32,
        until: Instant,
    ) -> Result<(Self, Offer), JoinError> {
        loop {
            match Self::try_begin(publisher, Hello { node, incarnation }, until) {
                Err(JoinError::Connection { cause, .. })
                    if is_closed(&cause) && Instant::now() + RETRY_INTERVAL < until =>
                {
                    std::thread::sleep(RETRY_INTERVAL);
                }
                other => return other,
            }
        }
    }

    fn try_begin(publisher: SocketAddr, hello: Hello, until: Instant) -> Result<(Self, Offer), JoinError> {
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let opened = TcpStream::connect_timeout(&publisher, left)
            .and_then(|socket| socket.set_nodelay(true).map(|()| socket));
        let socket = opened.map_err(|cause| JoinError::Connection { publisher, cause })?;
        let mut conversation = Self { socket, publisher, until, inbox: Inbox::default() };
        match conversation.exchange(&Message::Hello(hello))? {
            Message::Offer(offer) if offer.max_data_length > 0 => Ok((conversation, offer)),
            Message::Offer(_) => Err(conversation.invalid("an offer with impossible fields")),
            _ => Err(conversation.invalid(UNEXPECTED)),
        }
    }

    /// Sends the window that the publisher may write, and returns its acceptance.
    pub(crate) fn join(&mut self, offer: &Offer, window: Window, slots: u32) -> Result<Accepted, JoinError> {
        let join = Join { window, slots, challenge: offer.challenge };
        match self.exchange(&Message::Join(join))? {
            Message::Accepted(accepted) => Ok(accepted),
            _ => Err(self.invalid(UNEXPECTED)),
        }
    }

    fn invalid(&self, what: impl ToString) -> JoinError {
        JoinError::Message { publisher: self.publisher, what: what.to_string() }
    }

    /// Sends a message and receives the next one. A refusal is an error.
    fn exchange(&mut self, message: &Message) -> Result<Message, JoinError> {
        let publisher = self.publisher;
        let failed = |cause| JoinError::Connection { publisher, cause };
        self.socket.write_all(&message.encode()).map_err(failed)?;
        let mut buffer = [0; MAX_MESSAGE];
        loop {
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(io::ErrorKind::TimedOut.into()));
            }
            self.socket.set_read_timeout(Some(left)).map_err(failed)?;
            // Not beyond the message: what follows is not asked for.
            let wanted = self.inbox.wanted().min(MAX_MESSAGE);
            let count = match self.socket.read(buffer.get_mut(..wanted).unwrap_or_default()) {
                Ok(0) => return Err(failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(count) => count,
                Err(error) if is_waiting(error.kind()) => continue,
                Err(cause) => return Err(failed(cause)),
            };
            let received = buffer.get(..count).unwrap_or_default();
            match self.inbox.take(received).map_err(|error| self.invalid(error))? {
                Some(Message::Refused(refusal)) => {
                    return Err(JoinError::Refused { reason: refusal.reason.number(), text: refusal.text });
                }
                Some(message) => return Ok(message),
                None => {}
            }
        }
    }
}

const UNEXPECTED: &str = "it sent a message that was not asked for";

/// Whether a blocking receive has ended without data and without failure.
pub(crate) const fn is_waiting(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}
