//! Packets of messages: their headers as bytes, and packets of a message by their index.

use fpga_firmware::generated::Scheme;
use fpga_firmware::generated::layout::{
    message_data as data_at, message_request as request_at, message_start as start_at,
};
use fpga_firmware::ids::{Incarnation, MessageId, NodeId, TransferId};
use fpga_firmware::wire::{
    Announcement, Common, Flags, Message, MessageHeader, MessageRequest, WIRE_VERSION,
};
use fpga_registers::CardAddr;

use super::lockstep::RECEIVER;

pub(crate) const KEY: u64 = 0xFEED_F00D_0000_0001;

/// First 88 bytes of a packet, without the checks of the encoder: the receiver does not rely on them.
pub(crate) fn header(message: &Message, payload_length: usize) -> [u8; 88] {
    let mut bytes = [0; 88];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    let common = message.common();
    put(0, &[WIRE_VERSION, message.kind().value(), u8::try_from(common.flags.bits()).unwrap(), common.path]);
    put(data_at::SOURCE, &common.source.get().to_le_bytes());
    put(data_at::DESTINATION, &common.destination.get().to_le_bytes());
    put(data_at::INCARNATION, &common.incarnation.get().to_le_bytes());
    match message {
        Message::Request(MessageRequest { message, scheme, packet_size_log2, announcement, .. }) => {
            put(request_at::MESSAGE, &message.get().to_le_bytes());
            put(request_at::SCHEME, &[u8::try_from(scheme.value()).unwrap()]);
            put(request_at::PACKET_SIZE_LOG2, &[*packet_size_log2]);
            put(request_at::LENGTH, &announced(announcement));
        }
        Message::Data(header) => {
            put(data_at::MESSAGE, &header.message.get().to_le_bytes());
            put(data_at::CONTEXT, &header.context.unwrap_or(u32::MAX).to_le_bytes());
            put(data_at::SEQUENCE, &header.sequence.to_le_bytes());
            put(data_at::INDEX, &header.index.to_le_bytes());
            put(data_at::PAYLOAD_LENGTH, &u16::try_from(payload_length).unwrap().to_le_bytes());
            put(data_at::TAIL, &[u8::from(header.tail)]);
            put(data_at::SCHEME, &[u8::try_from(header.scheme.value()).unwrap()]);
            put(data_at::PACKET_SIZE_LOG2, &[header.packet_size_log2]);
            if let Some(announcement) = &header.announcement {
                put(start_at::LENGTH, &announced(announcement));
            }
        }
        _ => {}
    }
    bytes
}

/// Fields of an announcement from LENGTH to LEFT, which have the same order in both packets.
fn announced(fields: &Announcement) -> Vec<u8> {
    [
        &fields.length.to_le_bytes()[..],
        &fields.base.get().to_le_bytes(),
        &fields.key.to_le_bytes(),
        &fields.transfer_base.get().to_le_bytes(),
        &fields.transfer_length.to_le_bytes(),
        &fields.transfer.get().to_le_bytes(),
        &fields.read.to_le_bytes(),
        &fields.left.to_le_bytes(),
    ]
    .concat()
}

/// Message of a sender.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) node: u32,
    pub(crate) incarnation: u32,
    pub(crate) id: MessageId,
    pub(crate) log2: u8,
    pub(crate) flags: Flags,
    pub(crate) announcement: Announcement,
}

impl Shape {
    /// A message of `packets` full packets, which is its whole transfer.
    pub(crate) fn new(node: u32, id: MessageId, log2: u8, packets: u32, base: u64) -> Self {
        let length = packets << log2;
        let announcement = Announcement {
            length,
            base: CardAddr::new(base),
            key: KEY,
            transfer_base: CardAddr::new(base),
            transfer_length: length.into(),
            transfer: TransferId::new(id.get() ^ 0x55),
            read: 0,
            left: 0,
        };
        Self { node, incarnation: 7, id, log2, flags: Flags::NONE, announcement }
    }

    pub(crate) fn packets(&self) -> u32 {
        self.announcement.packets(self.log2)
    }

    fn common(&self, path: u8) -> Common {
        Common {
            source: NodeId::new(self.node),
            destination: RECEIVER,
            incarnation: Incarnation::new(self.incarnation),
            flags: Flags::NONE,
            path,
        }
    }

    pub(crate) fn request(&self, path: u8) -> MessageRequest {
        MessageRequest {
            common: Common { flags: self.flags, ..self.common(path) },
            message: self.id,
            scheme: Scheme::ReceiverWindow,
            packet_size_log2: self.log2,
            announcement: self.announcement,
        }
    }

    /// Header of a packet, and its number of bytes. `starts`: it can begin the message.
    pub(crate) fn packet(&self, index: u32, starts: bool, path: u8) -> (MessageHeader, usize) {
        let size = 1 << self.log2;
        let length = (self.announcement.length - index * size).min(size);
        let flags = if starts { self.flags } else { Flags::NONE };
        let header = MessageHeader {
            common: Common { flags, ..self.common(path) },
            message: self.id,
            context: None,
            sequence: 1,
            index: u16::try_from(index).unwrap(),
            tail: index + 1 == self.packets(),
            scheme: Scheme::ReceiverWindow,
            packet_size_log2: self.log2,
            announcement: starts.then_some(self.announcement),
        };
        (header, usize::try_from(length).unwrap())
    }
}
