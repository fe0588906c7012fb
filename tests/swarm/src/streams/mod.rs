//! Worlds of frame streams: publishers and subscribers on the cards of one network.
//!
//! Safety: a frame that a subscriber gets has the bytes that were published, and keeps them until it is returned; frames come once, in the
//! order of their numbers, and what is missing is reported exactly; a publisher sends no frame without a free slot; nothing is written
//! outside of a subscriber's slots, and nothing at all once it has left; failures only with a cause. Progress: once the world has healed,
//! every node joins, gets every frame, and leaves within [`end_limit`]; then credits, pools, tables and host memory are as at the start.

mod checks;
mod model;
mod node;
mod pipe;
pub mod plan;
mod polling;

use fpga_frames::{PublishError, TakeError};
use fpga_protocol::Nanos;
use fpga_sim::SimNetwork;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::fabric::Wires;
use crate::model::{Checked, Outcome, Violation, check, data};
use crate::node::description;
use crate::plan::{Fault, Plan, Work};
use crate::schedule::{Change, Outages, Stage, perform};
use model::{Record, Stream, VALUES};
use node::{Choice, Filled, Node, Role, patience};
use plan::{Act, Streams};

/// Maximum time between two polls of an idle process.
const IDLE_POLL: Nanos = Nanos::from_micros(500);
/// The same while nothing is in progress.
const QUIET_POLL: Nanos = Nanos::from_millis(8);

/// Time after the world has healed within which every node has joined and has got the frames that are published then: a subscriber or a publisher
/// that is gone is detected, a join that waits for that ends, and another one follows.
#[must_use]
pub fn end_limit(plan: &Plan) -> Nanos {
    let heartbeat = match &plan.work {
        Work::Streams(work) => work.sources.iter().map(|source| source.heartbeat).max(),
        _ => None,
    };
    Nanos::from(plan.give_up() * 16 + plan.registry_timeout() * 2 + patience(plan) * 2 + plan.transmission())
        .saturating_add(heartbeat.unwrap_or_default().saturating_mul(16))
        .saturating_add(Nanos::from_millis(2000))
}

/// A world in progress.
struct World<'a> {
    plan: &'a Plan,
    work: &'a Streams,
    network: SimNetwork,
    wires: Wires,
    nodes: Vec<Node>,
    /// Streams by publishing node and incarnation.
    streams: Vec<Vec<Stream>>,
    /// Number of the data of the next frame after the world has healed.
    probes: usize,
    outages: Outages,
    polls: Choices,
    trace: Trace,
    coverage: Coverage,
    is_quiet: bool,
    /// Whether the nodes that leave keep their endpoints.
    is_final: bool,
    healed: Option<Nanos>,
    /// Violation of a step, reported at the next turn.
    failed: Option<Violation>,
}

/// Runs a world of frame streams.
///
/// # Errors
/// The first [`Violation`] of a guarantee.
pub fn run(plan: &Plan) -> Result<Outcome, Violation> {
    let Work::Streams(work) = &plan.work else { return Err(Violation("no world of streams".to_owned())) };
    let wires = Wires::new(plan);
    let mut builder = SimNetwork::builder().fabric(Box::new(wires.clone())).seed(plan.seed);
    for number in 0..plan.nodes {
        builder = builder.card(description(plan, number));
    }
    let network = builder.build().map_err(|error| Violation(format!("network: {error}")))?;
    let mut world = World {
        plan,
        work,
        network,
        wires,
        nodes: (0..plan.nodes).map(|_| Node::new(plan)).collect(),
        streams: vec![Vec::new(); work.sources.len()],
        probes: 1 << 16,
        outages: Outages::default(),
        polls: Choices::new(mix(plan.seed ^ 0x9013)),
        trace: Trace::default(),
        coverage: Coverage::default(),
        is_quiet: false,
        is_final: false,
        healed: None,
        failed: None,
    };
    for number in 0..work.sources.len() {
        world.open_source(number)?;
    }
    let times: Vec<Nanos> = work.acts.iter().map(|act| act.time).collect();
    perform(plan, &times, &mut world)?;
    world.probe()?;
    world.leave_all()?;
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
                return self.stop(node, matches!(fault, Fault::Removal { .. }));
            }
            Fault::Restart { node } | Fault::Removal { node } => {
                self.nodes[node].downs -= 1;
                if self.nodes[node].downs == 0 {
                    if std::mem::take(&mut self.nodes[node].is_removed) {
                        check(self.network.replug(node), || "no such card".to_owned())?;
                        self.nodes[node].forget_memory();
                    }
                    return self.open_source(node);
                }
            }
        }
        Ok(())
    }

    fn take_action(&mut self, index: usize) {
        let act = &self.work.acts[index];
        // A violation is reported by the next turn.
        let done = self.act(act.number, &act.item);
        self.failed = self.failed.take().or(done.err());
    }

    fn heal(&mut self) {
        self.wires.heal();
        self.healed = Some(self.network.now());
    }

    fn turn(&mut self, limit: Nanos) -> Checked {
        if let Some(violation) = self.failed.take() {
            return Err(violation);
        }
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
        Ok(())
    }
}

impl World<'_> {
    /// Opens the publisher of a node that has one.
    fn open_source(&mut self, number: usize) -> Checked {
        let Some(streams) = self.streams.get_mut(number) else { return Ok(()) };
        streams.push(Stream { first: self.work.sources[number].sequence, ..Stream::default() });
        self.nodes[number].publish(self.plan, &self.network, number, self.work)
    }

    /// Ends a process.
    fn stop(&mut self, number: usize, is_removal: bool) -> Checked {
        let node = &mut self.nodes[number];
        node.downs += 1;
        if is_removal && !node.is_removed {
            self.network.fail(number, fpga_sim::CardFailure::Gone);
            (node.is_removed, node.was_removed) = (true, true);
        }
        let what = if is_removal { "removal" } else { "restart" };
        let role = if number < self.work.sources.len() { "publisher" } else { "subscriber" };
        self.coverage.count(&format!("streams {what} of a {role}"), 1);
        self.abandon(number)
    }

    /// Ends the process of a node without notice.
    fn abandon(&mut self, number: usize) -> Checked {
        self.nodes[number].end(number)
    }

    /// Performs a step of an application.
    fn act(&mut self, number: usize, act: &Act) -> Checked {
        let now = self.network.now();
        match *act {
            Act::Publish { source, length, value, hold, is_dropped } => {
                let due = now.saturating_add(hold);
                if self.nodes[source].pauses == 0 {
                    self.fill(source, (number, length, value), due, is_dropped)?;
                }
            }
            Act::Join { node, source, slots, hold } => {
                let choice = Choice { source, life: 0, slots, hold, since: now };
                self.join(node, choice)?;
            }
            Act::Leave { node } => self.leave(node),
            Act::Abandon { node } => {
                if self.nodes[node].is_running() {
                    self.coverage.count("streams subscriber ends without notice", 1);
                    self.abandon(node)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a frame of a publisher and fills it. Returns whether there was one.
    fn fill(
        &mut self,
        source: usize,
        (number, length, value): (usize, u64, u32),
        due: Nanos,
        is_dropped: bool,
    ) -> Result<bool, Violation> {
        let Role::Source { filled, publisher } = &mut self.nodes[source].role else { return Ok(false) };
        let mut frame = match publisher.take() {
            Ok(frame) => frame,
            Err(TakeError::Full { .. }) => {
                self.coverage.count("streams no frame to fill", 1);
                return Ok(false);
            }
            Err(error) => return Err(Violation(format!("publisher {source}: {error}"))),
        };
        if frame.is_on_heap() {
            self.coverage.count("streams frame in ordinary memory", 1);
        }
        let long = |error| Violation(format!("publisher {source}: {error}"));
        frame.fill(&data(number, length)).map_err(long)?;
        frame.set_value(&data(number + VALUES, value.into())).map_err(long)?;
        filled.push(Filled { due, frame, number, length, value, is_dropped });
        self.publish_due(source)?;
        Ok(true)
    }

    /// Publishes the frames of a publisher whose time has come.
    fn publish_due(&mut self, source: usize) -> Checked {
        let now = self.network.now();
        self.take_publisher_events(source)?;
        let Role::Source { filled, publisher } = &mut self.nodes[source].role else { return Ok(()) };
        while let Some(at) = filled.iter().position(|filled| filled.due <= now) {
            let Filled { frame, number, length, value, is_dropped, .. } = filled.remove(at);
            if is_dropped {
                continue;
            }
            let Some(stream) = self.streams[source].last_mut() else { return Ok(()) };
            for view in publisher.subscribers() {
                if let Some(member) = stream.members.iter_mut().find(|member| member.id == view.id) {
                    member.failed = view.statistics.failed;
                }
            }
            let sequence = publisher.next_sequence().get();
            let next = stream.next();
            check(sequence == next, || format!("the next frame of {source} is {sequence}, not {next}"))?;
            let result = publisher.publish(frame);
            self.trace.add(&[2, now.get(), source as u64, sequence, u64::from(result.is_ok())]);
            let (sent, skipped) = match result {
                Ok(published) => {
                    check(published.sequence.get() == next, || format!("{published:?}, not {next}"))?;
                    (published.sent, published.skipped)
                }
                Err(PublishError::NoFreeSlot { sequence, subscribers }) => {
                    self.coverage.count("streams frame for no subscriber", 1);
                    let count = publisher.subscribers().count();
                    check(sequence.get() == next && subscribers as usize == count, || {
                        format!("frame {sequence} is not sent to {subscribers} of {count}")
                    })?;
                    stream.records.push(Record { number, length, value, sent: Default::default() });
                    continue;
                }
                Err(error) => return Err(Violation(format!("publisher {source}: {error}"))),
            };
            self.coverage.count("streams frame sent", sent.len().into());
            self.coverage.count("streams frame skipped", skipped.len().into());
            stream.publish(Record { number, length, value, sent }, skipped)?;
        }
        Ok(())
    }

    /// Begins the join of a node that does nothing. Returns whether it has begun.
    fn join(&mut self, number: usize, choice: Choice) -> Result<bool, Violation> {
        let (plan, network) = (self.plan, &self.network);
        let life = self.streams[choice.source].len().wrapping_sub(1);
        let choice = Choice { life, ..choice };
        let is_possible = matches!(self.nodes[number].role, Role::Idle)
            && self.nodes[number].downs == 0
            && self.nodes[number].pauses == 0
            && matches!(self.nodes[choice.source].role, Role::Source { .. });
        if !is_possible {
            return Ok(false);
        }
        let source = &self.work.sources[choice.source];
        let (far, name) = self.nodes[number].join(plan, network, number, (choice, source))?;
        if let Role::Source { publisher, .. } = &mut self.nodes[choice.source].role {
            publisher.accept(Box::new(far), name);
        }
        self.nodes[number].next_poll = network.now();
        Ok(true)
    }

    /// Begins to leave, if the node has joined.
    fn leave(&mut self, number: usize) {
        let node = &mut self.nodes[number];
        if node.pauses > 0 || !matches!(node.role, Role::Subscribed(_)) {
            return;
        }
        let Role::Subscribed(subscription) = std::mem::replace(&mut node.role, Role::Idle) else { return };
        let node::Subscription { held, subscriber, choice, member, .. } = *subscription;
        self.coverage.count("streams leave", 1);
        if !held.is_empty() {
            self.coverage.count("streams leave with frames held", 1);
        }
        drop(held);
        let record = &mut self.streams[choice.source][choice.life].members[member];
        record.is_leaving = true;
        record.in_flight.clear();
        let leaving = Box::new(subscriber.begin_leave());
        node.role = Role::Leaving { leaving, choice, member, is_done: false };
    }
}
