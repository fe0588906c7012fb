//! Event loop of the simulator.
//!
//! Time is in whole picoseconds, because at 100 Gbit/s a byte takes 80 of them; the schemes see whole nanoseconds. A run depends only on
//! its scenario: simultaneous events happen in the order in which they were created.
//!
//! This file is longer than most: every kind of event changes the state of the same loop.

mod copying;
mod links;
mod report;
mod watch;

use std::sync::atomic::{AtomicBool, Ordering};

use fpga_firmware::NodeId;
use fpga_firmware::event::{Event as NiEvent, EventKind};
use fpga_firmware::generated::Permissions;
use fpga_netmodel::{Class, ImpairedLink};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow;
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::traits::{
    Action, Header, OutgoingPacket, RegistrySender, SchemeReceiver, SchemeSender,
};
use fpga_protocol::sender::{Command, CommandError};
use fpga_protocol::{receiver, sender};
use fpga_registers::CardAddr;
pub use report::{FlowReport, HostReport, LinkFeedbackCounts, RateChange, Report};

use crate::event_queue::{Event, EventAction, EventQueue};
use crate::host::{AnyReceiver, AnySender, Counting, Host, Jumps, WakeTimer};
use crate::scenario::{
    HostLoad, Scenario, ScenarioError, incarnation_of, message_ends, node_of, registry_configs,
};
use crate::scheme::Rules;
use crate::topology::{FlowKey, Offer, Queued, SwitchFabric, Way};
use copying::Copying;
use links::Feedback;

const PICOS: u64 = 1000;
/// Key of every receiver's only memory window.
const KEY: u64 = 1;
/// Maximum number of frames in flight from one host with impairments.
const LINK_CAPACITY: usize = 1 << 16;
/// Payload of the maximum packet length.
static PAYLOAD: [u8; 1 << 12] = [0; 1 << 12];
/// Marks "no packet".
const NONE: u32 = u32::MAX;

/// Reasons why a run fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SimulationError {
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// A sender refuses a transfer.
    #[error("flow {number} was refused: {source}")]
    Submit {
        /// Number of the flow, from 0.
        number: usize,
        /// Reason.
        r#source: CommandError,
    },
    /// The run was stopped.
    #[error("stopped after {at} of simulated time")]
    Stopped {
        /// Simulated time.
        at: Nanos,
    },
    /// No event remains, and a transfer has not ended at both ends.
    #[error(
        "no event remains after {at}, but flow {number} has not ended at both ends: a defect of the scheme or of the simulator"
    )]
    Stalled {
        /// Simulated time.
        at: Nanos,
        /// First such flow, from 0.
        number: usize,
    },
}

/// Packet in flight.
#[derive(Clone, Copy, Debug)]
struct Packet {
    header: Header,
    payload: u32,
    length: u32,
    damaged: bool,
    /// Whether a switch has marked it because of a long queue (ECN).
    marked: bool,
    /// Whether a switch has cut its payload.
    trimmed: bool,
    /// Number of its flow; [`NONE`] for a control packet.
    flow: u32,
    /// Time that it has waited at switches, in picoseconds.
    waited: u64,
}

impl Packet {
    const fn new(header: Header, payload: u32, length: u32, flow: u32) -> Self {
        Self { header, payload, length, damaged: false, marked: false, trimmed: false, flow, waited: 0 }
    }
}

/// Destination host of a packet.
fn host_of(header: &Header) -> u32 {
    header.common().destination.get().wrapping_sub(1)
}

/// Source host of a packet.
fn source_of(header: &Header) -> u32 {
    header.common().source.get().wrapping_sub(1)
}

impl fpga_netmodel::Frame for Packet {
    fn class(&self) -> Class {
        if self.header.is_data() { Class::Data } else { Class::Control }
    }

    fn length(&self) -> u64 {
        self.length.into()
    }

    fn flip_bit(&mut self, _bit: u64) {
        self.damaged = true;
    }
}

/// Simulation: hosts, network, and future events.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    network: SwitchFabric,
    hosts: Vec<Host>,
    /// Impairments of each host's frames; empty if there are none.
    links: Vec<ImpairedLink<Packet>>,
    packets: Vec<Packet>,
    free: Vec<u32>,
    queue: EventQueue,
    /// Current time in picoseconds.
    now: u64,
    /// Flows by host and slot of the sender's ticket.
    tickets: Vec<Vec<u32>>,
    /// Number of queued events about packets.
    on_way: usize,
    left: usize,
    /// Copy stage of each host; empty if the scenario has none.
    copying: Vec<Copying>,
    /// Hops and controller, if links report their load.
    feedback: Option<Feedback>,
    /// Delays by flow and port, if the scenario observes them.
    watch: Option<Box<watch::Watch>>,
    /// Whether queues distinguish packets, or their waits are recorded.
    observes: bool,
    report: Report,
}

impl Simulation {
    /// Builds hosts and network.
    ///
    /// # Errors
    /// [`SimulationError::Scenario`].
    pub fn new(scenario: &Scenario) -> Result<Self, SimulationError> {
        scenario.validate()?;
        let count = scenario.topology.hosts();
        let mut hosts = Vec::new();
        for (host, load) in (0..count).zip(scenario.loads()) {
            hosts.push(Self::host(scenario, host, load)?);
        }
        let mut links = Vec::new();
        if let Some(impairments) = scenario.impairments() {
            for host in 0..u64::from(count) {
                // Random numbers differ between hosts and between neighbouring seeds.
                let seed = scenario.seed ^ host.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let link = ImpairedLink::new(impairments.clone(), LINK_CAPACITY, seed)
                    .map_err(ScenarioError::from)?;
                links.push(link);
            }
        }
        let mut network = scenario.network();
        for link in &scenario.slow {
            // Validated above: the link exists.
            let _ = network.slow_down(link);
        }
        for outage in &scenario.outages {
            let _ = network.add_outage(outage, scenario.detection);
        }
        let feedback = Feedback::new(scenario, network.ports())?;
        let capacity = scenario.expected_packets();
        let mut queue = EventQueue::new(count, capacity, network.max_queueing_time());
        for (number, flow) in (0..).zip(&scenario.flows) {
            let at = flow.at.get().saturating_mul(PICOS);
            queue.push(Event::new(at, EventAction::Begin, flow.from).of(number));
        }
        // A host's n flows get only the first n slots.
        let mut begun = vec![0_usize; hosts.len()];
        for flow in &scenario.flows {
            if let Some(begun) = begun.get_mut(flow.from as usize) {
                *begun += 1;
            }
        }
        let tickets = begun.into_iter().map(Vec::with_capacity).collect();
        let report = Report {
            flows: vec![FlowReport::default(); scenario.flows.len()],
            hosts: vec![HostReport::default(); hosts.len()],
            ..Report::default()
        };
        Ok(Self {
            network,
            links,
            packets: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
            queue,
            now: 0,
            tickets,
            on_way: 0,
            copying: scenario.copy.iter().flat_map(|_| &hosts).map(|_| Copying::default()).collect(),
            feedback,
            watch: scenario.observe.then(|| Box::new(watch::Watch::new(scenario))),
            observes: scenario.observe || scenario.marking.is_some() || scenario.control_first,
            hosts,
            left: scenario.flows.len(),
            report,
            scenario: scenario.clone(),
        })
    }

    fn host(scenario: &Scenario, host: u32, load: HostLoad) -> Result<Host, ScenarioError> {
        let (sender, mut receiver) = match scenario.rules_in_use() {
            None => {
                let (sender, receiver) = registry_configs(scenario, host, load);
                let sender = sender::Sender::new(sender, incarnation_of(host))?;
                let receiver = receiver::Receiver::new(receiver)?;
                (
                    AnySender::Registry(Box::new(RegistrySender::new(node_of(host), sender))),
                    AnyReceiver::Registry(Box::new(receiver)),
                )
            }
            Some(Rules::Card(rules)) => {
                let rules = if scenario.congestion.is_some() { rules.acknowledging() } else { rules };
                let (mut sender, receiver) = message_ends(scenario, rules, host, load)?;
                if let Some(controller) = scenario.controller {
                    let mut flow = flow::FlowConfig::new(scenario.rate.get(), scenario.timers_for());
                    flow.controller = Some(node_of(controller));
                    sender.control_flow(flow);
                }
                (AnySender::Card(sender), AnyReceiver::Card(receiver))
            }
            Some(Rules::SenderWindow(rules)) => {
                let (sender, receiver) = message_ends(scenario, rules, host, load)?;
                (AnySender::SenderWindow(sender), AnyReceiver::SenderWindow(receiver))
            }
            Some(Rules::ReceiverCounter(rules)) => {
                let (sender, receiver) = message_ends(scenario, rules, host, load)?;
                (AnySender::ReceiverCounter(sender), AnyReceiver::ReceiverCounter(receiver))
            }
        };
        let everything = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: u64::MAX,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        // The table has an entry 0, and the range is not empty and does not wrap.
        let _ = receiver.access_mut().install(0, everything);
        Ok(Host {
            sender,
            receiver,
            memory: Counting::default(),
            wake: WakeTimer::NONE,
            deliver: WakeTimer::NONE,
            jumps: Jumps::default(),
        })
    }

    /// Runs until both ends of every flow have completed, or until the scenario's limit.
    ///
    /// # Errors
    /// [`SimulationError::Submit`], [`SimulationError::Stalled`].
    pub fn run(self) -> Result<Report, SimulationError> {
        self.run_with_stop(&AtomicBool::new(false))
    }

    /// Runs like [`run`](Self::run), and ends early when `stop` is set. The flag is polled every 16384 events.
    ///
    /// # Errors
    /// [`SimulationError::Submit`], [`SimulationError::Stalled`], [`SimulationError::Stopped`].
    pub fn run_with_stop(mut self, stop: &AtomicBool) -> Result<Report, SimulationError> {
        /// Some milliseconds of run time.
        const EVENTS_PER_STOP_CHECK: u64 = 1 << 14;
        let limit = self.scenario.limit.get().saturating_mul(PICOS);
        while self.left > 0 {
            if self.on_way == 0 && self.release() {
                continue;
            }
            let Some(event) = self.queue.pop() else {
                let open = |flow: &FlowReport| flow.error.is_none() && !flow.is_complete();
                let number = self.report.flows.iter().position(open).unwrap_or(0);
                return Err(SimulationError::Stalled { at: self.nanos(), number });
            };
            if event.at > limit {
                break;
            }
            self.on_way -= usize::from(event.what().is_about_a_packet());
            if let Some(watch) = &mut self.watch {
                watch.sample_until(&self.network, event.at);
            }
            self.now = event.at.max(self.now);
            self.report.events += 1;
            if self.report.events.is_multiple_of(EVENTS_PER_STOP_CHECK) && stop.load(Ordering::Relaxed) {
                return Err(SimulationError::Stopped { at: self.nanos() });
            }
            self.handle_event(event)?;
        }
        self.report.ended = self.nanos();
        self.report.waited = Nanos::new(self.network.queueing_time());
        if let Some(feedback) = &self.feedback {
            self.report.links = feedback.words();
            for host in &self.hosts {
                if let AnySender::Card(sender) = &host.sender {
                    let (lowered, raised, inquiries) = sender.flow().map_or((0, 0, 0), |flow| flow.changes());
                    self.report.links.inquiries += inquiries;
                    self.report.links.lowered += lowered;
                    self.report.links.raised += raised;
                }
            }
        }
        for (host, report) in self.hosts.iter().zip(&mut self.report.hosts) {
            report.written = host.memory.bytes;
            report.disorder = host.jumps.disorder();
            (report.timeouts, report.refusals) = host.sender.timeouts_and_refusals();
            if let AnyReceiver::Registry(receiver) = &host.receiver {
                let counters = receiver.counters();
                report.registry_high_water = counters.registry_high_water;
                report.escape_high_water = counters.escape_high_water;
            }
        }
        if let Some(watch) = self.watch.take() {
            watch.finish(&self.scenario, &self.network, &mut self.report);
        }
        Ok(self.report)
    }

    const fn nanos(&self) -> Nanos {
        Nanos::new(self.now / PICOS)
    }

    fn handle_event(&mut self, event: Event) -> Result<(), SimulationError> {
        let (place, packet) = (event.place(), event.packet);
        match event.what() {
            EventAction::Begin => self.begin(place, packet)?,
            EventAction::Wake => self.wake(place, event.at),
            EventAction::Leave => self.leave(place, packet),
            EventAction::Deliver => {
                let node = self.hosts.get_mut(place as usize);
                if node.is_some_and(|node| node.deliver.take(event.at)) {
                    self.deliver(place);
                }
            }
            EventAction::Arrive => self.arrive(event),
            EventAction::Receive => self.take(place, packet),
            EventAction::Sent => self.sent(place),
        }
        Ok(())
    }

    fn begin(&mut self, host: u32, number: u32) -> Result<(), SimulationError> {
        let now = self.nanos();
        let index = number as usize;
        let (Some(flow), Some(node)) = (self.scenario.flows.get(index), self.hosts.get_mut(host as usize))
        else {
            return Ok(());
        };
        // Each flow has its own address range, which identifies its notice.
        let start = CardAddr::new((u64::from(number) + 1) << 31);
        let command = Command {
            source: start,
            node: node_of(flow.to),
            destination: start,
            length: flow.length,
            key: KEY,
            notify: self.scenario.notify,
            deadline: None,
            priority: 0,
        };
        let submit = |source| SimulationError::Submit { number: index, source };
        let ticket = node.sender.submit(now, command).map_err(submit)?;
        if let Some(tickets) = self.tickets.get_mut(host as usize) {
            let slot = ticket.slot() as usize;
            if tickets.len() <= slot {
                tickets.resize(slot + 1, NONE);
            }
            if let Some(place) = tickets.get_mut(slot) {
                *place = number;
            }
        }
        if let Some(flow) = self.report.flows.get_mut(index) {
            flow.begun = now;
        }
        self.pump(host);
        Ok(())
    }

    fn wake(&mut self, host: u32, at: u64) {
        let now = self.nanos();
        let Some(node) = self.hosts.get_mut(host as usize) else { return };
        if !node.wake.take(at) {
            return;
        }
        if node.sender.poll_timeout().is_some_and(|due| due <= now) {
            node.sender.handle_timeout(now);
        }
        if node.receiver.poll_timeout().is_some_and(|due| due <= now) {
            node.receiver.handle_timeout(now);
        }
        self.pump(host);
    }

    /// Sends everything that a host has to send, and schedules its next wake-up.
    fn pump(&mut self, host: u32) {
        let now = self.nanos();
        while let Some(action) =
            self.hosts.get_mut(host as usize).and_then(|node| node.receiver.poll_action())
        {
            match action {
                Action::Send(header) => self.inject(host, header, 0, NONE),
                Action::Event(event) => self.noticed(&event),
            }
        }
        let mut more = true;
        while self.network.free_at(host) <= self.now {
            let Some(departure) = self.next_packet(host, now) else {
                more = false;
                break;
            };
            // Each flow has its own address range.
            let flow = u32::try_from((departure.source.get() >> 31).wrapping_sub(1)).unwrap_or(NONE);
            let flow = if departure.payload == 0 { NONE } else { flow };
            self.inject(host, departure.header, departure.payload, flow);
        }
        while let Some(completion) =
            self.hosts.get_mut(host as usize).and_then(|node| node.sender.poll_completion())
        {
            let tickets = self.tickets.get(host as usize);
            let number = tickets.and_then(|tickets| tickets.get(completion.ticket.slot() as usize)).copied();
            let Some(flow) = number.and_then(|number| self.report.flows.get_mut(number as usize)) else {
                continue;
            };
            let open = flow.received.is_none();
            flow.completed = Some(completion.finished);
            flow.packets = completion.packets;
            flow.retransmits = completion.retransmits;
            flow.error = completion.result.err();
            if flow.error.is_some() || !open {
                self.left -= 1;
            }
        }
        if self.feedback.is_some() {
            self.note_rates(host);
        }
        let free_at = self.network.free_at(host);
        let copied = self.copying.get(host as usize).and_then(Copying::ready);
        let free_at = match copied {
            Some(ready) => ready.max(free_at),
            None if more => free_at,
            None => u64::MAX,
        };
        let Some(node) = self.hosts.get_mut(host as usize) else { return };
        let due = [node.sender.poll_timeout(), node.receiver.poll_timeout()].into_iter().flatten().min();
        let due = due.map_or(u64::MAX, |due| due.get().saturating_mul(PICOS));
        // A timer wheel's next time may be early; at most one wake-up per nanosecond.
        let due = due.max((self.now / PICOS + 1) * PICOS).min(free_at);
        if node.wake.set(due) {
            self.push(Event::new(due, EventAction::Wake, host));
        }
    }

    /// Next packet of a host that can leave now.
    fn next_packet(&mut self, host: u32, now: Nanos) -> Option<OutgoingPacket> {
        let sender = &mut self.hosts.get_mut(host as usize)?.sender;
        let (Some(copying), Some(stage)) = (self.copying.get_mut(host as usize), &self.scenario.copy) else {
            return sender.poll_packet(now);
        };
        copying.fill(stage, self.now, || sender.poll_packet(now));
        copying.take(self.now)
    }

    fn noticed(&mut self, event: &NiEvent) {
        if event.kind != EventKind::Notice {
            return;
        }
        let now = self.nanos();
        let number = usize::try_from((event.address.get() >> 31).wrapping_sub(1)).unwrap_or(usize::MAX);
        let Some(flow) = self.report.flows.get_mut(number) else { return };
        if flow.received.is_none() {
            flow.received = Some(now);
            if flow.completed.is_some() && flow.error.is_none() {
                self.left -= 1;
            }
        }
    }

    fn keep(&mut self, packet: Packet) -> u32 {
        if let Some(at) = self.free.pop()
            && let Some(place) = self.packets.get_mut(at as usize)
        {
            *place = packet;
            return at;
        }
        self.packets.push(packet);
        u32::try_from(self.packets.len() - 1).unwrap_or(NONE)
    }

    /// Gives a packet to the host's link.
    fn inject(&mut self, host: u32, header: Header, payload: u32, flow: u32) {
        let length = u32::try_from(header.length()).unwrap_or(0) + payload;
        let Some((at, vertex)) = self.network.send(host, self.now, length.into()) else { return };
        if let Some(report) = self.report.hosts.get_mut(host as usize) {
            report.bytes += u64::from(length);
        }
        let to = host_of(&header);
        let packet = self.keep(Packet::new(header, payload, length, flow));
        if let Some(watch) = &mut self.watch {
            watch.note_sent(flow, length - payload);
        }
        if self.links.is_empty() {
            self.push(Event::new(at, EventAction::Arrive, vertex).of(packet).bound(to, length));
        } else {
            let at = self.network.free_at(host);
            self.push(Event::new(at, EventAction::Leave, host).of(packet));
        }
    }

    fn leave(&mut self, host: u32, packet: u32) {
        let now = self.nanos();
        self.free.push(packet);
        if let (Some(packet), Some(link)) =
            (self.packets.get(packet as usize), self.links.get_mut(host as usize))
        {
            // A full link drops it.
            let _ = link.offer(now, *packet);
        }
        self.deliver(host);
    }

    fn deliver(&mut self, host: u32) {
        let now = self.nanos();
        while let Some(packet) = self.links.get_mut(host as usize).and_then(|link| link.poll(now)) {
            self.travel(host, packet);
        }
        if let Some(due) = self.links.get(host as usize).and_then(ImpairedLink::poll_timeout) {
            let at = due.get().saturating_mul(PICOS).max(self.now + 1);
            if self.hosts.get_mut(host as usize).is_some_and(|node| node.deliver.set(at)) {
                self.push(Event::new(at, EventAction::Deliver, host));
            }
        }
    }

    /// Forwards a packet that has left a host and passed its impairments.
    fn travel(&mut self, host: u32, packet: Packet) {
        let (delay, vertex) = self.network.next_hop(host);
        let (to, length) = (host_of(&packet.header), packet.length);
        let packet = self.keep(packet);
        let at = self.now.saturating_add(delay);
        self.push(Event::new(at, EventAction::Arrive, vertex).of(packet).bound(to, length));
    }

    fn push(&mut self, event: Event) {
        self.on_way += usize::from(event.what().is_about_a_packet());
        self.queue.push(event);
    }

    /// Releases frames that are held back for reordering if nothing is in flight and no host is about to send. Returns whether there was
    /// any.
    fn release(&mut self) -> bool {
        let sending = |host: u32| self.network.free_at(host) > self.now;
        if self.links.iter().all(ImpairedLink::is_empty) || (0..).take(self.links.len()).any(sending) {
            return false;
        }
        for host in (0..).take(self.links.len()) {
            if let Some(packet) = self.links.get_mut(host as usize).and_then(ImpairedLink::poll_any) {
                self.travel(host, packet);
                return true;
            }
        }
        false
    }

    fn arrive(&mut self, event: Event) {
        self.report.packet_events += 1;
        let Event { packet, to, length, .. } = event;
        let vertex = event.place();
        let of = if self.network.needs_flow() { self.packets.get(packet as usize) } else { None };
        let (from, flow, path) = of.map_or((0, NONE, 0), |packet| {
            (source_of(&packet.header), packet.flow, packet.header.common().path)
        });
        let port = match self.network.way(vertex, FlowKey { from, to, flow, path }, self.now) {
            Way::Through(port) => port,
            Way::Here => return self.take(vertex, packet),
            Way::Lost => {
                self.report.cut += 1;
                self.free.push(packet);
                return;
            }
        };
        if self.feedback.is_some() && !self.at_hop(vertex, port, packet) {
            self.free.push(packet);
            return;
        }
        let queued = Queued { packet, to, length, since: self.now };
        // Only queues that treat them differently need the packet's kind.
        let of = if self.observes { self.packets.get(packet as usize) } else { None };
        let data = of.is_some_and(|packet| packet.payload > 0);
        match self.network.offer(port, self.now, queued, data) {
            Offer::Full if data && self.scenario.trimming => self.trim(port, queued),
            offer => self.offered(port, queued, offer),
        }
    }

    /// Handles what became of a packet at a port.
    fn offered(&mut self, port: u32, queued: Queued, offer: Offer) {
        let Queued { packet, to, length, since } = queued;
        match offer {
            Offer::Leaves { at, vertex, waited, marked } => {
                self.note_wait(port, packet, since, waited, marked);
                let what =
                    if self.network.is_host_port(port) { EventAction::Receive } else { EventAction::Arrive };
                self.push(Event::new(at, what, vertex).of(packet).bound(to, length));
            }
            Offer::Queued { sends, marked } => {
                self.note_wait(port, packet, since, 0, marked);
                if let Some(at) = sends {
                    self.push(Event::new(at, EventAction::Sent, port));
                }
            }
            Offer::Full => {
                self.report.dropped += 1;
                self.note_loss(port, packet);
                self.free.push(packet);
            }
            Offer::Cut => {
                self.report.cut += 1;
                self.note_loss(port, packet);
                self.free.push(packet);
            }
        }
    }

    /// Handles the end of a transmission of a port with priorities.
    fn sent(&mut self, port: u32) {
        let (sent, next) = self.network.sent(port, self.now);
        if let Some((queued, offer)) = sent {
            self.offered(port, queued, offer);
        }
        if let Some(at) = next {
            self.push(Event::new(at, EventAction::Sent, port));
        }
    }

    /// Cuts a packet's payload, and forwards its header with priority.
    fn trim(&mut self, port: u32, queued: Queued) {
        let Some(packet) = self.packets.get_mut(queued.packet as usize) else { return };
        packet.length -= packet.payload;
        (packet.payload, packet.trimmed) = (0, true);
        let queued = Queued { length: packet.length, ..queued };
        self.report.trimmed += 1;
        self.network.note(port, |stats| {
            stats.dropped = stats.dropped.saturating_sub(1);
            stats.trimmed += 1;
        });
        let offer = self.network.offer(port, self.now, queued, false);
        self.offered(port, queued, offer);
    }

    fn take(&mut self, host: u32, at: u32) {
        let now = self.nanos();
        self.free.push(at);
        let Some(packet) = self.packets.get(at as usize) else { return };
        if packet.damaged {
            self.report.damaged += 1;
            return;
        }
        if let Header::Link(link) = packet.header
            && self.at_controller(host, &link)
        {
            return;
        }
        let Some(node) = self.hosts.get_mut(host as usize) else { return };
        let Some(packet) = self.packets.get(at as usize) else { return };
        if packet.flow != NONE
            && let Some(flow) = self.report.flows.get_mut(packet.flow as usize)
        {
            let waited = Nanos::new(packet.waited / PICOS);
            flow.arrived += 1;
            flow.marked += u64::from(packet.marked);
            flow.queueing = flow.queueing.saturating_add(waited);
            flow.max_queueing = flow.max_queueing.max(waited);
        }
        node.jumps.note(&packet.header);
        let payload = PAYLOAD.get(..packet.payload as usize).unwrap_or(&PAYLOAD);
        let mut header = packet.header;
        if packet.marked {
            header.mark();
        }
        if packet.trimmed {
            if let (AnyReceiver::Registry(receiver), Header::Data(header)) = (&mut node.receiver, &header) {
                receiver.handle_trimmed(now, header, &mut node.memory);
            }
            return self.pump(host);
        }
        node.sender.handle_packet(now, &header);
        node.receiver.handle_packet(now, &header, payload, &mut node.memory);
        self.pump(host);
    }
}
