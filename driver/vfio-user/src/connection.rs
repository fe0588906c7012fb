//! Requests and replies over one connection.
//!
//! A server that is stopped or short of CPU time is not a removed card. An access to a region that is not answered within the limit fails
//! with [`ServerError::TimedOut`], and the connection stays open: the late reply is discarded when it arrives. If the server has sent nothing
//! since the request, accesses fail at once until it does, so that a server that hangs costs the limit once. Every other request that is not answered (mappings, interrupts, a reset) ends the
//! connection: the state of the device is unknown then.
//!
//! Several threads can have requests outstanding. One of them, the *receiver*, waits at the socket without the lock, so that others can send,
//! and passes the replies of others to them.

use core::time::Duration;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::error::protocol;
use super::memory::Mapped;
use super::socket::{Connection, SocketError};
use super::wire::{Command, Header, Kind, Reply, Request, encode_request};
use fpga_pci::memory::RingWriter;
use fpga_pci::{ConnectionError, FAULT_LOG, InterruptTrigger, OsError, ServerError, lock};

/// Maximum number of requests that a server leaves unanswered while it answers others.
const MAX_LATE: usize = 64;

/// Connection to a server.
pub(super) struct ServerConnection {
    connection: Connection,
    exchange: Mutex<MessageBuffers>,
    /// A reply was passed to its thread, the receiver has left, or the connection has ended.
    passed: Condvar,
    /// Memory that the device may access. Locked inside `exchange` or without it, never the other way round.
    mapped: Mutex<Mapped>,
    /// Set once, when the connection ends: the request in progress, and the cause.
    ended: OnceLock<(&'static str, ConnectionError)>,
    /// Fires when the connection ends without a request of this side.
    server_gone: OnceLock<InterruptTrigger>,
    deadline: Duration,
    /// Time until which the result of the last write to the ring is expected, in nanoseconds of the monotonic clock.
    pub(super) prompt_until: AtomicU64,
    /// Counts resets: earlier opened BAR handles are stale.
    pub(super) generation: AtomicU64,
}

/// Buffers, reused because messages are frequent and similar, and the requests without a reply so far.
#[derive(Default)]
pub(super) struct MessageBuffers {
    next_id: u16,
    outstanding: Vec<Outstanding>,
    /// A thread waits at the socket without the lock.
    has_receiver: bool,
    /// Number of threads that wait for [`ServerConnection::passed`].
    waiting: u32,
    /// Number of messages received, modulo 2^64.
    received: u64,
    /// Ring of register writes, if the server has accepted one.
    pub(super) ring: Option<RingWriter>,
    /// Last request that the server has not taken or not answered in time. It has sent nothing since.
    slow: Option<Command>,
    out: Vec<u8>,
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
}

/// Request whose reply is still to come.
struct Outstanding {
    id: u16,
    command: Command,
    /// Its thread waits no longer: the reply is discarded.
    is_late: bool,
    /// Reply that another thread has received.
    passed: Option<(Header, Vec<u8>, Vec<OwnedFd>)>,
}

impl MessageBuffers {
    /// Returns a number that no outstanding request has.
    fn choose_id(&mut self) -> u16 {
        loop {
            let id = self.next_id;
            self.next_id = id.wrapping_add(1);
            // Fewer than 2^16 requests are outstanding: each has a thread, or is one of at most `MAX_LATE` late ones.
            if !self.outstanding.iter().any(|request| request.id == id) {
                return id;
            }
        }
    }

    fn of(&mut self, id: u16) -> Option<&mut Outstanding> {
        self.outstanding.iter_mut().find(|request| request.id == id)
    }

    fn forget(&mut self, id: u16) {
        self.outstanding.retain(|request| request.id != id);
    }

    /// Returns whether no further requests are sent before a late reply arrives.
    fn has_many_late(&self) -> bool {
        self.outstanding.iter().filter(|request| request.is_late).count() >= MAX_LATE
    }

    /// Takes the reply that another thread has received into the buffers.
    fn take_passed(&mut self, id: u16) -> Option<Header> {
        let (header, body, fds) = self.of(id)?.passed.take()?;
        (self.body, self.fds) = (body, fds);
        Some(header)
    }
}

/// Returns whether the effect of a request is known without its reply.
fn is_access(command: Command) -> bool {
    matches!(command, Command::REGION_READ | Command::REGION_WRITE)
}

impl ServerConnection {
    pub(super) fn new(connection: Connection, deadline: Duration) -> Self {
        Self {
            connection,
            exchange: Mutex::new(MessageBuffers::default()),
            passed: Condvar::new(),
            mapped: Mutex::new(Mapped::default()),
            ended: OnceLock::new(),
            server_gone: OnceLock::new(),
            deadline,
            prompt_until: AtomicU64::new(0),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) fn mapped(&self) -> MutexGuard<'_, Mapped> {
        lock(&self.mapped)
    }

    pub(super) fn exchange(&self) -> MutexGuard<'_, MessageBuffers> {
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
    pub(super) fn end(&self, request: &'static str, cause: ConnectionError) -> ServerError {
        if self.ended.set((request, cause)).is_ok() {
            self.connection.shut_down();
            self.passed.notify_all();
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
        let id = self.send(&mut exchange, false, request, fds)?;
        exchange.outstanding.push(Outstanding { id, command, is_late: false, passed: None });
        let (mut exchange, waited) = self.wait_reply(exchange, id, command);
        if waited.is_ok() {
            exchange.forget(id);
        }
        if exchange.waiting > 0 {
            // Another thread becomes the receiver.
            self.passed.notify_all();
        }
        let header = waited?;
        let broken = |cause: ConnectionError| self.end(name_of(command), cause);
        if header.command != command {
            return Err(broken(stray(&header)));
        }
        if let Kind::Reply { error: Some(errno) } = header.kind {
            exchange.fds.clear();
            let source = OsError::from_raw(i32::try_from(errno).unwrap_or(0));
            return Err(ServerError::Refused { request: name_of(command), source });
        }
        let exchange = &mut *exchange;
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
        taken.map_err(broken)
    }

    /// Waits for the reply to request `id`: its header is returned, and the rest is in the buffers.
    fn wait_reply<'a>(
        &'a self,
        mut exchange: MutexGuard<'a, MessageBuffers>,
        id: u16,
        command: Command,
    ) -> (MutexGuard<'a, MessageBuffers>, Result<Header, ServerError>) {
        let (started, received_before) = (Instant::now(), exchange.received);
        let broken = |cause: ConnectionError| self.end(name_of(command), cause);
        loop {
            if let Some(header) = exchange.take_passed(id) {
                return (exchange, Ok(header));
            }
            if let Err(error) = self.check() {
                return (exchange, Err(error));
            }
            // The reply must arrive by the deadline, even if the server sends other messages meanwhile.
            let left = self.deadline.saturating_sub(started.elapsed());
            let is_over = if exchange.has_receiver {
                exchange.waiting += 1;
                let waited = self.passed.wait_timeout(exchange, left);
                let timeout;
                (exchange, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                exchange.waiting -= 1;
                timeout.timed_out() && exchange.of(id).is_none_or(|request| request.passed.is_none())
            } else {
                let received = exchange.received;
                exchange.has_receiver = true;
                drop(exchange);
                let readable = self.connection.is_readable_within(left);
                exchange = self.exchange();
                exchange.has_receiver = false;
                match readable {
                    Err(error) => return (exchange, Err(broken(error.into()))),
                    Ok(false) => exchange.received == received,
                    // Another thread has taken what was there.
                    Ok(true) if exchange.received != received => false,
                    Ok(true) => {
                        // A message of an access that has begun to arrive gets the whole time again.
                        let left = if is_access(command) { self.deadline } else { left };
                        match self.take_message(&mut exchange, left, Some(id)) {
                            Ok(Some(header)) => return (exchange, Ok(header)),
                            Ok(None) => false,
                            Err(cause) => return (exchange, Err(broken(cause))),
                        }
                    }
                }
            };
            if is_over {
                let error = if is_access(command) {
                    if let Some(request) = exchange.of(id) {
                        request.is_late = true;
                    }
                    if exchange.received == received_before || exchange.has_many_late() {
                        self.slow(&mut exchange, command)
                    } else {
                        // The server answers other requests.
                        ServerError::TimedOut { request: name_of(command), after: self.deadline }
                    }
                } else {
                    broken(SocketError::TimedOut { after: self.deadline }.into())
                };
                return (exchange, Err(error));
            }
        }
    }

    /// Receives a message. Returns the header of the reply to request `own`; other replies are passed to their threads, and requests of the
    /// server are answered.
    fn take_message(
        &self,
        exchange: &mut MessageBuffers,
        left: Duration,
        own: Option<u16>,
    ) -> Result<Option<Header>, ConnectionError> {
        let header = self.receive(exchange, left)?;
        exchange.received = exchange.received.wrapping_add(1);
        if let Kind::Request { .. } = header.kind {
            return self.serve(exchange, header).map(|()| None);
        }
        exchange.slow = None;
        if own == Some(header.id) {
            return Ok(Some(header));
        }
        let (body, fds) = (std::mem::take(&mut exchange.body), std::mem::take(&mut exchange.fds));
        match exchange.of(header.id) {
            Some(request) if request.command == header.command && request.passed.is_none() => {
                if request.is_late {
                    exchange.forget(header.id);
                } else {
                    request.passed = Some((header, body, fds));
                    self.passed.notify_all();
                }
                Ok(None)
            }
            _ => Err(stray(&header)),
        }
    }

    /// Sends a request without reply.
    pub(super) fn post(&self, request: &Request<'_>) -> Result<(), ServerError> {
        let mut exchange = self.exchange();
        self.check()?;
        self.send(&mut exchange, true, request, &[]).map(|_| ())
    }

    /// Notes that the server is slow.
    fn slow(&self, exchange: &mut MessageBuffers, command: Command) -> ServerError {
        let request = name_of(command);
        if exchange.slow.replace(command).is_none() {
            tracing::warn!(target: FAULT_LOG, request, limit = ?self.deadline, "the card's server does not answer in time");
        }
        ServerError::TimedOut { request, after: self.deadline }
    }

    /// Takes late replies of a slow server, without waiting for them.
    fn take_late_replies(&self, exchange: &mut MessageBuffers) -> Result<(), ServerError> {
        while let Some(command) = exchange.slow
            && exchange.outstanding.iter().any(|request| request.is_late)
        {
            let broken = |cause: ConnectionError| self.end(name_of(command), cause);
            if !self.connection.is_readable().map_err(|error| broken(error.into()))? {
                return Err(self.slow(exchange, command));
            }
            self.take_message(exchange, self.deadline, None).map_err(broken)?;
        }
        Ok(())
    }

    pub(super) fn send(
        &self,
        exchange: &mut MessageBuffers,
        no_reply: bool,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) -> Result<u16, ServerError> {
        let command = request.command();
        self.take_late_replies(exchange)?;
        // A server that has not taken the last request in time is not waited for again.
        let limit = if exchange.slow.is_some() { Duration::ZERO } else { self.deadline };
        let id = exchange.choose_id();
        exchange.out.clear();
        encode_request(id, no_reply, request, &mut exchange.out);
        match self.connection.send(&exchange.out, fds, limit) {
            Ok(()) => {
                exchange.slow = None;
                Ok(id)
            }
            // Nothing was sent.
            Err(SocketError::TimedOut { .. }) => Err(self.slow(exchange, command)),
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
            // The receiver takes what has woken this thread.
            while exchange.has_receiver && self.ended.get().is_none() {
                exchange.waiting += 1;
                exchange = self.passed.wait(exchange).unwrap_or_else(PoisonError::into_inner);
                exchange.waiting -= 1;
            }
            if self.ended.get().is_some() {
                return;
            }
            // The previous holder of the lock may have received the message that woke this thread.
            match self.connection.is_readable() {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return broken(error.into()),
            }
            if let Err(cause) = self.take_message(&mut exchange, self.deadline, None) {
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
