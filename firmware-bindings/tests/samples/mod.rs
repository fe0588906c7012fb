//! One packet of every kind, as bytes typed by hand and as the value that they stand for.

use fpga_firmware::generated::Capabilities;
use fpga_firmware::wire::{
    Ack, Arrived, Common, Control, DataHeader, Flags, Hello, Nack, NackReason, PacketKind, SegmentDone,
    StartFields,
};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

/// A packet as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sample {
    Data(DataHeader, Vec<u8>),
    Control(Control),
}

/// Bytes without checksum.
pub(crate) const GOLDEN: [(PacketKind, &[u8]); 8] = [
    (PacketKind::Data, &DATA),
    (PacketKind::Start, &START),
    (PacketKind::Ack, &ACK),
    (PacketKind::Nack, &NACK),
    (PacketKind::SegmentDone, &SEGMENT_DONE),
    (PacketKind::Arrived, &ARRIVED),
    (PacketKind::Hello, &HELLO),
    (PacketKind::HelloReply, &HELLO_REPLY),
];

#[rustfmt::skip]
const DATA: [u8; 64] = [
    1, 1, 0x06, 0x00, // version, kind, flags: silent, notify receiver
    0x04, 0x03, 0x02, 0x01, // source
    0x08, 0x07, 0x06, 0x05, // destination
    0x0c, 0x0b, 0x0a, 0x09, // incarnation
    0x14, 0x13, 0x12, 0x11, // transfer
    0x10, 0x13, 0x12, 0x11, // oldest live
    0x02, 0x00, 0x00, 0x00, // segment
    0x05, 0x00, 0x00, 0x00, // segment count
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // address
    0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
    0x42, 0x00, 0xef, 0xbe, // op
    0x08, 0x00, // payload length
    3, 6, // tries, packet size
    b'p', b'a', b'y', b'l', b'o', b'a', b'd', b'!',
];

#[rustfmt::skip]
const START: [u8; 96] = [
    1, 2, 0x04, 0x00, // version, kind, flags: notify receiver
    0x04, 0x03, 0x02, 0x01, // source
    0x08, 0x07, 0x06, 0x05, // destination
    0x0c, 0x0b, 0x0a, 0x09, // incarnation
    0x14, 0x13, 0x12, 0x11, // transfer
    0x10, 0x13, 0x12, 0x11, // oldest live
    0x01, 0x00, 0x00, 0x00, // segment
    0x02, 0x00, 0x00, 0x00, // segment count
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // address
    0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
    0x42, 0x00, 0xef, 0xbe, // op
    0x08, 0x00, // payload length
    3, 6, // tries, packet size
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // segment base
    0x08, 0x00, 0x00, 0x00, // segment length
    0x01, 0x00, // packets
    0x00, 0x00, // reserved
    0x28, 0x17, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // transfer base
    0x08, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // transfer length
    b'p', b'a', b'y', b'l', b'o', b'a', b'd', b'!',
];

#[rustfmt::skip]
const ACK: [u8; 36] = [
    1, 3, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    0x42, 0x00, 0xef, 0xbe, // op
    0x14, 0x13, 0x12, 0x11, // transfer
    0x02, 0x00, 0x00, 0x00, // segment
    0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
    3, 0, 0, 0, // tries, no reason, reserved
];

#[rustfmt::skip]
const NACK: [u8; 36] = [
    1, 4, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    0x42, 0x00, 0xef, 0xbe, // op
    0x14, 0x13, 0x12, 0x11, // transfer
    0x02, 0x00, 0x00, 0x00, // segment
    0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
    3, 2, 0, 0, // tries, escape buffer full, reserved
];

#[rustfmt::skip]
const SEGMENT_DONE: [u8; 32] = [
    1, 5, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    0x14, 0x13, 0x12, 0x11, // transfer
    0x02, 0x00, 0x00, 0x00, // segment
    0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
    0x00, 0x00, 0x00, 0x00, // reserved
];

#[rustfmt::skip]
const ARRIVED: [u8; 48] = [
    1, 6, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    0x14, 0x13, 0x12, 0x11, // transfer
    0x00, 0x00, 0x00, 0x00, // reserved
    0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // address
    0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // length: 4 GiB
    0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
];

#[rustfmt::skip]
const HELLO: [u8; 28] = [
    1, 7, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    12, 1, // packet size, wire version
    0x00, 0x01, // mask bits: 256
    0x05, 0x00, 0x00, 0x80, // capabilities: event push, packet events, one that nobody knows
    0x21, 0x00, 0x00, 0x00, // schemes 0 and 5
];

#[rustfmt::skip]
const HELLO_REPLY: [u8; 28] = [
    1, 8, 0x00, 0x00,
    0x04, 0x03, 0x02, 0x01,
    0x08, 0x07, 0x06, 0x05,
    0x0c, 0x0b, 0x0a, 0x09,
    12, 1,
    0x00, 0x01,
    0x05, 0x00, 0x00, 0x80,
    0x21, 0x00, 0x00, 0x00,
];

/// CRC-32C, one bit at a time.
pub(crate) fn bitwise_crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

/// The bytes with their checksum.
pub(crate) fn with_crc(body: &[u8]) -> Vec<u8> {
    [body, &bitwise_crc(body).to_le_bytes()].concat()
}

/// The value that the golden bytes of this kind stand for.
#[expect(clippy::panic, reason = "a kind without a sample fails the test")]
pub(crate) fn sample(kind: PacketKind) -> Sample {
    let common = Common {
        source: NodeId::new(0x0102_0304),
        destination: NodeId::new(0x0506_0708),
        incarnation: Incarnation::new(0x090a_0b0c),
        flags: Flags::NONE,
    };
    let transfer = TransferId::new(0x1112_1314);
    let op = OpNumber::new(0xbeef_0042);
    let peer_incarnation = Incarnation::new(0x494a_4b4c);
    let address = CardAddr::new(0x2122_2324_2526_2728);
    let key = 0x3132_3334_3536_3738;
    let data = DataHeader {
        common: Common { flags: Flags::SILENT | Flags::NOTIFY_RECEIVER, ..common },
        transfer,
        oldest_live: TransferId::new(0x1112_1310),
        segment: 2,
        segment_count: 5,
        address,
        key,
        op,
        tries: 3,
        packet_size_log2: 6,
        start: None,
    };
    let start = DataHeader {
        common: Common { flags: Flags::NOTIFY_RECEIVER, ..common },
        segment: 1,
        segment_count: 2,
        start: Some(StartFields {
            base: address,
            segment_length: 8,
            packets: 1,
            transfer_base: CardAddr::new(0x2122_2324_2526_1728),
            transfer_length: 0x1008,
        }),
        ..data
    };
    let hello = Hello {
        common,
        packet_size_log2: 12,
        wire_version: 1,
        mask_bits: 256,
        capabilities: Capabilities::from_bits(0x8000_0005),
        schemes: 0x21,
    };
    match kind {
        PacketKind::Data => Sample::Data(data, b"payload!".to_vec()),
        PacketKind::Start => Sample::Data(start, b"payload!".to_vec()),
        PacketKind::Ack => Sample::Control(Control::Ack(Ack {
            common,
            op,
            transfer,
            segment: 2,
            peer_incarnation,
            tries: 3,
        })),
        PacketKind::Nack => Sample::Control(Control::Nack(Nack {
            common,
            op,
            transfer,
            segment: 2,
            peer_incarnation,
            tries: 3,
            reason: NackReason::EscapeFull,
        })),
        PacketKind::SegmentDone => Sample::Control(Control::SegmentDone(SegmentDone {
            common,
            transfer,
            segment: 2,
            peer_incarnation,
        })),
        PacketKind::Arrived => {
            Sample::Control(Control::Arrived(Arrived { common, transfer, address, length: 1 << 32, key }))
        }
        PacketKind::Hello => Sample::Control(Control::Hello(hello)),
        PacketKind::HelloReply => Sample::Control(Control::HelloReply(hello)),
        other => panic!("no sample of {other}"),
    }
}
