//! Datagrams of a network link between cards: a wrapper of 16 bytes, and one packet of the wire format.
//!
//! Layouts: "Link" and "Wire formats" in the manual of the network interface (`firmware-bindings/map/ni.md`) and
//! `driver/sim/src/link.rs`. All integers are little-endian. Only the packets that a subscriber sends or receives are known here.

use crate::crc::crc32c;
use crate::fields::{Reader, Writer};

/// Version of the packet format.
const WIRE_VERSION: u8 = 3;
const WRAPPER_MAGIC: [u8; 4] = *b"FPLK";
const WRAPPER_VERSION: u8 = 1;
const WRAPPER_LENGTH: usize = 16;
/// The node number that no node has.
pub(crate) const NO_NODE: u32 = u32::MAX;

const DATA: u8 = 1;
const START: u8 = 2;
const ACK: u8 = 3;
const NACK: u8 = 4;
const SEGMENT_DONE: u8 = 5;
const HELLO: u8 = 7;
const HELLO_REPLY: u8 = 8;

/// Packet flag: the receiver posts a notification when the whole transfer has arrived.
const NOTIFY_RECEIVER: u16 = 1 << 2;
/// Packet flag: the receiver posts no notification.
const NO_NOTICE: u16 = 1 << 3;

/// Maximum number of packets of a segment.
pub(crate) const MAX_SEGMENT_PACKETS: u16 = 256;
/// Bit of the registry scheme in the set of schemes of a HELLO.
const REGISTRY_SCHEME: u32 = 1;
/// Time in microseconds for which a silent sender's entries are kept: no sender gives up later.
const REGISTRY_TIMEOUT_US: u32 = u32::MAX;

/// Reason of a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    Busy = 1,
    EscapeFull = 2,
    Violation = 3,
    BadPacket = 4,
}

/// Reason of a refusal: the receiver knows a later incarnation of the sender, which takes the place of the op number.
pub(crate) const SUPERSEDED: u8 = 8;

/// Whether the refusal passes, so that the packet is retransmitted: registry or event ring full.
pub(crate) const fn is_passing(reason: u8) -> bool {
    matches!(reason, 1 | 2 | 7)
}

/// Source, destination and incarnation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) incarnation: u32,
}

/// Additional fields of a START packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) base: u64,
    pub(crate) segment_length: u32,
    pub(crate) packets: u16,
    pub(crate) transfer_base: u64,
    pub(crate) transfer_length: u64,
}

/// DATA or START packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    pub(crate) transfer: u32,
    pub(crate) oldest_live: u32,
    pub(crate) segment: u32,
    pub(crate) segment_count: u32,
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) op: u32,
    pub(crate) tries: u8,
    pub(crate) packet_size_log2: u8,
    /// The receiver posts a notification.
    pub(crate) notify: bool,
    pub(crate) start: Option<Start>,
    pub(crate) payload: &'a [u8],
}

/// Acknowledgement, positive or negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) op: u32,
    pub(crate) peer_incarnation: u32,
    /// 0: positive.
    pub(crate) reason: u8,
}

/// Packet that concerns a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet<'a> {
    Data(Data<'a>),
    Answer(Answer),
    Hello,
    HelloReply {
        packet_size_log2: u8,
        registry: bool,
    },
    /// Any other valid packet.
    Other,
}

/// Parses a datagram. `None`: damaged, or not a datagram of this protocol.
pub(crate) fn parse(datagram: &[u8]) -> Option<(Common, Packet<'_>)> {
    let mut wrapper = Reader(datagram);
    if wrapper.take()? != WRAPPER_MAGIC || wrapper.u8()? != WRAPPER_VERSION || wrapper.u8()? != 0 {
        return None;
    }
    let (length, source, destination) = (wrapper.u16()?, wrapper.u32()?, wrapper.u32()?);
    let (body, crc) = wrapper.0.split_last_chunk::<4>()?;
    if usize::from(length) != wrapper.0.len() || crc32c(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut reader = Reader(body);
    let (version, kind, flags) = (reader.u8()?, reader.u8()?, reader.u16()?);
    let common = Common { source: reader.u32()?, destination: reader.u32()?, incarnation: reader.u32()? };
    let is_named = common.source != NO_NODE && common.destination != NO_NODE;
    if version != WIRE_VERSION || (common.source, common.destination) != (source, destination) || !is_named {
        return None;
    }
    let packet = match kind {
        DATA | START => Packet::Data(data(&mut reader, kind == START, flags)?),
        ACK | NACK => {
            let (op, _transfer, _segment) = (reader.u32()?, reader.u32()?, reader.u32()?);
            let (peer_incarnation, _tries, reason) = (reader.u32()?, reader.u8()?, reader.u8()?);
            if (kind == ACK) != (reason == 0) {
                return None;
            }
            Packet::Answer(Answer { op, peer_incarnation, reason })
        }
        HELLO => Packet::Hello,
        HELLO_REPLY => {
            let (packet_size_log2, _version, _mask) = (reader.u8()?, reader.u8()?, reader.u16()?);
            let (_capabilities, schemes) = (reader.u32()?, reader.u32()?);
            Packet::HelloReply { packet_size_log2, registry: schemes & REGISTRY_SCHEME != 0 }
        }
        _ => Packet::Other,
    };
    Some((common, packet))
}

fn data<'a>(reader: &mut Reader<'a>, is_start: bool, flags: u16) -> Option<Data<'a>> {
    let (transfer, oldest_live) = (reader.u32()?, reader.u32()?);
    let (segment, segment_count) = (reader.u32()?, reader.u32()?);
    let (address, key, op) = (reader.u64()?, reader.u64()?, reader.u32()?);
    let (length, tries, packet_size_log2) = (reader.u16()?, reader.u8()?, reader.u8()?);
    let start = if is_start {
        let (base, segment_length, packets) = (reader.u64()?, reader.u32()?, reader.u16()?);
        let _reserved = reader.u16()?;
        let (transfer_base, transfer_length) = (reader.u64()?, reader.u64()?);
        Some(Start { base, segment_length, packets, transfer_base, transfer_length })
    } else {
        None
    };
    let payload = reader.0;
    let is_whole = payload.len() == usize::from(length) && length != 0;
    let notify = flags & NO_NOTICE == 0;
    let data = Data {
        transfer,
        oldest_live,
        segment,
        segment_count,
        address,
        key,
        op,
        tries,
        packet_size_log2,
        notify,
        start,
        payload,
    };
    is_whole.then_some(data)
}

/// Replaces `out` by a datagram with one packet, whose fields `fill` appends.
fn encode(out: &mut Writer, common: Common, kind: u8, flags: u16, fill: impl FnOnce(&mut Writer)) {
    out.0.clear();
    out.put(&WRAPPER_MAGIC).u8(WRAPPER_VERSION).u8(0).u16(0).u32(common.source).u32(common.destination);
    out.u8(WIRE_VERSION).u8(kind).u16(flags);
    out.u32(common.source).u32(common.destination).u32(common.incarnation);
    fill(out);
    let crc = crc32c(out.0.get(WRAPPER_LENGTH..).unwrap_or_default());
    out.u32(crc);
    // At most a START packet with a block of 64 bytes.
    let length = u16::try_from(out.0.len() - WRAPPER_LENGTH).unwrap_or(u16::MAX);
    if let Some(place) = out.0.get_mut(6..8) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

/// Encodes the answer to a DATA or START packet of `peer_incarnation`; without a reason an acknowledgement.
pub(crate) fn answer(
    out: &mut Writer,
    common: Common,
    to: &Data<'_>,
    peer_incarnation: u32,
    reason: Option<Refusal>,
) {
    let kind = if reason.is_some() { NACK } else { ACK };
    encode(out, common, kind, 0, |out| {
        out.u32(to.op).u32(to.transfer).u32(to.segment).u32(peer_incarnation);
        out.u8(to.tries).u8(reason.map_or(0, |reason| reason as u8)).u16(0);
    });
}

/// Encodes the report that every packet of the segment of `to` is in memory.
pub(crate) fn segment_done(out: &mut Writer, common: Common, to: &Data<'_>, peer_incarnation: u32) {
    encode(out, common, SEGMENT_DONE, 0, |out| {
        out.u32(to.transfer).u32(to.segment).u32(peer_incarnation).u32(0);
    });
}

/// Encodes a HELLO, or the reply to one.
pub(crate) fn hello(out: &mut Writer, common: Common, packet_size_log2: u8, is_reply: bool) {
    encode(out, common, if is_reply { HELLO_REPLY } else { HELLO }, 0, |out| {
        out.u8(packet_size_log2).u8(WIRE_VERSION).u16(MAX_SEGMENT_PACKETS);
        out.u32(0).u32(REGISTRY_SCHEME).u32(REGISTRY_TIMEOUT_US);
    });
}

/// Transfer that is one packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinglePacket {
    pub(crate) transfer: u32,
    pub(crate) address: u64,
    pub(crate) key: u64,
    pub(crate) op: u32,
    pub(crate) tries: u8,
    pub(crate) packet_size_log2: u8,
}

/// Encodes a transfer of one packet that notifies the receiver.
pub(crate) fn single(out: &mut Writer, common: Common, packet: &SinglePacket, payload: &[u8]) {
    // Callers send blocks of 64 bytes.
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    encode(out, common, START, NOTIFY_RECEIVER, |out| {
        out.u32(packet.transfer).u32(packet.transfer).u32(0).u32(1).u64(packet.address).u64(packet.key);
        out.u32(packet.op).u16(length).u8(packet.tries).u8(packet.packet_size_log2);
        out.u64(packet.address).u32(length.into()).u16(1).u16(0);
        out.u64(packet.address).u64(length.into()).put(payload);
    });
}

/// Compared with the codec of the cards, which is written independently.
#[cfg(test)]
mod tests {
    use fpga_firmware::wire::{self, Control, DataHeader, Flags, NackReason};
    use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
    use fpga_registers::CardAddr;

    use super::*;

    const OURS: Common = Common { source: 2, destination: 1, incarnation: 5 };

    fn theirs() -> wire::Common {
        let (source, destination) = (NodeId::new(1), NodeId::new(2));
        wire::Common { source, destination, incarnation: Incarnation::new(9), flags: Flags::NONE }
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
        assert_eq!(SUPERSEDED, NackReason::Superseded.value());
        let passing = [NackReason::Busy, NackReason::EscapeFull, NackReason::NotReady];
        assert!(
            (0..=255).all(|reason| is_passing(reason) == passing.map(NackReason::value).contains(&reason))
        );
        let done = control(&|out| segment_done(out, OURS, &data, 9));
        assert!(matches!(done, Control::SegmentDone(done) if (done.transfer.get(), done.segment) == (20, 1)));
        let reply = control(&|out| hello(out, OURS, 9, true));
        let Control::HelloReply(reply) = reply else { panic!("{reply:?}") };
        assert_eq!((reply.schemes, reply.mask_bits, reply.packet_size_log2), (1, 256, 9));
        let packet =
            SinglePacket { transfer: 8, address: 0x40, key: 6, op: 9, tries: 2, packet_size_log2: 9 };
        single(&mut out, OURS, &packet, &[3; 64]);
        let wire::Packet::Data(credit) = wire::Packet::parse(&out.0[16..]).unwrap() else {
            panic!("no START")
        };
        assert_eq!(
            (credit.address().get(), credit.key(), credit.op().get(), credit.tries()),
            (0x40, 6, 9, 2)
        );
        assert!(credit.common().flags.contains(Flags::NOTIFY_RECEIVER) && credit.start().is_some());
        assert_eq!(credit.payload(), [3; 64]);
    }
}
