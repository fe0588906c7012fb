//! What the registry scheme reaches where packets are lost, reordered and far away.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may as well stop")]

use fpga_core::Nanos;
use fpga_core::impair::{Conditions, Loss, Order, Probability};
use fpga_core::receiver::ReceiverConfig;
use fpga_core::sender::{Notify, SenderConfig};
use fpga_firmware::Incarnation;
use fpga_netsim::scenario::RECEIVER;
use fpga_netsim::{BitRate, FlowReport, Scenario, Simulation};

const SIZE: u64 = 16 << 20;

fn run(scenario: &Scenario) -> FlowReport {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{report:?}");
    report.flows[0]
}

/// 10 GB/s, 800 ns one way, and room for the packets of many round trips.
fn link(size: u64) -> Scenario {
    let mut sender = SenderConfig::default();
    sender.op_entries = 4096;
    Scenario::new(size).rate(BitRate::from_gbps(80)).delay(Nanos::new(800)).sender(sender)
}

fn lossy(scenario: Scenario, loss: f64) -> Scenario {
    let conditions = Conditions::default().loss(Loss::Independent(Probability::new(loss).unwrap()));
    scenario.data(conditions).control(conditions)
}

/// A frame waits for company no longer than the packets take that may overtake it: 60 ns each.
fn disorder(scenario: Scenario, degree: u32) -> Scenario {
    scenario.order(Order::Degree { degree, patience: Nanos::new(60 * u64::from(degree)) })
}

#[test]
fn goodput_at_half_a_percent_of_loss_and_disorder_64() {
    let ideal = run(&link(SIZE));
    for seed in 0..8 {
        let found = run(&lossy(disorder(link(SIZE), 64), 0.005).seed(seed));
        let share = found.goodput(SIZE).get() * 100 / ideal.goodput(SIZE).get();
        assert!(share >= 85, "seed {seed}: {share} %: {found:?}");
    }
}

#[test]
fn next_to_nothing_is_sent_again_for_disorder_alone() {
    for (degree, one_in) in [(16, 1000), (64, 1000), (128, 400)] {
        for seed in 0..8 {
            // Room for the packets that come before their segment's first: with less, they are refused and sent again, which
            // is the escape channel's doing and not the timer's.
            let mut receiver = ReceiverConfig::new(RECEIVER, Incarnation::new(2));
            receiver.escape_slots = 256;
            let found = run(&disorder(link(SIZE), degree).receiver(receiver).seed(seed));
            assert!(
                found.retransmits * one_in < found.packets,
                "degree {degree}, seed {seed}: {} of {}",
                found.retransmits,
                found.packets
            );
        }
    }
}

#[test]
fn the_receivers_own_notice_saves_a_round_trip_at_every_hop_count() {
    let mut before = Nanos::ZERO;
    for hops in 1..=8u64 {
        let way = Nanos::new(800 * hops);
        let scenario = link(4096).delay(way);
        let own = run(&scenario).received.unwrap();
        let told = run(&scenario.notify(Notify::Sender)).received.unwrap();
        let saved = told.saturating_sub(own);
        // The acknowledgement's way back and the notice's way there, with their own time on the link.
        let beyond = saved.saturating_sub(way.saturating_mul(2));
        assert!(saved >= way.saturating_mul(2) && beyond < Nanos::new(200), "{hops} hops: {own} and {told}");
        assert!(saved > before);
        before = saved;
    }
}
