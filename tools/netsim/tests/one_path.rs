//! One transfer over one path, compared with arithmetic.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_firmware::wire::{CRC_LENGTH, DATA_HEADER_LENGTH, START_HEADER_LENGTH};
use fpga_netmodel::Order;
use fpga_netsim::{
    BitRate, Flow, FlowReport, Report, Scenario, ScenarioError, Simulation, SimulationError, Topology,
};
use fpga_protocol::Nanos;
use fpga_protocol::sender::{Notify, SenderConfig};

const LENGTHS: [u64; 8] = [1, 511, 512, 513, 16 << 10, (16 << 10) + 1, 1_000_000, 8 << 20];

fn report(scenario: &Scenario) -> Report {
    Simulation::new(scenario).unwrap().run().unwrap()
}

/// The only flow, its time of arrival, and its completion at the sender.
fn run(scenario: &Scenario) -> (FlowReport, Nanos, Nanos) {
    let report = report(scenario);
    assert_eq!(report.failures(), 0, "{report:?}");
    let flow = report.flows[0];
    (flow, flow.received.unwrap(), flow.completed.unwrap())
}

/// Bytes on the wire of a transfer with default geometry: 512-byte packets, segments of 32.
fn wire_bytes(length: u64) -> u64 {
    let (packets, segments) = (length.div_ceil(512), length.div_ceil(16 << 10));
    let per_packet = (DATA_HEADER_LENGTH + CRC_LENGTH) as u64;
    length + packets * per_packet + segments * (START_HEADER_LENGTH - DATA_HEADER_LENGTH) as u64
}

/// Path whose bandwidth-delay product is far below the op table's packets, so that the link never idles.
fn in_order(length: u64, gbps: u64, delay: u64) -> Scenario {
    Scenario::new(length).congestion(None).rate(BitRate::from_gbps(gbps)).delay(Nanos::new(delay))
}

#[test]
fn path_in_order_time_is_delay_plus_bytes_over_rate() {
    for (gbps, delay) in [(1, 100), (10, 5_000), (25, 300), (100, 1_000)] {
        for length in LENGTHS {
            let scenario = in_order(length, gbps, delay);
            let report = report(&scenario);
            let flow = report.flows[0];
            assert_eq!((flow.packets, flow.retransmits), (length.div_ceil(512), 0));
            assert_eq!(report.hosts[0].bytes, wire_bytes(length));
            assert_eq!(report.hosts[1].written, length);
            let expected = scenario.rate.time_of(wire_bytes(length)).saturating_add(scenario.delay);
            let packet = scenario.rate.time_of(604);
            let apart = flow.received.unwrap().get().abs_diff(expected.get());
            assert!(
                apart <= packet.get(),
                "{length} bytes at {gbps} Gbit/s, {delay} ns: {report:?}, not {expected}"
            );
            assert_eq!(report.hosts[1].escape_high_water, 0, "a packet overtook another");
        }
    }
}

#[test]
fn path_receiver_completes_one_way_before_sender() {
    for length in LENGTHS {
        let scenario = in_order(length, 100, 1_000);
        let (_, received, completed) = run(&scenario);
        // Added to the delay: the acknowledgement's own time on the wire, and that of the few that may be queued before it.
        let lag = completed.saturating_sub(received).saturating_sub(scenario.delay);
        assert!(lag > Nanos::ZERO && lag < Nanos::new(50), "{length} bytes: {received}, {completed}");

        // With notification by the sender, the receiving application waits for the round trip.
        let (_, notified, completed) = run(&scenario.clone().notify(Notify::Sender));
        assert!(notified > completed, "{length} bytes: {notified}");
        let extra = notified.saturating_sub(received);
        assert!(extra >= scenario.delay.saturating_mul(2), "{length} bytes: {extra}");
    }
}

#[test]
fn path_small_op_table_acts_as_window() {
    let mut sender = SenderConfig::default();
    sender.op_entries = 64;
    sender.ops_per_destination = 64;
    let scenario = in_order(4 << 20, 100, 10_000).sender(sender);
    let (flow, ..) = run(&scenario);
    // One eighth of the table is reserved for regular commands: 56 packets of 512 bytes per round trip of 20 us.
    let window = BitRate::of(56 * 512, Nanos::from_micros(20));
    let goodput = flow.goodput(4 << 20);
    assert!(goodput <= window, "{goodput} above {window}");
    assert!(goodput.get() > window.get() * 9 / 10, "{goodput} below {window}");
}

#[test]
fn path_same_seed_repeats_run_other_seed_differs() {
    let random = |seed| {
        let order = Order::Random { depth: 48, patience: Nanos::from_micros(3) };
        report(&in_order(1_000_000, 100, 1_000).order(order).seed(seed))
    };
    let first = random(7);
    assert_eq!(first, random(7));
    assert_ne!(first, random(8));
    assert_eq!(first.flows[0].packets, 1954);
    assert!(
        first.hosts[1].escape_high_water > 0,
        "no packet arrived before the start packet of its segment: {first:?}"
    );
    // Reordering costs time, but nothing is lost: only packets without a slot in the escape channel are retransmitted.
    let (straight, ..) = run(&in_order(1_000_000, 100, 1_000));
    assert!(first.flows[0].received > straight.received);
}

#[test]
fn path_script_with_partial_last_block_ends() {
    let (flow, ..) = run(&in_order(10_000, 100, 1_000).order(Order::Script(vec![2, 0, 1])));
    // The probe for the last packets fills their block.
    assert_eq!((flow.packets, flow.retransmits), (20, 1));
}

#[test]
fn path_invalid_scenario_is_refused() {
    let refused = |scenario: &Scenario| Simulation::new(scenario).unwrap_err();
    assert_eq!(refused(&Scenario::new(0)), ScenarioError::Length { number: 0, found: 0 }.into());
    assert_eq!(refused(&Scenario::new(1).rate(BitRate::new(0))), ScenarioError::NoRate.into());
    assert_eq!(refused(&Scenario::new(1).flows(Vec::new())), ScenarioError::NoFlow.into());
    let endless = Scenario::new(u64::MAX);
    assert!(matches!(refused(&endless), SimulationError::Scenario(ScenarioError::Length { .. })));
    let elsewhere = ScenarioError::Host { number: 0, key: "to", found: 2, last: 1 };
    assert_eq!(refused(&Scenario::new(1).flows(vec![Flow::new(0, 2, 1)])), elsewhere.into());
    let itself = ScenarioError::Itself { number: 0, host: 1 };
    assert_eq!(refused(&Scenario::new(1).flows(vec![Flow::new(1, 1, 1)])), itself.into());
    let flat = refused(&Scenario::new(1).topology(Topology::Torus { side: 1 }));
    assert_eq!(flat.to_string(), "topology: side = 1: give 2 to 32");
    let order = Order::Random { depth: 0, patience: Nanos::ZERO };
    let error = refused(&Scenario::new(1).order(order));
    assert!(matches!(error, SimulationError::Scenario(ScenarioError::Order(_))), "{error}");
    let mut sender = SenderConfig::default();
    sender.packet_size_log2 = 40;
    assert!(matches!(refused(&Scenario::new(1).sender(sender)), SimulationError::Scenario(_)));
}

#[test]
fn path_longer_than_give_up_time_is_reported() {
    let report = report(&Scenario::new(100).delay(Nanos::from_secs(1)));
    assert_eq!(report.failures(), 1);
    assert!(report.flows[0].error.is_some(), "{report:?}");
}

/// No loss, no disorder: whatever the round trip, only the probes of the first one are retransmissions.
#[test]
fn path_of_any_round_trip_retransmits_only_first_probes() {
    for delay in [1_000, 50_000, 500_000, 1_000_000, 10_000_000] {
        let mut scenario = Scenario::new(1 << 20).rate(BitRate::from_gbps(100)).delay(Nanos::new(delay));
        scenario.limit = Nanos::from_secs(60);
        let report = report(&scenario);
        assert_eq!(report.failures(), 0, "{delay} ns: {report:?}");
        let repeated = report.flows[0].retransmits;
        assert!(repeated <= 16, "{delay} ns: {repeated} retransmissions of 2048 packets");
    }
}
