//! Goals of the figures, and the wider bounds of `cargo measure --check`.

use super::data::ChannelQuantity;
use super::placement::CpuPlacement;

/// Quantity that has a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Rate divided by that of a plain copy, at an operation size.
    CopyShare(u64),
    /// Rate divided by the peer's, at an operation size.
    PeerRatio(u64),
    /// Latency of one operation of 64 B (p50, p99), divided by the peer's.
    PeerLatency,
    /// CPU time of one operation of 64 B, in nanoseconds.
    CpuTime,
    Channels(ChannelQuantity),
}

/// Side of the limit on which good values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    AtLeast,
    AtMost,
}

/// Goal of a quantity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Goal {
    quantity: Quantity,
    /// CPU placement to which it applies; `None`: to separate cores of either kind, or to one CPU.
    placement: Option<CpuPlacement>,
    side: Side,
    goal: f64,
    /// Value that counts as met, if it is not the goal itself.
    accepted: Option<f64>,
    /// Bound of the check, about a third of the goal: on a busy host, hardware threads of one core slow each other down; `None`: it is not checked.
    bound: Option<f64>,
}

const fn least(quantity: Quantity, goal: f64, bound: Option<f64>) -> Goal {
    Goal { quantity, placement: None, side: Side::AtLeast, goal, accepted: None, bound }
}

const fn most(quantity: Quantity, goal: f64, bound: Option<f64>) -> Goal {
    Goal { side: Side::AtMost, ..least(quantity, goal, bound) }
}

const fn placed(placement: CpuPlacement, goal: Goal) -> Goal {
    Goal { placement: Some(placement), ..goal }
}

/// All goals.
const GOALS: [Goal; 21] = [
    placed(CpuPlacement::SharedCache, least(Quantity::CopyShare(512), 0.65, None)),
    placed(CpuPlacement::NoSharedCache, least(Quantity::CopyShare(512), 0.5, None)),
    least(Quantity::CopyShare(4096), 0.92, Some(0.3)),
    least(Quantity::CopyShare(64 << 10), 0.97, Some(0.3)),
    least(Quantity::CopyShare(1 << 20), 0.97, Some(0.3)),
    placed(CpuPlacement::SharedCache, least(Quantity::PeerRatio(64), 2.5, None)),
    placed(CpuPlacement::NoSharedCache, least(Quantity::PeerRatio(64), 5.0, None)),
    placed(CpuPlacement::SharedCache, least(Quantity::PeerRatio(512), 2.0, None)),
    placed(CpuPlacement::NoSharedCache, least(Quantity::PeerRatio(512), 4.0, None)),
    placed(CpuPlacement::SharedCache, least(Quantity::PeerRatio(4096), 1.3, None)),
    placed(CpuPlacement::NoSharedCache, least(Quantity::PeerRatio(4096), 2.6, None)),
    least(Quantity::PeerRatio(64 << 10), 1.0, None),
    least(Quantity::PeerRatio(1 << 20), 1.0, None),
    placed(CpuPlacement::SharedCache, most(Quantity::PeerLatency, 1.0, None)),
    placed(CpuPlacement::NoSharedCache, most(Quantity::PeerLatency, 0.7, None)),
    placed(CpuPlacement::SharedCache, most(Quantity::CpuTime, 12.0, None)),
    placed(CpuPlacement::NoSharedCache, most(Quantity::CpuTime, 25.0, None)),
    // Two runs of one program differ by some percent.
    Goal { accepted: Some(0.9), ..least(Quantity::Channels(ChannelQuantity::FourChannels), 1.0, Some(0.4)) },
    most(Quantity::Channels(ChannelQuantity::Beside), 3.0, Some(20.0)),
    least(Quantity::Channels(ChannelQuantity::OneCpuShare), 0.4, Some(0.13)),
    most(Quantity::Channels(ChannelQuantity::OneCpuLatency), 1e6, None),
];

impl Goal {
    /// Goal of a quantity in a CPU placement (`None`: on one CPU); `None` without one.
    pub(crate) fn of(quantity: Quantity, placement: Option<CpuPlacement>) -> Option<&'static Self> {
        if placement == Some(CpuPlacement::SameCore) {
            // Hardware threads of one core slow each other down.
            return None;
        }
        GOALS.iter().find(|goal| {
            goal.quantity == quantity && (goal.placement.is_none() || goal.placement == placement)
        })
    }

    /// Goals that are checked.
    #[cfg(test)]
    pub(crate) fn checked() -> impl Iterator<Item = (Quantity, Self)> {
        GOALS.iter().filter(|goal| goal.bound.is_some()).map(|goal| (goal.quantity, *goal))
    }

    pub(crate) const fn is_met(&self, value: f64) -> bool {
        match self.accepted {
            Some(accepted) => self.holds(value, accepted),
            None => self.holds(value, self.goal),
        }
    }

    /// Whether a value is within the bound of the check.
    pub(crate) const fn is_within_bound(&self, value: f64) -> bool {
        match self.bound {
            Some(bound) => self.holds(value, bound),
            None => true,
        }
    }

    const fn holds(&self, value: f64, limit: f64) -> bool {
        match self.side {
            Side::AtLeast => value >= limit,
            Side::AtMost => value <= limit,
        }
    }

    /// Of two values, the better one.
    pub(crate) const fn better(&self, first: f64, second: f64) -> f64 {
        match self.side {
            Side::AtLeast => first.max(second),
            Side::AtMost => first.min(second),
        }
    }

    /// Of two values, the worse one.
    pub(crate) const fn worse(&self, first: f64, second: f64) -> f64 {
        match self.side {
            Side::AtLeast => first.min(second),
            Side::AtMost => first.max(second),
        }
    }

    /// Formats the goal, in units of `scale`: `≥ 0.97`.
    pub(crate) fn text(&self, scale: f64) -> String {
        let accepted = self.accepted.map(|accepted| format!(", {} accepted", accepted / scale));
        format!("{} {}{}", self.sign(), self.goal / scale, accepted.unwrap_or_default())
    }

    /// Formats the bound of the check.
    pub(crate) fn bound_text(&self) -> String {
        self.bound.map_or_else(String::new, |bound| format!("{} {bound}", self.sign()))
    }

    const fn sign(&self) -> &'static str {
        match self.side {
            Side::AtLeast => "≥",
            Side::AtMost => "≤",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goal_depends_on_quantity_and_placement() {
        let share = |placement| Goal::of(Quantity::CopyShare(512), placement).map(|goal| goal.goal);
        assert_eq!(share(Some(CpuPlacement::SharedCache)), Some(0.65));
        assert_eq!(share(Some(CpuPlacement::NoSharedCache)), Some(0.5));
        assert_eq!(share(Some(CpuPlacement::SameCore)), None);
        assert_eq!(Goal::of(Quantity::CopyShare(64), Some(CpuPlacement::SharedCache)), None);
        let beside = Goal::of(Quantity::Channels(ChannelQuantity::Beside), None).unwrap();
        assert!(beside.is_met(3.0) && !beside.is_met(3.1) && beside.is_within_bound(20.0));
        assert_eq!((beside.better(1.0, 2.0), beside.worse(1.0, 2.0)), (1.0, 2.0));
        assert_eq!((beside.text(1.0).as_str(), beside.bound_text().as_str()), ("≤ 3", "≤ 20"));
    }

    #[test]
    fn goal_bounds_are_wider() {
        assert_eq!(Goal::checked().count(), 6);
        for (quantity, goal) in Goal::checked() {
            assert!(goal.is_within_bound(goal.goal), "{quantity:?}");
            let bound = goal.bound.unwrap();
            assert!(!goal.is_met(bound) && goal.is_within_bound(bound), "{quantity:?}");
        }
    }
}
