//! Datagrams of a network link between cards: a wrapper of 16 bytes, and one packet of the wire format.
//!
//! The packets are those of `fpga_firmware::wire`; the wrapper is described in `driver/sim/src/link.rs`.

use fpga_firmware::generated::{Capabilities, SEGMENT_PACKETS_MAX};
use fpga_firmware::wire::{
    CRC_LENGTH, Common, Control, EncodeError, Flags, Hello, MAX_CONTROL_LENGTH, Packet, START_HEADER_LENGTH,
    WIRE_VERSION,
};
use fpga_firmware::{Incarnation, NodeId};

use crate::blocks::BLOCK;
use crate::fields::{Reader, Writer};

const WRAPPER_MAGIC: [u8; 4] = *b"FPLK";
const WRAPPER_VERSION: u8 = 1;

/// Bit of the registry scheme in the set of schemes of a HELLO.
pub(crate) const REGISTRY_SCHEME: u32 = 1;
/// Time in microseconds for which a silent sender's entries are kept: no sender gives up later.
pub(crate) const REGISTRY_TIMEOUT_US: u32 = u32::MAX;
/// Maximum length of a packet that is sent: a START packet with a block, which is longer than those without payload.
const MAX_SENT: usize = START_HEADER_LENGTH + BLOCK + CRC_LENGTH;
const _: () = assert!(MAX_SENT >= MAX_CONTROL_LENGTH);

/// Identity of the node and of its only sender.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) peer: NodeId,
    pub(crate) peer_incarnation: Incarnation,
    pub(crate) packet_size_log2: u8,
    /// Key of the window that the sender may write.
    pub(crate) key: u64,
}

impl Identity {
    /// Returns the common header of packets to the sender.
    pub(crate) const fn common(&self, flags: Flags) -> Common {
        let Self { node: source, peer: destination, incarnation, .. } = *self;
        Common { source, destination, incarnation, flags, path: 0 }
    }

    /// Parses a datagram from the peer to this node. `None`: damaged, of another protocol, or of another node.
    pub(crate) fn parse<'a>(&self, datagram: &'a [u8]) -> Option<Packet<'a>> {
        let mut wrapper = Reader(datagram);
        if wrapper.take()? != WRAPPER_MAGIC || wrapper.u8()? != WRAPPER_VERSION || wrapper.u8()? != 0 {
            return None;
        }
        let (length, source, destination) = (wrapper.u16()?, wrapper.u32()?, wrapper.u32()?);
        if usize::from(length) != wrapper.0.len() {
            return None;
        }
        let packet = Packet::parse(wrapper.0).ok()?;
        let common = packet.common();
        let is_wrapped = (common.source.get(), common.destination.get()) == (source, destination);
        let is_ours = (common.source, common.destination) == (self.peer, self.node);
        (is_wrapped && is_ours).then_some(packet)
    }

    /// Replaces `out` by a datagram with a HELLO, or with the reply to one.
    pub(crate) fn hello(&self, out: &mut Writer, is_reply: bool) {
        let hello = Hello {
            common: self.common(Flags::NONE),
            packet_size_log2: self.packet_size_log2,
            wire_version: WIRE_VERSION,
            mask_bits: SEGMENT_PACKETS_MAX,
            capabilities: Capabilities::from_bits(0),
            schemes: REGISTRY_SCHEME,
            registry_timeout_us: REGISTRY_TIMEOUT_US,
        };
        self.control(out, &if is_reply { Control::HelloReply(hello) } else { Control::Hello(hello) });
    }

    /// Replaces `out` by a datagram with a packet without payload.
    pub(crate) fn control(&self, out: &mut Writer, control: &Control) {
        self.wrap(out, |bytes| control.encode(bytes));
    }

    /// Replaces `out` by a datagram with the packet that `encode` writes.
    pub(crate) fn wrap(
        &self,
        out: &mut Writer,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    ) {
        let mut packet = [0; MAX_SENT];
        let length = encode(&mut packet);
        debug_assert!(length.is_ok(), "the packets of this node are valid: {length:?}");
        let packet = packet.get(..length.unwrap_or(0)).unwrap_or_default();
        out.0.clear();
        out.put(&WRAPPER_MAGIC).u8(WRAPPER_VERSION).u8(0).u16(u16::try_from(packet.len()).unwrap_or(0));
        out.u32(self.node.get()).u32(self.peer.get()).put(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_damaged_and_foreign_datagrams_are_rejected() {
        let (ours, theirs) = (NodeId::new(2), NodeId::new(1));
        let (incarnation, peer_incarnation) = (Incarnation::new(5), Incarnation::new(9));
        let sender =
            Identity { node: ours, incarnation, peer: theirs, peer_incarnation, packet_size_log2: 9, key: 0 };
        let receiver = Identity { node: theirs, peer: ours, ..sender };
        let mut out = Writer::default();
        sender.hello(&mut out, true);
        assert!(matches!(receiver.parse(&out.0), Some(Packet::Control(Control::HelloReply(_)))));
        assert!(sender.parse(&out.0).is_none(), "sent by this node");
        for at in 0..out.0.len() {
            let mut damaged = out.0.clone();
            damaged[at] ^= 1;
            assert!(receiver.parse(&damaged).is_none(), "byte {at}");
            assert!(receiver.parse(&out.0[..at]).is_none(), "{at} bytes");
        }
    }
}
