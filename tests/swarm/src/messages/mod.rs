//! Worlds of messages: processes with messengers on the cards of one network.
//!
//! Safety: every message arrives at most once, in one buffer, whole; messages of one sender match in order; every request completes exactly
//! once; nothing is read from or written to memory whose request has ended; accesses change registered memory only, additions are exact.
//! Progress: once the world has healed, everything ends within [`end_limit`].

mod checks;
mod completions;
mod matching;
mod model;
pub mod plan;
mod process;
mod requests;

use std::collections::BTreeSet;

use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::fabric::Wires;
use crate::model::{Checked, Outcome, Violation, check};
use crate::node::{description, next_incarnation};
use crate::plan::{Fault, Plan, Work};
use crate::schedule::{Change, Outages, Stage, perform};
use model::Request;
use process::Process;

/// Maximum time between two polls of an idle process.
const IDLE_POLL: Nanos = Nanos::from_micros(500);
/// The same while nothing is in progress.
const QUIET_POLL: Nanos = Nanos::from_millis(8);

/// Time after the world has healed within which everything that was accepted has ended: a session begins within the give-up time, and a failed one is
/// detected by the next keepalive, after a second. The data takes a round trip for each packet at most.
#[must_use]
pub fn end_limit(plan: &Plan) -> Nanos {
    Nanos::from(plan.give_up() * 4 + plan.registry_timeout() * 2 + plan.transmission())
        .saturating_add(Nanos::from_millis(4000))
}

/// A node.
#[derive(Debug)]
struct Node {
    process: Option<Process>,
    life: u32,
    incarnation: u32,
    pauses: u32,
    downs: u32,
    is_removed: bool,
    was_removed: bool,
    next_poll: Nanos,
    idle_polls: u32,
    /// Receives of everything, once the world has healed: positions among the requests, without a tag and with any.
    everything: [Option<usize>; 2],
}

/// A world in progress.
struct World<'a> {
    plan: &'a Plan,
    work: &'a plan::Messages,
    network: SimNetwork,
    wires: Wires,
    nodes: Vec<Node>,
    requests: Vec<Request>,
    /// Positions of the calls that wait for space.
    waiting: Vec<usize>,
    cancels: Vec<(Nanos, usize)>,
    /// Requests that have claimed a message, and the times at which they take it.
    claims: Vec<(Nanos, usize)>,
    /// Values that additions have fetched: owner, its incarnation, counter, value.
    fetched: BTreeSet<(usize, u32, u64, u64)>,
    outages: Outages,
    polls: Choices,
    trace: Trace,
    coverage: Coverage,
    is_quiet: bool,
}

/// Runs a world of messages.
///
/// # Errors
/// The first [`Violation`] of a guarantee.
pub fn run(plan: &Plan) -> Result<Outcome, Violation> {
    let Work::Messages(work) = &plan.work else { return Err(Violation("no world of messages".to_owned())) };
    let wires = Wires::new(plan);
    let mut builder = SimNetwork::builder().fabric(Box::new(wires.clone())).seed(plan.seed);
    for number in 0..plan.nodes {
        builder = builder.card(description(plan, number));
    }
    let network = builder.build().map_err(|error| Violation(format!("network: {error}")))?;
    let node = |number| {
        let incarnation = plan.cards.incarnation;
        Ok(Node {
            process: Some(Process::start(plan, &network, (number, 0), incarnation)?),
            life: 0,
            incarnation,
            pauses: 0,
            downs: 0,
            is_removed: false,
            was_removed: false,
            next_poll: Nanos::ZERO,
            idle_polls: 0,
            everything: [None; 2],
        })
    };
    let nodes = (0..plan.nodes).map(node).collect::<Result<_, Violation>>()?;
    let mut world = World {
        plan,
        work,
        network,
        wires,
        nodes,
        requests: Vec::new(),
        waiting: Vec::new(),
        cancels: Vec::new(),
        claims: Vec::new(),
        fetched: BTreeSet::new(),
        outages: Outages::default(),
        polls: Choices::new(mix(plan.seed ^ 0x9012)),
        trace: Trace::default(),
        coverage: Coverage::default(),
        is_quiet: false,
    };
    let times: Vec<Nanos> = work.calls.iter().map(|call| call.time).collect();
    perform(plan, &times, &mut world)?;
    world.drain("planned work")?;
    world.probe()?;
    world.drain("probes")?;
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
        let begins = change == Change::Begins;
        self.trace.add(&[1, self.network.now().get(), u64::from(begins)]);
        match fault {
            Fault::Cut { .. } | Fault::Partition { .. } => self.wires.change(fault, begins),
            Fault::Pause { node } => {
                let node = &mut self.nodes[node];
                node.pauses = if begins { node.pauses + 1 } else { node.pauses - 1 };
            }
            Fault::Restart { node } | Fault::Removal { node } if begins => {
                self.stop(node, matches!(fault, Fault::Removal { .. }));
            }
            Fault::Restart { node } | Fault::Removal { node } => {
                self.nodes[node].downs -= 1;
                if self.nodes[node].downs == 0 {
                    self.restart(node)?;
                }
            }
        }
        Ok(())
    }

    fn take_action(&mut self, index: usize) {
        self.waiting.push(index);
    }

    fn heal(&mut self) {
        self.wires.heal();
    }

    fn turn(&mut self, limit: Nanos) -> Checked {
        let now = self.now();
        let polls = self.nodes.iter().filter(|node| node.is_running()).map(|node| node.next_poll);
        let next = polls.min().unwrap_or(Nanos::MAX).min(limit).min(now.saturating_add(QUIET_POLL));
        if next > now {
            self.network.advance(next.saturating_sub(now));
        }
        for number in 0..self.nodes.len() {
            if self.nodes[number].is_running() && self.nodes[number].next_poll <= self.now() {
                self.poll(number)?;
            }
        }
        self.submit_waiting()?;
        self.take_claimed()?;
        self.cancel_due();
        Ok(())
    }
}

impl Node {
    /// Whether the process polls.
    const fn is_running(&self) -> bool {
        self.process.is_some() && self.pauses == 0
    }
}

impl World<'_> {
    /// Ends a process: its requests end without completions.
    fn stop(&mut self, number: usize, is_removal: bool) {
        let node = &mut self.nodes[number];
        node.downs += 1;
        if is_removal && !node.is_removed {
            self.network.fail(number, fpga_sim::CardFailure::Gone);
            (node.is_removed, node.was_removed) = (true, true);
        }
        if node.process.take().is_some() {
            self.coverage.count(if is_removal { "process removal" } else { "process restart" }, 1);
        }
        self.nodes[number].everything = [None; 2];
    }

    /// Starts the process of a node again.
    fn restart(&mut self, number: usize) -> Checked {
        let node = &mut self.nodes[number];
        if std::mem::take(&mut node.is_removed) {
            check(self.network.replug(number), || "no such card".to_owned())?;
        }
        node.life += 1;
        node.incarnation = next_incarnation(self.plan, number, node.incarnation, node.life);
        node.process = Some(Process::start(self.plan, &self.network, (number, node.life), node.incarnation)?);
        Ok(())
    }

    /// Polls a process, and checks what it reports.
    fn poll(&mut self, number: usize) -> Checked {
        let node = &mut self.nodes[number];
        let Some(process) = &mut node.process else { return Ok(()) };
        let mut work = process.messenger.progress();
        if let Some(failure) = process.messenger.failure() {
            return Err(Violation(format!("messenger of node {number} failed: {failure}")));
        }
        while let Some(failure) = process.messenger.next_peer_failure() {
            self.coverage.count(&format!("messages peer {}", kind_of(&failure)), 1);
        }
        work += self.take_completions(number)?;
        let node = &mut self.nodes[number];
        node.idle_polls = if work > 0 { 0 } else { node.idle_polls.saturating_add(1) };
        let longest = if node.idle_polls < 8 {
            self.plan.cards.poll
        } else {
            let idle = self.plan.cards.poll.saturating_mul(1 << (node.idle_polls / 8).min(10));
            idle.min(if self.is_quiet { QUIET_POLL } else { IDLE_POLL })
        };
        node.next_poll = self.network.now().saturating_add(Nanos::new(1 + self.polls.below(longest.get())));
        Ok(())
    }
}

/// Name of a failure, or of another variant.
fn kind_of(variant: &dyn std::fmt::Debug) -> String {
    let text = format!("{variant:?}");
    text.split([' ', '(']).next().unwrap_or_default().to_owned()
}
