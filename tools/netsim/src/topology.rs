//! Who is connected to whom, and which way a packet takes.
//!
//! Vertices are hosts, from 0, then switches. A port sends in one direction, one packet after the other, and may hold as
//! many bytes as its queue has. Where several ports lead to a destination on shortest ways, the one that is free first is
//! taken, and the first of these.

use fpga_core::impair::BitRate;

/// How hosts are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Topology {
    /// Two hosts and a cable.
    PointToPoint,
    /// `side` x `side` x `side` hosts, each connected to its six neighbours, and routed by the shortest ways.
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
}

/// Without commas, so that it can be a field of a CSV file.
impl core::fmt::Display for Topology {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::PointToPoint => f.write_str("point-to-point"),
            Self::Torus { side } => write!(f, "torus {side}x{side}x{side}"),
            Self::Tree { arity, levels, up } => write!(f, "tree {arity}^{levels} up {up}"),
        }
    }
}

/// A topology that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// A number is out of range.
    #[error("{name} = {found}: give {least} to {most}")]
    Size {
        /// Which.
        name: &'static str,
        /// What was given.
        found: u32,
        /// The smallest possible.
        least: u32,
        /// The largest possible.
        most: u32,
    },
    /// Too many hosts.
    #[error("arity {arity} to the power of {levels} levels is more than 65536 hosts: give less of either")]
    Hosts {
        /// Links downwards.
        arity: u32,
        /// Levels.
        levels: u32,
    },
}

impl Topology {
    /// Checks the ranges above.
    ///
    /// # Errors
    /// The first rule broken.
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
        }
    }

    /// How many hosts it has.
    #[must_use]
    pub const fn hosts(&self) -> u32 {
        match *self {
            Self::PointToPoint => 2,
            Self::Torus { side } => side * side * side,
            Self::Tree { arity, levels, .. } => arity.saturating_pow(levels),
        }
    }

    /// Links on the shortest way between two hosts, what leads into and out of a torus not counted.
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
        }
    }
}

/// Coordinate of a host along an axis.
const fn coordinate(side: u32, host: u32, axis: u32) -> u32 {
    host / side.pow(axis) % side
}

/// The shortest way along an axis of `side` hosts, and whether the other way round is as short.
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
    /// Where it leads.
    pub(crate) to: u32,
    /// When it has sent all that it was given, in picoseconds.
    pub(crate) free_at: u64,
    /// How long a packet travels behind it, in picoseconds.
    delay: u64,
}

/// Ports and the ways through them.
#[derive(Debug)]
pub(crate) struct Network {
    topology: Topology,
    hosts: u32,
    /// Of each host of a torus: divisions would cost more than all the rest of a hop.
    coordinates: Vec<[u32; 3]>,
    /// By host: into the network, then out of it (a torus only), then by vertex.
    ports: Vec<Port>,
    /// 1/65536 ps that a byte takes.
    byte: u64,
    /// Longest wait for a port, in picoseconds.
    queue: u64,
}

/// Ports of a torus' vertex towards its neighbours: up and down each axis.
const NEIGHBOURS: u32 = 6;

impl Network {
    /// `delay` and `queue` in picoseconds.
    pub(crate) fn new(topology: Topology, rate: BitRate, delay: u64, queue_bytes: u64) -> Self {
        let hosts = topology.hosts();
        let port = |to, delay| Port { to, free_at: 0, delay };
        let mut ports = Vec::new();
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
                // First vertex of each level of switches, the lowest first.
                let mut first = hosts;
                let mut below = hosts;
                ports.extend((0..hosts).map(|host| port(hosts + host / arity, delay)));
                let mut below_first = 0;
                for level in 1..=levels {
                    let switches = below / arity;
                    for switch in 0..switches {
                        for child in 0..arity {
                            // As many links down to a switch as it has up.
                            let links = if level == 1 { 1 } else { up };
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
        }
        let byte = ((8_u128 * 1_000_000_000_000) << 16).div_ceil(u128::from(rate.get().max(1)));
        let byte = u64::try_from(byte).unwrap_or(u64::MAX);
        let coordinates = match topology {
            Topology::Torus { side } => {
                (0..hosts).map(|host| [0, 1, 2].map(|axis| coordinate(side, host, axis))).collect()
            }
            _ => Vec::new(),
        };
        let mut network = Self { topology, hosts, coordinates, ports, byte, queue: 0 };
        network.queue = network.time_of(queue_bytes);
        network
    }

    /// Picoseconds that so many bytes take.
    #[inline]
    pub(crate) fn time_of(&self, bytes: u64) -> u64 {
        match bytes.checked_mul(self.byte) {
            Some(product) => product >> 16,
            None => u64::try_from((u128::from(bytes) * u128::from(self.byte)) >> 16).unwrap_or(u64::MAX),
        }
    }

    /// The longest that a packet waits for a link and travels on it, in picoseconds.
    pub(crate) fn longest_stay(&self) -> u64 {
        let delay = self.ports.iter().map(|port| port.delay).max().unwrap_or(0);
        // No queue is that long in use: a host's 128 packets, four times over, are longer by far.
        delay.saturating_add(self.queue.min(self.time_of(512 << 10)))
    }

    #[inline]
    fn coordinates_of(&self, vertex: u32) -> [u32; 3] {
        self.coordinates.get(vertex as usize).copied().unwrap_or_default()
    }

    #[inline]
    fn port(&self, at: u32) -> Option<&Port> {
        self.ports.get(at as usize)
    }

    /// The port of a host into the network has the host's number. When it is free.
    #[inline]
    pub(crate) fn free_at(&self, port: u32) -> u64 {
        self.port(port).map_or(0, |port| port.free_at)
    }

    /// Sends through a port: when the packet is at its end, and where that is. `None` if the queue has no room.
    #[inline]
    pub(crate) fn send(&mut self, port: u32, now: u64, bytes: u64) -> Option<(u64, u32)> {
        let (time, queue, hosts) = (self.time_of(bytes), self.queue, self.hosts);
        let at = port;
        let port = self.ports.get_mut(port as usize)?;
        let start = port.free_at.max(now);
        // A host's own port holds what its host hands over.
        if at >= hosts && start - now > queue {
            return None;
        }
        port.free_at = start.saturating_add(time);
        Some((port.free_at.saturating_add(port.delay), port.to))
    }

    /// The port that a packet takes at `vertex` on its way to the host `to`; `None`: it is there.
    #[inline]
    pub(crate) fn route(&self, vertex: u32, to: u32) -> Option<u32> {
        match self.topology {
            Topology::PointToPoint => None,
            Topology::Torus { side } => {
                if vertex == to {
                    return Some(self.hosts + to);
                }
                let first = 2 * self.hosts + vertex * NEIGHBOURS;
                let mut best = (u64::MAX, first);
                let (here, there) = (self.coordinates_of(vertex), self.coordinates_of(to));
                for ((up, from), to) in (first..).step_by(2).zip(here).zip(there) {
                    let (steps, both) = distance(side, from, to);
                    if steps > 0 {
                        best = best.min((self.free_at(up), up));
                    }
                    if steps < 0 || both && steps > 0 {
                        best = best.min((self.free_at(up + 1), up + 1));
                    }
                }
                Some(best.1)
            }
            Topology::Tree { arity, levels, up } => {
                if vertex < self.hosts {
                    return None;
                }
                let (mut first, mut below, mut ports, mut level) = (self.hosts, self.hosts, self.hosts, 1);
                let (mut links, mut span) = (1, arity);
                loop {
                    let switches = below / arity;
                    let own_up = if level < levels { up } else { 0 };
                    let per_switch = arity * links + own_up;
                    if vertex < first + switches {
                        let switch = vertex - first;
                        let base = ports + switch * per_switch;
                        let candidates = if to / span == switch {
                            let child = to / (span / arity) % arity;
                            base + child * links..base + (child + 1) * links
                        } else {
                            base + arity * links..base + per_switch
                        };
                        return candidates.min_by_key(|port| (self.free_at(*port), *port));
                    }
                    ports += switches * per_switch;
                    first += switches;
                    below = switches;
                    (links, level, span) = (up, level + 1, span * arity);
                    if level > levels {
                        return None;
                    }
                }
            }
        }
    }

    /// What lies behind a port: how long it takes, and which vertex.
    pub(crate) fn beyond(&self, port: u32) -> (u64, u32) {
        self.port(port).map_or((0, port), |port| (port.delay, port.to))
    }

    /// Whether a packet that has come through `port` is handed to its host.
    #[inline]
    pub(crate) const fn leads_out(&self, port: u32) -> bool {
        matches!(self.topology, Topology::Torus { .. }) && port >= self.hosts && port < 2 * self.hosts
    }

    /// How full a port's queue is at `now`, in thousandths.
    pub(crate) fn filled(&self, port: u32, now: u64) -> u16 {
        let wait = self.free_at(port).saturating_sub(now);
        let part = u128::from(wait) * 1000 / u128::from(self.queue.max(1));
        u16::try_from(part).unwrap_or(u16::MAX)
    }

    /// How many ports there are.
    pub(crate) fn ports(&self) -> usize {
        self.ports.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(topology: Topology) -> Network {
        Network::new(topology, BitRate::from_gbps(100), 1000, 1 << 20)
    }

    /// Follows a packet; the links that it takes.
    fn walk(network: &mut Network, from: u32, to: u32) -> u32 {
        let (_, mut vertex) = network.send(from, 0, 100).unwrap();
        let mut links = u32::from(!matches!(network.topology, Topology::Torus { .. }));
        while let Some(port) = network.route(vertex, to) {
            let (_, next) = network.send(port, 0, 100).unwrap();
            vertex = next;
            if network.leads_out(port) {
                break;
            }
            links += 1;
            assert!(links < 100, "from {from} to {to}: lost");
        }
        assert_eq!(vertex, to);
        links
    }

    #[test]
    fn every_host_is_reached_from_every_other_by_a_shortest_way() {
        let trees = [(2, 1, 1), (3, 2, 2), (2, 4, 3), (4, 3, 1)].map(|(arity, levels, up)| Topology::Tree {
            arity,
            levels,
            up,
        });
        let tori = [2, 3, 4, 5].map(|side| Topology::Torus { side });
        for topology in trees.into_iter().chain(tori).chain([Topology::PointToPoint]) {
            topology.validate().unwrap();
            let mut network = network(topology);
            for from in 0..topology.hosts() {
                for to in (0..topology.hosts()).filter(|to| *to != from) {
                    assert_eq!(
                        walk(&mut network, from, to),
                        topology.hops(from, to),
                        "{topology:?}: {from} to {to}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_torus_has_six_ports_per_host_and_two_of_its_own() {
        assert_eq!(network(Topology::Torus { side: 3 }).ports(), 27 * 8);
    }

    #[test]
    fn packets_take_turns_and_spread_over_ways_that_are_as_short() {
        let mut network = network(Topology::Tree { arity: 2, levels: 2, up: 2 });
        // 100 bytes at 100 Gbit/s take 8 ns.
        assert_eq!(network.send(0, 0, 100), Some((8000 + 1000, 4)));
        assert_eq!(network.send(0, 0, 100), Some((16000 + 1000, 4)));
        let first = network.route(4, 3).unwrap();
        network.send(first, 0, 100);
        assert_ne!(network.route(4, 3), Some(first));
    }

    #[test]
    fn a_full_queue_drops() {
        let mut network = Network::new(Topology::Torus { side: 2 }, BitRate::from_gbps(100), 0, 250);
        let port = network.route(0, 1).unwrap();
        let taken = (0..10).filter(|_| network.send(port, 0, 100).is_some()).count();
        // One that is being sent, and two that wait behind it: the next would wait for 300 bytes.
        assert_eq!(taken, 3);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (topology, message) in [
            (Topology::Torus { side: 1 }, "side = 1: give 2 to 32"),
            (Topology::Tree { arity: 2, levels: 9, up: 1 }, "levels = 9: give 1 to 4"),
            (Topology::Tree { arity: 256, levels: 3, up: 1 }, "arity 256 to the power of 3 levels"),
        ] {
            assert!(topology.validate().unwrap_err().to_string().starts_with(message));
        }
    }
}
