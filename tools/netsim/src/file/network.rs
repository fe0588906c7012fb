//! Keys of a scenario for networks of switches.

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;
use serde::Deserialize;

use super::{Span, Within};
use crate::topology::{Clos, Marking, Outage, Tier, Topology};

type Ports = Within<1, 1024>;

/// A fat tree of equal switches: radix^2 / 2 hosts on two tiers, radix^3 / 4 on three.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{radix: N, tiers: N}")]
pub(super) struct FatTreeEntry {
    /// Ports of each switch, an even number.
    radix: Within<2, 128>,
    /// Tiers of switches (default: 3).
    tiers: Option<Within<2, 3>>,
}

impl FatTreeEntry {
    pub(super) fn topology(self) -> Result<Topology, String> {
        let clos = Clos::fat_tree(self.radix.narrow(), self.tiers.map_or(3, Within::narrow));
        clos.map(Topology::Clos).map_err(|error| format!("fat-tree: {error}"))
    }
}

/// A Clos network: leaves and spines, or leaves, aggregation switches and cores.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{tiers: [{down: N, up: N}, {down: N}]}")]
pub(super) struct ClosEntry {
    /// Two or three tiers of switches, the lowest first.
    tiers: Vec<TierEntry>,
}

/// Switches of one tier, and the links below them.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    expecting = "{down: N, up: N, oversubscription: N, rate_gbps: N, delay_ns: N, switch_ns: N, queue_bytes: N, bundle: N}"
)]
pub(super) struct TierEntry {
    /// Ports downwards of each switch: hosts of a leaf; of other tiers, switches below times bundle.
    down: Ports,
    /// Ports upwards of each switch; not in the highest tier. Not together with `oversubscription`.
    up: Option<Ports>,
    /// Rate of a switch's links downwards divided by that upwards, from which `up` is computed. Not together with `up`.
    oversubscription: Option<Within<1, 1024>>,
    /// Rate of each link below in Gbit/s (default: that of the scenario).
    rate_gbps: Option<Within<1, 100_000>>,
    /// Propagation delay of each link below in nanoseconds (default: that of the scenario).
    delay_ns: Option<Span>,
    /// Forwarding time of each switch in nanoseconds (default: 0).
    switch_ns: Option<Span>,
    /// Queue in bytes of each switch port at a link below, at both of its ends (default: that of the scenario).
    queue_bytes: Option<Within<0, { 1 << 40 }>>,
    /// Parallel links between a switch and each one below it (default: 1).
    bundle: Option<Within<1, 256>>,
}

impl ClosEntry {
    pub(super) fn topology(&self) -> Result<Topology, String> {
        let mut tiers = Vec::new();
        for (number, entry) in (0..).zip(&self.tiers) {
            let place = |problem: &str| format!("clos: tier {}: {problem}", number + 1);
            let above = self.tiers.get(number + 1);
            let up = match (entry.up, entry.oversubscription, above) {
                (Some(_), Some(_), _) => return Err(place("up and oversubscription: give one of them")),
                (None, None, None) => 0,
                (_, _, None) => {
                    return Err(place(
                        "the highest tier has no links upwards: remove up and oversubscription",
                    ));
                }
                (Some(up), None, Some(_)) => up.narrow(),
                (None, Some(Within(ratio)), Some(above)) => {
                    let rates = match (entry.rate_gbps, above.rate_gbps) {
                        (Some(Within(own)), Some(Within(above))) => (own, above),
                        (None, None) => (1, 1),
                        _ => {
                            return Err(place(
                                "oversubscription needs rate_gbps in both tiers or in none: give both, or up",
                            ));
                        }
                    };
                    let (down, up) = (entry.down.0 * rates.0, ratio * rates.1);
                    if !down.is_multiple_of(up) {
                        return Err(place(&format!(
                            "oversubscription {ratio} gives {down}/{up} ports upwards: give one that divides, or up"
                        )));
                    }
                    u32::try_from(down / up).unwrap_or(u32::MAX)
                }
                (None, None, Some(_)) => return Err(place("give up or oversubscription")),
            };
            let mut tier = Tier::new(entry.down.narrow(), up);
            tier.rate = entry.rate_gbps.map(|Within(rate)| BitRate::from_gbps(rate));
            tier.delay = entry.delay_ns.map(|Within(delay)| Nanos::new(delay));
            tier.forwarding = entry.switch_ns.map_or(Nanos::ZERO, |Within(span)| Nanos::new(span));
            tier.queue = entry.queue_bytes.map(|Within(bytes)| bytes);
            tier.bundle = entry.bundle.map_or(1, Within::narrow);
            tiers.push(tier);
        }
        Clos::new(&tiers).map(Topology::Clos).map_err(|error| format!("clos: {error}"))
    }
}

/// Marks of congestion: at one queue length, or with a share that rises from `min_bytes` to `max_bytes`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{threshold_bytes: N} or {min_bytes: N, max_bytes: N}")]
pub(super) struct EcnEntry {
    /// Queue length from which all packets are marked.
    threshold_bytes: Option<Within<0, { 1 << 40 }>>,
    /// Queue length up to which no packet is marked.
    min_bytes: Option<Within<0, { 1 << 40 }>>,
    /// Queue length from which all packets are marked.
    max_bytes: Option<Within<0, { 1 << 40 }>>,
}

impl EcnEntry {
    pub(super) fn marking(self) -> Result<Marking, String> {
        match (self.threshold_bytes, self.min_bytes, self.max_bytes) {
            (Some(Within(bytes)), None, None) => Ok(Marking::threshold(bytes)),
            (None, Some(Within(min)), Some(Within(max))) => Ok(Marking { min, max }),
            _ => Err("give threshold_bytes, or min_bytes and max_bytes".to_owned()),
        }
    }
}

/// A link that is removed, fails, or becomes slow at stated times.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(
    deny_unknown_fields,
    expecting = "{from: VERTEX, to: VERTEX, number: N, at_ns: N, for_ns: N, every_ns: N, times: N, one_way: true}"
)]
pub(super) struct LinkFailureEntry {
    /// Vertex at one end: hosts from 0, then switches, the lowest level first.
    from: Within<0, 10_000_000>,
    /// Vertex at the other end.
    to: Within<0, 10_000_000>,
    /// Number of the link among parallel links (default: all of them).
    number: Option<Within<0, 255>>,
    /// Begin in nanoseconds (default: 0).
    at_ns: Option<Span>,
    /// Duration in nanoseconds (default: until the end, as of a removed link).
    for_ns: Option<Within<1, 60_000_000_000>>,
    /// Time from one failure to the next in nanoseconds, for a flapping link (default: it fails once).
    every_ns: Option<Within<1, 60_000_000_000>>,
    /// Factor by which the link is slower meanwhile (default: nothing passes).
    times: Option<Within<1, 1000>>,
    /// Whether only the direction from `from` to `to` is affected (default: false).
    one_way: Option<super::Switch>,
}

impl LinkFailureEntry {
    pub(super) fn outage(&self) -> Outage {
        let span = |Within(span): Within<1, 60_000_000_000>| Nanos::new(span);
        Outage {
            from: self.from.narrow(),
            to: self.to.narrow(),
            number: self.number.map(Within::narrow),
            one_way: self.one_way.is_some_and(|super::Switch(on)| on),
            at: self.at_ns.map_or(Nanos::ZERO, |Within(at)| Nanos::new(at)),
            length: self.for_ns.map(span),
            period: self.every_ns.map(span),
            times: self.times.map(Within::narrow),
        }
    }
}
