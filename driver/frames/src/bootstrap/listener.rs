//! The publisher's side: any number of conversations, a few at a time, each with its time limit.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use super::wire::{Accepted, Hello, Join, Message, MessageError, Offer, Reason, Refusal};
use super::{Line, LineError};
use crate::cells::VERSION;

/// Connections taken at one look: so that a flood of them does not hold up frames.
const AT_ONCE: usize = 8;
/// How often is looked. A look costs system calls, and who joins has time.
const LOOK: Duration = Duration::from_millis(1);
/// Whoever connects has so long to say something, however many others come: on a machine that has much to do, between a connection and its
/// first word are some milliseconds. A flood is let in that much more slowly, and waits in the system's queue.
const GRACE: Duration = Duration::from_millis(5);
/// Bytes of a stranger's that are read and thrown away before the connection is closed. What is left unread would make the system take back
/// the reason on its way to him.
const DISCARDED: usize = 4096;
/// Rejections that are kept to be reported.
const KEPT: usize = 64;

/// Who decides about subscribers.
pub(crate) trait Admission {
    fn offer(&mut self, hello: &Hello) -> Result<Offer, Refusal>;
    fn admit(&mut self, hello: &Hello, join: &Join) -> Result<Accepted, Refusal>;
}

/// A connection that made nobody a subscriber.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) peer: SocketAddr,
    pub(crate) why: String,
}

#[derive(Debug)]
enum Stage {
    /// Nothing has been said that makes sense.
    Hello,
    /// The offer is on its way, or there.
    Join(Hello),
    /// The last message is on its way.
    Last,
}

#[derive(Debug)]
struct Connection {
    line: Line,
    peer: SocketAddr,
    since: Instant,
    until: Instant,
    stage: Stage,
    /// Why it will not be a subscriber; the word is on its way.
    refused: Option<String>,
}

/// The port where subscribers come to.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
    connections: VecDeque<Connection>,
    most: usize,
    patience: Duration,
    looked: Option<Instant>,
    rejected: VecDeque<Rejected>,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr, most: usize, patience: Duration) -> io::Result<Self> {
        let socket = TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let connections = VecDeque::with_capacity(most);
        Ok(Self { socket, connections, most: most.max(1), patience, looked: None, rejected: VecDeque::new() })
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    pub(crate) fn next_rejected(&mut self) -> Option<Rejected> {
        self.rejected.pop_front()
    }

    fn reject(&mut self, peer: SocketAddr, why: String) {
        if self.rejected.len() == KEPT {
            self.rejected.pop_front();
        }
        self.rejected.push_back(Rejected { peer, why });
    }

    /// Takes connections and goes on with those that there are. Never waits.
    pub(crate) fn poll(&mut self, now: Instant, admission: &mut dyn Admission) -> usize {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK) {
            return 0;
        }
        self.looked = Some(now);
        let mut work = self.accept(now);
        // Each once, in the order in which they came.
        for _ in 0..self.connections.len() {
            let Some(mut connection) = self.connections.pop_front() else { break };
            match connection.go_on(now, admission) {
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

    fn accept(&mut self, now: Instant) -> usize {
        for count in 0..AT_ONCE {
            if self.connections.len() >= self.most {
                // Whoever has said nothing for the longest time makes room; who is known to speak properly does not.
                let silent = self.connections.iter().position(|line| {
                    matches!(line.stage, Stage::Hello) && now.saturating_duration_since(line.since) >= GRACE
                });
                let Some(evicted) = silent.and_then(|at| self.connections.remove(at)) else { return count };
                self.reject(evicted.peer, "it said nothing while others were waiting".to_owned());
            }
            // What goes wrong here is about one connection that is gone already, or about this process having no descriptors left:
            // the next look tries again.
            let Ok((socket, peer)) = self.socket.accept() else { return count };
            match Line::new(socket) {
                Ok(line) => {
                    let until = now + self.patience;
                    let (stage, refused) = (Stage::Hello, None);
                    self.connections.push_back(Connection { line, peer, since: now, until, stage, refused });
                }
                Err(error) => self.reject(peer, error.to_string()),
            }
        }
        AT_ONCE
    }
}

impl Connection {
    /// Whether anything was heard; `None`: it is over, as it should be.
    fn go_on(&mut self, now: Instant, admission: &mut dyn Admission) -> Result<Option<bool>, String> {
        let mut moved = false;
        match self.line.hear() {
            _ if matches!(self.stage, Stage::Last) => {}
            Ok(None) => {}
            Ok(Some(message)) => {
                moved = true;
                self.answer(&message, admission);
            }
            Err(LineError::Message(error)) => {
                let reason = match error {
                    MessageError::Version { .. } => Reason::Version,
                    _ => Reason::Garbage,
                };
                let text = format!("the publisher does not understand: {error}");
                self.refuse(Refusal { reason, text });
                self.line.discard(DISCARDED);
                let _ = self.line.flush();
                return Err(error.to_string());
            }
            Err(LineError::Closed) => {
                return Err("it closed the connection before it was a subscriber".to_owned());
            }
            Err(LineError::Io(error)) => return Err(error.to_string()),
        }
        let flushed = match self.line.flush() {
            Ok(flushed) => flushed,
            Err(LineError::Io(error)) => return Err(error.to_string()),
            Err(_) => return Err("it closed the connection".to_owned()),
        };
        if flushed && matches!(self.stage, Stage::Last) {
            self.line.discard(DISCARDED);
            return self.refused.take().map_or(Ok(None), Err);
        }
        if now >= self.until {
            return Err("it took too long".to_owned());
        }
        Ok(Some(moved))
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.refused = Some(format!("it is refused: {}", refusal.text));
        self.line.say(&Message::Refused(refusal));
        self.stage = Stage::Last;
    }

    fn answer(&mut self, message: &Message, admission: &mut dyn Admission) {
        match (&self.stage, message) {
            (Stage::Hello, Message::Hello(hello)) => match admission.offer(hello) {
                Ok(offer) => {
                    self.line.say(&Message::Offer(offer));
                    self.stage = Stage::Join(*hello);
                }
                Err(refusal) => self.refuse(refusal),
            },
            (Stage::Join(hello), Message::Join(join)) => match admission.admit(hello, join) {
                Ok(accepted) => {
                    self.line.say(&Message::Accepted(accepted));
                    self.stage = Stage::Last;
                }
                Err(refusal) => self.refuse(refusal),
            },
            _ => {
                let text = format!("a message that is not due (version {VERSION}): hello first, then join");
                self.refuse(Refusal { reason: Reason::Garbage, text });
            }
        }
    }
}
