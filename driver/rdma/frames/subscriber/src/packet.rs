//! Datagrams of a network link between cards: a wrapper of 16 bytes, and one packet of the wire format.
//!
//! The packets are those of `fpga_firmware::wire`; the wrapper is described in `driver/sim/src/link.rs`. Only the packets that a subscriber
//! sends or receives are known here.

use fpga_firmware::generated::{Capabilities, SEGMENT_PACKETS_MAX};
use fpga_firmware::wire::{
    self, Ack, CRC_LENGTH, Control, DataHeader, EncodeError, Flags, Hello, MAX_CONTROL_LENGTH, Nack,
    NackReason, START_HEADER_LENGTH, SegmentDone, StartFields, WIRE_VERSION,
};
use fpga_firmware::{Incarnation, NodeId, OpNumber, TransferId};
use fpga_registers::CardAddr;

use crate::blocks::BLOCK;
use crate::fields::{Reader, Writer};

const WRAPPER_MAGIC: [u8; 4] = *b"FPLK";
const WRAPPER_VERSION: u8 = 1;

/// Bit of the registry scheme in the set of schemes of a HELLO.
const REGISTRY_SCHEME: u32 = 1;
/// Time in microseconds for which a silent sender's entries are kept: no sender gives up later.
const REGISTRY_TIMEOUT_US: u32 = u32::MAX;
/// Maximum length of a packet that is sent: a START packet with a block, which is longer than those without payload.
const MAX_SENT: usize = START_HEADER_LENGTH + BLOCK + CRC_LENGTH;
const _: () = assert!(MAX_SENT >= MAX_CONTROL_LENGTH);

/// Whether the refusal passes, so that the packet is retransmitted: registry or event ring full.
pub(crate) const fn is_passing(reason: NackReason) -> bool {
    matches!(reason, NackReason::Busy | NackReason::EscapeFull | NackReason::NotReady)
}

/// Source, destination and incarnation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Common {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) incarnation: u32,
}

impl Common {
    const fn with(self, flags: Flags, path: u8) -> wire::Common {
        let (source, destination) = (NodeId::new(self.source), NodeId::new(self.destination));
        wire::Common { source, destination, incarnation: Incarnation::new(self.incarnation), flags, path }
    }
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
    /// Path of the answer, and whether it reports a mark.
    pub(crate) path: u8,
    pub(crate) marked: bool,
    pub(crate) start: Option<Start>,
    pub(crate) payload: &'a [u8],
}

/// Acknowledgement, positive or negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) op: u32,
    pub(crate) peer_incarnation: u32,
    /// `None`: positive.
    pub(crate) reason: Option<NackReason>,
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
    if usize::from(length) != wrapper.0.len() {
        return None;
    }
    let (common, packet) = match wire::Packet::parse(wrapper.0).ok()? {
        wire::Packet::Data(found) => (found.common(), Packet::Data(data(&found))),
        wire::Packet::Control(control) => (control.common(), of_control(&control)),
        wire::Packet::Message(message) => (message.common(), Packet::Other),
        wire::Packet::Link(link) => (link.common, Packet::Other),
    };
    let is_wrapped = (common.source.get(), common.destination.get()) == (source, destination);
    is_wrapped.then_some((Common { source, destination, incarnation: common.incarnation.get() }, packet))
}

fn of_control(control: &Control) -> Packet<'static> {
    match control {
        Control::Ack(ack) => {
            let (op, peer_incarnation) = (ack.op.get(), ack.peer_incarnation.get());
            Packet::Answer(Answer { op, peer_incarnation, reason: None })
        }
        Control::Nack(nack) => {
            let (op, peer_incarnation) = (nack.op.get(), nack.peer_incarnation.get());
            Packet::Answer(Answer { op, peer_incarnation, reason: Some(nack.reason) })
        }
        Control::Hello(_) => Packet::Hello,
        Control::HelloReply(hello) => Packet::HelloReply {
            packet_size_log2: hello.packet_size_log2,
            registry: hello.schemes & REGISTRY_SCHEME != 0,
        },
        _ => Packet::Other,
    }
}

fn data<'a>(found: &wire::Data<'a>) -> Data<'a> {
    let DataHeader { common, transfer, oldest_live, segment, segment_count, address, key, op, tries, .. } =
        found.header();
    Data {
        transfer: transfer.get(),
        oldest_live: oldest_live.get(),
        segment,
        segment_count,
        address: address.get(),
        key,
        op: op.get(),
        tries,
        packet_size_log2: found.packet_size_log2(),
        notify: !common.flags.contains(Flags::NO_NOTICE),
        path: common.path,
        marked: common.flags.contains(Flags::MARKED),
        start: found.start().map(|start| Start {
            base: start.base.get(),
            segment_length: start.segment_length,
            packets: start.packets,
            transfer_base: start.transfer_base.get(),
            transfer_length: start.transfer_length,
        }),
        payload: found.payload(),
    }
}

/// Replaces `out` by a datagram with the packet that `encode` writes.
fn wrap(out: &mut Writer, common: Common, encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>) {
    let mut packet = [0; MAX_SENT];
    let length = encode(&mut packet);
    debug_assert!(length.is_ok(), "the packets of this module are valid: {length:?}");
    let packet = packet.get(..length.unwrap_or(0)).unwrap_or_default();
    out.0.clear();
    out.put(&WRAPPER_MAGIC).u8(WRAPPER_VERSION).u8(0).u16(u16::try_from(packet.len()).unwrap_or(0));
    out.u32(common.source).u32(common.destination).put(packet);
}

/// Encodes the answer to a DATA or START packet of `peer_incarnation`; without a reason an acknowledgement.
pub(crate) fn answer(
    out: &mut Writer,
    common: Common,
    to: &Data<'_>,
    peer_incarnation: u32,
    reason: Option<NackReason>,
) {
    let header = common.with(if to.marked { Flags::ECHO } else { Flags::NONE }, to.path);
    let (op, transfer, segment, tries) =
        (OpNumber::new(to.op), TransferId::new(to.transfer), to.segment, to.tries);
    let peer_incarnation = Incarnation::new(peer_incarnation);
    let (senders, delay) = (0, 0);
    let control = match reason {
        None => Control::Ack(Ack {
            common: header,
            op,
            transfer,
            segment,
            peer_incarnation,
            tries,
            senders,
            delay,
        }),
        Some(reason) => Control::Nack(Nack {
            common: header,
            op,
            transfer,
            segment,
            peer_incarnation,
            tries,
            reason,
            delay,
        }),
    };
    wrap(out, common, |bytes| control.encode(bytes));
}

/// Encodes the report that every packet of the segment of `to` is in memory.
pub(crate) fn segment_done(out: &mut Writer, common: Common, to: &Data<'_>, peer_incarnation: u32) {
    let done = SegmentDone {
        common: common.with(Flags::NONE, 0),
        transfer: TransferId::new(to.transfer),
        segment: to.segment,
        peer_incarnation: Incarnation::new(peer_incarnation),
    };
    wrap(out, common, |bytes| Control::SegmentDone(done).encode(bytes));
}

/// Encodes a HELLO, or the reply to one.
pub(crate) fn hello(out: &mut Writer, common: Common, packet_size_log2: u8, is_reply: bool) {
    let hello = Hello {
        common: common.with(Flags::NONE, 0),
        packet_size_log2,
        wire_version: WIRE_VERSION,
        mask_bits: SEGMENT_PACKETS_MAX,
        capabilities: Capabilities::from_bits(0),
        schemes: REGISTRY_SCHEME,
        registry_timeout_us: REGISTRY_TIMEOUT_US,
    };
    let control = if is_reply { Control::HelloReply(hello) } else { Control::Hello(hello) };
    wrap(out, common, |bytes| control.encode(bytes));
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
pub(crate) fn single(out: &mut Writer, common: Common, packet: &SinglePacket, payload: &[u8; BLOCK]) {
    #[expect(clippy::cast_possible_truncation, reason = "64 bytes")]
    let length = BLOCK as u32;
    let (address, transfer) = (CardAddr::new(packet.address), TransferId::new(packet.transfer));
    let header = DataHeader {
        common: common.with(Flags::NOTIFY_RECEIVER, 0),
        transfer,
        oldest_live: transfer,
        segment: 0,
        segment_count: 1,
        address,
        key: packet.key,
        op: OpNumber::new(packet.op),
        tries: packet.tries,
        packet_size_log2: packet.packet_size_log2,
        start: Some(StartFields {
            base: address,
            segment_length: length,
            packets: 1,
            transfer_base: address,
            transfer_length: length.into(),
        }),
    };
    wrap(out, common, |bytes| header.encode(payload, bytes));
}

#[cfg(test)]
mod tests;
