//! A card behind device files.

use std::time::Duration;

use fpga_driver::{Card, Direction};
use fpga_pci::Bar;

use crate::dma::Channel;
use crate::events::Lines;
use crate::lock::ChannelLock;
use crate::node::Node;

/// A card whose device files programs may open.
#[derive(Debug)]
pub struct Device {
    pub(crate) card: Card,
    control: Bar,
    user: Option<Bar>,
    bypass: Option<Bar>,
    h2c: Vec<ChannelLock>,
    c2h: Vec<ChannelLock>,
    pub(crate) lines: Lines,
    /// Maximum duration of a transfer.
    pub(crate) timeout: Duration,
}

impl Device {
    /// Offers the files of `card`: its channels, its registers, and its bypass BAR if there is one. A transfer fails after `timeout`.
    #[must_use]
    pub fn new(card: Card, bypass: Option<Bar>, timeout: Duration) -> Self {
        let xdma = &card.info().xdma;
        let channels = |direction, count: u8| {
            (0..count).map(|number| ChannelLock::new(Channel::new(direction, number))).collect()
        };
        Self {
            control: card.dma_bar().clone(),
            user: card.user_bar().cloned(),
            bypass,
            h2c: channels(Direction::H2c, xdma.h2c_channels),
            c2h: channels(Direction::C2h, xdma.c2h_channels),
            lines: Lines::default(),
            timeout,
            card,
        }
    }

    /// Whether the card has `node`.
    pub(crate) fn has(&self, node: Node) -> bool {
        match node {
            Node::H2c(_) | Node::C2h(_) => self.channel(node).is_some(),
            Node::Control | Node::User | Node::Bypass | Node::BypassOf(..) => self.bar(node).is_some(),
            Node::Events(line) => line < fpga_registers::xdma::MAX_USER_INTERRUPTS,
        }
    }

    /// All nodes of the card.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node> + '_ {
        let channels = || 0..u8::try_from(self.h2c.len().max(self.c2h.len())).unwrap_or(u8::MAX);
        let events = 0..fpga_registers::xdma::MAX_USER_INTERRUPTS;
        [Node::Control, Node::User, Node::Bypass]
            .into_iter()
            .chain(channels().flat_map(|number| {
                [
                    Node::H2c(number),
                    Node::C2h(number),
                    Node::BypassOf(true, number),
                    Node::BypassOf(false, number),
                ]
            }))
            .chain(events.map(Node::Events))
            .filter(|node| self.has(*node))
    }

    /// Registers behind `node`.
    pub(crate) const fn bar(&self, node: Node) -> Option<&Bar> {
        match node {
            Node::Control => Some(&self.control),
            Node::User => self.user.as_ref(),
            Node::Bypass | Node::BypassOf(..) => self.bypass.as_ref(),
            Node::H2c(_) | Node::C2h(_) | Node::Events(_) => None,
        }
    }

    /// Alignment in bytes that all channels require of addresses.
    pub(crate) fn alignment(&self) -> u8 {
        self.card.info().xdma.alignments.address_alignment()
    }

    /// Channel behind `node`.
    pub(crate) fn channel(&self, node: Node) -> Option<&ChannelLock> {
        match node {
            Node::H2c(number) => self.h2c.get(usize::from(number)),
            Node::C2h(number) => self.c2h.get(usize::from(number)),
            _ => None,
        }
    }
}
