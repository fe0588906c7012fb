//! Reports of the receiver about the packets of the current round: input of the sender's congestion window.

use alloc::boxed::Box;

use crate::scheme::Unhashed;
use crate::scheme::bits::PacketSet;
use crate::time::Nanos;

/// Packets by which one may be overtaken before it counts as gone: at first, and at most.
const FIRST_SLACK: u32 = 3;
const MAX_SLACK: u32 = 512;
/// Rounds of a message that end early, at most: packets may be late instead of lost.
const MAX_STOPS: u8 = 4;
/// Number of packets whose times are stored.
const SLOTS: usize = 256;

/// Record of one round.
///
/// ```text
///   0          base         highest + 1       next
///   | settled    | may be late  | in flight     | not sent
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reports {
    /// Packets reported in this round.
    reported: PacketSet,
    /// Packets below are reported, or count as gone.
    base: u32,
    /// Packets below `base` without a report, and the first one that was counted.
    gone: u32,
    first_gone: u32,
    /// Rounds of this message that ended early.
    stops: u8,
    /// Packets by which one was overtaken before its report, with a margin.
    slack: u32,
    /// Times at which the last packets of this round were sent, by the low bits of their numbers.
    sent: Unhashed<Box<[Nanos; SLOTS]>>,
    /// Delay of the last reported packet, until it is read.
    delay: Unhashed<Option<Nanos>>,
    /// Reports since the last query.
    covered: Unhashed<u32>,
    /// Packets of earlier rounds without a report.
    lost: u32,
    /// Time of the last report or transmission.
    active: Nanos,
}

impl Reports {
    /// Creates the record for a message of at most `most` packets.
    pub(super) fn new(most: u32) -> Self {
        Self {
            reported: PacketSet::new(most),
            base: 0,
            gone: 0,
            first_gone: 0,
            stops: 0,
            slack: FIRST_SLACK,
            sent: Unhashed(Box::new([Nanos::ZERO; SLOTS])),
            delay: Unhashed(None),
            covered: Unhashed(0),
            lost: 0,
            active: Nanos::ZERO,
        }
    }

    /// Restarts with another message.
    pub(super) fn begin(&mut self) {
        self.reported.clear();
        (self.base, self.gone, self.lost, self.covered) = (0, 0, 0, Unhashed(0));
        (self.slack, self.delay) = (FIRST_SLACK, Unhashed(None));
        self.stops = 0;
    }

    /// Restarts with another round, after one in which `sent` packets were sent and nothing is in flight any more.
    pub(super) fn begin_round(&mut self, sent: u32) {
        self.lost = self.lost.saturating_add(sent.saturating_sub(self.reported.count()));
        self.clear();
    }

    /// Whether this round is to be given up before all of its packets are sent: one of them is lost, so that all of them
    /// will be retransmitted. It was overtaken by more packets than in the last round that ended early. If so, restarts with
    /// another round.
    pub(super) fn stop(&mut self, highest: u32) -> bool {
        let slack = self.slack.saturating_mul(1 << (2 * self.stops));
        let is_short = self.gone > 0 && self.first_gone.saturating_add(slack) <= highest;
        if self.stops == MAX_STOPS || !is_short {
            return false;
        }
        self.stops += 1;
        self.lost = self.lost.saturating_add(self.gone);
        self.clear();
        true
    }

    fn clear(&mut self) {
        self.reported.clear();
        (self.base, self.gone) = (0, 0);
    }

    /// Records that packet `index` is sent.
    pub(super) fn note_sent(&mut self, now: Nanos, index: u32) {
        self.active = now;
        if let Some(sent) = self.sent.0.get_mut(fpga_registers::cast::index(index) % SLOTS) {
            *sent = now;
        }
    }

    /// Records a report of packet `index`, of the packets below `next` sent in this round.
    pub(super) fn note_report(&mut self, now: Nanos, index: u32, next: u32) {
        if index >= next || !self.reported.insert(index) {
            return;
        }
        self.active = now;
        self.covered.0 = self.covered.0.saturating_add(1);
        let slot = fpga_registers::cast::index(index) % SLOTS;
        if fpga_registers::cast::index(next - index) <= SLOTS {
            self.delay.0 = self.sent.0.get(slot).map(|sent| now.saturating_sub(*sent));
        }
        if index < self.base {
            self.gone = self.gone.saturating_sub(1);
            self.slack = (self.slack + 2 * (self.base - index)).min(MAX_SLACK);
        }
        self.settle((index + 1).saturating_sub(self.slack));
    }

    /// Packets below `end` that were not reported count as gone.
    fn settle(&mut self, end: u32) {
        while self.base < end {
            if !self.reported.contains(self.base) {
                self.first_gone = if self.gone == 0 { self.base } else { self.first_gone };
                self.gone += 1;
            }
            self.base += 1;
        }
    }

    /// Packets below `next` that were not reported count as gone, because nothing was reported for a timeout.
    pub(super) fn give_up(&mut self, now: Nanos, next: u32) {
        self.settle(next);
        self.active = now;
    }

    /// Returns the number of packets in flight of those below `next`, and the number of lost packets of all rounds
    /// before.
    pub(super) const fn in_flight(&self, next: u32) -> (u32, u32) {
        (next.saturating_sub(self.reported.count()).saturating_sub(self.gone), self.lost)
    }

    /// Returns the time of the last report or transmission.
    pub(super) const fn active(&self) -> Nanos {
        self.active
    }

    /// Returns the delay of the last reported packet, once.
    pub(super) const fn take_delay(&mut self) -> Option<Nanos> {
        self.delay.0.take()
    }

    /// Returns the number of reports since the last call.
    pub(super) const fn take_covered(&mut self) -> u32 {
        core::mem::replace(&mut self.covered.0, 0)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.reported.heap_bytes() + size_of_val(&*self.sent.0)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// With any order of reports, what is in flight and what counts as gone is what was sent and not reported.
    #[test]
    fn reports_match_set_of_packets() {
        let mut state = 7_u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % u64::from(below)).unwrap()
        };
        let mut reports = Reports::new(300);
        let (mut missing, mut next, mut lost) = (BTreeSet::new(), 0, 0);
        for step in 0..20_000_u64 {
            let now = Nanos::new(step);
            match random(8) {
                0..4 if next < 300 => {
                    reports.note_sent(now, next);
                    missing.insert(next);
                    next += 1;
                }
                0 => {
                    reports.begin_round(next);
                    lost += u32::try_from(missing.len()).unwrap();
                    missing.clear();
                    next = 0;
                }
                1 if random(30) == 0 => reports.give_up(now, next),
                1 => {
                    let gone = reports.gone;
                    if reports.stop(next) {
                        lost += gone;
                        missing.clear();
                        next = 0;
                    }
                }
                _ => {
                    let index = random(310);
                    let new = missing.remove(&index);
                    reports.note_report(now, index, next);
                    assert_eq!(reports.take_covered(), u32::from(new));
                }
            }
            let (in_flight, before) = reports.in_flight(next);
            let gone = missing.range(..reports.base).count();
            assert_eq!(gone, reports.gone as usize);
            assert_eq!(in_flight as usize, missing.len() - gone);
            assert_eq!(before, lost);
        }
    }

    #[test]
    fn reports_measure_recent_packets() {
        let mut reports = Reports::new(1000);
        for index in 0..300 {
            reports.note_sent(Nanos::new(u64::from(index)), index);
        }
        reports.note_report(Nanos::new(400), 43, 300);
        assert_eq!(reports.take_delay(), None, "its time was replaced");
        for index in [44, 299] {
            reports.note_report(Nanos::new(500), index, 300);
            assert_eq!(
                (reports.take_delay(), reports.take_delay()),
                (Some(Nanos::new(500 - u64::from(index))), None)
            );
        }
    }
}
