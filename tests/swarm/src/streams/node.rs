//! A node: its publisher, or its subscriber.

use std::net::SocketAddr;

use fpga_driver::{Card, CardAddr, CardRange};
use fpga_frames::{
    Frame, Joining, Leaving, Publisher, PublisherOptions, ReceivedFrame, Sequence, Subscriber,
    SubscriberOptions,
};
use fpga_pci::DmaPoolStats;
use fpga_protocol::Nanos;
use fpga_rdma::Endpoint;
use fpga_sim::SimNetwork;

use super::plan::{GUARD, POOL, Source, Streams};
use crate::model::{Checked, UNTOUCHED, Violation, check};
use crate::node::{next_incarnation, open_card, options};
use crate::plan::Plan;

/// A frame that its application fills, and its number.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) due: Nanos,
    pub(super) frame: Frame,
    pub(super) number: usize,
    pub(super) length: u64,
    pub(super) value: u32,
    pub(super) is_dropped: bool,
}

/// Which stream a node has joined, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    pub(super) source: usize,
    /// Incarnation of the publisher, counted from 0.
    pub(super) life: usize,
    pub(super) slots: u32,
    /// Maximum time for which it holds a frame.
    pub(super) hold: Nanos,
    pub(super) since: Nanos,
}

/// A subscription. Frames are dropped before the subscriber.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) held: Vec<(Nanos, ReceivedFrame)>,
    pub(super) subscriber: Subscriber,
    pub(super) choice: Choice,
    /// Position among the members of the stream.
    pub(super) member: usize,
    /// Number of the next frame or gap.
    pub(super) expected: u64,
    pub(super) is_ended: bool,
}

/// What a node does.
#[derive(Debug)]
pub(super) enum Role {
    Idle,
    Source { filled: Vec<Filled>, publisher: Box<Publisher> },
    Joining(Box<Joining>, Choice),
    Subscribed(Box<Subscription>),
    Leaving { leaving: Box<Leaving>, choice: Choice, member: usize, is_done: bool },
}

impl Role {
    pub(super) fn endpoint(&self) -> Option<&Endpoint> {
        match self {
            Self::Source { publisher, .. } => Some(publisher.endpoint()),
            Self::Subscribed(subscription) => Some(subscription.subscriber.endpoint()),
            Self::Leaving { leaving, .. } => Some(leaving.endpoint()),
            Self::Idle | Self::Joining(..) => None,
        }
    }
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) role: Role,
    incarnation: u32,
    /// Number of endpoints that were opened.
    opened: u32,
    pub(super) pauses: u32,
    pub(super) downs: u32,
    pub(super) is_removed: bool,
    pub(super) was_removed: bool,
    pub(super) next_poll: Nanos,
    pub(super) idle_polls: u32,
    /// End of the memory that nothing may write, because the node has left.
    pub(super) closed_until: Option<u64>,
    /// End of the memory of its publisher or subscriber; 0: it never had one.
    guard_end: u64,
    /// Pool of host memory, and its state before the endpoint was opened.
    pub(super) pool: Option<(Card, DmaPoolStats)>,
}

/// Name of a node in errors of joins.
fn address(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number.to_le_bytes()[0]], 7400))
}

/// End of the memory of a subscriber with `slots` slots: two blocks follow them.
pub(super) fn end_of_slots(source: &Source, slots: u32) -> u64 {
    POOL + source.stride() * u64::from(slots) + 128
}

/// End of the memory of a publisher: two blocks for each subscriber, and for as many that have left.
fn end_of_pool(source: &Source) -> u64 {
    POOL + source.stride() * u64::from(source.slots) + 128 * u64::from(2 * source.subscribers)
}

impl Node {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            role: Role::Idle,
            incarnation: plan.cards.incarnation,
            opened: 0,
            pauses: 0,
            downs: 0,
            is_removed: false,
            was_removed: false,
            next_poll: Nanos::ZERO,
            idle_polls: 0,
            closed_until: None,
            guard_end: 0,
            pool: None,
        }
    }

    /// Whether the process polls.
    pub(super) const fn is_running(&self) -> bool {
        !matches!(self.role, Role::Idle) && self.pauses == 0
    }

    /// Opens the endpoint, with a new incarnation except for the first time.
    fn open(&mut self, plan: &Plan, network: &SimNetwork, number: usize) -> Result<Endpoint, Violation> {
        if self.opened > 0 {
            self.incarnation = next_incarnation(plan, number, self.incarnation, self.opened);
        }
        self.opened += 1;
        let card = open_card(plan, network, number)?;
        self.pool = Some((card.clone(), card.memory().stats()));
        Endpoint::open_with(&card, &options(plan, number, self.incarnation))
            .map_err(|error| Violation(format!("endpoint {number}: {error}")))
    }

    /// Opens the publisher of node `number`.
    pub(super) fn publish(
        &mut self,
        plan: &Plan,
        network: &SimNetwork,
        number: usize,
        work: &Streams,
    ) -> Checked {
        let Some(source) = work.sources.get(number) else { return Ok(()) };
        let endpoint = self.open(plan, network, number)?;
        let end = end_of_pool(source);
        self.blank(network, number, end);
        let mut options = PublisherOptions::default();
        options.max_data_length = source.data;
        options.max_value_length = source.value;
        options.slots = source.slots;
        options.heap_slots = source.heap_slots;
        options.subscribers = source.subscribers;
        options.conversations = source.conversations;
        options.heartbeat = source.heartbeat.into();
        options.max_silence = max_silence(plan);
        options.patience = patience(plan);
        options.first_sequence = Sequence::new(source.sequence);
        options.first_position = source.position;
        options.first_status = source.status;
        options.memory = Some(CardRange::new(CardAddr::new(POOL), end - POOL));
        let publisher = Publisher::new(endpoint, options)
            .map_err(|error| Violation(format!("publisher {number}: {error}")))?;
        self.role = Role::Source { filled: Vec::new(), publisher: Box::new(publisher) };
        Ok(())
    }

    /// Begins to join a stream over a connection. Returns the end of the publisher, and the name of the node.
    pub(super) fn join(
        &mut self,
        plan: &Plan,
        network: &SimNetwork,
        number: usize,
        (choice, source): (Choice, &Source),
    ) -> Result<(super::pipe::Pipe, SocketAddr), Violation> {
        self.check_guards(network, number)?;
        let endpoint = self.open(plan, network, number)?;
        let end = end_of_slots(source, choice.slots);
        self.blank(network, number, end);
        let mut options = SubscriberOptions::default();
        options.slots = choice.slots;
        options.memory = Some(CardRange::new(CardAddr::new(POOL), end - POOL));
        options.patience = patience(plan);
        options.max_silence = max_silence(plan);
        let (near, far) = super::pipe::pipe();
        let joining = Subscriber::begin_join_over(endpoint, Box::new(near), address(choice.source), options)
            .map_err(|error| Violation(format!("join of {number}: {error}")))?;
        self.role = Role::Joining(Box::new(joining), choice);
        Ok((far, address(number)))
    }

    /// Fills the memory around the range that may be written.
    fn blank(&mut self, network: &SimNetwork, number: usize, end: u64) {
        let fill = |start, end: u64| fill(network, number, start, end);
        fill(POOL - GUARD, POOL);
        fill(end, end + GUARD);
        self.closed_until = None;
        self.guard_end = end;
    }

    /// The card has lost its memory.
    pub(super) const fn forget_memory(&mut self) {
        (self.closed_until, self.guard_end) = (None, 0);
    }

    /// Fills the memory of a node that has left: nothing may write it from now on.
    pub(super) fn freeze(&mut self, network: &SimNetwork, number: usize) {
        fill(network, number, POOL, self.guard_end);
        self.closed_until = Some(self.guard_end);
    }

    /// Checks that nothing was written outside of the memory of the publisher or the subscriber.
    pub(super) fn check_guards(&self, network: &SimNetwork, number: usize) -> Checked {
        if self.guard_end == 0 || self.is_removed {
            return Ok(());
        }
        let mut parts = vec![(POOL - GUARD, POOL), (self.guard_end, self.guard_end + GUARD)];
        parts.extend(self.closed_until.map(|end| (POOL, end)));
        for (start, end) in parts {
            let mut bytes = vec![0; usize::try_from(end - start).unwrap_or(0)];
            network.with_card(number, |card| card.peek(CardAddr::new(start), &mut bytes));
            let wrong = bytes.iter().position(|byte| *byte != UNTOUCHED);
            check(wrong.is_none(), || {
                let at = start + wrong.unwrap_or(0) as u64;
                format!("node {number}: byte {at:#x} was written, outside of the memory of its stream")
            })?;
        }
        Ok(())
    }

    /// Ends the process: all handles are dropped. Checks that host memory is as before.
    pub(super) fn end(&mut self, number: usize) -> Checked {
        self.role = Role::Idle;
        let Some((card, start)) = self.pool.take() else { return Ok(()) };
        let now = card.memory().stats();
        let is_same = (now.in_use, now.caller_areas) == (start.in_use, start.caller_areas);
        check(is_same && (self.was_removed || now.quarantined == start.quarantined), || {
            format!("node {number}: host memory is {now:?}, before the endpoint was opened {start:?}")
        })
    }
}

fn fill(network: &SimNetwork, number: usize, start: u64, end: u64) {
    let bytes = vec![UNTOUCHED; usize::try_from(end.saturating_sub(start)).unwrap_or(0)];
    network.with_card(number, |card| card.poke(CardAddr::new(start), &bytes));
}

/// Time limit of a join: a node that has joined before is tried until it is given up.
pub(super) fn patience(plan: &Plan) -> std::time::Duration {
    plan.give_up() * 6 + std::time::Duration::from_millis(50)
}

/// Time without a sign of life after which a subscriber or a publisher counts as failed.
pub(super) fn max_silence(plan: &Plan) -> std::time::Duration {
    plan.give_up() * 2
}
