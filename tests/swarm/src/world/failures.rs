//! Failures of a world: their begin and end.

use super::World;
use crate::model::{Checked, Memory};
use crate::plan::Fault;
use crate::schedule::Change;

impl World<'_> {
    pub(super) fn change_fault(&mut self, fault: Fault, change: Change) -> Checked {
        let begins = change == Change::Begins;
        self.trace.add(&[1, self.network.now().get(), u64::from(begins)]);
        match fault {
            Fault::Cut { .. } | Fault::Partition { .. } => self.wires.change(fault, begins),
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
    fn stop(&mut self, node: usize, is_removal: bool) {
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
