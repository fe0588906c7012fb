//! Sender and receiver of any message scheme of a card, selected at configuration time.

use fpga_firmware::generated::Scheme;

use super::adaptive_window::TimeoutRule;
pub use super::message_scheme::SchemeSet;
use super::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use super::{
    Answer, Disposition, MAX_MESSAGE_PACKETS, MessageReceiver, MessageSender, Packet, ReceivePath,
    adaptive_window, mapping, receiver_window, selective,
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
            Scheme::AdaptiveWindow => Self::AdaptiveWindow {
                sender: adaptive_window::AdaptiveWindowConfig::new(round_trip),
                overdue: Some(round_trip),
            },
            Scheme::Selective => Self::Selective(selective::SelectiveConfig::new(round_trip)),
            _ => return None,
        })
    }

    /// Returns the scheme with acknowledgements while a message is in progress, which a congestion window needs: limits of the
    /// receiver window. Other schemes acknowledge packets anyway.
    #[must_use]
    pub const fn acknowledging(mut self) -> Self {
        if let Self::ReceiverWindow(config) = &mut self {
            config.credit = true;
        }
        self
    }
}

impl MessageScheme for SchemeConfig {
    type Sender = AnyMessageSender;
    type Receiver = AnyMessageReceiver;

    fn scheme(&self) -> Scheme {
        match self {
            Self::ReceiverWindow(_) => Scheme::ReceiverWindow,
            Self::AdaptiveWindow { .. } => Scheme::AdaptiveWindow,
            Self::Selective(_) => Scheme::Selective,
        }
    }

    fn sending(&self) -> AnyMessageSender {
        match *self {
            Self::ReceiverWindow(config) => AnyMessageSender::ReceiverWindow(receiver_window::Sender::new(
                config,
                MAX_MESSAGE_PACKETS,
                Nanos::ZERO,
            )),
            Self::AdaptiveWindow { sender, .. } => {
                AnyMessageSender::AdaptiveWindow(adaptive_window::Sender::new(sender, MAX_MESSAGE_PACKETS))
            }
            Self::Selective(config) => {
                AnyMessageSender::Selective(selective::Sender::new(config, MAX_MESSAGE_PACKETS))
            }
        }
    }

    fn receiving(&self) -> AnyMessageReceiver {
        match *self {
            Self::ReceiverWindow(config) => {
                AnyMessageReceiver::ReceiverWindow(receiver_window::Receiver::new(config, Nanos::ZERO))
            }
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

/// Sender of a message of any scheme, reused for one message after another.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "documented in the modules of these names")]
#[non_exhaustive]
pub enum AnyMessageSender {
    ReceiverWindow(receiver_window::Sender),
    AdaptiveWindow(adaptive_window::Sender),
    Selective(selective::Sender),
}

/// Receiver of a message of any scheme, reused for one message after another.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "documented in the modules of these names")]
#[non_exhaustive]
pub enum AnyMessageReceiver {
    ReceiverWindow(receiver_window::Receiver),
    Mapping(mapping::Receiver),
}

macro_rules! sending {
    ($end:expr, $it:ident => $body:expr) => {
        match $end {
            AnyMessageSender::ReceiverWindow($it) => $body,
            AnyMessageSender::AdaptiveWindow($it) => $body,
            AnyMessageSender::Selective($it) => $body,
        }
    };
}

macro_rules! receiving {
    ($end:expr, $it:ident => $body:expr) => {
        match $end {
            AnyMessageReceiver::ReceiverWindow($it) => $body,
            AnyMessageReceiver::Mapping($it) => $body,
        }
    };
}

impl ReusableSender for AnyMessageSender {
    fn scheme(&self) -> Scheme {
        match self {
            Self::ReceiverWindow(_) => Scheme::ReceiverWindow,
            Self::AdaptiveWindow(_) => Scheme::AdaptiveWindow,
            Self::Selective(_) => Scheme::Selective,
        }
    }

    fn begin(&mut self, now: Nanos, count: u32, new_node: bool, trip: &RoundTrip) {
        match self {
            Self::ReceiverWindow(end) => end.begin(count, now, trip),
            Self::AdaptiveWindow(end) => end.begin(count, new_node, trip),
            Self::Selective(end) => end.begin(count, new_node, trip),
        }
    }

    fn learn(&mut self, now: Nanos, trip: &RoundTrip) {
        match self {
            Self::ReceiverWindow(end) => end.learn(trip),
            Self::AdaptiveWindow(end) => end.learn(now, trip),
            Self::Selective(end) => end.learn(now, trip),
        }
    }

    fn state(&self) -> Vec<StateTable> {
        sending!(self, end => end.state())
    }

    fn requests_context(&self) -> bool {
        matches!(self, Self::ReceiverWindow(_))
    }

    #[inline]
    fn in_flight(&self) -> Option<(u32, u32)> {
        match self {
            Self::ReceiverWindow(end) => end.in_flight(),
            Self::AdaptiveWindow(end) => Some(end.in_flight()),
            Self::Selective(end) => Some(end.in_flight()),
        }
    }

    #[inline]
    fn take_delay(&mut self) -> Option<Nanos> {
        sending!(self, end => end.take_delay())
    }

    #[inline]
    fn take_covered(&mut self) -> u32 {
        match self {
            Self::ReceiverWindow(end) => end.take_covered(),
            _ => 0,
        }
    }

    fn take_inquiry(&mut self) -> bool {
        match self {
            Self::AdaptiveWindow(end) => end.take_inquiry(),
            _ => false,
        }
    }

    fn base(&self) -> u32 {
        match self {
            Self::ReceiverWindow(_) => 0,
            Self::AdaptiveWindow(end) => end.base(),
            Self::Selective(end) => end.base(),
        }
    }
}

impl ReusableReceiver for AnyMessageReceiver {
    fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath) {
        match self {
            Self::ReceiverWindow(end) => end.begin(now, count, path),
            Self::Mapping(end) => end.begin(path),
        }
    }

    fn state(&self) -> Vec<StateTable> {
        receiving!(self, end => end.state())
    }

    fn has_packet(&self, index: u32) -> bool {
        receiving!(self, end => end.has_packet(index))
    }

    fn path(&self) -> Option<ReceivePath> {
        match self {
            Self::ReceiverWindow(end) => Some(end.path()),
            Self::Mapping(end) => end.path(),
        }
    }

    fn note_repeated_request(&mut self) {
        if let Self::ReceiverWindow(end) = self {
            end.note_repeated_request();
        }
    }
}

impl MessageSender for AnyMessageSender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        sending!(self, end => end.handle_answer(now, answer));
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        sending!(self, end => end.handle_timeout(now))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Nanos> {
        sending!(self, end => end.poll_timeout())
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        sending!(self, end => end.poll_packet(now))
    }

    #[inline]
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

    #[inline]
    fn poll_timeout(&self) -> Option<Nanos> {
        receiving!(self, end => end.poll_timeout())
    }

    #[inline]
    fn poll_answer(&mut self) -> Option<Answer> {
        receiving!(self, end => end.poll_answer())
    }

    #[inline]
    fn is_complete(&self) -> bool {
        receiving!(self, end => end.is_complete())
    }
}
