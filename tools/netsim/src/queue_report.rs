//! Reports on queues, and on the delays of flows in them.

use fpga_protocol::Nanos;

/// Report on the queue of one port.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Port, counted over the whole network.
    pub port: u32,
    /// Number of the port at its switch, from 0.
    pub number: u32,
    /// Vertex that sends: hosts from 0, then switches from the lowest level up.
    pub from: u32,
    /// Vertex at the end of the link.
    pub to: u32,
    /// Accepted packets.
    pub packets: u64,
    /// Accepted bytes.
    pub bytes: u64,
    /// Mean length over the run, the packet being sent included.
    pub mean_bytes: u64,
    /// Maximum length.
    pub max_bytes: u64,
    /// Time during which it would not have accepted a packet.
    pub full: Nanos,
    /// Time from the first submission to the end of the run.
    pub observed: Nanos,
    /// Packets dropped because it was full.
    pub dropped: u64,
    /// Packets that it marked (ECN).
    pub marked: u64,
    /// Packets whose payload it cut.
    pub trimmed: u64,
    /// Packets lost because the link failed.
    pub cut: u64,
    /// Flows that waited for it.
    pub flows: u64,
    /// Sum of their waits.
    pub waited: Nanos,
    /// Maximum wait of a flow.
    pub max_wait: Nanos,
}

impl QueueReport {
    /// Share of the time during which it was full, 0 to 1.
    #[must_use]
    pub fn full_share(&self) -> f64 {
        crate::numbers::float(self.full.get()) / crate::numbers::float(self.observed.get().max(1))
    }
}

/// Delay of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowDelay {
    /// Number of the flow.
    pub flow: u32,
    /// Time on an idle network.
    pub ideal: Nanos,
    /// Port in whose queue it waited longest.
    pub queue: Option<u32>,
    /// Time during which at least one of its packets waited there.
    pub waited: Nanos,
    /// Port that lost most of its packets.
    pub lost_at: Option<u32>,
    /// Packets that this port lost.
    pub lost: u64,
}

impl FlowDelay {
    pub(crate) const fn new(flow: u32) -> Self {
        Self { flow, ideal: Nanos::ZERO, queue: None, waited: Nanos::ZERO, lost_at: None, lost: 0 }
    }
}

/// Series of one queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSeries {
    /// Port, counted over the whole network.
    pub port: u32,
    /// Vertex that sends.
    pub from: u32,
    /// Vertex at the end of the link.
    pub to: u32,
    /// Number of the port at its switch.
    pub number: u32,
    /// Length in bytes at each sample.
    pub bytes: Vec<u32>,
    /// Bytes sent since the sample before.
    pub sent: Vec<u32>,
}

/// Series of the longest queues. The first sample is one interval after the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SeriesReport {
    /// Time between two samples.
    pub interval: Nanos,
    /// Whether samples are missing at the end, because there were too many.
    pub truncated: bool,
    /// The 16 longest queues by their maximum.
    pub queues: Vec<QueueSeries>,
}
