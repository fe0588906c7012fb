//! Scenarios as YAML.
//!
//! ```yaml
//! schema_version: 1
//! scheme: receiver-window
//! topology: {torus: {side: 4}}
//! traffic: {permutation: {bytes: 262144}}
//! data: {loss: 0.005, jitter_ns: 300}
//! ```
//!
//! Only `schema_version` and `traffic` are required. [`JSON_SCHEMA`] describes every key, `examples/scenarios/README.md` explains them, and
//! its folder has samples.

mod convert;
mod flow_list;
mod impairments;
mod network;
#[cfg(test)]
mod schema;

use std::path::Path;

use fpga_input::{FileKind, InputError, plain_message};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, de};

pub use flow_list::FlowListError;
use impairments::{BlackoutEntry, ConditionsEntry, Disorder, Shuffle, Throttle};
use network::{ClosEntry, EcnEntry, FatTreeEntry, LinkFailureEntry};

use crate::scenario::{Flow, MAX_FLOW_BYTES, Scenario};
use crate::scheme::Scheme;
use crate::topology::Topology;

/// JSON Schema of scenario files, for editors.
pub const JSON_SCHEMA: &str = include_str!("../scenario.schema.json");

/// Number that is checked when it is parsed, so that an error has its position.
///
/// One type for all numbers: a type for each check would compile the parser as often.
struct Checked<'a> {
    allowed: &'a str,
    /// Whether the number is allowed, as a float and as an integer.
    check: &'a dyn Fn(f64, u64) -> bool,
}

impl Checked<'_> {
    fn check<E: de::Error>(
        &self,
        shown: &dyn std::fmt::Display,
        float: f64,
        whole: u64,
    ) -> Result<(f64, u64), E> {
        if (self.check)(float, whole) {
            Ok((float, whole))
        } else {
            Err(E::custom(format!("{shown}: give {}", self.allowed)))
        }
    }
}

/// Placeholder for a value that is not a 64-bit integer.
const NOT_AN_INTEGER: u64 = u64::MAX;

impl de::Visitor<'_> for Checked<'_> {
    type Value = (f64, u64);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.allowed)
    }

    #[expect(clippy::cast_precision_loss, reason = "used only for ranges of small whole numbers")]
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(f64, u64), E> {
        self.check(&value, value as f64, value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(f64, u64), E> {
        self.check(&value, -1.0, NOT_AN_INTEGER)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(f64, u64), E> {
        self.check(&value, value, NOT_AN_INTEGER)
    }
}

/// Integer within bounds, both included.
#[derive(Clone, Copy, Debug)]
struct Within<const LEAST: u64, const MOST: u64>(u64);

impl<'de, const LEAST: u64, const MOST: u64> Deserialize<'de> for Within<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let check = &|_, value| (LEAST..=MOST).contains(&value);
        let allowed = &format!("a whole number from {LEAST} to {MOST}");
        let (_, value) = deserializer.deserialize_any(Checked { allowed, check })?;
        Ok(Self(value))
    }
}

impl<const LEAST: u64, const MOST: u64> Within<LEAST, MOST> {
    fn narrow(self) -> u32 {
        u32::try_from(self.0).unwrap_or(u32::MAX)
    }
}

/// Boolean.
#[derive(Clone, Copy, Debug)]
struct Switch(bool);

impl<'de> Deserialize<'de> for Switch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl de::Visitor<'_> for Either {
            type Value = Switch;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true or false")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<Switch, E> {
                Ok(Switch(value))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Time span in nanoseconds, up to a minute of simulated time.
type Span = Within<0, 60_000_000_000>;
type Bytes = Within<1, MAX_FLOW_BYTES>;
type Side = Within<2, 32>;
type Wide = Within<1, 256>;

/// Any 64-bit integer but the last one, which is the placeholder for an invalid number.
type Seed = Within<0, { u64::MAX - 1 }>;

/// Network, traffic of its hosts, and impairments of packets.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(title = "Simulation scenario"))]
#[serde(deny_unknown_fields, expecting = "a mapping with at least schema_version and traffic")]
struct File {
    /// Version of this format: 1.
    #[expect(dead_code, reason = "read for its range")]
    schema_version: Within<1, 1>,
    /// Scheme of all transfers (default: registry).
    scheme: Option<Scheme>,
    /// Hosts and switches (default: point-to-point).
    topology: Option<TopologyName>,
    /// Rate of each link in Gbit/s (default: 100).
    rate_gbps: Option<Within<1, 100_000>>,
    /// Propagation delay of each link in nanoseconds (default: 1000).
    delay_ns: Option<Span>,
    /// Queue of each link of a switch in bytes; packets that do not fit are dropped (default: 262144).
    queue_bytes: Option<Within<0, { 1 << 40 }>>,
    /// Payload of a packet in bytes (default: 512). A segment of the registry has 32 packets.
    packet_bytes: Option<PacketBytes>,
    /// Seed of all random numbers (default: 0). The same seed gives the same result; `--seed` overrides it.
    seed: Option<Seed>,
    /// Simulated time in nanoseconds after which transfers that are still in progress have failed (default: 100000000000).
    limit_ns: Option<Within<1, 1_000_000_000_000>>,
    /// Round-trip time that timeouts are derived from, in nanoseconds (default: computed from topology, rate and delay).
    round_trip_ns: Option<Within<1, 60_000_000_000>>,
    /// Messages that each host may send, and may receive, at the same time, by schemes other than the registry (default: 16 to send, 64 to
    /// receive).
    contexts: Option<Within<1, 4096>>,
    /// Transfers between hosts.
    traffic: Traffic,
    /// Impairments of data packets.
    #[serde(default)]
    data: ConditionsEntry,
    /// Impairments of acknowledgements and requests.
    #[serde(default)]
    control: ConditionsEntry,
    /// Reordering of a given degree. Not together with `shuffle`.
    disorder: Option<Disorder>,
    /// Reordering at random. Not together with `disorder`.
    shuffle: Option<Shuffle>,
    /// Bottleneck between each host and the network.
    throttle: Option<Throttle>,
    /// Time spans in which all packets are lost.
    blackouts: Option<Vec<BlackoutEntry>>,
    /// Window of the scheme in packets: up to 512 for selective, up to 128 for receiver-window, sender-window and adaptive-window.
    window: Option<Within<1, 512>>,
    /// Credit mode of receiver-window (default: false).
    credit: Option<Switch>,
    /// Whether sender-window has the literal form of source 004: constant timers, and the whole buffer is retransmitted (default false).
    literal: Option<Switch>,
    /// Number of the host that collects reports of congested links and sets the senders' rates (adaptive-window and selective).
    controller: Option<Within<0, 65_535>>,
    /// Number of path identifiers that each sender uses towards a receiver (default: 128 with the routing ecmp on clos and fat-tree, otherwise
    /// 1). Switches with the routing ecmp hash them; the sender avoids those whose packets are marked, lost or late.
    paths: Option<Within<1, 256>>,
    /// Congestion windows of the senders (default: true). They follow measured round trips and losses, and marks and trimmed packets of
    /// switches that have them. receiver-counter has none: its receiver acknowledges no packets. Without them, senders transmit as fast as
    /// their scheme allows, as in the source documents.
    congestion: Option<Switch>,
    /// Selection of routes (default: adaptive).
    routing: Option<RoutingName>,
    /// Switches that do not support link feedback.
    plain_switches: Option<Vec<PlainSwitchEntry>>,
    /// Links that are slower than the others, each in one direction.
    slow_links: Option<Vec<SlowLinkEntry>>,
    /// Links that are removed, fail, or become slow at stated times.
    link_failures: Option<Vec<LinkFailureEntry>>,
    /// Time in nanoseconds after which switches avoid a failed link (default: 0).
    reroute_ns: Option<Span>,
    /// Marks of congestion (ECN) on data packets that find a long queue at a switch (default: none).
    ecn: Option<EcnEntry>,
    /// Whether control packets leave a switch before all data packets that wait there (default: false).
    control_first: Option<Switch>,
    /// Whether a full queue cuts the payload of a data packet and forwards its header, which the receiver answers at once, so that the sender
    /// repeats the packet (default: false; registry, with control_first).
    trimming: Option<Switch>,
    /// Interval in nanoseconds of the series of queue lengths and rates in the JSON output (default: no series).
    series_ns: Option<Within<1, 60_000_000_000>>,
}

/// Selection of routes: the shortest path that is free first for each packet (adaptive) or each flow (adaptive-flow), a hash of the flow
/// (ecmp), all paths in turn (round-robin), or one fixed path for each pair of hosts.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum RoutingName {
    Adaptive,
    AdaptiveFlow,
    Ecmp,
    RoundRobin,
    Fixed,
}

/// A switch that does not support link feedback: it sends no answers and no reports.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{switch: VERTEX, drop: true}")]
struct PlainSwitchEntry {
    /// Vertex of the switch: hosts from 0, then switches, the lowest level first; in a torus, the host at the switch.
    switch: Within<0, 10_000_000>,
    /// Whether it drops link packets instead of forwarding them (default: false).
    drop: Option<Switch>,
}

/// A link that is slower than the others.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{from: VERTEX, to: VERTEX, number: N, times: N}")]
struct SlowLinkEntry {
    /// Vertex that sends: hosts from 0, then switches, the lowest level first.
    from: Within<0, 1_000_000>,
    /// Vertex that receives.
    to: Within<0, 1_000_000>,
    /// Number of the link among parallel links (default: all of them).
    number: Option<Within<0, 255>>,
    /// Factor by which it is slower.
    times: Within<1, 1000>,
}

/// A topology without parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum PlainTopology {
    PointToPoint,
}

/// A torus of three dimensions.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TorusEntry {
    /// Hosts along each dimension: side^3 in all.
    side: Side,
}

/// A tree of switches (fat tree).
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TreeEntry {
    /// Hosts of each lowest switch, and switches below each higher one: arity^levels hosts in all.
    arity: Within<2, 256>,
    /// Levels of switches.
    levels: Within<1, 4>,
    /// Links from a switch to the level above (default: 1).
    up: Option<Wide>,
}

/// A topology with parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(deny_unknown_fields)]
struct TopologyEntry {
    /// A torus.
    torus: Option<TorusEntry>,
    /// A tree of switches.
    tree: Option<TreeEntry>,
    /// A Clos network with parameters for each tier.
    clos: Option<ClosEntry>,
    /// A fat tree of equal switches with full bisection.
    #[serde(rename = "fat-tree")]
    fat_tree: Option<FatTreeEntry>,
}

/// Name, or name with parameters.
#[derive(Clone, Copy, Debug)]
struct TopologyName(Topology);

impl<'de> Deserialize<'de> for TopologyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const ALLOWED: &str = "point-to-point, {torus: {side: N}}, {tree: {arity: N, levels: N, up: N}}, {fat-tree: {radix: N, tiers: N}} or {clos: {tiers: [...]}}";
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Topology;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(ALLOWED)
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Topology, E> {
                let PlainTopology::PointToPoint =
                    PlainTopology::deserialize(de::value::StrDeserializer::new(name))?;
                Ok(Topology::PointToPoint)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Topology, A::Error> {
                let entry = TopologyEntry::deserialize(de::value::MapAccessDeserializer::new(map))?;
                match (entry.torus, entry.tree, entry.clos, entry.fat_tree) {
                    (Some(TorusEntry { side }), None, None, None) => {
                        Ok(Topology::Torus { side: side.narrow() })
                    }
                    (None, Some(TreeEntry { arity, levels, up }), None, None) => Ok(Topology::Tree {
                        arity: arity.narrow(),
                        levels: levels.narrow(),
                        up: up.map_or(1, Within::narrow),
                    }),
                    (None, None, Some(clos), None) => clos.topology().map_err(A::Error::custom),
                    (None, None, None, Some(entry)) => entry.topology().map_err(A::Error::custom),
                    _ => Err(A::Error::custom(format!("not one topology: give {ALLOWED}"))),
                }
            }
        }
        deserializer.deserialize_any(Either).map(Self)
    }
}

/// Power of two.
#[derive(Clone, Copy, Debug)]
struct PacketBytes(u8);

impl<'de> Deserialize<'de> for PacketBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let check = &|_, value: u64| value.is_power_of_two() && (64..=4096).contains(&value);
        let allowed = "64, 128, 256, 512, 1024, 2048 or 4096";
        let (_, value) = deserializer.deserialize_any(Checked { allowed, check })?;
        Ok(Self(u8::try_from(value.trailing_zeros()).unwrap_or(9)))
    }
}

/// Transfers: one of the keys.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("minProperties" = 1, "maxProperties" = 1)))]
#[serde(
    deny_unknown_fields,
    expecting = "one of {flows: [{from: N, to: N, bytes: N}]}, {file: NAME}, {permutation: {bytes: N}} and {incast: {senders: N, bytes: N}}"
)]
struct Traffic {
    /// A list of transfers.
    flows: Option<Vec<FlowEntry>>,
    /// A file with a list of transfers: CSV with the columns at_ns, from, to and bytes, or a connection matrix of htsim. The name is relative to
    /// the scenario.
    file: Option<String>,
    /// Each host sends to one other host.
    permutation: Option<Permutation>,
    /// Many hosts send to one.
    incast: Option<Incast>,
}

/// One transfer.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{from: HOST, to: HOST, bytes: N, at_ns: N}")]
struct FlowEntry {
    /// Sending host, from 0.
    from: Within<0, 65_535>,
    /// Receiving host, from 0.
    to: Within<0, 65_535>,
    /// Bytes to send.
    bytes: Bytes,
    /// Time of the submission in nanoseconds (default: 0).
    at_ns: Option<Span>,
}

/// Each host sends to one other host, selected by the seed.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{bytes: N}")]
struct Permutation {
    /// Bytes that each host sends.
    bytes: Bytes,
}

/// Hosts 1 to `senders` send to host 0.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, expecting = "{senders: N, bytes: N}")]
struct Incast {
    /// Number of sending hosts: at most all but one.
    senders: Within<1, 65_535>,
    /// Bytes that each of them sends.
    bytes: Bytes,
}

/// Reasons why a scenario file cannot be used: file, line, column, key, and the allowed values.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file cannot be read.
    #[error(transparent)]
    Read(#[from] InputError),
    /// Not YAML, an unknown key, or an invalid value.
    #[error("scenario {name}:{line}:{column}: {message}")]
    Text {
        /// File name.
        name: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// Key and error, in the parser's words.
        message: String,
    },
    /// The list of transfers cannot be used.
    #[error(transparent)]
    Flows(#[from] FlowListError),
    /// Values that are valid alone but not together.
    #[error("scenario {name}:{line}:{column}: {key}: {problem}")]
    Combination {
        /// File name.
        name: String,
        /// Line of the key, from 1.
        line: usize,
        /// Its column, from 1.
        column: usize,
        /// The key.
        key: String,
        /// Reason, and the allowed values.
        problem: String,
    },
}

/// Parses a list of transfers: CSV or a connection matrix of htsim; `name` identifies it in errors. With `hosts`, hosts from that number on
/// are refused.
///
/// The formats are described in the scenarios' manual (`examples/scenarios/README.md`).
///
/// # Errors
/// [`FlowListError`].
pub fn parse_flows(name: &str, text: &str, hosts: Option<u32>) -> Result<Vec<Flow>, FlowListError> {
    let list = flow_list::parse(name, text)?;
    hosts.map_or(Ok(()), |hosts| list.check(name, hosts))?;
    Ok(list.flows)
}

/// Reads a scenario from a file.
///
/// # Errors
/// See [`FileError`].
pub fn read(path: &Path) -> Result<Scenario, FileError> {
    let text = FileKind::SCENARIO.read_yaml(path)?;
    parse(&path.display().to_string(), &text)
}

/// Parses a scenario; `name` identifies it in errors.
///
/// # Errors
/// [`FileError::Text`], [`FileError::Combination`].
pub fn parse(name: &str, text: &str) -> Result<Scenario, FileError> {
    let is_said =
        |line: &str| !matches!(line.trim(), "" | "---" | "...") && !line.trim_start().starts_with('#');
    if !text.lines().any(is_said) {
        let problem = "the file is empty: give schema_version and traffic".to_owned();
        let key = "schema_version".to_owned();
        return Err(FileError::Combination { name: name.to_owned(), line: 1, column: 1, key, problem });
    }
    let file: File = serde_yaml::from_str(text).map_err(|source| {
        let (line, column) = place_of(text, &source);
        let message = plain_message(&source.to_string());
        FileError::Text { name: name.to_owned(), line, column, message }
    })?;
    file.scenario(
        &|key, item, problem| {
            let (line, column) = place_of_key(text, key, item);
            let key = item.map_or_else(|| key.to_owned(), |item| format!("{key}[{item}]"));
            FileError::Combination { name: name.to_owned(), line, column, key, problem }
        },
        Path::new(name).parent().unwrap_or(Path::new("")),
    )
}

/// Line and column of an error, both from 1: for a duplicate key its second occurrence, otherwise the parser's position.
fn place_of(text: &str, source: &serde_yaml::Error) -> (usize, usize) {
    let message = source.to_string();
    let key = message.split('`').nth(1).filter(|_| message.contains("duplicate"));
    let second = key.and_then(|key| places_of_key(text, key).nth(1));
    let parser = || source.location().map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    second.unwrap_or_else(parser)
}

/// Positions where a key begins a line.
fn places_of_key<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = (usize, usize)> + 'a {
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let start = line.trim_start_matches([' ', '-', '{']);
        let is_key = start.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with(':'));
        is_key.then_some((number, line.len() - start.len() + 1))
    })
}

/// Line and column of a key, or of an item of its list, both from 1.
fn place_of_key(text: &str, key: &str, item: Option<usize>) -> (usize, usize) {
    let start = places_of_key(text, key).next().unwrap_or((1, 1));
    let Some(item) = item else { return start };
    // Items of one line each, with dashes or in braces; if several items are on the key's line, the position is that of the key.
    let below = (1..).zip(text.lines()).skip(start.0).filter_map(|(number, line): (usize, &str)| {
        let content = line.trim_start();
        content.starts_with(['-', '{']).then_some((number, line.len() - content.len() + 1))
    });
    below.into_iter().nth(item).unwrap_or(start)
}
