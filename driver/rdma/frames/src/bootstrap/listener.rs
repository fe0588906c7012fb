//! Publisher side of the bootstrap: several conversations at a time, each with its time limit.

use std::collections::VecDeque;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use super::wire::{Accepted, Hello, Join, Message, MessageError, Offer, Reason, Refusal};
use super::{ConnectionError, ConversationClock, JoinConnection, MessageConnection};
use crate::blocks::VERSION;
use crate::publisher::SubscriberId;

/// Maximum number of connections accepted per poll, so that a flood of them does not delay frames.
const ACCEPTS_PER_POLL: usize = 8;
/// Time between two polls of the connections. A poll costs system calls, and joining is not urgent.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time that a connection has to send its first message, however many others arrive. On a busy machine some milliseconds pass between a
/// connection and its first message. A flood is accepted more slowly by this time, and waits in the kernel's queue.
const HELLO_GRACE: Duration = Duration::from_millis(5);
/// Divisor of the time limit: after this part of it, a conversation that has an offer and has sent nothing since may be replaced by
/// another. A flood of conversations that are begun and not finished must not keep subscribers out.
const OFFER_TIMEOUT_DIVISOR: u32 = 4;
/// Maximum number of unread bytes of a client that are read and discarded before the connection is closed. With unread bytes the kernel
/// would reset the connection and discard the reason that is in flight to the client.
const DISCARDED: usize = 4096;
/// Maximum number of connections of the program that wait to be accepted. Further ones are closed.
const MAX_WAITING: usize = 128;
/// Maximum number of rejections that are kept to be reported.
const MAX_REJECTIONS: usize = 64;

/// Decision about subscribers.
pub(crate) trait AdmissionControl {
    /// The caller fills in the challenge of the connection.
    fn offer(&mut self, hello: &Hello) -> Result<Offer, Refusal>;
    /// Called repeatedly until there is a verdict.
    fn admit(&mut self, hello: &Hello, join: &Join, visit: &mut JoinState) -> Verdict;
}

/// State of a join between two calls of [`AdmissionControl::admit`]: the number of the deciding probe, and the subscriber with this node
/// that it goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JoinState {
    pub(crate) probe: Option<(SubscriberId, u64)>,
}

/// Decision about a join.
#[derive(Debug)]
pub(crate) enum Verdict {
    Accepted(Accepted),
    Refused(Refusal),
    /// Not known yet.
    Pending,
}

/// A connection that did not become a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) peer: SocketAddr,
    pub(crate) reason: String,
}

#[derive(Debug)]
enum Stage {
    /// No valid message was received yet.
    Hello,
    /// The offer was queued or sent; with its challenge.
    Join(Hello, u64),
    /// The join was received, and not decided about.
    Verdict(Hello, Join, JoinState),
    /// The last message is being sent.
    Last,
}

#[derive(Debug)]
struct Connection {
    line: MessageConnection,
    peer: SocketAddr,
    since: Duration,
    /// Time of the last message received.
    heard: Duration,
    until: Duration,
    challenge: u64,
    stage: Stage,
    /// Reason of the refusal; its message is being sent.
    refused: Option<String>,
}

/// Source of connections.
#[derive(Debug)]
enum Source {
    Socket(TcpListener),
    /// Connections of the program that wait.
    Program(VecDeque<(Box<dyn JoinConnection>, SocketAddr)>),
}

impl Source {
    /// Returns a new connection and its peer, or the peer and the error of a connection that does not work.
    fn accept(&mut self) -> Option<(SocketAddr, io::Result<MessageConnection>)> {
        match self {
            // An error here means that one connection has closed already, or that this process has no file descriptors left: the next poll
            // tries again.
            Self::Socket(socket) => {
                let (socket, peer) = socket.accept().ok()?;
                Some((peer, MessageConnection::of_socket(socket)))
            }
            Self::Program(waiting) => {
                let (connection, peer) = waiting.pop_front()?;
                Some((peer, Ok(MessageConnection::new(connection))))
            }
        }
    }
}

/// Conversations with joining subscribers, over the connections of one source.
#[derive(Debug)]
pub(crate) struct Listener {
    source: Source,
    clock: ConversationClock,
    connections: VecDeque<Connection>,
    most: usize,
    timeout: Duration,
    last_poll: Option<Duration>,
    rejected: VecDeque<Rejected>,
    /// Challenges are a keyed hash of a counter; the key comes from the system's random numbers.
    challenges: RandomState,
    challenged: u64,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, most: usize, timeout: Duration) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        Ok(Self::of(Source::Socket(socket), ConversationClock::wall(), most, timeout))
    }

    /// Creates a listener for connections of the program.
    pub(crate) fn of_program(most: usize, timeout: Duration) -> Self {
        Self::of(Source::Program(VecDeque::new()), ConversationClock::Endpoint, most, timeout)
    }

    fn of(source: Source, clock: ConversationClock, most: usize, timeout: Duration) -> Self {
        Self {
            source,
            clock,
            connections: VecDeque::with_capacity(most),
            most: most.max(1),
            timeout,
            last_poll: None,
            rejected: VecDeque::new(),
            challenges: RandomState::new(),
            challenged: 0,
        }
    }

    /// Address of the socket; `None` if the connections are those of the program.
    pub(crate) fn address(&self) -> Option<io::Result<SocketAddr>> {
        match &self.source {
            Source::Socket(socket) => Some(socket.local_addr()),
            Source::Program(_) => None,
        }
    }

    pub(crate) const fn clock(&self) -> ConversationClock {
        self.clock
    }

    /// Adds a connection of the program, if this listener is for them. A connection above the maximum is closed.
    pub(crate) fn add(&mut self, connection: Box<dyn JoinConnection>, peer: SocketAddr) {
        if let Source::Program(waiting) = &mut self.source
            && waiting.len() < MAX_WAITING
        {
            waiting.push_back((connection, peer));
        }
    }

    pub(crate) fn next_rejected(&mut self) -> Option<Rejected> {
        self.rejected.pop_front()
    }

    fn reject(&mut self, peer: SocketAddr, why: String) {
        if self.rejected.len() == MAX_REJECTIONS {
            self.rejected.pop_front();
        }
        self.rejected.push_back(Rejected { peer, reason: why });
    }

    /// Accepts connections and advances the existing ones. Never waits.
    pub(crate) fn poll(&mut self, now: Duration, admission: &mut dyn AdmissionControl) -> usize {
        if self.last_poll.is_some_and(|last_poll| now.saturating_sub(last_poll) < POLL_INTERVAL) {
            return 0;
        }
        self.last_poll = Some(now);
        let mut work = self.accept(now);
        // Each one once, in the order of arrival.
        for _ in 0..self.connections.len() {
            let Some(mut connection) = self.connections.pop_front() else { break };
            match connection.advance(now, admission) {
                Ok(Some(moved)) => {
                    work += usize::from(moved);
                    self.connections.push_back(connection);
                }
                Ok(None) => work += 1,
                Err(why) => {
                    work += 1;
                    self.reject(connection.peer, why);
                }
            }
        }
        work
    }

    fn accept(&mut self, now: Duration) -> usize {
        for count in 0..ACCEPTS_PER_POLL {
            if self.connections.len() >= self.most {
                // The oldest connection without a first message is replaced; otherwise one that has had an offer for a long time.
                let offered = self.timeout / OFFER_TIMEOUT_DIVISOR;
                let silent = self.connections.iter().position(|line| {
                    matches!(line.stage, Stage::Hello) && now.saturating_sub(line.since) >= HELLO_GRACE
                });
                let hesitating = || {
                    self.connections.iter().position(|line| {
                        matches!(line.stage, Stage::Join(..)) && now.saturating_sub(line.heard) >= offered
                    })
                };
                let evicted = silent.or_else(hesitating).and_then(|at| self.connections.remove(at));
                let Some(evicted) = evicted else { return count };
                self.reject(evicted.peer, "it sent nothing while other connections waited".to_owned());
            }
            let Some((peer, line)) = self.source.accept() else { return count };
            match line {
                Ok(line) => {
                    self.challenged = self.challenged.wrapping_add(1);
                    self.connections.push_back(Connection {
                        line,
                        peer,
                        since: now,
                        heard: now,
                        until: now.saturating_add(self.timeout),
                        challenge: self.challenges.hash_one(self.challenged),
                        stage: Stage::Hello,
                        refused: None,
                    });
                }
                Err(error) => self.reject(peer, error.to_string()),
            }
        }
        ACCEPTS_PER_POLL
    }
}

impl Connection {
    /// Advances the conversation. Returns whether a message was received; `None` if the conversation has ended normally.
    fn advance(
        &mut self,
        now: Duration,
        admission: &mut dyn AdmissionControl,
    ) -> Result<Option<bool>, String> {
        let mut moved = false;
        match self.line.receive() {
            _ if matches!(self.stage, Stage::Last) => {}
            Ok(None) => {}
            Ok(Some(message)) => {
                moved = true;
                self.heard = now;
                self.answer(&message, admission);
            }
            Err(ConnectionError::Message(error)) => {
                let reason = match error {
                    MessageError::Version { .. } => Reason::Version,
                    _ => Reason::Garbage,
                };
                let text = format!("invalid message: {error}");
                self.refuse(Refusal { reason, text });
                self.line.discard(DISCARDED);
                let _ = self.line.flush();
                return Err(error.to_string());
            }
            Err(ConnectionError::Closed) => {
                return Err("it closed the connection before the join was complete".to_owned());
            }
            Err(ConnectionError::Io(error)) => return Err(error.to_string()),
        }
        moved |= self.decide(now, admission);
        let flushed = match self.line.flush() {
            Ok(flushed) => flushed,
            Err(ConnectionError::Io(error)) => return Err(error.to_string()),
            Err(_) => return Err("it closed the connection".to_owned()),
        };
        if flushed && matches!(self.stage, Stage::Last) {
            self.line.discard(DISCARDED);
            return self.refused.take().map_or(Ok(None), Err);
        }
        if now >= self.until {
            return Err("the join timed out".to_owned());
        }
        Ok(Some(moved))
    }

    /// Asks for the decision about a received join. Returns whether there is one.
    fn decide(&mut self, now: Duration, admission: &mut dyn AdmissionControl) -> bool {
        let Stage::Verdict(hello, join, visit) = &mut self.stage else { return false };
        match admission.admit(hello, join, visit) {
            Verdict::Accepted(accepted) => {
                self.line.send(&Message::Accepted(accepted));
                self.stage = Stage::Last;
            }
            Verdict::Refused(refusal) => self.refuse(refusal),
            // Before the time limit, so that the reason arrives before the other side gives up.
            Verdict::Pending
                if now >= self.until.saturating_sub(self.until.saturating_sub(self.since) / 4) =>
            {
                let text = format!(
                    "node {} already is a subscriber, and the check whether that one is still running has not finished: try again",
                    hello.node
                );
                self.refuse(Refusal { reason: Reason::Taken, text });
            }
            Verdict::Pending => return false,
        }
        true
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refused = Some(format!("the join was refused: {}", refusal.text));
        self.line.send(&Message::Refused(refusal));
        self.stage = Stage::Last;
    }

    fn answer(&mut self, message: &Message, admission: &mut dyn AdmissionControl) {
        match (&self.stage, message) {
            (Stage::Hello, Message::Hello(hello)) => match admission.offer(hello) {
                Ok(offer) => {
                    self.line.send(&Message::Offer(Offer { challenge: self.challenge, ..offer }));
                    self.stage = Stage::Join(*hello, self.challenge);
                }
                Err(refusal) => self.refuse(refusal),
            },
            (Stage::Join(_, challenge), Message::Join(join)) if join.challenge != *challenge => {
                let text = "the challenge in the join differs from the one in this connection's offer: the message belongs to another connection";
                self.refuse(Refusal { reason: Reason::Challenge, text: text.to_owned() });
            }
            (Stage::Join(hello, _), Message::Join(join)) => {
                self.stage = Stage::Verdict(*hello, *join, JoinState::default());
            }
            _ => {
                let text = format!("unexpected message (version {VERSION}): send hello first, then join");
                self.refuse(Refusal { reason: Reason::Garbage, text });
            }
        }
    }
}
