//! Receiver of the message schemes: takes packets, writes memory, produces answers and events.
//!
//! This file is longer than most: the checks before a message is admitted, and the effects of its packets, depend on
//! one order of searches.

mod views;

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use fpga_firmware::event::{Event, EventKind, FaultReason, Registration};
use fpga_firmware::generated::Scheme;
use fpga_firmware::ids::{Incarnation, MessageId, NodeId, OpNumber};
use fpga_firmware::wire::{
    Announcement, AnswerBody, Common, Flags, Message, MessageAnswer, MessageHeader, MessageRequest,
    NackReason, SENDERS_MAX,
};
use fpga_registers::CardAddr;

use super::config::{MessageConfigError, ReceiverConfig};
use super::peers::{ContextKey, MessageState, PeerRecord, PeerTable};
use crate::free::FreeSlots;
use crate::incarnations::{Admission, DEFAULT_NODES, NodeTable};
use crate::receiver::{AccessTable, ReceiveMemory, UNLIMITED_SLOTS};
use crate::refusals::Refusals;
use crate::scheme::any::SchemeConfig;
use crate::scheme::message_scheme::{MessageScheme, ReusableReceiver};
use crate::scheme::traits::{Action, Header, SchemeReceiver};
use crate::scheme::{Disposition, MessageReceiver, Packet, ReceivePath};
use crate::state::StateTable;
use crate::time::Nanos;
use crate::timers::Timers;
use fpga_registers::cast::index;
pub use views::ReceiverCounters;

#[derive(Clone, Debug)]
struct Context<E> {
    /// Index of its peer record, whose state is [`MessageState::Live`]; `None` if the context is free.
    peer: Option<usize>,
    /// Number of uses of the context.
    generation: u32,
    announcement: Announcement,
    count: u32,
    /// Index of the memory window that allowed the last packet.
    window: u16,
    /// Whether the host is notified when the transfer is complete.
    notifies: bool,
    /// Path identifiers of its last packets, the newest first. Answers without a packet use them in turn: a route may work in one
    /// direction only.
    paths: [u8; 4],
    /// Scheme of its current or last message.
    scheme: Scheme,
    end: E,
}

/// Message receiver of a context for a scheme that its current message does not use.
#[derive(Clone, Debug)]
struct SpareReceiver<E> {
    scheme: Scheme,
    end: E,
}

/// Receiver of one node; see [the module](super).
#[derive(Clone, Debug)]
pub struct Receiver<R: MessageScheme = SchemeConfig> {
    config: ReceiverConfig<R>,
    access: AccessTable,
    contexts: Box<[Context<R::Receiver>]>,
    /// One message receiver per context and additional scheme, ordered by context.
    spares: Box<[SpareReceiver<R::Receiver>]>,
    free: FreeSlots,
    timers: Timers,
    peers: PeerTable,
    incarnations: NodeTable<ReceivePath>,
    actions: VecDeque<Action>,
    /// Free slots for notifications; `reserved`: those reserved for messages that complete a transfer.
    notice_slots: u32,
    reserved: u32,
    /// Maximum number of outputs of one call.
    burst: usize,
    /// Path of the packet that is being processed, and the flags of its answers.
    way: (u8, Flags),
    /// Waiting times of refused senders.
    refusals: Refusals,
    /// Lower bound of the time at which a sender's silence expires; it may be early, never late.
    next_sweep: Nanos,
    counters: ReceiverCounters,
}

const fn key_of(common: &Common, message: MessageId) -> ContextKey {
    ContextKey { node: common.source, incarnation: common.incarnation, context: message.context() }
}

/// Result of the search for a packet's message.
enum Lookup {
    /// In progress in this context.
    Active(u16),
    /// Ended, or a later message of the same context has begun.
    Ended(Option<MessageState>),
    /// No record.
    Unknown,
}

impl<R: MessageScheme> Receiver<R> {
    /// Creates a receiver and allocates all memory that it will ever need.
    ///
    /// # Errors
    /// See [`ReceiverConfig::validate`].
    pub fn new(config: ReceiverConfig<R>) -> Result<Self, MessageConfigError> {
        config.validate()?;
        let nothing = Announcement {
            length: 0,
            base: CardAddr::new(0),
            key: 0,
            transfer_base: CardAddr::new(0),
            transfer_length: 0,
            transfer: fpga_firmware::TransferId::new(0),
            read: 0,
            left: 0,
        };
        let blank = || Context {
            peer: None,
            generation: 0,
            announcement: nothing,
            count: 0,
            window: 0,
            notifies: false,
            paths: [0; 4],
            scheme: config.rules.scheme(),
            end: config.rules.receiving(),
        };
        // One call causes at most three answers and an event per context, or all that follows from one packet.
        let burst = 4 * index(config.contexts) + 8;
        let beside = config.others.without(config.rules.scheme());
        let spare = |rules: R| SpareReceiver { scheme: rules.scheme(), end: rules.receiving() };
        Ok(Self {
            access: AccessTable::new(config.windows),
            contexts: (0..config.contexts).map(|_| blank()).collect(),
            spares: (0..config.contexts).flat_map(|_| beside.clone().map(spare)).collect(),
            free: FreeSlots::all(config.contexts),
            notice_slots: UNLIMITED_SLOTS,
            reserved: 0,
            timers: Timers::compact(config.contexts),
            peers: PeerTable::new(config.peers),
            incarnations: NodeTable::new(config.peers.min(DEFAULT_NODES)),
            actions: VecDeque::with_capacity(2 * burst),
            burst,
            way: (0, Flags::NONE),
            refusals: Refusals::default(),
            next_sweep: Nanos::MAX,
            counters: ReceiverCounters::default(),
            config,
        })
    }

    /// Returns the configuration in use.
    #[must_use]
    pub const fn config(&self) -> &ReceiverConfig<R> {
        &self.config
    }

    /// Returns the running counts.
    #[must_use]
    pub const fn counters(&self) -> &ReceiverCounters {
        &self.counters
    }

    /// Returns the tables and the bytes of state per entry, without the heap memory of the message receivers.
    #[must_use]
    pub fn state(&self) -> [StateTable; 3] {
        [
            StateTable::new("contexts", self.config.contexts.into(), size_of::<Context<R::Receiver>>()),
            StateTable::new("senders' contexts", self.config.peers.into(), size_of::<Option<PeerRecord>>()),
            StateTable::new("senders", self.incarnations.capacity(), NodeTable::<ReceivePath>::BYTES),
        ]
    }

    /// Sets this node's number and incarnation. To be called before the first packet, or when all state may be
    /// forgotten.
    pub const fn set_identity(&mut self, node: NodeId, incarnation: Incarnation) {
        (self.config.node, self.config.incarnation) = (node, incarnation);
    }

    /// Sets the silence timeout of senders, the time for which a message's state is kept, and the packet lifetime.
    pub fn set_timeouts(&mut self, silence: Nanos, tombstone: Nanos, lifetime: Nanos) {
        (self.config.silence, self.config.tombstone, self.config.lifetime) = (silence, tombstone, lifetime);
        if self.live() > 0 {
            // Check all contexts early.
            self.next_sweep = Nanos::ZERO;
        }
    }

    /// Sets the number of notifications that can be reported from now on; initially unlimited. To be called before each
    /// packet.
    ///
    /// The last message of a transfer begins when all others are complete. If the transfer notifies, this message gets
    /// a context only if a slot can be reserved for the notification; otherwise it is refused as "receiver not ready"
    /// and no state is kept. No other message depends on slots. A host that consumes no events therefore delays only
    /// the notifications that it is to receive.
    #[inline]
    pub const fn set_notice_slots(&mut self, slots: u32) {
        self.notice_slots = slots;
    }

    /// Returns the number of reserved slots.
    #[must_use]
    pub const fn reserved_notices(&self) -> u32 {
        self.reserved
    }

    /// Whether the node has this scheme.
    fn uses(&self, scheme: Scheme) -> bool {
        let default = self.config.rules.scheme();
        scheme == default || self.config.others.without(default).any(|rules| rules.scheme() == scheme)
    }

    /// Switches a context to `scheme`, one of the node's. The message receivers are swapped: nothing is allocated.
    fn take_end(&mut self, slot: u16, scheme: Scheme) {
        let each = self.spares.len() / self.contexts.len().max(1);
        let Some(context) = self.contexts.get_mut(usize::from(slot)) else { return };
        if context.scheme == scheme {
            return;
        }
        let mut own = self.spares.iter_mut().skip(usize::from(slot) * each).take(each);
        if let Some(spare) = own.find(|spare| spare.scheme == scheme) {
            core::mem::swap(&mut spare.end, &mut context.end);
            core::mem::swap(&mut spare.scheme, &mut context.scheme);
        }
    }

    /// Returns the number of messages in progress.
    #[must_use]
    pub fn live(&self) -> usize {
        self.contexts.len() - self.free.len()
    }

    /// Returns the memory windows of this node.
    #[must_use]
    pub const fn access(&self) -> &AccessTable {
        &self.access
    }

    /// Returns the time of the last packet of a message that answers `read`; `None` if there is no such message.
    #[must_use]
    pub fn last_answer_time(&self, node: NodeId, read: u32) -> Option<Nanos> {
        let of_read = |context: &&Context<R::Receiver>| context.announcement.read == read;
        let heard = |context: &Context<R::Receiver>| {
            let peer = self.peers.get(context.peer?)?;
            (peer.key.node == node).then_some(peer.last_heard)
        };
        self.contexts.iter().filter(of_read).filter_map(heard).max()
    }

    fn has_space(&mut self) -> bool {
        let has_space = self.actions.capacity() - self.actions.len() >= self.burst;
        self.counters.unpolled += u64::from(!has_space);
        has_space
    }

    fn queue_answer(&mut self, key: &ContextKey, message: MessageId, context: Option<u16>, body: AnswerBody) {
        let (path, flags) = self.way;
        let common = Common {
            source: self.config.node,
            destination: key.node,
            incarnation: self.config.incarnation,
            flags,
            path,
        };
        let (context, peer_incarnation) = (context.map(u32::from), key.incarnation);
        let senders = if body.has_no_senders() { 0 } else { self.incarnations.active() };
        let senders = u8::try_from(senders).unwrap_or(u8::MAX).min(SENDERS_MAX);
        let answer = MessageAnswer { common, message, peer_incarnation, context, senders, body };
        self.actions.push_back(Action::Send(Header::Message(Message::Answer(answer))));
    }

    fn event(&mut self, now: Nanos, event: Event) {
        self.actions.push_back(Action::Event(Event { time: now.get(), ..event }));
    }

    fn fault(&mut self, now: Nanos, reason: FaultReason, key: &ContextKey, address: CardAddr, length: u64) {
        let event = Event {
            reason: reason.value(),
            node: key.node,
            incarnation: key.incarnation,
            address,
            length,
            ..Event::new(EventKind::Fault)
        };
        self.event(now, event);
    }

    /// Searches for a packet's message: by the context that it names, or by its sender.
    fn find(&self, key: &ContextKey, message: MessageId, context: Option<u32>) -> Lookup {
        if let Some(slot) = context.and_then(|context| u16::try_from(context).ok())
            && let Some(peer) =
                self.contexts.get(usize::from(slot)).and_then(|context| self.peers.get(context.peer?))
            && peer.key == *key
            && peer.message == message
        {
            return Lookup::Active(slot);
        }
        let Some(peer) = self.peers.find(key).and_then(|at| self.peers.get(at)) else {
            return Lookup::Unknown;
        };
        if peer.message == message {
            match peer.state {
                MessageState::Live(slot) => Lookup::Active(slot),
                ended => Lookup::Ended(Some(ended)),
            }
        } else if peer.message.is_older_than(message, self.config.number_bits) {
            Lookup::Unknown
        } else {
            Lookup::Ended(None)
        }
    }

    /// Handles a packet of a message that has ended.
    fn past(&mut self, now: Nanos, key: &ContextKey, message: MessageId, fortune: Option<MessageState>) {
        if let Some(peer) = fortune.and_then(|_| self.peers.find(key)).and_then(|at| self.peers.get_mut(at)) {
            peer.last_heard = now;
        }
        match fortune {
            Some(MessageState::Done) => {
                self.counters.duplicates += 1;
                self.queue_answer(key, message, None, AnswerBody::Done);
            }
            Some(_) => {
                self.counters.delayed_duplicates += 1;
                self.queue_answer(key, message, None, AnswerBody::Refused(NackReason::Unknown, 0));
            }
            // Of an earlier message: its answer is not awaited any more.
            None => self.counters.delayed_duplicates += 1,
        }
    }

    /// Assigns a context to a message, or refuses it.
    fn admit(
        &mut self,
        now: Nanos,
        key: &ContextKey,
        message: MessageId,
        (scheme, packet_size_log2): (Scheme, u8),
        announcement: &Announcement,
        flags: Flags,
    ) -> Option<u16> {
        if packet_size_log2 != self.config.packet_size_log2 {
            self.counters.bad_packets += 1;
            self.fault(now, FaultReason::BadPacket, key, announcement.base, announcement.length.into());
            self.queue_answer(key, message, None, AnswerBody::Refused(NackReason::BadPacket, 0));
            return None;
        }
        let Announcement { base, length, key: window_key, .. } = *announcement;
        let window = self.access.allowing_write(0, key.node, window_key, base, length.into());
        let Some(window) = window else {
            self.counters.violations += 1;
            self.fault(now, FaultReason::Violation, key, base, length.into());
            self.queue_answer(key, message, None, AnswerBody::Refused(NackReason::Violation, 0));
            return None;
        };
        let sender = match self.sender(now, key) {
            Ok(sender) => sender,
            Err(answer) => {
                self.queue_answer(key, message, None, answer);
                return None;
            }
        };
        let known = self.peers.find(key);
        if let Some(MessageState::Live(slot)) = known.and_then(|at| self.peers.get(at)).map(|peer| peer.state)
        {
            // Its sender has moved on to another message.
            self.abandon(now, slot);
        }
        let tombstone = self.config.tombstone;
        let rested = now.checked_sub(tombstone).unwrap_or(Nanos::ZERO);
        let notifies = !flags.contains(Flags::NO_NOTICE);
        let reserves = notifies && announcement.left == 0;
        if reserves && self.reserved >= self.notice_slots {
            self.counters.not_ready += 1;
            self.queue_answer(key, message, None, AnswerBody::Refused(NackReason::NotReady, 0));
            return None;
        }
        let place = known.or_else(|| self.peers.find_free(key, rested));
        // A context is taken only if everything else is available.
        let Some((place, slot)) = place.and_then(|place| Some((place, self.free.pop()?))) else {
            self.counters.busy += 1;
            let delay = self.refusals.refuse(now, self.config.contexts);
            self.queue_answer(key, message, None, AnswerBody::Refused(NackReason::Busy, delay));
            return None;
        };
        let count = announcement.packets(packet_size_log2);
        self.take_end(slot, scheme);
        if let Some(context) = self.contexts.get_mut(usize::from(slot)) {
            context.peer = Some(place);
            context.generation = context.generation.wrapping_add(1);
            context.announcement = *announcement;
            context.count = count;
            context.window = window;
            context.notifies = notifies;
            context.end.begin(now, count, self.incarnations.path(sender));
        }
        self.peers
            .put(place, PeerRecord { key: *key, message, state: MessageState::Live(slot), last_heard: now });
        self.reserved += u32::from(reserves);
        self.incarnations.begin(sender, now);
        self.counters.begun += 1;
        self.report(now, EventKind::Registered, slot);
        self.next_sweep = self.next_sweep.min(now.saturating_add(self.config.silence));
        self.watch(slot);
        Some(slot)
    }

    /// Returns the newest known incarnation of `node` if it is later than `incarnation`, whose messages are refused.
    #[must_use]
    pub fn superseding(&self, node: NodeId, incarnation: Incarnation) -> Option<Incarnation> {
        self.incarnations.superseding(node, incarnation)
    }

    /// Returns the record index of a message's sender if messages of this incarnation may begin, or else the answer.
    /// The messages in progress of an earlier incarnation are given up.
    fn sender(&mut self, now: Nanos, key: &ContextKey) -> Result<usize, AnswerBody> {
        let lifetime = self.config.lifetime;
        let rested = now.checked_sub(self.config.tombstone.max(lifetime)).unwrap_or(Nanos::ZERO);
        match self.incarnations.admit(now, (key.node, key.incarnation), rested) {
            Admission::Admitted(at) => Ok(at),
            Admission::Succeeds(at) => {
                for slot in (0..=u16::MAX).take(self.contexts.len()) {
                    let place = self.contexts.get(usize::from(slot)).and_then(|context| context.peer);
                    if place.and_then(|place| self.peers.get(place)).is_some_and(|peer| {
                        peer.key.node == key.node && peer.key.incarnation != key.incarnation
                    }) {
                        self.abandon(now, slot);
                    }
                }
                Ok(at)
            }
            Admission::Superseded(newest) => {
                self.counters.superseded += 1;
                Err(AnswerBody::Superseded(newest))
            }
            Admission::Full => {
                self.counters.busy += 1;
                Err(AnswerBody::Refused(NackReason::Busy, 0))
            }
        }
    }

    fn watch(&mut self, slot: u16) {
        if let Some(context) = self.contexts.get(usize::from(slot)) {
            self.timers.start(slot.into(), context.end.poll_timeout().unwrap_or(Nanos::MAX));
        }
    }

    /// Reports to the host that a message has got its context, or leaves it.
    fn report(&mut self, now: Nanos, kind: EventKind, slot: u16) {
        let Some(context) = self.contexts.get(usize::from(slot)) else { return };
        let Some(PeerRecord { key, message, .. }) =
            context.peer.and_then(|place| self.peers.get(place)).copied()
        else {
            return;
        };
        let Announcement { transfer, base, length, left, .. } = context.announcement;
        let (segments, tries) = match kind {
            EventKind::Registered => {
                let flags = if context.notifies { Flags::NOTIFY_RECEIVER } else { Flags::NO_NOTICE };
                (left.saturating_add(1), Registration::byte(flags, context.scheme))
            }
            _ => (0, 0),
        };
        let event = Event {
            index: slot,
            generation: context.generation,
            node: key.node,
            incarnation: key.incarnation,
            transfer,
            segment: message.get(),
            count: context.count,
            address: base,
            length: length.into(),
            op: OpNumber::new(segments),
            tries,
            ..Event::new(kind)
        };
        self.event(now, event);
    }

    /// Frees a context; the state of its message is kept.
    fn end(&mut self, now: Nanos, slot: u16, fortune: MessageState) {
        let kind = if fortune == MessageState::Done { EventKind::Completed } else { EventKind::Expired };
        self.report(now, kind, slot);
        let Some(context) = self.contexts.get_mut(usize::from(slot)) else { return };
        let Some(place) = context.peer.take() else { return };
        self.reserved -= u32::from(context.notifies && context.announcement.left == 0);
        if let Some(peer) = self.peers.get_mut(place) {
            peer.state = fortune;
            self.incarnations.end((peer.key.node, peer.key.incarnation), now, context.end.path());
        }
        context.announcement.read = 0;
        self.timers.stop(slot.into());
        self.free.push(slot);
        self.refusals.note_release(now);
    }

    fn abandon(&mut self, now: Nanos, slot: u16) {
        self.counters.abandoned += 1;
        self.end(now, slot, MessageState::GivenUp);
    }

    fn request(&mut self, now: Nanos, request: &MessageRequest) {
        let key = key_of(&request.common, request.message);
        if !self.uses(request.scheme) {
            self.counters.bad_packets += 1;
            self.queue_answer(&key, request.message, None, AnswerBody::Refused(NackReason::Scheme, 0));
            return;
        }
        let slot = match self.find(&key, request.message, None) {
            Lookup::Active(slot) => {
                if self.contradicts(now, &key, slot, request.scheme) {
                    return;
                }
                if let Some(context) = self.contexts.get_mut(usize::from(slot)) {
                    context.end.note_repeated_request();
                }
                Some(slot)
            }
            Lookup::Ended(fortune) => return self.past(now, &key, request.message, fortune),
            Lookup::Unknown => {
                let rules = (request.scheme, request.packet_size_log2);
                self.admit(now, &key, request.message, rules, &request.announcement, request.common.flags)
            }
        };
        if let Some(slot) = slot {
            self.note_activity(now, slot);
            self.queue_answer(&key, request.message, Some(slot), AnswerBody::Accepted);
        }
    }

    /// Whether a packet has another scheme than its message, which no correct sender causes.
    fn contradicts(&mut self, now: Nanos, key: &ContextKey, slot: u16, scheme: Scheme) -> bool {
        let Some(context) = self.contexts.get(usize::from(slot)) else { return true };
        if context.scheme == scheme {
            return false;
        }
        let Announcement { base, length, .. } = context.announcement;
        self.counters.bad_packets += 1;
        self.fault(now, FaultReason::BadPacket, key, base, length.into());
        true
    }

    fn note_activity(&mut self, now: Nanos, slot: u16) {
        let Some(context) = self.contexts.get_mut(usize::from(slot)) else { return };
        let [first, second, third, _] = context.paths;
        context.paths = [self.way.0, first, second, third];
        if let Some(peer) = context.peer.and_then(|place| self.peers.get_mut(place)) {
            peer.last_heard = now;
        }
    }

    fn data(
        &mut self,
        now: Nanos,
        header: &MessageHeader,
        payload: &[u8],
        memory: &mut (impl ReceiveMemory + ?Sized),
    ) {
        let (key, message) = (key_of(&header.common, header.message), header.message);
        if !self.uses(header.scheme) {
            self.counters.bad_packets += 1;
            self.queue_answer(&key, message, None, AnswerBody::Refused(NackReason::Scheme, 0));
            return;
        }
        let slot = match (self.find(&key, message, header.context), &header.announcement) {
            (Lookup::Active(slot), _) => Some(slot),
            (Lookup::Ended(fortune), _) => return self.past(now, &key, message, fortune),
            (Lookup::Unknown, Some(announcement)) => {
                let rules = (header.scheme, header.packet_size_log2);
                self.admit(now, &key, message, rules, announcement, header.common.flags)
            }
            (Lookup::Unknown, None) => {
                // An earlier incarnation of this node knew it, or a delayed duplicate has outlived its tombstone.
                self.counters.delayed_duplicates += 1;
                return self.queue_answer(&key, message, None, AnswerBody::Refused(NackReason::Unknown, 0));
            }
        };
        let Some(slot) = slot else { return };
        if self.contradicts(now, &key, slot, header.scheme) {
            return;
        }
        self.note_activity(now, slot);
        let Some(context) = self.contexts.get_mut(usize::from(slot)) else { return };
        let Announcement { base, length, key: window_key, .. } = context.announcement;
        let (size, count, number) = (self.config.packet_size(), context.count, u32::from(header.index));
        let expected = if number + 1 == count { length - number * size } else { size };
        if number >= count || header.tail != (number + 1 == count) || payload.len() != index(expected) {
            self.counters.bad_packets += 1;
            return self.fault(now, FaultReason::BadPacket, &key, base, length.into());
        }
        let address = CardAddr::new(base.get().wrapping_add(u64::from(number) * u64::from(size)));
        let allowed =
            self.access.allowing_write(context.window, key.node, window_key, address, expected.into());
        let packet = Packet { index: number, tail: header.tail, sequence: header.sequence };
        let disposition = match allowed {
            Some(window) => {
                context.window = window;
                context.end.handle_packet(now, &packet)
            }
            None => Disposition::Write,
        };
        match disposition {
            Disposition::Write => {
                let written = allowed.is_some() && memory.write(address, payload).is_ok();
                if !written {
                    self.counters.violations += 1;
                    self.fault(now, FaultReason::Violation, &key, address, expected.into());
                    self.end(now, slot, MessageState::GivenUp);
                    return self.queue_answer(
                        &key,
                        message,
                        None,
                        AnswerBody::Refused(NackReason::Violation, 0),
                    );
                }
                self.counters.written += 1;
            }
            Disposition::Duplicate => self.counters.duplicates += 1,
            Disposition::Dropped => self.counters.dropped += 1,
        }
        self.emit_answers(now, slot);
    }

    /// Queues the pending answers of a message receiver, and handles its completion.
    fn emit_answers(&mut self, now: Nanos, slot: u16) {
        let Some(context) = self.contexts.get_mut(usize::from(slot)) else { return };
        let Some(PeerRecord { key, message, .. }) =
            context.peer.and_then(|place| self.peers.get(place)).copied()
        else {
            return;
        };
        if context.end.is_complete() {
            let Announcement { transfer, transfer_base, transfer_length, left, read, .. } =
                context.announcement;
            let notifies = context.notifies;
            self.counters.complete += 1;
            self.end(now, slot, MessageState::Done);
            self.queue_answer(&key, message, None, AnswerBody::Done);
            if left == 0 && notifies {
                self.counters.notices += 1;
                if self.notice_slots != UNLIMITED_SLOTS {
                    self.notice_slots = self.notice_slots.saturating_sub(1);
                }
                let notice = Event {
                    node: key.node,
                    incarnation: key.incarnation,
                    transfer,
                    address: transfer_base,
                    length: transfer_length,
                    count: read,
                    ..Event::new(EventKind::Notice)
                };
                self.event(now, notice);
            }
            return;
        }
        while let Some(answer) = self.contexts.get_mut(usize::from(slot)).and_then(|c| c.end.poll_answer()) {
            self.queue_answer(&key, message, Some(slot), super::to_wire(&answer));
        }
        self.watch(slot);
    }

    /// Drops messages whose senders' silence timeout has expired.
    fn sweep(&mut self, now: Nanos) {
        self.next_sweep = Nanos::MAX;
        for slot in (0..=u16::MAX).take(self.contexts.len()) {
            let place = self.contexts.get(usize::from(slot)).and_then(|context| context.peer);
            let Some(PeerRecord { last_heard: heard, .. }) =
                place.and_then(|place| self.peers.get(place)).copied()
            else {
                continue;
            };
            let due = heard.saturating_add(self.config.silence);
            if due > now {
                self.next_sweep = self.next_sweep.min(due);
                continue;
            }
            self.abandon(now, slot);
        }
    }
}

impl<R: MessageScheme> SchemeReceiver for Receiver<R> {
    fn handle_packet(
        &mut self,
        now: Nanos,
        header: &Header,
        payload: &[u8],
        memory: &mut (impl ReceiveMemory + ?Sized),
    ) {
        let Header::Message(message) = header else { return };
        if matches!(message, Message::Answer(_) | Message::Read(_)) || !self.has_space() {
            return;
        }
        self.counters.packets += 1;
        let common = message.common();
        let Common { path, flags, .. } = common.answer();
        self.way = (path, flags);
        if common.destination != self.config.node || common.source == NodeId::ANY {
            self.counters.bad_packets += 1;
            return;
        }
        match message {
            Message::Request(request) => self.request(now, request),
            Message::Data(header) => self.data(now, header, payload, memory),
            Message::Answer(_) | Message::Read(_) => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if !self.has_space() {
            return;
        }
        while let Some(timer) = self.timers.expired(now) {
            let Ok(slot) = u16::try_from(timer) else { continue };
            if let Some(context) = self.contexts.get_mut(usize::from(slot)) {
                context.end.handle_timeout(now);
                context.paths.rotate_left(1);
                self.way = (context.paths[0], Flags::NONE);
            }
            self.emit_answers(now, slot);
        }
        if self.next_sweep <= now {
            self.sweep(now);
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        self.timers.next().unwrap_or(Nanos::MAX).min(self.next_sweep).as_timer()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn access_mut(&mut self) -> &mut AccessTable {
        &mut self.access
    }
}
