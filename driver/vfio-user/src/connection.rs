//! Requests and replies over one connection.
//!
//! A server that is stopped or short of CPU time is not a removed card. An access to a region that is not answered within the limit fails
//! with [`ServerError::TimedOut`], and the connection stays open: the late reply is discarded when it arrives. Until then, accesses fail at
//! once, so that a server that hangs costs the limit once. Every other request that is not answered (mappings, interrupts, a reset) ends the
//! connection: the state of the device is unknown then.

use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::error::protocol;
use super::memory::Mapped;
use super::socket::{Connection, SocketError};
use super::wire::{Command, Header, Kind, Reply, Request, encode_request};
use fpga_pci::{ConnectionError, FAULT_LOG, InterruptTrigger, OsError, ServerError, lock};

/// Connection to a server. One request at a time: the requester holds the lock until the reply arrives.
pub(super) struct ServerConnection {
    connection: Connection,
    exchange: Mutex<MessageBuffers>,
    /// Memory that the device may access. Locked inside `exchange` or without it, never the other way round.
    mapped: Mutex<Mapped>,
    /// Set once, when the connection ends: the request in progress, and the cause.
    ended: OnceLock<(&'static str, ConnectionError)>,
    /// Fires when the connection ends without a request of this side.
    server_gone: OnceLock<InterruptTrigger>,
    deadline: Duration,
    /// Counts resets: earlier opened BAR handles are stale.
    pub(super) generation: AtomicU64,
}

/// Buffers, reused because messages are frequent and similar.
#[derive(Default)]
struct MessageBuffers {
    next_id: u16,
    slow: Option<Slow>,
    out: Vec<u8>,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Last request that the server has not taken or not answered in time.
#[derive(Clone, Copy)]
struct Slow {
    command: Command,
    /// Number of the request if it was sent: its reply is still to come.
    reply: Option<u16>,
}

/// Whether the effect of a request is known without its reply.
fn is_access(command: Command) -> bool {
    matches!(command, Command::REGION_READ | Command::REGION_WRITE)
}

impl ServerConnection {
    pub(super) fn new(connection: Connection, deadline: Duration) -> Self {
        Self {
            connection,
            exchange: Mutex::new(MessageBuffers::default()),
            mapped: Mutex::new(Mapped::default()),
            ended: OnceLock::new(),
            server_gone: OnceLock::new(),
            deadline,
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn mapped(&self) -> MutexGuard<'_, Mapped> {
        lock(&self.mapped)
    }

    fn exchange(&self) -> MutexGuard<'_, MessageBuffers> {
        lock(&self.exchange)
    }

    /// Fails at once if the connection has ended.
    pub(super) fn check(&self) -> Result<(), ServerError> {
        match self.ended.get() {
            None => Ok(()),
            Some(&(request, cause)) => Err(ServerError::Disconnected { request, cause }),
        }
    }

    /// Ends the connection, for both sides at once.
    fn end(&self, request: &'static str, cause: ConnectionError) -> ServerError {
        if self.ended.set((request, cause)).is_ok() {
            self.connection.shut_down();
            if cause != ConnectionError::ClosedLocally {
                tracing::error!(target: FAULT_LOG, request, %cause, "the connection to the card's server has ended");
                self.server_gone.get().inspect(|trigger| trigger.signal());
            }
        }
        ServerError::ConnectionLost { request, cause }
    }

    /// Fires `trigger` when the connection ends without a request of this side. Only the first call has an effect.
    pub(super) fn when_server_ends(&self, trigger: InterruptTrigger) {
        let trigger = self.server_gone.get_or_init(|| trigger);
        if self.ended.get().is_some() {
            trigger.signal();
        }
    }

    /// Ends the connection because it is no longer needed.
    pub(super) fn close(&self) {
        self.end("closing", ConnectionError::ClosedLocally);
    }

    /// Sends a request, waits for the reply and passes it to `take`. File descriptors in the reply are closed unless `take` keeps them.
    pub(super) fn ask<T>(
        &self,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
        take: impl FnOnce(Reply<'_>, &mut Vec<OwnedFd>) -> Result<T, ConnectionError>,
    ) -> Result<T, ServerError> {
        let command = request.command();
        let mut exchange = self.exchange();
        self.check()?;
        let exchange = &mut *exchange;
        let started = Instant::now();
        let id = self.send(exchange, false, request, fds)?;
        let broken = |cause: ConnectionError| self.end(name_of(command), cause);
        loop {
            // The reply must arrive by the deadline, even if the server sends other messages meanwhile.
            let mut left = self.deadline.saturating_sub(started.elapsed());
            if is_access(command) {
                if !self.connection.is_readable_within(left).map_err(|error| broken(error.into()))? {
                    return Err(self.slow(exchange, Slow { command, reply: Some(id) }));
                }
                // A message that has begun to arrive gets the whole time again.
                left = self.deadline;
            }
            let header = self.receive(exchange, left).map_err(broken)?;
            let Kind::Reply { error } = header.kind else {
                self.serve(exchange, header).map_err(broken)?;
                continue;
            };
            if header.id != id || header.command != command {
                return Err(broken(stray(&header)));
            }
            if let Some(errno) = error {
                exchange.fds.clear();
                let source = OsError::from_raw(i32::try_from(errno).unwrap_or(0));
                return Err(ServerError::Refused { request: name_of(command), source });
            }
            let reply = match Reply::decode(command, &exchange.body) {
                Ok(Some(reply)) => reply,
                // Only requests that have a reply are sent here.
                Ok(None) => return Err(broken(protocol("a reply to another command"))),
                Err(error) => return Err(broken(error.into())),
            };
            let taken = take(reply, &mut exchange.fds);
            let left_over = exchange.fds.len();
            exchange.fds.clear();
            if left_over != 0 && taken.is_ok() {
                return Err(broken(ConnectionError::Protocol {
                    problem: "file descriptors that do not belong to a reply:",
                    value: Some(left_over as u64),
                }));
            }
            return taken.map_err(broken);
        }
    }

    /// Sends a request without reply.
    pub(super) fn post(&self, request: &Request<'_>) -> Result<(), ServerError> {
        let mut exchange = self.exchange();
        self.check()?;
        self.send(&mut exchange, true, request, &[]).map(|_| ())
    }

    /// Notes that the server is slow.
    fn slow(&self, exchange: &mut MessageBuffers, slow: Slow) -> ServerError {
        let request = name_of(slow.command);
        if exchange.slow.replace(slow).is_none() {
            tracing::warn!(target: FAULT_LOG, request, limit = ?self.deadline, "the card's server does not answer in time");
        }
        ServerError::TimedOut { request, after: self.deadline }
    }

    /// Takes the late reply, without waiting for it.
    fn take_late_reply(&self, exchange: &mut MessageBuffers) -> Result<(), ServerError> {
        while let Some(slow @ Slow { command, reply: Some(_) }) = exchange.slow {
            let broken = |cause: ConnectionError| self.end(name_of(command), cause);
            if !self.connection.is_readable().map_err(|error| broken(error.into()))? {
                return Err(self.slow(exchange, slow));
            }
            let header = self.receive(exchange, self.deadline).map_err(broken)?;
            self.take_unrequested(exchange, header).map_err(broken)?;
        }
        Ok(())
    }

    /// Takes a message that no thread waits for: a request of the server, or a late reply.
    fn take_unrequested(&self, exchange: &mut MessageBuffers, header: Header) -> Result<(), ConnectionError> {
        match (header.kind, exchange.slow) {
            (Kind::Request { .. }, _) => self.serve(exchange, header),
            (Kind::Reply { .. }, Some(Slow { command, reply: Some(id) }))
                if (header.id, header.command) == (id, command) =>
            {
                exchange.fds.clear();
                exchange.slow = None;
                Ok(())
            }
            (Kind::Reply { .. }, _) => Err(stray(&header)),
        }
    }

    fn send(
        &self,
        exchange: &mut MessageBuffers,
        no_reply: bool,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<u16, ServerError> {
        let command = request.command();
        self.take_late_reply(exchange)?;
        // A server that has not taken the last request in time is not waited for again.
        let limit = if exchange.slow.is_some() { Duration::ZERO } else { self.deadline };
        let id = exchange.next_id;
        exchange.next_id = id.wrapping_add(1);
        exchange.out.clear();
        encode_request(id, no_reply, request, &mut exchange.out);
        match self.connection.send(&exchange.out, fds, limit) {
            Ok(()) => {
                exchange.slow = None;
                Ok(id)
            }
            // Nothing was sent.
            Err(SocketError::TimedOut { .. }) => Err(self.slow(exchange, Slow { command, reply: None })),
            Err(error) => Err(self.end(name_of(command), error.into())),
        }
    }

    fn receive(&self, exchange: &mut MessageBuffers, left: Duration) -> Result<Header, ConnectionError> {
        self.connection.receive(&mut exchange.body, &mut exchange.fds, left).map_err(|error| {
            ConnectionError::from(match error {
                // Report the full deadline, not the remaining time.
                SocketError::TimedOut { .. } => SocketError::TimedOut { after: self.deadline },
                other => other,
            })
        })
    }

    /// Answers a request of the server that was just received.
    fn serve(&self, exchange: &mut MessageBuffers, header: Header) -> Result<(), ConnectionError> {
        // No request of the server carries file descriptors.
        exchange.fds.clear();
        self.mapped().answer(header.id, header.command, &exchange.body, &mut exchange.out);
        if header.kind == (Kind::Request { no_reply: true }) {
            return Ok(());
        }
        self.connection.send(&exchange.out, &[], self.deadline).map_err(ConnectionError::from)
    }

    /// Answers the server's requests until the connection ends: for memory that it can access only by messages. Requests that arrive while
    /// a thread waits for a reply are answered by that thread.
    pub(super) fn serve_requests(&self) {
        let broken = |cause: ConnectionError| {
            self.end(name_of(Command::DMA_READ), cause);
        };
        while self.ended.get().is_none() {
            let mut poll = [PollFd::new(&self.connection, PollFlags::IN)];
            match rustix::event::poll(&mut poll, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return broken(SocketError::from(errno).into()),
            }
            let mut exchange = self.exchange();
            if self.ended.get().is_some() {
                return;
            }
            // The previous holder of the lock may have received the message that woke this thread.
            match self.connection.is_readable() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return broken(error.into()),
            }
            let received = self.receive(&mut exchange, self.deadline);
            if let Err(cause) = received.and_then(|header| self.take_unrequested(&mut exchange, header)) {
                return broken(cause);
            }
        }
    }

    /// Number that changes with every reset.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

/// Name of a command; all commands of this client have one.
fn name_of(command: Command) -> &'static str {
    command.name().unwrap_or("unknown command")
}

/// Error for a reply without a request.
fn stray(header: &Header) -> ConnectionError {
    ConnectionError::Protocol { problem: "a reply to another message: id", value: Some(header.id.into()) }
}

/// Starts a thread that answers the server's requests; it ends with the connection.
pub(super) fn spawn(link: &Arc<ServerConnection>) -> std::io::Result<std::thread::JoinHandle<()>> {
    let link = Arc::clone(link);
    std::thread::Builder::new().name("vfio-user".to_owned()).spawn(move || link.serve_requests())
}
