//! Receiver sliding window (documents 000 and 004, spec 3), with every hole of the text closed.
//!
//! The receiver keeps the lowest missing packet, a vector of what it has above that, and one timer for that hole. It buffers
//! nothing: payload goes where its number says. The sender remembers nothing but where it is: it sends everything once, and
//! whatever it is asked for again.

use super::bits::{PacketSet, bit, down, width};
use super::{
    Answer, AnswerQueue, Disposition, MAX_DOUBLINGS, MessageReceiver, MessageSender, Packet, backoff,
};
use crate::time::Nanos;
use alloc::boxed::Box;

/// Both ends' parameters (spec 3; reference set in brackets).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Packets that the receiver can take from the lowest missing one on, 1 to 128 (128).
    pub window: u32,
    /// The receiver waits so long for the lowest missing packet (2 round trips); twice as long, up to sixteen times, after each time that it
    /// has asked for everything from there on.
    pub hole_timeout: Nanos,
    /// Requests for one hole before all from there on are asked for (3).
    pub patience: u8,
    /// The receiver tells the sender how far it may send, and asks for nothing that it had no room for.
    pub credit: bool,
    /// A packet beyond the window is not asked for again within this time. Shorter than any round trip (three quarters of one): the
    /// answer to a request that finds no room either has to be asked for again, or nobody does until it is the lowest hole.
    pub retry_queries: Nanos,
    /// Packets that the receiver remembers having asked for, at most (256).
    pub remembered: u32,
    /// The sender sends the last packet again if it has heard nothing for so long (4 round trips); twice as long each time, up to sixteen
    /// times.
    pub probe: Nanos,
}

impl Config {
    /// The specification's values for a round trip of `round_trip`.
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

/// The sending end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: Config,
    count: u32,
    /// The next packet in order.
    next: u32,
    /// Packets that were asked for one by one.
    asked: PacketSet,
    /// No packet from here on may be sent.
    limit: u32,
    /// When something was last heard, or sent.
    active: Nanos,
    /// The tail is to be sent to see whether anybody listens.
    probing: bool,
    /// How often it was since anything was heard.
    silent: u8,
    done: bool,
}

impl Sender {
    /// For a message of `count` packets, begun at `now`. One of none is done.
    #[must_use]
    pub fn new(config: Config, count: u32, now: Nanos) -> Self {
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

    /// Starts over with another message, not longer than the one that it was made for.
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
        // Who wants a packet has room for it and for a window from there on: this word of it may be the first that arrives.
        if let Answer::Resend { first, .. } = *answer
            && self.config.credit
        {
            self.limit = self.limit.max(first.saturating_add(width(self.config.window)));
        }
        match *answer {
            Answer::Done => self.done = true,
            // Beyond the message there is nothing to send again [E0-6].
            Answer::Resend { first, .. } if first >= self.count => {}
            // What is still to come in order comes once. Asking for one moves nothing else [E0-9].
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
            // With credits the last packet may be beyond what the receiver can take. It answers all the same.
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

/// The receiving end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receiver {
    config: Config,
    /// The lowest missing packet.
    base: u32,
    /// Bit `i` is packet `base + i`; bit 0 is never set between two packets.
    here: u128,
    /// Packets of the message, once its tail was seen.
    count: Option<u32>,
    /// When the hole at `base` is asked for.
    deadline: Nanos,
    /// Requests for that hole alone so far, since the last one for everything from there on.
    strikes: u8,
    /// And those for everything.
    ranges: u8,
    /// Packets beyond the window and when they were asked for, by the low bits of their numbers.
    asked: Box<[(u32, Nanos)]>,
    answers: AnswerQueue,
}

impl Receiver {
    /// For a message that was announced at `now`.
    #[must_use]
    pub fn new(config: Config, now: Nanos) -> Self {
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

    /// Starts over with another message.
    pub fn begin(&mut self, now: Nanos) {
        self.base = 0;
        self.here = 0;
        self.count = None;
        self.deadline = now.saturating_add(self.config.hole_timeout);
        (self.strikes, self.ranges) = (0, 0);
        self.asked.fill((u32::MAX, Nanos::ZERO));
        self.answers = AnswerQueue::NONE;
    }

    /// The lowest packet that is missing.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.base
    }

    /// Whether this packet is here, as far as the window tells.
    #[must_use]
    pub const fn has_packet(&self, index: u32) -> bool {
        index < self.base || self.here & bit(index - self.base) != 0
    }

    /// Asks for a packet that there was no room for, unless it was asked for just now [E0-8].
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
                // The sender knows how far it may go, or the word of it got lost.
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
        // The bit first, then the slide: else nothing ever moves [E0-2].
        self.here |= bit(ahead);
        let slide = self.here.trailing_ones();
        if slide > 0 {
            self.base += slide;
            self.here = down(self.here, slide);
            self.deadline = now.saturating_add(self.config.hole_timeout);
            (self.strikes, self.ranges) = (0, 0);
            // After every slide, whatever packet it was [E0-4, E0-5].
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
            // Counted anew after a request for all, too [E0-18].
            self.strikes = 0;
            self.ranges = self.ranges.saturating_add(1).min(MAX_DOUBLINGS);
            let last = self.count.map_or(u32::MAX, |count| count - 1);
            self.answers.queue_answer(Answer::Resend { first, last });
        }
        // Requests for one packet keep their pace. What sends everything again does not.
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
