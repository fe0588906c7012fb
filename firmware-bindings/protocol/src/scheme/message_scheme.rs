//! Interface between a scheme and the message layer ([`messages`](super::messages)).
//!
//! The layer is generic over [`MessageScheme`]: a node's scheme, or several that are selected at run time, without dynamic dispatch.
//! Cards run those of [`any`](super::any); the network simulator has comparison baselines in addition.

use alloc::vec::Vec;
use core::fmt::Debug;

use fpga_firmware::generated::Scheme;

use super::{MessageReceiver, MessageSender, ReceivePath};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;

/// Parameters of a scheme, which create its senders and receivers.
pub trait MessageScheme: Copy {
    /// Sender of a context.
    type Sender: ReusableSender;
    /// Receiver of a context.
    type Receiver: ReusableReceiver;

    /// Returns the number of the scheme in packets.
    fn scheme(&self) -> Scheme;

    /// Creates a sender with space for the longest message.
    fn sending(&self) -> Self::Sender;

    /// Creates a receiver with space for the longest message.
    fn receiving(&self) -> Self::Receiver;
}

/// Sender of messages, one after another. The defaults are those of a scheme whose receiver does not acknowledge packets.
pub trait ReusableSender: MessageSender + Clone + Debug {
    /// Returns the number of the scheme in packets.
    fn scheme(&self) -> Scheme;

    /// Restarts with a message of `count` packets, on a path with the round trip `trip`. `new_node`: it goes to another
    /// node than the previous one.
    fn begin(&mut self, now: Nanos, count: u32, new_node: bool, trip: &RoundTrip);

    /// Sets the round trip of the path, after its first sample: timers that run with a guess become shorter.
    fn learn(&mut self, now: Nanos, trip: &RoundTrip);

    /// Returns the fields of the state with their sizes in memory. Parameters are not counted.
    fn state(&self) -> Vec<StateTable>;

    /// Whether a context is requested before the first packet. In the other schemes any packet can begin its message.
    fn requests_context(&self) -> bool {
        false
    }

    /// Whether all packets of a round use the same path identifier.
    fn uses_one_route(&self) -> bool {
        false
    }

    /// Returns the number of packets in flight, and of those marked for retransmission; `None` where the receiver does not
    /// acknowledge packets.
    fn in_flight(&self) -> Option<(u32, u32)> {
        None
    }

    /// Whether answers give delays, so that a lowered rate can rise again.
    fn gives_delays(&self) -> bool {
        self.in_flight().is_some()
    }

    /// Returns the delay of the last answer, once; `None` where the scheme does not measure it.
    fn take_delay(&mut self) -> Option<Nanos> {
        None
    }

    /// Returns the number of packets that answers have covered since the last call, other than by the answers that gave a
    /// delay.
    fn take_covered(&mut self) -> u32 {
        0
    }

    /// Whether so many packets were late that an inquiry to the links on the path is due. Returns true once per
    /// inquiry.
    fn take_inquiry(&mut self) -> bool {
        false
    }

    /// Returns the lowest packet that is not acknowledged; 0 where answers do not carry it.
    fn base(&self) -> u32 {
        0
    }
}

/// Receiver of messages, one after another.
pub trait ReusableReceiver: MessageReceiver + Clone + Debug {
    /// Restarts with a message of `count` packets, of a sender with the path measurements `path`.
    fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath);

    /// Returns the fields of the state with their sizes in memory. Parameters and pending answers are not counted.
    fn state(&self) -> Vec<StateTable>;

    /// Whether packet `index` is received.
    fn has_packet(&self, index: u32) -> bool;

    /// Returns the measurements of the path from the sender, for the next message; `None` where nothing is measured.
    fn path(&self) -> Option<ReceivePath> {
        None
    }

    /// Records that the request for a context was answered again.
    fn note_repeated_request(&mut self) {}

    /// Returns the lowest missing of `count` packets, and a bitmap of the received packets from there on: bit 0 of word
    /// 0 first, with the bits beyond the message set. For a display.
    fn bitmap(&self, count: u32) -> (u32, [u32; 8]) {
        let first = (0..count).find(|index| !self.has_packet(*index)).unwrap_or(count);
        let mut words = [0_u32; 8];
        for (word, base) in words.iter_mut().zip((first..).step_by(32)) {
            for bit in 0..32 {
                *word |= u32::from(base + bit >= count || self.has_packet(base + bit)) << bit;
            }
        }
        (first, words)
    }
}

/// Additional schemes of a node beside its default, at most one set of parameters per message scheme. A transfer may
/// select any of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SchemeSet<R>([Option<R>; 3]);

impl<R: MessageScheme> SchemeSet<R> {
    /// The empty set.
    pub const NONE: Self = Self([None; 3]);

    /// Adds `rules`, replacing other parameters of the same scheme.
    #[must_use]
    pub fn with(mut self, rules: R) -> Self {
        let same = |place: &&mut Option<R>| place.is_none_or(|known| known.scheme() == rules.scheme());
        if let Some(place) = self.0.iter_mut().find(same) {
            *place = Some(rules);
        }
        self
    }

    /// Returns the schemes of the set other than `default`.
    pub(super) fn without(&self, default: Scheme) -> impl Iterator<Item = R> + Clone + '_ {
        self.0.iter().copied().flatten().filter(move |rules| rules.scheme() != default)
    }
}
