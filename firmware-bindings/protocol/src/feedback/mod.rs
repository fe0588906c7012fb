//! Link feedback and flow control (docs/protocol.md 9): reports of hops about their links, and the reactions to them.
//!
//! ```text
//! sender --inquiry--> hop --inquiry--> hop --> receiver      sent when many packets are late
//!    ^---passive-------/                \--active--> controller
//!    ^------------------slow-------------------------/         or another route, without a message
//! ```
//!
//! | Module | Role |
//! |---|---|
//! | [`congestion`] | window of a sender towards each destination, by round trips and losses: needs no hops |
//! | [`hop`] | switch port: answers inquiries, and sends a report when its queue or rate exceeds the limits |
//! | [`controller`] | receives reports, reroutes packets around a link or requests the sender to avoid the path or to slow down |
//! | [`flow`] | paths that a sender avoids, its rate and priority towards each receiver, and the increase of lowered rates |
//!
//! Correctness does not depend on this module. Every feedback packet may be lost, duplicated or late [E2-8], and hops
//! without feedback are treated as unknown.

pub mod congestion;
pub mod controller;
pub mod flow;
pub mod hop;

pub use fpga_firmware::wire::{LinkFeedback as Word, LinkLoad, LinkPacket};

/// Limits from which a link counts as congested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// Maximum queue level, in thousandths (750).
    pub queue: u16,
    /// Minimum rate, in thousandths (500).
    pub rate: u16,
}

impl Limits {
    /// Whether a link's queue is above, or its rate below, the limit [E2-6].
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
