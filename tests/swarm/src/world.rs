//! Run of a world.
//!
//! | Phase | |
//! |---|---|
//! | work | actions and faults of the plan, until the world heals |
//! | end | everything that was accepted ends, within [`end_limit`] |
//! | quiet | timers of receivers expire; all tables are empty, host memory is as at the start |
//! | probes | every node sends to another one by every scheme, which must succeed |
//! | close | memory holds exactly what was delivered; closed cards can reach no host memory |

mod closing;
mod failures;
mod polling;
mod submission;

use std::collections::BTreeSet;

use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::fabric::Wires;
use crate::model::{Checked, Outcome, Transfer, Violation};
use crate::node::{Node, description};
use crate::plan::{Fault, Plan};
use crate::reads::Reads;
use crate::schedule::{Change, Outages, Stage, perform};

/// Maximum time between two polls of an idle host.
const IDLE_POLL: Nanos = Nanos::from_micros(500);
/// The same while nothing is in progress.
const QUIET_POLL: Nanos = Nanos::from_millis(8);

/// Time after the world has healed within which everything that was accepted has ended: a read waits for an answer that is lost until its
/// deadline; a transfer without an answer is given up; the data takes
/// a round trip for each packet at most; half a second is for the longest waits between tries.
#[must_use]
pub fn end_limit(plan: &Plan) -> Nanos {
    Nanos::from(plan.read_deadline() + plan.give_up() * 2 + plan.transmission())
        .saturating_add(Nanos::from_millis(500))
}

/// A world in progress.
pub(crate) struct World<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) network: SimNetwork,
    pub(crate) wires: Wires,
    pub(crate) nodes: Vec<Node>,
    pub(crate) transfers: Vec<Transfer>,
    reads: Reads,
    /// Positions of the actions that wait for space.
    waiting: Vec<usize>,
    outages: Outages,
    cancels: Vec<(Nanos, usize)>,
    /// Transfers whose data is in the sender's memory: number, and incarnation of the sender.
    prepared: BTreeSet<(usize, u32)>,
    polls: Choices,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    /// Whether nothing is in progress.
    is_quiet: bool,
}

/// Runs a world of transfers.
///
/// # Errors
/// The first [`Violation`] of a guarantee.
pub(crate) fn run(plan: &Plan) -> Result<Outcome, Violation> {
    let wires = Wires::new(plan);
    let mut builder = SimNetwork::builder().fabric(Box::new(wires.clone())).seed(plan.seed);
    for number in 0..plan.nodes {
        builder = builder.card(description(plan, number));
    }
    let network = builder.build().map_err(|error| Violation(format!("network: {error}")))?;
    let nodes = (0..plan.nodes).map(|number| Node::new(plan, &network, number)).collect::<Result<_, _>>()?;
    let mut world = World {
        plan,
        network,
        wires,
        nodes,
        transfers: Vec::new(),
        reads: Reads::default(),
        waiting: Vec::new(),
        outages: Outages::default(),
        cancels: Vec::new(),
        prepared: BTreeSet::new(),
        polls: Choices::new(mix(plan.seed ^ 0x9011)),
        trace: Trace::default(),
        coverage: Coverage::default(),
        is_quiet: false,
    };
    let actions: Vec<Nanos> = plan.actions.iter().map(|action| action.time).collect();
    perform(plan, &actions, &mut world)?;
    world.end("planned work")?;
    world.rest()?;
    world.probe()?;
    world.end("probes")?;
    world.rest()?;
    world.close()
}

impl Stage for World<'_> {
    fn now(&self) -> Nanos {
        self.network.now()
    }

    fn outages(&mut self) -> &mut Outages {
        &mut self.outages
    }

    fn change(&mut self, fault: Fault, change: Change) -> Checked {
        self.change_fault(fault, change)
    }

    fn take_action(&mut self, index: usize) {
        self.waiting.push(index);
    }

    fn heal(&mut self) {
        self.wires.heal();
    }

    /// Lets time pass until a host polls, or until `limit`, and polls.
    fn turn(&mut self, limit: Nanos) -> Checked {
        let now = self.now();
        let polls = self.nodes.iter().filter(|node| node.is_running()).map(|node| node.next_poll);
        let next = polls.min().unwrap_or(Nanos::MAX).min(limit).min(now.saturating_add(QUIET_POLL));
        if next > now {
            self.network.advance(next.saturating_sub(now));
        }
        let now = self.now();
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_running() && self.nodes[number].next_poll <= now {
                self.poll(number)?;
            }
        }
        self.submit_waiting()?;
        for position in (0..self.cancels.len()).rev() {
            if self.cancels[position].0 <= now {
                let (_, transfer) = self.cancels.swap_remove(position);
                self.cancel(transfer);
            }
        }
        Ok(())
    }
}
