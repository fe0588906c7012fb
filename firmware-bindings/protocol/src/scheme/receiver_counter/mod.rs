//! Receiver counter (docs/protocol.md 8.3): the second baseline of source 004.
//!
//! The receiver counts the packets of one round, which is one transmission of the message. If the count is short when a
//! timer expires, the sender sends the whole message again as another round, and the count restarts. With a loss of `p`
//! per packet that takes `1 / (1 - p)^N` rounds on average.
//!
//! A plain count mistakes a packet duplicated by the network for another one, and completes falsely.
//! [`CountRule::CountOnly`] is that rule, as in the literature; [`CountRule::Distinct`], the default, keeps a bit per
//! packet.
//!
//! A congestion window needs to know what has arrived before the end of a round. With
//! [`reports`](ReceiverCounterConfig::reports) the receiver answers each packet. A sender that knows of a lost packet then
//! begins the next round at once, at most four times per message: from then on it waits for the receiver, because the
//! packets may be late.

mod reports;

use super::bits::PacketSet;
use super::{
    Answer, AnswerQueue, Disposition, MAX_DOUBLINGS, MessageReceiver, MessageSender, Packet, ReceivePath,
    backoff,
};
use crate::sender::RoundTrip;
use crate::state::{StateTable, state_fields};
use crate::time::Nanos;
use alloc::vec::Vec;
use reports::Reports;

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
    /// Whether the receiver reports each packet (false).
    pub reports: bool,
}

impl ReceiverCounterConfig {
    /// Returns the default values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self {
            timeout: round_trip.saturating_mul(2),
            backstop: round_trip.saturating_mul(4),
            counting: CountRule::Distinct,
            reports: false,
        }
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
    /// Time at which the round's last packet was sent.
    finished: Nanos,
    reports: Option<Reports>,
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
            finished: Nanos::ZERO,
            reports: config.reports.then(|| Reports::new(count)),
        }
    }

    /// Restarts with another message, not longer than the one given at creation, on a path with the round trip `trip`.
    pub fn begin(&mut self, count: u32, trip: &RoundTrip) {
        self.trip = *trip;
        (self.count, self.next, self.round, self.silent) = (count, 0, 0, 0);
        (self.deadline, self.finished) = (Nanos::MAX, Nanos::ZERO);
        self.done = count == 0;
        if let Some(reports) = &mut self.reports {
            reports.begin();
        }
    }

    /// Sets the round trip of the path.
    pub const fn learn(&mut self, trip: &RoundTrip) {
        self.trip = *trip;
    }

    fn again(&mut self) {
        if let Some(reports) = &mut self.reports {
            reports.begin_round(self.next);
        }
        self.begin_round();
    }

    const fn begin_round(&mut self) {
        self.round = self.round.wrapping_add(1);
        self.next = 0;
        self.deadline = Nanos::MAX;
    }

    /// Returns the number of packets in flight, and of those that were lost; `None` without reports: the receiver does not
    /// say then what has arrived.
    #[must_use]
    pub fn in_flight(&self) -> Option<(u32, u32)> {
        self.reports.as_ref().map(|reports| reports.in_flight(self.next))
    }

    /// Returns the delay that the last report gave, once.
    pub fn take_delay(&mut self) -> Option<Nanos> {
        self.reports.as_mut()?.take_delay()
    }

    /// Returns the number of packets reported since the last call.
    pub fn take_covered(&mut self) -> u32 {
        self.reports.as_mut().map_or(0, Reports::take_covered)
    }

    /// Whether a congestion window may hold packets of an unfinished round back, and packets are in flight.
    fn waits_for_reports(&self) -> Option<&Reports> {
        let reports = self.reports.as_ref()?;
        (self.next < self.count && reports.in_flight(self.next).0 > 0).then_some(reports)
    }

    /// Returns the time without a report after which the packets in flight count as gone.
    fn patience(&self) -> Nanos {
        backoff(self.trip.careful().unwrap_or(self.config.backstop), self.silent)
    }

    /// Whether the receiver can know that the round is over: a sender that is held back sends its packets so far apart
    /// that the receiver asks for another round in between.
    fn is_over(&self, now: Nanos) -> bool {
        let mean = self.trip.known_mean().unwrap_or(Nanos::ZERO);
        self.next == self.count && (self.reports.is_none() || self.finished.saturating_add(mean) <= now)
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        self.silent = 0;
        match *answer {
            Answer::Done => self.done = true,
            // Only after the whole round was sent: missing packets of an unfinished round may still be sent.
            Answer::Short { round } if round == self.round && self.is_over(now) => self.again(),
            Answer::Received { index, round } if round == self.round => {
                if let Some(reports) = &mut self.reports {
                    reports.note_report(now, index, self.next);
                    if self.next < self.count && reports.stop(index) {
                        self.begin_round();
                    }
                }
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        self.silent = self.silent.saturating_add(1).min(MAX_DOUBLINGS);
        match &mut self.reports {
            Some(reports) if self.next < self.count => {
                reports.give_up(now, self.next);
                if reports.stop(u32::MAX) {
                    self.begin_round();
                }
            }
            _ => self.again(),
        }
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        if self.done {
            return None;
        }
        let silence =
            self.waits_for_reports().map(|reports| reports.active().saturating_add(self.patience()));
        silence.or(self.deadline.as_timer())
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        if self.done || self.next == self.count {
            return None;
        }
        let index = self.next;
        self.next += 1;
        if let Some(reports) = &mut self.reports {
            reports.note_sent(now, index);
        }
        let tail = self.next == self.count;
        if tail {
            self.finished = now;
            // The receiver waits for a round trip and more before it asks for another round.
            let learnt = self.trip.careful().map(|careful| careful.saturating_mul(8));
            self.deadline = now.saturating_add(backoff(learnt.unwrap_or(self.config.backstop), self.silent));
        }
        Some(Packet { index, tail, round: self.round, sequence: 0 })
    }

    fn is_done(&self) -> bool {
        self.done
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
    answers: AnswerQueue,
}

impl Receiver {
    /// Records that the announcement was answered again. It is not known which answer the first packet follows: the
    /// time since the first one is a sample only if there is no better one.
    pub const fn note_repeated_request(&mut self) {
        if self.path.trip.samples != 0 {
            self.asked = None;
        }
    }

    /// Returns the measurements of the path from the sender.
    #[must_use]
    pub const fn path(&self) -> ReceivePath {
        self.path
    }

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
            answers: AnswerQueue::NONE,
            config,
        }
    }

    /// Restarts with another message, not longer than the one given at creation, of a sender with the path measurements
    /// `path`.
    pub fn begin(&mut self, now: Nanos, count: u32, path: ReceivePath) {
        self.path = path;
        self.asked = Some((now, 0));
        self.shorts = 0;
        self.count = count;
        self.round = 0;
        self.received = 0;
        self.here.clear();
        self.deadline = Nanos::MAX;
        self.complete = count == 0;
        self.answers = AnswerQueue::NONE;
    }

    /// Whether packet `index` is received in the current round. Always false with [`CountRule::CountOnly`].
    #[must_use]
    pub fn has_packet(&self, index: u32) -> bool {
        self.here.contains(index)
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
        if is_after(packet.round, self.round) {
            (self.round, self.received) = (packet.round, 0);
            self.here.clear();
        } else if packet.round != self.round {
            // Packet of a round that was given up: not counted, and therefore not written.
            return Disposition::Dropped;
        }
        if self.config.reports {
            self.answers.queue_answer(Answer::Received { index: packet.index, round: self.round });
        }
        if self.config.counting == CountRule::Distinct && !self.here.insert(packet.index) {
            return Disposition::Duplicate;
        }
        self.received += 1;
        if let Some((asked, round)) = self.asked.take()
            && round == packet.round
        {
            self.path.trip.sample(now.saturating_sub(asked));
        }
        let learnt = self.path.trip.careful().map(|careful| backoff(careful, self.shorts));
        self.deadline = now.saturating_add(learnt.unwrap_or(self.config.timeout));
        if self.received == self.count {
            self.complete = true;
            self.answers = AnswerQueue::NONE;
            self.answers.queue_answer(Answer::Done);
        }
        Disposition::Write
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_some_and(|due| due <= now) {
            self.deadline = Nanos::MAX;
            self.asked = Some((now, self.round.wrapping_add(1)));
            self.shorts = self.shorts.saturating_add(1).min(MAX_SHORT_DOUBLINGS);
            self.answers.queue_answer(Answer::Short { round: self.round });
        }
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (!self.complete && self.deadline != Nanos::MAX).then_some(self.deadline)
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.complete
    }
}

impl Sender {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        let heap = self.reports.as_ref().map_or(0, Reports::heap_bytes);
        state_fields!(
            self,
            without[config],
            count,
            next,
            round,
            deadline,
            silent,
            done,
            trip,
            finished,
            reports + heap
        )
    }
}

impl Receiver {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        state_fields!(self, without [config, answers], count, round, received, here + here.heap_bytes(), deadline, complete, path, asked, shorts)
    }
}
