//! Whole messages over a UNIX stream socket, with their file descriptors, each with a deadline.
//!
//! Client and server both use a [`Connection`]. It never waits without limit, never returns a part of a message as a whole one, and closes
//! every file descriptor that it does not return, including those of malformed and incomplete messages. After any error of
//! [`receive`](Connection::receive) or [`send`](Connection::send) the position of the next message is unknown: drop the connection.

use core::mem::MaybeUninit;
use core::time::Duration;
use fpga_registers::invariant::DebugExpect as _;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use fpga_registers::quantity;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::wire::{HEADER_LENGTH, Header, MAX_FDS, WireError};
use fpga_pci::OsError;

mod connect;

pub use connect::ConnectError;

/// Reason why a message was not sent or not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocketError {
    /// The other side was not ready in time.
    #[error("the peer did not answer within {after:?}")]
    TimedOut {
        /// Time waited.
        after: Duration,
    },
    /// The other side has taken only a part of a message in time.
    #[error("the peer has taken only a part of a message within {after:?}")]
    Incomplete {
        /// Time waited.
        after: Duration,
    },
    /// The program that owns this end stops, and the peer was not ready at once.
    #[error("the wait for the peer was ended because this program stops")]
    Stopped,
    /// The peer has closed the connection between two messages.
    #[error("the peer closed the connection")]
    Closed,
    /// The peer has closed the connection in the middle of a message.
    #[error(
        "the peer closed the connection after {got} of {expected}",
        expected = quantity(*expected, "byte"),
    )]
    ClosedWithin {
        /// Bytes of the header or of the body that arrived.
        got: usize,
        /// Expected bytes.
        expected: usize,
    },
    /// More file descriptors than permitted.
    #[error("a message came with more than {MAX_FDS} file descriptors, or this process cannot open more")]
    TooManyDescriptors,
    /// Invalid header.
    #[error(transparent)]
    Malformed(#[from] WireError),
    /// The system refused.
    #[error("the socket failed: {0}")]
    System(OsError),
}

impl From<Errno> for SocketError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Self::Closed,
            errno => Self::System(errno.into()),
        }
    }
}

/// Socket on which messages are exchanged. All methods take `&self`, but messages of several threads would mix: only one thread may send
/// and one may receive at a time.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// Descriptor that ends every wait once it is readable.
    stop: Option<Arc<OwnedFd>>,
}

/// Point in time at which a wait ends.
#[derive(Clone, Copy)]
struct Deadline {
    started: Instant,
    after: Duration,
}

impl Deadline {
    fn new(after: Duration) -> Self {
        Self { started: Instant::now(), after }
    }

    /// Remaining time in the kernel's format.
    fn left(self) -> Result<Timespec, SocketError> {
        let left = self.after.saturating_sub(self.started.elapsed());
        if left.is_zero() {
            return Err(SocketError::TimedOut { after: self.after });
        }
        // A duration beyond the kernel's range is practically unlimited.
        Ok(Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1 << 30, tv_nsec: 0 }))
    }
}

impl Connection {
    /// Uses a connected socket, such as an accepted one.
    #[must_use]
    pub const fn new(socket: OwnedFd) -> Self {
        Self { socket, stop: None }
    }

    /// Ends every wait for the peer with [`SocketError::Stopped`] once `stop` is readable (or its other end is closed). Operations that do
    /// not block still work.
    #[must_use]
    pub fn with_stop(mut self, stop: Arc<OwnedFd>) -> Self {
        self.stop = Some(stop);
        self
    }

    /// Creates two connected ends in this process.
    ///
    /// # Errors
    /// Error of the system.
    pub fn pair() -> Result<(Self, Self), OsError> {
        let (a, b) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self::new(a), Self::new(b)))
    }

    /// Sends one whole message (or several consecutive ones); `fds` are sent with its first byte.
    ///
    /// # Errors
    /// See [`SocketError`]. After [`SocketError::TimedOut`] nothing was sent; otherwise, a part may have been.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>], timeout: Duration) -> Result<(), SocketError> {
        if fds.len() > MAX_FDS {
            return Err(SocketError::TooManyDescriptors);
        }
        let deadline = Deadline::new(timeout);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            // There is space for as many as were checked above.
            control.push(SendAncillaryMessage::ScmRights(fds));
        }
        let mut rest = message;
        while !rest.is_empty() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::sendmsg(&self.socket, &[IoSlice::new(rest)], &mut control, flags) {
                Ok(count) => {
                    rest =
                        rest.get(count..).debug_expect("at most what was passed is sent").unwrap_or_default();
                    control.clear();
                }
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, deadline).map_err(|error| match error {
                    SocketError::TimedOut { after } if rest.len() < message.len() => {
                        SocketError::Incomplete { after }
                    }
                    other => other,
                })?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Receives one whole message: returns its header, stores its data in `body` and its file descriptors in `fds`. Their previous content
    /// is dropped.
    ///
    /// The time counts from the call. A server that waits for its client's next request waits by [`AsFd`] first.
    ///
    /// # Errors
    /// See [`SocketError`]; file descriptors that had arrived are closed.
    pub fn receive(
        &self,
        body: &mut Vec<u8>,
        fds: &mut Vec<OwnedFd>,
        timeout: Duration,
    ) -> Result<Header, SocketError> {
        body.clear();
        fds.clear();
        let deadline = Deadline::new(timeout);
        let received = self.receive_parts(body, fds, deadline);
        if received.is_err() {
            body.clear();
            fds.clear();
        }
        received
    }

    fn receive_parts(
        &self,
        body: &mut Vec<u8>,
        fds: &mut Vec<OwnedFd>,
        deadline: Deadline,
    ) -> Result<Header, SocketError> {
        let mut bytes = [0; HEADER_LENGTH];
        self.fill(&mut bytes, fds, deadline, true)?;
        let header = Header::decode(&bytes)?;
        // At most MAX_MESSAGE: the header was checked.
        body.resize(header.body_length(), 0);
        self.fill(body, fds, deadline, false)?;
        Ok(header)
    }

    /// Receives exactly `into.len()` bytes: later bytes belong to the next message, and so do the descriptors that arrive with them.
    fn fill(
        &self,
        into: &mut [u8],
        fds: &mut Vec<OwnedFd>,
        deadline: Deadline,
        first: bool,
    ) -> Result<(), SocketError> {
        let expected = into.len();
        let mut got = 0;
        while let Some(rest) = into.get_mut(got..).filter(|rest| !rest.is_empty()) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received =
                match rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(rest)], &mut control, flags) {
                    Ok(received) => received,
                    Err(Errno::AGAIN) => {
                        self.wait(PollFlags::IN, deadline)?;
                        continue;
                    }
                    Err(Errno::INTR) => continue,
                    Err(errno) => return Err(errno.into()),
                };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(passed) = message {
                    fds.extend(passed);
                }
            }
            // Descriptors without space: the kernel has closed them.
            if received.flags.contains(ReturnFlags::CTRUNC) || fds.len() > MAX_FDS {
                return Err(SocketError::TooManyDescriptors);
            }
            match (received.bytes, got) {
                (0, 0) if first => return Err(SocketError::Closed),
                (0, _) => return Err(SocketError::ClosedWithin { got, expected }),
                (count, _) => got += count,
            }
            if got < expected {
                // A peer that sends byte by byte must not circumvent the deadline.
                deadline.left()?;
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags, deadline: Deadline) -> Result<(), SocketError> {
        let left = deadline.left()?;
        // The end of the connection also ends the wait; the next call reports it.
        self.poll(flags, &left).map(drop)
    }

    /// Waits for the peer for at most `time`; returns whether it is ready. A signal ends the wait early.
    fn poll(&self, flags: PollFlags, time: &Timespec) -> Result<bool, SocketError> {
        // Without a stop descriptor, the socket takes its place with no requested events.
        let (stop, stop_flags) = match &self.stop {
            Some(stop) => (stop.as_fd(), PollFlags::IN),
            None => (self.socket.as_fd(), PollFlags::empty()),
        };
        let mut fds = [PollFd::new(&self.socket, flags), PollFd::from_borrowed_fd(stop, stop_flags)];
        match rustix::event::poll(&mut fds, Some(time)) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(false),
            Err(errno) => return Err(errno.into()),
        }
        let [peer, stop] = fds.map(|fd| !fd.revents().is_empty());
        if !peer && stop && self.stop.is_some() && *time != Timespec::default() {
            return Err(SocketError::Stopped);
        }
        Ok(peer)
    }

    /// Ends the connection for both sides: threads that wait on either end are woken. Data sent before still arrives.
    pub fn shut_down(&self) {
        // The only possible failure is that the peer has already closed.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    /// Returns whether the peer has closed the connection, also while messages of it have not been received.
    ///
    /// # Errors
    /// [`SocketError::System`].
    pub fn is_closed(&self) -> Result<bool, SocketError> {
        // Without requested events, only the end is reported.
        self.poll(PollFlags::empty(), &Timespec::default())
    }

    /// Returns whether a message, or the end of the connection, can be received now.
    ///
    /// # Errors
    /// [`SocketError::System`].
    pub fn is_readable(&self) -> Result<bool, SocketError> {
        self.is_readable_within(Duration::ZERO)
    }

    /// Whether a message, or the end of the connection, can be received before `time` has passed. Nothing is received: unlike after a
    /// timeout of [`receive`](Self::receive), the connection remains usable.
    ///
    /// # Errors
    /// [`SocketError::System`]; [`SocketError::Stopped`] if it had to wait.
    pub fn is_readable_within(&self, time: Duration) -> Result<bool, SocketError> {
        let deadline = Deadline::new(time);
        loop {
            let left = deadline.left().unwrap_or_default();
            if self.poll(PollFlags::IN, &left)? {
                return Ok(true);
            }
            if left == Timespec::default() {
                return Ok(false);
            }
        }
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
