//! By which rules the interface works: the registry's, whose sender is the host's, message schemes', whole, or both.

use super::NiBuild;
use super::faults::Fault;
use super::frames::FrameQueue;
use super::parameters::rules;
use super::registers::Settings;
use crate::space::CardSpace;
use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::{Scheme, counters};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::window::WindowHeader;
use fpga_firmware::wire::{
    AnswerBody, Common, Control, Data, Flags, LinkPacket, Message, MessageAnswer, Nack, NackReason,
};
use fpga_protocol::receiver::{
    AccessTable, EntryView, EscapedView, Receiver, ReceiverConfig, ReceiverConfigError,
};
use fpga_protocol::scheme::any::SchemeSet;
use fpga_protocol::scheme::commands::{end_event, progress_event};
use fpga_protocol::scheme::messages;
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, Completion, Notify, Ticket, TransferError};
use fpga_protocol::time::Nanos;

/// The rules in use, with all that belongs to them.
///
/// Where the registry and message schemes are on together, there is one of each, and two things belong to both. The *entries*: the lower
/// half of the indices is the registry's, the rest are contexts. And the *memory windows*: there is one table. It lies at the
/// registry's receiver, and the node has it for as long as it takes a packet ([`ActiveSchemes::move_access_table`]); in a bitstream it is one
/// memory that both read.
#[derive(Debug)]
pub(super) enum ActiveSchemes {
    Registry(Receiver),
    Messages(Box<MessageNode>),
    Both(Receiver, Box<MessageNode>),
}

/// A node of message schemes, one or several.
#[derive(Debug)]
pub(super) struct MessageNode {
    pub(super) sender: messages::Sender,
    pub(super) receiver: messages::Receiver,
    /// The index of the first context as the host sees it: below are the registry's entries.
    first_entry: u16,
    /// Packets of messages and of transmit windows leave in turn.
    pub(super) has_turn: bool,
    /// By the sender's slots: the host's number of the command, and the sender's name for it.
    numbers: Box<[Option<(u32, Ticket)>]>,
    /// A packet's payload on its way out.
    payload: Box<[u8]>,
    /// Most entries in use at once, those of the registry among them.
    high_water: u32,
    positive: u32,
    negative: u32,
}

fn micros(value: u32) -> Nanos {
    Nanos::from_micros(value.into())
}

/// Schemes that are on, as bits.
pub(super) const fn on(settings: &Settings) -> u32 {
    settings.schemes_on | 1 << settings.scheme
}

const REGISTRY: u32 = 1 << Scheme::Registry.value();

/// Of which entries the registry has the first, by the schemes that are on.
const fn registry_share(build: &NiBuild, on: u32) -> u16 {
    if on == REGISTRY {
        build.registry_entries
    } else if on & REGISTRY != 0 {
        build.registry_entries.div_ceil(2)
    } else {
        0
    }
}

fn registry_receiver(
    build: &NiBuild,
    settings: &Settings,
    entries: u16,
) -> Result<Receiver, ReceiverConfigError> {
    let node = NodeId::new(settings.node_id);
    let mut config = ReceiverConfig::new(node, Incarnation::new(settings.incarnation));
    config.packet_size_log2 = build.packet_size_log2;
    config.mask_bits = build.mask_bits;
    config.registry_entries = entries.into();
    config.escape_slots = build.escape_slots;
    config.windows = build.memory_windows.into();
    config.transfers = entries.saturating_mul(2).clamp(128, 4096);
    Receiver::new(config)
}

impl MessageNode {
    /// Of the message schemes among those that are on, with contexts behind the registry's entries; `None` if this build cannot have it.
    fn new(build: &NiBuild, settings: &Settings) -> Option<Self> {
        let node = NodeId::new(settings.node_id);
        let incarnation = Incarnation::new(settings.incarnation);
        let on = on(settings);
        let first_entry = registry_share(build, on);
        let trip = Nanos::new(settings.round_trip_ns.into());
        let mut of = Scheme::ALL
            .iter()
            .filter(|scheme| on >> scheme.value() & 1 != 0)
            .filter_map(|scheme| rules(settings, *scheme));
        // SCHEME, unless that is the registry: then a command has to name one, and nothing depends on which is the default here.
        let default = Scheme::try_from(settings.scheme).ok().and_then(|scheme| rules(settings, scheme));
        let first = default.or_else(|| of.clone().next())?;
        let others = of.by_ref().fold(SchemeSet::NONE, SchemeSet::with);
        let mut config = messages::SenderConfig::new(node, first);
        config.others = others;
        config.packet_size_log2 = build.packet_size_log2;
        config.message_packets = settings.message_packets;
        config.contexts = build.sending_contexts.into();
        config.transfers = build.commands.into();
        config.ask = trip.saturating_mul(4);
        let sender = messages::Sender::new(config, incarnation).ok()?;
        let mut config = messages::ReceiverConfig::new(node, incarnation, first);
        config.others = others;
        config.packet_size_log2 = build.packet_size_log2;
        config.contexts = build.registry_entries.checked_sub(first_entry)?.into();
        config.windows = build.memory_windows.into();
        let receiver = messages::Receiver::new(config).ok()?;
        Some(Self {
            sender,
            receiver,
            first_entry,
            has_turn: false,
            numbers: vec![None; build.commands.into()].into_boxed_slice(),
            payload: vec![0; 1 << build.packet_size_log2].into_boxed_slice(),
            high_water: 0,
            positive: 0,
            negative: 0,
        })
    }

    fn apply(&mut self, settings: &Settings) {
        let (node, incarnation) = (NodeId::new(settings.node_id), Incarnation::new(settings.incarnation));
        let (silence, lifetime) = (micros(settings.registry_timeout_us), micros(settings.packet_lifetime_us));
        // What a peer remembers of this node's messages is over before their numbers come again; peers are told the same
        // times.
        let tombstone = silence.saturating_add(lifetime);
        self.sender.set_identity(node, incarnation);
        self.sender.set_times(micros(settings.give_up_us), tombstone.saturating_add(lifetime));
        self.receiver.set_identity(node, incarnation);
        self.receiver.set_timeouts(silence, tombstone, lifetime);
    }
}

impl ActiveSchemes {
    /// The registry's rules.
    pub(super) fn registry(build: &NiBuild, settings: &Settings) -> Result<Self, ReceiverConfigError> {
        let mut exchange = Self::Registry(registry_receiver(build, settings, build.registry_entries)?);
        exchange.apply(settings);
        Ok(exchange)
    }

    /// What `settings` choose, blank but for memory windows; `None` if this build cannot have it.
    pub(super) fn new(build: &NiBuild, settings: &Settings, access: Option<&AccessTable>) -> Option<Self> {
        let on = on(settings);
        let receiver = if on & REGISTRY != 0 {
            Some(registry_receiver(build, settings, registry_share(build, on)).ok()?)
        } else {
            None
        };
        let node = if on == REGISTRY { None } else { Some(Box::new(MessageNode::new(build, settings)?)) };
        let mut exchange = match (receiver, node) {
            (Some(receiver), None) => Self::Registry(receiver),
            (Some(receiver), Some(node)) => Self::Both(receiver, node),
            (None, node) => Self::Messages(node?),
        };
        if let Some(access) = access {
            *exchange.access_mut() = access.clone();
        }
        exchange.apply(settings);
        Some(exchange)
    }

    /// Takes over what may be set at any time.
    pub(super) fn apply(&mut self, settings: &Settings) {
        if let Self::Registry(receiver) | Self::Both(receiver, _) = self {
            receiver.set_identity(NodeId::new(settings.node_id), Incarnation::new(settings.incarnation));
            let silence = micros(settings.registry_timeout_us);
            let lifetime = micros(settings.packet_lifetime_us);
            receiver.set_timeouts(micros(settings.escape_timeout_us), silence, lifetime);
            receiver.set_packet_events(
                settings.control & fpga_firmware::generated::ni::control::PACKET_EVENTS != 0,
            );
        }
        if let Some(node) = self.messages_mut() {
            node.apply(settings);
        }
    }

    /// The message schemes' half, if any is on.
    pub(super) fn messages(&self) -> Option<&MessageNode> {
        match self {
            Self::Registry(_) => None,
            Self::Messages(node) | Self::Both(_, node) => Some(node),
        }
    }

    /// The same, to work with.
    pub(super) fn messages_mut(&mut self) -> Option<&mut MessageNode> {
        match self {
            Self::Registry(_) => None,
            Self::Messages(node) | Self::Both(_, node) => Some(node),
        }
    }

    /// Whether transmit windows may hold packets of segments, and commands.
    pub(super) const fn windows_may_hold(&self) -> (bool, bool) {
        match self {
            Self::Registry(_) => (true, false),
            Self::Messages(_) => (false, true),
            Self::Both(..) => (true, true),
        }
    }

    pub(super) fn access(&self) -> &AccessTable {
        match self {
            Self::Registry(receiver) | Self::Both(receiver, _) => receiver.access(),
            Self::Messages(node) => node.receiver.access(),
        }
    }

    pub(super) fn access_mut(&mut self) -> &mut AccessTable {
        match self {
            Self::Registry(receiver) | Self::Both(receiver, _) => receiver.access_mut(),
            Self::Messages(node) => node.receiver.access_mut(),
        }
    }

    /// Hands the table of memory windows from the registry's receiver to the node, or back: there is one. What the other has instead is
    /// never opened.
    pub(super) fn move_access_table(&mut self) {
        if let Self::Both(receiver, node) = self {
            core::mem::swap(receiver.access_mut(), node.receiver.access_mut());
        }
    }

    /// A registry entry, or a receive context.
    pub(super) fn entry(&self, index: u16, now: Nanos) -> Option<EntryView> {
        if let Self::Registry(receiver) | Self::Both(receiver, _) = self
            && let Some(entry) = receiver.entry(index, now)
        {
            return Some(entry);
        }
        let node = self.messages()?;
        node.receiver.entry(index.checked_sub(node.first_entry)?, now)
    }

    /// An escape slot, of which there are none but by the registry's rules.
    pub(super) fn escaped(&self, index: u16, now: Nanos) -> Option<EscapedView> {
        match self {
            Self::Registry(receiver) | Self::Both(receiver, _) => receiver.escaped(index, now),
            Self::Messages(_) => None,
        }
    }

    fn in_use(&self) -> u32 {
        match self {
            Self::Registry(receiver) => receiver.registry_occupancy(),
            Self::Messages(node) => live(&node.receiver),
            Self::Both(receiver, node) => receiver.registry_occupancy().saturating_add(live(&node.receiver)),
        }
    }

    /// Registry entries and receive contexts in use, and the most there ever were.
    pub(super) fn occupancy(&self) -> (u32, u32) {
        let most = match self {
            Self::Registry(receiver) => receiver.counters().registry_high_water,
            Self::Messages(node) | Self::Both(_, node) => node.high_water,
        };
        (self.in_use(), most)
    }

    /// Keeps the most that were in use, where a node is there to keep it.
    pub(super) fn note_high_water(&mut self) {
        let used = self.in_use();
        if let Some(node) = self.messages_mut() {
            node.high_water = node.high_water.max(used);
        }
    }

    /// The same of the escape channel.
    pub(super) fn escape_occupancy(&self) -> (u32, u32) {
        match self {
            Self::Registry(receiver) | Self::Both(receiver, _) => {
                (receiver.escape_occupancy().into(), receiver.counters().escape_high_water.into())
            }
            Self::Messages(_) => (0, 0),
        }
    }

    /// A register of the counters block that the rules count for: of all that are on together.
    pub(super) fn counter(&self, register: u32) -> u32 {
        match self {
            Self::Registry(receiver) => registry_counter(receiver, register),
            Self::Messages(node) => node.counter(register),
            Self::Both(receiver, node) => {
                registry_counter(receiver, register).wrapping_add(node.counter(register))
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Nanos> {
        match self {
            Self::Registry(receiver) => receiver.poll_timeout(),
            Self::Messages(node) => node.poll_timeout(),
            Self::Both(receiver, node) => {
                [receiver.poll_timeout(), node.poll_timeout()].into_iter().flatten().min()
            }
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Nanos) {
        if let Self::Registry(receiver) | Self::Both(receiver, _) = self {
            receiver.handle_timeout(now);
        }
        if let Some(node) = self.messages_mut() {
            node.sender.handle_timeout(now);
            node.receiver.handle_timeout(now);
        }
    }
}

fn registry_counter(receiver: &Receiver, register: u32) -> u32 {
    let counted = receiver.counters();
    super::low(match register {
        counters::DUPLICATES => counted.duplicates,
        counters::REGISTRATIONS => counted.registrations,
        counters::COMPLETIONS => counted.completions,
        counters::ESCAPE_HITS => counted.escape_hits,
        counters::ESCAPE_DROPPED => counted.escape_dropped,
        counters::REGISTRY_FULL => counted.registry_full,
        counters::BAD_PACKET => counted.bad_packets,
        counters::VIOLATIONS => counted.violations,
        counters::TOMBSTONE_HITS => counted.tombstone_hits,
        counters::EXPIRED => counted.expired,
        counters::NACKS_SENT => counted.nacks,
        counters::ACKS_SENT => counted.acks,
        _ => 0,
    })
}

fn live(receiver: &messages::Receiver) -> u32 {
    u32::try_from(receiver.live()).unwrap_or(u32::MAX)
}

/// What a node has to say next.
pub(super) enum NodeAction {
    Send(Header),
    Event(Event),
}

impl MessageNode {
    fn counter(&self, register: u32) -> u32 {
        let counted = self.receiver.counters();
        super::low(match register {
            counters::DUPLICATES => counted.duplicates,
            counters::REGISTRATIONS => counted.begun,
            counters::COMPLETIONS => counted.complete,
            counters::REGISTRY_FULL => counted.busy,
            counters::BAD_PACKET => counted.bad_packets,
            counters::VIOLATIONS => counted.violations,
            counters::TOMBSTONE_HITS => counted.zombies,
            counters::EXPIRED => counted.abandoned,
            counters::NACKS_SENT => self.negative.into(),
            counters::ACKS_SENT => self.positive.into(),
            _ => 0,
        })
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
    }

    /// Takes a transfer over from the host. What cannot be made ends at once.
    pub(super) fn command(
        &mut self,
        now: Nanos,
        header: &WindowHeader,
        default: Option<Scheme>,
        space: &CardSpace,
    ) -> Result<(), Event> {
        let command = Command {
            source: header.base,
            node: header.destination,
            destination: header.transfer_base,
            length: header.transfer_length,
            key: header.key,
            notify: if header.flags.contains(Flags::NO_NOTICE) { Notify::None } else { Notify::Receiver },
            deadline: (header.command.timeout_ns != 0)
                .then(|| now.saturating_add(Nanos::new(header.command.timeout_ns))),
            priority: header.command.priority,
        };
        let number = header.command.number;
        let inside = space.is_memory(command.source, command.length);
        // By the registry's rules there are no commands, so where that is the default a command has to name its own.
        let scheme = header.command.scheme.or(default);
        if inside
            && let Some(scheme) = scheme
            && let Ok(ticket) = self.sender.submit_by(now, command, scheme)
        {
            let slot = usize::try_from(ticket.slot()).unwrap_or(usize::MAX);
            if let Some(place) = self.numbers.get_mut(slot) {
                *place = Some((number, ticket));
            }
            return Ok(());
        }
        let (node, address) = (command.node, command.destination);
        Err(end_event(number, &Completion::refused(&command, now, TransferError::NotTaken { node, address })))
    }

    /// Gives command `number` up, if it is under way.
    pub(super) fn cancel(&mut self, now: Nanos, number: u32) {
        let found = self.numbers.iter().flatten().find(|(given, _)| *given == number);
        if let Some((_, ticket)) = found.copied() {
            self.sender.cancel(now, ticket);
        }
    }

    /// A message on its way, with its command's number.
    pub(super) fn context(&self, slot: u32, now: Nanos) -> Option<(u32, messages::ContextView)> {
        let inside = slot < self.sender.config().contexts;
        let view = inside.then(|| self.sender.context(slot, now)).flatten()?;
        Some((self.number_of(view.ticket)?, view))
    }

    fn number_of(&self, ticket: Ticket) -> Option<u32> {
        let slot = usize::try_from(ticket.slot()).ok()?;
        let (number, given) = self.numbers.get(slot).copied().flatten()?;
        (given == ticket).then_some(number)
    }

    /// A packet from the network.
    pub(super) fn receive(
        &mut self,
        now: Nanos,
        message: &Message,
        payload: &[u8],
        memory: &mut super::ReceivePort<'_>,
    ) {
        let header = Header::Message(*message);
        match message {
            Message::Answer(_) => self.sender.handle_packet(now, &header),
            _ => self.receiver.handle_packet(now, &header, payload, memory),
        }
    }

    /// A packet about links.
    pub(super) fn handle_link_packet(&mut self, now: Nanos, packet: &LinkPacket) {
        self.sender.handle_packet(now, &Header::Link(*packet));
    }

    /// The next thing to send or to report, packets of messages excepted.
    ///
    /// How far a transfer is, is told only if there is `room` for what nobody waits for.
    pub(super) fn poll(&mut self, room: impl FnOnce() -> bool) -> Option<NodeAction> {
        if let Some(said) = self.receiver.poll_action() {
            return Some(match said {
                Action::Event(event) => NodeAction::Event(self.shifted(event)),
                Action::Send(header) => {
                    let refused = matches!(
                        &header,
                        Header::Message(Message::Answer(MessageAnswer { body: AnswerBody::Refused(_), .. }))
                    );
                    let count = if refused { &mut self.negative } else { &mut self.positive };
                    *count = count.wrapping_add(1);
                    NodeAction::Send(header)
                }
            });
        }
        if self.sender.has_progress() && room() {
            while let Some(progress) = self.sender.poll_progress() {
                if let Some(number) = self.number_of(progress.ticket) {
                    return Some(NodeAction::Event(progress_event(number, &progress)));
                }
            }
        }
        while let Some(done) = self.sender.poll_completion() {
            if let Some(number) = self.number_of(done.ticket) {
                let slot = usize::try_from(done.ticket.slot()).unwrap_or(usize::MAX);
                if let Some(place) = self.numbers.get_mut(slot) {
                    *place = None;
                }
                return Some(NodeAction::Event(end_event(number, &done)));
            }
        }
        None
    }

    /// An event about a context, by the index that the host knows it by.
    fn shifted(&self, event: Event) -> Event {
        match event.kind {
            EventKind::Registered | EventKind::Completed | EventKind::Expired => {
                Event { index: event.index.saturating_add(self.first_entry), ..event }
            }
            _ => event,
        }
    }

    /// Sends the next packet of a message. `None` if there is none to send now; else what went wrong.
    pub(super) fn transmit(
        &mut self,
        now: Nanos,
        space: &CardSpace,
        frames: &mut FrameQueue,
    ) -> Option<Option<Fault>> {
        let departure = self.sender.poll_packet(now)?;
        let Header::Message(message) = departure.header else { return Some(None) };
        let length = usize::try_from(departure.payload).unwrap_or(usize::MAX);
        let payload = self.payload.get_mut(..length)?;
        if let Err((_, address)) = space.read(departure.source, payload) {
            // As if the network had lost it: the transfer will be given up.
            let node = message.common().destination.get();
            let fault = Fault::new(FaultReason::MemoryFault);
            return Some(Some(Fault {
                node,
                address: address.get(),
                length: departure.payload.into(),
                ..fault
            }));
        }
        // What the sender makes can be encoded; what could not be is as good as lost.
        let _ = frames.send(|buffer| message.encode(payload, buffer));
        Some(None)
    }
}

/// The answer of a registry's interface to a message scheme's packet; `None` where nobody waits for one.
pub(super) fn nack_message(message: &Message, settings: &Settings) -> Option<Message> {
    let (number, body) = match message {
        Message::Request(request) => (request.message, AnswerBody::Refused(NackReason::Scheme)),
        Message::Data(header) => (header.message, AnswerBody::Refused(NackReason::Scheme)),
        Message::Read(request) => (request.read, AnswerBody::ReadRefused(NackReason::Scheme)),
        Message::Answer(_) => return None,
    };
    let Common { source, incarnation, .. } = message.common();
    Some(Message::Answer(MessageAnswer {
        common: answering(source, settings),
        message: number,
        peer_incarnation: incarnation,
        context: None,
        body,
    }))
}

/// The answer of a message scheme's interface to a packet of the registry's.
pub(super) fn refuse_segment(data: &Data<'_>, settings: &Settings) -> Control {
    let header = data.header();
    Control::Nack(Nack {
        common: answering(header.common.source, settings),
        op: header.op,
        transfer: header.transfer,
        segment: header.segment,
        peer_incarnation: header.common.incarnation,
        tries: header.tries,
        reason: NackReason::Scheme,
    })
}

fn answering(to: NodeId, settings: &Settings) -> Common {
    Common {
        source: NodeId::new(settings.node_id),
        destination: to,
        incarnation: Incarnation::new(settings.incarnation),
        flags: Flags::NONE,
    }
}
