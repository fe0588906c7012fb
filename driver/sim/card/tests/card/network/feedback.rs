//! Link feedback at an interface: settings, windows, events, the controller and the rates of its message sender.

use super::*;
use fpga_firmware::generated::{Capabilities, Scheme, rates};
use fpga_firmware::window::LinkFields;
use fpga_firmware::wire::{LinkFeedback, LinkLoad, LinkPacket};

const SELECTIVE: u32 = 1 << 5;

/// Enables link feedback, with additional schemes and a controller.
fn controlled(id: u32, others: u32, controller: u32) -> CardTestbed {
    let mut testbed = node(id);
    testbed.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    testbed.ni_write(ni::SCHEMES_ON, others);
    testbed.ni_write(ni::LINK_CONTROLLER, controller);
    testbed.ni_write(ni::LINK_CONTROL, ni::link_control::ENABLE);
    testbed.ni_write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
    testbed
}

/// Delivers a link packet to node 1, and returns the events that follow.
fn deliver(testbed: &mut CardTestbed, word: LinkFeedback) -> Vec<Event> {
    let common = Common { source: NodeId::new(2), destination: NodeId::new(1), ..Common::default() };
    let mut bytes = [0; 64];
    let length = LinkPacket { common, word }.encode(&mut bytes).expect("the packet fits");
    testbed.card.receive_frame(Nanos::new(testbed.now), &bytes[..length]);
    testbed.run();
    testbed.events()
}

fn sent(testbed: &mut CardTestbed) -> Vec<LinkPacket> {
    let frames = std::iter::from_fn(|| testbed.card.take_frame());
    frames
        .map(|frame| match Packet::parse(&frame) {
            Ok(Packet::Link(packet)) => packet,
            other => panic!("{other:?}"),
        })
        .collect()
}

const STATE: LinkLoad = LinkLoad { link: 7, rate: 1000, queue: 900 };

#[test]
fn ni_link_settings_are_checked_and_kept() {
    let mut testbed = node(1);
    assert!(Capabilities::from_bits(testbed.read(USER, 0x10)).contains(Capabilities::LINK_FEEDBACK));
    assert_eq!(testbed.ni_read(ni::RATE_ENTRIES), 64);
    let settings = [ni::LINK_CONTROL, ni::LINK_CONTROLLER, ni::LINK_RATE_MBPS];
    let read = |testbed: &mut CardTestbed| settings.map(|register| testbed.ni_read(register));
    let reset = [0, u32::MAX, 100_000];
    assert_eq!(read(&mut testbed), reset);
    // Not while the interface is enabled, and not these values.
    testbed.ni_write(ni::LINK_CONTROL, 1);
    testbed.ni_write(ni::CONTROL, 0);
    testbed.ni_write(ni::LINK_CONTROL, 2);
    testbed.ni_write(ni::LINK_RATE_MBPS, 0);
    testbed.ni_write(ni::RATE_ENTRIES, 1);
    assert_eq!(read(&mut testbed), reset);
    for (register, value) in settings.into_iter().zip([1, 9, 40_000]) {
        testbed.ni_write(register, value);
    }
    testbed.ni_write(ni::CONTROL, ni::control::RESET);
    assert_eq!(read(&mut testbed), [1, 9, 40_000], "a reset of the interface keeps settings");
    let mut alone = small();
    alone.ni.commands = 0;
    assert_eq!(prepare(CardTestbed::with(alone)).ni_read(ni::RATE_ENTRIES), 0);
}

#[test]
fn ni_link_windows_become_packets() {
    let mut testbed = node(1);
    let link = LinkFields { number: 5, ..LinkFields::NONE };
    let window =
        |sequence, kind, link| WindowHeader { kind, packet_count: 0, link, ..header(sequence, 2, 100) };
    fill(&mut testbed, 0, &window(1, WindowKind::LinkInquiry, link), &[], 1);
    let link = LinkFields { number: 7, receiver: 3, rate: 1000, queue: 900 };
    fill(&mut testbed, 1, &window(2, WindowKind::LinkActive, link), &[], 2);
    testbed.run();
    let packets = sent(&mut testbed);
    let words: Vec<_> = packets.iter().map(|packet| packet.word).collect();
    let active = LinkFeedback::Active { sender: NodeId::new(1), receiver: NodeId::new(3), state: STATE };
    assert_eq!(words, [LinkFeedback::Inquiry { number: 5 }, active]);
    assert!(packets.iter().all(|packet| packet.common.destination == NodeId::new(2)));
    assert_eq!(kinds(&testbed.events()), [EventKind::WindowFree; 2]);
    let counts = [counters::LINK_INQUIRIES_SENT, counters::LINK_ACTIVE_SENT, counters::TX_PACKETS];
    assert_eq!(counts.map(|register| testbed.counter(register)), [1, 1, 2]);
}

#[test]
fn ni_link_packets_become_events_only_if_enabled() {
    let receiver = NodeId::new(2);
    let words =
        [LinkFeedback::Passive { number: 5, receiver, state: STATE }, LinkFeedback::Slow { receiver }];
    for word in words {
        assert_eq!(deliver(&mut node(1), word), []);
        let mut testbed = controlled(1, 0, u32::MAX);
        let told = deliver(&mut testbed, word);
        assert_eq!(told.iter().map(Event::link_feedback).collect::<Vec<_>>(), [Some(word)]);
        // Packets of other nodes take a quarter of the ring at most.
        testbed.ni_write(ni::EVENT_CONSUMED, 1);
        let mut bytes = [0; 64];
        let common = Common { source: receiver, destination: NodeId::new(1), ..Common::default() };
        let length = LinkPacket { common, word }.encode(&mut bytes).unwrap();
        for _ in 0..100 {
            testbed.card.receive_frame(Nanos::new(testbed.now), &bytes[..length]);
        }
        testbed.run();
        assert_eq!((testbed.events().len(), testbed.counter(counters::LINK_EVENTS_DROPPED)), (64, 36));
    }
    let mut testbed = controlled(1, 0, u32::MAX);
    assert_eq!(deliver(&mut testbed, LinkFeedback::Inquiry { number: 5 }), [], "only hops answer");
    assert!(sent(&mut testbed).is_empty());
}

#[test]
fn ni_controller_asks_sender_to_slow_down() {
    let report = LinkFeedback::Active { sender: NodeId::new(4), receiver: NodeId::new(2), state: STATE };
    for (controller, answers) in [(1, 1), (9, 0), (u32::MAX, 0)] {
        let mut testbed = controlled(1, 0, controller);
        assert_eq!(deliver(&mut testbed, report), []);
        let packets = sent(&mut testbed);
        assert_eq!(packets.len(), answers, "{controller}");
        for packet in packets {
            assert_eq!(packet.word, LinkFeedback::Slow { receiver: NodeId::new(2) });
            assert_eq!((packet.common.source, packet.common.destination), (NodeId::new(1), NodeId::new(4)));
        }
        let counts = [counters::LINK_ACTIVE_RECEIVED, counters::LINK_SLOW_SENT];
        assert_eq!(counts.map(|register| testbed.counter(register)), [answers as u32; 2]);
    }
}

/// The message sender lowers its rate; the block of rates shows the receiver as controlled.
#[test]
fn ni_slow_packet_lowers_rate_of_message_sender() {
    let mut testbed = controlled(1, SELECTIVE, u32::MAX);
    let read = |testbed: &mut CardTestbed, register: u32| {
        testbed.read(USER, u64::from(rates::BLOCK_OFFSET + register))
    };
    let latch = |testbed: &mut CardTestbed, index: u32| {
        testbed.write(USER, u64::from(rates::BLOCK_OFFSET + rates::INDEX), index);
        read(testbed, rates::FLAGS)
    };
    assert_eq!((latch(&mut testbed, 0), read(&mut testbed, rates::OCCUPANCY)), (0, 0));
    let told = deliver(&mut testbed, LinkFeedback::Slow { receiver: NodeId::new(2) });
    assert_eq!(told.len(), 1, "the registry's sender gets an event, too");
    assert_eq!(latch(&mut testbed, 0), rates::flags::VALID | rates::flags::CONTROLLED);
    let words = [rates::NODE, rates::RATE, rates::OCCUPANCY, rates::CONTROLLED];
    assert_eq!(words.map(|register| read(&mut testbed, register)), [2, 512, 1, 1]);
    assert_eq!((latch(&mut testbed, 1), latch(&mut testbed, 64), latch(&mut testbed, u32::MAX)), (0, 0, 0));
    let counts = [counters::LINK_SLOW_RECEIVED, counters::RATES_LOWERED, counters::RATES_RAISED];
    assert_eq!(counts.map(|register| testbed.counter(register)), [1, 1, 0]);
    testbed.ni_write(ni::CONTROL, ni::control::RESET | ni::control::ENABLE);
    assert_eq!(read(&mut testbed, rates::OCCUPANCY), 0);
    assert_eq!(counts.map(|register| testbed.counter(register)), [0; 3]);
    assert_eq!(Scheme::Selective.value(), 5);
}
