//! Report of a run.

use fpga_netmodel::BitRate;
use fpga_protocol::Nanos;
use fpga_protocol::sender::SendFailure;

/// Result of one flow. Times count from the start of the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowReport {
    /// Time of submission.
    pub begun: Nanos,
    /// Time at which the receiving application was notified.
    pub received: Option<Nanos>,
    /// Time at which the sender completed or failed it.
    pub completed: Option<Nanos>,
    /// Data packets sent for the first time.
    pub packets: u64,
    /// Retransmissions of data packets.
    pub retransmits: u64,
    /// Data packets that arrived, trimmed ones included.
    pub arrived: u64,
    /// Those with a mark of congestion (ECN).
    pub marked: u64,
    /// Total time that its data packets waited at switches; only if the scenario observes queues, marks packets or has priorities.
    pub queueing: Nanos,
    /// Maximum time that one of them waited.
    pub max_queueing: Nanos,
    /// Reason of its failure.
    pub error: Option<SendFailure>,
}

impl FlowReport {
    /// Returns whether it succeeded at both ends.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.error.is_none() && self.received.is_some() && self.completed.is_some()
    }

    /// Time until the receiving application was notified.
    #[must_use]
    pub fn latency(&self) -> Option<Nanos> {
        self.received.map(|at| at.saturating_sub(self.begun))
    }

    /// Payload divided by that time.
    #[must_use]
    pub fn goodput(&self, length: u64) -> BitRate {
        self.latency().map_or(BitRate::new(0), |span| BitRate::of(length, span))
    }
}

/// Counts of one host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HostReport {
    /// Bytes sent, headers and checksums included.
    pub bytes: u64,
    /// Bytes written to its memory.
    pub written: u64,
    /// Expired waits for an answer: to a packet in the registry scheme, or by the timers of another scheme.
    pub timeouts: u64,
    /// Answers to it that a receiver had no free slot: in its registry, its escape channel or its contexts.
    pub refusals: u64,
    /// Largest difference between the indices of two data packets that arrived one after the other, less one (message schemes only):
    /// the degree of disorder of a message, if the host receives only one and nothing is retransmitted.
    pub disorder: u32,
    /// Maximum number of registry entries in use at once (registry only).
    pub registry_high_water: u32,
    /// Maximum number of packets that waited at once for the start packet of their segment (registry only).
    pub escape_high_water: u16,
}

/// Change of a rate by link feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateChange {
    /// Time of the change.
    pub at: Nanos,
    /// Sending host.
    pub from: u32,
    /// Receiving host.
    pub to: u32,
    /// New rate, as a fraction of [`fpga_protocol::feedback::flow::FULL`].
    pub rate: u32,
}

/// Counts of link feedback messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkFeedbackCounts {
    /// Inquiries of senders.
    pub inquiries: u64,
    /// Answers of links on the route (passive feedback).
    pub passive: u64,
    /// Unsolicited reports of links to the controller (active feedback).
    pub active: u64,
    /// Messages of links that the network lost.
    pub lost: u64,
    /// Reroutes around links by the controller.
    pub rerouted: u64,
    /// Messages of the controller that slow a sender down.
    pub slowed: u64,
    /// Link packets that switches without link feedback dropped.
    pub dropped: u64,
    /// Rates that senders lowered.
    pub lowered: u64,
    /// Rates that senders raised again.
    pub raised: u64,
}

impl LinkFeedbackCounts {
    /// Returns the sums of the counts of two runs.
    #[must_use]
    pub const fn merged(&self, other: &Self) -> Self {
        macro_rules! sum {
            ($($field:ident),+) => {
                Self { $($field: self.$field.saturating_add(other.$field)),+ }
            };
        }
        sum!(inquiries, passive, active, lost, rerouted, slowed, dropped, lowered, raised)
    }
}

/// Result of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Flows in the scenario's order.
    pub flows: Vec<FlowReport>,
    /// Hosts by number.
    pub hosts: Vec<HostReport>,
    /// Rate changes in order; empty without link feedback.
    pub rates: Vec<RateChange>,
    /// Counts of link feedback; 0 without it.
    pub links: LinkFeedbackCounts,
    /// Total time that packets waited at switches.
    pub waited: Nanos,
    /// Number of events.
    pub events: u64,
    /// Number of packets that arrived at a host or a switch.
    pub packet_events: u64,
    /// Packets dropped because a switch's queue was full.
    pub dropped: u64,
    /// Packets lost because a link failed, or no route was left.
    pub cut: u64,
    /// Packets whose payload a full queue cut.
    pub trimmed: u64,
    /// Queues that packets passed, by port; empty unless the scenario observes.
    pub queues: Vec<crate::queue_report::QueueReport>,
    /// Delays of flows, by number; empty unless the scenario observes.
    pub delays: Vec<crate::queue_report::FlowDelay>,
    /// Series of queue lengths and rates, if the scenario has an interval.
    pub series: Option<crate::queue_report::SeriesReport>,
    /// Packets that arrived with a wrong checksum.
    pub damaged: u64,
    /// Time of the last event.
    pub ended: Nanos,
}

impl Report {
    /// Returns the fairness of the flows' goodputs, of `length` bytes each: (sum x)^2 / (n sum x^2), 1 if all are equal (Jain, Chiu and Hawe,
    /// 1984).
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "rates far below 2^53")]
    pub fn fairness(&self, length: u64) -> f64 {
        let shares: Vec<f64> = self.flows.iter().map(|flow| flow.goodput(length).get() as f64).collect();
        crate::statistics::jain(&shares)
    }

    /// Returns the time at which the last of the flows had arrived; 0 if none has.
    #[must_use]
    pub fn last_arrival(&self) -> Nanos {
        self.flows.iter().filter_map(|flow| flow.received).max().unwrap_or_default()
    }

    /// Flows that did not succeed at both ends.
    #[must_use]
    pub fn failures(&self) -> usize {
        self.flows.iter().filter(|flow| !flow.is_complete()).count()
    }

    /// Data packets sent divided by those needed.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts far below 2^53")]
    pub fn packets_ratio(&self) -> f64 {
        let needed: u64 = self.flows.iter().map(|flow| flow.packets).sum();
        let again: u64 = self.flows.iter().map(|flow| flow.retransmits).sum();
        (needed + again) as f64 / needed.max(1) as f64
    }
}
