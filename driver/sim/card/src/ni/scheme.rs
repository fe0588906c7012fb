//! Active schemes of the interface: the registry, whose sender is the host; message schemes, which the card executes completely; or both.

use super::NiBuild;
use super::faults::Fault;
use super::frames::FrameQueue;
use super::link::LinkCounts;
use super::settings::Settings;
use crate::space::CardSpace;
use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::{Scheme, counters};
use fpga_firmware::ids::{Incarnation, NodeId};
use fpga_firmware::window::WindowHeader;
use fpga_firmware::wire::{AnswerBody, Flags, LinkPacket, Message, MessageAnswer};
use fpga_protocol::feedback::flow::{FlowControl, RateView};
use fpga_protocol::receiver::{
    AccessTable, EntryView, EscapedView, Receiver, ReceiverConfig, ReceiverConfigError,
};
use fpga_protocol::scheme::any::SchemeSet;
use fpga_protocol::scheme::commands::{end_event, progress_event};
use fpga_protocol::scheme::messages;
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_protocol::sender::{Command, CommandCompletion, Notify, SendFailure, SendTicket};
use fpga_protocol::time::Nanos;
use fpga_registers::cast::index;
use fpga_registers::cast::low32;
use fpga_registers::invariant::DebugExpect as _;

/// The active schemes with their state.
///
/// Where the registry and message schemes are active together, there is one state of each, and they share two things. The *entries*: the
/// lower half of the indices belongs to the registry, the rest are contexts. The *memory windows*: there is one table. It belongs to the
/// registry's receiver and is lent to the node for the duration of a packet ([`ActiveSchemes::move_access_table`]). In a bitstream it is
/// one memory that both read.
#[derive(Debug)]
pub(super) enum ActiveSchemes {
    Registry(Receiver),
    Messages(Box<MessageNode>),
    Both(Receiver, Box<MessageNode>),
}

/// Node of one or several message schemes.
#[derive(Debug)]
pub(super) struct MessageNode {
    pub(super) sender: messages::Sender,
    pub(super) receiver: messages::Receiver,
    /// Index of the first context as the host sees it; the registry's entries are below it.
    first_entry: u16,
    /// Messages are next: their packets and those of transmit windows leave alternately.
    pub(super) has_turn: bool,
    /// By sender slot: the host's number of the command, and the sender's ticket.
    numbers: Box<[Option<(u32, SendTicket)>]>,
    /// Payload of an outgoing packet.
    payload: Box<[u8]>,
    /// Maximum number of entries in use at the same time, including those of the registry.
    high_water: u32,
    positive: u32,
    negative: u32,
}

fn micros(value: u32) -> Nanos {
    Nanos::from_micros(value.into())
}

const REGISTRY: u32 = 1 << Scheme::Registry.value();

/// Returns the number of entries that the registry has, at the lowest indices, with the schemes `on`.
const fn registry_share(build: &NiBuild, on: u32) -> u16 {
    if on == REGISTRY {
        build.registry_entries
    } else if on & REGISTRY != 0 {
        build.registry_entries.div_ceil(2)
    } else {
        0
    }
}

/// Senders that a receiver knows at the same time, and their transfers in progress, at least: a node is known until the registry timeout
/// after its last packet.
const SENDER_RECORDS: u16 = 512;

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
    config.transfers = entries.saturating_mul(2).clamp(SENDER_RECORDS, 4096);
    config.sources = SENDER_RECORDS;
    Receiver::new(config)
}

impl MessageNode {
    /// Creates a node for the active message schemes, with contexts behind the registry's entries. Returns `None` if this build does not
    /// support it.
    fn new(build: &NiBuild, settings: &Settings) -> Option<Self> {
        let node = NodeId::new(settings.node_id);
        let incarnation = Incarnation::new(settings.incarnation);
        let on = settings.active_schemes();
        let first_entry = registry_share(build, on);
        let trip = Nanos::new(settings.round_trip_ns.into());
        let mut of = Scheme::ALL
            .iter()
            .filter(|scheme| on >> scheme.value() & 1 != 0)
            .filter_map(|scheme| settings.rules(*scheme));
        // SCHEME, unless it is the registry: then every command names its scheme, and the default here has no effect.
        let default = Scheme::try_from(settings.scheme).ok().and_then(|scheme| settings.rules(scheme));
        let first = default.or_else(|| of.clone().next())?;
        let others = of.by_ref().fold(SchemeSet::NONE, SchemeSet::with);
        let mut config = messages::SenderConfig::new(node, first);
        config.others = others;
        config.packet_size_log2 = build.packet_size_log2;
        config.message_packets = settings.message_packets;
        config.paths = u16::try_from(settings.paths).unwrap_or(1);
        config.congestion = config.congestion.filter(|_| settings.has_windows());
        config.contexts = build.sending_contexts.into();
        config.transfers = build.commands.into();
        config.ask = trip;
        let mut sender = messages::Sender::new(config, incarnation).ok()?;
        if let Some(flow) = settings.link.flow(trip) {
            sender.control_flow(flow);
        }
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
        // A peer's records of this node's messages expire before their numbers are reused; peers are configured with the same times.
        let tombstone = silence.saturating_add(lifetime);
        self.sender.set_identity(node, incarnation);
        self.sender.set_times(micros(settings.give_up_us), tombstone.saturating_add(lifetime));
        self.receiver.set_identity(node, incarnation);
        self.receiver.set_timeouts(silence, tombstone, lifetime);
    }
}

impl ActiveSchemes {
    /// Creates the state of the registry scheme.
    pub(super) fn registry(build: &NiBuild, settings: &Settings) -> Result<Self, ReceiverConfigError> {
        let mut exchange = Self::Registry(registry_receiver(build, settings, build.registry_entries)?);
        exchange.apply(settings);
        Ok(exchange)
    }

    /// Creates the state that `settings` select, empty except for memory windows. Returns `None` if this build does not support it.
    pub(super) fn new(build: &NiBuild, settings: &Settings, access: Option<&AccessTable>) -> Option<Self> {
        let on = settings.active_schemes();
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

    /// Applies the settings that may change at any time.
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

    /// Message node, if a message scheme is active.
    pub(super) fn messages(&self) -> Option<&MessageNode> {
        match self {
            Self::Registry(_) => None,
            Self::Messages(node) | Self::Both(_, node) => Some(node),
        }
    }

    /// Mutable variant of [`Self::messages`].
    pub(super) fn messages_mut(&mut self) -> Option<&mut MessageNode> {
        match self {
            Self::Registry(_) => None,
            Self::Messages(node) | Self::Both(_, node) => Some(node),
        }
    }

    /// Returns whether transmit windows may hold packets of segments, and whether they may hold commands.
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

    /// Swaps the table of memory windows between the registry's receiver and the node. There is one table; its placeholder in the other
    /// one has no open windows.
    pub(super) fn move_access_table(&mut self) {
        if let Self::Both(receiver, node) = self {
            core::mem::swap(receiver.access_mut(), node.receiver.access_mut());
        }
    }

    /// Registry entry or receive context at `index`.
    pub(super) fn entry(&self, index: u16, now: Nanos) -> Option<EntryView> {
        if let Self::Registry(receiver) | Self::Both(receiver, _) = self
            && let Some(entry) = receiver.entry(index, now)
        {
            return Some(entry);
        }
        let node = self.messages()?;
        node.receiver.entry(index.checked_sub(node.first_entry)?, now)
    }

    /// Escape slot at `index`; only the registry scheme has escape slots.
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

    /// Returns the number of registry entries and receive contexts in use, and its maximum so far.
    pub(super) fn occupancy(&self) -> (u32, u32) {
        let most = match self {
            Self::Registry(receiver) => receiver.counters().registry_high_water,
            Self::Messages(node) | Self::Both(_, node) => node.high_water,
        };
        (self.in_use(), most)
    }

    /// Updates the high-water mark of a node.
    pub(super) fn note_high_water(&mut self) {
        let used = self.in_use();
        if let Some(node) = self.messages_mut() {
            node.high_water = node.high_water.max(used);
        }
    }

    /// Returns the number of escape slots in use, and its maximum so far.
    pub(super) fn escape_occupancy(&self) -> (u32, u32) {
        match self {
            Self::Registry(receiver) | Self::Both(receiver, _) => {
                (receiver.escape_occupancy().into(), receiver.counters().escape_high_water.into())
            }
            Self::Messages(_) => (0, 0),
        }
    }

    /// Register of the counters block, summed over the active schemes.
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
    low32(match register {
        counters::DUPLICATES => counted.duplicates,
        counters::REGISTRATIONS => counted.registrations,
        counters::COMPLETIONS => counted.completions,
        counters::ESCAPE_HITS => counted.escape_hits,
        counters::ESCAPE_DROPPED => counted.escape_dropped,
        counters::REGISTRY_FULL => counted.registry_full,
        counters::BAD_PACKET => counted.bad_packets,
        counters::VIOLATIONS => counted.violations,
        counters::TOMBSTONE_HITS => counted.tombstone_hits,
        counters::TRIMMED => counted.trimmed,
        counters::EXPIRED => counted.expired,
        counters::NACKS_SENT => counted.nacks,
        counters::ACKS_SENT => counted.acks,
        _ => 0,
    })
}

fn live(receiver: &messages::Receiver) -> u32 {
    u32::try_from(receiver.live()).unwrap_or(u32::MAX)
}

/// Next action of a node.
pub(super) enum NodeAction {
    Send(Header),
    Event(Event),
}

impl MessageNode {
    fn counter(&self, register: u32) -> u32 {
        let counted = self.receiver.counters();
        low32(match register {
            counters::DUPLICATES => counted.duplicates,
            counters::REGISTRATIONS => counted.begun,
            counters::COMPLETIONS => counted.complete,
            counters::REGISTRY_FULL => counted.busy,
            counters::BAD_PACKET => counted.bad_packets,
            counters::VIOLATIONS => counted.violations,
            counters::TOMBSTONE_HITS => counted.delayed_duplicates,
            counters::EXPIRED => counted.abandoned,
            counters::NACKS_SENT => self.negative.into(),
            counters::ACKS_SENT => self.positive.into(),
            counters::RATES_LOWERED => self.sender.flow().map_or(0, |flow| flow.changes().0),
            counters::RATES_RAISED => self.sender.flow().map_or(0, |flow| flow.changes().1),
            _ => 0,
        })
    }

    /// Rate towards the receiver in slot `slot` of the flow control.
    pub(super) fn rate(&self, slot: u32) -> Option<RateView> {
        self.sender.flow()?.receiver(slot)
    }

    /// Returns the number of receivers with a slot of the flow control, and of those on the controlled list.
    pub(super) fn rate_occupancy(&self) -> (u32, u32) {
        let count = |controlled: bool| {
            let views = self.sender.flow().into_iter().flat_map(FlowControl::receivers);
            let counted = views.filter(|view| !controlled || view.is_controlled()).count();
            u32::try_from(counted).unwrap_or(u32::MAX)
        };
        (count(false), count(true))
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        [self.sender.poll_timeout(), self.receiver.poll_timeout()].into_iter().flatten().min()
    }

    /// Accepts a transfer from the host. A transfer that cannot be executed ends at once.
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
        // The registry scheme has no commands; where it is the default, a command has to name its own scheme.
        let scheme = header.command.scheme.or(default);
        if inside
            && let Some(scheme) = scheme
            && let Ok(ticket) = self.sender.submit_by(now, command, scheme)
        {
            let place = self.numbers.get_mut(index(ticket.slot()));
            if let Some(place) = place.debug_expect("a number for each slot of the sender") {
                *place = Some((number, ticket));
            }
            return Ok(());
        }
        let (node, address) = (command.node, command.destination);
        Err(end_event(
            number,
            &CommandCompletion::refused(&command, now, SendFailure::NotTaken { node, address }),
        ))
    }

    /// Cancels command `number` if it is in progress.
    pub(super) fn cancel(&mut self, now: Nanos, number: u32) {
        let found = self.numbers.iter().flatten().find(|(given, _)| *given == number);
        if let Some((_, ticket)) = found.copied() {
            self.sender.cancel(now, ticket);
        }
    }

    /// Message in progress, with the number of its command.
    pub(super) fn context(&self, slot: u32, now: Nanos) -> Option<(u32, messages::ContextView)> {
        let inside = slot < self.sender.config().contexts;
        let view = inside.then(|| self.sender.context(slot, now)).flatten()?;
        Some((self.number_of(view.ticket)?, view))
    }

    fn number_of(&self, ticket: SendTicket) -> Option<u32> {
        let slot = usize::try_from(ticket.slot()).ok()?;
        let (number, given) = self.numbers.get(slot).copied().flatten()?;
        (given == ticket).then_some(number)
    }

    /// Processes a packet from the network.
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

    /// Processes a packet with link feedback.
    pub(super) fn handle_link_packet(&mut self, now: Nanos, packet: &LinkPacket) {
        self.sender.handle_packet(now, &Header::Link(*packet));
    }

    /// Next packet to send or event to report, except packets of messages.
    ///
    /// Progress of a transfer is reported only if `has_space` returns true: there is space for events that are not essential.
    pub(super) fn poll(&mut self, has_space: impl FnOnce() -> bool) -> Option<NodeAction> {
        if let Some(action) = self.receiver.poll_action() {
            return Some(match action {
                Action::Event(event) => NodeAction::Event(self.shifted(event)),
                Action::Send(header) => {
                    let refused = matches!(
                        &header,
                        Header::Message(Message::Answer(MessageAnswer { body: AnswerBody::Refused(..), .. }))
                    );
                    let count = if refused { &mut self.negative } else { &mut self.positive };
                    *count = count.wrapping_add(1);
                    NodeAction::Send(header)
                }
            });
        }
        if self.sender.has_progress() && has_space() {
            while let Some(progress) = self.sender.poll_progress() {
                if let Some(number) = self.number_of(progress.ticket) {
                    return Some(NodeAction::Event(progress_event(number, &progress)));
                }
            }
        }
        while let Some(done) = self.sender.poll_completion() {
            if let Some(number) = self.number_of(done.ticket) {
                if let Some(place) = self.numbers.get_mut(index(done.ticket.slot())) {
                    *place = None;
                }
                return Some(NodeAction::Event(end_event(number, &done)));
            }
        }
        None
    }

    /// Converts the context index of an event to the host's index.
    fn shifted(&self, event: Event) -> Event {
        match event.kind {
            EventKind::Registered | EventKind::Completed | EventKind::Expired => {
                Event { index: event.index.saturating_add(self.first_entry), ..event }
            }
            _ => event,
        }
    }

    /// Sends the next packet of a message, or a link packet. Returns `None` if there is none to send now, otherwise the fault, if any.
    pub(super) fn transmit(
        &mut self,
        now: Nanos,
        space: &CardSpace,
        frames: &mut FrameQueue,
        counts: &mut LinkCounts,
    ) -> Option<Option<Fault>> {
        let departure = self.sender.poll_packet(now)?;
        let message = match departure.header {
            Header::Message(message) => message,
            Header::Link(packet) => {
                if frames.send(0, |buffer| packet.encode(buffer)).is_ok() {
                    counts.note_sent(&packet.word);
                }
                return Some(None);
            }
            Header::Data(_) | Header::Control(_) => return Some(None),
        };
        let payload = self.payload.get_mut(..index(departure.payload)).debug_expect("space for a packet")?;
        if let Err((_, address)) = space.read(departure.source, payload) {
            // Treated like a packet lost in the network: the transfer will be given up.
            let node = message.common().destination.get();
            let fault = Fault::new(FaultReason::MemoryFault);
            return Some(Some(Fault {
                node,
                address: address.get(),
                length: departure.payload.into(),
                ..fault
            }));
        }
        // The sender's packets can always be encoded; a failure counts as a lost packet.
        let _ = frames.send(payload.len(), |buffer| message.encode(payload, buffer));
        Some(None)
    }
}
