//! Allowed values of packet fields: every rule at its limits, and round trips of accepted packets.

#![expect(clippy::unwrap_used, clippy::panic, reason = "an unexpected value in a test helper fails the test")]

use fpga_firmware::generated::{Capabilities, PACKET_SIZE_LOG2_MAX, layout};
use fpga_firmware::geometry::GeometryError;
use fpga_firmware::wire::{
    Ack, Arrived, Common, Control, DATA_HEADER_LENGTH, DataHeader, EncodeError, Flags, Hello, LinkFeedback,
    LinkLoad, LinkPacket, MAX_CONTROL_LENGTH, MAX_PACKET_LENGTH, Nack, NackReason, Packet, PacketKind,
    SegmentDone, SegmentName, StartFields, WireError, trim,
};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;
use proptest::prelude::*;

/// A START packet of a transfer of 3 segments of 16 KiB, the last one 100 bytes long, in packets of 512 bytes.
fn start_of(segment: u32) -> (DataHeader, usize) {
    let base = 0x1_0000 + 0x4000 * u64::from(segment);
    let segment_length = if segment == 2 { 100 } else { 0x4000 };
    let header = DataHeader {
        common: Common { source: NodeId::new(1), destination: NodeId::new(2), ..Common::default() },
        transfer: TransferId::new(9),
        oldest_live: TransferId::new(7),
        segment,
        segment_count: 3,
        address: CardAddr::new(base),
        key: 5,
        op: OpNumber::new(3),
        tries: 1,
        packet_size_log2: 9,
        start: Some(StartFields {
            base: CardAddr::new(base),
            segment_length,
            packets: if segment == 2 { 1 } else { 32 },
            transfer_base: CardAddr::new(0x1_0000),
            transfer_length: 0x8064,
        }),
    };
    (header, segment_length.min(512) as usize)
}

fn encoded(header: &DataHeader, payload_length: usize) -> Result<Vec<u8>, EncodeError> {
    let mut buffer = vec![0xa5; MAX_PACKET_LENGTH];
    let length = header.encode(&vec![0x5a; payload_length], &mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Returns the rule that a changed START packet breaks. Encoding covers parsing too: both run the same check.
fn broken(segment: u32, change: impl FnOnce(&mut DataHeader, &mut StartFields, &mut usize)) -> WireError {
    let (mut header, mut length) = start_of(segment);
    let mut fields = header.start.unwrap();
    change(&mut header, &mut fields, &mut length);
    header.start = Some(fields);
    match encoded(&header, length).unwrap_err() {
        EncodeError::Invalid(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn start_packet_legal_round_trips() {
    for segment in 0..3 {
        let (header, length) = start_of(segment);
        let bytes = encoded(&header, length).unwrap();
        let Ok(Packet::Data(data)) = Packet::parse(&bytes) else { panic!("segment {segment}") };
        assert_eq!((data.header(), data.payload().len()), (header, length));
        let base = header.address.get();
        let index = |distance| data.packet_index(CardAddr::new(base - distance));
        assert_eq!((index(0), index(512), index(1)), (Some(0), Some(1), None));
    }
}

#[test]
fn longest_packets_fill_their_buffers() {
    let (mut header, _) = start_of(0);
    header.packet_size_log2 = PACKET_SIZE_LOG2_MAX;
    header.segment_count = 1;
    let length = 1 << PACKET_SIZE_LOG2_MAX;
    header.start = header.start.map(|start| StartFields {
        packets: 1,
        segment_length: length,
        transfer_length: length.into(),
        ..start
    });
    let mut buffer = [0; MAX_PACKET_LENGTH];
    assert_eq!(header.encode(&[0; 1 << PACKET_SIZE_LOG2_MAX], &mut buffer), Ok(MAX_PACKET_LENGTH));
    let common = Common { source: NodeId::new(1), destination: NodeId::new(2), ..Common::default() };
    let arrived = Control::Arrived(Arrived { common, length: 1, ..Arrived::default() });
    assert_eq!(arrived.encode(&mut buffer), Ok(MAX_CONTROL_LENGTH));
}

#[test]
fn data_peek_matches_parse() {
    let (start, length) = start_of(2);
    let data = DataHeader { start: None, ..start };
    for header in [start, data] {
        let bytes = encoded(&header, length).unwrap();
        let DataHeader { common, transfer, segment, .. } = header;
        let name = SegmentName { source: common.source, incarnation: common.incarnation, transfer, segment };
        assert_eq!(SegmentName::peek(&bytes), Some(name));
        // The following bytes are ignored. Less than a header, and another kind, give no key.
        assert_eq!(SegmentName::peek(&bytes[..DATA_HEADER_LENGTH]), Some(name));
        assert_eq!(SegmentName::peek(&bytes[..DATA_HEADER_LENGTH - 1]), None);
        for kind in 0..=u8::MAX {
            let mut other = bytes.clone();
            other[layout::common::KIND] = kind;
            let known = [PacketKind::Data, PacketKind::Start].iter().any(|known| known.value() == kind);
            assert_eq!(SegmentName::peek(&other).is_some(), known, "kind {kind}");
        }
    }
}

#[test]
fn start_packet_rules_are_checked() {
    use GeometryError as G;
    use WireError as W;
    assert!(matches!(
        broken(0, |_, start, _| start.packets = 31),
        W::Geometry(G::PacketCount { found: 31, expected: 32 })
    ));
    assert!(matches!(broken(0, |_, start, _| start.packets = 0), W::Geometry(G::PacketCount { .. })));
    assert!(matches!(
        broken(0, |_, start, _| start.segment_length = 512 * 256 + 1),
        W::Geometry(G::SegmentLength { .. })
    ));
    assert!(matches!(
        broken(0, |_, start, _| start.segment_length = u32::MAX),
        W::Geometry(G::SegmentLength { .. })
    ));
    assert!(matches!(
        broken(0, |header, _, _| header.address = CardAddr::new(0x1_0200)),
        W::StartAddress { .. }
    ));
    assert!(matches!(
        broken(0, |_, _, length| *length = 511),
        W::StartPayload { found: 511, expected: 512, segment: 0 }
    ));
    assert!(matches!(
        broken(2, |_, _, length| *length = 101),
        W::StartPayload { found: 101, expected: 100, segment: 2 }
    ));
    assert!(matches!(
        broken(0, |_, start, _| start.transfer_base = CardAddr::new(0x1_0001)),
        W::Geometry(G::OutsideTransfer { .. })
    ));
    assert!(matches!(
        broken(2, |_, start, _| start.transfer_length -= 1),
        W::Geometry(G::OutsideTransfer { .. })
    ));
    assert!(matches!(
        broken(0, |_, start, _| start.transfer_length = u64::MAX),
        W::Geometry(G::AddressRange { .. })
    ));
    // The first segment starts with the transfer, no other does; the last one ends with it, no other does.
    assert!(matches!(
        broken(0, |_, start, _| start.transfer_base = CardAddr::new(0xffff)),
        W::Geometry(G::SegmentOffset { .. })
    ));
    assert!(matches!(broken(1, |header, _, _| header.segment = 0), W::Geometry(G::SegmentOffset { .. })));
    assert!(matches!(
        broken(2, |_, start, _| start.transfer_length += 1),
        W::Geometry(G::SegmentOffset { .. })
    ));
    assert!(matches!(
        broken(1, |header, _, _| header.segment_count = 2),
        W::Geometry(G::SegmentOffset { .. })
    ));
}

#[test]
fn payload_packet_rules_are_checked() {
    use GeometryError as G;
    use WireError as W;
    let data = |change: &dyn Fn(&mut DataHeader), length: usize| {
        let mut header = DataHeader { start: None, ..start_of(1).0 };
        change(&mut header);
        encoded(&header, length).map(|bytes| {
            let parsed = Packet::parse(&bytes).unwrap();
            assert!(matches!(parsed, Packet::Data(data) if data.header() == header));
        })
    };
    let refused = |change: &dyn Fn(&mut DataHeader), length| match data(change, length) {
        Err(EncodeError::Invalid(error)) => error,
        other => panic!("{other:?}"),
    };
    for log2 in 0..=u8::MAX {
        let legal = (6..=15).contains(&log2);
        assert_eq!(data(&|header| header.packet_size_log2 = log2, 1).is_ok(), legal, "{log2}");
        if legal {
            assert!(data(&|header| header.packet_size_log2 = log2, 1 << log2).is_ok());
            let error = refused(&|header| header.packet_size_log2 = log2, (1 << log2) + 1);
            assert!(matches!(error, W::PayloadLength { .. }));
        }
    }
    assert!(matches!(refused(&|_| (), 0), W::PayloadLength { length: 0, packet_size: 512 }));
    assert!(matches!(refused(&|_| (), 1 << 20), W::PayloadLength { .. }));
    assert!(matches!(
        refused(&|header| header.segment = 3, 1),
        W::Geometry(G::SegmentIndex { segment: 3, count: 3 })
    ));
    assert!(matches!(refused(&|header| header.segment_count = 0, 1), W::Geometry(G::SegmentIndex { .. })));
    let last = CardAddr::new(u64::MAX - 512);
    assert!(data(&|header| header.address = last, 512).is_ok());
    assert!(matches!(refused(&|header| header.address = last, 513), W::PayloadLength { .. }));
    let beyond = CardAddr::new(u64::MAX - 511);
    assert!(matches!(refused(&|header| header.address = beyond, 512), W::Geometry(G::AddressRange { .. })));
    assert!(matches!(refused(&|header| header.oldest_live = TransferId::new(10), 1), W::OldestLive { .. }));
    assert!(
        data(&|header| header.oldest_live = TransferId::new(u32::MAX), 1).is_ok(),
        "the count has wrapped"
    );
}

#[test]
fn data_packet_index_is_exact() {
    let header = DataHeader { start: None, ..start_of(1).0 };
    let index = |base: u64| header.packet_index(CardAddr::new(base));
    assert_eq!((index(0x1_4000), index(0x1_3e00), index(0x1_0000)), (Some(0), Some(1), Some(32)));
    assert_eq!((index(0x1_3fff), index(0x1_4001), index(u64::MAX)), (None, None, None));
}

#[test]
fn payload_packet_small_size_limits() {
    let common = Common { source: NodeId::new(1), destination: NodeId::new(2), ..Common::default() };
    let outcome = |control: Control| control.encode(&mut [0; 64]);
    let arrived = |address, length| {
        outcome(Control::Arrived(Arrived {
            common,
            address: CardAddr::new(address),
            length,
            ..Arrived::default()
        }))
    };
    assert_eq!(arrived(0, 0), Err(EncodeError::Invalid(WireError::EmptyTransfer)));
    assert!(matches!(arrived(1, u64::MAX), Err(EncodeError::Invalid(WireError::Geometry(_)))));
    assert_eq!(arrived(0, u64::MAX), Ok(52));
    for (packet_size_log2, wire_version, mask_bits, legal) in [
        (6, 4, 1, true),
        (15, 255, 256, true),
        (5, 4, 32, false),
        (16, 4, 32, false),
        (9, 3, 32, false),
        (9, 4, 0, false),
        (9, 4, 257, false),
    ] {
        let hello = Hello {
            common,
            packet_size_log2,
            wire_version,
            mask_bits,
            capabilities: Capabilities::NONE,
            schemes: 1,
            registry_timeout_us: 1,
        };
        assert_eq!(outcome(Control::Hello(hello)).is_ok(), legal, "{hello:?}");
    }
    let flags = Common { flags: Flags::SILENT, ..common };
    assert!(matches!(
        outcome(Control::Ack(Ack { common: flags, ..Ack::default() })),
        Err(EncodeError::Invalid(WireError::Flags { .. }))
    ));
}

fn common(flags: impl Strategy<Value = u16>) -> impl Strategy<Value = Common> {
    (0..u32::MAX, 0..u32::MAX, any::<u32>(), flags, any::<u8>()).prop_map(
        |(source, destination, incarnation, flags, path)| Common {
            source: source.into(),
            destination: destination.into(),
            incarnation: Incarnation::new(incarnation),
            flags: Flags::from_bits(flags),
            path,
        },
    )
}

prop_compose! {
    /// A legal START or DATA packet, made from a transfer that is cut into segments.
    fn payload_packet()(
        common in common((0u16..4).prop_map(|bits| bits << 1)),
        packet_size_log2 in 6u8..=12,
        length in 1u64..2_000_000,
        segment_packets in 1u64..=256,
        base in 0..u64::MAX - 2_000_000,
        at in any::<prop::sample::Index>(),
        packet in any::<prop::sample::Index>(),
        (transfer, age) in (any::<u32>(), 0u32..1 << 31),
        (key, op, tries, fill) in any::<(u64, u32, u8, u8)>(),
    ) -> (DataHeader, Vec<u8>) {
        let packet_size = 1u64 << packet_size_log2;
        let segment_size = packet_size * segment_packets;
        let segment_count = length.div_ceil(segment_size);
        let segment = at.index(usize::try_from(segment_count).unwrap()) as u64;
        let segment_length = (length - segment * segment_size).min(segment_size);
        let packets = segment_length.div_ceil(packet_size);
        let packet = packet.index(usize::try_from(packets).unwrap()) as u64;
        let payload_length = (segment_length - packet * packet_size).min(packet_size);
        let segment_base = base + segment * segment_size;
        let start = StartFields {
            base: CardAddr::new(segment_base),
            segment_length: u32::try_from(segment_length).unwrap(),
            packets: u16::try_from(packets).unwrap(),
            transfer_base: CardAddr::new(base),
            transfer_length: length,
        };
        let header = DataHeader {
            common,
            transfer: transfer.into(),
            oldest_live: transfer.wrapping_sub(age).into(),
            segment: u32::try_from(segment).unwrap(),
            segment_count: u32::try_from(segment_count).unwrap(),
            address: CardAddr::new(segment_base + packet * packet_size),
            key,
            op: op.into(),
            tries,
            packet_size_log2,
            start: (packet == 0).then_some(start),
        };
        (header, vec![fill; usize::try_from(payload_length).unwrap()])
    }
}

fn control() -> impl Strategy<Value = Control> {
    let reasons = prop::sample::select(NackReason::ALL);
    (
        common(Just(0)),
        any::<[u32; 4]>(),
        any::<u8>(),
        any::<u64>(),
        1..u64::MAX,
        reasons,
        6u8..=12,
        1u16..=256,
        0..6,
    )
        .prop_map(
            |(common, [op, transfer, segment, peer], tries, key, length, reason, log2, mask_bits, kind)| {
                let (op, transfer, peer_incarnation) = (op.into(), transfer.into(), peer.into());
                let hello = Hello {
                    common,
                    packet_size_log2: log2,
                    wire_version: tries.max(4),
                    mask_bits,
                    capabilities: Capabilities::from_bits(segment),
                    schemes: peer,
                    registry_timeout_us: segment ^ peer,
                };
                match kind {
                    0 => {
                        let (senders, delay) = (tries ^ log2, mask_bits);
                        Control::Ack(Ack {
                            common,
                            op,
                            transfer,
                            segment,
                            peer_incarnation,
                            tries,
                            senders,
                            delay,
                        })
                    }
                    1 => {
                        let delay = mask_bits;
                        Control::Nack(Nack {
                            common,
                            op,
                            transfer,
                            segment,
                            peer_incarnation,
                            tries,
                            reason,
                            delay,
                        })
                    }
                    2 => Control::SegmentDone(SegmentDone { common, transfer, segment, peer_incarnation }),
                    3 => {
                        let address = CardAddr::new(key % (u64::MAX - length + 1));
                        Control::Arrived(Arrived { common, transfer, address, length, key })
                    }
                    4 => Control::Hello(hello),
                    _ => Control::HelloReply(hello),
                }
            },
        )
}

proptest! {
    #[test]
    fn payload_packet_round_trips((header, payload) in payload_packet()) {
        let mut buffer = [0xa5; MAX_PACKET_LENGTH];
        let length = header.encode(&payload, &mut buffer).unwrap();
        let Ok(Packet::Data(data)) = Packet::parse(&buffer[..length]) else { panic!("{header:?}") };
        prop_assert_eq!(data.header(), header);
        prop_assert_eq!(data.payload(), &payload[..]);
        prop_assert_eq!(data.kind(), header.kind());
    }

    /// A trimmed packet is the same packet with TRIMMED and without payload, and each of its bytes has one encoding.
    #[test]
    fn payload_packet_trimmed_round_trips((header, payload) in payload_packet(), place in any::<prop::sample::Index>(), value: u8) {
        let mut buffer = [0xa5; MAX_PACKET_LENGTH];
        let length = header.encode(&payload, &mut buffer).unwrap();
        let length = trim(&mut buffer[..length]).unwrap();
        prop_assert_eq!(length, header.length() + 4);
        let Ok(Packet::Data(data)) = Packet::parse(&buffer[..length]) else { panic!("{header:?}") };
        let common = Common { flags: header.common.flags.with(Flags::TRIMMED), ..header.common };
        prop_assert_eq!((data.header(), data.payload()), (DataHeader { common, ..header }, &[][..]));
        buffer[place.index(header.length())] = value;
        fpga_firmware::wire::finish(&mut buffer, length - 4).unwrap();
        if let Ok(Packet::Data(data)) = Packet::parse(&buffer[..length]) {
            let mut again = [0xa5; MAX_PACKET_LENGTH];
            let again_length = data.header().encode(data.payload(), &mut again).unwrap();
            prop_assert_eq!(&again[..again_length], &buffer[..length]);
        }
    }

    #[test]
    fn link_packet_round_trips(
        word in 0..4_u8,
        numbers in any::<[u32; 5]>(),
        (rate, queue) in (0..=1000_u16, 0..=1000_u16),
        (incarnation, path, flagged) in any::<(u32, u8, bool)>(),
    ) {
        let [source, destination, sender, receiver] = [0, 1, 2, 3].map(|at| NodeId::new(numbers[at] % 9));
        let (number, state) = (numbers[4], LinkLoad { link: numbers[4], rate, queue });
        let word = match word {
            0 => LinkFeedback::Inquiry { number },
            1 => LinkFeedback::Passive { number, receiver, state },
            2 => LinkFeedback::Active { sender, receiver, state },
            _ => LinkFeedback::Slow { receiver },
        };
        let last_hop = flagged && !matches!(word, LinkFeedback::Inquiry { .. });
        let flags = if last_hop { Flags::LAST_HOP } else { Flags::NONE };
        let common = Common { source, destination, incarnation: Incarnation::new(incarnation), flags, path };
        let packet = LinkPacket { common, word };
        let mut buffer = [0xa5; 64];
        let length = packet.encode(&mut buffer).unwrap();
        prop_assert_eq!(length, packet.length());
        prop_assert_eq!(Packet::parse(&buffer[..length]), Ok(Packet::Link(packet)));
    }

    #[test]
    fn control_packet_round_trips(control in control()) {
        let mut buffer = [0xa5; 64];
        let length = control.encode(&mut buffer).unwrap();
        prop_assert_eq!(Packet::parse(&buffer[..length]), Ok(Packet::Control(control)));
    }

    /// Encoding a parsed packet gives the same bytes: every packet has one encoding.
    #[test]
    fn packet_has_one_encoding((header, payload) in payload_packet(), place in any::<prop::sample::Index>(), value: u8) {
        let mut buffer = [0xa5; MAX_PACKET_LENGTH];
        let length = header.encode(&payload, &mut buffer).unwrap();
        buffer[place.index(header.length())] = value;
        fpga_firmware::wire::finish(&mut buffer, length - 4).unwrap();
        if let Ok(Packet::Data(data)) = Packet::parse(&buffer[..length]) {
            let mut again = [0xa5; MAX_PACKET_LENGTH];
            let again_length = data.header().encode(data.payload(), &mut again).unwrap();
            prop_assert_eq!(&again[..again_length], &buffer[..length]);
        }
    }

    #[test]
    fn packet_any_bytes_parse_or_are_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200), repair: bool) {
        if repair && bytes.len() >= 4 {
            bytes[0] = 1;
            let body = bytes.len() - 4;
            fpga_firmware::wire::finish(&mut bytes, body).unwrap();
        }
        let _ = Packet::parse(&bytes);
    }
}
