//! Addresses of messengers, as text that survives an exchange through any launcher.
//!
//! | Text | Messenger |
//! |---|---|
//! | `fpga://10.0.0.1:9228` | of a simulated card whose link receives UDP datagrams there; processes of the same machine reach it through shared memory |
//! | `fpga://node/7` | of the card with node id 7 on the network between the cards |
//! | `fpga://node/7@1000` | of such a card, with its hello slots at this card address (hexadecimal): the second messenger of a process on its card, or the view of a shared card, whose memory does not begin at 0 |
//!
//! A text has at most [`MAX_TEXT`] bytes: launchers pass addresses in fields of 64 bytes.

use core::fmt;
use core::str::FromStr;
use fpga_driver::{CardAddr, NodeId};
use std::net::SocketAddr;

/// Maximum length of the text of an address, in bytes.
pub const MAX_TEXT: usize = 63;

/// Prefix of all addresses.
const SCHEME: &str = "fpga://";
/// Prefix of node ids.
const NODE: &str = "node/";

/// Number of a known peer, counted from 0 in the order in which peers are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerId(pub u32);

/// Address of a messenger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Address of a simulated card's link.
    Link(SocketAddr),
    /// Node id of a card; the hello slots are at card address 0.
    Node(NodeId),
    /// Node id of a card, and the card address of the hello slots.
    NodeAt(NodeId, CardAddr),
}

/// Text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{text}\" is not the address of a card: expected fpga://IP:PORT, fpga://node/NUMBER or fpga://node/NUMBER@CARD-ADDRESS"
)]
pub struct ParseAddressError {
    /// The text.
    pub text: String,
}

impl Address {
    /// Address of a messenger on a card with a node id, whose hello slots are at `slots`.
    #[must_use]
    pub const fn of_card(node: NodeId, slots: CardAddr) -> Self {
        if slots.get() == 0 { Self::Node(node) } else { Self::NodeAt(node, slots) }
    }

    /// Returns the node id of the messenger. That of a simulated card is derived from the address of its link ([`NodeId::of_link`]).
    #[must_use]
    pub fn node(self) -> NodeId {
        match self {
            Self::Node(node) | Self::NodeAt(node, _) => node,
            Self::Link(socket) => NodeId::of_link(socket),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(socket) => write!(f, "{SCHEME}{socket}"),
            Self::Node(node) => write!(f, "{SCHEME}{NODE}{node}"),
            Self::NodeAt(node, slots) => write!(f, "{SCHEME}{NODE}{node}@{:x}", slots.get()),
        }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let rest = text.strip_prefix(SCHEME)?;
            match rest.strip_prefix(NODE) {
                Some(card) => {
                    let (number, slots) = card.split_once('@').unwrap_or((card, "0"));
                    let slots = u64::from_str_radix(slots, 16).ok()?;
                    Some(Self::of_card(NodeId::new(number.parse().ok()?), CardAddr::new(slots)))
                }
                None => rest.parse().ok().map(Self::Link),
            }
        };
        parse()
            .filter(|address| address.node() != NodeId::ANY)
            .ok_or_else(|| ParseAddressError { text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_text_round_trips() {
        for text in
            ["fpga://10.0.0.1:9228", "fpga://[2001:db8::1]:1", "fpga://node/7", "fpga://node/7@100000"]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
            assert!(text.len() <= MAX_TEXT);
        }
        let longest = "fpga://[2001:1111:2222:3333:4444:5555:6666:7777]:65535";
        assert_eq!(longest.parse::<Address>().unwrap().to_string().len(), longest.len());
        assert!(longest.len() <= MAX_TEXT);
    }

    #[test]
    fn address_other_text_is_refused() {
        for text in [
            "",
            "fpga://",
            "10.0.0.1:1",
            "fpga://10.0.0.1",
            "fpga://node/",
            "fpga://node/7@",
            "fpga://node/7@-1",
            "fpga://node/4294967295",
            "fpga://0.0.255.255:65535",
        ] {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn address_node_has_host_and_port() {
        let address: Address = "fpga://10.1.2.3:9228".parse().unwrap();
        assert_eq!(address.node().get(), 0x0203_0000 | 9228);
    }
}
