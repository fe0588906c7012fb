//! Capabilities that nodes report to each other.

use fpga_diag::inspect::Inspect as _;
use fpga_driver::Error;
use fpga_firmware::Incarnation;
use fpga_firmware::generated::{Capabilities, Flags};
use fpga_firmware::wire::{Common, Control, Hello};
use fpga_netmodel::{Conditions, Impairments, Loss, Probability};
use fpga_rdma::{Mismatch, SharedEndpoint};
use fpga_sim::SimNetwork;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(1);

/// Two cards of different builds and their endpoints.
fn different(first: &str, second: &str) -> (SimNetwork, [Endpoint; 2]) {
    let (first, mut second) = (described(first), described(second));
    second.ni.node_id = 2;
    let network = SimNetwork::builder().card(first).card(second).build().unwrap();
    let open = |number: u32| {
        let card = Card::from_backend(network.backend(number as usize)).unwrap();
        Endpoint::open_with(&card, &options(0xA + number)).unwrap()
    };
    let ends = [open(0), open(1)];
    (network, ends)
}

fn mismatch(from: &mut Endpoint, to: &RemoteRegion, length: u64) -> Mismatch {
    match from.send(SOURCE, to, 0, length, SendOptions::default()) {
        Err(Error { kind: SendError::Peer { node, mismatch, .. }, .. }) if node == to.node => mismatch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn peer_query_returns_capabilities() {
    let (_network, [mut a, b]) =
        different("ni: { mask_bits: 32 }", "ni: { mask_bits: 7, packet_size: 1024, commands: 0 }");
    assert_eq!(a.peer(b.node()), None, "the peer was not queried yet");
    let peer = a.wait_peer(b.node(), TIMEOUT).unwrap();
    assert_eq!((peer.node, peer.incarnation, peer.wire_version), (b.node(), b.incarnation(), 4));
    assert_eq!((peer.packet_size_log2, peer.mask_bits, peer.schemes.0), (10, 7, 1));
    assert!(peer.capabilities.contains(Capabilities::EVENT_PUSH));
    assert_eq!(a.peer(b.node()), Some(peer));
    // A node may query itself, and a query is not a transfer.
    assert_eq!(a.wait_peer(a.node(), TIMEOUT).unwrap().mask_bits, 32);
    assert!(a.is_idle());
}

/// A transfer that the peer would refuse is refused before anything is sent; a compatible one is sent.
#[test]
fn peer_incompatible_transfer_is_refused_before_send() {
    let (network, [mut a, mut b]) = different("ni: { mask_bits: 32 }", "ni: { mask_bits: 7 }");
    let region = b.open_region(NodeId::ANY, CardRange::new(TARGET, 1 << 20)).unwrap().remote;
    a.wait_peer(b.node(), TIMEOUT).unwrap();
    for length in [7 * 512 + 1, 8 * 512] {
        let found = mismatch(&mut a, &region, length);
        assert!(matches!(found, Mismatch::Segment { ours: 8, theirs: 7 }), "{found}");
    }
    // Segments of a transfer above the threshold are as short as the node's mask.
    for length in [0, 1, 7 * 512, 1 << 20] {
        let ticket = a.send(SOURCE, &region, 0, length, SendOptions::default()).unwrap();
        assert_eq!(a.wait(ticket, TIMEOUT).unwrap().result, Ok(()), "{length} bytes");
    }
    assert_eq!(b.tables().counters().unwrap().bad_packet, 0);
    drop((a, b, network));

    let (_network, [mut a, mut b]) = different("ni: { packet_size: 512 }", "ni: { packet_size: 1024 }");
    let region = b.open_region(NodeId::ANY, CardRange::new(TARGET, 1000)).unwrap().remote;
    a.wait_peer(b.node(), TIMEOUT).unwrap();
    let found = mismatch(&mut a, &region, 1000);
    assert_eq!(found, Mismatch::PacketSize { ours: 512, theirs: 1024 });
    assert!(found.advice().to_string().contains("same packet size"), "{found}");
    // A sender without a query gets the reason in the refusal.
    a.peer(b.node()).unwrap();
    let region = a.open_region(NodeId::ANY, CardRange::new(TARGET, 1000)).unwrap().remote;
    let ticket = b.send(SOURCE, &region, 0, 1000, SendOptions::default()).unwrap();
    let refused = b.wait(ticket, TIMEOUT).unwrap().result;
    assert!(matches!(refused, Err(SendFailure::Refused { reason: NackReason::BadPacket, .. })));
}

#[test]
fn peer_unknown_scheme_is_refused() {
    let mut second = described("ni: { commands: 0 }");
    second.ni.node_id = 2;
    let network = SimNetwork::builder().card(CardDescription::default()).card(second).build().unwrap();
    let mut by = options(1);
    by.scheme = Scheme::Selective;
    let mut a = Endpoint::open_with(&Card::from_backend(network.backend(0)).unwrap(), &by).unwrap();
    let mut b = Endpoint::open_with(&Card::from_backend(network.backend(1)).unwrap(), &options(2)).unwrap();
    let region = b.open_region(NodeId::ANY, CardRange::new(TARGET, 1000)).unwrap().remote;
    a.wait_peer(b.node(), TIMEOUT).unwrap();
    let found = mismatch(&mut a, &region, 10);
    assert!(matches!(found, Mismatch::Scheme { ours: Scheme::Selective, .. }), "{found}");
}

/// Lost queries and replies are repeated.
#[test]
fn peer_lost_query_is_repeated() {
    let lossy = Conditions::default().loss(Loss::Independent(Probability::new(0.3).unwrap()));
    for seed in 0..8 {
        let mut net = Testbed::impaired(3, Impairments::both(lossy), seed, |options| options);
        for other in [1, 2] {
            let (node, incarnation) = (net.end(other).node(), net.end(other).incarnation());
            assert_eq!(net.end(0).wait_peer(node, TIMEOUT).unwrap().incarnation, incarnation, "seed {seed}");
        }
        net.assert_clean();
    }
}

#[test]
fn peer_absent_node_times_out() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let began = net.network.now();
    let error = net.end(0).wait_peer(NodeId::new(77), Duration::from_millis(20)).unwrap_err();
    assert!(matches!(error.kind, EndpointError::NoPeer { .. }), "{error}");
    assert!(net.network.now().saturating_sub(began) >= Nanos::from_millis(20));
    // The query is sent several times, and then no more.
    let asked = net.network.undeliverable_frames();
    assert!((3..10).contains(&asked), "{asked}");
    net.network.advance(Nanos::from_secs(1));
    net.settle();
    assert_eq!((net.network.undeliverable_frames(), net.end(0).peer(NodeId::new(77))), (asked, None));
    let error = net.end(0).wait_peer(NodeId::ANY, TIMEOUT).unwrap_err();
    assert!(matches!(error.kind, EndpointError::Option { .. }), "{error}");
    // The interface of this node is there, but its endpoint is not open.
    let node = net.end(1).node();
    net.ends[1] = None;
    net.end(0).wait_peer(node, Duration::from_millis(5)).unwrap_err();
}

/// A restarted node has a new incarnation: the cached capabilities of its earlier incarnation are dropped with the first transfer to it
/// that fails.
#[test]
fn peer_restarted_node_is_queried_again() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let region = net.region(1, TARGET, 1000);
    let node = net.end(1).node();
    let before = net.end(0).wait_peer(node, TIMEOUT).unwrap();
    net.carry(SOURCE, &region.remote, 0, &bytes(1, 1000));
    let card = net.end(1).card().clone();
    net.ends[1] = None;
    net.ends[1] = Some(Endpoint::open_with(&card, &options(0xC)).unwrap());
    assert_eq!(net.end(0).peer(node), Some(before), "the restart is not detected yet");
    net.send(0, SOURCE, &region.remote, 0, 1000);
    net.settle();
    assert!(net.completions[0].pop_front().unwrap().result.is_err(), "the region no longer exists");
    assert_eq!(net.end(0).peer(node), None);
    assert_eq!(net.end(0).wait_peer(node, TIMEOUT).unwrap().incarnation, Incarnation::new(0xC));
    // A cancel by the caller does not invalidate what is known of the peer.
    let again = net.region(1, TARGET, 1000);
    let ticket = net.send(0, SOURCE, &again.remote, 0, 1000);
    assert!(net.end(0).cancel(ticket));
    net.settle();
    assert!(net.end(0).peer(node).is_some());
}

/// Replies without a query, and replies from a node that does not exist.
#[test]
fn peer_unsolicited_answer_is_dropped() {
    let mut net = Testbed::new(DeliveryOrder::InOrder);
    let (own, node) = (net.end(0).node(), net.end(1).node());
    let answer = |net: &mut Testbed, from: NodeId, mask_bits| {
        let common = Common {
            source: from,
            destination: own,
            incarnation: Incarnation::new(9),
            flags: Flags::NONE,
            path: 0,
        };
        let hello = Hello {
            common,
            packet_size_log2: 9,
            wire_version: 4,
            mask_bits,
            capabilities: Capabilities::NONE,
            schemes: 1,
            registry_timeout_us: 2_000_000,
        };
        let mut frame = [0; 64];
        let length = Control::HelloReply(hello).encode(&mut frame).unwrap();
        let now = net.network.now();
        net.network.with_card(0, |card| card.receive_frame(now, &frame[..length]));
        net.settle();
    };
    answer(&mut net, NodeId::new(50), 32);
    answer(&mut net, node, 32);
    assert_eq!((net.end(0).peer(NodeId::new(50)), net.end(0).peer(node)), (None, None));
    // Each query accepts one reply.
    net.end(0).wait_peer(node, TIMEOUT).unwrap();
    answer(&mut net, node, 5);
    assert_eq!(net.end(0).peer(node).unwrap().mask_bits, 32);
    net.end(0).query_peer(node, TIMEOUT).unwrap();
    answer(&mut net, node, 5);
    assert_eq!(net.end(0).peer(node).unwrap().mask_bits, 5);
    assert_eq!(net.end(0).counters().faults, 0);
}

/// A sender that would still wait for answers after the receiver's registry timeout is refused.
#[test]
fn peer_give_up_longer_than_registry_timeout_is_refused() {
    let end = |net: &Testbed, index: usize, change: &dyn Fn(&mut EndpointOptions)| {
        let card = Card::from_backend(net.network.backend(index)).unwrap();
        let mut options = options(30 + index as u32);
        change(&mut options);
        Endpoint::open_with(&card, &options).unwrap()
    };
    let patient = |options: &mut EndpointOptions| options.give_up = Duration::from_secs(5);
    let long = |options: &mut EndpointOptions| options.registry_timeout = Some(Duration::from_millis(5_030));
    let usual = |_: &mut EndpointOptions| {};
    let choices: [&dyn Fn(&mut EndpointOptions); 3] = [&usual, &long, &patient];
    for (there, fits) in choices.into_iter().zip([false, true, true]) {
        let mut net = Testbed::new(DeliveryOrder::InOrder);
        net.ends.fill_with(|| None);
        net.ends[0] = Some(end(&net, 0, &patient));
        net.ends[1] = Some(end(&net, 1, there));
        let region = net.region(1, TARGET, 100);
        let node = net.end(1).node();
        net.end(0).wait_peer(node, TIMEOUT).unwrap();
        match net.end(0).send(SOURCE, &region.remote, 0, 100, SendOptions::default()) {
            Ok(_) => assert!(fits),
            Err(Error {
                kind: SendError::Peer { mismatch: Mismatch::Timeout { ours, theirs }, .. }, ..
            }) => {
                assert_eq!((ours, theirs), (Duration::from_millis(5_030), Duration::from_secs(2)));
                assert!(!fits);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn peer_queries_by_threads_and_tasks() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let open = |number: u32| -> SharedEndpoint {
        let card = Card::from_backend(network.backend(number as usize)).unwrap();
        Endpoint::open_with(&card, &options(1 + number)).unwrap().into()
    };
    let (a, b) = (open(0), open(1));
    let peer = a.wait_peer(b.node(), TIMEOUT).unwrap();
    assert_eq!((peer.node, a.peer(b.node())), (b.node(), Some(peer)));
    let error = a.wait_peer(NodeId::new(77), Duration::from_millis(2)).unwrap_err();
    assert!(matches!(error.kind, EndpointError::NoPeer { .. }), "{error}");
}
