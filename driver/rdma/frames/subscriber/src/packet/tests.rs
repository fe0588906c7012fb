//! Compared with the codec of the cards, which is written independently.

use fpga_firmware::wire::{self, Control, DataHeader, Flags, NackReason};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

use super::*;

const OURS: Common = Common { source: 2, destination: 1, incarnation: 5 };

fn theirs() -> wire::Common {
    let (source, destination) = (NodeId::new(1), NodeId::new(2));
    wire::Common { source, destination, incarnation: Incarnation::new(9), path: 0x70, flags: Flags::MARKED }
}

/// The wrapper around a packet of the cards' codec.
fn wrapped(packet: &[u8]) -> Vec<u8> {
    let mut out = Writer::default();
    out.put(b"FPLK\x01\x00").u16(u16::try_from(packet.len()).unwrap()).put(&packet[4..12]).put(packet);
    out.0
}

fn start_packet() -> Vec<u8> {
    let header = DataHeader {
        common: theirs(),
        transfer: TransferId::new(20),
        oldest_live: TransferId::new(18),
        segment: 1,
        segment_count: 2,
        address: CardAddr::new(0x4100),
        key: 77,
        op: OpNumber::new(0x0A0B_0C0D),
        tries: 3,
        packet_size_log2: 9,
        start: Some(wire::StartFields {
            base: CardAddr::new(0x4100),
            segment_length: 100,
            packets: 1,
            transfer_base: CardAddr::new(0x100),
            transfer_length: 0x4064,
        }),
    };
    let mut bytes = [0; 300];
    let length = header.encode(&[7; 100], &mut bytes).unwrap();
    bytes[..length].to_vec()
}

#[test]
fn packet_from_card_is_parsed() {
    let datagram = wrapped(&start_packet());
    let (from, Packet::Data(data)) = parse(&datagram).unwrap() else { panic!("{datagram:?}") };
    assert_eq!(from, Common { source: 1, destination: 2, incarnation: 9 });
    assert_eq!((data.transfer, data.oldest_live, data.segment, data.segment_count), (20, 18, 1, 2));
    assert_eq!((data.address, data.key, data.op, data.tries), (0x4100, 77, 0x0A0B_0C0D, 3));
    assert_eq!((data.packet_size_log2, data.notify, data.payload), (9, true, &[7; 100][..]));
    let start = data.start.unwrap();
    assert_eq!((start.base, start.segment_length, start.packets), (0x4100, 100, 1));
    assert_eq!((start.transfer_base, start.transfer_length), (0x100, 0x4064));
    let hello = wire::Hello {
        common: theirs(),
        packet_size_log2: 10,
        wire_version: WIRE_VERSION,
        mask_bits: 32,
        capabilities: fpga_firmware::generated::Capabilities::from_bits(3),
        schemes: 0b11,
        registry_timeout_us: 4,
    };
    let nack = wire::Nack {
        delay: 0,
        common: theirs(),
        op: OpNumber::new(4),
        transfer: TransferId::new(5),
        segment: 0,
        peer_incarnation: Incarnation::new(5),
        tries: 1,
        reason: NackReason::Violation,
    };
    let answer = Packet::Answer(Answer { op: 4, peer_incarnation: 5, reason: 3 });
    let reply = Packet::HelloReply { packet_size_log2: 10, registry: true };
    for (control, expected) in [
        (Control::Nack(nack), answer),
        (Control::Hello(hello), Packet::Hello),
        (Control::HelloReply(hello), reply),
    ] {
        let mut bytes = [0; wire::MAX_CONTROL_LENGTH];
        let length = control.encode(&mut bytes).unwrap();
        assert_eq!(parse(&wrapped(&bytes[..length])).unwrap().1, expected);
    }
}

#[test]
fn packet_damage_and_truncation_are_detected() {
    let datagram = wrapped(&start_packet());
    for bit in 0..8 * datagram.len() {
        let mut other = datagram.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse(&other), None, "bit {bit}");
    }
    for end in 0..datagram.len() {
        assert_eq!(parse(&datagram[..end]), None, "cut at {end}");
    }
}

#[test]
fn packet_to_card_is_valid() {
    let datagram = wrapped(&start_packet());
    let (_, Packet::Data(data)) = parse(&datagram).unwrap() else { panic!("{datagram:?}") };
    let mut out = Writer::default();
    let mut control = |encode: &dyn Fn(&mut Writer)| {
        encode(&mut out);
        assert_eq!(out.0[..16], wrapped(&out.0[16..])[..16]);
        match wire::Packet::parse(&out.0[16..]).unwrap() {
            wire::Packet::Control(control) => control,
            other => panic!("{other:?}"),
        }
    };
    let Control::Ack(ack) = control(&|out| answer(out, OURS, &data, 9, None)) else { panic!("no ACK") };
    assert_eq!((ack.op.get(), ack.transfer.get(), ack.segment), (0x0A0B_0C0D, 20, 1));
    assert_eq!((ack.peer_incarnation.get(), ack.tries, ack.common.incarnation.get()), (9, 3, 5));
    for (refusal, reason) in [
        (Refusal::Busy, NackReason::Busy),
        (Refusal::EscapeFull, NackReason::EscapeFull),
        (Refusal::Violation, NackReason::Violation),
        (Refusal::BadPacket, NackReason::BadPacket),
    ] {
        let packet = control(&|out| answer(out, OURS, &data, 9, Some(refusal)));
        assert!(matches!(packet, Control::Nack(nack) if nack.reason == reason));
    }
    let passing = [NackReason::Busy, NackReason::EscapeFull, NackReason::NotReady];
    assert!((0..=255).all(|reason| is_passing(reason) == passing.map(NackReason::value).contains(&reason)));
    let done = control(&|out| segment_done(out, OURS, &data, 9));
    assert!(matches!(done, Control::SegmentDone(done) if (done.transfer.get(), done.segment) == (20, 1)));
    let reply = control(&|out| hello(out, OURS, 9, true));
    let Control::HelloReply(reply) = reply else { panic!("{reply:?}") };
    assert_eq!((reply.schemes, reply.mask_bits, reply.packet_size_log2), (1, 256, 9));
    let packet = SinglePacket { transfer: 8, address: 0x40, key: 6, op: 9, tries: 2, packet_size_log2: 9 };
    single(&mut out, OURS, &packet, &[3; 64]);
    let wire::Packet::Data(credit) = wire::Packet::parse(&out.0[16..]).unwrap() else { panic!("no START") };
    assert_eq!((credit.address().get(), credit.key(), credit.op().get(), credit.tries()), (0x40, 6, 9, 2));
    assert!(credit.common().flags.contains(Flags::NOTIFY_RECEIVER) && credit.start().is_some());
    assert_eq!(credit.payload(), [3; 64]);
}
