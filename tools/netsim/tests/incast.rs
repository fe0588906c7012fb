//! Congestion windows: many hosts send to one through a short queue, and no switch helps.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_netmodel::{Conditions, Loss, Probability};
use fpga_netsim::{BitRate, Clos, Flow, Report, Scenario, Scheme, Simulation, Tier, Topology};
use fpga_protocol::Nanos;

/// Bytes on the wire of a full packet.
const PACKET: u64 = 572;

fn incast(scheme: Scheme, senders: u32, length: u64) -> Scenario {
    let mut scenario = Scenario::new(1)
        .scheme(scheme)
        .topology(Topology::Tree { arity: senders + 1, levels: 1, up: 1 })
        .queue(64 * PACKET)
        .incast(senders, length);
    scenario.contexts = Some(64);
    scenario.limit = Nanos::from_secs(1);
    scenario
}

fn run(scenario: &Scenario) -> Report {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report
}

/// Schemes with congestion windows: not the receiver counter, which fills the queue whether they are on or off.
fn with_windows() -> impl Iterator<Item = Scheme> {
    Scheme::ALL.iter().copied().filter(|scheme| *scheme != Scheme::ReceiverCounter)
}

fn last(report: &Report) -> u64 {
    report.last_arrival().get()
}

/// The bottleneck alone takes 377 us.
#[test]
fn congestion_window_incast_fills_bottleneck_with_few_retransmissions() {
    let (senders, length) = (16, 256 << 10);
    for scheme in with_windows() {
        let controlled = incast(scheme, senders, length);
        let plain = controlled.clone().congestion(None);
        let [plain, report] = [&plain, &controlled].map(run);
        let packets = u64::from(senders) * length / 512;
        let bottleneck = controlled.rate.time_of(packets * PACKET).get();
        let (again, before) = (report.packets_ratio() - 1.0, plain.packets_ratio() - 1.0);
        let times = [last(&report), last(&plain)].map(|time| time * 100 / bottleneck);
        println!("{scheme}: {times:?} % of the bottleneck's time; {again:.3} again, {before:.3} without");
        assert!(times[0] <= 115 && times[0] <= times[1], "{scheme}: {times:?}");
        assert!(again <= 0.15 && again * 4.0 <= before, "{scheme}: {again}, {before}");
    }
}

/// One more host sends a packet every 5 us through the port that the others fill.
#[test]
fn congestion_window_keeps_queue_short_for_small_transfers() {
    let (senders, length, count) = (15, 512 << 10, 200);
    for scheme in with_windows() {
        let small = |number: u64| {
            let mut flow = Flow::new(senders + 1, 0, 512);
            flow.at = Nanos::from_micros(10 + 5 * number);
            flow
        };
        let mut scenario = incast(scheme, senders + 1, length);
        let alone = scenario.clone().flows(vec![small(0)]);
        let alone = run(&alone).flows[0].completed.unwrap().saturating_sub(Nanos::from_micros(10));
        let mut flows: Vec<_> = (1..=senders).map(|host| Flow::new(host, 0, length)).collect();
        flows.extend((0..count).map(small));
        scenario = scenario.flows(flows);
        let report = run(&scenario);
        let (large, small) = report.flows.split_at(15);
        let end = large.iter().filter_map(|flow| flow.completed).max().unwrap();
        let mut times: Vec<_> = small
            .iter()
            .filter(|flow| flow.begun < end)
            .map(|flow| flow.completed.unwrap().saturating_sub(flow.begun).get())
            .collect();
        times.sort_unstable();
        let (count, round_trip) = (times.len(), alone.get());
        let p99 = times[count * 99 / 100];
        println!("{scheme}: {count} in {end}; p50 {}, p99 {p99} ns; alone {round_trip} ns", times[count / 2]);
        assert!(p99 <= 3 * round_trip, "{scheme}: {p99} ns, alone {round_trip} ns");
    }
}

/// Random loss says nothing about queues.
#[test]
fn congestion_window_random_loss_keeps_goodput() {
    let loss = Conditions::default().loss(Loss::Independent(Probability::new(0.005).unwrap()));
    for scheme in [Scheme::Registry, Scheme::Selective] {
        let plain = Scenario::new(4 << 20).scheme(scheme).data(loss).control(loss).seed(3);
        let controlled = plain.clone();
        let plain = plain.congestion(None);
        let [plain, report] = [&plain, &controlled].map(|scenario| last(&run(scenario)));
        println!("{scheme}: {report} ns, {plain} ns without");
        assert!(report * 100 <= plain * 105, "{scheme}: {report}, {plain}");
    }
}

/// 256 senders to a registry with 64 entries: all transfers arrive, in at most 1.5 times the time of the bottleneck.
#[test]
fn incast_registry_of_64_entries_survives_256_senders() {
    let clos = Clos::new(&[Tier::new(64, 64), Tier::new(8, 0)]).unwrap();
    let length = 64 << 10;
    let scenario = Scenario::new(1).topology(Topology::Clos(clos)).incast(256, length);
    let scenario = scenario.rate(BitRate::from_gbps(100)).queue(64 * 572);
    let report = Simulation::new(&scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0);
    let last = report.flows.iter().filter_map(|flow| flow.received).max().unwrap();
    let bottleneck = 256 * (length / 512) * 572 * 8 / 100;
    println!("{} of {bottleneck} ns", last.get());
    assert!(last.get() * 2 <= bottleneck * 3, "{} of {bottleneck} ns", last.get());
}

/// Each sender's whole transfer leaves at once, and most of it is lost. A sender whose probe is answered repeats the rest at once, although
/// the one answer says little about the order of the path.
#[test]
fn incast_of_short_transfers_recovers_after_first_probe() {
    let clos = Clos::new(&[Tier::new(64, 64), Tier::new(8, 0)]).unwrap();
    let scenario = Scenario::new(1).topology(Topology::Clos(clos)).incast(64, 16 << 10);
    let report = run(&scenario.rate(BitRate::from_gbps(100)).queue(64 * PACKET));
    let probe = 250_000;
    assert!(last(&report) <= 2 * probe, "{} ns", last(&report));
}
