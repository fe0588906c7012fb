//! The committed pages are those of the committed figures; and pages of figures that were made up.

use super::super::cells::{Direction, Ring};
use super::super::data::{self, Channels, CpuTime, Throughput};
use super::*;

fn figure(values: &[f64]) -> Figure {
    Figure::of(values.iter().copied()).unwrap()
}

const KEY: Key = Key {
    ring: Ring::Credit,
    size: 64 << 10,
    direction: Direction::H2c,
    placement: CpuPlacement::SharedCache,
};

/// Machine whose figures are those of a page each, but for the peer's if there was none.
fn machine(cpu: &str, with_peer: bool) -> MachineFigures {
    let peer = |values: &[f64]| with_peer.then(|| figure(values));
    let small = Key { size: 64, ..KEY };
    let percentiles = |p50: f64| Percentiles {
        p50_ns: figure(&[p50]),
        p99_ns: figure(&[2.0 * p50]),
        p999_ns: figure(&[9.0 * p50]),
    };
    MachineFigures {
        version: data::VERSION,
        cpu: cpu.to_owned(),
        date: "2026-11-22".to_owned(),
        commit: "0123456789ab".to_owned(),
        command: "cargo measure --write".to_owned(),
        facts: vec![("CPU".to_owned(), cpu.to_owned())],
        placement: None,
        building_blocks_placement: Some(CpuPlacement::SharedCache),
        throughput: vec![Row {
            key: KEY,
            figures: Throughput {
                gb_per_s: figure(&[9.0, 10.0, 11.0]),
                copy_share: Some(figure(&[0.9, 0.98, 0.99])),
                peer_gb_per_s: peer(&[10.0]),
                peer_ratio: peer(&[1.0]),
            },
        }],
        latency: vec![Row {
            key: small,
            figures: Latency { ours: percentiles(250.0), peer: with_peer.then(|| percentiles(240.0)) },
        }],
        cpu_time: vec![Row {
            key: small,
            figures: CpuTime { ours_ns: figure(&[12.0]), peer_ns: peer(&[24.0]) },
        }],
        channels: vec![Channels {
            quantity: ChannelQuantity::FourChannels,
            placement: Some(CpuPlacement::SharedCache),
            value: figure(&[0.8]),
            with: Some(figure(&[8.0])),
            without: Some(figure(&[10.0])),
        }],
        building_blocks: vec![Benchmark {
            package: "fpga-ring".to_owned(),
            name: "ring/submit+complete x256".to_owned(),
            nanoseconds: 16.0,
            interval: Some((15.0, 17.0)),
        }],
    }
}

#[track_caller]
fn has(page: &str, line: &str) {
    let machines =
        [machine("A", true), MachineFigures { building_blocks: Vec::new(), ..machine("B", false) }];
    let pages = all(&fpga_process::workspace_root(), &machines).unwrap();
    let text = &pages.iter().find(|(name, _)| name.ends_with(page)).unwrap().1;
    assert!(text.lines().any(|found| found == line), "{line}\nis not in\n{text}");
}

#[test]
fn pages_match_committed_figures() {
    let root = fpga_process::workspace_root();
    let machines = data::read_all(&root).unwrap();
    assert!(!machines.is_empty());
    for machine in &machines {
        let name = machine.file_name();
        let text = std::fs::read_to_string(root.join(data::FOLDER).join(&name)).unwrap_or_default();
        assert!(text == machine.json().unwrap(), "{name} is not as `cargo measure --write` writes it");
    }
    for (name, text) in all(&root, &machines).unwrap() {
        let committed = std::fs::read_to_string(root.join(name)).unwrap_or_default();
        assert!(committed == text, "{name} does not match the figures: run `cargo measure --render`");
        assert!(!text.contains(" -->\n\n\n"), "{name} has a table without a name");
    }
}

#[test]
fn throughput_page_has_machines_side_by_side() {
    has(
        "throughput.md",
        "| 64 KiB | h2c | near | ≥ 0.97 | ≥ 1 | 10.00 (9.00-11.00; 3) | 0.980 (0.900-0.990; 3) | 1.00 (1.00-1.00; 1) | 10.00 (9.00-11.00; 3) | 0.980 (0.900-0.990; 3) | - |",
    );
}

#[test]
fn latency_page_marks_value_above_peer() {
    has(
        "latency.md",
        "| 64 B | h2c | credit | near | **250** (250-250; 1) | 240 (240-240; 1) | 250 (250-250; 1) | - |",
    );
}

#[test]
fn cpu_time_page_has_ratio_to_peer() {
    has(
        "cpu-time.md",
        "| 64 B | h2c | credit | near | ≤ 12 | 12.0 (12.0-12.0; 1) | 24.0 (24.0-24.0; 1) | 2.00 | 12.0 (12.0-12.0; 1) | - | - |",
    );
}

#[test]
fn channels_page_has_row_without_measurement() {
    has(
        "channels.md",
        "| near | ≥ 1, 0.9 accepted | 8.00 (8.00-8.00; 1) | 10.00 (10.00-10.00; 1) | **0.80** (0.80-0.80; 1) | 8.00 (8.00-8.00; 1) | 10.00 (10.00-10.00; 1) | **0.80** (0.80-0.80; 1) |",
    );
    has("channels.md", "| one CPU | ≤ 1000 | - | - |");
}

#[test]
fn building_blocks_page_omits_machine_without_figures() {
    has("building-blocks.md", "| package | benchmark | budget | A: ns |");
    has(
        "building-blocks.md",
        "| fpga-ring | ring/submit+complete x256 | 15 / 30 | **16.00** (15.00-17.00) |",
    );
}

#[test]
fn index_summary_has_goals() {
    has("BENCHMARKS.md", "| share of the copy limit, 64 KiB | ≥ 0.97 | 0.980 | 0.980 |");
    has("BENCHMARKS.md", "| rate / DPDK's, 64 KiB | ≥ 1 | 1.00 | - |");
    has("BENCHMARKS.md", "| CPU time of an operation, ns | near ≤ 12, far ≤ 25 | 12.0 | 12.0 |");
    has("BENCHMARKS.md", "| latency / DPDK's, 64 B, median or p99 | near ≤ 1, far ≤ 0.7 | **1.04** | - |");
}

#[test]
fn picture_has_curve_per_machine_and_direction() {
    let picture = picture(&[machine("A", true), machine("B", false)]);
    let curves: Vec<(&str, usize)> =
        picture.panels[0].curves.iter().map(|curve| (curve.name.as_str(), curve.points.len())).collect();
    assert_eq!(curves, [("A, h2c", 1), ("A, c2h", 0), ("B, h2c", 1), ("B, c2h", 0)]);
}

#[test]
fn machine_file_is_named_after_cpu() {
    assert_eq!(machine("Intel Xeon", true).file_name(), "intel-xeon.json");
    assert_eq!(machine("", true).file_name(), "unknown.json");
}

#[test]
fn machine_file_of_other_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let figures = machine("A", true);
    data::write(dir.path(), &figures).unwrap();
    assert_eq!(data::read_all(dir.path()).unwrap(), [figures]);
    let file = dir.path().join(data::FOLDER).join("a.json");
    std::fs::write(&file, r#"{"version": 2}"#).unwrap();
    assert!(data::read_all(dir.path()).unwrap_err().to_string().contains("version 2"));
    std::fs::write(&file, "[]").unwrap();
    assert!(data::read_all(dir.path()).unwrap_err().to_string().contains("a.json"));
}
