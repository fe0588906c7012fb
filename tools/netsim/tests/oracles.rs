//! Arithmetic results for the schemes, without any parameter to tune.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue may as well stop")]

use fpga_netmodel::{Conditions, Loss, Probability};
use fpga_netsim::scheme::sender_window::SenderWindowConfig;
use fpga_netsim::{BitRate, FlowReport, Scenario, Scheme, Simulation};
use fpga_protocol::Nanos;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::receiver_window;

const PACKET: u64 = 512;

fn run(scenario: &Scenario) -> FlowReport {
    let report = Simulation::new(scenario).unwrap().run().unwrap();
    assert_eq!(report.failures(), 0, "{scenario:?}: {report:?}");
    report.flows[0]
}

/// 10 GB/s and 800 ns one way: about 31 packets per round trip. Only data is lost, as in source 004.
fn path(packets: u64, loss: f64) -> Scenario {
    let conditions = Conditions::default().loss(Loss::Independent(Probability::new(loss).unwrap()));
    Scenario::new(packets * PACKET)
        .congestion(None)
        .rate(BitRate::from_gbps(80))
        .delay(Nanos::new(800))
        .data(conditions)
}

/// Mean of packets sent divided by packets needed, and its standard error.
fn ratio(scheme: Scheme, packets: u64, loss: f64, seeds: u32) -> (f64, f64) {
    let found: Vec<f64> = (0..seeds)
        .map(|seed| {
            let flow = run(&path(packets, loss).scheme(scheme).seed(u64::from(seed) * 7919 + 1));
            assert_eq!(flow.packets, packets);
            1.0 + f64::from(u32::try_from(flow.retransmits).unwrap())
                / f64::from(u32::try_from(packets).unwrap())
        })
        .collect();
    let count = f64::from(seeds);
    let mean = found.iter().sum::<f64>() / count;
    let variance = found.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, (variance / count).sqrt())
}

/// A round succeeds with probability (1-p)^N, so the mean number of rounds is 1 / (1-p)^N: 13.02 for 512 packets and half a percent.
fn check_rounds(cases: &[(u64, f64, u32)]) {
    for (packets, loss, seeds) in cases.iter().copied() {
        let (mean, error) = ratio(Scheme::ReceiverCounter, packets, loss, seeds);
        let expected = (1.0 - loss).powf(f64::from(u32::try_from(packets).unwrap())).recip();
        println!("{packets} packets, loss {loss}: {mean:.3} +- {:.3}, expected {expected:.3}", 1.96 * error);
        // The 95 % confidence interval: the seeds are fixed, so the test is deterministic.
        assert!((mean - expected).abs() <= 1.96 * error, "{mean} +- {error}, not {expected}");
    }
}

#[test]
fn oracle_receiver_counter_takes_expected_rounds() {
    check_rounds(&[(64, 0.005, 2000)]);
}

#[test]
#[ignore = "long: 3 s: long messages"]
fn oracle_receiver_counter_takes_expected_rounds_of_long_messages() {
    check_rounds(&[(512, 0.001, 1500), (512, 0.005, 300)]);
}

/// No scheme can succeed with fewer packets than N / (1-p) on average.
fn check_fewest_packets(cases: &[(u64, f64, u32)]) {
    let schemes = [
        Scheme::Registry,
        Scheme::ReceiverWindow,
        Scheme::SenderWindow,
        Scheme::AdaptiveWindow,
        Scheme::Selective,
    ];
    for scheme in schemes.into_iter().chain([Scheme::ReceiverCounter]) {
        for (packets, loss, seeds) in cases.iter().copied() {
            if scheme == Scheme::ReceiverCounter && loss > 0.01 {
                // 710 rounds.
                continue;
            }
            let (mean, error) = ratio(scheme, packets, loss, seeds);
            let least = 1.0 / (1.0 - loss);
            println!(
                "{scheme:?}, {packets} packets, loss {loss}: {mean:.4} +- {:.4}, least {least:.4}",
                1.96 * error
            );
            assert!(mean >= least - 1.96 * error, "{scheme:?}: {mean} +- {error}, not {least}");
        }
    }
}

/// Without the receiver counter, whose rounds `oracle_receiver_counter_takes_expected_rounds` counts.
#[test]
fn oracle_no_scheme_sends_fewer_than_loss_requires() {
    check_fewest_packets(&[(128, 0.05, 200)]);
}

#[test]
#[ignore = "long: 2 s: long messages"]
fn oracle_no_scheme_sends_fewer_than_loss_requires_of_long_messages() {
    check_fewest_packets(&[(512, 0.005, 200)]);
}

/// A window of W packets and a round trip of R: at most W packets per R, and close to it if the link could carry more.
#[test]
fn oracle_sender_window_is_limited_by_window_per_round_trip() {
    for window in [1, 8, 16, 32] {
        let scenario = path(2048, 0.0).delay(Nanos::from_micros(5));
        let config = SenderWindowConfig { window, ..SenderWindowConfig::new(scenario.timers_for()) };
        let scenario = scenario.rules(config);
        let flow = run(&scenario);
        assert_eq!(flow.retransmits, 0);
        let data = scenario.rate.time_of(PACKET + 88);
        let answer = scenario.rate.time_of(44);
        // The last packets need no answer before the receiver has them.
        let rounds = (2048 - 1) / u64::from(window);
        let least = scenario.delay.saturating_mul(2).saturating_mul(rounds);
        let trip = scenario.delay.saturating_mul(2).saturating_add(data).saturating_add(answer);
        let most = trip.saturating_mul(rounds + 1).saturating_add(data.saturating_mul(u64::from(window)));
        let found = flow.latency().unwrap();
        assert!(found >= least && found <= most, "window {window}: {found}, not {least} to {most}");
    }
}

/// No loss, no reordering, and a window as wide as the round trip: N packets, and the time is the request's round trip, the packets' own
/// time and the delay.
#[test]
fn oracle_receiver_window_loss_free_sends_each_packet_once() {
    for credit in [false, true] {
        for packets in [1, 31, 128, 512, 4096, 10_000] {
            let scenario = path(packets, 0.0);
            let config = receiver_window::ReceiverWindowConfig {
                credit,
                ..receiver_window::ReceiverWindowConfig::new(scenario.timers_for())
            };
            let scenario = scenario.rules(SchemeConfig::ReceiverWindow(config));
            let flow = run(&scenario);
            assert_eq!((flow.packets, flow.retransmits), (packets, 0), "credit {credit}");
            if packets <= 4096 {
                let data = scenario.rate.time_of((PACKET + 40) * packets);
                let asking = scenario.rate.time_of(76 + 44);
                let expected = scenario.delay.saturating_mul(3).saturating_add(data).saturating_add(asking);
                let found = flow.latency().unwrap();
                let apart = found.get().abs_diff(expected.get());
                assert!(apart <= 4, "{packets} packets, credit {credit}: {found}, not {expected}");
            }
        }
    }
}
