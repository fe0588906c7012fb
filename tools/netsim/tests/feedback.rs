//! Link feedback and flow control: many send to one, rates fall, and rise again when the congestion is over.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may as well stop")]

use fpga_core::Nanos;
use fpga_core::feedback::flow::FULL;
use fpga_netsim::{Flow, RateChange, Report, Scenario, Scheme, Simulation, Topology};

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

/// Nine tenths of the line as payload, of 0.9275 that headers leave, and as much fairness; with less than a fifth of the packets dropped
/// that are without. Long flows use the link without it too, by sending each packet two and a half times, or nine times.
#[test]
fn rates_that_fall_use_the_link_share_it_and_lose_little() {
    let length = 2 << 20;
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
        let plain = run(&incast(scheme, length));
        let scenario = incast(scheme, length).controller(CONTROLLER);
        let report = run(&scenario);
        let goodputs = [&plain, &report].map(|report| goodput(&scenario, report, length));
        let shares = [&plain, &report].map(|report| jain(report, length));
        println!("{scheme}: {goodputs:?}, {shares:?}, dropped {}, {}", plain.dropped, report.dropped);
        assert!(report.dropped * 5 < plain.dropped, "{scheme}: {} of {}", report.dropped, plain.dropped);
        assert!(goodputs[1] >= 0.9 && shares[1] >= 0.9, "{scheme}: {goodputs:?}, {shares:?}");
        assert!(!report.rates.is_empty() && plain.rates.is_empty());
    }
}

/// The same with other queues, other numbers of senders and other lengths: rates find what there is, they are made for no one number.
#[test]
fn nine_tenths_of_the_line_are_used_whatever_the_queue_and_the_number_of_senders() {
    for (senders, queue, length) in [
        (16, 256 << 10, 2 << 20),
        (32, 64 << 10, 2 << 20),
        (32, 1 << 20, 2 << 20),
        (32, 256 << 10, 512 << 10),
    ] {
        for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
            let scenario = incast(scheme, length).incast(senders, length).queue(queue).controller(CONTROLLER);
            let report = run(&scenario);
            let (goodput, share) = (goodput(&scenario, &report, length), jain(&report, length));
            println!("{scheme}, {senders} senders, queue {queue}, {length} bytes: {goodput:.4}, {share:.4}");
            assert!(
                goodput >= 0.9 && share >= 0.9,
                "{scheme}, {senders} senders, queue {queue}: {goodput}, {share}"
            );
        }
    }
}

/// The first raise within ten round trips of the last packet of the others, and all of the link within forty.
#[test]
fn rates_come_back_when_the_congestion_is_over() {
    let mut flows: Vec<_> = (1..32).map(|host| Flow::new(host, 0, 1 << 20)).collect();
    flows.push(Flow::new(32, 0, 24 << 20));
    let scenario = incast(Scheme::AdaptiveWindow, 1).flows(flows).controller(CONTROLLER);
    let report = run(&scenario);
    let over = report.flows[..31].iter().filter_map(|flow| flow.received).max().unwrap();
    let trip = scenario.timers_for().get();
    let long: Vec<_> = report.rates.iter().filter(|change| change.from == 32).collect();
    let before = long.iter().rfind(|change| change.at <= over).unwrap();
    assert!(before.rate < FULL, "there was congestion");
    let after: Vec<_> = long.iter().filter(|change| change.at > over).collect();
    assert!(after.windows(2).all(|pair| pair[0].rate < pair[1].rate), "{after:?}");
    let trips = |change: &RateChange| (change.at.get() - over.get()).div_ceil(trip);
    for change in after.iter().take(1).chain(after.iter().find(|change| change.rate == FULL)) {
        println!(
            "{} round trips after the end: a rate of {}, {} before",
            trips(change),
            change.rate,
            before.rate
        );
    }
    assert!(after.first().is_some_and(|first| first.rate > before.rate && trips(first) <= 10), "{after:?}");
    assert!(after.iter().any(|change| change.rate == FULL && trips(change) <= 40), "{after:?}");
}
