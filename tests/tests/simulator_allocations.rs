//! Senders and receivers of every scheme, the links between them and the event queue allocate nothing per packet: their memory is allocated
//! with their tables, before the first packet.
//!
//! Counted is a whole transfer, from its first packet to its last answer, with all effects of loss and reordering: timeouts, refusals,
//! packets that wait for the first one of their segment, and duplicates.
#![expect(clippy::unwrap_used, reason = "a panic is the failure report")]

use fpga_firmware::Incarnation;
use fpga_netmodel::{Conditions, Delay, Loss, Order, Probability};
use fpga_netsim::scenario::RECEIVER;
use fpga_netsim::{Report, Scenario, Scheme, Simulation, Topology};
use fpga_pci::testing::CountingAllocator;
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::sender::{Notify, SenderConfig};

const LENGTH: u64 = 4 << 20;

/// Runs a scenario and asserts that it allocates nothing.
fn run(scenario: &Scenario) -> Report {
    let simulation = Simulation::new(scenario).unwrap();
    let (allocations, report) = CountingAllocator::count(|| simulation.run());
    let report = report.unwrap();
    assert_eq!(report.failures(), 0, "{scenario:?}: {report:?}");
    assert_eq!(allocations, 0, "{scenario:?}: {report:?}");
    report
}

fn orders() -> [Order; 3] {
    let patience = Nanos::from_micros(4);
    [Order::InOrder, Order::Random { depth: 64, patience }, Order::Degree { degree: 64, patience }]
}

/// Adds loss of `percent`, damage and duplicates for packets and answers alike.
fn with_impairments(scenario: Scenario, percent: f64) -> Scenario {
    let probability = |percent: f64| Probability::new(percent / 100.0).unwrap();
    let conditions = Conditions::default()
        .loss(Loss::Independent(probability(percent)))
        .copies(probability(percent), Delay::Constant(Nanos::from_micros(3)))
        .damage(probability(percent / 10.0));
    scenario.data(conditions).control(conditions)
}

#[test]
fn simulator_packet_in_any_order_allocates_nothing() {
    for order in orders() {
        for length in [1, 700, 16 << 10, LENGTH] {
            let report = run(&Scenario::new(length).order(order.clone()).seed(length));
            assert_eq!(report.flows[0].packets, length.div_ceil(512));
        }
    }
}

#[test]
fn simulator_lost_or_duplicated_packet_allocates_nothing() {
    for order in orders() {
        for (percent, seed) in [(0.5, 1), (5.0, 2), (20.0, 3)] {
            let scenario = with_impairments(Scenario::new(LENGTH), percent).order(order.clone()).seed(seed);
            let report = run(&scenario.clone());
            assert!(report.flows[0].retransmits > report.flows[0].packets / 500, "{report:?}");
            run(&scenario.notify(Notify::Sender));
        }
    }
}

#[test]
fn simulator_refused_packet_allocates_nothing() {
    for order in orders() {
        let mut sender = SenderConfig::default();
        sender.op_entries = 128;
        let mut receiver = ReceiverConfig::new(RECEIVER, Incarnation::new(2));
        receiver.registry_entries = 1;
        receiver.escape_slots = 2;
        receiver.packet_events = true;
        let scenario = with_impairments(Scenario::new(LENGTH), 1.0)
            .order(order)
            .seed(4)
            .sender(sender)
            .receiver(receiver);
        let report = run(&scenario);
        assert_eq!((report.hosts[1].registry_high_water, report.hosts[1].escape_high_water), (1, 2));
        assert!(report.hosts[0].timeouts > 0 && report.hosts[0].refusals > 0, "{report:?}");
        assert!(report.flows[0].retransmits > report.flows[0].packets / 20, "{report:?}");
    }
}

#[test]
fn simulator_packet_of_other_schemes_allocates_nothing() {
    for scheme in [
        Scheme::ReceiverWindow,
        Scheme::SenderWindow,
        Scheme::ReceiverCounter,
        Scheme::AdaptiveWindow,
        Scheme::Selective,
    ] {
        for order in orders() {
            let scenario = Scenario::new(256 << 10).scheme(scheme).order(order).seed(5);
            run(&scenario);
            let report = run(&with_impairments(scenario, 1.0));
            assert!(report.flows[0].retransmits > 0, "{scheme}: {report:?}");
        }
    }
}

#[test]
fn simulator_packet_through_switches_allocates_nothing() {
    for topology in [Topology::Torus { side: 3 }, Topology::Tree { arity: 4, levels: 2, up: 2 }] {
        for scheme in [Scheme::Registry, Scheme::Selective] {
            run(&Scenario::new(1).scheme(scheme).topology(topology).permutation(64 << 10));
        }
    }
}
