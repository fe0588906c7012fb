//! Invalid connections to the port, and invalid blocks in the windows: the sender is refused or dropped from the stream, with a reason, and
//! no other subscriber is affected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use fpga_driver::{Card, CardAddr, CardRange, NodeId};
use fpga_frames::blocks::CreditBlock;
use fpga_frames::bootstrap::wire::{Hello, Inbox, Join, Message, Reason, Refusal, Window};
use fpga_frames::{
    BootstrapError, DropReason, GeometryError, JoinError, Publisher, PublisherError, PublisherEvent,
    PublisherOptions, Sequence, SubscriberOptions,
};
use fpga_rdma::{Endpoint, EndpointOptions, SendOptions};
use fpga_sim::SimNetwork;

use crate::stream::bed::{TestBed, assert_whole, endpoint, options};

/// Sends `bytes` to the publisher. Returns its answers until it closes the connection.
pub(crate) fn say(bed: &mut TestBed, bytes: &[u8]) -> Vec<Message> {
    let mut socket = TcpStream::connect(bed.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    socket.write_all(bytes).unwrap();
    let (mut inbox, mut heard) = (Inbox::default(), Vec::new());
    let mut buffer = [0; 64];
    let limit = Instant::now() + Duration::from_secs(20);
    while Instant::now() < limit {
        bed.publisher.poll().unwrap();
        let wanted = inbox.wanted().clamp(1, buffer.len());
        match socket.read(&mut buffer[..wanted]) {
            Ok(0) => return heard,
            Ok(count) => heard.extend(inbox.take(&buffer[..count]).unwrap()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return heard,
            Err(_) => {}
        }
    }
    panic!("the publisher keeps the connection open; it sent {heard:?}");
}

/// Sends a hello as `node`, and joins with `window` and `slots`. Returns the publisher's answers until it closes the connection, and all
/// bytes sent to it.
pub(crate) fn join_as(bed: &mut TestBed, node: u32, window: Window, slots: u32) -> (Vec<Message>, Vec<u8>) {
    let mut socket = TcpStream::connect(bed.address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut said = Message::Hello(Hello { node, incarnation: 1 }).encode();
    socket.write_all(&said).unwrap();
    let (mut inbox, mut heard) = (Inbox::default(), Vec::new());
    let mut buffer = [0; 64];
    let limit = Instant::now() + Duration::from_secs(20);
    while Instant::now() < limit {
        bed.turn();
        let wanted = inbox.wanted().clamp(1, buffer.len());
        match socket.read(&mut buffer[..wanted]) {
            Ok(0) => return (heard, said),
            Ok(count) => {
                let message = inbox.take(&buffer[..count]).unwrap();
                if let Some(Message::Offer(offer)) = &message {
                    let join = Message::Join(Join { window, slots, challenge: offer.challenge }).encode();
                    socket.write_all(&join).unwrap();
                    said.extend(join);
                }
                heard.extend(message);
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return (heard, said),
            Err(_) => {}
        }
    }
    panic!("the publisher keeps the connection open; it sent {heard:?}");
}

fn refusal(heard: &[Message]) -> &Refusal {
    let [.., Message::Refused(refusal)] = heard else { panic!("{heard:?}") };
    refusal
}

fn rejected(bed: &mut TestBed) -> Vec<String> {
    let why = |event| match event {
        PublisherEvent::Rejected { reason: why, .. } => Some(why),
        _ => None,
    };
    std::iter::from_fn(|| bed.publisher.next_event()).filter_map(why).collect()
}

/// Checks that the existing subscribers have every frame.
fn assert_unaffected(bed: &mut TestBed) {
    assert_unaffected_by(bed, 0);
}

/// As [`assert_unaffected`], when `others` further subscribers have joined and cannot be reached.
fn assert_unaffected_by(bed: &mut TestBed, others: usize) {
    let there = bed.seen.len();
    for _ in 0..8 * others {
        bed.publish().unwrap();
        for _ in 0..400 {
            bed.turn();
        }
    }
    bed.until("unreachable subscribers are dropped", |bed| {
        bed.publisher.subscribers().count() <= there + others.saturating_sub(1)
    });
    let first = bed.publisher.next_sequence().get();
    for _ in 0..4 {
        bed.publish().unwrap();
    }
    let next = bed.publisher.next_sequence();
    bed.until("the other subscribers receive their frames", |bed| {
        bed.seen.iter().all(|seen| seen.frames.last() == Some(&(next.get() - 1)))
    });
    bed.until("all slots are returned", |bed| {
        bed.publisher.subscribers().all(|view| view.room == view.slots)
    });
    bed.assert_no_faults();
    for seen in &bed.seen {
        assert_whole(seen, Sequence::new(0), next);
        assert!(seen.frames.contains(&first), "{seen:?}");
        assert_eq!(seen.missed(), 0);
    }
}

#[test]
fn bootstrap_garbage_version_and_order_are_refused() {
    let mut bed = TestBed::new(1, options());
    let hello = Message::Hello(Hello { node: 77, incarnation: 1 }).encode();
    let mut version = hello.clone();
    version[8] = 9;
    let mut long = hello.clone();
    long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
    let mut broken = hello.clone();
    *broken.last_mut().unwrap() ^= 1;
    let window = Window { address: 0, length: 1 << 20, key: 1 };
    let join = Message::Join(Join { window, slots: 8, challenge: 0 }).encode();
    for (bytes, reason, text) in [
        (
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
            Reason::Garbage,
            "does not use the frame stream protocol",
        ),
        (version, Reason::Version, "version 9"),
        (long, Reason::Garbage, "4294967295 bytes"),
        (broken, Reason::Garbage, "CRC"),
        (join, Reason::Garbage, "hello first"),
        (Message::Hello(Hello { node: 1, incarnation: 1 }).encode(), Reason::Garbage, "own"),
        (Message::Hello(Hello { node: NodeId::ANY.get(), incarnation: 1 }).encode(), Reason::Garbage, "none"),
    ] {
        rejected(&mut bed);
        let heard = say(&mut bed, &bytes);
        let refusal = refusal(&heard);
        assert_eq!(refusal.reason, reason, "{refusal:?}");
        assert!(refusal.text.contains(text), "{text}: {refusal:?}");
        // Also reported at the publisher; other clients may have connected meanwhile.
        let why = rejected(&mut bed);
        assert!(why.iter().any(|why| why.contains(text)), "{text}: {why:?}");
    }
    assert_unaffected(&mut bed);
}

#[test]
fn bootstrap_invalid_windows_are_refused() {
    let mut bed = TestBed::new(1, options());
    let stride = bed.publisher.geometry().stride();
    for (slots, length, address) in [
        (0, 1 << 20, 0),
        (3, 1 << 20, 0),
        (8192, u64::MAX, 0),
        (8, stride * 8 + 63, 0),
        (8, stride * 8 + 64, u64::MAX - 100),
        (u32::MAX, u64::MAX, 0),
    ] {
        let (heard, _) = join_as(&mut bed, 77, Window { address, length, key: 0 }, slots);
        assert!(matches!(heard[0], Message::Offer(_)));
        assert_eq!(refusal(&heard).reason, Reason::Geometry, "{slots} slots");
    }
    assert_unaffected(&mut bed);
}

#[test]
fn listener_hundred_silent_connections_admit_one_subscriber() {
    check_flood(100);
}

#[test]
#[ignore = "long: 8 s: ten times the connections"]
fn listener_thousand_silent_connections_admit_one_subscriber() {
    check_flood(1_000);
}

/// Many silent connections and one real join, while frames are published: the join succeeds, and existing subscribers miss nothing.
fn check_flood(connections: usize) {
    let mut bed = TestBed::new(1, options());
    let address = bed.address;
    // From another thread: a thread that waits for a connection cannot accept it.
    let flood = std::thread::spawn(move || {
        (0..connections).map(|_| TcpStream::connect(address).unwrap()).collect::<Vec<_>>()
    });
    // The client with a valid hello. Its node is on another network: only the conversation matters here.
    let network = SimNetwork::builder().cards(4).build().unwrap();
    let mut patient = SubscriberOptions::default();
    patient.patience = Duration::from_secs(60);
    let end = endpoint(&network, 3, 9);
    let joining = std::thread::spawn(move || fpga_frames::Subscriber::join(end, address, patient));
    while !(joining.is_finished() && flood.is_finished()) {
        // At a rate, to subscribers with a free slot.
        bed.publish().unwrap();
        for _ in 0..400 {
            bed.turn();
        }
    }
    assert_eq!(flood.join().unwrap().len(), connections);
    let joined = joining.join().unwrap().unwrap();
    assert_eq!(joined.publisher(), bed.publisher.node());
    let mut count = 0;
    bed.until("silent connections are rejected", |bed| {
        count += rejected(bed).len();
        count > 32
    });
    assert!(!bed.seen[0].frames.is_empty(), "frames arrive during the flood");
    assert_unaffected_by(&mut bed, 1);
}

#[test]
fn publisher_invalid_sizes_are_refused_at_open() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let refused = |change: &dyn Fn(&mut PublisherOptions)| {
        let mut options = options();
        change(&mut options);
        let endpoint = Endpoint::open(&Card::from_backend(network.backend(0)).unwrap()).unwrap();
        Publisher::new(endpoint, options).unwrap_err()
    };
    let geometry = |change: &dyn Fn(&mut PublisherOptions)| match refused(change) {
        PublisherError::Geometry { cause, .. } => cause,
        other => panic!("{other}"),
    };
    assert_eq!(geometry(&|options| options.max_data_length = 0), GeometryError::NoData);
    assert_eq!(geometry(&|options| options.slots = 0), GeometryError::NoSlots);
    assert!(matches!(
        geometry(&|options| options.max_data_length = u64::MAX),
        GeometryError::FrameTooLong { .. }
    ));
    assert!(matches!(geometry(&|options| options.max_data_length = 1 << 40), GeometryError::Memory { .. }));
    let memory = CardRange::new(CardAddr::new(0), 30_000);
    let small = geometry(&|options| options.memory = Some(memory));
    assert!(matches!(small, GeometryError::Memory { slots: 16, memory: 30_000, .. }), "{small}");
    for (what, change) in [
        ("subscribers", &(|options: &mut PublisherOptions| options.subscribers = 0) as &dyn Fn(&mut _)),
        ("subscribers", &|options: &mut PublisherOptions| options.subscribers = 65),
        ("slots", &|options: &mut PublisherOptions| options.slots = 1 << 20),
    ] {
        let error = refused(change).to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn subscriber_too_small_memory_is_refused() {
    let mut bed = TestBed::new(1, options());
    let network = bed.network.clone();
    drop(bed.subscribers.remove(0));
    let mut join = |change: &dyn Fn(&mut SubscriberOptions)| {
        let mut options = SubscriberOptions::default();
        change(&mut options);
        let mut joining =
            fpga_frames::Subscriber::begin_join(endpoint(&network, 1, 9), bed.address, options)?;
        loop {
            bed.publisher.poll().unwrap();
            joining.relax();
            if let Some(it) = joining.poll()? {
                return Ok::<_, JoinError>(it);
            }
        }
    };
    let error = join(&|options| options.memory = Some(CardRange::new(CardAddr::new(0), 5_000))).unwrap_err();
    assert!(matches!(error, JoinError::Geometry { cause: GeometryError::Memory { .. }, .. }), "{error}");
    assert!(error.to_string().contains("fewer slots"), "{error}");
    for slots in [0, 3, 1 << 20] {
        let error = join(&|options| options.slots = slots).unwrap_err();
        assert!(matches!(error, JoinError::Geometry { cause: GeometryError::Slots { .. }, .. }), "{error}");
    }
    assert!(join(&|options| options.slots = 2).is_ok());
    drop(bed.publisher);
    let no_publisher =
        fpga_frames::Subscriber::join(endpoint(&network, 1, 9), bed.address, SubscriberOptions::default());
    assert!(
        matches!(no_publisher, Err(JoinError::Bootstrap(BootstrapError::Connect { .. }))),
        "{no_publisher:?}"
    );
}

/// Node that joins by the protocol and then writes invalid blocks.
#[test]
fn impossible_credit_drops_only_that_subscriber() {
    let credit = |key, consumed| CreditBlock { key, consumed, leaving: false, heard: 0 }.encode().to_vec();
    let mut damaged = credit(0, 0);
    damaged[20] ^= 1;
    // Nothing was sent to it, so that only the first position is possible.
    for (lie, expected) in [
        (None, "up to position 1000, but only positions 0 to 0 are"),
        (Some(damaged), "invalid credit block"),
    ] {
        let mut bed = TestBed::new(2, options());
        bed.stalled[1] = true;
        bed.publish().unwrap();
        // Endpoint of the second subscriber, under test control.
        bed.subscribers[1] = None;
        let mut options = EndpointOptions::default();
        options.incarnation = Some(99);
        let card = Card::from_backend(bed.network.backend(2)).unwrap();
        let mut end = Endpoint::open_with(&card, &options).unwrap();
        let window =
            end.open_region(bed.publisher.node(), CardRange::new(CardAddr::new(0), 1 << 20)).unwrap().remote;
        let window = Window { address: window.address.get(), length: window.length, key: window.key };
        let (heard, _) = join_as(&mut bed, end.node().get(), window, 8);
        let [Message::Offer(_), Message::Accepted(accepted)] = &heard[..] else { panic!("{heard:?}") };
        let cell = fpga_rdma::RemoteRegion {
            node: bed.publisher.node(),
            address: CardAddr::new(accepted.credit.address),
            length: accepted.credit.length,
            key: accepted.credit.key,
        };
        let lie = lie.unwrap_or_else(|| credit(accepted.credit.key, 1_000));
        let source = CardAddr::new(0x20_0000);
        end.write(card.buffer_from(&lie).unwrap(), source).unwrap();
        end.send(source, &cell, 0, 64, SendOptions::default()).unwrap();
        let reason = loop {
            end.poll().unwrap();
            bed.turn();
            match bed.publisher.next_event() {
                Some(PublisherEvent::Dropped {
                    reason: DropReason::Replaced | DropReason::Unreachable { .. },
                    ..
                }) => {}
                Some(PublisherEvent::Dropped { reason, .. }) => break reason,
                _ => {}
            }
        };
        let text = reason.to_string();
        assert_eq!(matches!(reason, DropReason::Credit(_)), expected.contains("position"), "{text}");
        assert!(text.contains(expected), "{text}");
        bed.seen.truncate(1);
        assert_unaffected(&mut bed);
    }
}
