//! A hop: what a switch's port says of its link.

use super::{Limits, LinkLoad, Word};
use crate::time::Nanos;
use fpga_firmware::ids::NodeId;

/// A hop's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// When the link is congested.
    pub limits: Limits,
    /// At most one word of each kind in this time: feedback must not add to what it tells of [E2-8].
    pub gap: Nanos,
    /// A queue that is shorter than when it was last reported is not reported again within this time: senders are slowing down, and
    /// halving the rates of others too would let it run empty. Document 002 reports a queue that rises above its threshold.
    pub patience: Nanos,
}

/// One port's state: what it said when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Hop {
    /// When the next report to the controller may be made, and the next answer.
    report: Nanos,
    answer: Nanos,
    /// How full the queue was at the last report, and until when a shorter one is not reported.
    level: u16,
    quiet: Nanos,
}

impl Hop {
    /// A packet of `sender` to `receiver` has come while the link was in this `state`: the report to the controller, if one is due.
    ///
    /// Whose packet comes at such a moment is chance, in proportion to how much each sends: so those who send most are told first.
    pub fn packet(
        &mut self,
        now: Nanos,
        config: &Config,
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

    /// An inquiry on its way to `receiver`: the answer. The inquiry goes on either way.
    pub fn inquiry(
        &mut self,
        now: Nanos,
        config: &Config,
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

    const CONFIG: Config =
        Config { limits: Limits { queue: 750, rate: 500 }, gap: Nanos::new(100), patience: Nanos::new(1000) };
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
        // Until it stays so for too long; and one that was short in between is a new one.
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
