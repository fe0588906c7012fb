//! Reads: requests that make the other side write (spec 3).
//!
//! The asking side repeats its request until it is answered, and then waits for the transfer that names the read. The side that is
//! asked checks that a memory window allows to read, submits the transfer once, and gives the same answer to a repeated
//! request.
//!
//! The window that the answer is written to should exist for the read alone, and be closed when the read has ended: whatever
//! comes later is refused then.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId};
use fpga_firmware::wire::{AnswerBody, Common, Flags, Message, MessageAnswer, NackReason, ReadRequest};
use fpga_registers::CardAddr;

use super::config::MessageConfigError;
use super::peers::{ContextKey, MessageState, PeerRecord, PeerTable};
use super::{Receiver, Sender};
use crate::free::FreeSlots;
use crate::receiver::AccessTable;
use crate::scheme::traits::{Header, OutgoingPacket};
use crate::sender::{Command, Notify};
use crate::time::Nanos;
use fpga_registers::cast::index;

/// Sizes and timers of [`Reads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadConfig {
    /// This node.
    pub node: NodeId,
    /// Its life.
    pub incarnation: Incarnation,
    /// Reads under way at once, 1..=4096 (default 64).
    pub slots: u32,
    /// Other nodes' reads that are remembered, 1..=65536 (default 4096).
    pub peers: u32,
    /// An unanswered request is repeated after this time, twice as long each time (default 10 us).
    pub ask: Nanos,
    /// A request is given up after so long without an answer (default 1 s).
    pub give_up: Nanos,
    /// A read whose answer makes no progress for so long is given up (default 3 s).
    pub silence: Nanos,
    /// A read that was served is remembered for so long (default 1.1 s).
    pub tombstone: Nanos,
}

impl ReadConfig {
    /// The defaults above for `node` in its life `incarnation`.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            slots: 64,
            peers: 4096,
            ask: Nanos::from_micros(10),
            give_up: Nanos::from_secs(1),
            silence: Nanos::from_secs(3),
            tombstone: Nanos::from_millis(1100),
        }
    }
}

/// `length` bytes from `source` at `node` to the local `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The node that has the data.
    pub node: NodeId,
    /// First byte there.
    pub source: CardAddr,
    /// Key of its memory window, which has to allow reading.
    pub source_key: u64,
    /// First byte here.
    pub base: CardAddr,
    /// Key of this node's memory window.
    pub key: u64,
    /// Bytes.
    pub length: u64,
}

/// Names a read at the node that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadTicket(MessageId);

/// Why a read was not taken, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Back-pressure.
    #[error("all {capacity} reads are under way: wait for one to end")]
    Full {
        /// Reads at once.
        capacity: u32,
    },
    /// Nothing to read, a range that leaves the address space, or no node.
    #[error(
        "a read of {length} bytes from {source_address} at node {node} to {base} cannot be: give one node and at least one byte"
    )]
    Range {
        /// The node.
        node: NodeId,
        /// First byte there.
        source_address: CardAddr,
        /// First byte here.
        base: CardAddr,
        /// Bytes.
        length: u64,
    },
    /// No answer to the request.
    #[error(
        "node {node} does not answer a read from {address}, asked {tries} times: check the node and the path"
    )]
    Unanswered {
        /// The node.
        node: NodeId,
        /// First byte there.
        address: CardAddr,
        /// Requests sent.
        tries: u8,
    },
    /// The node will not be read.
    #[error("node {node} refuses a read from {address} ({reason}): check address, length and key")]
    Refused {
        /// The node.
        node: NodeId,
        /// First byte there.
        address: CardAddr,
        /// Its reason.
        reason: NackReason,
    },
    /// The node took the request and sent too little.
    #[error("node {node} accepted a read from {address} and fell silent: read again")]
    Silent {
        /// The node.
        node: NodeId,
        /// First byte there.
        address: CardAddr,
    },
}

/// The end of a read: exactly one per accepted one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Which.
    pub ticket: ReadTicket,
    /// How it ended.
    pub result: Result<(), ReadError>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    read: Option<Read>,
    /// The request has to be sent.
    due: bool,
    accepted: bool,
    /// When something has to be done.
    at: Nanos,
    last_heard: Nanos,
    tries: u8,
}

/// A node's reads, those that it asks for and those that it serves.
#[derive(Clone, Debug)]
pub struct Reads {
    config: ReadConfig,
    slots: Box<[Slot]>,
    free: FreeSlots,
    peers: PeerTable,
    answers: VecDeque<MessageAnswer>,
    outcomes: VecDeque<ReadOutcome>,
}

impl Reads {
    /// Allocates everything that will ever be needed.
    ///
    /// # Errors
    /// A size or a timer out of range.
    pub fn new(config: ReadConfig) -> Result<Self, MessageConfigError> {
        for (name, found, most) in
            [("slots", config.slots, MessageId::CONTEXTS), ("peers", config.peers, 1 << 16)]
        {
            if found == 0 || found > most {
                return Err(MessageConfigError::Size { name, found, least: 1, most });
            }
        }
        if [config.ask, config.give_up, config.silence, config.tombstone].contains(&Nanos::ZERO) {
            return Err(MessageConfigError::Timeout);
        }
        let slot = Slot {
            number: 0,
            read: None,
            due: false,
            accepted: false,
            at: Nanos::MAX,
            last_heard: Nanos::ZERO,
            tries: 0,
        };
        Ok(Self {
            slots: alloc::vec![slot; index(config.slots)].into_boxed_slice(),
            free: FreeSlots::all(config.slots),
            peers: PeerTable::new(config.peers),
            answers: VecDeque::with_capacity(index(config.slots)),
            outcomes: VecDeque::with_capacity(index(config.slots)),
            config,
        })
    }

    /// Begins a read.
    ///
    /// # Errors
    /// [`ReadError::Full`], [`ReadError::Range`]; nothing has changed then.
    pub fn start(&mut self, now: Nanos, read: Read) -> Result<ReadTicket, ReadError> {
        let Read { node, source, base, length, .. } = read;
        let inside = |start: CardAddr| start.checked_add(length).is_some();
        if length == 0 || node == NodeId::ANY || !inside(source) || !inside(base) {
            return Err(ReadError::Range { node, source_address: source, base, length });
        }
        let full = ReadError::Full { capacity: self.config.slots };
        // An outcome that was not fetched keeps its place.
        if self.free.len() <= self.outcomes.len() {
            return Err(full);
        }
        let at = self.free.pop().ok_or(full)?;
        let slot = self.slots.get_mut(usize::from(at)).ok_or(full)?;
        // 20 bits of number for each of the slots; 0 would name no read.
        slot.number = (slot.number + 1) % (1 << 20);
        slot.number = slot.number.max(1);
        (slot.read, slot.due, slot.accepted, slot.tries) = (Some(read), true, false, 0);
        (slot.at, slot.last_heard) = (Nanos::MAX, now);
        Ok(ReadTicket(MessageId::from_parts(at, slot.number)))
    }

    fn slot_of(&mut self, read: MessageId, node: NodeId) -> Option<(u16, &mut Slot, Read)> {
        let slot = self.slots.get_mut(usize::from(read.context()))?;
        let it = slot.read.filter(|it| it.node == node && slot.number == read.number())?;
        Some((read.context(), slot, it))
    }

    fn finish(&mut self, at: u16, result: Result<(), ReadError>) {
        let Some(slot) = self.slots.get_mut(usize::from(at)) else { return };
        slot.read = None;
        slot.at = Nanos::MAX;
        let ticket = ReadTicket(MessageId::from_parts(at, slot.number));
        self.free.push(at);
        self.outcomes.push_back(ReadOutcome { ticket, result });
    }

    /// Takes a packet that is about reads; any other is ignored. What is asked for is sent by `sender`, if `access` allows it.
    pub fn handle_packet(&mut self, now: Nanos, header: &Header, access: &AccessTable, sender: &mut Sender) {
        match header {
            Header::Message(Message::Read(request)) if request.common.destination == self.config.node => {
                self.serve(now, request, access, sender);
            }
            Header::Message(Message::Answer(answer))
                if answer.peer_incarnation == self.config.incarnation =>
            {
                let (node, silence) = (answer.common.source, self.config.silence);
                let Some((at, slot, read)) = self.slot_of(answer.message, node) else { return };
                match answer.body {
                    AnswerBody::ReadAccepted if !slot.accepted => {
                        (slot.accepted, slot.due) = (true, false);
                        (slot.last_heard, slot.at) = (now, now.saturating_add(silence));
                    }
                    // Asked again when the timer runs out; busy is an answer.
                    AnswerBody::ReadRefused(NackReason::Busy) => slot.last_heard = now,
                    AnswerBody::ReadRefused(reason) => {
                        self.finish(at, Err(ReadError::Refused { node, address: read.source, reason }));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn serve(&mut self, now: Nanos, request: &ReadRequest, access: &AccessTable, sender: &mut Sender) {
        let Common { source: node, incarnation, .. } = request.common;
        let key = ContextKey { node, incarnation, context: request.read.context() };
        let known = self.peers.find(&key);
        let body = match known.and_then(|at| self.peers.get_mut(at)) {
            Some(peer) if peer.message == request.read => {
                peer.last_heard = now;
                AnswerBody::ReadAccepted
            }
            // An old request that has wandered: nobody waits for its answer.
            Some(peer) if !peer.message.is_older_than(request.read, 20) => return,
            _ => {
                let rested = now.checked_sub(self.config.tombstone).unwrap_or(Nanos::ZERO);
                let place = known.or_else(|| self.peers.find_free(&key, rested));
                let command = Command {
                    source: request.source,
                    node,
                    destination: request.base,
                    length: request.length,
                    key: request.key,
                    notify: Notify::Receiver,
                    deadline: None,
                    priority: 0,
                };
                if !access.allows_read(node, request.source_key, request.source, request.length) {
                    AnswerBody::ReadRefused(NackReason::Violation)
                } else if let Some(place) = place
                    && sender.submit_for_read(now, command, request.read.get()).is_ok()
                {
                    let peer =
                        PeerRecord { key, message: request.read, state: MessageState::Done, last_heard: now };
                    self.peers.put(place, peer);
                    AnswerBody::ReadAccepted
                } else {
                    AnswerBody::ReadRefused(NackReason::Busy)
                }
            }
        };
        // Without room it is as if the network had lost the answer: the request comes again.
        if self.answers.len() < self.answers.capacity() {
            let common = Common {
                source: self.config.node,
                destination: node,
                incarnation: self.config.incarnation,
                flags: Flags::NONE,
            };
            let message = request.read;
            self.answers.push_back(MessageAnswer {
                common,
                message,
                peer_incarnation: incarnation,
                context: None,
                body,
            });
        }
    }

    /// Takes an event of the receiving side: whether it is the end of a read.
    pub fn handle_event(&mut self, event: &Event) -> bool {
        if event.kind != EventKind::Notice || event.count == 0 {
            return false;
        }
        let Some((at, _, read)) = self.slot_of(MessageId::new(event.count), event.node) else { return false };
        let whole = read.base == event.address && read.length == event.length;
        if whole {
            self.finish(at, Ok(()));
        }
        whole
    }

    /// Time has passed. `receiver` knows whether an answer makes progress.
    pub fn handle_timeout(&mut self, now: Nanos, receiver: &Receiver) {
        for at in (0..=u16::MAX).take(self.slots.len()) {
            let Some(slot) = self.slots.get_mut(usize::from(at)) else { continue };
            let (Some(Read { node, source: address, .. }), true) = (slot.read, slot.at <= now) else {
                continue;
            };
            if slot.accepted {
                let number = MessageId::from_parts(at, slot.number).get();
                let heard =
                    receiver.last_answer_time(node, number).unwrap_or(slot.last_heard).max(slot.last_heard);
                slot.last_heard = heard;
                slot.at = heard.saturating_add(self.config.silence);
                if slot.at <= now {
                    self.finish(at, Err(ReadError::Silent { node, address }));
                }
            } else if slot.last_heard.saturating_add(self.config.give_up) <= now {
                let tries = slot.tries;
                self.finish(at, Err(ReadError::Unanswered { node, address, tries }));
            } else {
                slot.due = true;
                slot.at = Nanos::MAX;
            }
        }
    }

    /// When [`Self::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.slots.iter().filter(|slot| slot.read.is_some()).map(|slot| slot.at).min()?.as_timer()
    }

    /// The next packet to send.
    pub fn poll_packet(&mut self, now: Nanos) -> Option<OutgoingPacket> {
        if let Some(answer) = self.answers.pop_front() {
            let header = Header::Message(Message::Answer(answer));
            return Some(OutgoingPacket { header, source: CardAddr::new(0), payload: 0 });
        }
        let (at, slot) = (0_u16..).zip(&mut *self.slots).find(|(_, slot)| slot.due && slot.read.is_some())?;
        let read = slot.read?;
        slot.due = false;
        slot.tries = slot.tries.saturating_add(1);
        slot.at = now.saturating_add(self.config.ask.saturating_mul(1 << (slot.tries - 1).min(8)));
        let request = ReadRequest {
            common: Common {
                source: self.config.node,
                destination: read.node,
                incarnation: self.config.incarnation,
                flags: Flags::NONE,
            },
            read: MessageId::from_parts(at, slot.number),
            source: read.source,
            source_key: read.source_key,
            base: read.base,
            key: read.key,
            length: read.length,
        };
        let header = Header::Message(Message::Read(request));
        Some(OutgoingPacket { header, source: CardAddr::new(0), payload: 0 })
    }

    /// The next read that has ended.
    pub fn poll_outcome(&mut self) -> Option<ReadOutcome> {
        self.outcomes.pop_front()
    }
}
