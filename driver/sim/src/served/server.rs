//! Main loop: messages, the card's work, and sleep when there is neither.

use super::alarm::ServerAlarm;
use super::client::{ClientConnection, ClientError};
use super::counts::{LiveServeCounts, MessageCount, ServeCounts};
use super::error::ServeError;
use super::listener::{Listener, SocketFile};
use super::session::{Next, Session};
use super::spin::{CHECKS_PER_LOOK, Spin};
use crate::link::LinkEvents;
use crate::network::SimNetwork;
use fpga_pci::{InterruptError, OsError};
use fpga_pci::{LogLimit, log_limited};
use fpga_vfio_user::socket::{Connection, SocketError};
use fpga_vfio_user::wire::{Kind, encode_error};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default timeout for a client's first message: a client has nothing to wait for before it.
const FIRST_MESSAGE: Duration = Duration::from_secs(5);
/// Default timeout for a client's reply about memory that it mapped without a file. The card does nothing meanwhile, and clients wait some
/// seconds for their own replies (QEMU five).
const ANSWER: Duration = Duration::from_secs(1);
/// Timeout for the first message of a client that connects while another one is served; it is then answered that the card is busy.
const EXCESS_CLIENT_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay of that answer: a client that was killed, or whose socket a child process still holds for a moment, disconnects meanwhile, so that
/// a client that starts right after it finds the card free.
const BUSY_REPLY_DELAY: Duration = Duration::from_millis(200);
/// Maximum number of messages that a disconnected client has sent and that are handled before the next client is answered that the card is
/// busy.
const MAX_FINAL_MESSAGES: usize = 1024;
/// Maximum time for the first message of a client that is refused for other reasons: it sends one at once.
const REFUSAL: Duration = Duration::from_millis(500);
/// Pause after a client could not be accepted (no free file descriptors), before the next attempt.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves one card of a simulated network: to one client at a time on a UNIX socket ([`bind`](Self::bind)), or to a single client that the
/// caller has accepted ([`accepted`](Self::accepted)).
///
/// A client that connects while another one is served receives `EBUSY` in reply to its first message and may try again. A client that has
/// not sent anything yet blocks no other client: it is disconnected in favour of one that has, and in any case after [some
/// seconds](Self::first_message). After its first message it may be silent without limit, as a guest that does not use its card is.
///
/// The card works on the thread that calls [`run`](Self::run), between messages and while it has work; then that thread sleeps until a
/// message arrives or a timer of the card expires. (A simulated network with a thread of its own works on that thread.)
#[derive(Debug)]
pub struct CardServer {
    /// Socket on which clients are accepted.
    listener: Option<Listener>,
    /// Its path, for messages.
    path: PathBuf,
    /// The only client, until it is served.
    accepted: Option<OwnedFd>,
    counts: ServeCounts,
    first_message: Duration,
    answer: Duration,
    /// Ends with the first client.
    is_once: bool,
    live: LiveServeCounts,
    log: Arc<LogLimit>,
}

/// A client and its state.
struct Client {
    /// Dropped first: it releases the client's memory, part of which `peer` may back.
    session: Session,
    peer: Arc<ClientConnection>,
    since: Instant,
    spin: Spin,
}

impl Client {
    fn new(
        network: &SimNetwork,
        card: usize,
        connection: Connection,
        answer: Duration,
        log: &Arc<LogLimit>,
    ) -> Option<Self> {
        match ClientConnection::new(connection, answer, Arc::clone(log)) {
            Ok(peer) => {
                let peer = Arc::new(peer);
                let session = Session::with_peer(network, card, Arc::clone(&peer), Arc::clone(log));
                Some(Self { session, peer, since: Instant::now(), spin: Spin::new() })
            }
            // The client sees the end of its connection.
            Err(error) => {
                log_limited!(log, WARN, %error, "a client cannot be served");
                None
            }
        }
    }

    /// Remaining time for the first message, if it has not arrived yet.
    fn remaining_time(&self, first_message: Duration) -> Option<Duration> {
        (!self.session.is_negotiated()).then(|| first_message.saturating_sub(self.since.elapsed()))
    }
}

/// Client that will be refused.
struct ExcessClient {
    connection: Connection,
    since: Instant,
}

impl ExcessClient {
    fn has_waited(&self) -> bool {
        self.since.elapsed() >= BUSY_REPLY_DELAY
    }

    /// Time until the next action for this client, independent of its messages.
    fn remaining_time(&self) -> Duration {
        let until = if self.has_waited() { EXCESS_CLIENT_TIMEOUT } else { BUSY_REPLY_DELAY };
        until.saturating_sub(self.since.elapsed())
    }
}

/// Buffers for messages.
#[derive(Default)]
struct MessageBuffers {
    body: Vec<u8>,
    fds: Vec<OwnedFd>,
    out: Vec<u8>,
}

impl CardServer {
    /// Listens at `path`: clients can connect from now on. The socket's file is removed with the server; a stale file of an ended server is
    /// replaced.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        Ok(Self { listener: Some(Listener::bind(path)?), ..Self::new(path) })
    }

    /// Serves the client of a connection that was accepted on the socket at `path`; [`run`](Self::run) ends with it.
    #[must_use]
    pub fn accepted(connection: OwnedFd, path: &Path) -> Self {
        Self { accepted: Some(connection), ..Self::new(path) }
    }

    fn new(path: &Path) -> Self {
        Self {
            listener: None,
            path: path.to_owned(),
            accepted: None,
            counts: ServeCounts::default(),
            first_message: FIRST_MESSAGE,
            answer: ANSWER,
            is_once: false,
            live: LiveServeCounts::default(),
            log: Arc::new(LogLimit::new("clients")),
        }
    }

    /// Ends with the first client.
    #[must_use]
    pub const fn once(mut self) -> Self {
        self.is_once = true;
        self
    }

    /// Returns the message counter, for observation while the card is served.
    #[must_use]
    pub fn message_count(&self) -> MessageCount {
        self.live.messages.clone()
    }

    /// Returns the live counters, for observation while the card is served.
    #[must_use]
    pub fn live_counts(&self) -> LiveServeCounts {
        self.live.clone()
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the socket's file, to be removed by a program that ends without dropping the server. `None` if it accepts no clients.
    #[must_use]
    pub fn file(&self) -> Option<SocketFile> {
        self.listener.as_ref().map(Listener::file)
    }

    /// Serves card `card` of `network` until `stop` is readable (or its other end is closed). A client that is connected then receives a
    /// device-release request (VFIO's REQ interrupt), and the connection ends.
    ///
    /// # Errors
    /// [`ServeError::NoSuchCard`], [`ServeError::Wait`].
    pub fn run(
        mut self,
        network: &SimNetwork,
        card: usize,
        stop: impl AsFd,
    ) -> Result<ServeCounts, ServeError> {
        let count = network.card_count();
        if card >= count {
            return Err(ServeError::NoSuchCard { card, count });
        }
        // Waits for a client end when the server stops.
        let stopped = stop.as_fd().try_clone_to_owned().map_err(|error| self.wait_error(error.into()))?;
        let stopped = Arc::new(stopped);
        // Keeps the card open, so that no other user in this process can close it.
        let opened = network.backend(card);
        let link = network.link_events();
        network.stop_virtual_time();
        let alarm = Arc::new(ServerAlarm::new(network.now()).map_err(|error| self.alarm_error(error))?);
        network.add_alarm(&alarm);
        let (mut client, mut excess): (Option<Client>, Option<ExcessClient>) = (None, None);
        let (mut buffers, mut pause) = (MessageBuffers::default(), false);
        if let Some(socket) = self.accepted.take() {
            self.counts.connections += 1;
            let connection = Connection::new(socket).with_stop(Arc::clone(&stopped));
            client = Client::new(network, card, connection, self.answer, &self.log);
        }
        while client.is_some() || self.listener.is_some() {
            self.execute_posted(&mut client);
            let refused = client.as_ref().map_or(0, |client| client.session.refused());
            let refused_requests = self.counts.refused_requests + refused;
            self.live.set(ServeCounts { refused_requests, ..self.counts });
            let rest = network.drive(alarm.now(), Some(&alarm));
            network.yield_lock();
            let silent = client.as_ref().and_then(|client| client.remaining_time(self.first_message));
            let rest = [
                rest,
                silent,
                excess.as_ref().map(ExcessClient::remaining_time),
                pause.then_some(ACCEPT_PAUSE),
            ];
            let rest = rest.into_iter().flatten().min();
            let ready = self.wait(
                stop.as_fd(),
                (link.as_ref(), &alarm),
                client.as_mut(),
                excess.as_ref(),
                !pause,
                rest,
            )?;
            pause = false;
            if ready.alarm {
                alarm.take();
            }
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
                    "the connection ends: the client sent nothing within {:?}",
                    self.first_message
                );
                self.end(client.take());
            }
            if ready.excess || excess.as_ref().is_some_and(|it| it.since.elapsed() >= EXCESS_CLIENT_TIMEOUT) {
                self.end_or_reject(&mut client, &mut excess, ready.excess, &mut buffers);
            }
            if ready.listener {
                pause = !self.accept(&mut client, &mut excess, &stopped, &mut buffers);
            }
            if client.is_none()
                && let Some(ExcessClient { connection, .. }) = excess.take()
            {
                self.counts.connections += 1;
                log_limited!(self.log, INFO, "a client connected");
                client = Client::new(network, card, connection, self.answer, &self.log);
                if self.is_once && client.is_some() {
                    self.listener = None;
                }
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

    /// Handles an excess client that has sent a message (`has_sent`) or has waited long enough: it takes the place of a client that has sent
    /// nothing, or is rejected.
    fn end_or_reject(
        &mut self,
        client: &mut Option<Client>,
        excess: &mut Option<ExcessClient>,
        has_sent: bool,
        buffers: &mut MessageBuffers,
    ) {
        // Messages that the client sent before it disconnected come first; they may end that connection.
        self.serve_client(client, buffers, MAX_FINAL_MESSAGES);
        if client.as_ref().is_some_and(|client| !client.session.is_negotiated()) && has_sent {
            self.counts.broken_connections += 1;
            log_limited!(
                self.log,
                WARN,
                "the connection ends: the client sent nothing, and another client sent a message"
            );
            self.end(client.take());
        }
        if client.is_some() {
            self.reject_client(excess.take(), buffers);
        }
    }

    /// Accepts a connection as excess client. Returns `false` if the system refuses it.
    fn accept(
        &mut self,
        client: &mut Option<Client>,
        excess: &mut Option<ExcessClient>,
        stopped: &Arc<OwnedFd>,
        buffers: &mut MessageBuffers,
    ) -> bool {
        self.serve_client(client, buffers, MAX_FINAL_MESSAGES);
        match self.listener.as_ref().map(Listener::accept).transpose().map(Option::flatten) {
            Ok(None) => {}
            Err(error) => {
                log_limited!(self.log, WARN, %error, "a client could not be accepted");
                return false;
            }
            // Of several excess clients only the last one is answered; the others see the end of their connections.
            Ok(Some(socket)) => {
                self.counts.turned_away += u64::from(excess.is_some());
                let connection = Connection::new(socket).with_stop(Arc::clone(stopped));
                *excess = Some(ExcessClient { connection, since: Instant::now() });
            }
        }
        true
    }

    /// Waits at most `rest` until there is something to do. Polls before it sleeps if the client's writes come by shared memory and polling pays.
    fn wait(
        &self,
        stop: BorrowedFd<'_>,
        sources: (Option<&LinkEvents>, &ServerAlarm),
        mut client: Option<&mut Client>,
        excess: Option<&ExcessClient>,
        listen: bool,
        rest: Option<Duration>,
    ) -> Result<ReadySources, ServeError> {
        let mut rest = rest;
        if let Some(client) = client.as_deref_mut()
            && client
                .session
                .posted()
                .is_some_and(|posted| rest == Some(Duration::ZERO) || posted.has_writes())
        {
            if !client.spin.looks() {
                return Ok(ReadySources::default());
            }
            rest = Some(Duration::ZERO);
        }
        let sleeps = rest != Some(Duration::ZERO);
        if let Some(client) = client.as_deref_mut().filter(|_| sleeps)
            && client.session.posted().is_some()
        {
            let began = Instant::now();
            let end = client.spin.idle(began);
            let end = rest.and_then(|rest| began.checked_add(rest)).map_or(end, |rest| rest.min(end));
            while Instant::now() < end && !client.spin.is_contended() {
                for _ in 0..CHECKS_PER_LOOK {
                    if client.session.posted().is_some_and(|posted| posted.has_writes()) {
                        client.spin.worked(Instant::now());
                        return Ok(ReadySources::default());
                    }
                    std::hint::spin_loop();
                }
                client.spin.yield_cpu();
                let ready = self.sleep(stop, sources, Some(client), excess, listen, Some(Duration::ZERO))?;
                if ready.any {
                    client.spin.worked(Instant::now());
                    return Ok(ready);
                }
            }
            if client.session.posted().is_some_and(|posted| !posted.prepare_to_sleep()) {
                rest = Some(Duration::ZERO);
            } else {
                client.spin.sleeps();
            }
        }
        let ready = self.sleep(stop, sources, client.as_deref(), excess, listen, rest)?;
        if let Some(client) = client.filter(|_| sleeps)
            && let Some(posted) = client.session.posted()
        {
            posted.awake();
            if ready.client || rest == Some(Duration::ZERO) {
                client.spin.worked(Instant::now());
            }
        }
        Ok(ready)
    }

    /// Sleeps at most `rest` until there is something to do.
    fn sleep(
        &self,
        stop: impl AsFd,
        (link, alarm): (Option<&LinkEvents>, &ServerAlarm),
        client: Option<&Client>,
        excess: Option<&ExcessClient>,
        listen: bool,
        rest: Option<Duration>,
    ) -> Result<ReadySources, ServeError> {
        let rest = rest.and_then(|rest| Timespec::try_from(rest).ok());
        let flags = |wanted: bool| if wanted { PollFlags::IN } else { PollFlags::empty() };
        // Unused entries request no events; the stop descriptor is their placeholder.
        let unused = stop.as_fd();
        let listener_fd = self.listener.as_ref().map(Listener::as_fd);
        let listen = listen && listener_fd.is_some();
        let client_fd = client.map_or(unused, |client| client.peer.as_fd());
        let kept_fd = client.map_or(unused, |client| client.peer.arrived());
        let line_fd = client.and_then(|client| client.session.line_unmask());
        let excess_fd = excess.map_or(unused, |excess| excess.connection.as_fd());
        // The card's own work: the wait ends, and the simulated network does it.
        let link_fd = link.map_or(unused, AsFd::as_fd);
        let mut poll = [
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(listener_fd.unwrap_or(unused), flags(listen)),
            PollFd::from_borrowed_fd(client_fd, flags(client.is_some())),
            PollFd::from_borrowed_fd(kept_fd, flags(client.is_some())),
            PollFd::from_borrowed_fd(line_fd.unwrap_or(unused), flags(line_fd.is_some())),
            PollFd::from_borrowed_fd(excess_fd, flags(excess.is_some_and(ExcessClient::has_waited))),
            PollFd::from_borrowed_fd(link_fd, flags(link.is_some())),
            PollFd::from_borrowed_fd(alarm.as_fd(), PollFlags::IN),
        ];
        match rustix::event::poll(&mut poll, rest.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(ReadySources::default()),
            Err(errno) => return Err(self.wait_error(errno.into())),
        }
        let ready = poll.map(|fd| !fd.revents().is_empty());
        let any = ready.contains(&true);
        let [stop, listener, socket, kept, line, excess_ready, _, alarm] = ready;
        Ok(ReadySources {
            any,
            alarm,
            stop,
            listener: listener && listen,
            client: (socket || kept) && client.is_some(),
            line: line && line_fd.is_some(),
            excess: excess_ready && excess.is_some_and(ExcessClient::has_waited),
        })
    }

    fn alarm_error(&self, error: InterruptError) -> ServeError {
        let InterruptError::NoDescriptor { source } = error else {
            return self.wait_error(OsError::from(Errno::MFILE));
        };
        self.wait_error(source)
    }

    fn wait_error(&self, source: OsError) -> ServeError {
        ServeError::Wait { path: self.path.clone(), source }
    }

    /// Handles up to `most` available messages of the client, until it has used its wait budget. `client` is `None` afterwards if its
    /// connection has ended.
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

    /// Executes the writes that the client has put into its ring. `client` is `None` afterwards if it has written something invalid.
    fn execute_posted(&mut self, client: &mut Option<Client>) {
        let Some(present) = client else { return };
        if let Err(error) = present.session.execute_posted() {
            self.broken(error.into());
            self.end(client.take());
        }
    }

    /// Handles one message of the client. Returns `false` if the connection has ended.
    fn serve(&mut self, client: &mut Client, buffers: &mut MessageBuffers) -> bool {
        let MessageBuffers { body, fds, out } = buffers;
        let header = match client.peer.receive(body, fds) {
            Ok(Some(header)) => header,
            Ok(None) => return true,
            Err(error) => return self.broken(error),
        };
        self.live.messages.add_one();
        // Before the message.
        if let Err(error) = client.session.execute_posted() {
            return self.broken(error.into());
        }
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
            // The end itself was logged like that of any connection.
            self.counts.broken_connections += u64::from(broken);
            log_limited!(self.log, INFO, "the client disconnected");
        }
    }

    /// Replies to the first message of an excess client, if it has arrived.
    fn reject_client(&mut self, excess: Option<ExcessClient>, buffers: &mut MessageBuffers) {
        let Some(ExcessClient { connection, .. }) = excess else { return };
        self.counts.turned_away += 1;
        log_limited!(
            self.log,
            WARN,
            "another client connected to {} and was answered that the card is busy; serve two cards for two programs",
            self.path.display()
        );
        // Data that is not there yet is not waited for: the card has other work.
        answer_error(&connection, Errno::BUSY, Duration::from_millis(1), buffers);
    }

    /// Refuses a client that was accepted, with the reason as the reply to its first message, which is waited for a moment.
    pub fn refuse(connection: OwnedFd, reason: Errno) {
        answer_error(&Connection::new(connection), reason, REFUSAL, &mut MessageBuffers::default());
    }
}

fpga_registers::setters! {
    impl CardServer {
        /// Sets the timeout for a client's first message. Default 5 s.
        first_message: Duration;
        /// Sets the timeout for a client's replies about memory that it maps without a file (`DMA_READ`, `DMA_WRITE`): it applies to all
        /// messages of one unit of the card's work together. The card does nothing while it waits. After a timeout, or if the replies are
        /// continually late (a credit of ten timeouts, refilled by a tenth of the elapsed time), the client is not asked again, and accesses to
        /// such memory are refused. Default 1 s.
        answer: Duration;
    }
}

/// Replies to a client's first message with an error.
fn answer_error(connection: &Connection, errno: Errno, wait: Duration, buffers: &mut MessageBuffers) {
    let MessageBuffers { body, fds, out } = buffers;
    let Ok(header) = connection.receive(body, fds, wait) else { return };
    fds.clear();
    if header.kind == (Kind::Request { no_reply: false }) {
        out.clear();
        encode_error(header.id, header.command, errno.raw_os_error().unsigned_abs(), out);
        let _ = connection.send(out, &[], Duration::from_millis(1));
    }
}

/// Event sources that are ready.
#[derive(Clone, Copy, Debug, Default)]
struct ReadySources {
    /// Any of them, also those that the network itself handles.
    any: bool,
    alarm: bool,
    stop: bool,
    listener: bool,
    client: bool,
    line: bool,
    excess: bool,
}
