//! Two network interfaces, driven through raw windows and registers.
use crate::support::*;
use fpga_firmware::event::{Event, EventKind, FaultReason};
use fpga_firmware::generated::{Flags, MEMORY_COMMIT_INSTALL, counters, fault_log, memory, ni, registry};
use fpga_firmware::identity::{Identity, IdentityError, check};
use fpga_firmware::ids::{NodeId, OpNumber, TransferId};
use fpga_firmware::window::{WindowHeader, WindowKind};
use fpga_firmware::wire::{DataHeader, NackReason, Packet, PacketKind, finish, trim};
use fpga_protocol::time::Nanos;
use fpga_registers::CardAddr;

mod feedback;
mod in_place;
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
        path_list: false,
        command: fpga_firmware::window::CommandFields::NONE,
        link: fpga_firmware::window::LinkFields::NONE,
    }
}

fn ops(count: u16) -> Vec<OpNumber> {
    (0..count).map(|slot| OpNumber::from_parts(slot, 7)).collect()
}

/// Path identifier of a window's packet `index`, if the window has a list of them.
fn path_of(index: u16) -> u8 {
    (index as u8).wrapping_mul(0x55) ^ 0xc3
}

/// Fills window `window` and commits it.
fn fill(testbed: &mut CardTestbed, window: u64, header: &WindowHeader, payload: &[u8], commit: u32) {
    let base = u64::from(testbed.ni_read(ni::WINDOW_BASE_LOW))
        | u64::from(testbed.ni_read(ni::WINDOW_BASE_HIGH)) << 32;
    let at = base + window * u64::from(testbed.ni_read(ni::WINDOW_STRIDE));
    let mut block = [0; 2048];
    let paths: Vec<u8> = (0..header.packet_count).map(path_of).collect();
    let length = header.encode(&ops(header.packet_count), &paths, &mut block).expect("a header");
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
        in_place::receive(to, &frame);
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
fn ni_window_with_path_list_sends_each_packet_on_its_path() {
    let mut a = node(1);
    let plain = WindowHeader { path: 9, ..header(1, 2, 5 * 512 + 7) };
    for (window, header) in [(0, plain), (1, WindowHeader { sequence: 2, path_list: true, ..plain })] {
        fill(&mut a, window, &header, &[1; 5 * 512 + 7], header.sequence);
        a.run();
        for index in 0..6 {
            let frame = a.card.take_frame().expect("a packet");
            let expected = if header.path_list { path_of(index) } else { 9 };
            assert_eq!(Packet::parse(&frame).unwrap().common().path, expected, "packet {index}");
        }
        assert!(a.card.take_frame().is_none());
    }
    // A retransmission has a list of one.
    let again = WindowHeader { sequence: 3, first_packet: 4, packet_count: 1, path_list: true, ..plain };
    fill(&mut a, 2, &again, &[1; 512], 3);
    a.run();
    assert_eq!(Packet::parse(&a.card.take_frame().unwrap()).unwrap().common().path, path_of(0));
    assert_eq!(kinds(&a.events()), [EventKind::WindowFree; 3]);
}

/// Delivers a frame to a card and returns the answers.
fn answers(card: &mut CardTestbed, frame: &[u8]) -> Vec<Vec<u8>> {
    card.card.receive_frame(Nanos::new(card.now), frame);
    card.run();
    std::iter::from_fn(|| card.card.take_frame()).collect()
}

#[test]
fn ni_trimmed_start_is_registered_refused_and_retransmitted() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    let payload: Vec<u8> = (0..1200_u32).map(|at| (at * 7 / 8) as u8).collect();
    fill(&mut a, 0, &header(1, 2, 1200), &payload, 1);
    a.run();
    let mut frames: Vec<_> = std::iter::from_fn(|| a.card.take_frame()).collect();
    assert_eq!(frames.len(), 3);
    let length = trim(&mut frames[0]).unwrap();
    let registry =
        |card: &mut CardTestbed, register| card.read(USER, u64::from(registry::BLOCK_OFFSET + register));
    for (frame, occupancy) in
        [(frames[0][..length].to_vec(), 1), (frames[1].clone(), 1), (frames[2].clone(), 1)]
    {
        for answer in answers(&mut b, &frame) {
            a.card.receive_frame(Nanos::new(a.now), &answer);
        }
        assert_eq!(registry(&mut b, registry::OCCUPANCY), occupancy);
    }
    a.run();
    let events = a.events();
    assert_eq!(kinds(&events), [EventKind::WindowFree, EventKind::Nack, EventKind::Ack, EventKind::Ack]);
    assert_eq!((events[1].nack_reason(), events[1].op), (Some(NackReason::Trimmed), ops(1)[0]));
    let events = b.events();
    assert_eq!(kinds(&events), [EventKind::Registered]);
    assert!(events[0].registration().unwrap().flags.contains(Flags::TRIMMED));
    assert_eq!((b.counter(counters::TRIMMED), b.counter(counters::ESCAPE_HITS)), (1, 0));
    // The retransmission completes the transfer.
    let again = WindowHeader {
        sequence: 2,
        packet_count: 1,
        tries: 1,
        transfer: TransferId::new(1),
        ..header(1, 2, 1200)
    };
    fill(&mut a, 0, &again, &payload[..512], 2);
    exchange(&mut a, &mut b, |_| 0);
    assert_eq!(b.memory(TARGET + 3, 1200), payload);
    assert_eq!(kinds(&b.events()), [EventKind::Completed, EventKind::Notice]);
    assert_eq!(kinds(&a.events()), [EventKind::WindowFree, EventKind::Ack, EventKind::SegmentDone]);
    assert_eq!((b.counter(counters::TRIMMED), b.counter(counters::BAD_PACKET)), (1, 0));
}

/// Trimmed packets of other kinds have no answer: they count as lost, not as invalid. Without the flag, a packet without payload is
/// invalid.
#[test]
fn ni_trimmed_packet_without_answer_is_dropped() {
    let (mut a, mut b) = (node(1), node(2));
    open(&mut b);
    fill(&mut a, 0, &header(1, 2, 100), &[1; 100], 1);
    a.run();
    let mut frame = a.card.take_frame().expect("a packet");
    let length = trim(&mut frame).unwrap();
    frame.truncate(length);
    let start = frame.clone();
    for (n, kind) in (1..).zip([PacketKind::MessageData, PacketKind::MessageStart, PacketKind::Ack]) {
        frame[1] = kind.value();
        finish(&mut frame, length - 4).unwrap();
        assert!(answers(&mut b, &frame).is_empty(), "{kind}");
        assert_eq!((b.counter(counters::TRIMMED), b.counter(counters::BAD_PACKET)), (n, 0), "{kind}");
    }
    let mut unflagged = start;
    unflagged[2] &= !Flags::TRIMMED.bits().to_le_bytes()[0];
    finish(&mut unflagged, length - 4).unwrap();
    assert!(answers(&mut b, &unflagged).is_empty());
    assert_eq!((b.counter(counters::TRIMMED), b.counter(counters::BAD_PACKET)), (3, 1));
    b.ni_write(ni::CONTROL, ni::control::RESET | ni::control::ENABLE | ni::control::EVENT_ENABLE);
    assert_eq!(b.counter(counters::TRIMMED), 0);
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
