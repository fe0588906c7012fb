//! One packet of every kind, as bytes written manually and as the value that they encode.

use fpga_firmware::generated::{Capabilities, Scheme};
use fpga_firmware::wire::{
    Ack, Announcement, AnswerBody, Arrived, Common, Control, DataHeader, Flags, Hello, LinkFeedback,
    LinkLoad, LinkPacket, Message, MessageAnswer, MessageHeader, MessageRequest, Nack, NackReason,
    PacketKind, ReadRequest, SegmentDone, StartFields,
};
use fpga_firmware::{Incarnation, MessageId, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

/// A packet as a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Sample {
    Data(DataHeader, Vec<u8>),
    Control(Control),
    Message(Message, Vec<u8>),
    Link(LinkPacket),
}

/// Declares the golden bytes: kind, number, flags and the fields after the common header.
macro_rules! golden {
    ($($kind:ident $number:literal $flags:literal [$($byte:expr),* $(,)?])*) => {
        /// Bytes without checksum.
        pub(crate) const GOLDEN: [(PacketKind, &[u8]); 18] = [$((PacketKind::$kind, &[
            4, $number, $flags, 0x35, // version, kind, flags, path
            0x04, 0x03, 0x02, 0x01, // source
            0x08, 0x07, 0x06, 0x05, // destination
            0x0c, 0x0b, 0x0a, 0x09, // incarnation
            $($byte),*
        ])),*];
    };
}

golden! {
    Data 1 0x06 [ // flags: silent, notify receiver
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
    ]
    Start 2 0x04 [ // flags: notify receiver
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
    ]
    Ack 3 0x00 [
        0x42, 0x00, 0xef, 0xbe, // op
        0x14, 0x13, 0x12, 0x11, // transfer
        0x02, 0x00, 0x00, 0x00, // segment
        0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
        3, 2, 0x54, 0x53, // tries, senders, delay
    ]
    Nack 4 0x00 [
        0x42, 0x00, 0xef, 0xbe, // op
        0x14, 0x13, 0x12, 0x11, // transfer
        0x02, 0x00, 0x00, 0x00, // segment
        0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
        3, 2, 0x54, 0x53, // tries, escape buffer full, delay
    ]
    SegmentDone 5 0x00 [
        0x14, 0x13, 0x12, 0x11, // transfer
        0x02, 0x00, 0x00, 0x00, // segment
        0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
        0x00, 0x00, 0x00, 0x00, // reserved
    ]
    Arrived 6 0x00 [
        0x14, 0x13, 0x12, 0x11, // transfer
        0x00, 0x00, 0x00, 0x00, // reserved
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // address
        0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // length: 4 GiB
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
    ]
    Hello 7 0x00 [
        12, 4, // packet size, wire version
        0x00, 0x01, // mask bits: 256
        0x05, 0x00, 0x00, 0x80, // capabilities: event push, packet events, an unknown one
        0x21, 0x00, 0x00, 0x00, // schemes 0 and 5
        0x80, 0x84, 0x1e, 0x00, // registry timeout: 2 s
    ]
    HelloReply 8 0x00 [
        12, 4,
        0x00, 0x01,
        0x05, 0x00, 0x00, 0x80,
        0x21, 0x00, 0x00, 0x00,
        0x80, 0x84, 0x1e, 0x00,
    ]
    MessageRequest 9 0x00 [
        0x45, 0x23, 0x21, 0x00, // context 2, message 0x12345
        0x48, 0x00, 0x00, 0x00, // length: two packets of 64 bytes
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // base
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
        0x28, 0x17, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // transfer base
        0x08, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // transfer length
        0x14, 0x13, 0x12, 0x11, // transfer
        0x01, 0x00, 0x30, 0x00, // read
        0x02, 0x00, 0x00, 0x00, // two other messages
        1, 6, 0, 0, // receiver window, packet size, reserved
    ]
    MessageData 10 0x00 [
        0x45, 0x23, 0x21, 0x00, // context 2, message 0x12345
        0x07, 0x00, 0x00, 0x00, // the receiver's context
        0x64, 0x63, 0x62, 0x61, // sequence
        0x01, 0x00, 0x08, 0x00, // index, payload length
        0, 1, 4, 6, // reserved, tail, adaptive window, packet size
        b'p', b'a', b'y', b'l', b'o', b'a', b'd', b'!',
    ]
    MessageStart 11 0x00 [
        0x45, 0x23, 0x21, 0x00, // context 2, message 0x12345
        0xff, 0xff, 0xff, 0xff, // no context
        0x64, 0x63, 0x62, 0x61, // sequence
        0x01, 0x00, 0x08, 0x00, // index, payload length
        0, 1, 5, 6, // reserved, tail, selective, packet size
        0x48, 0x00, 0x00, 0x00, // length
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // base
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // key
        0x28, 0x17, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // transfer base
        0x08, 0x20, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // transfer length
        0x14, 0x13, 0x12, 0x11, // transfer
        0x01, 0x00, 0x30, 0x00, // read
        0x02, 0x00, 0x00, 0x00, // two other messages
        b'p', b'a', b'y', b'l', b'o', b'a', b'd', b'!',
    ]
    MessageAnswer 12 0x00 [
        0x45, 0x23, 0x21, 0x00, // context 2, message 0x12345
        0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
        0x07, 0x00, 0x00, 0x00, // the receiver's context
        0x05, 0x00, 0x00, 0x00, // first
        0x09, 0x00, 0x00, 0x00, // last
        4, 0x23, 0, 0, // resend, senders, reserved
    ]
    MessageMap 13 0x00 [
        0x45, 0x23, 0x21, 0x00, // context 2, message 0x12345
        0x4c, 0x4b, 0x4a, 0x49, // peer incarnation
        0x07, 0x00, 0x00, 0x00, // the receiver's context
        0x05, 0x00, 0x00, 0x00, // base
        0x64, 0x63, 0x62, 0x61, // sequence that is answered
        8, 0xa3, // map, duplicate and senders
        0x03, 0x02, // ahead
        0x06, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // here: base + ahead + 1 and 2,
        0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // and base + ahead + 64
        0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, // wanted: base
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, // and base + 127
    ]
    ReadRequest 14 0x00 [
        0x01, 0x00, 0x30, 0x00, // slot 3, read 1
        0x00, 0x00, 0x00, 0x00, // reserved
        0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // from
        0x38, 0x37, 0x36, 0x35, 0x34, 0x33, 0x32, 0x31, // its key
        0x28, 0x17, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, // base
        0x58, 0x57, 0x56, 0x55, 0x54, 0x53, 0x52, 0x51, // its key
        0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, // length: 4 GiB
    ]
    LinkInquiry 15 0x00 [
        0x64, 0x63, 0x62, 0x61, // number
    ]
    LinkPassive 16 0x00 [
        0x64, 0x63, 0x62, 0x61, // number
        0x74, 0x73, 0x72, 0x71, // receiver
        0x84, 0x83, 0x82, 0x81, // link
        0xe8, 0x03, // rate: 1000
        0xef, 0x02, // queue: 751
    ]
    LinkActive 17 0x00 [
        0x94, 0x93, 0x92, 0x91, // sender
        0x74, 0x73, 0x72, 0x71, // receiver
        0x84, 0x83, 0x82, 0x81, // link
        0xe8, 0x03, // rate: 1000
        0xef, 0x02, // queue: 751
    ]
    LinkSlow 18 0x00 [
        0x74, 0x73, 0x72, 0x71, // receiver
    ]
}

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

/// The value that the golden bytes of this kind encode.
#[expect(clippy::panic, reason = "a kind without a sample fails the test")]
pub(crate) fn sample(kind: PacketKind) -> Sample {
    let common = Common {
        source: NodeId::new(0x0102_0304),
        destination: NodeId::new(0x0506_0708),
        incarnation: Incarnation::new(0x090a_0b0c),
        flags: Flags::NONE,
        path: 0x35,
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
        wire_version: 4,
        mask_bits: 256,
        capabilities: Capabilities::from_bits(0x8000_0005),
        schemes: 0x21,
        registry_timeout_us: 2_000_000,
    };
    let message = MessageId::from_parts(2, 0x12345);
    let announcement = Announcement {
        length: 72,
        base: address,
        key,
        transfer_base: CardAddr::new(0x2122_2324_2526_1728),
        transfer_length: 0x2008,
        transfer,
        read: 0x30_0001,
        left: 2,
    };
    let packet = MessageHeader {
        common,
        message,
        context: Some(7),
        sequence: 0x6162_6364,
        index: 1,
        tail: true,
        scheme: Scheme::AdaptiveWindow,
        packet_size_log2: 6,
        announcement: None,
    };
    let start_of_message = MessageHeader {
        context: None,
        scheme: Scheme::Selective,
        announcement: Some(announcement),
        ..packet
    };
    let answer = MessageAnswer {
        common,
        message,
        peer_incarnation,
        context: Some(7),
        senders: 0x23,
        body: AnswerBody::Resend { first: 5, last: 9 },
    };
    let map = AnswerBody::Map {
        base: 5,
        ahead: 0x0203,
        echo: 0x6162_6364,
        again: true,
        here: [6, 1],
        wanted: [1, 1 << 63],
    };
    let receiver = NodeId::new(0x7172_7374);
    let state = LinkLoad { link: 0x8182_8384, rate: 1000, queue: 751 };
    let link = |word| Sample::Link(LinkPacket { common, word });
    match kind {
        PacketKind::LinkInquiry => link(LinkFeedback::Inquiry { number: 0x6162_6364 }),
        PacketKind::LinkPassive => link(LinkFeedback::Passive { number: 0x6162_6364, receiver, state }),
        PacketKind::LinkActive => {
            link(LinkFeedback::Active { sender: NodeId::new(0x9192_9394), receiver, state })
        }
        PacketKind::LinkSlow => link(LinkFeedback::Slow { receiver }),
        PacketKind::MessageRequest => {
            let scheme = Scheme::ReceiverWindow;
            let request = MessageRequest { common, message, scheme, packet_size_log2: 6, announcement };
            Sample::Message(Message::Request(request), Vec::new())
        }
        PacketKind::MessageData => Sample::Message(Message::Data(packet), b"payload!".to_vec()),
        PacketKind::MessageStart => Sample::Message(Message::Data(start_of_message), b"payload!".to_vec()),
        PacketKind::MessageAnswer => Sample::Message(Message::Answer(answer), Vec::new()),
        PacketKind::MessageMap => {
            Sample::Message(Message::Answer(MessageAnswer { body: map, ..answer }), Vec::new())
        }
        PacketKind::ReadRequest => {
            let read = ReadRequest {
                common,
                read: MessageId::from_parts(3, 1),
                source: address,
                source_key: key,
                base: CardAddr::new(0x2122_2324_2526_1728),
                key: 0x5152_5354_5556_5758,
                length: 1 << 32,
            };
            Sample::Message(Message::Read(read), Vec::new())
        }
        PacketKind::Data => Sample::Data(data, b"payload!".to_vec()),
        PacketKind::Start => Sample::Data(start, b"payload!".to_vec()),
        PacketKind::Ack => Sample::Control(Control::Ack(Ack {
            common,
            op,
            transfer,
            segment: 2,
            peer_incarnation,
            tries: 3,
            senders: 2,
            delay: 0x5354,
        })),
        PacketKind::Nack => Sample::Control(Control::Nack(Nack {
            common,
            op,
            transfer,
            segment: 2,
            peer_incarnation,
            tries: 3,
            reason: NackReason::EscapeFull,
            delay: 0x5354,
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
