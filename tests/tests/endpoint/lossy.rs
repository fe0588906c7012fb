//! Networks that lose, duplicate, damage, delay and reorder packets.

use fpga_netmodel::{Blackout, Conditions, Delay, Impairments, Loss, Order, Probability};
use fpga_rdma::SendTimeout;

use super::*;

fn share(part: f64) -> Probability {
    Probability::new(part).unwrap()
}

/// All impairments at a low rate, on data and control packets alike.
fn bad(loss: f64) -> Impairments {
    let delay = Delay::Exponential { least: Nanos::ZERO, mean: Nanos::from_micros(3) };
    let conditions = Conditions::default()
        .loss(Loss::Independent(share(loss)))
        .delay(delay)
        .copies(share(0.05), delay)
        .damage(share(0.01));
    let order = Order::Random { depth: 16, patience: Nanos::from_micros(20) };
    Impairments::both(conditions).order(order).distance(Nanos::new(800))
}

/// Every transfer succeeds, once at each end, and leaves no state behind.
#[test]
fn lossy_network_delivers_every_transfer_once() {
    for (seed, loss) in [(1, 0.02), (2, 0.05), (3, 0.10)] {
        let mut net = Testbed::impaired(3, bad(loss), seed, |options| options);
        let regions: Vec<_> = (0..3).map(|index| net.region(index, TARGET, 8 << 20).remote).collect();
        let mut expected = Vec::new();
        for (n, length) in [1_usize, 600, 16_384, 100_000, 300_000].into_iter().enumerate() {
            for from in 0..3 {
                let (to, place) = ((from + 1 + n % 2) % 3, ((n * 3 + from) as u64) << 19);
                let data = bytes(seed << 8 | place, length);
                net.put(from, at(SOURCE, place), &data);
                net.send(from, at(SOURCE, place), &regions[to], place, length as u64);
                expected.push((to, place, data));
            }
        }
        net.settle();
        for (to, place, data) in expected {
            assert!(net.get(to, at(TARGET, place), data.len()) == data, "seed {seed}: {} bytes", data.len());
            let notices = net.notifications[to].iter().filter(|notice| notice.address == at(TARGET, place));
            assert_eq!(notices.count(), 1, "seed {seed}: notified once");
        }
        let retransmits: u64 = net.ends.iter().flatten().map(|end| end.counters().sender.retransmits).sum();
        assert!(retransmits > 10, "seed {seed}: {retransmits}");
        for completions in &net.completions {
            assert_eq!(completions.len(), 5);
            assert!(completions.iter().all(|done| done.result == Ok(())), "seed {seed}: {completions:?}");
        }
        let lost = net.network.network_counters();
        assert!(lost.data.lost > 0 && lost.control.lost > 0 && lost.data.damaged > 0, "{lost:?}");
        net.assert_clean();
    }
}

#[test]
fn lossy_network_fixed_timeout_with_try_limit_delivers() {
    let fixed = |mut options: EndpointOptions| {
        options.timeout = SendTimeout::Fixed { timeout: Duration::from_micros(300), max_tries: 30 };
        options
    };
    let mut net = Testbed::impaired(2, bad(0.05), 4, fixed);
    let region = net.region(1, TARGET, 1 << 20);
    net.carry(SOURCE, &region.remote, 3, &bytes(1, 200_000));
    net.assert_clean();
}

/// A blackout of ten milliseconds in the middle of a transfer.
#[test]
fn blackout_mid_transfer_is_survived() {
    let mut dark = bad(0.0);
    dark.blackouts = vec![Blackout { from: Nanos::from_micros(100), length: Nanos::from_millis(10) }];
    let mut net = Testbed::impaired(2, dark, 5, |options| options);
    let region = net.region(1, TARGET, 1 << 20);
    net.carry(SOURCE, &region.remote, 0, &bytes(2, 500_000));
    let seen = net.network.network_counters();
    assert!(seen.data.blacked_out > 0, "{seen:?}");
    assert!(net.network.now() > Nanos::from_millis(10));
    net.assert_clean();
}

#[test]
fn lossy_network_delivers_reads() {
    let mut net = Testbed::impaired(2, bad(0.05), 6, |options| options);
    net.put(1, SOURCE, &bytes(1, 400_000));
    let reader = net.end(0).node();
    let source = net.end(1).open_readable(reader, CardRange::new(SOURCE, 400_000)).unwrap().remote;
    for n in 0..8 {
        net.end(0).read(&source, n * 50_000, at(TARGET, n * 50_000), 50_000, SendOptions::default()).unwrap();
    }
    net.settle();
    for _ in 0..8 {
        assert_eq!(net.end(0).next_read().unwrap().result, Ok(()));
    }
    assert!(net.get(0, TARGET, 400_000) == bytes(1, 400_000));
    net.assert_clean();
}

/// The same seed gives the same run, packet by packet.
#[test]
fn lossy_network_same_seed_repeats_run() {
    let run = |seed| {
        let mut net = Testbed::impaired(2, bad(0.05), seed, |options| options);
        let region = net.region(1, TARGET, 1 << 20);
        net.carry(SOURCE, &region.remote, 0, &bytes(2, 200_000));
        (net.network.now(), net.network.network_counters(), net.end(0).counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
