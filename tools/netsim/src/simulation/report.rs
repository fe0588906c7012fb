//! What a run tells.

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;
use fpga_protocol::sender::TransferError;

/// What became of one flow. Times are since the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowReport {
    /// When it was submitted.
    pub begun: Nanos,
    /// When the receiving application was told.
    pub received: Option<Nanos>,
    /// When the sender knew how it ended.
    pub completed: Option<Nanos>,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Data packets sent again.
    pub retransmits: u64,
    /// Why it failed.
    pub error: Option<TransferError>,
}

impl FlowReport {
    /// Whether both ends know that it has ended well.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.error.is_none() && self.received.is_some() && self.completed.is_some()
    }

    /// Time until the receiving application was told.
    #[must_use]
    pub fn latency(&self) -> Option<Nanos> {
        self.received.map(|at| at.saturating_sub(self.begun))
    }

    /// Payload over that time.
    #[must_use]
    pub fn goodput(&self, length: u64) -> BitRate {
        self.latency().map_or(BitRate::new(0), |span| BitRate::of(length, span))
    }
}

/// What one host has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// Bytes that it has sent, headers and checksums included.
    pub bytes: u64,
    /// Bytes written to its memory.
    pub written: u64,
    /// Waits for an answer that were in vain: for a packet's, by the registry, or as another scheme has its timers.
    pub timeouts: u64,
    /// Answers to it that a receiver had no room: in its registry, its escape channel or its contexts.
    pub refusals: u64,
    /// Most registry entries in use at once (registry only).
    pub registry_high_water: u32,
    /// Most packets that waited at once for their segment's first one (registry only).
    pub escape_high_water: u16,
}

/// A rate that link feedback has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateChange {
    /// When.
    pub at: Nanos,
    /// The host that sends.
    pub from: u32,
    /// The host that receives.
    pub to: u32,
    /// The rate from now on, of [`fpga_protocol::feedback::flow::FULL`].
    pub rate: u32,
}

/// Words about links: link feedback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkFeedbackCounts {
    /// Inquiries that senders made.
    pub inquiries: u64,
    /// Answers to them by links on the way.
    pub passive: u64,
    /// Reports of links to the controller, by themselves.
    pub active: u64,
    /// Words of links that the network lost.
    pub lost: u64,
    /// Ways that the controller has found round links, and words of it to senders to slow down.
    pub rerouted: u64,
    /// See there.
    pub slowed: u64,
}

/// What a run has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// In the scenario's order.
    pub flows: Vec<FlowReport>,
    /// By number.
    pub hosts: Vec<HostReport>,
    /// Changes of rates, in order; none without link feedback.
    pub rates: Vec<RateChange>,
    /// Words about links; none without link feedback.
    pub links: LinkFeedbackCounts,
    /// How long packets have waited at switches, all of them together.
    pub waited: Nanos,
    /// Events that happened.
    pub events: u64,
    /// Of these, packets that came to a host or a switch.
    pub packet_events: u64,
    /// Packets that a switch had no room for.
    pub dropped: u64,
    /// Packets that came with a wrong checksum.
    pub damaged: u64,
    /// When the last event happened.
    pub ended: Nanos,
}

impl Report {
    /// Flows that did not end well at both ends.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.flows.iter().filter(|flow| !flow.is_complete()).count()
    }

    /// Data packets sent over those needed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts far below 2^53")]
    pub fn packets_ratio(&self) -> f64 {
        let needed: u64 = self.flows.iter().map(|flow| flow.packets).sum();
        let again: u64 = self.flows.iter().map(|flow| flow.retransmits).sum();
        (needed + again) as f64 / needed.max(1) as f64
    }
}
