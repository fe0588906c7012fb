//! Datagrams of a network link between cards: a wrapper of 16 bytes, and one packet of the wire format.
//!
//! The packets are those of `fpga_firmware::wire`; the wrapper is described in `driver/sim/src/link.rs`.

use fpga_firmware::generated::{Capabilities, SEGMENT_PACKETS_MAX};
use fpga_firmware::wire::{
    CRC_LENGTH, Common, Control, EncodeError, Flags, Hello, MAX_CONTROL_LENGTH, Packet, START_HEADER_LENGTH,
    WIRE_VERSION,
};
use fpga_firmware::{Incarnation, NodeId};
use fpga_frames_wire::blocks::BLOCK;

const WRAPPER_LENGTH: usize = 16;
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
        let (wrapper, packet) = datagram.split_first_chunk::<WRAPPER_LENGTH>()?;
        let packet = Packet::parse(packet).ok()?;
        let common = packet.common();
        let is_wrapped = *wrapper == Self::wrapper(&common, datagram.len() - WRAPPER_LENGTH)?;
        let is_ours = (common.source, common.destination) == (self.peer, self.node);
        (is_wrapped && is_ours).then_some(packet)
    }

    /// Returns the wrapper of a packet of `length` bytes.
    fn wrapper(common: &Common, length: usize) -> Option<[u8; WRAPPER_LENGTH]> {
        let [low, high] = u16::try_from(length).ok()?.to_le_bytes();
        let [m0, m1, m2, m3] = WRAPPER_MAGIC;
        let [s0, s1, s2, s3] = common.source.get().to_le_bytes();
        let [d0, d1, d2, d3] = common.destination.get().to_le_bytes();
        Some([m0, m1, m2, m3, WRAPPER_VERSION, 0, low, high, s0, s1, s2, s3, d0, d1, d2, d3])
    }

    /// Replaces `out` by a datagram with a HELLO, or with the reply to one.
    pub(crate) fn hello(&self, out: &mut Vec<u8>, is_reply: bool) {
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
    pub(crate) fn control(&self, out: &mut Vec<u8>, control: &Control) {
        self.wrap(out, |bytes| control.encode(bytes));
    }

    /// Replaces `out` by a datagram with the packet that `encode` writes.
    pub(crate) fn wrap(
        &self,
        out: &mut Vec<u8>,
        encode: impl FnOnce(&mut [u8]) -> Result<usize, EncodeError>,
    ) {
        let mut packet = [0; MAX_SENT];
        let length = encode(&mut packet);
        debug_assert!(length.is_ok(), "the packets of this node are valid: {length:?}");
        let packet = packet.get(..length.unwrap_or(0)).unwrap_or_default();
        out.clear();
        out.extend(Self::wrapper(&self.common(Flags::NONE), packet.len()).unwrap_or_default());
        out.extend(packet);
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
        let mut out = Vec::new();
        sender.hello(&mut out, true);
        assert!(matches!(receiver.parse(&out), Some(Packet::Control(Control::HelloReply(_)))));
        assert!(sender.parse(&out).is_none(), "sent by this node");
        for at in 0..out.len() {
            let mut damaged = out.clone();
            damaged[at] ^= 1;
            assert!(receiver.parse(&damaged).is_none(), "byte {at}");
            assert!(receiver.parse(&out[..at]).is_none(), "{at} bytes");
        }
    }
}
