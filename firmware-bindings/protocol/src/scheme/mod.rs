//! The published schemes beside the registry: how a message of numbered packets gets across a network that loses and reorders.
//!
//! | Module | Scheme | From |
//! |---|---|---|
//! | [`receiver_window`] | the receiver slides a window over what it has and asks for the lowest hole | documents 000 and 004, spec 3 |
//! | [`sender_window`] | the sender keeps a window of what nobody has acknowledged, and sends all of it again | spec 4 |
//! | [`receiver_counter`] | the receiver counts; one packet short, and everything is sent again | spec 4 |
//! | [`adaptive_window`] | bitmaps in every acknowledgement, a timeout that follows the delays seen | document 002, spec 5 |
//! | [`selective`] | loss by the order of sending, a reorder window that learns, a tail probe | spec 6 |
//! | [`any`] | any of these, chosen when a node is set up | |
//! | [`messages`] | contexts, requests, tombstones, transfers: what makes a node of the ends | spec 3 |
//! | [`commands`] | transfers that an interface makes by itself: the host's half | |
//! | [`traits`] | the two traits of every scheme's sender and receiver, the registry's included | |
//!
//! A *message* is what a scheme makes reliable at a time: [`MessageSender`] and [`MessageReceiver`] are its two ends, state machines for
//! one message each. They know packets by number alone; whoever carries them binds numbers to bytes and ends to contexts, and
//! checks identities before an end sees anything: a packet of another message never gets here.
//!
//! The contract is that of all state machines of this package: no clock, no input or output, stale and doubled input is
//! harmless, timers may fire early and often.

pub mod adaptive_window;
pub mod any;
pub mod bits;
pub mod commands;
pub mod mapping;
pub mod messages;
pub mod receiver_counter;
pub mod receiver_window;
pub mod selective;
pub mod sender_window;
pub mod traits;
pub mod tuning;

use crate::time::Nanos;

/// Most packets of a message: indices and a window's base have 13 bits [E0-11].
pub const MAX_MESSAGE_PACKETS: u32 = 4096;

/// One packet of a message, as its two ends see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packet {
    /// Which one, from 0.
    pub index: u32,
    /// It is the message's last one. So whenever `index` is the highest, also when sent again [E0-10].
    pub tail: bool,
    /// Which sending of the message it belongs to; schemes without such a number have 0.
    pub round: u8,
    /// Number of this sending of a packet within the message: an [`Answer::Map`] echoes it, so that its delay is known to be
    /// that of this sending and of no other [E2-2]. Schemes without maps have 0.
    pub sequence: u32,
}

/// What a receiving end says to the sending one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Answer {
    /// Everything is here.
    Done,
    /// Send these again, or as many of them as there are.
    Resend {
        /// The first one.
        first: u32,
        /// The last one; the message's last if that is lower.
        last: u32,
    },
    /// Send no packet from this one on, yet.
    Limit(u32),
    /// This packet is here.
    Received {
        /// Which one.
        index: u32,
    },
    /// Not all packets of this round have come.
    Short {
        /// Which sending of the message.
        round: u8,
    },
    /// All that is here.
    Map(AckMap),
}

/// An acknowledgement that says everything anew, so that none is missed when one is lost [E2-3].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AckMap {
    /// All packets below are here.
    pub base: u32,
    /// How far beyond `base` the next field begins.
    pub ahead: u32,
    /// Of the packets from `base + ahead` on, those that are here: bit `i` is packet `base + ahead + i`.
    pub here: u128,
    /// Of the packets from `base` on, those that are wanted at once.
    pub overdue: u128,
    /// Sequence of the packet that is answered.
    pub echo: u32,
    /// That packet had been here before.
    pub retransmit: bool,
}

/// What becomes of a packet at the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disposition {
    /// Its payload belongs into memory, now: what the end says next presumes that.
    Write,
    /// It is here already.
    Duplicate,
    /// It cannot be taken.
    Dropped,
}

/// The sending end of one message.
pub trait MessageSender {
    /// The receiving end says something.
    fn handle_answer(&mut self, now: Nanos, answer: &Answer);

    /// Time has passed: to be called once [`Self::poll_timeout`]'s is reached. Returns how many waits for an answer have been in vain.
    fn handle_timeout(&mut self, now: Nanos) -> u32;

    /// When [`Self::handle_timeout`] wants to be called; `None` if only an answer can change anything.
    fn poll_timeout(&self) -> Option<Nanos>;

    /// The next packet to send, if one may be sent now.
    fn poll_packet(&mut self, now: Nanos) -> Option<Packet>;

    /// Everything is known to be there.
    fn is_done(&self) -> bool;
}

/// The receiving end of one message.
pub trait MessageReceiver {
    /// A packet has come.
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition;

    /// Time has passed: to be called once [`Self::poll_timeout`]'s is reached. Nothing happens at an end without timers.
    fn handle_timeout(&mut self, now: Nanos) {
        let _ = now;
    }

    /// When [`Self::handle_timeout`] wants to be called; `None` if only a packet can change anything.
    fn poll_timeout(&self) -> Option<Nanos> {
        None
    }

    /// The next thing to say.
    fn poll_answer(&mut self) -> Option<Answer>;

    /// Everything is here. From then on, whoever holds this end answers each of its packets with [`Answer::Done`] [E0-15].
    fn is_complete(&self) -> bool;
}

/// A wait that was in vain `times` times in a row: twice as long each time [E2-5], and no longer than sixteen times as long. What is sent
/// into a full queue at an even pace keeps it full.
const fn backoff(span: Nanos, times: u8) -> Nanos {
    span.saturating_mul(1 << if times < MAX_DOUBLINGS { times } else { MAX_DOUBLINGS })
}

/// So that waits of four round trips grow to 64, as those of the other schemes do.
const MAX_DOUBLINGS: u8 = 4;

/// A count that nothing depends on: where states are told apart by their hashes, two that differ in it alone are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct UnhashedCount(u64);

impl UnhashedCount {
    const fn add(&mut self, count: u32) {
        // Lossless; `From` is no constant function.
        self.0 = self.0.saturating_add(count as u64);
    }
}

impl core::hash::Hash for UnhashedCount {
    fn hash<H: core::hash::Hasher>(&self, _state: &mut H) {}
}

/// What an end says after one input: never more than fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct AnswerQueue([Option<Answer>; 3]);

impl AnswerQueue {
    const NONE: Self = Self([None; 3]);

    /// Says something; a newer word of the same kind replaces one that was not fetched.
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
