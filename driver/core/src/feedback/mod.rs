//! Link feedback and flow control (document 002, spec 5): what hops tell of their links, and what is done about it.
//!
//! ```text
//! sender --inquiry--> hop --inquiry--> hop --> receiver      asked for when many packets are late
//!    ^---passive-------/                \--active--> controller
//!    ^------------------slow-------------------------/         or another way, which nobody notices
//! ```
//!
//! | Module | Who |
//! |---|---|
//! | [`hop`] | a switch's port: answers inquiries, and reports by itself when its queue or rate is bad |
//! | [`controller`] | hears reports, finds another way round a link or tells the sender to slow down |
//! | [`flow`] | a sender's rate and priority towards each receiver, and how they come back |
//!
//! Nothing here is needed for correctness: every word may be lost, doubled or late [E2-8], and hops that say nothing are hops of which
//! nothing is known.

pub mod controller;
pub mod flow;
pub mod hop;

use fpga_firmware::ids::NodeId;
use fpga_firmware::wire::{CRC_LENGTH, Common};

/// A whole, of which [`LinkState`] gives parts.
pub const WHOLE: u16 = 1000;

/// How a link does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkState {
    /// Which: a number that is the link's alone in its network.
    pub link: u32,
    /// Rate at which it takes packets away, in thousandths of its own.
    pub rate: u16,
    /// How full its queue is, in thousandths.
    pub queue: u16,
}

impl LinkState {
    /// Whether the queue is above, or the rate below, what is good [E2-6].
    #[must_use]
    pub const fn is_congested(&self, limits: &Limits) -> bool {
        self.queue > limits.queue || self.rate < limits.rate
    }
}

/// From where on a link counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A fuller queue, in thousandths (750).
    pub queue: u16,
    /// A lower rate, in thousandths (500).
    pub rate: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 750, rate: 500 }
    }
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Word {
    /// From a sender towards a receiver: every hop on the way that understands it answers, and passes it on.
    Inquiry {
        /// Comes back in the answers.
        number: u32,
    },
    /// From a hop to the sender that asked.
    Passive {
        /// Which inquiry it answers.
        number: u32,
        /// The receiver that the inquiry was for.
        receiver: NodeId,
        /// The link.
        state: LinkState,
    },
    /// To the controller: from a hop by itself, or from a sender that has heard of a congested link.
    Active {
        /// Who sends over the link.
        sender: NodeId,
        /// To whom.
        receiver: NodeId,
        /// The link.
        state: LinkState,
    },
    /// From the controller to a sender: there is no way round.
    Slow {
        /// Send less to this node.
        receiver: NodeId,
    },
}

/// A packet about links. No payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkPacket {
    /// From whom, to whom. A hop is no node: its words carry the receiver's as their source.
    pub common: Common,
    /// What it says.
    pub word: Word,
}

impl LinkPacket {
    /// Bytes on the wire, checksum included: the common header, two nodes or a number, link, rate and queue.
    pub const LENGTH: usize = 32 + CRC_LENGTH;
}
