//! Link feedback between cards: a congested hop lowers the rate towards the node behind it, and hops without feedback do no harm.

use fpga_diag::inspect::Inspect as _;
use fpga_diag::inspect::{FULL_RATE, RateView};
use fpga_netmodel::{BitRate, Rate};
use fpga_rdma::LinkFeedback;
use fpga_sim::{HopFeedback, HopRoute, SimHop, SimNetwork};

use super::*;

const ROUND_TRIP: Nanos = Nanos::from_micros(20);
/// Nodes: sender, receiver behind the hops, and controller.
const RECEIVER: NodeId = NodeId::new(2);
const CONTROLLER: NodeId = NodeId::new(3);
const LENGTH: usize = 1 << 20;

fn hop(link: u32, gbps: u64, queue: Nanos) -> SimHop {
    let rate = Rate { rate: BitRate::from_gbps(gbps), queue };
    SimHop::new(RECEIVER, link, rate).line(BitRate::from_gbps(100)).round_trip(ROUND_TRIP)
}

/// Three nodes under `scheme` with link feedback, and these hops in front of the second.
fn controlled(scheme: Scheme, hops: &[SimHop], controller: Option<NodeId>) -> Testbed {
    let mut network = SimNetwork::builder();
    for hop in hops {
        network = network.hop(hop.clone());
    }
    let mut feedback = LinkFeedback::default();
    feedback.controller = controller;
    Testbed::joined(3, &CardDescription::default(), network, |mut options| {
        options.scheme = scheme;
        options.round_trip = ROUND_TRIP.into();
        options.link_feedback = Some(feedback);
        options
    })
}

/// Rates of the node that sends, by its host or by its card.
fn rates(net: &mut Testbed, scheme: Scheme) -> Vec<RateView> {
    if scheme == Scheme::Registry { net.end(0).rates() } else { net.end(0).tables().rates().unwrap() }
}

fn rate(net: &mut Testbed, scheme: Scheme, node: NodeId) -> u32 {
    rates(net, scheme).iter().find(|view| view.node == node).map_or(FULL_RATE, |view| view.rate)
}

/// Polls all ends and runs the cards until the first one has a completion; calls `look` meanwhile.
fn run_until_complete(net: &mut Testbed, mut look: impl FnMut(&mut Testbed)) {
    for _ in 0..2_000_000 {
        let work: usize = (0..3).map(|index| net.poll(index).unwrap()).sum();
        let stepped = (0..8).filter(|_| net.network.step()).count();
        look(net);
        if !net.completions[0].is_empty() {
            return;
        }
        if work == 0 && stepped == 0 {
            net.network.advance(Nanos::from_micros(1));
        }
    }
    panic!("the transfer does not end: {net:?}");
}

/// Sends `LENGTH` bytes to the node behind the hops, and returns the lowest rate towards it on the way.
fn lowest_rate(net: &mut Testbed, scheme: Scheme) -> u32 {
    let region = net.end(1).open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    let data = bytes(7, LENGTH);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region, 0, LENGTH as u64);
    let (mut lowest, mut number) = (FULL_RATE, 0);
    run_until_complete(net, |net| {
        number += 1;
        if number % 64 == 0 {
            for view in rates(net, scheme) {
                assert!(view.node == RECEIVER || !view.is_controlled(), "{view:?}");
                lowest = lowest.min(view.rate);
            }
        }
    });
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    net.settle();
    assert!(net.get(1, TARGET, LENGTH) == data, "{scheme}: different data");
    lowest
}

/// The queue of the hop fills up, its reports reach the controller, and the controller asks the sender to slow down: the controlled list
/// names the receiver. After the congestion the rate is raised again.
#[test]
fn feedback_congested_hop_lowers_rate_which_rises_again() {
    for scheme in [Scheme::Registry, Scheme::AdaptiveWindow, Scheme::Selective] {
        // Only its queue counts: its rate is that of the line.
        let hop = hop(7, 4, Nanos::from_micros(60)).controller(CONTROLLER).line(BitRate::from_gbps(4));
        let mut net = controlled(scheme, &[hop], Some(CONTROLLER));
        let lowest = lowest_rate(&mut net, scheme);
        let hop = net.network.hop_counters(0).unwrap();
        let (sender, controller) =
            (net.end(0).tables().counters().unwrap(), net.end(2).tables().counters().unwrap());
        println!("{scheme}: lowest rate {lowest} of {FULL_RATE}, {hop:?}\n{sender:?}\n{controller:?}");
        assert!(lowest < FULL_RATE / 2, "{scheme}: {lowest}");
        assert!(hop.active > 0, "{scheme}: {hop:?}");
        assert!(controller.link_active_received > 0 && controller.link_slow_sent > 0, "{controller:?}");
        assert!(sender.link_slow_received > 0, "{sender:?}");
        // Short transfers do not fill the queue.
        let region = net.region(1, at(TARGET, 1 << 21), 4096).remote;
        for _ in 0..1500 {
            if rate(&mut net, scheme, RECEIVER) == FULL_RATE {
                break;
            }
            net.send(0, SOURCE, &region, 0, 512);
            // Polled as often as before: a host that polls late measures long delays.
            run_until_complete(&mut net, |_| ());
            assert!(net.completions[0].drain(..).all(|done| done.result == Ok(())), "{scheme}");
            net.settle();
            net.network.advance(ROUND_TRIP);
        }
        assert_eq!(rate(&mut net, scheme, RECEIVER), FULL_RATE, "{scheme}");
        net.assert_clean();
    }
}

/// Without a controller, the sender reacts to the answers of its own inquiries.
#[test]
fn feedback_inquiry_answers_lower_rate() {
    for scheme in [Scheme::Registry, Scheme::AdaptiveWindow] {
        // A short queue drops packets.
        let mut net = controlled(scheme, &[hop(7, 4, Nanos::from_micros(20))], None);
        let lowest = lowest_rate(&mut net, scheme);
        let hop = net.network.hop_counters(0).unwrap();
        let sender = net.end(0).tables().counters().unwrap();
        println!("{scheme}: lowest rate {lowest} of {FULL_RATE}, {hop:?}\n{sender:?}");
        assert!(lowest < FULL_RATE, "{scheme}: {lowest}");
        assert!(hop.inquiries > 0 && hop.passive > 0 && hop.active == 0, "{scheme}: {hop:?}");
        let sent = u64::from(sender.link_inquiries_sent);
        assert!(sent >= hop.inquiries && sender.link_passive_received > 0, "{scheme}: {sender:?}");
        net.assert_clean();
    }
}

/// Up to two congested links are reported to the controller, which has no other route; with a third one, the sender lowers the rate itself.
#[test]
fn feedback_links_above_threshold_lower_rate_without_controller() {
    for links in [2, 3] {
        // The first one drops packets; all of them are below half of the line rate.
        let queue = |link| Nanos::from_micros(if link == 1 { 20 } else { 200 });
        let hops: Vec<_> = (1..=links).map(|link| hop(link, 4, queue(link))).collect();
        let mut net = controlled(Scheme::Registry, &hops, Some(CONTROLLER));
        let lowest = lowest_rate(&mut net, Scheme::Registry);
        let sender = net.end(0).tables().counters().unwrap();
        println!("{links} links: lowest rate {lowest}, {sender:?}");
        assert!(lowest < FULL_RATE && sender.link_active_sent > 0, "{lowest}, {sender:?}");
        assert!(sender.link_slow_received > 0, "{sender:?}");
        let unreported = sender.link_passive_received - sender.link_active_sent;
        assert_eq!(unreported > 0, links > 2, "{links} links: {sender:?}");
        let (lowered, _, inquiries) = net.end(0).sender().unwrap().flow().unwrap().changes();
        assert!(lowered > 0 && inquiries > 0, "{lowered}, {inquiries}");
    }
}

/// Result of a transfer of [`LENGTH`] bytes over two routes, of which the second is slower.
#[derive(Debug)]
struct TwoRoutes {
    /// Virtual time until the completion.
    time: Nanos,
    /// Lowest rate towards the receiver.
    lowest: u32,
    /// Frames on the slow route.
    slow_frames: u64,
    /// Requests of the controller and answers of hops that the sender received.
    reports: u32,
    /// Reports after which the sender of the host avoided a path.
    avoided: u64,
}

/// What the sender learns of the slow route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlowRoute {
    /// Reports of its congestion: the sender avoids it.
    Reported,
    /// The same, but the link claims that no path avoids it: the sender can only lower its rate.
    LastHop,
    /// Nothing: hops do not know link packets.
    Unreported,
}

/// Runs one transfer with 64 path identifiers over routes of 40 Gbit/s and `gbps`.
fn two_routes(scheme: Scheme, controller: bool, gbps: u64, slow_route: SlowRoute) -> TwoRoutes {
    let route = |number: u8, gbps| {
        let hop = hop(number.into(), gbps, Nanos::from_micros(60)).line(BitRate::from_gbps(40));
        let hop = hop.route(HopRoute { number, of: 2 });
        let hop = if controller { hop.controller(CONTROLLER) } else { hop };
        if slow_route == SlowRoute::Unreported { hop.feedback(HopFeedback::Forwards) } else { hop }
    };
    let mut slow = route(1, gbps);
    slow.last_hop = slow_route == SlowRoute::LastHop;
    let network = SimNetwork::builder().hop(route(0, 40)).hop(slow);
    let mut feedback = LinkFeedback::default();
    feedback.controller = controller.then_some(CONTROLLER);
    let mut net = Testbed::joined(3, &CardDescription::default(), network, |mut options| {
        (options.scheme, options.paths) = (scheme, 64);
        options.round_trip = ROUND_TRIP.into();
        options.link_feedback = Some(feedback);
        options
    });
    let region = net.end(1).open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    let data = bytes(7, LENGTH);
    net.put(0, SOURCE, &data);
    let start = net.network.now();
    net.send(0, SOURCE, &region, 0, LENGTH as u64);
    let (mut lowest, mut number) = (FULL_RATE, 0);
    run_until_complete(&mut net, |net| {
        number += 1;
        if number % 64 == 0 {
            lowest = lowest.min(rate(net, scheme, RECEIVER));
        }
    });
    let time = net.network.now().saturating_sub(start);
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()));
    net.settle();
    assert!(net.get(1, TARGET, LENGTH) == data, "{scheme}: different data");
    net.assert_clean();
    let slow_frames = net.network.hop_counters(1).unwrap().frames;
    let counters = net.end(0).tables().counters().unwrap();
    let reports = counters.link_slow_received + counters.link_passive_received;
    let avoided = net.end(0).sender().and_then(|sender| sender.flow()).map_or(0, |flow| flow.avoided());
    TwoRoutes { time, lowest, slow_frames, reports, avoided }
}

/// A sender with several path identifiers avoids the congested route instead of lowering its rate: after LINK_SLOW of the controller, or after
/// the answer to its own inquiry. `ratio`: how many times as long the transfer takes if it lowers its rate.
#[test]
fn feedback_congested_route_is_avoided_before_rate_is_lowered() {
    for (scheme, controller, gbps, ratio) in [
        (Scheme::Registry, true, 8, 10),
        (Scheme::Registry, false, 4, 1),
        (Scheme::AdaptiveWindow, true, 8, 5),
        (Scheme::Selective, true, 8, 1),
    ] {
        let avoiding = two_routes(scheme, controller, gbps, SlowRoute::Reported);
        let slowing = two_routes(scheme, controller, gbps, SlowRoute::LastHop);
        println!("{scheme}, controller {controller}: {avoiding:?}\n{slowing:?}");
        assert!(avoiding.reports > 0 && slowing.reports > 0, "{scheme}: {avoiding:?}, {slowing:?}");
        assert_eq!(avoiding.avoided > 0, scheme == Scheme::Registry, "{avoiding:?}");
        assert_eq!(slowing.avoided, 0, "{slowing:?}");
        assert!(avoiding.lowest >= FULL_RATE / 2 && slowing.lowest < FULL_RATE / 2, "{scheme}");
        assert!(avoiding.time.get() * ratio < slowing.time.get(), "{scheme}: {avoiding:?}, {slowing:?}");
        if controller {
            // The packets are 2048; without reports, 288 to 651 take the slow route.
            assert!(avoiding.slow_frames < 2048 / 4, "{scheme}: {avoiding:?}");
        }
    }
}

/// Prints the table of docs/guide/many-paths.md: times in us, path avoided / rate lowered / no reports.
#[test]
#[ignore = "long: 3 s: 54 transfers for a table"]
fn feedback_congested_route_at_every_rate() {
    for gbps in [2, 3, 4, 5, 8, 10] {
        let cells = [Scheme::Registry, Scheme::AdaptiveWindow, Scheme::Selective].map(|scheme| {
            let ways = [SlowRoute::Reported, SlowRoute::LastHop, SlowRoute::Unreported];
            let times = ways.map(|way| two_routes(scheme, true, gbps, way).time.get().div_ceil(1000));
            let [avoided, lowered, unreported] = times;
            format!("{avoided} / {lowered} / {unreported}")
        });
        println!("| {gbps} | {} |", cells.join(" | "));
    }
}

/// Hops that do not understand link packets: no rate changes, and everything arrives.
#[test]
fn feedback_hop_without_feedback_forwards_or_drops_without_harm() {
    for scheme in [Scheme::Registry, Scheme::AdaptiveWindow, Scheme::Selective] {
        for feedback in [HopFeedback::Forwards, HopFeedback::Drops] {
            let hop = hop(7, 4, Nanos::from_micros(20)).controller(CONTROLLER).feedback(feedback);
            let mut net = controlled(scheme, &[hop], Some(CONTROLLER));
            assert_eq!(lowest_rate(&mut net, scheme), FULL_RATE, "{scheme}, {feedback:?}");
            let hop = net.network.hop_counters(0).unwrap();
            println!("{scheme}, {feedback:?}: {hop:?}");
            assert!((hop.passive, hop.active) == (0, 0) && hop.overflowed > 0, "{hop:?}");
            assert_eq!(hop.link_packets_dropped > 0, feedback == HopFeedback::Drops && hop.inquiries > 0);
            assert_eq!(hop.inquiries > 0, scheme != Scheme::Selective, "{scheme}: {hop:?}");
            net.assert_clean();
        }
    }
}

/// Without the option, the card ignores link packets, and nothing is sent about links.
#[test]
fn feedback_off_by_default_ignores_link_packets() {
    for scheme in [Scheme::Registry, Scheme::Selective] {
        let hop = hop(7, 4, Nanos::from_micros(20)).controller(NodeId::new(1));
        let mut net =
            Testbed::joined(3, &CardDescription::default(), SimNetwork::builder().hop(hop), |mut options| {
                options.scheme = scheme;
                options
            });
        assert_eq!(lowest_rate(&mut net, scheme), FULL_RATE);
        assert!(net.network.hop_counters(0).unwrap().active > 0, "the hop reports to the sender's node");
        let sender = net.end(0).tables().counters().unwrap();
        assert_eq!((sender.link_active_received, sender.link_inquiries_sent), (0, 0));
        assert!(!net.end(0).tables().link_feedback().unwrap() && net.end(0).link_feedback().is_none());
        net.assert_clean();
    }
}
