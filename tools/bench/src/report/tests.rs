//! Tests of the report with synthetic pairs.

use super::super::Direction;
use super::super::placement::PlacementLatencies;
use super::*;

fn record(ops_per_s: f64, p50_ns: f64) -> Record {
    let latency = Latency { p50_ns, p99_ns: 2.0 * p50_ns, p999_ns: 9.0 * p50_ns };
    Record { ops_per_s, busy_cpus: 2.0, latency: Some(latency), cpu_ns_per_op: None }
}

fn samples(latencies: [f64; 3]) -> Vec<CpuSample> {
    latencies.map(|one_way_ns| CpuSample { one_way_ns, host_ns: 9.0, card_ns: 9.0, beside_ns: 9.0 }).to_vec()
}

fn run(ns_per_op: f64, host_ns: f64) -> Run {
    let sample = CpuSample { one_way_ns: 40.0, host_ns, card_ns: 9.0, beside_ns: 9.0 };
    Run { looks: [sample, sample], ns_per_op }
}

fn pair(bracket: f64, ours: f64, peer: f64) -> Pair {
    Pair {
        looks: samples([bracket, bracket + 1.0, bracket]),
        ours: record(ours, 110.0),
        peer: Some(record(peer, 240.0)),
    }
}

fn report() -> Report {
    let cell = |ring| Cell { ring, size: 64, direction: Direction::H2c };
    let torn = Pair { looks: samples([40.0, 165.0, 165.0]), ..pair(40.0, 9e9, 1.0) };
    Report {
        command: "cargo measure --peer".to_owned(),
        machine: vec![("CPU", "one".to_owned())],
        versions: vec![("compiler", "rustc 1".to_owned())],
        setting: Setting {
            cpus: [0, 1],
            depth: 256,
            seconds: None,
            limits: PlacementLatencies { near_ns: 34.0, far_ns: 90.0 },
        },
        wanted: 3,
        measured: vec![
            Measured {
                cell: cell(Ring::Credit),
                pairs: vec![
                    pair(40.0, 90e6, 30e6),
                    pair(41.0, 120e6, 30e6),
                    pair(42.0, 60e6, 30e6),
                    torn,
                    pair(165.0, 10e6, 5e6),
                ],
            },
            Measured { cell: cell(Ring::Stop), pairs: vec![pair(40.0, 60e6, 30e6)] },
        ],
        cost: vec![Cost {
            cell: cell(Ring::Credit),
            ours: vec![run(16.0, 9.0), run(17.0, 9.0), run(18.0, 9.0), run(30.0, 11.0)],
            peer: vec![run(34.0, 9.0), run(60.0, 11.0)],
        }],
        micro: vec![
            Benchmark {
                package: "fpga-protocol".to_owned(),
                name: "op_table/take+acknowledge".to_owned(),
                nanoseconds: 21.0,
                interval: Some((20.0, 22.0)),
            },
            Benchmark {
                package: "fpga-card".to_owned(),
                name: "map".to_owned(),
                nanoseconds: 3.0,
                interval: None,
            },
        ],
        micro_regime: Some(CpuPlacement::SharedCache),
    }
}

#[track_caller]
fn has(text: &str, line: &str) {
    assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
}

#[test]
fn report_figures_are_medians_per_placement() {
    let text = report().text();
    has(
        &text,
        "| 64 B | h2c | near | 90.000 (60.000-120.000) | 30.000 (30.000-30.000) | 5.76 | 3.00 (2.00-4.00) | 2.50 | yes | 3 | 1 |",
    );
    has(
        &text,
        "| 64 B | h2c | far | 10.000 (10.000-10.000) | 5.000 (5.000-5.000) | 0.64 | 2.00 (2.00-2.00) | 2.50 | **no**, too few | 1 | 1 |",
    );
    has(&text, "4 pairs near, 1 far, 0 on one core; discarded: 1 torn, 0 disturbed.");
    assert!(!text.contains("9000.000"), "{text}");
}

#[test]
fn report_both_rings_share_minimum_ratio() {
    has(
        &report().text(),
        "| 64 B | h2c | near | 60.000 (60.000-60.000) | 30.000 (30.000-30.000) | 3.84 | 2.00 (2.00-2.00) | 2.50 | **no**, too few | 1 | 0 |",
    );
}

#[test]
fn report_latency_and_cpu_show_peer() {
    let text = report().text();
    has(
        &text,
        "| 64 B | h2c | stop | near | 110 (110-110) | 220 (220-220) | 990 (990-990) | 240 (240-240) | 480 (480-480) | 2160 (2160-2160) | yes |",
    );
    has(
        &text,
        "| 64 B | h2c | credit | near | 17.0 (16.0-18.0) | 3 | 34.0 (34.0-34.0) | 1 | 2.00 | 15 | **no** |",
    );
}

#[test]
fn report_building_blocks_show_budget() {
    let text = report().text();
    has(&text, "| fpga-protocol | op_table/take+acknowledge | 21.00 | 20.00-22.00 | 20 | **no** |");
    has(&text, "| fpga-card | map | 3.00 | - | - | - |");
}

#[test]
fn report_without_peer_has_empty_columns() {
    let mut report = report();
    for pair in report.measured.iter_mut().flat_map(|measured| &mut measured.pairs) {
        pair.peer = None;
    }
    has(&report.text(), "| 64 B | h2c | far | 10.000 (10.000-10.000) | - | 0.64 | - | 2.50 | - | 1 | 1 |");
}

#[test]
fn report_unmeasured_is_omitted() {
    let mut report = report();
    report.measured.clear();
    report.cost.clear();
    report.micro.clear();
    let text = report.text();
    assert!(
        text.contains("cargo measure") && !text.contains("Throughput") && !text.contains("Building"),
        "{text}"
    );
}

#[test]
fn report_sizes_use_binary_units() {
    for (bytes, text) in
        [(1, "1 B"), (1000, "1000 B"), (4096, "4 KiB"), (1 << 20, "1 MiB"), (1536 << 10, "1536 KiB")]
    {
        assert_eq!(size_text(bytes), text);
    }
}

#[test]
fn report_progress_names_placement_and_ratio() {
    let setting = report().setting;
    let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::C2h };
    let text = progress(&cell, &pair(40.0, 90e6, 30e6), &setting);
    assert!(text.contains("ratio   3.00") && text.contains("near (40 41 40 ns)"), "{text}");
}
