//! Course of a world until it heals: its actions and its failures, in the order of their times.

use fpga_protocol::Nanos;

use crate::model::{Checked, Trouble};
use crate::plan::{Fault, Outage, Plan};

/// Direction of an outage's change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    Begins,
    Ends,
}

/// Failures that have begun, with their start and end.
#[derive(Debug, Default)]
pub(crate) struct Outages(Vec<(Outage, Nanos, Nanos)>);

/// World in which actions and failures take place.
pub(crate) trait Stage {
    fn now(&self) -> Nanos;
    fn outages(&mut self) -> &mut Outages;
    /// Begins or ends a failure.
    fn change(&mut self, fault: Fault, change: Change) -> Checked;
    /// Takes action number `index` of the plan.
    fn take_action(&mut self, index: usize);
    /// Ends all impairments.
    fn heal(&mut self);
    /// Lets time pass until a host polls, or until `limit`.
    fn turn(&mut self, limit: Nanos) -> Checked;
}

/// Performs actions, at the given times from now, and failures until the world has healed.
pub(crate) fn perform(plan: &Plan, actions: &[Nanos], stage: &mut impl Stage) -> Checked {
    let start = stage.now();
    let at = |time: Nanos| start.saturating_add(time);
    let heal = at(plan.heal);
    let mut changes: Vec<(Nanos, Change, usize)> = Vec::new();
    for (index, fault) in plan.faults.iter().enumerate() {
        let begin = at(fault.time);
        if begin < heal {
            let end = begin.saturating_add(fault.item.span).min(heal);
            changes.push((begin, Change::Begins, index));
            changes.push((end, Change::Ends, index));
        }
    }
    changes.sort_by_key(|(time, change, index)| (*time, *change == Change::Begins, *index));
    let (mut changes, mut actions) = (changes.into_iter().peekable(), actions.iter().enumerate().peekable());
    let mut is_healed = false;
    loop {
        let now = stage.now();
        while let Some((_, change, index)) = changes.next_if(|(time, ..)| *time <= now) {
            let outage = plan.faults[index].item;
            if change == Change::Begins {
                stage.outages().0.push((outage, now, Nanos::MAX));
            }
            stage.change(outage.fault, change)?;
            if change == Change::Ends {
                // A restart takes time.
                let now = stage.now();
                let open = |(one, _, end): &&mut (Outage, Nanos, Nanos)| *one == outage && *end == Nanos::MAX;
                if let Some((.., end)) = stage.outages().0.iter_mut().find(open) {
                    *end = now;
                }
            }
        }
        while let Some((index, _)) = actions.next_if(|(_, time)| at(**time) <= now) {
            stage.take_action(index);
        }
        if !is_healed && now >= heal {
            is_healed = true;
            stage.heal();
        }
        if is_healed && changes.peek().is_none() && actions.peek().is_none() {
            return Ok(());
        }
        let action = actions.peek().map(|(_, time)| at(**time));
        let heal = (!is_healed).then_some(heal);
        let next = changes.peek().map(|(time, ..)| *time).into_iter().chain(action).chain(heal).min();
        stage.turn(next.unwrap_or(Nanos::MAX))?;
    }
}

impl Outages {
    /// Returns what has happened to two nodes in a span of time.
    pub(crate) fn trouble(
        &self,
        plan: &Plan,
        (from, to): (usize, usize),
        since: Nanos,
        now: Nanos,
    ) -> Trouble {
        let mut trouble = Trouble::default();
        let mut silent = 0;
        for (outage, begin, end) in &self.0 {
            // The packets of a silence are still missing shortly after it.
            let overlap = now.min(*end).saturating_sub(since.max(*begin)).get();
            if *begin > now || *end < since {
                continue;
            }
            silent += overlap;
            if let Fault::Restart { node } | Fault::Removal { node } = outage.fault
                && (node == from || node == to || from == to)
            {
                trouble.is_restarted = true;
            }
        }
        let give_up = u64::try_from(plan.give_up().as_nanos()).unwrap_or(u64::MAX);
        trouble.silence = silent.saturating_mul(1000) / give_up;
        let conditions = &plan.conditions;
        // A packet needs some tries in a row without an answer; a try takes a sixteenth of the give-up time at most.
        let is_calm = conditions.loss + conditions.damage + conditions.trims <= 30
            && conditions.burst == 0
            && conditions.slow == 0
            && conditions.target.is_none()
            && plan.longest_way().get().saturating_mul(100) < give_up;
        trouble.is_harsh = !is_calm;
        trouble.lacks_answers = conditions.loss + conditions.damage + conditions.trims > 0
            && now.saturating_sub(since).get() >= give_up;
        trouble
    }
}
