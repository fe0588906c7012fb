//! Run of a world.
//!
//! | Phase | |
//! |---|---|
//! | work | actions and faults of the plan, until the world heals |
//! | end | everything that was accepted ends, within [`end_limit`] |
//! | quiet | timers of receivers expire; all tables are empty, host memory is as at the start |
//! | probes | every node sends to another one by every scheme, which must succeed |
//! | close | memory holds exactly what was delivered; closed cards can reach no host memory |

use fpga_driver::CardAddr;
use fpga_protocol::Nanos;
use fpga_rdma::{SendError, SendNotify, SendOptions};
use fpga_sim::SimNetwork;

use crate::choices::{Choices, Trace, mix};
use crate::coverage::Coverage;
use crate::fabric::Wires;
use crate::model::{Checked, Memory, Transfer, Trouble, Violation, check, data};
use crate::node::{Node, description};
use crate::plan::{
    Action, Aim, Fault, Notice, Outage, PLANNED_LENGTH, Plan, SOURCES, Send, TARGETS, WINDOW_LENGTH,
    WINDOW_STRIDE,
};
use crate::reads::Reads;

/// Maximum time between two polls of an idle host.
const IDLE_POLL: Nanos = Nanos::from_micros(500);
/// The same while nothing is in progress.
const QUIET_POLL: Nanos = Nanos::from_millis(8);
/// Distance of the memory of transfers after the world has healed.
const PROBE_STRIDE: u64 = 0x400;
/// First number of their data.
const PROBE_DATA: usize = 1 << 16;

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

    fn change(&mut self, fault: Fault, change: Change) -> Checked {
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

    fn cancel(&mut self, transfer: usize) {
        let transfer = &mut self.transfers[transfer];
        let node = &mut self.nodes[transfer.from];
        if let (true, Some(open), Some(ticket)) = (node.pauses == 0, &mut node.open, transfer.ticket) {
            transfer.is_cancelled |= open.end.cancel(ticket);
            self.coverage.count("world cancel", 1);
        }
    }

    /// Polls a host, and checks what it reports.
    fn poll(&mut self, number: usize) -> Checked {
        let node = &mut self.nodes[number];
        let Some(open) = &mut node.open else { return Ok(()) };
        let mut work = open
            .end
            .poll()
            .map_err(|error| Violation(format!("endpoint of node {number} failed: {error}")))?;
        while let Some(done) = open.end.next_completion() {
            work += 1;
            let trouble_of = self
                .transfers
                .iter()
                .position(|transfer| transfer.from == number && transfer.ticket == Some(done.ticket));
            let index =
                trouble_of.ok_or_else(|| Violation(format!("completion of no transfer: {done:?}")))?;
            self.trace.add(&[2, self.network.now().get(), index as u64, u64::from(done.result.is_ok())]);
            completed(
                self.plan,
                &self.network,
                &self.outages,
                &mut self.transfers[index],
                &done,
                &mut self.coverage,
            )?;
        }
        while let Some(notice) = open.end.next_notification() {
            work += 1;
            self.trace.add(&[3, self.network.now().get(), notice.address.get(), notice.length]);
            let found = self.transfers.iter_mut().find(|transfer| {
                transfer.to == number
                    && transfer.address == notice.address.get()
                    && transfer.length == notice.length
                    && transfer.from as u64 + 1 == u64::from(notice.node.get())
            });
            let transfer = found.ok_or_else(|| {
                Violation(format!("notification of no transfer at node {number}: {notice:?}"))
            })?;
            transfer.notified += 1;
            let is_expected = transfer.notified == 1
                && transfer.notice != Notice::None
                && transfer.memory != Memory::Forbidden
                && transfer.lives.1 == node.life;
            check(is_expected, || format!("wrong or second notification of {transfer:?}: {notice:?}"))?;
            consume(&self.network, transfer, "notified")?;
        }
        while let Some(done) = open.end.next_read() {
            work += 1;
            self.trace.add(&[4, self.network.now().get(), u64::from(done.result.is_ok())]);
            let excuse = trouble(self.plan, &self.outages, (number, number), Nanos::ZERO, self.network.now());
            self.reads.completed(
                &self.network,
                number,
                &done,
                &excuse,
                &mut self.transfers,
                &mut self.coverage,
            )?;
        }
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

    /// Submits the actions that wait, as far as there is space. Those of one node stay in order.
    fn submit_waiting(&mut self) -> Checked {
        let mut blocked = vec![false; self.plan.nodes];
        for index in std::mem::take(&mut self.waiting) {
            let plan = self.plan;
            let action = &plan.actions[index];
            let node = match &action.item {
                Action::Send(send) => send.from,
                Action::Read(read) => read.reader,
            };
            let is_accepted = !blocked[node]
                && self.nodes[node].is_running()
                && match &action.item {
                    Action::Send(send) => self.submit(action.number, send)?,
                    Action::Read(read) => self.reads.submit(
                        &self.network,
                        &mut self.nodes,
                        read,
                        &mut self.transfers,
                        &mut self.coverage,
                    )?,
                };
            if !is_accepted {
                blocked[node] = true;
                self.waiting.push(index);
            }
        }
        Ok(())
    }

    /// Submits a transfer. Returns whether it was accepted.
    fn submit(&mut self, number: usize, send: &Send) -> Result<bool, Violation> {
        let to = &self.nodes[send.to];
        let windows = if send.aim == Aim::FirstWindow { &to.first_windows } else { &to.windows };
        let Some(mut window) = windows.get(send.window).copied() else { return Ok(true) };
        let (mut offset, mut length) = (send.offset, send.length);
        match send.aim {
            Aim::WrongKey => window.key ^= 1,
            Aim::Beyond => {
                // Behind the window, where the next one has not begun.
                (offset, length) = (WINDOW_LENGTH + send.offset % 0x1000, length.min(0x4000));
                window.length = WINDOW_STRIDE;
            }
            Aim::Window | Aim::FirstWindow => {}
        }
        let is_wrong = match send.aim {
            Aim::Window => false,
            Aim::FirstWindow => to.life > 0,
            Aim::WrongKey | Aim::Beyond => true,
        };
        let from = &self.nodes[send.from];
        let (lives, now) = ((from.life, to.life), self.network.now());
        from.poke(&self.network, send.source, &data(number, length));
        let mut options =
            SendOptions::default().scheme(send.scheme).priority(send.priority).notify(match send.notice {
                Notice::Receiver => SendNotify::Receiver,
                Notice::Sender => SendNotify::Sender,
                Notice::None => SendNotify::None,
            });
        options.deadline = send.deadline;
        let Some(open) = &mut self.nodes[send.from].open else { return Ok(false) };
        let sent = match &open.host {
            Some((source, area)) if send.from_host => {
                let at = send.source - SOURCES;
                let place = usize::try_from(at).unwrap_or(usize::MAX);
                if let Err(error) = area.memory().write(place, &data(number, length)) {
                    return Err(Violation(format!("host memory: {error}")));
                }
                open.end.send_from_host(*source, at, &window, (offset, length), options)
            }
            _ => open.end.send(CardAddr::new(send.source), &window, offset, length, options),
        };
        let ticket = match sent {
            Ok(ticket) => ticket,
            Err(error) if error.kind.is_full() => {
                let kind =
                    if matches!(error.kind, SendError::Full { .. }) { "transfers" } else { "destinations" };
                self.coverage.count(&format!("table {kind} full"), 1);
                return Ok(false);
            }
            Err(error) => return Err(Violation(format!("transfer refused at submission: {error}"))),
        };
        if let Some(span) = send.cancel {
            self.cancels.push((now.saturating_add(span), self.transfers.len()));
        }
        self.coverage.count(&format!("sent by {:?}", send.scheme), 1);
        self.transfers.push(Transfer {
            number,
            data_offset: 0,
            from: send.from,
            to: send.to,
            lives,
            address: window.address.get() + offset,
            length,
            notice: if length == 0 { Notice::None } else { send.notice },
            submitted: now,
            ticket: Some(ticket),
            result: None,
            notified: 0,
            memory: if is_wrong {
                Memory::Forbidden
            } else if self.nodes[send.to].is_removed {
                Memory::Lost
            } else {
                Memory::Open
            },
            is_cancelled: false,
            has_deadline: send.deadline.is_some(),
            is_wrong,
            is_probe: false,
        });
        Ok(true)
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || self.reads.is_busy()
            || self.transfers.iter().any(|transfer| transfer.ticket.is_some())
            || self.nodes.iter().any(|node| node.open.as_ref().is_some_and(|open| !open.end.is_idle()))
    }

    /// Waits until everything has ended.
    fn end(&mut self, phase: &str) -> Checked {
        let limit = self.now().saturating_add(end_limit(self.plan));
        while self.is_busy() {
            self.turn(limit)?;
            check(self.now() < limit, || {
                let open: Vec<_> =
                    self.transfers.iter().filter(|transfer| transfer.ticket.is_some()).collect();
                format!(
                    "{phase}: not ended {} ms after the world has healed: {} actions wait, {:?}, {:?}",
                    end_limit(self.plan).get() / 1_000_000,
                    self.waiting.len(),
                    open,
                    self.reads
                )
            })?;
        }
        Ok(())
    }

    /// Waits until the receivers' timers have expired, and checks that all tables are empty.
    fn rest(&mut self) -> Checked {
        // Packets in flight, then the timers; messages are remembered for one more packet lifetime.
        let span = Nanos::from(self.plan.registry_timeout()).saturating_add(Nanos::from_millis(60));
        let limit = self.now().saturating_add(span).saturating_add(self.plan.longest_way());
        self.is_quiet = true;
        while self.now() < limit {
            self.turn(limit)?;
        }
        self.is_quiet = false;
        // The last events.
        for number in 0..self.nodes.len() {
            self.network.advance(Nanos::from_micros(20));
            self.poll(number)?;
        }
        self.nodes.iter_mut().try_for_each(Node::check_tables)
    }

    /// Sends from every node to the next one by every scheme.
    fn probe(&mut self) -> Checked {
        let (plan, mut number) = (self.plan, PROBE_DATA);
        for scheme in &plan.cards.schemes {
            for from in 0..plan.nodes {
                let slot = (number - PROBE_DATA) / plan.nodes;
                let to = (from + 1) % plan.nodes;
                let send = Send {
                    from,
                    to,
                    source: SOURCES + PROBE_STRIDE * slot as u64,
                    window: 0,
                    offset: PLANNED_LENGTH + PROBE_STRIDE * slot as u64,
                    length: (1 + u64::from(plan.cards.packet_size) * 2).min(PROBE_STRIDE - 9),
                    aim: Aim::Window,
                    scheme: *scheme,
                    notice: Notice::Receiver,
                    priority: 0,
                    deadline: None,
                    from_host: false,
                    cancel: None,
                };
                let limit = self.now().saturating_add(end_limit(plan));
                while !self.submit(number, &send)? {
                    self.turn(limit)?;
                    check(self.now() < limit, || {
                        "a transfer is not accepted after the world has healed".to_owned()
                    })?;
                }
                if let Some(transfer) = self.transfers.last_mut() {
                    transfer.is_probe = true;
                }
                number += 1;
            }
        }
        Ok(())
    }

    /// Checks all memory and all reports, and closes the nodes.
    fn close(mut self) -> Result<Outcome, Violation> {
        for node in &self.nodes {
            node.count(&mut self.coverage);
            self.check_memory(node)?;
        }
        for transfer in &self.transfers {
            let is_due = transfer.result == Some(Ok(()))
                && transfer.notice == Notice::Receiver
                && transfer.lives.1 == self.nodes[transfer.to].life;
            check(!is_due || transfer.notified == 1, || format!("no notification of {transfer:?}"))?;
        }
        let time = self.now();
        for node in &mut self.nodes {
            node.close();
        }
        for node in &self.nodes {
            let (mapped, refused) =
                (self.network.mapped_bytes(node.number), self.network.refused_accesses(node.number));
            check(mapped == 0, || {
                format!("node {}: {mapped} bytes of host memory stay mapped", node.number)
            })?;
            check(node.was_removed || (refused.reads, refused.writes) == (0, 0), || {
                format!(
                    "node {}: the card has accessed host memory that is not mapped: {refused:?}",
                    node.number
                )
            })?;
        }
        let (frames, coverage) = self.wires.finish();
        self.trace.add(&[frames.hash(), frames.events]);
        self.coverage.join(&coverage);
        Ok(Outcome { trace: self.trace, coverage: self.coverage, time })
    }

    fn check_memory(&self, node: &Node) -> Checked {
        let length = WINDOW_STRIDE * self.plan.cards.open_windows as u64;
        let bytes = node.peek(&self.network, TARGETS, length);
        let range = |address: u64, length: u64| {
            let start = usize::try_from(address - TARGETS).unwrap_or(usize::MAX);
            bytes.get(start..start + usize::try_from(length).unwrap_or(0)).unwrap_or_default()
        };
        let mut transfers: Vec<&Transfer> =
            self.transfers.iter().filter(|transfer| transfer.to == node.number).collect();
        transfers.sort_by_key(|transfer| transfer.address);
        let mut end = TARGETS;
        let untouched = |from: u64, to: u64| {
            let found =
                range(from, to.saturating_sub(from)).iter().position(|byte| *byte != crate::model::UNTOUCHED);
            check(found.is_none(), || {
                format!(
                    "node {}: byte {:#x} was written by no transfer",
                    node.number,
                    from + found.unwrap_or(0) as u64
                )
            })
        };
        for transfer in transfers {
            // Transfers behind windows overlap.
            if transfer.is_wrong && (transfer.address - TARGETS) % WINDOW_STRIDE >= WINDOW_LENGTH {
                continue;
            }
            untouched(end, transfer.address)?;
            transfer.check_memory(range(transfer.address, transfer.length))?;
            end = end.max(transfer.address + transfer.length);
        }
        untouched(end, TARGETS + length)
    }
}

/// Checks and records a completion.
fn completed(
    plan: &Plan,
    network: &SimNetwork,
    outages: &[(Outage, Nanos, Nanos)],
    transfer: &mut Transfer,
    done: &fpga_rdma::SendCompletion,
    coverage: &mut Coverage,
) -> Checked {
    let trouble = trouble(plan, outages, (transfer.from, transfer.to), transfer.submitted, network.now());
    transfer
        .check_result(done.result, &trouble)
        .map_err(|Violation(text)| Violation(format!("at {} ns: {text}", network.now().get())))?;
    check(done.length == transfer.length, || format!("wrong length: {done:?} of {transfer:?}"))?;
    transfer.ticket = None;
    transfer.result = Some(done.result);
    match done.result {
        Ok(()) => {
            coverage.count("ended Ok", 1);
            consume(network, transfer, "completed")
        }
        Err(error) => {
            let text = format!("{error:?}");
            let name = text.split(' ').next().unwrap_or_default();
            coverage.count(&format!("ended {name}"), 1);
            Ok(())
        }
    }
}

/// Compares the data of a complete transfer, and replaces it.
pub(crate) fn consume(network: &SimNetwork, transfer: &mut Transfer, event: &str) -> Checked {
    if transfer.memory != Memory::Open {
        return Ok(());
    }
    let mut bytes = vec![0; usize::try_from(transfer.length).unwrap_or(0)];
    let address = CardAddr::new(transfer.address);
    network.with_card(transfer.to, |card| card.peek(address, &mut bytes));
    let wrong = bytes.iter().zip(transfer.data()).position(|(found, expected)| *found != expected);
    check(wrong.is_none(), || format!("{event} before byte {wrong:?} has arrived: {transfer:?}"))?;
    network.with_card(transfer.to, |card| card.poke(address, &transfer.marks()));
    transfer.memory = Memory::Consumed;
    Ok(())
}

/// Returns what has happened to two nodes in a span of time.
fn trouble(
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
