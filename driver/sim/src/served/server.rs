//! The loop: messages, the card's work, and sleep when there is neither.

use super::client::{ClientConnection, ClientError};
use super::error::ServeError;
use super::listener::{Listener, SocketFile};
use super::log::{LogLimit, log_limited};
use super::session::{Next, Session};
use crate::link::LinkEvents;
use crate::network::SimNetwork;
use fpga_pci::OsError;
use fpga_vfio_user::socket::{Connection, SocketError};
use fpga_vfio_user::wire::{Kind, encode_error};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a client has for its first message, unless the server is told otherwise: it has nothing to wait for before it.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// How long a client has to answer for memory that it maps without a file, unless the server is told otherwise. The card stands
/// still meanwhile, and clients wait some seconds for their own answers (QEMU five).
const ANSWER: Duration = Duration::from_secs(1);
/// How long somebody who comes while a client is served has for its first message, to be told that the card is taken.
const EXCESS_CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it is kept before it is told: a client that was killed, or whose socket a child of its still holds for a moment, goes
/// meanwhile, and who starts again right after it finds the card free.
const BUSY_REPLY_DELAY: Duration = Duration::from_millis(200);
/// Messages that a client may have sent before it went, and that are answered before the next one is told that there is one.
const LAST_WORDS: usize = 1024;
/// After a client that could not be accepted (no file descriptors left), before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What happened while a card was served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServeCounts {
    /// Clients served.
    pub connections: u64,
    /// Others who came meanwhile and were told that the card is taken.
    pub turned_away: u64,
    /// Messages of the clients.
    pub messages: u64,
    /// Requests that were refused.
    pub refused_requests: u64,
    /// Connections that ended in the middle of a message, by a malformed header, or in silence.
    pub broken_connections: u64,
    /// Messages to the clients, asking for memory that they mapped without a file.
    pub memory_messages: u64,
}

/// How many messages of clients a server has received so far: for whoever watches it while it serves. Clones count the same.
#[derive(Clone, Debug, Default)]
pub struct MessageCount(Arc<AtomicU64>);

impl MessageCount {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// What has happened so far, while the card is served. Clones show the same.
#[derive(Clone, Debug, Default)]
pub struct LiveServeCounts {
    counts: Arc<Mutex<ServeCounts>>,
    messages: MessageCount,
}

impl LiveServeCounts {
    /// The counts of this moment. What the client that is connected was asked for in messages counts when it has gone.
    #[must_use]
    pub fn get(&self) -> ServeCounts {
        let counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        ServeCounts { messages: self.messages.get(), ..counts }
    }

    fn set(&self, counts: ServeCounts) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }
}

/// Serves one card of a world on a UNIX socket: to one client at a time, one after the other.
///
/// Who comes while a client is served is told so (`EBUSY` in answer to its first message) and may come again. A client that has
/// not said anything yet keeps nobody out: it makes room for one who has, and goes after [some seconds](Self::first_message) in
/// any case. Later it may be silent for as long as it likes, as a guest that does not use its card is.
///
/// The card works on the thread that calls [`run`](Self::run), between messages and as long as it has something to do;
/// then that thread sleeps until a message comes, or a timer of the card's runs out. (A world with a thread of its own works there.)
#[derive(Debug)]
pub struct CardServer {
    listener: Listener,
    counts: ServeCounts,
    first_message: Duration,
    answer: Duration,
    live: LiveServeCounts,
    log: Arc<LogLimit>,
}

/// A client and what it has of the card.
struct Client {
    /// Dropped first: it lets the client's memory go, part of which may be behind `peer`.
    session: Session,
    peer: Arc<ClientConnection>,
    since: Instant,
}

impl Client {
    fn new(
        world: &SimNetwork,
        card: usize,
        connection: Connection,
        answer: Duration,
        log: &Arc<LogLimit>,
    ) -> Option<Self> {
        match ClientConnection::new(connection, answer, Arc::clone(log)) {
            Ok(peer) => {
                let peer = Arc::new(peer);
                let session = Session::with_peer(world, card, Arc::clone(&peer), Arc::clone(log));
                Some(Self { session, peer, since: Instant::now() })
            }
            // It sees the end of its connection.
            Err(error) => {
                log_limited!(log, WARN, %error, "a client cannot be served");
                None
            }
        }
    }

    /// How long it may still be silent, if it has said nothing yet.
    fn remaining_time(&self, first_message: Duration) -> Option<Duration> {
        (!self.session.is_negotiated()).then(|| first_message.saturating_sub(self.since.elapsed()))
    }
}

/// Somebody who will be turned away.
struct ExcessClient {
    connection: Connection,
    since: Instant,
}

impl ExcessClient {
    fn has_waited(&self) -> bool {
        self.since.elapsed() >= BUSY_REPLY_DELAY
    }

    /// Until something is to be done about it, whether it says anything or not.
    fn remaining_time(&self) -> Duration {
        let until = if self.has_waited() { EXCESS_CLIENT_TIMEOUT } else { BUSY_REPLY_DELAY };
        until.saturating_sub(self.since.elapsed())
    }
}

/// Memory for messages.
#[derive(Default)]
struct MessageBuffers {
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
    out: Vec<u8>,
}

impl CardServer {
    /// Listens at `path`: from now on clients can connect. The socket's file is removed with the server; one that was left
    /// by a server that is no more is replaced.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let listener = Listener::bind(path)?;
        Ok(Self {
            listener,
            counts: ServeCounts::default(),
            first_message: FIRST_MESSAGE,
            answer: ANSWER,
            live: LiveServeCounts::default(),
            log: Arc::new(LogLimit::new("clients")),
        })
    }

    /// How long a client may take for its first message. Default 5 s.
    #[must_use]
    pub const fn first_message(mut self, time: Duration) -> Self {
        self.first_message = time;
        self
    }

    /// How long a client may take to answer for memory that it maps without a file (`DMA_READ`, `DMA_WRITE`): all messages of one
    /// unit of the card's work together. The card does nothing while it waits. After that, or when the answers are late all the time
    /// (ten such times in all, and a tenth of the time that passes), it is asked no more, and accesses to such memory are refused.
    /// Default 1 s.
    #[must_use]
    pub const fn answer(mut self, time: Duration) -> Self {
        self.answer = time;
        self
    }

    /// The number of messages, to be watched.
    #[must_use]
    pub fn message_count(&self) -> MessageCount {
        self.live.messages.clone()
    }

    /// What has happened so far, to be looked at while the card is served.
    #[must_use]
    pub fn live_counts(&self) -> LiveServeCounts {
        self.live.clone()
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// The socket's file, to be removed by a program that ends without dropping the server.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.listener.file()
    }

    /// Serves card `card` of `world` until `stop` can be read (or its other end is closed). Of a client that is connected then
    /// the card is wanted back (VFIO's REQ interrupt), and the connection ends.
    ///
    /// # Errors
    /// [`ServeError::NoSuchCard`], [`ServeError::Wait`].
    pub fn run(
        mut self,
        world: &SimNetwork,
        card: usize,
        stop: impl AsFd,
    ) -> Result<ServeCounts, ServeError> {
        let count = world.card_count();
        if card >= count {
            return Err(ServeError::NoSuchCard { card, count });
        }
        // No wait for a client outlasts the server.
        let stopped = stop.as_fd().try_clone_to_owned().map_err(|error| self.wait_error(error.into()))?;
        let stopped = Arc::new(stopped);
        // Nobody else in this process opens the card and so puts it to rest.
        let opened = world.backend(card);
        let link = world.link_events();
        let began = Instant::now();
        let base = world.now();
        let (mut client, mut stranger): (Option<Client>, Option<ExcessClient>) = (None, None);
        let (mut buffers, mut pause) = (MessageBuffers::default(), false);
        loop {
            let refused = client.as_ref().map_or(0, |client| client.session.refused());
            let refused_requests = self.counts.refused_requests + refused;
            self.live.set(ServeCounts { refused_requests, ..self.counts });
            let elapsed = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let rest = world.drive(base.saturating_add(fpga_protocol::Nanos::new(elapsed)));
            world.yield_lock();
            let silent = client.as_ref().and_then(|client| client.remaining_time(self.first_message));
            let rest = [
                rest,
                silent,
                stranger.as_ref().map(ExcessClient::remaining_time),
                pause.then_some(ACCEPT_PAUSE),
            ];
            let rest = rest.into_iter().flatten().min();
            let ready =
                self.wait(stop.as_fd(), link.as_ref(), client.as_ref(), stranger.as_ref(), !pause, rest)?;
            pause = false;
            if ready.stop {
                break;
            }
            if ready.line
                && let Some(client) = &client
            {
                client.session.serve_intx_unmask();
            }
            if ready.client {
                self.serve_client(&mut client, &mut buffers, 1);
            }
            if client.as_ref().and_then(|client| client.remaining_time(self.first_message))
                == Some(Duration::ZERO)
            {
                self.counts.broken_connections += 1;
                log_limited!(
                    self.log,
                    WARN,
                    "the connection ends: the client has said nothing within {:?}",
                    self.first_message
                );
                self.end(client.take());
            }
            if ready.stranger
                || stranger.as_ref().is_some_and(|it| it.since.elapsed() >= EXCESS_CLIENT_TIMEOUT)
            {
                // What the client sent before it went comes first: it may make room.
                self.serve_client(&mut client, &mut buffers, LAST_WORDS);
                if client.as_ref().is_some_and(|client| !client.session.is_negotiated()) && ready.stranger {
                    self.counts.broken_connections += 1;
                    log_limited!(
                        self.log,
                        WARN,
                        "the connection ends: the client has said nothing, and another one has"
                    );
                    self.end(client.take());
                }
                if client.is_some() {
                    self.reject_client(stranger.take(), &mut buffers);
                }
            }
            if ready.listener {
                self.serve_client(&mut client, &mut buffers, LAST_WORDS);
                match self.listener.accept() {
                    Ok(None) => {}
                    Err(error) => {
                        log_limited!(self.log, WARN, %error, "a client could not be accepted");
                        pause = true;
                    }
                    // Of several only the last one is told; the others see the end of their connections.
                    Ok(Some(socket)) => {
                        self.counts.turned_away += u64::from(stranger.is_some());
                        let connection = Connection::new(socket).with_stop(Arc::clone(&stopped));
                        stranger = Some(ExcessClient { connection, since: Instant::now() });
                    }
                }
            }
            if client.is_none()
                && let Some(ExcessClient { connection, .. }) = stranger.take()
            {
                self.counts.connections += 1;
                log_limited!(self.log, INFO, "a client has come");
                client = Client::new(world, card, connection, self.answer, &self.log);
            }
        }
        if let Some(client) = &client {
            client.session.request_release();
        }
        self.end(client);
        drop(opened);
        self.log.finish();
        self.live.set(self.counts);
        Ok(self.live.get())
    }

    /// Waits until something is to be done, at most for `rest`.
    fn wait(
        &self,
        stop: impl AsFd,
        link: Option<&LinkEvents>,
        client: Option<&Client>,
        stranger: Option<&ExcessClient>,
        listen: bool,
        rest: Option<Duration>,
    ) -> Result<ReadySources, ServeError> {
        let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
        let flags = |wanted: bool| if wanted { PollFlags::IN } else { PollFlags::empty() };
        // Places that are not wanted now ask for nothing, of a descriptor that has nothing to tell.
        let unused = self.listener.as_fd();
        let client_fd = client.map_or(unused, |client| client.peer.as_fd());
        let kept_fd = client.map_or(unused, |client| client.peer.arrived());
        let line_fd = client.and_then(|client| client.session.line_unmask());
        let stranger_fd = stranger.map_or(unused, |stranger| stranger.connection.as_fd());
        // The card's own work: the wait is over, and the world takes it.
        let link_fd = link.map_or(unused, AsFd::as_fd);
        let mut poll = [
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.listener.as_fd(), flags(listen)),
            PollFd::from_borrowed_fd(client_fd, flags(client.is_some())),
            PollFd::from_borrowed_fd(kept_fd, flags(client.is_some())),
            PollFd::from_borrowed_fd(line_fd.unwrap_or(unused), flags(line_fd.is_some())),
            PollFd::from_borrowed_fd(stranger_fd, flags(stranger.is_some_and(ExcessClient::has_waited))),
            PollFd::from_borrowed_fd(link_fd, flags(link.is_some())),
        ];
        match rustix::event::poll(&mut poll, rest.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(ReadySources::default()),
            Err(errno) => return Err(self.wait_error(errno.into())),
        }
        let [stop, listener, socket, kept, line, stranger_ready, _] = poll.map(|fd| !fd.revents().is_empty());
        Ok(ReadySources {
            stop,
            listener: listener && listen,
            client: (socket || kept) && client.is_some(),
            line: line && line_fd.is_some(),
            stranger: stranger_ready && stranger.is_some_and(ExcessClient::has_waited),
        })
    }

    fn wait_error(&self, source: OsError) -> ServeError {
        ServeError::Wait { path: self.listener.path().to_owned(), source }
    }

    /// Up to `most` messages of the client's, as far as they are there, and until it has kept the server waiting. It is gone
    /// afterwards if one was the last.
    fn serve_client(&mut self, client: &mut Option<Client>, buffers: &mut MessageBuffers, most: usize) {
        for _ in 0..most {
            let Some(present) = client else { return };
            if most > 1 && !present.peer.is_readable() {
                return;
            }
            present.peer.begin_unit();
            let goes_on = self.serve(present, buffers);
            let is_budget_used = present.peer.is_budget_used();
            if !goes_on {
                self.end(client.take());
            }
            if is_budget_used {
                return;
            }
        }
    }

    /// One message of the client's. `false`: that was the last one.
    fn serve(&mut self, client: &mut Client, buffers: &mut MessageBuffers) -> bool {
        let MessageBuffers { body, fds, out } = buffers;
        let header = match client.peer.receive(body, fds) {
            Ok(Some(header)) => header,
            Ok(None) => return true,
            Err(error) => return self.broken(error),
        };
        self.live.messages.add_one();
        out.clear();
        let next = client.session.handle(&header, body, std::mem::take(fds), out);
        if !out.is_empty()
            && let Err(error) = client.peer.send(out)
        {
            return self.broken(error);
        }
        next == Next::Continue
    }

    fn broken(&mut self, error: ClientError) -> bool {
        if !matches!(error, ClientError::Socket(SocketError::Closed | SocketError::Stopped)) {
            self.counts.broken_connections += 1;
            log_limited!(self.log, WARN, %error, "the connection ends");
        }
        false
    }

    fn end(&mut self, client: Option<Client>) {
        if let Some(client) = client {
            let (asked, broken) = client.peer.asked();
            self.counts.refused_requests += client.session.refused();
            self.counts.memory_messages += asked;
            // Of the end itself the connection has told like of any other.
            self.counts.broken_connections += u64::from(broken);
            log_limited!(self.log, INFO, "the client has gone");
        }
    }

    /// Answers the first message of somebody who came too late, if there is one.
    fn reject_client(&mut self, stranger: Option<ExcessClient>, buffers: &mut MessageBuffers) {
        let Some(ExcessClient { connection, .. }) = stranger else { return };
        self.counts.turned_away += 1;
        log_limited!(
            self.log,
            WARN,
            "somebody else wants the card on {} and is told that it is in use; for two programs serve two cards",
            self.listener.path().display()
        );
        let MessageBuffers { body, fds, out } = buffers;
        // What is not there yet will not come: the card has other things to do.
        let Ok(header) = connection.receive(body, fds, Duration::from_millis(1)) else { return };
        fds.clear();
        if header.kind == (Kind::Request { no_reply: false }) {
            out.clear();
            let errno = Errno::BUSY.raw_os_error().unsigned_abs();
            encode_error(header.id, header.command, errno, out);
            let _ = connection.send(out, &[], Duration::from_millis(1));
        }
    }
}

/// Who has something.
#[derive(Clone, Copy, Debug, Default)]
struct ReadySources {
    stop: bool,
    listener: bool,
    client: bool,
    line: bool,
    stranger: bool,
}
