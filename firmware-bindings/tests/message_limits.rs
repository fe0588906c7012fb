//! Packets of the message schemes at their limits: what is just allowed and what is just not.

use fpga_firmware::generated::{Flags, Scheme};
use fpga_firmware::wire::{
    Announcement, Common, EncodeError, MESSAGE_PACKETS_MAX, Message, MessageHeader, Packet, ReadRequest,
    WireError,
};
use fpga_firmware::{Incarnation, MessageId, NodeId, TransferId};
use fpga_registers::CardAddr;

const COMMON: Common = Common {
    source: NodeId::new(1),
    destination: NodeId::new(2),
    incarnation: Incarnation::new(0),
    flags: Flags::NONE,
    path: 0,
};

/// The first packet of a message that is a transfer by itself, in packets of 64 bytes.
fn start_of(length: u32) -> (MessageHeader, Announcement) {
    let announcement = Announcement {
        length,
        base: CardAddr::new(0x1000),
        key: 0,
        transfer_base: CardAddr::new(0x1000),
        transfer_length: length.into(),
        transfer: TransferId::new(9),
        read: 0,
        left: 0,
    };
    let header = MessageHeader {
        common: COMMON,
        message: MessageId::from_parts(3, 7),
        context: None,
        sequence: 1,
        index: 0,
        tail: length <= 64,
        scheme: Scheme::Selective,
        packet_size_log2: 6,
        announcement: Some(announcement),
    };
    (header, announcement)
}

fn encoded(header: MessageHeader, payload: usize) -> Result<usize, EncodeError> {
    Message::Data(header).encode(&vec![0x5a; payload], &mut [0; 300])
}

#[test]
fn message_start_at_limits_is_accepted() {
    for length in [1, 64, 65, 64 * MESSAGE_PACKETS_MAX] {
        let (header, _) = start_of(length);
        assert!(encoded(header, length.min(64) as usize).is_ok(), "{length}");
    }
    let (header, _) = start_of(64 * MESSAGE_PACKETS_MAX + 1);
    assert!(matches!(encoded(header, 64), Err(EncodeError::Invalid(WireError::Message { .. }))));
}

#[test]
fn message_start_is_inside_its_transfer() {
    let (header, whole) = start_of(64);
    let part = Announcement { transfer_length: 100, ..whole };
    let at = |base, left| Announcement { base: CardAddr::new(base), left, ..part };
    for (announcement, good) in [
        // The other 36 bytes are 36 messages at most.
        (at(0x1000, 36), true),
        (at(0x1000, 37), false),
        (at(0x1000 + 36, 0), true),
        (at(0x1000 + 37, 0), false),
        (at(0x1000 - 1, 0), false),
    ] {
        let found = encoded(MessageHeader { announcement: Some(announcement), ..header }, 64);
        assert_eq!(found.is_ok(), good, "{announcement:?}: {found:?}");
    }
}

#[test]
fn message_packet_in_short_buffer_tells_length() {
    let (header, _) = start_of(64);
    let needed = encoded(header, 64).unwrap();
    let short = Message::Data(header).encode(&[0; 64], &mut vec![0; needed - 1]);
    assert_eq!(short, Err(EncodeError::BufferTooSmall { needed, available: needed - 1 }));
}

#[test]
fn message_packets_keep_their_tail_mark() {
    let (start, _) = start_of(64);
    for tail in [false, true] {
        let header = MessageHeader { announcement: None, tail, ..start };
        let mut bytes = [0; 300];
        let length = Message::Data(header).encode(&[1; 64], &mut bytes).unwrap();
        let Ok(Packet::Message(message)) = Packet::parse(&bytes[..length]) else { panic!("tail {tail}") };
        assert_eq!(message.read().unwrap(), (Message::Data(header), &[1; 64][..]));
    }
}

#[test]
fn read_request_without_number_or_bytes_is_refused() {
    let read = ReadRequest {
        common: COMMON,
        read: MessageId::from_parts(3, 1),
        source: CardAddr::new(0x1000),
        source_key: 5,
        base: CardAddr::new(0x2000),
        key: 6,
        length: 1,
    };
    let found = |read| Message::Read(read).encode(&[], &mut [0; 300]);
    assert!(found(read).is_ok());
    let empty = Err(EncodeError::Invalid(WireError::EmptyRead));
    assert_eq!(found(ReadRequest { length: 0, ..read }), empty);
    assert_eq!(found(ReadRequest { read: MessageId::from_parts(0, 0), ..read }), empty);
    for (source, base) in [(u64::MAX, 0x2000), (0x1000, u64::MAX)] {
        let read =
            ReadRequest { source: CardAddr::new(source), base: CardAddr::new(base), length: 2, ..read };
        assert!(matches!(found(read), Err(EncodeError::Invalid(WireError::Geometry(_)))));
    }
    assert!(!WireError::EmptyRead.is_damage());
    assert!(WireError::TooShort { length: 3, needed: 20 }.is_damage());
}
