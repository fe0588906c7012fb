//! Links of both kinds.

use super::*;
use crate::link::{ShmLinkOptions, UdpLinkOptions};
use std::path::{Path, PathBuf};
use std::time::Instant;

const NODES: [NodeId; 2] = [NodeId::new(1), NodeId::new(2)];

fn both(folder: &Path, name: &str) -> (Link, SocketAddr, PathBuf) {
    let path = folder.join(name);
    let udp = UdpLink::bind(UdpLinkOptions::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = udp.local();
    let shm = ShmLink::bind(&ShmLinkOptions::new(&path)).unwrap();
    (Link::both(shm, udp).unwrap(), address, path)
}

fn frame(from: usize, byte: u8) -> Vec<u8> {
    let head = [0, NODES[from].get(), NODES[1 - from].get()].into_iter().flat_map(u32::to_le_bytes);
    head.chain([byte; 100]).collect()
}

/// Returns the frame that arrives for `node` within a minute.
fn arrives(link: &mut Link, node: NodeId) -> Option<Vec<u8>> {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if let Some(frame) = link.receive(|other| other == node) {
            return Some(frame.to_vec());
        }
        if link.prepare_to_sleep() {
            link.events().wait(Duration::from_millis(100), None);
        }
    }
    None
}

fn send(link: &mut Link, frame: &[u8]) {
    link.queue(frame);
    link.flush();
}

/// A node that was located by one kind is reached by it alone, and its answer finds the way back.
#[test]
fn link_of_both_kinds_uses_the_located_one() {
    let folder = tempfile::tempdir().unwrap();
    let (mut first, ..) = both(folder.path(), "one");
    let (mut second, address, path) = both(folder.path(), "two");
    send(&mut first, &frame(0, 1));
    assert_eq!(first.counters().sent, 0, "a node that was not located");
    for (byte, way) in [(2, LinkAddress::Shm(path)), (3, LinkAddress::Udp(address))] {
        assert!(first.locate(NODES[1], &way));
        let sent = first.counters().sent;
        send(&mut first, &frame(0, byte));
        assert_eq!(first.counters().sent, sent + 1);
        assert_eq!(arrives(&mut second, NODES[1]), Some(frame(0, byte)));
        send(&mut second, &frame(1, byte));
        assert_eq!(arrives(&mut first, NODES[0]), Some(frame(1, byte)));
    }
    assert_eq!(first.counters().malformed + second.counters().malformed, 0);
}

#[test]
fn link_refuses_addresses_of_another_kind() {
    let folder = tempfile::tempdir().unwrap();
    let (mut link, address, path) = both(folder.path(), "one");
    assert!(!link.locate(NODES[1], &LinkAddress::Shm(path.clone())), "its own path");
    assert!(!link.locate(NODES[1], &LinkAddress::Udp("[::1]:9".parse().unwrap())));
    let udp = UdpLinkOptions::new("127.0.0.1:0".parse().unwrap());
    let mut udp = Link::from(UdpLink::bind(udp).unwrap());
    assert!(!udp.locate(NODES[1], &LinkAddress::Shm(path)));
    assert!(udp.locate(NODES[1], &LinkAddress::Udp(address)));
}

/// Frames may be longer than the MTU.
#[test]
fn udp_link_divided_carries_long_frames() {
    let options = UdpLinkOptions::new("127.0.0.1:0".parse().unwrap()).divided();
    let mut first = Link::from(UdpLink::bind(options.clone()).unwrap());
    let second = UdpLink::bind(options).unwrap();
    assert!(first.locate(NODES[1], &LinkAddress::Udp(second.local())));
    let mut second = Link::from(second);
    let mut long = frame(0, 5);
    long.resize(first.largest_frame(), 9);
    assert!(long.len() > 60_000);
    send(&mut first, &long);
    assert!(arrives(&mut second, NODES[1]) == Some(long));
}

/// Paths with the MTU of Ethernet: a frame of the longest packets in many datagrams, none of which is longer.
#[test]
fn udp_link_divided_keeps_to_mtu() {
    let options = UdpLinkOptions::new("127.0.0.1:0".parse().unwrap()).mtu(1500).divided();
    let mut first = Link::from(UdpLink::bind(options.clone()).unwrap());
    let second = UdpLink::bind(options).unwrap();
    assert_eq!(first.payload_to(NODES[1]), None, "a node that was not located");
    assert!(first.locate(NODES[1], &LinkAddress::Udp(second.local())));
    assert_eq!(first.payload_to(NODES[1]), Some(4096));
    let mut second = Link::from(second);
    for (length, datagrams) in [(1456, 1), (1457, 2), (4188, 3), (32_860, 23), (64_000, 45)] {
        let mut long = frame(0, 5);
        long.resize(length, 9);
        let sent = first.counters().sent;
        send(&mut first, &long);
        assert_eq!(first.counters().sent - sent, datagrams, "{length}");
        assert!(arrives(&mut second, NODES[1]) == Some(long), "{length}");
    }
    assert_eq!((second.counters().malformed, second.counters().received), (0, 5));
}

#[test]
fn udp_link_payload_fits_datagrams_of_the_path() {
    for (mtu, payload) in
        [(1500, 4096), (4232, 4096), (8327, 4096), (8328, 8192), (9000, 8192), (40_000, 32_768)]
    {
        let options = UdpLinkOptions::new("127.0.0.1:0".parse().unwrap()).mtu(mtu).divided();
        let mut link = Link::from(UdpLink::bind(options).unwrap());
        assert!(link.locate(NODES[1], &LinkAddress::Udp("127.0.0.1:9".parse().unwrap())));
        assert_eq!(link.payload_to(NODES[1]), Some(payload), "{mtu}");
    }
}
