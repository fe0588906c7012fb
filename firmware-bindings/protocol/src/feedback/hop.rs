//! Hop: reports of a switch port about its link.

use super::{Limits, LinkLoad, Word};
use crate::time::Nanos;
use fpga_firmware::ids::NodeId;

/// Parameters of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HopConfig {
    /// Limits from which the link is congested.
    pub limits: Limits,
    /// Minimum time between two packets of the same kind: feedback must not add to the congestion [E2-8].
    pub gap: Nanos,
    /// Time for which a queue shorter than at its last report is not reported again. Senders are slowing down already,
    /// and halving further rates would let the queue run empty. Source 002 (docs/protocol.md 12) reports a queue that rises above its
    /// threshold.
    pub patience: Nanos,
}

/// State of one port: the times of its reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hop {
    /// Earliest time of the next report to the controller; `answer`: of the next answer.
    report: Nanos,
    answer: Nanos,
    /// Queue level at the last report; `quiet`: time until which a shorter queue is not reported.
    level: u16,
    quiet: Nanos,
}

impl Hop {
    /// Handles a packet from `sender` to `receiver` that arrives in this `state` of the link. Returns the report to the
    /// controller, if one is due.
    ///
    /// The packet that arrives at such a moment is random, in proportion to each sender's share of the traffic.
    /// Therefore the senders with the most traffic are reported first.
    pub fn packet(
        &mut self,
        now: Nanos,
        config: &HopConfig,
        state: LinkLoad,
        (sender, receiver): (NodeId, NodeId),
    ) -> Option<Word> {
        if !config.limits.are_exceeded_by(&state) {
            self.level = 0;
            return None;
        }
        if now < self.report || state.queue < self.level && now < self.quiet {
            return None;
        }
        self.report = now.saturating_add(config.gap);
        (self.level, self.quiet) = (state.queue, now.saturating_add(config.patience));
        Some(Word::Active { sender, receiver, state })
    }

    /// Returns the answer to an inquiry that passes on to `receiver`. The hop forwards the inquiry in any case.
    pub fn inquiry(
        &mut self,
        now: Nanos,
        config: &HopConfig,
        state: LinkLoad,
        number: u32,
        receiver: NodeId,
    ) -> Option<Word> {
        if now < self.answer {
            return None;
        }
        self.answer = now.saturating_add(config.gap);
        Some(Word::Passive { number, receiver, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: HopConfig = HopConfig {
        limits: Limits { queue: 750, rate: 500 },
        gap: Nanos::new(100),
        patience: Nanos::new(1000),
    };
    const PAIR: (NodeId, NodeId) = (NodeId::new(1), NodeId::new(2));

    #[test]
    fn e2_6_hop_congested_link_reports_at_limited_rate() {
        let state = |rate, queue| LinkLoad { link: 3, rate, queue };
        for (rate, queue, bad) in [(1000, 750, false), (500, 0, false), (1000, 751, true), (499, 0, true)] {
            let said = Hop::default().packet(Nanos::ZERO, &CONFIG, state(rate, queue), PAIR);
            assert_eq!(said.is_some(), bad, "{rate} {queue}");
        }
        let mut hop = Hop::default();
        let times = (0..1000).filter(|at| hop.packet(Nanos::new(*at), &CONFIG, state(0, 0), PAIR).is_some());
        assert_eq!(times.count(), 10);
    }

    #[test]
    fn hop_shrinking_queue_does_not_report() {
        let mut hop = Hop::default();
        let mut tell = |at, queue| {
            let state = LinkLoad { link: 3, rate: 1000, queue };
            hop.packet(Nanos::new(at), &CONFIG, state, PAIR).is_some()
        };
        assert_eq!([tell(0, 900), tell(100, 899), tell(200, 900), tell(300, 901)], [true, false, true, true]);
        // Until the queue stays long for too long. A queue that was short in between counts as a new one.
        assert_eq!([tell(1299, 800), tell(1300, 800), tell(1400, 799)], [false, true, false]);
        assert_eq!([tell(1500, 100), tell(1501, 760)], [false, true]);
    }

    #[test]
    fn e2_8_hop_inquiry_is_answered_at_limited_rate() {
        let state = LinkLoad { link: 3, rate: 1000, queue: 0 };
        let mut hop = Hop::default();
        let mut ask = |at| hop.inquiry(Nanos::new(at), &CONFIG, state, 7, PAIR.1);
        assert_eq!(ask(0), Some(Word::Passive { number: 7, receiver: PAIR.1, state }));
        assert_eq!((ask(99), ask(100).is_some()), (None, true));
    }
}
