//! Receiver window (docs/protocol.md 8.1), with every erratum of its sources closed.
//!
//! The receiver keeps the lowest missing packet, a bit vector of the received packets above it, and one timer for that
//! hole. It buffers no payload: payload is written to the address of its packet number. The sender keeps only its
//! position: it sends every packet once, and again on request.

use super::bits::{PacketSet, bit, down, width};
use super::{
    Answer, AnswerQueue, Disposition, MAX_DOUBLINGS, MessageReceiver, MessageSender, Packet, backoff,
};
use crate::time::Nanos;
use alloc::boxed::Box;

/// Parameters of sender and receiver (docs/protocol.md 8.7; default values in parentheses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverWindowConfig {
    /// Number of packets that the receiver accepts from the lowest missing one on, 1 to 128 (128).
    pub window: u32,
    /// Time that the receiver waits for the lowest missing packet (2 round trips). It doubles with each request for
    /// everything from that packet on, up to 16 x.
    pub hole_timeout: Nanos,
    /// Requests for one hole before everything from there on is requested (3).
    pub patience: u8,
    /// Whether the receiver sends the sender's limit, and requests no packet beyond its window.
    pub credit: bool,
    /// Minimum time between two requests for the same packet beyond the window. It is shorter than any round trip
    /// (three quarters of one): if the retransmitted packet is beyond the window as well, it has to be requested again,
    /// or it is not requested until it is the lowest hole.
    pub retry_queries: Nanos,
    /// Maximum number of packets whose requests the receiver records (256).
    pub remembered: u32,
    /// Time without an answer after which the sender retransmits the last packet (4 round trips). It doubles each time,
    /// up to 16 x.
    pub probe: Nanos,
}

impl ReceiverWindowConfig {
    /// Returns the specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self {
            window: 128,
            hole_timeout: round_trip.saturating_mul(2),
            patience: 3,
            credit: false,
            retry_queries: Nanos::new(round_trip.get() / 4 * 3),
            remembered: 256,
            probe: round_trip.saturating_mul(4),
        }
    }
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: ReceiverWindowConfig,
    count: u32,
    /// Next packet in order.
    next: u32,
    /// Packets that were requested individually.
    asked: PacketSet,
    /// First packet that may not be sent yet.
    limit: u32,
    /// Time of the last answer or transmission.
    active: Nanos,
    /// Whether the tail is to be sent as a probe.
    probing: bool,
    /// Number of probes since the last answer.
    silent: u8,
    done: bool,
}

impl Sender {
    /// Creates a sender for a message of `count` packets, started at `now`. A message without packets is done at once.
    #[must_use]
    pub fn new(config: ReceiverWindowConfig, count: u32, now: Nanos) -> Self {
        let limit = if config.credit { width(config.window) } else { u32::MAX };
        Self {
            count,
            next: 0,
            asked: PacketSet::new(count),
            limit,
            active: now,
            probing: false,
            silent: 0,
            done: count == 0,
            config,
        }
    }

    /// Restarts with another message, not longer than the one given at creation.
    pub fn begin(&mut self, count: u32, now: Nanos) {
        self.count = count;
        self.next = 0;
        self.asked.clear();
        self.limit = if self.config.credit { width(self.config.window) } else { u32::MAX };
        self.active = now;
        self.probing = false;
        self.silent = 0;
        self.done = count == 0;
    }

    const fn packet(&self, index: u32) -> Packet {
        Packet { index, tail: index + 1 == self.count, round: 0, sequence: 0 }
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        self.active = self.active.max(now);
        self.silent = 0;
        // A receiver that requests a packet accepts it and one window from there on: this may be the first answer that
        // conveys it.
        if let Answer::Resend { first, .. } = *answer
            && self.config.credit
        {
            self.limit = self.limit.max(first.saturating_add(width(self.config.window)));
        }
        match *answer {
            Answer::Done => self.done = true,
            // There is nothing to retransmit beyond the message [E0-6].
            Answer::Resend { first, .. } if first >= self.count => {}
            // Packets not sent yet follow in order, once. A request for one packet has no other effect [E0-9].
            Answer::Resend { first, last } if first == last && first >= self.next => {}
            Answer::Resend { first, last } if first == last => {
                self.asked.insert(first);
            }
            Answer::Resend { first, .. } => {
                self.next = self.next.min(first);
                self.asked.clear_from(first);
            }
            Answer::Limit(limit) if self.config.credit => self.limit = self.limit.max(limit),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        self.probing = true;
        self.silent = self.silent.saturating_add(1).min(MAX_DOUBLINGS);
        self.active = now;
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let waits = !self.done && !self.probing;
        waits.then(|| self.active.saturating_add(backoff(self.config.probe, self.silent)))
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        if self.done {
            return None;
        }
        let index = if let Some(index) = self.asked.pop() {
            index
        } else if self.next < self.count.min(self.limit) {
            self.next += 1;
            self.next - 1
        } else if self.probing {
            // With credits the last packet may be beyond the receiver's window. The receiver answers it nevertheless.
            self.count - 1
        } else {
            return None;
        };
        self.probing = false;
        self.active = self.active.max(now);
        Some(self.packet(index))
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

/// Receiver of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: ReceiverWindowConfig,
    /// Lowest missing packet.
    base: u32,
    /// Bit `i` is packet `base + i`; bit 0 is never set between two packets.
    here: u128,
    /// Number of packets of the message, known from its tail on.
    count: Option<u32>,
    /// Time of the next request for the hole at `base`.
    deadline: Nanos,
    /// Requests for that hole alone, since the last request for everything from there on.
    strikes: u8,
    /// Requests for everything from there on.
    ranges: u8,
    /// Requested packets beyond the window and the times of the requests, by the low bits of their numbers.
    asked: Box<[(u32, Nanos)]>,
    answers: AnswerQueue,
}

impl Receiver {
    /// Creates a receiver for a message that was announced at `now`.
    #[must_use]
    pub fn new(config: ReceiverWindowConfig, now: Nanos) -> Self {
        let asked = if config.credit { 0 } else { fpga_registers::cast::index(config.remembered) };
        Self {
            base: 0,
            here: 0,
            count: None,
            deadline: now.saturating_add(config.hole_timeout),
            strikes: 0,
            ranges: 0,
            asked: alloc::vec![(u32::MAX, Nanos::ZERO); asked].into_boxed_slice(),
            answers: AnswerQueue::NONE,
            config,
        }
    }

    /// Restarts with another message.
    pub fn begin(&mut self, now: Nanos) {
        self.base = 0;
        self.here = 0;
        self.count = None;
        self.deadline = now.saturating_add(self.config.hole_timeout);
        (self.strikes, self.ranges) = (0, 0);
        self.asked.fill((u32::MAX, Nanos::ZERO));
        self.answers = AnswerQueue::NONE;
    }

    /// Returns the lowest missing packet.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.base
    }

    /// Whether packet `index` is received, as far as the window covers it.
    #[must_use]
    pub const fn has_packet(&self, index: u32) -> bool {
        index < self.base || self.here & bit(index - self.base) != 0
    }

    /// Requests a packet that was beyond the window, unless it was requested just before [E0-8].
    fn request_packet(&mut self, now: Nanos, index: u32) {
        let at = fpga_registers::cast::index(index) % self.asked.len().max(1);
        if let Some((last, when)) = self.asked.get_mut(at) {
            if *last == index && now.saturating_sub(*when) < self.config.retry_queries {
                return;
            }
            (*last, *when) = (index, now);
        }
        self.answers.queue_answer(Answer::Resend { first: index, last: index });
    }
}

impl MessageReceiver for Receiver {
    fn handle_packet(&mut self, now: Nanos, packet: &Packet) -> Disposition {
        let index = packet.index;
        if self.is_complete() || index < self.base {
            return Disposition::Duplicate;
        }
        let ahead = index - self.base;
        if ahead >= width(self.config.window) {
            if self.config.credit {
                // The sender knows its limit, or the answer with the limit was lost.
                self.answers.queue_answer(Answer::Limit(self.base + width(self.config.window)));
            } else {
                self.request_packet(now, index);
            }
            return Disposition::Dropped;
        }
        if self.here & bit(ahead) != 0 {
            return Disposition::Duplicate;
        }
        if packet.tail {
            self.count = Some(index + 1);
        }
        // Set the bit before the slide; otherwise the window never moves [E0-2].
        self.here |= bit(ahead);
        let slide = self.here.trailing_ones();
        if slide > 0 {
            self.base += slide;
            self.here = down(self.here, slide);
            self.deadline = now.saturating_add(self.config.hole_timeout);
            (self.strikes, self.ranges) = (0, 0);
            // After every slide, independent of the packet [E0-4, E0-5].
            if self.is_complete() {
                self.answers = AnswerQueue::NONE;
                self.answers.queue_answer(Answer::Done);
            } else if self.config.credit {
                self.answers.queue_answer(Answer::Limit(self.base + width(self.config.window)));
            }
        }
        Disposition::Write
    }

    fn handle_timeout(&mut self, now: Nanos) {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return;
        }
        let first = self.base;
        if self.strikes < self.config.patience {
            self.strikes += 1;
            self.answers.queue_answer(Answer::Resend { first, last: first });
        } else {
            // Restart the count after a request for everything, too [E0-18].
            self.strikes = 0;
            self.ranges = self.ranges.saturating_add(1).min(MAX_DOUBLINGS);
            let last = self.count.map_or(u32::MAX, |count| count - 1);
            self.answers.queue_answer(Answer::Resend { first, last });
        }
        // Requests for one packet keep their interval. Requests for everything back off.
        self.deadline = now.saturating_add(backoff(self.config.hole_timeout, self.ranges));
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (!self.is_complete()).then_some(self.deadline)
    }

    fn poll_answer(&mut self) -> Option<Answer> {
        self.answers.take()
    }

    fn is_complete(&self) -> bool {
        self.count == Some(self.base)
    }
}
