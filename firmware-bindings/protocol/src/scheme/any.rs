//! Sender and receiver of any scheme, selected at configuration time.

use fpga_firmware::generated::Scheme;

use super::adaptive_window::TimeoutRule;
use super::{
    Answer, Disposition, MAX_MESSAGE_PACKETS, MessageReceiver, MessageSender, Packet, ReceivePath,
    adaptive_window, mapping, receiver_counter, receiver_window, selective, sender_window,
};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use alloc::vec::Vec;

/// Scheme with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SchemeConfig {
    /// See [`receiver_window`].
    ReceiverWindow(receiver_window::ReceiverWindowConfig),
    /// See [`sender_window`].
    SenderWindow(sender_window::SenderWindowConfig),
    /// See [`receiver_counter`].
    ReceiverCounter(receiver_counter::ReceiverCounterConfig),
    /// See [`adaptive_window`].
    AdaptiveWindow {
        /// Parameters of the sender.
        sender: adaptive_window::AdaptiveWindowConfig,
        /// Time after which the receiver requests missing packets in the literal form; otherwise it follows the disorder
        /// of the path. `None`: only the sender decides.
        overdue: Option<Nanos>,
    },
    /// See [`selective`].
    Selective(selective::SelectiveConfig),
}

impl SchemeConfig {
    /// Returns the specification's parameters of `scheme` for a round trip of `round_trip`; `None` for the registry
    /// scheme, which has no messages.
    #[must_use]
    pub const fn new(scheme: Scheme, round_trip: Nanos) -> Option<Self> {
        Some(match scheme {
            Scheme::ReceiverWindow => {
                Self::ReceiverWindow(receiver_window::ReceiverWindowConfig::new(round_trip))
            }
            Scheme::SenderWindow => Self::SenderWindow(sender_window::SenderWindowConfig::new(round_trip)),
            Scheme::ReceiverCounter => {
                Self::ReceiverCounter(receiver_counter::ReceiverCounterConfig::new(round_trip))
            }
            Scheme::AdaptiveWindow => Self::AdaptiveWindow {
                sender: adaptive_window::AdaptiveWindowConfig::new(round_trip),
                overdue: Some(round_trip),
            },
            Scheme::Selective => Self::Selective(selective::SelectiveConfig::new(round_trip)),
            _ => return None,
        })
    }

    /// Returns the scheme.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        match self {
            Self::ReceiverWindow(_) => Scheme::ReceiverWindow,
            Self::SenderWindow(_) => Scheme::SenderWindow,
            Self::ReceiverCounter(_) => Scheme::ReceiverCounter,
            Self::AdaptiveWindow { .. } => Scheme::AdaptiveWindow,
            Self::Selective(_) => Scheme::Selective,
        }
    }

    /// Returns the scheme with acknowledgements while a message is in progress, which a congestion window needs: limits of the
    /// receiver window, reports of the receiver counter. Other schemes acknowledge packets anyway.
    #[must_use]
    pub const fn acknowledging(mut self) -> Self {
        match &mut self {
            Self::ReceiverWindow(config) => config.credit = true,
            Self::ReceiverCounter(config) => config.reports = true,
            _ => {}
        }
        self
    }

    /// Creates a sender with space for the longest message.
    #[must_use]
    pub fn sending(&self) -> AnyMessageSender {
        match *self {
            Self::ReceiverWindow(config) => AnyMessageSender::ReceiverWindow(receiver_window::Sender::new(
                config,
                MAX_MESSAGE_PACKETS,
                Nanos::ZERO,
            )),
            Self::SenderWindow(config) => {
                AnyMessageSender::SenderWindow(sender_window::Sender::new(config, MAX_MESSAGE_PACKETS))
            }
            Self::ReceiverCounter(config) => {
                AnyMessageSender::ReceiverCounter(receiver_counter::Sender::new(config, MAX_MESSAGE_PACKETS))
            }
            Self::AdaptiveWindow { sender, .. } => {
                AnyMessageSender::AdaptiveWindow(adaptive_window::Sender::new(sender, MAX_MESSAGE_PACKETS))
            }
            Self::Selective(config) => {
                AnyMessageSender::Selective(selective::Sender::new(config, MAX_MESSAGE_PACKETS))
            }
        }
    }

    /// Creates a receiver with space for the longest message.
    #[must_use]
    pub fn receiving(&self) -> AnyMessageReceiver {
        match *self {
            Self::ReceiverWindow(config) => {
                AnyMessageReceiver::ReceiverWindow(receiver_window::Receiver::new(config, Nanos::ZERO))
            }
            Self::SenderWindow(_) => {
                AnyMessageReceiver::SenderWindow(sender_window::Receiver::new(MAX_MESSAGE_PACKETS))
            }
            Self::ReceiverCounter(config) => AnyMessageReceiver::ReceiverCounter(
                receiver_counter::Receiver::new(config, MAX_MESSAGE_PACKETS),
            ),
            Self::AdaptiveWindow { overdue: wanted, sender } => {
                AnyMessageReceiver::Mapping(match (wanted, sender.patience) {
                    (Some(gap), TimeoutRule::Safe) => mapping::Receiver::adaptive(mapping::WIDTH, gap),
                    (wanted, _) => mapping::Receiver::new(mapping::WIDTH, wanted),
                })
            }
            Self::Selective(config) => {
                AnyMessageReceiver::Mapping(mapping::Receiver::new(config.window, None))
            }
        }
    }
}

/// Additional schemes of a node beside its default, at most one set of parameters per message scheme. A transfer may
/// select any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SchemeSet([Option<SchemeConfig>; 5]);

impl SchemeSet {
    /// The empty set.
    pub const NONE: Self = Self([None; 5]);

    /// Adds `rules`, replacing other parameters of the same scheme.
    #[must_use]
    pub fn with(mut self, rules: SchemeConfig) -> Self {
        let same =
            |place: &&mut Option<SchemeConfig>| place.is_none_or(|known| known.scheme() == rules.scheme());
        if let Some(place) = self.0.iter_mut().find(same) {
            *place = Some(rules);
        }
        self
    }

    /// Returns the schemes of the set other than `default`.
    pub(super) fn without(&self, default: Scheme) -> impl Iterator<Item = SchemeConfig> + Clone + '_ {
        self.0.iter().copied().flatten().filter(move |rules| rules.scheme() != default)
    }
}

/// Sender of a message of any scheme, reused for one message after another.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "documented in the modules of these names")]
#[non_exhaustive]
pub enum AnyMessageSender {
    ReceiverWindow(receiver_window::Sender),
    SenderWindow(sender_window::Sender),
    ReceiverCounter(receiver_counter::Sender),
    AdaptiveWindow(adaptive_window::Sender),
    Selective(selective::Sender),
}

/// Receiver of a message of any scheme, reused for one message after another.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "documented in the modules of these names")]
#[non_exhaustive]
pub enum AnyMessageReceiver {
    ReceiverWindow(receiver_window::Receiver),
    SenderWindow(sender_window::Receiver),
    ReceiverCounter(receiver_counter::Receiver),
    Mapping(mapping::Receiver),
}

macro_rules! each {
    ($end:expr, $ends:ident: $($name:ident),+; $it:ident => $body:expr) => {
        match $end { $($ends::$name($it) => $body),+ }
    };
}

macro_rules! sending {
    ($end:expr, $it:ident => $body:expr) => {
        each!($end, AnyMessageSender: ReceiverWindow, SenderWindow, ReceiverCounter, AdaptiveWindow, Selective; $it => $body)
    };
}

macro_rules! receiving {
    ($end:expr, $it:ident => $body:expr) => {
        each!($end, AnyMessageReceiver: ReceiverWindow, SenderWindow, ReceiverCounter, Mapping; $it => $body)
    };
}

impl AnyMessageSender {
    /// Returns the scheme.
    #[must_use]
    pub const fn scheme(&self) -> Scheme {
        match self {
            Self::ReceiverWindow(_) => Scheme::ReceiverWindow,
            Self::SenderWindow(_) => Scheme::SenderWindow,
            Self::ReceiverCounter(_) => Scheme::ReceiverCounter,
            Self::AdaptiveWindow(_) => Scheme::AdaptiveWindow,
            Self::Selective(_) => Scheme::Selective,
        }
    }

    /// Returns the fields of the state with their sizes in memory. Parameters are not counted.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        sending!(self, end => end.state())
    }

    /// Whether a context is requested before the first packet. In the other schemes any packet can begin its message.
    #[must_use]
    pub const fn requests_context(&self) -> bool {
        matches!(self, Self::ReceiverWindow(_) | Self::ReceiverCounter(_))
    }

    /// Whether answers give delays, so that a lowered rate can rise again.
    #[must_use]
    pub fn gives_delays(&self) -> bool {
        self.in_flight().is_some()
    }

    /// Returns the delay of the last answer, once; `None` where the scheme does not measure it.
    pub fn take_delay(&mut self) -> Option<Nanos> {
        match self {
            Self::ReceiverWindow(end) => end.take_delay(),
            Self::SenderWindow(end) => end.take_delay(),
            Self::ReceiverCounter(end) => end.take_delay(),
            Self::AdaptiveWindow(end) => end.take_delay(),
            Self::Selective(end) => end.take_delay(),
        }
    }

    /// Returns the number of packets that answers have covered since the last call, other than by the answers that gave a
    /// delay: of a receiver window with credits, and of a receiver counter with reports.
    pub fn take_covered(&mut self) -> u32 {
        match self {
            Self::ReceiverWindow(end) => end.take_covered(),
            Self::ReceiverCounter(end) => end.take_covered(),
            _ => 0,
        }
    }

    /// Whether so many packets were late that an inquiry to the links on the path is due. Returns true once per
    /// inquiry.
    pub const fn take_inquiry(&mut self) -> bool {
        match self {
            Self::AdaptiveWindow(end) => end.take_inquiry(),
            _ => false,
        }
    }

    /// Returns the number of packets in flight, and of those marked for retransmission (receiver counter: lost in
    /// earlier rounds); `None` where the receiver does not acknowledge packets: receiver window without credits, and
    /// receiver counter without reports.
    #[must_use]
    pub fn in_flight(&self) -> Option<(u32, u32)> {
        match self {
            Self::ReceiverWindow(end) => end.in_flight(),
            Self::ReceiverCounter(end) => end.in_flight(),
            Self::SenderWindow(end) => Some(end.in_flight()),
            Self::AdaptiveWindow(end) => Some(end.in_flight()),
            Self::Selective(end) => Some(end.in_flight()),
        }
    }

    /// Returns the lowest packet that is not acknowledged; 0 where answers do not carry it.
    #[must_use]
    pub const fn base(&self) -> u32 {
        match self {
            Self::ReceiverWindow(_) | Self::ReceiverCounter(_) => 0,
            Self::SenderWindow(end) => end.base(),
            Self::AdaptiveWindow(end) => end.base(),
            Self::Selective(end) => end.base(),
        }
    }

    /// Restarts with a message of `count` packets, on a path with the round trip `trip`. `new_node`: it goes to another
    /// node than the previous one.
    pub fn begin(&mut self, now: Nanos, count: u32, new_node: bool, trip: &RoundTrip) {
        match self {
            Self::ReceiverWindow(end) => end.begin(count, now, trip),
            Self::SenderWindow(end) => end.begin(count, trip),
            Self::ReceiverCounter(end) => end.begin(count, trip),
            Self::AdaptiveWindow(end) => end.begin(count, new_node, trip),
            Self::Selective(end) => end.begin(count, new_node, trip),
        }
    }

    /// Sets the round trip of the path, after its first sample: timers that run with a guess become shorter.
    pub fn learn(&mut self, now: Nanos, trip: &RoundTrip) {
        match self {
            Self::ReceiverWindow(end) => end.learn(trip),
            Self::SenderWindow(end) => end.learn(now, trip),
            Self::ReceiverCounter(end) => end.learn(trip),
            Self::AdaptiveWindow(end) => end.learn(now, trip),
            Self::Selective(end) => end.learn(now, trip),
        }
    }
}

impl AnyMessageReceiver {
    /// Restarts with a message of `count` packets, of a sender with the path measurements `path`.
    pub fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath) {
        match self {
            Self::ReceiverWindow(end) => end.begin(now, count, path),
            Self::SenderWindow(end) => end.begin(),
            Self::ReceiverCounter(end) => end.begin(now, count, path),
            Self::Mapping(end) => end.begin(path),
        }
    }

    /// Returns the fields of the state with their sizes in memory. Parameters and pending answers are not counted.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        receiving!(self, end => end.state())
    }

    /// Returns the measurements of the path from the sender, for the next message; `None` where nothing is measured.
    #[must_use]
    pub const fn path(&self) -> Option<ReceivePath> {
        match self {
            Self::ReceiverWindow(end) => Some(end.path()),
            Self::SenderWindow(_) => None,
            Self::ReceiverCounter(end) => Some(end.path()),
            Self::Mapping(end) => end.path(),
        }
    }

    /// Records that the request for a context was answered again.
    pub const fn note_repeated_request(&mut self) {
        match self {
            Self::ReceiverWindow(end) => end.note_repeated_request(),
            Self::ReceiverCounter(end) => end.note_repeated_request(),
            Self::SenderWindow(_) | Self::Mapping(_) => {}
        }
    }

    /// Returns the lowest missing of `count` packets, and a bitmap of the received packets from there on: bit 0 of word
    /// 0 first, with the bits beyond the message set. For a display.
    #[must_use]
    pub fn bitmap(&self, count: u32) -> (u32, [u32; 8]) {
        let holds = |index| receiving!(self, end => end.has_packet(index));
        let first = (0..count).find(|index| !holds(*index)).unwrap_or(count);
        let mut words = [0_u32; 8];
        for (word, base) in words.iter_mut().zip((first..).step_by(32)) {
            for bit in 0..32 {
                *word |= u32::from(base + bit >= count || holds(base + bit)) << bit;
            }
        }
        (first, words)
    }
}

impl MessageSender for AnyMessageSender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        sending!(self, end => end.handle_answer(now, answer));
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        sending!(self, end => end.handle_timeout(now))
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        sending!(self, end => end.poll_timeout())
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        sending!(self, end => end.poll_packet(now))
    }

    fn is_done(&self) -> bool {
        sending!(self, end => end.is_done())
    }
}

impl MessageReceiver for AnyMessageReceiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        receiving!(self, end => end.handle_packet(now, packet))
    }

    fn handle_timeout(&mut self, now: Nanos) {
        receiving!(self, end => end.handle_timeout(now));
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        receiving!(self, end => end.poll_timeout())
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        receiving!(self, end => end.poll_answer())
    }

    fn is_complete(&self) -> bool {
        receiving!(self, end => end.is_complete())
    }
}
