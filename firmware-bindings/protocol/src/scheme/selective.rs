//! Selective (spec 6): what none of the documents has.
//!
//! Every acknowledgement says all that is here. A packet counts as lost when one that was *sent* after it is here and it has been
//! waited for longer than the disorder of the path explains (RACK, RFC 8985): the sender measures that disorder by the
//! spread of the delays, and widens it when a packet turns out to have been sent again for nothing. When nothing more comes back, the
//! last packet is sent again as a probe, and a timeout is the last resort.

use super::bits::PacketWindow;
use super::mapping::{InFlight, Transmission, before};
use super::{Answer, MessageSender, Packet, UnhashedCount};
use crate::sender::RoundTrip;
use crate::time::Nanos;

pub use super::mapping::Receiver;

/// The sender's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Packets in flight at most, and how far beyond its lowest hole the receiver takes packets: 1 to 512 (512).
    pub window: u32,
    /// Round trip before one was seen.
    pub round_trip: Nanos,
    /// The longest timeout, doubled or not (64 round trips).
    pub longest: Nanos,
}

impl Config {
    /// The specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self { window: PacketWindow::WIDTH, round_trip, longest: round_trip.saturating_mul(64) }
    }
}

/// Delays of an epoch: after so many samples what was learnt is half forgotten.
const EPOCH: u32 = 128;

/// How far the delays lie apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct DelayVariation {
    least: Option<Nanos>,
    /// Longest delay of this epoch and of the last one.
    longest: [Nanos; 2],
    samples: u32,
    /// Eighths by which the window is wider than what was seen.
    margin: u32,
    /// Sum of the delays of the first epoch.
    sum: u64,
    /// Packets sent again that were missed, and that were not; old ones count less.
    useful: u32,
    wasted: u32,
}

impl DelayVariation {
    fn sample(&mut self, span: Nanos) {
        self.least = Some(self.least.map_or(span, |least| least.min(span)));
        let [now, before] = &mut self.longest;
        *now = (*now).max(span);
        self.samples += 1;
        self.sum = self.sum.saturating_add(span.get());
        if self.samples == EPOCH {
            (*before, *now) = (*now, Nanos::ZERO);
            self.samples = 0;
            self.margin = self.margin.saturating_sub(1);
            (self.useful, self.wasted) = (self.useful / 2, self.wasted / 2);
        }
    }

    /// Whether more of what was sent again was lost than late: then waiting costs more than it saves.
    const fn is_lossy(&self) -> bool {
        self.useful > self.wasted
    }

    /// A packet was sent again for nothing.
    fn widen_window(&mut self) {
        self.wasted = self.wasted.saturating_add(1);
        if !self.is_lossy() {
            self.margin = (self.margin + 4).min(32);
        }
    }

    /// Nothing has come for so long that what is missing is lost, not late: the first epoch is over, however few its samples.
    fn end_first_epoch(&mut self) {
        let [now, before] = &mut self.longest;
        if *before == Nanos::ZERO {
            *before = (*now).max(Nanos::new(1));
        }
    }

    /// Whether this is the first epoch.
    const fn is_new(&self) -> bool {
        let [_, before] = self.longest;
        before.get() == 0
    }

    /// How much longer than the shortest delay a packet may take while few answers are here, and packets in flight are late by `late`
    /// nanoseconds together. The first answers are those of the packets that were fast: what is still missing says as much. Late
    /// and answered packets together over the answered ones are the mean of an exponential delay (the estimate of greatest
    /// likelihood of censored samples), and seven means are passed by one packet in a thousand.
    fn early_window(&self, late: u64) -> Nanos {
        let (samples, least) = (u64::from(self.samples), self.least.unwrap_or(Nanos::ZERO).get());
        if !self.is_new() || samples == 0 {
            return Nanos::ZERO;
        }
        let answered = self.sum.saturating_sub(samples.saturating_mul(least));
        Nanos::new(answered.saturating_add(late).saturating_mul(7) / samples)
    }

    /// How much longer than the shortest delay a packet may take.
    fn window(&self, round_trip: Nanos) -> Nanos {
        let least = self.least.unwrap_or(round_trip);
        let [now, before] = self.longest;
        // Where all answers came at once, 0 was seen: widening would multiply nothing, and a wait of nothing would end in the
        // nanosecond in which it began, without end.
        let floor = Nanos::new(round_trip.get() / 8).max(Nanos::new(1));
        // The longest of some hundred samples is passed by one in some hundred; half as much again by few.
        let seen = now.max(before).saturating_sub(least).max(floor);
        let share = if self.is_lossy() { 7 } else { 12 };
        let wide = seen.saturating_mul(u64::from(share + self.margin)).get() / 8;
        Nanos::new(wide).max(Nanos::new(least.get() / 4))
    }
}

/// The sending end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: Config,
    flight: InFlight,
    trip: RoundTrip,
    spread: DelayVariation,
    /// The latest sending that is known to have arrived.
    latest: Option<Transmission>,
    /// When lost packets are looked for, because one may be by then.
    due: Nanos,
    /// When nothing was heard for so long that a probe is sent.
    probe: Nanos,
    /// Probes and timeouts in a row.
    silent: u32,
    /// How long the last answer took, until it is asked for.
    delay: Option<Nanos>,
    needless: UnhashedCount,
}

impl Sender {
    /// For a message of `count` packets.
    #[must_use]
    pub fn new(config: Config, count: u32) -> Self {
        Self {
            config,
            flight: InFlight::new(count, config.window),
            trip: RoundTrip::default(),
            spread: DelayVariation::default(),
            latest: None,
            due: Nanos::MAX,
            probe: Nanos::MAX,
            silent: 0,
            delay: None,
            needless: UnhashedCount(0),
        }
    }

    /// How long the last answer took, once.
    pub const fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.take()
    }

    /// Packets sent again, and those among them whose receiver had them already, as far as it said so.
    #[must_use]
    pub const fn retransmit_counts(&self) -> (u64, u64) {
        (self.flight.retransmits(), self.needless.0)
    }

    /// The lowest packet that is not acknowledged.
    #[must_use]
    pub const fn base(&self) -> u32 {
        self.flight.base
    }

    /// Starts over with another message. Delays of the path stay known unless it goes to a `stranger`.
    pub fn begin(&mut self, count: u32, stranger: bool) {
        self.flight.begin(count);
        if stranger {
            self.trip = RoundTrip::default();
            self.spread = DelayVariation::default();
        }
        self.latest = None;
        (self.due, self.probe) = (Nanos::MAX, Nanos::MAX);
        self.silent = 0;
    }

    fn round_trip(&self) -> Nanos {
        if self.trip.samples == 0 { self.config.round_trip } else { self.trip.mean }
    }

    /// Sends again what is lost, and notes when to look again.
    fn detect_losses(&mut self, now: Nanos) {
        self.due = Nanos::MAX;
        let Some(latest) = self.latest else { return };
        let least = self.spread.least.unwrap_or(self.config.round_trip);
        let late = if self.spread.is_new() { self.flight.lateness(now.saturating_sub(least)) } else { 0 };
        let window = self.spread.window(self.config.round_trip).max(self.spread.early_window(late));
        let wait = least.saturating_add(window);
        while let Some(sending) = self.flight.earliest(latest.sequence) {
            let lost = sending.at.saturating_add(wait);
            if lost > now {
                self.due = lost;
                break;
            }
            self.flight.mark_retransmit(sending.index);
        }
    }

    /// Starts to wait anew for anything: two round trips, as RFC 8985 has it, and for what disorder explains. Not for the longest delay of a
    /// path several times over: where a queue drops most of a window, the last packet's answer is what tells of all the others.
    fn wait(&mut self, now: Nanos) {
        let window = self.spread.window(self.config.round_trip);
        let span = self.round_trip().saturating_mul(2).saturating_add(window);
        self.probe = now
            .saturating_add(span.saturating_mul(1 << self.silent.min(16)).min(self.config.longest))
            .max(now.saturating_add(Nanos::new(1)));
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
        if let Some(sending) = learnt.sending {
            let span = now.saturating_sub(sending.at);
            self.trip.sample(span);
            self.spread.sample(span);
            self.delay = Some(span);
            if self.latest.is_none_or(|latest| before(latest.sequence, sending.sequence)) {
                self.latest = Some(sending);
            }
            if map.retransmit {
                self.needless.add(1);
                self.spread.widen_window();
            } else if self.flight.is_repeat(sending) {
                self.spread.useful = self.spread.useful.saturating_add(1);
            }
        }
        if learnt.new > 0 {
            self.silent = 0;
        }
        self.wait(now);
        self.detect_losses(now);
    }

    fn handle_timeout(&mut self, now: Nanos) -> u32 {
        if self.due <= now {
            self.detect_losses(now);
        }
        if self.probe > now || self.flight.is_done() {
            return 0;
        }
        // First the last packet alone, whose answer tells of all the others; if not even that comes, the first as well.
        if let Some((first, last)) = self.flight.ends() {
            self.flight.mark_retransmit(last);
            if self.silent > 0 {
                self.flight.mark_retransmit(first);
            }
        }
        self.silent += 1;
        self.spread.end_first_epoch();
        self.wait(now);
        1
    }

    fn poll_timeout(&self) -> Option<Nanos> {
        let due = self.due.min(self.probe);
        (!self.flight.is_done() && due != Nanos::MAX).then_some(due)
    }

    fn poll_packet(&mut self, now: Nanos) -> Option<Packet> {
        if self.flight.is_done() {
            return None;
        }
        let packet = self.flight.poll(now)?;
        self.wait(now);
        Some(packet)
    }

    fn is_done(&self) -> bool {
        self.flight.is_done()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After delays of 10 and 30 ns.
    fn two_samples() -> DelayVariation {
        let mut spread = DelayVariation::default();
        spread.sample(Nanos::new(10));
        spread.sample(Nanos::new(30));
        spread
    }

    #[test]
    fn early_window_is_seven_means_of_first_epoch() {
        assert_eq!(DelayVariation::default().early_window(5), Nanos::ZERO);
        // 20 ns above the shortest, and 5 of what is late, by two answers.
        assert_eq!(two_samples().early_window(5), Nanos::new(25 * 7 / 2));
        let mut settled = two_samples();
        settled.end_first_epoch();
        assert_eq!(settled.early_window(5), Nanos::ZERO);
        let mut second_epoch = DelayVariation::default();
        for _ in 0..=EPOCH {
            second_epoch.sample(Nanos::new(10));
        }
        assert_eq!((second_epoch.samples, second_epoch.early_window(5)), (1, Nanos::ZERO));
    }

    #[test]
    fn widen_margin_grows_unless_path_is_lossy() {
        let mut late = DelayVariation::default();
        late.widen_window();
        assert_eq!((late.margin, late.wasted), (4, 1));
        let mut lossy = DelayVariation { useful: 2, ..DelayVariation::default() };
        lossy.widen_window();
        assert_eq!((lossy.margin, lossy.wasted), (0, 1));
        lossy.widen_window();
        assert_eq!((lossy.margin, lossy.wasted), (4, 2));
    }
}
