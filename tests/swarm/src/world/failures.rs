//! Failures of a world: their begin and end, and what they excuse.

use fpga_protocol::Nanos;

use super::{Change, World};
use crate::model::{Checked, Memory, Trouble};
use crate::plan::{Fault, Outage, Plan};

impl World<'_> {
    pub(super) fn change(&mut self, fault: Fault, change: Change) -> Checked {
        let begins = change == Change::Begins;
        self.trace.add(&[1, self.now().get(), u64::from(begins)]);
        match fault {
            Fault::Cut { from, to } => self.wires.cut(from, to, begins),
            Fault::Partition { below } => {
                for (from, to) in
                    (0..below).flat_map(|one| (below..self.plan.nodes).map(move |two| (one, two)))
                {
                    self.wires.cut(from, to, begins);
                    self.wires.cut(to, from, begins);
                }
            }
            Fault::Pause { node } => {
                let node = &mut self.nodes[node];
                node.pauses = if begins { node.pauses + 1 } else { node.pauses - 1 };
            }
            Fault::Restart { node } | Fault::Removal { node } => {
                let is_removal = matches!(fault, Fault::Removal { .. });
                if begins {
                    self.stop(node, is_removal);
                } else {
                    self.nodes[node].downs -= 1;
                    if self.nodes[node].downs == 0 {
                        let (plan, network) = (self.plan, self.network.clone());
                        self.nodes[node].restart(plan, &network)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Ends the endpoint of a node: its transfers end without completions.
    pub(super) fn stop(&mut self, node: usize, is_removal: bool) {
        self.nodes[node].downs += 1;
        if is_removal && !self.nodes[node].is_removed {
            self.network.fail(node, fpga_sim::CardFailure::Gone);
            (self.nodes[node].is_removed, self.nodes[node].was_removed) = (true, true);
            for transfer in self.transfers.iter_mut().filter(|transfer| transfer.to == node) {
                if transfer.memory != Memory::Forbidden {
                    transfer.memory = Memory::Lost;
                }
            }
            self.coverage.count("world removal", 1);
        } else {
            self.coverage.count("world restart", 1);
        }
        self.nodes[node].close();
        for transfer in self.transfers.iter_mut().filter(|transfer| transfer.from == node) {
            transfer.ticket = None;
        }
        self.reads.abandon(node);
    }
}

/// Returns what has happened to two nodes in a span of time.
pub(super) fn trouble(
    plan: &Plan,
    outages: &[(Outage, Nanos, Nanos)],
    (from, to): (usize, usize),
    since: Nanos,
    now: Nanos,
) -> Trouble {
    let mut trouble = Trouble::default();
    let mut silent = 0;
    for (outage, begin, end) in outages {
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
        && plan.longest_way().get().saturating_mul(100) < give_up;
    trouble.is_harsh = !is_calm;
    trouble
}
