//! Receiver counter: the second baseline of source 004.
//!
//! A context is requested first. The sender sends all packets of a *round*, which is one transmission of the message, in order. Rounds are
//! numbered modulo 256, in the sequence number of each packet.
//!
//! | Event at the sender | Action |
//! |---|---|
//! | the receiver is [short] of packets of the current round, and the round was sent completely | next round |
//! | 8 x [`careful`](RoundTrip::careful) (4 round trips before a sample) after a round's last packet without an answer | next round; doubles with each consecutive one, up to 16 times, until an answer |
//! | Done | complete |
//!
//! | Packet at the receiver | Action |
//! |---|---|
//! | round newer than the current one (1 to 127 ahead) | start counting from 0 in that round, then as below |
//! | round older, index not below the count of packets | drop |
//! | already counted in this round | duplicate |
//! | otherwise | count, write, restart the timer: `careful`, doubled with each request of a round up to 4 times; 2 round trips before a sample; all counted: Done |
//!
//! The timer's expiry requests another round once. With a loss of `p` per packet a message of `N` packets takes `1 / (1 - p)^N` rounds on
//! average.
//!
//! A plain count mistakes a packet duplicated by the network for another one, and completes falsely. [`CountRule::CountOnly`] is that rule,
//! as in the literature; [`CountRule::Distinct`], the default, keeps a bit per packet.
//!
//! There is no congestion window: the receiver does not say what has arrived before the end of a round.

use fpga_firmware::generated::Scheme as WireScheme;
use fpga_protocol::Nanos;
use fpga_protocol::scheme::bits::PacketSet;
use fpga_protocol::scheme::message_scheme::{MessageScheme, ReusableReceiver, ReusableSender};
use fpga_protocol::scheme::{
    Answer, Disposition, MAX_DOUBLINGS, MAX_MESSAGE_PACKETS, MessageReceiver, MessageSender, Packet,
    ReceivePath, backoff,
};
use fpga_protocol::sender::RoundTrip;
use fpga_protocol::state::StateTable;
use fpga_protocol::state_fields;

/// Counting rule of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CountRule {
    /// Distinct packets of the round.
    #[default]
    Distinct,
    /// Arrivals. Incorrect where the network duplicates packets.
    CountOnly,
}

/// Parameters of sender and receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverCounterConfig {
    /// Time that the receiver waits for the next packet of a round (2 round trips), before it has measured the round
    /// trip: from its acceptance or its request of a round to the first packet of the round.
    pub timeout: Nanos,
    /// Time that the sender waits after a round's last packet, in case the receiver's answer was lost (4 round trips),
    /// before the round trip is known. It doubles with each consecutive round without an answer, up to 16 x.
    pub backstop: Nanos,
    /// Counting rule.
    pub counting: CountRule,
}

impl ReceiverCounterConfig {
    /// Returns the default values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self {
            timeout: round_trip.saturating_mul(2),
            backstop: round_trip.saturating_mul(4),
            counting: CountRule::Distinct,
        }
    }
}

/// Returns the request for another round than `round`. The contract has no answer for it; this one has the round as its last packet.
#[must_use]
pub fn short(round: u8) -> Answer {
    Answer::Resend { first: 0, last: round.into() }
}

/// Returns the round of a packet.
const fn round_of(packet: &Packet) -> u8 {
    packet.sequence.to_le_bytes()[0]
}

impl MessageScheme for ReceiverCounterConfig {
    type Sender = Sender;
    type Receiver = Receiver;

    fn scheme(&self) -> WireScheme {
        super::BASELINE
    }

    fn sending(&self) -> Sender {
        Sender::new(*self, MAX_MESSAGE_PACKETS)
    }

    fn receiving(&self) -> Receiver {
        Receiver::new(*self, MAX_MESSAGE_PACKETS)
    }
}

/// Maximum number of doublings of the receiver's measured wait.
const MAX_SHORT_DOUBLINGS: u8 = 2;

/// Whether round `a` is after `b`; both are modulo 256.
const fn is_after(a: u8, b: u8) -> bool {
    let ahead = a.wrapping_sub(b);
    ahead != 0 && ahead < 128
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: ReceiverCounterConfig,
    count: u32,
    next: u32,
    round: u8,
    deadline: Nanos,
    /// Consecutive rounds without an answer.
    silent: u8,
    done: bool,
    trip: RoundTrip,
}

impl Sender {
    /// Creates a sender for a message of `count` packets. A message without packets is done at once.
    #[must_use]
    pub fn new(config: ReceiverCounterConfig, count: u32) -> Self {
        Self {
            config,
            count,
            next: 0,
            round: 0,
            deadline: Nanos::MAX,
            silent: 0,
            done: count == 0,
            trip: RoundTrip::default(),
        }
    }

    const fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.next = 0;
        self.deadline = Nanos::MAX;
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, _now: Nanos, answer: &Answer) {
        self.silent = 0;
        if *answer == Answer::Done {
            self.done = true;
        } else if *answer == short(self.round) && self.next == self.count {
            // Only after the whole round was sent: missing packets of an unfinished round may still be sent.
            self.begin_round();
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        self.silent = self.silent.saturating_add(1).min(MAX_DOUBLINGS);
        self.begin_round();
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.done { None } else { self.deadline.as_timer() }
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        if self.done || self.next == self.count {
            return None;
        }
        let index = self.next;
        self.next += 1;
        let tail = self.next == self.count;
        if tail {
            // The receiver waits for a round trip and more before it asks for another round.
            let learnt = self.trip.careful().map(|careful| careful.saturating_mul(8));
            self.deadline = now.saturating_add(backoff(learnt.unwrap_or(self.config.backstop), self.silent));
        }
        Some(Packet { index, tail, sequence: self.round.into() })
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl ReusableSender for Sender {
    fn scheme(&self) -> WireScheme {
        super::BASELINE
    }

    fn begin(&mut self, _now: Nanos, count: u32, _new_node: bool, trip: &RoundTrip) {
        self.trip = *trip;
        (self.count, self.next, self.round, self.silent) = (count, 0, 0, 0);
        self.deadline = Nanos::MAX;
        self.done = count == 0;
    }

    fn learn(&mut self, _now: Nanos, trip: &RoundTrip) {
        self.trip = *trip;
    }

    fn state(&self) -> Vec<StateTable> {
        state_fields!(self, without[config], count, next, round, deadline, silent, done, trip)
    }

    fn requests_context(&self) -> bool {
        true
    }

    // For one lost packet, the packets of all routes are repeated.
    fn uses_one_route(&self) -> bool {
        true
    }
}

/// Receiver of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverCounterConfig,
    /// Number of packets of the message, as announced.
    count: u32,
    round: u8,
    received: u32,
    here: PacketSet,
    deadline: Nanos,
    complete: bool,
    path: ReceivePath,
    /// Time of the answer that the next round follows, and that round.
    asked: Option<(Nanos, u8)>,
    /// Number of rounds asked for: the measured wait doubles with each, or packets that are late in every round would
    /// make every round short.
    shorts: u8,
    answer: Option<Answer>,
}

impl Receiver {
    /// Creates a receiver for a message of `count` packets.
    #[must_use]
    pub fn new(config: ReceiverCounterConfig, count: u32) -> Self {
        let bits = if config.counting == CountRule::Distinct { count } else { 0 };
        Self {
            count,
            round: 0,
            received: 0,
            here: PacketSet::new(bits),
            deadline: Nanos::MAX,
            complete: count == 0,
            path: ReceivePath::default(),
            asked: None,
            shorts: 0,
            answer: None,
            config,
        }
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        if self.complete {
            return Disposition::Duplicate;
        }
        if packet.index >= self.count {
            return Disposition::Dropped;
        }
        let round = round_of(packet);
        if is_after(round, self.round) {
            (self.round, self.received) = (round, 0);
            self.here.clear();
        } else if round != self.round {
            // Packet of a round that was given up: not counted, and therefore not written.
            return Disposition::Dropped;
        }
        if self.config.counting == CountRule::Distinct && !self.here.insert(packet.index) {
            return Disposition::Duplicate;
        }
        self.received += 1;
        if let Some((asked, expected)) = self.asked.take()
            && expected == round
        {
            self.path.trip.sample(now.saturating_sub(asked));
        }
        let learnt = self.path.trip.careful().map(|careful| backoff(careful, self.shorts));
        self.deadline = now.saturating_add(learnt.unwrap_or(self.config.timeout));
        if self.received == self.count {
            self.complete = true;
            self.answer = Some(Answer::Done);
        }
        Disposition::Write
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.deadline = Nanos::MAX;
            self.asked = Some((now, self.round.wrapping_add(1)));
            self.shorts = self.shorts.saturating_add(1).min(MAX_SHORT_DOUBLINGS);
            self.answer = Some(short(self.round));
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (!self.complete && self.deadline != Nanos::MAX).then_some(self.deadline)
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answer.take()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl ReusableReceiver for Receiver {
    fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath) {
        self.path = path;
        self.asked = Some((now, 0));
        self.shorts = 0;
        self.count = count;
        self.round = 0;
        self.received = 0;
        self.here.clear();
        self.deadline = Nanos::MAX;
        self.complete = count == 0;
        self.answer = None;
    }

    fn state(&self) -> Vec<StateTable> {
        state_fields!(self, without [config, answer], count, round, received, here + here.heap_bytes(), deadline, complete, path, asked, shorts)
    }

    /// Whether packet `index` is received in the current round. Always false with [`CountRule::CountOnly`].
    fn has_packet(&self, index: u32) -> bool {
        self.here.contains(index)
    }

    fn path(&self) -> Option<ReceivePath> {
        Some(self.path)
    }

    /// It is not known which answer the first packet follows: the time since the first one is a sample only if there is no better one.
    fn note_repeated_request(&mut self) {
        if self.path.trip.samples != 0 {
            self.asked = None;
        }
    }
}
