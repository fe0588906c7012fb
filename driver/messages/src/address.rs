//! Addresses of messengers, as text that survives an exchange through any launcher.
//!
//! | Text | Messenger |
//! |---|---|
//! | `fpga://10.0.0.1:9228` | of a simulated card whose link receives UDP datagrams there; processes of the same machine reach it through shared memory |
//! | `fpga://node/7` | of the card with node id 7 on the network between the cards |
//!
//! A text has at most [`MAX_TEXT`] bytes: launchers pass addresses in fields of 64 bytes.

use core::fmt;
use core::str::FromStr;
use fpga_driver::NodeId;
use std::net::{IpAddr, SocketAddr};

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
    /// Node id of a card.
    Node(NodeId),
}

/// Text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" is not the address of a card: expected fpga://IP:PORT or fpga://node/NUMBER")]
pub struct ParseAddressError {
    /// The text.
    pub text: String,
}

impl Address {
    /// Returns the node id of the messenger. That of a simulated card is derived from the address of its link: for IPv4, the last 16 bits of
    /// the address and the port, so that node ids differ in networks of up to 65536 addresses.
    #[must_use]
    pub fn node(self) -> NodeId {
        match self {
            Self::Node(node) => node,
            Self::Link(socket) => {
                let host = match socket.ip() {
                    IpAddr::V4(ip) => {
                        let [_, _, high, low] = ip.octets();
                        u32::from(high) << 8 | u32::from(low)
                    }
                    // The sum of its parts: equal for few pairs of addresses of one network.
                    IpAddr::V6(ip) => {
                        ip.segments().iter().fold(0, |sum: u32, part| (sum + u32::from(*part)) & 0xffff)
                    }
                };
                NodeId::new(host << 16 | u32::from(socket.port()))
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(socket) => write!(f, "{SCHEME}{socket}"),
            Self::Node(node) => write!(f, "{SCHEME}{NODE}{node}"),
        }
    }
}

impl FromStr for Address {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let rest = text.strip_prefix(SCHEME)?;
            match rest.strip_prefix(NODE) {
                Some(number) => number.parse().ok().map(|node| Self::Node(NodeId::new(node))),
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
        for text in ["fpga://10.0.0.1:9228", "fpga://[2001:db8::1]:1", "fpga://node/7"] {
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
