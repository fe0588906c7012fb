//! Adaptive window (docs/protocol.md 8.5): the timeout follows the measured delays.
//!
//! The sender keeps a window. The receiver's acknowledgements carry all received packets and the expected bits: the
//! packets that it wants at once. The sender computes mean and deviation of the last delays. It checks the window at a
//! fixed interval and retransmits packets whose timeout has passed. When many packets time out in one check, it sends
//! an inquiry to the links on the path.

use super::mapping::{InFlight, WIDTH, before, ones};
use super::{Answer, MessageSender, Packet, UnhashedCount};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use alloc::boxed::Box;
use alloc::vec::Vec;

pub use super::mapping::Receiver;

/// Rule for the timeout of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TimeoutRule {
    /// Smoothed mean + 4 x smoothed mean deviation, at least twice the mean.
    #[default]
    Safe,
    /// Mean + one standard deviation of the last samples, the literal form of source 002: on a path without loss, 10
    /// to 21 % of all packets are spurious retransmissions [E2-1].
    Literal,
}

/// Parameters of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AdaptiveWindowConfig {
    /// Maximum number of packets in flight, 1 to 128 (128).
    pub window: u32,
    /// Number of delay samples in use, 1 to 256 (64).
    pub samples: u32,
    /// Maximum interval between two checks of the window (a quarter of a round trip); a quarter of the measured round
    /// trip if that is shorter.
    pub walk: Nanos,
    /// Number of late packets in one check above which the sender sends an inquiry (3).
    pub late: u32,
    /// Timeout before the first sample.
    pub initial: Nanos,
    /// Maximum timeout of a retransmitted packet: it doubles each time (64 round trips).
    pub longest: Nanos,
    /// Rule for the timeout of a packet.
    pub patience: TimeoutRule,
}

impl AdaptiveWindowConfig {
    /// Returns the specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self {
            window: WIDTH,
            samples: 64,
            walk: Nanos::new(round_trip.get() / 4 + 1),
            late: 3,
            initial: round_trip.saturating_mul(4),
            longest: round_trip.saturating_mul(64),
            patience: TimeoutRule::Safe,
        }
    }
}

/// The last delay samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DelaySamples {
    spans: Box<[u64]>,
    taken: u64,
    sum: u64,
    sum_of_squares: u128,
}

impl DelaySamples {
    fn new(samples: u32) -> Self {
        let size = fpga_registers::cast::index(samples.clamp(1, 256));
        Self { spans: alloc::vec![0; size].into_boxed_slice(), taken: 0, sum: 0, sum_of_squares: 0 }
    }

    fn sample(&mut self, span: Nanos) {
        // Limited so that the sum of 256 squares fits.
        let span = span.get().min(1 << 48);
        let place = usize::try_from(self.taken % self.spans.len() as u64).unwrap_or(0);
        if let Some(place) = self.spans.get_mut(place) {
            let old = core::mem::replace(place, span);
            self.sum = self.sum + span - old;
            self.sum_of_squares = self.sum_of_squares + u128::from(span).pow(2) - u128::from(old).pow(2);
            self.taken += 1;
        }
    }

    fn clear(&mut self) {
        self.spans.fill(0);
        (self.taken, self.sum, self.sum_of_squares) = (0, 0, 0);
    }

    /// Returns mean and standard deviation.
    fn mean_and_deviation(&self) -> Option<(Nanos, Nanos)> {
        let count = self.taken.min(self.spans.len() as u64);
        let mean = self.sum.checked_div(count)?;
        let square = self.sum_of_squares / u128::from(count);
        let variance = square.saturating_sub(u128::from(mean).pow(2));
        Some((Nanos::new(mean), Nanos::new(u64::try_from(variance.isqrt()).unwrap_or(u64::MAX))))
    }
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: AdaptiveWindowConfig,
    flight: InFlight,
    delays: DelaySamples,
    trip: RoundTrip,
    walk: Nanos,
    /// Time of the last answer or transmission.
    active: Nanos,
    /// Number of probes since the last answer.
    silent: u8,
    /// Packets that the receiver requested since the last check: they are late, too.
    requested: u32,
    inquire: bool,
    /// Delay of the last answer, until it is read.
    delay: Option<Nanos>,
    /// Packets retransmitted because their timeout passed; `overdue`: because the receiver requested them.
    late: UnhashedCount,
    overdue: UnhashedCount,
}

impl Sender {
    /// Creates a sender for a message of `count` packets.
    #[must_use]
    pub fn new(config: AdaptiveWindowConfig, count: u32) -> Self {
        Self {
            config,
            flight: InFlight::new(count, config.window.min(WIDTH)),
            delays: DelaySamples::new(config.samples),
            trip: RoundTrip::default(),
            walk: Nanos::MAX,
            active: Nanos::ZERO,
            silent: 0,
            requested: 0,
            inquire: false,
            delay: None,
            late: UnhashedCount(0),
            overdue: UnhashedCount(0),
        }
    }

    /// Returns the number of packets in flight, and of those marked for retransmission.
    #[must_use]
    pub fn in_flight(&self) -> (u32, u32) {
        self.flight.counts()
    }

    /// Returns the lowest packet that is not acknowledged.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.flight.base
    }

    /// Restarts with another message, on a path with the round trip `trip`. Delay samples of the path are kept unless
    /// the message goes to another node (`new_node`).
    pub fn begin(&mut self, count: u32, new_node: bool, trip: &RoundTrip) {
        self.flight.begin(count);
        if new_node {
            self.delays.clear();
        }
        self.trip = *trip;
        (self.silent, self.requested) = (0, 0);
        self.walk = Nanos::MAX;
        self.inquire = false;
    }

    /// Retransmits the highest outstanding packet if nothing was answered for a while: its answer reports all missing
    /// packets.
    fn probe(&mut self, now: Nanos) {
        let Some(usual) = self.trip.usual().filter(|_| self.config.patience == TimeoutRule::Safe) else {
            return;
        };
        if self.active.saturating_add(super::backoff(usual, self.silent)) > now {
            return;
        }
        if let Some((_, last)) = self.flight.ends() {
            self.flight.mark_retransmit(last);
            self.silent = self.silent.saturating_add(1).min(super::MAX_DOUBLINGS);
            self.active = now;
        }
    }

    /// Returns the current timeout of a packet.
    #[must_use]
    pub fn timeout(&self) -> Nanos {
        let learnt = match self.config.patience {
            TimeoutRule::Literal => {
                self.delays.mean_and_deviation().map(|(mean, deviation)| mean.saturating_add(deviation))
            }
            TimeoutRule::Safe => self.trip.timeout(),
        };
        learnt.unwrap_or(self.config.initial)
    }

    /// Sets the round trip of the path.
    pub fn learn(&mut self, now: Nanos, trip: &RoundTrip) {
        self.trip = *trip;
        if self.walk != Nanos::MAX {
            self.walk = self.walk.min(now.saturating_add(self.interval()));
        }
    }

    /// Returns the interval between two checks of the window.
    fn interval(&self) -> Nanos {
        if self.trip.samples == 0 || self.config.patience == TimeoutRule::Literal {
            return self.config.walk;
        }
        let quarter = Nanos::new(self.trip.mean.get() / 4 + 1);
        // A node that does not answer is checked less and less.
        self.config.walk.min(quarter).saturating_mul(1 << (2 * self.silent.saturating_sub(2)))
    }

    /// Whether so many packets were late that an inquiry to the links on the path is due. Returns true once per
    /// inquiry.
    pub const fn take_inquiry(&mut self) -> bool {
        core::mem::replace(&mut self.inquire, false)
    }

    /// Returns the delay of the last answer, once.
    pub const fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.take()
    }

    /// Returns the number of packets retransmitted because of their timeout, and because the receiver requested them.
    #[must_use]
    pub const fn retransmit_counts(&self) -> (u64, u64) {
        (self.late.0, self.overdue.0)
    }
}

impl MessageSender for Sender {
    fn handle_answer(&mut self, now: Nanos, answer: &Answer) {
        let map = match answer {
            Answer::Done => {
                self.flight.base = self.flight.count;
                return;
            }
            Answer::Map(map) => map,
            _ => return,
        };
        let learnt = self.flight.acknowledge(map);
        (self.active, self.silent) = (now, 0);
        let Some(sending) = learnt.sending else { return };
        let span = now.saturating_sub(sending.at);
        self.delays.sample(span);
        self.trip.sample(span);
        self.delay = Some(span);
        // The first check was due after a guess.
        self.walk = self.walk.min(now.saturating_add(self.interval()));
        // Expected bits count only for packets sent before the answered one and not retransmitted since.
        let wanted = super::bits::down(map.overdue, self.flight.base.saturating_sub(map.base));
        let base = self.flight.base;
        for ahead in ones(wanted & self.flight.outstanding(base)) {
            let (last, _) = self.flight.last(base + ahead);
            // Its own answer may still be on the way: nothing is known before a round trip has passed.
            let young = now.saturating_sub(last.at) < self.trip.mean && self.flight.is_repeat(last);
            if before(last.sequence, sending.sequence) && !young {
                self.flight.mark_retransmit(base + ahead);
                self.overdue.add(1);
                self.requested += 1;
            }
        }
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        let timeout = self.timeout();
        // A wrong first guess neither shortens nor prolongs the doubled timeout.
        let longest =
            if self.trip.samples == 0 { self.config.longest.max(timeout) } else { timeout.saturating_mul(4) };
        let mut late = 0;
        let base = self.flight.base;
        for ahead in ones(self.flight.outstanding(base)) {
            let (last, tries) = self.flight.last(base + ahead);
            // The timeout doubles with each retransmission [E2-5].
            if now.saturating_sub(last.at) >= timeout.saturating_mul(1 << tries.min(10)).min(longest) {
                self.flight.mark_retransmit(base + ahead);
                late += 1;
            }
        }
        if late == 0 {
            self.probe(now);
        }
        self.late.add(late);
        self.inquire |= late + core::mem::take(&mut self.requested) > self.config.late;
        self.walk = now.saturating_add(self.interval());
        late
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        (!self.flight.is_done() && self.walk != Nanos::MAX).then_some(self.walk)
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        if self.flight.is_done() {
            return None;
        }
        let packet = self.flight.poll(now)?;
        self.active = now;
        if self.walk == Nanos::MAX {
            self.walk = now.saturating_add(self.interval());
        }
        Some(packet)
    }

    fn is_done(&self) -> bool {
        self.flight.is_done()
    }
}

impl Sender {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        crate::state_fields!(self, without [config, delay, late, overdue], flight + flight.heap_bytes(), delays + size_of_val(&*delays.spans), trip, walk, active, silent, requested, inquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_samples_give_mean_and_deviation_of_last_n() {
        let mut delays = DelaySamples::new(4);
        assert_eq!(delays.mean_and_deviation(), None);
        for span in [1000, 2, 4, 4, 6] {
            delays.sample(Nanos::new(span));
        }
        assert_eq!(delays.mean_and_deviation(), Some((Nanos::new(4), Nanos::new(1))));
        for _ in 0..600 {
            delays.sample(Nanos::MAX);
        }
        assert_eq!(delays.mean_and_deviation(), Some((Nanos::new(1 << 48), Nanos::ZERO)));
    }
}
