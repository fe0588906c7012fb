//! `stats`: counters of both ends.

use fpga_diag::inspect::Inspect as _;
use fpga_diag::inspect::{ReceiveCounters, ReceiveTables};
use fpga_rdma::{Endpoint, EndpointCounters};
use fpga_registers::quantity;
use serde::Serialize;

use super::{ListingSource, LoadProgress};
use crate::commands::transfer::load::Load;
use crate::error::CliError;
use crate::output::{Report, pairs};

/// Report of `stats`: one end, or both ends of a load.
#[derive(Debug, Serialize)]
pub struct StatsReport {
    #[serde(flatten)]
    pub(in crate::commands) moment: Option<LoadProgress>,
    pub(in crate::commands) ends: Vec<NodeStats>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct NodeStats {
    pub(in crate::commands) card: String,
    pub(in crate::commands) node: u32,
    pub(in crate::commands) interface: NiStats,
    /// `null` if the card is only inspected.
    pub(in crate::commands) driver: Option<DriverStats>,
}

/// A type, or its default.
macro_rules! type_or {
    ($default:ty;) => {
        $default
    };
    ($default:ty; $type:ty) => {
        $type
    };
}

/// Declares counters of one report: those of `$from` with the same names, then others with their values.
macro_rules! stats {
    ($(#[$doc:meta])* $name:ident: $number:ty, $from:ident: $kind:ty { $($same:ident),* } $(, $argument:ident: $other:ty)* {
        $($(#[$note:meta])* $field:ident $(($type:ty))? = $value:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Serialize)]
        pub(in crate::commands) struct $name {
            $(pub(in crate::commands) $same: $number,)*
            $($(#[$note])* pub(in crate::commands) $field: type_or!($number; $($type)?),)*
        }

        impl $name {
            fn new($from: &$kind $(, $argument: $other)*) -> Self {
                Self { $($same: $from.$same,)* $($field: $value,)* }
            }
        }
    };
}

stats! {
    /// Counters of the network interface since its reset.
    NiStats: u32, counters: ReceiveCounters {
        rx_packets, tx_packets, duplicates, registrations, completions, escape_hits, escape_dropped,
        registry_full, bad_crc, bad_packet, violations, tombstone_hits, expired, nacks_sent, acks_sent,
        link_inquiries_sent, link_passive_received, link_active_sent, link_active_received, link_slow_sent,
        link_slow_received, rates_lowered, rates_raised, link_events_dropped, trimmed
    }, registry: (u32, u32), escape: (u32, u32) {
        registry_in_use = registry.0,
        registry_high_water = registry.1,
        escape_in_use = escape.0,
        escape_high_water = escape.1,
    }
}

stats! {
    /// Counters of the driver since the endpoint was opened.
    DriverStats: u64, endpoint: Endpoint {}, counters: &EndpointCounters {
        packets = counters.sender.packets,
        retransmits = counters.sender.retransmits,
        acknowledged = counters.sender.acknowledged,
        stale_answers = counters.sender.stale,
        busy_answers = counters.sender.busy,
        /// Start packets that a busy receiver refused and that released their op number for others.
        yielded = counters.sender.yielded,
        /// Answers about packets whose payload a switch had cut off.
        trimmed = counters.sender.trimmed,
        refusals = counters.sender.refused,
        timeouts = counters.sender.timeouts,
        /// Timeouts of packets that wait for the start packet of their segment; only the start packet was retransmitted.
        deferred = counters.sender.deferred,
        /// Packets retransmitted because a later one was acknowledged, and as probes after a silence.
        overtaken = counters.sender.overtaken,
        probes = counters.sender.probes,
        /// Largest number of packets in flight to one node, and its limit; null if the card sends all packets.
        most_in_flight = counters.sender.most_in_flight,
        in_flight_limit (Option<u32>) = endpoint.sender().map(|sender| sender.config().packets_per_destination()),
        segments = counters.sender.segments,
        completed = counters.sender.completed,
        failed = counters.sender.failed,
        events = counters.events,
        notifications = counters.notifications,
        windows = counters.windows,
        faults = counters.faults,
        /// Number of times that the copy engine ran past the end of its chain and was reset.
        chain_overruns = counters.chain_overruns,
        reads_served = counters.reads_served,
        reads_refused = counters.reads_refused,
    }
}

impl NiStats {
    fn read(tables: &ReceiveTables) -> Result<Self, CliError> {
        Ok(Self::new(&tables.counters()?, tables.registry_occupancy()?, tables.escape_occupancy()?))
    }

    fn rows(&self) -> [(&'static str, String); 11] {
        [
            ("packets", format!("{} received, {} sent", self.rx_packets, self.tx_packets)),
            (
                "answers",
                format!(
                    "{}, {} sent",
                    quantity(self.acks_sent, "acknowledgement"),
                    quantity(self.nacks_sent, "refusal")
                ),
            ),
            (
                "segments",
                format!(
                    "{} registered, {} complete, {} expired",
                    self.registrations, self.completions, self.expired
                ),
            ),
            (
                "registry",
                format!(
                    "{} in use, {} at most, {} full",
                    self.registry_in_use,
                    self.registry_high_water,
                    quantity(self.registry_full, "time")
                ),
            ),
            (
                "escape channel",
                format!(
                    "{} in use, {} at most, {}, {} dropped",
                    self.escape_in_use,
                    self.escape_high_water,
                    quantity(self.escape_hits, "packet"),
                    self.escape_dropped
                ),
            ),
            (
                "duplicates",
                format!("{} of open segments, {} of complete ones", self.duplicates, self.tombstone_hits),
            ),
            ("damaged", self.bad_crc.to_string()),
            ("malformed", self.bad_packet.to_string()),
            ("trimmed", self.trimmed.to_string()),
            ("violations", self.violations.to_string()),
            (
                "link feedback",
                format!(
                    "{}, {}; {} and {} slow-downs sent and received; rates lowered {}, raised {}",
                    quantity(self.link_inquiries_sent, "inquiry"),
                    quantity(self.link_passive_received, "answer"),
                    self.link_slow_sent,
                    self.link_slow_received,
                    quantity(self.rates_lowered, "time"),
                    quantity(self.rates_raised, "time"),
                ),
            ),
        ]
    }
}

impl DriverStats {
    fn rows(&self) -> [(&'static str, String); 8] {
        let limit = match self.in_flight_limit {
            None => "none, the card sends".to_owned(),
            Some(limit) if self.most_in_flight >= limit.into() => format!("{limit}: reached"),
            Some(limit) => limit.to_string(),
        };
        [
            (
                "driver: packets",
                format!(
                    "{} sent, {} retransmitted, {} acknowledged",
                    self.packets, self.retransmits, self.acknowledged
                ),
            ),
            (
                "driver: answers",
                format!(
                    "{} busy ({} yielded), {} trimmed, {}, {} stale",
                    self.busy_answers,
                    self.yielded,
                    self.trimmed,
                    quantity(self.refusals, "refusal"),
                    self.stale_answers
                ),
            ),
            (
                "driver: time-outs",
                format!(
                    "{} unanswered, {} of packets that wait for the start packet of their segment",
                    self.timeouts, self.deferred
                ),
            ),
            (
                "driver: losses",
                format!("{} overtaken by later packets, {}", self.overtaken, quantity(self.probes, "probe")),
            ),
            (
                "driver: in flight",
                format!(
                    "{} to one node at most; limit of the op table: {limit}",
                    quantity(self.most_in_flight, "packet")
                ),
            ),
            (
                "driver: transfers",
                format!(
                    "{} complete, {} failed, {}",
                    self.completed,
                    self.failed,
                    quantity(self.segments, "segment")
                ),
            ),
            (
                "driver: arrivals",
                format!(
                    "{}; {} served, {} refused",
                    self.notifications,
                    quantity(self.reads_served, "read"),
                    self.reads_refused
                ),
            ),
            (
                "driver: events",
                format!(
                    "{} taken, {}; {} filled, {} of the copy engine",
                    self.events,
                    quantity(self.faults, "fault"),
                    quantity(self.windows, "window"),
                    quantity(self.chain_overruns, "overrun")
                ),
            ),
        ]
    }
}

impl StatsReport {
    pub(in crate::commands) fn new(scene: &ListingSource) -> Result<Self, CliError> {
        let ends = match scene {
            ListingSource::Card { name, node, tables } => {
                vec![NodeStats {
                    card: name.clone(),
                    node: *node,
                    interface: NiStats::read(tables)?,
                    driver: None,
                }]
            }
            ListingSource::Load(load) => {
                let Load { sending, receiving, .. } = &**load;
                vec![
                    NodeStats {
                        card: sending.name(),
                        node: sending.node().get(),
                        interface: NiStats::read(&sending.endpoint().tables())?,
                        driver: Some(DriverStats::new(sending.endpoint(), &sending.endpoint().counters())),
                    },
                    NodeStats {
                        card: receiving.name(),
                        node: receiving.node().get(),
                        interface: NiStats::read(&receiving.endpoint().tables())?,
                        driver: Some(DriverStats::new(
                            receiving.endpoint(),
                            &receiving.endpoint().counters(),
                        )),
                    },
                ]
            }
        };
        Ok(Self { moment: LoadProgress::of(scene), ends })
    }
}

impl StatsReport {
    /// Card, name and value of each counter.
    pub(in crate::commands) fn lines(&self) -> impl Iterator<Item = (String, String, String)> + '_ {
        self.ends.iter().flat_map(|end| {
            let rows = end.interface.rows().into_iter().chain(end.driver.iter().flat_map(DriverStats::rows));
            rows.map(|(name, value)| (end.card.clone(), name.to_owned(), value))
        })
    }
}

impl Report for StatsReport {
    fn text(&self) -> String {
        let mut text = format!("{}\n", LoadProgress::text(self.moment.as_ref()));
        for end in &self.ends {
            text += &format!("\n{}, node {}\n", end.card, end.node);
            let mut rows = end.interface.rows().to_vec();
            rows.extend(end.driver.iter().flat_map(DriverStats::rows));
            text += &pairs(&rows);
        }
        text
    }
}
