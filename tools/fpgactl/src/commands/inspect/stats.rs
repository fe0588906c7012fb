//! `stats`: counters of both ends.

use fpga_rdma::EndpointCounters;
use fpga_rdma::inspect::{ReceiveCounters, ReceiveTables};
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

/// Counters of the network interface since its reset.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct NiStats {
    pub(in crate::commands) rx_packets: u32,
    pub(in crate::commands) tx_packets: u32,
    pub(in crate::commands) duplicates: u32,
    pub(in crate::commands) registrations: u32,
    pub(in crate::commands) completions: u32,
    pub(in crate::commands) escape_hits: u32,
    pub(in crate::commands) escape_dropped: u32,
    pub(in crate::commands) registry_full: u32,
    pub(in crate::commands) bad_crc: u32,
    pub(in crate::commands) bad_packet: u32,
    pub(in crate::commands) violations: u32,
    pub(in crate::commands) tombstone_hits: u32,
    pub(in crate::commands) expired: u32,
    pub(in crate::commands) nacks_sent: u32,
    pub(in crate::commands) acks_sent: u32,
    pub(in crate::commands) link_inquiries_sent: u32,
    pub(in crate::commands) link_passive_received: u32,
    pub(in crate::commands) link_active_sent: u32,
    pub(in crate::commands) link_active_received: u32,
    pub(in crate::commands) link_slow_sent: u32,
    pub(in crate::commands) link_slow_received: u32,
    pub(in crate::commands) rates_lowered: u32,
    pub(in crate::commands) rates_raised: u32,
    pub(in crate::commands) link_events_dropped: u32,
    pub(in crate::commands) registry_in_use: u32,
    pub(in crate::commands) registry_high_water: u32,
    pub(in crate::commands) escape_in_use: u32,
    pub(in crate::commands) escape_high_water: u32,
}

/// Counters of the driver since the endpoint was opened.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct DriverStats {
    pub(in crate::commands) packets: u64,
    pub(in crate::commands) retransmits: u64,
    pub(in crate::commands) acknowledged: u64,
    pub(in crate::commands) stale_answers: u64,
    pub(in crate::commands) busy_answers: u64,
    /// Start packets that a busy receiver refused and that released their op number for others.
    pub(in crate::commands) yielded: u64,
    pub(in crate::commands) refusals: u64,
    pub(in crate::commands) timeouts: u64,
    /// Timeouts of packets that wait for the start packet of their segment; only the start packet was retransmitted.
    pub(in crate::commands) deferred: u64,
    pub(in crate::commands) segments: u64,
    pub(in crate::commands) completed: u64,
    pub(in crate::commands) failed: u64,
    pub(in crate::commands) events: u64,
    pub(in crate::commands) notifications: u64,
    pub(in crate::commands) windows: u64,
    pub(in crate::commands) faults: u64,
    /// Number of times that the copy engine ran past the end of its chain and was reset.
    pub(in crate::commands) chain_overruns: u64,
    pub(in crate::commands) reads_served: u64,
    pub(in crate::commands) reads_refused: u64,
}

impl NiStats {
    fn read(tables: &ReceiveTables) -> Result<Self, CliError> {
        let ReceiveCounters {
            rx_packets,
            tx_packets,
            duplicates,
            registrations,
            completions,
            escape_hits,
            escape_dropped,
            registry_full,
            bad_crc,
            bad_packet,
            violations,
            tombstone_hits,
            expired,
            nacks_sent,
            acks_sent,
            link_inquiries_sent,
            link_passive_received,
            link_active_sent,
            link_active_received,
            link_slow_sent,
            link_slow_received,
            rates_lowered,
            rates_raised,
            link_events_dropped,
            ..
        } = tables.counters()?;
        let (registry_in_use, registry_high_water) = tables.registry_occupancy()?;
        let (escape_in_use, escape_high_water) = tables.escape_occupancy()?;
        Ok(Self {
            rx_packets,
            tx_packets,
            duplicates,
            registrations,
            completions,
            escape_hits,
            escape_dropped,
            registry_full,
            bad_crc,
            bad_packet,
            violations,
            tombstone_hits,
            expired,
            nacks_sent,
            acks_sent,
            link_inquiries_sent,
            link_passive_received,
            link_active_sent,
            link_active_received,
            link_slow_sent,
            link_slow_received,
            rates_lowered,
            rates_raised,
            link_events_dropped,
            registry_in_use,
            registry_high_water,
            escape_in_use,
            escape_high_water,
        })
    }

    fn rows(&self) -> [(&'static str, String); 10] {
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
    fn new(counters: &EndpointCounters) -> Self {
        let sender = &counters.sender;
        Self {
            packets: sender.packets,
            retransmits: sender.retransmits,
            acknowledged: sender.acknowledged,
            stale_answers: sender.stale,
            busy_answers: sender.busy,
            yielded: sender.yielded,
            refusals: sender.refused,
            timeouts: sender.timeouts,
            deferred: sender.deferred,
            segments: sender.segments,
            completed: sender.completed,
            failed: sender.failed,
            events: counters.events,
            notifications: counters.notifications,
            windows: counters.windows,
            faults: counters.faults,
            chain_overruns: counters.chain_overruns,
            reads_served: counters.reads_served,
            reads_refused: counters.reads_refused,
        }
    }

    fn rows(&self) -> [(&'static str, String); 6] {
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
                    "{} busy ({} yielded), {}, {} stale",
                    self.busy_answers,
                    self.yielded,
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
                        interface: NiStats::read(sending.endpoint().tables())?,
                        driver: Some(DriverStats::new(&sending.endpoint().counters())),
                    },
                    NodeStats {
                        card: receiving.name(),
                        node: receiving.node().get(),
                        interface: NiStats::read(receiving.endpoint().tables())?,
                        driver: Some(DriverStats::new(&receiving.endpoint().counters())),
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
