//! Servers that are not publishers, and publishers that break the protocol: a joining node gets an error with the reason, or an event;
//! valid frames are read all the same.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use fpga_driver::{CardAddr, CardRange};
use fpga_frames::blocks::{FrameHeader, StatusBlock};
use fpga_frames::bootstrap::wire::{Accepted, Inbox, Join, Message, Offer, Reason, Refusal, Window};
use fpga_frames::{Event, JoinError, Sequence, Subscriber, SubscriberOptions};
use fpga_rdma::{Endpoint, RemoteRegion, SendOptions};
use fpga_sim::SimNetwork;

use crate::stream::bed::endpoint;

const STREAM: u64 = 77;
const OFFER: Offer = Offer {
    stream: STREAM,
    node: 1,
    max_value_length: 0,
    max_data_length: 1_000,
    slots: 8,
    heartbeat_ms: 1_000_000,
    challenge: 0x1234,
    segment: 16 << 10,
};
const CREDIT: Window = Window { address: 0, length: 64, key: 1 };

/// Sends `first` to the client that connects, and then the answers that `next` makes of its messages.
fn publisher(
    first: Vec<u8>,
    next: impl FnOnce(Join) -> Vec<u8> + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let talking = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let (mut inbox, mut bytes) = (Inbox::default(), [0; 64]);
        socket.write_all(&first).unwrap();
        let mut next = Some(next);
        // Until the other side closes the connection.
        loop {
            let wanted = inbox.wanted().clamp(1, bytes.len());
            let Ok(count @ 1..) = socket.read(&mut bytes[..wanted]) else { return };
            match inbox.take(&bytes[..count]).unwrap() {
                Some(Message::Join(join)) => {
                    let Some(next) = next.take() else { return };
                    let _ = socket.write_all(&next(join));
                }
                Some(Message::Hello(_)) | None => {}
                Some(other) => panic!("{other:?}"),
            }
        }
    });
    (address, talking)
}

fn join(network: &SimNetwork, address: SocketAddr) -> Result<Subscriber, JoinError> {
    let mut options = SubscriberOptions::default();
    options.patience = Duration::from_millis(200);
    Subscriber::join(endpoint(network, 1, 1), address, options)
}

#[test]
fn bootstrap_non_publisher_is_detected() {
    let network = SimNetwork::builder().cards(2).build().unwrap();
    let offer = |change: &dyn Fn(&mut Offer)| {
        let mut offer = OFFER;
        change(&mut offer);
        Message::Offer(offer).encode()
    };
    let mut version = offer(&|_| ());
    version[8] = 9;
    let mut broken = offer(&|_| ());
    broken[20] ^= 1;
    let accepted = Message::Accepted(Accepted { sequence: 0, position: 0, credit: CREDIT }).encode();
    let twice = [offer(&|_| ()), offer(&|_| ())].concat();
    let refused = Message::Refused(Refusal { reason: Reason::Full, text: "no more places".to_owned() });
    let stranger = Message::Join(Join { window: CREDIT, slots: 8, challenge: 0 }).encode();
    for (said, expected) in [
        (b"220 mail.example.org ESMTP ready\r\n".to_vec(), "does not use the frame stream protocol"),
        (version, "version 9"),
        (broken, "CRC"),
        (offer(&|offer| offer.node = 2), "is not a valid node number"),
        (offer(&|offer| offer.node = u32::MAX), "is not a valid node number"),
        (offer(&|offer| offer.max_data_length = 0), "0 bytes of data"),
        (offer(&|offer| offer.max_data_length = u64::MAX), "exceed the address range"),
        (offer(&|offer| offer.max_data_length = 1 << 40), "exceed the 8589869056 bytes"),
        (offer(&|offer| offer.segment = 0), "segments of 0 bytes"),
        (
            offer(&|offer| (offer.segment, offer.max_data_length) = (1, 5_000)),
            "three eighths of the event ring",
        ),
        (accepted, "before its offer"),
        (twice, "second offer"),
        (refused.encode(), "no more places"),
        (stranger, "not asked for"),
        (Vec::new(), "did not answer within"),
    ] {
        let (address, talking) = publisher(said, |_| Vec::new());
        let error = join(&network, address).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
        talking.join().unwrap();
    }
    let short = Window { length: 63, ..CREDIT };
    let accepted = Message::Accepted(Accepted { sequence: 0, position: 0, credit: short }).encode();
    let (address, talking) = publisher(Message::Offer(OFFER).encode(), |_| accepted);
    let error = join(&network, address).unwrap_err().to_string();
    assert!(error.contains("too small for a credit"), "{error}");
    talking.join().unwrap();
    // The server closes the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let talking = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = join(&network, address).unwrap_err().to_string();
    assert!(error.contains("try again"), "{error}");
    talking.join().unwrap();
}

/// Publisher's side under test control, joined by the protocol.
struct HostilePublisher {
    end: Endpoint,
    region: RemoteRegion,
    subscriber: Subscriber,
}

impl HostilePublisher {
    fn new() -> Self {
        let network = SimNetwork::builder().cards(2).build().unwrap();
        let mut end = endpoint(&network, 0, 1);
        let subscriber = endpoint(&network, 1, 1);
        let cell = end.open_region(subscriber.node(), CardRange::new(CardAddr::new(0), 64)).unwrap().remote;
        let credit = Window { address: 0, length: cell.length, key: cell.key };
        let (tell, windows) = mpsc::channel();
        let (address, talking) = publisher(Message::Offer(OFFER).encode(), move |join| {
            tell.send(join.window).unwrap();
            Message::Accepted(Accepted { sequence: 0, position: 0, credit }).encode()
        });
        let subscriber = Subscriber::join(subscriber, address, SubscriberOptions::default()).unwrap();
        talking.join().unwrap();
        let window = windows.recv().unwrap();
        let region = RemoteRegion {
            node: subscriber.endpoint().node(),
            address: CardAddr::new(window.address),
            length: window.length,
            key: window.key,
        };
        Self { end, region, subscriber }
    }

    /// Writes bytes to any offset. Returns the subscriber's events.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Vec<Event> {
        let source = CardAddr::new(0x10_0000);
        let buffer = self.end.card().buffer_from(bytes).unwrap();
        self.end.write(buffer, source).unwrap();
        let length = bytes.len() as u64;
        self.end.send(source, &self.region, offset, length, SendOptions::default()).unwrap();
        let mut events = Vec::new();
        for _ in 0..5_000 {
            self.end.poll().unwrap();
            events.extend(self.subscriber.poll().unwrap());
            self.end.relax();
        }
        events
    }
}

fn frame(stream: u64, number: u64) -> Vec<u8> {
    let header = FrameHeader {
        stream,
        sequence: Sequence::new(number),
        data_length: 10,
        value_length: 0,
        max_value_length: 0,
        time: 0,
    };
    let mut bytes = header.encode().to_vec();
    bytes.extend([7; 10]);
    bytes
}

#[test]
fn subscriber_invalid_publisher_data_is_refused() {
    let mut liar = HostilePublisher::new();
    let stride = 1_088;
    let fault = |events: Vec<Event>| match &events[..] {
        [Event::Fault(error)] => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(fault(liar.write(0, &[0x5A; 200])).contains("slot 0 is not a frame"));
    assert!(fault(liar.write(stride, &frame(STREAM + 1, 0))).contains("another stream"));
    assert!(fault(liar.write(2 * stride, &frame(STREAM, 0)[..70])).contains("lengths"));
    // A valid frame, between invalid ones.
    let events = liar.write(3 * stride, &frame(STREAM, 5));
    let [Event::Gap { missed: 5, .. }, Event::Frame(held)] = &events[..] else { panic!("{events:?}") };
    assert_eq!((held.sequence(), held.data().to_vec()), (Sequence::new(5), vec![7; 10]));
    // The same slot again, while it is read: the reader is notified that the frame may be torn.
    assert!(fault(liar.write(3 * stride, &frame(STREAM, 6))).contains("not returned"));
    drop(events);
    assert!(fault(liar.write(4 * stride, &frame(STREAM, 5))).contains("wrong frame numbers"));
    let status = |settled, sent| {
        StatusBlock { stream: STREAM, next: Sequence::new(7), settled, sent, ended: false, number: 1 }
            .encode()
    };
    let all = 8 * stride;
    assert!(fault(liar.write(all, &status(5_000, 5_000))).contains("position 5000"));
    let other =
        StatusBlock { stream: 1, next: Sequence::new(7), settled: 0, sent: 0, ended: true, number: 1 };
    assert!(fault(liar.write(all, &other.encode())).contains("invalid status block"));
    // In the middle of a slot: it belongs to no frame, and is counted.
    let strays = liar.subscriber.counts().internal.stray_notifications;
    assert!(liar.write(5 * stride + 64, &frame(STREAM, 6)).is_empty());
    assert_eq!(liar.subscriber.counts().internal.stray_notifications, strays + 1);
    let events = liar.write(5 * stride, &frame(STREAM, 6));
    assert!(
        matches!(&events[..], [Event::Frame(frame)] if frame.sequence() == Sequence::new(6)),
        "{events:?}"
    );
}
