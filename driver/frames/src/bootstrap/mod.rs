//! How a subscriber finds its publisher: a short conversation over TCP, which is closed before the first frame.
//!
//! ```text
//! subscriber                                       publisher
//!    | ---- hello: node, incarnation ------------->  |
//!    | <--- offer: stream, sizes, challenge -------  |
//!    |      opens a memory window of that shape      |
//!    | ---- join: window, key, slots, challenge -->  |  opens a memory window for the credit
//!    | <--- accepted: window, key, next numbers ---  |
//!    x                                               x
//! ```
//!
//! A node that is a subscriber already is taken again only after its old window has refused a transfer: the publisher tries it out before
//! it answers the join.
//!
//! The challenge is another one on each connection, so a conversation that was recorded makes nobody a subscriber when it is replayed. Keys
//! protect against accidents and against strangers that cannot listen; they are sent in the clear, here and in packets.

mod client;
mod listener;
pub mod wire;

use std::io;
use std::net::TcpStream;

pub use client::BootstrapError;
pub(crate) use client::{BootstrapClient, Step};
pub(crate) use listener::{AdmissionControl, JoinState, Listener, Verdict};

use wire::{Inbox, MAX_MESSAGE, Message, MessageError};

/// A connection that is never waited for.
#[derive(Debug)]
struct MessageConnection {
    socket: TcpStream,
    inbox: Inbox,
    outbox: Vec<u8>,
}

/// What ended a connection.
#[derive(Debug)]
enum ConnectionError {
    Io(io::Error),
    Message(MessageError),
    /// The other side has closed it.
    Closed,
}

impl MessageConnection {
    fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // Four short messages, each waited for.
        socket.set_nodelay(true)?;
        Ok(Self { socket, inbox: Inbox::default(), outbox: Vec::new() })
    }

    fn send(&mut self, message: &Message) {
        self.outbox.extend(message.encode());
    }

    /// Writes what there is to be written, as far as the socket takes it. Returns whether nothing is left.
    fn flush(&mut self) -> Result<bool, ConnectionError> {
        while !self.outbox.is_empty() {
            match io::Write::write(&mut self.socket, &self.outbox) {
                Ok(0) => return Err(ConnectionError::Closed),
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) => return would_block(error).map(|()| false),
            }
        }
        Ok(true)
    }

    /// Throws away what has come, up to so many bytes.
    fn discard(&mut self, most: usize) {
        let mut bytes = [0; 256];
        for _ in 0..most.div_ceil(bytes.len()) {
            match io::Read::read(&mut self.socket, &mut bytes) {
                Ok(1..) => {}
                _ => break,
            }
        }
    }

    /// The next message, if all of it has come.
    fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        let mut bytes = [0; MAX_MESSAGE];
        loop {
            let wanted = self.inbox.wanted().clamp(1, MAX_MESSAGE);
            let room = bytes.get_mut(..wanted).unwrap_or_default();
            match io::Read::read(&mut self.socket, room) {
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

/// What to do where a publisher cannot listen.
pub(crate) fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => {
            "that is no address of this machine: listen on one of its own, or on 0.0.0.0 or [::] for all of them"
        }
        io::ErrorKind::AddrInUse => "another program listens there: choose another port, or 0 for any",
        io::ErrorKind::PermissionDenied => "ports below 1024 need a permission: choose another one",
        _ => "check the address and the machine's network",
    }
}

fn would_block(error: io::Error) -> Result<(), ConnectionError> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(ConnectionError::Io(error)),
    }
}
