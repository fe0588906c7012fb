//! Two links on the loopback interface, and datagrams from unknown senders.

use super::*;
use std::time::{Duration, Instant};

const LOCAL_NODE: NodeId = NodeId::new(1);
const REMOTE_NODE: NodeId = NodeId::new(2);

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Creates a link that accepts any sender, and one that has it as a peer.
fn pair() -> (UdpLink, UdpLink) {
    let first = UdpLink::bind(UdpLinkOptions::new(loopback())).unwrap();
    let second = UdpLink::bind(UdpLinkOptions::new(loopback()).peer(first.local())).unwrap();
    (first, second)
}

fn frame(source: NodeId, destination: NodeId, byte: u8) -> Vec<u8> {
    let head = [0, source.get(), destination.get()].into_iter().flat_map(u32::to_le_bytes);
    head.chain([byte; 20]).collect()
}

/// Returns the frame that arrives for the node within a minute.
fn arrives(link: &mut UdpLink, node: NodeId) -> Option<Vec<u8>> {
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(60) {
        if let Some(frame) = link.receive(|other| other == node) {
            return Some(frame.to_vec());
        }
        std::thread::yield_now();
    }
    None
}

#[test]
fn udp_link_learns_node_from_first_frame() {
    let (mut first, mut second) = pair();
    // No addresses are known yet, and the first end has no peers.
    first.send(&frame(LOCAL_NODE, REMOTE_NODE, 0));
    assert_eq!((first.counters.flooded, first.counters.sent), (1, 0));
    second.send(&frame(REMOTE_NODE, LOCAL_NODE, 1));
    assert_eq!(arrives(&mut first, LOCAL_NODE), Some(frame(REMOTE_NODE, LOCAL_NODE, 1)));
    first.send(&frame(LOCAL_NODE, REMOTE_NODE, 2));
    assert_eq!(arrives(&mut second, REMOTE_NODE), Some(frame(LOCAL_NODE, REMOTE_NODE, 2)));
    assert_eq!((first.counters.sent, second.counters.received), (1, 1));
    assert_eq!((second.counters.flooded, second.counters.malformed), (1, 0));
}

#[test]
fn udp_link_invalid_datagram_is_counted_and_dropped() {
    let (mut first, mut second) = pair();
    let unknown_peer = UdpSocket::bind(loopback()).unwrap();
    let mut good = Vec::new();
    wrapper::wrap(&frame(LOCAL_NODE, REMOTE_NODE, 3), &mut good).unwrap();
    // Not its peer.
    unknown_peer.send_to(&good, second.local()).unwrap();
    // To the link that accepts any sender: invalid, too long, for another node, and from itself.
    for bytes in [&b""[..], b"hello", &good[..20], &[0; 1500]] {
        unknown_peer.send_to(bytes, first.local()).unwrap();
    }
    for (source, destination) in [(REMOTE_NODE, NodeId::new(9)), (LOCAL_NODE, LOCAL_NODE)] {
        let mut bytes = Vec::new();
        wrapper::wrap(&frame(source, destination, 0), &mut bytes).unwrap();
        unknown_peer.send_to(&bytes, first.local()).unwrap();
    }
    // The last one is valid: the others came before it.
    second.send(&frame(REMOTE_NODE, LOCAL_NODE, 4));
    assert_eq!(arrives(&mut first, LOCAL_NODE), Some(frame(REMOTE_NODE, LOCAL_NODE, 4)));
    assert_eq!((first.counters.malformed, first.counters.misdirected, first.counters.received), (4, 2, 1));
    first.send(&frame(LOCAL_NODE, REMOTE_NODE, 5));
    assert_eq!(arrives(&mut second, REMOTE_NODE), Some(frame(LOCAL_NODE, REMOTE_NODE, 5)));
    assert_eq!((second.counters.unknown_senders, second.counters.received), (1, 1));
}

#[test]
fn udp_link_invalid_options_are_refused() {
    let (first, _second) = pair();
    let taken = UdpLink::bind(UdpLinkOptions::new(first.local())).unwrap_err();
    assert!(matches!(taken, LinkError::Bind { .. }), "{taken}");
    let elsewhere = UdpLink::bind(UdpLinkOptions::new("192.0.2.1:7".parse().unwrap())).unwrap_err();
    assert!(matches!(elsewhere, LinkError::Bind { .. }), "{elsewhere}");
    for (peer, family) in [("[::1]:7", true), ("127.0.0.1:0", false), ("0.0.0.0:7", false)] {
        let error = UdpLink::bind(UdpLinkOptions::new(loopback()).peer(peer.parse().unwrap())).unwrap_err();
        assert_eq!(matches!(error, LinkError::Family { .. }), family, "{error}");
        assert_eq!(matches!(error, LinkError::Peer { .. }), !family, "{error}");
    }
}

#[test]
fn udp_link_largest_frame_follows_mtu() {
    let four = UdpLinkOptions::new(loopback());
    let six = UdpLinkOptions::new("[::1]:0".parse().unwrap());
    // 1500 less 20 or 40, 8 and 16.
    assert_eq!(four.largest_datagram() - WRAPPER_LENGTH, 1456);
    assert_eq!(six.largest_datagram() - WRAPPER_LENGTH, 1436);
    assert_eq!(four.clone().mtu(4232).largest_datagram() - WRAPPER_LENGTH, 4188);
    assert_eq!(four.clone().mtu(1 << 20).largest_datagram(), MAX_DATAGRAM);
    assert_eq!(four.mtu(10).largest_datagram(), 0);
}

/// Lengths that share a system call and lengths that cannot, to one peer and to two.
#[test]
fn udp_link_frames_of_a_batch_arrive_in_order() {
    let (mut first, mut second) = pair();
    let mut third = UdpLink::bind(UdpLinkOptions::new(loopback()).peer(first.local())).unwrap();
    let third_node = NodeId::new(3);
    second.send(&frame(REMOTE_NODE, LOCAL_NODE, 0));
    third.send(&frame(third_node, LOCAL_NODE, 0));
    for _ in 0..2 {
        assert!(arrives(&mut first, LOCAL_NODE).is_some());
    }
    let frames: Vec<_> = (0..200_u8)
        .map(|number| {
            let node = if number % 50 < 40 { REMOTE_NODE } else { third_node };
            let length = [500, 500, 500, 500, 900, 20, 500][usize::from(number) % 7];
            let head = [0, LOCAL_NODE.get(), node.get()].into_iter().flat_map(u32::to_le_bytes);
            let frame: Vec<u8> = head.chain(std::iter::repeat_n(number, length)).collect();
            (node, frame)
        })
        .collect();
    frames.iter().for_each(|(_, frame)| first.queue(frame));
    first.flush();
    for (node, frame) in &frames {
        let link = if *node == REMOTE_NODE { &mut second } else { &mut third };
        assert_eq!(arrives(link, *node).as_ref(), Some(frame));
    }
    assert_eq!((first.counters.sent, first.counters.unsent), (200, 0));
}
