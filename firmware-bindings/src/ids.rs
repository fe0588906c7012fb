//! Network identifiers as distinct types.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::generated::NODE_ANY;

macro_rules! id {
    ($(#[$attribute:meta])* $name:ident, $format:literal) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(u32);

        impl $name {
            /// Creates the id with this number.
            #[must_use]
            #[inline]
            pub const fn new(value: u32) -> Self {
                Self(value)
            }

            /// The number, as it is on the wire and in registers.
            #[must_use]
            #[inline]
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl From<u32> for $name {
            fn from(value: u32) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u32 {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

id!(
    /// One card with its network interface and its host. Any number except [`NodeId::ANY`].
    NodeId,
    "{}"
);
id!(
    /// Number of a transfer. A sender numbers its transfers in ascending order; the number wraps.
    TransferId,
    "{}"
);
id!(
    /// Number of one run of a node. A later run has a later number, in serial number arithmetic ([`Incarnation::is_earlier_than`]); 0 is no
    /// incarnation. It is part of every key, so that a restarted sender is never confused with its earlier incarnation.
    Incarnation,
    "{:#010x}"
);
id!(
    /// Number of one packet in flight: slot of the sender's op table in bits 15:0, generation of that slot in bits 31:16 (erratum E1-13:
    /// the number is not reused while an answer to it may still be in flight).
    OpNumber,
    "{:#010x}"
);

id!(
    /// Number of one message of a sender: its context in bits 31:20, a running number of the context (MSGID) in bits 19:0. Also the number
    /// of one read of the requesting node, by slot and number.
    MessageId,
    "{:#010x}"
);

/// Index of a segment within its transfer.
pub type SegmentIndex = u32;

impl NodeId {
    /// Id that no node has. In a memory window it stands for every node.
    pub const ANY: Self = Self(NODE_ANY);

    /// Returns the id of a simulated card whose link receives at `address`: for IPv4, the last 16 bits of the address and the port, so that ids
    /// differ in networks of up to 65536 addresses.
    #[must_use]
    pub fn of_link(address: SocketAddr) -> Self {
        let host = match address.ip() {
            IpAddr::V4(ip) => {
                let [_, _, high, low] = ip.octets();
                u32::from(high) << 8 | u32::from(low)
            }
            // The sum of its parts: equal for few pairs of addresses of one network.
            IpAddr::V6(ip) => {
                ip.segments().iter().fold(0, |sum: u32, part| (sum + u32::from(*part)) & 0xffff)
            }
        };
        Self(host << 16 | u32::from(address.port()))
    }

    /// Returns the address of the link of this simulated card, in the network of `near`: the reverse of [`of_link`](Self::of_link). `None` for
    /// IPv6, and for port 0.
    #[must_use]
    pub fn link_address(self, near: IpAddr) -> Option<SocketAddr> {
        let IpAddr::V4(near) = near else { return None };
        let [_, _, high, low] = (self.0 >> 16).to_be_bytes();
        let [first, second, ..] = near.octets();
        let [_, _, port_high, port_low] = self.0.to_be_bytes();
        let port = u16::from_be_bytes([port_high, port_low]);
        let ip = Ipv4Addr::new(first, second, high, low);
        (port != 0 && self != Self::ANY).then_some(SocketAddr::new(IpAddr::V4(ip), port))
    }
}

impl TransferId {
    /// Returns the number of the next transfer.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Whether this transfer was started before `other`, at the same sender. Valid if less than 2^31 transfers lie between the two.
    #[must_use]
    #[inline]
    pub const fn is_older_than(self, other: Self) -> bool {
        let behind = other.0.wrapping_sub(self.0);
        behind != 0 && behind <= 1 << 31
    }
}

impl Incarnation {
    /// Whether this incarnation came before `other`, at the same node: serial number arithmetic of 32 bits (RFC 1982). Of two numbers that
    /// are exactly 2^31 apart, each counts as the earlier one, so that a receiver that knows the one refuses the other.
    #[must_use]
    #[inline]
    pub const fn is_earlier_than(self, other: Self) -> bool {
        let behind = other.0.wrapping_sub(self.0);
        behind != 0 && behind <= 1 << 31
    }

    /// Returns the next incarnation; the number wraps and skips 0.
    #[must_use]
    pub const fn next(self) -> Self {
        match self.0.wrapping_add(1) {
            0 => Self(1),
            next => Self(next),
        }
    }
}

impl OpNumber {
    /// Returns the op number of `slot` in its `generation`.
    #[must_use]
    pub const fn from_parts(slot: u16, generation: u16) -> Self {
        // No From in a const fn; both casts widen.
        Self((generation as u32) << 16 | slot as u32)
    }

    /// Slot in the sender's op table.
    #[must_use]
    #[inline]
    pub const fn slot(self) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the slot")]
        let slot = self.0 as u16;
        slot
    }

    /// Number of earlier uses of the slot, modulo 2^16.
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// Number of bits of a running number (MSGID).
const MESSAGE_BITS: u32 = 20;

impl MessageId {
    /// Number of distinct contexts.
    pub const CONTEXTS: u32 = 1 << (32 - MESSAGE_BITS);

    /// Returns the id of message `number` of `context`; the numbers wrap.
    #[must_use]
    pub const fn from_parts(context: u16, number: u32) -> Self {
        Self((context as u32) << MESSAGE_BITS | number & ((1 << MESSAGE_BITS) - 1))
    }

    /// The sender's context, below [`Self::CONTEXTS`].
    #[must_use]
    pub const fn context(self) -> u16 {
        (self.0 >> MESSAGE_BITS) as u16
    }

    /// The running number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0 & ((1 << MESSAGE_BITS) - 1)
    }

    /// Whether this message came before `other` of the same context, for numbers of `bits` bits. Valid if less than half of all numbers
    /// lie between the two.
    #[must_use]
    pub const fn is_older_than(self, other: Self, bits: u32) -> bool {
        let mask = (1_u32 << if bits < MESSAGE_BITS { bits } else { MESSAGE_BITS }) - 1;
        let behind = other.0.wrapping_sub(self.0) & mask;
        behind != 0 && behind <= mask / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_contains_address_of_link() {
        let address = "10.1.2.3:9228".parse().unwrap();
        let node = NodeId::of_link(address);
        assert_eq!(node.get(), 0x0203_0000 | 9228);
        assert_eq!(node.link_address("10.1.200.9".parse().unwrap()), Some(address));
        assert_eq!(node.link_address("2001:db8::1".parse().unwrap()), None);
        assert_eq!(NodeId::new(7 << 16).link_address("10.1.0.1".parse().unwrap()), None);
        assert_eq!(NodeId::ANY.link_address("10.1.0.1".parse().unwrap()), None);
        let wide = "[2001:db8::1]:1".parse().unwrap();
        assert_eq!(NodeId::of_link(wide).get(), (0x2001 + 0xdb8 + 1) << 16 | 1);
    }

    #[test]
    fn op_number_has_slot_and_generation() {
        let op = OpNumber::new(0xbeef_0042);
        assert_eq!((op.slot(), op.generation()), (0x42, 0xbeef));
        assert_eq!(OpNumber::from_parts(0x42, 0xbeef), op);
    }

    #[test]
    fn transfer_id_age_wraps() {
        let last = TransferId::new(u32::MAX);
        assert_eq!(last.next(), TransferId::new(0));
        assert!(last.is_older_than(last.next()));
        assert!(!last.next().is_older_than(last));
        assert!(!last.is_older_than(last));
    }

    #[test]
    fn incarnation_order_wraps_and_skips_zero() {
        let last = Incarnation::new(u32::MAX);
        assert_eq!(last.next(), Incarnation::new(1));
        assert!(last.is_earlier_than(last.next()) && !last.next().is_earlier_than(last));
        assert!(!last.is_earlier_than(last));
        let (one, opposite) = (Incarnation::new(5), Incarnation::new(5 + (1 << 31)));
        assert!(one.is_earlier_than(opposite) && opposite.is_earlier_than(one));
    }

    #[test]
    fn message_id_age_wraps() {
        assert_eq!(MessageId::CONTEXTS, 0x1000);
        let last = MessageId::from_parts(0xfff, 0xf_ffff);
        assert_eq!((last.context(), last.number(), last.get()), (0xfff, 0xf_ffff, u32::MAX));
        let next = MessageId::from_parts(0xfff, last.number() + 1);
        assert_eq!(next.get(), 0xfff0_0000);
        assert!(
            last.is_older_than(next, 20) && !next.is_older_than(last, 20) && !last.is_older_than(last, 20)
        );
        let few = |number| MessageId::from_parts(3, number);
        assert!(few(7).is_older_than(few(0), 3) && few(0).is_older_than(few(3), 3));
        assert!(!few(0).is_older_than(few(4), 3));
    }

    #[test]
    fn ids_display_as_numbers() {
        use alloc::string::ToString;
        assert_eq!(NodeId::new(7).to_string(), "7");
        assert_eq!(Incarnation::new(0xab).to_string(), "0x000000ab");
    }
}
