//! Rows of the Clos table on reduced flow lists, against the time that the busiest link needs.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use fpga_netsim::clos_table::{ClosRow, HOSTS};
use fpga_netsim::{BitRate, Flow, file};
use fpga_protocol::Nanos;

/// Maximum bytes of a flow and of flows in a list: the rows take milliseconds.
const MAX_BYTES: u64 = 256 << 10;
const MAX_FLOWS: usize = 200;
/// Bytes on the wire of a packet of 4096 bytes.
const WIRE_BYTES: u64 = 4136;
/// Round trip of an idle network, in ns.
const ROUND_TRIP: u64 = 8_700;

fn list(row: &ClosRow) -> Vec<Flow> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/scenarios/clos");
    let text = std::fs::read_to_string(folder.join(row.list)).unwrap();
    let flows = file::parse_flows(row.list, &text, Some(HOSTS)).unwrap();
    let long = flows.iter().rev().map(|flow| Flow { length: flow.length.min(MAX_BYTES), ..*flow });
    long.take(MAX_FLOWS).collect()
}

/// Time in µs that the busiest host's link, or the uplinks of a leaf, need for all flows, and a round trip.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds far below 2^53")]
fn ideal(row: &ClosRow, flows: &[Flow]) -> f64 {
    let mut hosts = BTreeMap::<_, u64>::new();
    let mut leaves = BTreeMap::<_, u64>::new();
    for flow in flows {
        let bytes = flow.length.div_ceil(4096) * WIRE_BYTES;
        for (end, host) in [(0, flow.from), (1, flow.to)] {
            *hosts.entry((end, host)).or_default() += bytes;
            *leaves.entry((end, host / 12)).or_default() += bytes;
        }
    }
    let uplinks = leaves.values().max().unwrap() / u64::from(row.spines);
    let bytes = uplinks.max(*hosts.values().max().unwrap());
    let time = BitRate::from_gbps(row.gbps).time_of(bytes).saturating_add(Nanos::new(ROUND_TRIP));
    time.get() as f64 / 1e3
}

#[test]
fn clos_rows_are_near_ideal_with_few_retransmissions() {
    // Maximum p99 in ideal times, maximum retransmissions in percent of the packets.
    let limits = [
        ("permutation-2MB", 1.5, 1.0),
        ("one-path", 5.5, 20.0),
        ("permutation-64KiB", 1.6, 1.0),
        ("oversubscribed", 1.8, 45.0),
        ("slow-spine", 3.0, 8.0),
        ("long-beside-short", 0.8, 1.5),
        ("short-beside-incast", 1.2, 60.0),
        ("incast-64KiB", 1.3, 150.0),
        ("incast-256KiB", 1.15, 80.0),
        ("incast-1MiB", 1.15, 80.0),
        ("all-to-all", 1.2, 1.0),
        ("web-search", 0.8, 1.0),
        ("permutation-16MB", 1.5, 1.0),
        ("permutation-2MB-400G", 1.8, 1.0),
        ("permutation-64KiB-400G", 1.3, 1.0),
    ];
    assert!(limits.iter().map(|limit| limit.0).eq(ClosRow::ALL.iter().map(|row| row.name)));
    for (row, (name, max_ratio, max_again)) in ClosRow::ALL.iter().zip(limits) {
        let flows = list(row);
        let sample = row.run(&flows, 1, &AtomicBool::new(false)).unwrap();
        let times = sample.times(None).unwrap();
        assert_eq!((times.flows, sample.failures), (flows.len(), 0), "{name}");
        let (ratio, again) = (times.p99_us / ideal(row, &flows), sample.retransmitted_percent());
        assert!(ratio <= max_ratio && again <= max_again, "{name}: {ratio:.2} {again:.2} %");
        assert!(times.mean_us <= times.p99_us && times.p99_us <= times.max_us, "{name}: {times:?}");
        let sizes = row.sizes.iter().filter_map(|size| sample.times(Some(*size)));
        assert!(row.sizes.is_empty() || sizes.count() > 0, "{name}");
    }
}

/// The seed selects the hash of ECMP; the stopped run has no result.
#[test]
fn clos_row_seed_selects_paths() {
    let row = ClosRow::ALL.iter().find(|row| row.name == "one-path").unwrap();
    let flows: Vec<Flow> = list(row).into_iter().take(40).collect();
    let run = |seed| row.run(&flows, seed, &AtomicBool::new(false)).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    assert!(row.run(&flows, 1, &AtomicBool::new(true)).is_err());
}
