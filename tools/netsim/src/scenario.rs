//! Scenario: hosts, topology, traffic, and impairments.
//!
//! This file is longer than most: it holds every setting with its default, its check, and the configuration of a node that follows from it.

mod load;

use fpga_firmware::{Incarnation, NodeId};
use fpga_netmodel::{BitRate, Blackout, Conditions, Impairments, Order, OrderError, Rate};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::congestion::CongestionConfig;
use fpga_protocol::receiver::{ReceiverConfig, ReceiverConfigError};
use fpga_protocol::scheme::bits::PacketWindow;
use fpga_protocol::scheme::messages::MessageConfigError;
use fpga_protocol::sender::{Notify, SenderConfig, SenderConfigError};
use fpga_registers::quantity;

pub(crate) use load::{HostLoad, message_ends, registry_configs};

use crate::scheme::{Rules, Scheme};
use crate::topology::{
    Marking, Outage, PlainSwitch, Routing, SlowLink, SwitchFabric, Tier, Topology, TopologyError,
};

/// Sending node of a pair.
pub const SENDER: NodeId = node_of(0);
/// Receiving node of a pair.
pub const RECEIVER: NodeId = node_of(1);

/// Node id of a host: hosts count from 0, nodes from 1.
#[must_use]
pub const fn node_of(host: u32) -> NodeId {
    NodeId::new(host + 1)
}

/// Incarnation of a host's node.
pub(crate) const fn incarnation_of(host: u32) -> Incarnation {
    Incarnation::new(host + 1)
}

/// Maximum length of a flow in bytes.
pub const MAX_FLOW_BYTES: u64 = 1 << 30;

/// One transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// Sending host, counted from 0.
    pub from: u32,
    /// Receiving host.
    pub to: u32,
    /// Length in bytes.
    pub length: u64,
    /// Time of submission.
    pub at: Nanos,
}

impl Flow {
    /// Creates a flow of `length` bytes between two hosts, submitted at time 0.
    #[must_use]
    pub const fn new(from: u32, to: u32, length: u64) -> Self {
        Self { from, to, length, at: Nanos::ZERO }
    }
}

/// Hosts that run one scheme, and their traffic.
///
/// Rate, delay and queue apply to every link in both directions. Order and conditions apply to the frames that each host sends, with
/// separate random numbers per host.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scenario {
    /// Scheme. Default: the registry's.
    pub scheme: Scheme,
    /// Connections of the hosts. Default: two hosts and a cable.
    pub topology: Topology,
    /// Choice among several shortest routes. Default: each packet takes the one that is free first.
    pub routing: Routing,
    /// Links that are slower than the others. Default: none.
    pub slow: Vec<SlowLink>,
    /// Links that fail or become slow at stated times. Default: none.
    pub outages: Vec<Outage>,
    /// Time after which switches use other shortest routes than those over a failed link. Default 0.
    pub detection: Nanos,
    /// Marks of congestion (ECN) on data packets. Default: none.
    pub marking: Option<Marking>,
    /// Whether control packets leave a switch before the data packets that wait there. Default: first in, first out.
    pub control_first: bool,
    /// Whether a full queue cuts the payload of a data packet and forwards its header with priority (registry scheme, with `control_first`).
    /// The receiver registers the segment of a trimmed start packet, and refuses every trimmed packet as `Trimmed` at once, so that the
    /// sender repeats it on another path. Default: the queue drops the packet.
    pub trimming: bool,
    /// Whether the report names queues and flows that caused delays ([`crate::Report::queues`]). Default: no.
    pub observe: bool,
    /// Interval of the report's series of queue lengths and rates (with `observe`). Default: none.
    pub series: Option<Nanos>,
    /// Traffic.
    pub flows: Vec<Flow>,
    /// Rate of each link. Default 100 Gbit/s.
    pub rate: BitRate,
    /// Delay from one end of a link to the other. Default 1 µs.
    pub delay: Nanos,
    /// Queue of a switch for each of its links in bytes; packets that do not fit are dropped. Default 256 KiB.
    pub queue: u64,
    /// Order of delivery. Default: in order.
    pub order: Order,
    /// Impairments of data packets. Default: none.
    pub data: Conditions,
    /// Impairments of all other packets. Default: none.
    pub control: Conditions,
    /// Rate limit of each host's frames before the network, and maximum queueing time. Default: the link's own.
    pub throttle: Option<Rate>,
    /// Times in which no frame of a host gets through. Default: none.
    pub blackouts: Vec<Blackout>,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Maximum simulated time of a run. Default 100 s.
    pub limit: Nanos,
    /// Notifier of the receiving application (registry only). Default: its own node.
    pub notify: Notify,
    /// Configuration of the registry scheme's sender; its packet size applies to every scheme.
    pub sender: SenderConfig,
    /// Configuration of the registry scheme's receiver. Its packet size and mask bits are overridden by the sender's.
    pub receiver: ReceiverConfig,
    /// Round trip for which the message schemes' timers are computed; `None`: the longest route without queueing.
    pub round_trip: Option<Nanos>,
    /// Parameters of the message schemes; `None`: the specification's for the round trip.
    pub rules: Option<Rules>,
    /// Maximum number of messages that a host may send, and may receive, at once; `None`: 16 and 64, which is the specification's number. A
    /// sender's context is large, a receiver's is not.
    pub contexts: Option<u32>,
    /// Copy stage of each host's card (registry only): a segment is copied into a transmit window before its first packet leaves. `None`:
    /// hosts take no time. Default: none.
    pub copy: Option<CopyStage>,
    /// Host with the controller of link feedback (adaptive window and selective only); `None`: links report nothing. Default: none.
    pub controller: Option<u32>,
    /// Number of path identifiers that each sender uses towards a receiver, 1 to 256; with [`Routing::Ecmp`], switches hash them. Default: 1.
    pub paths: u16,
    /// Switches that do not support link feedback: they neither answer nor report, and forward or drop link packets. Default: none.
    pub plain_switches: Vec<PlainSwitch>,
    /// Congestion windows of the senders, all schemes but the receiver counter; `None`: off, as in the source documents. Default: on.
    pub congestion: Option<CongestionConfig>,
}

/// Copy engine of a host's card, and its transmit windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CopyStage {
    /// Time of a segment beside its bytes.
    pub command: Nanos,
    /// Rate of the copies.
    pub rate: BitRate,
    /// Number of transmit windows.
    pub windows: u32,
}

/// Declares setters that are named after their field.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident: $type:ty;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $field(mut self, $field: $type) -> Self {
            self.$field = $field;
            self
        }
    )*};
}

impl Scenario {
    /// Creates a scenario of one transfer of `length` bytes between two hosts, with the defaults above.
    #[must_use]
    pub fn new(length: u64) -> Self {
        Self {
            scheme: Scheme::Registry,
            topology: Topology::PointToPoint,
            routing: Routing::Adaptive,
            slow: Vec::new(),
            outages: Vec::new(),
            detection: Nanos::ZERO,
            marking: None,
            control_first: false,
            trimming: false,
            observe: false,
            series: None,
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
            receiver: receiver_config(),
            round_trip: None,
            rules: None,
            contexts: None,
            copy: None,
            controller: None,
            paths: 1,
            plain_switches: Vec::new(),
            congestion: Some(CongestionConfig::DEFAULT),
        }
    }

    setters! {
        /// Sets the scheme.
        scheme: Scheme;
        /// Sets the number of path identifiers of each sender, 1 to 256.
        paths: u16;
        /// Makes switches not support link feedback.
        plain_switches: Vec<PlainSwitch>;
        /// Sets the congestion windows of the senders.
        congestion: Option<CongestionConfig>;
        /// Sets the topology.
        topology: Topology;
        /// Sets the choice among several shortest routes.
        routing: Routing;
        /// Sets the traffic.
        flows: Vec<Flow>;
        /// Sets the rate of each link.
        rate: BitRate;
        /// Sets the delay from one end of a link to the other.
        delay: Nanos;
        /// Sets the queue of each link in bytes.
        queue: u64;
        /// Sets the order of delivery.
        order: Order;
        /// Sets the impairments of data packets.
        data: Conditions;
        /// Sets the impairments of acknowledgements, refusals and notices.
        control: Conditions;
        /// Sets the seed of all random numbers.
        seed: u64;
        /// Sets the notifier of the receiving application.
        notify: Notify;
        /// Sets the configuration of the registry scheme's sender.
        sender: SenderConfig;
        /// Sets the configuration of the registry scheme's receiver.
        receiver: ReceiverConfig;
    }

    /// Sets the message schemes' parameters, and with them the scheme.
    #[must_use]
    pub fn rules(mut self, rules: impl Into<Rules>) -> Self {
        let rules = rules.into();
        self.scheme = rules.scheme();
        self.rules = Some(rules);
        self
    }

    /// Makes links report their load to the controller on this host.
    #[must_use]
    pub fn controller(mut self, host: u32) -> Self {
        self.controller = Some(host);
        self
    }

    /// Sets the traffic to `length` bytes from each host to another one, each of which receives once: every route across the network is
    /// used.
    #[must_use]
    pub fn permutation(self, length: u64) -> Self {
        let hosts = self.topology.hosts();
        // Half of the hosts away: in a torus of even side, and in a tree, no route is longer.
        let flows = (0..hosts).map(|host| Flow::new(host, (host + hosts / 2) % hosts, length)).collect();
        self.flows(flows)
    }

    /// Sets the traffic to `length` bytes from each of `senders` hosts to host 0.
    #[must_use]
    pub fn incast(self, senders: u32, length: u64) -> Self {
        self.flows((1..=senders).map(|host| Flow::new(host, 0, length)).collect())
    }

    /// Impairments of a host's frames; `None` if there are none.
    pub(crate) fn impairments(&self) -> Option<Impairments> {
        let mut impairments = Impairments::both(self.data).order(self.order.clone());
        impairments.control = self.control;
        impairments.rate = self.throttle;
        impairments.blackouts.clone_from(&self.blackouts);
        (impairments != Impairments::default()).then_some(impairments)
    }

    /// Returns whether hosts' frames are impaired: loss, delay, reordering and the like.
    #[must_use]
    pub fn is_impaired(&self) -> bool {
        self.impairments().is_some()
    }

    /// Round trip for which the message schemes' timers are computed.
    #[must_use]
    pub fn timers_for(&self) -> Nanos {
        self.round_trip.unwrap_or_else(|| {
            let packet = u64::from(self.sender.packet_size()) + 40;
            let links = match self.topology {
                Topology::PointToPoint => 1,
                Topology::Torus { side } => 3 * (side / 2),
                Topology::Tree { levels, .. } => 2 * levels,
                Topology::Clos(clos) => {
                    // Each tier's links are passed upwards and downwards, in both directions.
                    let tier = |tier: &Tier| {
                        let (rate, delay) =
                            (tier.rate.unwrap_or(self.rate), tier.delay.unwrap_or(self.delay));
                        delay
                            .saturating_add(rate.time_of(packet))
                            .saturating_add(tier.forwarding)
                            .saturating_mul(4)
                    };
                    let sum = clos.tiers().iter().map(tier).fold(Nanos::ZERO, Nanos::saturating_add);
                    return sum.max(Nanos::new(1));
                }
            };
            let packet = self.rate.time_of(packet);
            self.delay.saturating_add(packet).saturating_mul(2 * u64::from(links)).max(Nanos::new(1))
        })
    }

    /// Parameters of the message schemes; `None` for the registry.
    #[must_use]
    pub fn rules_in_use(&self) -> Option<Rules> {
        self.rules.or_else(|| Rules::new(self.scheme, self.timers_for()))
    }

    /// Number of packets in flight for which space is reserved in advance: all unacknowledged packets of every sender, with copies and
    /// answers. If far more are in flight in a large network, space is allocated on demand.
    pub(crate) fn expected_packets(&self) -> usize {
        const MAX_HOSTS: u64 = 1 << 14;
        let live = match self.rules_in_use() {
            None => u64::from(self.sender.op_entries),
            Some(_) => u64::from(self.sending_contexts()) * u64::from(PacketWindow::WIDTH),
        };
        let packets = |flow: &Flow| flow.length.div_ceil(self.sender.packet_size().into()).min(live);
        let sum = self.flows.iter().map(packets).fold(0, u64::saturating_add);
        let hosts = u64::from(self.topology.hosts());
        let packets = sum.saturating_add(16).saturating_add(hosts).saturating_mul(4).min(MAX_HOSTS);
        usize::try_from(packets).unwrap_or(0)
    }

    /// Maximum number of messages that a host may send at once.
    fn sending_contexts(&self) -> u32 {
        self.contexts.unwrap_or(16)
    }

    /// Maximum number of messages that a host may receive at once.
    fn receiving_contexts(&self) -> u32 {
        self.contexts.unwrap_or(64)
    }

    /// Checks everything that the parts do not check themselves.
    ///
    /// # Errors
    /// The first invalid value.
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
        if self.marking.is_some_and(|marking| marking.min > marking.max) {
            return Err(ScenarioError::Marking);
        }
        if self.trimming && (self.scheme != Scheme::Registry || !self.control_first) {
            return Err(ScenarioError::Trimming);
        }
        if self.series.is_some_and(|interval| interval == Nanos::ZERO) {
            return Err(ScenarioError::Interval);
        }
        for (number, outage) in self.outages.iter().enumerate() {
            let overlap =
                outage.period.is_some_and(|period| outage.length.is_none_or(|length| length > period));
            if overlap
                || outage.length == Some(Nanos::ZERO)
                || outage.times.is_some_and(|times| !(1..=1000).contains(&times))
            {
                return Err(ScenarioError::Phases { number });
            }
        }
        if !self.outages.is_empty() {
            let mut network = self.network();
            for (number, outage) in self.outages.iter().enumerate() {
                if !network.add_outage(outage, self.detection) {
                    return Err(ScenarioError::Outage { number, from: outage.from, to: outage.to });
                }
            }
        }
        if !self.plain_switches.is_empty() {
            let network = self.network();
            for (number, PlainSwitch { vertex, .. }) in self.plain_switches.iter().enumerate() {
                if !network.is_switch(*vertex) {
                    return Err(ScenarioError::PlainSwitch { number, vertex: *vertex });
                }
            }
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

    /// Ports and routes of the scenario.
    pub(crate) fn network(&self) -> SwitchFabric {
        let delay = self.delay.get().saturating_mul(1000);
        let mut network = SwitchFabric::new(self.topology, self.rate, delay, self.queue);
        network.set_routing(self.routing, self.seed);
        network.set_marking(self.marking, self.seed);
        if self.control_first {
            network.set_priorities();
        }
        if self.observe {
            network.set_statistics();
        }
        network
    }

    /// Approximate memory of a run in bytes, estimated high: hosts with their contexts. Computed from sizes of structures, not measured.
    #[must_use]
    pub fn memory(&self) -> u64 {
        // Memory of a host without contexts, and of one context.
        let (host, sending, receiving) = match self.scheme {
            Scheme::Registry => (u64::from(self.sender.op_entries) * 512 + (192 << 10), 0, 0),
            Scheme::ReceiverWindow => (HOST, 2 << 10, 8 << 10),
            Scheme::AdaptiveWindow => (HOST, 20 << 10, 2 << 10),
            Scheme::Selective => (HOST, 40 << 10, 2 << 10),
            _ => (HOST, 2 << 10, 2 << 10),
        };
        let of = |load: HostLoad| {
            let contexts = u64::from(load.sent.min(self.sending_contexts()));
            host + contexts * sending + u64::from(load.received.min(self.receiving_contexts())) * receiving
        };
        self.loads().into_iter().map(of).fold(0, u64::saturating_add)
    }

    /// Approximate number of packets at switches and hosts, estimated low: each packet of each flow once, and its answer, at each of its
    /// hops.
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

/// Bytes of a message scheme's host without its contexts.
const HOST: u64 = 192 << 10;
/// Maximum memory of a run's hosts in bytes: 4 GiB.
pub const MAX_MEMORY: u64 = 4 << 30;
/// Maximum number of packets at switches and hosts: some hours of run time.
pub const MAX_EVENTS: u64 = 100_000_000_000;

/// Reasons why a scenario is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// There is nothing to simulate.
    #[error("no flows: give at least one")]
    NoFlow,
    /// A flow has no bytes, or too many.
    #[error("flow {number} of {found}: give 1 to {MAX_FLOW_BYTES}", found = quantity(*found, "byte"))]
    Length {
        /// Number of the flow, from 0.
        number: usize,
        /// Given length in bytes.
        found: u64,
    },
    /// A flow names a host that does not exist.
    #[error("flow {number}: {key} = {found}, but the topology has hosts 0 to {last}")]
    Host {
        /// Number of the flow, from 0.
        number: usize,
        /// `from` or `to`.
        key: &'static str,
        /// Given host.
        found: u32,
        /// Last host.
        last: u32,
    },
    /// The controller's host does not exist.
    #[error("controller at host {found}, but the topology has hosts 0 to {last}")]
    Controller {
        /// Given host.
        found: u32,
        /// Last host.
        last: u32,
    },
    /// Rates would be lowered and never rise again.
    #[error(
        "a controller with the scheme {scheme}: its answers report no delays; use adaptive-window or selective"
    )]
    NoDelays {
        /// Scheme.
        scheme: Scheme,
    },
    /// A flow from a host to itself needs no network.
    #[error("flow {number}: from host {host} to itself: give two hosts")]
    Itself {
        /// Number of the flow, from 0.
        number: usize,
        /// Host.
        host: u32,
    },
    /// The run would need too much memory.
    #[error(
        "about {found} MiB for {hosts}{}: {} MiB are allowed, so give fewer hosts or fewer contexts",
        contexts.map(|contexts| format!(" of {contexts} contexts")).unwrap_or_default(),
        MAX_MEMORY >> 20, hosts = quantity(*hosts, "host"))]
    Memory {
        /// Estimated memory in MiB.
        found: u64,
        /// Number of hosts.
        hosts: u32,
        /// Contexts of each host, if the scheme has any.
        contexts: Option<u32>,
    },
    /// The run would have too many events.
    #[error(
        "about {found} at switches and hosts, but {MAX_EVENTS} are allowed: give fewer flows or fewer bytes",
        found = quantity(*found, "packet"),
    )]
    Events {
        /// Estimated number of events, at least.
        found: u64,
    },
    /// A switch without link feedback does not exist.
    #[error(
        "plain switch {number}: vertex {vertex} is not a switch of the topology: hosts are first, then switches from the lowest level up"
    )]
    PlainSwitch {
        /// Number of the entry, from 0.
        number: usize,
        /// Given vertex.
        vertex: u32,
    },
    /// A slow link does not exist.
    #[error(
        "slow link {number}: {} times slower from {} to {}{}: give a link of the topology (hosts first, then switches from the lowest level up) and 1 to 1000",
        link.times, link.from, link.to,
        link.number.map(|number| format!(", number {number}")).unwrap_or_default()
    )]
    SlowLink {
        /// Number of the slow link, from 0.
        number: usize,
        /// Given link.
        link: SlowLink,
    },
    /// A failure's times contradict each other.
    #[error(
        "link failure {number}: give a duration of at least 1 ns and at most the period, and a factor from 1 to 1000"
    )]
    Phases {
        /// Number of the failure, from 0.
        number: usize,
    },
    /// A failed link does not exist.
    #[error(
        "link failure {number}: there is no such link from {from} to {to}: give a link of the topology (hosts first, then switches from the lowest level up)"
    )]
    Outage {
        /// Number of the failure, from 0.
        number: usize,
        /// Given vertex.
        from: u32,
        /// Given vertex.
        to: u32,
    },
    /// The marks' limits are in the wrong order.
    #[error(
        "ECN marks begin above the length at which all packets are marked: give a minimum of at most the maximum"
    )]
    Marking,
    /// Trimming needs a receiver that requests single packets, and priorities.
    #[error("trimming needs the scheme registry and control packets first: set both, or no trimming")]
    Trimming,
    /// The sampling interval is 0.
    #[error("the sampling interval is 0: give at least 1 ns")]
    Interval,
    /// The link rate is 0.
    #[error("the link rate is 0 bit/s: give at least 1 bit/s")]
    NoRate,
    /// See [`TopologyError`].
    #[error("topology: {0}")]
    Topology(TopologyError),
    /// See [`OrderError`].
    #[error("delivery order: {0}")]
    Order(OrderError),
    /// See [`SenderConfigError`].
    #[error("sender: {0}")]
    Sender(SenderConfigError),
    /// See [`ReceiverConfigError`].
    #[error("receiver: {0}")]
    Receiver(ReceiverConfigError),
    /// See [`MessageConfigError`].
    #[error("scheme: {0}")]
    Messages(MessageConfigError),
}

impl From<MessageConfigError> for ScenarioError {
    fn from(error: MessageConfigError) -> Self {
        Self::Messages(error)
    }
}

impl From<ReceiverConfigError> for ScenarioError {
    fn from(error: ReceiverConfigError) -> Self {
        Self::Receiver(error)
    }
}

impl From<SenderConfigError> for ScenarioError {
    fn from(error: SenderConfigError) -> Self {
        Self::Sender(error)
    }
}

impl From<OrderError> for ScenarioError {
    fn from(error: OrderError) -> Self {
        Self::Order(error)
    }
}

impl From<TopologyError> for ScenarioError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(error)
    }
}

/// Receiver of the registry scheme with as many senders and transfers as the card model's.
fn receiver_config() -> ReceiverConfig {
    let mut config = ReceiverConfig::new(RECEIVER, incarnation_of(1));
    (config.sources, config.transfers) = (512, 512);
    config
}
