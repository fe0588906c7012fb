//! Random packets of every kind, and random damage.

use fpga_firmware::crc::crc32c;
use fpga_firmware::generated::{Capabilities, LINK_WHOLE, Scheme, WIRE_VERSION};
use fpga_firmware::wire::{
    Ack, Announcement, AnswerBody, Arrived, Common, Control, DataHeader, Flags, Hello, LinkFeedback,
    LinkLoad, LinkPacket, MAX_PACKET_LENGTH, Message, MessageAnswer, MessageHeader, MessageRequest, Nack,
    NackReason, PacketKind, ReadRequest, SegmentDone, StartFields,
};
use fpga_firmware::{Incarnation, MessageId, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

use crate::random::Random;

impl Random {
    fn flags(&mut self, kind: PacketKind) -> Flags {
        let mut flags = if self.one_in(4) { Flags::MARKED } else { Flags::NONE };
        let optional: &[Flags] = match kind {
            PacketKind::Data | PacketKind::Start => {
                &[Flags::NONE, Flags::SILENT, Flags::NOTIFY_RECEIVER, Flags::NO_NOTICE]
            }
            PacketKind::MessageRequest | PacketKind::MessageStart => &[Flags::NONE, Flags::NO_NOTICE],
            PacketKind::Ack | PacketKind::Nack | PacketKind::MessageAnswer | PacketKind::MessageMap => {
                &[Flags::NONE, Flags::ECHO]
            }
            _ => &[Flags::NONE],
        };
        flags = flags.with(self.pick(optional));
        flags
    }

    fn common(&mut self, kind: PacketKind) -> Common {
        Common {
            source: NodeId::new(self.word() & !1),
            destination: NodeId::new(self.word() & !1),
            incarnation: Incarnation::new(self.word()),
            flags: self.flags(kind),
            path: self.word().to_le_bytes()[0],
        }
    }

    pub(crate) fn data(&mut self, packet_log2: u8, is_start: bool) -> (DataHeader, Vec<u8>) {
        let kind = if is_start { PacketKind::Start } else { PacketKind::Data };
        let size = 1_u64 << packet_log2;
        let packets = self.within(1, 256);
        let segment_length =
            if self.one_in(3) { self.length(size) } else { (packets - 1) * size + self.length(size) };
        let length = if is_start { segment_length.min(size) } else { self.length(size) };
        let (base, transfer_base, transfer_length, segment, segment_count) =
            self.segment(if is_start { segment_length } else { length });
        let transfer = self.word();
        let behind = if self.one_in(3) { 0 } else { self.word() >> 1 };
        let mut common = self.common(kind);
        let mut payload = self.bytes(usize::try_from(length).unwrap());
        if self.one_in(8) {
            common.flags = common.flags.with(Flags::TRIMMED);
            payload.clear();
        }
        let header = DataHeader {
            common,
            transfer: TransferId::new(transfer),
            oldest_live: TransferId::new(transfer.wrapping_sub(behind)),
            segment,
            segment_count,
            address: CardAddr::new(base),
            key: self.long(),
            op: OpNumber::new(self.word()),
            tries: self.word().to_le_bytes()[0],
            packet_size_log2: packet_log2,
            start: is_start.then(|| StartFields {
                base: CardAddr::new(base),
                segment_length: u32::try_from(segment_length).unwrap(),
                packets: u16::try_from(segment_length.div_ceil(size)).unwrap(),
                transfer_base: CardAddr::new(transfer_base),
                transfer_length,
            }),
        };
        (header, payload)
    }

    fn scheme(&mut self) -> Scheme {
        self.pick(&[Scheme::ReceiverWindow, Scheme::AdaptiveWindow, Scheme::Selective])
    }

    fn announcement(&mut self, packet_log2: u8) -> (Announcement, u16) {
        let size = 1_u64 << packet_log2;
        let packets = if self.one_in(3) { 4096 } else { self.within(1, 4096) };
        let length = (packets - 1) * size + self.length(size);
        let (base, transfer_base, transfer_length, ..) = self.segment(length);
        let most = (transfer_length - length).min(u64::from(u32::MAX));
        let left = if self.one_in(2) { most } else { self.within(0, most) };
        let announcement = Announcement {
            length: u32::try_from(length).unwrap(),
            base: CardAddr::new(base),
            key: self.long(),
            transfer_base: CardAddr::new(transfer_base),
            transfer_length,
            transfer: TransferId::new(self.word()),
            read: self.word(),
            left: u32::try_from(left).unwrap(),
        };
        let last = packets - 1;
        let index = if self.one_in(2) { last } else { self.within(0, last) };
        (announcement, u16::try_from(index).unwrap())
    }

    fn message(&mut self, packet_log2: u8, kind: PacketKind) -> (Message, Vec<u8>) {
        let size = 1_u64 << packet_log2;
        let (common, message, scheme) = (self.common(kind), MessageId::new(self.word()), self.scheme());
        let (announcement, index) = self.announcement(packet_log2);
        if kind == PacketKind::MessageRequest {
            let request =
                MessageRequest { common, message, scheme, packet_size_log2: packet_log2, announcement };
            return (Message::Request(request), Vec::new());
        }
        let is_start = kind == PacketKind::MessageStart;
        let last = u64::from(announcement.packets(packet_log2)) - 1;
        let tail = if is_start { u64::from(index) == last } else { self.one_in(2) };
        let length = match (tail, is_start) {
            (false, _) => size,
            (true, true) => u64::from(announcement.length) - last * size,
            (true, false) => self.length(size),
        };
        let header = MessageHeader {
            common,
            message,
            context: (!self.one_in(3)).then(|| self.word() >> 1),
            sequence: self.word(),
            index,
            tail,
            scheme,
            packet_size_log2: packet_log2,
            announcement: is_start.then_some(announcement),
        };
        (Message::Data(header), self.bytes(usize::try_from(length).unwrap()))
    }

    fn reason(&mut self) -> NackReason {
        NackReason::try_from(u8::try_from(self.within(1, 9)).unwrap()).unwrap()
    }

    fn answer(&mut self, kind: PacketKind) -> MessageAnswer {
        let half = self.word().to_le_bytes();
        let half = u16::from_le_bytes([half[0], half[1]]);
        let body = match (kind, self.within(0, 7)) {
            (PacketKind::MessageMap, _) => AnswerBody::Map {
                base: self.word(),
                ahead: half,
                echo: self.word(),
                again: self.one_in(2),
                here: [self.long(), self.long()],
                wanted: [self.long(), self.long()],
            },
            (_, 0) => AnswerBody::Accepted,
            (_, 1) => match self.reason() {
                NackReason::Superseded => AnswerBody::Superseded(Incarnation::new(self.word())),
                reason => AnswerBody::Refused(reason, half),
            },
            (_, 2) => AnswerBody::Done,
            (_, 3) => AnswerBody::Resend { first: self.word(), last: self.word() },
            (_, 4) => AnswerBody::Limit {
                first: self.word(),
                above: half,
                index: (half & 1 == 0).then(|| self.word() >> 1),
            },
            (_, 5) => AnswerBody::ReadAccepted,
            (_, 6) => AnswerBody::ReadRefused(self.reason()),
            (_, _) => AnswerBody::Superseded(Incarnation::new(self.word())),
        };
        MessageAnswer {
            common: self.common(kind),
            message: MessageId::new(self.word()),
            peer_incarnation: Incarnation::new(self.word()),
            context: (!self.one_in(3)).then(|| self.word() >> 1),
            senders: if body.has_no_senders() { 0 } else { u8::try_from(self.within(0, 127)).unwrap() },
            body,
        }
    }

    fn link(&mut self, kind: PacketKind) -> LinkPacket {
        let state = LinkLoad {
            link: self.word(),
            rate: u16::try_from(self.within(0, LINK_WHOLE.into())).unwrap(),
            queue: u16::try_from(self.within(0, LINK_WHOLE.into())).unwrap(),
        };
        let (number, sender) = (self.word(), NodeId::new(self.word() & !1));
        let receiver = NodeId::new(self.word() & !1);
        let word = match kind {
            PacketKind::LinkInquiry => LinkFeedback::Inquiry { number },
            PacketKind::LinkPassive => LinkFeedback::Passive { number, receiver, state },
            PacketKind::LinkActive => LinkFeedback::Active { sender, receiver, state },
            _ => LinkFeedback::Slow { receiver },
        };
        LinkPacket { common: self.common(kind), word }
    }

    fn control(&mut self, kind: PacketKind) -> Control {
        let common = self.common(kind);
        let (transfer, segment) = (TransferId::new(self.word()), self.word());
        let (op, peer_incarnation) = (OpNumber::new(self.word()), Incarnation::new(self.word()));
        let [tries, senders, low, high] = self.word().to_le_bytes();
        let delay = u16::from_le_bytes([low, high]);
        match kind {
            PacketKind::Ack => {
                Control::Ack(Ack { common, op, transfer, segment, peer_incarnation, tries, senders, delay })
            }
            PacketKind::Nack => {
                let reason = self.reason();
                Control::Nack(Nack { common, op, transfer, segment, peer_incarnation, tries, reason, delay })
            }
            PacketKind::SegmentDone => {
                Control::SegmentDone(SegmentDone { common, transfer, segment, peer_incarnation })
            }
            PacketKind::Arrived => {
                let (address, _, length, ..) = self.segment(1);
                let length = if self.one_in(2) { u64::MAX - address } else { length.min(u64::MAX - address) };
                let address = CardAddr::new(address);
                Control::Arrived(Arrived {
                    common,
                    transfer,
                    address,
                    length: length.max(1),
                    key: self.long(),
                })
            }
            _ => {
                let hello = Hello {
                    common,
                    packet_size_log2: u8::try_from(self.within(6, 15)).unwrap(),
                    wire_version: WIRE_VERSION.saturating_add(tries % 4),
                    mask_bits: u16::try_from(self.within(1, 256)).unwrap(),
                    capabilities: Capabilities::from_bits(self.word()),
                    schemes: self.word(),
                    registry_timeout_us: self.word(),
                };
                if kind == PacketKind::Hello { Control::Hello(hello) } else { Control::HelloReply(hello) }
            }
        }
    }

    /// A valid packet of any kind, with payloads up to `1 << packet_log2` bytes; rarely longer ones.
    pub(crate) fn packet(&mut self, packet_log2: u8) -> Vec<u8> {
        let kind = PacketKind::try_from(u8::try_from(self.within(1, 18)).unwrap()).unwrap();
        let packet_log2 = match self.within(0, 31) {
            0 => u8::try_from(self.within(6, 13)).unwrap(),
            1..8 => u8::try_from(self.within(6, packet_log2.into())).unwrap(),
            _ => packet_log2,
        };
        let mut buffer = vec![0; MAX_PACKET_LENGTH];
        let length = match kind {
            PacketKind::Data | PacketKind::Start => {
                let (header, payload) = self.data(packet_log2, kind == PacketKind::Start);
                header.encode(&payload, &mut buffer)
            }
            PacketKind::MessageRequest | PacketKind::MessageData | PacketKind::MessageStart => {
                let (message, payload) = self.message(packet_log2, kind);
                message.encode(&payload, &mut buffer)
            }
            PacketKind::MessageAnswer | PacketKind::MessageMap => {
                Message::Answer(self.answer(kind)).encode(&[], &mut buffer)
            }
            PacketKind::ReadRequest => {
                let length = self.within(1, 1 << 40);
                let (source, ..) = self.segment(length);
                let (base, ..) = self.segment(length);
                let request = ReadRequest {
                    common: self.common(kind),
                    read: MessageId::new(self.word() | 1),
                    source: CardAddr::new(source),
                    source_key: self.long(),
                    base: CardAddr::new(base),
                    key: self.long(),
                    length,
                };
                Message::Read(request).encode(&[], &mut buffer)
            }
            PacketKind::LinkInquiry
            | PacketKind::LinkPassive
            | PacketKind::LinkActive
            | PacketKind::LinkSlow => self.link(kind).encode(&mut buffer),
            _ => self.control(kind).encode(&mut buffer),
        };
        buffer.truncate(length.unwrap());
        buffer
    }

    /// A frame: a packet, often with changed fields, a wrong length, or damage.
    pub(crate) fn frame(&mut self, packet_log2: u8) -> Vec<u8> {
        let mut packet = self.packet(packet_log2);
        match self.within(0, 15) {
            // As sent.
            0..4 => {}
            // Damage.
            4 => {
                let bit = self.within(0, 8 * packet.len() as u64 - 1);
                packet[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
            }
            5 => packet.truncate(usize::try_from(self.within(1, packet.len() as u64)).unwrap()),
            6 => packet.extend(vec![0; usize::try_from(self.within(1, 70)).unwrap()]),
            // Another length, with a right checksum.
            7 => {
                packet.truncate(usize::try_from(self.within(0, packet.len() as u64 - 4)).unwrap());
                let crc = crc32c(&packet);
                packet.extend(crc.to_le_bytes());
            }
            8 => {
                packet.truncate(packet.len() - 4);
                let count = self.pick(&[1, 4, 8, 60, 5000]);
                packet.extend(self.bytes(count));
                let crc = crc32c(&packet);
                packet.extend(crc.to_le_bytes());
            }
            // Fields.
            count => {
                let body = packet.len() - 4;
                for _ in 0..if count < 13 { 1 } else { 2 } {
                    self.change(&mut packet[..body.min(88)]);
                }
                if self.one_in(12) {
                    packet[2] |= 0x20;
                }
                if packet[1] <= 2 && body > 32 {
                    match self.within(0, 15) {
                        // OLDEST_LIVE is half of all numbers away: each of the two counts as the older one.
                        0 => {
                            packet.copy_within(16..20, 20);
                            packet[23] ^= 0x80;
                        }
                        // SEGMENT_COUNT equals SEGMENT.
                        1 => packet.copy_within(24..28, 28),
                        _ => {}
                    }
                }
                let crc = crc32c(&packet[..body]);
                packet[body..].copy_from_slice(&crc.to_le_bytes());
            }
        }
        packet
    }
}
