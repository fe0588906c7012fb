//! Link by shared memory, between processes of one machine.
//!
//! Each process listens on a socket. For a peer, a process connects to that peer's socket and passes a file with two rings, one for each
//! direction: frames go through them without system calls. A side that has nothing to do sleeps, and the other one wakes it by a byte on
//! the socket.
//!
//! As with UDP, frames are lost when the receiver's ring is full, or when no process listens at the peer's path. A process that ends closes
//! its connections; the next frame for its path connects again. Permissions of the socket's file decide who can connect.
//!
//! A peer may write anything to the rings at any time: [`fpga_pci::memory::RingReader`]. Invalid values end the connection and count as malformed.
//! A long frame is received from the ring itself (module `frame`).

mod connection;
mod frame;
mod options;
mod slot;

use super::wrapper::{self, Nodes, WRAPPER_LENGTH};
use super::{LinkCounters, LinkError, NodeTable};
use crate::served::{Listener, SocketFile};
use connection::{Connection, Greeting, greeting};
use fpga_firmware::NodeId;
use fpga_pci::memory::RingRecord;
use frame::SharedFrame;
use options::absolute;
use rustix::event::{Timespec, epoll};
use slot::Slot;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use frame::ReceivedFrame;
pub use options::ShmLinkOptions;

/// Maximum length of a wrapped frame in bytes, as with UDP.
pub(crate) const MAX_DATAGRAM: usize = 65_507;
/// Maximum length of a socket's path in bytes.
pub(super) const MAX_PATH: usize = 107;
/// Maximum number of connections, and of peers that are learned from connections.
const MAX_CONNECTIONS: usize = 256;
/// Maximum number of invalid frames taken in one call: a flood of them must not keep cards from working.
const MAX_INVALID_FRAMES: u32 = 64;
/// Number of frames after which another connection is served.
const MAX_FRAMES_IN_A_ROW: u32 = 64;
/// Number of calls after which a side that never sleeps looks for new connections.
const CALLS_PER_LOOK: u32 = 32;
/// Event of the listening socket; others are positions of connections.
const LISTENER: u64 = u64::MAX;

/// Record that was read from a ring.
struct Received {
    /// Slot of its connection.
    slot: usize,
    peer: usize,
    record: RingRecord,
    /// `None` for an invalid one.
    nodes: Option<Nodes>,
    /// Only its start was copied.
    is_shared: bool,
}

/// One end of a link by shared memory.
#[derive(Debug)]
pub struct ShmLink {
    listener: Listener,
    /// Absolute path of this end, as peers know it.
    own: PathBuf,
    peers: Vec<PathBuf>,
    /// Whether peers were given: others are refused.
    has_peers: bool,
    /// Which peers were located, and not learned from their connections: this side connects to them.
    located: Vec<usize>,
    slots: Vec<Slot>,
    epoll: Arc<OwnedFd>,
    /// Last known peers of nodes.
    nodes: NodeTable<usize>,
    pub(crate) counters: LinkCounters,
    /// Copy of the current frame, or of its start.
    buffer: Vec<u8>,
    /// Slot to read next, and the frames that it has had in a row.
    turn: usize,
    in_a_row: u32,
    /// Whether the peers were asked to wake this side.
    asleep: bool,
    calls: u32,
}

impl ShmLink {
    /// Listens at the local path. A stale socket of an ended process is replaced.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn bind(options: &ShmLinkOptions) -> Result<Self, LinkError> {
        let own = absolute(&options.local)?;
        let peers = options.peers.iter().map(|path| absolute(path)).collect::<Result<Vec<_>, _>>()?;
        if peers.contains(&own) {
            return Err(LinkError::OwnPath { path: own });
        }
        let listener = Listener::bind(&own)?;
        let events = |errno: rustix::io::Errno| LinkError::Events { path: own.clone(), source: errno.into() };
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(events)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)
            .map_err(events)?;
        Ok(Self {
            listener,
            own,
            has_peers: !peers.is_empty(),
            peers,
            located: Vec::new(),
            slots: Vec::new(),
            epoll: Arc::new(epoll),
            nodes: NodeTable::default(),
            counters: LinkCounters::default(),
            buffer: vec![0; MAX_DATAGRAM],
            turn: 0,
            in_a_row: 0,
            asleep: false,
            calls: 0,
        })
    }

    /// Returns the socket's file, to be removed by a program that ends without dropping the link.
    #[must_use]
    pub fn file(&self) -> SocketFile {
        self.listener.file()
    }

    /// Returns what is readable when a peer wakes this side, or connects.
    pub(super) fn events(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.epoll)
    }

    /// Returns a descriptor that is readable when this link or `other` is.
    pub(super) fn events_with(&self, other: impl AsFd) -> Result<OwnedFd, LinkError> {
        let join = || {
            let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            epoll::add(&both, &self.epoll, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
            epoll::add(&both, other, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
            Ok(both)
        };
        join().map_err(|errno: rustix::io::Errno| LinkError::Events {
            path: self.own.clone(),
            source: errno.into(),
        })
    }

    /// Records the link of a node. Returns `false` if there are too many, or if the path is this link's own.
    pub(super) fn locate(&mut self, node: NodeId, path: &Path) -> bool {
        let Ok(path) = absolute(path) else { return false };
        if path == self.own {
            return false;
        }
        let peer = match self.peers.iter().position(|peer| *peer == path) {
            Some(peer) => peer,
            None if self.peers.len() < MAX_CONNECTIONS => {
                self.peers.push(path);
                self.peers.len() - 1
            }
            None => return false,
        };
        if !self.located.contains(&peer) {
            self.located.push(peer);
        }
        self.nodes.note(node, peer);
        true
    }

    /// Forgets the link of a node.
    pub(super) fn forget(&mut self, node: NodeId) {
        self.nodes.remove(node);
    }

    /// Returns whether the link of a node is known.
    pub(super) fn knows_node(&self, node: NodeId) -> bool {
        self.nodes.get(node).is_some()
    }

    /// Returns whether the link of the node for which `frame` is, is known.
    pub(super) fn knows_node_of(&self, frame: &[u8]) -> bool {
        wrapper::destination(frame).is_some_and(|node| self.knows_node(node))
    }

    /// Writes a frame to its node's ring, or to those of all peers. It is visible after [`flush`](Self::flush).
    pub(super) fn queue(&mut self, frame: &[u8]) {
        self.send([frame, &[], &[]], false);
    }

    /// Writes a frame that comes straight from a card to its node's ring, or to those of all peers. The first of its parts has the header.
    pub(super) fn queue_parts(&mut self, parts: [&[u8]; 3]) {
        self.send(parts, true);
    }

    fn send(&mut self, [head, payload, checksum]: [&[u8]; 3], is_intact: bool) {
        let length = head.len() + payload.len() + checksum.len();
        let Ok((mut wrapper, Nodes { destination, .. })) = wrapper::header_of(head, length) else {
            // Cards do not create such frames.
            self.counters.unsent += 1;
            return;
        };
        if is_intact {
            frame::mark_intact(&mut wrapper);
        }
        let record = [&wrapper, head, payload, checksum];
        if let Some(&peer) = self.nodes.get(destination) {
            let sent = self.write(peer, &record);
            self.counters.sent += u64::from(sent);
            self.counters.unsent += u64::from(!sent);
            return;
        }
        for peer in 0..self.peers.len() {
            let sent = self.write(peer, &record);
            self.counters.unsent += u64::from(!sent);
        }
        self.counters.flooded += 1;
    }

    /// Writes a record to the ring of `peer`, after connecting to it if necessary. Returns `false` if it is lost.
    fn write(&mut self, peer: usize, record: &[&[u8]]) -> bool {
        let Some(at) = self.connection_of(peer) else { return false };
        let Some(Slot::Open(connection)) = self.slots.get_mut(at) else { return false };
        match connection.writer.push(record) {
            Ok(written) => {
                let length: usize = record.iter().map(|part| part.len()).sum();
                self.counters.copied_bytes += if written { length as u64 } else { 0 };
                written
            }
            Err(_) => {
                self.refuse(at);
                false
            }
        }
    }

    /// Slot of a connection with `peer`.
    fn connection_of(&mut self, peer: usize) -> Option<usize> {
        let is_open = |slot: &Slot| matches!(slot, Slot::Open(open) if open.peer == peer && !open.ended);
        if let Some(at) = self.slots.iter().position(is_open) {
            return Some(at);
        }
        if !self.has_peers && !self.located.contains(&peer) {
            // It has connected before, and will again.
            return None;
        }
        let connection = Connection::open(&self.own, self.peers.get(peer)?, peer)?;
        self.insert(Slot::Open(connection))
    }

    /// Makes written frames visible, and wakes peers that sleep.
    pub(super) fn flush(&mut self) {
        for at in 0..self.slots.len() {
            let Some(Slot::Open(connection)) = self.slots.get_mut(at) else { continue };
            match connection.writer.publish() {
                Ok(false) => {}
                Ok(true) => connection.wake(),
                Err(_) => self.refuse(at),
            }
        }
    }

    /// Returns the next received frame. `is_local` returns whether a node is on this side.
    pub(super) fn receive(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<&[u8]> {
        match self.receive_shared(is_local)? {
            ReceivedFrame::Copied(frame) => Some(frame),
            ReceivedFrame::Shared(frame) => frame.into_copy(),
        }
    }

    /// As [`receive`](Self::receive); a long frame stays in the ring until the next call.
    pub(super) fn receive_shared(&mut self, is_local: impl Fn(NodeId) -> bool) -> Option<ReceivedFrame<'_>> {
        self.calls += 1;
        if self.asleep || self.calls >= CALLS_PER_LOOK {
            self.look();
        }
        for _ in 0..MAX_INVALID_FRAMES {
            let Received { slot, peer, record, nodes, is_shared } = self.read()?;
            let Some(source) = self.counters.note_nodes(nodes, &is_local) else { continue };
            self.nodes.note(source, peer);
            // Borrowed again: a borrow that one iteration returns would last for all iterations.
            if !is_shared {
                return self.buffer.get(WRAPPER_LENGTH..record.length()).map(ReceivedFrame::Copied);
            }
            let Some(Slot::Open(Connection { reader, .. })) = self.slots.get(slot) else { return None };
            let (buffer, counters) = (self.buffer.as_mut_slice(), &mut self.counters);
            return Some(ReceivedFrame::Shared(SharedFrame::new(reader, record, buffer, counters)));
        }
        None
    }

    /// Returns the next record of any connection, and copies it, or its start, to the buffer.
    fn read(&mut self) -> Option<Received> {
        // The slot of the last turn is tried twice: it may be the only one.
        for _ in 0..=self.slots.len() {
            if self.in_a_row < MAX_FRAMES_IN_A_ROW
                && let Some(Slot::Open(connection)) = self.slots.get_mut(self.turn)
            {
                match frame::read(&mut connection.reader, &mut self.buffer) {
                    Ok(Some((record, nodes, copied))) => {
                        self.in_a_row += 1;
                        self.counters.copied_bytes += copied as u64;
                        let (slot, peer, is_shared) = (self.turn, connection.peer, copied < record.length());
                        return Some(Received { slot, peer, record, nodes, is_shared });
                    }
                    Ok(None) if connection.ended => self.free(self.turn),
                    Ok(None) => {}
                    Err(_) => self.refuse(self.turn),
                }
            }
            self.in_a_row = 0;
            self.turn = if self.turn + 1 < self.slots.len() { self.turn + 1 } else { 0 };
        }
        None
    }

    /// Asks all peers to wake this side. Returns `false` if frames have arrived.
    pub(super) fn prepare_to_sleep(&mut self) -> bool {
        self.asleep = true;
        let mut idle = true;
        for at in 0..self.slots.len() {
            let Some(Slot::Open(connection)) = self.slots.get_mut(at) else { continue };
            // An ended connection without frames is removed by the next call that receives.
            let ended = connection.ended;
            match connection.reader.prepare_to_sleep() {
                Ok(is_empty) => idle &= is_empty && !ended,
                Err(_) => self.refuse(at),
            }
        }
        idle
    }

    /// Handles what has happened on the sockets.
    fn look(&mut self) {
        self.calls = 0;
        if std::mem::take(&mut self.asleep) {
            for slot in &self.slots {
                if let Slot::Open(connection) = slot {
                    // Cannot fail: the ring has this word.
                    let _ = connection.reader.awake();
                }
            }
        }
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut events = [none; 16];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.epoll, &mut events, Some(&now)).unwrap_or(0);
        for event in events.iter().take(count) {
            match event.data.u64() {
                LISTENER => self.accept(),
                at => self.handle(usize::try_from(at).unwrap_or(usize::MAX)),
            }
        }
    }

    /// Accepts a process that connects. Without a free slot or file descriptor it is refused or waits.
    fn accept(&mut self) {
        if let Ok(Some(socket)) = self.listener.accept()
            && let Some(at) = self.insert(Slot::Accepted(socket))
        {
            // Its first message was sent with the connection.
            self.handle(at);
        }
    }

    /// Handles what has arrived on the socket of slot `at`.
    fn handle(&mut self, at: usize) {
        match self.slots.get_mut(at) {
            None | Some(Slot::Free) => {}
            Some(Slot::Open(connection)) => {
                connection.take_wake_ups();
                if connection.ended {
                    // It stays readable: the slot needs no more events.
                    let _ = epoll::delete(&self.epoll, &connection.socket);
                }
            }
            Some(slot @ Slot::Accepted(_)) => {
                let Slot::Accepted(socket) = std::mem::replace(slot, Slot::Free) else { return };
                let opened = match greeting(socket.as_fd()) {
                    Greeting::Missing => {
                        *slot = Slot::Accepted(socket);
                        return;
                    }
                    Greeting::Invalid => None,
                    Greeting::Valid(path, memory) => {
                        let peer = self.peer(path);
                        self.counters.unknown_senders += u64::from(peer.is_none());
                        peer.and_then(|peer| Connection::accept(socket, peer, &memory))
                    }
                };
                if let (Some(connection), Some(slot)) = (opened, self.slots.get_mut(at)) {
                    *slot = Slot::Open(connection);
                }
            }
        }
    }

    /// Position of the peer at `path`; learns it if no peers were given.
    fn peer(&mut self, path: PathBuf) -> Option<usize> {
        let known = self.peers.iter().position(|peer| *peer == path);
        if known.is_some() || self.has_peers {
            return known;
        }
        if self.peers.len() < MAX_CONNECTIONS {
            self.peers.push(path);
            return Some(self.peers.len() - 1);
        }
        // In place of one that is not connected.
        let is_open =
            |at: usize| self.slots.iter().any(|slot| matches!(slot, Slot::Open(open) if open.peer == at));
        let at = (0..self.peers.len()).find(|at| !is_open(*at) && !self.located.contains(at))?;
        self.nodes.remove_address(&at);
        *self.peers.get_mut(at)? = path;
        Some(at)
    }

    /// Puts a connection into a free slot, or in place of one that has not sent anything. Without one, it is closed.
    fn insert(&mut self, slot: Slot) -> Option<usize> {
        let free = self.slots.iter().position(|slot| matches!(slot, Slot::Free));
        let silent = || self.slots.iter().position(|slot| matches!(slot, Slot::Accepted(_)));
        let at = match free {
            Some(at) => at,
            None if self.slots.len() < MAX_CONNECTIONS => self.slots.len(),
            None => silent()?,
        };
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&self.epoll, slot.socket()?, data, epoll::EventFlags::IN).ok()?;
        match self.slots.get_mut(at) {
            Some(free) => *free = slot,
            None => self.slots.push(slot),
        }
        Some(at)
    }

    /// Ends a connection whose peer has written an invalid value.
    fn refuse(&mut self, at: usize) {
        self.counters.malformed += 1;
        self.free(at);
    }

    fn free(&mut self, at: usize) {
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = Slot::Free;
        }
    }
}

#[cfg(test)]
mod tests;
