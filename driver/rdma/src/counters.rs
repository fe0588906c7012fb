//! Counters of an endpoint.

use fpga_protocol::sender::SenderCounters;

/// Counters of an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointCounters {
    /// Counters of the sender.
    pub sender: SenderCounters,
    /// Number of events taken.
    pub events: u64,
    /// Number of notifications.
    pub notifications: u64,
    /// Number of transmit windows filled.
    pub windows: u64,
    /// Number of times that the CDMA engine ran past the end of its chain. Each costs a reset and has no other effect.
    pub chain_overruns: u64,
    /// Number of times that the endpoint was driven, by [`Endpoint::poll`](crate::Endpoint::poll) or by a wait.
    pub turns: u64,
    /// Number of faults that the NI reported, including faults that share an event.
    pub faults: u64,
    /// Number of fault events and mirror contradictions that were dropped because they were not taken.
    pub faults_dropped: u64,
    /// Number of table events that the card dropped because the host did not poll. It is updated when the mirror is resynchronised.
    pub events_dropped: u64,
    /// Number of times that the mirror was resynchronised from the card's windows because events were dropped.
    pub mirror_resyncs: u64,
    /// Number of reads of other nodes that were answered.
    pub reads_served: u64,
    /// Number of reads of other nodes that were refused, or whose answer did not arrive.
    pub reads_refused: u64,
}
