//! Reads: requests that make the other node write (docs/protocol.md 7.8).
//!
//! The requesting node repeats its request until it is answered, and then waits for the transfer that carries the
//! read's number. The serving node checks that a memory window permits the read, submits the transfer once, and gives
//! the same answer to a repeated request.
//!
//! The memory window to which the answer is written should exist for the read alone, and be closed when the read has
//! ended: all later packets are refused then.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use fpga_firmware::event::{Event, EventKind};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId};
use fpga_firmware::wire::{AnswerBody, Common, Flags, Message, MessageAnswer, NackReason, ReadRequest};
use fpga_registers::{CardAddr, quantity};

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
    /// Number of this node.
    pub node: NodeId,
    /// Incarnation of this node.
    pub incarnation: Incarnation,
    /// Maximum number of reads in progress, 1..=4096 (default 64).
    pub slots: u32,
    /// Maximum number of other nodes' reads that are recorded, 1..=65536 (default 4096).
    pub peers: u32,
    /// Time after which an unanswered request is repeated; it doubles each time (default 10 us).
    pub ask: Nanos,
    /// Time without an answer after which a request is given up (default 1 s).
    pub give_up: Nanos,
    /// Time without progress of the answer after which a read is given up (default 3 s).
    pub silence: Nanos,
    /// Time for which a served read is recorded (default 1.1 s).
    pub tombstone: Nanos,
}

impl ReadConfig {
    /// Returns the defaults above for `node` with `incarnation`.
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

/// Read request: `length` bytes from `source` at `node` to the local `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Node that has the data.
    pub node: NodeId,
    /// Address of the first byte at that node.
    pub source: CardAddr,
    /// Key of that node's memory window, which has to permit reading.
    pub source_key: u64,
    /// Address of the first local byte.
    pub base: CardAddr,
    /// Key of this node's memory window.
    pub key: u64,
    /// Length in bytes.
    pub length: u64,
}

/// Handle of a read at the requesting node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadTicket(MessageId);

/// Reason for which a read was not accepted, or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MessageReadError {
    /// Back-pressure: all reads are in use.
    #[error("all {capacity} read slots are in use: wait for a read to complete")]
    Full {
        /// Maximum number of reads in progress.
        capacity: u32,
    },
    /// The read has no bytes, its range leaves the address space, or its node is invalid.
    #[error(
        "a read of {length} from {source_address} at node {node} to {base} is not possible: name one node, and give at least one byte",
        length = quantity(*length, "byte"),
    )]
    Range {
        /// Node given.
        node: NodeId,
        /// Address of the first byte at that node.
        source_address: CardAddr,
        /// Address of the first local byte.
        base: CardAddr,
        /// Length in bytes.
        length: u64,
    },
    /// No answer to the request.
    #[error(
        "node {node} does not answer a read from {address} after {tries}: check the node and the path",
        tries = quantity(*tries, "request"),
    )]
    Unanswered {
        /// Node of the read.
        node: NodeId,
        /// Address of the first byte at that node.
        address: CardAddr,
        /// Requests sent.
        tries: u8,
    },
    /// The node refuses the read.
    #[error("node {node} refuses a read from {address} ({reason}): check address, length and key")]
    Refused {
        /// Node of the read.
        node: NodeId,
        /// Address of the first byte at that node.
        address: CardAddr,
        /// Reason of that node.
        reason: NackReason,
    },
    /// The node accepted the request and did not send all data.
    #[error("node {node} accepted a read from {address} and then sent nothing: read again")]
    Silent {
        /// Node of the read.
        node: NodeId,
        /// Address of the first byte at that node.
        address: CardAddr,
    },
}

/// Completion of a read: exactly one per accepted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Ticket of the read.
    pub ticket: ReadTicket,
    /// Result of the read.
    pub result: Result<(), MessageReadError>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    number: u32,
    read: Option<Read>,
    /// Whether the request has to be sent.
    due: bool,
    accepted: bool,
    /// Time of the next action.
    at: Nanos,
    last_heard: Nanos,
    tries: u8,
}

/// Reads of a node: those that it requests and those that it serves.
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
    /// Creates the table and allocates all memory that it will ever need.
    ///
    /// # Errors
    /// A size or a timer is out of range.
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

    /// Starts a read.
    ///
    /// # Errors
    /// [`MessageReadError::Full`], [`MessageReadError::Range`]; the table is unchanged.
    pub fn start(&mut self, now: Nanos, read: Read) -> Result<ReadTicket, MessageReadError> {
        let Read { node, source, base, length, .. } = read;
        let inside = |start: CardAddr| start.checked_add(length).is_some();
        if length == 0 || node == NodeId::ANY || !inside(source) || !inside(base) {
            return Err(MessageReadError::Range { node, source_address: source, base, length });
        }
        let full = MessageReadError::Full { capacity: self.config.slots };
        // An outcome that was not polled occupies its slot.
        if self.free.len() <= self.outcomes.len() {
            return Err(full);
        }
        let at = self.free.pop().ok_or(full)?;
        let slot = self.slots.get_mut(usize::from(at)).ok_or(full)?;
        // Each slot has numbers of 20 bits; 0 is reserved for "no read".
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

    fn finish(&mut self, at: u16, result: Result<(), MessageReadError>) {
        let Some(slot) = self.slots.get_mut(usize::from(at)) else { return };
        slot.read = None;
        slot.at = Nanos::MAX;
        let ticket = ReadTicket(MessageId::from_parts(at, slot.number));
        self.free.push(at);
        self.outcomes.push_back(ReadOutcome { ticket, result });
    }

    /// Processes a packet about reads; any other is ignored. `sender` sends the requested data, if `access` permits it.
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
                    // The request is repeated when the timer expires; "busy" is an answer.
                    AnswerBody::ReadRefused(NackReason::Busy) => slot.last_heard = now,
                    AnswerBody::ReadRefused(reason) => {
                        self.finish(
                            at,
                            Err(MessageReadError::Refused { node, address: read.source, reason }),
                        );
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
            // A delayed duplicate of an old request: its answer is not awaited any more.
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
        // Without a free slot the answer is dropped, as if lost in the network: the request is repeated.
        if self.answers.len() < self.answers.capacity() {
            let common = Common {
                source: self.config.node,
                destination: node,
                incarnation: self.config.incarnation,
                flags: Flags::NONE,
                path: 0,
            };
            let message = request.read;
            self.answers.push_back(MessageAnswer {
                common,
                message,
                peer_incarnation: incarnation,
                senders: 0,
                context: None,
                body,
            });
        }
    }

    /// Processes an event of the receiver; returns whether it completes a read.
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

    /// Processes expired timers. `receiver` reports whether an answer makes progress.
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
                    self.finish(at, Err(MessageReadError::Silent { node, address }));
                }
            } else if slot.last_heard.saturating_add(self.config.give_up) <= now {
                let tries = slot.tries;
                self.finish(at, Err(MessageReadError::Unanswered { node, address, tries }));
            } else {
                slot.due = true;
                slot.at = Nanos::MAX;
            }
        }
    }

    /// Returns the time of the next call of [`Self::handle_timeout`].
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Nanos> {
        self.slots.iter().filter(|slot| slot.read.is_some()).map(|slot| slot.at).min()?.as_timer()
    }

    /// Returns the next packet to send.
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
                // A repeated request takes another route.
                path: slot.tries - 1,
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

    /// Returns the next completed read.
    pub fn poll_outcome(&mut self) -> Option<ReadOutcome> {
        self.outcomes.pop_front()
    }
}
