//! Path identifiers: one transfer over all routes of a network whose switches hash them, and around routes that fail or become slow.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_netsim::{
    BitRate, Clos, Flow, Outage, Report, Routing, Scenario, Scheme, Simulation, Tier, Topology,
};
use fpga_protocol::Nanos;

/// 4 leaves of 4 hosts, 4 spines; switches hash the path identifier, and never learn of a failure.
fn network(scheme: Scheme, paths: u16) -> Scenario {
    let clos = Clos::new(&[Tier::new(4, 4), Tier::new(4, 0)]).unwrap();
    let mut scenario = Scenario::new(5).scheme(scheme).topology(Topology::Clos(clos)).paths(paths);
    scenario = scenario.rate(BitRate::from_gbps(80)).routing(Routing::Ecmp);
    scenario.detection = Nanos::from_secs(1);
    scenario.observe = true;
    scenario
}

fn run(scenario: &Scenario) -> Report {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report
}

/// Leaf 0 is vertex 16, spine 0 vertex 20.
fn trouble(at: Nanos, times: Option<u32>) -> Outage {
    Outage { from: 16, to: 21, number: None, one_way: false, at, length: None, period: None, times }
}

/// Round trip of a packet without queues in nanoseconds: 8 links, and the times of packet and answer on each.
const ROUND_TRIP: u64 = 8 * 800 + 4 * (572 + 40) / 10;

/// One transfer of 2048 packets; after 20 us, one of four routes loses all packets, or forwards a tenth of them.
#[test]
fn spraying_failed_or_slow_route_costs_few_round_trips() {
    for &scheme in Scheme::ALL {
        let scenario = network(scheme, 64).flows(vec![Flow::new(0, 4, 1 << 20)]);
        let time = |report: &Report| report.flows[0].latency().unwrap().get();
        let clean = time(&run(&scenario));
        for times in [None, Some(10)] {
            let mut bad = scenario.clone();
            bad.limit = Nanos::from_secs(1);
            bad.outages = vec![trouble(Nanos::from_micros(20), times)];
            let cost = time(&run(&bad)) - clean;
            // The others repeat a window, a message, or what the receiver had no place for; and a quarter of their requests for
            // packets is lost, too.
            let selective = matches!(scheme, Scheme::Registry | Scheme::AdaptiveWindow | Scheme::Selective);
            let most = if selective { 3 * ROUND_TRIP } else { 6 * clean };
            println!("{scheme} {times:?}: {cost} ns of {clean}");
            assert!(cost <= most, "{scheme} {times:?}: {cost} ns");
        }
    }
}

/// With one identifier all packets of a transfer have one route; with 64 they are spread over all four about equally.
#[test]
fn spraying_uses_all_routes() {
    for &scheme in Scheme::ALL {
        let busiest = |paths| {
            let report = run(&network(scheme, paths).flows(vec![Flow::new(0, 4, 1 << 20)]));
            let uplinks = report.queues.iter().filter(|queue| queue.from == 16 && queue.to >= 20);
            let bytes: Vec<u64> = uplinks.map(|queue| queue.bytes).collect();
            let most = bytes.iter().max().copied().unwrap();
            most as f64 / bytes.iter().sum::<u64>() as f64
        };
        // One round of the receiver counter has one identifier.
        let most = if scheme == Scheme::ReceiverCounter { 1.0 } else { 0.35 };
        assert!(busiest(1) > 0.99 && busiest(64) <= most, "{scheme}: {}", busiest(64));
    }
}

#[test]
fn spraying_scenario_file_names_paths() {
    let clos = "{clos: {tiers: [{down: 2, up: 2}, {down: 2}]}}";
    for (topology, rest, expected) in [
        ("point-to-point", "routing: ecmp, paths: 64", 64),
        ("point-to-point", "routing: ecmp", 1),
        (clos, "routing: ecmp, paths: 1", 1),
        (clos, "routing: ecmp", 128),
        (clos, "routing: adaptive", 1),
        ("{fat-tree: {radix: 4, tiers: 2}}", "routing: ecmp", 128),
    ] {
        let text = format!(
            "{{schema_version: 1, topology: {topology}, {rest}, traffic: {{permutation: {{bytes: 4096}}}}}}"
        );
        assert_eq!(fpga_netsim::file::parse("paths.yaml", &text).unwrap().paths, expected, "{text}");
    }
}

/// Segments have 32 packets of any size, and windows count packets of this size at the links' rate.
#[test]
fn scenario_file_packets_determine_segments_and_windows() {
    for (packet, rate) in [(64, 100), (512, 100), (1024, 100), (4096, 400)] {
        let text = format!(
            "{{schema_version: 1, packet_bytes: {packet}, rate_gbps: {rate}, traffic: {{permutation: {{bytes: 4096}}}}}}"
        );
        let scenario = fpga_netsim::file::parse("packets.yaml", &text).unwrap();
        assert_eq!((scenario.sender.segment_size, scenario.sender.big_threshold), (32 * packet, 32 * packet));
        let congestion = scenario.congestion.unwrap();
        assert_eq!((congestion.packet_bytes, congestion.packet_ps), (packet, (packet + 40) * 8000 / rate));
    }
}

/// The only identifier leads over a link that fails for ever: after two losses without an answer, another one is used.
#[test]
fn one_identifier_leaves_failed_route() {
    for scheme in [Scheme::Registry, Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective] {
        for spine in [21, 23] {
            let flows = (0..4).map(|host| Flow::new(host, 4 + host, 1 << 20)).collect();
            let mut scenario = network(scheme, 1).flows(flows);
            scenario.limit = Nanos::from_secs(2);
            scenario.outages = vec![Outage { to: spine, ..trouble(Nanos::from_micros(20), None) }];
            let report = run(&scenario);
            let last = report.last_arrival();
            // Senders of the others learn of a loss from requests of the receiver, which take the failed route as well.
            let answers_each =
                matches!(scheme, Scheme::Registry | Scheme::AdaptiveWindow | Scheme::Selective);
            let most = Nanos::from_millis(if answers_each { 30 } else { 1000 });
            println!("{scheme}, spine {spine}: {last}");
            assert!(last < most, "{scheme}, spine {spine}: {last}");
        }
    }
}
