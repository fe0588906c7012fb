//! Golden bytes and rules of window headers and events.

use fpga_firmware::event::{self, Event, EventError, EventKind, FaultReason, NackReason, Registration};
use fpga_firmware::generated::{Flags, Scheme};
use fpga_firmware::geometry::GeometryError;
use fpga_firmware::window::{
    CommandFields, HEADER_LENGTH, LinkFields, MAX_HEADER_BLOCK, WindowError, WindowHeader, WindowKind,
};
use fpga_firmware::wire::{Common, Control, LinkFeedback, LinkLoad, LinkPacket, MAX_PACKET_LENGTH, Packet};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;
use proptest::prelude::*;

/// The second segment of two, 250 bytes in packets of 64: packets 1 and 2 of four.
fn window() -> WindowHeader {
    WindowHeader {
        sequence: 0x0403_0201,
        flags: Flags::SILENT | Flags::NOTIFY_RECEIVER,
        destination: NodeId::new(0x0807_0605),
        transfer: TransferId::new(0x0c0b_0a09),
        oldest_live: TransferId::new(0x0c0b_0a08),
        segment: 1,
        segment_count: 2,
        segment_length: 250,
        base: CardAddr::new(0x1817_1615_1413_1211),
        key: 0x2827_2625_2423_2221,
        transfer_base: CardAddr::new(0x1817_1615_1413_1111),
        transfer_length: 0x1fa,
        first_packet: 1,
        packet_count: 2,
        packet_size_log2: 6,
        kind: WindowKind::Data,
        segment_packets: 4,
        tries: 3,
        path: 0x4b,
        path_list: false,
        command: fpga_firmware::window::CommandFields::NONE,
        link: fpga_firmware::window::LinkFields::NONE,
    }
}

const OPS: [OpNumber; 2] = [OpNumber::new(0x3433_3231), OpNumber::new(0x3837_3635)];

#[rustfmt::skip]
const WINDOW_START: [u8; 76] = [
    0x01, 0x02, 0x03, 0x04, // sequence
    0x06, 0, 0, 0, // flags
    0x05, 0x06, 0x07, 0x08, // destination
    0x09, 0x0a, 0x0b, 0x0c, // transfer
    0x08, 0x0a, 0x0b, 0x0c, // oldest live
    1, 0, 0, 0, 2, 0, 0, 0, // segment, segment count
    250, 0, 0, 0, // segment length
    0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, // base
    0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28, // key
    0x11, 0x11, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, // transfer base
    0xfa, 0x01, 0, 0, 0, 0, 0, 0, // transfer length
    1, 0, 2, 0, // first packet, packet count
    6, 0, // packet size, kind
    4, 0, // segment packets
    3, 0, 0, 0x4b, // tries, no command, path
];

fn golden_window() -> Vec<u8> {
    let mut bytes = WINDOW_START.to_vec();
    bytes.resize(128, 0);
    bytes.extend([0x31, 0x32, 0x33, 0x34, 0x35, 0x36, 0x37, 0x38]);
    bytes
}

#[test]
fn window_header_encode_and_parse() {
    let mut buffer = [0xa5; 150];
    assert_eq!(window().encode(&OPS, &[], &mut buffer), Ok(136));
    assert_eq!(&buffer[..136], &golden_window()[..]);
    assert_eq!(&buffer[136..], [0xa5; 14]);
    // Bytes after the header block are not part of it.
    let (header, ops) = WindowHeader::decode(&buffer).unwrap();
    assert_eq!(header, window());
    assert_eq!((ops.len(), ops.get(0), ops.get(1), ops.get(2)), (2, Some(OPS[0]), Some(OPS[1]), None));
    assert!(ops.iter().eq(OPS));
    assert_eq!((header.block_length(), header.commit_word()), (136, [1, 2, 3, 4]));
    assert_eq!(header.check_commit(0x0403_0201), Ok(()));
    assert_eq!(header.check_commit(0), Err(WindowError::Torn { commit: 0, sequence: 0x0403_0201 }));
}

#[test]
fn window_header_impossible_length_is_refused() {
    let bytes = golden_window();
    for available in 0..bytes.len() {
        let needed = if available < HEADER_LENGTH { 128 } else { 136 };
        assert_eq!(
            WindowHeader::decode(&bytes[..available]),
            Err(WindowError::TooShort { needed, available })
        );
        let mut buffer = vec![0xa5; available];
        let refused = window().encode(&OPS, &[], &mut buffer);
        assert_eq!(refused, Err(WindowError::TooShort { needed: 136, available }));
        assert!(buffer.iter().all(|byte| *byte == 0xa5), "a refused header is not half written");
    }
    assert_eq!(
        window().encode(&OPS[..1], &[], &mut [0; 200]),
        Err(WindowError::OpCount { given: 1, count: 2 })
    );
}

/// The window with a path identifier per packet.
fn sprayed() -> WindowHeader {
    WindowHeader { path_list: true, ..window() }
}

const PATHS: [u8; 2] = [0x71, 0xf2];

fn golden_sprayed() -> Vec<u8> {
    let mut bytes = golden_window();
    bytes[88] = 1;
    bytes.extend([0x71, 0xf2, 0, 0]);
    bytes
}

#[test]
fn window_header_path_list_follows_op_numbers() {
    let mut buffer = [0xa5; 150];
    assert_eq!(sprayed().encode(&OPS, &PATHS, &mut buffer), Ok(140));
    assert_eq!(&buffer[..140], &golden_sprayed()[..]);
    assert_eq!(&buffer[140..], [0xa5; 10]);
    let (header, packets) = WindowHeader::decode(&buffer).unwrap();
    assert_eq!((header, packets.paths()), (sprayed(), &PATHS[..]));
    assert!(packets.iter().eq(OPS));
    assert_eq!((header.block_length(), header.path_list_offset()), (140, 136));
    // Without a list there are no identifiers, whatever follows the op numbers.
    buffer[88] = 0;
    assert!(WindowHeader::decode(&buffer).unwrap().1.paths().is_empty());
    for available in 0..140 {
        let needed = if available < HEADER_LENGTH { 128 } else { 140 };
        let bytes = golden_sprayed();
        let error = WindowError::TooShort { needed, available };
        assert_eq!(WindowHeader::decode(&bytes[..available]), Err(error));
        let error = WindowError::TooShort { needed: 140, available };
        assert_eq!(sprayed().encode(&OPS, &PATHS, &mut vec![0; available]), Err(error));
    }
    let mut buffer = [0; 150];
    for given in [0, 1, 3] {
        let refused = sprayed().encode(&OPS, &[7, 8, 9][..given], &mut buffer);
        assert_eq!(refused, Err(WindowError::PathCount { given, count: 2 }));
    }
    for (place, value, error) in [
        (88, 2, WindowError::Paths { found: 2 }),
        (88, 0xff, WindowError::Paths { found: 0xff }),
        (138, 1, WindowError::Reserved),
        (139, 1, WindowError::Reserved),
    ] {
        let mut bytes = golden_sprayed();
        bytes[place] = value;
        assert_eq!(WindowHeader::decode(&bytes), Err(error), "byte {place}");
    }
    // Packets of a segment only.
    for kind in [WindowKind::Arrival, WindowKind::Command, WindowKind::LinkInquiry, WindowKind::LinkActive] {
        let other = WindowHeader { kind, packet_count: 0, ..sprayed() };
        assert_eq!(other.encode(&[], &[], &mut buffer), Err(WindowError::Reserved), "{kind:?}");
    }
}

#[test]
fn window_header_rules_are_checked() {
    let refused = |change: &dyn Fn(&mut WindowHeader)| {
        let mut header = window();
        change(&mut header);
        let ops = vec![OpNumber::new(1); header.packet_count.into()];
        header.encode(&ops, &[], &mut [0; MAX_HEADER_BLOCK]).unwrap_err()
    };
    assert_eq!(refused(&|w| w.sequence = 0), WindowError::ZeroSequence);
    assert_eq!(refused(&|w| w.destination = NodeId::ANY), WindowError::Destination);
    assert_eq!(refused(&|w| w.flags = Flags::from_bits(0x10)), WindowError::Flags { found: 0x10 });
    assert!(matches!(refused(&|w| w.oldest_live = w.transfer.next()), WindowError::OldestLive { .. }));
    assert!(matches!(refused(&|w| w.packet_count = 0), WindowError::PacketRange { count: 0, .. }));
    assert!(matches!(
        refused(&|w| w.packet_count = 4),
        WindowError::PacketRange { first: 1, count: 4, segment_packets: 4 }
    ));
    assert!(matches!(refused(&|w| w.first_packet = u16::MAX), WindowError::PacketRange { .. }));
    let geometry = refused(&|w| w.segment_packets = 5);
    assert_eq!(geometry, WindowError::Geometry(GeometryError::PacketCount { found: 5, expected: 4 }));
    assert!(matches!(
        refused(&|w| w.packet_size_log2 = 5),
        WindowError::Geometry(GeometryError::PacketSize { log2: 5 })
    ));
    let mut bytes = golden_window();
    bytes[69] = 5;
    assert_eq!(WindowHeader::decode(&bytes), Err(WindowError::Kind { found: 5 }));
    bytes[69] = 0;
    for place in (73..128).filter(|place| ![75, 88].contains(place)) {
        bytes[place] = 1;
        assert_eq!(WindowHeader::decode(&bytes), Err(WindowError::Reserved));
        bytes[place] = 0;
    }
    bytes[6] = 1;
    assert_eq!(WindowHeader::decode(&bytes), Err(WindowError::Flags { found: 0x1_0006 }));
}

#[test]
fn window_header_makes_packets() {
    let (source, incarnation) = (NodeId::new(1), Incarnation::new(7));
    let header = window();
    assert_eq!(
        (header.payload_range(0), header.payload_range(1), header.payload_range(2)),
        (Some(0..64), Some(64..128), None)
    );
    assert_eq!(header.payload_length(), 128);
    let packet = header.packet(1, OPS[1], 9, source, incarnation).unwrap();
    assert_eq!((packet.address.get(), packet.op, packet.start), (header.base.get() + 128, OPS[1], None));
    assert_eq!(packet.common.path, 9);
    assert_eq!(packet.packet_index(header.base), Some(2));
    // The whole segment: the first packet is a START packet, the last one is short.
    let whole = WindowHeader { first_packet: 0, packet_count: 4, ..header };
    assert_eq!((whole.payload_range(3), whole.payload_length()), (Some(192..250), 250));
    let mut frame = [0; MAX_PACKET_LENGTH];
    for index in 0..4 {
        let range = whole.payload_range(index).unwrap();
        let payload = vec![0x5a; (range.end - range.start) as usize];
        let packet = whole.packet(index, OPS[0], 9, source, incarnation).unwrap();
        assert_eq!(packet.start.is_some(), index == 0);
        let length = packet.encode(&payload, &mut frame).unwrap();
        assert!(Packet::parse(&frame[..length]).is_ok());
    }
    assert_eq!(whole.packet(4, OPS[0], 9, source, incarnation), None);
    assert_eq!(whole.arrival(source, incarnation), None);
}

#[test]
fn window_header_arrival_makes_arrived_packet() {
    // The packet fields are ignored.
    let notice =
        WindowHeader { kind: WindowKind::Arrival, packet_count: 0, packet_size_log2: 200, ..window() };
    let mut buffer = [0xa5; 128];
    assert_eq!(notice.encode(&[], &[], &mut buffer), Ok(128));
    let (header, ops) = WindowHeader::decode(&buffer).unwrap();
    assert!(ops.is_empty());
    assert_eq!((header, header.payload_length(), header.payload_range(0)), (notice, 0, None));
    let arrived = header.arrival(NodeId::new(1), Incarnation::new(7)).unwrap();
    assert_eq!((arrived.address, arrived.length), (notice.transfer_base, notice.transfer_length));
    assert!(Control::Arrived(arrived).encode(&mut [0; 64]).is_ok());
    let refused = |notice: WindowHeader| notice.encode(&[], &[], &mut [0; 128]).unwrap_err();
    assert!(matches!(refused(WindowHeader { packet_count: 1, ..notice }), WindowError::PacketRange { .. }));
    assert_eq!(refused(WindowHeader { transfer_length: 0, ..notice }), WindowError::EmptyTransfer);
    assert!(matches!(
        refused(WindowHeader { transfer_length: u64::MAX, ..notice }),
        WindowError::Geometry(_)
    ));
}

#[test]
fn window_header_command_describes_transfer() {
    let scheme = Some(fpga_firmware::generated::Scheme::Selective);
    let (number, patience_ns) = (0x4433_2211, 0x8877_6655_4433_2211);
    let fields = CommandFields { number, priority: 0x55, timeout_ns: patience_ns, scheme };
    let command = WindowHeader { kind: WindowKind::Command, packet_count: 0, command: fields, ..window() };
    let mut buffer = [0xa5; 128];
    assert_eq!(command.encode(&[], &[], &mut buffer), Ok(128));
    assert_eq!(buffer[69], 2);
    assert_eq!(
        buffer[73..88],
        [0x55, 5, 0x4b, 0x11, 0x22, 0x33, 0x44, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]
    );
    assert_eq!(WindowHeader::decode(&buffer).unwrap().0, command);
    let refused = |command: WindowHeader| command.encode(&[], &[], &mut [0; 128]).unwrap_err();
    // Other kinds have no such fields, and no field reaches beyond the address space.
    assert_eq!(refused(WindowHeader { kind: WindowKind::Arrival, ..command }), WindowError::Reserved);
    let base = CardAddr::new(u64::MAX);
    assert!(matches!(refused(WindowHeader { base, ..command }), WindowError::Geometry(_)));
    // A scheme that there is not, or by which hosts send themselves; none named is the interface's default.
    let none = |found| (found, Err(WindowError::Scheme { found }));
    for (value, expected) in [none(2), none(3), none(6), (0, Ok(None)), (1, Ok(Some(1)))] {
        let mut bytes = buffer;
        bytes[74] = value;
        let found = WindowHeader::decode(&bytes).map(|(header, _)| header.command.scheme.map(|s| s.value()));
        assert_eq!(found, expected);
    }
    let own = CommandFields { scheme: Some(fpga_firmware::generated::Scheme::Registry), ..fields };
    assert_eq!(refused(WindowHeader { command: own, ..command }), WindowError::Scheme { found: 0 });
    for place in [88, 89, 127] {
        let mut bytes = buffer;
        bytes[place] = 1;
        assert_eq!(WindowHeader::decode(&bytes).unwrap_err(), WindowError::Reserved, "byte {place}");
    }
}

#[test]
fn link_windows_encode_and_become_packets() {
    let fields = LinkFields { number: 0x0403_0201, receiver: 9, rate: 0x0102, queue: 0x0201 };
    let kind = WindowKind::LinkActive;
    let active = WindowHeader { kind, packet_count: 0, transfer_length: 0, link: fields, ..window() };
    let mut buffer = [0xa5; 128];
    assert_eq!(active.encode(&[], &[], &mut buffer), Ok(128));
    assert_eq!((buffer[69], buffer[88..112].iter().any(|byte| *byte != 0)), (4, false));
    assert_eq!(buffer[112..], [1, 2, 3, 4, 9, 0, 0, 0, 2, 1, 1, 2, 0, 0, 0, 0]);
    assert_eq!(WindowHeader::decode(&buffer).unwrap().0, active);
    let (node, incarnation) = (NodeId::new(1), Incarnation::new(7));
    let packet = active.link_packet(node, incarnation).unwrap();
    let state = LinkLoad { link: fields.number, rate: fields.rate, queue: fields.queue };
    assert_eq!(packet.word, LinkFeedback::Active { sender: node, receiver: NodeId::new(9), state });
    assert_eq!((packet.common.source, packet.common.destination), (node, active.destination));
    let number = LinkFields { number: 5, ..LinkFields::NONE };
    let inquiry = WindowHeader { kind: WindowKind::LinkInquiry, link: number, ..active };
    let packet = inquiry.link_packet(node, incarnation).unwrap();
    assert_eq!(packet.word, LinkFeedback::Inquiry { number: 5 });
    // Invalid fields, and fields of other kinds.
    let refused = |header: WindowHeader| header.encode(&[], &[], &mut [0; 128]).unwrap_err();
    assert_eq!(refused(WindowHeader { kind: WindowKind::LinkInquiry, ..active }), WindowError::Reserved);
    assert_eq!(refused(WindowHeader { kind: WindowKind::Arrival, ..active }), WindowError::Reserved);
    for (receiver, rate, queue) in [(u32::MAX, 0, 0), (9, 1001, 0), (9, 0, 1001)] {
        let link = LinkFields { receiver, rate, queue, ..fields };
        assert_eq!(refused(WindowHeader { link, ..active }), WindowError::Link { receiver, rate, queue });
    }
    assert!(matches!(
        refused(WindowHeader { packet_count: 1, ..active }),
        WindowError::PacketRange { count: 1, .. }
    ));
    for at in [88, 89, 111, 124, 127] {
        let mut bytes = buffer;
        bytes[at] = 1;
        assert_eq!(WindowHeader::decode(&bytes).unwrap_err(), WindowError::Reserved, "{at}");
    }
}

#[test]
fn link_event_carries_passive_and_slow() {
    let state = LinkLoad { link: 7, rate: 1000, queue: 751 };
    let receiver = NodeId::new(2);
    for (kind, word) in
        [(16, LinkFeedback::Passive { number: 5, receiver, state }), (18, LinkFeedback::Slow { receiver })]
    {
        for (path, flags, last_hop) in [(0, Flags::NONE, 0), (255, Flags::LAST_HOP, 0x100)] {
            let packet = LinkPacket { common: Common { path, flags, ..Common::default() }, word };
            // The mark concerns the link packet itself.
            let marked = Common { flags: flags.with(Flags::MARKED), ..packet.common };
            let event = Event::of_link(&LinkPacket { common: marked, word }).unwrap();
            let decoded = Event::decode(&Event { sequence: 1, ..event }.encode()).unwrap();
            assert_eq!((decoded.node, decoded.index, decoded.tries), (receiver, kind | last_hop, path));
            assert_eq!(decoded.link_packet(), Some(packet));
            for index in [15, 0x10f, 0x200 | kind] {
                assert_eq!(Event { index, ..decoded }.link_packet(), None, "{index:#x}");
            }
            assert_eq!(Event { kind: EventKind::Ack, ..decoded }.link_packet(), None);
        }
    }
    let inquiry = LinkPacket { common: Common::default(), word: LinkFeedback::Inquiry { number: 5 } };
    assert_eq!(Event::of_link(&inquiry), None);
}

fn sample_event() -> Event {
    Event {
        reason: 3,
        index: 0x0201,
        node: NodeId::new(0x0605_0403),
        incarnation: Incarnation::new(0x0a09_0807),
        transfer: TransferId::new(0x0e0d_0c0b),
        segment: 0x1211_100f,
        op: OpNumber::new(0x1615_1413),
        count: 0x1a19_1817,
        generation: 0x1e1d_1c1b,
        address: CardAddr::new(0x2625_2423_2221_201f),
        length: 0x2e2d_2c2b_2a29_2827,
        time: 0x3635_3433_3231_302f,
        tries: 0x37,
        sequence: 0x3b3a_3938,
        ..Event::new(EventKind::Nack)
    }
}

/// Kind and reason, then 1, 2, 3, ... up to the tries, three reserved bytes, and on.
fn golden_event() -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..2].copy_from_slice(&[2, 3]);
    for (byte, value) in bytes[2..57].iter_mut().zip(1..) {
        *byte = value;
    }
    bytes[60..].copy_from_slice(&[0x38, 0x39, 0x3a, 0x3b]);
    bytes
}

#[test]
fn event_encode_and_parse() {
    assert_eq!(sample_event().encode(), golden_event());
    assert_eq!(Event::decode(&golden_event()), Ok(sample_event()));
    assert_eq!(event::sequence_of(&golden_event()), 0x3b3a_3938);
    assert_eq!(sample_event().nack_reason(), Some(NackReason::Violation));
    assert_eq!(sample_event().fault_reason(), None);
    let fault = Event { kind: EventKind::Fault, ..sample_event() };
    assert_eq!((fault.nack_reason(), fault.fault_reason()), (None, Some(FaultReason::WindowBusy)));
}

#[test]
fn event_invalid_bytes_are_refused() {
    assert_eq!(Event::decode(&[0; 64]), Err(EventError::Empty));
    assert_eq!(Event::decode(&[0xff; 64]), Err(EventError::AllOnes));
    let mut unwritten = golden_event();
    unwritten[60..].fill(0);
    assert_eq!(Event::decode(&unwritten), Err(EventError::Empty));
    for kind in 0..=u8::MAX {
        for reason in 0..=u8::MAX {
            let mut bytes = golden_event();
            (bytes[0], bytes[1]) = (kind, reason);
            let legal = match kind {
                2 => (1..=9).contains(&reason),
                10 => (1..=9).contains(&reason),
                13 => (1..=9).contains(&reason),
                1..=16 => reason == 0,
                _ => false,
            };
            assert_eq!(Event::decode(&bytes).is_ok(), legal, "kind {kind}, reason {reason}");
        }
    }
    for place in 57..60 {
        let mut bytes = golden_event();
        bytes[place] = 1;
        let refused = EventError::Reserved { kind: EventKind::Nack, sequence: 0x3b3a_3938 };
        assert_eq!(Event::decode(&bytes), Err(refused));
    }
}

#[test]
fn longest_header_block_has_most_op_numbers_and_paths() {
    let window = WindowHeader { packet_count: 256, segment_packets: 256, ..window() };
    assert_eq!(
        (window.block_length(), window.path_list_offset()),
        (HEADER_LENGTH + 1024, HEADER_LENGTH + 1024)
    );
    let sprayed = WindowHeader { path_list: true, ..window };
    assert_eq!((sprayed.block_length(), MAX_HEADER_BLOCK), (HEADER_LENGTH + 1280, HEADER_LENGTH + 1280));
}

#[test]
fn sequence_next_skips_zero() {
    assert_eq!((event::next_sequence(0), event::next_sequence(1), event::next_sequence(u32::MAX)), (1, 2, 1));
}

proptest! {
    #[test]
    fn event_any_bytes_have_one_encoding(mut bytes: [u8; 32], rest: [u8; 32], kind in 0u8..17, reason in 0u8..12) {
        (bytes[0], bytes[1]) = (kind, reason);
        let mut whole = [0; 64];
        whole[..32].copy_from_slice(&bytes);
        whole[32..].copy_from_slice(&rest);
        whole[57..60].fill(0);
        if let Ok(event) = Event::decode(&whole) {
            prop_assert_eq!(event.encode(), whole);
        }
    }

    #[test]
    fn window_header_any_bytes_have_one_encoding(place in 0usize..136, value: u8) {
        let mut bytes = golden_window();
        bytes[place] = value;
        if let Ok((header, ops)) = WindowHeader::decode(&bytes) {
            let ops: Vec<_> = ops.iter().collect();
            let mut again = [0xa5; 136];
            let length = header.encode(&ops, &[], &mut again).unwrap();
            prop_assert_eq!(&again[..length], &bytes[..length]);
        }
    }

    #[test]
    fn window_header_any_path_list_has_one_encoding(
        packets in prop::collection::vec(any::<(u32, u8)>(), 1..=256),
        rest in prop::collection::vec(any::<u8>(), 0..8),
        (place, value) in any::<(prop::sample::Index, u8)>(),
    ) {
        let count = u16::try_from(packets.len()).unwrap();
        let header = WindowHeader {
            first_packet: 0,
            packet_count: count,
            segment_packets: count,
            segment_length: 64 * u32::from(count),
            base: CardAddr::new(window().transfer_base.get() + 256),
            transfer_length: 256 + 64 * u64::from(count),
            ..sprayed()
        };
        let (ops, paths): (Vec<_>, Vec<_>) = packets.iter().map(|(op, path)| (OpNumber::new(*op), *path)).unzip();
        let mut bytes = vec![0xa5; header.block_length()];
        prop_assert_eq!(header.encode(&ops, &paths, &mut bytes), Ok(bytes.len()));
        let length = bytes.len();
        bytes.extend(&rest);
        let (found, lists) = WindowHeader::decode(&bytes).unwrap();
        prop_assert_eq!((found, lists.paths()), (header, &paths[..]));
        prop_assert!(lists.iter().eq(ops));
        // Any other byte in it is another block, or none.
        let place = place.index(length);
        bytes[place] = value;
        if let Ok((header, lists)) = WindowHeader::decode(&bytes) {
            let ops: Vec<_> = lists.iter().collect();
            let mut again = [0xa5; MAX_HEADER_BLOCK];
            let length = header.encode(&ops, lists.paths(), &mut again).unwrap();
            prop_assert_eq!(&again[..length], &bytes[..length]);
        }
    }
}

/// Flags and scheme of a registration fit into one byte and round-trip.
#[test]
fn event_registration_round_trips_in_one_byte() {
    let both = Flags::SILENT.with(Flags::NOTIFY_RECEIVER);
    let trimmed = Flags::NO_NOTICE.with(Flags::TRIMMED);
    for flags in [Flags::NONE, Flags::SILENT, Flags::NOTIFY_RECEIVER, Flags::NO_NOTICE, both, trimmed] {
        for scheme in Scheme::ALL {
            let tries = Registration::byte(flags, *scheme);
            let event = Event { tries, ..Event::new(EventKind::Registered) };
            assert_eq!(event.registration(), Some(Registration { flags, scheme: Some(*scheme) }));
            assert_eq!(Event { kind: EventKind::Ack, ..event }.registration(), None);
        }
    }
    // Other flags of a packet are not reported; numbers of future schemes give no scheme.
    assert_eq!(Registration::byte(Flags::from_bits(u16::MAX), Scheme::Registry), 0x8e);
    let unknown = Event { tries: 0xff, ..Event::new(EventKind::Registered) };
    assert_eq!(unknown.registration(), Some(Registration { flags: both.with(trimmed), scheme: None }));
}

#[test]
fn event_notes_survive_their_fields() {
    for (senders, path, delay) in [(0, 0, 0), (3, 200, 65535), (255, 1, 7), (1, 255, 1)] {
        for marked in [false, true] {
            let notes = fpga_firmware::wire::AnswerNotes { path, marked, senders, delay };
            let (index, count) = notes.event_fields();
            assert_eq!(fpga_firmware::wire::AnswerNotes::from_event(index, count), notes);
        }
    }
}
