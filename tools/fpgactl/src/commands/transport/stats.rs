//! `stats`: what both ends have counted.

use fpga_driver::endpoint::{EndpointCounters, ReceiveCounters, ReceiveTables};
use serde::Serialize;

use super::{Moment, Scene};
use crate::commands::transfer::load::Load;
use crate::error::CliError;
use crate::output::{Report, pairs};

/// What `stats` reports: one end, or the two of a load.
#[derive(Debug, Serialize)]
pub struct StatsReport {
    #[serde(flatten)]
    moment: Option<Moment>,
    ends: Vec<End>,
}

#[derive(Debug, Serialize)]
struct End {
    card: String,
    node: u32,
    interface: Interface,
    /// `null` where the card is only looked at.
    driver: Option<Driver>,
}

/// The network interface's counters, since its reset.
#[derive(Debug, Serialize)]
struct Interface {
    rx_packets: u32,
    tx_packets: u32,
    duplicates: u32,
    registrations: u32,
    completions: u32,
    escape_hits: u32,
    escape_dropped: u32,
    registry_full: u32,
    bad_crc: u32,
    bad_packet: u32,
    violations: u32,
    tombstone_hits: u32,
    expired: u32,
    nacks_sent: u32,
    acks_sent: u32,
    registry_in_use: u32,
    registry_high_water: u32,
    escape_in_use: u32,
    escape_high_water: u32,
}

/// The driver's counters, since the endpoint was opened.
#[derive(Debug, Serialize)]
struct Driver {
    packets: u64,
    retransmits: u64,
    acknowledged: u64,
    stale_answers: u64,
    busy_answers: u64,
    /// First packets that a busy receiver refused and that gave their op number back to others.
    yielded: u64,
    refusals: u64,
    timeouts: u64,
    /// Time-outs of packets that wait for their segment's first one, which alone was sent again.
    deferred: u64,
    segments: u64,
    completed: u64,
    failed: u64,
    events: u64,
    notifications: u64,
    windows: u64,
    faults: u64,
    /// How often the copy engine ran past the end of its chain and was reset.
    chain_overruns: u64,
    reads_served: u64,
    reads_refused: u64,
}

impl Interface {
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
            registry_in_use,
            registry_high_water,
            escape_in_use,
            escape_high_water,
        })
    }

    fn rows(&self) -> [(&'static str, String); 9] {
        [
            ("packets", format!("{} received, {} sent", self.rx_packets, self.tx_packets)),
            ("answers", format!("{} acknowledgements, {} refusals sent", self.acks_sent, self.nacks_sent)),
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
                    "{} in use, {} at most, {} times full",
                    self.registry_in_use, self.registry_high_water, self.registry_full
                ),
            ),
            (
                "escape channel",
                format!(
                    "{} in use, {} at most, {} packets, {} dropped",
                    self.escape_in_use, self.escape_high_water, self.escape_hits, self.escape_dropped
                ),
            ),
            (
                "duplicates",
                format!("{} of open segments, {} of complete ones", self.duplicates, self.tombstone_hits),
            ),
            ("damaged", self.bad_crc.to_string()),
            ("malformed", self.bad_packet.to_string()),
            ("violations", self.violations.to_string()),
        ]
    }
}

impl Driver {
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
                    "{} sent, {} again, {} acknowledged",
                    self.packets, self.retransmits, self.acknowledged
                ),
            ),
            (
                "driver: answers",
                format!(
                    "{} busy ({} yielded), {} refusals, {} stale",
                    self.busy_answers, self.yielded, self.refusals, self.stale_answers
                ),
            ),
            (
                "driver: time-outs",
                format!(
                    "{} unanswered, {} of packets whose segment's first one has to come first",
                    self.timeouts, self.deferred
                ),
            ),
            (
                "driver: transfers",
                format!("{} complete, {} failed, {} segments", self.completed, self.failed, self.segments),
            ),
            (
                "driver: arrivals",
                format!(
                    "{}; {} reads served, {} refused",
                    self.notifications, self.reads_served, self.reads_refused
                ),
            ),
            (
                "driver: events",
                format!(
                    "{} taken, {} faults; {} windows filled, {} overruns of the copy engine",
                    self.events, self.faults, self.windows, self.chain_overruns
                ),
            ),
        ]
    }
}

impl StatsReport {
    pub(super) fn new(scene: &Scene) -> Result<Self, CliError> {
        let ends = match scene {
            Scene::Card { name, node, tables } => {
                vec![End {
                    card: name.clone(),
                    node: *node,
                    interface: Interface::read(tables)?,
                    driver: None,
                }]
            }
            Scene::Load(load) => {
                let Load { sending, receiving, .. } = &**load;
                vec![
                    End {
                        card: sending.name(),
                        node: sending.node().get(),
                        interface: Interface::read(sending.endpoint().tables())?,
                        driver: Some(Driver::new(&sending.endpoint().counters())),
                    },
                    End {
                        card: receiving.name(),
                        node: receiving.node().get(),
                        interface: Interface::read(receiving.endpoint().tables())?,
                        driver: Some(Driver::new(&receiving.endpoint().counters())),
                    },
                ]
            }
        };
        Ok(Self { moment: Moment::of(scene), ends })
    }
}

impl Report for StatsReport {
    fn text(&self) -> String {
        let mut text = format!("{}\n", Moment::text(self.moment.as_ref()));
        for end in &self.ends {
            text += &format!("\n{}, node {}\n", end.card, end.node);
            let mut rows = end.interface.rows().to_vec();
            rows.extend(end.driver.iter().flat_map(Driver::rows));
            text += &pairs(&rows);
        }
        text
    }
}
