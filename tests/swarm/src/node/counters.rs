//! Counts of what endpoints and cards have counted.

use fpga_diag::inspect::Inspect as _;

use super::Node;
use crate::coverage::Coverage;

impl Node {
    /// Counts what the endpoint and the card have counted.
    pub(crate) fn count(&self, coverage: &mut Coverage) {
        if let Some(open) = &self.open {
            count_endpoint(&open.end, coverage);
        }
    }
}

/// Counts what an endpoint and its card have counted.
pub(crate) fn count_endpoint(end: &fpga_rdma::Endpoint, coverage: &mut Coverage) {
    let counters = end.counters();
    let sender = counters.sender;
    let receiver = end.tables().counters().unwrap_or_default();
    let registry_high = end.tables().registry_occupancy().map_or(0, |used| used.1);
    let escape_high = end.tables().escape_occupancy().map_or(0, |used| used.1);
    let tables = end.tables();
    let is_full = |high: u32, size: u16| u64::from(high >= u32::from(size));
    let states: [(&str, u64); 31] = [
        ("sender packets", sender.packets),
        ("sender retransmits", sender.retransmits),
        ("sender stale answers", sender.stale),
        ("sender busy", sender.busy),
        ("sender not ready", sender.not_ready),
        ("sender trimmed", sender.trimmed),
        ("sender refused", sender.refused),
        ("sender timeouts", sender.timeouts),
        ("sender overtaken", sender.overtaken),
        ("sender probes", sender.probes),
        ("sender deferred", sender.deferred),
        ("sender yielded", sender.yielded),
        ("endpoint faults", counters.faults),
        ("endpoint faults dropped", counters.faults_dropped),
        ("endpoint events dropped", counters.events_dropped),
        ("endpoint mirror resyncs", counters.mirror_resyncs),
        ("endpoint chain overruns", counters.chain_overruns),
        ("endpoint reads served", counters.reads_served),
        ("endpoint reads refused", counters.reads_refused),
        ("receiver duplicates", receiver.duplicates.into()),
        ("receiver escape hits", receiver.escape_hits.into()),
        ("receiver escape dropped", receiver.escape_dropped.into()),
        ("receiver registry full", receiver.registry_full.into()),
        ("receiver bad checksums", receiver.bad_crc.into()),
        ("receiver bad packets", receiver.bad_packet.into()),
        ("receiver violations", receiver.violations.into()),
        ("receiver tombstone hits", receiver.tombstone_hits.into()),
        ("receiver expired entries", receiver.expired.into()),
        ("receiver trimmed", receiver.trimmed.into()),
        ("table registry full", is_full(registry_high, tables.registry_entries())),
        ("table escape full", is_full(escape_high, tables.escape_slots())),
    ];
    for (name, times) in states.into_iter().filter(|(_, times)| *times > 0) {
        coverage.count(name, times);
    }
}
