//! The five tests of every packet format (deconstruct, construct, impossible length, parse, emit) over golden bytes.
//!
//! The golden bytes are written manually, not made by the code under test; only their checksum is computed, by a bitwise
//! CRC-32C of this file. Buffers are filled with 0xa5 before, so that an unwritten byte is detected.

#![expect(clippy::expect_used, reason = "an unexpected value in a test helper fails the test")]

use crate::samples;

use fpga_firmware::NodeId;
use fpga_firmware::generated::{AnswerKind, Scheme};
use fpga_firmware::wire::{
    Announcement, Control, EncodeError, LinkPacket, MESSAGE_PACKETS_MAX, Message, MessageAnswer,
    MessageHeader, MessageRequest, Packet, PacketKind, ReadRequest, WireError,
};
use samples::{GOLDEN, Sample, bitwise_crc, sample, with_crc};

/// Parses bytes after their checksum was corrected.
fn refusal(body: &[u8]) -> WireError {
    Packet::parse(&with_crc(body)).expect_err("must be refused")
}

fn emitted(sample: &Sample, buffer: &mut [u8]) -> Result<usize, EncodeError> {
    match sample {
        Sample::Data(header, payload) => header.encode(payload, buffer),
        Sample::Control(control) => control.encode(buffer),
        Sample::Message(message, payload) => message.encode(payload, buffer),
        Sample::Link(packet) => packet.encode(buffer),
    }
}

#[test]
fn golden_packets_deconstruct() {
    for (kind, body) in GOLDEN {
        let bytes = with_crc(body);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.kind(), kind);
        let common = packet.common();
        assert_eq!((common.source.get(), common.destination.get()), (0x0102_0304, 0x0506_0708));
        assert_eq!(common.incarnation.get(), 0x090a_0b0c);
        if let Packet::Data(data) = packet {
            assert_eq!((data.transfer().get(), data.oldest_live().get()), (0x1112_1314, 0x1112_1310));
            assert_eq!((data.op().slot(), data.op().generation()), (0x0042, 0xbeef));
            assert_eq!((data.tries(), data.packet_size_log2()), (3, 6));
            assert_eq!(data.key(), 0x3132_3334_3536_3738);
            assert_eq!(data.payload(), b"payload!");
            assert_eq!(data.kind() == PacketKind::Start, data.start().is_some());
            if let Some(start) = data.start() {
                assert_eq!((start.base, start.packets), (data.address(), 1));
                assert_eq!(
                    (data.packet_index(start.base), data.header().packet_index(start.base)),
                    (Some(0), Some(0))
                );
            }
        }
    }
}

#[test]
fn golden_packets_parse() {
    for (kind, body) in GOLDEN {
        let bytes = with_crc(body);
        let found = match Packet::parse(&bytes).unwrap() {
            Packet::Data(data) => Sample::Data(data.header(), data.payload().to_vec()),
            Packet::Control(control) => Sample::Control(control),
            Packet::Message(bytes) => {
                let (message, payload) = bytes.read().unwrap();
                assert_eq!((message.kind(), message.common()), (bytes.kind(), bytes.common()));
                Sample::Message(message, payload.to_vec())
            }
            Packet::Link(packet) => Sample::Link(packet),
        };
        assert_eq!(found, sample(kind));
    }
}

#[test]
fn golden_packets_encode() {
    for (kind, body) in GOLDEN {
        let expected = with_crc(body);
        let mut buffer = vec![0xa5; expected.len() + 8];
        let length = emitted(&sample(kind), &mut buffer).unwrap();
        assert_eq!((length, &buffer[..length]), (expected.len(), &expected[..]), "{kind}");
        assert_eq!(&buffer[length..], [0xa5; 8], "{kind} wrote beyond its end");
        if let Sample::Control(control) = sample(kind) {
            assert_eq!(control.length(), length);
        }
        if let Sample::Link(packet) = sample(kind) {
            assert_eq!(packet.length(), length);
        }
        if let Sample::Message(message, payload) = sample(kind) {
            assert_eq!(message.length() + payload.len(), length);
        }
    }
}

#[test]
fn golden_packets_construct_in_two_steps() {
    for (kind, body) in GOLDEN {
        let expected = with_crc(body);
        // In two steps, with the payload in place before the header.
        if let Sample::Data(header, payload) = sample(kind) {
            let mut buffer = vec![0xa5; expected.len()];
            let at = header.length();
            buffer[at..at + payload.len()].copy_from_slice(&payload);
            assert_eq!(header.encode_header(payload.len(), &mut buffer), Ok(at));
            assert_eq!(fpga_firmware::wire::finish(&mut buffer, at + payload.len()), Ok(expected.len()));
            assert_eq!(buffer, expected);
        }
        // Into buffers of every insufficient length.
        for available in 0..expected.len() {
            let mut buffer = vec![0xa5; available];
            let refused = EncodeError::BufferTooSmall { needed: expected.len(), available };
            assert_eq!(emitted(&sample(kind), &mut buffer), Err(refused));
        }
    }
}

/// Payloads of every packet size, and one byte less: in one step as in two, with the checksum of the definition.
#[test]
fn payload_packet_every_size_encodes_as_defined() {
    let bytes: Vec<u8> = (0..1u32 << 15).map(|n| n.wrapping_mul(0x9e37_79b9).to_le_bytes()[3]).collect();
    let Sample::Data(header, _) = sample(PacketKind::Data) else { panic!("a DATA packet has a header") };
    for packet_size_log2 in 6..=15 {
        for less in [0, 1] {
            let payload = &bytes[..(1 << packet_size_log2) - less];
            let header = fpga_firmware::wire::DataHeader { packet_size_log2, ..header };
            let mut buffer = vec![0xa5; header.length() + payload.len() + 12];
            let length = header.encode(payload, &mut buffer).unwrap();
            assert_eq!(&buffer[length..], [0xa5; 8]);
            let mut in_two_steps = vec![0x5a; length];
            let at = header.encode_header(payload.len(), &mut in_two_steps).unwrap();
            in_two_steps[at..at + payload.len()].copy_from_slice(payload);
            assert_eq!(fpga_firmware::wire::finish(&mut in_two_steps, at + payload.len()), Ok(length));
            assert_eq!(buffer[..length], in_two_steps);
            assert_eq!(buffer[..length], with_crc(&buffer[..length - 4]));
        }
    }
}

#[test]
fn packet_impossible_length_is_refused() {
    for (kind, body) in GOLDEN {
        // Cut anywhere, with a good checksum: the fields no longer agree with the length.
        for length in 0..body.len() {
            match refusal(&body[..length]) {
                WireError::TooShort { length: found, needed: 20 } => assert_eq!(found, length + 4),
                WireError::Length { kind: of, found, expected } => {
                    assert_eq!((of, found), (kind, length + 4));
                    assert!(expected > found);
                }
                other => panic!("{kind} cut to {length}: {other}"),
            }
        }
        let mut longer = body.to_vec();
        longer.push(0);
        let expected = WireError::Length { kind, expected: body.len() + 4, found: body.len() + 5 };
        assert_eq!(refusal(&longer), expected);
    }
}

#[test]
fn packet_truncated_is_refused() {
    for (kind, body) in GOLDEN {
        let bytes = with_crc(body);
        for length in 0..bytes.len() {
            let error = Packet::parse(&bytes[..length]).unwrap_err();
            assert!(error.is_damage(), "{kind} cut to {length}: {error}");
        }
    }
}

/// Cut short, with a correct checksum: the error has the shortest possible length.
#[test]
fn packet_without_whole_header_tells_expected_length() {
    for kind in [PacketKind::Data, PacketKind::Start] {
        let body = golden(kind);
        let header = body.len() - 8;
        for length in [16, header - 1] {
            let (expected, found) = (header + 4, length + 4);
            assert_eq!(refusal(&body[..length]), WireError::Length { kind, expected, found });
        }
    }
}

#[test]
fn packet_any_single_bit_flip_is_refused() {
    for (kind, body) in GOLDEN {
        let mut bytes = with_crc(body);
        for bit in 0..8 * bytes.len() {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let error = Packet::parse(&bytes).unwrap_err();
            assert!(matches!(error, WireError::Checksum { .. }), "{kind}, bit {bit}: {error}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn ack_any_two_bit_flip_is_refused() {
    let mut bytes = with_crc(GOLDEN[2].1);
    for first in 0..8 * bytes.len() {
        for second in first + 1..8 * bytes.len() {
            bytes[first / 8] ^= 1 << (first % 8);
            bytes[second / 8] ^= 1 << (second % 8);
            assert!(Packet::parse(&bytes).is_err(), "bits {first} and {second}");
            bytes[first / 8] ^= 1 << (first % 8);
            bytes[second / 8] ^= 1 << (second % 8);
        }
    }
}

#[test]
fn packet_unknown_version_kind_or_flag_is_refused() {
    for (kind, body) in GOLDEN {
        let mut changed = body.to_vec();
        for version in (0..=u8::MAX).filter(|version| *version != 4) {
            changed[0] = version;
            assert_eq!(refusal(&changed), WireError::Version { found: version, supported: 4 });
        }
        changed[0] = 4;
        for found in (0..=u8::MAX).filter(|found| !(1..=18).contains(found)) {
            changed[1] = found;
            assert_eq!(refusal(&changed), WireError::Kind { found });
        }
        changed[1] = kind.value();
        // Silent, notify receiver, no notice, last hop, trimmed; marked; echo.
        let known = 0b100_0000
            | match kind {
                PacketKind::Data | PacketKind::Start => 0b10_1110,
                PacketKind::MessageRequest | PacketKind::MessageStart => 0b1000,
                PacketKind::Ack | PacketKind::Nack | PacketKind::MessageAnswer | PacketKind::MessageMap => {
                    0b1000_0000
                }
                PacketKind::LinkPassive | PacketKind::LinkActive | PacketKind::LinkSlow => 0b1_0000,
                _ => 0,
            };
        for flags in 0..=u16::from(u8::MAX) {
            changed[2] = flags.to_le_bytes()[0];
            let allowed = flags & !known == 0 && flags & 0b1100 != 0b1100;
            match Packet::parse(&with_crc(&changed)) {
                Ok(packet) => assert!(allowed && packet.common().flags.bits() == flags),
                // Trimmed, but with its payload.
                Err(WireError::PayloadLength { length: 8, .. }) => assert!(allowed && flags & 0b10_0000 != 0),
                Err(error) => assert!(!allowed && matches!(error, WireError::Flags { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn packet_reserved_node_is_refused() {
    for (kind, body) in GOLDEN {
        for place in [4, 8] {
            let mut changed = body.to_vec();
            changed[place..place + 4].fill(0xff);
            let error = refusal(&changed);
            assert!(matches!(error, WireError::ReservedNode { .. }), "{kind}: {error}");
        }
    }
}

#[test]
fn packet_nonzero_reserved_field_is_refused() {
    for (kind, places) in [
        (PacketKind::Start, 70..72),
        (PacketKind::SegmentDone, 28..32),
        (PacketKind::Arrived, 20..24),
        (PacketKind::MessageRequest, 70..72),
        (PacketKind::MessageData, 32..33),
        (PacketKind::MessageAnswer, 38..40),
        (PacketKind::ReadRequest, 20..24),
    ] {
        let (_, body) = GOLDEN.into_iter().find(|(other, _)| *other == kind).unwrap();
        for place in places {
            for bit in 0..8 {
                let mut changed = body.to_vec();
                changed[place] |= 1 << bit;
                assert_eq!(refusal(&changed), WireError::Reserved { kind }, "byte {place}");
            }
        }
    }
}

#[test]
fn packet_reason_is_number_of_senders_in_ack() {
    for reason in 0..=u8::MAX {
        let mut ack = GOLDEN[2].1.to_vec();
        ack[33] = reason;
        let Ok(Packet::Control(Control::Ack(parsed))) = Packet::parse(&with_crc(&ack)) else {
            panic!("{reason}")
        };
        assert_eq!(parsed.senders, reason);
        ack[1] = PacketKind::Nack.value();
        match Packet::parse(&with_crc(&ack)) {
            Ok(Packet::Control(Control::Nack(nack))) => assert_eq!(nack.reason.value(), reason),
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(!(1..=9).contains(&reason));
                assert_eq!(error, WireError::Reason { kind: PacketKind::Nack, found: reason });
            }
        }
    }
}

fn golden(kind: PacketKind) -> Vec<u8> {
    GOLDEN
        .iter()
        .find(|(other, _)| *other == kind)
        .map(|(_, body)| body.to_vec())
        .expect("every kind has one")
}

/// A link's rate and queue are at most `LINK_WHOLE`, and its node fields are valid node ids.
#[test]
fn link_packet_impossible_values_are_refused() {
    for kind in [PacketKind::LinkPassive, PacketKind::LinkActive] {
        for place in [28, 30] {
            let mut body = golden(kind);
            for (value, good) in [(0_u16, true), (1000, true), (1001, false), (u16::MAX, false)] {
                body[place..place + 2].copy_from_slice(&value.to_le_bytes());
                let bytes = with_crc(&body);
                let found = Packet::parse(&bytes);
                assert_eq!(found.is_ok(), good, "{kind}, byte {place}: {value}");
                assert!(good || matches!(found, Err(WireError::LinkState { link: 0x8182_8384, .. })));
            }
        }
    }
    for (kind, place) in [
        (PacketKind::LinkPassive, 20),
        (PacketKind::LinkActive, 16),
        (PacketKind::LinkActive, 20),
        (PacketKind::LinkSlow, 16),
    ] {
        let mut body = golden(kind);
        body[place..place + 4].fill(0xff);
        assert!(matches!(refusal(&body), WireError::ReservedNode { .. }), "{kind}");
    }
}

/// Fields that an answer does not use are 0, and only MESSAGE_MAP carries a map.
#[test]
fn message_answer_unused_fields_must_be_zero() {
    for found in 0..=u8::MAX {
        for kind in [PacketKind::MessageAnswer, PacketKind::MessageMap] {
            let mut body = golden(kind);
            body[28..38].fill(0);
            body[36] = found;
            let known = AnswerKind::try_from(found).ok();
            let is_map = known == Some(AnswerKind::Map);
            match Packet::parse(&with_crc(&body)) {
                Ok(_) => assert!(known.is_some() && is_map == (kind == PacketKind::MessageMap)),
                Err(WireError::Reason { found: 0, .. }) => {
                    assert!(matches!(known, Some(AnswerKind::Refused | AnswerKind::ReadRefused)));
                }
                Err(error) => {
                    assert_eq!(error, WireError::Answer { kind, found });
                    assert!(known.is_none() || is_map != (kind == PacketKind::MessageMap));
                }
            }
        }
    }
    for (place, answer) in
        [(28, AnswerKind::Done), (32, AnswerKind::Accepted), (37, AnswerKind::ReadAccepted)]
    {
        let mut body = golden(PacketKind::MessageAnswer);
        body[28..38].fill(0);
        body[36] = answer.value();
        body[place] = 1;
        assert_eq!(refusal(&body), WireError::Reserved { kind: PacketKind::MessageAnswer });
    }
}

/// The registry has no messages, 2 and 3 are reserved, 6 is free.
#[test]
fn message_of_unknown_scheme_is_refused() {
    for (kind, place) in
        [(PacketKind::MessageRequest, 68), (PacketKind::MessageData, 34), (PacketKind::MessageStart, 34)]
    {
        for found in [0, 2, 3, 6] {
            let mut body = golden(kind);
            body[place] = found;
            assert_eq!(refusal(&body), WireError::Scheme { kind, found });
        }
    }
}

/// A message is 1 byte to 4096 packets inside its transfer, and a packet agrees with its message.
#[test]
fn message_header_contradictions_are_refused() {
    let Sample::Message(Message::Data(good), payload) = sample(PacketKind::MessageStart) else {
        panic!("a MESSAGE_START packet has a header")
    };
    let announcement = good.announcement.unwrap();
    let refuses = |header: MessageHeader, payload: &[u8]| {
        let found = Message::Data(header).encode(payload, &mut [0; 300]);
        assert!(matches!(found, Err(EncodeError::Invalid(_))), "{header:?}: {found:?}");
    };
    let announced = |announcement: Announcement| MessageHeader { announcement: Some(announcement), ..good };
    refuses(announced(Announcement { length: 0, ..announcement }), &payload);
    refuses(announced(Announcement { length: 0x2009, ..announcement }), &payload);
    refuses(announced(Announcement { transfer_length: 71, ..announcement }), &payload);
    refuses(announced(Announcement { left: 0x2008, ..announcement }), &payload);
    refuses(
        announced(Announcement { base: fpga_registers::CardAddr::new(u64::MAX - 8), ..announcement }),
        &payload,
    );
    refuses(MessageHeader { index: 2, ..good }, &payload);
    refuses(MessageHeader { index: 0, ..good }, &[0; 64]);
    refuses(MessageHeader { tail: false, ..good }, &payload);
    refuses(MessageHeader { scheme: Scheme::Registry, ..good }, &payload);
    refuses(MessageHeader { packet_size_log2: 13, ..good }, &payload);
    refuses(good, &payload[..7]);
    let short = MessageHeader { announcement: None, ..good };
    refuses(MessageHeader { index: u16::try_from(MESSAGE_PACKETS_MAX).unwrap(), ..short }, &payload);
    refuses(MessageHeader { tail: false, ..short }, &payload);
    refuses(short, &[]);
    assert!(Message::Data(MessageHeader { tail: false, ..short }).encode(&[0; 64], &mut [0; 300]).is_ok());
}

#[test]
fn encode_refuses_packets_that_parse_refuses() {
    for (kind, _) in GOLDEN {
        let mut wrong = sample(kind);
        match &mut wrong {
            Sample::Data(header, _) => header.common.source = NodeId::ANY,
            Sample::Control(
                Control::Ack(fpga_firmware::wire::Ack { common, .. })
                | Control::Nack(fpga_firmware::wire::Nack { common, .. })
                | Control::SegmentDone(fpga_firmware::wire::SegmentDone { common, .. })
                | Control::Arrived(fpga_firmware::wire::Arrived { common, .. })
                | Control::Hello(fpga_firmware::wire::Hello { common, .. })
                | Control::HelloReply(fpga_firmware::wire::Hello { common, .. }),
            )
            | Sample::Message(
                Message::Request(MessageRequest { common, .. })
                | Message::Data(MessageHeader { common, .. })
                | Message::Answer(MessageAnswer { common, .. })
                | Message::Read(ReadRequest { common, .. }),
                _,
            )
            | Sample::Link(LinkPacket { common, .. }) => common.source = NodeId::ANY,
        }
        let refused = emitted(&wrong, &mut [0; 200]);
        assert!(matches!(refused, Err(EncodeError::Invalid(WireError::ReservedNode { .. }))), "{refused:?}");
    }
}

#[test]
fn packet_checksum_matches_crc_module() {
    for (_, body) in GOLDEN {
        assert_eq!(bitwise_crc(body), fpga_firmware::crc::crc32c(body));
    }
}

#[test]
fn packet_mark_sets_one_flag_in_every_kind() {
    for (kind, body) in GOLDEN {
        let mut packet = with_crc(body);
        assert!(fpga_firmware::wire::mark(&mut packet), "{kind}");
        let marked = Packet::parse(&packet).unwrap();
        assert!(marked.common().flags.contains(fpga_firmware::wire::Flags::MARKED), "{kind}");
        let mut expected = body.to_vec();
        expected[2] |= 1 << 6;
        assert_eq!(packet, with_crc(&expected), "{kind}");
        // A damaged packet stays damaged.
        packet[5] ^= 1;
        let damaged = packet.clone();
        assert!(!fpga_firmware::wire::mark(&mut packet));
        assert_eq!(packet, damaged);
    }
    assert!((0..20).all(|length| !fpga_firmware::wire::mark(&mut vec![0; length])));
}

#[test]
fn packet_trim_leaves_header_of_data_and_start_only() {
    use fpga_firmware::wire::{Flags, trim};
    for (kind, body) in GOLDEN {
        let mut packet = with_crc(body);
        let whole = packet.clone();
        // A damaged packet stays damaged.
        packet[5] ^= 1;
        assert_eq!(trim(&mut packet), None, "{kind}");
        packet[5] ^= 1;
        assert_eq!(packet, whole);
        let Packet::Data(data) = Packet::parse(&whole).unwrap() else {
            assert_eq!((trim(&mut packet), &packet), (None, &whole), "{kind}");
            continue;
        };
        let mut expected = body[..body.len() - 8].to_vec();
        expected[2] |= 1 << 5;
        expected[52..54].fill(0);
        let length = trim(&mut packet).unwrap();
        assert_eq!(&packet[..length], with_crc(&expected), "{kind}");
        let Ok(Packet::Data(trimmed)) = Packet::parse(&packet[..length]) else { panic!("{kind}") };
        assert_eq!((trimmed.kind(), trimmed.payload(), trimmed.start()), (kind, &[][..], data.start()));
        let flags = data.common().flags.with(Flags::TRIMMED);
        assert_eq!((trimmed.common().flags, trimmed.op()), (flags, data.op()));
        // Cut again, it does not change. Without the flag, an empty payload is refused.
        let again = packet.clone();
        assert_eq!((trim(&mut packet[..length]), &packet), (Some(length), &again));
        expected[2] &= !(1 << 5);
        assert_eq!(refusal(&expected), WireError::PayloadLength { length: 0, packet_size: 64 }, "{kind}");
        let mut header = data.header();
        assert!(matches!(header.encode(&[], &mut packet), Err(EncodeError::Invalid(_))));
        header.common.flags = flags;
        assert!(matches!(header.encode(b"payload!", &mut packet), Err(EncodeError::Invalid(_))));
    }
}

#[test]
fn answer_senders_only_where_there_is_place() {
    use fpga_firmware::wire::{AnswerBody, Message, MessageAnswer, NackReason, SENDERS_MAX};
    let packet = with_crc(&golden(PacketKind::MessageAnswer));
    let Ok(Packet::Message(bytes)) = Packet::parse(&packet) else { panic!("no message") };
    let (Message::Answer(answer), _) = bytes.read().unwrap() else { panic!("no answer") };
    let mut buffer = [0; 100];
    for (body, most) in [
        (AnswerBody::Done, SENDERS_MAX),
        (AnswerBody::Limit { first: 3, above: 2, index: Some(4) }, SENDERS_MAX),
        (AnswerBody::Refused(NackReason::Busy, 77), 0),
        (AnswerBody::ReadAccepted, 0),
    ] {
        for senders in 0..=u8::MAX {
            let packet = Message::Answer(MessageAnswer { body, senders, ..answer });
            match packet.encode(&[], &mut buffer) {
                Ok(length) => {
                    assert!(senders <= most);
                    let Ok(Packet::Message(back)) = Packet::parse(&buffer[..length]) else {
                        panic!("{body:?}")
                    };
                    assert_eq!(back.read().unwrap().0, packet);
                }
                Err(error) => assert!(senders > most, "{error}"),
            }
        }
    }
}
