//! Receiver window (docs/protocol.md 8.1), with every erratum of its sources closed.
//!
//! The receiver keeps the lowest missing packet and a bit vector of the received packets above it. It buffers no payload:
//! payload is written to the address of its packet number. The sender keeps only its position: it sends every packet
//! once, and again on request.
//!
//! The receiver requests a missing packet when later packets have arrived and the reorder window has passed, and when
//! nothing has arrived for a while. It measures the round trip (its acceptance to the first packet, unless that was sent
//! again, and a request to the retransmission) and the disorder of the path. The configured times are first guesses, used
//! before the first sample.

use super::bits::{PacketSet, width};
use super::{Answer, MAX_DOUBLINGS, MessageSender, Packet, Unhashed, backoff};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::vec::Vec;

mod receiver;

pub use receiver::Receiver;

/// Values of [`Packet::sequence`]: first transmission of a packet, and any other. The receiver needs it to know whether
/// a requested packet was lost or late.
pub(super) const FIRST: u32 = 1;
pub(super) const RETRANSMISSION: u32 = 2;

/// Number of packets whose times are stored: the maximum window.
const SLOTS: usize = 128;

/// Parameters of sender and receiver (docs/protocol.md 8.7; default values in parentheses).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReceiverWindowConfig {
    /// Number of packets that the receiver accepts from the lowest missing one on, 1 to 128 (128).
    pub window: u32,
    /// Time that the receiver waits for a requested packet, or for any packet (2 round trips), before it has measured
    /// the round trip. It doubles with each request for everything from the lowest missing packet on, up to 16 x.
    pub hole_timeout: Nanos,
    /// Requests for one hole before everything from there on is requested (3).
    pub patience: u8,
    /// Whether the receiver sends the sender's limit, and requests no packet beyond its window.
    pub credit: bool,
    /// Time without an answer after which the sender retransmits the last packet (4 round trips), before it has measured
    /// the round trip. It doubles each time, up to 16 x.
    pub probe: Nanos,
    /// Whether timers and reorder window follow measurements (true). Otherwise the times above are constant, and the
    /// reorder window is a sixteenth of `hole_timeout`.
    pub adaptive: bool,
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
            probe: round_trip.saturating_mul(4),
            adaptive: true,
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
    /// Lowest packet that was never sent.
    fresh: u32,
    /// Packets that were requested individually, or in a range.
    asked: PacketSet,
    /// First packet that may not be sent yet.
    limit: u32,
    /// With credits: packets received above the lowest missing one.
    above: u32,
    /// Time of the last answer or transmission.
    active: Nanos,
    /// Whether the tail is to be sent as a probe.
    probing: bool,
    /// Number of probes since the last answer.
    silent: u8,
    done: bool,
    trip: RoundTrip,
    /// With credits: times at which packets were sent, by the low bits of their numbers; [`Nanos::ZERO`]: not known which of
    /// several transmissions will be answered.
    sent: Unhashed<Box<[Nanos]>>,
    /// Delay of the last answered packet, until it is read.
    delay: Unhashed<Option<Nanos>>,
    /// Packets that limits have answered without a delay since the last query.
    covered: Unhashed<u32>,
}

impl Sender {
    /// Creates a sender for a message of `count` packets, started at `now`. A message without packets is done at once.
    #[must_use]
    pub fn new(config: ReceiverWindowConfig, count: u32, now: Nanos) -> Self {
        let limit = if config.credit { width(config.window) } else { u32::MAX };
        Self {
            count,
            next: 0,
            fresh: 0,
            asked: PacketSet::new(count),
            limit,
            above: 0,
            active: now,
            probing: false,
            silent: 0,
            done: count == 0,
            trip: RoundTrip::default(),
            sent: Unhashed(
                alloc::vec![Nanos::ZERO; if config.credit { SLOTS } else { 0 }].into_boxed_slice(),
            ),
            delay: Unhashed(None),
            covered: Unhashed(0),
            config,
        }
    }

    /// Restarts with another message, not longer than the one given at creation, on a path with the round trip `trip`.
    pub fn begin(&mut self, count: u32, now: Nanos, trip: &RoundTrip) {
        self.trip = *trip;
        self.count = count;
        (self.next, self.fresh) = (0, 0);
        self.asked.clear();
        self.limit = if self.config.credit { width(self.config.window) } else { u32::MAX };
        self.above = 0;
        self.active = now;
        self.probing = false;
        self.silent = 0;
        self.done = count == 0;
        self.sent.0.fill(Nanos::ZERO);
        (self.delay, self.covered) = (Unhashed(None), Unhashed(0));
    }

    /// Sets the round trip of the path.
    pub const fn learn(&mut self, trip: &RoundTrip) {
        self.trip = *trip;
    }

    /// Returns the number of packets in flight, and of those that were requested; `None` without credits: the receiver does
    /// not say then what has arrived.
    #[must_use]
    pub fn in_flight(&self) -> Option<(u32, u32)> {
        let base = self.limit.saturating_sub(width(self.config.window));
        let again = self.asked.count();
        let known = again.saturating_add(self.above);
        self.config.credit.then(|| (self.next.saturating_sub(base).saturating_sub(known), again))
    }

    /// Returns the delay of the packet that the last limit answers, once. Without credits, and of a packet that was sent more
    /// than once, there is none.
    pub const fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.0.take()
    }

    /// Returns the number of packets that limits have answered without a delay since the last call.
    pub const fn take_covered(&mut self) -> u32 {
        core::mem::replace(&mut self.covered.0, 0)
    }

    /// Raises the limit.
    const fn raise(&mut self, limit: u32) {
        if limit <= self.limit {
            return;
        }
        (self.limit, self.above) = (limit, 0);
    }

    /// Takes the delay from the answer to packet `index`.
    fn measure(&mut self, now: Nanos, index: u32) {
        let sent = self.note_sent(index, Nanos::ZERO);
        if sent == Nanos::ZERO {
            self.covered.0 = self.covered.0.saturating_add(1);
        } else {
            self.delay.0 = Some(now.saturating_sub(sent));
        }
    }

    /// Replaces the time at which a packet was sent.
    fn note_sent(&mut self, index: u32, at: Nanos) -> Nanos {
        let slot = fpga_registers::cast::index(index) % SLOTS;
        self.sent.0.get_mut(slot).map_or(Nanos::ZERO, |sent| core::mem::replace(sent, at))
    }

    const fn packet(&mut self, index: u32) -> Packet {
        let sequence = if index < self.fresh { RETRANSMISSION } else { FIRST };
        if index >= self.fresh {
            self.fresh = index + 1;
        }
        Packet { index, tail: index + 1 == self.count, sequence }
    }

    /// Returns the time without an answer after which the last packet is a probe.
    fn probe(&self) -> Nanos {
        let usual = if self.config.adaptive { self.trip.usual() } else { None };
        backoff(usual.map_or(self.config.probe, |usual| usual.saturating_mul(2)), self.silent)
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        self.active = self.active.max(now);
        self.silent = 0;
        // A receiver with credits requests packets of its window only. It accepts them.
        if let Answer::Resend { first, last } = *answer
            && self.config.credit
        {
            self.raise(if last < self.count { last + 1 } else { first.saturating_add(1) });
        }
        match *answer {
            Answer::Done => self.done = true,
            // There is nothing to retransmit beyond the message [E0-6].
            Answer::Resend { first, .. } if first >= self.count => {}
            // Packets not sent yet follow in order, once. A request has no other effect [E0-9].
            Answer::Resend { first, .. } if first >= self.next => {}
            // Everything from there on.
            Answer::Resend { first, last } if first < last && last >= self.count - 1 => {
                self.next = self.next.min(first);
                self.asked.clear_from(first);
            }
            Answer::Resend { first, last } => {
                for index in first..last.saturating_add(1).min(self.next) {
                    self.asked.insert(index);
                }
            }
            Answer::Limit { first, above, index } if self.config.credit => {
                self.raise(first);
                // Of a limit that was overtaken by a later one, the number is too small.
                if first == self.limit {
                    self.above = self.above.max(above.into());
                }
                if let Some(index) = index {
                    self.measure(now, index);
                }
            }
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
        waits.then(|| self.active.saturating_add(self.probe()))
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
        self.note_sent(index, if index < self.fresh { Nanos::ZERO } else { now.max(Nanos::new(1)) });
        Some(self.packet(index))
    }

    fn is_done(&self) -> bool {
        self.done
    }
}

impl Sender {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        crate::state_fields!(
            self,
            without[config],
            count,
            next,
            fresh,
            asked + asked.heap_bytes(),
            limit,
            above,
            active,
            probing,
            silent,
            done,
            trip,
            sent + size_of_val(&*self.sent.0),
            delay,
            covered
        )
    }
}
