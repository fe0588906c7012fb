//! Names of the vendor driver's device files.
//!
//! Source: `xdma_cdev.c` of the driver (`/dev/xdma0_h2c_0`), and its udev rules, which add links (`/dev/xdma/card0/h2c0`).

use core::fmt;

/// Device file of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// H2C channel: `xdma0_h2c_0`.
    H2c(u8),
    /// C2H channel: `xdma0_c2h_0`.
    C2h(u8),
    /// Registers of the DMA engine: `xdma0_control`.
    Control,
    /// Registers of the design: `xdma0_user`.
    User,
    /// Window onto card memory: `xdma0_bypass`.
    Bypass,
    /// The same for a program that fills the descriptor bypass port of an H2C (C2H) channel: `xdma0_bypass_h2c_0`.
    BypassOf(bool, u8),
    /// User interrupt: `xdma0_events_0`.
    Events(u8),
}

impl Node {
    /// Name without the card, with `separator` before a number.
    fn name(self, separator: &str) -> String {
        let (kind, number) = match self {
            Self::H2c(channel) => ("h2c", channel),
            Self::C2h(channel) => ("c2h", channel),
            Self::BypassOf(true, channel) => ("bypass_h2c", channel),
            Self::BypassOf(false, channel) => ("bypass_c2h", channel),
            Self::Events(line) => ("events", line),
            Self::Control => return "control".to_owned(),
            Self::User => return "user".to_owned(),
            Self::Bypass => return "bypass".to_owned(),
        };
        format!("{kind}{separator}{number}")
    }
}

/// Folder of links to device files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Folder {
    /// `/dev/xdma`.
    Cards,
    /// `/dev/xdma/card0`.
    Card(usize),
}

impl Folder {
    /// Name of the first one in `/dev`.
    pub(crate) const NAME: &str = "xdma";

    /// Card of a name in `/dev/xdma`.
    pub(crate) fn card(name: &[u8]) -> Option<usize> {
        number(core::str::from_utf8(name).ok()?.strip_prefix("card")?)
    }
}

/// Device file of one of several cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct DeviceFile {
    /// Number of the card, in the order of the command line.
    pub(crate) card: usize,
    /// File of this card.
    pub(crate) node: Node,
}

impl DeviceFile {
    /// Device file behind a link in the folder of `card`, such as `h2c0`.
    pub(crate) fn of_link(card: usize, name: &[u8]) -> Option<Self> {
        Some(Self { card, node: linked(core::str::from_utf8(name).ok()?)? })
    }

    /// Name of the link, in the folder of the card.
    pub(crate) fn link(&self) -> String {
        self.node.name("")
    }

    /// Target of the link.
    pub(crate) fn link_target(&self) -> String {
        format!("../../{self}")
    }

    /// Device file with this name, such as `xdma0_h2c_0`.
    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        let name = core::str::from_utf8(name).ok()?.strip_prefix("xdma")?;
        let (card, name) = name.split_once('_')?;
        Some(Self { card: number(card)?, node: plain(name)? })
    }
}

impl fmt::Display for DeviceFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "xdma{}_{}", self.card, self.node.name("_"))
    }
}

/// Node of a device file's name without the card.
fn plain(name: &str) -> Option<Node> {
    match name {
        "control" => return Some(Node::Control),
        "user" => return Some(Node::User),
        "bypass" => return Some(Node::Bypass),
        _ => {}
    }
    let (kind, index) = name.rsplit_once('_')?;
    numbered(kind, number(index)?)
}

/// Node of a link's name: `h2c0`, `control`.
fn linked(name: &str) -> Option<Node> {
    plain(name).filter(|node| matches!(node, Node::Control | Node::User | Node::Bypass)).or_else(|| {
        let kind = name.trim_end_matches(|last: char| last.is_ascii_digit());
        numbered(kind, number(name.get(kind.len()..)?)?)
    })
}

fn numbered(kind: &str, index: usize) -> Option<Node> {
    let index = u8::try_from(index).ok()?;
    match kind {
        "h2c" => Some(Node::H2c(index)),
        "c2h" => Some(Node::C2h(index)),
        "bypass_h2c" => Some(Node::BypassOf(true, index)),
        "bypass_c2h" => Some(Node::BypassOf(false, index)),
        "events" => Some(Node::Events(index)),
        _ => None,
    }
}

/// Number of at most three digits, without sign and leading zeros.
fn number(text: &str) -> Option<usize> {
    let digits = (1..=3).contains(&text.len()) && text.bytes().all(|digit| digit.is_ascii_digit());
    let is_plain = digits && (text.len() == 1 || !text.starts_with('0'));
    is_plain.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_round_trip() {
        let nodes = [
            Node::H2c(0),
            Node::C2h(3),
            Node::Control,
            Node::User,
            Node::Bypass,
            Node::BypassOf(true, 1),
            Node::BypassOf(false, 2),
            Node::Events(15),
        ];
        for (card, node) in nodes.into_iter().enumerate() {
            let file = DeviceFile { card, node };
            assert_eq!(DeviceFile::of_name(file.to_string().as_bytes()), Some(file));
            assert_eq!(DeviceFile::of_link(card, file.link().as_bytes()), Some(file));
        }
    }

    #[test]
    fn node_links_of_udev_rules_are_known() {
        for (card, link, name) in [
            (0, "h2c0", "xdma0_h2c_0"),
            (1, "c2h3", "xdma1_c2h_3"),
            (0, "control", "xdma0_control"),
            (0, "events12", "xdma0_events_12"),
            (0, "bypass_h2c2", "xdma0_bypass_h2c_2"),
        ] {
            let file = DeviceFile::of_link(card, link.as_bytes()).unwrap();
            assert_eq!((file.to_string(), file.link()), (name.to_owned(), link.to_owned()));
        }
        assert_eq!(Folder::card(b"card12"), Some(12));
        for name in ["", "card", "cardx", "card-1", "0", "card1000"] {
            assert_eq!(Folder::card(name.as_bytes()), None, "{name}");
        }
        for link in ["h2c", "", "h2c_", "h2c_0", "x0", "xdma0_h2c_0", "control0"] {
            assert_eq!(DeviceFile::of_link(0, link.as_bytes()), None, "{link}");
        }
    }

    #[test]
    fn node_other_names_are_refused() {
        for name in [
            "xdma",
            "xdma0",
            "xdma0_",
            "xdma0_h2c",
            "xdma0_h2c_",
            "xdma0_h2c_x",
            "xdma0_h2c_-1",
            "xdma0_h2c_256",
            "xdma_h2c_0",
            "xdma+1_h2c_0",
            "xdma0_control_0",
            "xdma00_control",
            "null",
            "",
            "xdma1000_user",
        ] {
            assert_eq!(DeviceFile::of_name(name.as_bytes()), None, "{name}");
        }
    }
}
