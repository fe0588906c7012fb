//! Every scheme on every topology: everything arrives, and every run is the same.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_netmodel::{Conditions, Delay, Loss, Order, Probability};
use fpga_netsim::{Report, Scenario, Scheme, Simulation, Topology, sweep};
use fpga_protocol::Nanos;
use fpga_protocol::sender::SendFailure;

const TOPOLOGIES: [Topology; 4] = [
    Topology::PointToPoint,
    Topology::Torus { side: 3 },
    Topology::Tree { arity: 4, levels: 2, up: 2 },
    Topology::Tree { arity: 9, levels: 1, up: 1 },
];

fn run(scenario: &Scenario) -> Report {
    Simulation::new(scenario).unwrap().run().unwrap()
}

fn chance(fraction: f64) -> Probability {
    Probability::new(fraction).unwrap()
}

/// Every impairment of a link, for answers too.
fn bad(scenario: Scenario) -> Scenario {
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::new(300) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(chance(0.01)))
        .delay(delay)
        .copies(chance(0.01), delay)
        .damage(chance(0.005));
    scenario.data(conditions).control(conditions)
}

fn whole(scenario: &Scenario, length: u64) -> Report {
    let report = run(scenario);
    assert_eq!(report.failures(), 0, "{scenario:?}: {report:?}");
    let packets: u64 = report.flows.iter().map(|flow| flow.packets).sum();
    assert_eq!(packets, length.div_ceil(512) * report.flows.len() as u64);
    report
}

#[test]
fn networks_every_topology_and_scheme_delivers() {
    let (mut damaged, mut again) = (0, 0);
    for topology in TOPOLOGIES {
        for scheme in Scheme::ALL.iter().copied() {
            let length = 40_000;
            let scenario = Scenario::new(1).scheme(scheme).topology(topology).permutation(length);
            let report = whole(&scenario, length);
            assert_eq!(report.damaged, 0);
            for host in &report.hosts {
                assert!(host.written >= length, "{scheme:?} on {topology:?}: {host:?}");
            }
            let report = whole(&bad(scenario.seed(3)), length);
            damaged += report.damaged;
            again += report.flows.iter().map(|flow| flow.retransmits).sum::<u64>();
        }
    }
    assert!(damaged > 100 && again > 100, "{damaged} packets were corrupted, {again} retransmitted");
}

#[test]
fn networks_dropping_switches_deliver() {
    // Without the receiver counter: it retransmits the whole message for one lost packet, which causes as many drops again, forever.
    for scheme in Scheme::ALL.iter().copied().filter(|scheme| *scheme != Scheme::ReceiverCounter) {
        let topology = Topology::Tree { arity: 17, levels: 1, up: 1 };
        let mut scenario =
            Scenario::new(1).scheme(scheme).topology(topology).queue(16 << 10).incast(16, 100_000);
        scenario.limit = Nanos::from_secs(1);
        let report = run(&scenario);
        assert!(report.dropped > 0, "{scheme:?}");
        assert_eq!(report.failures(), 0, "{scheme:?}: {report:?}");
    }
}

#[test]
fn networks_run_depends_on_scenario_only() {
    for topology in TOPOLOGIES {
        for scheme in Scheme::ALL.iter().copied() {
            let order = Order::Degree { degree: 16, patience: Nanos::from_micros(2) };
            let scenario =
                Scenario::new(1).scheme(scheme).topology(topology).permutation(30_000).order(order);
            let scenario = bad(scenario);
            let first = run(&scenario.clone().seed(1));
            assert_eq!(first, run(&scenario.clone().seed(1)), "{scheme:?} on {topology:?}");
            assert_ne!(first, run(&scenario.seed(2)), "{scheme:?} on {topology:?}");
        }
    }
}

/// A link that loses everything, or all data, or all answers: no scheme hangs, each fails within its limits, and the sum of runs counts the
/// failures.
#[expect(clippy::panic, reason = "in a test, a panic is the failure report")]
fn check_total_loss(schemes: &[Scheme]) {
    let lost = Conditions::default().loss(Loss::Independent(Probability::ALWAYS));
    for scheme in schemes.iter().copied() {
        for (data, control) in [(true, true), (true, false), (false, true)] {
            let mut scenario = Scenario::new(20_000).scheme(scheme);
            scenario.data = if data { lost } else { Conditions::default() };
            scenario.control = if control { lost } else { Conditions::default() };
            let name = format!("{scheme}, data lost: {data}, control lost: {control}");
            let report = run(&scenario);
            assert_eq!(report.failures(), 1, "{name}");
            let error = report.flows[0].error.unwrap_or_else(|| panic!("{name}: {report:?}"));
            assert!(matches!(error, SendFailure::Unanswered { .. }), "{name}: {error}");
            // A second without packets ends a transfer. A receiver that keeps sending requests is not silent: it drops a silent sender
            // after three seconds.
            let asks = scheme == Scheme::ReceiverWindow && data && !control;
            let most = Nanos::from_millis(if asks { 4100 } else { 1100 });
            assert!(report.ended <= most, "{name}: {}", report.ended);
            assert!(report.hosts[0].timeouts > 0, "{name}: {:?}", report.hosts);
            if data && control {
                let sweep =
                    sweep::run(&scenario, 1, 1, &std::sync::atomic::AtomicBool::new(false), || ()).unwrap();
                assert_eq!((sweep.flows, sweep.failures), (1, 1), "{name}");
                assert!(sweep.first_error.is_some_and(|text| text.contains("flow 0: ")), "{name}");
            }
        }
    }
}

/// The default scheme; `networks_silence_backs_off` has every scheme with a link that loses everything.
#[test]
fn networks_total_loss_fails_every_flow_in_time() {
    check_total_loss(&[Scheme::Registry]);
}

#[test]
#[ignore = "long: 6 s: every scheme"]
fn networks_total_loss_fails_every_flow_of_every_scheme_in_time() {
    check_total_loss(Scheme::ALL);
}

/// The longer nothing is received, the longer a sender waits before it retries: no scheme retries at a constant interval shorter than 64
/// round trips. After a second each of them fails.
#[test]
fn networks_silence_backs_off() {
    let lost = Conditions::default().loss(Loss::Independent(Probability::ALWAYS));
    for scheme in Scheme::ALL.iter().copied() {
        let scenario = Scenario::new(512).scheme(scheme).data(lost).control(lost);
        let report = run(&scenario);
        let waits = report.ended.get() / scenario.timers_for().saturating_mul(64).get();
        assert!(report.hosts[0].timeouts <= waits + 16, "{scheme}: {waits}, {:?}", report.hosts[0]);
        assert!(
            matches!(report.flows[0].error, Some(SendFailure::Unanswered { .. })),
            "{scheme}: {report:?}"
        );
        assert!(
            report.hosts[0].timeouts > 0 && report.ended <= Nanos::from_millis(1100),
            "{scheme}: {report:?}"
        );
    }
}

/// Both directions around a ring of even length are equally short, so that a flow across gets the rate of two links.
#[test]
fn networks_adaptive_routing_uses_all_shortest_paths() {
    let scenario = Scenario::new(1).congestion(None).scheme(Scheme::Selective);
    let across = scenario.topology(Topology::Torus { side: 4 }).flows(vec![
        fpga_netsim::Flow::new(0, 42, 1 << 20),
        fpga_netsim::Flow::new(1, 42, 1 << 20),
        fpga_netsim::Flow::new(4, 42, 1 << 20),
    ]);
    let report = whole(&across, 1 << 20);
    // One port into the receiver takes 3 MiB in 252 us and headers: it is the only place where they meet.
    let last = report.flows.iter().filter_map(|flow| flow.received).max().unwrap();
    assert!(last < Nanos::from_micros(300), "{last}");
}
