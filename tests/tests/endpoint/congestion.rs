//! Congestion windows of endpoints: transfers through a slow port without help of the network.

use fpga_netmodel::{BitRate, Rate};
use fpga_sim::{SimHop, SimNetwork};

use super::*;

const RECEIVER: NodeId = NodeId::new(2);
const LENGTH: usize = 1 << 20;

/// Two cards under `scheme`, the second behind a port of 10 Gbit/s with a queue of 50 us (110 packets) that knows no feedback. `windows`: of
/// sender and receiver.
fn network(scheme: Scheme, windows: [bool; 2]) -> Testbed {
    let rate = Rate { rate: BitRate::from_gbps(10), queue: Nanos::from_micros(50) };
    let hop = SimHop::new(RECEIVER, 7, rate).feedback(fpga_sim::HopFeedback::Forwards);
    let node = std::cell::Cell::new(0);
    Testbed::joined(2, &CardDescription::default(), SimNetwork::builder().hop(hop), |mut options| {
        options.scheme = scheme;
        options.congestion = windows[node.replace(1)];
        options
    })
}

/// Sends 1 MiB. Returns the packets sent and those lost.
fn cost(scheme: Scheme, windows: [bool; 2]) -> (u64, u64) {
    let mut net = network(scheme, windows);
    let region = net.region(1, TARGET, LENGTH as u64).remote;
    let data = bytes(3, LENGTH);
    net.put(0, SOURCE, &data);
    net.send(0, SOURCE, &region, 0, LENGTH as u64);
    net.settle();
    assert_eq!(net.completions[0].pop_front().unwrap().result, Ok(()), "{scheme} {windows:?}");
    assert!(net.get(1, TARGET, LENGTH) == data, "{scheme} {windows:?}: different data");
    let hop = net.network.hop_counters(0).unwrap();
    println!("{scheme} {windows:?}: {hop:?}");
    (hop.frames, hop.overflowed)
}

/// 2048 packets. Without windows, each scheme fills the queue and loses many.
#[test]
fn congestion_window_of_every_scheme_avoids_losses() {
    for &scheme in Scheme::ALL {
        let (_, on) = cost(scheme, [true; 2]);
        let (_, off) = cost(scheme, [false; 2]);
        assert!(on * 3 <= off && on <= 2048 / 6, "{scheme}: {on} and {off} packets lost");
    }
}

/// Nodes that disagree are slow, and everything arrives.
#[test]
fn congestion_window_of_one_side_only_delivers() {
    for &scheme in Scheme::ALL {
        cost(scheme, [true, false]);
        cost(scheme, [false, true]);
    }
}
