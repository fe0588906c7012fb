//! Sender of the message schemes: takes transfers and answers, produces packets and completions.
//!
//! This file is longer than most: the selection of the next packet and the effects of answers on it are one state
//! machine.

mod finish;
mod paths;
mod views;

use alloc::boxed::Box;

use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, MessageId, NodeId, TransferId};
use fpga_firmware::wire::{Announcement, AnswerBody, Common, Flags, Message, MessageHeader, MessageRequest};
use fpga_registers::CardAddr;

use super::config::{MessageConfigError, SenderConfig};
use super::transfers::{Transfers, messages_of};
use crate::feedback::congestion::Permit;
use crate::feedback::flow::{FULL, FlowConfig, FlowControl};
use crate::list::{List, ListLinks};
use crate::scheme::MessageSender;
use crate::scheme::any::SchemeConfig;
use crate::scheme::bits::PacketSet;
use crate::scheme::message_scheme::{MessageScheme, ReusableSender};
use crate::scheme::traits::{Header, OutgoingPacket, SchemeSender};
use crate::sender::{Command, CommandCompletion, CommandError, Notify, SendFailure, SendTicket};
use crate::state::StateTable;
use crate::time::Nanos;
use crate::timers::Timers;
use fpga_registers::cast::{index, low16};
use paths::{MessageRoutes, Paths};
pub use views::{ContextView, Progress, SenderCounters};

/// Number of parts of a context's message numbers, each with a time stamp.
const PARTS: usize = 8;
/// Maximum number of doublings of the time after which a request is repeated.
const MAX_DOUBLINGS: u8 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Idle,
    /// The request has to be sent.
    RequestDue,
    /// The request was sent and is repeated at this time.
    RequestSent(Nanos),
    /// The receiver had no free context; the message begins again at this time.
    BackedOff(Nanos),
    Sending,
}

#[derive(Clone, Debug)]
struct Context<E> {
    stage: Stage,
    node: NodeId,
    /// Number of the last message.
    number: u32,
    /// Time at which the last number of each part was used.
    left: [Nanos; PARTS],
    /// Index of the path to the node.
    path: u32,
    /// Path identifiers of the message.
    routes: MessageRoutes,
    /// Context of the receiver, once it is known.
    peer_context: Option<u32>,
    transfer: u32,
    source: CardAddr,
    announcement: Announcement,
    /// Number of packets of the message.
    count: u32,
    /// Next packet that was never sent.
    fresh: u32,
    sent: u64,
    /// Time at which the last packet was sent.
    last_sent: Nanos,
    /// Packets in flight, as its path has them.
    in_flight: u32,
    last_heard: Nanos,
    /// Consecutive requests, or starts of the message.
    tries: u8,
    /// Time of the first request.
    requested: Nanos,
    end: E,
}

/// Message sender of a context for a scheme that its current message does not use.
#[derive(Clone, Debug)]
struct SpareSender<E> {
    end: E,
    /// Destination of its last message.
    node: NodeId,
}

/// Sender of one node; see [the module](super).
#[derive(Clone, Debug)]
pub struct Sender<R: MessageScheme = SchemeConfig> {
    config: SenderConfig<R>,
    incarnation: Incarnation,
    transfers: Transfers,
    contexts: Box<[Context<R::Sender>]>,
    /// One message sender per context and additional scheme, ordered by context.
    spares: Box<[SpareSender<R::Sender>]>,
    links: ListLinks,
    idle: List,
    paths: Paths,
    /// Timers of the contexts, followed by the deadlines of the transfers.
    timers: Timers,
    /// Contexts that may have a packet to send.
    ready: PacketSet,
    /// Like `ready`, for receivers with a lowered rate: they are served after all others.
    low: PacketSet,
    /// Those of `low` that wait until their next packet may be sent; `pace`: the earliest of these times.
    paced: PacketSet,
    pace: Nanos,
    /// Contexts that the congestion windows of their paths hold back; `open`: time of the next attempt, and `opened`: whether
    /// an answer may have opened one of them.
    held: PacketSet,
    open: Nanos,
    opened: bool,
    flow: Option<FlowControl>,
    /// Transfers with progress to report.
    news: PacketSet,
    turn: u32,
    /// Whether no message can begin until one ends, or until [`Self::wake`].
    blocked: bool,
    /// Time at which the reuse delay of the first idle context ends.
    wake: Nanos,
    counters: SenderCounters,
}

impl<R: MessageScheme> Sender<R> {
    /// Creates a sender and allocates all memory that it will ever need. `incarnation` is later for each
    /// run.
    ///
    /// # Errors
    /// See [`SenderConfig::validate`].
    pub fn new(config: SenderConfig<R>, incarnation: Incarnation) -> Result<Self, MessageConfigError> {
        config.validate()?;
        let mut links = ListLinks::new(config.contexts);
        let mut idle = List::EMPTY;
        for slot in 0..config.contexts {
            idle.push_back(&mut links, slot);
        }
        let blank = || Context {
            stage: Stage::Idle,
            node: NodeId::ANY,
            path: 0,
            routes: MessageRoutes::default(),
            number: 0,
            left: [Nanos::ZERO; PARTS],
            peer_context: None,
            transfer: 0,
            source: CardAddr::new(0),
            announcement: Announcement {
                length: 0,
                base: CardAddr::new(0),
                key: 0,
                transfer_base: CardAddr::new(0),
                transfer_length: 0,
                transfer: TransferId::new(0),
                read: 0,
                left: 0,
            },
            count: 0,
            fresh: 0,
            sent: 0,
            last_sent: Nanos::ZERO,
            in_flight: 0,
            last_heard: Nanos::ZERO,
            tries: 0,
            requested: Nanos::ZERO,
            end: config.rules.sending(),
        };
        let beside = config.others.without(config.rules.scheme());
        let spare = |rules: R| SpareSender { end: rules.sending(), node: NodeId::ANY };
        let spares = (0..config.contexts).flat_map(|_| beside.clone().map(spare)).collect();
        Ok(Self {
            incarnation,
            spares,
            transfers: Transfers::new(config.transfers),
            contexts: (0..config.contexts).map(|_| blank()).collect(),
            links,
            idle,
            paths: Paths::new(config.contexts, config.paths, config.congestion),
            timers: Timers::compact(config.contexts + config.transfers),
            ready: PacketSet::new(config.contexts),
            low: PacketSet::new(config.contexts),
            paced: PacketSet::new(config.contexts),
            pace: Nanos::MAX,
            held: PacketSet::new(config.contexts),
            open: Nanos::MAX,
            opened: false,
            flow: None,
            news: PacketSet::new(config.transfers),
            turn: 0,
            blocked: false,
            wake: Nanos::MAX,
            counters: SenderCounters::default(),
            config,
        })
    }

    /// Returns the configuration.
    #[must_use]
    pub const fn config(&self) -> &SenderConfig<R> {
        &self.config
    }

    /// Returns the running counts.
    #[must_use]
    pub const fn counters(&self) -> &SenderCounters {
        &self.counters
    }

    /// Returns the tables and the bytes of state per entry, without the heap memory of the message senders.
    #[must_use]
    pub fn state(&self) -> [StateTable; 2] {
        [
            StateTable::new("contexts", self.config.contexts.into(), size_of::<Context<R::Sender>>()),
            StateTable::new(
                "transfers",
                self.config.transfers.into(),
                size_of::<super::transfers::Transfer>(),
            ),
        ]
    }

    /// Enables flow control by link feedback ([`crate::feedback`]). Messages of schemes whose answers give no delays
    /// are not controlled: a lowered rate rises again by measured delays.
    pub fn control_flow(&mut self, config: FlowConfig) {
        self.flow = Some(FlowControl::new(config, self.config.node, self.incarnation));
    }

    /// Returns the rates towards receivers, if they are controlled.
    #[must_use]
    pub const fn flow(&self) -> Option<&FlowControl> {
        self.flow.as_ref()
    }

    /// Like [`Self::flow`], for a caller that reports the changes of rates.
    pub const fn flow_mut(&mut self) -> Option<&mut FlowControl> {
        self.flow.as_mut()
    }

    /// Releases the contexts whose next packet may be sent now.
    fn release_paced(&mut self, now: Nanos) {
        if self.pace <= now {
            self.pace = Nanos::MAX;
            while let Some(slot) = self.paced.pop() {
                self.low.insert(slot);
            }
        }
    }

    /// Moves the contexts whose paths may have opened back to those that may send.
    fn release_held(&mut self, now: Nanos) {
        if self.opened || self.open <= now {
            (self.opened, self.open) = (false, Nanos::MAX);
            while let Some(slot) = self.held.pop() {
                self.ready.insert(slot);
            }
        }
    }

    /// Whether the congestion window of its path holds a context back, which then waits in `held`.
    fn is_held(&mut self, now: Nanos, slot: u32) -> bool {
        let context = &self.contexts[index(slot)];
        if context.stage != Stage::Sending {
            return false;
        }
        match self.paths.permit(now, context.path) {
            Permit::Now => return false,
            Permit::At(at) => self.open = self.open.min(at),
            Permit::Closed => {}
        }
        self.held.insert(slot);
        true
    }

    /// Updates the number of packets in flight on the path of a context.
    fn recount(&mut self, slot: u32) {
        let context = &mut self.contexts[index(slot)];
        let sends = context.stage == Stage::Sending && !context.end.is_done();
        let current = if sends { context.end.in_flight().map_or(0, |(out, _)| out) } else { 0 };
        let before = core::mem::replace(&mut context.in_flight, current);
        self.opened |= current < before && self.held.count() > 0;
        self.paths.recount(context.path, before, current);
    }

    /// Returns the next packet for a receiver with a lowered rate, if it is due.
    fn poll_paced(&mut self, now: Nanos) -> Option<OutgoingPacket> {
        while let Some(slot) = self.low.next_from(self.turn) {
            let node = self.contexts[index(slot)].node;
            if let Some(at) = self.flow.as_ref().and_then(|flow| flow.release_time(now, node)) {
                self.low.remove(slot);
                self.paced.insert(slot);
                self.pace = self.pace.min(at);
                continue;
            }
            if self.is_held(now, slot) {
                self.low.remove(slot);
                continue;
            }
            if let Some(departure) = self.packet_of(now, slot) {
                self.turn = slot + 1;
                let bytes = u64::from(departure.payload) + departure.header.length() as u64;
                if let Some(flow) = &mut self.flow {
                    flow.sent(now, node, bytes);
                }
                return Some(departure);
            }
            self.low.remove(slot);
            self.watch(slot);
        }
        None
    }

    /// Sets this node's number and incarnation, while no transfer is in progress.
    pub const fn set_identity(&mut self, node: NodeId, incarnation: Incarnation) {
        self.config.node = node;
        self.incarnation = incarnation;
        if let Some(flow) = &mut self.flow {
            flow.set_identity(node, incarnation);
        }
    }

    /// Sets the give-up time, and the time for which half of a context's numbers last ([`SenderConfig::rest`]). They
    /// apply to answers received and messages started from now on.
    pub const fn set_times(&mut self, give_up: Nanos, rest: Nanos) {
        (self.config.give_up, self.config.rest) = (give_up, rest);
    }

    /// Returns the number of contexts in use.
    #[must_use]
    pub const fn live(&self) -> u32 {
        self.config.contexts - self.idle.len()
    }

    /// Returns the number of submitted transfers whose completion was not polled.
    #[must_use]
    pub fn queued(&self) -> u32 {
        self.transfers.in_use()
    }

    /// Returns the content of context `slot`; `None` if it is idle.
    #[must_use]
    pub fn context(&self, slot: u32, now: Nanos) -> Option<ContextView> {
        let context = self.contexts.get(index(slot)).filter(|context| context.stage != Stage::Idle)?;
        Some(ContextView {
            scheme: context.end.scheme(),
            asking: matches!(context.stage, Stage::RequestDue | Stage::RequestSent(_)),
            held: matches!(context.stage, Stage::BackedOff(_)),
            node: context.node,
            message: MessageId::from_parts(low16(slot), context.number),
            peer_limit: context.peer_context,
            ticket: self.transfers.ticket(context.transfer),
            announcement: context.announcement,
            packets: context.count,
            fresh: context.fresh,
            base: context.end.base(),
            sent: context.sent,
            tries: context.tries,
            age: now.saturating_sub(context.last_heard),
        })
    }

    /// Whether [`Self::poll_progress`] may return a value.
    #[must_use]
    pub const fn has_progress(&self) -> bool {
        self.news.count() > 0
    }

    /// Returns the progress of a transfer of which further messages, but not all, are complete since the last call.
    pub fn poll_progress(&mut self) -> Option<Progress> {
        while let Some(slot) = self.news.pop() {
            let ticket = self.transfers.ticket(slot);
            if self.transfers.find(ticket).is_none() {
                continue;
            }
            let record = self.transfers.get(slot);
            return Some(Progress {
                ticket,
                transfer: record.id,
                node: record.command.node,
                messages: record.done,
                acknowledged: record.acknowledged,
                packets: record.packets,
                retransmits: record.retransmits,
            });
        }
        None
    }

    /// Whether no transfer is queued, in progress or waiting to be polled.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.transfers.all_free()
    }

    /// Like [`SchemeSender::submit`], for a transfer that answers a read.
    ///
    /// # Errors
    /// See [`CommandError`]; the sender is unchanged.
    pub fn submit_for_read(
        &mut self,
        now: Nanos,
        command: Command,
        read: u32,
    ) -> Result<SendTicket, CommandError> {
        self.add(now, command, None, read)
    }

    /// Like [`SchemeSender::submit`], with a scheme other than the default.
    ///
    /// # Errors
    /// See [`CommandError`], including [`CommandError::Scheme`]; the sender is unchanged.
    pub fn submit_by(
        &mut self,
        now: Nanos,
        command: Command,
        scheme: Scheme,
    ) -> Result<SendTicket, CommandError> {
        let default = self.config.rules.scheme();
        if scheme != default && !self.config.others.without(default).any(|rules| rules.scheme() == scheme) {
            return Err(CommandError::Scheme { scheme });
        }
        self.add(now, command, Some(scheme), 0)
    }

    fn add(
        &mut self,
        now: Nanos,
        command: Command,
        scheme: Option<Scheme>,
        read: u32,
    ) -> Result<SendTicket, CommandError> {
        let span = u64::from(self.config.message_packets) * u64::from(self.config.packet_size());
        let messages = messages_of(&command, span)?;
        let full = CommandError::Full { capacity: self.config.transfers };
        let ticket = self.transfers.add(now, command, scheme, read, messages).ok_or(full)?;
        if messages == 0 {
            self.transfers.finish(now, ticket.slot, Ok(()));
        } else if let Some(deadline) = command.deadline {
            self.timers.start(self.config.contexts + ticket.slot, deadline);
        }
        self.blocked = false;
        Ok(ticket)
    }

    /// Cancels a transfer, which completes with an error; returns whether it was live.
    pub fn cancel(&mut self, now: Nanos, ticket: SendTicket) -> bool {
        let Some(slot) = self.transfers.find(ticket) else { return false };
        let transfer = self.transfers.get(slot);
        let Command { node, destination: address, .. } = transfer.command;
        let error = SendFailure::Cancelled { node, address, acknowledged: transfer.acknowledged };
        self.fail(now, slot, error);
        true
    }

    /// Starts messages while contexts are free.
    fn begin(&mut self, now: Nanos) {
        self.wake = Nanos::MAX;
        while !self.blocked {
            let Some(slot) = self.idle.head() else { break };
            let rested = self.reusable_at(slot);
            if rested > now {
                self.wake = rested;
                return;
            }
            let (contexts, share) = (&self.contexts, self.config.share());
            let mut full = NodeId::ANY;
            let records = &self.transfers;
            let found = records.first(|transfer| {
                let node = transfer.command.node;
                if node == full || !transfer.may_begin() {
                    return false;
                }
                if transfer.needs_slot() {
                    // Half of the share is for transfers that do not need a host that is not ready.
                    let waits = |context: &&Context<R::Sender>| {
                        context.stage != Stage::Idle
                            && context.node == node
                            && records.get(context.transfer).not_ready.is_some()
                    };
                    let waiting = contexts.iter().filter(waits).count();
                    if waiting != 0 && waiting >= index(share / 2) {
                        return false;
                    }
                }
                let busy =
                    |context: &&Context<R::Sender>| context.stage != Stage::Idle && context.node == node;
                if contexts.iter().filter(busy).count() >= index(share) {
                    full = node;
                }
                node != full
            });
            let Some(transfer) = found else { break };
            self.idle.remove(&mut self.links, slot);
            self.begin_message(now, slot, transfer);
        }
        self.blocked = true;
    }

    /// Returns the part of the numbers that contains `number`.
    fn part(&self, number: u32) -> usize {
        index(number >> (self.config.number_bits - 3)) % PARTS
    }

    fn next_number(&self, number: u32) -> u32 {
        number.wrapping_add(1) & ((1 << self.config.number_bits) - 1)
    }

    /// Returns the time from which the context may use its next number. Where that number enters another eighth of the
    /// numbers, no receiver may have a record of the eighth that lies half the range before, so that all recorded
    /// numbers lie within half the range.
    fn reusable_at(&self, slot: u32) -> Nanos {
        let context = &self.contexts[index(slot)];
        let (now, next) = (self.part(context.number), self.part(self.next_number(context.number)));
        if now == next {
            return Nanos::ZERO;
        }
        let left = context.left[(next + PARTS / 2) % PARTS];
        if left == Nanos::ZERO { Nanos::ZERO } else { left.saturating_add(self.config.rest) }
    }

    /// Switches a context to `scheme`; returns the destination of its last message with that scheme. The message
    /// senders are swapped, so that each keeps its statistics, and nothing is allocated.
    fn take_end(&mut self, slot: u32, scheme: Scheme) -> NodeId {
        let context = &self.contexts[index(slot)];
        if context.end.scheme() == scheme {
            return context.node;
        }
        let each = self.spares.len() / self.contexts.len().max(1);
        let own = self.spares.iter_mut().skip(index(slot) * each).take(each);
        let context = &mut self.contexts[index(slot)];
        for spare in own {
            if spare.end.scheme() == scheme {
                core::mem::swap(&mut spare.end, &mut context.end);
                core::mem::swap(&mut spare.node, &mut context.node);
                break;
            }
        }
        context.node
    }

    fn begin_message(&mut self, now: Nanos, slot: u32, transfer: u32) {
        let number = self.next_number(self.contexts[index(slot)].number);
        let size = self.config.packet_size();
        let span = u64::from(self.config.message_packets) * u64::from(size);
        let record = self.transfers.get(transfer);
        let (command, scheme) = (record.command, record.scheme.unwrap_or(self.config.rules.scheme()));
        let offset = u64::from(record.begun) * span;
        let length = span.min(command.length - offset);
        // Below 2^24: the packets of a message times their size.
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let announcement = Announcement {
            length,
            base: CardAddr::new(command.destination.get().wrapping_add(offset)),
            key: command.key,
            transfer_base: command.destination,
            transfer_length: command.length,
            transfer: record.id,
            read: record.read,
            left: record.messages - record.done - 1,
        };
        self.transfers.begin_message(transfer);
        let new_node = self.take_end(slot, scheme) != command.node;
        let path = self.paths.take(command.node);
        let trip = self.paths.trip(path);
        let end = &self.contexts[index(slot)].end;
        let (is_single, answers_each) = (end.uses_one_route(), end.in_flight().is_some());
        let routes = self.paths.begin_routes(path, length.div_ceil(size), is_single, answers_each);
        let context = &mut self.contexts[index(slot)];
        let asks = context.end.requests_context();
        context.stage = if asks { Stage::RequestDue } else { Stage::Sending };
        context.node = command.node;
        context.path = path;
        context.routes = routes;
        context.number = number;
        context.peer_context = None;
        context.transfer = transfer;
        context.source = CardAddr::new(command.source.get().wrapping_add(offset));
        context.announcement = announcement;
        context.count = length.div_ceil(size);
        context.fresh = 0;
        context.sent = 0;
        context.in_flight = 0;
        context.last_heard = now;
        context.tries = 0;
        context.end.begin(now, context.count, new_node, &trip);
        self.touch(slot);
    }

    /// Updates a context after a change: it may have a packet to send, and its timer may change.
    fn touch(&mut self, slot: u32) {
        self.ready.insert(slot);
        self.watch(slot);
    }

    fn watch(&mut self, slot: u32) {
        let context = &self.contexts[index(slot)];
        let own = match context.stage {
            Stage::Idle => {
                self.timers.stop(slot);
                return;
            }
            Stage::RequestDue => Nanos::MAX,
            Stage::RequestSent(at) | Stage::BackedOff(at) => at,
            Stage::Sending => context.end.poll_timeout().unwrap_or(Nanos::MAX),
        };
        let give_up = context.last_heard.saturating_add(self.config.give_up);
        self.timers.start(slot, own.min(give_up));
    }

    fn common(&self, node: NodeId) -> Common {
        Common {
            source: self.config.node,
            destination: node,
            incarnation: self.incarnation,
            flags: Flags::NONE,
            path: 0,
        }
    }

    fn packet_of(&mut self, now: Nanos, slot: u32) -> Option<OutgoingPacket> {
        let common = self.common(self.contexts[index(slot)].node);
        let notify = self.transfers.get(self.contexts[index(slot)].transfer).command.notify;
        let flags = if notify == Notify::None { Flags::NO_NOTICE } else { Flags::NONE };
        let packet_size_log2 = self.config.packet_size_log2;
        let size = self.config.packet_size();
        let context = &mut self.contexts[index(slot)];
        let (message, scheme) = (MessageId::from_parts(low16(slot), context.number), context.end.scheme());
        match context.stage {
            Stage::RequestDue => {
                context.tries = context.tries.saturating_add(1);
                let ask = self.paths.trip(context.path).usual().unwrap_or(self.config.ask);
                let wait = ask.saturating_mul(1 << (context.tries - 1).min(MAX_DOUBLINGS));
                if context.tries == 1 {
                    context.requested = now;
                }
                context.stage = Stage::RequestSent(now.saturating_add(wait));
                let announcement = context.announcement;
                let again = context.tries > 1;
                let path = self.paths.request_route(now, context.path, &mut context.routes, again);
                let common = Common { flags, path, ..common };
                let request = MessageRequest { common, message, scheme, packet_size_log2, announcement };
                self.counters.requests += 1;
                let source = context.source;
                self.watch(slot);
                Some(OutgoingPacket {
                    header: Header::Message(Message::Request(request)),
                    source,
                    payload: 0,
                })
            }
            Stage::Sending => {
                let packet = context.end.poll_packet(now)?;
                let route = self.paths.choose_route(now, context.path, &mut context.routes, packet.index);
                let offset = packet.index * size;
                let announcement = context.peer_context.is_none().then_some(context.announcement);
                let flags = if announcement.is_some() { flags } else { Flags::NONE };
                let header = MessageHeader {
                    common: Common { flags, path: route, ..common },
                    message,
                    context: context.peer_context,
                    sequence: packet.sequence,
                    index: low16(packet.index),
                    tail: packet.tail,
                    scheme,
                    packet_size_log2,
                    announcement,
                };
                let departure = OutgoingPacket {
                    header: Header::Message(Message::Data(header)),
                    source: CardAddr::new(context.source.get().wrapping_add(offset.into())),
                    payload: size.min(context.announcement.length - offset),
                };
                context.sent += 1;
                context.last_sent = now;
                let transfer = self.transfers.get_mut(context.transfer);
                if packet.index == context.fresh {
                    context.fresh += 1;
                    transfer.packets += 1;
                    self.counters.packets += 1;
                } else {
                    transfer.retransmits += 1;
                    self.counters.retransmits += 1;
                }
                let path = context.path;
                let acknowledges = context.end.in_flight().is_some();
                self.recount(slot);
                if acknowledges {
                    self.paths.note_sent(now, path);
                }
                self.watch(slot);
                Some(departure)
            }
            _ => None,
        }
    }
}

impl<R: MessageScheme> SchemeSender for Sender<R> {
    fn submit(&mut self, now: Nanos, command: Command) -> Result<SendTicket, CommandError> {
        self.submit_for_read(now, command, 0)
    }

    fn handle_packet(&mut self, now: Nanos, header: &Header) {
        if let Header::Message(Message::Answer(answer)) = header
            && !matches!(answer.body, AnswerBody::ReadAccepted | AnswerBody::ReadRefused(_))
        {
            self.answer(now, answer);
        }
        if let (Header::Link(packet), Some(flow)) = (header, &mut self.flow)
            && packet.common.destination == self.config.node
        {
            let paths = packet.word.receiver().and_then(|node| self.paths.routes_to(node));
            flow.handle(now, packet, paths);
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        while let Some(timer) = self.timers.expired(now) {
            match timer.checked_sub(self.config.contexts) {
                Some(transfer) => self.deadline(now, transfer),
                None => self.context_timeout(now, timer),
            }
        }
        if self.wake <= now {
            self.blocked = false;
        }
        if let Some(flow) = &mut self.flow {
            flow.handle_timeout(now);
        }
        self.release_paced(now);
        self.opened |= self.open <= now;
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let timers = self.timers.next().unwrap_or(Nanos::MAX);
        let flow = self.flow.as_ref().and_then(FlowControl::poll_timeout).unwrap_or(Nanos::MAX);
        timers.min(self.wake).min(flow).min(self.pace).min(self.open).as_timer()
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<OutgoingPacket> {
        if !self.blocked && self.wake > now {
            self.begin(now);
        } else if self.wake <= now {
            self.blocked = false;
            self.begin(now);
        }
        if let Some(packet) = self.flow.as_mut().and_then(FlowControl::poll_feedback) {
            let header = Header::Link(packet);
            return Some(OutgoingPacket { header, source: CardAddr::new(0), payload: 0 });
        }
        self.release_held(now);
        while let Some(slot) = self.ready.next_from(self.turn) {
            let context = &self.contexts[index(slot)];
            if let Some(flow) = &self.flow
                && context.end.gives_delays()
                && flow.rate(context.node) < FULL
            {
                self.ready.remove(slot);
                self.low.insert(slot);
                continue;
            }
            if self.is_held(now, slot) {
                self.ready.remove(slot);
                continue;
            }
            if let Some(departure) = self.packet_of(now, slot) {
                self.turn = slot + 1;
                return Some(departure);
            }
            self.ready.remove(slot);
            self.watch(slot);
        }
        self.flow.as_ref()?;
        self.release_paced(now);
        self.poll_paced(now)
    }

    fn poll_completion(&mut self) -> Option<CommandCompletion> {
        self.transfers.poll()
    }
}
