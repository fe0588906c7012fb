//! Message schemes: transfer of a message of numbered packets across a network that loses and reorders packets.
//!
//! | Module | Scheme | Section of docs/protocol.md |
//! |---|---|---|
//! | [`receiver_window`] | the receiver slides a window over its packets and requests the lowest hole | 8.1 |
//! | [`adaptive_window`] | bitmaps in every acknowledgement, a timeout that follows the measured delays | 8.5 |
//! | [`selective`] | loss detection by sending order, an adaptive reorder window, a tail probe | 8.6 |
//! | [`any`] | any of these, selected at configuration time | |
//! | [`message_scheme`] | the traits through which the message layer uses a scheme | |
//! | [`messages`] | contexts, requests, tombstones, transfers: the node around the senders and receivers | 7 |
//! | [`commands`] | transfers that the NI sends by itself: the host's side | |
//! | [`traits`] | the traits of every scheme's sender and receiver, including the registry's | |
//!
//! A *message* is the unit that a scheme delivers reliably. [`MessageSender`] and [`MessageReceiver`] are state
//! machines for one message each. They identify packets by number alone. The caller binds numbers to bytes and state
//! machines to contexts, and checks identities first: a packet of another message never gets here.
//!
//! The contract is that of all state machines of this package: no clock, no input or output, stale and duplicate input
//! is harmless, timers may fire early and often.

pub mod adaptive_window;
pub mod any;
pub mod bits;
pub mod commands;
pub mod mapping;
pub mod message_scheme;
pub mod messages;
pub mod receiver_window;
pub mod selective;
pub mod traits;
pub mod tuning;

use crate::disorder::Disorder;
use crate::sender::RoundTrip;
use crate::time::Nanos;

/// Maximum number of packets of a message: indices and a window's base have 13 bits [E0-11].
pub const MAX_MESSAGE_PACKETS: u32 = 4096;

/// Packet of a message, as its sender and receiver handle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// Index of the packet, from 0.
    pub index: u32,
    /// Whether it is the last packet of the message: set whenever `index` is the highest, also in retransmissions
    /// [E0-10].
    pub tail: bool,
    /// In schemes with maps, number of this transmission within the message. An [`Answer::Map`] echoes it, so that the
    /// measured delay belongs to this transmission and no other [E2-2]. In the receiver window 1 for the first
    /// transmission of a packet, 2 for any other. 0 in the other schemes.
    pub sequence: u32,
}

/// Answer of a receiver to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// All packets are received.
    Done,
    /// Retransmit these packets, or as many of them as exist.
    Resend {
        /// First packet.
        first: u32,
        /// Last packet; the message's last if that is lower.
        last: u32,
    },
    /// Do not send some packets yet.
    Limit {
        /// Lowest of them.
        first: u32,
        /// Number of packets received above the lowest missing one.
        above: u16,
        /// Packet that is answered; `None` if a timer caused the answer.
        index: Option<u32>,
    },
    /// All received packets.
    Map(AckMap),
}

/// Acknowledgement with the complete state, so that a lost one needs no repetition [E2-3].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AckMap {
    /// All packets below are received.
    pub base: u32,
    /// Offset from `base` of the first packet of the next field.
    pub ahead: u32,
    /// Received packets from `base + ahead` on: bit `i` is packet `base + ahead + i`.
    pub here: u128,
    /// Expected bits: packets from `base` on that the receiver requests at once.
    pub overdue: u128,
    /// Sequence of the answered packet.
    pub echo: u32,
    /// Whether the answered packet had been received before.
    pub duplicate: bool,
}

/// Treatment of a packet at the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Write the payload to memory at once: the next answer assumes that.
    Write,
    /// Received before.
    Duplicate,
    /// Not accepted.
    Dropped,
}

/// Measurements of the path from a sender, kept by the receiver from message to message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReceivePath {
    /// Round trips from an answer to the packets that it causes.
    pub trip: RoundTrip,
    pub(crate) disorder: Disorder,
}

/// Sender of one message.
pub trait MessageSender {
    /// Processes an answer of the receiver.
    fn handle_answer(&mut self, now: Nanos, answer: &Answer);

    /// Processes expired timers; to be called when the time of [`Self::poll_timeout`] is reached. Returns the number of
    /// waits for an answer that timed out.
    fn handle_timeout(&mut self, now: Nanos) -> u32;

    /// Returns the time of the next call of [`Self::handle_timeout`]; `None` if only an answer can change the state.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// Returns the next packet to send, if one may be sent now.
    fn poll_packet(&mut self, now: Nanos) -> Option<Packet>;

    /// Whether all packets are known to be received.
    fn is_done(&self) -> bool;
}

/// Receiver of one message.
pub trait MessageReceiver {
    /// Processes a packet.
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition;

    /// Processes expired timers; to be called when the time of [`Self::poll_timeout`] is reached. No effect without
    /// timers.
    fn handle_timeout(&mut self, now: Nanos) {
        let _ = now;
    }

    /// Returns the time of the next call of [`Self::handle_timeout`]; `None` if only a packet can change the state.
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    /// Returns the next answer.
    fn poll_answer(&mut self) -> Option<Answer>;

    /// Whether all packets are received. From then on the caller answers each packet of the message with
    /// [`Answer::Done`] [E0-15].
    fn is_complete(&self) -> bool;
}

/// Returns the wait after `times` consecutive timeouts: it doubles each time [E2-5], up to sixteen times `span`.
/// Packets sent into a full queue at a constant rate keep it full.
#[must_use]
pub const fn backoff(span: Nanos, times: u8) -> Nanos {
    span.saturating_mul(1 << if times < MAX_DOUBLINGS { times } else { MAX_DOUBLINGS })
}

/// Maximum number of doublings: waits of four round trips grow to 64.
pub const MAX_DOUBLINGS: u8 = 4;

/// Count without influence on the behaviour: states that differ only in it have equal hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnhashedCount(u64);

impl UnhashedCount {
    const fn add(&mut self, count: u32) {
        // Lossless; `From` is not usable in a constant function.
        self.0 = self.0.saturating_add(count as u64);
    }
}

impl core::hash::Hash for UnhashedCount {
    fn hash<H: core::hash::Hasher>(&self, _state: &mut H) {}
}

/// Measurement that the owner only hands on: without influence on its behaviour. States that differ only in it have equal
/// hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unhashed<T>(T);

impl<T> core::hash::Hash for Unhashed<T> {
    fn hash<H: core::hash::Hasher>(&self, _state: &mut H) {}
}

/// Pending answers after one input. Their number is bounded by the number of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct AnswerQueue([Option<Answer>; 3]);

impl AnswerQueue {
    const NONE: Self = Self([None; 3]);

    /// Queues an answer, replacing a pending one of the same kind.
    fn queue_answer(&mut self, answer: Answer) {
        let same = |place: &Option<Answer>| {
            place.is_some_and(|said| core::mem::discriminant(&said) == core::mem::discriminant(&answer))
        };
        let place = self.0.iter().position(same).or_else(|| self.0.iter().position(Option::is_none));
        if let Some(place) = place.and_then(|place| self.0.get_mut(place)) {
            *place = Some(answer);
        }
    }

    fn take(&mut self) -> Option<Answer> {
        self.0.iter_mut().find_map(Option::take)
    }
}
