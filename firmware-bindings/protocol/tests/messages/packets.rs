//! Single packets to a receiver: packets that contradict their message, events of valid ones, and timeouts.

use crate::messages::net::{KEY, Memory, node_id, write};
use crate::messages::{ROUND_TRIP, configs};
use fpga_firmware::event::{Event, EventKind, Registration};
use fpga_firmware::generated::{Flags, Permissions, Scheme};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber};
use fpga_firmware::wire::{AnswerBody, Message, MessageHeader};
use fpga_protocol::Nanos;
use fpga_protocol::receiver::MemoryWindow;
use fpga_protocol::scheme::any::SchemeConfig;
use fpga_protocol::scheme::messages::{Receiver, ReceiverConfig, Sender};
use fpga_protocol::scheme::traits::{Action, Header, SchemeReceiver, SchemeSender};
use fpga_registers::CardAddr;

const START: Nanos = Nanos::ZERO;
/// Two packets of 64 bytes and one of 22.
const LENGTH: u32 = 150;
const BASE: u64 = 0x300;

fn rules() -> SchemeConfig {
    SchemeConfig::new(Scheme::Selective, ROUND_TRIP).unwrap()
}

/// First packets of a transfer to [`BASE`] from a sender with incarnation `incarnation`.
fn packets(incarnation: u32, length: u32) -> Vec<MessageHeader> {
    let mut sender = Sender::new(configs(rules(), 0).0, Incarnation::new(incarnation)).unwrap();
    sender.submit(START, write(1, 0, BASE, length.into())).unwrap();
    let departures = std::iter::from_fn(|| sender.poll_packet(START));
    departures
        .map(|departure| match departure.header {
            Header::Message(Message::Data(header)) => header,
            other => panic!("{other:?}"),
        })
        .collect()
}

struct TestBed {
    receiver: Receiver,
    memory: Memory,
}

impl TestBed {
    fn new(change: impl FnOnce(&mut ReceiverConfig)) -> Self {
        let (_, mut config) = configs(rules(), 1);
        change(&mut config);
        let mut receiver = Receiver::new(config).unwrap();
        let window = MemoryWindow {
            source: NodeId::ANY,
            base: CardAddr::new(0),
            length: 1 << 16,
            key: KEY,
            permissions: Permissions::WRITE,
        };
        receiver.access_mut().install(0, window).unwrap();
        Self { receiver, memory: Memory(vec![0; 1 << 16]) }
    }

    fn deliver(&mut self, now: Nanos, header: MessageHeader, length: usize) -> (Vec<AnswerBody>, Vec<Event>) {
        let header = Header::Message(Message::Data(header));
        self.receiver.handle_packet(now, &header, &vec![7; length], &mut self.memory);
        let (mut answers, mut events) = (Vec::new(), Vec::new());
        while let Some(said) = self.receiver.poll_action() {
            match said {
                Action::Send(Header::Message(Message::Answer(answer))) => answers.push(answer.body),
                Action::Send(other) => panic!("{other:?}"),
                Action::Event(event) => events.push(event),
            }
        }
        (answers, events)
    }
}

#[test]
fn packets_that_contradict_their_message_refused() {
    let [first, second, last] = packets(5, LENGTH).try_into().unwrap();
    let mut bed = TestBed::new(|_| {});
    assert!(matches!(bed.deliver(START, first, 64).0[..], [AnswerBody::Map { base: 1, .. }]));
    let wrong = [
        ("behind the last", MessageHeader { index: 3, ..second }, 64),
        ("behind the last, as the last", MessageHeader { index: 3, ..last }, 22),
        ("last in the middle", MessageHeader { tail: true, ..second }, 64),
        ("last, and says it is not", MessageHeader { tail: false, ..last }, 22),
        ("too short", second, 63),
        ("too long", last, 23),
    ];
    for (count, (name, header, length)) in (1..).zip(wrong) {
        let (answers, events) = bed.deliver(START, header, length);
        assert!(answers.is_empty(), "{name}: {answers:?}");
        assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Fault], "{name}");
        let counters = bed.receiver.counters();
        assert_eq!((counters.bad_packets, counters.written), (count, 1), "{name}");
    }
    bed.deliver(START, second, 64);
    assert_eq!(bed.deliver(START, last, 22).0, [AnswerBody::Done]);
    assert_eq!(bed.memory.0.iter().filter(|byte| **byte == 7).count(), 150);
}

#[test]
fn events_of_message_name_time_context_and_range() {
    let mut bed = TestBed::new(|_| {});
    // Context 0 belongs to another sender's message.
    let mut other = packets(6, LENGTH)[0];
    other.common.source = node_id(1);
    bed.deliver(START, other, 64);
    let [first, second, last] = packets(5, LENGTH).try_into().unwrap();
    let begun = Event {
        index: 1,
        generation: 1,
        node: node_id(0),
        incarnation: Incarnation::new(5),
        transfer: first.announcement.unwrap().transfer,
        segment: first.message.get(),
        count: 3,
        address: CardAddr::new(BASE),
        length: LENGTH.into(),
        op: OpNumber::new(1),
        tries: Registration::byte(Flags::NOTIFY_RECEIVER, Scheme::Selective),
        time: 300,
        ..Event::new(EventKind::Registered)
    };
    assert_eq!(bed.deliver(Nanos::new(300), first, 64).1, [begun]);
    bed.deliver(Nanos::new(400), second, 64);
    let complete = Event { kind: EventKind::Completed, op: OpNumber::new(0), tries: 0, time: 500, ..begun };
    let notice = Event {
        node: begun.node,
        incarnation: begun.incarnation,
        transfer: begun.transfer,
        address: begun.address,
        length: begun.length,
        time: 500,
        ..Event::new(EventKind::Notice)
    };
    assert_eq!(bed.deliver(Nanos::new(500), last, 22).1, [complete, notice]);
}

/// The timeout restarts with every packet of the message.
#[test]
fn silence_counted_from_last_packet() {
    let mut bed = TestBed::new(|config| config.silence = Nanos::new(1000));
    let packets = packets(5, LENGTH);
    for (now, packet) in [0, 900].into_iter().zip(packets) {
        bed.deliver(Nanos::new(now), packet, 64);
    }
    for (now, live) in [(1000, 1), (1899, 1), (1900, 0)] {
        bed.receiver.handle_timeout(Nanos::new(now));
        assert_eq!(
            (bed.receiver.live(), bed.receiver.counters().abandoned),
            (live, 1 - live as u64),
            "{now}"
        );
    }
}

#[test]
fn set_timeouts_holds_for_messages_under_way() {
    let mut bed = TestBed::new(|_| {});
    bed.deliver(START, packets(5, LENGTH)[0], 64);
    bed.receiver.set_timeouts(Nanos::new(100), Nanos::from_secs(1), Nanos::from_millis(10));
    assert!(bed.receiver.poll_timeout().unwrap() <= Nanos::new(100));
    for (now, live) in [(99, 1), (100, 0)] {
        bed.receiver.handle_timeout(Nanos::new(now));
        assert_eq!(bed.receiver.live(), live, "{now}");
    }
}

#[test]
fn incarnation_of_known_node_later_is_admitted_and_earlier_refused() {
    let one_packet = |incarnation| packets(incarnation, 10)[0];
    // The second message comes this long after the end of the first one.
    for later in [0, 1000, 1001, 1_000_000_000_000] {
        let mut bed = TestBed::new(|config| {
            (config.tombstone, config.lifetime) = (Nanos::new(1000), Nanos::new(200));
        });
        assert_eq!(bed.deliver(START, one_packet(5), 10).0, [AnswerBody::Done]);
        let earlier = AnswerBody::Superseded(Incarnation::new(5));
        assert_eq!(bed.deliver(Nanos::new(later), one_packet(4), 10).0, [earlier], "{later}");
        assert_eq!(bed.deliver(Nanos::new(later), one_packet(6), 10).0, [AnswerBody::Done], "{later}");
        assert_eq!(bed.receiver.superseding(node_id(0), Incarnation::new(5)), Some(Incarnation::new(6)));
    }
}
