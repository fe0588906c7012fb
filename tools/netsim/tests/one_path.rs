//! One transfer over one path, against arithmetic.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may as well stop")]

use fpga_core::Nanos;
use fpga_core::impair::Order;
use fpga_core::sender::{Notify, SenderConfig};
use fpga_firmware::wire::{CRC_LENGTH, DATA_HEADER_LENGTH, START_HEADER_LENGTH};
use fpga_netsim::{BitRate, Report, Scenario, ScenarioError, Simulation, SimulationError};

const LENGTHS: [u64; 8] = [1, 511, 512, 513, 16 << 10, (16 << 10) + 1, 1_000_000, 8 << 20];

fn run(scenario: &Scenario) -> Report {
    Simulation::new(scenario).unwrap().run().unwrap()
}

/// Bytes on the wire of a transfer with default geometry: 512-byte packets, segments of 32.
fn wire_bytes(length: u64) -> u64 {
    let (packets, segments) = (length.div_ceil(512), length.div_ceil(16 << 10));
    let per_packet = (DATA_HEADER_LENGTH + CRC_LENGTH) as u64;
    length + packets * per_packet + segments * (START_HEADER_LENGTH - DATA_HEADER_LENGTH) as u64
}

/// A path whose bandwidth-delay product is well below the op table's worth of packets, so that the link never waits.
fn in_order(length: u64, gbps: u64, delay: u64) -> Scenario {
    Scenario::new(length).rate(BitRate::from_gbps(gbps)).delay(Nanos::new(delay))
}

#[test]
fn in_order_time_is_delay_plus_bytes_over_rate() {
    for (gbps, delay) in [(1, 100), (10, 5_000), (25, 300), (100, 1_000)] {
        for length in LENGTHS {
            let scenario = in_order(length, gbps, delay);
            let report = run(&scenario);
            assert_eq!(report.packets, length.div_ceil(512));
            assert_eq!(report.retransmits, 0);
            assert_eq!(report.bytes_there, wire_bytes(length));
            let expected = scenario.rate.time_of(wire_bytes(length)).saturating_add(scenario.delay);
            let packet = scenario.rate.time_of(604);
            let apart = report.received.get().abs_diff(expected.get());
            assert!(
                apart <= packet.get(),
                "{length} bytes at {gbps} Gbit/s, {delay} ns: {report:?}, not {expected}"
            );
            assert_eq!(report.escape_high_water, 0, "nothing overtakes anything");
        }
    }
}

#[test]
fn the_receiver_knows_one_way_earlier_than_the_sender() {
    for length in LENGTHS {
        let scenario = in_order(length, 100, 1_000);
        let report = run(&scenario);
        // An acknowledgement's own time on the wire comes on top of the way, and the few that may be queued before it.
        let lag = report.completed.saturating_sub(report.received).saturating_sub(scenario.delay);
        assert!(lag > Nanos::ZERO && lag < Nanos::new(50), "{length} bytes: {report:?}");

        // Told by the sender, the receiving application waits for the round trip.
        let told = run(&scenario.clone().notify(Notify::Sender));
        assert!(told.received > told.completed, "{length} bytes: {told:?}");
        let extra = told.received.saturating_sub(report.received);
        assert!(extra >= scenario.delay.saturating_mul(2), "{length} bytes: {extra}");
    }
}

#[test]
fn a_small_op_table_is_a_window() {
    let mut sender = SenderConfig::default();
    sender.op_entries = 64;
    sender.ops_per_destination = 64;
    let scenario = in_order(4 << 20, 100, 10_000).sender(sender);
    let report = run(&scenario);
    // One eighth of the table is kept for regular commands: 56 packets of 512 bytes per round trip of 20 us.
    let window = BitRate::of(56 * 512, Nanos::from_micros(20));
    assert!(report.goodput <= window, "{} above {window}", report.goodput);
    assert!(report.goodput.get() > window.get() * 9 / 10, "{} below {window}", report.goodput);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let random = |seed| {
        let order = Order::Random { depth: 48, patience: Nanos::from_micros(3) };
        run(&in_order(1_000_000, 100, 1_000).order(order).seed(seed))
    };
    let first = random(7);
    assert_eq!(first, random(7));
    assert_ne!(first, random(8));
    assert_eq!(first.packets, 1954);
    assert!(first.escape_high_water > 0, "some packet comes before its segment's first: {first:?}");
    // Disorder costs time, but nothing is lost: only what the escape buffer had no room for is sent again.
    let straight = run(&in_order(1_000_000, 100, 1_000));
    assert!(first.received > straight.received);
}

#[test]
fn a_script_ends_even_where_its_last_block_is_not_full() {
    let report = run(&in_order(10_000, 100, 1_000).order(Order::Script(vec![2, 0, 1])));
    assert_eq!((report.packets, report.retransmits), (20, 0));
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |scenario: &Scenario| Simulation::new(scenario).unwrap_err();
    assert_eq!(refused(&Scenario::new(0)), ScenarioError::Empty.into());
    assert_eq!(refused(&Scenario::new(1).rate(BitRate::new(0))), ScenarioError::NoRate.into());
    let endless = Scenario::new(u64::MAX);
    assert!(matches!(refused(&endless), SimulationError::Submit(_)));
    let order = Order::Random { depth: 0, patience: Nanos::ZERO };
    let error = refused(&Scenario::new(1).order(order));
    assert!(matches!(error, SimulationError::Scenario(ScenarioError::Order(_))), "{error}");
    let mut sender = SenderConfig::default();
    sender.packet_size_log2 = 40;
    assert!(matches!(refused(&Scenario::new(1).sender(sender)), SimulationError::Scenario(_)));
}

#[test]
fn a_path_longer_than_the_senders_patience_is_reported_as_such() {
    let error = Simulation::new(&Scenario::new(100).delay(Nanos::from_secs(1))).unwrap().run().unwrap_err();
    assert!(matches!(error, SimulationError::Transfer { .. }), "{error}");
}
