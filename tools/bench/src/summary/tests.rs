//! Figures of pairs, runs and trials that were made up.

use super::super::cells::{Cell, Direction, Ring};
use super::super::placement::PlacementLatencies;
use super::super::record::Latency;
use super::*;

const SETTING: Setting = Setting {
    cpus: [0, 1],
    depth: 256,
    seconds: None,
    limits: PlacementLatencies { near_ns: 34.0, far_ns: 90.0 },
};

fn record(ops_per_s: f64, p50_ns: f64) -> Record {
    let latency = Latency { p50_ns, p99_ns: 2.0 * p50_ns, p999_ns: 9.0 * p50_ns };
    Record {
        ops_per_s,
        gb_per_s: ops_per_s * 64.0 / 1e9,
        copy_gb_per_s: Some(10.0),
        busy_cpus: 2.0,
        latency: Some(latency),
        cpu_ns_per_op: None,
    }
}

fn samples(latencies: &[f64]) -> Vec<CpuSample> {
    let sample =
        |one_way_ns: &f64| CpuSample { one_way_ns: *one_way_ns, host_ns: 9.0, card_ns: 9.0, beside_ns: 9.0 };
    latencies.iter().map(sample).collect()
}

fn run(ns_per_op: f64, host_ns: f64) -> Run {
    let sample = CpuSample { one_way_ns: 40.0, host_ns, card_ns: 9.0, beside_ns: 9.0 };
    Run { looks: [sample, sample], ns_per_op }
}

fn pair(one_way_ns: f64, ours: f64, peer: f64) -> Pair {
    Pair {
        looks: samples(&[one_way_ns, one_way_ns + 1.0, one_way_ns]),
        ours: record(ours, 110.0),
        peer: Some(record(peer, 240.0)),
    }
}

fn trial(base: Option<(f64, f64)>, run: (f64, f64)) -> Trial {
    let record = |(rate, p50): (f64, f64)| record(rate * 1e9 / 64.0, p50);
    Trial { looks: samples(&[40.0, 40.0]), base: base.map(record), run: record(run) }
}

fn figures() -> MachineFigures {
    let cell = Cell { ring: Ring::Credit, size: 64, direction: Direction::H2c };
    let torn = Pair { looks: samples(&[40.0, 165.0, 165.0]), ..pair(40.0, 9e9, 1.0) };
    let pairs = vec![
        pair(40.0, 90e6, 30e6),
        pair(41.0, 120e6, 30e6),
        pair(42.0, 60e6, 30e6),
        torn,
        pair(165.0, 10e6, 5e6),
    ];
    let answered = |question, trials| Answered { question, trials };
    let measurement = Measurement {
        measured: vec![Measured { cell, pairs }],
        cost: vec![Cost {
            cell,
            ours: vec![run(16.0, 9.0), run(17.0, 9.0), run(18.0, 9.0), run(30.0, 11.0)],
            peer: vec![run(34.0, 9.0), run(60.0, 11.0)],
        }],
        answered: vec![
            answered(Question::Channels, vec![trial(Some((10.0, 1.0)), (12.0, 1.0))]),
            answered(Question::Beside, vec![trial(Some((1.0, 100.0)), (1.0, 250.0))]),
            answered(Question::OneCpu, vec![trial(None, (5.0, 400.0))]),
        ],
        ..Measurement::default()
    };
    let origin = Origin {
        cpu: "A".to_owned(),
        date: "2026-11-22".to_owned(),
        commit: "0123456789ab".to_owned(),
        command: "cargo measure --write".to_owned(),
        facts: Facts::new(),
    };
    measurement.figures(origin, &SETTING)
}

#[test]
fn summary_rates_are_medians_per_placement() {
    let rows = figures().throughput;
    assert_eq!(rows.len(), 2);
    let near = &rows[0].figures;
    let ratio = near.peer_ratio.unwrap();
    assert_eq!((ratio.median, ratio.least, ratio.most, ratio.runs), (3.0, 2.0, 4.0, 3));
    assert_eq!((near.gb_per_s.median, near.copy_share.map(|share| share.median)), (5.76, Some(0.576)));
    assert_eq!((rows[1].key.placement, rows[1].figures.gb_per_s.median), (CpuPlacement::NoSharedCache, 0.64));
}

#[test]
fn summary_pairs_are_counted_by_verdict() {
    let placement = figures().placement.unwrap();
    assert_eq!((placement.near, placement.far, placement.one_core), (3, 1, 0));
    assert_eq!((placement.torn, placement.disturbed), (1, 0));
    assert_eq!(placement.latencies.iter().map(|bar| bar.count).sum::<usize>(), 15);
}

#[test]
fn summary_latency_and_cpu_time_have_peer() {
    let figures = figures();
    let latency = &figures.latency[0].figures;
    assert_eq!((latency.ours.p99_ns.median, latency.peer.unwrap().p999_ns.median), (220.0, 2160.0));
    let [cost] = figures.cpu_time.as_slice() else { panic!("{:?}", figures.cpu_time) };
    assert_eq!(
        (cost.figures.ours_ns.median, cost.figures.ours_ns.runs, cost.figures.peer_ns.unwrap().runs),
        (17.0, 3, 1)
    );
}

#[test]
fn summary_questions_are_ratios() {
    let channels = figures().channels;
    let found: Vec<(ChannelQuantity, Option<CpuPlacement>, f64)> =
        channels.iter().map(|row| (row.quantity, row.placement, row.value.median)).collect();
    let near = Some(CpuPlacement::SharedCache);
    assert_eq!(
        found,
        [
            (ChannelQuantity::FourChannels, near, 1.2),
            (ChannelQuantity::Beside, near, 2.5),
            (ChannelQuantity::OneCpuShare, None, 0.5),
            (ChannelQuantity::OneCpuLatency, None, 800.0),
        ]
    );
    assert_eq!(channels[0].without.map(|without| without.median), Some(1.0));
}

#[test]
fn summary_without_runs_is_empty() {
    let origin = Origin {
        cpu: "A".to_owned(),
        date: String::new(),
        commit: String::new(),
        command: String::new(),
        facts: Facts::new(),
    };
    let figures = Measurement::default().figures(origin, &SETTING);
    assert!(figures.placement.is_none() && figures.throughput.is_empty() && figures.channels.is_empty());
}
