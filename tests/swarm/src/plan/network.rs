//! The network and the cards of a world.

use std::time::Duration;

use fpga_firmware::generated::Scheme;
use fpga_protocol::Nanos;

/// Impairments of all links. Shares are in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Lost frames.
    pub loss: u64,
    /// Mean length of a burst of losses in frames; 0: independent losses.
    pub burst: u64,
    /// Duplicated frames.
    pub copies: u64,
    /// Damaged frames.
    pub damage: u64,
    /// Trimmed data frames.
    pub trims: u64,
    /// Maximum random delay.
    pub delay: Nanos,
    /// Number of frames among which a link delivers in random order.
    pub disorder: usize,
    /// Megabits per second of slow links; 0: none is slow.
    pub slow: u64,
    /// Whether slow links mark frames.
    pub marks: bool,
    /// Kind of packets of which more are lost, and their share.
    pub target: Option<(u8, u64)>,
}

/// Form of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Every pair of nodes has a link.
    Mesh,
    /// All links lead to one switch.
    Star,
    /// A ring of switches.
    Ring,
    /// A binary tree of switches.
    Tree,
}

/// Properties of all nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Cards {
    /// Payload bytes of a packet.
    pub packet_size: u32,
    /// Bits of a mask.
    pub mask_bits: u16,
    /// Entries of the receive registry.
    pub registry_entries: u16,
    /// Slots of the escape channel.
    pub escape_slots: u16,
    /// Transmit windows.
    pub windows: u8,
    /// Contexts of messages.
    pub contexts: u16,
    /// Transfers that the card sends.
    pub commands: u16,
    /// Whether events are pushed to host memory.
    pub event_push: bool,
    /// Active schemes, the first one is the default.
    pub schemes: Vec<Scheme>,
    /// Entries of the event ring.
    pub event_entries: u32,
    /// Packets in flight; `None`: as many as the ring has space for.
    pub ops: Option<u32>,
    /// Transfers of an endpoint.
    pub transfers: Option<u32>,
    /// Destinations of an endpoint.
    pub destinations: Option<u32>,
    /// Paths.
    pub paths: u16,
    /// Congestion window.
    pub congestion: bool,
    /// Time without an answer after which a transfer is given up.
    pub give_up: Duration,
    /// Whether packets raise events.
    pub packet_events: bool,
    /// First incarnation.
    pub incarnation: u32,
    /// Id of the first transfer to each node.
    pub first_transfer: u32,
    /// Open windows of a node.
    pub open_windows: usize,
    /// Maximum time between two polls of a host.
    pub poll: Nanos,
}
