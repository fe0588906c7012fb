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

use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::fabric::Wires;
use crate::model::{Checked, Transfer, Violation};
use crate::node::{Node, description};
use crate::plan::{Outage, Plan};
use crate::reads::Reads;

/// Maximum time between two polls of an idle host.
const IDLE_POLL: Nanos = Nanos::from_micros(500);
/// The same while nothing is in progress.
const QUIET_POLL: Nanos = Nanos::from_millis(8);

/// Result of a world without a violation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Hash of all frames, completions and notifications.
    pub trace: Trace,
    /// States that the world reached.
    pub coverage: Coverage,
    /// Virtual time at the end.
    pub time: Nanos,
}

/// Time after the world has healed within which everything that was accepted has ended: a read waits for an answer that is lost until its
/// deadline; a transfer without an answer is given up; half a second is for the longest waits between tries.
#[must_use]
pub fn end_limit(plan: &Plan) -> Nanos {
    Nanos::from(plan.read_deadline() + plan.give_up() * 2).saturating_add(Nanos::from_millis(500))
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
    /// Failures that have begun, with their start and end.
    outages: Vec<(Outage, Nanos, Nanos)>,
    cancels: Vec<(Nanos, usize)>,
    polls: Choices,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    is_healed: bool,
    /// Whether nothing is in progress.
    is_quiet: bool,
}

/// Runs a world.
///
/// # Errors
/// The first [`Violation`] of a guarantee.
pub fn run(plan: &Plan) -> Result<Outcome, Violation> {
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
        outages: Vec::new(),
        cancels: Vec::new(),
        polls: Choices::new(mix(plan.seed ^ 0x9011)),
        trace: Trace::default(),
        coverage: Coverage::default(),
        is_healed: false,
        is_quiet: false,
    };
    world.work()?;
    world.end("planned work")?;
    world.rest()?;
    world.probe()?;
    world.end("probes")?;
    world.rest()?;
    world.close()
}

/// Direction of an outage's change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Begins,
    Ends,
}

impl World<'_> {
    fn now(&self) -> Nanos {
        self.network.now()
    }

    /// Performs actions and faults until the world heals.
    fn work(&mut self) -> Checked {
        let start = self.now();
        let at = |time: Nanos| start.saturating_add(time);
        let heal = at(self.plan.heal);
        let mut changes: Vec<(Nanos, Change, usize)> = Vec::new();
        for (index, fault) in self.plan.faults.iter().enumerate() {
            let begin = at(fault.time);
            if begin < heal {
                let end = begin.saturating_add(fault.item.span).min(heal);
                changes.push((begin, Change::Begins, index));
                changes.push((end, Change::Ends, index));
            }
        }
        changes.sort_by_key(|(time, change, index)| (*time, *change == Change::Begins, *index));
        let (mut changes, mut actions) = (changes.into_iter().peekable(), 0..self.plan.actions.len());
        let mut next_action = actions.next();
        loop {
            let now = self.now();
            while let Some((_, change, index)) = changes.next_if(|(time, ..)| *time <= now) {
                let outage = self.plan.faults[index].item;
                if change == Change::Begins {
                    self.outages.push((outage, now, Nanos::MAX));
                }
                self.change(outage.fault, change)?;
                if change == Change::Ends
                    && let Some((.., end)) =
                        self.outages.iter_mut().find(|(one, _, end)| *one == outage && *end == Nanos::MAX)
                {
                    // A restart takes time.
                    *end = self.network.now();
                }
            }
            while let Some(index) = next_action.filter(|index| at(self.plan.actions[*index].time) <= now) {
                self.waiting.push(index);
                next_action = actions.next();
            }
            if !self.is_healed && now >= heal {
                self.is_healed = true;
                self.wires.heal();
            }
            if self.is_healed && changes.peek().is_none() && next_action.is_none() {
                return Ok(());
            }
            let action = next_action.map(|index| at(self.plan.actions[index].time));
            let heal = (!self.is_healed).then_some(heal);
            let next = changes.peek().map(|(time, ..)| *time).into_iter().chain(action).chain(heal).min();
            self.turn(next.unwrap_or(Nanos::MAX))?;
        }
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
