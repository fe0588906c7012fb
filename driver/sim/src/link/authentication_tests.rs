//! Datagrams of ends with and without the key, changed, and sent again.

use super::super::{UdpLink, UdpLinkOptions};
use super::*;
use proptest::prelude::*;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

const LOCAL_NODE: NodeId = NodeId::new(1);
const REMOTE_NODE: NodeId = NodeId::new(2);
const KEY: LinkKey = LinkKey::new([7; 32]);
const OTHER_KEY: LinkKey = LinkKey::new([8; 32]);

fn datagram(source: NodeId, destination: NodeId, rest: &[u8]) -> Vec<u8> {
    let head = [0, source.get(), destination.get()].into_iter().flat_map(u32::to_le_bytes);
    let frame: Vec<u8> = head.chain(rest.iter().copied()).collect();
    let mut bytes = Vec::new();
    wrapper::wrap(&frame, &mut bytes).unwrap();
    bytes
}

fn any_address() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Receives until `count` frames have arrived, at most a minute.
fn receive(link: &mut UdpLink, count: u64) {
    let began = Instant::now();
    while link.counters.received < count && began.elapsed() < Duration::from_secs(60) {
        let _ = link.receive(|node| node == LOCAL_NODE);
        std::thread::yield_now();
    }
    assert_eq!(link.counters.received, count);
}

#[test]
fn authentication_any_changed_bit_is_detected() {
    let (mut sender, mut receiver) = (Authenticator::new(&KEY), Authenticator::new(&KEY));
    let bytes = datagram(REMOTE_NODE, LOCAL_NODE, &[1, 2, 3]);
    let trailer = sender.seal([&bytes, &[], &[]]);
    for bit in 0..8 * (bytes.len() + trailer.len()) {
        let mut changed: Vec<u8> = bytes.iter().chain(&trailer).copied().collect();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (datagram, trailer) = changed.split_at(bytes.len());
        assert_eq!(receiver.check(datagram, trailer), Err(Refused::Tag), "bit {bit}");
    }
    for end in 0..trailer.len() {
        assert_eq!(receiver.check(&bytes, &trailer[..end]), Err(Refused::Tag));
    }
    assert_eq!(Authenticator::new(&OTHER_KEY).check(&bytes, &trailer), Err(Refused::Tag));
    assert_eq!(receiver.check(&bytes, &trailer), Ok(true));
}

/// A datagram that was reordered is accepted, one that somebody sends again later is not, and neither is the newest of its node.
#[test]
fn authentication_old_datagram_is_refused() {
    let (mut sender, mut receiver) = (Authenticator::new(&KEY), Authenticator::new(&KEY));
    let max_age = u64::try_from(MAX_AGE.as_micros()).unwrap();
    let bytes = datagram(REMOTE_NODE, LOCAL_NODE, &[]);
    let mut check = |time| {
        let trailer = sender.seal_at([&bytes, &[], &[]], time);
        receiver.check(&bytes, &trailer)
    };
    let first = 10 * max_age;
    assert_eq!(check(first), Ok(true));
    assert_eq!(check(first), Ok(false));
    assert_eq!(check(first + max_age), Ok(true));
    assert_eq!(check(first), Ok(false));
    assert_eq!(check(first + max_age + 1), Ok(true));
    assert_eq!(check(first), Err(Refused::Old));
    assert_eq!(check(u64::MAX), Ok(true));
    assert_eq!(check(0), Err(Refused::Old));
}

#[test]
fn authentication_times_increase_with_every_datagram() {
    let mut sender = Authenticator::new(&KEY);
    let times: Vec<u64> = (0..1000).map(|_| u64_at(&sender.seal([&[], &[], &[]]), 0).unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Whole frames and frames in parts, in both directions; without the key, nothing arrives.
#[test]
fn udp_link_with_key_accepts_its_peers_only() {
    let open = |key| UdpLink::bind(UdpLinkOptions::new(any_address()).mtu(1500).divided().key(key)).unwrap();
    let mut local = open(Some(KEY));
    let lengths = [0_usize, 1, 1400, 1472, 4000, 32_000];
    let frames: Vec<Vec<u8>> = lengths
        .iter()
        .map(|length| datagram(REMOTE_NODE, LOCAL_NODE, &vec![3; *length])[16..].to_vec())
        .collect();
    for key in [Some(OTHER_KEY), None, Some(KEY)] {
        let is_right = key == Some(KEY);
        let mut remote = open(key);
        remote.locate(LOCAL_NODE, local.local());
        let before = local.counters.unauthenticated;
        for frame in &frames {
            remote.queue(frame);
            remote.flush();
        }
        if is_right {
            receive(&mut local, lengths.len() as u64);
        } else {
            let sent = remote.counters.sent;
            let began = Instant::now();
            while local.counters.unauthenticated - before < sent && began.elapsed() < Duration::from_secs(60)
            {
                assert_eq!(local.receive(|node| node == LOCAL_NODE), None);
                std::thread::yield_now();
            }
            assert_eq!(local.counters.unauthenticated - before, sent);
        }
    }
    assert_eq!(local.counters.malformed, 0);
}

/// Somebody who has listened sends a datagram again from another address: the node's frames do not go there.
#[test]
fn udp_link_datagram_sent_again_does_not_redirect_its_node() {
    let mut local = UdpLink::bind(UdpLinkOptions::new(any_address()).key(Some(KEY))).unwrap();
    let [node, listener] = [(); 2].map(|()| UdpSocket::bind(any_address()).unwrap());
    let mut bytes = datagram(REMOTE_NODE, LOCAL_NODE, &[5]);
    let trailer = Authenticator::new(&KEY).seal([&bytes, &[], &[]]);
    bytes.extend(trailer);
    for (socket, count) in [(&node, 1), (&listener, 2)] {
        socket.send_to(&bytes, local.local()).unwrap();
        receive(&mut local, count);
    }
    assert_eq!(local.nodes.get(REMOTE_NODE), Some(&node.local_addr().unwrap()));
}

/// Without a key, a frame must come from the address of its node, if nodes have addresses.
#[test]
fn udp_link_node_of_another_address_is_refused() {
    let mut local = UdpLink::bind(UdpLinkOptions::new(any_address()).nodes_by_address()).unwrap();
    let [node, forger] = [(); 2].map(|()| UdpSocket::bind(any_address()).unwrap());
    let source = NodeId::of_link(node.local_addr().unwrap());
    let bytes = datagram(source, LOCAL_NODE, &[5]);
    for socket in [&forger, &node] {
        socket.send_to(&bytes, local.local()).unwrap();
    }
    receive(&mut local, 1);
    assert_eq!(local.counters.unknown_senders, 1);
    assert_eq!(local.nodes.get(source), Some(&node.local_addr().unwrap()));
}

#[test]
fn link_key_file_is_private_and_hexadecimal() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let digits = "07".repeat(32);
    let read = |text: &str, mode| {
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        LinkKey::read(&path)
    };
    assert_eq!(read(&format!("{digits}\n"), 0o600).unwrap(), KEY);
    for mode in [0o640, 0o604, 0o644] {
        let error = read(&digits, mode).unwrap_err();
        assert!(matches!(error, LinkKeyError::NotPrivate { .. }), "{error}");
    }
    for text in ["", "07", &digits[1..], &format!("{digits}0"), &digits.replace('7', "x")] {
        let error = read(text, 0o600).unwrap_err();
        assert!(matches!(error, LinkKeyError::Format { .. }), "{text}: {error}");
    }
    let error = LinkKey::read(&folder.path().join("none")).unwrap_err();
    assert!(matches!(error, LinkKeyError::Input(_)), "{error}");
    assert_eq!(format!("{KEY:?}"), "LinkKey(..)");
}

proptest! {
    #[test]
    fn authentication_any_bytes_are_refused(bytes: Vec<u8>, trailer: Vec<u8>) {
        prop_assert_eq!(Authenticator::new(&KEY).check(&bytes, &trailer), Err(Refused::Tag));
    }
}
