//! What is simulated: hosts, what connects them, who sends what to whom, and what goes wrong on the way.

use fpga_firmware::generated::Scheme;
use fpga_firmware::{Incarnation, NodeId};
use fpga_netmodel::{BitRate, Blackout, Conditions, Impairments, Order, OrderError, Rate};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::{ReceiverConfig, ReceiverConfigError};
use fpga_protocol::scheme::MAX_MESSAGE_PACKETS;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::bits::PacketWindow;
use fpga_protocol::scheme::messages::{self, MessageConfigError};
use fpga_protocol::sender::{ConfigError, Notify, SenderConfig};

use crate::topology::{Routing, SlowLink, SwitchFabric, Topology, TopologyError};

/// The node that sends, where there are two.
pub const SENDER: NodeId = node_of(0);
/// The node that receives, where there are two.
pub const RECEIVER: NodeId = node_of(1);

/// The node id of a host: hosts count from 0, nodes from 1.
#[must_use]
pub const fn node_of(host: u32) -> NodeId {
    NodeId::new(host + 1)
}

/// The life of a host's node.
pub(crate) const fn incarnation_of(host: u32) -> Incarnation {
    Incarnation::new(host + 1)
}

/// A scheme's name in scenario files, on the command line and in results.
#[must_use]
pub const fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::ReceiverWindow => "receiver-window",
        Scheme::SenderWindow => "sender-window",
        Scheme::ReceiverCounter => "receiver-counter",
        Scheme::AdaptiveWindow => "adaptive-window",
        Scheme::Selective => "selective",
        _ => "registry",
    }
}

/// Most bytes of a flow.
pub const MAX_FLOW_BYTES: u64 = 1 << 30;

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The host that sends, counted from 0.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// Bytes.
    pub length: u64,
    /// When it is submitted.
    pub at: Nanos,
}

impl Flow {
    /// `length` bytes between two hosts, at once.
    #[must_use]
    pub const fn new(from: u32, to: u32, length: u64) -> Self {
        Self { from, to, length, at: Nanos::ZERO }
    }
}

/// Hosts of one scheme and what they send each other.
///
/// Rate, delay and queue hold for every link in both directions. Order and conditions hold for what each host sends, with random
/// numbers of its own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// By which rules. Default: the registry's.
    pub scheme: Scheme,
    /// How hosts are connected. Default: two hosts and a cable.
    pub topology: Topology,
    /// Which of several shortest ways packets take. Default: each packet the one that is free first.
    pub routing: Routing,
    /// Links that are slower than the others. Default: none.
    pub slow: Vec<SlowLink>,
    /// Who sends what to whom.
    pub flows: Vec<Flow>,
    /// Rate of each link. Default 100 Gbit/s.
    pub rate: BitRate,
    /// Time from one end of a link to the other. Default 1 µs.
    pub delay: Nanos,
    /// Bytes that may wait at a switch for each of its links; what finds no room is dropped. Default 256 KiB.
    pub queue: u64,
    /// Order of delivery. Default: in order.
    pub order: Order,
    /// What happens to data packets. Default: nothing.
    pub data: Conditions,
    /// What happens to all others. Default: nothing.
    pub control: Conditions,
    /// Rate of what each host sends, before the network, and how long packets wait for it. Default: the link's own.
    pub throttle: Option<Rate>,
    /// When nothing that hosts send gets through. Default: never.
    pub blackouts: Vec<Blackout>,
    /// Seed of everything random.
    pub seed: u64,
    /// The run ends at this time at the latest. Default 100 s.
    pub limit: Nanos,
    /// Who tells the receiving application (registry only). Default: its own node.
    pub notify: Notify,
    /// The registry scheme's sending side; its packet size holds for every scheme.
    pub sender: SenderConfig,
    /// The registry scheme's receiving side. Its packet size and mask bits are the sender's, whatever stands here.
    pub receiver: ReceiverConfig,
    /// Round trip that the message schemes' timers are made for; `None`: the longest way without any queue.
    pub round_trip: Option<Nanos>,
    /// The message schemes' parameters; `None`: the specification's for the round trip.
    pub rules: Option<SchemeConfig>,
    /// Messages that a host may send, and may receive, at once; `None`: 16 and 64, which is the specification's number. A sender's
    /// context is large, a receiver's is not.
    pub contexts: Option<u32>,
    /// Host with the controller of link feedback (adaptive window and selective only); `None`: links tell nothing. Default: none.
    pub controller: Option<u32>,
}

impl Scenario {
    /// One transfer of `length` bytes between two hosts, with the defaults above.
    #[must_use]
    pub fn new(length: u64) -> Self {
        Self {
            scheme: Scheme::Registry,
            topology: Topology::PointToPoint,
            routing: Routing::Adaptive,
            slow: Vec::new(),
            flows: vec![Flow::new(0, 1, length)],
            rate: BitRate::from_gbps(100),
            delay: Nanos::from_micros(1),
            queue: 256 << 10,
            order: Order::InOrder,
            data: Conditions::default(),
            control: Conditions::default(),
            throttle: None,
            blackouts: Vec::new(),
            seed: 0,
            limit: Nanos::from_secs(100),
            notify: Notify::Receiver,
            sender: SenderConfig::default(),
            receiver: ReceiverConfig::new(RECEIVER, incarnation_of(1)),
            round_trip: None,
            rules: None,
            contexts: None,
            controller: None,
        }
    }

    /// By which rules.
    #[must_use]
    pub fn scheme(mut self, scheme: Scheme) -> Self {
        self.scheme = scheme;
        self
    }

    /// The message schemes' parameters, and with them the scheme.
    #[must_use]
    pub fn rules(mut self, rules: SchemeConfig) -> Self {
        self.scheme = rules.scheme();
        self.rules = Some(rules);
        self
    }

    /// Links tell how they do, and this host has the controller that hears of it.
    #[must_use]
    pub fn controller(mut self, host: u32) -> Self {
        self.controller = Some(host);
        self
    }

    /// How hosts are connected.
    #[must_use]
    pub fn topology(mut self, topology: Topology) -> Self {
        self.topology = topology;
        self
    }

    /// Which of several shortest ways packets take.
    #[must_use]
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Who sends what to whom.
    #[must_use]
    pub fn flows(mut self, flows: Vec<Flow>) -> Self {
        self.flows = flows;
        self
    }

    /// `length` bytes from each host to another one, each of which receives once: every way across the network is used.
    #[must_use]
    pub fn permutation(self, length: u64) -> Self {
        let hosts = self.topology.hosts();
        // Half of the hosts away: in a torus of even side, and in a tree, no way is longer.
        let flows = (0..hosts).map(|host| Flow::new(host, (host + hosts / 2) % hosts, length)).collect();
        self.flows(flows)
    }

    /// `length` bytes from each of `senders` hosts to host 0.
    #[must_use]
    pub fn incast(self, senders: u32, length: u64) -> Self {
        self.flows((1..=senders).map(|host| Flow::new(host, 0, length)).collect())
    }

    /// Rate of each link.
    #[must_use]
    pub fn rate(mut self, rate: BitRate) -> Self {
        self.rate = rate;
        self
    }

    /// Time from one end of a link to the other.
    #[must_use]
    pub fn delay(mut self, delay: Nanos) -> Self {
        self.delay = delay;
        self
    }

    /// Bytes that may wait for each link.
    #[must_use]
    pub fn queue(mut self, bytes: u64) -> Self {
        self.queue = bytes;
        self
    }

    /// Order of delivery.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// What happens to data packets.
    #[must_use]
    pub fn data(mut self, conditions: Conditions) -> Self {
        self.data = conditions;
        self
    }

    /// What happens to acknowledgements, refusals and notices.
    #[must_use]
    pub fn control(mut self, conditions: Conditions) -> Self {
        self.control = conditions;
        self
    }

    /// Seed of everything random.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Who tells the receiving application.
    #[must_use]
    pub fn notify(mut self, notify: Notify) -> Self {
        self.notify = notify;
        self
    }

    /// The registry scheme's sending side.
    #[must_use]
    pub fn sender(mut self, config: SenderConfig) -> Self {
        self.sender = config;
        self
    }

    /// The registry scheme's receiving side.
    #[must_use]
    pub fn receiver(mut self, config: ReceiverConfig) -> Self {
        self.receiver = config;
        self
    }

    /// What happens to what a host sends; `None` if nothing does.
    pub(crate) fn impairments(&self) -> Option<Impairments> {
        let mut impairments = Impairments::both(self.data).order(self.order.clone());
        impairments.control = self.control;
        impairments.rate = self.throttle;
        impairments.blackouts.clone_from(&self.blackouts);
        (impairments != Impairments::default()).then_some(impairments)
    }

    /// Whether anything befalls what hosts send: loss, delay, reordering and the like.
    #[must_use]
    pub fn is_impaired(&self) -> bool {
        self.impairments().is_some()
    }

    /// The round trip that the message schemes' timers are made for.
    #[must_use]
    pub fn timers_for(&self) -> Nanos {
        self.round_trip.unwrap_or_else(|| {
            let links = match self.topology {
                Topology::PointToPoint => 1,
                Topology::Torus { side } => 3 * (side / 2),
                Topology::Tree { levels, .. } => 2 * levels,
            };
            let packet = self.rate.time_of(u64::from(self.sender.packet_size()) + 40);
            self.delay.saturating_add(packet).saturating_mul(2 * u64::from(links)).max(Nanos::new(1))
        })
    }

    /// The message schemes' parameters; `None` for the registry.
    #[must_use]
    pub fn rules_in_use(&self) -> Option<SchemeConfig> {
        self.rules.or_else(|| SchemeConfig::new(self.scheme, self.timers_for()))
    }

    /// Packets that are on their way at once, as far as room is kept for them before the first one: what every sender has sent
    /// and not heard of, with copies and answers. Where far more is under way in a large network, room is made as it is needed.
    pub(crate) fn expected_packets(&self) -> usize {
        const MAX_HOSTS: u64 = 1 << 14;
        let live = match self.rules_in_use() {
            None => u64::from(self.sender.op_entries),
            Some(_) => u64::from(self.sending_contexts()) * u64::from(PacketWindow::WIDTH),
        };
        let packets = |flow: &Flow| flow.length.div_ceil(self.sender.packet_size().into()).min(live);
        let sum = self.flows.iter().map(packets).fold(0, u64::saturating_add);
        let hosts = u64::from(self.topology.hosts());
        let room = sum.saturating_add(16).saturating_add(hosts).saturating_mul(4).min(MAX_HOSTS);
        usize::try_from(room).unwrap_or(0)
    }

    /// Messages that a host may send at once.
    fn sending_contexts(&self) -> u32 {
        self.contexts.unwrap_or(16)
    }

    /// Messages that a host may receive at once.
    fn receiving_contexts(&self) -> u32 {
        self.contexts.unwrap_or(64)
    }

    /// Messages that each host sends in all, and receives. A context more than these is never used: what it takes to make it, most of a short
    /// run's time where each of many hosts sends one message, is spared without any difference.
    pub(crate) fn messages(&self) -> Vec<(u32, u32)> {
        let mut all = vec![(0_u32, 0_u32); usize::try_from(self.topology.hosts()).unwrap_or(0)];
        let span = u64::from(self.sender.packet_size()) * u64::from(MAX_MESSAGE_PACKETS);
        for flow in &self.flows {
            let count = u32::try_from(flow.length.div_ceil(span)).unwrap_or(u32::MAX);
            if let Some((sent, _)) = all.get_mut(flow.from as usize) {
                *sent = sent.saturating_add(count);
            }
            if let Some((_, received)) = all.get_mut(flow.to as usize) {
                *received = received.saturating_add(count);
            }
        }
        all
    }

    /// Checks what the parts do not check themselves.
    ///
    /// # Errors
    /// The first thing that cannot be.
    pub fn validate(&self) -> Result<(), ScenarioError> {
        self.topology.validate()?;
        if self.rate.get() == 0 {
            return Err(ScenarioError::NoRate);
        }
        self.sender.validate()?;
        let hosts = self.topology.hosts();
        if self.flows.is_empty() {
            return Err(ScenarioError::NoFlow);
        }
        if let Some(found) = self.controller.filter(|host| *host >= hosts) {
            return Err(ScenarioError::Controller { found, last: hosts - 1 });
        }
        if self.controller.is_some() && !matches!(self.scheme, Scheme::AdaptiveWindow | Scheme::Selective) {
            return Err(ScenarioError::NoDelays { scheme: self.scheme });
        }
        if self.throttle.is_some_and(|rate| rate.rate.get() == 0) {
            return Err(ScenarioError::NoRate);
        }
        for (number, flow) in self.flows.iter().enumerate() {
            if flow.length == 0 || flow.length > MAX_FLOW_BYTES {
                return Err(ScenarioError::Length { number, found: flow.length });
            }
            for (key, found) in [("from", flow.from), ("to", flow.to)] {
                if found >= hosts {
                    return Err(ScenarioError::Host { number, key, found, last: hosts - 1 });
                }
            }
            if flow.from == flow.to {
                return Err(ScenarioError::Itself { number, host: flow.to });
            }
        }
        let found = self.memory();
        if found > MAX_MEMORY {
            let contexts = self.rules_in_use().map(|_| self.sending_contexts());
            return Err(ScenarioError::Memory { found: found >> 20, hosts, contexts });
        }
        let found = self.packet_events();
        if found > MAX_EVENTS {
            return Err(ScenarioError::Events { found });
        }
        if !self.slow.is_empty() {
            let mut network = self.network();
            for (number, link) in self.slow.iter().enumerate() {
                if !(1..=1000).contains(&link.times) || !network.slow_down(link) {
                    return Err(ScenarioError::SlowLink { number, link: *link });
                }
            }
        }
        Ok(())
    }

    /// Ports and ways, as the scenario has them.
    pub(crate) fn network(&self) -> SwitchFabric {
        let delay = self.delay.get().saturating_mul(1000);
        let mut network = SwitchFabric::new(self.topology, self.rate, delay, self.queue);
        network.set_routing(self.routing);
        network
    }

    /// Bytes that a run takes, roughly, and rather too many: hosts with their contexts. By sizes of structures, not measured.
    #[must_use]
    pub fn memory(&self) -> u64 {
        // What a host has whatever its contexts are, and what one of them takes.
        let (host, sending, receiving) = match self.scheme {
            Scheme::Registry => (u64::from(self.sender.op_entries) * 512 + (192 << 10), 0, 0),
            Scheme::ReceiverWindow => (HOST, 2 << 10, 8 << 10),
            Scheme::AdaptiveWindow => (HOST, 20 << 10, 2 << 10),
            Scheme::Selective => (HOST, 40 << 10, 2 << 10),
            _ => (HOST, 2 << 10, 2 << 10),
        };
        let of = |(sent, received): (u32, u32)| {
            let contexts = u64::from(sent.min(self.sending_contexts()));
            host + contexts * sending + u64::from(received.min(self.receiving_contexts())) * receiving
        };
        self.messages().into_iter().map(of).fold(0, u64::saturating_add)
    }

    /// Packets at switches and hosts, roughly, and rather too few: each packet of each flow once, and its answer, at each of its hops.
    #[must_use]
    pub fn packet_events(&self) -> u64 {
        let packet = u64::from(self.sender.packet_size());
        let of = |flow: &Flow| {
            let hops = u64::from(self.topology.hops(flow.from, flow.to)).max(1);
            flow.length.div_ceil(packet).saturating_mul(2 * hops)
        };
        self.flows.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// Bytes of a host of a message scheme without its contexts.
const HOST: u64 = 192 << 10;
/// Most bytes of a run's hosts: 4 GiB.
pub const MAX_MEMORY: u64 = 4 << 30;
/// Most packets at switches and hosts: some hours.
pub const MAX_EVENTS: u64 = 100_000_000_000;

/// A scenario that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Nothing to simulate.
    #[error("no flows: give at least one")]
    NoFlow,
    /// A flow of no bytes, or of too many.
    #[error("flow {number} of {found} bytes: give 1 to {MAX_FLOW_BYTES}")]
    Length {
        /// Which flow, from 0.
        number: usize,
        /// Bytes given.
        found: u64,
    },
    /// A flow from or to a host that is not there.
    #[error("flow {number}: {key} = {found}, and the topology has hosts 0 to {last}")]
    Host {
        /// Which flow, from 0.
        number: usize,
        /// `from` or `to`.
        key: &'static str,
        /// Host given.
        found: u32,
        /// The last host.
        last: u32,
    },
    /// A controller at a host that is not there.
    #[error("controller at host {found}, and the topology has hosts 0 to {last}")]
    Controller {
        /// Host given.
        found: u32,
        /// The last host.
        last: u32,
    },
    /// Rates would be lowered and never rise again.
    #[error(
        "a controller with the scheme {}: its answers tell no delays; use adaptive-window or selective",
        scheme_name(*scheme)
    )]
    NoDelays {
        /// The scheme.
        scheme: Scheme,
    },
    /// A flow that needs no network.
    #[error("flow {number}: from host {host} to itself: give two hosts")]
    Itself {
        /// Which flow, from 0.
        number: usize,
        /// The host.
        host: u32,
    },
    /// More memory than is sensible.
    #[error(
        "about {found} MiB for {hosts} hosts{}: {} MiB are allowed, so give fewer hosts or fewer contexts",
        contexts.map(|contexts| format!(" of {contexts} contexts")).unwrap_or_default(),
        MAX_MEMORY >> 20
    )]
    Memory {
        /// MiB that it would take.
        found: u64,
        /// Hosts.
        hosts: u32,
        /// Contexts of each, where the scheme has such.
        contexts: Option<u32>,
    },
    /// More events than anybody waits for.
    #[error(
        "about {found} packets at switches and hosts: {MAX_EVENTS} are allowed, so give fewer flows or fewer bytes"
    )]
    Events {
        /// So many, at least.
        found: u64,
    },
    /// A slow link that is not there.
    #[error(
        "slow link {number}: {} times slower from {} to {}{}: give a link of the topology (hosts are numbered first, then switches from the \
         lowest level up) and 1 to 1000",
        link.times, link.from, link.to,
        link.number.map(|number| format!(", number {number}")).unwrap_or_default()
    )]
    SlowLink {
        /// Which, from 0.
        number: usize,
        /// The link given.
        link: SlowLink,
    },
    /// Nothing would ever arrive.
    #[error("a link of 0 bit/s: give at least one")]
    NoRate,
    /// See [`TopologyError`].
    #[error("topology: {0}")]
    Topology(#[from] TopologyError),
    /// See [`OrderError`].
    #[error("delivery order: {0}")]
    Order(#[from] OrderError),
    /// See [`ConfigError`].
    #[error("sender: {0}")]
    Sender(#[from] ConfigError),
    /// See [`ReceiverConfigError`].
    #[error("receiver: {0}")]
    Receiver(#[from] ReceiverConfigError),
    /// See [`MessageConfigError`].
    #[error("scheme: {0}")]
    Messages(#[from] MessageConfigError),
}

/// Configurations of a host's two sides, message schemes.
pub(crate) fn message_configs(
    scenario: &Scenario,
    rules: SchemeConfig,
    host: u32,
    (sent, received): (u32, u32),
) -> (messages::SenderConfig, messages::ReceiverConfig) {
    let mut sender = messages::SenderConfig::new(node_of(host), rules);
    let mut receiver = messages::ReceiverConfig::new(node_of(host), incarnation_of(host), rules);
    (sender.packet_size_log2, receiver.packet_size_log2) =
        (scenario.sender.packet_size_log2, scenario.sender.packet_size_log2);
    let sending = scenario.sending_contexts().min(sent.max(1));
    (sender.contexts, sender.contexts_per_node) = (sending, sending);
    receiver.contexts = scenario.receiving_contexts().min(received.max(1));
    sender.message_packets = MAX_MESSAGE_PACKETS;
    sender.ask = scenario.timers_for().saturating_mul(4);
    sender.transfers = 256;
    (receiver.windows, receiver.peers) = (1, 1024);
    (sender, receiver)
}
