//! Several messengers of one process on a card that belongs to this process: each is an endpoint of its own.

use std::time::{Duration, Instant};

use fpga_messages::{
    AccessRequest, Address, CompleteWhen, CompletionKind, Failure, PeerId, RemoteAccess, RemoteRange, Token,
};

use crate::bed::{Bed, End, bytes, ranges, receive, send};
use crate::served::Served;

/// Two linked cards with `each` messengers on each of them, which all know each other.
fn bed(cards: &[Served; 2], each: usize) -> (Bed, Vec<Vec<PeerId>>) {
    let mut ends: Vec<End> = cards.iter().flat_map(|card| (0..each).map(|_| card.open())).collect();
    let addresses: Vec<Address> = ends.iter().map(|end| end.messenger.address()).collect();
    let mut add = |end: &mut End| addresses.iter().map(|to| end.messenger.add_peer(*to).unwrap()).collect();
    let peers = ends.iter_mut().map(&mut add).collect();
    (Bed(ends), peers)
}

fn cards(folder: &std::path::Path) -> [Served; 2] {
    [(1, 2), (2, 1)].map(|(own, other)| Served::start(folder, own, Some(other)))
}

/// Sends a message from one end to another, and checks what the receiver gets.
fn exchange(bed: &mut Bed, peers: &[Vec<PeerId>], (from, to): (usize, usize), length: usize) {
    let data = bytes((from * 10 + to) as u64, length);
    bed.0[from].poke(0, &data);
    let mut request = receive(None, 2 << 20, length, Some(7), 1);
    request.from = Some(peers[to][from]);
    bed.0[to].messenger.receive(&request).unwrap();
    let mut message = send(0, 0, length, Some(7), 2);
    message.peer = peers[from][to];
    bed.0[from].messenger.send(&message).unwrap();
    let done = bed.wait(to, 1);
    assert_eq!((done.length, done.source, done.result), (length as u64, Some(peers[to][from]), Ok(())));
    assert!(bed.0[to].peek(2 << 20, length) == data, "{from} to {to}: {length} bytes");
    assert_eq!(bed.wait(from, 2).result, Ok(()));
}

#[test]
fn ports_of_one_card_have_addresses_messages_and_regions_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let cards = cards(folder.path());
    let (mut bed, peers) = bed(&cards, 2);
    let addresses: Vec<String> = bed.0.iter().map(|end| end.messenger.address().to_string()).collect();
    assert_eq!(addresses, ["fpga://node/1", "fpga://node/1@1000", "fpga://node/2", "fpga://node/2@1000"]);
    // A receive from any sender at each end: a message reaches one of them.
    for end in &mut bed.0 {
        end.messenger.receive(&receive(None, 4 << 20, 100, Some(1), 9)).unwrap();
    }
    for (from, to) in (0..16).map(|pair| (pair / 4, pair % 4)) {
        for length in [0, 1000, 40_000] {
            exchange(&mut bed, &peers, (from, to), length);
        }
    }
    assert!(bed.0.iter_mut().all(|end| end.take(9).is_none()));
    // The same key at each end stands for memory of that end.
    let both = RemoteAccess { read: true, write: true };
    for end in &bed.0 {
        end.regions.register(0, 1 << 20, 0, both, Some(5)).unwrap();
    }
    for (to, id) in peers[0].iter().enumerate().skip(1) {
        let data = bytes(to as u64, 20_000);
        bed.0[0].poke(3 << 20, &data);
        let access = AccessRequest {
            peer: *id,
            data: ranges(3 << 20, data.len()),
            remote: RemoteRange { address: 100, length: data.len() as u64, key: 5 },
            immediate: Some(to as u64),
            complete: CompleteWhen::Delivered,
            token: Token { context: 3, user: 0 },
        };
        bed.0[0].messenger.write(&access).unwrap();
        assert_eq!(bed.wait(0, 3).result, Ok(()));
        let seen = bed.wait(to, 0);
        assert_eq!((seen.kind, seen.immediate), (CompletionKind::RemoteWrite, Some(to as u64)));
        assert!((1..4).all(|end| (bed.0[end].peek(100, data.len()) == data) == (end == to)));
    }
}

/// A peer of one messenger is unknown to the other ones of its card.
#[test]
fn port_refuses_the_peer_of_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let cards = cards(folder.path());
    let (mut bed, peers) = bed(&cards, 2);
    let mut message = send(0, 0, 10, None, 1);
    message.peer = peers[0][2];
    assert!(bed.0[1].messenger.send(&message).unwrap_err().to_string().contains("not known"));
    assert_eq!(bed.0[1].messenger.peer(peers[0][2]), None);
    assert_eq!(bed.0[0].messenger.peer(peers[0][2]), Some(bed.0[2].messenger.address()));
}

#[test]
fn port_that_is_closed_leaves_the_others_of_its_card() {
    let folder = tempfile::tempdir().unwrap();
    let cards = cards(folder.path());
    for first in [0, 1] {
        let (mut bed, mut peers) = bed(&cards, 2);
        exchange(&mut bed, &peers, (first, 2), 300_000);
        // A message of the closed messenger that has no receive.
        let mut message = send(0, 0, 100_000, Some(8), 5);
        message.peer = peers[first][2];
        bed.0[first].messenger.send(&message).unwrap();
        bed.progress();
        bed.0[2].messenger.receive(&receive(None, 0, 10, Some(9), 7)).unwrap();
        bed.0.remove(first);
        peers.remove(first);
        for known in &mut peers {
            known.remove(first);
        }
        for pair in [(0, 1), (1, 0), (0, 2), (2, 0), (0, 0)] {
            exchange(&mut bed, &peers, pair, 300_000);
        }
        assert!(bed.0[1].take(7).is_none());
        // A further messenger has an address that no earlier one had.
        let next = cards[0].open();
        assert_eq!(next.messenger.address().to_string(), "fpga://node/1@2000");
        let id = bed.0[1].messenger.add_peer(next.messenger.address()).unwrap();
        let mut back = peers[0].clone();
        back[0] = bed.0[0].messenger.add_peer(next.messenger.address()).unwrap();
        bed.0.push(next);
        let own = bed.0[1].messenger.address();
        let theirs = bed.0[3].messenger.add_peer(own).unwrap();
        let none = PeerId(u32::MAX);
        let peers =
            [vec![none; 4], vec![none, none, none, id], vec![none; 4], vec![none, theirs, none, none]];
        for pair in [(1, 3), (3, 1)] {
            exchange(&mut bed, &peers, pair, 70_000);
        }
    }
}

/// Numbers of messengers are not used again, until the card was closed with its last messenger.
#[test]
fn ports_are_limited_while_the_card_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let card = Served::start(folder.path(), 1, None);
    for _ in 0..2 {
        let first = card.open();
        for number in 1..64 {
            assert_eq!(card.open().messenger.address().to_string(), format!("fpga://node/1@{number:x}000"));
        }
        let refused = card.try_open().err().map(|error| error.to_string());
        assert_eq!(
            refused.as_deref(),
            Some("64 messengers were opened on this card: drop all of them, and open the card again")
        );
        drop(first);
    }
}

/// A messenger whose process makes only another one of the card progress.
#[test]
fn ports_progress_with_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let cards = cards(folder.path());
    let (mut bed, peers) = bed(&cards, 2);
    let data = bytes(3, 500_000);
    bed.0[2].poke(0, &data);
    bed.0[1].messenger.receive(&receive(None, 2 << 20, data.len(), None, 1)).unwrap();
    let mut message = send(0, 0, data.len(), None, 2);
    message.peer = peers[2][1];
    bed.0[2].messenger.send(&message).unwrap();
    let begun = Instant::now();
    let done = loop {
        bed.0[0].progress();
        bed.0[3].progress();
        if let Some(done) = bed.0[1].messenger.next_completion() {
            break done;
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    };
    assert_eq!((done.length, done.result), (data.len() as u64, Ok(())));
    assert!(bed.0[1].peek(2 << 20, data.len()) == data);
}

/// The failure of the card ends the operations of all its messengers.
#[test]
fn ports_fail_with_their_card() {
    let folder = tempfile::tempdir().unwrap();
    let [first, _second] = cards(folder.path());
    let (mut one, mut other) = (first.open(), first.open());
    for end in [&mut one, &mut other] {
        end.messenger.receive(&receive(None, 0, 10, None, 1)).unwrap();
    }
    drop(first);
    let mut bed = Bed(vec![one, other]);
    for end in [0, 1] {
        let failure = bed.wait(end, 1).result;
        assert!(matches!(failure, Err(Failure::Card { .. })), "{failure:?}");
    }
}
