//! Peers that violate the protocol: nodes with an endpoint of their own that write any bytes to what a messenger has granted.
//!
//! The formats are those of `hello.rs`, `wire.rs` and `layout.rs` in the package, written a second time.

use std::time::{Duration, Instant};

use fpga_driver::{C2hChannel, Card, CardAddr, CardRange, NodeId};
use fpga_messages::{
    AccessRequest, Address, CompleteWhen, Failure, LinkChoice, MessengerOptions, PeerId, RemoteAccess,
    RemoteRange, Token,
};
use fpga_rdma::{Endpoint, RemoteRegion, SendOptions};
use fpga_sim::link::{Link, Neighbours};
use fpga_sim::{CardDescription, SimNetwork};

use crate::bed::{Bed, End, bytes, options, ranges, receive, send};

const HELLO_KEY: u64 = u64::from_le_bytes(*b"fpga-msg");
/// Codes of doorbells.
const CREDIT: u64 = 0;
const CHUNK: u64 = 8 << 10;
const EAGER: u64 = 12 << 10;
const DONE: u64 = 16 << 10;
const REFUSED: u64 = DONE + (1 << 16);
/// Kinds of records.
const MESSAGE: u8 = 1;
const LARGE_MESSAGE: u8 = 2;
const GRANT: u8 = 3;
const LARGE_WRITE: u8 = 5;
const STOPPED: u8 = 10;
const CLOSED: u8 = 11;
/// Offset of the landing slots in an area, and bytes of each.
const LANDING: u64 = 512 << 10;
const SLOT: u64 = 128 << 10;
/// Own memory: hello slots, area, and source of what is sent.
const AREA: u64 = 1 << 20;
const SOURCE: u64 = 8 << 20;

/// A node that writes whatever a test wants.
struct Node {
    network: SimNetwork,
    neighbours: Neighbours,
    endpoint: Endpoint,
    card: Card,
    c2h: C2hChannel,
    key: u64,
    hello: CardAddr,
}

/// What a messenger has granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granted {
    area: RemoteRegion,
    ring: u64,
    eager: u32,
}

impl Node {
    fn new() -> Self {
        let (link, neighbours) = Link::neighbouring(Some("127.0.0.1:0".parse().unwrap()), None).unwrap();
        let mut card = CardDescription::linked();
        card.ni.node_id = neighbours.node().get();
        let network = SimNetwork::builder().card(card).link(link).build().unwrap();
        let card = Card::from_backend(network.backend(0)).unwrap();
        let mut endpoint = Endpoint::open(&card).unwrap();
        let start = endpoint.usable_memory().start.get().next_multiple_of(4096);
        let hello = CardAddr::new(start);
        endpoint.open_region_with_key(NodeId::ANY, CardRange::new(hello, 4096), HELLO_KEY).unwrap();
        let area = CardRange::new(CardAddr::new(start + AREA), 4 << 20);
        let key = endpoint.open_region(NodeId::ANY, area).unwrap().remote.key;
        let c2h = card.c2h(0).unwrap();
        Self { network, neighbours, endpoint, card, c2h, key, hello }
    }

    fn node(&self) -> NodeId {
        self.neighbours.node()
    }

    fn address(&self) -> Address {
        Address::Link(self.neighbours.address())
    }

    fn locate(&self, end: &End) {
        let address = link_address(end);
        let node = NodeId::of_link(address);
        let way = self.neighbours.way(node, Some(address)).unwrap();
        assert!(self.network.locate(node, &way));
    }

    /// Writes `data` to `offset` of a region, while `end` works. Returns whether its card has accepted the data.
    fn write(&mut self, end: &mut End, region: &RemoteRegion, offset: u64, data: &[u8]) -> bool {
        let source = CardAddr::new(self.hello.get() + SOURCE);
        let buffer = self.card.buffer_from(data).unwrap();
        self.endpoint.write(buffer, source).unwrap();
        let ticket =
            self.endpoint.send(source, region, offset, data.len() as u64, SendOptions::default()).unwrap();
        let begun = Instant::now();
        loop {
            self.endpoint.relax();
            self.endpoint.poll().unwrap();
            end.progress();
            if let Some(done) = self.endpoint.next_completion() {
                assert_eq!(done.ticket, ticket);
                return done.result.is_ok();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "the transfer does not end");
        }
    }

    /// Bytes of a hello.
    fn hello_bytes(&self, version: u16) -> [u8; 64] {
        self.hello_of(version, self.hello.get())
    }

    /// Bytes of a hello of the port whose hello slots are at `slots`.
    fn hello_of(&self, version: u16, slots: u64) -> [u8; 64] {
        let mut hello = [0; 64];
        hello[..4].copy_from_slice(b"FPMS");
        hello[4..6].copy_from_slice(&version.to_le_bytes());
        let words = [self.hello.get() + AREA, self.key, slots];
        for (at, word) in (8..).step_by(8).zip(words) {
            hello[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        // Length, ring, landing slots, bytes of the ring, bytes of a slot, credit.
        let words = [4_u32 << 20, 256 << 10, 512 << 10, 256 << 10, 128 << 10, 1000];
        for (at, word) in (32..).step_by(4).zip(words) {
            hello[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let sender = [self.node().get(), self.endpoint.incarnation().get()];
        let all = hello[..56].iter().copied().chain(sender.into_iter().flat_map(u32::to_le_bytes));
        let sum = all.fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        hello[56..].copy_from_slice(&sum.to_le_bytes());
        hello
    }

    /// Sends a hello to `end`, and returns what the answer grants; `None` if none arrives.
    fn connect(&mut self, end: &mut End, hello: &[u8; 64]) -> Option<Granted> {
        self.locate(end);
        let address = link_address(end);
        let target = RemoteRegion {
            node: NodeId::of_link(address),
            address: self.hello,
            length: 4096,
            key: HELLO_KEY,
        };
        assert!(self.write(end, &target, 0, hello));
        for _ in 0..2000 {
            end.progress();
            self.endpoint.relax();
            self.endpoint.poll().unwrap();
            if let Some(arrived) = self.endpoint.next_notification() {
                let answer = self.c2h.read(self.card.buffer(64).unwrap(), arrived.address).unwrap().to_vec();
                let long = |at: usize| u64::from_le_bytes(answer[at..at + 8].try_into().unwrap());
                let short = |at: usize| u32::from_le_bytes(answer[at..at + 4].try_into().unwrap());
                let area = RemoteRegion {
                    node: target.node,
                    address: CardAddr::new(long(8)),
                    length: short(32).into(),
                    key: long(16),
                };
                return Some(Granted { area, ring: short(36).into(), eager: short(52) });
            }
        }
        None
    }

    /// Takes the arrivals of the last calls: their offsets in this node's area, and the data of records.
    fn arrivals(&mut self, end: &mut End) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        for _ in 0..200 {
            end.progress();
            self.endpoint.relax();
            self.endpoint.poll().unwrap();
            while let Some(arrived) = self.endpoint.next_notification() {
                let buffer = self.card.buffer(arrived.length as usize).unwrap();
                let data = self.c2h.read(buffer, arrived.address).unwrap().to_vec();
                all.push((arrived.address.get() - self.hello.get() - AREA, data));
            }
        }
        all
    }
}

/// Address of the link of an end's simulated card.
fn link_address(end: &End) -> std::net::SocketAddr {
    match end.messenger.address() {
        Address::Link(address) => Some(address),
        Address::Node(_) | Address::NodeAt(..) => None,
    }
    .unwrap()
}

/// A record: kind, flags (4: the sender waits for the end), operation, length, tag or key, peer's operation, data.
fn record(
    kind: u8,
    flags: u8,
    operation: u32,
    length: u64,
    tag: u64,
    peer_operation: u32,
    data: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..2].copy_from_slice(&[kind, flags]);
    bytes[4..8].copy_from_slice(&operation.to_le_bytes());
    bytes[8..16].copy_from_slice(&length.to_le_bytes());
    bytes[16..24].copy_from_slice(&tag.to_le_bytes());
    bytes[40..44].copy_from_slice(&peer_operation.to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn message(data: &[u8]) -> Vec<u8> {
    record(MESSAGE, 0, 0, data.len() as u64, 0, 0, data)
}

fn impatient(unexpected: u64) -> MessengerOptions {
    let mut options = options(LinkChoice::Auto);
    options.give_up = Duration::from_secs(10);
    options.unexpected = unexpected;
    options
}

/// An end, and a node with a session.
fn pair(unexpected: u64) -> (End, Node, Granted) {
    let (mut end, mut node) = (End::open(&impatient(unexpected)), Node::new());
    assert_eq!(end.messenger.add_peer(node.address()).unwrap(), PeerId(0));
    let hello = node.hello_bytes(3);
    let granted = node.connect(&mut end, &hello).unwrap();
    (end, node, granted)
}

/// Whether a receive from the node has failed because of its session.
fn has_failed(end: &mut End) -> bool {
    for _ in 0..200 {
        end.progress();
    }
    match end.messenger.receive(&receive(Some(0), 0, 10, Some(99), 99)) {
        Ok(()) => {
            end.progress();
            let failed =
                end.take(99).is_some_and(|done| matches!(done.result, Err(Failure::Unreachable { .. })));
            end.messenger.cancel(99);
            end.take(99);
            failed
        }
        Err(_) => true,
    }
}

/// A node that knows the key of another one cannot use it.
#[test]
fn hostile_node_with_the_key_of_another_one_changes_nothing() {
    let (mut end, mut node, granted) = pair(1 << 20);
    let mut other = Node::new();
    other.locate(&end);
    for offset in [granted.ring, CREDIT, DONE, LANDING] {
        assert!(!other.write(&mut end, &granted.area, offset, &message(b"foreign")));
    }
    let hello = other.hello_bytes(3);
    let theirs = other.connect(&mut end, &hello).unwrap();
    assert!(theirs.area.key != granted.area.key && theirs.area.address != granted.area.address);
    assert!(!other.write(&mut end, &granted.area, granted.ring, &message(b"foreign")));
    // Its own key does not open the area of the first one.
    let mixed = RemoteRegion { key: theirs.area.key, ..granted.area };
    assert!(!other.write(&mut end, &mixed, granted.ring, &message(b"foreign")));
    assert!(node.write(&mut end, &granted.area, granted.ring, &message(b"own")));
    end.messenger.receive(&receive(Some(0), 0, 10, None, 1)).unwrap();
    end.progress();
    assert_eq!((end.take(1).unwrap().length, end.peek(0, 3)), (3, b"own".to_vec()));
    assert_eq!(end.messenger.unexpected(), (0, 0));
}

#[test]
fn hostile_hello_is_not_answered() {
    let (mut end, mut node) = (End::open(&impatient(1 << 20)), Node::new());
    let good = node.hello_bytes(3);
    // Version, checksum, offsets outside of the area, another sender's hello.
    let mut changed = good;
    changed[60] ^= 1;
    for hello in [node.hello_bytes(2), changed, Node::new().hello_bytes(3), [0xff; 64]] {
        assert_eq!(node.connect(&mut end, &hello), None);
    }
    let granted = node.connect(&mut end, &good).unwrap();
    // Repeated: the same answer.
    assert_eq!(node.connect(&mut end, &good), Some(granted));
}

/// A node that claims to have more ports than a card can have does not use up the windows of the card.
#[test]
fn hostile_node_has_as_many_sessions_as_a_card_has_ports() {
    let (mut end, mut node, granted) = pair(1 << 20);
    let mut areas = std::collections::HashSet::from([granted.area.address]);
    let mut unanswered = 0;
    for port in 1..80 {
        // The answer goes to the slots that are named: this node has those of port 0 alone.
        let hello = node.hello_of(3, node.hello.get() + port * 4096);
        unanswered += u32::from(node.connect(&mut end, &hello).is_none());
        areas.extend(node.connect(&mut end, &node.hello_bytes(3)).map(|granted| granted.area.address));
    }
    assert_eq!((areas.len(), unanswered), (1, 79));
    // Areas are numbered without a gap: the next node has the one after those of 64 ports.
    let mut other = Node::new();
    let hello = other.hello_bytes(3);
    let theirs = other.connect(&mut end, &hello).unwrap();
    let area = granted.area.length;
    assert_eq!((theirs.area.address.get() - granted.area.address.get()) / area, 64);
}

#[test]
fn hostile_record_is_not_taken_twice() {
    let (mut end, mut node, granted) = pair(1 << 20);
    for _ in 0..3 {
        assert!(node.write(&mut end, &granted.area, granted.ring, &message(b"once")));
    }
    end.progress();
    assert_eq!(end.messenger.unexpected(), (1, 4));
    // The next one comes where the ring continues.
    assert!(node.write(&mut end, &granted.area, granted.ring + 128, &message(b"twice")));
    end.progress();
    assert_eq!(end.messenger.unexpected(), (2, 9));
}

/// More credit than is in use, and answers that nothing has asked for.
#[test]
fn hostile_doorbells_end_the_session_or_do_nothing() {
    for offset in [CREDIT + 1, CREDIT + 4096, EAGER + 1, EAGER + 4095] {
        let (mut end, mut node, granted) = pair(1 << 20);
        assert!(!has_failed(&mut end));
        assert!(node.write(&mut end, &granted.area, offset, &[0]));
        assert!(has_failed(&mut end), "doorbell {offset}");
        // The window is closed with the session.
        assert!(!node.write(&mut end, &granted.area, granted.ring, &message(b"stale")));
    }
    let (mut end, mut node, granted) = pair(1 << 20);
    for offset in [CREDIT, CHUNK, CHUNK + 4095, DONE, DONE + 65_535, REFUSED, LANDING, LANDING + SLOT] {
        assert!(node.write(&mut end, &granted.area, offset, &[0]));
    }
    let wide = RemoteRegion { length: 2 * granted.area.length, ..granted.area };
    assert!(!node.write(&mut end, &wide, granted.area.length, &[0]));
    assert!(!has_failed(&mut end));
}

/// The record ends the session of its own node alone, and nothing that follows it is accepted.
#[test]
fn hostile_end_of_session_ends_its_own_session() {
    let (mut end, mut node, granted) = pair(1 << 20);
    let mut other = Node::new();
    let hello = other.hello_bytes(3);
    let theirs = other.connect(&mut end, &hello).unwrap();
    let closed = record(CLOSED, 0, 0, 0, 0, 0, &[]);
    // To the area of the other node, with its key.
    assert!(!node.write(&mut end, &theirs.area, theirs.ring, &closed));
    assert!(node.write(&mut end, &granted.area, granted.ring, &closed));
    end.progress();
    assert!(!node.write(&mut end, &granted.area, granted.ring + 64, &message(b"late")));
    assert_eq!(node.connect(&mut end, &node.hello_bytes(3)), None);
    assert!(other.write(&mut end, &theirs.area, theirs.ring, &message(b"kept")));
    end.progress();
    assert_eq!(end.messenger.unexpected(), (1, 4));
}

#[test]
fn hostile_sender_of_unexpected_messages_is_limited() {
    let limit = 20_000;
    let (mut end, mut node, granted) = pair(limit);
    assert_eq!(u64::from(granted.eager), limit / 256);
    let mut at = 0;
    let mut sent = 0;
    // Fewer bytes than the ring has: the sender ignores the credit for messages only.
    while sent < 100 && node.write(&mut end, &granted.area, granted.ring + at, &message(&[7; 1000])) {
        assert!(end.messenger.unexpected().1 <= limit);
        at += 1088;
        sent += 1;
    }
    assert!(sent < 100 && has_failed(&mut end), "{sent} messages");
    // What arrived before stays receivable.
    end.messenger.receive(&receive(None, 0, 1000, None, 1)).unwrap();
    end.progress();
    assert_eq!((end.take(1).unwrap().result, end.peek(0, 1000)), (Ok(()), vec![7; 1000]));
}

/// Landing slots of a refused access stay unused until the peer has stopped.
#[test]
fn hostile_parts_of_a_refused_access_reach_no_other_data() {
    let (mut end, mut node, granted) = pair(1 << 20);
    let all = RemoteAccess { read: true, write: true };
    let key = end.regions.register(0, 2 << 20, 0, all, None).unwrap();
    let length = 4 * SLOT;
    let mut at = granted.ring;
    let mut post = |node: &mut Node, end: &mut End, bytes: &[u8]| {
        assert!(node.write(end, &granted.area, at, bytes));
        at += bytes.len().next_multiple_of(64) as u64;
    };
    post(&mut node, &mut end, &record(LARGE_WRITE, 4, 1, length, key, 0, &[]));
    let slots = |arrivals: &[(u64, Vec<u8>)]| -> Option<(u32, Vec<u16>)> {
        let (_, grant) = arrivals.iter().find(|(_, data)| data.len() == 64 && data[0] == GRANT)?;
        let count = usize::from(grant[46]);
        let slots = grant[48..48 + 2 * count].chunks(2).map(|slot| u16::from_le_bytes([slot[0], slot[1]]));
        Some((u32::from_le_bytes(grant[4..8].try_into().unwrap()), slots.collect()))
    };
    let arrivals = node.arrivals(&mut end);
    let (operation, first) = slots(&arrivals).unwrap();
    assert_eq!(first.len(), 4);
    assert!(end.regions.deregister(key));
    let part = vec![0xee; SLOT as usize];
    assert!(node.write(&mut end, &granted.area, LANDING + u64::from(first[0]) * SLOT, &part));
    let arrivals = node.arrivals(&mut end);
    assert!(arrivals.iter().any(|(offset, _)| *offset == REFUSED + 1), "the access was refused");
    // Two messages: the second one needs slots of the refused access.
    for operation in [2, 3] {
        let length = 4 * SLOT as usize;
        end.messenger.receive(&receive(Some(0), 1 << 20, length, Some(5), operation)).unwrap();
        post(&mut node, &mut end, &record(LARGE_MESSAGE, 2, operation as u32, length as u64, 5, 0, &[]));
    }
    let arrivals = node.arrivals(&mut end);
    let (_, second) = slots(&arrivals).unwrap();
    assert!(second.iter().all(|slot| !first.contains(slot)), "{second:?} were granted to {first:?}");
    let grants = |arrivals: &[(u64, Vec<u8>)]| {
        arrivals.iter().filter(|(_, data)| data.first() == Some(&GRANT)).count()
    };
    assert_eq!(grants(&arrivals), 1);
    // A late part changes nothing. Once the node has stopped, its slots are granted.
    assert!(node.write(&mut end, &granted.area, LANDING + u64::from(first[1]) * SLOT, &part));
    post(&mut node, &mut end, &record(STOPPED, 0, 0, 0, 0, operation, &[]));
    let arrivals = node.arrivals(&mut end);
    assert_eq!(slots(&arrivals).unwrap().1, first);
    assert_eq!(end.peek(0, 1), [0]);
}

/// An end whose card has `count` memory windows, and otherwise the settings of linked cards.
fn end_with_windows(count: u32) -> End {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("card.yaml");
    let text = format!(
        "schema_version: 1\nmemory: {{size: 67108864}}\n\
         ni: {{memory_windows: {count}, packet_size: 32768, mask_bits: 32}}\n"
    );
    std::fs::write(&path, text).unwrap();
    let mut options = options(LinkChoice::Auto);
    options.card = format!("mock:{}", path.display());
    End::open(&options)
}

/// Hellos of any number of nodes use no memory once all windows are in use.
#[test]
fn hostile_hellos_beyond_the_windows_are_not_kept() {
    let mut end = end_with_windows(2);
    let mut nodes: Vec<_> = (0..5).map(|_| Node::new()).collect();
    let connected: Vec<_> = nodes
        .iter_mut()
        .map(|node| {
            let hello = node.hello_bytes(3);
            node.connect(&mut end, &hello).is_some()
        })
        .collect();
    assert_eq!(connected, [true, false, false, false, false]);
    // The one that found no window, and those before it.
    assert!(format!("{:?}", end.messenger).contains("peers: 2"), "{:?}", end.messenger);
}

/// The peers of a card are limited by its memory windows, and the error states that.
#[test]
fn peers_beyond_the_windows_are_refused() {
    let mut bed = Bed(vec![end_with_windows(3)]);
    for _ in 0..3 {
        bed.0.push(End::open(&options(LinkChoice::Auto)));
    }
    let addresses: Vec<_> = bed.0.iter().map(|end| end.messenger.address()).collect();
    for (number, address) in (0..).zip(&addresses).skip(1) {
        assert_eq!(bed.0[0].messenger.add_peer(*address).unwrap(), PeerId(number - 1));
        let data = bytes(number.into(), 100);
        bed.0[0].poke(0, &data);
        bed.0[0].messenger.send(&send(number as usize - 1, 0, 100, None, number.into())).unwrap();
        let done = bed.wait(0, number.into());
        if number <= 2 {
            assert_eq!(done.result, Ok(()));
        } else {
            assert!(matches!(done.result, Err(Failure::TooManyPeers { peers: 2, .. })), "{done:?}");
        }
    }
}

/// A hostile peer does not disturb others.
#[test]
fn hostile_peer_leaves_other_sessions_alone() {
    let mut bed = Bed::new(2, &impatient(1 << 20));
    let mut node = Node::new();
    let id = bed.0[1].messenger.add_peer(node.address()).unwrap();
    let hello = node.hello_bytes(3);
    let granted = node.connect(&mut bed.0[1], &hello).unwrap();
    let key =
        bed.0[1].regions.register(0, 1 << 20, 0, RemoteAccess { read: true, write: true }, None).unwrap();
    let request = AccessRequest {
        peer: PeerId(1),
        data: ranges(0, 1 << 20),
        remote: RemoteRange { address: 0, length: 1 << 20, key },
        immediate: None,
        complete: CompleteWhen::Transmitted,
        token: Token { context: 1, user: 0 },
    };
    let data = bytes(3, 1 << 20);
    bed.0[0].poke(0, &data);
    bed.0[0].messenger.write(&request).unwrap();
    for offset in (0..1200).map(|n| n * 691) {
        node.write(&mut bed.0[1], &granted.area, offset, &[0xff; 1]);
        bed.0[0].progress();
    }
    assert_eq!(bed.wait(0, 1).result, Ok(()));
    assert!(bed.0[1].peek(0, 1 << 20) == data);
    assert!(bed.0[1].messenger.peer(id).is_some());
}
