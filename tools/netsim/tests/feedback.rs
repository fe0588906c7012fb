//! Link feedback and flow control: many hosts send to one, rates fall, and rise again when the congestion is over.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_netmodel::{Conditions, Loss, Probability};
use fpga_netsim::{
    Flow, PlainSwitch, RateChange, Report, Routing, Scenario, Scheme, Simulation, SlowLink, Topology,
};
use fpga_protocol::Nanos;
use fpga_protocol::feedback::flow::FULL;

/// 32 senders, one receiver, and one host with the controller.
const STAR: Topology = Topology::Tree { arity: 34, levels: 1, up: 1 };
const CONTROLLER: u32 = 33;

fn incast(scheme: Scheme, length: u64) -> Scenario {
    let mut scenario = Scenario::new(1).scheme(scheme).congestion(None).topology(STAR).incast(32, length);
    scenario.limit = Nanos::from_secs(1);
    scenario
}

fn run(scenario: &Scenario) -> Report {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report
}

/// Payload of all flows divided by what the receiver's link could have carried until the last of them had arrived.
fn goodput(scenario: &Scenario, report: &Report, length: u64) -> f64 {
    let last = report.flows.iter().filter_map(|flow| flow.received).max().unwrap();
    let bits = report.flows.len() as f64 * length as f64 * 8.0;
    bits / (scenario.rate.get() as f64 * last.get() as f64 / 1e9)
}

/// Required: payload at nine tenths of the line rate (headers leave 0.9275), the same fairness, and less than a fifth of the drops without
/// feedback. Long flows fill the link without feedback too, by sending each packet two and a half times, or nine times.
fn check_rates_are_fair(schemes: &[Scheme]) {
    let length = 2 << 20;
    for scheme in schemes.iter().copied() {
        let plain = run(&incast(scheme, length));
        let scenario = incast(scheme, length).controller(CONTROLLER);
        let report = run(&scenario);
        let goodputs = [&plain, &report].map(|report| goodput(&scenario, report, length));
        let shares = [&plain, &report].map(|report| report.fairness(length));
        println!("{scheme}: {goodputs:?}, {shares:?}, dropped {}, {}", plain.dropped, report.dropped);
        assert!(report.dropped * 5 < plain.dropped, "{scheme}: {} of {}", report.dropped, plain.dropped);
        assert!(goodputs[1] >= 0.9 && shares[1] >= 0.9, "{scheme}: {goodputs:?}, {shares:?}");
        assert!(!report.rates.is_empty() && plain.rates.is_empty());
    }
}

#[test]
fn feedback_incast_rates_are_fair_with_little_loss() {
    check_rates_are_fair(&[Scheme::AdaptiveWindow]);
}

/// Without feedback, the selective scheme sends most packets.
#[test]
#[ignore = "long: 2 s: both schemes"]
fn feedback_incast_rates_are_fair_with_both_schemes() {
    check_rates_are_fair(&[Scheme::AdaptiveWindow, Scheme::Selective]);
}

/// With other queues, other numbers of senders and other lengths: rates adapt to the capacity and are not tuned to one number.
fn check_nine_tenths(cases: &[(u32, u64, u64)]) {
    for (senders, queue, length) in cases.iter().copied() {
        for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
            let scenario = incast(scheme, length).incast(senders, length).queue(queue).controller(CONTROLLER);
            let report = run(&scenario);
            let (goodput, share) = (goodput(&scenario, &report, length), report.fairness(length));
            println!("{scheme}, {senders} senders, queue {queue}, {length} bytes: {goodput:.4}, {share:.4}");
            assert!(
                goodput >= 0.9 && share >= 0.9,
                "{scheme}, {senders} senders, queue {queue}: {goodput}, {share}"
            );
        }
    }
}

#[test]
fn feedback_incast_uses_nine_tenths_of_line() {
    check_nine_tenths(&[(32, 256 << 10, 512 << 10)]);
}

#[test]
#[ignore = "long: 3 s: long transfers"]
fn feedback_incast_of_long_transfers_uses_nine_tenths_of_line() {
    check_nine_tenths(&[(16, 256 << 10, 2 << 20), (32, 64 << 10, 2 << 20), (32, 1 << 20, 2 << 20)]);
}

/// The first raise within ten round trips of the last packet of the others, and the full link rate within forty.
#[test]
fn feedback_rates_recover_after_congestion() {
    let mut flows: Vec<_> = (1..32).map(|host| Flow::new(host, 0, 1 << 20)).collect();
    flows.push(Flow::new(32, 0, 24 << 20));
    let scenario = incast(Scheme::AdaptiveWindow, 1).flows(flows).controller(CONTROLLER);
    let report = run(&scenario);
    let over = report.flows[..31].iter().filter_map(|flow| flow.received).max().unwrap();
    let trip = scenario.timers_for().get();
    let long: Vec<_> = report.rates.iter().filter(|change| change.from == 32).collect();
    let before = long.iter().rfind(|change| change.at <= over).unwrap();
    assert!(before.rate < FULL, "no congestion before the end of the others");
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

/// Two leaf switches of eight hosts, eight links from each to the one above; every host of the first sends to one of the second. With one
/// route for each pair, some links get more pairs than others.
fn two_leaves(length: u64) -> Scenario {
    let flows = (0..7).map(|host| Flow::new(host, host + 8, length)).collect();
    let mut scenario = Scenario::new(1)
        .congestion(None)
        .scheme(Scheme::AdaptiveWindow)
        .topology(Topology::Tree { arity: 8, levels: 2, up: 8 })
        .routing(Routing::Fixed)
        .flows(flows)
        .queue(96 << 10);
    scenario.limit = Nanos::from_secs(1);
    scenario
}

fn ended(report: &Report) -> Nanos {
    report.flows.iter().filter_map(|flow| flow.received).max().unwrap()
}

/// Pairs share a link by their numbers while parallel links are unused. The controller reroutes pairs to those: packets wait less and
/// everything ends earlier, without slowing any sender down.
#[test]
fn feedback_controller_reroutes_around_congested_link() {
    let plain = run(&two_leaves(4 << 20));
    let report = run(&two_leaves(4 << 20).controller(7));
    println!("{:?} {} {}; {:?} {}", report.links, report.waited, ended(&report), plain.waited, ended(&plain));
    assert!(report.links.active > 0 && report.links.rerouted > 0, "{:?}", report.links);
    assert!(report.waited.get() * 3 < plain.waited.get() * 2, "{} and {}", report.waited, plain.waited);
    assert!(ended(&report).get() * 4 < ended(&plain).get() * 3, "{} and {}", ended(&report), ended(&plain));
    assert!(report.dropped <= plain.dropped);
    // With adaptive routing there is nothing to reroute.
    let adaptive = run(&two_leaves(4 << 20).routing(Routing::Adaptive).controller(7));
    assert_eq!(adaptive.links.rerouted, 0);
}

/// A link at a quarter of the others' rate is below the limit of one half: it reports that although its queue is short, and the pairs whose
/// route contains it leave it.
#[test]
fn feedback_slow_link_reports_rate_and_is_avoided() {
    let two_leaves = |length| two_leaves(length).queue(256 << 10);
    let even = ended(&run(&two_leaves(1 << 20)));
    let mut left = 0;
    for number in 0..8 {
        // The first leaf is vertex 64 of a network of 64 hosts, the switch above the leaves vertex 72.
        let slow = |mut scenario: Scenario| {
            scenario.slow = vec![SlowLink { from: 64, to: 72, number: Some(number), times: 4 }];
            scenario
        };
        let plain = run(&slow(two_leaves(1 << 20)));
        let report = run(&slow(two_leaves(1 << 20).controller(7)));
        println!(
            "link {number}: {:?} {}, {} without, {even} without the slow link",
            report.links,
            ended(&report),
            ended(&plain)
        );
        if plain.waited.get() == report.waited.get() {
            // On no pair's route.
            assert_eq!((report.links.active, ended(&report)), (0, ended(&plain)));
            continue;
        }
        left += 1;
        assert!(report.links.active > 0 && report.links.rerouted > 0, "{:?}", report.links);
        assert!(ended(&report) < ended(&plain), "{} and {}", ended(&report), ended(&plain));
        // Two links on routes show it.
        if left == 2 {
            break;
        }
    }
    assert!(left > 0);
}

/// The rule of the cards: the controller changes no routes and answers each report with LINK_SLOW, switches hash path identifiers, and the
/// senders choose other identifiers. With one identifier they can only lower their rates. A slow link on the route of two pairs.
#[test]
fn feedback_path_identifiers_avoid_slow_link_without_central_routes() {
    let slow = |routing, paths, controller| {
        let mut scenario = two_leaves(1 << 20).routing(routing).paths(paths);
        scenario.slow = vec![SlowLink { from: 64, to: 72, number: Some(3), times: 4 }];
        scenario.controller = controller;
        let report = run(&scenario);
        println!(
            "{routing:?}, {paths} paths, controller {controller:?}: {} {:?}",
            ended(&report),
            report.links
        );
        report
    };
    let kept = slow(Routing::Fixed, 1, None);
    let rerouted = slow(Routing::Fixed, 1, Some(7));
    let one = slow(Routing::Ecmp, 1, Some(7));
    slow(Routing::Ecmp, 1, None);
    slow(Routing::Ecmp, 64, None);
    let many = slow(Routing::Ecmp, 64, Some(7));
    assert!(rerouted.links.rerouted > 0 && one.links.lowered > 0, "{:?}, {:?}", rerouted.links, one.links);
    assert!(many.links.slowed > 0, "{:?}", many.links);
    assert_eq!((many.links.rerouted, many.links.lowered), (0, 0), "{:?}", many.links);
    let [kept, rerouted, many] = [&kept, &rerouted, &many].map(|report| ended(report).get());
    assert!(many * 4 < kept && many <= rerouted, "{many}, {kept}, {rerouted}");
}

/// Late packets make their sender send an inquiry, and every link on the route answers.
#[test]
fn feedback_late_packets_cause_inquiry_and_answers() {
    let scenario = incast(Scheme::AdaptiveWindow, 512 << 10).queue(64 << 10).controller(CONTROLLER);
    let report = run(&scenario);
    println!("{:?}", report.links);
    assert!(report.links.inquiries > 0 && report.links.passive > 0, "{:?}", report.links);
    assert!(report.links.active > 0 && report.links.slowed > 0, "{:?}", report.links);
    assert_eq!((report.links.lost, report.links.rerouted), (0, 0), "{:?}", report.links);
    let quiet = run(&Scenario::new(1 << 20).scheme(Scheme::AdaptiveWindow).controller(0));
    assert_eq!(quiet.links, Default::default(), "inquiries although no packet is late");
}

/// Half of all messages about links are lost, those of hosts and those of links: rates still fall and rise, and everything arrives.
fn check_lost_messages(scheme: Scheme) {
    let length = 512 << 10;
    let half = Conditions::default().loss(Loss::Independent(Probability::one_in(2)));
    let plain = run(&incast(scheme, length).control(half));
    let scenario = incast(scheme, length).controller(CONTROLLER).control(half);
    let report = run(&scenario);
    println!("{scheme}: {:?}, dropped {} and {}", report.links, report.dropped, plain.dropped);
    assert!(report.links.lost > 100 && !report.rates.is_empty(), "{scheme}: {:?}", report.links);
    assert!(report.dropped < plain.dropped, "{scheme}: {} and {}", report.dropped, plain.dropped);
}

#[test]
fn e2_8_feedback_lost_messages_are_repeated() {
    check_lost_messages(Scheme::AdaptiveWindow);
    // 90 % loss of them: the same as no feedback at all, except for the cost of inquiries.
    let all = Conditions::default().loss(Loss::Independent(Probability::new(0.9).unwrap()));
    let scenario = incast(Scheme::AdaptiveWindow, 64 << 10).controller(CONTROLLER).control(all);
    assert_eq!(run(&scenario).failures(), 0);
}

#[test]
#[ignore = "long: 1 s: the scheme that sends most packets without feedback"]
fn e2_8_feedback_lost_messages_of_selective_are_repeated() {
    check_lost_messages(Scheme::Selective);
}

/// A switch without link feedback neither answers nor reports. It forwards the packets, or drops all of them; every flow arrives.
#[test]
fn e2_8_feedback_plain_switch_forwards_or_drops_link_packets() {
    for scheme in [Scheme::AdaptiveWindow, Scheme::Selective] {
        let scenario = incast(scheme, 256 << 10).queue(64 << 10).controller(CONTROLLER);
        for drops in [false, true] {
            let report = run(&scenario.clone().plain_switches(vec![PlainSwitch { vertex: 34, drops }]));
            let links = report.links;
            assert_eq!((links.passive, links.active, links.slowed, links.lowered), (0, 0, 0, 0), "{links:?}");
            assert_eq!(links.dropped, if drops { links.inquiries } else { 0 }, "{scheme}: {links:?}");
            assert!(report.rates.is_empty(), "{scheme}");
        }
    }
    // One of the switches on a route: the others still answer and report.
    let scenario = two_leaves(1 << 20).controller(7);
    let all = run(&scenario).links;
    let some = run(&scenario.plain_switches(vec![PlainSwitch { vertex: 72, drops: true }])).links;
    assert!(some.active > 0 && some.rerouted > 0 && all.rerouted > 0, "{some:?}, {all:?}");
}

/// Packets to a receiver whose rate is lowered leave after all others: the sender's other transfer is slowed at most by the first one's
/// share.
#[test]
fn feedback_slowed_receiver_delays_no_other() {
    let length = 1 << 20;
    let mut flows: Vec<_> = (1..=30).map(|host| Flow::new(host, 0, length)).collect();
    flows.push(Flow { at: Nanos::from_micros(400), ..Flow::new(1, 32, length) });
    let scenario = incast(Scheme::AdaptiveWindow, 1).flows(flows).controller(CONTROLLER);
    let report = run(&scenario);
    let alone = run(&incast(Scheme::AdaptiveWindow, 1).flows(vec![Flow::new(1, 32, length)]));
    let (other, alone) = (report.flows[30].latency().unwrap(), alone.flows[0].latency().unwrap());
    println!("{other}, alone {alone}");
    let rate = report.rates.iter().rfind(|change| change.from == 1 && change.at <= Nanos::from_micros(400));
    assert!(rate.is_some_and(|change| change.to == 0 && change.rate < FULL / 4), "{rate:?}");
    assert!(other.get() * 10 < alone.get() * 13, "{other}, alone {alone}");
}
