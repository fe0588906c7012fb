//! Link feedback and flow control: many send to one, rates fall, and rise again when the congestion is over.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may as well stop")]

use fpga_core::Nanos;
use fpga_core::feedback::flow::FULL;
use fpga_netsim::{Flow, Report, Scenario, Scheme, Simulation, Topology};

/// 32 that send, one that receives, and one with the controller.
const STAR: Topology = Topology::Tree { arity: 34, levels: 1, up: 1 };
const CONTROLLER: u32 = 33;

fn incast(scheme: Scheme, length: u64) -> Scenario {
    let mut scenario = Scenario::new(1).scheme(scheme).topology(STAR).incast(32, length);
    scenario.limit = Nanos::from_secs(1);
    scenario
}

fn run(scenario: &Scenario) -> Report {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report
}

/// (sum x)^2 / (n sum x^2) of the flows' goodputs: 1 if all are the same (Jain, Chiu and Hawe, 1984).
fn jain(report: &Report, length: u64) -> f64 {
    let shares: Vec<f64> = report.flows.iter().map(|flow| flow.goodput(length).get() as f64).collect();
    let sum: f64 = shares.iter().sum();
    sum * sum / (shares.len() as f64 * shares.iter().map(|share| share * share).sum::<f64>())
}

/// Payload of all flows over what the receiver's link could have carried until the last of them had arrived.
fn goodput(scenario: &Scenario, report: &Report, length: u64) -> f64 {
    let last = report.flows.iter().filter_map(|flow| flow.received).max().unwrap();
    let bits = report.flows.len() as f64 * length as f64 * 8.0;
    bits / (scenario.rate.get() as f64 * last.get() as f64 / 1e9)
}

#[test]
fn incast_of_32_to_1() {
    let length = 2 << 20;
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
        let plain = run(&incast(scheme, length));
        let scenario = incast(scheme, length).controller(CONTROLLER);
        let report = run(&scenario);
        eprintln!(
            "{scheme}: plain dropped {} ratio {} jain {} goodput {}",
            plain.dropped,
            plain.packets_ratio(),
            jain(&plain, length),
            goodput(&scenario, &plain, length)
        );
        eprintln!(
            "{scheme}: dropped {} ratio {} jain {} goodput {} changes {}",
            report.dropped,
            report.packets_ratio(),
            jain(&report, length),
            goodput(&scenario, &report, length),
            report.rates.len()
        );
    }
}

#[test]
fn rates_come_back() {
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
        let mut flows: Vec<_> = (1..32).map(|host| Flow::new(host, 0, 1 << 20)).collect();
        flows.push(Flow::new(32, 0, 24 << 20));
        let scenario = incast(scheme, 1).flows(flows).controller(CONTROLLER);
        let report = run(&scenario);
        let over = report.flows[..31].iter().filter_map(|flow| flow.received).max().unwrap();
        let trip = scenario.timers_for();
        let long: Vec<_> = report.rates.iter().filter(|change| change.from == 32).collect();
        eprintln!(
            "{scheme}: over {over} trip {trip} {:?} end {:?}",
            long.iter()
                .filter(|c| c.at > over)
                .map(|c| ((c.at.get() - over.get()) as f64 / trip.get() as f64, c.rate))
                .collect::<Vec<_>>(),
            report.flows[31].received
        );
        eprintln!("{FULL}");
    }
}
