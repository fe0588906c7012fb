//! Sender window (docs/protocol.md 8.2): the first baseline of source 004.
//!
//! The sender keeps a window of unacknowledged packets. The receiver acknowledges every packet. It writes payload
//! directly to memory and keeps a bit per received packet. A timer runs for the oldest packet; when it expires, all
//! unacknowledged packets are retransmitted.

use super::bits::{PacketSet, bit, down, low, width};
use super::{Answer, AnswerQueue, Disposition, MessageReceiver, MessageSender, Packet};
use crate::time::Nanos;

/// Parameters of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SenderWindowConfig {
    /// Maximum number of packets in flight, 1 to 128 (32).
    pub window: u32,
    /// Timeout of the oldest packet (2 round trips); it doubles with each consecutive timeout.
    pub timeout: Nanos,
    /// Maximum timeout (64 round trips).
    pub longest: Nanos,
}

impl SenderWindowConfig {
    /// Returns the specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self { window: 32, timeout: round_trip.saturating_mul(2), longest: round_trip.saturating_mul(64) }
    }
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: SenderWindowConfig,
    count: u32,
    /// Oldest unacknowledged packet.
    base: u32,
    next: u32,
    /// Bit `i` is packet `base + i`.
    acknowledged: u128,
    /// Packets to be retransmitted.
    retransmit: u128,
    deadline: Nanos,
    /// Consecutive timeouts.
    silent: u32,
}

impl Sender {
    /// Creates a sender for a message of `count` packets.
    #[must_use]
    pub const fn new(config: SenderWindowConfig, count: u32) -> Self {
        Self {
            config,
            count,
            base: 0,
            next: 0,
            acknowledged: 0,
            retransmit: 0,
            deadline: Nanos::MAX,
            silent: 0,
        }
    }

    /// Restarts with another message.
    pub const fn begin(&mut self, count: u32) {
        *self = Self::new(self.config, count);
    }

    /// Returns the oldest unacknowledged packet.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.base
    }

    fn wait(&self) -> Nanos {
        self.config.timeout.saturating_mul(1 << self.silent.min(20)).min(self.config.longest)
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        let index = match *answer {
            Answer::Received { index } => index,
            Answer::Done => {
                (self.base, self.next, self.retransmit) = (self.count, self.count, 0);
                self.deadline = Nanos::MAX;
                return;
            }
            _ => return,
        };
        let Some(ahead) = index.checked_sub(self.base).filter(|_| index < self.next) else { return };
        self.acknowledged |= bit(ahead);
        self.retransmit &= !bit(ahead);
        let slide = self.acknowledged.trailing_ones();
        if slide > 0 {
            self.base += slide;
            self.acknowledged = down(self.acknowledged, slide);
            self.retransmit = down(self.retransmit, slide);
            // The timer now applies to the next oldest packet.
            self.silent = 0;
            self.deadline = if self.base < self.next { now.saturating_add(self.wait()) } else { Nanos::MAX };
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        self.silent += 1;
        self.retransmit = low(self.next - self.base) & !self.acknowledged;
        self.deadline = now.saturating_add(self.wait());
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (self.deadline != Nanos::MAX).then_some(self.deadline)
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        let index = if self.retransmit != 0 {
            let ahead = self.retransmit.trailing_zeros();
            self.retransmit &= self.retransmit - 1;
            self.base + ahead
        } else if self.next < self.count && self.next - self.base < width(self.config.window) {
            self.next += 1;
            self.next - 1
        } else {
            return None;
        };
        if index == self.base {
            self.deadline = now.saturating_add(self.wait());
        }
        Some(Packet { index, tail: index + 1 == self.count, round: 0, sequence: 0 })
    }

    fn is_done(&self) -> bool {
        self.base == self.count
    }
}

/// Receiver of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    here: PacketSet,
    count: Option<u32>,
    answers: AnswerQueue,
}

impl Receiver {
    /// Creates a receiver for messages of up to `most` packets.
    #[must_use]
    pub fn new(most: u32) -> Self {
        Self { here: PacketSet::new(most), count: None, answers: AnswerQueue::NONE }
    }

    /// Restarts with another message.
    pub fn begin(&mut self) {
        self.here.clear();
        self.count = None;
        self.answers = AnswerQueue::NONE;
    }

    /// Whether packet `index` is received.
    #[must_use]
    pub fn has_packet(&self, index: u32) -> bool {
        self.here.contains(index)
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, _now: Nanos, packet: &Packet) -> Disposition {
        let index = packet.index;
        let new = self.here.insert(index);
        if !new && !self.here.contains(index) {
            return Disposition::Dropped;
        }
        if packet.tail {
            self.count = Some(index + 1);
        }
        self.answers.queue_answer(Answer::Received { index });
        if new { Disposition::Write } else { Disposition::Duplicate }
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.here.count())
    }
}
