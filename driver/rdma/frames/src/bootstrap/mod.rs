//! Bootstrap of a subscriber: a short conversation with the publisher over TCP, or over another connection that the program supplies
//! ([`JoinConnection`]). It is closed before the first frame.
//!
//! ```text
//! subscriber                                       publisher
//!    | ---- hello: node, incarnation ------------->  |
//!    | <--- offer: stream, sizes, challenge -------  |
//!    |      opens a memory window of these sizes     |
//!    | ---- join: window, key, slots, challenge -->  |  opens a memory window for the credit
//!    | <--- accepted: window, key, next numbers ---  |
//!    x                                               x
//! ```
//!
//! A node that is a subscriber already is accepted again only after its old window has refused a transfer: the publisher probes it before
//! it answers the join.
//!
//! Each connection has another challenge, so a replay of a recorded conversation cannot join. Keys protect against accidents and against
//! attackers that cannot read the network; they are sent in clear text, here and in packets.

mod client;
mod listener;

use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fpga_rdma::Endpoint;

pub use client::BootstrapError;
pub(crate) use client::{BootstrapClient, Step};
pub(crate) use listener::{AdmissionControl, JoinState, Listener, Verdict};

pub use fpga_frames_wire::messages as wire;
use wire::{Inbox, MAX_MESSAGE, Message, MessageError};

/// Connection of a subscriber with its publisher: an ordered, reliable stream of bytes. A read without bytes and a write without space
/// return [`io::ErrorKind::WouldBlock`]; a read returns 0 once the peer has closed the connection. Dropping it closes it.
pub trait JoinConnection: io::Read + io::Write + core::fmt::Debug + Send + Sync {}

impl<T: io::Read + io::Write + core::fmt::Debug + Send + Sync> JoinConnection for T {}

/// Clock of a conversation's time limits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConversationClock {
    /// The clock of the endpoint, for connections of the program.
    Endpoint,
    /// The wall clock since this time, for sockets: the other side is another process, and virtual time may stand still meanwhile.
    Wall(Instant),
}

impl ConversationClock {
    pub(crate) fn wall() -> Self {
        Self::Wall(Instant::now())
    }

    pub(crate) fn now(self, endpoint: &Endpoint) -> Duration {
        match self {
            Self::Endpoint => endpoint.now(),
            Self::Wall(start) => start.elapsed(),
        }
    }
}

/// Non-blocking connection.
#[derive(Debug)]
struct MessageConnection {
    stream: Box<dyn JoinConnection>,
    inbox: Inbox,
    outbox: Vec<u8>,
}

/// Reason why a connection ended.
#[derive(Debug)]
enum ConnectionError {
    Io(io::Error),
    Message(MessageError),
    /// The peer has closed it.
    Closed,
}

impl MessageConnection {
    fn new(stream: Box<dyn JoinConnection>) -> Self {
        Self { stream, inbox: Inbox::default(), outbox: Vec::new() }
    }

    fn of_socket(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Four short messages, and each one is waited for.
        socket.set_nodelay(true)?;
        Ok(Self::new(Box::new(socket)))
    }

    fn send(&mut self, message: &Message) {
        self.outbox.extend(message.encode());
    }

    /// Writes the queued bytes as far as the connection accepts them. Returns whether the queue is empty.
    fn flush(&mut self) -> Result<bool, ConnectionError> {
        while !self.outbox.is_empty() {
            match self.stream.write(&self.outbox) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) => return would_block(error).map(|()| false),
            }
        }
        Ok(true)
    }

    /// Discards received bytes, up to `most`.
    fn discard(&mut self, most: usize) {
        let mut bytes = [0; 256];
        for _ in 0..most.div_ceil(bytes.len()) {
            match self.stream.read(&mut bytes) {
                Ok(1..) => {}
                _ => break,
            }
        }
    }

    /// Returns the next message if it has arrived completely.
    fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        let mut bytes = [0; MAX_MESSAGE];
        loop {
            let wanted = self.inbox.wanted().clamp(1, MAX_MESSAGE);
            let free = bytes.get_mut(..wanted).unwrap_or_default();
            match self.stream.read(free) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(count) => {
                    let taken = self.inbox.take(bytes.get(..count).unwrap_or_default());
                    match taken.map_err(ConnectionError::Message)? {
                        None => {}
                        some => return Ok(some),
                    }
                }
                Err(error) => return would_block(error).map(|()| None),
            }
        }
    }
}

/// Advice for the user when a publisher cannot listen.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address: listen on one of its addresses, or on 0.0.0.0 or [::] for all of them"
        }
        io::ErrorKind::AddrInUse => "another program uses this port: choose another one, or 0 for any",
        io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
        _ => "check the address and the network configuration",
    }
}

fn would_block(error: io::Error) -> Result<(), ConnectionError> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(ConnectionError::Io(error)),
    }
}
