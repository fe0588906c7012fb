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

pub use fpga_firmware::wire::{LinkFeedback as Word, LinkLoad, LinkPacket};

/// From where on a link counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// A fuller queue, in thousandths (750).
    pub queue: u16,
    /// A lower rate, in thousandths (500).
    pub rate: u16,
}

impl Limits {
    /// Whether a link's queue is above, or its rate below, what is good [E2-6].
    #[must_use]
    pub const fn are_exceeded_by(&self, state: &LinkLoad) -> bool {
        state.queue > self.queue || state.rate < self.rate
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { queue: 750, rate: 500 }
    }
}
