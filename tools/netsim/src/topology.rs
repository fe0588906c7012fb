//! Topology: connections of vertices, and routes of packets.
//!
//! Vertices are hosts, from 0, then switches. A port sends in one direction, one packet after the other, and holds at most the bytes of its
//! queue. If several ports lead to a destination on shortest routes, [`Routing`] selects one.
//!
//! This file is longer than most: the switch fabric is built from each topology by its own rules. Queues, routes and outages are in the
//! submodules.

use std::collections::BTreeMap;

use fpga_netmodel::BitRate;
use fpga_registers::quantity;

mod clos;
mod outages;
mod queues;
mod routes;

pub use clos::{Clos, Tier};
pub use outages::Outage;
pub(crate) use outages::Way;
pub use queues::Marking;
pub(crate) use queues::{Offer, Queued};
pub(crate) use routes::FlowKey;

/// Connections of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "a scenario has one topology, and its users copy it")]
pub enum Topology {
    /// Two hosts and a cable.
    PointToPoint,
    /// `side` x `side` x `side` hosts, each connected to its six neighbours, with routing by the shortest routes.
    Torus {
        /// Hosts along each edge, 2 to 32.
        side: u32,
    },
    /// A tree of switches: `arity` hosts or switches under each, so `arity`^`levels` hosts.
    Tree {
        /// Links downwards of each switch, 2 to 256.
        arity: u32,
        /// Levels of switches, 1 to 4.
        levels: u32,
        /// Links from each switch to the one above, 1 to 256.
        up: u32,
    },
    /// A Clos network of two or three tiers: leaf-spine, fat tree.
    Clos(Clos),
}

/// Choice among several shortest routes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Routing {
    /// At each switch the port that is free first, the first one if several are: packet by packet.
    #[default]
    Adaptive,
    /// One route for each pair of hosts, chosen by their numbers, until a controller reroutes them around a link.
    Fixed,
    /// ECMP: one route for each flow, chosen by a hash of hosts, flow and seed. Packets that belong to no flow, such as acknowledgements, use
    /// the hash of their hosts.
    Ecmp,
    /// At each switch the port that is free first when the flow's first packet arrives; later packets of the flow use the same port.
    AdaptiveFlow,
    /// At each switch the ports in turn, packet by packet.
    RoundRobin,
}

/// Link that is slower than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowLink {
    /// Sending vertex: hosts from 0, then switches, the lowest level first.
    pub from: u32,
    /// Receiving vertex.
    pub to: u32,
    /// Number of the link among several between them, from 0; `None`: all of them.
    pub number: Option<u32>,
    /// Divisor of its rate relative to the other links, 1 to 1000.
    pub times: u32,
}

/// Switch that does not support link feedback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainSwitch {
    /// Vertex: hosts from 0, then switches, the lowest level first. In a torus the switches have the numbers of their hosts.
    pub vertex: u32,
    /// Whether it drops link packets; otherwise it forwards them.
    pub drops: bool,
}

/// Without commas, so that it can be a field of a CSV file.
impl core::fmt::Display for Topology {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::PointToPoint => f.write_str("point-to-point"),
            Self::Torus { side } => write!(f, "torus {side}x{side}x{side}"),
            Self::Tree { arity, levels, up } => write!(f, "tree {arity}^{levels} up {up}"),
            Self::Clos(clos) => clos.fmt(f),
        }
    }
}

/// Reasons why a topology is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A number is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Name of the number.
        name: &'static str,
        /// Given value.
        found: u32,
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
    /// There are too many hosts.
    #[error(
        "arity {arity} to the power of {levels} is more than 65536 hosts: give less of either",
        levels = quantity(*levels, "level"),
    )]
    Hosts {
        /// Links downwards.
        arity: u32,
        /// Levels.
        levels: u32,
    },
    /// A Clos network has another number of tiers.
    #[error("{found} tiers: give 2 (leaves, spines) or 3 (leaves, aggregation, cores)")]
    Tiers {
        /// Given number.
        found: usize,
    },
    /// A fat tree needs switches with as many ports upwards as downwards.
    #[error("radix {found}: give an even number from 2 to 128")]
    Radix {
        /// Given radix.
        found: u32,
    },
    /// Ports cannot be divided into bundles of parallel links.
    #[error("tier {tier}: {found} ports {ports} in bundles of {bundle}: give a multiple of the bundle")]
    Bundle {
        /// Tier, from 1.
        tier: usize,
        /// Name of the ports.
        ports: &'static str,
        /// Number of ports.
        found: u32,
        /// Parallel links.
        bundle: u32,
    },
    /// The Clos network has too few or too many hosts or links.
    #[error("{found} from these tiers: 2 to 65536 hosts and 1048576 links of leaves are allowed, so give other radixes", found = quantity(*hosts, "host"))]
    Large {
        /// Number of hosts.
        hosts: u64,
    },
}

impl Topology {
    /// Checks the ranges above.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn validate(&self) -> Result<(), TopologyError> {
        let size = |name, found, least, most| {
            if (least..=most).contains(&found) {
                Ok(())
            } else {
                Err(TopologyError::Size { name, found, least, most })
            }
        };
        match *self {
            Self::PointToPoint => Ok(()),
            Self::Torus { side } => size("side", side, 2, 32),
            Self::Tree { arity, levels, up } => {
                size("arity", arity, 2, 256)?;
                size("levels", levels, 1, 4)?;
                size("up", up, 1, 256)?;
                match arity.checked_pow(levels) {
                    Some(hosts) if hosts <= 1 << 16 => Ok(()),
                    _ => Err(TopologyError::Hosts { arity, levels }),
                }
            }
            // Its constructor has checked it.
            Self::Clos(_) => Ok(()),
        }
    }

    /// Number of hosts.
    #[must_use]
    pub fn hosts(&self) -> u32 {
        match *self {
            Self::PointToPoint => 2,
            Self::Torus { side } => side * side * side,
            Self::Tree { arity, levels, .. } => arity.saturating_pow(levels),
            Self::Clos(clos) => clos.hosts(),
        }
    }

    /// Number of links on the shortest route between two hosts, not counting those into and out of a torus.
    #[must_use]
    pub fn hops(&self, from: u32, to: u32) -> u32 {
        match *self {
            Self::PointToPoint => u32::from(from != to),
            Self::Torus { side } => (0..3)
                .map(|axis| {
                    let along = |host| coordinate(side, host, axis);
                    distance(side, along(from), along(to)).0.unsigned_abs()
                })
                .sum(),
            Self::Tree { arity, levels, .. } => {
                let apart = (1..=levels).find(|level| from / arity.pow(*level) == to / arity.pow(*level));
                if from == to { 0 } else { 2 * apart.unwrap_or(levels) }
            }
            Self::Clos(clos) => clos.hops(from, to),
        }
    }
}

/// Coordinate of a host along an axis.
const fn coordinate(side: u32, host: u32, axis: u32) -> u32 {
    host / side.pow(axis) % side
}

/// Shortest distance along an axis of `side` hosts, and whether the opposite direction is as short.
fn distance(side: u32, from: u32, to: u32) -> (i32, bool) {
    let forward = if to >= from { to - from } else { to + side - from };
    let signed = |steps: u32| i32::try_from(steps).unwrap_or(0);
    if 2 * forward <= side {
        (signed(forward), 2 * forward == side)
    } else {
        (-signed(side - forward), false)
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    /// Vertex at its end.
    pub(crate) to: u32,
    /// Travel time of a packet after the port, in picoseconds.
    delay: u64,
    /// Factor by which a packet takes longer than on other links.
    times: u64,
    /// Time of a byte in units of 1/65536 ps, without the factor.
    byte: u64,
    /// Maximum wait for the port, in picoseconds, without the factor.
    queue: u64,
}

/// Switch of a tree.
#[derive(Clone, Copy, Debug)]
struct TreeSwitch {
    /// First port.
    first: u32,
    /// Number in its level.
    number: u32,
    /// Hosts below it, and below each of its children.
    span: u32,
    below: u32,
    /// Links to each child.
    links: u32,
    /// Links upwards.
    up: u32,
}

/// Time of a byte in units of 1/65536 ps.
fn byte_time(rate: BitRate) -> u64 {
    let byte = ((8_u128 * 1_000_000_000_000) << 16).div_ceil(u128::from(rate.get().max(1)));
    u64::try_from(byte).unwrap_or(u64::MAX)
}

/// Time in picoseconds for `bytes`, each of which takes `byte`.
#[inline]
fn time(byte: u64, bytes: u64) -> u64 {
    match bytes.checked_mul(byte) {
        Some(product) => product >> 16,
        None => u64::try_from((u128::from(bytes) * u128::from(byte)) >> 16).unwrap_or(u64::MAX),
    }
}

/// Maximum number of pairs and vertices whose route a controller has changed.
const MAX_DETOURS: usize = 1 << 16;

/// Ports and the routes through them.
#[derive(Debug)]
pub(crate) struct SwitchFabric {
    topology: Topology,
    hosts: u32,
    /// Coordinates of each host of a torus: divisions would cost more than the whole rest of a hop.
    coordinates: Vec<[u32; 3]>,
    /// By host: into the network, then out of it (a torus only), then by vertex.
    ports: Vec<Port>,
    /// Time at which each port has sent everything given to it, in picoseconds. Apart from the ports: a switch compares many of them for
    /// each packet.
    free_at: Vec<u64>,
    /// By switch of a tree.
    switches: Vec<TreeSwitch>,
    /// By switch: its first port, and its role; a Clos network only.
    nodes: Vec<(u32, clos::Place)>,
    routing: Routing,
    routes: routes::Choices,
    /// Failed and slow links; `None`: no link ever fails.
    outages: Option<Box<outages::Outages>>,
    /// Marks, priorities and statistics of queues.
    queues: queues::Queues,
    /// Alternative port by vertex and pair.
    detours: BTreeMap<(u32, u32, u32), u32>,
    /// Total time that packets waited at switches, in picoseconds.
    waited: u64,
}

/// Number of ports of a torus' vertex towards its neighbours: up and down each axis.
const NEIGHBOURS: u32 = 6;

impl SwitchFabric {
    /// Creates the network; `delay` is in picoseconds, `queue_bytes` in bytes.
    pub(crate) fn new(topology: Topology, rate: BitRate, delay: u64, queue_bytes: u64) -> Self {
        let hosts = topology.hosts();
        let byte = byte_time(rate);
        let queue = time(byte, queue_bytes);
        let port = |to, delay| Port { to, delay, times: 1, byte, queue };
        let (mut ports, mut nodes, mut tree) = (Vec::new(), Vec::new(), Vec::new());
        match topology {
            Topology::PointToPoint => ports.extend([port(1, delay), port(0, delay)]),
            Topology::Torus { side } => {
                ports.extend((0..hosts).map(|host| port(host, 0)));
                ports.extend((0..hosts).map(|host| port(host, 0)));
                for host in 0..hosts {
                    for axis in 0..3 {
                        let here = coordinate(side, host, axis);
                        let rest = host - here * side.pow(axis);
                        for there in [(here + 1) % side, (here + side - 1) % side] {
                            ports.push(port(rest + there * side.pow(axis), delay));
                        }
                    }
                }
            }
            Topology::Tree { arity, levels, up } => {
                // First vertex of each level of switches, lowest level first.
                let mut first = hosts;
                let mut below = hosts;
                ports.extend((0..hosts).map(|host| port(hosts + host / arity, delay)));
                let mut below_first = 0;
                for level in 1..=levels {
                    let switches = below / arity;
                    let links = if level == 1 { 1 } else { up };
                    for switch in 0..switches {
                        tree.push(TreeSwitch {
                            first: u32::try_from(ports.len()).unwrap_or(u32::MAX),
                            number: switch,
                            span: arity.pow(level),
                            below: arity.pow(level - 1),
                            links,
                            up: if level < levels { up } else { 0 },
                        });
                        for child in 0..arity {
                            // As many links down to a switch as it has up.
                            for _ in 0..links {
                                ports.push(port(below_first + switch * arity + child, delay));
                            }
                        }
                        if level < levels {
                            for _ in 0..up {
                                ports.push(port(first + switches + switch / arity, delay));
                            }
                        }
                    }
                    below_first = first;
                    first += switches;
                    below = switches;
                }
            }
            Topology::Clos(clos) => {
                let tiered = |to: u32, tier: usize| {
                    let of = clos.tier(tier);
                    let forwarding = to.checked_sub(hosts).map_or(0, |switch| {
                        clos.tier(clos.tier_of(switch).0).forwarding.get().saturating_mul(1000)
                    });
                    let delay = of.delay.map_or(delay, |own| own.get().saturating_mul(1000));
                    let byte = of.rate.map_or(byte, byte_time);
                    let queue = time(byte, of.queue.unwrap_or(queue_bytes));
                    Port { byte, queue, ..port(to, delay.saturating_add(forwarding)) }
                };
                let leaf = clos.tier(0).down.max(1);
                ports.extend((0..hosts).map(|host| tiered(hosts + host / leaf, 0)));
                let switches = (0..=clos.top()).map(|tier| clos.switches(tier)).sum();
                for switch in 0..switches {
                    nodes.push((u32::try_from(ports.len()).unwrap_or(u32::MAX), clos.place(switch)));
                    ports.extend(clos.ports(switch).into_iter().map(|(to, tier)| tiered(to, tier)));
                }
            }
        }
        let coordinates = match topology {
            Topology::Torus { side } => {
                (0..hosts).map(|host| [0, 1, 2].map(|axis| coordinate(side, host, axis))).collect()
            }
            _ => Vec::new(),
        };
        Self {
            topology,
            hosts,
            coordinates,
            free_at: vec![0; ports.len()],
            switches: tree,
            ports,
            nodes,
            routing: Routing::default(),
            routes: routes::Choices::default(),
            outages: None,
            queues: queues::Queues::default(),
            detours: BTreeMap::new(),
            waited: 0,
        }
    }

    /// Ports of the links from one vertex to another: all of them, or one by its number.
    fn between(&self, from: u32, to: u32, number: Option<u32>) -> Vec<u32> {
        let own = (0..).take(self.ports.len()).filter(|port| self.owner(*port) == Some(from));
        let between = own.filter(|port| self.port(*port).is_some_and(|port| port.to == to));
        let numbered =
            (0..).zip(between).filter(|(at, _): &(u32, u32)| number.is_none_or(|wanted| wanted == *at));
        numbered.map(|(_, port)| port).collect()
    }

    /// Slows a link down. Returns whether there is such a link.
    pub(crate) fn slow_down(&mut self, link: &SlowLink) -> bool {
        let mut any = false;
        for port in self.between(link.from, link.to, link.number) {
            if let Some(port) = self.ports.get_mut(port as usize) {
                port.times = link.times.max(1).into();
                any = true;
            }
        }
        any
    }

    /// Vertex that sends through a port. A torus' host hands its packets to itself, so the port out of the network is its own.
    pub(crate) fn owner(&self, port: u32) -> Option<u32> {
        match self.topology {
            Topology::PointToPoint => Some(port),
            Topology::Torus { .. } if port < 2 * self.hosts => None,
            Topology::Torus { .. } => Some((port - 2 * self.hosts) / NEIGHBOURS),
            Topology::Tree { arity, levels, up } => {
                if port < self.hosts {
                    return Some(port);
                }
                let (mut first, mut below, mut ports, mut links) = (self.hosts, self.hosts, self.hosts, 1);
                for level in 1..=levels {
                    let switches = below / arity;
                    let per_switch = arity * links + if level < levels { up } else { 0 };
                    if port < ports + switches * per_switch {
                        return Some(first + (port - ports) / per_switch);
                    }
                    ports += switches * per_switch;
                    (first, below, links) = (first + switches, switches, up);
                }
                None
            }
            Topology::Clos(_) if port < self.hosts => Some(port),
            Topology::Clos(_) => {
                let switch = self.nodes.partition_point(|(first, _)| *first <= port);
                u32::try_from(switch).ok().map(|switch| self.hosts + switch - 1)
            }
        }
    }

    /// Returns whether a vertex is a switch.
    pub(crate) fn is_switch(&self, vertex: u32) -> bool {
        match self.topology {
            Topology::PointToPoint => false,
            Topology::Torus { .. } => vertex < self.hosts,
            Topology::Tree { .. } | Topology::Clos(_) => {
                vertex >= self.hosts
                    && (0..).take(self.ports.len()).any(|port| self.owner(port) == Some(vertex))
            }
        }
    }

    /// Total time that packets waited at switches, in nanoseconds.
    pub(crate) const fn queueing_time(&self) -> u64 {
        self.waited / 1000
    }

    /// Rate of a port, in thousandths of the others'.
    pub(crate) fn rate(&self, port: u32) -> u16 {
        self.port(port).map_or(1000, |port| u16::try_from(1000 / port.times.max(1)).unwrap_or(1000))
    }

    /// Reroutes packets from host `from` to host `to` around a port from now on, over the other shortest route that is free first. Returns
    /// whether there is one that is less full.
    pub(crate) fn avoid(&mut self, port: u32, from: u32, to: u32, now: u64) -> bool {
        if self.routing != Routing::Fixed || self.detours.len() >= MAX_DETOURS {
            return false;
        }
        let Some(vertex) = self.owner(port) else { return false };
        let mut best = (u64::MAX, u32::MAX);
        let mut on_the_way = false;
        self.for_each_path(vertex, to, |way| {
            if way == port {
                on_the_way = true;
            } else {
                let wait = self.free_at(way).saturating_sub(now);
                let times = self.port(way).map_or(1, |port| port.times);
                best = best.min((wait.saturating_mul(times), way));
            }
        });
        let times = self.port(port).map_or(1, |port| port.times);
        let here = self.free_at(port).saturating_sub(now).saturating_mul(times);
        let slower = self.port(best.1).is_some_and(|other| other.times > times);
        if !on_the_way || best.1 == u32::MAX || best.0 > here || slower {
            return false;
        }
        self.detours.insert((vertex, from, to), best.1);
        true
    }

    /// Maximum time that a packet waits for a link and travels on it, in picoseconds.
    pub(crate) fn max_queueing_time(&self) -> u64 {
        let delay = self.ports.iter().map(|port| port.delay).max().unwrap_or(0);
        // Queues in use are shorter: a host's 128 packets, four times over, are far longer.
        let queue = self.ports.iter().map(|port| port.queue.min(time(port.byte, 512 << 10))).max();
        delay.saturating_add(queue.unwrap_or(0))
    }

    #[inline]
    fn coordinates_of(&self, vertex: u32) -> [u32; 3] {
        self.coordinates.get(vertex as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn port(&self, at: u32) -> Option<&Port> {
        self.ports.get(at as usize)
    }

    /// Time at which a port is free. The port of a host into the network has the host's number.
    #[inline]
    pub(crate) fn free_at(&self, port: u32) -> u64 {
        self.free_at.get(port as usize).copied().unwrap_or(0)
    }

    /// Sends through a port. Returns the time of arrival at its end, and the vertex there; `None` if the queue has no space.
    #[inline]
    pub(crate) fn send(&mut self, port: u32, now: u64, bytes: u64) -> Option<(u64, u32)> {
        let hosts = self.hosts;
        let at = port;
        let port = self.ports.get(port as usize)?;
        let free_at = self.free_at.get_mut(at as usize)?;
        let time = time(port.byte, bytes);
        let start = (*free_at).max(now);
        // A host's own port accepts everything that its host hands over.
        if at >= hosts {
            if start - now > port.queue.saturating_mul(port.times) {
                return None;
            }
            self.waited = self.waited.saturating_add(start - now);
        }
        *free_at = start.saturating_add(time * port.times);
        Some((free_at.saturating_add(port.delay), port.to))
    }

    /// Port for a packet at `vertex` to the host `to`; `None`: it is there.
    #[inline]
    pub(crate) fn route(&self, vertex: u32, to: u32) -> Option<u32> {
        let mut best = (u64::MAX, u32::MAX);
        self.for_each_path(vertex, to, |port| best = best.min((self.free_at(port), port)));
        (best.1 != u32::MAX).then_some(best.1)
    }

    /// Calls `each` with the ports of all shortest routes from `vertex` to the host `to`; with none if this is its vertex.
    #[inline]
    fn for_each_path(&self, vertex: u32, to: u32, mut each: impl FnMut(u32)) {
        match self.topology {
            Topology::PointToPoint => {}
            Topology::Torus { side } => {
                if vertex == to {
                    return each(self.hosts + to);
                }
                let first = 2 * self.hosts + vertex * NEIGHBOURS;
                let (here, there) = (self.coordinates_of(vertex), self.coordinates_of(to));
                for ((up, from), to) in (first..).step_by(2).zip(here).zip(there) {
                    let (steps, both) = distance(side, from, to);
                    if steps > 0 {
                        each(up);
                    }
                    if steps < 0 || both && steps > 0 {
                        each(up + 1);
                    }
                }
            }
            Topology::Tree { arity, .. } => {
                let at = vertex.checked_sub(self.hosts).map(|at| at as usize);
                let Some(switch) = at.and_then(|at| self.switches.get(at)) else { return };
                let TreeSwitch { first, number, span, below, links, up } = *switch;
                let candidates = if to / span == number {
                    let child = to / below % arity;
                    first + child * links..first + (child + 1) * links
                } else {
                    first + arity * links..first + arity * links + up
                };
                candidates.for_each(each);
            }
            Topology::Clos(clos) => {
                let Some((first, place)) =
                    vertex.checked_sub(self.hosts).and_then(|at| self.nodes.get(at as usize))
                else {
                    return;
                };
                clos.ways(*place, to).for_each(|way| each(first + way));
            }
        }
    }

    /// Travel time and vertex after a port.
    pub(crate) fn next_hop(&self, port: u32) -> (u64, u32) {
        self.port(port).map_or((0, port), |port| (port.delay, port.to))
    }

    /// Returns whether a packet that has come through `port` is handed to its host.
    #[inline]
    pub(crate) const fn is_host_port(&self, port: u32) -> bool {
        matches!(self.topology, Topology::Torus { .. }) && port >= self.hosts && port < 2 * self.hosts
    }

    /// Returns whether the link after a port ends at a host, so that all routes to the host use it.
    pub(crate) fn ends_at_host(&self, port: u32) -> bool {
        match self.topology {
            Topology::Torus { .. } => self.is_host_port(port),
            _ => self.port(port).is_some_and(|port| port.to < self.hosts),
        }
    }

    /// Fill level of a port's queue at `now`, in thousandths.
    pub(crate) fn filled(&self, port: u32, now: u64) -> u16 {
        let wait = self.free_at(port).saturating_sub(now);
        let queue = self.port(port).map_or(1, |port| port.queue.saturating_mul(port.times).max(1));
        let part = u128::from(wait) * 1000 / u128::from(queue);
        u16::try_from(part).unwrap_or(u16::MAX)
    }

    /// Number of ports.
    pub(crate) fn ports(&self) -> usize {
        self.ports.len()
    }
}

#[cfg(test)]
mod tests;
