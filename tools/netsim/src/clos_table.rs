//! Default transport on a Clos network of 144 hosts, beside the public simulator uet-htsim with the congestion control NSCC.
//!
//! [`ClosRow::ALL`] has the rows of the table: a flow list of `examples/scenarios/clos`, and the network that it runs on. [`htsim`] has the
//! files and arguments of the other simulator, and reads its output. Neither starts a program.
//!
//! | Property of the network | Value |
//! |---|---|
//! | switches | 12 leaves of 12 hosts; 12 spines, 3 if oversubscribed 4:1 |
//! | links | 100 or 400 Gbit/s, 1 µs each |
//! | queues | one bandwidth-delay product; marks (ECN) from 20 % to 80 % of it; control packets first; trimming |
//! | routing | ECMP: a hash of the flow and the path identifier, of which a sender has 128 |
//! | packets | 4096 bytes; segments of 32 packets |

pub mod htsim;

use std::sync::atomic::AtomicBool;

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;
use fpga_protocol::feedback::congestion::CongestionConfig;

use crate::numbers::float;
use crate::scenario::{Flow, Scenario};
use crate::simulation::{Simulation, SimulationError};
use crate::statistics;
use crate::topology::{Clos, Marking, Outage, Routing, Tier, Topology, TopologyError};

/// Number of leaves, and of hosts below each.
const LEAVES: u32 = 12;
const HOSTS_PER_LEAF: u32 = 12;
/// Number of hosts.
pub const HOSTS: u32 = LEAVES * HOSTS_PER_LEAF;
const LINK_DELAY: Nanos = Nanos::from_micros(1);
/// Payload bytes of a packet: log2.
const PACKET_LOG2: u8 = 12;
const SEGMENT_PACKETS: u32 = 32;
/// Divisor of the rate of a slow spine's links.
const SLOW_TIMES: u32 = 4;
const CONTEXTS: u32 = 512;
/// Simulated time after which flows in progress have failed.
const LIMIT: Nanos = Nanos::from_secs(1);

/// Row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClosRow {
    /// Name on the command line.
    pub name: &'static str,
    /// Description of one line.
    pub about: &'static str,
    /// File name of its flow list.
    pub list: &'static str,
    /// Rate of every link in Gbit/s.
    pub gbps: u64,
    /// Number of spines.
    pub spines: u32,
    /// Number of path identifiers of a sender.
    pub paths: u16,
    /// Whether the links of spine 0 have a quarter of the rate.
    pub slow_spine: bool,
    /// Flow sizes in bytes that have a line each; empty: one line for all flows.
    pub sizes: &'static [u64],
}

const fn row(name: &'static str, about: &'static str, list: &'static str) -> ClosRow {
    ClosRow { name, about, list, gbps: 100, spines: 12, paths: 128, slow_spine: false, sizes: &[] }
}

const PERMUTATION: &str = "permutation-2MB.cm";
const SHORT_PERMUTATION: &str = "permutation-64KiB.cm";

impl ClosRow {
    /// All rows in the table's order.
    pub const ALL: &'static [Self] = &[
        row("permutation-2MB", "each host sends 2 MB to one below another leaf", PERMUTATION),
        Self {
            paths: 1,
            ..row("one-path", "2 MB, one path identifier: a flow stays on one path", PERMUTATION)
        },
        row("permutation-64KiB", "permutation of 64 KiB", SHORT_PERMUTATION),
        Self { spines: 3, ..row("oversubscribed", "2 MB with 3 spines: 4:1", PERMUTATION) },
        Self {
            slow_spine: true,
            ..row("slow-spine", "2 MB, one spine at a quarter of the rate", PERMUTATION)
        },
        Self {
            sizes: &[65_536, 2_000_000],
            ..row("long-beside-short", "flows of 64 KiB during a permutation of 2 MB", "long-and-short.cm")
        },
        Self {
            sizes: &[65_536, 1 << 20],
            ..row(
                "short-beside-incast",
                "flows of 64 KiB to the leaf of an incast of 32 x 1 MiB",
                "short-and-incast.cm",
            )
        },
        row("incast-64KiB", "32 hosts send 64 KiB to one", "incast-32x64KiB.cm"),
        row("incast-256KiB", "32 hosts send 256 KiB to one", "incast-32x256KiB.cm"),
        row("incast-1MiB", "32 hosts send 1 MiB to one", "incast-32x1MiB.cm"),
        row("all-to-all", "36 hosts send 64 KiB to each other", "all-to-all-64KiB.cm"),
        row("web-search", "1000 flows with sizes of web search, load 50 %", "web-search.cm"),
        row("permutation-16MB", "permutation of 16 MB", "permutation-16MB.cm"),
        Self { gbps: 400, ..row("permutation-2MB-400G", "permutation of 2 MB at 400 Gbit/s", PERMUTATION) },
        Self {
            gbps: 400,
            ..row("permutation-64KiB-400G", "permutation of 64 KiB at 400 Gbit/s", SHORT_PERMUTATION)
        },
    ];

    /// Bytes of a queue: the bandwidth-delay product, without the two packets that the other simulator counts and this one does not.
    const fn queue(&self) -> u64 {
        if self.gbps > 100 { 412_000 } else { 112_000 }
    }

    /// Scenario of the row with these flows; `seed` selects the hash of ECMP.
    ///
    /// # Errors
    /// [`TopologyError`] if the number of spines is invalid.
    pub fn scenario(&self, flows: Vec<Flow>, seed: u64) -> Result<Scenario, TopologyError> {
        let clos = Clos::new(&[Tier::new(HOSTS_PER_LEAF, self.spines), Tier::new(LEAVES, 0)])?;
        let rate = BitRate::from_gbps(self.gbps);
        let packet = 1 << PACKET_LOG2;
        let mut scenario = Scenario::new(1)
            .topology(Topology::Clos(clos))
            .routing(Routing::Ecmp)
            .paths(self.paths)
            .rate(rate)
            .delay(LINK_DELAY)
            .queue(self.queue())
            .congestion(Some(CongestionConfig::DEFAULT.with_packets(packet, rate.get())))
            .flows(flows)
            .seed(seed);
        scenario.sender.packet_size_log2 = PACKET_LOG2;
        scenario.sender.segment_size = SEGMENT_PACKETS << PACKET_LOG2;
        scenario.sender.big_threshold = scenario.sender.segment_size;
        scenario.marking = Some(Marking { min: self.queue() / 5, max: self.queue() / 5 * 4 });
        (scenario.control_first, scenario.trimming) = (true, true);
        scenario.contexts = Some(CONTEXTS);
        scenario.limit = LIMIT;
        if self.slow_spine {
            let slow = |leaf| Outage {
                from: HOSTS + leaf,
                to: HOSTS + LEAVES,
                number: None,
                one_way: false,
                at: Nanos::ZERO,
                length: None,
                period: None,
                times: Some(SLOW_TIMES),
            };
            scenario.outages = (0..LEAVES).map(slow).collect();
        }
        Ok(scenario)
    }

    /// Simulates the row with these flows until `stop` is set.
    ///
    /// # Errors
    /// [`SimulationError`].
    pub fn run(&self, flows: &[Flow], seed: u64, stop: &AtomicBool) -> Result<RowSample, SimulationError> {
        let scenario = self.scenario(flows.to_vec(), seed).map_err(crate::ScenarioError::from)?;
        let report = Simulation::new(&scenario)?.run_with_stop(stop)?;
        let mut sample = RowSample::default();
        for (flow, result) in flows.iter().zip(&report.flows) {
            sample.packets += result.packets;
            sample.retransmits += result.retransmits;
            match result.completed.filter(|_| result.is_complete()) {
                Some(end) => {
                    sample.add_time(flow.length, float(end.saturating_sub(result.begun).get()) / 1e3)
                }
                None => sample.failures += 1,
            }
        }
        Ok(sample)
    }
}

/// Time of a flow from its submission to its completion at the sender.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FlowTime {
    size_bytes: u64,
    us: f64,
}

/// Results of one or more runs of a row.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct RowSample {
    times: Vec<FlowTime>,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Retransmissions of data packets.
    pub retransmits: u64,
    /// Flows that did not complete.
    pub failures: u64,
}

/// Times of flows in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowTimes {
    /// Number of flows.
    pub flows: usize,
    /// Mean.
    pub mean_us: f64,
    /// 99 % quantile: the shortest time that 99 % of the flows do not exceed.
    pub p99_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl RowSample {
    fn add_time(&mut self, size_bytes: u64, us: f64) {
        self.times.push(FlowTime { size_bytes, us });
    }

    /// Adds the results of another run.
    pub fn add(&mut self, run: Self) {
        self.times.extend(run.times);
        self.packets += run.packets;
        self.retransmits += run.retransmits;
        self.failures += run.failures;
    }

    /// Retransmissions in percent of the packets.
    #[must_use]
    pub fn retransmitted_percent(&self) -> f64 {
        100.0 * float(self.retransmits) / float(self.packets.max(1))
    }

    /// Times of the completed flows of one size, or of all; `None` if there are none.
    #[must_use]
    pub fn times(&self, size: Option<u64>) -> Option<FlowTimes> {
        let chosen = self.times.iter().filter(|time| size.is_none_or(|size| size == time.size_bytes));
        let mut times: Vec<f64> = chosen.map(|time| time.us).collect();
        times.sort_unstable_by(f64::total_cmp);
        let p99_us = *times.get((times.len() * 99).div_ceil(100).checked_sub(1)?)?;
        let (mean_us, _) = statistics::mean(&times);
        Some(FlowTimes { flows: times.len(), mean_us, p99_us, max_us: *times.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_times_are_exact_quantiles() {
        let mut sample = RowSample::default();
        assert_eq!(sample.times(None), None);
        for number in (1..=200).rev() {
            sample.add_time(number % 2, float(number));
        }
        let expected = FlowTimes { flows: 200, mean_us: 100.5, p99_us: 198.0, max_us: 200.0 };
        assert_eq!(sample.times(None), Some(expected));
        let expected = FlowTimes { flows: 100, mean_us: 101.0, p99_us: 198.0, max_us: 200.0 };
        assert_eq!(sample.times(Some(0)), Some(expected));
        assert_eq!(sample.times(Some(7)), None);
    }
}
