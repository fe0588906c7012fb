//! Datagrams of a network link between cards: a wrapper of 16 bytes, and one packet of the wire format.
//!
//! Layouts: "Link" and "Wire formats" in the manual of the network interface (`firmware-bindings/map/ni.md`) and
//! `driver/sim/src/link.rs`. All integers are little-endian. Only the packets that a subscriber sends or receives are known here.

use crate::contract::{
    ACK, BAD_PACKET, BUSY, DATA, ECHO, ESCAPE_FULL, HELLO, HELLO_REPLY, MARKED, NACK, NO_NOTICE, NODE_ANY,
    NOT_READY, NOTIFY_RECEIVER, SEGMENT_DONE, SEGMENT_PACKETS_MAX, START, VIOLATION, WIRE_VERSION,
};
use crate::crc::crc32c;
use crate::fields::{Reader, Writer};

const WRAPPER_MAGIC: [u8; 4] = *b"FPLK";
const WRAPPER_VERSION: u8 = 1;
const WRAPPER_LENGTH: usize = 16;
/// Path identifier: the byte after the flags.
const PATH: u16 = 0xff00;

/// Bit of the registry scheme in the set of schemes of a HELLO.
const REGISTRY_SCHEME: u32 = 1;
/// Time in microseconds for which a silent sender's entries are kept: no sender gives up later.
const REGISTRY_TIMEOUT_US: u32 = u32::MAX;

/// Reason of a negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Refusal {
    Busy = BUSY,
    EscapeFull = ESCAPE_FULL,
    Violation = VIOLATION,
    BadPacket = BAD_PACKET,
}

/// Whether the refusal passes, so that the packet is retransmitted: registry or event ring full.
pub(crate) const fn is_passing(reason: u8) -> bool {
    matches!(reason, BUSY | ESCAPE_FULL | NOT_READY)
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
    /// Flags and path of the answer.
    pub(crate) way: u16,
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
    let is_named = common.source != NODE_ANY && common.destination != NODE_ANY;
    if version != WIRE_VERSION || (common.source, common.destination) != (source, destination) || !is_named {
        return None;
    }
    let packet = match kind {
        DATA | START => Packet::Data(data(&mut reader, kind == START, flags)?),
        ACK | NACK => {
            let (op, _transfer, _segment) = (reader.u32()?, reader.u32()?, reader.u32()?);
            let (peer_incarnation, _tries, reason) = (reader.u32()?, reader.u8()?, reader.u8()?);
            // An acknowledgement has a number of senders there.
            let reason = if kind == ACK { 0 } else { reason };
            if kind == NACK && reason == 0 {
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
        way: flags & PATH | if flags & MARKED == 0 { 0 } else { ECHO },
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
    encode(out, common, kind, to.way, |out| {
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
        out.u8(packet_size_log2).u8(WIRE_VERSION).u16(SEGMENT_PACKETS_MAX);
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

#[cfg(test)]
mod tests;
