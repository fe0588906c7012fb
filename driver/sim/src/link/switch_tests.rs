//! Ports of a switch.

use super::*;
use crate::link::UdpLinkOptions;
use crate::link::switch::MAX_WAITING;

const NODES: [NodeId; 3] = [NodeId::new(1), NodeId::new(2), NodeId::new(3)];

fn frame(from: NodeId, to: NodeId, byte: u8) -> Vec<u8> {
    let head = [0, from.get(), to.get()].into_iter().flat_map(u32::to_le_bytes);
    head.chain([byte; 100]).collect()
}

fn receive(link: &mut Link, node: NodeId) -> Option<Vec<u8>> {
    link.receive(|other| other == node).map(<[u8]>::to_vec)
}

#[test]
fn switch_frames_reach_port_of_their_node() {
    let switch = Switch::new();
    let mut ports = NODES.map(|node| Link::on_switch(&switch, node, None).unwrap());
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2)] {
        for byte in 0..200 {
            ports[from].queue(&frame(NODES[from], NODES[to], byte));
        }
        for byte in 0..200 {
            let expected = frame(NODES[from], NODES[to], byte);
            assert_eq!(receive(&mut ports[to], NODES[to]), Some(expected));
        }
        assert_eq!(receive(&mut ports[to], NODES[to]), None);
    }
    assert_eq!(ports[0].counters().sent, 400);
}

#[test]
fn switch_frame_wakes_sleeping_port_once() {
    let switch = Switch::new();
    let [mut one, mut other] = [0, 1].map(|at| Link::on_switch(&switch, NODES[at], None).unwrap());
    assert!(other.prepare_to_sleep());
    other.events().wait(Duration::ZERO, None);
    let sender = std::thread::spawn(move || {
        one.queue(&frame(NODES[0], NODES[1], 7));
        one
    });
    other.events().wait(Duration::from_secs(60), None);
    assert!(receive(&mut other, NODES[1]).is_some());
    let mut one = sender.join().unwrap();
    one.queue(&frame(NODES[0], NODES[1], 8));
    assert!(!other.prepare_to_sleep(), "a frame is there");
    assert!(receive(&mut other, NODES[1]).is_some());
    assert!(other.prepare_to_sleep());
}

#[test]
fn switch_frames_in_name_of_other_node_are_dropped() {
    let switch = Switch::new();
    let [mut one, mut other] = [0, 1].map(|at| Link::on_switch(&switch, NODES[at], None).unwrap());
    one.queue(&frame(NODES[2], NODES[1], 7));
    assert_eq!(receive(&mut other, NODES[1]), None);
    assert_eq!(one.counters().misdirected, 1);
}

#[test]
fn switch_node_has_one_port_and_a_new_one_after_its_end() {
    let switch = Switch::new();
    let [mut one, other] = [0, 1].map(|at| Link::on_switch(&switch, NODES[at], None).unwrap());
    let error = Link::on_switch(&switch, NODES[1], None).unwrap_err();
    assert_eq!(error, LinkError::Port { node: NODES[1] });
    one.queue(&frame(NODES[0], NODES[1], 1));
    drop(other);
    one.queue(&frame(NODES[0], NODES[1], 2));
    assert_eq!(one.counters().unsent, 1);
    let mut next = Link::on_switch(&switch, NODES[1], None).unwrap();
    one.queue(&frame(NODES[0], NODES[1], 3));
    assert_eq!(receive(&mut next, NODES[1]), Some(frame(NODES[0], NODES[1], 3)));
}

#[test]
fn switch_full_port_loses_frames() {
    let switch = Switch::new();
    let [mut one, mut other] = [0, 1].map(|at| Link::on_switch(&switch, NODES[at], None).unwrap());
    for _ in 0..MAX_WAITING + 10 {
        one.queue(&frame(NODES[0], NODES[1], 1));
    }
    assert_eq!((one.counters().sent, one.counters().unsent), (MAX_WAITING as u64, 10));
    assert!(receive(&mut other, NODES[1]).is_some());
}

#[test]
fn switch_outside_link_carries_other_nodes() {
    let bind = |peer: Option<std::net::SocketAddr>| {
        let options = UdpLinkOptions::new("127.0.0.1:0".parse().unwrap());
        UdpLink::bind(peer.into_iter().fold(options, UdpLinkOptions::peer)).unwrap()
    };
    let mut far = bind(None);
    let outside = bind(Some(far.local()));
    let switch = Switch::new();
    let mut one = Link::on_switch(&switch, NODES[0], Some(outside.into())).unwrap();
    one.queue(&frame(NODES[0], NODES[2], 9));
    one.flush();
    let expected = frame(NODES[0], NODES[2], 9);
    while far.receive(|node| node == NODES[2]).is_none_or(|frame| frame != expected) {
        std::thread::yield_now();
    }
}
