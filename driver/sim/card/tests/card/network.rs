//! Two network interfaces, driven through raw windows and registers.
use crate::support::*;
use fpga_firmware::event::{Event, EventKind, FaultReason, NackReason};
use fpga_firmware::generated::{
    Flags, MEMORY_COMMIT_INSTALL, counters, escape, fault_log, memory, ni, registry,
};
use fpga_firmware::identity::{Identity, IdentityError, check};
use fpga_firmware::ids::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_firmware::window::{WindowHeader, WindowKind};
use fpga_firmware::wire::{Common, Control, DataHeader, Hello, Packet};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;

mod feedback;
mod schemes;

const NI: u64 = ni::BLOCK_OFFSET as u64;
const RING: u64 = 0x18_0000;
const KEY: u64 = 0x1234_5678_9ABC_DEF0;
const TARGET: u64 = 0x20_0000;

impl CardTestbed {
    fn ni_write(&mut self, register: u32, value: u32) {
        self.write(USER, NI + u64::from(register), value);
    }

    fn ni_read(&mut self, register: u32) -> u32 {
        self.read(USER, NI + u64::from(register))
    }

    fn counter(&mut self, register: u32) -> u32 {
        self.read(USER, u64::from(counters::BLOCK_OFFSET + register))
    }

    /// Returns and consumes the next events of the ring.
    fn events(&mut self) -> Vec<Event> {
        let produced = self.ni_read(ni::EVENT_PRODUCED);
        let consumed = self.ni_read(ni::EVENT_CONSUMED);
        let size = u64::from(self.ni_read(ni::EVENT_RING_SIZE));
        let push = self.read(USER, 0x10) & 1 != 0;
        let mut events = Vec::new();
        for number in consumed..produced {
            let at = RING + 64 * (u64::from(number) % size);
            let bytes = if push { self.host.get(at, 64) } else { self.memory(at, 64) };
            let event = Event::decode(&bytes.try_into().expect("64 bytes")).expect("an event");
            assert_eq!(event.sequence, number + 1);
            events.push(event);
        }
        self.ni_write(ni::EVENT_CONSUMED, produced);
        events
    }
}

fn node(id: u32) -> CardTestbed {
    let mut description = small();
    description.ni.node_id = id;
    prepare(CardTestbed::with(description))
}

fn prepare(mut testbed: CardTestbed) -> CardTestbed {
    testbed.ni_write(ni::INCARNATION, 0x100);
    testbed.ni_write(ni::EVENT_RING_BASE_LOW, RING as u32);
    testbed.ni_write(ni::EVENT_RING_SIZE, 256);
    testbed.ni_write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
    testbed
}

/// Opens a megabyte at TARGET to every node.
fn open(testbed: &mut CardTestbed) {
    let base = u64::from(memory::BLOCK_OFFSET);
    for (register, value) in [
        (memory::INDEX, 0),
        (memory::SOURCE_NODE, u32::MAX),
        (memory::BASE_LOW, TARGET as u32),
        (memory::BASE_HIGH, 0),
        (memory::LENGTH_LOW, 1 << 20),
        (memory::KEY_LOW, KEY as u32),
        (memory::KEY_HIGH, (KEY >> 32) as u32),
        (memory::PERMISSIONS, 1),
        (memory::COMMIT, MEMORY_COMMIT_INSTALL),
    ] {
        testbed.write(USER, base + u64::from(register), value);
    }
    assert_eq!(testbed.read(USER, base + u64::from(memory::VALID)), 1);
    assert_eq!(testbed.read(USER, base + u64::from(memory::OCCUPANCY)), 1);
}

fn header(sequence: u32, to: u32, length: u32) -> WindowHeader {
    let packets = length.div_ceil(512) as u16;
    WindowHeader {
        sequence,
        flags: Flags::NOTIFY_RECEIVER,
        destination: NodeId::new(to),
        transfer: TransferId::new(sequence),
        oldest_live: TransferId::new(1),
        segment: 0,
        segment_count: 1,
        segment_length: length,
        base: CardAddr::new(TARGET + 3),
        key: KEY,
        transfer_base: CardAddr::new(TARGET + 3),
        transfer_length: length.into(),
        first_packet: 0,
        packet_count: packets,
        packet_size_log2: 9,
        kind: WindowKind::Data,
        segment_packets: packets,
        tries: 0,
        path: 0,
        command: fpga_firmware::window::CommandFields::NONE,
        link: fpga_firmware::window::LinkFields::NONE,
    }
}

fn ops(count: u16) -> Vec<OpNumber> {
    (0..count).map(|slot| OpNumber::from_parts(slot, 7)).collect()
}

/// Fills window `window` and commits it.
fn fill(testbed: &mut CardTestbed, window: u64, header: &WindowHeader, payload: &[u8], commit: u32) {
    let base = u64::from(testbed.ni_read(ni::WINDOW_BASE_LOW))
        | u64::from(testbed.ni_read(ni::WINDOW_BASE_HIGH)) << 32;
    let at = base + window * u64::from(testbed.ni_read(ni::WINDOW_STRIDE));
    let mut block = [0; 2048];
    let length = header.encode(&ops(header.packet_count), &mut block).expect("a header");
    testbed.poke(at, &block[..length]);
    let payload_at = testbed.ni_read(ni::WINDOW_PAYLOAD_OFFSET);
    testbed.poke(at + u64::from(payload_at), payload);
    let commit_at = testbed.ni_read(ni::WINDOW_COMMIT_OFFSET);
    testbed.poke(at + u64::from(commit_at), &commit.to_le_bytes());
}

/// Lets both cards work and exchange frames until they are idle; `shuffle` selects the frame in flight to deliver next.
fn exchange(a: &mut CardTestbed, b: &mut CardTestbed, mut shuffle: impl FnMut(usize) -> usize) {
    let mut wire: Vec<(bool, Vec<u8>)> = Vec::new();
    loop {
        a.run();
        b.run();
        while let Some(frame) = a.card.take_frame() {
            wire.push((true, frame));
        }
        while let Some(frame) = b.card.take_frame() {
            wire.push((false, frame));
        }
        if wire.is_empty() {
            return;
        }
        let (to_b, frame) = wire.remove(shuffle(wire.len()));
        let (from, to) = if to_b { (&mut *a, &mut *b) } else { (&mut *b, &mut *a) };
        to.card.receive_frame(Nanos::new(to.now), &frame);
        from.card.recycle_frame(frame);
    }
}

fn kinds(events: &[Event]) -> Vec<EventKind> {
    events.iter().map(|event| event.kind).collect()
}

#[test]
fn ni_identity_block_is_accepted() {
    let mut testbed = CardTestbed::new();
    let words: Vec<u32> = (0..256).map(|index| testbed.read(USER, 4 * index)).collect();
    let identity: Identity = check(&words, 0x1_0000).unwrap();
    assert_eq!(identity.blocks().len(), 10);
    let mut description = small();
    description.ni.checksum_override = Some(1);
    let mut testbed = CardTestbed::with(description);
    let words: Vec<u32> = (0..256).map(|index| testbed.read(USER, 4 * index)).collect();
    assert!(matches!(check(&words, 0x1_0000), Err(IdentityError::WrongChecksum { .. })));
}

#[test]
fn ni_capabilities_and_settings_match_description() {
    let mut testbed = CardTestbed::new();
    assert_eq!(testbed.ni_read(ni::NODE_ID), 1);
    assert_eq!(testbed.ni_read(ni::PACKET_SIZE_LOG2), 9);
    assert_eq!(testbed.ni_read(ni::MASK_BITS), 32);
    assert_eq!(testbed.ni_read(ni::WINDOW_PAYLOAD_SIZE), 16384);
    assert_eq!(testbed.ni_read(ni::WINDOW_FREE), 0xFF);
    assert_eq!(testbed.ni_read(ni::MEMORY_SIZE_LOW), 64 << 20);
    assert_eq!(testbed.ni_read(ni::REGISTRY_TIMEOUT_US), 2_000_000);
    testbed.ni_write(ni::NODE_ID, u32::MAX);
    assert_eq!(testbed.ni_read(ni::NODE_ID), 1, "NODE_ANY is refused");
    assert_eq!(testbed.ni_read(ni::STATUS), ni::status::FAULTED);
    let log = u64::from(fault_log::BLOCK_OFFSET);
    testbed.write(USER, log, 0);
    assert_eq!(
        testbed.read(USER, log + u64::from(fault_log::REASON)),
        FaultReason::BadSetting.value().into()
    );
    assert_eq!(testbed.read(USER, log + u64::from(fault_log::DETAIL)), ni::BLOCK_OFFSET + ni::NODE_ID);
    assert_eq!(testbed.read(USER, log + u64::from(fault_log::COUNT)), 1);
    testbed.write(USER, log, 1);
    assert_eq!(testbed.read(USER, log + u64::from(fault_log::VALID)), 0);
    testbed.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    assert_eq!(testbed.ni_read(ni::CONTROL), 0, "the ring does not exist yet");
    testbed.ni_write(ni::EVENT_RING_SIZE, 100);
    assert_eq!(testbed.ni_read(ni::EVENT_RING_SIZE), 0, "not a power of two");
}

#[test]
fn ni_segment_travels_from_window_to_memory() {
    for seed in 0..20_usize {
        let (mut a, mut b) = (node(1), node(2));
        open(&mut b);
        let data = pattern(5000, 11);
        fill(&mut a, 2, &header(1, 2, 5000), &data, 1);
        let mut state = seed;
        exchange(&mut a, &mut b, |count| {
            state = state.wrapping_mul(31).wrapping_add(7);
            if seed == 0 { 0 } else { state % count }
        });
        assert_eq!(b.memory(TARGET + 3, 5000), data);
        assert_eq!(b.memory(TARGET, 3), [0; 3]);
        let at_sender = a.events();
        let acks: Vec<_> = at_sender.iter().filter(|event| event.kind == EventKind::Ack).collect();
        assert_eq!(acks.len(), 10);
        let mut slots: Vec<_> = acks.iter().map(|event| event.op.slot()).collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..10).collect::<Vec<_>>());
        assert!(kinds(&at_sender).contains(&EventKind::SegmentDone));
        let free =
            at_sender.iter().find(|event| event.kind == EventKind::WindowFree).expect("the window is free");
        assert_eq!((free.index, free.count), (2, 1));
        let at_receiver = b.events();
        let seen = kinds(&at_receiver);
        assert!(seen.contains(&EventKind::Registered));
        assert!(seen.contains(&EventKind::Completed));
        let notice = at_receiver.iter().find(|event| event.kind == EventKind::Notice).expect("one notice");
        assert_eq!((notice.address.get(), notice.length, notice.node.get()), (TARGET + 3, 5000, 1));
        assert_eq!(a.counter(counters::TX_PACKETS), 10);
        assert_eq!(b.counter(counters::RX_PACKETS), 10);
        assert_eq!(b.counter(counters::ACKS_SENT), 10);
        assert_eq!(b.counter(counters::COMPLETIONS), 1);
    }
}

#[test]
fn ni_registry_window_shows_operation() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let data = pattern(2048, 12);
    let mut part = header(1, 2, 2048);
    part.packet_count = 2;
    fill(&mut a, 0, &part, &data[..1024], 1);
    exchange(&mut a, &mut b, |_| 0);
    let block = u64::from(registry::BLOCK_OFFSET);
    let entry = b.events().into_iter().find(|event| event.kind == EventKind::Registered).expect("registered");
    b.write(USER, block, entry.index.into());
    let mut read = |register: u32| b.read(USER, block + u64::from(register));
    assert_eq!(read(registry::FLAGS), registry::flags::VALID | registry::flags::NOTIFY);
    assert_eq!(read(registry::SOURCE_NODE), 1);
    assert_eq!(read(registry::INCARNATION), 0x100);
    assert_eq!(read(registry::EXPECTED), 4);
    assert_eq!(read(registry::LENGTH), 2048);
    assert_eq!(read(registry::MASK), 0xFFFF_FFF3);
    assert_eq!(read(registry::OCCUPANCY), 1);
    assert_eq!(read(registry::HIGH_WATER), 1);
    // The rest, from a window that starts with packet 2.
    let rest = WindowHeader { sequence: 2, first_packet: 2, ..part };
    fill(&mut a, 1, &WindowHeader { transfer: TransferId::new(1), ..rest }, &data[1024..], 2);
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(b.memory(TARGET + 3, 2048), data);
    assert_eq!(b.read(USER, block + u64::from(registry::OCCUPANCY)), 0);
    assert_eq!(b.read(USER, block + u64::from(registry::FLAGS)) & 1, 1, "the shadow keeps the latched value");
    b.write(USER, block, entry.index.into());
    assert_eq!(b.read(USER, block + u64::from(registry::FLAGS)), 0);
}

#[test]
fn ni_early_packets_wait_in_escape_and_time_out() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let late = WindowHeader { first_packet: 1, packet_count: 1, ..header(1, 2, 1024) };
    fill(&mut a, 0, &late, &[7; 512], 1);
    exchange(&mut a, &mut b, |_| 0);
    let block = u64::from(escape::BLOCK_OFFSET);
    let escaped = b.events().into_iter().find(|event| event.kind == EventKind::Escaped).expect("escaped");
    b.write(USER, block, escaped.index.into());
    assert_eq!(b.read(USER, block + u64::from(escape::VALID)), 1);
    assert_eq!(b.read(USER, block + u64::from(escape::ADDRESS_LOW)), TARGET as u32 + 3 + 512);
    assert_eq!(b.read(USER, block + u64::from(escape::OCCUPANCY)), 1);
    assert!(b.memory(TARGET + 3 + 512, 512).iter().all(|byte| *byte == 0));
    let deadline = b.card.next_deadline().expect("the escape timer").get();
    assert!(deadline <= b.now + 1_100_000);
    b.now = b.now.max(deadline) + 1_000_000;
    b.run();
    assert_eq!(b.read(USER, block + u64::from(escape::OCCUPANCY)), 0);
    assert_eq!(b.counter(counters::ESCAPE_DROPPED), 1);
    assert!(kinds(&b.events()).contains(&EventKind::EscapeReleased));
}

#[test]
fn ni_write_outside_windows_is_refused() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let mut wrong = header(1, 2, 100);
    wrong.key ^= 1;
    fill(&mut a, 0, &wrong, &[1; 100], 1);
    exchange(&mut a, &mut b, |_| 0);
    let nack = a.events().into_iter().find(|event| event.kind == EventKind::Nack).expect("a refusal");
    assert_eq!(nack.nack_reason(), Some(NackReason::Violation));
    assert_eq!(b.memory(TARGET + 3, 100), [0; 100]);
    assert_eq!(b.counter(counters::VIOLATIONS), 1);
    let fault = b.events().into_iter().find(|event| event.kind == EventKind::Fault).expect("a fault");
    assert_eq!(fault.fault_reason(), Some(FaultReason::Violation));
}

#[test]
fn ni_torn_or_contradictory_header_sends_nothing() {
    let mut a = node(1);
    fill(&mut a, 3, &header(5, 2, 100), &[1; 100], 6);
    a.run();
    let events = a.events();
    assert_eq!(kinds(&events), [EventKind::Fault, EventKind::WindowFree]);
    assert_eq!((events[0].fault_reason(), events[0].index), (Some(FaultReason::TornHeader), 3));
    assert!(a.card.take_frame().is_none());
    // Packets larger than this build's packet size.
    let mut large = header(7, 2, 4096);
    (large.packet_size_log2, large.packet_count, large.segment_packets) = (12, 1, 1);
    fill(&mut a, 3, &large, &[1; 100], 7);
    a.run();
    let events = a.events();
    assert_eq!(events[0].fault_reason(), Some(FaultReason::BadHeader));
    assert!(a.card.take_frame().is_none());
    // A commit word of zero is not a commit.
    fill(&mut a, 3, &header(8, 2, 100), &[1; 100], 0);
    a.run();
    assert!(a.events().is_empty());
}

#[test]
fn ni_second_commit_of_busy_window_is_ignored() {
    let mut a = node(1);
    fill(&mut a, 0, &header(1, 2, 1024), &[1; 1024], 1);
    a.step();
    assert_eq!(a.ni_read(ni::WINDOW_FREE), 0xFE);
    assert_eq!(a.ni_read(ni::STATUS) & ni::status::TRANSMITTING, ni::status::TRANSMITTING);
    fill(&mut a, 0, &header(1, 2, 1024), &[1; 1024], 1);
    a.run();
    let events = a.events();
    let faults: Vec<_> = events.iter().filter_map(Event::fault_reason).collect();
    assert_eq!(faults, [FaultReason::WindowBusy]);
    assert_eq!(a.counter(counters::TX_PACKETS), 2);
    assert_eq!(a.ni_read(ni::WINDOW_FREE), 0xFF);
}

#[test]
fn ni_disabled_neither_sends_nor_receives() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    b.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    fill(&mut a, 0, &header(1, 2, 100), &[1; 100], 1);
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(b.counter(counters::RX_PACKETS), 0);
    a.ni_write(ni::CONTROL, 0);
    fill(&mut a, 1, &header(2, 2, 100), &[1; 100], 2);
    a.run();
    assert_eq!((a.ni_read(ni::WINDOW_FREE), a.counter(counters::TX_PACKETS)), (0xFF, 1));
}

#[test]
fn ni_arrived_and_hello_packets_become_events() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let mut quiet = header(1, 2, 100);
    quiet.flags = Flags::NONE;
    fill(&mut a, 0, &quiet, &[1; 100], 1);
    exchange(&mut a, &mut b, |_| 0);
    assert!(!kinds(&b.events()).contains(&EventKind::Notice));
    let arrival = WindowHeader { kind: WindowKind::Arrival, packet_count: 0, sequence: 2, ..quiet };
    fill(&mut a, 1, &arrival, &[], 2);
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(kinds(&b.events()), [EventKind::Notice]);
    let hello = Control::Hello(Hello {
        common: Common {
            source: NodeId::new(1),
            destination: NodeId::new(2),
            incarnation: Incarnation::new(1),
            flags: Flags::NONE,
            path: 0,
        },
        packet_size_log2: 9,
        wire_version: 4,
        mask_bits: 32,
        capabilities: fpga_firmware::generated::Capabilities::NONE,
        schemes: 1,
        registry_timeout_us: 2_000_000,
    });
    let mut bytes = [0; 128];
    let length = hello.encode(&mut bytes).unwrap();
    b.card.receive_frame(Nanos::new(b.now), &bytes[..length]);
    let reply = b.card.take_frame().expect("a reply");
    let Ok(Packet::Control(Control::HelloReply(reply))) = Packet::parse(&reply) else { panic!("no reply") };
    assert_eq!((reply.mask_bits, reply.common.destination.get(), reply.common.source.get()), (32, 1, 2));
}

#[test]
fn ni_hello_register_queries_node() {
    let mut description = small();
    (description.ni.node_id, description.ni.mask_bits, description.ni.commands) = (2, 7, 0);
    let (mut a, mut b) = (node(1), prepare(CardTestbed::with(description)));
    a.ni_write(ni::HELLO, 2);
    exchange(&mut a, &mut b, |_| 0);
    let [hello] = a.events().try_into().expect("one event");
    assert_eq!((hello.kind, hello.node, hello.generation), (EventKind::Hello, NodeId::new(2), 0x100));
    assert_eq!((hello.op.get(), hello.tries, hello.index), (4, 9, 7));
    assert_eq!((hello.segment, hello.count), (1, b.read(USER, 0x10)));
    assert!(b.events().is_empty(), "a question is answered without its host");
    assert_eq!(a.ni_read(ni::HELLO), 0);
    // A node that does not exist, the id that no node has, and a disabled interface.
    a.ni_write(ni::HELLO, 77);
    exchange(&mut a, &mut b, |_| 0);
    assert!(a.events().is_empty());
    a.ni_write(ni::HELLO, u32::MAX);
    a.ni_write(ni::CONTROL, ni::control::EVENT_ENABLE);
    a.ni_write(ni::HELLO, 2);
    a.run();
    assert!(a.card.take_frame().is_none());
    // One event of a reason at a time: the second one is reported after the host has consumed the first.
    for _ in 0..2 {
        let [fault] = a.events().try_into().expect("one event");
        assert_eq!((fault.fault_reason(), fault.generation), (Some(FaultReason::BadSetting), 0));
        a.run();
    }
    assert!(a.events().is_empty());
}

/// Any number of faults gives one event per reason until the host consumes it, and then one event for all later ones.
#[test]
fn ni_faults_of_one_reason_share_event() {
    let mut b = node(2);
    open(&mut b);
    let faults = |b: &mut CardTestbed, count: u32| {
        for _ in 0..count {
            b.ni_write(ni::NODE_ID, u32::MAX);
        }
        b.run();
        assert_eq!(b.ni_read(ni::EVENT_POSTED), b.ni_read(ni::EVENT_PRODUCED));
        b.events().iter().map(|event| (event.fault_reason(), event.generation)).collect::<Vec<_>>()
    };
    let bad = Some(FaultReason::BadSetting);
    assert_eq!(faults(&mut b, 10_000), [(bad, 0)]);
    assert_eq!(faults(&mut b, 10_000), [(bad, 9_998)]);
    assert_eq!(faults(&mut b, 0), [(bad, 9_999)]);
    assert_eq!(faults(&mut b, 0), []);
    assert_eq!(faults(&mut b, 1), [(bad, 0)]);
}

/// Frames that are intact but invalid: counted as such, and answered only if the sender can use the answer.
#[test]
fn ni_invalid_frames_are_counted_and_dropped() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    fill(&mut a, 0, &header(1, 2, 100), &[1; 100], 1);
    a.run();
    let good = a.card.take_frame().expect("a packet");
    let Ok(Packet::Data(data)) = Packet::parse(&good) else { panic!("a packet") };
    let mut other = good.clone();
    DataHeader { packet_size_log2: 10, ..data.header() }.encode(&[1; 100], &mut other).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[at..at + bytes.len()].copy_from_slice(bytes);
        fpga_firmware::wire::finish(&mut frame, good.len() - 4).unwrap();
        frame
    };
    let cases = [
        ("another wire version", changed(0, &[1]), false),
        ("no kind", changed(1, &[0xEE]), false),
        ("no flag", changed(2, &[0x80]), false),
        ("from every node", changed(4, &[0xFF; 4]), false),
        ("for another node", changed(8, &[3]), false),
        ("another packet size", other, true),
    ];
    for (n, (name, frame, answered)) in (1..).zip(cases) {
        b.card.receive_frame(Nanos::new(b.now), &frame);
        b.run();
        assert_eq!(b.counter(counters::BAD_PACKET), n, "{name}");
        assert_eq!(b.card.take_frame().is_some(), answered, "{name}");
    }
    assert_eq!((b.counter(counters::BAD_CRC), b.counter(counters::REGISTRATIONS)), (0, 0));
    assert!(b.memory(TARGET, 200).iter().all(|byte| *byte == 0), "nothing is written");
    b.card.receive_frame(Nanos::new(b.now), &good);
    assert_eq!(b.counter(counters::REGISTRATIONS), 1, "the good one is taken all the same");
}

#[test]
fn ni_damaged_frames_are_counted_and_dropped() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    fill(&mut a, 0, &header(1, 2, 100), &[1; 100], 1);
    a.run();
    let mut frame = a.card.take_frame().expect("a packet");
    frame[70] ^= 4;
    b.card.receive_frame(Nanos::new(b.now), &frame);
    b.card.receive_frame(Nanos::new(b.now), &[1, 2, 3]);
    assert_eq!(b.counter(counters::BAD_CRC), 2);
    assert!(b.card.take_frame().is_none(), "it acknowledges nothing");
    assert!(b.events().is_empty());
}

#[test]
fn ni_event_overflow_is_counted_and_reported() {
    let mut a = node(1);
    a.ni_write(ni::CONTROL, ni::control::ENABLE);
    a.ni_write(ni::EVENT_RING_SIZE, 2);
    a.ni_write(ni::CONTROL, ni::control::ENABLE | ni::control::EVENT_ENABLE);
    for round in 1..=5 {
        fill(&mut a, 0, &header(round, 2, 10), &[1; 10], round);
        a.run();
    }
    assert_eq!(a.ni_read(ni::EVENT_PRODUCED), 2);
    assert_eq!(a.ni_read(ni::EVENT_OVERFLOWS), 3);
    assert_eq!(a.ni_read(ni::STATUS) & ni::status::EVENTS_LOST, ni::status::EVENTS_LOST);
    assert_eq!(a.events().len(), 2);
    a.run();
    let events = a.events();
    assert_eq!((events[0].fault_reason(), events[0].count), (Some(FaultReason::EventLost), 3));
}

/// Events of tables may take a quarter of the ring, 64 entries.
#[test]
fn ni_table_events_beyond_quarter_are_dropped_until_reported() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let mut send = |b: &mut CardTestbed, number: u32| {
        let header = WindowHeader { oldest_live: TransferId::new(number), ..header(number, 2, 10) };
        fill(&mut a, 0, &header, &[1; 10], number);
        exchange(&mut a, b, |_| 0);
        a.events();
    };
    for number in 1..=40 {
        send(&mut b, number);
    }
    let dropped = b.ni_read(ni::EVENTS_DROPPED) as usize;
    let events = kinds(&b.events());
    let count = |kind| events.iter().filter(|found| **found == kind).count();
    assert_eq!((count(EventKind::Notice), count(EventKind::Dropped)), (40, 1));
    assert_eq!(count(EventKind::Registered) + count(EventKind::Completed) + dropped, 80);
    // In order up to there, and none after it.
    let told = events.iter().position(|kind| *kind == EventKind::Dropped).expect("it is notified");
    assert_eq!(told, 64);
    assert!(events[told + 1..].iter().all(|kind| *kind == EventKind::Notice));
    send(&mut b, 41);
    assert_eq!(kinds(&b.events()), [EventKind::Registered, EventKind::Completed, EventKind::Notice]);
    assert_eq!((b.ni_read(ni::EVENTS_DROPPED) as usize, b.ni_read(ni::EVENT_OVERFLOWS)), (dropped, 0));
}

#[test]
fn ni_event_interrupt_holds_until_consumed() {
    let mut a = node(1);
    a.write(DMA, 0x2004, 1 << 2);
    a.write(DMA, 0x2080, 6 << 16);
    a.ni_write(ni::EVENT_INTERRUPT, ni::event_interrupt::ENABLE | 2 << ni::event_interrupt::LINE_SHIFT);
    fill(&mut a, 0, &header(1, 2, 10), &[1; 10], 1);
    a.run();
    assert_eq!(a.host.interrupts, [6]);
    assert_eq!(a.read(DMA, 0x2048), 1 << 2);
    a.events();
    assert_eq!(a.read(DMA, 0x2048), 0);
}

#[test]
fn ni_event_push_needs_bus_master() {
    let mut a = node(1);
    a.card.set_command(true, false);
    fill(&mut a, 0, &header(1, 2, 10), &[1; 10], 1);
    a.run();
    assert_eq!(a.host.get(RING, 64), [0; 64]);
    let log = u64::from(fault_log::BLOCK_OFFSET);
    a.write(USER, log, 0);
    assert_eq!(a.read(USER, log + u64::from(fault_log::REASON)), FaultReason::EventWrite.value().into());
}

#[test]
fn ni_without_push_event_ring_is_in_card_memory() {
    let mut description = small();
    description.ni.event_push = false;
    let mut a = prepare(CardTestbed::with(description));
    fill(&mut a, 0, &header(1, 2, 10), &[1; 10], 1);
    a.run();
    assert_eq!(kinds(&a.events()), [EventKind::WindowFree]);
}

#[test]
fn ni_reset_keeps_settings_and_windows() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let part = WindowHeader { packet_count: 1, ..header(1, 2, 1024) };
    fill(&mut a, 0, &part, &[1; 512], 1);
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(b.read(USER, u64::from(registry::BLOCK_OFFSET + registry::OCCUPANCY)), 1);
    b.ni_write(ni::CONTROL, ni::control::RESET | ni::control::ENABLE | ni::control::EVENT_ENABLE);
    assert_eq!(b.read(USER, u64::from(registry::BLOCK_OFFSET + registry::OCCUPANCY)), 0);
    assert_eq!(b.ni_read(ni::CONTROL), ni::control::ENABLE | ni::control::EVENT_ENABLE);
    assert_eq!(b.ni_read(ni::INCARNATION), 0x100);
    assert_eq!(b.ni_read(ni::EVENT_PRODUCED), 0);
    assert_eq!(b.read(USER, u64::from(memory::BLOCK_OFFSET + memory::OCCUPANCY)), 1);
}

#[test]
fn ni_sending_reuses_frame_buffers() {
    let mut a = node(1);
    fill(&mut a, 0, &header(1, 2, 16384), &[1; 16384], 1);
    let mut seen = std::collections::HashSet::new();
    for round in 2..20 {
        a.run();
        while let Some(frame) = a.card.take_frame() {
            seen.insert(frame.as_ptr());
            a.card.recycle_frame(frame);
        }
        a.events();
        fill(&mut a, 0, &header(round, 2, 16384), &[1; 16384], round);
    }
    assert!(seen.len() <= 32, "{} buffers", seen.len());
}
