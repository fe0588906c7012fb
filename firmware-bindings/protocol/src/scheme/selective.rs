//! Selective (docs/protocol.md 8.6): a scheme of this project, not contained in any of its sources.
//!
//! Every acknowledgement reports all received packets. A packet counts as lost when a packet *sent* after it has been
//! received and the wait exceeds the reordering of the path (RACK, RFC 8985). The sender measures that reordering by
//! the spread of the delays, and widens the reorder window after a spurious retransmission. Without further answers,
//! the last packet is retransmitted as a probe. A timeout is the last resort.

use super::bits::PacketWindow;
use super::mapping::{InFlight, Transmission, before};
use super::{Answer, MessageSender, Packet, UnhashedCount};
use crate::sender::RoundTrip;
use crate::state::StateTable;
use crate::time::Nanos;
use alloc::vec::Vec;

pub use super::mapping::Receiver;

/// Parameters of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SelectiveConfig {
    /// Maximum number of packets in flight, and number of packets that the receiver accepts from its lowest hole on: 1
    /// to 512 (512).
    pub window: u32,
    /// Round trip before the first sample.
    pub round_trip: Nanos,
    /// Maximum timeout, also when doubled (64 round trips).
    pub longest: Nanos,
}

impl SelectiveConfig {
    /// Returns the specification's values for a round trip of `round_trip`.
    #[must_use]
    pub const fn new(round_trip: Nanos) -> Self {
        Self { window: PacketWindow::WIDTH, round_trip, longest: round_trip.saturating_mul(64) }
    }
}

/// Number of delay samples per epoch. After each epoch the older statistics count half.
const EPOCH: u32 = 128;

/// Spread of the delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct DelayVariation {
    least: Option<Nanos>,
    /// Maximum delay of this epoch and of the last one.
    longest: [Nanos; 2],
    samples: u32,
    /// Margin of the window over the measured spread, in eighths.
    margin: u32,
    /// Sum of the delays of the first epoch.
    sum: u64,
    /// Necessary retransmissions, and spurious ones (`wasted`); old ones count less.
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

    /// Whether more retransmissions replaced lost packets than late ones: then waiting costs more than it saves.
    const fn is_lossy(&self) -> bool {
        self.useful > self.wasted
    }

    /// Widens the window after a spurious retransmission.
    fn widen_window(&mut self) {
        self.wasted = self.wasted.saturating_add(1);
        if !self.is_lossy() {
            self.margin = (self.margin + 4).min(32);
        }
    }

    /// Ends the first epoch, independent of its number of samples: after a timeout, missing packets are lost, not late.
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

    /// Returns the reorder window beyond the minimum delay while few answers are known, and packets in flight are late
    /// by `late` nanoseconds in total.
    ///
    /// The first answers belong to the fastest packets, so the missing ones carry information, too. The lateness of
    /// late and answered packets divided by the number of answered ones is the mean of an exponential delay (the
    /// maximum-likelihood estimate of censored samples). One packet in a thousand exceeds seven means.
    ///
    /// `haste`: everything was sent, so a spurious retransmission delays nothing; one packet in twenty exceeds
    /// three means.
    fn early_window(&self, late: u64, haste: bool) -> Nanos {
        let (samples, least) = (u64::from(self.samples), self.least.unwrap_or(Nanos::ZERO).get());
        if !self.is_new() || samples == 0 {
            return Nanos::ZERO;
        }
        let answered = self.sum.saturating_sub(samples.saturating_mul(least));
        let means = if haste { 3 } else { 7 };
        Nanos::new(answered.saturating_add(late).saturating_mul(means) / samples)
    }

    /// Returns the reorder window: the maximum delay of a packet beyond the minimum delay.
    fn window(&self, round_trip: Nanos) -> Nanos {
        let least = self.least.unwrap_or(round_trip);
        let [now, before] = self.longest;
        // If all answers had the same delay, the spread is 0. Widening it would have no effect, and a wait of zero
        // would expire in the nanosecond in which it started, forever.
        let floor = Nanos::new(round_trip.get() / 8).max(Nanos::new(1));
        // One in some hundred delays exceeds the maximum of some hundred samples; few exceed 1.5 times that.
        let seen = now.max(before).saturating_sub(least).max(floor);
        let share = if self.is_lossy() { 7 } else { 12 };
        let wide = seen.saturating_mul(u64::from(share + self.margin)).get() / 8;
        Nanos::new(wide).max(Nanos::new(least.get() / 4))
    }
}

/// Sender of one message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sender {
    config: SelectiveConfig,
    flight: InFlight,
    trip: RoundTrip,
    spread: DelayVariation,
    /// Latest transmission that is known to have arrived.
    latest: Option<Transmission>,
    /// Time of the next loss detection, at which a packet may count as lost.
    due: Nanos,
    /// Time at which a probe is sent without an answer.
    probe: Nanos,
    /// Consecutive probes and timeouts.
    silent: u32,
    /// Delay of the last answer, until it is read.
    delay: Option<Nanos>,
    needless: UnhashedCount,
}

impl Sender {
    /// Creates a sender for a message of `count` packets.
    #[must_use]
    pub fn new(config: SelectiveConfig, count: u32) -> Self {
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

    /// Returns the delay of the last answer, once.
    pub const fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.take()
    }

    /// Returns the number of retransmissions, and the number of those that the receiver reported as duplicates.
    #[must_use]
    pub const fn retransmit_counts(&self) -> (u64, u64) {
        (self.flight.retransmits(), self.needless.0)
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

    /// Restarts with another message, on a path with the round trip `trip`. The spread of the delays is kept unless the
    /// message goes to another node (`new_node`).
    pub fn begin(&mut self, count: u32, new_node: bool, trip: &RoundTrip) {
        self.flight.begin(count);
        if new_node {
            self.spread = DelayVariation::default();
        }
        self.trip = *trip;
        self.latest = None;
        (self.due, self.probe) = (Nanos::MAX, Nanos::MAX);
        self.silent = 0;
    }

    /// Sets the round trip of the path, and shortens the probe timer to it. The timer never becomes longer: the sample may be that of a
    /// request that was repeated until the node could be reached. The node answers now, so the doubling of the timer begins again.
    pub fn learn(&mut self, now: Nanos, trip: &RoundTrip) {
        self.trip = *trip;
        if self.probe != Nanos::MAX {
            let guess = self.probe;
            self.silent = 0;
            self.wait(now);
            self.probe = self.probe.min(guess);
        }
    }

    fn round_trip(&self) -> Nanos {
        if self.trip.samples == 0 { self.config.round_trip } else { self.trip.mean }
    }

    /// Retransmits lost packets and sets the time of the next detection.
    fn detect_losses(&mut self, now: Nanos) {
        self.due = Nanos::MAX;
        let Some(latest) = self.latest else { return };
        let trip = self.round_trip();
        let least = self.spread.least.unwrap_or(trip);
        let late = if self.spread.is_new() { self.flight.lateness(now.saturating_sub(least)) } else { 0 };
        let haste = self.flight.next == self.flight.count;
        let window = self.spread.window(trip).max(self.spread.early_window(late, haste));
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

    /// Restarts the probe timer: two round trips, as in RFC 8985, plus the reorder window. It is not a multiple of the
    /// maximum delay of the path: where a queue drops most of a window, the answer to the last packet reports all the
    /// others.
    fn wait(&mut self, now: Nanos) {
        let trip = self.round_trip();
        let span = trip.saturating_mul(2).saturating_add(self.spread.window(trip));
        let longest = if self.trip.samples == 0 { self.config.longest } else { span.saturating_mul(32) };
        self.probe = now
            .saturating_add(span.saturating_mul(1 << self.silent.min(16)).min(longest))
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
            if map.duplicate {
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
        // First only the last packet, whose answer reports all others; without an answer, the first one as well.
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

impl Sender {
    /// Returns the fields of the state with their sizes in memory.
    #[must_use]
    pub fn state(&self) -> Vec<StateTable> {
        crate::state_fields!(self, without [config, delay, needless], flight + flight.heap_bytes(), trip, spread, latest, due, probe, silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the statistics after delays of 10 and 30 ns.
    fn two_samples() -> DelayVariation {
        let mut spread = DelayVariation::default();
        spread.sample(Nanos::new(10));
        spread.sample(Nanos::new(30));
        spread
    }

    #[test]
    fn early_window_is_seven_means_of_first_epoch() {
        assert_eq!(DelayVariation::default().early_window(5, false), Nanos::ZERO);
        // 20 ns above the minimum, and 5 ns of lateness, over two answers.
        assert_eq!(two_samples().early_window(5, false), Nanos::new(25 * 7 / 2));
        assert_eq!(two_samples().early_window(5, true), Nanos::new(25 * 3 / 2));
        let mut settled = two_samples();
        settled.end_first_epoch();
        assert_eq!(settled.early_window(5, false), Nanos::ZERO);
        let mut second_epoch = DelayVariation::default();
        for _ in 0..=EPOCH {
            second_epoch.sample(Nanos::new(10));
        }
        assert_eq!((second_epoch.samples, second_epoch.early_window(5, false)), (1, Nanos::ZERO));
    }

    /// A first sample of the time for which the node could not be reached must not delay the next probe.
    #[test]
    fn learn_long_sample_does_not_delay_probe() {
        let trip = |mean: u64| RoundTrip { mean: Nanos::new(mean), samples: 1, ..RoundTrip::default() };
        let mut sender = Sender::new(SelectiveConfig::new(Nanos::new(100)), 1);
        sender.begin(1, true, &RoundTrip::default());
        let mut now = Nanos::ZERO;
        for _ in 0..8 {
            assert!(sender.poll_packet(now).is_some());
            now = sender.poll_timeout().unwrap();
            sender.handle_timeout(now);
        }
        assert!(sender.poll_packet(now).is_some());
        let probe = sender.poll_timeout().unwrap();
        sender.learn(now, &trip(20_000));
        assert_eq!(sender.poll_timeout(), Some(probe));
        sender.handle_timeout(probe);
        let again = sender.poll_timeout().unwrap().saturating_sub(probe);
        assert!(again < Nanos::new(6 * 20_000), "the doubling began again: {again:?}");
        // A shorter round trip shortens the timer.
        sender.learn(probe, &trip(10));
        assert!(sender.poll_timeout().unwrap().saturating_sub(probe) < Nanos::new(100));
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
