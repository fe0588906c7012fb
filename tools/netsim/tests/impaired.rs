//! Performance of the registry scheme with loss, reordering and long distances.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_firmware::Incarnation;
use fpga_netmodel::{Conditions, Loss, Order, Probability};
use fpga_netsim::scenario::RECEIVER;
use fpga_netsim::{BitRate, Report, Scenario, Simulation, notice};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::ReceiverConfig;
use fpga_protocol::sender::{Notify, SenderConfig};

const SIZE: u64 = 16 << 20;

fn run(scenario: &Scenario) -> Report {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report
}

/// 10 GB/s, 800 ns one way, and space for the packets of many round trips.
fn link(size: u64) -> Scenario {
    let mut sender = SenderConfig::default();
    sender.op_entries = 4096;
    Scenario::new(size).rate(BitRate::from_gbps(80)).delay(Nanos::new(800)).sender(sender)
}

fn lossy(scenario: Scenario, loss: f64) -> Scenario {
    let conditions = Conditions::default().loss(Loss::Independent(Probability::new(loss).unwrap()));
    scenario.data(conditions).control(conditions)
}

/// Maximum hold-back time: the time of `degree` packets, 60 ns each.
fn disorder(scenario: Scenario, degree: u32) -> Scenario {
    scenario.order(Order::Degree { degree, patience: Nanos::new(60 * u64::from(degree)) })
}

fn goodput_with_loss_and_disorder(seeds: u64) {
    let ideal = run(&link(SIZE));
    for seed in 0..seeds {
        let found = run(&lossy(disorder(link(SIZE), 64), 0.005).seed(seed));
        let share = found.flows[0].goodput(SIZE).get() * 100 / ideal.flows[0].goodput(SIZE).get();
        assert!(share >= 85, "seed {seed}: {share} %: {found:?}");
    }
}

#[test]
fn goodput_half_percent_loss_disorder_64() {
    goodput_with_loss_and_disorder(3);
}

#[test]
#[ignore = "long: 1 s: every seed"]
fn goodput_half_percent_loss_disorder_64_every_seed() {
    goodput_with_loss_and_disorder(8);
}

/// `part`: of the seeds, one in so many.
fn disorder_alone(part: usize) {
    let usual = SenderConfig::default().op_entries;
    for (degree, entries, seeds) in [(16, usual, 4), (64, usual, 4), (128, usual, 24), (128, 4096, 8)] {
        for seed in (0..seeds).step_by(part) {
            let mut sender = SenderConfig::default();
            sender.op_entries = entries;
            let found = run(&disorder(link(SIZE), degree).sender(sender).seed(seed));
            assert!(
                found.flows[0].retransmits * 1000 < found.flows[0].packets,
                "{degree} overtake one, seed {seed}: {found:?}"
            );
        }
    }
}

#[test]
fn disorder_alone_causes_few_spurious_retransmissions() {
    disorder_alone(12);
}

#[test]
#[ignore = "long: 30 s: every seed"]
fn disorder_alone_causes_few_spurious_retransmissions_every_seed() {
    disorder_alone(1);
}

fn disorder_with_escape_space(seeds: u64) {
    for seed in 0..seeds {
        let mut receiver = ReceiverConfig::new(RECEIVER, Incarnation::new(2));
        receiver.escape_slots = 128;
        let found = run(&disorder(link(SIZE), 128).receiver(receiver).seed(seed));
        assert_eq!(found.hosts[0].refusals, 0);
        assert!(found.flows[0].retransmits * 10_000 < found.flows[0].packets, "seed {seed}: {found:?}");
    }
}

#[test]
fn disorder_with_escape_space_causes_no_retransmission() {
    disorder_with_escape_space(3);
}

#[test]
#[ignore = "long: 30 s: every seed"]
fn disorder_with_escape_space_causes_no_retransmission_every_seed() {
    disorder_with_escape_space(12);
}

#[test]
fn single_entry_tables_are_slow_and_correct() {
    let mut sender = SenderConfig::default();
    (sender.op_entries, sender.transfers, sender.destinations, sender.live_per_destination) = (1, 1, 1, 1);
    (sender.mask_bits, sender.segment_size, sender.big_threshold) = (1, 512, 512);
    let mut receiver = ReceiverConfig::new(RECEIVER, Incarnation::new(2));
    (receiver.registry_entries, receiver.transfers, receiver.sources) = (1, 1, 1);
    (receiver.escape_slots, receiver.tombstones, receiver.windows) = (0, 2, 1);
    for (loss, notify) in [(0.0, Notify::Receiver), (0.05, Notify::Receiver), (0.05, Notify::Sender)] {
        let scenario =
            lossy(disorder(link(100_000), 4), loss).sender(sender).receiver(receiver).notify(notify);
        let found = run(&scenario);
        assert_eq!(
            (found.flows[0].packets, found.hosts[1].registry_high_water, found.hosts[1].escape_high_water),
            (196, 1, 0)
        );
    }
}

#[test]
fn receive_notify_saves_round_trip_at_every_hop_count() {
    for length in [1, 4096, 100_000] {
        let rows = notice::by_hops(&link(length), 8).unwrap();
        assert_eq!(rows.len(), 8);
        let mut share = 0;
        for row in rows {
            // The delay of the acknowledgement and that of the notice, with their own time on the link.
            let beyond = row.saved().saturating_sub(row.round_trip);
            assert!(row.saved() >= row.round_trip && beyond < Nanos::new(200), "{length} bytes: {row:?}");
            // The saving is a larger fraction of longer paths: up to two thirds.
            let found = row.saved().get() * 1000 / row.told.get();
            assert!(found >= share, "{length} bytes: {row:?}");
            share = found;
        }
    }
}
